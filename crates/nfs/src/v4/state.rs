//! Opens, locks and delegations of NFSv4 clients (RFC 7530 9 and 10, RFC 8881 8, 9 and 10), by
//! their stateids.
//!
//! - `state.judged_by_table`: no conflict of shares or ranges is decided here. Each change is made
//!   in the table of all doors ([`larder_opens`]) first, and kept here only where that granted it.
//! - `state.conflict_recalls`: an access that a delegation excludes is NFS4ERR_DELAY and queues its
//!   recall. It is never granted before the delegation has ended.
//! - `state.recalled_rests`: a file whose delegation was recalled gets none for
//!   [`delegations::REST`].
//! - `state.bounded`: there are at most [`STATES_MAX`] states, parted by network ([`networks`]): a
//!   client's name is of its own making, its network is not.
//! - `state.overdue_loses_all`: a client that let the time of one recall pass loses all its
//!   delegations at once, so others wait for it once; its network gets none for
//!   [`delegations::OVERDUE_REST`].
//! - `state.gone_is_gone`: ending a client removes whatever it had, here and in the table. A state
//!   holds its open of the file itself, so that ends with it.
//! - `state.ended_is_remembered`: of NFSv4.0 the last [`ENDED_MAX`] states that closed, or whose
//!   clients went, are remembered: a CLOSE that comes again finds its owner, and the others hear
//!   NFS4ERR_EXPIRED (RFC 7530 9.6.3).
//! - `state.revoked_is_said`: a revoked delegation gives its file back at once. Its stateid stays
//!   until FREE_STATEID or the client's end, so that the client hears of it.
//!
//! `owners` are those of opens and locks; `opens`, `locks` and `delegations` are the three kinds of
//! states.

mod delegations;
mod locks;
mod networks;
mod open_list;
mod opens;
mod owners;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use larder_fs::Ino;
use larder_opens::{Entry, Owner, Promise, Table};

use super::clients::StateHolders;
use super::clock::{Chance, Moment};
use super::delegation::Delegation;
use super::file_key::{FileKey, ShareBits};
use super::known_rights::KnownRights;
use super::openers::Openers;
use super::owner_seq::OwnerSeq;
use super::stateids::{self, Named, StateNumber, check_seqid, next_seqid};
use super::types::{ClientId, NfsStat, StateId};

use networks::{Holdings, Networks};
use owners::OWNERS_MAX;

pub use delegations::{RecallToSend, WriteHolder};
pub use locks::{LockRefusal, LockerOf, lock_range};
pub use opens::Opened;

/// States of all clients. One takes some 400 bytes, here and in the table.
pub const STATES_MAX: usize = 1 << 19;
/// States of NFSv4.0 that have ended and are remembered, each some 50 bytes.
const ENDED_MAX: usize = 16 << 10;

/// Which of its owners a client means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerKind {
    Open,
    Lock,
}

type OwnerKey = (ClientId, OwnerKind, Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(u64);

/// An owner of opens or of locks.
#[derive(Debug)]
struct StateOwnerRecord {
    key: OwnerKey,
    seq: OwnerSeq,
    /// NFSv4.0: the first OPEN was confirmed.
    is_confirmed: bool,
    /// Its opens or locks.
    states: BTreeSet<StateNumber>,
}

#[derive(Debug)]
struct OpenState {
    owner: OwnerId,
    access: ShareBits,
    deny: ShareBits,
    /// Bits by [`ShareBits::number`]: what OPENs asked for. A downgrade goes back to one of them.
    asked_access: u8,
    asked_deny: u8,
    openers: Openers,
    locks: BTreeSet<StateNumber>,
}

#[derive(Clone, Copy, Debug)]
struct LockState {
    owner: OwnerId,
    open: StateNumber,
}

enum StateKind {
    Open(OpenState),
    Lock(LockState),
    Delegation(Delegation),
}

/// `H` is what an open or a delegation keeps of its file, for the owner of the table.
struct StateRecord<H> {
    /// Its number for people, in the order in which states begin.
    serial: u64,
    client: ClientId,
    file: FileKey,
    seqid: u32,
    kind: StateKind,
    /// Of an open, and of a delegation until that is revoked.
    held: Option<Held<H>>,
    /// Of a delegation until it is revoked: as other doors know it.
    promise: Option<Promise>,
}

/// An open of the file in the table of all doors, with what the owner of the states keeps beside
/// it.
pub type Held<H> = (Entry, H);

/// The table in which a volume's opens and locks are judged, and the number of this door in it.
pub struct Judge {
    pub table: Arc<Table>,
    pub door: u32,
}

impl Judge {
    fn owner(&self, owner: OwnerId) -> Owner {
        Owner { door: self.door, id: owner.0 }
    }
}

/// Of each volume that is exported, until [`Judges::end`].
#[derive(Default)]
pub struct Judges(HashMap<u64, Judge>);

impl Judges {
    pub fn begin(&mut self, volume: u64, judge: Judge) {
        self.0.entry(volume).or_insert(judge);
    }

    pub fn end(&mut self, volume: u64) {
        self.0.remove(&volume);
    }

    fn of(&self, file: FileKey) -> Option<(&Judge, Ino)> {
        self.0.get(&file.volume).map(|judge| (judge, Ino(file.inode)))
    }

    fn has_locks(&self, file: FileKey, owner: OwnerId) -> bool {
        self.of(file).is_some_and(|(judge, ino)| judge.table.has_locks(ino, judge.owner(owner)))
    }

    /// Whether an open of any door but `own` denies this access.
    fn denies(&self, file: FileKey, own: Option<&Entry>, access: ShareBits) -> bool {
        self.of(file).is_some_and(|(judge, ino)| judge.table.denied_by_any(ino, own, access.uses()))
    }
}

/// How a state of NFSv4.0 has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedState {
    ClosedBy(OwnerId),
    Expired,
}

