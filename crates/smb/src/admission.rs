//! Who knocks: connections without a session are counted per address, and
//! logons and refusals are reported to whoever embeds the server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happened at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission<'a> {
    /// A session was established; no user for a guest.
    LoggedOn { user: Option<&'a str> },
    /// Wrong name or password. The name is what the client sent.
    LogonFailed { user: &'a str },
    /// Refused unseen, because this name or address has failed too often.
    LockedOut { user: &'a str },
    /// The share is not for this user; none for a guest.
    ShareRefused { user: Option<&'a str>, share: &'a str },
    /// The address has too many connections that have not logged on.
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

/// The connections of each address that have no session yet.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<HashMap<IpAddr, usize>>);

/// One of them; no longer when dropped.
#[derive(Debug)]
pub struct Stranger {
    all: Arc<Strangers>,
    address: IpAddr,
}

impl Strangers {
    /// `None` if the address has `max` of them already.
    pub fn admit(self: &Arc<Self>, address: IpAddr, max: usize) -> Option<Stranger> {
        let address = address.to_canonical();
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = all.entry(address).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Stranger { all: Arc::clone(self), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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
    use super::*;

    #[test]
    fn strangers_are_counted_per_address() {
        let strangers = Arc::new(Strangers::default());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let held: Vec<_> = (0..2).map(|_| strangers.admit(a, 2).unwrap()).collect();
        assert!(strangers.admit(a, 2).is_none());
        assert!(strangers.admit("::ffff:10.0.0.1".parse().unwrap(), 2).is_none());
        assert!(strangers.admit(b, 2).is_some());
        drop(held);
        assert!(strangers.admit(a, 2).is_some());
    }

    #[test]
    fn the_delay_doubles_up_to_a_bound() {
        let ms: Vec<u128> = [0, 3, 4, 5, 6, 7, 8, 9, 1000].iter().map(|n| delay(*n).as_millis()).collect();
        assert_eq!(ms, [0, 0, 250, 500, 1000, 2000, 4000, 4000, 4000]);
    }
}
