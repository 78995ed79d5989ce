//! What goes wrong between this client and an SMB server, and what it means to a person.

use std::time::Duration;

use larder_smb_wire::error::ProtoError;
use larder_smb_wire::header::Command;

use crate::client::error::ClientError;

pub(super) const STATUS_SUCCESS: u32 = 0;
pub(super) const STATUS_PENDING: u32 = 0x0000_0103;
pub(super) const STATUS_NO_MORE_FILES: u32 = 0x8000_0006;
pub(super) const STATUS_UNSUCCESSFUL: u32 = 0xC000_0001;
pub(super) const STATUS_END_OF_FILE: u32 = 0xC000_0011;
pub(super) const STATUS_MORE_PROCESSING_REQUIRED: u32 = 0xC000_0016;
pub(super) const STATUS_OBJECT_NAME_COLLISION: u32 = 0xC000_0035;
pub(super) const STATUS_SHARING_VIOLATION: u32 = 0xC000_0043;
pub(super) const STATUS_INTERNAL_ERROR: u32 = 0xC000_00E5;

/// What a status is to a bench.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    NotFound,
    NoShare,
    Denied,
    Logon,
    Full,
    ReadOnly,
    Lost,
    Other,
}

/// MS-ERREF 2.3.1. A status without a name is shown as a number.
const NAMES: &[(u32, &str, Kind)] = &[
    (0xC000_000F, "STATUS_NO_SUCH_FILE", Kind::NotFound),
    (0xC000_0034, "STATUS_OBJECT_NAME_NOT_FOUND", Kind::NotFound),
    (0xC000_003A, "STATUS_OBJECT_PATH_NOT_FOUND", Kind::NotFound),
    (0xC000_00CC, "STATUS_BAD_NETWORK_NAME", Kind::NoShare),
    (0xC000_0022, "STATUS_ACCESS_DENIED", Kind::Denied),
    (0xC000_006D, "STATUS_LOGON_FAILURE", Kind::Logon),
    (0xC000_006E, "STATUS_ACCOUNT_RESTRICTION", Kind::Logon),
    (0xC000_006F, "STATUS_INVALID_LOGON_HOURS", Kind::Logon),
    (0xC000_0070, "STATUS_INVALID_WORKSTATION", Kind::Logon),
    (0xC000_0071, "STATUS_PASSWORD_EXPIRED", Kind::Logon),
    (0xC000_0072, "STATUS_ACCOUNT_DISABLED", Kind::Logon),
    (0xC000_0193, "STATUS_ACCOUNT_EXPIRED", Kind::Logon),
    (0xC000_0224, "STATUS_PASSWORD_MUST_CHANGE", Kind::Logon),
    (0xC000_0234, "STATUS_ACCOUNT_LOCKED_OUT", Kind::Logon),
    (0xC000_007F, "STATUS_DISK_FULL", Kind::Full),
    (0xC000_00A2, "STATUS_MEDIA_WRITE_PROTECTED", Kind::ReadOnly),
    (0xC000_00C9, "STATUS_NETWORK_NAME_DELETED", Kind::Lost),
    (0xC000_0203, "STATUS_USER_SESSION_DELETED", Kind::Lost),
    (0xC000_035C, "STATUS_NETWORK_SESSION_EXPIRED", Kind::Lost),
    (STATUS_UNSUCCESSFUL, "STATUS_UNSUCCESSFUL", Kind::Other),
    (0xC000_0008, "STATUS_INVALID_HANDLE", Kind::Other),
    (0xC000_000D, "STATUS_INVALID_PARAMETER", Kind::Other),
    (STATUS_END_OF_FILE, "STATUS_END_OF_FILE", Kind::Other),
    (STATUS_MORE_PROCESSING_REQUIRED, "STATUS_MORE_PROCESSING_REQUIRED", Kind::Other),
    (0xC000_0033, "STATUS_OBJECT_NAME_INVALID", Kind::Other),
    (STATUS_OBJECT_NAME_COLLISION, "STATUS_OBJECT_NAME_COLLISION", Kind::Other),
    (STATUS_SHARING_VIOLATION, "STATUS_SHARING_VIOLATION", Kind::Other),
    (0xC000_0056, "STATUS_DELETE_PENDING", Kind::Other),
    (0xC000_009A, "STATUS_INSUFFICIENT_RESOURCES", Kind::Other),
    (0xC000_00BA, "STATUS_FILE_IS_A_DIRECTORY", Kind::Other),
    (0xC000_00BB, "STATUS_NOT_SUPPORTED", Kind::Other),
    (STATUS_INTERNAL_ERROR, "STATUS_INTERNAL_ERROR", Kind::Other),
    (0xC000_0101, "STATUS_DIRECTORY_NOT_EMPTY", Kind::Other),
    (0xC000_0103, "STATUS_NOT_A_DIRECTORY", Kind::Other),
    (0xC000_0121, "STATUS_CANNOT_DELETE", Kind::Other),
    (0xC000_0257, "STATUS_PATH_NOT_COVERED", Kind::Other),
];

