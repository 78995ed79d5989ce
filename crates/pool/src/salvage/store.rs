//! The objects that were found, as an `ObjectStore` that refuses to write.
//!
//! A range is read shard by shard, verified block by block; a block that fails is computed from `k`
//! others (`salvage.proven_by_checksums`).

use std::collections::BTreeMap;
use std::fmt;
use std::io::IoSliceMut;
use std::ops::{Bound, Range};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use larder_base::checksum::checksum;
use larder_base::task;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use uuid::Uuid;

use super::inventory::{Damage, Index, Place, Version};
use super::report::SalvageReport;
use crate::disk::DiskIo;
use crate::journal::salvage as journals;
use crate::object::geometry::CHECKSUM_BYTES;
use crate::object::parity;
use crate::object::shard::{self, Header};

/// Read and verified at once.
const CHUNK_BYTES: u64 = 4 << 20;

/// The disks of one pool, and the findings on them.
pub struct Salvaged {
    pub(super) pool: Uuid,
    pub(super) disks: Vec<Arc<dyn DiskIo>>,
    pub(super) index: Index,
    pub(super) journal: journals::Found,
    pub(super) report: SalvageReport,
}

/// The objects as a store.
#[derive(Clone)]
pub struct SalvageStore(pub Arc<Salvaged>);

impl fmt::Debug for SalvageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SalvageStore({})", self.0.pool)
    }
}

impl fmt::Display for SalvageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what is left of larder pool {}", self.0.pool)
    }
}

/// Why a range cannot be answered, as the source of an `object_store::Error`.
#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("no such object")]
    NotFound,
    #[error("bytes {start} to {end} are lost: only {have} of the {need} pieces they take are intact")]
    Lost { start: u64, end: u64, have: usize, need: usize },
    #[error("the range lies outside of its {0} bytes")]
    Range(u64),
    #[error("the pool is open for reading only")]
    ReadOnly,
    #[error("the task was cancelled")]
    Cancelled,
}

fn generic(reason: Reason) -> Error {
    Error::Generic { store: "larder-salvage", source: Box::new(reason) }
}

fn read_only(path: &Path) -> Error {
    Error::PermissionDenied { path: path.to_string(), source: Box::new(Reason::ReadOnly) }
}

impl Salvaged {
    /// Bytes of an object, or which are lost. Blocks.
    fn read_range(&self, version: &Version, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let geometry = version.geometry;
        let block_bytes = geometry.block_bytes();
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        for piece in geometry.pieces(range) {
            let whole = geometry.whole_blocks(piece.shard, &piece.local);
            let mut blocks = self.read_blocks(version, piece.shard, &whole);
            let mut plain = Vec::with_capacity((whole.end - whole.start) as usize);
            for (block, bytes) in (whole.start / block_bytes..).zip(&mut blocks) {
                let length = block_bytes.min(whole.end - block * block_bytes) as usize;
                let bytes = match bytes.take() {
                    Some(bytes) => bytes,
                    None => self.compute(version, piece.shard, block, length).map_err(|have| {
                        let start = piece.object + (block * block_bytes).saturating_sub(piece.local.start);
                        let need = usize::from(geometry.k);
                        generic(Reason::Lost { start, end: start + length as u64, have, need })
                    })?,
                };
                plain.extend_from_slice(&bytes);
            }
            let from = (piece.local.start - whole.start) as usize;
            let to = (piece.local.end - whole.start) as usize;
            out.extend_from_slice(plain.get(from..to).unwrap_or_default());
        }
        Ok(out)
    }

    /// The blocks of one shard that some disk has intact. Of mirrored objects every shard is a
    /// copy.
    fn read_blocks(&self, version: &Version, index: u8, whole: &Range<u64>) -> Vec<Option<Vec<u8>>> {
        let count = (whole.end - whole.start).div_ceil(version.geometry.block_bytes()) as usize;
        let mut blocks: Vec<Option<Vec<u8>>> = vec![None; count];
        let is_copy = |place: &&Place| place.index == index || version.geometry.k == 1;
        for place in version.places.iter().filter(is_copy) {
            if blocks.iter().all(Option::is_some) {
                break;
            }
            for (have, found) in blocks.iter_mut().zip(self.read_place(version, place, whole)) {
                if have.is_none() {
                    *have = found;
                }
            }
        }
        blocks
    }

