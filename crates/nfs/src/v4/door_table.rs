//! The table that all doors share, as version 4 asks it.
//!
//! - `doortable.open_holds_inode`: each open and each delegation keeps an [`Open`] of the file service, so the inode
//!   lives, other doors see it, and dropping it leaves nothing behind.
//! - `doortable.exports_only`: volumes without an export are forgotten at once, with all states in them: a client that
//!   says nothing keeps no volume open.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use larder_files::leases::Holder;
use larder_files::locks::{Held, LockError, Range};
use larder_files::{Files, Open, Uses};
use larder_fs::Ino;
use uuid::Uuid;

use super::super::handle::HANDLE_BYTES;
use super::delegation::Delegated;
use super::file_table::{
    ByteRange, FileKey, FileTable, Holder as StateHolder, LockInTheWay, LockOwnerId, RangeRefusal, ShareBits,
};
use super::recalls::VolumeDelegations;
use super::server::NfsV4;
use super::stateids::StateNumber;
use super::types::SessionId;
use larder_doors::strangers;

/// No owner has this number.
const NO_OWNER: u64 = 0;

/// An inode that a client holds.
pub struct HeldOpen {
    pub open: Open,
    /// The user who opened it first, for people.
    pub uid: u32,
    /// From where it was opened.
    pub address: IpAddr,
    /// The directory and the name by which it was opened; `None`: by its handle alone.
    pub name: Option<(Ino, Box<[u8]>)>,
    /// The handle by which the client knows it.
    pub handle: [u8; HANDLE_BYTES],
    /// Of a delegation.
    pub granted: Option<Granted>,
}

/// The grant of a delegation.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The request that it answered, whose reply a recall may overtake (RFC 8881 2.10.6.3): session, slot, number.
    pub by: Option<(SessionId, u32, u32)>,
    /// The file as it was: a client that answers otherwise has changed it.
    pub change: u64,
    pub size: u64,
}

/// A volume that is exported.
struct Exported {
    files: Files,
    /// Asked by other doors as long as it is here, from the first open on: before it there is nothing to ask for.
    delegations: Arc<VolumeDelegations>,
    is_asked: bool,
}

#[derive(Default)]
pub struct DoorTable {
    /// The volumes that are exported, by their numbers here.
    trees: HashMap<u64, Exported>,
    numbers: HashMap<Uuid, u64>,
    next: u64,
    held: HashMap<StateNumber, HeldOpen>,
    /// For the next claim or delegation of a state that holds nothing yet.
    offered: Option<HeldOpen>,
}

impl DoorTable {
    /// Takes the volumes of these services in place of those before. Returns the numbers of the ones that are gone,
    /// whose states the caller ends before it calls [`DoorTable::forget`].
    pub fn set_trees<'f>(&mut self, exported: impl Iterator<Item = &'f Files>, v4: &Weak<NfsV4>) -> Vec<u64> {
        let mut kept = HashSet::new();
        for files in exported {
            let known = self.numbers.get(&files.id()).copied();
            // A volume that was closed and opened again is another one: what was held of it went with the former.
            let is_same = |number: &u64| {
                self.trees.get(number).is_some_and(|exported| exported.files.verifier() == files.verifier())
            };
            let number = known.filter(is_same).unwrap_or_else(|| {
                self.next += 1;
                self.next
            });
            self.numbers.insert(files.id(), number);
            kept.insert(number);
            self.trees.entry(number).or_insert_with(|| {
                let delegations = Arc::new(VolumeDelegations { v4: v4.clone(), volume: number });
                Exported { files: files.clone(), delegations, is_asked: false }
            });
        }
        self.trees.keys().copied().filter(|number| !kept.contains(number)).collect()
    }

    pub fn forget(&mut self, volume: u64) {
        self.trees.remove(&volume);
        self.numbers.retain(|_, number| *number != volume);
    }

    /// The number of a volume that is exported.
    pub fn number(&self, files: &Files) -> Option<u64> {
        self.numbers.get(&files.id()).copied()
    }

    /// `None`: nothing of the volume is exported any more.
    pub fn key(&self, files: &Files, ino: Ino) -> Option<FileKey> {
        self.numbers.get(&files.id()).map(|volume| FileKey { volume: *volume, inode: ino.0 })
    }

    /// The one that other doors have to ask from now on, until [`DoorTable::is_asked`]. Registering takes the lock
    /// under which it is asked, so it is done without ours.
    pub fn to_be_asked(&self, files: &Files) -> Option<(u64, Weak<dyn Holder>)> {
        let volume = self.numbers.get(&files.id())?;
        let exported = self.trees.get(volume).filter(|exported| !exported.is_asked)?;
        Some((*volume, Arc::downgrade(&exported.delegations) as _))
    }

    pub fn is_asked(&mut self, volume: u64) {
        if let Some(exported) = self.trees.get_mut(&volume) {
            exported.is_asked = true;
        }
    }

    /// All volumes that are exported.
    pub fn all_files(&self) -> Vec<Files> {
        self.trees.values().map(|exported| exported.files.clone()).collect()
    }

    pub fn files_of(&self, volume: u64) -> Option<Files> {
        self.trees.get(&volume).map(|exported| exported.files.clone())
    }

    fn files(&self, file: FileKey) -> Option<(&Files, Ino)> {
        self.trees.get(&file.volume).map(|exported| (&exported.files, Ino(file.inode)))
    }

    /// An inode for the state that is made next. It is given back if no state takes it.
    pub fn offer(&mut self, held: HeldOpen) {
        self.offered = Some(held);
    }

    pub fn withdraw(&mut self) -> Option<HeldOpen> {
        self.offered.take()
    }

    /// The handle by which a client knows what it holds.
    pub fn handle(&self, state: StateNumber) -> Option<[u8; HANDLE_BYTES]> {
        self.held.get(&state).map(|held| held.handle)
    }

    /// What a state holds.
    pub fn held(&self, state: StateNumber) -> Option<&HeldOpen> {
        self.held.get(&state)
    }

    pub fn granted(&self, delegation: StateNumber) -> Option<Granted> {
        self.held.get(&delegation)?.granted
    }
}

