//! A store in a bucket in the place of a pool: opened, owned, watched and given back.
//!
//! - `bucket.loser_ends`: a process whose store was taken over ends at once, before it answers anything. What it has in memory is
//!   no longer true, its clients find their store elsewhere, and a crash is what every other part is made for. Whatever started it
//!   may start it again: it stands by then, or says who has the store.
//! - `bucket.standby_has_no_doors`: a process that stands by listens to nobody until it has the store. So a port that answers is a
//!   sign that this machine serves.

use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, FailureKind, PoolStatus};
use larder_base::Seat;
use larder_base::units::ByteSize;
use larder_base::{LogStore, SystemClock, log::LogError};
use larder_store::{
    AfterLog, Bill, Bucket, BucketError, BucketLog, Bypass, Cached, DiskCache, FollowedLog, JournalMark, JournalTeller,
    JournaledLog, Local, LostEntries, Machine, Owner, OwnerRecord, Prices, ReadOnly, TakeOver, Use, Watched,
};
use larder_volume::{Backing, Space};
use tokio::task::JoinHandle;

use super::storage::Storage;
use crate::config::{Config, NO_STANDBY, StoreConfig};
use crate::folder::DataFolder;
use crate::machine;

/// A bucket has no end; clients want to see a number.
const ROOM_BYTES: u64 = 1 << 50;
/// A store that does not answer is not waited for longer than this when the daemon stops. What was acknowledged is in it.
pub(super) const CLOSE_WAIT_MAX: Duration = Duration::from_secs(40);

pub(crate) struct OpenBucket {
    name: String,
    bucket: Bucket,
    /// `None`: another machine writes the store, and this one only reads it.
    owner: Option<Owner>,
    /// Renews the owner's record, where there is a standby.
    beating: Option<JoinHandle<()>>,
    /// As the volumes see it.
    store: Arc<dyn object_store::ObjectStore>,
    cache: Option<Arc<DiskCache>>,
    log: Arc<dyn LogStore>,
    journal: Option<OpenJournal>,
    /// What may be missing, for as long as this process has the store.
    missing: Option<String>,
    /// Why there is no cache where one was wanted.
    cache_fault: Option<String>,
    prices: Option<Prices>,
}

/// The pool whose journal answers for a store.
pub(crate) struct JournalPlace {
    pool: String,
    pool_id: String,
    local: Local,
}

struct OpenJournal {
    place: JournalPlace,
    log: JournaledLog,
    /// Entries that found no place in the bucket any more.
    lost: parking_lot::Mutex<Vec<LostEntries>>,
}

impl JournalPlace {
    pub(super) fn of(storage: &Storage, store: &StoreConfig, pool: &str) -> Result<Self, Failure> {
        let closed = |why: &str| {
            Failure::new(
                FailureKind::Unavailable,
                format!("the store '{}' answers from the journal of the pool '{pool}', which {why}", store.name),
            )
            .action(format!("see what is wrong with the pool: larder pool status {pool}"))
        };
        let open = storage.pool(Some(pool)).map_err(|_| closed("is not open"))?;
        let disks = open.disk_pool().ok_or_else(|| closed("has no disks"))?;
        let local = Local::new(&store.bucket.url.to_string(), disks.log(), disks.store());
        Ok(Self { pool: pool.to_owned(), pool_id: disks.id().to_string(), local })
    }

    fn is(&self, mark: &JournalMark) -> bool {
        self.pool_id == mark.pool_id
    }
}

/// How long ago a follower last looked, and the bound.
type Behind = (Option<Duration>, Duration);

/// The exit code of a process that lost its store (`bucket.loser_ends`).
const LOST_EXIT: i32 = 5;
/// Tells this data folder from a copy on a machine that has the same name and id, as containers may.
const FOLDER_ID: &str = "store-id";

/// There is always room: the bill is the limit, and quotas.
struct Endless;

impl Space for Endless {
    fn space(&self) -> (u64, u64) {
        (ROOM_BYTES, ROOM_BYTES)
    }
}

/// This daemon, as others see it in a bucket.
pub(crate) fn this_machine(folder: &DataFolder) -> Result<Machine, Failure> {
    let name = machine::host_name();
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_else(|_| name.clone());
    let file = folder.path().join(FOLDER_ID);
    let own = match std::fs::read_to_string(&file) {
        Ok(own) if !own.trim().is_empty() => own.trim().to_owned(),
        _ => {
            let own = uuid::Uuid::new_v4().simple().to_string();
            crate::config::edit::replace_file(&file, own.as_bytes(), 0o600)?;
            own
        }
    };
    Ok(Machine { id: format!("{}:{own}:{}", id.trim(), folder.path().display()), name })
}

