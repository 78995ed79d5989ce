//! Labels: what each disk knows about its pool, and which label to believe.
//!
//! The file `larder.label` is a fixed header (magic, version, length, checksum) and a JSON body, so
//! that a person can read it. `larder.label.2` is its copy for when the first is damaged. A label
//! is replaced atomically, with a higher generation, on every disk in use whenever membership or
//! the state of a disk changes.
//!
//! - `label.old_or_split`: a label of generation g names, in `history`, the generations it descends
//!   from. A label in the winner's history is merely old; one outside it comes from a split.
//! - `label.newest_wins`: the newest label wins. After a split the side that fewer disks lack wins
//!   first: a side that went on without a disk said so on all disks that it had. Then the side with
//!   more disks wins, then the newer. A label loses if more of the disks that it calls in sync lack
//!   it than the layout can spare: writing it was cut short, and no data came after it. A disk
//!   whose label is older than one that it had (`label.settled_outlives`), and that does not say
//!   so, is an older copy of itself and does not count.
//! - `label.in_sync_decides`: a member is in sync unless the winning label says that it missed
//!   writes, its own label lies off the winner's history, or it is rolled back
//!   (`label.settled_outlives`). Only in-sync disks decide what exists.
//! - `label.settled_outlives`: `settled` is the generation that every disk has that the label calls
//!   in sync. A disk in sync with an older label is an older copy of itself: it lacks later writes,
//!   and does not know.
//! - `label.journal_batch_proven`: `journal_batch` is a batch that was durable on every copy of the
//!   journal that the label names. Copies that together do not reach it have lost acknowledged
//!   changes.
//! - `label.lineage_tells_divergence`: a life of the pool begins where a disk that had everything
//!   is no longer among those that take writes. It has a random mark, and `lives` names the newest.
//!   A disk whose newest mark is not in the lineage of the pool that runs took part in a life that
//!   this pool does not know: it has diverged. It may hold acknowledged data that no other disk
//!   has, so it is neither read nor written until a person decides.
//! - `label.settled_tells_older_copies`: a disk has diverged, too, if the pool that runs never had
//!   the state that its label calls `settled`. All disks in sync had that state, so those of this
//!   pool are older copies of themselves. Labels that were cut short settle nothing by themselves.
//! - `label.announced_before_begun`: a mark is announced (`coming`) on every disk of its life before
//!   the first disk counts it, and counted on every disk before anything is acknowledged in that
//!   life. So a disk with a mark that another disk of that life lacks holds nothing that it lacks.
//! - `label.back_before_anything_goes`: a disk that comes back carries the label that says what it has missed before its first file
//!   goes. Else, with the process killed in between and the other disks away, it would open as it was, without what went.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::PathBuf;

use larder_base::checksum::checksum;
use larder_base::features::{Features, Known};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::{self, DiskIo, is_no_room};
use crate::member::life_file;
use crate::object::layout::{DISKS_MAX, Layout};
use crate::object::shard::Reader;

pub const LABEL_NAME: &str = "larder.label";
/// Written after the first, and used when the first does not decode. At worst it is merely old
/// (`label.old_or_split`).
pub const SECOND_NAME: &str = "larder.label.2";
pub const MAGIC: [u8; 8] = *b"LARDLABL";
const FORMAT_VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 24;
/// Bounds a read on the word of a length field: 32 members need a tenth of it.
const LABEL_BYTES_MAX: u64 = 256 << 10;
const HISTORY_MAX: usize = 64;
/// Lives that a label names. A disk that was away for more of them counts as diverged: a person
/// decides. Each takes some 200 bytes of a label ([`LABEL_BYTES_MAX`]).
const LIVES_MAX: usize = 256;
const DAMAGED: &str = "its label is damaged";
/// The features of labels, and of all that lies on disks, that this program knows.
pub const KNOWN: Known = Known { read_only_compatible: &[LINEAGE], incompatible: &[SMALL_BLOCKS] };
/// Labels name the lives of the pool. A program that does not know this would write labels without
/// them.
const LINEAGE: &str = "lineage";
/// Shards may lie in blocks of 8 KiB. A program that does not know this would take them for files
/// that are not the pool's.
const SMALL_BLOCKS: &str = "small-blocks";

