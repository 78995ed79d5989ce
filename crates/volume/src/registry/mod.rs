//! The volumes of one store.
//!
//! One object, `registry.json`, is changed by conditional puts only: two processes that change it
//! at once both succeed, one after the other. A volume's objects lie under `volumes/<id>/`.
//!
//! - `registry.format_once`: a volume is entered as unformatted, then formatted, then marked as
//!   formatted. Only an unformatted volume is ever formatted: one that lost its metadata is
//!   damaged, not new. A missing registry beside objects of volumes is damage, too.
//! - `registry.doom_before_delete`: a volume is marked as doomed before its first object is
//!   deleted, and its entry goes last. A crash leaves a doomed entry, and the next opening of the
//!   registry finishes the work.

mod clone;
pub(crate) mod document;
pub(crate) mod followed;
pub(crate) mod handover;
mod sealing;
pub(crate) mod seats;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use larder_base::features::Features;
use larder_base::log::Tenure;
use larder_base::{Seat, boxed};
use larder_fs::*;
use object_store::{ObjectStore, UpdateVersion};
use uuid::Uuid;

use crate::backing::{Backing, Beneath, MemoryBudget, NoKeys, Seals};
use crate::check::CheckReport;
use crate::data::{Memory, margin};
use crate::features;
use crate::follow::{self, FollowParts, Followed};
use crate::layout::{prefix_of, stream_of};
use crate::lineage::{self, Lineage};
use crate::marks::Marks;
use crate::meta::Meta;
use crate::meta::slate::{Engine, SlateMeta, SlateParts};
use crate::opening::StateParts;
use crate::properties::{OwnerQuotas, Properties, VolumeInfo};
use crate::state::State;
use crate::table::{EntryCache, InodeBudget, VolumeTag};
use crate::under_way::UnderWay;
use crate::volume::Volume;
use document::VolumeEntry;
use document::{Document, Terms, check_features, find_id, is_empty, no_copy, store_error};

/// The text of [`FsError::Busy`] for a volume, or a snapshot, that clones began as.
pub const HAS_CLONES: &str = "it has clones";
const NAME_LEN_MAX: usize = 64;
const BUDGET_BYTES_MIN: u64 = 32 << 20;
/// How often and in what time it is looked whether a volume is used.
const UNUSED_LOOKS: u32 = 50;
const UNUSED_PAUSE: Duration = Duration::from_millis(10);

/// The volumes of one store: their names, ids and properties, and the volumes that are open.
pub struct Registry {
    /// Its store is [`Self::under_way`].
    pub(crate) backing: Backing,
    under_way: Arc<UnderWay>,
    pub(crate) seals: Arc<dyn Seals>,
    pub(crate) engine: Engine,
    memory: Arc<Memory>,
    inodes: Arc<InodeBudget>,
    entries: Arc<EntryCache>,
    /// The lock is held while a volume opens or closes, so that each is open once.
    open: tokio::sync::Mutex<HashMap<Uuid, Volume>>,
    pub(crate) next_tag: AtomicU32,
    /// See `seats.entry_decides`.
    seat: Seat,
    has_seats: AtomicBool,
    /// Given, perhaps: nobody opens them before it is known (`seats.late_puts_fail`).
    giving: parking_lot::Mutex<HashSet<Uuid>>,
    /// Another process writes the store: its volumes are at most so far behind (`follow.bounded_age`).
    follows: Option<Duration>,
    /// See `followed.reopened`.
    terms: parking_lot::Mutex<HashMap<Uuid, Terms>>,
    /// Names of replicas that are received into or promoted just now.
    pub(crate) receiving: crate::alone::Receiving,
}

impl Registry {
    /// Reads the registry, and deletes what is left of volumes whose removal was interrupted. Fails
    /// with [`FsError::Io`] if `registry.json` is damaged, or missing beside objects of volumes,
    /// and with [`FsError::Unsupported`] if a newer program wrote it.
    #[boxed]
    pub async fn open(backing: Backing, memory: MemoryBudget) -> FsResult<Registry> {
        Self::open_sealed(backing, memory, Arc::new(NoKeys)).await
    }

