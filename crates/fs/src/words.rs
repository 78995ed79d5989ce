//! Ids, attributes, credentials, and what calls are given and answer.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use larder_base::Timestamp;

/// The number of an inode, never reused within a volume's life. 1 is the root directory; 0 is no
/// inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
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

/// An inode's identity that survives restarts and never refers to another file: NFS handles carry
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the inode.
    pub ino: Ino,
    /// Random for each inode, so a client cannot guess the handle of a file that it may not look
    /// up.
    pub generation: u64,
}

/// The type of an inode, with the numbers that stand in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A Unix domain socket.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

/// Attributes as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The identity of the inode.
    pub id: FileId,
    /// Its type, which never changes.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// How many names it has; of a directory, 2 and its subdirectories.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Bytes; of a symlink the length of its target, of a directory a size that grows with its
    /// entries.
    pub size: u64,
    /// Bytes that the data takes up in the store, before redundancy, with reserved ranges.
    pub allocated: u64,
    /// Major and minor number; (0, 0) but for devices.
    pub rdev: (u32, u32),
    /// Last read, by the rules of relatime.
    pub atime: Timestamp,
    /// Last change of data or entries.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Creation (the creation time of SMB; a client may set it).
    pub btime: Timestamp,
    /// Grows with every change of data or attributes: NFSv4's change attribute.
    pub change: u64,
    /// MS-FSCC 2.6 file attributes that have no POSIX meaning: READONLY, HIDDEN, SYSTEM, ARCHIVE,
    /// TEMPORARY, OFFLINE, NOT_CONTENT_INDEXED. Kept, not interpreted.
    pub dos: u32,
}

/// How to set a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// To the time of the operation.
    Now,
    /// To a time that the client chose, which only the owner may do.
    To(Timestamp),
}

/// Attributes to change. `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, 0 to 0o7777.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Bytes, at most [`FILE_BYTES_MAX`]: truncates, or grows by a hole.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last change of data.
    pub mtime: Option<SetTime>,
    /// Time of creation.
    pub btime: Option<Timestamp>,
    /// File attributes, as [`Attr::dos`].
    pub dos: Option<u32>,
    /// Change only if ctime is still this (RFC 1813 3.3.2 guard); otherwise [`FsError::NotSync`].
    pub guard_ctime: Option<Timestamp>,
}

/// The identity that an operation is judged by. Every operation that takes one checks permissions
/// by the rules of POSIX and of access control lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// The user; 0 may do everything.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// The caller's own kernel has already checked (a FUSE mount with `default_permissions`):
    /// uid and gid are for ownership of new files and for the sgid/suid rules only.
    pub checked: bool,
    /// The machine and the login behind it. Permissions do not depend on it.
    pub client: Client,
}

/// The machine that asks, and the login that it asks with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// `None`: this machine.
    pub address: Option<IpAddr>,
    /// `None`: the door knows numbers alone.
    pub user: Option<Arc<str>>,
}

impl Cred {
    /// A user as a server knows it: nothing is checked yet.
    pub fn new(uid: u32, gid: u32, groups: impl Into<Arc<[u32]>>) -> Self {
        Self { uid, gid, groups: groups.into(), checked: false, client: Client::default() }
    }

    /// The same user, asking from `address`, logged in as `user`.
    #[must_use]
    pub fn of_client(self, address: Option<IpAddr>, user: Option<&str>) -> Self {
        let client = Client { address: address.map(|address| address.to_canonical()), user: user.map(Arc::from) };
        Self { client, ..self }
    }

    /// User 0, group 0.
    pub fn root() -> Self {
        Self::new(0, 0, [])
    }

    /// Root's rights, in the name of the same client: what was judged by other rules is changed, and who changed it is known.
    #[must_use]
    pub fn as_root(&self) -> Self {
        Self { client: self.client.clone(), ..Self::root() }
    }

