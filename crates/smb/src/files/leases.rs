//! Leases across the server: which file each lease is bound to (MS-SMB2
//! 3.3.1.11), and delivery of lease break notifications (MS-SMB2 3.3.4.7).
//!
//! Lock order: the durable table, then `LeaseTable` bindings, then a
//! share's file table, then a file, then the table of all doors or a
//! connection's outbound queue. Other doors are asked under none of these.
//! Notifications are delivered after every file lock is released.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use larder_opens::Waiter;
use tokio::time::Instant;

use tracing::debug;

use crate::conn::outbound::Notified;
use crate::share::ShareBindings;
use larder_base::task;
use larder_smb_wire::header::{Command, HeaderTail, SMB2_FLAGS_SERVER_TO_REDIR, Smb2Header};
use larder_smb_wire::messages::{LeaseBreakNotification, OplockBreakNotification};
use larder_smb_wire::ntstatus;

use super::entries::DurableMark;
use super::late::Punctual;
use super::lease::{FileLease, LeaseId, LeaseState, LeaseVersion, Notification};
use super::table::FileNode;

/// How long a client has to acknowledge a lease break before the lease
/// drops to NONE (MS-SMB2 3.3.2.5; Windows servers wait 35 seconds).
pub(crate) const LEASE_BREAK_TIMEOUT: Duration = Duration::from_secs(35);

/// Extra time an operation waiting for a break allows past
/// [`LEASE_BREAK_TIMEOUT`] before it gives up, in case a timer was lost.
const WAIT_SLACK: Duration = Duration::from_secs(5);

/// The longest a request waits for lease breaks: a handle break and then a
/// write break, each up to [`LEASE_BREAK_TIMEOUT`], plus slack.
pub(crate) const MAX_BREAK_WAIT: Duration =
    Duration::from_secs(2 * LEASE_BREAK_TIMEOUT.as_secs() + WAIT_SLACK.as_secs());

/// Every lease on the server, by client and key.
#[derive(Default)]
pub(crate) struct LeaseTable {
    bindings: Mutex<HashMap<LeaseId, LeaseBinding>>,
}

pub(super) struct LeaseBinding {
    /// The share of the file the lease was last bound to.
    pub(super) share: Weak<ShareBindings>,
    /// The file the lease was last bound to. The lease is held there only
    /// while that file has it; otherwise the binding is free to move.
    pub(super) node: Option<Arc<FileNode>>,
    /// Opens holding the lease and CREATEs in progress with its key.
    pub(super) refs: usize,
}

/// One open's or one CREATE's use of a lease binding. Dropping the last
/// one removes the binding.
pub(crate) struct LeaseRef {
    table: Arc<LeaseTable>,
    id: LeaseId,
}

impl LeaseTable {
    pub(super) fn bindings(&self) -> MutexGuard<'_, HashMap<LeaseId, LeaseBinding>> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lease `id` is held on a file.
    pub(crate) fn exists(&self, id: LeaseId) -> bool {
        self.bindings().get(&id).and_then(|b| b.node.as_ref()).is_some_and(|n| n.has_lease(id))
    }

    /// Takes a use of the lease `id` for a CREATE on `share` of what is `file` now, if anything is.
    /// Fails with STATUS_INVALID_PARAMETER when the lease is held on
    /// another file, or by another share (MS-SMB2 3.3.5.9.8, 3.3.5.9.11).
    pub(crate) fn acquire(
        self: &Arc<Self>,
        id: LeaseId,
        share: &Arc<ShareBindings>,
        file: Option<u64>,
    ) -> Result<LeaseRef, u32> {
        let mut bindings = self.bindings();
        let binding = bindings.entry(id).or_insert_with(|| LeaseBinding { share: Weak::new(), node: None, refs: 0 });
        if let Some(node) = binding.node.as_ref().filter(|node| node.has_lease(id)) {
            let same_share = binding.share.upgrade().is_some_and(|s| Arc::ptr_eq(&s, share));
            if !same_share || file != Some(node.key) {
                return Err(ntstatus::STATUS_INVALID_PARAMETER);
            }
        }
        binding.refs += 1;
        Ok(LeaseRef { table: Arc::clone(self), id })
    }

