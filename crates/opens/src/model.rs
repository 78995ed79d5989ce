//! Model check: three clients with up to [`STEPS`] steps each over one file, in all orders, against
//! a judge that looks at all pairs.
//!
//! Two clients are of one door and lock ranges by their opens, as SMB does. The third is of another
//! door, locks as an owner and may be promised to cache what it reads, as NFS does. After each step:
//!
//! - no two opens conflict, nor do two ranges, and the table answers as the judge does;
//! - nothing is promised beside a writer, and nobody writes before a promise is given back;
//! - a client that waits and may go on has been woken, and no ring of owners waits;
//! - nothing is left once all have ended.
//!
//! Histories that come to the same state are followed once: what is held, who waits and how many
//! steps are left. Longer ones are drawn at random.
#![allow(clippy::unwrap_used)]

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_fs::Ino;
use proptest::prelude::*;

use crate::waits::{Waiter, Waiting};
use crate::{Caches, Entry, Held, LockError, Owner, Promise, Range, Table, Uses};

const FILE: Ino = Ino(9);
const STEPS: u8 = 5;
/// States that are followed, shorter histories first: as many as the test follows in ten seconds of
/// one core at opt-level 1 (some 30 microseconds each).
const STATES_MAX: usize = 250_000;
const CLIENTS: usize = 3;
/// The owner of the third client's locks.
const OWNER: Owner = Owner { door: 2, id: u64::MAX };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Reads and denies writing.
    Read,
    Write,
    Close,
    /// Exclusive, of bytes 0 and 1.
    LockAlone,
    /// Shared, of bytes 1 and 2.
    LockShared,
    UnlockAlone,
    UnlockShared,
    /// Writes data by its open, after the third client has given back what it caches.
    Change,
    /// Is promised to cache what it reads, unless somebody may write.
    Cache,
    GiveBack,
    /// Waits no longer, or tries again if it was woken.
    Stir,
}

const ALL: [Step; 11] = {
    use Step::*;
    [Read, Write, Close, LockAlone, LockShared, UnlockAlone, UnlockShared, Change, Cache, GiveBack, Stir]
};

type Lock = (Range, bool);
const ALONE: Lock = (Range { start: 0, last: 1 }, true);
const SHARED: Lock = (Range { start: 1, last: 2 }, false);

impl Step {
    fn claims(self) -> Option<(Uses, Uses)> {
        match self {
            Step::Read => Some((Uses::READ, Uses::WRITE)),
            Step::Write => Some((Uses::WRITE, Uses::NOTHING)),
            _ => None,
        }
    }

    fn locks(self) -> Option<Lock> {
        match self {
            Step::LockAlone | Step::UnlockAlone => Some(ALONE),
            Step::LockShared | Step::UnlockShared => Some(SHARED),
            _ => None,
        }
    }
}

struct Client<'t> {
    number: usize,
    left: u8,
    open: Option<(Entry, Step)>,
    /// Byte by byte of an owner; as they were taken of an open.
    ranges: Vec<Lock>,
    promise: Option<Promise>,
    waits: Option<Wait<'t>>,
}

struct Wait<'t> {
    wanted: Step,
    waiter: Waiter,
    /// Whose lock is in the way.
    holder: Option<(usize, Waiting<'t>)>,
}