    /// Whether `gid` is the primary group or a supplementary one.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Permission bits asked for: r=4, w=2, x=1, as in access(2).
pub type AccessMask = u32;
/// Read a file, list a directory.
pub const ACCESS_READ: AccessMask = 4;
/// Write a file, change the entries of a directory.
pub const ACCESS_WRITE: AccessMask = 2;
/// Execute a file, search a directory.
pub const ACCESS_EXECUTE: AccessMask = 1;

/// How a name is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch {
    /// Byte by byte.
    Exact,
    /// Exact first, then by Unicode simple case folding (SMB). Indexed: O(log n).
    Folded,
}

/// The kind of an inode that is made without a name.
#[derive(Clone, Copy, Debug)]
pub enum Unnamed<'a> {
    /// A regular file.
    File,
    /// With its target.
    Symlink(&'a [u8]),
    /// A FIFO, a socket or a device node, with (major, minor) of a device.
    Special(FileKind, (u32, u32)),
}

/// How `create` of a tree treats a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// The existing file is returned; of the attributes only a size of 0 is applied (UNCHECKED).
    Unchecked,
    /// The call fails with [`FsError::Exists`] (GUARDED, O_EXCL).
    Guarded,
    /// RFC 1813 3.3.8 EXCLUSIVE: a retry with the same verifier finds its file again. The verifier
    /// is kept durably until the first SETATTR; times of the file are not used for it.
    Exclusive([u8; 8]),
}

/// Size and times before an operation: RFC 1813 `wcc_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreAttr {
    /// Bytes.
    pub size: u64,
    /// Last change of data or entries.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// The change attribute.
    pub change: u64,
}

impl PreAttr {
    /// Of these attributes.
    pub fn of(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime, change: attr.change }
    }
}

/// An inode changed by an operation, before and after, seen under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Before the operation.
    pub before: PreAttr,
    /// After the operation.
    pub after: Attr,
}

/// How safe a write must be when it is answered (RFC 1813 3.3.7 `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// In memory; durable with the next commit, or within 5 s.
    Unstable,
    /// The data is durable. The volume treats it as `FileSync`.
    DataSync,
    /// Data and attributes are durable.
    FileSync,
}

/// Differs between any two openings of a volume, because unstable writes may have been lost in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteVerifier(pub [u8; 8]);

/// Data as it lies in caches: pieces in order, not copied together.
#[derive(Clone, Debug, Default)]
pub struct ReadData {
    /// The bytes, in order.
    pub chunks: Vec<Bytes>,
    /// The read reached the end of the file.
    pub eof: bool,
    /// Attributes after the read.
    pub attr: Option<Attr>,
}

impl ReadData {
    /// Bytes of all chunks.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.chunks.iter().all(Bytes::is_empty)
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The file before and after.
    pub changed: Changed,
    /// At least as much as was asked for.
    pub stability: Stability,
    /// The verifier of this opening: if it differs at the commit, the data may be lost.
    pub verifier: WriteVerifier,
}

/// One entry of a listing. `.` and `..` are not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Position after this entry: listing resumes behind it, whatever was added or removed in
    /// between. Stable for the life of the entry, at least 3, survives restarts.
    pub cookie: u64,
    /// The name, 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: Bytes,
    /// The inode that it leads to.
    pub ino: Ino,
    /// The type of that inode.
    pub kind: FileKind,
    /// Attributes, if the caller asked for them and the inode still exists.
    pub attr: Option<Attr>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The entries, in the order of cookies.
    pub entries: Vec<DirEntry>,
    /// There are no entries after these.
    pub eof: bool,
    /// Entries made from now on get this cookie or a later one. A caller passes it to
    /// `readdir_before`, so that a listing ends although entries are added.
    pub end: u64,
    /// The directory itself, afterwards.
    pub dir: Attr,
}

/// The bytes that the files of a volume take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of data, holes left out, and reserved bytes.
    pub data_bytes: u64,
    /// The bytes that the quota counts: `data_bytes`, and the charge for names and attributes.
    pub charged_bytes: u64,
    /// Bytes that their records take up in segments: compressed, before redundancy.
    pub stored_bytes: u64,
}

