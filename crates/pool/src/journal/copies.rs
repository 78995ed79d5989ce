//! The copies of the journal: the disks that hold them, and the segment that all of them are
//! writing.
//!
//! A batch is durable once every copy has it. A copy that fails is dropped, its disk is put out of
//! use, another disk takes over where one can, and the labels say so before the batch is
//! acknowledged (`journal.label_names_copies`).
//!
//! ```text
//! write: all copies --ok--> durable
//!             |
//!             some fail --> replace --> refresh --> find: choose, name --> durable on the others
//!                              |
//!                              none left --> the journal is dead
//! ```

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::log::LogError;
use uuid::Uuid;

use super::batch::Place;
use super::copy::{Copy, Held, Helper, Job, Sync};
use super::mend::copy_all;
use super::queue::Shared;
use super::segment_file::{make_file, merged, read_open, ready_file, write_segment};
use super::segments::{DIRECTORY, Next, Segments, file_name, parse_file_name};
use crate::disk::watch::{Watch, hangs};
use crate::disk::work::Work;
use crate::disk::{DiskFile, DiskIo, is_no_room};
use crate::history::EventKind;
use crate::member::member_disk::MemberDisk;
use crate::member::members::Members;

/// The copies are looked for by name this often: an open file outlives its folder.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The wait before another disk is tried where there are too few copies; it doubles with each
/// attempt.
const RETRY_MIN: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The copies of an open journal.
pub struct Copies {
    members: Arc<Members>,
    list: Vec<Copy>,
    /// Slots of disks whose copies could not be made equal to the others.
    behind: Vec<u8>,
    /// The segment being written; nothing can be written before the first is begun.
    pub(super) current: Option<Current>,
    /// The time of the last look for the copies by name.
    looked: Instant,
    /// While there are too few copies: the wait before another disk is tried, and its beginning.
    retry: Option<(Duration, Instant)>,
}

/// The segment being written, in bytes.
pub struct Current {
    pub(super) sequence: u64,
    pub(super) file: u32,
    pub(super) bytes: u64,
    pub(super) offset: u64,
}

impl Current {
    /// The place of the next batch.
    pub fn place(&self) -> Place {
        Place { segment: self.sequence, offset: self.offset }
    }

    pub fn bytes_left(&self) -> u64 {
        assert!(self.offset <= self.bytes, "a segment ends where its file ends");
        self.bytes - self.offset
    }
}

