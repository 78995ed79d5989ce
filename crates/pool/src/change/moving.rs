//! Moving misplaced data: off disks that leave, and into the shape that new objects have.
//!
//! One task walks over the index, a few objects at once, and brings each to its place. Only the
//! labels say that there is work, so after a crash the task looks again. An object in its place
//! costs a look at the index.
//!
//! ```text
//!   a shard on a disk that leaves   -> copied to another disk, verified on the way, reconstructed where damaged
//!   a shard that is on no disk      -> rebuilt from the others
//!   two shards on one disk          -> one of them is copied to another disk (`misplaced.two_shards_part`)
//!   wrong shape, or no disk for it  -> the object is written anew, as a new version
//!   an overfull disk                -> a shard is copied to an emptier one
//! ```
//!
//! - `moving.durable_before_named`: a copied shard is durable in its new place before the index
//!   names it there, and is unlinked in the old place after that. A crash in between leaves two
//!   copies; the next opening unlinks one.
//! - `moving.never_beside_a_delete`: an object is not deleted while it is written anew, nor written
//!   anew while it is deleted. A delete names a version, and the new version would outlive it.
//! - `moving.forgotten_when_empty`: a disk is forgotten when a whole pass found nothing to move,
//!   nothing is being written to it, and the journal has its copies elsewhere. A task that was
//!   copying a shard to it meanwhile is refused when it names the shard in the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use larder_base::units::ByteSize;
use object_store::{MultipartUpload, PutMode, PutPayload, UpdateVersion};
use parking_lot::Mutex;

use crate::change::mover::{Moving, Pass};
use crate::core::Core;
use crate::error::PoolError;
use crate::heal::rebuilt::{Rebuild, Source};
use crate::history::EventKind;
use crate::journal;
use crate::member::member_disk::{DiskState, MemberDisk};
use crate::member::room::Avoid;
use crate::object::gather::Gather;
use crate::object::geometry::{Geometry, MIRROR_BYTES_MAX};
use crate::object::index::Object;
use crate::object::layout::Layout;
use crate::object::read::READ_BYTES_MAX;
use crate::object::refusal::Refused;
use crate::object::shard;
use crate::object::upload::Upload;
use crate::object::write::Request;

/// Objects in hand at once: enough to keep the disks busy, few enough to leave them to others.
const AT_ONCE: usize = 4;
/// Part of the time in which objects are moved while others use the pool.
const SHARE_PERCENT: u32 = 10;
/// The same where disks have failed.
const SHARE_URGENT_PERCENT: u32 = 40;
/// A move that took very long does not wait as many times as long.
const PAUSE_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Objects up to this size are written anew from memory, one at a time.
const IN_MEMORY_BYTES_MAX: u64 = 72 << 20;
/// After a pass in which something could not be moved.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a disk may be out of use before a spare takes its place: a cable that is put back is
/// not a failure.
const SPARE_AFTER: Duration = Duration::from_secs(300);
/// Disks whose fill differs by less than this are even, in thousandths.
const EVEN_PERMILLE: u64 = 20;
/// For a look at the rate of the disks.
const SAMPLE_BYTES: u64 = 32 << 20;

/// The worker: runs until the pool is closed.
pub async fn run(core: Arc<Core>) {
    while !core.is_closed() {
        let mut wait = core.replace_failed().await;
        if core.has_to_move() {
            core.mover.busy.store(true, Ordering::Release);
            let clean = core.pass().await;
            let done = clean && core.blocking(|core| core.conclude()).await.unwrap_or(false);
            core.mover.busy.store(false, Ordering::Release);
            if done {
                continue;
            }
            wait = Some(AGAIN);
        }
        match wait {
            Some(wait) => drop(tokio::time::timeout(wait, core.mover.wanted.notified()).await),
            None => core.mover.wanted.notified().await,
        }
    }
}

/// The outcome of a look at an object.
enum Look {
    InPlace,
    /// It has to be written anew.
    Misshapen,
}

/// Used and total bytes of each disk that takes data, kept up to date as shards are moved.
pub struct Fill(Mutex<Vec<(u8, u64, u64)>>);

