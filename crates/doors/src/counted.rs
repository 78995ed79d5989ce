//! Operations of the clients of one protocol: how many, and how long they took.

use std::time::Instant;

use larder_base::metrics::{Counter, Latency, Metrics};

/// Names of what a protocol tells.
pub struct Names<const N: usize> {
    /// Of the operations, by their number.
    pub operations: [&'static str; N],
    /// The histogram of their time.
    pub seconds: &'static str,
    /// The counter of bytes read.
    pub read_bytes: &'static str,
    /// The counter of bytes written.
    pub written_bytes: &'static str,
}

/// Counts the operations of one protocol.
pub struct Counted<const N: usize> {
    names: Names<N>,
    took: [Latency; N],
    /// Bytes of files that clients read.
    pub read_bytes: Counter,
    /// Bytes of files that clients wrote.
    pub written_bytes: Counter,
}

impl<const N: usize> Counted<N> {
    /// Counters at zero, under these names.
    pub const fn new(names: Names<N>) -> Self {
        let took = [const { Latency::new() }; N];
        Self { names, took, read_bytes: Counter::new(), written_bytes: Counter::new() }
    }

    /// Adds an operation that began at `since` and is over now.
    pub fn add(&self, operation: usize, since: Instant) {
        if let Some(took) = self.took.get(operation) {
            took.add(since.elapsed());
        }
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut Metrics) {
        for (name, took) in self.names.operations.iter().zip(&self.took) {
            out.latency(self.names.seconds, "Time that operations take.", &[("operation", name)], took);
        }
        out.counter(self.names.read_bytes, "Bytes of files read.", &[], self.read_bytes.get());
        out.counter(self.names.written_bytes, "Bytes of files written.", &[], self.written_bytes.get());
    }
}
