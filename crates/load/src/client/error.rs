//! Errors between a bench and a share, worded so that a person can act on them.

#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "{url}: {reason}; it should look like nfs://nas/export, smb://user@nas/share, sftp://user@nas/path, https://nas/path or /a/folder"
    )]
    BadUrl { url: String, reason: String },
    #[error(
        "{scheme}:// is no protocol that can be measured by URL: use nfs, smb, sftp, http, https, webdav or webdavs, or mount it and give the folder"
    )]
    UnknownScheme { scheme: String },
    /// Nothing answered.
    #[error("{address}: {reason}; {way_out}")]
    Unreachable { address: String, reason: String, way_out: String },
    /// There is a server, but not what was asked of it.
    #[error("{what} was not found: {reason}")]
    NotFound { what: String, reason: String },
    #[error("{host} does not accept {who}: {reason}")]
    WrongPassword { host: String, who: String, reason: String },
    #[error("{what}: permission denied ({reason}); measure with a user who may write there, or give another folder")]
    Denied { what: String, reason: String },
    #[error(
        "{what} is read-only: a bench has to write the files that it reads; share it writable or give another folder"
    )]
    ReadOnly { what: String },
    #[error("{what}: no space left for the bench's files; measure with less data or free some space")]
    NoSpace { what: String },
    /// A user of the share may have put it there, to have a bench remove what it leads to.
    #[error(
        "{folder} was left on the share, because {found} was not made by a bench, or cannot be removed: look at it and remove it by hand"
    )]
    Left { folder: String, found: String },
    /// The workload makes no sense over this protocol, or the server cannot do it.
    #[error("{access} cannot do this: {reason}")]
    Unsupported { access: String, reason: String },
    #[error(
        "{file}: what was read at byte {offset} is not what was written there: the share corrupts data, or somebody else writes to it"
    )]
    WrongData { file: String, offset: u64 },
    /// The other side does not keep to the protocol.
    #[error("{what}: {reason}")]
    Protocol { what: String, reason: String },
    #[error("{what}: the connection broke ({reason}); see whether the server still runs, then measure again")]
    Lost { what: String, reason: String },
    /// The connection is there, and nobody speaks.
    #[error(
        "{what}: the server did not answer for {seconds} s; see whether it still runs, and whether its disks answer it, then measure again"
    )]
    Silent { what: String, seconds: u64 },
    #[error("{what}: {reason}")]
    Local { what: String, reason: String },
    #[error("stopped")]
    Stopped,
}

pub(super) type Outcome<T> = Result<T, ClientError>;

impl ClientError {
    pub(super) fn protocol(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::Protocol { what: what.into(), reason: reason.to_string() }
    }

    pub(super) fn lost(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::Lost { what: what.into(), reason: reason.to_string() }
    }

    pub(super) fn not_found(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::NotFound { what: what.into(), reason: reason.to_string() }
    }

    /// For what the system says about a connection that could not be made.
    pub(super) fn unreachable(address: impl Into<String>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        let way_out = match error.kind() {
            ConnectionRefused => "nothing listens there: start the service or correct the port",
            TimedOut => "the host is off, or a firewall drops the packets",
            HostUnreachable | NetworkUnreachable => "no way leads there: check the address and the cable",
            _ => "check the address, the port and the network",
        };
        Self::Unreachable { address: address.into(), reason: error.to_string(), way_out: way_out.to_owned() }
    }

    /// Whoever is asked again waits again, for nothing.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Silent { .. } | Self::Unreachable { .. })
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
