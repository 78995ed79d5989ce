//! The files of an object's shards while they are written.
//!
//! ```text
//! an object's bytes --copy, checksum, parity in one pass--> staging, one a shard --direct writes--> files
//! ```
//!
//! A block is copied into the staging of its shard, and its checksum and parity are computed while
//! it is in the processor's cache. Full stagings are written past the kernel's cache: copying into
//! it would be the largest cost of a write, for pages that nobody reads. Direct writes wait for
//! the disk, so several of a shard are under way while the next staging is filled.
//!
//! - `stage.whole_pages`: a direct write begins and ends on a page. The bytes after the last whole
//!   page move to the next staging; the last of all go through the cache.
//! - `stage.never_longer`: the files get their length and their blocks before the first direct
//!   write. Writes that make a file longer would wait for each other.
//! - `stage.hung_disk_alone`: no call to a disk is made while another disk's bytes are waited for.
//!   A disk that hangs fails its own shard (`hang.call_too_long`).
//! - `stage.bounded`: a shard has at most [`UNDER_WAY_MAX`] writes under way and one staging.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use larder_base::checksum::checksum;

use crate::core::Core;
use crate::disk::buffer::{Buffer, Buffers};
use crate::disk::watch::{Watch, hangs};
use crate::disk::work::{Begun, Work};
use crate::disk::{DIRECT_ALIGN, DiskFile};
use crate::error::PoolError;
use crate::object::gather::Gather;
use crate::object::geometry::{BLOCK_BYTES_MAX, CHECKSUM_BYTES, Geometry, UNIT_BYTES};
use crate::object::index::Object;
use crate::object::parity;
use crate::object::shard;

/// Bytes of one write. Longer ones gain nothing, and shards beside each other need one staging each.
const STAGING_BYTES: usize = 1 << 20;
/// Writes of a shard under way. Two keep a disk busy while a third is filled. Three segments over
/// three disks take 27 MiB of stagings so, which stay resident between their uses.
const UNDER_WAY_MAX: usize = 2;
/// A staging holds the end of the last page, a block and its checksum.
const STAGING_BYTES_MIN: usize = DIRECT_ALIGN + (BLOCK_BYTES_MAX + CHECKSUM_BYTES) as usize;
const _: () = assert!(STAGING_BYTES_MIN <= STAGING_BYTES);
/// Bytes written through the cache after which write-back is started, so that the final sync is
/// short.
const CACHED_WRITEBACK_BYTES: u64 = 4 << 20;

/// A shard that could not be written, and why.
pub type Failure = (u8, io::Error);

/// The shards of one object on their way to their disks.
#[derive(Default)]
pub struct ShardWriters {
    shards: Vec<ShardWriter>,
    failures: Vec<Failure>,
}

/// The header of each shard; none while the object's length is unknown.
pub type Headers = BTreeMap<u8, Vec<u8>>;

impl ShardWriters {
    /// Writers of an object whose length is known. Its files are made by [`Self::open`], or by
    /// [`Self::finish`] where all bytes fit the stagings.
    pub fn of_whole(core: &Core, object: &Object, mut headers: Headers) -> Self {
        let staging_bytes = core.members.work.staging_bytes(STAGING_BYTES);
        let shard = |(index, slot)| {
            let header = headers.remove(&index).unwrap_or_default();
            let file_bytes = object.geometry.file_bytes(index, header.len() as u64);
            let capacity = (file_bytes.min(staging_bytes as u64) as usize).max(header.len() + STAGING_BYTES_MIN);
            let mut writer = ShardWriter::new(core, object, (index, slot), capacity);
            writer.file_bytes = Some(file_bytes);
            writer.stage(&header);
            writer
        };
        Self { shards: object.placed().map(shard).collect(), failures: Vec::new() }
    }

    /// Writers of an object whose length is not known yet. They write through the kernel's cache.
    pub fn of_parts(core: &Core, object: &Object) -> Self {
        let capacity = core.members.work.staging_bytes(STAGING_BYTES);
        let shard = |placed| {
            let mut writer = ShardWriter::new(core, object, placed, capacity);
            writer.start = u64::from(object.header_bytes);
            writer
        };
        Self { shards: object.placed().map(shard).collect(), failures: Vec::new() }
    }

