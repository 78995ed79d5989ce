//! A share: its definition, its access list, and the form in which a server serves it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::access_mask::Access;
use crate::backend::ShareBackend;
use crate::files::{FileTable, OpenFiles, WatchTable, WatchedShare};
use crate::path::SmbPath;
use crate::proto::auth::ntlm::Identity;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareMode {
    Public,
    PublicReadOnly,
    /// Default: closed share. Only users in the explicit `users` map allowed.
    AuthenticatedOnly,
}

#[derive(Clone)]
pub struct ShareAcl {
    pub mode: ShareMode,
    pub users: HashMap<String, Access>,
}

impl ShareAcl {
    /// The access `identity` gets to the share, or `None` when it may not
    /// connect: public shares admit everyone, other shares their users.
    pub(crate) fn authorize(&self, identity: &Identity) -> Option<Access> {
        match self.mode {
            ShareMode::Public => Some(Access::ReadWrite),
            ShareMode::PublicReadOnly => Some(Access::Read),
            ShareMode::AuthenticatedOnly => match identity {
                Identity::Anonymous => None,
                Identity::User { user, .. } => self.users.get(user).copied(),
            },
        }
    }
}

/// One share definition, attached to a single backend.
pub struct Share {
    pub(crate) name: String,
    pub(crate) backend: Arc<dyn ShareBackend>,
    pub(crate) mode: ShareMode,
    pub(crate) users: HashMap<String, Access>,
    pub(crate) encrypt_data: bool,
    pub(crate) leases: bool,
    pub(crate) durable_handles: bool,
    pub(crate) change_notify: bool,
    pub(crate) listed: bool,
    pub(crate) remark: String,
    pub(crate) open_files: OpenFiles,
}

impl Share {
    /// Build a new share with the given name and backend.
    pub fn new(name: impl Into<String>, backend: impl ShareBackend) -> Self {
        Self {
            name: name.into(),
            backend: Arc::new(backend),
            mode: ShareMode::AuthenticatedOnly,
            users: HashMap::new(),
            encrypt_data: false,
            leases: true,
            durable_handles: true,
            change_notify: true,
            listed: true,
            remark: String::new(),
            open_files: OpenFiles::default(),
        }
    }

    /// The open files of the store behind the share, for a store that has
    /// several shares.
    pub fn open_files(mut self, files: OpenFiles) -> Self {
        self.open_files = files;
        self
    }

    /// Anonymous + authenticated read+write. A logon as `guest` with an
    /// empty password, which the Finder sends for Connect As Guest, gets the
    /// same access as an anonymous session unless a user of that name is
    /// configured; the name matches in any case. Guest and anonymous traffic
    /// is neither signed nor encrypted, so a client that requires signing
    /// gets no guest session.
    pub fn public(mut self) -> Self {
        self.mode = ShareMode::Public;
        self
    }

    /// Anonymous + authenticated read-only. Guest logons get the same
    /// access as anonymous sessions, as with [`Share::public`].
    pub fn public_read_only(mut self) -> Self {
        self.mode = ShareMode::PublicReadOnly;
        self
    }

    /// Grant `access` to the given (already-registered) user. Multiple calls
    /// accumulate.
    pub fn user(mut self, name: impl Into<String>, access: Access) -> Self {
        self.users.insert(name.into(), access);
        self
    }

    /// Encrypt all traffic to this share. SMB 3.x clients that cannot
    /// encrypt, SMB 2.x clients, and anonymous and guest sessions are
    /// refused at TREE_CONNECT unless
    /// `SmbServerBuilder::reject_unencrypted_access` is turned off.
    pub fn encrypt_data(mut self) -> Self {
        self.encrypt_data = true;
        self
    }

