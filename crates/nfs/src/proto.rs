//! The types of NFS version 3 (RFC 1813 2.5, 2.6) that occur in many procedures: their numbers, how
//! attributes are encoded, how what a caller sets is decoded.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use larder_base::Timestamp;
use larder_fs::{Attr, Changed, FileKind, FsError, PreAttr, SetAttr, SetTime};

use super::xdr::{Garbage, Reader, Writer};

pub const NFS_PROGRAM: u32 = 100_003;
pub const NFS_V3: u32 = 3;
pub const NFS_V4: u32 = 4;

/// RFC 1813 3.3: the procedures, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Proc {
    Null,
    GetAttr,
    SetAttr,
    Lookup,
    Access,
    ReadLink,
    Read,
    Write,
    Create,
    MkDir,
    SymLink,
    MkNod,
    Remove,
    RmDir,
    Rename,
    Link,
    ReadDir,
    ReadDirPlus,
    FsStat,
    FsInfo,
    PathConf,
    Commit,
}

pub const PROCS: usize = 22;

/// The attributes that follow the status of a failed call (each procedure's `resfail`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailShape {
    Nothing,
    /// `post_op_attr` of the object that the call names first.
    Post,
    /// `wcc_data` of it.
    Wcc,
    /// RENAME: of both directories.
    WccWcc,
    /// LINK: `post_op_attr` of the file, `wcc_data` of the directory.
    PostWcc,
}

impl Proc {
    pub const ALL: [Proc; PROCS] = [
        Proc::Null,
        Proc::GetAttr,
        Proc::SetAttr,
        Proc::Lookup,
        Proc::Access,
        Proc::ReadLink,
        Proc::Read,
        Proc::Write,
        Proc::Create,
        Proc::MkDir,
        Proc::SymLink,
        Proc::MkNod,
        Proc::Remove,
        Proc::RmDir,
        Proc::Rename,
        Proc::Link,
        Proc::ReadDir,
        Proc::ReadDirPlus,
        Proc::FsStat,
        Proc::FsInfo,
        Proc::PathConf,
        Proc::Commit,
    ];

    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    pub fn name(self) -> &'static str {
        match self {
            Proc::Null => "null",
            Proc::GetAttr => "getattr",
            Proc::SetAttr => "setattr",
            Proc::Lookup => "lookup",
            Proc::Access => "access",
            Proc::ReadLink => "readlink",
            Proc::Read => "read",
            Proc::Write => "write",
            Proc::Create => "create",
            Proc::MkDir => "mkdir",
            Proc::SymLink => "symlink",
            Proc::MkNod => "mknod",
            Proc::Remove => "remove",
            Proc::RmDir => "rmdir",
            Proc::Rename => "rename",
            Proc::Link => "link",
            Proc::ReadDir => "readdir",
            Proc::ReadDirPlus => "readdirplus",
            Proc::FsStat => "fsstat",
            Proc::FsInfo => "fsinfo",
            Proc::PathConf => "pathconf",
            Proc::Commit => "commit",
        }
    }

    /// Refused on an export that is read-only.
    pub fn modifies(self) -> bool {
        self == Proc::Write || self.once()
    }

    /// Must not be carried out twice: a retry is answered from the duplicate request cache. WRITE
    /// is not among them: its client holds back what overlaps until it has the answer.
    pub fn once(self) -> bool {
        use Proc::*;
        matches!(self, SetAttr | Create | MkDir | SymLink | MkNod | Remove | RmDir | Rename | Link)
    }

    /// More than one look at the object of its handle: what the first one allowed, the next ones do (`ops.inode_held`).
    pub fn judges_first(self) -> bool {
        !matches!(self, Proc::Null | Proc::GetAttr | Proc::FsStat | Proc::FsInfo | Proc::PathConf)
    }

    pub fn fail_shape(self) -> FailShape {
        use Proc::*;
        match self {
            Null | GetAttr => FailShape::Nothing,
            Lookup | Access | ReadLink | Read | ReadDir | ReadDirPlus | FsStat | FsInfo | PathConf => FailShape::Post,
            SetAttr | Write | Create | MkDir | SymLink | MkNod | Remove | RmDir | Commit => FailShape::Wcc,
            Rename => FailShape::WccWcc,
            Link => FailShape::PostWcc,
        }
    }
}

/// RFC 1813 2.6: `nfsstat3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    RoFs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    ServerFault = 10006,
    BadType = 10007,
    Jukebox = 10008,
}

