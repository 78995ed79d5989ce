//! The journal of an open pool as a record log: the [`LogStore`] face.
//!
//! Appends go to the queue; reading back, trimming and usage are answered from the state of the
//! streams. The writer has a thread of its own, or takes turns in a simulator.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use larder_base::checksum::checksum;
use larder_base::log::{LogEntry, LogError, LogStore, MAX_PAYLOAD_BYTES, Receipt};
use larder_base::task;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::format::{Kind, STREAM_NAME_BYTES_MAX, segment_seed};
use super::open::open_writer;
use super::queue::{JournalCounts, Pending, Shared, State};
use super::replay;
use super::segments;
use super::stored::Stored;
use super::writer::run_in_turns;
use crate::disk::activity::Activity;
use crate::disk::work::{Started, Work};
use crate::error::PoolError;
use crate::member::members::Members;

/// The journal of an open pool.
pub struct Journal {
    members: Arc<Members>,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
    thread: Mutex<Option<Started>>,
}

impl Journal {
    /// Creates the directories on a fresh disk.
    pub fn prepare(disk: &dyn crate::disk::DiskIo) -> std::io::Result<()> {
        disk.make_directory(segments::DIRECTORY)
    }

    /// Reads the journal, heals the copies, and starts writing. Blocks.
    pub fn open(members: Arc<Members>, activity: Arc<Activity>, stored: Stored) -> Result<Self, PoolError> {
        let is_lossy = stored.loss.is_some();
        let (mut writer, streams, segments) = open_writer(members.clone(), stored)?;
        let shared = Arc::new(Shared::new(streams, segments));
        writer.begin_first(&shared, is_lossy)?;
        let of_thread = shared.clone();
        let thread = match members.work.clone() {
            Work::Threads => {
                let thread = members.work.start("larder-journal", move || writer.run(&of_thread));
                let failed = |source| PoolError::Io { what: "start a thread for", path: "the journal".into(), source };
                Some(thread.map_err(failed)?)
            }
            Work::InTurns(turns) => {
                *shared.in_turns.lock() = Some(Box::new(writer));
                drop(task::spawn(run_in_turns(Arc::downgrade(&of_thread), turns)));
                None
            }
        };
        Ok(Self { members, activity, shared, thread: Mutex::new(thread) })
    }

    /// The way to tell the journal of changed disks, for as long as it is open.
    pub fn handle(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// Why it takes nothing more, and since when (milliseconds of Unix time).
    pub fn fault(&self) -> Option<(String, u64)> {
        let state = self.shared.state.lock();
        state.dead.clone().map(|why| (why, state.dead_ms))
    }

    /// Waits until a segment is begun. One task may wait.
    pub async fn begun(&self) {
        self.shared.begun.notified().await;
    }

    pub fn counts(&self) -> &JournalCounts {
        &self.shared.counts
    }

    /// As `stop`, and trimmed room is free when the pool is next opened. Blocks.
    pub fn close(&self) {
        self.shared.state.lock().tidy = true;
        self.stop();
    }

    /// Writes the queue and stops. Blocks.
    pub fn stop(&self) {
        self.shared.state.lock().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A writer that panicked has said so already, and its batch stays unacknowledged.
            let _ = thread.finish();
        }
        self.shared.write_in_place();
    }

    /// The default size of a journal in bytes, so that a disk's worth can be told in advance.
    pub fn size_default(smallest_disk_bytes: u64) -> u64 {
        segments::size_default(smallest_disk_bytes)
    }

    /// Bytes that a journal of `size_bytes` takes on each of its disks while nothing delays
    /// trimming.
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

fn check_request(stream: &str, payload_bytes: u64) -> Result<(), LogError> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let named = (1..=STREAM_NAME_BYTES_MAX).contains(&stream.len()) && stream.bytes().all(valid);
    if !named || payload_bytes > MAX_PAYLOAD_BYTES as u64 {
        let why = format!("stream '{stream}', {payload_bytes} bytes: beyond what a log entry may be");
        return Err(LogError::Io(Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))));
    }
    Ok(())
}

#[async_trait]
impl LogStore for Journal {
    fn is_proven(&self) -> bool {
        !self.members.label().unproven
    }

    fn last(&self, stream: &str) -> Option<u64> {
        Some(self.shared.state.lock().streams.get(stream).map_or(0, |stream| stream.state.last))
    }

    fn streams(&self) -> Vec<String> {
        self.shared.state.lock().streams.keys().cloned().collect()
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
            // After a failure nothing of the stream is on its way: a caller that reads back the
            // durable entries goes on behind them. Otherwise entries on their way keep their place.
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
            // Trimming ahead of the durable entries would hide a loss.
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

/// Reads one entry from the first copy that has it intact.
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
