//! Repair: bringing objects back to full redundancy, in the background.
//!
//! A reader that meets a bad shard, a writer that had to leave one out, and a disk that comes back
//! all leave the object's path here; one worker rebuilds the missing and the damaged shards.
//! The queue is bounded: when it overflows, one pass over the whole index does the same.
//!
//! - `repair.temporary_name_of_its_own`: a rebuilt shard is a new file that replaces the old one by
//!   rename. The index names it only while its version is current; otherwise it is unlinked again.
//!   Until then it has a temporary name of its own kind. With that of a put, the object would look
//!   like one that was never acknowledged (`recover.newest_complete_lives`).
//! - `repair.owed_until_given`: an object that lacks a shard, and a shard that is damaged, are owed it
//!   until it is made: tried again after a while, at once where something was deleted, and listed
//!   meanwhile (`index.owed_are_listed`). The list follows from the index, so it is the same after a
//!   restart or a crash.
//! - `repair.dead_files_first`: a disk that comes back is in sync only once the dead files on it are
//!   unlinked durably. The word of an in-sync disk counts: what it still had would live again
//!   (`recover.in_sync_decides`).

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_base::units::ByteSize;
use tokio::time::Instant;

use crate::core::Core;
use crate::disk::{DiskFile, DiskIo};
use crate::error::PoolError;
use crate::heal::rebuilt::{Rebuild, Source};
use crate::history::EventKind;
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::object::attributes;
use crate::object::index::{Grave, Object};
use crate::object::read::READ_BYTES_MAX;
use crate::object::shard;
use crate::object::shard_files;

/// The time between attempts to give objects the shards that they are owed: it grows while none has
/// room. Other programs make room without a word, so the longest is what people wait for at most.
const OWED_AGAIN_MIN: Duration = Duration::from_secs(1);
const OWED_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Objects that are looked at before others have their turn.
const OWED_BATCH: usize = 256;

/// Rounds for which an object that cannot be repaired now is tried again.
const PASSES_MAX: u32 = 3;

/// The worker: runs until the pool is closed.
pub async fn run(core: Arc<Core>) {
    let (mut pause, mut tried) = (OWED_AGAIN_MIN, Instant::now());
    while !core.is_closed() {
        if core.repairs.is_owing() {
            let _ = tokio::time::timeout(pause, core.repairs.wanted.notified()).await;
        } else {
            core.repairs.wanted.notified().await;
            pause = OWED_AGAIN_MIN;
        }
        core.repairs.busy.store(true, Ordering::Release);
        core.repair_queued().await;
        let is_pass = core.repairs.take_all();
        if is_pass {
            core.repair_all().await;
        }
        if core.repairs.take_room() || is_pass {
            pause = OWED_AGAIN_MIN;
        }
        // A disk that came back may have what could not be made without it.
        if core.repairs.is_owing() && (is_pass || tried.elapsed() >= pause) {
            core.repairs.giving.store(true, Ordering::Release);
            let has_given = core.repair_owed().await;
            core.repairs.giving.store(false, Ordering::Release);
            pause = if has_given { OWED_AGAIN_MIN } else { (pause * 2).min(OWED_AGAIN_MAX) };
            tried = Instant::now();
        }
        core.repairs.busy.store(false, Ordering::Release);
    }
}

impl Core {
    async fn repair_queued(self: &Arc<Self>) {
        while let Some((path, shards)) = self.repairs.pop() {
            if self.is_closed() {
                return;
            }
            let object = self.objects.index().get(&path).cloned();
            if let Some(object) = object {
                let bad = shards.iter().filter(|(version, _)| *version == object.version).map(|(_, i)| *i).collect();
                if !self.repair_logged(object, bad).await {
                    // An attempt that fails cannot mend the damage that it met itself: repeating it
                    // at once would never end.
                    self.repairs.forget(&path);
                }
            }
        }
    }

