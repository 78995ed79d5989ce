//! The operations of a protocol. One [`Share`] is one connection, used by many slots of one thread.

use std::time::Duration;

use super::contents::Contents;
use super::error::{ClientError, Outcome};
use super::runtime::block_on;
use crate::workload::{Kind, Workload};

/// Which bytes a file holds, so that they can be written and known again.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub contents: &'a std::sync::Arc<Contents>,
    pub file: u64,
    /// Of what is written; a reader accepts all.
    pub generation: u64,
}

impl Identity<'_> {
    pub fn check(&self, name: &str, offset: u64, data: &[u8]) -> Outcome<()> {
        match self.contents.first_wrong(self.file, offset, data) {
            None => Ok(()),
            Some(offset) => Err(ClientError::WrongData { file: name.to_owned(), offset }),
        }
    }
}

pub(super) struct Entry {
    pub name: String,
    pub folder: bool,
}

/// A server's share, to which connections are made.
pub(super) trait Target: Sized + Send + Sync {
    type Share: Share;
    /// `nfs3`, `smb3`, ...
    const ACCESS: &'static str;
    /// A large file is written in one stream, as an upload; writing in its middle is not possible.
    const STREAMS: bool = false;

    fn connect(&self, workload: Option<&Workload>) -> impl Future<Output = Outcome<Self::Share>>;
    fn describe(&self) -> String;

    /// The cipher or signature on the way, once connected.
    fn encryption(&self) -> String {
        "none".to_owned()
    }

    /// Runs a thread's work. Whoever brings an executor of his own has his own sleep as well.
    fn block_on<R>(work: impl Future<Output = Outcome<R>>) -> Outcome<R> {
        block_on(work)
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Paths are relative to the share, with `/`.
pub(super) trait Share: 'static {
    type File;

    /// Fine if it is there already.
    async fn make_folder(&self, path: &str) -> Outcome<()>;
    async fn list(&self, path: &str) -> Outcome<Vec<Entry>>;
    /// Whether this is a folder of the share itself, not a link to one or a door to another disk: only in such a one
    /// is anything removed. Where a listing tells links from folders and no call follows them, it has said so.
    async fn is_own_folder(&self, _path: &str) -> Outcome<bool> {
        Ok(true)
    }
    async fn remove(&self, path: &str) -> Outcome<()>;
    /// The bytes that a user may still write, if the protocol tells.
    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        Ok(None)
    }
    /// An empty one.
    async fn remove_folder(&self, path: &str) -> Outcome<()>;
    async fn size(&self, path: &str) -> Outcome<u64>;
    /// Empty afterwards, whatever was there.
    async fn create(&self, path: &str) -> Outcome<Self::File>;
    async fn open(&self, path: &str, to_write: bool) -> Outcome<Self::File>;
    /// All of it, checked; an early end is an error.
    async fn read(&self, file: &Self::File, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()>;
    async fn write(&self, file: &Self::File, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()>;
    /// Until it is on the server's disks.
    async fn flush(&self, file: &Self::File, identity: Identity<'_>) -> Outcome<()>;
    async fn close(&self, file: Self::File) -> Outcome<()>;
    /// Everything at once, where one call does that; otherwise each file is flushed.
    async fn flush_all(&self) -> Outcome<bool> {
        Ok(false)
    }

    /// A whole file; `stream` is told of each part that went out. Only for targets that stream is it more than this.
    async fn put(
        &self,
        path: &str,
        len: u64,
        block: u64,
        sync: bool,
        identity: Identity<'_>,
        told: &dyn Fn(u64) -> bool,
    ) -> Outcome<()> {
        let file = self.create(path).await?;
        let mut at = 0;
        while at < len {
            let part = block.min(len - at);
            self.write(&file, at, part, identity).await?;
            at += part;
            if !told(part) {
                break;
            }
        }
        if sync {
            self.flush(&file, identity).await?;
        }
        self.close(file).await
    }

    /// A whole file, checked.
    async fn get(&self, path: &str, len: u64, block: u64, identity: Identity<'_>) -> Outcome<()> {
        let file = self.open(path, false).await?;
        let mut at = 0;
        while at < len {
            let part = block.min(len - at);
            self.read(&file, at, part, identity).await?;
            at += part;
        }
        self.close(file).await
    }
}

/// Refuses workloads that a protocol without writing in the middle cannot do.
pub(super) fn check_supported<T: Target>(workload: &Workload) -> Outcome<()> {
    match workload.kind {
        Kind::RandomWrite | Kind::RandomMixed if T::STREAMS => Err(ClientError::Unsupported {
            access: T::ACCESS.to_owned(),
            reason: "it replaces files as a whole, so random writing does not exist; measure reading, sequential writing and small files".into(),
        }),
        _ => Ok(()),
    }
}

/// Of a folder: more than any bench makes in one, and little enough for memory.
const LISTING_ENTRIES_MAX: usize = 1_000_000;

/// A listing that comes in parts ends somewhere (`load.answers_bounded`).
pub(super) fn check_listing(path: &str, entries: usize) -> Outcome<()> {
    match entries > LISTING_ENTRIES_MAX {
        true => Err(ClientError::protocol(path, format!("a folder of more than {LISTING_ENTRIES_MAX} entries"))),
        false => Ok(()),
    }
}

/// A short answer before the end of a file.
pub(super) fn ended_early(name: &str, at: u64) -> ClientError {
    ClientError::WrongData { file: name.to_owned(), offset: at }
}

/// A request that is larger than one transfer, as several: where each begins, and how long it is.
pub(super) fn parts(at: u64, len: u64, part_max: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len).step_by(part_max.max(1) as usize).map(move |done| (at + done, part_max.min(len - done)))
}
