use bytes::BytesMut;

use super::ALIGN;
use crate::bench::client::share::Identity;

/// `count` aligned buffers of `len` bytes, side by side, with random contents.
///
/// In one piece, because memory that is asked for at once is less scattered: a disk takes a scattered MiB in several
/// requests only, and those io_uring leaves to a thread of the kernel, which costs a tenth.
pub(super) fn buffers(count: usize, len: usize, identity: Identity<'_>) -> Vec<BytesMut> {
    let len = len.next_multiple_of(ALIGN);
    let mut memory = BytesMut::zeroed(count * len + ALIGN);
    let _ = memory.split_to(memory.as_ptr().align_offset(ALIGN).min(ALIGN));
    let salt = memory.as_ptr() as usize as u64;
    identity.contents.fill(salt, &mut memory);
    (0..count).map(|_| memory.split_to(len)).collect()
}