/// Waits until this machine may have the store, if its configuration says that another machine stands in for it. Takes it then;
/// opening it takes it once more.
pub(crate) async fn stand_by(config: &Config, folder: &DataFolder) -> Result<(), Failure> {
    let Some(store) = config.stores.iter().find(|store| store.standby) else { return Ok(()) };
    if config.stores.len() > 1 || !config.pools.is_empty() {
        return Err(Failure::invalid(format!(
            "the store '{}' has a standby, and this daemon has other pools or stores: they would wait with it",
            store.name
        ))
        .action("serve them by a daemon of their own: larder serve --data ANOTHER-DIR"));
    }
    if store.journal.is_some() {
        return Err(Failure::invalid(format!("the store '{}': {NO_STANDBY}", store.name)));
    }
    let bucket = Bucket::open(&store.bucket).map_err(|error| bucket_failure(&store.name, &error))?;
    let name = store.name.clone();
    let told = move |watched: &Watched| match watched.beats {
        true => tracing::info!(store = name, owner = watched.machine.name, epoch = watched.epoch, "stands by"),
        false => tracing::warn!(
            store = name,
            owner = watched.machine.name,
            epoch = watched.epoch,
            "stands by until the owner gives the store back: it shows no sign of life, because its [[store]] has no standby = true"
        ),
    };
    let taken = Owner::stand_by_seat(bucket.store, &bucket.url, &store.seat, this_machine(folder)?, told).await;
    let owner = taken.map_err(|error| bucket_failure(&store.name, &error))?;
    tracing::info!(store = store.name, epoch = owner.epoch(), "took the store");
    Ok(())
}

impl OpenBucket {
    /// Takes the store. With `take_over` also from a machine that has not given it back.
    pub(super) async fn take(
        config: &StoreConfig,
        machine: Machine,
        take_over: bool,
        journal: Option<JournalPlace>,
    ) -> Result<Self, Failure> {
        let local = journal.as_ref().map(|place| (place.local.clone(), place.pool.clone()));
        let taken = Self::take_with(config, machine, take_over, journal).await;
        let (Err(_), Some((local, pool))) = (&taken, local) else { return taken };
        // Nobody knows when it can be had: the journal is for others, too.
        match local.park().await {
            Ok(0) => {}
            Ok(entries) => tracing::warn!(
                store = config.name,
                pool,
                entries,
                "changes that were acknowledged here are not in the bucket: they are kept in the pool until this machine has the store"
            ),
            Err(error) => {
                tracing::error!(store = config.name, pool, %error, "what waits for the store stays in the journal")
            }
        }
        taken
    }

    async fn take_with(
        config: &StoreConfig,
        machine: Machine,
        take_over: bool,
        journal: Option<JournalPlace>,
    ) -> Result<Self, Failure> {
        let failed = |error| bucket_failure(&config.name, &error);
        let bucket = Bucket::open(&config.bucket).map_err(failed)?;
        let before = larder_store::look_at(&*bucket.store, &config.seat).await.map_err(failed)?;
        let missing = what_is_missing(config, &machine, before.as_ref(), journal.as_ref());
        if let (Some(missing), Some(before)) = (&missing, &before)
            && before.machine.id == machine.id
            && !take_over
        {
            return Err(missing_failure(&config.name, missing, before));
        }
        let how = if take_over { TakeOver::Forced } else { TakeOver::No };
        let owner = Owner::take_seat(Arc::clone(&bucket.store), &bucket.url, &config.seat, machine, how);
        let owner = owner.await.map_err(failed)?;
        let name = config.name.clone();
        owner.on_loss(move |error| end_loser(&name, error));
        // Before the volumes are opened: an old owner that lives has ended by then, and its log holds still.
        owner.await_silence().await;
        let beating = config.standby.then(|| {
            let owner = owner.clone();
            tokio::spawn(async move { owner.beat().await })
        });
        let mut open = Self::of(config, bucket, Some(owner.clone()), beating);
        if let Some(place) = journal {
            let log = BucketLog::new(Arc::clone(&open.bucket.store), Some(owner.clone()));
            let journal = OpenJournal::open(&config.name, log, place).await?;
            open.store = Arc::new(AfterLog::new(Arc::clone(&open.store), journal.log.barrier(), is_immutable));
            open.log = Arc::new(journal.log.clone());
            open.journal = Some(journal);
        }
        // The record says so before anything is answered from the journal.
        if open.journal.is_some() || before.is_some_and(|before| before.journal.is_some()) {
            owner.settle_journal(open.journal.as_ref().map(OpenJournal::teller)).await.map_err(failed)?;
        }
        if let Some(missing) = &missing {
            tracing::error!(store = config.name, "{missing}");
        }
        open.missing = missing;
        Ok(open)
    }

