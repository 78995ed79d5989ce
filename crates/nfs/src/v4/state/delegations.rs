//! Delegations, their recall, and their end by force.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_opens::{Caches, Promise};

use super::super::clock::Moment;
use super::super::delegation::{Delegated, Delegation};
use super::super::file_key::{FileKey, ShareBits};
use super::super::stateids::{self, Named, StateNumber};
use super::super::types::{ClientId, NfsStat, StateId};
use super::{Caller, Held, StateKind, StateRecord, StateTable};

/// Delegations of one client: a cache of its own, which it returns when asked.
pub const CLIENT_DELEGATIONS_MAX: usize = 16 << 10;
/// Files that rest after a recall. Beyond them nothing is delegated until some have rested.
const RESTING_MAX: usize = 16 << 10;
/// A file just recalled is shared: a delegation would be recalled again at once.
pub const REST: Duration = Duration::from_secs(30);
/// A network with an overdue client is given nothing to recall for so long (`state.overdue_loses_all`).
pub const OVERDUE_REST: Duration = Duration::from_secs(300);
/// Networks that rest. Beyond them nothing is delegated until one has rested: several times the machines of any house.
const OVERDUE_MAX: usize = 4096;

/// The client opens, reads and looks at the file without asking.
const DELEGATED_TO_READ: Caches = Caches::READS.and(Caches::HANDLES).and(Caches::ATTRIBUTES);

/// A delegation to write, whose client knows the size of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHolder {
    pub client: ClientId,
    pub number: StateNumber,
}

/// A recall that has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallToSend {
    pub client: ClientId,
    pub file: FileKey,
    pub stateid: StateId,
}

/// Why no delegation was granted; a part of `why_no_delegation4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDelegation {
    Contention,
    Resource,
}

impl<H> StateTable<H> {
    /// A delegation no longer stands in anybody's way.
    pub(super) fn forget_delegation(&mut self, file: FileKey, number: StateNumber) {
        self.recalling.remove(&number);
        if let Some(of_file) = self.delegations_of.get_mut(&file) {
            of_file.retain(|other| *other != number);
            if of_file.is_empty() {
                self.delegations_of.remove(&file);
            }
        }
    }

    /// An access by `by`, or by another door, that delegations may exclude: NFS4ERR_DELAY while one does
    /// (`state.conflict_recalls`). For REMOVE, RENAME, LINK and SETATTR it is a write.
    pub fn conflict(&mut self, file: FileKey, by: Option<ClientId>, writes: bool) -> Result<(), NfsStat> {
        let mut in_the_way = false;
        for number in self.delegations_of.get(&file).into_iter().flatten() {
            let Some(StateRecord { kind: StateKind::Delegation(delegation), client, .. }) = self.states.get_mut(number)
            else {
                continue;
            };
            let excludes = writes || delegation.kind == Delegated::Write;
            if excludes && by != Some(*client) {
                delegation.recall();
                self.recalling.insert(*number);
                in_the_way = true;
            }
        }
        if in_the_way { Err(NfsStat::Delay) } else { Ok(()) }
    }

    /// Grants a delegation to a client that has just opened the file, where nothing is against it.
    pub fn delegate(
        &mut self,
        client: ClientId,
        file: FileKey,
        kind: Delegated,
        now: Moment,
        held: Held<H>,
    ) -> Result<StateId, NoDelegation> {
        if self.resting.get(&file).is_some_and(|since| now.since(*since) < REST) {
            return Err(NoDelegation::Contention);
        }
        self.resting.remove(&file);
        if self.resting.len() >= RESTING_MAX {
            self.resting.retain(|_, since| now.since(*since) < REST);
        }
        self.overdue.retain(|_, since| now.since(*since) < OVERDUE_REST);
        let of_client = self.delegations.get(&client).copied().unwrap_or(0);
        let is_full = of_client >= CLIENT_DELEGATIONS_MAX
            || self.resting.len() >= RESTING_MAX
            || self.overdue.len() >= OVERDUE_MAX;
        let is_overdue = self.overdue.contains_key(&self.networks.of(client));
        if is_full || is_overdue || !self.has_room(client) {
            return Err(NoDelegation::Resource);
        }
        let is_delegation = |number: &&StateNumber| {
            let state = self.states.get(number);
            let Some(StateRecord { kind: StateKind::Delegation(other), client: of, .. }) = state else { return false };
            // One that it has, or one of another client that does not go with this.
            *of == client || kind == Delegated::Write || other.kind == Delegated::Write || !other.is_held()
        };
        if self.delegations_of.get(&file).into_iter().flatten().any(|number| is_delegation(&number)) {
            return Err(NoDelegation::Contention);
        }
        let conflicts = |number: &StateNumber| match self.states.get(number) {
            Some(StateRecord { kind: StateKind::Open(open), client: of, .. }) => {
                *of != client && (kind == Delegated::Write || open.access.has(ShareBits::WRITE))
            }
            _ => false,
        };
        if self.opens_of.get(&file).into_iter().flatten().any(conflicts) {
            return Err(NoDelegation::Contention);
        }
        let promise = self.promise(file, kind).ok_or(NoDelegation::Contention)?;
        let number = self.unused_number();
        let stateid = self.insert(number, client, file, StateKind::Delegation(Delegation::new(kind)), Some(held));
        if let Some(state) = self.states.get_mut(&number) {
            state.promise = Some(promise);
        }
        Ok(stateid)
    }

