//! Volumes replicated to other pools and machines: after each snapshot, or when somebody asks.
//!
//! ```text
//! courier -- plan --> receiver = a pool here | a daemon elsewhere (ssh, or TLS between machines that are paired)
//! ```
//!
//! - `replication.tried_again`: what fails is tried again after a minute, two, four, up to an hour; a new snapshot, an unlocked
//!   volume or a changed configuration tries at once.
//! - `replication.rests_with_its_volume`: a run that ends because its volume is closed for a moment, or another machine's by
//!   now, is no fault. Another begins when the volume is back.
//! - `replication.idle_is_idle`: without a new snapshot nothing is asked and no disk is touched.

use std::path::Path;
use std::sync::Arc;

use chrono::Utc;
use larder_api::{
    AsFiles, Client, Failure, ReceiveQuery, Received, Replicate, ReplicationChange, ReplicationStatus, Replications,
    VolumeChange,
};
use larder_base::units::ByteSize;
use larder_fs::FsError;
use larder_keep::retention;
use larder_keep::snapshot_words;
use larder_keep::{Storage, Store};
use larder_volume::Properties;
use larder_volume::replica::ReceiveLimits;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::box_record::BoxRecord;
use larder_config::edit::Editor;
use larder_config::{FILES_STAY_HERE, Place, ReplicateConfig, VolumeName, parse_limit};
use larder_document::{DataFolder, Document};
use larder_servers::Servers;

mod courier;
pub mod door;
pub mod invitations;
pub mod machines;
pub mod moving;
mod plan;
mod receiver;
pub mod runs;
mod ssh;
mod tls;

use courier::{Courier, Progress};
use invitations::Invitations;
pub use receiver::Receiver;
use runs::{Runs, Way};

/// How long the removal of a way waits for a run that is on it.
const REMOVAL_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// The side that a place means. Another machine must be known by its fingerprint.
pub fn receiver(
    storage: &Storage,
    place: &Place,
    known: Option<Known<'_>>,
    limits: ReceiveLimits,
) -> Result<Receiver, Failure> {
    match place {
        Place::Here(name) => Ok(Receiver::Pool(storage.pool(Some(&name.pool))?, name.volume.clone(), limits)),
        Place::Ssh { login, port, replica } => {
            let way = ssh::Ssh { login: login.clone(), port: *port, replica: replica.clone() };
            Ok(Receiver::Daemon(Client::over(Arc::new(way)), replica.clone(), None))
        }
        Place::Machine { host, port, replica } => {
            let Some(Known { folder, machine }) = known else {
                return Err(Failure::invalid(format!("the machine '{host}' is not known")).action(format!(
                    "there: larder replicate accept {replica}; here: larder replicate add VOLUME {place} --code CODE"
                )));
            };
            let identity = tls::Identity::load_or_create(folder)?;
            let (host, expected, seen) = (host.clone(), machine.to_owned(), Mutex::default());
            let way = tls::Machine { host, port: *port, identity, expected, seen };
            Ok(Receiver::Daemon(Client::over(Arc::new(way)), replica.clone(), None))
        }
    }
}

/// Another machine that is known.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The data folder, where the identity of this machine is.
    folder: &'a Path,
    /// The fingerprint of the other.
    machine: &'a str,
}

/// Takes a snapshot if anything has changed since the newest.
async fn take(pool: &Store, volume: &str) -> Result<(), Failure> {
    let open = pool.volume(volume).await?;
    if !open.changed_since_snapshot() {
        return Ok(());
    }
    let name = retention::name_at(Utc::now()).unwrap_or_else(|| snapshot_words::free_name(&open));
    let taken = match open.snapshot(&name).await {
        Err(FsError::Exists) => open.snapshot(&snapshot_words::free_name(&open)).await,
        taken => taken,
    };
    taken.map_err(|error| pool.failure(volume, &error))?;
    Ok(())
}

