//! The pool as an `object_store::ObjectStore`.
//!
//! Puts, completions and deletes run as tasks of their own: a caller that goes away half-way leaves
//! either the old or the new state, never a half-written one, and no litter.
//!
//! Two more traits of object_store are left out on purpose. `MultipartStore` names an upload by an
//! id that any process may go on with later: the pool would have to keep parts of uploads that
//! nobody finishes, across restarts, while a pool has one user, who holds its [`Upload`].
//! `PaginatedListStore` hands out pages by token for callers without a connection; listings here
//! come from the index in memory, in order, and `list_with_offset` continues anywhere.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use larder_base::checksum::CallerVerifies;
use larder_base::task;
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::core::Core;
use crate::error::PoolError;
use crate::object::gather::Gather;
use crate::object::index::Object;
use crate::object::read::READ_BYTES_MAX;
use crate::object::refusal::{bad_range, not_found, refused};
use crate::object::tombstones::Tombstones;
use crate::object::upload::Upload;
use crate::object::write::Request;

/// Chunks of a streamed object that are read ahead of the consumer.
const READ_AHEAD: usize = 2;
/// Deletes recorded by one journal entry.
const DELETE_BATCH: usize = 64;
/// Ranges of one call that are read at once.
const RANGES_AT_ONCE: usize = 16;
/// Objects copied in one piece.
const COPY_WHOLE_BYTES: u64 = 8 << 20;
/// Listings are taken from the index in pages of this size.
const LIST_PAGE: usize = 1024;

#[derive(Clone)]
pub struct PoolStore {
    pub core: Arc<Core>,
    pub tombstones: Arc<Tombstones>,
}

impl fmt::Debug for PoolStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolStore({})", self.core.members.name)
    }
}

impl fmt::Display for PoolStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "larder pool {}", self.core.members.name)
    }
}

fn meta_of(object: &Object) -> ObjectMeta {
    ObjectMeta {
        location: path_of(&object.path),
        last_modified: (std::time::UNIX_EPOCH + std::time::Duration::from_millis(object.modified_ms)).into(),
        size: object.geometry.size,
        e_tag: Some(object.e_tag()),
        version: None,
    }
}

fn path_of(path: &str) -> Path {
    // The path was put as a `Path`, so this round-trips without escaping anything twice.
    Path::parse(path).unwrap_or_else(|_| Path::from(path))
}

fn put_result(object: &Object) -> PutResult {
    PutResult { e_tag: Some(object.e_tag()), version: None, extensions: Default::default() }
}

impl PoolStore {
    fn find(&self, path: &Path) -> Result<Arc<Object>> {
        self.core.objects.index().get(path.as_ref()).cloned().ok_or_else(|| not_found(path))
    }

    /// Runs `work` to its end even if the caller goes away.
    async fn detached<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        task::spawn_for(work).await.map_err(|_| PoolError::Cancelled(self.core.members.name.clone()).into())
    }

    async fn put_bytes(&self, request: Request, data: Gather) -> Result<PutResult> {
        let core = self.core.clone();
        let path = request.path.clone();
        let result = self.detached(async move { core.put(&request, data).await }).await?;
        result.map(|object| put_result(&object)).map_err(|error| refused(&path, error))
    }

    /// Each item is the result of one read, in pieces.
    fn stream(&self, object: Arc<Object>, range: Range<u64>) -> BoxStream<'static, Result<Vec<Bytes>>> {
        let core = self.core.clone();
        // Chunks are whole stripes, so that no block is read twice.
        let stripe = object.geometry.stripe_bytes();
        let chunk = (READ_BYTES_MAX / stripe).max(1) * stripe;
        let first = range.start / chunk;
        let chunks = first..range.end.div_ceil(chunk);
        stream::iter(chunks)
            .map(move |at| {
                let (core, object) = (core.clone(), object.clone());
                let part = (at * chunk).max(range.start)..((at + 1) * chunk).min(range.end);
                async move { Result::Ok(core.read_chunks(&object, part).await?) }
            })
            .buffered(READ_AHEAD)
            .boxed()
    }

    async fn delete_batch(self, batch: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let paths: Vec<Path> = batch.iter().filter_map(|path| path.as_ref().ok().cloned()).collect();
        let store = self.clone();
        let result = self.detached(async move { store.delete_all(&paths).await }).await.and_then(|result| result);
        let failed = result.err().map(|error| error.to_string());
        batch
            .into_iter()
            .map(|path| match (path, &failed) {
                (Ok(_), Some(error)) => Err(Error::Generic { store: "larder-pool", source: error.clone().into() }),
                (path, _) => path,
            })
            .collect()
    }

    /// Deletes are durable when the journal has them; the files go afterwards.
    async fn delete_all(&self, paths: &[Path]) -> Result<()> {
        self.core.check_open()?;
        let known: Vec<Arc<Object>> = {
            let (index, refused) = (self.core.objects.index(), self.core.objects.refused.lock());
            let versions = |path: &Path| {
                let put_back = refused.get(path.as_ref()).map(|object| Arc::new(object.shadow()));
                [index.get(path.as_ref()).cloned(), put_back]
            };
            paths.iter().flat_map(versions).flatten().collect()
        };
        self.tombstones.delete(&self.core, known).await?;
        let mut refused = self.core.objects.refused.lock();
        paths.iter().for_each(|path| _ = refused.remove(path.as_ref()));
        Ok(())
    }

    /// One page of the objects below `prefix` after `offset`.
    fn page(&self, prefix: &str, offset: Option<&str>) -> Vec<ObjectMeta> {
        use std::ops::Bound;
        let index = self.core.objects.index();
        let from = match offset {
            Some(offset) if offset >= prefix => Bound::Excluded(offset),
            _ => Bound::Included(prefix),
        };
        index
            .objects
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(prefix))
            .filter(|(path, _)| below(path, prefix).is_some())
            .take(LIST_PAGE)
            .map(|(_, object)| meta_of(object))
            .collect()
    }

    fn pages(&self, prefix: Option<&Path>, offset: Option<String>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.map_or_else(String::new, |prefix| prefix.as_ref().to_owned());
        let store = self.clone();
        stream::unfold(Some(offset), move |state| {
            let (store, prefix) = (store.clone(), prefix.clone());
            async move {
                let offset = state?;
                let page = store.page(&prefix, offset.as_deref());
                let next = (page.len() == LIST_PAGE).then(|| page.last().map(|meta| meta.location.to_string()));
                Some((stream::iter(page.into_iter().map(Ok)), next))
            }
        })
        .flatten()
        .boxed()
    }
}