    /// The delegation as other doors know it, unless their clients use the file (RFC 8881 10.4).
    fn promise(&self, file: FileKey, kind: Delegated) -> Option<Promise> {
        let (judge, ino) = self.judges.of(file)?;
        let caches = match kind {
            Delegated::Read => DELEGATED_TO_READ,
            Delegated::Write => DELEGATED_TO_READ.and(Caches::WRITES),
        };
        let (promise, mut is_granted) = (judge.table.promise(ino, judge.door, caches), false);
        promise.grant(|others| {
            is_granted = match kind {
                Delegated::Read => !others.is_written,
                Delegated::Write => !others.is_open,
            };
            if is_granted { caches } else { Caches::NOTHING }
        });
        is_granted.then_some(promise)
    }

    /// The delegation of a file to write that another client than `but` has.
    pub fn written_under(&self, file: FileKey, but: Option<ClientId>) -> Option<WriteHolder> {
        let of_file = self.delegations_of.get(&file).into_iter().flatten();
        of_file.copied().find_map(|number| match self.states.get(&number) {
            Some(StateRecord { kind: StateKind::Delegation(delegation), client, .. })
                if delegation.kind == Delegated::Write && but != Some(*client) =>
            {
                Some(WriteHolder { client: *client, number })
            }
            _ => None,
        })
    }

    /// Files that are delegated.
    pub fn delegated(&self) -> usize {
        self.delegations_of.len()
    }

    /// Clients with delegations, revoked ones among them.
    pub fn clients_with_delegations(&self) -> Vec<ClientId> {
        self.delegations.keys().copied().collect()
    }

    /// Whether recalls are under way.
    pub fn is_recalling(&self) -> bool {
        !self.recalling.is_empty()
    }

    /// Whether a client has delegations, revoked ones among them.
    pub fn has_delegations(&self, client: ClientId) -> bool {
        self.delegations.contains_key(&client)
    }

    /// DELEGRETURN (RFC 8881 18.6).
    pub fn return_delegation(
        &mut self,
        stateid: &StateId,
        file: FileKey,
        caller: Caller,
        now: Moment,
    ) -> Result<(), NfsStat> {
        let number = self.find(stateid, caller)?;
        let state = self.states.get(&number).filter(|state| state.file == file).ok_or(NfsStat::BadStateId)?;
        let StateKind::Delegation(delegation) = &state.kind else { return Err(NfsStat::BadStateId) };
        if !delegation.is_held() {
            self.rest(file, now);
        }
        self.end(number);
        Ok(())
    }

    /// `state.recalled_rests`
    fn rest(&mut self, file: FileKey, now: Moment) {
        if self.resting.len() < RESTING_MAX || self.resting.contains_key(&file) {
            self.resting.insert(file, now);
        }
    }

    fn delegation(&mut self, stateid: &StateId) -> Option<&mut Delegation> {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, 1) else { return None };
        match &mut self.states.get_mut(&number)?.kind {
            StateKind::Delegation(delegation) => Some(delegation),
            _ => None,
        }
    }

    /// The number of a delegation that is not revoked.
    pub fn delegation_number(&self, stateid: &StateId) -> Option<StateNumber> {
        match stateids::name(stateid, self.life, 1) {
            Ok(Named::State { number, .. }) => Some(number),
            _ => None,
        }
    }

    /// Recalls that have to be sent at `now`, by whichever connection is bound.
    pub fn recalls_to_send(&self, now: Moment) -> Vec<RecallToSend> {
        let recall = |number: &StateNumber| match self.states.get(number) {
            Some(StateRecord { kind: StateKind::Delegation(delegation), client, file, .. })
                if delegation.is_to_be_sent(now) =>
            {
                Some(RecallToSend { client: *client, file: *file, stateid: self.stateid(*number) })
            }
            _ => None,
        };
        self.recalling.iter().filter_map(recall).collect()
    }

    pub fn recall_sent(&mut self, stateid: &StateId) {
        if let Some(delegation) = self.delegation(stateid) {
            delegation.sent();
        }
    }

    /// The client has not said that it gives the delegation back.
    pub fn recall_lost(&mut self, stateid: &StateId, now: Moment) {
        if let Some(delegation) = self.delegation(stateid) {
            delegation.lost(now);
        }
    }

    /// Revokes whatever is delegated to clients that let a recall's time pass (`state.overdue_loses_all`,
    /// `state.revoked_is_said`). Waits for nobody.
    pub fn revoke_overdue(&mut self, now: Moment, term: Duration) -> usize {
        let mut late = BTreeSet::new();
        for number in &self.recalling {
            let Some(state) = self.states.get_mut(number) else { continue };
            let StateKind::Delegation(delegation) = &mut state.kind else { continue };
            if delegation.is_overdue(now, term) {
                late.insert(state.client);
            }
        }
        late.into_iter().map(|client| self.revoke_all(client, now)).sum()
    }

    fn revoke_all(&mut self, client: ClientId, now: Moment) -> usize {
        let mut revoked = Vec::new();
        for number in self.by_client.get(&client).into_iter().flatten() {
            let Some(state) = self.states.get_mut(number) else { continue };
            let StateKind::Delegation(delegation) = &mut state.kind else { continue };
            if !delegation.is_revoked() {
                delegation.revoke();
                (state.held, state.promise) = (None, None);
                revoked.push((state.file, *number));
            }
        }
        for (file, number) in &revoked {
            self.forget_delegation(*file, *number);
            self.rest(*file, now);
        }
        *self.revoked.entry(client).or_default() += revoked.len();
        self.overdue.insert(self.networks.of(client), now);
        revoked.len()
    }

    /// Whether SEQUENCE has to say that something recallable was revoked.
    pub fn has_revoked(&self, client: ClientId) -> bool {
        self.revoked.contains_key(&client)
    }
}
