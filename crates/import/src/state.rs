//! The state that all parts of one import share, and its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_files::Files;
use larder_fs::{AccessTimes, Answers, Attr, Cred, FsError, Ino};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::links::Links;
use crate::progress::{Counter, Progress};
use crate::source::{self, Stat};

/// Faults that are reported by name; beyond it they are counted.
const FAULTS_MAX: usize = 1000;

/// Choices of whoever asks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Enter other filesystems that are mounted below the folder.
    pub cross: bool,
    /// Remove what an earlier run brought and the folder no longer has.
    pub delete: bool,
    /// Replace files that an import did not bring, or that were changed since.
    pub overwrite: bool,
    /// Read everything a second time, and compare.
    pub verify: bool,
    /// Only count what would be copied.
    pub dry_run: bool,
    /// Directories that are not entered, by device and inode: the disks of pools.
    pub avoided: Vec<crate::source::DirectoryId>,
}

/// A path below the folder, and what is the matter with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Below the folder that is imported.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

/// The outcome of an import that went on to the end.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files copied, whole or for the first time, or, in a dry run, to be copied.
    pub copied_files: u64,
    /// Their bytes, holes left out.
    pub copied_bytes: u64,
    /// Directories that were looked at, the folder itself included.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Named pipes, sockets and devices made.
    pub specials: u64,
    /// Further names given to files.
    pub links: u64,
    /// Files that needed new attributes only.
    pub attributes: u64,
    /// Names that were as they should be.
    pub unchanged: u64,
    /// Names removed, because the folder no longer has them.
    pub removed: u64,
    /// Files compared after copying.
    pub verified_files: u64,
    /// Their bytes.
    pub verified_bytes: u64,
    /// What was left out on purpose, or kept, with the reason.
    pub left_out: Vec<Fault>,
    /// What could not be copied, or differs. At most a thousand.
    pub faults: Vec<Fault>,
    /// How many there are.
    pub faults_total: u64,
}

/// Why an import ended before its end. Everything that has a name by then stays, and running it again goes on.
#[derive(Debug)]
pub enum Failed {
    /// The folder cannot be read.
    Folder(Errno),
    /// The folder is empty, and everything that was imported would be removed.
    Empty,
    /// The volume takes nothing more.
    Volume(FsError),
    /// It was stopped.
    Stopped,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) directories: Counter,
    pub(crate) symlinks: Counter,
    pub(crate) specials: Counter,
    pub(crate) links: Counter,
    pub(crate) attributes: Counter,
    pub(crate) unchanged: Counter,
    pub(crate) removed: Counter,
}

/// The state that the threads of one import share.
pub(crate) struct Import {
    pub(crate) files: Files,
    pub(crate) cred: Cred,
    pub(crate) options: Options,
    pub(crate) progress: Arc<Progress>,
    pub(crate) counts: Counts,
    pub(crate) links: Links,
    handle: Handle,
    fatal: Mutex<Option<FsError>>,
    faults: Mutex<Vec<Fault>>,
    left_out: Mutex<Vec<Fault>>,
}

impl Import {
    /// Must be called where a tokio runtime is entered.
    pub(crate) fn new(files: Files, options: Options, progress: &Arc<Progress>) -> Import {
        // Comparing must not look like reading, and a name may come before the flush that makes it durable: all before it is.
        let files = files.for_mount(files.origin(), Answers::Ordered, AccessTimes::NEVER);
        Import {
            files,
            cred: Cred::root(),
            options,
            progress: Arc::clone(progress),
            counts: Counts::default(),
            links: Links::default(),
            handle: Handle::current(),
            fatal: Mutex::default(),
            faults: Mutex::default(),
            left_out: Mutex::default(),
        }
    }

    /// What is dropped at its end may need the runtime.
    pub(crate) fn entered<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        work()
    }

    /// Waits for an operation of the volume.
    pub(crate) fn on<T>(&self, work: impl Future<Output = T>) -> T {
        self.handle.block_on(work)
    }

    pub(crate) fn ended(&self) -> Result<(), Failed> {
        match self.fatal.lock().take() {
            Some(error) => Err(Failed::Volume(error)),
            None if self.progress.is_stopped() => Err(Failed::Stopped),
            None => Ok(()),
        }
    }

    /// An error of the volume at one path. Some end everything: they would be the same for every other path.
    pub(crate) fn volume_fault(&self, path: &Path, error: FsError) {
        let ends_all = matches!(
            error,
            FsError::NoSpace(_)
                | FsError::Quota
                | FsError::ReadOnly(_)
                | FsError::Locked
                | FsError::Replica
                | FsError::Poisoned(_)
        );
        if ends_all {
            self.fatal.lock().get_or_insert(error);
            self.progress.stop();
            return;
        }
        let why = match error {
            FsError::Shared => "it is open in the volume, by a client that does not share it".to_owned(),
            error => error.to_string(),
        };
        self.fault(path, why);
    }

    pub(crate) fn source_fault(&self, path: &Path, error: Errno) {
        self.fault(path, source::words(error));
    }

    pub(crate) fn fault(&self, path: &Path, why: impl Into<String>) {
        self.progress.faults.add(1);
        let mut faults = self.faults.lock();
        if faults.len() < FAULTS_MAX {
            faults.push(Fault { path: path.to_owned(), why: why.into() });
        }
    }

    pub(crate) fn leave_out(&self, path: &Path, why: &str) {
        let mut left = self.left_out.lock();
        if left.len() < FAULTS_MAX {
            left.push(Fault { path: path.to_owned(), why: why.to_owned() });
        }
    }

    /// Why a directory below the folder is not entered, if so.
    pub(crate) fn left_out(&self, top: &Stat, found: &Stat) -> Option<&'static str> {
        if self.options.avoided.contains(&(found.dev, found.ino)) {
            return Some("a disk of a pool");
        }
        (found.mount != top.mount && !self.options.cross).then_some("another filesystem; --cross brings it too")
    }

    pub(crate) fn report(&self) -> Report {
        let counts = &self.counts;
        Report {
            copied_files: self.progress.copied_files.get(),
            copied_bytes: self.progress.copied_bytes.get(),
            directories: counts.directories.get(),
            symlinks: counts.symlinks.get(),
            specials: counts.specials.get(),
            links: counts.links.get(),
            attributes: counts.attributes.get(),
            unchanged: counts.unchanged.get(),
            removed: counts.removed.get(),
            verified_files: self.progress.verified_files.get(),
            verified_bytes: self.progress.verified_bytes.get(),
            left_out: std::mem::take(&mut self.left_out.lock()),
            faults: std::mem::take(&mut self.faults.lock()),
            faults_total: self.progress.faults.get(),
        }
    }

    /// The inode of a name in the volume.
    pub(crate) fn lookup(&self, dir: Option<Ino>, name: &[u8]) -> Result<Option<Attr>, FsError> {
        let Some(dir) = dir else { return Ok(None) };
        match self.on(self.files.lookup(&self.cred, dir, name, larder_fs::NameMatch::Exact)) {
            Ok(attr) => Ok(Some(attr)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
