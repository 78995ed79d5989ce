//! Who knocks: connections without a session are counted per address, and
//! logons and refusals are reported to whoever embeds the server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use larder_base::network::network;

/// What happened at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission<'a> {
    /// A session was established; no user for a guest.
    LoggedOn { user: Option<&'a str> },
    /// Wrong name or password. The name is what the client sent.
    LogonFailed { user: &'a str },
    /// Refused unseen, because this name or address has failed too often.
    LockedOut { user: &'a str },
    /// The share is not for this user; none for a guest.
    ShareRefused { user: Option<&'a str>, share: &'a str },
    /// The address has too many connections that have not logged on, or the
    /// user or guests there too many that have.
    TooManyConnections,
}

/// Is told of every [`Admission`], with the client's address. Must not block.
pub type AdmissionObserver = Arc<dyn Fn(IpAddr, Admission<'_>) + Send + Sync>;

/// Failed logons of an address that are answered at once: typing errors.
const FAILURES_FREE: u32 = 3;
const DELAY_FIRST: Duration = Duration::from_millis(250);
const DELAY_MAX: Duration = Duration::from_secs(4);

/// How long the answer to a failed logon waits when `failures` have come
/// from its address: it doubles with each, so that guessing is slow however
/// many connections it uses.
pub fn delay(failures: u32) -> Duration {
    match failures.checked_sub(FAILURES_FREE) {
        None | Some(0) => Duration::ZERO,
        Some(beyond) => DELAY_FIRST.saturating_mul(1 << (beyond - 1).min(8)).min(DELAY_MAX),
    }
}

/// Keeps account of the connections without a session, and of what they
/// hold in memory.
pub trait StrangerLedger: Send + Sync {
    /// Admits a connection from `address`; others may have to end for it.
    /// `is_full` says that the server has all the connections it may have.
    /// `None` refuses it.
    fn admit(&self, address: IpAddr, is_full: bool) -> Option<Arc<dyn StrangerAccount>>;
}

/// A connection, until it is dropped: it begins without a session.
pub trait StrangerAccount: Send + Sync {
    /// The connection holds so many bytes now. `false`: it has to end.
    fn holds(&self, bytes: usize) -> bool;

    /// The connection has its first session, of `user` or of a guest; from
    /// now on it is no stranger. `false`: it has to end.
    fn logs_on(&self, user: Option<&str>) -> bool;

    /// Waits for room for so many bytes of a request or an answer of a client that has logged on, which is given back
    /// when the result is dropped. Returns at once when the connection has to end.
    fn room(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Room> + Send>>;

    /// Returns when the connection has to end for the sake of others.
    fn evicted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Room for bytes, until it is dropped.
pub type Room = Box<dyn Send + Sync>;

/// The ledger of a server that was given none: it counts by network.
#[derive(Debug)]
pub(crate) struct Counted {
    most: usize,
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Counted {
    /// At most `most` connections of one network.
    pub fn new(most: usize) -> Self {
        Self { most, all: Arc::default() }
    }
}

struct One {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    network: IpAddr,
    is_counted: AtomicBool,
}

impl One {
    fn leave(&self) {
        if !self.is_counted.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut all = self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(count) = all.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.network);
            }
        }
    }
}

impl StrangerLedger for Counted {
    fn admit(&self, address: IpAddr, is_full: bool) -> Option<Arc<dyn StrangerAccount>> {
        let network = network(address);
        let mut all = self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = all.entry(network).or_default();
        if is_full || *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Arc::new(One { all: Arc::clone(&self.all), network, is_counted: AtomicBool::new(true) }))
    }
}

impl StrangerAccount for One {
    fn holds(&self, _bytes: usize) -> bool {
        true
    }

    fn logs_on(&self, _user: Option<&str>) -> bool {
        self.leave();
        true
    }

    fn room(&self, _bytes: usize) -> Pin<Box<dyn Future<Output = Room> + Send>> {
        Box::pin(std::future::ready(Box::new(()) as Room))
    }

    fn evicted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_counted_per_address() {
        let strangers = Counted::new(2);
        let admit = |text: &str| strangers.admit(text.parse().unwrap(), false);
        let held: Vec<_> = (0..2).map(|_| admit("10.0.0.1").unwrap()).collect();
        assert!(admit("10.0.0.1").is_none() && admit("::ffff:10.0.0.1").is_none());
        assert!(admit("10.0.0.2").is_some());
        drop(held);
        assert!(admit("10.0.0.1").is_some());
        let held: Vec<_> = (1..3).map(|n| admit(&format!("2001:db8::{n}")).unwrap()).collect();
        assert!(admit("2001:db8::3").is_none() && admit("2001:db8:0:1::3").is_some());
        drop(held);
    }

    #[test]
    fn the_delay_doubles_up_to_a_bound() {
        let ms: Vec<u128> = [0, 3, 4, 5, 6, 7, 8, 9, 1000].iter().map(|n| delay(*n).as_millis()).collect();
        assert_eq!(ms, [0, 0, 250, 500, 1000, 2000, 4000, 4000, 4000]);
    }
}
