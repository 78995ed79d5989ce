//! A bucket that is changed only after the log: the objects of volumes whose log is answered from a local journal.
//!
//! - `after_log.nothing_ahead`: an object that is replaced or deleted may speak of log entries that only the journal has: a manifest of
//!   tables made from them, the deletion of a segment that they need no more. It waits until the bucket has all entries that were
//!   begun before. So a machine that takes the bucket without that journal finds an earlier moment, whole.
//! - `after_log.blocks`: the first segment of a block of numbers waits, too: the entry that takes the block is in the bucket before
//!   (`segment.numbers_of_an_opening`). Other segments and tables are new objects that nothing speaks of yet, and wait for nothing.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use larder_base::log::LogError;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// Resolves once the bucket has all entries that were begun before.
pub type Barrier = Arc<dyn Fn() -> BoxFuture<'static, std::result::Result<(), LogError>> + Send + Sync>;

/// A store that is changed after the log.
pub struct AfterLog {
    store: Arc<dyn ObjectStore>,
    barrier: Barrier,
    is_immutable: fn(&Path) -> bool,
    blocks: Mutex<HashSet<(String, String)>>,
}

impl AfterLog {
    /// `is_immutable` knows the objects that are written once and never changed.
    pub fn new(store: Arc<dyn ObjectStore>, barrier: Barrier, is_immutable: fn(&Path) -> bool) -> Self {
        Self { store, barrier, is_immutable, blocks: Mutex::default() }
    }

    async fn pass(&self) -> Result<()> {
        (self.barrier)().await.map_err(refused)
    }

    async fn before_put(&self, at: &Path) -> Result<()> {
        if !(self.is_immutable)(at) {
            return self.pass().await;
        }
        let Some(block) = block_of(at) else { return Ok(()) };
        if self.blocks.lock().contains(&block) {
            return Ok(());
        }
        self.pass().await?;
        self.blocks.lock().insert(block);
        Ok(())
    }
}

fn refused(error: LogError) -> Error {
    Error::Generic { store: "S3", source: format!("the log before it did not arrive: {error}").into() }
}

/// The volume and the block of numbers of a segment.
fn block_of(at: &Path) -> Option<(String, String)> {
    let parts: Vec<_> = at.parts().collect();
    let parts: Vec<&str> = parts.iter().map(|part| part.as_ref()).collect();
    match parts[..] {
        ["volumes", volume, "seg", number] => Some((volume.to_owned(), number.get(..8)?.to_owned())),
        _ => None,
    }
}

impl fmt::Debug for AfterLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for AfterLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AfterLog({})", self.store)
    }
}

#[async_trait]
impl ObjectStore for AfterLog {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.before_put(at).await?;
        self.store.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.before_put(at).await?;
        self.store.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(at, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let barrier = Arc::clone(&self.barrier);
        // Whoever names a path has decided before.
        let paths = paths.and_then(move |path| {
            let passed = barrier();
            async move { passed.await.map(|()| path).map_err(refused) }
        });
        self.store.delete_stream(paths.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.pass().await?;
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU64, Ordering};

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn what_waits_for_the_log() {
        let passed = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&passed);
        let barrier: Barrier = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        });
        let store = AfterLog::new(Arc::new(InMemory::new()), barrier, |path| path.as_ref().contains("/seg/"));
        let mut seen = 0;
        for (path, waits) in [
            ("volumes/a/seg/0000000100000001", true),
            ("volumes/a/seg/0000000100000002", false),
            ("volumes/b/seg/0000000100000002", true),
            ("volumes/a/seg/0000000200000001", true),
            ("volumes/a/meta/manifest/1.manifest", true),
            ("registry.json", true),
        ] {
            store.put(&path.into(), "x".into()).await.unwrap();
            let now = passed.load(Ordering::Relaxed);
            assert_eq!(now > seen, waits, "{path}");
            seen = now;
        }
        store.delete(&"volumes/a/seg/0000000100000001".into()).await.unwrap();
        assert_eq!(passed.load(Ordering::Relaxed), seen + 1);
        let broken: Barrier = Arc::new(|| Box::pin(async { Err(LogError::Poisoned("it was lost".into())) }));
        let inner = Arc::new(InMemory::new());
        let store = AfterLog::new(Arc::clone(&inner) as _, broken, |_| false);
        let error = store.put(&"registry.json".into(), "x".into()).await.unwrap_err().to_string();
        assert!(error.contains("it was lost"), "{error}");
        inner.put(&"kept".into(), "x".into()).await.unwrap();
        assert!(store.delete(&"kept".into()).await.is_err() && inner.head(&"kept".into()).await.is_ok());
    }
}
