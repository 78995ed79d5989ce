//! Large pieces of memory in huge pages, used again and again.
//!
//! In pages of 4 KiB, page faults are the largest cost of data that is read from disks and kept: 40 % of the
//! processor time of a cold read. Scattered pages also split a disk's transfer into many small requests.
//!
//! - `hugepage.old_bytes_hidden`: a slot may hold bytes of an earlier use. No reader may see more
//!   of it than was written since it was taken.
//! - `hugepage.small_while_costly`: while the first touch of a huge page is costly, slots of caches
//!   lie in small pages. A virtual machine is an example if its host takes free memory back: the
//!   host takes huge pages first, and touching one costs ten times its clearing. Slots that disks
//!   are read into are few and soon used again, so they always lie in huge pages.
//! - `hugepage.regions_stay_mapped`: slots lie in regions that are never unmapped. Some free slots
//!   keep their memory for the next use; the memory of the others returns to the system. So the
//!   resident memory is the slots in use and a fixed amount. Where the kernel makes huge pages of
//!   regions that are partly free, it is at most the highest amount ever in use.
//! - `hugepage.touched_ahead`: a thread touches slots ahead, up to the number of slots that keep
//!   their memory. A user that takes slot after slot finds them touched.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The huge page of x86-64, and of AArch64 with pages of 4 KiB. Where it is another, slots are ordinary memory.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
const REGION_BYTES: usize = 4 * HUGE_PAGE_BYTES;
/// A first touch of a huge page that takes longer is costly (`hugepage.small_while_costly`).
/// Clearing one takes 0.1 to 0.5 ms.
const HUGE_PAGE_COST_MAX: Duration = Duration::from_millis(2);
/// As many regions have small pages before huge ones are tried again: half a gigabyte.
const SMALL_REGIONS: u32 = 64;

/// Regions yet to be made of small pages.
static SMALL_REGIONS_LEFT: AtomicU32 = AtomicU32::new(0);

/// The use of the slots, which decides about their pages (`hugepage.small_while_costly`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Disks are read into them, and they go back soon.
    Transfer,
    /// They are kept.
    Cache,
}

/// Slots of one size for the whole process.
#[derive(Debug)]
pub struct Slots {
    slot_bytes: usize,
    warm_max: usize,
    purpose: Use,
    free: Mutex<Free>,
    /// Touches slots ahead (`hugepage.touched_ahead`). It starts when the first slot had to be
    /// touched as it was taken.
    ahead: OnceLock<Option<Thread>>,
}

#[derive(Debug)]
struct Free {
    /// Resident.
    warm: Vec<&'static mut [u8]>,
    /// Without memory until they are touched.
    cold: Vec<&'static mut [u8]>,
}

/// Memory of [`Slots`] of which the first bytes are used. Goes back when dropped.
#[derive(Debug)]
pub struct Slot {
    memory: &'static mut [u8],
    length: usize,
    home: &'static Slots,
}

impl Slots {
    /// `slot_bytes` divides a huge page (2 MiB) and is a multiple of 4 KiB; up to `warm_bytes` of free slots stay resident.
    pub const fn new(slot_bytes: usize, warm_bytes: usize, purpose: Use) -> Slots {
        assert!(HUGE_PAGE_BYTES.is_multiple_of(slot_bytes) && slot_bytes.is_multiple_of(4096));
        let free = Mutex::new(Free { warm: Vec::new(), cold: Vec::new() });
        Slots { slot_bytes, warm_max: warm_bytes / slot_bytes, purpose, free, ahead: OnceLock::new() }
    }

    /// `length` bytes with their old contents (`hugepage.old_bytes_hidden`). `None` if that is more
    /// than a slot, or the system has no memory.
    pub fn take(&'static self, length: usize) -> Option<Slot> {
        if length > self.slot_bytes {
            return None;
        }
        let mut free = self.free.lock();
        let warm = free.warm.pop();
        let few = free.warm.len() < self.warm_max / 2;
        drop(free);
        if few && self.purpose == Use::Cache {
            self.touch_ahead();
        }
        let memory = match warm {
            Some(memory) => memory,
            None => self.touched()?,
        };
        Some(Slot { memory, length, home: self })
    }

