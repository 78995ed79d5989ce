//! A store whose calls have a time limit and are tried again, a bounded number of times.
//!
//! - `retried.answers_are_final`: what the store says of an object (it is not there, it is there already, it is another) is an
//!   answer and not tried again. No answer, half an answer, 5xx and "slow down" are.
//! - `retried.own_work_is_known`: a conditional write that got no answer may have been done. So it carries a mark of its own, and
//!   when a try finds the object there, the mark says whose it is. If another has replaced the object since, the write counts
//!   as lost: whoever reads again sees what is there.
//! - `retried.same_object`: a body that breaks off is read on from where it broke, of the same version of the object only.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartId, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::health::Health;
use crate::requests::Requests;

/// With the pauses between, a call ends within about half a minute where the server refuses at once.
const TRIES_MAX: u32 = 6;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// A call without a body is given up after this long and tried again.
const CALL_MAX: Duration = Duration::from_secs(10);
/// What a line brings at least, in bytes a second: bodies have this much more time.
const LINE_BYTES_MIN: u64 = 128 << 10;
/// No byte of a body for this long: it has broken off.
const BODY_IDLE_MAX: Duration = Duration::from_secs(10);
/// Keys of one bulk deletion.
const DELETES_MAX: usize = 1000;
/// The mark of a conditional write (`retried.own_work_is_known`).
const MARK: &str = "larder-put";

/// A store with time limits and tries.
pub struct Retried<S>(Arc<Inner<S>>);

struct Inner<S> {
    store: S,
    health: Arc<Health>,
    requests: Arc<Requests>,
}

impl<S> Retried<S> {
    /// What fails in the end is noted in `health`, each further try in `requests`.
    pub fn new(store: S, health: Arc<Health>, requests: Arc<Requests>) -> Self {
        Self(Arc::new(Inner { store, health, requests }))
    }
}

/// Whether the error is what the store says of the object (`retried.answers_are_final`).
pub(crate) fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::Precondition { .. }
            | Error::NotModified { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}

/// Keys that are refused are not accepted a moment later; a person has to look.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
}

fn too_late(limit: Duration) -> Error {
    Error::Generic { store: "S3", source: format!("no answer within {} s", limit.as_secs()).into() }
}

fn broken_off() -> Error {
    Error::Generic { store: "S3", source: "an answer broke off".into() }
}

fn pause(attempt: u32) -> Duration {
    let most = PAUSE_MIN.saturating_mul(1 << (2 * attempt).min(16)).min(PAUSE_MAX);
    most.mul_f64(rand::random_range(0.5..1.0))
}

impl<S> Inner<S> {
    /// Tries until there is an answer. `call` is told how many tries there were before.
    async fn run<T, F>(&self, body_bytes: u64, mut call: impl FnMut(u32) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let limit = CALL_MAX + Duration::from_secs(body_bytes / LINE_BYTES_MIN);
        let mut attempt = 0;
        loop {
            let outcome = timeout(limit, call(attempt)).await.unwrap_or_else(|_| Err(too_late(limit)));
            attempt += 1;
            match outcome {
                Ok(value) => {
                    self.health.answered();
                    return Ok(value);
                }
                Err(error) if is_answer(&error) => {
                    self.health.answered();
                    return Err(error);
                }
                Err(error) if is_refusal(&error) || attempt == TRIES_MAX => {
                    self.health.failed(&error.to_string());
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, attempt, "a request to the store is tried again");
                    self.requests.repeated.add(1);
                    tokio::time::sleep(pause(attempt)).await;
                }
            }
        }
    }
}

impl<S> fmt::Display for Retried<S>
where
    S: fmt::Display,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.store.fmt(f)
    }
}

impl<S> fmt::Debug for Retried<S>
where
    S: fmt::Display,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retried({})", self.0.store)
    }
}

