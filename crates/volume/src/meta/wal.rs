//! The engine's write-ahead log on a [`LogStore`].
//!
//! One log entry is one WAL file of the engine; entry id = file id. `append` encodes into a buffer.
//! Where a caller waits, the committer hands the gathered batches to the log at once. There they wait for
//! the flush under way and share the next with what came in between: group commit without a timer,
//! and the disks need not wait for a task to be woken. Batches that nobody waits for, as the extents
//! of a file that is being written, need no flush each (`wal.unasked_within`).
//!
//! - `wal.unasked_within`: what nobody waits for is begun after [`UNASKED_MAX`], with more than
//!   [`UNASKED_BYTES_MAX`], and with whatever somebody waits for, whichever comes first.
//! - `wal.entries_in_order`: entries are begun in order, with ids without gaps, and reported to the
//!   engine in order, so replay sees a prefix of what was appended. At most [`FLYING_MAX`] are on
//!   their way; batches that come faster are gathered.
//! - `wal.fence_on_open`: opening appends a fence entry (no rows). An earlier writer then fails
//!   with an id out of order, so nothing of it follows what the new writer has replayed.
//! - `wal.trim_by_stored_manifest`: entries are trimmed only up to the replay point of the manifest
//!   *in the store*: what the tree has. The engine's own status is ahead of it, and a crash before
//!   that manifest is written needs the entries. Replay refuses a gap.
//! - `wal.relieved_under_pressure`: the log is shared and bounded. Once [`PRESSURE_USED`] percent
//!   of it are in use, every volume moves its memtable to the tree, and above [`HOLD_USED`] percent
//!   new batches wait; batches that the engine has are appended all the same. A volume whose oldest
//!   entry holds half of the used log writes a row for it, should its memtable be empty, because
//!   fences hold the log, too.
//! - `wal.no_older_copy`: a log that ends before the replay point of the manifest is an older copy
//!   of itself, and what followed in it is lost. It is refused, unless a person has accepted the
//!   loss (`LogStore::is_proven`).
//!
//! Clients that work at once fall into two waves, each prepared while the other's entries are
//! written. Waiting until all are together saves flushes and loses more: then the processor and the
//! disks take turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use larder_base::log::{LogEntry, LogError, MAX_PAYLOAD_BYTES, Receipt};
use larder_base::{LogStore, checksum, task};
use larder_fs::FsError;
use parking_lot::Mutex;
use slatedb::wal::{
    WalError, WalEvent, WalFileRange, WalFlushResult, WalIterator, WalObserver, WalReader, WalRows, WalStatus,
    WalStatusListener, WalWriter, WriterInit, WriterInitResult, WriterManifest,
};
use slatedb::{RowEntry, ValueDeletable, VersionedManifest};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::clock::EngineClock;
use super::overlay::Durability;

/// Batches beyond this wait for the next entry.
const ENTRY_BYTES_TARGET: usize = 8 << 20;
/// Entries on their way at once (`wal.entries_in_order`).
pub(crate) const FLYING_MAX: usize = 16;
/// See `wal.unasked_within`. Less than a second, as file data has five in all until it is durable.
const UNASKED_MAX: Duration = Duration::from_millis(200);
const UNASKED_BYTES_MAX: usize = 1 << 20;
/// No single batch may exceed an entry, with room for framing.
pub(crate) const BATCH_BYTES_MAX: usize = MAX_PAYLOAD_BYTES - (1 << 20);
/// Percent of the log in use.
pub(crate) const PRESSURE_USED: u64 = 50;
const HOLD_USED: u64 = 85;
const _: () = assert!(OWN_SHARE_USED < PRESSURE_USED && PRESSURE_USED < HOLD_USED && HOLD_USED < 100);
const HOLD_POLL: Duration = Duration::from_millis(20);
/// A log that stays full this long fails the volume instead of hanging it.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(60);
/// Memtable bytes are also bounded by how much log they hold: this share of the log per volume, in
/// percent.
const OWN_SHARE_USED: u64 = 25;
const PRESSURE_BYTES_MIN: u64 = 1 << 20;

/// The stream of one volume in the log.
#[derive(Clone)]
pub(crate) struct LogWal {
    pub(crate) log: Arc<dyn LogStore>,
    pub(crate) stream: String,
    pub(crate) durability: Arc<Durability>,
    /// Never behind the newest row that is replayed.
    pub(crate) clock: Arc<EngineClock>,
}

