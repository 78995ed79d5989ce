//! Deletes, made durable by the journal.
//!
//! A delete is acknowledged when its tombstone is in the journal; the files are unlinked
//! afterwards and no directory is synced for it. When the pool is opened the tombstones are
//! applied again, so that neither a crash nor a disk that was away brings a deleted object back.
//!
//! - `tombstone.kept_until_unlinked`: a tombstone is trimmed only when the files it names, those of
//!   earlier versions included, are unlinked and all disks are synced. While a disk is away,
//!   tombstones are kept as long as the journal has room. A file that a disk would not unlink, or a
//!   disk that would not sync, keeps all tombstones, or puts the disk out of use: its files then
//!   count only where it is in sync.
//! - `tombstone.holds_a_segment`: one tombstone holds a whole segment of the journal. So tombstones
//!   are swept also when many segments are in use, for whatever reason, and before other users of
//!   the journal have to wait.
//! - `tombstone.names_go_first`: where the journal takes nothing, a version first loses its names,
//!   as if it had never been finished (`recover.newest_complete_lives`). All disks are synced
//!   before its first shard is unlinked, because fewer than `k` shards would be damage. Earlier
//!   versions are unlinked durably by then.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use larder_base::log::{LogEntry, LogError, LogStore};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::core::Core;
use crate::error::PoolError;
use crate::journal::Journal;
use crate::member::member_disk::MemberDisk;
use crate::object::index::{Grave, Object};
use crate::object::shard::{self, Reader};

pub const STREAM: &str = "larder-tombstones";
/// Tombstones are swept when there are so many, or when they take an eighth of the journal.
const ENTRIES_MAX: usize = 4096;
/// Bytes that a lone entry takes of the journal.
const ENTRY_BYTES: u64 = 4096;
/// Unlinks that may lag behind before deletes wait for them.
const BACKLOG_MAX: usize = 4096;

/// Percent of the journal in use from which tombstones are swept (`tombstone.holds_a_segment`), and
/// while a disk is away.
const USED_MAX: u64 = 40;
const USED_MAX_DEGRADED: u64 = 70;
/// Until a sweep that could not be finished is tried again.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// How long a delete that the journal does not take waits for readers of the object.
const READERS_WAIT_MAX: Duration = Duration::from_secs(10);
const READERS_STEP: Duration = Duration::from_millis(5);

type Append = Pin<Box<dyn Future<Output = Result<(), LogError>> + Send>>;

fn encode(version: u64, path: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&(path.len() as u32).to_le_bytes());
    out.extend_from_slice(path.as_bytes());
}

/// By path, the newest version that these entries delete.
pub fn decode_all(entries: &[LogEntry]) -> BTreeMap<String, u64> {
    let mut deleted = BTreeMap::new();
    for entry in entries {
        let mut reader = Reader(&entry.payload);
        while let (Some(version), Some(length)) = (reader.u64(), reader.u32()) {
            let Some(path) = reader.text(length as usize) else { break };
            let newest = deleted.entry(path).or_insert(version);
            *newest = version.max(*newest);
        }
    }
    deleted
}

pub struct Tombstones {
    log: Arc<dyn LogStore>,
    next: AtomicU64,
    recorded: Mutex<Vec<Weak<Object>>>,
    /// Held for reading from the record of a delete to its end, for writing by the sweep.
    order: tokio::sync::RwLock<()>,
}

impl Tombstones {
    /// Reads the deletes: by path, the newest deleted version.
    pub async fn open(log: Arc<dyn LogStore>) -> Result<(Self, BTreeMap<String, u64>), LogError> {
        let entries = log.replay(STREAM, 0).await?;
        let last = entries.last().map_or(0, |entry| entry.id);
        let deleted = decode_all(&entries);
        // Tombstones that were found are to be swept, too: an entry without readers stands for
        // them.
        let recorded = if entries.is_empty() { Vec::new() } else { vec![Weak::new()] };
        let tombstones = Self {
            log,
            next: AtomicU64::new(last + 1),
            recorded: Mutex::new(recorded),
            order: tokio::sync::RwLock::new(()),
        };
        Ok((tombstones, deleted))
    }

    /// Records that these versions and all before them are deleted, then takes them from the index.
    pub async fn delete(&self, core: &Arc<Core>, objects: Vec<Arc<Object>>) -> Result<(), PoolError> {
        let objects = claimed(core, objects).await;
        if objects.is_empty() {
            return Ok(());
        }
        let recorded = {
            let _order = self.order.read().await;
            remember(core, &objects);
            let recorded = self.record(&objects).await;
            if !recorded {
                // Before the delete is acknowledged.
                check_enough(core).inspect_err(|_| objects.iter().for_each(|object| object.release()))?;
            }
            let mut index = core.objects.index_mut();
            for object in &objects {
                // A version put meanwhile stays: the delete came before it.
                if index.is_current(object) {
                    index.remove(&object.path);
                }
            }
            recorded
        };
        core.members.iter().for_each(|member| member.unmark_full());
        core.repairs.room_again();
        if !recorded {
            let is_unlinked = delete_unrecorded(core, objects).await?;
            check_enough(core)?;
            if !is_unlinked {
                return Err(cannot(core));
            }
        } else {
            drop(objects);
            if core.objects.graveyard.backlog() > BACKLOG_MAX || core.members.is_tight() {
                core.objects.graveyard.barrier().await;
                core.members.iter().for_each(|member| member.forget_space());
            }
        }
        if self.is_due(core) {
            self.sweep(core).await?;
        }
        Ok(())
    }