impl Client<'_> {
    fn locks_by_open(&self) -> bool {
        self.number < 2
    }

    fn may_write(&self) -> bool {
        matches!(self.open, Some((_, Step::Write)))
    }

    fn door(&self) -> u32 {
        if self.locks_by_open() { 1 } else { 2 }
    }

    fn holder(&self) -> Option<Owner> {
        if self.locks_by_open() { self.open.as_ref().map(|(entry, _)| entry.owner) } else { Some(OWNER) }
    }

    /// Whether the step means anything now.
    fn can(&self, step: Step) -> bool {
        let (is_open, has) = (self.open.is_some(), |lock: Lock| self.ranges.contains(&lock));
        match step {
            Step::Stir => self.waits.is_some(),
            _ if self.waits.is_some() => false,
            Step::Close => is_open,
            Step::Read | Step::Write => self.open.as_ref().is_none_or(|(_, claimed)| *claimed != step),
            Step::LockAlone | Step::LockShared => self.holder().is_some(),
            Step::Change => self.locks_by_open() && self.may_write(),
            Step::Cache => !self.locks_by_open() && self.promise.is_none(),
            Step::GiveBack => self.promise.is_some(),
            Step::UnlockAlone | Step::UnlockShared if self.locks_by_open() => step.locks().is_some_and(has),
            Step::UnlockAlone | Step::UnlockShared => !self.ranges.is_empty(),
        }
    }

    /// All that the future depends on; `place` numbers the other clients.
    fn key(&self, place: impl Fn(usize) -> u64) -> u64 {
        let of = |step: Step| ALL.iter().position(|other| *other == step).unwrap() as u64 + 1;
        let mut key = u64::from(self.left) << 1 | u64::from(self.promise.is_some());
        key = key << 4 | self.open.as_ref().map_or(0, |(_, claimed)| of(*claimed));
        let waits = self.waits.as_ref();
        key = key << 4 | waits.map_or(0, |wait| of(wait.wanted));
        key = key << 1 | u64::from(waits.is_some_and(|wait| wait.waiter.has_changed()));
        key = key << 2 | waits.and_then(|wait| wait.holder.as_ref()).map_or(0, |(number, _)| place(*number));
        if self.locks_by_open() {
            let count = |lock: Lock| self.ranges.iter().filter(|held| **held == lock).count() as u64;
            return key << 6 | count(ALONE) << 3 | count(SHARED);
        }
        let byte =
            |at| self.ranges.iter().find(|(range, _)| range.start == at).map_or(0, |(_, alone)| 1 + u64::from(*alone));
        key << 6 | byte(0) << 4 | byte(1) << 2 | byte(2)
    }
}

struct World<'t> {
    table: &'t Arc<Table>,
    clients: [Client<'t>; CLIENTS],
}

impl<'t> World<'t> {
    fn new(table: &'t Arc<Table>) -> Self {
        let client =
            |number| Client { number, left: STEPS, open: None, ranges: Vec::new(), promise: None, waits: None };
        Self { table, clients: std::array::from_fn(client) }
    }

    /// Clients of one kind are alike.
    fn key(&self) -> [u64; CLIENTS] {
        let in_order = |order: [usize; CLIENTS]| {
            let place = |number| order.iter().position(|at| *at == number).map_or(0, |at| at as u64 + 1);
            order.map(|number| self.clients[number].key(place))
        };
        in_order([0, 1, 2]).min(in_order([1, 0, 2]))
    }

