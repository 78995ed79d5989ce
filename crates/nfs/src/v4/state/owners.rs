//! Owners of opens and of locks, and the order of their requests in NFSv4.0.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::owner_seq::OwnerSeq;
use super::super::stateids::{self, Named, StateNumber};
use super::super::types::{ClientId, NfsStat, StateId};
use super::{EndedState, OwnerId, OwnerKind, StateKind, StateOwnerRecord, StateTable, networks};

/// Owners of opens and locks, each with a name of up to a kibibyte, parted by network ([`super::networks`]). One that has
/// nothing is kept for its sequence numbers until its network has too many.
pub const OWNERS_MAX: usize = 128 << 10;

impl<H> StateTable<H> {
    /// The owner, new or not.
    pub fn owner(&mut self, client: ClientId, kind: OwnerKind, name: &[u8]) -> Result<OwnerId, NfsStat> {
        let key = (client, kind, Arc::from(name));
        if let Some(id) = self.owner_ids.get(&key) {
            return Ok(*id);
        }
        if !networks::has_part(self.networks.held_by(client).owners, self.owners.len(), OWNERS_MAX) {
            // Of this client only: it does not make others forget.
            let is_idle = |owner: &OwnerId| self.owners.get(owner).is_some_and(|record| record.states.is_empty());
            let idle: Vec<OwnerId> = self.owners_of(client).filter(is_idle).collect();
            if idle.is_empty() {
                return Err(NfsStat::Delay);
            }
            idle.into_iter().for_each(|owner| self.forget_owner(owner));
        }
        let id = OwnerId(self.number());
        self.owner_ids.insert(key.clone(), id);
        let record = StateOwnerRecord { key, seq: OwnerSeq::default(), is_confirmed: false, states: BTreeSet::new() };
        self.owners.insert(id, record);
        self.networks.held_by_mut(client).owners += 1;
        Ok(id)
    }

    pub(super) fn owners_of(&self, client: ClientId) -> impl Iterator<Item = OwnerId> {
        let first = (client, OwnerKind::Open, Arc::default());
        self.owner_ids.range(first..).take_while(move |(key, _)| key.0 == client).map(|(_, owner)| *owner)
    }

    /// The name of the owner of a lock, by its stateid in a session.
    pub fn owner_name(&self, stateid: &StateId) -> Option<Box<[u8]>> {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, 1) else { return None };
        self.owners.get(&self.owner_of(number)?).map(|record| record.key.2[..].into())
    }

    /// The client of an owner of locks, as the table of all doors knows it.
    pub fn client_of_lock(&self, owner: u64) -> Option<ClientId> {
        self.owners.get(&OwnerId(owner)).map(|record| record.key.0)
    }

    /// The sequence of an owner's requests in NFSv4.0.
    pub fn owner_seq(&mut self, owner: OwnerId) -> Option<&mut OwnerSeq> {
        self.owners.get_mut(&owner).map(|record| &mut record.seq)
    }

    /// The owner whose requests come in order, by the stateid of its open or lock (NFSv4.0).
    pub fn owner_by_stateid(&self, stateid: &StateId) -> Option<OwnerId> {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, 0) else { return None };
        let owner = match self.ended.states.get(&number) {
            // Its CLOSE comes again.
            Some(EndedState::ClosedBy(owner)) => Some(*owner),
            _ => self.owner_of(number),
        };
        // `clients.ids_name_their_family`
        owner.filter(|owner| self.owners.get(owner).is_some_and(|record| !record.key.0.has_sessions()))
    }

    /// An owner whose first OPEN was not confirmed begins with any number again (NFSv4.0).
    pub fn restart_unconfirmed(&mut self, owner: OwnerId) {
        if let Some(record) = self.owners.get_mut(&owner).filter(|record| !record.is_confirmed) {
            record.seq.restart();
        }
    }

    /// The owner of an open or a lock.
    pub fn owner_of(&self, number: StateNumber) -> Option<OwnerId> {
        match &self.states.get(&number)?.kind {
            StateKind::Open(open) => Some(open.owner),
            StateKind::Lock(lock) => Some(lock.owner),
            StateKind::Delegation(_) => None,
        }
    }

    pub(super) fn forget_owner(&mut self, owner: OwnerId) {
        if let Some(record) = self.owners.remove(&owner) {
            self.networks.gives_back(record.key.0, networks::Holdings { states: 0, owners: 1 });
            self.owner_ids.remove(&record.key);
        }
    }
}
