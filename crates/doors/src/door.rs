//! Logins and refusals: counted by network, and written to the log. IPv6 counts by /64
//! (`strangers.by_network`).
//!
//! - `door.bounded_log`: the log names every login and every refusal with its address. An address
//!   may write [`LINES_AT_ONCE`] lines and then one every [`LINE_EVERY`]; the next line says how
//!   many were left out. So no address can fill the log. Of logins that holds for each user at an
//!   address.
//! - `door.no_login_hides`: whoever has not logged in from an address for a while is named, however
//!   often others do.
//! - `door.tables_bounded`: all tables are bounded. The entry that was used longest ago is dropped
//!   first.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};

use crate::strangers::network;

const LINES_AT_ONCE: u32 = 10;
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Lines of all addresses together are ten times as many.
const ALL_FACTOR: u32 = 10;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1024;
/// Users that are remembered of an address.
const USERS_MAX: usize = 16;
/// Connections that the kernel keeps until they are accepted. A client beyond them tries again after
/// a second, so a burst has to fit; the kernel's own limit (`somaxconn`) is 4096.
const BACKLOG: u32 = 1024;
/// Letters of a name that a client sends.
const NAME_CHARS_MAX: usize = 64;
/// Refusals of an address are forgotten when it was quiet for so long.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Refusals that are answered at once.
const REFUSALS_FREE: u32 = 3;
const DELAY_FIRST: Duration = Duration::from_millis(250);
const DELAY_MAX: Duration = Duration::from_secs(4);

/// Lets through so many at once and then one by one.
struct Bucket {
    left: u32,
    since: Instant,
    /// Not let through since the last that was.
    left_out: u64,
}

impl Bucket {
    fn new(now: Instant, size: u32) -> Self {
        Self { left: size, since: now, left_out: 0 }
    }

