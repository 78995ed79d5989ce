//! [`SealedStore`]: an object store whose objects are sealed in another one.
//!
//! Sizes, ranges and listings are those of the content. A read of a range opens the frames that hold it and no others; where the
//! object's key is not at hand its header is read first, and kept (`KEPT_KEYS`). An object that was replaced since then has another
//! entity tag, or does not authenticate: its header is read again.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use quick_cache::sync::Cache;

use crate::SealError;
use crate::failure::{generic, refused};
use crate::frames::{HEADER_BYTES, SEALED_FRAME_BYTES, Span, content_len, span};
use crate::keys::Keys;
use crate::object::{Header, ObjectKey, seal};
use crate::upload::SealedUpload;

/// Objects whose keys are kept: about 600 bytes each.
const KEPT_KEYS: usize = 16_384;
/// How often a read starts again because the object was replaced meanwhile.
const TRIES_MAX: usize = 4;
/// An object that is copied in one piece.
const COPY_WHOLE_BYTES: u64 = 8 << 20;

/// Objects under `prefix` of `inner`, sealed with `keys`.
pub struct SealedStore {
    inner: Arc<dyn ObjectStore>,
    prefix: Path,
    keys: Arc<Keys>,
    known: Cache<Path, Arc<Known>>,
}

/// An object whose header was read.
struct Known {
    key: ObjectKey,
    e_tag: Option<String>,
    /// Of the content.
    len: u64,
}

impl Known {
    fn is_of(&self, meta: &ObjectMeta) -> bool {
        self.e_tag == meta.e_tag && content_len(meta.size) == Some(self.len)
    }
}

impl SealedStore {
    /// `prefix` holds the objects of one volume and no others: an object's place in the derivation of its key is its path below it.
    pub fn new(inner: Arc<dyn ObjectStore>, prefix: Path, keys: Arc<Keys>) -> Self {
        Self { inner, prefix, keys, known: Cache::new(KEPT_KEYS) }
    }

    /// Where `location` is within the volume.
    fn place(&self, location: &Path) -> Result<String> {
        place_of(location, &self.prefix)
    }

    fn key_of(&self, location: &Path, header: &[u8]) -> Result<ObjectKey> {
        let place = self.place(location)?;
        let header = Header::decode(header).map_err(|error| refused(location, error))?;
        ObjectKey::derive(&self.keys, &header, &place).map_err(|error| refused(location, error))
    }

    /// The object's key and length, read from its header unless they are known.
    async fn known(&self, location: &Path) -> Result<Arc<Known>> {
        match self.known.get(location) {
            Some(known) => Ok(known),
            None => self.read_header(location).await,
        }
    }

