//! The daemon: pools open, shares served, the API answered, until a signal says stop.
//!
//! - `daemon.one_lock`: the parts of a change (the file, secrets, servers) change under one lock:
//!   the file is saved first, then applied. After a crash between the two the next start applies
//!   the file.
//! - `daemon.faults_are_named`: a pool, volume or share that cannot be served is a fault with a
//!   name; the others are served.
//! - `daemon.stop_in_order`: the daemon stops announcements, servers, mounts, volumes and pools in this order.
//!   Nothing is closed while it is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use larder_api::{
    DaemonInfo, Encrypt, Failure, FailureKind, KeysRequest, KeysStatus, MountRequest, MountStatus, PoolChangePlan,
    PoolChangeRequest, PoolImport, PoolListed, PoolRename, PoolStatus, ShareStatus, TakeAway, UnmountRequest,
    VolumeChange, VolumeCreate, VolumeStatus,
};
use larder_base::units::ByteSize;
use larder_fuse::MountOptions;
use larder_keep::bucket::Taking;
use larder_keep::keyrings::secret_of;
use larder_keep::snapshot_runs::SnapshotRuns;
use larder_keep::{KeepError, Storage, Store, export};
use larder_nfs::Owners;
use larder_pool::{OpenOptions, Pool};
use tokio::sync::Mutex;

#[cfg(test)]
use larder_facts::Machine;

use crate::folder::DataFolder;
use larder_config::edit::{Editor, Staged};
use larder_config::machine;
use larder_config::{
    Config, MountConfig, PoolConfig, Schedule, StoreSettings, VolumeName, check_name, check_share_name, mount_options,
};

pub mod api;
mod applying;
mod ask;
pub mod bench_progress;
mod bench_runs;
pub mod bench_words;
mod benches;
pub mod box_record;
pub mod box_time;
pub mod bucket;
pub mod care;
mod chart_samples;
pub mod charts;
mod closing;
pub mod direct;
mod discovery;
pub mod disks;
mod doors;
mod entitled;
pub mod erase;
mod explain;
mod explain_words;
pub mod factors;
pub mod folder;
mod followed;
pub mod groups;
pub mod imports;
mod json;
pub mod keys;
mod known;
pub mod last_lives;
pub mod links;
mod memory;
mod metrics;
mod mounted;
mod mounts;
mod open_files;
mod owner_quotas;
mod owners;
pub mod page;
pub mod people;
mod port_holder;
mod recycle;
mod remote;
mod reopening;
pub mod replication;
mod rollback;
mod schedule;
mod sealing;
mod seats;
#[cfg(test)]
pub use secrets::fuzz_file as fuzz_secrets;
#[cfg(test)]
#[path = "../../facts/src/machine/fixture.rs"]
mod fixture;
#[cfg(test)]
mod fuzz;
pub mod log;
pub mod notify;
pub mod power_text;
pub mod power_words;
pub mod rounds;
pub mod secrets;
mod servers;
mod set_schedules;
mod setting_up;
mod setup_offer;
mod shares;
pub mod sharing;
mod snapshot_schedule;
pub mod standby;
mod time_machine;
pub mod tokens;
mod top;
pub mod translate;
pub mod user_keys;
mod users;
pub mod watch;

pub use box_record::run as run_record;
pub use chart_samples::keep as run_charts;
pub use memory::run as run_memory;
pub use metrics::listen as listen_metrics;
pub use mounts::is_dead;
pub use recycle::run as run_recycle;
pub use reopening::run as run_reopening;
pub use replication::run as run_replication;
pub use schedule::run as run_schedule;
pub use seats::run as run_seats;
pub use secrets::{NtHashes, Secrets, check_password, hash_of, random_password};
pub use servers::{Servers, Serving, own_names};
pub use shares::{default_share, take_in};
pub use snapshot_schedule::run as run_snapshot_schedule;
pub use time_machine::run as run_time_machine;
use translate::as_failure;

/// Changes to the configuration that hold for this run only: options of the command line.
pub type Overrides = Box<dyn Fn(&mut Config) + Send + Sync>;

pub struct Daemon {
    folder: DataFolder,
    file: PathBuf,
    overrides: Overrides,
    memory: ByteSize,
    started: Instant,
    /// Its doors and limits are those of this run (`reload.named_until_the_start`).
    started_with: Config,
    pub storage: Storage,
    pub servers: Servers,
    mounts: mounts::Mounts,
    announcer: discovery::Announcer,
    snapshot_runs: SnapshotRuns,
    /// For the snapshots after backups.
    shares_changed: tokio::sync::Notify,
    replication: replication::runs::Runs,
    invitations: replication::invitations::Invitations,
    pub watch: std::sync::Arc<watch::Watch>,
    pub top: top::TopState,
    pub charts: charts::ChartState,
    benches: std::sync::Arc<benches::Benches>,
    record: box_record::BoxRecord,
    /// While there is nothing to serve.
    pub setup_offer: setup_offer::SetupOffer,
    /// Held while a volume is moved.
    moving: std::sync::Arc<Mutex<()>>,
    state: Mutex<State>,
}

/// The state that changes together (`daemon.one_lock`).
struct State {
    config: Config,
    secrets: Secrets,
    tokens: tokens::Tokens,
    /// Pools that could not be opened, with the reason (`daemon.faults_are_named`).
    pool_faults: BTreeMap<String, Failure>,
    /// Those of them that were served, and are to be again (`reopening.tried_on`).
    given_up: BTreeSet<String>,
    shares: Vec<ShareStatus>,
    /// Remarks on this configuration that are in the log already.
    noted: Vec<String>,
}

