//! Points of the engine that outlive later changes: marked between two batches, stored, and read again.
//!
//! - `point.manifest_is_enough`: an engine's manifest names all its tables, which never change. Who keeps both reads the
//!   engine as it was.

use async_trait::async_trait;
use bytes::Bytes;
use larder_fs::FsResult;
use slatedb::CheckpointHandle;
use tokio::sync::oneshot;
use ulid::Ulid;

use super::Usage;

/// A point between two batches, on its way to the store.
pub(crate) struct Cut {
    pub(super) begun: oneshot::Receiver<FsResult<CheckpointHandle>>,
    /// The counters at the point.
    pub(crate) usage: Usage,
}

/// A stored point. Its tables are kept until [`super::Meta::release`], or for an hour.
pub(crate) struct Point {
    pub(super) checkpoint: uuid::Uuid,
    pub(crate) manifest_id: u64,
    /// The engine's manifest, byte for byte.
    pub(crate) manifest: Bytes,
    /// Its tables and their lengths.
    pub(crate) tables: Vec<(Ulid, u64)>,
}

/// Rows that never change.
#[async_trait]
pub(crate) trait Frozen: Send + Sync + 'static {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>>;
    /// Up to `limit` pairs with `from <= key < to`, in key order.
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>>;
}
