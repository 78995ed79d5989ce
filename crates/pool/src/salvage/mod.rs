//! A damaged pool, opened to be read from: for `larder recover` and `larder debug`.
//!
//! - `salvage.nothing_written`: no lock, no label, no healing, no unlinking. A read-only mount will
//!   do.
//! - `salvage.proven_by_checksums`: every returned block passes its checksum, which is bound to
//!   pool, version, shard and place, or is computed from `k` blocks that did. So all disks may be
//!   read, stale ones too.
//! - `salvage.nothing_refused`: one header that says which pool it is suffices. Missing parts are
//!   reported where they are missed.
//!
//! Blocks are read one by one: an object is lost only where fewer than `k` shards have a block.

pub mod inspect;
mod inventory;
mod report;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;
use uuid::Uuid;

use crate::disk::folder::FileDisks;
use crate::disk::{DiskIo, DiskOpener};
use crate::error::PoolError;
use crate::journal::salvage as journals;
pub use crate::journal::salvage::{LogRead, SegmentFound};
use crate::member::adopt;
use crate::member::label::{self, Label};
use crate::object::tombstones;
pub use inventory::{Damage, ObjectFound, ShardFound};
use inventory::{Index, take};
pub use report::{SalvageReport, SalvagedDisk};
use store::{SalvageStore, Salvaged};

/// The directories to read.
#[derive(Clone, Debug)]
pub struct SalvageOptions {
    /// Directories of disks; those of other pools are passed over.
    pub disks: Vec<PathBuf>,
    /// Name or id, where the directories hold several pools.
    pub pool: Option<String>,
    /// Opens the directories: real ones, or those of a simulator.
    pub opener: Arc<dyn DiskOpener>,
}

impl SalvageOptions {
    /// Options for real directories that hold one pool.
    pub fn new(disks: Vec<PathBuf>) -> Self {
        Self { disks, pool: None, opener: Arc::new(FileDisks) }
    }
}

/// The disks of one pool, open for reading. Cheap to clone.
#[derive(Clone)]
pub struct Salvage {
    inner: Arc<Salvaged>,
}

/// A directory that can be listed, and its label.
struct Candidate {
    path: PathBuf,
    disk: Arc<dyn DiskIo>,
    label: Option<Label>,
    note: String,
}

impl Salvage {
    /// Looks at all names on all disks. Blocks.
    pub fn open(options: &SalvageOptions) -> Result<Self, PoolError> {
        let mut notes = Vec::new();
        let candidates = candidates(options, &mut notes);
        let pool = choose(options, &candidates, &notes)?;
        let (ours, foreign): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|found| found.is_of(pool));
        notes.extend(foreign.iter().map(Candidate::why_not));
        let labels: Vec<Label> = ours.iter().filter_map(|found| found.label.clone()).collect();
        crate::change::open::check_features(&labels, false)?;
        for found in &ours {
            if let Ok(Some(holder)) = found.disk.holder() {
                let name = found.label.as_ref().map_or_else(|| pool.to_string(), |label| label.name.clone());
                return Err(PoolError::Locked { pool: name, path: found.path.clone(), holder });
            }
        }
        Ok(Self { inner: Arc::new(Salvaged::read(pool, ours, notes)) })
    }

    /// The report of the names alone, before any data is read.
    pub fn report(&self) -> &SalvageReport {
        &self.inner.report
    }

    /// All objects that were found; puts and deletes are refused.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(SalvageStore(self.inner.clone()))
    }

    /// The remains of a stream in the journals. Blocks.
    pub fn log(&self, stream: &str) -> LogRead {
        self.inner.journal.read(self.inner.pool, &self.inner.disks, stream)
    }

    /// The streams of the journals: name, entries, damage.
    pub fn streams(&self) -> Vec<(String, usize, Option<String>)> {
        self.inner.journal.streams()
    }

    /// The journal's segments on these disks, by sequence.
    pub fn journal_segments(&self) -> &[SegmentFound] {
        &self.inner.journal.segments
    }

    /// The objects whose path begins with `prefix`, and where their shards are.
    pub fn objects(&self, prefix: &str) -> Vec<ObjectFound> {
        // A folder with the name of a shard is none.
        let is_folder = |found: &ShardFound| {
            let disk = self.inner.disks.get(found.disk);
            disk.is_some_and(|disk| disk.list(&found.file).is_ok())
        };
        let mut objects = self.inner.index.objects(prefix);
        objects.iter_mut().for_each(|object| object.shards.retain(|shard| !is_folder(shard)));
        objects
    }

    /// Reads every block of every shard of an object, and returns the faults. Blocks.
    pub fn verify(&self, path: &str) -> Vec<Damage> {
        self.inner.verify(path)
    }
}

