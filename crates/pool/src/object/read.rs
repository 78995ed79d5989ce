//! Reading objects: only the units that a range needs, each block verified, and missing or damaged
//! blocks reconstructed from the other shards.
//!
//! - `read.only_proven_bytes`: no byte is returned that neither passed its checksum nor was
//!   computed from `k` blocks that did. A caller that verifies by checksums of its own may say so
//!   ([`Core::read_unproven`]): two passes over long ranges cost a tenth of all that a read costs. It asks again in
//!   the usual way for what fails, which then is counted and repaired.
//! - `read.failure_queues_repair`: a shard that failed is counted on its disk and queued for
//!   repair, once per reader.
//!
//! A short range costs one `preadv` per shard straight into the result: data land in place,
//! checksums beside. Ranges in the kernel's cache are read without leaving the calling thread.
//!
//! A long range goes past the kernel's cache. One aligned read per shard brings blocks and
//! checksums as they lie in the file, and the result is slices between the checksums. Nothing is
//! copied.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use larder_base::checksum::{checksum, checksum_slices};

use crate::core::Core;
use crate::disk::buffer::Buffer;
use crate::disk::watch::hangs;
use crate::disk::{DIRECT_ALIGN, DiskFile};
use crate::error::PoolError;
use crate::member::member_disk::{ErrorKind, MemberDisk};
use crate::object::attributes;
use crate::object::gather::Gather;
use crate::object::geometry::{BLOCK_BYTES_MAX, BlockSize, CHECKSUM_BYTES, Geometry, Piece};
use crate::object::index::Object;
use crate::object::parity;
use crate::object::shard::{self, Header};

/// The longest range read at once; longer ones are streamed in such chunks.
pub const READ_BYTES_MAX: u64 = 8 << 20;
/// Ranges from this size on are read past the kernel's cache. Shorter ones may be wanted again
/// (metadata), and gain from the kernel's read-ahead.
const DIRECT_BYTES_MIN: u64 = 256 << 10;
const _: () = assert!(DIRECT_BYTES_MIN < READ_BYTES_MAX);

/// Bytes verified with one read.
const VERIFY_BYTES: u64 = 2 << 20;
const _: () = assert!(VERIFY_BYTES.is_multiple_of(BLOCK_BYTES_MAX));

/// Why a shard's blocks could not be read.
#[derive(Debug)]
enum ShardError {
    /// No disk that can be read holds the shard: nothing new.
    Absent,
    Io(io::Error),
    Checksum,
    WouldBlock,
}

/// The place where the bytes of a long read are verified (`read.only_proven_bytes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Here,
    ByCaller,
}

/// Blocks of one shard to be read, each run with its place in the result.
struct Run {
    shard: u8,
    /// Whole blocks, shard-local; runs of one shard follow each other.
    local: Range<u64>,
    buffer: BytesMut,
}

impl Core {
    /// Reads `range` of an object, at most [`READ_BYTES_MAX`] of it, into one piece.
    pub async fn read(self: &Arc<Self>, object: &Arc<Object>, range: Range<u64>) -> Result<Bytes, PoolError> {
        let length = range.end.saturating_sub(range.start) as usize;
        let mut chunks = self.read_chunks(object, range).await?;
        if chunks.len() == 1 {
            return Ok(chunks.swap_remove(0));
        }
        let mut whole = BytesMut::with_capacity(length);
        chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        Ok(whole.freeze())
    }

    /// As [`Core::read`], uncopied: in as many pieces as the blocks it lies in.
    pub async fn read_chunks(
        self: &Arc<Self>,
        object: &Arc<Object>,
        range: Range<u64>,
    ) -> Result<Vec<Bytes>, PoolError> {
        let _busy = self.activity.enter();
        self.read_quietly(object, range).await
    }

    /// The same for a caller that verifies all bytes itself (`read.only_proven_bytes`).
    pub async fn read_unproven(
        self: &Arc<Self>,
        object: &Arc<Object>,
        range: Range<u64>,
    ) -> Result<Vec<Bytes>, PoolError> {
        let _busy = self.activity.enter();
        self.read_as(object, range, Proof::ByCaller).await
    }

