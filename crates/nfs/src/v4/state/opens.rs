//! Opens, and the rights of READ, WRITE and their kin that come from them.

use std::collections::BTreeSet;

use super::super::delegation::{Delegated, Delegation};
use super::super::file_key::{FileKey, ShareBits};
use super::super::known_rights::KnownRight;
use super::super::openers::Openers;
use super::super::stateids::{self, Named};
use super::super::types::{ClientId, NfsStat, StateId};
use super::{Caller, EndedState, Held, OpenState, OwnerId, StateKind, StateRecord, StateTable};

/// What OPEN gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub stateid: StateId,
    /// NFSv4.0: OPEN_CONFIRM has to follow.
    pub must_confirm: bool,
}

/// Right to read or write data by a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRight {
    /// The owner of locks, for mandatory ones and for ends of waits.
    pub client: Option<ClientId>,
    /// The users who opened the file, where it was opened (`openers.each_their_own`).
    pub openers: Openers,
}

impl<H> StateTable<H> {
    /// OPEN of a file by an owner: a new open, or an upgrade of the one that it has (RFC 7530 9.9, RFC 8881 9.9). `uid` is
    /// the user whose right to this access was judged. A new open keeps `offered`.
    /// Delegations of others are recalled first (`state.conflict_recalls`).
    pub fn open(
        &mut self,
        owner: OwnerId,
        file: FileKey,
        (access, deny): (ShareBits, ShareBits),
        (uid, minor): (u32, u32),
        offered: &mut Option<Held<H>>,
    ) -> Result<Opened, NfsStat> {
        if access == ShareBits::NONE {
            return Err(NfsStat::Inval);
        }
        let record = self.owners.get(&owner).ok_or(NfsStat::ServerFault)?;
        let (client, must_confirm) = (record.key.0, minor == 0 && !record.is_confirmed);
        let writes = access.has(ShareBits::WRITE) || deny.has(ShareBits::READ);
        self.conflict(file, Some(client), writes)?;
        let existing = self.open_by.get(&(owner, file)).copied();
        let (asked_access, asked_deny) = (1 << access.number(), 1 << deny.number());
        let stateid = match existing {
            Some(number) => {
                let Some(StateRecord { kind: StateKind::Open(open), held: Some((entry, _)), .. }) =
                    self.states.get_mut(&number)
                else {
                    return Err(NfsStat::ServerFault);
                };
                // RFC 7530 9.9 has an owner's own denials bind it as well.
                if minor == 0 && access.meets(open.deny) {
                    return Err(NfsStat::ShareDenied);
                }
                let (all, denied) = (open.access.and(access), open.deny.and(deny));
                // `state.judged_by_table`
                entry.claim(all.uses(), denied.uses(), false).map_err(|_| NfsStat::ShareDenied)?;
                (open.access, open.deny) = (all, denied);
                open.asked_access |= asked_access;
                open.asked_deny |= asked_deny;
                open.openers.add(uid, access);
                open.locks.iter().for_each(|lock| self.rights.forget(*lock));
                self.changed(number)
            }
            None => {
                self.room_for(client)?;
                let number = self.unused_number();
                let (entry, _) = offered.as_ref().ok_or(NfsStat::ServerFault)?;
                // Clients of this door reclaim in the order of its own grace.
                entry.claim(access.uses(), deny.uses(), false).map_err(|_| NfsStat::ShareDenied)?;
                let mut openers = Openers::default();
                openers.add(uid, access);
                let locks = BTreeSet::new();
                let open = OpenState { owner, access, deny, asked_access, asked_deny, openers, locks };
                self.insert(number, client, file, StateKind::Open(open), offered.take())
            }
        };
        Ok(Opened { stateid, must_confirm })
    }

    /// OPEN_CONFIRM (RFC 7530 16.18).
    pub fn confirm_open(&mut self, stateid: &StateId, file: FileKey, caller: Caller) -> Result<StateId, NfsStat> {
        let number = self.find_open(stateid, file, caller)?;
        let owner = self.owner_of(number).and_then(|owner| self.owners.get_mut(&owner));
        let owner = owner.ok_or(NfsStat::BadStateId)?;
        // There is nothing left to confirm.
        if std::mem::replace(&mut owner.is_confirmed, true) {
            return Err(NfsStat::BadStateId);
        }
        Ok(self.changed(number))
    }

    /// OPEN_DOWNGRADE (RFC 8881 18.18): to what some OPEN has asked for.
    pub fn downgrade(
        &mut self,
        stateid: &StateId,
        file: FileKey,
        access: ShareBits,
        deny: ShareBits,
        caller: Caller,
    ) -> Result<StateId, NfsStat> {
        let number = self.find_open(stateid, file, caller)?;
        let Some(StateRecord { kind: StateKind::Open(open), held: Some((entry, _)), .. }) =
            self.states.get_mut(&number)
        else {
            return Err(NfsStat::BadStateId);
        };
        let fits = open.access.has(access) && open.deny.has(deny);
        let fits = fits && made_of(open.asked_access, access) && made_of(open.asked_deny, deny);
        if access == ShareBits::NONE || !fits {
            return Err(NfsStat::Inval);
        }
        // Fewer uses and denials conflict with nothing new.
        let _ = entry.claim(access.uses(), deny.uses(), false);
        (open.access, open.deny) = (access, deny);
        open.asked_access = within(open.asked_access, access);
        open.asked_deny = within(open.asked_deny, deny);
        open.openers.keep(access);
        open.locks.iter().for_each(|lock| self.rights.forget(*lock));
        Ok(self.changed(number))
    }

