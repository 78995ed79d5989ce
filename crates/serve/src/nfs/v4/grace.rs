//! The time after a restart (RFC 7530 9.6.2, RFC 8881 8.4.2): clients take back what they had, and nobody takes it first.
//!
//! Lives of the server are counted in *epochs*. A client's name is written under the epoch in which it opened or locked
//! something first: once for each client, not for each OPEN. After a start the names of the epoch before are those who may
//! reclaim. They are removed when grace ends.
//!
//! | crash | at the next start |
//! |---|---|
//! | while a client is written down | it was not answered, so it has nothing |
//! | in grace | the same names may reclaim; those who had begun to are among them, and nobody else opened anything |
//! | after the end of grace was written | the names of the new epoch alone; who had not reclaimed is not among them |
//!
//! - `grace.recorded_before_answered`: a change of the records is durable before the request that made it is answered.
//! - `grace.end_written_first`: nothing new is opened before the end of grace is durable.
//! - `grace.ends_when_all_are_back`: grace ends when each client that may reclaim has said that it is done, and is none
//!   at all where nobody may. Clients of NFSv4.0 cannot say it, so theirs lasts its time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::clients::{Family4, OwnerName};
use super::clock::Moment;
use super::types::NfsStat;

/// What is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimBook {
    pub epoch: u64,
    /// The epoch whose clients reclaim, while grace lasts.
    pub recovering: Option<u64>,
    /// Names with the epoch in which each was written.
    pub names: BTreeSet<(u64, OwnerName)>,
}

/// One step, durable as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BookChange {
    /// A life begins: of the names only those of `recovering` stay.
    Begin {
        epoch: u64,
        recovering: u64,
    },
    /// Grace is over: the names of the epoch before go.
    EndGrace,
    Add(OwnerName),
    /// From every epoch.
    Remove(OwnerName),
}

/// A change could not be made durable: whatever needed it must not be answered as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of NFSv4 clients could not be written")]
pub struct BookFailed;

/// The durable record (`grace.recorded_before_answered`).
pub trait ReclaimRecords {
    fn load(&self) -> Result<ReclaimBook, BookFailed>;
    /// Durable when it returns.
    fn apply(&mut self, change: &BookChange) -> Result<(), BookFailed>;
}

impl ReclaimBook {
    pub fn apply(&mut self, change: &BookChange) {
        match change {
            BookChange::Begin { epoch, recovering } => {
                (self.epoch, self.recovering) = (*epoch, Some(*recovering));
                self.names.retain(|(written, _)| written == recovering);
            }
            BookChange::EndGrace => {
                self.recovering = None;
                let epoch = self.epoch;
                self.names.retain(|(written, _)| *written == epoch);
            }
            BookChange::Add(owner) => {
                self.names.insert((self.epoch, owner.clone()));
            }
            BookChange::Remove(owner) => self.names.retain(|(_, name)| name != owner),
        }
    }

    fn of(&self, epoch: u64) -> BTreeSet<OwnerName> {
        self.names.iter().filter(|(written, _)| *written == epoch).map(|(_, owner)| owner.clone()).collect()
    }
}

/// A life's grace.
#[derive(Debug)]
pub struct Grace {
    /// Its end by time; `None` when it is over.
    until: Option<Moment>,
    /// Who may reclaim.
    may_reclaim: BTreeSet<OwnerName>,
    /// Who may still and has not said that it is done.
    awaited: BTreeSet<OwnerName>,
    /// Written in this epoch.
    written: BTreeSet<OwnerName>,
}

impl Grace {
    /// A life begins. Grace lasts `term`, at least the lease that clients were promised.
    pub fn begin(records: &mut dyn ReclaimRecords, now: Moment, term: Duration) -> Result<Self, BookFailed> {
        let mut book = records.load()?;
        // A crash in grace: the names stay those of the last life that ended its grace.
        let recovering = book.recovering.unwrap_or(book.epoch);
        let change = BookChange::Begin { epoch: book.epoch + 1, recovering };
        records.apply(&change)?;
        book.apply(&change);
        let may_reclaim = book.of(recovering);
        let mut grace =
            Self { until: Some(now.after(term)), awaited: may_reclaim.clone(), may_reclaim, written: BTreeSet::new() };
        grace.tick(records, now)?;
        Ok(grace)
    }

    /// Of a server that keeps no record.
    pub fn over() -> Self {
        Self { until: None, may_reclaim: BTreeSet::new(), awaited: BTreeSet::new(), written: BTreeSet::new() }
    }

    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Ends grace when its time is over or nobody is awaited (`grace.ends_when_all_are_back`).
    pub fn tick(&mut self, records: &mut dyn ReclaimRecords, now: Moment) -> Result<(), BookFailed> {
        let Some(until) = self.until else { return Ok(()) };
        if now < until && !self.awaited.is_empty() {
            return Ok(());
        }
        // `grace.end_written_first`
        records.apply(&BookChange::EndGrace)?;
        self.until = None;
        self.may_reclaim.clear();
        self.awaited.clear();
        Ok(())
    }

