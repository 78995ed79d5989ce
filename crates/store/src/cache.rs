//! Ranges of objects on a local disk.
//!
//! ```text
//! DIR/index   a header of 64 bytes, then 64 bytes a slot: which block of which object, its checksum
//! DIR/data    slots of 64 KiB: blocks as they are in the bucket
//! ```
//!
//! - `cache.immutable_alone`: only objects that are written once and never changed are cached. Which ones those are, the user of the
//!   cache says. One that is written or deleted through the cache is forgotten by it all the same.
//! - `cache.nothing_unverified`: a block is used when its checksum, seeded with the object's name and the block's place, is right. So
//!   neither a crash nor a slot that is overwritten meanwhile nor a disk that lies is noticed as anything but a miss, and nothing has to
//!   be synced.
//! - `cache.never_needed`: whatever fails here is a miss. After the first error of the disk, or a call that hangs, the cache is emptied
//!   and not used until the next start. Its folder may be deleted whenever nobody uses it.
//! - `cache.as_in_the_bucket`: blocks are kept as the bucket has them. What is sealed there is sealed here.
//! - `cache.bounded`: there are as many slots as fit the size. A slot that was not used since the hand came by last goes first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_base::checksum::{checksum_slices, seed};
use larder_base::metrics::{Counter, Metrics};
use larder_base::task;
use object_store::path::Path;
use parking_lot::Mutex;

const MAGIC: &[u8; 8] = b"LRDCACHE";
const VERSION: u32 = 1;
pub(crate) const BLOCK_BYTES: u64 = 64 << 10;
const ENTRY_BYTES: usize = 64;
/// A cache smaller than this is refused.
pub const CACHE_BYTES_MIN: u64 = 16 << 20;
/// What is on its way to the disk. More is not kept: the disk is slower than the bucket then.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// A disk that takes longer than the bucket is no cache.
const DISK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Which objects are never changed (`cache.immutable_alone`).
pub type IsImmutable = fn(&Path) -> bool;

/// One block of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// A hash of the object's name.
    name: u128,
    block: u32,
    bytes: u32,
    /// Of the whole object.
    object_bytes: u64,
    sum: u64,
}

impl Entry {
    fn encode(&self, slot: u32) -> [u8; ENTRY_BYTES] {
        let mut out = Vec::with_capacity(ENTRY_BYTES);
        out.extend_from_slice(&self.name.to_le_bytes());
        out.extend_from_slice(&self.block.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.object_bytes.to_le_bytes());
        out.extend_from_slice(&self.sum.to_le_bytes());
        sealed(out, u64::from(slot))
    }

    fn decode(slot: u32, bytes: &[u8]) -> Option<Entry> {
        let body = unsealed(bytes, u64::from(slot))?;
        let entry = Entry {
            name: u128::from_le_bytes(body.get(..16)?.try_into().ok()?),
            block: u32::from_le_bytes(body.get(16..20)?.try_into().ok()?),
            bytes: u32::from_le_bytes(body.get(20..24)?.try_into().ok()?),
            object_bytes: u64::from_le_bytes(body.get(24..32)?.try_into().ok()?),
            sum: u64::from_le_bytes(body.get(32..40)?.try_into().ok()?),
        };
        (entry.bytes > 0 && u64::from(entry.bytes) == block_bytes(entry.object_bytes, entry.block)).then_some(entry)
    }
}

/// 56 bytes, filled up, and their checksum.
fn sealed(mut body: Vec<u8>, place: u64) -> [u8; ENTRY_BYTES] {
    body.resize(ENTRY_BYTES - 8, 0);
    let sum = checksum_slices(seed(MAGIC, place), std::iter::once(&body[..]));
    body.extend_from_slice(&sum.to_le_bytes());
    let mut out = [0; ENTRY_BYTES];
    out.copy_from_slice(&body);
    out
}

fn unsealed(bytes: &[u8], place: u64) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    let want = checksum_slices(seed(MAGIC, place), std::iter::once(body));
    (u64::from_le_bytes(*sum) == want).then_some(body)
}

pub(crate) fn name_of(path: &Path) -> u128 {
    let half = |n| checksum_slices(seed(MAGIC, n), std::iter::once(path.as_ref().as_bytes()));
    u128::from(half(u64::MAX)) << 64 | u128::from(half(u64::MAX - 1))
}

