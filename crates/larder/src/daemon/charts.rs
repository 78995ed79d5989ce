//! What the box did and drew over an hour, a day, a month and a year, for charts.
//!
//! - `charts.wakes_nothing`: a sample is taken once in [`STEP`] from counters in memory, `/proc`, `/sys` and meters. No disk is
//!   asked, and nothing is written while nothing is transferred.
//! - `charts.bounded`: each span has a fixed number of samples; the file has 200 KB at most.
//! - A connection that began and ended between two samples is not counted.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_api::{ChartSample, ChartSpan, ChartSpanName, Charts};
use larder_base::traffic::{self, Traffic};
use larder_facts::Machine;
use larder_facts::power::{Basis, Sources};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Daemon;
use crate::config::edit::replace_file;

const STEP: Duration = Duration::from_secs(60);
/// Seconds of a sample of each span, and how many there are.
const SPANS: [(ChartSpanName, u64, usize); 4] = [
    (ChartSpanName::Hour, 60, 60),
    (ChartSpanName::Day, 600, 144),
    (ChartSpanName::Month, 4 * 3600, 186),
    (ChartSpanName::Year, 86_400, 366),
];
const WRITE_EVERY: Duration = Duration::from_secs(6 * 3600);
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
struct Seen {
    read: f64,
    written: f64,
    ops: f64,
    latency_us: Option<f64>,
    watts: Option<f64>,
    celsius: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    spans: [VecDeque<Slot>; 4],
}

