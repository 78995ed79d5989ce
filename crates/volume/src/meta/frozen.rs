//! A reader of the engine at one of its manifests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_base::{boxed, task};
use larder_fs::{FsError, FsResult};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use slatedb::config::DbReaderOptions;
use slatedb::db_cache::DbCache;
use slatedb::{DbReader, DbReaderMode, IterationOrder};

use super::clock::EngineClock;
use super::engine::{engine_error, next_pair, scan_options};
use super::filter;
use super::point::Frozen;

/// A manifest that never changes needs no second look.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The parts that a reader is opened from.
#[derive(Clone)]
pub(super) struct FrozenParts {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    pub(super) cache: Arc<dyn DbCache>,
    pub(super) cache_id: u64,
    pub(super) clock: Arc<EngineClock>,
    pub(super) is_far: bool,
}

/// The folder of manifests of an engine at `path`.
fn manifests(path: &Path) -> Path {
    path.clone().join("manifest")
}

/// Where the engine keeps a manifest.
pub(crate) fn manifest_path(path: &Path, id: u64) -> Path {
    manifests(path).join(format!("{id:020}.manifest"))
}

struct FrozenDb {
    reader: Arc<DbReader>,
    is_far: bool,
    runtime: tokio::runtime::Handle,
}

impl Drop for FrozenDb {
    fn drop(&mut self) {
        // Its tasks hold it until they are told to end.
        let reader = Arc::clone(&self.reader);
        task::spawn_on(&self.runtime, async move {
            if let Err(error) = reader.close().await {
                tracing::debug!(%error, "a reader of a snapshot did not close cleanly");
            }
        });
    }
}

/// Opens a reader that sees the engine as `manifest` has it, and shares the cache of its tables.
#[boxed]
pub(super) async fn open(parts: &FrozenParts, id: u64, manifest: Bytes) -> FsResult<Arc<dyn Frozen>> {
    let store = OneManifest {
        store: Arc::clone(&parts.store),
        folder: manifests(&parts.path),
        boundaries: parts.path.clone().join("gc"),
        path: manifest_path(&parts.path, id),
        memory: object_store::memory::InMemory::new(),
    };
    object_store::ObjectStoreExt::put(&store.memory, &store.path, manifest.into())
        .await
        .map_err(|error| FsError::Io(format!("a manifest cannot be kept: {error}").into()))?;
    let options = DbReaderOptions {
        manifest_poll_interval: NEVER,
        skip_wal_replay: true,
        max_memtable_bytes: 1 << 20,
        ..DbReaderOptions::default()
    };
    let reader = DbReader::builder(parts.path.clone(), Arc::new(store) as Arc<dyn ObjectStore>)
        .with_reader_mode(DbReaderMode::FollowLatest)
        .with_options(options)
        .with_filter_policies(filter::policies())
        .with_db_cache(Arc::clone(&parts.cache), parts.cache_id)
        .with_system_clock(Arc::clone(&parts.clock) as Arc<_>)
        .build()
        .await
        .map_err(engine_error)?;
    let runtime = tokio::runtime::Handle::current();
    let frozen: Arc<dyn Frozen> = Arc::new(FrozenDb { reader: Arc::new(reader), is_far: parts.is_far, runtime });
    Ok(frozen)
}

#[async_trait]
impl Frozen for FrozenDb {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        self.reader.get(key).await.map_err(engine_error)
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        let range = Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to);
        let options = scan_options(limit, IterationOrder::Ascending, self.is_far);
        let mut rows = self.reader.scan_with_options(range, &options).await.map_err(engine_error)?;
        let mut pairs = Vec::new();
        while pairs.len() < limit
            && let Some(pair) = next_pair(&mut rows).await?
        {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

/// The engine's store with one manifest in it: whoever asks for the newest gets that one. Nothing can be written.
#[derive(Debug)]
struct OneManifest {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    /// Limits below which newer manifests lie; they are none of this one's concern.
    boundaries: Path,
    path: Path,
    memory: object_store::memory::InMemory,
}

impl OneManifest {
    fn is_hidden(&self, at: &Path) -> bool {
        at.prefix_matches(&self.boundaries)
    }
}

impl std::fmt::Display for OneManifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

fn refused() -> Error {
    Error::NotSupported { source: "a point in the past cannot be written".into() }
}

#[async_trait]
impl ObjectStore for OneManifest {
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_hidden(at) {
            return Err(Error::NotFound { path: at.to_string(), source: "it is later than this point".into() });
        }
        if at.prefix_matches(&self.folder) {
            return self.memory.get_opts(at, options).await;
        }
        self.store.get_opts(at, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match prefix {
            Some(prefix) if prefix.prefix_matches(&self.folder) => self.memory.list(Some(prefix)),
            Some(prefix) if self.is_hidden(prefix) => futures::stream::empty().boxed(),
            _ => self.store.list(prefix),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match prefix {
            Some(prefix) if prefix.prefix_matches(&self.folder) => self.memory.list_with_offset(Some(prefix), offset),
            Some(prefix) if self.is_hidden(prefix) => futures::stream::empty().boxed(),
            _ => self.store.list_with_offset(prefix, offset),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        match prefix {
            Some(prefix) if prefix.prefix_matches(&self.folder) => self.memory.list_with_delimiter(Some(prefix)).await,
            _ => self.store.list_with_delimiter(prefix).await,
        }
    }

    async fn put_opts(&self, _at: &Path, _payload: PutPayload, _options: PutOptions) -> Result<PutResult> {
        Err(refused())
    }

    async fn put_multipart_opts(&self, _at: &Path, _options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(refused())
    }

    fn delete_stream(&self, _paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures::stream::once(async { Err(refused()) }).boxed()
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(refused())
    }
}