    /// The intact blocks of one file.
    fn read_place(&self, version: &Version, place: &Place, whole: &Range<u64>) -> Vec<Option<Vec<u8>>> {
        let geometry = version.geometry;
        let stored_block_bytes = geometry.stored_block_bytes() as usize;
        let count = (whole.end - whole.start).div_ceil(geometry.block_bytes());
        let first = whole.start / geometry.block_bytes();
        let offset = geometry.block_offset(u64::from(version.header_bytes), first);
        let stored = (whole.end - whole.start + count * CHECKSUM_BYTES) as usize;
        let read = |offset: u64, length: usize| {
            let file = self.disks.get(place.disk)?.open(&place.file, false).ok()?;
            let mut raw = vec![0; length];
            let read = file.read_at(&mut [IoSliceMut::new(&mut raw)], offset).ok()?;
            raw.truncate(read);
            Some(raw)
        };
        let seed = shard::shard_seed(self.pool, version.version, place.index);
        let check = |at: u64, stored: &[u8]| {
            let (data, sum) = stored.split_last_chunk::<8>()?;
            (checksum(shard::block_seed(seed, first + at), data).to_le_bytes() == *sum).then(|| data.to_vec())
        };
        if let Some(raw) = read(offset, stored) {
            let mut blocks: Vec<_> =
                raw.chunks(stored_block_bytes).zip(0..).map(|(stored, at)| check(at, stored)).collect();
            blocks.resize(count as usize, None);
            return blocks;
        }
        // A bad sector fails the whole read: ask for each block by itself.
        (0..count)
            .map(|at| {
                let length = (stored - at as usize * stored_block_bytes).min(stored_block_bytes);
                check(at, &read(offset + at * stored_block_bytes as u64, length)?)
            })
            .collect()
    }

    /// A block of shard `wanted` from the same block of `k` others, or how many of them there are.
    fn compute(&self, version: &Version, wanted: u8, block: u64, length: usize) -> Result<Vec<u8>, usize> {
        let geometry = version.geometry;
        let mut units: Vec<(usize, Vec<u8>)> = Vec::new();
        for index in (0..geometry.shards()).filter(|index| *index != wanted && geometry.k > 1) {
            // Beyond the end of a shard there are zeros, whether or not the shard exists
            // (`geometry.same_range_everywhere`).
            let start = block * geometry.block_bytes();
            let whole = start..(start + geometry.block_bytes()).min(geometry.shard_bytes(index)).max(start);
            let mut bytes = if whole.is_empty() {
                Vec::new()
            } else {
                let Some(Some(bytes)) = self.read_blocks(version, index, &whole).pop() else { continue };
                bytes
            };
            bytes.resize(geometry.block_bytes() as usize, 0);
            units.push((usize::from(index), bytes));
            if units.len() == usize::from(geometry.k) {
                break;
            }
        }
        let have: Vec<(usize, &[u8])> = units.iter().map(|(index, bytes)| (*index, bytes.as_slice())).collect();
        let computed = parity::reconstruct(usize::from(geometry.k), usize::from(wanted), &have);
        let mut bytes = computed.ok_or(units.len())?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The faults of an object's shards. Blocks.
    pub fn verify(&self, path: &str) -> Vec<Damage> {
        let Some(version) = self.index.get(path) else { return Vec::new() };
        let mut damage = Vec::new();
        for index in 0..version.geometry.shards() {
            if version.of_shard(index).next().is_none() {
                let why = "it is on none of these disks".to_owned();
                damage.push(Damage { shard: index, disk: None, offset_bytes: None, why });
            }
            for place in version.of_shard(index) {
                let found =
                    |offset_bytes, why: String| Damage { shard: index, disk: Some(place.disk), offset_bytes, why };
                damage.extend(self.verify_header(version, place).map(|why| found(Some(0), why)));
                damage.extend(self.verify_blocks(version, place).into_iter().map(|at| {
                    found(
                        Some(at),
                        format!(
                            "a block of {} KiB has a wrong checksum or cannot be read",
                            version.geometry.block_bytes() >> 10
                        ),
                    )
                }));
            }
        }
        damage
    }

    fn verify_header(&self, version: &Version, place: &Place) -> Option<String> {
        let disk = self.disks.get(place.disk)?;
        let bytes = match crate::disk::read_file(&**disk, &place.file, u64::from(version.header_bytes)) {
            Ok(bytes) => bytes,
            Err(error) => return Some(format!("it cannot be read: {error}")),
        };
        match Header::decode(&bytes) {
            None => Some("its header is damaged".to_owned()),
            Some(header) if header.pool != self.pool => Some(format!("its header names the pool {}", header.pool)),
            Some(header) if (header.version, header.index) != (version.version, place.index) => {
                Some("its header is another shard's".to_owned())
            }
            Some(_) => None,
        }
    }

    /// Where blocks lie that do not pass.
    fn verify_blocks(&self, version: &Version, place: &Place) -> Vec<u64> {
        let bytes = version.geometry.shard_bytes(place.index);
        let mut bad = Vec::new();
        let mut at = 0;
        while at < bytes {
            let range = at..(at + CHUNK_BYTES).min(bytes);
            let blocks = self.read_place(version, place, &range);
            let geometry = version.geometry;
            let first = at / geometry.block_bytes();
            let wrong = (first..).zip(&blocks).filter(|(_, found)| found.is_none()).map(|(block, _)| block);
            bad.extend(wrong.map(|block| geometry.block_offset(u64::from(version.header_bytes), block)));
            at = range.end;
        }
        bad
    }
}

fn meta_of(path: &str, version: &Version) -> ObjectMeta {
    ObjectMeta {
        location: Path::parse(path).unwrap_or_else(|_| Path::from(path)),
        last_modified: std::time::UNIX_EPOCH
            .checked_add(std::time::Duration::from_millis(version.modified_ms))
            .unwrap_or(std::time::UNIX_EPOCH)
            .into(),
        size: version.geometry.size,
        e_tag: Some(format!("\"{:x}\"", version.version)),
        version: None,
    }
}

fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix)?;
    let rest = if prefix.is_empty() { rest } else { rest.strip_prefix('/')? };
    (!rest.is_empty()).then_some(rest)
}

