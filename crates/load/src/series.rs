//! Throughput as time goes by: its steady part, and where a disk's fast cache was full.

use crate::workload::{Knee, Moment};

/// The rate behind a knee is lower by at least this part.
const DROP_MIN: f64 = 0.3;
/// How much of the scatter the two levels have to explain: less is noise, not a knee.
const EXPLAINED_MIN: f64 = 0.7;
/// Each side of a knee lasts at least so long.
const SIDE_S_MIN: f64 = 2.0;
const SIDE_MOMENTS_MIN: usize = 4;

/// The part of a series that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steady {
    pub(crate) seconds: f64,
    pub(crate) bytes: f64,
    pub(crate) operations: f64,
}

impl Steady {
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes / self.seconds.max(f64::MIN_POSITIVE)
    }

    pub(crate) fn operations_per_s(&self) -> f64 {
        self.operations / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// The work after `from_s`; `None` when there was none.
pub(crate) fn steady(moments: &[Moment], from_s: f64) -> Option<Steady> {
    let mut found = Steady { seconds: 0.0, bytes: 0.0, operations: 0.0 };
    let mut before_ms = 0;
    for moment in moments {
        let seconds = moment.at_ms.saturating_sub(before_ms) as f64 / 1e3;
        if before_ms as f64 / 1e3 + 1e-9 >= from_s {
            found.seconds += seconds;
            found.bytes += moment.bytes_per_s * seconds;
            found.operations += moment.operations_per_s * seconds;
        }
        before_ms = moment.at_ms;
    }
    (found.seconds > 0.0).then_some(found)
}

/// One fall from a level to a lower one that lasts: the cut that leaves the least scatter around two levels.
///
/// Moments before `warm_up_s` are left out.
pub(crate) fn knee(moments: &[Moment], warm_up_s: f64) -> Option<Knee> {
    let skipped = moments.iter().take_while(|m| m.at_ms as f64 / 1e3 <= warm_up_s).count();
    let rates: Vec<f64> = moments.iter().skip(skipped).map(|m| m.bytes_per_s).collect();
    let start_ms = skipped.checked_sub(1).and_then(|i| moments.get(i)).map_or(0, |m| m.at_ms);
    let all = scatter(&rates);
    let at_s = |index: usize| moments.get(skipped + index).map_or(0.0, |m| m.at_ms as f64 / 1e3);
    let end_s = at_s(rates.len().checked_sub(1)?);
    let sides = |cut: &usize| {
        let until = at_s(cut - 1);
        until - start_ms as f64 / 1e3 >= SIDE_S_MIN && end_s - until >= SIDE_S_MIN
    };
    let cuts = (SIDE_MOMENTS_MIN..(rates.len() + 1).saturating_sub(SIDE_MOMENTS_MIN)).filter(sides);
    let scattered = |cut: usize| {
        let (before, after) = rates.split_at(cut);
        scatter(before) + scatter(after)
    };
    let (cut, left) = cuts.map(|cut| (cut, scattered(cut))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (before, after) = rates.split_at(cut);
    let (high, low) = (middle(before), middle(after));
    let real = all > 0.0 && 1.0 - left / all >= EXPLAINED_MIN && low <= high * (1.0 - DROP_MIN);
    real.then(|| {
        let at = at_s(cut - 1);
        let whole = steady(moments, 0.0).map_or(0.0, |s| s.bytes);
        let later = steady(moments, at).map_or(0.0, |s| s.bytes);
        Knee { at_s: at, bytes: (whole - later) as u64, before_bytes_per_s: high, after_bytes_per_s: low }
    })
}

/// Sum of the squared distances from the mean.
fn scatter(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|v| (v - mean) * (v - mean)).sum()
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half seconds, in MB/s.
    fn moments(rates: impl IntoIterator<Item = f64>) -> Vec<Moment> {
        let of = |(i, rate): (usize, f64)| Moment {
            at_ms: (i as u64 + 1) * 500,
            bytes_per_s: rate * 1e6,
            operations_per_s: rate,
        };
        rates.into_iter().enumerate().map(of).collect()
    }

    /// Noise that is the same in every run: -1 to 1.
    fn noise(i: usize) -> f64 {
        ((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0
    }

    #[test]
    fn the_cache_of_a_qlc_disk_is_seen() {
        // 42 s at 480 MB/s, then 80 MB/s: the cache held 20 GB.
        let series = moments((0..240).map(|i| if i < 84 { 480.0 + 25.0 * noise(i) } else { 80.0 + 12.0 * noise(i) }));
        let knee = knee(&series, 1.0).unwrap();
        assert!((41.0..=43.0).contains(&knee.at_s), "{knee:?}");
        assert!((19.5e9..=20.7e9).contains(&(knee.bytes as f64)), "{knee:?}");
        assert!((470e6..=490e6).contains(&knee.before_bytes_per_s), "{knee:?}");
        assert!((75e6..=85e6).contains(&knee.after_bytes_per_s), "{knee:?}");
        let steady = steady(&series, knee.at_s).unwrap();
        assert!((78e6..=82e6).contains(&steady.bytes_per_s()), "{steady:?}");
    }

    #[test]
    fn what_is_no_knee_is_not_called_one() {
        let check = |what: &str, series: Vec<Moment>| assert_eq!(knee(&series, 1.0), None, "{what}");
        check("nothing", Vec::new());
        check("steady", moments((0..120).map(|i| 400.0 + 20.0 * noise(i))));
        check("exactly even", moments([400.0; 40]));
        check("noisy", moments((0..120).map(|i| 400.0 + 390.0 * noise(i))));
        check("rising", moments((0..120).map(|i| 100.0 + 3.0 * i as f64)));
        check("a slow start", moments((0..60).map(|i| if i < 10 { 50.0 } else { 400.0 })));
        check("a fall at the very end", moments((0..60).map(|i| if i < 58 { 400.0 } else { 50.0 })));
        check("one pause", moments((0..60).map(|i| if (30..33).contains(&i) { 0.0 } else { 400.0 })));
        check("a small step", moments((0..60).map(|i| if i < 30 { 400.0 } else { 330.0 })));
        check("in the warm-up", moments((0..40).map(|i| if i < 2 { 2000.0 } else { 400.0 })));
    }

    #[test]
    fn warming_up_does_not_count() {
        let series = moments([100.0, 100.0, 300.0, 500.0]);
        let part = steady(&series, 1.0).unwrap();
        assert!((part.seconds - 1.0).abs() < 1e-9 && (part.bytes_per_s() - 400e6).abs() < 1.0, "{part:?}");
        assert!((part.operations_per_s() - 400.0).abs() < 1e-6);
        assert_eq!(steady(&series, 2.0), None);
        assert_eq!(steady(&[], 0.0), None);
    }
}
