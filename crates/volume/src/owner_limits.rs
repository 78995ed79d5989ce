//! Quotas by owner, as writers look them up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::properties::OwnerQuotas;

/// The quotas of an open volume, as writers look them up.
#[derive(Default)]
pub(crate) struct OwnerLimits {
    any: AtomicBool,
    quotas: RwLock<Arc<OwnerQuotas>>,
}

impl OwnerLimits {
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, quotas: &OwnerQuotas) {
        *self.quotas.write() = Arc::new(quotas.clone());
        self.any.store(!quotas.is_empty(), Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> Arc<OwnerQuotas> {
        Arc::clone(&self.quotas.read())
    }

    /// Of a user and a group.
    pub(crate) fn of(&self, uid: u32, gid: u32) -> (Option<u64>, Option<u64>) {
        if !self.any() {
            return (None, None);
        }
        let quotas = self.quotas.read();
        (OwnerQuotas::of(&quotas.users, uid), OwnerQuotas::of(&quotas.groups, gid))
    }
}
