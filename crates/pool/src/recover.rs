//! Opening: from the names on the disks to the index.
//!
//! Only names are read, and headers of the few objects whose path is too long for a name.
//!
//! O1. In-sync disks alone decide what exists: a version that only out-of-date disks have was
//!     deleted while they were away.
//! O2. Of a path's versions the newest complete one lives; older ones are unlinked. An incomplete
//!     newer one with temporary files was never acknowledged: it is unlinked.
//! O3. An incomplete version without temporary files is damage (W1): it stays, and reading it says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::core::Core;
use crate::disk::{DiskIo, read_file};
use crate::error::PoolError;
use crate::index::{Grave, NO_SLOT, NewObject, Object};
use crate::member::{DiskState, ErrorKind};
use crate::shard::{self, Found, HEADER_BYTES_MAX, Header, PathName, ShardName};

/// One shard file found on a disk.
pub struct Sighting {
    pub path: String,
    pub shard: ShardName,
    /// As it is named on that disk.
    pub file: String,
}

/// All that a disk holds.
#[derive(Default)]
pub struct Inventory {
    pub shards: Vec<Sighting>,
    /// Versions that were being written.
    pub temps: BTreeSet<u64>,
}

/// Lists the shards of one disk and removes unfinished ones.
pub fn take_inventory(pool: Uuid, disk: &dyn DiskIo) -> std::io::Result<Inventory> {
    let mut inventory = Inventory::default();
    for directory in disk.list("objects")? {
        let directory = format!("objects/{directory}");
        // Files beside the directories are not ours.
        let Ok(names) = disk.list(&directory) else { continue };
        for name in names {
            let file = format!("{directory}/{name}");
            match shard::parse_name(&name) {
                Found::Temp => {
                    let version = name.get(1..17).and_then(|hex| u64::from_str_radix(hex, 16).ok());
                    inventory.temps.extend(version);
                    // Left where the disk is read-only; it does no harm.
                    let _ = disk.remove(&file);
                }
                Found::Shard(shard) => {
                    if let Some(path) = path_of(pool, disk, &file, &shard) {
                        inventory.shards.push(Sighting { path, shard, file });
                    }
                }
                Found::Unknown => {}
            }
        }
    }
    Ok(inventory)
}

fn path_of(pool: Uuid, disk: &dyn DiskIo, file: &str, shard: &ShardName) -> Option<String> {
    let path = match &shard.path {
        PathName::Plain(path) => path.clone(),
        PathName::Hashed(_) => {
            let bytes = read_file(disk, file, u64::from(shard.header_bytes).min(HEADER_BYTES_MAX as u64)).ok()?;
            let header = Header::decode(&bytes).filter(|header| header.pool == pool)?;
            header.path
        }
    };
    // A file in the wrong directory would not be found again by its name.
    file.starts_with(&shard::directory(&path)).then_some(path)
}

/// Shards of one version, as (shard, disk, file).
struct Version {
    shard: ShardName,
    places: Vec<(u8, u8, String)>,
}

