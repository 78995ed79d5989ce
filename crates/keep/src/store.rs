//! A pool, or a store in a bucket, that this process has open: the questions that it and its volumes answer.
//!
//! - `storage.closing_order`: volumes are closed first (they flush into the pool), then the pool
//!   (it releases its disks).

use std::path::PathBuf;
use std::sync::Arc;

use larder_api::{CheckResult, Encrypt, Failure, PoolChangePlan, PoolListed, PoolStatus, VolumeChange, VolumeStatus};
use larder_base::units::ByteSize;
use larder_base::{SystemClock, boxed};
use larder_files::{Files, Services};
use larder_fs::{Cred, FsError};
use larder_pool::{Change, Pool};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, Volume, VolumeInfo};

use crate::bucket::{CLOSE_WAIT_MAX, OpenBucket, Taking};
use crate::damage::VolumesOf;
use crate::import_tasks::Imports;
use crate::keyrings::{self, Unlocked};
use crate::passes::Passes;
use crate::settings::StoreSettings;
use crate::uses::{Patience, Uses};
use crate::{snapshot_words, translate};

/// What volumes stand on.
pub(crate) enum Ground {
    Pool(Arc<Pool>),
    Bucket(Arc<OpenBucket>),
}

/// A pool, or a store in a bucket, with the registry of its volumes.
pub struct Store {
    pub name: String,
    pub(crate) ground: Ground,
    pub registry: Arc<Registry>,
    pub unlocked: Arc<Unlocked>,
    services: Services,
    pub(crate) passes: Passes,
    /// Volumes that are closed for a moment: taken back to a snapshot, or given other keys.
    pub(crate) closed: parking_lot::Mutex<std::collections::HashSet<String>>,
    pub imports: Imports,
    pub uses: Uses,
    /// The last time that a stream into each replica was refused in the log.
    pub(crate) refusals: parking_lot::Mutex<std::collections::HashMap<String, std::time::Instant>>,
    /// The last list of the volumes (`volumes.listed_from_memory`).
    listed: parking_lot::Mutex<Option<Listed>>,
}

/// A list of volumes, and the state of the pool that it was read in.
///
/// - `volumes.listed_from_memory`: a list of volumes holds until something is written to the pool or its volumes in memory,
///   or keys come or go. Until then it is answered again, and no disk is read.
struct Listed {
    state: ListedState,
    volumes: Vec<(VolumeInfo, VolumeStatus)>,
}

/// Bytes written to the disks, and those that open volumes have written and stored.
type ListedState = (u64, Option<(u64, u64)>);

/// A stream of the journal, for one entry that proves that it takes entries.
const PROBE_STREAM: &str = "takes-entries";

/// What makes volumes store again that had stopped.
pub enum Remedy {
    /// To open these anew.
    OpenAnew(Vec<String>),
    /// To open the pool anew: its journal takes nothing more.
    PoolAnew,
}

/// The volume asks how much room there is; the pool knows.
struct PoolSpace(Arc<Pool>);

impl Space for PoolSpace {
    fn space(&self) -> (u64, u64) {
        self.0.space()
    }

    fn is_away(&self) -> bool {
        !self.0.takes_writes()
    }
}

/// How long a status waits for the disks.
const CHECK_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);

impl Store {
    /// Opens the registry on a pool already open.
    #[boxed]
    pub async fn start(pool: Pool, memory: ByteSize) -> Result<Self, Failure> {
        Self::start_unlocked(pool, memory, Arc::default()).await
    }

    /// As `start`, for the pool of a store that was closed: volumes stay unlocked.
    #[boxed]
    pub async fn start_again(&self, pool: Pool, memory: ByteSize) -> Result<Self, Failure> {
        Self::start_unlocked(pool, memory, Arc::clone(&self.unlocked)).await
    }

