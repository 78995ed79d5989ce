//! The state that all connections of a server share: users, shares, limits, counters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use larder_base::Timestamp;
use larder_people::User;
use larder_people::token::Tokens;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::config::SftpConfig;
use super::handles::Handles;
use super::list::People;
use super::packet::Request;
use crate::certificate::CaKey;
use larder_doors::door::Door;
use larder_doors::door_stats;
use larder_doors::login::Users;
use larder_doors::parties::Parties;
use larder_doors::residents::Residents;
use larder_doors::share::ServedShare;
use larder_doors::stats::DoorStats;
use larder_doors::strangers::Strangers;
use larder_doors::tree::{self, ShareState};
use larder_doors::unread::Unread;

const CONNECTION_BYTES_MAX: usize = 8 << 20;
const CONNECTION_BYTES_MIN: usize = 64 << 10;

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

/// What it counts, by [`Op`].
pub type Stats = DoorStats<{ Op::Other as usize + 1 }>;

fn stats() -> Stats {
    door_stats!(
        "sftp",
        [
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
            "other"
        ]
    )
}

pub struct Shared {
    pub config: SftpConfig,
    pub stats: Stats,
    pub door: Door,
    pub strangers: Arc<Strangers>,
    pub parties: Arc<Parties>,
    pub residents: Arc<Residents>,
    /// What the requests of all connections hold; each connection has its part of it.
    pub unread: Arc<Unread>,
    /// The time of the directory of shares.
    pub started: Timestamp,
    users: RwLock<Arc<Users>>,
    people: RwLock<Arc<People>>,
    shares: RwLock<Arc<Vec<Arc<ShareState>>>>,
    /// Of every session, with its user.
    handles: Mutex<Vec<(Weak<Handles>, Arc<User>)>>,
    /// What cuts the connections of each user.
    connections: Mutex<HashMap<u64, (Admitted, CancellationToken)>>,
    tokens: RwLock<Arc<Tokens>>,
    authorities: RwLock<Arc<Vec<CaKey>>>,
    next_connection: AtomicU64,
}

/// Who was let in, and by which authority's word if not by their own key or password.
#[derive(Clone)]
pub struct Admitted {
    pub user: Arc<User>,
    pub authority: Option<CaKey>,
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
            strangers: Arc::new(Strangers::new(Arc::clone(&config.strangers))),
            parties: Arc::new(Parties::new(config.connections_max)),
            unread: Arc::new(Unread::new(config.unread_bytes_max)),
            config,
            stats: stats(),
            door: Door::default(),
            residents: Arc::default(),
            started: Timestamp::from(SystemTime::now()),
            users: RwLock::default(),
            people: RwLock::default(),
            shares: RwLock::default(),
            handles: Mutex::default(),
            connections: Mutex::default(),
            tokens: RwLock::default(),
            authorities: RwLock::default(),
            next_connection: AtomicU64::new(0),
        }
    }

    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    pub fn people(&self) -> Arc<People> {
        Arc::clone(&self.people.read())
    }

    pub fn shares(&self) -> Arc<Vec<Arc<ShareState>>> {
        Arc::clone(&self.shares.read())
    }

    /// The connections of a user who is gone or changed are cut, and the files that they have open are closed before this
    /// returns.
    pub fn set_users(&self, users: Vec<User>) {
        let people = People::new(users.iter());
        let users: Users = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        let users = Arc::new(users);
        *self.people.write() = Arc::new(people);
        *self.users.write() = users;
        self.cut_strangers();
        for (handles, user) in self.sessions() {
            if !self.is_current(&user) {
                handles.close_all();
            }
        }
    }

    /// The connections of a token that is gone or changed are cut (`token.looked_up_each_time`).
    pub fn set_tokens(&self, tokens: Arc<Tokens>) {
        *self.tokens.write() = tokens;
        self.cut_strangers();
    }

    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens.read())
    }

    /// The connections of an authority that is named no longer are cut.
    pub fn set_authorities(&self, authorities: Vec<CaKey>) {
        *self.authorities.write() = Arc::new(authorities);
        self.cut_strangers();
    }

    pub fn authorities(&self) -> Arc<Vec<CaKey>> {
        Arc::clone(&self.authorities.read())
    }

    /// Whether they would still be let in.
    fn still_admits(&self, admitted: &Admitted) -> bool {
        let user = &admitted.user;
        self.is_current(user)
            && user.token.as_ref().is_none_or(|token| self.tokens().has(token))
            && admitted.authority.as_ref().is_none_or(|authority| self.authorities().contains(authority))
    }

    fn cut_strangers(&self) {
        let connections: Vec<(Admitted, CancellationToken)> = self.connections.lock().values().cloned().collect();
        for (admitted, cut) in connections {
            if !self.still_admits(&admitted) {
                cut.cancel();
            }
        }
    }

    /// Files of a share that is gone or changed are closed.
    pub fn set_shares(&self, new: Vec<ServedShare>) {
        let mut shares = self.shares.write();
        let old = Arc::clone(&shares);
        let (kept, gone) = tree::replace_shares(larder_people::Door::Sftp, &old, new);
        *shares = Arc::new(kept);
        drop(shares);
        if !gone.is_empty() {
            self.sessions().iter().for_each(|(handles, _)| handles.close_of(&gone));
        }
    }

    /// Files are closed with their shares (`handles.end_with_their_share`).
    pub fn remember(&self, handles: &Arc<Handles>, user: &Arc<User>) {
        let mut all = self.handles.lock();
        all.retain(|(handles, _)| handles.strong_count() > 0);
        all.push((Arc::downgrade(handles), Arc::clone(user)));
    }

    fn sessions(&self) -> Vec<(Arc<Handles>, Arc<User>)> {
        let all = self.handles.lock();
        all.iter().filter_map(|(handles, user)| Some((handles.upgrade()?, Arc::clone(user)))).collect()
    }

    /// Whether the user is there, and as it was at its login.
    pub fn is_current(&self, user: &User) -> bool {
        self.user(&user.name).is_some_and(|now| user.is(&now))
    }

    /// `None`: the user was changed since the password was looked at.
    pub fn log_in(self: &Arc<Self>, admitted: &Admitted, cut: &CancellationToken) -> Option<LoggedIn> {
        let id = self.next_connection.fetch_add(1, Relaxed);
        self.connections.lock().insert(id, (admitted.clone(), cut.clone()));
        let logged_in = LoggedIn { shared: Arc::clone(self), id };
        // Registered first: a change from now on cuts it.
        self.still_admits(admitted).then_some(logged_in)
    }

    /// What the requests of one connection may hold now, in bytes.
    pub fn bytes_for_connection(&self) -> usize {
        let connections = self.stats.connections_open.load(Relaxed).max(1);
        (self.unread.answer_bytes_max() / connections).clamp(CONNECTION_BYTES_MIN, CONNECTION_BYTES_MAX)
    }

    /// A refusal in the log. Returns how long the answer should wait.
    pub fn refused(&self, address: IpAddr, text: impl FnOnce() -> String) -> std::time::Duration {
        self.stats.logins_refused.add(1);
        self.door.refused(address, text)
    }
}
