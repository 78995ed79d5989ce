//! One repeat of a workload on one share, as it is given to the threads.

use std::sync::Arc;

use super::contents::Contents;
use super::layout::{Layout, Shape};
use crate::workload::{Kind, Workload};

const CONNECTIONS_MAX: u64 = 64;

#[derive(Clone)]
pub(super) struct Job {
    pub workload: Workload,
    pub layout: Layout,
    /// The bench's own, with a `/` at its end.
    pub folder: String,
    pub contents: Arc<Contents>,
    pub generation: u64,
    /// See [`RunLimits::again`](crate::workload::RunLimits).
    pub again: bool,
    pub connections: Option<u32>,
}

impl Job {
    pub fn slots(&self) -> u64 {
        match self.workload.kind {
            Kind::Cat => 1,
            _ => u64::from(self.workload.depth.max(1)) * self.jobs(),
        }
    }

    pub fn jobs(&self) -> u64 {
        match self.workload.kind {
            Kind::Cat => 1,
            _ => u64::from(self.workload.jobs.max(1)),
        }
    }

    pub fn threads(&self) -> u64 {
        u64::from(self.connections.unwrap_or(self.workload.jobs)).clamp(1, CONNECTIONS_MAX).min(self.slots())
    }

    pub fn blocks_per_file(&self) -> u64 {
        (self.layout.file_bytes / self.workload.block_bytes).max(1)
    }

    /// How many units of work there are when everything is done once.
    pub fn units(&self) -> u64 {
        match self.layout.shape {
            Shape::Large => self.layout.files * self.blocks_per_file(),
            Shape::Small | Shape::Tree => self.layout.files,
        }
    }

    pub fn is_random(&self) -> bool {
        matches!(self.workload.kind, Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed)
    }

    pub fn writes(&self) -> bool {
        use Kind::*;
        matches!(self.workload.kind, Write | RandomWrite | RandomMixed | CreateFiles | CopyTreeIn)
    }

    /// Whether the time runs until the server has said that all of it is on its disks.
    pub fn flushes(&self) -> bool {
        self.writes() && self.workload.synced
    }

    /// Whether the end of the data is followed by its beginning.
    pub fn goes_round(&self) -> bool {
        self.again && matches!(self.workload.kind, Kind::Read | Kind::Cat | Kind::Write)
    }

    /// Whether every job waits at the end of the data until all of it is flushed (`load.clock_ends_on_disk`). An upload is
    /// flushed when it is answered.
    pub fn waits_for_flush(&self, streams: bool) -> bool {
        self.goes_round() && self.flushes() && !streams
    }

    /// Work that is done once cannot be warmed up, and a flush would include the data that was written to warm up.
    pub fn can_warm_up(&self) -> bool {
        use Kind::*;
        !self.flushes() && !matches!(self.workload.kind, CreateFiles | DeleteFiles | CopyTreeIn | CopyTreeOut)
    }
}
