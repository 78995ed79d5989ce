//! The memory that file data may use, shared by all volumes of a process: the bound of dirty data
//! and the cache of records.
//!
//! - `memory.charge_before_accept`: dirty data never exceeds its bound, because a write first
//!   acquires its charge, holding no lock. Flushing acquires nothing, so it cannot wait for memory
//!   that only a flush can free.
//! - `memory.slow_down_early`: from half full on, writers are slowed to the pace of flushes ([`super::pace`]), so none
//!   meets the bound at full speed.
//! - `memory.records_never_stale`: records are immutable and named by segment and position, so the
//!   cache never holds a stale one.
//! - `memory.dead_records_make_room`: records of a large file that was removed or replaced go when its segments do. They were
//!   used, so the cache would keep them and drop what comes in.
//! - `memory.kept_uncopied`: a record that was received stays where it lies, if it fills the slots
//!   that it keeps in use by three quarters at least.
//! - `memory.read_uncopied`: records that were read ahead stay in the slots that the disk filled, which they share
//!   with their neighbours ([`Together`]). That is sound as long as neighbours leave together: they came in together, and no
//!   stream that passes for the first time tells them apart. The first use that would keep one longer gives each of
//!   them slots of its own.
//! - `memory.ahead_is_bounded`: what all readers of stores behind a network have on its way ahead of
//!   them is at most a quarter of the cache, and [`AHEAD_BYTES_MAX`].
//! - `memory.streams_stay_cold`: the first time that a stream passes a record does not count as a
//!   use, so one long file that is read or written once takes the place of records that were not
//!   used again. Scattered reads count, and so does a second stream.
//! - `memory.unused_is_given_back`: a record that was not used for [`ROUNDS_KEPT`] rounds (minutes,
//!   see [`Memory::give_back`]) is dropped.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_base::arena::{self, RECORD_BYTES, Slot};
use larder_base::traffic::{self, Wait};
use larder_fs::IO_BYTES_MAX;
use quick_cache::Weighter;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::pace::Pace;
use super::place::SegmentId;
use crate::counts::CacheCounts;

/// The cost of each piece beside its bytes, so that many tiny writes are bounded, too.
pub(crate) const PIECE_BYTES: u64 = 256;
const DIRTY_BYTES_MIN: u64 = 24 << 20;
const DIRTY_BYTES_MAX: u64 = 1 << 30;
// Charges are permits, counted in 32 bits, and the largest write fits the smallest bound.
const _: () = assert!(DIRTY_BYTES_MAX <= u32::MAX as u64 && DIRTY_BYTES_MIN >= 2 * IO_BYTES_MAX as u64);
/// See `memory.ahead_is_bounded`: more than a fast line has on its way.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

/// A slot holds this part of its length at least, or the bytes lie elsewhere.
const SLOT_FILL_MIN: (usize, usize) = (3, 4);

/// A record in more pieces is copied: each is a part of every answer.
const KEPT_CHUNKS_MAX: usize = 8;

/// Whether slots of so many bytes in all are filled well enough by `len` bytes.
pub(super) fn fills(len: usize, slot_bytes: usize) -> bool {
    len >= slot_bytes / SLOT_FILL_MIN.1 * SLOT_FILL_MIN.0
}

/// Whether the chunks lie in slots, and fill them.
pub(super) fn fill_slots(chunks: &[Bytes]) -> bool {
    let slots: Option<usize> = chunks.iter().map(|chunk| arena::slot_bytes(chunk)).sum();
    slots.is_some_and(|slots| fills(chunks.iter().map(Bytes::len).sum(), slots))
}

/// Memory of a record that is being read, to be filled wholly.
pub(crate) enum RecordBuffer {
    Slot(Slot),
    Heap(BytesMut),
}

/// A slot that `len` bytes fill well.
fn slot_of(len: usize) -> Option<Slot> {
    let well_filled = len <= RECORD_BYTES && arena::slot_bytes_for(len).is_some_and(|slot| fills(len, slot));
    if well_filled { arena::take(len) } else { None }
}

