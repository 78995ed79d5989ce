//! The opens of all clients, for people who look after the server, and the end of one.

use super::super::file_key::{FileKey, ShareBits};
use super::super::stateids::StateNumber;
use super::super::types::ClientId;
use super::{EndedState, StateKind, StateRecord, StateTable};

/// An open as the state has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenEntry {
    pub number: StateNumber,
    /// For people.
    pub serial: u64,
    pub client: ClientId,
    pub file: FileKey,
    pub access: ShareBits,
    pub deny: ShareBits,
    /// Owners of locks that have locked ranges of it.
    pub lock_owners: usize,
    /// Its client also caches the file under a delegation.
    pub is_delegated: bool,
}

impl<H> StateTable<H> {
    pub fn open_list(&self) -> impl Iterator<Item = OpenEntry> {
        self.states.iter().filter_map(|(number, state)| {
            let StateKind::Open(open) = &state.kind else { return None };
            let delegations = self.delegations_of.get(&state.file).into_iter().flatten();
            let is_own = |other: &StateNumber| self.states.get(other).is_some_and(|other| other.client == state.client);
            Some(OpenEntry {
                number: *number,
                serial: state.serial,
                client: state.client,
                file: state.file,
                access: open.access,
                deny: open.deny,
                lock_owners: open.locks.len(),
                is_delegated: delegations.into_iter().any(is_own),
            })
        })
    }

    /// Ends an open with its locks, as an administrator wants it (RFC 8881 8.5). Its client hears that its stateid is none
    /// (NFSv4.0: NFS4ERR_EXPIRED), and opens the file anew if it still uses it; its locks are lost. `false`: there is none
    /// that people know by this number.
    pub fn end_open(&mut self, serial: u64) -> bool {
        let is_it = |state: &StateRecord<H>| state.serial == serial && matches!(state.kind, StateKind::Open(_));
        let found = self.states.iter().find(|(_, state)| is_it(state)).map(|(number, _)| *number);
        let Some(number) = found else { return false };
        self.end(number);
        self.ended.insert(number, EndedState::Expired);
        true
    }
}
