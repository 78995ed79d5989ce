//! The owner of a store: one machine at a time, written in the store itself.
//!
//! `owner.json` is replaced by conditional writes alone. Each that takes the store raises its epoch; giving it back when the daemon
//! stops only says so. Without a standby no sign of life is written, so that an idle store costs nothing: whether a machine that has
//! not given its store back is gone for good, a person has to say. With one ([`Owner::beat`]) the record is renewed every [`BEAT`].
//!
//! ```text
//!   old owner   ...proof--|------ TENURE_MAX ------|  no answer any more
//!   record            taken by another ^
//!   new owner                          |------ TENURE_WAIT ------|  answers
//! ```
//!
//! - `owner.asks_first`: a store that another machine has not given back is not taken unasked.
//! - `owner.log_fences`: that an owner who lost the store acknowledges no change any more is the log's doing ([`crate::log`]),
//!   whatever this record says.
//! - `owner.answers_on_proof`: nothing is answered, not even from memory, unless the record was this owner's at a moment less than
//!   [`TENURE_MAX`] ago. The moment is that before the request for the record left. It is measured by a clock that goes on while the
//!   process is stopped and the machine sleeps.
//! - `owner.taker_waits`: whoever takes a store that was not given back answers nothing for [`TENURE_WAIT`]. By then no proof of the
//!   old owner is young enough. No clock is compared with another machine's: both only measure how long something takes.
//! - `owner.wait_is_inherited`: until that wait is over the record says so. Whoever takes the store from it, the same machine after
//!   a restart too, waits as long.
//! - `owner.young_at_the_answer`: a proof that took longer than [`TENURE_MAX`] to come is none.
//! - `owner.each_renewal_differs`: no two renewals write the same record, tried again or not: a standby would see one that changes
//!   nothing as silence, while the owner takes it for a proof.
//! - `owner.unchanged_is_silent`: a standby takes the store when it has seen one and the same record for [`SILENCE_MAX`] by its own
//!   clock. The write is conditional on that record, so an owner that renews it in time keeps the store. Where the owner renews, it
//!   takes only its renewals for proofs: the last one is older than [`TENURE_WAIT`] then, and nobody waits again.
//! - `owner.journal_is_named`: an owner that answers from a local journal says so in the record, and up to which moment the bucket has
//!   everything. It renews that with each proof. The mark stays until the journal has been emptied, or its owner has ended in order:
//!   whoever takes the store without that journal knows what may be missing.
//! - `owner.one_record_a_seat`: machines that share a store sit at different seats, each with a record of its own (`owners/NAME.json`
//!   beside `owner.json`). All of the above is about one seat; which volumes are whose, the registry says.
//! - `owner.end_is_final`: who lost the store never has it again in this process, whatever the record says later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::TryStreamExt;
use larder_base::Seat;
use larder_base::clock::since_boot;
use larder_base::log::{LogError, Tenure};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use crate::BucketError;
use crate::names;
use crate::settings::BucketUrl;

const FORMAT: u32 = 1;
const RECORD_BYTES_MAX: u64 = 64 << 10;
const TRIES_MAX: usize = 16;
/// More seats at a store are not listed.
const SEATS_MAX: usize = 256;
/// Proofs in a row that come too late (`owner.young_at_the_answer`).
const PROOFS_MAX: usize = 4;
/// A proof older than this is none (`owner.answers_on_proof`).
pub const TENURE_MAX: Duration = Duration::from_secs(5);
/// From this age on a new proof is on its way, so that users of a busy store never wait for one.
const TENURE_RENEWED: Duration = Duration::from_millis(2500);
/// `owner.taker_waits`: [`TENURE_MAX`], and room for clocks that run at different speeds.
pub const TENURE_WAIT: Duration = Duration::from_secs(6);
/// How often an owner with a standby renews its record.
pub const BEAT: Duration = Duration::from_secs(3);
/// How often a standby looks.
const LOOK: Duration = Duration::from_secs(2);
/// `owner.unchanged_is_silent`
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

