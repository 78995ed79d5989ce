//! What a cut has to copy, shared by all inodes of a volume, and the gate of cuts ([`crate::data::cut`]).

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_base::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Preserved;
use crate::data::dirty::Taken;
use crate::data::file::{Changing, FileData};
use crate::inode::Inode;
use crate::inode_core::InodeCore;

/// The state of cuts.
#[derive(Default)]
pub(in crate::data) struct Cut {
    /// `cut.batches_whole`
    gate: RwLock<()>,
    /// Held for reading while a range of many extents is cloned (`share.outside_cuts`).
    pub(in crate::data) many: RwLock<()>,
    /// Of the volume as it is now; a `FileData` of an earlier one may still have to be copied.
    pub(in crate::data) epoch: AtomicU64,
    pub(in crate::data) copies: Mutex<Option<Vec<Copy>>>,
}

/// The dirty side of an inode at the cut (`cut.data_only`).
pub(in crate::data) struct Copy {
    pub(in crate::data) inode: Arc<Inode>,
    pub(in crate::data) taken: Vec<Taken>,
    pub(in crate::data) facts: Facts,
}

/// The attributes that unstable writes change.
#[derive(Clone, Copy)]
pub(in crate::data) struct Facts {
    pub(in crate::data) mode: u32,
    pub(in crate::data) size: u64,
    pub(in crate::data) atime: Timestamp,
    pub(in crate::data) mtime: Timestamp,
    pub(in crate::data) ctime: Timestamp,
    pub(in crate::data) change: u64,
}

/// The gate of cuts, held for reading: no cut is under way, and none begins. It is held for moments, without a wait: it is not
/// `Send`, so no task can keep it over an await.
pub(in crate::data) struct Uncut<'a> {
    cut: &'a Cut,
    _gate: RwLockReadGuard<'a, ()>,
    _no_await: PhantomData<*const ()>,
}

impl Cut {
    pub(in crate::data) fn at(epoch: u64) -> Self {
        Self { epoch: AtomicU64::new(epoch), ..Self::default() }
    }

    /// Waits while a cut is under way. Outside every lock but `extents_lock` (`data.lock_order`).
    pub(in crate::data) async fn enter(&self) -> Uncut<'_> {
        Uncut { cut: self, _gate: self.gate.read().await, _no_await: PhantomData }
    }

    /// `None` while a cut is under way. May be called under any lock.
    pub(in crate::data) fn try_enter(&self) -> Option<Uncut<'_>> {
        Some(Uncut { cut: self, _gate: self.gate.try_read().ok()?, _no_await: PhantomData })
    }

    /// The moment of a cut.
    pub(in crate::data) async fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }
}

impl Uncut<'_> {
    /// An inode that is about to change.
    pub(in crate::data) fn change<'s>(
        &'s self,
        inode: &Arc<Inode>,
        state: &'s mut FileData,
        core: &InodeCore,
    ) -> Changing<'s> {
        self.preserve(inode, state, core);
        Changing::of(state, Preserved(PhantomData))
    }

    /// Copies the dirty ranges of an inode once after each cut.
    pub(in crate::data) fn preserve(&self, inode: &Arc<Inode>, state: &mut FileData, core: &InodeCore) {
        let epoch = self.cut.epoch.load(Ordering::Acquire);
        if state.epoch == epoch {
            return;
        }
        state.epoch = epoch;
        if state.dirty.is_empty() && !core.attr_dirty {
            return;
        }
        if let Some(copies) = &mut *self.cut.copies.lock() {
            let attr = &core.attr;
            let facts = Facts {
                mode: attr.mode,
                size: attr.size,
                atime: attr.atime,
                mtime: attr.mtime,
                ctime: attr.ctime,
                change: attr.change,
            };
            copies.push(Copy { inode: Arc::clone(inode), taken: state.dirty.copy(), facts });
        }
    }
}
