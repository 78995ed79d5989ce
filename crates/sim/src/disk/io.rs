//! The simulated disks as the pool sees them.

use std::any::Any;
use std::io::{self, Error, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_base::checksum::checksum;
use larder_pool::disk::watch::{CALL_SECONDS_MAX, hangs};
use larder_pool::disk::{DiskFile, DiskIo, DiskSpace};
use parking_lot::MutexGuard;
use rand::Rng;

use super::content::Content;
use super::names::Entry;
use super::{Disk, Fault, Plant, SWEEP_EVERY, State, World};

/// EIO.
const IO_ERROR: i32 = 5;
/// A write that goes astray lands this many sectors away at most.
const ASTRAY_SECTORS_MAX: u64 = 8;

pub fn no_power() -> Error {
    Error::other("power lost")
}

#[derive(Clone, Debug)]
pub struct SimDisk {
    pub world: Arc<World>,
    pub number: usize,
    pub life: u64,
    pub plug: u64,
}

/// Kinds of operations of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Sync,
}

impl SimDisk {
    /// The state, if the disk does what is asked; `Err` where it fails. A change may be the one at which power is lost: then it
    /// happens or not, and is never answered.
    fn begin(&self, kind: Kind, what: &str, name: &str) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.world.state.lock();
        if !state.has_power || state.life != self.life {
            return Err(no_power());
        }
        state.counts.operations += 1;
        let number = self.number;
        let changes = state.changes;
        let line = checksum(changes, name.as_bytes()) ^ checksum(number as u64, what.as_bytes());
        state.hash = state.hash.rotate_left(5) ^ line;
        let is_commit = kind == Kind::Sync && name.starts_with("journal/") && std::mem::take(&mut state.is_committing);
        if is_commit && let Some(left) = &mut state.kill_at_commit {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.cut();
                self.world.cut.notify_waiters();
                return Err(no_power());
            }
        }
        if kind != Kind::Read {
            state.changes += 1;
            state.settle_delayed();
            state.note(|| format!("disk{number} {what} {name}"));
            if state.cut_after.is_some_and(|after| state.changes >= after) {
                state.cut();
                self.world.cut.notify_waiters();
                // Half of the time the change was under way.
                if state.random.random() {
                    return Err(no_power());
                }
            }
        }
        if state.disks[number].plug != self.plug {
            return Err(Error::from_raw_os_error(IO_ERROR));
        }
        state.strike(number, kind)?;
        Ok(state)
    }

    fn file(&self, state: &mut State, file: u64, name: &str) -> Arc<dyn DiskFile> {
        state.disks[self.number].files.entry(file).or_default();
        Arc::new(SimFile { disk: self.clone(), file, name: name.to_owned(), is_written: AtomicBool::new(false) })
    }
}

impl State {
    /// Faults that this operation meets.
    fn strike(&mut self, number: usize, kind: Kind) -> io::Result<()> {
        let State { disks, random, counts, debt, .. } = self;
        let health = &disks[number].health;
        let mut happens = |chance: u16| chance > 0 && random.random::<u16>() < chance;
        if health.is_gone {
            return Err(Error::from_raw_os_error(IO_ERROR));
        }
        if health.hangs {
            *debt += Duration::from_secs(CALL_SECONDS_MAX);
            counts.add(Fault::Hang);
            return Err(hangs());
        }
        if !health.delay.is_zero() {
            *debt += health.delay;
            counts.add(Fault::Slow);
        }
        let (chance, fault) = match kind {
            Kind::Read => (health.read_errors, Fault::ReadError),
            Kind::Write => (health.write_errors, Fault::WriteError),
            Kind::Sync => (health.sync_errors, Fault::SyncError),
        };
        if kind != Kind::Read && health.is_read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        let fails = happens(chance);
        let rots = happens(health.rot);
        if rots {
            self.rot(number);
        }
        if fails {
            self.counts.add(fault);
            self.note(|| format!("disk{number} fails: {}", Fault::ALL[fault as usize].1));
            return Err(Error::from_raw_os_error(IO_ERROR));
        }
        Ok(())
    }

