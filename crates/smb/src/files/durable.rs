//! Durable opens (MS-SMB2 3.3.1.10, 3.3.7.1): opens kept after their
//! session ends with the connection or a LOGOFF, until their client
//! reconnects them (MS-SMB2 3.3.5.9.7), they expire, or another open needs
//! what their lease caches.
//!
//! Lock order: the table, then `LeaseTable` bindings, a share's file table,
//! a file, a connection's outbound queue. An open is never dropped while the
//! table is locked: dropping it unregisters it, which locks the table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{RwLock, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::debug;
use uuid::Uuid;

use crate::conn::state::{Connection, Open};
use crate::share::ShareBindings;
use crate::utils::fill_random;
use larder_base::task;
use larder_smb_wire::ntstatus;

use super::closing::close_open;
use super::entries::KeptOpens;
use super::file_ref::FileRef;
use super::lease::{LeaseId, LeaseVersion};

/// The time a version 2 request may ask for at most, unless the server's
/// default is longer (MS-SMB2 3.3.5.9.10).
const MAX_REQUESTED_TIMEOUT: Duration = Duration::from_secs(300);

/// Open.DurableOpenTimeout of a version 2 open whose request asked for
/// `requested_ms` milliseconds, with `default` the server's timeout: the
/// default for 0, otherwise the request up to 300 seconds or the default,
/// whichever is longer (MS-SMB2 3.3.5.9.10).
pub(crate) fn v2_timeout(requested_ms: u32, default: Duration) -> Duration {
    match requested_ms {
        0 => default,
        ms => Duration::from_millis(u64::from(ms)).min(MAX_REQUESTED_TIMEOUT.max(default)),
    }
}

/// What a durable open is granted with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Durability {
    /// Open.CreateGuid, which a version 2 request carries.
    pub create_guid: Option<[u8; 16]>,
    /// Open.DurableOpenTimeout.
    pub timeout: Duration,
    /// Open.IsReplayEligible: a version 2 open with access to the file's
    /// data or to delete it (MS-SMB2 3.3.5.9.10). It stays set for the
    /// open's life.
    pub replay_eligible: bool,
}

/// Every durable open on the server, by DurableFileId (MS-SMB2 3.3.1.5
/// GlobalOpenTable): the ones still in a session, so ids stay unique, and
/// the ones kept after their session ended.
pub(crate) struct DurableTable {
    inner: Mutex<Inner>,
    /// Open.DurableOpenTimeout of version 1 opens, and of version 2 opens
    /// whose request asked for none.
    pub(crate) timeout: Duration,
    /// Most opens kept at once, counting every user together.
    max_detached: usize,
    /// Kept opens taken out and still closing on tasks of their own.
    closing: Arc<watch::Sender<usize>>,
    /// Counts the times [`DurableTable::take_for`] ran.
    sweeps: AtomicU64,
    /// Counts entries that left [`State::Attached`], for reconnects waiting
    /// on a connection that is closing.
    changed: watch::Sender<u64>,
}

/// One close of a kept open running on a task of its own, counted in
/// `DurableTable::closing` until it is dropped.
struct InFlight(Arc<watch::Sender<usize>>);

