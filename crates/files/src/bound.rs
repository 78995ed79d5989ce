//! A share that shows and takes fewer bytes than its volume has room for, as backups want it.
//!
//! - `bound.growth_alone`: at the bound what makes files longer is refused. What writes within them is not, and what makes them
//!   shorter or removes them never is: a backup program has to be able to thin.
//! - `bound.live_bytes`: the bound counts what files hold now. Snapshots count against the pool.

use larder_base::boxed;
use larder_fs::{Cred, FsError, FsResult, Ino, StatFs};

use crate::Files;
use crate::tree::Tree;

impl Files {
    /// The same door of a whole volume, whose files together hold no more than `bytes` through it.
    pub fn bounded(&self, bytes: u64) -> Files {
        Files { bound_bytes: Some(bytes), ..self.clone() }
    }

    /// Bytes that count against the narrowest quota of `cred`. Those of a folder of the host are what its filesystem holds.
    pub fn quota_used(&self, cred: &Cred) -> u64 {
        match &self.tree {
            Tree::Volume(volume) => volume.quota_used(cred),
            Tree::Folder(_) => {
                let room = self.statfs(cred);
                room.total_bytes.saturating_sub(room.free_bytes)
            }
        }
    }

    fn held_bytes(&self) -> u64 {
        match &self.tree {
            Tree::Volume(volume) => volume.contents().data_bytes,
            Tree::Folder(_) => 0,
        }
    }

    pub(crate) fn within_bound(&self, room: StatFs) -> StatFs {
        let Some(bound) = self.bound_bytes else { return room };
        let left = bound.saturating_sub(self.held_bytes());
        StatFs {
            total_bytes: room.total_bytes.min(bound),
            free_bytes: room.free_bytes.min(left),
            available_bytes: room.available_bytes.min(left),
            ..room
        }
    }

    /// [`FsError::Quota`] for a change by which the file would end at `end`, if there is no room for that within the bound.
    #[boxed]
    pub(crate) async fn check_bound(&self, ino: Ino, end: u64, more: u64) -> FsResult<()> {
        match self.bound_bytes {
            Some(bound) if self.held_bytes().saturating_add(more) > bound => {
                let size = Box::pin(self.tree.getattr(ino)).await?.size;
                if end > size { Err(FsError::Quota) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}