    /// Something is opened, locked or delegated anew.
    pub fn may_take(&self) -> Result<(), NfsStat> {
        if self.is_on() { Err(NfsStat::Grace) } else { Ok(()) }
    }

    /// Something is reclaimed.
    pub fn may_reclaim(&self, owner: &OwnerName) -> Result<(), NfsStat> {
        match self.is_on() {
            false => Err(NfsStat::NoGrace),
            true if self.may_reclaim.contains(owner) => Ok(()),
            true => Err(NfsStat::ReclaimBad),
        }
    }

    /// Before a client is answered that it has something: one write for a client and life.
    pub fn takes(&mut self, records: &mut dyn ReclaimRecords, owner: &OwnerName) -> Result<(), BookFailed> {
        if !self.written.contains(owner) {
            records.apply(&BookChange::Add(owner.clone()))?;
            self.written.insert(owner.clone());
        }
        Ok(())
    }

    /// RECLAIM_COMPLETE: nothing is reclaimed by this client any more.
    pub fn completed(
        &mut self,
        records: &mut dyn ReclaimRecords,
        owner: &OwnerName,
        now: Moment,
    ) -> Result<(), BookFailed> {
        debug_assert!(owner.family == Family4::Sessions, "NFSv4.0 has no such operation");
        self.may_reclaim.remove(owner);
        self.awaited.remove(owner);
        self.tick(records, now)
    }