/// The part of `path` below the directory `prefix`, if it lies there.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix)?;
    let rest = if prefix.is_empty() { rest } else { rest.strip_prefix('/')? };
    (!rest.is_empty()).then_some(rest)
}

#[async_trait]
impl ObjectStore for PoolStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let group = opts.extensions.get().copied();
        let request = Request { path: location.to_string(), attributes: opts.attributes, mode: opts.mode, group };
        self.put_bytes(request, Gather::new(payload)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.core.check_open()?;
        let request =
            Request { path: location.to_string(), attributes: opts.attributes, mode: PutMode::Overwrite, group: None };
        Ok(Box::new(Upload::new(self.core.clone(), request)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.core.check_open()?;
        let object = self.find(location)?;
        let meta = meta_of(&object);
        options.check_preconditions(&meta)?;
        if options.version.is_some() {
            return Err(not_found(location));
        }
        let size = meta.size;
        let range = match &options.range {
            Some(range) => range.as_range(size).map_err(|_| bad_range(range, size))?,
            None => 0..size,
        };
        let attributes: Attributes = self.core.attributes(&object).await?;
        let payload = if options.head {
            stream::empty().boxed()
        } else if range.end - range.start <= READ_BYTES_MAX {
            let chunks = match options.extensions.get::<CallerVerifies>() {
                Some(_) => self.core.read_unproven(&object, range.clone()).await?,
                None => self.core.read_chunks(&object, range.clone()).await?,
            };
            stream::iter(chunks.into_iter().map(Ok)).boxed()
        } else {
            let pieces = |chunks: Vec<Bytes>| stream::iter(chunks.into_iter().map(Ok));
            self.stream(object, range.clone()).map_ok(pieces).try_flatten().boxed()
        };
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.core.check_open()?;
        let object = self.find(location)?;
        let size = object.geometry.size;
        let reads = ranges.iter().map(|range| {
            let range = GetRange::Bounded(range.clone()).as_range(size).map_err(|_| bad_range(range, size));
            self.read_whole(object.clone(), range)
        });
        // Collected first: the futures borrow nothing that a stream adaptor would have to name.
        let reads: Vec<_> = reads.collect();
        stream::iter(reads).buffered(RANGES_AT_ONCE).try_collect().await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .ready_chunks(DELETE_BATCH)
            .then(move |batch| store.clone().delete_batch(batch))
            .flat_map(stream::iter)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pages(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pages(prefix, Some(offset.to_string()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        use std::ops::Bound;
        let root = Path::default();
        let prefix = prefix.unwrap_or(&root);
        let mut result =
            ListResult { objects: Vec::new(), common_prefixes: Vec::new(), extensions: Default::default() };
        let index = self.core.objects.index();
        let mut from = Bound::Included(prefix.as_ref().to_owned());
        // A directory costs one step, however much lies below it.
        while let Some((path, object)) = index.objects.range::<String, _>((from, Bound::Unbounded)).next() {
            if !path.starts_with(prefix.as_ref()) {
                break;
            }
            from = Bound::Excluded(path.clone());
            let Some(rest) = below(path, prefix.as_ref()) else { continue };
            match rest.split_once('/') {
                None => result.objects.push(meta_of(object)),
                Some((directory, _)) => {
                    let length = path.len() - rest.len() + directory.len();
                    let directory = &path[..length];
                    result.common_prefixes.push(path_of(directory));
                    // '0' is the character after '/'.
                    from = Bound::Included(format!("{directory}0"));
                }
            }
        }
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let object = self.find(from)?;
        let mode = match options.mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        let attributes = self.core.attributes(&object).await?;
        let request = Request { path: to.to_string(), attributes, mode, group: None };
        self.core.check_condition(&request).map_err(|error| refused(to.as_ref(), error))?;
        let size = object.geometry.size;
        if size <= COPY_WHOLE_BYTES {
            let bytes = self.core.read(&object, 0..size).await?;
            self.put_bytes(request, Gather::new([bytes])).await?;
            return Ok(());
        }
        let mut upload = Upload::new(self.core.clone(), request);
        let mut parts = self.stream(object, 0..size);
        while let Some(part) = parts.try_next().await? {
            upload.put_part(part.into_iter().collect()).await?;
        }
        upload.complete().await.map(|_| ())
    }
}

impl PoolStore {
    async fn read_whole(&self, object: Arc<Object>, range: Result<Range<u64>>) -> Result<Bytes> {
        let range = range?;
        if range.end - range.start <= READ_BYTES_MAX {
            return Ok(self.core.read(&object, range).await?);
        }
        let mut whole = bytes::BytesMut::with_capacity((range.end - range.start) as usize);
        let mut parts = self.stream(object, range);
        while let Some(part) = parts.try_next().await? {
            part.iter().for_each(|piece| whole.extend_from_slice(piece));
        }
        Ok(whole.freeze())
    }
}
