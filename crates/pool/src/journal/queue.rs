//! The queue between appenders and the writer, and the state of the streams that both know.
//!
//! ```text
//! append -> enqueue -> queue -> take_batch -> (writer) -> settle -> receipts resolve
//!                        |                        |
//!                        full: wait for room      failed: poison the streams, fail their queue
//! ```
//!
//! An entry has its place in its stream once it is queued, and exists once its batch is durable.
//! The queue is bounded in bytes and records; a full queue slows its source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_base::log::{LogError, MAX_PAYLOAD_BYTES};
use larder_base::metrics::{Counter, Latency};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::format::{
    BATCH_HEADER_BYTES, Kind, RECORD_HEADER_BYTES, RecordHeader, STREAM_NAME_BYTES_MAX, StreamMark, encode_checkpoint,
};
use super::replay::{Location, StreamState};
use super::segments::{CHECKPOINT_ROOM_BYTES, Segments};
use crate::history::now_ms;

/// Streams at once: a checkpoint of all of them must fit the room kept for it in a segment.
const STREAMS_MAX: usize = 256;
/// Bytes and records waiting to be written; beyond either, `append` waits its turn.
const QUEUE_BYTES_MAX: u64 = 64 << 20;
const QUEUE_RECORDS_MAX: usize = 16 << 10;
/// A journal is copied to another disk within seconds unless a disk hangs.
const COPIES_WAIT_MAX: Duration = Duration::from_secs(60);
/// A batch takes no more records once it has this many bytes.
const BATCH_BYTES: u64 = 4 << 20;

const _: () = assert!(BATCH_BYTES <= QUEUE_BYTES_MAX);
/// A checkpoint of all streams fits the room kept for it (`journal.checkpoint_before_reuse`).
const CHECKPOINT_BYTES_MAX: usize =
    BATCH_HEADER_BYTES + RECORD_HEADER_BYTES + 8 + 4 + STREAMS_MAX * (STREAM_NAME_BYTES_MAX + 20);
const _: () = assert!(CHECKPOINT_BYTES_MAX as u64 <= CHECKPOINT_ROOM_BYTES);

/// The writer, where it has no thread of its own.
pub trait WriteInTurns: Send {
    /// Does one piece of work; `false` when it was the last.
    fn step(&mut self, shared: &Arc<Shared>) -> bool;
    /// Time until another disk is tried as a copy; `None` while there are enough copies.
    fn retry_in(&mut self) -> Option<Duration>;
}

/// The state shared by appenders and the writer.
pub struct Shared {
    pub(super) state: Mutex<State>,
    /// Signalled when the writer has work.
    pub(super) wanted: Condvar,
    pub(super) wanted_in_turn: tokio::sync::Notify,
    pub(super) in_turns: Mutex<Option<Box<dyn WriteInTurns>>>,
    pub(super) counts: JournalCounts,
    /// Signalled when the queue has room.
    pub(super) room: tokio::sync::Notify,
    /// Signalled when a segment is begun: the journal is fuller than before.
    pub(super) begun: tokio::sync::Notify,
}

/// Counted since the pool was opened.
#[derive(Debug, Default)]
pub struct JournalCounts {
    pub batches: Counter,
    pub records: Counter,
    pub bytes: Counter,
    /// Time to write a batch and flush it on all copies.
    pub commit: Latency,
}

pub struct State {
    pub(super) streams: BTreeMap<String, Stream>,
    pub(super) segments: Segments,
    pub(super) queue: Vec<Pending>,
    queued_bytes: u64,
    pub(super) stop: bool,
    /// The writer makes trims durable before it stops.
    pub(super) tidy: bool,
    /// There are too few copies, and the wait for the next attempt is over.
    pub(super) looks_for_copies: bool,
    /// The disks have changed. The sender resolves once the copies are where they should be.
    pub(super) returned: Option<std::sync::mpsc::SyncSender<()>>,
    /// The reason, once no copy can be written any more, and when that was.
    pub(super) dead: Option<String>,
    pub(super) dead_ms: u64,
}

