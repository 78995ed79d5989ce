//! Byte ranges.

use std::sync::Arc;

use super::super::file_table::{ByteRange, FileKey, FileTable, LockInTheWay, LockOwnerId, RangeRefusal, ShareBits};
use super::super::stateids::StateNumber;
use super::super::types::{ClientId, NfsStat, StateId};
use super::{Caller, LockState, OwnerId, OwnerKind, StateKind, StateRecord, StateTable};

/// Why LOCK or LOCKT was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// With the client, 0 for another one, and the owner, empty for another door's.
    Denied {
        held: LockInTheWay,
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

impl<T: FileTable> StateTable<T> {
    /// LOCK (RFC 7530 16.10, RFC 8881 18.10).
    pub fn lock(
        &mut self,
        locker: LockerOf<'_>,
        file: FileKey,
        range: ByteRange,
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
        let locker = (network, LockOwnerId(owner.0));
        self.table.lock(file, locker, range, exclusive).map_err(|refusal| self.denied_by(refusal, client))?;
        Ok(match existing {
            Some(number) => self.changed(number),
            None => {
                let number = self.unused_number();
                if let Some(StateRecord { kind: StateKind::Open(of), .. }) = self.states.get_mut(&open) {
                    of.locks.insert(number);
                }
                self.insert(number, client, file, StateKind::Lock(LockState { owner, open }))
            }
        })
    }

    fn denied_by(&self, refusal: RangeRefusal, by: ClientId) -> LockRefusal {
        match refusal {
            RangeRefusal::TooMany => NfsStat::Delay.into(),
            RangeRefusal::InTheWay(held) => {
                let record = held.owner.and_then(|owner| self.owners.get(&OwnerId(owner.0)));
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
        range: ByteRange,
        exclusive: bool,
    ) -> Result<(), LockRefusal> {
        let owner = self.owner_ids.get(&(client, OwnerKind::Lock, Arc::from(owner)));
        let owner = owner.map(|owner| LockOwnerId(owner.0));
        match self.table.test(file, owner, range, exclusive) {
            None => Ok(()),
            Some(held) => Err(self.denied_by(RangeRefusal::InTheWay(held), client)),
        }
    }

    /// LOCKU (RFC 8881 18.12).
    pub fn unlock(
        &mut self,
        stateid: &StateId,
        file: FileKey,
        range: ByteRange,
        caller: Caller,
    ) -> Result<StateId, NfsStat> {
        let number = self.find(stateid, caller)?;
        let owner = match self.states.get(&number) {
            Some(StateRecord { kind: StateKind::Lock(lock), file: of, .. }) if *of == file => lock.owner,
            _ => return Err(NfsStat::BadStateId),
        };
        self.table.unlock(file, LockOwnerId(owner.0), range).map_err(|_| NfsStat::Delay)?;
        Ok(self.changed(number))
    }

    /// RELEASE_LOCKOWNER (RFC 7530 16.37).
    pub fn release_lock_owner(&mut self, client: ClientId, name: &[u8]) -> Result<(), NfsStat> {
        let Some(owner) = self.owner_ids.get(&(client, OwnerKind::Lock, Arc::from(name))).copied() else {
            return Ok(());
        };
        let locks = self.owners.get(&owner).map(|record| record.states.clone()).unwrap_or_default();
        let holds = |number: &StateNumber| {
            self.states.get(number).is_some_and(|state| self.table.has_locks(state.file, LockOwnerId(owner.0)))
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
pub fn lock_range(offset: u64, length: u64) -> Result<ByteRange, NfsStat> {
    match length {
        0 => Err(NfsStat::Inval),
        u64::MAX => Ok(ByteRange { start: offset, last: u64::MAX }),
        _ => Ok(ByteRange { start: offset, last: offset.checked_add(length - 1).ok_or(NfsStat::Inval)? }),
    }
}
