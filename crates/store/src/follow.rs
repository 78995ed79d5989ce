//! A store that this process only reads: nothing it does can change an object.
//!
//! - `follow.writes_nothing`: every call that would write, copy or delete fails here, before it leaves the machine. So a reader
//!   cannot harm the owner, whatever else is wrong with it.
//! - `follow.prefix_of_the_log`: what a reader sees of a stream is what the next owner would replay: entries without gaps, of the
//!   terms that count ([`crate::log`]). An entry that was read stays in every later reading.
//! - `follow.trimmed_is_said`: where entries may have been trimmed between the last reading and this one, the reader is told
//!   ([`LogError::Damaged`]), and has to begin at a newer manifest.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_base::boxed;
use larder_base::log::{LogEntry, LogError, LogStore, Receipt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::log::{End, damaged, end_at, list, read, walk};

/// The streams of a log, read and never written (`follow.prefix_of_the_log`).
pub struct FollowedLog {
    store: Arc<dyn ObjectStore>,
    /// The end of the last reading of each stream.
    ends: Mutex<HashMap<String, End>>,
}

impl FollowedLog {
    /// The log below `store`.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, ends: Mutex::default() }
    }
}

/// The entries of a stream that can still be read, for a recovery, and what is wrong with the others, one sentence each.
#[boxed]
pub async fn left_of_log(store: &dyn ObjectStore, stream: &str) -> (Vec<LogEntry>, Vec<String>) {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    let objects = match list(store, stream, 0).await {
        Ok(objects) => objects,
        Err(error) => return (entries, vec![error.to_string()]),
    };
    let Some((mut id, mut term)) = objects.keys().next().copied() else { return (entries, faults) };
    // Of the oldest id the newest writer counts, as at an opening.
    term = objects.range((id, term)..(id, u64::MAX)).next_back().map_or(term, |((_, newest), _)| *newest);
    while objects.contains_key(&(id, term)) {
        match read(store, stream, (id, term)).await {
            Ok(Some(entry)) => {
                term = if entry.is_fence { id } else { term };
                entries.push(LogEntry { id, payload: entry.payload });
            }
            Ok(None) => {
                faults.push(format!("entry {id} of the log vanished; those behind it are left out"));
                break;
            }
            Err(error) => {
                faults.push(format!("{error}; the entries behind it are left out"));
                break;
            }
        }
        id += 1;
    }
    (entries, faults)
}

fn refused() -> LogError {
    LogError::Poisoned("this machine only reads the store".into())
}

#[async_trait]
impl LogStore for FollowedLog {
    async fn begin(&self, _stream: &str, _id: u64, _payload: Vec<Bytes>) -> std::result::Result<Receipt, LogError> {
        Err(refused())
    }

    async fn replay(&self, stream: &str, after: u64) -> std::result::Result<Vec<LogEntry>, LogError> {
        let objects = list(&*self.store, stream, after).await?;
        let known = self.ends.lock().get(stream).copied().filter(|end| end.place.0 == after && after > 0);
        let end = match known {
            Some(end) if objects.contains_key(&end.place) => end,
            // `follow.trimmed_is_said`
            Some(_) => return Err(damaged(stream, format!("entry {after} was trimmed"))),
            None => end_at(&*self.store, stream, &objects, after).await?,
        };
        if after == 0 && objects.keys().next().is_some_and(|(id, _)| *id > 1) {
            return Err(damaged(stream, "its first entries were trimmed".into()));
        }
        let (entries, end) = walk(&self.store, stream, &objects, end).await?;
        self.ends.lock().insert(stream.to_owned(), end);
        Ok(entries)
    }

    async fn trim(&self, _stream: &str, _through: u64) -> std::result::Result<(), LogError> {
        Err(refused())
    }

    async fn remove(&self, _stream: &str) -> std::result::Result<(), LogError> {
        Err(refused())
    }

    fn usage(&self) -> (u64, u64) {
        (0, u64::MAX)
    }

    fn held_bytes(&self, _stream: &str) -> u64 {
        0
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A store whose objects cannot be changed (`follow.writes_nothing`).
pub struct ReadOnly(pub Arc<dyn ObjectStore>);

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadOnly({})", self.0)
    }
}

impl fmt::Debug for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn read_only() -> Error {
    Error::NotSupported { source: "this machine only reads the store".into() }
}

#[async_trait]
impl ObjectStore for ReadOnly {
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(at, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, _at: &Path, _payload: PutPayload, _options: PutOptions) -> Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(&self, _at: &Path, _options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    fn delete_stream(&self, _paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures::stream::once(async { Err(read_only()) }).boxed()
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(read_only())
    }
}
