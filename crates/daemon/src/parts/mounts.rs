//! The mounts that the file names. One that somebody took away by hand stays away until the next
//! start; those that were asked for without the file are no things of this part.

use std::sync::Arc;

use larder_keep::Storage;

use super::waits::waits_or_failed;
use larder_config::MountConfig;
use larder_document::Source;
use larder_document::things::Part;
use larder_document::{Kind, Standing};
use larder_servers::Mounts;

pub struct MountPart {
    pub storage: Arc<Storage>,
    pub mounts: Mounts,
}

impl Part for MountPart {
    type Wanted = MountConfig;
    const KIND: Kind = Kind::Mount;

    fn wants(source: &Source<'_>) -> Vec<(String, MountConfig)> {
        source.config.mounts.iter().map(|mount| (mount.dir.display().to_string(), mount.clone())).collect()
    }

    async fn make(&mut self, _name: &str, wanted: &MountConfig) -> Standing {
        if self.mounts.is_mounted(&wanted.dir) {
            return Standing::Ok;
        }
        match self.mounts.make(wanted).await {
            Ok(_) => Standing::Ok,
            Err(failure) => waits_or_failed(&self.storage, Some(&wanted.volume), failure).await,
        }
    }

    /// Mounts are taken away before the file leaves them out.
    fn take_away(&mut self, _name: &str) {}
}
