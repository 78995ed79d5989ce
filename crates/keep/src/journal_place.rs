//! The pool whose journal answers for a store: what waits in it, what is missing without it, and how that is said.

use larder_api::Failure;
use larder_base::boxed;
use larder_base::log::LogError;
use larder_base::units::ByteSize;
use larder_pool::Pool;
use larder_store::{BucketLog, JournalMark, JournalTeller, JournaledLog, Local, LostEntries};

use crate::missing::may_be_missing;
use crate::settings::StoreSettings;

/// The pool whose journal answers for a store.
#[derive(Clone)]
pub struct JournalPlace {
    pub pool: String,
    pool_id: String,
    /// The lives that it knows, newest first.
    lives: Vec<String>,
    pub local: Local,
}

pub struct OpenJournal {
    machine: String,
    pub place: JournalPlace,
    pub log: JournaledLog,
    /// Entries that found no place in the bucket any more.
    pub lost: parking_lot::Mutex<Vec<LostEntries>>,
}

impl JournalPlace {
    pub fn on(disks: &Pool, store: &StoreSettings, pool: &str) -> Self {
        let local = Local::new(&store.bucket.url.to_string(), disks.log(), disks.store());
        let lives = disks.lives().into_iter().map(|mark| format!("{mark:016x}")).collect();
        Self { pool: pool.to_owned(), pool_id: disks.id().to_string(), lives, local }
    }

    /// Moves what an earlier process left into objects, while this machine cannot have the store: the journal is for others, too. Says
    /// what is kept.
    #[boxed]
    pub async fn keep(&self, store: &str) {
        let parked = match self.local.park().await {
            Ok(parked) => parked,
            Err(error) => {
                return tracing::error!(store, pool = self.pool, %error, "what waits for the store stays in the journal");
            }
        };
        let (Some(from), Some(to)) =
            (parked.iter().map(|one| one.from_ms).min(), parked.iter().map(|one| one.to_ms).max())
        else {
            return;
        };
        tracing::warn!(
            store,
            pool = self.pool,
            entries = parked.iter().map(|one| one.entries).sum::<u64>(),
            bytes = parked.iter().map(|one| one.bytes).sum::<u64>(),
            from = crate::times::local(from),
            to = crate::times::local(to),
            "changes that may have been acknowledged here may not be in the bucket: they are kept in the pool until this machine has the store"
        );
    }

    /// Disks of one pool that were used apart from each other have different journals, too.
    fn is(&self, mark: &JournalMark) -> bool {
        self.pool_id == mark.pool_id && (mark.pool_life.is_empty() || self.lives.contains(&mark.pool_life))
    }
}

impl OpenJournal {
    #[boxed]
    pub async fn open(store: &str, machine: String, log: BucketLog, place: JournalPlace) -> Result<Self, Failure> {
        let failed = |error| log_error(store, &error);
        let log = JournaledLog::recover(log, place.local.clone()).await.map_err(failed)?;
        let lost = parking_lot::Mutex::new(place.local.lost().await.map_err(failed)?);
        Ok(Self { machine, place, log, lost })
    }

    pub(crate) fn teller(&self) -> JournalTeller {
        let (pool, pool_id, log) = (self.place.pool.clone(), self.place.pool_id.clone(), self.log.clone());
        let (drained_ms, machine) = (self.log.drained_ms(), self.machine.clone());
        let pool_life = self.place.lives.first().cloned().unwrap_or_default();
        Box::new(move || {
            let waits = log.undrained();
            JournalMark {
                pool: pool.clone(),
                pool_id: pool_id.clone(),
                pool_life: pool_life.clone(),
                drained_ms: drained_ms(),
                renewed: 0,
                machine: machine.clone(),
                entries: waits.entries,
                bytes: waits.bytes,
                at_rest: false,
                given_up: false,
            }
        })
    }

    /// How long the oldest change waits for the bucket, and how many bytes do.
    pub fn waits(&self) -> (std::time::Duration, u64) {
        let waits = self.log.undrained();
        (waits.oldest, waits.bytes)
    }

    pub fn note(&self) -> String {
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
    pub fn told(&self, store: &str) -> Option<(String, String)> {
        let lost = self.lost.lock();
        let (from, to) = (lost.iter().map(|one| one.from_ms).min()?, lost.iter().map(|one| one.to_ms).max()?);
        let (entries, bytes): (u64, u64) =
            (lost.iter().map(|one| one.entries).sum(), lost.iter().map(|one| one.bytes).sum());
        Some((
            format!(
                "Changes made here from {} to {} ({entries} log entries, {}), which may have been acknowledged, never reached the bucket: another machine has taken the store and written since. They are not in the volumes, and kept in the pool '{}'.",
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

pub(crate) fn log_error(store: &str, error: &LogError) -> Failure {
    Failure::unavailable(format!("the store '{store}': {error}"))
}

/// What this machine would serve without. `None`: nothing is known to be missing.
pub(crate) fn what_is_missing(
    store: &str,
    mark: Option<&JournalMark>,
    owner: &str,
    journal: Option<&JournalPlace>,
) -> Option<String> {
    let mark = mark.filter(|mark| mark.may_miss())?;
    match journal.filter(|place| place.is(mark)) {
        Some(place) if place.local.is_proven() => None,
        Some(place) => Some(format!(
            "the journal of the pool '{}' has lost changes: those of the store '{store}' after {} may be missing",
            place.pool,
            crate::times::local(mark.drained_ms)
        )),
        None => Some(may_be_missing(mark, owner)),
    }
}

pub(crate) fn missing_error(store: &str, missing: &str, mark: &JournalMark) -> Failure {
    let pool = &mark.pool;
    Failure::unavailable(format!("the store '{store}' is not served: {missing}")).action(format!(
        "bring the pool '{pool}' back, with durability = \"journal\" and journal = \"{pool}\" in [[store]]; if it is gone for good, go on without those changes: larder up --force"
    ))
}