    /// For background work: does not count as use of the pool.
    pub async fn read_quietly(
        self: &Arc<Self>,
        object: &Arc<Object>,
        range: Range<u64>,
    ) -> Result<Vec<Bytes>, PoolError> {
        self.read_as(object, range, Proof::Here).await
    }

    async fn read_as(
        self: &Arc<Self>,
        object: &Arc<Object>,
        range: Range<u64>,
        proof: Proof,
    ) -> Result<Vec<Bytes>, PoolError> {
        self.check_open()?;
        match range.end.saturating_sub(range.start) {
            0 => Ok(Vec::new()),
            1..DIRECT_BYTES_MIN => Ok(vec![self.read_short(object, range).await?]),
            _ => self.read_long(object, range, proof).await,
        }
    }

    async fn read_short(self: &Arc<Self>, object: &Arc<Object>, range: Range<u64>) -> Result<Bytes, PoolError> {
        let length = (range.end - range.start) as usize;
        let (runs, skip) = self.runs(object, range);
        let groups = group_by_shard(runs);
        let mut done = Vec::with_capacity(groups.len());
        let mut cold = Vec::new();
        for mut group in groups {
            match self.read_group(object, &mut group, true) {
                Ok(()) => done.push(group),
                Err(ShardError::WouldBlock) => cold.push(group),
                Err(error) => done.push(self.rescue_group(object, group, error).await?),
            }
        }
        if !cold.is_empty() {
            done.extend(self.read_groups(object, cold).await?);
        }
        Ok(join(done, skip, length))
    }

    async fn read_long(
        self: &Arc<Self>,
        object: &Arc<Object>,
        range: Range<u64>,
        proof: Proof,
    ) -> Result<Vec<Bytes>, PoolError> {
        let geometry = object.geometry;
        let copy = if geometry.k == 1 { self.choose_copy(object, range.start) } else { 0 };
        // The caller may meet another copy when it asks again, and nobody would hear of this one.
        let proof = if geometry.k == 1 && geometry.m > 0 { Proof::Here } else { proof };
        let mut pieces = geometry.pieces(range);
        if geometry.k == 1 {
            pieces.iter_mut().for_each(|piece| piece.shard = copy);
        }
        let spans = spans_of(geometry, &pieces);
        let reads = spans.iter().map(|(shard, local)| self.read_span(object, *shard, local.clone(), proof));
        let contents = futures::future::try_join_all(reads).await?;
        let mut chunks = Vec::new();
        for piece in &pieces {
            let within =
                |(shard, local): &&(u8, Range<u64>)| *shard == piece.shard && local.contains(&piece.local.start);
            if let Some((span, content)) = spans.iter().zip(&contents).find(|(span, _)| within(span)) {
                content.slices(piece.local.start - span.1.start..piece.local.end - span.1.start, &mut chunks);
            }
        }
        Ok(chunks)
    }

    /// Blocks of one shard, from its disk or else from the others.
    async fn read_span(
        self: &Arc<Self>,
        object: &Arc<Object>,
        shard: u8,
        local: Range<u64>,
        proof: Proof,
    ) -> Result<Content, PoolError> {
        let Ok(permit) = self.objects.readers.acquire().await else {
            return Err(PoolError::Closed(self.members.name.clone()));
        };
        let (of_task, wanted) = (object.clone(), local.clone());
        let slot = object.slot(shard);
        let read = self.blocking_on(slot, move |core| core.read_direct(&of_task, shard, &wanted, proof)).await?;
        drop(permit);
        match read.unwrap_or_else(|_| Err(ShardError::Io(hangs()))) {
            Ok(content) => Ok(content),
            Err(error) => Ok(Content::Plain(self.rescue(object, shard, local, error).await?.into())),
        }
    }