    /// Whether all bytes of an object fit the stagings, so that no file is needed before the end.
    pub fn are_small(core: &Core, object: &Object) -> bool {
        let header_bytes = object.header_bytes as usize;
        let fits = core.members.work.staging_bytes(STAGING_BYTES).max(header_bytes + STAGING_BYTES_MIN) as u64;
        object.placed().all(|(index, _)| object.geometry.file_bytes(index, header_bytes as u64) <= fits)
    }

    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    pub fn into_failures(self) -> Vec<Failure> {
        self.failures
    }

    /// The shards that are still being written.
    pub fn alive(&self) -> impl Iterator<Item = u8> + '_ {
        self.shards.iter().map(|shard| shard.index)
    }

    /// Makes the files, each disk by itself.
    pub async fn open(self, core: &Arc<Core>) -> Result<Self, PoolError> {
        self.side_by_side(core, |core, shard| shard.open(core)).await
    }

    /// Writes what is left, and `headers` where they were not known before, and syncs.
    pub async fn finish(self, core: &Arc<Core>, headers: Headers) -> Result<Self, PoolError> {
        let headers = Arc::new(headers);
        let step = move |core: &Core, shard: &mut ShardWriter| {
            shard.end(core, headers.get(&shard.index))?;
            shard.sync()
        };
        self.side_by_side(core, step).await
    }

    /// Writes what is left. [`Self::sync`] comes later.
    pub async fn end(self, core: &Arc<Core>) -> Result<Self, PoolError> {
        self.side_by_side(core, |core, shard| shard.end(core, None)).await
    }

    pub async fn sync(self, core: &Arc<Core>) -> Result<Self, PoolError> {
        self.side_by_side(core, |_, shard| shard.sync()).await
    }

    /// Does `step` for every shard at once (`stage.hung_disk_alone`).
    async fn side_by_side(
        mut self,
        core: &Arc<Core>,
        step: impl Fn(&Core, &mut ShardWriter) -> io::Result<()> + Clone + Send + 'static,
    ) -> Result<Self, PoolError> {
        let tasks = self.shards.into_iter().map(|mut shard| {
            let (slot, step) = (shard.slot, step.clone());
            let done = core.blocking_on([slot], move |core| step(core, &mut shard).map(|()| shard));
            async move { Ok::<_, PoolError>((slot, done.await?.unwrap_or_else(|_| Err(hangs())))) }
        });
        let done = futures::future::try_join_all(tasks).await?;
        self.shards = Vec::new();
        for (slot, result) in done {
            match result {
                Ok(shard) => self.shards.push(shard),
                Err(error) => self.failures.push((slot, error)),
            }
        }
        Ok(self)
    }

    /// Takes the stripes that `data` holds, the first of which is `stripe`. Ends with a whole
    /// stripe unless it ends with the object, as `geometry` has it. Blocks.
    pub fn write_stripes(&mut self, geometry: Geometry, data: &Gather, stripe: u64) {
        let base = stripe * geometry.stripe_bytes();
        for stripe in stripe..stripe + data.length.div_ceil(geometry.stripe_bytes()) {
            // The first data unit of a stripe is its longest.
            let longest = geometry.unit_range(stripe, 0);
            let unit_bytes = longest.end - longest.start;
            assert!(unit_bytes <= UNIT_BYTES, "`geometry.block_within_a_unit`");
            for from in (0..unit_bytes).step_by(geometry.block_bytes() as usize) {
                let to = (from + geometry.block_bytes()).min(unit_bytes);
                self.each(|shard| match block_bytes(geometry, stripe, shard.index, &(from..to)) {
                    0 => Ok(()),
                    bytes => shard.make_room((bytes + CHECKSUM_BYTES) as usize),
                });
                self.write_row(geometry, data, base, stripe, from..to);
            }
        }
    }

    /// One block of every unit of a stripe: `row` are its bytes within the unit.
    fn write_row(&mut self, geometry: Geometry, data: &Gather, base: u64, stripe: u64, row: Range<u64>) {
        let length = (row.end - row.start) as usize;
        for unit in 0..geometry.k {
            let Range { start, end } = in_unit(geometry, stripe, unit, &row);
            for shard in &mut self.shards {
                let slices = data.slices(start - base, end - base);
                if geometry.k > 1 && shard.index >= geometry.k {
                    shard.add_to_parity(usize::from(shard.index - geometry.k), unit == 0, length, slices);
                } else if (geometry.k == 1 || shard.index == unit) && start < end {
                    shard.put_block(slices);
                }
            }
        }
        let parity = self.shards.iter_mut().filter(|shard| geometry.k > 1 && shard.index >= geometry.k);
        parity.for_each(|shard| shard.seal(length));
    }

    /// Applies `step` to every shard; those that fail are dropped and remembered.
    fn each(&mut self, mut step: impl FnMut(&mut ShardWriter) -> io::Result<()>) {
        let failures = &mut self.failures;
        self.shards.retain_mut(|shard| match step(shard) {
            Ok(()) => true,
            Err(error) => {
                failures.push((shard.slot, error));
                false
            }
        });
    }
}

