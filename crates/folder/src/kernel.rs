//! Calls into the kernel, and its errors in the words of the doors.

use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::Bytes;
use larder_fs::FsError;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// XATTR_LIST_MAX of linux/limits.h.
const NAMES_BYTES_MAX: usize = 65536;

/// The path by which a descriptor is opened again, or used where the kernel has no call for it.
pub(crate) fn by_number(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The errors of the host in the words of the doors.
pub(crate) fn failed(error: Errno) -> FsError {
    match error {
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST => FsError::Exists,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::ACCESS => FsError::Access,
        Errno::PERM => FsError::NotPermitted,
        Errno::STALE => FsError::Stale,
        Errno::NOSPC => FsError::NoSpace("the host's filesystem is full".into()),
        Errno::DQUOT => FsError::Quota,
        Errno::ROFS => FsError::ReadOnly("the host's filesystem is mounted read-only".into()),
        Errno::NAMETOOLONG => FsError::NameTooLong,
        Errno::FBIG => FsError::FileTooLarge,
        Errno::MLINK => FsError::TooManyLinks,
        Errno::NODATA => FsError::NoAttribute,
        Errno::TOOBIG | Errno::RANGE => FsError::TooBig,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => FsError::NotSupported,
        Errno::BUSY => FsError::Busy("another filesystem is mounted there, or the host uses it"),
        Errno::TXTBSY => FsError::Busy("the host runs it as a program"),
        Errno::INVAL => FsError::Invalid("the host's filesystem refuses it"),
        // What lies behind another mount is not part of the folder (`folder.one_filesystem`).
        Errno::XDEV => FsError::NotFound,
        error => FsError::Io(std::io::Error::from(error).to_string().into()),
    }
}

pub(crate) fn statx(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// An extended attribute of an open node.
pub(crate) fn xattr(fd: BorrowedFd<'_>, name: &[u8], bytes_max: usize) -> Result<Vec<u8>, Errno> {
    let path = by_number(fd);
    let mut value = vec![0; 256];
    loop {
        match rustix::fs::getxattr(&path, name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
            Err(Errno::RANGE) if value.len() < bytes_max => value = vec![0; bytes_max],
            Err(error) => return Err(error),
        }
    }
}

/// The names of all attributes of users.
pub(crate) fn user_attributes(fd: BorrowedFd<'_>) -> Result<Vec<Bytes>, Errno> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let len = match rustix::fs::listxattr(by_number(fd), &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    names.truncate(len);
    let users = names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    Ok(users.map(Bytes::copy_from_slice).collect())
}
