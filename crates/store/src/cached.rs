//! A store that is read through a cache.
//!
//! - `cached.long_reads_are_streams`: a range of more than [`LONG_BYTES_MIN`] is passed on as it arrives. What the cache has of it
//!   comes from the cache, and the rest by one request for each gap. Little that is cached between two gaps is asked for again,
//!   which is one request less.
//! - `cached.kept_to_the_end`: a reader may let go of the stream when it has its last byte. What the store has been asked for beyond
//!   that, the rest of a block, is kept as well; of a stream that is let go of earlier, the whole blocks that have come.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::cache::{BLOCK_BYTES, DiskCache, IsImmutable, Read, blocks_of, name_of};
use larder_base::task;

/// Reads of more than this pass by; a volume reads less at a time.
const READ_BYTES_MAX: u64 = 16 << 20;
const LONG_BYTES_MIN: u64 = 1 << 20;
/// One read of the cache's disk, and one write to it.
const PIECE_BLOCKS: usize = 16;
/// Fewer cached blocks than these between two gaps are fetched along.
const ISLAND_BLOCKS: usize = 8;

/// A store whose unchanging objects are read from a cache where that has them.
#[derive(Debug)]
pub struct Cached {
    store: Arc<dyn ObjectStore>,
    cache: Arc<DiskCache>,
    is_immutable: IsImmutable,
}

impl Cached {
    /// Reads of `store` through `cache`.
    pub fn new(store: Arc<dyn ObjectStore>, cache: Arc<DiskCache>, is_immutable: IsImmutable) -> Self {
        Self { store, cache, is_immutable }
    }

    /// The range, if the cache may have it.
    fn cacheable(&self, at: &Path, options: &GetOptions) -> Option<Range<u64>> {
        let Some(GetRange::Bounded(range)) = &options.range else { return None };
        let is_plain = !options.head
            && options.if_match.is_none()
            && options.if_none_match.is_none()
            && options.if_modified_since.is_none()
            && options.if_unmodified_since.is_none()
            && options.version.is_none();
        let fits = range.start < range.end && range.end - range.start <= READ_BYTES_MAX;
        (is_plain && fits && self.cache.is_used() && (self.is_immutable)(at)).then(|| range.clone())
    }

    /// A long range (`cached.long_reads_are_streams`).
    async fn get_long(&self, at: &Path, options: GetOptions, range: Range<u64>) -> Result<GetResult> {
        let name = name_of(at);
        let blocks = blocks_of(&range).unwrap_or_default();
        let (present, object_bytes) = self.cache.present(name, blocks.clone());
        let stretches = stretches(&range, blocks, &present, object_bytes);
        let is_hit = stretches.iter().all(|stretch| stretch.is_here);
        (if is_hit { &self.cache.hits } else { &self.cache.misses }).add(1);
        let (store, cache) = (Arc::clone(&self.store), Arc::clone(&self.cache));
        let (at, first) = (at.clone(), stretches.front().is_some_and(|first| !first.is_here));
        let mut long = Long { store, cache, at, name, options, end: range.end, rest: stretches, body: None };
        let mut meta = None;
        if first && let Some(stretch) = long.rest.pop_front() {
            meta = Some(long.open(stretch.range).await?);
        }
        let Some(object_bytes) =
            meta.as_ref().map(|meta| meta.size).or(object_bytes).filter(|size| *size > range.start)
        else {
            // Behind the object's end: the store has its own words for that.
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..long.options };
            return self.store.get_opts(&long.at, options).await;
        };
        long.end = range.end.min(object_bytes);
        let (range, at) = (range.start..long.end, long.at.clone());
        Ok(result(&at, long.into_stream(), range, meta, object_bytes))
    }

    fn forget(&self, at: &Path) {
        if (self.is_immutable)(at) {
            self.cache.forget(at);
        }
    }
}

impl fmt::Display for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cached({})", self.store)
    }
}

