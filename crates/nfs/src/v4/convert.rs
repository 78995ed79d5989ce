//! Between the words of the protocol and those of files.
//!
//! - `change4.never_told_twice`: a number of changes that was told stands for one content, over crashes too: what a crash took away
//!   is counted again, by other changes. So each opening of a volume has a base of its own, behind those before it, and clients read
//!   again what they keep (RFC 8881 5.8.1.4).

use larder_base::Timestamp;
use larder_files::Files;
use larder_fs::{Attr, Changed, FileKind, FsError, Stability};

use super::types::{ChangeInfo, FileType4, NfsStat, StableHow, Time4};

pub fn stat_of(error: &FsError) -> NfsStat {
    if let FsError::Io(_) | FsError::Poisoned(_) | FsError::Unsupported(_) = error {
        // Every client repeats every call: the volume says it once, louder.
        tracing::debug!(%error, "an NFSv4 operation failed");
    }
    match error {
        FsError::NotFound => NfsStat::NoEnt,
        FsError::Exists => NfsStat::Exist,
        FsError::NotDirectory => NfsStat::NotDir,
        FsError::IsDirectory => NfsStat::IsDir,
        FsError::NotEmpty => NfsStat::NotEmpty,
        FsError::Access => NfsStat::Access,
        FsError::NotPermitted => NfsStat::Perm,
        FsError::Stale => NfsStat::Stale,
        FsError::NoSpace(_) => NfsStat::NoSpc,
        FsError::Quota => NfsStat::DQuot,
        FsError::ReadOnly(_) => NfsStat::RoFs,
        FsError::NameTooLong => NfsStat::NameTooLong,
        FsError::FileTooLarge => NfsStat::FBig,
        FsError::TooManyLinks => NfsStat::MLink,
        FsError::Invalid(_) => NfsStat::Inval,
        FsError::TooBig => NfsStat::XattrTooBig,
        FsError::NoAttribute => NfsStat::NoXattr,
        FsError::NotSupported => NfsStat::NotSupp,
        FsError::Busy(_) | FsError::Locked | FsError::Replica | FsError::NotSync => NfsStat::Delay,
        // Another door's open denies it.
        FsError::Shared => NfsStat::FileOpen,
        FsError::Io(_) | FsError::Poisoned(_) | FsError::Unsupported(_) | FsError::Refused(_) => NfsStat::Io,
    }
}

pub fn kind_of(kind: FileKind) -> FileType4 {
    match kind {
        FileKind::File => FileType4::Regular,
        FileKind::Directory => FileType4::Directory,
        FileKind::BlockDevice => FileType4::Block,
        FileKind::CharDevice => FileType4::Character,
        FileKind::Symlink => FileType4::Link,
        FileKind::Socket => FileType4::Socket,
        FileKind::Fifo => FileType4::Fifo,
    }
}

/// An operation on data needs a regular file.
pub fn check_file(attr: &Attr, minor: u32) -> Result<(), NfsStat> {
    match attr.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(NfsStat::IsDir),
        FileKind::Symlink if minor > 0 => Err(NfsStat::Symlink),
        _ if minor > 0 => Err(NfsStat::WrongType),
        _ => Err(NfsStat::Inval),
    }
}

pub fn time_of(time: Timestamp) -> Time4 {
    Time4 { seconds: time.secs, nanoseconds: time.nanos }
}

pub fn timestamp(time: Time4) -> Result<Timestamp, NfsStat> {
    let is_valid = time.nanoseconds < 1_000_000_000;
    if is_valid { Ok(Timestamp::new(time.seconds, time.nanoseconds)) } else { Err(NfsStat::Inval) }
}

/// The number of changes of an object as clients are told it (`change4.never_told_twice`).
pub fn told_change(files: &Files, change: u64) -> u64 {
    files.change_base().wrapping_add(change)
}

pub fn change_of(files: &Files, changed: &Changed) -> ChangeInfo {
    let (before, after) = (told_change(files, changed.before.change), told_change(files, changed.after.change));
    ChangeInfo { atomic: true, before, after }
}

/// Of a directory that did not change.
pub fn unchanged(files: &Files, dir: &Attr) -> ChangeInfo {
    let change = told_change(files, dir.change);
    ChangeInfo { atomic: true, before: change, after: change }
}

pub fn stability(how: StableHow) -> Stability {
    match how {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

pub fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}

/// A name in a directory. Its bytes are the client's business, as in version 3.
pub fn check_name(name: &[u8]) -> Result<(), NfsStat> {
    if name.is_empty() {
        return Err(NfsStat::Inval);
    }
    if name.len() > larder_fs::NAME_BYTES_MAX {
        return Err(NfsStat::NameTooLong);
    }
    if matches!(name, b"." | b"..") {
        return Err(NfsStat::BadName);
    }
    if name.iter().any(|byte| matches!(byte, b'/' | 0)) { Err(NfsStat::BadChar) } else { Ok(()) }
}
