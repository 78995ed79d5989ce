//! The shared folders of the host, each with the file service of its filesystem.

use std::path::Path;

use larder_folder::Hosts;
use larder_fs::{FsResult, Ino};

use crate::{Files, Services};

/// The filesystems of the host whose folders are shared.
#[derive(Default)]
pub struct Folders {
    services: Services,
    hosts: Hosts,
}

/// A folder of the host, ready to be served.
pub struct Found {
    /// The service of its filesystem.
    pub files: Files,
    /// The folder itself.
    pub top: Ino,
    /// Whether clients' handles are good after a restart.
    pub survives_restart: bool,
}

impl Folders {
    /// The folder at `path` of the host. [`larder_fs::FsError::NotFound`] or [`larder_fs::FsError::NotDirectory`]
    /// if there is none.
    pub fn open(&self, path: &Path) -> FsResult<Found> {
        let (folder, top) = self.hosts.open(path)?;
        let survives_restart = folder.has_handles();
        Ok(Found { files: self.services.of_folder(folder), top, survives_restart })
    }
}