    /// Reads whole blocks of a shard, past the kernel's cache, and verifies them.
    fn read_direct(&self, object: &Object, index: u8, local: &Range<u64>, proof: Proof) -> Result<Content, ShardError> {
        let (member, file) = self.shard_file(object, index, false)?;
        let length = local.end - local.start;
        let geometry = object.geometry;
        let first = local.start / geometry.block_bytes();
        let start = geometry.block_offset(u64::from(object.header_bytes), first);
        let end = start + length + length.div_ceil(geometry.block_bytes()) * CHECKSUM_BYTES;
        let aligned = start - start % DIRECT_ALIGN as u64..end.next_multiple_of(DIRECT_ALIGN as u64);
        let mut buffers = self.members.buffers.take_parts((aligned.end - aligned.start) as usize);
        let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer.bytes_mut())).collect();
        member.reading.fetch_add(1, Ordering::Relaxed);
        let read = file.read_direct_at(&mut slices, aligned.start);
        member.reading.fetch_sub(1, Ordering::Relaxed);
        let count = read.map_err(ShardError::Io)?;
        if aligned.start + (count as u64) < end {
            // The file was cut short: as wrong as flipped bits.
            return Err(ShardError::Checksum);
        }
        let raw = Gather::new(buffers.into_iter().map(Buffer::freeze));
        // `buffer.old_bytes_hidden`
        let raw = Gather::new(raw.shared(start - aligned.start, end - aligned.start));
        let seed = shard::shard_seed(self.members.id, object.version, index);
        let is_trusted = proof == Proof::ByCaller || self.members.work.trusts_blocks();
        let intact = is_trusted || gathered_intact(geometry, seed, first, &raw);
        if intact { Ok(Content::Stored(raw, geometry.block)) } else { Err(ShardError::Checksum) }
    }

    /// The runs that cover `range`, in object order, and how many bytes before it they begin.
    fn runs(&self, object: &Object, range: Range<u64>) -> (Vec<(usize, Run)>, usize) {
        let geometry = object.geometry;
        let copy = if geometry.k == 1 { self.choose_copy(object, range.start) } else { 0 };
        let mut skip = 0;
        let pieces = geometry.pieces(range);
        let wholes: Vec<(u8, Range<u64>)> = pieces
            .iter()
            .enumerate()
            .map(|(i, piece)| {
                let whole = geometry.whole_blocks(piece.shard, &piece.local);
                if i == 0 {
                    skip = (piece.local.start - whole.start) as usize;
                }
                (if geometry.k == 1 { copy } else { piece.shard }, whole)
            })
            .collect();
        let total: u64 = wholes.iter().map(|(_, whole)| whole.end - whole.start).sum();
        let mut space = BytesMut::zeroed(total as usize);
        let runs = wholes
            .into_iter()
            .enumerate()
            .map(|(order, (shard, local))| {
                let buffer = space.split_to((local.end - local.start) as usize);
                (order, Run { shard, local, buffer })
            })
            .collect();
        (runs, skip)
    }

    /// The copy of a mirrored object on the least busy disk that can be read.
    fn choose_copy(&self, object: &Object, offset: u64) -> u8 {
        let copies = u64::from(object.geometry.shards());
        // Equal load alternates by megabyte, so that a long read uses all the disks.
        let turn = (object.version ^ (offset >> 20)) % copies;
        object
            .placed()
            .filter_map(|(index, slot)| {
                self.members.member(slot).filter(|member| member.is_readable()).map(|member| (index, member))
            })
            .min_by_key(|(index, member)| {
                (member.reading.load(Ordering::Relaxed), (u64::from(*index) + copies - turn) % copies)
            })
            .map_or(0, |(index, _)| index)
    }

    async fn read_groups(self: &Arc<Self>, object: &Arc<Object>, groups: Vec<Group>) -> Result<Vec<Group>, PoolError> {
        let tasks = groups.into_iter().map(|mut group| {
            let object = object.clone();
            async move {
                let Ok(permit) = self.objects.readers.acquire().await else {
                    return Err(PoolError::Closed(self.members.name.clone()));
                };
                let of_task = object.clone();
                let slot = group.runs.first().and_then(|(_, run)| object.slot(run.shard));
                let shape = group.shape();
                let read = self.blocking_on(slot, move |core| {
                    let result = core.read_group(&of_task, &mut group, false);
                    (group, result)
                });
                let (group, result) =
                    read.await?.unwrap_or_else(|_| (Group::of_shape(shape), Err(ShardError::Io(hangs()))));
                drop(permit);
                match result {
                    Ok(()) => Ok(group),
                    Err(error) => self.rescue_group(&object, group, error).await,
                }
            }
        });
        futures::future::try_join_all(tasks).await
    }

    /// Reads and verifies all runs of one shard with one call.
    fn read_group(&self, object: &Object, group: &mut Group, cached_only: bool) -> Result<(), ShardError> {
        let Some(first) = group.runs.first() else { return Ok(()) };
        let (index, start) = (first.1.shard, first.1.local.start);
        let mut buffers: Vec<&mut [u8]> = group.runs.iter_mut().map(|(_, run)| &mut run.buffer[..]).collect();
        self.read_blocks(object, index, start, &mut buffers, cached_only)
    }

    /// Fills `buffers` with the blocks of a shard from local offset `start` on. Every buffer but
    /// the last ends on a block boundary.
    fn read_blocks(
        &self,
        object: &Object,
        index: u8,
        start: u64,
        buffers: &mut [&mut [u8]],
        cached_only: bool,
    ) -> Result<(), ShardError> {
        let (member, file) = self.shard_file(object, index, cached_only)?;
        let block_bytes = object.geometry.block_bytes() as usize;
        let blocks: usize = buffers.iter().map(|buffer| buffer.len().div_ceil(block_bytes)).sum();
        let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut sums = vec![[0u8; 8]; blocks];
        let mut vector = Vec::with_capacity(blocks * 2);
        let chunks = buffers.iter_mut().flat_map(|buffer| buffer.chunks_mut(block_bytes));
        for (chunk, sum) in chunks.zip(&mut sums) {
            vector.extend([IoSliceMut::new(chunk), IoSliceMut::new(sum)]);
        }
        let first = start / object.geometry.block_bytes();
        let offset = object.geometry.block_offset(u64::from(object.header_bytes), first);
        member.reading.fetch_add(1, Ordering::Relaxed);
        let read =
            if cached_only { file.read_cached_at(&mut vector, offset) } else { file.read_at(&mut vector, offset) };
        member.reading.fetch_sub(1, Ordering::Relaxed);
        match read {
            Ok(count) if count == bytes + blocks * 8 => {}
            Ok(_) if cached_only => return Err(ShardError::WouldBlock),
            // The file was cut short: as wrong as flipped bits.
            Ok(_) => return Err(ShardError::Checksum),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(ShardError::WouldBlock),
            Err(error) => return Err(ShardError::Io(error)),
        }
        let seed = shard::shard_seed(self.members.id, object.version, index);
        let chunks = buffers.iter().flat_map(|buffer| buffer.chunks(block_bytes));
        let intact = chunks
            .zip(&sums)
            .zip(first..)
            .all(|((chunk, sum), block)| checksum(shard::block_seed(seed, block), chunk).to_le_bytes() == *sum);
        if intact || self.members.work.trusts_blocks() { Ok(()) } else { Err(ShardError::Checksum) }
    }

    fn shard_file(
        &self,
        object: &Object,
        index: u8,
        cached_only: bool,
    ) -> Result<(&MemberDisk, Arc<dyn DiskFile>), ShardError> {
        let slot = object.slot(index).ok_or(ShardError::Absent)?;
        let member = self.members.member(slot).filter(|member| member.is_readable()).ok_or(ShardError::Absent)?;
        let key = (slot, object.version, index);
        if let Some(file) = self.objects.files.get(&key) {
            return Ok((member, file));
        }
        if cached_only {
            return Err(ShardError::WouldBlock);
        }
        match member.io().and_then(|io| io.open(&object.file_name(index), false)) {
            Ok(file) => {
                self.objects.files.insert(key, file.clone());
                Ok((member, file))
            }
            // It was moved to another disk just now.
            Err(_) if object.slot(index) != Some(slot) => self.shard_file(object, index, false),
            Err(error) => Err(ShardError::Io(error)),
        }
    }

    /// A shard failed: counts that, and computes its contents.
    async fn rescue(
        self: &Arc<Self>,
        object: &Arc<Object>,
        index: u8,
        local: Range<u64>,
        error: ShardError,
    ) -> Result<Vec<u8>, PoolError> {
        let of_task = object.clone();
        self.blocking(move |core| core.shard_failed(&of_task, index, &error)).await?;
        // Each round goes without at least one more disk.
        for _ in 0..=object.geometry.shards() {
            let (of_task, local) = (object.clone(), local.clone());
            let slots: Vec<u8> = object.placed().map(|(_, slot)| slot).collect();
            let read = self.blocking_on(slots, move |core| core.reconstruct(&of_task, index, local));
            if let Ok(read) = read.await? {
                return read;
            }
        }
        Err(self.unavailable(object, 0))
    }

    async fn rescue_group(
        self: &Arc<Self>,
        object: &Arc<Object>,
        mut group: Group,
        error: ShardError,
    ) -> Result<Group, PoolError> {
        let Some((_, first)) = group.runs.first() else { return Ok(group) };
        let (index, start) = (first.shard, first.local.start);
        let end = group.runs.last().map_or(start, |(_, run)| run.local.end);
        let bytes = self.rescue(object, index, start..end, error).await?;
        let mut at = 0;
        for (_, run) in &mut group.runs {
            let length = run.buffer.len();
            run.buffer.copy_from_slice(&bytes[at..at + length]);
            at += length;
        }
        Ok(group)
    }

    /// Counts the failure of a shard and queues its repair (`read.failure_queues_repair`).
    fn shard_failed(&self, object: &Object, index: u8, error: &ShardError) {
        let Some(slot) = object.slot(index) else { return };
        // A version that was deleted under a reader fails no disk.
        if object.is_dead() && !matches!(error, ShardError::Checksum) {
            return;
        }
        self.objects.files.remove(&(slot, object.version, index));
        if self.scrubs.is_repairing(object) && !matches!(error, ShardError::Io(_)) {
            return;
        }
        match error {
            ShardError::Absent | ShardError::WouldBlock => return,
            ShardError::Io(error) => self.members.read_failed(slot, error),
            ShardError::Checksum => {
                if let Some(member) = self.members.member(slot) {
                    let error = format!("wrong checksum in shard {index} of {}", object.path);
                    self.members.count_error(member, ErrorKind::Checksum, &error);
                }
            }
        }
        self.repairs.add_shard(&object.path, object.version, index);
    }

    /// Blocks of shard `index` from where it lies, or computed from the others. Blocks.
    pub fn read_or_reconstruct(&self, object: &Object, index: u8, local: Range<u64>) -> Result<Vec<u8>, PoolError> {
        let mut bytes = vec![0; (local.end - local.start) as usize];
        match self.read_blocks(object, index, local.start, &mut [&mut bytes], false) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                self.shard_failed(object, index, &error);
                self.reconstruct(object, index, local)
            }
        }
    }

    /// Computes blocks of shard `wanted` from the others (`read.only_proven_bytes`). `local` starts
    /// on a block boundary. Where several shards are damaged, perhaps at different places, it goes
    /// block by block. Blocks.
    pub fn reconstruct(&self, object: &Object, wanted: u8, local: Range<u64>) -> Result<Vec<u8>, PoolError> {
        let block_bytes = object.geometry.block_bytes();
        assert!(local.start.is_multiple_of(block_bytes), "checksums are those of whole blocks");
        assert!(wanted < object.geometry.shards(), "the object has this shard");
        let whole = self.reconstruct_at_once(object, wanted, local.clone());
        let is_there = |slot: u8| self.members.member(slot).is_some_and(|member| member.is_readable());
        let readable = object.placed().filter(|(_, slot)| is_there(*slot)).count();
        if whole.is_ok() || readable < usize::from(object.geometry.k) {
            return whole;
        }
        let lost = |local: &Range<u64>| {
            // A shard on a disk that is away may come back with it.
            if readable == object.placed().count() {
                self.note_lost(object, wanted, local);
            }
        };
        if local.end - local.start <= block_bytes {
            lost(&local);
            return whole;
        }
        let mut bytes = Vec::with_capacity((local.end - local.start) as usize);
        for start in local.clone().step_by(block_bytes as usize) {
            let block = start..(start + block_bytes).min(local.end);
            bytes.extend(self.recover_block(object, wanted, block.clone()).inspect_err(|_| lost(&block))?);
        }
        Ok(bytes)
    }

    /// One block of a shard in which others may be damaged: as it lies on its disk, else computed.
    /// Blocks.
    pub fn recover_block(&self, object: &Object, index: u8, local: Range<u64>) -> Result<Vec<u8>, PoolError> {
        let mut own = vec![0; (local.end - local.start) as usize];
        match self.read_blocks(object, index, local.start, &mut [&mut own], false) {
            Ok(()) => Ok(own),
            Err(_) => self.reconstruct_at_once(object, index, local),
        }
    }

    fn reconstruct_at_once(&self, object: &Object, wanted: u8, local: Range<u64>) -> Result<Vec<u8>, PoolError> {
        let geometry = object.geometry;
        let k = usize::from(geometry.k);
        let length = (local.end - local.start) as usize;
        let mut have: Vec<(usize, Vec<u8>)> = Vec::with_capacity(k);
        let others: Vec<u8> = (0..geometry.shards()).filter(|index| *index != wanted).collect();
        let mut others = others.into_iter();
        while have.len() < k {
            let batch: Vec<u8> = others.by_ref().take(k - have.len()).collect();
            if batch.is_empty() {
                return Err(self.unavailable(object, have.len()));
            }
            have.extend(self.read_padded(object, &batch, &local));
        }
        let units: Vec<(usize, &[u8])> = have.iter().map(|(index, bytes)| (*index, bytes.as_slice())).collect();
        let mut bytes =
            parity::reconstruct(k, usize::from(wanted), &units).ok_or_else(|| self.unavailable(object, have.len()))?;
        assert!(have.iter().all(|(index, _)| *index != usize::from(wanted)), "computed from the other shards");
        assert!(bytes.len() >= length, "`geometry.same_range_everywhere`: each shard gives the whole range");
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The same local range of several shards, side by side; those that fail are left out. Beyond
    /// the end of a shard there are zeros (`geometry.same_range_everywhere`).
    fn read_padded(&self, object: &Object, indexes: &[u8], local: &Range<u64>) -> Vec<(usize, Vec<u8>)> {
        let read = |index: u8| -> io::Result<Option<(usize, Vec<u8>)>> {
            let mut bytes = vec![0; (local.end - local.start) as usize];
            let own_end = object.geometry.shard_bytes(index).clamp(local.start, local.end);
            // A range that ends within a block of the wanted shard may need more of a longer one.
            let whole = object.geometry.whole_blocks(index, &(local.start..own_end));
            let mut blocks = vec![0; (whole.end - whole.start) as usize];
            let result = if blocks.is_empty() {
                Ok(())
            } else {
                self.read_blocks(object, index, whole.start, &mut [&mut blocks], false)
            };
            match result {
                Ok(()) => {
                    let used = blocks.len().min(bytes.len());
                    bytes[..used].copy_from_slice(&blocks[..used]);
                    Ok(Some((usize::from(index), bytes)))
                }
                Err(error) => {
                    self.shard_failed(object, index, &error);
                    Ok(None)
                }
            }
        };
        self.members
            .work
            .side_by_side(indexes.to_vec(), read)
            .into_iter()
            .filter_map(|read| read.ok().flatten())
            .collect()
    }

    pub fn unavailable(&self, object: &Object, have: usize) -> PoolError {
        let unread: Vec<String> = (0..object.geometry.shards())
            .filter_map(|index| match object.slot(index) {
                None => Some(format!("piece {index} is on no disk")),
                Some(slot) => self
                    .members
                    .member(slot)
                    .filter(|member| !member.is_readable())
                    .map(|member| format!("{} is {:?}", member.path.read().display(), member.state())),
            })
            .collect();
        let why = if unread.is_empty() { "The others are damaged".to_owned() } else { unread.join(", ") };
        PoolError::Unavailable {
            pool: self.members.name.clone(),
            object: object.path.clone(),
            have,
            need: usize::from(object.geometry.k),
            why: format!("{why}; see 'larder pool status {}'", self.members.name),
        }
    }

    /// Reads and checks the header of any shard of `object`. Blocks.
    pub fn read_header(&self, object: &Object) -> Result<Header, PoolError> {
        for (index, _) in object.placed() {
            let error = match self.read_one_header(object, index) {
                Ok(header) => return Ok(header),
                Err(error) => error,
            };
            self.shard_failed(object, index, &error);
        }
        Err(self.unavailable(object, 0))
    }

    pub fn header_intact(&self, object: &Object, index: u8) -> bool {
        match self.read_one_header(object, index) {
            Ok(_) => true,
            Err(error) => {
                self.shard_failed(object, index, &error);
                false
            }
        }
    }

    fn read_one_header(&self, object: &Object, index: u8) -> Result<Header, ShardError> {
        let (_, file) = self.shard_file(object, index, false)?;
        let mut bytes = vec![0; object.header_bytes as usize];
        let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0).map_err(ShardError::Io)?;
        let header = Header::decode(bytes.get(..read).unwrap_or_default()).ok_or(ShardError::Checksum)?;
        let ours = header.version == object.version && header.path == object.path && header.index == index;
        if ours && header.pool == self.members.id { Ok(header) } else { Err(ShardError::Checksum) }
    }

    /// The attributes of an object, read from a header the first time.
    pub async fn attributes(self: &Arc<Self>, object: &Arc<Object>) -> Result<object_store::Attributes, PoolError> {
        if !object.has_attributes {
            return Ok(object_store::Attributes::new());
        }
        if let Some(known) = object.attributes.get() {
            return Ok(known.clone());
        }
        let mut header = Err(self.unavailable(object, 0));
        for _ in 0..=object.geometry.shards() {
            let of_task = object.clone();
            let slots: Vec<u8> = object.placed().map(|(_, slot)| slot).collect();
            if let Ok(read) = self.blocking_on(slots, move |core| core.read_header(&of_task)).await? {
                header = read;
                break;
            }
        }
        let header = header?;
        Ok(object.attributes.get_or_init(|| attributes::from_pairs(header.attributes)).clone())
    }

    /// Reads all blocks of one shard and its header; `false` when any is damaged. Blocks.
    pub fn verify_shard(&self, object: &Object, index: u8) -> bool {
        let length = object.geometry.shard_bytes(index);
        let mut at = 0;
        while at < length {
            let end = (at + VERIFY_BYTES).min(length);
            if let Err(error) = self.read_direct(object, index, &(at..end), Proof::Here) {
                self.shard_failed(object, index, &error);
                return false;
            }
            at = end;
        }
        self.header_intact(object, index)
    }
}

