//! The journal: small synchronous records, durable on m+1 disks with one write and one sync.
//!
//! One thread writes. What arrives while it waits for the disks goes together in the next batch
//! (group commit over all streams). A batch is written and synced on all copies side by side; copies on one filesystem
//! are flushed once.
//!
//! J1. A sector that holds an acknowledged record is never written again, until its whole segment
//!     is free: batches start on 4 KiB boundaries.
//! J2. A batch is written only when the one before it is durable on every current copy. So only
//!     the last batch can be torn.
//! J3. Every entry names the one before it in its stream: a lost entry is noticed.
//! J4. A segment is written over only after a durable checkpoint says that all in it is trimmed.
//! J5. The label names the disks whose copies are current. It is written before an append is
//!     acknowledged that a former copy missed, and before a copy is made anew. Without copies nothing is taken.
//! J6. A copy counts for as long as its disk is in use. Where there are too few, it is tried again and again to make more.
//! J7. A journal whose copies do not reach what the labels prove (B5), or of which nothing is left, is damaged: the pool is not
//!     opened and nothing is written, unless a person accepts the loss.
//!
//! The files of all segments in use are held open: when somebody removes them by name from all disks, that is noticed before more
//! is acknowledged, and they are written anew out of what is open.
//!
//! A segment file is filled with zeros when it is made, so that a sync has no metadata to write. One is made ready
//! beforehand, on a thread of its own.

pub mod check;
pub mod format;
pub mod replay;
pub mod salvage;
mod segments;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::checksum::checksum;
use larder_base::log::{LogEntry, LogError, LogStore, MAX_PAYLOAD_BYTES, Receipt};
use larder_base::metrics::{Counter, Latency};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::disk::activity::Activity;
use crate::disk::work::{Started, Turns, Work};
use crate::error::PoolError;
use crate::member::members::Members;
use format::{Kind, STREAM_NAME_BYTES_MAX, StreamMark, segment_seed};
use replay::StreamState;
use segments::Segments;
use writer::Writer;
pub use writer::{Stored, help, read};

/// Streams at once: a checkpoint of all of them must fit the end of a segment.
const STREAMS_MAX: usize = 256;
/// Bytes and records waiting to be written; beyond that `append` waits its turn.
const QUEUE_BYTES_MAX: u64 = 64 << 20;
const QUEUE_RECORDS_MAX: usize = 16 << 10;
/// A journal is copied to another disk within seconds, unless a disk hangs.
const COPIES_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The journal of an open pool.
pub struct Journal {
    members: Arc<Members>,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
    thread: Mutex<Option<Started>>,
}

/// What appenders and the writer share.
pub struct Shared {
    state: Mutex<State>,
    /// There is work for the writer.
    wanted: Condvar,
    wanted_in_turn: tokio::sync::Notify,
    /// The writer, where it has no thread of its own.
    in_turns: Mutex<Option<Writer>>,
    counts: JournalCounts,
    /// There is room in the queue.
    room: tokio::sync::Notify,
    /// A segment was begun: the journal is fuller than before.
    begun: tokio::sync::Notify,
}

/// Since the pool was opened.
#[derive(Debug, Default)]
pub struct JournalCounts {
    pub batches: Counter,
    pub records: Counter,
    pub bytes: Counter,
    /// Writing a batch and flushing it on all copies.
    pub commit: Latency,
}

pub struct State {
    streams: BTreeMap<String, Stream>,
    segments: Segments,
    queue: Vec<Pending>,
    queued_bytes: u64,
    stop: bool,
    /// Before it stops the writer makes durable what is trimmed.
    tidy: bool,
    /// There are too few copies, and time has passed.
    looks_for_copies: bool,
    /// The disks have changed: whoever is told when the copies are where they should be.
    returned: Option<std::sync::mpsc::SyncSender<()>>,
    /// Set when no copy can be written any more.
    dead: Option<String>,
}

#[derive(Default)]
struct Stream {
    /// Durable entries.
    state: StreamState,
    /// The last id accepted, durable or not.
    accepted: u64,
    poisoned: Option<String>,
}

struct Pending {
    kind: Kind,
    stream: String,
    id: u64,
    payload: Vec<Bytes>,
    payload_bytes: u64,
    done: oneshot::Sender<Result<(), LogError>>,
}

impl Journal {
    /// Creates the directories on a fresh disk.
    pub fn prepare(disk: &dyn crate::disk::DiskIo) -> std::io::Result<()> {
        disk.make_directory(segments::DIRECTORY)
    }

