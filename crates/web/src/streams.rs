//! Streams of events that are open, counted.
//!
//! - `streams.bounded`: a session has at most [`OF_SESSION_MAX`] streams, a user [`OF_USER_MAX`], and there are at most
//!   [`STREAMS_MAX`]. More are refused; a browser asks again later.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Browsers have six connections for a host, and pages need the others.
const OF_SESSION_MAX: usize = 4;
const OF_USER_MAX: usize = 16;
/// More than that are watchers of a flood.
const STREAMS_MAX: usize = 64;

#[derive(Clone, PartialEq, Eq)]
struct Watcher {
    user: String,
    session: String,
}

#[derive(Default)]
pub struct Streams {
    open: Mutex<Vec<Watcher>>,
    /// Whether the server stops.
    is_over: watch::Sender<bool>,
}

/// Permission for one stream, until it is dropped.
pub struct Permit {
    streams: Arc<Streams>,
    watcher: Watcher,
}

impl Streams {
    /// `streams.bounded`
    pub fn admit(self: &Arc<Self>, user: &str, session: String) -> Option<Permit> {
        let watcher = Watcher { user: user.to_owned(), session };
        let mut all = self.open.lock();
        let of_user = all.iter().filter(|one| one.user == user).count();
        let of_session = all.iter().filter(|one| **one == watcher).count();
        if all.len() >= STREAMS_MAX || of_user >= OF_USER_MAX || of_session >= OF_SESSION_MAX {
            return None;
        }
        all.push(watcher.clone());
        Some(Permit { streams: Arc::clone(self), watcher })
    }

    /// Ends all: a server that stops waits for its answers, and a stream has no end of its own.
    pub fn end(&self) {
        self.is_over.send_replace(true);
    }

    /// Returns once they end.
    pub async fn over(&self) {
        // It fails if the sender is gone, which is `self`.
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut all = self.streams.open.lock();
        if let Some(at) = all.iter().position(|one| *one == self.watcher) {
            all.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_bounded_by_session_user_and_in_all() {
        let streams = Arc::new(Streams::default());
        let mut held = Vec::new();
        let mut take = |user: &str, session: usize| {
            let permit = streams.admit(user, session.to_string());
            let is_admitted = permit.is_some();
            held.extend(permit);
            is_admitted
        };
        assert_eq!((0..10).filter(|_| take("ann", 1)).count(), OF_SESSION_MAX);
        assert_eq!((0..100).filter(|n| take("ann", 2 + n)).count(), OF_USER_MAX - OF_SESSION_MAX);
        assert_eq!((0..1000).filter(|n| take(&n.to_string(), 0)).count(), STREAMS_MAX - OF_USER_MAX);
        held.clear();
        assert!(streams.admit("ann", "1".to_owned()).is_some() && streams.open.lock().is_empty());
    }
}
