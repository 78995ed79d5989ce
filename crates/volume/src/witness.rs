//! Caches outside of the volume that are told of a change before whoever made it is answered.
//!
//! A kernel that has the volume mounted believes its own cache. What another protocol changed must be gone from there
//! when that protocol's client has its answer: it may look by the mount at once.
//!
//! T1. Events are counted as they are sent, under one lock with the beginning of a witness: its count is exact.
//! T2. Nobody waits for a witness longer than they said, and nobody at all for one that was waited for in vain until it has
//!     seen what was waited for then: a mount that hangs is no brake on others. Nobody waits for their own.
//! T3. Who waits holds no lock of the volume: the witness may need answers to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::types::Event;

/// Where events go, and who is waited for.
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
    /// How many were sent.
    sent: Mutex<u64>,
    watched: Mutex<Vec<Watched>>,
}

#[derive(Clone)]
struct Watched {
    origin: u32,
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

    pub(crate) fn witness(&self, origin: u32) -> (broadcast::Receiver<Event>, Witness) {
        let sent = self.sent.lock();
        let (tell, seen) = watch::channel(*sent);
        self.watched.lock().push(Watched { origin, seen, given_up: Arc::default() });
        (self.sender.subscribe(), Witness { seen: *sent, tell })
    }

    pub(crate) async fn told(&self, by: u32, patience: Duration) {
        let others: Vec<Watched> = {
            let mut watched = self.watched.lock();
            watched.retain(|one| one.seen.has_changed().is_ok());
            watched.iter().filter(|one| one.origin != by).cloned().collect()
        };
        if others.is_empty() {
            return;
        }
        let sent = *self.sent.lock();
        for mut one in others {
            if *one.seen.borrow() < one.given_up.load(Ordering::Relaxed) {
                continue;
            }
            let seen = one.seen.wait_for(|seen| *seen >= sent);
            if tokio::time::timeout(patience, seen).await.is_err() {
                one.given_up.fetch_max(sent, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Ino;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn event() -> Event {
        Event::Attr { origin: 0, ino: Ino::ROOT }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_its_witnesses_and_not_for_ever() {
        let events = Arc::new(Events::new(16));
        events.send(event);
        events.told(2, PATIENCE).await;
        let (mut heard, mut witness) = events.witness(1);
        events.told(2, PATIENCE).await;
        events.send(event);
        let waits = tokio::spawn({
            let events = Arc::clone(&events);
            async move { events.told(2, PATIENCE).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        // Whoever keeps a cache does not wait for it.
        events.told(1, PATIENCE).await;
        heard.recv().await.unwrap_or_else(|error| panic!("{error}"));
        witness.saw(1);
        assert!(waits.await.is_ok());
        // One that hangs is waited for once.
        events.send(event);
        let begun = tokio::time::Instant::now();
        events.told(2, PATIENCE).await;
        let waited = begun.elapsed();
        assert!(waited >= PATIENCE);
        events.send(event);
        events.told(2, PATIENCE).await;
        assert_eq!(begun.elapsed(), waited);
        // It has caught up, and is waited for again; gone, it is not.
        witness.saw(2);
        events.send(event);
        events.told(2, PATIENCE).await;
        assert!(begun.elapsed() >= waited + PATIENCE);
        drop(witness);
        events.send(event);
        let begun = tokio::time::Instant::now();
        events.told(2, PATIENCE).await;
        assert!(begun.elapsed().is_zero());
    }
}