/// The features of a pool that this program writes to: shards are written in small blocks from now
/// on, and labels have a lineage.
pub fn features_in_use(mut features: Features) -> Features {
    for (set, name) in [(&mut features.incompatible, SMALL_BLOCKS), (&mut features.read_only_compatible, LINEAGE)] {
        if !set.iter().any(|known| known == name) {
            set.push(name.to_owned());
        }
    }
    features
}
pub const NEWER: &str = "its label was written by a newer larder";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub pool: Uuid,
    pub name: String,
    pub layout: Layout,
    pub width: u8,
    /// The layout before this one, while objects of it may be left: the pool survives the failures
    /// that both survive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Layout>,
    /// All objects are to be laid out anew, as the disks and the layout are now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rebalancing: bool,
    /// Disks that wait for another to fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<Spare>,
    /// The disk that carries this label.
    pub disk: Uuid,
    pub generation: u64,
    /// Tells apart two labels of one generation written by different processes.
    pub nonce: u64,
    /// The (generation, nonce) pairs before this one, newest first (`label.old_or_split`).
    pub history: Vec<(u64, u64)>,
    pub members: Vec<Member>,
    /// The disks whose journal copies are current.
    pub journal: Vec<Uuid>,
    pub journal_bytes: u64,
    /// The newest generation that is durable on every disk that it calls in sync
    /// (`label.settled_outlives`). 0: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub settled: u64,
    /// A batch that is durable on every copy of the journal (`label.journal_batch_proven`). 0: none
    /// is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub journal_batch: u64,
    /// A person opened the pool although its journal could not be proven whole. Nothing is swept
    /// until this is cleared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
    /// When the pool was closed, objects lacked shards that had never been written
    /// (`repair.owed_until_given`): at the next opening a missing shard accuses no disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owing: bool,
    pub usage: Usage,
    pub created_ms: u64,
    /// When this label was written. It never goes back, whatever the clock does. 0: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written_ms: u64,
    /// The lives of the pool, newest first (`label.lineage_tells_divergence`). None: an older
    /// program wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// The life that begins once each disk of it knows its mark (`label.announced_before_begun`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coming: Option<Life>,
    /// The disks that have everything of the newest life.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub present: BTreeSet<Uuid>,
    /// Features that a program must know to read or write this pool.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
}

/// A life of the pool: a time in which no disk that had everything left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Random: two sides of a split never draw the same.
    pub mark: u64,
    /// When it began.
    pub since_ms: u64,
    /// The last batch of the journal before it, as far as was known.
    pub batch: u64,
    /// The generation of the label that announced it. 0: an older program began it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// When the label before that one was written. 0: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before_ms: u64,
}

/// A disk that has diverged, as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diverged {
    /// Its newest mark; 0 where its label has none.
    pub mark: u64,
    /// The generation of its label.
    pub generation: u64,
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
    /// Being emptied: nothing new is put on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Not used until a person says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
    /// The member whose place it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Uuid>,
    /// It took part in a life that this pool does not know (`label.lineage_tells_divergence`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<Diverged>,
}

impl Member {
    /// A disk that has just joined.
    pub fn new(id: Uuid, path: PathBuf) -> Self {
        Self { id, path, in_sync: true, suspect: false, leaving: false, offline: false, replaces: None, diverged: None }
    }
}

/// A disk that takes the place of one that fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spare {
    pub id: Uuid,
    pub path: PathBuf,
}

/// The host and process that have the pool open.
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

impl Diverged {
    pub fn of(label: &Label) -> Self {
        Self { mark: label.lives.first().map_or(0, |life| life.mark), generation: label.generation }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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
            && self.spares.len() <= DISKS_MAX
            && (self.members.iter().any(|member| member.id == self.disk) || self.is_spare(self.disk))
            && self.width > self.layout.failures()
            && usize::from(self.width) <= DISKS_MAX
            && self.journal_bytes <= 1 << 40
    }

    /// Whether the disk of `other`, which this label calls in sync, is an older copy of itself
    /// (`label.settled_outlives`).
    pub fn is_rolled_back(&self, other: &Self) -> bool {
        self.has_in_sync(other.disk) && self.descends_from(other) && other.generation < self.settled
    }

    /// Whether the disk of `other` had a later label than `other`: this label has settled it there
    /// (`label.settled_outlives`). So the disk is an older copy of itself. It has not gone on
    /// without this label's disk, or its label would say so.
    fn has_outlived(&self, other: &Self) -> bool {
        other.generation < self.settled && other.has_in_sync(self.disk)
    }