    /// How many were left out before this one, if this one passes.
    fn take(&mut self, now: Instant, size: u32, every: Duration) -> Option<u64> {
        let gained = now.duration_since(self.since).as_nanos() / every.as_nanos();
        let gained = u32::try_from(gained).unwrap_or(u32::MAX);
        if gained > 0 {
            self.left = self.left.saturating_add(gained).min(size);
            self.since = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

struct AddressRecord {
    /// Of logins, which are many, and of refusals apart: neither leaves the other out. The user who
    /// came last is the last one.
    logins: Vec<(String, Bucket)>,
    lines: Bucket,
    refusals: u32,
    seen: Instant,
}

#[derive(Default)]
struct State {
    addresses: HashMap<IpAddr, AddressRecord>,
    all: Option<Bucket>,
    all_logins: Option<Bucket>,
}

impl State {
    fn record(&mut self, address: IpAddr, now: Instant) -> &mut AddressRecord {
        if !self.addresses.contains_key(&address) && self.addresses.len() >= ADDRESSES_MAX {
            let oldest = self.addresses.iter().min_by_key(|(_, record)| record.seen).map(|(address, _)| *address);
            oldest.map(|oldest| self.addresses.remove(&oldest));
        }
        let lines = || Bucket::new(now, LINES_AT_ONCE);
        let new = || AddressRecord { logins: Vec::new(), lines: lines(), refusals: 0, seen: now };
        let record = self.addresses.entry(address).or_insert_with(new);
        if now.duration_since(record.seen) >= FORGET_AFTER {
            record.refusals = 0;
        }
        record.seen = now;
        record
    }

    /// The number of lines left out before this refusal of `address`; `None` if this line is left
    /// out as well (`door.bounded_log`).
    fn refusal(&mut self, address: IpAddr, now: Instant) -> Option<u64> {
        let left_out = self.record(address, now).lines.take(now, LINES_AT_ONCE, LINE_EVERY)?;
        of_all(&mut self.all, now).map(|others| left_out + others)
    }

    /// As [`State::refusal`], of a login.
    fn login(&mut self, address: IpAddr, user: &str, now: Instant) -> Option<u64> {
        let logins = &mut self.record(address, now).logins;
        let known = logins.iter().position(|(known, _)| known == user).map(|at| logins.remove(at));
        let (user, mut bucket) = known.unwrap_or_else(|| (user.to_owned(), Bucket::new(now, LINES_AT_ONCE)));
        let left_out = bucket.take(now, LINES_AT_ONCE, LINE_EVERY);
        let is_first = bucket.left == LINES_AT_ONCE - 1;
        if logins.len() >= USERS_MAX {
            logins.remove(0);
        }
        logins.push((user, bucket));
        match (left_out?, of_all(&mut self.all_logins, now)) {
            (left_out, Some(others)) => Some(left_out + others),
            // `door.no_login_hides`
            (left_out, None) => is_first.then_some(left_out),
        }
    }
}

fn of_all(all: &mut Option<Bucket>, now: Instant) -> Option<u64> {
    let size = LINES_AT_ONCE * ALL_FACTOR;
    all.get_or_insert_with(|| Bucket::new(now, size)).take(now, size, LINE_EVERY / ALL_FACTOR)
}

/// Somebody came in or was refused: a line of the log (`door.bounded_log`), for others to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Whose it was.
    pub address: IpAddr,
    /// The user who logged in.
    pub user: Option<String>,
    /// Came in, or was refused.
    pub admitted: bool,
    /// The address has guessed too often.
    pub locked_out: bool,
    /// The line of the log.
    pub text: String,
}

type Observer = Box<dyn Fn(Passage) + Send + Sync>;

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Has each passage told to `observer`, which must not wait. There is one of a process: the first.
pub fn observe(observer: impl Fn(Passage) + Send + Sync + 'static) {
    let _ = OBSERVER.set(Box::new(observer));
}

fn tell(passage: impl FnOnce() -> Passage) {
    if let Some(observer) = OBSERVER.get() {
        observer(passage());
    }
}

/// What a refusal says of an address that has guessed too often.
pub const LOCKED_OUT: &str = "locked out for a minute";

/// The log of one server's door: logins, refusals, strangers.
#[derive(Default)]
pub struct Door {
    state: Mutex<State>,
}

impl Door {
    /// `user`: who it was, where the door knows.
    pub fn came_in(&self, address: IpAddr, user: Option<&str>, text: impl FnOnce() -> String) {
        let line = self.state.lock().login(network(address), user.unwrap_or_default(), Instant::now());
        if let Some(left_out) = line {
            let text = format!("{}{}", text(), more(left_out));
            tracing::info!("{text}");
            let user = user.map(str::to_owned);
            tell(|| Passage { address, user, admitted: true, locked_out: false, text });
        }
    }

    /// Returns how long the answer should wait: it doubles with each refusal of an address that goes on.
    pub fn refused(&self, address: IpAddr, text: impl FnOnce() -> String) -> Duration {
        let (network, now) = (network(address), Instant::now());
        let (line, refusals) = {
            let mut state = self.state.lock();
            let record = state.record(network, now);
            record.refusals = record.refusals.saturating_add(1);
            let refusals = record.refusals;
            (state.refusal(network, now), refusals)
        };
        if let Some(left_out) = line {
            let text = text();
            let locked_out = text.ends_with(LOCKED_OUT);
            let text = format!("{text}{}", more(left_out));
            tracing::warn!("{text}");
            tell(|| Passage { address, user: None, admitted: false, locked_out, text });
        }
        match refusals.checked_sub(REFUSALS_FREE) {
            None | Some(0) => Duration::ZERO,
            Some(beyond) => DELAY_FIRST.saturating_mul(1 << (beyond - 1).min(8)).min(DELAY_MAX),
        }
    }
}

fn more(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        1 => " (1 more was not logged)".to_owned(),
        n => format!(" ({n} more were not logged)"),
    }
}

/// Binds `addr`; port 0 takes a free one.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// A name that a client sent, as it may be logged.
pub fn shown(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_address_fills_the_log_and_none_silences_another() {
        let (mut state, begin) = (State::default(), Instant::now());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let lines = (0..1000).filter(|_| state.refusal(a, begin).is_some()).count();
        assert_eq!(lines, LINES_AT_ONCE as usize);
        assert_eq!(state.refusal(b, begin), Some(0));
        assert_eq!(state.login(a, "ann", begin), Some(0), "its logins are counted apart");
        let later = begin + LINE_EVERY;
        assert_eq!(state.refusal(a, later), Some(990), "the next line says how many were left out");
        assert_eq!(state.refusal(a, later), None);
    }

    /// `door.no_login_hides`
    #[test]
    fn logins_of_some_hide_none_of_others() {
        let (mut state, now) = (State::default(), Instant::now());
        let here = "10.0.0.1".parse::<IpAddr>().unwrap();
        let lines = (0..1000).filter(|_| state.login(here, "len", now).is_some()).count();
        assert_eq!(lines, LINES_AT_ONCE as usize);
        assert_eq!(state.login(here, "ann", now), Some(0));
        // From as many addresses as spend what all have together.
        for n in 0..200u32 {
            (0..20).for_each(|_| _ = state.login(IpAddr::V4((0x0b00_0000 + n).into()), "len", now));
        }
        assert!(state.login(here, "own", now).is_some());
        for n in 0..1000 {
            assert!(state.login(here, &format!("user{n}"), now).is_some());
        }
        assert!(state.addresses[&here].logins.len() <= USERS_MAX);
    }

    #[test]
    fn passages_are_told_as_the_log_says_them() {
        static SEEN: Mutex<Vec<Passage>> = Mutex::new(Vec::new());
        let mine = "10.99.0.1".parse::<IpAddr>().unwrap();
        observe(move |passage| {
            if passage.address == mine {
                SEEN.lock().push(passage)
            }
        });
        let door = Door::default();
        door.came_in(mine, Some("ann"), || "SFTP: 'ann' logged in".to_owned());
        let locked = format!("SFTP: 'ann' was refused: {}", crate::login::Unseen::LockedOut.why());
        for _ in 0..100 {
            door.refused(mine, || locked.clone());
        }
        let seen = SEEN.lock();
        assert_eq!(seen.len(), 1 + LINES_AT_ONCE as usize, "bounded as the log is");
        assert_eq!((seen[0].user.as_deref(), seen[0].admitted, seen[0].locked_out), (Some("ann"), true, false));
        assert!(seen[1..].iter().all(|one| one.locked_out && !one.admitted && one.text.contains("guessed too often")));
    }

    #[test]
    fn many_addresses_together_are_bounded_too() {
        let (mut state, begin) = (State::default(), Instant::now());
        let addresses = (0..100_000u32).map(|n| IpAddr::V4(n.into()));
        let lines = addresses.filter(|address| state.refusal(*address, begin).is_some()).count();
        assert_eq!(lines, (LINES_AT_ONCE * ALL_FACTOR) as usize);
        assert_eq!(state.addresses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn refusals_that_go_on_are_answered_later_and_later() {
        let (door, a) = (Door::default(), "10.0.0.1".parse().unwrap());
        let waits: Vec<u128> = (0..9).map(|_| door.refused(a, String::new).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 250, 500, 1000, 2000, 4000, 4000]);
        assert_eq!(door.refused("10.0.0.2".parse().unwrap(), String::new), Duration::ZERO);
    }
}