    /// `false` when the journal takes nothing: then the unlinks themselves have to be synced.
    async fn record(&self, objects: &[Arc<Object>]) -> bool {
        let mut payload = Vec::new();
        for object in objects {
            encode(object.version, &object.path, &mut payload);
        }
        let mut result = self.append(objects, payload.clone()).await;
        if let Err(LogError::OutOfOrder { last, .. }) = result {
            // All entries were trimmed before the pool was opened: only the log knows how far they
            // went.
            self.next.fetch_max(last + 1, Ordering::Relaxed);
            result = self.append(objects, payload).await;
        }
        self.settle(result).await
    }

    async fn append(&self, objects: &[Arc<Object>], payload: Vec<u8>) -> Result<(), LogError> {
        match self.hand_over(objects, payload) {
            Ok(result) => result,
            Err(append) => append.await,
        }
    }

    /// Gives an entry to the log; ids must reach it in order, so the first poll, which queues the
    /// entry, happens under the lock. Either it is done at once or the rest is to be awaited.
    fn hand_over(&self, objects: &[Arc<Object>], payload: Vec<u8>) -> Result<Result<(), LogError>, Append> {
        let mut recorded = self.recorded.lock();
        recorded.extend(objects.iter().flat_map(Object::and_older));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let log = self.log.clone();
        let mut append: Append = Box::pin(async move { log.append(STREAM, id, vec![payload.into()]).await });
        match (&mut append).now_or_never() {
            Some(result) => Ok(result),
            None => Err(append),
        }
    }

    async fn settle(&self, result: Result<(), LogError>) -> bool {
        match result {
            Ok(()) => true,
            // The journal is full or failing: reading lifts the poison, the next delete tries
            // again.
            Err(_) => {
                let _ = self.log.replay(STREAM, u64::MAX).await;
                false
            }
        }
    }

    fn is_due(&self, core: &Core) -> bool {
        let count = self.recorded.lock().len();
        let bytes = count as u64 * ENTRY_BYTES;
        let limit = self.log.usage().1 / 8;
        if core.members.is_authority_away() {
            return false;
        }
        let whole = core.members.iter().all(|member| member.is_writable());
        if whole { count > ENTRIES_MAX || bytes > limit } else { bytes > 4 * limit }
    }

    /// Whether tombstones hold too much of the journal (`tombstone.holds_a_segment`).
    fn is_in_the_way(&self, core: &Core) -> bool {
        if core.members.is_authority_away() || self.recorded.lock().is_empty() {
            return false;
        }
        let (used, total) = self.log.usage();
        let whole = core.members.iter().all(|member| member.is_writable());
        used.saturating_mul(100) >= total.saturating_mul(if whole { USED_MAX } else { USED_MAX_DEGRADED })
    }

    /// Trims the tombstones whose work is done (`tombstone.kept_until_unlinked`).
    pub async fn sweep(&self, core: &Arc<Core>) -> Result<(), PoolError> {
        let (through, deleted) = {
            let _order = self.order.write().await;
            (self.next.load(Ordering::Relaxed) - 1, core.objects.deleted.lock().clone())
        };
        let recorded = std::mem::take(&mut *self.recorded.lock());
        core.objects.graveyard.barrier().await;
        // A version is still being read, so its files are still there.
        let pinned: Vec<Weak<Object>> = recorded.into_iter().filter(|object| object.strong_count() > 0).collect();
        if !pinned.is_empty() || !core.blocking(settle_unlinks).await? {
            // An entry without readers stands for the others: there is something to sweep still.
            self.recorded.lock().extend(pinned.into_iter().chain([Weak::new()]));
            return Ok(());
        }
        let _ = self.log.trim(STREAM, through).await;
        core.objects.deleted.lock().retain(|path, version| deleted.get(path) != Some(version));
        Ok(())
    }
}

/// From now on no put with a lower number succeeds: the tombstone would name it, too
/// (`write.outrun`).
fn remember(core: &Core, objects: &[Arc<Object>]) {
    let mut deleted = core.objects.deleted.lock();
    for object in objects {
        let newest = deleted.entry(object.path.clone()).or_insert(object.version);
        *newest = object.version.max(*newest);
    }
}