fn uses(bits: ShareBits) -> Uses {
    let read = Uses::NOTHING.and_if(bits.has(ShareBits::READ), Uses::READ);
    read.and_if(bits.has(ShareBits::WRITE), Uses::WRITE)
}

fn range(bytes: ByteRange) -> Range {
    Range { start: bytes.start, last: bytes.last }
}

fn in_the_way(files: &Files, held: &Held) -> LockInTheWay {
    let range = ByteRange { start: held.range.start, last: held.range.last };
    LockInTheWay { range, exclusive: held.exclusive, owner: files.own_owner(held).map(LockOwnerId) }
}

impl FileTable for DoorTable {
    fn claim(&mut self, file: FileKey, open: StateHolder, access: ShareBits, deny: ShareBits) -> bool {
        debug_assert!(self.trees.contains_key(&file.volume), "keys are of exported volumes");
        if let Some(held) = self.held.get(&open.state) {
            return held.open.claim_against_all(uses(access), uses(deny));
        }
        let Some(held) = self.offered.take() else { return false };
        let is_granted = held.open.claim_against_all(uses(access), uses(deny));
        if is_granted {
            self.held.insert(open.state, held);
        } else {
            self.offered = Some(held);
        }
        is_granted
    }

    fn release(&mut self, _file: FileKey, open: StateHolder) {
        self.held.remove(&open.state);
    }

    fn denied(&self, file: FileKey, but: Option<StateHolder>, access: ShareBits) -> bool {
        let own = but.and_then(|holder| self.held.get(&holder.state)).map(|held| &held.open);
        self.files(file).is_some_and(|(files, ino)| files.is_denied(ino, own, uses(access)))
    }

    fn lock(
        &mut self,
        file: FileKey,
        (network, owner): (IpAddr, LockOwnerId),
        bytes: ByteRange,
        exclusive: bool,
    ) -> Result<(), RangeRefusal> {
        let Some((files, ino)) = self.files(file) else { return Err(RangeRefusal::TooMany) };
        match files.locking_for(strangers::number(network)).lock(ino, owner.0, range(bytes), exclusive, 0) {
            Ok(()) => Ok(()),
            Err(LockError::Conflict(held)) => Err(RangeRefusal::InTheWay(in_the_way(files, &held))),
            Err(LockError::TooMany | LockError::Deadlock | LockError::Reclaims) => Err(RangeRefusal::TooMany),
        }
    }

    fn unlock(&mut self, file: FileKey, owner: LockOwnerId, bytes: ByteRange) -> Result<(), RangeRefusal> {
        let Some((files, ino)) = self.files(file) else { return Ok(()) };
        files.unlock(ino, owner.0, range(bytes)).map_err(|_| RangeRefusal::TooMany)
    }

    fn test(
        &self,
        file: FileKey,
        owner: Option<LockOwnerId>,
        bytes: ByteRange,
        exclusive: bool,
    ) -> Option<LockInTheWay> {
        let (files, ino) = self.files(file)?;
        let held = files.test_lock(ino, owner.map_or(NO_OWNER, |owner| owner.0), range(bytes), exclusive)?;
        Some(in_the_way(files, &held))
    }

    fn has_locks(&self, file: FileKey, owner: LockOwnerId) -> bool {
        self.files(file).is_some_and(|(files, ino)| files.has_locks(ino, owner.0))
    }

    fn end_locks(&mut self, file: FileKey, owner: LockOwnerId) {
        if let Some((files, ino)) = self.files(file) {
            files.end_locks(ino, owner.0);
        }
    }

    fn delegate(&mut self, file: FileKey, delegation: StateHolder, kind: Delegated) -> bool {
        let Some((files, ino)) = self.files(file) else { return false };
        let is_in_use = match kind {
            Delegated::Read => files.is_written_elsewhere(ino),
            Delegated::Write => files.is_open_elsewhere(ino),
        };
        // Changes by another machine, and by programs of the host in its folders, come without a word.
        if is_in_use || files.is_followed() || files.reuses_numbers() {
            return false;
        }
        let Some(held) = self.offered.take() else { return false };
        self.held.insert(delegation.state, held);
        true
    }

    fn undelegate(&mut self, _file: FileKey, delegation: StateHolder) {
        self.held.remove(&delegation.state);
    }
}
