//! Records of clients: who they are, whether they are still there, their sessions.
//!
//! ```text
//!   EXCHANGE_ID, SETCLIENTID        CREATE_SESSION, SETCLIENTID_CONFIRM
//!  -------------------------> unconfirmed ---------------------------> confirmed
//!                                  | a lease passes                        | a lease passes without a word
//!                                  v                                       v
//!                                removed        a word: confirmed <---- courteous ----> removed
//!                                                                        its state is in somebody's way, or a day passes
//! ```
//!
//! - `clients.one_confirmed_each`: an owner has at most one confirmed and one unconfirmed record. Confirming a record
//!   removes the owner's other one, whose state goes with it.
//! - `clients.ids_are_secrets`: whoever names a client's id acts for that client, so an id is drawn at random and told to its
//!   client alone. One that is not known, as after a restart, is NFS4ERR_STALE_CLIENTID, and a session NFS4ERR_BADSESSION.
//!   NFSv4.0 hears NFS4ERR_EXPIRED of the last [`ENDED_MAX`] clients that were here.
//! - `clients.ids_name_their_family`: a client's id is odd if it has sessions. What a client of sessions holds is touched
//!   within its sessions alone: a request of NFSv4.0, where an id or a stateid says everything, does not find it.
//! - `clients.courtesy_keeps`: a client that was silent for a lease keeps its state until somebody needs it or
//!   [`COURTESY`] is over.
//! - `clients.bounded_records`: there are at most [`CLIENTS_MAX`] records, and [`OF_NETWORK_MAX`] of one network: one machine
//!   does not keep the others out. An IPv6 client has a whole /64, which counts as one address.
//! - `clients.room_by_network`: unconfirmed records make room for a newcomer first, then clients that were silent for a
//!   lease, then, where all are full of clients that are there, one of a network that has more than the newcomer's. Each
//!   time it is the longest silent of the network that has most.
//! - `clients.sessions_on_their_own`: a session has a lock of its own, and a client's last word needs none. A session that
//!   ended says so to whoever still holds it.
//! - `clients.removal_is_reported`: a record that is removed is named to the caller, who ends its opens, locks and
//!   delegations.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::clock::{Chance, Moment};
use super::ops::{
    BindConnArgs, BindConnOk, ChannelAttrs, ChannelFromClient, ChannelFromServer, ClientIdVerifier, CreateSessionArgs,
    CreateSessionOk, ExchangeIdArgs, ProtectAsked, SequenceArgs,
};
use super::slots::{
    Arrival, CACHED_REPLY_BYTES_MAX, ClientSession, ConnectionId, ReplyBounds, SLOTS_MAX, Sequenced, SlotTicket,
};
use super::types::{ClientId, NfsStat, OPAQUE_BYTES_MAX, SessionId, Verifier};
use larder_doors::strangers;

/// Records of clients, confirmed or not: several times the machines of any house.
pub const CLIENTS_MAX: usize = 4096;
/// Records of one address, or of one /64: those of all containers of a machine.
pub const OF_NETWORK_MAX: usize = CLIENTS_MAX / 2;
/// Sessions of one client. Linux has one; trunked mounts with separate identities have one each.
pub const SESSIONS_MAX: usize = 16;
/// Sessions of all clients beyond which each has one alone; every session has a slot whatever the budget of replies says.
pub const SHARED_SESSIONS_MAX: usize = CLIENTS_MAX;
/// Clients of NFSv4.0 that have ended and are remembered, each some 30 bytes.
const ENDED_MAX: usize = 16 << 10;
/// The longest silence in which a client keeps what nobody else wants.
pub const COURTESY: Duration = Duration::from_secs(24 * 3600);
/// Bytes of replies that all sessions together may keep.
pub const REPLIES_BYTES_MAX: usize = 64 << 20;
/// Those of the sessions of one network.
const REPLIES_BYTES_OF_NETWORK_MAX: usize = REPLIES_BYTES_MAX / 4;
/// Room for one READ or WRITE of the largest size with what stands around it.
const REQUEST_BYTES_MAX: u32 = (1 << 20) + 4096;
/// A request and a reply below this hold no SEQUENCE with one operation.
const MESSAGE_BYTES_MIN: u32 = 256;
const OPERATIONS_IN_SESSION_MAX: u32 = 64;

