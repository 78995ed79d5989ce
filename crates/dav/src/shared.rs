//! The state that all connections of a server share: users, shares, locks, counters.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::Method;
use larder_base::Timestamp;
use larder_people::User;
use larder_people::token::Tokens;
use parking_lot::RwLock;

use super::auth::Remembered;
use super::config::WebConfig;
use super::guest::Guest;
use super::locks::Locks;
use super::places::Walks;
use larder_doors::door::Door;
use larder_doors::door_stats;
use larder_doors::login::Users;
use larder_doors::parties::Parties;
use larder_doors::share::ServedShare;
use larder_doors::stats::DoorStats;
use larder_doors::strangers::Strangers;
use larder_doors::tree::{self, ShareState, View};
use larder_doors::turns::{Turns, WAITING_OF_NETWORK_MAX};
use larder_doors::unread::{DOOR_BYTES_MAX, Unread};

/// Kinds of requests, as they are counted.
#[derive(Clone, Copy)]
pub enum Op {
    Get,
    Put,
    List,
    SetProperties,
    Make,
    Remove,
    Copy,
    Move,
    Lock,
    Other,
}

impl Op {
    pub fn of(method: &Method) -> Op {
        match method.as_str() {
            "GET" | "HEAD" => Op::Get,
            "PUT" | "PATCH" => Op::Put,
            "PROPFIND" => Op::List,
            "PROPPATCH" => Op::SetProperties,
            "MKCOL" => Op::Make,
            "DELETE" => Op::Remove,
            "COPY" => Op::Copy,
            "MOVE" => Op::Move,
            "LOCK" | "UNLOCK" => Op::Lock,
            _ => Op::Other,
        }
    }
}

/// What it counts, by [`Op`].
pub type Stats = DoorStats<{ Op::Other as usize + 1 }>;

fn stats() -> Stats {
    door_stats!("webdav", ["get", "put", "list", "set-properties", "make", "remove", "copy", "move", "lock", "other"])
}

pub struct Shared {
    pub config: WebConfig,
    pub stats: Stats,
    pub door: Door,
    pub strangers: Arc<Strangers>,
    pub parties: Arc<Parties>,
    /// Of those who have logged in, or came by a link.
    pub memory: Arc<Unread>,
    /// At long bodies of XML.
    pub parsing: Arc<Turns>,
    pub remembered: Remembered,
    pub locks: Locks,
    pub walks: Walks,
    /// The time of the directory of shares.
    pub started: Timestamp,
    users: RwLock<Arc<Users>>,
    tokens: RwLock<Arc<Tokens>>,
    shares: RwLock<Arc<Vec<Arc<ShareState>>>>,
    guest: RwLock<Option<Arc<dyn Guest>>>,
}

impl Shared {
    pub fn new(config: WebConfig) -> Self {
        Self {
            strangers: Arc::new(Strangers::new(Arc::clone(&config.strangers))),
            parties: Arc::new(Parties::new(config.connections_max)),
            memory: Arc::new(Unread::new(DOOR_BYTES_MAX)),
            parsing: Arc::new(Turns::new(super::xml::AT_ONCE, WAITING_OF_NETWORK_MAX)),
            config,
            stats: stats(),
            door: Door::default(),
            remembered: Remembered::new(),
            locks: Locks::default(),
            walks: Walks::default(),
            started: Timestamp::from(SystemTime::now()),
            users: RwLock::default(),
            tokens: RwLock::default(),
            shares: RwLock::default(),
            guest: RwLock::default(),
        }
    }

    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    /// Each request looks its user up: a user who is gone or changed is refused from the next one
    /// on. So ends what one who is gone has locked.
    pub fn set_users(&self, users: Vec<User>) {
        let users: Users = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        let users = Arc::new(users);
        *self.users.write() = Arc::clone(&users);
        self.locks.keep_users(|name| users.contains_key(name));
    }

    /// Returns those that are gone, or others by now.
    pub fn set_shares(&self, new: Vec<ServedShare>) -> Vec<Arc<ShareState>> {
        let mut shares = self.shares.write();
        let (kept, gone) = tree::replace_shares(larder_people::Door::Webdav, &shares, new);
        *shares = Arc::new(kept);
        drop(shares);
        for state in &gone {
            self.locks.forget(state.served.share.name.as_bytes());
        }
        gone
    }

    pub fn guest(&self) -> Option<Arc<dyn Guest>> {
        self.guest.read().clone()
    }

    pub fn set_guest(&self, guest: Option<Arc<dyn Guest>>) {
        *self.guest.write() = guest;
    }

    pub fn has_share(&self, name: &str) -> bool {
        self.shares.read().iter().any(|state| state.served.share.name.eq_ignore_ascii_case(name))
    }

    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens.read())
    }

    /// Each request looks its token up (`token.looked_up_each_time`).
    pub fn set_tokens(&self, tokens: Arc<Tokens>) {
        *self.tokens.write() = tokens;
    }

    pub fn view(&self, user: &Arc<User>, address: IpAddr) -> View {
        View {
            user: Arc::clone(user),
            address,
            door: larder_people::Door::Webdav,
            shares: Arc::clone(&self.shares.read()),
        }
    }
}