impl SalvageStore {
    async fn chunk(self, path: String, range: Range<u64>) -> Result<Bytes> {
        let read = move || {
            let version = self.0.index.get(&path).ok_or_else(|| generic(Reason::NotFound))?;
            self.0.read_range(version, range).map(Bytes::from)
        };
        task::blocking(read).await.map_err(|_| generic(Reason::Cancelled))?
    }

    fn metas(&self, prefix: &str, offset: Option<&str>) -> Vec<Result<ObjectMeta>> {
        let from = match offset {
            Some(offset) if offset >= prefix => Bound::Excluded(offset),
            _ => Bound::Included(prefix),
        };
        let objects = self.0.index.range(from).take_while(|(path, _)| path.starts_with(prefix));
        objects.filter(|(path, _)| below(path, prefix).is_some()).map(|(path, v)| Ok(meta_of(path, v))).collect()
    }
}

#[async_trait]
impl ObjectStore for SalvageStore {
    async fn put_opts(&self, location: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only(location))
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only(location))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let not_found = || Error::NotFound { path: location.to_string(), source: Box::new(Reason::NotFound) };
        let meta = meta_of(location.as_ref(), self.0.index.get(location.as_ref()).ok_or_else(not_found)?);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|_| generic(Reason::Range(meta.size)))?,
            None => 0..meta.size,
        };
        let payload = if options.head {
            stream::empty().boxed()
        } else {
            let (store, path, end) = (self.clone(), location.to_string(), range.end);
            let starts = (range.start..end).step_by(CHUNK_BYTES as usize);
            let chunks = starts.map(move |at| store.clone().chunk(path.clone(), at..(at + CHUNK_BYTES).min(end)));
            stream::iter(chunks).buffered(2).boxed()
        };
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations.map(|path| path.and_then(|path| Err(read_only(&path)))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter(self.metas(prefix.map_or("", |prefix| prefix.as_ref()), None)).boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter(self.metas(prefix.map_or("", |prefix| prefix.as_ref()), Some(offset.as_ref()))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map_or("", |prefix| prefix.as_ref());
        let mut result =
            ListResult { objects: Vec::new(), common_prefixes: Vec::new(), extensions: Default::default() };
        let mut directories: BTreeMap<String, ()> = BTreeMap::new();
        for meta in self.metas(prefix, None).into_iter().flatten() {
            let path = meta.location.to_string();
            let Some(rest) = below(&path, prefix) else { continue };
            match rest.split_once('/') {
                None => result.objects.push(meta),
                Some((directory, _)) => {
                    let length = path.len() - rest.len() + directory.len();
                    directories.insert(path.get(..length).unwrap_or_default().to_owned(), ());
                }
            }
        }
        result.common_prefixes = directories.into_keys().map(|path| Path::parse(&path).unwrap_or_default()).collect();
        Ok(result)
    }

    async fn copy_opts(&self, _: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only(to))
    }
}