/// `EXCHGID4_FLAG_*` (RFC 8881 18.35.3).
pub mod exchange_flag {
    pub const SUPP_MOVED_REFER: u32 = 1;
    pub const SUPP_MOVED_MIGR: u32 = 2;
    pub const SUPP_FENCE_OPS: u32 = 4;
    pub const BIND_PRINC_STATEID: u32 = 0x100;
    pub const USE_NON_PNFS: u32 = 0x1_0000;
    pub const MASK_PNFS: u32 = 0x7_0000;
    pub const UPDATE_CONFIRMED: u32 = 0x4000_0000;
    pub const CONFIRMED: u32 = 0x8000_0000;
    /// Those that a client may set.
    pub const ASKED: u32 =
        SUPP_MOVED_REFER | SUPP_MOVED_MIGR | SUPP_FENCE_OPS | BIND_PRINC_STATEID | MASK_PNFS | UPDATE_CONFIRMED;
}

/// `CREATE_SESSION4_FLAG_*` (RFC 8881 18.36.3).
pub mod session_flag {
    pub const PERSIST: u32 = 1;
    pub const CONN_BACK_CHAN: u32 = 2;
    pub const CONN_RDMA: u32 = 4;
    pub const ASKED: u32 = PERSIST | CONN_BACK_CHAN | CONN_RDMA;
}

/// The caller of an operation on client records, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    pub flavor: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Who asks for a record, from where and when.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    pub principal: Principal,
    pub address: IpAddr,
    pub now: Moment,
}

/// Owners of the two families are different clients even under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family4 {
    /// NFSv4.0.
    Zero,
    /// NFSv4.1 and later.
    Sessions,
    /// Clients of NFS v3 with locks, each by its address ([`OwnerKey::of_address`]).
    Lockers,
}

/// A client's own name for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerName {
    pub family: Family4,
    pub id: Box<[u8]>,
}

/// A name of bounded length, by which a client is known in durable records: the first half of its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerKey {
    pub family: Family4,
    pub digest: [u8; 16],
}

impl OwnerKey {
    /// The key of a client of NFS v3 with locks is its address, which has as many bytes as a digest: the server has to find
    /// it after a restart.
    pub fn of_address(address: IpAddr) -> Self {
        let digest = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self { family: Family4::Lockers, digest }
    }

    pub fn address(&self) -> Option<IpAddr> {
        (self.family == Family4::Lockers).then(|| IpAddr::from(self.digest).to_canonical())
    }
}

impl OwnerName {
    pub fn key(&self) -> OwnerKey {
        let whole = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.id);
        let digest = whole.as_ref().first_chunk::<16>().copied().unwrap_or_default();
        OwnerKey { family: self.family, digest }
    }
}

/// The way back to a client of NFSv4.0: RPC program, address and identifier of its call-backs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CallbackPath {
    pub program: u32,
    pub netid: Box<[u8]>,
    pub address: Box<[u8]>,
    pub ident: u32,
}

#[derive(Debug)]
struct ClientRecord {
    owner: OwnerName,
    verifier: Verifier,
    principal: Principal,
    /// Where it was first seen (`clients.bounded_records`).
    network: IpAddr,
    is_confirmed: bool,
    life: Arc<ClientLife>,
    key: OwnerKey,
    /// NFSv4.1: the number of its last CREATE_SESSION, and the answer.
    sequence: u32,
    created: Option<CreateSessionOk>,
    reclaim_complete: bool,
    sessions: Vec<SessionId>,
    /// NFSv4.0.
    confirm: Verifier,
    callback: CallbackPath,
    /// A new way back that the client has not confirmed yet, with its verifier (RFC 7530 16.33.5).
    update: Option<(Verifier, CallbackPath)>,
    implementation: Option<Box<str>>,
}

/// What a client's requests and the rest of the server tell each other without the lock of all state.
#[derive(Debug, Default)]
pub struct ClientLife {
    /// Its last word, in nanoseconds of a [`Moment`].
    renewed: AtomicU64,
    /// `sr_status_flags` of its next SEQUENCE.
    status: AtomicU32,
}

impl ClientLife {
    fn at(now: Moment) -> Arc<Self> {
        let life = Self::default();
        life.renew(now);
        Arc::new(life)
    }

    pub fn renew(&self, now: Moment) {
        let nanoseconds = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        self.renewed.fetch_max(nanoseconds, Relaxed);
    }

    fn renewed(&self) -> Moment {
        Moment(Duration::from_nanos(self.renewed.load(Relaxed)))
    }
}

/// A session under its own lock (`clients.sessions_on_their_own`).
#[derive(Debug)]
pub struct SharedSession {
    session: Mutex<ClientSession>,
    life: Arc<ClientLife>,
}

impl SharedSession {
    pub fn lock(&self) -> MutexGuard<'_, ClientSession> {
        self.session.lock()
    }

    /// SEQUENCE: the slot's verdict, and the client is there (RFC 8881 8.3).
    pub fn sequence(
        &self,
        args: &SequenceArgs,
        arrival: Arrival,
        now: Moment,
    ) -> Result<(ClientId, Sequenced, Option<ReplyBounds>), NfsStat> {
        let mut session = self.lock();
        let sequenced = session.begin(args, arrival, self.life.status.load(Relaxed))?;
        self.life.renew(now);
        let bounds = match &sequenced {
            Sequenced::Run(_, ticket) => Some(session.reply_bounds(ticket)),
            _ => None,
        };
        Ok((session.client, sequenced, bounds))
    }
}