impl State {
    /// No copy can be written any more: from now on nothing is taken.
    pub(super) fn die(&mut self, why: &str) {
        if self.dead.is_none() {
            (self.dead, self.dead_ms) = (Some(why.to_owned()), now_ms());
        }
    }
}

#[derive(Default)]
pub struct Stream {
    /// The durable entries.
    pub(super) state: StreamState,
    /// The last id accepted, durable or not.
    pub(super) accepted: u64,
    pub(super) poisoned: Option<String>,
}

/// A record that waits to be written.
pub struct Pending {
    pub(super) kind: Kind,
    pub(super) stream: String,
    pub(super) id: u64,
    pub(super) payload: Vec<Bytes>,
    pub(super) payload_bytes: u64,
    pub(super) done: oneshot::Sender<Result<(), LogError>>,
}

impl Shared {
    pub fn new(streams: BTreeMap<String, StreamState>, segments: Segments) -> Self {
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
            dead_ms: 0,
        };
        Self {
            state: Mutex::new(state),
            wanted: Condvar::new(),
            wanted_in_turn: tokio::sync::Notify::new(),
            in_turns: Mutex::new(None),
            counts: JournalCounts::default(),
            room: tokio::sync::Notify::new(),
            begun: tokio::sync::Notify::new(),
        }
    }

    /// Wakes the writer.
    pub fn wake(&self) {
        self.wanted.notify_one();
        self.wanted_in_turn.notify_one();
    }

    /// One step of a writer without a thread; whether it goes on.
    pub fn write_once(self: &Arc<Self>) -> bool {
        let mut writer = self.in_turns.lock();
        let goes_on = writer.as_mut().is_some_and(|writer| self.state.lock().is_idle() || writer.step(self));
        if !goes_on {
            *writer = None;
        }
        goes_on
    }

    /// Does the work of a writer without a thread here and now, for a caller that waits for it.
    pub fn write_in_place(self: &Arc<Self>) {
        while !self.state.lock().is_idle() && self.write_once() {}
    }

    /// The disks have changed: makes copies where there are too few, and gives up those on disks
    /// that leave. Blocks until that is done, for [`COPIES_WAIT_MAX`] at most.
    pub fn refresh_copies(self: &Arc<Self>) {
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        {
            let mut state = self.state.lock();
            if state.stop || state.dead.is_some() {
                return;
            }
            // An earlier caller is released: one search serves both.
            state.returned = Some(done);
        }
        self.wake();
        self.write_in_place();
        // An error means that the journal stopped.
        let _ = wait.recv_timeout(COPIES_WAIT_MAX);
    }

    /// The size of a further copy, in bytes.
    pub fn copied_bytes(&self) -> u64 {
        self.state.lock().segments.copied_bytes()
    }

    /// Takes `pending` into the queue; `false` when the queue is full.
    pub fn enqueue(&self, pending: &mut Option<Pending>) -> Result<bool, LogError> {
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
            // Entries queued for the stream before this are removed with it.
            _ => *stream = Stream { state: std::mem::take(&mut stream.state), ..Stream::default() },
        }
        state.queued_bytes += bytes;
        state.queue.extend(pending.take());
        assert!(state.queue.len() <= QUEUE_RECORDS_MAX, "the queue is bounded in records");
        assert!(state.queued_bytes < QUEUE_BYTES_MAX + MAX_PAYLOAD_BYTES as u64, "the queue is bounded in bytes");
        Ok(true)
    }

    /// The record headers of a batch, each naming the stream's entry before it
    /// (`journal.entries_chained`).
    pub fn headers(&self, batch: &[Pending]) -> Vec<RecordHeader> {
        let state = self.state.lock();
        let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        batch
            .iter()
            .map(|pending| {
                let known = state.streams.get(&pending.stream).map(|stream| &stream.state);
                let known = || known.map_or((0, 0), |state| (state.last, state.trimmed));
                let (before, trimmed) = last.entry(&pending.stream).or_insert_with(known);
                let previous = std::mem::replace(before, pending.id);
                let is_chained = pending.kind != Kind::Entry || previous < pending.id;
                assert!(is_chained, "`journal.entries_chained`: an entry comes after the one that it names");
                if pending.kind != Kind::Entry {
                    // A later record belongs to another stream of the same name.
                    *trimmed = 0;
                }
                let trimmed = if previous > 0 { *trimmed } else { 0 };
                RecordHeader {
                    kind: pending.kind,
                    stream: pending.stream.clone(),
                    id: pending.id,
                    previous,
                    trimmed,
                    payload_bytes: pending.payload_bytes as u32,
                    payload_checksum: 0,
                    binding: 0,
                }
            })
            .collect()
    }

    /// The batch is durable: its entries exist from now on.
    pub fn settle(&self, batch: &[Pending], locations: &[Location]) {
        assert_eq!(batch.len(), locations.len(), "each record of a durable batch has its place");
        let mut state = self.state.lock();
        let State { streams, segments, .. } = &mut *state;
        for (pending, location) in batch.iter().zip(locations) {
            let Some(stream) = streams.get_mut(&pending.stream) else { continue };
            match pending.kind {
                Kind::Entry => {
                    assert!(pending.id > stream.state.last, "`journal.entries_chained`: ids of a stream only increase");
                    stream.state.last = pending.id;
                    stream.state.entries.insert(pending.id, *location);
                    segments.remember(location.segment);
                }
                _ => {
                    stream.state.entries.values().for_each(|location| segments.forget(location.segment));
                    stream.state = StreamState::default();
                    if stream.accepted == 0 {
                        streams.remove(&pending.stream);
                    }
                }
            }
        }
    }

    /// The batch failed: its streams are poisoned. Records queued behind it for the same streams
    /// fail with it, because the log promises entries without gaps.
    pub fn fail(&self, batch: Vec<Pending>, error: &LogError) {
        let mut state = self.state.lock();
        for pending in &batch {
            if let Some(stream) = state.streams.get_mut(&pending.stream) {
                stream.poisoned = Some(error.to_string());
            }
        }
        let (fail, keep): (Vec<_>, Vec<_>) = std::mem::take(&mut state.queue)
            .into_iter()
            .partition(|queued| batch.iter().any(|pending| pending.stream == queued.stream));
        state.queue = keep;
        state.queued_bytes = state.queue.iter().map(|pending| pending.payload_bytes).sum();
        drop(state);
        self.room.notify_waiters();
        batch.into_iter().chain(fail).for_each(|pending| drop(pending.done.send(Err(error.clone()))));
    }

    pub fn checkpoint_bytes(&self) -> u64 {
        encode_checkpoint(&self.state.lock().marks()).len() as u64
    }
}

