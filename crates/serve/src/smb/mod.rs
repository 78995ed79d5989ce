//! SMB 2 and 3.
//!
//! The protocol is in `larder-smb`; this module has its storage (a volume) and its users.
//! The library keeps the state of MS-SMB2 per open and per file: share modes,
//! byte-range locks, leases, durable handles, delete-on-close, change notification. The volume keeps
//! everything else.
//!
//! ```text
//!   client -> larder-smb -> Tree (one per user and share)  -> Volume
//!                    ^         `-> FileHandle (one per open) -> Volume
//!                    `---- Feed <- events of the volume, from all protocols
//! ```
//!
//! - `smb.contract_before_answer`: no answer leaves before the volume's contract holds. Creates,
//!   deletes, renames and attributes are answered when the volume says so, FLUSH and write-through
//!   when committed. A plain WRITE is unstable, and CLOSE flushes nothing, as with every SMB
//!   server.
//! - `smb.checked_twice`: an open is checked twice: against the user's rights on the share, then
//!   against POSIX permissions. See [`rights`].
//! - `smb.nt_hash_only`: a password is known by its NT hash alone, and the hash is sealed on disk.
//!   See [`secret`].
//! - `smb.others_stay`: when a user comes, goes or gets other rights on a share, the connections of the other users stay.

mod feed;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handle;
mod interfaces;
mod names;
mod notices;
mod open_name;
mod people;
mod rights;
pub mod secret;
mod security;
mod stats;
mod status;
mod streams;
#[cfg(test)]
mod tests;
mod times;
mod tracker;
mod tree;
mod volume_door;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use larder_files::Files;
use larder_fs::{Cred, Ino};
pub use larder_smb::SmbOpen;
use larder_smb::{Admission, AdmissionObserver, ConfigError, ConfigHandle, Share, StrangerAccount, StrangerLedger};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::door::{Door, shown};
use crate::login::DoorUser;
use crate::nfs::Network;
pub use crate::share::Access;
use crate::share::{Closed, is_within};
use crate::strangers::{Budget, Stranger, Strangers};
use people::{AccessList, Directory, People};
pub(crate) use rights::{granted, is_kept};
use tree::{Core, Tree};
use volume_door::VolumeDoors;

/// Requests may carry this much data; clients ask for less where they like.
const IO_BYTES: u32 = 4 << 20;
const CONNECTIONS_MAX: usize = 4096;

/// A user that can log in (MS-SMB2 3.3.1.8).
#[derive(Clone, PartialEq, Eq)]
pub struct SmbUser {
    /// The name to log in with.
    pub name: String,
    /// Unsealed: see [`secret`].
    pub nt_hash: [u8; 16],
    /// The POSIX user that the user's files belong to.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl std::fmt::Debug for SmbUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, uid, gid, groups, .. } = self;
        write!(f, "SmbUser {{ {name:?}, uid {uid}, gid {gid}, groups {groups:?} }}")
    }
}

impl SmbUser {
    fn cred(&self) -> Cred {
        Cred::new(self.uid, self.gid, self.groups.clone())
    }
}

/// Encryption of a share's traffic (MS-SMB2 3.3.1.6, Share.EncryptData).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// A client that asks for it gets it.
    Offered,
    /// A client that cannot is refused.
    Required,
}

/// A folder offered to SMB clients.
#[derive(Clone)]
pub struct SmbShare {
    /// The share's name, as in `\\server\name`.
    pub name: String,
    /// The service of its volume.
    pub files: Files,
    /// The directory that is shared: [`Ino::ROOT`] for the whole volume.
    pub root: Ino,
    /// Everybody is this uid and gid here, so that all files are everybody's.
    pub act_as: Option<(u32, u32)>,
    /// The users that may come in, each with its access.
    pub users: Vec<(String, Access)>,
    /// Nobody may change anything, whatever `users` says.
    pub read_only: bool,
    /// Whether traffic must be encrypted.
    pub encryption: Encryption,
    /// Anybody may read, and write unless `read_only`, without a password; unsigned and not encrypted.
    pub guest: bool,
    /// The networks outside of which nobody comes in; `None`: no bound.
    pub only_from: Option<Vec<Network>>,
}

