//! Why a request was not carried out: a status, a sentence for the person at the client, and the condition of
//! RFC 4918 (16) where there is one.

use std::borrow::Cow;

use hyper::StatusCode;
use larder_fs::FsError;

use larder_doors::tree::NoWay;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    pub status: StatusCode,
    pub text: Cow<'static, str>,
    /// The element inside of `DAV:error`, as XML.
    pub condition: Option<Cow<'static, str>>,
    /// The name leads to another file by now: the request looks again (`tree.names_are_always_there`).
    pub is_stale: bool,
}

impl Fail {
    pub const fn new(status: StatusCode, text: &'static str) -> Self {
        Self { status, text: Cow::Borrowed(text), condition: None, is_stale: false }
    }

    pub const fn bad_request(text: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub const fn forbidden(text: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    pub const fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such file or folder")
    }

    pub const fn conflict(text: &'static str) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    pub const fn precondition() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "it is not as the request expects it")
    }

    /// A lock whose token the request does not carry. `href` is the root of the lock.
    pub fn locked(href: &str) -> Self {
        Self {
            condition: Some(Cow::Owned(format!(
                "<D:lock-token-submitted><D:href>{href}</D:href></D:lock-token-submitted>"
            ))),
            ..Self::new(StatusCode::LOCKED, "it is locked")
        }
    }

    /// A client of another door has it locked.
    pub const fn locked_elsewhere() -> Self {
        Self::new(StatusCode::LOCKED, "a client of another protocol uses it")
    }

    pub fn with(self, condition: &'static str) -> Self {
        Self { condition: Some(Cow::Borrowed(condition)), ..self }
    }

    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// A folder on the way to it is missing (RFC 4918 9.7.1, 9.3.1, 9.8.5).
    pub fn of_parent(self) -> Self {
        match self.is_not_found() {
            true => Self::conflict("the folder that it would be in does not exist"),
            false => self,
        }
    }
}

impl From<NoWay> for Fail {
    fn from(no_way: NoWay) -> Self {
        match no_way {
            NoWay::NoSuchFile(text) => Self::new(StatusCode::NOT_FOUND, text),
            NoWay::BadPath(text) => Self::forbidden(text),
            NoWay::ReadOnly => Self::forbidden("the share is read-only for you"),
            NoWay::Top => Self::forbidden("the names at the top are shares: files belong into one of them"),
            NoWay::Volume(error) => error.into(),
        }
    }
}

impl From<FsError> for Fail {
    fn from(error: FsError) -> Self {
        let status = match &error {
            FsError::NotFound | FsError::Stale | FsError::NotDirectory | FsError::NoAttribute => StatusCode::NOT_FOUND,
            FsError::Access | FsError::NotPermitted | FsError::ReadOnly(_) | FsError::NotSupported => {
                StatusCode::FORBIDDEN
            }
            FsError::Shared => StatusCode::LOCKED,
            FsError::Exists | FsError::NotEmpty | FsError::IsDirectory | FsError::NotSync => StatusCode::CONFLICT,
            FsError::NoSpace(_) | FsError::Quota | FsError::TooManyLinks | FsError::TooBig => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            FsError::NameTooLong => StatusCode::URI_TOO_LONG,
            FsError::FileTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FsError::Invalid(_) => StatusCode::BAD_REQUEST,
            FsError::Busy(_) | FsError::Locked | FsError::Replica | FsError::Poisoned(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let text = match &error {
            // The names of objects and disks in it are for the log.
            FsError::Io(_) => Cow::Borrowed("I/O error"),
            FsError::Poisoned(_) => Cow::Borrowed("the volume stopped accepting writes after a failure"),
            error => Cow::Owned(error.to_string()),
        };
        let condition = match &error {
            FsError::Quota => Some(Cow::Borrowed("<D:quota-not-exceeded/>")),
            FsError::NoSpace(_) => Some(Cow::Borrowed("<D:sufficient-disk-space/>")),
            _ => None,
        };
        Self { status, text, condition, is_stale: matches!(error, FsError::Stale) }
    }
}
