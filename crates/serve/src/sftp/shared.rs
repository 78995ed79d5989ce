//! The state that all connections of a server share: users, shares, limits, counters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use larder_base::Timestamp;
use larder_base::metrics::{Counter, Metrics};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::handles::Handles;
use super::list::People;
use super::login::{Guard, SftpUser, Users};
use super::packet::Request;
use super::share::{SftpConfig, SftpShare};
use super::tree::ShareState;
use crate::counted::{Counted, Names};
use crate::door::{Door, Strangers};

/// What the requests of all connections may hold; each connection has its part of it.
const TOTAL_BYTES_MAX: usize = 256 << 20;
const CONNECTION_BYTES_MAX: usize = 8 << 20;
const CONNECTION_BYTES_MIN: usize = 512 << 10;

/// Kinds of requests, as they are counted.
#[derive(Clone, Copy)]
pub enum Op {
    Open,
    GetAttributes,
    SetAttributes,
    List,
    Read,
    Write,
    Sync,
    Rename,
    Link,
    Remove,
    Other,
}

impl Op {
    pub fn of(request: &Request) -> Op {
        match request {
            Request::Open { .. } | Request::OpenDir { .. } | Request::MkDir { .. } => Op::Open,
            Request::Stat { .. } | Request::FStat { .. } | Request::ReadLink { .. } => Op::GetAttributes,
            Request::SetStat { .. } | Request::FSetStat { .. } => Op::SetAttributes,
            Request::ReadDir { .. } => Op::List,
            Request::Read { .. } => Op::Read,
            Request::Write { .. } | Request::CopyData { .. } => Op::Write,
            Request::FSync { .. } => Op::Sync,
            Request::Rename { .. } => Op::Rename,
            Request::Symlink { .. } | Request::HardLink { .. } => Op::Link,
            Request::Remove { .. } | Request::RmDir { .. } => Op::Remove,
            _ => Op::Other,
        }
    }
}

pub struct Stats {
    operations: Counted<{ Op::Other as usize + 1 }>,
    pub connections_open: AtomicUsize,
    pub connections_accepted: Counter,
    /// Closed at once because there were too many.
    pub connections_refused: Counter,
    /// Ended for what they sent, for being slow, or because nobody logged in.
    pub connections_dropped: Counter,
    pub logins: Counter,
    /// Wrong names, passwords and keys.
    pub logins_refused: Counter,
    /// Passwords that were not looked at, of addresses that had guessed.
    pub logins_locked_out: Counter,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            operations: Counted::new(Names {
                operations: [
                    "open",
                    "get-attributes",
                    "set-attributes",
                    "list",
                    "read",
                    "write",
                    "sync",
                    "rename",
                    "link",
                    "remove",
                    "other",
                ],
                seconds: "larder_serve_sftp_operation_seconds",
                read_bytes: "larder_serve_sftp_read_bytes_total",
                written_bytes: "larder_serve_sftp_written_bytes_total",
            }),
            connections_open: AtomicUsize::new(0),
            connections_accepted: Counter::new(),
            connections_refused: Counter::new(),
            connections_dropped: Counter::new(),
            logins: Counter::new(),
            logins_refused: Counter::new(),
            logins_locked_out: Counter::new(),
        }
    }
}

impl Stats {
    pub fn took(&self, op: Op, since: Instant) {
        self.operations.add(op as usize, since);
    }

    pub fn read(&self, bytes: usize) {
        self.operations.read_bytes.add(bytes as u64);
    }

    pub fn written(&self, bytes: usize) {
        self.operations.written_bytes.add(bytes as u64);
    }

    pub fn metrics(&self, out: &mut Metrics) {
        self.operations.metrics(out);
        let counters = [
            ("larder_serve_sftp_accepted_connections_total", "Connections accepted.", &self.connections_accepted),
            ("larder_serve_sftp_refused_connections_total", "Connections beyond a limit.", &self.connections_refused),
            (
                "larder_serve_sftp_dropped_connections_total",
                "Connections ended by the server.",
                &self.connections_dropped,
            ),
            ("larder_serve_sftp_logins_total", "Logins.", &self.logins),
            ("larder_serve_sftp_refused_logins_total", "Wrong names, passwords and keys.", &self.logins_refused),
            (
                "larder_serve_sftp_locked_out_logins_total",
                "Passwords refused unseen, of addresses that had guessed.",
                &self.logins_locked_out,
            ),
        ];
        for (name, help, counter) in counters {
            out.counter(name, help, &[], counter.get());
        }
        let open = self.connections_open.load(Relaxed) as u64;
        out.gauge("larder_serve_sftp_connections", "Connections that are open.", &[], open);
    }
}

