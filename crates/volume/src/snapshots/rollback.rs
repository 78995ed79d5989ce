//! Taking a volume back to a snapshot.
//!
//! ```text
//! row "go back to N" durable -> closed -> opened: the rows of every inode that changed since are put back -> row gone
//! ```
//!
//! - `rollback.before_anybody`: it happens while the volume opens, before anybody sees it. A crash on the way leaves the row, and
//!   the next opening goes on.
//! - `rollback.idempotent`: each batch makes rows of the head those of the snapshot. Doing it again does nothing more.
//! - `rollback.handles_end`: a regular file that comes back different has another generation: whoever has it open gets
//!   [`FsError::Stale`], and never writes into the file of then what belonged to the one of later.
//! - `rollback.saved_for_nothing_goes`: the batch that makes the snapshot of what a rollback takes away has a row which names
//!   it. The row "go back" takes that one's place. So where the program was killed between the two, the next opening finds the
//!   first alone, and destroys a snapshot that nobody was told of.
//! - `rollback.change_goes_on`: change numbers never go back, or a client would take what it has cached for what is there.

use std::sync::Arc;

use bytes::Bytes;
use larder_fs::access::next_change;
use larder_fs::*;

use super::changes::changed;
use super::compare::{Differing, differing};
use super::row;
use super::view::View;
use crate::data::{EXTENT_TAG, INTENT_TAG, RESERVED_TAG, Restored};
use crate::inode_core::InodeCore;
use crate::keys::{self, tag};
use crate::meta::Batch;
use crate::numbers::mix;
use crate::own_records;
use crate::state::State;

const PAGE: usize = 1024;
/// Rows changed in one batch, about.
pub(crate) const BATCH_ROWS_MAX: usize = 2048;

/// Whether an inode of the snapshot had a name, or belonged to one that had: the named attributes of an orphan go with it
/// (`named.lives_with_owner`).
pub(crate) async fn lived(core: &InodeCore, view: &View) -> FsResult<bool> {
    let links = async |ino: Ino| -> FsResult<Option<(u32, Ino)>> {
        let Some(record) = view.get(&keys::inode_key(ino)).await? else { return Ok(None) };
        let core = keys::decode_inode(ino, &record)?;
        Ok(Some((core.attr.nlink, core.parent)))
    };
    if core.attr.nlink == 0 {
        return Ok(false);
    }
    let Some((above, parent)) = links(core.parent).await? else {
        // Of a file the parent is a hint.
        return Ok(core.attr.kind != FileKind::Directory);
    };
    if core.attr.kind == FileKind::Directory {
        return Ok(above > 0);
    }
    Ok(above == 0 || links(parent).await?.is_none_or(|(links, _)| links > 0))
}

impl State {
    /// Goes back if the row says so (`rollback.before_anybody`). Returns whether it did: the state must be opened anew, because
    /// what it has cached is of later.
    pub(crate) async fn roll_back(self: &Arc<Self>) -> FsResult<bool> {
        let Some(value) = self.meta.get(row::ROLLBACK_KEY).await? else { return Ok(false) };
        let number = row::decode_epoch(&value)?;
        let view = match self.catalog.view(number).await {
            Ok(view) => view,
            Err(FsError::Stale) => return Err(keys::damaged(row::ROLLBACK_KEY, "the snapshot to go back to is gone")),
            Err(error) => return Err(error),
        };
        self.data.sync_all().await?;
        let _still = self.data.still().await;
        let lasting = own_records::lasting(&*self.meta).await?;
        let mut inos = changed(&**self.catalog.head(), number, self.data.epoch()).await?;
        // Dirty data that a crash took is missed by no batch.
        inos.extend(view.patched());
        tracing::info!(
            volume = self.name,
            snapshot = number,
            inodes = inos.len(),
            "the volume goes back to a snapshot"
        );
        for ino in inos {
            self.put_back(ino, &view).await?;
        }
        let mut batch = Batch::default();
        own_records::keep(&*self.meta, lasting, &mut batch).await?;
        batch.delete(row::ROLLBACK_KEY);
        let ticket = self.meta.write(batch).await?;
        self.meta.durable(ticket).await?;
        Ok(true)
    }

