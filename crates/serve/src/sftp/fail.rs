//! Why a request was not carried out: a status code and a sentence for the person at the client.

use std::borrow::Cow;

use larder_volume::FsError;

use super::packet::Code;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    pub code: Code,
    pub text: Cow<'static, str>,
}

impl Fail {
    pub const fn new(code: Code, text: &'static str) -> Self {
        Self { code, text: Cow::Borrowed(text) }
    }

    pub const fn no_such_file() -> Self {
        Self::new(Code::NoSuchFile, "no such file or directory")
    }

    pub const fn bad_handle() -> Self {
        Self::new(Code::Failure, "no such handle: it was closed, or its share was taken away")
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
        Self { code, text }
    }
}
