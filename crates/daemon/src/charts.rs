//! What the box did and drew over an hour, a day, a month and a year, for charts.
//!
//! - `charts.bounded`: each span has a fixed number of samples; the file has 200 KB at most.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use larder_api::{ChartSample, ChartSpan, ChartSpanName, Charts};
use larder_base::passed;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use larder_config::edit::replace_file;

/// Seconds of a sample of each span, and how many there are.
const SPANS: [(ChartSpanName, u64, usize); 4] = [
    (ChartSpanName::Hour, 60, 60),
    (ChartSpanName::Day, 600, 144),
    (ChartSpanName::Month, 4 * 3600, 186),
    (ChartSpanName::Year, 86_400, 366),
];
/// In the folder `watch`.
const FILE: &str = "charts.json";
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One measure of a sample, as a mean of what was known.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.sum += value;
            self.count = self.count.saturating_add(1);
        }
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| (self.sum / f64::from(self.count) * 100.0).round() / 100.0)
    }
}

/// A period of a span, gathered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Slot {
    /// Its number since 1970.
    period: u64,
    read: Mean,
    written: Mean,
    ops: Mean,
    latency: Mean,
    watts: Mean,
    /// The highest.
    celsius: Option<f64>,
}

impl Slot {
    fn new(period: u64) -> Self {
        let none = Mean::default();
        Self { period, read: none, written: none, ops: none, latency: none, watts: none, celsius: None }
    }

    fn add(&mut self, seen: &Seen) {
        self.read.add(Some(seen.read));
        self.written.add(Some(seen.written));
        self.ops.add(Some(seen.ops));
        self.latency.add(seen.latency_us);
        self.watts.add(seen.watts);
        self.celsius = match (self.celsius, seen.celsius) {
            (Some(old), Some(new)) => Some(old.max(new)),
            (old, new) => old.or(new),
        };
    }

    fn told(&self, step_s: u64) -> ChartSample {
        ChartSample {
            at_s: self.period * step_s,
            read_bytes_per_s: self.read.value(),
            written_bytes_per_s: self.written.value(),
            disk_calls_per_s: self.ops.value(),
            disk_latency_us: self.latency.value(),
            watts: self.watts.value(),
            disk_celsius: self.celsius,
        }
    }
}

/// What was seen within one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) read: f64,
    pub(super) written: f64,
    pub(super) ops: f64,
    pub(super) latency_us: Option<f64>,
    pub(super) watts: Option<f64>,
    pub(super) celsius: Option<f64>,
}

/// The newest sample of a clock that was set back a little stays.
const AHEAD_SLOTS_MAX: u64 = 2;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    spans: [VecDeque<Slot>; 4],
}

impl Kept {
    /// A clock that is behind adds to the newest sample. Samples from the future are of a clock that was ahead: they go, or they
    /// would swallow those of today.
    fn add(&mut self, at_s: u64, is_behind: bool, seen: &Seen) {
        for (slots, (_, step_s, count_max)) in self.spans.iter_mut().zip(SPANS) {
            let period = at_s / step_s;
            while !is_behind && slots.back().is_some_and(|last| last.period > period + AHEAD_SLOTS_MAX) {
                slots.pop_back();
            }
            if slots.back().is_none_or(|last| last.period < period) {
                slots.push_back(Slot::new(period));
            }
            while slots.len() > count_max {
                slots.pop_front();
            }
            if let Some(last) = slots.back_mut() {
                last.add(seen);
            }
        }
    }
}

pub struct ChartState {
    kept: Mutex<Kept>,
    file: PathBuf,
}

impl ChartState {
    /// What an earlier run kept. A file that cannot be read is no loss: it is begun anew.
    pub fn open(folder: &Path) -> Self {
        let file = folder.join("watch").join(FILE);
        let is_small = std::fs::metadata(&file).is_ok_and(|of| of.len() <= FILE_BYTES_MAX);
        let bytes = if is_small { std::fs::read(&file).unwrap_or_default() } else { Vec::new() };
        let mut kept: Kept = serde_json::from_slice(&bytes).unwrap_or_default();
        for (slots, (.., count_max)) in kept.spans.iter_mut().zip(SPANS) {
            slots.truncate(count_max);
        }
        Self { kept: Mutex::new(kept), file }
    }

    pub(super) fn add(&self, at_s: u64, seen: &Seen) {
        self.kept.lock().add(at_s, passed::is_behind(), seen);
    }

    pub fn write(&self) {
        let bytes = serde_json::to_vec(&*self.kept.lock()).unwrap_or_default();
        if let Err(error) = replace_file(&self.file, &bytes, 0o600) {
            tracing::warn!("the charts are not kept: {error}");
        }
    }

    pub fn told(&self) -> Charts {
        let kept = self.kept.lock();
        let span = |(slots, (name, step_s, _)): (&VecDeque<Slot>, (ChartSpanName, u64, usize))| ChartSpan {
            span: name,
            step_s,
            samples: slots.iter().map(|slot| slot.told(step_s)).collect(),
        };
        Charts { spans: kept.spans.iter().zip(SPANS).map(span).collect() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seen(read: f64, celsius: Option<f64>) -> Seen {
        Seen { read, celsius, ..Seen::default() }
    }

    #[test]
    fn spans_are_means_and_bounded() {
        let mut kept = Kept::default();
        let minutes = 3 * 366 * 1440;
        for minute in 0..minutes {
            kept.add(minute * 60, false, &seen((minute % 10) as f64, Some((minute % 7) as f64)));
        }
        let lengths: Vec<usize> = kept.spans.iter().map(VecDeque::len).collect();
        assert_eq!(lengths, SPANS.map(|(.., max)| max));
        let of_ten = kept.spans[1].back().unwrap().told(600);
        assert_eq!((of_ten.read_bytes_per_s, of_ten.disk_celsius, of_ten.watts), (Some(4.5), Some(6.0), None));
        // A clock that was set back makes no new sample.
        let newest = kept.spans[0].back().unwrap().period;
        kept.add(0, true, &seen(1.0, None));
        assert_eq!(kept.spans[0].back().unwrap().period, newest);
    }

    #[test]
    fn charts_outlive_a_restart_and_damage_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("watch")).unwrap();
        let charts = ChartState::open(folder.path());
        charts.kept.lock().add(3600, false, &seen(7.0, None));
        charts.write();
        let again = ChartState::open(folder.path());
        assert_eq!(again.told(), charts.told());
        assert_eq!(again.told().spans[3].samples[0].read_bytes_per_s, Some(7.0));
        assert!(std::fs::metadata(&again.file).unwrap().len() < 1 << 16);
        std::fs::write(&again.file, b"{").unwrap();
        assert!(ChartState::open(folder.path()).told().spans.iter().all(|span| span.samples.is_empty()));
    }
}
