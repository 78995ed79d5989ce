//! A store in a bucket in the place of a pool: opened, owned, watched and given back.
//! The loser of a store is told by [`Taking::on_loss`].

use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, FailureKind, PoolStatus};
use larder_base::Seat;
use larder_base::{LogStore, SystemClock, boxed};
use larder_store::{
    AfterLog, Beating, Bill, Bucket, BucketError, BucketLog, Bypass, Cached, DiskCache, FollowedLog, Machine, Owner,
    OwnerRecord, Prices, ReadOnly, TakeOver, Use,
};
use larder_volume::{Backing, Space};

use crate::journal_place::{JournalPlace, OpenJournal, log_error, missing_error, what_is_missing};
use crate::settings::StoreSettings;

/// A bucket has no end; clients want to see a number.
const ROOM_BYTES: u64 = 1 << 50;
/// A store that does not answer is not waited for longer than this when the daemon stops. What was acknowledged is in it.
pub(crate) const CLOSE_WAIT_MAX: Duration = Duration::from_secs(40);

pub struct OpenBucket {
    name: String,
    bucket: Bucket,
    /// `None`: another machine writes the store, and this one only reads it.
    owner: Option<Owner>,
    /// Renews the owner's record, where there is a standby.
    beating: parking_lot::Mutex<Option<Beating>>,
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

/// How long ago a follower last looked, and the bound.
type Behind = (Option<Duration>, Duration);

/// There is always room: the bill is the limit, and quotas.
struct Endless;

impl Space for Endless {
    fn space(&self) -> (u64, u64) {
        (ROOM_BYTES, ROOM_BYTES)
    }
}

/// How a store is taken.
pub struct Taking {
    /// This machine, as others see it in the bucket.
    pub machine: Machine,
    /// Also from a machine that has not given it back.
    pub take_over: bool,
    pub journal: Option<JournalPlace>,
    /// Called once when another machine has taken the store: what this process has in memory is no longer true.
    pub on_loss: fn(&str, &BucketError),
}

impl OpenBucket {
    /// Takes the store.
    #[boxed]
    pub async fn take(config: &StoreSettings, taking: Taking) -> Result<Self, Failure> {
        let place = taking.journal.clone();
        let taken = Self::take_with(config, taking).await;
        if let (Err(_), Some(place)) = (&taken, place) {
            // Nobody knows when it can be had.
            place.keep(&config.name).await;
        }
        taken
    }

    async fn take_with(config: &StoreSettings, taking: Taking) -> Result<Self, Failure> {
        let Taking { machine, take_over, journal, on_loss } = taking;
        let machine_name = machine.name.clone();
        let failed = |error| bucket_error(&config.name, &error);
        let bucket = Bucket::open(&config.bucket).map_err(failed)?;
        let before = larder_store::look_at(&*bucket.store, &config.seat).await.map_err(failed)?;
        refuse_without_own_journal(config, &machine, before.as_ref().filter(|_| !take_over), journal.as_ref())?;
        let how = if take_over { TakeOver::Forced } else { TakeOver::No };
        let owner = Owner::take_seat(Arc::clone(&bucket.store), &bucket.url, &config.seat, machine, how);
        let owner = owner.await.map_err(failed)?;
        let name = config.name.clone();
        owner.on_loss(move |error| on_loss(&name, error));
        let beating = config.standby.then(|| owner.beating());
        // Before the volumes are opened: an old owner that lives has ended by then, and its log holds still.
        owner.await_silence().await;
        // As the record said when it was taken: its owner may have renewed it since it was looked at.
        let missing = what_is_missing(&config.name, owner.inherited(), "", journal.as_ref());
        let mut open = Self::of(config, bucket, Some(owner.clone()), beating);
        if let Some(place) = journal {
            let log = BucketLog::new(Arc::clone(&open.bucket.store), Some(owner.clone()));
            let journal = OpenJournal::open(&config.name, machine_name, log, place).await?;
            open.store = Arc::new(AfterLog::new(Arc::clone(&open.store), journal.log.barrier(), is_immutable));
            open.log = Arc::new(journal.log.clone());
            open.journal = Some(journal);
        }
        // The record says so before anything is answered from the journal.
        if open.journal.is_some() || owner.inherited().is_some() {
            owner.settle_journal(open.journal.as_ref().map(OpenJournal::teller)).await.map_err(failed)?;
        }
        if let Some(missing) = &missing {
            tracing::error!(store = config.name, "{missing}");
        }
        open.missing = missing;
        Ok(open)
    }

    /// Opens a store that another machine writes, or wrote. Nobody is asked, and nothing is ever written there.
    pub fn follow(config: &StoreSettings) -> Result<Self, Failure> {
        let mut bucket = Bucket::open(&config.bucket).map_err(|error| bucket_error(&config.name, &error))?;
        bucket.store = Arc::new(ReadOnly(bucket.store));
        Ok(Self::of(config, bucket, None, None))
    }