/// Brings one replica up to date without a daemon, and returns how many snapshots were sent.
pub async fn once(storage: &Storage, request: &Replicate) -> Result<u64, Failure> {
    let (pool, volume) = storage.named(&request.volume)?;
    let Some(to) = &request.to else {
        return Err(Failure::invalid("no place is named").action("name it: larder replicate VOLUME POOL/NAME"));
    };
    let to = Place::parse(to).map_err(Failure::invalid)?;
    if request.take {
        take(&pool, &volume).await?;
    }
    let receiver = receiver(storage, &to, None, ReceiveLimits::default())?;
    let (limit, progress) = (request.limit_bytes.map(ByteSize), Arc::default());
    Courier { pool, volume, receiver, limit, holds_for: None, although_closed: false, as_files: false, progress }
        .run()
        .await
}

/// Runs until the daemon stops.
pub async fn run(replication: Arc<Replication>) {
    let mut running = JoinSet::new();
    loop {
        let named = replication.document.config().replicates.clone();
        let mut ways = Vec::with_capacity(named.len());
        for one in named {
            let name = one.volume.to_string();
            // One that is closed for a moment wakes this when it is back. `handing.configured_twice`
            if !replication.storage.is_closed_for_now(&name) && !replication.storage.is_elsewhere(&name).await {
                ways.push(one);
            }
        }
        for one in replication.runs.due(&ways) {
            let replication = Arc::clone(&replication);
            running.spawn(async move {
                // The run remembers its outcome.
                let _ = replication.replicate_one(&one.volume, &one.to, one.limit, Some(&one)).await;
            });
        }
        let next = replication.runs.next();
        let timer = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = replication.runs.woken() => {}
            () = timer => {}
            Some(_) = running.join_next() => {}
        }
    }
}

/// The replications of a daemon.
pub struct Replication {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub folder: Arc<DataFolder>,
    pub record: Arc<BoxRecord>,
    pub runs: Arc<Runs>,
    pub invitations: Arc<Invitations>,
}

impl Replication {
    /// One run on one way. What the file names is held for at the sender (`replication.base_is_held`).
    async fn replicate_one(
        &self,
        volume: &VolumeName,
        to: &Place,
        limit: Option<ByteSize>,
        named: Option<&ReplicateConfig>,
    ) -> Result<u64, Failure> {
        let way = (volume.clone(), to.clone());
        let progress = self.runs.begin_in_turn(&way).await;
        // A run that is given up in the middle ends, too.
        let end = EndOf { runs: &self.runs, way: &way, outcome: None, rests: false };
        if named.is_some() && !self.is_replicated(volume, to) {
            // It was taken out of the file while the run waited for its turn.
            return end.resting(Err(Failure::not_found(format!("'{volume}' is not replicated to {to} any more"))));
        }
        let outcome = self.go(volume, to, limit, named, progress).await;
        let name = volume.to_string();
        if outcome.is_err() && (self.storage.is_closed_for_now(&name) || self.storage.is_elsewhere(&name).await) {
            // It went away while it was sent.
            return end.resting(outcome);
        }
        if named.is_some() {
            self.release_if_removed(volume, to).await;
        }
        end.with(outcome)
    }

    fn is_replicated(&self, volume: &VolumeName, to: &Place) -> bool {
        let is_it = |one: &ReplicateConfig| (&one.volume, &one.to) == (volume, to);
        self.document.config().replicates.iter().any(is_it)
    }

    /// A way that was taken out of the file while a run was on it keeps no hold.
    async fn release_if_removed(&self, volume: &VolumeName, to: &Place) {
        if self.is_replicated(volume, to) {
            return;
        }
        let Ok(pool) = self.storage.pool(Some(&volume.pool)) else { return };
        let Ok(open) = pool.volume(&volume.volume).await else { return };
        if let Err(error) = courier::release(&open, &courier::reason(&to.to_string()), None).await {
            tracing::warn!("a hold of '{volume}' for {to} stays: {error}");
        }
    }

