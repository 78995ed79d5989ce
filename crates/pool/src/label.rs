//! Labels: what each disk knows about its pool, and which label to believe.
//!
//! The file `larder.label`, and its copy `larder.label.2` for when the first is damaged, is a fixed header (magic, version, length, checksum) and a JSON body,
//! so that a person can read it. It is replaced atomically on every disk that is in use whenever
//! membership or the state of a disk changes, with a higher generation.
//!
//! B1. A label of generation g names, in `history`, the generations it descends from. A label
//!     that is in the winner's history is merely old; one that is not comes from a split.
//! B2. The newest label wins. After a split the side with more disks wins, then the newer.
//! B3. A member is in sync unless the winning label says that it missed writes or its own label
//!     lies off the winner's history. Only in-sync disks decide what exists.

use std::collections::BTreeMap;
use std::path::PathBuf;

use larder_base::checksum::checksum;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::{self, DiskIo};
use crate::layout::{DISKS_MAX, Layout};
use crate::shard::Reader;

pub const LABEL_NAME: &str = "larder.label";
/// Written after the first; used when the first does not decode. At worst it is merely old (B1).
pub const SECOND_NAME: &str = "larder.label.2";
const MAGIC: [u8; 8] = *b"LARDLABL";
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
/// Bounds what is read on the word of a length field: 32 members need a tenth of it.
const LABEL_BYTES_MAX: u64 = 256 << 10;
const HISTORY_MAX: usize = 64;
const DAMAGED: &str = "its label is damaged";
pub const NEWER: &str = "its label was written by a newer larder";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub pool: Uuid,
    pub name: String,
    pub layout: Layout,
    pub width: u8,
    /// The disk that carries this label.
    pub disk: Uuid,
    pub generation: u64,
    /// Tells apart two labels of one generation written by different processes.
    pub nonce: u64,
    /// The (generation, nonce) pairs before this one, newest first (B1).
    pub history: Vec<(u64, u64)>,
    pub members: Vec<Member>,
    /// The disks whose journal copies are current.
    pub journal: Vec<Uuid>,
    pub journal_bytes: u64,
    pub usage: Usage,
    pub created_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub id: Uuid,
    /// Where it was last seen: a hint.
    pub path: PathBuf,
    pub in_sync: bool,
    /// Its label was damaged: in doubt until each shard on it has been verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspect: bool,
}

/// Who has the pool open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// Open, or not closed properly.
    Open {
        host: String,
        host_id: String,
    },
    Closed {
        host: String,
        host_id: String,
    },
    Exported,
}

