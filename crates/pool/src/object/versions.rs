//! Numbers of versions: each is given once, and later ones are higher.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::member::label::Label;

#[derive(Debug, Default)]
pub struct Versions {
    next: AtomicU64,
}

impl Versions {
    /// Versions of this session start beyond all earlier ones. Called when the first label of the
    /// session is on the disks: its generation makes versions unique over restarts, its nonce over
    /// splits (`shard.version_never_reused`).
    pub fn begin_session(&self, label: &Label) {
        let first = (label.generation << 40) | ((label.nonce & 0xfff) << 28);
        self.next.store(first + 1, Ordering::Relaxed);
    }

    /// A session whose label no disk took, all being full, has used its generation, and the next
    /// session has the same. Its versions start beyond all known ones, or a tombstone would name
    /// them, too (`write.outrun`).
    pub fn skip(&self, known: u64) {
        const SESSION_BITS: u32 = 40;
        const GENERATION_MAX: u64 = u64::MAX >> SESSION_BITS;
        let first = self.next.load(Ordering::Relaxed);
        if known >= first {
            let generation = ((known >> SESSION_BITS) + 1).min(GENERATION_MAX);
            let in_session = first & ((1 << SESSION_BITS) - 1);
            self.next.store((generation << SESSION_BITS) | in_session, Ordering::Relaxed);
        }
    }

    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}