    /// Tries each object that is owed shards, where some disk has room for one; whether one was made
    /// (`repair.owed_until_given`).
    async fn repair_owed(self: &Arc<Self>) -> bool {
        let repaired = self.repairs.repaired();
        let mut is_owing = false;
        for (path, shards) in self.repairs.deferred() {
            let object = self.objects.index().get(&path).cloned();
            let is_left = match object {
                Some(object) if !self.is_closed() => self.repair_deferred(object, &shards).await,
                _ => false,
            };
            if !is_left {
                self.repairs.forget_deferred(&path);
            }
        }
        let mut after = 0;
        loop {
            let batch = self.objects.index().owed_after(after, OWED_BATCH);
            let Some(last) = batch.last() else { break };
            after = last.version;
            let may_have =
                |object: &&Arc<Object>| self.could_have_more(object) && !self.repairs.is_unreadable(object.version);
            for object in batch.iter().filter(may_have) {
                if self.is_closed() {
                    return false;
                }
                is_owing = true;
                if self.repair_target(object, None).is_some() {
                    self.repair_logged(object.clone(), Vec::new()).await;
                }
            }
            self.repair_queued().await;
            tokio::task::yield_now().await;
        }
        self.repairs.set_owing(is_owing || self.repairs.deferred_count() > 0);
        self.repairs.repaired() > repaired
    }

    /// Makes damaged shards anew that could not be before; whether some are left.
    async fn repair_deferred(self: &Arc<Self>, object: Arc<Object>, shards: &[(u64, u8)]) -> bool {
        let bad: Vec<u8> =
            shards.iter().filter(|(version, _)| *version == object.version).map(|(_, index)| *index).collect();
        self.repair_logged(object.clone(), bad.clone()).await;
        // Lost bytes are listed as such.
        if self.repairs.is_unreadable(object.version) {
            return false;
        }
        let is_left = move |core: &Arc<Self>| {
            let is_bad = |index: &u8| object.slot(*index).is_some() && !core.is_well(&object, *index);
            !object.is_dead() && bad.iter().any(is_bad)
        };
        self.blocking(is_left).await.unwrap_or(true)
    }

    /// Some disk that takes data has no shard of it yet.
    fn could_have_more(&self, object: &Object) -> bool {
        let is_free =
            |(slot, member): (u8, &MemberDisk)| member.takes_data() && object.placed().all(|(_, taken)| taken != slot);
        self.members.with_slots().any(is_free)
    }

    /// Objects that are owed shards, and those with damaged ones that could not be made anew yet.
    pub fn owed_objects(&self) -> u64 {
        (self.objects.index().owed_count() + self.repairs.deferred_count()) as u64
    }

    /// An object was to be repaired: if it still lacks a shard, it is owed that
    /// (`repair.owed_until_given`).
    fn note_owed(&self, object: &Arc<Object>) {
        if object.is_spread() {
            return;
        }
        let is_known = self.members.iter().all(|member| member.is_readable());
        let is_owed = {
            let mut index = self.objects.index_mut();
            index.is_owed(object) || is_known && index.owe(object)
        };
        if is_owed && self.could_have_more(object) {
            self.repairs.set_owing(true);
        }
    }

    /// One pass over the index; then disks that were being resilvered are up to date.
    async fn repair_all(self: &Arc<Self>) {
        self.repairs.forget_unreadable();
        // A disk that comes back in the middle of a pass has to wait for the next.
        let returning = |member: &MemberDisk| member.state() == DiskState::Resilvering;
        let due: Vec<u8> = self.members.with_slots().filter(|(_, m)| returning(m)).map(|(slot, _)| slot).collect();
        for _ in 0..PASSES_MAX {
            let mut after = String::new();
            let mut clean = true;
            self.repairs.total.store(self.objects.index().objects.len() as u64, Ordering::Relaxed);
            self.repairs.checked.store(0, Ordering::Relaxed);
            while let Some(object) = self.next_object(&after) {
                if self.is_closed() {
                    return;
                }
                after.clone_from(&object.path);
                self.repairs.checked.fetch_add(1, Ordering::Relaxed);
                let bad = self.verify_suspects(&object).await;
                if !object.is_spread() || !bad.is_empty() {
                    clean &= self.repair_logged(object, bad).await;
                }
                self.repair_queued().await;
            }
            if clean {
                break;
            }
        }
        if !due.is_empty() {
            self.objects.graveyard.barrier().await;
            let _ = self.blocking(move |core| core.finish_resilver(&due)).await;
        }
    }

