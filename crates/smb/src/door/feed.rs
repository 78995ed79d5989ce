//! What others do to a volume whose folders are shared: leases of clients break, and the entries of opens move.
//!
//! Every change of the volume arrives here as an event. One feed serves all shares of the volume, which have one table of
//! opens.
//!
//! - `feed.own_events_skipped`: events of the volume's own shares break no leases, since the table
//!   has broken them already. They move entries ([`super::tracker`]) as all others do.
//! - `feed.only_while_in_use`: the feed listens only while the shares have opens. No
//!   change is missed: a lease lives no longer than an open, and an open takes its [`FeedHold`]
//!   before it looks at the volume. An unused share costs the other protocols nothing.
//! - `feed.settled_before_use`: an entry is used when all changes that were answered before are seen ([`Feed::settle`]).

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use larder_base::task;
use larder_files::Files;
use larder_fs::{Event, Ino, Witness};
use parking_lot::{Mutex, RwLock};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use super::tracker::EntryTracker;

/// How long the feed goes on after the last open closed, so that a client that opens and closes one file
/// after another does not start it each time.
const LINGER: Duration = Duration::from_secs(5);

/// What others have changed.
#[derive(Clone, Copy, Debug)]
pub enum OutsideChange {
    /// The data or the entries of a file or directory.
    Of(Ino),
    /// Size, times or attributes of a file, by somebody who does not know its directories.
    OfAnEntry,
    /// Of any file: changes were lost.
    OfAnything,
}

pub struct Feed {
    pub(super) files: Files,
    /// Breaks the leases that a change makes stale.
    heard: Box<dyn Fn(OutsideChange) + Send + Sync>,
    /// Of the volume's shares.
    origins: RwLock<HashSet<u32>>,
    pub tracker: Arc<EntryTracker>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holds: usize,
    released: Option<Instant>,
    /// How many events have been seen, while they are taken.
    seen: Option<watch::Receiver<u64>>,
}

/// Keeps the feed listening.
pub struct FeedHold(Arc<Feed>);

impl Drop for FeedHold {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.holds -= 1;
        if state.holds == 0 {
            state.released = Some(Instant::now());
        }
    }
}

impl Feed {
    pub fn new(files: Files, heard: Box<dyn Fn(OutsideChange) + Send + Sync>) -> Arc<Self> {
        let (origins, tracker, state) = (RwLock::default(), Arc::default(), Mutex::default());
        Arc::new(Self { files, heard, origins, tracker, state })
    }

    /// A share comes.
    pub fn add_origin(&self, origin: u32) {
        self.origins.write().insert(origin);
    }

    /// A share is gone.
    pub fn forget_origin(&self, origin: u32) {
        self.origins.write().remove(&origin);
    }

    pub fn hold(self: &Arc<Self>) -> FeedHold {
        let mut state = self.state.lock();
        state.holds += 1;
        if state.seen.is_none() {
            let (events, witness, seen) = self.files.follow();
            state.seen = Some(seen);
            task::spawn(Self::run(Arc::downgrade(self), events, witness));
        }
        FeedHold(Arc::clone(self))
    }

    /// Until all changes that were answered before are seen (`feed.settled_before_use`).
    pub async fn settle(&self) {
        let Some(mut seen) = self.state.lock().seen.clone() else { return };
        let sent = self.files.events_sent();
        // It fails when the volume is closed, and nothing follows.
        let _ = seen.wait_for(|seen| *seen >= sent).await;
    }

    async fn run(feed: Weak<Self>, mut events: Receiver<Event>, mut witness: Witness) {
        loop {
            let event = events.recv().await;
            let Some(feed) = feed.upgrade() else { return };
            if feed.stop_if_idle() {
                return;
            }
            let seen = match event {
                Ok(event) => {
                    feed.tracker.saw(&event);
                    if !feed.origins.read().contains(&event.origin()) {
                        feed.break_leases(event);
                    }
                    1
                }
                Err(RecvError::Lagged(lost)) => {
                    feed.tracker.lost();
                    (feed.heard)(OutsideChange::OfAnything);
                    lost
                }
                Err(RecvError::Closed) => return feed.state.lock().seen = None,
            };
            witness.saw(seen);
        }
    }

    fn stop_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.holds == 0 && state.released.is_none_or(|at| at.elapsed() > LINGER);
        if idle {
            state.seen = None;
        }
        idle
    }

    fn break_leases(&self, event: Event) {
        let changed = |ino: Ino| (self.heard)(OutsideChange::Of(ino));
        match event {
            Event::Attr { ino, .. } | Event::Data { ino, .. } | Event::Modified { ino, .. } => {
                changed(ino);
                (self.heard)(OutsideChange::OfAnEntry);
            }
            Event::Added { dir, .. } => changed(dir),
            Event::Removed { dir, ino, .. } => {
                changed(dir);
                changed(ino);
            }
            Event::Renamed { from, to, .. } => {
                changed(from);
                if from != to {
                    changed(to);
                }
            }
            Event::Lost { .. } => (self.heard)(OutsideChange::OfAnything),
        }
    }
}
