//! Ranges of files that become those of others without their bytes going through larder.
//!
//! - `copy.shares_if_it_can`: a door that is asked for a copy asks [`Files::copy_range`] first, and moves bytes only where that
//!   does nothing. A volume shares the extents, the host's filesystem copies as it likes (on XFS and btrfs by sharing).
//! - `copy.small_moves_bytes`: sharing stores what is in memory first, which costs more than a short copy.

use larder_base::boxed;
use larder_fs::{Changed, Cred, FsError, FsResult, Ino};

use crate::Files;
use crate::facts::{Act, Change};
use crate::tree::Kind;

/// Shorter ranges are copied (`copy.small_moves_bytes`).
const SHARED_BYTES_MIN: u64 = 256 << 10;
/// A range that cannot be shared at once is shared in halves down to this.
const HALVED_BYTES_MIN: u64 = 16 << 20;

impl Files {
    /// Lets a range of `target` be what `source` has, all or nothing, after other clients have given back their caches.
    /// [`FsError::NotSupported`] in folders of the host. See [`larder_volume::Volume::clone_range`] for the other errors. The
    /// caller has checked the rights.
    #[boxed]
    pub async fn clone_range(
        &self,
        cred: &Cred,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
    ) -> FsResult<Changed> {
        let Kind::Volume(volume) = &self.tree.0 else { return Err(FsError::NotSupported) };
        let change = Change::of(cred, Act::Share { source, target, len });
        self.change(change, |_| volume.clone_range(cred, source, target, len)).await
    }

    /// Copies up to `len` bytes without moving them, from the front. Returns how many: 0, if the caller has to move them. The
    /// copy is as durable as any change of names. The caller has checked the rights, and that the ranges do not overlap.
    #[boxed]
    pub async fn copy_range(&self, cred: &Cred, source: (Ino, u64), target: (Ino, u64), len: u64) -> FsResult<u64> {
        if len < SHARED_BYTES_MIN {
            return Ok(0);
        }
        if let Kind::Folder(folder) = &self.tree.0 {
            let change = Change::of(cred, Act::Share { source, target, len });
            return self.change(change, |_| Box::pin(folder.copy_range(cred, source, target, len))).await;
        }
        let mut len = len;
        loop {
            match self.clone_range(cred, source, target, len).await {
                Ok(_) => return Ok(len),
                // Too many extents over data at once.
                Err(FsError::FileTooLarge) if len / 2 >= HALVED_BYTES_MIN => len /= 2,
                Err(FsError::FileTooLarge | FsError::NotSupported | FsError::Invalid(_) | FsError::Busy(_)) => {
                    return Ok(0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
