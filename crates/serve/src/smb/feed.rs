//! Breaks the leases of a share's clients when others change what they cache.
//!
//! What NFS, the mount or another SMB share over the same volume does arrives here as events of the volume.
//!
//! - `feed.own_events_skipped`: events with the share's own origin are left out, since the library
//!   has broken the leases already. Events of another share of the volume break no leases of files: the
//!   shares have one table of them. They do break leases of directories, since the other share
//!   knows directories by other paths.
//! - `feed.only_while_in_use`: the feed listens only while the share has opens. No
//!   change is missed: a lease lives no longer than an open, and an open takes its [`FeedHold`]
//!   before it is answered. An unused share costs the other protocols nothing.
//! - `feed.newest_renames`: the newest renames are remembered. So a delete finds a file that was
//!   renamed since its open, or that is below a renamed folder. Only the name of the open is
//!   followed: the delete was not meant for another link to the same file.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_files::Files;
use larder_fs::{Event, FileKind, Ino};
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;

use super::volume_door::VolumeDoor;

/// Renames by others that are remembered.
const MOVES_MAX: usize = 4096;
/// How long the feed goes on after the last open closed, so that a client that opens and closes one file
/// after another does not start it each time.
const LINGER: Duration = Duration::from_secs(5);

pub struct Feed {
    files: Files,
    door: Arc<VolumeDoor>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holds: usize,
    running: bool,
    released: Option<Instant>,
    /// Oldest first.
    moves: VecDeque<Move>,
}

struct Move {
    ino: Ino,
    from: (Ino, Bytes),
    to: (Ino, Bytes),
}

impl Move {
    fn was(&self, dir: Ino, name: &[u8]) -> bool {
        self.from.0 == dir && (*self.from.1 == *name || fold(&self.from.1) == fold(name))
    }
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
    pub fn new(files: Files, door: Arc<VolumeDoor>) -> Arc<Self> {
        Arc::new(Self { files, door, state: Mutex::default() })
    }

    pub fn hold(self: &Arc<Self>) -> FeedHold {
        let mut state = self.state.lock();
        state.holds += 1;
        if !state.running {
            state.running = true;
            tokio::spawn(Self::run(Arc::downgrade(self), self.files.events(), self.files.origin()));
        }
        FeedHold(Arc::clone(self))
    }

    async fn run(feed: Weak<Self>, mut events: tokio::sync::broadcast::Receiver<Event>, own: u32) {
        loop {
            let event = events.recv().await;
            let Some(feed) = feed.upgrade() else { return };
            if feed.stop_if_idle() {
                return;
            }
            match event {
                Ok(event) if event.origin() == own => {}
                Ok(event) => feed.tell(event),
                Err(RecvError::Lagged(_)) => feed.door.changed_outside(None),
                Err(RecvError::Closed) => return feed.state.lock().running = false,
            }
        }
    }

    fn stop_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.holds == 0 && state.released.is_none_or(|at| at.elapsed() > LINGER);
        if idle {
            state.running = false;
            state.moves.clear();
        }
        idle
    }

    /// The new name that others have given to `name` of `dir`, which led to `ino`
    /// (`feed.newest_renames`).
    pub fn moved(&self, ino: Ino, dir: Ino, name: &[u8]) -> Option<(Ino, Bytes)> {
        let mut at = None;
        for one in self.state.lock().moves.iter().filter(|one| one.ino == ino) {
            let is_next = match &at {
                None => one.was(dir, name),
                Some(at) => one.from == *at,
            };
            if is_next {
                at = Some(one.to.clone());
            }
        }
        at
    }

    /// The inode that others renamed last from `name` of `dir` (`feed.newest_renames`).
    pub fn moved_away(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.state.lock().moves.iter().rev().find(|one| one.was(dir, name)).map(|one| one.ino)
    }

    fn remember(&self, event: &Event) {
        let Event::Renamed { from, from_name, to, to_name, ino, .. } = event else { return };
        let mut state = self.state.lock();
        if state.moves.len() >= MOVES_MAX {
            state.moves.pop_front();
        }
        let (from, to) = ((*from, from_name.clone()), (*to, to_name.clone()));
        state.moves.push_back(Move { ino: *ino, from, to });
    }

    fn tell(&self, event: Event) {
        self.remember(&event);
        let origin = event.origin();
        match event {
            Event::Attr { ino, .. } | Event::Data { ino, .. } | Event::Modified { ino, .. } => {
                self.break_leases(ino, origin);
                self.door.open_files.entry_changed_outside();
            }
            Event::Added { dir, .. } => self.door.changed_outside(Some(dir)),
            Event::Removed { dir, ino, kind, .. } => {
                self.door.changed_outside(Some(dir));
                match kind {
                    FileKind::Directory => self.door.changed_outside(Some(ino)),
                    _ => self.break_leases(ino, origin),
                }
            }
            Event::Renamed { from, to, .. } => {
                self.door.changed_outside(Some(from));
                if from != to {
                    self.door.changed_outside(Some(to));
                }
            }
            Event::Lost { .. } => self.door.changed_outside(None),
        }
    }

    fn break_leases(&self, ino: Ino, origin: u32) {
        if !self.door.made(origin) {
            self.door.changed_outside(Some(ino));
        }
    }
}

fn fold(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}