const _: () = assert!(TENURE_MAX.as_millis() + 500 < TENURE_WAIT.as_millis());
const _: () = assert!(TENURE_WAIT.as_millis() < SILENCE_MAX.as_millis());
const _: () = assert!(BEAT.as_millis() < TENURE_MAX.as_millis());

/// A machine that serves a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name, for people.
    pub name: String,
    /// Tells it from all others, with the data folder of its daemon.
    pub id: String,
}

/// `owner.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    format: u32,
    /// How often the store was taken.
    pub epoch: u64,
    /// Who has it, or had it last.
    pub machine: Machine,
    /// When it was taken, in milliseconds of that machine's clock since 1970. Nothing but words depends on it.
    pub taken_ms: u64,
    /// It was given back.
    pub released: bool,
    /// How often the owner has renewed the record. `None`: it does not, and its silence says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
    /// The owner answers from a journal of its own, which only its disks have (`owner.journal_is_named`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalMark>,
    /// The owner has not yet waited until no earlier one answers any more (`owner.wait_is_inherited`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub waits: bool,
}

/// The journal that an owner answers from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalMark {
    /// The pool that has it: its name and its id.
    pub pool: String,
    /// See `pool`.
    pub pool_id: String,
    /// Everything acknowledged before this moment is in the bucket, in milliseconds of that machine's clock since 1970.
    pub drained_ms: u64,
    /// Counts renewals, so that each differs from the one before (`owner.each_renewal_differs`).
    #[serde(default)]
    pub renewed: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a store is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// Only what was given back, or was this machine's (`owner.asks_first`).
    No,
    /// From anybody: a person said so.
    Forced,
}

/// A process that has a store.
#[derive(Clone)]
pub struct Owner(Arc<Held>);

/// Says how far a journal is drained.
pub type JournalTeller = Box<dyn Fn() -> JournalMark + Send + Sync>;

/// Hears that the store is another's.
type OnLoss = Box<dyn Fn(&BucketError) + Send + Sync>;

struct Held {
    store: Arc<dyn ObjectStore>,
    url: BucketUrl,
    /// Where the record lies.
    at: Path,
    machine: Machine,
    epoch: u64,
    /// Nothing is answered before (`owner.taker_waits`).
    answers_from: Instant,
    /// The record as this owner wrote it last. The lock makes renewals follow each other.
    newest: Mutex<(OwnerRecord, UpdateVersion)>,
    beats: AtomicBool,
    /// The time since the machine's boot of the newest proof, in milliseconds.
    proven_ms: AtomicU64,
    /// A proof is on its way already.
    is_proving: AtomicBool,
    /// It was given back, or is about to be: nothing proves anything any more.
    is_released: AtomicBool,
    /// Who has the store now (`owner.end_is_final`).
    lost_to: OnceLock<String>,
    on_loss: OnceLock<OnLoss>,
    journal: OnceLock<Option<JournalTeller>>,
}

impl Owner {
    /// Takes the store, at the first seat.
    pub async fn take(
        store: Arc<dyn ObjectStore>,
        url: &BucketUrl,
        machine: Machine,
        take_over: TakeOver,
    ) -> Result<Owner, BucketError> {
        Self::take_seat(store, url, &Seat::default(), machine, take_over).await
    }

    /// Takes a seat at the store (`owner.one_record_a_seat`).
    pub async fn take_seat(
        store: Arc<dyn ObjectStore>,
        url: &BucketUrl,
        seat: &Seat,
        machine: Machine,
        take_over: TakeOver,
    ) -> Result<Owner, BucketError> {
        let at = names::owner(seat);
        for _ in 0..TRIES_MAX {
            let (old, version) = read(&*store, &at).await?.unzip();
            let is_free = old.as_ref().is_none_or(|old| old.released || old.machine.id == machine.id);
            if let Some(old) = old.as_ref().filter(|_| !is_free && take_over == TakeOver::No) {
                return Err(BucketError::Owned {
                    url: worded(url, &at),
                    machine: old.machine.name.clone(),
                    since: ago(old.taken_ms),
                });
            }
            let waits = !is_free || old.as_ref().is_some_and(|old| old.waits);
            let wait = if waits { TENURE_WAIT } else { Duration::ZERO };
            if let Some(owner) = Self::replace((&store, &at), url, &machine, old.zip(version), wait).await? {
                return Ok(owner);
            }
            // Somebody else was quicker. Whoever that is has it now, and is asked about as any other.
        }
        Err(BucketError::Invalid(format!("others keep taking the store {}", worded(url, &at))))
    }

