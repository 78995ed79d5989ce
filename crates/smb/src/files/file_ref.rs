//! One open's entry in its share's table and in that of all doors: it enters, is granted a lease,
//! locks ranges, and leaves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use larder_fs::Ino;
use larder_opens::{Caches, Entry, LockError, Others, Range, Waiter};
use tracing::{debug, warn};

use crate::conn::limits::MAX_OPENS_OF_FILE;
use crate::conn::outbound::Notified;
use crate::door::open_name::EntryName;
use crate::share::ShareBindings;
use larder_base::task;
use larder_smb_wire::access_mask::DELETE;
use larder_smb_wire::file_info::FileInfo;
use larder_smb_wire::messages::{FileId, OplockLevel};
use larder_smb_wire::ntstatus;

use super::entries::{
    DurableMark, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, KeptOpens, OpenEntries, OpenEntry, READ_ACCESS,
    Sharing, WRITE_ACCESS,
};
use super::lease::{
    AWAITED, Current, FileLease, FileView, Granted, LeaseId, LeaseRequest, LeaseState, Trigger, grant, open_trigger,
};
use super::leases::{BreakWait, GrantGuard, LeaseRef, LeaseTable, Notices};
use super::pending_delete::PendingDelete;
use super::slots::Party;
use super::table::{FileNode, FileState};

/// Source of [`FileLease::serial`].
static NEXT_LEASE_SERIAL: AtomicU64 = AtomicU64::new(1);

/// A new open, as [`FileRef::register`] enters it.
#[derive(Default)]
pub(crate) struct OpenRequest {
    pub sharing: Sharing,
    /// The open as it stands in the table of all doors already.
    pub held: Option<Entry>,
    /// The connection the open belongs to.
    pub owner: Notified,
    /// The user or guest whose open it is, as [`MAX_OPENS_OF_FILE`] counts them.
    pub holder: u64,
    /// The lease the CREATE asks for. Its own lease is not broken by the
    /// open (MS-FSA 2.1.4.12.2).
    pub lease: Option<LeaseId>,
    /// The lease of the directory that the CREATE names as its parent's.
    pub parent_lease: Option<LeaseId>,
    /// The CREATE supersedes or overwrites the file.
    pub overwrite: bool,
    /// The CREATE has made the file, so nobody had it open before.
    pub created: bool,
    /// On a sharing violation, break the handle caching of the leases on
    /// the file so their clients can close the handles they keep open
    /// (MS-FSA 2.1.5.1.2). Without it, a violation still waits while such a
    /// break is in progress.
    pub break_handles: bool,
}

/// What an open does, denies to others and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub reads: bool,
    pub writes: bool,
    pub deletes: bool,
    pub denies_reads: bool,
    pub denies_writes: bool,
    pub denies_deletes: bool,
    /// Ranges that it has locked.
    pub locks: usize,
    /// Its client caches the file under a lease.
    pub caches: bool,
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

/// One open's entry in its share's [`FileTable`](super::table::FileTable). Dropping it removes the
/// entry and its locks; [`FileRef::release`] does the same and hands back a
/// delete still to be done.
pub(crate) struct FileRef {
    share: Arc<ShareBindings>,
    node: Arc<FileNode>,
    id: u64,
    /// The open among those of all doors, with its byte-range locks. `None`: it has been released.
    held: Option<Entry>,
    name: Arc<EntryName>,
    /// The binding of this open's lease, released after the entry leaves
    /// the table.
    lease: Option<LeaseRef>,
    /// The lease of its directory, as its CREATE named it (`dirlease.own_parent_key`).
    parent_lease: Option<LeaseId>,
}

/// Tells of a change through an open.
pub(crate) struct ChangeOfEntry {
    share: Arc<ShareBindings>,
    name: Arc<EntryName>,
    spared: Option<LeaseId>,
}

impl ChangeOfEntry {
    /// To those who watch, FILE_NOTIFY_CHANGE_* bits, and to those who hold a lease of the
    /// directory. A stream is no entry.
    pub(crate) async fn tell(&self, what: u32) {
        if !self.share.watches.is_empty() {
            self.name.modified(what).await;
        }
        if self.share.files.has_leased_directories()
            && self.name.opened_as().stream().is_none()
            && let Some(dir) = self.name.dir().await
        {
            self.share.files.entry_changed(dir, self.spared);
        }
    }
}