    fn of(config: &StoreSettings, bucket: Bucket, owner: Option<Owner>, beating: Option<Beating>) -> Self {
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
        let (journal, missing, beating) = (None, None, parking_lot::Mutex::new(beating));
        OpenBucket { name, bucket, owner, beating, store, cache, log, journal, missing, cache_fault, prices }
    }

    /// The machines that sit at the store, this one among them.
    #[boxed]
    pub async fn seats(&self) -> Result<Vec<(Seat, OwnerRecord)>, Failure> {
        let seats = larder_store::look_at_all(&*self.bucket.store).await;
        seats.map_err(|error| bucket_error(&self.name, &error))
    }

    pub fn is_read_only(&self) -> bool {
        self.owner.is_none()
    }

    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// What volumes stand on here.
    pub(crate) fn backing(&self) -> Backing {
        Backing {
            store: self.store(),
            log: Some(Arc::clone(&self.log)),
            space: Arc::new(Endless),
            clock: Arc::new(SystemClock::default()),
        }
    }

    pub fn url(&self) -> &larder_store::BucketUrl {
        &self.bucket.url
    }

    pub fn store(&self) -> Arc<dyn object_store::ObjectStore> {
        Arc::clone(&self.store)
    }

    /// While the answer lives, the bucket itself is read.
    pub(crate) fn without_cache(&self) -> Option<Bypass> {
        self.cache.as_ref().map(DiskCache::bypass)
    }

    fn bill(&self, used: Use) -> Bill<'_> {
        Bill { requests: &self.bucket.requests, prices: self.prices.as_ref(), used }
    }

    pub fn status(&self, used: Use, behind: Option<Behind>) -> PoolStatus {
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
            owed_objects: 0,
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
        ownership(&owner.seat(), owner.epoch(), owner.beats())
    }

    /// How long the store has not answered, and why, if it does not.
    pub fn trouble(&self) -> Option<larder_store::Trouble> {
        self.bucket.health.trouble()
    }

    /// How long the oldest change waits in the journal for the bucket, and how many bytes do.
    pub fn journal_waits(&self) -> Option<(std::time::Duration, u64)> {
        self.journal.as_ref().map(OpenJournal::waits)
    }

    /// The pool whose journal answers.
    pub fn journal_pool(&self) -> Option<&str> {
        self.journal.as_ref().map(|journal| journal.place.pool.as_str())
    }

    /// Lets go of the entries that never reached the bucket.
    #[boxed]
    pub async fn forget_lost(&self) -> Result<(), Failure> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let forgotten = journal.place.local.forget_lost().await;
        forgotten.map_err(|error| log_error(&self.name, &error))?;
        journal.lost.lock().clear();
        Ok(())
    }

    pub fn metrics(&self, used: Use, behind: Option<Behind>, out: &mut larder_base::metrics::Metrics) {
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
    #[boxed]
    pub async fn close(&self) {
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
        // A standby saw it live until here.
        drop(self.beating.lock().take());
        let Some(owner) = &self.owner else { return };
        match tokio::time::timeout(CLOSE_WAIT_MAX, owner.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(store = self.name, %error, "the store could not be given back"),
            Err(_) => tracing::warn!(store = self.name, "the store could not be given back: it does not answer"),
        }
    }
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
fn open_cache(config: &StoreSettings) -> Option<Result<Arc<DiskCache>, String>> {
    let wanted = config.cache.as_ref()?;
    let opened = DiskCache::open(&wanted.dir, wanted.bytes.0, &config.bucket.url.to_string());
    Some(opened.map(Arc::new).map_err(|error| {
        let fault = format!("the cache in {} is not used: {error}", wanted.dir.display());
        tracing::warn!(store = config.name, "{fault}");
        fault
    }))
}

/// A machine that lost its own journal does not serve the store without what it had, unless a person has said so.
fn refuse_without_own_journal(
    config: &StoreSettings,
    machine: &Machine,
    before: Option<&OwnerRecord>,
    journal: Option<&JournalPlace>,
) -> Result<(), Failure> {
    let Some(before) = before.filter(|before| !before.released && before.machine.id == machine.id) else {
        return Ok(());
    };
    let Some(mark) = before.journal.as_ref().filter(|mark| !mark.given_up) else { return Ok(()) };
    match what_is_missing(&config.name, Some(mark), &before.machine.name, journal) {
        None => Ok(()),
        Some(missing) => Err(missing_error(&config.name, &missing, mark)),
    }
}

fn ownership(seat: &Seat, epoch: u64, beats: bool) -> String {
    let seat = seat.name().map(|name| format!(" at the seat '{name}'")).unwrap_or_default();
    let renewed = if beats { ", renewed for a standby" } else { "" };
    format!("owned by this machine{seat}, epoch {epoch}{renewed}")
}

pub fn bucket_error(name: &str, error: &BucketError) -> Failure {
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
    fn the_seat_is_named_unless_it_is_the_first() {
        let b: Seat = "b".parse().unwrap_or_default();
        assert_eq!(ownership(&Seat::default(), 3, false), "owned by this machine, epoch 3");
        assert_eq!(ownership(&b, 3, true), "owned by this machine at the seat 'b', epoch 3, renewed for a standby");
    }

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
