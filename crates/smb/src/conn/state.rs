//! Connection / session / tree / open state held during a single TCP
//! connection's lifetime.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use larder_smb_wire::auth::ntlm::Identity;
use larder_smb_wire::crypto::{PreauthIntegrity, SessionCipher, SigningAlgo};
use larder_smb_wire::messages::FileId;
use tokio::sync::RwLock;
use tracing::warn;
use uuid::Uuid;

use crate::conn::channels::{ChannelKeys, Channels};
use crate::conn::logons::PendingLogons;
use crate::conn::negotiated::Negotiation;
use crate::conn::outbound::{Notified, Outbound};
use crate::conn::pending::PendingOps;
use crate::conn::table::Table;
use crate::door::handle::FileHandle;
use crate::door::view::VisitedShare;
use crate::error::{SmbError, SmbResult};
use crate::files::{Begun, ChannelSequence, DurableReg, FileRef, LockSequences, NotifyBudget, OpenSlot, WatchReg};
use crate::rpc::pipe::{Pipe, PipeBudget};
use crate::share::{Caller, ShareBindings};
use crate::words::FileTimes;
use larder_smb_wire::access_mask::Access;
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::SmbPath;

/// A session's signing key, with the algorithm of its connection.
#[derive(Clone, Copy)]
pub struct SigningKey {
    pub algo: SigningAlgo,
    pub key: [u8; 16],
}

// ---------------------------------------------------------------------------
// Connection
// ---------------------------------------------------------------------------

/// One connection's negotiated state and its session/tree/open tables.
pub struct Connection {
    pub server_guid: Uuid,
    pub(crate) negotiated: Negotiation,
    /// Connection.PreauthIntegrityHashValue after NEGOTIATE. SMB 3.1.1
    /// SESSION_SETUP exchanges fork this into `logons`.
    pub preauth: Mutex<PreauthIntegrity>,
    /// Max READ/WRITE sizes advertised in the NEGOTIATE response.
    pub max_read_size: u32,
    pub max_write_size: u32,

    /// Sessions keyed by SessionId.
    pub sessions: Table<u64, Arc<Session>>,

    /// Of sessions that other connections began.
    pub(crate) channel_keys: ChannelKeys,

    /// The keys of the sessions that ended last, oldest first: a request on
    /// one of them is told so in a signed response, since its client believes
    /// no other.
    ended_sessions: Mutex<VecDeque<(u64, SigningKey)>>,

    pub logons: PendingLogons,

    /// Set when the connection must close without sending a reply.
    disconnect: AtomicBool,

    /// Set once the connection takes no more requests and is closing.
    closing: AtomicBool,

    /// Connection.CommandSequenceWindow: the MessageIds the client may use. All requests share it, so it is locked twice a
    /// request, for a few instructions: when the frame takes its MessageIds and when the response grants others.
    pub credits: Mutex<crate::conn::credits::CreditWindow>,

    /// Failed logons on this connection.
    pub logon_failures: AtomicU32,

    /// Opens held on this connection, across its sessions and trees.
    pub open_count: Arc<std::sync::atomic::AtomicUsize>,

    /// The client's address, set when the connection is accepted.
    pub peer_addr: Option<std::net::SocketAddr>,

    /// Where lease breaks for this connection's opens are sent.
    pub(crate) outbound: Arc<Outbound>,

    /// Requests answered asynchronously that are still running.
    pub(crate) pending: PendingOps,

    /// The named pipes open on this connection and the bytes they hold.
    pub(crate) pipe_budget: Arc<PipeBudget>,

    /// The change notification watches of this connection's opens and the
    /// bytes they buffer.
    pub(crate) notify_budget: Arc<NotifyBudget>,
}

impl Connection {
    pub fn new(server_guid: Uuid, max_read_size: u32, max_write_size: u32) -> Self {
        Self {
            server_guid,
            negotiated: Negotiation::default(),
            preauth: Mutex::new(PreauthIntegrity::new()),
            max_read_size,
            max_write_size,
            sessions: Table::default(),
            channel_keys: ChannelKeys::default(),
            ended_sessions: Mutex::default(),
            logons: PendingLogons::default(),
            disconnect: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            credits: Mutex::new(crate::conn::credits::CreditWindow::new()),
            logon_failures: AtomicU32::new(0),
            open_count: Arc::default(),
            peer_addr: None,
            outbound: Arc::default(),
            pending: PendingOps::default(),
            pipe_budget: Arc::default(),
            notify_budget: Arc::default(),
        }
    }