impl RecordBuffer {
    pub(crate) fn of(len: usize) -> RecordBuffer {
        slot_of(len).map_or_else(|| RecordBuffer::Heap(BytesMut::zeroed(len)), RecordBuffer::Slot)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            RecordBuffer::Slot(slot) => slot,
            RecordBuffer::Heap(bytes) => bytes,
        }
    }

    pub(crate) fn freeze(self) -> Bytes {
        match self {
            RecordBuffer::Slot(slot) => slot.freeze(),
            RecordBuffer::Heap(bytes) => bytes.freeze(),
        }
    }
}

/// A record, decompressed; in several pieces where it is longer than a slot.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    One(Bytes),
    Rope(Arc<[Bytes]>),
}

impl Record {
    pub(crate) fn from_chunks(chunks: &[Bytes]) -> Record {
        match chunks {
            [one] => Record::One(one.clone()),
            _ => Record::Rope(chunks.into()),
        }
    }

    /// The chunks themselves where they have slots of their own (`memory.kept_uncopied`), else a
    /// copy.
    pub(crate) fn kept(chunks: &[Bytes]) -> Record {
        let is_kept = chunks.len() <= KEPT_CHUNKS_MAX && fill_slots(chunks);
        if is_kept { Record::from_chunks(chunks) } else { Record::copied(chunks) }
    }

    /// Whether it may share its slots with its neighbours for a while (`memory.read_uncopied`). Its
    /// first and last byte tell whether a disk's slots hold it: other stores hand out slices of longer memory.
    pub(crate) fn lies_in_slots(&self) -> bool {
        let ends = [self.chunks().first(), self.chunks().last()];
        ends.into_iter().all(|chunk| chunk.is_some_and(|chunk| arena::slot_bytes(chunk).is_some()))
    }

    /// A copy that keeps only itself in memory: buffers of a disk hold much more.
    pub(crate) fn copied(chunks: &[Bytes]) -> Record {
        let mut left: usize = chunks.iter().map(Bytes::len).sum();
        let mut source = chunks.iter().flat_map(|chunk| chunk.chunks(RECORD_BYTES));
        let mut front: &[u8] = &[];
        // At most `len` of the next bytes, which are there.
        let mut next = |len: usize| {
            if front.is_empty() {
                front = source.next().unwrap_or_default();
            }
            let (now, later) = front.split_at(front.len().min(len));
            front = later;
            now
        };
        let mut pieces = Vec::with_capacity(left.div_ceil(RECORD_BYTES));
        while left > 0 {
            let len = left.min(RECORD_BYTES);
            left -= len;
            let Some(mut slot) = slot_of(len) else {
                let mut piece = Vec::with_capacity(len);
                while piece.len() < len {
                    piece.extend_from_slice(next(len - piece.len()));
                }
                pieces.push(piece.into());
                continue;
            };
            let mut room = &mut slot[..];
            while !room.is_empty() {
                let now = next(room.len());
                let (filled, rest) = room.split_at_mut(now.len());
                filled.copy_from_slice(now);
                room = rest;
            }
            pieces.push(slot.freeze());
        }
        Record::from_chunks(&pieces)
    }