    /// Syncs that a planted bug put off happen now.
    fn settle_delayed(&mut self) {
        let now = self.changes;
        let (due, later): (Vec<_>, Vec<_>) = self.delayed.iter().partition(|(_, _, at)| *at <= now);
        self.delayed = later;
        for (disk, file, _) in due {
            self.disks[disk].sync(file);
        }
    }

    fn lies(&mut self, number: usize) -> bool {
        let lies = self.disks[number].health.lies;
        if lies {
            self.counts.add(Fault::LyingFlush);
        }
        lies
    }
}

/// An answer after the power cut never reached anybody.
fn alive(state: &State) -> io::Result<()> {
    if state.has_power { Ok(()) } else { Err(no_power()) }
}

impl DiskIo for SimDisk {
    fn seeks(&self) -> bool {
        self.number.is_multiple_of(2)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.begin(Kind::Write, "create", name)?;
        let disk = &mut state.disks[self.number];
        let file = match disk.names.get(name) {
            Ok(Entry::Directory) => return Err(ErrorKind::IsADirectory.into()),
            Ok(Entry::File(file)) => {
                disk.truncate(file);
                file
            }
            Err(_) => {
                if disk.health.no_files {
                    state.counts.add(Fault::Full);
                    let kinds = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
                    return Err(kinds[self.number % kinds.len()].into());
                }
                let file = disk.file_next;
                disk.names.set(name, Entry::File(file))?;
                disk.file_next += 1;
                file
            }
        };
        alive(&state)?;
        Ok(self.file(&mut state, file, name))
    }

    fn open(&self, name: &str, _: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.begin(Kind::Read, "open", name)?;
        let file = state.disks[self.number].names.file(name)?;
        Ok(self.file(&mut state, file, name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.begin(Kind::Write, "rename", from)?;
        state.note(|| format!("       to {to}"));
        let is_planted = state.plant == Some(Plant::RenameFirst);
        let disk = &mut state.disks[self.number];
        disk.names.rename(from, to)?;
        disk.used_bytes = None;
        if is_planted {
            disk.names.sync_last();
        }
        alive(&state)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.begin(Kind::Write, "remove", name)?;
        let disk = &mut state.disks[self.number];
        disk.names.remove(name)?;
        disk.used_bytes = None;
        disk.removals += 1;
        if disk.removals.is_multiple_of(SWEEP_EVERY) {
            disk.sweep();
        }
        alive(&state)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.begin(Kind::Read, "list", directory)?.disks[self.number].names.list(directory)
    }

    fn make_directory(&self, name: &str) -> io::Result<()> {
        {
            // Nothing changes where it exists.
            let state = self.begin(Kind::Read, "look", name)?;
            if matches!(state.disks[self.number].names.get(name), Ok(Entry::Directory)) {
                return Ok(());
            }
        }
        let mut state = self.begin(Kind::Write, "mkdir", name)?;
        state.disks[self.number].names.set(name, Entry::Directory)?;
        alive(&state)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        let mut state = self.begin(Kind::Sync, "syncdir", name)?;
        if !state.lies(self.number) && state.plant != Some(Plant::NoDirectorySync) {
            state.disks[self.number].names.sync(name);
        }
        alive(&state)
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.begin(Kind::Sync, "syncall", "")?;
        let is_planted = state.plant == Some(Plant::NoDiskSync) && state.life > 0;
        if !state.lies(self.number) && !is_planted {
            let leaves_journal = state.plant == Some(Plant::NoOpeningFlush);
            let disk = &mut state.disks[self.number];
            disk.names.sync_all();
            let journal: Vec<u64> = disk
                .names
                .files_now()
                .filter(|(name, _)| leaves_journal && name.starts_with("journal/"))
                .map(|(_, file)| file)
                .collect();
            let due = std::mem::take(&mut disk.unsynced);
            disk.unsynced.extend(due.iter().filter(|file| journal.contains(file)));
            due.into_iter().filter(|file| !journal.contains(file)).for_each(|file| disk.sync(file));
        }
        alive(&state)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let mut state = self.begin(Kind::Read, "space", "")?;
        let filesystem = state.disks[self.number].plan.filesystem;
        let sharing = state.disks.iter_mut().filter(|other| other.plan.filesystem == filesystem);
        let (total_bytes, used_bytes) = sharing.fold((0, 0), |(total, used), disk| {
            (total + disk.plan.capacity_bytes, used + disk.used_bytes() + disk.health.taken_bytes)
        });
        let free_bytes = total_bytes.saturating_sub(used_bytes);
        Ok(DiskSpace { total_bytes, free_bytes, filesystem, without_inodes: false })
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut state = self.begin(Kind::Read, "lock", "")?;
        if std::mem::replace(&mut state.disks[self.number].is_locked, true) {
            return Err(Error::new(ErrorKind::WouldBlock, "another process"));
        }
        Ok(Box::new(Lock(self.clone())))
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.number as u64))
    }
}

