//! The folder of the host, read through descriptors: no path is resolved twice, and no symbolic link is followed.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bytes::Bytes;
use larder_base::Timestamp;
use larder_files::samba::{self, Meaning};
use larder_fs::{FileKind, XATTR_BYTES_MAX};
use rustix::fs::{Advice, AtFlags, Dir as Listing, Mode, OFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::apple;
pub(crate) use crate::apple::NameAndValue;

/// Bytes that are read and written at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Finder information of a Mac's file, as netatalk and Samba's `vfs_fruit` keep it: AppleDouble in an attribute.
const NETATALK: &[u8] = b"user.org.netatalk.Metadata";
/// Names that are read at once. They are looked at in the order of their inode numbers, which on a hard disk is about the
/// order in which the inodes lie.
const PAGE_NAMES: usize = 1024;
/// The most bytes of names of extended attributes that Linux lists (XATTR_LIST_MAX).
const XATTR_NAMES_BYTES_MAX: usize = 65536;

/// An inode of the host as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    pub(crate) rdev: (u32, u32),
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    /// Creation, where the filesystem keeps it.
    pub(crate) btime: Option<Timestamp>,
    pub(crate) ino: u64,
    pub(crate) dev: (u32, u32),
    /// The mount that it was reached through.
    pub(crate) mount: u64,
}

impl Stat {
    fn of(x: &Statx) -> Result<Stat, Errno> {
        let mode = u32::from(x.stx_mode);
        let has = |flag: StatxFlags| x.stx_mask & flag.bits() != 0;
        let dev = (x.stx_dev_major, x.stx_dev_minor);
        Ok(Stat {
            kind: kind(mode).ok_or(Errno::INVAL)?,
            mode: mode & 0o7777,
            uid: x.stx_uid,
            gid: x.stx_gid,
            nlink: x.stx_nlink,
            size: x.stx_size,
            rdev: (x.stx_rdev_major, x.stx_rdev_minor),
            atime: time(&x.stx_atime),
            mtime: time(&x.stx_mtime),
            ctime: time(&x.stx_ctime),
            btime: has(StatxFlags::BTIME).then(|| time(&x.stx_btime)),
            ino: x.stx_ino,
            dev,
            // Kernels before 5.8 tell no mounts: there the filesystem has to do.
            mount: if has(StatxFlags::MNT_ID) { x.stx_mnt_id } else { u64::from(dev.0) << 32 | u64::from(dev.1) },
        })
    }

    /// The same contents and attributes as `other`, as far as the times tell.
    pub(crate) fn is_same_state(&self, other: &Stat) -> bool {
        (self.ino, self.dev, self.kind, self.size) == (other.ino, other.dev, other.kind, other.size)
            && (self.mtime, self.ctime) == (other.mtime, other.ctime)
    }
}

fn kind(mode: u32) -> Option<FileKind> {
    Some(match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        0o010_000 => FileKind::Fifo,
        0o140_000 => FileKind::Socket,
        0o020_000 => FileKind::CharDevice,
        0o060_000 => FileKind::BlockDevice,
        _ => return None,
    })
}

fn time(x: &StatxTimestamp) -> Timestamp {
    Timestamp::new(x.tv_sec, x.tv_nsec)
}

const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// Of the inode that `name` in `dir` leads to, be it a link.
pub(crate) fn stat(dir: impl AsFd, name: &CStr) -> Result<Stat, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Stat::of(&rustix::fs::statx(dir, name, flags, ASKED)?)
}

/// Of an open file.
pub(crate) fn stat_open(file: impl AsFd) -> Result<Stat, Errno> {
    Stat::of(&rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, ASKED)?)
}

/// The folder that a person named; links in its path are followed.
pub(crate) fn open_top(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Device (major, minor) and inode number of a directory.
pub type DirectoryId = ((u32, u32), u64);

/// Device and inode of a directory: the same whatever path leads to it.
pub fn directory_id(path: &Path) -> std::io::Result<DirectoryId> {
    let stat = stat_open(open_top(path)?)?;
    Ok((stat.dev, stat.ino))
}

/// A file or directory to read. Reading leaves the access time as it is, where we may.
pub(crate) fn open(dir: impl AsFd, name: &CStr, kind: FileKind) -> Result<OwnedFd, Errno> {
    let only = if kind == FileKind::Directory { OFlags::DIRECTORY } else { OFlags::NONBLOCK };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | only;
    match rustix::fs::openat(dir.as_fd(), name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty()),
        other => other,
    }
}