impl InFlight {
    fn new(closing: &Arc<watch::Sender<usize>>) -> Self {
        closing.send_modify(|n| *n += 1);
        Self(Arc::clone(closing))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

#[derive(Default)]
struct Inner {
    entries: HashMap<u64, Entry>,
    /// Entries in [`State::Detached`].
    detached: usize,
    /// Entries in [`State::Detached`], by owner.
    detached_by_user: HashMap<String, usize>,
    next_generation: u64,
}

struct Entry {
    /// Open.DurableOwner: the configured name of the user who opened it.
    owner: String,
    share: Weak<ShareBindings>,
    /// Open.ClientGuid.
    client: Uuid,
    /// The lease or oplock the open holds. Its key never changes.
    lease: LeaseId,
    lease_version: LeaseVersion,
    durability: Durability,
    state: State,
}

enum State {
    /// The open is in a session's tree on `conn`.
    Attached { conn: Weak<Connection> },
    /// Kept after its session ended, until `timer` closes it at `deadline`.
    Detached {
        open: Arc<RwLock<Open>>,
        timer: Timer,
        /// Tells this stay from a later one of the same entry.
        generation: u64,
        /// Open.DurableOpenScavengerTimeout.
        deadline: Instant,
    },
    /// Taken by a reconnect that is putting it in its new tree. A reconnect
    /// that fails puts it back with the same deadline, unless a sweep ran
    /// since [`DurableTable::sweeps`] was `since`.
    Reattaching { deadline: Instant, since: u64 },
    /// Taken out to be closed. The entry leaves with the open.
    Closing,
}

/// Expiry timer of a kept open. Dropping it stops the timer.
struct Timer(Option<AbortHandle>);

impl Timer {
    /// Lets the timer run on; used by the timer's own task.
    fn disarm(mut self) {
        self.0.take();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(timer) = self.0.take() {
            timer.abort();
        }
    }
}

/// A durable open's place in the [`DurableTable`]. Dropping it, with the
/// open, removes the entry.
pub(crate) struct DurableReg {
    table: Weak<DurableTable>,
    id: u64,
}

impl DurableReg {
    /// Open.DurableFileId: the persistent part of the open's FileId.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for DurableReg {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let removed = table.inner().remove(self.id);
            drop(removed);
            table.bump();
        }
    }
}

/// What a request to reconnect a durable open presents (MS-SMB2
/// 3.3.5.9.7).
pub(crate) struct Claim<'a> {
    /// The share of the tree the request came on.
    pub share: &'a Arc<ShareBindings>,
    /// The configured name of the session's user; `None` for anonymous.
    pub user: Option<&'a str>,
    /// Connection.ClientGuid.
    pub client: Uuid,
    /// The lease the request names, and the version of its context.
    pub lease: Option<(LeaseId, LeaseVersion)>,
    /// The CreateGuid of a version 2 request.
    pub create_guid: Option<[u8; 16]>,
    /// What the name in the request leads to; `None` when that is nothing, or no valid name.
    pub file: Option<u64>,
}

/// An open that a replayed CREATE names.
pub(crate) struct Replayable {
    /// The DurableFileId.
    pub id: u64,
    /// Open.ClientGuid.
    pub client: Uuid,
    /// Open.DurableOwner.
    pub owner: String,
    /// Open.Lease; `None` for an oplock.
    pub lease: Option<(LeaseId, LeaseVersion)>,
    /// Open.DurableOpenTimeout.
    pub timeout: Duration,
    /// The open is in a session whose connection is not closing.
    pub in_use: bool,
}

/// Why [`DurableTable::claim`] gave no open.
#[derive(Debug)]
pub(crate) enum Unclaimed {
    /// The reconnect fails with this status.
    Status(u32),
    /// The open is still in a session on a connection that is closing; the
    /// receiver changes when an entry leaves a session.
    Wait(watch::Receiver<u64>),
    /// The same, on a connection that is not known to be closing: its end
    /// may be on the way here. A client that reconnects has often overtaken
    /// it.
    WaitBriefly(watch::Receiver<u64>),
}

impl Inner {
    /// Takes the open out of the entry `id` when it is kept and `pick`
    /// accepts it, leaving the entry in `next`, which gets the stay's
    /// deadline.
    fn take_detached(
        &mut self,
        id: u64,
        pick: impl Fn(u64) -> bool,
        next: impl FnOnce(Instant) -> State,
    ) -> Option<(Arc<RwLock<Open>>, Timer)> {
        let entry = self.entries.get_mut(&id)?;
        let deadline = match &entry.state {
            State::Detached { generation, deadline, .. } if pick(*generation) => *deadline,
            _ => return None,
        };
        let State::Detached { open, timer, .. } = std::mem::replace(&mut entry.state, next(deadline)) else {
            unreachable!("checked above");
        };
        let owner = entry.owner.clone();
        self.count_out(&owner);
        Some((open, timer))
    }

    /// Removes the entry `id`, returning it to be dropped once the table is
    /// unlocked.
    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        if matches!(entry.state, State::Detached { .. }) {
            self.count_out(&entry.owner);
        }
        Some(entry)
    }

    fn count_out(&mut self, owner: &str) {
        self.detached -= 1;
        if let Some(n) = self.detached_by_user.get_mut(owner) {
            *n -= 1;
            if *n == 0 {
                self.detached_by_user.remove(owner);
            }
        }
    }
}

