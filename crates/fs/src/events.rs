//! Caches outside the volume. Each is invalidated before the change that made it stale is
//! acknowledged.
//!
//! A kernel that mounts the volume trusts its own cache. When a client of another protocol has its
//! answer, it may look through the mount at once, so the stale entry must be gone by then.
//!
//! - `witness.counted_as_sent`: events are counted as they are sent, under the lock that also
//!   registers a witness, so a witness starts with an exact count.
//! - `witness.bounded_wait`: a change waits for a cache no longer than its caller says. A cache
//!   that missed its deadline is skipped until it has caught up with that change, so a mount that
//!   hangs slows no change down. No caller waits for its own cache.
//! - `witness.no_locks_held`: a caller that waits holds no lock of the volume, because the witness
//!   may need answers of the volume to proceed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_base::boxed;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::Event;

/// The channel of events, and the caches that changes wait for.
pub struct Events {
    sender: broadcast::Sender<Event>,
    /// How many were sent.
    sent: Mutex<u64>,
    watched: Mutex<Vec<Watched>>,
}

#[derive(Clone)]
struct Watched {
    origin: u32,
    seen: watch::Receiver<u64>,
    /// The count of events that this cache failed to reach in time (`witness.bounded_wait`).
    given_up: Arc<AtomicU64>,
}

/// Reports how far a cache is with the events. Dropped, the cache is no longer waited for.
pub struct Witness {
    seen: u64,
    tell: watch::Sender<u64>,
}

impl Witness {
    /// The cache has dropped everything that the next `events` events made stale.
    pub fn saw(&mut self, events: u64) {
        self.seen += events;
        self.tell.send_replace(self.seen);
    }
}

impl Events {
    /// A receiver that falls `max` events behind is told that it lost some.
    pub fn new(max: usize) -> Self {
        Self { sender: broadcast::channel(max).0, sent: Mutex::default(), watched: Mutex::default() }
    }

    /// Events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }

    /// Sends the event if anybody listens.
    pub fn send(&self, event: impl FnOnce() -> Event) {
        if self.sender.receiver_count() > 0 {
            let mut sent = self.sent.lock();
            *sent += 1;
            // Without a receiver nothing is lost.
            let _ = self.sender.send(event());
        }
    }

    /// Whether anybody listens.
    pub fn has_receivers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// A cache that changes wait for, of the handle `origin`.
    pub fn witness(&self, origin: u32) -> (broadcast::Receiver<Event>, Witness) {
        let sent = self.sent.lock();
        let (events, witness, seen) = self.follow_from(*sent);
        self.watched.lock().push(Watched { origin, seen, given_up: Arc::default() });
        (events, witness)
    }

    /// Events from now on for a reader that no change waits for, and how many of all events it has seen
    /// ([`Events::sent`]).
    pub fn follow(&self) -> (broadcast::Receiver<Event>, Witness, watch::Receiver<u64>) {
        let sent = self.sent.lock();
        self.follow_from(*sent)
    }

    fn follow_from(&self, sent: u64) -> (broadcast::Receiver<Event>, Witness, watch::Receiver<u64>) {
        let (tell, seen) = watch::channel(sent);
        (self.sender.subscribe(), Witness { seen: sent, tell }, seen)
    }

    /// How many events were sent to anybody.
    pub fn sent(&self) -> u64 {
        *self.sent.lock()
    }

    /// Waits for the caches of all handles but `by`, for each no longer than `timeout`.
    pub async fn await_witnesses(&self, by: u32, timeout: Duration) {
        let others: Vec<Watched> = {
            let mut watched = self.watched.lock();
            watched.retain(|one| one.seen.has_changed().is_ok());
            watched.iter().filter(|one| one.origin != by).cloned().collect()
        };
        if !others.is_empty() {
            self.await_each(others, timeout).await;
        }
    }

    #[boxed]
    async fn await_each(&self, others: Vec<Watched>, timeout: Duration) {
        let sent = *self.sent.lock();
        for mut one in others {
            if *one.seen.borrow() < one.given_up.load(Ordering::Relaxed) {
                continue;
            }
            let seen = one.seen.wait_for(|seen| *seen >= sent);
            if tokio::time::timeout(timeout, seen).await.is_err() {
                one.given_up.fetch_max(sent, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ino;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn event() -> Event {
        Event::Attr { origin: 0, ino: Ino::ROOT }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_its_witnesses_and_not_for_ever() {
        let events = Arc::new(Events::new(16));
        events.send(event);
        events.await_witnesses(2, TIMEOUT).await;
        let (mut heard, mut witness) = events.witness(1);
        events.await_witnesses(2, TIMEOUT).await;
        events.send(event);
        let waits = tokio::spawn({
            let events = Arc::clone(&events);
            async move { events.await_witnesses(2, TIMEOUT).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        // A handle does not wait for its own cache.
        events.await_witnesses(1, TIMEOUT).await;
        heard.recv().await.unwrap_or_else(|error| panic!("{error}"));
        witness.saw(1);
        assert!(waits.await.is_ok());
        // One that hangs is waited for once.
        events.send(event);
        let begun = tokio::time::Instant::now();
        events.await_witnesses(2, TIMEOUT).await;
        let waited = begun.elapsed();
        assert!(waited >= TIMEOUT);
        events.send(event);
        events.await_witnesses(2, TIMEOUT).await;
        assert_eq!(begun.elapsed(), waited);
        // It has caught up, and is waited for again; gone, it is not.
        witness.saw(2);
        events.send(event);
        events.await_witnesses(2, TIMEOUT).await;
        assert!(begun.elapsed() >= waited + TIMEOUT);
        drop(witness);
        events.send(event);
        let begun = tokio::time::Instant::now();
        events.await_witnesses(2, TIMEOUT).await;
        assert!(begun.elapsed().is_zero());
    }
}
