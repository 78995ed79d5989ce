//! Numbers of new inodes.
//!
//! - `volume.numbers_never_reused`: the durable counter is raised before a number beyond it is
//!   used, so no inode number is ever given out twice.
//! - `volume.generations_drawn`: each generation is drawn at random by itself, so one inode's says nothing about another's.

use larder_fs::places::HEAD_END;
use larder_fs::{FileId, FsError, FsResult, Ino};
use parking_lot::Mutex;

use crate::keys;
use crate::meta::{Batch, Meta};

/// Numbers that one raise of the durable counter covers. A crash may skip as many.
const INO_RANGE: u64 = 1 << 16;

/// Gives out numbers below a durable counter.
pub(crate) struct Numbers {
    range: Mutex<NumberRange>,
    /// Held by the one that raises the counter.
    raising: tokio::sync::Mutex<()>,
}

struct NumberRange {
    next: u64,
    limit: u64,
}

impl Numbers {
    /// `next` is the durable counter: no number below it is given out.
    pub(crate) fn new(next: u64) -> Self {
        let range = NumberRange { next, limit: next };
        Self { range: Mutex::new(range), raising: tokio::sync::Mutex::new(()) }
    }

    /// No number from this one on was given out.
    pub(crate) fn peek(&self) -> u64 {
        self.range.lock().next
    }

    /// A number that was never used, and its generation (`volume.generations_drawn`).
    pub(crate) async fn new_id(&self, meta: &dyn Meta) -> FsResult<FileId> {
        loop {
            {
                let mut range = self.range.lock();
                assert!(range.next <= range.limit, "`volume.numbers_never_reused`");
                if range.next < range.limit {
                    let ino = range.next;
                    range.next += 1;
                    return Ok(FileId { ino: Ino(ino), generation: rand::random() });
                }
            }
            let _raising = self.raising.lock().await;
            let limit = self.range.lock().limit;
            if limit.saturating_add(INO_RANGE) > HEAD_END {
                return Err(FsError::NoSpace("every inode number of the volume was given out once".into()));
            }
            if self.range.lock().next < limit {
                continue;
            }
            let mut batch = Batch::default();
            batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(limit + INO_RANGE));
            // Batches become durable in order (`meta.durable_in_order`), so the batch that uses a
            // number of this range comes after this one.
            meta.write(batch).await?;
            self.range.lock().limit = limit + INO_RANGE;
        }
    }
}

/// splitmix64's finisher: a bijection, so generations differ where numbers do.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