    /// Makes the rows of one inode those of the snapshot.
    async fn put_back(&self, ino: Ino, view: &View) -> FsResult<()> {
        let key = keys::inode_key(ino);
        let now = self.meta.get(&key).await?;
        let then = view.get(&key).await?;
        let then = match then {
            Some(record) => Some(keys::decode_inode(ino, &record)?),
            None => None,
        };
        // An inode without links, or that went with one, has no place to come back to.
        let then = match then {
            Some(core) if lived(&core, view).await? => Some(core),
            _ => None,
        };
        let later = now.as_ref().map(|record| keys::decode_inode(ino, record)).transpose()?;
        let mut allocated = 0;
        for table in [tag::ENTRY, tag::COOKIE, tag::FOLDED, tag::XATTR, EXTENT_TAG, tag::SHARER] {
            let (mut from, to) = keys::range_of(table, ino);
            while from < to {
                let (rows, next) = self.compare(&from, &to, then.as_ref().map(|_| view)).await?;
                for rows in rows.chunks(BATCH_ROWS_MAX) {
                    self.meta.admit().await?;
                    self.data.restore(Restored::Rows(rows), Batch::default()).await?;
                }
                from = next;
            }
            if table == EXTENT_TAG && then.is_some() {
                allocated = self.allocated_then(ino, view).await?;
            }
        }
        let mut last = Batch::default();
        self.drop_rows(ino, &mut last).await?;
        match (&later, then) {
            (_, Some(then)) => {
                let (key, record) = keys::encode_inode(ino, &self.revived(then, later.as_ref(), allocated));
                last.put(key, record);
                last.usage.inodes = i64::from(later.is_none());
            }
            (Some(_), None) => {
                last.delete(key);
                last.usage.inodes = -1;
            }
            (None, None) => {}
        }
        last.delete(keys::orphan_key(ino));
        self.meta.admit().await?;
        self.data.restore(Restored::Nothing, last).await?;
        Ok(())
    }

    /// The record of an inode that comes back.
    fn revived(&self, then: InodeCore, later: Option<&InodeCore>, allocated: u64) -> InodeCore {
        let mut core = then;
        core.attr.change = next_change(later.map_or(0, |later| later.attr.change).max(core.attr.change));
        core.attr.ctime = self.now();
        core.has_reserved = false;
        (core.stored_bytes, core.attr.allocated) = (allocated, allocated);
        if core.attr.kind == FileKind::File {
            // `rollback.handles_end`
            core.attr.id.generation = mix(core.attr.id.generation ^ core.attr.change);
        }
        core
    }

    /// The rows between `from` and `to` that differ, now first, as far as one page reaches, and where the next begins.
    async fn compare(&self, from: &Bytes, to: &Bytes, view: Option<&View>) -> FsResult<(Vec<Differing>, Bytes)> {
        let now = self.meta.scan(from, to, PAGE).await?;
        let then = match view {
            Some(view) => view.scan(from, to, PAGE).await?,
            None => Vec::new(),
        };
        Ok(differing(now, then, PAGE, to))
    }

    async fn allocated_then(&self, ino: Ino, view: &View) -> FsResult<u64> {
        let (mut from, to) = keys::range_of(EXTENT_TAG, ino);
        let mut sum = 0;
        loop {
            let page = view.scan(&from, &to, PAGE).await?;
            for (key, value) in &page {
                sum += crate::data::decode_extent(key, value)?.2.allocated_bytes();
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE => from = [&last[..], &[0][..]].concat().into(),
                _ => return Ok(sum),
            }
        }
    }

    /// Intents and reserved ranges belong to the volume of later.
    async fn drop_rows(&self, ino: Ino, batch: &mut Batch) -> FsResult<()> {
        for table in [INTENT_TAG, RESERVED_TAG] {
            let (mut from, to) = keys::range_of(table, ino);
            loop {
                let page = self.meta.scan(&from, &to, PAGE).await?;
                for (key, value) in &page {
                    if table == RESERVED_TAG {
                        let (_, range) = crate::data::decode_reserved(key, value)?;
                        batch.usage.reserved_bytes -= (range.end - range.start) as i64;
                    }
                    batch.delete(key.clone());
                }
                match page.last() {
                    Some((last, _)) if page.len() == PAGE => from = keys::key_after(last),
                    _ => break,
                }
            }
        }
        Ok(())
    }
}