// --------------------------------------------------------------------------------------------- codec

/// Version 2 would be another first byte.
const ENTRY_VERSION: u8 = 1;
const FLAG_VALUE: u8 = 1;
const FLAG_MERGE: u8 = 2;
const FLAG_CREATED: u8 = 4;
const FLAG_EXPIRES: u8 = 8;

fn encode_row(row: &RowEntry, out: &mut BytesMut) -> Result<(), WalError> {
    let (kind, value) = match &row.value {
        ValueDeletable::Value(value) => (FLAG_VALUE, &value[..]),
        ValueDeletable::Merge(value) => (FLAG_MERGE, &value[..]),
        ValueDeletable::Tombstone => (0, &[][..]),
    };
    let key_len = u16::try_from(row.key.len()).map_err(|_| data_error("a key is longer than 64 KiB"))?;
    let value_len = u32::try_from(value.len()).map_err(|_| data_error("a value is longer than 4 GiB"))?;
    let created = row.create_ts.map_or(0, |_| FLAG_CREATED);
    let expires = row.expire_ts.map_or(0, |_| FLAG_EXPIRES);
    out.put_u8(kind | created | expires);
    out.put_u64(row.seq);
    out.put_u16(key_len);
    out.put_u32(value_len);
    for time in [row.create_ts, row.expire_ts].into_iter().flatten() {
        out.put_i64(time);
    }
    out.put_slice(&row.key);
    out.put_slice(value);
    Ok(())
}

/// The rows of an entry. The log has checksums of its own; this one binds the entry to stream and
/// id, so that the log of another volume is not taken for ours.
fn decode_entry(stream: &str, entry: &LogEntry) -> Result<Vec<RowEntry>, WalError> {
    let payload = &entry.payload;
    let damaged = || data_error(&format!("entry {} of log stream {stream} is damaged", entry.id));
    let (version, sum) = payload.get(..9).and_then(|head| head.split_at_checked(1)).ok_or_else(damaged)?;
    let rows = payload.slice(9..);
    if version != [ENTRY_VERSION] || sum != entry_sum(stream, entry.id, std::slice::from_ref(&rows)).to_be_bytes() {
        return Err(damaged());
    }
    let mut rest = rows;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        entries.push(decode_row(&mut rest).ok_or_else(damaged)?);
    }
    Ok(entries)
}

/// The rows of an entry, for a reader without an engine.
pub(crate) fn rows_of(stream: &str, entry: &LogEntry) -> Result<Vec<RowEntry>, String> {
    decode_entry(stream, entry).map_err(|error| match error {
        WalError::DataError(why) => why.to_string(),
        other => other.to_string(),
    })
}

/// The payload of an entry with these rows.
#[cfg(any(test, fuzzing))]
pub(crate) fn payload_of(stream: &str, id: u64, rows: &[u8]) -> Bytes {
    let rows = Bytes::copy_from_slice(rows);
    let sum = entry_sum(stream, id, std::slice::from_ref(&rows));
    [&[ENTRY_VERSION], &sum.to_be_bytes()[..], &rows].concat().into()
}

#[cfg(any(test, fuzzing))]
pub(crate) fn encode_rows(rows: &[RowEntry]) -> Option<BytesMut> {
    let mut out = BytesMut::new();
    rows.iter().try_for_each(|row| encode_row(row, &mut out)).ok()?;
    Some(out)
}

fn entry_sum(stream: &str, id: u64, rows: &[Bytes]) -> u64 {
    checksum::checksum_slices(checksum::seed(stream.as_bytes(), id), rows.iter().map(|part| &part[..]))
}

