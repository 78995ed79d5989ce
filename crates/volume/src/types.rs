//! What callers of a volume say and hear: ids, attributes, credentials, errors.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::Timestamp;

/// The number of an inode; never reused within a volume's life. 1 is the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    pub const ROOT: Ino = Ino(1);
}

/// The longest name of a directory entry or an extended attribute, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest target of a symbolic link, in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// The largest value of an extended attribute, in bytes.
pub const XATTR_BYTES_MAX: usize = 65536;
/// The largest file: offsets are signed 64-bit in every protocol.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// The most hard links to one inode.
pub const LINKS_MAX: u32 = 1 << 30;
/// The largest single read or write.
pub const IO_BYTES_MAX: usize = 8 << 20;

/// An inode's identity that survives restarts and never aliases: NFS handles carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub ino: Ino,
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    File = 1,
    Directory = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    CharDevice = 6,
    BlockDevice = 7,
}

/// Attributes as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub id: FileId,
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes; of a symlink the length of its target, of a directory a size that grows with its entries.
    pub size: u64,
    /// Bytes that the data takes up in the store, before redundancy.
    pub allocated: u64,
    /// Major and minor number; (0, 0) but for devices.
    pub rdev: (u32, u32),
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// When the file was made (SMB's creation time; may be set).
    pub btime: Timestamp,
    /// Grows with every change of data or attributes: NFSv4's change attribute.
    pub change: u64,
    /// MS-FSCC 2.6 file attributes that have no POSIX meaning: READONLY, HIDDEN, SYSTEM, ARCHIVE,
    /// TEMPORARY, OFFLINE, NOT_CONTENT_INDEXED. Kept, not interpreted.
    pub dos: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    To(Timestamp),
}

/// What to change; `None` leaves as is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub btime: Option<Timestamp>,
    pub dos: Option<u32>,
    /// Change only if ctime is still this (RFC 1813 3.3.2 guard); otherwise [`FsError::NotSync`].
    pub guard_ctime: Option<Timestamp>,
}

/// Who asks. Every operation that takes one checks permissions as POSIX says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// The caller's own kernel has already checked (a FUSE mount with `default_permissions`):
    /// uid and gid are for ownership of new files and for the sgid/suid rules only.
    pub checked: bool,
}

impl Cred {
    pub fn new(uid: u32, gid: u32, groups: impl Into<Arc<[u32]>>) -> Self {
        Self { uid, gid, groups: groups.into(), checked: false }
    }

    pub fn root() -> Self {
        Self::new(0, 0, [])
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Permission bits asked for: r=4, w=2, x=1, as in access(2).
pub type AccessMask = u32;
pub const ACCESS_READ: AccessMask = 4;
pub const ACCESS_WRITE: AccessMask = 2;
pub const ACCESS_EXECUTE: AccessMask = 1;

/// How a name is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch {
    Exact,
    /// Exact first, then by Unicode simple case folding (SMB). Indexed: O(log n).
    Folded,
}

/// How [`crate::Volume::create`] treats a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// The existing file is returned; of the attributes only a size of 0 is applied (UNCHECKED).
    Unchecked,
    /// [`FsError::Exists`] (GUARDED, O_EXCL).
    Guarded,
    /// RFC 1813 3.3.8 EXCLUSIVE: a retry with the same verifier finds its file again. The
    /// verifier is kept durably until the first SETATTR; times of the file are not used for it.
    Exclusive([u8; 8]),
}

/// Size and times before an operation: RFC 1813 `wcc_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreAttr {
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub change: u64,
}

impl PreAttr {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime, change: attr.change }
    }
}

/// An inode changed by an operation, before and after, seen under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub before: PreAttr,
    pub after: Attr,
}

/// How far a write must have come when it is answered (RFC 1813 3.3.7 `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    Unstable,
    DataSync,
    FileSync,
}

/// Changes when unstable writes may have been lost: at every open of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteVerifier(pub [u8; 8]);

/// Data read, as it lies in caches: segments of it, in order, not copied together.
#[derive(Clone, Debug, Default)]
pub struct ReadData {
    pub chunks: Vec<Bytes>,
    /// The read reached the end of the file.
    pub eof: bool,
    /// Attributes after the read.
    pub attr: Option<Attr>,
}

impl ReadData {
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.iter().all(Bytes::is_empty)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub changed: Changed,
    /// At least what was asked for.
    pub stability: Stability,
    pub verifier: WriteVerifier,
}

/// One entry of a listing. `.` and `..` are not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Position after this entry: listing resumes behind it, whatever was added or removed in
    /// between. Stable for the life of the entry, at least 3, survives restarts.
    pub cookie: u64,
    pub name: Bytes,
    pub ino: Ino,
    pub kind: FileKind,
    /// Where attributes were asked for.
    pub attr: Option<Attr>,
}

