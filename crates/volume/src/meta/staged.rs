//! A store of tables, a part of which is fetched in one request before the engine asks for it.
//!
//! The engine reads a table's filter, its index and its blocks one after the other. They lie side by side in the object, so behind a
//! network one request for all of them is cheaper.
//!
//! - `staged.joined`: a read of a part that is being fetched waits for that request and makes none. Should the request fail, the
//!   read asks the store itself.
//! - `staged.never_twice_wrong`: a read that the engine repeats, because a checksum was wrong, always asks the store.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use slatedb::object_store_tag::ObjectStoreCallTag;

type Fetched = Shared<BoxFuture<'static, Option<(ObjectMeta, Bytes)>>>;
/// Which bytes of which objects.
type Parts = Arc<Mutex<HashMap<Path, (Range<u64>, Fetched)>>>;

/// A store with parts of objects that are at hand, or on their way.
pub(super) struct Staged {
    store: Arc<dyn ObjectStore>,
    parts: Parts,
}

/// A part of an object, for reads of it until this is dropped.
pub(super) struct Part {
    parts: Parts,
    at: Path,
    fetched: Fetched,
}

impl Part {
    /// Waits for it. False: the store did not answer.
    pub(super) async fn is_here(&self) -> bool {
        self.fetched.clone().await.is_some()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.parts.lock().remove(&self.at);
    }
}

impl Staged {
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, parts: Arc::default() }
    }

    /// Fetches `range` of an object as soon as somebody waits for it.
    pub(super) fn stage(&self, at: Path, range: Range<u64>) -> Part {
        let (store, path, wanted) = (Arc::clone(&self.store), at.clone(), range.clone());
        let fetch = async move {
            let options = GetOptions { range: Some(GetRange::Bounded(wanted.clone())), ..GetOptions::default() };
            let got = store.get_opts(&path, options).await.ok()?;
            let meta = got.meta.clone();
            let bytes = got.bytes().await.ok()?;
            (bytes.len() as u64 == wanted.end - wanted.start).then_some((meta, bytes))
        };
        let fetched = fetch.boxed().shared();
        self.parts.lock().insert(at.clone(), (range, fetched.clone()));
        Part { parts: Arc::clone(&self.parts), at, fetched }
    }

    /// The answer, if it is a part of what is staged.
    async fn staged(&self, at: &Path, options: &GetOptions) -> Option<GetResult> {
        let Some(GetRange::Bounded(range)) = &options.range else { return None };
        let is_repeated =
            ObjectStoreCallTag::from_extensions(&options.extensions).is_some_and(|tag| tag.retry.is_some());
        if is_repeated || options.head || range.start >= range.end {
            return None;
        }
        let (start, fetched) = {
            let parts = self.parts.lock();
            let (part, fetched) = parts.get(at)?;
            (part.start <= range.start && range.end <= part.end).then(|| (part.start, fetched.clone()))?
        };
        let (meta, bytes) = fetched.await?;
        // A copy: the engine keeps a block, and would keep what lies beside it.
        let bytes = Bytes::copy_from_slice(bytes.get((range.start - start) as usize..(range.end - start) as usize)?);
        let payload = GetResultPayload::Stream(futures::stream::once(async move { Ok(bytes) }).boxed());
        let (range, attributes) = (range.clone(), Attributes::default());
        Some(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staged({:?})", self.store)
    }
}

impl std::fmt::Display for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Staged {
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        match self.staged(at, &options).await {
            Some(got) => Ok(got),
            None => self.store.get_opts(at, options).await,
        }
    }

    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.store.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, options).await
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

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
