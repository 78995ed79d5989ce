//! Data that clients may cache, and its recall.
//!
//! A holder is a door, or one share of it, whose clients were promised a recall before others act. Today
//! these are SMB oplocks and leases.
//!
//! - `leases.asked_first`: a holder is asked before the access. The access waits until the holder
//!   has given back the caches that the access needs ([`Recall`]), [`PATIENCE`] at most.
//! - `leases.own_door_unasked`: a door is not asked about its own accesses. It orders these itself.
//! - `leases.no_holder_no_lock`: without holders an access takes no lock. Otherwise each holder is
//!   looked at, and memory is allocated only if one of them has something to give back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use larder_base::boxed;
use larder_fs::Ino;
pub use larder_opens::Door;
use parking_lot::RwLock;

/// A client that does not answer loses what it holds after 35 s (MS-SMB2 3.3.2.5, as Windows has it); a little longer.
const PATIENCE: Duration = Duration::from_secs(40);

/// The part of a client's cache that an access recalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// Data that is written and not yet sent: before data or sizes are read.
    Writes,
    /// All that is cached of the data: before it changes.
    Data,
    /// Opens that are kept open for later: before the name goes.
    Handles,
    /// Attributes that are cached by a promise: before others than the size change, and names are added.
    Attributes,
}

/// A door whose clients cache data, opens or names, and can be asked to give them back.
pub trait Holder: Door {
    /// Whether there is something to wait for. Quick: asked before every access.
    fn holds(&self, ino: Ino, what: Recall) -> bool;

    /// Asks it back and waits for it; may end early, never hang for ever.
    fn recall(&self, ino: Ino, what: Recall) -> BoxFuture<'_, ()>;
}

#[derive(Default)]
pub(crate) struct Leases {
    holders: RwLock<Vec<(u32, Weak<dyn Holder>)>>,
    /// As many as `holders`, to be read without its lock.
    count: AtomicUsize,
}

impl Leases {
    pub(crate) fn add(&self, door: u32, holder: Weak<dyn Holder>) {
        let mut holders = self.holders.write();
        holders.retain(|(_, holder)| holder.strong_count() > 0);
        holders.push((door, holder));
        self.count.store(holders.len(), Ordering::Release);
    }

    pub(crate) fn has_holders(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Those who have what an access by `door` needs back.
    fn asked(&self, door: u32, ino: Ino, what: Recall) -> Vec<Arc<dyn Holder>> {
        let holders = self.holders.read();
        let others = holders.iter().filter(|(by, _)| *by != door).filter_map(|(_, holder)| holder.upgrade());
        others.filter(|holder| holder.holds(ino, what)).collect()
    }

    #[boxed]
    pub(crate) async fn recall(&self, door: u32, ino: Ino, what: Recall) {
        if !self.has_holders() {
            return;
        }
        for holder in self.asked(door, ino, what) {
            if tokio::time::timeout(PATIENCE, holder.recall(ino, what)).await.is_err() {
                tracing::warn!(
                    ?ino,
                    ?what,
                    "a client was asked for what it caches and has not given it back: going on without"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use parking_lot::Mutex;

    /// Has what `held` says until it was asked for it.
    #[derive(Default)]
    struct Client {
        held: Mutex<Vec<Ino>>,
        asked: Mutex<Vec<Recall>>,
    }

    impl Door for Client {}

    impl Holder for Client {
        fn holds(&self, ino: Ino, _what: Recall) -> bool {
            self.held.lock().contains(&ino)
        }

        fn recall(&self, ino: Ino, what: Recall) -> BoxFuture<'_, ()> {
            async move {
                tokio::task::yield_now().await;
                self.asked.lock().push(what);
                self.held.lock().retain(|held| *held != ino);
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn others_are_asked_and_waited_for_and_the_door_itself_is_not() {
        let leases = Leases::default();
        let client = Arc::new(Client::default());
        client.held.lock().extend([Ino(5), Ino(6)]);
        let holder: Arc<dyn Holder> = client.clone();
        leases.add(1, Arc::downgrade(&holder));
        assert!(leases.recall(1, Ino(5), Recall::Data).now_or_never().is_some(), "its own door");
        assert!(leases.recall(2, Ino(7), Recall::Data).now_or_never().is_some(), "nothing is held of it");
        leases.recall(2, Ino(5), Recall::Writes).await;
        assert_eq!(*client.asked.lock(), [Recall::Writes]);
        assert!(leases.recall(2, Ino(5), Recall::Writes).now_or_never().is_some(), "given back");
        assert!(client.holds(Ino(6), Recall::Data));
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_answers_is_given_up() {
        struct Silent;
        impl Door for Silent {}
        impl Holder for Silent {
            fn holds(&self, _ino: Ino, _what: Recall) -> bool {
                true
            }
            fn recall(&self, _ino: Ino, _what: Recall) -> BoxFuture<'_, ()> {
                futures::future::pending().boxed()
            }
        }
        let leases = Leases::default();
        let holder: Arc<dyn Holder> = Arc::new(Silent);
        leases.add(1, Arc::downgrade(&holder));
        let begun = tokio::time::Instant::now();
        leases.recall(2, Ino(5), Recall::Data).await;
        assert_eq!(begun.elapsed(), PATIENCE);
    }
}
