//! Choices that a URL does not make.

use std::path::PathBuf;

/// Login, identity and checks of a client.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// Those in the URL come first.
    pub user: Option<String>,
    pub password: Option<String>,
    /// A private key in OpenSSH's format, for SFTP.
    pub key_file: Option<PathBuf>,
    /// As many as the workload has jobs, if not given.
    pub connections: Option<u32>,
    /// Of AUTH_SYS; our own if not given.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Certificates are not checked: many a NAS has one that it made itself.
    pub any_certificate: bool,
    /// Every byte that is read is compared, not just samples.
    pub verify_all: bool,
}
