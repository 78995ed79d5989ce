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

    pub(super) fn is_empty(&self) -> bool {
        !self.collecting && self.order.is_empty() && self.urgent.is_empty()
    }
}