pub type Sessions = Arc<RwLock<HashMap<SessionId, Arc<SharedSession>>>>;

/// Whether a client has opens, locks or delegations; asked of the table of states.
pub trait StateHolders {
    fn has_state(&self, client: ClientId) -> bool;
}

/// The result of EXCHANGE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub client: ClientId,
    /// The number that the next CREATE_SESSION bears.
    pub sequence: u32,
    pub is_confirmed: bool,
}

/// A success that may have removed an older record (`clients.removal_is_reported`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacing<T> {
    pub value: T,
    pub removed: Option<ClientId>,
}

impl<T> Replacing<T> {
    fn nothing(value: T) -> Self {
        Self { value, removed: None }
    }
}

/// Why SETCLIENTID was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetClientIdRefusal {
    /// NFS4ERR_CLID_INUSE, with the other's way back.
    InUse(CallbackPath),
    Status(NfsStat),
}

/// What the clients of one network have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NetworkUse {
    records: usize,
    /// Bytes of replies that its sessions may keep.
    reply_bytes: usize,
}

pub struct Clients {
    lease: Duration,
    records: HashMap<ClientId, ClientRecord>,
    confirmed: HashMap<OwnerName, ClientId>,
    unconfirmed: HashMap<OwnerName, ClientId>,
    /// The last confirmed clients of NFSv4.0 that have ended, in their order.
    ended: HashSet<ClientId>,
    ended_order: VecDeque<ClientId>,
    networks: HashMap<IpAddr, NetworkUse>,
    sessions: Sessions,
    /// Bytes of replies that the sessions may keep (`slots.bounded_replies`).
    reply_bytes: usize,
}

impl Clients {
    pub fn new(lease: Duration) -> Self {
        Self {
            lease,
            records: HashMap::new(),
            confirmed: HashMap::new(),
            unconfirmed: HashMap::new(),
            ended: HashSet::new(),
            ended_order: VecDeque::new(),
            networks: HashMap::new(),
            sessions: Sessions::default(),
            reply_bytes: 0,
        }
    }

    pub fn sessions(&self) -> Sessions {
        Arc::clone(&self.sessions)
    }

    /// EXCHANGE_ID (RFC 8881 18.35.4, cases by their numbers there).
    pub fn exchange_id(
        &mut self,
        args: &ExchangeIdArgs<'_>,
        asking: Asking,
        states: &dyn StateHolders,
        chance: &mut dyn Chance,
    ) -> Result<Replacing<Exchanged>, NfsStat> {
        let Asking { principal, now, .. } = asking;
        if args.flags & !exchange_flag::ASKED != 0 {
            return Err(NfsStat::Inval);
        }
        match args.protect {
            ProtectAsked::None(()) => {}
            // Both need RPCSEC_GSS.
            ProtectAsked::MachineCred(_) => return Err(NfsStat::Inval),
            ProtectAsked::Ssv(_) => return Err(NfsStat::EncrAlgUnsupp),
        }
        let owner = OwnerName { family: Family4::Sessions, id: args.owner.id.0.into() };
        let verifier = args.owner.verifier;
        let is_update = args.flags & exchange_flag::UPDATE_CONFIRMED != 0;
        let confirmed = self.confirmed.get(&owner).copied();
        let same = confirmed.and_then(|id| {
            let record = self.records.get(&id)?;
            Some((id, record.principal == principal, record.verifier == verifier))
        });
        let mut removed = None;
        match (same, is_update) {
            // Case 7: an update without a confirmed record.
            (None, true) => return Err(NfsStat::NoEnt),
            // Case 9: an update by another principal.
            (Some((_, false, _)), true) => return Err(NfsStat::Perm),
            // Case 8: an update with another verifier.
            (Some((_, true, false)), true) => return Err(NfsStat::NotSame),
            // Cases 2 and 6: the same client asks again, or updates its properties.
            (Some((id, true, true)), _) => {
                self.describe(id, args);
                let sequence = self.records.get(&id).map_or(1, |record| record.sequence.wrapping_add(1));
                return Ok(Replacing::nothing(Exchanged { client: id, sequence, is_confirmed: true }));
            }
            // Case 3: another principal uses the name.
            (Some((id, false, _)), false) => {
                if self.is_in_use(id, now, states) {
                    return Err(NfsStat::ClidInUse);
                }
                // A refusal would not name the record that is removed.
                self.room_for(asking.address)?;
                self.remove(id);
                removed = Some(id);
            }
            // Case 5: the client has restarted. Its old record goes when the new one is confirmed.
            (Some((_, true, false)), false) => {}
            // Cases 1 and 4: a new owner, or a new try.
            (None, false) => {}
        }
        let client = self.add(owner, verifier, asking, chance)?;
        self.describe(client, args);
        Ok(Replacing { value: Exchanged { client, sequence: 1, is_confirmed: false }, removed })
    }

