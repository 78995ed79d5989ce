//! The moment of a snapshot, as file data sees it.
//!
//! At the cut the engine marks its point; what is dirty then is in no table yet, and will be overwritten, flushed or dropped.
//! So each inode's dirty ranges are copied (by reference) before the first change after the cut, and those of inodes that
//! nobody changes by the task that takes the snapshot. Nobody waits for it.
//!
//! - `cut.before_change`: a task that changes an inode's blocks, or the size, does so through a
//!   [`Changing`](super::file::Changing), which copies first. It is only had with the gate and `state`.
//! - `cut.batches_whole`: a change of blocks and the batch that belongs to it hold the gate for reading ([`Uncut`](super::preserved::copies::Uncut)), so a cut,
//!   which holds it for writing from the engine's point to the new epoch, has both or neither. A file that is removed after the
//!   point keeps its dirty data for the snapshot, though names are changed without the gate: its data is dropped with it.
//! - `cut.lists_all`: an inode with dirty ranges is in the flusher's queue or in a load that is counted, at every moment.
//! - `cut.data_only`: a copy says what reading the file would have found, and the size and times that go with it. All else
//!   about the inode is in the engine's point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_base::seam;
use larder_fs::*;

use super::extents::SegmentId;
use super::preserved::copies::Copy;
use super::segments::Segment;
use super::shared::{Data, Inner};
use crate::inode::Inode;
use crate::lineage::INHERITED;
use crate::meta::{self, Batch, Ticket, Usage};

/// A snapshot between its moment and its row.
pub(crate) struct Forming {
    pub(crate) number: u64,
    /// The counters at the cut, without what is dirty.
    pub(crate) usage: Usage,
    /// Inodes that were queued for a flush.
    queued: Vec<Arc<Inode>>,
}

impl Inner {
    /// Every load collected before this call is committed, so its inodes are copied.
    pub(super) async fn loads_are_over(&self) -> FsResult<()> {
        self.wait_until(|| !self.queue.lock().collecting).await?;
        let started = self.loads.0.load(Ordering::Relaxed);
        self.wait_until(|| self.loads.1.load(Ordering::Relaxed) >= started).await
    }
}

impl Data {
    /// The moment of a snapshot. `first` makes the first batch after it, from the number of the new epoch.
    pub(crate) async fn cut(&self, first: impl FnOnce(u64) -> Batch) -> FsResult<(Forming, meta::Cut)> {
        let inner = &self.0;
        inner.check_poison()?;
        let _none_of_many = inner.cut.many.write().await;
        let _nobody = inner.cut.close().await;
        let next = inner.segments.lock().epoch() + 1;
        let cut = inner.parts.meta.cut(first(next), next)?;
        // Names change and clients ask on: nothing that they do may come between the point and the new epoch.
        seam::between().await;
        let number = inner.segments.lock().begin_snapshot();
        inner.cut.epoch.store(next, Ordering::Release);
        *inner.cut.copies.lock() = Some(Vec::new());
        let queued = inner.queue.lock().all();
        Ok((Forming { number, usage: cut.usage, queued }, cut))
    }

    /// Copies what nobody has changed since, and returns all copies.
    pub(super) async fn copies(&self, forming: &mut Forming) -> FsResult<Vec<Copy>> {
        let inner = &self.0;
        for inode in std::mem::take(&mut forming.queued) {
            {
                let uncut = inner.cut.enter().await;
                let mut state = inode.file.state.lock();
                let core = inode.core.lock();
                uncut.preserve(&inode, &mut state, &core);
            }
            tokio::task::coop::consume_budget().await;
        }
        inner.loads_are_over().await?;
        Ok(inner.cut.copies.lock().take().unwrap_or_default())
    }

    /// The epoch of the volume as it is now.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.segments.lock().epoch()
    }

    /// There is no such snapshot from `ticket` on, finished or not.
    pub(crate) fn end_snapshot(&self, number: u64, ticket: Ticket) {
        let inner = &self.0;
        inner.segments.lock().end_snapshot(number, ticket);
        inner.gc_wake.notify_one();
    }

    /// Gives up an unfinished snapshot.
    pub(crate) fn abandon(&self, number: u64) {
        self.0.cut.copies.lock().take();
        self.end_snapshot(number, self.0.parts.meta.newest());
    }

    /// The snapshots that may read a segment.
    pub(crate) fn readers(&self, segment: SegmentId) -> Vec<u64> {
        self.0.segments.lock().readers(segment)
    }

    /// The segments that a snapshot reads, or may, and their lengths in bytes.
    pub(crate) fn read_by(&self, number: u64) -> Vec<(SegmentId, u64)> {
        self.0.segments.lock().read_by(number)
    }

    /// The segments that the volume or one of its snapshots reads, what is inherited for nobody left out.
    pub(crate) fn read_by_anybody(&self) -> Vec<SegmentId> {
        let table = self.0.segments.lock();
        let is_read = |id: SegmentId, extents: u64| extents > 0 || table.readers(id).iter().any(|&n| n != INHERITED);
        table.iter().filter(|(id, segment)| is_read(*id, segment.extents)).map(|(id, _)| id).collect()
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<Segment> {
        self.0.segments.lock().get(id).cloned()
    }

    /// No segment has a greater number.
    pub(crate) fn newest_segment(&self) -> u64 {
        self.0.segments.lock().peek_next().0.saturating_sub(1)
    }

    /// Bytes of segments that these snapshots keep, and no other.
    pub(crate) fn kept_by(&self, numbers: &BTreeSet<u64>) -> u64 {
        self.0.segments.lock().kept_by(numbers)
    }

    /// Bytes of segments that each snapshot alone keeps, and those of each epoch.
    pub(crate) fn snapshot_bytes(&self) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
        let table = self.0.segments.lock();
        (table.kept_by_one(), table.born_in())
    }
}