    /// Close the connection after the current request, without a reply.
    pub fn request_disconnect(&self) {
        self.disconnect.store(true, Ordering::Release);
    }

    /// True once a handler has asked to close the connection.
    pub fn disconnect_requested(&self) -> bool {
        self.disconnect.load(Ordering::Acquire)
    }

    /// Marks the connection as closing: it reads no more requests, and its
    /// sessions are about to end.
    pub(crate) fn mark_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// True once the connection is closing.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn lock_ended(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, SigningKey)>> {
        self.ended_sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The key of a session that ended on this connection not long ago.
    pub(crate) fn ended_session_key(&self, session_id: u64) -> Option<SigningKey> {
        let ended = self.lock_ended();
        ended.iter().find(|(id, _)| *id == session_id).map(|(_, key)| *key)
    }

    /// What `session` signs with on this connection (Channel.SigningKey);
    /// `None` when it has no key, as anonymous sessions have none.
    pub(crate) fn signing_key(&self, session_id: u64, session: &Session) -> Option<SigningKey> {
        if session.is_anonymous() {
            return None;
        }
        let key = self.channel_keys.get(session_id).or_else(|| session.signing_key())?;
        Some(SigningKey { algo: self.negotiated.signing_algo(), key })
    }

    /// Where the break notifications of opens go that `session_id` has in a
    /// tree of `share`.
    pub(crate) fn notified(&self, session_id: u64, share: &ShareBindings) -> Notified {
        let Some(session) = self.sessions.get(session_id) else {
            return Notified::new(&self.outbound, None);
        };
        let cipher = session.cipher().cloned().filter(|_| share.encrypt_data);
        Notified::new(&self.outbound, cipher.map(|keys| (session_id, keys))).or_through(&session.channels)
    }
}

// ---------------------------------------------------------------------------
// Session
// ---------------------------------------------------------------------------

/// What a session signs and encrypts with.
pub struct SessionKeys {
    /// Session.SigningKey.
    pub signing: [u8; 16],
    /// Encryption and decryption keys, on a connection with a cipher.
    /// Anonymous sessions have none.
    pub cipher: Option<Arc<SessionCipher>>,
}

/// What SESSION_SETUP fixes is set once, so requests read it without a lock.
pub struct Session {
    pub identity: Identity,
    pub session_base_key: [u8; 16],
    /// Of SMB 3.1.1, known only after the session is in its connection's table.
    keys: OnceLock<SessionKeys>,
    /// Whether signing is required for this session's traffic.
    pub signing_required: bool,
    pub trees: Table<u32, Arc<TreeConnect>>,
    /// What the connection that began the session signs with.
    pub signing_algo: SigningAlgo,
    pub(crate) channels: Arc<Channels>,

    next_tree_id: AtomicU32,
}

impl Session {
    pub fn new(identity: Identity, session_base_key: [u8; 16], signing_required: bool) -> Self {
        Self {
            identity,
            session_base_key,
            keys: OnceLock::new(),
            signing_required,
            trees: Table::default(),
            signing_algo: SigningAlgo::HmacSha256,
            channels: Arc::default(),
            next_tree_id: AtomicU32::new(1),
        }
    }

    /// Sets the keys. They stay: reauthentication keeps them (MS-SMB2 3.3.5.5.2).
    pub fn set_keys(&self, keys: SessionKeys) {
        let _ = self.keys.set(keys);
    }

    /// Session.SigningKey, once there is one.
    pub fn signing_key(&self) -> Option<[u8; 16]> {
        self.keys.get().map(|keys| keys.signing)
    }

    pub fn cipher(&self) -> Option<&Arc<SessionCipher>> {
        self.keys.get().and_then(|keys| keys.cipher.as_ref())
    }