fn one(bytes: Bytes) -> BoxStream<'static, Result<Bytes>> {
    futures::stream::once(async move { Ok(bytes) }).boxed()
}

fn result(
    at: &Path,
    content: BoxStream<'static, Result<Bytes>>,
    range: Range<u64>,
    meta: Option<ObjectMeta>,
    object_bytes: u64,
) -> GetResult {
    let meta = meta.unwrap_or_else(|| ObjectMeta {
        location: at.clone(),
        last_modified: Default::default(),
        size: object_bytes,
        e_tag: None,
        version: None,
    });
    GetResult {
        payload: GetResultPayload::Stream(content),
        meta,
        range,
        attributes: Attributes::default(),
        extensions: Default::default(),
    }
}

#[async_trait]
impl ObjectStore for Cached {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.forget(at);
        self.store.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.forget(at);
        self.store.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(range) = self.cacheable(at, &options) else { return self.store.get_opts(at, options).await };
        if range.end - range.start > LONG_BYTES_MIN {
            return self.get_long(at, options, range).await;
        }
        let name = name_of(at);
        if let Some((bytes, object_bytes)) = self.cache.read(name, range.clone()).await {
            self.cache.hits.add(1);
            let range = range.start..range.start + bytes.len() as u64;
            return Ok(result(at, one(bytes), range, None, object_bytes));
        }
        self.cache.misses.add(1);
        let Some(blocks) = blocks_of(&range) else { return self.store.get_opts(at, options).await };
        let aligned = u64::from(blocks.start) * BLOCK_BYTES..u64::from(blocks.end) * BLOCK_BYTES;
        let options = GetOptions { range: Some(GetRange::Bounded(aligned.clone())), ..options };
        let got = self.store.get_opts(at, options.clone()).await?;
        let meta = got.meta.clone();
        // Behind the object's end: the store has its own words for that.
        if got.range.start != aligned.start || range.start >= got.range.end {
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..options };
            return self.store.get_opts(at, options).await;
        }
        let whole = got.bytes().await?;
        self.cache.keep(Read { name, first: blocks.start, bytes: whole.clone(), object_bytes: meta.size });
        let start = (range.start - aligned.start) as usize;
        let end = whole.len().min((range.end - aligned.start) as usize);
        // A copy where much would stay in memory for the sake of little.
        let bytes = match (end.saturating_sub(start)) * 2 < whole.len() {
            true => Bytes::copy_from_slice(whole.get(start..end).unwrap_or_default()),
            false => whole.slice(start.min(end)..end),
        };
        let range = range.start..range.start + bytes.len() as u64;
        let object_bytes = meta.size;
        Ok(result(at, one(bytes), range, Some(meta), object_bytes))
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (cache, is_immutable) = (Arc::clone(&self.cache), self.is_immutable);
        let paths = paths.inspect(move |path| {
            if let Ok(path) = path
                && is_immutable(path)
            {
                cache.forget(path);
            }
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
        self.forget(to);
        self.store.copy_opts(from, to, options).await
    }
}

/// A part of a long range.
struct Stretch {
    range: Range<u64>,
    is_here: bool,
}

/// The parts of `range` that are in the cache, in pieces, and the gaps between them.
fn stretches(range: &Range<u64>, blocks: Range<u32>, present: &[bool], object_bytes: Option<u64>) -> VecDeque<Stretch> {
    let runs: Vec<&[bool]> = present.chunk_by(|a, b| a == b).collect();
    let (mut out, mut block) = (VecDeque::<Stretch>::new(), u64::from(blocks.start));
    for (n, run) in runs.iter().enumerate() {
        let is_between = n > 0 && n + 1 < runs.len();
        let is_here = run.first() == Some(&true) && !(is_between && run.len() < ISLAND_BLOCKS);
        for piece in run.chunks(if is_here { PIECE_BLOCKS } else { run.len() }) {
            let next = block + piece.len() as u64;
            let end = (next * BLOCK_BYTES).min(range.end).min(object_bytes.unwrap_or(u64::MAX));
            let start = (block * BLOCK_BYTES).max(range.start);
            block = next;
            match out.back_mut() {
                Some(last) if !is_here && !last.is_here => last.range.end = end.max(last.range.end),
                _ if start < end => out.push_back(Stretch { range: start..end, is_here }),
                _ => {}
            }
        }
    }
    out
}