impl Daemon {
    /// A daemon that has its folder and ports, and nothing open yet.
    pub async fn new(
        folder: DataFolder,
        file: PathBuf,
        config: Config,
        overrides: Overrides,
    ) -> Result<Daemon, Failure> {
        let memory = config.memory.map_or_else(machine::memory_default, |memory| memory.min(machine::memory_total()));
        let servers = {
            let limits = (config.connections, config.strangers, memory);
            Servers::bind(&config.listen, (&config.webdav, &config.page), limits, folder.path()).await?
        };
        let watch = std::sync::Arc::new(watch::Watch::open(folder.path())?);
        let top = top::TopState::open(folder.path());
        let charts = charts::ChartState::open(folder.path());
        let secrets = Secrets::open(folder.path())?;
        let tokens = tokens::Tokens::open(folder.path(), &secrets)?;
        let record = box_record::BoxRecord::open(folder.path())?;
        larder_base::arena::configure(memory.0);
        let started_with = config.clone();
        let state = State {
            config,
            secrets,
            tokens,
            pool_faults: BTreeMap::new(),
            given_up: BTreeSet::new(),
            shares: Vec::new(),
            noted: Vec::new(),
        };
        Ok(Daemon {
            folder,
            file,
            overrides,
            memory,
            started: Instant::now(),
            started_with,
            storage: Storage::default(),
            servers,
            mounts: mounts::Mounts::default(),
            announcer: discovery::Announcer::default(),
            snapshot_runs: SnapshotRuns::default(),
            shares_changed: tokio::sync::Notify::new(),
            replication: replication::runs::Runs::default(),
            invitations: Default::default(),
            watch,
            top,
            charts,
            benches: Default::default(),
            record,
            setup_offer: setup_offer::SetupOffer::default(),
            moving: Default::default(),
            state: Mutex::new(state),
        })
    }

    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// Says where the API's socket is.
    pub fn announce(&mut self) {
        self.folder.announce();
    }

    /// Each pool's part of the memory.
    pub fn memory_per_pool(&self, pools: usize) -> ByteSize {
        ByteSize(self.memory.0 / pools.max(1) as u64)
    }

    async fn start_bucket(&self, store: &StoreSettings, force: bool, memory: ByteSize) -> Result<Store, Failure> {
        let journal = match store.journal.as_ref().filter(|_| store.read_only.is_none()) {
            None => None,
            Some(pool) => Some(self.journal_place(store, pool)?),
        };
        let taking = Taking {
            machine: bucket::this_machine(&self.folder)?,
            take_over: force,
            journal,
            on_loss: bucket::end_loser,
        };
        Store::start_bucket(store, taking, memory).await.map_err(as_failure)
    }

