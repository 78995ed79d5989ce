//! Copies that go on after their request was answered (RFC 7862 4, 15.2, 15.8, 15.9, 16.1).
//!
//! ```text
//! COPY -> pieces, one after the other -> outcome -> CB_OFFLOAD, again until it is answered -> forgotten
//!           OFFLOAD_STATUS: how far        OFFLOAD_CANCEL, the client's end: forgotten at once
//! ```
//!
//! - `offload.bounded`: a client has [`COPIES_OF_CLIENT_MAX`] of them and all have [`COPIES_MAX`], those among them that are done
//!   and were not told yet. Each keeps one piece in memory. Beyond the bounds a COPY is carried out while its client waits.
//! - `offload.known_until_told`: a copy's stateid is good until its client has answered CB_OFFLOAD (RFC 7862 4.8).
//! - `offload.ends_with_client`: a copy ends with its client, its share and the server, a piece later at most.
//!
//! This is the table of copies; `copy_job` is their work.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::file_key::FileKey;
use super::stateids::StateNumber;
use super::types::{ClientId, NfsStat};

/// Each keeps a piece in memory and a disk busy.
const COPIES_MAX: usize = 64;
const COPIES_OF_CLIENT_MAX: usize = 8;

/// A copy, as its client asks for it.
#[derive(Debug)]
pub struct Offload {
    pub number: StateNumber,
    pub client: ClientId,
    /// Of the handle by which the client asks.
    target: FileKey,
    copied: AtomicU64,
    outcome: Mutex<Option<NfsStat>>,
    /// Its work ends.
    pub stop: CancellationToken,
    /// Nothing is written any more.
    pub stopped: CancellationToken,
}

impl Offload {
    /// Bytes copied up to now, and the outcome of a copy that is over.
    pub fn progress(&self) -> (u64, Option<NfsStat>) {
        let outcome = *self.outcome.lock();
        (self.copied(), outcome)
    }

    pub fn copied(&self) -> u64 {
        self.copied.load(Acquire)
    }

    pub fn set_copied(&self, bytes: u64) {
        self.copied.store(bytes, Release);
    }

    pub fn set_outcome(&self, status: NfsStat) {
        *self.outcome.lock() = Some(status);
    }
}

/// The copies under way, and those whose clients were not told yet.
#[derive(Default)]
pub struct Offloads {
    copies: Mutex<HashMap<StateNumber, Arc<Offload>>>,
    /// The server ends.
    closed: CancellationToken,
}

impl Offloads {
    /// A copy begins. `None`: there are too many (`offload.bounded`).
    pub fn begin(&self, number: StateNumber, client: ClientId, target: FileKey) -> Option<Arc<Offload>> {
        let mut copies = self.copies.lock();
        let of_client = copies.values().filter(|copy| copy.client == client).count();
        if copies.len() >= COPIES_MAX || of_client >= COPIES_OF_CLIENT_MAX || self.closed.is_cancelled() {
            return None;
        }
        let copy = Arc::new(Offload {
            number,
            client,
            target,
            copied: AtomicU64::new(0),
            outcome: Mutex::new(None),
            stop: self.closed.child_token(),
            stopped: CancellationToken::new(),
        });
        copies.insert(number, Arc::clone(&copy));
        Some(copy)
    }

    /// The copy of a client into a file, by its stateid.
    pub fn find(&self, number: StateNumber, client: ClientId, target: FileKey) -> Option<Arc<Offload>> {
        self.copies.lock().get(&number).filter(|copy| (copy.client, copy.target) == (client, target)).cloned()
    }

    /// OFFLOAD_CANCEL: nothing is written any more when it returns, and the stateid is gone.
    pub async fn cancel(&self, copy: &Offload) {
        self.forget(copy);
        copy.stop.cancel();
        copy.stopped.cancelled().await;
    }

    pub fn forget(&self, copy: &Offload) {
        self.copies.lock().remove(&copy.number);
    }

    /// `offload.ends_with_client`
    pub fn close(&self) {
        self.closed.cancel();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: FileKey = FileKey { volume: 1, inode: 5 };

    #[test]
    fn copies_are_bounded_and_their_clients_own() {
        let offloads = Offloads::default();
        let mut numbers = (1..).map(StateNumber);
        let mut begin = |client| offloads.begin(numbers.next()?, ClientId(client), FILE);
        let first = begin(1).unwrap();
        assert_eq!((1..20).filter_map(|_| begin(1)).count(), COPIES_OF_CLIENT_MAX - 1);
        assert_eq!((2..100).filter_map(&mut begin).count(), COPIES_MAX - COPIES_OF_CLIENT_MAX);
        assert!(offloads.find(first.number, ClientId(1), FILE).is_some());
        assert!(offloads.find(first.number, ClientId(2), FILE).is_none(), "another client's");
        assert!(offloads.find(first.number, ClientId(1), FileKey { volume: 1, inode: 6 }).is_none(), "another file's");
        offloads.forget(&first);
        assert!(offloads.find(first.number, ClientId(1), FILE).is_none());
        assert!(begin(1).is_some());
    }

    #[tokio::test]
    async fn who_cancels_waits_for_the_last_write() {
        let offloads = Arc::new(Offloads::default());
        let copy = offloads.begin(StateNumber(1), ClientId(1), FILE).unwrap();
        let (all, cancelled) = (Arc::clone(&offloads), Arc::clone(&copy));
        let cancelling = tokio::spawn(async move { all.cancel(&cancelled).await });
        copy.stop.cancelled().await;
        tokio::task::yield_now().await;
        assert!(!cancelling.is_finished() && offloads.find(StateNumber(1), ClientId(1), FILE).is_none());
        copy.stopped.cancel();
        cancelling.await.unwrap();
        offloads.close();
        assert!(offloads.begin(StateNumber(2), ClientId(1), FILE).is_none(), "the server ends");
    }
}
