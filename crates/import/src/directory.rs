//! A directory on its way: what has to be done in it before it gets its times.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use larder_fs::Ino;

use crate::source::Stat;

/// Directories below one another: each takes two descriptors of the daemon and its path in memory. Deeper ones are faults.
pub(crate) const LEVELS_MAX: usize = 4096;
/// The longest path below the folder.
pub(crate) const PATH_BYTES_MAX: usize = 32 << 10;

pub(crate) struct Directory {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
    /// Below the folder.
    pub(crate) path: PathBuf,
    /// In the volume; none in a dry run, where it is not there yet.
    pub(crate) dest: Option<Ino>,
    /// Entries that have no name yet, and one for the walk (`import.times_of_directories_last`).
    pending: AtomicUsize,
    /// Files in it are parts of others (`doubles`).
    has_doubles: AtomicBool,
}

impl Directory {
    pub(crate) fn top(fd: OwnedFd, stat: Stat, dest: Option<Ino>) -> Arc<Directory> {
        Arc::new(Directory::at(PathBuf::new(), fd, stat, dest))
    }

    pub(crate) fn below(&self, name: &CStr, fd: OwnedFd, stat: Stat, dest: Option<Ino>) -> Arc<Directory> {
        Arc::new(Directory::at(self.path_of(name), fd, stat, dest))
    }

    fn at(path: PathBuf, fd: OwnedFd, stat: Stat, dest: Option<Ino>) -> Directory {
        Directory { fd, stat, path, dest, pending: AtomicUsize::new(1), has_doubles: AtomicBool::new(false) }
    }

    pub(crate) fn note_double(&self) {
        self.has_doubles.store(true, Ordering::Release);
    }

    pub(crate) fn has_doubles(&self) -> bool {
        self.has_doubles.load(Ordering::Acquire)
    }

    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())))
    }

    pub(crate) fn hold(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// One entry is there, or will not be. Returns whether it was the last.
    pub(crate) fn release(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// One name of a directory, to be copied or compared.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) dir: Arc<Directory>,
    pub(crate) name: CString,
    pub(crate) stat: Stat,
    /// The inode in the volume that has another name of it.
    pub(crate) linked: Option<Ino>,
}

impl Job {
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.name.to_bytes()
    }
}
