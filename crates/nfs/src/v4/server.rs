//! The state that clients of version 4 have at this server, in one place under one lock.
//!
//! - `server.lock_waits_for_nobody`: the lock is held for looks into memory alone. No file, disk, client or call-back is
//!   waited for under it.
//! - `server.common_requests_pass_by`: SEQUENCE and the end of a request take the lock of their session alone, and READ and
//!   WRITE by a stateid that was judged before take none ([`KnownRights`]). Operations without a stateid need no state.
//! - `server.records_in_groups`: changes of a volume's record of clients are written as one by whoever comes first, while
//!   the next ones gather. Each request waits for its own change.
//! - `server.own_record_awaits_nobody`: a volume that was closed and comes back in the same life of the server, as when it
//!   goes back to a snapshot, has no grace if its record is the one that this life wrote: what its clients had ended with
//!   the former, and nobody else had anything since. Clients of NFS v3 hear of lost locks by a restart alone, so they take
//!   theirs back in a grace. So do clients of a volume that was on another machine.
//! - `server.sweeps_while_used`: the records of clients that are gone are looked for while there are clients: when the first
//!   of them falls silent or may be over, and once a lease. Without any the sweeper sleeps.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use larder_base::task;
use larder_files::Files;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::handle::{self, ExportKey};
use super::back_channel::BackChannel;
use super::callback_link::CallbackLink;
use super::client_book::{BookFailed, BookName, BookRecord, BookStore, open_file};
use super::clients::{Clients, Family4, OwnerKey, SharedSession};
use super::clock::{Chance, Moment};
use super::exported::{ExportedVolumes, HeldOpen};
use super::file_key::FileKey;
use super::grace::{BookVersion, Grace, ReclaimBook};
use super::known_rights::KnownRights;
use super::offload::Offloads;
use super::recalls::LockWaits;
use super::slots::{ConnectionId, SlotTicket};
use super::state::{Judge, StateTable};
use super::types::{ClientId, NfsStat, SessionId};

/// A client that says nothing for so long may lose what it holds to others. Linux renews after two thirds of it.
pub const LEASE: Duration = Duration::from_secs(60);
/// The time after a restart in which clients take back what they had. Each has asked within a lease.
const GRACE: Duration = LEASE;
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// All larders are one server to clients in this respect: handles, client ids and stateids of one never mean something
/// else at another (RFC 8881 2.10.4), so clients reclaim at the one that takes over.
const SCOPE: &[u8] = b"larder";
/// The book of all folders of the host; those of volumes have the volumes' numbers, which begin at 1.
const FOLDERS_BOOK: BookId = BookId(0);

/// `SEQ4_STATUS_*` (RFC 8881 18.46.3).
const CB_PATH_DOWN: u32 = 1;
const RECALLABLE_STATE_REVOKED: u32 = 0x40;

/// The system's source of random numbers.
pub struct OsChance;

impl Chance for OsChance {
    fn next(&mut self) -> u64 {
        rand::random()
    }
}

/// A record of clients: a volume's, or that of all folders of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BookId(u64);

/// A record of clients with its place.
struct Book {
    id: BookId,
    of: BookName,
    scope: Option<BookName>,
    store: BookStore,
    /// Its grace is among [`V4State::books`].
    is_loaded: OnceCell<()>,
    /// One writes at a time, the newest.
    writing: tokio::sync::Mutex<()>,
}

/// A volume that is exported, for looks without the lock.
pub struct KnownVolume {
    pub number: u64,
    book: Arc<Book>,
}

impl KnownVolume {
    pub fn book(&self) -> BookId {
        self.book.id
    }
}

pub struct V4State {
    pub clients: Clients,
    pub states: StateTable<HeldOpen>,
    pub exported: ExportedVolumes,
    /// Grace of each record of clients that was loaded.
    pub(super) books: HashMap<BookId, Grace>,
    /// Records of volumes as they are stored, by this life's last word (`server.own_record_awaits_nobody`).
    stored_books: HashMap<BookName, ReclaimBook>,
    pub chance: OsChance,
}

