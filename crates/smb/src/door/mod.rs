//! SMB 2 and 3.
//!
//! This module has the storage of the protocol (a volume) and its users.
//! The crate keeps the state of MS-SMB2 per open and per file: share modes,
//! byte-range locks, leases, durable handles, delete-on-close, change notification. The volume keeps
//! everything else.
//!
//! ```text
//!   client -> larder-smb -> VisitedShare (one per user and share) -> Files
//!                    ^         `-> FileHandle (one per open)    -> Files
//!                    `---- Feed <- events of the volume, from all protocols
//! ```
//!
//! - `smb.contract_before_answer`: no answer leaves before the volume's contract holds. Creates,
//!   deletes, renames and attributes are answered when the volume says so, FLUSH and write-through
//!   when committed. A plain WRITE is unstable, and CLOSE flushes nothing, as with every SMB
//!   server.
//! - `smb.checked_twice`: an open is checked twice: against the user's rights on the share ([`doorkeeper`]), then
//!   against POSIX permissions. See [`rights`].
//! - `smb.nt_hash_only`: a password is known by its NT hash alone. Whoever keeps the hash seals it.
//! - `smb.others_stay`: when a user comes, goes or gets other rights on a share, the connections of the other users stay.

mod doorkeeper;
pub(crate) mod feed;
pub(crate) mod handle;
mod interfaces;
pub(crate) mod names;
mod notices;
pub(crate) mod open_name;
mod parts;
mod rights;
mod security;
mod stats;
mod status;
mod streams;
#[cfg(test)]
mod tests;
pub(crate) mod times;
mod tracker;
pub(crate) mod view;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

pub use crate::open_list::SmbOpen;
use crate::{
    Access, Admission, AdmissionObserver, Admitted, ConfigError, ConfigHandle, Room, Share, StrangerAccount,
    StrangerLedger, Visitor,
};
use futures::future::BoxFuture;
use larder_fs::Cred;
use larder_people::{Door as Entry, User, Who};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use doorkeeper::{Directory, Doorkeeper};
use larder_doors::door::{Door, shown};
use larder_doors::parties::{Parties, Party, PartyPlace};
use larder_doors::share::ServedShare;
use larder_doors::strangers::{Budget, Meter, Stranger, Strangers};
use larder_doors::unread::{DOOR_BYTES_MAX, Entered, Unread};
pub(crate) use parts::VolumeDoors;
pub use rights::{granted, is_kept};
use view::{Core, VisitedShare};

/// Requests may carry this much data; clients ask for less where they like.
const IO_BYTES: u32 = 4 << 20;
/// The door, for a client that does all it is asked for.
const AT_SMB: Entry = Entry::Smb { encrypts: true };

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct SmbConfig {
    /// The address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Refuse sessions of users that do not sign (guests never do).
    pub require_signing: bool,
    /// The server's own name; the host's name if `None`.
    pub netbios_name: Option<String>,
    /// Connections at the same time.
    pub connections_max: usize,
    /// What connections without a session may hold, at all doors together.
    pub strangers: Arc<Budget>,
}

impl SmbConfig {
    /// Signing required, the host's name.
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, require_signing: true, netbios_name: None, connections_max: 4096, strangers: Arc::default() }
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
    Build(#[from] crate::BuildError),
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
    server: Mutex<Option<crate::SmbServer>>,
    applied: Mutex<Applied>,
    unhashed: Arc<Unhashed>,
}

/// Names of users, in lower case, whose password is known by a hash that is no use to SMB.
type Unhashed = parking_lot::Mutex<HashSet<String>>;

/// The users and shares that the library has now.
#[derive(Default)]
struct Applied {
    users: HashMap<String, Arc<User>>,
    shares: HashMap<String, (ServedShare, Arc<Doorkeeper>)>,
}

