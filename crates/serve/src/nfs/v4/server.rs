//! The state that clients of version 4 have at this server, in one place under one lock.
//!
//! - `server.lock_waits_for_nobody`: the lock is held for looks into memory alone, and for the durable record of a
//!   client that opens something first. No file, client or call-back is waited for under it.
//! - `server.sweeps_while_used`: the records of clients that are gone are looked for while there are clients: when the first
//!   of them may be over, and once a lease. Without any the sweeper sleeps.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use larder_files::Files;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::back_channel::BackChannel;
use super::client_book::{ClientBook, ServerName};
use super::clients::Clients;
use super::clock::{Chance, Moment};
use super::door_table::DoorTable;
use super::file_table::FileKey;
use super::grace::Grace;
use super::slots::ConnectionId;
use super::state::StateTable;
use super::types::{ClientId, NfsStat};

/// A client that says nothing for so long may lose what it holds to others. Linux renews after two thirds of it.
pub const LEASE: Duration = Duration::from_secs(60);
/// The time after a restart in which clients take back what they had. Each has asked within a lease.
const GRACE: Duration = LEASE;
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The system's source of random numbers.
pub struct OsChance;

impl Chance for OsChance {
    fn next(&mut self) -> u64 {
        rand::random()
    }
}

pub struct V4State {
    pub clients: Clients,
    pub states: StateTable<DoorTable>,
    pub grace: Grace,
    pub book: ClientBook,
    pub chance: OsChance,
}

pub struct NfsV4 {
    state: Mutex<V4State>,
    server: ServerName,
    began: Instant,
    connections: AtomicU64,
    /// Ways back to clients, over the connections that stand.
    back_channels: Mutex<HashMap<ConnectionId, Arc<BackChannel>>>,
    /// There are clients to look after.
    used: Notify,
    /// Delegations that are held or recalled, for a look without the lock.
    delegations: AtomicUsize,
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
        self.v4.lock().clients.disconnected(self.id);
        self.v4.back_channels.lock().remove(&self.id);
        self.back.close();
    }
}

impl NfsV4 {
    /// `book` is the file of the durable record.
    pub fn new(book: Option<&Path>) -> Self {
        let mut book = ClientBook::open(book, rand::random());
        let began = Instant::now();
        let grace = match Grace::begin(&mut book, Moment::default(), GRACE) {
            Ok(grace) => grace,
            // It was said why. What follows lives in memory.
            Err(_) => {
                book = ClientBook::open(None, book.server());
                Grace::begin(&mut book, Moment::default(), GRACE).unwrap_or_else(|_| Grace::over())
            }
        };
        // A number of this life alone; the lowest bit keeps it from being zero.
        let life = rand::random::<u32>() | 1;
        let server = book.server();
        let state = V4State {
            clients: Clients::new(life, LEASE),
            states: StateTable::new(life, DoorTable::default()),
            grace,
            book,
            chance: OsChance,
        };
        Self {
            state: Mutex::new(state),
            server,
            began,
            connections: AtomicU64::new(1),
            back_channels: Mutex::default(),
            used: Notify::new(),
            delegations: AtomicUsize::new(0),
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

    /// The name by which clients know the server over its restarts.
    pub fn server(&self) -> &ServerName {
        &self.server
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

    /// The volumes that are exported (`doortable.exports_only`).
    pub fn set_trees<'f>(self: &Arc<Self>, exported: impl Iterator<Item = &'f Files>) {
        let mut state = self.lock();
        let v4 = Arc::downgrade(self);
        for volume in state.states.table().set_trees(exported, &v4) {
            state.states.end_volume(volume);
            state.states.table().forget(volume);
        }
        self.delegations_changed(&state);
    }

    /// Looks for clients that are gone, until `shutdown` (`server.sweeps_while_used`).
    pub async fn look_after_clients(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            let next = {
                let mut state = self.lock();
                let now = self.now();
                state.sweep(now);
                self.delegations_changed(&state);
                match state.grace.is_on() {
                    true => Some(SWEEP_EVERY),
                    false => state.clients.next_over(now, &state.states).map(|next| next.max(SWEEP_EVERY)),
                }
            };
            tokio::select! {
                () = self.used.notified(), if next.is_none() => {}
                () = tokio::time::sleep(next.unwrap_or_default()), if next.is_some() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }
}

impl V4State {
    fn sweep(&mut self, now: Moment) {
        let _ = self.grace.tick(&mut self.book, now);
        for (client, owner) in self.clients.sweep(now, &self.states) {
            self.states.end_client(client);
            let _ = self.grace.forget(&mut self.book, &owner);
        }
    }

    /// A client is removed with all that it has.
    pub fn end_client(&mut self, client: ClientId) {
        self.states.end_client(client);
        if let Some(owner) = self.clients.remove(client) {
            let _ = self.grace.forget(&mut self.book, &owner);
        }
    }

    /// An older record of a client that has begun anew.
    pub fn replaced(&mut self, older: Option<ClientId>) {
        if let Some(older) = older {
            self.states.end_client(older);
        }
    }

    /// Ends the clients, except `by`, that hold something of a file and have been silent for a lease
    /// (`clients.courtesy_keeps`). Whether there were any.
    pub fn end_silent(&mut self, file: FileKey, by: Option<ClientId>, now: Moment) -> bool {
        let holders: HashSet<ClientId> = self.states.holders(file).into_iter().collect();
        let is_silent = |client: &ClientId| Some(*client) != by && self.clients.is_courteous(*client, now);
        let silent: Vec<ClientId> = holders.into_iter().filter(is_silent).collect();
        let had_any = !silent.is_empty();
        silent.into_iter().for_each(|client| self.end_client(client));
        had_any
    }

    /// Before a client is answered that it has something (`grace.recorded_before_answered`).
    pub fn takes(&mut self, client: ClientId) -> Result<(), NfsStat> {
        let owner = self.clients.owner(client).ok_or(NfsStat::StaleClientId)?.clone();
        self.grace.takes(&mut self.book, &owner).map_err(|_| NfsStat::Delay)
    }

    /// Whether a client may open or lock something now: anew, or as it had it before the restart.
    pub fn may_take(&self, client: ClientId, reclaim: bool) -> Result<(), NfsStat> {
        let owner = self.clients.owner(client).ok_or(NfsStat::StaleClientId)?;
        if reclaim {
            return if self.clients.has_said_complete(client) {
                Err(NfsStat::NoGrace)
            } else {
                self.grace.may_reclaim(owner)
            };
        }
        // RFC 8881 18.51.3
        if !self.clients.has_completed(client) {
            return Err(NfsStat::Grace);
        }
        self.grace.may_take()
    }
}
