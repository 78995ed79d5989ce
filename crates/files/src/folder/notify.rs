//! Changes that other programs make to directories of the host, by inotify. Changes by larder arrive as well: whoever made
//! them knows.
//!
//! - `notify.one_descriptor`: a filesystem has one descriptor of inotify, while any of its directories is watched.
//! - `notify.only_watched`: the kernel watches directories that somebody watches, once each, and at most [`DIRECTORIES_MAX`].
//! - `notify.loss_is_told`: where the kernel's queue or a watcher's overflows, the watcher hears that changes are lost.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_volume::{FsError, FsResult};
use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::kernel::{by_number, failed};

/// Directories of a filesystem that are watched at once. The kernel has a bound of its own, for each user
/// (`fs.inotify.max_user_watches`).
const DIRECTORIES_MAX: usize = 16384;
/// Changes that wait for one watcher.
const QUEUED_MAX: usize = 4096;
const BUFFER_BYTES: usize = 64 << 10;

/// A change of a watched directory, or of an entry of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostChange {
    /// What happened.
    pub kind: HostChangeKind,
    /// The entry. Empty for the directory itself.
    pub name: Bytes,
    /// The entry is a directory.
    pub is_directory: bool,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostChangeKind {
    /// An entry is new, or came from another directory.
    Added,
    /// An entry is gone, or went to another directory.
    Removed,
    /// An entry has another name.
    Renamed {
        /// Its name before.
        from: Bytes,
    },
    /// A file's data changed.
    Data,
    /// Owner, mode, times or attributes of an entry changed.
    Attributes,
    /// Changes were lost.
    Lost,
    /// The directory itself was moved.
    DirectoryMoved,
    /// The directory itself is gone: nothing follows.
    DirectoryGone,
}

fn of_directory(kind: HostChangeKind) -> HostChange {
    HostChange { kind, name: Bytes::new(), is_directory: true }
}

#[derive(Default)]
struct Queue {
    changes: Mutex<VecDeque<HostChange>>,
    wake: Notify,
}

impl Queue {
    fn push(&self, change: HostChange) {
        let mut changes = self.changes.lock();
        // A program that writes on makes the same change again and again.
        if changes.back() == Some(&change) {
            return;
        }
        if changes.len() >= QUEUED_MAX {
            changes.clear();
            changes.push_back(of_directory(HostChangeKind::Lost));
        }
        changes.push_back(change);
        drop(changes);
        self.wake.notify_one();
    }
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
    watched: HashMap<i32, Vec<Weak<Queue>>>,
}

/// The watched directories of a filesystem.
#[derive(Default)]
pub(super) struct Notices(Mutex<State>);

/// A directory that is watched, until it is dropped.
pub struct HostWatch {
    notices: Arc<Notices>,
    number: i32,
    queue: Arc<Queue>,
}

impl HostWatch {
    /// The next changes, in their order. Cancel-safe.
    pub async fn next(&mut self) -> Vec<HostChange> {
        loop {
            let changes: Vec<HostChange> = self.queue.changes.lock().drain(..).collect();
            if !changes.is_empty() {
                return changes;
            }
            self.queue.wake.notified().await;
        }
    }
}

impl Drop for HostWatch {
    fn drop(&mut self) {
        let mut state = self.notices.0.lock();
        let Some(queues) = state.watched.get_mut(&self.number) else { return };
        queues.retain(|queue| !std::ptr::eq(queue.as_ptr(), Arc::as_ptr(&self.queue)));
        if !queues.is_empty() {
            return;
        }
        state.watched.remove(&self.number);
        if let Some(inotify) = &state.inotify {
            // The directory may be gone, and its watch with it.
            let _ = inotify::remove_watch(inotify.fd.get_ref(), self.number);
        }
        if state.watched.is_empty() {
            state.inotify = None;
        }
    }
}

