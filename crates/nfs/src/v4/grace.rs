//! The time after a volume is opened (RFC 7530 9.6.2, RFC 8881 8.4.2): clients take back what they had in it, and nobody
//! takes it first.
//!
//! Lives of a volume are counted in *epochs*. A client's name is written under the epoch in which it opened or locked
//! something first: once for each client, not for each OPEN. After a start the names of the epoch before are those who may
//! reclaim. They are removed when grace ends.
//!
//! | crash | at the next start |
//! |---|---|
//! | while a client is written down | it was not answered, so it has nothing |
//! | in grace | the same names may reclaim; those who had begun to are among them, and nobody else opened anything |
//! | after the end of grace was written | the names of the new epoch alone; who had not reclaimed is not among them |
//!
//! Nothing here writes. Each change of the book has a number ([`BookVersion`]); the owner writes the newest book as a
//! whole, many changes at once, and reports with [`Grace::settled`] what is durable.
//!
//! - `grace.recorded_before_answered`: a change of the records is durable before the request that made it is answered.
//! - `grace.end_written_first`: nothing new is opened before the end of grace is durable.
//! - `grace.begin_needs_no_write`: a life that wrote nothing never was: the next one begins as it did.
//! - `grace.ends_when_all_are_back`: grace ends when each client that may reclaim has said that it is done, and is none
//!   at all where nobody may. Clients of NFSv4.0 cannot say it, so theirs lasts its time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clients::OwnerKey;
use super::clock::Moment;
use super::types::NfsStat;

/// The clients of a volume, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimBook {
    pub epoch: u64,
    /// The epoch whose clients reclaim, while grace lasts.
    pub recovering: Option<u64>,
    /// Names with the epoch in which each was written.
    pub names: BTreeSet<(u64, OwnerKey)>,
}

/// A count of changes: the book is durable up to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BookVersion(u64);

impl ReclaimBook {
    /// A life begins. The names of the last life that ended its grace stay; a crash in grace leaves them as they were.
    fn begin(&mut self) {
        let recovering = self.recovering.unwrap_or(self.epoch);
        (self.epoch, self.recovering) = (self.epoch + 1, Some(recovering));
        self.names.retain(|(written, _)| *written == recovering);
    }

    fn end_grace(&mut self) {
        self.recovering = None;
        let epoch = self.epoch;
        self.names.retain(|(written, _)| *written == epoch);
    }

    fn of(&self, epoch: u64) -> BTreeSet<OwnerKey> {
        self.names.iter().filter(|(written, _)| *written == epoch).map(|(_, owner)| *owner).collect()
    }
}

/// A life's grace, with its book.
#[derive(Debug)]
pub struct Grace {
    book: ReclaimBook,
    version: BookVersion,
    durable: BookVersion,
    /// Its end by time; `None` when it is over.
    until: Option<Moment>,
    /// The change that ends it, until that is durable (`grace.end_written_first`).
    ending: Option<BookVersion>,
    /// Who may reclaim.
    may_reclaim: BTreeSet<OwnerKey>,
    /// Who may still and has not said that it is done.
    awaited: BTreeSet<OwnerKey>,
    /// Written in this epoch, each by its change.
    written: BTreeMap<OwnerKey, BookVersion>,
}

impl Grace {
    /// A life begins with the book as it was found (`grace.begin_needs_no_write`). Grace lasts `term`, at least the lease
    /// that clients were promised. Nobody waits for a client that is `here` already: it will not reclaim.
    pub fn begin(mut book: ReclaimBook, now: Moment, term: Duration, here: impl Fn(&OwnerKey) -> bool) -> Self {
        book.begin();
        let may_reclaim = book.recovering.map(|recovering| book.of(recovering)).unwrap_or_default();
        let awaited: BTreeSet<OwnerKey> = may_reclaim.iter().filter(|owner| !here(owner)).copied().collect();
        let version = BookVersion::default();
        let mut grace = Self {
            book,
            version,
            durable: version,
            until: Some(now.after(term)),
            ending: None,
            may_reclaim,
            awaited,
            written: BTreeMap::new(),
        };
        if grace.may_reclaim.is_empty() {
            // Nobody had anything, so nobody can have lost it: there is nothing to write.
            grace.book.end_grace();
            grace.until = None;
        }
        grace.tick(now);
        grace
    }

    fn changed(&mut self) -> BookVersion {
        self.version = BookVersion(self.version.0 + 1);
        self.version
    }

    /// The book was found in another place, and has to be written into its own.
    pub fn is_carried(&mut self) {
        self.changed();
    }

    /// The book to write, where a part of it is not durable.
    pub fn to_write(&self) -> Option<(BookVersion, &ReclaimBook)> {
        (self.version > self.durable).then_some((self.version, &self.book))
    }

    /// The newest change.
    pub fn version(&self) -> BookVersion {
        self.version
    }

    pub fn is_durable(&self, version: BookVersion) -> bool {
        version <= self.durable
    }