/// The id of a stream, or of a file or directory itself.
fn key_of(info: &FileInfo) -> u64 {
    if info.stream_index == 0 { info.file_index } else { info.stream_index }
}

impl FileRef {
    /// Adds the open `req` describes of the file `info` describes, reached
    /// through `name`, holding the lease it asks for. Fails with
    /// STATUS_DELETE_PENDING or STATUS_SHARING_VIOLATION when the opens
    /// already on the file do not allow it. An open that is not
    /// attribute-only breaks the leases it conflicts with, and returns a
    /// wait when other clients have to write back what they cache first
    /// (MS-FSA 2.1.4.12, OPEN).
    pub(crate) fn register(
        share: &Arc<ShareBindings>,
        info: &FileInfo,
        name: Arc<EntryName>,
        req: OpenRequest,
    ) -> Result<(Self, Option<BreakWait>), Refused> {
        let key = key_of(info);
        let table = &share.files;
        let base = if info.stream_index != 0 { info.file_index } else { 0 };
        let held = req.held.unwrap_or_else(|| table.held.enter_idle(Ino(key), table.door));
        let was_there = !req.created && !info.is_directory && base == 0;
        let mut files = table.files();
        table.admit_beside(&files, info, req.sharing)?;
        let node = files
            .entry(key)
            .or_insert_with(|| {
                if base != 0 {
                    table.streams.fetch_add(1, Ordering::AcqRel);
                }
                Arc::new_cyclic(|me| FileNode {
                    key,
                    base,
                    held: Arc::clone(&table.held),
                    state: Mutex::new(FileState {
                        me: me.clone(),
                        is_directory: info.is_directory,
                        opens: OpenEntries::default(),
                        delete_pending: None,
                        leases: Vec::new(),
                    }),
                })
            })
            .clone();
        let mut state = node.state();
        if let Err((status, by_opens)) = state.admit(&held, req.sharing, was_there) {
            let mut wait = None;
            let mut notices = Notices::default();
            if by_opens {
                if req.break_handles {
                    let (sent, waits) = state.break_for(Trigger::SharingViolation, req.lease);
                    notices = sent;
                    wait = waits.then(|| node.wait());
                } else if state.handle_break_pending(req.lease) {
                    wait = Some(node.wait());
                }
            }
            let is_unused = state.opens.is_empty() && state.delete_pending.is_none();
            drop(state);
            // Refused by another door, where nobody here has it open.
            if is_unused {
                table.remove_node(&mut files, &node);
            }
            drop(files);
            drop(notices);
            return Err(Refused { status, wait });
        }
        if state.opens.count_of(req.holder) >= MAX_OPENS_OF_FILE {
            warn!(limit = MAX_OPENS_OF_FILE, path = %name.opened_as(), "limit of opens of one file reached");
            return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES.into());
        }
        let id = table.next_open.fetch_add(1, Ordering::Relaxed);
        state.opens.insert(id, OpenEntry::new(req.sharing, Arc::clone(&name), req.lease, req.owner, req.holder));
        let (notices, waits) = match open_trigger(req.sharing.access, req.overwrite) {
            Some(trigger) => state.break_for(trigger, req.lease),
            None => Default::default(),
        };
        // A CREATE that waits for other clients to give up write caching counts against their write
        // caching, but in no sharing check of other opens. It runs its own once the wait ends
        // (MS-FSA 2.1.5.1 checks for oplock breaks before the open joins the file's opens).
        if waits {
            held.end();
        }
        let wait = waits.then(|| node.wait());
        drop(state);
        drop(files);
        drop(notices);
        let (share, parent_lease) = (Arc::clone(share), req.parent_lease);
        let file = Self { share, node, id, held: Some(held), name, lease: None, parent_lease };
        Ok((file, wait))
    }

    /// Ends the wait of a CREATE that waited for other clients to give up
    /// write caching: `Ok(None)` once it may go ahead, after it passes the
    /// delete-pending and sharing checks the opens on the file now ask
    /// for; a wait while a break it waits for is in progress; or the
    /// status the CREATE fails with.
    pub(crate) fn end_wait(&self) -> Result<Option<BreakWait>, u32> {
        let state = self.node.state();
        let Some(entry) = state.entry(self.id) else {
            return Err(ntstatus::STATUS_FILE_CLOSED);
        };
        let (lease, sharing) = (entry.lease(), entry.sharing());
        if state.break_pending(lease) {
            return Ok(Some(self.node.wait()));
        }
        state.admit(self.held(), sharing, false).map_err(|(status, _)| status)?;
        Ok(None)
    }

    /// Whether this open's file is `node`.
    pub(super) fn is_on(&self, node: &Arc<FileNode>) -> bool {
        Arc::ptr_eq(&self.node, node)
    }

    fn held(&self) -> &Entry {
        self.held.as_ref().expect("an open that is used has not been released")
    }

    pub(super) fn node(&self) -> &Arc<FileNode> {
        &self.node
    }

    pub(crate) fn share(&self) -> &Arc<ShareBindings> {
        &self.share
    }

    /// The lease that a change through this open spares on its directory.
    pub(crate) fn parent_lease(&self) -> Option<LeaseId> {
        self.parent_lease
    }

    /// What tells of a change through this open, also after it has closed.
    pub(crate) fn change_of_entry(&self) -> ChangeOfEntry {
        ChangeOfEntry { share: Arc::clone(&self.share), name: Arc::clone(&self.name), spared: self.parent_lease }
    }

    /// Makes this open a holder of the lease `req` asks for and grants it
    /// the best state within `grantable` that the file and its opens at all
    /// doors allow (MS-SMB2 3.3.5.9.8, 3.3.5.9.11). Lease breaks held back until the CREATE
    /// response is queued wait for the returned guard.
    pub(super) fn grant_lease(&self, req: &LeaseRequest, mut grantable: LeaseState) -> (Granted, GrantGuard) {
        let mut state = self.node.state();
        let sender = state.entry(self.id).map(|entry| entry.owner.clone()).unwrap_or_default();
        // `lease.late_once`
        if sender.is_late() {
            grantable = LeaseState::NONE;
        }
        if state.is_directory {
            grantable = grantable.without(LeaseState::W);
            self.share.files.leased_directories.add(&self.node);
        }
        state.opens.set_lease(self.id, req.id);
        let leases: Vec<(LeaseId, LeaseState)> = state.leases.iter().map(|l| (l.id, l.state)).collect();
        let file = FileView {
            used_beside: state.opens.work_beside(req.id),
            leases: &leases,
            has_locks: self.held().has_ranges(),
            delete_pending: state.delete_pending.is_some(),
        };
        let existing = state.leases.iter().position(|l| l.id == req.id);
        let current =
            existing.map(|at| Current { state: state.leases[at].state, breaking: state.leases[at].breaking.is_some() });
        let (mut granted, mut breaking) = (LeaseState::NONE, false);
        let policy = |others: Others| {
            let grantable = if others.is_open { grantable.without(LeaseState::W) } else { grantable };
            (granted, breaking) = grant(req.id, req.state, current, &file, grantable);
            granted.caches()
        };
        let lease = match existing {
            Some(at) => {
                let lease = &mut state.leases[at];
                lease.promise.grant(policy);
                lease.set_state(granted);
                lease
            }
            None => {
                let serial = NEXT_LEASE_SERIAL.fetch_add(1, Ordering::Relaxed);
                let promise = self.held().promise(AWAITED);
                promise.grant(policy);
                state.leases.push(FileLease::new(req, granted, serial, promise));
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
        let id = state.entry(self.id).and_then(OpenEntry::lease)?;
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
        let id = state.entry(self.id).and_then(OpenEntry::lease);
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
            let id = state.entry(self.id).and_then(OpenEntry::lease);
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
        if let Some(entry) = state.opens.get_mut(self.id) {
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
        let Some(entry) = state.entry(self.id) else {
            return false;
        };
        let Some(lease) = entry.lease().and_then(|id| state.leases.iter().find(|l| l.id == id)) else {
            return false;
        };
        let keeps = entry.durable.as_ref().is_some_and(|d| !d.detached && !d.doomed)
            && lease.state.contains(LeaseState::H)
            && lease.breaking.is_none()
            && (entry.locks.is_empty() || lease.state.contains(LeaseState::W));
        if !keeps {
            return false;
        }
        if let Some(entry) = state.opens.get_mut(self.id) {
            entry.owner = Notified::default();
            if let Some(mark) = entry.durable.as_mut() {
                mark.detached = true;
            }
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
        let entry = state.entry(self.id)?;
        let id = entry.lease()?;
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
        let entry = state.opens.get_mut(self.id)?;
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
            let exempt = state.entry(self.id).and_then(OpenEntry::lease);
            state.break_for(trigger, exempt).0
        };
        drop(notices);
    }

    /// The lease this open holds.
    pub(crate) fn lease_id(&self) -> Option<LeaseId> {
        self.node.state().entry(self.id).and_then(OpenEntry::lease)
    }

    /// The open's name.
    pub(crate) fn name(&self) -> &Arc<EntryName> {
        &self.name
    }

    /// What the open does, denies and holds at this moment.
    pub(crate) fn standing(&self) -> Standing {
        let state = self.node.state();
        let entry = state.entry(self.id);
        let sharing = entry.map(OpenEntry::sharing).unwrap_or_default();
        let (does, shares) = (|bits: u32| sharing.access & bits != 0, |bit: u32| sharing.share & bit != 0);
        Standing {
            reads: does(READ_ACCESS),
            writes: does(WRITE_ACCESS),
            deletes: does(DELETE),
            denies_reads: !shares(FILE_SHARE_READ),
            denies_writes: !shares(FILE_SHARE_WRITE),
            denies_deletes: !shares(FILE_SHARE_DELETE),
            locks: entry.map_or(0, |entry| entry.locks.len()),
            caches: entry.is_some_and(|entry| entry.lease().is_some()),
        }
    }

    /// True if this is an entry for the file `info` describes.
    pub(crate) fn is_for(&self, info: &FileInfo) -> bool {
        key_of(info) == self.node.key
    }

    /// The number of the file, or of the stream.
    pub(crate) fn index(&self) -> u64 {
        self.node.key
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
                let entry = state.entry(self.id).map(|e| (e.lease(), Arc::clone(&e.name)));
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
    /// locks, or its `party` or all clients together as many as there may be, and
    /// STATUS_LOCK_NOT_GRANTED when it conflicts with a lock already held.
    pub(crate) fn lock_range(
        &self,
        (offset, length): (u64, u64),
        exclusive: bool,
        limit: usize,
        party: Option<&Party>,
    ) -> Result<(), u32> {
        if length != 0 && offset.checked_add(length - 1).is_none() {
            return Err(ntstatus::STATUS_INVALID_LOCK_RANGE);
        }
        let slot = party.map(|party| party.lock_slot().ok_or(ntstatus::STATUS_INSUFFICIENT_RESOURCES)).transpose()?;
        let range = Range::of(offset, length);
        // Other doors answer under their own locks, so they are asked before ours is taken.
        let may_lock = self.held().may_lock(range, exclusive);
        let mut state = self.node.state();
        let (count, exempt) = state.entry(self.id).map_or((0, None), |entry| (entry.locks.len(), entry.lease()));
        if count >= limit {
            return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
        }
        // MS-FSA 2.1.5.8: a lock breaks the leases on the file, all but the
        // one this open holds, wherever the range lies. Under the same lock
        // no lease can be granted between the two. While another lease
        // still caches writes, which only an attribute-only open allows,
        // the lock is refused: a lock taken now would keep that client from
        // writing back. A request that may wait tries again after that.
        let caching_writes = state.leases.iter().any(|l| Some(l.id) != exempt && l.state.contains(LeaseState::W));
        let locked = if caching_writes { may_lock } else { may_lock.and_then(|()| self.held().lock(range, exclusive)) };
        locked.map_err(|error| match error {
            // The end of another file's lock would wake nobody who waits here.
            LockError::TooMany => ntstatus::STATUS_INSUFFICIENT_RESOURCES,
            _ => ntstatus::STATUS_LOCK_NOT_GRANTED,
        })?;
        let notices = state.break_for(Trigger::Write, exempt).0;
        if let Some(entry) = state.opens.get_mut(self.id).filter(|_| !caching_writes) {
            entry.locks.push(slot);
        }
        drop(state);
        drop(notices);
        if caching_writes { Err(ntstatus::STATUS_LOCK_NOT_GRANTED) } else { Ok(()) }
    }

    /// Releases a lock this open holds on exactly this range, an exclusive
    /// one first (MS-FSA 2.1.5.9). Fails with STATUS_RANGE_NOT_LOCKED when it holds none.
    pub(crate) fn unlock_range(&self, offset: u64, length: u64) -> Result<(), u32> {
        let unlocks = |exclusive| self.undo_lock(offset, length, exclusive);
        if unlocks(true) || unlocks(false) { Ok(()) } else { Err(ntstatus::STATUS_RANGE_NOT_LOCKED) }
    }

    /// Releases a lock [`FileRef::lock_range`] took with these arguments. Whether there was one.
    pub(crate) fn undo_lock(&self, offset: u64, length: u64, exclusive: bool) -> bool {
        let is_undone = self.held().unlock(Range::of(offset, length), exclusive);
        if is_undone && let Some(entry) = self.node.state().opens.get_mut(self.id) {
            entry.locks.pop();
        }
        is_undone
    }

    /// Has clients of other doors asked for what a lock needs (`files.locks_asked_for`). Until then
    /// the lock waits.
    pub(crate) fn awaits_others(&self, exclusive: bool) -> bool {
        self.held().ask_back(Caches::of_lock(exclusive))
    }

    /// Until something on the file changes that may let a lock through: a range unlocked, an open
    /// or a lease gone.
    pub(crate) fn changed(&self) -> Waiter {
        self.held().waiter()
    }

    /// Fails with STATUS_FILE_LOCK_CONFLICT when a read (or a write, if
    /// `write`) of the range through this open conflicts with a byte-range
    /// lock (MS-FSA 2.1.5.3, 2.1.5.4).
    pub(crate) fn check_io(&self, offset: u64, length: u64, write: bool) -> Result<(), u32> {
        match self.held().may_access(Range::of(offset, length), write) {
            true => Ok(()),
            false => Err(ntstatus::STATUS_FILE_LOCK_CONFLICT),
        }
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
        let held = self.held.take()?;
        // Sent when the locks below are free.
        let mut _notices = Notices::default();
        let mut files = self.share.files.files();
        let mut state = self.node.state();
        let entry = state.opens.remove(self.id);
        // MS-SMB2 3.3.4.17: a lease ends with its last open, without a
        // notification; a break in progress completes with it.
        if let Some(id) = entry.as_ref().and_then(OpenEntry::lease)
            && !state.opens.holds(id)
        {
            state.leases.retain(|l| l.id != id);
            if state.is_directory && state.leases.is_empty() {
                self.share.files.leased_directories.remove(&self.node);
            }
        }
        drop(held);
        if delete_on_close && let Some(entry) = entry {
            // As in [`FileRef::set_delete_pending`].
            _notices = state.break_for(Trigger::Handle, entry.lease()).0;
            state.delete_pending = Some(entry.name);
        }
        if !state.opens.is_empty() {
            return None;
        }
        let (base, index) = (self.node.base, self.node.key);
        // A file goes after its streams (MS-FSA 2.1.5.5): until then it opens for nobody.
        if state.delete_pending.is_some() && self.share.files.streams_of(&files, index).next().is_some() {
            return None;
        }
        if base != 0
            && let Some(pending) = PendingDelete::of_waiting_base(&self.share, &files, base, &self.node)
        {
            drop(state);
            self.share.files.remove_node(&mut files, &self.node);
            return Some(pending);
        }
        if let Some(name) = state.delete_pending.clone() {
            drop(state);
            drop(files);
            let node = Arc::clone(&self.node);
            return Some(PendingDelete { share: Arc::clone(&self.share), node, name, spared: self.parent_lease });
        }
        drop(state);
        self.share.files.remove_node(&mut files, &self.node);
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
            task::spawn_on(&runtime, pending.run());
        }
    }
}

impl LeaseTable {
    /// Binds `lease` to the file `file` opened and grants the state `req`
    /// asks for, within `grantable`. The open keeps `lease`. Fails with
    /// STATUS_INVALID_PARAMETER when the lease is held on another file.
    pub(crate) fn grant(
        &self,
        lease: LeaseRef,
        file: &mut FileRef,
        req: &LeaseRequest,
        grantable: LeaseState,
    ) -> Result<(Granted, GrantGuard), u32> {
        let granted = {
            let mut bindings = self.bindings();
            let binding = bindings.get_mut(&req.id).expect("a LeaseRef keeps its binding");
            match &binding.node {
                Some(node) if !file.is_on(node) && node.has_lease(req.id) => Err(ntstatus::STATUS_INVALID_PARAMETER),
                _ => {
                    binding.node = Some(Arc::clone(file.node()));
                    binding.share = Arc::downgrade(file.share());
                    Ok(file.grant_lease(req, grantable))
                }
            }
        };
        match granted {
            Ok(granted) => {
                file.keep_lease(lease);
                Ok(granted)
            }
            Err(status) => {
                drop(lease);
                Err(status)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::AtomicUsize;

    use larder_opens::{Door, Held, Owner, Uses};

    use super::*;
    use crate::door::view::VisitedShare;
    use crate::error::SmbError;
    use crate::share::{Share, ShareBindings};
    use crate::words::OpenOptions;
    use larder_smb_wire::access_mask::{DELETE, FILE_READ_DATA, FILE_WRITE_DATA};

    const RW: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE;
    const ALL: u32 = RW | FILE_SHARE_DELETE;
    const CAP: usize = crate::conn::limits::MAX_LOCKS_PER_OPEN;

    async fn share() -> Arc<ShareBindings> {
        share_on(VisitedShare::in_memory().await)
    }

    fn share_on(view: VisitedShare) -> Arc<ShareBindings> {
        ShareBindings::from_share(Share::of("s", view).public())
    }

    fn info(file_index: u64) -> FileInfo {
        let mut info = FileInfo::new("");
        info.file_index = file_index;
        info
    }

    fn open(share: &Arc<ShareBindings>, name: &str, access: u32, share_access: u32) -> Result<FileRef, u32> {
        FileRef::register(share, &info(7), share.name_at(name), Sharing { access, share: share_access }.into())
            .map(|(file, _)| file)
            .map_err(|r| r.status)
    }

    #[tokio::test]
    async fn sharing_modes_are_checked_both_ways() {
        let s = share().await;
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

    #[tokio::test]
    async fn a_file_is_open_only_so_often_by_one_user() {
        let s = share().await;
        let open = |holder| {
            let sharing = Sharing { access: FILE_READ_DATA, share: ALL };
            let request = OpenRequest { sharing, holder, ..OpenRequest::default() };
            FileRef::register(&s, &info(7), s.name_at("f"), request).map_err(|r| r.status)
        };
        let mut opens: Vec<_> = (0..MAX_OPENS_OF_FILE).map(|_| open(1).unwrap()).collect();
        assert_eq!(open(1).err(), Some(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
        let other = open(2).expect("another user's");
        opens.truncate(MAX_OPENS_OF_FILE - 1);
        opens.push(open(1).expect("one was closed"));
        drop((opens, other));
        assert!(s.files.files().is_empty());
    }

    /// What takes seconds where each open or close looks at all others.
    #[tokio::test]
    async fn many_opens_of_one_file_take_no_longer_each() {
        const COUNT: u64 = 40_000;
        let s = share().await;
        let begun = std::time::Instant::now();
        let opens: Vec<_> = (0..COUNT)
            .map(|n| {
                let sharing = Sharing { access: FILE_READ_DATA, share: ALL };
                let request = OpenRequest { sharing, holder: n % 16, ..OpenRequest::default() };
                FileRef::register(&s, &info(7), s.name_at("f"), request).unwrap()
            })
            .collect();
        drop(opens);
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(s.files.files().is_empty());
    }

    #[tokio::test]
    async fn identity_not_name_decides_the_file() {
        let s = share().await;
        let _a = open(&s, "one", FILE_WRITE_DATA, 0).unwrap();
        assert_eq!(open(&s, "other-link", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
    }

    #[tokio::test]
    async fn delete_pending_blocks_opens_until_the_last_close() {
        let s = share().await;
        let a = open(&s, "f", DELETE, ALL).unwrap();
        let b = open(&s, "f", FILE_READ_DATA, ALL).unwrap();
        a.set_delete_pending(true);
        assert!(b.delete_pending());
        assert_eq!(open(&s, "f", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_DELETE_PENDING));
        assert!(a.release(false).is_none());
        let pending = b.release(false).expect("last close removes the file");
        assert_eq!(pending.name.opened_as().display_backslash(), "f");
        assert_eq!(open(&s, "f", FILE_READ_DATA, ALL).err(), Some(ntstatus::STATUS_DELETE_PENDING));
        drop(pending);
        assert!(open(&s, "f", FILE_READ_DATA, ALL).is_ok());
    }

    /// MS-FSA 2.1.5.1.2: whatever another door's open denies.
    #[tokio::test]
    async fn a_pending_delete_is_told_before_a_violation() {
        let s = share().await;
        let a = open(&s, "f", DELETE, ALL).unwrap();
        let elsewhere = s.files.held.enter(Ino(7), 99, Uses::READ).unwrap();
        elsewhere.claim(Uses::READ, Uses::WRITE, false).unwrap();
        assert_eq!(open(&s, "f", FILE_WRITE_DATA, ALL).err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
        a.set_delete_pending(true);
        assert_eq!(open(&s, "f", FILE_WRITE_DATA, ALL).err(), Some(ntstatus::STATUS_DELETE_PENDING));
    }

    /// A door of one client, which has gone. It answers only while this one holds no lock that the
    /// answer could wait for.
    struct Elsewhere {
        share: Arc<ShareBindings>,
        asked: AtomicUsize,
    }

    impl Door for Elsewhere {
        fn loses_lock(&self, ino: Ino, owner: u64) -> bool {
            let files = self.share.files.files.try_lock().expect("the table is free");
            assert!(files.values().all(|node| node.state.try_lock().is_ok()), "each file is free");
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.share.files.held.end_locks(ino, Owner { door: 99, id: owner });
            true
        }
    }

    #[tokio::test]
    async fn other_doors_are_asked_with_no_lock_held() {
        let s = share().await;
        let elsewhere = Arc::new(Elsewhere { share: Arc::clone(&s), asked: AtomicUsize::new(0) });
        let door: Weak<dyn Door> = Arc::downgrade(&(Arc::clone(&elsewhere) as Arc<dyn Door>));
        s.files.held.add_door(99, door);
        let reclaims = s.files.held.begin_reclaims(99);
        let denies_writing = || open(&s, "f", FILE_READ_DATA, FILE_SHARE_READ);
        assert_eq!(denies_writing().err(), Some(ntstatus::STATUS_SHARING_VIOLATION), "it may be taken back");
        let a = open(&s, "f", FILE_READ_DATA, ALL).expect("it denies nothing");
        assert_eq!(a.lock_range((0, 9), true, CAP, None), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        drop(reclaims);
        denies_writing().unwrap();
        let theirs = Held::posix(Owner { door: 99, id: 1 }, Range { start: 0, last: 9 }, true, 0, None);
        s.files.held.lock(Ino(7), theirs).unwrap();
        assert_eq!(a.lock_range((0, 9), true, CAP, None), Ok(()), "its client has gone");
        assert_eq!(elsewhere.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_pending_delete_dropped_before_it_runs_frees_the_name() {
        let s = share().await;
        let a = open(&s, "f", DELETE, ALL).unwrap();
        a.set_delete_pending(true);
        let pending = a.release(false).expect("last close removes the file");
        drop(pending.run());
        assert!(s.files.files().is_empty());
        assert!(open(&s, "f", FILE_READ_DATA, ALL).is_ok());
    }

    #[tokio::test]
    async fn a_dropped_open_leaves_the_table() {
        let s = share().await;
        let a = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, 0).unwrap();
        a.lock_range((0, 10), true, CAP, None).unwrap();
        drop(a);
        assert!(s.files.files().is_empty());
        let b = open(&s, "f", FILE_READ_DATA, ALL).unwrap();
        b.lock_range((0, 10), true, CAP, None).unwrap();
    }

    #[tokio::test]
    async fn dropping_the_last_open_of_a_delete_pending_file_removes_it() {
        let view = VisitedShare::in_memory().await.with_file("f", b"x").await;
        let s = share_on(view.clone());
        let sharing = Sharing { access: DELETE, share: ALL };
        let name = view.open(&"f".parse().unwrap(), OpenOptions::default()).await.unwrap().0.name();
        let a = FileRef::register(&s, &info(7), name, sharing.into()).unwrap().0;
        a.set_delete_pending(true);
        drop(a);
        for _ in 0..100 {
            if s.files.files().is_empty() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(s.files.files().is_empty());
        let missing = view.open(&"f".parse().unwrap(), OpenOptions::default()).await;
        assert!(matches!(missing, Err(SmbError::NotFound)));
    }

    #[tokio::test]
    async fn byte_range_locks_follow_the_conflict_rules() {
        let s = share().await;
        let a = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_READ_DATA | FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range((0, 50), true, CAP, None).unwrap();
        assert_eq!(b.lock_range((10, 5), true, CAP, None), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        assert_eq!(b.lock_range((49, 1), false, CAP, None), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        assert_eq!(a.lock_range((0, 50), true, CAP, None), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        // The owner reads and writes its own exclusive range.
        assert_eq!(a.check_io(0, 10, true), Ok(()));
        assert_eq!(b.check_io(0, 10, false), Err(ntstatus::STATUS_FILE_LOCK_CONFLICT));
        assert_eq!(b.check_io(50, 10, true), Ok(()));

        b.lock_range((100, 10), false, CAP, None).unwrap();
        a.lock_range((105, 10), false, CAP, None).unwrap();
        assert_eq!(a.check_io(100, 1, false), Ok(()));
        // A shared lock blocks writes from every open, its owner included.
        assert_eq!(b.check_io(100, 1, true), Err(ntstatus::STATUS_FILE_LOCK_CONFLICT));

        assert_eq!(b.unlock_range(0, 50), Err(ntstatus::STATUS_RANGE_NOT_LOCKED));
        assert_eq!(a.unlock_range(0, 49), Err(ntstatus::STATUS_RANGE_NOT_LOCKED));
        a.unlock_range(0, 50).unwrap();
        assert_eq!(b.check_io(0, 10, false), Ok(()));

        assert_eq!(a.lock_range((u64::MAX, 2), true, CAP, None), Err(ntstatus::STATUS_INVALID_LOCK_RANGE));
        a.lock_range((u64::MAX, 1), true, CAP, None).unwrap();
        // Closing an open drops its locks.
        assert!(a.release(false).is_none());
        b.lock_range((105, 10), true, CAP, None).unwrap_err();
        b.lock_range((0, 100), true, CAP, None).unwrap();
    }

    #[tokio::test]
    async fn what_may_let_a_lock_through_is_told() {
        let s = share().await;
        let a = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range((0, 10), true, CAP, None).unwrap();
        a.lock_range((10, 10), true, CAP, None).unwrap();
        let waiter = b.changed();
        assert!(!waiter.has_changed());
        a.unlock_range(0, 10).unwrap();
        assert!(waiter.has_changed());
        let waiter = b.changed();
        drop(a);
        assert!(waiter.has_changed());
    }

    #[tokio::test]
    async fn locks_per_open_stop_at_the_limit() {
        let s = share().await;
        let a = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range((0, 10), true, 2, None).unwrap();
        a.lock_range((10, 10), true, 2, None).unwrap();
        assert_eq!(a.lock_range((20, 10), true, 2, None), Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
        // Whoever else has the range, it waits for nobody.
        let theirs = Held::posix(Owner { door: 99, id: 1 }, Range { start: 40, last: 49 }, true, 0, None);
        s.files.held.lock(Ino(7), theirs).unwrap();
        assert_eq!(a.lock_range((40, 10), true, 2, None), Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
        assert_eq!(a.lock_range((40, 10), true, 3, None), Err(ntstatus::STATUS_LOCK_NOT_GRANTED));
        // The limit counts this open's locks only.
        b.lock_range((20, 10), true, 2, None).unwrap();
        a.unlock_range(0, 10).unwrap();
        a.lock_range((30, 10), true, 2, None).unwrap();
    }

    #[tokio::test]
    async fn zero_length_ranges() {
        let s = share().await;
        let a = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        let b = open(&s, "f", FILE_WRITE_DATA, ALL).unwrap();
        a.lock_range((0, 0), true, CAP, None).unwrap();
        b.lock_range((0, 0), true, CAP, None).unwrap();
        assert_eq!(b.check_io(0, 10, true), Ok(()));
        a.lock_range((10, 0), true, CAP, None).unwrap();
        assert_eq!(b.check_io(10, 0, true), Ok(()));
        assert_eq!(b.check_io(5, 10, true), Err(ntstatus::STATUS_FILE_LOCK_CONFLICT));
    }
}
