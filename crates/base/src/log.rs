//! The record log: the storage that a write-ahead log needs below it.
//!
//! A pool offers one (its journal on m+1 disks); a volume uses it as the WAL of its metadata
//! engine. Neither knows the other: this trait is all they share.
//!
//! - `log.ids_increase`: the ids of a stream's entries only increase, and replay yields the entries
//!   in that order. An entry has its place once `begin` has returned, durable or not: several
//!   entries may be on their way.
//! - `log.receipt_is_durable`: a receipt resolves only when the entry, and so all before it,
//!   survives power loss and the loss of m disks.
//! - `log.whole_without_gaps`: an entry is replayed whole or not at all, and no entry after a
//!   missing one is replayed.
//! - `log.trim_is_advice`: `trim` is advice. Trimmed entries may or may not be replayed after a
//!   crash.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

/// Why a log could not do as asked. After any error of an entry the stream is poisoned: every
/// later one fails until the log is reopened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The entry's id is not above the last id (`log.ids_increase`).
    #[error("log entry {id} of stream {stream} does not follow entry {last}")]
    OutOfOrder { stream: String, id: u64, last: u64 },
    /// No room: nothing was written.
    #[error("the log is full: {0}")]
    Full(String),
    #[error("the log is poisoned by an earlier failure: {0}")]
    Poisoned(String),
    /// Entries that were durable once cannot be read back from enough disks.
    #[error("log stream {stream} is damaged: {why}")]
    Damaged { stream: String, why: String },
    #[error("log I/O failed: {0}")]
    Io(Arc<std::io::Error>),
}

/// One entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub id: u64,
    pub payload: Bytes,
}

/// Resolves once the entry is durable. Whoever drops it gives up knowing, not the entry.
pub type Receipt = Pin<Box<dyn Future<Output = Result<(), LogError>> + Send>>;

/// Named streams of durable records. Stream names are 1 to 64 bytes of `[a-z0-9-]`; a payload
/// is at most [`MAX_PAYLOAD_BYTES`].
#[async_trait]
pub trait LogStore: Send + Sync + 'static {
    /// Takes one entry of `stream` (created by its first entry), once there is room for it on the way to the disks. What
    /// is taken while a flush is under way shares the next.
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError>;
    /// Appends one entry and returns once it is durable.
    async fn append(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<(), LogError> {
        self.begin(stream, id, payload).await?.await
    }
    /// Every entry with an id greater than `after`, in order.
    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError>;
    /// Entries with ids up to and including `through` are no longer needed.
    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError>;
    /// Forgets the stream and all its entries.
    async fn remove(&self, stream: &str) -> Result<(), LogError>;
    /// Whether all that was ever acknowledged is known to be in the log. Where it is not, whoever replays it deletes nothing
    /// for the reason that the log does not speak of it.
    fn is_proven(&self) -> bool {
        true
    }
    /// The newest entry that `stream` ever had, trimmed or not; 0 where it never had one. `None`: this log does not know.
    fn last(&self, _stream: &str) -> Option<u64> {
        None
    }
    /// The streams that there are, where the log knows.
    fn streams(&self) -> Vec<String> {
        Vec::new()
    }
    /// Whether other machines can reach the log. Each opening of a stream then ends its writers before, and numbers that those
    /// may have given out are not given out again.
    fn is_shared(&self) -> bool {
        false
    }
    /// Fails once another machine has taken over what this log belongs to. A writer that deletes asks between choosing and
    /// deleting: what nothing needed then, nothing ever needs again.
    async fn check_owner(&self) -> Result<(), LogError> {
        Ok(())
    }
    /// The proof that this process may still answer for what the log belongs to. `None`: no other machine can take it.
    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        None
    }
    /// Fails unless this process may still change what the log belongs to. Asked between looking and changing: whoever has seen
    /// what a successor wrote hears that there is one.
    async fn prove_tenure(&self) -> Result<(), LogError> {
        match self.tenure() {
            Some(tenure) if !tenure.is_proven() => tenure.prove().await,
            _ => Ok(()),
        }
    }
    /// Bytes of entries not yet trimmed, over all streams, and how many fit in all. A writer
    /// checkpoints and trims well before the first reaches the second.
    fn usage(&self) -> (u64, u64);
    /// Bytes of the log, of whatever stream, that the oldest entry of `stream` keeps from being used again; 0 without entries.
    fn held_bytes(&self, stream: &str) -> u64;
}

/// Whether this process still has what other machines may take over while it is suspended, cut off or slow.
#[async_trait]
pub trait Tenure: Send + Sync + 'static {
    /// Whether the newest proof is young enough to answer on. Asked for each operation: it does no I/O.
    fn is_proven(&self) -> bool;
    /// Gets a proof. Fails once another machine has taken over, and while nobody can be asked.
    async fn prove(&self) -> Result<(), LogError>;
}

/// The largest payload of one entry.
pub const MAX_PAYLOAD_BYTES: usize = 32 << 20;

/// A log in memory, for tests. Durable against nothing but the drop of its users.
#[derive(Clone, Default)]
pub struct MemLog {
    streams: Arc<Mutex<BTreeMap<String, BTreeMap<u64, Bytes>>>>,
}

#[async_trait]
impl LogStore for MemLog {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let mut streams = self.streams.lock();
        let entries = streams.entry(stream.to_owned()).or_default();
        if let Some((&last, _)) = entries.last_key_value()
            && id <= last
        {
            return Err(LogError::OutOfOrder { stream: stream.to_owned(), id, last });
        }
        entries.insert(id, payload.concat().into());
        Ok(Box::pin(async { Ok(()) }))
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        let streams = self.streams.lock();
        let Some(entries) = streams.get(stream) else { return Ok(Vec::new()) };
        let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
        Ok(entries.range(first..).map(|(&id, payload)| LogEntry { id, payload: payload.clone() }).collect())
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        if let Some(entries) = self.streams.lock().get_mut(stream) {
            entries.retain(|&id, _| id > through);
        }
        Ok(())
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.streams.lock().remove(stream);
        Ok(())
    }

    fn streams(&self) -> Vec<String> {
        self.streams.lock().keys().cloned().collect()
    }

    fn usage(&self) -> (u64, u64) {
        let used = self.streams.lock().values().flat_map(|s| s.values()).map(|p| p.len() as u64).sum();
        (used, u64::MAX)
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        let streams = self.streams.lock();
        streams.get(stream).map_or(0, |entries| entries.values().map(|payload| payload.len() as u64).sum())
    }
}
