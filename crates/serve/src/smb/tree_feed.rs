//! Changes anywhere below a directory, for watches of a whole tree.
//!
//! An event names the directory that it happened in by its inode. From there this climbs to the root, and each watched
//! directory on the way hears of the change by its path below it.
//!
//! - `tree_feed.only_while_watched`: events are taken only while somebody watches a tree. Nobody pays for it otherwise.
//! - `tree_feed.apart_from_leases`: a climb may read directories. So the events are not those that [`super::feed`] takes, which
//!   breaks leases by them.
//! - `tree_feed.places_follow_events`: the place of a directory that is below a watched one is remembered until an event moves or
//!   removes it. Events arrive in the order of the changes, so what is remembered is right for the event that asks.
//! - `tree_feed.bounded`: the places that are remembered, the depth of a climb and the entries read to find a name have bounds. A
//!   change beyond them, and events that come faster than they are climbed, are answered with "list again".

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_files::Files;
use larder_smb::{DirChange, DirChangeKind};
use larder_volume::{Cred, Event, FileKind, FsError, FsResult, Ino, NameMatch};
use parking_lot::Mutex;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::names;
use super::watchers::{Watch, Watchers};

/// Directories whose places are remembered, about 100 bytes each.
const PLACES_MAX: usize = 1 << 16;
/// Directories on one path. A path of SMB has at most 32,767 characters, and hardly any has as many directories as this.
const DEPTH_MAX: usize = 1024;
/// Entries that are read to find the name of one directory: some tens of milliseconds.
const ENTRIES_MAX: usize = 1 << 17;
const PAGE_ENTRIES: usize = 1024;

pub struct TreeFeed {
    files: Files,
    own: u32,
    watchers: Arc<Watchers>,
    is_running: Mutex<bool>,
}

/// Where directories are: the one above, and the name in it.
#[derive(Default)]
struct Places(HashMap<Ino, (Ino, Bytes)>);

impl Places {
    fn put(&mut self, dir: Ino, place: (Ino, Bytes)) {
        if self.0.len() >= PLACES_MAX {
            self.0.clear();
        }
        self.0.insert(dir, place);
    }
}

/// A watched directory above a change, and the path from there to the directory of the change: empty, or with a backslash at its
/// end.
struct Above {
    watched: Ino,
    path: String,
}

impl TreeFeed {
    pub fn new(files: &Files) -> Arc<Self> {
        let own = files.origin();
        Arc::new(Self { files: files.untouched(), own, watchers: Arc::default(), is_running: Mutex::default() })
    }

    /// Changes of `dir` and below.
    pub fn watch(self: &Arc<Self>, dir: Ino) -> Watch {
        let mut is_running = self.is_running.lock();
        let watch = self.watchers.watch(dir);
        if !*is_running {
            *is_running = true;
            tokio::spawn(Self::run(Arc::downgrade(self), self.files.events()));
        }
        watch
    }

    async fn run(feed: Weak<Self>, mut events: Receiver<Event>) {
        let mut places = Places::default();
        loop {
            let event = events.recv().await;
            let Some(feed) = feed.upgrade() else { return };
            if feed.stop_if_unwatched() {
                return;
            }
            let told = match event {
                Ok(event) => feed.tell(&mut places, event).await,
                Err(RecvError::Lagged(_)) => Err(FsError::Refused("too many changes at once".into())),
                Err(RecvError::Closed) => return feed.close(),
            };
            match told {
                Ok(()) => {}
                // The directory went meanwhile: that is a change of its own, of the directory above.
                Err(FsError::Stale | FsError::NotFound | FsError::NotDirectory) => {}
                Err(_) => {
                    places = Places::default();
                    feed.watchers.lost();
                }
            }
        }
    }

    fn stop_if_unwatched(&self) -> bool {
        let mut is_running = self.is_running.lock();
        *is_running = !self.watchers.is_empty();
        !*is_running
    }

    fn close(&self) {
        let mut is_running = self.is_running.lock();
        *is_running = false;
        self.watchers.end();
    }