impl SmbShare {
    fn people(&self, directory: Directory, access: AccessList) -> People {
        People { directory, access, guest: self.guest, act_as: self.act_as.map(|(uid, gid)| Cred::new(uid, gid, [])) }
    }

    /// The identity of `user` on the share, and whether the share lets the user change anything.
    pub(crate) fn entrance(&self, user: &DoorUser, address: Option<IpAddr>) -> Result<(Cred, bool), Closed> {
        if !is_within(self.only_from.as_deref(), address) {
            return Err(Closed::Network);
        }
        if !self.guest && !self.users.iter().any(|(name, _)| *name == user.name) {
            return Err(Closed::NotListed);
        }
        let access = self.users.iter().cloned().collect();
        let (cred, may_write) = self.people(Directory::of(&user.name, user.cred()), access).find(Some(&user.name));
        Ok((cred, may_write && !self.read_only))
    }
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct SmbConfig {
    /// The address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Refuse sessions of users that do not sign (guests never do).
    pub require_signing: bool,
    /// The server's own name; the host's name if `None`.
    pub netbios_name: Option<String>,
    /// What connections without a session may hold, at all doors together.
    pub strangers: Arc<Budget>,
}

impl SmbConfig {
    /// Signing required, the host's name.
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, require_signing: true, netbios_name: None, strangers: Arc::default() }
    }
}

/// Reasons for which the server does not start, or stops.
#[expect(missing_docs, reason = "each variant's message names its fields")]
#[derive(Debug, thiserror::Error)]
pub enum SmbError {
    /// The address cannot be bound.
    #[error("SMB cannot listen on {addr}: {source}")]
    Listen { addr: SocketAddr, source: std::io::Error },
    /// The settings contradict each other.
    #[error("SMB configuration: {0}")]
    Build(#[from] larder_smb::BuildError),
    /// A user or a share is not taken.
    #[error("SMB configuration: {0}")]
    Config(#[from] ConfigError),
    /// The listener failed.
    #[error("the SMB server stopped: {0}")]
    Serve(std::io::Error),
    /// [`SmbServer::serve`] was called twice.
    #[error("the SMB server runs already")]
    Running,
}

/// A server that listens. It answers while [`SmbServer::serve`] runs; users and shares can be changed at
/// any time.
pub struct SmbServer {
    addr: SocketAddr,
    config: ConfigHandle,
    directory: Directory,
    doors: VolumeDoors,
    stats: Arc<stats::Stats>,
    server: Mutex<Option<larder_smb::SmbServer>>,
    applied: Mutex<Applied>,
}

/// The users and shares that the library has now.
#[derive(Default)]
struct Applied {
    users: HashMap<String, SmbUser>,
    shares: HashMap<String, SmbShare>,
    /// Of each share.
    access: HashMap<String, AccessList>,
}

impl SmbServer {
    /// Binds the address, so that a port in use is reported here.
    pub fn start(
        config: SmbConfig,
        users: Vec<SmbUser>,
        shares: Vec<SmbShare>,
    ) -> BoxFuture<'static, Result<SmbServer, SmbError>> {
        Box::pin(async move {
            let mut builder = larder_smb::SmbServer::builder()
                .listen(config.listen)
                .require_signing(config.require_signing)
                .max_read_size(IO_BYTES)
                .max_write_size(IO_BYTES)
                .max_connections(CONNECTIONS_MAX)
                .strangers(Arc::new(Ledger(Arc::new(Strangers::new(config.strangers)))))
                .interfaces(Arc::new(move || interfaces::answering(config.listen)))
                .on_admission(observer());
            if let Some(name) = config.netbios_name {
                builder = builder.netbios_name(name);
            }
            let server = builder.build()?;
            let addr = server.bind().await.map_err(|source| SmbError::Listen { addr: config.listen, source })?;
            let this = SmbServer {
                addr,
                config: server.config_handle(),
                directory: Directory::default(),
                doors: VolumeDoors::default(),
                stats: Arc::default(),
                server: Mutex::new(Some(server)),
                applied: Mutex::default(),
            };
            this.set_users(users).await?;
            this.set_shares(shares).await?;
            Ok(this)
        })
    }

    /// The newest opens of clients, so many at most, and how many more there are.
    pub async fn open_list(&self, count_max: usize) -> (Vec<SmbOpen>, usize) {
        self.config.open_list(count_max).await
    }

    /// Closes an open, named by [`SmbOpen::id`], with its locks. `false`: there is none.
    pub async fn end_open(&self, id: u64) -> bool {
        self.config.end_open(id).await
    }

    /// The address that is bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut larder_base::metrics::Metrics) {
        self.stats.metrics(out);
    }

