//! One file of a simulated disk: the bytes that a reader sees, those that would survive a power cut, and those in between.
//!
//! - `simfile.unsynced_may_survive`: until a sync, each write and each change of length may survive
//!   or not. Each is decided by itself, in pieces of whole sectors.
//! - `simfile.no_other_bytes`: the bytes that survive in a file are its durable bytes and bytes
//!   written since. No other bytes ever show up.

use rand::Rng;
use rand::rngs::StdRng;

/// A change that no sync has covered.
#[derive(Clone, Debug)]
enum Pending {
    Write {
        offset: u64,
        bytes: Vec<u8>,
        /// Past the cache, into blocks that exist: durable with any flush of the device.
        is_in_device: bool,
    },
    Length(u64),
}

/// The part of unsynced changes that survives a power cut.
#[derive(Clone, Copy, Debug)]
pub enum Survival {
    Nothing,
    Everything,
    /// Each piece with this chance out of 256.
    Each(u8),
    /// Changes before some moment.
    Before,
}

impl Survival {
    pub fn choose(random: &mut StdRng) -> Self {
        match random.random_range(0..6) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 => Self::Before,
            3 => Self::Each(230),
            4 => Self::Each(26),
            _ => Self::Each(128),
        }
    }

    /// For `count` changes in order: a test of whether a piece of change `at` survives.
    pub fn judge<'a>(self, count: usize, random: &'a mut StdRng) -> impl FnMut(usize) -> bool + 'a {
        let until = if count == 0 { 0 } else { random.random_range(0..=count) };
        move |at| match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Each(chance) => random.random::<u8>() < chance,
            Self::Before if at + 1 == until => random.random(),
            Self::Before => at < until,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

impl Content {
    pub fn bytes(&self) -> &[u8] {
        &self.now
    }

    pub fn len(&self) -> u64 {
        self.now.len() as u64
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8], is_direct: bool) {
        put(&mut self.now, offset, bytes);
        let end = offset + bytes.len() as u64;
        let is_in_device = is_direct && end <= self.durable.len() as u64;
        self.pending.push(Pending::Write { offset, bytes: bytes.to_vec(), is_in_device });
    }

    pub fn truncate(&mut self) {
        if !self.now.is_empty() {
            self.now.clear();
            self.pending.push(Pending::Length(0));
        }
    }

    /// As `fallocate`: zeros up to `length`.
    pub fn allocate(&mut self, length: u64) {
        if self.len() < length {
            self.now.resize(length as usize, 0);
            self.pending.push(Pending::Length(length));
        }
    }

    pub fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &change);
        }
    }

    /// The device was flushed for the sake of another file.
    pub fn flush_device(&mut self) {
        let mut later = Vec::new();
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Write { is_in_device: true, .. } => apply(&mut self.durable, &change),
                _ => later.push(change),
            }
        }
        self.pending = later;
    }

    /// A sync that failed: what was to be written is forgotten in part, though readers still see it.
    pub fn fail_sync(&mut self, random: &mut StdRng) {
        self.pending.retain(|_| random.random());
    }

    /// Power is cut.
    pub fn crash(&mut self, survival: Survival, sector_bytes: u64, random: &mut StdRng) {
        let pending = std::mem::take(&mut self.pending);
        let mut survives = survival.judge(pending.len(), random);
        for (at, change) in pending.iter().enumerate() {
            match change {
                Pending::Length(_) if survives(at) => apply(&mut self.durable, change),
                Pending::Length(_) => {}
                Pending::Write { offset, bytes, .. } => {
                    for (start, piece) in sectors(*offset, bytes, sector_bytes) {
                        if survives(at) {
                            put(&mut self.durable, start, piece);
                        }
                    }
                }
            }
        }
        self.now.clone_from(&self.durable);
    }

    /// Flips one bit where it lies: nobody is told.
    pub fn rot(&mut self, random: &mut StdRng) -> Option<u64> {
        if self.durable.is_empty() {
            return None;
        }
        let at = random.random_range(0..self.durable.len());
        let bit = 1u8 << random.random_range(0..8);
        self.durable[at] ^= bit;
        if let Some(byte) = self.now.get_mut(at) {
            *byte ^= bit;
        }
        Some(at as u64)
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Pending) {
    match change {
        Pending::Write { offset, bytes: new, .. } => put(bytes, *offset, new),
        Pending::Length(length) => bytes.resize(*length as usize, 0),
    }
}

fn put(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + new.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(new);
}

/// `bytes` cut at the borders of sectors.
fn sectors(offset: u64, bytes: &[u8], sector_bytes: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = offset + at as u64;
        let room = (sector_bytes - start % sector_bytes) as usize;
        let end = (at + room).min(bytes.len());
        let piece = bytes.get(at..end).filter(|piece| !piece.is_empty())?;
        at = end;
        Some((start, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::generator;

    fn after_crash(content: &Content, survival: Survival, seed: u64) -> Vec<u8> {
        let mut copy = content.clone();
        copy.crash(survival, 4, &mut generator(seed, "test"));
        copy.bytes().to_vec()
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_may_go() {
        let mut content = Content::default();
        content.write(0, b"aaaabbbb", false);
        content.sync();
        content.write(2, b"XXXX", false);
        assert_eq!(content.bytes(), b"aaXXXXbb");
        assert_eq!(after_crash(&content, Survival::Nothing, 1), b"aaaabbbb");
        assert_eq!(after_crash(&content, Survival::Everything, 1), b"aaXXXXbb");
        let torn: std::collections::BTreeSet<Vec<u8>> =
            (0..64).map(|seed| after_crash(&content, Survival::Each(128), seed)).collect();
        let expected = [b"aaaabbbb", b"aaXXXXbb", b"aaXXbbbb", b"aaaaXXbb"].map(|bytes| bytes.to_vec());
        assert_eq!(torn, expected.into(), "torn at sectors, in any combination");
    }

    #[test]
    fn lengths_are_changes_too() {
        let mut content = Content::default();
        content.write(0, b"aaaa", false);
        content.sync();
        content.truncate();
        content.write(4, b"bbbb", false);
        let seen: std::collections::BTreeSet<Vec<u8>> =
            (0..64).map(|seed| after_crash(&content, Survival::Each(128), seed)).collect();
        let expected = [b"aaaa".to_vec(), b"".to_vec(), b"aaaabbbb".to_vec(), b"\0\0\0\0bbbb".to_vec()];
        assert_eq!(seen, expected.into());
    }

    #[test]
    fn a_flush_of_the_device_covers_direct_writes_into_old_blocks_only() {
        let mut content = Content::default();
        content.write(0, &[0; 8], false);
        content.sync();
        content.write(0, b"aaaa", true);
        content.write(4, b"bbbb", false);
        content.write(8, b"cccc", true);
        content.flush_device();
        assert_eq!(after_crash(&content, Survival::Nothing, 1), b"aaaa\0\0\0\0");
        content.sync();
        assert_eq!(after_crash(&content, Survival::Nothing, 1), b"aaaabbbbcccc");
    }
}
