//! Opening: from the names on the disks to the index.
//!
//! Only names are read, and headers of the few objects whose path is too long for a name.
//!
//! - `recover.in_sync_decides`: in-sync disks alone decide what exists. A version that only
//!   out-of-date disks have was deleted while they were away.
//! - `recover.newest_complete_lives`: of a path's versions the newest complete one lives, and older
//!   ones are unlinked. An incomplete newer one with temporary files was never acknowledged: it is
//!   unlinked durably before its temporary files are.
//! - `recover.incomplete_is_damage`: an incomplete version without temporary files is damage
//!   (`write.durable_before_named`). It stays, and reading it says so. One case differs: all disks
//!   are there, no more of them have it than may fail, and a complete older version is there. Then
//!   those disks kept a file that they were told to remove (`recover.newest_complete_lives`),
//!   because an acknowledged version would have lost more disks than that.
//! - `recover.cut_short_is_finished`: a put that was cut short and lives is finished. Its temporary
//!   files were durable before the first shard had its name (`write.durable_before_named`). Without
//!   them it would have no redundancy, and the version that it replaces is unlinked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use crate::change::create;
use crate::core::Core;
use crate::disk::{DiskIo, PROBE_NAME};
use crate::error::PoolError;
use crate::history::EventKind;
use crate::member::divergence::Divergence;
use crate::member::faults::LOST_OBJECTS;
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::object::index::{Grave, NO_SLOT, NewObject, Object};
use crate::object::shard::{self, ShardName};
use crate::object::shard_files::{self, Inventory, Sighting, Temp, take_inventory};

/// Shards of one version, as (shard, disk, file).
struct Version {
    shard: ShardName,
    places: Vec<(u8, u8, String)>,
}

impl Version {
    fn is_complete(&self) -> bool {
        let distinct: BTreeSet<u8> = self.places.iter().map(|(index, _, _)| *index).collect();
        distinct.len() >= usize::from(self.shard.geometry.k)
    }
}

/// The shard files of all disks, by path.
#[derive(Default)]
struct Gathered {
    versions: BTreeMap<String, BTreeMap<u64, Version>>,
    /// By disk.
    temps: Vec<(u8, Temp)>,
    /// Versions with temporary files on a disk that is in sync.
    unfinished: BTreeSet<u64>,
}

impl Core {
    /// Makes the disks' names durable before they are believed. A process that was killed leaves
    /// names in the kernel's memory: an object found by them would be served and built upon, and
    /// would be lost in a power cut. Blocks.
    pub fn make_found_durable(&self) {
        for member in self.members.iter() {
            let Ok(io) = member.io() else { continue };
            if let Err(error) = io.sync_all() {
                let disk = member.path.read().display().to_string();
                tracing::warn!(disk, %error, "what an earlier run left on this disk may not be durable");
            }
        }
    }

    /// Fills the index from all disks that are there. Blocks.
    pub fn load_index(&self, tombstoned: &BTreeMap<String, u64>) -> Result<(), PoolError> {
        let Gathered { versions, temps, unfinished } = self.gather()?;
        let known = versions.values().flat_map(BTreeMap::keys).chain(tombstoned.values()).max();
        self.objects.versions.skip(known.copied().unwrap_or(0));
        let mut litter: Vec<Grave> = Vec::new();
        let mut refused: Vec<(u8, String)> = Vec::new();
        let mut cut_short: BTreeMap<u64, Arc<Object>> = BTreeMap::new();
        let mut index = self.objects.index_mut();
        for (path, versions) in versions {
            let deleted = tombstoned.get(&path).copied().unwrap_or(0);
            let mut found: Option<Arc<Object>> = None;
            let oldest_complete = versions.iter().find(|(n, version)| **n > deleted && self.is_complete(version));
            let oldest_complete = oldest_complete.map(|(number, _)| *number);
            for (number, version) in versions.into_iter().rev() {
                let is_cut_short = unfinished.contains(&number)
                    || oldest_complete.is_some_and(|older| older < number) && self.was_to_be_removed(&version);
                let keep = found.is_none() && number > deleted && self.is_alive(&version, is_cut_short);
                if !keep && found.is_none() && is_cut_short {
                    refused.extend(version.places.into_iter().map(|(_, slot, file)| (slot, file)));
                    continue;
                }
                if !keep {
                    // Behind a damaged version everything stays as it is.
                    let spare =
                        found.as_ref().is_some_and(|object| object.placed().count() < usize::from(object.geometry.k));
                    if !spare {
                        let graves = version.places.into_iter();
                        litter.extend(graves.map(|(index, slot, file)| Grave {
                            slot,
                            file,
                            version: number,
                            index,
                            of: None,
                            is_copy: false,
                        }));
                    }
                    continue;
                }
                let object = Arc::new(self.adopt(&path, version, &mut litter));
                if unfinished.contains(&number) {
                    cut_short.insert(number, object.clone());
                }
                found = Some(object);
            }
            if let Some(object) = found {
                index.insert(object);
            }
        }
        drop(index);
        self.objects.graveyard.send(litter);
        refused.iter().for_each(|(slot, file)| self.remove_for_good(*slot, file));
        for (slot, temp) in temps {
            let of_put = cut_short.get(&temp.version).filter(|_| !temp.is_rebuilt);
            let object = of_put.filter(|object| object.slot(temp.index).is_none());
            if !object.is_some_and(|object| self.finish_put(object, slot, &temp)) {
                self.remove_temp(slot, &temp);
            }
        }
        Ok(())
    }

