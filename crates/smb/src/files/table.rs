//! Opens of each file, across every connection and every share of one store,
//! keyed by file identity. Names in it are those of one share: each open has
//! its share beside its path. This holds the state MS-FSA keeps per file rather than per
//! open: sharing modes (2.1.5.1.2.2), the delete-pending flag (2.1.5.15.3),
//! byte-range locks (2.1.5.8) and leases (MS-SMB2 3.3.1.4).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tracing::{debug, warn};

use crate::access_mask::{
    DELETE, FILE_APPEND_DATA, FILE_EXECUTE, FILE_READ_DATA, FILE_WRITE_ATTRIBUTES, FILE_WRITE_DATA,
};
use crate::backend::FileInfo;
use crate::conn::outbound::Notified;
use crate::error::SmbError;
use crate::ntstatus;
use crate::path::{SmbPath, rebase, same_path};
use crate::proto::messages::change_notify::{
    FILE_ACTION_REMOVED, FILE_NOTIFY_CHANGE_DIR_NAME, FILE_NOTIFY_CHANGE_FILE_NAME,
};
use crate::proto::messages::{FileId, OplockLevel};
use crate::share::ShareBindings;

use super::directories::LeasedDirectories;
use super::lease::{
    Breaking, Current, FileLease, FileView, Granted, LeaseId, LeaseRequest, LeaseState, Notification, OpenView,
    Trigger, break_to, grant, needs_ack, open_trigger, stat_only,
};
use super::leases::{AckWait, BreakWait, GrantGuard, LeaseRef, Notices, break_notification};
use super::watch::Change;

// ShareAccess (MS-SMB2 2.2.13)
pub(crate) const FILE_SHARE_READ: u32 = 0x0000_0001;
pub(crate) const FILE_SHARE_WRITE: u32 = 0x0000_0002;
pub(crate) const FILE_SHARE_DELETE: u32 = 0x0000_0004;

const READ_ACCESS: u32 = FILE_READ_DATA | FILE_EXECUTE;
const WRITE_ACCESS: u32 = FILE_WRITE_DATA | FILE_APPEND_DATA;
/// Access that takes part in the sharing check. An open holding none of
/// these never conflicts.
const SHARED_ACCESS: u32 = READ_ACCESS | WRITE_ACCESS | DELETE;

/// Identity of a file in a [`FileTable`]: the backend's file id, or the
/// path when the backend reports none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum FileKey {
    Index(u64),
    Path(String),
}

impl FileKey {
    fn new(info: &FileInfo, path: &SmbPath, case_sensitive: bool) -> Self {
        match (info.stream_index, info.file_index) {
            (0, 0) => Self::Path(path_key(path, case_sensitive)),
            (0, file) => Self::Index(file),
            (stream, _) => Self::Index(stream),
        }
    }

    /// The backend's file id, `0` if it has none.
    fn index(&self) -> u64 {
        match self {
            Self::Index(index) => *index,
            Self::Path(_) => 0,
        }
    }
}

fn path_key(path: &SmbPath, case_sensitive: bool) -> String {
    let joined = path.display_backslash();
    if case_sensitive { joined } else { joined.to_lowercase() }
}

/// Access and sharing mode of an open, as CREATE requested them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sharing {
    /// Open.GrantedAccess.
    pub access: u32,
    /// ShareAccess of the CREATE request.
    pub share: u32,
}

impl Sharing {
    /// True if this open and `other` cannot both be open on one file.
    fn conflicts_with(self, other: Sharing) -> bool {
        let denies = |access: u32, share: u32| {
            (access & READ_ACCESS != 0 && share & FILE_SHARE_READ == 0)
                || (access & WRITE_ACCESS != 0 && share & FILE_SHARE_WRITE == 0)
                || (access & DELETE != 0 && share & FILE_SHARE_DELETE == 0)
        };
        self.access & SHARED_ACCESS != 0
            && other.access & SHARED_ACCESS != 0
            && (denies(self.access, other.share) || denies(other.access, self.share))
    }
}

/// Source of [`FileLease::serial`].
static NEXT_LEASE_SERIAL: AtomicU64 = AtomicU64::new(1);

/// Source of [`Breaking::seq`].
static NEXT_BREAK_SEQ: AtomicU64 = AtomicU64::new(1);

/// The open files of a store. Shares of one store are given the same, so that
/// share modes, locks, leases and deletes of one hold on the others; its
/// backends report file ids. A share that is given none has its own.
#[derive(Clone, Default)]
pub struct OpenFiles(pub(crate) Arc<FileTable>);

/// An access outside the server that leases stand against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutsideAccess {
    /// Reading the data or its size.
    Read,
    /// Changing the data or its size.
    Write,
    /// Removing, replacing or renaming a name of the file.
    Rename,
}

impl From<OutsideAccess> for Trigger {
    fn from(access: OutsideAccess) -> Self {
        match access {
            OutsideAccess::Read => Self::Open { overwrite: false },
            OutsideAccess::Write => Self::Write,
            OutsideAccess::Rename => Self::Handle,
        }
    }
}

impl OpenFiles {
    /// Whether a client caches of the file with the backend's id
    /// `file_index` what it must give up before `access`.
    pub fn hold(&self, file_index: u64, access: OutsideAccess) -> bool {
        self.0.holds_against(file_index, access.into())
    }

    /// Breaks those leases and waits until the clients have given up what
    /// `access` needs gone, or have lost it for want of an answer.
    pub async fn recall(&self, file_index: u64, access: OutsideAccess) {
        self.0.break_against(file_index, access.into()).await;
    }

    /// The file with the backend's id `file_index` was changed outside the
    /// server, or any file may have been (`None`): leases on it break, as by
    /// a write through an open that holds none, so that clients drop what
    /// they cache.
    pub fn changed_outside(&self, file_index: Option<u64>) {
        self.0.break_for_outside_change(file_index);
    }

    /// Size, times or attributes of a file were changed by somebody who does not know its directories, or by another
    /// share of the store: leases of directories break, so that clients list them again.
    pub fn entry_changed_outside(&self) {
        self.0.leased_directories.any_entry_changed();
    }
}

/// Every file of one store that has an open.
#[derive(Default)]
pub(crate) struct FileTable {
    files: Mutex<HashMap<FileKey, Arc<FileNode>>>,
    /// As many as `files`, to be read without its lock.
    count: AtomicUsize,
    /// How many of them are named streams.
    streams: AtomicUsize,
    next_open: AtomicU64,
    leased_directories: LeasedDirectories,
}

pub(super) struct FileNode {
    /// Of a named stream: the backend's id of what it belongs to, else `0`.
    base: u64,
    state: Mutex<FileState>,
}

struct FileState {
    /// The node holding this state.
    me: Weak<FileNode>,
    key: FileKey,
    is_directory: bool,
    opens: Vec<OpenEntry>,
    /// The name to remove once the last open closes, while the file is
    /// delete-pending.
    delete_pending: Option<Named>,
    locks: Vec<RangeLock>,
    /// Leases held by the opens, one per LeaseId.
    leases: Vec<FileLease>,
    /// Counts changes that can unblock an operation waiting on the file: a
    /// lease break that completed, a lease that ended, a range unlocked, an
    /// open that left.
    changed: tokio::sync::watch::Sender<u64>,
}

/// A name of a file, on the share it was opened by.
#[derive(Clone)]
struct Named {
    share: Arc<ShareBindings>,
    path: SmbPath,
}

impl Named {
    /// The path, if it is one of `share`.
    fn on(&self, share: &ShareBindings) -> Option<&SmbPath> {
        std::ptr::eq(Arc::as_ptr(&self.share), share).then_some(&self.path)
    }

    fn is(&self, share: &ShareBindings, path: &SmbPath) -> bool {
        self.on(share).is_some_and(|own| same_path(own, path, case_sensitive(share)))
    }

