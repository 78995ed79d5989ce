//! A share: its definition, its doorkeeper, and the form in which a server serves it.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::access_mask::Access;
use crate::backend::ShareBackend;
use crate::files::{FileTable, OpenFiles, Watches};
use crate::path::SmbPath;
use larder_smb_wire::auth::ntlm::Identity;

/// Who asks to come into a share.
#[derive(Debug, Clone, Copy)]
pub struct Visitor<'a> {
    /// `None` for an anonymous or guest session.
    pub user: Option<&'a str>,
    /// `None` when the client's address cannot be looked at.
    pub address: Option<IpAddr>,
    /// The session has encryption keys. A share whose traffic is encrypted has no use for another one
    /// (MS-SMB2 3.3.5.7, RejectUnencryptedAccess).
    pub encrypts: bool,
}

/// What a visitor gets who is admitted.
pub struct Admitted {
    /// The share as the visitor sees it: opens of the tree go to it. `None`: the share's own backend.
    pub backend: Option<Arc<dyn ShareBackend>>,
    pub access: Access,
}

/// Decides who may come into a share; `None` refuses. Asked at TREE_CONNECT and when shares are listed, under
/// locks: it must not wait. This crate knows no rights of its own.
pub type Doorkeeper = Arc<dyn Fn(&Visitor<'_>) -> Option<Admitted> + Send + Sync>;

/// One share definition, attached to a single backend.
pub struct Share {
    pub(crate) name: String,
    pub(crate) backend: Arc<dyn ShareBackend>,
    pub(crate) doorkeeper: Doorkeeper,
    pub(crate) encrypt_data: bool,
    pub(crate) leases: bool,
    pub(crate) open_files: OpenFiles,
}

impl Share {
    /// Build a new share with the given name and backend. It admits nobody until it has a doorkeeper.
    pub fn new(name: impl Into<String>, backend: impl ShareBackend) -> Self {
        Self {
            name: name.into(),
            backend: Arc::new(backend),
            doorkeeper: Arc::new(|_| None),
            encrypt_data: false,
            leases: true,
            open_files: OpenFiles::default(),
        }
    }

    /// The open files of the store behind the share, for a store that has
    /// several shares.
    pub fn open_files(mut self, files: OpenFiles) -> Self {
        self.open_files = files;
        self
    }

    /// Asks `doorkeeper` about every visitor. A logon as `guest` with an empty password, which the Finder sends
    /// for Connect As Guest, is an anonymous visitor unless a user of that name is configured; the name matches
    /// in any case. Guest and anonymous traffic is neither signed nor encrypted, so a client that requires
    /// signing gets no guest session.
    pub fn doorkeeper(mut self, doorkeeper: Doorkeeper) -> Self {
        self.doorkeeper = doorkeeper;
        self
    }

    /// Encrypt all traffic to this share. The doorkeeper refuses sessions that
    /// cannot: SMB 3.x clients without encryption, SMB 2.x clients, and anonymous
    /// and guest sessions.
    pub fn encrypt_data(mut self) -> Self {
        self.encrypt_data = true;
        self
    }

    /// Whether oplocks and leases are granted on the share's files, and with them durable handles. On by
    /// default. A change that nobody tells [`OpenFiles`] breaks none: turn them off for a store with such changes.
    pub fn leases(mut self, enabled: bool) -> Self {
        self.leases = enabled;
        self
    }
}

/// Why a share name cannot be configured.
pub(crate) enum ShareNameError {
    /// IPC$, which the server provides itself.
    Reserved,
    /// Empty, or contains `\`, `/` or NUL, so no UNC path reaches it.
    Invalid,
}

/// Checks a share name for `ConfigHandle`.
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
    pub address: Option<IpAddr>,
    /// The session has encryption keys.
    pub can_encrypt: bool,
}

impl Caller {
    pub(crate) fn visitor(&self) -> Visitor<'_> {
        Visitor { user: self.identity.user(), address: self.address, encrypts: self.can_encrypt }
    }
}

/// Compiled binding for a single share: the per-server-state form of `Share`.
pub struct ShareBindings {
    pub name: String,
    pub backend: Arc<dyn ShareBackend>,
    doorkeeper: Doorkeeper,
    /// `IPC$` synthetic share. Accepted at TREE_CONNECT; its opens are
    /// named pipes.
    pub is_ipc: bool,
    /// Share.EncryptData: traffic to the share is encrypted.
    pub encrypt_data: bool,
    /// Leases are granted on the share's files.
    pub(crate) leases: bool,
    /// Every file of the share's store that has an open, on any connection.
    pub(crate) files: Arc<FileTable>,
    /// Held while a name is looked up and used, and exclusively by a rename.
    renames: RwLock<()>,
    /// The directories of the share's store that clients watch, on any connection.
    pub(crate) watches: Watches,
}

impl ShareBindings {
    pub(crate) fn from_share(share: Share) -> Arc<Self> {
        Self::new(share, false)
    }

    /// Synthetic IPC$ share, whose opens are named pipes.
    pub fn ipc() -> Arc<Self> {
        let share = Share::new("IPC$", crate::backend::NotSupportedBackend).leases(false);
        Self::new(share.doorkeeper(Arc::new(|_| Some(Admitted { backend: None, access: Access::Read }))), true)
    }

    fn new(share: Share, is_ipc: bool) -> Arc<Self> {
        let watches = share.backend.watches();
        Arc::new(Self {
            name: share.name,
            backend: share.backend,
            doorkeeper: share.doorkeeper,
            is_ipc,
            encrypt_data: share.encrypt_data,
            leases: share.leases,
            files: share.open_files.0,
            renames: RwLock::default(),
            watches,
        })
    }

    /// What the visitor gets at TREE_CONNECT, or `None` when it is refused.
    pub(crate) fn admit(&self, visitor: &Visitor<'_>) -> Option<Admitted> {
        (self.doorkeeper)(visitor)
    }

    /// Serializes renames on the share: a rename holds this while it checks
    /// the target, renames in the backend and moves the open names.
    pub(crate) async fn rename_lock(&self) -> RwLockWriteGuard<'_, ()> {
        self.renames.write().await
    }

    /// Whether anybody hears of changes of entries: a watch, or the holder of a directory's lease.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.watches.is_empty() || self.files.has_leased_directories()
    }

    /// Keeps renames out while a CREATE runs from its first backend call
    /// until its open is in the table, while a delete calls the backend, and
    /// while a modification is told. Each then uses the path the entry has on
    /// the share.
    pub(crate) async fn names_lock(&self) -> RwLockReadGuard<'_, ()> {
        self.renames.read().await
    }

    /// Tells those who watch of new contents or attributes of the entry at
    /// `path`: the FILE_NOTIFY_CHANGE_* bits `what`.
    pub(crate) async fn modified(&self, path: &SmbPath, what: u32) {
        if !self.watches.is_empty() {
            self.backend.modified(path, what).await;
        }
    }
}
