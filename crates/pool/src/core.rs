//! What all parts of an open pool share: members, index, labels, room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use crate::change::mover::Mover;
use crate::disk::activity::Activity;
use crate::disk::buffer::Buffers;
use crate::disk::watch::{HANGS, Watch, hangs};
use crate::disk::work::Work;
use crate::disk::{DiskFile, DiskIo, DiskOpener, PROBE_NAME};
use crate::error::PoolError;
use crate::heal::repair_queue::RepairQueue;
use crate::heal::scrub::Scrubs;
use crate::history::{EventKind, History};
use crate::journal;
use crate::member::label::{self, Label};
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk, reserve_hard, reserve_soft};
use crate::member::reserve::{self, Reserves};
use crate::member::slots::Members;
use crate::object::index::{Grave, Graveyard, Index, Object};
use crate::object::layout::Layout;
use crate::object::placement::{self, Choice, Room};
use crate::object::shard_files::OBJECTS;

/// Objects being written at once: bounds threads and memory, far above what a disk needs.
pub const WRITERS_MAX: usize = 16;
/// Blocking reads at once.
const READERS_MAX: usize = 64;
/// Locks that order commits of one path.
const COMMIT_LOCKS: usize = 64;
/// Files kept open for reading; each may hold two descriptors, with and without the kernel's cache.
const OPEN_FILES_MAX: usize = 384;

/// Disks that begin to hang within so many seconds do so together.
const HANG_MARGIN: u64 = 5;

/// While somebody may still want what the journal has lost (J7).
const UNPROVEN: &str = "the pool was opened although acknowledged changes were lost (see the history): data that no file refers to \
    is kept until it is cleared with: larder pool clear";

/// How often absent disks are looked for.
const RECONNECT_EVERY: Duration = Duration::from_secs(5);

/// Of a disk that is brought up to date like one that was away.
pub const LOST_OBJECTS: &str = "its folder 'objects' is gone: what lay there is made anew";

/// Identifies an open shard file: disk, version, shard.
pub type FileKey = (u8, u64, u8);

pub struct Core {
    pub id: Uuid,
    pub name: String,
    shape: RwLock<Shape>,
    pub members: Members,
    pub index: RwLock<Index>,
    pub graveyard: Graveyard,
    /// Deleted versions whose tombstones are not trimmed, by path (W5).
    pub gone: Mutex<BTreeMap<String, u64>>,
    pub opener: Arc<dyn DiskOpener>,
    pub work: Work,
    pub owner: String,
    /// The label as last written; its `disk` field means nothing here.
    label: Mutex<Label>,
    /// The last batch of the journal that is durable on all its copies (B5).
    pub journal_batch: AtomicU64,
    version_next: AtomicU64,
    pub files: Cache<FileKey, Arc<dyn DiskFile>>,
    pub buffers: Arc<Buffers>,
    pub writers: Semaphore,
    pub readers: Semaphore,
    pub commits: Vec<tokio::sync::Mutex<()>>,
    pub repairs: RepairQueue,
    pub reserves: Reserves,
    pub mover: Mover,
    /// Held while the disks or the layout are changed: one change at a time.
    pub changing: Mutex<()>,
    pub history: History,
    pub activity: Activity,
    pub scrubs: Scrubs,
    pub closed: AtomicBool,
    /// Its disks are no longer ours.
    is_given_back: AtomicBool,
    placing: Mutex<u64>,
    /// Held while it is decided whether a disk that leaves is out of sync.
    leaving: Mutex<()>,
    /// Whoever may be about to say on the labels that a disk is out of use (D1).
    untold: AtomicUsize,
    /// Held while disks are taken back.
    pub returning: Mutex<()>,
    reconnected: Mutex<Option<Instant>>,
    /// Versions that were refused after some of their shards had a name: one may be found at the next opening, so whoever
    /// deletes the path deletes it, too.
    pub refused: Mutex<BTreeMap<String, Object>>,
    /// Files that a disk would not unlink (T1).
    pub stubborn: Mutex<Vec<Grave>>,
    /// A disk whose word counts has failed to sync what was unlinked. A second sync may tell of success without it, so
    /// tombstones stay until the pool is opened again (T1).
    pub unsynced: AtomicBool,
    notes: Mutex<Vec<Note>>,
    /// Told of disks that are in sync again.
    pub journal: OnceLock<Weak<journal::Shared>>,
    /// Told when the way to a disk was closed (H1).
    hangs: Notify,
    /// Held by a check: one at a time, so that a disk that hangs does not gather them.
    pub checking: Mutex<()>,
}