    /// Reads the journal, heals the copies, and starts writing. Blocks.
    pub fn open(members: Arc<Members>, activity: Arc<Activity>, stored: Stored) -> Result<Self, PoolError> {
        let is_lossy = stored.loss.is_some();
        let (mut writer, streams, segments) = Writer::open(members.clone(), stored)?;
        let streams = streams
            .into_iter()
            .map(|(name, state)| (name, Stream { accepted: state.last, state, poisoned: None }))
            .collect();
        let state = State {
            streams,
            segments,
            queue: Vec::new(),
            queued_bytes: 0,
            stop: false,
            tidy: false,
            looks_for_copies: false,
            returned: None,
            dead: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wanted: Condvar::new(),
            wanted_in_turn: tokio::sync::Notify::new(),
            in_turns: Mutex::new(None),
            counts: JournalCounts::default(),
            room: tokio::sync::Notify::new(),
            begun: tokio::sync::Notify::new(),
        });
        writer.begin_first(&shared, is_lossy)?;
        let of_thread = shared.clone();
        let thread = match members.work.clone() {
            Work::Threads => {
                let thread = members.work.start("larder-journal", move || writer.run(&of_thread));
                let failed = |source| PoolError::Io { what: "start a thread for", path: "the journal".into(), source };
                Some(thread.map_err(failed)?)
            }
            Work::InTurns(turns) => {
                *shared.in_turns.lock() = Some(writer);
                drop(tokio::spawn(run_in_turns(Arc::downgrade(&of_thread), turns)));
                None
            }
        };
        Ok(Self { members, activity, shared, thread: Mutex::new(thread) })
    }

    /// What others tell of disks that have changed, as long as it is open.
    pub fn handle(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// Waits until a segment is begun. For one task.
    pub async fn begun(&self) {
        self.shared.begun.notified().await;
    }

    pub fn counts(&self) -> &JournalCounts {
        &self.shared.counts
    }

    /// As `stop`, and what is trimmed is free for whoever opens the pool next. Blocks.
    pub fn close(&self) {
        self.shared.state.lock().tidy = true;
        self.stop();
    }

    /// Writes what is queued and stops. Blocks.
    pub fn stop(&self) {
        self.shared.state.lock().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A writer that panicked has said so already; what it owed is not acknowledged.
            let _ = thread.finish();
        }
        self.shared.write_in_place();
    }

    /// Bytes that the journal of this size holds, so that a disk's worth can be told in advance.
    pub fn size_default(smallest_disk_bytes: u64) -> u64 {
        segments::size_default(smallest_disk_bytes)
    }

    /// What a journal of `size_bytes` takes of each of its disks while nothing holds it up.
    pub fn usual_bytes(size_bytes: u64) -> u64 {
        segments::usual_bytes(size_bytes)
    }

    async fn submit(&self, kind: Kind, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let payload_bytes: u64 = payload.iter().map(|part| part.len() as u64).sum();
        check_request(stream, payload_bytes)?;
        let _busy = self.activity.enter();
        let (done, wait) = oneshot::channel();
        let mut pending = Some(Pending { kind, stream: stream.to_owned(), id, payload, payload_bytes, done });
        loop {
            let room = self.shared.room.notified();
            if self.shared.enqueue(&mut pending)? {
                break;
            }
            room.await;
        }
        self.shared.wake();
        let activity = Arc::clone(&self.activity);
        Ok(Box::pin(async move {
            let _busy = activity.enter();
            wait.await.unwrap_or_else(|_| Err(LogError::Poisoned("the pool is closed".into())))
        }))
    }
}

/// Whether some segment on this disk says that it is this pool's.
pub fn belongs_to(disk: &dyn crate::disk::DiskIo, pool: uuid::Uuid) -> bool {
    let bytes_max = format::SegmentHeader::BYTES as u64;
    let is_ours = |name: &String| {
        let bytes = crate::disk::read_file(disk, &format!("{}/{name}", segments::DIRECTORY), bytes_max);
        bytes.is_ok_and(|bytes| format::SegmentHeader::decode(&bytes, pool).is_some())
    };
    disk.list(segments::DIRECTORY).unwrap_or_default().iter().any(is_ours)
}

/// Removes the journal of a disk that has left.
pub fn erase(disk: &dyn crate::disk::DiskIo) {
    for name in disk.list(segments::DIRECTORY).unwrap_or_default() {
        let _ = disk.remove(&format!("{}/{name}", segments::DIRECTORY));
    }
    let _ = disk.remove_directory(segments::DIRECTORY);
}

