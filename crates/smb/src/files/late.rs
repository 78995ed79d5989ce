//! Clients that let a break of a lease or oplock go unanswered.
//!
//! - `lease.late_once`: others wait for such a client once, not once for each of its files. For a while the breaks of its
//!   connection are not waited for, and it is granted nothing that would have to be broken. Where several connections of one
//!   network were late, that goes for all of the network: a client can open as many as it likes.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::admission::network;

/// For how long nobody waits for it again.
pub(crate) const LATE_FOR: Duration = Duration::from_secs(300);
/// Networks that are remembered. Beyond it the one that was late first is forgotten: it costs others one wait.
const NETWORKS_MAX: usize = 1024;

/// Connections of one network that may be late before all of it is.
const CONNECTIONS_MAX: usize = 8;

/// Networks of connections that were late, and when: the last [`CONNECTIONS_MAX`] of each.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<HashMap<IpAddr, VecDeque<Instant>>>);

impl Late {
    fn note(&self, from: IpAddr) {
        let mut networks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        networks.retain(|_, times| times.back().is_some_and(|at| at.elapsed() < LATE_FOR));
        if networks.len() >= NETWORKS_MAX
            && let Some(first) = networks.iter().min_by_key(|(_, times)| times.back()).map(|(network, _)| *network)
        {
            networks.remove(&first);
        }
        let times = networks.entry(from).or_default();
        times.push_back(Instant::now());
        if times.len() > CONNECTIONS_MAX {
            times.pop_front();
        }
    }

    fn has(&self, from: IpAddr) -> bool {
        let networks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = networks.get(&from).filter(|times| times.len() == CONNECTIONS_MAX);
        times.and_then(|times| times.front()).is_some_and(|at| at.elapsed() < LATE_FOR)
    }
}

/// The client at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Punctual {
    late: Arc<Late>,
    from: IpAddr,
    /// This connection was late.
    since: Mutex<Option<Instant>>,
}

impl Punctual {
    pub(crate) fn new(late: &Arc<Late>, address: IpAddr) -> Self {
        Self { late: Arc::clone(late), from: network(address), since: Mutex::default() }
    }

    /// A break that it was sent has timed out.
    pub(crate) fn note_late(&self) {
        let was_late = self.is_late();
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if !was_late {
            self.late.note(self.from);
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|at| at.elapsed() < LATE_FOR) || self.late.has(self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_late_for_a_while_and_then_its_network() {
        let late = Arc::new(Late::default());
        let client = |address: &str| Punctual::new(&late, address.parse().unwrap());
        let first = client("fd00::1");
        first.note_late();
        first.note_late();
        assert!(first.is_late() && !client("fd00::1").is_late(), "the connection alone");
        for _ in 1..CONNECTIONS_MAX {
            assert!(!client("fd00::2").is_late());
            client("fd00::1").note_late();
        }
        assert!(client("fd00::2").is_late() && !client("fd00:0:0:1::1").is_late());
        tokio::time::advance(LATE_FOR).await;
        assert!(!first.is_late() && !client("fd00::2").is_late());
    }

    #[tokio::test(start_paused = true)]
    async fn few_networks_are_remembered() {
        let late = Arc::new(Late::default());
        for n in 0..=NETWORKS_MAX {
            Punctual::new(&late, IpAddr::from([10, (n / 256) as u8, (n % 256) as u8, 1])).note_late();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let networks = late.0.lock().unwrap();
        assert_eq!(networks.len(), NETWORKS_MAX);
        assert!(!networks.contains_key(&network([10, 0, 0, 1].into())), "the first is forgotten");
    }
}
