//! A share that shows and takes fewer bytes than its volume has room for, as backups want it.
//!
//! - `bound.growth_alone`: at the bound what makes files longer is refused. What writes within them is not, and what makes them
//!   shorter or removes them never is: a backup program has to be able to thin.
//! - `bound.live_bytes`: the bound counts what files hold now. Snapshots count against the pool.

use larder_base::boxed;
use larder_fs::{Cred, FsError, FsResult, Ino, StatFs};

use crate::Files;
use crate::facts::{Act, Change, Duty, does};

impl Files {
    /// The same door of a whole volume, whose files together hold no more than `bytes` through it.
    pub fn bounded(&self, bytes: u64) -> Files {
        Files { bound_bytes: Some(bytes), ..self.clone() }
    }

    /// Room in bytes and inodes, within the bound and the quotas of the volume and of `cred`, if
    /// there are any. Does no I/O.
    pub fn statfs(&self, cred: &Cred) -> StatFs {
        let room = self.tree.statfs(cred);
        let Some(bound) = self.bound_bytes else { return room };
        let left = bound.saturating_sub(self.tree.held_bytes());
        StatFs {
            total_bytes: room.total_bytes.min(bound),
            free_bytes: room.free_bytes.min(left),
            available_bytes: room.available_bytes.min(left),
            ..room
        }
    }
}

/// Before a change: [`FsError::Quota`] if a file would grow, and there is no room for that within
/// the bound.
pub(crate) async fn before(files: &Files, change: &Change<'_>) -> FsResult<()> {
    let Some(bound) = files.bound_bytes else { return Ok(()) };
    let (ino, end, more) = match change.act {
        Act::Write { ino, offset, len, .. } | Act::Allocate { ino, offset, len } => {
            (ino, offset.saturating_add(len), len)
        }
        // Shared extents count for each file, as in quotas.
        Act::Share { target: (ino, offset), len, .. } => (ino, offset.saturating_add(len), len),
        Act::Append { ino, len } => (ino, u64::MAX, len),
        // A size alone is a hole; the others have no bytes, or lose them.
        Act::Attributes { .. } | Act::Create { .. } | Act::Unnamed | Act::Make | Act::Link { .. } => return Ok(()),
        Act::Relink { .. } | Act::Unlink | Act::Rmdir | Act::Rename => return Ok(()),
    };
    does(Duty::Bound);
    if files.tree.held_bytes().saturating_add(more) > bound { check_growth(files, ino, end).await } else { Ok(()) }
}

#[boxed]
async fn check_growth(files: &Files, ino: Ino, end: u64) -> FsResult<()> {
    if end > files.tree.getattr(ino).await?.size { Err(FsError::Quota) } else { Ok(()) }
}
