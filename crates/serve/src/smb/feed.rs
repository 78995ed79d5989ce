//! Reports changes by other protocols to SMB clients.
//!
//! The library reports what its own clients do. What NFS, the mount or another SMB share over the same
//! volume does arrives here as events of the volume, and becomes two things: entries of change
//! notifications, and broken leases, so that clients drop what they cache of a file.
//!
//! - `feed.own_events_skipped`: events with the share's own origin are left out, since the library
//!   has reported them already. Events of another share of the volume break no leases of files: the
//!   shares have one table of them. They do break leases of directories, since the other share
//!   knows directories by other paths.
//! - `feed.only_while_in_use`: the feed listens only while the share has opens or watches. No
//!   change is missed: a lease lives no longer than an open, and an open takes its [`FeedHold`]
//!   before it is answered. An unused share costs the other protocols nothing.
//! - `feed.bounded_queues`: every queue is bounded. An overflow is answered with "list again".
//! - `feed.newest_renames`: the newest renames are remembered. So a delete finds a file that was
//!   renamed since its open, or that is below a renamed folder. Only the name of the open is
//!   followed: the delete was not meant for another link to the same file.
//!
//! - `feed.host_by_itself`: the watchers of a folder of the host hear of its changes from the host, whoever makes them. The
//!   library leaves out those that its own clients made. Where the host watches no more, the volume's events remain.
//!
//! Writes and attribute changes are not reported to watchers: an event of that kind names the inode, not
//! the directories that it is in. They do break leases.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use larder_files::{Files, HostChange, HostChangeKind, HostWatch};
use larder_smb::{DirChange, DirChangeKind, DirWatch};
use larder_volume::{Event, FileKind, FsError, Ino};
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;

use super::names;
use super::tree_feed::{TreeFeed, origin};
use super::volume_door::VolumeDoor;
use super::watchers::{Watch, Watchers};

/// Renames by others that are remembered.
const MOVES_MAX: usize = 4096;
/// How long the feed goes on after the last open closed, so that a client that opens and closes one file
/// after another does not start it each time.
const LINGER: Duration = Duration::from_secs(5);

pub struct Feed {
    files: Files,
    door: Arc<VolumeDoor>,
    state: Mutex<State>,
    /// Of a directory's own entries.
    watchers: Arc<Watchers>,
    trees: Arc<TreeFeed>,
    /// It was logged that the host watches no more.
    is_blind: AtomicBool,
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
        let trees = TreeFeed::new(&files);
        let (state, watchers) = (Mutex::default(), Arc::default());
        Arc::new(Self { files, door, state, watchers, trees, is_blind: AtomicBool::new(false) })
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

    /// Changes of `dir`, and with `tree` of everything below it.
    pub async fn watch(self: &Arc<Self>, dir: Ino, tree: bool) -> Box<dyn DirWatch> {
        let by_events = || match tree {
            true => self.trees.watch(dir),
            false => self.watchers.watch(dir),
        };
        let _hold = self.hold();
        match self.files.watch_host(dir).await {
            Ok(Some(watch)) => {
                return Box::new(WatchOnHost { watch, below: tree.then(by_events), is_over: false, _hold });
            }
            Ok(None) => {}
            Err(error) => self.watch_failed(&error),
        }
        Box::new(WatchOnVolume { watch: by_events(), _hold })
    }