/// Something an administrator should know: foreign disks and the like.
#[derive(Debug)]
struct Note {
    text: String,
    /// The member at whose place it was found: told until that one is up to date, or has left.
    of: Option<Uuid>,
}

impl Note {
    /// Each begins with the path that it is about.
    fn new(text: String, members: &[MemberDisk]) -> Self {
        let is_about = |member: &&MemberDisk| {
            let path = member.path.read().display().to_string();
            text.strip_prefix(&path).is_some_and(|rest| rest.starts_with([':', ' ', ',']))
        };
        let of = members.iter().find(is_about).map(|member| member.id);
        Self { text, of }
    }
}

/// How objects are laid out.
#[derive(Clone, Copy, Debug)]
struct Shape {
    layout: Layout,
    width: u8,
    /// Objects of this layout may be left.
    earlier: Option<Layout>,
}

impl Shape {
    fn of(label: &Label) -> Self {
        Self { layout: label.layout, width: label.width, earlier: label.earlier }
    }

    fn failures_min(&self) -> u8 {
        self.earlier.map_or(u8::MAX, Layout::failures).min(self.layout.failures())
    }

    fn failures_max(&self) -> u8 {
        self.earlier.map_or(0, Layout::failures).max(self.layout.failures())
    }
}

/// Slots of disks that do not answer any more; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hanging(pub Vec<u8>);

impl Hanging {
    /// Each with the error that its call would have ended with.
    pub fn failures(self) -> impl Iterator<Item = (u8, std::io::Error)> {
        self.0.into_iter().map(|slot| (slot, hangs()))
    }
}

/// What [`Core::new`] starts from.
pub struct Start {
    pub label: Label,
    pub members: Vec<MemberDisk>,
    pub opener: Arc<dyn DiskOpener>,
    pub owner: String,
    pub index: Index,
    pub graveyard: Graveyard,
    pub notes: Vec<String>,
}

impl Core {
    pub fn new(start: Start) -> Self {
        let Start { label, members, opener, owner, index, graveyard, notes } = start;
        let notes = notes.into_iter().map(|text| Note::new(text, &members)).collect();
        Self {
            id: label.pool,
            name: label.name.clone(),
            shape: RwLock::new(Shape::of(&label)),
            members: Members::new(members),
            index: RwLock::new(index),
            graveyard,
            gone: Mutex::default(),
            work: opener.work(),
            opener,
            owner,
            version_next: AtomicU64::new(0),
            journal_batch: AtomicU64::new(label.journal_batch),
            label: Mutex::new(label),
            files: Cache::new(OPEN_FILES_MAX),
            buffers: Arc::default(),
            writers: Semaphore::new(WRITERS_MAX),
            readers: Semaphore::new(READERS_MAX),
            commits: (0..COMMIT_LOCKS).map(|_| tokio::sync::Mutex::new(())).collect(),
            repairs: RepairQueue::default(),
            reserves: Reserves::default(),
            mover: Mover::default(),
            changing: Mutex::new(()),
            history: History::default(),
            activity: Activity::default(),
            scrubs: Scrubs::default(),
            closed: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
            placing: Mutex::new(0),
            leaving: Mutex::new(()),
            untold: AtomicUsize::new(0),
            returning: Mutex::new(()),
            reconnected: Mutex::new(Some(Instant::now())),
            refused: Mutex::default(),
            stubborn: Mutex::default(),
            unsynced: AtomicBool::new(false),
            notes: Mutex::new(notes),
            journal: OnceLock::new(),
            hangs: Notify::new(),
            checking: Mutex::new(()),
        }
    }

    /// What was found when the pool was opened and is still so.
    pub fn notes(&self) -> Vec<String> {
        let is_well = |member: &MemberDisk| member.state() == DiskState::Online && member.is_in_sync();
        let is_over = |id: Uuid| self.members.iter().find(|member| member.id == id).is_none_or(is_well);
        let mut notes = self.notes.lock();
        notes.retain(|note| note.of.is_none_or(|id| !is_over(id)));
        let unproven = self.label.lock().unproven.then(|| UNPROVEN.to_owned());
        notes.iter().map(|note| note.text.clone()).chain(unproven).collect()
    }

    pub fn member(&self, slot: u8) -> Option<&MemberDisk> {
        self.members.get(slot)
    }

    /// What new objects are given.
    pub fn layout(&self) -> Layout {
        self.shape.read().layout
    }

    /// How many disks an object is laid over at most.
    pub fn width(&self) -> u8 {
        self.shape.read().width
    }