    /// Keeps the client's implementation, for people.
    fn describe(&mut self, client: ClientId, args: &ExchangeIdArgs<'_>) {
        const SHOWN_BYTES_MAX: usize = 128;
        let (Some(record), Some(implementation)) = (self.records.get_mut(&client), args.implementation) else { return };
        let name = implementation.name.0;
        let shown = String::from_utf8_lossy(name.get(..name.len().min(SHOWN_BYTES_MAX)).unwrap_or_default());
        record.implementation = Some(shown.into());
    }

    /// The client's program, by its own word.
    #[cfg(test)]
    pub fn implementation(&self, client: ClientId) -> Option<&str> {
        self.records.get(&client)?.implementation.as_deref()
    }

    fn is_in_use(&self, client: ClientId, now: Moment, states: &dyn StateHolders) -> bool {
        let Some(record) = self.records.get(&client) else { return false };
        let has_any = !record.sessions.is_empty() || states.has_state(client);
        has_any && now.since(record.life.renewed()) < self.lease
    }

    /// A new unconfirmed record in place of the owner's last one.
    fn add(
        &mut self,
        owner: OwnerName,
        verifier: Verifier,
        asking: Asking,
        chance: &mut dyn Chance,
    ) -> Result<ClientId, NfsStat> {
        if owner.id.len() > OPAQUE_BYTES_MAX {
            return Err(NfsStat::BadXdr);
        }
        if let Some(older) = self.unconfirmed.get(&owner).copied() {
            self.remove(older);
        }
        self.room_for(asking.address)?;
        let network = strangers::network(asking.address);
        let id = self.new_id(owner.family, chance);
        let record = ClientRecord {
            owner: owner.clone(),
            verifier,
            principal: asking.principal,
            network,
            is_confirmed: false,
            life: ClientLife::at(asking.now),
            key: owner.key(),
            sequence: 0,
            created: None,
            reclaim_complete: false,
            sessions: Vec::new(),
            confirm: [0; 8],
            callback: CallbackPath::default(),
            update: None,
            implementation: None,
        };
        self.records.insert(id, record);
        self.networks.entry(network).or_default().records += 1;
        self.unconfirmed.insert(owner, id);
        Ok(id)
    }

    /// Unconfirmed records make room for one more (`clients.room_by_network`). NFS4ERR_DELAY if all are confirmed.
    fn room_for(&mut self, address: IpAddr) -> Result<(), NfsStat> {
        let network = strangers::network(address);
        if self.records_of(network) >= OF_NETWORK_MAX {
            let oldest = self.hungriest(|record| !record.is_confirmed && record.network == network);
            self.remove(oldest.ok_or(NfsStat::Delay)?);
        }
        if self.records.len() >= CLIENTS_MAX {
            let oldest = self.hungriest(|record| !record.is_confirmed);
            self.remove(oldest.ok_or(NfsStat::Delay)?);
        }
        Ok(())
    }

    /// The confirmed client that makes room for a newcomer, where all records are confirmed. The caller ends it.
    pub fn gives_way(&self, address: IpAddr, now: Moment) -> Option<ClientId> {
        let newcomer = strangers::network(address);
        let own = self.records_of(newcomer);
        let is_silent = |record: &ClientRecord| now.since(record.life.renewed()) >= self.lease;
        if own >= OF_NETWORK_MAX {
            return self.hungriest(|record| record.network == newcomer && is_silent(record));
        }
        let has_more = |record: &ClientRecord| self.records_of(record.network) > own + 1;
        self.hungriest(is_silent).or_else(|| self.hungriest(has_more))
    }

    /// Of these records the longest silent of the network that has most.
    fn hungriest(&self, among: impl Fn(&ClientRecord) -> bool) -> Option<ClientId> {
        let silent_since = |record: &ClientRecord| Reverse(record.life.renewed());
        let these = self.records.iter().filter(|(_, record)| among(record));
        these.max_by_key(|(_, record)| (self.records_of(record.network), silent_since(record))).map(|(id, _)| *id)
    }

    fn records_of(&self, network: IpAddr) -> usize {
        self.networks.get(&network).map_or(0, |network| network.records)
    }

    pub fn network(&self, client: ClientId) -> Option<IpAddr> {
        self.records.get(&client).map(|record| record.network)
    }