    /// Unlinks a file durably (`recover.newest_complete_lives`).
    fn remove_for_good(&self, slot: u8, file: &str) {
        let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
        let removed = self.members.member(slot).filter(|member| member.is_writable()).map(|member| {
            let io = member.io()?;
            shard_files::remove_shard(&*io, file).and_then(|()| io.sync_directory(directory))
        });
        if let Some(Err(error)) = removed {
            self.members.write_failed(slot, &error);
        }
    }

    fn remove_temp(&self, slot: u8, temp: &Temp) {
        // Left where the disk is read-only; it does no harm.
        let _ = self.members.member(slot).and_then(|member| member.io().ok()).map(|io| io.remove(&temp.file));
    }

    /// Finishes a put (`recover.cut_short_is_finished`); `false` if the temporary file is of no
    /// use. It is verified, because repairs of earlier versions left half shards under such names.
    fn finish_put(&self, object: &Arc<Object>, slot: u8, temp: &Temp) -> bool {
        let taken = object.placed().any(|(_, other)| other == slot);
        let Some(member) = self.members.member(slot).filter(|member| member.is_writable() && !taken) else {
            return false;
        };
        let file = object.file_name(temp.index);
        let named = member.io().and_then(|io| {
            io.rename(&temp.file, &file)?;
            io.sync_directory(&shard::directory(&object.path))
        });
        if let Err(error) = named {
            self.members.write_failed(slot, &error);
            return false;
        }
        object.set_slot(temp.index, slot);
        if !self.verify_shard(object, temp.index) {
            object.set_slot(temp.index, NO_SLOT);
            let (version, index) = (temp.version, temp.index);
            let of = Some(object.path.clone());
            self.objects.graveyard.send(vec![Grave { slot, file, version, index, of, is_copy: false }]);
        }
        true
    }

