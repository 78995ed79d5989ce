//! [`HalfSealed`]: the store of a volume whose objects are being sealed, while some of them are still in clear.
//!
//! - `half.sealed_if_it_opens`: an object is sealed if its first frame opens under these keys, and in clear otherwise. Content of a
//!   person that looks like a sealed object opens under none of them.
//! - `half.writes_are_sealed`: everything that is written is sealed, so an object in clear becomes a sealed one and never the other
//!   way.
//! - `half.one_version_a_read`: bytes of an object in clear count only if they are of the version that was looked at. One that was
//!   sealed meanwhile is looked at again.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use quick_cache::sync::Cache;

use crate::cipher::TAG_BYTES;
use crate::failure::generic;
use crate::frames::{FRAME_BYTES, HEADER_BYTES, SEALED_FRAME_BYTES, content_len};
use crate::keys::Keys;
use crate::object::{Header, ObjectKey};
use crate::store::{SealedStore, place_of};

/// Objects of which it is remembered how they lie.
const REMEMBERED: usize = 16_384;
/// How often a read starts again because the object was replaced meanwhile.
const TRIES_MAX: usize = 4;
/// Headers that a listing reads at the same time.
const HEADERS_MAX: usize = 16;

/// Objects under `prefix` of `inner`: sealed with `keys`, or still in clear.
pub struct HalfSealed {
    inner: Arc<dyn ObjectStore>,
    sealed: SealedStore,
    prefix: Path,
    keys: Arc<Keys>,
    looked_at: Cache<Path, Kind>,
    exact_lists: bool,
}

/// How an object was found.
#[derive(Clone)]
enum Kind {
    /// For good (`half.writes_are_sealed`).
    Sealed,
    /// With the entity tag of this version.
    Clear(Option<String>),
}

/// How an object lies in the store.
pub(crate) enum Found {
    /// With its header.
    Sealed(Header),
    Clear,
}

/// Looks at the beginning of an object (`half.sealed_if_it_opens`). The description is that of the whole object.
pub(crate) async fn look(
    inner: &dyn ObjectStore,
    prefix: &Path,
    keys: &Keys,
    location: &Path,
) -> Result<(Found, ObjectMeta)> {
    const LOOK_BYTES: u64 = HEADER_BYTES as u64 + SEALED_FRAME_BYTES;
    let place = place_of(location, prefix)?;
    for _ in 0..TRIES_MAX {
        let meta = inner.get_opts(location, GetOptions { head: true, ..GetOptions::default() }).await?.meta;
        let Some(content) = content_len(meta.size) else { return Ok((Found::Clear, meta)) };
        let range = Some(GetRange::Bounded(0..LOOK_BYTES.min(meta.size)));
        let got = inner.get_opts(location, GetOptions { range, ..GetOptions::default() }).await?;
        if got.meta.e_tag != meta.e_tag {
            continue;
        }
        let first = got.bytes().await?;
        let Ok(header) = Header::decode(&first) else { return Ok((Found::Clear, meta)) };
        let frame = (FRAME_BYTES.min(content) + TAG_BYTES as u64) as usize;
        let frame = first.get(HEADER_BYTES..HEADER_BYTES + frame).unwrap_or_default();
        let opened = ObjectKey::derive(keys, &header, &place).and_then(|key| key.open(0, content, frame));
        return Ok((if opened.is_ok() { Found::Sealed(header) } else { Found::Clear }, meta));
    }
    Err(generic(location, "it was replaced again and again while it was looked at"))
}

impl HalfSealed {
    /// `prefix` holds the objects of one volume and no others. Listings have the lengths that objects in clear have in `inner`, which
    /// those of sealed ones exceed; with `exact_lists` they have those of the content, and read a header for each object.
    pub fn new(inner: Arc<dyn ObjectStore>, prefix: Path, keys: Arc<Keys>, exact_lists: bool) -> Self {
        let sealed = SealedStore::new(Arc::clone(&inner), prefix.clone(), Arc::clone(&keys));
        Self { inner, sealed, prefix, keys, looked_at: Cache::new(REMEMBERED), exact_lists }
    }