    async fn read_header(&self, location: &Path) -> Result<Arc<Known>> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..HEADER_BYTES as u64)), ..GetOptions::default() };
        let got = self.inner.get_opts(location, options).await?;
        let (len, e_tag) = (content_of(&got.meta)?, got.meta.e_tag.clone());
        let key = self.key_of(location, &got.bytes().await?)?;
        let known = Arc::new(Known { key, e_tag, len });
        self.known.insert(location.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// Opens `ranges`, which lie within the content of `known`.
    async fn open_ranges(&self, location: &Path, known: &Known, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let spans: Vec<Span> = ranges.iter().map(|range| span(range.clone(), known.len)).collect();
        let sealed: Vec<_> = spans.iter().map(|span| span.sealed.clone()).collect();
        let sealed = self.inner.get_ranges(location, &sealed).await?;
        let opened = spans.iter().zip(&sealed).map(|(span, sealed)| {
            let content =
                known.key.open(span.frames.start, known.len, sealed).map_err(|error| refused(location, error))?;
            let wanted = span.wanted.start as usize..span.wanted.end as usize;
            match wanted.end <= content.len() {
                true => Ok(content.freeze().slice(wanted)),
                false => Err(refused(location, SealError::Forged)),
            }
        });
        opened.collect()
    }

    /// A get of all, or of a range of an object whose key is `known`. `None`: the object is another one by now.
    async fn get_with(&self, location: &Path, mut options: GetOptions, known: &Known) -> Result<Option<GetResult>> {
        let wanted = options.range.take();
        let Some(range) = wanted else { return self.get_whole(location, options).await.map(Some) };
        let range = match range.as_range(known.len) {
            Ok(range) => range,
            Err(error) => {
                // Said of the object as it is now, not as it was.
                let meta = self.inner.get_opts(location, GetOptions { head: true, ..options }).await?.meta;
                return if known.is_of(&meta) { Err(generic(location, error)) } else { Ok(None) };
            }
        };
        let span = span(range.clone(), known.len);
        options.range = Some(GetRange::Bounded(span.sealed.clone()));
        let got = match self.inner.get_opts(location, options).await {
            Ok(got) => got,
            // A range beyond an object that has become shorter.
            Err(Error::Generic { .. }) if !known.is_of(&self.inner.head(location).await?) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !known.is_of(&got.meta) {
            return Ok(None);
        }
        let (attributes, extensions) = (got.attributes.clone(), got.extensions.clone());
        let mut meta = got.meta.clone();
        meta.size = known.len;
        let opener = Opener::new(location.clone(), known.key.clone(), span.frames.start, known.len);
        let wanted = range.end - range.start;
        let content = opener.open(got.into_stream(), span.wanted.start, wanted);
        Ok(Some(GetResult { payload: GetResultPayload::Stream(content), meta, range, attributes, extensions }))
    }

    /// A get of the whole object: its header comes first, in the same read.
    async fn get_whole(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let got = self.inner.get_opts(location, options).await?;
        let len = content_of(&got.meta)?;
        let (attributes, extensions) = (got.attributes.clone(), got.extensions.clone());
        let mut meta = got.meta.clone();
        let e_tag = meta.e_tag.clone();
        meta.size = len;
        let mut sealed = got.into_stream();
        let mut head = BytesMut::new();
        while head.len() < HEADER_BYTES {
            match sealed.try_next().await? {
                Some(piece) if head.is_empty() && piece.len() >= HEADER_BYTES => head = BytesMut::from(piece),
                Some(piece) => head.extend_from_slice(&piece),
                None => return Err(refused(location, SealError::NotSealed)),
            }
        }
        let first = head.split_off(HEADER_BYTES).freeze();
        let key = self.key_of(location, &head)?;
        self.known.insert(location.clone(), Arc::new(Known { key: key.clone(), e_tag, len }));
        let sealed = stream::iter([Ok(first)]).chain(sealed).boxed();
        let content = Opener::new(location.clone(), key, 0, len).open(sealed, 0, len);
        Ok(GetResult { payload: GetResultPayload::Stream(content), meta, range: 0..len, attributes, extensions })
    }
}

/// Opens a stream of sealed frames.
struct Opener {
    location: Path,
    key: ObjectKey,
    /// The number of the next frame.
    next: u64,
    /// Content of the whole object.
    len: u64,
    /// The beginning of a frame.
    held: BytesMut,
}

impl Opener {
    fn new(location: Path, key: ObjectKey, first: u64, len: u64) -> Self {
        Self { location, key, next: first, len, held: BytesMut::new() }
    }

    /// The content of `sealed` without its first `skipped` bytes, `wanted` bytes of it.
    fn open(
        self,
        sealed: BoxStream<'static, Result<Bytes>>,
        skipped: u64,
        wanted: u64,
    ) -> BoxStream<'static, Result<Bytes>> {
        let state = (self, Some(sealed), skipped, wanted);
        stream::try_unfold(state, |(mut opener, mut sealed, mut skipped, mut wanted)| async move {
            loop {
                let Some(source) = &mut sealed else { return Ok(None) };
                let piece = source.try_next().await?;
                let ended = piece.is_none();
                let content = opener.take(piece.unwrap_or_default(), ended)?;
                if ended {
                    sealed = None;
                }
                let mut content = content.freeze();
                let skip = skipped.min(content.len() as u64);
                skipped -= skip;
                let content = content.split_off(skip as usize);
                let content = content.slice(..content.len().min(wanted as usize));
                wanted -= content.len() as u64;
                if ended && wanted > 0 {
                    return Err(refused(&opener.location, SealError::Forged));
                }
                if !content.is_empty() {
                    return Ok(Some((content, (opener, sealed, skipped, wanted))));
                }
            }
        })
        .boxed()
    }

    /// Opens the frames that are complete; at the end also what is left.
    fn take(&mut self, piece: Bytes, ended: bool) -> Result<BytesMut> {
        let frame = SEALED_FRAME_BYTES as usize;
        let opened = |key: &ObjectKey, first, sealed: &[u8]| {
            key.open(first, self.len, sealed).map_err(|error| refused(&self.location, error))
        };
        if self.held.is_empty() && !ended {
            // The usual case: nothing is copied but for the frame at the end.
            let whole = piece.len() / frame * frame;
            let content = opened(&self.key, self.next, &piece[..whole])?;
            self.next += (whole / frame) as u64;
            self.held.extend_from_slice(&piece[whole..]);
            return Ok(content);
        }
        self.held.extend_from_slice(&piece);
        let whole = if ended { self.held.len() } else { self.held.len() / frame * frame };
        let sealed = self.held.split_to(whole);
        let content = opened(&self.key, self.next, &sealed)?;
        self.next += whole.div_ceil(frame) as u64;
        Ok(content)
    }
}