    pub(crate) fn chunks(&self) -> &[Bytes] {
        match self {
            Record::One(bytes) => std::slice::from_ref(bytes),
            Record::Rope(chunks) => chunks,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks().iter().map(Bytes::len).sum()
    }

    /// Appends `skip..skip + len` of it, uncopied.
    pub(crate) fn slice_into(&self, skip: usize, len: usize, out: &mut Vec<Bytes>) {
        let (mut skip, mut len) = (skip, len);
        for chunk in self.chunks() {
            if skip >= chunk.len() {
                skip -= chunk.len();
                continue;
            }
            if len == 0 {
                break;
            }
            let end = chunk.len().min(skip + len);
            out.push(chunk.slice(skip..end));
            len -= end - skip;
            skip = 0;
        }
    }
}

/// (volume, segment, position of the record, piece; none: the whole record).
pub(crate) type RecordKey = (u32, SegmentId, u32, Option<u16>);

/// Rounds that a record stays without being used.
const ROUNDS_KEPT: u32 = 5;
/// Given back at once ([`Memory::give_some_back`]): less is not worth looking at the whole cache.
const STEP_BYTES_MIN: u64 = 32 << 20;
/// Of a segment: records so near were read together.
const NEIGHBOURS_BYTES: u32 = 8 << 20;

/// The part of the cache that records can fill which were used again. The rest is for what comes
/// in.
const HOT_PART_MAX: f64 = 0.75;

#[derive(Clone)]
struct CachedRecord {
    record: Record,
    uses: Arc<Uses>,
    /// The slots are not its own.
    together: Option<Arc<Together>>,
}

impl CachedRecord {
    /// The round in which it, or one that shares its slots, was used last.
    fn round(&self) -> &AtomicU32 {
        self.together.as_ref().map_or(&self.uses.round, |together| &together.round)
    }
}

/// Records that share slots (`memory.read_uncopied`).
pub(crate) struct Together {
    keys: Vec<RecordKey>,
    round: AtomicU32,
    is_parted: AtomicBool,
}

impl Together {
    pub(crate) fn holds(&self, key: &RecordKey) -> bool {
        self.keys.contains(key)
    }
}

struct Uses {
    /// The round in which it was used last.
    round: AtomicU32,
    /// A stream has passed it (`memory.streams_stay_cold`).
    is_streamed: AtomicBool,
}

#[derive(Clone)]
struct RecordWeight;

impl Weighter<RecordKey, CachedRecord> for RecordWeight {
    fn weight(&self, _: &RecordKey, kept: &CachedRecord) -> u64 {
        kept.record.len() as u64 + 160
    }
}

pub(crate) struct Memory {
    dirty_max: u64,
    dirty: Semaphore,
    cache: quick_cache::sync::Cache<RecordKey, CachedRecord, RecordWeight>,
    /// See `memory.unused_is_given_back`.
    round: AtomicU32,
    /// Calls of [`Memory::give_some_back`].
    steps: AtomicU32,
    cache_bytes: u64,
    ahead: Arc<Semaphore>,
    pub(crate) counts: CacheCounts,
    volumes: AtomicU32,
    pace: Pace,
    /// Bytes of dirty data given back since the beginning.
    released: AtomicU64,
    /// The flush of some volume fails: writers that wait for memory may have to be told.
    pub(crate) failing: Notify,
    /// Bytes of room promised to reserved ranges of open volumes (`reserved.promise_moves`,
    /// `reserved.promise_grows_in_allocate`).
    pub(crate) reserved: AtomicI64,
    /// Held from the search for room until it is taken: one reservation at a time.
    pub(crate) reserving: tokio::sync::Mutex<()>,
}

/// `wanted` of `there`, as a part of all numbers below 2^32.
fn part(wanted: u64, there: u64) -> u64 {
    let part = (u128::from(wanted.min(there)) << 32).checked_div(u128::from(there));
    part.map_or(0, |part| u64::try_from(part).unwrap_or(1 << 32))
}

/// A number below 2^32, the same for the same `what`.
fn drawn(what: &impl std::hash::Hash) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(what) >> 32
}