/// Whether blocks from block `first` on, as they lie in a file, pass their checksums.
pub fn blocks_intact(geometry: Geometry, shard_seed: u64, first: u64, raw: &[u8]) -> bool {
    raw.chunks(geometry.stored_block_bytes() as usize).zip(first..).all(|(block, at)| {
        block
            .split_last_chunk()
            .is_some_and(|(data, sum)| checksum(shard::block_seed(shard_seed, at), data).to_le_bytes() == *sum)
    })
}

/// The same of blocks in several parts.
fn gathered_intact(geometry: Geometry, shard_seed: u64, first: u64, raw: &Gather) -> bool {
    let step = geometry.stored_block_bytes();
    (0..raw.length.div_ceil(step)).all(|block| {
        let (start, end) = (block * step, raw.length.min((block + 1) * step));
        let Some(data_end) = end.checked_sub(CHECKSUM_BYTES).filter(|data_end| *data_end >= start) else {
            return false;
        };
        let sum = checksum_slices(shard::block_seed(shard_seed, first + block), raw.slices(start, data_end));
        raw.slices(data_end, end).flatten().eq(&sum.to_le_bytes())
    })
}

/// Blocks of one shard.
enum Content {
    /// As they lie in the file: each block followed by its checksum.
    Stored(Gather, BlockSize),
    /// Computed from other shards.
    Plain(Bytes),
}

