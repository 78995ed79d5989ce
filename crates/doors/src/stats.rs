//! What a door with connections and logins counts. SFTP and WebDAV are such doors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use larder_base::metrics::{Counter, Metrics};

use crate::counted::{Counted, Names};

/// What one door counts, by `N` kinds of operations.
pub struct DoorStats<const N: usize> {
    names: LoginNames,
    operations: Counted<N>,
    /// Connections that are open now.
    pub connections_open: AtomicUsize,
    /// Connections that were accepted.
    pub connections_accepted: Counter,
    /// Connections beyond a limit.
    pub connections_refused: Counter,
    /// Connections that the server ended.
    pub connections_dropped: Counter,
    /// Passwords and keys that were found right; those that are remembered are not counted again.
    pub logins: Counter,
    /// Wrong names, passwords and keys.
    pub logins_refused: Counter,
    /// Passwords that were not looked at, of addresses that had guessed.
    pub logins_locked_out: Counter,
}

/// Names of the counters of connections and logins.
pub struct LoginNames {
    /// The gauge of open connections.
    pub connections: &'static str,
    /// Of connections that were accepted.
    pub accepted: &'static str,
    /// Of connections beyond a limit.
    pub refused: &'static str,
    /// Of connections that the server ended.
    pub dropped: &'static str,
    /// Of logins.
    pub logins: &'static str,
    /// Of wrong names, passwords and keys.
    pub logins_refused: &'static str,
    /// Of passwords that were not looked at.
    pub locked_out: &'static str,
}

/// The counters of a door, and the names of its operations.
#[macro_export]
macro_rules! door_stats {
    ($door:literal, $operations:expr) => {
        $crate::stats::DoorStats::new(
            $crate::counted::Names {
                operations: $operations,
                seconds: concat!("larder_serve_", $door, "_operation_seconds"),
                read_bytes: concat!("larder_serve_", $door, "_read_bytes_total"),
                written_bytes: concat!("larder_serve_", $door, "_written_bytes_total"),
            },
            $crate::stats::LoginNames {
                connections: concat!("larder_serve_", $door, "_connections"),
                accepted: concat!("larder_serve_", $door, "_accepted_connections_total"),
                refused: concat!("larder_serve_", $door, "_refused_connections_total"),
                dropped: concat!("larder_serve_", $door, "_dropped_connections_total"),
                logins: concat!("larder_serve_", $door, "_logins_total"),
                logins_refused: concat!("larder_serve_", $door, "_refused_logins_total"),
                locked_out: concat!("larder_serve_", $door, "_locked_out_logins_total"),
            },
        )
    };
}

impl<const N: usize> DoorStats<N> {
    /// Counters at zero, under these names.
    pub fn new(operations: Names<N>, names: LoginNames) -> Self {
        Self {
            names,
            operations: Counted::new(operations),
            connections_open: AtomicUsize::new(0),
            connections_accepted: Counter::new(),
            connections_refused: Counter::new(),
            connections_dropped: Counter::new(),
            logins: Counter::new(),
            logins_refused: Counter::new(),
            logins_locked_out: Counter::new(),
        }
    }

    /// Counts an operation that began at `since` and is over now.
    pub fn took(&self, operation: usize, since: Instant) {
        self.operations.add(operation, since);
    }

    /// Counts bytes of files that a client read.
    pub fn read(&self, bytes: usize) {
        self.operations.read_bytes.add(bytes as u64);
    }

    /// Counts bytes of files that a client wrote.
    pub fn written(&self, bytes: usize) {
        self.operations.written_bytes.add(bytes as u64);
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut Metrics) {
        self.operations.metrics(out);
        let names = &self.names;
        let counters = [
            (names.accepted, "Connections accepted.", &self.connections_accepted),
            (names.refused, "Connections beyond a limit.", &self.connections_refused),
            (names.dropped, "Connections ended by the server.", &self.connections_dropped),
            (names.logins, "Logins.", &self.logins),
            (names.logins_refused, "Wrong names, passwords and keys.", &self.logins_refused),
            (names.locked_out, "Passwords refused unseen, of addresses that had guessed.", &self.logins_locked_out),
        ];
        for (name, help, counter) in counters {
            out.counter(name, help, &[], counter.get());
        }
        let open = self.connections_open.load(Relaxed) as u64;
        out.gauge(names.connections, "Connections that are open.", &[], open);
    }
}