/// Object bytes of a data unit's part `row`; the last units are shorter.
fn in_unit(geometry: Geometry, stripe: u64, unit: u8, row: &Range<u64>) -> Range<u64> {
    let range = geometry.unit_range(stripe, unit);
    (range.start + row.start).min(range.end)..(range.start + row.end).min(range.end)
}

/// Bytes of a shard's block in `row`.
fn block_bytes(geometry: Geometry, stripe: u64, index: u8, row: &Range<u64>) -> u64 {
    if geometry.k > 1 && index >= geometry.k {
        return row.end - row.start;
    }
    let part = in_unit(geometry, stripe, if geometry.k == 1 { 0 } else { index }, row);
    part.end - part.start
}

struct ShardWriter {
    index: u8,
    slot: u8,
    seed: u64,
    /// The name of its temporary file, and the directory of that.
    name: String,
    directory: String,
    /// The length of the file, where it is known.
    file_bytes: Option<u64>,
    file: Option<Arc<dyn DiskFile>>,
    is_direct: bool,
    work: Work,
    buffers: Arc<Buffers>,
    watch: Vec<Arc<Watch>>,
    staging: Buffer,
    capacity: usize,
    /// Bytes in the staging.
    filled: usize,
    /// The place of the staging in the file.
    start: u64,
    /// The number of the next block.
    block: u64,
    under_way: VecDeque<Begun<io::Result<()>>>,
    /// Written through the cache, and not on its way to the disk yet.
    cached_bytes: u64,
}

impl ShardWriter {
    fn new(core: &Core, object: &Object, (index, slot): (u8, u8), capacity: usize) -> Self {
        let buffers = core.members.buffers.clone();
        Self {
            index,
            slot,
            seed: shard::shard_seed(core.members.id, object.version, index),
            name: shard::temp_name(&object.path, object.version, index),
            directory: shard::directory(&object.path),
            file_bytes: None,
            file: None,
            is_direct: false,
            work: core.members.work.clone(),
            watch: core.members.member(slot).map(|member| member.watch()).into_iter().collect(),
            staging: buffers.take(capacity),
            buffers,
            capacity,
            filled: 0,
            start: 0,
            block: 0,
            under_way: VecDeque::new(),
            cached_bytes: 0,
        }
    }