struct Lock(SimDisk);

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.0.world.state.lock();
        if state.life == self.0.life && state.disks[self.0.number].plug == self.0.plug {
            state.disks[self.0.number].is_locked = false;
        }
    }
}

struct SimFile {
    disk: SimDisk,
    file: u64,
    /// As it was called when it was opened; for the trace and for planted bugs.
    name: String,
    /// Something was written through this handle.
    is_written: AtomicBool,
}

impl SimFile {
    fn write(&self, bytes: &[u8], offset: u64, is_direct: bool) -> io::Result<()> {
        let number = self.disk.number;
        self.is_written.store(true, Ordering::Relaxed);
        let mut state = match self.disk.begin(Kind::Write, "write", &self.name) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let mut state = self.disk.world.state.lock();
                if state.random.random() {
                    state.late.push((number, self.file, offset, bytes.to_vec()));
                }
                return Err(error);
            }
            begun => begun?,
        };
        state.note(|| format!("       {} bytes at {offset}, direct {is_direct}", bytes.len()));
        // A file that is made ready is filled with zeros.
        state.is_committing |= self.name.starts_with("journal/") && bytes.iter().any(|byte| *byte != 0);
        let state = &mut *state;
        let disk = &mut state.disks[number];
        let length = disk.files.get(&self.file).map_or(0, Content::len);
        let end = offset + bytes.len() as u64;
        let (is_longer, full) = (end > length, disk.health.full);
        let is_refused = is_longer && full > 0 && state.random.random::<u16>() < full;
        let disk = &mut state.disks[number];
        if is_refused
            || is_longer && disk.used_bytes() + disk.health.taken_bytes + (end - length) > disk.plan.capacity_bytes
        {
            state.counts.add(Fault::Full);
            return Err(ErrorKind::StorageFull.into());
        }
        let (lost, misdirected) = (disk.health.lost, disk.health.misdirected);
        if lost > 0 && state.random.random::<u16>() < lost {
            state.counts.add(Fault::Lost);
            state.note(|| format!("disk{number} loses that write"));
            return alive(state);
        }
        let (mut file, mut place) = (self.file, offset);
        if misdirected > 0 && state.random.random::<u16>() < misdirected {
            (file, place) = state.astray(number, file, offset);
        }
        state.disks[number].write(file, place, bytes, is_direct);
        alive(state)
    }

    /// The disk said no; after a power cut the cut decides what is left.
    fn fail_sync(&self) {
        let mut state = self.disk.world.state.lock();
        let State { disks, random, has_power, life, .. } = &mut *state;
        if *has_power
            && *life == self.disk.life
            && let Some(content) = disks[self.disk.number].files.get_mut(&self.file)
        {
            content.fail_sync(random);
        }
    }

    fn sync_now(&self, state: &mut State) {
        let number = self.disk.number;
        let is_flush_alone = self.name.starts_with("journal/") && !self.is_written.load(Ordering::Relaxed);
        if state.plant == Some(Plant::NoOpeningFlush) && is_flush_alone {
            return;
        }
        if state.plant.is_some_and(|plant| plant.skips_sync(&self.name)) {
            return;
        }
        if state.plant == Some(Plant::RenameFirst) && self.name.starts_with("objects/") {
            // After the rename and the sync of its directory.
            let due = state.changes + 2;
            return state.delayed.push((number, self.file, due));
        }
        let filesystem = state.disks[number].plan.filesystem;
        state.disks[number].names.sync_file(self.file, &self.name);
        state.disks[number].sync(self.file);
        state.disks.iter_mut().filter(|disk| disk.plan.filesystem == filesystem).for_each(Disk::flush_device);
    }
}

