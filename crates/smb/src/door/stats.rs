//! Operations of SMB clients.

use std::time::Instant;

use larder_base::metrics::Metrics;

use larder_doors::counted::{Counted, Names};

/// Kinds of requests, as they are counted.
#[derive(Clone, Copy)]
pub enum Op {
    Open,
    GetAttributes,
    SetAttributes,
    List,
    Read,
    Write,
    Sync,
    Rename,
    Link,
    Remove,
}

pub struct Stats(Counted<{ Op::Remove as usize + 1 }>);

impl Default for Stats {
    fn default() -> Self {
        Self(Counted::new(Names {
            operations: [
                "open",
                "get-attributes",
                "set-attributes",
                "list",
                "read",
                "write",
                "sync",
                "rename",
                "link",
                "remove",
            ],
            seconds: "larder_serve_smb_operation_seconds",
            read_bytes: "larder_serve_smb_read_bytes_total",
            written_bytes: "larder_serve_smb_written_bytes_total",
        }))
    }
}

impl Stats {
    /// Counts an operation when what this returns goes.
    pub fn begin(&self, op: Op) -> Running<'_> {
        Running { stats: self, op, since: Instant::now() }
    }

    pub fn read(&self, bytes: usize) {
        self.0.read_bytes.add(bytes as u64);
    }

    pub fn written(&self, bytes: u32) {
        self.0.written_bytes.add(u64::from(bytes));
    }

    pub fn metrics(&self, out: &mut Metrics) {
        self.0.metrics(out);
    }
}

pub struct Running<'a> {
    stats: &'a Stats,
    op: Op,
    since: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stats.0.add(self.op as usize, self.since);
    }
}