    /// CLOSE (RFC 8881 18.2): its locks end with it.
    pub fn close(&mut self, stateid: &StateId, file: FileKey, caller: Caller) -> Result<(), NfsStat> {
        let number = self.find_open(stateid, file, caller)?;
        let owner = self.owner_of(number);
        self.end(number);
        if let Some(owner) = owner.filter(|_| caller.minor == 0) {
            self.ended.insert(number, EndedState::ClosedBy(owner));
        }
        Ok(())
    }

    /// The right of READ, WRITE, SETATTR of a size and their kin (RFC 8881 9.1.2).
    pub fn data_right(
        &mut self,
        stateid: &StateId,
        file: FileKey,
        writes: bool,
        caller: Caller,
    ) -> Result<DataRight, NfsStat> {
        let wanted = if writes { ShareBits::WRITE } else { ShareBits::READ };
        match stateids::name(stateid, self.life, caller.minor)? {
            Named::ReadBypass if !writes => {
                self.conflict(file, caller.client, writes)?;
                return Ok(DataRight { client: caller.client, openers: Openers::default() });
            }
            Named::Anonymous | Named::ReadBypass => {
                self.conflict(file, caller.client, writes)?;
                if self.judges.denies(file, None, wanted) {
                    return Err(NfsStat::Locked);
                }
                return Ok(DataRight { client: caller.client, openers: Openers::default() });
            }
            Named::State { .. } => {}
        }
        let number = self.find(stateid, caller)?;
        let state = self.states.get(&number).filter(|state| state.file == file).ok_or(NfsStat::BadStateId)?;
        let client = state.client;
        let (open, access, openers) = match &state.kind {
            StateKind::Open(open) => (Some(number), open.access, open.openers),
            StateKind::Lock(lock) => match self.states.get(&lock.open) {
                Some(StateRecord { kind: StateKind::Open(open), .. }) => (Some(lock.open), open.access, open.openers),
                _ => return Err(NfsStat::BadStateId),
            },
            StateKind::Delegation(Delegation { kind: Delegated::Read, .. }) => {
                (None, ShareBits::READ, Openers::default())
            }
            StateKind::Delegation(_) => (None, ShareBits::BOTH, Openers::default()),
        };
        // A client that writes parts of pages reads them first: an open for writing reads (RFC 7530 16.23.4).
        if writes && !access.has(ShareBits::WRITE) {
            return Err(NfsStat::OpenMode);
        }
        self.conflict(file, Some(client), writes)?;
        let own = open.and_then(|number| self.states.get(&number)?.held.as_ref()).map(|(entry, _)| entry);
        if !access.has(wanted) && self.judges.denies(file, own, wanted) {
            return Err(NfsStat::Locked);
        }
        Ok(DataRight { client: Some(client), openers })
    }

    /// Whether this user opened the file for this access by an open, or by that of a lock. `None`: the stateid is neither.
    pub fn is_opener(&self, stateid: &StateId, uid: u32, access: ShareBits, caller: Caller) -> Option<bool> {
        let (_, state) = self.look_up(stateid, caller).ok()?;
        let open = match &state.kind {
            StateKind::Open(open) => open,
            StateKind::Lock(lock) => match &self.states.get(&lock.open)?.kind {
                StateKind::Open(open) => open,
                _ => return None,
            },
            StateKind::Delegation(_) => return None,
        };
        Some(open.openers.may(uid, access))
    }

    /// Keeps a right that was just judged, until its state changes. Not that of a delegation, which may be revoked.
    pub fn remember_right(&self, stateid: &StateId, minor: u32) {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, minor) else { return };
        let Some(StateRecord { client, file, seqid, kind, .. }) = self.states.get(&number) else { return };
        let open = match kind {
            StateKind::Open(open) => Some(open),
            StateKind::Lock(lock) => match self.states.get(&lock.open) {
                Some(StateRecord { kind: StateKind::Open(open), .. }) => Some(open),
                _ => None,
            },
            StateKind::Delegation(_) => None,
        };
        if let Some(open) = open {
            let (access, openers) = (open.access, open.openers);
            let right = KnownRight { client: *client, file: *file, seqid: *seqid, access, openers };
            self.rights.insert(number, right);
        }
    }
}

/// Whether `bits` is the union of some of the sets in `asked` (RFC 8881 18.18.3).
pub(super) fn made_of(asked: u8, bits: ShareBits) -> bool {
    let parts = (0..4).filter_map(ShareBits::from_number).filter(|part| asked & 1 << part.number() != 0);
    parts.filter(|part| bits.has(*part)).fold(ShareBits::NONE, ShareBits::and) == bits
}

/// The sets in `asked` that are within `bits`.
fn within(asked: u8, bits: ShareBits) -> u8 {
    let parts = (0..4).filter_map(ShareBits::from_number);
    parts.filter(|part| bits.has(*part)).fold(0, |kept, part| kept | asked & 1 << part.number())
}