pub struct NfsV4 {
    state: Mutex<V4State>,
    server: BookName,
    scope: Option<BookName>,
    life: u32,
    began: Instant,
    connections: AtomicU64,
    /// Ways back to clients, over the connections that stand.
    back_channels: Mutex<HashMap<ConnectionId, Arc<BackChannel>>>,
    volumes: RwLock<HashMap<Uuid, Arc<KnownVolume>>>,
    folders_book: Arc<Book>,
    /// Clients of an older larder: of all volumes that have no record.
    of_all: Option<ReclaimBook>,
    sessions: Arc<RwLock<HashMap<SessionId, Arc<SharedSession>>>>,
    rights: Arc<KnownRights>,
    /// There are clients to look after.
    used: Notify,
    /// Delegations that are held or recalled, for a look without the lock.
    delegations: AtomicUsize,
    pub(super) lock_waits: LockWaits,
    pub(super) offloads: Offloads,
    /// Connections to clients of NFSv4.0.
    pub(super) links: Mutex<HashMap<ClientId, Arc<CallbackLink>>>,
    /// A recall waits to be sent.
    pub(super) recalls: Notify,
    /// A delegation has ended.
    pub(super) ended: Notify,
}

/// A connection that uses version 4, until it ends.
pub struct Connected {
    v4: Arc<NfsV4>,
    pub id: ConnectionId,
    pub back: Arc<BackChannel>,
}

impl Connected {
    pub fn new(v4: &Arc<NfsV4>) -> Self {
        let id = ConnectionId(v4.connections.fetch_add(1, Relaxed));
        let back = Arc::<BackChannel>::default();
        v4.back_channels.lock().insert(id, Arc::clone(&back));
        Self { v4: Arc::clone(v4), id, back }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut state = self.v4.lock();
        for client in state.clients.disconnected(self.id) {
            state.refresh_status(client);
        }
        drop(state);
        self.v4.back_channels.lock().remove(&self.id);
        self.back.close();
    }
}