    /// Shards that were removed while the pool was closed. They are counted like those that a scrub
    /// misses.
    pub fn count_missing_shards(&self) {
        let incomplete: Vec<Arc<Object>> =
            self.objects.index().objects.values().filter(|object| !object.is_whole()).cloned().collect();
        let mut unknown = 0;
        for object in incomplete {
            let missing: Vec<u8> =
                (0..object.geometry.shards()).filter(|index| object.slot(*index).is_none()).collect();
            let without = |slot: u8| object.placed().all(|(_, taken)| taken != slot);
            let disks: Vec<&MemberDisk> =
                self.members.with_slots().filter(|(slot, _)| without(*slot)).map(|(_, member)| member).collect();
            // With more disks than shards it is unknown which of the disks had it.
            if disks.len() > missing.len() {
                unknown += missing.len();
                continue;
            }
            for (index, member) in missing.iter().zip(disks) {
                self.members.count_error(member, ErrorKind::Checksum, &format!("{} is gone", object.file_name(*index)));
            }
        }
        if unknown > 0 {
            let text = format!("{unknown} shards are gone from disks that are not known: they are made anew");
            tracing::warn!(pool = %self.members.name, "{text}");
            self.members.event(EventKind::Errors, text);
        }
    }

    /// The shards of an object that lie on suspect disks and are damaged.
    async fn verify_suspects(self: &Arc<Self>, object: &Arc<Object>) -> Vec<u8> {
        if !self.members.iter().any(MemberDisk::is_suspect) {
            return Vec::new();
        }
        let object = object.clone();
        let verify = move |core: &Arc<Self>| {
            let in_doubt = |slot| core.members.member(slot).is_some_and(|m| m.is_suspect() && m.is_readable());
            let placed = object.placed().filter(|(_, slot)| in_doubt(*slot)).map(|(index, _)| index);
            placed.filter(|index| !core.verify_shard(&object, *index)).collect()
        };
        self.blocking(verify).await.unwrap_or_default()
    }

    pub fn next_object(&self, after: &str) -> Option<Arc<Object>> {
        use std::ops::Bound;
        let index = self.objects.index();
        let mut range = index.objects.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        // The empty path is an object like any other, but no request can name it.
        range.next().map(|(_, object)| object.clone())
    }

    /// Every living object that can have a shard has it, or is known to lack it. So a disk that is
    /// still in use has everything that it missed. The files that it should not have were sent to the
    /// reaper, which has come to the last of them (`repair.dead_files_first`).
    fn finish_resilver(self: &Arc<Self>, due: &[u8]) {
        let keepers = self.unlink_stubborn();
        let due = due.iter().filter(|slot| !keepers.contains(slot));
        let back = due.filter_map(|slot| self.members.member(*slot));
        let back: Vec<&MemberDisk> = back
            .filter(|member| member.state() == DiskState::Resilvering)
            .filter(|member| member.io().and_then(|io| io.sync_all()).is_ok())
            .collect();
        for member in &back {
            member.suspect.store(false, Ordering::Release);
            member.in_sync.store(true, Ordering::Release);
        }
        self.members.write_labels(|_| {});
        // Redundancy is complete when the journal has all its copies, too.
        self.refresh_journal();
        let narrow = self.narrow_text();
        for member in back.iter().filter(|member| member.state() == DiskState::Resilvering) {
            member.set_state(DiskState::Online);
            member.forget_why_out();
            let bytes = ByteSize(member.resilvered_bytes.load(Ordering::Relaxed));
            self.members
                .event(EventKind::Resilvered, format!("{}: {bytes} made anew{narrow}", member.path.read().display()));
        }
    }

    /// Objects written while disks were away keep their shape, like objects written before disks
    /// were added.
    fn narrow_text(&self) -> String {
        let narrow = self.objects.index().objects.values().filter(|object| self.is_narrow(object)).count();
        match narrow {
            0 => String::new(),
            1 => format!(
                "; 1 object lies on fewer disks than a new one would, until: larder pool rebalance {}",
                self.members.name
            ),
            _ => format!(
                "; {narrow} objects lie on fewer disks than new ones would, until: larder pool rebalance {}",
                self.members.name
            ),
        }
    }