    /// Disks that may fail without loss: what every object survives, those of an earlier layout included.
    pub fn failures(&self) -> u8 {
        self.shape.read().failures_min()
    }

    /// Copies of the journal.
    pub fn journal_copies(&self) -> usize {
        usize::from(self.shape.read().failures_max()) + 1
    }

    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.load(Ordering::Acquire) { Err(PoolError::Closed(self.name.clone())) } else { Ok(()) }
    }

    /// Versions of this session start beyond all earlier ones. Called when the first label of the
    /// session is on the disks: its generation makes versions unique over restarts, its nonce over
    /// splits (H1).
    pub fn begin_session(&self) {
        let label = self.label.lock();
        let first = (label.generation << 40) | ((label.nonce & 0xfff) << 28);
        self.version_next.store(first + 1, Ordering::Relaxed);
    }

    /// A session whose label no disk took, all being full, has used its generation, and the next one has the same: its versions
    /// start beyond all that are known, or a tombstone would name them, too (W5).
    pub fn skip_versions(&self, known: u64) {
        const SESSION_BITS: u32 = 40;
        const GENERATION_MAX: u64 = u64::MAX >> SESSION_BITS;
        let first = self.version_next.load(Ordering::Relaxed);
        if known >= first {
            let generation = ((known >> SESSION_BITS) + 1).min(GENERATION_MAX);
            let in_session = first & ((1 << SESSION_BITS) - 1);
            self.version_next.store((generation << SESSION_BITS) | in_session, Ordering::Relaxed);
        }
    }

    pub fn version_next(&self) -> u64 {
        self.version_next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn commit_lock(&self, path: &str) -> &tokio::sync::Mutex<()> {
        let at = xxhash_rust::xxh3::xxh3_64(path.as_bytes()) as usize % self.commits.len();
        &self.commits[at]
    }

    /// Disks that can be written at all, full or not.
    pub fn writable(&self) -> usize {
        self.members.iter().filter(|member| member.is_writable()).count()
    }

    /// Runs blocking work on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let core = self.clone();
        self.work.blocking(move || work(&core)).await.ok_or_else(|| PoolError::Cancelled(self.name.clone()))
    }

    /// As `blocking`, but waits no longer than the disks at these slots answer (H1). Where one does not any more, `work` goes
    /// on without anybody who waits for it: it must not hold what others need.
    pub async fn blocking_on<T: Send + 'static>(
        self: &Arc<Self>,
        slots: impl IntoIterator<Item = u8>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<Result<T, Hanging>, PoolError> {
        match self.while_answering(slots, self.blocking(work)).await {
            Ok(done) => done.map(Ok),
            Err(hanging) => Ok(Err(hanging)),
        }
    }

    /// Waits for `work`, but no longer than the disks at these slots answer (H1).
    pub async fn while_answering<T>(
        &self,
        slots: impl IntoIterator<Item = u8>,
        work: impl Future<Output = T>,
    ) -> Result<T, Hanging> {
        let watches = self.watches(slots);
        tokio::select! {
            biased;
            done = work => Ok(done),
            hanging = self.until_closed(&watches) => Err(hanging),
        }
    }

    /// Those of the disks at these slots that answer, as far as is known.
    fn watches(&self, slots: impl IntoIterator<Item = u8>) -> Vec<(u8, Arc<Watch>)> {
        let watches = slots.into_iter().filter_map(|slot| Some((slot, self.member(slot)?.watch())));
        watches.filter(|(_, watch)| !watch.is_closed()).collect()
    }

    async fn until_closed(&self, watches: &[(u8, Arc<Watch>)]) -> Hanging {
        loop {
            let mut told = std::pin::pin!(self.hangs.notified());
            told.as_mut().enable();
            let closed = watches.iter().filter(|(_, watch)| watch.is_closed());
            let closed: Vec<u8> = closed.map(|(slot, _)| *slot).collect();
            if !closed.is_empty() {
                return Hanging(closed);
            }
            told.await;
        }
    }

    /// Does `work`, which reads these shards of an object, again and again without the disks that turn out to hang. Blocks.
    pub fn read_watched<T: Send + 'static>(
        self: &Arc<Self>,
        object: &Arc<Object>,
        work: impl Fn(&Arc<Self>, &Object) -> T + Clone + Send + 'static,
    ) -> Result<T, PoolError> {
        let slots: Vec<u8> = object.placed().map(|(_, slot)| slot).collect();
        let object = object.clone();
        self.without_hanging(&slots, move |core| work(core, &object))
    }

    /// Does `work`, which reads from the disks at these slots, again and again without those that turn out to hang. Blocks.
    pub fn without_hanging<T: Send + 'static>(
        self: &Arc<Self>,
        slots: &[u8],
        work: impl Fn(&Arc<Self>) -> T + Clone + Send + 'static,
    ) -> Result<T, PoolError> {
        for _ in 0..=slots.len() {
            let watches = self.watches(slots.iter().copied()).into_iter().map(|(_, watch)| watch);
            let (watches, core, work) = (watches.collect::<Vec<Arc<Watch>>>(), self.clone(), work.clone());
            if let Some(done) = self.work.watched(&watches, move || work(&core)) {
                return Ok(done);
            }
        }
        Err(PoolError::Cancelled(self.name.clone()))
    }

    // ---- room -------------------------------------------------------------------------------

    /// (total, free) of every disk that takes data; disks on one filesystem share its room. `reserve`
    /// is kept off the free room.
    pub fn rooms(&self, reserve: fn(u64) -> u64) -> Vec<(u8, u64, u64)> {
        let mut sharing: BTreeMap<u64, u64> = BTreeMap::new();
        let spaces: Vec<_> = self
            .members
            .with_slots()
            .filter(|(_, member)| member.takes_data())
            .map(|(slot, member)| (slot, member, member.space()))
            .collect();
        for (_, _, space) in &spaces {
            *sharing.entry(space.filesystem).or_default() += 1;
        }
        spaces
            .into_iter()
            .map(|(slot, member, space)| {
                let share = sharing.get(&space.filesystem).copied().unwrap_or(1).max(1);
                let total = space.total_bytes / share;
                let pending = member.pending_bytes.load(Ordering::Relaxed);
                let full = member.is_full();
                let free = (space.free_bytes / share).saturating_sub(reserve(total)).saturating_sub(pending);
                (slot, total, if full { 0 } else { free })
            })
            .collect()
    }

    /// Object bytes stored plus available, and those available: what can really be written.
    pub fn space(&self) -> (u64, u64) {
        let rooms = self.rooms(reserve_soft);
        let free: Vec<u64> = rooms.iter().map(|(_, _, free)| *free).collect();
        let available = placement::capacity(self.layout(), self.width(), &free, free.len());
        // Checksums take 8 bytes of 32 KiB, headers and filesystem metadata a little more.
        let available = available - available / 512;
        (self.index.read().bytes + available, available)
    }

    /// Disks without room for data of users.
    pub fn full_disks(&self) -> Vec<Uuid> {
        let rooms = self.rooms(reserve_soft);
        let full = rooms.iter().filter(|(_, _, free)| *free == 0);
        full.filter_map(|(slot, _, _)| Some(self.member(*slot)?.id)).collect()
    }

    /// Disks without room, as a sentence that is empty where there are none: others may have filled their filesystems.
    fn without_room(&self) -> String {
        let rooms = self.rooms(reserve_hard).into_iter().filter(|(_, _, free)| *free == 0);
        let paths: Vec<String> =
            rooms.filter_map(|(slot, _, _)| Some(self.member(slot)?.path.read().display().to_string())).collect();
        if paths.is_empty() { String::new() } else { format!(" (no room on {})", paths.join(", ")) }
    }

    /// Some disk has so little room that whoever deletes waits for what becomes free.
    pub fn is_tight(&self) -> bool {
        self.rooms(reserve_soft).iter().any(|(_, total, free)| *free < total / 8)
    }

    /// Chooses disks for an object and reserves room until the result is dropped.
    pub fn place(self: &Arc<Self>, size: u64, avoid: &[u8]) -> Result<Placed, PoolError> {
        match self.place_beside(reserve_hard, size, avoid) {
            Err(error) if error.is_no_space() && size <= reserve::OBJECT_BYTES_MAX && self.has_given_up_reserves() => {
                self.place_beside(|_| 0, size, avoid)
            }
            placed => placed,
        }
    }

    /// As `place`, leaving `reserve` of each disk free.
    fn place_beside(self: &Arc<Self>, reserve: fn(u64) -> u64, size: u64, avoid: &[u8]) -> Result<Placed, PoolError> {
        let mut turn = self.placing.lock();
        *turn += 1;
        let rooms: Vec<Room> = self
            .rooms(reserve)
            .into_iter()
            .filter(|(slot, _, _)| !avoid.contains(slot))
            .map(|(slot, _, free_bytes)| Room { slot, free_bytes })
            .collect();
        let shard_bytes = |k: u8| shard_room(size, k);
        let Shape { layout, width, .. } = *self.shape.read();
        let width = if size <= crate::object::geometry::MIRROR_BYTES_MAX { layout.failures() + 1 } else { width };
        // Those that just failed and are to be avoided are as good as dead for this object.
        let usable = self.members.with_slots().filter(|(slot, member)| member.takes_data() && !avoid.contains(slot));
        let alive = usable.count();
        let choice = placement::choose(layout, width, &rooms, alive, *turn, shard_bytes);
        let Some(choice) = choice else {
            if alive == 0 {
                let why = format!("none of its {} disks can be written; see 'pool status'", self.members.len());
                return Err(PoolError::CannotWrite { pool: self.name.clone(), object: "anything".into(), why });
            }
            return Err(PoolError::no_space(&self.name, size, self.space().1, self.without_room()));
        };
        let bytes = shard_bytes(choice.k);
        for slot in &choice.slots {
            if let Some(member) = self.member(*slot) {
                member.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        Ok(Placed { core: self.clone(), choice, bytes })
    }

    /// Waits until whoever is choosing disks has reserved room on them.
    pub fn settle_places(&self) {
        drop(self.placing.lock());
    }

    // ---- faults -----------------------------------------------------------------------------

    /// A read of a disk failed: count it, and find out whether the disk is still there.
    pub fn read_failed(&self, slot: u8, error: &std::io::Error) {
        let Some(member) = self.member(slot) else { return };
        self.count_error(member, ErrorKind::Read, &error.to_string());
        if member.is_readable() && self.probe_read(member).is_err() {
            self.take_out(slot, self.probe_state(member));
        }
    }

    /// A write failed. Blocks: probes the disk, and where it is out records that on the others
    /// before anybody is told that a write succeeded without it (D1).
    pub fn write_failed(&self, slot: u8, error: &std::io::Error) {
        // Interrupted: the writer gave up because of another disk.
        let Some(member) = self.member(slot).filter(|_| error.kind() != std::io::ErrorKind::Interrupted) else {
            return;
        };
        if error.kind() == std::io::ErrorKind::StorageFull || error.kind() == std::io::ErrorKind::QuotaExceeded {
            member.mark_full();
            return;
        }
        self.count_error(member, ErrorKind::Write, &error.to_string());
        if !member.is_writable() {
            return;
        }
        if self.probe_write(member).is_err() {
            let state = self.probe_state(member);
            self.take_out(slot, state);
        }
    }

    /// A second has passed: disks that hang are put out of use, where the others can do without all that hang (H1). With
    /// more of them it is not the disks that fail: who waits goes on waiting. Waits for no disk itself.
    pub fn look_for_hangs(self: &Arc<Self>) {
        self.members.iter().for_each(|member| member.watch().tick());
        let hanging = |margin| self.members.with_slots().filter(move |(_, member)| member.watch().hangs(margin));
        if hanging(0).next().is_none() {
            return;
        }
        let others = self.members.iter().filter(|member| !member.is_in_sync() && !member.watch().hangs(HANG_MARGIN));
        let spared = others.count() + hanging(HANG_MARGIN).count();
        if spared > usize::from(self.failures()) {
            return;
        }
        for slot in hanging(0).map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.put_out_hanging(slot);
        }
    }

    /// H1. The labels say so before anybody is told that a write succeeded without it (D1).
    fn put_out_hanging(self: &Arc<Self>, slot: u8) {
        let Some(member) = self.member(slot) else { return };
        if !member.is_readable() {
            // Whoever takes it back goes on, too.
            member.watch().close();
            return self.hangs.notify_waiters();
        }
        self.untold.fetch_add(1, Ordering::AcqRel);
        HANGS.clone_into(&mut member.last_error.lock());
        member.set_state(DiskState::Faulted);
        self.out_of_sync(member);
        member.watch().close();
        self.hangs.notify_waiters();
        // The next disk to hang may be one that the labels are written to.
        let core = self.clone();
        let tell = move || {
            core.take_out(slot, DiskState::Faulted);
            core.untold.fetch_sub(1, Ordering::AcqRel);
        };
        if let Err(error) = self.work.start("larder-hang", tell) {
            tracing::error!(pool = %self.name, %error, "no thread to write labels: a disk out of use is not told of");
        }
    }

    /// Finds out which disks are gone by now; `false` when somebody is at it already. Blocks.
    pub fn look_at_disks(&self) -> bool {
        let Some(_one) = self.checking.try_lock() else { return false };
        self.check_disks();
        true
    }

    /// Looks at the folder and the label of every disk in use.
    fn check_disks(&self) {
        for (slot, member) in self.members.with_slots().filter(|(_, member)| member.is_readable()) {
            if let Err(error) = self.probe_folder(member) {
                *member.last_error.lock() = error.to_string();
                self.take_out(slot, DiskState::Removed);
            } else if let Err(error) = self.probe_read(member) {
                *member.last_error.lock() = error.to_string();
                self.take_out(slot, self.probe_state(member));
            } else if self.has_lost_objects(member) {
                // It comes back at once, to be brought up to date.
                LOST_OBJECTS.clone_into(&mut member.last_error.lock());
                self.take_out(slot, DiskState::Faulted);
            }
        }
    }

    /// Its objects are gone, and the folder that they lay in; where the others can do without them.
    pub fn has_lost_objects(&self, member: &MemberDisk) -> bool {
        let is_well = |other: &MemberDisk| other.is_readable() && other.is_in_sync();
        let others = self.members.iter().filter(|other| other.id != member.id && !is_well(other)).count();
        let is_gone =
            |io: Arc<dyn DiskIo>| io.list(OBJECTS).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        others < usize::from(self.failures()) && member.is_writable() && member.io().is_ok_and(is_gone)
    }

    /// While disks are out of use, looks now and then whether they are back: when there is
    /// something to write anyway, never on a timer.
    pub fn reconnect_if_due(self: &Arc<Self>) {
        if self.writable() == self.members.len() {
            return;
        }
        let mut last = self.reconnected.lock();
        if last.is_none_or(|at| at.elapsed() >= RECONNECT_EVERY) {
            *last = Some(Instant::now());
            let core = self.clone();
            self.work.detach(move || {
                // Who is at it already may wait for a disk that hangs.
                if !core.returning.is_locked() {
                    core.reconnect(false);
                }
            });
        }
    }

    /// Whether the path still leads to the directory that is open: an open directory outlives its
    /// removal, a rename and a lazy unmount.
    fn probe_folder(&self, member: &MemberDisk) -> std::io::Result<()> {
        let gone = |why| Err(std::io::Error::new(std::io::ErrorKind::NotFound, why));
        let path = member.path.read().clone();
        let opener = self.opener.clone();
        self.work.on_disk(&member.io()?, move |own| match opener.open_disk(&path) {
            Ok(disk) if disk.identity()? == own.identity()? => Ok(()),
            Ok(_) => gone("another folder lies in its place"),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                gone("its folder is gone: removed, renamed or unmounted")
            }
            // Whether the disk works is for the other probes to find out.
            Err(_) => Ok(()),
        })
    }

    fn probe_read(&self, member: &MemberDisk) -> std::io::Result<()> {
        let label = self.work.on_disk(&member.io()?, label::read)?;
        match label {
            Ok(label) if label.disk == member.id => Ok(()),
            Err(why) => Err(std::io::Error::new(std::io::ErrorKind::NotFound, why)),
            Ok(_) => Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the label is gone")),
        }
    }

    /// Which folder a disk is, while it answers.
    pub fn identity(&self, member: &MemberDisk) -> Option<(u64, u64)> {
        self.work.on_disk(&member.io().ok()?, |io| io.identity()).ok()
    }

    fn probe_write(&self, member: &MemberDisk) -> std::io::Result<()> {
        self.probe_read(member)?;
        let result = self.work.on_disk(&member.io()?, |io| {
            let written = io.create(PROBE_NAME).and_then(|file| {
                file.write_at(&mut [std::io::IoSlice::new(&[0; 512])], 0)?;
                file.sync()
            });
            let _ = io.remove(PROBE_NAME);
            written
        });
        match result {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            other => other,
        }
    }

    fn probe_state(&self, member: &MemberDisk) -> DiskState {
        match self.probe_read(member) {
            Ok(()) => match self.probe_write(member) {
                Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => DiskState::ReadOnly,
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => DiskState::ReadOnly,
                _ => DiskState::Faulted,
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => DiskState::Removed,
            Err(_) => DiskState::Faulted,
        }
    }

    /// Stops using a disk and says so on the labels of the others.
    pub fn take_out(&self, slot: u8, state: DiskState) {
        let Some(member) = self.member(slot) else { return };
        self.untold.fetch_add(1, Ordering::AcqRel);
        member.set_state(state);
        member.out_since();
        self.out_of_sync(member);
        self.mover.wanted.notify_one();
        let why = member.last_error.lock().clone();
        let told = if why.is_empty() { state.to_string() } else { why.clone() };
        tracing::warn!(pool = %self.name, disk = %member.path.read().display(), ?state, why = %told, "disk out of use");
        let why = if why.is_empty() { why } else { format!(": {why}") };
        self.event(EventKind::DiskOut, format!("{} is {state}{why}", member.path.read().display()));
        self.write_labels(|_| {});
        self.untold.fetch_sub(1, Ordering::AcqRel);
    }

    /// A disk may be out of use of which the labels say that it has missed nothing.
    pub fn is_untold(&self) -> bool {
        self.untold.load(Ordering::Acquire) > 0
    }

    #[cfg(test)]
    pub fn hold_labels(&self) -> impl Drop + use<'_> {
        self.label.lock()
    }

    /// For whoever has done without a disk, before that is answered (D1). Blocks.
    pub fn wait_until_told(&self) {
        while self.is_untold() {
            drop(self.label.lock());
            std::thread::yield_now();
        }
    }

    /// D1, D2. Without redundancy each disk is the only authority for what it holds, and stays so.
    fn out_of_sync(&self, member: &MemberDisk) {
        let _one = self.leaving.lock();
        let others = self.members.iter().filter(|other| other.id != member.id && !other.is_in_sync()).count();
        if others < usize::from(self.failures()) {
            member.in_sync.store(false, Ordering::Release);
        }
    }

    /// Ends the use of a disk that does not do what it is told, where the others can do without it: it is looked through
    /// when it comes back. `false`: they cannot, and it is believed in any case (D2). Blocks.
    pub fn give_up(&self, slot: u8) -> bool {
        let Some(member) = self.member(slot) else { return true };
        let others = self.members.iter().filter(|other| other.id != member.id && !other.is_in_sync()).count();
        if member.is_in_sync() && others >= usize::from(self.failures()) {
            return false;
        }
        if member.is_readable() {
            self.take_out(slot, DiskState::Faulted);
        }
        true
    }

    /// A disk whose word counts cannot be written: what was deleted may still be there when it is back (D2).
    pub fn is_authority_away(&self) -> bool {
        self.members.iter().any(|member| member.is_in_sync() && !member.is_writable())
    }

    /// More disks are out of use than the layout survives.
    pub fn is_faulted(&self) -> bool {
        let gone = self.members.iter().filter(|member| !member.is_readable()).count();
        gone > usize::from(self.failures())
    }

    /// Gives up the disks and their locks. Whoever opens the pool next does not meet a writer of ours: what is being
    /// written to a label or a file beside it ends first, and nothing comes after it.
    pub fn give_back_disks(&self) {
        let (_label, _history, _scrub) = (self.label.lock(), self.history.hold(), self.scrubs.hold());
        self.is_given_back.store(true, Ordering::Release);
        self.files.clear();
        self.members.iter().for_each(MemberDisk::detach);
    }

    // ---- history ----------------------------------------------------------------------------

    /// Tells what happened. Never waits for a disk (E1).
    pub fn event(&self, kind: EventKind, text: impl AsRef<str>) {
        self.history.add(kind, text.as_ref());
    }

    /// Counts an error of a disk; the first of its kind since the counters were zero is an event.
    pub fn count_error(&self, member: &MemberDisk, kind: ErrorKind, error: &str) {
        if member.count(kind, error) {
            let kind = match kind {
                ErrorKind::Read => "read",
                ErrorKind::Write => "write",
                ErrorKind::Checksum => "checksum",
            };
            self.event(EventKind::Errors, format!("{}: first {kind} error: {error}", member.path.read().display()));
        }
    }

    pub fn disks_readable(&self) -> Vec<Arc<dyn DiskIo>> {
        self.members.iter().filter(|member| member.is_readable()).filter_map(|member| member.io().ok()).collect()
    }

    pub fn disks_writable(&self) -> Vec<Arc<dyn DiskIo>> {
        self.members.iter().filter(|member| member.is_writable()).filter_map(|member| member.io().ok()).collect()
    }

    /// Writes what is not on the disks yet. Blocks.
    pub fn write_history(&self) {
        self.history.write(&self.work, || self.disks_writable());
    }

    // ---- labels -----------------------------------------------------------------------------

    /// Lets the journal have its copies on the disks that take data, as many as it should have. Blocks.
    pub fn refresh_journal(&self) {
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            journal.refresh_copies();
        }
    }

    /// Bytes of a copy of the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.get().and_then(Weak::upgrade).map_or(0, |journal| journal.copied_bytes())
    }

    pub fn is_rebalancing(&self) -> bool {
        self.label.lock().rebalancing
    }

    pub fn label(&self) -> Label {
        self.label.lock().clone()
    }

    /// Writes the label of a disk that is not in use yet. All labels after it descend from it, whether it could be
    /// written or not: it never looks like one side of a split (B1).
    pub fn write_first_label(
        &self,
        disk: &dyn crate::disk::DiskIo,
        id: Uuid,
        change: impl FnOnce(&mut Label),
    ) -> std::io::Result<()> {
        let mut label = self.label.lock();
        if self.is_given_back.load(Ordering::Acquire) {
            return Err(std::io::Error::other("the pool has been closed"));
        }
        label.advance(rand::random());
        let mut first = Label { disk: id, ..label.clone() };
        change(&mut first);
        label::write(disk, &first).inspect_err(|_| label::remove(disk))
    }

    /// Takes the label off a disk that is no longer the pool's; `false`: the pool itself is not ours any more.
    pub fn remove_label(&self, disk: &dyn crate::disk::DiskIo) -> bool {
        let _label = self.label.lock();
        let is_ours = !self.is_given_back.load(Ordering::Acquire);
        if is_ours {
            label::remove(disk);
        }
        is_ours
    }

    /// Writes a new generation of the label to every disk that can be written. `change` may edit
    /// it; member paths and states are filled in here. A disk that fails here is taken out too. `false`: the disks are not
    /// ours any more.
    pub fn write_labels(&self, change: impl FnOnce(&mut Label)) -> bool {
        let mut label = self.label.lock();
        if self.is_given_back.load(Ordering::Acquire) {
            return false;
        }
        // A disk that fails here is out of use before the next round says so.
        self.untold.fetch_add(1, Ordering::AcqRel);
        change(&mut label);
        *self.shape.write() = Shape::of(&label);
        // Each disk that fails makes one more round: bounded by the number of disks.
        for _ in 0..=self.members.len() {
            label.advance(rand::random());
            label.members = self.members.iter().map(MemberDisk::entry).collect();
            label.journal_batch = label.journal_batch.max(self.journal_batch.load(Ordering::Acquire));
            let (is_done, has_it) = self.write_label_everywhere(&label);
            // B4. It is said by the next label: this one is on the disks already.
            if label.members.iter().all(|member| !member.in_sync || has_it.contains(&member.id)) {
                label.settled = label.generation;
            }
            if is_done {
                break;
            }
        }
        self.untold.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Whether no disk failed, and which disks have it.
    fn write_label_everywhere(&self, label: &Label) -> (bool, Vec<Uuid>) {
        // Those whose word counts first: if it ends in between, the new label is not on a disk alone that was away.
        let writable = self.members.iter().filter(|member| member.is_writable());
        let (first, then): (Vec<_>, Vec<_>) = writable.partition(|member| member.is_in_sync());
        let write = |member: &MemberDisk| {
            let mut own = label.clone();
            own.disk = member.id;
            self.work.on_disk(&member.io()?, move |io| label::write(io, &own))
        };
        let mut results = self.work.side_by_side(first.clone(), write);
        results.extend(self.work.side_by_side(then.clone(), write));
        let writable: Vec<&MemberDisk> = first.into_iter().chain(then).collect();
        let has_it = writable.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(member, _)| member.id);
        let has_it = has_it.collect();
        let failed: Vec<_> = writable
            .into_iter()
            .zip(results)
            .filter_map(|(member, result)| Some((member, result.err()?)))
            // A disk too full for a new label keeps its old one, which is merely old (B1).
            .filter(|(_, error)| error.kind() != std::io::ErrorKind::StorageFull)
            .collect();
        for (member, error) in &failed {
            self.count_error(member, ErrorKind::Write, &error.to_string());
            member.set_state(self.probe_state(member));
            self.out_of_sync(member);
            self.event(
                EventKind::DiskOut,
                format!("{}: its label cannot be written: {error}", member.path.read().display()),
            );
        }
        (failed.is_empty(), has_it)
    }
}

/// Room for one shard: data, checksums, header, and the filesystem's rounding.
fn shard_room(size: u64, k: u8) -> u64 {
    let data = size.div_ceil(u64::from(k.max(1)));
    data + data / 1024 + (16 << 10)
}

/// Disks chosen for an object; gives its reservation back when dropped.
pub struct Placed {
    core: Arc<Core>,
    pub choice: Choice,
    bytes: u64,
}

impl Drop for Placed {
    fn drop(&mut self) {
        for slot in &self.choice.slots {
            if let Some(member) = self.core.member(*slot) {
                member.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
                // A look at the disk from before the end of the write counts this room neither as pending nor as used.
                member.forget_space();
            }
        }
    }
}