impl Label {
    pub fn encode(&self) -> Vec<u8> {
        // A struct of strings and numbers always serialises.
        let body = serde_json::to_vec_pretty(self).unwrap_or_default();
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&checksum(u64::from(FORMAT_VERSION), &body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        let damaged = DAMAGED;
        if reader.take(8) != Some(&MAGIC) {
            return Err("its label is no larder label");
        }
        let version = reader.u32().ok_or(damaged)?;
        let length = reader.u32().ok_or(damaged)?;
        let sum = reader.u64().ok_or(damaged)?;
        let body = reader.take(length as usize).ok_or(damaged)?;
        if checksum(u64::from(version), body) != sum {
            return Err(damaged);
        }
        // The checksum covers the version: this is no flipped bit.
        if version != FORMAT_VERSION {
            return Err(NEWER);
        }
        let label: Self = serde_json::from_slice(body).map_err(|_| damaged)?;
        label.is_sane().then_some(label).ok_or(damaged)
    }

    fn is_sane(&self) -> bool {
        let members = self.members.len();
        (1..=DISKS_MAX).contains(&members)
            && self.members.iter().any(|member| member.id == self.disk)
            && self.width > self.layout.failures()
            && usize::from(self.width) <= DISKS_MAX
            && self.journal_bytes <= 1 << 40
    }

    /// The next generation of this label.
    pub fn advance(&mut self, nonce: u64) {
        self.history.insert(0, (self.generation, self.nonce));
        self.history.truncate(HISTORY_MAX);
        self.generation += 1;
        self.nonce = nonce;
    }

    fn state(&self) -> (u64, u64) {
        (self.generation, self.nonce)
    }

    /// Whether `other` is this label's own state or one that it descends from (B1).
    pub fn descends_from(&self, other: &Self) -> bool {
        let oldest_known = self.history.last().map_or(self.generation, |(generation, _)| *generation);
        self.state() == other.state() || self.history.contains(&other.state()) || other.generation < oldest_known
    }
}

/// Chooses the label to believe among those of one pool (B2).
pub fn winner(labels: &[Label]) -> Option<&Label> {
    let mut supporters: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for label in labels {
        let count = labels.iter().filter(|other| label.descends_from(other)).count();
        supporters.insert(label.state(), count);
    }
    // On one line of history the newest has the most supporters: every older one and itself.
    labels.iter().max_by_key(|label| (supporters.get(&label.state()).copied(), label.generation, label.nonce))
}

/// What the label of a disk says, and whether only its second copy could be read.
pub fn read_copies(disk: &dyn DiskIo) -> std::io::Result<Result<(Label, bool), &'static str>> {
    let copy = |name| Ok(Label::decode(&disk::read_file(disk, name, LABEL_BYTES_MAX)?));
    let first: std::io::Result<Result<Label, &'static str>> = copy(LABEL_NAME);
    if matches!(first, Ok(Ok(_) | Err(NEWER))) {
        return first.map(|label| label.map(|label| (label, false)));
    }
    match copy(SECOND_NAME) {
        Ok(Ok(label)) => Ok(Ok((label, true))),
        Ok(Err(NEWER)) => Ok(Err(NEWER)),
        _ => first.map(|label| label.map(|label| (label, false))),
    }
}

pub fn read(disk: &dyn DiskIo) -> std::io::Result<Result<Label, &'static str>> {
    Ok(read_copies(disk)?.map(|(label, _)| label))
}

pub fn write(disk: &dyn DiskIo, label: &Label) -> std::io::Result<()> {
    let bytes = label.encode();
    disk::write_file_atomically(disk, LABEL_NAME, &bytes)?;
    disk::write_file_atomically(disk, SECOND_NAME, &bytes)
}

/// Takes the label away again.
pub fn remove(disk: &dyn DiskIo) {
    // What cannot be removed was most likely never written.
    let _ = disk.remove(LABEL_NAME);
    let _ = disk.remove(SECOND_NAME);
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub fn example(disk: u128) -> Label {
        let member =
            |id| Member { id: Uuid::from_u128(id), path: format!("/d{id}").into(), in_sync: true, suspect: false };
        Label {
            pool: Uuid::from_u128(9),
            name: "tank".into(),
            layout: Layout::Mirror3,
            width: 3,
            disk: Uuid::from_u128(disk),
            generation: 5,
            nonce: 1,
            history: vec![(4, 1), (3, 1)],
            members: vec![member(1), member(2), member(3)],
            journal: vec![Uuid::from_u128(1)],
            journal_bytes: 1 << 20,
            usage: Usage::Exported,
            created_ms: 0,
        }
    }

    #[test]
    fn a_label_round_trips_and_damage_is_noticed() {
        let label = example(1);
        let bytes = label.encode();
        assert_eq!(&bytes[..16], b"LARDLABL\x01\0\0\0\xe9\x02\0\0", "golden");
        assert_eq!(Label::decode(&bytes), Ok(label));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Label::decode(&bad).is_err(), "byte {at}");
            assert!(Label::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn the_newest_label_wins_even_alone_unless_history_split() {
        let old = example(1);
        let mut new = example(2);
        new.advance(7);
        assert_eq!(winner(&[old.clone(), new.clone(), example(3)]), Some(&new), "one newer among three");
        assert!(new.descends_from(&old));
        // Disk 3 ran alone from generation 5 with another nonce, for longer.
        let mut split = example(3);
        (0..4).for_each(|i| split.advance(100 + i));
        let mut newer = example(1);
        newer.advance(7);
        assert_eq!(winner(&[newer.clone(), new.clone(), split.clone()]).map(|l| l.generation), Some(6));
        assert!(!new.descends_from(&split));
    }
}
