//! Samples for the charts.
//!
//! - `charts.wakes_nothing`: a sample is taken once in [`STEP`] from counters in memory, `/proc`, `/sys` and meters. No disk is
//!   asked, and nothing is written while nothing is transferred.
//! - A connection that began and ended between two samples is not counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_base::task;
use larder_base::traffic::{self, Traffic};
use larder_facts::Machine;
use larder_facts::power::{Basis, Sources};
use larder_keep::Storage;
use parking_lot::Mutex;

use super::charts::{ChartState, Seen};
use larder_config::power::PowerConfig;
use larder_watch::Watch;

const STEP: Duration = Duration::from_secs(60);
const WRITE_EVERY: Duration = Duration::from_secs(6 * 3600);

/// Counters at a moment.
struct Counters {
    at: Instant,
    /// Connections with their bytes read and written so far.
    connections: BTreeMap<u64, (Arc<Traffic>, u64, u64)>,
    disk_calls: u64,
    disk_us: u64,
}

impl Counters {
    fn now(storage: &Storage) -> Self {
        let bytes = |one: Arc<Traffic>| {
            let (read, written) = moved(&one);
            (one.id(), (one, read, written))
        };
        let pools = storage.all();
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

/// The charts, and what is drawn in them.
type Drawn = (Arc<ChartState>, Arc<Storage>, Arc<Watch>);

/// Runs until the daemon stops (`charts.wakes_nothing`).
pub async fn keep((charts, storage, watch): Drawn, config: PowerConfig) {
    let sources = Sources::new(&Machine::this(), &config.sources, &config.parts, config.supply_efficiency);
    let sources = Arc::new(Mutex::new(sources));
    let (began, mut before, mut written) = (Instant::now(), Counters::now(&storage), Instant::now());
    let mut is_changed = false;
    sources.lock().begin();
    loop {
        tokio::time::sleep(STEP).await;
        let now = Counters::now(&storage);
        let mut seen = now.since(&before);
        before = now;
        let meters = Arc::clone(&sources);
        let readout = task::blocking(move || meters.lock().read(began.elapsed())).await;
        // An estimate from parts is no measurement.
        let total = readout.ok().and_then(|readout| readout.total).filter(|total| total.basis == Basis::Measured);
        seen.watts = total.map(|total| total.watts);
        seen.celsius = watch.hottest_disk();
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        charts.add(at_s, &seen);
        is_changed |= seen.read + seen.written > 0.0;
        if is_changed && written.elapsed() >= WRITE_EVERY {
            (is_changed, written) = (false, Instant::now());
            charts.write();
        }
    }
}