fn check_request(stream: &str, payload_bytes: u64) -> Result<(), LogError> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let named = (1..=STREAM_NAME_BYTES_MAX).contains(&stream.len()) && stream.bytes().all(valid);
    if !named || payload_bytes > MAX_PAYLOAD_BYTES as u64 {
        let why = format!("stream '{stream}', {payload_bytes} bytes: beyond what a log entry may be");
        return Err(LogError::Io(Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))));
    }
    Ok(())
}

/// The writer as a task: one batch, or one return of a disk, a turn.
async fn run_in_turns(shared: Weak<Shared>, turns: Arc<dyn Turns>) {
    while let Some(strong) = shared.upgrade() {
        if strong.state.lock().is_idle() {
            let retry_in = strong.in_turns.lock().as_mut().and_then(Writer::retry_in);
            let wanted = strong.wanted_in_turn.notified();
            match retry_in {
                None => wanted.await,
                Some(wait) => {
                    let has_passed = tokio::time::timeout(wait, wanted).await.is_err();
                    strong.state.lock().looks_for_copies = has_passed;
                }
            }
            continue;
        }
        drop(strong);
        turns.turn().await;
        if let Some(strong) = shared.upgrade()
            && !strong.write_once()
        {
            return;
        }
    }
}

impl Shared {
    fn wake(&self) {
        self.wanted.notify_one();
        self.wanted_in_turn.notify_one();
    }

    /// One step of a writer without a thread; whether it goes on.
    fn write_once(self: &Arc<Self>) -> bool {
        let mut writer = self.in_turns.lock();
        let goes_on = writer.as_mut().is_some_and(|writer| self.state.lock().is_idle() || writer.step(self));
        if !goes_on {
            *writer = None;
        }
        goes_on
    }

    /// What a writer without a thread has to do is done here and now, for whoever waits for it.
    fn write_in_place(self: &Arc<Self>) {
        while !self.state.lock().is_idle() && self.write_once() {}
    }

    /// The disks have changed: makes copies where there are too few, and gives up those on disks that leave. Blocks until
    /// that is done.
    pub fn refresh_copies(self: &Arc<Self>) {
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        {
            let mut state = self.state.lock();
            if state.stop || state.dead.is_some() {
                return;
            }
            // Whoever waited already is let go: one search serves both.
            state.returned = Some(done);
        }
        self.wake();
        self.write_in_place();
        // An error means that the journal stopped.
        let _ = wait.recv_timeout(COPIES_WAIT_MAX);
    }

    /// Bytes that a further copy would have.
    pub fn copied_bytes(&self) -> u64 {
        self.state.lock().segments.copied_bytes()
    }

    /// Takes `pending` into the queue; `false` when the queue is full.
    fn enqueue(&self, pending: &mut Option<Pending>) -> Result<bool, LogError> {
        let mut state = self.state.lock();
        if let Some(why) = &state.dead {
            return Err(LogError::Poisoned(why.clone()));
        }
        if state.stop {
            return Err(LogError::Poisoned("the pool is closed".into()));
        }
        let Some(new) = pending.as_ref() else { return Ok(true) };
        let crowded = state.queue.len() >= QUEUE_RECORDS_MAX || state.queued_bytes >= QUEUE_BYTES_MAX;
        if crowded {
            return Ok(false);
        }
        if !state.streams.contains_key(&new.stream) && state.streams.len() >= STREAMS_MAX {
            return Err(LogError::Full(format!("it has {STREAMS_MAX} streams already")));
        }
        let (kind, id, bytes) = (new.kind, new.id, new.payload_bytes);
        let stream = state.streams.entry(new.stream.clone()).or_default();
        match kind {
            Kind::Entry => {
                if let Some(why) = &stream.poisoned {
                    return Err(LogError::Poisoned(why.clone()));
                }
                if id <= stream.accepted {
                    return Err(LogError::OutOfOrder { stream: new.stream.clone(), id, last: stream.accepted });
                }
                stream.accepted = id;
            }
            // What is queued for the stream before this goes with it.
            _ => *stream = Stream { state: std::mem::take(&mut stream.state), ..Stream::default() },
        }
        state.queued_bytes += bytes;
        state.queue.extend(pending.take());
        Ok(true)
    }
}

#[async_trait]
impl LogStore for Journal {
    fn is_proven(&self) -> bool {
        !self.members.label().unproven
    }

