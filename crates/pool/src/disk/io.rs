//! The trait of a disk. Real files are in `folder.rs`; tests and simulators bring their own.
//!
//! Names are relative to the disk's directory and never leave it. All calls block.

use std::any::Any;
use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use crate::disk::watch::Watch;
use crate::disk::work::Work;

/// The alignment of direct I/O: of offset, length and place in memory. No block of a disk or
/// filesystem page is longer where larder runs. A filesystem that wants more refuses, and is served
/// through the cache.
pub const DIRECT_ALIGN: usize = 4096;

/// The file that the owner of the disk keeps locked; its text names the owner, for people.
pub const LOCK_NAME: &str = "larder.lock";

/// Written and removed to find out whether a disk takes writes.
pub const PROBE_NAME: &str = "larder.probe";

/// Whether a disk refuses for want of room: bytes, inodes, a quota, or blocks for its filesystem's own
/// metadata. It is full, not broken.
pub fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Room on a disk. Disks with the same `filesystem` share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// The size of the filesystem, in bytes.
    pub total_bytes: u64,
    /// The room that this process may still use, in bytes.
    pub free_bytes: u64,
    /// Identifies the filesystem within this process.
    pub filesystem: u64,
    /// The filesystem says that it has no inodes left. Not every filesystem knows what it has.
    pub without_inodes: bool,
}

/// One disk: a directory on some filesystem.
pub trait DiskIo: Send + Sync + Debug + 'static {
    /// Creates or truncates a file for reading and writing.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists; `NotFound` where it does not.
    fn open(&self, name: &str, writable: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Atomically replaces `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name. Durable after a sync of the directory.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Names in a directory, in no order. Names that are not UTF-8 are left out: none is ours.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;
    /// Creates a directory unless it exists.
    fn make_directory(&self, name: &str) -> io::Result<()>;
    /// Removes an empty directory; for tidiness alone.
    fn remove_directory(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes creations, renames and removals within a directory durable; `""` is the disk itself.
    fn sync_directory(&self, name: &str) -> io::Result<()>;
    /// Makes everything done on this disk so far durable.
    fn sync_all(&self) -> io::Result<()>;
    /// The room on the disk now.
    fn space(&self) -> io::Result<DiskSpace>;
    /// Takes the exclusive lock of this disk until the result is dropped. `WouldBlock` when another
    /// process holds it; the error then names that process.
    fn lock(&self, owner: &str) -> io::Result<Box<dyn Any + Send + Sync>>;
    /// The holder of the disk's lock, found out without taking or writing anything.
    fn holder(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
    /// Two paths with one identity are the same directory.
    fn identity(&self) -> io::Result<(u64, u64)>;
    /// Whether a head moves between two places that are read at once. An unknown disk counts as one
    /// with a head.
    fn seeks(&self) -> bool {
        true
    }
    /// The watch that tells whether the disk answers, where a pool keeps one.
    fn watch(&self) -> Option<Arc<Watch>> {
        None
    }
    /// Tells the disk that it is in use from now on (`hang.direct_once_in_use`).
    fn settle(&self) {}
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads until the buffers are full or the file ends; returns the bytes read.
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;
    /// As `read_at`, but only if no device has to be waited for; otherwise `WouldBlock`.
    fn read_cached_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;
    /// Writes all buffers.
    fn write_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// As `read_at`, past the kernel's cache where the filesystem can: for long reads of bytes that
    /// are not needed again soon. Each buffer and `offset` are aligned to [`DIRECT_ALIGN`].
    fn read_direct_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read_at(buffers, offset)
    }
    /// As `write_at`, past the kernel's cache where the filesystem can; whether it did. `bytes` and
    /// `offset` are aligned to [`DIRECT_ALIGN`].
    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        self.write_at(&mut [IoSlice::new(bytes)], offset).map(|()| false)
    }
    /// Prepares a new file for direct writes of `bytes` in any order: gives it its length and its
    /// blocks. `false`, and nothing changed, where the filesystem cannot do it: such a file is
    /// written through the cache.
    fn begin_direct(&self, _bytes: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// The filesystem, if one flush of its device serves all its files. Bytes written past the
    /// cache, into blocks that were written and synced before, are then durable once any file of
    /// this filesystem has been synced.
    fn flushed_together(&self) -> Option<u64> {
        None
    }
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Hint: begin writing this range to the device now.
    fn start_writeback(&self, offset: u64, length: u64);
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
}

/// Opens disks by path.
pub trait DiskOpener: Send + Sync + Debug + 'static {
    /// Opens the disk in this directory; `NotFound` where there is no directory.
    fn open_disk(&self, path: &Path) -> io::Result<Arc<dyn DiskIo>>;
    /// Creates the directory of a new disk, unless it exists.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// How a pool on these disks runs blocking work.
    fn work(&self) -> Work {
        Work::Threads
    }
}

/// Reads a whole file of at most `bytes_max`.
pub fn read_file(disk: &dyn DiskIo, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(name, false)?;
    let length = file.length()?.min(bytes_max) as usize;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes a file so that after a crash either the old or the new contents are there.
pub fn write_file_atomically(disk: &dyn DiskIo, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temp = format!("{name}.new");
    let file = disk.create(&temp)?;
    file.write_at(&mut [IoSlice::new(bytes)], 0)?;
    file.sync()?;
    disk.rename(&temp, name)?;
    disk.sync_directory("")
}
