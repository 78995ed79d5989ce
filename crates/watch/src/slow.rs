//! A disk that is slower than its siblings: the mean time of its calls in the last window, against the median of the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_alerts::{Condition, EventKind};
use larder_pool::DiskTimes;
use parking_lot::Mutex;

/// Figures are of so long at least.
const WINDOW: Duration = Duration::from_secs(10 * 60);
/// Fewer calls within a window say nothing.
const CALLS_MIN: u64 = 200;
/// Slower than that many times the others, and it is over below that many times.
const FACTOR: f64 = 4.0;
const FACTOR_OVER: f64 = 2.5;
/// Calls that are quick are not slow, however much quicker the others are (a cache beside a disk).
const SLOW_US_MIN: f64 = 10_000.0;

/// The calls of a pool's disks at the beginning of the window, and the verdict of the last one.
#[derive(Default)]
pub(crate) struct Slow(Mutex<BTreeMap<String, Window>>);

struct Window {
    began: Instant,
    calls: BTreeMap<PathBuf, (u64, u64)>,
    verdicts: Vec<Condition>,
}

impl Slow {
    /// What is the case with a pool's disks, by the last whole window.
    pub(crate) fn look(&self, pool: &str, times: &[DiskTimes], now: Instant) -> Vec<Condition> {
        let mut pools = self.0.lock();
        let calls = || times.iter().map(|disk| (disk.path.clone(), (disk.calls, disk.took_us))).collect();
        let window =
            pools.entry(pool.to_owned()).or_insert_with(|| Window { began: now, calls: calls(), verdicts: Vec::new() });
        if now.duration_since(window.began) >= WINDOW {
            let means = means(&window.calls, times);
            // A quiet window leaves the verdict as it was.
            if means.len() >= 2 {
                window.verdicts = means.iter().filter_map(|(path, mean)| verdict(pool, path, *mean, &means)).collect();
            }
            (window.began, window.calls) = (now, calls());
        }
        window.verdicts.clone()
    }

    pub(crate) fn keep_only(&self, pools: &[String]) {
        self.0.lock().retain(|name, _| pools.contains(name));
    }
}

/// The mean time of a call within the window, of disks with enough calls.
fn means(before: &BTreeMap<PathBuf, (u64, u64)>, now: &[DiskTimes]) -> Vec<(PathBuf, f64)> {
    let mean = |disk: &DiskTimes| {
        let (calls, took_us) = before.get(&disk.path)?;
        let (calls, took_us) = (disk.calls.checked_sub(*calls)?, disk.took_us.checked_sub(*took_us)?);
        (calls >= CALLS_MIN).then(|| (disk.path.clone(), took_us as f64 / calls as f64))
    };
    now.iter().filter_map(mean).collect()
}

fn verdict(pool: &str, path: &Path, mean_us: f64, all: &[(PathBuf, f64)]) -> Option<Condition> {
    let mut others: Vec<f64> = all.iter().filter(|(other, _)| other != path).map(|(_, mean)| *mean).collect();
    others.sort_by(f64::total_cmp);
    let median = *others.get(others.len() / 2)?;
    let factor = if mean_us >= SLOW_US_MIN { mean_us / median.max(1.0) } else { 0.0 };
    let text = || {
        format!(
            "{} of the pool {pool} takes {:.0} ms a call, its siblings {:.1} ms. The pool waits for it.",
            path.display(),
            mean_us / 1000.0,
            median / 1000.0
        )
    };
    let subject = format!("{pool}: {}", path.display());
    let never = [f64::INFINITY; 2];
    Condition::of_value(EventKind::DiskSlow, &subject, factor, [FACTOR, FACTOR_OVER], never, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_four_is_slow() {
        let (slow, begin) = (Slow::default(), Instant::now());
        let times = |n: u64, ms: [u64; 4]| -> Vec<DiskTimes> {
            let disk = |(at, ms): (usize, &u64)| DiskTimes {
                path: PathBuf::from(format!("/disk{at}")),
                calls: n * 1000,
                took_us: n * 1000 * ms * 1000,
                written_bytes: 0,
            };
            ms.iter().enumerate().map(disk).collect()
        };
        assert!(slow.look("tank", &times(1, [5, 5, 6, 60]), begin).is_empty(), "no window yet");
        let said = slow.look("tank", &times(2, [5, 5, 6, 60]), begin + WINDOW);
        let texts: Vec<&str> = said.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["/disk3 of the pool tank takes 60 ms a call, its siblings 5.0 ms. The pool waits for it."]);
        assert_eq!(slow.look("tank", &times(2, [5, 5, 6, 60]), begin + WINDOW * 2).len(), 1, "nobody used it");
        // The times are sums: the last window alone was even.
        let mut even = times(3, [5, 5, 6, 60]);
        even[3].took_us = 2 * 1000 * 60_000 + 1000 * 6000;
        assert!(slow.look("tank", &even, begin + WINDOW * 3).is_empty());
    }
}
