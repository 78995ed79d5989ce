//! The state that all connections of a server share: configuration, exports, caches, counters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use larder_base::metrics::{Latency, Metrics};
use larder_base::{Clock, SystemClock, Timestamp, wipe};
use parking_lot::{Mutex, RwLock};

use super::drc;
use super::export::{Export, Exports};
use super::handle::ExportKey;
use super::mount::Mounts;
use super::nlm::Nlm;
use super::owners::Owners;
use super::proto::{PROCS, Proc};
use super::record::BUFFER_BYTES;
use super::v4::{NfsV4, operation_names};
use larder_doors::door::Door;
use larder_doors::parties::Parties;
use larder_doors::strangers::{Budget, Strangers};

/// Limits, all of them bounds on memory.
#[derive(Clone, Debug)]
pub struct NfsConfig {
    /// Connections at a time; a further one takes the place of the oldest that no export has admitted, or is closed at once.
    pub connections_max: usize,
    /// Calls of one connection that may be under way.
    pub requests_max: usize,
    /// File data of one connection under way, and replies it has not read yet.
    pub connection_bytes_max: usize,
    /// File data of all connections under way. A connection may always have one call beyond it, so
    /// that none starves because others do not read.
    pub total_bytes_max: usize,
    /// The address at which to answer as a portmapper (program 100000), over TCP and UDP; usually port 111.
    pub portmapper: Option<SocketAddr>,
    /// The file in which clients of version 4 are recorded, so that they take back what they had after a restart.
    /// Without one they cannot.
    pub client_book: Option<PathBuf>,
    /// How long calls under way may take to finish at shutdown.
    pub drain_secs: u64,
    /// What connections without a right, and incomplete calls, may hold, at all doors together.
    pub strangers: Arc<Budget>,
}

impl Default for NfsConfig {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            requests_max: 256,
            connection_bytes_max: 16 << 20,
            total_bytes_max: 256 << 20,
            portmapper: None,
            client_book: None,
            drain_secs: 10,
            strangers: Arc::default(),
        }
    }
}

pub struct Shared {
    pub config: NfsConfig,
    exports: RwLock<Arc<Exports>>,
    owners: RwLock<Arc<Owners>>,
    exports_version: AtomicU64,
    /// When the exports were set.
    exports_set_at: RwLock<Timestamp>,
    /// Clients of version 4.
    pub v4: Arc<NfsV4>,
    /// Locks of clients of version 3.
    pub nlm: Arc<Nlm>,
    /// A volume that is back in a moment.
    paused: RwLock<Option<uuid::Uuid>>,
    /// Volumes that have gone to another machine, and until when their clients are asked to wait.
    gone: RwLock<Vec<(uuid::Uuid, Instant)>>,
    pub drc: drc::Cache,
    pub stats: Stats,
    pub buffers: Buffers,
    pub mounts: Mounts,
    pub door: Door,
    pub strangers: Arc<Strangers>,
    pub parties: Arc<Parties>,
    /// See [`NfsConfig::total_bytes_max`].
    pub bytes_under_way: AtomicUsize,
    /// The port that MOUNT and NFS answer on.
    pub port: u16,
}

impl Shared {
    pub fn new(config: NfsConfig, port: u16) -> Self {
        let v4 = Arc::new(NfsV4::new(config.client_book.as_deref()));
        Self {
            strangers: Arc::new(Strangers::new(Arc::clone(&config.strangers))),
            parties: Arc::new(Parties::new(config.connections_max)),
            nlm: Arc::new(Nlm::new(Arc::clone(&v4))),
            v4,
            config,
            exports: RwLock::default(),
            owners: RwLock::default(),
            exports_version: AtomicU64::new(0),
            exports_set_at: RwLock::default(),
            paused: RwLock::default(),
            gone: RwLock::default(),
            drc: drc::Cache::default(),
            stats: Stats::default(),
            buffers: Buffers::default(),
            mounts: Mounts::default(),
            door: Door::default(),
            bytes_under_way: AtomicUsize::new(0),
            port,
        }
    }

    pub fn set_owners(&self, owners: Owners) {
        *self.owners.write() = Arc::new(owners);
    }