impl Memory {
    /// `total_bytes` is for the record cache and dirty data together.
    pub(crate) fn new(total_bytes: u64) -> Arc<Self> {
        let dirty_max = (total_bytes / 2).clamp(DIRTY_BYTES_MIN, DIRTY_BYTES_MAX);
        let cache_bytes = total_bytes.saturating_sub(dirty_max).max(8 << 20);
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // A shard must hold many of the largest records, or it rejects them.
        let shards = (cores * 4).min((cache_bytes >> 24) as usize).max(1);
        let mut options = quick_cache::OptionsBuilder::new();
        options
            .shards(shards)
            .weight_capacity(cache_bytes)
            .hot_allocation(HOT_PART_MAX)
            .estimated_items_capacity((cache_bytes >> 16) as usize + 64);
        let cache = match options.build() {
            Ok(options) => quick_cache::sync::Cache::with_options(
                options,
                RecordWeight,
                Default::default(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            Err(_) => {
                quick_cache::sync::Cache::with_weighter((cache_bytes >> 16) as usize + 64, cache_bytes, RecordWeight)
            }
        };
        Arc::new(Self {
            dirty_max,
            dirty: Semaphore::new(dirty_max as usize),
            cache,
            round: AtomicU32::new(0),
            steps: AtomicU32::new(0),
            cache_bytes,
            ahead: Arc::new(Semaphore::new((cache_bytes / 4).min(AHEAD_BYTES_MAX) as usize)),
            counts: CacheCounts::default(),
            volumes: AtomicU32::new(0),
            pace: Pace::default(),
            released: AtomicU64::new(0),
            failing: Notify::new(),
            reserved: AtomicI64::new(0),
            reserving: tokio::sync::Mutex::new(()),
        })
    }

    /// A number for the keys of one open volume.
    pub(crate) fn next_volume(&self) -> u32 {
        self.volumes.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn dirty_max(&self) -> u64 {
        self.dirty_max
    }

    pub(crate) fn dirty_used(&self) -> u64 {
        self.dirty_max.saturating_sub(self.dirty.available_permits() as u64)
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed).max(0) as u64
    }

    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// Bytes that may still be fetched ahead of readers (`memory.ahead_is_bounded`).
    pub(crate) fn ahead_left(&self) -> u64 {
        self.ahead.available_permits() as u64
    }

    /// `None`: so many bytes are not left.
    pub(crate) fn try_acquire_ahead(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.ahead).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Acquires `charge` without waiting and without delay, if that is possible.
    pub(crate) fn try_acquire(self: &Arc<Self>, charge: u64) -> Option<Charge> {
        if self.dirty_used() > self.dirty_max / 2 {
            return None;
        }
        self.dirty.try_acquire_many(self.permits(charge)).ok()?.forget();
        Some(Charge { memory: Arc::clone(self), bytes: charge.min(self.dirty_max) })
    }

    /// Waits until `charge` is free (`memory.charge_before_accept`), first come first served.
    pub(crate) async fn acquire(self: &Arc<Self>, charge: u64) -> Charge {
        if let Ok(permit) = traffic::waiting(Wait::Disk, self.dirty.acquire_many(self.permits(charge))).await {
            permit.forget();
        }
        Charge { memory: Arc::clone(self), bytes: charge.min(self.dirty_max) }
    }

    /// A charge larger than the bound waits for all of it.
    fn permits(&self, charge: u64) -> u32 {
        charge.min(self.dirty_max).min(u64::from(u32::MAX)) as u32
    }

    /// The pause of a writer of `bytes` that comes `now` (`memory.slow_down_early`).
    pub(crate) fn delay(&self, now: Duration, bytes: u64) -> Duration {
        let half = self.dirty_max / 2;
        let over = self.dirty_used().saturating_sub(half);
        if over == 0 {
            return Duration::ZERO;
        }
        self.pace.wait(now, bytes, self.released.load(Ordering::Relaxed), over as f64 / half as f64)
    }

    pub(crate) fn release(&self, bytes: u64) {
        let free = self.dirty.available_permits() as u64;
        assert!(free + bytes <= self.dirty_max, "`memory.charge_before_accept`: only acquired charge is released");
        self.dirty.add_permits(bytes as usize);
        self.released.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn get(self: &Arc<Self>, key: &RecordKey) -> Option<Record> {
        let kept = self.cache.get(key)?;
        self.note_use(&kept);
        if let Some(together) = kept.together {
            self.part(together);
        }
        Some(kept.record)
    }

    /// The same for a stream; `passes`: it reads the last byte (`memory.streams_stay_cold`).
    pub(crate) fn get_in_sequence(self: &Arc<Self>, key: &RecordKey, passes: bool) -> Option<Record> {
        let kept = self.cache.peek(key)?;
        self.note_use(&kept);
        if passes && kept.uses.is_streamed.swap(true, Ordering::Relaxed) {
            self.keep(key);
        }
        Some(kept.record)
    }

    fn note_use(&self, kept: &CachedRecord) {
        let (round, last) = (self.round.load(Ordering::Relaxed), kept.round());
        // Most are used often within a round: their line stays shared between the cores.
        if last.load(Ordering::Relaxed) != round {
            last.store(round, Ordering::Relaxed);
        }
    }

    pub(crate) fn holds(&self, key: &RecordKey) -> bool {
        self.cache.contains_key(key)
    }

    /// A record that has its memory to itself.
    pub(crate) fn insert(&self, key: RecordKey, record: Record) {
        self.insert_with(key, record, None);
    }

    /// A record that shares its memory with those of `together` at most.
    pub(crate) fn insert_shared(&self, key: RecordKey, record: Record, together: &Arc<Together>) {
        self.insert_with(key, record, Some(Arc::clone(together)));
    }

    fn insert_with(&self, key: RecordKey, record: Record, together: Option<Arc<Together>>) {
        let round = AtomicU32::new(self.round.load(Ordering::Relaxed));
        let uses = Arc::new(Uses { round, is_streamed: AtomicBool::new(false) });
        self.cache.insert(key, CachedRecord { record, uses, together: together.clone() });
        // Its neighbours were used again before it came.
        if let Some(together) = together.filter(|together| together.is_parted.load(Ordering::SeqCst)) {
            self.part_one(&key, &together);
        }
    }

    /// For [`Self::insert_shared`]: records that came in one read.
    pub(crate) fn together(&self, keys: Vec<RecordKey>) -> Arc<Together> {
        let round = AtomicU32::new(self.round.load(Ordering::Relaxed));
        Arc::new(Together { keys, round, is_parted: AtomicBool::new(false) })
    }

    /// As if it had been used: what is read ahead would else be the first to go where the cache is
    /// full of records that were used.
    pub(crate) fn keep(self: &Arc<Self>, key: &RecordKey) {
        if let Some(together) = self.cache.get(key).and_then(|kept| kept.together) {
            self.part(together);
        }
    }

    /// Gives each of them slots of its own, once; beside the reader where that is possible.
    fn part(self: &Arc<Self>, together: Arc<Together>) {
        if together.is_parted.swap(true, Ordering::SeqCst) {
            return;
        }
        let this = Arc::clone(self);
        let part = move || together.keys.iter().for_each(|key| this.part_one(key, &together));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => _ = runtime.spawn(async move { part() }),
            Err(_) => part(),
        }
    }

    fn part_one(&self, key: &RecordKey, together: &Arc<Together>) {
        let shares = |kept: &CachedRecord| kept.together.as_ref().is_some_and(|its| Arc::ptr_eq(its, together));
        let Some(kept) = self.cache.peek(key).filter(shares) else { return };
        let round = AtomicU32::new(together.round.load(Ordering::Relaxed));
        let is_streamed = AtomicBool::new(kept.uses.is_streamed.load(Ordering::Relaxed));
        let uses = Arc::new(Uses { round, is_streamed });
        let parted = CachedRecord { record: Record::copied(kept.record.chunks()), uses, together: None };
        // It may have left meanwhile.
        let _ = self.cache.replace(*key, parted, true);
    }

    /// Begins another round (`memory.unused_is_given_back`). Returns the bytes that were given
    /// back.
    pub(crate) fn give_back(&self) -> u64 {
        if self.cache.is_empty() {
            return 0;
        }
        let before = self.cache.weight();
        let round = self.round.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let age = |kept: &CachedRecord| round.wrapping_sub(kept.round().load(Ordering::Relaxed));
        self.cache.retain(|_, kept| age(kept) <= ROUNDS_KEPT);
        before.saturating_sub(self.cache.weight())
    }

    /// Others need memory: a quarter of the cache goes, at least [`STEP_BYTES_MIN`], first what was not used in this round.
    /// Returns the bytes that were given back. Called again and again it leaves nothing.
    pub(crate) fn give_some_back(&self) -> u64 {
        let before = self.cache.weight();
        let wanted = (before / 4).max(STEP_BYTES_MIN).min(before);
        let round = self.round.load(Ordering::Relaxed);
        let is_cold = |kept: &CachedRecord| kept.round().load(Ordering::Relaxed) != round;
        let weigh = |key: &RecordKey, kept: &CachedRecord| RecordWeight.weight(key, kept);
        let cold: u64 = self.cache.iter().filter(|(_, kept)| is_cold(kept)).map(|(key, kept)| weigh(&key, &kept)).sum();
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let of_cold = part(wanted, cold);
        let of_rest = part(wanted.saturating_sub(cold), before.saturating_sub(cold));
        // Neighbours leave together (`memory.read_uncopied`).
        self.cache.retain(|key, kept| {
            let neighbours = (step, key.0, key.1.0, key.2 / NEIGHBOURS_BYTES);
            drawn(&neighbours) >= if is_cold(kept) { of_cold } else { of_rest }
        });
        before.saturating_sub(self.cache.weight())
    }

    /// Segments are no more. Looks at all that is kept.
    pub(crate) fn forget_segments(&self, volume: u32, segments: &HashSet<SegmentId>) {
        self.cache.retain(|key, _| key.0 != volume || !segments.contains(&key.1));
    }

    /// A volume was closed.
    pub(crate) fn forget_volume(&self, volume: u32) {
        self.cache.retain(|key, _| key.0 != volume);
    }
}

/// RecordBuffer acquired for a write; goes back when dropped, unless the dirty map took it over.
pub(crate) struct Charge {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn into_bytes(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ropes_are_sliced_across_their_joints() {
        let rope =
            Record::from_chunks(&[Bytes::from_static(b"abc"), Bytes::from_static(b"defg"), Bytes::from_static(b"h")]);
        for skip in 0..8 {
            for len in 0..=8 - skip {
                let mut out = Vec::new();
                rope.slice_into(skip, len, &mut out);
                assert_eq!(out.concat(), b"abcdefgh"[skip..skip + len]);
            }
        }
    }

    #[test]
    fn copies_are_what_they_were_copied_from_and_nothing_more() {
        let source = Bytes::from((0..400_000u32).map(|n| (n * 7 % 251) as u8).collect::<Vec<u8>>());
        for len in [0, 1, 5000, RECORD_BYTES / 4 * 3, RECORD_BYTES, RECORD_BYTES + 1, 3 * RECORD_BYTES] {
            for piece in [1000, 16 << 10, 300_000] {
                let chunks: Vec<Bytes> =
                    (0..len).step_by(piece).map(|at| source.slice(at..len.min(at + piece))).collect();
                let copy = Record::copied(&chunks);
                assert_eq!(copy.chunks().concat(), source[..len], "{len} bytes in pieces of {piece}");
                assert_eq!(copy.chunks().len(), len.div_ceil(RECORD_BYTES));
                assert!(copy.chunks().iter().all(|c| !source.as_ptr_range().contains(&c.as_ptr()) || c.is_empty()));
            }
        }
    }

    /// `memory.kept_uncopied`
    #[test]
    fn what_was_received_stays_where_it_lies_if_it_fills_its_slots() {
        let received = |offset, len| {
            let mut received = arena::Received::new(offset, len);
            received.fill_from(&vec![7; len]);
            received.into_chunks()
        };
        let stays = |chunks: &[Bytes]| {
            let kept = Record::kept(chunks);
            assert_eq!(kept.chunks().concat(), chunks.concat());
            kept.chunks().iter().zip(chunks).all(|(kept, chunk)| kept.as_ptr() == chunk.as_ptr())
        };
        let whole = received(0, RECORD_BYTES);
        assert!(stays(&whole) && stays(&[whole[0].slice(..RECORD_BYTES - 20_000)]));
        assert!(stays(&[received(0, 64 << 10), received(64 << 10, 64 << 10)].concat()));
        assert!(!stays(&[whole[0].slice(..RECORD_BYTES / 2)]), "half of a slot would be kept for nothing");
        assert!(!stays(&[whole[0].clone(), Bytes::from(vec![7; 100])]), "not all lie in slots");
    }

    /// `memory.read_uncopied`
    #[test]
    fn neighbours_share_slots_until_one_is_used_again() {
        let memory = Memory::new(256 << 20);
        let read = arena::take(RECORD_BYTES).unwrap().freeze();
        let keys: Vec<RecordKey> = (0..4).map(|n| (0, SegmentId(1), n, None)).collect();
        let insert = |is_streamed: bool| {
            let together = memory.together(keys.clone());
            for (n, key) in keys.iter().enumerate() {
                let own = read.slice(n * 1000..n * 1000 + 20_000);
                let record = Record::from_chunks(&[own.slice(..8000), own.slice(8000..)]);
                assert!(record.lies_in_slots() && !fill_slots(record.chunks()) && together.holds(key));
                memory.insert_shared(*key, record, &together);
                assert!(!is_streamed || memory.get_in_sequence(key, true).is_some());
            }
        };
        let range = read.as_ptr_range();
        let sharing = |key: &RecordKey| {
            let record = memory.cache.peek(key).unwrap().record;
            let at = keys.iter().position(|other| other == key).unwrap() * 1000;
            assert_eq!(record.chunks().concat(), read[at..at + 20_000]);
            record.chunks().iter().any(|chunk| range.contains(&chunk.as_ptr()))
        };
        insert(true);
        assert!(keys.iter().all(sharing), "the first pass of a stream is no use");
        memory.get_in_sequence(&keys[1], true);
        assert!(!keys.iter().any(sharing), "the second is one");
        insert(false);
        assert!(keys.iter().all(sharing));
        memory.get(&keys[2]);
        assert!(!keys.iter().any(sharing));
        let together = memory.together(keys.clone());
        let record = |n: usize| Record::One(read.slice(n * 1000..n * 1000 + 20_000));
        memory.insert_shared(keys[0], record(0), &together);
        memory.keep(&keys[0]);
        memory.insert_shared(keys[1], record(1), &together);
        assert!(!keys.iter().any(sharing), "one that comes later has its own, too");
    }

    /// `memory.unused_is_given_back`
    #[test]
    fn neighbours_are_given_back_together() {
        let memory = Memory::new(256 << 20);
        let keys: Vec<RecordKey> = (0..2).map(|n| (0, SegmentId(1), n, None)).collect();
        let together = memory.together(keys.clone());
        let bytes = Bytes::from(vec![7; 1 << 20]);
        keys.iter().for_each(|key| memory.insert_shared(*key, Record::One(bytes.clone()), &together));
        for _ in 0..ROUNDS_KEPT * 2 {
            assert_eq!(memory.give_back(), 0);
            assert!(memory.get_in_sequence(&keys[0], false).is_some());
        }
        (0..ROUNDS_KEPT).for_each(|_| assert_eq!(memory.give_back(), 0));
        assert!(memory.give_back() >= 2 << 20);
    }

    /// `memory.streams_stay_cold`
    #[test]
    fn a_stream_that_passes_once_leaves_what_is_used() {
        let memory = Memory::new(256 << 20);
        let slots = memory.cache_bytes() as u32 / RECORD_BYTES as u32;
        let key = |file: u64, n: u32| (0, SegmentId(file), n, None);
        let bytes = Bytes::from(vec![7; RECORD_BYTES]);
        let insert = |file: u64, n: u32| memory.insert(key(file, n), Record::One(bytes.clone()));
        let left = |file: u64, count: u32| (0..count).filter(|n| memory.holds(&key(file, *n))).count() as u32;
        for n in 0..slots / 4 {
            insert(1, n);
            assert!(memory.get(&key(1, n)).is_some());
        }
        for n in 0..slots * 3 {
            insert(2, n);
            assert!(memory.get_in_sequence(&key(2, n), false).is_some());
            assert!(memory.get_in_sequence(&key(2, n), true).is_some());
        }
        assert!(left(1, slots / 4) > slots / 5, "{} of {} are left", left(1, slots / 4), slots / 4);
        let before = left(2, slots * 3);
        for n in slots * 3 - slots / 4..slots * 3 {
            memory.get_in_sequence(&key(2, n), true);
        }
        for n in 0..slots * 2 {
            insert(3, n);
        }
        assert!((1..before).contains(&left(2, slots * 3)), "a second stream is a use");
    }

    /// `memory.dead_records_make_room`
    #[test]
    fn what_is_no_more_makes_room() {
        let memory = Memory::new(256 << 20);
        let key = |volume: u32, segment: u64, n: u32| (volume, SegmentId(segment), n, None);
        let record = || Record::One(Bytes::from(vec![7; 64 << 10]));
        let keys = [key(0, 1, 1), key(0, 1, 2), key(0, 2, 1), key(1, 1, 1)];
        keys.iter().for_each(|key| memory.insert(*key, record()));
        memory.forget_segments(0, &HashSet::from([SegmentId(1), SegmentId(7)]));
        assert_eq!(keys.map(|key| memory.holds(&key)), [false, false, true, true]);
    }

    /// Records that were not used lately go first, and calls in a row leave nothing.
    #[test]
    fn memory_is_given_back_in_steps() {
        const COUNT: u64 = 1024;
        let memory = Memory::new(512 << 20);
        let key = |at: u64| (1, SegmentId(at / 64), (at % 64) as u32 * RECORD_BYTES as u32, None);
        let add = |at: u64| memory.insert(key(at), Record::One(Bytes::from(vec![7; RECORD_BYTES])));
        (0..COUNT / 2).for_each(add);
        memory.give_back();
        (COUNT / 2..COUNT).for_each(add);
        let kept = |from: u64, to: u64| (from..to).filter(|at| memory.cache.peek(&key(*at)).is_some()).count() as u64;
        assert_eq!(kept(0, COUNT), COUNT, "all of it fits");
        let before = memory.cache.weight();
        let given = memory.give_some_back();
        assert!((before / 8..before * 3 / 8).contains(&given), "{given} of {before}");
        assert_eq!(kept(COUNT / 2, COUNT), COUNT / 2, "used in this round");
        assert!(kept(0, COUNT / 2) < COUNT / 2);
        let mut steps = 1;
        while memory.give_some_back() > 0 {
            steps += 1;
        }
        assert_eq!(memory.cache.weight(), 0);
        assert!((4..20).contains(&steps), "{steps}");
    }

    #[test]
    fn what_nobody_uses_is_given_back() {
        let memory = Memory::new(256 << 20);
        let key = |n: u32| (0, SegmentId(1), n, None);
        let record = || Record::One(Bytes::from(vec![7; 1 << 20]));
        memory.insert(key(1), record());
        memory.insert(key(2), record());
        for _ in 0..ROUNDS_KEPT {
            assert_eq!(memory.give_back(), 0);
            assert!(memory.get(&key(1)).is_some());
        }
        assert!(memory.give_back() >= 1 << 20);
        assert!(memory.holds(&key(1)) && !memory.holds(&key(2)));
        assert!(memory.give_some_back() >= 1 << 20);
        assert!(!memory.holds(&key(1)));
        assert_eq!(memory.give_back(), 0);
    }

    #[tokio::test]
    async fn charges_come_back() {
        let memory = Memory::new(0);
        let charge = memory.try_acquire(1000).unwrap();
        assert_eq!(memory.dirty_used(), 1000);
        drop(charge);
        assert_eq!(memory.dirty_used(), 0);
        let all = memory.acquire(memory.dirty_max() * 2).await;
        assert_eq!(memory.dirty_used(), memory.dirty_max());
        assert!(memory.try_acquire(1).is_none());
        memory.release(all.into_bytes());
        assert_eq!(memory.dirty_used(), 0);
    }
}
