//! The thread that writes the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::checksum::checksum_slices;
use larder_base::log::LogError;
use uuid::Uuid;

use super::format::{
    ALIGN_BYTES, BATCH_HEADER_BYTES, BatchHeader, Kind, RecordHeader, SegmentHeader, encode_checkpoint, segment_seed,
};
use super::replay::{self, Location, Rebuild, SegmentImage, StreamState};
use super::segments::{CHECKPOINT_ROOM_BYTES, DIRECTORY, Next, Segments, file_name, parse_file_name};
use super::{Pending, QUEUE_BYTES_MAX, Shared, State};
use crate::disk::watch::{Watch, hangs};
use crate::disk::work::{Started, Work, wait_watched};
use crate::disk::{DiskFile, DiskIo, read_file};
use crate::error::PoolError;
use crate::history::EventKind;
use crate::member::label::Label;
use crate::member::member_disk::MemberDisk;
use crate::member::members::Members;

/// Longest segment file read: bounds memory on the word of a directory.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Zeros written at a time.
const ZEROS_BYTES: usize = 1 << 20;
/// How often it is looked whether the copies still have names: a file that is open outlives its folder.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Until it is tried again to make more copies where there are too few; each time twice as long.
const RETRY_MIN: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
const RETRY_MAX: Duration = Duration::from_secs(60);
/// A batch takes no more records once it has this many bytes.
const BATCH_BYTES: u64 = 4 << 20;

pub struct Writer {
    members: Arc<Members>,
    copies: Vec<Copy>,
    /// Disks with copies that could not be made equal to the others.
    behind: Vec<u8>,
    /// The current segment; nothing can be written before the first is begun.
    current: Option<Current>,
    /// Makes the file of the segment after the current one ready.
    preparing: Option<Preparing>,
    sequence_next: u64,
    batch_next: u64,
    /// When the copies were looked for by name.
    looked: Instant,
    /// There are too few copies: how long to wait before more are made, and since when.
    retry: Option<(Duration, Instant)>,
}

/// A file that is being made ready.
struct Preparing {
    started: Started,
    /// The disks that it is made on.
    watches: Vec<Arc<Watch>>,
}

struct Current {
    sequence: u64,
    file: u32,
    bytes: u64,
    offset: u64,
}

/// One disk with a copy, and a thread that writes and syncs beside the others: a disk that hangs holds up its own thread, and
/// no other copy. Where there is but one copy, or in a simulator, the journal's own thread does it.
struct Copy {
    slot: u8,
    file: Option<Arc<dyn DiskFile>>,
    /// All segments in use: what is open can be read when its name has been removed.
    held: Held,
    helper: Option<Helper>,
    watch: Arc<Watch>,
}

/// Open segments by the number of their file.
type Held = BTreeMap<u32, Arc<dyn DiskFile>>;

struct Helper {
    jobs: mpsc::SyncSender<Job>,
    results: mpsc::Receiver<io::Result<bool>>,
}

enum Job {
    Write { file: Arc<dyn DiskFile>, bytes: Bytes, offset: u64, sync: Sync },
    Flush(Arc<dyn DiskFile>),
}

/// What makes a written copy durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Own,
    /// The sync of another copy on the same device, if it was written past the cache.
    Shared,
    /// Its own, once all copies are written: where one thread writes all of them, they are still under way side by side.
    Later,
}