pub(crate) fn read_link(dir: impl AsFd, name: &CStr) -> Result<Vec<u8>, Errno> {
    Ok(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes())
}

/// The names of a directory, a page at a time.
pub(crate) struct Names(Listing);

impl Names {
    pub(crate) fn of(dir: impl AsFd) -> Result<Names, Errno> {
        Ok(Names(Listing::read_from(dir)?))
    }

    /// The next names, in the order of their inode numbers; none at the end.
    pub(crate) fn page(&mut self) -> Result<Vec<CString>, Errno> {
        let mut page = Vec::new();
        while page.len() < PAGE_NAMES {
            match self.0.read() {
                None => break,
                Some(entry) => {
                    let entry = entry?;
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        page.push((entry.ino(), name.to_owned()));
                    }
                }
            }
        }
        page.sort_unstable_by_key(|(ino, _)| *ino);
        Ok(page.into_iter().map(|(_, name)| name).collect())
    }
}

/// The next range from `offset` on that is no hole. A filesystem that knows no holes has one range.
pub(crate) fn next_data(file: impl AsFd, offset: u64, size: u64) -> Result<Option<Range<u64>>, Errno> {
    if offset >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file.as_fd(), SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..size)),
        Err(error) => return Err(error),
    };
    if start >= size {
        return Ok(None);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some(start..end.min(size).max(start + 1)))
}

/// Up to `len` bytes from `offset` on; fewer only at the end of the file.
pub(crate) fn read(file: impl AsFd, offset: u64, len: usize) -> Result<Bytes, Errno> {
    let mut buffer = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match rustix::io::pread(file.as_fd(), &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer.into())
}

/// What was read is not read again soon: the kernel's cache is for others.
pub(crate) fn drop_cache(file: impl AsFd) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// Extended attributes that are copied as they are.
pub(crate) fn is_copied(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == b"security.capability"
}

/// The attributes of an open file or directory: those that are copied as they are, what Samba keeps in others, and its POSIX lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Xattrs {
    pub(crate) copied: Vec<NameAndValue>,
    pub(crate) streams: Vec<NameAndValue>,
    pub(crate) dos: Option<u32>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) access: Option<Vec<u8>>,
    pub(crate) default: Option<Vec<u8>>,
}

impl Xattrs {
    /// `import.samba_kept`
    fn take(&mut self, name: &[u8], value: Vec<u8>) {
        match samba::meaning(name, &value) {
            Some(Meaning::Dos { attributes, created }) => (self.dos, self.created) = (attributes, created),
            Some(Meaning::Stream { name, data }) => self.streams.push((name.to_vec(), data)),
            None => self.copied.push((name.to_vec(), value)),
        }
    }
}

pub(crate) fn xattrs(file: BorrowedFd<'_>) -> Result<Xattrs, Errno> {
    let mut names = vec![0; XATTR_NAMES_BYTES_MAX];
    let len = match rustix::fs::flistxattr(file, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error),
    };
    names.truncate(len);
    let mut found = Xattrs::default();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match name {
            b"system.posix_acl_access" => found.access = xattr(file, name)?,
            b"system.posix_acl_default" => found.default = xattr(file, name)?,
            _ if is_copied(name) => {
                if let Some(value) = xattr(file, name)? {
                    found.take(name, value);
                }
            }
            _ => {}
        }
    }
    // What is a stream already counts.
    let kept = found.copied.iter().find(|(name, _)| name == NETATALK);
    found.streams.extend(kept.and_then(|(_, value)| apple::streams(value)).unwrap_or_default());
    found.streams.sort_by(|one, other| one.0.cmp(&other.0));
    found.streams.dedup_by(|second, first| second.0 == first.0);
    found.copied.sort_unstable();
    Ok(found)
}

fn xattr(file: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; XATTR_BYTES_MAX];
    match rustix::fs::fgetxattr(file, name, &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            value.shrink_to_fit();
            Ok(Some(value))
        }
        // Removed since it was listed.
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The operating system's words without its number.
pub(crate) fn words(error: Errno) -> String {
    let text = std::io::Error::from(error).to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_lowercase())
}