impl Core {
    /// Fills the index from all disks that are there. Blocks.
    pub fn load_index(&self, gone: &BTreeMap<String, u64>) -> Result<(), PoolError> {
        let (versions, temps) = self.gather()?;
        let mut litter: Vec<Grave> = Vec::new();
        let mut index = self.index.write();
        for (path, versions) in versions {
            let deleted = gone.get(&path).copied().unwrap_or(0);
            let mut found: Option<Arc<Object>> = None;
            for (number, version) in versions.into_iter().rev() {
                let keep = found.is_none() && number > deleted && self.is_alive(&version, temps.contains(&number));
                if !keep {
                    // Behind a damaged version everything stays as it is.
                    let spare =
                        found.as_ref().is_some_and(|object| object.placed().count() < usize::from(object.geometry.k));
                    if !spare {
                        let graves = version.places.into_iter();
                        litter.extend(graves.map(|(index, slot, file)| Grave { slot, file, version: number, index }));
                    }
                    continue;
                }
                found = Some(Arc::new(self.adopt(&path, version, &mut litter)));
            }
            if let Some(object) = found {
                index.insert(object);
            }
        }
        drop(index);
        self.graveyard.send(litter);
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn gather(&self) -> Result<(BTreeMap<String, BTreeMap<u64, Version>>, BTreeSet<u64>), PoolError> {
        let present: Vec<(u8, Arc<dyn DiskIo>)> = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.is_readable())
            .filter_map(|(slot, member)| Some((slot as u8, member.io().ok()?)))
            .collect();
        let inventories: Vec<(u8, std::io::Result<Inventory>)> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                present.iter().map(|(slot, io)| (*slot, scope.spawn(move || take_inventory(self.id, &**io)))).collect();
            threads
                .into_iter()
                .map(|(slot, thread)| {
                    (slot, thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread died"))))
                })
                .collect()
        });
        let mut versions: BTreeMap<String, BTreeMap<u64, Version>> = BTreeMap::new();
        let mut temps = BTreeSet::new();
        // In-sync disks first: their word on a version's shape counts.
        let in_sync = |slot: u8| self.member(slot).is_some_and(|member| member.is_in_sync());
        let (first, second): (Vec<_>, Vec<_>) = inventories.into_iter().partition(|(slot, _)| in_sync(*slot));
        for (slot, inventory) in first.into_iter().chain(second) {
            let inventory = match inventory {
                Ok(inventory) => inventory,
                Err(error) => {
                    let path = self.member(slot).map(|m| m.path.read().clone()).unwrap_or_default();
                    self.read_failed(slot, &error);
                    let lost = self.members.iter().filter(|m| !m.is_readable() || !m.is_in_sync()).count();
                    if lost > usize::from(self.layout.failures()) {
                        return Err(PoolError::Io { what: "list the objects on", path, source: error });
                    }
                    if let Some(member) = self.member(slot).filter(|member| member.is_readable()) {
                        member.set_state(DiskState::Faulted);
                    }
                    continue;
                }
            };
            if in_sync(slot) {
                temps.extend(inventory.temps);
            }
            for Sighting { path, shard, file } in inventory.shards {
                let index = shard.index;
                let version = versions
                    .entry(path)
                    .or_default()
                    .entry(shard.version)
                    .or_insert_with(|| Version { shard: shard.clone(), places: Vec::new() });
                // A name that disagrees with the others of its version is damage to the name.
                if (version.shard.geometry, version.shard.header_bytes) == (shard.geometry, shard.header_bytes) {
                    version.places.push((index, slot, file));
                }
            }
        }
        Ok((versions, temps))
    }

    /// O1, O2, O3.
    fn is_alive(&self, version: &Version, has_temps: bool) -> bool {
        let decides = version.places.iter().any(|(_, slot, _)| self.member(*slot).is_some_and(|m| m.is_in_sync()));
        let distinct: BTreeSet<u8> = version.places.iter().map(|(index, _, _)| *index).collect();
        let complete = distinct.len() >= usize::from(version.shard.geometry.k);
        decides && (complete || !has_temps)
    }

    /// Makes the object; a second copy of a shard is litter.
    fn adopt(&self, path: &str, version: Version, litter: &mut Vec<Grave>) -> Object {
        let mut slots = vec![NO_SLOT; usize::from(version.shard.geometry.shards())];
        for (index, slot, file) in version.places {
            match slots.get_mut(usize::from(index)) {
                Some(place) if *place == NO_SLOT => *place = slot,
                _ => litter.push(Grave { slot, file, version: version.shard.version, index }),
            }
        }
        Object::new(new_object(self.id, path, &version.shard), &slots, self.graveyard.clone())
    }

    /// Takes a disk back into the running pool: what it has of living objects is used, the rest
    /// unlinked, what it lacks is rebuilt in the background. Blocks.
    pub fn merge_inventory(&self, slot: u8, inventory: Inventory, disk: &dyn DiskIo) {
        let mut has: BTreeSet<(u64, u8)> = BTreeSet::new();
        let mut dead = Vec::new();
        let index = self.index.read();
        for Sighting { path, shard, file } in inventory.shards {
            let object = index.get(&path).filter(|object| object.version == shard.version);
            let place = object.map(|object| object.slot(shard.index));
            match (object, place) {
                (Some(object), Some(None)) => {
                    object.set_slot(shard.index, slot);
                    has.insert((shard.version, shard.index));
                }
                (Some(_), Some(Some(own))) if own == slot => {
                    has.insert((shard.version, shard.index));
                }
                _ => dead.push(file),
            }
        }
        for object in index.objects.values() {
            let lost = object.placed().find(|(i, own)| *own == slot && !has.contains(&(object.version, *i)));
            if let Some((lost, _)) = lost {
                object.set_slot(lost, NO_SLOT);
            }
        }
        drop(index);
        for file in dead {
            let _ = disk.remove(&file);
        }
    }

    /// Looks whether disks that are out of use have come back. With `adopt` one whose label is damaged
    /// is taken back too, if what lies on it is this pool's: somebody has asked for it, so the damage has been seen.
    /// Blocks.
    pub fn reconnect(self: &Arc<Self>, adopt: bool) -> usize {
        // Two at once would take one disk back twice.
        let _one = self.returning.lock();
        let mut back = 0;
        for (slot, member) in self.members.iter().enumerate() {
            if member.is_writable() {
                continue;
            }
            let path = member.path.read().clone();
            match self.reattach(slot as u8, &path, adopt) {
                Ok(true) => back += 1,
                Ok(false) => {}
                Err(error) => *member.last_error.lock() = error.to_string(),
            }
        }
        if back > 0 {
            self.write_labels(|_| {});
            self.repairs.add_all();
        }
        back
    }

    fn reattach(self: &Arc<Self>, slot: u8, path: &std::path::Path, adopt: bool) -> std::io::Result<bool> {
        let Some(member) = self.member(slot) else { return Ok(false) };
        let disk = self.opener.open_disk(path)?;
        match crate::label::read_copies(&*disk)? {
            Ok((label, false)) if label.disk == member.id && label.pool == self.id => {}
            Ok((label, true)) if label.disk == member.id && label.pool == self.id => {
                member.suspect.store(true, Ordering::Release);
            }
            Err(why) if adopt && why != crate::label::NEWER && crate::adopt::belongs_to(&*disk, self.id) => {
                member.count(ErrorKind::Checksum, why);
                member.suspect.store(true, Ordering::Release);
            }
            _ => return Ok(false),
        }
        // Still failing, or still read-only?
        disk.create("larder.probe").and_then(|file| {
            file.write_at(&mut [std::io::IoSlice::new(&[0; 512])], 0)?;
            file.sync()
        })?;
        disk.remove("larder.probe")?;
        let was_read_only = member.state() == DiskState::ReadOnly;
        // A lock of our own on the same directory would refuse us.
        member.detach();
        let lock = disk.lock(&self.owner)?;
        let inventory = take_inventory(self.id, &*disk)?;
        self.files.clear();
        self.merge_inventory(slot, inventory, &*disk);
        member.attach(disk, lock, path.to_owned());
        let trusted = self.layout.failures() == 0 && !member.is_suspect();
        member.set_state(if trusted { DiskState::Online } else { DiskState::Resilvering });
        tracing::info!(pool = %self.name, disk = %path.display(), was_read_only, "disk is back");
        Ok(true)
    }

    /// Unlinks what is sent to the graveyard until told to stop: the body of a thread.
    pub fn bury_all(&self, work: &std::sync::mpsc::Receiver<crate::index::Burial>) {
        use crate::index::Burial;
        while let Ok(burial) = work.recv() {
            match burial {
                Burial::Stop => return,
                Burial::Barrier(done) => drop(done.send(())),
                Burial::Files(files) => {
                    files.iter().for_each(|grave| self.unlink(grave));
                    self.graveyard.done();
                }
            }
        }
    }

    fn unlink(&self, grave: &Grave) {
        let Grave { slot, file, version, index } = grave;
        // An open file would keep its room.
        self.files.remove(&(*slot, *version, *index));
        let Some(member) = self.member(*slot).filter(|member| member.is_writable()) else { return };
        match member.io().and_then(|io| io.remove(file)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // A file that stays is litter for the next opening.
            Err(error) => self.write_failed(*slot, &error),
        }
    }
}

fn new_object(pool: Uuid, path: &str, shard: &ShardName) -> NewObject {
    NewObject {
        pool,
        path: path.to_owned(),
        version: shard.version,
        modified_ms: shard.modified_ms,
        geometry: shard.geometry,
        header_bytes: shard.header_bytes,
        has_attributes: shard.has_attributes,
    }
}