impl Helper {
    fn start() -> io::Result<Self> {
        let (jobs, work) = mpsc::sync_channel::<Job>(1);
        let (done, results) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("larder-journal-copy".into()).spawn(move || {
            while let Ok(job) = work.recv() {
                if done.send(job.run()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, results })
    }
}

impl Job {
    /// Whether it is durable already.
    fn run(&self) -> io::Result<bool> {
        match self {
            Self::Write { file, bytes, offset, sync } => {
                let went_past_the_cache = file.write_direct_at(bytes, *offset)?;
                if *sync == Sync::Later || *sync == Sync::Shared && went_past_the_cache {
                    return Ok(false);
                }
                file.sync().map(|()| true)
            }
            Self::Flush(file) => file.sync().map(|()| true),
        }
    }
}

impl Copy {
    fn new(members: &Members, slot: u8) -> Self {
        let watch = members.member(slot).map(MemberDisk::watch).unwrap_or_default();
        Self { slot, file: None, held: Held::new(), helper: None, watch }
    }

    /// Its disk takes writes, and has done so since the copy was opened.
    fn is_in_use(&self, members: &Members) -> bool {
        let member = members.member(self.slot);
        member.is_some_and(|member| member.is_writable() && Arc::ptr_eq(&member.watch(), &self.watch))
    }

    /// Hands it to the copy's thread; gives it back where there is none.
    fn begin(&self, job: Job) -> Result<(), Job> {
        match &self.helper {
            Some(helper) => helper.jobs.send(job).map_err(|mpsc::SendError(job)| job),
            None => Err(job),
        }
    }

    /// What came of the job that was begun, or that the disk hangs (H1).
    fn finish(&self) -> io::Result<bool> {
        let results = self.helper.as_ref().map(|helper| &helper.results);
        let done = results.and_then(|results| wait_watched(results, std::slice::from_ref(&self.watch)));
        done.unwrap_or_else(|| Err(if self.watch.is_closed() { hangs() } else { io::Error::other("a thread died") }))
    }

    fn run(&self, job: Job) -> io::Result<bool> {
        match self.begin(job) {
            Ok(()) => self.finish(),
            Err(job) => job.run(),
        }
    }
}

/// A batch ready to be written, and what follows when it is durable.
struct Built {
    bytes: Bytes,
    locations: Vec<Location>,
    end: u64,
}

impl Writer {
    // ---- opening ----------------------------------------------------------------------------

    pub fn open(
        members: Arc<Members>,
        stored: Stored,
    ) -> Result<(Self, BTreeMap<String, StreamState>, Segments), PoolError> {
        let Stored { sources, images, spare, .. } = stored;
        let failed = |why: String| PoolError::Journal { pool: members.name.clone(), why };
        let mut segments = Segments::new(members.label().journal_bytes, sources.clone());
        let mut rebuild = Rebuild::default();
        let (mut sequence_last, mut batch_last, mut checkpoint_last) = (0, 0, 0);
        let mut behind = Vec::new();
        let (proven, mut lacking) = (members.label().journal_batch, BTreeSet::new());
        let last = images.keys().next_back().copied();
        let mut current = None;
        for (sequence, (file, image, bad)) in &images {
            let found = replay::scan(members.id, image);
            // In those before it the records after a hole tell what is missing.
            if last == Some(*sequence) && may_hide_a_batch(members.id, image, found.end, bad) {
                return Err(failed(format!("the end of {} cannot be read on any disk", file_name(*file))));
            }
            if last != Some(*sequence) || first_batch(members.id, image, &found) <= proven {
                lacking.extend(lacking_copies(&members, &sources, *file, image));
            }
            behind.extend(heal(&members, &sources, *file, &found));
            if last == Some(*sequence) {
                behind.extend(clear_end(&members, &sources, *file, found.end, bad));
                behind.extend(flush(&members, &sources, *file));
                current = go_on(members.id, image, found.end, *file);
            }
            sequence_last = sequence_last.max(*sequence);
            batch_last = batch_last.max(found.batch_last);
            segments.add(*sequence, *file, image.header.bytes);
            if found.records.iter().any(|(record, _)| record.kind == Kind::Checkpoint) {
                checkpoint_last = checkpoint_last.max(*sequence);
            }
            for (record, location) in &found.records {
                let from = location.offset as usize;
                let payload = found.merged.get(from..from + location.bytes as usize).unwrap_or_default();
                rebuild.apply(record, *location, payload);
            }
        }
        for slot in lacking {
            let text = format!(
                "{}: its copy of the journal was missing or damaged: made anew from the others",
                paths(&members, &[slot])
            );
            tracing::warn!(pool = %members.name, text);
            members.event(EventKind::Errors, text);
        }
        spare.into_iter().for_each(|(file, bytes)| segments.add_spare(file, bytes));
        let streams = rebuild.finish();
        for state in streams.values() {
            state.entries.values().for_each(|location| segments.remember(location.segment));
        }
        // What was trimmed before the last checkpoint may be written over (J4). Without this every opening would use up
        // a segment, and a server that is killed again and again would fill the journal with nothing.
        let covered = segments.coverable(checkpoint_last);
        segments.cover(&covered);
        let mut writer = Self {
            members,
            copies: Vec::new(),
            behind,
            current,
            preparing: None,
            sequence_next: sequence_last + 1,
            batch_next: batch_last.max(proven) + 1,
            looked: Instant::now(),
            retry: None,
        };
        let is_copy = |slot: &u8| {
            let is_writable = writer.members.member(*slot).is_some_and(|member| member.is_writable());
            is_writable && !writer.behind.contains(slot)
        };
        let copies: Vec<u8> = sources.into_iter().filter(is_copy).collect();
        let copies: Vec<Copy> = copies.into_iter().map(|slot| Copy::new(&writer.members, slot)).collect();
        writer.copies.extend(copies);
        writer.find_copies(&segments);
        if let Some((file, bytes)) = writer.current.as_ref().map(|current| (current.file, current.bytes)) {
            writer.open_files(file);
            let is_whole = |copy: &Copy| copy.file.as_ref().is_some_and(|f| f.length().is_ok_and(|have| have >= bytes));
            writer.current = writer.current.filter(|_| writer.copies.iter().all(is_whole));
        }
        segments.set_copies(writer.slots());
        writer.hold(&segments.files().collect::<Vec<u32>>());
        Ok((writer, streams, segments))
    }

    /// A pool that was ever opened has a segment with a batch in it, and one whose loss was accepted begins anew behind what is
    /// lost (J7). Where a new pool has no room for one now, the first append makes it.
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

    fn slots(&self) -> Vec<u8> {
        self.copies.iter().map(|copy| copy.slot).collect()
    }

    /// Brings the number of copies to m+1 if disks allow, and the labels up to date (J5).
    fn find_copies(&mut self, segments: &Segments) {
        loop {
            self.choose_copies(segments);
            self.name_copies();
            let named = self.copies.len();
            // A disk that did not take the label is no copy either, and that the labels have to say, too.
            self.copies.retain(|copy| copy.is_in_use(&self.members));
            if self.copies.len() == named || self.copies.is_empty() {
                break;
            }
        }
        let may_help = matches!(self.members.work, Work::Threads) && self.members.journal_copies() > 1;
        for copy in &mut self.copies {
            copy.helper = copy.helper.take().or_else(|| may_help.then(Helper::start)?.ok());
        }
    }

    fn choose_copies(&mut self, segments: &Segments) {
        let members = self.members.clone();
        let wanted = members.journal_copies();
        self.copies.retain(|copy| copy.is_in_use(&members));
        // Where no disk took writes any more, those that had copies have all that there is.
        let as_before = if self.copies.is_empty() { segments.copies() } else { &[] };
        let is_current = |slot: &u8| as_before.contains(slot) && !self.behind.contains(slot);
        let mut rooms = members.rooms(|_| 0);
        rooms.retain(|(slot, _, _)| members.member(*slot).is_some_and(|member| member.is_in_sync()));
        rooms.sort_by_key(|(slot, _, free)| (!is_current(slot), std::cmp::Reverse(*free)));
        let current: Vec<u8> = rooms.iter().map(|(slot, _, _)| *slot).filter(is_current).collect();
        let stays = |copy: &Copy| members.member(copy.slot).is_some_and(|member| member.takes_data());
        for (slot, _, _) in rooms {
            if self.copies.iter().filter(|copy| stays(copy)).count() >= wanted {
                break;
            }
            if self.slots().contains(&slot) {
                continue;
            }
            let sources = if self.copies.is_empty() { segments.copies().to_vec() } else { self.slots() };
            if current.contains(&slot) || self.make_copy(&sources, slot, segments).is_ok() {
                self.copies.push(Copy::new(&members, slot));
            }
        }
        // A disk that leaves is a copy until another is.
        self.copies.retain(|copy| copy.is_in_use(&members));
        self.copies.sort_by_key(|copy| !stays(copy));
        self.copies.truncate(wanted);
    }

    /// Writes a copy anew. What lies on the disk counts for nothing from here on, which the labels say first (J5).
    fn make_copy(&mut self, sources: &[u8], slot: u8, segments: &Segments) -> io::Result<()> {
        let is_named =
            || self.members.member(slot).is_some_and(|member| self.members.label().journal.contains(&member.id));
        if is_named() {
            self.name_copies();
        }
        if is_named() {
            return Err(io::Error::other("no other disk has a copy"));
        }
        copy_all(&self.members, sources, slot, segments)?;
        self.behind.retain(|behind| *behind != slot);
        Ok(())
    }

    fn name_copies(&self) {
        let ids: Vec<Uuid> = self.copies.iter().filter_map(|copy| Some(self.members.member(copy.slot)?.id)).collect();
        if self.members.label().journal != ids && !ids.is_empty() {
            self.members.write_labels(|label| label.journal = ids);
        }
    }

    // ---- running ----------------------------------------------------------------------------

    pub fn run(mut self, shared: &Arc<Shared>) {
        loop {
            {
                let mut state = shared.state.lock();
                while state.is_idle() {
                    match self.retry_in() {
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

    /// Does what is due: one batch, say. `false` when it was the last.
    pub fn step(&mut self, shared: &Arc<Shared>) -> bool {
        let batch = {
            let mut state = shared.state.lock();
            if let Some(done) = state.returned.take() {
                let is_dead = state.dead.is_some();
                drop(state);
                // Where none has a name and none could be given one, the journal is dead, and says so.
                if !is_dead && self.look_for_copies(shared).is_ok() {
                    self.refresh_copies(shared);
                }
                // Nobody may wait any more.
                let _ = done.send(());
                return true;
            }
            if std::mem::take(&mut state.looks_for_copies) {
                drop(state);
                self.make_more_copies(shared);
                return true;
            }
            if state.queue.is_empty() {
                let current = self.current.as_ref().map_or(0, |current| current.sequence);
                let (tidy, is_coverable) = (state.tidy, !state.segments.coverable(current).is_empty());
                drop(state);
                if tidy && self.look_for_copies(shared).is_ok() && is_coverable {
                    // Without it only room is lost, until the next checkpoint.
                    let _ = self.write_checkpoint(shared, Vec::new());
                }
                self.finish_preparing(shared);
                return false;
            }
            take_batch(&mut state)
        };
        shared.room.notify_waiters();
        self.write(shared, batch);
        true
    }

    fn write(&mut self, shared: &Arc<Shared>, batch: Vec<Pending>) {
        match self.try_write(shared, &batch) {
            Ok(locations) => {
                settle(shared, &batch, &locations);
                batch.into_iter().for_each(|pending| drop(pending.done.send(Ok(()))));
            }
            Err(error) => {
                let mut state = shared.state.lock();
                for pending in &batch {
                    if let Some(stream) = state.streams.get_mut(&pending.stream) {
                        stream.poisoned = Some(error.to_string());
                    }
                }
                // What waits for the same streams would leave a gap (L3).
                let (fail, keep): (Vec<_>, Vec<_>) = std::mem::take(&mut state.queue)
                    .into_iter()
                    .partition(|queued| batch.iter().any(|pending| pending.stream == queued.stream));
                state.queue = keep;
                state.queued_bytes = state.queue.iter().map(|pending| pending.payload_bytes).sum();
                drop(state);
                shared.room.notify_waiters();
                batch.into_iter().chain(fail).for_each(|pending| drop(pending.done.send(Err(error.clone()))));
            }
        }
    }

    fn try_write(&mut self, shared: &Arc<Shared>, batch: &[Pending]) -> Result<Vec<Location>, LogError> {
        self.keep_copies(shared)?;
        let records = headers(shared, batch);
        let need = batch_bytes(&records);
        let room = self.current.as_ref().map_or(0, |c| (c.bytes - c.offset).saturating_sub(CHECKPOINT_ROOM_BYTES));
        if need > room {
            self.begin_segment(shared, need)?;
        }
        if self.looked.elapsed() >= LOOK_EVERY {
            self.look_for_copies(shared)?;
        }
        let payloads: Vec<&[Bytes]> = batch.iter().map(|pending| pending.payload.as_slice()).collect();
        self.append(shared, records, &payloads, Vec::new())
    }

    /// A copy on a disk that is out of use counts for nothing, whether or not it could still be written.
    fn keep_copies(&mut self, shared: &Shared) -> Result<(), LogError> {
        if !self.copies.iter().all(|copy| copy.is_in_use(&self.members)) {
            self.refresh_copies(shared);
        } else if self.retry_in().is_some_and(|wait| wait.is_zero()) {
            self.make_more_copies(shared);
        }
        self.check_copies(shared)
    }

    /// Until it is tried again to make more copies; nothing where there are enough.
    pub fn retry_in(&mut self) -> Option<Duration> {
        let stays = |copy: &&Copy| self.members.member(copy.slot).is_some_and(|member| member.takes_data());
        if self.copies.iter().filter(stays).count() >= self.members.journal_copies() {
            self.retry = None;
            return None;
        }
        let (wait, since) = self.retry.get_or_insert_with(|| (RETRY_MIN, Instant::now()));
        Some(wait.saturating_sub(since.elapsed()))
    }

    /// There are too few: some disk may be able to hold one by now. No disk is asked that could not.
    fn make_more_copies(&mut self, shared: &Shared) {
        let has_none = |slot: u8| self.copies.iter().all(|copy| copy.slot != slot);
        let can_have = |(slot, member): (u8, &MemberDisk)| member.is_in_sync() && member.takes_data() && has_none(slot);
        if self.members.with_slots().any(can_have) {
            self.refresh_copies(shared);
        }
        if let Some((wait, since)) = &mut self.retry {
            (*wait, *since) = ((*wait * 2).min(RETRY_MAX), Instant::now());
        }
    }

    /// What nobody writes is not durable.
    fn check_copies(&self, shared: &Shared) -> Result<(), LogError> {
        match shared.state.lock().dead.clone() {
            Some(why) => Err(LogError::Poisoned(why)),
            None if self.copies.is_empty() => {
                Err(LogError::Poisoned("none of the disks that hold it takes writes".into()))
            }
            None => Ok(()),
        }
    }

    /// Writes one batch to the current segment, behind `before` if it is the segment's first.
    fn append(
        &mut self,
        shared: &Shared,
        records: Vec<RecordHeader>,
        payloads: &[&[Bytes]],
        before: Vec<u8>,
    ) -> Result<Vec<Location>, LogError> {
        let Some(current) = &self.current else { return Err(LogError::Poisoned("no segment".into())) };
        let start = current.offset - before.len() as u64;
        let count = records.len() as u64;
        let built = build(&self.members, current, self.batch_next, records, payloads, &before);
        let began = Instant::now();
        self.write_copies(shared, &built.bytes, start)?;
        shared.counts.commit.add(began.elapsed());
        shared.counts.batches.add(1);
        shared.counts.records.add(count);
        shared.counts.bytes.add(built.bytes.len() as u64);
        self.members.note_journal_batch(self.batch_next);
        self.batch_next += 1;
        if let Some(current) = &mut self.current {
            current.offset = built.end;
        }
        Ok(built.locations)
    }

    /// Writes and syncs on all copies; those that fail are replaced and the labels say so (J5).
    fn write_copies(&mut self, shared: &Shared, bytes: &Bytes, offset: u64) -> Result<(), LogError> {
        self.check_copies(shared)?;
        let together = self.flushed_together();
        let begin = |copy: &Copy, filesystem: &Option<u64>| {
            let file = copy.file.clone()?;
            let sync = match filesystem {
                Some(_) => Sync::Shared,
                None if copy.helper.is_none() => Sync::Later,
                None => Sync::Own,
            };
            Some(copy.begin(Job::Write { file, bytes: bytes.clone(), offset, sync }))
        };
        let begun: Vec<_> = self.copies.iter().zip(&together).map(|(copy, shared)| begin(copy, shared)).collect();
        let finish = |(copy, begun): (&Copy, Option<Result<(), Job>>)| match begun {
            None => Err(io::ErrorKind::NotConnected.into()),
            Some(Ok(())) => copy.finish(),
            Some(Err(job)) => job.run(),
        };
        let mut results: Vec<io::Result<bool>> = self.copies.iter().zip(begun).map(finish).collect();
        let mut flushed = Vec::new();
        for ((copy, filesystem), result) in self.copies.iter().zip(&together).zip(&mut results) {
            if let (Some(file), Ok(false)) = (&copy.file, &result)
                && filesystem.is_none_or(|filesystem| !flushed.contains(&filesystem))
            {
                *result = copy.run(Job::Flush(file.clone()));
                // Where it fails the next copy there flushes for the others.
                flushed.extend(filesystem.filter(|_| result.is_ok()));
            }
        }
        let failures: Vec<(u8, io::Error)> =
            self.copies.iter().zip(results).filter_map(|(copy, result)| Some((copy.slot, result.err()?))).collect();
        if failures.is_empty() { Ok(()) } else { self.replace_copies(shared, failures) }
    }

    /// A copy without a name would be written, and found by nobody: another is made before more is promised. Where none has
    /// a name they are given new ones.
    fn look_for_copies(&mut self, shared: &Shared) -> Result<(), LogError> {
        self.looked = Instant::now();
        let used: Vec<u32> = shared.state.lock().segments.files().collect();
        let is_gone = |copy: &&Copy| {
            let Some(Ok(io)) = self.members.member(copy.slot).map(MemberDisk::io) else { return false };
            match self.members.work.on_disk(&io, |io| io.list(DIRECTORY)) {
                Ok(names) => {
                    let there: BTreeSet<u32> = names.iter().filter_map(|name| parse_file_name(name)).collect();
                    used.iter().any(|file| !there.contains(file))
                }
                // Whether the disk works is for others to find out.
                Err(error) => !used.is_empty() && error.kind() == io::ErrorKind::NotFound,
            }
        };
        let why = || io::Error::new(io::ErrorKind::NotFound, "its journal is gone: somebody has removed the files");
        let gone: Vec<(u8, io::Error)> = self.copies.iter().filter(is_gone).map(|copy| (copy.slot, why())).collect();
        if gone.is_empty() {
            return Ok(());
        }
        if gone.len() < self.copies.len() {
            return self.replace_copies(shared, gone);
        }
        gone.iter().for_each(|(slot, error)| self.members.write_failed(*slot, error));
        self.copies.retain(|copy| self.members.member(copy.slot).is_some_and(|member| member.is_writable()));
        let failures = self.write_held(&used);
        let kept = self.copies.len() - failures.len();
        if kept > 0 {
            let text = format!("the journal was removed from all disks: it is written anew on {kept}, nothing is lost");
            tracing::error!(pool = %self.members.name, text);
            self.members.event(EventKind::Errors, text);
        }
        if kept > 0 && failures.is_empty() { Ok(()) } else { self.replace_copies(shared, failures) }
    }

    /// Writes the segments that are held open to new files of their names; returns the copies where that failed.
    fn write_held(&mut self, files: &[u32]) -> Vec<(u8, io::Error)> {
        let mut written: Vec<(u8, io::Result<Held>)> =
            self.copies.iter().map(|copy| (copy.slot, Ok(Held::new()))).collect();
        let watches: Vec<Arc<Watch>> = self.copies.iter().map(|copy| copy.watch.clone()).collect();
        for file in files {
            let held: Vec<Arc<dyn DiskFile>> =
                self.copies.iter().filter_map(|copy| copy.held.get(file).cloned()).collect();
            let (pool, file) = (self.members.id, *file);
            let read = |held: &Arc<dyn DiskFile>| read_open(&**held);
            let bytes = self.members.work.watched(&watches, move || merged(pool, file, &held, read));
            let bytes = bytes.unwrap_or_else(|| Err(hangs())).map(Bytes::from);
            for (slot, result) in &mut written {
                let Ok(made) = result else { continue };
                let member = self.members.member(*slot).ok_or_else(|| io::ErrorKind::NotFound.into());
                let wrote = member.and_then(|member| {
                    let bytes =
                        bytes.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?.clone();
                    self.members.work.on_disk(&member.io()?, move |disk| write_segment(disk, file, &bytes))
                });
                match wrote {
                    Ok(new) => drop(made.insert(file, new)),
                    Err(error) => *result = Err(error),
                }
            }
        }
        let mut failures = Vec::new();
        for (copy, (slot, result)) in self.copies.iter_mut().zip(written) {
            let named = self.members.member(slot).ok_or(io::ErrorKind::NotFound.into()).and_then(|member| {
                let sync = |io: &dyn DiskIo| io.sync_directory(DIRECTORY).and_then(|()| io.sync_directory(""));
                self.members.work.on_disk(&member.io()?, sync)
            });
            match result.and_then(|made| named.map(|()| made)) {
                Ok(made) => {
                    copy.file = self.current.as_ref().and_then(|current| made.get(&current.file).cloned());
                    copy.held = made;
                }
                Err(error) => failures.push((slot, error)),
            }
        }
        failures
    }

    /// Opens the segments in use that are not open yet.
    fn hold(&mut self, files: &[u32]) {
        for copy in &mut self.copies {
            let Some(Ok(io)) = self.members.member(copy.slot).map(MemberDisk::io) else { continue };
            copy.held.retain(|file, _| files.contains(file));
            let lacking: Vec<u32> = files.iter().copied().filter(|file| !copy.held.contains_key(file)).collect();
            if lacking.is_empty() {
                continue;
            }
            let open = |io: &dyn DiskIo, file: u32| Some((file, io.open(&file_name(file), false).ok()?));
            let opened = self
                .members
                .work
                .on_disk(&io, move |io| Ok(lacking.into_iter().filter_map(|file| open(io, file)).collect::<Vec<_>>()));
            copy.held.extend(opened.unwrap_or_default());
        }
    }

    /// For each copy, the filesystem that it shares with another: their device would do one flush after the other, so the
    /// first of them is synced for all (J2). One copy is always synced as a file of its own.
    fn flushed_together(&self) -> Vec<Option<u64>> {
        let own = |copy: &Copy| copy.file.as_ref().and_then(|file| file.flushed_together());
        let all: Vec<Option<u64>> = self.copies.iter().map(own).collect();
        all.iter().map(|own| own.filter(|_| all.iter().filter(|other| *other == own).count() > 1)).collect()
    }

    fn replace_copies(&mut self, shared: &Shared, failures: Vec<(u8, io::Error)>) -> Result<(), LogError> {
        self.copies.retain(|copy| failures.iter().all(|(slot, _)| *slot != copy.slot));
        for (slot, error) in &failures {
            tracing::warn!(pool = %self.members.name, slot, %error, "journal copy lost");
            self.members.write_failed(*slot, error);
        }
        if self.copies.is_empty() {
            let why = failures.first().map_or_else(String::new, |(_, error)| error.to_string());
            let why = format!("no disk can write it: {why}");
            shared.state.lock().dead = Some(why.clone());
            return Err(LogError::Poisoned(why));
        }
        self.refresh_copies(shared);
        if self.copies.is_empty() {
            let why = "no disk is left to hold it".to_owned();
            shared.state.lock().dead = Some(why.clone());
            return Err(LogError::Poisoned(why));
        }
        Ok(())
    }

    /// Makes more copies where there are too few, and drops those that did not take the label.
    fn refresh_copies(&mut self, shared: &Shared) {
        let mut snapshot = {
            let mut state = shared.state.lock();
            state.segments.set_copies(self.slots());
            let mut copy = Segments::new(0, state.segments.copies().to_vec());
            for (at, file) in state.segments.files().enumerate() {
                copy.add(at as u64, file, 0);
            }
            copy
        };
        if let Some(current) = &self.current {
            snapshot.add(u64::MAX, current.file, current.bytes);
        }
        self.find_copies(&snapshot);
        if let Some(current) = &self.current {
            let file = current.file;
            self.open_files(file);
        }
        let used: Vec<u32> = {
            let mut state = shared.state.lock();
            state.segments.set_copies(self.slots());
            state.segments.files().collect()
        };
        self.hold(&used);
    }

    fn open_files(&mut self, file: u32) {
        for copy in self.copies.iter_mut().filter(|copy| copy.file.is_none()) {
            let io = self.members.member(copy.slot).and_then(|member| member.io().ok());
            copy.file =
                io.and_then(|io| self.members.work.on_disk(&io, move |io| io.open(&file_name(file), true)).ok());
        }
    }

    // ---- segments ---------------------------------------------------------------------------

    /// Moves on to a segment with room for a batch of `need` bytes.
    fn begin_segment(&mut self, shared: &Arc<Shared>, need: u64) -> Result<(), LogError> {
        let marks = checkpoint_bytes(shared);
        let need = ALIGN_BYTES + marks + need + 2 * ALIGN_BYTES + CHECKPOINT_ROOM_BYTES;
        self.finish_preparing(shared);
        let mut next = shared.state.lock().segments.next(need);
        if let Some(current) = &self.current
            && next.is_none_or(|next| !next.ready)
            && !shared.state.lock().segments.coverable(current.sequence).is_empty()
        {
            // J4: what is trimmed becomes free by a checkpoint in the room kept for it. For more the disks may have no room.
            self.write_checkpoint(shared, Vec::new())?;
            next = shared.state.lock().segments.next(need);
        }
        let Some(next) = next else {
            let (used, total) = shared.state.lock().segments.usage();
            return Err(LogError::Full(format!("{used} of {total} bytes are in use and nothing can be trimmed")));
        };
        self.make_files(shared, next)?;
        let sequence = self.sequence_next;
        self.sequence_next += 1;
        self.current = Some(Current { sequence, file: next.file, bytes: next.bytes, offset: ALIGN_BYTES });
        shared.state.lock().segments.add(sequence, next.file, next.bytes);
        for copy in &mut self.copies {
            copy.held.extend(copy.file.clone().map(|file| (next.file, file)));
        }
        shared.begun.notify_one();
        let mut head = SegmentHeader { sequence, bytes: next.bytes, file: Some(next.file) }.encode(self.members.id);
        head.resize(ALIGN_BYTES as usize, 0);
        self.write_checkpoint(shared, head)?;
        self.prepare_next(shared);
        Ok(())
    }

    /// Writing zeros to a new file takes longer than a hundred batches: another thread does it before it is needed.
    fn prepare_next(&mut self, shared: &Arc<Shared>) {
        let members = self.copies.iter().map(|copy| self.members.member(copy.slot).and_then(|member| member.io().ok()));
        let Some(disks) = members.collect::<Option<Vec<Arc<dyn DiskIo>>>>() else { return };
        let Some(next) = shared.state.lock().segments.prepare() else { return };
        let watches = disks.iter().filter_map(|disk| disk.watch()).collect();
        let (of_thread, members) = (shared.clone(), self.members.clone());
        let prepare = move || {
            // What fails here is tried again when the file is needed, and then the disk is held to account.
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
        // Where a disk hangs the file stays what is being made ready: nobody else touches it until that has come to its end.
        if started.finish_watched(&watches) == Some(false) {
            shared.state.lock().segments.prepared(false);
        }
    }

    /// Opens the segment's file on all copies, filled with zeros where it is new.
    fn make_files(&mut self, shared: &Shared, next: Next) -> Result<(), LogError> {
        let mut failures = Vec::new();
        for copy in &mut self.copies {
            let io = self.members.member(copy.slot).ok_or(io::ErrorKind::NotFound.into()).and_then(MemberDisk::io);
            let members = self.members.clone();
            let made = io.and_then(|io| self.members.work.on_disk(&io, move |io| ready_file(&members, io, next)));
            match made {
                Ok(file) => copy.file = Some(file),
                Err(error) => failures.push((copy.slot, error)),
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        if failures.iter().all(|(_, error)| error.kind() == io::ErrorKind::StorageFull)
            && failures.len() == self.copies.len()
        {
            shared.state.lock().segments.add_spare(next.file, 0);
            return Err(LogError::Full("the disks that hold it are full".into()));
        }
        self.current = None;
        self.replace_copies(shared, failures)?;
        // The copies that are new have no file for this segment yet.
        for copy in &mut self.copies {
            let io = self.members.member(copy.slot).and_then(|member| member.io().ok());
            let members = self.members.clone();
            copy.file = io.and_then(|io| self.members.work.on_disk(&io, move |io| make_file(&members, io, next)).ok());
        }
        Ok(())
    }

    fn write_checkpoint(&mut self, shared: &Shared, head: Vec<u8>) -> Result<(), LogError> {
        let Some(sequence) = self.current.as_ref().map(|current| current.sequence) else { return Ok(()) };
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
        };
        let room = self.current.as_ref().map_or(0, |current| current.bytes - current.offset);
        if batch_bytes(std::slice::from_ref(&record)) > room {
            return Ok(());
        }
        self.append(shared, vec![record], &[&[Bytes::from(payload)]], head)?;
        shared.state.lock().segments.cover(&covered);
        Ok(())
    }
}

/// The file as it was made ready, or made now.
fn ready_file(members: &Members, io: &dyn DiskIo, next: Next) -> io::Result<Arc<dyn DiskFile>> {
    if next.ready
        && let Ok(file) = io.open(&file_name(next.file), true)
        && file.length()? >= next.bytes
    {
        // Whoever made it may have been killed before it was synced.
        file.sync()?;
        return Ok(file);
    }
    make_file(members, io, next)
}

/// Past the cache, so that what is committed meanwhile does not wait behind the whole file.
fn make_file(members: &Members, io: &dyn DiskIo, next: Next) -> io::Result<Arc<dyn DiskFile>> {
    io.make_directory(DIRECTORY)?;
    let file = io.create(&file_name(next.file))?;
    let mut zeros = members.buffers.take(ZEROS_BYTES);
    zeros.bytes_mut().fill(0);
    let mut at = 0;
    while at < next.bytes {
        let bytes = (next.bytes - at).min(ZEROS_BYTES as u64) as usize;
        file.write_direct_at(&zeros.as_ref()[..bytes], at)?;
        at += bytes as u64;
    }
    file.sync()?;
    io.sync_directory(DIRECTORY)?;
    Ok(file)
}

fn checkpoint_bytes(shared: &Shared) -> u64 {
    encode_checkpoint(&shared.state.lock().marks()).len() as u64
}

/// Moves the head of the queue into a batch.
fn take_batch(state: &mut State) -> Vec<Pending> {
    let mut bytes = 0;
    let count = state
        .queue
        .iter()
        .take_while(|pending| {
            let fits = bytes == 0 || bytes + pending.payload_bytes <= BATCH_BYTES;
            bytes += pending.payload_bytes.max(1);
            fits
        })
        .count();
    let rest = state.queue.split_off(count);
    let batch = std::mem::replace(&mut state.queue, rest);
    let taken: u64 = batch.iter().map(|pending| pending.payload_bytes).sum();
    state.queued_bytes = state.queued_bytes.saturating_sub(taken);
    debug_assert!(state.queued_bytes <= 2 * QUEUE_BYTES_MAX);
    batch
}

/// Record headers of a batch, each naming the stream's entry before it (J3).
fn headers(shared: &Shared, batch: &[Pending]) -> Vec<RecordHeader> {
    let state = shared.state.lock();
    let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    batch
        .iter()
        .map(|pending| {
            let known = state.streams.get(&pending.stream).map(|stream| &stream.state);
            let known = || known.map_or((0, 0), |state| (state.last, state.trimmed));
            let (before, trimmed) = last.entry(&pending.stream).or_insert_with(known);
            let previous = std::mem::replace(before, pending.id);
            if pending.kind != Kind::Entry {
                // What comes after it is of another stream with the same name.
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
            }
        })
        .collect()
}

fn batch_bytes(records: &[RecordHeader]) -> u64 {
    let bytes = BATCH_HEADER_BYTES + records.iter().map(RecordHeader::bytes).sum::<usize>();
    (bytes as u64).next_multiple_of(ALIGN_BYTES)
}

/// The bytes of a batch at the current offset, behind `before`.
fn build(
    members: &Members,
    current: &Current,
    batch: u64,
    records: Vec<RecordHeader>,
    payloads: &[&[Bytes]],
    before: &[u8],
) -> Built {
    let seed = segment_seed(members.id, current.sequence);
    let used = BATCH_HEADER_BYTES + records.iter().map(RecordHeader::bytes).sum::<usize>();
    let header = BatchHeader { batch, bytes: used as u64, records: records.len() as u32 };
    let end = current.offset + (used as u64).next_multiple_of(ALIGN_BYTES);
    let mut buffer = members.buffers.take(before.len() + (end - current.offset) as usize);
    let mut out = Fill { rest: buffer.bytes_mut() };
    out.put(before);
    out.put(&header.encode(seed, current.offset));
    let mut at = current.offset + BATCH_HEADER_BYTES as u64;
    let mut locations = Vec::with_capacity(records.len());
    for (mut record, payload) in records.into_iter().zip(payloads) {
        let offset = at + record.head_bytes() as u64;
        record.payload_checksum = checksum_slices(seed ^ offset, payload.iter().map(|part| &part[..]));
        locations.push(Location {
            segment: current.sequence,
            offset,
            bytes: record.payload_bytes,
            checksum: record.payload_checksum,
            previous: record.previous,
        });
        out.put(&record.encode(seed, at));
        payload.iter().for_each(|part| out.put(part));
        out.zeros((record.payload_bytes as usize).next_multiple_of(8) - record.payload_bytes as usize);
        at += record.bytes() as u64;
    }
    out.zeros((end - at) as usize);
    Built { bytes: buffer.freeze(), locations, end }
}

/// Fills memory from the front.
struct Fill<'a> {
    rest: &'a mut [u8],
}

impl Fill<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        self.rest = rest;
    }

    fn zeros(&mut self, count: usize) {
        let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(count);
        to.fill(0);
        self.rest = rest;
    }
}

/// The batch is durable: its entries exist from now on.
fn settle(shared: &Shared, batch: &[Pending], locations: &[Location]) {
    let mut state = shared.state.lock();
    let State { streams, segments, .. } = &mut *state;
    for (pending, location) in batch.iter().zip(locations) {
        let Some(stream) = streams.get_mut(&pending.stream) else { continue };
        match pending.kind {
            Kind::Entry => {
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

// ---- copies on disk ---------------------------------------------------------------------------

/// What lies in the journal of a pool that is about to be opened.
pub struct Stored {
    sources: Vec<u8>,
    images: Images,
    spare: BTreeMap<u32, u64>,
    /// What is not proven to be there, where the pool is opened all the same (J7).
    pub loss: Option<String>,
}

/// Reads the journal and compares it with what the labels prove (J7). Writes nothing. Blocks.
pub fn read(members: &Members, accept_loss: bool) -> Result<Stored, PoolError> {
    let label = members.label();
    let is_named = |member: &MemberDisk| label.journal.contains(&member.id);
    let slots = |is_source: &dyn Fn(&MemberDisk) -> bool| -> Vec<u8> {
        let readable = members.with_slots().filter(|(_, member)| member.is_readable());
        readable.filter(|(_, member)| is_source(member)).map(|(slot, _)| slot).collect()
    };
    // An older copy of a disk has an older copy of the journal (B4).
    let current = slots(&|member| is_named(member) && !member.rolled_back.load(Ordering::Acquire));
    let is_current = !current.is_empty();
    let second_best = [slots(&|member| accept_loss && is_named(member)), slots(&|_| accept_loss)];
    let sources = std::iter::once(current).chain(second_best).find(|slots| !slots.is_empty()).unwrap_or_default();
    let (images, spare) = if sources.is_empty() { Default::default() } else { load(members, &sources)? };
    let reached =
        images.values().rev().map(|(_, image, _)| replay::scan(members.id, image).batch_last).find(|last| *last > 0);
    let why = match reached {
        _ if !is_current => Some("none of the disks with a current copy of the journal is here".to_owned()),
        None if label.journal_batch > 0 || (images.is_empty() && holds_objects(members)) => {
            Some(format!("nothing is left of the journal on {}", paths(members, &sources)))
        }
        Some(last) if last < label.journal_batch => {
            let (here, proven) = (paths(members, &sources), label.journal_batch);
            Some(format!("the journal on {here} ends with batch {last}, and batch {proven} was durable"))
        }
        _ => None,
    };
    match why {
        Some(why) if !accept_loss => {
            Err(PoolError::ChangesLost { pool: members.name.clone(), why, help: help(members.iter(), &label) })
        }
        loss => Ok(Stored { sources, images, spare, loss }),
    }
}

/// The number of the batch that a segment begins with.
fn first_batch(pool: Uuid, image: &SegmentImage, found: &replay::Scanned) -> u64 {
    let rest = found.merged.get(ALIGN_BYTES as usize..).unwrap_or_default();
    let header = BatchHeader::decode(rest, segment_seed(pool, image.header.sequence), ALIGN_BYTES);
    header.map_or(u64::MAX, |header| header.batch)
}

/// The disks whose copy of a segment is gone altogether.
fn lacking_copies(members: &Members, sources: &[u8], file: u32, image: &SegmentImage) -> Vec<u8> {
    let lacks = |copy: &[u8]| SegmentHeader::decode_in(copy, members.id, file).is_none();
    sources.iter().zip(&image.copies).filter(|(_, copy)| lacks(copy)).map(|(slot, _)| *slot).collect()
}

/// Objects are put through an open pool, and that has a journal.
fn holds_objects(members: &Members) -> bool {
    let has_some = |io: &Arc<dyn DiskIo>| {
        let folders = io.list(crate::object::shard_files::OBJECTS).unwrap_or_default();
        let holds =
            |folder: &String| io.list(&format!("{}/{folder}", crate::object::shard_files::OBJECTS)).unwrap_or_default();
        folders.iter().flat_map(holds).any(|name| !name.starts_with('!'))
    };
    members.disks_readable().iter().any(has_some)
}

fn paths(members: &Members, slots: &[u8]) -> String {
    let path = |slot: &u8| members.member(*slot).map(|member| member.path.read().display().to_string());
    let paths: Vec<String> = slots.iter().filter_map(path).collect();
    if paths.is_empty() { "the disks that are here".to_owned() } else { paths.join(", ") }
}

/// The disks that would help.
pub fn help<'a>(members: impl Iterator<Item = &'a MemberDisk>, label: &Label) -> String {
    let is_away = |member: &&MemberDisk| !member.is_readable() || member.rolled_back.load(Ordering::Acquire);
    let (with_copy, others): (Vec<_>, Vec<_>) =
        members.filter(is_away).partition(|member| label.journal.contains(&member.id));
    let paths = |members: &[&MemberDisk]| -> String {
        let paths: Vec<String> = members.iter().map(|member| member.path.read().display().to_string()).collect();
        paths.join(", ")
    };
    match (with_copy.is_empty(), others.is_empty()) {
        (true, true) => "No other disk of the pool holds a copy of the journal".to_owned(),
        (true, false) => format!("Reconnect {} as it was last used: a newer state may be on it", paths(&others)),
        (false, _) => format!("Reconnect {} as it was last used, with its copy of the journal", paths(&with_copy)),
    }
}

/// By sequence: the file, its copies, and where each could not be read.
type Images = BTreeMap<u64, (u32, SegmentImage, Vec<BTreeSet<u64>>)>;

/// Reads all segment files of all copies: those with a valid header by sequence, the others as spare. What cannot be read
/// anywhere is neither: refused, or it would be written over.
fn load(members: &Members, sources: &[u8]) -> Result<(Images, BTreeMap<u32, u64>), PoolError> {
    let disks: Vec<Arc<dyn DiskIo>> =
        sources.iter().filter_map(|slot| members.member(*slot).and_then(|member| member.io().ok())).collect();
    let failed = |what: &str, error: &io::Error| {
        let why = format!("{what} cannot be read on any of the disks that hold it: {error}");
        PoolError::Journal { pool: members.name.clone(), why }
    };
    let lists: Vec<io::Result<Vec<String>>> = disks.iter().map(|disk| list(&**disk)).collect();
    if let Some(error) = unreadable(&lists) {
        return Err(failed(DIRECTORY, error));
    }
    let names = lists.into_iter().flat_map(io::Result::unwrap_or_default);
    let files: BTreeSet<u32> = names.filter_map(|name| parse_file_name(&name)).collect();
    let mut images = Images::new();
    let mut spare = BTreeMap::new();
    for file in files {
        let read: Vec<io::Result<Readable>> = disks.iter().map(|disk| read_copy(&**disk, &file_name(file))).collect();
        if let Some(error) = unreadable(&read) {
            return Err(failed(&file_name(file), error));
        }
        let read: Vec<Readable> =
            read.into_iter().map(|copy| copy.unwrap_or_else(|error| Readable::none(&error))).collect();
        let (copies, bad): (Vec<Vec<u8>>, Vec<BTreeSet<u64>>) =
            read.into_iter().map(|copy| (copy.bytes, copy.bad)).unzip();
        let headers = copies.iter().filter_map(|copy| SegmentHeader::decode_in(copy, members.id, file));
        let header = headers.max_by_key(|header| header.sequence);
        match header {
            Some(header) => {
                images.insert(header.sequence, (file, SegmentImage { header, copies }, bad));
            }
            None => {
                let shortest = copies.iter().map(Vec::len).min().unwrap_or(0);
                spare.insert(file, shortest as u64);
            }
        }
    }
    Ok((images, spare))
}

/// Why, where there is something that no disk could read.
fn unreadable<T>(read: &[io::Result<T>]) -> Option<&io::Error> {
    let errors: Vec<&io::Error> = read.iter().filter_map(|read| read.as_ref().err()).collect();
    errors.iter().copied().find(|error| error.kind() != io::ErrorKind::NotFound).filter(|_| errors.len() == read.len())
}

/// A disk that fails now and then must not hide a file.
fn list(disk: &dyn DiskIo) -> io::Result<Vec<String>> {
    match disk.list(DIRECTORY) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => disk.list(DIRECTORY),
        other => other,
    }
}

/// A copy of a segment as far as it can be read.
#[derive(Default)]
struct Readable {
    bytes: Vec<u8>,
    /// Where it could not; there are zeros instead.
    bad: BTreeSet<u64>,
}

impl Readable {
    /// Where nothing can be read there may be anything, unless there is no file.
    fn none(error: &io::Error) -> Self {
        let is_hidden = error.kind() != io::ErrorKind::NotFound;
        Self { bytes: Vec::new(), bad: is_hidden.then_some(u64::MAX).into_iter().collect() }
    }
}

/// A bad sector hides no more than what lies in it. Without the first the disk is not tried any further.
fn read_copy(disk: &dyn DiskIo, name: &str) -> io::Result<Readable> {
    match read_file(disk, name, SEGMENT_BYTES_MAX) {
        Ok(bytes) => return Ok(Readable { bytes, bad: BTreeSet::new() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let file = disk.open(name, false)?;
    let mut bytes = vec![0; file.length()?.min(SEGMENT_BYTES_MAX) as usize];
    let mut bad = BTreeSet::new();
    for (at, sector) in (0u64..).step_by(ALIGN_BYTES as usize).zip(bytes.chunks_mut(ALIGN_BYTES as usize)) {
        if let Err(error) = file.read_at(&mut [IoSliceMut::new(sector)], at) {
            if at == 0 {
                return Err(error);
            }
            sector.fill(0);
            bad.insert(at);
        }
    }
    Ok(Readable { bytes, bad })
}

/// Behind the last good batch lies nothing that was acknowledged, unless no disk can read what lies there: an acknowledged
/// batch is whole on every copy (J2).
fn may_hide_a_batch(pool: Uuid, image: &SegmentImage, end: u64, bad: &[BTreeSet<u64>]) -> bool {
    let seed = segment_seed(pool, image.header.sequence);
    let head = |copy: &Vec<u8>| BatchHeader::decode(copy.get(end as usize..)?, seed, end);
    let bytes = image.copies.iter().find_map(head).map_or(ALIGN_BYTES, |header| header.bytes);
    let is_hidden = |bad: &BTreeSet<u64>| bad.range(end..end.saturating_add(bytes)).next().is_some();
    let mut read = image.copies.iter().zip(bad).filter(|(copy, _)| !copy.is_empty()).peekable();
    read.peek().is_some() && read.all(|(_, bad)| is_hidden(bad))
}

/// Makes all copies of a segment equal, so that what was replayed once survives any m of them. Returns the disks with
/// those that are not.
fn heal(members: &Members, sources: &[u8], file: u32, found: &replay::Scanned) -> Vec<u8> {
    let mut behind = Vec::new();
    for slot in found.differing.iter().filter_map(|at| sources.get(*at)) {
        if !members.member(*slot).is_some_and(|member| member.is_writable()) {
            behind.push(*slot);
        } else if let Err(error) = heal_copy(members, *slot, file, found) {
            members.write_failed(*slot, &error);
            behind.push(*slot);
        }
    }
    behind
}

/// A copy that could not be read behind the end may have a batch there that nobody was told of. It is not to be found at the
/// next opening, after others have taken its place. Returns the disks that still have it.
fn clear_end(members: &Members, sources: &[u8], file: u32, end: u64, bad: &[BTreeSet<u64>]) -> Vec<u8> {
    let clear = |slot: u8| {
        let member = members.member(slot).filter(|member| member.is_writable()).ok_or(io::ErrorKind::NotFound)?;
        let target = member.io()?.open(&file_name(file), true)?;
        target.write_at(&mut [IoSlice::new(&[0; ALIGN_BYTES as usize])], end)?;
        target.sync()
    };
    let hidden = sources.iter().copied().zip(bad).filter(|(_, bad)| bad.range(end..).next().is_some());
    let fails = |slot: &u8| clear(*slot).inspect_err(|error| members.write_failed(*slot, error)).is_err();
    hidden.map(|(slot, _)| slot).filter(fails).collect()
}

/// The last batch may have been written and not flushed by whoever was killed: it is before anything is answered. Returns the
/// disks that did not.
fn flush(members: &Members, sources: &[u8], file: u32) -> Vec<u8> {
    let fails = |slot: &u8| {
        let Some(member) = members.member(*slot).filter(|member| member.is_writable()) else { return false };
        let flushed = member.io().and_then(|io| io.open(&file_name(file), true)?.sync());
        flushed.inspect_err(|error| members.write_failed(*slot, error)).is_err()
    };
    sources.iter().copied().filter(fails).collect()
}

/// Where to go on in the last segment: in a full journal there is no other room for the checkpoint that makes room (J4).
/// Not over a batch that was cut off.
fn go_on(pool: Uuid, image: &SegmentImage, end: u64, file: u32) -> Option<Current> {
    let SegmentHeader { sequence, bytes, .. } = image.header;
    let seed = segment_seed(pool, sequence);
    let begins =
        |copy: &Vec<u8>| copy.get(end as usize..).is_some_and(|rest| BatchHeader::decode(rest, seed, end).is_some());
    let is_fit = end <= bytes && !image.copies.iter().any(begins);
    is_fit.then_some(Current { sequence, file, bytes, offset: end })
}

/// Writes the bytes of a segment as they should be to one disk.
pub fn heal_copy(members: &Members, slot: u8, file: u32, found: &replay::Scanned) -> io::Result<()> {
    let io = members.member(slot).ok_or(io::ErrorKind::NotFound)?.io()?;
    let pieces: Vec<(usize, Vec<u8>)> = found.pieces().map(|(at, piece)| (at, piece.to_vec())).collect();
    members.work.on_disk(&io, move |io| {
        io.make_directory(DIRECTORY)?;
        let target = io.open(&file_name(file), true).or_else(|_| io.create(&file_name(file)))?;
        for (at, piece) in &pieces {
            target.write_at(&mut [IoSlice::new(piece)], *at as u64)?;
        }
        target.sync()?;
        io.sync_directory(DIRECTORY)
    })
}

/// Makes another copy of every segment out of what those that there are hold between them: what is damaged on one of
/// them must not become damage on two.
fn copy_all(members: &Members, sources: &[u8], target: u8, segments: &Segments) -> io::Result<()> {
    let disk = |slot: u8| members.member(slot).ok_or(io::ErrorKind::NotFound.into()).and_then(|member| member.io());
    let sources: Vec<Arc<dyn DiskIo>> = sources.iter().filter_map(|slot| disk(*slot).ok()).collect();
    if sources.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let target: Arc<dyn DiskIo> = disk(target)?;
    members.work.on_disk(&target, |target| {
        target.make_directory(DIRECTORY)?;
        for name in target.list(DIRECTORY)? {
            // Left from an earlier time as a journal disk.
            target.remove(&format!("{DIRECTORY}/{name}"))?;
        }
        Ok(())
    })?;
    let watches: Vec<Arc<Watch>> = sources.iter().filter_map(|source| source.watch()).collect();
    for file in segments.files() {
        // Two steps: when a source hangs, nobody is left who would write what was read long ago.
        let (of_task, pool) = (sources.clone(), members.id);
        let read = move |disk: &Arc<dyn DiskIo>| read_file(&**disk, &file_name(file), SEGMENT_BYTES_MAX);
        let bytes = members.work.watched(&watches, move || merged(pool, file, &of_task, read));
        let bytes = bytes.unwrap_or_else(|| Err(hangs()))?;
        members.work.on_disk(&target, move |target| write_segment(target, file, &bytes).map(drop))?;
    }
    members.work.on_disk(&target, |target| target.sync_directory(DIRECTORY).and_then(|()| target.sync_directory("")))
}

/// A segment's file anew, as it is to be on every copy.
fn write_segment(disk: &dyn DiskIo, file: u32, bytes: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    disk.make_directory(DIRECTORY)?;
    let copy = disk.create(&file_name(file))?;
    copy.write_at(&mut [IoSlice::new(bytes)], 0)?;
    copy.sync()?;
    Ok(copy)
}

fn read_open(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.length()?.min(SEGMENT_BYTES_MAX) as usize];
    let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A segment as all its copies say.
fn merged<T>(pool: Uuid, file: u32, sources: &[T], read: impl Fn(&T) -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let (mut copies, mut failed) = (Vec::new(), None);
    for source in sources {
        match read(source) {
            Ok(bytes) => copies.push(bytes),
            Err(error) => failed = Some(error),
        }
    }
    // What is in use lies somewhere: a copy without it would be none.
    let longest = copies.iter().max_by_key(|copy| copy.len()).cloned();
    let mut bytes = longest.ok_or_else(|| failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))?;
    let headers = copies.iter().filter_map(|copy| SegmentHeader::decode_in(copy, pool, file));
    if let Some(header) = headers.max_by_key(|header| header.sequence) {
        for (at, piece) in replay::scan(pool, &SegmentImage { header, copies }).pieces() {
            if let Some(place) = bytes.get_mut(at..at + piece.len()) {
                place.copy_from_slice(piece);
            }
        }
    }
    Ok(bytes)
}