    /// MS-SMB2 3.3.5.22.2: completes a break of the lease `id` with the
    /// state `bits` the client acknowledged; see [`FileNode::acknowledge`].
    /// A further break it starts is returned to send after the response.
    pub(crate) fn acknowledge(&self, id: LeaseId, bits: u32) -> Result<(LeaseState, Notices), u32> {
        let node =
            self.bindings().get(&id).and_then(|b| b.node.clone()).ok_or(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND)?;
        node.acknowledge(id, bits)
    }
}

impl Drop for LeaseRef {
    fn drop(&mut self) {
        let mut bindings = self.table.bindings();
        if let Some(binding) = bindings.get_mut(&self.id) {
            binding.refs -= 1;
            if binding.refs == 0 {
                bindings.remove(&self.id);
            }
        }
    }
}

/// Something held until a response is queued: a [`GrantGuard`] or
/// [`Notices`]. Dropping it sends the lease breaks that have to follow the
/// response on the wire.
pub(crate) type AfterSend = Box<dyn Send + Sync>;

/// Holds back break notifications for a lease until the CREATE response
/// that granted it is queued; dropping it sends what was held back.
pub(crate) struct GrantGuard {
    node: Arc<FileNode>,
    id: LeaseId,
    /// The lease the grant was made on, not a later one with its id.
    serial: u64,
    /// The connection the CREATE response goes out on.
    sender: Notified,
}

impl GrantGuard {
    pub(super) fn new(node: Arc<FileNode>, id: LeaseId, serial: u64, sender: Notified) -> Self {
        Self { node, id, serial, sender }
    }
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        drop(self.node.end_grant(self.id, self.serial, &self.sender));
    }
}

/// A break the client has to acknowledge: the lease and which break.
#[derive(Debug)]
pub(crate) struct AckWait {
    pub node: Weak<FileNode>,
    pub id: LeaseId,
    pub seq: u64,
}

/// A wait for a file's leases or opens to change, bounded by the
/// acknowledgment timeout and some slack in case a timer was lost.
#[derive(Debug)]
pub(crate) struct BreakWait {
    change: Waiter,
    deadline: Instant,
}

impl BreakWait {
    pub(super) fn new(change: Waiter) -> Self {
        Self { change, deadline: Instant::now() + LEASE_BREAK_TIMEOUT + WAIT_SLACK }
    }

    /// Resolves at the next change, returning true, or at the deadline, returning false. Starting a
    /// break's acknowledgment timer counts as a change, so a wait begun before then outlasts the
    /// timer.
    pub(crate) async fn changed(&mut self) -> bool {
        tokio::select! {
            () = &mut self.change => true,
            () = tokio::time::sleep_until(self.deadline) => false,
        }
    }
}

/// Lease break notifications to send, each with the connections it may go
/// to, and opens kept for reconnect that a break closes. Dropping it sends
/// and closes them, so it is dropped only after every file lock is released.
#[derive(Default)]
pub(crate) struct Notices(Vec<Notice>);

enum Notice {
    /// One break notification, the connections it may go to in order, and
    /// the acknowledgment it needs.
    Send { bytes: Vec<u8>, owners: Vec<Notified>, ack: Option<AckWait> },
    /// Opens kept for reconnect that no client can take back any more.
    Close(Vec<DurableMark>),
}

impl Notices {
    pub(super) fn push(&mut self, bytes: Vec<u8>, owners: Vec<Notified>, ack: Option<AckWait>) {
        self.0.push(Notice::Send { bytes, owners, ack });
    }

    pub(super) fn close(&mut self, opens: Vec<DurableMark>) {
        if !opens.is_empty() {
            self.0.push(Notice::Close(opens));
        }
    }
}