impl From<&FsError> for Status {
    fn from(error: &FsError) -> Self {
        match error {
            FsError::NotFound => Status::NoEnt,
            FsError::Exists => Status::Exist,
            FsError::NotDirectory => Status::NotDir,
            FsError::IsDirectory => Status::IsDir,
            FsError::NotEmpty => Status::NotEmpty,
            FsError::Access => Status::Acces,
            FsError::NotPermitted => Status::Perm,
            FsError::Stale => Status::Stale,
            FsError::NoSpace(_) => Status::NoSpc,
            FsError::Quota => Status::DQuot,
            FsError::ReadOnly(_) => Status::RoFs,
            FsError::NameTooLong => Status::NameTooLong,
            FsError::FileTooLarge => Status::FBig,
            FsError::TooManyLinks => Status::MLink,
            FsError::Invalid(_) | FsError::TooBig => Status::Inval,
            FsError::NotSync => Status::NotSync,
            FsError::NotSupported => Status::NotSupp,
            FsError::Busy(_) | FsError::Locked | FsError::Replica => Status::Jukebox,
            // Not for later: it may be open for days.
            FsError::Shared => Status::Acces,
            // Extended attributes do not occur in NFS v3.
            FsError::NoAttribute => Status::ServerFault,
            FsError::Io(_) | FsError::Poisoned(_) | FsError::Unsupported(_) | FsError::Refused(_) => Status::Io,
        }
    }
}

/// Why a procedure has no result.
#[derive(Debug)]
pub enum Fail {
    /// GARBAGE_ARGS.
    Garbage,
    Status(Status),
}

impl From<Garbage> for Fail {
    fn from(_: Garbage) -> Self {
        Fail::Garbage
    }
}

impl From<FsError> for Fail {
    fn from(error: FsError) -> Self {
        if let FsError::Io(_) | FsError::Poisoned(_) | FsError::Unsupported(_) = error {
            // Every client repeats every call: the volume says it once, louder.
            tracing::debug!(%error, "an NFS call failed");
        }
        Fail::Status((&error).into())
    }
}

impl From<Status> for Fail {
    fn from(status: Status) -> Self {
        Fail::Status(status)
    }
}

/// `ftype3`.
pub fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// The longest file name that is looked at; longer ones are an error of their own ([`Status::NameTooLong`]).
pub const NAME_DECODED_MAX: usize = 64 << 10;

impl<'a> Reader<'a> {
    /// `filename3`. What RFC 1813 3.2 asks of names is for [`check_name`].
    pub fn name(&mut self) -> Result<&'a [u8], Garbage> {
        self.opaque(NAME_DECODED_MAX)
    }

    /// `nfstime3`: unsigned seconds, and less than a second of nanoseconds.
    pub fn time(&mut self) -> Result<Timestamp, Fail> {
        let (secs, nanos) = (self.u32()?, self.u32()?);
        let valid = nanos < 1_000_000_000;
        if valid { Ok(Timestamp::new(secs.into(), nanos)) } else { Err(Status::Inval.into()) }
    }

    fn set_time(&mut self) -> Result<Option<SetTime>, Fail> {
        match self.u32()? {
            0 => Ok(None),
            1 => Ok(Some(SetTime::Now)),
            2 => Ok(Some(SetTime::To(self.time()?))),
            _ => Err(Fail::Garbage),
        }
    }

    fn optional_u32(&mut self) -> Result<Option<u32>, Garbage> {
        if self.bool()? { self.u32().map(Some) } else { Ok(None) }
    }

    /// `sattr3`.
    pub fn set_attr(&mut self) -> Result<SetAttr, Fail> {
        Ok(SetAttr {
            mode: self.optional_u32()?.map(|mode| mode & 0o7777),
            uid: self.optional_u32()?.filter(|&id| id != NO_ID),
            gid: self.optional_u32()?.filter(|&id| id != NO_ID),
            size: if self.bool()? { Some(self.u64()?) } else { None },
            atime: self.set_time()?,
            mtime: self.set_time()?,
            ..SetAttr::default()
        })
    }
}

/// RFC 1813 3.2: an empty name, or one with characters that no name may have, is NFS3ERR_ACCES.
pub fn check_name(name: &[u8]) -> Result<(), Fail> {
    if name.len() > larder_fs::NAME_BYTES_MAX {
        return Err(Status::NameTooLong.into());
    }
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Status::Acces.into());
    }
    Ok(())
}

/// Bytes of `fattr3` and of a `post_op_attr` that has it.
pub const ATTR_BYTES: usize = 84;
pub const POST_ATTR_BYTES: usize = 4 + ATTR_BYTES;

/// The id with which chown(2) leaves an owner as it is. No user has it.
const NO_ID: u32 = u32::MAX;

/// Sets the `fsid` of snapshots apart from that of their export.
const PAST: u64 = u64::from_be_bytes(*b"past\xd5\x9a\x37\xc1");

impl Writer {
    pub fn status(&mut self, status: Status) {
        self.u32(status as u32);
    }