pub struct Shared {
    pub config: SftpConfig,
    pub stats: Stats,
    pub door: Door,
    pub strangers: Arc<Strangers>,
    pub guard: Guard,
    /// The time of the directory of shares.
    pub started: Timestamp,
    users: RwLock<Arc<Users>>,
    people: RwLock<Arc<People>>,
    shares: RwLock<Arc<Vec<Arc<ShareState>>>>,
    /// Of every session.
    handles: Mutex<Vec<Weak<Handles>>>,
    /// What cuts the connections of each user.
    connections: Mutex<HashMap<u64, (Arc<SftpUser>, CancellationToken)>>,
    next_connection: AtomicU64,
}

/// A connection that has logged in, until it is dropped.
pub struct LoggedIn {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for LoggedIn {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.id);
    }
}

impl Shared {
    pub fn new(config: SftpConfig) -> Self {
        Self {
            config,
            stats: Stats::default(),
            door: Door::default(),
            strangers: Arc::default(),
            guard: Guard::default(),
            started: Timestamp::from(SystemTime::now()),
            users: RwLock::default(),
            people: RwLock::default(),
            shares: RwLock::default(),
            handles: Mutex::default(),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
        }
    }

    pub fn user(&self, name: &str) -> Option<Arc<SftpUser>> {
        self.users.read().get(name).cloned()
    }

    pub fn people(&self) -> Arc<People> {
        Arc::clone(&self.people.read())
    }

    pub fn shares(&self) -> Arc<Vec<Arc<ShareState>>> {
        Arc::clone(&self.shares.read())
    }

    /// The connections of a user who is gone or changed are cut.
    pub fn set_users(&self, users: Vec<SftpUser>) {
        let people = People::new(users.iter());
        let users: Users = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        let users = Arc::new(users);
        *self.people.write() = Arc::new(people);
        *self.users.write() = Arc::clone(&users);
        for (user, cut) in self.connections.lock().values() {
            if users.get(&user.name) != Some(user) {
                cut.cancel();
            }
        }
    }

    /// Files of a share that is gone or changed are closed.
    pub fn set_shares(&self, new: Vec<SftpShare>) {
        let mut shares = self.shares.write();
        let old = Arc::clone(&shares);
        let state = |share: SftpShare| match old.iter().find(|state| state.share.same_as(&share)) {
            Some(state) => Arc::clone(state),
            None => Arc::new(ShareState { files: share.files.clone(), ordered: share.files.ordered(), share }),
        };
        *shares = Arc::new(new.into_iter().map(state).collect());
        let gone: Vec<Arc<ShareState>> =
            old.iter().filter(|state| !shares.iter().any(|kept| Arc::ptr_eq(kept, state))).cloned().collect();
        drop(shares);
        if !gone.is_empty() {
            let all: Vec<Arc<Handles>> = self.handles.lock().iter().filter_map(Weak::upgrade).collect();
            all.iter().for_each(|handles| handles.close_of(&gone));
        }
    }

    /// Files are closed with their shares (`handles.end_with_their_share`).
    pub fn remember(&self, handles: &Arc<Handles>) {
        let mut all = self.handles.lock();
        all.retain(|handles| handles.strong_count() > 0);
        all.push(Arc::downgrade(handles));
    }

    /// `None`: the user was changed since the password was looked at.
    pub fn log_in(self: &Arc<Self>, user: &Arc<SftpUser>, cut: &CancellationToken) -> Option<LoggedIn> {
        let id = self.next_connection.fetch_add(1, Relaxed);
        self.connections.lock().insert(id, (Arc::clone(user), cut.clone()));
        let logged_in = LoggedIn { shared: Arc::clone(self), id };
        // Registered first: a change from now on cuts it.
        (self.user(&user.name).as_ref() == Some(user)).then_some(logged_in)
    }

    /// What the requests of one connection may hold now, in bytes.
    pub fn bytes_for_connection(&self) -> usize {
        let connections = self.stats.connections_open.load(Relaxed).max(1);
        (TOTAL_BYTES_MAX / connections).clamp(CONNECTION_BYTES_MIN, CONNECTION_BYTES_MAX)
    }

    /// A refusal in the log. Returns how long the answer should wait.
    pub fn refused(&self, address: IpAddr, text: impl FnOnce() -> String) -> std::time::Duration {
        self.stats.logins_refused.add(1);
        self.door.refused(address, text)
    }
}