    fn watch_failed(&self, error: &FsError) {
        if !self.is_blind.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "SMB clients hear of no changes that programs of this machine make in a shared folder: {error}"
            );
        }
    }

    async fn run(feed: Weak<Self>, mut events: tokio::sync::broadcast::Receiver<Event>, own: u32) {
        loop {
            let event = events.recv().await;
            let Some(feed) = feed.upgrade() else { return };
            if feed.stop_if_idle() {
                return;
            }
            match event {
                Ok(event) if origin(&event) == own => {}
                Ok(event) => feed.tell(event),
                Err(RecvError::Lagged(_)) => feed.lost(),
                Err(RecvError::Closed) => return feed.closed(),
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

    fn closed(&self) {
        let mut state = self.state.lock();
        state.running = false;
        self.watchers.end();
    }

    fn lost(&self) {
        self.watchers.lost();
        self.door.changed_outside(None);
    }

    fn tell(&self, event: Event) {
        self.remember(&event);
        let origin = origin(&event);
        match event {
            Event::Attr { ino, .. } | Event::Data { ino, .. } => {
                self.break_leases(ino, origin);
                self.door.open_files.entry_changed_outside();
            }
            Event::Added { dir, name, kind, .. } => self.push(dir, &name, DirChangeKind::Added, kind),
            Event::Removed { dir, name, ino, kind, .. } => {
                self.push(dir, &name, DirChangeKind::Removed, kind);
                if kind == FileKind::Directory {
                    self.push(ino, b"", DirChangeKind::Deleted, kind);
                }
                self.break_leases(ino, origin);
            }
            Event::Renamed { from, from_name, to, to_name, kind, .. } if from == to => {
                let old = DirChangeKind::Renamed { from: names::shown(&from_name) };
                self.push(to, &to_name, old, kind);
            }
            Event::Renamed { from, from_name, to, to_name, kind, .. } => {
                self.push(from, &from_name, DirChangeKind::Removed, kind);
                self.push(to, &to_name, DirChangeKind::Added, kind);
            }
        }
    }

    /// Tells watchers of `dir` of a change of its entry `name`, and breaks the leases on it.
    fn push(&self, dir: Ino, name: &[u8], what: DirChangeKind, kind: FileKind) {
        self.door.changed_outside(Some(dir));
        if self.watchers.has(dir) {
            self.watchers.push(dir, &DirChange::new(names::shown(name), what, kind == FileKind::Directory));
        }
    }

    fn break_leases(&self, ino: Ino, origin: u32) {
        if !self.door.made(origin) {
            self.door.changed_outside(Some(ino));
        }
    }
}

/// An event-fed watch, which keeps the feed listening.
struct WatchOnVolume {
    watch: Watch,
    _hold: FeedHold,
}

#[async_trait]
impl DirWatch for WatchOnVolume {
    async fn next(&mut self) -> Option<Vec<DirChange>> {
        self.watch.next().await
    }
}

/// A directory of the host (`feed.host_by_itself`).
struct WatchOnHost {
    watch: HostWatch,
    /// Of the tree below it, by the doors of larder.
    below: Option<Watch>,
    is_over: bool,
    _hold: FeedHold,
}

#[async_trait]
impl DirWatch for WatchOnHost {
    async fn next(&mut self) -> Option<Vec<DirChange>> {
        if self.is_over {
            return None;
        }
        let Self { watch, below, .. } = self;
        let below = async {
            match below {
                Some(below) => below.next().await,
                None => std::future::pending().await,
            }
        };
        let changes: Vec<DirChange> = tokio::select! {
            changes = watch.next() => changes.into_iter().map(by_host).collect(),
            changes = below => changes?.into_iter().filter(is_below).collect(),
        };
        self.is_over = changes.iter().any(|change| change.kind == DirChangeKind::Deleted);
        Some(changes)
    }
}

/// Changes of the directory's own entries, and its end, come from the host.
fn is_below(change: &DirChange) -> bool {
    change.kind == DirChangeKind::Lost || change.name.contains('\\')
}

fn by_host(change: HostChange) -> DirChange {
    let kind = match change.kind {
        HostChangeKind::Added => DirChangeKind::Added,
        HostChangeKind::Removed => DirChangeKind::Removed,
        HostChangeKind::Renamed { from } => DirChangeKind::Renamed { from: names::shown(&from) },
        HostChangeKind::Data => DirChangeKind::Modified,
        HostChangeKind::Attributes => DirChangeKind::AttributesChanged,
        HostChangeKind::Lost => DirChangeKind::Lost,
        HostChangeKind::DirectoryMoved => DirChangeKind::Moved,
        HostChangeKind::DirectoryGone => DirChangeKind::Deleted,
    };
    DirChange::new(names::shown(&change.name), kind, change.is_directory)
}

fn fold(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}
