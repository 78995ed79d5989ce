//! Entries of the kernel's caches that the mount itself finds stale (`invalidate.own_stale_once`):
//! the end of a file that another protocol had moved, pages read beside a write with O_DIRECT,
//! setuid bits that a write cleared.
//!
//! Request handlers add to it and never wait long for a notification (`requests.no_page_waits`): the kernel may block one
//! on a page whose request is still to be answered. One thread tells the kernel all that has come together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use larder_fs::Ino;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// More inodes than this at a time, and the kernel forgets everything.
const INODES_MAX: usize = 4096;

pub(super) struct OwnStale {
    waiting: Mutex<Waiting>,
    more: Notify,
    told: watch::Sender<u64>,
}

/// `None`: more than were kept.
type Inodes = Option<HashMap<Ino, Option<u64>>>;

struct Waiting {
    /// Attributes, and data from an offset on if there is one.
    inodes: Inodes,
    /// How often something was added.
    asked: u64,
}

/// Stands for all that was added up to a moment.
#[derive(Clone, Copy)]
pub(super) struct Asked(u64);

impl OwnStale {
    pub(super) fn new() -> Self {
        let waiting = Waiting { inodes: Some(HashMap::new()), asked: 0 };
        Self { waiting: Mutex::new(waiting), more: Notify::new(), told: watch::Sender::new(0) }
    }

    /// The attributes of `ino` are stale, and its data from an offset on.
    pub(super) fn add(&self, ino: Ino, from: Option<u64>) -> Asked {
        let asked = {
            let mut waiting = self.waiting.lock();
            waiting.asked += 1;
            if let Some(inodes) = &mut waiting.inodes {
                let is_full = inodes.len() >= INODES_MAX;
                match inodes.entry(ino) {
                    Entry::Occupied(mut known) => {
                        let earliest = [*known.get(), from].into_iter().flatten().min();
                        known.insert(earliest);
                    }
                    Entry::Vacant(_) if is_full => waiting.inodes = None,
                    Entry::Vacant(new) => drop(new.insert(from)),
                }
            }
            Asked(waiting.asked)
        };
        self.more.notify_one();
        asked
    }

    /// The kernel was told, or the mount has ended.
    pub(super) async fn until_told(&self, asked: Asked) {
        let _ = self.told.subscribe().wait_for(|told| *told >= asked.0).await;
    }

    /// For the thread that tells: something may be waiting.
    pub(super) async fn more(&self) {
        self.more.notified().await;
    }

    /// All that waits, to be handed to [`OwnStale::told`] afterwards.
    pub(super) fn take(&self) -> (Inodes, u64) {
        let mut waiting = self.waiting.lock();
        (waiting.inodes.replace(HashMap::new()), waiting.asked)
    }

    pub(super) fn told(&self, asked: u64) {
        self.told.send_replace(asked);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;

    #[test]
    fn who_asked_before_the_kernel_was_told_waits() {
        let own = OwnStale::new();
        let first = own.add(Ino(5), Some(8192));
        own.add(Ino(5), Some(4096));
        own.add(Ino(7), None);
        let (inodes, asked) = own.take();
        assert_eq!(inodes.unwrap(), HashMap::from([(Ino(5), Some(4096)), (Ino(7), None)]));
        let later = own.add(Ino(5), None);
        assert!(own.until_told(first).now_or_never().is_none());
        own.told(asked);
        assert!(own.until_told(first).now_or_never().is_some());
        assert!(own.until_told(later).now_or_never().is_none(), "it was added after the others were taken");
        own.told(u64::MAX);
        assert!(own.until_told(later).now_or_never().is_some(), "the mount has ended");
    }

    #[test]
    fn too_many_stand_for_all() {
        let own = OwnStale::new();
        for ino in 0..=INODES_MAX as u64 {
            own.add(Ino(ino), None);
        }
        assert!(own.take().0.is_none());
        own.add(Ino(1), None);
        assert_eq!(own.take().0.unwrap().len(), 1);
    }
}
