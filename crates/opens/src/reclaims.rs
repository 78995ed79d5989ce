//! Reclaims: after a restart clients take back the opens and locks that they had.
//!
//! - `opens.reclaimed_first`: while clients of a door may take back what they had before a restart,
//!   no other door locks anything, and none of its opens denies reading or writing a file that was
//!   there: it would take the file from them for good.

use std::sync::Arc;

use crate::Table;

/// Clients of a door take back what they had, until this is dropped.
pub struct Reclaims {
    table: Arc<Table>,
    door: u32,
}

impl Table {
    /// From now on clients of `door` take back what they had (`opens.reclaimed_first`).
    pub fn begin_reclaims(self: &Arc<Self>, door: u32) -> Reclaims {
        self.reclaiming.write().push(door);
        Reclaims { table: Arc::clone(self), door }
    }

    /// Whether `door` may lock and deny nothing for now.
    pub(crate) fn awaits_reclaims(&self, door: u32) -> bool {
        self.reclaiming.read().iter().any(|other| *other != door)
    }
}

impl Drop for Reclaims {
    /// All who wait try again.
    fn drop(&mut self) {
        let mut reclaiming = self.table.reclaiming.write();
        if let Some(at) = reclaiming.iter().position(|door| *door == self.door) {
            reclaiming.swap_remove(at);
        }
        drop(reclaiming);
        self.table.wake_all();
    }
}