    pub fn set_exports(&self, exports: Vec<Export>) {
        let owners = Arc::clone(&self.owners.read());
        let mut current = self.exports.write();
        *current = Arc::new(Exports::new(exports, owners));
        // Later than the last time even where the clock stands still.
        let mut at = self.exports_set_at.write();
        let next = Timestamp::new(at.secs, at.nanos.saturating_add(1).min(999_999_999));
        *at = SystemClock::default().now().max(next);
        self.exports_version.fetch_add(1, Relaxed);
        let is_let_in = |key: &ExportKey, client| current.of_client(key, client).is_some();
        self.v4.set_exports(current.list.iter().map(|export| &export.stateful), is_let_in);
        self.nlm.set_exports(Arc::clone(&current));
    }

    pub fn pause(&self, volume: Option<uuid::Uuid>) {
        *self.paused.write() = volume;
    }

    pub fn linger(&self, volume: uuid::Uuid, lasts: Duration) {
        self.v4.gone_elsewhere(volume.into_bytes());
        let now = Instant::now();
        let mut gone = self.gone.write();
        gone.retain(|(other, until)| *other != volume && *until > now);
        gone.push((volume, now + lasts));
    }

    pub fn is_paused(&self, volume: &[u8; 16]) -> bool {
        let is_gone = || {
            let now = Instant::now();
            self.gone.read().iter().any(|(gone, until)| gone.as_bytes() == volume && *until > now)
        };
        self.paused.read().is_some_and(|paused| paused.as_bytes() == volume) || is_gone()
    }

    /// Whether clients of some volume are asked to wait.
    pub fn is_pausing(&self) -> bool {
        let now = Instant::now();
        self.paused.read().is_some() || self.gone.read().iter().any(|(_, until)| *until > now)
    }

    pub fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.read())
    }

    /// When the exports were set, never the same twice.
    pub fn exports_set_at(&self) -> Timestamp {
        *self.exports_set_at.read()
    }

    /// Grows whenever the exports change.
    pub fn exports_version(&self) -> u64 {
        self.exports_version.load(Relaxed)
    }
}

/// Room for file data under way, given back when dropped.
pub struct Charge {
    shared: Arc<Shared>,
    pub bytes: usize,
}

impl Charge {
    pub fn new(shared: &Arc<Shared>, bytes: usize) -> Self {
        shared.bytes_under_way.fetch_add(bytes, Relaxed);
        Self { shared: Arc::clone(shared), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.bytes_under_way.fetch_sub(self.bytes, Relaxed);
    }
}

/// Receive and send buffers that no connection needs at the moment: an idle connection holds none.
#[derive(Default)]
pub struct Buffers {
    spare: Mutex<Vec<BytesMut>>,
}

impl Buffers {
    const SPARE_MAX: usize = 64;

    pub fn take(&self) -> BytesMut {
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
    }

    pub fn give(&self, mut buf: BytesMut) {
        if wipe::is_on() {
            // `wipe.freed_is_zeroed`: a spare one would keep what it received.
            return;
        }
        buf.clear();
        let mut spare = self.spare.lock();
        if spare.len() < Self::SPARE_MAX {
            spare.push(buf);
        }
    }
}

/// Counters since the server started.
#[derive(Default)]
pub struct Stats {
    calls: [AtomicU64; PROCS],
    failed: [AtomicU64; PROCS],
    took: [Latency; PROCS],
    /// Operations of version 4, by number.
    operations: OperationCounts,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    /// Answered from the duplicate request cache.
    pub replayed: AtomicU64,
    /// Messages that were no calls, or calls to nothing we have.
    pub rejected: AtomicU64,
    pub connections_open: AtomicU64,
    pub connections_accepted: AtomicU64,
    /// Closed at once because there were too many.
    pub connections_refused: AtomicU64,
    /// Closed for what they sent, or for not reading.
    pub connections_dropped: AtomicU64,
}

/// Operations of version 4 carried out and failed, by number.
pub struct OperationCounts {
    done: [AtomicU64; OPERATIONS],
    failed: [AtomicU64; OPERATIONS],
}

/// One more than the highest number of an operation.
const OPERATIONS: usize = 76;

impl Default for OperationCounts {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { done: zeros(), failed: zeros() }
    }
}

/// One procedure's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStats {
    /// The procedure's name (RFC 1813, 3).
    pub name: &'static str,
    /// Calls answered since the server started.
    pub calls: u64,
    /// Answered with an error status.
    pub failed: u64,
}