impl State {
    /// Nothing is left for the writer to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.stop && self.returned.is_none() && !self.looks_for_copies
    }

    /// Moves the head of the queue into a batch.
    pub fn take_batch(&mut self) -> Vec<Pending> {
        let mut bytes = 0;
        let count = self
            .queue
            .iter()
            .take_while(|pending| {
                let fits = bytes == 0 || bytes + pending.payload_bytes <= BATCH_BYTES;
                bytes += pending.payload_bytes.max(1);
                fits
            })
            .count();
        let rest = self.queue.split_off(count);
        let batch = std::mem::replace(&mut self.queue, rest);
        let taken: u64 = batch.iter().map(|pending| pending.payload_bytes).sum();
        self.queued_bytes = self.queued_bytes.saturating_sub(taken);
        assert!(!batch.is_empty(), "a batch has a record, or its receipt would never resolve");
        let queued: u64 = self.queue.iter().map(|pending| pending.payload_bytes).sum();
        debug_assert_eq!(self.queued_bytes, queued, "the bound of the queue counts its bytes");
        batch
    }

    /// Whether some stream has an entry at this place.
    pub fn needs(&self, segment: u64, offset: u64) -> bool {
        let mut entries = self.streams.values().flat_map(|stream| stream.state.entries.values());
        entries.any(|location| location.segment == segment && location.offset == offset)
    }

    pub fn marks(&self) -> Vec<StreamMark> {
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