fn sum_of(name: u128, block: u32, bytes: &[u8]) -> u64 {
    checksum_slices(seed(&name.to_le_bytes(), u64::from(block)), std::iter::once(bytes))
}

/// How long a block of an object is; 0 behind its end.
fn block_bytes(object_bytes: u64, block: u32) -> u64 {
    object_bytes.saturating_sub(u64::from(block) * BLOCK_BYTES).min(BLOCK_BYTES)
}

fn header(url: &str) -> [u8; ENTRY_BYTES] {
    let mut out = Vec::with_capacity(ENTRY_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&BLOCK_BYTES.to_le_bytes());
    out.extend_from_slice(&name_of(&Path::from(url)).to_le_bytes());
    sealed(out, u64::MAX)
}

/// Which block is in which slot.
#[derive(Default)]
struct Map {
    slots: Vec<Slot>,
    /// By name, then by block.
    objects: HashMap<u128, BTreeMap<u32, u32>>,
    hand: usize,
    /// Slots without a block; some of them may have one by now.
    free: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    entry: Option<Entry>,
    was_used: bool,
    /// Being written: it belongs to nobody.
    is_busy: bool,
}

impl Map {
    fn find(&mut self, name: u128, block: u32) -> Option<(u32, Entry)> {
        let number = *self.objects.get(&name)?.get(&block)?;
        let slot = self.slots.get_mut(number as usize)?;
        slot.was_used = true;
        slot.entry.map(|entry| (number, entry))
    }

    fn insert(&mut self, number: u32, entry: Entry) {
        self.remove(entry.name, entry.block);
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Slot { entry: Some(entry), was_used: false, is_busy: false };
            self.objects.entry(entry.name).or_default().insert(entry.block, number);
        }
    }

    fn remove(&mut self, name: u128, block: u32) {
        let Some(blocks) = self.objects.get_mut(&name) else { return };
        let number = blocks.remove(&block);
        if blocks.is_empty() {
            self.objects.remove(&name);
        }
        number.into_iter().for_each(|number| self.clear(number));
    }

    fn clear(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.entry = None;
            self.free.push(number);
        }
    }

    fn remove_object(&mut self, name: u128) {
        for number in self.objects.remove(&name).unwrap_or_default().into_values() {
            self.clear(number);
        }
    }

    /// A slot to write to (`cache.bounded`).
    fn take_slot(&mut self) -> Option<u32> {
        while let Some(number) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(number as usize)
                && slot.entry.is_none()
                && !slot.is_busy
            {
                slot.is_busy = true;
                return Some(number);
            }
        }
        // After one round nothing is in use that was not used in between.
        for _ in 0..self.slots.len() * 2 {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = self.slots.get_mut(self.hand)?;
            if slot.is_busy || std::mem::take(&mut slot.was_used) {
                continue;
            }
            let old = slot.entry;
            slot.is_busy = true;
            if let Some(old) = old {
                self.remove(old.name, old.block);
            }
            return u32::try_from(self.hand).ok();
        }
        None
    }

    fn give_back(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.is_busy = false;
            self.free.push(number);
        }
    }
}

/// Blocks that are not on the disk yet.
#[derive(Default)]
struct Queue {
    reads: VecDeque<Read>,
    bytes: usize,
    /// Somebody writes them, one after another.
    is_drained: bool,
}

/// What one read has brought, from the beginning of a block on.
pub(crate) struct Read {
    pub(crate) name: u128,
    pub(crate) first: u32,
    pub(crate) bytes: Bytes,
    pub(crate) object_bytes: u64,
}

/// A cache of objects in a folder.
pub struct DiskCache {
    folder: PathBuf,
    index: File,
    data: File,
    map: Mutex<Map>,
    is_on: AtomicBool,
    /// Why it is not used any more.
    fault: Mutex<Option<String>>,
    bypasses: AtomicUsize,
    queue: Mutex<Queue>,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskCache({})", self.folder.display())
    }
}

