//! Errors of the volume, in the words of SMB.

use larder_fs::FsError;

use crate::error::{SmbError, SmbResult};

const STATUS_INVALID_PARAMETER: u32 = 0xC000_000D;
pub const MEDIA_WRITE_PROTECTED: u32 = 0xC000_00A2;
const STATUS_TOO_MANY_LINKS: u32 = 0xC000_0265;
const STATUS_FILE_TOO_LARGE: u32 = 0xC000_0904;

/// The one place where an error of the volume is turned into a status; what a client cannot be told in
/// a number is logged here.
pub fn status(error: FsError) -> SmbError {
    match error {
        FsError::NotFound | FsError::Stale => SmbError::NotFound,
        FsError::Exists => SmbError::Exists,
        FsError::NotDirectory => SmbError::NotADirectory,
        FsError::IsDirectory => SmbError::IsDirectory,
        FsError::NotEmpty => SmbError::NotEmpty,
        FsError::Access | FsError::NotPermitted => SmbError::AccessDenied,
        // The client was told the quota as the size of the disk.
        FsError::NoSpace(_) | FsError::Quota => SmbError::DiskFull,
        FsError::ReadOnly(_) => SmbError::Status(MEDIA_WRITE_PROTECTED),
        FsError::NameTooLong => SmbError::NameInvalid,
        FsError::FileTooLarge => SmbError::Status(STATUS_FILE_TOO_LARGE),
        FsError::TooManyLinks => SmbError::Status(STATUS_TOO_MANY_LINKS),
        FsError::Busy(_) | FsError::Shared | FsError::Locked | FsError::Replica => SmbError::Sharing,
        FsError::NotSupported => SmbError::NotSupported,
        FsError::Invalid(_) | FsError::NoAttribute | FsError::TooBig | FsError::NotSync => {
            SmbError::Status(STATUS_INVALID_PARAMETER)
        }
        FsError::Io(_) | FsError::Poisoned(_) | FsError::Unsupported(_) | FsError::Refused(_) => {
            tracing::warn!(%error, "an SMB request failed in the volume");
            SmbError::Io(std::io::Error::other(error.to_string()))
        }
    }
}

/// On the way to a file, a missing directory is a missing path, and so is one that is none.
pub fn path_status(error: FsError) -> SmbError {
    match error {
        FsError::NotFound | FsError::NotDirectory | FsError::Stale => SmbError::PathNotFound,
        other => status(other),
    }
}

pub trait OrStatus<T> {
    fn or_status(self) -> SmbResult<T>;
}

impl<T> OrStatus<T> for Result<T, FsError> {
    fn or_status(self) -> SmbResult<T> {
        self.map_err(status)
    }
}