    async fn start_unlocked(pool: Pool, memory: ByteSize, unlocked: Arc<Unlocked>) -> Result<Self, Failure> {
        let name = pool.name().to_owned();
        let pool = Arc::new(pool);
        let backing = Backing {
            store: pool.store(),
            log: Some(pool.log()),
            space: Arc::new(PoolSpace(pool.clone())),
            clock: Arc::new(SystemClock::default()),
        };
        let memory = MemoryBudget { total_bytes: memory.0 };
        match Registry::open_sealed(backing, memory, Arc::clone(&unlocked) as _).await {
            Ok(registry) => {
                let registry = Arc::new(registry);
                pool.used_by(Arc::new(VolumesOf(Arc::downgrade(&registry))));
                Ok(Self::of(name, Ground::Pool(pool), registry, unlocked))
            }
            Err(error) => {
                // The registry's failure is the one to tell.
                let _ = pool.close().await;
                Err(translate::volume_error(format_args!("the volumes of pool '{name}'"), &error))
            }
        }
    }

    /// Takes a store in a bucket and opens the registry of its volumes.
    #[boxed]
    pub async fn start_bucket(config: &StoreSettings, taking: Taking, memory: ByteSize) -> Result<Self, Failure> {
        if let Some(seconds) = config.read_only {
            return Self::follow_bucket(config, std::time::Duration::from_secs(seconds), memory).await;
        }
        let (name, bucket) = (config.name.clone(), OpenBucket::take(config, taking).await?);
        let unlocked = Arc::<Unlocked>::default();
        let memory = MemoryBudget { total_bytes: memory.0 };
        let opened = Registry::open_seat(bucket.backing(), memory, Arc::clone(&unlocked) as _, config.seat.clone());
        match opened.await {
            Ok(registry) => Ok(Self::of(name, Ground::Bucket(Arc::new(bucket)), Arc::new(registry), unlocked)),
            Err(error) => {
                bucket.close().await;
                Err(translate::volume_error(format_args!("the volumes of the store '{name}'"), &error))
            }
        }
    }

    /// Opens the volumes of a store that another machine writes.
    pub(crate) async fn follow_bucket(
        config: &StoreSettings,
        behind_max: std::time::Duration,
        memory: ByteSize,
    ) -> Result<Self, Failure> {
        let (name, bucket) = (config.name.clone(), OpenBucket::follow(config)?);
        let unlocked = Arc::<Unlocked>::default();
        let memory = MemoryBudget { total_bytes: memory.0 };
        let opened = Registry::open_followed(bucket.backing(), memory, Arc::clone(&unlocked) as _, behind_max).await;
        let registry = opened
            .map_err(|error| translate::volume_error(format_args!("the volumes of the store '{name}'"), &error))?;
        Ok(Self::of(name, Ground::Bucket(Arc::new(bucket)), Arc::new(registry), unlocked))
    }

    /// Whether another machine writes the volumes.
    pub fn is_read_only(&self) -> bool {
        matches!(&self.ground, Ground::Bucket(bucket) if bucket.is_read_only())
    }

    fn of(name: String, ground: Ground, registry: Arc<Registry>, unlocked: Arc<Unlocked>) -> Self {
        let (services, passes, closed, imports, uses, refusals, listed) = Default::default();
        Self { name, ground, registry, unlocked, services, passes, closed, imports, uses, refusals, listed }
    }

    /// The pool, unless the volumes lie in a bucket.
    pub fn disk_pool(&self) -> Option<&Arc<Pool>> {
        match &self.ground {
            Ground::Pool(pool) => Some(pool),
            Ground::Bucket(_) => None,
        }
    }

    pub fn bucket(&self) -> Option<&Arc<OpenBucket>> {
        match &self.ground {
            Ground::Pool(_) => None,
            Ground::Bucket(bucket) => Some(bucket),
        }
    }

    /// The pool, for what only pools can do.
    pub fn need_disks(&self) -> Result<&Arc<Pool>, Failure> {
        self.disk_pool().ok_or_else(|| {
            Failure::invalid(format!("'{}' is a store in a bucket: it has no disks of its own", self.name))
                .action("redundancy and repair are the bucket's; verify the files with: larder check --read-data")
        })
    }

    pub fn has_disks(&self) -> bool {
        self.disk_pool().is_some()
    }

