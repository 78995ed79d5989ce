//! Disks that are directories of a real filesystem: the only module that does file I/O.
//!
//! The directory is held open and every name is resolved from it, so that when somebody unmounts
//! the filesystem nothing is ever written to the directory below the mount point.
//!
//! Long reads and writes of long shards go past the kernel's cache (`O_DIRECT`): it would keep a
//! second copy of what the volume keeps; and so do writes of the journal, which nobody reads. A
//! file is opened a second time for that. Where the filesystem refuses, at opening (tmpfs of old kernels, FUSE) or at first
//! use, the disk goes on through the cache.
//!
//! - `disk.root_leaves_no_files`: root may look at a pool whose larder runs as another user, or serve it for a while. What it
//!   makes there belongs to the owner of the disk's lock file, who made the first file of it; else that user could not open the
//!   pool any more.

use std::any::Any;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::disk::{DIRECT_ALIGN, DiskFile, DiskIo, DiskOpener, DiskSpace, LOCK_NAME};

/// `IOV_MAX` of Linux.
const BUFFERS_MAX: usize = 1024;

/// `f_type` of statfs(2).
const XFS_MAGIC: u64 = 0x5846_5342;
const EXT4_MAGIC: u64 = 0xEF53;

/// Opens directories as disks.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileDisks;

impl DiskOpener for FileDisks {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn open_disk(&self, path: &Path) -> io::Result<Arc<dyn DiskIo>> {
        let root = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let owner = foreign_owner(&root, rustix::process::geteuid().is_root());
        Ok(Arc::new(FileDisk { root, owner, direct_refused: Arc::default(), seeks: OnceLock::new() }))
    }
}

/// Name and lasting identity of this machine.
pub fn host() -> (String, String) {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let id = std::fs::read_to_string("/etc/machine-id").map_or_else(|_| name.clone(), |id| id.trim().to_owned());
    (name, id)
}

/// Whose the files of a disk are, if root has to give them away (`disk.root_leaves_no_files`).
fn foreign_owner(root: &OwnedFd, is_root: bool) -> Option<(Uid, Gid)> {
    let lock = is_root.then(|| rustix::fs::statat(root, LOCK_NAME, AtFlags::SYMLINK_NOFOLLOW).ok()).flatten()?;
    (lock.st_uid != 0).then(|| (Uid::from_raw(lock.st_uid), Gid::from_raw(lock.st_gid)))
}

#[derive(Debug)]
struct FileDisk {
    root: OwnedFd,
    /// Of what is made here, if that is not us.
    owner: Option<(Uid, Gid)>,
    direct_refused: Arc<AtomicBool>,
    seeks: OnceLock<bool>,
}

/// The kernel's facts about a block device; for a partition, those of its disk. A filesystem of
/// several devices has none.
fn is_rotational(device: u64) -> Option<bool> {
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).ok();
    read("queue/rotational").or_else(|| read("../queue/rotational")).map(|text| text.trim() != "0")
}

impl FileDisk {
    fn open_at(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let name = if name.is_empty() { "." } else { name };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.root, name, flags, Mode::from_raw_mode(0o600))?)
    }

    fn file(&self, fd: OwnedFd, mode: OFlags) -> OpenFile {
        OpenFile {
            file: File::from(fd),
            mode,
            direct: OnceLock::new(),
            direct_refused: Arc::clone(&self.direct_refused),
            filesystem: OnceLock::new(),
        }
    }
}

