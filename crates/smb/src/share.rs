//! A share: its definition, its doorkeeper, and the form in which a server serves it.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::door::view::VisitedShare;
use crate::files::{FileTable, Watches};
use larder_smb_wire::access_mask::Access;
use larder_smb_wire::auth::ntlm::Identity;
use larder_smb_wire::path::SmbPath;

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
    /// The share as the visitor sees it: opens of the tree go to it. `None`: as the share has it
    /// itself.
    pub view: Option<VisitedShare>,
    pub access: Access,
}

/// Decides who may come into a share; `None` refuses. Asked at TREE_CONNECT and when shares are listed, under
/// locks: it must not wait. This crate knows no rights of its own.
pub type Doorkeeper = Arc<dyn Fn(&Visitor<'_>) -> Option<Admitted> + Send + Sync>;

/// One share definition.
pub struct Share {
    pub(crate) name: String,
    /// `None`: IPC$, which has no files.
    view: Option<VisitedShare>,
    files: Arc<FileTable>,
    pub(crate) doorkeeper: Doorkeeper,
    encrypt_data: bool,
    leases: bool,
}

impl Share {
    /// Build a new share with the given name and view, and the open files of the store behind it.
    /// It admits nobody until it has a doorkeeper.
    pub fn new(name: impl Into<String>, view: VisitedShare, files: Arc<FileTable>) -> Self {
        Self::with(name, Some(view), files)
    }

    fn with(name: impl Into<String>, view: Option<VisitedShare>, files: Arc<FileTable>) -> Self {
        let doorkeeper: Doorkeeper = Arc::new(|_| None);
        Self { name: name.into(), view, files, doorkeeper, encrypt_data: false, leases: true }
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

    /// Whether oplocks and leases are granted on the share's files, and with them durable handles.
    /// On by default. A change that nobody tells of breaks none: turn them off for a store with
    /// such changes.
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
    /// The share as nobody in particular sees it; `None` of IPC$.
    view: Option<VisitedShare>,
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
        let share = Share::with("IPC$", None, Arc::default()).leases(false);
        Self::new(share.doorkeeper(Arc::new(|_| Some(Admitted { view: None, access: Access::Read }))), true)
    }

    fn new(share: Share, is_ipc: bool) -> Arc<Self> {
        let watches = share.view.as_ref().map(VisitedShare::watches).unwrap_or_default();
        Arc::new(Self {
            name: share.name,
            view: share.view,
            doorkeeper: share.doorkeeper,
            is_ipc,
            encrypt_data: share.encrypt_data,
            leases: share.leases,
            files: share.files,
            renames: RwLock::default(),
            watches,
        })
    }

    /// What the visitor gets at TREE_CONNECT, or `None` when it is refused.
    pub(crate) fn admit(&self, visitor: &Visitor<'_>) -> Option<Admitted> {
        (self.doorkeeper)(visitor)
    }

    /// As [`TreeConnect::view`](crate::conn::state::TreeConnect::view), of nobody in particular.
    pub(crate) fn view(&self) -> Option<&VisitedShare> {
        self.view.as_ref()
    }

    /// Serializes renames on the share: a rename holds this while it checks
    /// the target and renames.
    pub(crate) async fn rename_lock(&self) -> RwLockWriteGuard<'_, ()> {
        self.renames.write().await
    }

    /// Whether anybody hears of changes of entries: a watch, or the holder of a directory's lease.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.watches.is_empty() || self.files.has_leased_directories()
    }

    /// Keeps renames out while a CREATE runs from its first look at the store
    /// until its open is in the table, while a delete runs, and
    /// while a modification is told. Each then uses the path the entry has on
    /// the share.
    pub(crate) async fn names_lock(&self) -> RwLockReadGuard<'_, ()> {
        self.renames.read().await
    }

    /// Tells those who watch of new contents or attributes of the entry at
    /// `path`: the FILE_NOTIFY_CHANGE_* bits `what`.
    pub(crate) async fn modified(&self, path: &SmbPath, what: u32) {
        if let Some(view) = self.view.as_ref().filter(|_| !self.watches.is_empty()) {
            view.modified(path, what).await;
        }
    }
}
