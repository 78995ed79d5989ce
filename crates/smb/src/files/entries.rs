//! The opens of one file. A client may have a file open thousands of times, so every question that
//! an open or a close asks is answered by an index or by counts, never by a look at all opens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use larder_opens::Uses;

use crate::conn::outbound::Notified;
use crate::door::open_name::EntryName;
use larder_smb_wire::access_mask::{DELETE, FILE_APPEND_DATA, FILE_EXECUTE, FILE_READ_DATA, FILE_WRITE_DATA};

use super::lease::{LeaseId, stat_only};
use super::slots::LockSlot;

// ShareAccess (MS-SMB2 2.2.13)
pub(crate) const FILE_SHARE_READ: u32 = 0x0000_0001;
pub(crate) const FILE_SHARE_WRITE: u32 = 0x0000_0002;
pub(crate) const FILE_SHARE_DELETE: u32 = 0x0000_0004;

pub(super) const READ_ACCESS: u32 = FILE_READ_DATA | FILE_EXECUTE;
pub(super) const WRITE_ACCESS: u32 = FILE_WRITE_DATA | FILE_APPEND_DATA;

/// Access and sharing mode of an open, as CREATE requested them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// Open.GrantedAccess.
    pub access: u32,
    /// ShareAccess of the CREATE request.
    pub share: u32,
}

impl Sharing {
    /// The uses, as all doors know them.
    pub fn does(self) -> Uses {
        let has = |mask: u32| self.access & mask != 0;
        Uses::NOTHING
            .and_if(has(READ_ACCESS), Uses::READ)
            .and_if(has(WRITE_ACCESS), Uses::WRITE)
            .and_if(has(DELETE), Uses::DELETE)
    }

    /// The uses that it denies to others (MS-FSA 2.1.5.1.2.2): none where it has none itself.
    pub fn denies(self) -> Uses {
        let denies = |bit: u32| self.share & bit == 0;
        match self.does() {
            Uses::NOTHING => Uses::NOTHING,
            _ => Uses::NOTHING
                .and_if(denies(FILE_SHARE_READ), Uses::READ)
                .and_if(denies(FILE_SHARE_WRITE), Uses::WRITE)
                .and_if(denies(FILE_SHARE_DELETE), Uses::DELETE),
        }
    }
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

/// An open as the table of its file has it.
pub(super) struct OpenEntry {
    sharing: Sharing,
    pub(super) name: Arc<EntryName>,
    /// The lease the open holds.
    lease: Option<LeaseId>,
    /// The connection the open belongs to, where breaks of its lease go.
    pub(super) owner: Notified,
    /// The user or guest whose open it is
    /// ([`OpenBudget::holder`](super::slots::OpenBudget::holder)).
    holder: u64,
    /// Set on a durable open.
    pub(super) durable: Option<DurableMark>,
    /// One for each of its byte-range locks, which counts it against the limit of its user or
    /// guest.
    pub(super) locks: Vec<Option<LockSlot>>,
}

impl OpenEntry {
    pub(super) fn new(
        sharing: Sharing,
        name: Arc<EntryName>,
        lease: Option<LeaseId>,
        owner: Notified,
        holder: u64,
    ) -> Self {
        Self { sharing, name, lease, owner, holder, durable: None, locks: Vec::new() }
    }

    pub(super) fn sharing(&self) -> Sharing {
        self.sharing
    }

    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    fn works(&self) -> usize {
        usize::from(!stat_only(self.sharing.access))
    }

    /// Whether a directory above the open may be renamed while it lasts, by a Mac if `by_mac`.
    /// macOS renames folders with open files in them, as POSIX lets it, and its opens go on; Time
    /// Machine's first backup does so. Other clients know an open by its path and are not moved. An
    /// open kept for a client that has gone is reconnected by its path.
    pub(super) fn bears_rename(&self, by_mac: bool) -> bool {
        by_mac && self.owner.is_mac() && !self.durable.as_ref().is_some_and(|durable| durable.detached)
    }

