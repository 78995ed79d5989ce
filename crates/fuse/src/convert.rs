//! Between the kernel's words and the volume's: attributes, times, device numbers, modes, errors.
//! Pure functions, no I/O.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use larder_base::Timestamp;
use larder_fs::{AllocateMode, Attr, FileKind, FsError, SetTime};
use rustix::io::Errno as Os;

/// `st_blksize`: the size worth reading and writing at a time. stdio buffers that much, which matters because every
/// write of a program is one request here (there is no write-back cache).
const BLOCK_BYTES: u32 = 128 << 10;

const FALLOC_KEEP_SIZE: i32 = 0x01;
const FALLOC_PUNCH_HOLE: i32 = 0x02;
const FALLOC_ZERO_RANGE: i32 = 0x10;

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The kind that the type bits of a `mknod` mode ask for; none for what `mknod` cannot make.
pub(super) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & 0o170_000 {
        0 | 0o100_000 => Some(FileKind::File),
        0o010_000 => Some(FileKind::Fifo),
        0o140_000 => Some(FileKind::Socket),
        0o020_000 => Some(FileKind::CharDevice),
        0o060_000 => Some(FileKind::BlockDevice),
        _ => None,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.id.ino.0),
        size: attr.size,
        blocks: attr.allocated.div_ceil(512),
        atime: attr.atime.to_system_time(),
        mtime: attr.mtime.to_system_time(),
        ctime: attr.ctime.to_system_time(),
        crtime: attr.btime.to_system_time(),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: encode_dev(attr.rdev),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// The reply to a look-up that found nothing: inode 0 makes the kernel remember the absence.
pub(super) fn negative_attr() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// Linux' `new_encode_dev`: 12 bits of major, 20 bits of minor, the minor split around the major.
pub(super) fn encode_dev((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

pub(super) fn decode_dev(dev: u32) -> (u32, u32) {
    ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xf_ff00))
}

/// Any time at all: a user chooses it.
pub(super) fn time_from_kernel(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp::new(since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = (before.as_secs() as i64).wrapping_neg();
            match before.subsec_nanos() {
                0 => Timestamp::new(whole, 0),
                nanos => Timestamp::new(whole.saturating_sub(1), 1_000_000_000 - nanos),
            }
        }
    }
}

pub(super) fn set_time(time: Option<TimeOrNow>) -> Option<SetTime> {
    time.map(|time| match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(time_from_kernel(time)),
    })
}

/// The request of fallocate(2); `None` for modes that no volume has (collapse, insert, unshare).
pub(super) fn allocate_mode(mode: i32) -> Option<AllocateMode> {
    const PUNCH: i32 = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
    const ZERO_KEEP: i32 = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
    match mode {
        0 => Some(AllocateMode::Extend),
        FALLOC_KEEP_SIZE => Some(AllocateMode::KeepSize),
        PUNCH => Some(AllocateMode::PunchHole),
        FALLOC_ZERO_RANGE => Some(AllocateMode::Zero),
        ZERO_KEEP => Some(AllocateMode::ZeroKeepSize),
        _ => None,
    }
}

pub(super) fn os(errno: Os) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

pub(super) fn errno(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::Exists => Errno::EEXIST,
        FsError::NotDirectory => Errno::ENOTDIR,
        FsError::IsDirectory => Errno::EISDIR,
        FsError::NotEmpty => Errno::ENOTEMPTY,
        FsError::Access => Errno::EACCES,
        FsError::NotPermitted => Errno::EPERM,
        FsError::Stale => os(Os::STALE),
        FsError::NoSpace(_) => Errno::ENOSPC,
        FsError::Quota => os(Os::DQUOT),
        FsError::ReadOnly(_) => Errno::EROFS,
        FsError::NameTooLong => Errno::ENAMETOOLONG,
        FsError::FileTooLarge => Errno::EFBIG,
        FsError::TooManyLinks => Errno::EMLINK,
        FsError::Invalid(_) => Errno::EINVAL,
        FsError::NoAttribute => os(Os::NODATA),
        FsError::TooBig => Errno::E2BIG,
        FsError::NotSync => Errno::EAGAIN,
        FsError::NotSupported => Errno::EOPNOTSUPP,
        FsError::Busy(_) | FsError::Shared | FsError::Locked | FsError::Replica => Errno::EBUSY,
        FsError::Io(why) | FsError::Poisoned(why) | FsError::Unsupported(why) | FsError::Refused(why) => {
            tracing::warn!(%why, "the mount answers EIO");
            Errno::EIO
        }
    }
}

/// How far `now` lies after `then`; zero if it does not.
pub(super) fn age(now: Timestamp, then: Timestamp) -> Duration {
    now.to_system_time().duration_since(then.to_system_time()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for dev in [(0, 0), (1, 3), (8, 255), (8, 256), (0xfff, 0xf_ffff), (259, 70_000)] {
            assert_eq!(decode_dev(encode_dev(dev)), dev);
        }
        assert_eq!(encode_dev((1, 3)), 0x103);
    }

    #[test]
    fn every_time_that_a_user_may_choose_is_kept() {
        let farthest = [(i64::MIN, 0), (i64::MIN, 1), (i64::MAX, 999_999_999)];
        for (secs, nanos) in [(0, 0), (7, 9), (-1, 0), (-1, 999_999_999), (-2, 5)].into_iter().chain(farthest) {
            let time = Timestamp { secs, nanos };
            assert_eq!(time_from_kernel(time.to_system_time()), time);
        }
    }

    #[test]
    fn every_fallocate_mode_is_named_or_refused() {
        let check = |mode, expected| assert_eq!(allocate_mode(mode), expected, "{mode:#x}");
        check(0, Some(AllocateMode::Extend));
        check(1, Some(AllocateMode::KeepSize));
        check(3, Some(AllocateMode::PunchHole));
        check(0x10, Some(AllocateMode::Zero));
        check(0x11, Some(AllocateMode::ZeroKeepSize));
        for refused in [2, 4, 8, 0x20, 0x40, -1] {
            check(refused, None);
        }
    }
}