impl DiskCache {
    /// Opens or makes the cache of the bucket `url`. What it has of another bucket, or by another format, is thrown away.
    pub fn open(folder: &FilePath, bytes: u64, url: &str) -> io::Result<DiskCache> {
        if bytes < CACHE_BYTES_MIN {
            return Err(io::Error::other(format!("a cache has {CACHE_BYTES_MIN} bytes at least")));
        }
        std::fs::create_dir_all(folder)?;
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(folder.join(name))
        };
        let (index, data) = (open("index")?, open("data")?);
        index.try_lock().map_err(|_| io::Error::other("another larder uses it"))?;
        let count = u32::try_from(bytes / (BLOCK_BYTES + ENTRY_BYTES as u64)).unwrap_or(u32::MAX);
        let mut map = Map { slots: vec![Slot::default(); count as usize], ..Map::default() };
        let head = header(url);
        let mut found = [0; ENTRY_BYTES];
        if index.read_exact_at(&mut found, 0).is_ok() && found == head {
            load(&index, &mut map)?;
        } else {
            index.set_len(0)?;
            data.set_len(0)?;
            index.write_all_at(&head, 0)?;
        }
        map.free = (0..count).rev().filter(|slot| map.slots[*slot as usize].entry.is_none()).collect();
        // Smaller than before.
        if index.metadata()?.len() > index_at(count) {
            index.set_len(index_at(count))?;
        }
        if data.metadata()?.len() > u64::from(count) * BLOCK_BYTES {
            data.set_len(u64::from(count) * BLOCK_BYTES)?;
        }
        Ok(DiskCache {
            folder: folder.to_owned(),
            index,
            data,
            map: Mutex::new(map),
            is_on: AtomicBool::new(true),
            fault: Mutex::default(),
            bypasses: AtomicUsize::new(0),
            queue: Mutex::default(),
            hits: Counter::default(),
            misses: Counter::default(),
        })
    }

    /// What a person wants to know of it.
    pub fn status(&self) -> String {
        if let Some(fault) = &*self.fault.lock() {
            return format!("the cache in {} is not used: {fault}", self.folder.display());
        }
        let map = self.map.lock();
        let kept = map.objects.values().map(BTreeMap::len).sum::<usize>() as u64 * BLOCK_BYTES;
        let room = map.slots.len() as u64 * BLOCK_BYTES;
        let (kept, room) = (larder_base::units::ByteSize(kept), larder_base::units::ByteSize(room));
        let (hits, misses) = (self.hits.get(), self.misses.get());
        format!("cache in {}: {kept} of {room}; {hits} reads from it, {misses} from the bucket", self.folder.display())
    }

    /// Adds what was counted for the store of this name.
    pub fn metrics(&self, store: &str, out: &mut Metrics) {
        for (answer, counter) in [("hit", &self.hits), ("miss", &self.misses)] {
            let labels = [("store", store), ("answer", answer)];
            out.counter(
                "larder_store_cache_reads_total",
                "Reads that the disk cache looked up.",
                &labels,
                counter.get(),
            );
        }
    }

    /// While the answer lives, reads pass by: who verifies the bucket wants to see the bucket.
    pub fn bypass(self: &Arc<Self>) -> Bypass {
        self.bypasses.fetch_add(1, Ordering::AcqRel);
        Bypass(Arc::clone(self))
    }

    pub(crate) fn is_used(&self) -> bool {
        self.is_on.load(Ordering::Acquire) && self.bypasses.load(Ordering::Acquire) == 0
    }

    /// `cache.never_needed`
    fn end(&self, why: &str) {
        if self.is_on.swap(false, Ordering::AcqRel) {
            tracing::warn!(folder = %self.folder.display(), why, "the cache is thrown away: reads go to the bucket");
            *self.fault.lock() = Some(why.to_owned());
            *self.map.lock() = Map::default();
        }
    }

    /// Gives the room back, too, where the disk still does that.
    fn end_and_empty(&self, error: &io::Error) {
        self.end(&error.to_string());
        let _ = self.index.set_len(0);
        let _ = self.data.set_len(0);
    }

    pub(crate) fn forget(&self, path: &Path) {
        self.map.lock().remove_object(name_of(path));
    }

    /// The bytes of a range, if all of it is here, and the length of the object.
    pub(crate) async fn read(self: &Arc<Self>, name: u128, range: Range<u64>) -> Option<(Bytes, u64)> {
        let blocks = blocks_of(&range)?;
        let (slots, object_bytes) = {
            let mut map = self.map.lock();
            let (_, first) = map.find(name, blocks.start)?;
            let end = blocks.end.min(u32::try_from(first.object_bytes.div_ceil(BLOCK_BYTES)).ok()?);
            let slots: Option<Vec<_>> = (blocks.start..end).map(|block| map.find(name, block)).collect();
            (slots?, first.object_bytes)
        };
        if range.start >= object_bytes {
            return None;
        }
        let cache = Arc::clone(self);
        let read = task::blocking(move || cache.read_slots(&slots));
        let whole = match tokio::time::timeout(DISK_WAIT_MAX, read).await {
            Ok(read) => read.ok().flatten()?,
            Err(_) => {
                self.end("its disk does not answer");
                return None;
            }
        };
        let start = usize::try_from(range.start - u64::from(blocks.start) * BLOCK_BYTES).ok()?;
        let length = usize::try_from(range.end.min(object_bytes) - range.start).ok()?;
        // A copy where much would stay in memory for the sake of little.
        let bytes = match length * 2 < whole.len() {
            true => Bytes::copy_from_slice(whole.get(start..start + length)?),
            false => (start + length <= whole.len()).then(|| whole.slice(start..start + length))?,
        };
        Some((bytes, object_bytes))
    }

    /// For each of the blocks whether it is here, and the length of the object if any is.
    pub(crate) fn present(&self, name: u128, blocks: Range<u32>) -> (Vec<bool>, Option<u64>) {
        let (mut map, mut object_bytes) = (self.map.lock(), None);
        let present = blocks.map(|block| {
            let found = map.find(name, block);
            object_bytes = object_bytes.or(found.map(|(_, entry)| entry.object_bytes));
            found.is_some()
        });
        (present.collect(), object_bytes)
    }

    fn read_slots(&self, slots: &[(u32, Entry)]) -> Option<Bytes> {
        let mut whole = BytesMut::zeroed(slots.iter().map(|(_, entry)| entry.bytes as usize).sum());
        let mut rest = &mut whole[..];
        for (slot, entry) in slots {
            let (piece, after) = rest.split_at_mut_checked(entry.bytes as usize)?;
            match self.data.read_exact_at(piece, u64::from(*slot) * BLOCK_BYTES) {
                Ok(()) if sum_of(entry.name, entry.block, piece) == entry.sum => {}
                // Written over meanwhile, or never whole.
                Ok(()) => {
                    self.drop_block(*slot, entry);
                    return None;
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.drop_block(*slot, entry);
                    return None;
                }
                Err(error) => {
                    self.end_and_empty(&error);
                    return None;
                }
            }
            rest = after;
        }
        Some(whole.freeze())
    }

    fn drop_block(&self, slot: u32, entry: &Entry) {
        let mut map = self.map.lock();
        if map.find(entry.name, entry.block) == Some((slot, *entry)) {
            map.remove(entry.name, entry.block);
        }
    }

    /// Keeps the blocks of a read, without anybody's waiting.
    pub(crate) fn keep(self: &Arc<Self>, read: Read) {
        {
            let mut queue = self.queue.lock();
            if queue.bytes + read.bytes.len() > QUEUE_BYTES_MAX {
                return;
            }
            queue.bytes += read.bytes.len();
            queue.reads.push_back(read);
            if std::mem::replace(&mut queue.is_drained, true) {
                return;
            }
        }
        let cache = Arc::clone(self);
        task::blocking(move || {
            while let Some(read) = cache.next_read() {
                if let Err(error) = cache.write_blocks(&read) {
                    cache.end_and_empty(&error);
                }
            }
        });
    }

    fn next_read(&self) -> Option<Read> {
        let mut queue = self.queue.lock();
        let next = queue.reads.pop_front();
        queue.bytes -= next.as_ref().map_or(0, |read| read.bytes.len());
        queue.is_drained = next.is_some();
        next
    }

    fn write_blocks(&self, read: &Read) -> io::Result<()> {
        for (block, piece) in (read.first..).zip(read.bytes.chunks(BLOCK_BYTES as usize)) {
            // A piece of a block is not kept.
            if piece.len() as u64 == block_bytes(read.object_bytes, block) && self.is_on.load(Ordering::Acquire) {
                self.write_block(read.name, block, piece, read.object_bytes)?;
            }
        }
        Ok(())
    }

    fn write_block(&self, name: u128, block: u32, piece: &[u8], object_bytes: u64) -> io::Result<()> {
        let slot = {
            let mut map = self.map.lock();
            if map.find(name, block).is_some() {
                return Ok(());
            }
            match map.take_slot() {
                Some(slot) => slot,
                None => return Ok(()),
            }
        };
        let bytes = u32::try_from(piece.len()).unwrap_or(0);
        let entry = Entry { name, block, bytes, object_bytes, sum: sum_of(name, block, piece) };
        let written = self.data.write_all_at(piece, u64::from(slot) * BLOCK_BYTES);
        let written = written.and_then(|()| self.index.write_all_at(&entry.encode(slot), index_at(slot)));
        let mut map = self.map.lock();
        match written {
            Ok(()) => map.insert(slot, entry),
            Err(_) => map.give_back(slot),
        }
        written
    }
}

