//! Notices: what clients that watch directories hear.
//!
//! Every change of a name is an event of the volume: (directory, name, kind, who made it). So is a change of an entry's data or
//! attributes, where the door that made it knows the name and its protocol has others hear of it. The events become the
//! notices of all watches of the volume's shares, in their order; what a client of SMB does itself comes the same way as what
//! NFS, a mount or, in a folder of the host, another program does.
//!
//! An event names the directory that it happened in by its inode. For watches of a whole tree this climbs from there to the
//! root, and each watched directory on the way hears of the change by its path below it.
//!
//! - `notices.only_while_watched`: events are taken only while somebody watches. Nobody pays for it otherwise.
//! - `notices.told_before_asked`: a CHANGE_NOTIFY is carried out when every change that was answered before it has been told.
//! - `notices.apart_from_leases`: a climb may read directories. So the events are not those that [`super::feed`] takes, which
//!   breaks leases by them.
//! - `notices.places_follow_events`: the place of a directory that is below a watched one is remembered until an event moves or
//!   removes it. Events arrive in the order of the changes, so what is remembered is right for the event that asks.
//! - `notices.bounded`: the places that are remembered, the depth of a climb and the entries read to find a name have bounds. A
//!   change beyond them, and events that come faster than they are told, are answered with "list again".
//!
//! What NFS or a mount writes is not told: such an event names the inode, not the directories that it is in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::files::{Above, Notice, NoticeKind, Watches, Watching};
use bytes::Bytes;
use larder_base::task;
use larder_files::{Files, HostWatch};
use larder_fs::{Cred, Event, FileKind, FsError, FsResult, Ino, NameMatch, Witness};
use parking_lot::Mutex;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use super::names;

/// Directories whose places are remembered, about 100 bytes each.
const PLACES_MAX: usize = 1 << 16;
/// Directories on one path. A path of SMB has at most 32,767 characters, and hardly any has as many directories as this.
const DEPTH_MAX: usize = 1024;
/// Entries that are read to find the name of one directory: some tens of milliseconds.
const ENTRIES_MAX: usize = 1 << 17;
const PAGE_ENTRIES: usize = 1024;

pub struct Notices {
    files: Files,
    pub watches: Watches,
    state: Mutex<State>,
    /// It was logged that the host watches no more.
    is_blind: AtomicBool,
}

#[derive(Default)]
struct State {
    watching: usize,
    /// How many events have been told, while they are taken.
    told: Option<watch::Receiver<u64>>,
}

/// Keeps events being told, until it is dropped.
struct Watched {
    notices: Arc<Notices>,
    /// Of a folder of the host.
    _by_host: Option<HostWatch>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.notices.state.lock().watching -= 1;
    }
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

    /// An inode of 0 is one that nobody knows: its number may be another's from now on.
    fn forget(&mut self, dir: Ino) {
        match dir {
            Ino(0) => self.0.clear(),
            dir => drop(self.0.remove(&dir)),
        }
    }
}

impl Notices {
    pub fn new(files: &Files) -> Arc<Self> {
        let (watches, state, is_blind) = (Watches::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { files: files.untouched(), watches, state, is_blind })
    }

