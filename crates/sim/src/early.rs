//! Bugs that tests plant between the volume and the pool.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use larder_base::log::{LogEntry, Receipt};
use larder_base::{LogError, LogStore};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// How long a segment is on its way.
const LATE: Duration = Duration::from_millis(50);

/// Answers a put of a segment before it is stored: whoever relies on it too early loses it with the power.
#[derive(Debug)]
pub struct EarlySegments {
    store: Arc<dyn ObjectStore>,
    late: Arc<Mutex<BTreeSet<Path>>>,
}

impl EarlySegments {
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, late: Arc::default() }
    }
}

impl fmt::Display for EarlySegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("early segments")
    }
}

#[async_trait]
impl ObjectStore for EarlySegments {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if !location.as_ref().contains("/seg/") {
            return self.store.put_opts(location, payload, opts).await;
        }
        self.late.lock().insert(location.clone());
        let (store, late, location) = (self.store.clone(), self.late.clone(), location.clone());
        drop(tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            // A segment that cannot be stored is missed when it is read.
            let _ = store.put_opts(&location, payload, opts).await;
            late.lock().remove(&location);
        }));
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        while self.late.lock().contains(location) {
            tokio::time::sleep(LATE).await;
        }
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
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

    fn held_bytes(&self, stream: &str) -> u64 {
        self.0.held_bytes(stream)
    }

    fn usage(&self) -> (u64, u64) {
        self.0.usage()
    }
}
