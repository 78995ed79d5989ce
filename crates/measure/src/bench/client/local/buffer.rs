use bytes::BytesMut;
use larder_base::slots::{HUGE_PAGE_BYTES, use_huge_pages};

use super::ALIGN;
use crate::bench::client::share::Identity;

/// `count` aligned buffers of `len` bytes, side by side, with random contents.
///
/// In one piece, because memory that is asked for at once is less scattered: a disk takes a scattered MiB in several
/// requests only, and those io_uring leaves to a thread of the kernel, which costs a tenth. And in huge pages where it fills
/// one: the kernel looks up each page of a request, and that is most of what a large one costs.
pub(super) fn buffers(count: usize, len: usize, identity: Identity<'_>) -> Vec<BytesMut> {
    let len = len.next_multiple_of(ALIGN);
    let align = if count * len >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { ALIGN };
    // The last huge page is whole, too.
    let mut memory = BytesMut::zeroed((count * len).next_multiple_of(align) + align);
    let _ = memory.split_to(memory.as_ptr().align_offset(align).min(align));
    use_huge_pages(&mut memory);
    let salt = memory.as_ptr() as usize as u64;
    identity.contents.fill(salt, &mut memory);
    (0..count).map(|_| memory.split_to(len)).collect()
}
