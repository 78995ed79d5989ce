//! The address space of an arena, and the memory behind it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::regions::{Purpose, REGION_BYTES};

/// A first touch of a huge page that takes longer is costly (`arena.small_while_costly`).
/// Clearing one takes 0.1 to 0.5 ms.
const HUGE_PAGE_COST_MAX: Duration = Duration::from_millis(2);
/// As many regions have small pages before huge ones are tried again: half a gigabyte.
const SMALL_REGIONS: u32 = 256;
/// Regions become accessible in groups: each change of access stops all page faults for a moment.
const OPENED_REGIONS: usize = 16;
const PAGE_BYTES: usize = 4096;
/// An arena with less address space is of no use.
const SPACE_BYTES_MIN: usize = 64 << 20;

/// Regions yet to be made of small pages.
static SMALL_REGIONS_LEFT: AtomicU32 = AtomicU32::new(0);

/// Addresses for good, on the boundary of a huge page. They cost nothing until they are touched.
#[derive(Debug)]
pub(super) struct Pages {
    base: usize,
    regions: usize,
    /// So many are accessible.
    opened: usize,
}

impl Pages {
    /// Addresses for `bytes`, or for as many as there are.
    pub(super) fn reserve(bytes: usize) -> Option<Pages> {
        let mut bytes = bytes.next_multiple_of(REGION_BYTES);
        while bytes >= SPACE_BYTES_MIN {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new private mapping, which nobody else knows of and nobody unmaps.
            #[allow(unsafe_code)]
            let start = unsafe {
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes + REGION_BYTES, ProtFlags::empty(), flags)
            };
            if let Ok(start) = start {
                let base = start.expose_provenance().next_multiple_of(REGION_BYTES);
                return Some(Pages { base, regions: bytes / REGION_BYTES, opened: 0 });
            }
            bytes = (bytes / 2).next_multiple_of(REGION_BYTES);
        }
        None
    }

    pub(super) fn regions(&self) -> usize {
        self.regions
    }

    /// The region and the byte in it.
    pub(super) fn place_of(&self, address: usize) -> Option<(u32, usize)> {
        let at = address.checked_sub(self.base).filter(|at| *at < self.regions * REGION_BYTES)?;
        Some((u32::try_from(at / REGION_BYTES).ok()?, at % REGION_BYTES))
    }

    /// Makes the region accessible. False: the system has no memory.
    pub(super) fn open(&mut self, region: u32) -> bool {
        let region = region as usize;
        while region >= self.opened && self.opened < self.regions {
            let count = OPENED_REGIONS.min(self.regions - self.opened);
            let start = std::ptr::with_exposed_provenance_mut(self.base + self.opened * REGION_BYTES);
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: whole pages of our own mapping that nothing refers to yet.
            #[allow(unsafe_code)]
            let opened = unsafe { rustix::mm::mprotect(start, count * REGION_BYTES, access) };
            if opened.is_err() {
                return false;
            }
            self.opened += count;
        }
        region < self.opened
    }

    /// Memory of an open region.
    ///
    /// # Safety
    /// The caller has the bytes to itself until it gives them back, and they lie in an open region.
    #[allow(unsafe_code)]
    pub(super) unsafe fn memory(&self, region: u32, at: usize, length: usize) -> &'static mut [u8] {
        let start = self.base + region as usize * REGION_BYTES + at;
        assert!((region as usize) < self.opened && at + length <= REGION_BYTES, "a slot lies in an open region");
        // SAFETY: accessible memory that is never unmapped; that it is the caller's alone is said
        // above.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), length) }
    }
}

/// Chooses the pages of a free region. True: they are huge.
pub(super) fn choose(region: &mut [u8], purpose: Purpose) -> bool {
    let is_small = purpose == Purpose::Keep
        && SMALL_REGIONS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    advise(region, if is_small { Advice::LinuxNoHugepage } else { Advice::LinuxHugepage });
    !is_small
}

/// Makes memory resident whose bytes nobody needs, all at once, for a tenth less than page by page.
/// `is_probe`: it is the first touch of huge pages for bytes that are kept.
pub(super) fn touch(memory: &mut [u8], is_probe: bool) {
    let start = is_probe.then(Instant::now);
    if !advise(memory, Advice::LinuxPopulateWrite) {
        for page in memory.chunks_mut(PAGE_BYTES) {
            if let Some(first) = std::hint::black_box(page).first_mut() {
                *first = 0;
            }
        }
    }
    if start.is_some_and(|start| start.elapsed() > HUGE_PAGE_COST_MAX) {
        SMALL_REGIONS_LEFT.store(SMALL_REGIONS, Ordering::Relaxed);
    }
}

/// Gives the memory of a free region back to the system. It reads as zeros then.
pub(super) fn release(region: &mut [u8]) {
    advise(region, Advice::LinuxDontNeed);
}

/// A hint; a kernel that does not know it changes nothing, and the answer is false.
fn advise(memory: &mut [u8], advice: Advice) -> bool {
    // SAFETY: whole pages of private anonymous memory that the caller has to itself. Their bytes
    // stay or become zeros.
    #[allow(unsafe_code)]
    unsafe { rustix::mm::madvise(memory.as_mut_ptr().cast(), memory.len(), advice) }.is_ok()
}