    /// Makes the temporary file.
    fn open(&mut self, core: &Core) -> io::Result<()> {
        let io = core.members.member(self.slot).ok_or(io::ErrorKind::NotFound)?.io()?;
        let file = io.create(&self.name).or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            // The directory was removed. Where the whole disk was emptied this fails, or the probe
            // finds out.
            crate::member::label::read(&*io)?.map_err(io::Error::other)?;
            io.make_directory("objects")?;
            io.make_directory(&self.directory)?;
            io.sync_directory("objects")?;
            io.create(&self.name)
        })?;
        self.is_direct = match self.file_bytes {
            Some(bytes) if bytes > self.capacity as u64 => file.begin_direct(bytes)?,
            _ => false,
        };
        self.file = Some(file);
        Ok(())
    }

    fn stage(&mut self, bytes: &[u8]) {
        self.staging.bytes_mut()[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// The staging takes `bytes` more; waits for earlier writes if too many are under way
    /// (`stage.bounded`).
    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.filled + bytes <= self.capacity {
            return Ok(());
        }
        assert!(self.file.is_some(), "a shard without a file fits its staging");
        let file = self.file.clone().ok_or(io::ErrorKind::NotFound)?;
        let whole = if self.is_direct { self.filled / DIRECT_ALIGN * DIRECT_ALIGN } else { self.filled };
        assert!(self.filled - whole + bytes <= self.capacity, "a staging holds a block after the end of a page");
        let under_way_max = if self.is_direct { UNDER_WAY_MAX } else { 1 };
        while self.under_way.len() >= under_way_max {
            self.await_first()?;
        }
        let mut next = self.buffers.take(self.capacity);
        next.bytes_mut()[..self.filled - whole].copy_from_slice(&self.staging.as_ref()[whole..self.filled]);
        let full = std::mem::replace(&mut self.staging, next);
        let offset = self.start;
        self.start += whole as u64;
        self.filled -= whole;
        let writeback = self.writeback(offset, whole as u64);
        let is_direct = self.is_direct;
        self.under_way.push_back(self.work.begin(move || {
            let bytes = &full.as_ref()[..whole];
            if is_direct {
                return file.write_direct_at(bytes, offset).map(drop);
            }
            file.write_at(&mut [IoSlice::new(bytes)], offset)?;
            if let Some((start, length)) = writeback {
                file.start_writeback(start, length);
            }
            Ok(())
        }));
        Ok(())
    }

    /// The range whose write-back is due after this write, so that the final sync is short.
    fn writeback(&mut self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        self.cached_bytes += bytes;
        if self.is_direct || self.cached_bytes < CACHED_WRITEBACK_BYTES {
            return None;
        }
        let length = std::mem::take(&mut self.cached_bytes);
        Some(((offset + bytes).saturating_sub(length), length))
    }

    fn await_first(&mut self) -> io::Result<()> {
        match self.under_way.pop_front() {
            Some(begun) => begun.wait(&self.watch).unwrap_or_else(|| Err(hangs())),
            None => Ok(()),
        }
    }

    /// A data block: copied and sealed while it is in the processor's cache.
    fn put_block<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>) {
        let start = self.filled;
        slices.for_each(|slice| self.stage(slice));
        let length = self.filled - start;
        self.filled = start;
        self.seal(length);
    }

    /// Adds a data unit's part to the parity block of `length` bytes that is being computed, zeros
    /// beyond `slices`.
    fn add_to_parity<'a>(&mut self, row: usize, is_first: bool, length: usize, slices: impl Iterator<Item = &'a [u8]>) {
        let block = &mut self.staging.bytes_mut()[self.filled..self.filled + length];
        let mut at = 0;
        for slice in slices {
            let part = &mut block[at..at + slice.len()];
            // A step from zero is a copy.
            if is_first {
                part.copy_from_slice(slice)
            } else {
                parity::step(part, slice, row)
            }
            at += slice.len();
        }
        if is_first { block[at..].fill(0) } else { parity::pad(&mut block[at..], row) }
    }

    /// Ends the block of `length` bytes at the end of the staging with its checksum.
    fn seal(&mut self, length: usize) {
        let block = &self.staging.as_ref()[self.filled..self.filled + length];
        let sum = checksum(shard::block_seed(self.seed, self.block), block);
        self.filled += length;
        self.block += 1;
        self.stage(&sum.to_le_bytes());
    }

    /// Writes what is left. Afterwards it has no staging.
    fn end(&mut self, core: &Core, header: Option<&Vec<u8>>) -> io::Result<()> {
        if self.file.is_none() {
            self.open(core)?;
        }
        while !self.under_way.is_empty() {
            self.await_first()?;
        }
        let file = self.file.clone().ok_or(io::ErrorKind::NotFound)?;
        let bytes = &self.staging.as_ref()[..self.filled];
        let whole = if self.is_direct { self.filled / DIRECT_ALIGN * DIRECT_ALIGN } else { 0 };
        if whole > 0 {
            file.write_direct_at(&bytes[..whole], self.start)?;
        }
        if whole < self.filled {
            file.write_at(&mut [IoSlice::new(&bytes[whole..])], self.start + whole as u64)?;
        }
        let end = self.start + self.filled as u64;
        assert!(self.file_bytes.is_none_or(|bytes| bytes == end), "a shard's file is as long as was reckoned");
        if let Some(header) = header {
            file.write_at(&mut [IoSlice::new(header)], 0)?;
        }
        self.staging = Buffer::default();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.sync()
    }
}