    /// A slot that was not in use, made resident.
    fn touched(&self) -> Option<&'static mut [u8]> {
        let cold = self.free.lock().cold.pop();
        let memory = match cold {
            Some(memory) => memory,
            None => self.grow()?,
        };
        // All at once, for a tenth less than page by page.
        advise(memory, Advice::LinuxPopulateWrite);
        Some(memory)
    }

    /// Wakes the thread that touches slots ahead (`hugepage.touched_ahead`).
    fn touch_ahead(&'static self) {
        let thread = self.ahead.get_or_init(|| {
            let work = move || {
                loop {
                    while self.free.lock().warm.len() < self.warm_max
                        && let Some(memory) = self.touched()
                    {
                        self.free.lock().warm.push(memory);
                    }
                    std::thread::park();
                }
            };
            std::thread::Builder::new().name("slots".into()).spawn(work).ok().map(|handle| handle.thread().clone())
        });
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// One slot of a new region; the others are free.
    fn grow(&self) -> Option<&'static mut [u8]> {
        let mut made: Vec<&'static mut [u8]> = region(self.purpose)?.chunks_exact_mut(self.slot_bytes).rev().collect();
        let first = made.pop();
        self.free.lock().cold.extend(made);
        first
    }

    fn give(&self, memory: &'static mut [u8]) {
        if memory.is_empty() {
            return;
        }
        let mut free = self.free.lock();
        if free.warm.len() < self.warm_max {
            return free.warm.push(memory);
        }
        drop(free);
        advise(memory, Advice::LinuxDontNeed);
        self.free.lock().cold.push(memory);
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let free = self.free.lock();
        (free.warm.len(), free.cold.len())
    }
}

impl Slot {
    /// The bytes, shared; the slot goes back with the last of them.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.home.purpose == Use::Cache && crate::wipe::is_on() {
            // `wipe.freed_is_zeroed`. Of transfers with disks an encrypted volume's bytes are sealed.
            crate::wipe::wipe(self);
        }
        self.home.give(std::mem::take(&mut self.memory));
    }
}

/// Zeroed memory for good, on the boundary of a huge page. It costs address space until it is touched.
fn region(purpose: Use) -> Option<&'static mut [u8]> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let length = REGION_BYTES + HUGE_PAGE_BYTES;
    // SAFETY: a new private mapping of `length` bytes, readable and writable, which nobody else knows of and nobody unmaps.
    #[allow(unsafe_code)]
    let whole: &'static mut [u8] = unsafe {
        let start = rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, flags).ok()?;
        std::slice::from_raw_parts_mut(start.cast(), length)
    };
    let skip = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let region = whole.get_mut(skip..skip.checked_add(REGION_BYTES)?)?;
    match purpose {
        Use::Transfer => advise(region, Advice::LinuxHugepage),
        Use::Cache => choose_pages(region),
    }
    Some(region)
}

/// Huge pages, if they are cheap to get (`hugepage.small_while_costly`).
fn choose_pages(region: &mut [u8]) {
    if SMALL_REGIONS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        return advise(region, Advice::LinuxNoHugepage);
    }
    advise(region, Advice::LinuxHugepage);
    let start = Instant::now();
    if let Some(first) = std::hint::black_box(&mut *region).first_mut() {
        *first = 0;
    }
    std::hint::black_box(&mut *region);
    if start.elapsed() > HUGE_PAGE_COST_MAX {
        SMALL_REGIONS_LEFT.store(SMALL_REGIONS, Ordering::Relaxed);
        advise(region, Advice::LinuxNoHugepage);
    }
}

/// Huge pages for memory that is about to be filled, as far as whole ones lie in it. Its bytes stay or become zeros.
///
/// For memory that is made once and used for long: the cost of its first touch does not count
/// (`hugepage.small_while_costly`).
pub fn use_huge_pages(memory: &mut [u8]) {
    let skip = memory.as_ptr().align_offset(HUGE_PAGE_BYTES).min(memory.len());
    let whole = (memory.len() - skip) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    let Some(pages) = memory.get_mut(skip..skip + whole).filter(|pages| !pages.is_empty()) else { return };
    // Of an allocator's memory that was in use before: small pages are not made huge, only new ones are.
    advise(pages, Advice::LinuxDontNeed);
    advise(pages, Advice::LinuxHugepage);
}