impl Candidate {
    /// A directory without a label is known by the headers on it.
    fn is_of(&self, pool: Uuid) -> bool {
        match &self.label {
            Some(label) => label.pool == pool,
            None => adopt::belongs_to(&*self.disk, pool),
        }
    }

    fn why_not(&self) -> String {
        let path = self.path.display();
        match &self.label {
            Some(label) => format!("{path} belongs to another pool, '{}': not used", label.name),
            None => format!("{path}: {}, and nothing on it says that it is this pool's: not used", self.note),
        }
    }
}

fn candidates(options: &SalvageOptions, notes: &mut Vec<String>) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut seen = Vec::new();
    for path in &options.disks {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let disk = match options.opener.open_disk(&path) {
            Ok(disk) => disk,
            Err(error) => {
                notes.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        let identity = disk.identity().ok();
        if identity.is_some() && seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        let (label, note) = match label::read_copies(&*disk) {
            Ok(Ok((label, false))) => (Some(label), String::new()),
            Ok(Ok((label, true))) => (Some(label), "its label is damaged, the copy of it is used".to_owned()),
            Ok(Err(why)) => (None, why.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, "it has no label".to_owned()),
            Err(error) => (None, format!("its label cannot be read: {error}")),
        };
        found.push(Candidate { path, disk, label, note });
    }
    found
}

/// The pool that was named, or the one that most labels name, or else most headers.
fn choose(options: &SalvageOptions, candidates: &[Candidate], notes: &[String]) -> Result<Uuid, PoolError> {
    let wanted = options.pool.as_deref();
    if let Some(id) = wanted.and_then(|text| Uuid::parse_str(text).ok()) {
        return Ok(id);
    }
    let mut votes: BTreeMap<Uuid, (usize, String)> = BTreeMap::new();
    for label in candidates.iter().filter_map(|found| found.label.as_ref()) {
        if wanted.is_none_or(|name| name == label.name) {
            votes.entry(label.pool).or_insert_with(|| (0, label.name.clone())).0 += 1;
        }
    }
    if votes.is_empty() && wanted.is_none() {
        for pool in candidates.iter().filter_map(|found| inventory::pool_of(&*found.disk)) {
            votes.entry(pool).or_insert_with(|| (0, pool.to_string())).0 += 1;
        }
    }
    let most = votes.values().map(|(count, _)| *count).max();
    let mut first = votes.iter().filter(|(_, (count, _))| Some(*count) == most);
    match (first.next(), first.next()) {
        (Some((pool, _)), None) => Ok(*pool),
        (Some(_), Some(_)) => {
            let names: Vec<&str> = votes.values().map(|(_, name)| name.as_str()).collect();
            Err(PoolError::SeveralPools(names.join(", ")))
        }
        (None, _) => {
            let paths = options.disks.iter().map(|path| path.display().to_string());
            let why: Vec<String> = paths.chain(notes.iter().cloned()).collect();
            Err(PoolError::NoPool(why.join("; ")))
        }
    }
}

impl Salvaged {
    fn read(pool: Uuid, found: Vec<Candidate>, mut notes: Vec<String>) -> Self {
        let labels: Vec<Label> = found.iter().filter_map(|found| found.label.clone()).collect();
        let winner = label::winner(&labels, |_| false).cloned();
        // Sides that went on without each other are read one by one (`diverged.left_alone`).
        let is_ours = |found: &Candidate| match (&winner, &found.label) {
            (Some(winner), Some(label)) => winner.knows_life_of(label),
            _ => true,
        };
        let (found, other_side): (Vec<Candidate>, Vec<Candidate>) = found.into_iter().partition(is_ours);
        for disk in other_side {
            let path = disk.path.display();
            notes.push(format!(
                "{path} went on without the others and is not read with them; read its side alone: larder recover --disk {path}"
            ));
        }
        let disks: Vec<Arc<dyn DiskIo>> = found.iter().map(|found| found.disk.clone()).collect();
        let inventories: Vec<inventory::Inventory> = std::thread::scope(|scope| {
            let threads: Vec<_> = disks.iter().map(|disk| scope.spawn(move || take(pool, &**disk))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        let listed: Vec<SalvagedDisk> = found
            .iter()
            .zip(&inventories)
            .map(|(found, inventory)| SalvagedDisk {
                path: found.path.clone(),
                id: found.label.as_ref().map(|label| label.disk),
                note: note_of(found, winner.as_ref(), inventory),
                shards: inventory.shards.len() as u64,
            })
            .collect();
        let mut journal = journals::read_all(pool, &disks);
        let has_objects = inventories.iter().any(|inventory| !inventory.shards.is_empty());
        journal.compare(winner.as_ref().map_or(0, |label| label.journal_batch), has_objects);
        notes.extend(journal.loss.clone());
        let log = journal.read(pool, &disks, tombstones::STREAM);
        if !log.faults.is_empty() {
            notes.push("not all deletions could be read: objects that were deleted may be back".to_owned());
        }
        if journal.is_torn {
            notes.push(
                "the journal ends in a batch that is not whole: it was being written when the machine stopped, or it is damaged \
                 and the newest changes are missing"
                    .to_owned(),
            );
        }
        let deleted = tombstones::decode_all(&log.entries);
        let index = Index::new(inventories, &deleted);
        let missing = winner.as_ref().map(|label| missing(label, &labels)).unwrap_or_default();
        if let Some(label) = &winner
            && !label.journal.iter().any(|id| labels.iter().any(|label| label.disk == *id))
        {
            notes.push("none of the disks that hold the journal is here: the newest changes may be missing".to_owned());
        }
        let (objects, objects_incomplete) = index.counts();
        let report = SalvageReport {
            pool,
            name: winner.as_ref().map(|label| label.name.clone()),
            layout: winner.as_ref().map(|label| label.layout.to_string()),
            disks: listed,
            missing,
            objects,
            objects_incomplete,
            notes,
        };
        Self { pool, disks, index, journal, report }
    }
}

fn missing(winner: &Label, labels: &[Label]) -> Vec<PathBuf> {
    let here = |id: Uuid| labels.iter().any(|label| label.disk == id);
    winner.members.iter().filter(|member| !here(member.id)).map(|member| member.path.clone()).collect()
}

fn note_of(found: &Candidate, winner: Option<&Label>, inventory: &inventory::Inventory) -> String {
    let mut notes: Vec<String> = Vec::new();
    if !found.note.is_empty() {
        notes.push(found.note.clone());
    }
    if let (Some(winner), Some(label)) = (winner, &found.label)
        && winner.is_spare(label.disk)
    {
        notes.push("a spare: it holds nothing".to_owned());
    } else if let (Some(winner), Some(label)) = (winner, &found.label) {
        let in_sync = winner.members.iter().any(|member| member.id == label.disk && member.in_sync);
        if !in_sync || !winner.descends_from(label) {
            notes.push("it was away and is out of date".to_owned());
        }
    }
    if inventory.odd > 0 {
        notes.push(format!("{} shards have lost their names and are known by their headers", inventory.odd));
    }
    notes.extend(inventory.error.clone());
    notes.join("; ")
}
