//! What a cut has to copy, shared by all inodes of a volume ([`super::cut`]).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use larder_base::Timestamp;
use parking_lot::{Mutex, RwLock};

use super::dirty::Taken;
use crate::inode::Inode;

/// The state of cuts.
#[derive(Default)]
pub(super) struct Cut {
    /// `cut.batches_whole`
    pub(super) gate: RwLock<()>,
    /// Of the volume as it is now; a `FileData` of an earlier one may still have to be copied.
    pub(super) epoch: AtomicU64,
    pub(super) copies: Mutex<Option<Vec<Copy>>>,
}

/// The dirty side of an inode at the cut (`cut.data_only`).
pub(super) struct Copy {
    pub(super) inode: Arc<Inode>,
    pub(super) taken: Vec<Taken>,
    pub(super) facts: Facts,
}

/// The attributes that unstable writes change.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) change: u64,
}

impl Cut {
    pub(super) fn at(epoch: u64) -> Self {
        Self { epoch: AtomicU64::new(epoch), ..Self::default() }
    }
}
