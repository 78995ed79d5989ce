//! Opens, locks and delegations of NFSv4 clients (RFC 7530 9 and 10, RFC 8881 8, 9 and 10), by their stateids.
//!
//! - `state.judged_by_table`: each change is made in the [`FileTable`] first, and kept here only where that granted it.
//! - `state.conflict_recalls`: an access that a delegation excludes is NFS4ERR_DELAY and queues its recall. It is never
//!   granted before the delegation has ended.
//! - `state.recalled_rests`: a file whose delegation was recalled gets none for [`REST`].
//! - `state.bounded`: there are at most [`STATES_MAX`] states, and [`CLIENT_STATES_MAX`] of one client.
//! - `state.gone_is_gone`: ending a client removes whatever it had, here and in the table.
//! - `state.ended_is_remembered`: of NFSv4.0 the last [`ENDED_MAX`] states that closed, or whose clients went, are
//!   remembered: a CLOSE that comes again finds its owner, and the others hear NFS4ERR_EXPIRED (RFC 7530 9.6.3).
//! - `state.revoked_is_said`: a revoked delegation gives its file back at once. Its stateid stays until FREE_STATEID or the
//!   client's end, so that the client hears of it.

mod open_list;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::clients::StateHolders;
use super::clock::Moment;
use super::delegation::{Delegated, Delegation};
use super::file_table::{ByteRange, FileKey, FileTable, Holder, LockInTheWay, LockOwnerId, RangeRefusal, ShareBits};
use super::known_rights::{KnownRight, KnownRights};
use super::owner_seq::OwnerSeq;
use super::stateids::{self, Named, StateNumber, check_seqid, next_seqid};
use super::types::{ClientId, NfsStat, StateId};

/// States of all clients. One takes some 400 bytes, here and in the table.
pub const STATES_MAX: usize = 1 << 19;
/// States of one client, so that one machine does not take them all.
pub const CLIENT_STATES_MAX: usize = STATES_MAX / 8;
/// Owners of opens and locks, each with a name of up to a kibibyte. One that has nothing is kept for its sequence numbers
/// until its client has too many.
pub const OWNERS_MAX: usize = 128 << 10;
/// Owners of one client.
pub const CLIENT_OWNERS_MAX: usize = OWNERS_MAX / 8;
/// Delegations of one client: a cache of its own, which it returns when asked.
pub const CLIENT_DELEGATIONS_MAX: usize = 16 << 10;
/// Files that rest after a recall. Beyond them nothing is delegated until some have rested.
const RESTING_MAX: usize = 16 << 10;
/// States of NFSv4.0 that have ended and are remembered, each some 50 bytes.
const ENDED_MAX: usize = 16 << 10;
/// A file just recalled is shared: a delegation would be recalled again at once.
pub const REST: Duration = Duration::from_secs(30);

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
    locks: BTreeSet<StateNumber>,
}

#[derive(Clone, Copy, Debug)]
struct LockState {
    owner: OwnerId,
    open: StateNumber,
}

#[derive(Debug)]
enum StateKind {
    Open(OpenState),
    Lock(LockState),
    Delegation(Delegation),
}

#[derive(Debug)]
struct StateRecord {
    client: ClientId,
    file: FileKey,
    seqid: u32,
    kind: StateKind,
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
    /// `None`: NFSv4.0, where the stateid alone says it.
    pub client: Option<ClientId>,
    pub minor: u32,
}

/// What OPEN gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub stateid: StateId,
    /// NFSv4.0: OPEN_CONFIRM has to follow.
    pub must_confirm: bool,
}

/// Why LOCK or LOCKT was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// With the client and the owner, empty for another door's.
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

/// Right to read or write data by a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRight {
    /// The owner of locks, for mandatory ones and for ends of waits.
    pub client: Option<ClientId>,
    pub open: Option<StateNumber>,
}

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

pub struct StateTable<T> {
    life: u32,
    next: u64,
    table: T,
    states: HashMap<StateNumber, StateRecord>,
    owners: HashMap<OwnerId, StateOwnerRecord>,
    owner_ids: BTreeMap<OwnerKey, OwnerId>,
    owners_by_client: HashMap<ClientId, usize>,
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
    /// Rights that were judged, for looks without the lock of this table (`rights.end_with_state`).
    rights: Arc<KnownRights>,
    ended: EndedStates,
}