    /// Since when a client that is silent for a lease was silent (`clients.courtesy_keeps`).
    pub fn silent_since(&self, client: ClientId, now: Moment) -> Option<Moment> {
        let renewed = self.records.get(&client)?.life.renewed();
        (now.since(renewed) >= self.lease).then_some(renewed)
    }

    /// `clients.ids_are_secrets`
    fn new_id(&self, family: Family4, chance: &mut dyn Chance) -> ClientId {
        loop {
            let id = ClientId(chance.next() & !1 | u64::from(family == Family4::Sessions));
            // 0 stands for no client in a denied lock.
            if id.0 > 1 && !self.records.contains_key(&id) && !self.ended.contains(&id) {
                return id;
            }
        }
    }

    /// Confirms a record and removes the owner's older one (`clients.one_confirmed_each`).
    fn confirm(&mut self, client: ClientId) -> Option<ClientId> {
        let record = self.records.get_mut(&client)?;
        record.is_confirmed = true;
        let owner = record.owner.clone();
        let older = self.confirmed.get(&owner).copied().filter(|older| *older != client);
        if let Some(older) = older {
            self.remove(older);
        }
        // Another unconfirmed record of the owner is that of a client which has restarted since.
        if self.unconfirmed.get(&owner) == Some(&client) {
            self.unconfirmed.remove(&owner);
        }
        self.confirmed.insert(owner, client);
        older
    }

    /// The client's own name for itself, as text.
    pub fn name(&self, client: ClientId) -> Option<String> {
        self.records.get(&client).map(|record| String::from_utf8_lossy(&record.owner.id).into_owned())
    }

    /// Removes a record with its sessions. Its other state is the caller's to end (`clients.removal_is_reported`).
    pub fn remove(&mut self, client: ClientId) -> Option<OwnerName> {
        let record = self.records.remove(&client)?;
        for names in [&mut self.confirmed, &mut self.unconfirmed] {
            if names.get(&record.owner) == Some(&client) {
                names.remove(&record.owner);
            }
        }
        for session in &record.sessions {
            self.drop_session(session, record.network);
        }
        if let Some(network) = self.networks.get_mut(&record.network) {
            network.records -= 1;
            if network.records == 0 {
                self.networks.remove(&record.network);
            }
        }
        if record.is_confirmed && record.owner.family == Family4::Zero {
            self.ended.insert(client);
            self.ended_order.push_back(client);
            if self.ended_order.len() > ENDED_MAX {
                self.ended_order.pop_front().map(|oldest| self.ended.remove(&oldest));
            }
        }
        Some(record.owner)
    }

    fn drop_session(&mut self, session: &SessionId, network: IpAddr) {
        let Some(dropped) = self.sessions.write().remove(session) else { return };
        let mut dropped = dropped.lock();
        dropped.is_ended = true;
        if let Some(network) = self.networks.get_mut(&network) {
            network.reply_bytes = network.reply_bytes.saturating_sub(dropped.reply_bytes_max());
        }
        self.reply_bytes = self.reply_bytes.saturating_sub(dropped.reply_bytes_max());
    }

    /// CREATE_SESSION (RFC 8881 18.36.4). A failure leaves the client's number as it was.
    pub fn create_session(
        &mut self,
        args: &CreateSessionArgs<'_>,
        principal: Principal,
        connection: ConnectionId,
        now: Moment,
        chance: &mut dyn Chance,
    ) -> Result<Replacing<CreateSessionOk>, NfsStat> {
        let record = self.records.get(&args.client).filter(|record| record.owner.family == Family4::Sessions);
        let record = record.ok_or(NfsStat::StaleClientId)?;
        if args.sequence == record.sequence
            && let Some(created) = record.created
        {
            return Ok(Replacing::nothing(created));
        }
        if args.sequence != record.sequence.wrapping_add(1) {
            return Err(NfsStat::SeqMisordered);
        }
        if !record.is_confirmed && record.principal != principal {
            return Err(NfsStat::ClidInUse);
        }
        if args.flags & !session_flag::ASKED != 0 {
            return Err(NfsStat::Inval);
        }
        if record.sessions.len() >= SESSIONS_MAX {
            return Err(NfsStat::NoSpc);
        }
        if !record.sessions.is_empty() && self.sessions.read().len() >= SHARED_SESSIONS_MAX {
            return Err(NfsStat::Delay);
        }
        let network = record.network;
        let fore = self.fore_channel(&args.fore, network)?;
        let back = back_channel(&args.back)?;
        let mut session = [0; 16];
        let halves = [args.client.0.to_be_bytes(), chance.next().to_be_bytes()].concat();
        session.iter_mut().zip(halves).for_each(|(place, byte)| *place = byte);
        let mut made = ClientSession::new(session, args.client, fore, back, args.callback_program);
        let has_back = args.flags & session_flag::CONN_BACK_CHAN != 0;
        made.bind(connection, true, has_back);
        self.reply_bytes += made.reply_bytes_max();
        self.networks.entry(network).or_default().reply_bytes += made.reply_bytes_max();
        let made = SharedSession { session: Mutex::new(made), life: Arc::clone(&record.life) };
        self.sessions.write().insert(session, Arc::new(made));
        let removed = self.confirm(args.client);
        let flags = args.flags & session_flag::CONN_BACK_CHAN;
        let ok = CreateSessionOk { session, sequence: args.sequence, flags, fore, back };
        if let Some(record) = self.records.get_mut(&args.client) {
            (record.sequence, record.created) = (args.sequence, Some(ok));
            record.life.renew(now);
            record.sessions.push(session);
        }
        Ok(Replacing { value: ok, removed })
    }

