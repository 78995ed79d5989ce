//! Bugs that tests plant between the pool and its users: answers that come before what they promise.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_base::log::{LogEntry, Receipt};
use larder_base::{LogError, LogStore, task};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::disk::Plant;

/// How long it takes until what was answered is done.
const LATE: Duration = Duration::from_millis(50);

/// Answers before it is done whatever `plant` says: whoever relies on it loses it with the power.
#[derive(Debug)]
pub struct EarlyStore {
    store: Arc<dyn ObjectStore>,
    plant: Plant,
    /// Objects that are answered and not stored yet.
    late: Arc<Mutex<BTreeSet<Path>>>,
}

impl EarlyStore {
    /// `store`, unless the bug is of its kind.
    pub fn over(store: Arc<dyn ObjectStore>, plant: Option<Plant>) -> Arc<dyn ObjectStore> {
        match plant {
            Some(plant @ (Plant::EarlySegment | Plant::EarlyPut | Plant::EarlyCopy | Plant::EarlyDelete)) => {
                Arc::new(Self { store, plant, late: Arc::default() })
            }
            _ => store,
        }
    }

    /// Does it later. What fails then is missed when it is read.
    fn later<T>(&self, location: &Path, work: impl Future<Output = T> + Send + 'static) {
        self.late.lock().insert(location.clone());
        let (late, location) = (self.late.clone(), location.clone());
        drop(task::spawn(async move {
            tokio::time::sleep(LATE).await;
            drop(work.await);
            late.lock().remove(&location);
        }));
    }

    async fn arrival(&self, location: &Path) {
        while self.late.lock().contains(location) {
            tokio::time::sleep(LATE).await;
        }
    }
}

impl fmt::Display for EarlyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("early answers")
    }
}

#[async_trait]
impl ObjectStore for EarlyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.arrival(location).await;
        let is_early = match self.plant {
            Plant::EarlySegment => location.as_ref().contains("/seg/"),
            // A create says whether there was something.
            Plant::EarlyPut => opts.mode == PutMode::Overwrite,
            _ => false,
        };
        if !is_early {
            return self.store.put_opts(location, payload, opts).await;
        }
        let (store, to) = (self.store.clone(), location.clone());
        self.later(location, async move { store.put_opts(&to, payload, opts).await });
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.arrival(location).await;
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        if self.plant != Plant::EarlyDelete {
            return self.store.delete_stream(locations);
        }
        // One at a time is what the clients delete.
        let due = futures::executor::block_on(locations.collect::<Vec<_>>());
        for location in due.iter().flatten() {
            let (store, gone) = (self.store.clone(), location.clone());
            self.later(location, async move { store.delete(&gone).await });
        }
        futures::stream::iter(due).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.arrival(from).await;
        if self.plant != Plant::EarlyCopy {
            return self.store.copy_opts(from, to, options).await;
        }
        let (store, source, target) = (self.store.clone(), from.clone(), to.clone());
        self.later(to, async move { store.copy_opts(&source, &target, options).await });
        Ok(())
    }
}

/// Trims a stream behind what was appended, whatever the tree has by then.
pub struct EarlyTrims(pub Arc<dyn LogStore>);

/// Entries that are left alone.
const KEPT: u64 = 20;

#[async_trait]
impl LogStore for EarlyTrims {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let receipt = self.0.begin(stream, id, payload).await?;
        let (log, stream) = (Arc::clone(&self.0), stream.to_owned());
        Ok(Box::pin(async move {
            receipt.await?;
            if id.is_multiple_of(KEPT) {
                log.trim(&stream, id.saturating_sub(KEPT)).await?;
            }
            Ok(())
        }))
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.0.replay(stream, after).await
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.0.trim(stream, through).await
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.0.remove(stream).await
    }

    fn is_proven(&self) -> bool {
        self.0.is_proven()
    }

    fn last(&self, stream: &str) -> Option<u64> {
        self.0.last(stream)
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        self.0.held_bytes(stream)
    }

    fn usage(&self) -> (u64, u64) {
        self.0.usage()
    }
}

/// Answers when an entry has its place, not when it is durable.
pub struct EarlyReceipts(pub Arc<dyn LogStore>);

#[async_trait]
impl LogStore for EarlyReceipts {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let receipt = self.0.begin(stream, id, payload).await?;
        drop(task::spawn_for(receipt));
        Ok(Box::pin(async { Ok(()) }))
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.0.replay(stream, after).await
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.0.trim(stream, through).await
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.0.remove(stream).await
    }

    fn is_proven(&self) -> bool {
        self.0.is_proven()
    }

    fn last(&self, stream: &str) -> Option<u64> {
        self.0.last(stream)
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        self.0.held_bytes(stream)
    }

    fn usage(&self) -> (u64, u64) {
        self.0.usage()
    }
}
