//! The state that the connections of a server share: its configuration, users, shares and opens.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::{Notify, RwLock};
use tracing::warn;
use uuid::Uuid;

use crate::admission::{Admission, AdmissionObserver, Counted, StrangerLedger};
use crate::auth_policy::{AuthPolicy, AuthSettings};
use crate::conn::limits::{Limits, MAX_OPENS_PER_CONNECTION};
use crate::conn::state::{Connection, Open};
use crate::files::{DurableTable, Late, LeaseTable, OpenBudget, OpenSlot, Replays};
use crate::handlers::interfaces::Interfaces;
use crate::share::{ShareBindings, Visitor};
use larder_smb_wire::auth::ntlm::UserCreds;
use larder_smb_wire::ntstatus;

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen_addr: SocketAddr,
    pub netbios_name: String,
    pub max_read_size: u32,
    pub max_write_size: u32,
    pub server_guid: Uuid,
    pub limits: Limits,
}

#[derive(Default)]
pub struct ServerUsers {
    /// Username -> precomputed NT hash record.
    pub table: RwLock<HashMap<String, UserCreds>>,
}

#[derive(Default)]
pub struct ServerShares {
    /// Each share by its lowercased name, with its place in the order the
    /// shares were added.
    by_name: RwLock<HashMap<String, (u64, Arc<ShareBindings>)>>,
    next_seq: AtomicU64,
}

impl ServerShares {
    pub async fn find(&self, name: &str) -> Option<Arc<ShareBindings>> {
        self.by_name.read().await.get(&name.to_ascii_lowercase()).map(|(_, share)| Arc::clone(share))
    }

    /// Adds `share` after every share there is. False when there is one of its name already.
    pub async fn insert(&self, share: Arc<ShareBindings>) -> bool {
        let key = share.name.to_ascii_lowercase();
        let mut by_name = self.by_name.write().await;
        if by_name.contains_key(&key) {
            return false;
        }
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        by_name.insert(key, (seq, share));
        true
    }

    pub async fn remove(&self, name: &str) -> Option<Arc<ShareBindings>> {
        self.by_name.write().await.remove(&name.to_ascii_lowercase()).map(|(_, share)| share)
    }

    pub async fn all(&self) -> Vec<Arc<ShareBindings>> {
        self.by_name.read().await.values().map(|(_, share)| Arc::clone(share)).collect()
    }

    /// Adds `share` before anybody else has the table.
    #[cfg(test)]
    pub(crate) fn insert_first(&mut self, share: Arc<ShareBindings>) {
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        self.by_name.get_mut().insert(share.name.to_ascii_lowercase(), (seq, share));
    }

    /// Holds the share table for writing, so lookups wait.
    #[cfg(test)]
    pub(crate) async fn hold(&self) -> tokio::sync::RwLockWriteGuard<'_, HashMap<String, (u64, Arc<ShareBindings>)>> {
        self.by_name.write().await
    }

    /// Every share, in the order the shares were added (MS-SRVS 3.1.4.8).
    pub(crate) async fn all_in_order(&self) -> Vec<Arc<ShareBindings>> {
        let mut shares: Vec<_> = self.by_name.read().await.values().cloned().collect();
        shares.sort_unstable_by_key(|(seq, _)| *seq);
        shares.into_iter().map(|(_, share)| share).collect()
    }
}

pub struct ActiveConnections {
    next_id: AtomicU64,
    conns: RwLock<HashMap<u64, Weak<Connection>>>,
}

impl ActiveConnections {
    pub fn new() -> Self {
        Self { next_id: AtomicU64::new(1), conns: RwLock::new(HashMap::new()) }
    }

    pub async fn register(&self, conn: &Arc<Connection>) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.conns.write().await.insert(id, Arc::downgrade(conn));
        id
    }

    pub async fn unregister(&self, id: u64) {
        self.conns.write().await.remove(&id);
    }

    pub async fn live(&self) -> Vec<Arc<Connection>> {
        let mut live = Vec::new();
        let mut conns = self.conns.write().await;
        conns.retain(|_, weak| {
            if let Some(conn) = weak.upgrade() {
                live.push(conn);
                true
            } else {
                false
            }
        });
        live
    }
}

