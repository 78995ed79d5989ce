//! Input that a mount decodes: requests of the kernel (by the library), and the kernel's words in them (by us).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{convert, xattr};

const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The library reads requests into memory that is aligned as these words are.
#[repr(align(8))]
struct Aligned([u8; REQUEST_BYTES_MAX]);

/// A request of the kernel, its own length in front of it made right as well.
pub fn fuse_request(data: &[u8]) {
    let data = &data[..data.len().min(REQUEST_BYTES_MAX)];
    let mut aligned = Box::new(Aligned([0; REQUEST_BYTES_MAX]));
    aligned.0[..data.len()].copy_from_slice(data);
    fuser::fuzzing::request(&aligned.0[..data.len()]);
    if data.len() >= 4 {
        aligned.0[..4].copy_from_slice(&(data.len() as u32).to_ne_bytes());
        fuser::fuzzing::request(&aligned.0[..data.len()]);
    }
}

/// Device numbers, modes and flags as the kernel has them, and names of attributes.
pub fn fuse_words(data: &[u8]) {
    for word in data.chunks_exact(4).filter_map(<[u8]>::first_chunk).map(|word| u32::from_ne_bytes(*word)) {
        assert_eq!(convert::encode_dev(convert::decode_dev(word)), word);
        let _ = convert::kind_of_mode(word);
        let _ = convert::allocate_mode(word as i32);
        let _ = xattr::mode(word as i32);
    }
    if let Ok(name) = xattr::name(OsStr::from_bytes(data)) {
        assert_eq!(name, data);
    }
}
