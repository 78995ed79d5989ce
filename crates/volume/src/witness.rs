//! Caches outside of the volume that are told of a change before whoever made it is answered.
//!
//! A kernel that has the volume mounted believes its own cache. What another protocol changed must be gone from there
//! when that protocol's client has its answer: it may look by the mount at once.
//!
//! T1. Events are counted as they are sent, under one lock with the beginning of a witness: its count is exact.
//! T2. Nobody waits longer than [`WAIT_MAX`] for a witness, and nobody at all for one that was waited for in vain until it has
//!     seen what was waited for then: a mount that hangs is no brake on others.
//! T3. Who waits holds no lock of the volume: the witness may need answers to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::types::Event;
use crate::volume::Volume;

/// A mount that is alive needs microseconds, and on a busy machine as long as its thread waits for a core. One that has not
/// answered after this time hangs.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Where events go, and who is waited for.
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
    /// How many were sent.
    sent: Mutex<u64>,
    watched: Mutex<Vec<Watched>>,
}

#[derive(Clone)]
struct Watched {
    seen: watch::Receiver<u64>,
    /// T2: what it was last waited for in vain.
    given_up: Arc<AtomicU64>,
}

/// Says how far a cache is with the events. It is no longer waited for when this is dropped.
pub struct Witness {
    seen: u64,
    tell: watch::Sender<u64>,
}

impl Witness {
    /// The cache has forgotten what so many further events made stale.
    pub fn saw(&mut self, events: u64) {
        self.seen += events;
        self.tell.send_replace(self.seen);
    }
}

impl Events {
    pub(crate) fn new(max: usize) -> Self {
        Self { sender: broadcast::channel(max).0, sent: Mutex::default(), watched: Mutex::default() }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }

    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        if self.sender.receiver_count() > 0 {
            let mut sent = self.sent.lock();
            *sent += 1;
            // Nobody listens any more: nothing is lost.
            let _ = self.sender.send(event());
        }
    }

    fn witness(&self) -> (broadcast::Receiver<Event>, Witness) {
        let sent = self.sent.lock();
        let (tell, seen) = watch::channel(*sent);
        self.watched.lock().push(Watched { seen, given_up: Arc::default() });
        (self.sender.subscribe(), Witness { seen: *sent, tell })
    }

    async fn told(&self) {
        let watched = {
            let mut watched = self.watched.lock();
            watched.retain(|one| one.seen.has_changed().is_ok());
            if watched.is_empty() {
                return;
            }
            watched.clone()
        };
        let sent = *self.sent.lock();
        for mut one in watched {
            if *one.seen.borrow() < one.given_up.load(Ordering::Relaxed) {
                continue;
            }
            let seen = one.seen.wait_for(|seen| *seen >= sent);
            if tokio::time::timeout(WAIT_MAX, seen).await.is_err() {
                one.given_up.fetch_max(sent, Ordering::Relaxed);
            }
        }
    }
}

impl Volume {
    /// For a cache that has to be right when a change by others is answered ([`Volume::told`]).
    pub fn witness(&self) -> (broadcast::Receiver<Event>, Witness) {
        self.state.events.witness()
    }

    /// Waits, a few seconds at most, until the caches that witness changes know of all that were made before. For servers, between
    /// a change and its answer.
    pub async fn told(&self) {
        self.state.events.told().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Ino;

    fn event() -> Event {
        Event::Attr { origin: 0, ino: Ino::ROOT }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_its_witnesses_and_not_for_ever() {
        let events = Arc::new(Events::new(16));
        events.send(event);
        events.told().await;
        let (mut heard, mut witness) = events.witness();
        events.told().await;
        events.send(event);
        let waits = tokio::spawn({
            let events = Arc::clone(&events);
            async move { events.told().await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        heard.recv().await.unwrap_or_else(|error| panic!("{error}"));
        witness.saw(1);
        assert!(waits.await.is_ok());
        // One that hangs is waited for once.
        events.send(event);
        let begun = tokio::time::Instant::now();
        events.told().await;
        let waited = begun.elapsed();
        assert!(waited >= WAIT_MAX);
        events.send(event);
        events.told().await;
        assert_eq!(begun.elapsed(), waited);
        // It has caught up, and is waited for again; gone, it is not.
        witness.saw(2);
        events.send(event);
        events.told().await;
        assert!(begun.elapsed() >= waited + WAIT_MAX);
        drop(witness);
        events.send(event);
        let begun = tokio::time::Instant::now();
        events.told().await;
        assert!(begun.elapsed().is_zero());
    }
}