    fn is_detached(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.detached)
    }
}

/// The opens that hold one lease.
#[derive(Default)]
struct Holders {
    ids: BTreeSet<u64>,
    /// How many of them are more than attribute-only.
    working: usize,
}

/// The opens of one file, in the order in which they were made.
#[derive(Default)]
pub(super) struct OpenEntries {
    by_id: BTreeMap<u64, Box<OpenEntry>>,
    by_lease: HashMap<LeaseId, Holders>,
    by_holder: HashMap<u64, usize>,
    /// How many opens are more than attribute-only.
    working: usize,
}

impl OpenEntries {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn get(&self, id: u64) -> Option<&OpenEntry> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OpenEntry> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenEntry> {
        self.by_id.values().map(Box::as_ref)
    }

    /// How many opens of the file a user or guest has.
    pub(super) fn count_of(&self, holder: u64) -> usize {
        self.by_holder.get(&holder).copied().unwrap_or(0)
    }

    /// Ids grow, so the newest open is the last one.
    pub(super) fn insert(&mut self, id: u64, entry: OpenEntry) {
        *self.by_holder.entry(entry.holder).or_default() += 1;
        self.working += entry.works();
        self.hold(id, &entry);
        self.by_id.insert(id, Box::new(entry));
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<OpenEntry> {
        let entry = *self.by_id.remove(&id)?;
        if let Some(count) = self.by_holder.get_mut(&entry.holder) {
            *count -= 1;
            if *count == 0 {
                self.by_holder.remove(&entry.holder);
            }
        }
        self.working -= entry.works();
        self.let_go(id, &entry);
        Some(entry)
    }

    pub(super) fn set_lease(&mut self, id: u64, lease: LeaseId) {
        let Some(mut entry) = self.by_id.remove(&id) else { return };
        self.let_go(id, &entry);
        entry.lease = Some(lease);
        self.hold(id, &entry);
        self.by_id.insert(id, entry);
    }

    /// Whether any open is more than attribute-only, beside those that hold the lease `but`.
    pub(super) fn work_beside(&self, but: LeaseId) -> bool {
        self.working > self.by_lease.get(&but).map_or(0, |holders| holders.working)
    }

    pub(super) fn holds(&self, lease: LeaseId) -> bool {
        self.by_lease.contains_key(&lease)
    }

    /// The opens that hold a lease, in open order.
    pub(super) fn holders(&self, lease: LeaseId) -> impl Iterator<Item = &OpenEntry> {
        self.by_lease.get(&lease).into_iter().flat_map(|holders| &holders.ids).filter_map(|id| self.get(*id))
    }

    /// Whether the lease is held, and only by opens kept for reconnect.
    pub(super) fn held_only_detached(&self, lease: LeaseId) -> bool {
        self.holds(lease) && self.holders(lease).all(OpenEntry::is_detached)
    }

    /// Gives `each` the opens that hold a lease, in open order.
    pub(super) fn for_holders(&mut self, lease: LeaseId, mut each: impl FnMut(&mut OpenEntry)) {
        let Some(holders) = self.by_lease.get(&lease) else { return };
        for id in &holders.ids {
            if let Some(entry) = self.by_id.get_mut(id) {
                each(entry);
            }
        }
    }

    fn hold(&mut self, id: u64, entry: &OpenEntry) {
        if let Some(lease) = entry.lease {
            let holders = self.by_lease.entry(lease).or_default();
            holders.ids.insert(id);
            holders.working += entry.works();
        }
    }

    fn let_go(&mut self, id: u64, entry: &OpenEntry) {
        if let Some(lease) = entry.lease
            && let Some(holders) = self.by_lease.get_mut(&lease)
        {
            holders.ids.remove(&id);
            holders.working -= entry.works();
            if holders.ids.is_empty() {
                self.by_lease.remove(&lease);
            }
        }
    }
}
