//! The pools and stores of this daemon: opened, listed, imported, changed and given away, each with
//! what the file says of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::{
    Failure, PoolChangePlan, PoolChangeRequest, PoolImport, PoolListed, PoolRename, PoolStatus, TakeAway,
};
use larder_base::units::ByteSize;
use larder_keep::bucket::Taking;
use larder_keep::snapshot_runs::SnapshotRuns;
use larder_keep::{Storage, Store};
use larder_pool::{OpenOptions, Pool};

use super::shares::take_in;
use super::translate;
use larder_config::edit::Editor;
use larder_config::{Config, PoolConfig, Schedule, StoreSettings, VolumeName, check_name};
use larder_copies::bucket;
use larder_copies::standby::journal_place;
use larder_document::DataFolder;
use larder_document::Look;
use larder_document::last_lives;
use larder_document::{Document, State};
use larder_document::{Kind, Standing, Standings};
use larder_servers::Mounts;
use larder_servers::VolumeDoors;

pub struct Pools {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub mounts: Mounts,
    pub doors: Arc<VolumeDoors>,
    /// Their volumes are given up before a pool is closed.
    pub schedules: Arc<SnapshotRuns>,
    pub standings: Standings,
    pub folder: Arc<DataFolder>,
    /// For all pools.
    pub memory: ByteSize,
}

impl Pools {
    /// Each pool's part of the memory.
    pub fn memory_per_pool(&self, pools: usize) -> ByteSize {
        ByteSize(self.memory.0 / pools.max(1) as u64)
    }

    /// Each pool's part of the memory, with `more` pools beside those of the configuration.
    pub(super) fn memory_each(&self, config: &Config, more: usize) -> ByteSize {
        self.memory_per_pool(config.pools.len() + config.stores.len() + more)
    }

    /// Opens the pools and stores of the configuration, each as far as it can be
    /// (`daemon.faults_are_named`).
    pub async fn open(&self, config: &Config, force: bool, degraded: bool) {
        let memory = self.memory_each(config, 0);
        for pool in &config.pools {
            let opened = open_configured(pool, self.folder.path(), force, degraded, memory).await;
            self.add(Kind::Pool, &pool.name, opened);
        }
        for store in &config.stores {
            let opened = self.start_bucket(store, force, memory).await;
            self.add(Kind::Bucket, &store.name, opened);
        }
    }

    fn add(&self, kind: Kind, name: &str, opened: Result<Store, Failure>) {
        self.standings.set(kind, name, opened.map(|open| drop(self.storage.add(open))));
    }

    async fn start_bucket(&self, store: &StoreSettings, force: bool, memory: ByteSize) -> Result<Store, Failure> {
        let journal = match store.journal.as_ref().filter(|_| store.read_only.is_none()) {
            None => None,
            Some(pool) => Some(journal_place(&self.storage, store, pool)?),
        };
        let taking = Taking {
            machine: bucket::this_machine(&self.folder)?,
            take_over: force,
            journal,
            on_loss: bucket::end_loser,
        };
        Store::start_bucket(store, taking, memory).await
    }

    pub async fn statuses(&self) -> Vec<PoolStatus> {
        self.storage.look().await;
        self.with_unopened(self.storage.statuses().await)
    }

    /// From memory: no disk is looked at.
    pub fn known_statuses(&self) -> Vec<PoolStatus> {
        self.with_unopened(self.storage.known_statuses())
    }

    /// Beside those that are open.
    fn with_unopened(&self, mut list: Vec<PoolStatus>) -> Vec<PoolStatus> {
        let unopened = self.standings.unopened().into_iter();
        list.extend(unopened.map(|(name, why)| translate::unavailable_pool(&name, &self.disks_of(&name), &why)));
        list
    }

    /// As the file names them.
    fn disks_of(&self, pool: &str) -> Vec<PathBuf> {
        self.document.config().pool(pool).map(|pool| pool.disks.clone()).unwrap_or_default()
    }

    pub async fn list(&self) -> Vec<PoolListed> {
        self.storage.look().await;
        let unopened = self.standings.unopened().into_iter();
        let unopened = unopened.map(|(name, _)| translate::unavailable_listed(&name, self.disks_of(&name)));
        self.storage.listed().into_iter().chain(unopened).collect()
    }

