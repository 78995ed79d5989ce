//! Memory that held keys or the contents of encrypted volumes, and must not keep them.
//!
//! - `wipe.freed_is_zeroed`: once this process has opened a keyring, its allocator zeroes all
//!   memory before it is freed. Slots of the arena that held contents of an encrypted volume are
//!   zeroed as well (`arena.wiped`). So a closed volume leaves nothing behind as soon as its last
//!   reader is gone. A process that never opens a keyring pays nothing.
//! - `wipe.no_contents_no_price`: keys that open no volume's contents are made within [`without_contents`], and switch nothing on.
//! - `wipe.keys_stay_in_memory`: keys lie in pages that are neither swapped nor dumped, while the system lets this process lock
//!   so many; they are zeroed when they are dropped.

use std::cell::Cell as Flag;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags};

static ON: AtomicBool = AtomicBool::new(false);

/// From now on freed memory is zeroed (`wipe.freed_is_zeroed`), until the process ends: what it was freed of may come late.
pub fn begin() {
    ON.store(true, Ordering::Relaxed);
}

thread_local! {
    static WITHOUT_CONTENTS: Flag<bool> = const { Flag::new(false) };
}

/// Does `work`, whose keys open no contents of a volume (`wipe.no_contents_no_price`). The keys themselves are zeroed as always.
pub fn without_contents<T>(work: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            WITHOUT_CONTENTS.set(self.0);
        }
    }
    let _back = Back(WITHOUT_CONTENTS.replace(true));
    work()
}

/// Whether freed memory is to be zeroed.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Zeroes memory that nobody reads afterwards.
#[inline]
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // The compiler may not leave out a store that this could read.
    std::hint::black_box(bytes);
}

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Keys lie in one region of four pages of 4 KiB: the keys of 128 generations of volumes at once. The least RLIMIT_MEMLOCK in use is
/// 64 KiB. Further keys lie in ordinary memory.
const REGION_BYTES: usize = 16 << 10;
const CELLS: usize = REGION_BYTES / KEY_BYTES;

type Cell = &'static mut [u8];

/// Free cells of the locked region. `None`: it was not made yet.
static FREE: Mutex<Option<Vec<Cell>>> = Mutex::new(None);
static IS_SWAPPABLE: AtomicBool = AtomicBool::new(false);

/// A key in memory that is not swapped (`wipe.keys_stay_in_memory`).
pub struct LockedKey {
    place: Place,
}

enum Place {
    Locked(Cell),
    Heap(Box<[u8; KEY_BYTES]>),
}

impl LockedKey {
    /// A key of zeros, to be filled in place.
    pub fn zeroed() -> Self {
        if !WITHOUT_CONTENTS.get() {
            begin();
        }
        let cell = FREE.lock().get_or_insert_with(region).pop();
        Self { place: cell.map_or_else(|| Place::Heap(Box::new([0; KEY_BYTES])), Place::Locked) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Locked(cell) => cell,
            Place::Heap(bytes) => &mut bytes[..],
        }
    }
}

/// Whether keys may reach the swap, because the system refused to lock their pages.
pub fn are_keys_swappable() -> bool {
    IS_SWAPPABLE.load(Ordering::Relaxed)
}

/// Cells of pages that are neither swapped nor dumped. None where the system gives no memory.
fn region() -> Vec<Cell> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping of REGION_BYTES, readable and writable, which nobody else knows of and nobody unmaps. Locking
    // it and leaving it out of dumps change none of its bytes.
    #[allow(unsafe_code)]
    let pages: &'static mut [u8] = unsafe {
        let Ok(start) = rustix::mm::mmap_anonymous(std::ptr::null_mut(), REGION_BYTES, access, flags) else {
            return Vec::new();
        };
        let is_locked = rustix::mm::mlock(start, REGION_BYTES).is_ok();
        IS_SWAPPABLE.store(!is_locked, Ordering::Relaxed);
        let _ = rustix::mm::madvise(start, REGION_BYTES, Advice::LinuxDontDump);
        std::slice::from_raw_parts_mut(start.cast(), REGION_BYTES)
    };
    pages.chunks_exact_mut(KEY_BYTES).collect()
}

impl Deref for LockedKey {
    type Target = [u8; KEY_BYTES];

    fn deref(&self) -> &[u8; KEY_BYTES] {
        match &self.place {
            Place::Locked(cell) => cell.first_chunk().unwrap_or(&[0; KEY_BYTES]),
            Place::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for LockedKey {
    fn deref_mut(&mut self) -> &mut [u8; KEY_BYTES] {
        match &mut self.place {
            Place::Locked(cell) => cell.first_chunk_mut().expect("a cell is as long as a key"),
            Place::Heap(bytes) => bytes,
        }
    }
}

impl Clone for LockedKey {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed();
        copy.copy_from_slice(&self[..]);
        copy
    }
}

impl Drop for LockedKey {
    fn drop(&mut self) {
        wipe(self.bytes_mut());
        if let Place::Locked(cell) = &mut self.place
            && let Some(free) = FREE.lock().as_mut()
        {
            debug_assert!(free.len() < CELLS, "`wipe.keys_stay_in_memory`: a cell has one owner");
            free.push(std::mem::take(cell));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_apart_and_zeroed_when_they_go() {
        let before = is_on();
        without_contents(|| assert_eq!(*LockedKey::zeroed(), [0; KEY_BYTES]));
        assert_eq!(is_on(), before, "`wipe.no_contents_no_price`");
        let keys: Vec<LockedKey> = (0..CELLS + 3)
            .map(|n| {
                let mut key = LockedKey::zeroed();
                assert_eq!(*key, [0; KEY_BYTES], "a cell that was used before is zeroed");
                key.fill(n as u8);
                key
            })
            .collect();
        assert!(keys.iter().enumerate().all(|(n, key)| key.iter().all(|byte| *byte == n as u8)));
        let copies = keys.clone();
        drop(keys);
        assert!(copies.iter().enumerate().all(|(n, key)| key.iter().all(|byte| *byte == n as u8)));
        drop(copies);
        assert!(is_on());
        let again = LockedKey::zeroed();
        assert_eq!(*again, [0; KEY_BYTES]);
    }
}