/// What the files of a user or a group take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerUse {
    /// It is a group.
    pub is_group: bool,
    /// The uid or gid.
    pub id: u32,
    /// Bytes of data that is stored, holes left out, reserved bytes, and the charge for names and attributes.
    pub used_bytes: u64,
    /// Files, directories and all else.
    pub inodes: u64,
    /// The most that they may take up.
    pub quota_bytes: Option<u64>,
}

/// Room in bytes and inodes, within the quota of the volume if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of the store, or the quota.
    pub total_bytes: u64,
    /// Bytes that are free, or will be once garbage is collected. Includes the reserve for
    /// metadata.
    pub free_bytes: u64,
    /// Bytes that can really be written now.
    pub available_bytes: u64,
    /// Inodes that exist and those that still fit.
    pub total_files: u64,
    /// Inodes that still fit, estimated from the free bytes.
    pub free_files: u64,
}

/// How a rename treats the target name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// POSIX rename: replaces.
    Replace,
    /// Fails with [`FsError::Exists`] if the target exists (RENAME_NOREPLACE).
    NoReplace,
    /// Both names must exist and change places (RENAME_EXCHANGE).
    Exchange,
}

/// The operations of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve room for the unwritten parts of the range, which read as zeros. The size grows if
    /// need be.
    Extend,
    /// As `Extend`, but the size stays.
    KeepSize,
    /// Drop the data: the range becomes a hole. The size stays.
    PunchHole,
    /// The range reads as zeros, and room is reserved for it. The size grows if need be.
    Zero,
    /// As `Zero`, but the size stays.
    ZeroKeepSize,
}

impl AllocateMode {
    /// Whether the operation sets room aside for the range.
    pub fn reserves(self) -> bool {
        self != Self::PunchHole
    }
}

/// The target of a seek, as SEEK_DATA and SEEK_HOLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte in a hole. The end of the file counts as one.
    Hole,
}

/// How an extended attribute is set, as the flags of setxattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Made or replaced.
    Set,
    /// Fails with [`FsError::Exists`] if it exists.
    Create,
    /// Fails with [`FsError::NoAttribute`] if it does not exist.
    Replace,
}

/// A change, for caches above (a mounted kernel, SMB change notification). Sent after the change is
/// visible. A receiver that lags is told so by the channel and must drop its cache.
///
/// `origin` is the tag of the handle that made the change, so a cache can skip
/// its own changes.
#[derive(Clone, Debug)]
pub enum Event {
    /// Attributes of an inode changed.
    Attr {
        /// The tag of the handle that made the change.
        origin: u32,
        /// The inode.
        ino: Ino,
    },
    /// Bytes of a file changed.
    Data {
        /// The tag of the handle that made the change.
        origin: u32,
        /// The file.
        ino: Ino,
        /// The first byte that may have changed.
        offset: u64,
        /// How many bytes may have changed.
        len: u64,
    },
    /// A directory has a new name.
    Added {
        /// The tag of the handle that made the change.
        origin: u32,
        /// The directory.
        dir: Ino,
        /// The new name.
        name: Bytes,
        /// The type of the inode that it leads to.
        kind: FileKind,
    },
    /// A directory has lost a name.
    Removed {
        /// The tag of the handle that made the change.
        origin: u32,
        /// The directory.
        dir: Ino,
        /// The name that is gone.
        name: Bytes,
        /// The inode that it led to; it may have other names. 0 if nobody knows: another program of the host took the name.
        ino: Ino,
        /// The type of that inode.
        kind: FileKind,
    },
    /// A name moved. The target name, if there was one, is reported as removed before.
    Renamed {
        /// The tag of the handle that made the change.
        origin: u32,
        /// The directory of the old name.
        from: Ino,
        /// The old name.
        from_name: Bytes,
        /// The directory of the new name.
        to: Ino,
        /// The new name.
        to_name: Bytes,
        /// The inode that moved.
        ino: Ino,
        /// Its type.
        kind: FileKind,
    },
    /// An entry's data or attributes changed, told by a door that knows the name that its client used. It comes beside
    /// [`Event::Attr`] and [`Event::Data`], which know no name, and when the door's protocol has others hear of it.
    Modified {
        /// The tag of the handle that made the change.
        origin: u32,
        /// The directory.
        dir: Ino,
        /// The entry's name.
        name: Bytes,
        /// The inode that it leads to.
        ino: Ino,
        /// Its type.
        kind: FileKind,
        /// What changed of it.
        what: Aspects,
    },
    /// Changes were made of which no event tells.
    Lost {
        /// The tag of the handle that would have told of them.
        origin: u32,
    },
}