    /// Opens the pools of the configuration. Those that fail are remembered
    /// (`daemon.faults_are_named`); it is an error if all do.
    pub async fn open_pools(&self, force: bool, degraded: bool) -> Result<(), Failure> {
        self.open_those_that_can(force, degraded).await?;
        let state = self.state.lock().await;
        match state.pool_faults.values().next() {
            Some(failure) if self.storage.all().is_empty() => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Opens the pools of the configuration, even if none of them can be opened: a service that goes on shows its page and
    /// raises the alert `pool-unavailable`.
    pub async fn open_those_that_can(&self, force: bool, degraded: bool) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        let (pools, stores) = (state.config.pools.clone(), state.config.stores.clone());
        let memory = self.memory_per_pool(pools.len() + stores.len());
        for pool in &pools {
            match open_configured(pool, self.folder.path(), force, degraded, memory).await {
                Ok(open) => {
                    self.storage.add(open);
                    state.pool_faults.remove(&pool.name);
                }
                Err(failure) => {
                    tracing::error!("pool '{}' is not served: {}", pool.name, failure.message);
                    state.pool_faults.insert(pool.name.clone(), failure);
                }
            }
        }
        for store in &stores {
            match self.start_bucket(store, force, memory).await {
                Ok(open) => {
                    self.storage.add(open);
                    state.pool_faults.remove(&store.name);
                }
                Err(failure) => {
                    tracing::error!("the store '{}' is not served: {}", store.name, failure.message);
                    state.pool_faults.insert(store.name.clone(), failure);
                }
            }
        }
        self.settle_moves(&mut state).await
    }

    /// Takes in a pool opened elsewhere (made by `up`).
    pub fn adopt(&self, pool: Store) {
        self.storage.add(pool);
    }

    /// Makes the volumes that the file names and that are missing, applies their properties, and serves the shares.
    pub async fn apply_config(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        self.apply(&mut state).await;
        self.mount_those_of_file(&[], &state.config.mounts).await;
        Ok(())
    }

    async fn apply(&self, state: &mut State) {
        self.setup_offer.look_at(&state.config);
        let mut notes = state.config.notes();
        notes.extend(shares::without_password(&state.config, &state.secrets));
        notes.extend(shares::without_nt_hash(&state.config, &state.secrets));
        notes.extend(self.servers.nfs_addr().and_then(|addr| sharing::closed_to_others(&state.config, addr)));
        for note in notes.iter().filter(|note| !state.noted.contains(note)) {
            tracing::warn!("{note}");
        }
        state.noted = notes;
        for volume in &state.config.volumes {
            // `handing.configured_twice`
            if self.storage.is_elsewhere(&volume.name.to_string()).await {
                continue;
            }
            let ensured = match &volume.key {
                // It is made by `volume create --encrypt` alone: never in clear because it is not there.
                Some(key) => keys::unlock_configured(&self.storage, volume, key).await,
                None => match owner_quotas::numbered(&volume.change, &state.config) {
                    Ok(change) => self.ensure_volume(&volume.name, &change).await,
                    Err(failure) => Err(failure),
                },
            };
            if let Err(failure) = ensured {
                tracing::error!("volume '{}': {}", volume.name, failure.message);
            }
        }
        self.apply_shares(state).await;
    }

    /// Serves the shares of those volumes that can be opened.
    async fn apply_shares(&self, state: &mut State) {
        let now =
            shares::apply(&state.config, &state.secrets, &state.tokens, &self.storage, &self.servers, &self.watch);
        let now = now.await;
        let before = std::mem::replace(&mut state.shares, now);
        for pool in self.storage.all() {
            pool.look_for_gone().await;
        }
        for share in state.shares.iter_mut().filter(|share| share.fault.is_some() && !share.locked) {
            share.rests = self.storage.is_elsewhere(&share.volume).await;
        }
        for share in &state.shares {
            if share.locked {
                tracing::info!(
                    "share '{}' waits until its volume is unlocked: larder volume unlock {}",
                    share.name,
                    share.volume
                );
            } else if self.storage.is_closed_for_now(&share.volume) {
                tracing::info!("share '{}' waits until its volume is back in a moment", share.name);
            } else if share.rests {
                tracing::info!("share '{}' rests: another machine serves its volume", share.name);
            } else if let Some(fault) = &share.fault
                && !before.iter().any(|was| was.name == share.name && was.fault == share.fault)
            {
                tracing::error!("share '{}' is not served: {fault}", share.name);
            }
        }
        self.keep_links_of(&state.config).await;
        self.announcer.set(&state.config, &self.folder, &self.servers, &state.shares).await;
        self.snapshot_runs.wake();
        self.shares_changed.notify_one();
        self.replication.wake();
        self.watch.wake();
        self.record.wake();
    }

    async fn ensure_volume(&self, name: &VolumeName, change: &VolumeChange) -> Result<(), Failure> {
        let pool = self.storage.pool(Some(&name.pool)).map_err(as_failure)?;
        if pool.is_read_only() {
            // The machine that writes the store makes volumes and sets what they are.
            return Ok(());
        }
        match pool.set(&name.volume, change).await {
            Err(KeepError::NotFound(_)) => create_volume(&pool, &name.volume, change, None).await.map(|_| ()),
            other => other.map(|_| ()).map_err(as_failure),
        }
    }

    /// Edits the file, validates and saves it, and applies what it says now (`daemon.one_lock`).
    async fn edit<T>(
        &self,
        state: &mut State,
        change: impl FnOnce(&mut Editor) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut editor = Editor::open(&self.file)?;
        let value = change(&mut editor)?;
        self.save(state, editor).await?;
        Ok(value)
    }

    async fn save(&self, state: &mut State, editor: Editor) -> Result<(), Failure> {
        self.take(state, editor.save()?).await;
        Ok(())
    }

    /// Refuses what is to be written into the file later, if nothing can be (`edit.staged_before_deeds`).
    async fn check_writable(&self) -> Result<(), Failure> {
        let _still = self.state.lock().await;
        self.check_writable_now()
    }

    /// The same, under the lock (`daemon.one_lock`).
    fn check_writable_now(&self) -> Result<(), Failure> {
        Editor::open(&self.file)?.stage().map(drop)
    }

    /// From now on the file, which has just been saved, counts.
    async fn take(&self, state: &mut State, mut config: Config) {
        (self.overrides)(&mut config);
        state.config = config;
        self.apply(state).await;
    }

    /// The names of users and groups.
    pub async fn owners(&self) -> export::Owners {
        let state = self.state.lock().await;
        let users = state.config.users.iter().map(|user| (user.uid, user.name.clone())).collect();
        let own_groups = state.config.users.iter().filter(|user| user.uid == user.gid);
        let own_groups = own_groups.map(|user| (user.gid, user.name.clone()));
        let groups = state.config.groups.iter().map(|group| (group.gid, group.name.clone()));
        export::Owners { users, groups: own_groups.chain(groups).collect() }
    }

    pub async fn metrics_addr(&self) -> Option<std::net::SocketAddr> {
        self.state.lock().await.config.listen.metrics
    }

    /// The open pools, and how often each is scrubbed.
    async fn schedules(&self) -> Vec<(std::sync::Arc<Store>, Schedule)> {
        let state = self.state.lock().await;
        let schedule = |pool: &Store| state.config.pool(&pool.name).map(|known| known.scrub).unwrap_or_default();
        let with_disks = self.storage.all().into_iter().filter(|pool| pool.has_disks());
        with_disks.map(|pool| (pool.clone(), schedule(&pool))).collect()
    }

    /// There are other snapshots than before, perhaps.
    pub fn snapshots_changed(&self) {
        self.replication.wake();
    }

    /// A spare that took a disk's place is named by the file from then on. While a disk is away the file is left as it is:
    /// who wrote it may know better where that one lies.
    async fn name_disks(&self) {
        let mut state = self.state.lock().await;
        for pool in self.storage.all() {
            let Some(known) = state.config.pool(&pool.name).map(|known| known.disks.clone()) else { continue };
            let Some(disks) = pool.disks_if_whole() else { continue };
            let is_named = known.len() == disks.len() && disks.iter().all(|disk| known.contains(disk));
            // A path may be written in other ways.
            let real = |disk: &PathBuf| disk.canonicalize().unwrap_or_else(|_| disk.clone());
            let places: Vec<PathBuf> = disks.iter().map(real).collect();
            if is_named || known.iter().all(|disk| places.contains(&real(disk))) {
                continue;
            }
            let set = |editor: &mut Editor| {
                editor.set_pool_disks(&pool.name, &disks);
                Ok(())
            };
            match self.edit(&mut state, set).await {
                Ok(()) => tracing::info!(pool = %pool.name, "the configuration names its disks as they are now"),
                Err(failure) => tracing::warn!(pool = %pool.name, "{}", failure.message),
            }
        }
    }

    /// Waits for nothing: a command that looks for the daemon of some disks asks every daemon.
    pub fn info(&self) -> DaemonInfo {
        let mut disks: BTreeMap<String, Vec<PathBuf>> =
            self.storage.all().iter().map(|p| (p.name.clone(), p.disks())).collect();
        if let Ok(state) = self.state.try_lock() {
            let faulted = state.pool_faults.keys().filter_map(|name| state.config.pool(name));
            disks.extend(faulted.map(|pool| (pool.name.clone(), pool.disks.clone())));
        }
        DaemonInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: self.folder.path().to_owned(),
            uptime_secs: self.started.elapsed().as_secs(),
            nfs: self.servers.nfs_addr(),
            smb: self.servers.smb_addr(),
            sftp: self.servers.sftp_addr(),
            webdav: self.servers.webdav_addr(),
            webdavs: self.servers.webdavs_addr(),
            page: self.servers.page_addr(),
            memory_bytes: self.memory.0,
            pools: self.storage.all().iter().map(|p| p.name.clone()).collect(),
            disks,
        }
    }

