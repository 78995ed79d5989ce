//! Repeats beyond those that were planned, where those disagree and time is left.
//!
//! Two repeats of 141 and 79.9 MB/s have no median that anybody should believe. A third one tells which of them was odd.
//! `again.within_the_time`: a bench keeps to the time that it announced; `quick` to its two minutes.

use super::plan::OVERHEAD_S;
use super::result::{Kind, Repeat};
use larder_load::RunLimits;

/// Repeats within this part of their median agree with it.
const NEAR_MEDIAN: f64 = 0.125;
/// This part of the repeats has to agree, and at least so many of them.
const AGREE_SHARE: f64 = 0.6;
const AGREE_MIN: usize = 2;
/// Repeats that still disagree at so many times their planned number will not agree.
const TIMES_MAX: u32 = 2;

/// Seconds that a bench may spend on repeats beyond its plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spare {
    seconds: f64,
}

impl Spare {
    pub(super) fn of(seconds: f64) -> Self {
        Self { seconds: seconds.max(0.0) }
    }

    /// What a run left of its planned time, or took beyond it.
    pub(super) fn spend(&mut self, planned_s: f64, taken_s: f64) {
        self.seconds += planned_s - taken_s;
    }

    /// Whether to repeat once more. `taken_s`: by the run so far.
    pub(super) fn allows(
        &self,
        kind: Kind,
        limits: &RunLimits,
        planned: u32,
        repeats: &[Repeat],
        taken_s: f64,
    ) -> bool {
        let one_s = (taken_s / repeats.len().max(1) as f64).max(repeat_seconds(limits));
        let left_s = self.seconds + f64::from(planned) * repeat_seconds(limits) - taken_s;
        // One repeat was planned where one is enough, and a scrub takes as long as it takes.
        let repeatable = planned > 1 && kind != Kind::Scrub && repeats.len() < (planned * TIMES_MAX) as usize;
        repeatable && left_s >= one_s && !agree(&values(kind, repeats))
    }
}

/// About how long one repeat takes.
pub(super) fn repeat_seconds(limits: &RunLimits) -> f64 {
    (limits.warm_up + limits.measure_max).as_secs_f64() + OVERHEAD_S
}

fn values(kind: Kind, repeats: &[Repeat]) -> Vec<f64> {
    let value = |r: &Repeat| if kind.counts_operations() { r.operations_per_s } else { r.bytes_per_s };
    repeats.iter().map(value).filter(|value| value.is_finite()).collect()
}

/// Whether most repeats lie near their median. A single odd one among several is left to the median.
fn agree(values: &[f64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some((low, high)) = sorted.len().checked_sub(1).map(|last| (sorted[last / 2], sorted[sorted.len() / 2])) else {
        return false;
    };
    let median = (low + high) / 2.0;
    let near = values.iter().filter(|value| (*value - median).abs() <= median * NEAR_MEDIAN).count();
    near >= AGREE_MIN && near as f64 >= values.len() as f64 * AGREE_SHARE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn most_repeats_agree_or_not() {
        for (values, expected) in [
            (&[141.0, 79.9][..], false),
            (&[141.0, 79.9, 138.0], true),
            (&[141.0, 79.9, 110.0], false),
            (&[141.0, 79.9, 138.0, 81.0], false),
            (&[100.0, 104.0], true),
            (&[100.0], false),
            (&[], false),
            (&[0.0, 0.0], true),
        ] {
            assert_eq!(agree(values), expected, "{values:?}");
        }
    }

    #[test]
    fn a_bench_keeps_to_its_time() {
        let limits = RunLimits { warm_up: Duration::from_secs(1), measure_max: Duration::from_secs(5), again: true };
        let repeats = |rates: &[f64]| {
            let one = |rate: &f64| Repeat { bytes_per_s: *rate, ..Repeat::default() };
            rates.iter().map(one).collect::<Vec<_>>()
        };
        let odd = repeats(&[141.0, 79.9]);
        let may = |spare_s: f64, taken_s: f64| Spare::of(spare_s).allows(Kind::Read, &limits, 2, &odd, taken_s);
        assert!(may(8.0, 15.0), "there is time for one more");
        assert!(!may(7.0, 15.0) && !may(0.0, 15.0), "another would take too long");
        assert!(may(0.0, 7.0), "the two took less than was planned");
        assert!(!may(20.0, 60.0), "one takes 30 s here");
        let long = Spare::of(1e6);
        assert!(!long.allows(Kind::Read, &limits, 2, &repeats(&[100.0, 101.0]), 10.0));
        assert!(!long.allows(Kind::Read, &limits, 2, &repeats(&[9.0, 5.0, 2.0, 1.0]), 10.0), "they will not agree");
        assert!(!long.allows(Kind::Scrub, &limits, 2, &odd, 10.0));
        assert!(!long.allows(Kind::Read, &limits, 1, &repeats(&[9.0]), 10.0));
    }

    #[test]
    fn time_that_a_run_takes_is_gone_for_the_next() {
        let mut spare = Spare::of(10.0);
        spare.spend(20.0, 28.0);
        assert!((spare.seconds - 2.0).abs() < 1e-9);
        spare.spend(20.0, 12.0);
        assert!((spare.seconds - 10.0).abs() < 1e-9);
    }
}
