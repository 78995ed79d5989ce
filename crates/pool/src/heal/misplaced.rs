//! Misplaced shards: somebody moved files about, or swapped the contents of two disks.
//!
//! - `misplaced.two_shards_part`: two shards of one object do not stay on one disk, where they
//!   would be lost together. One of them is copied to a disk that holds none, like any shard that
//!   moves (`moving.durable_before_named`).
//! - `misplaced.found_by_name`: a shard that is missing or damaged in its place is looked for by
//!   name on all other disks. It is accepted there if each of its blocks is intact, and counts as
//!   found once it is durable.
//! - `misplaced.copy_goes_after_reading`: a second copy of a shard would outlive its object, so it
//!   is unlinked, but only after the indexed one has been read from end to end. Where that one is
//!   damaged, the second copy mends it.
//! - `misplaced.obstacle_makes_way`: anything but a file in a shard's place is renamed out of the
//!   way. It is never removed unless it is empty.

use std::io;
use std::sync::Arc;

use crate::core::Core;
use crate::disk::DiskIo;
use crate::error::PoolError;
use crate::heal::rebuilt::{Rebuild, Source};
use crate::object::index::{Grave, Object};
use crate::object::shard::{self, FANOUT, Found};
use crate::object::shard_files;

impl Core {
    /// Looks for a missing shard by name (`misplaced.found_by_name`); whether it was found. The
    /// caller holds the object's lock. Blocks.
    pub fn find_again(&self, object: &Object, index: u8) -> bool {
        let own = object.slot(index);
        let others = self.members.with_slots().filter(|(slot, member)| Some(*slot) != own && member.is_readable());
        let others: Vec<u8> = others.map(|(slot, _)| slot).collect();
        let is_there =
            |slot: &u8| self.holds_shard(object, index, *slot) && self.make_durable(object, index, *slot).is_ok();
        let Some(found) = others.into_iter().find(is_there) else { return false };
        {
            // The disk may have left meanwhile (`moving.forgotten_when_empty`).
            let mut places = self.objects.index_mut();
            if self.members.member(found).is_none() {
                return false;
            }
            object.set_slot(index, found);
            places.settle(object);
        }
        self.objects.files.remove(&(found, object.version, index));
        if let Some(slot) = own {
            self.objects.files.remove(&(slot, object.version, index));
            // The file in its old place is of no use: damaged, or another thing under its name.
            let (file, version) = (object.file_name(index), object.version);
            let of = Some(object.path.clone());
            self.objects.graveyard.send(vec![Grave { slot, file, version, index, of, is_copy: false }]);
        }
        let disk =
            self.members.member(found).map(|member| member.path.read().display().to_string()).unwrap_or_default();
        tracing::warn!(pool = %self.members.name, object = %object.path, index, disk, "a shard was found on another disk");
        true
    }

    /// The person who put it there may not have synced it.
    fn make_durable(&self, object: &Object, index: u8, slot: u8) -> io::Result<()> {
        let io = self.members.member(slot).ok_or(io::ErrorKind::NotFound)?.io()?;
        io.open(&object.file_name(index), false)?.sync()?;
        io.sync_directory(&shard::directory(&object.path))
    }

    /// Moves one of two shards that share a disk (`misplaced.two_shards_part`), first of all one of
    /// those that were `found` there. Returns the moved ones; a shard without a free disk stays.
    /// The caller holds the object's lock. Blocks.
    pub fn spread(self: &Arc<Self>, object: &Arc<Object>, found: &[u8]) -> Result<Vec<u8>, PoolError> {
        let mut moved = Vec::new();
        for index in found.iter().copied().chain(object.crowded()) {
            let own = object.slot(index);
            let is_alone = object.placed().filter(|(_, slot)| Some(*slot) == own).count() < 2;
            let Some(target) = self.repair_target(object, None).filter(|_| !is_alone) else { continue };
            match self.rebuild(object, index, target, Source::Itself) {
                Ok(()) => moved.push(index),
                Err(Rebuild::Write(error)) => self.members.write_failed(target, &error),
                Err(Rebuild::Read(error)) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Sends second copies of living shards to the graveyard (`misplaced.copy_goes_after_reading`).
    /// Needed copies are left to the search by name (`misplaced.found_by_name`), and unknown files
    /// may be on their way to the index. Bounded in memory by the names of one directory. Blocks.
    pub fn bury_copies(&self) {
        let disks = self.members.with_slots().filter(|(_, member)| member.is_writable());
        let disks: Vec<(u8, Arc<dyn DiskIo>)> = disks.filter_map(|(slot, m)| Some((slot, m.io().ok()?))).collect();
        for directory in 0..FANOUT {
            let directory = format!("objects/{directory:02x}");
            for (slot, disk) in &disks {
                if self.scrub_interrupted() {
                    return;
                }
                // A disk that cannot be listed is found out by others.
                let names = disk.list(&directory).unwrap_or_default();
                let copies = names.iter().filter_map(|name| self.as_copy(*slot, &**disk, &directory, name));
                let copies: Vec<Grave> = copies.collect();
                if !copies.is_empty() {
                    self.objects.graveyard.send(copies);
                }
            }
        }
    }

    fn as_copy(&self, slot: u8, disk: &dyn DiskIo, directory: &str, name: &str) -> Option<Grave> {
        let Found::Shard(shard) = shard::parse_name(name) else { return None };
        let file = format!("{directory}/{name}");
        let path = shard_files::path_of(self.members.id, disk, &file, &shard)?;
        let object = self.objects.index().get(&path).filter(|object| object.version == shard.version).cloned()?;
        let is_copy = object.slot(shard.index).is_some_and(|own| own != slot) && object.file_name(shard.index) == file;
        let (version, index) = (shard.version, shard.index);
        let is_spare = is_copy && self.is_well(&object, index);
        is_spare.then_some(Grave { slot, file, version, index, of: Some(path), is_copy: false })
    }
}
