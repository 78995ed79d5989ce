//! The objects of a simulated bucket, as S3 keeps them: each request takes effect whole, at one moment, and the next one sees it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use larder_base::checksum::checksum;
use object_store::path::Path;
use object_store::{Attributes, CopyMode, Error, GetOptions, ObjectMeta, PutMode, PutOptions, PutResult, Result};

use super::ledger::Ledger;

/// Objects of one page of a listing.
const PAGE_MAX: usize = 1000;

#[derive(Clone)]
pub struct Object {
    pub bytes: Bytes,
    pub e_tag: String,
    pub modified: SystemTime,
    pub attributes: Attributes,
}

struct Upload {
    at: Path,
    attributes: Attributes,
    parts: BTreeMap<usize, Bytes>,
}

/// A bucket.
#[derive(Default)]
pub struct S3 {
    objects: BTreeMap<Path, Object>,
    uploads: BTreeMap<String, Upload>,
    /// Equal bytes have equal tags, as with S3 itself; else each write has a tag of its own.
    pub tags_of_content: bool,
    /// The server's clock is so far ahead of the machines', or behind.
    pub skew_s: i64,
    pub page_max: usize,
    /// Objects with this in their names cannot be deleted.
    pub kept: Option<&'static str>,
    /// What became of the registry.
    pub ledger: Ledger,
    writes: u64,
}

/// The body and what belongs to it.
pub struct Got {
    pub meta: ObjectMeta,
    pub range: std::ops::Range<u64>,
    pub body: Bytes,
    pub attributes: Attributes,
}

pub fn generic(why: &str) -> Error {
    Error::Generic { store: "S3", source: why.to_owned().into() }
}

fn gone(at: &Path) -> Error {
    Error::NotFound { path: at.to_string(), source: "NoSuchKey".into() }
}

impl S3 {
    pub fn new(tags_of_content: bool, skew_s: i64, page_max: usize) -> Self {
        Self { tags_of_content, skew_s, page_max: page_max.clamp(1, PAGE_MAX), ..Self::default() }
    }

    pub fn bytes(&self) -> u64 {
        self.objects.values().map(|object| object.bytes.len() as u64).sum()
    }

    #[cfg(test)]
    pub fn count(&self, part: &str) -> usize {
        self.objects.keys().filter(|at| at.as_ref().contains(part)).count()
    }

    fn object(&mut self, bytes: Bytes, attributes: Attributes, now: SystemTime) -> Object {
        self.writes += 1;
        let number = if self.tags_of_content { checksum(7, &bytes) } else { self.writes };
        let skew = Duration::from_secs(self.skew_s.unsigned_abs());
        // S3 tells whole seconds.
        let told = if self.skew_s < 0 { now - skew } else { now + skew };
        let since = told.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
        Object { bytes, e_tag: format!("\"{number:016x}\""), modified, attributes }
    }

    pub fn put(&mut self, at: &Path, bytes: Bytes, options: &PutOptions, now: SystemTime) -> Result<PutResult> {
        let there = self.objects.get(at);
        match (&options.mode, there) {
            (PutMode::Create, Some(_)) => {
                return Err(Error::AlreadyExists { path: at.to_string(), source: "PreconditionFailed".into() });
            }
            (PutMode::Update(_), None) => return Err(gone(at)),
            (PutMode::Update(version), Some(there)) if version.e_tag.as_ref() != Some(&there.e_tag) => {
                return Err(Error::Precondition { path: at.to_string(), source: "PreconditionFailed".into() });
            }
            _ => {}
        }
        let object = self.object(bytes, options.attributes.clone(), now);
        let e_tag = Some(object.e_tag.clone());
        self.objects.insert(at.clone(), object);
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }

    fn meta(at: &Path, object: &Object) -> ObjectMeta {
        ObjectMeta {
            location: at.clone(),
            last_modified: object.modified.into(),
            size: object.bytes.len() as u64,
            e_tag: Some(object.e_tag.clone()),
            version: None,
        }
    }

    pub fn get(&self, at: &Path, options: &GetOptions) -> Result<Got> {
        let object = self.objects.get(at).ok_or_else(|| gone(at))?;
        let meta = Self::meta(at, object);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|error| generic(&error.to_string()))?,
            None => 0..meta.size,
        };
        let body =
            if options.head { Bytes::new() } else { object.bytes.slice(range.start as usize..range.end as usize) };
        Ok(Got { meta, range, body, attributes: object.attributes.clone() })
    }

    pub fn delete(&mut self, all: &[Path]) {
        let is_kept = |at: &Path| self.kept.is_some_and(|part| at.as_ref().contains(part));
        let gone: Vec<&Path> = all.iter().filter(|at| !is_kept(at)).collect();
        gone.into_iter().for_each(|at| drop(self.objects.remove(at)));
    }

    /// One page of what lies below a folder and behind an object.
    pub fn list(&self, folder: Option<&Path>, after: Option<&Path>) -> (Vec<ObjectMeta>, bool) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let is_below = |at: &Path| folder.is_none_or(|folder| at.prefix_matches(folder) && at != folder);
        let all = self.objects.range::<Path, _>((from, Bound::Unbounded)).filter(|(at, _)| is_below(at));
        let mut page: Vec<ObjectMeta> =
            all.take(self.page_max + 1).map(|(at, object)| Self::meta(at, object)).collect();
        let has_more = page.len() > self.page_max;
        page.truncate(self.page_max);
        (page, has_more)
    }

    pub fn copy(&mut self, from: &Path, to: &Path, mode: CopyMode, now: SystemTime) -> Result<()> {
        let source = self.objects.get(from).cloned().ok_or_else(|| gone(from))?;
        let mode = if mode == CopyMode::Create { PutMode::Create } else { PutMode::Overwrite };
        let options = PutOptions { mode, attributes: source.attributes.clone(), ..PutOptions::default() };
        self.put(to, source.bytes, &options, now).map(drop)
    }

    pub fn begin_upload(&mut self, at: &Path, attributes: Attributes) -> String {
        self.writes += 1;
        let id = format!("upload-{}", self.writes);
        self.uploads.insert(id.clone(), Upload { at: at.clone(), attributes, parts: BTreeMap::new() });
        id
    }

    pub fn put_part(&mut self, id: &str, number: usize, bytes: Bytes) -> Result<String> {
        let upload = self.uploads.get_mut(id).ok_or_else(|| gone(&Path::from(id)))?;
        let tag = format!("\"{:016x}\"", checksum(number as u64, &bytes));
        upload.parts.insert(number, bytes);
        Ok(tag)
    }

    pub fn complete(&mut self, id: &str, now: SystemTime) -> Result<PutResult> {
        let upload = self.uploads.remove(id).ok_or_else(|| gone(&Path::from(id)))?;
        let bytes: Vec<u8> = upload.parts.values().flat_map(|part| part.iter().copied()).collect();
        let options = PutOptions { attributes: upload.attributes, ..PutOptions::default() };
        self.put(&upload.at, bytes.into(), &options, now)
    }

    pub fn abort(&mut self, id: &str) {
        self.uploads.remove(id);
    }
}
