//! What a door whose clients name shares by path is told of them. SFTP and WebDAV are such doors.

use larder_files::Files;
use larder_volume::Ino;

pub use crate::smb::Access;

/// A folder offered to clients.
#[derive(Clone)]
pub struct DoorShare {
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

impl DoorShare {
    pub(crate) fn same_as(&self, other: &DoorShare) -> bool {
        self.name == other.name
            && self.files.id() == other.files.id()
            && self.files.verifier() == other.files.verifier()
            && self.root == other.root
            && self.act_as == other.act_as
            && self.files.is_as_in(&other.files)
            && self.users == other.users
            && self.read_only == other.read_only
    }
}