    /// `nfstime3` has unsigned seconds: times before 1970 and after 2106 show as the nearest it has.
    fn time(&mut self, time: Timestamp) {
        match u32::try_from(time.secs) {
            Ok(secs) => self.u64(u64::from(secs) << 32 | u64::from(time.nanos)),
            Err(_) => self.u64(if time.secs < 0 { 0 } else { u64::from(u32::MAX) << 32 }),
        }
    }

    /// `fattr3` (2.5). What lies in snapshots is a file system of its own, so programs that stay in one do not enter it.
    pub fn attr(&mut self, attr: &Attr, fsid: u64) {
        self.u32(kind_number(attr.kind));
        self.u32(attr.mode & 0o7777);
        self.u32(attr.nlink);
        self.u32(attr.uid);
        self.u32(attr.gid);
        self.u64(attr.size);
        self.u64(attr.allocated);
        self.u32(attr.rdev.0);
        self.u32(attr.rdev.1);
        self.u64(if attr.id.ino.is_past() { fsid ^ PAST } else { fsid });
        self.u64(attr.id.ino.0);
        self.time(attr.atime);
        self.time(attr.mtime);
        self.time(attr.ctime);
    }

    /// `post_op_attr`.
    pub fn post_attr(&mut self, attr: Option<&Attr>, fsid: u64) {
        self.bool(attr.is_some());
        if let Some(attr) = attr {
            self.attr(attr, fsid);
        }
    }

    fn pre_attr(&mut self, before: &PreAttr) {
        self.bool(true);
        self.u64(before.size);
        self.time(before.mtime);
        self.time(before.ctime);
    }

    /// `wcc_data`.
    pub fn wcc(&mut self, changed: &Changed, fsid: u64) {
        self.pre_attr(&changed.before);
        self.post_attr(Some(&changed.after), fsid);
    }

    /// `wcc_data` without the part before: what a call knows that changed nothing.
    pub fn wcc_after(&mut self, after: Option<&Attr>, fsid: u64) {
        self.bool(false);
        self.post_attr(after, fsid);
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use larder_fs::{FileId, Ino};
    use proptest::prelude::*;

    pub fn attr() -> Attr {
        Attr {
            id: FileId { ino: Ino(0x77), generation: 1 },
            kind: FileKind::File,
            mode: 0o4755,
            nlink: 2,
            uid: 1000,
            gid: 100,
            size: 5 << 32,
            allocated: 4096,
            rdev: (0, 0),
            atime: Timestamp::new(1, 2),
            mtime: Timestamp::new(-5, 2),
            ctime: Timestamp::new(1 << 33, 9),
            btime: Timestamp::default(),
            change: 1,
            dos: 0,
        }
    }

    #[test]
    fn golden_attributes() {
        let mut w = Writer::default();
        w.post_attr(Some(&attr()), 0x99);
        let words: [u32; 22] =
            [1, 1, 0o4755, 2, 1000, 100, 5, 0, 0, 4096, 0, 0, 0, 0x99, 0, 0x77, 1, 2, 0, 0, u32::MAX, 0];
        let want: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(w.position(), POST_ATTR_BYTES);
        assert_eq!(w.into_inner(), want);
    }

    #[test]
    fn golden_set_attributes() {
        let words = [1, 0o100644, 0, 1, 7, 1, 0, 9, 1, 2, 5, 6];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        let set = Reader::new(&bytes).set_attr().unwrap();
        let want = SetAttr {
            mode: Some(0o644),
            gid: Some(7),
            size: Some(9),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::To(Timestamp::new(5, 6))),
            ..SetAttr::default()
        };
        assert_eq!(set, want);
        for len in 0..bytes.len() {
            assert!(matches!(Reader::new(&bytes[..len]).set_attr(), Err(Fail::Garbage)));
        }
        let no_time = [&5u32.to_be_bytes()[..], &1_000_000_000u32.to_be_bytes()].concat();
        assert!(matches!(Reader::new(&no_time).time(), Err(Fail::Status(Status::Inval))));
    }

    #[test]
    fn names() {
        let status = |name: &[u8]| check_name(name).err().map(|fail| format!("{fail:?}"));
        assert_eq!(status(b"a b\xff"), None);
        assert_eq!(status(&[b'x'; 255]), None);
        assert_eq!(status(&[b'x'; 256]).unwrap(), "Status(NameTooLong)");
        for bad in [&b""[..], b"a/b", b"a\0b"] {
            assert_eq!(status(bad).unwrap(), "Status(Acces)");
        }
    }

    #[test]
    fn procedures_are_numbered() {
        for (number, proc) in Proc::ALL.iter().enumerate() {
            assert_eq!(*proc as usize, number);
        }
        assert_eq!(Proc::from_number(21), Some(Proc::Commit));
        assert_eq!(Proc::from_number(22), None);
    }

    proptest! {
        #[test]
        fn set_attr_never_panics(bytes in proptest::collection::vec(0u8..3, 0..80)) {
            let _ = Reader::new(&bytes).set_attr();
        }
    }
}