    async fn kind(&self, location: &Path) -> Result<Kind> {
        if let Some(kind) = self.looked_at.get(location) {
            return Ok(kind);
        }
        let (found, meta) = look(&*self.inner, &self.prefix, &self.keys, location).await?;
        let kind = match found {
            Found::Sealed(_) => Kind::Sealed,
            Found::Clear => Kind::Clear(meta.e_tag),
        };
        self.looked_at.insert(location.clone(), kind.clone());
        Ok(kind)
    }

    async fn shown(&self, mut meta: ObjectMeta) -> Result<ObjectMeta> {
        if self.exact_lists {
            match self.kind(&meta.location).await {
                Ok(Kind::Clear(_)) => {}
                Ok(Kind::Sealed) => meta.size = content_len(meta.size).unwrap_or(0),
                // A read of it says why.
                Err(_) => meta.size = 0,
            }
        }
        Ok(meta)
    }
}

impl fmt::Debug for HalfSealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HalfSealed({})", self.prefix)
    }
}

impl fmt::Display for HalfSealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (being sealed) of {}", self.prefix, self.inner)
    }
}

#[async_trait]
impl ObjectStore for HalfSealed {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.sealed.put_opts(location, payload, options).await;
        self.looked_at.remove(location);
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.sealed.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        for _ in 0..TRIES_MAX {
            let Kind::Clear(tag) = self.kind(location).await? else {
                return self.sealed.get_opts(location, options).await;
            };
            // A range beyond an object that has become another one fails, too.
            let got = self.inner.get_opts(location, options.clone()).await;
            match got {
                Ok(got) if got.meta.e_tag == tag => return Ok(got),
                Ok(_) => {}
                Err(error) => {
                    let now = self.inner.get_opts(location, GetOptions { head: true, ..GetOptions::default() }).await?;
                    if now.meta.e_tag == tag {
                        return Err(error);
                    }
                }
            }
            self.looked_at.remove(location);
        }
        Err(generic(location, "it was replaced again and again while it was read"))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if matches!(self.kind(location).await?, Kind::Sealed) {
            return self.sealed.get_ranges(location, ranges).await;
        }
        let mut read = Vec::with_capacity(ranges.len());
        for range in ranges {
            let range = Some(GetRange::Bounded(range.clone()));
            // `half.one_version_a_read`: content is the same in each version.
            let got = self.get_opts(location, GetOptions { range, ..GetOptions::default() }).await?;
            read.push(got.bytes().await?);
        }
        Ok(read)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if !self.exact_lists {
            return self.inner.list(prefix);
        }
        let this = Self::new(Arc::clone(&self.inner), self.prefix.clone(), Arc::clone(&self.keys), true);
        let this = Arc::new(this);
        let shown = move |meta: ObjectMeta| {
            let this = Arc::clone(&this);
            Ok(async move { this.shown(meta).await })
        };
        self.inner.list(prefix).map(move |meta| meta.and_then(&shown)).try_buffered(HEADERS_MAX).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        let mut objects = Vec::with_capacity(listed.objects.len());
        for meta in listed.objects {
            objects.push(self.shown(meta).await?);
        }
        listed.objects = objects;
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        if matches!(self.kind(from).await?, Kind::Sealed) {
            return self.sealed.copy_opts(from, to, options).await;
        }
        let mode = match options.mode {
            object_store::CopyMode::Overwrite => object_store::PutMode::Overwrite,
            object_store::CopyMode::Create => object_store::PutMode::Create,
        };
        let got = self.get_opts(from, GetOptions::default()).await?;
        let put = PutOptions { mode, attributes: got.attributes.clone(), ..PutOptions::default() };
        let pieces: Vec<Bytes> = got.into_stream().try_collect().await?;
        self.put_opts(to, pieces.into_iter().collect(), put).await.map(drop)
    }
}

/// Whether an object was replaced or deleted meanwhile.
pub(crate) fn is_replaced(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::NotFound { .. } | Error::AlreadyExists { .. })
}

#[cfg(test)]
#[path = "half_tests.rs"]
mod tests;
