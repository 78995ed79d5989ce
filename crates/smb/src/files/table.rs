//! Opens of each file, across every connection and every share of one store, keyed by the store's
//! id of the file, whatever its names. This holds the state MS-FSA keeps per file rather than per
//! open: the delete-pending flag (2.1.5.15.3) and leases (MS-SMB2 3.3.1.4). Sharing modes,
//! byte-range locks and those who wait for a change of the file are in the table of all doors
//! ([`larder_opens`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larder_files::Files;
use larder_fs::Ino;
use larder_opens::{Caches, Door, Entry, Refused, Table, Uses};
use tracing::debug;

use crate::conn::outbound::Notified;
use crate::door::feed::OutsideChange;
use crate::door::open_name::EntryName;
use crate::door::view::VisitedShare;
use larder_smb_wire::access_mask::DELETE;
use larder_smb_wire::file_info::FileInfo;
use larder_smb_wire::ntstatus;

use super::directories::LeasedDirectories;
use super::entries::{DurableMark, OpenEntries, OpenEntry, Sharing};
use super::lease::{Breaking, FileLease, LeaseId, LeaseState, Notification, Trigger, break_to, needs_ack, next_step};
use super::leases::{AckWait, BreakWait, Notices, break_notification};

/// Source of [`Breaking::seq`].
static NEXT_BREAK_SEQ: AtomicU64 = AtomicU64::new(1);

/// Every file of one store that has an open. Shares of one store have one, so that share modes,
/// locks, leases and deletes of one hold on the others.
#[derive(Default)]
pub struct FileTable {
    /// The opens and locks of all doors, and the number of this door in it.
    pub(super) held: Arc<Table>,
    pub(super) door: u32,
    pub(super) files: Mutex<HashMap<u64, Arc<FileNode>>>,
    /// How many of them are named streams.
    pub(super) streams: AtomicUsize,
    pub(super) next_open: AtomicU64,
    pub(super) leased_directories: LeasedDirectories,
}

pub(super) struct FileNode {
    /// The store's id of the file or stream.
    pub(super) key: u64,
    /// Of a named stream: the store's id of what it belongs to, else `0`.
    pub(super) base: u64,
    /// Of the file, shared by all its opens: locked for a few instructions, never across an await.
    pub(super) state: Mutex<FileState>,
    pub(super) held: Arc<Table>,
}

pub(super) struct FileState {
    /// The node holding this state.
    pub(super) me: Weak<FileNode>,
    pub(super) is_directory: bool,
    pub(super) opens: OpenEntries,
    /// The name to remove once the last open closes, while the file is
    /// delete-pending.
    pub(super) delete_pending: Option<Arc<EntryName>>,
    /// Leases held by the opens, one per LeaseId.
    pub(super) leases: Vec<FileLease>,
}

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door for FileTable {
    /// Breaks the leases on the file. Their acknowledgment timers bound the wait for them.
    fn ask_back(&self, ino: Ino, what: Caches) {
        if let Some(node) = self.node(ino.0) {
            node.break_leases(Trigger::by_others(what), None);
        }
    }
}

/// Files that are open below a directory.
pub(crate) struct OpenBelow(Vec<Arc<FileNode>>);

impl OpenBelow {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Breaks the handle caching of every lease on them, when `start`
    /// (MS-FSA 2.1.4.2, MS-SMB2 3.3.1.4). Returns a wait for a break to complete while one is
    /// in progress.
    pub(crate) fn break_handles(&self, start: bool) -> Option<BreakWait> {
        self.0.iter().fold(None, |wait, node| node.break_handles(None, start).or(wait))
    }
}

impl FileNode {
    /// See [`FileTable::break_handles`].
    fn break_handles(&self, exempt: Option<LeaseId>, start: bool) -> Option<BreakWait> {
        let mut state = self.state();
        let (notices, waits) = match start {
            true => state.break_for(Trigger::Handle, exempt),
            false => (Notices::default(), state.handle_break_pending(exempt)),
        };
        let wait = waits.then(|| self.wait());
        drop(state);
        drop(notices);
        wait
    }