impl NfsV4 {
    /// `file` is that of the durable record of folders of the host; volumes keep their own.
    pub fn new(file: Option<&Path>) -> Self {
        let found = open_file(file, rand::random());
        // A number of this life alone; the lowest bit keeps it from being zero.
        let life = rand::random::<u32>() | 1;
        let rights = Arc::<KnownRights>::default();
        let clients = Clients::new(LEASE);
        let (server, scope) = (found.record.of, found.record.scope);
        let folders = Book {
            id: FOLDERS_BOOK,
            of: server,
            scope,
            store: found.store,
            is_loaded: OnceCell::new_with(Some(())),
            writing: tokio::sync::Mutex::default(),
        };
        let grace = Grace::begin(found.record.book, Moment::default(), GRACE, |_| false);
        Self {
            sessions: clients.sessions(),
            state: Mutex::new(V4State {
                clients,
                states: StateTable::new(life, Arc::clone(&rights), Box::new(OsChance)),
                exported: ExportedVolumes::default(),
                books: HashMap::from([(FOLDERS_BOOK, grace)]),
                stored_books: HashMap::new(),
                chance: OsChance,
            }),
            server,
            scope,
            life,
            began: Instant::now(),
            connections: AtomicU64::new(1),
            back_channels: Mutex::default(),
            volumes: RwLock::default(),
            folders_book: Arc::new(folders),
            of_all: found.of_all,
            rights,
            used: Notify::new(),
            delegations: AtomicUsize::new(0),
            lock_waits: LockWaits::default(),
            offloads: Offloads::default(),
            links: Mutex::default(),
            recalls: Notify::new(),
            ended: Notify::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, V4State> {
        self.state.lock()
    }

    pub fn now(&self) -> Moment {
        Moment(self.began.elapsed())
    }

    pub fn life(&self) -> u32 {
        self.life
    }

    /// The name by which clients know the server over its restarts.
    pub fn server(&self) -> &[u8] {
        &self.server
    }

    /// The servers whose handles and ids go together.
    pub fn scope(&self) -> &[u8] {
        self.scope.as_ref().map_or(SCOPE, |scope| scope)
    }

    pub fn rights(&self) -> &KnownRights {
        &self.rights
    }

    /// A session, without the lock (`server.common_requests_pass_by`).
    pub fn session(&self, id: &SessionId) -> Result<Arc<SharedSession>, NfsStat> {
        self.sessions.read().get(id).cloned().ok_or(NfsStat::BadSession)
    }

    /// The request of a ticket has ended, with a reply or without. Its session may be gone.
    pub fn finish(&self, ticket: SlotTicket, reply: Option<&[u8]>) {
        if let Ok(session) = self.session(&ticket.session()) {
            session.lock().finish(ticket, reply);
        }
    }

    pub fn back_channel(&self, connection: ConnectionId) -> Option<Arc<BackChannel>> {
        self.back_channels.lock().get(&connection).cloned()
    }

    /// There is a client.
    pub fn is_used(&self) {
        self.used.notify_one();
    }

    /// Whether any file is delegated to anybody. Quick: asked before every access by other doors.
    pub fn has_delegations(&self) -> bool {
        self.delegations.load(Acquire) > 0
    }

    /// A recall waits to be sent.
    pub fn recalls_wait(&self) {
        self.recalls.notify_one();
    }

    /// Delegations were granted or have ended: whoever waits for an end looks again.
    pub fn delegations_changed(&self, state: &V4State) {
        self.delegations.store(state.states.delegated(), Release);
        self.ended.notify_waiters();
    }

    /// The volumes that are exported, and whether a client is let into an export (`exported.exports_only`).
    pub fn set_exports<'f>(
        self: &Arc<Self>,
        exported: impl Iterator<Item = &'f Files>,
        is_let_in: impl Fn(&ExportKey, IpAddr) -> bool,
    ) {
        let exported: Vec<&Files> = exported.collect();
        let mut state = self.lock();
        let v4 = Arc::downgrade(self);
        for volume in state.exported.set_trees(exported.iter().copied(), &v4) {
            state.states.end_where(|file, _| file.volume == volume);
            state.states.judges.end(volume);
            state.exported.forget(volume);
            let of = self.volumes.read().values().find(|known| known.number == volume).map(|known| known.book.of);
            let grace = state.books.remove(&BookId(volume));
            // In grace its clients still take back what they had before.
            if let Some(of) = of.filter(|_| grace.is_some_and(|grace| grace.is_on())) {
                state.stored_books.remove(&of);
            }
        }
        let is_gone =
            |held: &HeldOpen| handle::decode(&held.handle).is_none_or(|(key, _)| !is_let_in(&key, held.address));
        state.states.end_where(|_, held| held.is_some_and(is_gone));
        let mut volumes = HashMap::new();
        for files in exported {
            let Some(number) = state.exported.number(files) else { continue };
            let (table, door) = files.table();
            state.states.judges.begin(number, Judge { table: Arc::clone(table), door });
            let known = self.volumes.read().get(&files.id()).filter(|volume| volume.number == number).cloned();
            volumes.insert(files.id(), known.unwrap_or_else(|| Arc::new(self.new_volume(files, number))));
        }
        let added: Vec<Arc<KnownVolume>> = volumes.values().cloned().collect();
        *self.volumes.write() = volumes;
        self.delegations_changed(&state);
        drop(state);
        // Other doors hear of grace before the first client of this one comes.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let v4 = Arc::clone(self);
            task::spawn_on(&runtime, async move {
                for volume in added {
                    v4.load(&volume).await;
                }
            });
        }
    }

    fn new_volume(&self, files: &Files, number: u64) -> KnownVolume {
        let book = match files.keeps_nfs_clients() {
            false => Arc::clone(&self.folders_book),
            true => Arc::new(Book {
                id: BookId(number),
                of: files.handle_id().into_bytes(),
                scope: None,
                store: BookStore::of_volume(files.clone()),
                is_loaded: OnceCell::new(),
                writing: tokio::sync::Mutex::default(),
            }),
        };
        KnownVolume { number, book }
    }