    fn fore_channel(&self, asked: &ChannelAttrs, network: IpAddr) -> Result<ChannelAttrs, NfsStat> {
        if asked.request_bytes < MESSAGE_BYTES_MIN || asked.reply_bytes < MESSAGE_BYTES_MIN || asked.operations < 2 {
            return Err(NfsStat::TooSmall);
        }
        let cached_reply_bytes = asked.cached_reply_bytes.min(CACHED_REPLY_BYTES_MAX);
        let each = super::slots::slot_bytes_max(cached_reply_bytes);
        // A session always gets one slot: a client that gets none waits for ever.
        let of_network = self.networks.get(&network).map_or(0, |network| network.reply_bytes);
        let of_network = REPLIES_BYTES_OF_NETWORK_MAX.saturating_sub(of_network);
        let affordable = REPLIES_BYTES_MAX.saturating_sub(self.reply_bytes).min(of_network) / each;
        let affordable = u32::try_from(affordable).unwrap_or(u32::MAX).max(1);
        Ok(ChannelAttrs {
            header_pad: 0,
            request_bytes: asked.request_bytes.min(REQUEST_BYTES_MAX),
            reply_bytes: asked.reply_bytes.min(REQUEST_BYTES_MAX),
            cached_reply_bytes,
            operations: asked.operations.min(OPERATIONS_IN_SESSION_MAX),
            requests: asked.requests.clamp(1, SLOTS_MAX.min(affordable)),
            rdma_ird: None,
        })
    }

    pub fn session(&self, id: &SessionId) -> Result<Arc<SharedSession>, NfsStat> {
        self.sessions.read().get(id).cloned().ok_or(NfsStat::BadSession)
    }

    /// Flags that the client's next SEQUENCE answers.
    pub fn set_status(&self, client: ClientId, flags: u32) {
        if let Some(record) = self.records.get(&client) {
            record.life.status.store(flags, Relaxed);
        }
    }

    /// BIND_CONN_TO_SESSION (RFC 8881 18.34). Without RDMA.
    pub fn bind_connection(&mut self, args: &BindConnArgs, connection: ConnectionId) -> Result<BindConnOk, NfsStat> {
        let session = self.session(&args.session)?;
        let mut session = session.lock();
        let (fore, back, direction) = match args.direction {
            ChannelFromClient::Fore => (true, false, ChannelFromServer::Fore),
            ChannelFromClient::Back => (false, true, ChannelFromServer::Back),
            ChannelFromClient::ForeOrBoth | ChannelFromClient::BackOrBoth => (true, true, ChannelFromServer::Both),
        };
        if !session.bind(connection, fore, back) {
            return Err(NfsStat::Delay);
        }
        Ok(BindConnOk { session: args.session, direction, rdma: false })
    }

    /// DESTROY_SESSION (RFC 8881 18.37). `own` is the ticket of the request that asks, if it has one.
    pub fn destroy_session(
        &mut self,
        id: &SessionId,
        connection: ConnectionId,
        own: Option<&SlotTicket>,
    ) -> Result<(), NfsStat> {
        let client = {
            let shared = self.session(id)?;
            let mut session = shared.lock();
            if !session.is_bound(connection) {
                return Err(NfsStat::ConnNotBoundToSession);
            }
            if session.running_beside(own) > 0 {
                return Err(NfsStat::Delay);
            }
            // From here on it takes no request.
            session.is_ended = true;
            session.client
        };
        if let Some(network) = self.network(client) {
            self.drop_session(id, network);
        }
        if let Some(record) = self.records.get_mut(&client) {
            record.sessions.retain(|session| session != id);
        }
        Ok(())
    }