impl DiskIo for FileDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let fd = self.open_at(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        if let Some((user, group)) = self.owner {
            rustix::fs::fchown(&fd, Some(user), Some(group))?;
        }
        Ok(Arc::new(self.file(fd, OFlags::RDWR)))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mode = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = self.open_at(name, mode)?;
        Ok(Arc::new(self.file(fd, mode)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, name, AtFlags::empty())?)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let fd = self.open_at(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }

    fn make_directory(&self, name: &str) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.root, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => match self.owner {
                Some((user, group)) => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    Ok(rustix::fs::chownat(&self.root, name, Some(user), Some(group), flags)?)
                }
                None => Ok(()),
            },
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, name, AtFlags::REMOVEDIR)?)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        let fd = self.open_at(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::fsync(fd)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let fs = rustix::fs::fstatvfs(&self.root)?;
        let device = rustix::fs::fstat(&self.root)?.st_dev;
        Ok(DiskSpace {
            total_bytes: fs.f_blocks.saturating_mul(fs.f_frsize),
            free_bytes: fs.f_bavail.saturating_mul(fs.f_frsize),
            filesystem: device,
            without_inodes: fs.f_files > 0 && fs.f_favail == 0,
        })
    }

    fn lock(&self, owner: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        // On a read-only filesystem an existing lock file can still be locked.
        let fd = self
            .open_at(LOCK_NAME, OFlags::RDWR | OFlags::CREATE)
            .or_else(|error| self.open_at(LOCK_NAME, OFlags::RDONLY).map_err(|_| error))?;
        let file = self.file(fd, OFlags::RDWR);
        if let Err(error) = rustix::fs::flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(error.into());
            }
            return Err(io::Error::new(io::ErrorKind::WouldBlock, file.text()));
        }
        // The holder's name is for people only. The lock holds without it.
        let _ = file.file.set_len(0).and_then(|()| file.write_at(&mut [IoSlice::new(owner.as_bytes())], 0));
        Ok(Box::new(file.file))
    }

    fn holder(&self) -> io::Result<Option<String>> {
        let file = match self.open_at(LOCK_NAME, OFlags::RDONLY) {
            Ok(fd) => self.file(fd, OFlags::RDONLY),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match rustix::fs::flock(&file.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(Errno::WOULDBLOCK) => Ok(Some(file.text())),
            Err(error) => Err(error.into()),
        }
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.root)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    fn seeks(&self) -> bool {
        let ask = || rustix::fs::fstat(&self.root).ok().and_then(|stat| is_rotational(stat.st_dev)).unwrap_or(true);
        *self.seeks.get_or_init(ask)
    }
}

struct OpenFile {
    file: File,
    mode: OFlags,
    /// The same file past the cache, opened when it is first needed; `None` if that is not
    /// possible.
    direct: OnceLock<Option<File>>,
    /// The filesystem of this disk takes no direct I/O.
    direct_refused: Arc<AtomicBool>,
    /// The answer to `flushed_together`.
    filesystem: OnceLock<Option<u64>>,
}

impl OpenFile {
    /// The contents of a short file, as far as it can be read.
    fn text(&self) -> String {
        let mut bytes = [0; 200];
        let read = self.read_at(&mut [IoSliceMut::new(&mut bytes)], 0).unwrap_or(0);
        String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).trim().to_owned()
    }

    fn direct(&self) -> Option<&File> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || {
            // By descriptor: the name may lead elsewhere by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = self.mode | OFlags::DIRECT | OFlags::CLOEXEC;
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(fd) => Some(File::from(fd)),
                Err(error) => {
                    self.refuse_direct(error);
                    None
                }
            }
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Calls `step` with the bytes done so far, until that is `length` or no step can follow:
    /// nothing moved, or the place is no longer aligned, as at the end of the file. Returns the
    /// bytes done, and whether the filesystem refuses the rest.
    fn past_the_cache(
        &self,
        length: usize,
        mut step: impl FnMut(&File, usize) -> rustix::io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        let mut done = 0;
        while done < length {
            let Some(direct) = self.direct() else { return Ok((done, true)) };
            match step(direct, done) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) => {
                    self.refuse_direct(Errno::INVAL);
                    return Ok((done, true));
                }
                Err(error) => return Err(error.into()),
            }
            if !done.is_multiple_of(DIRECT_ALIGN) {
                break;
            }
        }
        Ok((done, false))
    }

    /// `EINVAL` means that a filesystem cannot do it, or not with this alignment. Any other error
    /// concerns this file alone.
    fn refuse_direct(&self, error: Errno) {
        if error == Errno::INVAL && !self.direct_refused.swap(true, Ordering::Relaxed) {
            tracing::debug!("the filesystem takes no direct I/O; going through its cache");
        }
    }
}

