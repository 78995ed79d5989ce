//! When something is full, if it goes on as it did.

use crate::alerts::DAY_MS;

/// Days that the line is drawn through: weekends and a backup a month are in it.
const DAYS_USED: u64 = 28;
/// A line through less says nothing.
const DAYS_MIN: u64 = 3;
/// A date further off is none.
const DAYS_AHEAD_MAX: f64 = 730.0;

/// Days from the last sample until `total` is reached, by a straight line (least squares) through the samples of the last weeks: pairs
/// of a time in milliseconds and what is used, oldest first.
pub fn days_left(samples: &[(u64, f64)], total: f64) -> Option<f64> {
    let &(last_ms, used) = samples.last()?;
    let recent = samples.iter().filter(|(at, _)| last_ms.saturating_sub(*at) <= DAYS_USED * DAY_MS);
    let points: Vec<(f64, f64)> = recent.map(|(at, used)| (-((last_ms - at) as f64) / DAY_MS as f64, *used)).collect();
    let &(first_day, _) = points.first()?;
    if -first_day < DAYS_MIN as f64 {
        return None;
    }
    let count = points.len() as f64;
    let (mean_day, mean_used) =
        (points.iter().map(|p| p.0).sum::<f64>() / count, points.iter().map(|p| p.1).sum::<f64>() / count);
    let spread: f64 = points.iter().map(|p| (p.0 - mean_day).powi(2)).sum();
    let together: f64 = points.iter().map(|p| (p.0 - mean_day) * (p.1 - mean_used)).sum();
    let per_day = together / spread;
    let days = (total - used) / per_day;
    (per_day > 0.0 && (0.0..=DAYS_AHEAD_MAX).contains(&days)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(days: u64, used: impl Fn(u64) -> f64) -> Vec<(u64, f64)> {
        (0..days).map(|day| (day * DAY_MS, used(day))).collect()
    }

    #[test]
    fn a_date_where_there_is_one() {
        let rounded = |samples: &[(u64, f64)]| days_left(samples, 1000.0).map(f64::round);
        assert_eq!(rounded(&samples(15, |day| 100.0 + 10.0 * day as f64)), Some(76.0));
        assert_eq!(rounded(&samples(15, |_| 500.0)), None, "nothing grows");
        assert_eq!(rounded(&samples(15, |day| 500.0 - day as f64)), None, "it shrinks");
        assert_eq!(rounded(&samples(3, |day| 100.0 * day as f64)), None, "two days are no trend");
        assert_eq!(rounded(&samples(30, |day| 0.1 * day as f64)), None, "in decades");
        assert_eq!(rounded(&[]), None);
    }
}
