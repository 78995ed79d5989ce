//! Whether a shard lies on a disk as it was written: every block of it, past the kernel's cache.
//! Counts no errors.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use bytes::Bytes;

use crate::core::Core;
use crate::disk::{DIRECT_ALIGN, DiskFile};
use crate::object::index::Object;
use crate::object::read::blocks_intact;
use crate::object::shard::{self, Header};

/// Data bytes read at once.
const STEP_BYTES: u64 = 2 << 20;

impl Core {
    /// Whether the shard lies in its place, as it was written. Blocks.
    pub fn is_well(&self, object: &Object, index: u8) -> bool {
        object.slot(index).is_some_and(|slot| self.holds_shard(object, index, slot))
    }

    /// Whether this disk holds the shard, under its name, each block intact. Counts no errors.
    /// Blocks.
    pub fn holds_shard(&self, object: &Object, index: u8, slot: u8) -> bool {
        self.read_through(object, index, slot).unwrap_or(false)
    }

    fn read_through(&self, object: &Object, index: u8, slot: u8) -> io::Result<bool> {
        let Some(member) = self.members.member(slot).filter(|member| member.is_readable()) else { return Ok(false) };
        // Not one that is kept open: that may have another name by now.
        let file = member.io()?.open(&object.file_name(index), false)?;
        let header_bytes = u64::from(object.header_bytes);
        let file_bytes = object.geometry.file_bytes(index, header_bytes);
        let header = self.read_stored(&*file, 0..header_bytes)?;
        if !self.is_header_of(object, index, &header) {
            return Ok(false);
        }
        let seed = shard::shard_seed(self.members.id, object.version, index);
        let geometry = object.geometry;
        let blocks = geometry.shard_bytes(index).div_ceil(geometry.block_bytes());
        let step = STEP_BYTES / geometry.block_bytes();
        for first in (0..blocks).step_by(step as usize) {
            let next = (first + step).min(blocks);
            let start = geometry.block_offset(header_bytes, first);
            let end = if next == blocks { file_bytes } else { geometry.block_offset(header_bytes, next) };
            let raw = self.read_stored(&*file, start..end)?;
            if raw.len() as u64 != end - start || !blocks_intact(geometry, seed, first, &raw) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether this disk has a file of the shard's name and length. Blocks.
    pub fn names_shard(&self, object: &Object, index: u8, slot: u8) -> bool {
        let bytes = object.geometry.file_bytes(index, u64::from(object.header_bytes));
        let member = self.members.member(slot).filter(|member| member.is_readable());
        let file = member.and_then(|member| member.io().ok()?.open(&object.file_name(index), false).ok());
        file.is_some_and(|file| file.length().is_ok_and(|length| length == bytes))
    }

    /// A range of a file past the kernel's cache, shorter where the file ends before.
    pub fn read_stored(&self, file: &dyn DiskFile, range: Range<u64>) -> io::Result<Bytes> {
        let aligned = range.start - range.start % DIRECT_ALIGN as u64..range.end.next_multiple_of(DIRECT_ALIGN as u64);
        let mut buffer = self.members.buffers.take((aligned.end - aligned.start) as usize);
        let count = file.read_direct_at(&mut [IoSliceMut::new(buffer.bytes_mut())], aligned.start)? as u64;
        let skip = range.start - aligned.start;
        let length = count.saturating_sub(skip).min(range.end - range.start);
        Ok(buffer.freeze().slice(skip.min(count) as usize..(skip.min(count) + length) as usize))
    }

    pub fn is_header_of(&self, object: &Object, index: u8, bytes: &[u8]) -> bool {
        Header::decode(bytes).is_some_and(|header| {
            header.pool == self.members.id
                && header.version == object.version
                && header.index == index
                && header.path == object.path
        })
    }
}