    /// DESTROY_CLIENTID (RFC 8881 18.50). The owner, whose durable record goes too.
    pub fn destroy_client(&mut self, client: ClientId, states: &dyn StateHolders) -> Result<OwnerName, NfsStat> {
        let record = self.records.get(&client).filter(|record| record.owner.family == Family4::Sessions);
        let record = record.ok_or(NfsStat::StaleClientId)?;
        if !record.sessions.is_empty() || states.has_state(client) {
            return Err(NfsStat::ClientIdBusy);
        }
        self.remove(client).ok_or(NfsStat::StaleClientId)
    }

    /// RECLAIM_COMPLETE of all file systems (RFC 8881 18.51).
    pub fn reclaim_complete(&mut self, client: ClientId) -> Result<(), NfsStat> {
        let record = self.records.get_mut(&client).ok_or(NfsStat::StaleClientId)?;
        if std::mem::replace(&mut record.reclaim_complete, true) {
            return Err(NfsStat::CompleteAlready);
        }
        Ok(())
    }

    /// A client of NFSv4.1 opens only after it has said that it reclaims no more (RFC 8881 18.51.3).
    pub fn has_completed(&self, client: ClientId) -> bool {
        self.records.get(&client).is_some_and(|record| record.owner.family == Family4::Zero || record.reclaim_complete)
    }

    /// Whether a client of sessions has sent RECLAIM_COMPLETE.
    pub fn has_said_complete(&self, client: ClientId) -> bool {
        self.records.get(&client).is_some_and(|record| record.reclaim_complete)
    }

    /// Owners that will reclaim nothing any more.
    pub fn completed_owners(&self) -> HashSet<OwnerKey> {
        self.records.values().filter(|record| record.reclaim_complete).map(|record| record.key).collect()
    }

    pub fn owner_key(&self, client: ClientId) -> Option<OwnerKey> {
        self.records.get(&client).map(|record| record.key)
    }

    /// SETCLIENTID (RFC 7530 16.33.5, in the order of its bullets).
    pub fn set_client_id(
        &mut self,
        id: &[u8],
        verifier: Verifier,
        callback: CallbackPath,
        asking: Asking,
        states: &dyn StateHolders,
        chance: &mut dyn Chance,
    ) -> Result<Replacing<ClientIdVerifier>, SetClientIdRefusal> {
        let Asking { principal, now, .. } = asking;
        let owner = OwnerName { family: Family4::Zero, id: id.into() };
        let confirm = chance.next().to_be_bytes();
        let mut removed = None;
        if let Some(client) = self.confirmed.get(&owner).copied() {
            let in_use = self.is_in_use(client, now, states);
            let Some(record) = self.records.get_mut(&client) else {
                return Err(SetClientIdRefusal::Status(NfsStat::ServerFault));
            };
            if record.principal != principal {
                if in_use {
                    return Err(SetClientIdRefusal::InUse(record.callback.clone()));
                }
                // A refusal would not name the record that is removed.
                self.room_for(asking.address).map_err(|_| SetClientIdRefusal::Status(NfsStat::Resource))?;
                self.remove(client);
                removed = Some(client);
            } else if record.verifier == verifier {
                // The same client with another way back: the id stays.
                record.update = Some((confirm, callback));
                if let Some(unconfirmed) = self.unconfirmed.get(&owner).copied() {
                    self.remove(unconfirmed);
                }
                return Ok(Replacing::nothing(ClientIdVerifier { client, confirm }));
            }
        }
        let client = self.add(owner, verifier, asking, chance).map_err(|status| match status {
            // NFSv4.0 has this word for a table that is full.
            NfsStat::Delay => SetClientIdRefusal::Status(NfsStat::Resource),
            status => SetClientIdRefusal::Status(status),
        })?;
        if let Some(record) = self.records.get_mut(&client) {
            (record.confirm, record.callback) = (confirm, callback);
        }
        Ok(Replacing { value: ClientIdVerifier { client, confirm }, removed })
    }

    /// SETCLIENTID_CONFIRM (RFC 7530 16.34.5).
    pub fn confirm_client_id(
        &mut self,
        args: &ClientIdVerifier,
        principal: Principal,
        now: Moment,
    ) -> Result<Replacing<()>, NfsStat> {
        let record = self.records.get_mut(&args.client).filter(|record| record.owner.family == Family4::Zero);
        let record = record.ok_or(NfsStat::StaleClientId)?;
        if record.principal != principal {
            return Err(NfsStat::ClidInUse);
        }
        if record.is_confirmed {
            if record.update.as_ref().is_some_and(|(confirm, _)| *confirm == args.confirm)
                && let Some((confirm, callback)) = record.update.take()
            {
                (record.confirm, record.callback) = (confirm, callback);
            } else if record.confirm != args.confirm {
                return Err(NfsStat::StaleClientId);
            }
            record.life.renew(now);
            return Ok(Replacing::nothing(()));
        }
        if record.confirm != args.confirm {
            return Err(NfsStat::StaleClientId);
        }
        record.life.renew(now);
        let removed = self.confirm(args.client);
        Ok(Replacing { value: (), removed })
    }