fn index_at(slot: u32) -> u64 {
    (u64::from(slot) + 1) * ENTRY_BYTES as u64
}

fn load(index: &File, map: &mut Map) -> io::Result<()> {
    const READ_ENTRIES: usize = 16 << 10;
    let mut buffer = vec![0; READ_ENTRIES * ENTRY_BYTES];
    let mut slot = 0u32;
    while (slot as usize) < map.slots.len() {
        let read = index.read_at(&mut buffer, index_at(slot))?;
        let whole = read / ENTRY_BYTES;
        if whole == 0 {
            return Ok(());
        }
        for bytes in buffer.chunks_exact(ENTRY_BYTES).take(whole) {
            if let Some(entry) = Entry::decode(slot, bytes) {
                map.insert(slot, entry);
            }
            slot = slot.saturating_add(1);
        }
    }
    Ok(())
}

pub(crate) fn blocks_of(range: &Range<u64>) -> Option<Range<u32>> {
    let first = u32::try_from(range.start / BLOCK_BYTES).ok()?;
    let end = u32::try_from(range.end.div_ceil(BLOCK_BYTES)).ok()?;
    (first < end).then_some(first..end)
}

/// Reads pass the cache by until it is dropped.
pub struct Bypass(Arc<DiskCache>);

impl Drop for Bypass {
    fn drop(&mut self) {
        self.0.bypasses.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use futures::StreamExt;
    use object_store::{GetOptions, ObjectStore, ObjectStoreExt};
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::{Bucket, Cached, Kind, tests};

    const OBJECT_BYTES: usize = 1_000_000;

    fn is_immutable(path: &Path) -> bool {
        path.as_ref().starts_with("seg/")
    }

    fn data(object: usize) -> Vec<u8> {
        (0..OBJECT_BYTES).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ object.wrapping_mul(77)) as u8).collect()
    }

    fn opened(bucket: &Bucket, folder: &FilePath) -> (Arc<DiskCache>, Cached) {
        let cache = Arc::new(DiskCache::open(folder, CACHE_BYTES_MIN, "s3://a/b").unwrap());
        (Arc::clone(&cache), Cached::new(Arc::clone(&bucket.store), cache, is_immutable))
    }

    /// All that was read is on the disk.
    async fn settled(cache: &DiskCache) {
        while cache.queue.lock().is_drained {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Nobody has it open any more, so that it can be opened again.
    async fn closed(cache: Arc<DiskCache>, store: Cached) {
        settled(&cache).await;
        let cache = Arc::downgrade(&{ cache });
        drop(store);
        while cache.upgrade().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn read(store: &Cached, at: &Path, range: Range<u64>) -> Bytes {
        store.get_range(at, range).await.unwrap()
    }

    /// Random ranges of more than fits the cache are what the bucket has, from whichever of the two.
    #[tokio::test(flavor = "multi_thread")]
    async fn reads_are_what_the_bucket_has() {
        let (_server, bucket) = tests::fresh().await;
        let folder = tempfile::tempdir().unwrap();
        let (cache, store) = opened(&bucket, folder.path());
        let objects: Vec<Vec<u8>> = (0..24).map(data).collect();
        for (n, object) in objects.iter().enumerate() {
            store.put(&Path::from(format!("seg/{n}")), object.clone().into()).await.unwrap();
        }
        let mut rng = rand::rngs::StdRng::seed_from_u64(7);
        for _ in 0..600 {
            let n = rng.random_range(0..objects.len());
            let start = rng.random_range(0..OBJECT_BYTES);
            let end = (start + rng.random_range(1..300_000)).min(OBJECT_BYTES + 100);
            let got = read(&store, &Path::from(format!("seg/{n}")), start as u64..end as u64).await;
            assert_eq!(got, &objects[n][start..end.min(OBJECT_BYTES)], "{n} {start}..{end}");
        }
        assert!(cache.hits.get() > 50 && cache.misses.get() > 50, "{}", cache.status());
        settled(&cache).await;
        assert!(std::fs::metadata(folder.path().join("data")).unwrap().len() <= CACHE_BYTES_MIN);
    }

    /// A read that the cache has makes no request, also after a restart; one whose block was damaged makes one.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_cached_read_makes_no_request() {
        let (server, bucket) = tests::fresh().await;
        let folder = tempfile::tempdir().unwrap();
        let at = Path::from("seg/1");
        let object = data(1);
        bucket.store.put(&at, object.clone().into()).await.unwrap();
        let (cache, store) = opened(&bucket, folder.path());
        read(&store, &at, 300_000..304_096).await;
        closed(cache, store).await;
        let (cache, store) = opened(&bucket, folder.path());
        let before = server.requests();
        assert_eq!(read(&store, &at, 299_000..303_096).await, &object[299_000..303_096]);
        assert_eq!((server.requests(), cache.hits.get()), (before, 1));
        // What is read next takes free slots, not those that nobody has used since the restart.
        for offset in [0, 400_000, 500_000, 600_000] {
            read(&store, &at, offset..offset + 10).await;
        }
        settled(&cache).await;
        let before = server.requests();
        assert_eq!(read(&store, &at, 299_000..303_096).await, &object[299_000..303_096]);
        assert_eq!(server.requests(), before);
        // Who verifies the bucket sees the bucket.
        let bypass = cache.bypass();
        read(&store, &at, 299_000..303_096).await;
        assert_eq!(server.requests(), before + 1);
        drop(bypass);
        let file = OpenOptions::new().write(true).open(folder.path().join("data")).unwrap();
        file.write_all_at(&[0xaa; 65536 * 2], 0).unwrap();
        file.write_all_at(&[0xaa; 65536 * 2], 65536).unwrap();
        assert_eq!(read(&store, &at, 299_000..303_096).await, &object[299_000..303_096]);
        assert_eq!(server.requests(), before + 2);
        // Another bucket's is not taken for ours.
        closed(cache, store).await;
        let other = DiskCache::open(folder.path(), CACHE_BYTES_MIN, "s3://a/c").unwrap();
        assert!(other.map.lock().objects.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_changes_is_not_cached_and_a_broken_disk_is_a_miss() {
        let (_server, bucket) = tests::fresh().await;
        let folder = tempfile::tempdir().unwrap();
        let (cache, store) = opened(&bucket, folder.path());
        let (manifest, segment) = (Path::from("manifest/1"), Path::from("seg/1"));
        for round in 0..3u8 {
            store.put(&manifest, vec![round; 100].into()).await.unwrap();
            assert_eq!(read(&store, &manifest, 0..100).await, vec![round; 100]);
        }
        assert_eq!(cache.hits.get() + cache.misses.get(), 0);
        store.put(&segment, data(1).into()).await.unwrap();
        read(&store, &segment, 0..10).await;
        settled(&cache).await;
        read(&store, &segment, 0..10).await;
        assert_eq!(cache.hits.get(), 1);
        store.delete(&segment).await.unwrap();
        assert!(store.get_range(&segment, 0..10).await.is_err(), "what is gone is gone");
        store.put(&segment, data(2).into()).await.unwrap();
        read(&store, &segment, 0..10).await;
        settled(&cache).await;
        cache.end_and_empty(&io::Error::from(io::ErrorKind::StorageFull));
        let before = bucket.requests.of(Kind::Get);
        assert_eq!(read(&store, &segment, 0..10).await, data(2)[..10]);
        assert_eq!(bucket.requests.of(Kind::Get), before + 1);
        assert!(cache.status().contains("is not used"), "{}", cache.status());
        assert_eq!(std::fs::metadata(folder.path().join("data")).unwrap().len(), 0, "its room is given back");
    }

    /// A long range is one request for what is not here, and then none; a part that is here is not asked for again.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_reads_ask_for_what_is_not_here() {
        const LONG: usize = 7_000_000;
        let (server, bucket) = tests::fresh().await;
        let folder = tempfile::tempdir().unwrap();
        let (cache, store) = opened(&bucket, folder.path());
        let at = Path::from("seg/long");
        let object: Vec<u8> = (0..LONG).map(|at| (at.wrapping_mul(31) ^ (at >> 8)) as u8).collect();
        bucket.store.put(&at, object.clone().into()).await.unwrap();
        let requests = async |range: Range<usize>| {
            let before = (server.requests(), bucket.requests.bytes().1);
            let got = read(&store, &at, range.start as u64..range.end as u64).await;
            assert!(got == object[range.start..range.end.min(LONG)], "{range:?}");
            settled(&cache).await;
            (server.requests() - before.0, bucket.requests.bytes().1 - before.1)
        };
        // Blocks in the middle, then all around them: two requests, and nothing twice.
        assert_eq!(requests(3_000_000..4_000_000).await.0, 1);
        let (count, bytes) = requests(100_000..LONG + 5).await;
        assert!(count == 2 && bytes <= (LONG - 900_000) as u64, "{count} requests, {bytes} bytes");
        assert_eq!(requests(100_000..LONG).await, (0, 0));
        assert_eq!(requests(1_234_567..6_999_999).await, (0, 0));
        // The first block is not here yet, and little between two gaps is fetched along.
        assert_eq!(requests(0..5_000_000).await.0, 1);
        assert_eq!(requests(0..LONG).await, (0, 0));
        assert!(store.get_range(&at, 7_100_000..9_000_000).await.is_err(), "behind the end");
        assert!(store.get_range(&Path::from("seg/none"), 0..3_000_000).await.is_err());
    }

    /// A reader that lets go of a long range with its last byte leaves all of it in the cache, and one that lets go early what came.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_reads_that_are_let_go_of_are_kept() {
        const LONG: usize = 7_000_000;
        let (server, bucket) = tests::fresh().await;
        let folder = tempfile::tempdir().unwrap();
        let (cache, store) = opened(&bucket, folder.path());
        let at = Path::from("seg/long");
        bucket.store.put(&at, vec![7; LONG].into()).await.unwrap();
        for (range, wanted) in [(100_000..2_900_000, 2_800_000), (4_000_000..6_500_000, 1_300_000)] {
            let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
            let mut stream = store.get_opts(&at, options).await.unwrap().into_stream();
            let mut got = 0;
            while got < wanted {
                got += stream.next().await.unwrap().unwrap().len();
            }
            drop(stream);
            let is_kept = async || {
                let kept = range.start..range.start + wanted as u64 - BLOCK_BYTES;
                let whole = if got == (range.end - range.start) as usize { range.clone() } else { kept };
                cache.present(name_of(&at), blocks_of(&whole).unwrap()).0.iter().all(|is_here| *is_here)
            };
            let begun = Instant::now();
            while !is_kept().await {
                assert!(begun.elapsed() < Duration::from_secs(20), "{range:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        settled(&cache).await;
        let before = server.requests();
        assert_eq!(read(&store, &at, 100_000..2_900_000).await.len(), 2_800_000);
        assert_eq!(server.requests(), before);
    }

    #[test]
    fn golden_entry() {
        let entry = Entry { name: 0x0102, block: 1, bytes: 1000, object_bytes: 66_536, sum: 0x0a0b };
        let bytes = entry.encode(5);
        let hex: String = bytes[..56].iter().map(|byte| format!("{byte:02x}")).collect();
        let want = concat!(
            "02010000000000000000000000000000",
            "01000000",
            "e8030000",
            "e803010000000000",
            "0b0a000000000000",
            "00000000000000000000000000000000"
        );
        assert_eq!(hex, want);
        assert_eq!(Entry::decode(5, &bytes), Some(entry));
        assert_eq!(Entry::decode(6, &bytes), None, "of another slot");
        for at in 0..bytes.len() {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(Entry::decode(5, &torn), None, "byte {at}");
        }
    }
}