impl DurableTable {
    pub(crate) fn new(timeout: Duration, max_detached: usize) -> Self {
        Self {
            inner: Mutex::default(),
            timeout,
            max_detached,
            closing: Arc::new(watch::Sender::new(0)),
            sweeps: AtomicU64::new(0),
            changed: watch::Sender::new(0),
        }
    }

    /// Wakes reconnects waiting for an entry to leave its session.
    fn bump(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// A stamp for [`DurableTable::preserve`], taken before the session
    /// whose opens are to be kept leaves its connection.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::SeqCst)
    }

    /// Resolves once no close of a kept open taken out earlier is still
    /// running on a task of its own.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        let _ = closing.wait_for(|n| *n == 0).await;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most opens of one user kept at once: a quarter of the limit.
    fn max_detached_per_user(&self) -> usize {
        self.max_detached.div_ceil(4)
    }

    /// Whether one more open is kept of a user who has `by_user` of `all`. The last quarter is for users who have few: less
    /// than a 64th.
    fn has_room(&self, all: usize, by_user: usize) -> bool {
        let has_few = by_user < self.max_detached.div_ceil(64);
        let limit = if has_few { self.max_detached } else { self.max_detached - self.max_detached / 4 };
        all < limit && by_user < self.max_detached_per_user()
    }

    /// Registers a durable open of `owner` of `client` on `share` holding
    /// `lease` of `lease_version`, granted with `durability`, in a session on `conn`,
    /// under a random DurableFileId that is neither 0 nor all ones and that
    /// no other durable open has. `None` when the system has no randomness.
    pub(crate) fn register(
        self: &Arc<Self>,
        (owner, client): (&str, Uuid),
        share: &Arc<ShareBindings>,
        (lease, lease_version): (LeaseId, LeaseVersion),
        durability: Durability,
        conn: &Arc<Connection>,
    ) -> Option<DurableReg> {
        let mut inner = self.inner();
        let id = loop {
            let mut bytes = [0; 8];
            fill_random(&mut bytes).ok()?;
            let id = u64::from_le_bytes(bytes);
            if id != 0 && id != u64::MAX && !inner.entries.contains_key(&id) {
                break id;
            }
        };
        inner.entries.insert(
            id,
            Entry {
                owner: owner.to_string(),
                share: Arc::downgrade(share),
                client,
                lease,
                lease_version,
                durability,
                state: State::Attached { conn: Arc::downgrade(conn) },
            },
        );
        Some(DurableReg { table: Arc::downgrade(self), id })
    }

    /// MS-SMB2 3.3.7.1, 3.3.5.6: keeps `open` after its session ends when it
    /// is durable, its lease caches handles with no break in progress, its
    /// byte-range locks, if any, are covered by write caching, and fewer
    /// than the limits are kept already (3.3.2.2 "resource constraints").
    /// A kept open is closed its Open.DurableOpenTimeout later unless
    /// something closes it first. Returns the open when it is not kept, for
    /// the caller to close. Waits for requests still using the open.
    ///
    /// `since` is [`DurableTable::sweeps`] from before the open's session
    /// left its connection. A sweep since then may have missed the open, as
    /// it was neither in a session nor kept yet, so the open is not kept.
    pub(crate) async fn preserve(self: &Arc<Self>, open: Arc<RwLock<Open>>, since: u64) -> Option<Arc<RwLock<Open>>> {
        let mut guard = open.write().await;
        let Some(id) = guard.durable.as_ref().map(DurableReg::id) else {
            drop(guard);
            return Some(open);
        };
        let now = Instant::now();
        let mut deadline = now;
        let generation = {
            let mut inner = self.inner();
            let Inner { entries, detached, detached_by_user, next_generation } = &mut *inner;
            match entries.get_mut(&id) {
                Some(entry) if matches!(entry.state, State::Attached { .. }) => {
                    let by_user = detached_by_user.get(&entry.owner).copied().unwrap_or(0);
                    if self.sweeps() != since {
                        debug!(id, "durable open closed: configuration change");
                        None
                    } else if !self.has_room(*detached, by_user) {
                        debug!(id, "durable open closed: limit");
                        None
                    } else if guard.file.as_ref().is_some_and(|f| f.try_detach()) {
                        deadline = now + entry.durability.timeout;
                        *detached += 1;
                        *detached_by_user.entry(entry.owner.clone()).or_default() += 1;
                        *next_generation += 1;
                        entry.state = State::Detached {
                            open: Arc::clone(&open),
                            timer: Timer(None),
                            generation: *next_generation,
                            deadline,
                        };
                        Some(*next_generation)
                    } else {
                        None
                    }
                }
                _ => None,
            }
        };
        let Some(generation) = generation else {
            drop(guard);
            return Some(open);
        };
        guard.slot.take();
        guard.search_state = None;
        drop(guard);
        drop(open);
        self.bump();
        debug!(id, timeout = ?(deadline - now), "durable open kept");
        self.start_timer(id, generation, deadline);
        None
    }

