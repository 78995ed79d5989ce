//! Bandwidth and IOPS logs: `time_ms, value, direction, block, offset[, priority]`, one file per job.

use crate::workload::Moment;

/// A day of half seconds.
const MOMENTS_MAX: usize = 200_000;

/// Adds up the logs of all jobs, in steps of `step_ms`. `bw` is in KiB/s, `iops` in operations per second.
pub(super) fn moments(bw: &[String], iops: &[String], step_ms: u64) -> Vec<Moment> {
    let bytes = added_up(bw, step_ms);
    let operations = added_up(iops, step_ms);
    let at = |series: &[f64], i: usize| series.get(i).copied().unwrap_or(0.0);
    let of = |i: usize| Moment {
        at_ms: (i as u64 + 1) * step_ms,
        bytes_per_s: at(&bytes, i) * 1024.0,
        operations_per_s: at(&operations, i),
    };
    (0..bytes.len()).map(of).collect()
}

/// No run is longer: seven weeks.
const AT_MS_MAX: u64 = u32::MAX as u64;

/// An entry stands for the step that ends at its time. Jobs do not tick together: each entry is shared out over the
/// steps that it lies in. The last step, which not all have finished, is left out.
fn added_up(logs: &[String], step_ms: u64) -> Vec<f64> {
    let entries = || logs.iter().flat_map(|log| log.lines()).filter_map(entry);
    let Some(last_ms) = entries().map(|(at, _)| at).max() else { return Vec::new() };
    let steps = usize::try_from(last_ms / step_ms).unwrap_or(usize::MAX).min(MOMENTS_MAX);
    let mut sums = vec![0.0; steps];
    for (at_ms, value) in entries() {
        let (from, to) = (at_ms.saturating_sub(step_ms), at_ms);
        for index in from / step_ms..=to / step_ms {
            let (begin, end) = (index * step_ms, (index + 1) * step_ms);
            let inside = end.min(to).saturating_sub(begin.max(from));
            if let Some(sum) = usize::try_from(index).ok().and_then(|index| sums.get_mut(index)) {
                *sum += value * inside as f64 / step_ms as f64;
            }
        }
    }
    sums
}

fn entry(line: &str) -> Option<(u64, f64)> {
    let mut fields = line.split(',').map(str::trim);
    let at_ms = fields.next()?.parse().ok()?;
    let value: f64 = fields.next()?.parse().ok()?;
    (at_ms <= AT_MS_MAX && value.is_finite() && value >= 0.0).then_some((at_ms, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_do_not_tick_together_are_added_up() {
        let bw = [
            "500, 1000, 0, 0, 0\n1000, 1000, 0, 0, 0\n1500, 1000, 0, 0, 0\n".to_owned(),
            "750, 2000, 1, 0, 0\n1250, 2000, 1, 0, 0\nnonsense\n1, x\n".to_owned(),
        ];
        let found = moments(&bw, &["500, 10, 0, 0, 0, 0".to_owned()], 500);
        let rates: Vec<f64> = found.iter().map(|m| m.bytes_per_s / 1024.0).collect();
        assert_eq!(rates, [2000.0, 3000.0, 2000.0]);
        assert_eq!(found[0].operations_per_s, 10.0);
        assert_eq!(found.iter().map(|m| m.at_ms).collect::<Vec<_>>(), [500, 1000, 1500]);
        assert!(moments(&[], &[], 500).is_empty());
        assert!(moments(&["18446744073709551615, 1, 0".to_owned()], &[], 500).len() <= MOMENTS_MAX);
    }
}
