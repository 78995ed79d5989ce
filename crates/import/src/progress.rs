//! Counters that others may look at while an import runs.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The part of the work that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Files are copied.
    Copying = 0,
    /// Files are read a second time and compared.
    Verifying = 1,
    /// What was written last is made durable.
    Flushing = 2,
}

/// The state of a running import. Setting [`Progress::stop`] ends it early, with everything that has a name kept.
#[derive(Debug, Default)]
pub struct Progress {
    stopped: AtomicBool,
    phase: AtomicU8,
    counted: AtomicBool,
    total_files: AtomicU64,
    total_bytes: AtomicU64,
    pub(crate) seen_files: Counter,
    pub(crate) seen_bytes: Counter,
    pub(crate) copied_files: Counter,
    pub(crate) copied_bytes: Counter,
    pub(crate) verified_files: Counter,
    pub(crate) verified_bytes: Counter,
    pub(crate) faults: Counter,
}

/// The numbers of [`Progress`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The part of the work that goes on.
    pub phase: Phase,
    /// Everything but directories in the folder, and the bytes of its files; `None` until all are counted.
    pub total: Option<(u64, u64)>,
    /// Files that are dealt with, and their bytes: copied, or found unchanged.
    pub seen: (u64, u64),
    /// Files copied and bytes read for them.
    pub copied: (u64, u64),
    /// Files compared and bytes read for that.
    pub verified: (u64, u64),
    /// Files that could not be copied, or differ.
    pub faults: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Progress {
    /// Ends the import soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_total(&self, files: u64, bytes: u64) {
        self.total_files.store(files, Ordering::Relaxed);
        self.total_bytes.store(bytes, Ordering::Relaxed);
        self.counted.store(true, Ordering::Release);
    }

    /// The numbers now.
    pub fn look(&self) -> Seen {
        let total = || (self.total_files.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed));
        Seen {
            phase: match self.phase.load(Ordering::Relaxed) {
                0 => Phase::Copying,
                1 => Phase::Verifying,
                _ => Phase::Flushing,
            },
            total: self.counted.load(Ordering::Acquire).then(total),
            seen: (self.seen_files.get(), self.seen_bytes.get()),
            copied: (self.copied_files.get(), self.copied_bytes.get()),
            verified: (self.verified_files.get(), self.verified_bytes.get()),
            faults: self.faults.get(),
        }
    }
}