    pub async fn pool_statuses(&self) -> Vec<PoolStatus> {
        self.storage.look().await;
        let state = self.state.lock().await;
        with_faults(self.storage.statuses().await, &state)
    }

    /// From memory: no disk is looked at.
    pub async fn known_pool_statuses(&self) -> Vec<PoolStatus> {
        let state = self.state.lock().await;
        with_faults(self.storage.known_statuses(), &state)
    }

    pub async fn pool_list(&self) -> Vec<PoolListed> {
        self.storage.look().await;
        let state = self.state.lock().await;
        let mut list = self.storage.listed();
        for name in state.pool_faults.keys() {
            let disks = state.config.pool(name).map(|p| p.disks.clone()).unwrap_or_default();
            list.push(translate::unavailable_listed(name, disks));
        }
        list
    }

    pub async fn pool_import(&self, request: PoolImport) -> Result<PoolStatus, Failure> {
        let mut state = self.state.lock().await;
        let memory = self.memory_per_pool(state.config.pools.len() + state.config.stores.len() + 1);
        let data = self.folder.path();
        check_names(&state.config, data, &request)?;
        if request.accept_loss.is_none() {
            self.check_not_open(&request)?;
        }
        // The labels may change at the import, and do not change back.
        self.check_writable_now()?;
        let options = import_options(&request, data);
        let pool = match &request.accept_loss {
            None => open_pool(options, memory).await?,
            Some(name) if self.storage.pool(Some(name)).is_ok() => {
                return Err(Failure::new(
                    FailureKind::Exists,
                    format!("the pool '{name}' is open: nothing of it is refused"),
                ));
            }
            Some(name) => {
                let disks = state.config.disks_of(name, request.disks.clone())?;
                open_pool(OpenOptions { disks, ..options }, memory).await?
            }
        };
        if self.storage.pool(Some(&pool.name)).is_ok() {
            let name = pool.name.clone();
            pool.close().await.map_err(as_failure)?;
            return Err(Failure::new(FailureKind::Exists, format!("a pool named '{name}' is open already")));
        }
        // Also those that were not named, or are away: the labels know them.
        let entry = PoolConfig { name: pool.name.clone(), disks: pool.disks_staying(), scrub: Schedule::default() };
        let status = pool.status();
        let pool = self.storage.add(pool);
        let config = state.config.clone();
        let saved = match pool.volumes().await {
            Ok(volumes) => {
                let set = |editor: &mut Editor| {
                    shares::take_in(editor, &config, &entry, &volumes);
                    Ok(())
                };
                self.edit(&mut state, set).await
            }
            Err(failure) => Err(as_failure(failure)),
        };
        if let Err(failure) = saved {
            self.storage.remove(&entry.name);
            pool.close().await.map_err(as_failure)?;
            return Err(failure);
        }
        state.pool_faults.remove(&entry.name);
        state.given_up.remove(&entry.name);
        Ok(status)
    }

    /// Refuses to import a pool that this daemon serves. Its locks would say that another process has it.
    fn check_not_open(&self, request: &PoolImport) -> Result<(), Failure> {
        let found = Pool::scan(&request.disks);
        let [found] = found.as_slice() else { return Ok(()) };
        let is_it = |open: &PoolStatus| open.id == found.id.to_string();
        match self.storage.known_statuses().iter().find(|open| is_it(open)) {
            None => Ok(()),
            Some(open) => {
                let name = &open.name;
                let failure = Failure::new(FailureKind::Exists, format!("the pool '{name}' is served here already"));
                let moved = found.disks.iter().find(|disk| {
                    disk.present
                        && open.disks.iter().any(|known| known.id == disk.id.to_string() && known.path != disk.path)
                });
                Err(failure.action(match moved {
                    Some(disk) => format!(
                        "its disk in {} is used with: larder pool online {name} {}",
                        disk.path.display(),
                        larder_base::shell::word(&disk.path)
                    ),
                    None => format!(
                        "nothing is to be done; a disk of it that is connected again is used with: larder pool clear {name}"
                    ),
                }))
            }
        }
    }