/// A long range on its way.
struct Long {
    store: Arc<dyn ObjectStore>,
    cache: Arc<DiskCache>,
    at: Path,
    name: u128,
    options: GetOptions,
    end: u64,
    rest: VecDeque<Stretch>,
    body: Option<Body>,
}

/// A gap on its way from the store.
struct Body {
    stream: BoxStream<'static, Result<Bytes>>,
    /// Where the next bytes of the stream lie.
    at: u64,
    wanted: Range<u64>,
    object_bytes: u64,
    /// What has come and is not kept yet, from a block's beginning on.
    held: BytesMut,
    cache: Arc<DiskCache>,
    name: u128,
}

impl Long {
    fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        futures::stream::unfold(Some(self), |long| async move {
            let mut long = long?;
            match long.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(long))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .fuse()
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(mut body) = self.body.take()
                && let Some(bytes) = body.next().await?
            {
                match body.at >= body.wanted.end {
                    true => drop(task::spawn(body.finish())),
                    false => self.body = Some(body),
                }
                return Ok(Some(bytes));
            }
            let Some(stretch) = self.rest.pop_front() else { return Ok(None) };
            let range = stretch.range.start..stretch.range.end.min(self.end);
            if range.is_empty() {
                continue;
            }
            if stretch.is_here
                && let Some((bytes, _)) = self.cache.read(self.name, range.clone()).await
            {
                return Ok(Some(bytes));
            }
            self.open(range).await?;
        }
    }

    /// Asks the store for whole blocks.
    async fn open(&mut self, range: Range<u64>) -> Result<ObjectMeta> {
        let aligned = range.start - range.start % BLOCK_BYTES..range.end.next_multiple_of(BLOCK_BYTES);
        let options = GetOptions { range: Some(GetRange::Bounded(aligned)), ..self.options.clone() };
        let got = self.store.get_opts(&self.at, options).await?;
        let (meta, at) = (got.meta.clone(), got.range.start);
        let (stream, object_bytes) = (got.into_stream(), meta.size);
        let (cache, name, held) = (Arc::clone(&self.cache), self.name, BytesMut::new());
        self.body = Some(Body { stream, at, wanted: range, object_bytes, held, cache, name });
        Ok(meta)
    }
}

impl Body {
    /// The next bytes that are wanted.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(bytes) = self.stream.next().await.transpose()? {
            self.held.extend_from_slice(&bytes);
            let (start, end) = (self.at, self.at + bytes.len() as u64);
            self.at = end;
            if self.held.len() >= PIECE_BLOCKS * BLOCK_BYTES as usize {
                self.keep();
            }
            let (from, to) = (self.wanted.start.max(start), self.wanted.end.min(end));
            if from < to {
                return Ok(Some(bytes.slice((from - start) as usize..(to - start) as usize)));
            }
        }
        Ok(None)
    }

    /// Nobody waits any more (`cached.kept_to_the_end`).
    async fn finish(mut self) {
        while let Ok(Some(_)) = self.next().await {}
    }

    /// Keeps the whole blocks that have come; the rest of the last one only at the object's end.
    fn keep(&mut self) {
        let first = self.at - self.held.len() as u64;
        let is_end = self.at == self.object_bytes;
        let whole = if is_end { self.held.len() } else { self.held.len() - self.held.len() % BLOCK_BYTES as usize };
        let bytes = self.held.split_to(whole).freeze();
        if let (false, Ok(first)) = (bytes.is_empty(), u32::try_from(first / BLOCK_BYTES)) {
            self.cache.keep(Read { name: self.name, first, bytes, object_bytes: self.object_bytes });
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.keep();
    }
}
