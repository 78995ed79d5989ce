//! The meaning of an SMB server's refusals to a person.

use smb2::types::status::NtStatus;
use smb2::{Error, ErrorKind};

use crate::client::error::ClientError;

const END_OF_FILE: &str = "STATUS_END_OF_FILE";
/// MS-ERREF 2.3.1.
const MEDIA_WRITE_PROTECTED: NtStatus = NtStatus(0xC000_00A2);

pub(super) fn failure(what: &str, error: Error) -> ClientError {
    let what = if what.is_empty() { "the share" } else { what }.to_owned();
    let reason = error.to_string();
    if error.status() == Some(MEDIA_WRITE_PROTECTED) {
        return ClientError::ReadOnly { what };
    }
    match error.kind() {
        ErrorKind::NotFound => ClientError::NotFound { what, reason },
        ErrorKind::AccessDenied => ClientError::Denied { what, reason },
        ErrorKind::DiskFull => ClientError::NoSpace { what },
        ErrorKind::ConnectionLost | ErrorKind::TimedOut | ErrorKind::SessionExpired | ErrorKind::Io => {
            ClientError::Lost { what, reason }
        }
        _ => ClientError::Protocol { what, reason },
    }
}

pub(super) fn is_end_of_file(error: &ClientError) -> bool {
    matches!(error, ClientError::Protocol { reason, .. } if reason.contains(END_OF_FILE))
}

pub(super) fn of_connecting(address: &str, user: &str, error: Error) -> ClientError {
    let who = if user.is_empty() { "a guest".to_owned() } else { format!("user {user} with this password") };
    let refused = |reason: String| ClientError::WrongPassword { host: address.to_owned(), who: who.clone(), reason };
    match error.kind() {
        ErrorKind::AuthRequired
        | ErrorKind::AccessDenied
        | ErrorKind::GuestSessionRefused
        | ErrorKind::SigningRequired => {
            refused("check both; or the server demands encryption and agreed to no cipher with this client".into())
        }
        _ if error.status() == Some(NtStatus::LOGON_FAILURE) => refused("check both".into()),
        ErrorKind::ConnectionLost | ErrorKind::TimedOut | ErrorKind::Io => ClientError::Unreachable {
            address: address.to_owned(),
            reason: error.to_string(),
            way_out: "check that an SMB server listens there and that no firewall is between".into(),
        },
        _ => ClientError::protocol(address, error),
    }
}

pub(super) fn of_share(address: &str, share: &str, error: Error) -> ClientError {
    let what = format!("the share {share} of {address}");
    match error.status() {
        Some(NtStatus::BAD_NETWORK_NAME) => {
            ClientError::not_found(what, "the server has no share of that name (smbclient -L lists them)")
        }
        _ => failure(&what, error),
    }
}