    /// All objects, those of encrypted volumes as they lie there.
    pub fn store(&self) -> Arc<dyn object_store::ObjectStore> {
        match &self.ground {
            Ground::Pool(pool) => pool.store(),
            Ground::Bucket(bucket) => bucket.store(),
        }
    }

    /// Finds out which disks are gone or back. A disk that hangs delays the answer only so long.
    #[boxed]
    pub async fn look(&self) {
        let Some(pool) = self.disk_pool() else { return };
        match tokio::time::timeout(CHECK_WAIT_MAX, pool.check()).await {
            Ok(Ok(())) => {}
            // The known state is shown all the same.
            Ok(Err(error)) => tracing::warn!(pool = %self.name, %error, "cannot check the disks"),
            Err(_) => tracing::warn!(pool = %self.name, "checking the disks takes long"),
        }
    }

    pub fn status(&self) -> PoolStatus {
        let status = match &self.ground {
            Ground::Pool(pool) => translate::pool_status(pool.status()),
            Ground::Bucket(bucket) => bucket.status(self.used(), self.registry.behind()),
        };
        let status = PoolStatus { available_bytes: self.registry.writable().min(status.total_bytes), ..status };
        self.with_stopped_volumes(status)
    }

    /// A pool whose volumes take no writes is not well, whatever its disks are by now.
    fn with_stopped_volumes(&self, status: PoolStatus) -> PoolStatus {
        let failed = if self.has_disks() { self.registry.failed() } else { Vec::new() };
        if failed.is_empty() || status.state == "FAULTED" {
            return status;
        }
        let volumes = failed.iter().map(|name| format!("{}/{name}", self.name)).collect::<Vec<_>>().join(", ");
        let text = format!(
            "{volumes}: nothing can be stored there since the disks failed while it was written. What was acknowledged is on them."
        );
        let action = "It is opened anew by itself once the disks take writes.".to_owned();
        let also = status.status.map_or_else(String::new, |more| format!(" {more}"));
        PoolStatus { state: "FAULTED".to_owned(), status: Some(text + &also), action: Some(action), ..status }
    }

    /// Objects with less redundancy than they should have, as a problem in words.
    pub fn owed(&self) -> Option<String> {
        let status = self.disk_pool()?.status();
        let n = status.owed_objects;
        let text = format!(
            "pool '{}': {n} of its {} objects have fewer copies or parity pieces than the layout says; see: larder pool status {}",
            self.name, status.objects, self.name
        );
        (n > 0).then_some(text)
    }

    fn used(&self) -> larder_store::Use {
        let totals = self.registry.totals();
        let stored_bytes = totals.map(|(_, stored)| stored).filter(|_| !self.is_read_only());
        larder_store::Use { written_bytes: totals.map_or(0, |(written, _)| written), stored_bytes }
    }

    pub fn disks(&self) -> Vec<PathBuf> {
        self.disk_pool().map_or_else(Vec::new, |pool| pool.disks())
    }

    /// Its disks without those that leave: what the configuration names.
    pub fn disks_staying(&self) -> Vec<PathBuf> {
        let disks = self.disk_pool().map_or_else(Vec::new, |pool| pool.status().disks);
        disks.into_iter().filter(|disk| !disk.leaving).map(|disk| disk.path).collect()
    }

    /// Foreign, duplicated and stale disks among those that it was opened with.
    pub fn notes(&self) -> Vec<String> {
        self.disk_pool().map_or_else(Vec::new, |pool| pool.status().notes)
    }

    /// The folders of its disks, if all are there and none leaves.
    pub fn disks_if_whole(&self) -> Option<Vec<PathBuf>> {
        let status = self.disk_pool()?.status();
        let is_there = |disk: &larder_pool::DiskStatus| disk.state == larder_pool::DiskState::Online && !disk.leaving;
        status.disks.iter().all(is_there).then(|| status.disks.into_iter().map(|disk| disk.path).collect())
    }

