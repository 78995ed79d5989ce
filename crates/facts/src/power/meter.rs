//! Energy from watts that are read now and then: trapezia between readings.

use std::time::Duration;

use serde::Serialize;

use super::profile::SECONDS_PER_HOUR;

/// Watts over time. Bounded: it keeps sums and a sample to judge idleness by, not every reading.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    last: Option<(Duration, f64)>,
    elapsed: Duration,
    joules: f64,
    min: f64,
    max: f64,
    readings: u64,
    sample: Vec<f64>,
}

/// Readings kept to find the idle and the loaded level among; beyond that every second one is dropped.
const SAMPLE_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub seconds: f64,
    pub readings: u64,
    pub mean_watts: f64,
    pub min_watts: f64,
    pub max_watts: f64,
    /// A tenth of all readings were below.
    pub idle_watts: f64,
    /// A tenth of all readings were above.
    pub load_watts: f64,
    pub kwh: f64,
}

impl Meter {
    /// A reading at a time since some beginning. What lies before the last one is ignored.
    pub fn add(&mut self, at: Duration, watts: f64) {
        if !watts.is_finite() {
            return;
        }
        if let Some((before, watts_before)) = self.last {
            let Some(step) = at.checked_sub(before) else { return };
            self.joules += (watts + watts_before) / 2.0 * step.as_secs_f64();
            self.elapsed += step;
        }
        self.min = if self.readings == 0 { watts } else { self.min.min(watts) };
        self.max = if self.readings == 0 { watts } else { self.max.max(watts) };
        self.readings += 1;
        self.last = Some((at, watts));
        self.keep(watts);
    }

    fn keep(&mut self, watts: f64) {
        self.sample.push(watts);
        if self.sample.len() > SAMPLE_MAX {
            let mut even = false;
            self.sample.retain(|_| {
                even = !even;
                even
            });
        }
    }

    /// `None` before the first reading.
    pub fn summary(&self) -> Option<Summary> {
        let (_, last) = self.last?;
        let seconds = self.elapsed.as_secs_f64();
        let mut sorted = self.sample.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (sorted.len().saturating_sub(1)) as f64 * share;
            sorted.get(index.round() as usize).copied().unwrap_or(last)
        };
        Some(Summary {
            seconds,
            readings: self.readings,
            mean_watts: if seconds > 0.0 { self.joules / seconds } else { last },
            min_watts: self.min,
            max_watts: self.max,
            idle_watts: at(0.1),
            load_watts: at(0.9),
            kwh: self.joules / SECONDS_PER_HOUR / 1000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_watts_times_time() {
        let mut meter = Meter::default();
        assert_eq!(meter.summary(), None);
        let at = Duration::from_secs;
        for (seconds, watts) in [(0, 10.0), (1800, 10.0), (3600, 30.0)] {
            meter.add(at(seconds), watts);
        }
        meter.add(at(100), 1e9);
        meter.add(at(7200), f64::NAN);
        let found = meter.summary().unwrap();
        assert_eq!((found.seconds, found.readings, found.min_watts, found.max_watts), (3600.0, 3, 10.0, 30.0));
        // Half an hour at 10 W and half an hour at 20 W on average.
        assert!((found.kwh - 0.015).abs() < 1e-12 && (found.mean_watts - 15.0).abs() < 1e-9);
    }

    #[test]
    fn memory_is_bounded_and_levels_are_found() {
        let mut meter = Meter::default();
        for second in 0..100_000u64 {
            meter.add(Duration::from_secs(second), if second % 4 == 0 { 60.0 } else { 17.0 });
        }
        assert!(meter.sample.len() <= SAMPLE_MAX);
        let found = meter.summary().unwrap();
        assert_eq!((found.idle_watts, found.readings), (17.0, 100_000));
        assert_eq!(found.max_watts, 60.0);
    }
}