    fn has_in_sync(&self, disk: Uuid) -> bool {
        self.members.iter().any(|member| member.id == disk && member.in_sync)
    }

    pub fn is_spare(&self, disk: Uuid) -> bool {
        self.spares.iter().any(|spare| spare.id == disk)
    }

    /// Disks that may fail without loss: every object survives that many.
    pub fn failures(&self) -> u8 {
        self.earlier.map_or(u8::MAX, Layout::failures).min(self.layout.failures())
    }

    /// The next generation of this label.
    pub fn advance(&mut self, nonce: u64) {
        self.history.insert(0, (self.generation, self.nonce));
        self.history.truncate(HISTORY_MAX);
        self.generation += 1;
        self.nonce = nonce;
    }

    /// Whether the pool of this label lived through the life with this mark, or is about to.
    pub fn knows_mark(&self, mark: u64) -> bool {
        self.lives.iter().chain(&self.coming).any(|life| life.mark == mark)
    }

    /// Whether the pool of this label lived through the newest life of `other`, and through all of
    /// it that counts (`label.lineage_tells_divergence`, `label.settled_tells_older_copies`). Labels
    /// of older programs have generations alone. Two of them are compared by these
    /// (`label.old_or_split`).
    pub fn knows_life_of(&self, other: &Self) -> bool {
        match other.lives.first() {
            Some(newest) => self.knows_mark(newest.mark) && !self.lacks_settled_state_of(other),
            None => self.lives.is_empty() || self.descends_from(other),
        }
    }

    /// Whether this label's lineage is without the state that `other` calls settled
    /// (`label.settled_tells_older_copies`).
    fn lacks_settled_state_of(&self, other: &Self) -> bool {
        let Some(newest) = other.lives.first().filter(|_| other.settled > 0) else { return false };
        // The history is short; the lives reach further back.
        let next = self.life_after(newest.mark);
        if next.is_some_and(|next| (1..=other.settled).contains(&next.generation)) {
            return true;
        }
        let is_settled = |state: &&(u64, u64)| state.0 == other.settled;
        let own = [other.state()];
        let state = own.iter().chain(&other.history).find(is_settled);
        state.is_some_and(|state| !self.has_had(*state))
    }

    /// The life that followed the one with this mark.
    fn life_after(&self, mark: u64) -> Option<Life> {
        let newest_first = || self.coming.iter().chain(&self.lives);
        newest_first().zip(newest_first().skip(1)).find(|(_, life)| life.mark == mark).map(|(next, _)| *next)
    }

    /// The life in which `other` left this label's lineage, and the batch of the journal before it.
    pub fn fork(&self, other: &Self) -> Option<Life> {
        let first_unknown = other.lives.iter().take_while(|life| !self.knows_mark(life.mark)).last();
        first_unknown.copied().or_else(|| self.fork_within_life(other))
    }

    /// Where the disks of this label became older copies of themselves, within the newest life of
    /// `other`: at the latest label and batch that both have, as far as is known.
    fn fork_within_life(&self, other: &Self) -> Option<Life> {
        let newest = other.lives.first().filter(|_| self.lacks_settled_state_of(other))?;
        let Some(next) = self.life_after(newest.mark) else { return Some(*newest) };
        let since_ms = if next.before_ms > 0 { next.before_ms } else { newest.since_ms };
        Some(Life { since_ms, batch: next.batch, ..*newest })
    }

    /// Whether this label is to begin a life with these disks: one that had everything is not among
    /// them, or the beginning of a life was cut short.
    pub fn needs_life(&self, present: &BTreeSet<Uuid>) -> bool {
        self.lives.is_empty() || self.coming.is_some() || !self.present.is_subset(present)
    }

    /// Announces the next life in this generation (`label.announced_before_begun`); the label before
    /// it was written at `before_ms`. One that was announced before, and
    /// perhaps begun on some disk, belongs to the lineage.
    pub fn announce(&mut self, mark: u64, before_ms: u64) {
        self.begin_life();
        let (since_ms, batch, generation) = (self.written_ms, self.journal_batch, self.generation);
        self.coming = Some(Life { mark, since_ms, batch, generation, before_ms });
    }