    /// Changes the disks or the layout of a pool, and the file with it. The labels know better than the file, so a file
    /// that cannot be written is only said.
    pub async fn pool_change(&self, name: &str, request: PoolChangeRequest) -> Result<PoolChangePlan, Failure> {
        let change = translate::change(request.change)?;
        let pool = self.storage.pool(Some(name)).map_err(as_failure)?;
        if request.dry_run {
            return pool.change(&change, true).await.map_err(as_failure);
        }
        let mut state = self.state.lock().await;
        let mut plan = pool.change(&change, false).await.map_err(as_failure)?;
        let disks = pool.disks_staying();
        let edited = self
            .edit(&mut state, |editor| {
                editor.set_pool_disks(name, &disks);
                Ok(())
            })
            .await;
        if let Err(failure) = edited {
            plan.warnings.push(format!("the configuration does not name the disks as they are now: {failure}"));
        }
        Ok(plan)
    }

    /// Gives a pool another name. Its volumes are closed for a moment; all that the file says of the old name is said of
    /// the new one. Unless forced to, not while a program uses a mount of it.
    pub async fn pool_rename(&self, old: &str, request: PoolRename) -> Result<PoolStatus, Failure> {
        let new = request.name.clone();
        check_name(&new).map_err(Failure::invalid)?;
        let mut state = self.state.lock().await;
        let pool = self.storage.pool(Some(old)).map_err(as_failure)?;
        pool.need_disks().map_err(as_failure)?;
        self.storage.check_no_journal(old).map_err(as_failure)?;
        check_free(&state.config, &new)?;
        let mut editor = Editor::open(&self.file)?;
        editor.rename_pool(old, &new);
        let staged = editor.stage()?;
        let anyway = (!request.force).then(|| format!("larder pool rename {old} {new} --force"));
        // The file comes first: on a full data folder it fails here, with the pool in service. If the rename is cut short
        // after it, the next start gives the labels the name in the file (`open_configured`).
        let config = self.commit_unmounted(staged, |volume| volume.pool == old, anyway).await?;
        self.mounts.remove_of(|volume| volume.pool == old).await;
        self.snapshot_runs.forget(|volume| volume.pool == old);
        self.storage.remove(old);
        self.apply_shares(&mut state).await;
        let disks = pool.disks();
        let closed = pool.close().await.map_err(as_failure);
        drop(pool);
        let memory = self.memory_per_pool(state.config.pools.len() + state.config.stores.len());
        let options = |name: &str, rename: Option<&str>| OpenOptions {
            name: Some(name.to_owned()),
            rename: rename.map(str::to_owned),
            last_lives: Some(last_lives::Remembered::of(self.folder.path())),
            ..OpenOptions::new(disks.clone())
        };
        let renamed = match closed {
            Ok(()) => open_pool(options(old, Some(&new)), memory).await,
            Err(failure) => Err(failure),
        };
        let (name, outcome) = match renamed {
            Ok(open) => {
                let status = open.status();
                self.storage.add(open);
                self.take(&mut state, config).await;
                (new.as_str(), Ok(status))
            }
            Err(failure) => {
                match open_pool(options(old, None), memory).await {
                    Ok(open) => _ = self.storage.add(open),
                    Err(fault) => _ = state.pool_faults.insert(old.to_owned(), fault),
                }
                let back = |editor: &mut Editor| {
                    editor.rename_pool(&new, old);
                    Ok(())
                };
                if let Err(undone) = self.edit(&mut state, back).await {
                    tracing::error!("the configuration calls the pool '{old}' '{new}' from now on: {}", undone.message);
                    self.apply(&mut state).await;
                }
                (old, Err(failure))
            }
        };
        let mounts: Vec<_> = state.config.mounts.iter().filter(|mount| mount.volume.pool == name).cloned().collect();
        self.mount_those_of_file(&[], &mounts).await;
        outcome
    }

