//! One object: reading its shards from end to end, and repairing the damage.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::found::{Damage, ObjectDone};
use crate::core::Core;
use crate::disk::DiskFile;
use crate::disk::work::Work;
use crate::member::member_disk::{ErrorKind, MemberDisk};
use crate::object::index::Object;
use crate::object::read::blocks_intact;
use crate::object::shard::{self};

/// Data bytes read at once: long reads for full speed, shorter ones while others wait for the disk.
const STEP_BYTES_IDLE: u64 = 2 << 20;
const STEP_BYTES_BUSY: u64 = 512 << 10;
/// Damaged blocks of one shard that are counted on its disk one by one.
const COUNTED_MAX: usize = 256;

/// The result of verifying one shard.
#[derive(Debug)]
pub struct ShardCheck {
    pub index: u8,
    slot: u8,
    bytes: u64,
    /// Damaged blocks, in order.
    pub bad: Vec<u64>,
    header_is_bad: bool,
    /// It could not be read at all.
    pub is_absent: bool,
    pub error: Option<io::Error>,
}

impl ShardCheck {
    pub fn absent(index: u8, slot: u8) -> Self {
        Self { index, slot, bytes: 0, bad: Vec::new(), header_is_bad: false, is_absent: true, error: None }
    }

    fn is_damaged(&self) -> bool {
        self.header_is_bad || !self.bad.is_empty() || self.error.is_some()
    }
}

/// Bytes of all shards of an object on their disks.
pub fn stored_bytes(object: &Object) -> u64 {
    object.placed().map(|(index, _)| object.geometry.file_bytes(index, u64::from(object.header_bytes))).sum()
}

/// The damaged bytes of a shard that is well again: its damaged blocks, or all of it where none
/// could be read.
fn bytes_made_good(object: &Object, index: u8, checks: &[ShardCheck]) -> u64 {
    let header_bytes = u64::from(object.header_bytes);
    let of_blocks = |check: &ShardCheck| check.is_damaged() && check.error.is_none();
    let Some(check) = checks.iter().find(|check| check.index == index && of_blocks(check)) else {
        return object.geometry.file_bytes(index, header_bytes);
    };
    let length = object.geometry.shard_bytes(index);
    let block_bytes = object.geometry.block_bytes();
    let block = |block: &u64| block_bytes.min(length.saturating_sub(block * block_bytes));
    check.bad.iter().map(block).sum::<u64>() + if check.header_is_bad { header_bytes } else { 0 }
}

/// A piece of a shard file.
struct Piece {
    /// As it lies in the file, from the first block on.
    blocks: Bytes,
    first: u64,
    header: Option<Bytes>,
}

impl Core {
    /// Reads a shard as it lies on its disk and verifies each block (`scrub.past_the_cache`).
    /// `turn` is returned when all is read. Blocks.
    pub fn check_shard(&self, object: &Object, index: u8, slot: u8, turn: OwnedSemaphorePermit) -> ShardCheck {
        let mut check = ShardCheck { is_absent: false, ..ShardCheck::absent(index, slot) };
        let Some(member) = self.members.member(slot).filter(|member| member.is_readable()) else {
            return ShardCheck::absent(index, slot);
        };
        // Not one of the files that readers keep open: a scrub would drive those out.
        let file = match member.io().and_then(|io| io.open(&object.file_name(index), false)) {
            Ok(file) => file,
            Err(error) => {
                check.error = Some(error);
                return check;
            }
        };
        let read = match self.members.work {
            Work::Threads => self.check_while_reading(object, member, &*file, &mut check, turn),
            Work::InTurns(_) => self.read_shard(object, index, member, &*file, |piece| {
                self.check_piece(object, &mut check, piece);
                true
            }),
        };
        match read {
            Ok((bytes, missing)) => {
                check.bytes = bytes;
                check.bad.extend(missing);
            }
            Err(error) => check.error = Some(error),
        }
        check
    }

    /// While one piece is verified the next one is read.
    fn check_while_reading(
        &self,
        object: &Object,
        member: &MemberDisk,
        file: &dyn DiskFile,
        check: &mut ShardCheck,
        turn: OwnedSemaphorePermit,
    ) -> io::Result<(u64, Range<u64>)> {
        let index = check.index;
        std::thread::scope(|scope| {
            let (pieces, work) = mpsc::sync_channel::<Piece>(1);
            let verifier =
                scope.spawn(move || work.into_iter().for_each(|piece| self.check_piece(object, check, piece)));
            let read = self.read_shard(object, index, member, file, |piece| pieces.send(piece).is_ok());
            drop((pieces, turn));
            match verifier.join() {
                Ok(()) => read,
                Err(_) => Err(io::Error::other("a thread died")),
            }
        })
    }

    fn check_piece(&self, object: &Object, check: &mut ShardCheck, piece: Piece) {
        let seed = shard::shard_seed(self.members.id, object.version, check.index);
        check.header_is_bad |= piece.header.is_some_and(|bytes| !self.is_header_of(object, check.index, &bytes));
        let geometry = object.geometry;
        let stored = piece.blocks.chunks(geometry.stored_block_bytes() as usize).zip(piece.first..);
        check.bad.extend(stored.filter(|(raw, at)| !blocks_intact(geometry, seed, *at, raw)).map(|(_, at)| at));
    }