/// The path of an object below the folder of its volume.
pub(crate) fn place_of(location: &Path, prefix: &Path) -> Result<String> {
    let parts = location.prefix_match(prefix);
    let parts: Vec<_> = parts.into_iter().flatten().map(|part| part.as_ref().to_owned()).collect();
    match parts.is_empty() {
        false => Ok(parts.join("/")),
        true => Err(generic(location, format!("it is not below {prefix}, which these keys are for"))),
    }
}

fn content_of(meta: &ObjectMeta) -> Result<u64> {
    content_len(meta.size).ok_or_else(|| refused(&meta.location, SealError::NotSealed))
}

/// As a listing shows it. What is no sealed object is listed as empty; a read of it fails and says why.
fn shown(mut meta: ObjectMeta) -> ObjectMeta {
    meta.size = content_len(meta.size).unwrap_or(0);
    meta
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedStore({})", self.prefix)
    }
}

impl fmt::Display for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (sealed) of {}", self.prefix, self.inner)
    }
}

#[async_trait]
impl ObjectStore for SealedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let sealed = seal(&self.keys, &self.place(location)?, &payload).map_err(|error| refused(location, error))?;
        self.inner.put_opts(location, sealed, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let place = self.place(location)?;
        let inner = self.inner.put_multipart_opts(location, options).await?;
        let upload = SealedUpload::new(inner, &self.keys, &place, location.clone());
        Ok(Box::new(upload.map_err(|error| refused(location, error))?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            let mut got = self.inner.get_opts(location, GetOptions { range: None, ..options }).await?;
            let len = content_of(&got.meta)?;
            got.meta.size = len;
            got.range = 0..len;
            return Ok(got);
        }
        if options.range.is_none() {
            return self.get_whole(location, options).await;
        }
        for _ in 0..TRIES_MAX {
            let known = self.known(location).await?;
            if let Some(got) = self.get_with(location, options.clone(), &known).await? {
                return Ok(got);
            }
            self.known.remove(location);
        }
        Err(generic(location, "it was replaced again and again while it was read"))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let mut fresh = false;
        loop {
            let known = if fresh { self.read_header(location).await? } else { self.known(location).await? };
            let clamped: std::result::Result<Vec<_>, _> =
                ranges.iter().map(|range| GetRange::Bounded(range.clone()).as_range(known.len)).collect();
            let opened = match clamped {
                Ok(clamped) => self.open_ranges(location, &known, &clamped).await,
                Err(error) => Err(generic(location, error)),
            };
            match opened {
                // The key may be that of an object which was replaced.
                Err(Error::Generic { .. }) if !fresh => fresh = true,
                done => return done,
            }
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).map_ok(shown).boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset).map_ok(shown).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        listed.objects = listed.objects.into_iter().map(shown).collect();
        Ok(listed)
    }

    /// The copy is sealed anew: it has another place, and so another key.
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        let got = self.get_opts(from, GetOptions::default()).await?;
        let attributes = got.attributes.clone();
        if got.meta.size <= COPY_WHOLE_BYTES || mode == PutMode::Create {
            let options = PutOptions { mode, attributes, ..PutOptions::default() };
            let pieces: Vec<Bytes> = got.into_stream().try_collect().await?;
            self.put_opts(to, pieces.into_iter().collect(), options).await?;
            return Ok(());
        }
        let mut upload = self.put_multipart_opts(to, PutMultipartOptions { attributes, ..Default::default() }).await?;
        let mut content = got.into_stream().chunks(1);
        while let Some(pieces) = content.next().await {
            let pieces: Vec<Bytes> = pieces.into_iter().collect::<Result<_>>()?;
            upload.put_part(pieces.into_iter().collect()).await?;
        }
        upload.complete().await.map(|_| ())
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