    /// Opens a store that another machine writes, or wrote. Nobody is asked, and nothing is ever written there.
    pub(super) fn follow(config: &StoreConfig) -> Result<Self, Failure> {
        let mut bucket = Bucket::open(&config.bucket).map_err(|error| bucket_failure(&config.name, &error))?;
        bucket.store = Arc::new(ReadOnly(bucket.store));
        Ok(Self::of(config, bucket, None, None))
    }

    fn of(config: &StoreConfig, bucket: Bucket, owner: Option<Owner>, beating: Option<JoinHandle<()>>) -> Self {
        let (cache, cache_fault) = match open_cache(config).transpose() {
            Ok(cache) => (cache, None),
            Err(fault) => (None, Some(fault)),
        };
        let store: Arc<dyn object_store::ObjectStore> = match &cache {
            None => Arc::clone(&bucket.store),
            Some(cache) => Arc::new(Cached::new(Arc::clone(&bucket.store), Arc::clone(cache), is_immutable)),
        };
        let bucket_store = Arc::clone(&bucket.store);
        let log: Arc<dyn LogStore> = match &owner {
            Some(owner) => Arc::new(BucketLog::new(bucket_store, Some(owner.clone()))),
            None => Arc::new(FollowedLog::new(bucket_store)),
        };
        let (name, prices) = (config.name.clone(), config.prices.clone());
        let (journal, missing) = (None, None);
        OpenBucket { name, bucket, owner, beating, store, cache, log, journal, missing, cache_fault, prices }
    }

    /// The machines that sit at the store, this one among them.
    pub(super) async fn seats(&self) -> Result<Vec<(Seat, OwnerRecord)>, Failure> {
        let seats = larder_store::look_at_all(&*self.bucket.store).await;
        seats.map_err(|error| bucket_failure(&self.name, &error))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.owner.is_none()
    }

    /// What volumes stand on here.
    pub(super) fn backing(&self) -> Backing {
        Backing {
            store: self.store(),
            log: Some(Arc::clone(&self.log)),
            space: Arc::new(Endless),
            clock: Arc::new(SystemClock::default()),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn object_store::ObjectStore> {
        Arc::clone(&self.store)
    }

    /// While the answer lives, the bucket itself is read.
    pub(super) fn without_cache(&self) -> Option<Bypass> {
        self.cache.as_ref().map(DiskCache::bypass)
    }

    fn bill(&self, used: Use) -> Bill<'_> {
        Bill { requests: &self.bucket.requests, prices: self.prices.as_ref(), used }
    }

    pub(super) fn status(&self, used: Use, behind: Option<Behind>) -> PoolStatus {
        let trouble = self.bucket.health.trouble();
        let (status, action) = match &trouble {
            None => self.journal.as_ref().and_then(|journal| journal.told(&self.name)).unzip(),
            Some(trouble) => (
                Some(format!(
                    "The store has not answered for {} s ({}). Writes wait, and reads of what is not in memory.",
                    trouble.lasts.as_secs(),
                    trouble.why
                )),
                Some(format!(
                    "Nothing is lost, and it goes on by itself. Try the store with: larder store check {}",
                    self.bucket.url
                )),
            ),
        };
        let cache = self.cache.as_ref().map(|cache| cache.status()).or_else(|| self.cache_fault.clone());
        PoolStatus {
            name: self.name.clone(),
            id: self.bucket.url.to_string(),
            layout: "bucket".to_owned(),
            state: if trouble.is_some() { "UNREACHABLE" } else { "ONLINE" }.to_owned(),
            status,
            action,
            scan: None,
            scrub: None,
            damage: larder_api::Damage::default(),
            total_bytes: ROOM_BYTES,
            used_bytes: 0,
            available_bytes: ROOM_BYTES,
            disks: Vec::new(),
            spares: Vec::new(),
            moving: None,
            notes: self
                .bill(used)
                .lines()
                .into_iter()
                .chain([self.ownership(behind)])
                .chain(self.journal.as_ref().map(OpenJournal::note))
                .chain(self.missing.clone())
                .chain(cache)
                .collect(),
        }
    }

    fn ownership(&self, behind: Option<Behind>) -> String {
        if let Some((age, behind_max)) = behind {
            let looked = match age {
                Some(age) => format!("last look {} s ago", age.as_secs()),
                None => "no volume is open yet".to_owned(),
            };
            let most = behind_max.as_secs();
            return format!("read-only: another machine writes it, and answers are at most {most} s behind ({looked})");
        }
        let Some(owner) = &self.owner else { return "read-only".to_owned() };
        let renewed = if owner.beats() { ", renewed for a standby" } else { "" };
        format!("owned by this machine, epoch {}{renewed}", owner.epoch())
    }

    /// The pool whose journal answers.
    pub(super) fn journal_pool(&self) -> Option<&str> {
        self.journal.as_ref().map(|journal| journal.place.pool.as_str())
    }

    /// Lets go of the entries that never reached the bucket.
    pub(super) async fn forget_lost(&self) -> Result<(), Failure> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let forgotten = journal.place.local.forget_lost().await;
        forgotten.map_err(|error| log_failure(&self.name, &error))?;
        journal.lost.lock().clear();
        Ok(())
    }

