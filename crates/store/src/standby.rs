//! A machine that waits for a store: a standby, which takes over when the owner is silent, and a person who asks for a handover.
//!
//! - `owner.unchanged_is_silent`: a standby takes the store when it has seen one and the same record for [`SILENCE_MAX`] by its own
//!   clock. The write is conditional on that record, so an owner that renews it in time keeps the store. Where the owner renews, it
//!   takes only its renewals for proofs: the last one is older than [`TENURE_WAIT`] then, and nobody waits again.
//! - `owner.journal_is_not_dropped`: a standby does not by itself take a store whose record names a journal that is not at rest: the
//!   bucket may lack what that journal has (`owner.said_before_early`). It waits for the owner, or until a person gives the journal up.
//! - `owner.asked_in_the_record`: who wants the store in order writes that into the owner's record. The owner finds it at its next
//!   renewal, which is conditional; it ends in order, its journal emptied, and gives the store back.

use std::sync::Arc;
use std::time::Duration;

use larder_base::{Seat, boxed};
use object_store::path::Path;
use object_store::{ObjectStore, UpdateVersion};
use tokio::time::Instant;

use crate::BucketError;
use crate::names;
use crate::owner::{Owner, TENURE_WAIT, TakeOver};
use crate::owner_record::{JournalMark, Machine, OwnerRecord, now_ms, read, read_dated, write};
use crate::settings::BucketUrl;

/// How often a standby looks.
const LOOK: Duration = Duration::from_secs(2);
/// `owner.unchanged_is_silent`
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often somebody who has asked for the store looks.
const ASKED_LOOK: Duration = Duration::from_millis(500);
/// An owner that was asked ends within this: it empties its journal and closes its volumes, each within 40 s.
const HAND_OVER_MAX: Duration = Duration::from_secs(120);

const _: () = assert!(TENURE_WAIT.as_millis() < SILENCE_MAX.as_millis());

/// What a standby waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The owner.
    pub machine: Machine,
    /// How often the store was taken.
    pub epoch: u64,
    /// Whether it renews its record. If not, its silence says nothing, and the standby waits until the store is given back.
    pub beats: bool,
    /// It is silent, and not taken over from (`owner.journal_is_not_dropped`).
    pub silence: Option<Silence>,
}

/// An owner that shows no sign of life and has answered from its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since when, in milliseconds of the standby's clock since 1970.
    pub since_ms: u64,
    /// Its journal.
    pub journal: JournalMark,
}

/// A record, and since when it has been seen unchanged.
struct Seen {
    record: OwnerRecord,
    since: Instant,
    since_ms: u64,
}

impl Seen {
    fn again(before: Option<Seen>, record: &OwnerRecord) -> Seen {
        match before {
            Some(seen) if seen.record == *record => seen,
            // What was read may have been renewed since: its silence begins with the answer.
            _ => Seen { record: record.clone(), since: Instant::now(), since_ms: now_ms() },
        }
    }

    /// `owner.unchanged_is_silent`; the newest look was asked for at `asked`.
    fn is_silent(&self, asked: Instant) -> bool {
        self.record.beat.is_some() && asked.saturating_duration_since(self.since) >= SILENCE_MAX
    }

    /// The journal that keeps a standby from taking over (`owner.journal_is_not_dropped`).
    fn kept_by(&self) -> Option<&JournalMark> {
        self.record.journal.as_ref().filter(|mark| mark.may_miss() && !mark.given_up)
    }

    fn watched(&self, asked: Instant) -> Watched {
        let record = &self.record;
        let journal = self.kept_by().filter(|_| self.is_silent(asked));
        let silence = journal.map(|journal| Silence { since_ms: self.since_ms, journal: journal.clone() });
        Watched { machine: record.machine.clone(), epoch: record.epoch, beats: record.beat.is_some(), silence }
    }
}