    /// Changes the disks or the layout; `dry_run` only says what that would mean.
    #[boxed]
    pub async fn change(&self, change: &Change, dry_run: bool) -> Result<PoolChangePlan, Failure> {
        let pool = self.need_disks()?;
        if dry_run {
            let plan = pool.plan_change(change).await;
            return plan.map(translate::change_plan).map_err(|e| translate::pool_error(&e));
        }
        let (snapshots, notes) = match change {
            Change::Rebalance { layout: Some(_), .. } => {
                // A change that is refused leaves none behind.
                pool.plan_change(change).await.map_err(|e| translate::pool_error(&e))?;
                self.snapshots_before("before-layout-").await?
            }
            _ => Default::default(),
        };
        let mut plan = pool.change(change).await.map(translate::change_plan).map_err(|e| translate::pool_error(&e))?;
        plan.warnings.extend(notes);
        Ok(PoolChangePlan { snapshots, ..plan })
    }

    /// Takes a snapshot of each volume that can be opened. Returns their full names, and the reasons why others have none.
    async fn snapshots_before(&self, word: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
        let (mut taken, mut notes) = (Vec::new(), Vec::new());
        let infos = self.registry.list().await;
        let infos = infos.map_err(|e| translate::volume_error(format_args!("the volumes of '{}'", self.name), &e))?;
        for info in infos.iter().filter(|info| !info.replica) {
            let volume = &info.name;
            let open = match self.registry.volume(volume).await {
                Ok(open) => open,
                Err(error) => {
                    let why = self.failure(volume, &error).message;
                    notes.push(format!("no snapshot of '{volume}' was taken: {why}"));
                    continue;
                }
            };
            let name = snapshot_words::free_name_after(&open, word);
            let full = format!("{}/{volume}@{name}", self.name);
            open.snapshot(&name).await.map_err(|error| snapshot_words::snapshot_error(&full, &error))?;
            taken.push(full);
        }
        Ok((taken, notes))
    }

    pub fn listed(&self) -> PoolListed {
        let status = self.status();
        PoolListed {
            name: status.name,
            id: status.id,
            layout: status.layout,
            state: status.state,
            total_bytes: status.total_bytes,
            used_bytes: status.used_bytes,
            available_bytes: status.available_bytes,
            disks: status.disks.into_iter().map(|d| d.path).collect(),
        }
    }

    /// Lets go of the changes that were acknowledged from a journal and never reached the store.
    #[boxed]
    pub async fn forget_lost(&self) -> Result<(), Failure> {
        match self.bucket() {
            Some(bucket) => bucket.forget_lost().await,
            None => Err(Failure::invalid(format!("'{}' is a pool, not a store in a bucket", self.name))),
        }
    }

    pub fn give_back_memory(&self) -> u64 {
        self.registry.give_back_memory()
    }

    pub fn give_some_memory_back(&self) -> u64 {
        self.registry.give_some_memory_back()
    }

    #[boxed]
    pub async fn clear(&self) -> Result<(), Failure> {
        self.need_disks()?.clear().await.map_err(|e| translate::pool_error(&e))
    }

    #[boxed]
    pub async fn metrics(&self, out: &mut larder_base::metrics::Metrics) {
        match &self.ground {
            Ground::Pool(pool) => pool.metrics(out),
            Ground::Bucket(bucket) => bucket.metrics(self.used(), self.registry.behind(), out),
        }
        self.registry.metrics(&self.name, out).await;
    }

    pub fn history(&self) -> larder_api::PoolHistory {
        translate::history(&self.name, self.disk_pool().map_or_else(Vec::new, |pool| pool.history()))
    }

    /// The file service that doors share.
    #[boxed]
    pub async fn files(&self, name: &str) -> Result<Files, Failure> {
        self.volume(name).await.map(|volume| self.services.of(volume))
    }

    #[boxed]
    pub async fn volume(&self, name: &str) -> Result<Volume, Failure> {
        if self.closed.lock().contains(name) {
            let message = format!("the volume '{}/{name}' is closed for a moment", self.name);
            return Err(Failure::busy(message).action("try again in a moment"));
        }
        self.volume_anyway(name).await
    }