impl Kept {
    /// A clock that was set back adds to the newest sample.
    fn add(&mut self, at_s: u64, seen: &Seen) {
        for (slots, (_, step_s, count_max)) in self.spans.iter_mut().zip(SPANS) {
            let period = at_s / step_s;
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

pub(crate) struct ChartState {
    kept: Mutex<Kept>,
    file: PathBuf,
}

impl ChartState {
    /// What an earlier run kept. A file that cannot be read is no loss: it is begun anew.
    pub(crate) fn open(folder: &Path) -> Self {
        let file = folder.join("watch").join(FILE);
        let is_small = std::fs::metadata(&file).is_ok_and(|of| of.len() <= FILE_BYTES_MAX);
        let bytes = if is_small { std::fs::read(&file).unwrap_or_default() } else { Vec::new() };
        let mut kept: Kept = serde_json::from_slice(&bytes).unwrap_or_default();
        for (slots, (.., count_max)) in kept.spans.iter_mut().zip(SPANS) {
            slots.truncate(count_max);
        }
        Self { kept: Mutex::new(kept), file }
    }

    pub(crate) fn write(&self) {
        let bytes = serde_json::to_vec(&*self.kept.lock()).unwrap_or_default();
        if let Err(error) = replace_file(&self.file, &bytes, 0o600) {
            tracing::warn!("the charts are not kept: {error}");
        }
    }

    pub(crate) fn told(&self) -> Charts {
        let kept = self.kept.lock();
        let span = |(slots, (name, step_s, _)): (&VecDeque<Slot>, (ChartSpanName, u64, usize))| ChartSpan {
            span: name,
            step_s,
            samples: slots.iter().map(|slot| slot.told(step_s)).collect(),
        };
        Charts { spans: kept.spans.iter().zip(SPANS).map(span).collect() }
    }
}

/// Counters at a moment.
struct Counters {
    at: Instant,
    /// Connections with their bytes read and written so far.
    connections: BTreeMap<u64, (Arc<Traffic>, u64, u64)>,
    disk_calls: u64,
    disk_us: u64,
}

impl Counters {
    fn now(daemon: &Daemon) -> Self {
        let bytes = |one: Arc<Traffic>| {
            let (read, written) = moved(&one);
            (one.id(), (one, read, written))
        };
        let pools = daemon.storage.all();
        let disks = pools.iter().filter_map(|pool| pool.disk_pool()).flat_map(|pool| pool.disk_times());
        let (disk_calls, disk_us) = disks.fold((0, 0), |(calls, us), disk| (calls + disk.calls, us + disk.took_us));
        Self { at: Instant::now(), connections: traffic::open().into_iter().map(bytes).collect(), disk_calls, disk_us }
    }

    /// What came since `before`: a connection that ended meanwhile still has its numbers.
    fn since(&self, before: &Counters) -> Seen {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let (mut read, mut written) = (0, 0);
        for (id, (one, was_read, was_written)) in &before.connections {
            let (now_read, now_written) = match self.connections.get(id) {
                Some((_, read, written)) => (*read, *written),
                None => moved(one),
            };
            read += now_read.saturating_sub(*was_read);
            written += now_written.saturating_sub(*was_written);
        }
        for (_, new_read, new_written) in
            self.connections.iter().filter(|(id, _)| !before.connections.contains_key(id)).map(|(_, one)| one)
        {
            read += new_read;
            written += new_written;
        }
        // A pool that is closed takes its counters with it.
        let calls = self.disk_calls.saturating_sub(before.disk_calls);
        let us = self.disk_us.saturating_sub(before.disk_us);
        Seen {
            read: read as f64 / seconds,
            written: written as f64 / seconds,
            ops: calls as f64 / seconds,
            latency_us: (calls > 0).then(|| us as f64 / calls as f64),
            watts: None,
            celsius: None,
        }
    }
}

/// Bytes of files that a connection has read and written.
fn moved(one: &Traffic) -> (u64, u64) {
    let [(_, read), (_, written), _] = one.moment().done;
    (read, written)
}

/// Runs until the daemon stops (`charts.wakes_nothing`).
pub(crate) async fn keep(daemon: Arc<Daemon>) {
    let config = daemon.state.lock().await.config.power.clone();
    let sources = Sources::new(&Machine::this(), &config.sources, &config.parts, config.supply_efficiency);
    let sources = Arc::new(Mutex::new(sources));
    let (began, mut before, mut written) = (Instant::now(), Counters::now(&daemon), Instant::now());
    let mut is_changed = false;
    sources.lock().begin();
    loop {
        tokio::time::sleep(STEP).await;
        let now = Counters::now(&daemon);
        let mut seen = now.since(&before);
        before = now;
        let meters = Arc::clone(&sources);
        let readout = tokio::task::spawn_blocking(move || meters.lock().read(began.elapsed())).await;
        // An estimate from parts is no measurement.
        let total = readout.ok().and_then(|readout| readout.total).filter(|total| total.basis == Basis::Measured);
        seen.watts = total.map(|total| total.watts);
        seen.celsius = daemon.watch.hottest_disk();
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        daemon.charts.kept.lock().add(at_s, &seen);
        is_changed |= seen.read + seen.written > 0.0;
        if is_changed && written.elapsed() >= WRITE_EVERY {
            (is_changed, written) = (false, Instant::now());
            daemon.charts.write();
        }
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
            kept.add(minute * 60, &seen((minute % 10) as f64, Some((minute % 7) as f64)));
        }
        let lengths: Vec<usize> = kept.spans.iter().map(VecDeque::len).collect();
        assert_eq!(lengths, SPANS.map(|(.., max)| max));
        let of_ten = kept.spans[1].back().unwrap().told(600);
        assert_eq!((of_ten.read_bytes_per_s, of_ten.disk_celsius, of_ten.watts), (Some(4.5), Some(6.0), None));
        // A clock that was set back makes no new sample.
        let newest = kept.spans[0].back().unwrap().period;
        kept.add(0, &seen(1.0, None));
        assert_eq!(kept.spans[0].back().unwrap().period, newest);
    }

    #[test]
    fn charts_outlive_a_restart_and_damage_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("watch")).unwrap();
        let charts = ChartState::open(folder.path());
        charts.kept.lock().add(3600, &seen(7.0, None));
        charts.write();
        let again = ChartState::open(folder.path());
        assert_eq!(again.told(), charts.told());
        assert_eq!(again.told().spans[3].samples[0].read_bytes_per_s, Some(7.0));
        assert!(std::fs::metadata(&again.file).unwrap().len() < 1 << 16);
        std::fs::write(&again.file, b"{").unwrap();
        assert!(ChartState::open(folder.path()).told().spans.iter().all(|span| span.samples.is_empty()));
    }
}