    async fn go(
        &self,
        volume: &VolumeName,
        to: &Place,
        limit: Option<ByteSize>,
        named: Option<&ReplicateConfig>,
        progress: Arc<Mutex<Progress>>,
    ) -> Result<u64, Failure> {
        let pool = self.storage.pool(Some(&volume.pool))?;
        let machine = named.and_then(|one| one.machine.as_deref());
        let limits = match to {
            Place::Here(name) => self.limits_of(name),
            _ => ReceiveLimits::default(),
        };
        let receiver = receiver(&self.storage, to, self.known(machine), limits)?;
        let holds_for = named.map(|one| one.to.to_string());
        let volume = volume.volume.clone();
        let as_files = named.is_some_and(|one| one.as_files);
        let courier = Courier { pool, volume, receiver, limit, holds_for, although_closed: false, as_files, progress };
        let receiver = courier.receiver.clone();
        let sent = courier.run().await?;
        let from = VolumeName { pool: courier.pool.name.clone(), volume: courier.volume.clone() };
        self.record.send(&from, &receiver).await;
        if let (Place::Here(name), true) = (to, sent > 0) {
            self.came(name).await;
        }
        Ok(sent)
    }

    /// Replicates now.
    pub async fn replicate(&self, request: Replicate) -> Result<Replications, Failure> {
        let (pool, volume) = self.storage.named(&request.volume)?;
        let volume = VolumeName { pool: pool.name.clone(), volume };
        let mut ways = self.document.config().replicates.clone();
        ways.retain(|one| one.volume == volume);
        let wanted: Vec<(Place, Option<ReplicateConfig>)> = match &request.to {
            Some(to) => {
                let to = Place::parse(to).map_err(Failure::invalid)?;
                let named = ways.into_iter().find(|one| one.to == to);
                vec![(to, named)]
            }
            None if ways.is_empty() => {
                return Err(Failure::not_found(format!("'{volume}' is replicated to no place")).action(format!(
                    "name one: larder replicate {volume} PLACE; or for good: larder replicate add {volume} PLACE"
                )));
            }
            None => ways.into_iter().map(|one| (one.to.clone(), Some(one))).collect(),
        };
        if request.take {
            take(&pool, &volume.volume).await?;
        }
        let mut list = Vec::new();
        for (to, named) in wanted {
            let limit = request.limit_bytes.map(ByteSize).or(named.as_ref().and_then(|one| one.limit));
            self.replicate_one(&volume, &to, limit, named.as_ref()).await?;
            list.push(self.runs.status(&(volume.clone(), to), named.as_ref()));
        }
        Ok(Replications { replications: list, recovery_key: None })
    }

    /// The owner's bounds on a replica.
    pub fn limits_of(&self, name: &VolumeName) -> ReceiveLimits {
        let config = self.document.config();
        let known = config.replicas.iter().find(|replica| replica.name == *name);
        ReceiveLimits { quota_bytes: known.and_then(|replica| replica.quota_bytes) }
    }

    /// Takes a snapshot into a replica. Of the quota of the configuration and that of the request the smaller one counts.
    pub async fn receive(
        &self,
        name: &str,
        query: ReceiveQuery,
        input: receiver::Stream<'_>,
    ) -> Result<Received, Failure> {
        let (pool, volume) = self.storage.named(name)?;
        let named = VolumeName { pool: pool.name.clone(), volume };
        let configured = self.limits_of(&named).quota_bytes;
        let quota_bytes = configured.into_iter().chain(query.quota_bytes.filter(|bytes| *bytes > 0)).min();
        let received = pool.receive(&named.volume, ReceiveLimits { quota_bytes }, input).await?;
        self.came(&named).await;
        Ok(received)
    }

