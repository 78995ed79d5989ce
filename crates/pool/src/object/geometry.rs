//! Where the bytes of an object lie within its shards. Pure arithmetic.
//!
//! An object is cut into stripes of `k` data units of [`UNIT_BYTES`]; parity units are computed
//! per stripe. The last stripe uses a smaller unit, so that small objects and tails spread evenly
//! instead of wasting parity. Within a shard its units follow each other (shard-local space), cut
//! into blocks of [`BLOCK_BYTES`]; each block is followed by its checksum.
//!
//! - `geometry.block_within_a_unit`: a unit starts on a block boundary of its shard, so a block
//!   never straddles units.
//! - `geometry.same_range_everywhere`: all shards of an object share one local geometry. Local
//!   range `r` of one shard is reconstructed from local range `r` of `k` others; shorter shards
//!   read as zeros there.

use std::ops::Range;

/// A range read of 128 KiB touches one unit seven times of eight.
pub const UNIT_BYTES: u64 = 1 << 20;
/// Bytes covered by one checksum.
pub const BLOCK_BYTES: u64 = 32 << 10;
pub const CHECKSUM_BYTES: u64 = 8;
/// Units of a last stripe are a multiple of this.
const TAIL_ALIGN_BYTES: u64 = 4096;
/// Objects up to this size are mirrored instead of striped.
pub const MIRROR_BYTES_MAX: u64 = 128 << 10;
/// Largest object: far above real sizes, far below overflow.
pub const OBJECT_BYTES_MAX: u64 = 1 << 50;

const _: () = assert!(UNIT_BYTES.is_multiple_of(BLOCK_BYTES) && BLOCK_BYTES.is_multiple_of(TAIL_ALIGN_BYTES));

/// The shape of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size: u64,
    pub k: u8,
    pub m: u8,
}

/// A run of object bytes that lies contiguously in one data shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub shard: u8,
    /// Shard-local bytes.
    pub local: Range<u64>,
    /// The object offset of `local.start`.
    pub object: u64,
}

impl Geometry {
    pub fn shards(&self) -> u8 {
        self.k + self.m
    }

    pub fn stripe_bytes(&self) -> u64 {
        UNIT_BYTES * u64::from(self.k)
    }

    /// Stripes of full size.
    pub fn stripes_full(&self) -> u64 {
        self.size / self.stripe_bytes()
    }

    fn tail_bytes(&self) -> u64 {
        self.size % self.stripe_bytes()
    }

    /// Bytes of a unit of stripe `stripe` (of the first, where the last stripe has shorter ones).
    pub fn unit_bytes(&self, stripe: u64) -> u64 {
        if stripe < self.stripes_full() {
            return UNIT_BYTES;
        }
        let tail = self.tail_bytes();
        if self.k == 1 { tail } else { tail.div_ceil(u64::from(self.k)).next_multiple_of(TAIL_ALIGN_BYTES) }
    }

    /// Object bytes of data unit `unit` of `stripe`.
    pub fn unit_range(&self, stripe: u64, unit: u8) -> Range<u64> {
        let bytes = self.unit_bytes(stripe);
        let start = stripe * self.stripe_bytes() + u64::from(unit) * bytes;
        start.min(self.size)..(start + bytes).min(self.size)
    }

    /// Data bytes in shard `index`, without checksums.
    pub fn shard_bytes(&self, index: u8) -> u64 {
        let full = self.stripes_full();
        let tail = if self.tail_bytes() == 0 {
            0
        } else if index < self.k {
            let range = self.unit_range(full, index);
            range.end - range.start
        } else {
            self.unit_bytes(full).min(self.tail_bytes())
        };
        full * UNIT_BYTES + tail
    }

    /// Bytes of the file behind shard `index`, given the length of its header.
    pub fn file_bytes(&self, index: u8, header_bytes: u64) -> u64 {
        let data = self.shard_bytes(index);
        header_bytes + data + data.div_ceil(BLOCK_BYTES) * CHECKSUM_BYTES
    }

    /// Where `range` of the object lies, in object order. With `k = 1` the shard is 0, which
    /// stands for any copy.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let end = range.end.min(self.size);
        let mut at = range.start;
        while at < end {
            let stripe = at / self.stripe_bytes();
            let unit_bytes = self.unit_bytes(stripe);
            let within = at - stripe * self.stripe_bytes();
            let unit = within / unit_bytes;
            assert!(unit < u64::from(self.k), "`geometry.block_within_a_unit`: a stripe has `k` data units");
            let unit_end = (stripe * self.stripe_bytes() + (unit + 1) * unit_bytes).min(end);
            let local = stripe * UNIT_BYTES + within % unit_bytes;
            match pieces.last_mut() {
                Some(last) if u64::from(last.shard) == unit && last.local.end == local && self.k == 1 => {
                    last.local.end = local + (unit_end - at);
                }
                _ => pieces.push(Piece { shard: unit as u8, local: local..local + (unit_end - at), object: at }),
            }
            at = unit_end;
        }
        pieces
    }

    /// `local` widened to whole blocks of shard `index`.
    pub fn whole_blocks(&self, index: u8, local: &Range<u64>) -> Range<u64> {
        let start = local.start / BLOCK_BYTES * BLOCK_BYTES;
        start..local.end.next_multiple_of(BLOCK_BYTES).min(self.shard_bytes(index)).max(start)
    }
}

/// Where block `block` of a shard lies in its file.
pub fn block_offset(header_bytes: u64, block: u64) -> u64 {
    header_bytes + block * (BLOCK_BYTES + CHECKSUM_BYTES)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_a_range_once(
            size in 0u64..40 << 20, k in 1u8..9, m in 0u8..4, a in 0u64..40 << 20, b in 0u64..40 << 20,
        ) {
            let geometry = Geometry { size, k, m };
            let range = a.min(b).min(size)..a.max(b).min(size);
            let mut at = range.start;
            for piece in geometry.pieces(range.clone()) {
                prop_assert_eq!(piece.object, at);
                prop_assert!(piece.shard < k);
                prop_assert!(piece.local.end <= geometry.shard_bytes(piece.shard));
                let whole = geometry.whole_blocks(piece.shard, &piece.local);
                prop_assert!(whole.start <= piece.local.start && whole.end >= piece.local.end);
                at += piece.local.end - piece.local.start;
            }
            prop_assert_eq!(at, range.end);
            let total: u64 = (0..k).map(|i| geometry.shard_bytes(i)).sum();
            prop_assert_eq!(total, size);
            for parity in k..k + m {
                prop_assert!((0..k).all(|i| geometry.shard_bytes(i) <= geometry.shard_bytes(parity)), "`geometry.same_range_everywhere`");
            }
        }
    }

    #[test]
    fn tails_spread() {
        let geometry = Geometry { size: (2 << 20) + 10_000, k: 2, m: 1 };
        assert_eq!(geometry.unit_bytes(1), 8192);
        assert_eq!(geometry.shard_bytes(0), (1 << 20) + 8192);
        assert_eq!(geometry.shard_bytes(1), (1 << 20) + 1808);
        assert_eq!(geometry.shard_bytes(2), (1 << 20) + 8192);
    }
}
