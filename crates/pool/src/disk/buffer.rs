//! Memory for reads and writes past the kernel's cache: page-aligned and reused.
//!
//! A fresh page costs a fault and a clearing, more than the checksum of the bytes read into it. So
//! a buffer is a slot of the process's arena, and goes back when the last [`Bytes`] that looks into
//! it is dropped; the next read gets it uncleared. Long slots lie in huge pages: a disk fills them
//! with one request, and scattered pages with several. They are not for keeping. A read whose bytes
//! a caller may keep fills slots of the length of a record ([`Buffers::take_parts`]), so that a part
//! that is kept holds little else in memory. Buffers longer than a slot go back to their
//! [`Buffers`].
//!
//! - `buffer.old_bytes_hidden`: a buffer may hold bytes of an earlier read. No caller sees more of
//!   it than was read or written since it was taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_base::arena::{self, Slot};
use parking_lot::Mutex;

use crate::disk::DIRECT_ALIGN;

/// Buffers are a multiple of this long, so that a buffer freed by one read fits another.
const CLASS_BYTES: usize = 64 << 10;
/// Free memory that is kept for the next read. Other parts of the process cannot use it, so more
/// would be waste.
const FREE_BYTES_MAX: usize = 16 << 20;
/// Free buffers of one pool.
#[derive(Debug, Default)]
pub struct Buffers {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// By length. No list is empty.
    by_class: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// Aligned memory, at least as long as was asked for. Goes back when dropped.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    Slot(Slot),
    Heap {
        memory: Vec<u8>,
        /// Bytes before the first aligned one.
        skip: usize,
        home: Weak<Buffers>,
    },
}

impl Buffers {
    /// `length` aligned bytes with arbitrary contents (`buffer.old_bytes_hidden`).
    pub fn take(self: &Arc<Self>, length: usize) -> Buffer {
        if let Some(slot) = arena::take(length) {
            return Buffer { memory: Memory::Slot(slot), length };
        }
        let class = length.next_multiple_of(CLASS_BYTES);
        let memory = self.free.lock().take(class).unwrap_or_else(|| vec![0; class + DIRECT_ALIGN]);
        let skip = memory.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN);
        assert!(skip + length <= memory.len(), "the aligned part is as long as was asked for");
        Buffer { memory: Memory::Heap { memory, skip, home: Arc::downgrade(self) }, length }
    }

    /// The same in several buffers, whose parts may be kept.
    pub fn take_parts(self: &Arc<Self>, length: usize) -> Vec<Buffer> {
        arena::cut(length).map(|part| self.take(part)).collect()
    }

    #[cfg(test)]
    fn free_bytes(&self) -> usize {
        self.free.lock().bytes
    }
}

impl Free {
    /// A buffer of `class` bytes or up to a quarter more.
    fn take(&mut self, class: usize) -> Option<Vec<u8>> {
        let (&found, list) = self.by_class.range_mut(class..=class + class / 4).next()?;
        let memory = list.pop()?;
        if list.is_empty() {
            self.by_class.remove(&found);
        }
        assert!(
            self.bytes >= found && memory.len() >= class + DIRECT_ALIGN,
            "a free buffer has the length of its list"
        );
        self.bytes -= found;
        Some(memory)
    }

    /// Gives the memory back to the caller when enough is free.
    fn put(&mut self, memory: Vec<u8>) -> Option<Vec<u8>> {
        let class = memory.len() - DIRECT_ALIGN;
        if self.bytes + class > FREE_BYTES_MAX {
            return Some(memory);
        }
        self.bytes += class;
        self.by_class.entry(class).or_default().push(memory);
        assert!(self.bytes <= FREE_BYTES_MAX, "the free memory is bounded");
        None
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer { memory: Memory::Heap { memory: Vec::new(), skip: 0, home: Weak::new() }, length: 0 }
    }
}

impl Buffer {
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Slot(slot) => slot,
            Memory::Heap { memory, skip, .. } => &mut memory[*skip..*skip + self.length],
        }
    }

    /// The bytes, shared; the memory goes back with the last of them.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        match &self.memory {
            Memory::Slot(slot) => slot,
            Memory::Heap { memory, skip, .. } => &memory[*skip..*skip + self.length],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Heap { memory, home, .. } = &mut self.memory
            && let Some(home) = home.upgrade()
        {
            // The excess is freed after the lock.
            let _rest = home.free.lock().put(std::mem::take(memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back_with_the_last_slice() {
        let buffers = Arc::new(Buffers::default());
        let long = (3 << 20) + 100_000;
        let mut buffer = buffers.take(long);
        assert_eq!(buffer.bytes_mut().len(), long);
        let at = buffer.bytes_mut().as_ptr();
        assert!(at.is_aligned() && (at as usize).is_multiple_of(DIRECT_ALIGN));
        buffer.bytes_mut()[7] = 9;
        let bytes = buffer.freeze();
        let slice = bytes.slice(7..8);
        drop(bytes);
        assert_eq!(buffers.free_bytes(), 0);
        assert_eq!(&slice[..], [9]);
        drop(slice);
        assert_eq!(buffers.free_bytes(), (3 << 20) + (128 << 10));
        assert_eq!(buffers.take((3 << 20) + (128 << 10)).bytes_mut().as_ptr(), at, "used again");
    }

    #[test]
    fn what_is_free_is_bounded_and_never_much_too_large() {
        let buffers = Arc::new(Buffers::default());
        let many: Vec<Buffer> = (0..8).map(|_| buffers.take(4 << 20)).collect();
        drop(many);
        assert_eq!(buffers.free_bytes(), FREE_BYTES_MAX);
        let small = buffers.take(3_000_000);
        assert_eq!(buffers.free_bytes(), FREE_BYTES_MAX, "a buffer of 4 MiB is wasted on 3 MB");
        drop(small);
        let close = buffers.take(3900 << 10);
        assert_eq!(buffers.free_bytes(), FREE_BYTES_MAX - (4 << 20));
        drop(buffers);
        drop(close);
    }

    #[test]
    fn usual_buffers_are_aligned_slots() {
        let buffers = Arc::new(Buffers::default());
        for length in [1, 4096, 100_000, 525_824, 1 << 20, (1 << 20) + 4096, 2 << 20] {
            let mut buffer = buffers.take(length);
            assert!(matches!(buffer.memory, Memory::Slot(_)), "{length}");
            assert_eq!(buffer.bytes_mut().len(), length);
            assert!((buffer.bytes_mut().as_ptr() as usize).is_multiple_of(DIRECT_ALIGN));
        }
        let longer = buffers.take((2 << 20) + 1);
        assert!(matches!(longer.memory, Memory::Heap { .. }));
    }
}
