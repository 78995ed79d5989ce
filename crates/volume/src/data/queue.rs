//! Inodes with dirty data, in the order in which they are flushed.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::inode::Inode;

#[derive(Default)]
pub(super) struct Queue {
    /// By age, oldest first.
    pub(super) order: VecDeque<(Arc<Inode>, Instant)>,
    /// Inodes that a caller waits for.
    pub(super) urgent: VecDeque<Arc<Inode>>,
    /// Inodes that were met twice while a load is collected; they go back to where they came from. `None`: `urgent`.
    pub(super) met_twice: Vec<(Arc<Inode>, Option<Instant>)>,
    /// Inodes queued up to this time are to be flushed now.
    pub(super) all_until: Option<Instant>,
    /// A load is being collected: the inodes that it took out of `order` are not counted yet.
    pub(super) collecting: bool,
}

impl Queue {
    /// Every inode queued up to `then` is in a load. Newer work does not count, or a client that
    /// never stops writing could keep a sync waiting.
    pub(super) fn has_taken(&self, then: Instant) -> bool {
        !self.collecting && self.order.front().is_none_or(|(_, since)| *since > then)
    }

    /// A load that began with an inode queued at `oldest` leaves nothing that was to be flushed now.
    pub(super) fn ends_hurry(&self, oldest: Instant) -> bool {
        let is_later = |until| self.order.front().is_none_or(|(_, since)| *since > until);
        self.all_until.is_some_and(|until| oldest <= until && is_later(until))
    }

    /// Every inode in it (`cut.lists_all`).
    pub(super) fn all(&self) -> Vec<Arc<Inode>> {
        let met_twice = self.met_twice.iter().map(|(inode, _)| inode);
        self.order.iter().map(|(inode, _)| inode).chain(&self.urgent).chain(met_twice).cloned().collect()
    }

    /// What was met twice waits again, in its place.
    pub(super) fn put_back(&mut self) {
        for (inode, since) in std::mem::take(&mut self.met_twice).into_iter().rev() {
            match since {
                None => self.urgent.push_front(inode),
                Some(since) => {
                    let at = self.order.partition_point(|(_, other)| *other <= since);
                    self.order.insert(at, (inode, since));
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.collecting && self.order.is_empty() && self.urgent.is_empty()
    }
}
