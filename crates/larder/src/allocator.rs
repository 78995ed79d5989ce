//! The allocator: jemalloc, which zeroes what is freed once a keyring was opened (`wipe.freed_is_zeroed`).

use std::alloc::{GlobalAlloc, Layout};

use larder_base::wipe;
use tikv_jemallocator::Jemalloc;

pub(crate) struct Wiping;

// SAFETY: every call is passed on to jemalloc as it came. Before memory is freed its bytes are written: they are the caller's
// until then, and `layout` is what they were allocated with.
unsafe impl GlobalAlloc for Wiping {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as this call.
        unsafe { Jemalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as this call.
        unsafe { Jemalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if wipe::is_on() {
            // SAFETY: the caller has these bytes to itself, and gives them up.
            unsafe { zero(ptr, layout.size()) };
        }
        // SAFETY: as this call.
        unsafe { Jemalloc.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !wipe::is_on() {
            // SAFETY: as this call.
            return unsafe { Jemalloc.realloc(ptr, layout, new_size) };
        }
        // jemalloc moves bytes without zeroing the old ones.
        // SAFETY: the size is not 0 and fits, as the caller of `realloc` has to see to; both places have `min` bytes, and the new
        // one is nobody else's. The old one is given up as in `dealloc`.
        unsafe {
            let new = Jemalloc.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(ptr, new, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            new
        }
    }
}

/// Starts the thread that gives freed memory back while nobody allocates. It sleeps when there is nothing to give back. It inherits
/// the rights of its caller (`rights.before_threads`), so jemalloc does not start it by itself before `main`.
pub(crate) fn start_thread() {
    let mut is_on = true;
    // SAFETY: jemalloc reads one C `bool` at the pointer to the new value (`background_thread` of jemalloc(3)). It writes none:
    // there is no place for the old value.
    let refused = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"background_thread".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::from_mut(&mut is_on).cast(),
            size_of::<bool>(),
        )
    };
    if refused != 0 {
        let error = std::io::Error::from_raw_os_error(refused);
        tracing::debug!(%error, "freed memory goes back only when memory is allocated");
    }
}

/// # Safety
/// `size` bytes at `ptr` are the caller's to write.
#[inline]
unsafe fn zero(ptr: *mut u8, size: usize) {
    // SAFETY: see above.
    unsafe { std::ptr::write_bytes(ptr, 0, size) };
    // The compiler may not leave out stores that this could read.
    std::hint::black_box(ptr);
}