impl Default for ActiveConnections {
    fn default() -> Self {
        Self::new()
    }
}

/// Server state shared across connections.
pub struct ServerState {
    pub config: ServerConfig,
    pub users: ServerUsers,
    pub shares: ServerShares,
    pub active_connections: ActiveConnections,
    /// Notified by `shutdown()`. The accept loop stops; each connection
    /// closes once it has answered the frame it is receiving, if any.
    pub shutdown: Arc<Notify>,
    pub shutting_down: Arc<AtomicBool>,
    /// Signing policy, session and tree limits, and the logon throttle.
    pub auth: AuthPolicy,
    /// Where clients may open further connections.
    pub interfaces: Option<Interfaces>,
    /// Is told of logons and refusals.
    pub observer: Option<AdmissionObserver>,
    /// Connections without a session.
    pub strangers: Arc<dyn StrangerLedger>,
    /// Every lease held on a file of any share.
    pub(crate) leases: Arc<LeaseTable>,
    /// Every durable open, and the ones kept after their session ended.
    pub(crate) durable: Arc<DurableTable>,
    pub(crate) replays: Arc<Replays<RwLock<Open>>>,
    pub(crate) open_budget: Arc<OpenBudget>,
    /// Clients that let a lease break go unanswered.
    pub(crate) late: Arc<Late>,
}

impl ServerState {
    /// Tells whoever wants to know what happened at the door.
    pub(crate) fn observe(&self, address: IpAddr, what: Admission<'_>) {
        if let Some(observer) = &self.observer {
            observer(address, what);
        }
    }

    pub fn new(config: ServerConfig, auth: AuthSettings) -> Self {
        let durable =
            Arc::new(DurableTable::new(config.limits.durable_handle_timeout, config.limits.max_disconnected_opens));
        let strangers = Arc::new(Counted::new(config.limits.max_unauthenticated_per_address));
        Self {
            config,
            users: ServerUsers::default(),
            shares: ServerShares::default(),
            active_connections: ActiveConnections::new(),
            shutdown: Arc::new(Notify::new()),
            shutting_down: Arc::new(AtomicBool::new(false)),
            auth: AuthPolicy::new(auth),
            interfaces: None,
            observer: None,
            strangers,
            leases: Arc::default(),
            durable,
            replays: Arc::default(),
            open_budget: Arc::default(),
            late: Arc::default(),
        }
    }

    /// A place for one more open on `conn` of `user`, or of a guest. Fails with
    /// STATUS_INSUFFICIENT_RESOURCES when the connection, the user or all together have as many as they may.
    pub(crate) fn open_slot(&self, conn: &Connection, user: Option<&str>) -> Result<OpenSlot, u32> {
        let slot = OpenSlot::acquire(&conn.open_count, MAX_OPENS_PER_CONNECTION)
            .and_then(|slot| slot.within(&self.open_budget, self.holder(conn, user)));
        slot.ok_or_else(|| {
            warn!(?user, peer = ?conn.peer_addr, "open limit reached");
            ntstatus::STATUS_INSUFFICIENT_RESOURCES
        })
    }

    /// The number by which the opens of `user`, or of a guest, are counted.
    pub(crate) fn holder(&self, conn: &Connection, user: Option<&str>) -> u64 {
        self.open_budget.holder(user, conn.peer_addr.map(|peer| peer.ip()))
    }

    /// Find a share by case-insensitive name.
    pub async fn find_share(&self, name: &str) -> Option<Arc<ShareBindings>> {
        self.shares.find(name).await
    }

    /// Look up a user's NT hash by name.
    pub async fn lookup_user(&self, name: &str) -> Option<UserCreds> {
        self.users.table.read().await.get(name).cloned()
    }

    /// Whether anonymous logon is permitted from `address`: at least one share admits whoever comes from there.
    pub async fn anonymous_allowed(&self, address: Option<IpAddr>) -> bool {
        let visitor = Visitor { user: None, address, encrypts: false };
        self.shares.all().await.iter().any(|share| share.admit(&visitor).is_some())
    }
}