    /// Stops serving the pool, closes it as exported and takes it out of the file. Unless forced to, not while a program
    /// uses a mount of it.
    pub async fn pool_export(&self, name: &str, request: TakeAway) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        let pool = self.storage.pool(Some(name)).map_err(as_failure)?;
        self.storage.check_no_journal(name).map_err(as_failure)?;
        let disks = pool.disks();
        self.take_out(&mut state, name, request, format!("larder pool export {name} --force")).await?;
        pool.export().await.map_err(|failure| {
            let why = as_failure(failure);
            let words = disks.iter().map(|disk| larder_base::shell::word(disk).to_string()).collect::<Vec<_>>();
            let message =
                format!("'{name}' is not served here any more, but is not marked as exported: {}", why.message);
            Failure { message, ..why }.action(format!("to serve it again: larder pool import {}", words.join(" ")))
        })
    }

    /// Nobody uses the pool afterwards, and the file does not name it.
    async fn take_out(&self, state: &mut State, name: &str, how: TakeAway, anyway: String) -> Result<(), Failure> {
        let is_of = |volume: &VolumeName| volume.pool == name;
        let mut editor = Editor::open(&self.file)?;
        editor.remove_pool(name);
        let staged = editor.stage()?;
        let anyway = (!how.force).then_some(anyway);
        let config = self.commit_unmounted(staged, is_of, anyway).await?;
        self.take(state, config).await;
        self.mounts.remove_of(is_of).await;
        self.snapshot_runs.forget(is_of);
        self.storage.remove(name);
        self.apply(state).await;
        Ok(())
    }

    /// Saves the file. With the words for doing it anyway, mounts go away first, or refuse it while a program uses one. Where the
    /// file is not saved, they are made again.
    async fn commit_unmounted(
        &self,
        staged: Staged,
        of: impl Fn(&VolumeName) -> bool,
        anyway: Option<String>,
    ) -> Result<Config, Failure> {
        let before = self.mounts.wanted_of(&of);
        let unmounted = match anyway {
            Some(anyway) => self.unmount_unused(&of, anyway).await,
            None => Ok(()),
        };
        let failure = match unmounted {
            Ok(()) => match staged.commit() {
                Ok(config) => return Ok(config),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        let still = self.mounts.wanted_of(&of);
        self.mount_those_of_file(&still, &before).await;
        Err(failure)
    }

    async fn unmount_unused(&self, of: impl Fn(&VolumeName) -> bool, anyway: String) -> Result<(), Failure> {
        let busy = self.mounts.remove_unused_of(of).await;
        busy.map_err(|in_use| in_use.action(format!("end what uses it, or take it away: {anyway}")))
    }

    pub async fn volume_create(&self, request: VolumeCreate) -> Result<VolumeStatus, Failure> {
        check_name(&request.name).map_err(Failure::invalid)?;
        let mut state = self.state.lock().await;
        let pool = self.storage.pool(request.pool.as_deref()).map_err(as_failure)?;
        let name = VolumeName { pool: pool.name.clone(), volume: request.name };
        let taken = state.config.shares.iter().any(|s| s.name.eq_ignore_ascii_case(&name.volume));
        if request.share && taken {
            return Err(Failure::new(FailureKind::Exists, format!("a share named '{}' exists already", name.volume))
                .action("choose another name, or make the volume without a share: --no-share"));
        }
        let properties = owner_quotas::numbered(&request.properties, &state.config)?;
        if request.share {
            check_share_name(&name.volume).map_err(Failure::invalid)?;
        }
        let mut status = create_volume(&pool, &name.volume, &properties, request.encrypt).await?;
        if request.share {
            let share = shares::default_share(&name.volume, Some(name.clone()), &state.config);
            let add = |editor: &mut Editor| {
                editor.add_share(&share);
                Ok(())
            };
            if let Err(failure) = self.edit(&mut state, add).await {
                // Nobody has used it yet.
                return Err(match pool.destroy(&name.volume).await {
                    Ok(()) => failure,
                    Err(_) => failure.action(format!(
                        "the volume {name} was made, without a share; remove it with: larder volume destroy {name}"
                    )),
                });
            }
            status.shared = Some(Box::new(shares::status(&share, &state.config)));
        }
        self.snapshot_runs.wake();
        Ok(status)
    }

    /// Unlocks or locks a volume, with its shares and mounts, or changes what opens it.
    pub async fn change_keys(&self, name: &str, request: KeysRequest) -> Result<KeysStatus, Failure> {
        let request = match request {
            KeysRequest::Encrypt { encrypt, force } => return self.encrypt(name, encrypt, force).await,
            KeysRequest::Rekey(rekey) => return self.rekey(name, rekey).await,
            other => other,
        };
        let mut state = self.state.lock().await;
        let (pool, volume) = self.storage.find(name).await.map_err(as_failure)?;
        let of = VolumeName { pool: pool.name.clone(), volume: volume.clone() };
        match request {
            KeysRequest::Unlock { secret } => {
                pool.unlock(&volume, secret_of(secret).map_err(as_failure)?).await.map_err(as_failure)?;
                self.apply_shares(&mut state).await;
                let mounts: Vec<_> = state.config.mounts.iter().filter(|mount| mount.volume == of).cloned().collect();
                self.mount_those_of_file(&[], &mounts).await;
            }
            KeysRequest::Lock { force } => {
                if !force {
                    let anyway = format!("larder volume lock {name} --force");
                    self.check_unused(&pool, &of, "lock it", anyway).await?;
                }
                if let Some(forgotten) = pool.forget_keys(&volume).await.map_err(as_failure)? {
                    self.detach(&mut state, &of).await;
                    drop(self.mounts.take_aside(&of));
                    let closed = pool.close_locked(&volume, forgotten).await;
                    if closed.is_err() {
                        self.apply_shares(&mut state).await;
                    }
                    // The schedule says from now on why it takes none.
                    self.snapshot_runs.wake();
                    closed.map_err(as_failure)?;
                }
            }
            other => {
                let changed = pool.change_keys(&volume, other).await;
                // Replicas get it at once (`replication.keys_follow`).
                self.replication.wake();
                return changed.map_err(as_failure);
            }
        }
        pool.keys_status(&volume).await.map_err(as_failure)
    }

    pub async fn volume_set(&self, name: &str, change: VolumeChange) -> Result<VolumeStatus, Failure> {
        let mut state = self.state.lock().await;
        let (pool, volume) = self.storage.find(name).await.map_err(as_failure)?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        let mut editor = Editor::open(&self.file)?;
        editor.set_volume(&name, &change);
        let staged = editor.stage()?;
        let infos = pool.registry.list().await;
        let infos = infos.map_err(|error| as_failure(pool.failure(&name.volume, &error)))?;
        let before = infos.into_iter().find(|info| info.name == name.volume).map(|info| info.properties);
        let change = owner_quotas::numbered(&change, &state.config)?;
        let status = pool.set(&name.volume, &change).await.map_err(as_failure)?;
        match staged.commit() {
            Ok(config) => self.take(&mut state, config).await,
            Err(failure) => {
                if let Some(properties) = before
                    && let Err(error) = pool.registry.set(&name.volume, properties).await
                {
                    tracing::error!("the properties of {name} could not be taken back: {error}");
                }
                return Err(failure);
            }
        }
        Ok(status)
    }

    /// Takes the shares and mounts of the volume away, then the volume. Unless forced to, not while a program uses a mount.
    pub async fn volume_destroy(&self, name: &str, request: TakeAway) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        let (pool, volume) = self.storage.find(name).await.map_err(as_failure)?;
        if !pool.volumes().await.map_err(as_failure)?.iter().any(|v| v.name == volume) {
            return Err(Failure::not_found(format!("there is no volume '{}/{volume}'", pool.name)));
        }
        pool.may_be_destroyed(&volume, request.with_snapshots).await.map_err(as_failure)?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        let mut editor = Editor::open(&self.file)?;
        editor.remove_volume(&name);
        let staged = editor.stage()?;
        let anyway = (!request.force).then(|| format!("larder volume destroy {name} --force"));
        let config = self.commit_unmounted(staged, |mounted| *mounted == name, anyway).await?;
        self.take(&mut state, config).await;
        self.mounts.remove_of(|mounted| *mounted == name).await;
        self.snapshot_runs.forget(|scheduled| *scheduled == name);
        pool.destroy(&name.volume).await.map_err(as_failure)
    }

    pub async fn mount(&self, request: MountRequest) -> Result<MountStatus, Failure> {
        let (pool, volume) = match &request.volume {
            Some(name) => self.storage.find(name).await.map_err(as_failure)?,
            None => self.only_volume().await?,
        };
        let name = VolumeName { pool: pool.name.clone(), volume };
        let MountRequest { dir, options, snapshot, .. } = request;
        let mut wanted = MountConfig { dir, volume: name, options, snapshot };
        let mut status = self.mount_one(&wanted).await?;
        if request.at_start {
            wanted.dir.clone_from(&status.dir);
            let mut state = self.state.lock().await;
            let set = |editor: &mut Editor| {
                editor.set_mount(&wanted);
                Ok(())
            };
            if let Err(failure) = self.edit(&mut state, set).await {
                let _ = self.mounts.remove(&status.dir).await;
                return Err(failure);
            }
            status.at_start = true;
        }
        Ok(status)
    }

    async fn mount_one(&self, wanted: &MountConfig) -> Result<MountStatus, Failure> {
        let options = mount_options(&wanted.options).map_err(Failure::invalid)?;
        let files = self.storage.files(&wanted.volume).await.map_err(as_failure)?;
        let mut options = MountOptions { source: wanted.volume.to_string(), ..options };
        if let Some(snapshot) = &wanted.snapshot {
            let name = format!("{}@{snapshot}", wanted.volume);
            let found = self.storage.volume(&wanted.volume).await.map_err(as_failure)?.snapshot_root(snapshot).await;
            options.top = found.map_err(|error| translate::snapshot_failure(&name, &error))?.id.ino;
            options.read_only = true;
            options.source = name;
        }
        self.mounts.add(wanted, files, options).await
    }

    /// Makes the mounts that the file names now and did not before; one that fails is only told, as with shares.
    async fn mount_those_of_file(&self, before: &[MountConfig], now: &[MountConfig]) -> Vec<String> {
        let mut faults = Vec::new();
        for mount in now.iter().filter(|mount| !before.contains(mount)) {
            if let Err(failure) = self.mount_one(mount).await {
                tracing::error!("{} is not mounted: {}", mount.dir.display(), failure.message);
                faults.push(format!("{} is not mounted: {}", mount.dir.display(), failure.message));
            }
        }
        faults
    }

    async fn only_volume(&self) -> Result<(std::sync::Arc<Store>, String), Failure> {
        let volumes = self.storage.volumes().await.map_err(as_failure)?;
        match volumes.as_slice() {
            [one] => Ok((self.storage.pool(Some(&one.pool)).map_err(as_failure)?, one.name.clone())),
            [] => Err(Failure::not_found("there is no volume").action("make one with: larder volume create NAME")),
            many => {
                let names: Vec<String> = many.iter().map(|v| format!("{}/{}", v.pool, v.name)).collect();
                Err(Failure::invalid(format!("there are several volumes ({})", names.join(", ")))
                    .action("name one with --volume POOL/VOLUME"))
            }
        }
    }

    /// Places of this larder that an import must not copy.
    pub fn own_places(&self) -> imports::Own {
        let mounts = self.mounts.list().into_iter().map(|mount| mount.dir).collect();
        imports::Own { disks: self.storage.disks(), mounts }
    }

    pub async fn mounts(&self) -> Vec<MountStatus> {
        let named = self.state.lock().await.config.mounts.clone();
        let mut list = self.mounts.list();
        list.iter_mut().for_each(|status| status.at_start = named.iter().any(|mount| mount.dir == status.dir));
        list
    }

    pub async fn unmount(&self, request: &UnmountRequest) -> Result<(), Failure> {
        if !request.at_start {
            return self.mounts.remove(&request.dir).await;
        }
        let mut state = self.state.lock().await;
        let before: Vec<_> =
            self.mounts.wanted_of(|_| true).into_iter().filter(|mount| mount.dir == request.dir).collect();
        let mut editor = Editor::open(&self.file)?;
        if !editor.remove_mount(&request.dir) && before.is_empty() {
            return Err(Failure::not_found(format!("{} is no mount of the configuration", request.dir.display())));
        }
        let staged = editor.stage()?;
        if !before.is_empty() {
            self.mounts.remove(&request.dir).await?;
        }
        match staged.commit() {
            Ok(config) => {
                self.take(&mut state, config).await;
                Ok(())
            }
            Err(failure) => {
                self.mount_those_of_file(&[], &before).await;
                Err(failure)
            }
        }
    }

    /// Makes everything durable and closes it, in order (`daemon.stop_in_order`).
    pub async fn stop(&self, serving: Serving) -> Result<(), Failure> {
        self.setup_offer.end().await;
        self.benches.end().await;
        self.announcer.stop().await;
        self.servers.end_page_streams();
        serving.stop().await;
        self.servers.end_page();
        self.servers.set_exports(Vec::new(), Owners::default());
        if let Err(failure) = self.servers.set_shares(Vec::new(), Vec::new()).await {
            tracing::warn!("{failure}");
        }
        self.mounts.remove_of(|_| true).await;
        self.keep_record_at_last().await;
        self.storage.close().await.map_err(as_failure)
    }
}