    /// From now on the life that was announced is the newest.
    pub fn begin_life(&mut self) {
        if let Some(life) = self.coming.take() {
            self.lives.insert(0, life);
            self.lives.truncate(LIVES_MAX);
        }
    }

    /// This label's word on `other`, as of its last look.
    fn has_seen_diverged(&self, other: &Self) -> bool {
        let seen = Diverged::of(other);
        self.members.iter().any(|member| member.id == other.disk && member.diverged == Some(seen))
    }

    fn state(&self) -> (u64, u64) {
        (self.generation, self.nonce)
    }

    /// Whether `other` is this label's own state or one that it descends from
    /// (`label.old_or_split`).
    pub fn descends_from(&self, other: &Self) -> bool {
        self.has_had(other.state())
    }

    /// Whether this is the label's state or one of those before it.
    fn has_had(&self, state: (u64, u64)) -> bool {
        let oldest_known = self.history.last().map_or(self.generation, |(generation, _)| *generation);
        self.state() == state || self.history.contains(&state) || state.0 < oldest_known
    }
}

/// Chooses the label to believe among those of one pool: the side to run, and its newest label.
/// Where sides have diverged, one that `is_named` by a person comes first; then one with enough
/// disks; then one that has seen the other as it is now, and gone on; then the one that was used
/// last. Nothing is lost by a wrong
/// choice, because the other side stays as it is (`label.lineage_tells_divergence`).
pub fn winner(labels: &[Label], is_named: impl Fn(&Label) -> bool) -> Option<&Label> {
    let is_outlived =
        |label: &Label| labels.iter().any(|other| other.knows_life_of(label) && !label.knows_life_of(other));
    let mut ends: Vec<&Label> = labels.iter().filter(|label| !is_outlived(label)).collect();
    if ends.is_empty() {
        ends = labels.iter().collect();
    }
    let side = |end: &Label| labels.iter().filter(|label| end.knows_life_of(label)).collect::<Vec<_>>();
    let is_side_named = |end: &Label| side(end).into_iter().any(&is_named);
    let has_seen_others = |end: &Label| {
        let others = || labels.iter().filter(|label| !end.knows_life_of(label));
        others().next().is_some() && others().all(|label| end.has_seen_diverged(label))
    };
    let is_enough = |end: &Label| {
        let here = side(end).into_iter().filter(|label| end.has_in_sync(label.disk) && end.descends_from(label));
        here.count() + usize::from(end.failures()) >= end.members.len()
    };
    let chosen = ends.into_iter().max_by_key(|end| {
        (is_side_named(end), is_enough(end), has_seen_others(end), end.written_ms, end.generation, end.nonce)
    })?;
    newest(&side(chosen))
}

/// The label to believe among those of one side (`label.newest_wins`).
fn newest<'a>(labels: &[&'a Label]) -> Option<&'a Label> {
    let is_newest =
        |label: &Label| !labels.iter().any(|other| other.state() != label.state() && other.descends_from(label));
    let mut ends: Vec<&Label> = labels.iter().copied().filter(|label| is_newest(label)).collect();
    if ends.is_empty() {
        ends = labels.to_vec();
    }
    // Disks that should have it and do not. A side that went on without a disk said so; a label
    // that counts on a disk that went on without it was cut short.
    let lack = |label: &Label| {
        let lacks = |other: &&&Label| label.has_in_sync(other.disk) && !other.descends_from(label);
        labels.iter().filter(lacks).filter(|other| !label.has_outlived(other)).count()
    };
    let is_whole = |label: &Label| lack(label) <= usize::from(label.failures());
    let supporters = |label: &Label| labels.iter().filter(|other| label.descends_from(other)).count();
    ends.into_iter()
        .max_by_key(|label| (is_whole(label), Reverse(lack(label)), supporters(label), label.generation, label.nonce))
}