    /// A wait for the next change on the file: a lease, a range or an open that goes.
    pub(super) fn wait(&self) -> BreakWait {
        BreakWait::new(self.held.waiter(Ino(self.key)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    /// Whether the lease `id` is held on this file.
    pub(super) fn has_lease(&self, id: LeaseId) -> bool {
        self.state().leases.iter().any(|l| l.id == id)
    }

    /// Breaks its leases, but for `spared`, for a change that waits for none of them.
    pub(super) fn break_leases(&self, trigger: Trigger, spared: Option<LeaseId>) {
        let notices = self.state().break_for(trigger, spared).0;
        drop(notices);
    }

    /// MS-SMB2 3.3.5.22.2: completes the break of the lease `id` with the
    /// state `bits` the client acknowledged, and returns that state. When a
    /// later trigger needs less than that, the lease breaks on at once.
    /// Fails with STATUS_OBJECT_NAME_NOT_FOUND when the lease is not held
    /// here, STATUS_UNSUCCESSFUL when no break is in progress and
    /// STATUS_REQUEST_NOT_ACCEPTED when the state is not within the one
    /// notified.
    pub(super) fn acknowledge(&self, id: LeaseId, bits: u32) -> Result<(LeaseState, Notices), u32> {
        let mut state = self.state();
        let at = state.leases.iter().position(|l| l.id == id).ok_or(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND)?;
        let lease = &mut state.leases[at];
        let breaking = lease.breaking.as_ref().ok_or(ntstatus::STATUS_UNSUCCESSFUL)?;
        if bits & !breaking.to.bits() != 0 {
            return Err(ntstatus::STATUS_REQUEST_NOT_ACCEPTED);
        }
        let required = breaking.required;
        let acked = LeaseState::from_bits(bits);
        lease.breaking = None;
        lease.settle(acked);
        debug!(key = ?id.key, state = ?acked, "lease break acknowledged");
        let mut notices = Notices::default();
        if !required.contains(acked) {
            state.start_break(at, next_step(acked, required, id.is_oplock()), &mut notices);
            if let Some(breaking) = &mut state.leases[at].breaking {
                breaking.required = required;
            }
        }
        let doomed = state.doom_uncovered(id);
        notices.close(doomed);
        Ok((acked, notices))
    }

    /// Ends the break `seq` of the lease `id` with NONE, when it is still in
    /// progress: the client did not acknowledge in time (MS-SMB2 3.3.6.5),
    /// or no connection took the notification (MS-SMB2 3.3.4.7). Returns the
    /// closes of the opens kept for reconnect under the lease, which can no
    /// longer be taken back.
    pub(super) fn drop_break(&self, id: LeaseId, seq: u64) -> Notices {
        let mut state = self.state();
        let mut notices = Notices::default();
        let Some(lease) =
            state.leases.iter_mut().find(|l| l.id == id && l.breaking.as_ref().is_some_and(|b| b.seq == seq))
        else {
            return notices;
        };
        lease.breaking = None;
        lease.settle(LeaseState::NONE);
        debug!(key = ?id.key, "lease break not acknowledged; lease dropped to none");
        let doomed = state.doom_uncovered(id);
        notices.close(doomed);
        notices
    }

    /// Keeps `timer` as the acknowledgment timer of the break `seq` of the
    /// lease `id`, or stops it when that break is over.
    pub(super) fn set_timer(&self, id: LeaseId, seq: u64, timer: tokio::task::AbortHandle) {
        let mut state = self.state();
        let breaking =
            state.leases.iter_mut().find(|l| l.id == id).and_then(|l| l.breaking.as_mut()).filter(|b| b.seq == seq);
        match breaking {
            Some(breaking) => {
                breaking.timer = Some(timer);
                // A wait that began before lasts as long as the timer.
                self.held.wake(Ino(self.key));
            }
            None => timer.abort(),
        }
    }

    /// Ends one CREATE response's hold on the lease `id` created as
    /// `serial`, and returns the break notification held back for it once
    /// no response is pending. The notification goes first to `sender`,
    /// whose response was just queued, so it follows that response on the
    /// same connection. A hold on a lease that has since ended does nothing.
    pub(super) fn end_grant(&self, id: LeaseId, serial: u64, sender: &Notified) -> Notices {
        let mut state = self.state();
        let me = state.me.clone();
        let mut notices = Notices::default();
        let Some(lease) = state.leases.iter_mut().find(|l| l.id == id && l.serial == serial) else {
            return notices;
        };
        lease.grants_in_flight -= 1;
        if lease.grants_in_flight == 0
            && let Some(unsent) = lease.unsent.take()
        {
            let bytes = break_notification(lease, unsent);
            let ack = lease.breaking.as_ref().map(|b| AckWait { node: me, id, seq: b.seq });
            if state.opens.held_only_detached(id) {
                let doomed = state.doom_detached(id, |_| true);
                notices.close(doomed);
                return notices;
            }
            let mut owners = state.owners(id);
            if let Some(at) = owners.iter().position(|o| o.same(sender)) {
                owners[..=at].rotate_right(1);
            }
            notices.push(bytes, owners, ack);
        }
        notices
    }
}

impl FileState {
    /// MS-FSA 2.1.5.1: a delete-pending file opens for nobody; otherwise the sharing check of
    /// 2.1.5.1.2.2 runs against every open on the file, whatever door it came through; waiting
    /// CREATEs have claimed nothing. With `was_there` clients of other doors may take
    /// back the file. A refusal tells whether opens of this server are the
    /// reason, whose clients may give up handles.
    pub(super) fn admit(&self, held: &Entry, sharing: Sharing, was_there: bool) -> Result<(), (u32, bool)> {
        if self.delete_pending.is_some() {
            return Err((ntstatus::STATUS_DELETE_PENDING, false));
        }
        let claimed = held.claim(sharing.does(), sharing.denies(), was_there);
        claimed.map_err(|by| (ntstatus::STATUS_SHARING_VIOLATION, by == Refused::WithinDoor))
    }

    pub(super) fn entry(&self, id: u64) -> Option<&OpenEntry> {
        self.opens.get(id)
    }

    /// The connections of the opens holding the lease `id`, each once, in
    /// open order: where a break of the lease may go (MS-SMB2 3.3.4.7).
    fn owners(&self, id: LeaseId) -> Vec<Notified> {
        let mut owners: Vec<Notified> = Vec::new();
        for entry in self.opens.holders(id) {
            if !owners.iter().any(|o| o.same(&entry.owner)) {
                owners.push(entry.owner.clone());
            }
        }
        owners
    }

    /// Breaks every lease but `exempt` that `trigger` conflicts with
    /// (MS-FSA 2.1.4.12, MS-SMB2 3.3.4.7). Returns the notifications to send
    /// once the file is unlocked, and whether the operation has to wait for
    /// a break to complete. A lease already breaking gets no second
    /// notification: what the server needs is lowered instead, and the
    /// acknowledgment breaks on to it. A level II oplock goes with any write,
    /// its own open's included (MS-FSA 2.1.4.12, LEVEL_TWO_OPLOCK).
    pub(super) fn break_for(&mut self, trigger: Trigger, exempt: Option<LeaseId>) -> (Notices, bool) {
        let mut notices = Notices::default();
        let mut wait = false;
        for at in 0..self.leases.len() {
            let lease = &mut self.leases[at];
            let oplock = lease.id.is_oplock();
            let own_level_ii = oplock && lease.state == LeaseState::R && trigger == Trigger::Write;
            if Some(lease.id) == exempt && !own_level_ii {
                continue;
            }
            let Some(to) = break_to(trigger, lease.state, oplock) else {
                continue;
            };
            wait |= to.wait;
            match &mut lease.breaking {
                Some(breaking) => breaking.required = breaking.required.and(to.to),
                None => self.start_break(at, to.to, &mut notices),
            }
        }
        (notices, wait)
    }

    /// Breaks the lease at `at` to `to`. A read lease drops at once; one
    /// caching more keeps its state until the client acknowledges, the
    /// acknowledgment times out, or no connection takes the notification.
    /// A notification for a lease whose grant is not yet sent waits for it.
    ///
    /// A lease held only by opens kept for reconnect has no connection to
    /// take the notification: those opens are closed instead (MS-SMB2
    /// 3.3.4.7), and the break completes when the last of them leaves the
    /// file. That includes a break that keeps handle caching, for which no
    /// other connection of the same client is tried.
    pub(super) fn start_break(&mut self, at: usize, to: LeaseState, notices: &mut Notices) {
        let id = self.leases[at].id;
        let orphaned = self.opens.held_only_detached(id);
        let lease = &mut self.leases[at];
        let from = lease.state;
        let ack = needs_ack(from);
        let mut wait = None;
        if ack {
            lease.bump_epoch();
            let seq = NEXT_BREAK_SEQ.fetch_add(1, Ordering::Relaxed);
            lease.breaking = Some(Breaking { to, required: to, seq, timer: None });
            wait = Some(AckWait { node: self.me.clone(), id: lease.id, seq });
        } else {
            lease.set_state(to);
        }
        debug!(key = ?lease.id.key, ?from, ?to, ack, "lease broken");
        if orphaned && lease.grants_in_flight == 0 {
            let doomed = self.doom_detached(id, |_| true);
            notices.close(doomed);
            return;
        }
        let notification = Notification { from, to, epoch: lease.epoch, ack };
        if lease.grants_in_flight > 0 {
            lease.unsent = Some(notification);
        } else {
            let bytes = break_notification(lease, notification);
            notices.push(bytes, self.owners(id), wait);
        }
    }

    /// Marks the opens kept for reconnect under the lease `id` that the
    /// lease no longer covers to be closed: every one once it stops caching
    /// handles, and the ones holding byte-range locks once it stops caching
    /// writes. MS-SMB2 3.3.7.1 keeps no others, and a lock left behind would
    /// block other clients' reads and writes, which break nothing.
    pub(super) fn doom_uncovered(&mut self, id: LeaseId) -> Vec<DurableMark> {
        let state = self.leases.iter().find(|l| l.id == id).map_or(LeaseState::NONE, |l| l.state);
        if !state.contains(LeaseState::H) {
            return self.doom_detached(id, |_| true);
        }
        if state.contains(LeaseState::W) {
            return Vec::new();
        }
        self.doom_detached(id, |open| !open.locks.is_empty())
    }

    /// Marks the opens kept for reconnect under the lease `id` that `pick`
    /// accepts to be closed, and returns the ones not marked before.
    fn doom_detached(&mut self, id: LeaseId, pick: impl Fn(&OpenEntry) -> bool) -> Vec<DurableMark> {
        let mut doomed = Vec::new();
        self.opens.for_holders(id, |entry| {
            let is_picked = pick(entry);
            if let Some(mark) = entry.durable.as_mut().filter(|d| d.detached && !d.doomed && is_picked) {
                mark.doomed = true;
                doomed.push(mark.clone());
            }
        });
        doomed
    }

    /// Whether a lease other than `exempt` still caches handles while a
    /// break of it is in progress.
    pub(super) fn handle_break_pending(&self, exempt: Option<LeaseId>) -> bool {
        self.leases.iter().any(|l| Some(l.id) != exempt && l.breaking.is_some() && l.state.contains(LeaseState::H))
    }

    /// Whether a CREATE that waits goes on waiting: a lease other than `exempt` still caches
    /// writes, or is on its way to nothing, and its client has not acknowledged that yet.
    pub(super) fn break_pending(&self, exempt: Option<LeaseId>) -> bool {
        let waits = |l: &FileLease, b: &Breaking| l.state.contains(LeaseState::W) || b.required == LeaseState::NONE;
        self.leases.iter().any(|l| Some(l.id) != exempt && l.breaking.as_ref().is_some_and(|b| waits(l, b)))
    }
}

impl FileTable {
    pub(super) fn files(&self) -> MutexGuard<'_, HashMap<u64, Arc<FileNode>>> {
        lock(&self.files)
    }

    /// For the door of `files`: its opens and locks are among those of all doors, which have what
    /// clients cache recalled.
    pub fn of(files: &Files) -> Arc<Self> {
        let (held, door) = files.table();
        let table = Arc::new(Self { held: Arc::clone(held), door, ..Self::default() });
        let door: Weak<dyn Door> = Arc::downgrade(&(Arc::clone(&table) as Arc<dyn Door>));
        files.add_door(door);
        table
    }

    /// Breaks what clients cache of what was changed outside the server, as a write by nobody's
    /// open would, so that they drop it; where nobody knows the file, of all of them.
    pub fn changed_outside(&self, change: OutsideChange) {
        let nodes: Vec<Arc<FileNode>> = match change {
            OutsideChange::Of(ino) => self.node(ino.0).into_iter().collect(),
            OutsideChange::OfAnEntry => return self.leased_directories.any_entry_changed(),
            OutsideChange::OfAnything => self.files().values().cloned().collect(),
        };
        for node in nodes {
            node.break_leases(Trigger::Write, None);
        }
    }

    /// Breaks the leases of the directory `dir`, after an entry of it was changed through an open
    /// whose parent's lease is `spared`.
    pub(crate) fn entry_changed(&self, dir: u64, spared: Option<LeaseId>) {
        self.leased_directories.entry_changed(dir, spared);
    }

    /// Whether a client holds a lease of a directory.
    pub(crate) fn has_leased_directories(&self) -> bool {
        !self.leased_directories.is_empty()
    }

    fn node(&self, file_index: u64) -> Option<Arc<FileNode>> {
        self.files().get(&file_index).cloned()
    }

    /// True if the file has an open.
    pub(crate) fn is_open(&self, file_index: u64) -> bool {
        self.node(file_index).is_some_and(|node| !node.state().opens.is_empty())
    }

    /// True if the file has an open that may delete it.
    pub(crate) fn open_for_delete(&self, file_index: u64) -> bool {
        self.held.is_used(Ino(file_index), Uses::DELETE)
    }

    /// True if the file is delete-pending.
    pub(crate) fn delete_pending(&self, file_index: u64) -> bool {
        self.node(file_index).is_some_and(|node| node.state().delete_pending.is_some())
    }

    /// Breaks the handle caching of the leases on the file,
    /// all but `exempt` (MS-FSA 2.1.4.12, SET_INFORMATION rename), when
    /// `start`. Returns a wait for the break to complete while one is in
    /// progress.
    pub(crate) fn break_handles(&self, file_index: u64, exempt: Option<LeaseId>, start: bool) -> Option<BreakWait> {
        self.node(file_index).and_then(|node| node.break_handles(exempt, start))
    }

    /// The files with an open below the directory `dir`, which hold up a rename of it
    /// (MS-FSA 2.1.4.2).
    pub(crate) async fn open_below(&self, view: &VisitedShare, dir: u64, by_mac: bool) -> OpenBelow {
        let mut opens = Vec::new();
        for node in self.files().values() {
            let state = node.state();
            let held_up = state.opens.iter().filter(|e| !e.bears_rename(by_mac));
            opens.extend(held_up.map(|e| (Arc::clone(node), Arc::clone(&e.name))));
        }
        let (mut below, mut judged) = (Vec::new(), HashMap::new());
        for (node, name) in opens {
            let Some(parent) = name.dir().await else { continue };
            let is_below = match judged.get(&parent) {
                Some(is_below) => *is_below,
                None => *judged.entry(parent).or_insert(view.is_within(parent, dir).await),
            };
            if is_below {
                below.push(node);
            }
        }
        OpenBelow(below)
    }

    /// Stops every acknowledgment timer on the share, as if they were lost.
    #[cfg(test)]
    pub(crate) fn stop_timers(&self) {
        for node in self.files().values() {
            for lease in &mut node.state().leases {
                if let Some(timer) = lease.breaking.as_mut().and_then(|b| b.timer.take()) {
                    timer.abort();
                }
            }
        }
    }
}

impl FileTable {
    pub(super) fn remove_node(&self, files: &mut HashMap<u64, Arc<FileNode>>, node: &Arc<FileNode>) {
        if files.get(&node.key).is_some_and(|n| Arc::ptr_eq(n, node)) {
            files.remove(&node.key);
            if node.base != 0 {
                self.streams.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// What opens of a file's other streams mean to this one: a stream of a
    /// delete-pending file opens for nobody, and a file is not opened for
    /// deletion while one of its streams is open and not shared for that
    /// (MS-FSA 2.1.5.1.2.2).
    pub(super) fn admit_beside(
        &self,
        files: &HashMap<u64, Arc<FileNode>>,
        info: &FileInfo,
        sharing: Sharing,
    ) -> Result<(), u32> {
        if info.stream_index != 0 {
            let base = files.get(&info.file_index);
            return match base.is_some_and(|base| base.state().delete_pending.is_some()) {
                true => Err(ntstatus::STATUS_DELETE_PENDING),
                false => Ok(()),
            };
        }
        let keeps = |stream: &Arc<FileNode>| self.held.denied_by_any(Ino(stream.key), None, Uses::DELETE);
        let is_kept = sharing.access & DELETE != 0 && self.streams_of(files, info.file_index).any(keeps);
        if is_kept { Err(ntstatus::STATUS_SHARING_VIOLATION) } else { Ok(()) }
    }

    pub(super) fn streams_of<'f>(
        &self,
        files: &'f HashMap<u64, Arc<FileNode>>,
        base: u64,
    ) -> impl Iterator<Item = &'f Arc<FileNode>> + use<'f> {
        let none = base == 0 || self.streams.load(Ordering::Acquire) == 0;
        files.values().filter(move |node| !none && node.base == base)
    }

    /// Whether a named stream of the file with the store's id `base` is
    /// open.
    pub(crate) fn has_open_streams(&self, base: u64) -> bool {
        self.streams_of(&self.files(), base).next().is_some()
    }
}