impl SmbServer {
    /// Binds the address, so that a port in use is reported here.
    pub fn start(
        config: SmbConfig,
        users: Vec<User>,
        shares: Vec<ServedShare>,
    ) -> BoxFuture<'static, Result<SmbServer, SmbError>> {
        Box::pin(async move {
            let unhashed = Arc::default();
            let mut builder = crate::SmbServer::builder()
                .listen(config.listen)
                .require_signing(config.require_signing)
                .max_read_size(IO_BYTES)
                .max_write_size(IO_BYTES)
                .max_connections(config.connections_max)
                .strangers(Arc::new(Ledger::new(config.strangers, config.connections_max)))
                .interfaces(Arc::new(move || interfaces::answering(config.listen)))
                .on_admission(observer(Arc::clone(&unhashed)));
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
                unhashed,
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

    /// Makes these the users; one without an NT hash cannot log in. Whose password, numbers or groups changed has its
    /// sessions ended.
    pub fn set_users(&self, users: Vec<User>) -> BoxFuture<'_, Result<(), SmbError>> {
        Box::pin(async move {
            let mut applied = self.applied.lock().await;
            let (users, others): (Vec<User>, Vec<User>) = users.into_iter().partition(|user| user.nt_hash.is_some());
            let with_password = others.into_iter().filter(|user| user.password.is_some());
            *self.unhashed.lock() = with_password.map(|user| user.name.to_lowercase()).collect();
            let users = users.into_iter();
            let new: HashMap<_, _> = users.map(|user| (user.name.clone(), Arc::new(user))).collect();
            self.directory.set(new.clone());
            let is_as_before =
                |name: &str, user: &User| applied.users.get(name).is_some_and(|before| before.is_over_smb(user));
            for (name, old) in &applied.users {
                if !new.get(name).is_some_and(|user| user.is_over_smb(old)) {
                    self.config.remove_user(name).await?;
                }
            }
            for (name, user) in new.iter().filter(|(name, user)| !is_as_before(name, user)) {
                if let Some(hash) = user.nt_hash {
                    self.config.add_user_nt_hash(name, hash.0).await?;
                }
            }
            applied.users = new;
            Ok(())
        })
    }

    /// Makes these the shares. One that changed has its connections ended; files stay as they are. Where only its users
    /// changed, those of the users concerned end (`smb.others_stay`).
    pub fn set_shares(&self, shares: Vec<ServedShare>) -> BoxFuture<'_, Result<(), SmbError>> {
        Box::pin(async move {
            let mut applied = self.applied.lock().await;
            let new: HashMap<_, _> = shares.into_iter().map(|served| (served.share.name.clone(), served)).collect();
            let is_kept = |name: &str, old: &ServedShare| new.get(name).is_some_and(|new| old.is_as_at(new, AT_SMB));
            let gone: Vec<String> = applied
                .shares
                .iter()
                .filter(|(name, (old, _))| !is_kept(name, old))
                .map(|(name, _)| name.clone())
                .collect();
            for name in gone {
                self.config.remove_share(&name).await?;
                applied.shares.remove(&name);
            }
            let Applied { users, shares } = &mut *applied;
            for (name, served) in new {
                match shares.get_mut(&name) {
                    Some((old, keeper)) => {
                        self.set_lists(old, &served, keeper, users).await?;
                        *old = served;
                    }
                    None => {
                        let keeper = self.add_share(&served).await?;
                        shares.insert(name, (served, keeper));
                    }
                }
            }
            Ok(())
        })
    }

    /// `smb.others_stay`: the trees of a user end when that user's rights change, and no other's do.
    async fn set_lists(
        &self,
        old: &ServedShare,
        new: &ServedShare,
        keeper: &Doorkeeper,
        users: &HashMap<String, Arc<User>>,
    ) -> Result<(), SmbError> {
        keeper.set(Arc::clone(&new.share));
        for user in users.values() {
            let rights = |served: &ServedShare| served.share.entrance(Who::User(user), None, AT_SMB).rights;
            let had = rights(old);
            if had.is_some() && rights(new) != had {
                self.config.end_trees(&new.share.name, &user.name).await?;
            }
        }
        Ok(())
    }

    async fn add_share(&self, served: &ServedShare) -> Result<Arc<Doorkeeper>, SmbError> {
        let part = self.doors.part(&served.files);
        let keeper = Arc::new(Doorkeeper::new(self.directory.clone(), Arc::clone(&served.share)));
        let core = Core::new(part.files, served.root, (part.feed, part.notices), Arc::clone(&self.stats));
        let core = Arc::new(core);
        // Another machine's changes would break no lease.
        let share =
            Share::new(&served.share.name, VisitedShare::new(Arc::clone(&core), Cred::root(), false), part.table)
                .leases(!served.files.is_followed())
                .doorkeeper(admitting(core, Arc::clone(&keeper)));
        self.config.add_share(if served.share.encrypt { share.encrypt_data() } else { share }).await?;
        Ok(keeper)
    }
}