    /// The client has nothing any more and may not reclaim it: it is gone, or somebody got what it had
    /// (RFC 8881 8.4.3). Before that somebody is answered.
    pub fn forget(&mut self, records: &mut dyn ReclaimRecords, owner: &OwnerName) -> Result<(), BookFailed> {
        // In grace a name may be that of a client which has completed, and is still durable for the next life.
        if self.is_on() || self.written.contains(owner) {
            records.apply(&BookChange::Remove(owner.clone()))?;
            self.written.remove(owner);
            self.may_reclaim.remove(owner);
            self.awaited.remove(owner);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    const TERM: Duration = Duration::from_secs(90);

    /// A disk: what was applied is there after a crash.
    #[derive(Default)]
    struct Disk {
        book: ReclaimBook,
        writes: usize,
        fails: bool,
    }

    impl ReclaimRecords for Disk {
        fn load(&self) -> Result<ReclaimBook, BookFailed> {
            Ok(self.book.clone())
        }

        fn apply(&mut self, change: &BookChange) -> Result<(), BookFailed> {
            if self.fails {
                return Err(BookFailed);
            }
            self.writes += 1;
            self.book.apply(change);
            Ok(())
        }
    }

    fn at(secs: u64) -> Moment {
        Moment(Duration::from_secs(secs))
    }

    fn owner(name: &str) -> OwnerName {
        OwnerName { family: Family4::Sessions, id: name.as_bytes().into() }
    }

    fn start(disk: &mut Disk, secs: u64) -> Grace {
        Grace::begin(disk, at(secs), TERM).unwrap()
    }

    #[test]
    fn grace_of_nobody_lasts_no_time() {
        let mut disk = Disk::default();
        let grace = start(&mut disk, 0);
        assert!(!grace.is_on() && grace.may_take().is_ok());
        assert_eq!(grace.may_reclaim(&owner("a")), Err(NfsStat::NoGrace));
    }

    #[test]
    fn it_ends_when_all_are_back() {
        let mut disk = Disk::default();
        let mut grace = start(&mut disk, 0);
        let before = disk.writes;
        for _ in 0..100 {
            grace.takes(&mut disk, &owner("a")).unwrap();
            grace.takes(&mut disk, &owner("b")).unwrap();
        }
        assert_eq!(disk.writes, before + 2, "one write a client, not one an OPEN");
        let mut grace = start(&mut disk, 0);
        assert_eq!((grace.may_take(), grace.may_reclaim(&owner("a"))), (Err(NfsStat::Grace), Ok(())));
        assert_eq!(grace.may_reclaim(&owner("c")), Err(NfsStat::ReclaimBad), "it had nothing");
        grace.takes(&mut disk, &owner("a")).unwrap();
        grace.completed(&mut disk, &owner("a"), at(1)).unwrap();
        assert_eq!(grace.may_reclaim(&owner("a")), Err(NfsStat::ReclaimBad), "it said that it was done");
        assert!(grace.is_on(), "b is awaited");
        grace.completed(&mut disk, &owner("c"), at(1)).unwrap();
        assert!(grace.is_on());
        grace.completed(&mut disk, &owner("b"), at(2)).unwrap();
        assert!(!grace.is_on());
        assert_eq!(disk.book.names, BTreeSet::from([(2, owner("a"))]), "b took nothing back");
    }

    #[test]
    fn two_crashes_in_one_grace() {
        let mut disk = Disk::default();
        let mut grace = start(&mut disk, 0);
        grace.takes(&mut disk, &owner("a")).unwrap();
        grace.takes(&mut disk, &owner("b")).unwrap();
        let mut grace = start(&mut disk, 0);
        grace.takes(&mut disk, &owner("a")).unwrap();
        // The second crash: "a" has begun to reclaim, "b" has not.
        let mut grace = start(&mut disk, 0);
        assert!(grace.may_reclaim(&owner("a")).is_ok() && grace.may_reclaim(&owner("b")).is_ok());
        grace.takes(&mut disk, &owner("a")).unwrap();
        grace.tick(&mut disk, at(90)).unwrap();
        assert!(!grace.is_on(), "its time is over");
        // The third: "b" did not come before grace ended.
        let grace = start(&mut disk, 0);
        assert!(grace.may_reclaim(&owner("a")).is_ok());
        assert_eq!(grace.may_reclaim(&owner("b")), Err(NfsStat::ReclaimBad));
    }

    #[test]
    fn who_was_forgotten_may_not_reclaim() {
        let mut disk = Disk::default();
        let mut grace = start(&mut disk, 0);
        grace.takes(&mut disk, &owner("a")).unwrap();
        grace.takes(&mut disk, &owner("b")).unwrap();
        grace.forget(&mut disk, &owner("a")).unwrap();
        let grace = start(&mut disk, 0);
        assert_eq!(grace.may_reclaim(&owner("a")), Err(NfsStat::ReclaimBad));
        assert!(grace.may_reclaim(&owner("b")).is_ok());
    }

    #[test]
    fn what_is_not_written_did_not_happen() {
        let mut disk = Disk::default();
        let mut grace = start(&mut disk, 0);
        disk.fails = true;
        assert_eq!(grace.takes(&mut disk, &owner("a")), Err(BookFailed));
        disk.fails = false;
        let before = disk.writes;
        grace.takes(&mut disk, &owner("a")).unwrap();
        assert_eq!(disk.writes, before + 1, "it is tried again");
        let mut grace = start(&mut disk, 0);
        disk.fails = true;
        assert_eq!(grace.tick(&mut disk, at(90)), Err(BookFailed));
        assert_eq!(grace.may_take(), Err(NfsStat::Grace), "until its end is written");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(u8),
        Complete(u8),
        Forget(u8),
        Crash,
        TimeIsOver,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..4).prop_map(Step::Take),
            (0u8..4).prop_map(Step::Complete),
            (0u8..4).prop_map(Step::Forget),
            Just(Step::Crash),
            Just(Step::TimeIsOver),
        ]
    }

    proptest! {
        /// Whoever had something when a life ended outside of grace may reclaim in the next, and nobody who had nothing.
        #[test]
        fn who_had_something_may_reclaim(steps in proptest::collection::vec(step(), 0..60)) {
            let mut disk = Disk::default();
            let mut grace = start(&mut disk, 0);
            let (mut has, mut entitled) = ([false; 4], [false; 4]);
            for step in steps {
                match step {
                    Step::Take(who) => {
                        let name = owner(&who.to_string());
                        let who = usize::from(who);
                        if grace.may_take().is_ok() || grace.may_reclaim(&name).is_ok() {
                            prop_assert!(!grace.is_on() || entitled[who]);
                            grace.takes(&mut disk, &name).unwrap();
                            has[who] = true;
                        }
                    }
                    Step::Complete(who) => grace.completed(&mut disk, &owner(&who.to_string()), at(0)).unwrap(),
                    Step::Forget(who) => {
                        grace.forget(&mut disk, &owner(&who.to_string())).unwrap();
                        (has[usize::from(who)], entitled[usize::from(who)]) = (false, false);
                    }
                    Step::Crash => {
                        if !grace.is_on() {
                            entitled = has;
                        }
                        has = [false; 4];
                        grace = start(&mut disk, 0);
                        for (who, wanted) in entitled.iter().enumerate() {
                            let may = grace.may_reclaim(&owner(&who.to_string())).is_ok();
                            prop_assert_eq!(may, *wanted);
                        }
                    }
                    Step::TimeIsOver => grace.tick(&mut disk, at(90)).unwrap(),
                }
            }
        }
    }
}
