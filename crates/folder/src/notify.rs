//! Changes that other programs make to directories of the host, by inotify, as events of the tree.
//!
//! - `notify.one_descriptor`: a filesystem has one descriptor of inotify, while any of its directories is watched.
//! - `notify.only_watched`: the kernel watches directories that somebody watches, once each, and at most [`DIRECTORIES_MAX`].
//! - `notify.loss_is_told`: where the kernel's queue overflows, an event says that changes are lost.
//! - `notify.own_left_out`: larder announces a change before the call that makes it. The kernel queues its notice within that
//!   call, and larder reads the queue before it takes the announcement back. So a notice that an announcement covers is
//!   larder's own, whose event has the door's origin, and every other is another program's. No time plays a part.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_base::task;
use larder_fs::{Aspects, Event, Events, FileKind, FsError, FsResult, Ino};
use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use crate::kernel::{by_number, failed};

/// The origin of changes by other programs of the host.
pub const BY_HOST: u32 = u32::from_be_bytes(*b"HOST");
/// The inode of which nobody knows the number.
const UNKNOWN: Ino = Ino(0);
/// Directories of a filesystem that are watched at once. The kernel has a bound of its own, for each user
/// (`fs.inotify.max_user_watches`).
const DIRECTORIES_MAX: usize = 16384;
const BUFFER_BYTES: usize = 64 << 10;