/// Each visitor who is admitted has a view of the share of its own.
fn admitting(core: Arc<Core>, keeper: Arc<Doorkeeper>) -> crate::Doorkeeper {
    Arc::new(move |visitor: &Visitor<'_>| {
        let (cred, may_write) = keeper.admit(visitor)?;
        let access = if may_write { Access::ReadWrite } else { Access::Read };
        Some(Admitted { view: Some(VisitedShare::new(Arc::clone(&core), cred, may_write)), access })
    })
}

/// Connections, counted as those of other doors are.
struct Ledger {
    strangers: Arc<Strangers>,
    parties: Arc<Parties>,
    memory: Arc<Unread>,
    open: Arc<AtomicUsize>,
}

impl Ledger {
    fn new(budget: Arc<Budget>, connections_max: usize) -> Self {
        let (strangers, parties) = (Arc::new(Strangers::new(budget)), Arc::new(Parties::new(connections_max)));
        Self { strangers, parties, memory: Arc::new(Unread::new(DOOR_BYTES_MAX)), open: Arc::default() }
    }
}

impl StrangerLedger for Ledger {
    /// The library does not know whose connections may end.
    fn admit(&self, address: IpAddr, _is_full: bool) -> Option<Arc<dyn StrangerAccount>> {
        let is_full = self.parties.is_full(self.open.load(Relaxed), None);
        let stranger = self.strangers.admit_newest(address, is_full)?;
        self.open.fetch_add(1, Relaxed);
        Some(Arc::new(Account {
            address,
            meter: stranger.meter(),
            evicted: stranger.evicted(),
            standing: parking_lot::Mutex::new(Standing::Stranger { place: stranger }),
            parties: Arc::clone(&self.parties),
            memory: Arc::clone(&self.memory),
            open: Arc::clone(&self.open),
        }))
    }
}

/// The place of a connection among strangers, then among its party's.
enum Standing {
    Stranger { place: Stranger },
    Member { _place: PartyPlace, memory: Entered },
}

struct Account {
    address: IpAddr,
    meter: Meter,
    evicted: CancellationToken,
    standing: parking_lot::Mutex<Standing>,
    parties: Arc<Parties>,
    memory: Arc<Unread>,
    open: Arc<AtomicUsize>,
}

impl StrangerAccount for Account {
    fn holds(&self, bytes: usize) -> bool {
        self.meter.holds(bytes)
    }

    fn logs_on(&self, user: Option<&str>) -> bool {
        let party = Party::of(user, self.address);
        let open = self.open.load(Relaxed);
        let mut standing = self.standing.lock();
        let entered = match &*standing {
            Standing::Stranger { place } => place.enters(&self.parties, party.clone(), None, open, || false),
            // One more user of the connection.
            Standing::Member { .. } => return true,
        };
        let Some(place) = entered else { return false };
        *standing = Standing::Member { _place: place, memory: self.memory.enter(party, self.evicted.clone()) };
        true
    }

    fn room(&self, bytes: usize) -> std::pin::Pin<Box<dyn Future<Output = Room> + Send>> {
        let account = match &*self.standing.lock() {
            Standing::Member { memory, .. } => Some(Arc::clone(memory.account())),
            Standing::Stranger { .. } => None,
        };
        Box::pin(async move {
            match account {
                Some(account) => Box::new(account.room(bytes).await) as Room,
                None => Box::new(()),
            }
        })
    }

    fn evicted(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.evicted.clone().cancelled_owned())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

/// Logins and refusals go into the log.
fn observer(unhashed: Arc<Unhashed>) -> AdmissionObserver {
    let door = Door::default();
    Arc::new(move |address: IpAddr, what: Admission<'_>| {
        let from = address.to_canonical();
        let name = |user: Option<&str>| user.map_or_else(|| "a guest".to_owned(), |user| format!("'{}'", shown(user)));
        match what {
            Admission::LoggedOn { user } => {
                door.came_in(from, user, || format!("SMB: {} logged in from {from}", name(user)))
            }
            Admission::LogonFailed { user } if unhashed.lock().contains(&user.to_lowercase()) => {
                refused(&door, from, || {
                    format!(
                        "SMB: {} from {from} was refused: the password was set while SMB was not served, and has to be set again",
                        name(Some(user))
                    )
                })
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
        }
    })
}

/// The library makes failed logins wait.
fn refused(door: &Door, from: IpAddr, text: impl FnOnce() -> String) {
    door.refused(from, text);
}