    /// [`Registry::open`] with the keys of encrypted volumes.
    #[boxed]
    pub async fn open_sealed(backing: Backing, memory: MemoryBudget, seals: Arc<dyn Seals>) -> FsResult<Registry> {
        Self::open_seat(backing, memory, seals, Seat::default()).await
    }

    /// The volumes of one seat (`seats.entry_decides`), which nobody else may open meanwhile.
    #[boxed]
    pub async fn open_seat(
        backing: Backing,
        memory: MemoryBudget,
        seals: Arc<dyn Seals>,
        seat: Seat,
    ) -> FsResult<Registry> {
        let registry = Self::of(backing, memory, seals, None, seat);
        if registry.backing.log.as_ref().is_some_and(|log| log.is_shared()) {
            // `document.successors_are_not_overwritten`
            let begin = |document: &mut Document| {
                registry.begin_seat(document);
                Ok(())
            };
            match registry.update(begin).await {
                // Nobody changes it then.
                Ok(()) | Err(FsError::ReadOnly(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let (document, _) = registry.read().await?;
        // A clone that was not finished holds nothing.
        let is_unfinished = |entry: &VolumeEntry| entry.origin.is_some() && !entry.formatted;
        let own = document.volumes.iter().filter(|entry| registry.is_own(entry));
        for entry in own.filter(|entry| entry.doomed || is_unfinished(entry)) {
            registry.delete_doomed(entry.info.id).await?;
        }
        Ok(registry)
    }

    /// The volumes of a store that another process writes, read-only, at most `behind_max` behind what that process has made
    /// durable. Writes nothing; the log of `backing` is read alone.
    #[boxed]
    pub async fn open_followed(
        backing: Backing,
        memory: MemoryBudget,
        seals: Arc<dyn Seals>,
        behind_max: Duration,
    ) -> FsResult<Registry> {
        let registry = Self::of(backing, memory, seals, Some(behind_max), Seat::default());
        registry.read().await?;
        Ok(registry)
    }

    fn of(
        backing: Backing,
        memory: MemoryBudget,
        seals: Arc<dyn Seals>,
        follows: Option<Duration>,
        seat: Seat,
    ) -> Registry {
        let total = memory.total_bytes.max(BUDGET_BYTES_MIN);
        let is_far = backing.log.as_ref().is_some_and(|log| log.is_shared());
        let under_way = Arc::new(UnderWay::new(backing.store));
        Registry {
            backing: Backing { store: Arc::clone(&under_way) as _, ..backing },
            under_way,
            seals,
            engine: Engine::new(total / 8, total / 64).for_far(is_far),
            memory: Memory::new(total / 2),
            inodes: Arc::new(InodeBudget::new(total / 8)),
            entries: Arc::new(EntryCache::new(total / 16)),
            open: tokio::sync::Mutex::new(HashMap::new()),
            next_tag: AtomicU32::new(1),
            seat,
            has_seats: AtomicBool::new(false),
            giving: Default::default(),
            follows,
            terms: Default::default(),
            receiving: Default::default(),
        }
    }

    /// How long ago the oldest of the newest looks at open volumes was, and the bound; `None` if nobody else writes them.
    pub fn behind(&self) -> Option<(Option<Duration>, Duration)> {
        let behind_max = self.follows?;
        let open = self.open_now().unwrap_or_default();
        let ages = open.iter().filter_map(|volume| volume.state.followed.as_ref().map(|followed| followed.age()));
        Some((ages.max(), behind_max))
    }

    /// Makes a volume and opens it. A name is 1 to 64 bytes of `[a-z0-9_.-]` and begins with a
    /// letter or digit; [`FsError::Invalid`] otherwise, [`FsError::Exists`] if it is taken.
    #[boxed]
    pub async fn create(&self, name: &str, properties: Properties) -> FsResult<VolumeInfo> {
        let info = self.enter(name, properties, false).await?;
        self.volume(name).await?;
        Ok(info)
    }

    /// Enters a volume in the registry, as [`Registry::create`] does first. Opening it formats it: where it is `sealed`, once its
    /// keys are there.
    #[boxed]
    pub async fn enter(&self, name: &str, properties: Properties, sealed: bool) -> FsResult<VolumeInfo> {
        self.enter_with(name, properties, sealed, &[]).await
    }

    /// With further features.
    pub(crate) async fn enter_with(
        &self,
        name: &str,
        properties: Properties,
        sealed: bool,
        further: &[&str],
    ) -> FsResult<VolumeInfo> {
        check_volume_name(name)?;
        check_properties(&properties)?;
        let info = VolumeInfo {
            name: name.to_owned(),
            id: Uuid::new_v4(),
            properties,
            sealed,
            sealing: None,
            replica: false,
            copy: false,
            origin: None,
        };
        let encryption = sealed.then_some(features::ENCRYPTION);
        let incompatible: Vec<String> = encryption.iter().chain(further).map(|&feature| feature.to_owned()).collect();
        self.update(|document| {
            if document.volumes.iter().any(|entry| entry.info.name == name && !entry.doomed) {
                return Err(FsError::Exists);
            }
            document.volumes.push(VolumeEntry {
                info: info.clone(),
                formatted: false,
                doomed: false,
                features: Features { incompatible: incompatible.clone(), ..Features::default() },
                source: None,
                handles: None,
                former_sources: Vec::new(),
                sealing: None,
                origin: None,
                seat: self.seat.clone(),
                handover: None,
            });
            Ok(())
        })
        .await?;
        Ok(info)
    }

    /// The volumes of this seat, those being removed left out.
    #[boxed]
    pub async fn list(&self) -> FsResult<Vec<VolumeInfo>> {
        let (document, _) = self.read().await?;
        let living = document.volumes.iter().filter(|entry| !entry.doomed && self.is_own(entry));
        let open = self.open.lock().await;
        let origin = |entry: &VolumeEntry| {
            let origin = entry.origin.as_ref()?;
            let volume = document.volumes.iter().find(|other| other.info.id == origin.volume)?;
            // The snapshot may have another name by now.
            let row = open.get(&origin.volume).and_then(|open| open.state.catalog.row(origin.snapshot));
            let snapshot = row.map_or_else(|| origin.name.clone(), |row| row.name);
            Some(format!("{}@{snapshot}", volume.info.name))
        };
        Ok(living.map(|entry| VolumeInfo { origin: origin(entry), ..entry.info() }).collect())
    }

    /// Replaces the properties of a volume, at once, also while it is open.
    #[boxed]
    pub async fn set(&self, name: &str, properties: Properties) -> FsResult<VolumeInfo> {
        check_properties(&properties)?;
        let mut changed = None;
        self.update(|document| {
            let entry = self.find(document, name)?;
            entry.info.properties = properties.clone();
            changed = Some(entry.info());
            Ok(())
        })
        .await?;
        let info = changed.ok_or(FsError::NotFound)?;
        if let Some(volume) = self.open.lock().await.get(&info.id) {
            volume.state.set_properties(&properties);
        }
        Ok(info)
    }

    /// Removes a volume and all its objects. [`FsError::Busy`] while a caller has it open, or one of its snapshots is held; holds of a
    /// volume that cannot be opened count for nothing.
    #[boxed]
    pub async fn destroy(&self, name: &str) -> FsResult<()> {
        let is_held = |volume: Volume| volume.snapshots().iter().any(|info| !info.holds.is_empty());
        if self.volume(name).await.is_ok_and(is_held) {
            return Err(FsError::Busy("a snapshot of the volume is held"));
        }
        if self.replica(name).await.is_ok_and(|replica| replica.snapshots.iter().any(|one| !one.holds.is_empty())) {
            return Err(FsError::Busy("a snapshot of the replica is held"));
        }
        let _alone = self.alone_for_owner(name).await?;
        let mut open = self.open.lock().await;
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, name)?.clone();
        let id = entry.info.id;
        if !document.clones_of(id).is_empty() {
            return Err(FsError::Busy(HAS_CLONES));
        }
        close_unused(&mut open, id).await?;
        // What came after the last deletion would stay for ever.
        self.under_way.is_settled(id).await;
        self.update(|document| {
            find_id(document, id)?.doomed = true;
            Ok(())
        })
        .await?;
        self.delete_doomed(id).await?;
        let origin = entry.origin.as_ref().and_then(|origin| open.get(&origin.volume));
        if let Some(origin) = origin {
            origin.state.catalog.end_clone(name);
        }
        Ok(())
    }

    /// Opens a volume and replays what was durable. A volume that is open already is returned
    /// again.
    #[boxed]
    pub async fn volume(&self, name: &str) -> FsResult<Volume> {
        self.open_volume(name, false).await
    }

    /// As [`Registry::volume`], or a copy as files.
    pub(crate) async fn open_volume(&self, name: &str, as_copy: bool) -> FsResult<Volume> {
        let mut open = self.open.lock().await;
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, name)?.clone();
        match as_copy {
            true if !entry.has(features::COPY) => return Err(no_copy(name)),
            false if entry.info().replica => return Err(FsError::Replica),
            _ => {}
        }
        if entry.info().sealed && !self.seals.are_unlocked(&entry.info()) {
            return Err(FsError::Locked);
        }
        if let Some(volume) = open.get(&entry.info.id) {
            return Ok(volume.clone());
        }
        if self.giving.lock().contains(&entry.info.id) {
            return Err(FsError::Busy("the volume is being handed over"));
        }
        if entry.origin.is_some() && !entry.formatted {
            return Err(FsError::Busy("the clone is being made"));
        }
        if self.follows.is_some() && !entry.formatted {
            return Err(FsError::Busy("the volume is being made"));
        }
        if self.follows.is_none() {
            self.open_reserving(&mut open, &document, entry.info.id).await;
        }
        let state = self.open_state(&document, &entry).await?;
        if !entry.formatted {
            self.update(|document| {
                find_id(document, entry.info.id)?.formatted = true;
                Ok(())
            })
            .await?;
        }
        let volume = handle(state);
        if self.follows.is_some() {
            self.terms.lock().insert(entry.info.id, Terms::of(&entry));
        }
        open.insert(entry.info.id, volume.clone());
        Ok(volume)
    }

    /// Reserved room is kept free only while its volume is open. So volumes with reservations are
    /// opened before any other is written to.
    async fn open_reserving(&self, open: &mut HashMap<Uuid, Volume>, document: &Document, but: Uuid) {
        let living = document.volumes.iter().filter(|entry| !entry.doomed && entry.formatted && entry.info.id != but);
        for entry in living
            .filter(|entry| self.is_own(entry))
            .filter(|entry| entry.has(features::RESERVED_RANGES) && !entry.info().replica)
        {
            if open.contains_key(&entry.info.id) || self.giving.lock().contains(&entry.info.id) {
                continue;
            }
            match self.open_state(document, entry).await {
                Ok(state) => drop(open.insert(entry.info.id, handle(state))),
                Err(error) => {
                    let volume = &entry.info.name;
                    tracing::warn!(volume, %error, "the room that this volume has reserved is not kept free: it cannot be opened");
                }
            }
        }
    }

    /// Bytes that files can still take, of all volumes together. Less than the free room of the
    /// store, since metadata and garbage collection need some; more where collection gives some
    /// back. Does no I/O.
    pub fn writable(&self) -> u64 {
        let room = self.backing.space.space();
        let open = self.open.try_lock();
        let of_open = open.iter().flat_map(|open| open.values()).map(|volume| volume.state.writable(room)).max();
        of_open.unwrap_or_else(|| room.1.saturating_sub(margin(room.0)))
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.backing.store
    }

    /// To be called once a minute: drops cached records that were not used for minutes. Returns the
    /// bytes given back.
    pub fn give_back_memory(&self) -> u64 {
        self.memory.give_back()
    }

    /// For when others need memory: drops a quarter of the cached records, which can be read again, and at
    /// least some. Returns the bytes given back; 0: there is nothing left.
    pub fn give_some_memory_back(&self) -> u64 {
        self.memory.give_some_back()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The volumes that are open, by name.
    pub(crate) async fn open_volumes(&self) -> Vec<(String, Volume)> {
        let open = self.open.lock().await;
        open.values().map(|volume| (volume.state.name.clone(), volume.clone())).collect()
    }

    /// As [`Registry::open_volumes`], without waiting; `None` while one is being opened or closed.
    pub(crate) fn open_now(&self) -> Option<Vec<Volume>> {
        self.open.try_lock().ok().map(|open| open.values().cloned().collect())
    }

    /// Takes a volume back to a snapshot. [`FsError::Busy`] while somebody uses it, [`FsError::NotFound`] if there is no such
    /// snapshot. Snapshots stay, also later ones; all that has changed since the snapshot is gone from the volume itself.
    #[boxed]
    pub async fn roll_back(&self, name: &str, snapshot: &str) -> FsResult<()> {
        let id = self.volume(name).await?.id();
        {
            // Nobody gets a handle meanwhile.
            let mut open = self.open.lock().await;
            let volume = open.get(&id).ok_or(FsError::Busy("the volume is being closed"))?;
            unused(volume).await?;
            volume.ask_back(snapshot).await?;
            if let Err(error) = close_unused(&mut open, id).await {
                // What was not stored is gone from the volume anyway, and the log has the rest.
                tracing::warn!(volume = name, %error, "the volume did not close cleanly before it goes back to a snapshot");
            }
        }
        self.volume(name).await.map(drop)
    }

    /// Lets the handles that clients have of another volume be those of this one, which has the same inodes: it takes the other's
    /// place. Counts from its next opening on.
    #[boxed]
    pub async fn take_handles(&self, name: &str, of: Uuid) -> FsResult<()> {
        self.update(|document| {
            let entry = self.find(document, name)?;
            entry.handles = (entry.info.id != of).then_some(of);
            Ok(())
        })
        .await
    }

    /// The open volumes of this machine that can store nothing until they are opened anew. None while one is being opened or
    /// closed. Does no I/O.
    pub fn failed(&self) -> Vec<String> {
        let open = if self.follows.is_none() { self.open_now().unwrap_or_default() } else { Vec::new() };
        open.iter().filter(|volume| volume.fault().is_some()).map(|volume| volume.state.name.clone()).collect()
    }

    /// Opens a volume anew that can store nothing any more, as after a crash: all that was acknowledged is there.
    /// [`FsError::Busy`] while somebody uses it.
    #[boxed]
    pub async fn open_anew(&self, name: &str) -> FsResult<()> {
        {
            // Nobody gets a handle meanwhile.
            let mut open = self.open.lock().await;
            let found = open.iter().find(|(_, volume)| volume.state.name == name && volume.fault().is_some());
            if let Some(id) = found.map(|(id, _)| *id) {
                unused(&open[&id]).await?;
                if let Err(error) = close_unused(&mut open, id).await {
                    tracing::debug!(volume = name, %error, "it could not store what was not acknowledged");
                }
            }
        }
        self.volume(name).await.map(drop)
    }

    /// Flushes and closes one volume. [`FsError::Busy`] while somebody uses it.
    #[boxed]
    pub async fn close_volume(&self, name: &str) -> FsResult<()> {
        let mut open = self.open.lock().await;
        let (mut document, _) = self.read().await?;
        let id = self.find(&mut document, name)?.info.id;
        close_unused(&mut open, id).await.map(drop)
    }

    /// Flushes and closes every volume. Returns the first error and closes the others all the same.
    #[boxed]
    pub async fn close(&self) -> FsResult<()> {
        let mut open = self.open.lock().await;
        let mut result = Ok(());
        for (_, volume) in open.drain() {
            result = result.and(volume.state.close().await);
        }
        result
    }

    /// Verifies every invariant of a volume that no other process writes: links, extents within
    /// segments, live counts, orphans; with `read_data` also the checksum of every record. Problems
    /// are listed in the report; an error means that the check could not go on.
    #[boxed]
    pub async fn check(&self, name: &str, read_data: bool) -> FsResult<CheckReport> {
        if self.follows.is_some() {
            return Err(follow::read_only());
        }
        let (mut document, _) = self.read().await?;
        let as_copy = self.find(&mut document, name)?.has(features::COPY);
        let volume = self.open_volume(name, as_copy).await?;
        crate::check::check(&volume.state, read_data).await
    }

    async fn open_state(&self, document: &Document, entry: &VolumeEntry) -> FsResult<Arc<State>> {
        match self.try_open_state(document, entry).await? {
            Some(state) => Ok(state),
            // It went back to a snapshot.
            None => self.try_open_state(document, entry).await?.ok_or(FsError::Busy("the volume keeps going back")),
        }
    }

    async fn try_open_state(&self, document: &Document, entry: &VolumeEntry) -> FsResult<Option<Arc<State>>> {
        check_features(&format!("volume '{}'", entry.info.name), &entry.features, self.follows.is_none())?;
        let id = entry.info.id;
        let prefix = prefix_of(id);
        let tag = VolumeTag(self.next_tag.fetch_add(1, Ordering::Relaxed));
        let path = prefix.clone().join("meta");
        if entry.formatted && is_empty(&*self.backing.store, &path).await? {
            let why = format!("volume '{}' has lost its metadata: nothing lies under {path}", entry.info.name);
            return Err(FsError::Io(why.into()));
        }
        let lineage = entry.origin.is_some().then(|| self.lineage_of(entry));
        let store = lineage.clone().map_or_else(|| Arc::clone(&self.backing.store), |lineage| Arc::new(lineage) as _);
        let mut beneath = Beneath { store, log: self.backing.log.clone() };
        if entry.info().sealed {
            beneath = self.seals.decorate(&entry.info(), beneath)?;
        }
        let (log, clock, cache_id) = (beneath.log, Arc::clone(&self.backing.clock), u64::from(tag.0));
        let (engine, store) = (&self.engine, Arc::clone(&beneath.store));
        let mut followed = None;
        let meta: Arc<dyn Meta> = match self.follows {
            None => {
                let (log, pinned) = (log.map(|log| (log, stream_of(id))), Vec::new());
                SlateMeta::open(SlateParts { engine, store, path, log, clock, cache_id, pinned }).await?
            }
            Some(behind_max) => {
                let log = log.ok_or(FsError::NotSupported)?;
                let (engine, stream) = (engine.clone(), stream_of(id));
                let parts = FollowParts { engine, store, path, log, stream, clock, cache_id, behind_max };
                let opened = Followed::open(parts).await?;
                followed = Some(Arc::clone(&opened));
                opened
            }
        };
        let of_log = || self.backing.log.as_ref().and_then(|log| log.tenure());
        let tenure = followed.clone().map(|followed| followed as Arc<dyn Tenure>).or_else(of_log);
        State::open(StateParts {
            marks: Marks::of(Arc::clone(&self.backing.store), id),
            id,
            handles: entry.handles.unwrap_or(id),
            name: entry.info.name.clone(),
            tag,
            meta,
            store: beneath.store,
            prefix,
            memory: Arc::clone(&self.memory),
            inode_budget: Arc::clone(&self.inodes),
            entries: Arc::clone(&self.entries),
            clock: Arc::clone(&self.backing.clock),
            space: Arc::clone(&self.backing.space),
            properties: entry.info.properties.clone(),
            may_format: !entry.formatted,
            keeps_orphans: self.backing.log.as_ref().is_some_and(|log| !log.is_proven()),
            shared: self.backing.log.as_ref().is_some_and(|log| log.is_shared()),
            is_sealed: entry.info().sealed,
            tenure,
            followed,
            inherited: lineage::newest(entry.lineage()),
            lineage,
            clones: document.clones_of(id),
        })
        .await
    }

    fn lineage_of(&self, entry: &VolumeEntry) -> Lineage {
        Lineage::new(Arc::clone(&self.backing.store), entry.info.id, entry.lineage().to_vec())
    }

    /// The store below the encryption of a volume.
    pub(crate) fn beneath_of(&self, entry: &VolumeEntry) -> Arc<dyn ObjectStore> {
        match &entry.origin {
            Some(_) => Arc::new(self.lineage_of(entry)),
            None => Arc::clone(&self.backing.store),
        }
    }

    /// Deletes the objects of a doomed volume, then its entry (`registry.doom_before_delete`).
    pub(crate) async fn delete_doomed(&self, id: Uuid) -> FsResult<()> {
        let store = &self.backing.store;
        let paths = store.list(Some(&prefix_of(id))).map_ok(|object| object.location).boxed();
        let mut deleted = store.delete_stream(paths);
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(store_error(&error)),
            }
        }
        if let Some(log) = &self.backing.log {
            log.remove(&stream_of(id)).await.map_err(|error| FsError::Io(error.to_string().into()))?;
        }
        self.update(|document| {
            document.volumes.retain(|entry| entry.info.id != id);
            Ok(())
        })
        .await
    }

    // -------------------------------------------------------------------------------------- document

    pub(crate) async fn read(&self) -> FsResult<(Document, Option<UpdateVersion>)> {
        let read = document::read(&*self.backing.store).await?;
        self.note_seats(&read.0);
        Ok(read)
    }

    pub(crate) async fn update(&self, change: impl FnMut(&mut Document) -> FsResult<()>) -> FsResult<()> {
        if self.follows.is_some() {
            return Err(follow::read_only());
        }
        document::update(&*self.backing.store, self.backing.log.as_deref(), change).await
    }
}

/// The registry's own handle is the only one left when nobody uses the volume. What it does by itself ends within moments.
async fn unused(volume: &Volume) -> FsResult<()> {
    for _ in 0..UNUSED_LOOKS {
        if Arc::strong_count(&volume.state) == 1 {
            return Ok(());
        }
        tokio::time::sleep(UNUSED_PAUSE).await;
    }
    Err(FsError::Busy("the volume is open"))
}

/// Closes the volume, if it is open and nobody uses it. Returns what was closed.
async fn close_unused(open: &mut HashMap<Uuid, Volume>, id: Uuid) -> FsResult<Option<Volume>> {
    let Some(volume) = open.get(&id) else { return Ok(None) };
    unused(volume).await?;
    let closed = volume.state.close().await;
    // What is closed serves nobody, however that went: the next caller opens it anew.
    let volume = open.remove(&id);
    closed.map(|()| volume)
}

fn handle(state: Arc<State>) -> Volume {
    Volume { state, origin: 0, answers: Answers::Durable, access_times: AccessTimes::RELATIVE, only: None }
}

pub(crate) fn check_volume_name(name: &str) -> FsResult<()> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if first && name.len() <= NAME_LEN_MAX && name.bytes().all(legal) {
        return Ok(());
    }
    Err(FsError::Invalid("a volume's name is 1 to 64 of a-z, 0-9, '_', '.', '-', beginning with a letter or digit"))
}

pub(crate) fn check_properties(properties: &Properties) -> FsResult<()> {
    let OwnerQuotas { users, groups } = &properties.owner_quotas;
    if users.iter().chain(groups).any(|quota| quota.id == 0) {
        return Err(FsError::Invalid("root has no quota"));
    }
    let record = properties.record_bytes;
    if record.is_power_of_two() && (4 << 10..=1 << 20).contains(&record) {
        return Ok(());
    }
    Err(FsError::Invalid("record size is a power of two from 4 KiB to 1 MiB"))
}

#[cfg(test)]
mod tests;