#[async_trait]
impl<S: ObjectStore + MultipartStore> ObjectStore for Retried<S> {
    async fn put_opts(&self, at: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        let inner = &self.0;
        let mark = (options.mode != PutMode::Overwrite).then(|| AttributeValue::from(new_mark()));
        if let Some(mark) = &mark {
            options.attributes.insert(Attribute::Metadata(MARK.into()), mark.clone());
        }
        let bytes = payload.content_length() as u64;
        let (payload, options, mark) = (&payload, &options, &mark);
        inner
            .run(bytes, |_| async move {
                let put = inner.store.put_opts(at, payload.clone(), options.clone()).await;
                match (put, mark) {
                    // At the first try, too: something on the way may have sent it twice.
                    (Err(error @ (Error::AlreadyExists { .. } | Error::Precondition { .. })), Some(mark)) => {
                        inner.own_work(at, mark).await?.ok_or(error)
                    }
                    (put, _) => put,
                }
            })
            .await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let (inner, options) = (&self.0, &options);
        let id = inner
            .run(0, |_| async move {
                match options.attributes.is_empty() && options.tags.is_empty() {
                    true => inner.store.create_multipart(at).await,
                    false => inner.store.create_multipart_opts(at, options.clone()).await,
                }
            })
            .await?;
        let parts = Arc::new(Mutex::new(Parts::default()));
        Ok(Box::new(Upload { inner: Arc::clone(inner), at: at.clone(), id, next: 0, parts }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let (inner, options) = (&self.0, &options);
        let got = inner.run(0, |_| inner.store.get_opts(at, options.clone())).await?;
        if options.head {
            return Ok(got);
        }
        let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
        let extensions = got.extensions.clone();
        let body = Body {
            inner: Arc::clone(inner),
            at: at.clone(),
            e_tag: meta.e_tag.clone(),
            version: options.version.clone(),
            left: range.clone(),
            stream: Some(got.into_stream()),
            tries: 0,
        };
        let payload = GetResultPayload::Stream(body.into_stream());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.0);
        let chunks = paths.chunks(DELETES_MAX).then(move |chunk| {
            let inner = Arc::clone(&inner);
            async move { inner.delete_chunk(chunk).await }
        });
        chunks.flat_map(futures::stream::iter).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        Listing {
            inner: Arc::clone(&self.0),
            prefix: prefix.cloned(),
            after: None,
            stream: None,
            tries: 0,
            done: false,
        }
        .into_stream()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let after = Some(offset.clone());
        Listing { inner: Arc::clone(&self.0), prefix: prefix.cloned(), after, stream: None, tries: 0, done: false }
            .into_stream()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.run(0, |_| self.0.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.run(0, |_| self.0.store.copy_opts(from, to, options.clone())).await
    }
}

fn new_mark() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

impl<S: ObjectStore> Inner<S> {
    /// The object there, if this mark is on it (`retried.own_work_is_known`).
    async fn own_work(&self, at: &Path, mark: &AttributeValue) -> Result<Option<PutResult>> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let there = match self.store.get_opts(at, head).await {
            Ok(there) => there,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_own = there.attributes.get(&Attribute::Metadata(MARK.into())) == Some(mark);
        let (e_tag, version) = (there.meta.e_tag, there.meta.version);
        Ok(is_own.then_some(PutResult { e_tag, version, extensions: Default::default() }))
    }

    async fn delete_one(&self, path: Path) -> Result<Path> {
        self.store.delete(&path).await.map(|()| path)
    }

    async fn delete_chunk(&self, chunk: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let wanted: Vec<Path> = chunk.iter().filter_map(|path| path.as_ref().ok().cloned()).collect();
        let all = futures::stream::iter(wanted.clone().into_iter().map(Ok)).boxed();
        let limit = CALL_MAX * 2;
        let first = timeout(limit, self.store.delete_stream(all).collect::<Vec<_>>()).await;
        // An answer to less than all of it is none.
        let mut first = first.unwrap_or_default();
        if first.len() != wanted.len() {
            first = wanted.iter().map(|_| Err(too_late(limit))).collect();
        }
        let mut outcomes = Vec::with_capacity(wanted.len());
        for (path, outcome) in wanted.iter().zip(first) {
            outcomes.push(match outcome {
                Err(error) if !is_answer(&error) => {
                    self.requests.repeated.add(1);
                    tokio::time::sleep(pause(0)).await;
                    self.run(0, |_| self.delete_one(path.clone())).await
                }
                outcome => outcome,
            });
        }
        let mut outcomes = outcomes.into_iter();
        let whole = chunk.into_iter().map(|path| match path {
            Ok(path) => outcomes.next().unwrap_or(Ok(path)),
            Err(error) => Err(error),
        });
        whole.collect()
    }
}

// ---------------------------------------------------------------------------------------------- bodies

/// The rest of an object's body (`retried.same_object`).
struct Body<S> {
    inner: Arc<Inner<S>>,
    at: Path,
    e_tag: Option<String>,
    version: Option<String>,
    left: Range<u64>,
    stream: Option<BoxStream<'static, Result<Bytes>>>,
    tries: u32,
}

impl<S: ObjectStore> Body<S> {
    fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        futures::stream::unfold(Some(self), |body| async move {
            let mut body = body?;
            match body.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(body))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        // Some look again behind the end.
        .fuse()
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.left.is_empty() {
            let error = match self.piece().await {
                Ok(bytes) => {
                    self.tries = 0;
                    return Ok(Some(bytes));
                }
                Err(error) => error,
            };
            self.stream = None;
            self.tries += 1;
            if self.tries == TRIES_MAX || is_answer(&error) || self.e_tag.is_none() {
                self.inner.health.failed(&error.to_string());
                return Err(error);
            }
            self.inner.requests.repeated.add(1);
            tokio::time::sleep(pause(self.tries)).await;
        }
        Ok(None)
    }

    async fn piece(&mut self) -> Result<Bytes> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let options = GetOptions {
                    range: Some(GetRange::Bounded(self.left.clone())),
                    if_match: self.e_tag.clone(),
                    version: self.version.clone(),
                    ..GetOptions::default()
                };
                let (inner, at) = (&self.inner, &self.at);
                let got = inner.run(0, |_| inner.store.get_opts(at, options.clone())).await?;
                self.stream.insert(got.into_stream())
            }
        };
        let piece = timeout(BODY_IDLE_MAX, stream.next()).await.map_err(|_| too_late(BODY_IDLE_MAX))?;
        let bytes = piece.ok_or_else(broken_off)??;
        let length = bytes.len() as u64;
        if length > self.left.end - self.left.start {
            return Err(Error::Generic { store: "S3", source: "an answer is longer than what was asked for".into() });
        }
        self.left.start += length;
        Ok(bytes)
    }
}