    /// Grant oplocks, and read, handle and write caching leases, on this
    /// share's files. A client holding one caches what it reads, keeps files open after its
    /// applications close them, and caches what it writes while every other
    /// open of the file holds the same lease or is attribute-only.
    ///
    /// Opens on the share that do not hold the lease, from another client
    /// or from the same client under another lease key or none, break it:
    /// the client writes back and stops caching writes before such an
    /// open, drops cached data before a write, a size change, a byte-range
    /// lock or an overwrite through it, and closes the handles it keeps
    /// before an open they block, a rename or delete of the file, a rename
    /// over it, or a rename of a directory above it. Attribute-only opens
    /// and opens holding the same lease break nothing. An open or rename
    /// that needs the client to write back or close first waits until the
    /// client acknowledges the break or closes, or until the break times
    /// out 35 seconds after the server sent it; a byte-range lock is refused
    /// instead until the client has written back. On by default.
    ///
    /// Changes made outside the server, or through another share over the
    /// same directory, break no lease: clients keep serving the old data.
    /// Turn leases off for such a share.
    pub fn leases(mut self, enabled: bool) -> Self {
        self.leases = enabled;
        self
    }

    /// Keep a client's open files for a while after its connection drops or
    /// it logs off, with their share modes, byte-range locks and leases, so
    /// the client can take them back when it reconnects. Only files opened
    /// with a durable handle request and a lease that caches handles are
    /// kept, so this does nothing when leases are off. The backend handle
    /// stays open for [`SmbServerBuilder::durable_handle_timeout`](crate::SmbServerBuilder::durable_handle_timeout), or the
    /// time a version 2 request was granted, or until an open, write, size change, byte-range lock, rename or
    /// delete through an open that does not hold the lease needs what the
    /// lease caches, which closes the file at once. The same user, from the
    /// same client, on this share, takes a kept file back with a durable
    /// handle reconnect that names the file and its lease, and for a version
    /// 2 open its CreateGuid. Another user gets STATUS_ACCESS_DENIED;
    /// another client, share, lease or CreateGuid gets
    /// STATUS_OBJECT_NAME_NOT_FOUND. A kept file whose rights exceed what
    /// the user's tree on the share grants at the reconnect is closed
    /// instead. Version 1 and version 2 requests are both served; the
    /// PERSISTENT flag is ignored. On by default.
    pub fn durable_handles(mut self, enabled: bool) -> Self {
        self.durable_handles = enabled;
        self
    }

    /// Answer change notification requests: a client watching a folder, as
    /// Explorer and Finder do for an open window, hears when a file or
    /// folder in it is created, deleted, renamed, written, truncated or
    /// overwritten, or has its attributes or times set, through any
    /// connection to this share. A write is reported when the open that
    /// wrote it closes. Changes made outside the server, or through another
    /// share over the same directory, are reported only by a backend that
    /// watches for them: `LocalFsBackend` does on Linux, for the entries
    /// directly in a watched folder. When off, such requests fail with
    /// STATUS_NOT_SUPPORTED. On by default.
    pub fn change_notify(mut self, enabled: bool) -> Self {
        self.change_notify = enabled;
        self
    }

    /// Whether the share appears when clients list the server's shares.
    /// An unlisted share is still reachable by name, and a client that may
    /// connect to it can still look it up by name, so this is not access
    /// control. Clients hide shares whose name ends in `$` from ordinary
    /// lists; `net view /all` and `smbclient -L` show them. On by default.
    pub fn listed(mut self, listed: bool) -> Self {
        self.listed = listed;
        self
    }

    /// Text shown next to the share in share lists: the Comment column of
    /// Explorer and `smbclient -L`, the Remark column of `net view`. At most
    /// 1024 UTF-16 code units, without NUL. Empty by default.
    pub fn remark(mut self, remark: impl Into<String>) -> Self {
        self.remark = remark.into();
        self
    }
}

/// Longest share remark, in UTF-16 code units.
const MAX_REMARK_UNITS: usize = 1024;

/// Whether `remark` can be sent as a share's remark: no NUL, and at most
/// [`MAX_REMARK_UNITS`] UTF-16 code units.
pub(crate) fn valid_remark(remark: &str) -> bool {
    !remark.contains('\0') && remark.encode_utf16().count() <= MAX_REMARK_UNITS
}

/// Why a share name cannot be configured.
pub(crate) enum ShareNameError {
    /// IPC$, which the server provides itself.
    Reserved,
    /// Empty, or contains `\`, `/` or NUL, so no UNC path reaches it.
    Invalid,
}

/// Checks a share name for [`SmbServerBuilder::build`](crate::SmbServerBuilder::build) and
/// `ConfigHandle`.
pub(crate) fn check_share_name(name: &str) -> Result<(), ShareNameError> {
    if name.eq_ignore_ascii_case("IPC$") {
        return Err(ShareNameError::Reserved);
    }
    if name.is_empty() || name.contains(['\\', '/', '\0']) {
        return Err(ShareNameError::Invalid);
    }
    Ok(())
}