    /// The folders of all disks, by pool.
    pub fn disks(&self) -> BTreeMap<String, Vec<PathBuf>> {
        let open = self.storage.all().into_iter().map(|pool| (pool.name.clone(), pool.disks()));
        let config = self.document.config();
        let unopened = self.standings.unopened().into_iter();
        let unopened = unopened.filter_map(|(name, _)| Some((name.clone(), config.pool(&name)?.disks.clone())));
        open.chain(unopened).collect()
    }

    pub async fn import(&self, request: PoolImport) -> Result<PoolStatus, Failure> {
        let mut state = self.document.lock().await;
        let memory = self.memory_each(&state.config, 1);
        let data = self.folder.path();
        check_names(&state.config, data, &request)?;
        if request.accept_loss.is_none() {
            self.check_not_open(&request)?;
        }
        // The labels may change at the import, and do not change back.
        self.document.check_writable_now()?;
        let options = import_options(&request, data);
        let pool = match &request.accept_loss {
            None => open_pool(options, memory).await?,
            Some(name) if self.storage.pool(Some(name)).is_ok() => {
                return Err(Failure::exists(format!("the pool '{name}' is open: nothing of it is refused")));
            }
            Some(name) => {
                let disks = state.config.disks_of(name, request.disks.clone())?;
                open_pool(OpenOptions { disks, ..options }, memory).await?
            }
        };
        if self.storage.pool(Some(&pool.name)).is_ok() {
            let name = pool.name.clone();
            pool.close().await?;
            return Err(Failure::exists(format!("a pool named '{name}' is open already")));
        }
        // Also those that were not named, or are away: the labels know them.
        let entry = PoolConfig { name: pool.name.clone(), disks: pool.disks_staying(), scrub: Schedule::default() };
        let status = pool.status();
        let pool = self.storage.add(pool);
        let config = Arc::clone(&state.config);
        let saved = match pool.volumes().await {
            Ok(volumes) => {
                let set = |editor: &mut Editor| take_in(editor, &config, &entry, &volumes);
                self.document.edit(&mut state, set).await
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = saved {
            self.storage.remove(&entry.name);
            pool.close().await?;
            return Err(failure);
        }
        self.standings.set(Kind::Pool, &entry.name, Standing::Ok);
        Ok(status)
    }

    /// Refuses to import a pool that this daemon serves. Its locks would say that another process
    /// has it.
    fn check_not_open(&self, request: &PoolImport) -> Result<(), Failure> {
        let found = Pool::scan(&request.disks);
        let [found] = found.as_slice() else { return Ok(()) };
        let is_it = |open: &PoolStatus| open.id == found.id.to_string();
        match self.storage.known_statuses().iter().find(|open| is_it(open)) {
            None => Ok(()),
            Some(open) => {
                let name = &open.name;
                let failure = Failure::exists(format!("the pool '{name}' is served here already"));
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

    /// Changes the disks or the layout of a pool, and the file with it. The labels know better than
    /// the file, so a file that cannot be written is only said.
    pub async fn change(&self, name: &str, request: PoolChangeRequest) -> Result<PoolChangePlan, Failure> {
        let change = translate::change(request.change)?;
        let pool = self.storage.pool(Some(name))?;
        if request.dry_run {
            return pool.change(&change, true).await;
        }
        let mut state = self.document.lock().await;
        let mut plan = pool.change(&change, false).await?;
        let disks = pool.disks_staying();
        let edited = self.document.edit(&mut state, |editor| editor.set_pool_disks(name, &disks)).await;
        if let Err(failure) = edited {
            plan.warnings.push(format!("the configuration does not name the disks as they are now: {failure}"));
        }
        Ok(plan)
    }

    /// A spare that took a disk's place is named by the file from then on. While a disk is away the
    /// file is left as it is: who wrote it may know better where that one lies.
    pub async fn name_disks(&self) {
        let mut state = self.document.lock().await;
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
            match self.document.edit(&mut state, |editor| editor.set_pool_disks(&pool.name, &disks)).await {
                Ok(()) => tracing::info!(pool = %pool.name, "the configuration names its disks as they are now"),
                Err(failure) => tracing::warn!(pool = %pool.name, "{}", failure.message),
            }
        }
    }

    /// Gives a pool another name. Its volumes are closed for a moment; all that the file says of
    /// the old name is said of the new one. Unless forced to, not while a program uses a mount of
    /// it.
    pub async fn rename(&self, old: &str, request: PoolRename) -> Result<PoolStatus, Failure> {
        let new = request.name.clone();
        check_name(&new).map_err(Failure::invalid)?;
        let mut state = self.document.lock().await;
        let pool = self.storage.pool(Some(old))?;
        pool.need_disks()?;
        self.storage.check_no_journal(old)?;
        check_free(&state.config, &new)?;
        let staged = self.document.stage(|editor| editor.rename_pool(old, &new))?;
        let anyway = (!request.force).then(|| format!("larder pool rename {old} {new} --force"));
        // The file comes first: on a full data folder it fails here, with the pool in service. If
        // the rename is cut short after it, the next start gives the labels the name in the file
        // (`open_configured`).
        let config = self.mounts.commit_unmounted(staged, |volume| volume.pool == old, anyway).await?;
        self.schedules.forget(|volume| volume.pool == old);
        self.storage.remove(old);
        state.reconcile(Look::Shares).await;
        self.mounts.remove_of(|volume| volume.pool == old).await;
        let disks = pool.disks();
        let closed = pool.close().await;
        drop(pool);
        let memory = self.memory_each(&state.config, 0);
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
        match renamed {
            Ok(open) => {
                let status = open.status();
                self.storage.add(open);
                self.document.take(&mut state, config).await;
                Ok(status)
            }
            Err(failure) => {
                match open_pool(options(old, None), memory).await {
                    Ok(open) => _ = self.storage.add(open),
                    Err(fault) => self.standings.set(Kind::Pool, old, Standing::Failed(fault)),
                }
                if let Err(undone) = self.document.edit(&mut state, |editor| editor.rename_pool(&new, old)).await {
                    tracing::error!("the configuration calls the pool '{old}' '{new}' from now on: {}", undone.message);
                    state.reconcile(Look::All).await;
                }
                Err(failure)
            }
        }
    }

    /// Stops serving the pool, closes it as exported and takes it out of the file. Unless forced
    /// to, not while a program uses a mount of it.
    pub async fn export(&self, name: &str, request: TakeAway) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        let pool = self.storage.pool(Some(name))?;
        self.storage.check_no_journal(name)?;
        let disks = pool.disks();
        self.take_out(&mut state, name, request, format!("larder pool export {name} --force")).await?;
        pool.export().await.map_err(|why| {
            let words = disks.iter().map(|disk| larder_base::shell::word(disk).to_string()).collect::<Vec<_>>();
            let message =
                format!("'{name}' is not served here any more, but is not marked as exported: {}", why.message);
            Failure { message, ..why }.action(format!("to serve it again: larder pool import {}", words.join(" ")))
        })
    }

    /// Nobody uses the pool afterwards, and the file does not name it.
    pub async fn take_out(&self, state: &mut State, name: &str, how: TakeAway, anyway: String) -> Result<(), Failure> {
        let is_of = |volume: &VolumeName| volume.pool == name;
        let staged = self.document.stage(|editor| editor.remove_pool(name))?;
        let anyway = (!how.force).then_some(anyway);
        let config = self.mounts.commit_unmounted(staged, is_of, anyway).await?;
        self.document.take(state, config).await;
        self.mounts.remove_of(is_of).await;
        self.schedules.forget(is_of);
        self.storage.remove(name);
        state.reconcile(Look::Changes).await;
        Ok(())
    }
}

/// Opens a pool with its volumes.
pub async fn open_pool(options: OpenOptions, memory: ByteSize) -> Result<Store, Failure> {
    let pool = Pool::open(options).await.map_err(|e| translate::pool_error(&e))?;
    Store::start(pool, memory).await
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
pub(super) fn configured(pool: &PoolConfig, data: &Path, force: bool, degraded: bool) -> OpenOptions {
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
        true => Err(Failure::exists(format!("a pool or store is called '{name}' here already"))
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
    Err(Failure::exists(message).action(action))
}

/// Whether the pool of this name in the configuration is the one with this id, as far as anybody
/// can tell: its disks may be away, or have moved.
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