impl Content {
    /// Appends `range`, which counts data bytes, uncopied.
    fn slices(&self, range: Range<u64>, out: &mut Vec<Bytes>) {
        let (start, end) = (range.start as usize, range.end as usize);
        match self {
            Self::Plain(bytes) => out.push(bytes.slice(start..end)),
            Self::Stored(raw, block) => {
                let block_bytes = block.bytes() as usize;
                let mut at = start;
                while at < end {
                    let block = at / block_bytes;
                    let until = ((block + 1) * block_bytes).min(end);
                    let sums = block * CHECKSUM_BYTES as usize;
                    out.extend(raw.shared((at + sums) as u64, (until + sums) as u64));
                    at = until;
                }
            }
        }
    }
}

/// The whole blocks that hold `pieces`, neighbours in one shard together.
fn spans_of(geometry: Geometry, pieces: &[Piece]) -> Vec<(u8, Range<u64>)> {
    let mut spans: Vec<(u8, Range<u64>)> = Vec::new();
    for piece in pieces {
        let known = spans.iter_mut().find(|(shard, local)| *shard == piece.shard && local.end == piece.local.start);
        match known {
            Some((_, local)) => local.end = piece.local.end,
            None => spans.push((piece.shard, piece.local.clone())),
        }
    }
    spans.iter_mut().for_each(|(shard, local)| *local = geometry.whole_blocks(*shard, local));
    spans
}

