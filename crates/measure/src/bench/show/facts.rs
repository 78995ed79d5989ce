//! Figures of one run that several places show.

use super::units;
use crate::bench::result::{Latency, Repeat, Run};

const GIB: f64 = (1u64 << 30) as f64;

/// The middle of what is known; `None` where nothing is.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(low + (high - low) / 2.0)
}

/// Of the repeats' percentiles the median.
pub(crate) fn latency(run: &Run, of: impl Fn(&Latency) -> f64) -> Option<f64> {
    median(run.repeats.iter().filter_map(|r| r.latency.as_ref()).map(of))
}

/// Processor seconds that the load itself took for each GiB.
pub(crate) fn cpu_s_per_gib(run: &Run) -> Option<f64> {
    let of = |r: &Repeat| Some(r.load_cpu_s? / (r.bytes as f64 / GIB));
    median(run.repeats.iter().filter_map(of))
}

/// How much repeats differ; one repeat differs from nothing.
pub(crate) fn spread(run: &Run) -> String {
    match run.repeats.len() {
        0 => "no repeat".to_owned(),
        1 => "1 repeat".to_owned(),
        _ => run.spread().map_or_else(|| units::UNKNOWN.to_owned(), units::percent),
    }
}
