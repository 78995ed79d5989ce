//! The disks of an open pool and the facts about them: labels, faults, room, and events.
//!
//! Code that works with disks gets this and no more of the pool. The parts are this room's own
//! affair: `labels.rs` writes labels, `faults.rs` decides which disks are out of use, `room.rs`
//! gives out room, `waiting.rs` waits for disks as long as they answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::disk::buffer::Buffers;
use crate::disk::work::Work;
use crate::disk::{DiskIo, DiskOpener};
use crate::history::{EventKind, History};
use crate::member::divergence::{LastLife, LastLives};
use crate::member::label::Label;
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::member::slots::Slots;
use crate::object::layout::Layout;

/// The note while objects that the lost changes referred to may still be wanted
/// (`journal.loss_refused`).
const UNPROVEN: &str = "the pool was opened although acknowledged changes were lost (see the history): data that no file refers to \
    is kept until it is cleared with: larder pool clear";

/// How often absent disks are looked for.
const RECONNECT_EVERY: Duration = Duration::from_secs(5);

/// The disks of an open pool.
pub struct Members {
    pub id: Uuid,
    pub name: String,
    /// The holder of the locks, for people.
    pub owner: String,
    pub opener: Arc<dyn DiskOpener>,
    pub work: Work,
    pub buffers: Arc<Buffers>,
    pub history: History,
    /// Signalled when a disk goes out of use.
    pub out: Arc<Notify>,
    slots: Slots,
    pub(super) shape: RwLock<Shape>,
    /// The label as last written; its `disk` field means nothing here.
    pub(super) label: Mutex<Label>,
    /// The last batch of the journal that is durable on all its copies
    /// (`label.journal_batch_proven`).
    pub(super) journal_batch: AtomicU64,
    /// The machine's memory of the pool's lives, and the life that it was given last.
    last_lives: Option<Arc<dyn LastLives>>,
    remembered: Mutex<Option<LastLife>>,
    /// The disks are no longer ours.
    pub(super) is_given_back: AtomicBool,
    pub(super) placing: Mutex<u64>,
    /// Held while it is decided whether a disk that leaves is out of sync.
    pub(super) leaving: Mutex<()>,
    /// Held by a task that may be about to label a disk as out of use (`member.out_before_answer`).
    pub(super) labels_behind: AtomicUsize,
    /// Signalled when the way to a disk was closed (`hang.way_closed`).
    pub(super) hangs: Notify,
    /// Held by a check: one at a time, so that a disk that hangs does not gather them.
    pub(super) checking: Mutex<()>,
    /// Held while disks are taken back.
    returning: Mutex<()>,
    reconnected: Mutex<Option<Instant>>,
    notes: Mutex<Vec<Note>>,
}

/// Something an administrator should know: foreign disks and the like.
#[derive(Debug)]
struct Note {
    text: String,
    /// The member at whose place it was found. The note is shown until that member is up to date,
    /// or has left.
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
pub(super) struct Shape {
    pub(super) layout: Layout,
    pub(super) width: u8,
    /// Objects of this layout may be left.
    pub(super) earlier: Option<Layout>,
}

impl Shape {
    pub(super) fn of(label: &Label) -> Self {
        Self { layout: label.layout, width: label.width, earlier: label.earlier }
    }

    pub(super) fn failures_min(&self) -> u8 {
        self.earlier.map_or(u8::MAX, Layout::failures).min(self.layout.failures())
    }

    pub(super) fn failures_max(&self) -> u8 {
        self.earlier.map_or(0, Layout::failures).max(self.layout.failures())
    }
}

/// The input of [`Members::new`].
pub struct Start {
    pub label: Label,
    pub members: Vec<MemberDisk>,
    pub opener: Arc<dyn DiskOpener>,
    pub owner: String,
    pub notes: Vec<String>,
    pub last_lives: Option<Arc<dyn LastLives>>,
}

impl Members {
    pub fn new(start: Start) -> Self {
        let Start { label, members, opener, owner, notes, last_lives } = start;
        let notes = notes.into_iter().map(|text| Note::new(text, &members)).collect();
        Self {
            id: label.pool,
            name: label.name.clone(),
            owner,
            work: opener.work(),
            opener,
            buffers: Arc::default(),
            history: History::default(),
            out: Arc::default(),
            slots: Slots::new(members),
            shape: RwLock::new(Shape::of(&label)),
            journal_batch: AtomicU64::new(label.journal_batch),
            label: Mutex::new(label),
            last_lives,
            remembered: Mutex::default(),
            is_given_back: AtomicBool::new(false),
            placing: Mutex::new(0),
            leaving: Mutex::new(()),
            labels_behind: AtomicUsize::new(0),
            hangs: Notify::new(),
            checking: Mutex::new(()),
            returning: Mutex::new(()),
            reconnected: Mutex::new(Some(Instant::now())),
            notes: Mutex::new(notes),
        }
    }

