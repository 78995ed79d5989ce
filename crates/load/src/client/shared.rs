//! The state that the threads of one repeat share with its clock: the phase, the next unit of work, counters.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::error::{ClientError, Outcome};
use super::histogram::Histogram;
use super::job::Job;
use super::layout::Shape;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    Setup,
    Warm,
    Measure,
    Stop,
    Abort,
}

/// The source of a job's next unit of work.
pub(super) struct Cursor {
    next: AtomicU64,
    limit: AtomicU64,
    pub first: u64,
    pub units: u64,
}

impl Cursor {
    pub fn take(&self) -> Option<u64> {
        let taken = self.next.fetch_add(1, Ordering::Relaxed);
        (taken < self.limit.load(Ordering::Relaxed)).then_some(taken)
    }

    pub fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed)
    }

    /// By one more pass over its part of the data. Those who found nothing left have counted on.
    fn extend(&self) {
        let limit = self.limit.load(Ordering::Relaxed);
        self.next.store(limit, Ordering::Relaxed);
        self.limit.store(limit.saturating_add(self.units), Ordering::Relaxed);
    }
}

/// On a cache line of its own: its thread writes it at every request.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Counter {
    pub operations: AtomicU64,
    pub bytes: AtomicU64,
    /// Blocks that were written.
    pub writes: AtomicU64,
}

#[derive(Default)]
pub(super) struct Gate {
    pub ready: u64,
    /// Threads that flushed all of this pass over the data.
    pub flushed: u64,
    pub ended: u64,
    pub error: Option<ClientError>,
    pub last_end: Option<Instant>,
    pub latencies: [Histogram; 2],
    pub cpu_s: f64,
}

pub(super) struct Shared {
    pub job: Job,
    phase: AtomicU8,
    gate: Mutex<Gate>,
    pub changed: Condvar,
    pub start: tokio::sync::watch::Sender<bool>,
    /// Folders of a tree are made or listed before its files are touched.
    pub walked: tokio::sync::watch::Sender<bool>,
    /// How many passes over the data were flushed, and whether another one follows.
    passes: tokio::sync::watch::Sender<(u64, bool)>,
    pub counters: Vec<Counter>,
    pub cursors: Vec<Cursor>,
}

impl Shared {
    pub fn new(job: Job, threads: u64, endless: bool) -> Self {
        let parts = if job.layout.shape == Shape::Large && !job.is_random() { job.jobs() } else { 1 };
        let units = job.units();
        let cursor = |part: u64| {
            let (first, end) = (part * units / parts, (part + 1) * units / parts);
            let limit = if endless { u64::MAX } else { end - first };
            Cursor { next: AtomicU64::new(0), limit: AtomicU64::new(limit), first, units: end - first }
        };
        Self {
            phase: AtomicU8::new(Phase::Setup as u8),
            gate: Mutex::default(),
            changed: Condvar::new(),
            start: tokio::sync::watch::Sender::new(false),
            walked: tokio::sync::watch::Sender::new(false),
            passes: tokio::sync::watch::Sender::new((0, true)),
            counters: (0..threads).map(|_| Counter::default()).collect(),
            cursors: (0..parts).map(cursor).filter(|c| c.units > 0).collect(),
            job,
        }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Setup,
            1 => Phase::Warm,
            2 => Phase::Measure,
            3 => Phase::Stop,
            _ => Phase::Abort,
        }
    }

    pub fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
    }

    pub fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until everybody is ready.
    pub async fn wait_for_start(&self) {
        self.gate().ready += 1;
        self.changed.notify_all();
        let mut start = self.start.subscribe();
        // The sender is in `self`: it cannot be gone.
        let _ = start.wait_for(|go| *go).await;
    }

    /// Whether all of it is written once more. Every thread asks when it has flushed, and waits for the others.
    pub async fn writes_again(&self) -> bool {
        let mut passes = self.passes.subscribe();
        let passed = passes.borrow_and_update().0;
        self.flushed();
        // The sender is in `self`: it cannot be gone.
        passes.wait_for(|(now, _)| *now > passed).await.is_ok_and(|next| next.1)
    }

    /// The last one of all begins the next pass: nobody takes anything meanwhile.
    fn flushed(&self) {
        let mut gate = self.gate();
        gate.flushed += 1;
        if gate.flushed < self.counters.len() as u64 {
            return;
        }
        gate.flushed = 0;
        let goes_on = self.phase() == Phase::Measure;
        self.cursors.iter().filter(|_| goes_on).for_each(Cursor::extend);
        self.passes.send_modify(|(passed, more)| (*passed, *more) = (*passed + 1, goes_on));
    }

    /// Operations, bytes, and how many of the operations wrote.
    pub fn totals(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&Counter) -> &AtomicU64| self.counters.iter().map(|c| of(c).load(Ordering::Relaxed)).sum();
        // A write is counted after its operation: looked at before, there are never more of them.
        let writes: u64 = sum(|c| &c.writes);
        let operations: u64 = sum(|c| &c.operations);
        // Two counters of a running thread never belong to the same moment; of blocks one is enough.
        let bytes = match self.job.layout.shape {
            Shape::Large => operations * self.job.workload.block_bytes,
            Shape::Small | Shape::Tree => sum(|c| &c.bytes),
        };
        (operations, bytes, writes)
    }

    /// From now on it counts, and what has an end is done once more.
    pub fn begin_measuring(&self) {
        if !self.job.is_random() && !self.job.goes_round() {
            for cursor in &self.cursors {
                let now = cursor.next.load(Ordering::Relaxed);
                cursor.limit.store(now.saturating_add(cursor.units), Ordering::Relaxed);
            }
        }
        self.set_phase(Phase::Measure);
    }

    pub fn ended(&self, outcome: Outcome<End>) {
        let mut gate = self.gate();
        gate.ended += 1;
        match outcome {
            Ok(end) => {
                gate.latencies.iter_mut().zip(&end.latencies).for_each(|(all, own)| all.add(own));
                gate.cpu_s += end.cpu_s;
                gate.last_end = gate.last_end.max(Some(end.at));
            }
            Err(error) => {
                // The first one tells the reason, the others are its consequence.
                gate.error.get_or_insert(error);
                self.set_phase(Phase::Abort);
            }
        }
        self.changed.notify_all();
    }
}

/// The result of a thread.
pub(super) struct End {
    pub at: Instant,
    /// Of reads and everything else, and of writes.
    pub latencies: [Histogram; 2],
    /// Processor time of the part that counts.
    pub cpu_s: f64,
}