    /// Starts the expiry timer of the stay `generation` of the kept open
    /// `id`, which ends at `deadline` (MS-SMB2 3.3.2.2, 3.3.6.2).
    fn start_timer(self: &Arc<Self>, id: u64, generation: u64, deadline: Instant) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let table = Arc::downgrade(self);
        let task = task::spawn_on(&runtime, async move {
            tokio::time::sleep_until(deadline).await;
            let expired = table.upgrade().and_then(|t| t.expire(id, generation));
            if let Some((open, _in_flight)) = expired {
                debug!(id, "durable open closed: expired");
                close_open(&open, false).await;
            }
        });
        let mut inner = self.inner();
        match inner.entries.get_mut(&id).map(|e| &mut e.state) {
            Some(State::Detached { timer, generation: g, .. }) if *g == generation => {
                *timer = Timer(Some(task.abort_handle()))
            }
            _ => task.abort(),
        }
    }

    /// Takes out the kept open `id` whose timer for the stay `generation`
    /// fired, for the timer's task to close.
    fn expire(&self, id: u64, generation: u64) -> Option<(Arc<RwLock<Open>>, InFlight)> {
        let mut inner = self.inner();
        let (open, timer) = inner.take_detached(id, |g| g == generation, |_| State::Closing)?;
        let in_flight = InFlight::new(&self.closing);
        drop(inner);
        timer.disarm();
        Some((open, in_flight))
    }

    /// Takes out the kept opens on `share` and of `user`, every share or
    /// user when `None`, for the caller to close. A sweep that ends sessions
    /// or trees calls this after it has cut them off; opens of sessions
    /// leaving their connection meanwhile are then not kept (see
    /// [`DurableTable::preserve`]).
    pub(crate) fn take_for(&self, share: Option<&Arc<ShareBindings>>, user: Option<&str>) -> Vec<Arc<RwLock<Open>>> {
        self.sweeps.fetch_add(1, Ordering::SeqCst);
        let mut inner = self.inner();
        let ids: Vec<u64> = inner
            .entries
            .iter()
            .filter(|(_, e)| {
                matches!(e.state, State::Detached { .. })
                    && share.is_none_or(|s| std::ptr::eq(e.share.as_ptr(), Arc::as_ptr(s)))
                    && user.is_none_or(|u| e.owner == u)
            })
            .map(|(id, _)| *id)
            .collect();
        let mut opens = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some((open, _timer)) = inner.take_detached(id, |_| true, |_| State::Closing) {
                debug!(id, "durable open closed: configuration or shutdown");
                opens.push(open);
            }
        }
        drop(inner);
        opens
    }

    /// The opens that are kept without a session, with their owners.
    pub(crate) fn kept(&self) -> Vec<(String, Arc<RwLock<Open>>)> {
        let inner = self.inner();
        let kept = inner.entries.values().filter_map(|entry| match &entry.state {
            State::Detached { open, .. } => Some((entry.owner.clone(), Arc::clone(open))),
            _ => None,
        });
        kept.collect()
    }

    /// Takes one of them out, for the caller to close. `None`: its client has come back for it, or it is closed.
    pub(crate) fn take_kept(&self, wanted: &Arc<RwLock<Open>>) -> Option<Arc<RwLock<Open>>> {
        let mut inner = self.inner();
        let is_it = |entry: &Entry| matches!(&entry.state, State::Detached { open, .. } if Arc::ptr_eq(open, wanted));
        let id = inner.entries.iter().find(|(_, entry)| is_it(entry)).map(|(id, _)| *id)?;
        let (open, _timer) = inner.take_detached(id, |_| true, |_| State::Closing)?;
        drop(inner);
        debug!(id, "durable open closed: an administrator ended it");
        Some(open)
    }

    /// MS-SMB2 3.3.5.9.7, 3.3.5.9.12: checks a request to reconnect the
    /// open `id` in the order the spec gives, and hands the open over when
    /// it is kept and the request comes from its owner, on the same share,
    /// from the same client, naming its lease with the same key and version
    /// and, for a version 2 request, its CreateGuid. The
    /// entry stays [`State::Reattaching`] until [`DurableTable::attached`]
    /// or [`DurableTable::release_claim`]; meanwhile neither its timer nor a
    /// break closes it. A refused request changes nothing.
    ///
    /// An open still in a session is one the caller may wait for, until it
    /// is kept, and then try again.
    pub(crate) fn claim(&self, id: u64, claim: &Claim<'_>) -> Result<Arc<RwLock<Open>>, Unclaimed> {
        let not_found = || Unclaimed::Status(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND);
        let mut inner = self.inner();
        let entry = inner.entries.get(&id).ok_or_else(not_found)?;
        // The client, the name and the lease are compared for an open with a
        // lease. One with a batch oplock may be taken back without them, but
        // not by a request that names a lease (MS-SMB2 3.3.5.9.7).
        let leased = entry.lease_version != LeaseVersion::Oplock;
        if leased && entry.client != claim.client {
            return Err(not_found());
        }
        // MS-SMB2 3.3.5.9.12: a version 2 reconnect names Open.CreateGuid,
        // which is zero in a version 1 open. A version 1 reconnect checks none.
        if claim.create_guid.is_some_and(|guid| entry.durability.create_guid.unwrap_or_default() != guid) {
            return Err(not_found());
        }
        // The name is known only for a kept open; one in a session is
        // refused, or waited on, before its name is compared.
        let name_matches = match &entry.state {
            State::Detached { open, .. } if leased => Some(self.name_matches(open, claim)?),
            _ => None,
        };
        let wait: Option<fn(_) -> _> = match &entry.state {
            State::Detached { .. } => None,
            State::Attached { conn } if !is_served(conn) => Some(Unclaimed::Wait),
            State::Attached { .. } => Some(Unclaimed::WaitBriefly),
            _ => return Err(not_found()),
        };
        let held = leased.then_some((entry.lease, entry.lease_version));
        if claim.lease != held || !std::ptr::eq(entry.share.as_ptr(), Arc::as_ptr(claim.share)) {
            return Err(not_found());
        }
        // As Windows answers reconnects of both versions.
        if name_matches == Some(false) {
            return Err(Unclaimed::Status(ntstatus::STATUS_INVALID_PARAMETER));
        }
        let owner = claim.user == Some(entry.owner.as_str());
        // Only a reconnect that would take the open waits for it.
        if let Some(wait) = wait {
            return Err(match owner {
                true => wait(self.changed.subscribe()),
                false => not_found(),
            });
        }
        if !owner {
            return Err(Unclaimed::Status(ntstatus::STATUS_ACCESS_DENIED));
        }
        let since = self.sweeps();
        let (open, timer) = inner
            .take_detached(id, |_| true, |deadline| State::Reattaching { deadline, since })
            .expect("checked above");
        drop(inner);
        drop(timer);
        debug!(id, "durable open claimed");
        Ok(open)
    }

    /// Whether the kept open `open` has the name `claim` gives, which a
    /// delete-on-close or delete-pending file always has (MS-SMB2
    /// 3.3.5.9.7 "Open.Lease.FileDeleteOnClose"). An open that is still
    /// being put in the table gives a wait, which ends once it is.
    fn name_matches(&self, open: &Arc<RwLock<Open>>, claim: &Claim<'_>) -> Result<bool, Unclaimed> {
        let Ok(open) = open.try_read() else {
            return Err(Unclaimed::Wait(self.changed.subscribe()));
        };
        Ok(open
            .file
            .as_ref()
            .is_some_and(|f| open.delete_on_close || f.delete_pending() || claim.file == Some(f.index())))
    }

    /// The durable open of `client` with `create_guid` that a replayed
    /// CREATE may name (MS-SMB2 3.3.5.9.10, Open.IsReplayEligible).
    pub(crate) fn replayable(&self, client: Uuid, create_guid: [u8; 16]) -> Option<Replayable> {
        let inner = self.inner();
        let (&id, entry) = inner.entries.iter().find(|(_, e)| {
            e.client == client
                && e.durability.replay_eligible
                && e.durability.create_guid == Some(create_guid)
                && !matches!(e.state, State::Closing)
        })?;
        let leased = entry.lease_version != LeaseVersion::Oplock;
        Some(Replayable {
            id,
            client,
            owner: entry.owner.clone(),
            lease: leased.then_some((entry.lease, entry.lease_version)),
            timeout: entry.durability.timeout,
            in_use: match &entry.state {
                State::Attached { conn } => is_served(conn),
                _ => false,
            },
        })
    }

    /// Puts back the open of a reconnect that failed after
    /// [`DurableTable::claim`], kept until the deadline it had. The open is
    /// closed instead when a sweep ran since the claim, which could not see
    /// it, or when a lease break decided to close it meanwhile, which could
    /// not close it then.
    pub(crate) async fn release_claim(self: &Arc<Self>, id: u64, open: Arc<RwLock<Open>>) {
        let Some(open) = self.put_back(id, open) else {
            return;
        };
        // A break that closes kept opens marks this one first and then
        // purges it; a purge that came while the open was claimed did
        // nothing.
        let doomed = open.read().await.file.as_ref().is_some_and(FileRef::is_doomed);
        drop(open);
        if doomed {
            self.purge(id);
        }
    }

    /// The table side of [`DurableTable::release_claim`]: returns the open
    /// when it is kept again.
    fn put_back(self: &Arc<Self>, id: u64, open: Arc<RwLock<Open>>) -> Option<Arc<RwLock<Open>>> {
        let mut inner = self.inner();
        let swept = |since| self.sweeps() != since;
        let Inner { entries, detached, detached_by_user, next_generation } = &mut *inner;
        let Some(entry) = entries.get_mut(&id) else {
            drop(inner);
            drop(open);
            return None;
        };
        let deadline = match entry.state {
            State::Reattaching { deadline, since } if !swept(since) => deadline,
            State::Reattaching { .. } => {
                entry.state = State::Closing;
                let in_flight = InFlight::new(&self.closing);
                drop(inner);
                debug!(id, "durable open closed: configuration change");
                spawn_close(open, in_flight);
                return None;
            }
            _ => {
                drop(inner);
                drop(open);
                return None;
            }
        };
        *detached += 1;
        *detached_by_user.entry(entry.owner.clone()).or_default() += 1;
        *next_generation += 1;
        let generation = *next_generation;
        entry.state = State::Detached { open: Arc::clone(&open), timer: Timer(None), generation, deadline };
        drop(inner);
        debug!(id, "durable open kept again");
        self.start_timer(id, generation, deadline);
        Some(open)
    }

    /// Records that the open `id`, claimed by a reconnect, is in a session
    /// on `conn` again.
    pub(crate) fn attached(&self, id: u64, conn: &Arc<Connection>) {
        if let Some(entry) = self.inner().entries.get_mut(&id)
            && matches!(entry.state, State::Reattaching { .. })
        {
            entry.state = State::Attached { conn: Arc::downgrade(conn) };
        }
        debug!(id, "durable open reconnected");
    }
}

impl KeptOpens for DurableTable {
    fn purge(&self, id: u64) {
        let mut inner = self.inner();
        let Some((open, timer)) = inner.take_detached(id, |_| true, |_| State::Closing) else {
            return;
        };
        let in_flight = InFlight::new(&self.closing);
        drop(inner);
        drop(timer);
        debug!(id, "durable open closed: lease broken");
        spawn_close(open, in_flight);
    }
}

/// Whether the connection of an open takes requests.
fn is_served(conn: &Weak<Connection>) -> bool {
    conn.upgrade().is_some_and(|conn| !conn.is_closing())
}

/// Closes a kept open taken out of the table on a task of the current
/// runtime, counted in `in_flight` until done.
fn spawn_close(open: Arc<RwLock<Open>>, in_flight: InFlight) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        task::spawn_on(&runtime, async move {
            close_open(&open, false).await;
            drop(in_flight);
        });
    }
}

#[cfg(test)]
#[path = "durable_tests.rs"]
mod tests;