impl Owner {
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
        let mut seen: Option<Seen> = None;
        let mut before: Option<Watched> = None;
        loop {
            let asked = Instant::now();
            match read(&*store, &at).await {
                Ok(read) => {
                    seen = read.as_ref().map(|(old, _)| Seen::again(seen.take(), old));
                    let watched = seen.as_ref().map(|seen| seen.watched(asked));
                    if let Some(wait) = may_take(seen.as_ref(), &machine, asked) {
                        if let Some(owner) =
                            Self::replace((&store, &at), url, &machine, read, (TakeOver::No, wait)).await?
                        {
                            return Ok(owner);
                        }
                        seen = None;
                    } else if let Some(now) = watched.filter(|now| before.as_ref() != Some(now)) {
                        told(&now);
                        before = Some(now);
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
}

/// How long a standby that takes the store now waits before it answers; `None`: it does not take it.
fn may_take(seen: Option<&Seen>, machine: &Machine, asked: Instant) -> Option<Duration> {
    let Some(seen) = seen else { return Some(Duration::ZERO) };
    let is_silent = seen.is_silent(asked) && seen.kept_by().is_none();
    let is_free = seen.record.released || seen.record.machine.id == machine.id;
    // Silent for longer than any proof lasts (`owner.unchanged_is_silent`), that of its predecessor too.
    let waits = !is_silent && seen.record.waits;
    (is_free || is_silent).then_some(if waits { TENURE_WAIT } else { Duration::ZERO })
}

/// How a request for a handover ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// Nobody had the store.
    Free,
    /// The owner ended in order. The machine that has the store now, if one has it already.
    Done(Option<String>),
    /// The owner does not look at its record: it has no standby.
    Unheard(OwnerRecord),
    /// The owner shows no sign of life.
    Silent(OwnerRecord),
    /// The owner lives, and has not given the store back within two minutes.
    Slow(OwnerRecord),
}

/// Asks the owner of a seat to end in order and to give the store back, and waits for that (`owner.asked_in_the_record`). `by` is for people.
#[boxed]
pub async fn hand_over(store: &dyn ObjectStore, seat: &Seat, by: &str) -> Result<HandOver, BucketError> {
    let at = names::owner(seat);
    let begun = Instant::now();
    let mut asked: Option<(OwnerRecord, Instant)> = None;
    let mut epoch = None;
    loop {
        let Some((record, version)) = read(store, &at).await? else { return Ok(HandOver::Free) };
        let had = *epoch.get_or_insert(record.epoch);
        match (&asked, record.released || record.epoch != had) {
            (None, true) => return Ok(HandOver::Free),
            (Some(_), true) => {
                return Ok(HandOver::Done((!record.released).then_some(record.machine.name)));
            }
            (None, false) if record.beat.is_none() => return Ok(HandOver::Unheard(record)),
            (None, false) => {
                asked = ask((store, &at), record, version, by).await?.map(|record| (record, Instant::now()))
            }
            (Some((own, since)), false) if record == *own && since.elapsed() >= SILENCE_MAX => {
                return Ok(HandOver::Silent(record));
            }
            (Some(_), false) if begun.elapsed() >= HAND_OVER_MAX => return Ok(HandOver::Slow(record)),
            (Some(_), false) => {}
        }
        tokio::time::sleep(ASKED_LOOK).await;
    }
}

/// The record with the question; `None`: the owner wrote in between.
async fn ask(
    (store, at): (&dyn ObjectStore, &Path),
    record: OwnerRecord,
    version: UpdateVersion,
    by: &str,
) -> Result<Option<OwnerRecord>, BucketError> {
    let record = OwnerRecord { asked: Some(by.to_owned()), ..record };
    Ok(write(store, at, &record, Some(version)).await?.map(|_| record))
}

/// An owner as somebody sees it who looks twice.
#[derive(Clone, Debug)]
pub struct Look {
    /// Its record.
    pub record: OwnerRecord,
    /// It did not renew its record between the looks: since when, in milliseconds of the bucket's clock since 1970.
    pub silent_since_ms: Option<u64>,
}

impl Look {
    /// Looks at the record of a seat; a second time, after `between`, if the owner should have renewed it by now. `None`: there is none.
    /// `between` is longer than an owner takes from one renewal to the next.
    #[boxed]
    pub async fn at(store: &dyn ObjectStore, seat: &Seat, between: Duration) -> Result<Option<Look>, BucketError> {
        let at = names::owner(seat);
        let Some((record, _, written_ms)) = read_dated(store, &at).await? else { return Ok(None) };
        let silence_ms = u64::try_from(SILENCE_MAX.as_millis()).unwrap_or(u64::MAX);
        // The clocks may differ: then it is looked at twice for nothing.
        let is_young = now_ms().checked_sub(written_ms).is_some_and(|age| age < silence_ms);
        if record.released || record.beat.is_none() || is_young {
            return Ok(Some(Look { record, silent_since_ms: None }));
        }
        tokio::time::sleep(between).await;
        let again = read_dated(store, &at).await?;
        Ok(again.map(|(now, _, now_written_ms)| {
            let is_silent = now == record;
            Look { record: now, silent_since_ms: is_silent.then_some(now_written_ms) }
        }))
    }
}
