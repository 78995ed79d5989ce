//! Byte ranges.

use std::sync::Arc;

use larder_doors::strangers;
use larder_opens::{Held, LockError, Range};

use super::super::file_key::{FileKey, ShareBits};
use super::super::stateids::StateNumber;
use super::super::types::{ClientId, NfsStat, StateId};
use super::{Caller, LockState, OwnerId, OwnerKind, StateKind, StateRecord, StateTable};

/// No owner has this number.
const NO_OWNER: OwnerId = OwnerId(0);

/// Why LOCK or LOCKT was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// With the client, 0 for another one, and the owner, empty for another door's.
    Denied {
        held: Held,
        client: ClientId,
        owner: Box<[u8]>,
    },
    Status(NfsStat),
}

impl From<NfsStat> for LockRefusal {
    fn from(status: NfsStat) -> Self {
        LockRefusal::Status(status)
    }
}

/// The locker of a LOCK (`locker4`).
#[derive(Clone, Copy, Debug)]
pub enum LockerOf<'a> {
    New { open: StateId, owner: &'a [u8] },
    Existing(StateId),
}

impl<H> StateTable<H> {
    /// LOCK (RFC 7530 16.10, RFC 8881 18.10).
    pub fn lock(
        &mut self,
        locker: LockerOf<'_>,
        file: FileKey,
        range: Range,
        exclusive: bool,
        caller: Caller,
    ) -> Result<StateId, LockRefusal> {
        let (open, owner, existing) = match locker {
            LockerOf::New { open, owner } => {
                let open = self.find_open(&open, file, caller)?;
                let client = self.states.get(&open).map_or(ClientId(0), |state| state.client);
                let owner = self.owner(client, OwnerKind::Lock, owner)?;
                (open, owner, self.lock_by.get(&(owner, open)).copied())
            }
            LockerOf::Existing(stateid) => {
                let number = self.find(&stateid, caller)?;
                match self.states.get(&number) {
                    Some(StateRecord { kind: StateKind::Lock(lock), file: of, .. }) if *of == file => {
                        (lock.open, lock.owner, Some(number))
                    }
                    _ => return Err(NfsStat::BadStateId.into()),
                }
            }
        };
        let Some(StateRecord { kind: StateKind::Open(of), client, .. }) = self.states.get(&open) else {
            return Err(NfsStat::BadStateId.into());
        };
        let (access, client) = (of.access, *client);
        let network = self.networks.of(client);
        if !access.has(if exclusive { ShareBits::WRITE } else { ShareBits::READ }) {
            return Err(NfsStat::OpenMode.into());
        }
        if existing.is_none() {
            self.room_for(client)?;
        }
        let (judge, ino) = self.judges.of(file).ok_or(NfsStat::Delay)?;
        let party = Some(strangers::number(network));
        let wanted = Held::posix(judge.owner(owner), range, exclusive, 0, party);
        judge.table.lock(ino, wanted).map_err(|error| self.denied_by(error, judge.door, client))?;
        Ok(match existing {
            Some(number) => self.changed(number),
            None => {
                let number = self.unused_number();
                if let Some(StateRecord { kind: StateKind::Open(of), .. }) = self.states.get_mut(&open) {
                    of.locks.insert(number);
                }
                self.insert(number, client, file, StateKind::Lock(LockState { owner, open }), None)
            }
        })
    }

    fn denied_by(&self, error: LockError, door: u32, by: ClientId) -> LockRefusal {
        match error {
            LockError::TooMany | LockError::Deadlock | LockError::Reclaims => NfsStat::Delay.into(),
            LockError::Conflict(held) => {
                let own = Some(held.owner).filter(|owner| owner.door == door);
                let record = own.and_then(|owner| self.owners.get(&OwnerId(owner.id)));
                let (client, owner) =
                    record.map_or((ClientId(0), Box::default()), |record| (record.key.0, record.key.2[..].into()));
                // `clients.ids_are_secrets`
                let client = if client == by { client } else { ClientId(0) };
                LockRefusal::Denied { held, client, owner }
            }
        }
    }

    /// LOCKT: nothing is made, not even an owner.
    pub fn test_lock(
        &self,
        client: ClientId,
        owner: &[u8],
        file: FileKey,
        range: Range,
        exclusive: bool,
    ) -> Result<(), LockRefusal> {
        let owner = self.owner_ids.get(&(client, OwnerKind::Lock, Arc::from(owner))).copied().unwrap_or(NO_OWNER);
        let Some((judge, ino)) = self.judges.of(file) else { return Ok(()) };
        match judge.table.test_lock(ino, Held::posix(judge.owner(owner), range, exclusive, 0, None)) {
            None => Ok(()),
            Some(held) => Err(self.denied_by(LockError::Conflict(held), judge.door, client)),
        }
    }

    /// LOCKU (RFC 8881 18.12).
    pub fn unlock(
        &mut self,
        stateid: &StateId,
        file: FileKey,
        range: Range,
        caller: Caller,
    ) -> Result<StateId, NfsStat> {
        let number = self.find(stateid, caller)?;
        let owner = match self.states.get(&number) {
            Some(StateRecord { kind: StateKind::Lock(lock), file: of, .. }) if *of == file => lock.owner,
            _ => return Err(NfsStat::BadStateId),
        };
        if let Some((judge, ino)) = self.judges.of(file) {
            judge.table.unlock(ino, judge.owner(owner), range).map_err(|_| NfsStat::Delay)?;
        }
        Ok(self.changed(number))
    }

    /// RELEASE_LOCKOWNER (RFC 7530 16.37).
    pub fn release_lock_owner(&mut self, client: ClientId, name: &[u8]) -> Result<(), NfsStat> {
        let Some(owner) = self.owner_ids.get(&(client, OwnerKind::Lock, Arc::from(name))).copied() else {
            return Ok(());
        };
        let locks = self.owners.get(&owner).map(|record| record.states.clone()).unwrap_or_default();
        let holds = |number: &StateNumber| {
            self.states.get(number).is_some_and(|state| self.judges.has_locks(state.file, owner))
        };
        if locks.iter().any(holds) {
            return Err(NfsStat::LocksHeld);
        }
        locks.into_iter().for_each(|lock| self.end(lock));
        self.forget_owner(owner);
        Ok(())
    }
}

/// The bytes of a lock (RFC 8881 18.10.3): a length of all ones reaches to the end of any file.
pub fn lock_range(offset: u64, length: u64) -> Result<Range, NfsStat> {
    match length {
        0 => Err(NfsStat::Inval),
        u64::MAX => Ok(Range { start: offset, last: u64::MAX }),
        _ => Ok(Range { start: offset, last: offset.checked_add(length - 1).ok_or(NfsStat::Inval)? }),
    }
}