/// The label of a disk, and whether only its second copy could be read.
pub fn read_copies(disk: &dyn DiskIo) -> std::io::Result<Result<(Label, bool), &'static str>> {
    let copy = |name| Ok(Label::decode(&disk::read_file(disk, name, LABEL_BYTES_MAX)?));
    let first: std::io::Result<Result<Label, &'static str>> = copy(LABEL_NAME);
    let second = copy(SECOND_NAME);
    if let (Ok(Ok(first)), Ok(Ok(second))) = (&first, &second)
        && first.pool == second.pool
        && first.disk == second.disk
        && second.descends_from(first)
    {
        // On a full disk the copy is written first.
        return Ok(Ok((second.clone(), false)));
    }
    if matches!(first, Ok(Ok(_) | Err(NEWER))) {
        return first.map(|label| label.map(|label| (label, false)));
    }
    match second {
        Ok(Ok(label)) => Ok(Ok((label, true))),
        Ok(Err(NEWER)) => Ok(Err(NEWER)),
        _ => first.map(|label| label.map(|label| (label, false))),
    }
}

pub fn read(disk: &dyn DiskIo) -> std::io::Result<Result<Label, &'static str>> {
    Ok(read_copies(disk)?.map(|(label, _)| label))
}

pub fn write(disk: &dyn DiskIo, label: &Label) -> std::io::Result<()> {
    if let Some(newest) = label.lives.first() {
        life_file::write(disk, label.pool, label.disk, newest.mark)?;
    }
    let bytes = label.encode();
    let written = disk::write_file_atomically(disk, LABEL_NAME, &bytes)
        .and_then(|()| disk::write_file_atomically(disk, SECOND_NAME, &bytes));
    match written {
        // Over the old labels, the copy first: one of the two can be read at any time.
        Err(full) if is_no_room(&full) => {
            let over = |name| {
                let file = disk.open(name, true)?;
                file.write_at(&mut [IoSlice::new(&bytes)], 0)?;
                file.sync()
            };
            over(SECOND_NAME).and_then(|()| over(LABEL_NAME)).map_err(|_| full)
        }
        written => written,
    }
}