    /// RENEW, and every operation of NFSv4.0 that names a client (RFC 7530 9.5).
    pub fn renew(&self, client: ClientId, now: Moment) -> Result<(), NfsStat> {
        if client.has_sessions() {
            return Err(NfsStat::StaleClientId);
        }
        let Some(record) = self.records.get(&client) else {
            // It was here: its lease has expired, or it has begun anew (RFC 7530 9.6.3).
            return Err(if self.ended.contains(&client) { NfsStat::Expired } else { NfsStat::StaleClientId });
        };
        if !record.is_confirmed {
            return Err(NfsStat::StaleClientId);
        }
        record.life.renew(now);
        Ok(())
    }

    /// The way back to a client of NFSv4.0.
    pub fn callback_path(&self, client: ClientId) -> Option<&CallbackPath> {
        self.records.get(&client).map(|record| &record.callback)
    }

    /// Whether somebody who needs what the client holds may have it (`clients.courtesy_keeps`).
    pub fn is_courteous(&self, client: ClientId, now: Moment) -> bool {
        self.records.get(&client).is_none_or(|record| now.since(record.life.renewed()) >= self.lease)
    }

    /// Whether a silent client has something that others may have.
    pub fn has_silent(&self, now: Moment, states: &dyn StateHolders) -> bool {
        let is_silent = |record: &ClientRecord| now.since(record.life.renewed()) >= self.lease;
        self.records.iter().any(|(id, record)| is_silent(record) && states.has_state(*id))
    }

    /// How long after `now` the first client falls silent, or the first record may be over; a lease at most, since state that keeps a
    /// record may end before.
    pub fn next_change(&self, now: Moment, states: &dyn StateHolders) -> Option<Duration> {
        let rest = |(id, record): (&ClientId, &ClientRecord)| {
            let silent = now.since(record.life.renewed());
            match self.lease.checked_sub(silent) {
                Some(rest) if !rest.is_zero() => rest,
                _ => self.time_of(*id, record, states).saturating_sub(silent),
            }
        };
        self.records.iter().map(rest).min().map(|rest| rest.min(self.lease))
    }

    /// How long a record lasts without a sign of its client.
    fn time_of(&self, id: ClientId, record: &ClientRecord, states: &dyn StateHolders) -> Duration {
        let keeps = record.is_confirmed && states.has_state(id);
        if keeps { COURTESY } else { self.lease }
    }

    /// Removes the records whose time is over, and names those that may have had state. Waits for nobody.
    pub fn sweep(&mut self, now: Moment, states: &dyn StateHolders) -> Vec<(ClientId, OwnerName)> {
        let is_over = |(id, record): &(&ClientId, &ClientRecord)| {
            now.since(record.life.renewed()) >= self.time_of(**id, record, states)
        };
        let over: Vec<ClientId> = self.records.iter().filter(is_over).map(|(id, _)| *id).collect();
        over.into_iter().filter_map(|id| self.remove(id).map(|owner| (id, owner))).collect()
    }

    /// A connection has ended: it is bound to nothing any more. The clients that were called over it.
    pub fn disconnected(&self, connection: ConnectionId) -> Vec<ClientId> {
        let unbound = |session: &Arc<SharedSession>| {
            let mut session = session.lock();
            session.unbind(connection).then_some(session.client)
        };
        self.sessions.read().values().filter_map(unbound).collect()
    }

    /// A session and a connection through which the client is reached now (RFC 8881 2.10.3.1).
    pub fn back_channel(&self, client: ClientId) -> Option<(SessionId, ConnectionId)> {
        let record = self.records.get(&client)?;
        let sessions = self.sessions.read();
        let bound = |id: &SessionId| sessions.get(id)?.lock().back_channel().map(|connection| (*id, connection));
        record.sessions.iter().rev().find_map(bound)
    }

    pub fn is_confirmed(&self, client: ClientId) -> bool {
        self.records.get(&client).is_some_and(|record| record.is_confirmed)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.records.len()
    }
}

fn back_channel(asked: &ChannelAttrs) -> Result<ChannelAttrs, NfsStat> {
    /// Recalls on their way to one client.
    const REQUESTS_MAX: u32 = 16;
    if asked.request_bytes < MESSAGE_BYTES_MIN || asked.operations < 2 {
        return Err(NfsStat::TooSmall);
    }
    Ok(ChannelAttrs { header_pad: 0, requests: asked.requests.clamp(1, REQUESTS_MAX), rdma_ird: None, ..*asked })
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