/// The last states that have ended (`state.ended_is_remembered`).
#[derive(Debug, Default)]
struct EndedStates {
    states: HashMap<StateNumber, EndedState>,
    order: VecDeque<StateNumber>,
}

impl EndedStates {
    fn insert(&mut self, number: StateNumber, how: EndedState) {
        if self.states.insert(number, how).is_none() {
            self.order.push_back(number);
        }
        while self.order.len() > ENDED_MAX {
            self.order.pop_front().map(|oldest| self.states.remove(&oldest));
        }
    }
}

/// The one who names a stateid.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// `None`: NFSv4.0, where the stateid alone says which of its clients it is.
    pub client: Option<ClientId>,
    pub minor: u32,
}

pub struct StateTable<H> {
    life: u32,
    /// Numbers of owners, and of states as people see them.
    next: u64,
    chance: Box<dyn Chance>,
    pub judges: Judges,
    states: HashMap<StateNumber, StateRecord<H>>,
    owners: HashMap<OwnerId, StateOwnerRecord>,
    owner_ids: BTreeMap<OwnerKey, OwnerId>,
    by_client: HashMap<ClientId, BTreeSet<StateNumber>>,
    opens_of: HashMap<FileKey, BTreeSet<StateNumber>>,
    /// An owner has one open of a file, and one lock state of an open.
    open_by: HashMap<(OwnerId, FileKey), StateNumber>,
    lock_by: HashMap<(OwnerId, StateNumber), StateNumber>,
    delegations_of: HashMap<FileKey, Vec<StateNumber>>,
    /// Delegations by client, revoked ones among them, and revoked ones alone.
    delegations: HashMap<ClientId, usize>,
    revoked: HashMap<ClientId, usize>,
    /// Delegations that are recalled and neither returned nor revoked.
    recalling: BTreeSet<StateNumber>,
    resting: HashMap<FileKey, Moment>,
    /// Networks with a client that let a recall's time pass.
    overdue: HashMap<IpAddr, Moment>,
    networks: Networks,
    /// Rights that were judged, for looks without the lock of this table (`rights.end_with_state`).
    rights: Arc<KnownRights>,
    ended: EndedStates,
}

impl<H> StateHolders for StateTable<H> {
    fn has_state(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client)
    }
}

impl<H> StateTable<H> {
    pub fn new(life: u32, rights: Arc<KnownRights>, chance: Box<dyn Chance>) -> Self {
        Self {
            life,
            next: 1,
            chance,
            judges: Judges::default(),
            states: HashMap::new(),
            owners: HashMap::new(),
            owner_ids: BTreeMap::new(),
            by_client: HashMap::new(),
            opens_of: HashMap::new(),
            open_by: HashMap::new(),
            lock_by: HashMap::new(),
            delegations_of: HashMap::new(),
            delegations: HashMap::new(),
            revoked: HashMap::new(),
            recalling: BTreeSet::new(),
            resting: HashMap::new(),
            overdue: HashMap::new(),
            networks: Networks::default(),
            rights,
            ended: EndedStates::default(),
        }
    }

    /// What an open or a delegation keeps of its file.
    pub fn held(&self, number: StateNumber) -> Option<&H> {
        self.states.get(&number)?.held.as_ref().map(|(_, held)| held)
    }

