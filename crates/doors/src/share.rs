//! A share as the doors serve it: who may come in, and the folder that it is of.

use std::sync::Arc;

use larder_files::Files;
use larder_fs::Ino;
use larder_people::{Door, Share};

/// A folder offered to clients.
#[derive(Clone)]
pub struct ServedShare {
    /// Who may come in.
    pub share: Arc<Share>,
    /// The service of its volume, as this door.
    pub files: Files,
    /// The directory that is shared: [`Ino::ROOT`] for the whole volume.
    pub root: Ino,
}

impl ServedShare {
    /// Whether nothing but its lists differs for those who come by `door`.
    pub fn is_as_at(&self, other: &ServedShare, door: Door) -> bool {
        self.share.is_as_at(&other.share, door)
            && self.files.id() == other.files.id()
            && self.files.verifier() == other.files.verifier()
            && self.root == other.root
            && self.files.is_as_in(&other.files)
    }
}
