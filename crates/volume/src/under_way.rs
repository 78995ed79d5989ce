//! [`UnderWay`]: a store that knows which writes of a volume have not ended.
//!
//! The engine gives writes up when it closes, and a pool or a bucket may take them all the same. An object that comes later is garbage
//! for ever once its volume is destroyed, and damage once the volume is sealed: it would be in clear.
//!
//! - `underway.writes_end`: a write that was begun runs to its end, even if its caller goes away, and whoever asks waits for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use tokio::sync::RwLock;
use uuid::Uuid;

use crate::layout::prefix_of;
use larder_base::task;

/// Longer than a disk that hangs holds up a write.
const SETTLING_MAX: Duration = Duration::from_secs(90);

pub(crate) struct UnderWay {
    store: Arc<dyn ObjectStore>,
    /// For each folder of a volume, what its writes hold while they are under way.
    writes: Mutex<HashMap<Path, Arc<RwLock<()>>>>,
}

impl UnderWay {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, writes: Mutex::default() }
    }

    /// Waits for the writes of a volume. Whether they have ended; one that begins meanwhile waits.
    pub(crate) async fn is_settled(&self, volume: Uuid) -> bool {
        let writes = self.writes_of(&prefix_of(volume).join("any"));
        tokio::time::timeout(SETTLING_MAX, writes.write()).await.is_ok()
    }

    fn writes_of(&self, at: &Path) -> Arc<RwLock<()>> {
        let folder: Path = at.parts().take(2).collect();
        let mut writes = self.writes.lock();
        // Those of whoever is under way have another owner.
        writes.retain(|known, held| *known == folder || Arc::strong_count(held) > 1);
        Arc::clone(writes.entry(folder).or_default())
    }
}

/// `underway.writes_end`
async fn to_its_end<T: Send + 'static>(
    writes: Arc<RwLock<()>>,
    write: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let under_way = writes.read_owned().await;
    let written = task::spawn_for(async move {
        let written = write.await;
        drop(under_way);
        written
    });
    written.await.map_err(|error| Error::JoinError { source: error })?
}

/// An upload, whose completion is the write.
#[derive(Debug)]
struct Upload {
    /// `None` once it is being completed.
    upload: Option<Box<dyn MultipartUpload>>,
    writes: Arc<RwLock<()>>,
}

fn completed() -> Error {
    Error::Generic { store: "volume", source: "the upload is completed already".into() }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        match &mut self.upload {
            Some(upload) => upload.put_part(part),
            None => Box::pin(std::future::ready(Err(completed()))),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut upload = self.upload.take().ok_or_else(completed)?;
        to_its_end(Arc::clone(&self.writes), async move { upload.complete().await }).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.as_mut().ok_or_else(completed)?.abort().await
    }
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnderWay({:?})", self.store)
    }
}

impl fmt::Display for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for UnderWay {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (store, path) = (Arc::clone(&self.store), at.clone());
        to_its_end(self.writes_of(at), async move { store.put_opts(&path, payload, options).await }).await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let upload = Some(self.store.put_multipart_opts(at, options).await?);
        Ok(Box::new(Upload { upload, writes: self.writes_of(at) }))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (store, from, at) = (Arc::clone(&self.store), from.clone(), to.clone());
        to_its_end(self.writes_of(to), async move { store.copy_opts(&from, &at, options).await }).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(at, options).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[std::ops::Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        self.store.get_ranges(at, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(paths)
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use tokio::time::timeout;

    use super::*;

    /// A store that takes five seconds for what is written.
    #[derive(Debug)]
    struct Slow(InMemory);

    impl fmt::Display for Slow {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Slow")
        }
    }

    const SLOW: Duration = Duration::from_secs(5);

    #[async_trait]
    impl ObjectStore for Slow {
        async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
            tokio::time::sleep(SLOW).await;
            self.0.put_opts(at, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            at: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(at, options).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            tokio::time::sleep(SLOW).await;
            self.0.copy_opts(from, to, options).await
        }
        async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(at, options).await
        }
        fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(paths)
        }
        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_given_up_has_come_once_its_volume_is_settled() {
        let slow = Arc::new(Slow(InMemory::new()));
        let store = UnderWay::new(Arc::clone(&slow) as Arc<_>);
        let (volume, other) = (Uuid::new_v4(), Uuid::new_v4());
        let at = |name: &str| prefix_of(volume).join("meta").join(name);
        let moment = Duration::from_secs(1);

        timeout(moment, store.put(&at("put"), "x".into())).await.unwrap_err();
        slow.get(&at("put")).await.unwrap_err();
        assert!(timeout(moment, store.is_settled(other)).await.unwrap(), "that of another volume is not waited for");
        assert!(store.is_settled(volume).await);
        slow.get(&at("put")).await.unwrap();

        timeout(moment, store.copy(&at("put"), &at("copied"))).await.unwrap_err();
        assert!(store.is_settled(volume).await);
        slow.get(&at("copied")).await.unwrap();

        let mut upload = store.put_multipart(&at("uploaded")).await.unwrap();
        upload.put_part("y".into()).await.unwrap();
        upload.complete().await.unwrap();
        upload.complete().await.unwrap_err();
        slow.get(&at("uploaded")).await.unwrap();
        drop(upload);
        store.writes_of(&prefix_of(other));
        assert_eq!(store.writes.lock().len(), 1, "what no write holds is forgotten");
    }
}
