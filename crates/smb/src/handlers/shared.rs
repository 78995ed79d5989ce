//! Internal helpers shared across handlers: tree/open lookup, etc.

use std::sync::Arc;

use larder_smb_wire::header::{SMB2_FLAGS_REPLAY_OPERATION, Smb2Header};
use larder_smb_wire::messages::{Dialect, FileId};
use tokio::sync::RwLock;

use crate::conn::state::{Connection, Open, Session, TreeConnect};
use crate::files::UnderWay;
use larder_smb_wire::ntstatus;

/// A request's tree, or the status without one. The dispatcher finds it once and checks it, and handlers
/// use what was checked: a second look-up may find a tree that needs encryption and was connected meanwhile.
pub(crate) type RequestTree = Result<Arc<TreeConnect>, u32>;

/// The tree of `session` that `hdr` names.
pub fn tree_of(session: Option<&Arc<Session>>, hdr: &Smb2Header) -> RequestTree {
    let tid = hdr.tree_id().ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
    let session = session.ok_or(ntstatus::STATUS_USER_SESSION_DELETED)?;
    session.trees.get(tid).ok_or(ntstatus::STATUS_NETWORK_NAME_DELETED)
}

/// Whether `tree`, which a request waits on, is connected still; otherwise the status that a new request fails with.
pub fn still_connected(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &Arc<TreeConnect>) -> Result<(), u32> {
    let current = tree_of(conn.sessions.get(hdr.session_id).as_ref(), hdr)?;
    match Arc::ptr_eq(&current, tree) {
        true => Ok(()),
        false => Err(ntstatus::STATUS_NETWORK_NAME_DELETED),
    }
}

pub fn lookup_session(conn: &Arc<Connection>, sid: u64) -> Result<Arc<Session>, u32> {
    if sid == 0 {
        return Err(ntstatus::STATUS_USER_SESSION_DELETED);
    }
    conn.sessions.get(sid).ok_or(ntstatus::STATUS_USER_SESSION_DELETED)
}

/// The open that a request names in its tree.
pub(super) fn open_of(tree: &RequestTree, file_id: FileId) -> Result<Arc<RwLock<Open>>, u32> {
    let tree = tree.as_ref().map_err(|status| *status)?;
    tree.file(file_id).ok_or(ntstatus::STATUS_FILE_CLOSED)
}

pub fn lookup_open(tree: &Arc<TreeConnect>, file_id: FileId) -> Option<Arc<RwLock<Open>>> {
    tree.file(file_id)
}

/// Whether a session of `dialect` may have several connections, and a client send a
/// request again through another one.
pub(super) fn has_channels(dialect: Option<Dialect>) -> bool {
    matches!(dialect, Some(Dialect::Smb300 | Dialect::Smb302 | Dialect::Smb311))
}

/// Begins a change through `open` (MS-SMB2 3.3.5.2.10): a WRITE, SET_INFO or
/// IOCTL. It is under way until what is returned is dropped.
pub(super) fn begin_change(conn: &Connection, hdr: &Smb2Header, open: &Open) -> Result<Option<UnderWay>, u32> {
    if !has_channels(conn.negotiated.dialect()) {
        return Ok(None);
    }
    let is_replay = hdr.flags & SMB2_FLAGS_REPLAY_OPERATION != 0;
    let change = open.channel_sequence.begin(hdr.channel_sequence(), is_replay);
    change.map(Some).ok_or(ntstatus::STATUS_FILE_NOT_AVAILABLE)
}

/// Notes the channel that a request on `open` came by, which changes nothing
/// (MS-SMB2 3.3.5.2.10).
pub(super) fn note_channel(conn: &Connection, hdr: &Smb2Header, open: &Open) {
    let sequence = hdr.channel_sequence();
    if sequence != 0 && has_channels(conn.negotiated.dialect()) {
        open.channel_sequence.note(sequence);
    }
}

/// True if a READ or WRITE on `dialect` may carry `channel`. Every
/// connection is TCP, so on SMB 3.x an RDMA channel is never valid; on
/// earlier dialects the field is reserved and ignored.
pub fn channel_is_valid(dialect: Option<Dialect>, channel: u32) -> bool {
    channel == 0 || !has_channels(dialect)
}
