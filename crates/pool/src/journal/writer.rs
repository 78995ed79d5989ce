//! The writer: takes batches from the queue, and writes them to the current segment on all copies.
//!
//! ```text
//! try_write -- room in the segment ------------------------> append --> settle
//!     |                                                        ^
//!     no room --> begin_segment --> make_files --> checkpoint -+   prepare_next: the file after it
//! ```
//!
//! One batch at a time (`journal.one_torn_batch`), on a thread of the writer's own, or in turns.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::log::LogError;

use super::batch::{batch_bytes, build};
use super::copies::{Copies, Current};
use super::format::{ALIGN_BYTES, Kind, RecordHeader, SegmentHeader, encode_checkpoint};
use super::queue::{Pending, Shared, WriteInTurns};
use super::replay::Location;
use super::segment_file::make_file;
use super::segments::CHECKPOINT_ROOM_BYTES;
use crate::disk::watch::Watch;
use crate::disk::work::{Started, Turns};
use crate::error::PoolError;
use crate::member::members::Members;

/// Writes the batches of an open journal.
pub struct Writer {
    members: Arc<Members>,
    copies: Copies,
    /// The file of the segment after the current one, while it is being made ready.
    preparing: Option<Preparing>,
    sequence_next: u64,
    batch_next: u64,
}

/// A file that is being made ready.
struct Preparing {
    started: Started,
    /// The disks that it is made on.
    watches: Vec<Arc<Watch>>,
}