    fn is_below(&self, share: &ShareBindings, dir: &SmbPath) -> bool {
        self.on(share).is_some_and(|own| {
            own.components().len() > dir.components().len() && rebase(own, dir, dir, case_sensitive(share)).is_some()
        })
    }

    fn rename(&mut self, share: &ShareBindings, from: &SmbPath, to: &SmbPath) {
        if let Some(path) = self.on(share).and_then(|own| rebase(own, from, to, case_sensitive(share))) {
            self.path = path;
        }
    }
}

fn case_sensitive(share: &ShareBindings) -> bool {
    share.backend.capabilities().case_sensitive
}

struct OpenEntry {
    id: u64,
    sharing: Sharing,
    name: Named,
    /// The lease the open holds.
    lease: Option<LeaseId>,
    /// The connection the open belongs to, where breaks of its lease go.
    owner: Notified,
    /// A CREATE waiting for other clients to give up write caching. It
    /// counts against their write caching but not in the sharing check of
    /// other opens; it runs its own sharing check once the wait ends
    /// (MS-FSA 2.1.5.1 checks for oplock breaks before the open joins the
    /// file's opens).
    waiting: bool,
    /// Set on a durable open.
    durable: Option<DurableMark>,
}

/// A table of opens that are kept without a connection.
pub(crate) trait KeptOpens: Send + Sync {
    /// Closes the kept open `id`, which no client can take back any more:
    /// a break of its lease needed what the lease caches, or the lease lost
    /// handle caching (MS-SMB2 3.3.4.7). The close runs on a task of the
    /// current runtime.
    fn purge(&self, id: u64);
}

/// The durable side of an open's entry: where the open is registered,
/// whether it is kept without a connection, and whether a lease break
/// already decided to close it.
#[derive(Debug, Clone)]
pub(crate) struct DurableMark {
    pub table: Weak<dyn KeptOpens>,
    pub id: u64,
    pub detached: bool,
    pub doomed: bool,
}

/// A new open, as [`FileRef::register`] enters it.
#[derive(Default)]
pub(crate) struct OpenRequest {
    pub sharing: Sharing,
    /// The connection the open belongs to.
    pub owner: Notified,
    /// The lease the CREATE asks for. Its own lease is not broken by the
    /// open (MS-FSA 2.1.4.12.2).
    pub lease: Option<LeaseId>,
    /// The lease of the directory that the CREATE names as its parent's.
    pub parent_lease: Option<LeaseId>,
    /// The CREATE supersedes or overwrites the file.
    pub overwrite: bool,
    /// On a sharing violation, break the handle caching of the leases on
    /// the file so their clients can close the handles they keep open
    /// (MS-FSA 2.1.5.1.2). Without it, a violation still waits while such a
    /// break is in progress.
    pub break_handles: bool,
}

/// Why [`FileRef::register`] refused an open.
#[derive(Debug)]
pub(crate) struct Refused {
    pub status: u32,
    /// Set when the refusal was a sharing violation that broke handle
    /// caching: once it completes, the open may succeed.
    pub wait: Option<BreakWait>,
}

impl From<u32> for Refused {
    fn from(status: u32) -> Self {
        Self { status, wait: None }
    }
}