    /// The book is durable as it was at this change.
    pub fn settled(&mut self, version: BookVersion) {
        self.durable = self.durable.max(version);
        if self.ending.is_some_and(|ending| ending <= self.durable) {
            (self.until, self.ending) = (None, None);
            self.may_reclaim.clear();
            self.awaited.clear();
        }
    }

    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Those who may reclaim and have not said that they are done.
    pub fn awaited(&self) -> impl Iterator<Item = &OwnerKey> {
        self.awaited.iter().filter(|_| self.is_on() && self.ending.is_none())
    }

    /// Ends grace when its time is over or nobody is awaited (`grace.ends_when_all_are_back`). It is over once that is
    /// durable.
    pub fn tick(&mut self, now: Moment) {
        let Some(until) = self.until else { return };
        if self.ending.is_none() && (now >= until || self.awaited.is_empty()) {
            self.book.end_grace();
            self.ending = Some(self.changed());
        }
    }

    /// Something is opened, locked or delegated anew.
    pub fn may_take(&self) -> Result<(), NfsStat> {
        if self.is_on() { Err(NfsStat::Grace) } else { Ok(()) }
    }

    /// Something is reclaimed.
    pub fn may_reclaim(&self, owner: &OwnerKey) -> Result<(), NfsStat> {
        match self.is_on() {
            false => Err(NfsStat::NoGrace),
            true if self.ending.is_some() => Err(NfsStat::NoGrace),
            true if self.may_reclaim.contains(owner) => Ok(()),
            true => Err(NfsStat::ReclaimBad),
        }
    }

    /// Before a client is answered that it has something: its change, to be awaited. One write for a client and life.
    pub fn takes(&mut self, owner: OwnerKey) -> BookVersion {
        if let Some(version) = self.written.get(&owner) {
            return *version;
        }
        self.book.names.insert((self.book.epoch, owner));
        let version = self.changed();
        self.written.insert(owner, version);
        version
    }

    /// RECLAIM_COMPLETE: nothing is reclaimed by this client any more.
    pub fn completed(&mut self, owner: &OwnerKey, now: Moment) {
        self.may_reclaim.remove(owner);
        self.awaited.remove(owner);
        self.tick(now);
    }