/// Pools that could not be opened beside those that are.
fn with_faults(mut list: Vec<PoolStatus>, state: &State) -> Vec<PoolStatus> {
    for (name, failure) in &state.pool_faults {
        let disks = state.config.pool(name).map(|p| p.disks.clone()).unwrap_or_default();
        list.push(translate::unavailable_pool(name, &disks, failure));
    }
    list
}

/// Opens a pool with its volumes.
pub async fn open_pool(options: OpenOptions, memory: ByteSize) -> Result<Store, Failure> {
    let pool = Pool::open(options).await.map_err(|e| translate::pool_failure(&e))?;
    Store::start(pool, memory).await.map_err(as_failure)
}

/// Opens a pool of the configuration in this data folder.
pub async fn open_configured(
    pool: &PoolConfig,
    data: &Path,
    force: bool,
    degraded: bool,
    memory: ByteSize,
) -> Result<Store, Failure> {
    open_pool(configured(pool, data, force, degraded), memory).await
}

/// How a pool of the configuration is opened.
fn configured(pool: &PoolConfig, data: &Path, force: bool, degraded: bool) -> OpenOptions {
    let memory_of_lives = last_lives::Remembered::of(data);
    let mut options = OpenOptions {
        force,
        degraded,
        name: Some(pool.name.clone()),
        last_lives: Some(memory_of_lives.clone()),
        ..OpenOptions::new(pool.disks.clone())
    };
    // Giving it another name was cut short: the file has the new one, the labels have the old.
    if let [found] = Pool::scan(&pool.disks).as_slice()
        && found.name != pool.name
        && memory_of_lives.knows(&found.id.to_string())
    {
        tracing::info!("the pool '{}' is called '{}' from now on, as the configuration says", found.name, pool.name);
        (options.name, options.rename) = (Some(found.id.to_string()), Some(pool.name.clone()));
    }
    options
}