    fn gather(&self) -> Result<Gathered, PoolError> {
        let present: Vec<(u8, Arc<dyn DiskIo>)> = self
            .members
            .with_slots()
            .filter(|(_, member)| member.is_readable())
            .filter_map(|(slot, member)| Some((slot, member.io().ok()?)))
            .collect();
        let (slots, disks): (Vec<u8>, Vec<Arc<dyn DiskIo>>) = present.into_iter().unzip();
        let taken = self.members.work.side_by_side(disks, |disk| take_inventory(self.members.id, &*disk));
        let inventories: Vec<(u8, std::io::Result<Inventory>)> = slots.into_iter().zip(taken).collect();
        let mut gathered = Gathered::default();
        // In-sync disks first: their word on a version's shape counts.
        let in_sync = |slot: u8| self.members.member(slot).is_some_and(|member| member.is_in_sync());
        let (first, second): (Vec<_>, Vec<_>) = inventories.into_iter().partition(|(slot, _)| in_sync(*slot));
        for (slot, inventory) in first.into_iter().chain(second) {
            let inventory = match inventory {
                Ok(inventory) => inventory,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.begin_anew(slot) => continue,
                Err(error) => {
                    let path = self.members.member(slot).map(|m| m.path.read().clone()).unwrap_or_default();
                    self.members.read_failed(slot, &error);
                    let lost = self.members.iter().filter(|m| !m.is_readable() || !m.is_in_sync()).count();
                    if lost > usize::from(self.members.failures()) {
                        return Err(PoolError::Io { what: "list the objects on", path, source: error });
                    }
                    if self.members.member(slot).is_some_and(|member| member.is_readable()) {
                        self.members.take_out(slot, DiskState::Faulted);
                    }
                    continue;
                }
            };
            if in_sync(slot) {
                let of_puts = inventory.temps.iter().filter(|temp| !temp.is_rebuilt);
                gathered.unfinished.extend(of_puts.map(|temp| temp.version));
            }
            gathered.temps.extend(inventory.temps.into_iter().map(|temp| (slot, temp)));
            for Sighting { path, shard, file } in inventory.shards {
                let index = shard.index;
                let version = gathered
                    .versions
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
        Ok(gathered)
    }

    /// A disk lost its objects and their folder. It is brought up to date like one that was away,
    /// where the others can do without it. Blocks.
    fn begin_anew(&self, slot: u8) -> bool {
        let Some(member) = self.members.member(slot).filter(|member| self.members.has_lost_objects(member)) else {
            return false;
        };
        if member.io().and_then(|io| create::prepare(&*io)).is_err() {
            return false;
        }
        LOST_OBJECTS.clone_into(&mut member.last_error.lock());
        self.members.event(EventKind::DiskOut, format!("{}: {LOST_OBJECTS}", member.path.read().display()));
        member.in_sync.store(false, Ordering::Release);
        member.set_state(DiskState::Resilvering);
        self.members.write_labels(|_| {})
    }

    /// Whether a version lives (`recover.in_sync_decides`,
    /// `recover.newest_complete_lives`, `recover.incomplete_is_damage`).
    fn is_alive(&self, version: &Version, is_cut_short: bool) -> bool {
        self.decides(version) && (version.is_complete() || !is_cut_short)
    }

    fn is_complete(&self, version: &Version) -> bool {
        self.decides(version) && version.is_complete()
    }

    /// Whether some in-sync disk has it (`recover.in_sync_decides`).
    fn decides(&self, version: &Version) -> bool {
        version.places.iter().any(|(_, slot, _)| self.members.member(*slot).is_some_and(|m| m.is_in_sync()))
    }

    /// Whether its disks kept a file that they were told to remove
    /// (`recover.incomplete_is_damage`).
    fn was_to_be_removed(&self, version: &Version) -> bool {
        let disks: BTreeSet<u8> = version.places.iter().map(|(_, slot, _)| *slot).collect();
        let few = disks.len() <= usize::from(version.shard.geometry.m.min(self.members.failures()));
        few && !version.is_complete() && self.members.iter().all(|member| member.is_readable() && member.is_in_sync())
    }

    /// Makes the object. A second copy of a shard is litter, first of all one on a disk that holds
    /// another shard (`misplaced.two_shards_part`).
    fn adopt(&self, path: &str, version: Version, litter: &mut Vec<Grave>) -> Object {
        let mut slots = vec![NO_SLOT; usize::from(version.shard.geometry.shards())];
        let mut copies = [0u8; 1 + u8::MAX as usize];
        version
            .places
            .iter()
            .for_each(|(index, ..)| copies[usize::from(*index)] = copies[usize::from(*index)].saturating_add(1));
        // A shard that lies at one place only has no choice.
        let (only, several): (Vec<_>, Vec<_>) =
            version.places.into_iter().partition(|(index, ..)| copies[usize::from(*index)] == 1);
        let mut crowded = Vec::new();
        for (index, slot, file) in only.into_iter().chain(several) {
            let is_free = !slots.contains(&slot);
            match slots.get_mut(usize::from(index)) {
                Some(place) if *place == NO_SLOT && is_free => *place = slot,
                _ => crowded.push((index, slot, file)),
            }
        }
        for (index, slot, file) in crowded {
            match slots.get_mut(usize::from(index)) {
                Some(place) if *place == NO_SLOT => *place = slot,
                _ => {
                    let of = Some(path.to_owned());
                    // The copy on a disk that was away is merely old: the other was made since, and
                    // is durable.
                    let is_copy = self.members.member(slot).is_some_and(|member| member.is_in_sync());
                    litter.push(Grave { slot, file, version: version.shard.version, index, of, is_copy });
                }
            }
        }
        Object::new(new_object(self.members.id, path, &version.shard), &slots, self.objects.graveyard.clone())
    }

    /// Takes a disk back into the running pool: its shards of living objects are used, the rest is
    /// unlinked, and missing shards are rebuilt in the background. A disk that keeps a dead file is
    /// refused, because the file would be believed later. Blocks.
    pub fn merge_inventory(&self, slot: u8, inventory: Inventory, disk: &dyn DiskIo) -> std::io::Result<()> {
        let mut has: BTreeSet<(u64, u8)> = BTreeSet::new();
        let mut dead = Vec::new();
        let index = self.objects.index();
        if self.members.member(slot).is_none() {
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the disk has left the pool"));
        }
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
                // A copy that is not there is no reason to unlink another
                // (`misplaced.copy_goes_after_reading`).
                (Some(object), Some(Some(own))) if !self.names_shard(object, shard.index, own) => {
                    object.set_slot(shard.index, slot);
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
        for file in dead.into_iter().chain(inventory.temps.into_iter().map(|temp| temp.file)) {
            match shard_files::remove_shard(disk, &file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// While disks are out of use, looks now and then whether they are back: when there is
    /// something to write anyway, never on a timer.
    pub fn reconnect_if_due(self: &Arc<Self>) {
        if self.members.is_due_to_return() {
            let core = self.clone();
            self.members.work.detach(move || {
                // A task that is doing so already may be waiting for a disk that hangs.
                if !core.members.is_returning() {
                    core.reconnect(false);
                }
            });
        }
    }

    /// Looks whether disks that are out of use have come back. With `adopt` a disk whose label is
    /// damaged or missing is taken back too, if its files prove that it is this pool's: a person
    /// asked for it, so the damage has been seen. A disk that has diverged stays out
    /// (`diverged.left_alone`). Blocks.
    pub fn reconnect(self: &Arc<Self>, adopt: bool) -> usize {
        let _one = self.members.begin_return();
        let (mut back, mut has_news) = (0, false);
        for (slot, member) in self.members.with_slots() {
            if member.is_writable() || member.state() == DiskState::Offline {
                continue;
            }
            let path = member.path.read().clone();
            match self.reattach(slot, &path, if adopt { Return::Adopt } else { Return::Known }) {
                Ok(Returned::Back) => back += 1,
                Ok(Returned::Diverged { is_news }) => has_news |= is_news,
                Ok(Returned::Left) => {}
                Err(error) => {
                    // Whatever lay there is gone, or has been emptied.
                    if member.state() == DiskState::Diverged {
                        *member.divergence.lock() = None;
                        member.set_state(DiskState::Missing);
                    }
                    *member.last_error.lock() = error.to_string();
                }
            }
        }
        if back > 0 || has_news {
            self.members.write_labels(|_| {});
        }
        if back > 0 {
            self.repairs.add_all();
        }
        if has_news {
            self.count_divergence();
        }
        back
    }

    /// Takes back a disk that has diverged, whose own side a person gives up. Blocks.
    pub fn discard_side(self: &Arc<Self>, slot: u8) -> std::io::Result<()> {
        let _one = self.members.begin_return();
        let Some(member) = self.members.member(slot) else { return Ok(()) };
        let path = member.path.read().clone();
        if member.is_writable() {
            return Ok(());
        }
        self.reattach(slot, &path, Return::Discard)?;
        self.members.write_labels(|_| {});
        self.repairs.add_all();
        Ok(())
    }

    /// Leaves a disk that has diverged as it is (`diverged.left_alone`).
    fn leave_alone(&self, member: &MemberDisk, divergence: Divergence) -> Returned {
        let is_news = member.diverge(divergence);
        member.last_error.lock().clear();
        member.set_state(DiskState::Diverged);
        if is_news {
            self.members.tell_of_divergence(member);
        }
        Returned::Diverged { is_news }
    }

    fn reattach(self: &Arc<Self>, slot: u8, path: &std::path::Path, how: Return) -> std::io::Result<Returned> {
        let adopt = how != Return::Known;
        let Some(member) = self.members.member(slot) else { return Ok(Returned::Left) };
        if member.watch().is_closed() && member.watch().is_waiting() {
            // Its calls have not returned (`hang.calls_return_first`).
            return Err(crate::disk::watch::hangs());
        }
        let disk = self.members.opener.open_disk(path)?;
        // A disk that is still read stays under the watch of its readers.
        let was_readable = member.is_readable();
        let disk = if was_readable { disk } else { member.watched(disk) };
        let ours = self.members.label();
        let settled = ours.settled;
        let label = match crate::member::label::read_copies(&*disk) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(crate::member::adopt::UNLABELLED),
            read => read?,
        };
        if let Ok((label, _)) = &label
            && label.disk == member.id
            && label.pool == self.members.id
            && !ours.knows_life_of(label)
        {
            if how != Return::Discard {
                return Ok(self.leave_alone(member, Divergence::between(&ours, label)));
            }
            self.begin_discarding(member, &*disk)?;
        }
        let out = self.members.iter().filter(|member| !member.is_readable()).count();
        if let Err(why) = &label
            && *why != crate::member::label::NEWER
            && crate::member::adopt::belongs_to(&*disk, self.members.id)
            && let Some(seen) = crate::member::adopt::may_have_diverged(&*disk, &ours, member.id, out)
        {
            if how != Return::Discard {
                return Ok(self.leave_alone(member, Divergence::without_labels(&ours, seen)));
            }
            self.begin_discarding(member, &*disk)?;
        }
        match label {
            // An older copy of itself (`label.settled_outlives`).
            Ok((label, _)) if label.disk == member.id && member.is_in_sync() && label.generation < settled => {
                return Err(std::io::Error::other("an older copy of the disk lies in its place"));
            }
            Ok((label, false)) if label.disk == member.id && label.pool == self.members.id => {}
            Ok((label, true)) if label.disk == member.id && label.pool == self.members.id => {
                member.suspect.store(true, Ordering::Release);
            }
            Err(why)
                if adopt
                    && why != crate::member::label::NEWER
                    && crate::member::adopt::belongs_to(&*disk, self.members.id) =>
            {
                self.members.count_error(member, ErrorKind::Checksum, why);
                member.suspect.store(true, Ordering::Release);
            }
            Err(why) if !adopt || why == crate::member::label::NEWER => return Err(std::io::Error::other(why)),
            Err(why) => {
                let text = format!(
                    "{why}, and nothing on it says that it is this pool's: empty it to use it in its own place"
                );
                return Err(std::io::Error::other(text));
            }
            Ok(_) => return Err(std::io::Error::other("another disk lies in its place")),
        }
        // Still failing, or still read-only?
        disk.create(PROBE_NAME).and_then(|file| {
            file.write_at(&mut [std::io::IoSlice::new(&[0; 512])], 0)?;
            file.sync()
        })?;
        disk.remove(PROBE_NAME)?;
        let was_read_only = member.state() == DiskState::ReadOnly;
        // A lock of our own on the same directory would refuse us.
        member.detach();
        let lock = disk.lock(&self.members.owner)?;
        self.members.write_label_of_returning(&*disk, member)?;
        let inventory = match take_inventory(self.members.id, &*disk) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create::prepare(&*disk)?;
                take_inventory(self.members.id, &*disk)?
            }
            taken => taken?,
        };
        self.objects.files.clear();
        *member.divergence.lock() = None;
        self.merge_inventory(slot, inventory, &*disk)?;
        let disk = if was_readable { member.watched(disk) } else { disk };
        member.attach(disk.clone(), lock, path.to_owned());
        disk.settle();
        let trusted = self.members.failures() == 0 && !member.is_suspect();
        member.set_state(if trusted { DiskState::Online } else { DiskState::Resilvering });
        tracing::info!(pool = %self.members.name, disk = %path.display(), was_read_only, "disk is back");
        self.members.event(EventKind::DiskBack, path.display().to_string());
        Ok(Returned::Back)
    }

    /// A person gives up the side of a disk. Its label says so before its first file goes, so that
    /// what is left of that side is never opened.
    fn begin_discarding(&self, member: &MemberDisk, disk: &dyn DiskIo) -> std::io::Result<()> {
        let _lock = disk.lock(&self.members.owner)?;
        let text = self.divergence_text(member).unwrap_or_default();
        let text = format!("{}: its own side is given up, as asked: {text}", member.path.read().display());
        tracing::warn!(pool = %self.members.name, text);
        self.members.event(EventKind::Changed, text);
        self.members.write_label_of_discarded(disk, member.id)
    }
}

/// The disks that may be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    /// Those with a label of this pool.
    Known,
    /// Those without one, too, if their files are this pool's.
    Adopt,
    /// Those that have diverged, too.
    Discard,
}

/// The result of taking back a disk.
enum Returned {
    Back,
    /// It has diverged since it was last looked at, or had before.
    Diverged {
        is_news: bool,
    },
    /// The pool does not know it any more.
    Left,
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