    /// For the work that a volume is closed for.
    #[boxed]
    pub async fn volume_anyway(&self, name: &str) -> Result<Volume, Failure> {
        self.registry.volume(name).await.map_err(|e| self.failure(name, &e))
    }

    /// Nobody gets the volume, until [`Store::open_again`].
    pub fn close_for_now(&self, name: &str) {
        self.closed.lock().insert(name.to_owned());
    }

    pub fn open_again(&self, name: &str) {
        self.closed.lock().remove(name);
    }

    /// Whether something in it stores nothing until it is opened anew.
    pub fn has_stopped(&self) -> bool {
        self.disk_pool().is_some_and(|pool| pool.stopped().is_some() || !self.registry.failed().is_empty())
    }

    /// Whether too few disks take writes for anything to be stored.
    pub fn lacks_disks(&self) -> bool {
        self.disk_pool().is_some_and(|pool| !pool.takes_writes())
    }

    /// What makes the volumes of a pool store again that had stopped while its disks were away. Nothing does as long as the
    /// disks take no writes.
    #[boxed]
    pub async fn remedy(&self) -> Option<Remedy> {
        let pool = self.disk_pool().filter(|_| self.has_stopped())?;
        if !pool.takes_writes() {
            // Nobody writes any more, who would find out that they are back.
            self.look().await;
        }
        if !pool.takes_writes() {
            return None;
        }
        // The journal proves that it takes an entry: once none of its copies could be written it takes none.
        let log = pool.log();
        let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let proven = log.append(PROBE_STREAM, since_1970.as_secs(), Vec::new()).await;
        // What stays of it is one empty entry.
        let _ = log.remove(PROBE_STREAM).await;
        Some(if proven.is_ok() { Remedy::OpenAnew(self.registry.failed()) } else { Remedy::PoolAnew })
    }

    /// Opens a volume anew that had stopped storing, as after a crash. Its doors are closed.
    #[boxed]
    pub async fn open_anew(&self, volume: &str) -> Result<(), Failure> {
        let patience = Patience::from_now();
        loop {
            match self.registry.open_anew(volume).await {
                Err(FsError::Busy(_)) if patience.is_left() => patience.pause().await,
                Err(FsError::Busy(_)) => return Err(self.still_in_use(volume, "it is not opened anew")),
                opened => return opened.map_err(|error| self.failure(volume, &error)),
            }
        }
    }

    #[boxed]
    pub async fn volumes(&self) -> Result<Vec<VolumeStatus>, Failure> {
        let state = self.listed_state();
        if let Some(list) = self.listed_before(state) {
            return Ok(list);
        }
        let infos = match self.registry.list().await {
            Ok(infos) => infos,
            // What was there before its disks went away: volumes of other pools are shown beside it.
            Err(e) => {
                let failed = || translate::volume_error(format_args!("the volumes of '{}'", self.name), &e);
                return self.listed_last().filter(|_| self.lacks_disks()).ok_or_else(failed);
            }
        };
        let mut volumes = Vec::with_capacity(infos.len());
        for info in infos {
            let status = self.status_of(&info).await;
            volumes.push((info, status));
        }
        let list = volumes.iter().map(|(_, status)| status.clone()).collect();
        *self.listed.lock() = state.map(|state| Listed { state, volumes });
        Ok(list)
    }

    /// `None` for a store in a bucket: other machines write it, too.
    fn listed_state(&self) -> Option<ListedState> {
        let disks = self.disk_pool()?.disk_times();
        let written = disks.iter().fold(0u64, |sum, disk| sum.saturating_add(disk.written_bytes));
        Some((written, self.registry.totals()))
    }

    fn listed_last(&self) -> Option<Vec<VolumeStatus>> {
        let listed = self.listed.lock();
        listed.as_ref().map(|last| last.volumes.iter().map(|(_, status)| status.clone()).collect())
    }

