//! Errors of file operations.

use std::sync::Arc;

#[cfg(doc)]
use crate::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX};

/// Errors of file operations: the closed set that every protocol maps to its own numbers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FsError {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("file exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// EACCES: the mode bits or the access control list refuse it.
    #[error("permission denied")]
    Access,
    /// EPERM: only the owner or root may do it.
    #[error("operation not permitted")]
    NotPermitted,
    /// ESTALE: the inode of a handle no longer exists.
    #[error("stale file handle")]
    Stale,
    /// ENOSPC: the store has no room, or a limit is reached. The text says which.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// EDQUOT: the quota of the volume, or of the owner of the file, is reached.
    #[error("quota exceeded")]
    Quota,
    /// EROFS: the volume must not be written. The text says why.
    #[error("read-only volume: {0}")]
    ReadOnly(String),
    /// A newer larder wrote it in a way that this one would misread.
    #[error("{0}")]
    Unsupported(Arc<str>),
    /// ENAMETOOLONG: a name beyond [`NAME_BYTES_MAX`] or a target beyond [`SYMLINK_BYTES_MAX`].
    #[error("name too long")]
    NameTooLong,
    /// EFBIG: an offset beyond [`FILE_BYTES_MAX`].
    #[error("file too large")]
    FileTooLarge,
    /// EMLINK: [`LINKS_MAX`] links.
    #[error("too many links")]
    TooManyLinks,
    /// EINVAL. The text says which argument.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// ENODATA: no such extended attribute.
    #[error("attribute not found")]
    NoAttribute,
    /// E2BIG: a value beyond its limit.
    #[error("value too large")]
    TooBig,
    /// The guard of a SETATTR did not match.
    #[error("the file changed meanwhile")]
    NotSync,
    /// EOPNOTSUPP.
    #[error("not supported")]
    NotSupported,
    /// EBUSY: try again later.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// It is encrypted, and its keys are not there.
    #[error("the volume is locked")]
    Locked,
    /// It does not fit what is there. The text says why, and what would.
    #[error("{0}")]
    Refused(Arc<str>),
    /// It is a replica, and has nothing to open before it is promoted.
    #[error("the volume is a replica")]
    Replica,
    /// A client of another protocol has it open and does not share it.
    #[error("open elsewhere, and not shared for this")]
    Shared,
    /// EIO: the store failed, or returned data that must not be trusted. Never a wrong answer
    /// instead.
    #[error("I/O error: {0}")]
    Io(Arc<str>),
    /// An earlier flush failed. Its loss is unknown, so the volume refuses writes until it is
    /// reopened.
    #[error("the volume stopped accepting writes after a failure: {0}")]
    Poisoned(Arc<str>),
}

/// The result of a file operation.
pub type FsResult<T> = Result<T, FsError>;