impl Fill {
    pub fn new(disks: Vec<(u8, u64, u64)>) -> Self {
        Self(Mutex::new(disks))
    }

    /// The shards of an object that are better moved from an overfull disk to the emptiest, with
    /// their targets. Counts them as moved.
    pub fn evener(&self, geometry: &Geometry, header_bytes: u64, placed: &[(u8, u8)]) -> Vec<(u8, u8)> {
        let permille = |used: u64, total: u64| (u128::from(used) * 1000 / u128::from(total.max(1))) as u64;
        let mut fill = self.0.lock();
        let mut taken: Vec<u8> = placed.iter().map(|(_, slot)| *slot).collect();
        let mut moves = Vec::new();
        for (index, slot) in placed {
            let bytes = geometry.file_bytes(*index, header_bytes);
            let Some(own) = fill.iter().find(|(at, _, _)| at == slot).map(|(_, used, total)| permille(*used, *total))
            else {
                continue;
            };
            let after = |(_, used, total): &(u8, u64, u64)| permille(used + bytes, *total);
            let emptiest = fill.iter().filter(|(at, _, _)| !taken.contains(at)).min_by_key(|disk| after(disk)).copied();
            let Some((target, _, _)) = emptiest.filter(|disk| after(disk) + EVEN_PERMILLE < own) else { continue };
            for (at, used, _) in fill.iter_mut() {
                if *at == target {
                    *used += bytes;
                } else if at == slot {
                    *used = used.saturating_sub(bytes);
                }
            }
            taken.iter_mut().filter(|at| *at == slot).for_each(|at| *at = target);
            moves.push((*index, target));
        }
        moves
    }
}

impl Core {
    /// Something is being moved, or has to be.
    pub fn is_moving(&self) -> bool {
        self.mover.is_busy() || self.has_to_move()
    }

    pub fn has_to_move(&self) -> bool {
        let leaving = self.members.iter().any(MemberDisk::is_leaving);
        leaving || self.members.is_rebalancing() || self.mover.has_stragglers()
    }

    /// The pass under way and its progress.
    pub fn moving(&self) -> Option<Moving> {
        if !self.is_moving() {
            return None;
        }
        let path = |member: &MemberDisk| member.path.read().display().to_string();
        let mut why: Vec<String> = Vec::new();
        for leaving in self.members.iter().filter(|member| member.is_leaving()) {
            match self.members.iter().find(|member| member.replaces() == Some(leaving.id)) {
                Some(new) => why.push(format!("replacing {} with {}", path(leaving), path(new))),
                None => why.push(format!("removing {}", path(leaving))),
            }
        }
        if self.members.is_rebalancing() || why.is_empty() {
            why.push("rebalancing".to_owned());
        }
        let (objects, elapsed) =
            self.mover.pass.lock().as_ref().map_or((0, Duration::ZERO), |pass| (pass.objects, pass.started.elapsed()));
        let done = self.mover.looked_at.load(Ordering::Relaxed).min(objects);
        let left = |done: u64| (elapsed.as_secs_f64() / done as f64 * (objects - done) as f64) as u64;
        Some(Moving {
            why: why.join(", "),
            objects,
            objects_done: done,
            moved_bytes: self.mover.moved_bytes.load(Ordering::Relaxed),
            seconds: elapsed.as_secs(),
            seconds_left: (done > 0).then(|| left(done)),
            stuck: self.mover.last_error.lock().clone(),
        })
    }

