//! Folders of the host (ext4, XFS, btrfs and others) as a tree that doors serve. Files stay as they are on the host, and the
//! host goes on using them.
//!
//! All shared folders of one filesystem are one tree, as the folders of a volume are: numbers of inodes are those of the
//! host, so opens, locks and leases of two shares that overlap are the same.
//!
//! - `folder.one_step`: a name is looked up in the directory that holds it, one at a time, and a symbolic link is an object.
//!   No path is walked by the kernel for a client, so none leads out.
//! - `folder.one_filesystem`: what is mounted below a shared folder, and another subvolume of btrfs, is not part of it: it is
//!   neither listed nor found.
//! - `folder.within`: `..` ends at the outermost shared folder. A door stops at its own top.
//! - `folder.judged_here`: larder judges by mode bits and POSIX lists, with the functions that judge in a volume
//!   ([`larder_fs::judge`]). Calls that name something run as the user besides, so that the kernel judges the very
//!   object that they meet ([`identity`]); calls on descriptors run as larder.
//! - `folder.durable_before_answer`: a change of names or attributes is flushed before it is answered, file and directory
//!   both; data is flushed by `commit` and by stable writes.
//!   A door that asks for ordered answers gets names that are durable with the next commit of any file.
//! - `folder.poison`: after a flush that failed, all changes are refused until larder is restarted.
//! - `folder.always_read`: attributes and names are read from the host each time. Folded names alone are kept, for a second
//!   at most ([`folded`]).
//!
//! A call means here what it means in a volume.

mod attrs;
mod bin;
mod data;
mod dos;
mod folded;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handle;
mod host;
mod identity;
mod kernel;
mod known;
mod listing;
mod names;
mod notify;
mod numbers;
mod place;
pub mod samba;
mod streams;
mod xattrs;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_base::task;
use larder_base::traffic::{self, Wait};
use larder_fs::{
    AccessTimes, Answers, Cred, Event, Events, FsError, FsResult, Ino, SnapshotInfo, StatFs, Witness, WriteVerifier,
};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, Statx};
use tokio::sync::broadcast;

use host::{Host, failed};
pub use notify::{BY_HOST, HostWatch};

/// The folders of one filesystem of the host, as a handle of one door.
#[derive(Clone)]
pub struct Folder {
    host: Arc<Host>,
    /// The folder that was asked for: room is told of it, since the host may bound it.
    top: Arc<OwnedFd>,
    origin: u32,
    answers: Answers,
    /// Attributes come with those of DOS and the time of creation that a client set ([`dos`]).
    shows_dos: bool,
    /// As [`larder_volume::Volume::only`].
    only: Option<Ino>,
}

/// Keeps an inode alive while it is open.
pub struct OpenFile {
    host: Arc<Host>,
    ino: Ino,
}

impl OpenFile {
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.host.unpin(self.ino);
    }
}

/// The filesystems of the host whose folders are shared, by device.
#[derive(Default)]
pub struct Hosts(Mutex<HashMap<(u32, u32), Weak<Host>>>);

impl Hosts {
    /// The folder at `path` and its number.
    pub fn open(&self, path: &Path) -> FsResult<(Folder, Ino)> {
        let (top, stat) = opened(path)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let host = {
            let mut hosts = self.0.lock();
            hosts.retain(|_, host| host.strong_count() > 0);
            match hosts.get(&device).and_then(Weak::upgrade) {
                Some(host) => host,
                None => {
                    let host = Arc::new(Host::new(top.as_fd(), &stat)?);
                    hosts.insert(device, Arc::downgrade(&host));
                    host
                }
            }
        };
        Folder::of(host, top)
    }
}

fn opened(path: &Path) -> FsResult<(Arc<OwnedFd>, Statx)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = Arc::new(rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?);
    let stat = host::statx(top.as_fd()).map_err(failed)?;
    Ok((top, stat))
}

impl Folder {
    fn of(host: Arc<Host>, top: Arc<OwnedFd>) -> FsResult<(Folder, Ino)> {
        let ino = host.identify(top.as_fd())?.id.ino;
        host.add_top(ino, top.clone());
        Ok((Folder { host, top, origin: 0, answers: Answers::Durable, shows_dos: false, only: None }, ino))
    }