    /// `volumes.listed_from_memory`
    fn listed_before(&self, state: Option<ListedState>) -> Option<Vec<VolumeStatus>> {
        let listed = self.listed.lock();
        let before = listed.as_ref().filter(|before| Some(before.state) == state)?;
        let holds = |(info, status): &(VolumeInfo, VolumeStatus)| {
            // What is sealed anew moves on by itself.
            self.is_locked(info) == status.locked && info.sealing.is_none()
        };
        before.volumes.iter().all(holds).then(|| before.volumes.iter().map(|(_, status)| status.clone()).collect())
    }

    /// With how full it is, where it can be opened.
    #[boxed]
    pub async fn status_of(&self, info: &VolumeInfo) -> VolumeStatus {
        let opened = match info.copy {
            true => self.registry.copied(&info.name).await,
            false => self.registry.volume(&info.name).await,
        };
        let open = opened.ok().map(|volume| (volume.statfs(&Cred::root()), volume.contents()));
        let mut status = translate::volume_status(&self.name, info, open);
        if info.replica && !info.copy {
            status.stored_bytes = self.registry.replica(&info.name).await.ok().map(|replica| replica.bytes);
        }
        let sealing = self.passes.status(info);
        VolumeStatus { encryption: self.cipher_of(info).await, locked: self.is_locked(info), sealing, ..status }
    }

    #[boxed]
    pub async fn create(
        &self,
        name: &str,
        change: &VolumeChange,
        encrypt: Option<Encrypt>,
    ) -> Result<VolumeStatus, Failure> {
        let properties = translate::changed(Properties::default(), change)?;
        if let Some(encrypt) = encrypt {
            return self.create_sealed(name, properties, encrypt).await;
        }
        let info = self.registry.create(name, properties).await.map_err(|e| self.failure(name, &e))?;
        Ok(self.status_of(&info).await)
    }

    /// Makes a volume that snapshots of another are copied into, with properties that differ from `properties` as `change` says.
    /// Returns the recovery key, if one was asked for.
    #[boxed]
    pub async fn create_copy(
        &self,
        name: &str,
        properties: Properties,
        change: &VolumeChange,
        encrypt: Option<Encrypt>,
    ) -> Result<Option<String>, Failure> {
        let properties = translate::changed(properties, change)?;
        if let Some(encrypt) = encrypt {
            return Ok(self.create_sealed_as(name, properties, encrypt, true).await?.recovery_key);
        }
        let made = match self.registry.enter_copy(name, properties, false).await {
            Ok(_) => self.registry.copied(name).await.map(drop),
            Err(error) => Err(error),
        };
        made.map(|()| None).map_err(|error| self.failure(name, &error))
    }

    #[boxed]
    pub async fn set(&self, name: &str, change: &VolumeChange) -> Result<VolumeStatus, Failure> {
        let infos = self.registry.list().await.map_err(|e| self.failure(name, &e))?;
        let Some(old) = infos.into_iter().find(|v| v.name == name) else {
            return Err(self.failure(name, &FsError::NotFound));
        };
        let new = translate::changed(old.properties.clone(), change)?;
        let info = match new == old.properties {
            true => old,
            false if old.copy => {
                let of_data = |properties: &Properties| Properties {
                    record_bytes: new.record_bytes,
                    compression: new.compression,
                    ..properties.clone()
                };
                if of_data(&old.properties) != new {
                    return Err(Failure::invalid(format!(
                        "'{}/{name}' is a copy as files: of these settings only the compression and the record size do something here",
                        self.name
                    ))
                    .action(format!(
                        "set the others once it is a volume of its own: larder volume promote {}/{name}",
                        self.name
                    )));
                }
                self.registry.set(name, new).await.map_err(|e| self.failure(name, &e))?
            }
            // Everything in it lies as it came.
            false if old.replica => {
                return Err(Failure::invalid(format!(
                    "'{}/{name}' is a replica, which keeps what comes as it comes: these settings would do nothing here",
                    self.name
                ))
                .action(format!(
                    "set them at the volume that is sent; or here, once it is a volume of its own: larder volume promote {}/{name}; how much \
                     room it may take up is said with: larder replicate accept {}/{name} --quota SIZE",
                    self.name, self.name
                )));
            }
            false => self.registry.set(name, new).await.map_err(|e| self.failure(name, &e))?,
        };
        Ok(self.status_of(&info).await)
    }