fn decode_row(rest: &mut Bytes) -> Option<RowEntry> {
    use bytes::Buf;
    let flags = rest.try_get_u8().ok()?;
    let seq = rest.try_get_u64().ok()?;
    let key_len = usize::from(rest.try_get_u16().ok()?);
    let value_len = rest.try_get_u32().ok()? as usize;
    let create_ts = if flags & FLAG_CREATED != 0 { Some(rest.try_get_i64().ok()?) } else { None };
    let expire_ts = if flags & FLAG_EXPIRES != 0 { Some(rest.try_get_i64().ok()?) } else { None };
    if rest.len() < key_len || rest.len() - key_len < value_len {
        return None;
    }
    let key = rest.split_to(key_len);
    let value = rest.split_to(value_len);
    let value = match flags & (FLAG_VALUE | FLAG_MERGE) {
        0 => ValueDeletable::Tombstone,
        FLAG_VALUE => ValueDeletable::Value(value),
        FLAG_MERGE => ValueDeletable::Merge(value),
        _ => return None,
    };
    Some(RowEntry { key, value, seq, create_ts, expire_ts })
}

fn data_error(why: &str) -> WalError {
    WalError::DataError(Arc::new(std::io::Error::other(why.to_owned())))
}

fn wal_error(error: LogError) -> WalError {
    match error {
        // Another writer has appended: this one is stale (`wal.fence_on_open`).
        LogError::OutOfOrder { .. } => WalError::Fenced,
        LogError::Damaged { .. } => WalError::DataError(Arc::new(error)),
        other => WalError::Unavailable(Arc::new(other)),
    }
}

// -------------------------------------------------------------------------------------------- opening

const FENCE_TRIES: usize = 16;

#[async_trait]
impl WriterInit for LogWal {
    async fn fence_and_init(&self, manifest: &mut WriterManifest) -> Result<WriterInitResult, WalError> {
        let after = manifest.replay_after_wal_id();
        self.clock.not_before(manifest.manifest().last_l0_clock_tick());
        self.clock.not_before(newest_table_ms(&manifest.manifest()));
        self.check_reach(after)?;
        for _ in 0..FENCE_TRIES {
            let entries = self.log.replay(&self.stream, after).await.map_err(wal_error)?;
            if let Some((expected, entry)) = (after + 1..).zip(&entries).find(|(expected, entry)| *expected != entry.id)
            {
                let why = format!("entries {expected} to {} of log stream {} are lost", entry.id - 1, self.stream);
                return Err(data_error(&why));
            }
            let last = entries.last().map_or(after, |entry| entry.id);
            let fence = last + 1;
            let payload = self.payload(fence, Vec::new());
            match self.log.append(&self.stream, fence, payload).await {
                Ok(()) => return Ok(self.start(entries, fence)),
                // A stale writer was quicker: replay its entries, too.
                Err(LogError::OutOfOrder { .. }) => continue,
                Err(error) => return Err(wal_error(error)),
            }
        }
        Err(WalError::Fenced)
    }
}

