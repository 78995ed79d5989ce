//! Small durable writes: intents written, covered by later ones, and removed once their data is in
//! extents.

use std::ops::Range;
use std::sync::Arc;

use larder_base::traffic::{self, Wait};
use larder_fs::*;

use super::dirty::{DirtyPiece, Payload, Taken};
use super::file::Changing;
use super::intents::{Intents, Standing, encode_data, encode_mask, encode_zero, key, mask_key};
use super::shared::{Data, Inner};
use crate::inode::Inode;
use crate::meta::Batch;

/// More than this is flushed as a segment instead.
const INTENT_BYTES_MAX: u64 = 256 << 10;
const INTENT_PIECES_MAX: usize = 128;
/// An inode with more standing intents than this is flushed without waiting for its age.
const INTENTS_STANDING_MAX: usize = 8192;

impl Data {
    /// All data and the record of `inode` are durable.
    #[larder_base::boxed]
    pub(crate) async fn commit(&self, inode: &Arc<Inode>) -> FsResult<()> {
        let inner = &self.0;
        inner.check_poison()?;
        if !inner.commit_inline(inode).await? && !inner.commit_small(inode).await? {
            traffic::waiting(Wait::Disk, inner.flush_inode(inode)).await?;
        }
        inner.parts.meta.durable(inner.parts.meta.newest()).await
    }
}

impl Inner {
    /// Makes unstable data durable as intents, with the record, if it is little. Returns false if
    /// it is much.
    async fn commit_small(&self, inode: &Arc<Inode>) -> FsResult<bool> {
        let clean = !inode.file.state.lock().dirty.is_unstable();
        if clean && !inode.core.lock().attr_dirty {
            return Ok(true);
        }
        self.parts.meta.admit().await?;
        let uncut = self.cut.enter().await;
        let mut state = inode.file.state.lock();
        let mut state = uncut.change(inode, &mut state, &inode.core.lock());
        if !state.may_store(inode) {
            return Ok(true);
        }
        let Some(pieces) = state.dirty.without_intent(INTENT_BYTES_MAX, INTENT_PIECES_MAX) else { return Ok(false) };
        let mut batch = Batch::default();
        for (offset, piece) in &pieces {
            intend(inode.id.ino, &mut state, *offset, piece, &mut batch);
        }
        // Everything is in extents or intents now: the record may tell the true size.
        {
            let mut core = inode.core.lock();
            (core.size_stored, core.has_unstable) = (None, false);
        }
        batch.record(inode);
        self.parts.meta.submit_with_records(batch).map_err(|error| self.poison(&error))?;
        if state.intents.len() > INTENTS_STANDING_MAX {
            self.make_urgent(inode);
        }
        Ok(true)
    }
}

fn intend(ino: Ino, state: &mut Changing<'_>, offset: u64, piece: &DirtyPiece, batch: &mut Batch) {
    shadow(ino, state, &(offset..offset + piece.len), batch);
    let (value, zero) = match &piece.payload {
        Payload::Zero => (encode_zero(piece.len), true),
        Payload::Bytes(bytes) => (encode_data(bytes), false),
    };
    batch.put(key(ino, piece.seq, offset), value);
    state.blocks().intents.insert((piece.seq, offset), Standing::new(piece.len, zero));
    state.blocks().dirty.mark_intent(offset, piece.seq);
}

/// Removes the intents that lie whole within `range`, over which an intent of the same batch is
/// laid. Returns whether some reach into it and stay.
pub(super) fn shadow(ino: Ino, state: &mut Changing<'_>, range: &Range<u64>, batch: &mut Batch) -> bool {
    let mut stays = false;
    for ((seq, offset), len) in state.intents.touching(range) {
        let inside = range.start <= offset && offset + len <= range.end;
        stays |= !inside;
        if inside && let Some(standing) = state.blocks().intents.remove((seq, offset)) {
            delete(ino, seq, offset, standing.rest.is_some(), batch);
        }
    }
    stays
}

impl Intents {
    /// Removes the keys of all of them.
    pub(super) fn delete_all(&self, ino: Ino, batch: &mut Batch) {
        for (&(seq, offset), standing) in &self.map {
            delete(ino, seq, offset, standing.rest.is_some(), batch);
        }
    }
}

/// Removes or masks the intents that a flush has made superfluous: it stored `taken` (in order of
/// offset) and applied the zero intents `zeros`.
pub(super) fn settle(ino: Ino, state: &mut Changing<'_>, taken: &[Taken], zeros: &[(u64, u64)], batch: &mut Batch) {
    let mut done = Vec::new();
    for (&(seq, offset), standing) in &mut state.blocks().intents.map {
        let mut rest =
            standing.rest.clone().unwrap_or_else(|| std::iter::once(offset..offset + standing.len).collect());
        let changed = !standing.zero && subtract(&mut rest, seq, taken);
        let over = if standing.zero { zeros.contains(&(seq, offset)) } else { rest.is_empty() };
        if over {
            delete(ino, seq, offset, standing.rest.is_some(), batch);
            done.push((seq, offset));
        } else if changed {
            batch.put(mask_key(ino, seq, offset), encode_mask(&rest));
            standing.rest = Some(rest);
        }
    }
    for key in done {
        state.blocks().intents.remove(key);
    }
}

/// Removes from `rest` the parts that `taken` has stored of writes from `seq` on. Returns whether
/// there were any.
fn subtract(rest: &mut Vec<Range<u64>>, seq: u64, taken: &[Taken]) -> bool {
    let (Some(start), Some(end)) = (rest.first().map(|r| r.start), rest.last().map(|r| r.end)) else { return false };
    let first = taken.partition_point(|taken| taken.offset + taken.len <= start);
    let touching = taken[first..].iter().take_while(|taken| taken.offset < end);
    let mut any = false;
    for taken in touching.filter(|taken| taken.seq >= seq) {
        any = true;
        let cut = taken.range();
        *rest = std::mem::take(rest)
            .into_iter()
            .flat_map(|r| [r.start..r.end.min(cut.start.max(r.start)), r.start.max(cut.end.min(r.end))..r.end])
            .filter(|r| !r.is_empty())
            .collect();
    }
    any
}

/// Removes an intent and its mask.
pub(super) fn delete(ino: Ino, seq: u64, offset: u64, masked: bool, batch: &mut Batch) {
    batch.delete(key(ino, seq, offset));
    if masked {
        batch.delete(mask_key(ino, seq, offset));
    }
}