/// A hint; a kernel that does not know it changes nothing.
fn advise(memory: &mut [u8], advice: Advice) {
    // SAFETY: whole pages of private anonymous memory that the caller has to itself. Their bytes stay or become zeros.
    #[allow(unsafe_code)]
    let _ = unsafe { rustix::mm::madvise(memory.as_mut_ptr().cast(), memory.len(), advice) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SLOT_BYTES: usize = 128 << 10;
    const PER_REGION: usize = REGION_BYTES / SLOT_BYTES;

    #[test]
    fn slots_are_apart_aligned_and_come_back_with_the_last_slice() {
        static SLOTS: Slots = Slots::new(SLOT_BYTES, 4 * SLOT_BYTES, Use::Transfer);
        let mut slots: Vec<Slot> = (0..2 * PER_REGION).map(|_| SLOTS.take(SLOT_BYTES).unwrap()).collect();
        for (i, slot) in slots.iter_mut().enumerate() {
            assert!(slot.as_ptr().addr().is_multiple_of(SLOT_BYTES));
            slot.fill(i as u8);
        }
        assert!(slots.iter().enumerate().all(|(i, slot)| slot.iter().all(|&byte| byte == i as u8)));
        assert_eq!(SLOTS.counts(), (0, 0));
        let last = slots.pop().unwrap().freeze();
        let slice = last.slice(7..9);
        drop(last);
        assert_eq!(SLOTS.counts(), (0, 0));
        drop(slice);
        assert_eq!(SLOTS.counts(), (1, 0));
        drop(slots);
        assert_eq!(SLOTS.counts(), (4, 2 * PER_REGION - 4));
    }

    #[test]
    fn only_whole_huge_pages_are_touched() {
        for length in [0, 100, HUGE_PAGE_BYTES - 1, 3 * HUGE_PAGE_BYTES] {
            let mut memory = vec![7_u8; length];
            use_huge_pages(&mut memory);
            assert!(memory.iter().all(|byte| matches!(byte, 0 | 7)));
            let skip = memory.as_ptr().align_offset(HUGE_PAGE_BYTES).min(length);
            let end = skip + (length - skip) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            assert!(memory.iter().enumerate().all(|(at, byte)| *byte == 7 || (skip..end).contains(&at)), "{length}");
            memory.fill(9);
            assert!(memory.iter().all(|byte| *byte == 9));
        }
    }

    #[test]
    fn what_is_free_is_used_before_more_and_its_memory_goes_back() {
        static SLOTS: Slots = Slots::new(SLOT_BYTES, SLOT_BYTES, Use::Transfer);
        let mut slots: Vec<Slot> = (0..PER_REGION).map(|_| SLOTS.take(100).unwrap()).collect();
        slots.iter_mut().for_each(|slot| slot.fill(9));
        assert_eq!(slots[0].len(), 100, "no more is seen than was asked for");
        drop(slots);
        assert_eq!(SLOTS.counts(), (1, PER_REGION - 1));
        let again: Vec<Slot> = (0..PER_REGION).map(|_| SLOTS.take(100).unwrap()).collect();
        assert_eq!(SLOTS.counts(), (0, 0), "no second region");
        assert_eq!(again.iter().filter(|slot| slot[0] == 9).count(), 1, "the others came back empty");
        assert!(SLOTS.take(SLOT_BYTES + 1).is_none());
    }

    #[test]
    fn slots_that_are_kept_are_touched_ahead() {
        static SLOTS: Slots = Slots::new(SLOT_BYTES, 8 * SLOT_BYTES, Use::Cache);
        let has_warm = || {
            let until = Instant::now() + Duration::from_secs(20);
            while SLOTS.counts().0 < 4 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            SLOTS.counts().0 >= 4
        };
        let first = SLOTS.take(SLOT_BYTES).unwrap();
        assert!(has_warm());
        let kept: Vec<Slot> = (0..8).map(|_| SLOTS.take(SLOT_BYTES).unwrap()).collect();
        assert!(has_warm());
        drop((first, kept));
        assert!((8..=9).contains(&SLOTS.counts().0), "no more stay than are of use");
    }
}
