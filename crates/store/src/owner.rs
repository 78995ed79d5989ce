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
//! - `owner.journal_is_named`: an owner that answers from a local journal says so in the record, and up to which moment the bucket has
//!   everything. It renews that with each proof. The mark stays until the journal has been emptied, or its owner has ended in order:
//!   whoever takes the store without that journal knows what may be missing.
//! - `owner.said_before_early`: an answer leaves from the journal only while the record is known to say that changes may be missing.
//!   A gate ([`Early`]) is shut before a record leaves that says otherwise (`at_rest`), and only when the bucket has all that passed
//!   the gate. It is opened when a record that says so is stored. Each record is conditional on the one before it. So whoever
//!   replaces a record at rest lacks nothing: what passed before it is in the bucket, and nothing passes after it.
//! - `owner.one_record_a_seat`: machines that share a store sit at different seats, each with a record of its own (`owners/NAME.json`
//!   beside `owner.json`). All of the above is about one seat; which volumes are whose, the registry says.
//! - `owner.end_is_final`: who lost the store never has it again in this process, whatever the record says later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use larder_base::clock::since_boot;
use larder_base::log::{LogError, Tenure};
use larder_base::{Seat, boxed, task};
use object_store::path::Path;
use object_store::{ObjectStore, UpdateVersion};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::BucketError;
use crate::early::Early;
use crate::names;
use crate::owner_record::{JournalMark, Machine, OwnerRecord, ago, read, worded, write};
use crate::settings::BucketUrl;

const TRIES_MAX: usize = 16;
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
/// How often an owner that has given the store back looks whether another has taken it.
const SUCCESSOR_LOOK: Duration = Duration::from_millis(500);

const _: () = assert!(TENURE_MAX.as_millis() + 500 < TENURE_WAIT.as_millis());
const _: () = assert!(BEAT.as_millis() < TENURE_MAX.as_millis());

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

/// Renews the record of an owner until it is dropped.
pub struct Beating(JoinHandle<()>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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
    /// What the record said of an earlier owner's journal when it was taken.
    inherited: Option<JournalMark>,
    /// `owner.said_before_early`
    early: Arc<Early>,
    /// Who asks for the store (`owner.asked_in_the_record`).
    asked: watch::Sender<Option<String>>,
}

impl Owner {
    /// Takes the store, at the first seat.
    #[boxed]
    pub async fn take(
        store: Arc<dyn ObjectStore>,
        url: &BucketUrl,
        machine: Machine,
        take_over: TakeOver,
    ) -> Result<Owner, BucketError> {
        Self::take_seat(store, url, &Seat::default(), machine, take_over).await
    }