    /// Snapshots have come into a replica here: those that its retention does not need go.
    pub async fn came(&self, name: &VolumeName) {
        let config = self.document.config();
        let keep = config.replicas.iter().find(|replica| replica.name == *name).and_then(|replica| replica.keep);
        let Some(keep) = keep else { return };
        let thinned = match self.storage.pool(Some(&name.pool)) {
            Ok(pool) => pool.thin_replica(&name.volume, &keep).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = thinned {
            tracing::warn!("snapshots of the replica '{name}' stay: {}", failure.message);
        }
    }

    /// What is replicated, and how far it is. Does no I/O.
    pub fn list(&self) -> Replications {
        let ways = self.document.config().replicates.clone();
        let mut list: Vec<ReplicationStatus> =
            ways.iter().map(|one| self.runs.status(&(one.volume.clone(), one.to.clone()), Some(one))).collect();
        let asked_for = self.runs.running();
        let is_new = |way: &Way| !ways.iter().any(|one| (&one.volume, &one.to) == (&way.0, &way.1));
        list.extend(asked_for.iter().filter(|way| is_new(way)).map(|way| self.runs.status(way, None)));
        Replications { replications: list, recovery_key: None }
    }

    pub async fn change(&self, change: ReplicationChange) -> Result<Replications, Failure> {
        let recovery_key = match change {
            ReplicationChange::Add { volume, to, limit, code, as_files: None } => {
                self.add_replication(&volume, &to, limit, code).await?;
                None
            }
            ReplicationChange::Add { volume, to, limit, code: None, as_files: Some(as_files) } => {
                self.add_copy(&volume, &to, limit, *as_files).await?
            }
            ReplicationChange::Add { .. } => return Err(Failure::invalid(FILES_STAY_HERE)),
            ReplicationChange::Remove { volume, to } => {
                self.remove_replication(&volume, to.as_deref()).await?;
                None
            }
        };
        self.runs.wake();
        Ok(Replications { recovery_key, ..self.list() })
    }

    async fn add_replication(
        &self,
        volume: &str,
        to: &str,
        limit: Option<String>,
        code: Option<String>,
    ) -> Result<(), Failure> {
        let (pool, volume) = self.may_be_replicated(volume).await?;
        let to = Place::parse(to).map_err(Failure::invalid)?;
        let limit = limit.map(|text| parse_limit(&text).map_err(Failure::invalid)).transpose()?;
        // A code is good once: a file that cannot be written is found before.
        self.document.check_writable().await?;
        let machine = match (&to, code) {
            (Place::Machine { host, port, replica }, Some(code)) => {
                Some(machines::pair_with(self.folder.path(), (host, *port), replica, &code).await?)
            }
            (_, Some(_)) => return Err(Failure::invalid("a code is for larder://HOST/POOL/NAME")),
            (_, None) => self.machine_at(&to),
        };
        // What is in the way is said now, not in the night.
        let known = self.known(machine.as_deref());
        let there = receiver(&self.storage, &to, known, ReceiveLimits::default())?;
        if there.copy().await?.is_some() {
            return Err(Failure::invalid(format!("'{to}' is a copy as files, which takes no snapshots as they lie"))
                .action(format!(
                    "go on with it by: larder replicate add {}/{volume} {to} --as-files; or name another place",
                    pool.name
                )));
        }
        there.state().await?;
        let volume = VolumeName { pool: pool.name.clone(), volume };
        let one = ReplicateConfig { volume, to, limit, machine, late_after_hours: 0, as_files: false };
        self.enter_replication(&one).await
    }

    /// A volume that may be sent.
    async fn may_be_replicated(&self, volume: &str) -> Result<(Arc<Store>, String), Failure> {
        let (pool, volume) = self.storage.named(volume)?;
        if !pool.volumes().await?.iter().any(|there| there.name == volume) {
            return Err(pool.failure(&volume, &FsError::NotFound));
        }
        if pool.is_replica(&volume).await? {
            return Err(Failure::invalid(format!("'{}/{volume}' is a replica: it only receives", pool.name)));
        }
        Ok((pool, volume))
    }

    /// Makes a copy as files, or goes on with one. Returns its recovery key, if one was made.
    async fn add_copy(
        &self,
        volume: &str,
        to: &str,
        limit: Option<String>,
        as_files: AsFiles,
    ) -> Result<Option<String>, Failure> {
        let (pool, volume) = self.may_be_replicated(volume).await?;
        let place = Place::parse(to).map_err(Failure::invalid)?;
        let Place::Here(copy) = &place else { return Err(Failure::invalid(FILES_STAY_HERE)) };
        let limit = limit.map(|text| parse_limit(&text).map_err(Failure::invalid)).transpose()?;
        let there = self.storage.pool(Some(&copy.pool))?;
        let infos = pool.registry.list().await.map_err(|error| pool.failure(&volume, &error))?;
        let own = infos.into_iter().find(|info| info.name == volume);
        let own = own.ok_or_else(|| pool.failure(&volume, &FsError::NotFound))?;
        let AsFiles { properties, encrypt } = as_files;
        let is_new = !there.is_copy(&copy.volume).await?;
        let mut recovery_key = None;
        if is_new {
            if own.sealed && encrypt.is_none() {
                return Err(Failure::invalid(format!("'{}/{volume}' is encrypted, and its files would lie open in '{copy}'", pool.name))
                    .action("give the copy a key of its own with --encrypt; or leave --as-files out: snapshots stay sealed then"));
            }
            let like = Properties {
                record_bytes: own.properties.record_bytes,
                compression: own.properties.compression,
                ..Properties::default()
            };
            recovery_key = there.create_copy(&copy.volume, like, &properties, encrypt).await?;
        } else if encrypt.is_some() || properties != VolumeChange::default() {
            return Err(Failure::invalid(format!("the copy '{copy}' is there, and keeps its settings")).action(format!(
                "go on with it without any; its compression and record size are changed with: larder volume set {copy}"
            )));
        }
        let volume = VolumeName { pool: pool.name.clone(), volume };
        let one =
            ReplicateConfig { volume, to: place.clone(), limit, machine: None, late_after_hours: 0, as_files: true };
        let entered = self.enter_replication(&one).await;
        if entered.is_err() && is_new {
            // Nothing is in it yet.
            let _ = there.destroy(&copy.volume).await;
        }
        entered.map(|()| recovery_key)
    }

    async fn enter_replication(&self, one: &ReplicateConfig) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        self.document.edit(&mut state, |editor| editor.set_replicate(one)).await
    }