    /// Gives the place of disks that have long been out of use to spares. Returns when to look
    /// again.
    async fn replace_failed(self: &Arc<Self>) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        for (slot, left) in self.waiting_for_spares() {
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            match self.blocking(move |core| core.use_spare(slot)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(pool = %self.members.name, %error, "no spare could take a place"),
                Err(_) => return None,
            }
        }
        next
    }

    /// Disks whose place spares will take, and how long they have until then to come back.
    pub fn waiting_for_spares(&self) -> Vec<(u8, Duration)> {
        if self.members.label().spares.is_empty() {
            return Vec::new();
        }
        let out =
            // A person decides about a disk that was taken offline, or has diverged.
            |member: &MemberDisk| {
                let is_asked_for = matches!(member.state(), DiskState::Offline | DiskState::Diverged);
                !member.is_readable() && !member.is_leaving() && !is_asked_for
            };
        let left = |member: &MemberDisk| SPARE_AFTER.saturating_sub(member.out_since());
        self.members.with_slots().filter(|(_, m)| out(m)).map(|(slot, m)| (slot, left(m))).collect()
    }

    // ---- one pass -----------------------------------------------------------------------------

    /// Brings every object to its place; whether all are there now.
    async fn pass(self: &Arc<Self>) -> bool {
        let objects = self.objects.index().objects.len() as u64;
        *self.mover.pass.lock() = Some(Pass { started: Instant::now(), objects });
        self.mover.looked_at.store(0, Ordering::Relaxed);
        let waiting = self
            .away()
            .map(|away| format!("{} is away: what is not moving off a disk waits for it", away.path.read().display()));
        *self.mover.last_error.lock() = waiting.unwrap_or_default();
        let fill = Arc::new(Fill::new(self.fill()));
        let clean = AtomicBool::new(true);
        let objects = futures::stream::unfold(String::new(), |after| async move {
            let object = self.next_object(&after).filter(|_| !self.is_closed())?;
            let path = object.path.clone();
            Some((object, path))
        });
        objects
            .for_each_concurrent(AT_ONCE, |object| {
                let (fill, clean) = (fill.clone(), &clean);
                async move {
                    if let Err(error) = self.settle(&object, fill).await {
                        clean.store(false, Ordering::Relaxed);
                        *self.mover.last_error.lock() = error.to_string();
                    }
                    self.mover.looked_at.fetch_add(1, Ordering::Relaxed);
                }
            })
            .await;
        clean.into_inner() && !self.is_closed()
    }

    async fn settle(self: &Arc<Self>, object: &Arc<Object>, fill: Arc<Fill>) -> Result<(), PoolError> {
        if self.is_in_place(object) {
            return Ok(());
        }
        let (of_task, began) = (object.clone(), Instant::now());
        let settled = match self.blocking(move |core| core.settle_shards(&of_task, &fill)).await?? {
            Look::InPlace => Ok(()),
            Look::Misshapen => self.write_anew(object).await,
        };
        self.let_users_by(began.elapsed()).await;
        settled
    }

    /// Waits after work that took `took`, while others use the pool: redundancy that is missing is
    /// restored with two fifths of the time, everything else with a tenth.
    async fn let_users_by(&self, took: Duration) {
        let is_urgent = self.members.iter().any(|member| member.is_leaving() && !member.is_readable());
        let share = if is_urgent { SHARE_URGENT_PERCENT } else { SHARE_PERCENT };
        let pause = (took * 100 / share).saturating_sub(took).min(PAUSE_MAX);
        let since = Instant::now();
        while since.elapsed() < pause && self.activity.is_busy() && !self.is_closed() {
            tokio::time::sleep(LOOK_EVERY.min(pause)).await;
        }
    }

    /// By the index alone; an even fill is only looked after when rebalancing.
    fn is_in_place(&self, object: &Object) -> bool {
        let stays = |(_, slot)| self.members.member(slot).is_some_and(|member| !member.is_leaving());
        !self.shapes_matter() && object.is_spread() && object.placed().all(stays)
    }

    /// Never while a disk is away: an object written without it would have to be written once more.
    fn shapes_matter(&self) -> bool {
        (self.members.is_rebalancing() || self.mover.has_stragglers()) && self.away().is_none()
    }

    /// A disk that will perhaps come back.
    fn away(&self) -> Option<&MemberDisk> {
        self.members.iter().find(|member| !member.is_leaving() && !member.is_writable())
    }

    /// Blocks.
    fn settle_shards(self: &Arc<Self>, object: &Arc<Object>, fill: &Fill) -> Result<Look, PoolError> {
        if !self.objects.index().is_current(object) {
            return Ok(Look::InPlace);
        }
        let misshapen = self.shapes_matter() && self.is_misshapen(object);
        if misshapen {
            return Ok(Look::Misshapen);
        }
        {
            let _one = self.repairs.one(object.version);
            let leaving: Vec<(u8, u8)> = object
                .placed()
                .filter(|(_, slot)| self.members.member(*slot).is_none_or(MemberDisk::is_leaving))
                .collect();
            for (index, slot) in leaving {
                let Some(target) = self.move_target(object, slot) else { return Ok(Look::Misshapen) };
                self.move_shard(object, index, target)?;
            }
        }
        // A shard on no disk was on a disk that has left for good, unless another disk is only
        // away.
        let gone = self.members.iter().any(|member| member.is_leaving() && !member.is_readable());
        if !object.is_whole() && (gone || self.away().is_none()) {
            self.repair(object, &[])?;
            if !object.is_whole() && self.objects.index().is_current(object) {
                return Ok(Look::Misshapen);
            }
        }
        if !object.crowded().is_empty() {
            self.repair(object, &[])?;
        }
        if self.members.is_rebalancing() && self.away().is_none() {
            self.even_out(object, fill)?;
        }
        Ok(Look::InPlace)
    }

    /// Copies a shard to another disk (`moving.durable_before_named`). The caller holds the
    /// object's lock. Blocks.
    fn move_shard(self: &Arc<Self>, object: &Arc<Object>, index: u8, target: u8) -> Result<(), PoolError> {
        let bytes = object.geometry.file_bytes(index, u64::from(object.header_bytes));
        match self.rebuild(object, index, target, Source::Itself) {
            Ok(()) => {
                self.mover.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(Rebuild::Read(error)) => Err(error),
            Err(Rebuild::Write(error)) => {
                let why = error.to_string();
                self.members.write_failed(target, &error);
                Err(PoolError::CannotWrite { pool: self.members.name.clone(), object: object.path.clone(), why })
            }
        }
    }

    /// Where a shard of a disk that leaves goes: to the disk that takes its place, else to the
    /// roomiest.
    fn move_target(&self, object: &Object, slot: u8) -> Option<u8> {
        let id = self.members.member(slot).map(|member| member.id);
        let successor = self.members.with_slots().find(|(_, m)| id.is_some() && m.replaces() == id && m.takes_data());
        let need = shard_need(object);
        if let Some((new, _)) = successor {
            let roomy = self
                .members
                .rooms(crate::member::member_disk::reserve_hard)
                .iter()
                .any(|(at, _, free)| *at == new && *free >= need);
            if roomy && object.placed().all(|(_, taken)| taken != new) {
                return Some(new);
            }
        }
        self.repair_target(object, None)
    }

    /// Whether it would be cut into more shards if it were written now, with all disks that there
    /// are.
    pub fn is_narrow(&self, object: &Object) -> bool {
        let disks = self.members.iter().filter(|member| member.takes_data()).count();
        let (k, m) = shape_of(self.members.layout(), self.members.width(), object.geometry.size, disks);
        object.geometry.shards() < k + m
    }

    /// Whether it would be laid out otherwise if it were written now, with all disks that there
    /// are.
    fn is_misshapen(&self, object: &Object) -> bool {
        let disks = self.members.iter().filter(|member| member.takes_data()).count();
        let (k, m) = shape_of(self.members.layout(), self.members.width(), object.geometry.size, disks);
        (object.geometry.k, object.geometry.m) != (k, m)
    }

    /// Moves shards from disks that are fuller than others to the emptiest. Blocks.
    fn even_out(self: &Arc<Self>, object: &Arc<Object>, fill: &Fill) -> Result<(), PoolError> {
        let placed: Vec<(u8, u8)> = object.placed().collect();
        for (index, target) in fill.evener(&object.geometry, u64::from(object.header_bytes), &placed) {
            let _one = self.repairs.one(object.version);
            self.move_shard(object, index, target)?;
        }
        Ok(())
    }

    /// Slot, used and total bytes of the disks that take data.
    pub fn fill(&self) -> Vec<(u8, u64, u64)> {
        let rooms = self.members.rooms(|_| 0);
        rooms.into_iter().map(|(slot, total, free)| (slot, total.saturating_sub(free), total)).collect()
    }

    // ---- writing anew -------------------------------------------------------------------------

    /// Stores the object as a new version in today's shape, unless that is the shape it has.
    async fn write_anew(self: &Arc<Self>, object: &Arc<Object>) -> Result<(), PoolError> {
        let _one = self.mover.writing_anew.lock().await;
        let geometry = object.geometry;
        let choice = self.place(geometry.size, &Avoid::default())?.choice.clone();
        let stays = |(_, slot)| self.members.member(slot).is_some_and(|member| !member.is_leaving());
        if (choice.k, choice.m) == (geometry.k, geometry.m) && object.is_whole() && object.placed().all(stays) {
            return Ok(());
        }
        if !object.begin_move() {
            return Ok(());
        }
        let result = self.copy_anew(object).await;
        object.release();
        self.mover.landed.notify_waiters();
        match result {
            Ok(()) => {
                // The new version has today's shape.
                let (new, header) = self
                    .objects
                    .index()
                    .get(&object.path)
                    .map_or((geometry, object.header_bytes), |new| (new.geometry, new.header_bytes));
                let bytes = (0..new.shards()).map(|index| new.file_bytes(index, u64::from(header))).sum();
                self.mover.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            // Another version was stored meanwhile, in today's shape.
            Err(Refused::Exists | Refused::Changed(_) | Refused::Outrun) => Ok(()),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    async fn copy_anew(self: &Arc<Self>, object: &Arc<Object>) -> Result<(), Refused> {
        let mode = PutMode::Update(UpdateVersion { e_tag: Some(object.e_tag()), version: None });
        let request =
            Request { path: object.path.clone(), attributes: self.attributes(object).await?, mode, group: None };
        let size = object.geometry.size;
        let ranges = (0..size).step_by(READ_BYTES_MAX as usize).map(|at| at..(at + READ_BYTES_MAX).min(size));
        if size <= IN_MEMORY_BYTES_MAX {
            let mut chunks = Vec::new();
            for range in ranges {
                chunks.extend(self.read_quietly(object, range).await?);
            }
            return self.put_quietly(&request, Gather::new(chunks)).await.map(drop);
        }
        let failed = |error: object_store::Error| {
            let why = error.to_string();
            Refused::Error(PoolError::CannotWrite { pool: self.members.name.clone(), object: object.path.clone(), why })
        };
        let mut upload = Upload::quiet(self.clone(), request);
        for range in ranges {
            let part: PutPayload = self.read_quietly(object, range).await?.into_iter().collect();
            upload.put_part(part).await.map_err(failed)?;
        }
        upload.complete().await.map(drop).map_err(failed)
    }

    // ---- the end ------------------------------------------------------------------------------

    /// All objects are in their places: forgets the disks that have left, and the earlier layout.
    /// Whether nothing is left to do. Blocks.
    fn conclude(self: &Arc<Self>) -> bool {
        let _one = self.mover.changing.lock();
        if self.shapes_matter() {
            self.conclude_shapes();
        }
        let leaving: Vec<u8> =
            self.members.with_slots().filter(|(_, member)| member.is_leaving()).map(|(slot, _)| slot).collect();
        if !leaving.is_empty() {
            // Its copies are elsewhere before the disk is forgotten
            // (`moving.forgotten_when_empty`).
            self.refresh_journal();
        }
        let kept = leaving.into_iter().filter(|slot| !self.forget(*slot)).count();
        let is_done = kept == 0 && !self.has_to_move();
        if is_done {
            // The next change counts for itself.
            self.mover.moved_bytes.store(0, Ordering::Relaxed);
            self.repairs.forget_repaired_bytes();
        }
        is_done
    }

    fn conclude_shapes(&self) {
        let m = self.members.layout().failures();
        let weaker = self.objects.index().objects.values().any(|object| object.geometry.m < m);
        if weaker {
            return;
        }
        self.mover.set_stragglers(false);
        self.members.write_labels(|label| {
            label.rebalancing = false;
            label.earlier = None;
        });
        self.refresh_journal();
        let (layout, width, moved) = (self.members.layout(), self.members.width(), self.moved_text());
        let text = format!("all objects are laid out as {layout} over {width} disks{moved}");
        tracing::info!(pool = %self.members.name, text);
        self.members.event(EventKind::Rebalance, text);
    }

    /// Bytes written for a change: moved from other disks, or computed anew for a disk that could
    /// not be read.
    fn moved_text(&self) -> String {
        let (moved, repaired) = (self.mover.moved_bytes.load(Ordering::Relaxed), self.repairs.repaired_bytes());
        format!("; {} written", ByteSize(moved + repaired))
    }

    /// Forgets a disk that has left, if nothing is being written to it
    /// (`moving.forgotten_when_empty`).
    fn forget(self: &Arc<Self>, slot: u8) -> bool {
        let Some(member) = self.members.member(slot).filter(|member| member.is_leaving()) else { return true };
        // A writer to it has reserved room there. A task that is choosing disks just now may not
        // have seen that it leaves.
        self.members.settle_places();
        let writing = member.pending_bytes.load(Ordering::Acquire) > 0;
        let lacking = !member.is_readable();
        let last_copy = self.members.label().journal.iter().all(|id| *id == member.id);
        if writing || last_copy || self.members.label().journal.contains(&member.id) {
            return false;
        }
        let path = member.path.read().clone();
        // Another disk that lies in its place is not touched.
        let own = self.members.identity(member);
        let is_taken = own.is_some()
            && self.members.iter().any(|other| other.id != member.id && self.members.identity(other) == own);
        let io = member.io().ok().filter(|_| !is_taken);
        {
            // A shard gets its place under this lock, and only on a disk that has not left.
            let index = self.objects.index_mut();
            let holds =
                |object: &Arc<Object>| object.placed().any(|(_, at)| at == slot) || (lacking && !object.is_whole());
            if index.objects.values().any(holds) || index.is_read_on(slot) {
                return false;
            }
            member.retire();
        }
        self.members.end_replacements();
        self.objects.files.clear();
        if !self.members.write_labels(|_| {}) {
            return false;
        }
        if let Some(io) = io
            && self.members.remove_label(&*io)
        {
            erase(&*io);
        }
        member.detach();
        tracing::info!(pool = %self.members.name, disk = %path.display(), "disk has left the pool");
        self.members
            .event(EventKind::DiskRemoved, format!("{} has left the pool{}", path.display(), self.moved_text()));
        true
    }

    // ---- figures ------------------------------------------------------------------------------

    /// Bytes a second at which shards can be read just now; `None` when there is next to nothing to
    /// read. Blocks.
    pub fn read_rate(self: &Arc<Self>) -> Option<u64> {
        let (started, mut read, mut after) = (Instant::now(), 0, String::new());
        while read < SAMPLE_BYTES && started.elapsed() < Duration::from_millis(500) {
            let Some(object) = self.next_object(&after) else { break };
            after.clone_from(&object.path);
            if let Some((index, _)) = object.placed().next()
                && self.verify_shard(&object, index)
            {
                read += object.geometry.shard_bytes(index);
            }
        }
        (read >= 1 << 20).then(|| (read as f64 / started.elapsed().as_secs_f64().max(1e-6)) as u64)
    }
}

/// `k` and `m` of an object of this size on so many disks.
pub fn shape_of(layout: Layout, width: u8, size: u64, disks: usize) -> (u8, u8) {
    let width = if size <= MIRROR_BYTES_MAX { layout.failures() + 1 } else { width };
    layout.shape(width, disks)
}

fn shard_need(object: &Object) -> u64 {
    object.geometry.file_bytes(object.geometry.k, u64::from(object.header_bytes)) + (64 << 10)
}

/// Removes everything else of the pool from a disk that has left, so that it is an empty directory
/// again. A file that cannot be removed does no harm: without a label it is no disk of a pool.
fn erase(io: &dyn crate::disk::DiskIo) {
    journal::erase(io);
    for directory in io.list("objects").unwrap_or_default() {
        let directory = format!("objects/{directory}");
        for name in io.list(&directory).unwrap_or_default() {
            if !matches!(shard::parse_name(&name), shard::Found::Unknown) {
                let _ = io.remove(&format!("{directory}/{name}"));
            }
        }
        let _ = io.remove_directory(&directory);
    }
    let _ = io.remove_directory("objects");
    // The history, the lock and their like.
    for name in io.list("").unwrap_or_default().iter().filter(|name| name.starts_with("larder.")) {
        let _ = io.remove(name);
    }
    let _ = io.sync_directory("");
}
