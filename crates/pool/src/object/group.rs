//! Group commit of long objects: what is written is held back until one flush of the disks serves
//! several objects ([`GroupCommit`]).
//!
//! A flush makes a disk write out its cache, and other writes wait meanwhile. A long file that is
//! written in a stream is many objects, and each took three flushes one after the other: of its
//! files, of its directories, and of the journal that names it.
//!
//! - `group.held_back_unflushed`: an object is held back between its last write and its flush.
//!   Nobody has been told of it, so a crash then loses what a crash before it would have lost.
//! - `group.ends`: a group ends when no other object of a group is being written, when its bytes
//!   reach the bound of whoever comes last, when somebody waits for one of them, and after
//!   [`HELD_MAX`].
//! - `group.writers_bounded`: at most [`WRITING_MAX`] objects of groups are being written at once.
//!   Those that are held back have no stagings.

use std::time::Duration;

use larder_base::group_commit::GroupCommit;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// The longest time that an object is held back.
const HELD_MAX: Duration = Duration::from_millis(250);
/// Two are written while a third is begun or ended.
const WRITING_MAX: usize = 3;

pub struct Groups {
    turns: Semaphore,
    now: Mutex<Group>,
}

#[derive(Default)]
struct Group {
    /// Objects being written, which may join.
    writing: usize,
    /// Bytes held back, and who is to be told.
    bytes: u64,
    held: Vec<oneshot::Sender<()>>,
}

impl Group {
    fn end(&mut self) {
        self.bytes = 0;
        // Some are not waited for any more.
        self.held.drain(..).for_each(|held| _ = held.send(()));
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self { turns: Semaphore::new(WRITING_MAX), now: Mutex::default() }
    }
}

/// An object of a group while it is being written.
pub struct Member<'a> {
    groups: &'a Groups,
    terms: GroupCommit,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Groups {
    /// Waits for a turn to write.
    pub async fn join(&self, terms: GroupCommit) -> Member<'_> {
        // The semaphore is never closed.
        let turn = self.turns.acquire().await.ok();
        self.now.lock().writing += 1;
        Member { groups: self, terms, _turn: turn }
    }
}

impl Member<'_> {
    /// Its `bytes` are written. Returns when they are to be flushed (`group.ends`).
    pub async fn written(self, bytes: u64) {
        let (groups, terms) = (self.groups, self.terms);
        let told = {
            let mut group = groups.now.lock();
            group.bytes += bytes;
            let (tell, told) = oneshot::channel();
            group.held.push(tell);
            if terms.is_awaited || group.bytes >= terms.bytes_max {
                group.end();
            }
            told
        };
        drop(self);
        if tokio::time::timeout(HELD_MAX, told).await.is_err() {
            groups.now.lock().end();
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut group = self.groups.now.lock();
        group.writing -= 1;
        if group.writing == 0 {
            group.end();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;

    const TERMS: GroupCommit = GroupCommit { bytes_max: 100, is_awaited: false };

    /// `group.ends`
    #[tokio::test(start_paused = true)]
    async fn a_group_ends_by_its_bytes_by_a_waiter_by_time_and_when_nobody_else_writes() {
        let groups = Arc::new(Groups::default());
        let one = |terms, bytes| {
            let groups = Arc::clone(&groups);
            tokio::spawn(async move { groups.join(terms).await.written(bytes).await })
        };
        let begun = tokio::time::Instant::now();
        one(TERMS, 10).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO, "alone");

        let writes = groups.join(TERMS).await;
        let held = one(TERMS, 60);
        tokio::time::sleep(HELD_MAX / 2).await;
        assert!(!held.is_finished(), "another may join");
        one(TERMS, 60).await.unwrap();
        held.await.unwrap();
        assert_eq!(begun.elapsed(), HELD_MAX / 2, "by bytes");

        let held = one(TERMS, 60);
        tokio::task::yield_now().await;
        one(GroupCommit { is_awaited: true, ..TERMS }, 1).await.unwrap();
        held.await.unwrap();
        assert_eq!(begun.elapsed(), HELD_MAX / 2, "by a waiter");

        one(TERMS, 60).await.unwrap();
        assert_eq!(begun.elapsed(), HELD_MAX / 2 + HELD_MAX, "by time");

        let held = one(TERMS, 60);
        tokio::time::sleep(HELD_MAX / 2).await;
        assert!(!held.is_finished());
        drop(writes);
        held.await.unwrap();
        assert_eq!(begun.elapsed(), HELD_MAX * 2, "one that failed leaves nobody behind");
        let left = groups.now.lock();
        assert_eq!((left.writing, left.bytes), (0, 0));
    }

    /// `group.writers_bounded`
    #[tokio::test(start_paused = true)]
    async fn those_that_are_held_back_make_room_for_writers() {
        let groups = Groups::default();
        let mut writing = Vec::new();
        for _ in 0..WRITING_MAX {
            writing.push(groups.join(TERMS).await);
        }
        assert!(tokio::time::timeout(HELD_MAX * 10, groups.join(TERMS)).await.is_err());
        let mut held = Box::pin(writing.pop().unwrap().written(1));
        assert!(futures::poll!(&mut held).is_pending());
        writing.push(groups.join(TERMS).await);
        // Given up while it is held back.
        drop(held);
        drop(writing);
        assert_eq!(groups.now.lock().writing, 0);
    }
}