    /// Refuses while a snapshot of the volume is held or has clones; unless it goes `with_snapshots`, while there is any. A replica is
    /// nothing but its snapshots.
    #[boxed]
    pub async fn may_be_destroyed(&self, name: &str, with_snapshots: bool) -> Result<(), Failure> {
        if self.is_read_only() {
            let message = format!("the store '{}' is served read-only here", self.name);
            return Err(Failure::invalid(message).action("destroy the volume on the machine that writes it"));
        }
        self.check_unheld(name).await?;
        if with_snapshots || self.is_replica(name).await? {
            return Ok(());
        }
        let snapshots = match self.registry.volume(name).await {
            Ok(volume) => volume.snapshots(),
            // Nobody can tell, or look into them.
            Err(_) => return Ok(()),
        };
        let Some(newest) = snapshots.last() else { return Ok(()) };
        let full = format!("{}/{name}", self.name);
        let count = match snapshots.len() {
            1 => format!("a snapshot, {full}@{}, which", newest.name),
            count => format!("{count} snapshots, the newest of them {full}@{}, which", newest.name),
        };
        Err(Failure::busy(format!("the volume '{full}' has {count} would be lost with it")).action(format!(
            "look at them with: larder snap list {full}; delete all of it with: larder volume destroy {full} --with-snapshots"
        )))
    }

    /// Refuses while a snapshot of the volume is held, or has clones. One that cannot be opened holds nothing.
    pub(crate) async fn check_unheld(&self, name: &str) -> Result<(), Failure> {
        let has_clones = match self.registry.replica(name).await {
            Ok(replica) => replica.snapshots.iter().any(|one| !one.clones.is_empty()),
            Err(_) => {
                let volume = self.registry.volume(name).await;
                volume.is_ok_and(|volume| volume.snapshots().iter().any(|info| !info.clones.is_empty()))
            }
        };
        if has_clones {
            return Err(snapshot_words::has_clones(&format!("the volume '{}/{name}'", self.name)));
        }
        self.check_held(name).await
    }

    async fn check_held(&self, name: &str) -> Result<(), Failure> {
        let held = match self.registry.replica(name).await {
            Ok(replica) => replica.snapshots.into_iter().find(|one| !one.holds.is_empty()).map(|one| one.name),
            Err(_) => {
                let Ok(volume) = self.registry.volume(name).await else { return Ok(()) };
                volume.snapshots().into_iter().find(|info| !info.holds.is_empty()).map(|info| info.name)
            }
        };
        held.map_or(Ok(()), |held| {
            let full = format!("{}/{name}@{held}", self.name);
            Err(Failure::busy(format!("the snapshot {full} is held, so its volume stays"))
                .action(format!("see why with: larder snap list {}/{name} --holds", self.name)))
        })
    }

    /// Refuses while a snapshot of any volume is held.
    #[boxed]
    pub async fn check_all_unheld(&self) -> Result<(), Failure> {
        for info in self.registry.list().await.unwrap_or_default() {
            self.check_held(&info.name).await?;
        }
        Ok(())
    }

    #[boxed]
    pub async fn destroy(&self, name: &str) -> Result<(), Failure> {
        let infos = self.registry.list().await.map_err(|e| self.failure(name, &e))?;
        let is_it = |info: &&VolumeInfo| info.name == name;
        for info in infos.iter().filter(is_it) {
            self.passes.stop(info.id).await;
        }
        if let Err(error) = self.registry.destroy(name).await {
            infos.iter().filter(is_it).for_each(|info| self.go_on_sealing(info));
            return Err(self.failure(name, &error));
        }
        // Its lost objects are missed no more.
        if let (Some(info), Some(pool)) = (infos.into_iter().find(|info| info.name == name), self.disk_pool()) {
            pool.note_missing(larder_pool::MissingObjects { objects: Vec::new(), asked: vec![info.prefix()] });
        }
        Ok(())
    }