impl State {
    /// The place that a misdirected write for `file` at `offset` hits: elsewhere in it, or in another file.
    fn astray(&mut self, number: usize, file: u64, offset: u64) -> (u64, u64) {
        self.counts.add(Fault::Misdirected);
        let State { disks, random, .. } = self;
        let sector = disks[number].plan.sector_bytes;
        let others: Vec<(String, u64)> = disks[number].names.files_now().collect();
        let (file, offset) = if random.random() && !others.is_empty() {
            let (_, other) = &others[random.random_range(0..others.len())];
            let length = disks[number].files.get(other).map_or(0, Content::len);
            (*other, offset.min(length / sector * sector))
        } else {
            (file, offset + sector * random.random_range(1..=ASTRAY_SECTORS_MAX))
        };
        self.note(|| format!("disk{number} puts that write into file {file} at {offset}"));
        (file, offset)
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let state = self.disk.begin(Kind::Read, "read", &self.name)?;
        let Some(content) = state.disks[self.disk.number].files.get(&self.file) else { return Ok(0) };
        let mut rest = content.bytes().get(offset as usize..).unwrap_or_default();
        let mut total = 0;
        for buffer in buffers {
            let count = buffer.len().min(rest.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            total += count;
        }
        Ok(total)
    }

    fn read_cached_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let is_cached = self.disk.world.state.lock().random.random::<bool>();
        if is_cached { self.read_at(buffers, offset) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    fn write_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        self.write(&bytes, offset, false)
    }

    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let has_direct = self.disk.world.state.lock().disks[self.disk.number].plan.has_direct;
        self.write(bytes, offset, has_direct).map(|()| has_direct)
    }

    fn begin_direct(&self, bytes: u64) -> io::Result<bool> {
        let number = self.disk.number;
        let mut state = self.disk.begin(Kind::Write, "allocate", &self.name)?;
        if !state.disks[number].plan.has_direct {
            return Ok(false);
        }
        let disk = &mut state.disks[number];
        let length = disk.files.get(&self.file).map_or(0, Content::len);
        let grown = bytes.saturating_sub(length);
        if disk.used_bytes() + disk.health.taken_bytes + grown > disk.plan.capacity_bytes {
            state.counts.add(Fault::Full);
            return Err(ErrorKind::StorageFull.into());
        }
        disk.allocate(self.file, bytes);
        alive(&state)?;
        Ok(true)
    }

    fn flushed_together(&self) -> Option<u64> {
        let state = self.disk.world.state.lock();
        let plan = &state.disks[self.disk.number].plan;
        plan.has_direct.then_some(plan.filesystem)
    }

    fn sync(&self) -> io::Result<()> {
        let number = self.disk.number;
        let mut state = match self.disk.begin(Kind::Sync, "sync", &self.name) {
            Ok(state) => state,
            Err(error) => {
                self.fail_sync();
                return Err(error);
            }
        };
        if !state.lies(number) {
            self.sync_now(&mut state);
        }
        alive(&state)
    }

    fn start_writeback(&self, _: u64, _: u64) {}

    fn length(&self) -> io::Result<u64> {
        let state = self.disk.begin(Kind::Read, "length", &self.name)?;
        Ok(state.disks[self.disk.number].files.get(&self.file).map_or(0, Content::len))
    }
}