    fn last(&self, stream: &str) -> Option<u64> {
        Some(self.shared.state.lock().streams.get(stream).map_or(0, |stream| stream.state.last))
    }

    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        self.submit(Kind::Entry, stream, id, payload).await
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        let locations: Vec<(u64, replay::Location)> = {
            let mut state = self.shared.state.lock();
            let Some(found) = state.streams.get_mut(stream) else { return Ok(Vec::new()) };
            if let Some(why) = &found.state.damage {
                return Err(LogError::Damaged { stream: stream.to_owned(), why: why.clone() });
            }
            // Who reads back what is durable may go on from there. After a failure nothing is on its way any more; otherwise
            // what is on its way keeps its place (L1).
            if found.poisoned.take().is_some() {
                found.accepted = found.state.last;
            }
            let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
            found.state.entries.range(first..).map(|(id, location)| (*id, *location)).collect()
        };
        let stream = stream.to_owned();
        let shared = self.shared.clone();
        self.members
            .blocking(move |members| {
                let slots = shared.state.lock().segments.copies().to_vec();
                let read = move |members: &Arc<Members>| {
                    let read = |(id, location): &(u64, _)| read_entry(members, &shared, &stream, *id, *location);
                    locations.iter().map(read).collect::<Result<Vec<_>, _>>()
                };
                members.without_hanging(&slots, read).unwrap_or_else(|error| Err(LogError::Poisoned(error.to_string())))
            })
            .await
            .map_err(|error| LogError::Poisoned(error.to_string()))?
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        let mut state = self.shared.state.lock();
        let State { streams, segments, .. } = &mut *state;
        if let Some(stream) = streams.get_mut(stream) {
            // Trimming ahead of what is durable would hide a loss.
            let through = through.min(stream.state.last);
            let kept = stream.state.entries.split_off(&through.saturating_add(1));
            for location in std::mem::replace(&mut stream.state.entries, kept).values() {
                segments.forget(location.segment);
            }
            stream.state.trimmed = stream.state.trimmed.max(through);
        }
        Ok(())
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        if !self.shared.state.lock().streams.contains_key(stream) {
            return Ok(());
        }
        self.submit(Kind::Remove, stream, 0, Vec::new()).await?.await
    }

    fn usage(&self) -> (u64, u64) {
        self.shared.state.lock().segments.usage()
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        let state = self.shared.state.lock();
        let oldest = state.streams.get(stream).and_then(|stream| stream.state.entries.values().next());
        oldest.map_or(0, |oldest| state.segments.used_from(oldest.segment))
    }
}

/// Reads one entry from whichever copy has it intact.
fn read_entry(
    members: &Members,
    shared: &Shared,
    stream: &str,
    id: u64,
    location: replay::Location,
) -> Result<LogEntry, LogError> {
    let place = {
        let state = shared.state.lock();
        state.segments.file_of(location.segment).map(|file| (file, state.segments.copies().to_vec()))
    };
    let damaged = |why: &str| LogError::Damaged { stream: stream.to_owned(), why: format!("entry {id}: {why}") };
    let (file, copies) = place.ok_or_else(|| damaged("it was trimmed"))?;
    let seed = segment_seed(members.id, location.segment) ^ location.offset;
    for slot in copies {
        let Some(io) = members.member(slot).and_then(|member| member.io().ok()) else { continue };
        let mut bytes = vec![0; location.bytes as usize];
        let read = io
            .open(&segments::file_name(file), false)
            .and_then(|file| file.read_at(&mut [std::io::IoSliceMut::new(&mut bytes)], location.offset));
        if read.is_ok_and(|read| read == bytes.len()) && checksum(seed, &bytes) == location.checksum {
            return Ok(LogEntry { id, payload: bytes.into() });
        }
    }
    Err(damaged("no copy of it is intact"))
}

impl State {
    /// There is nothing to do for the writer.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.stop && self.returned.is_none() && !self.looks_for_copies
    }

    /// Whether some stream has an entry at this place.
    fn needs(&self, segment: u64, offset: u64) -> bool {
        let mut entries = self.streams.values().flat_map(|stream| stream.state.entries.values());
        entries.any(|location| location.segment == segment && location.offset == offset)
    }

    fn marks(&self) -> Vec<StreamMark> {
        self.streams
            .iter()
            .filter(|(_, stream)| stream.state.last > 0)
            .map(|(name, stream)| StreamMark {
                stream: name.clone(),
                last: stream.state.last,
                trimmed: stream.state.trimmed,
            })
            .collect()
    }
}