impl<T> StateHolders for StateTable<T> {
    fn has_state(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client)
    }
}

impl<T: FileTable> StateTable<T> {
    pub fn new(life: u32, table: T, rights: Arc<KnownRights>) -> Self {
        Self {
            life,
            next: 1,
            table,
            states: HashMap::new(),
            owners: HashMap::new(),
            owner_ids: BTreeMap::new(),
            owners_by_client: HashMap::new(),
            by_client: HashMap::new(),
            opens_of: HashMap::new(),
            open_by: HashMap::new(),
            lock_by: HashMap::new(),
            delegations_of: HashMap::new(),
            delegations: HashMap::new(),
            revoked: HashMap::new(),
            recalling: BTreeSet::new(),
            resting: HashMap::new(),
            rights,
            ended: EndedStates::default(),
        }
    }

    pub fn table(&mut self) -> &mut T {
        &mut self.table
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

    /// The owner, new or not.
    pub fn owner(&mut self, client: ClientId, kind: OwnerKind, name: &[u8]) -> Result<OwnerId, NfsStat> {
        let key = (client, kind, Arc::from(name));
        if let Some(id) = self.owner_ids.get(&key) {
            return Ok(*id);
        }
        let of_client = self.owners_by_client.get(&client).copied().unwrap_or(0);
        if self.owners.len() >= OWNERS_MAX || of_client >= CLIENT_OWNERS_MAX {
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
        *self.owners_by_client.entry(client).or_default() += 1;
        Ok(id)
    }

    fn owners_of(&self, client: ClientId) -> impl Iterator<Item = OwnerId> {
        let first = (client, OwnerKind::Open, Arc::default());
        self.owner_ids.range(first..).take_while(move |(key, _)| key.0 == client).map(|(_, owner)| *owner)
    }

    /// The name of the owner of a lock, by its stateid in a session.
    pub fn owner_name(&self, stateid: &StateId) -> Option<Box<[u8]>> {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, 1) else { return None };
        self.owners.get(&self.owner_of(number)?).map(|record| record.key.2[..].into())
    }

    /// The client of an owner of locks, as the table of all doors knows it.
    pub fn client_of_lock(&self, owner: LockOwnerId) -> Option<ClientId> {
        self.owners.get(&OwnerId(owner.0)).map(|record| record.key.0)
    }

    /// The sequence of an owner's requests in NFSv4.0.
    pub fn owner_seq(&mut self, owner: OwnerId) -> Option<&mut OwnerSeq> {
        self.owners.get_mut(&owner).map(|record| &mut record.seq)
    }

    /// The client of a state of NFSv4.0, where the stateid alone says it.
    pub fn client_of(&self, stateid: &StateId) -> Result<ClientId, NfsStat> {
        self.look_up(stateid, Caller { client: None, minor: 0 }).map(|(_, state)| state.client)
    }

    /// The owner whose requests come in order, by the stateid of its open or lock (NFSv4.0).
    pub fn owner_by_stateid(&self, stateid: &StateId) -> Option<OwnerId> {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, 0) else { return None };
        match self.ended.states.get(&number) {
            // Its CLOSE comes again.
            Some(EndedState::ClosedBy(owner)) => Some(*owner),
            _ => self.owner_of(number),
        }
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

    /// `state.bounded`
    fn room_for(&self, client: ClientId) -> Result<(), NfsStat> {
        let of_client = self.by_client.get(&client).map_or(0, BTreeSet::len);
        if self.states.len() >= STATES_MAX || of_client >= CLIENT_STATES_MAX {
            return Err(NfsStat::Delay);
        }
        Ok(())
    }

    fn insert(&mut self, number: StateNumber, client: ClientId, file: FileKey, kind: StateKind) -> StateId {
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
        self.states.insert(number, StateRecord { client, file, seqid: 1, kind });
        self.by_client.entry(client).or_default().insert(number);
        self.stateid(number)
    }

    /// Ends one state, here and in the table; an open with its locks.
    fn end(&mut self, number: StateNumber) {
        self.rights.forget(number);
        let Some(state) = self.states.remove(&number) else { return };
        let holder = Holder { client: state.client, state: number };
        let owner = match state.kind {
            StateKind::Open(open) => {
                for lock in &open.locks {
                    self.end(*lock);
                }
                self.table.release(state.file, holder);
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
                self.table.end_locks(state.file, LockOwnerId(lock.owner.0));
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
                    self.table.undelegate(state.file, holder);
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

    /// A delegation no longer stands in anybody's way.
    fn forget_delegation(&mut self, file: FileKey, number: StateNumber) {
        self.recalling.remove(&number);
        if let Some(of_file) = self.delegations_of.get_mut(&file) {
            of_file.retain(|other| *other != number);
            if of_file.is_empty() {
                self.delegations_of.remove(&file);
            }
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
    }

    /// Ends whatever clients have in a volume.
    pub fn end_volume(&mut self, volume: u64) {
        let in_volume =
            |(number, state): (&StateNumber, &StateRecord)| (state.file.volume == volume).then_some(*number);
        let numbers: Vec<StateNumber> = self.states.iter().filter_map(in_volume).collect();
        numbers.into_iter().for_each(|number| self.end(number));
    }

    fn forget_owner(&mut self, owner: OwnerId) {
        if let Some(record) = self.owners.remove(&owner) {
            count_down(&mut self.owners_by_client, record.key.0);
            self.owner_ids.remove(&record.key);
        }
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
    fn look_up(&self, stateid: &StateId, caller: Caller) -> Result<(StateNumber, &StateRecord), NfsStat> {
        let Named::State { number, .. } = stateids::name(stateid, self.life, caller.minor)? else {
            return Err(NfsStat::BadStateId);
        };
        let missing = || match self.ended.states.get(&number) {
            Some(EndedState::Expired) if caller.minor == 0 => NfsStat::Expired,
            _ => NfsStat::BadStateId,
        };
        let state = self.states.get(&number).ok_or_else(missing)?;
        if caller.client.is_some_and(|client| client != state.client) {
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

    /// OPEN of a file by an owner: a new open, or an upgrade of the one that it has (RFC 7530 9.9, RFC 8881 9.9).
    /// Delegations of others are recalled first (`state.conflict_recalls`).
    pub fn open(
        &mut self,
        owner: OwnerId,
        file: FileKey,
        access: ShareBits,
        deny: ShareBits,
        minor: u32,
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
                let holder = Holder { client, state: number };
                let Some(StateRecord { kind: StateKind::Open(open), .. }) = self.states.get_mut(&number) else {
                    return Err(NfsStat::ServerFault);
                };
                // RFC 7530 9.9 has an owner's own denials bind it as well.
                if minor == 0 && access.meets(open.deny) {
                    return Err(NfsStat::ShareDenied);
                }
                let (all, denied) = (open.access.and(access), open.deny.and(deny));
                // `state.judged_by_table`
                if !self.table.claim(file, holder, all, denied) {
                    return Err(NfsStat::ShareDenied);
                }
                (open.access, open.deny) = (all, denied);
                open.asked_access |= asked_access;
                open.asked_deny |= asked_deny;
                self.changed(number)
            }
            None => {
                self.room_for(client)?;
                let number = StateNumber(self.number());
                if !self.table.claim(file, Holder { client, state: number }, access, deny) {
                    return Err(NfsStat::ShareDenied);
                }
                let open = OpenState { owner, access, deny, asked_access, asked_deny, locks: BTreeSet::new() };
                self.insert(number, client, file, StateKind::Open(open))
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
        let Some(StateRecord { kind: StateKind::Open(open), client, .. }) = self.states.get_mut(&number) else {
            return Err(NfsStat::BadStateId);
        };
        let fits = open.access.has(access) && open.deny.has(deny);
        let fits = fits && made_of(open.asked_access, access) && made_of(open.asked_deny, deny);
        if access == ShareBits::NONE || !fits {
            return Err(NfsStat::Inval);
        }
        // Fewer uses and denials conflict with nothing new.
        self.table.claim(file, Holder { client: *client, state: number }, access, deny);
        (open.access, open.deny) = (access, deny);
        open.asked_access = within(open.asked_access, access);
        open.asked_deny = within(open.asked_deny, deny);
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
        if !access.has(if exclusive { ShareBits::WRITE } else { ShareBits::READ }) {
            return Err(NfsStat::OpenMode.into());
        }
        if existing.is_none() {
            self.room_for(client)?;
        }
        self.table.lock(file, LockOwnerId(owner.0), range, exclusive).map_err(|refusal| self.denied_by(refusal))?;
        Ok(match existing {
            Some(number) => self.changed(number),
            None => {
                let number = StateNumber(self.number());
                if let Some(StateRecord { kind: StateKind::Open(of), .. }) = self.states.get_mut(&open) {
                    of.locks.insert(number);
                }
                self.insert(number, client, file, StateKind::Lock(LockState { owner, open }))
            }
        })
    }

    fn denied_by(&self, refusal: RangeRefusal) -> LockRefusal {
        match refusal {
            RangeRefusal::TooMany => NfsStat::Delay.into(),
            RangeRefusal::InTheWay(held) => {
                let record = held.owner.and_then(|owner| self.owners.get(&OwnerId(owner.0)));
                let (client, owner) =
                    record.map_or((ClientId(0), Box::default()), |record| (record.key.0, record.key.2[..].into()));
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
            Some(held) => Err(self.denied_by(RangeRefusal::InTheWay(held))),
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
                return Ok(DataRight { client: caller.client, open: None });
            }
            Named::Anonymous | Named::ReadBypass => {
                self.conflict(file, caller.client, writes)?;
                if self.table.denied(file, None, wanted) {
                    return Err(NfsStat::Locked);
                }
                return Ok(DataRight { client: caller.client, open: None });
            }
            Named::State { .. } => {}
        }
        let number = self.find(stateid, caller)?;
        let state = self.states.get(&number).filter(|state| state.file == file).ok_or(NfsStat::BadStateId)?;
        let client = state.client;
        let (open, access) = match &state.kind {
            StateKind::Open(open) => (Some(number), open.access),
            StateKind::Lock(lock) => match self.states.get(&lock.open) {
                Some(StateRecord { kind: StateKind::Open(open), .. }) => (Some(lock.open), open.access),
                _ => return Err(NfsStat::BadStateId),
            },
            StateKind::Delegation(Delegation { kind: Delegated::Read, .. }) => (None, ShareBits::READ),
            StateKind::Delegation(_) => (None, ShareBits::BOTH),
        };
        // A client that writes parts of pages reads them first: an open for writing reads (RFC 7530 16.23.4).
        if writes && !access.has(ShareBits::WRITE) {
            return Err(NfsStat::OpenMode);
        }
        self.conflict(file, Some(client), writes)?;
        let but = open.map(|state| Holder { client, state });
        if !access.has(wanted) && self.table.denied(file, but, wanted) {
            return Err(NfsStat::Locked);
        }
        Ok(DataRight { client: Some(client), open })
    }

    /// Keeps a right that was just judged, until its state changes. Not that of a delegation, which may be revoked.
    pub fn remember_right(&self, stateid: &StateId, minor: u32, opened_by: Option<u32>) {
        let Ok(Named::State { number, .. }) = stateids::name(stateid, self.life, minor) else { return };
        let Some(StateRecord { client, file, seqid, kind }) = self.states.get(&number) else { return };
        let open = match kind {
            StateKind::Open(open) => Some(open),
            StateKind::Lock(lock) => match self.states.get(&lock.open) {
                Some(StateRecord { kind: StateKind::Open(open), .. }) => Some(open),
                _ => None,
            },
            StateKind::Delegation(_) => None,
        };
        if let Some(open) = open {
            let right = KnownRight { client: *client, file: *file, seqid: *seqid, access: open.access, opened_by };
            self.rights.insert(number, right);
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
    ) -> Result<StateId, NoDelegation> {
        if self.resting.get(&file).is_some_and(|since| now.since(*since) < REST) {
            return Err(NoDelegation::Contention);
        }
        self.resting.remove(&file);
        if self.resting.len() >= RESTING_MAX {
            self.resting.retain(|_, since| now.since(*since) < REST);
        }
        let of_client = self.delegations.get(&client).copied().unwrap_or(0);
        let is_full = of_client >= CLIENT_DELEGATIONS_MAX || self.resting.len() >= RESTING_MAX;
        if is_full || self.room_for(client).is_err() {
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
        let number = StateNumber(self.number());
        if !self.table.delegate(file, Holder { client, state: number }, kind) {
            return Err(NoDelegation::Contention);
        }
        Ok(self.insert(number, client, file, StateKind::Delegation(Delegation::new(kind))))
    }

    /// Whether anybody has a delegation of a file.
    pub fn is_delegated(&self, file: FileKey) -> bool {
        self.delegations_of.contains_key(&file)
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

    /// Recalls that have to be sent now, by whichever connection is bound.
    pub fn recalls_to_send(&self) -> Vec<RecallToSend> {
        let recall = |number: &StateNumber| match self.states.get(number) {
            Some(StateRecord { kind: StateKind::Delegation(delegation), client, file, .. })
                if delegation.is_to_be_sent() =>
            {
                Some(RecallToSend { client: *client, file: *file, stateid: self.stateid(*number) })
            }
            _ => None,
        };
        self.recalling.iter().filter_map(recall).collect()
    }

    pub fn recall_sent(&mut self, stateid: &StateId, now: Moment) {
        if let Some(delegation) = self.delegation(stateid) {
            delegation.sent(now);
        }
    }

    /// The connection of the recall ended without an answer.
    pub fn recall_lost(&mut self, stateid: &StateId) {
        if let Some(delegation) = self.delegation(stateid) {
            delegation.lost();
        }
    }

    /// Revokes the delegations whose clients let their time pass (`state.revoked_is_said`). Waits for nobody.
    pub fn revoke_overdue(&mut self, now: Moment, term: Duration, reachable: &dyn Fn(ClientId) -> bool) -> usize {
        let mut revoked = Vec::new();
        for number in &self.recalling {
            let Some(state) = self.states.get_mut(number) else { continue };
            let StateKind::Delegation(delegation) = &mut state.kind else { continue };
            if delegation.is_overdue(now, term, reachable(state.client)) {
                delegation.revoke();
                revoked.push((state.file, Holder { client: state.client, state: *number }));
            }
        }
        for (file, holder) in &revoked {
            self.table.undelegate(*file, *holder);
            self.forget_delegation(*file, holder.state);
            *self.revoked.entry(holder.client).or_default() += 1;
            self.rest(*file, now);
        }
        revoked.len()
    }

    /// Whether SEQUENCE has to say that something recallable was revoked.
    pub fn has_revoked(&self, client: ClientId) -> bool {
        self.revoked.contains_key(&client)
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
            StateKind::Lock(lock) => !self.table.has_locks(state.file, LockOwnerId(lock.owner.0)),
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

    /// The clients with opens or delegations of a file: who has to be asked, or ended if they are only courteous.
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

/// Why no delegation was granted; a part of `why_no_delegation4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDelegation {
    Contention,
    Resource,
}

/// Whether `bits` is the union of some of the sets in `asked` (RFC 8881 18.18.3).
fn made_of(asked: u8, bits: ShareBits) -> bool {
    let parts = (0..4).filter_map(ShareBits::from_number).filter(|part| asked & 1 << part.number() != 0);
    parts.filter(|part| bits.has(*part)).fold(ShareBits::NONE, ShareBits::and) == bits
}

/// The sets in `asked` that are within `bits`.
fn within(asked: u8, bits: ShareBits) -> u8 {
    let parts = (0..4).filter_map(ShareBits::from_number);
    parts.filter(|part| bits.has(*part)).fold(0, |kept, part| kept | asked & 1 << part.number())
}

/// The bytes of a lock (RFC 8881 18.10.3): a length of all ones reaches to the end of any file.
pub fn lock_range(offset: u64, length: u64) -> Result<ByteRange, NfsStat> {
    match length {
        0 => Err(NfsStat::Inval),
        u64::MAX => Ok(ByteRange { start: offset, last: u64::MAX }),
        _ => Ok(ByteRange { start: offset, last: offset.checked_add(length - 1).ok_or(NfsStat::Inval)? }),
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