    pub(super) fn metrics(&self, used: Use, behind: Option<Behind>, out: &mut larder_base::metrics::Metrics) {
        self.bucket.requests.metrics(&self.name, out);
        self.bill(used).metrics(&self.name, out);
        if let Some(cache) = &self.cache {
            cache.metrics(&self.name, out);
        }
        if let Some(journal) = &self.journal {
            journal.log.metrics(&self.name, out);
        }
        if let Some((Some(age), _)) = behind {
            let help = "How long ago a read-only replica last looked at what the owner has written.";
            out.gauge("larder_store_behind_seconds", help, &[("store", self.name.as_str())], age.as_secs());
        }
        let lasts = self.bucket.health.trouble().map_or(0, |trouble| trouble.lasts.as_secs().max(1));
        let labels = [("store", self.name.as_str())];
        out.gauge("larder_store_unreachable_seconds", "For how long the bucket has not answered.", &labels, lasts);
    }

    /// Gives the store back. If that fails, its next user has to say that this machine is gone.
    pub(super) async fn close(&self) {
        if let Some(beating) = &self.beating {
            beating.abort();
        }
        if let Some(journal) = &self.journal
            && !matches!(tokio::time::timeout(CLOSE_WAIT_MAX, journal.log.drained()).await, Ok(Ok(())))
        {
            tracing::warn!(
                store = self.name,
                "the store is not given back, because the bucket does not take the newest changes: they wait in the journal of the pool '{}'; start larder again on this machine",
                journal.place.pool
            );
            return;
        }
        let Some(owner) = &self.owner else { return };
        match tokio::time::timeout(CLOSE_WAIT_MAX, owner.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(store = self.name, %error, "the store could not be given back"),
            Err(_) => tracing::warn!(store = self.name, "the store could not be given back: it does not answer"),
        }
    }
}

impl OpenJournal {
    async fn open(store: &str, log: BucketLog, place: JournalPlace) -> Result<Self, Failure> {
        let failed = |error| log_failure(store, &error);
        let log = JournaledLog::recover(log, place.local.clone()).await.map_err(failed)?;
        let lost = parking_lot::Mutex::new(place.local.lost().await.map_err(failed)?);
        Ok(Self { place, log, lost })
    }

    fn teller(&self) -> JournalTeller {
        let (pool, pool_id, drained_ms) = (self.place.pool.clone(), self.place.pool_id.clone(), self.log.drained_ms());
        Box::new(move || JournalMark {
            pool: pool.clone(),
            pool_id: pool_id.clone(),
            drained_ms: drained_ms(),
            renewed: 0,
        })
    }

    fn note(&self) -> String {
        let (waits, pool) = (self.log.undrained(), &self.place.pool);
        match waits.entries {
            0 => format!("answers from the journal of the pool '{pool}'; the bucket has all of it"),
            _ => format!(
                "answers from the journal of the pool '{pool}'; the changes of the last {:.1} s, {}, are not in the bucket yet, and lost if that pool is",
                waits.oldest.as_secs_f64(),
                ByteSize(waits.bytes)
            ),
        }
    }

    /// What a person has to hear of, and what to do.
    fn told(&self, store: &str) -> Option<(String, String)> {
        let lost = self.lost.lock();
        let (from, to) = (lost.iter().map(|one| one.from_ms).min()?, lost.iter().map(|one| one.to_ms).max()?);
        let (entries, bytes): (u64, u64) =
            (lost.iter().map(|one| one.entries).sum(), lost.iter().map(|one| one.bytes).sum());
        Some((
            format!(
                "Changes acknowledged here from {} to {} ({entries} log entries, {}) never reached the bucket: another machine has taken the store and written since. They are not in the volumes, and kept in the pool '{}'.",
                crate::times::local(from),
                crate::times::local(to),
                ByteSize(bytes),
                self.place.pool
            ),
            format!(
                "Look at what was written then, and write it again where it is missing; when nobody needs them: larder store forget {store}"
            ),
        ))
    }
}