/// The writer as a task: each turn does one batch, or one return of a disk.
pub async fn run_in_turns(shared: Weak<Shared>, turns: Arc<dyn Turns>) {
    while let Some(strong) = shared.upgrade() {
        if strong.state.lock().is_idle() {
            let retry_in = strong.in_turns.lock().as_mut().and_then(|writer| writer.retry_in());
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

impl WriteInTurns for Writer {
    fn step(&mut self, shared: &Arc<Shared>) -> bool {
        Self::step(self, shared)
    }

    fn retry_in(&mut self) -> Option<Duration> {
        self.copies.retry_in()
    }
}

impl Writer {
    pub fn new(members: Arc<Members>, copies: Copies, sequence_next: u64, batch_next: u64) -> Self {
        Self { members, copies, preparing: None, sequence_next, batch_next }
    }

    /// A pool that was ever opened has a segment with a batch in it. A pool whose loss was accepted
    /// begins a new one behind the loss (`journal.loss_refused`). Where a new pool has no room for
    /// a segment now, the first append makes it.
    pub fn begin_first(&mut self, shared: &Arc<Shared>, is_lossy: bool) -> Result<(), PoolError> {
        let is_new = shared.state.lock().segments.files().next().is_none();
        if !is_lossy && !is_new || self.copies.is_empty() {
            return Ok(());
        }
        match self.begin_segment(shared, 0) {
            Err(error) if is_lossy => {
                let why = format!("it cannot be begun anew: {error}");
                Err(PoolError::Journal { pool: self.members.name.clone(), why })
            }
            Err(error) => {
                tracing::warn!(pool = %self.members.name, %error, "the journal's first segment cannot be made yet");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    pub fn run(mut self, shared: &Arc<Shared>) {
        loop {
            {
                let mut state = shared.state.lock();
                while state.is_idle() {
                    match self.copies.retry_in() {
                        None => shared.wanted.wait(&mut state),
                        Some(wait) => state.looks_for_copies = shared.wanted.wait_for(&mut state, wait).timed_out(),
                    }
                }
            }
            if !self.step(shared) {
                return;
            }
        }
    }

    /// Does one piece of work: a batch, or a search for copies. `false` when it was the last.
    fn step(&mut self, shared: &Arc<Shared>) -> bool {
        let batch = {
            let mut state = shared.state.lock();
            if let Some(done) = state.returned.take() {
                let is_dead = state.dead.is_some();
                drop(state);
                // Where no copy has a name and none could be given one, the journal is dead, and
                // says so.
                if !is_dead && self.copies.look_by_name(shared).is_ok() {
                    self.copies.refresh(shared);
                }
                // The caller may have stopped waiting.
                let _ = done.send(());
                return true;
            }
            if std::mem::take(&mut state.looks_for_copies) {
                drop(state);
                self.copies.make_more(shared);
                return true;
            }
            if state.queue.is_empty() {
                let current = self.copies.current.as_ref().map_or(0, |current| current.sequence);
                let (tidy, is_coverable) = (state.tidy, !state.segments.coverable(current).is_empty());
                drop(state);
                if tidy && self.copies.look_by_name(shared).is_ok() && is_coverable {
                    // A failure costs room until the next checkpoint, and nothing else.
                    let _ = self.write_checkpoint(shared, Vec::new());
                }
                self.finish_preparing(shared);
                return false;
            }
            state.take_batch()
        };
        shared.room.notify_waiters();
        self.write(shared, batch);
        true
    }

    fn write(&mut self, shared: &Arc<Shared>, batch: Vec<Pending>) {
        match self.try_write(shared, &batch) {
            Ok(locations) => {
                shared.settle(&batch, &locations);
                batch.into_iter().for_each(|pending| drop(pending.done.send(Ok(()))));
            }
            Err(error) => shared.fail(batch, &error),
        }
    }

    fn try_write(&mut self, shared: &Arc<Shared>, batch: &[Pending]) -> Result<Vec<Location>, LogError> {
        self.copies.keep(shared)?;
        let records = shared.headers(batch);
        let need = batch_bytes(&records);
        let room = self.copies.current.as_ref().map_or(0, |at| at.bytes_left().saturating_sub(CHECKPOINT_ROOM_BYTES));
        if need > room {
            self.begin_segment(shared, need)?;
        }
        self.copies.look_if_due(shared)?;
        let payloads: Vec<&[Bytes]> = batch.iter().map(|pending| pending.payload.as_slice()).collect();
        self.append(shared, records, &payloads, Vec::new())
    }

    /// Writes one batch to the current segment, behind `before` if it is the segment's first.
    fn append(
        &mut self,
        shared: &Shared,
        records: Vec<RecordHeader>,
        payloads: &[&[Bytes]],
        before: Vec<u8>,
    ) -> Result<Vec<Location>, LogError> {
        let Some(current) = &self.copies.current else { return Err(LogError::Poisoned("no segment".into())) };
        let start = current.offset - before.len() as u64;
        let count = records.len() as u64;
        let built = build(&self.members, current.place(), self.batch_next, records, payloads, &before);
        // The room was reckoned before; beyond the file's end a sync would have metadata to write.
        assert!(built.end <= current.bytes, "a batch stays within its segment");
        assert!(built.end > current.offset, "`journal.sectors_written_once`: the place of the next batch moves on");
        let began = Instant::now();
        self.copies.write(shared, &built.bytes, start)?;
        shared.counts.commit.add(began.elapsed());
        shared.counts.batches.add(1);
        shared.counts.records.add(count);
        shared.counts.bytes.add(built.bytes.len() as u64);
        assert!(!self.copies.is_empty(), "`journal.label_names_copies`: without copies nothing is durable");
        self.members.note_journal_batch(self.batch_next);
        self.batch_next += 1;
        if let Some(current) = &mut self.copies.current {
            assert_eq!(current.offset, start + before.len() as u64, "`journal.one_torn_batch`: one batch at a time");
            current.offset = built.end;
        }
        Ok(built.locations)
    }

    /// Moves on to a segment with room for a batch of `need` bytes.
    fn begin_segment(&mut self, shared: &Arc<Shared>, need: u64) -> Result<(), LogError> {
        let marks = shared.checkpoint_bytes();
        let need = ALIGN_BYTES + marks + need + 2 * ALIGN_BYTES + CHECKPOINT_ROOM_BYTES;
        self.finish_preparing(shared);
        let mut next = shared.state.lock().segments.next(need);
        if let Some(current) = &self.copies.current
            && next.is_none_or(|next| !next.ready)
            && !shared.state.lock().segments.coverable(current.sequence).is_empty()
        {
            // Trimmed segments become free by a checkpoint in the room kept for it
            // (`journal.checkpoint_before_reuse`). The disks may have no room for a further
            // segment.
            self.write_checkpoint(shared, Vec::new())?;
            next = shared.state.lock().segments.next(need);
        }
        let Some(next) = next else {
            let (used, total) = shared.state.lock().segments.usage();
            return Err(LogError::Full(format!("{used} of {total} bytes are in use and nothing can be trimmed")));
        };
        self.copies.make_files(shared, next)?;
        let sequence = self.sequence_next;
        let is_later = self.copies.current.as_ref().is_none_or(|current| current.sequence < sequence);
        assert!(is_later, "a segment comes after the one before it");
        self.sequence_next += 1;
        self.copies.current = Some(Current { sequence, file: next.file, bytes: next.bytes, offset: ALIGN_BYTES });
        shared.state.lock().segments.add(sequence, next.file, next.bytes);
        self.copies.hold_current(next.file);
        shared.begun.notify_one();
        let mut head = SegmentHeader { sequence, bytes: next.bytes, file: Some(next.file) }.encode(self.members.id);
        head.resize(ALIGN_BYTES as usize, 0);
        self.write_checkpoint(shared, head)?;
        self.prepare_next(shared);
        Ok(())
    }

    /// Another thread makes the next file before it is needed: writing its zeros takes longer than
    /// a hundred batches.
    fn prepare_next(&mut self, shared: &Arc<Shared>) {
        let Some(disks) = self.copies.disks() else { return };
        let Some(next) = shared.state.lock().segments.prepare() else { return };
        let watches = disks.iter().filter_map(|disk| disk.watch()).collect();
        let (of_thread, members) = (shared.clone(), self.members.clone());
        let prepare = move || {
            // A failure is repeated when the file is needed, and then the disk is held to account.
            let is_made = disks.iter().all(|disk| make_file(&members, &**disk, next).is_ok());
            of_thread.state.lock().segments.prepared(is_made);
        };
        match self.members.work.start("larder-journal-next", prepare) {
            Ok(started) => self.preparing = Some(Preparing { started, watches }),
            Err(_) => shared.state.lock().segments.prepared(false),
        }
    }

    fn finish_preparing(&mut self, shared: &Shared) {
        let Some(Preparing { started, watches }) = self.preparing.take() else { return };
        // Where a disk hangs, the file stays in preparation: nothing else touches it until the
        // thread is done.
        if started.finish_watched(&watches) == Some(false) {
            shared.state.lock().segments.prepared(false);
        }
    }

    /// Writes a checkpoint if the current segment has room for it: segments trimmed before it may
    /// be written over once it is durable (`journal.checkpoint_before_reuse`).
    fn write_checkpoint(&mut self, shared: &Shared, head: Vec<u8>) -> Result<(), LogError> {
        let Some(sequence) = self.copies.current.as_ref().map(|current| current.sequence) else { return Ok(()) };
        let (payload, covered) = {
            let state = shared.state.lock();
            (encode_checkpoint(&state.marks()), state.segments.coverable(sequence))
        };
        let record = RecordHeader {
            kind: Kind::Checkpoint,
            stream: String::new(),
            id: 0,
            previous: 0,
            trimmed: 0,
            payload_bytes: payload.len() as u32,
            payload_checksum: 0,
            binding: 0,
        };
        let room = self.copies.current.as_ref().map_or(0, Current::bytes_left);
        if batch_bytes(std::slice::from_ref(&record)) > room {
            return Ok(());
        }
        self.append(shared, vec![record], &[&[Bytes::from(payload)]], head)?;
        shared.state.lock().segments.cover(&covered);
        Ok(())
    }
}