/// A session as share admission sees it.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub identity: Identity,
    /// The session has encryption keys.
    pub can_encrypt: bool,
}

/// Compiled binding for a single share: the per-server-state form of `Share`.
pub struct ShareBindings {
    pub name: String,
    pub backend: Arc<dyn ShareBackend>,
    pub acl: RwLock<ShareAcl>,
    /// `IPC$` synthetic share. Accepted at TREE_CONNECT; its opens are
    /// named pipes.
    pub is_ipc: bool,
    /// Share.EncryptData: traffic to the share is encrypted.
    pub encrypt_data: bool,
    /// Leases are granted on the share's files.
    pub(crate) leases: bool,
    /// Opens asking for a durable handle get one.
    pub(crate) durable_handles: bool,
    /// The share appears when clients list the server's shares.
    pub(crate) listed: bool,
    /// The comment shown next to the share in share lists.
    pub(crate) remark: String,
    /// Every file of the share's store that has an open, on any connection.
    pub(crate) files: Arc<FileTable>,
    /// Held while a name is looked up and used, and exclusively by a rename.
    renames: RwLock<()>,
    /// CHANGE_NOTIFY is answered on the share.
    pub(crate) change_notify: bool,
    /// The directories clients watch for changes, on any connection.
    pub(crate) watches: WatchTable,
}

impl ShareBindings {
    pub(crate) fn new(
        name: String,
        backend: Arc<dyn ShareBackend>,
        mode: ShareMode,
        users: HashMap<String, Access>,
        is_ipc: bool,
        leases: bool,
        durable_handles: bool,
    ) -> Arc<Self> {
        let watches = WatchTable::new(backend.capabilities().case_sensitive);
        Arc::new(Self {
            name,
            backend,
            acl: RwLock::new(ShareAcl { mode, users }),
            is_ipc,
            encrypt_data: false,
            leases,
            durable_handles,
            listed: true,
            remark: String::new(),
            files: Arc::default(),
            renames: RwLock::default(),
            change_notify: !is_ipc,
            watches,
        })
    }

    pub(crate) fn from_share(share: Share) -> Arc<Self> {
        let watches = WatchTable::new(share.backend.capabilities().case_sensitive);
        Arc::new(Self {
            name: share.name,
            backend: share.backend,
            acl: RwLock::new(ShareAcl { mode: share.mode, users: share.users }),
            is_ipc: false,
            encrypt_data: share.encrypt_data,
            leases: share.leases,
            durable_handles: share.durable_handles,
            listed: share.listed,
            remark: share.remark,
            files: share.open_files.0,
            renames: RwLock::default(),
            change_notify: share.change_notify,
            watches,
        })
    }

    /// Serializes renames on the share: a rename holds this while it checks
    /// the target, renames in the backend, moves the open names and the
    /// change notification watches, and reports the rename.
    pub(crate) async fn rename_lock(&self) -> RwLockWriteGuard<'_, ()> {
        self.renames.write().await
    }

    /// Whether anybody hears of changes of entries: a watch, or the holder of a directory's lease.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.watches.is_empty() || self.files.has_leased_directories()
    }

    /// Keeps renames out while a CREATE runs from its first backend call
    /// until its open is in the table, while a delete calls the backend and
    /// reports the removal, and while a CHANGE_NOTIFY arms a watch. Each
    /// then uses, and reports, the path the entry has on the share.
    pub(crate) async fn names_lock(&self) -> RwLockReadGuard<'_, ()> {
        self.renames.read().await
    }

    /// Synthetic IPC$ share, whose opens are named pipes.
    pub fn ipc() -> Arc<Self> {
        Self::new(
            "IPC$".to_string(),
            Arc::new(crate::backend::NotSupportedBackend),
            ShareMode::PublicReadOnly,
            HashMap::new(),
            true,
            false,
            false,
        )
    }
}

impl WatchedShare for ShareBindings {
    fn watches(&self) -> &WatchTable {
        &self.watches
    }

    fn open_to_change(&self, paths: &[SmbPath]) -> Vec<bool> {
        self.files.open_to_change(self, paths)
    }
}