    /// A number for something with a stateid, which no state has or had a moment ago
    /// (`stateids.numbers_are_secrets`).
    pub fn unused_number(&mut self) -> StateNumber {
        loop {
            let number = StateNumber(self.chance.next());
            if !self.states.contains_key(&number) && !self.ended.states.contains_key(&number) {
                return number;
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn stateid(&self, number: StateNumber) -> StateId {
        let seqid = self.states.get(&number).map_or(0, |state| state.seqid);
        stateids::make(self.life, number, seqid)
    }

    /// The state has changed: its stateid is a new one.
    fn changed(&mut self, number: StateNumber) -> StateId {
        self.rights.forget(number);
        if let Some(state) = self.states.get_mut(&number) {
            state.seqid = next_seqid(state.seqid);
        }
        self.stateid(number)
    }

    /// The client of a state of NFSv4.0, where the stateid alone says it.
    pub fn client_of(&self, stateid: &StateId) -> Result<ClientId, NfsStat> {
        self.look_up(stateid, Caller { client: None, minor: 0 }).map(|(_, state)| state.client)
    }

    /// A client is confirmed, from this network.
    pub fn admit(&mut self, client: ClientId, network: IpAddr) {
        self.networks.admit(client, network);
    }

    /// Whether a client may have one more state, and one more owner (`state.bounded`).
    pub fn has_room(&self, client: ClientId) -> bool {
        let held = self.networks.held_by(client);
        networks::has_part(held.states, self.states.len(), STATES_MAX)
            && networks::has_part(held.owners, self.owners.len(), OWNERS_MAX)
    }

    pub fn clients_with_states(&self) -> impl Iterator<Item = ClientId> {
        self.by_client.keys().copied()
    }

    /// How much the network of `other` holds, whose end makes room for `client`; `None`: it would
    /// make none.
    pub fn makes_room(&self, other: ClientId, client: ClientId) -> Option<usize> {
        let (held, own) = (self.networks.held_by(other), self.networks.held_by(client));
        let is_own_fault =
            networks::has_its_part(own.states, STATES_MAX) || networks::has_its_part(own.owners, OWNERS_MAX);
        let helps = !is_own_fault || self.networks.of(other) == self.networks.of(client);
        helps.then_some(held.states + held.owners)
    }

    fn room_for(&self, client: ClientId) -> Result<(), NfsStat> {
        match networks::has_part(self.networks.held_by(client).states, self.states.len(), STATES_MAX) {
            true => Ok(()),
            false => Err(NfsStat::Delay),
        }
    }

    fn insert(
        &mut self,
        number: StateNumber,
        client: ClientId,
        file: FileKey,
        kind: StateKind,
        held: Option<Held<H>>,
    ) -> StateId {
        let owner = match &kind {
            StateKind::Open(open) => Some(open.owner),
            StateKind::Lock(lock) => Some(lock.owner),
            StateKind::Delegation(_) => None,
        };
        if let Some(record) = owner.and_then(|owner| self.owners.get_mut(&owner)) {
            record.states.insert(number);
        }
        match &kind {
            StateKind::Open(open) => {
                self.opens_of.entry(file).or_default().insert(number);
                self.open_by.insert((open.owner, file), number);
            }
            StateKind::Lock(lock) => {
                self.lock_by.insert((lock.owner, lock.open), number);
            }
            StateKind::Delegation(_) => {
                self.delegations_of.entry(file).or_default().push(number);
                *self.delegations.entry(client).or_default() += 1;
            }
        }
        let serial = self.number();
        self.states.insert(number, StateRecord { serial, client, file, seqid: 1, kind, held, promise: None });
        self.by_client.entry(client).or_default().insert(number);
        self.networks.held_by_mut(client).states += 1;
        self.stateid(number)
    }

    /// Ends one state, here and in the table; an open with its locks.
    fn end(&mut self, number: StateNumber) {
        self.rights.forget(number);
        let Some(state) = self.states.remove(&number) else { return };
        self.networks.gives_back(state.client, Holdings { states: 1, owners: 0 });
        let owner = match state.kind {
            StateKind::Open(open) => {
                for lock in &open.locks {
                    self.end(*lock);
                }
                self.open_by.remove(&(open.owner, state.file));
                if let Some(opens) = self.opens_of.get_mut(&state.file) {
                    opens.remove(&number);
                    if opens.is_empty() {
                        self.opens_of.remove(&state.file);
                    }
                }
                Some(open.owner)
            }
            StateKind::Lock(lock) => {
                if let Some((judge, ino)) = self.judges.of(state.file) {
                    judge.table.end_locks(ino, judge.owner(lock.owner));
                }
                self.lock_by.remove(&(lock.owner, lock.open));
                if let Some(StateRecord { kind: StateKind::Open(open), .. }) = self.states.get_mut(&lock.open) {
                    open.locks.remove(&number);
                }
                Some(lock.owner)
            }
            StateKind::Delegation(delegation) => {
                if delegation.is_revoked() {
                    count_down(&mut self.revoked, state.client);
                } else {
                    self.forget_delegation(state.file, number);
                }
                count_down(&mut self.delegations, state.client);
                None
            }
        };
        if let Some(of_client) = self.by_client.get_mut(&state.client) {
            of_client.remove(&number);
            if of_client.is_empty() {
                self.by_client.remove(&state.client);
            }
        }
        if let Some(record) = owner.and_then(|owner| self.owners.get_mut(&owner)) {
            record.states.remove(&number);
        }
    }

    /// Ends whatever a client has (`state.gone_is_gone`). Waits for nobody.
    pub fn end_client(&mut self, client: ClientId) {
        for number in self.by_client.get(&client).cloned().unwrap_or_default() {
            self.end(number);
            self.ended.insert(number, EndedState::Expired);
        }
        let owners: Vec<OwnerId> = self.owners_of(client).collect();
        owners.into_iter().for_each(|owner| self.forget_owner(owner));
        self.networks.end(client);
    }

    /// Ends the states for whose file, and what they keep of it, `is_over`.
    pub fn end_where(&mut self, is_over: impl Fn(FileKey, Option<&H>) -> bool) {
        let over = |state: &StateRecord<H>| is_over(state.file, state.held.as_ref().map(|(_, held)| held));
        let numbers: Vec<_> = self.states.iter().filter(|(_, state)| over(state)).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.end(number));
    }

    /// The state of a stateid, of this caller, as it is now.
    fn find(&self, stateid: &StateId, caller: Caller) -> Result<StateNumber, NfsStat> {
        let (number, state) = self.look_up(stateid, caller)?;
        let Named::State { seqid, .. } = stateids::name(stateid, self.life, caller.minor)? else {
            return Err(NfsStat::BadStateId);
        };
        check_seqid(seqid, state.seqid, caller.minor)?;
        if let StateKind::Delegation(delegation) = &state.kind
            && delegation.is_revoked()
        {
            // NFSv4.0 has only the word of administrators for it.
            return Err(if caller.minor == 0 { NfsStat::AdminRevoked } else { NfsStat::DelegRevoked });
        }
        Ok(number)
    }

    /// The state of a stateid, whatever its seqid.
    fn look_up(&self, stateid: &StateId, caller: Caller) -> Result<(StateNumber, &StateRecord<H>), NfsStat> {
        let Named::State { number, .. } = stateids::name(stateid, self.life, caller.minor)? else {
            return Err(NfsStat::BadStateId);
        };
        let missing = || match self.ended.states.get(&number) {
            Some(EndedState::Expired) if caller.minor == 0 => NfsStat::Expired,
            _ => NfsStat::BadStateId,
        };
        let state = self.states.get(&number).ok_or_else(missing)?;
        // `clients.ids_name_their_family`
        let is_of_caller = caller.client.map_or(!state.client.has_sessions(), |client| client == state.client);
        if !is_of_caller {
            return Err(NfsStat::BadStateId);
        }
        Ok((number, state))
    }

    fn find_open(&self, stateid: &StateId, file: FileKey, caller: Caller) -> Result<StateNumber, NfsStat> {
        let number = self.find(stateid, caller)?;
        match self.states.get(&number) {
            Some(StateRecord { kind: StateKind::Open(_), file: of, .. }) if *of == file => Ok(number),
            _ => Err(NfsStat::BadStateId),
        }
    }

    /// TEST_STATEID of one (RFC 8881 18.48). Never NFS4ERR_STALE_STATEID.
    pub fn test(&self, stateid: &StateId, client: ClientId) -> NfsStat {
        self.find(stateid, Caller { client: Some(client), minor: 1 }).err().unwrap_or(NfsStat::Ok)
    }

    /// FREE_STATEID (RFC 8881 18.38).
    pub fn free(&mut self, stateid: &StateId, client: ClientId) -> Result<(), NfsStat> {
        let caller = Caller { client: Some(client), minor: 1 };
        let (number, state) = self.look_up(stateid, caller)?;
        check_seqid(stateid.seqid, state.seqid, caller.minor)?;
        let is_free = match &state.kind {
            StateKind::Open(_) => false,
            StateKind::Lock(lock) => !self.judges.has_locks(state.file, lock.owner),
            StateKind::Delegation(delegation) => delegation.is_revoked(),
        };
        if !is_free {
            return Err(NfsStat::LocksHeld);
        }
        self.end(number);
        Ok(())
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// The clients with opens or delegations of a file: who has to be asked, or ended if they are
    /// only courteous.
    pub fn holders(&self, file: FileKey) -> BTreeSet<ClientId> {
        let delegations = self.delegations_of.get(&file).into_iter().flatten();
        let of_file = self.opens_of.get(&file).into_iter().flatten().chain(delegations);
        of_file.filter_map(|number| self.states.get(number)).map(|state| state.client).collect()
    }
}

fn count_down(counts: &mut HashMap<ClientId, usize>, client: ClientId) {
    if let Some(count) = counts.get_mut(&client) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