/// Calls `read` until the buffers are full or it returns 0.
fn read_fully(
    mut buffers: &mut [IoSliceMut<'_>],
    mut offset: u64,
    mut read: impl FnMut(&mut [IoSliceMut<'_>], u64) -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    let mut total = 0;
    loop {
        IoSliceMut::advance_slices(&mut buffers, 0);
        if buffers.is_empty() {
            return Ok(total);
        }
        let batch = buffers.len().min(BUFFERS_MAX);
        match read(&mut buffers[..batch], offset) {
            Ok(0) => return Ok(total),
            Ok(count) => {
                total += count;
                offset += count as u64;
                IoSliceMut::advance_slices(&mut buffers, count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl DiskFile for OpenFile {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        read_fully(buffers, offset, |buffers, offset| rustix::io::preadv(&self.file, buffers, offset))
    }

    fn read_cached_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        read_fully(buffers, offset, |buffers, offset| match rustix::io::preadv2(&self.file, buffers, offset, flags) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Err(Errno::WOULDBLOCK),
            other => other,
        })
    }

    fn write_at(&self, mut buffers: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        loop {
            IoSlice::advance_slices(&mut buffers, 0);
            if buffers.is_empty() {
                return Ok(());
            }
            let batch = buffers.len().min(BUFFERS_MAX);
            match rustix::io::pwritev(&self.file, &buffers[..batch], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut buffers, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read_direct_at(&self, mut buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let length = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut filled = 0;
        let (done, refused) = self.past_the_cache(length, |file, at| {
            IoSliceMut::advance_slices(&mut buffers, at - filled);
            filled = at;
            let batch = buffers.len().min(BUFFERS_MAX);
            rustix::io::preadv(file, &mut buffers[..batch], offset + at as u64)
        })?;
        if !refused {
            return Ok(done);
        }
        IoSliceMut::advance_slices(&mut buffers, done - filled);
        Ok(done + self.read_at(buffers, offset + done as u64)?)
    }

    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let (done, _) =
            self.past_the_cache(bytes.len(), |file, at| rustix::io::pwrite(file, &bytes[at..], offset + at as u64))?;
        if done == bytes.len() {
            return Ok(true);
        }
        self.write_at(&mut [IoSlice::new(&bytes[done..])], offset + done as u64).map(|()| false)
    }

    fn begin_direct(&self, bytes: u64) -> io::Result<bool> {
        if self.direct().is_none() {
            return Ok(false);
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// XFS and ext4 write such blocks in place, and flush their device in every `fdatasync`.
    fn flushed_together(&self) -> Option<u64> {
        *self.filesystem.get_or_init(|| {
            let kind = rustix::fs::fstatfs(&self.file).ok()?.f_type as u64;
            [XFS_MAGIC, EXT4_MAGIC].contains(&kind).then_some(())?;
            rustix::fs::fstat(&self.file).ok().map(|stat| stat.st_dev)
        })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        // On Linux this starts the write-back of dirty pages without waiting for it. A hint:
        // failure changes nothing.
        let length = std::num::NonZeroU64::new(length);
        let _ = rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::DontNeed);
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{MetadataExt, chown};

    use super::*;

    /// `disk.root_leaves_no_files`. Where the tests are not root's, nothing may be given away and nothing has to be.
    #[test]
    fn what_root_makes_belongs_to_the_owner_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let owner =
            |name: &str| std::fs::metadata(folder.path().join(name)).map(|file| (file.uid(), file.gid())).unwrap();
        let open = || FileDisks.open_disk(folder.path()).unwrap();
        let ours = owner("");
        drop(open().lock("the larder of a service").unwrap());
        let make = |name: &str| {
            let disk = open();
            disk.create(name).unwrap();
            disk.make_directory(&format!("{name}.d")).unwrap();
            disk.rename(name, "label").unwrap();
            (owner("label"), owner(&format!("{name}.d")))
        };
        assert_eq!(make("a"), (ours, ours));
        if rustix::process::geteuid().is_root() {
            chown(folder.path().join(LOCK_NAME), Some(1234), Some(4321)).unwrap();
            assert_eq!(make("b"), ((1234, 4321), (1234, 4321)));
        }
        let root = File::open(folder.path()).unwrap().into();
        assert_eq!(foreign_owner(&root, false), None);
    }
}
