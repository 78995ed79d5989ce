//! An open volume from the inside: engine, data, caches, and the rules every operation shares.
//!
//! N1. A change happens in one moment: under the `core` locks of all inodes it touches, their attributes are
//!     changed, the batch is submitted and the caches are updated. A future that is dropped while it waits has
//!     either done all of it or nothing.
//! N2. The wait for durability comes after every lock is released: 32 creates in one directory share one commit.
//! N3. An inode whose link count falls to 0 has an orphan mark from the same batch on, unless it is removed
//!     whole by that batch. Marks are swept when the volume is opened: nothing leaks in a crash.
//! N4. Inode numbers are never reused: the durable counter is raised before a number beyond it is used.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::BoxFuture;
use larder_base::{Clock, Timestamp};
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::{Mutex, MutexGuard};

use crate::data::{Data, DataParts, DataSettings, InodeSource, Memory};
use crate::inode::{Inode, InodeCore};
use crate::keys::{self, Superblock};
use crate::marks::Marks;
use crate::meta::{Batch, Meta, Ticket, Usage};
use crate::reap::Reaps;
use crate::table::{EntryCache, InodeBudget, InodeTable, VolumeTag};
use crate::types::*;
use crate::volume::{Properties, Space, SyncMode};
use crate::witness::Events;

/// Events that a slow receiver may be behind before it is told that it lost some.
const EVENTS_MAX: usize = 4096;
/// Numbers that one raise of the durable counter covers; so many may be skipped by a crash.
const INO_RANGE: u64 = 1 << 16;

pub(crate) struct State {
    pub(crate) id: uuid::Uuid,
    /// For people; it does not change.
    pub(crate) name: String,
    pub(crate) tag: VolumeTag,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) data: Arc<Data>,
    pub(crate) inodes: Arc<InodeTable>,
    pub(crate) entries: Arc<EntryCache>,
    pub(crate) events: Events,
    pub(crate) marks: Arc<Marks>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) verifier: WriteVerifier,
    /// Directories move between directories one at a time, so that no two moves make a loop.
    pub(crate) moves: tokio::sync::Mutex<()>,
    pub(crate) reaps: Arc<Reaps>,
    space: Arc<dyn Space>,
    settings: Arc<DataSettings>,
    relaxed: AtomicBool,
    /// `u64::MAX` is none.
    quota_bytes: AtomicU64,
    /// Held by the one writer at the quota that waits for what is on its way ([`State::admit_data`]).
    at_quota: tokio::sync::Mutex<()>,
    numbers: Mutex<Numbers>,
    raising: tokio::sync::Mutex<()>,
    generations: u64,
    /// The open-file guard of the last user may drop outside the runtime.
    runtime: tokio::runtime::Handle,
}

struct Numbers {
    next: u64,
    limit: u64,
}

/// What a volume is opened from.
pub(crate) struct StateParts {
    pub(crate) id: uuid::Uuid,
    pub(crate) name: String,
    pub(crate) tag: VolumeTag,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    pub(crate) memory: Arc<Memory>,
    pub(crate) inode_budget: Arc<InodeBudget>,
    pub(crate) entries: Arc<EntryCache>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) space: Arc<dyn Space>,
    pub(crate) properties: Properties,
    /// It was never opened before; otherwise a missing superblock is damage.
    pub(crate) may_format: bool,
    pub(crate) marks: Arc<Marks>,
    /// The log has lost what was acknowledged: files and segments without a name or a reference may be all that is left of it.
    pub(crate) keeps_orphans: bool,
}

/// The inode table as file data sees it.
struct Source(Arc<InodeTable>);

#[async_trait::async_trait]
impl InodeSource for Source {
    async fn load(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.0.load(ino).await
    }

    fn cached(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.0.cached(ino)
    }
}

