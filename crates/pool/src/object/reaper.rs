//! The reaper unlinks files in the background: deletes are answered once the journal has them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::core::Core;
use crate::disk::work::Turns;
use crate::object::index::{Burial, Grave};
use crate::object::shard_files;

/// Files to be unlinked once more; a disk with more of them is hardly a disk.
const STUBBORN_MAX: usize = 4096;

impl Core {
    /// Unlinks the files sent to the graveyard until it is stopped: the body of a thread.
    pub fn bury_all(&self, work: &mut UnboundedReceiver<Burial>) {
        while let Some(burial) = work.blocking_recv()
            && self.bury(burial)
        {}
    }

    /// As `bury_all`, as a task.
    pub async fn bury_in_turns(self: Arc<Self>, mut work: UnboundedReceiver<Burial>, turns: Arc<dyn Turns>) {
        while let Some(burial) = work.recv().await {
            turns.turn().await;
            if !self.bury(burial) {
                return;
            }
        }
    }

    /// Whether to go on.
    fn bury(&self, burial: Burial) -> bool {
        match burial {
            Burial::Stop => return false,
            Burial::Barrier(done) => drop(done.send(())),
            Burial::Files(files) => {
                files.iter().for_each(|grave| self.unlink(grave));
                self.objects.graveyard.done();
            }
        }
        true
    }

    fn unlink(&self, grave: &Grave) {
        let Grave { slot, file, version, index, of, is_copy } = grave;
        let _one = of.is_some().then(|| self.repairs.one(*version));
        let current = of.as_ref().and_then(|path| self.objects.index().get(path).cloned());
        if let Some(object) = current.filter(|object| object.version == *version) {
            if object.slot(*index) == Some(*slot) {
                return;
            }
            if *is_copy && !self.is_well(&object, *index) {
                self.repairs.add_shard(&object.path, *version, *index);
                return;
            }
        }
        // An open file would keep its room.
        self.objects.files.remove(&(*slot, *version, *index));
        let Some(member) = self.members.member(*slot).filter(|member| member.is_writable()) else { return };
        let of_call = file.clone();
        match member
            .io()
            .and_then(|io| self.members.work.on_disk(&io, move |io| shard_files::remove_shard(io, &of_call)))
        {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.members.write_failed(*slot, &error);
                self.keep_stubborn(Grave {
                    slot: *slot,
                    file: file.clone(),
                    version: *version,
                    index: *index,
                    of: of.clone(),
                    is_copy: *is_copy,
                });
            }
        }
    }

    /// Files that a disk would not unlink are tried again before anything relies on their absence
    /// (`tombstone.kept_until_unlinked`).
    fn keep_stubborn(&self, grave: Grave) {
        let slot = grave.slot;
        let full = {
            let mut stubborn = self.objects.stubborn.lock();
            let full = stubborn.len() >= STUBBORN_MAX;
            if !full {
                stubborn.push(grave);
            }
            full
        };
        if full && !self.members.give_up(slot) {
            self.objects.unsynced.store(true, Ordering::Release);
        }
    }

    /// Tries once more. A disk that still keeps a file is put out of use where the others can do
    /// without it. Returns those disks. Blocks.
    pub fn unlink_stubborn(&self) -> BTreeSet<u8> {
        let graves = std::mem::take(&mut *self.objects.stubborn.lock());
        graves.iter().for_each(|grave| self.unlink(grave));
        let slots: BTreeSet<u8> = self.objects.stubborn.lock().iter().map(|grave| grave.slot).collect();
        slots.iter().for_each(|slot| _ = self.members.give_up(*slot));
        self.objects
            .stubborn
            .lock()
            .retain(|grave| self.members.member(grave.slot).is_some_and(|member| member.is_in_sync()));
        slots
    }

    /// Whether something deleted is still on a disk whose word counts, as far as is known.
    pub fn has_stubborn(&self) -> bool {
        self.objects.unsynced.load(Ordering::Acquire) || !self.objects.stubborn.lock().is_empty()
    }
}