    /// Whether clients still take back what they had in a volume.
    pub fn is_in_grace(&self, volume: u64) -> bool {
        let book = self.volumes.read().values().find(|known| known.number == volume).map(|known| known.book());
        book.is_some_and(|book| self.lock().is_in_grace(book))
    }

    /// A volume that is exported, whether or not its record is loaded.
    pub fn known_volume(&self, files: &Files) -> Option<Arc<KnownVolume>> {
        self.volumes.read().get(&files.id()).cloned()
    }

    /// A volume that is exported, with its grace.
    pub async fn volume(self: &Arc<Self>, files: &Files) -> Result<Arc<KnownVolume>, NfsStat> {
        let volume = self.known_volume(files).ok_or(NfsStat::Stale)?;
        if !volume.book.is_loaded.initialized() {
            Box::pin(self.load(&volume)).await;
        }
        Ok(volume)
    }

    async fn load(self: &Arc<Self>, volume: &Arc<KnownVolume>) {
        let book = &volume.book;
        let begin = || async {
            let (found, is_carried) = book.store.load(book.of, self.of_all.as_ref()).await;
            self.begin_grace(book, found, is_carried);
            // Grace of clients that are all here ends before anybody hears of it.
            let _ = self.settle().await;
        };
        book.is_loaded.get_or_init(begin).await;
        let mut state = self.lock();
        if state.is_in_grace(book.id) {
            state.exported.begin_reclaims(volume.number);
        }
        drop(state);
        self.is_used();
    }

    fn begin_grace(&self, book: &Book, mut found: ReclaimBook, is_carried: bool) {
        let mut state = self.lock();
        let here = state.clients.completed_owners();
        // It may have gone meanwhile, and come back by another number.
        if !self.volumes.read().values().any(|known| known.book.id == book.id) {
            return;
        }
        match state.stored_books.get(&book.of) {
            // `server.own_record_awaits_nobody`
            Some(stored) if *stored == found => found.names.retain(|(_, owner)| owner.family == Family4::Lockers),
            _ => drop(state.stored_books.insert(book.of, found.clone())),
        }
        let mut grace = Grace::begin(found, self.now(), GRACE, |owner| here.contains(owner));
        if is_carried {
            grace.is_carried();
        }
        state.books.insert(book.id, grace);
    }

    /// A volume, by its id in handles, has gone to another machine, whose clients may come back with it.
    pub fn gone_elsewhere(&self, volume: BookName) {
        self.lock().stored_books.remove(&volume);
    }

    /// The record of a volume's clients has this one, durably (`grace.recorded_before_answered`).
    pub async fn record(self: &Arc<Self>, client: ClientId, volume: &KnownVolume) -> Result<(), NfsStat> {
        let owner = self.lock().clients.owner_key(client).ok_or(NfsStat::StaleClientId)?;
        self.record_owner(owner, volume).await
    }

    /// As [`NfsV4::record`], by the name in the record.
    pub(super) async fn record_owner(self: &Arc<Self>, owner: OwnerKey, volume: &KnownVolume) -> Result<(), NfsStat> {
        let version = {
            let mut state = self.lock();
            let grace = state.books.get_mut(&volume.book.id).ok_or(NfsStat::Delay)?;
            let version = grace.takes(owner);
            if grace.is_durable(version) {
                return Ok(());
            }
            version
        };
        self.durable(Arc::clone(&volume.book), version).await.map_err(|_| NfsStat::Delay)
    }

    /// All changes of all records up to now are durable.
    pub async fn settle(self: &Arc<Self>) -> Result<(), BookFailed> {
        let unsettled: Vec<(BookId, BookVersion)> = {
            let state = self.lock();
            let books = state.books.iter();
            books.filter_map(|(id, grace)| grace.to_write().map(|(version, _)| (*id, version))).collect()
        };
        for (id, version) in unsettled {
            let of_volume = self.volumes.read().values().map(|volume| &volume.book).find(|book| book.id == id).cloned();
            let book = if id == FOLDERS_BOOK { Some(Arc::clone(&self.folders_book)) } else { of_volume };
            if let Some(book) = book {
                self.durable(book, version).await?;
            }
        }
        Ok(())
    }