    /// Before a watch of `dir` is armed: it hears of no change that was answered before.
    pub async fn watch(self: &Arc<Self>, dir: Ino) -> Watching {
        {
            let mut state = self.state.lock();
            state.watching += 1;
            if state.told.is_none() {
                let (events, witness, told) = self.files.follow();
                state.told = Some(told);
                task::spawn(Self::run(Arc::downgrade(self), events, witness));
            }
        }
        let mut watching = Watched { notices: self.clone(), _by_host: None };
        match self.files.watch_host(dir).await {
            Ok(by_host) => watching._by_host = by_host,
            Err(error) if !self.is_blind.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    "SMB clients hear of no changes that programs of this machine make in a shared folder: {error}"
                );
            }
            Err(_) => {}
        }
        self.settle().await;
        Box::new(watching)
    }

    /// Until all changes that were answered before are told (`notices.told_before_asked`).
    pub async fn settle(&self) {
        let Some(mut told) = self.state.lock().told.clone() else { return };
        let sent = self.files.events_sent();
        // It fails when the volume is closed, and nothing follows.
        let _ = told.wait_for(|told| *told >= sent).await;
    }

    async fn run(notices: Weak<Self>, mut events: Receiver<Event>, mut witness: Witness) {
        let mut places = Places::default();
        loop {
            let event = events.recv().await;
            let Some(notices) = notices.upgrade() else { return };
            if notices.stop_if_unwatched() {
                return;
            }
            let (seen, told) = match event {
                Ok(event) => (1, notices.tell(&mut places, event).await),
                Err(RecvError::Lagged(lost)) => (lost, Err(FsError::Refused("too many changes at once".into()))),
                Err(RecvError::Closed) => return notices.close(),
            };
            match told {
                Ok(()) => {}
                // The directory went meanwhile: that is a change of its own, of the directory above.
                Err(FsError::Stale | FsError::NotFound | FsError::NotDirectory) => {}
                Err(_) => {
                    places = Places::default();
                    notices.watches.lost();
                }
            }
            witness.saw(seen);
        }
    }

    fn stop_if_unwatched(&self) -> bool {
        let mut state = self.state.lock();
        if state.watching == 0 {
            state.told = None;
        }
        state.watching == 0
    }

    /// Nothing follows.
    fn close(&self) {
        self.state.lock().told = None;
        self.watches.lost();
    }

    async fn tell(&self, places: &mut Places, event: Event) -> FsResult<()> {
        match event {
            Event::Attr { .. } | Event::Data { .. } => {}
            Event::Lost { .. } => return Err(FsError::Refused("the host lost changes".into())),
            Event::Modified { dir, name, kind, what, .. } => {
                self.push(&self.above(places, dir).await?, &name, NoticeKind::Modified(what.0), kind);
            }
            Event::Added { dir, name, kind, .. } => {
                let above = self.above(places, dir).await?;
                self.push(&above, &name, NoticeKind::Added, kind);
                if kind == FileKind::Directory && !above.is_empty() && self.watches.has_trees() {
                    let made = self.files.lookup(&Cred::root(), dir, &name, NameMatch::Exact).await?;
                    places.put(made.id.ino, (dir, name));
                }
            }
            Event::Removed { dir, name, ino, kind, .. } => {
                if kind == FileKind::Directory {
                    places.forget(ino);
                    self.watches.gone(ino.0);
                }
                self.push(&self.above(places, dir).await?, &name, NoticeKind::Removed, kind);
            }
            Event::Renamed { from, from_name, to, to_name, ino, kind, .. } => {
                if kind == FileKind::Directory {
                    places.forget(ino);
                    places.put(ino, (to, to_name.clone()));
                }
                if from == to {
                    self.push_renamed(&self.above(places, to).await?, &from_name, &to_name, kind);
                } else {
                    let (left, entered) = (self.above(places, from).await, self.above(places, to).await);
                    self.push(&left?, &from_name, NoticeKind::Removed, kind);
                    self.push(&entered?, &to_name, NoticeKind::Added, kind);
                }
            }
        }
        Ok(())
    }

    fn push(&self, above: &[Above], name: &[u8], notice: NoticeKind, kind: FileKind) {
        let notice = Notice { name: names::shown(name), kind: notice, is_directory: kind == FileKind::Directory };
        self.watches.tell(above, notice);
    }

    fn push_renamed(&self, above: &[Above], from: &[u8], to: &[u8], kind: FileKind) {
        let shown = names::shown(from);
        // An entry whose name changes in case alone stands at its new name already. Windows has such an entry go first.
        if shown.to_lowercase() == names::shown(to).to_lowercase() {
            self.push(above, from, NoticeKind::Removed, kind);
        }
        self.push(above, to, NoticeKind::Renamed { from: shown }, kind);
    }

    /// The watched directories among `dir` and those above it.
    async fn above(&self, places: &mut Places, dir: Ino) -> FsResult<Vec<Above>> {
        let (mut found, mut at, mut path) = (Vec::new(), dir, String::new());
        for _ in 0..DEPTH_MAX {
            if self.watches.has(at.0) {
                found.push(Above { dir: at.0, path: path.clone() });
            }
            if !self.watches.has_trees() {
                return Ok(found);
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