fn name(status: u32) -> String {
    let known = NAMES.iter().find(|(number, ..)| *number == status);
    known.map_or_else(|| format!("status 0x{status:08X}"), |(_, name, _)| (*name).to_owned())
}

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{} during {command:?}", name(*status))]
    Refused { status: u32, command: Command },
    #[error("{0}")]
    Lost(String),
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// It does not keep to the protocol.
    #[error("{0}")]
    Broken(String),
    #[error("the server lets in guests alone")]
    GuestOnly,
}

impl Failure {
    pub fn lost(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Lost("the server closed it".into()),
            _ => Self::Lost(error.to_string()),
        }
    }

    pub fn broken(reason: &str) -> Self {
        Self::Broken(reason.to_owned())
    }

    pub fn status(&self) -> Option<u32> {
        if let Self::Refused { status, .. } = self { Some(*status) } else { None }
    }

    fn kind(&self) -> Kind {
        let known = NAMES.iter().find(|(number, ..)| Some(*number) == self.status());
        known.map_or(Kind::Other, |(.., kind)| *kind)
    }
}

impl From<ProtoError> for Failure {
    fn from(error: ProtoError) -> Self {
        Self::Broken(error.to_string())
    }
}

pub(super) fn failure(what: &str, failure: Failure) -> ClientError {
    let what = if what.is_empty() { "the share" } else { what }.to_owned();
    let reason = failure.to_string();
    match (&failure, failure.kind()) {
        (Failure::Silent(time), _) => ClientError::Silent { what, seconds: time.as_secs() },
        (Failure::Lost(_), _) | (_, Kind::Lost) => ClientError::Lost { what, reason },
        (_, Kind::NotFound | Kind::NoShare) => ClientError::NotFound { what, reason },
        (_, Kind::Denied) => ClientError::Denied { what, reason },
        (_, Kind::Full) => ClientError::NoSpace { what },
        (_, Kind::ReadOnly) => ClientError::ReadOnly { what },
        _ => ClientError::Protocol { what, reason },
    }
}

pub(super) fn of_connecting(address: &str, user: &str, failure: Failure) -> ClientError {
    let who = if user.is_empty() { "a guest".to_owned() } else { format!("user {user} with this password") };
    match (&failure, failure.kind()) {
        (Failure::GuestOnly, _) | (_, Kind::Denied | Kind::Logon) => ClientError::WrongPassword {
            host: address.to_owned(),
            who,
            reason: "check both; or the server demands encryption and agreed to no cipher with this client".into(),
        },
        (Failure::Lost(_) | Failure::Silent(_), _) | (_, Kind::Lost) => ClientError::Unreachable {
            address: address.to_owned(),
            reason: failure.to_string(),
            way_out: "check that an SMB server listens there and that no firewall is between".into(),
        },
        _ => ClientError::protocol(address, failure),
    }
}

pub(super) fn of_share(address: &str, share: &str, error: Failure) -> ClientError {
    let what = format!("the share {share} of {address}");
    match error.kind() {
        Kind::NoShare => ClientError::not_found(what, "the server has no share of that name (smbclient -L lists them)"),
        _ => failure(&what, error),
    }
}