#[cfg(test)]
impl From<Sharing> for OpenRequest {
    fn from(sharing: Sharing) -> Self {
        Self { sharing, ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy)]
struct RangeLock {
    owner: u64,
    offset: u64,
    length: u64,
    exclusive: bool,
}

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FileNode {
    fn state(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    /// Whether the lease `id` is held on this file.
    pub(super) fn has_lease(&self, id: LeaseId) -> bool {
        self.state().leases.iter().any(|l| l.id == id)
    }

    /// Whether it is open under the name `path` of `share`.
    pub(super) fn is_open_as(&self, share: &ShareBindings, path: &SmbPath) -> bool {
        self.state().opens.iter().any(|open| open.name.is(share, path))
    }

    /// Breaks its leases, but for `spared`, for a change that waits for none of them.
    pub(super) fn break_leases(&self, trigger: Trigger, spared: Option<LeaseId>) {
        let notices = self.state().break_for(trigger, spared).0;
        drop(notices);
    }

    /// The names of the opens holding the lease `id`, or `None` when the
    /// lease is not held on this file.
    pub(super) fn lease_paths(&self, id: LeaseId) -> Option<Vec<SmbPath>> {
        let state = self.state();
        state
            .leases
            .iter()
            .any(|l| l.id == id)
            .then(|| state.opens.iter().filter(|e| e.lease == Some(id)).map(|e| e.name.path.clone()).collect())
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
        lease.state = acked;
        debug!(key = ?id.key, state = ?acked, "lease break acknowledged");
        let mut notices = Notices::default();
        if !required.contains(acked) {
            state.start_break(at, acked.and(required), &mut notices);
        }
        let doomed = state.doom_uncovered(id);
        notices.close(doomed);
        state.bump();
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
        lease.state = LeaseState::NONE;
        debug!(key = ?id.key, "lease break not acknowledged; lease dropped to none");
        let doomed = state.doom_uncovered(id);
        notices.close(doomed);
        state.bump();
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
                state.bump();
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
            if state.held_only_detached(id) {
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
    /// MS-FSA 2.1.5.1: a delete-pending file opens for nobody; otherwise the
    /// sharing check of 2.1.5.1.2.2 runs against every open on the file.
    /// Waiting CREATEs and the open `except` take no part.
    fn admit(&self, sharing: Sharing, except: Option<u64>) -> Result<(), u32> {
        if self.delete_pending.is_some() {
            return Err(ntstatus::STATUS_DELETE_PENDING);
        }
        if self.opens.iter().any(|e| !e.waiting && Some(e.id) != except && e.sharing.conflicts_with(sharing)) {
            return Err(ntstatus::STATUS_SHARING_VIOLATION);
        }
        Ok(())
    }

    fn entry(&self, id: u64) -> Option<&OpenEntry> {
        self.opens.iter().find(|e| e.id == id)
    }

    /// The connections of the opens holding the lease `id`, each once, in
    /// open order: where a break of the lease may go (MS-SMB2 3.3.4.7).
    fn owners(&self, id: LeaseId) -> Vec<Notified> {
        let mut owners: Vec<Notified> = Vec::new();
        for entry in self.opens.iter().filter(|e| e.lease == Some(id)) {
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
    fn break_for(&mut self, trigger: Trigger, exempt: Option<LeaseId>) -> (Notices, bool) {
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
    fn start_break(&mut self, at: usize, to: LeaseState, notices: &mut Notices) {
        let id = self.leases[at].id;
        let orphaned = self.held_only_detached(id);
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

    /// Whether the lease `id` is held, and only by opens kept for reconnect.
    fn held_only_detached(&self, id: LeaseId) -> bool {
        let mut holders = self.opens.iter().filter(|e| e.lease == Some(id)).peekable();
        holders.peek().is_some() && holders.all(|e| e.durable.as_ref().is_some_and(|d| d.detached))
    }

    /// Marks the opens kept for reconnect under the lease `id` that the
    /// lease no longer covers to be closed: every one once it stops caching
    /// handles, and the ones holding byte-range locks once it stops caching
    /// writes. MS-SMB2 3.3.7.1 keeps no others, and a lock left behind would
    /// block other clients' reads and writes, which break nothing.
    fn doom_uncovered(&mut self, id: LeaseId) -> Vec<DurableMark> {
        let state = self.leases.iter().find(|l| l.id == id).map_or(LeaseState::NONE, |l| l.state);
        if !state.contains(LeaseState::H) {
            return self.doom_detached(id, |_| true);
        }
        if state.contains(LeaseState::W) {
            return Vec::new();
        }
        let locked: Vec<u64> = self.locks.iter().map(|l| l.owner).collect();
        self.doom_detached(id, |open| locked.contains(&open))
    }

    /// Marks the opens kept for reconnect under the lease `id` that `pick`
    /// accepts, by entry id, to be closed, and returns the ones not marked
    /// before.
    fn doom_detached(&mut self, id: LeaseId, pick: impl Fn(u64) -> bool) -> Vec<DurableMark> {
        let mut doomed = Vec::new();
        for entry in self.opens.iter_mut().filter(|e| e.lease == Some(id)) {
            if !pick(entry.id) {
                continue;
            }
            if let Some(mark) = entry.durable.as_mut().filter(|d| d.detached && !d.doomed) {
                mark.doomed = true;
                doomed.push(mark.clone());
            }
        }
        doomed
    }

    /// Whether a lease other than `exempt` still caches handles while a
    /// break of it is in progress.
    fn handle_break_pending(&self, exempt: Option<LeaseId>) -> bool {
        self.leases.iter().any(|l| Some(l.id) != exempt && l.breaking.is_some() && l.state.contains(LeaseState::H))
    }

    /// Whether a lease other than `exempt` still caches writes while a
    /// break of it is in progress.
    fn write_break_pending(&self, exempt: Option<LeaseId>) -> bool {
        self.leases.iter().any(|l| Some(l.id) != exempt && l.breaking.is_some() && l.state.contains(LeaseState::W))
    }

    /// Wakes operations waiting on the file.
    fn bump(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// A wait for the next change on the file.
    fn wait(&self) -> BreakWait {
        BreakWait::new(self.changed.subscribe())
    }

    /// MS-FSA 2.1.4.10: whether the range conflicts with a lock. `exclusive`
    /// is the intent of the access (a write, or an exclusive lock) and
    /// `lock_intent` tells a lock request from a read or write.
    fn range_conflicts(&self, owner: u64, offset: u64, length: u64, exclusive: bool, lock_intent: bool) -> bool {
        if offset == 0 && length == 0 {
            return false;
        }
        self.locks.iter().any(|l| {
            overlaps(l.offset, l.length, offset, length)
                && if l.exclusive { l.owner != owner || (exclusive && lock_intent) } else { exclusive }
        })
    }
}

/// The bytes of a range that others than SMB clients can know: it is not empty.
pub(crate) fn bytes_of(offset: u64, length: u64) -> Option<std::ops::RangeInclusive<u64>> {
    (length > 0).then(|| offset..=last_byte(offset, length))
}

/// Offset of the last byte of a range. A zero-length range ends just before
/// its offset.
fn last_byte(offset: u64, length: u64) -> u64 {
    if length == 0 { offset.wrapping_sub(1) } else { offset.saturating_add(length - 1) }
}

fn overlaps(a_offset: u64, a_length: u64, b_offset: u64, b_length: u64) -> bool {
    if (a_offset == 0 && a_length == 0) || (b_offset == 0 && b_length == 0) {
        return false;
    }
    a_offset <= last_byte(b_offset, b_length) && last_byte(a_offset, a_length) >= b_offset
}

impl FileTable {
    fn files(&self) -> MutexGuard<'_, HashMap<FileKey, Arc<FileNode>>> {
        lock(&self.files)
    }

    /// Breaks what clients cache of the file with the backend's id
    /// `file_index`, or of every file, as a write by nobody's open would.
    pub(crate) fn break_for_outside_change(&self, file_index: Option<u64>) {
        let nodes: Vec<Arc<FileNode>> = match file_index {
            Some(index) => self.files().get(&FileKey::Index(index)).cloned().into_iter().collect(),
            None => self.files().values().cloned().collect(),
        };
        for node in nodes {
            node.break_leases(Trigger::Write, None);
        }
    }

    /// Breaks the directory leases that show the entry `path` of `share`, after it was changed through an open whose
    /// parent's lease is `spared`.
    pub(crate) fn entry_changed(&self, share: &ShareBindings, path: &SmbPath, spared: Option<LeaseId>) {
        self.leased_directories.entry_changed(share, path, spared);
    }

    /// Whether a client holds a lease of a directory.
    pub(crate) fn has_leased_directories(&self) -> bool {
        !self.leased_directories.is_empty()
    }

    /// Whether a lease on the file with the backend's id `file_index` would
    /// break for an access outside the server.
    pub(crate) fn holds_against(&self, file_index: u64, access: Trigger) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let node = self.files().get(&FileKey::Index(file_index)).cloned();
        node.is_some_and(|node| {
            let state = node.state();
            let breaks = |l: &FileLease| break_to(access, l.state, l.id.is_oplock()).is_some();
            state.leases.iter().any(breaks)
        })
    }

    /// Breaks the leases on the file for an access outside the server, and
    /// waits until their clients have given up what the access needs gone:
    /// their acknowledgment timers bound the wait.
    pub(crate) async fn break_against(&self, file_index: u64, access: Trigger) {
        let Some(node) = self.files().get(&FileKey::Index(file_index)).cloned() else {
            return;
        };
        let (notices, mut waits) = node.state().break_for(access, None);
        drop(notices);
        while waits {
            let wait = {
                let state = node.state();
                let pending = match access {
                    Trigger::Handle | Trigger::SharingViolation => state.handle_break_pending(None),
                    _ => state.write_break_pending(None),
                };
                pending.then(|| state.wait())
            };
            waits = match wait {
                Some(mut wait) => wait.changed().await,
                None => false,
            };
        }
    }

    /// True if an open on the share currently has `path` as its name.
    pub(crate) fn path_is_open(&self, share: &ShareBindings, path: &SmbPath) -> bool {
        self.files().values().any(|node| node.state().opens.iter().any(|e| e.name.is(share, path)))
    }

    /// True if an open on the share that may delete what it opened currently
    /// has `path` as its name.
    pub(crate) fn open_for_delete(&self, share: &ShareBindings, path: &SmbPath) -> bool {
        self.files().values().any(|node| {
            node.state().opens.iter().any(|e| !e.waiting && e.sharing.access & DELETE != 0 && e.name.is(share, path))
        })
    }

    /// For each of `paths`, whether an open on the share that may write
    /// the file's data or attributes currently has it as its name. The
    /// opens are looked at once for all of them.
    pub(crate) fn open_to_change(&self, share: &ShareBindings, paths: &[SmbPath]) -> Vec<bool> {
        if paths.is_empty() {
            return Vec::new();
        }
        let case_sensitive = case_sensitive(share);
        let mut open = HashSet::new();
        for node in self.files().values() {
            for entry in &node.state().opens {
                if entry.sharing.access & (WRITE_ACCESS | FILE_WRITE_ATTRIBUTES) != 0
                    && let Some(path) = entry.name.on(share)
                {
                    open.insert(path_key(path, case_sensitive));
                }
            }
        }
        paths.iter().map(|path| open.contains(&path_key(path, case_sensitive))).collect()
    }

    /// True if the file named `path` is delete-pending.
    pub(crate) fn delete_pending_at(&self, share: &ShareBindings, path: &SmbPath) -> bool {
        self.files().values().any(|node| {
            let state = node.state();
            state
                .delete_pending
                .as_ref()
                .is_some_and(|pending| pending.is(share, path) || state.opens.iter().any(|e| e.name.is(share, path)))
        })
    }

    /// Breaks the handle caching of the leases on the file open as `path`,
    /// all but `exempt` (MS-FSA 2.1.4.12, SET_INFORMATION rename), when
    /// `start`. Returns a wait for the break to complete while one is in
    /// progress.
    pub(crate) fn break_handles_at(
        &self,
        share: &ShareBindings,
        path: &SmbPath,
        exempt: Option<LeaseId>,
        start: bool,
    ) -> Option<BreakWait> {
        let mut all = Vec::new();
        let mut wait = None;
        let files = self.files();
        for node in files.values() {
            let mut state = node.state();
            if !state.opens.iter().any(|e| e.name.is(share, path)) {
                continue;
            }
            let waits = if start {
                let (notices, waits) = state.break_for(Trigger::Handle, exempt);
                all.push(notices);
                waits
            } else {
                state.handle_break_pending(exempt)
            };
            if waits && wait.is_none() {
                wait = Some(state.wait());
            }
        }
        drop(files);
        drop(all);
        wait
    }

    /// True if an open on the share has a name below the directory `dir`
    /// (MS-FSA 2.1.4.2).
    pub(crate) fn open_below(&self, share: &ShareBindings, dir: &SmbPath) -> bool {
        self.files().values().any(|node| node.state().opens.iter().any(|e| e.name.is_below(share, dir)))
    }

    /// Breaks the handle caching of every lease on a file open below the
    /// directory `dir`, which is being renamed, when `start` (MS-FSA 2.1.4.2,
    /// MS-SMB2 3.3.1.4). Returns a wait for a break to complete while one is
    /// in progress.
    pub(crate) fn break_handles_below(&self, share: &ShareBindings, dir: &SmbPath, start: bool) -> Option<BreakWait> {
        let mut all = Vec::new();
        let mut wait = None;
        let files = self.files();
        for node in files.values() {
            let mut state = node.state();
            if !state.opens.iter().any(|e| e.name.is_below(share, dir)) {
                continue;
            }
            let waits = if start {
                let (notices, waits) = state.break_for(Trigger::Handle, None);
                all.push(notices);
                waits
            } else {
                state.handle_break_pending(None)
            };
            if waits && wait.is_none() {
                wait = Some(state.wait());
            }
        }
        drop(files);
        drop(all);
        wait
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

    /// Moves every open whose name is `from`, or lies below it, to the
    /// matching name under `to`.
    pub(crate) fn rename_paths(&self, share: &ShareBindings, from: &SmbPath, to: &SmbPath) {
        let case_sensitive = case_sensitive(share);
        let mut files = self.files();
        let mut rekeyed = Vec::new();
        for node in files.values() {
            let mut state = node.state();
            for entry in &mut state.opens {
                entry.name.rename(share, from, to);
            }
            if let Some(pending) = &mut state.delete_pending {
                pending.rename(share, from, to);
            }
            if matches!(state.key, FileKey::Path(_))
                && let Some(entry) = state.opens.first()
            {
                let key = FileKey::Path(path_key(&entry.name.path, case_sensitive));
                if key != state.key {
                    rekeyed.push((state.key.clone(), key));
                }
            }
        }
        for (old, new) in rekeyed {
            if files.contains_key(&new) {
                continue;
            }
            if let Some(node) = files.remove(&old) {
                node.state().key = new.clone();
                files.insert(new, node);
            }
        }
    }
}

/// One open's entry in its share's [`FileTable`]. Dropping it removes the
/// entry and its locks; [`FileRef::release`] does the same and hands back a
/// delete still to be done.
pub(crate) struct FileRef {
    share: Arc<ShareBindings>,
    node: Arc<FileNode>,
    id: u64,
    /// The binding of this open's lease, released after the entry leaves
    /// the table.
    lease: Option<LeaseRef>,
    /// The lease of its directory, as its CREATE named it (`dirlease.own_parent_key`).
    parent_lease: Option<LeaseId>,
    released: bool,
}

impl FileRef {
    /// Adds the open `req` describes of the file `info` describes, reached
    /// through `path`, holding the lease it asks for. Fails with
    /// STATUS_DELETE_PENDING or STATUS_SHARING_VIOLATION when the opens
    /// already on the file do not allow it. An open that is not
    /// attribute-only breaks the leases it conflicts with, and returns a
    /// wait when other clients have to write back what they cache first
    /// (MS-FSA 2.1.4.12, OPEN).
    pub(crate) fn register(
        share: &Arc<ShareBindings>,
        info: &FileInfo,
        path: &SmbPath,
        req: OpenRequest,
    ) -> Result<(Self, Option<BreakWait>), Refused> {
        let key = FileKey::new(info, path, case_sensitive(share));
        let table = &share.files;
        let mut files = table.files();
        table.admit_beside(&files, info, req.sharing)?;
        let base = if info.stream_index != 0 { info.file_index } else { 0 };
        let node = files
            .entry(key.clone())
            .or_insert_with(|| {
                if base != 0 {
                    table.streams.fetch_add(1, Ordering::AcqRel);
                }
                Arc::new_cyclic(|me| FileNode {
                    base,
                    state: Mutex::new(FileState {
                        me: me.clone(),
                        key,
                        is_directory: info.is_directory,
                        opens: Vec::new(),
                        delete_pending: None,
                        locks: Vec::new(),
                        leases: Vec::new(),
                        changed: tokio::sync::watch::Sender::new(0),
                    }),
                })
            })
            .clone();
        table.counted(&files);
        let mut state = node.state();
        if let Err(status) = state.admit(req.sharing, None) {
            let mut wait = None;
            let mut notices = Notices::default();
            if status == ntstatus::STATUS_SHARING_VIOLATION {
                if req.break_handles {
                    let (sent, waits) = state.break_for(Trigger::SharingViolation, req.lease);
                    notices = sent;
                    wait = waits.then(|| state.wait());
                } else if state.handle_break_pending(req.lease) {
                    wait = Some(state.wait());
                }
            }
            drop(state);
            drop(files);
            drop(notices);
            return Err(Refused { status, wait });
        }
        let id = table.next_open.fetch_add(1, Ordering::Relaxed);
        state.opens.push(OpenEntry {
            id,
            sharing: req.sharing,
            name: Named { share: Arc::clone(share), path: path.clone() },
            lease: req.lease,
            owner: req.owner,
            waiting: false,
            durable: None,
        });
        let (notices, waits) = match open_trigger(req.sharing.access, req.overwrite) {
            Some(trigger) => state.break_for(trigger, req.lease),
            None => Default::default(),
        };
        if waits && let Some(entry) = state.opens.last_mut() {
            entry.waiting = true;
        }
        let wait = waits.then(|| state.wait());
        drop(state);
        drop(files);
        drop(notices);
        let file =
            Self { share: Arc::clone(share), node, id, lease: None, parent_lease: req.parent_lease, released: false };
        Ok((file, wait))
    }

    /// Ends the wait of a CREATE that waited for other clients to give up
    /// write caching: `Ok(None)` once it may go ahead, after it passes the
    /// delete-pending and sharing checks the opens on the file now ask
    /// for; a wait while a write break is still in progress; or the
    /// status the CREATE fails with.
    pub(crate) fn end_wait(&self) -> Result<Option<BreakWait>, u32> {
        let mut state = self.node.state();
        let Some(entry) = state.entry(self.id) else {
            return Err(ntstatus::STATUS_FILE_CLOSED);
        };
        let (lease, sharing) = (entry.lease, entry.sharing);
        if state.write_break_pending(lease) {
            return Ok(Some(state.wait()));
        }
        state.admit(sharing, Some(self.id))?;
        if let Some(entry) = state.opens.iter_mut().find(|e| e.id == self.id) {
            entry.waiting = false;
        }
        Ok(None)
    }

    /// Whether this open's file is `node`.
    pub(super) fn is_on(&self, node: &Arc<FileNode>) -> bool {
        Arc::ptr_eq(&self.node, node)
    }

    pub(super) fn node(&self) -> &Arc<FileNode> {
        &self.node
    }

    pub(super) fn share(&self) -> &Arc<ShareBindings> {
        &self.share
    }

    /// The lease that a change through this open spares on its directory.
    pub(crate) fn parent_lease(&self) -> Option<LeaseId> {
        self.parent_lease
    }

    /// Breaks the directory leases that show its entry `path`, after a change through this open.
    pub(crate) fn entry_changed(&self, path: &SmbPath) {
        self.share.files.entry_changed(&self.share, path, self.parent_lease);
    }

    /// Makes this open a holder of the lease `req` asks for and grants it
    /// the best state within `grantable` that the file allows (MS-SMB2
    /// 3.3.5.9.8, 3.3.5.9.11). Lease breaks held back until the CREATE
    /// response is queued wait for the returned guard.
    pub(super) fn grant_lease(
        &self,
        req: &LeaseRequest,
        grantable: impl FnOnce() -> LeaseState,
    ) -> (Granted, GrantGuard) {
        let mut state = self.node.state();
        let mut grantable = grantable();
        if state.is_directory {
            grantable = grantable.without(LeaseState::W);
            self.share.files.leased_directories.add(&self.node);
        }
        let mut sender = Notified::default();
        if let Some(entry) = state.opens.iter_mut().find(|e| e.id == self.id) {
            entry.lease = Some(req.id);
            sender = entry.owner.clone();
        }
        let opens: Vec<OpenView> =
            state.opens.iter().map(|e| OpenView { lease: e.lease, stat_only: stat_only(e.sharing.access) }).collect();
        let leases: Vec<(LeaseId, LeaseState)> = state.leases.iter().map(|l| (l.id, l.state)).collect();
        let file = FileView {
            opens: &opens,
            leases: &leases,
            has_locks: !state.locks.is_empty(),
            delete_pending: state.delete_pending.is_some(),
        };
        let existing = state.leases.iter().position(|l| l.id == req.id);
        let current =
            existing.map(|at| Current { state: state.leases[at].state, breaking: state.leases[at].breaking.is_some() });
        let (granted, breaking) = grant(req.id, req.state, current, &file, grantable);
        let lease = match existing {
            Some(at) => {
                let lease = &mut state.leases[at];
                lease.set_state(granted);
                lease
            }
            None => {
                let serial = NEXT_LEASE_SERIAL.fetch_add(1, Ordering::Relaxed);
                state.leases.push(FileLease::new(req, granted, serial));
                state.leases.last_mut().expect("just pushed")
            }
        };
        lease.grants_in_flight += 1;
        debug!(key = ?req.id.key, state = ?lease.state, "lease granted");
        let serial = lease.serial;
        let snapshot = Granted {
            id: lease.id,
            state: lease.state,
            breaking,
            epoch: lease.epoch,
            version: lease.version,
            parent: lease.parent,
        };
        drop(state);
        let guard = GrantGuard::new(Arc::clone(&self.node), req.id, serial, sender);
        (snapshot, guard)
    }

    /// Keeps the lease binding for as long as this open lasts.
    pub(super) fn keep_lease(&mut self, lease: LeaseRef) {
        self.lease = Some(lease);
    }

    /// The lease or oplock this open holds, as a CREATE response reports it.
    pub(crate) fn granted(&self) -> Option<Granted> {
        let state = self.node.state();
        let id = state.entry(self.id).and_then(|e| e.lease)?;
        let lease = state.leases.iter().find(|l| l.id == id)?;
        Some(Granted {
            id,
            state: lease.state,
            breaking: lease.breaking.is_some(),
            epoch: lease.epoch,
            version: lease.version,
            parent: lease.parent,
        })
    }

    /// Records the open's FileId, which breaks of its oplock name. Called
    /// before the response that tells the client the id is queued.
    pub(crate) fn set_file_id(&self, file_id: FileId) {
        let mut state = self.node.state();
        let id = state.entry(self.id).and_then(|e| e.lease);
        if let Some(lease) = state.leases.iter_mut().find(|l| l.id.is_oplock() && Some(l.id) == id) {
            lease.file_id = file_id;
        }
    }

    /// MS-SMB2 3.3.5.22.1: completes the break of this open's oplock with
    /// `level`, as the client acknowledged it. A further break it starts is
    /// returned to send after the response. Fails with
    /// STATUS_INVALID_OPLOCK_PROTOCOL when no break is in progress, as Windows
    /// does in place of STATUS_INVALID_DEVICE_STATE, and for a level that is
    /// neither the one notified nor none; the latter ends the oplock.
    pub(crate) fn acknowledge_oplock(&self, level: u8) -> Result<Notices, u32> {
        let held = {
            let state = self.node.state();
            let id = state.entry(self.id).and_then(|e| e.lease);
            state
                .leases
                .iter()
                .find(|l| l.id.is_oplock() && Some(l.id) == id)
                .map(|l| (l.id, l.breaking.as_ref().map(|b| b.seq)))
        };
        let valid = matches!(OplockLevel::from_u8(level), Some(OplockLevel::None | OplockLevel::Ii));
        let Some((id, Some(seq))) = held else {
            return Err(ntstatus::STATUS_INVALID_OPLOCK_PROTOCOL);
        };
        let acked = match valid {
            true => self.node.acknowledge(id, LeaseState::of_oplock(level).bits()),
            false => Err(ntstatus::STATUS_REQUEST_NOT_ACCEPTED),
        };
        match acked {
            Ok((_, notices)) => Ok(notices),
            Err(_) => {
                drop(self.node.drop_break(id, seq));
                Err(ntstatus::STATUS_INVALID_OPLOCK_PROTOCOL)
            }
        }
    }

    /// Marks the open durable, registered as `id` in `table`.
    pub(crate) fn mark_durable(&self, table: &Arc<impl KeptOpens + 'static>, id: u64) {
        let table = Arc::downgrade(table);
        let mut state = self.node.state();
        if let Some(entry) = state.opens.iter_mut().find(|e| e.id == self.id) {
            entry.durable = Some(DurableMark { table, id, detached: false, doomed: false });
        }
    }

    /// Takes a durable open off its connection to keep it for reconnect
    /// (MS-SMB2 3.3.7.1): only while its lease caches handles with no break
    /// in progress (Open.OplockState Held), and while its byte-range locks,
    /// if it holds any, are covered by write caching. From then on breaks of
    /// the lease close it instead of going to a client. Returns whether the
    /// open is kept.
    pub(crate) fn try_detach(&self) -> bool {
        let mut state = self.node.state();
        let Some(at) = state.opens.iter().position(|e| e.id == self.id) else {
            return false;
        };
        let entry = &state.opens[at];
        let Some(lease) = entry.lease.and_then(|id| state.leases.iter().find(|l| l.id == id)) else {
            return false;
        };
        let has_locks = state.locks.iter().any(|l| l.owner == self.id);
        let keeps = entry.durable.as_ref().is_some_and(|d| !d.detached && !d.doomed)
            && lease.state.contains(LeaseState::H)
            && lease.breaking.is_none()
            && (!has_locks || lease.state.contains(LeaseState::W));
        if !keeps {
            return false;
        }
        let entry = &mut state.opens[at];
        entry.owner = Notified::default();
        if let Some(mark) = entry.durable.as_mut() {
            mark.detached = true;
        }
        true
    }

    /// Whether a lease break decided to close this open while it was kept
    /// for reconnect.
    pub(crate) fn is_doomed(&self) -> bool {
        self.node.state().entry(self.id).and_then(|e| e.durable.as_ref()).is_some_and(|d| d.doomed)
    }

    /// Puts an open kept for reconnect back on the connection `owner`
    /// (MS-SMB2 3.3.5.9.7): only while it is still kept, no break decided to
    /// close it, and its lease caches handles. Returns the lease as the
    /// CREATE response reports it, and a guard that holds back break
    /// notifications for the lease until that response is queued.
    pub(crate) fn reattach(&self, owner: Notified) -> Option<(Granted, GrantGuard)> {
        let mut state = self.node.state();
        let at = state.opens.iter().position(|e| e.id == self.id)?;
        let entry = &state.opens[at];
        let id = entry.lease?;
        if !entry.durable.as_ref().is_some_and(|d| d.detached && !d.doomed) {
            return None;
        }
        let lease = state.leases.iter_mut().find(|l| l.id == id)?;
        if !lease.state.contains(LeaseState::H) {
            return None;
        }
        lease.grants_in_flight += 1;
        let serial = lease.serial;
        let granted = Granted {
            id,
            state: lease.state,
            breaking: lease.breaking.is_some(),
            epoch: lease.epoch,
            version: lease.version,
            parent: lease.parent,
        };
        let entry = &mut state.opens[at];
        entry.owner = owner.clone();
        if let Some(mark) = entry.durable.as_mut() {
            mark.detached = false;
        }
        drop(state);
        let guard = GrantGuard::new(Arc::clone(&self.node), id, serial, owner);
        Some((granted, guard))
    }

    /// Breaks the leases on the file that `trigger` through this open
    /// conflicts with: every lease but the one this open holds, whichever
    /// client holds it.
    pub(crate) fn break_leases(&self, trigger: Trigger) {
        let notices = {
            let mut state = self.node.state();
            let exempt = state.entry(self.id).and_then(|e| e.lease);
            state.break_for(trigger, exempt).0
        };
        drop(notices);
    }

    /// The lease this open holds.
    pub(crate) fn lease_id(&self) -> Option<LeaseId> {
        self.node.state().entry(self.id).and_then(|e| e.lease)
    }

    /// The open's current name.
    pub(crate) fn path(&self) -> SmbPath {
        self.node.state().entry(self.id).map(|e| e.name.path.clone()).unwrap_or_default()
    }

    /// The names the opens of this file have on its share, each once: every
    /// path a watch of it can be armed under.
    pub(crate) fn open_paths(&self) -> Vec<SmbPath> {
        let state = self.node.state();
        let mut paths: Vec<SmbPath> = Vec::new();
        for path in state.opens.iter().filter_map(|e| e.name.on(&self.share)) {
            if !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        paths
    }

    /// True if this is an entry for the file `info` describes, reached
    /// through `path`.
    pub(crate) fn is_for(&self, info: &FileInfo, path: &SmbPath) -> bool {
        FileKey::new(info, path, case_sensitive(&self.share)) == self.node.state().key
    }

    /// The backend's file id, `0` if it has none.
    pub(crate) fn index(&self) -> u64 {
        self.node.state().key.index()
    }

    /// True if the backend's file id `file_index` is this file's.
    pub(crate) fn has_index(&self, file_index: u64) -> bool {
        file_index != 0 && self.node.state().key == FileKey::Index(file_index)
    }

    /// Whether the file is delete-pending (MS-FSA Link.IsDeleted).
    pub(crate) fn delete_pending(&self) -> bool {
        self.node.state().delete_pending.is_some()
    }

    /// Sets or clears the delete-pending flag of the file (MS-FSA
    /// 2.1.5.15.3). The file is removed under this open's name when its last
    /// open closes.
    ///
    /// Marking the file breaks the handle caching of its leases, all but
    /// this open's, under the same lock, so no lease caches handles to a
    /// delete-pending file (MS-FSA 2.1.4.12, 2.1.5.18).
    pub(crate) fn set_delete_pending(&self, delete: bool) {
        let notices = {
            let mut state = self.node.state();
            if delete {
                let entry = state.entry(self.id).map(|e| (e.lease, e.name.clone()));
                let exempt = entry.as_ref().and_then(|e| e.0);
                state.delete_pending = entry.map(|e| e.1);
                state.break_for(Trigger::Handle, exempt).0
            } else {
                state.delete_pending = None;
                Notices::default()
            }
        };
        drop(notices);
    }

    /// Takes a byte-range lock for this open (MS-FSA 2.1.5.8). Fails with
    /// STATUS_INVALID_LOCK_RANGE when the range passes the largest offset,
    /// STATUS_INSUFFICIENT_RESOURCES when the open already holds `limit`
    /// locks, and STATUS_LOCK_NOT_GRANTED when it conflicts with a lock
    /// already held.
    pub(crate) fn lock_range(&self, offset: u64, length: u64, exclusive: bool, limit: usize) -> Result<(), u32> {
        if length != 0 && offset.checked_add(length - 1).is_none() {
            return Err(ntstatus::STATUS_INVALID_LOCK_RANGE);
        }
        let mut state = self.node.state();
        if state.locks.iter().filter(|l| l.owner == self.id).count() >= limit {
            return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
        }
        if state.range_conflicts(self.id, offset, length, exclusive, true) {
            return Err(ntstatus::STATUS_LOCK_NOT_GRANTED);
        }
        // MS-FSA 2.1.5.8: a lock breaks the leases on the file, all but the
        // one this open holds, wherever the range lies. Under the same lock
        // no lease can be granted between the two. While another lease
        // still caches writes, which only an attribute-only open allows,
        // the lock is refused: a lock taken now would keep that client from
        // writing back. A request that may wait tries again after that.
        let exempt = state.entry(self.id).and_then(|e| e.lease);
        let caching_writes = state.leases.iter().any(|l| Some(l.id) != exempt && l.state.contains(LeaseState::W));
        let notices = state.break_for(Trigger::Write, exempt).0;
        if !caching_writes {
            state.locks.push(RangeLock { owner: self.id, offset, length, exclusive });
        }
        drop(state);
        drop(notices);
        if caching_writes {
            return Err(ntstatus::STATUS_LOCK_NOT_GRANTED);
        }
        Ok(())
    }

    /// Releases a lock this open holds on exactly this range, an exclusive
    /// one first (MS-FSA 2.1.5.9), and returns whether it was. Fails with
    /// STATUS_RANGE_NOT_LOCKED when it holds none.
    pub(crate) fn unlock_range(&self, offset: u64, length: u64) -> Result<bool, u32> {
        let mut state = self.node.state();
        let matches = |l: &RangeLock, exclusive: bool| {
            l.owner == self.id && l.offset == offset && l.length == length && l.exclusive == exclusive
        };
        let at = state
            .locks
            .iter()
            .position(|l| matches(l, true))
            .or_else(|| state.locks.iter().position(|l| matches(l, false)))
            .ok_or(ntstatus::STATUS_RANGE_NOT_LOCKED)?;
        let exclusive = state.locks.remove(at).exclusive;
        state.bump();
        Ok(exclusive)
    }

    /// Changes whenever something on the file does that may let a lock
    /// through: a range unlocked, an open or a lease gone.
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.node.state().changed.subscribe()
    }

    /// Releases the lock [`FileRef::lock_range`] took last with these
    /// arguments.
    pub(crate) fn undo_lock(&self, offset: u64, length: u64, exclusive: bool) {
        let mut state = self.node.state();
        if let Some(at) = state
            .locks
            .iter()
            .rposition(|l| l.owner == self.id && l.offset == offset && l.length == length && l.exclusive == exclusive)
        {
            state.locks.remove(at);
            state.bump();
        }
    }

    /// Fails with STATUS_FILE_LOCK_CONFLICT when a read (or a write, if
    /// `write`) of the range through this open conflicts with a byte-range
    /// lock (MS-FSA 2.1.5.3, 2.1.5.4).
    pub(crate) fn check_io(&self, offset: u64, length: u64, write: bool) -> Result<(), u32> {
        if self.node.state().range_conflicts(self.id, offset, length, write, false) {
            return Err(ntstatus::STATUS_FILE_LOCK_CONFLICT);
        }
        Ok(())
    }

    /// Removes the open and its byte-range locks from the table (MS-FSA
    /// 2.1.5.5). With `delete_on_close` the file becomes delete-pending.
    /// When that leaves a delete-pending file with no opens, returns the
    /// removal still to be done; until that is dropped, the file opens for
    /// nobody.
    pub(crate) fn release(mut self, delete_on_close: bool) -> Option<PendingDelete> {
        self.detach(delete_on_close)
    }

    fn detach(&mut self, delete_on_close: bool) -> Option<PendingDelete> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        let mut files = self.share.files.files();
        let mut state = self.node.state();
        let entry = state.opens.iter().position(|e| e.id == self.id).map(|at| state.opens.remove(at));
        state.locks.retain(|l| l.owner != self.id);
        // MS-SMB2 3.3.4.17: a lease ends with its last open, without a
        // notification; a break in progress completes with it.
        if let Some(id) = entry.as_ref().and_then(|e| e.lease)
            && !state.opens.iter().any(|e| e.lease == Some(id))
        {
            state.leases.retain(|l| l.id != id);
            if state.is_directory && state.leases.is_empty() {
                self.share.files.leased_directories.remove(&self.node);
            }
        }
        if entry.is_some() {
            state.bump();
        }
        if delete_on_close && let Some(entry) = entry {
            state.delete_pending = Some(entry.name);
        }
        if !state.opens.is_empty() {
            return None;
        }
        let (base, index) = (self.node.base, state.key.index());
        // A file goes after its streams (MS-FSA 2.1.5.5): until then it opens for nobody.
        if state.delete_pending.is_some() && self.share.files.streams_of(&files, index).next().is_some() {
            return None;
        }
        if base != 0
            && let Some(pending) = self.share.files.waiting_base(&files, base, &self.node)
        {
            let key = state.key.clone();
            drop(state);
            self.share.files.remove_node(&mut files, &key, &self.node);
            return Some(pending);
        }
        if let Some(name) = state.delete_pending.clone() {
            let is_directory = state.is_directory;
            drop(state);
            drop(files);
            let node = Arc::clone(&self.node);
            return Some(PendingDelete { node, name, is_directory, spared: self.parent_lease });
        }
        let key = state.key.clone();
        drop(state);
        self.share.files.remove_node(&mut files, &key, &self.node);
        None
    }
}

impl Drop for FileRef {
    /// An entry dropped without a release still leaves the table. When it
    /// was the last open of a delete-pending file, the removal runs on the
    /// current runtime; without one, the name is freed and the file stays.
    fn drop(&mut self) {
        let Some(pending) = self.detach(false) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(pending.run());
        }
    }
}

impl FileTable {
    fn remove_node(&self, files: &mut HashMap<FileKey, Arc<FileNode>>, key: &FileKey, node: &Arc<FileNode>) {
        if files.get(key).is_some_and(|n| Arc::ptr_eq(n, node)) {
            files.remove(key);
            self.counted(files);
            if node.base != 0 {
                self.streams.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn counted(&self, files: &HashMap<FileKey, Arc<FileNode>>) {
        self.count.store(files.len(), Ordering::Release);
    }

    /// What opens of a file's other streams mean to this one: a stream of a
    /// delete-pending file opens for nobody, and a file is not opened for
    /// deletion while one of its streams is open and not shared for that
    /// (MS-FSA 2.1.5.1.2.2).
    fn admit_beside(
        &self,
        files: &HashMap<FileKey, Arc<FileNode>>,
        info: &FileInfo,
        sharing: Sharing,
    ) -> Result<(), u32> {
        if info.stream_index != 0 {
            let base = files.get(&FileKey::Index(info.file_index));
            return match base.is_some_and(|base| base.state().delete_pending.is_some()) {
                true => Err(ntstatus::STATUS_DELETE_PENDING),
                false => Ok(()),
            };
        }
        let keeps = |e: &OpenEntry| e.sharing.access & SHARED_ACCESS != 0 && e.sharing.share & FILE_SHARE_DELETE == 0;
        let is_kept = sharing.access & DELETE != 0
            && self.streams_of(files, info.file_index).any(|stream| stream.state().opens.iter().any(keeps));
        if is_kept { Err(ntstatus::STATUS_SHARING_VIOLATION) } else { Ok(()) }
    }

    fn streams_of<'f>(
        &self,
        files: &'f HashMap<FileKey, Arc<FileNode>>,
        base: u64,
    ) -> impl Iterator<Item = &'f Arc<FileNode>> + use<'f> {
        let none = base == 0 || self.streams.load(Ordering::Acquire) == 0;
        files.values().filter(move |node| !none && node.base == base)
    }

    /// The file `base`, if it is closed and waits to be deleted for nothing
    /// but its stream `last`.
    fn waiting_base(
        &self,
        files: &HashMap<FileKey, Arc<FileNode>>,
        base: u64,
        last: &Arc<FileNode>,
    ) -> Option<PendingDelete> {
        if self.streams_of(files, base).any(|stream| !Arc::ptr_eq(stream, last)) {
            return None;
        }
        let node = files.get(&FileKey::Index(base))?;
        let state = node.state();
        let name = state.delete_pending.clone().filter(|_| state.opens.is_empty())?;
        Some(PendingDelete { node: Arc::clone(node), name, is_directory: state.is_directory, spared: None })
    }

    /// Whether a named stream of the file with the backend's id `base` is
    /// open.
    pub(crate) fn has_open_streams(&self, base: u64) -> bool {
        self.streams_of(&self.files(), base).next().is_some()
    }
}

/// A delete-pending file whose last open has closed. Dropping it frees the
/// name in the table, whether or not the removal ran.
pub(crate) struct PendingDelete {
    node: Arc<FileNode>,
    name: Named,
    is_directory: bool,
    /// The directory's lease that the last open named (`dirlease.own_parent_key`).
    spared: Option<LeaseId>,
}

impl PendingDelete {
    /// Removes the file from the share, reports the removal to the share's
    /// watchers (MS-FSA 2.1.5.5), then frees its name in the table. A
    /// failed delete does not fail the close (MS-SMB2 3.3.4.17); a
    /// directory that gained entries stays (MS-FSA 2.1.5.5).
    pub(crate) async fn run(self) {
        let share = &self.name.share;
        let _names = share.names_lock().await;
        // A rename that ran while this waited moved the name.
        let path = self.node.state().delete_pending.as_ref().unwrap_or(&self.name).path.clone();
        let file_index = self.node.state().key.index();
        if path.stream().is_some() {
            if let Err(e) = share.backend.unlink_opened(&path, file_index).await {
                warn!(error = %e, path = %path, "delete-on-close of a stream failed");
            }
            return;
        }
        let filter = if self.is_directory { FILE_NOTIFY_CHANGE_DIR_NAME } else { FILE_NOTIFY_CHANGE_FILE_NAME };
        let removed = [Change { path: &path, action: FILE_ACTION_REMOVED, filter, seen: true }];
        let expected = share.watches.expect(&removed, None);
        match share.backend.unlink_opened(&path, file_index).await {
            Ok(()) => {
                expected.report(&share.watches, &removed);
                share.files.entry_changed(share, &path, self.spared);
            }
            Err(SmbError::NotEmpty) => {
                debug!(path = %path, "delete-on-close skipped a non-empty directory");
            }
            Err(e) => warn!(error = %e, path = %path, "delete-on-close failed"),
        }
    }
}

impl Drop for PendingDelete {
    fn drop(&mut self) {
        let table = &self.name.share.files;
        let mut files = table.files();
        let key = self.node.state().key.clone();
        table.remove_node(&mut files, &key, &self.node);
        let base = table.waiting_base(&files, self.node.base, &self.node);
        drop(files);
        if let (Some(base), Ok(runtime)) = (base, tokio::runtime::Handle::try_current()) {
            runtime.spawn(base.run());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::OpenOptions;
    use crate::share::{ShareBindings, ShareMode};
    use crate::tests::memfs::MemFsBackend;

    const RW: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE;
    const ALL: u32 = RW | FILE_SHARE_DELETE;
    const CAP: usize = crate::conn::limits::DEFAULT_MAX_LOCKS_PER_OPEN;

    fn share() -> Arc<ShareBindings> {
        share_on(MemFsBackend::new())
    }

    fn share_on(backend: MemFsBackend) -> Arc<ShareBindings> {
        ShareBindings::new("s".to_string(), Arc::new(backend), ShareMode::Public, HashMap::new(), false, true, true)
    }

    fn info(file_index: u64) -> FileInfo {
        let mut info = FileInfo::new("");
        info.file_index = file_index;
        info
    }

    fn p(s: &str) -> SmbPath {
        s.parse().unwrap()
    }

    fn open(share: &Arc<ShareBindings>, name: &str, access: u32, share_access: u32) -> Result<FileRef, u32> {
        FileRef::register(share, &info(7), &p(name), Sharing { access, share: share_access }.into())
            .map(|(file, _)| file)
            .map_err(|r| r.status)
    }

    #[test]
    fn sharing_modes_are_checked_both_ways() {
        let s = share();
        let a = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, 0).unwrap();
        assert_eq!(open(&s, "f", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
        // Attribute-only access never conflicts.
        let attrs = open(&s, "f", 0x80, 0).unwrap();
        assert!(a.release(false).is_none());
        let b = open(&s, "f", FILE_READ_DATA, FILE_SHARE_READ).unwrap();
        assert_eq!(open(&s, "f", FILE_WRITE_DATA, ALL).err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
        assert_eq!(open(&s, "f", FILE_READ_DATA, FILE_SHARE_WRITE).err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
        let c = open(&s, "f", FILE_READ_DATA, ALL).unwrap();
        for f in [attrs, b, c] {
            assert!(f.release(false).is_none());
        }
        assert!(s.files.files().is_empty());
    }

    #[test]
    fn identity_not_name_decides_the_file() {
        let s = share();
        let _a = open(&s, "one", FILE_WRITE_DATA, 0).unwrap();
        assert_eq!(open(&s, "other-link", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
    }

    #[test]
    fn delete_pending_blocks_opens_until_the_last_close() {
        let s = share();
        let a = open(&s, "f", DELETE, ALL).unwrap();
        let b = open(&s, "f", FILE_READ_DATA, ALL).unwrap();
        a.set_delete_pending(true);
        assert!(b.delete_pending());
        assert_eq!(open(&s, "f", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_DELETE_PENDING));
        assert!(a.release(false).is_none());
        let pending = b.release(false).expect("last close removes the file");
        assert_eq!(pending.name.path, p("f"));
        assert_eq!(open(&s, "f", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_DELETE_PENDING));
        drop(pending);
        assert!(open(&s, "f", FILE_READ_DATA, ALL).is_ok());
    }

    #[test]
    fn a_pending_delete_dropped_before_it_runs_frees_the_name() {
        let s = share();
        let a = open(&s, "f", DELETE, ALL).unwrap();
        a.set_delete_pending(true);
        let pending = a.release(false).expect("last close removes the file");
        drop(pending.run());
        assert!(s.files.files().is_empty());
        assert!(open(&s, "f", FILE_READ_DATA, ALL).is_ok());
    }

    #[test]
    fn a_dropped_open_leaves_the_table() {
        let s = share();
        let a = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, 0).unwrap();
        a.lock_range(0, 10, true, CAP).unwrap();
        drop(a);
        assert!(s.files.files().is_empty());
        let b = open(&s, "f", FILE_READ_DATA, ALL).unwrap();
        b.lock_range(0, 10, true, CAP).unwrap();
    }

    #[tokio::test]
    async fn dropping_the_last_open_of_a_delete_pending_file_removes_it() {
        let s = share_on(MemFsBackend::new().with_file("f", b"x"));
        let a = open(&s, "f", DELETE, ALL).unwrap();
        a.set_delete_pending(true);
        drop(a);
        for _ in 0..100 {
            if s.files.files().is_empty() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(s.files.files().is_empty());
        let missing = s.backend.open(&p("f"), OpenOptions::default()).await;
        assert!(matches!(missing, Err(SmbError::NotFound)));
    }

    #[test]
    fn byte_range_locks_follow_the_conflict_rules() {
        let s = share();
        let a = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range(0, 50, true, CAP).unwrap();
        assert_eq!(b.lock_range(10, 5, true, CAP), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        assert_eq!(b.lock_range(49, 1, false, CAP), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        assert_eq!(a.lock_range(0, 50, true, CAP), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        // The owner reads and writes its own exclusive range.
        assert_eq!(a.check_io(0, 10, true), Ok(()));
        assert_eq!(b.check_io(0, 10, false), Err(ntstatus::STATUS_FILE_LOCK_CONFLICT));
        assert_eq!(b.check_io(50, 10, true), Ok(()));

        b.lock_range(100, 10, false, CAP).unwrap();
        a.lock_range(105, 10, false, CAP).unwrap();
        assert_eq!(a.check_io(100, 1, false), Ok(()));
        // A shared lock blocks writes from every open, its owner included.
        assert_eq!(b.check_io(100, 1, true), Err(ntstatus::STATUS_FILE_LOCK_CONFLICT));

        assert_eq!(b.unlock_range(0, 50), Err(ntstatus::STATUS_RANGE_NOT_LOCKED));
        assert_eq!(a.unlock_range(0, 49), Err(ntstatus::STATUS_RANGE_NOT_LOCKED));
        a.unlock_range(0, 50).unwrap();
        assert_eq!(b.check_io(0, 10, false), Ok(()));

        assert_eq!(a.lock_range(u64::MAX, 2, true, CAP), Err(ntstatus::STATUS_INVALID_LOCK_RANGE));
        a.lock_range(u64::MAX, 1, true, CAP).unwrap();
        // Closing an open drops its locks.
        assert!(a.release(false).is_none());
        b.lock_range(105, 10, true, CAP).unwrap_err();
        b.lock_range(0, 100, true, CAP).unwrap();
    }

    #[test]
    fn what_may_let_a_lock_through_is_told() {
        let s = share();
        let a = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range(0, 10, true, CAP).unwrap();
        a.lock_range(10, 10, true, CAP).unwrap();
        let changes = b.changes();
        assert!(!changes.has_changed().unwrap());
        a.unlock_range(0, 10).unwrap();
        assert!(changes.has_changed().unwrap());
        let changes = b.changes();
        drop(a);
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn locks_per_open_stop_at_the_limit() {
        let s = share();
        let a = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range(0, 10, true, 2).unwrap();
        a.lock_range(10, 10, true, 2).unwrap();
        assert_eq!(a.lock_range(20, 10, true, 2), Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
        // The limit counts this open's locks only.
        b.lock_range(20, 10, true, 2).unwrap();
        a.unlock_range(0, 10).unwrap();
        a.lock_range(30, 10, true, 2).unwrap();
    }

    #[test]
    fn zero_length_ranges() {
        let s = share();
        let a = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range(0, 0, true, CAP).unwrap();
        b.lock_range(0, 0, true, CAP).unwrap();
        assert_eq!(b.check_io(0, 10, true), Ok(()));
        a.lock_range(10, 0, true, CAP).unwrap();
        assert_eq!(b.check_io(10, 0, true), Ok(()));
        assert_eq!(b.check_io(5, 10, true), Err(ntstatus::STATUS_FILE_LOCK_CONFLICT));
    }

    #[test]
    fn renames_move_names_and_path_keys() {
        let s = share();
        let a = FileRef::register(&s, &info(0), &p("d\\f"), Sharing { access: FILE_WRITE_DATA, share: 0 }.into())
            .unwrap()
            .0;
        s.files.rename_paths(&s, &p("d"), &p("e"));
        assert!(s.files.path_is_open(&s, &p("E\\F")));
        assert!(!s.files.path_is_open(&s, &p("d\\f")));
        let conflict =
            FileRef::register(&s, &info(0), &p("e\\f"), Sharing { access: FILE_READ_DATA, share: ALL }.into());
        assert_eq!(conflict.err().map(|r| r.status), Some(ntstatus::STATUS_SHARING_VIOLATION));
        a.set_delete_pending(true);
        assert!(s.files.delete_pending_at(&s, &p("e\\f")));
        let pending = a.release(false).expect("pending removal");
        assert_eq!(pending.name.path, p("e\\f"));
        drop(pending);
        assert!(s.files.files().is_empty());
    }
}
