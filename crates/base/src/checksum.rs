//! Block checksums: XXH3-64, seeded so that a block is bound to where it belongs.
//!
//! A checksum of the bytes alone cannot tell a stale or misdirected block from the right one.
//! Callers derive the seed from the identity and the position of the block ([`seed`]).
//!
//! The library looks at the processor when it runs (AVX2, else SSE2; NEON): one binary is fast on all.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// The checksum of `data` at the place that `seed` stands for.
#[inline]
pub fn checksum(seed: u64, data: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, data)
}

/// The checksum of what `slices` are together.
pub fn checksum_slices<'a>(seed: u64, mut slices: impl Iterator<Item = &'a [u8]>) -> u64 {
    let first = slices.next().unwrap_or_default();
    let Some(second) = slices.next() else { return checksum(seed, first) };
    let mut hasher = XxHash3_64::with_seed(seed);
    hasher.write(first);
    hasher.write(second);
    slices.for_each(|slice| hasher.write(slice));
    hasher.finish()
}

/// An extension of a request to read from a store: the caller verifies all bytes by checksums of its own, and asks
/// again without this extension where they fail. So the store need not verify them.
#[derive(Clone, Copy, Debug)]
pub struct CallerVerifies;

/// A seed that binds a checksum to an object (`id`) and a position within it.
#[inline]
pub fn seed(id: &[u8], position: u64) -> u64 {
    // Odd multiplier (2^64 / golden ratio): neighbouring positions get unrelated seeds.
    XxHash3_64::oneshot(id) ^ position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
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

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 37 + i / 251) as u8).collect()
    }

    /// Golden: checksums are on disks. Lengths around those where the algorithm changes its way.
    #[test]
    fn golden() {
        let of = |length| checksum(0x9E37_79B9_7F4A_7C15, &pattern(length));
        let expected = [
            (0, 0x602b0e2cd6662c8b),
            (1, 0x062b185e4e01441a),
            (8, 0xc6f554da7f7f5f46),
            (16, 0x5f387baae4409a82),
            (17, 0xbd2b8040c6cba43a),
            (128, 0xc52e1d4f32ba58a2),
            (129, 0x77af975df4cf2ad2),
            (240, 0x392a79c5d7932cc8),
            (241, 0x8e2eb165c4e6bafc),
            (1024, 0xb9b9bb261084f29b),
            (4096, 0xd7703ffe41160425),
            (32768, 0x72bae08bae34d32d),
            (100003, 0x5db9cdb0108e5536),
        ];
        for (length, sum) in expected {
            assert_eq!(of(length), sum, "{length} bytes: {:#018x}", of(length));
        }
    }

    /// Another implementation of the same hash agrees, in one piece and in several.
    #[test]
    fn the_reference_agrees() {
        for length in (0..1100).chain([4096, 32 << 10, (32 << 10) + 5, 100_003]) {
            let data = pattern(length);
            for seed in [0, 1, 0x9E37_79B9_7F4A_7C15, u64::MAX] {
                let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&data, seed);
                assert_eq!(checksum(seed, &data), sum, "{length} bytes");
                let pieces = data.chunks(length / 3 + 1);
                assert_eq!(checksum_slices(seed, pieces), sum, "{length} bytes in pieces");
            }
        }
        assert_eq!(seed(b"pantry", 0) ^ 0x9E37_79B9_7F4A_7C15, xxhash_rust::xxh3::xxh3_64(b"pantry"));
    }
}