#[derive(Clone, Debug)]
pub struct Listing {
    pub entries: Vec<DirEntry>,
    pub eof: bool,
    /// Entries made from now on lie at this cookie and behind: a listing that ends before it ends
    /// ([`crate::Volume::readdir_before`]).
    pub end: u64,
    /// The directory itself, after.
    pub dir: Attr,
}

/// What the files of a volume hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of data, holes left out; what the quota counts.
    pub data_bytes: u64,
    /// What records of them take up in segments, compressed, before redundancy.
    pub stored_bytes: u64,
}

/// Truth about room, in bytes and inodes, within the volume's quota if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// What can really be written now.
    pub available_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// POSIX rename: replaces.
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve room for what is not written of the range, which reads as zeros there; the size grows if need be.
    Extend,
    /// As `Extend`, but the size stays.
    KeepSize,
    /// Drop the data: the range becomes a hole. The size stays.
    PunchHole,
    /// Zeros, and room is reserved for the range; the size grows if need be.
    Zero,
    /// As `Zero`, but the size stays.
    ZeroKeepSize,
}

impl AllocateMode {
    /// Room for the range is set aside.
    pub fn reserves(self) -> bool {
        self != Self::PunchHole
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    Data,
    Hole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    Set,
    Create,
    Replace,
}

/// What happened, for caches above (a mounted kernel, SMB change notification). Sent after the
/// change is visible; a receiver that lags is told so by the channel and must forget all it knows.
#[derive(Clone, Debug)]
pub enum Event {
    /// `origin` is the tag that the caller gave to the operation's [`crate::Volume`] handle:
    /// a cache ignores what it did itself.
    Attr {
        origin: u32,
        ino: Ino,
    },
    Data {
        origin: u32,
        ino: Ino,
        offset: u64,
        len: u64,
    },
    Added {
        origin: u32,
        dir: Ino,
        name: Bytes,
        kind: FileKind,
    },
    Removed {
        origin: u32,
        dir: Ino,
        name: Bytes,
        ino: Ino,
        kind: FileKind,
    },
    Renamed {
        origin: u32,
        from: Ino,
        from_name: Bytes,
        to: Ino,
        to_name: Bytes,
        ino: Ino,
        kind: FileKind,
    },
}

/// When an operation that changes names or attributes returns. `commit`, `sync` and stable writes always wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// When the change is durable: the contract of NFS and SMB. A volume that is `relaxed` overrides it.
    Durable,
    /// When the change is visible and has its place in the order of changes: the contract of a local filesystem.
    Ordered,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckReport {
    pub inodes: u64,
    pub entries: u64,
    pub extents: u64,
    pub segments: u64,
    pub data_bytes: u64,
    /// One sentence each, naming the inode (and a path where one is known), what is wrong and what it means.
    pub problems: Vec<String>,
    /// Which of the problems begin with the number of an inode whose path is not in them yet.
    #[serde(skip)]
    pub(crate) of_inodes: Vec<(usize, Ino)>,
}

/// Errors of file operations: the closed set that every protocol maps to its own numbers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FsError {
    #[error("no such file or directory")]
    NotFound,
    #[error("file exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("directory not empty")]
    NotEmpty,
    /// EACCES: the mode bits say no.
    #[error("permission denied")]
    Access,
    /// EPERM: only the owner or root may.
    #[error("operation not permitted")]
    NotPermitted,
    /// The inode of a handle is gone.
    #[error("stale file handle")]
    Stale,
    #[error("no space left: {0}")]
    NoSpace(String),
    #[error("quota exceeded")]
    Quota,
    #[error("read-only volume: {0}")]
    ReadOnly(String),
    /// Written by a newer larder, in a way that this one would misread.
    #[error("{0}")]
    Unsupported(std::sync::Arc<str>),
    #[error("name too long")]
    NameTooLong,
    #[error("file too large")]
    FileTooLarge,
    #[error("too many links")]
    TooManyLinks,
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    #[error("attribute not found")]
    NoAttribute,
    #[error("value too large")]
    TooBig,
    /// The guard of a SETATTR did not match.
    #[error("the file changed meanwhile")]
    NotSync,
    #[error("not supported")]
    NotSupported,
    #[error("busy: {0}")]
    Busy(&'static str),
    /// It is encrypted, and its keys are not there.
    #[error("the volume is locked")]
    Locked,
    /// A client of another protocol has it open and does not share it.
    #[error("open elsewhere, and not shared for this")]
    Shared,
    /// The store below failed or returned what must not be trusted. Never a wrong answer instead.
    #[error("I/O error: {0}")]
    Io(Arc<str>),
    /// An earlier flush failed: what it lost is not known, so the volume refuses to write until reopened.
    #[error("the volume stopped accepting writes after a failure: {0}")]
    Poisoned(Arc<str>),
}

pub type FsResult<T> = Result<T, FsError>;
