//! Turns at costly work: fair by network, bounded, off the threads that serve.
//!
//! - `turns.one_a_network`: a network has one turn at a time; others of it wait in the order in which
//!   they came. Networks take turns with each other, so a flood from one delays no other by more
//!   than the turns under way.
//! - `turns.newcomers_first`: a network that has failed of late waits for those that have not. Each
//!   [`NEWCOMERS_IN_A_ROW`] turns of newcomers one of the others comes, so that none starves.
//! - `turns.bounded_queue`: a network has a bounded number of them waiting, and at most
//!   [`NETWORKS_MAX`] networks wait. More are refused at once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use larder_base::network::network;

/// As many as the parallel requests of one machine; programs ask again after a refusal.
pub const WAITING_OF_NETWORK_MAX: usize = 64;
const NETWORKS_MAX: usize = 4096;
const NEWCOMERS_IN_A_ROW: u32 = 3;

/// There are too many waiting.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Default)]
struct Queue {
    running: HashSet<IpAddr>,
    waiting: HashMap<IpAddr, VecDeque<oneshot::Sender<Turn>>>,
    /// Networks that wait and have no turn, in the order of their turns.
    newcomers: VecDeque<IpAddr>,
    others: VecDeque<IpAddr>,
    newcomers_in_a_row: u32,
    /// Networks that have failed of late, of those that wait or have a turn.
    failed: HashSet<IpAddr>,
}

impl Queue {
    fn line_up(&mut self, network: IpAddr) {
        match self.failed.contains(&network) {
            true => self.others.push_back(network),
            false => self.newcomers.push_back(network),
        }
    }

    /// `turns.newcomers_first`.
    fn next_network(&mut self) -> Option<IpAddr> {
        if self.newcomers_in_a_row >= NEWCOMERS_IN_A_ROW
            && let Some(other) = self.others.pop_front()
        {
            self.newcomers_in_a_row = 0;
            return Some(other);
        }
        if let Some(newcomer) = self.newcomers.pop_front() {
            self.newcomers_in_a_row += 1;
            return Some(newcomer);
        }
        self.newcomers_in_a_row = 0;
        self.others.pop_front()
    }

    /// The next one that still waits, if a turn is free.
    fn next(&mut self, at_once: usize) -> Option<(IpAddr, oneshot::Sender<Turn>)> {
        while self.running.len() < at_once {
            let network = self.next_network()?;
            let Some(line) = self.waiting.get_mut(&network) else { continue };
            let first = std::iter::from_fn(|| line.pop_front()).find(|sender| !sender.is_closed());
            if line.is_empty() {
                self.waiting.remove(&network);
            }
            match first {
                Some(sender) => {
                    self.running.insert(network);
                    return Some((network, sender));
                }
                None => _ = self.failed.remove(&network),
            }
        }
        None
    }

    fn end(&mut self, network: IpAddr) {
        self.running.remove(&network);
        match self.waiting.contains_key(&network) {
            true => self.line_up(network),
            false => _ = self.failed.remove(&network),
        }
    }
}

/// Who may do costly work now.
pub struct Turns {
    at_once: usize,
    waiting_max: usize,
    queue: Mutex<Queue>,
}

/// Permission to do it, until it is dropped.
pub struct Turn {
    turns: Arc<Turns>,
    network: IpAddr,
    is_over: bool,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Turn({})", self.network)
    }
}

impl Turns {
    /// `waiting_max`: of one network.
    pub fn new(at_once: usize, waiting_max: usize) -> Self {
        Self { at_once, waiting_max, queue: Mutex::default() }
    }

    /// Waits for a turn of `address`. `has_failed`: its last tries were wrong.
    pub async fn take(self: &Arc<Self>, address: IpAddr, has_failed: bool) -> Result<Turn, Full> {
        let network = network(address);
        let waits = {
            let mut queue = self.queue.lock();
            let is_running = queue.running.contains(&network);
            let line = queue.waiting.get(&network).map_or(0, VecDeque::len);
            if line >= self.waiting_max || (line == 0 && queue.waiting.len() >= NETWORKS_MAX) {
                return Err(Full);
            }
            if has_failed {
                queue.failed.insert(network);
            }
            if !is_running && line == 0 && queue.running.len() < self.at_once {
                queue.running.insert(network);
                return Ok(Turn { turns: Arc::clone(self), network, is_over: false });
            }
            let (sender, waits) = oneshot::channel();
            queue.waiting.entry(network).or_default().push_back(sender);
            if !is_running && line == 0 {
                queue.line_up(network);
            }
            waits
        };
        waits.await.map_err(|_| Full)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut ended = self.network;
        loop {
            let next = {
                let mut queue = self.turns.queue.lock();
                queue.end(ended);
                queue.next(self.turns.at_once)
            };
            let Some((network, sender)) = next else { return };
            let turn = Turn { turns: Arc::clone(&self.turns), network, is_over: false };
            let Err(mut unwanted) = sender.send(turn) else { return };
            // It is passed on here: its own end does nothing, instead of calling this one again.
            unwanted.is_over = true;
            ended = network;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test]
    async fn a_flood_delays_others_by_the_turns_under_way() {
        let turns = Arc::new(Turns::new(2, WAITING_OF_NETWORK_MAX));
        let first = turns.take(ip(1), true).await.unwrap();
        let mut flood: Vec<_> = (0..WAITING_OF_NETWORK_MAX).map(|_| Box::pin(turns.take(ip(1), true))).collect();
        assert!(flood.iter_mut().all(|one| one.now_or_never().is_none()), "one at a time");
        assert_eq!(turns.take(ip(1), false).await.unwrap_err(), Full);
        let second = turns.take(ip(2), false).await.unwrap();
        let (mut other, mut newcomer) = (Box::pin(turns.take(ip(3), true)), Box::pin(turns.take(ip(4), false)));
        assert!(other.as_mut().now_or_never().is_none() && newcomer.as_mut().now_or_never().is_none());
        drop(first);
        let third = newcomer.await.unwrap();
        assert!(other.as_mut().now_or_never().is_none());
        drop(second);
        let fourth = other.await.unwrap();
        assert!(flood[0].as_mut().now_or_never().is_none(), "its network has had its turn");
        drop(third);
        let fifth = flood.remove(0).await.unwrap();
        // Nobody waits for some of them any more.
        flood.truncate(3);
        drop(flood.remove(0));
        drop((fourth, fifth));
        let sixth = flood.remove(0).await.unwrap();
        drop((sixth, flood));
        let queue = turns.queue.lock();
        assert!(queue.running.is_empty() && queue.waiting.is_empty() && queue.failed.is_empty());
    }

    #[tokio::test]
    async fn a_turn_that_nobody_takes_is_passed_on() {
        let turns = Arc::new(Turns::new(1, WAITING_OF_NETWORK_MAX));
        let first = turns.take(ip(1), false).await.unwrap();
        let mut lost = Box::pin(turns.take(ip(2), false));
        let mut waits = Box::pin(turns.take(ip(3), false));
        assert!(lost.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
        drop(first);
        // It was given the turn, and goes before it looks.
        drop(lost);
        assert!(waits.now_or_never().is_some_and(|turn| turn.is_ok()));
    }
}
