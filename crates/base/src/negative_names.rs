//! Names that a directory surely does not hold.
//!
//! A client that fills a new directory asks for each name before making it. To answer that there is
//! none, the engine searches all its young tables: a third of the cost of a creation. A directory
//! that was empty while in memory knows its names since then.
//!
//! - `negative.every_name_is_in`: while a directory has a set, the set holds each of its names and
//!   that name folded. It is a Bloom filter: of names that are not there it takes one in a hundred
//!   for one that may be, and the engine is then asked for a name that is not there, which is
//!   correct. Removals leave their names behind, with the same effect.
//! - `negative.kept_under_core`: every addition of an entry updates the set under the directory's
//!   `core`, before the batch is submitted.
//! - `negative.bounded`: the set is dropped with the inode, and when it or all sets together grow
//!   too large. A directory without a set asks the engine.
//!
//! Two bytes a name, so that a directory of a million files still has its set: without it, each
//! creation in a large directory searches all tables of the engine.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checksum::checksum;

/// Filters of one directory: five and a half million names.
const DIRECTORY_BYTES_MAX: usize = 12 << 20;
/// Filters of all directories of the process.
const ALL_BYTES_MAX: usize = 24 << 20;
/// A name sets one bit of each word of one block, which is one line of the processor's cache.
const BLOCK_WORDS: usize = 8;
const BLOCK_BYTES: usize = BLOCK_WORDS * 8;
/// Two bytes a name: of names that are not there, a full layer takes one in a thousand for there.
const NAMES_PER_BLOCK: usize = BLOCK_BYTES / 2;
/// The first layer has room for 64 names, each further one for four times as many as the one before.
const FIRST_BLOCKS: usize = 2;
const GROWTH: usize = 4;

static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Layers of a Bloom filter; all but the last are full.
#[derive(Default)]
pub struct NegativeNames {
    layers: Vec<Layer>,
    bytes: usize,
}

struct Layer {
    blocks: Box<[[u64; BLOCK_WORDS]]>,
    names_left: usize,
}

/// The bit of a name in each word of its block, and the number that chooses the block.
struct Bits {
    chooses: u64,
    bits: [u64; BLOCK_WORDS],
}

impl Bits {
    fn of(name: &[u8]) -> Bits {
        let hash = checksum(0, name);
        // The block comes from the upper half of the hash, the bits from its product with an odd number.
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bits = std::array::from_fn(|word| 1 << (mixed >> (16 + 6 * word) & 63));
        Bits { chooses: hash >> 32, bits }
    }
}

impl Layer {
    fn new(blocks: usize) -> Layer {
        let names_left = blocks * NAMES_PER_BLOCK;
        Layer { blocks: vec![[0; BLOCK_WORDS]; blocks].into_boxed_slice(), names_left }
    }

    /// The place of a name's block: `chooses` scaled to their number.
    fn place(&self, name: &Bits) -> usize {
        ((name.chooses * self.blocks.len() as u64) >> 32) as usize
    }

    fn may_hold(&self, name: &Bits) -> bool {
        let block = self.blocks.get(self.place(name));
        block.is_some_and(|block| block.iter().zip(&name.bits).all(|(word, bit)| word & bit != 0))
    }

    fn insert(&mut self, name: &Bits) {
        let place = self.place(name);
        if let Some(block) = self.blocks.get_mut(place) {
            block.iter_mut().zip(&name.bits).for_each(|(word, bit)| *word |= bit);
        }
        self.names_left -= 1;
    }
}

impl NegativeNames {
    /// Whether the set may hold the name. `false` is certain.
    pub fn may_hold(&self, name: &[u8]) -> bool {
        self.holds(&Bits::of(name))
    }

    fn holds(&self, name: &Bits) -> bool {
        // The last layer has most of the names.
        self.layers.iter().rev().any(|layer| layer.may_hold(name))
    }

    /// `false` where there is no room: the set lacks the name then.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        let name = Bits::of(name);
        if self.holds(&name) {
            return true;
        }
        if self.layers.last().is_none_or(|layer| layer.names_left == 0) {
            let blocks = self.layers.last().map_or(FIRST_BLOCKS, |layer| layer.blocks.len() * GROWTH);
            let bytes = blocks * BLOCK_BYTES;
            self.bytes += bytes;
            let all = ALL_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if self.bytes > DIRECTORY_BYTES_MAX || all > ALL_BYTES_MAX {
                return false;
            }
            self.layers.push(Layer::new(blocks));
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.insert(&name);
        }
        true
    }
}

impl Drop for NegativeNames {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_a_million_names_lacks_all_but_few_of_the_others() {
        let mut names = NegativeNames::default();
        let name = |at: usize| format!("file {at}").into_bytes();
        assert!((0..1_000_000).all(|at| names.insert(&name(at))));
        assert!((0..1_000_000).step_by(97).all(|at| names.may_hold(&name(at))));
        let unsure = (1_000_000..1_100_000).filter(|&at| names.may_hold(&name(at))).count();
        assert!(unsure < 1_000, "{unsure} of 100,000 names that are not there are taken for there");
        assert!((1_000_000..DIRECTORY_BYTES_MAX).contains(&names.bytes), "{}", names.bytes);
    }

    #[test]
    fn too_many_names_are_given_up() {
        let mut names = NegativeNames::default();
        let held = (0..u64::MAX).take_while(|at| names.insert(&at.to_le_bytes())).count();
        assert!((5_000_000..6_000_000).contains(&held), "{held}");
        let all = ALL_BYTES.load(Ordering::Relaxed);
        let own = names.bytes;
        drop(names);
        assert!(own > DIRECTORY_BYTES_MAX && all >= own);
    }
}