    /// `server.records_in_groups`. A write goes on when nobody waits for it any more.
    async fn durable(self: &Arc<Self>, book: Arc<Book>, version: BookVersion) -> Result<(), BookFailed> {
        let v4 = Arc::clone(self);
        let written = task::spawn_for(async move {
            let _turn = book.writing.lock().await;
            let (newest, record) = {
                let mut state = v4.lock();
                // A volume that has gone has nothing to reclaim here.
                let Some(grace) = state.books.get_mut(&book.id) else { return Ok(()) };
                if grace.is_durable(version) {
                    return Ok(());
                }
                if book.store.is_memory() {
                    let newest = grace.version();
                    v4.settled(&mut state, book.id, newest);
                    return Ok(());
                }
                let Some((newest, names)) = grace.to_write() else { return Ok(()) };
                let record = BookRecord::new(book.of, book.scope, names.clone());
                // Until it is known to be there.
                state.stored_books.remove(&book.of);
                (newest, record)
            };
            book.store.write(&record).await?;
            let mut state = v4.lock();
            if state.books.contains_key(&book.id) {
                state.stored_books.insert(book.of, record.book);
                v4.settled(&mut state, book.id, newest);
            }
            Ok(())
        });
        written.await.unwrap_or(Err(BookFailed))
    }

    /// A record is durable up to `newest`. If that ends its grace, other doors wait no longer.
    fn settled(&self, state: &mut V4State, book: BookId, newest: BookVersion) {
        let Some(grace) = state.books.get_mut(&book) else { return };
        grace.settled(newest);
        if !grace.is_on() {
            let volumes = self.volumes.read();
            let of_book = volumes.values().filter(|volume| volume.book.id == book);
            of_book.for_each(|volume| state.exported.end_reclaims(volume.number));
        }
    }

    /// Looks for clients that are gone, until `shutdown` (`server.sweeps_while_used`).
    pub async fn look_after_clients(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            let (next, waiting) = {
                let mut state = self.lock();
                let now = self.now();
                state.sweep(now);
                self.delegations_changed(&state);
                // Whoever waits at another door for a silent client's lock has it now (`clients.courtesy_keeps`).
                let has_silent = state.clients.has_silent(now, &state.states);
                let waiting = if has_silent { state.exported.all_files() } else { Vec::new() };
                let next = match state.books.values().any(Grace::is_on) {
                    true => Some(SWEEP_EVERY),
                    false => state.clients.next_change(now, &state.states).map(|next| next.max(SWEEP_EVERY)),
                };
                (next, waiting)
            };
            waiting.iter().for_each(Files::wake_lock_waiters);
            self.close_links();
            // What could not be written is tried again at the next look.
            let _ = self.settle().await;
            tokio::select! {
                () = self.used.notified(), if next.is_none() => {}
                () = tokio::time::sleep(next.unwrap_or_default()), if next.is_some() => {}
                () = shutdown.cancelled() => return self.offloads.close(),
            }
        }
    }
}

impl V4State {
    fn sweep(&mut self, now: Moment) {
        self.books.values_mut().for_each(|grace| grace.tick(now));
        for (client, owner) in self.clients.sweep(now, &self.states) {
            self.states.end_client(client);
            self.forget(&owner.key());
        }
        for client in self.states.clients_with_delegations() {
            self.refresh_status(client);
        }
    }

    /// The client may reclaim nothing any more, once that is durable ([`NfsV4::settle`]).
    pub fn forget(&mut self, owner: &OwnerKey) {
        self.books.values_mut().for_each(|grace| grace.forget(owner));
    }

    /// The client reclaims nothing any more. Grace that ends so ends once that is durable.
    pub fn completed(&mut self, owner: &OwnerKey, now: Moment) {
        self.books.values_mut().for_each(|grace| grace.completed(owner, now));
    }

    /// A client is removed with all that it has.
    pub fn end_client(&mut self, client: ClientId) {
        self.states.end_client(client);
        if let Some(owner) = self.clients.remove(client) {
            self.forget(&owner.key());
        }
    }

