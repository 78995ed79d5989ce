//! Why a request was not carried out: a status code and a sentence for the person at the client.

use std::borrow::Cow;

use larder_fs::FsError;

use super::packet::Code;
use larder_doors::tree::NoWay;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    pub code: Code,
    pub text: Cow<'static, str>,
    /// The name leads to another file by now: the request looks again (`tree.names_are_always_there`).
    pub is_stale: bool,
}

impl Fail {
    pub const fn new(code: Code, text: &'static str) -> Self {
        Self { code, text: Cow::Borrowed(text), is_stale: false }
    }

    pub const fn bad_handle() -> Self {
        Self::new(Code::Failure, "no such handle: it was closed, or its share was taken away")
    }
}

impl From<NoWay> for Fail {
    fn from(no_way: NoWay) -> Self {
        match no_way {
            NoWay::NoSuchFile(text) => Self::new(Code::NoSuchFile, text),
            NoWay::BadPath(text) => Self::new(Code::Failure, text),
            NoWay::ReadOnly => Self::new(Code::PermissionDenied, "the share is read-only for you"),
            NoWay::Top => Self::new(
                Code::PermissionDenied,
                "the names at the top are shares: files belong into one of them, and larder share add makes another",
            ),
            NoWay::Volume(error) => error.into(),
        }
    }
}

impl From<FsError> for Fail {
    fn from(error: FsError) -> Self {
        let code = match &error {
            FsError::NotFound | FsError::NotDirectory | FsError::Stale => Code::NoSuchFile,
            FsError::Access | FsError::NotPermitted | FsError::ReadOnly(_) | FsError::Shared => Code::PermissionDenied,
            FsError::NotSupported => Code::Unsupported,
            _ => Code::Failure,
        };
        let text = match &error {
            // The names of objects and disks in it are for the log.
            FsError::Io(_) => Cow::Borrowed("I/O error"),
            FsError::Poisoned(_) => Cow::Borrowed("the volume stopped accepting writes after a failure"),
            error => Cow::Owned(error.to_string()),
        };
        Self { code, text, is_stale: matches!(error, FsError::Stale) }
    }
}