    /// Serves until `shutdown`, then lets every connection finish the request it is at.
    pub fn serve(&self, shutdown: CancellationToken) -> BoxFuture<'_, Result<(), SmbError>> {
        Box::pin(async move {
            let server = self.server.lock().await.take().ok_or(SmbError::Running)?;
            let stop = server.shutdown_handle();
            let stopper = async {
                shutdown.cancelled().await;
                stop.shutdown();
                std::future::pending::<()>().await
            };
            tokio::select! {
                served = server.serve() => served.map_err(SmbError::Serve),
                () = stopper => Ok(()),
            }
        })
    }

    /// Makes these the users. One whose password or ids changed has its sessions ended.
    pub fn set_users(&self, users: Vec<SmbUser>) -> BoxFuture<'_, Result<(), SmbError>> {
        Box::pin(async move {
            let mut applied = self.applied.lock().await;
            self.directory.set(&users);
            let new: HashMap<String, SmbUser> = users.into_iter().map(|u| (u.name.clone(), u)).collect();
            for (name, old) in &applied.users {
                if new.get(name) != Some(old) {
                    self.config.remove_user(name).await?;
                }
            }
            for (name, user) in &new {
                if applied.users.get(name) != Some(user) {
                    self.config.add_user_nt_hash(name, user.nt_hash).await?;
                    self.grant(&applied.shares, name).await?;
                }
            }
            applied.users = new;
            Ok(())
        })
    }

    /// Gives `user`, just added, what the shares grant it.
    async fn grant(&self, shares: &HashMap<String, SmbShare>, user: &str) -> Result<(), SmbError> {
        for share in shares.values().filter(|share| !share.guest) {
            if let Some((_, access)) = share.users.iter().find(|(name, _)| name == user) {
                self.config.grant_share_user(&share.name, user, library_access(*access)).await?;
            }
        }
        Ok(())
    }

    /// Makes these the shares. One that changed has its connections ended; files stay as they are. Where only its users
    /// changed, those of the users concerned end (`smb.others_stay`).
    pub fn set_shares(&self, shares: Vec<SmbShare>) -> BoxFuture<'_, Result<(), SmbError>> {
        Box::pin(async move {
            let mut applied = self.applied.lock().await;
            let new: HashMap<String, SmbShare> = shares.into_iter().map(|s| (s.name.clone(), s)).collect();
            let gone: Vec<String> = applied
                .shares
                .iter()
                .filter(|(name, old)| !new.get(*name).is_some_and(|new| same_share(old, new)))
                .map(|(name, _)| name.clone())
                .collect();
            for name in gone {
                self.config.remove_share(&name).await?;
                applied.shares.remove(&name);
                applied.access.remove(&name);
            }
            for (name, share) in new {
                let Applied { users, shares, access } = &mut *applied;
                match (shares.get(&name), access.get(&name)) {
                    (Some(old), Some(access)) => self.set_access(old, &share, access, users).await?,
                    _ => drop(access.insert(name.clone(), self.add_share(&share, users).await?)),
                }
                shares.insert(name, share);
            }
            Ok(())
        })
    }

    /// `smb.others_stay`: the trees of a user end when that user's access changes, and no other's do.
    async fn set_access(
        &self,
        old: &SmbShare,
        new: &SmbShare,
        access: &AccessList,
        users: &HashMap<String, SmbUser>,
    ) -> Result<(), SmbError> {
        if old.users == new.users {
            return Ok(());
        }
        access.set(&new.users);
        if new.guest {
            return Ok(());
        }
        let (before, after): (HashMap<_, _>, HashMap<_, _>) =
            (old.users.iter().cloned().collect(), new.users.iter().cloned().collect());
        for user in before.keys().filter(|user| after.get(*user) != before.get(*user) && users.contains_key(*user)) {
            self.config.revoke_share_user(&new.name, user).await?;
        }
        for (user, access) in after.iter().filter(|(user, access)| before.get(*user) != Some(*access)) {
            // A user who is not there (yet) is granted access when it comes.
            if users.contains_key(user) {
                self.config.grant_share_user(&new.name, user, library_access(*access)).await?;
            }
        }
        Ok(())
    }

    async fn add_share(&self, share: &SmbShare, users: &HashMap<String, SmbUser>) -> Result<AccessList, SmbError> {
        let (door, files) = self.doors.of(&share.files);
        let access: AccessList = share.users.iter().cloned().collect();
        let people = share.people(self.directory.clone(), access.clone());
        let core = Arc::new(Core {
            files,
            root: share.root,
            read_only: share.read_only,
            only_from: share.only_from.clone(),
            people,
            door: door.clone(),
            stats: self.stats.clone(),
        });
        let mut public = Share::new(&share.name, Tree::new(core, Cred::root(), !share.read_only));
        // Another machine's changes would break no lease.
        public = public.open_files(door.open_files.clone()).leases(!share.files.is_followed());
        public = match (share.guest, share.read_only) {
            (true, false) => public.public(),
            (true, true) => public.public_read_only(),
            // A user who is not there (yet) is granted access when it comes.
            (false, _) => share
                .users
                .iter()
                .filter(|(name, _)| users.contains_key(name))
                .fold(public, |public, (name, access)| public.user(name, library_access(*access))),
        };
        if share.encryption == Encryption::Required {
            public = public.encrypt_data();
        }
        self.config.add_share(public).await?;
        Ok(access)
    }
}

