//! The guard of a share: it notices a client that ruins files, as ransomware does, and may take its right to write.
//!
//! Doors say whom a call is for ([`larder_fs::Client`]). The guard counts what each client does to files that were there
//! before ([`record`]), and tells once about a client. Nothing is judged by a file's name, and nothing by one file.
//!
//! - `guard.table_bounded`: [`CLIENTS_MAX`] clients, each with a fixed amount of memory. The client that was quiet for longest is
//!   forgotten first; one that was told about is not.
//! - `guard.one_client`: a client is a login at an address. Who is blocked is refused each change at every door of the share,
//!   also through files that are open. Others are not.
//! - `guard.told_once`: a client that was told about is not judged until somebody answers.

mod record;
pub(crate) mod sample;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use larder_base::{Clock, Timestamp};
use larder_fs::Cred;
use parking_lot::Mutex;

pub use record::Harm;
use record::Record;

/// Clients of one share.
const CLIENTS_MAX: usize = 512;
/// A client that somebody vouched for is not judged for so long: what it does may take a while.
const TRUSTED_SECS: u64 = 24 * 3600;

/// What a guard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GuardMode {
    /// Nothing.
    Off,
    /// It tells.
    Alert,
    /// It tells, and the client may not write any more.
    Block,
}

/// A client, as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suspect {
    /// The login, or `uid 1000` where the door knows numbers alone.
    pub user: String,
    /// `None`: this machine.
    pub address: Option<IpAddr>,
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} at {address}", self.user),
            None => write!(f, "{} on this machine", self.user),
        }
    }
}

/// A client that a guard tells about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The client.
    pub suspect: Suspect,
    /// What it seems to do.
    pub harm: Harm,
    /// When it began.
    pub since: Timestamp,
    /// It may not write any more.
    pub blocked: bool,
}

/// The guard of one share, for all its doors.
pub struct Guard {
    mode: AtomicU8,
    clients: Mutex<HashMap<u64, Watched>>,
    /// How many are blocked: while it is none, nobody is looked for.
    blocked: AtomicUsize,
    keys: RandomState,
    clock: Arc<dyn Clock>,
    tell: Box<dyn Fn(Alarm) + Send + Sync>,
}

struct Watched {
    suspect: Suspect,
    record: Record,
    seen_secs: u64,
    /// The first sign that has not faded.
    began: Timestamp,
    told: bool,
    blocked: bool,
    trusted_until_secs: u64,
}

impl Guard {
    /// `tell` must not wait: a client's call waits for it.
    pub fn new(clock: Arc<dyn Clock>, tell: impl Fn(Alarm) + Send + Sync + 'static) -> Arc<Guard> {
        Arc::new(Guard {
            mode: AtomicU8::new(GuardMode::Alert as u8),
            clients: Mutex::default(),
            blocked: AtomicUsize::new(0),
            keys: RandomState::new(),
            clock,
            tell: Box::new(tell),
        })
    }

    /// From now on. Without a guard nobody is blocked.
    pub fn set_mode(&self, mode: GuardMode) {
        self.mode.store(mode as u8, Relaxed);
    }

    /// A client that was told about in an earlier life.
    pub fn restore(&self, suspect: Suspect, blocked: bool) {
        self.with_suspect(suspect, |watched, _| (watched.told, watched.blocked) = (true, blocked));
    }

    /// Somebody vouches for the client: it may write, and is not judged for a day.
    pub fn release(&self, suspect: Suspect) {
        self.with_suspect(suspect, |watched, now_secs| {
            (watched.told, watched.blocked) = (false, false);
            watched.record = Record::default();
            watched.trusted_until_secs = now_secs + TRUSTED_SECS;
        });
    }

    fn with_suspect(&self, suspect: Suspect, change: impl FnOnce(&mut Watched, u64)) {
        let (key, now_secs) = (self.key(&suspect), self.now_secs());
        let mut clients = self.clients.lock();
        if let Some(watched) = entry(&mut clients, key, now_secs, || suspect) {
            change(watched, now_secs);
        }
        self.blocked.store(clients.values().filter(|watched| watched.blocked).count(), Relaxed);
    }

    pub(crate) fn is(&self, mode: GuardMode) -> bool {
        self.mode.load(Relaxed) == mode as u8
    }

    fn now_secs(&self) -> u64 {
        self.clock.elapsed().as_secs()
    }

    fn key(&self, suspect: &impl Hash) -> u64 {
        self.keys.hash_one(suspect)
    }

    pub(crate) fn is_blocked(&self, cred: &Cred) -> bool {
        if self.blocked.load(Relaxed) == 0 || self.is(GuardMode::Off) {
            return false;
        }
        let key = self.key(&suspect_of(cred));
        self.clients.lock().get(&key).is_some_and(|watched| watched.blocked)
    }

    /// Counts something, and tells if that was enough.
    pub(crate) fn count<T>(&self, cred: &Cred, change: impl FnOnce(&mut Record) -> T) -> Option<T> {
        if self.is(GuardMode::Off) {
            return None;
        }
        let (suspect, now_secs) = (suspect_of(cred), self.now_secs());
        let key = self.key(&suspect);
        let mut clients = self.clients.lock();
        let watched = entry(&mut clients, key, now_secs, || suspect)?;
        watched.seen_secs = now_secs;
        if watched.told || now_secs < watched.trusted_until_secs {
            return None;
        }
        watched.record.fade(now_secs);
        let was_calm = watched.record.is_calm();
        let answer = change(&mut watched.record);
        if was_calm && !watched.record.is_calm() {
            watched.began = self.clock.now();
        }
        let Some(harm) = watched.record.harm() else { return Some(answer) };
        watched.told = true;
        watched.blocked = self.is(GuardMode::Block);
        let (suspect, blocked) = (watched.suspect.clone(), watched.blocked);
        watched.record = Record::default();
        self.blocked.fetch_add(usize::from(blocked), Relaxed);
        // A client that shows a sign now and then has done so for hours.
        let now = self.clock.now();
        let since = watched.began.max(Timestamp::new(now.secs - record::MEMORY_SECS, now.nanos));
        drop(clients);
        (self.tell)(Alarm { suspect, harm, since, blocked });
        Some(answer)
    }

    pub(crate) fn may_read(&self, cred: &Cred) -> bool {
        self.count(cred, Record::may_read).unwrap_or(false)
    }
}

/// The entry of a client, which may push another one out (`guard.table_bounded`). `None`: all are told about.
fn entry(
    clients: &mut HashMap<u64, Watched>,
    key: u64,
    now_secs: u64,
    suspect: impl FnOnce() -> Suspect,
) -> Option<&mut Watched> {
    if !clients.contains_key(&key) && clients.len() >= CLIENTS_MAX {
        let may_go = clients.iter().filter(|(_, watched)| !watched.told);
        let (oldest, _) = may_go.min_by_key(|(_, watched)| watched.seen_secs)?;
        let oldest = *oldest;
        clients.remove(&oldest);
    }
    Some(clients.entry(key).or_insert_with(|| Watched {
        suspect: suspect(),
        record: Record::default(),
        seen_secs: now_secs,
        began: Timestamp::default(),
        told: false,
        blocked: false,
        trusted_until_secs: 0,
    }))
}

fn suspect_of(cred: &Cred) -> Suspect {
    let user = cred.client.user.as_ref().map_or_else(|| format!("uid {}", cred.uid), |user| user.to_string());
    Suspect { user, address: cred.client.address }
}

#[cfg(test)]
mod tests;