impl Copies {
    /// The copies of a journal that was just read and healed: those of `sources` that are not
    /// `behind`. `current` is the segment to go on in, if every copy has it whole. Blocks.
    pub fn open(
        members: Arc<Members>,
        sources: Vec<u8>,
        behind: Vec<u8>,
        current: Option<Current>,
        segments: &mut Segments,
    ) -> Self {
        let is_copy = |slot: &u8| {
            let is_writable = members.member(*slot).is_some_and(|member| member.is_writable());
            is_writable && !behind.contains(slot)
        };
        let list = sources.into_iter().filter(is_copy).map(|slot| Copy::new(&members, slot)).collect();
        let mut copies = Self { members, list, behind, current, looked: Instant::now(), retry: None };
        copies.find(segments.copies(), &segments.files().collect::<Vec<u32>>());
        if let Some((file, bytes)) = copies.current.as_ref().map(|current| (current.file, current.bytes)) {
            copies.open_files(file);
            let is_whole = |copy: &Copy| copy.file.as_ref().is_some_and(|f| f.length().is_ok_and(|have| have >= bytes));
            copies.current = copies.current.filter(|_| copies.list.iter().all(is_whole));
        }
        segments.set_copies(copies.slots());
        copies.hold(&segments.files().collect::<Vec<u32>>());
        copies
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn slots(&self) -> Vec<u8> {
        self.list.iter().map(|copy| copy.slot).collect()
    }

    /// The disks that hold copies; `None` where one of them is not attached.
    pub fn disks(&self) -> Option<Vec<Arc<dyn DiskIo>>> {
        self.list.iter().map(|copy| self.members.member(copy.slot).and_then(|member| member.io().ok())).collect()
    }

    // ---- choosing disks ---------------------------------------------------------------------

    /// Brings the number of copies to m+1 if disks allow, and the labels up to date
    /// (`journal.label_names_copies`).
    fn find(&mut self, as_before: &[u8], files: &[u32]) {
        loop {
            self.choose(as_before, files);
            self.name();
            let named = self.list.len();
            // A disk that did not take the label is no copy either, and the labels have to say
            // that, too.
            self.list.retain(|copy| copy.is_in_use(&self.members));
            if self.list.len() == named || self.list.is_empty() {
                break;
            }
        }
        let may_help = matches!(self.members.work, Work::Threads) && self.members.journal_copies() > 1;
        for copy in &mut self.list {
            copy.helper = copy.helper.take().or_else(|| may_help.then(Helper::start)?.ok());
        }
    }

    /// Chooses disks until there are m+1 copies. `former` are the copies to fall back on where none
    /// is left, `files` the segments that a new copy gets.
    fn choose(&mut self, former: &[u8], files: &[u32]) {
        let members = self.members.clone();
        let wanted = members.journal_copies();
        self.list.retain(|copy| copy.is_in_use(&members));
        // Where no disk took writes any more, the former copies have all that there is.
        let as_before = if self.list.is_empty() { former } else { &[] };
        let is_current = |slot: &u8| as_before.contains(slot) && !self.behind.contains(slot);
        let mut rooms = members.rooms(|_| 0);
        rooms.retain(|(slot, _, _)| members.member(*slot).is_some_and(|member| member.is_in_sync()));
        rooms.sort_by_key(|(slot, _, free)| (!is_current(slot), std::cmp::Reverse(*free)));
        let current: Vec<u8> = rooms.iter().map(|(slot, _, _)| *slot).filter(is_current).collect();
        let stays = |copy: &Copy| members.member(copy.slot).is_some_and(|member| member.takes_data());
        for (slot, _, _) in rooms {
            if self.list.iter().filter(|copy| stays(copy)).count() >= wanted {
                break;
            }
            if self.slots().contains(&slot) {
                continue;
            }
            let sources = if self.list.is_empty() { former.to_vec() } else { self.slots() };
            if current.contains(&slot) || self.make(&sources, slot, files).is_ok() {
                self.list.push(Copy::new(&members, slot));
            }
        }
        // A disk that leaves is a copy until another is.
        self.list.retain(|copy| copy.is_in_use(&members));
        self.list.sort_by_key(|copy| !stays(copy));
        self.list.truncate(wanted);
        let is_alone = |copy: &Copy| self.list.iter().filter(|other| other.slot == copy.slot).count() == 1;
        assert!(self.list.iter().all(is_alone), "two copies on one disk would be lost together");
    }

    /// Writes a copy anew. The disk's old copy counts for nothing from here on, and the labels say
    /// so first (`journal.label_names_copies`).
    fn make(&mut self, sources: &[u8], slot: u8, files: &[u32]) -> io::Result<()> {
        let is_named =
            || self.members.member(slot).is_some_and(|member| self.members.label().journal.contains(&member.id));
        if is_named() {
            self.name();
        }
        if is_named() {
            return Err(io::Error::other("no other disk has a copy"));
        }
        copy_all(&self.members, sources, slot, files)?;
        self.behind.retain(|behind| *behind != slot);
        Ok(())
    }

    /// Names the copies on the labels.
    fn name(&self) {
        let ids: Vec<Uuid> = self.list.iter().filter_map(|copy| Some(self.members.member(copy.slot)?.id)).collect();
        if self.members.label().journal != ids && !ids.is_empty() {
            self.members.write_labels(|label| label.journal = ids);
        }
    }

    // ---- keeping them -----------------------------------------------------------------------

    /// Drops copies on disks that are out of use, whether or not they could still be written, and
    /// makes more where it is time.
    pub fn keep(&mut self, shared: &Shared) -> Result<(), LogError> {
        if !self.list.iter().all(|copy| copy.is_in_use(&self.members)) {
            self.refresh(shared);
        } else if self.retry_in().is_some_and(|wait| wait.is_zero()) {
            self.make_more(shared);
        }
        self.check(shared)
    }

    /// The time until another disk is tried (`journal.copies_replenished`); `None` while there are
    /// enough copies.
    pub fn retry_in(&mut self) -> Option<Duration> {
        let stays = |copy: &&Copy| self.members.member(copy.slot).is_some_and(|member| member.takes_data());
        if self.list.iter().filter(stays).count() >= self.members.journal_copies() {
            self.retry = None;
            return None;
        }
        let (wait, since) = self.retry.get_or_insert_with(|| (RETRY_MIN, Instant::now()));
        Some(wait.saturating_sub(since.elapsed()))
    }

    /// There are too few copies: some disk may be able to hold one by now. Disks that cannot are
    /// not asked.
    pub fn make_more(&mut self, shared: &Shared) {
        let has_none = |slot: u8| self.list.iter().all(|copy| copy.slot != slot);
        let can_have = |(slot, member): (u8, &MemberDisk)| member.is_in_sync() && member.takes_data() && has_none(slot);
        if self.members.with_slots().any(can_have) {
            self.refresh(shared);
        }
        if let Some((wait, since)) = &mut self.retry {
            (*wait, *since) = ((*wait * 2).min(RETRY_MAX), Instant::now());
        }
    }

    /// An error where no copy is left to write.
    fn check(&self, shared: &Shared) -> Result<(), LogError> {
        match shared.state.lock().dead.clone() {
            Some(why) => Err(LogError::Poisoned(why)),
            None if self.list.is_empty() => {
                Err(LogError::Poisoned("none of the disks that hold it takes writes".into()))
            }
            None => Ok(()),
        }
    }

    /// Looks for the copies by name. A copy whose files were removed would be written and never
    /// found: another is made before more is acknowledged. Where no copy has a name, all get new
    /// ones from the files that are held open.
    pub fn look_by_name(&mut self, shared: &Shared) -> Result<(), LogError> {
        self.looked = Instant::now();
        let used: Vec<u32> = shared.state.lock().segments.files().collect();
        let is_nameless = |copy: &&Copy| {
            let Some(Ok(io)) = self.members.member(copy.slot).map(MemberDisk::io) else { return false };
            match self.members.work.on_disk(&io, |io| io.list(DIRECTORY)) {
                Ok(names) => {
                    let there: BTreeSet<u32> = names.iter().filter_map(|name| parse_file_name(name)).collect();
                    used.iter().any(|file| !there.contains(file))
                }
                // Reads and writes find out whether the disk works.
                Err(error) => !used.is_empty() && error.kind() == io::ErrorKind::NotFound,
            }
        };
        let why = || io::Error::new(io::ErrorKind::NotFound, "its journal is gone: somebody has removed the files");
        let nameless: Vec<(u8, io::Error)> =
            self.list.iter().filter(is_nameless).map(|copy| (copy.slot, why())).collect();
        if nameless.is_empty() {
            return Ok(());
        }
        if nameless.len() < self.list.len() {
            return self.replace(shared, nameless);
        }
        nameless.iter().for_each(|(slot, error)| self.members.write_failed(*slot, error));
        self.list.retain(|copy| self.members.member(copy.slot).is_some_and(|member| member.is_writable()));
        let failures = self.write_held(&used);
        let kept = self.list.len() - failures.len();
        if kept > 0 {
            let text = format!("the journal was removed from all disks: it is written anew on {kept}, nothing is lost");
            tracing::error!(pool = %self.members.name, text);
            self.members.event(EventKind::Errors, text);
        }
        if kept > 0 && failures.is_empty() { Ok(()) } else { self.replace(shared, failures) }
    }

    /// [`Self::look_by_name`], if it is time for it.
    pub fn look_if_due(&mut self, shared: &Shared) -> Result<(), LogError> {
        if self.looked.elapsed() >= LOOK_EVERY { self.look_by_name(shared) } else { Ok(()) }
    }

    /// Drops the copies that failed and puts their disks out of use; others take over.
    fn replace(&mut self, shared: &Shared, failures: Vec<(u8, io::Error)>) -> Result<(), LogError> {
        self.list.retain(|copy| failures.iter().all(|(slot, _)| *slot != copy.slot));
        for (slot, error) in &failures {
            tracing::warn!(pool = %self.members.name, slot, %error, "journal copy lost");
            self.members.write_failed(*slot, error);
        }
        if self.list.is_empty() {
            let why = failures.first().map_or_else(String::new, |(_, error)| error.to_string());
            let why = format!("no disk can write it: {why}");
            shared.state.lock().die(&why);
            return Err(LogError::Poisoned(why));
        }
        self.refresh(shared);
        if self.list.is_empty() {
            let why = "no disk is left to hold it".to_owned();
            shared.state.lock().die(&why);
            return Err(LogError::Poisoned(why));
        }
        Ok(())
    }

    /// Makes more copies where there are too few, and drops those that did not take the label.
    pub fn refresh(&mut self, shared: &Shared) {
        let (former, mut files) = {
            let mut state = shared.state.lock();
            state.segments.set_copies(self.slots());
            (state.segments.copies().to_vec(), state.segments.files().collect::<Vec<u32>>())
        };
        files.extend(self.current.as_ref().map(|current| current.file));
        self.find(&former, &files);
        if let Some(file) = self.current.as_ref().map(|current| current.file) {
            self.open_files(file);
        }
        let used: Vec<u32> = {
            let mut state = shared.state.lock();
            state.segments.set_copies(self.slots());
            state.segments.files().collect()
        };
        self.hold(&used);
    }

    // ---- their files ------------------------------------------------------------------------

    /// Writes and syncs on all copies; those that fail are replaced, and the labels say so
    /// (`journal.label_names_copies`). When it returns, all copies have the bytes durably
    /// (`journal.one_torn_batch`).
    pub fn write(&mut self, shared: &Shared, bytes: &Bytes, offset: u64) -> Result<(), LogError> {
        self.check(shared)?;
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
        let begun: Vec<_> = self.list.iter().zip(&together).map(|(copy, shared)| begin(copy, shared)).collect();
        let finish = |(copy, begun): (&Copy, Option<Result<(), Job>>)| match begun {
            None => Err(io::ErrorKind::NotConnected.into()),
            Some(Ok(())) => copy.finish(),
            Some(Err(job)) => job.run(),
        };
        let mut results: Vec<io::Result<bool>> = self.list.iter().zip(begun).map(finish).collect();
        let mut flushed = Vec::new();
        for ((copy, filesystem), result) in self.list.iter().zip(&together).zip(&mut results) {
            if let (Some(file), Ok(false)) = (&copy.file, &result)
                && filesystem.is_none_or(|filesystem| !flushed.contains(&filesystem))
            {
                *result = copy.run(Job::Flush(file.clone()));
                // Where it fails, the next copy on that filesystem flushes for the others.
                flushed.extend(filesystem.filter(|_| result.is_ok()));
            }
        }
        let failures: Vec<(u8, io::Error)> =
            self.list.iter().zip(results).filter_map(|(copy, result)| Some((copy.slot, result.err()?))).collect();
        if failures.is_empty() { Ok(()) } else { self.replace(shared, failures) }
    }

    /// For each copy, the filesystem that it shares with another. Their device would do one flush
    /// after the other, so the first of them is synced for all (`journal.one_torn_batch`). A single
    /// copy is always synced as a file of its own.
    fn flushed_together(&self) -> Vec<Option<u64>> {
        let own = |copy: &Copy| copy.file.as_ref().and_then(|file| file.flushed_together());
        let all: Vec<Option<u64>> = self.list.iter().map(own).collect();
        all.iter().map(|own| own.filter(|_| all.iter().filter(|other| *other == own).count() > 1)).collect()
    }

    /// Opens the file of the next segment on all copies, filled with zeros where it is new.
    /// Afterwards no segment is current where copies had to be replaced.
    pub fn make_files(&mut self, shared: &Shared, next: Next) -> Result<(), LogError> {
        let mut failures = Vec::new();
        for copy in &mut self.list {
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
        if failures.iter().all(|(_, error)| is_no_room(error)) && failures.len() == self.list.len() {
            shared.state.lock().segments.add_spare(next.file, 0);
            return Err(LogError::Full("the disks that hold it are full".into()));
        }
        self.current = None;
        self.replace(shared, failures)?;
        // The copies that are new have no file for this segment yet.
        for copy in &mut self.list {
            let io = self.members.member(copy.slot).and_then(|member| member.io().ok());
            let members = self.members.clone();
            copy.file = io.and_then(|io| self.members.work.on_disk(&io, move |io| make_file(&members, io, next)).ok());
        }
        Ok(())
    }

    /// Opens the current segment's file on the copies that have not opened it.
    fn open_files(&mut self, file: u32) {
        for copy in self.list.iter_mut().filter(|copy| copy.file.is_none()) {
            let io = self.members.member(copy.slot).and_then(|member| member.io().ok());
            copy.file =
                io.and_then(|io| self.members.work.on_disk(&io, move |io| io.open(&file_name(file), true)).ok());
        }
    }

    /// Holds the segments in use open, and lets go of the others.
    fn hold(&mut self, files: &[u32]) {
        for copy in &mut self.list {
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

    /// The current segment's file, opened by [`Self::make_files`], is in use from now on.
    pub fn hold_current(&mut self, file: u32) {
        for copy in &mut self.list {
            copy.held.extend(copy.file.clone().map(|open| (file, open)));
        }
    }

    /// Writes the segments that are held open to new files of their names. Returns the slots where
    /// that failed.
    fn write_held(&mut self, files: &[u32]) -> Vec<(u8, io::Error)> {
        let mut written: Vec<(u8, io::Result<Held>)> =
            self.list.iter().map(|copy| (copy.slot, Ok(Held::new()))).collect();
        let watches: Vec<Arc<Watch>> = self.list.iter().map(|copy| copy.watch.clone()).collect();
        for file in files {
            let held: Vec<Arc<dyn DiskFile>> =
                self.list.iter().filter_map(|copy| copy.held.get(file).cloned()).collect();
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
        for (copy, (slot, result)) in self.list.iter_mut().zip(written) {
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
}