    /// Reads a shard from its beginning, at the pace that others leave. Returns how many bytes were
    /// read, and the blocks that the file is too short for. An interrupted scrub ends it early.
    fn read_shard(
        &self,
        object: &Object,
        index: u8,
        member: &MemberDisk,
        file: &dyn DiskFile,
        mut send: impl FnMut(Piece) -> bool,
    ) -> io::Result<(u64, Range<u64>)> {
        let header_bytes = u64::from(object.header_bytes);
        let file_bytes = object.geometry.file_bytes(index, header_bytes);
        let geometry = object.geometry;
        let blocks = geometry.shard_bytes(index).div_ceil(geometry.block_bytes());
        let mut first = 0;
        loop {
            if self.scrub_interrupted() {
                return Ok((0, 0..0));
            }
            let step = if self.is_busy() { STEP_BYTES_BUSY } else { STEP_BYTES_IDLE } / geometry.block_bytes();
            let next = (first + step).min(blocks);
            let start = if first == 0 { 0 } else { geometry.block_offset(header_bytes, first) };
            let end = if next == blocks { file_bytes } else { geometry.block_offset(header_bytes, next) };
            let began = Instant::now();
            member.reading.fetch_add(1, Ordering::Relaxed);
            let read = self.read_stored(file, start..end);
            member.reading.fetch_sub(1, Ordering::Relaxed);
            let bytes = read?;
            if (bytes.len() as u64) < end - start {
                // Cut short: as wrong as flipped bits.
                return Ok((file_bytes, first..blocks.max(first + 1)));
            }
            let skip = if first == 0 { header_bytes as usize } else { 0 };
            let header = (first == 0).then(|| bytes.slice(..skip));
            let goes_on = send(Piece { blocks: bytes.slice(skip..), first, header });
            self.stand_back(member, began.elapsed());
            if !goes_on || next == blocks {
                return Ok((file_bytes, 0..0));
            }
            first = next;
        }
    }

    /// Counts the findings and repairs them. Blocks.
    pub fn settle_object(self: &Arc<Self>, object: &Arc<Object>, checks: Vec<ShardCheck>) -> ObjectDone {
        let mut done = ObjectDone {
            path: object.path.clone(),
            bytes: checks.iter().map(|check| check.bytes).sum(),
            errors: 0,
            repaired: 0,
            repaired_bytes: 0,
            is_unrepaired: false,
            damage: None,
        };
        let is_damaged = checks.iter().any(ShardCheck::is_damaged);
        // A shard deleted in the middle of its check is no fault of the disk.
        if (!is_damaged && object.is_spread()) || object.is_dead() {
            return done;
        }
        done.errors = checks.iter().map(|check| self.count_damage(object, check)).sum();
        done.errors += object.crowded().len() as u64;
        self.scrubs.in_repair.lock().insert(object.version);
        let damaged: Vec<u8> = checks.iter().filter(|check| check.is_damaged()).map(|check| check.index).collect();
        let repaired = self.repair(object, &damaged);
        let mended = repaired.as_ref().into_iter().flatten();
        (done.repaired, done.repaired_bytes) =
            mended.fold((0, 0), |(count, bytes), index| (count + 1, bytes + bytes_made_good(object, *index, &checks)));
        let all = repaired.is_ok() && done.repaired >= damaged.len() as u64;
        let is_short = self.is_short(object);
        if is_short {
            done.errors += (0..object.geometry.shards()).filter(|index| object.slot(*index).is_none()).count() as u64;
        }
        // A repair leaves out shards that are well again.
        let is_well = |index: &u8| self.is_well(object, *index);
        if !all && (is_short || !damaged.iter().all(is_well)) && !object.is_dead() {
            done.is_unrepaired = true;
            let ranges = self.lost_ranges(object, &checks);
            let damage = Damage { object: object.path.clone(), version: object.version, ranges };
            done.damage = (!damage.ranges.is_empty()).then_some(damage);
            self.scrubs.has_lost.fetch_or(done.damage.is_some(), Ordering::AcqRel);
        }
        // No disk that comes back later makes it readable now.
        if !is_short && self.is_out_of_reach(object) {
            let lacking = (0..object.geometry.shards()).filter(|index| object.slot(*index).is_none()).count();
            done.errors += lacking.max(1) as u64;
            done.is_unrepaired = true;
        }
        // There was no room for one of those that share a disk.
        done.is_unrepaired |= !object.crowded().is_empty() && !object.is_dead();
        self.scrubs.in_repair.lock().remove(&object.version);
        done
    }

    /// Counts the errors of one shard on its disk.
    fn count_damage(&self, object: &Object, check: &ShardCheck) -> u64 {
        let Some(member) = self.members.member(check.slot) else { return 0 };
        if let Some(error) = &check.error {
            // A missing file is damage of the disk's content, not of the disk.
            if error.kind() == io::ErrorKind::NotFound {
                self.members.count_error(
                    member,
                    ErrorKind::Checksum,
                    &format!("{} is gone", object.file_name(check.index)),
                );
            } else {
                self.members.read_failed(check.slot, error);
            }
            return 1;
        }
        let errors = check.bad.len() + usize::from(check.header_is_bad);
        let text = format!("wrong checksum in shard {} of {}", check.index, object.path);
        (0..errors.min(COUNTED_MAX)).for_each(|_| self.members.count_error(member, ErrorKind::Checksum, &text));
        errors as u64
    }
}