    /// A client is confirmed: what it holds counts against its network.
    pub fn admit(&mut self, client: ClientId) {
        if let Some(network) = self.clients.network(client) {
            self.states.admit(client, network);
        }
    }

    /// An older record of a client that has begun anew.
    pub fn replaced(&mut self, older: Option<ClientId>) {
        if let Some(older) = older {
            self.states.end_client(older);
        }
    }

    /// Tells SEQUENCE of a client what it has to say about its delegations.
    pub fn refresh_status(&mut self, client: ClientId) {
        let is_cut_off = self.states.has_delegations(client) && self.clients.back_channel(client).is_none();
        let flags = if self.states.has_revoked(client) { RECALLABLE_STATE_REVOKED } else { 0 };
        self.clients.set_status(client, flags | if is_cut_off { CB_PATH_DOWN } else { 0 });
    }

    /// Ends the clients, except `by`, that hold something of a file and have been silent for a lease
    /// (`clients.courtesy_keeps`). Whether there were any: nobody is answered before [`NfsV4::settle`].
    pub fn end_silent(&mut self, file: FileKey, by: Option<ClientId>, now: Moment) -> bool {
        let holders: HashSet<ClientId> = self.states.holders(file).into_iter().collect();
        let is_silent = |client: &ClientId| Some(*client) != by && self.clients.is_courteous(*client, now);
        let silent: Vec<ClientId> = holders.into_iter().filter(is_silent).collect();
        let had_any = !silent.is_empty();
        silent.into_iter().for_each(|client| self.end_client(client));
        had_any
    }

    /// A client that is gone, or one of many, makes room for a newcomer's record (`clients.room_by_network`). Whether there
    /// was one: nobody is answered before [`NfsV4::settle`].
    pub fn give_way(&mut self, address: IpAddr, now: Moment) -> bool {
        let client = self.clients.gives_way(address, now);
        client.inspect(|client| self.end_client(*client)).is_some()
    }

    /// Clients that were silent for a lease make room where `client` may have no more states or owners: the longest silent
    /// of the network that holds most. Whether there were any: nobody is answered before [`NfsV4::settle`].
    pub fn make_room(&mut self, client: ClientId, now: Moment) -> bool {
        let mut had_any = false;
        while !self.states.has_room(client) {
            let rank = |other: ClientId| {
                let silent_since = self.clients.silent_since(other, now)?;
                Some((self.states.makes_room(other, client)?, Reverse(silent_since), other))
            };
            let Some((.., silent)) = self.states.clients_with_states().filter_map(rank).max() else { break };
            self.end_client(silent);
            had_any = true;
        }
        had_any
    }

    /// Whether a client is in the durable record of a volume: it opens nothing before.
    pub fn is_recorded(&mut self, client: ClientId, book: BookId) -> bool {
        let Some(owner) = self.clients.owner_key(client) else { return false };
        self.books.get_mut(&book).is_some_and(|grace| {
            let version = grace.takes(owner);
            grace.is_durable(version)
        })
    }

    /// Whether a client may open or lock something now: anew, or as it had it before the restart.
    pub fn may_take(&self, client: ClientId, book: BookId, reclaim: bool) -> Result<(), NfsStat> {
        let owner = self.clients.owner_key(client).ok_or(NfsStat::StaleClientId)?;
        let grace = self.books.get(&book).ok_or(NfsStat::Delay)?;
        if reclaim {
            return match grace.may_reclaim(&owner) {
                // It has said that it is done, for all volumes.
                Err(NfsStat::ReclaimBad) if self.clients.has_said_complete(client) => Err(NfsStat::NoGrace),
                verdict => verdict,
            };
        }
        // RFC 8881 18.51.3
        if !self.clients.has_completed(client) {
            return Err(NfsStat::Grace);
        }
        grace.may_take()
    }

    /// Whether clients still take back what they had in a volume.
    pub fn is_in_grace(&self, book: BookId) -> bool {
        self.books.get(&book).is_none_or(Grace::is_on)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