/// [`Stats`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsStats {
    /// Counters of each procedure, in the order of their numbers.
    pub procedures: Vec<ProcStats>,
    /// Bytes of files read by clients.
    pub read_bytes: u64,
    /// Bytes of files written by clients.
    pub written_bytes: u64,
    /// Calls answered again without being carried out again.
    pub replayed: u64,
    /// Messages that were no calls, or calls to no program of ours.
    pub rejected: u64,
    /// Connections that stand now.
    pub connections_open: u64,
    /// Connections accepted since the server started.
    pub connections_accepted: u64,
    /// Connections closed at once because there were too many.
    pub connections_refused: u64,
    /// Connections closed for malformed messages, or for not reading their answers.
    pub connections_dropped: u64,
}

impl Stats {
    pub fn count(&self, proc: Proc, failed: bool) {
        // A procedure's number is its index.
        if let Some(counter) = self.calls.get(proc as usize) {
            counter.fetch_add(1, Relaxed);
        }
        if failed && let Some(counter) = self.failed.get(proc as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Counts an operation of version 4.
    pub fn count_operation(&self, number: u32, failed: bool) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let counters = if failed { &self.operations.failed } else { &self.operations.done };
        if let Some(counter) = counters.get(at) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// How long a call took, waiting for its turn at the volume included.
    pub fn took(&self, proc: Proc, took: Duration) {
        if let Some(latency) = self.took.get(proc as usize) {
            latency.add(took);
        }
    }

    pub fn metrics(&self, out: &mut Metrics) {
        let counters = [
            ("larder_serve_nfs_read_bytes_total", "Bytes of files read by NFS clients.", &self.read_bytes),
            ("larder_serve_nfs_written_bytes_total", "Bytes of files written by NFS clients.", &self.written_bytes),
            ("larder_serve_nfs_replayed_total", "Calls answered again without doing them again.", &self.replayed),
            ("larder_serve_nfs_rejected_total", "Messages that were no calls of ours.", &self.rejected),
            ("larder_serve_nfs_accepted_connections_total", "Connections accepted.", &self.connections_accepted),
            ("larder_serve_nfs_refused_connections_total", "Connections beyond the limit.", &self.connections_refused),
            (
                "larder_serve_nfs_dropped_connections_total",
                "Connections closed for what they sent.",
                &self.connections_dropped,
            ),
        ];
        for (name, help, counter) in counters {
            out.counter(name, help, &[], counter.load(Relaxed));
        }
        for (name, number) in operation_names() {
            let labels = [("operation", name)];
            let count = |counters: &[AtomicU64; OPERATIONS]| {
                let at = usize::try_from(number).unwrap_or(usize::MAX);
                counters.get(at).map_or(0, |counter| counter.load(Relaxed))
            };
            let (done, failed) = (count(&self.operations.done), count(&self.operations.failed));
            if done + failed > 0 {
                let help = "Operations of NFSv4 by their names.";
                out.counter("larder_serve_nfs4_operations_total", help, &labels, done + failed);
                let help = "Operations of NFSv4 answered with an error.";
                out.counter("larder_serve_nfs4_errors_total", help, &labels, failed);
            }
        }
        let open = self.connections_open.load(Relaxed);
        out.gauge("larder_serve_nfs_connections", "Connections that are open.", &[], open);
        for (at, proc) in Proc::ALL.iter().enumerate() {
            let labels = [("procedure", proc.name())];
            let count = |counters: &[AtomicU64; PROCS]| counters.get(at).map_or(0, |counter| counter.load(Relaxed));
            out.counter("larder_serve_nfs_calls_total", "Calls by procedure.", &labels, count(&self.calls));
            let failed = count(&self.failed);
            out.counter("larder_serve_nfs_errors_total", "Calls answered with an error.", &labels, failed);
            if let Some(took) = self.took.get(at) {
                out.latency("larder_serve_nfs_call_seconds", "Time from call to reply.", &labels, took);
            }
        }
    }

    pub fn snapshot(&self) -> NfsStats {
        let counters = Proc::ALL.iter().zip(self.calls.iter().zip(&self.failed));
        NfsStats {
            procedures: counters
                .map(|(proc, (calls, failed))| ProcStats {
                    name: proc.name(),
                    calls: calls.load(Relaxed),
                    failed: failed.load(Relaxed),
                })
                .collect(),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            replayed: self.replayed.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            connections_open: self.connections_open.load(Relaxed),
            connections_accepted: self.connections_accepted.load(Relaxed),
            connections_refused: self.connections_refused.load(Relaxed),
            connections_dropped: self.connections_dropped.load(Relaxed),
        }
    }
}