/// The runs of one shard, with their order in the object.
struct Group {
    runs: Vec<(usize, Run)>,
}

impl Group {
    /// Order, shard and range of each run.
    fn shape(&self) -> Vec<(usize, u8, Range<u64>)> {
        self.runs.iter().map(|(order, run)| (*order, run.shard, run.local.clone())).collect()
    }

    /// In place of one whose memory a call that hangs still writes to.
    fn of_shape(shape: Vec<(usize, u8, Range<u64>)>) -> Self {
        let run = |shard, local: Range<u64>| {
            let buffer = BytesMut::zeroed((local.end - local.start) as usize);
            Run { shard, local, buffer }
        };
        Self { runs: shape.into_iter().map(|(order, shard, local)| (order, run(shard, local))).collect() }
    }
}

fn group_by_shard(runs: Vec<(usize, Run)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (order, run) in runs {
        let follows = |group: &&mut Group| {
            group.runs.last().is_some_and(|(_, last)| last.shard == run.shard && last.local.end == run.local.start)
        };
        match groups.iter_mut().find(follows) {
            Some(group) => group.runs.push((order, run)),
            None => groups.push(Group { runs: vec![(order, run)] }),
        }
    }
    groups
}

/// Puts the runs together again: they are neighbours in one allocation, so nothing is copied.
fn join(groups: Vec<Group>, skip: usize, length: usize) -> Bytes {
    let mut runs: Vec<(usize, Run)> = groups.into_iter().flat_map(|group| group.runs).collect();
    runs.sort_by_key(|(order, _)| *order);
    let mut runs = runs.into_iter().map(|(_, run)| run.buffer);
    let mut whole = runs.next().unwrap_or_default();
    runs.for_each(|buffer| whole.unsplit(buffer));
    let whole = whole.freeze();
    whole.slice(skip..(skip + length).min(whole.len()))
}
