//! What a follower stands on, and what it shows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::{Clock, LogStore};
use larder_fs::FsResult;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::meta::slate::Engine;
use crate::meta::{Frozen, Usage};
use crate::snapshots::View;

/// The parts that a follower is opened from.
pub(crate) struct FollowParts {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
    pub(crate) log: Arc<dyn LogStore>,
    pub(crate) stream: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache_id: u64,
    /// `follow.bounded_age`
    pub(crate) behind_max: Duration,
}

impl FollowParts {
    pub(super) async fn frozen(&self, manifest_id: u64, manifest: Bytes) -> FsResult<Arc<dyn Frozen>> {
        let place = (Arc::clone(&self.store), self.path.clone());
        self.engine.frozen(place, Arc::clone(&self.clock), self.cache_id, (manifest_id, manifest)).await
    }
}

/// The volume as of one look.
pub(super) struct Sight {
    pub(super) view: View,
    pub(super) usage: Usage,
    pub(super) tables: Vec<(String, u64)>,
    pub(super) runs: (u64, u64),
}

/// What differs between two views.
#[derive(Debug)]
pub(crate) enum Change {
    Keys(BTreeSet<Bytes>),
    /// Nobody knows.
    All,
}

/// The caches over a followed volume.
#[async_trait]
pub(crate) trait Caches: Send + Sync + 'static {
    /// Forgets what has changed (`follow.one_turn`). Called under the lock of the turn: it must not wait.
    fn forget(&self, change: &Change);
    /// Tells those outside, as far as it is known what changed.
    async fn tell(&self, before: &dyn Frozen, after: &dyn Frozen, change: &Change);
    /// Snapshots may have come or gone.
    async fn read_catalog(&self, rows: &dyn Frozen) -> FsResult<()>;
}