fn log_failure(store: &str, error: &LogError) -> Failure {
    Failure::new(FailureKind::Unavailable, format!("the store '{store}': {error}"))
}

/// What this machine would serve without. `None`: nothing is known to be missing.
fn what_is_missing(
    config: &StoreConfig,
    machine: &Machine,
    before: Option<&OwnerRecord>,
    journal: Option<&JournalPlace>,
) -> Option<String> {
    let before = before.filter(|before| !before.released)?;
    let mark = before.journal.as_ref()?;
    let place = journal.filter(|place| before.machine.id == machine.id && place.is(mark));
    let since = crate::times::local(mark.drained_ms);
    match place {
        Some(place) if place.local.is_proven() => None,
        Some(place) => Some(format!(
            "the journal of the pool '{}' has lost changes: those of the store '{}' after {since} may be missing",
            place.pool, config.name
        )),
        None => Some(format!(
            "changes after {since} may be missing: {} answered from the journal of its pool '{}', and only that pool has what the bucket does not",
            before.machine.name, mark.pool
        )),
    }
}

fn missing_failure(store: &str, missing: &str, before: &OwnerRecord) -> Failure {
    let pool = before.journal.as_ref().map_or("", |mark| mark.pool.as_str());
    Failure::new(FailureKind::Unavailable, format!("the store '{store}' is not served: {missing}")).action(format!(
        "bring the pool '{pool}' back, with durability = \"journal\" and journal = \"{pool}\" in [[store]]; if it is gone for good, go on without those changes: larder up --force"
    ))
}

/// Whether an object of a store is written once, whole, and never changed: segments and tables (FORMAT.md, "Volume").
fn is_immutable(path: &object_store::path::Path) -> bool {
    let parts: Vec<_> = path.parts().collect();
    let parts: Vec<&str> = parts.iter().map(|part| part.as_ref()).collect();
    match parts[..] {
        ["volumes", _, "seg", ..] => true,
        ["volumes", _, "meta", "compacted", name] => name.ends_with(".sst"),
        _ => false,
    }
}

/// A store is served without the cache that cannot be opened (`cache.never_needed`).
fn open_cache(config: &StoreConfig) -> Option<Result<Arc<DiskCache>, String>> {
    let wanted = config.cache.as_ref()?;
    let opened = DiskCache::open(&wanted.dir, wanted.bytes.0, &config.bucket.url.to_string());
    Some(opened.map(Arc::new).map_err(|error| {
        let fault = format!("the cache in {} is not used: {error}", wanted.dir.display());
        tracing::warn!(store = config.name, "{fault}");
        fault
    }))
}

/// `bucket.loser_ends`
fn end_loser(name: &str, error: &BucketError) {
    tracing::error!("the store '{name}': {error}; larder ends, and answers nothing more");
    std::process::exit(LOST_EXIT);
}

pub(crate) fn bucket_failure(name: &str, error: &BucketError) -> Failure {
    let kind = match error {
        BucketError::Invalid(_) => FailureKind::Invalid,
        BucketError::Owned { .. } => FailureKind::Busy,
        BucketError::Lost { .. } | BucketError::Store { .. } | BucketError::Damaged(..) => FailureKind::Unavailable,
    };
    let failure = Failure::new(kind, format!("the store '{name}': {error}"));
    match error {
        BucketError::Owned { machine, .. } => failure.action(format!(
            "stop larder on {machine}, which gives it back; if that machine is gone for good, or has to give way, repeat larder up with --force"
        )),
        BucketError::Store { source: object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }, .. } => {
            failure.action("look at the keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and ~/.aws/credentials; and at what they may do in the bucket")
        }
        BucketError::Store { .. } => failure.action("try it with: larder store check s3://BUCKET/PREFIX --endpoint URL"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_changes() {
        for (path, want) in [
            ("volumes/x/seg/0000000100000001", true),
            ("volumes/x/meta/compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst", true),
            ("volumes/x/meta/manifest/00000000000000000001.manifest", false),
            ("volumes/x/keyring", false),
            ("registry.json", false),
            ("owner.json", false),
            ("log/volume-x/0000000000000001-0000000000000000", false),
        ] {
            assert_eq!(is_immutable(&object_store::path::Path::from(path)), want, "{path}");
        }
    }
}