    /// The folder at `path` as on a filesystem that has no handles, for tests.
    #[doc(hidden)]
    pub fn open_without_handles(path: &Path) -> FsResult<(Folder, Ino)> {
        let (top, stat) = opened(path)?;
        let mut host = Host::new(top.as_fd(), &stat)?;
        host.without_handles();
        Folder::of(Arc::new(host), top)
    }

    /// Whether a descriptor of the inode is kept, for tests.
    #[doc(hidden)]
    pub fn is_cached(&self, ino: Ino) -> bool {
        self.host.is_cached(ino)
    }

    /// Whether clients' handles are good after a restart.
    pub fn has_handles(&self) -> bool {
        self.host.has_handles()
    }

    pub fn with_origin(&self, origin: u32) -> Folder {
        Folder { origin, ..self.clone() }
    }

    pub fn only(&self, ino: Ino) -> Folder {
        Folder { only: Some(ino), ..self.clone() }
    }

    pub fn with_answers(&self, answers: Answers) -> Folder {
        Folder { answers, ..self.clone() }
    }

    pub fn with_dos(&self) -> Folder {
        Folder { shows_dos: true, ..self.clone() }
    }

    /// Whether the host has a place for streams.
    pub fn keeps_streams(&self) -> bool {
        self.host.has_xattrs
    }

    /// The host decides about access times.
    pub fn with_access_times(&self, _access_times: AccessTimes) -> Folder {
        self.clone()
    }

    pub fn origin(&self) -> u32 {
        self.origin
    }

    pub fn id(&self) -> uuid::Uuid {
        self.host.id
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.host.verifier
    }

    /// Numbers of changes are the host's times, which no crash takes back.
    pub fn change_base(&self) -> u64 {
        0
    }

    /// Quotas of the host bind nobody here: larder runs as root.
    pub fn statfs(&self, _cred: &Cred) -> StatFs {
        let none = StatFs { total_bytes: 0, free_bytes: 0, available_bytes: 0, total_files: 0, free_files: 0 };
        rustix::fs::fstatvfs(&self.top).map_or(none, |room| StatFs {
            total_bytes: room.f_blocks.saturating_mul(room.f_frsize),
            free_bytes: room.f_bfree.saturating_mul(room.f_frsize),
            available_bytes: room.f_bavail.saturating_mul(room.f_frsize),
            total_files: room.f_files,
            free_files: room.f_favail,
        })
    }

    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.host.events.subscribe()
    }

    pub fn channel(&self) -> &Events {
        &self.host.events
    }

    pub fn witness(&self) -> (broadcast::Receiver<Event>, Witness) {
        self.host.events.witness(self.origin)
    }

    pub async fn await_witnesses(&self, timeout: Duration) {
        self.host.events.await_witnesses(self.origin, timeout).await;
    }

    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        Vec::new()
    }

    pub fn snapshot_seconds(&self, _dir: Ino) -> Vec<i64> {
        Vec::new()
    }

    pub async fn sync(&self) -> FsResult<()> {
        self.run(|folder| folder.host.flush_all()).await
    }

    /// Tells of changes that other programs of the host make in `dir`, as events.
    pub async fn watch(&self, dir: Ino) -> FsResult<HostWatch> {
        self.run(move |folder| {
            let dir = folder.host.node(dir)?.directory()?;
            folder.host.notices.watch(dir.ino(), &dir.fd)
        })
        .await
    }

    /// Calls into the kernel, on a thread that may block. Once begun it ends, also if nobody waits any more.
    /// As [`Folder::run`], in the name of the running request.
    async fn run_waiting<T: Send + 'static>(
        &self,
        on: Wait,
        work: impl FnOnce(&Folder) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        traffic::waiting(on, self.run(work)).await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Folder) -> FsResult<T> + Send + 'static) -> FsResult<T> {
        let folder = self.clone();
        let closed = |_| FsError::Io("larder stops".into());
        let permit = folder.host.workers.clone().acquire_owned().await.map_err(closed)?;
        let done = task::blocking(move || {
            let done = work(&folder);
            drop(permit);
            done
        });
        done.await.map_err(|_| FsError::Io("a call into the host's filesystem broke off".into()))?
    }

    fn is_durable(&self) -> bool {
        self.answers == Answers::Durable
    }
}