/// The objects, none of which is being written anew. In place of one that was, the new version.
async fn claimed(core: &Arc<Core>, objects: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
    let mut claimed = Vec::with_capacity(objects.len());
    for object in objects {
        let mut object = Some(object);
        while let Some(one) = object {
            let landed = core.mover.landed();
            if one.begin_delete() {
                claimed.push(one);
                break;
            }
            landed.await;
            object = core.objects.index().get(&one.path).cloned();
        }
    }
    claimed
}

/// Sweeps whenever the journal fills up (`tombstone.holds_a_segment`), for as long as the pool is
/// open.
pub async fn make_room(tombstones: Arc<Tombstones>, journal: Arc<Journal>, core: Arc<Core>) {
    loop {
        journal.begun().await;
        while tombstones.is_in_the_way(&core) {
            if let Err(error) = tombstones.sweep(&core).await {
                tracing::warn!(pool = %core.members.name, %error, "tombstones could not be swept");
            }
            if tombstones.is_in_the_way(&core) {
                tokio::time::sleep(SWEEP_AGAIN).await;
            }
        }
    }
}

/// Without the journal a delete lasts only if all disks but those that the layout can spare take
/// it.
fn check_enough(core: &Core) -> Result<(), PoolError> {
    let lost = core.members.len() - core.members.writable();
    if lost <= usize::from(core.members.failures()) {
        return Ok(());
    }
    Err(cannot(core))
}

fn cannot(core: &Core) -> PoolError {
    let why = "neither the journal nor enough disks take the delete".to_owned();
    PoolError::CannotWrite { pool: core.members.name.clone(), object: "deletes".into(), why }
}

fn is_read(object: &Arc<Object>) -> bool {
    Arc::strong_count(object) > 1 || object.and_older().len() > 1
}

/// Deletes a version that has left the index, up to the last sync (`tombstone.names_go_first`);
/// whether it is unlinked durably.
async fn delete_unrecorded(core: &Arc<Core>, objects: Vec<Arc<Object>>) -> Result<bool, PoolError> {
    let since = Instant::now();
    // Files that are being read are still there (`index.last_reader_unlinks`).
    while objects.iter().any(is_read) {
        if since.elapsed() >= READERS_WAIT_MAX {
            return Ok(false);
        }
        tokio::time::sleep(READERS_STEP).await;
    }
    core.objects.graveyard.barrier().await;
    if !core.blocking(settle_unlinks).await? {
        return Ok(false);
    }
    let unnamed = core.blocking(move |core| unname(core, &objects)).await?;
    core.objects.graveyard.barrier().await;
    let is_unlinked = core.blocking(settle_unlinks).await?;
    if is_unlinked {
        core.objects.graveyard.send(unnamed);
        core.objects.graveyard.barrier().await;
    }
    core.members.iter().for_each(MemberDisk::forget_space);
    Ok(is_unlinked)
}

/// Gives the shards temporary names, under which they are to be unlinked
/// (`tombstone.names_go_first`). Blocks.
fn unname(core: &Core, objects: &[Arc<Object>]) -> Vec<Grave> {
    let mut unnamed = Vec::new();
    for object in objects {
        // Not while one of its shards is made anew.
        let _one = core.repairs.one(object.version);
        for (index, slot) in object.placed() {
            let (name, temp) = (object.file_name(index), shard::temp_name(&object.path, object.version, index));
            let Some(member) = core.members.member(slot).filter(|member| member.is_writable()) else { continue };
            let to = temp.clone();
            match member.io().and_then(|io| core.members.work.on_disk(&io, move |io| io.rename(&name, &to))) {
                Ok(()) => {
                    unnamed.push(Grave { slot, file: temp, version: object.version, index, of: None, is_copy: false });
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => core.members.write_failed(slot, &error),
            }
        }
    }
    unnamed
}

/// Whether no authority holds any unlinked file, not even after a crash. Blocks.
fn settle_unlinks(core: &Arc<Core>) -> bool {
    core.unlink_stubborn();
    for (slot, member) in core.members.with_slots().filter(|(_, member)| member.is_writable()) {
        if let Err(error) = member.io().and_then(|io| core.members.work.on_disk(&io, |io| io.sync_all())) {
            core.members.write_failed(slot, &error);
            if !core.members.give_up(slot) {
                core.objects.unsynced.store(true, Ordering::Release);
            }
        }
    }
    core.members.wait_for_labels();
    !core.members.is_authority_away() && !core.has_stubborn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        let mut payload = Vec::new();
        encode(0x0102, "a/b", &mut payload);
        encode(3, "c", &mut payload);
        assert_eq!(payload, b"\x02\x01\0\0\0\0\0\0\x03\0\0\0a/b\x03\0\0\0\0\0\0\0\x01\0\0\0c");
        let deleted = decode_all(&[LogEntry { id: 1, payload: payload.into() }]);
        assert_eq!(deleted, BTreeMap::from([("a/b".to_owned(), 0x0102), ("c".to_owned(), 3)]));
    }
}