    /// Waits until the store is given back or its owner is silent, and takes it then (`owner.unchanged_is_silent`).
    /// `told` hears of each change of what there is to wait for.
    pub async fn stand_by(
        store: Arc<dyn ObjectStore>,
        url: &BucketUrl,
        machine: Machine,
        told: impl FnMut(&Watched),
    ) -> Result<Owner, BucketError> {
        Self::stand_by_seat(store, url, &Seat::default(), machine, told).await
    }

    /// As [`Owner::stand_by`], for a seat.
    pub async fn stand_by_seat(
        store: Arc<dyn ObjectStore>,
        url: &BucketUrl,
        seat: &Seat,
        machine: Machine,
        mut told: impl FnMut(&Watched),
    ) -> Result<Owner, BucketError> {
        let at = names::owner(seat);
        let mut seen: Option<(OwnerRecord, Instant)> = None;
        let mut before: Option<Watched> = None;
        loop {
            let asked = Instant::now();
            match read(&*store, &at).await {
                Ok(read) => {
                    let (old, version) = read.unzip();
                    let since = match (&seen, &old) {
                        (Some((record, since)), Some(old)) if record == old => *since,
                        // What was read may have been renewed since: its silence begins with the answer.
                        _ => Instant::now(),
                    };
                    seen = old.clone().map(|old| (old, since));
                    let is_free = old.as_ref().is_none_or(|old| old.released || old.machine.id == machine.id);
                    let is_silent = old.as_ref().is_some_and(|old| old.beat.is_some())
                        && asked.saturating_duration_since(since) >= SILENCE_MAX;
                    if is_free || is_silent {
                        // Silent for longer than any proof lasts (`owner.unchanged_is_silent`), that of its predecessor too.
                        let waits = !is_silent && old.as_ref().is_some_and(|old| old.waits);
                        let wait = if waits { TENURE_WAIT } else { Duration::ZERO };
                        let taken = Self::replace((&store, &at), url, &machine, old.zip(version), wait).await?;
                        if let Some(owner) = taken {
                            return Ok(owner);
                        }
                        seen = None;
                    } else if let Some(old) = &old {
                        let now = Watched { machine: old.machine.clone(), epoch: old.epoch, beats: old.beat.is_some() };
                        if before.as_ref() != Some(&now) {
                            told(&now);
                            before = Some(now);
                        }
                    }
                }
                // While the store does not answer, nobody has been seen: silence is counted anew.
                Err(error) => {
                    tracing::warn!(%error, "the standby cannot read the owner");
                    seen = None;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// `None`: somebody else wrote in between.
    async fn replace(
        (store, at): (&Arc<dyn ObjectStore>, &Path),
        url: &BucketUrl,
        machine: &Machine,
        old: Option<(OwnerRecord, UpdateVersion)>,
        wait: Duration,
    ) -> Result<Option<Owner>, BucketError> {
        let (old, version) = old.unzip();
        let journal = old.as_ref().filter(|old| !old.released).and_then(|old| old.journal.clone());
        let epoch = old.map_or(1, |old| old.epoch.saturating_add(1));
        let record = OwnerRecord {
            format: FORMAT,
            epoch,
            machine: machine.clone(),
            taken_ms: now_ms(),
            released: false,
            beat: None,
            journal,
            waits: !wait.is_zero(),
        };
        let asked_ms = boot_ms();
        let Some(version) = write(&**store, at, &record, version).await? else { return Ok(None) };
        Ok(Some(Owner(Arc::new(Held {
            store: Arc::clone(store),
            url: url.clone(),
            at: at.clone(),
            machine: machine.clone(),
            epoch,
            answers_from: Instant::now() + wait,
            newest: Mutex::new((record, version)),
            beats: AtomicBool::new(false),
            proven_ms: AtomicU64::new(asked_ms),
            is_proving: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            lost_to: OnceLock::new(),
            on_loss: OnceLock::new(),
            journal: OnceLock::new(),
        }))))
    }

    /// How often the store was taken.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// Whether the record is renewed, so that a standby can take over.
    pub fn beats(&self) -> bool {
        self.0.beats.load(Ordering::Relaxed)
    }

    /// Waits until no earlier owner answers any more (`owner.taker_waits`).
    pub async fn await_silence(&self) {
        tokio::time::sleep_until(self.0.answers_from).await;
        if let Err(error) = self.end_wait().await {
            // The next one waits once more, which harms nobody.
            tracing::debug!(%error, "the record does not say yet that its owner has waited");
        }
    }

    /// `owner.wait_is_inherited`
    async fn end_wait(&self) -> Result<(), BucketError> {
        let mut newest = self.0.newest.lock().await;
        if !newest.0.waits {
            return Ok(());
        }
        self.check_lost()?;
        let record = OwnerRecord { waits: false, ..newest.0.clone() };
        self.replace_own(&mut newest, record).await
    }

    /// Called at most once, before anything else is answered, when the store is another's.
    pub fn on_loss(&self, call: impl Fn(&BucketError) + Send + Sync + 'static) {
        let _ = self.0.on_loss.set(Box::new(call));
    }

    /// From now on answers come from this journal, or from none: what the record said of an earlier one is settled
    /// (`owner.journal_is_named`).
    pub async fn settle_journal(&self, journal: Option<JournalTeller>) -> Result<(), BucketError> {
        let _ = self.0.journal.set(journal);
        self.renew().await
    }

    /// Fails if another has taken the store.
    pub async fn verify(&self) -> Result<(), BucketError> {
        self.check_lost()?;
        let now = read(&*self.0.store, &self.0.at).await?.map(|(now, _)| now);
        match now {
            Some(now) if self.is_own(&now) => Ok(()),
            now => Err(self.lost(now)),
        }
    }

    /// Renews the record until the owner is dropped or has lost the store, so that a standby sees it live.
    pub async fn beat(&self) {
        self.0.beats.store(true, Ordering::Relaxed);
        let mut ticks = tokio::time::interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A request that hangs is not waited for: the next one may arrive before a standby loses its patience.
            match tokio::time::timeout(BEAT, self.renew()).await {
                Ok(Err(BucketError::Lost { .. })) => return,
                Ok(Err(error)) => tracing::debug!(%error, "the owner's record could not be renewed"),
                Ok(Ok(())) | Err(_) => {}
            }
        }
    }

    /// Says that another machine may have it; not if it is another's already.
    pub async fn release(&self) -> Result<(), BucketError> {
        if self.check_lost().is_err() {
            return Ok(());
        }
        self.0.is_released.store(true, Ordering::Release);
        let mut newest = self.0.newest.lock().await;
        let record = OwnerRecord { released: true, journal: None, ..newest.0.clone() };
        match self.replace_own(&mut newest, record).await {
            Err(BucketError::Lost { .. }) => Ok(()),
            released => released,
        }
    }

    async fn renew(&self) -> Result<(), BucketError> {
        self.check_lost()?;
        let mut newest = self.0.newest.lock().await;
        self.check_lost()?;
        let asked_ms = boot_ms();
        // Used up, whatever becomes of the request (`owner.each_renewal_differs`).
        if self.beats() {
            newest.0.beat = Some(newest.0.beat.map_or(1, |beat| beat.wrapping_add(1)));
        }
        match self.0.journal.get() {
            None => {}
            Some(None) => newest.0.journal = None,
            Some(Some(teller)) => {
                let renewed = newest.0.journal.as_ref().map_or(1, |mark| mark.renewed.wrapping_add(1));
                newest.0.journal = Some(JournalMark { renewed, ..teller() });
            }
        }
        let record = newest.0.clone();
        self.replace_own(&mut newest, record).await?;
        self.0.proven_ms.fetch_max(asked_ms, Ordering::AcqRel);
        Ok(())
    }

    async fn replace_own(
        &self,
        newest: &mut (OwnerRecord, UpdateVersion),
        record: OwnerRecord,
    ) -> Result<(), BucketError> {
        for _ in 0..2 {
            if let Some(version) = write(&*self.0.store, &self.0.at, &record, Some(newest.1.clone())).await? {
                *newest = (record, version);
                return Ok(());
            }
            // Another's, or our own of a try that got no answer.
            match read(&*self.0.store, &self.0.at).await? {
                Some((now, version)) if self.is_own(&now) => newest.1 = version,
                now => return Err(self.lost(now.map(|(now, _)| now))),
            }
        }
        let (at, url) = (&self.0.at, &self.0.url);
        Err(BucketError::Invalid(format!("{at} of {url} is changed by somebody who is not its owner")))
    }

    /// A proof, by the way that a standby does not overlook (`owner.unchanged_is_silent`).
    async fn get_proof(&self) -> Result<(), BucketError> {
        if self.beats() || self.0.journal.get().is_some_and(Option::is_some) {
            return self.renew().await;
        }
        let asked_ms = boot_ms();
        self.verify().await?;
        self.0.proven_ms.fetch_max(asked_ms, Ordering::AcqRel);
        Ok(())
    }

    /// A proof that is young when it is there (`owner.young_at_the_answer`).
    async fn get_young_proof(&self) -> Result<(), BucketError> {
        for _ in 0..PROOFS_MAX {
            self.get_proof().await?;
            if self.age() < TENURE_MAX {
                return self.check_lost();
            }
        }
        let slow = format!("{} answers too slowly to prove whose it is", self.0.url);
        Err(BucketError::Invalid(slow))
    }

    /// What was done in the store before this call was done while the store was this owner's: its newest proof is young, or one
    /// is got now. So no successor has had the time to take away what it left in this one's way (`bucket_log.answered_on_proof`).
    pub(crate) async fn confirm(&self) -> Result<(), BucketError> {
        self.check_lost()?;
        if self.age() >= TENURE_MAX {
            self.get_proof().await?;
        }
        self.check_lost()
    }

    fn age(&self) -> Duration {
        Duration::from_millis(boot_ms().saturating_sub(self.0.proven_ms.load(Ordering::Acquire)))
    }

    fn is_own(&self, now: &OwnerRecord) -> bool {
        now.epoch == self.0.epoch && now.machine == self.0.machine
    }

    fn check_lost(&self) -> Result<(), BucketError> {
        if self.0.is_released.load(Ordering::Acquire) {
            return Err(BucketError::Lost { url: self.worded(), machine: "nobody: it was given back".into() });
        }
        match self.0.lost_to.get() {
            None => Ok(()),
            Some(machine) => Err(BucketError::Lost { url: self.worded(), machine: machine.clone() }),
        }
    }

    fn lost(&self, now: Option<OwnerRecord>) -> BucketError {
        let gone = || format!("nobody: its {} is gone", self.0.at);
        let machine = now.map_or_else(gone, |now| now.machine.name);
        let error = BucketError::Lost { url: self.worded(), machine: machine.clone() };
        if self.0.lost_to.set(machine).is_ok()
            && let Some(call) = self.0.on_loss.get()
        {
            call(&error);
        }
        error
    }

    fn worded(&self) -> String {
        worded(&self.0.url, &self.0.at)
    }

    /// Some sign says that another may have the store: the next answer needs a new proof.
    pub(crate) fn doubt(&self) {
        self.0.proven_ms.store(0, Ordering::Release);
    }
}

#[async_trait]
impl Tenure for Owner {
    fn is_proven(&self) -> bool {
        self.check_lost().is_ok() && self.age() < TENURE_RENEWED
    }

    async fn prove(&self) -> Result<(), LogError> {
        let failed = |error: BucketError| match error {
            BucketError::Lost { .. } => LogError::Poisoned(error.to_string()),
            error => LogError::Io(Arc::new(std::io::Error::other(error.to_string()))),
        };
        self.check_lost().map_err(failed)?;
        if self.age() >= TENURE_MAX {
            return self.get_young_proof().await.map_err(failed);
        }
        if !self.0.is_proving.swap(true, Ordering::AcqRel) {
            let owner = self.clone();
            tokio::spawn(async move {
                if let Err(error) = owner.get_proof().await {
                    tracing::debug!(%error, "no new proof of ownership");
                }
                owner.0.is_proving.store(false, Ordering::Release);
            });
        }
        Ok(())
    }
}

/// What a standby waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The owner.
    pub machine: Machine,
    /// How often the store was taken.
    pub epoch: u64,
    /// Whether it renews its record. If not, its silence says nothing, and the standby waits until the store is given back.
    pub beats: bool,
}

/// A store, and the seat at it unless that is the first.
fn worded(url: &BucketUrl, at: &Path) -> String {
    names::parse_owner(at).map_or_else(|| url.to_string(), |seat| format!("{url} (seat '{seat}')"))
}

/// The record of the first seat as it is now.
pub async fn look(store: &dyn ObjectStore) -> Result<Option<OwnerRecord>, BucketError> {
    look_at(store, &Seat::default()).await
}

/// The record of a seat as it is now.
pub async fn look_at(store: &dyn ObjectStore, seat: &Seat) -> Result<Option<OwnerRecord>, BucketError> {
    Ok(read(store, &names::owner(seat)).await?.map(|(record, _)| record))
}

/// The owners of all seats.
pub async fn look_at_all(store: &dyn ObjectStore) -> Result<Vec<(Seat, OwnerRecord)>, BucketError> {
    let listed: Vec<_> = store
        .list(Some(&names::owners()))
        .try_collect()
        .await
        .map_err(|source| BucketError::Store { what: "listing the owners".to_owned(), source })?;
    let others = listed.iter().filter_map(|object| names::parse_owner(&object.location)).take(SEATS_MAX);
    let mut found = Vec::new();
    for seat in std::iter::once(Seat::default()).chain(others) {
        if let Some(record) = look_at(store, &seat).await? {
            found.push((seat, record));
        }
    }
    Ok(found)
}

async fn read(store: &dyn ObjectStore, at: &Path) -> Result<Option<(OwnerRecord, UpdateVersion)>, BucketError> {
    let failed = |source| BucketError::Store { what: format!("reading {at}"), source };
    let got = match store.get(at).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let damaged = |why: String| BucketError::Damaged(at.to_string(), why);
    if got.meta.size > RECORD_BYTES_MAX {
        return Err(damaged("it is longer than such a record can be".to_owned()));
    }
    let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
    let bytes = got.bytes().await.map_err(failed)?;
    let record: OwnerRecord = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if record.format != FORMAT {
        return Err(damaged(format!("it has format {}, this larder knows {FORMAT}", record.format)));
    }
    Ok(Some((record, version)))
}

/// The version of the record as it is now; `None`: somebody else wrote in between.
async fn write(
    store: &dyn ObjectStore,
    at: &Path,
    record: &OwnerRecord,
    old: Option<UpdateVersion>,
) -> Result<Option<UpdateVersion>, BucketError> {
    let text =
        serde_json::to_vec_pretty(record).map_err(|error| BucketError::Damaged(at.to_string(), error.to_string()))?;
    let mode = old.map_or(PutMode::Create, PutMode::Update);
    match store.put_opts(at, PutPayload::from(text), mode.into()).await {
        Ok(put) => Ok(Some(UpdateVersion { e_tag: put.e_tag, version: put.version })),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(None),
        // The record that was to be replaced is gone: some servers say so this way.
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(BucketError::Store { what: format!("writing {at}"), source }),
    }
}

/// In milliseconds. Some while before the boot, so that no proof is younger than one that there never was.
fn boot_ms() -> u64 {
    u64::try_from((since_boot() + TENURE_WAIT).as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn ago(then_ms: u64) -> String {
    match Duration::from_millis(now_ms().saturating_sub(then_ms)).as_secs() {
        secs @ 0..120 => format!("{secs} seconds ago"),
        secs @ 120..7200 => format!("{} minutes ago", secs / 60),
        secs @ 7200..172_800 => format!("{} hours ago", secs / 3600),
        secs => format!("{} days ago", secs / 86400),
    }
}