    fn known<'a>(&'a self, machine: Option<&'a str>) -> Option<Known<'a>> {
        machine.map(|machine| Known { folder: self.folder.path(), machine })
    }

    /// The fingerprint of a machine that is paired for this place already.
    fn machine_at(&self, to: &Place) -> Option<String> {
        self.document.config().replicates.iter().find(|one| one.to == *to).and_then(|one| one.machine.clone())
    }

    async fn remove_replication(&self, volume: &str, to: Option<&str>) -> Result<(), Failure> {
        let (pool, volume) = self.storage.named(volume)?;
        let volume = VolumeName { pool: pool.name.clone(), volume };
        let to = to.map(|text| Place::parse(text).map_err(Failure::invalid)).transpose()?;
        let mut state = self.document.lock().await;
        let is_it = |one: &&ReplicateConfig| one.volume == volume && to.as_ref().is_none_or(|to| *to == one.to);
        let gone: Vec<Place> = state.config.replicates.iter().filter(is_it).map(|one| one.to.clone()).collect();
        if gone.is_empty() {
            return Err(Failure::not_found(format!("'{volume}' is not replicated there"))
                .action("see what is with: larder replicate status"));
        }
        let remove = |editor: &mut Editor| gone.iter().for_each(|to| editor.remove_replicate(&volume, to));
        self.document.edit(&mut state, remove).await?;
        drop(state);
        let ways: Vec<Way> = gone.iter().map(|to| (volume.clone(), to.clone())).collect();
        self.runs.settled(&ways, REMOVAL_WAIT_MAX).await;
        // A volume that is locked keeps its holds: they are released by hand.
        if let Ok(open) = pool.volume(&volume.volume).await {
            for to in &gone {
                let released = courier::release(&open, &courier::reason(&to.to_string()), None).await;
                released.map_err(|error| pool.failure(&volume.volume, &error))?;
            }
        }
        Ok(())
    }
}

/// Ends a run whatever becomes of the one who waits for it.
struct EndOf<'a> {
    runs: &'a Runs,
    way: &'a Way,
    outcome: Option<Result<u64, Failure>>,
    rests: bool,
}

impl EndOf<'_> {
    /// Nothing is wrong with the way (`replication.rests_with_its_volume`).
    fn resting(mut self, outcome: Result<u64, Failure>) -> Result<u64, Failure> {
        self.rests = true;
        outcome
    }

    fn with(mut self, outcome: Result<u64, Failure>) -> Result<u64, Failure> {
        self.outcome = Some(outcome.clone());
        outcome
    }
}

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        if self.rests {
            return self.runs.rest(self.way);
        }
        let given_up = || Err(Failure::unavailable("it was interrupted"));
        self.runs.end(self.way, &self.outcome.take().unwrap_or_else(given_up));
    }
}