impl Drop for Notices {
    /// Sends each notification on the first connection that takes it
    /// (MS-SMB2 3.3.4.7). A sent break that needs an acknowledgment starts its
    /// timer. One no connection took waits
    /// the same way while a connection is left that is about to close the
    /// lease's opens, so what waits for the break sees them gone; otherwise
    /// it drops the lease to NONE, and so does one to a client that was late
    /// (`lease.late_once`). Kept opens to close are closed on tasks of the
    /// current runtime.
    fn drop(&mut self) {
        for notice in self.0.drain(..) {
            let (bytes, owners, ack) = match notice {
                Notice::Send { bytes, owners, ack } => (bytes, owners, ack),
                Notice::Close(opens) => {
                    for mark in opens {
                        if let Some(table) = mark.table.upgrade() {
                            table.purge(mark.id);
                        }
                    }
                    continue;
                }
            };
            let taken_by = owners.iter().find(|owner| owner.send(&bytes));
            let delivered = taken_by.is_some();
            let is_late = taken_by.is_some_and(Notified::is_late);
            if delivered {
                debug!("lease break sent");
            } else {
                debug!("lease break not delivered; no connection took it");
            }
            let closing = || owners.iter().any(Notified::is_alive);
            match ack {
                Some(ack) if !is_late && (delivered || closing()) => {
                    start_timer(ack, taken_by.and_then(Notified::client).cloned());
                }
                Some(ack) => {
                    if let Some(node) = ack.node.upgrade() {
                        drop(node.drop_break(ack.id, ack.seq));
                    }
                }
                None => {}
            }
        }
    }
}

/// Starts the acknowledgment timer of a sent break (MS-SMB2 3.3.6.5).
fn start_timer(ack: AckWait, told: Option<Arc<Punctual>>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let AckWait { node, id, seq } = ack;
    let timer = task::spawn_on(&runtime, {
        let node = node.clone();
        async move {
            tokio::time::sleep(LEASE_BREAK_TIMEOUT).await;
            if let Some(node) = node.upgrade() {
                if let Some(told) = told {
                    told.note_late();
                }
                drop(node.drop_break(id, seq));
            }
        }
    });
    match node.upgrade() {
        Some(node) => node.set_timer(id, seq, timer.abort_handle()),
        None => timer.abort(),
    }
}

/// The break notification `told` for `lease`, or for the oplock it stands
/// for (MS-SMB2 2.2.23.1, 2.2.23.2, 3.3.4.6, 3.3.4.7): unsigned, SessionId and
/// TreeId 0, MessageId all ones, no credits.
pub(super) fn break_notification(lease: &FileLease, told: Notification) -> Vec<u8> {
    let hdr = Smb2Header {
        command: Command::OplockBreak,
        flags: SMB2_FLAGS_SERVER_TO_REDIR,
        message_id: u64::MAX,
        tail: HeaderTail::sync(0),
        ..Smb2Header::default()
    };
    let mut out = Vec::with_capacity(64 + 44);
    hdr.write(&mut out).expect("encoding into a Vec cannot fail");
    if lease.version == LeaseVersion::Oplock {
        let body = OplockBreakNotification {
            structure_size: 24,
            oplock_level: told.to.oplock_level() as u8,
            reserved: 0,
            reserved2: 0,
            file_id: lease.file_id,
        };
        body.write_to(&mut out).expect("encoding into a Vec cannot fail");
        return out;
    }
    let body = LeaseBreakNotification {
        structure_size: 44,
        new_epoch: match lease.version {
            LeaseVersion::V2 => told.epoch,
            LeaseVersion::V1 | LeaseVersion::Oplock => 0,
        },
        flags: if told.ack { LeaseBreakNotification::FLAG_ACK_REQUIRED } else { 0 },
        lease_key: lease.id.key,
        current_lease_state: told.from.bits(),
        new_lease_state: told.to.bits(),
        break_reason: 0,
        access_mask_hint: 0,
        share_mask_hint: 0,
    };
    body.write_to(&mut out).expect("encoding into a Vec cannot fail");
    out
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