    async fn tell(&self, places: &mut Places, event: Event) -> FsResult<()> {
        let is_own = origin(&event) == self.own;
        match event {
            Event::Attr { .. } | Event::Data { .. } => {}
            Event::Added { dir, name, kind, .. } => {
                if is_own && kind != FileKind::Directory {
                    return Ok(());
                }
                let above = self.above(places, dir).await?;
                if !is_own {
                    self.push(&above, &name, kind, DirChangeKind::Added);
                }
                if kind == FileKind::Directory && !above.is_empty() {
                    let made = self.files.lookup(&Cred::root(), dir, &name, NameMatch::Exact).await?;
                    places.put(made.id.ino, (dir, name));
                }
            }
            Event::Removed { dir, name, ino, kind, .. } => {
                if kind == FileKind::Directory {
                    places.0.remove(&ino);
                }
                if is_own {
                    return Ok(());
                }
                if kind == FileKind::Directory {
                    self.watchers.push(ino, &DirChange::new("", DirChangeKind::Deleted, true));
                }
                let above = self.above(places, dir).await?;
                self.push(&above, &name, kind, DirChangeKind::Removed);
            }
            Event::Renamed { from, from_name, to, to_name, ino, kind, .. } => {
                if kind == FileKind::Directory {
                    places.put(ino, (to, to_name.clone()));
                }
                if is_own {
                    return Ok(());
                }
                let above = self.above(places, to).await?;
                if from == to {
                    self.push_renamed(&above, &from_name, &to_name, kind);
                } else {
                    let below = self.above(places, from).await?;
                    self.push(&below, &from_name, kind, DirChangeKind::Removed);
                    self.push(&above, &to_name, kind, DirChangeKind::Added);
                }
            }
        }
        Ok(())
    }

    fn push(&self, above: &[Above], name: &[u8], kind: FileKind, what: DirChangeKind) {
        let name = names::shown(name);
        for Above { watched, path } in above {
            let change = DirChange::new(format!("{path}{name}"), what.clone(), kind == FileKind::Directory);
            self.watchers.push(*watched, &change);
        }
    }

    fn push_renamed(&self, above: &[Above], from: &[u8], to: &[u8], kind: FileKind) {
        let (from, to) = (names::shown(from), names::shown(to));
        for Above { watched, path } in above {
            let what = DirChangeKind::Renamed { from: format!("{path}{from}") };
            let change = DirChange::new(format!("{path}{to}"), what, kind == FileKind::Directory);
            self.watchers.push(*watched, &change);
        }
    }

    /// The watched directories among `dir` and those above it.
    async fn above(&self, places: &mut Places, dir: Ino) -> FsResult<Vec<Above>> {
        let (mut found, mut at, mut path) = (Vec::new(), dir, String::new());
        for _ in 0..DEPTH_MAX {
            if self.watchers.has(at) {
                found.push(Above { watched: at, path: path.clone() });
            }
            let Some((parent, name)) = self.place(places, at).await? else { return Ok(found) };
            path = format!("{}\\{path}", names::shown(&name));
            at = parent;
        }
        Err(FsError::Refused("too many directories above one another".into()))
    }

    /// Where a directory is; `None` for the topmost one.
    async fn place(&self, places: &mut Places, dir: Ino) -> FsResult<Option<(Ino, Bytes)>> {
        if let Some(place) = places.0.get(&dir) {
            return Ok(Some(place.clone()));
        }
        let parent = self.files.parent(dir).await?;
        if parent == dir {
            return Ok(None);
        }
        self.read(places, parent, dir).await.map(Some)
    }

    /// Reads `parent` up to its directory `dir`. What is beside it is likely to be asked for next.
    async fn read(&self, places: &mut Places, parent: Ino, dir: Ino) -> FsResult<(Ino, Bytes)> {
        let (mut cookie, mut entries) = (0, 0);
        while entries < ENTRIES_MAX {
            let page = self.files.readdir(&Cred::root(), parent, cookie, PAGE_ENTRIES, false).await?;
            entries += page.entries.len();
            let last = page.entries.last().map(|entry| entry.cookie);
            let mut found = None;
            for entry in page.entries.into_iter().filter(|entry| entry.kind == FileKind::Directory) {
                if entry.ino == dir {
                    found = Some((parent, entry.name.clone()));
                }
                places.put(entry.ino, (parent, entry.name));
            }
            match (found, last) {
                (Some(place), _) => return Ok(place),
                (None, Some(last)) if !page.eof => cookie = last,
                _ => return Err(FsError::Stale),
            }
        }
        Err(FsError::Refused("a directory has too many entries".into()))
    }
}

/// Who made the change.
pub fn origin(event: &Event) -> u32 {
    match event {
        Event::Attr { origin, .. }
        | Event::Data { origin, .. }
        | Event::Added { origin, .. }
        | Event::Removed { origin, .. }
        | Event::Renamed { origin, .. } => *origin,
    }
}