    /// The client has nothing any more and may not reclaim it: it is gone, or somebody gets what it had
    /// (RFC 8881 8.4.3) once this is durable.
    pub fn forget(&mut self, owner: &OwnerKey) {
        let before = self.book.names.len();
        self.book.names.retain(|(_, name)| name != owner);
        self.written.remove(owner);
        self.may_reclaim.remove(owner);
        self.awaited.remove(owner);
        if self.book.names.len() < before {
            self.changed();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::clients::{Family4, OwnerName};
    use super::*;
    use proptest::prelude::*;

    const TERM: Duration = Duration::from_secs(90);

    /// A disk: what was written is there after a crash.
    #[derive(Default)]
    struct Disk {
        book: ReclaimBook,
        writes: usize,
    }

    impl Disk {
        fn write(&mut self, grace: &mut Grace) {
            if let Some((version, book)) = grace.to_write() {
                self.book = book.clone();
                self.writes += 1;
                grace.settled(version);
            }
        }

        fn start(&self, secs: u64) -> Grace {
            Grace::begin(self.book.clone(), at(secs), TERM, |_| false)
        }

        /// It opens something and is answered.
        fn takes(&mut self, grace: &mut Grace, name: &str) {
            let version = grace.takes(owner(name));
            if !grace.is_durable(version) {
                self.write(grace);
            }
        }
    }

    fn at(secs: u64) -> Moment {
        Moment(Duration::from_secs(secs))
    }

    fn owner(name: &str) -> OwnerKey {
        OwnerName { family: Family4::Sessions, id: name.as_bytes().into() }.key()
    }

    #[test]
    fn grace_of_nobody_lasts_no_time() {
        let grace = Disk::default().start(0);
        assert!(!grace.is_on() && grace.may_take().is_ok() && grace.to_write().is_none(), "and writes nothing");
        assert_eq!(grace.may_reclaim(&owner("a")), Err(NfsStat::NoGrace));
    }

    #[test]
    fn it_ends_when_all_are_back() {
        let mut disk = Disk::default();
        let mut grace = disk.start(0);
        for _ in 0..100 {
            disk.takes(&mut grace, "a");
            disk.takes(&mut grace, "b");
        }
        assert_eq!(disk.writes, 2, "one write a client, not one an OPEN");
        let mut grace = disk.start(0);
        assert_eq!((grace.may_take(), grace.may_reclaim(&owner("a"))), (Err(NfsStat::Grace), Ok(())));
        assert_eq!(grace.may_reclaim(&owner("c")), Err(NfsStat::ReclaimBad), "it had nothing");
        disk.takes(&mut grace, "a");
        grace.completed(&owner("a"), at(1));
        assert_eq!(grace.may_reclaim(&owner("a")), Err(NfsStat::ReclaimBad), "it said that it was done");
        assert!(grace.is_on(), "b is awaited");
        grace.completed(&owner("c"), at(1));
        assert!(grace.is_on());
        grace.completed(&owner("b"), at(2));
        assert_eq!(grace.may_take(), Err(NfsStat::Grace), "until its end is written");
        assert_eq!(grace.may_reclaim(&owner("b")), Err(NfsStat::NoGrace), "which is on its way");
        disk.write(&mut grace);
        assert!(!grace.is_on());
        assert_eq!(disk.book.names, BTreeSet::from([(2, owner("a"))]), "b took nothing back");
    }

    #[test]
    fn many_clients_are_one_write() {
        let mut disk = Disk::default();
        let mut grace = disk.start(0);
        let versions: Vec<BookVersion> = (0..500).map(|at| grace.takes(owner(&at.to_string()))).collect();
        assert!(!versions.iter().any(|version| grace.is_durable(*version)));
        disk.write(&mut grace);
        assert!(versions.iter().all(|version| grace.is_durable(*version)));
        assert_eq!((disk.writes, disk.book.names.len()), (1, 500));
    }

    #[test]
    fn two_crashes_in_one_grace() {
        let mut disk = Disk::default();
        let mut grace = disk.start(0);
        disk.takes(&mut grace, "a");
        disk.takes(&mut grace, "b");
        let mut grace = disk.start(0);
        disk.takes(&mut grace, "a");
        // The second crash: "a" has begun to reclaim, "b" has not.
        let mut grace = disk.start(0);
        assert!(grace.may_reclaim(&owner("a")).is_ok() && grace.may_reclaim(&owner("b")).is_ok());
        disk.takes(&mut grace, "a");
        grace.tick(at(90));
        disk.write(&mut grace);
        assert!(!grace.is_on(), "its time is over");
        // The third: "b" did not come before grace ended.
        let grace = disk.start(0);
        assert!(grace.may_reclaim(&owner("a")).is_ok());
        assert_eq!(grace.may_reclaim(&owner("b")), Err(NfsStat::ReclaimBad));
    }

    #[test]
    fn who_was_forgotten_may_not_reclaim() {
        let mut disk = Disk::default();
        let mut grace = disk.start(0);
        disk.takes(&mut grace, "a");
        disk.takes(&mut grace, "b");
        grace.forget(&owner("a"));
        disk.write(&mut grace);
        let grace = disk.start(0);
        assert_eq!(grace.may_reclaim(&owner("a")), Err(NfsStat::ReclaimBad));
        assert!(grace.may_reclaim(&owner("b")).is_ok());
    }

    #[test]
    fn nobody_waits_for_a_client_that_is_here() {
        let mut disk = Disk::default();
        let mut grace = disk.start(0);
        disk.takes(&mut grace, "a");
        let mut grace = Grace::begin(disk.book.clone(), at(0), TERM, |name| *name == owner("a"));
        disk.write(&mut grace);
        assert!(!grace.is_on(), "the volume came to a server at which it goes on");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(u8),
        Complete(u8),
        Forget(u8),
        /// With or without what was not yet written.
        Crash(bool),
        TimeIsOver,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..4).prop_map(Step::Take),
            (0u8..4).prop_map(Step::Complete),
            (0u8..4).prop_map(Step::Forget),
            any::<bool>().prop_map(Step::Crash),
            Just(Step::TimeIsOver),
        ]
    }

    proptest! {
        /// Whoever had something when a life ended outside of grace may reclaim in the next, and nobody who had nothing.
        #[test]
        fn who_had_something_may_reclaim(steps in proptest::collection::vec(step(), 0..60)) {
            let mut disk = Disk::default();
            let mut grace = disk.start(0);
            let (mut has, mut entitled) = ([false; 4], [false; 4]);
            for step in steps {
                match step {
                    Step::Take(who) => {
                        let name = who.to_string();
                        let at = usize::from(who);
                        if grace.may_take().is_ok() || grace.may_reclaim(&owner(&name)).is_ok() {
                            prop_assert!(!grace.is_on() || entitled[at]);
                            disk.takes(&mut grace, &name);
                            has[at] = true;
                        }
                    }
                    Step::Complete(who) => {
                        grace.completed(&owner(&who.to_string()), at(0));
                        disk.write(&mut grace);
                    }
                    Step::Forget(who) => {
                        grace.forget(&owner(&who.to_string()));
                        disk.write(&mut grace);
                        (has[usize::from(who)], entitled[usize::from(who)]) = (false, false);
                    }
                    Step::Crash(unanswered) => {
                        if !grace.is_on() {
                            entitled = has;
                        }
                        has = [false; 4];
                        if unanswered {
                            // It was not written, so it was not answered and has nothing.
                            grace.takes(owner("unanswered"));
                        }
                        grace = disk.start(0);
                        for (who, wanted) in entitled.iter().enumerate() {
                            let may = grace.may_reclaim(&owner(&who.to_string())).is_ok();
                            prop_assert_eq!(may, *wanted);
                        }
                        prop_assert!(grace.may_reclaim(&owner("unanswered")).is_err());
                    }
                    Step::TimeIsOver => {
                        grace.tick(at(90));
                        disk.write(&mut grace);
                    }
                }
            }
        }
    }
}