impl Notices {
    /// Watches an open directory. [`FsError::Refused`] where larder or the kernel watches as many as they may.
    pub(super) fn watch(self: &Arc<Self>, dir: &OwnedFd) -> FsResult<HostWatch> {
        let mut state = self.0.lock();
        let inotify = match &state.inotify {
            Some(inotify) => inotify.fd.clone(),
            None => {
                let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
                let fd = inotify::init(flags).map_err(full("fs.inotify.max_user_instances"))?;
                // SAFETY: an `OwnedFd` is open, and stays the same until the `AsyncFd` that owns it is dropped.
                let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
                let fd = fd.map_err(|error| FsError::Io(std::io::Error::from(error).to_string().into()))?;
                let fd = Arc::new(fd);
                let reader = tokio::spawn(run(Arc::downgrade(self), fd.clone())).abort_handle();
                state.inotify.insert(Inotify { fd, reader }).fd.clone()
            }
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let added = match state.watched.len() < DIRECTORIES_MAX {
            true => inotify::add_watch(inotify.get_ref(), by_number(dir.as_fd()), flags)
                .map_err(full("fs.inotify.max_user_watches")),
            false => Err(FsError::Refused("larder watches as many folders of this filesystem as it may".into())),
        };
        let number = match added {
            Ok(number) => number,
            Err(error) => {
                if state.watched.is_empty() {
                    state.inotify = None;
                }
                return Err(error);
            }
        };
        let queue = Arc::new(Queue::default());
        state.watched.entry(number).or_default().push(Arc::downgrade(&queue));
        Ok(HostWatch { notices: self.clone(), number, queue })
    }

    /// Takes what the kernel has. Returns `false` if it can tell nothing more.
    fn take(&self, inotify: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> bool {
        let mut reader = Reader::new(inotify, buffer);
        // The first half of a rename, until the second follows at once or does not.
        let mut moved: Option<(u32, i32, HostChange)> = None;
        let open = loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break true,
                Err(_) => break false,
            };
            let (number, what, cookie) = (event.wd(), event.events(), event.cookie());
            let name = event.file_name().map(|name| Bytes::copy_from_slice(name.to_bytes())).unwrap_or_default();
            let is_directory = what.contains(ReadFlags::ISDIR);
            let change = |kind, name| HostChange { kind, name, is_directory };
            if what.contains(ReadFlags::MOVED_TO)
                && let Some((_, _, from)) = moved.take_if(|(half, of, _)| (*half, *of) == (cookie, number))
            {
                self.tell(number, change(HostChangeKind::Renamed { from: from.name }, name));
                continue;
            }
            if let Some((_, number, from)) = moved.take() {
                self.tell(number, from);
            }
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.lost();
            } else if what.contains(ReadFlags::MOVED_FROM) {
                moved = Some((cookie, number, change(HostChangeKind::Removed, name)));
            } else if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                self.tell(number, change(HostChangeKind::Added, name));
            } else if what.contains(ReadFlags::DELETE) {
                self.tell(number, change(HostChangeKind::Removed, name));
            } else if what.contains(ReadFlags::MOVE_SELF) {
                self.tell(number, of_directory(HostChangeKind::DirectoryMoved));
            } else if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT) {
                self.tell(number, of_directory(HostChangeKind::DirectoryGone));
            } else if what.contains(ReadFlags::IGNORED) {
                self.0.lock().watched.remove(&number);
            } else if !name.is_empty() {
                let kind =
                    if what.contains(ReadFlags::MODIFY) { HostChangeKind::Data } else { HostChangeKind::Attributes };
                self.tell(number, change(kind, name));
            }
        };
        if let Some((_, number, from)) = moved {
            self.tell(number, from);
        }
        open
    }

    fn tell(&self, number: i32, change: HostChange) {
        let queues: Vec<_> = match self.0.lock().watched.get(&number) {
            Some(queues) => queues.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        queues.iter().for_each(|queue| queue.push(change.clone()));
    }

    /// To every watcher.
    fn lost(&self) {
        let queues: Vec<_> = self.0.lock().watched.values().flatten().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| queue.push(of_directory(HostChangeKind::Lost)));
    }
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
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
    loop {
        let Ok(mut ready) = inotify.readable().await else { return };
        let Some(notices) = notices.upgrade() else { return };
        if !notices.take(inotify.get_ref(), &mut buffer) {
            return notices.lost();
        }
        ready.clear_ready();
    }
}
