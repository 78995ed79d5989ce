//! Sealing the objects of a volume anew, in place: those in clear once a volume is encrypted, those under an older key once it has a
//! newer one.
//!
//! ```text
//!   look -> sealed with the newest key: it stays
//!        -> older, or in clear: read, seal, open what was sealed and compare -> put, if nobody replaced or deleted it meanwhile
//! ```
//!
//! - `reseal.one_object_a_step`: an object is replaced whole by one put. A pass that is cut off leaves objects of both kinds, and the
//!   next one begins where it likes: it skips what is sealed already.
//! - `reseal.compared_first`: the sealed bytes are opened again and compared with the content before they replace it.
//! - `reseal.deleted_stays_deleted`: the put names the version that was read. An object that its volume deleted does not come back.
//! - `reseal.done_when_nothing_is_left`: a volume is done once a pass found nothing to do. Others write meanwhile, with the newest key.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, Digest, SHA256};
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload, Result, UpdateVersion};

use crate::SealError;
use crate::failure::{generic, refused};
use crate::frames::{HEADER_BYTES, SEALED_FRAME_BYTES, content_len};
use crate::half::{Found, is_replaced, look};
use crate::keys::Keys;
use crate::object::{Header, ObjectKey, Sealer};
use crate::store::place_of;

/// Objects that one pass names because they could not be sealed.
const FAULTS_MAX: usize = 16;

/// The objects of one volume.
pub struct Resealing {
    pub store: Arc<dyn ObjectStore>,
    /// Objects in folders below it are sealed; those directly below are in clear for ever.
    pub prefix: Path,
    /// The newest of them seals. Objects under all others are sealed anew.
    pub keys: Arc<Keys>,
    /// Objects in clear are sealed, too. Otherwise they are an error.
    pub from_clear: bool,
}

/// What a pass has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects, and their bytes, that are sealed with the newest key.
    pub done_objects: u64,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// The end of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Objects that it sealed.
    pub sealed: u64,
    /// Objects that it left as they are because they cannot be read or written, and why; the first few.
    pub faults: Vec<String>,
}

impl Resealing {
    /// Looks at every object, and seals those that need it. One at a time: users come first.
    pub async fn pass(&self, mut told: impl FnMut(Progress)) -> Result<Passed> {
        let listed: Vec<ObjectMeta> = self.store.list(Some(&self.prefix)).try_collect().await?;
        let listed: Vec<ObjectMeta> = listed.into_iter().filter(|meta| self.is_sealed_place(&meta.location)).collect();
        let mut progress = Progress { total_bytes: listed.iter().map(|meta| meta.size).sum(), ..Progress::default() };
        let mut passed = Passed::default();
        told(progress);
        for meta in listed {
            match self.object(&meta.location).await {
                Ok(changed) => {
                    passed.sealed += u64::from(changed);
                    progress.done_objects += 1;
                }
                // The volume deleted it, or wrote it anew: the next pass looks again.
                Err(error) if is_replaced(&error) => passed.sealed += 1,
                Err(error) if passed.faults.len() < FAULTS_MAX => passed.faults.push(error.to_string()),
                Err(_) => {}
            }
            progress.done_bytes += meta.size;
            told(progress);
        }
        Ok(passed)
    }

    fn is_sealed_place(&self, location: &Path) -> bool {
        location.prefix_match(&self.prefix).is_some_and(|parts| parts.count() > 1)
    }

    /// Seals one object anew. Whether it had to.
    async fn object(&self, location: &Path) -> Result<bool> {
        let (found, _) = look(&*self.store, &self.prefix, &self.keys, location).await?;
        let old = match found {
            Found::Sealed(header) if header.generation == self.keys.newest() => return Ok(false),
            Found::Sealed(header) => Some(header),
            Found::Clear if self.from_clear => None,
            Found::Clear => return Err(refused(location, SealError::Forged)),
        };
        let place = place_of(location, &self.prefix)?;
        let got = self.store.get_opts(location, GetOptions::default()).await?;
        let (meta, attributes) = (got.meta.clone(), got.attributes.clone());
        let reader = old.map(|header| Reader::new(&self.keys, header, &place, meta.size)).transpose();
        let mut reader = reader.map_err(|error| refused(location, error))?;
        let mut sealer = Sealer::new(&self.keys, &place).map_err(|error| refused(location, error))?;
        let (mut read, mut pieces) = (Context::new(&SHA256), Vec::new());
        let mut stream = got.into_stream();
        loop {
            let piece = stream.next().await.transpose()?;
            let is_last = piece.is_none();
            let content = match (&mut reader, piece) {
                (Some(reader), piece) => reader.open(piece, is_last).map_err(|error| refused(location, error))?,
                (None, piece) => piece.unwrap_or_default(),
            };
            read.update(&content);
            pieces.extend(sealer.push(&content.into()).map_err(|error| refused(location, error))?);
            if is_last {
                break;
            }
        }
        pieces.extend(sealer.finish().map_err(|error| refused(location, error))?);
        let digest = opened_digest(&self.keys, &place, &pieces).map_err(|error| refused(location, error))?;
        if digest.as_ref() != read.finish().as_ref() {
            return Err(generic(
                location,
                "what was sealed opens as something else: the memory or the processor fails",
            ));
        }
        let version = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
        let options = PutOptions { mode: PutMode::Update(version), attributes, ..PutOptions::default() };
        self.store.put_opts(location, pieces.into_iter().collect::<PutPayload>(), options).await?;
        Ok(true)
    }
}

/// Opens the frames of an object as its bytes come.
struct Reader {
    key: ObjectKey,
    content: u64,
    next: u64,
    /// Bytes of the header that are still to come.
    header_left: usize,
    held: bytes::BytesMut,
}

impl Reader {
    fn new(keys: &Keys, header: Header, place: &str, size: u64) -> std::result::Result<Self, SealError> {
        let key = ObjectKey::derive(keys, &header, place)?;
        let content = content_len(size).ok_or(SealError::Forged)?;
        Ok(Self { key, content, next: 0, header_left: HEADER_BYTES, held: bytes::BytesMut::new() })
    }

    fn open(&mut self, piece: Option<Bytes>, is_last: bool) -> std::result::Result<Bytes, SealError> {
        let mut piece = piece.unwrap_or_default();
        let skipped = self.header_left.min(piece.len());
        bytes::Buf::advance(&mut piece, skipped);
        self.header_left -= skipped;
        self.held.extend_from_slice(&piece);
        let frame = SEALED_FRAME_BYTES as usize;
        let whole = if is_last { self.held.len() } else { self.held.len() / frame * frame };
        let sealed = self.held.split_to(whole);
        let content = self.key.open(self.next, self.content, &sealed)?;
        self.next += whole.div_ceil(frame) as u64;
        if is_last && self.next != crate::frames::frames_of(self.content) {
            return Err(SealError::Forged);
        }
        Ok(content.freeze())
    }
}

/// The checksum of the content of a sealed object (`reseal.compared_first`).
fn opened_digest(keys: &Keys, place: &str, pieces: &[Bytes]) -> std::result::Result<Digest, SealError> {
    let header = Header::decode(pieces.first().ok_or(SealError::NotSealed)?)?;
    let size = pieces.iter().map(|piece| piece.len() as u64).sum();
    let mut reader = Reader::new(keys, header, place, size)?;
    let mut digest = Context::new(&SHA256);
    for piece in pieces {
        digest.update(&reader.open(Some(piece.clone()), false)?);
    }
    digest.update(&reader.open(None, true)?);
    Ok(digest.finish())
}

#[cfg(test)]
#[path = "reseal_tests.rs"]
mod tests;