    pub fn alloc_tree_id(&self) -> u32 {
        self.next_tree_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The session as share admission sees it.
    pub(crate) fn caller(&self, address: Option<IpAddr>) -> Caller {
        Caller { identity: self.identity.clone(), address, can_encrypt: self.cipher().is_some() }
    }

    pub fn is_anonymous(&self) -> bool {
        matches!(self.identity, Identity::Anonymous)
    }
}

// ---------------------------------------------------------------------------
// TreeConnect
// ---------------------------------------------------------------------------

pub struct TreeConnect {
    pub id: u32,
    pub share: Arc<ShareBindings>,
    /// The share as the session's user sees it; `None` of IPC$, where no file is opened.
    pub(crate) view: Option<VisitedShare>,
    pub granted_access: Access,
    /// Locked for one look-up or one change, never across an await.
    opens: std::sync::RwLock<TreeOpens>,
}

/// The opens of a tree.
#[derive(Default)]
pub(crate) struct TreeOpens {
    pub(crate) files: HashMap<FileId, Arc<RwLock<Open>>>,
    /// Named pipe opens, on an IPC$ tree. They hold no handle and
    /// no place in a file table.
    pub(crate) pipes: HashMap<FileId, Arc<Pipe>>,
    /// Set once the tree is disconnected or revoked. Opens are no longer
    /// added to it.
    pub(crate) closed: bool,
}

/// Source of FileIds. One counter for the process keeps every FileId unique
/// within its session, and -1 is never reached.
static NEXT_FILE_ID: AtomicU64 = AtomicU64::new(1);

impl TreeConnect {
    pub fn new(id: u32, share: Arc<ShareBindings>, granted_access: Access) -> Self {
        Self { id, view: share.view().cloned(), share, granted_access, opens: std::sync::RwLock::default() }
    }

    /// The share as the session's user sees it; STATUS_NOT_SUPPORTED where no file is opened.
    pub fn view(&self) -> Result<&VisitedShare, u32> {
        self.view.as_ref().ok_or(ntstatus::STATUS_NOT_SUPPORTED)
    }

    fn opens(&self) -> RwLockReadGuard<'_, TreeOpens> {
        self.opens.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opens_mut(&self) -> RwLockWriteGuard<'_, TreeOpens> {
        self.opens.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has_files(&self) -> bool {
        !self.opens().files.is_empty()
    }

    pub fn file(&self, file_id: FileId) -> Option<Arc<RwLock<Open>>> {
        self.opens().files.get(&file_id).cloned()
    }

    pub fn files(&self) -> Vec<(FileId, Arc<RwLock<Open>>)> {
        self.opens().files.iter().map(|(id, open)| (*id, Arc::clone(open))).collect()
    }

    /// Adds an open; gives it back if the tree is closed.
    pub(crate) fn add_file(&self, file_id: FileId, open: Arc<RwLock<Open>>) -> Result<(), Arc<RwLock<Open>>> {
        let mut opens = self.opens_mut();
        if opens.closed {
            return Err(open);
        }
        opens.files.insert(file_id, open);
        Ok(())
    }

    pub fn remove_file(&self, file_id: FileId) -> Option<Arc<RwLock<Open>>> {
        self.opens_mut().files.remove(&file_id)
    }

    pub(crate) fn pipe(&self, file_id: FileId) -> Option<Arc<Pipe>> {
        self.opens().pipes.get(&file_id).cloned()
    }

    pub(crate) fn remove_pipe(&self, file_id: FileId) -> Option<Arc<Pipe>> {
        self.opens_mut().pipes.remove(&file_id)
    }

    /// Closes the tree, so no CREATE adds to it, drops its pipes and takes
    /// its opens. Waits for no request.
    pub(crate) fn close(&self) -> Vec<Arc<RwLock<Open>>> {
        let mut opens = self.opens_mut();
        opens.closed = true;
        opens.pipes.clear();
        opens.files.drain().map(|(_, open)| open).collect()
    }

    pub fn alloc_file_id(&self) -> FileId {
        let v = self.alloc_volatile();
        FileId::new(v, v)
    }