impl State {
    /// Formats what has no superblock, replays, and starts what runs in the background.
    pub(crate) fn open(parts: StateParts) -> BoxFuture<'static, FsResult<Arc<State>>> {
        Box::pin(async move {
            let meta = parts.meta;
            match meta.get(keys::SUPERBLOCK_KEY).await? {
                Some(value) => verify_superblock(&value, parts.id)?,
                None if parts.may_format => format(&*meta, parts.id, parts.clock.now()).await?,
                None => return Err(keys::damaged(keys::SUPERBLOCK_KEY, "it is missing")),
            }
            let next = match meta.get(keys::NEXT_INO_KEY).await? {
                Some(value) => keys::decode_next_ino(&value)?,
                None => return Err(keys::damaged(keys::NEXT_INO_KEY, "it is missing")),
            };
            let inodes = Arc::new(InodeTable::new(Arc::clone(&meta), parts.inode_budget));
            let settings = Arc::new(DataSettings::new(&parts.properties));
            let data = Data::open(DataParts {
                store: parts.store,
                prefix: parts.prefix,
                meta: Arc::clone(&meta),
                settings: Arc::clone(&settings),
                memory: parts.memory,
                clock: Arc::clone(&parts.clock),
                space: Arc::clone(&parts.space),
                inodes: Arc::new(Source(Arc::clone(&inodes))),
                keeps_orphans: parts.keeps_orphans,
                marks: Arc::clone(&parts.marks),
            })
            .await?;
            let state = Arc::new(State {
                id: parts.id,
                name: parts.name,
                marks: parts.marks,
                tag: parts.tag,
                meta,
                data,
                inodes,
                entries: parts.entries,
                events: Events::new(EVENTS_MAX),
                clock: parts.clock,
                verifier: WriteVerifier(rand::random()),
                moves: tokio::sync::Mutex::new(()),
                reaps: Reaps::new(),
                space: parts.space,
                settings,
                relaxed: AtomicBool::new(false),
                quota_bytes: AtomicU64::new(u64::MAX),
                at_quota: tokio::sync::Mutex::new(()),
                numbers: Mutex::new(Numbers { next, limit: next }),
                raising: tokio::sync::Mutex::new(()),
                generations: rand::random(),
                runtime: tokio::runtime::Handle::current(),
            });
            state.set_properties(&parts.properties);
            if !parts.keeps_orphans {
                tokio::spawn(crate::reap::sweep(Arc::downgrade(&state)));
            }
            Ok(state)
        })
    }

    pub(crate) fn set_properties(&self, properties: &Properties) {
        self.settings.set(properties);
        self.relaxed.store(properties.sync == SyncMode::Relaxed, Ordering::Relaxed);
        self.quota_bytes.store(properties.quota_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Everything durable, then closed.
    pub(crate) fn close(&self) -> BoxFuture<'_, FsResult<()>> {
        Box::pin(async move {
            let data = self.data.close().await;
            let meta = self.meta.close().await;
            data.and(meta)
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    pub(crate) async fn inode(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        match self.inodes.cached(ino) {
            Some(inode) => Ok(inode),
            None => self.inodes.load(ino).await,
        }
    }

    pub(crate) async fn directory(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        let inode = self.inode(ino).await?;
        if kind_of(&inode) != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        Ok(inode)
    }

    pub(crate) async fn file(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        let inode = self.inode(ino).await?;
        match kind_of(&inode) {
            FileKind::File => Ok(inode),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// The wait before an answer (M3).
    pub(crate) async fn settle(&self, ticket: Ticket) -> FsResult<()> {
        if self.relaxed.load(Ordering::Relaxed) { Ok(()) } else { self.meta.durable(ticket).await }
    }

    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        self.events.send(event);
    }

    /// A number that was never used, and its generation: unpredictable, so that handles cannot be guessed.
    pub(crate) async fn new_id(&self) -> FsResult<FileId> {
        loop {
            {
                let mut numbers = self.numbers.lock();
                if numbers.next < numbers.limit {
                    let ino = numbers.next;
                    numbers.next += 1;
                    let generation = mix(self.generations ^ ino);
                    return Ok(FileId { ino: Ino(ino), generation });
                }
            }
            let _raising = self.raising.lock().await;
            let limit = self.numbers.lock().limit;
            if self.numbers.lock().next < limit {
                continue;
            }
            let mut batch = Batch::default();
            batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(limit + INO_RANGE));
            // Batches become durable in order (M2): whoever uses a number of this range does so in a later one.
            self.meta.write(batch).await?;
            self.numbers.lock().limit = limit + INO_RANGE;
        }
    }

    // ------------------------------------------------------------------------------------------ room

    /// Bytes that count against the quota; with what is in memory, so it may be too many.
    fn used_bytes(&self) -> u64 {
        self.stored_bytes().saturating_add(self.data.usage().dirty_bytes)
    }

    fn stored_bytes(&self) -> u64 {
        let Usage { logical_bytes, .. } = self.meta.usage();
        (logical_bytes.max(0) as u64).saturating_add(self.data.usage().reserved_bytes)
    }

    /// Before names or attributes are added: metadata needs room as well, and what frees room must never lack it.
    pub(crate) async fn admit_entry(&self) -> FsResult<()> {
        if self.admits_entry()? { Ok(()) } else { Box::pin(self.wait_for_quota(1)).await }
    }

    /// As [`State::admit_entry`]; `false` instead of waiting until something on its way is stored.
    pub(crate) fn admits_entry(&self) -> FsResult<bool> {
        let (total, available) = self.space.space();
        let available = available.saturating_sub(self.data.set_aside());
        if available < (total / 64).min(METADATA_RESERVE_BYTES) {
            return Err(FsError::NoSpace("the store is full; delete files or add disks".into()));
        }
        Ok(self.is_within_quota(self.used_bytes(), 1))
    }

    /// Before data is accepted over `range` of a file: is it within the quota? What is overwritten, cut off or removed counts
    /// until that is stored, and what overwrites it counts already: nobody is refused for that, but waits until it is stored.
    pub(crate) async fn admit_data(&self, inode: &Arc<Inode>, range: Range<u64>) -> FsResult<()> {
        let len = range.end - range.start;
        if self.is_within_quota(self.used_bytes(), len) {
            return Ok(());
        }
        let added = len - self.data.held_bytes(inode, range).await?.min(len);
        Box::pin(self.wait_for_quota(added)).await
    }

    fn is_within_quota(&self, used_bytes: u64, added_bytes: u64) -> bool {
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        quota == u64::MAX || used_bytes.saturating_add(added_bytes) <= quota
    }

    async fn wait_for_quota(&self, added_bytes: u64) -> FsResult<()> {
        // One after the other: those who wait share what is stored.
        let _turn = self.at_quota.lock().await;
        for waited in 0..QUOTA_WAITS_MAX {
            // In this order: what is on its way must not be missing in both.
            let (settled, removing) = (self.data.is_settled(), self.data.is_removing());
            if self.is_within_quota(self.used_bytes(), added_bytes) {
                return Ok(());
            }
            // Others may have written meanwhile. What is stored alone is too much, or there is nothing else.
            let full = waited > 0 && !self.is_within_quota(self.stored_bytes(), added_bytes);
            if !removing && (settled || full) {
                break;
            }
            self.data.settle().await?;
        }
        Err(FsError::Quota)
    }

    /// What files can still take, whatever the quota says, of a store with this room (total, available).
    pub(crate) fn writable(&self, (total, available): (u64, u64)) -> u64 {
        let data = self.data.usage();
        let later = available
            .saturating_sub(data.dirty_bytes)
            .saturating_sub(self.data.set_aside())
            .saturating_add(data.dead_bytes);
        self.data.writable((total, available)).min(later)
    }

    pub(crate) fn contents(&self) -> Contents {
        let usage = self.meta.usage();
        Contents { data_bytes: self.used_bytes(), stored_bytes: usage.stored_bytes.max(0) as u64 }
    }

    pub(crate) fn statfs(&self) -> StatFs {
        let (total, available) = self.space.space();
        let writable = self.writable((total, available));
        let data = self.data.usage();
        let usage = self.meta.usage();
        let reclaimable = data.dead_bytes;
        // Dirty data will take up room that the store does not know of yet.
        let available = available.saturating_sub(data.dirty_bytes).saturating_sub(self.data.set_aside());
        let mut stat = StatFs {
            total_bytes: total,
            free_bytes: available.saturating_add(reclaimable).min(total),
            available_bytes: writable,
            total_files: 0,
            free_files: 0,
        };
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        if quota != u64::MAX {
            let left = quota.saturating_sub(self.used_bytes());
            stat.total_bytes = total.min(quota);
            stat.free_bytes = stat.free_bytes.min(left);
            stat.available_bytes = stat.available_bytes.min(left);
        }
        let files = usage.inodes.max(0) as u64;
        stat.free_files = available / BYTES_PER_INODE;
        stat.total_files = files.saturating_add(stat.free_files);
        stat
    }
}

/// How often a writer at the quota waits until what others have written or removed is stored.
const QUOTA_WAITS_MAX: u32 = 100;
const METADATA_RESERVE_BYTES: u64 = 32 << 20;
/// What an inode with one name takes up in the store, about.
const BYTES_PER_INODE: u64 = 512;

fn verify_superblock(value: &[u8], id: uuid::Uuid) -> FsResult<()> {
    let superblock = keys::decode_superblock(value)?;
    if superblock.id == id {
        return Ok(());
    }
    Err(keys::damaged(keys::SUPERBLOCK_KEY, &format!("it belongs to volume {}, not {id}", superblock.id)))
}

async fn format(meta: &dyn Meta, id: uuid::Uuid, now: Timestamp) -> FsResult<()> {
    let root = FileId { ino: Ino::ROOT, generation: mix(rand::random()) };
    let mut core = new_core(root, FileKind::Directory, Ino::ROOT, now);
    core.attr.mode = 0o755;
    let mut batch = Batch::default();
    batch.put(keys::SUPERBLOCK_KEY, keys::encode_superblock(Superblock { id, created: now }));
    batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(Ino::ROOT.0 + 1));
    let (key, value) = keys::encode_inode(Ino::ROOT, &core);
    batch.put(key, value);
    batch.usage.inodes = 1;
    let ticket = meta.write(batch).await?;
    meta.durable(ticket).await
}

/// An inode with nothing in it, owned by root, mode 0.
pub(crate) fn new_core(id: FileId, kind: FileKind, parent: Ino, now: Timestamp) -> InodeCore {
    let is_dir = kind == FileKind::Directory;
    let attr = Attr {
        id,
        kind,
        mode: 0,
        nlink: if is_dir { 2 } else { 1 },
        uid: 0,
        gid: 0,
        size: if is_dir { directory_size(0) } else { 0 },
        allocated: 0,
        rdev: (0, 0),
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: 1,
        dos: 0,
    };
    InodeCore {
        attr,
        attr_dirty: false,
        size_stored: None,
        stored_bytes: 0,
        has_reserved: false,
        ticket: Ticket(0),
        gone: false,
        parent,
        verifier: None,
        next_cookie: keys::FIRST_COOKIE,
        entries: 0,
        known: None,
        xattrs: 0,
        target: bytes::Bytes::new(),
        acl: None,
    }
}

/// A size that grows with the entries.
pub(crate) fn directory_size(entries: u64) -> u64 {
    entries.saturating_mul(32).saturating_add(64)
}

pub(crate) fn kind_of(inode: &Inode) -> FileKind {
    inode.core.lock().attr.kind
}

pub(crate) fn pre(attr: &Attr) -> PreAttr {
    PreAttr { size: attr.size, mtime: attr.mtime, ctime: attr.ctime, change: attr.change }
}

/// splitmix64's finisher: a bijection, so generations differ where numbers do.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The `core` locks of several inodes, taken in ascending order (I2), each inode once.
pub(crate) struct Cores<'a> {
    guards: Vec<(Ino, MutexGuard<'a, InodeCore>)>,
}

impl<'a> Cores<'a> {
    pub(crate) fn lock(inodes: &[&'a Arc<Inode>]) -> Self {
        let mut sorted = inodes.to_vec();
        sorted.sort_by_key(|inode| inode.id.ino);
        sorted.dedup_by_key(|inode| inode.id.ino);
        Self { guards: sorted.into_iter().map(|inode| (inode.id.ino, inode.core.lock())).collect() }
    }

    /// Of an inode that was locked.
    pub(crate) fn of(&mut self, inode: &Inode) -> &mut InodeCore {
        let place = self.guards.iter().position(|(ino, _)| *ino == inode.id.ino);
        let place = place.expect("the inode is among those that were locked");
        &mut self.guards[place].1
    }

    /// Adds the records of all that still exist and submits (N1).
    pub(crate) fn submit(&mut self, meta: &dyn Meta, mut batch: Batch) -> FsResult<Ticket> {
        for (ino, core) in self.guards.iter().filter(|(_, core)| !core.gone) {
            let (key, value) = keys::encode_inode(*ino, core);
            batch.put(key, value);
        }
        let ticket = meta.submit(batch)?;
        for (_, core) in &mut self.guards {
            core.attr_dirty = false;
            core.ticket = ticket;
        }
        Ok(ticket)
    }
}