/// A change that larder is about to make.
pub(crate) enum Own<'n> {
    /// The directory gets the name. What else changes of it until the announcement ends is larder's, too.
    Comes(Ino, &'n [u8]),
    /// The directory loses the name.
    Goes(Ino, &'n [u8]),
    /// Whatever happens to a name that nobody else knows.
    Passes(Ino, &'n [u8]),
    /// Data or attributes of the inode change.
    Changes(Ino),
}

/// An announcement, until it is dropped (`notify.own_left_out`).
pub(crate) struct Announced<'n> {
    notices: &'n Notices,
    id: u64,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.notices.read();
        self.notices.state.lock().announced.retain(|one| one.id != self.id);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Covers {
    Coming,
    Going,
    Anything,
    Attributes,
}

/// What one announcement covers: of a name, or of an inode in whichever directory.
struct Covered {
    id: u64,
    what: Covers,
    ino: Ino,
    name: Bytes,
}

struct Watched {
    dir: Ino,
    fd: Arc<OwnedFd>,
    watchers: usize,
}

/// The descriptor, and the task that reads it.
struct Inotify {
    fd: Arc<AsyncFd<OwnedFd>>,
    reader: AbortHandle,
}

impl Drop for Inotify {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

#[derive(Default)]
struct State {
    inotify: Option<Inotify>,
    /// By the kernel's number of the watch.
    watched: HashMap<i32, Watched>,
    announced: Vec<Covered>,
    last_id: u64,
}

/// The watched directories of a filesystem.
pub(crate) struct Notices {
    events: Arc<Events>,
    state: Mutex<State>,
    /// Held while notices are read and passed on, so that they stay in order. Taken before `state`.
    buffer: Mutex<Vec<MaybeUninit<u8>>>,
}

/// A directory that is watched, until it is dropped.
pub struct HostWatch {
    notices: Arc<Notices>,
    number: i32,
}

impl Drop for HostWatch {
    fn drop(&mut self) {
        let mut state = self.notices.state.lock();
        let Some(watched) = state.watched.get_mut(&self.number) else { return };
        watched.watchers -= 1;
        if watched.watchers > 0 {
            return;
        }
        state.watched.remove(&self.number);
        if let Some(inotify) = &state.inotify {
            // The directory may be gone, and its watch with it.
            let _ = inotify::remove_watch(inotify.fd.get_ref(), self.number);
        }
        state.end_if_unwatched();
    }
}

impl State {
    fn end_if_unwatched(&mut self) {
        if self.watched.is_empty() {
            self.inotify = None;
        }
    }

    /// Takes the announcement that covers a change of a name, if there is one.
    fn takes_name(&mut self, what: Covers, dir: Ino, name: &[u8]) -> bool {
        let found = self
            .announced
            .iter()
            .position(|one| (one.what == what || one.what == Covers::Anything) && (one.ino, &*one.name) == (dir, name));
        let Some(at) = found else { return false };
        // Of a name that came, what larder gives it follows.
        match self.announced[at].what {
            Covers::Coming => self.announced[at].what = Covers::Attributes,
            Covers::Going => drop(self.announced.swap_remove(at)),
            Covers::Anything | Covers::Attributes => {}
        }
        true
    }

    /// Whether larder changes the data or attributes of `ino`, which is `name` of `dir`.
    fn changes(&self, dir: Ino, name: &[u8], ino: Ino) -> bool {
        self.announced.iter().any(|one| match one.what {
            Covers::Attributes if one.name.is_empty() => one.ino == ino,
            Covers::Going => false,
            _ => (one.ino, &*one.name) == (dir, name),
        })
    }
}

/// The first half of a rename, until the second follows at once or does not.
struct Half {
    cookie: u32,
    dir: Ino,
    name: Bytes,
    kind: FileKind,
}

impl Notices {
    pub(crate) fn new(events: Arc<Events>) -> Arc<Notices> {
        Arc::new(Notices { events, state: Mutex::default(), buffer: Mutex::default() })
    }

    /// Announces what larder does before the result is dropped. `None`: nobody watches anything.
    #[must_use]
    pub(crate) fn own(&self, own: &[Own<'_>]) -> Option<Announced<'_>> {
        let mut state = self.state.lock();
        state.inotify.as_ref()?;
        state.last_id += 1;
        let id = state.last_id;
        state.announced.extend(own.iter().map(|own| {
            let (what, ino, name) = match own {
                Own::Comes(dir, name) => (Covers::Coming, *dir, *name),
                Own::Goes(dir, name) => (Covers::Going, *dir, *name),
                Own::Passes(dir, name) => (Covers::Anything, *dir, *name),
                Own::Changes(ino) => (Covers::Attributes, *ino, &b""[..]),
            };
            Covered { id, what, ino, name: Bytes::copy_from_slice(name) }
        }));
        Some(Announced { notices: self, id })
    }

    /// Watches the open directory `dir`. [`FsError::Refused`] where larder or the kernel watches as many as they may.
    pub(crate) fn watch(self: &Arc<Self>, dir: Ino, fd: &Arc<OwnedFd>) -> FsResult<HostWatch> {
        let mut state = self.state.lock();
        let inotify = match &state.inotify {
            Some(inotify) => inotify.fd.clone(),
            None => {
                let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
                let fd = inotify::init(flags).map_err(full("fs.inotify.max_user_instances"))?;
                // SAFETY: an `OwnedFd` is open, and stays the same until the `AsyncFd` that owns it is dropped.
                let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
                let fd = fd.map_err(|error| FsError::Io(std::io::Error::from(error).to_string().into()))?;
                let fd = Arc::new(fd);
                let reader = task::spawn(run(Arc::downgrade(self), fd.clone())).abort_handle();
                state.inotify.insert(Inotify { fd, reader }).fd.clone()
            }
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let added = match state.watched.len() < DIRECTORIES_MAX {
            true => inotify::add_watch(inotify.get_ref(), by_number(fd.as_fd()), flags)
                .map_err(full("fs.inotify.max_user_watches")),
            false => Err(FsError::Refused("larder watches as many folders of this filesystem as it may".into())),
        };
        let number = added.inspect_err(|_| state.end_if_unwatched())?;
        let watched = state.watched.entry(number).or_insert_with(|| Watched { dir, fd: fd.clone(), watchers: 0 });
        watched.watchers += 1;
        Ok(HostWatch { notices: self.clone(), number })
    }

    /// Passes on what the kernel has. Returns `false` if it can tell nothing more.
    fn read(&self) -> bool {
        let mut buffer = self.buffer.lock();
        let Some(inotify) = self.state.lock().inotify.as_ref().map(|inotify| inotify.fd.clone()) else { return true };
        buffer.resize(BUFFER_BYTES, MaybeUninit::uninit());
        let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
        let mut moved: Option<Half> = None;
        let mut is_second_look = false;
        // A program that writes on makes the same change again and again.
        let mut last = None;
        let is_open = loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                // The kernel queues the second half right after the first.
                Err(Errno::AGAIN) if moved.is_some() && !std::mem::replace(&mut is_second_look, true) => {
                    std::thread::yield_now();
                    continue;
                }
                Err(Errno::AGAIN) => break true,
                Err(_) => break false,
            };
            let (what, cookie) = (event.events(), event.cookie());
            let name = event.file_name().map(|name| Bytes::copy_from_slice(name.to_bytes())).unwrap_or_default();
            let kind = if what.contains(ReadFlags::ISDIR) { FileKind::Directory } else { FileKind::File };
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.events.send(|| Event::Lost { origin: BY_HOST });
                continue;
            }
            if what.contains(ReadFlags::IGNORED) {
                self.state.lock().watched.remove(&event.wd());
                continue;
            }
            let Some((dir, fd)) = self.state.lock().watched.get(&event.wd()).map(|one| (one.dir, one.fd.clone()))
            else {
                continue;
            };
            let comes = what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
            let goes = what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
            let is_half =
                |half: &mut Half| what.contains(ReadFlags::MOVED_TO) && (half.cookie, half.dir) == (cookie, dir);
            let half = moved.take_if(is_half);
            moved.take().into_iter().for_each(|half| self.removed(half.dir, half.name, half.kind));
            if comes || goes {
                last = None;
                let covers = if comes { Covers::Coming } else { Covers::Going };
                let is_own = self.state.lock().takes_name(covers, dir, &name);
                match half {
                    _ if is_own => {}
                    Some(half) => self.renamed(dir, &fd, half.name, name, kind),
                    None if comes => self.events.send(|| Event::Added { origin: BY_HOST, dir, name, kind }),
                    None if what.contains(ReadFlags::DELETE) => self.removed(dir, name, kind),
                    None => moved = Some(Half { cookie, dir, name, kind }),
                }
            } else if what.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) && !name.is_empty() {
                let is_data = what.contains(ReadFlags::MODIFY);
                // It is gone: a notice of its own says so.
                let Some(ino) = number_of(&fd, &name) else { continue };
                if self.state.lock().changes(dir, &name, ino) || last.as_ref() == Some(&(ino, is_data)) {
                    continue;
                }
                let what = if is_data { Aspects::DATA } else { Aspects::ATTRIBUTES };
                self.events.send(|| Event::Modified { origin: BY_HOST, dir, name, ino, kind, what });
                last = Some((ino, is_data));
            }
        };
        moved.into_iter().for_each(|half| self.removed(half.dir, half.name, half.kind));
        is_open
    }

    fn removed(&self, dir: Ino, name: Bytes, kind: FileKind) {
        self.events.send(|| Event::Removed { origin: BY_HOST, dir, name, ino: UNKNOWN, kind });
    }

    fn renamed(&self, dir: Ino, fd: &OwnedFd, from_name: Bytes, to_name: Bytes, kind: FileKind) {
        let ino = number_of(fd, &to_name).unwrap_or(UNKNOWN);
        self.events.send(|| Event::Renamed { origin: BY_HOST, from: dir, from_name, to: dir, to_name, ino, kind });
    }
}

/// The inode that a name leads to now.
fn number_of(dir: &OwnedFd, name: &[u8]) -> Option<Ino> {
    let stat = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO);
    stat.ok().map(|stat| Ino(stat.stx_ino))
}

fn full(limit: &'static str) -> impl FnOnce(Errno) -> FsError {
    move |error| match error {
        Errno::NOSPC | Errno::MFILE => {
            FsError::Refused(format!("the kernel watches no more: raise {limit} (sysctl)").into())
        }
        error => failed(error),
    }
}

/// Until it is aborted with the last watch.
async fn run(notices: Weak<Notices>, inotify: Arc<AsyncFd<OwnedFd>>) {
    loop {
        let Ok(mut ready) = inotify.readable().await else { return };
        let Some(notices) = notices.upgrade() else { return };
        // Before the read: a notice that comes after it is not overlooked.
        ready.clear_ready();
        let read = task::blocking(move || {
            let is_open = notices.read();
            if !is_open {
                notices.events.send(|| Event::Lost { origin: BY_HOST });
            }
            is_open
        });
        if !read.await.unwrap_or(false) {
            return;
        }
    }
}