    /// A volatile FileId part no other open of the process has.
    pub fn alloc_volatile(&self) -> u64 {
        NEXT_FILE_ID.fetch_add(1, Ordering::Relaxed)
    }
}

// ---------------------------------------------------------------------------
// Open / DirCursor
// ---------------------------------------------------------------------------

pub struct Open {
    pub file_id: FileId,
    pub handle: Option<Box<FileHandle>>,
    /// Open.GrantedAccess: access mask bits, generic rights already mapped.
    pub granted_access: u32,
    pub is_directory: bool,
    /// FILE_DELETE_ON_CLOSE was set on CREATE (MS-FSA Open.Mode): the file
    /// becomes delete-pending when this open closes.
    pub delete_on_close: bool,
    pub search_state: Option<DirCursor>,
    /// Access and write times that FileBasicInformation fixed for this open
    /// (MS-FSA 2.1.5.15.2). Writes and truncation through the open, and its
    /// CLOSE, restore them.
    pub fixed_times: FileTimes,
    /// CreateOptions of the CREATE request.
    pub create_options: u32,
    /// The open's entry in its share's table of open files, which holds its
    /// current name. `None` once the open is closed.
    pub(crate) file: Option<FileRef>,
    /// Counts the open against its connection's limit.
    pub(crate) slot: Option<OpenSlot>,
    /// Set on a durable open (Open.IsDurable).
    pub(crate) durable: Option<DurableReg>,
    /// The place of the CREATE that made the open, by its CreateGuid.
    pub(crate) begun: Option<Begun<RwLock<Open>>>,
    /// The change notification watch the first CHANGE_NOTIFY on the open
    /// armed.
    pub(crate) watch: Option<WatchReg>,
    /// A WRITE through the open changed the file; its close reports that.
    pub(crate) wrote: AtomicBool,
    /// CreateAction of the response to that CREATE.
    pub(crate) create_action: u32,
    /// FileDispositionInformation through the open marked its directory
    /// for deletion (MS-FSA Open.ChangeNotifyDirectoryMarkedDeleted). It
    /// stays set when the mark is cleared.
    pub(crate) marked_deleted: AtomicBool,
    /// CurrentByteOffset (MS-FSA Open.CurrentByteOffset), which only
    /// FilePositionInformation sets and reads.
    pub(crate) position: AtomicU64,
    /// The LOCK requests that were carried out.
    pub(crate) lock_sequences: LockSequences,
    pub(crate) channel_sequence: Arc<ChannelSequence>,
}

impl Open {
    /// The open's current path on the share. Fails once the open is closed.
    pub(crate) async fn path(&self) -> SmbResult<SmbPath> {
        let file = self.file.as_ref().ok_or(SmbError::Status(ntstatus::STATUS_FILE_CLOSED))?;
        file.name().path().await
    }

    /// Puts back the times the open keeps fixed, after a change made through it.
    pub(crate) async fn restore_fixed_times(&self) {
        let fixed = self.fixed_times;
        if fixed.last_access_time.is_none() && fixed.last_write_time.is_none() {
            return;
        }
        if let Some(handle) = self.handle.as_ref()
            && let Err(e) = handle.set_times(fixed).await
        {
            warn!(error = %e, path = %handle.name().opened_as(), "restoring fixed times failed");
        }
    }

    /// Whether the file is delete-pending (MS-FSA Link.IsDeleted), as
    /// FileStandardInformation reports it.
    pub fn delete_pending(&self) -> bool {
        self.file.as_ref().is_some_and(FileRef::delete_pending)
    }
}

/// Where a directory listing stands between two QUERY_DIRECTORY requests. Thousands of opens of a
/// connection may be within a listing, so it keeps a position and no entries.
pub struct DirCursor {
    /// Entries to give before the pages: "." and "..", and the one that a pattern without wildcards
    /// names.
    pub entries: VecDeque<larder_smb_wire::file_info::DirEntry>,
    /// Pattern used for the current listing. RESTART_SCANS and REOPEN re-list
    /// with the request's pattern.
    pub pattern: Option<String>,
    /// Position after the last entry of the pages that was sent, 0 before the first; `None` once the
    /// last page was.
    pub position: Option<u64>,
    /// Bytes of an entry in the last response, from which the next one guesses how many it holds.
    pub entry_bytes: usize,
}
