//! Where the bytes of an object lie within its shards. Pure arithmetic.
//!
//! An object is cut into stripes of `k` data units of [`UNIT_BYTES`]; parity units are computed
//! per stripe. The last stripe uses a smaller unit, so that small objects and tails spread evenly
//! instead of wasting parity. Within a shard its units follow each other (shard-local space), cut
//! into blocks of [`BlockSize`] bytes; each block is followed by its checksum.
//!
//! - `geometry.block_within_a_unit`: a unit starts on a block boundary of its shard, so a block
//!   never straddles units.
//! - `geometry.same_range_everywhere`: all shards of an object share one local geometry. Local
//!   range `r` of one shard is reconstructed from local range `r` of `k` others; shorter shards
//!   read as zeros there.

use std::ops::Range;

/// A range read of 128 KiB touches one unit seven times of eight.
pub const UNIT_BYTES: u64 = 1 << 20;
pub const CHECKSUM_BYTES: u64 = 8;
/// Objects up to this size are mirrored instead of striped.
pub const MIRROR_BYTES_MAX: u64 = 128 << 10;
/// Largest object: far above real sizes, far below overflow.
pub const OBJECT_BYTES_MAX: u64 = 1 << 50;

/// Bytes covered by one checksum. The names of an object's shards say which, so a reader knows it
/// without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// Every object written from now on: a read of 4 KiB brings one such block.
    Kib8 = 13,
    /// Objects written before there was a choice.
    Kib32 = 15,
}

const _: () = assert!(UNIT_BYTES.is_multiple_of(BLOCK_BYTES_MAX));
pub const BLOCK_BYTES_MAX: u64 = BlockSize::Kib32.bytes();

impl BlockSize {
    pub const NEW: Self = Self::Kib8;

    pub const fn bytes(self) -> u64 {
        1 << self as u8
    }

    /// Units of a last stripe are a multiple of this. With small blocks, what lies on a multiple of
    /// one in the object lies so in its shard.
    const fn tail_align_bytes(self) -> u64 {
        match self {
            Self::Kib8 => 8 << 10,
            Self::Kib32 => 4 << 10,
        }
    }

    pub fn from_bytes(bytes: u64) -> Option<Self> {
        [Self::Kib8, Self::Kib32].into_iter().find(|size| size.bytes() == bytes)
    }
}

/// The shape of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size: u64,
    pub k: u8,
    pub m: u8,
    pub block: BlockSize,
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
    /// Of an object that is written now.
    pub fn new(size: u64, k: u8, m: u8) -> Self {
        Self { size, k, m, block: BlockSize::NEW }
    }

    pub fn block_bytes(&self) -> u64 {
        self.block.bytes()
    }

    /// A block in its file.
    pub fn stored_block_bytes(&self) -> u64 {
        self.block_bytes() + CHECKSUM_BYTES
    }

    /// Where block `block` of a shard lies in its file.
    pub fn block_offset(&self, header_bytes: u64, block: u64) -> u64 {
        header_bytes + block * self.stored_block_bytes()
    }

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
        if self.k == 1 {
            tail
        } else {
            tail.div_ceil(u64::from(self.k)).next_multiple_of(self.block.tail_align_bytes())
        }
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
        header_bytes + data + data.div_ceil(self.block_bytes()) * CHECKSUM_BYTES
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
        let start = local.start / self.block_bytes() * self.block_bytes();
        start..local.end.next_multiple_of(self.block_bytes()).min(self.shard_bytes(index)).max(start)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_a_range_once(
            size in 0u64..40 << 20, k in 1u8..9, m in 0u8..4, a in 0u64..40 << 20, b in 0u64..40 << 20, old: bool,
        ) {
            let block = if old { BlockSize::Kib32 } else { BlockSize::Kib8 };
            let geometry = Geometry { size, k, m, block };
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
        let geometry = Geometry::new((2 << 20) + 10_000, 2, 1);
        assert_eq!(geometry.unit_bytes(1), 8192);
        assert_eq!(geometry.shard_bytes(0), (1 << 20) + 8192);
        assert_eq!(geometry.shard_bytes(1), (1 << 20) + 1808);
        assert_eq!(geometry.shard_bytes(2), (1 << 20) + 8192);
    }
}
