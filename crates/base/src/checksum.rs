//! Block checksums: XXH3-64, seeded so that a block is bound to where it belongs.
//!
//! A checksum of the bytes alone cannot tell a stale or misdirected block from the right one.
//! Callers derive the seed from the identity and the position of the block ([`seed`]).

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The checksum of `data` at the place that `seed` stands for.
#[inline]
pub fn checksum(seed: u64, data: &[u8]) -> u64 {
    xxh3_64_with_seed(data, seed)
}

/// A seed that binds a checksum to an object (`id`) and a position within it.
#[inline]
pub fn seed(id: &[u8], position: u64) -> u64 {
    // Odd multiplier (2^64 / golden ratio): neighbouring positions get unrelated seeds.
    xxh3_64(id) ^ position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_and_identity_matter() {
        let data = [7u8; 4096];
        let at = |id: &[u8], position| checksum(seed(id, position), &data);
        assert_ne!(at(b"a", 0), at(b"a", 1));
        assert_ne!(at(b"a", 0), at(b"b", 0));
        assert_eq!(at(b"a", 3), at(b"a", 3));
    }
}
