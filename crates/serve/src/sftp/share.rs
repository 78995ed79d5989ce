//! What the server is told: its settings, and what it shares.

use larder_files::Files;
use larder_volume::Ino;

use super::host_key::HostKey;
use crate::smb::Access;

/// A folder offered to clients.
#[derive(Clone)]
pub struct SftpShare {
    /// The name at the top.
    pub name: String,
    /// The service of its volume, as this door.
    pub files: Files,
    /// The directory that is shared: [`Ino::ROOT`] for the whole volume.
    pub root: Ino,
    /// Everybody is this uid and gid here, so that all files are everybody's.
    pub act_as: Option<(u32, u32)>,
    /// The users that may come in, each with its access.
    pub users: Vec<(String, Access)>,
    /// Nobody may change anything, whatever `users` says.
    pub read_only: bool,
}

impl SftpShare {
    pub(super) fn same_as(&self, other: &SftpShare) -> bool {
        self.name == other.name
            && self.files.id() == other.files.id()
            && self.files.verifier() == other.files.verifier()
            && self.root == other.root
            && self.act_as == other.act_as
            && self.users == other.users
            && self.read_only == other.read_only
    }
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct SftpConfig {
    /// The key by which clients know the server.
    pub host_key: HostKey,
    /// Connections at a time; further ones are closed at once.
    pub connections_max: usize,
    /// How long connections may take to end at shutdown.
    pub drain_secs: u64,
}

impl SftpConfig {
    /// As many connections as the other servers take.
    pub fn new(host_key: HostKey) -> Self {
        Self { host_key, connections_max: 4096, drain_secs: 10 }
    }
}