    // ---- by slot ----------------------------------------------------------------------------

    pub fn member(&self, slot: u8) -> Option<&MemberDisk> {
        self.slots.get(slot)
    }

    pub fn with_slots(&self) -> impl Iterator<Item = (u8, &MemberDisk)> {
        self.slots.with_slots()
    }

    pub fn iter(&self) -> impl Iterator<Item = &MemberDisk> {
        self.slots.iter()
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives a disk the next slot; returns the disk when there is no slot left
    /// (`slot.never_reused`).
    pub fn push(&self, member: MemberDisk) -> Result<u8, Box<MemberDisk>> {
        self.slots.push(member)
    }

    /// A disk that took the place of one that has left has it now.
    pub fn end_replacements(&self) {
        self.slots.end_replacements();
    }

    /// Findings from when the pool was opened that still hold.
    pub fn notes(&self) -> Vec<String> {
        let is_well = |member: &MemberDisk| member.state() == DiskState::Online && member.is_in_sync();
        let is_over = |id: Uuid| self.iter().find(|member| member.id == id).is_none_or(is_well);
        let mut notes = self.notes.lock();
        notes.retain(|note| note.of.is_none_or(|id| !is_over(id)));
        let unproven = self.label.lock().unproven.then(|| UNPROVEN.to_owned());
        notes.iter().map(|note| note.text.clone()).chain(unproven).collect()
    }

    /// The layout of new objects.
    pub fn layout(&self) -> Layout {
        self.shape.read().layout
    }

    /// The most disks that an object is laid over.
    pub fn width(&self) -> u8 {
        self.shape.read().width
    }

    /// Disks that may fail without loss: every object survives that many, objects of an earlier
    /// layout included.
    pub fn failures(&self) -> u8 {
        self.shape.read().failures_min()
    }

    /// Copies of the journal.
    pub fn journal_copies(&self) -> usize {
        usize::from(self.shape.read().failures_max()) + 1
    }

    /// Disks that can be written at all, full or not.
    pub fn writable(&self) -> usize {
        self.iter().filter(|member| member.is_writable()).count()
    }

    /// The last batch of the journal that is durable on all its copies.
    pub fn journal_batch_now(&self) -> u64 {
        self.journal_batch.load(Ordering::Acquire)
    }

    /// Has this machine remember the newest life of the pool (`diverged.fewer_disks_asked`).
    pub(super) fn remember(&self, label: &Label) {
        let (Some(memory), Some(life)) = (&self.last_lives, label.lives.first()) else { return };
        let newest = LastLife { mark: life.mark, settled: label.settled };
        let mut remembered = self.remembered.lock();
        if *remembered != Some(newest) {
            memory.remember(self.id, &self.name, newest);
            *remembered = Some(newest);
        }
    }

    // ---- disks that come back ---------------------------------------------------------------

    /// Held while disks are taken back: two at once would take one back twice.
    pub fn begin_return(&self) -> MutexGuard<'_, ()> {
        self.returning.lock()
    }

    /// A task that is taking disks back may be waiting for one that hangs.
    pub fn is_returning(&self) -> bool {
        self.returning.is_locked()
    }

    /// Some disks are out of use, and it is time to look whether they are back. Counts as a look.
    pub fn is_due_to_return(&self) -> bool {
        if self.writable() == self.len() {
            return false;
        }
        let mut last = self.reconnected.lock();
        let is_due = last.is_none_or(|at| at.elapsed() >= RECONNECT_EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    // ---- history ----------------------------------------------------------------------------

    /// Reports an event. Never waits for a disk (`history.telling_costs_no_io`).
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
        self.iter().filter(|member| member.is_readable()).filter_map(|member| member.io().ok()).collect()
    }

    pub fn disks_writable(&self) -> Vec<Arc<dyn DiskIo>> {
        self.iter().filter(|member| member.is_writable()).filter_map(|member| member.io().ok()).collect()
    }

    /// Writes the events that are not on the disks yet. Blocks.
    pub fn write_history(&self) {
        self.history.write(&self.work, || self.disks_writable());
    }
}