    #[boxed]
    pub async fn check(&self, name: &str, read_data: bool) -> Result<CheckResult, Failure> {
        let _use = self.uses.begin(name, "a check".into());
        let _bypass = match &self.ground {
            Ground::Bucket(bucket) if read_data => bucket.without_cache(),
            _ => None,
        };
        let report = self.registry.check(name, read_data).await.map_err(|e| self.failure(name, &e))?;
        Ok(CheckResult {
            pool: self.name.clone(),
            volume: name.to_owned(),
            inodes: report.inodes,
            entries: report.entries,
            extents: report.extents,
            segments: report.segments,
            data_bytes: report.data_bytes,
            rebuilt: 0,
            problems: report.problems,
            locked: false,
            replica: false,
        })
    }

    pub fn failure(&self, volume: &str, error: &FsError) -> Failure {
        let what = format!("volume '{}/{volume}'", self.name);
        match error {
            FsError::NotFound => {
                Failure::not_found(format!("there is no {what}")).action("see which there are with: larder volume list")
            }
            FsError::Exists => Failure::exists(format!("{what} exists already")),
            FsError::Locked => keyrings::locked(&format!("{}/{volume}", self.name)),
            FsError::Replica => Failure::invalid(format!("{what} is a replica: it only receives snapshots")).action(
                format!("make a volume of it, which receives no more: larder volume promote {}/{volume}", self.name),
            ),
            FsError::Refused(why) => Failure::invalid(why.to_string()),
            other => translate::volume_error(what, other),
        }
    }

    /// The failure of a caller whose [`Patience`] is over; `outcome` says what has become of the volume.
    pub fn still_in_use(&self, volume: &str, outcome: &str) -> Failure {
        let uses = self.uses.of(volume);
        let by = if uses.is_empty() { String::new() } else { format!(" by {}", uses.join(", ")) };
        Failure::busy(format!("the volume '{}/{volume}' is still in use{by}; {outcome}", self.name))
            .action("end what uses it, or wait until it is done; then try again")
    }

    /// Flushes and closes everything (`storage.closing_order`). A volume that cannot flush is
    /// reported; the pool closes all the same.
    #[boxed]
    pub async fn close(&self) -> Result<(), Failure> {
        self.passes.stop_all().await;
        self.imports.stop().await;
        let pool = match &self.ground {
            Ground::Pool(pool) => pool,
            Ground::Bucket(bucket) => {
                let closed = self.close_registry().await;
                bucket.close().await;
                return closed;
            }
        };
        let volumes = self.registry.close().await;
        let pool = pool.close().await;
        volumes.map_err(|e| translate::volume_error(format_args!("closing the volumes of '{}'", self.name), &e))?;
        pool.map_err(|e| translate::pool_error(&e))
    }

    /// Within bounds: a bucket may not answer for days.
    async fn close_registry(&self) -> Result<(), Failure> {
        match tokio::time::timeout(CLOSE_WAIT_MAX, self.registry.close()).await {
            Ok(closed) => {
                closed.map_err(|e| translate::volume_error(format_args!("closing the volumes of '{}'", self.name), &e))
            }
            Err(_) => {
                let message = format!(
                    "the store '{}' did not answer while its volumes were closed: what was not acknowledged is lost",
                    self.name
                );
                Err(Failure::unavailable(message))
            }
        }
    }

    /// Closes, and marks the pool as ready for another machine. Where a volume cannot flush, the pool closes without the mark
    /// (`storage.closing_order`).
    #[boxed]
    pub async fn export(&self) -> Result<(), Failure> {
        self.passes.stop_all().await;
        self.imports.stop().await;
        let Some(pool) = self.disk_pool() else { return self.close().await };
        let volumes = self.registry.close().await;
        let pool = if volumes.is_ok() { pool.export().await } else { pool.close().await };
        volumes.map_err(|e| translate::volume_error(format_args!("closing the volumes of '{}'", self.name), &e))?;
        pool.map_err(|e| translate::pool_error(&e))
    }
}