    async fn repair_logged(self: &Arc<Self>, object: Arc<Object>, bad: Vec<u8>) -> bool {
        let path = object.path.clone();
        let geometry = object.geometry;
        let repair = move |core: &Arc<Self>| {
            let repaired = core.repair(&object, &bad).inspect_err(|_| {
                core.note_short(&object);
                core.repairs.note_unreadable(object.version);
            });
            core.note_owed(&object);
            repaired
        };
        match self.blocking(repair).await.and_then(|result| result) {
            Ok(mended) => {
                self.repairs.repaired.fetch_add(mended.len() as u64, Ordering::Relaxed);
                let bytes = mended.iter().map(|index| geometry.shard_bytes(*index)).sum();
                self.repairs.repaired_bytes.fetch_add(bytes, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tracing::warn!(pool = %self.members.name, object = %path, %error, "cannot repair");
                false
            }
        }
    }

    /// Finds or rebuilds the shards in `bad` and those that are on no disk, and moves shards that
    /// share a disk. Returns the shards that are well now. Blocks.
    pub fn repair(self: &Arc<Self>, object: &Arc<Object>, bad: &[u8]) -> Result<BTreeSet<u8>, PoolError> {
        let _one = self.repairs.one(object.version);
        let (mut mended, mut failed) = (BTreeSet::new(), None);
        // All that can be found is found before anything is computed from it.
        let incomplete: Vec<u8> = (0..object.geometry.shards())
            // Read again first: it may have been repaired since, or been no damage.
            .filter(|index| object.slot(*index).is_none() || bad.contains(index) && !self.is_well(object, *index))
            .collect();
        let (found, incomplete): (Vec<u8>, Vec<u8>) =
            incomplete.into_iter().partition(|index| self.find_again(object, *index));
        mended.extend(&found);
        for index in incomplete {
            let defer = || {
                if object.slot(index).is_some() {
                    self.repairs.defer(&object.path, object.version, index);
                }
            };
            let Some(target) = self.repair_target(object, object.slot(index)) else {
                defer();
                continue;
            };
            match self.rebuild(object, index, target, Source::Others) {
                Ok(()) => drop(mended.insert(index)),
                Err(Rebuild::Write(error)) => {
                    self.members.write_failed(target, &error);
                    defer();
                }
                // Another shard may be damaged at other places.
                Err(Rebuild::Read(error)) => failed = Some(error),
            }
        }
        match self.spread(object, &found) {
            Ok(moved) => mended.extend(moved),
            Err(error) => failed = Some(error),
        }
        failed.map_or(Ok(mended), Err)
    }

    /// Where a shard is rebuilt: its own disk, else the roomiest that holds no other shard of the
    /// object.
    pub fn repair_target(&self, object: &Object, own: Option<u8>) -> Option<u8> {
        if let Some(own) = own
            && self.members.member(own).is_some_and(|member| member.is_writable())
        {
            return Some(own);
        }
        let taken: Vec<u8> = object.placed().map(|(_, slot)| slot).collect();
        let need = object.geometry.file_bytes(object.geometry.k, u64::from(object.header_bytes)) + (64 << 10);
        self.members
            .rooms(crate::member::member_disk::reserve_hard)
            .into_iter()
            .filter(|(slot, _, free)| !taken.contains(slot) && *free >= need)
            .max_by_key(|(_, _, free)| *free)
            .map(|(slot, _, _)| slot)
    }

    pub fn rebuild(
        self: &Arc<Self>,
        object: &Arc<Object>,
        index: u8,
        target: u8,
        source: Source,
    ) -> Result<(), Rebuild> {
        let header = self.header_of(object).map_err(Rebuild::Read)?;
        let io = self.members.member(target).ok_or(io::ErrorKind::NotFound).map_err(io::Error::from)?.io()?;
        let temp = shard::rebuilt_name(&object.path, object.version, index);
        let (directory, name) = (shard::directory(&object.path), temp.clone());
        let file = self.members.work.on_disk(&io, move |io| {
            io.make_directory("objects")?;
            io.make_directory(&directory)?;
            io.create(&name)
        })?;
        let result = self.write_rebuilt(object, index, &io, &file, source);
        let result = result.and_then(|()| {
            let header = object.header(index, header).encode();
            let (temp, name, directory) = (temp.clone(), object.file_name(index), shard::directory(&object.path));
            Ok(self.members.work.on_disk(&io, move |io| {
                file.write_at(&mut [IoSlice::new(&header)], 0)?;
                file.sync()?;
                shard_files::rename_shard(io, &temp, &name)?;
                io.sync_directory(&directory)
            })?)
        });
        if let Err(error) = result {
            let _ = self.members.work.on_disk(&io, move |io| io.remove(&temp));
            return Err(error);
        }
        self.publish(object, index, target)?;
        if let Some(member) = self.members.member(target).filter(|member| member.state() == DiskState::Resilvering) {
            let bytes = object.geometry.file_bytes(index, u64::from(object.header_bytes));
            member.resilvered_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives a rebuilt shard its name and its place in the index
    /// (`repair.temporary_name_of_its_own`). An error when the disk has left the pool meanwhile;
    /// then nothing changes (`moving.forgotten_when_empty`).
    pub fn publish(&self, object: &Arc<Object>, index: u8, target: u8) -> io::Result<()> {
        let mut current = self.objects.index_mut();
        if self.members.member(target).is_none() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the disk has left the pool"));
        }
        if current.is_current(object) {
            let before = object.slot(index).filter(|before| *before != target);
            object.set_slot(index, target);
            current.settle(object);
            drop(current);
            if let Some(slot) = before {
                let (file, version) = (object.file_name(index), object.version);
                self.objects.graveyard.send(vec![Grave {
                    slot,
                    file,
                    version,
                    index,
                    of: Some(object.path.clone()),
                    is_copy: false,
                }]);
            }
        } else {
            drop(current);
            let (file, version) = (object.file_name(index), object.version);
            self.objects.graveyard.send(vec![Grave { slot: target, file, version, index, of: None, is_copy: false }]);
        }
        self.objects.files.remove(&(target, object.version, index));
        Ok(())
    }

    fn header_of(&self, object: &Object) -> Result<Vec<(String, String)>, PoolError> {
        if !object.has_attributes {
            return Ok(Vec::new());
        }
        match object.attributes.get() {
            Some(known) => Ok(attributes::to_pairs(known)),
            None => Ok(self.read_header(object)?.attributes),
        }
    }

    fn write_rebuilt(
        self: &Arc<Self>,
        object: &Arc<Object>,
        index: u8,
        io: &Arc<dyn DiskIo>,
        file: &Arc<dyn DiskFile>,
        source: Source,
    ) -> Result<(), Rebuild> {
        let seed = shard::shard_seed(self.members.id, object.version, index);
        let length = object.geometry.shard_bytes(index);
        let block_bytes = object.geometry.block_bytes();
        let step = (READ_BYTES_MAX / u64::from(object.geometry.k)).next_multiple_of(block_bytes);
        let mut at = 0;
        while at < length {
            let end = (at + step).min(length);
            let bytes = self.read_watched(object, move |core, object| match source {
                Source::Itself => core.read_or_reconstruct(object, index, at..end),
                Source::Others => core.reconstruct(object, index, at..end),
            });
            let bytes = bytes.and_then(|bytes| bytes).map_err(Rebuild::Read)?;
            assert_eq!(bytes.len() as u64, end - at, "a rebuilt shard has no holes");
            let first = at / block_bytes;
            let sums: Vec<[u8; 8]> = bytes
                .chunks(block_bytes as usize)
                .zip(first..)
                .map(|(chunk, block)| {
                    larder_base::checksum::checksum(shard::block_seed(seed, block), chunk).to_le_bytes()
                })
                .collect();
            let offset = object.geometry.block_offset(u64::from(object.header_bytes), first);
            let (file, written_bytes) = (file.clone(), end - at);
            self.members.work.on_disk(io, move |_| {
                let mut buffers = Vec::with_capacity(sums.len() * 2);
                for (chunk, sum) in bytes.chunks(block_bytes as usize).zip(&sums) {
                    buffers.extend([IoSlice::new(chunk), IoSlice::new(sum)]);
                }
                file.write_at(&mut buffers, offset)?;
                file.start_writeback(offset, written_bytes);
                Ok(())
            })?;
            at = end;
        }
        Ok(())
    }
}
