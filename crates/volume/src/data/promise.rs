//! The promise of room to reserved ranges, as data is laid over them and stored.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_fs::*;

use super::file::{Changing, FileData};
use super::reserved::{RESERVED_TAG, RangeOps, Ranges, decode_reserved, encode_reserved, reserved_key};
use super::shared::Inner;
use crate::inode::Inode;
use crate::keys::{damaged, range_of};
use crate::meta::Batch;

const SCAN_MAX: usize = 4096;

impl FileData {
    /// Reserved bytes within `range` over which no dirty data lies.
    pub(super) fn unclaimed(&self, range: Range<u64>) -> u64 {
        let Some(ranges) = self.reserved.ranges() else { return 0 };
        let of_data = |r: Range<u64>| self.dirty.view(r).filter(|(.., p)| p.is_data()).map(|(lo, hi, _)| hi - lo).sum();
        ranges.view(range).map(|r| (r.end - r.start).saturating_sub(of_data(r))).sum()
    }

    /// Parts of `range` that hold no data and are not reserved. Extents under pending zeros count
    /// as gone. Dirty data counts as missing, because a crash may take it. Extents of the range are
    /// in memory.
    pub(super) fn unreserved_holes(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut taken: Vec<Range<u64>> = Vec::new();
        let mut from = range.start;
        let zeros = self.dirty.view(range.clone()).filter(|(.., piece)| !piece.is_data()).map(|(lo, hi, _)| (lo, hi));
        for (lo, hi) in zeros.chain([(range.end, range.end)]) {
            taken.extend(self.extents.view(from..lo).map(|(lo, hi, ..)| lo..hi));
            from = hi;
        }
        taken.extend(self.reserved.ranges().into_iter().flat_map(|ranges| ranges.view(range.clone())));
        taken.sort_by_key(|r| r.start);
        let (mut holes, mut at) = (Vec::new(), range.start);
        for next in taken.into_iter().chain(std::iter::once(range.end..range.end)) {
            if at < next.start {
                holes.push(at..next.start);
            }
            at = at.max(next.end);
        }
        holes
    }
}

impl Inner {
    /// Runs `change`, which changes dirty or reserved bytes within `range`, and moves the promise
    /// by as much (`reserved.promise_moves`).
    pub(super) fn promise<T>(
        &self,
        state: &mut Changing<'_>,
        range: Range<u64>,
        change: impl FnOnce(&mut Changing<'_>) -> T,
    ) -> T {
        let before = state.unclaimed(range.clone());
        let result = change(state);
        let after = state.unclaimed(range);
        assert!(state.reserved.unclaimed >= before, "`reserved.promise_moves`: the sum holds every part of it");
        let unclaimed = &mut state.blocks().reserved.unclaimed;
        *unclaimed = *unclaimed - before + after;
        self.move_promise(before, after);
        result
    }

    /// `before` promised bytes became `after`.
    pub(super) fn move_promise(&self, before: u64, after: u64) {
        let change = after as i64 - before as i64;
        if change != 0 {
            self.reserved.fetch_add(change, Ordering::Relaxed);
            self.parts.memory.reserved.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Reads the reserved ranges of the inode, once (`reserved.rows_under_state`).
    pub(super) async fn ensure_reserved(&self, inode: &Arc<Inode>) -> FsResult<()> {
        if !inode.file.has_reserved.load(Ordering::Acquire) || inode.file.state.lock().reserved.ranges.is_some() {
            return Ok(());
        }
        let (mut from, to) = range_of(RESERVED_TAG, inode.id.ino);
        let mut ranges = Ranges::default();
        loop {
            let pairs = self.parts.meta.scan(&from, &to, SCAN_MAX).await?;
            for (key, value) in &pairs {
                let (_, range) = decode_reserved(key, value)?;
                if ranges.view(range.clone()).next().is_some() {
                    return Err(damaged(key, "it overlaps another reserved range"));
                }
                ranges.load(range);
            }
            let Some((last, _)) = pairs.last().filter(|_| pairs.len() >= SCAN_MAX) else { break };
            from = [last, &[0][..]].concat().into();
        }
        let mut state = inode.file.state.lock();
        if state.reserved.ranges.is_none() {
            state.load_reserved(ranges);
        }
        Ok(())
    }

    /// Uses up reserved bytes where an extent is stored over `range`
    /// (`reserved.row_ends_with_extent`). Under newer zeros the extent will go again, and ranges
    /// reserved since then stay.
    pub(super) fn use_reserved(&self, state: &mut Changing<'_>, range: Range<u64>, ops: &mut RangeOps) {
        let zeros = state.dirty.view(range.clone()).filter(|(.., piece)| !piece.is_data());
        let zeros: Vec<_> = zeros.map(|(lo, hi, _)| lo..hi).chain(std::iter::once(range.end..range.end)).collect();
        let mut at = range.start;
        for zero in zeros {
            let used = at..zero.start;
            at = zero.end;
            if !used.is_empty() {
                self.promise(state, used.clone(), |state| state.blocks().reserved.remove(used, ops));
            }
        }
    }
}

/// Adds changed rows to `batch`.
pub(super) fn put_ranges(ino: Ino, ops: RangeOps, batch: &mut Batch) {
    for (offset, len) in ops {
        match len {
            Some(len) => batch.put(reserved_key(ino, offset), encode_reserved(len)),
            None => batch.delete(reserved_key(ino, offset)),
        }
    }
}