/// Takes the label away again.
pub fn remove(disk: &dyn DiskIo) {
    // A file that cannot be removed was most likely never written.
    let _ = disk.remove(LABEL_NAME);
    let _ = disk.remove(SECOND_NAME);
    life_file::remove(disk);
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub fn example(disk: u128) -> Label {
        let member = |id| Member::new(Uuid::from_u128(id), format!("/d{id}").into());
        Label {
            pool: Uuid::from_u128(9),
            name: "tank".into(),
            layout: Layout::Mirror3,
            width: 3,
            earlier: None,
            rebalancing: false,
            spares: Vec::new(),
            disk: Uuid::from_u128(disk),
            generation: 5,
            nonce: 1,
            history: vec![(4, 1), (3, 1)],
            members: vec![member(1), member(2), member(3)],
            journal: vec![Uuid::from_u128(1)],
            journal_bytes: 1 << 20,
            settled: 0,
            journal_batch: 0,
            unproven: false,
            owing: false,
            usage: Usage::Exported,
            created_ms: 0,
            written_ms: 0,
            lives: Vec::new(),
            coming: None,
            present: BTreeSet::new(),
            features: Features::default(),
        }
    }

    #[test]
    fn a_label_round_trips_and_damage_is_noticed() {
        let label = example(1);
        let bytes = label.encode();
        assert_eq!(&bytes[..16], b"LARDLABL\x01\0\0\0\xe9\x02\0\0", "golden");
        assert_eq!(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)), "e0d92cf70c05399e", "golden");
        assert_eq!(Label::decode(&bytes), Ok(label));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Label::decode(&bad).is_err(), "byte {at}");
            assert!(Label::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_label_with_lives_round_trips() {
        let life = |mark| Life { mark, since_ms: 1_795_645_443_000, batch: 7, generation: 0, before_ms: 0 };
        let mut label = Label { lives: vec![life(u64::MAX), life(2)], coming: Some(life(9)), ..example(1) };
        (label.written_ms, label.present) = (1_795_645_444_000, [Uuid::from_u128(1)].into());
        label.members[1].diverged = Some(Diverged { mark: 5, generation: 6 });
        let bytes = label.encode();
        assert_eq!(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)), "a35bde212d024dfa", "golden");
        assert_eq!(Label::decode(&bytes), Ok(label));
        // The largest: as many lives, disks and spares as there may be.
        let mut largest = example(1);
        let (mark, since_ms, batch, generation, before_ms) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        largest.lives = vec![Life { mark, since_ms, batch, generation, before_ms }; LIVES_MAX];
        largest.history = vec![(u64::MAX, u64::MAX); HISTORY_MAX];
        largest.members =
            (0..DISKS_MAX as u128).map(|id| Member::new(Uuid::from_u128(id), "/d".repeat(999).into())).collect();
        largest.present = largest.members.iter().map(|member| member.id).collect();
        assert!((largest.encode().len() as u64) < LABEL_BYTES_MAX, "{}", largest.encode().len());
    }

    #[test]
    fn sides_are_told_apart_by_their_lives() {
        let life = |mark| Life { mark, since_ms: mark, batch: mark, generation: 0, before_ms: 0 };
        let of = |disk, marks: &[u64], generations: u64| {
            let mut label = Label { lives: marks.iter().map(|mark| life(*mark)).collect(), ..example(disk) };
            (0..generations).for_each(|nonce| label.advance(disk as u64 * 1000 + nonce));
            label.written_ms = generations;
            label
        };
        let (a, b) = (of(1, &[7, 1], 3), of(2, &[8, 1], 90));
        let old = of(3, &[1], 0);
        assert!(a.knows_life_of(&old) && !old.knows_life_of(&a) && !a.knows_life_of(&b) && !b.knows_life_of(&a));
        assert_eq!((a.fork(&b), b.fork(&a), a.fork(&old)), (Some(life(8)), Some(life(7)), None));
        let labels = [a.clone(), b.clone(), old.clone()];
        assert_eq!(winner(&labels, |_| false), Some(&b), "used last");
        assert_eq!(winner(&labels, |label| label.disk == a.disk), Some(&a), "named");
        // One that has seen the other, and gone on.
        let mut knows = a.clone();
        knows.members[1].diverged = Some(Diverged::of(&b));
        assert_eq!(winner(&[knows.clone(), b.clone(), old.clone()], |_| false), Some(&knows));
        let mut went_on = b.clone();
        went_on.advance(4);
        assert_eq!(winner(&[knows, went_on.clone(), old], |_| false), Some(&went_on));
        // An announcement is known before it is counted.
        let mut announced = of(1, &[1], 1);
        announced.announce(9, 0);
        let mut counted = announced.clone();
        counted.begin_life();
        assert!(announced.knows_life_of(&counted) && counted.knows_life_of(&announced));
        assert!(!of(1, &[1], 0).knows_life_of(&counted));
        // Labels of older programs have generations alone.
        let (older, newer) = (example(1), of(2, &[3], 1));
        assert!(newer.knows_life_of(&older) && !older.knows_life_of(&newer));
        let mut split = example(3);
        split.advance(77);
        assert!(!newer.knows_life_of(&split));
    }

    /// `label.settled_tells_older_copies`
    #[test]
    fn a_disk_that_went_on_with_a_newer_copy_of_this_one_has_diverged() {
        let life = |mark| Life { mark, since_ms: 100, batch: 3, generation: 0, before_ms: 0 };
        let image = Label { lives: vec![life(1)], settled: 4, written_ms: 200, ..example(2) };
        let (mut went_on, mut cut) = (Label { disk: Uuid::from_u128(1), ..image.clone() }, image.clone());
        for (settled, nonce) in [(4, 10), (6, 11), (7, 12)] {
            went_on.advance(nonce);
            went_on.settled = settled;
        }
        assert!(went_on.knows_life_of(&image), "merely old");
        assert!(!image.knows_life_of(&went_on), "before anything is written to the old image, it is outlived");
        assert_eq!(winner(&[image.clone(), went_on.clone()], |_| false), Some(&went_on));
        // The power failed before the others had that label: nothing was acknowledged.
        cut.advance(20);
        for labels_written in [2, 90] {
            let mut alone = image.clone();
            for at in 0..labels_written {
                let before_ms = std::mem::replace(&mut alone.written_ms, 300 + at);
                alone.advance(1000 + at);
                match at {
                    0 => alone.announce(7, before_ms),
                    _ => alone.begin_life(),
                }
            }
            assert!(alone.knows_life_of(&cut) && alone.knows_life_of(&image), "{labels_written}: merely old");
            assert!(!alone.knows_life_of(&went_on) && !went_on.knows_life_of(&alone), "{labels_written}");
            let fork = alone.fork(&went_on).unwrap();
            assert_eq!((fork.mark, fork.since_ms), (1, 200), "when both were one");
            assert_eq!(went_on.fork(&alone).map(|life| (life.mark, life.since_ms)), Some((7, 300)));
        }
    }

    #[test]
    fn features_of_a_newer_program_are_kept() {
        let mut label = example(1);
        label.features.compatible.push("brand-new".into());
        let mut again = Label::decode(&label.encode()).unwrap();
        again.advance(3);
        let again = Label::decode(&again.encode()).unwrap();
        assert_eq!(again.features.compatible, ["brand-new"]);
    }

    #[test]
    fn the_newest_label_wins_even_alone_unless_history_split() {
        let old = example(1);
        let mut new = example(2);
        new.advance(7);
        assert_eq!(winner(&[old.clone(), new.clone(), example(3)], |_| false), Some(&new), "one newer among three");
        assert!(new.descends_from(&old));
        // Disk 3 ran alone from generation 5 with another nonce, for longer.
        let mut split = example(3);
        (0..4).for_each(|i| split.advance(100 + i));
        let mut newer = example(1);
        newer.advance(7);
        assert_eq!(winner(&[newer.clone(), new.clone(), split.clone()], |_| false).map(|l| l.generation), Some(6));
        assert!(!new.descends_from(&split));
    }

    #[test]
    fn a_label_that_was_cut_short_does_not_undo_what_went_on_without_its_disk() {
        for nonces in [(1, 2), (2, 1)] {
            let label = |disk: u128, nonce: u64, out: &[u128]| {
                let mut label = example(disk);
                label.layout = Layout::Mirror2;
                label.members = (0..2).map(|id| Member::new(Uuid::from_u128(id), "/d".into())).collect();
                label.members.iter_mut().for_each(|m| m.in_sync = !out.contains(&m.id.as_u128()));
                label.advance(nonce);
                label
            };
            // Power was cut when only disk 0 had it; then disk 1 was alone, and said so.
            let (cut, alone) = (label(0, nonces.0, &[]), label(1, nonces.1, &[0]));
            assert_eq!(winner(&[cut, alone.clone()], |_| false), Some(&alone));
        }
    }

    /// Power was cut when disks 1 and 2 had a label and disk 0 had not. Then disk 2 was away and
    /// disk 1 an older copy of itself; what went on settled later labels on 0 and 1. Now 1 and 2
    /// are back as the power cut left them: two against one.
    #[test]
    fn older_copies_that_agree_do_not_outvote_what_was_settled_on_one_of_them() {
        let cut = |disk| {
            let mut label = example(disk);
            label.advance(9);
            label
        };
        let mut went_on = example(1);
        went_on.members[2].in_sync = false;
        (0..3).for_each(|nonce| went_on.advance(100 + nonce));
        for settled in [7, 0] {
            went_on.settled = settled;
            let labels = [went_on.clone(), cut(2), cut(3)];
            assert_eq!(
                winner(&labels, |_| false) == Some(&went_on),
                settled > 0,
                "without the proof the majority counts"
            );
        }
        // A copy that says that it went on without disk 1 has its say, whatever was settled.
        went_on.settled = 7;
        let without = |disk| {
            let mut label = cut(disk);
            label.members[0].in_sync = false;
            label
        };
        let labels = [went_on.clone(), without(2), without(3)];
        assert_ne!(winner(&labels, |_| false), Some(&went_on));
    }

    #[test]
    fn a_label_that_was_cut_short_does_not_put_another_session_out_of_sync() {
        // Five disks, two may go. Disk 4 was away, and the label that says so (generation 5) is on
        // the others.
        let label = |disk: u128, out: &[u128]| {
            let mut label = example(disk);
            label.layout = Layout::Raidz2;
            label.members = (0..5).map(|id| Member::new(Uuid::from_u128(id), "/d".into())).collect();
            label.members.iter_mut().for_each(|m| m.in_sync = !out.contains(&m.id.as_u128()));
            label
        };
        // Without disk 1, power was cut when only disk 4, which was not in sync, had the new label.
        let mut cut = label(4, &[1, 4]);
        cut.advance(9);
        // Without disk 4, and with an older disk 1, when only disk 3 had it.
        let mut again = label(3, &[1, 4]);
        again.advance(8);
        let labels = [label(0, &[4]), label(1, &[]), label(2, &[4]), again.clone(), cut];
        assert_eq!(winner(&labels, |_| false), Some(&again), "disk 3 stays in sync");
    }
}
