//! What was seen of pools at the last look, as a digest: most looks find the same.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A digest of each pool's damaged objects at the last look.
#[derive(Default)]
pub(crate) struct LastLooks(Mutex<BTreeMap<String, u64>>);

impl LastLooks {
    /// Whether the list of a pool differs from the last one. A first look is news unless nothing is damaged, and nothing was before.
    pub(crate) fn is_news(&self, pool: &str, digest: u64) -> bool {
        self.0.lock().insert(pool.to_owned(), digest) != Some(digest)
    }
}