    /// Takes a seat at the store (`owner.one_record_a_seat`).
    #[boxed]
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
            if let Some(owner) =
                Self::replace((&store, &at), url, &machine, old.zip(version), (take_over, wait)).await?
            {
                return Ok(owner);
            }
            // Somebody else was quicker. Whoever that is has it now, and is asked about as any other.
        }
        Err(BucketError::Invalid(format!("others keep taking the store {}", worded(url, &at))))
    }

    /// `None`: somebody else wrote in between.
    pub(crate) async fn replace(
        (store, at): (&Arc<dyn ObjectStore>, &Path),
        url: &BucketUrl,
        machine: &Machine,
        old: Option<(OwnerRecord, UpdateVersion)>,
        (take_over, wait): (TakeOver, Duration),
    ) -> Result<Option<Owner>, BucketError> {
        let (old, version) = old.unzip();
        let is_forced = take_over == TakeOver::Forced;
        let record = OwnerRecord::taken(old, machine.clone(), is_forced, !wait.is_zero());
        let (epoch, inherited) = (record.epoch, record.journal.clone());
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
            inherited,
            early: Arc::default(),
            asked: watch::Sender::default(),
        }))))
    }

    /// How often the store was taken.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// The seat that it is the owner of.
    pub fn seat(&self) -> Seat {
        names::parse_owner(&self.0.at).unwrap_or_default()
    }

    /// Whether the record is renewed, so that a standby can take over.
    pub fn beats(&self) -> bool {
        self.0.beats.load(Ordering::Relaxed)
    }

    /// The journal of an earlier owner, which has changes that the bucket may lack.
    pub fn inherited(&self) -> Option<&JournalMark> {
        self.0.inherited.as_ref()
    }

    /// Waits until no earlier owner answers any more (`owner.taker_waits`).
    #[boxed]
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
    #[boxed]
    pub async fn settle_journal(&self, journal: Option<JournalTeller>) -> Result<(), BucketError> {
        let _ = self.0.journal.set(journal);
        self.renew().await
    }

    /// Fails if another has taken the store.
    #[boxed]
    pub async fn verify(&self) -> Result<(), BucketError> {
        self.check_lost()?;
        let now = read(&*self.0.store, &self.0.at).await?.map(|(now, _)| now);
        match now {
            Some(now) if self.is_own(&now) => Ok(()),
            now => Err(self.lost(now)),
        }
    }

    /// Lets a standby see this owner live ([`Owner::beat`]), in a task of its own.
    pub fn beating(&self) -> Beating {
        let owner = self.clone();
        Beating(task::spawn(async move { owner.beat().await }))
    }

    /// The gate before answers from a journal.
    pub(crate) fn early(&self) -> Arc<Early> {
        Arc::clone(&self.0.early)
    }

    /// Renews the record until the owner is dropped or has lost the store, so that a standby sees it live. Renews it at once when an
    /// answer waits for that (`owner.said_before_early`).
    #[boxed]
    pub async fn beat(&self) {
        self.0.beats.store(true, Ordering::Relaxed);
        let mut ticks = tokio::time::interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {}
                () = self.0.early.wanted() => {}
            }
            // A request that hangs is not waited for: the next one may arrive before a standby loses its patience.
            match tokio::time::timeout(BEAT, self.renew()).await {
                Ok(Err(BucketError::Lost { .. })) => return,
                Ok(Err(error)) => tracing::debug!(%error, "the owner's record could not be renewed"),
                Ok(Ok(())) | Err(_) => {}
            }
        }
    }

    /// Says that another machine may have it; not if it is another's already. A journal that was settled has to be empty.
    #[boxed]
    pub async fn release(&self) -> Result<(), BucketError> {
        if self.check_lost().is_err() {
            return Ok(());
        }
        self.0.early.end();
        if let Some(Some(teller)) = self.0.journal.get()
            && teller().entries > 0
        {
            return Err(BucketError::Invalid(format!("{} does not have all that was acknowledged", self.0.url)));
        }
        self.0.is_released.store(true, Ordering::Release);
        let mut newest = self.0.newest.lock().await;
        // What an earlier owner left unsettled is the next one's to say.
        let journal = newest.0.journal.clone().filter(|_| self.0.journal.get().is_none());
        let record = OwnerRecord { released: true, journal, ..newest.0.clone() };
        match self.replace_own(&mut newest, record).await {
            Err(BucketError::Lost { .. }) => Ok(()),
            released => released,
        }
    }

    /// Waits until somebody asks for the store; their name (`owner.asked_in_the_record`).
    #[boxed]
    pub async fn asked(&self) -> String {
        let mut asked = self.0.asked.subscribe();
        match asked.wait_for(Option::is_some).await.ok().and_then(|by| by.clone()) {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }

    /// Waits until another machine has what was given back, and no longer than `wait_max`. Returns its name.
    #[boxed]
    pub async fn await_successor(&self, wait_max: Duration) -> Option<String> {
        let taken = async {
            loop {
                if let Ok(Some((now, _))) = read(&*self.0.store, &self.0.at).await
                    && !self.is_own(&now)
                {
                    return now.machine.name;
                }
                tokio::time::sleep(SUCCESSOR_LOOK).await;
            }
        };
        tokio::time::timeout(wait_max, taken).await.ok()
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
        let mut opens = false;
        match self.0.journal.get() {
            None => {}
            Some(None) => newest.0.journal = None,
            Some(Some(teller)) => {
                let renewed = newest.0.journal.as_ref().map_or(1, |mark| mark.renewed.wrapping_add(1));
                // Without a standby nobody takes the store by himself, and the gate stays open.
                let at_rest = self.beats() && self.0.early.try_rest(|| teller().entries == 0);
                newest.0.journal = Some(JournalMark { renewed, at_rest, ..teller() });
                opens = !at_rest;
            }
        }
        let record = newest.0.clone();
        self.replace_own(&mut newest, record).await?;
        // Under the lock of the record, so that none that says otherwise is on its way (`owner.said_before_early`).
        if opens {
            self.0.early.open();
        }
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
                Some((now, version)) if self.is_own(&now) => {
                    if now.asked.is_some() {
                        self.0.asked.send_replace(now.asked);
                    }
                    newest.1 = version;
                }
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
            task::spawn(async move {
                if let Err(error) = owner.get_proof().await {
                    tracing::debug!(%error, "no new proof of ownership");
                }
                owner.0.is_proving.store(false, Ordering::Release);
            });
        }
        Ok(())
    }
}

/// In milliseconds. Some while before the boot, so that no proof is younger than one that there never was.
fn boot_ms() -> u64 {
    u64::try_from((since_boot() + TENURE_WAIT).as_millis()).unwrap_or(u64::MAX)
}
