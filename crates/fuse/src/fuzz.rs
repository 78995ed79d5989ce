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

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    /// Integers of these widths, little-endian.
    fn packed(fields: &[(u64, usize)]) -> Vec<u8> {
        fields.iter().flat_map(|(value, width)| value.to_le_bytes()[..*width].to_vec()).collect()
    }

    /// A body of fixed fields and what follows them.
    fn body(fields: &[(u64, usize)], rest: &[u8]) -> Vec<u8> {
        [&packed(fields)[..], rest].concat()
    }

    /// A request of the kernel: its header, then what its opcode wants.
    fn kernel(opcode: u64, rest: &[u8]) -> Vec<u8> {
        let length = 40 + rest.len() as u64;
        body(&[(length, 4), (opcode, 4), (7, 8), (1, 8), (0, 4), (0, 4), (9, 4), (0, 4)], rest)
    }

    #[test]
    fn fuzz_fuse_request() {
        let write = body(&[(3, 8), (0, 8), (5, 4), (0, 4), (0, 8), (0, 4), (0, 4)], b"bytes");
        let seeds = [
            kernel(1, b"name\0"),
            kernel(3, &[0; 16]),
            kernel(4, &[0; 88]),
            kernel(6, b"link\0target\0"),
            kernel(8, &body(&[(0o100_644, 4), (0, 4), (0, 4), (0, 4)], b"node\0")),
            kernel(16, &write),
            kernel(21, &body(&[(5, 4), (0, 4)], b"user.a\0value")),
            kernel(26, &[0; 64]),
            kernel(42, &body(&[(2, 4), (0, 4)], &[1; 32])),
            kernel(45, &body(&[(1, 8), (0, 4), (0, 4)], b"from\0to\0")),
        ];
        drive("fuse_request", &seeds, super::fuse_request);
    }

    #[test]
    fn fuzz_fuse_words() {
        let words = packed(&[(0o100_644, 4), (0x103, 4), (0x11, 4), (2, 4)]);
        drive("fuse_words", &[words, b"user.colour".to_vec()], super::fuse_words);
    }
}