impl Event {
    /// The tag of the handle that made the change.
    pub fn origin(&self) -> u32 {
        match self {
            Event::Attr { origin, .. }
            | Event::Data { origin, .. }
            | Event::Added { origin, .. }
            | Event::Removed { origin, .. }
            | Event::Renamed { origin, .. }
            | Event::Modified { origin, .. }
            | Event::Lost { origin } => *origin,
        }
    }
}

/// What changed of an inode. The bits are FILE_NOTIFY_CHANGE_* (MS-SMB2 2.2.35), so that nobody converts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aspects(pub u32);

impl Aspects {
    /// Owner, mode, times or attributes, which of them is not known.
    pub const ATTRIBUTES: Aspects = Aspects(0x4);
    /// The data: size, time of the last write, and attributes for those who ask for no times.
    pub const DATA: Aspects = Aspects(0x8 | 0x10 | 0x4);
}

/// When a read moves an access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtimeMoves {
    /// noatime.
    Never,
    /// relatime: the first read after a change, and one a day.
    Relatively,
    /// strictatime.
    Always,
}

/// The access times that reads through a handle of a volume move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// When.
    pub moves: AtimeMoves,
    /// Directories' as well (no nodiratime).
    pub of_directories: bool,
}

impl AccessTimes {
    /// Reading changes nothing.
    pub const NEVER: Self = Self { moves: AtimeMoves::Never, of_directories: false };
    /// As local filesystems have it unless told otherwise.
    pub const RELATIVE: Self = Self { moves: AtimeMoves::Relatively, of_directories: true };
}

/// When an operation that changes names or attributes returns. `commit`, `sync` and stable writes
/// always wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Once the change is durable: the contract of NFS and SMB. A volume's relaxed mode
    /// overrides it.
    Durable,
    /// Once the change is visible and has its place in the order of changes: the contract of a
    /// local filesystem.
    Ordered,
}

/// A reason to keep a snapshot: while there is one, it is not destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// 1 to 200 bytes, unique among the holds of a snapshot.
    pub reason: String,
    /// The hold ends by itself then, and not before: nobody can shorten it. `None`: it ends when it is released.
    pub until: Option<Timestamp>,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Unique among the snapshots of the volume; 1 to 200 bytes of `[A-Za-z0-9_.+-]`.
    pub name: String,
    /// Grows from one snapshot to the next, is never used again and never changes.
    pub number: u64,
    /// The moment that it shows.
    pub created: Timestamp,
    /// Bytes of the store that the files of then take up, before redundancy.
    pub referenced_bytes: u64,
    /// Bytes of the store that nothing else needs: destroying this snapshot alone gives them back.
    pub used_bytes: u64,
    /// Bytes of the store written between the snapshot before and this one, and not given up again.
    pub written_bytes: u64,
    /// The reasons to keep it, those that have ended left out.
    pub holds: Vec<Hold>,
    /// The names of its clones. It is not destroyed while there are any.
    pub clones: Vec<String>,
}

/// How a path differs between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffKind {
    /// It is there in the later one only.
    Created,
    /// Its data or attributes are others; of a directory, its entries.
    Modified,
    /// It was there in the earlier one only.
    Removed,
    /// It had another path in the earlier one.
    Renamed,
}

/// A path that differs between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// How it differs.
    pub change: DiffKind,
    /// The type of the inode.
    pub kind: FileKind,
    /// The path from the top of the volume: in the earlier moment where it is removed, in the later one otherwise.
    pub path: String,
    /// The path in the earlier moment, where it is renamed.
    pub from: Option<String>,
}
