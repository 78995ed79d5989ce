//! A multipart upload whose content is sealed on its way.
//!
//! Parts are sealed in the order in which they are given, on the caller's time; what the inner store does with them overlaps. One
//! frame at most waits until the end, where it is known to be the last.

use async_trait::async_trait;
use futures::FutureExt;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::SealError;
use crate::failure::refused;
use crate::keys::Keys;
use crate::object::Sealer;

pub(crate) struct SealedUpload {
    inner: Box<dyn MultipartUpload>,
    /// Gone once the upload is complete or aborted.
    sealer: Option<Sealer>,
    location: Path,
}

impl SealedUpload {
    pub fn new(
        inner: Box<dyn MultipartUpload>,
        keys: &Keys,
        place: &str,
        location: Path,
    ) -> std::result::Result<Self, SealError> {
        Ok(Self { inner, sealer: Some(Sealer::new(keys, place)?), location })
    }
}

impl std::fmt::Debug for SealedUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealedUpload({})", self.location)
    }
}

fn ended(location: &Path) -> object_store::Error {
    object_store::Error::Generic { store: "sealed", source: format!("{location}: this upload has ended").into() }
}

#[async_trait]
impl MultipartUpload for SealedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(sealer) = &mut self.sealer else {
            return futures::future::ready(Err(ended(&self.location))).boxed();
        };
        match sealer.push(&data) {
            // All of it waits for more.
            Ok(sealed) if sealed.content_length() == 0 => futures::future::ready(Ok(())).boxed(),
            Ok(sealed) => self.inner.put_part(sealed),
            Err(error) => futures::future::ready(Err(refused(&self.location, error))).boxed(),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let sealer = self.sealer.take().ok_or_else(|| ended(&self.location))?;
        let end = sealer.finish().map_err(|error| refused(&self.location, error))?;
        self.inner.put_part(end).await?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.sealer = None;
        self.inner.abort().await
    }
}
