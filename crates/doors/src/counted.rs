//! Operations of the clients of one protocol: how many, and how long they took.

use std::time::Instant;

use larder_base::metrics::{Counter, Latency, Metrics};

/// Names of what a protocol tells.
pub struct Names<const N: usize> {
    /// Of the operations, by their number.
    pub operations: [&'static str; N],
    pub seconds: &'static str,
    pub read_bytes: &'static str,
    pub written_bytes: &'static str,
}

/// Counts the operations of one protocol.
pub struct Counted<const N: usize> {
    names: Names<N>,
    took: [Latency; N],
    pub read_bytes: Counter,
    pub written_bytes: Counter,
}

impl<const N: usize> Counted<N> {
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

    pub fn metrics(&self, out: &mut Metrics) {
        for (name, took) in self.names.operations.iter().zip(&self.took) {
            out.latency(self.names.seconds, "Time that operations take.", &[("operation", name)], took);
        }
        out.counter(self.names.read_bytes, "Bytes of files read.", &[], self.read_bytes.get());
        out.counter(self.names.written_bytes, "Bytes of files written.", &[], self.written_bytes.get());
    }
}