impl LogWal {
    /// Refuses a log that is an older copy of itself (`wal.no_older_copy`).
    fn check_reach(&self, after: u64) -> Result<(), WalError> {
        match self.log.last(&self.stream) {
            Some(last) if last < after && self.log.is_proven() => {
                let stream = &self.stream;
                Err(data_error(&format!(
                    "log stream {stream} ends with entry {last}, and the tables in the store hold entry {after}: the log is an older copy of itself, and changes that were acknowledged are missing"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The parts of an entry; the rows are not copied together.
    fn payload(&self, id: u64, rows: Vec<Bytes>) -> Vec<Bytes> {
        let mut head = BytesMut::with_capacity(9);
        head.put_u8(ENTRY_VERSION);
        head.put_u64(entry_sum(&self.stream, id, &rows));
        std::iter::once(head.freeze()).chain(rows).collect()
    }

    fn start(&self, entries: Vec<LogEntry>, fence: u64) -> WriterInitResult {
        let newest_ms = newest_tick_ms(&self.stream, &entries);
        self.clock.not_before(newest_ms);
        let mut sizes = Sizes::default();
        entries.iter().for_each(|entry| sizes.add(entry.id, entry.payload.len() as u64));
        let replay = Replay { stream: self.stream.clone(), entries: entries.into(), end: Some(fence) };
        let status = WalStatus {
            closed_reason: None,
            estimated_bytes: 0,
            last_flushed_wal_id: fence,
            last_flushed_seq: None,
            buffered_wal_entries_count: 0,
        };
        let (flushed, _) = watch::channel(fence);
        let shared = Arc::new(SharedWal {
            wal: self.clone(),
            state: Mutex::new(WalState {
                status,
                next_id: fence + 1,
                buffered: Vec::new(),
                buffered_since: Instant::now(),
                is_asked: false,
                begun_seq: 0,
                sizes,
                listeners: Vec::new(),
            }),
            work: Notify::new(),
            flushed,
        });
        task::spawn(commit(Arc::clone(&shared)));
        WriterInitResult { replay_iterator: Box::new(replay), wal_writer: Box::new(Writer { shared }) }
    }
}

/// When the newest table was written. The engine stores no table that seems to be older than
/// another.
fn newest_table_ms(manifest: &VersionedManifest) -> i64 {
    let compacted = [manifest.last_compacted_l0_sst_view_id(), manifest.last_compacted_l0_sst_id()];
    let tables = manifest.all_sst_views().flat_map(|view| [view.id, view.sst.id.value()]);
    let newest = tables.chain(compacted.into_iter().flatten()).map(|id| id.timestamp_ms()).max();
    newest.map_or(i64::MIN, |ms| i64::try_from(ms).unwrap_or(i64::MAX))
}

/// When the newest row was written. Damage is found, and reported, when the entries are replayed.
fn newest_tick_ms(stream: &str, entries: &[LogEntry]) -> i64 {
    // The last ones may be fences, which have no rows.
    let newest = |entry: &LogEntry| {
        let rows = decode_entry(stream, entry).unwrap_or_default();
        rows.iter().filter_map(|row| row.create_ts).max()
    };
    entries.iter().rev().find_map(newest).unwrap_or(i64::MIN)
}

/// Entries read back, in order.
struct Replay {
    stream: String,
    entries: VecDeque<LogEntry>,
    /// The fence, consumed last.
    end: Option<u64>,
}

#[async_trait]
impl WalIterator for Replay {
    async fn next(&mut self) -> Result<Option<WalRows>, WalError> {
        if let Some(entry) = self.entries.pop_front() {
            let rows = decode_entry(&self.stream, &entry)?;
            return Ok(Some(WalRows { rows, last_consumed_wal_file_id: entry.id }));
        }
        Ok(self.end.take().map(|id| WalRows { rows: Vec::new(), last_consumed_wal_file_id: id }))
    }
}

/// For readers of checkpoints (snapshots): the rows between a manifest's replay point and a
/// checkpoint's end.
#[async_trait]
impl WalReader for LogWal {
    async fn iterator(&self, range: WalFileRange) -> Result<Box<dyn WalIterator>, WalError> {
        use std::ops::Bound;
        let after = match range.0 {
            Bound::Included(start) => start.saturating_sub(1),
            Bound::Excluded(start) => start,
            Bound::Unbounded => return Err(data_error("a log reader needs a start")),
        };
        let wanted = |id: u64| match range.1 {
            Bound::Included(end) => id <= end,
            Bound::Excluded(end) => id < end,
            Bound::Unbounded => true,
        };
        let entries = self.log.replay(&self.stream, after).await.map_err(wal_error)?;
        let entries = entries.into_iter().filter(|entry| wanted(entry.id)).collect();
        Ok(Box::new(Replay { stream: self.stream.clone(), entries, end: None }))
    }

    async fn last_wal_file_id(&self, after: u64) -> Result<u64, WalError> {
        let entries = self.log.replay(&self.stream, after).await.map_err(wal_error)?;
        Ok(entries.last().map_or(after, |entry| entry.id))
    }
}

// -------------------------------------------------------------------------------------------- writing

/// Batches encoded and not yet in an entry.
struct Buffered {
    rows: BytesMut,
    last_seq: u64,
}

/// Entries by id, and how many bytes they are together: the engine asks with every batch.
#[derive(Default)]
struct Sizes {
    entries: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Sizes {
    fn add(&mut self, id: u64, bytes: u64) {
        self.entries.push_back((id, bytes));
        self.bytes += bytes;
    }

    /// Bytes of the entries after `id`; the others are forgotten.
    fn after(&mut self, id: u64) -> u64 {
        while let Some(&(first, bytes)) = self.entries.front()
            && first <= id
        {
            self.entries.pop_front();
            self.bytes -= bytes;
        }
        self.bytes
    }
}

struct WalState {
    status: WalStatus,
    /// Of the entry that is begun next.
    next_id: u64,
    buffered: Vec<Buffered>,
    /// When the oldest of them came.
    buffered_since: Instant,
    /// The engine waits for them.
    is_asked: bool,
    /// The last batch in an entry that is begun.
    begun_seq: u64,
    /// Entries of ours that may still be in the log.
    sizes: Sizes,
    listeners: Vec<WalStatusListener>,
}

struct SharedWal {
    wal: LogWal,
    state: Mutex<WalState>,
    work: Notify,
    /// The last durable entry; closed together with the committer.
    flushed: watch::Sender<u64>,
}

impl SharedWal {
    fn publish(&self, event: WalEvent, listeners: Vec<WalStatusListener>) {
        for listener in listeners {
            listener(event.clone());
        }
    }

    fn fail(&self, error: WalError) {
        let why: Arc<str> = format!("the metadata log: {error}").into();
        self.wal.durability.fail(FsError::Poisoned(why));
        let mut state = self.state.lock();
        if state.status.closed_reason.is_some() {
            return;
        }
        state.status.closed_reason = Some(error);
        let (status, listeners) = (state.status.clone(), state.listeners.clone());
        drop(state);
        self.publish(WalEvent::WalClosed(status), listeners);
        self.flushed.send_modify(|_| {});
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        let status = self.state.lock().status.clone();
        if status.closed_reason.is_some() { Err(status) } else { Ok(status) }
    }

    /// When the next entry is to be begun (`wal.unasked_within`). `None`: there is nothing for it.
    fn due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.buffered.first()?;
        let bytes: usize = state.buffered.iter().map(|batch| batch.rows.len()).sum();
        let is_waited_for = || self.wal.durability.has_waiters_beyond(state.begun_seq);
        let is_urgent = state.is_asked || bytes > UNASKED_BYTES_MAX || is_waited_for();
        Some(if is_urgent { state.buffered_since } else { state.buffered_since + UNASKED_MAX })
    }

    /// The batches of the next entry: whole ones, up to the target.
    fn take(&self) -> Option<(FlyingEntry, Vec<Bytes>)> {
        let mut state = self.state.lock();
        let mut total = 0;
        let fits = |batch: &&Buffered| {
            total += batch.rows.len();
            total <= ENTRY_BYTES_TARGET
        };
        let count = state.buffered.iter().take_while(fits).count().max(1).min(state.buffered.len());
        let taken: Vec<Buffered> = state.buffered.drain(..count).collect();
        state.is_asked &= !state.buffered.is_empty();
        let last_seq = taken.last()?.last_seq;
        state.begun_seq = last_seq;
        let id = state.next_id;
        state.next_id += 1;
        let rows: Vec<Bytes> = taken.into_iter().map(|batch| batch.rows.freeze()).collect();
        Some((FlyingEntry { id, bytes: rows.iter().map(Bytes::len).sum(), last_seq }, rows))
    }

    /// `entries`, in order, are durable.
    fn committed(&self, entries: &[FlyingEntry]) {
        let Some(last) = entries.last() else { return };
        self.wal.durability.flushed(last.last_seq);
        let mut state = self.state.lock();
        let after = state.status.last_flushed_wal_id + 1;
        let in_order = (after..).zip(entries).all(|(id, entry)| id == entry.id);
        assert!(in_order, "`wal.entries_in_order`");
        state.status.last_flushed_wal_id = last.id;
        state.status.last_flushed_seq = Some(last.last_seq);
        let bytes: usize = entries.iter().map(|entry| entry.bytes).sum();
        assert!(state.status.estimated_bytes >= bytes, "every entry was counted when it was appended");
        state.status.estimated_bytes -= bytes;
        state.status.buffered_wal_entries_count = state.buffered.len();
        entries.iter().for_each(|entry| state.sizes.add(entry.id, entry.bytes as u64));
        let (status, listeners) = (state.status.clone(), state.listeners.clone());
        drop(state);
        self.publish(WalEvent::WalFlushed(status), listeners);
        self.flushed.send_replace(last.id);
    }
}

/// Waits while the log is nearly full (`wal.relieved_under_pressure`). The carrier calls it before
/// it hands batches to the engine. The committer must not: moving the memtable to the tree waits
/// for entries that the engine has already appended.
pub(crate) async fn hold(log: &dyn LogStore, pressure: &Notify) -> Result<(), LogError> {
    let mut waited = Duration::ZERO;
    loop {
        let (used, total) = log.usage();
        let used = used.saturating_mul(100) / total.max(1);
        if used >= PRESSURE_USED {
            pressure.notify_waiters();
        }
        if used < HOLD_USED {
            return Ok(());
        }
        if waited >= HOLD_WAIT_MAX {
            return Err(LogError::Full("what it holds could not be moved to the store".into()));
        }
        tokio::time::sleep(HOLD_POLL).await;
        waited += HOLD_POLL;
    }
}

/// An entry on its way.
struct FlyingEntry {
    id: u64,
    bytes: usize,
    last_seq: u64,
}

/// The committer: one per writer, ends when the writer is closed and nothing is on its way, or with
/// the first failure.
async fn commit(shared: Arc<SharedWal>) {
    let mut flying: VecDeque<(FlyingEntry, Receipt)> = VecDeque::new();
    loop {
        let bytes: usize = flying.iter().map(|(entry, _)| entry.bytes).sum();
        let has_room = flying.len() < FLYING_MAX && bytes < ENTRY_BYTES_TARGET;
        let due = shared.due().filter(|_| has_room);
        let is_due = due.is_some_and(|due| due <= Instant::now());
        if is_due && let Some((entry, rows)) = shared.take() {
            let payload = shared.wal.payload(entry.id, rows);
            match shared.wal.log.begin(&shared.wal.stream, entry.id, payload).await {
                Ok(receipt) => flying.push_back((entry, receipt)),
                Err(error) => return shared.fail(wal_error(error)),
            }
            continue;
        }
        let is_idle = flying.is_empty();
        if is_idle && shared.status().is_err() {
            return;
        }
        let oldest = async {
            match flying.front_mut() {
                Some((_, oldest)) => oldest.await,
                None => std::future::pending().await,
            }
        };
        let begin = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let durability = &shared.wal.durability;
        let result = tokio::select! {
            biased;
            result = oldest => result,
            () = shared.work.notified(), if has_room => continue,
            () = durability.wanted.notified(), if has_room => continue,
            () = begin => continue,
        };
        if let Err(error) = finish(&shared, &mut flying, result) {
            return shared.fail(wal_error(error));
        }
    }
}

/// The oldest entry has its result; entries flushed with it have theirs.
fn finish(
    shared: &SharedWal,
    flying: &mut VecDeque<(FlyingEntry, Receipt)>,
    mut result: Result<(), LogError>,
) -> Result<(), LogError> {
    let mut durable = Vec::new();
    while result.is_ok() {
        durable.extend(flying.pop_front().map(|(entry, _)| entry));
        let Some(next) = flying.front_mut().and_then(|(_, receipt)| receipt.now_or_never()) else { break };
        result = next;
    }
    shared.committed(&durable);
    result
}

struct Writer {
    shared: Arc<SharedWal>,
}

#[async_trait]
impl WalWriter for Writer {
    async fn append(&mut self, write_batch: &[RowEntry]) -> Result<(), WalError> {
        let Some(last) = write_batch.last() else { return Ok(()) };
        let estimate: usize = write_batch.iter().map(|row| 32 + row.key.len() + row.value.len()).sum();
        if estimate > BATCH_BYTES_MAX {
            return Err(data_error("a batch is larger than a log entry"));
        }
        let mut rows = BytesMut::with_capacity(estimate);
        for row in write_batch {
            encode_row(row, &mut rows)?;
        }
        let mut state = self.shared.state.lock();
        if let Some(reason) = &state.status.closed_reason {
            return Err(reason.clone());
        }
        state.status.estimated_bytes += rows.len();
        if state.buffered.is_empty() {
            state.buffered_since = Instant::now();
        }
        state.buffered.push(Buffered { rows, last_seq: last.seq });
        state.status.buffered_wal_entries_count = state.buffered.len();
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    async fn flush(&mut self) -> Result<WalFlushResult, WalError> {
        let target_seq = {
            let mut state = self.shared.state.lock();
            if let Some(reason) = &state.status.closed_reason {
                return Err(reason.clone());
            }
            state.is_asked = !state.buffered.is_empty();
            state.buffered.last().map(|batch| batch.last_seq)
        };
        self.shared.work.notify_one();
        // The engine wants the number of the last file beforehand, but the entry of a batch is
        // decided only when the one before is durable. So wait for the buffered batches: the log is
        // quick, and flushes are rare.
        let shared = Arc::clone(&self.shared);
        let mut flushed = shared.flushed.subscribe();
        let done = |shared: &SharedWal| {
            let state = shared.state.lock();
            let reached = target_seq.is_none_or(|seq| state.status.last_flushed_seq.is_some_and(|s| s >= seq));
            match &state.status.closed_reason {
                Some(reason) if !reached => Some(Err(reason.clone())),
                _ if reached && !shared.in_flight(&state) => Some(Ok(state.status.last_flushed_wal_id)),
                _ => None,
            }
        };
        let wal_id = loop {
            if let Some(result) = done(&shared) {
                break result?;
            }
            if flushed.changed().await.is_err() {
                return Err(WalError::Closed);
            }
        };
        Ok(WalFlushResult { wal_id, completion: Box::pin(async { Ok(()) }) })
    }

    fn should_flush_memtable(&self, replay_after_wal_id: u64) -> bool {
        let (used, total) = self.shared.wal.log.usage();
        let own_bytes = self.shared.own_bytes(replay_after_wal_id);
        // A small memtable is moved only when the log as a whole fills up, and never a tiny one.
        own_bytes >= total / 100 * OWN_SHARE_USED
            || (own_bytes >= PRESSURE_BYTES_MIN && used >= total / 100 * PRESSURE_USED)
    }

    fn observer(&self) -> Box<dyn WalObserver> {
        Box::new(Observer { shared: Arc::clone(&self.shared) })
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.shared.status()
    }

    async fn close(&mut self) -> Result<(), WalError> {
        let flush = self.flush().await;
        let mut state = self.shared.state.lock();
        if state.status.closed_reason.is_none() {
            state.status.closed_reason = Some(WalError::Closed);
            let (status, listeners) = (state.status.clone(), state.listeners.clone());
            drop(state);
            self.shared.publish(WalEvent::WalClosed(status), listeners);
        }
        self.shared.work.notify_one();
        flush.map(|_| ())
    }
}

impl SharedWal {
    /// Bytes of entries after `id`, which the current memtable holds in the log.
    fn own_bytes(&self, id: u64) -> u64 {
        self.state.lock().sizes.after(id)
    }

    /// Bytes are taken from the buffer and not yet durable.
    fn in_flight(&self, state: &WalState) -> bool {
        state.status.estimated_bytes > 0
    }
}

struct Observer {
    shared: Arc<SharedWal>,
}

#[async_trait]
impl WalObserver for Observer {
    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.shared.status()
    }

    fn subscribe(&self, listener: WalStatusListener) -> Result<(), WalError> {
        self.shared.state.lock().listeners.push(listener);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_of_what_is_left() {
        let mut sizes = Sizes::default();
        (1..=4).for_each(|id| sizes.add(id, 10 * id));
        assert_eq!([0, 2, 1, 4, 9].map(|id| sizes.after(id)), [100, 70, 70, 0, 0]);
    }

    #[test]
    fn golden_entry() {
        let value = ValueDeletable::Value(Bytes::from_static(b"v"));
        let rows = [
            RowEntry { key: Bytes::from_static(b"k"), value, seq: 5, create_ts: Some(7), expire_ts: None },
            RowEntry {
                key: Bytes::from_static(b"d"),
                value: ValueDeletable::Tombstone,
                seq: 6,
                create_ts: None,
                expire_ts: None,
            },
        ];
        let payload = payload_of("volume-x", 9, &encode_rows(&rows).unwrap());
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = concat!(
            "01",
            "bbe1ecebdadfef56",
            "05",
            "0000000000000005",
            "0001",
            "00000001",
            "0000000000000007",
            "6b",
            "76",
            "00",
            "0000000000000006",
            "0001",
            "00000000",
            "64"
        );
        assert_eq!(hex, golden);
        assert_eq!(rows_of("volume-x", &LogEntry { id: 9, payload: payload.clone() }).unwrap(), rows);
        for (stream, id) in [("volume-y", 9), ("volume-x", 8)] {
            assert!(rows_of(stream, &LogEntry { id, payload: payload.clone() }).is_err(), "another log's entry");
        }
    }
}
