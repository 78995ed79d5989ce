//! The proof in the repeats of one run.

use crate::bench::result::{Repeat, Run};
use crate::stats::{self, Random, Sample};

/// The same two results always give the same answer.
pub(super) const SEED: u64 = 0x6c61_7264_6572;

/// The repeats' rates that are some.
pub(super) fn values(run: &Run) -> Vec<f64> {
    run.values().into_iter().filter(|v| v.is_finite() && *v > 0.0).collect()
}

/// Each repeat's moments, resampled: the same number of means for all, around 1.
pub(super) fn resampled(run: &Run, random: &mut Random) -> Vec<Vec<f64>> {
    let operations = run.workload.kind.counts_operations();
    let steady = |r: &Repeat| -> Vec<f64> {
        let from_ms = r.knee.map_or(0.0, |k| k.at_s * 1e3);
        let counted = r.over_time.iter().filter(|m| m.at_ms as f64 > from_ms);
        counted.map(|m| if operations { m.operations_per_s } else { m.bytes_per_s }).collect()
    };
    run.repeats.iter().take(64).filter_map(|r| stats::block_bootstrap(&steady(r), random)).collect()
}

/// The repeats of a run as a sample, to be held against another.
pub(crate) fn sample(run: &Run) -> Sample {
    sampled(&values(run), &resampled(run, &mut Random::new(SEED)))
}

/// Of a mean near 1 the variance is that of its logarithm.
pub(super) fn sampled(values: &[f64], drawn: &[Vec<f64>]) -> Sample {
    let spread = |means: &Vec<f64>| means.iter().map(|m| (m - 1.0).powi(2)).sum::<f64>() / means.len().max(1) as f64;
    Sample { logs: values.iter().map(|v| v.ln()).collect(), within: drawn.iter().map(spread).collect() }
}