// ------------------------------------------------------------------------------------------- listings

/// A listing that goes on behind the last object that it has told.
struct Listing<S> {
    inner: Arc<Inner<S>>,
    prefix: Option<Path>,
    after: Option<Path>,
    stream: Option<BoxStream<'static, Result<ObjectMeta>>>,
    tries: u32,
    done: bool,
}

impl<S: ObjectStore> Listing<S> {
    fn into_stream(self) -> BoxStream<'static, Result<ObjectMeta>> {
        futures::stream::unfold(self, |mut listing| async move {
            let next = listing.next().await?;
            Some((next, listing))
        })
        .fuse()
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<ObjectMeta>> {
        while !self.done {
            let stream = self.stream.get_or_insert_with(|| match &self.after {
                Some(after) => self.inner.store.list_with_offset(self.prefix.as_ref(), after),
                None => self.inner.store.list(self.prefix.as_ref()),
            });
            let error = match timeout(CALL_MAX, stream.next()).await {
                Ok(None) => {
                    self.done = true;
                    return None;
                }
                Ok(Some(Ok(object))) => {
                    self.tries = 0;
                    self.after = Some(object.location.clone());
                    return Some(Ok(object));
                }
                Ok(Some(Err(error))) => error,
                Err(_) => too_late(CALL_MAX),
            };
            self.stream = None;
            self.tries += 1;
            if self.tries == TRIES_MAX || is_answer(&error) || is_refusal(&error) {
                self.inner.health.failed(&error.to_string());
                self.done = true;
                return Some(Err(error));
            }
            self.inner.requests.repeated.add(1);
            tokio::time::sleep(pause(self.tries)).await;
        }
        None
    }
}

// -------------------------------------------------------------------------------------------- uploads

#[derive(Debug, Default)]
struct Parts {
    done: Vec<(usize, PartId)>,
    bytes: u64,
}

/// An upload whose parts have their numbers from us, so that one can be sent again.
struct Upload<S> {
    inner: Arc<Inner<S>>,
    at: Path,
    id: MultipartId,
    next: usize,
    parts: Arc<Mutex<Parts>>,
}

impl<S> fmt::Debug for Upload<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.at)
    }
}

#[async_trait]
impl<S: ObjectStore + MultipartStore> MultipartUpload for Upload<S> {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let number = self.next;
        self.next += 1;
        let (inner, at, id, parts) =
            (Arc::clone(&self.inner), self.at.clone(), self.id.clone(), Arc::clone(&self.parts));
        Box::pin(async move {
            let bytes = data.content_length() as u64;
            let put = inner.run(bytes, |_| inner.store.put_part(&at, &id, number, data.clone()));
            let part = put.await?;
            let mut parts = parts.lock();
            parts.done.push((number, part));
            parts.bytes += bytes;
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (mut parts, bytes) = {
            let parts = self.parts.lock();
            (
                parts.done.iter().map(|(number, part)| (*number, part.content_id.clone())).collect::<Vec<_>>(),
                parts.bytes,
            )
        };
        parts.sort_unstable_by_key(|(number, _)| *number);
        if parts.len() != self.next {
            return Err(Error::Generic { store: "S3", source: "parts of an upload are missing".into() });
        }
        let (inner, at, id, parts) = (&self.inner, &self.at, &self.id, &parts);
        inner
            .run(0, |attempt| async move {
                let list = parts.iter().map(|(_, id)| PartId { content_id: id.clone() }).collect();
                match inner.store.complete_multipart(at, id, list).await {
                    // It was completed by a try that got no answer.
                    Err(error @ Error::NotFound { .. }) if attempt > 0 => match inner.store.head(at).await {
                        Ok(meta) if meta.size == bytes => {
                            Ok(PutResult { e_tag: meta.e_tag, version: meta.version, extensions: Default::default() })
                        }
                        _ => Err(error),
                    },
                    completed => completed,
                }
            })
            .await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.run(0, |_| self.inner.store.abort_multipart(&self.at, &self.id)).await
    }
}