/// Connections without a session, as those of other doors are counted.
struct Ledger(Arc<Strangers>);

impl StrangerLedger for Ledger {
    fn admit(&self, address: IpAddr, is_full: bool) -> Option<Box<dyn StrangerAccount>> {
        self.0.admit_newest(address, is_full).map(|stranger| Box::new(Account(stranger)) as _)
    }
}

struct Account(Stranger);

impl StrangerAccount for Account {
    fn holds(&self, bytes: usize) -> bool {
        self.0.meter().holds(bytes)
    }

    fn evicted(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.0.evicted().cancelled_owned())
    }
}

/// Logins and refusals go into the log.
fn observer() -> AdmissionObserver {
    let door = Door::default();
    Arc::new(move |address: IpAddr, what: Admission<'_>| {
        let from = address.to_canonical();
        let name = |user: Option<&str>| user.map_or_else(|| "a guest".to_owned(), |user| format!("'{}'", shown(user)));
        match what {
            Admission::LoggedOn { user } => {
                door.came_in(from, user, || format!("SMB: {} logged in from {from}", name(user)))
            }
            Admission::LogonFailed { user } => refused(&door, from, || {
                format!("SMB: {} from {from} was refused: wrong name or password", name(Some(user)))
            }),
            Admission::LockedOut { user } => refused(&door, from, || {
                format!(
                    "SMB: {} from {from} was refused: too many failed logins, locked out for a minute",
                    name(Some(user))
                )
            }),
            Admission::ShareRefused { user, share } => {
                refused(&door, from, || format!("SMB: {} from {from} may not use the share '{share}'", name(user)))
            }
            Admission::TooManyConnections => {
                refused(&door, from, || format!("SMB: a connection from {from} was refused: there are too many"))
            }
            _ => {}
        }
    })
}

/// The library makes failed logins wait.
fn refused(door: &Door, from: IpAddr, text: impl FnOnce() -> String) {
    door.refused(from, text);
}

fn library_access(access: Access) -> larder_smb::Access {
    match access {
        Access::Read => larder_smb::Access::Read,
        Access::ReadWrite => larder_smb::Access::ReadWrite,
    }
}

/// But for its users.
fn same_share(a: &SmbShare, b: &SmbShare) -> bool {
    a.read_only == b.read_only
        && a.encryption == b.encryption
        && a.guest == b.guest
        && a.files.id() == b.files.id()
        && a.root == b.root
        && a.act_as == b.act_as
        && a.only_from == b.only_from
        && a.files.is_as_in(&b.files)
}