/// A person asks for this pool.
pub fn import_options(request: &PoolImport, data: &Path) -> OpenOptions {
    OpenOptions {
        force: request.force,
        degraded: request.degraded,
        by_hand: true,
        name: request.accept_loss.clone().or_else(|| request.pool.clone()),
        accept_loss: request.accept_loss.is_some(),
        rename: request.rename.clone(),
        last_lives: Some(last_lives::Remembered::of(data)),
        ..OpenOptions::new(request.disks.clone())
    }
}

/// Refuses a name that a pool or store has here.
pub fn check_free(config: &Config, name: &str) -> Result<(), Failure> {
    match config.has_ground(name) {
        true => Err(Failure::new(FailureKind::Exists, format!("a pool or store is called '{name}' here already"))
            .action("choose another name; see which there are with: larder pool list")),
        false => Ok(()),
    }
}

/// Refuses an import under a name that another pool or store has here. Nothing is opened yet.
pub fn check_names(config: &Config, data: &Path, request: &PoolImport) -> Result<(), Failure> {
    let asked = request.pool.as_ref().or(request.accept_loss.as_ref());
    let is_asked = |found: &larder_pool::FoundPool| {
        asked.is_none_or(|name| found.name == *name || found.id.to_string().starts_with(name.as_str()))
    };
    let mut found: Vec<_> = Pool::scan(&request.disks).into_iter().filter(is_asked).collect();
    found.sort_by_key(|pool| std::cmp::Reverse(pool.disks.iter().filter(|disk| disk.present).count()));
    let Some(pool) = found.first() else { return Ok(()) };
    let name = request.rename.as_ref().unwrap_or(&pool.name);
    if let Some(new) = &request.rename {
        check_name(new).map_err(Failure::invalid)?;
    }
    if !config.has_ground(name) || is_configured(config, data, name, &pool.id.to_string()) {
        return Ok(());
    }
    let words: Vec<String> = request.disks.iter().map(|disk| larder_base::shell::word(disk)).collect();
    let (words, id) = (words.join(" "), pool.id);
    let message = format!("another pool or store is called '{name}' here, and this one (id {id}) is not it");
    let action = format!(
        "give this one another name: larder pool import {words} --as {name}-2; or the other one: larder pool rename {name} NEW-NAME"
    );
    Err(Failure::new(FailureKind::Exists, message).action(action))
}

/// Whether the pool of this name in the configuration is the one with this id, as far as anybody can tell: its disks
/// may be away, or have moved.
fn is_configured(config: &Config, data: &Path, name: &str, id: &str) -> bool {
    let Some(known) = config.pool(name) else { return false };
    let there = Pool::scan(&known.disks);
    if there.iter().any(|pool| pool.id.to_string() == id) {
        return true;
    }
    match last_lives::Remembered::of(data).id_of(name) {
        Some(remembered) => remembered == id,
        None => there.iter().all(|pool| pool.name != name),
    }
}

/// A new volume belongs to whoever runs larder; like /tmp, everybody may write into its top folder and
/// nobody may remove what is another's there.
pub async fn create_volume(
    pool: &Store,
    name: &str,
    change: &VolumeChange,
    encrypt: Option<Encrypt>,
) -> Result<VolumeStatus, Failure> {
    use larder_fs::{Cred, Ino, SetAttr};
    check_name(name).map_err(Failure::invalid)?;
    let status = pool.create(name, change, encrypt).await.map_err(as_failure)?;
    let (uid, gid) = machine::owner();
    let set = SetAttr { mode: Some(0o1777), uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    let volume = pool.volume(name).await.map_err(as_failure)?;
    volume
        .setattr(&Cred::root(), Ino::ROOT, set)
        .await
        .map_err(|e| translate::volume_failure(format_args!("the top folder of '{}/{name}'", pool.name), &e))?;
    Ok(status)
}