    fn others(&self, of: usize) -> impl Iterator<Item = &Client<'t>> {
        self.clients.iter().filter(move |client| client.number != of)
    }

    /// The judge of opens.
    fn may_claim(&self, of: usize, (does, denies): (Uses, Uses)) -> bool {
        let mut claimed = self.others(of).filter_map(|other| other.open.as_ref()?.1.claims());
        claimed.all(|(other_does, other_denies)| !other_denies.meets(does) && !denies.meets(other_does))
    }

    /// The judge of ranges.
    fn may_lock(&self, of: usize, (range, alone): Lock) -> bool {
        let own = &self.clients[of];
        self.clients.iter().flat_map(|other| other.ranges.iter().map(move |held| (other, *held))).all(
            |(other, held)| {
                let overlap = held.0.start <= range.last && range.start <= held.0.last;
                !overlap || !refuses(other, own, held.1, alone)
            },
        )
    }

    fn claim(&mut self, of: usize, step: Step, claim: (Uses, Uses)) -> bool {
        let may = self.may_claim(of, claim);
        let door = self.clients[of].door();
        let (entry, former) = match self.clients[of].open.take() {
            Some((entry, former)) => (Some(entry), Some(former)),
            None => (self.table.enter(FILE, door, Uses::NOTHING), None),
        };
        let entry = entry.unwrap();
        let is_claimed = entry.claim(claim.0, claim.1, true).is_ok();
        assert_eq!(is_claimed, may);
        if let Some(claimed) = if is_claimed { Some(step) } else { former } {
            self.clients[of].open = Some((entry, claimed));
        }
        is_claimed
    }

    fn try_lock(&self, of: usize, (range, alone): Lock) -> Result<(), LockError> {
        let client = &self.clients[of];
        match (&client.open, client.locks_by_open()) {
            (Some((entry, _)), true) => entry.lock(range, alone),
            _ => self.table.lock(FILE, Held::posix(OWNER, range, alone, 0, None)),
        }
    }

    fn unlock(&mut self, of: usize, (range, alone): Lock) {
        let client = &mut self.clients[of];
        if let (Some((entry, _)), true) = (&client.open, client.locks_by_open()) {
            assert!(entry.unlock(range, alone));
            let at = client.ranges.iter().position(|held| *held == (range, alone)).unwrap();
            client.ranges.remove(at);
        } else {
            self.table.unlock(FILE, OWNER, range).unwrap();
            client.ranges.retain(|(byte, _)| byte.start < range.start || byte.start > range.last);
        }
    }

    /// Whether what another door's client caches lets somebody write.
    fn may_change(&self) -> bool {
        self.clients.iter().all(|client| client.promise.is_none())
    }

    fn grant(&mut self, of: usize) {
        let is_written = self.others(of).any(Client::may_write);
        let promise = self.table.promise(FILE, self.clients[of].door(), Caches::READS);
        promise.grant(|others| {
            assert_eq!(others.is_written, is_written);
            if is_written { Caches::NOTHING } else { Caches::READS }
        });
        self.clients[of].promise = Some(promise).filter(|_| !is_written);
    }

    /// Tries; a client that is refused waits.
    fn attempt(&mut self, of: usize, step: Step) {
        let waiter = match step.locks() {
            Some(_) => self.table.waiter_for_ranges(FILE),
            None => self.table.waiter(FILE),
        };
        if let Some(claim) = step.claims() {
            if !self.claim(of, step, claim) {
                self.clients[of].waits = Some(Wait { wanted: step, waiter, holder: None });
            }
            return;
        }
        if step == Step::Change {
            let waits = self.table.ask_back(self.clients[of].door(), FILE, Caches::DATA);
            assert_eq!(waits, !self.may_change());
            self.clients[of].waits = Some(Wait { wanted: step, waiter, holder: None }).filter(|_| waits);
            return;
        }
        let lock = step.locks().unwrap();
        let may = self.may_lock(of, lock);
        match self.try_lock(of, lock) {
            Ok(()) => {
                assert!(may, "{step:?} by {of}");
                let client = &mut self.clients[of];
                if client.locks_by_open() {
                    client.ranges.push(lock);
                } else {
                    let bytes = lock.0.start..=lock.0.last;
                    client.ranges.retain(|(byte, _)| !bytes.contains(&byte.start));
                    client.ranges.extend(bytes.map(|byte| (Range { start: byte, last: byte }, lock.1)));
                }
            }
            Err(LockError::Conflict(held)) => {
                assert!(!may, "{step:?} by {of}");
                // A client that would wait in a ring does not.
                let owner = self.clients[of].holder().unwrap();
                if let Some(waiting) = self.table.wait_for(owner, held.owner) {
                    let number = self.clients.iter().position(|other| other.holder() == Some(held.owner)).unwrap();
                    self.clients[of].waits = Some(Wait { wanted: step, waiter, holder: Some((number, waiting)) });
                }
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn act(&mut self, of: usize, step: Step) {
        let client = &mut self.clients[of];
        match step {
            Step::Stir => {
                if let Some(wait) = client.waits.take()
                    && wait.waiter.has_changed()
                {
                    let wanted = wait.wanted;
                    drop(wait);
                    self.attempt(of, wanted);
                    return;
                }
                client.left -= 1;
            }
            Step::Close => {
                client.left -= 1;
                client.open = None;
                if client.locks_by_open() {
                    client.ranges.clear();
                }
            }
            Step::Cache => {
                client.left -= 1;
                self.grant(of);
            }
            Step::GiveBack => {
                client.left -= 1;
                client.promise = None;
            }
            Step::UnlockAlone | Step::UnlockShared => {
                client.left -= 1;
                self.unlock(of, step.locks().unwrap());
            }
            _ => {
                client.left -= 1;
                self.attempt(of, step);
            }
        }
    }

    fn check(&self) {
        for client in &self.clients {
            if let Some((_, claimed)) = &client.open {
                assert!(self.may_claim(client.number, claimed.claims().unwrap()), "two opens conflict");
            }
            let Some(Wait { wanted, waiter, .. }) = &client.waits else { continue };
            let may = match (wanted.claims(), wanted.locks()) {
                (Some(claim), _) => self.may_claim(client.number, claim),
                (_, Some(lock)) => self.may_lock(client.number, lock),
                _ => self.may_change(),
            };
            assert!(!may || waiter.has_changed(), "{wanted:?} by {} is not woken", client.number);
        }
        let waiting = self.table.waiting.lock();
        for start in waiting.keys() {
            let chain = std::iter::successors(Some(start), |owner| waiting.get(owner));
            // The last one of a chain may wait for an owner that has ended, and was woken.
            assert!(chain.take(CLIENTS + 2).count() <= CLIENTS + 1, "a ring waits");
        }
    }
}

/// All clients end: an open takes its ranges along, the third client's door ends its owner.
impl Drop for World<'_> {
    fn drop(&mut self) {
        self.table.end_locks(FILE, OWNER);
    }
}

/// Whether a lock of one client keeps another's, or its own, from being taken where both overlap.
fn refuses(holder: &Client<'_>, wants: &Client<'_>, held_alone: bool, alone: bool) -> bool {
    let is_own = holder.number == wants.number;
    // `locks.ranges_by_open`, `locks.posix_by_owner`
    let may_stack = if holder.locks_by_open() { is_own && !alone } else { is_own };
    !may_stack && (held_alone || alone)
}

fn is_free(table: &Table) -> bool {
    let counts = [&table.bounds.total, &table.promised, &table.denying].map(|count| count.load(Relaxed));
    table.is_empty() && counts == [0; 3] && table.waiting.lock().is_empty()
}

proptest! {
    #[test]
    fn long_histories_keep_the_rules(history in prop::collection::vec((0..CLIENTS, 0..ALL.len()), 0..80)) {
        let table = Arc::<Table>::default();
        let mut world = World::new(&table);
        world.clients.iter_mut().for_each(|client| client.left = u8::MAX);
        for (of, step) in history.into_iter().map(|(of, step)| (of, ALL[step])) {
            if world.clients[of].can(step) {
                world.act(of, step);
                world.check();
            }
        }
        drop(world);
        prop_assert!(is_free(&table));
    }
}

#[test]
fn all_orders_of_a_few_steps_keep_the_rules() {
    let table = Arc::<Table>::default();
    let mut seen = HashSet::new();
    let mut longest = 0;
    let mut histories = VecDeque::from([Vec::<(usize, Step)>::new()]);
    while let Some(history) = histories.pop_front() {
        let replay = || {
            let mut world = World::new(&table);
            history.iter().for_each(|(of, step)| world.act(*of, *step));
            world
        };
        longest = history.len();
        let world = replay();
        let is_woken = |client: &Client<'_>| client.waits.as_ref().is_some_and(|wait| wait.waiter.has_changed());
        let can = |client: &Client<'_>, step| client.can(step) && (client.left > 0 || is_woken(client));
        let next: Vec<(usize, Step)> = world
            .clients
            .iter()
            .flat_map(|client| {
                let steps = ALL.into_iter().filter(move |step| can(client, *step));
                steps.map(|step| (client.number, step))
            })
            .collect();
        drop(world);
        for (of, step) in next {
            let mut world = replay();
            world.act(of, step);
            world.check();
            if seen.len() < STATES_MAX && seen.insert(world.key()) {
                let mut longer = history.clone();
                longer.push((of, step));
                histories.push_back(longer);
            }
            drop(world);
            assert!(is_free(&table), "something is left of {history:?} {step:?}");
        }
    }
    println!("{} states, the last after {} steps", seen.len(), longest);
    assert!(seen.len() > 10_000);
}
