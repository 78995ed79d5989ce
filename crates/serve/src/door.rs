//! Logins and refusals: counted per address, and written to the log.
//!
//! - `door.bounded_log`: the log names every login and every refusal with its address. An address
//!   may write [`LINES_AT_ONCE`] lines and then one every [`LINE_EVERY`]; the next line says how
//!   many were left out. So no address can fill the log.
//! - `door.strangers_are_timed`: a stranger is a connection without a login and without a call that
//!   an export admits. It ends after [`STRANGER_TIME`]. One address has at most [`STRANGERS_MAX`]
//!   of them.
//! - `door.tables_bounded`: all tables are bounded. The entry that was used longest ago is dropped
//!   first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const LINES_AT_ONCE: u32 = 10;
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Lines of all addresses together are ten times as many.
const ALL_FACTOR: u32 = 10;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1024;
/// Connections of one address that have shown nothing yet.
pub const STRANGERS_MAX: usize = 256;
/// How long such a connection may stay.
pub const STRANGER_TIME: Duration = Duration::from_secs(30);
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
    /// Of logins, which are many, and of refusals apart: neither leaves the other out.
    logins: Bucket,
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
        let bucket = || Bucket::new(now, LINES_AT_ONCE);
        let new = || AddressRecord { logins: bucket(), lines: bucket(), refusals: 0, seen: now };
        let record = self.addresses.entry(address).or_insert_with(new);
        if now.duration_since(record.seen) >= FORGET_AFTER {
            record.refusals = 0;
        }
        record.seen = now;
        record
    }

    /// The number of lines left out before this line about `address`; `None` if this line is left
    /// out as well (`door.bounded_log`).
    fn line(&mut self, address: IpAddr, is_login: bool, now: Instant) -> Option<u64> {
        let record = self.record(address, now);
        let bucket = if is_login { &mut record.logins } else { &mut record.lines };
        let left_out = bucket.take(now, LINES_AT_ONCE, LINE_EVERY)?;
        let size = LINES_AT_ONCE * ALL_FACTOR;
        let all = if is_login { &mut self.all_logins } else { &mut self.all };
        let all = all.get_or_insert_with(|| Bucket::new(now, size));
        all.take(now, size, LINE_EVERY / ALL_FACTOR).map(|others| left_out + others)
    }
}

/// The log of one server's door: logins, refusals, strangers.
#[derive(Default)]
pub struct Door {
    state: Mutex<State>,
}

impl Door {
    pub fn came_in(&self, address: IpAddr, text: impl FnOnce() -> String) {
        if let Some(left_out) = self.state.lock().line(address.to_canonical(), true, Instant::now()) {
            tracing::info!("{}{}", text(), more(left_out));
        }
    }

    /// Returns how long the answer should wait: it doubles with each refusal of an address that goes on.
    pub fn refused(&self, address: IpAddr, text: impl FnOnce() -> String) -> Duration {
        let (address, now) = (address.to_canonical(), Instant::now());
        let (line, refusals) = {
            let mut state = self.state.lock();
            let record = state.record(address, now);
            record.refusals = record.refusals.saturating_add(1);
            let refusals = record.refusals;
            (state.line(address, false, now), refusals)
        };
        if let Some(left_out) = line {
            tracing::warn!("{}{}", text(), more(left_out));
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

/// A name that a client sent, as it may be logged.
pub fn shown(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// The number of strangers of each address (`door.strangers_are_timed`).
#[derive(Default)]
pub struct Strangers(Mutex<HashMap<IpAddr, usize>>);

/// One of them, until it is dropped.
pub struct Stranger {
    all: Arc<Strangers>,
    address: IpAddr,
}

impl Strangers {
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let address = address.to_canonical();
        let mut all = self.0.lock();
        let count = all.entry(address).or_default();
        if *count >= STRANGERS_MAX {
            return None;
        }
        *count += 1;
        Some(Stranger { all: Arc::clone(self), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_address_fills_the_log_and_none_silences_another() {
        let (mut state, begin) = (State::default(), Instant::now());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let lines = (0..1000).filter(|_| state.line(a, false, begin).is_some()).count();
        assert_eq!(lines, LINES_AT_ONCE as usize);
        assert_eq!(state.line(b, false, begin), Some(0));
        assert_eq!(state.line(a, true, begin), Some(0), "its logins are counted apart");
        let later = begin + LINE_EVERY;
        assert_eq!(state.line(a, false, later), Some(990), "the next line says how many were left out");
        assert_eq!(state.line(a, false, later), None);
    }

    #[test]
    fn many_addresses_together_are_bounded_too() {
        let (mut state, begin) = (State::default(), Instant::now());
        let addresses = (0..100_000u32).map(|n| IpAddr::V4(n.into()));
        let lines = addresses.filter(|address| state.line(*address, false, begin).is_some()).count();
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

    #[test]
    fn strangers_of_one_address_are_bounded() {
        let strangers = Arc::new(Strangers::default());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut held: Vec<_> = (0..STRANGERS_MAX).map(|_| strangers.admit(a).unwrap()).collect();
        assert!(strangers.admit("::ffff:10.0.0.1".parse().unwrap()).is_none() && strangers.admit(b).is_some());
        held.pop();
        assert!(strangers.admit(a).is_some());
    }
}
