//! Opens, ranges and waits, one rule each. [`crate::model`] tries all orders of a few steps.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Waker};

use larder_fs::Ino;
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::ranges::{LOCKS_MAX, LOCKS_OF_ALL_MAX, LOCKS_OF_PARTY_MAX, LOCKS_RESERVED};
use crate::{Caches, Door, Entry, Held, LockError, Others, Owner, Range, Refused, Table, Uses};

const FILE: Ino = Ino(5);
const BOTH: Uses = Uses::READ.and(Uses::WRITE);

fn enter(table: &Arc<Table>, door: u32, does: Uses) -> Entry {
    table.enter(FILE, door, does).unwrap()
}

#[test]
fn a_door_sees_the_opens_of_the_others() {
    let table = Arc::<Table>::default();
    let [first, second] = [0; 2].map(|_| enter(&table, 1, Uses::READ));
    assert!(!table.others(FILE, 1).is_open && table.others(FILE, 2).is_open && !table.others(Ino(6), 2).is_open);
    drop(first);
    assert!(table.others(FILE, 2).is_open);
    drop(second);
    assert!(!table.others(FILE, 2).is_open);
    assert_eq!(table.files(), 0, "nothing is left of what is closed");
}

#[test]
fn what_one_door_denies_no_other_does() {
    let table = Arc::<Table>::default();
    let smb = enter(&table, 1, Uses::NOTHING);
    smb.claim(Uses::READ, Uses::WRITE.and(Uses::DELETE), false).unwrap();
    assert!(table.enter(FILE, 2, BOTH).is_none(), "it may not be written");
    let mount = enter(&table, 2, Uses::READ);
    assert!(table.denied(FILE, 2, Uses::DELETE) && !table.denied(FILE, 1, Uses::DELETE));
    assert_eq!(smb.claim(Uses::READ, Uses::READ, false), Err(Refused::ByOthers), "the mount reads it already");
    assert!(table.denied(FILE, 2, Uses::WRITE), "and what was claimed before stands");
    assert!(table.has_denials());
    smb.end();
    assert!(!table.has_denials());
    drop(mount);
    let mount = enter(&table, 2, BOTH);
    assert_eq!(smb.claim(Uses::READ, Uses::WRITE, false), Err(Refused::ByOthers));
    drop((mount, smb));
    assert_eq!(table.files(), 0);
}

/// `opens.claimed_within`
#[test]
fn within_a_door_claims_alone_are_judged() {
    let table = Arc::<Table>::default();
    let [first, second, third] = [0; 3].map(|_| enter(&table, 1, Uses::READ));
    let claims = |open: &Entry, does, denies| open.claim(does, denies, false) == Ok(());
    assert!(claims(&first, Uses::READ, Uses::WRITE));
    assert_eq!(second.claim(BOTH, Uses::NOTHING, false), Err(Refused::WithinDoor), "denied by its own door");
    assert!(!claims(&second, Uses::READ, Uses::READ), "the first reads");
    assert!(claims(&second, Uses::READ, Uses::NOTHING), "the third has claimed nothing");
    assert!(claims(&first, BOTH, Uses::NOTHING), "its own denial is not in its way");
    assert!(claims(&third, Uses::READ, Uses::NOTHING));
    assert!(claims(&first, Uses::READ, Uses::WRITE));
    assert!(table.denied_by_any(FILE, None, Uses::WRITE) && !table.denied_by_any(FILE, Some(&first), Uses::WRITE));
    let mount = enter(&table, 2, Uses::READ);
    assert!(!claims(&mount, BOTH, Uses::NOTHING));
    assert!(!table.others(FILE, 2).is_written);
    assert!(claims(&first, BOTH, Uses::NOTHING));
    assert!(table.others(FILE, 2).is_written && !table.others(FILE, 1).is_written);
    assert!(claims(&first, BOTH, Uses::DELETE) && table.has_denials() && !table.is_used(FILE, Uses::DELETE));
    drop((first, second, third, mount));
    assert!(!table.has_denials() && table.files() == 0);
}

/// Opens that are alike cost a judgement nothing more: ten thousand of them have one kind.
#[test]
fn opens_that_are_alike_are_judged_as_one() {
    let table = Arc::<Table>::default();
    let opens: Vec<Entry> = (0..10_000).map(|_| enter(&table, 1, Uses::READ)).collect();
    assert!(opens.iter().all(|open| open.claim(BOTH, Uses::NOTHING, false).is_ok()));
    assert_eq!(table.look(FILE, |file| file.kinds.iter().count()), Some(1));
    assert_eq!(table.writers(), 10_000);
    assert!(opens[5].claim(BOTH, Uses::DELETE, false).is_ok());
    assert!(table.denied(FILE, 2, Uses::DELETE) && !table.denied_by_any(FILE, Some(&opens[5]), Uses::DELETE));
    drop(opens);
    assert!(table.files() == 0 && !table.has_denials());
}

/// A door of one client, which has gone or not.
#[derive(Default)]
struct Clients {
    has_gone: AtomicBool,
    asked: Mutex<Vec<Caches>>,
    table: OnceLock<Arc<Table>>,
}

impl Clients {
    /// As door 2 of the table.
    fn of(table: &Arc<Table>) -> Arc<Self> {
        let clients = Arc::<Self>::default();
        let _ = clients.table.set(Arc::clone(table));
        let door: Weak<dyn Door> = Arc::downgrade(&(Arc::clone(&clients) as Arc<dyn Door>));
        table.add_door(2, door);
        clients
    }
}

impl Door for Clients {
    fn loses_lock(&self, ino: Ino, owner: u64) -> bool {
        let has_gone = self.has_gone.load(Relaxed);
        if let Some(table) = self.table.get().filter(|_| has_gone) {
            table.end_locks(ino, Owner { door: 2, id: owner });
        }
        has_gone
    }

    fn ask_back(&self, _ino: Ino, what: Caches) {
        self.asked.lock().push(what);
    }
}

/// `opens.reclaimed_first`
#[test]
fn no_other_door_takes_a_file_before_it_is_reclaimed() {
    let table = Arc::<Table>::default();
    let reclaims = table.begin_reclaims(2);
    let (smb, own) = (enter(&table, 1, Uses::NOTHING), enter(&table, 2, Uses::NOTHING));
    let claims = |open: &Entry, does, denies| open.claim(does, denies, true) == Ok(());
    assert!(!claims(&smb, Uses::READ, Uses::WRITE) && !claims(&smb, BOTH, BOTH.and(Uses::DELETE)));
    assert!(claims(&smb, BOTH, Uses::NOTHING) && claims(&smb, BOTH, Uses::DELETE), "in nobody's way");
    assert!(smb.claim(Uses::READ, Uses::WRITE, false).is_ok(), "a file that it has made");
    smb.end();
    assert!(claims(&own, BOTH, Uses::WRITE), "its own");
    own.end();
    let waiter = table.waiter_for_ranges(FILE);
    drop(reclaims);
    assert!(waiter.has_changed());
    assert!(claims(&smb, Uses::READ, Uses::WRITE), "at once when all are back");
}

/// `promises.asked_first`
#[test]
fn a_client_is_asked_once_for_each_part_that_it_caches() {
    let table = Arc::<Table>::default();
    let clients = Clients::of(&table);
    let asked = || std::mem::take(&mut *clients.asked.lock());
    let promise = table.promise(FILE, 2, Caches::WRITES);
    assert!(!table.ask_back(1, FILE, Caches::DATA) && asked().is_empty(), "it caches nothing");
    promise.grant(|_| Caches::DATA.and(Caches::HANDLES));
    assert!(!table.ask_back(2, FILE, Caches::DATA) && !table.ask_back(1, Ino(6), Caches::DATA));
    assert!(asked().is_empty(), "its own door, another file");
    assert!(table.ask_back(1, FILE, Caches::WRITES) && table.ask_back(3, FILE, Caches::WRITES));
    assert_eq!(asked(), [Caches::WRITES]);
    assert!(table.ask_back(1, FILE, Caches::DATA) && asked() == [Caches::DATA]);
    assert!(!table.ask_back(1, FILE, Caches::HANDLES), "it is told, and nobody waits");
    assert_eq!(asked(), [Caches::HANDLES]);
    let mut waiter = table.waiter(FILE);
    promise.keep(Caches::READS);
    assert!(waiter.has_changed() && !table.ask_back(1, FILE, Caches::WRITES) && asked().is_empty());
    assert!(!table.ask_back(1, FILE, Caches::DATA) && asked() == [Caches::DATA], "of what is left");
    promise.grant(|_| Caches::DATA);
    assert!(table.ask_back(1, FILE, Caches::WRITES) && asked() == [Caches::WRITES], "it was promised anew");
    waiter = table.waiter(FILE);
    drop(promise);
    assert!(waiter.has_changed() && !table.ask_back(1, FILE, Caches::DATA));
    drop(waiter);
    assert!(table.is_empty() && table.promised.load(Relaxed) == 0);
}

/// Its clients may have gone, whatever they were promised.
#[test]
fn a_door_is_asked_for_handles_where_it_has_an_open() {
    let table = Arc::<Table>::default();
    let clients = Clients::of(&table);
    let open = enter(&table, 2, Uses::NOTHING);
    assert!(!table.ask_back(1, FILE, Caches::DATA) && clients.asked.lock().is_empty());
    assert!(!table.ask_back(1, FILE, Caches::HANDLES) && *clients.asked.lock() == [Caches::HANDLES]);
    drop(open);
    assert!(!table.ask_back(1, FILE, Caches::HANDLES) && clients.asked.lock().len() == 1);
}

/// `promises.granted_where_judged`
#[test]
fn a_grant_sees_what_others_hold() {
    let table = Arc::<Table>::default();
    let sees = |door, expected: Others| {
        let promise = table.promise(FILE, door, Caches::WRITES);
        promise.grant(|others| {
            assert_eq!(others, expected);
            Caches::READS
        });
        assert_eq!(table.others(FILE, door), expected);
        promise
    };
    let nobody = Others::default();
    let own = enter(&table, 1, BOTH);
    drop(sees(1, nobody));
    let reader = enter(&table, 2, Uses::READ);
    drop(sees(1, Others { is_open: true, is_written: false }));
    drop(reader);
    let promise = sees(2, Others { is_open: true, is_written: true });
    drop(own);
    drop(sees(1, Others { is_open: true, is_written: false }));
    promise.keep(Caches::NOTHING);
    drop(sees(1, nobody));
    drop(promise);
    assert!(table.is_empty());
}

fn owner(id: u64) -> Owner {
    Owner { door: 1, id }
}

fn range(start: u64, last: u64) -> Range {
    Range { start, last }
}

fn posix(id: u64, start: u64, last: u64, exclusive: bool) -> Held {
    of_party(None, id, start, last, exclusive)
}

fn of_party(party: Option<u64>, id: u64, start: u64, last: u64, exclusive: bool) -> Held {
    Held::posix(owner(id), range(start, last), exclusive, 0, party)
}

#[test]
fn posix_locks_and_ranges_of_smb_refuse_each_other() {
    let table = Arc::<Table>::default();
    let [first, second] = [0; 2].map(|_| enter(&table, 1, Uses::NOTHING));
    assert!(first.lock(range(0, 9), true).is_ok());
    assert!(second.lock(range(5, 5), true).is_err() && second.lock(range(10, 10), false).is_ok());
    assert!(matches!(table.lock(FILE, posix(3, 9, 20, false)), Err(LockError::Conflict(_))));
    table.lock(FILE, posix(3, 10, 20, false)).unwrap();
    assert!(first.lock(range(20, 30), true).is_err());
    assert!(first.lock(range(20, 30), false).is_ok(), "both shared");
    assert!(first.unlock(range(0, 9), true) && !first.unlock(range(0, 9), true));
    drop(second);
    table.lock(FILE, posix(3, 0, 9, true)).unwrap();
    drop(first);
    table.unlock(FILE, owner(3), range(0, u64::MAX)).unwrap();
    assert_eq!(table.files(), 0, "nothing stays behind");
}

/// `locks.ranges_by_open`
#[test]
fn ranges_of_opens_are_judged_by_their_own_rules() {
    let table = Arc::<Table>::default();
    let [first, second] = [0; 2].map(|_| enter(&table, 1, Uses::NOTHING));
    first.lock(range(0, 9), false).unwrap();
    first.lock(range(0, 9), false).unwrap();
    assert!(first.lock(range(0, 9), true).is_err(), "its own shared range, too");
    assert!(!first.may_access(range(9, 9), true) && second.may_access(range(9, 9), false));
    first.lock(range(20, 29), true).unwrap();
    assert!(first.lock(range(25, 25), true).is_err() && first.lock(range(25, 25), false).is_ok());
    assert!(first.may_access(range(20, 24), true) && !second.may_access(range(20, 24), false));
    assert!(first.unlock(range(0, 9), false) && first.unlock(range(0, 9), false) && !first.unlock(range(0, 9), false));
    assert!(second.may_access(range(0, 19), true) && second.has_ranges());
    table.lock(FILE, posix(1, 0, 9, true)).unwrap();
    assert!(second.may_access(range(0, 9), true), "a lock of an owner binds no reads and writes");
    drop(first);
    assert!(!second.has_ranges() && second.may_access(range(0, 99), true));
}

/// An empty range has no bytes that an owner could lock. At the start of the file it meets nothing
/// at all.
#[test]
fn empty_ranges_are_known_among_opens_alone() {
    let table = Arc::<Table>::default();
    let [first, second] = [0; 2].map(|_| enter(&table, 1, Uses::NOTHING));
    for (at, length) in [(0, 0), (10, 0), (u64::MAX, 0), (0, 0)] {
        first.lock(Range::of(at, length), true).unwrap();
    }
    let may_lock = |start, last| {
        let is_locked = second.lock(range(start, last), true).is_ok();
        is_locked && second.unlock(range(start, last), true)
    };
    assert!(may_lock(0, 9) && may_lock(10, 19) && !may_lock(9, 10) && !may_lock(0, u64::MAX));
    assert!(!second.may_access(range(5, 14), true) && second.may_access(range(10, 14), true));
    assert!(first.unlock(Range::of(10, 0), true) && first.unlock(Range::of(u64::MAX, 0), true));
    assert!(may_lock(0, u64::MAX), "nowhere");
    first.lock(Range::of(10, 0), true).unwrap();
    table.lock(FILE, posix(1, 0, 99, true)).unwrap();
}

#[test]
fn the_end_of_an_open_takes_no_lock_of_an_owner_with_its_number_along() {
    let table = Arc::<Table>::default();
    let open = enter(&table, 1, Uses::NOTHING);
    table.lock(FILE, posix(open.owner.id, 0, 9, true)).unwrap();
    open.lock(range(20, 29), true).unwrap();
    drop(open);
    let is_locked = |start, last| table.test_lock(FILE, posix(99, start, last, true)).is_some();
    assert!(is_locked(0, 9) && !is_locked(20, 29));
}

#[test]
fn what_a_door_had_locked_is_free_when_it_is_gone() {
    let table = Arc::<Table>::default();
    let other = Held::posix(Owner { door: 2, id: 1 }, range(0, 9), true, 0, None);
    table.lock(FILE, posix(1, 0, 9, true)).unwrap();
    table.lock(Ino(8), posix(1, 0, 9, true)).unwrap();
    let waiter = table.waiter(FILE);
    assert!(table.lock(FILE, other).is_err());
    table.end_door(1);
    assert!(waiter.has_changed(), "who waits hears of it");
    table.lock(FILE, other).unwrap();
    assert_eq!((table.files(), table.bounds.total.load(Relaxed)), (1, 1));
    assert!(table.has_locks(FILE, other.owner) && !table.has_locks(FILE, owner(1)));
}

/// `locks.lost_by_silence`
#[test]
fn a_client_that_has_gone_yields_to_another_door() {
    let table = Arc::<Table>::default();
    let clients = Clients::of(&table);
    let theirs = Held::posix(Owner { door: 2, id: 7 }, range(0, 9), true, 0, None);
    table.lock(FILE, theirs).unwrap();
    let open = enter(&table, 3, Uses::NOTHING);
    let by_posix = || table.lock(FILE, posix(1, 0, 9, true));
    let by_smb = || open.may_lock(range(0, 9), false).and_then(|()| open.lock(range(0, 9), false));
    assert_eq!((by_posix(), by_smb()), (Err(LockError::Conflict(theirs)), Err(LockError::Conflict(theirs))));
    let reclaims = table.begin_reclaims(2);
    assert_eq!(by_posix(), Err(LockError::Reclaims), "whatever it locks");
    drop(reclaims);
    clients.has_gone.store(true, Relaxed);
    assert_eq!(by_smb(), Ok(()));
    assert!(open.unlock(range(0, 9), false));
    table.lock(FILE, theirs).unwrap();
    assert_eq!(by_posix(), Ok(()));
    assert!(!table.has_locks(FILE, theirs.owner));
}

#[test]
fn who_would_wait_in_a_ring_is_refused() {
    let table = Table::default();
    let first = table.wait_for(owner(1), owner(2)).unwrap();
    let second = table.wait_for(owner(2), owner(3)).unwrap();
    assert!(table.wait_for(owner(3), owner(1)).is_none());
    drop(second);
    assert!(table.wait_for(owner(3), owner(1)).is_some());
    drop(first);
    assert!(table.waiting.lock().is_empty());
}

#[test]
fn who_waits_hears_of_an_end_and_of_a_weaker_lock() {
    let table = Arc::<Table>::default();
    let hears = |change: &dyn Fn()| {
        let (waiter, for_ranges) = (table.waiter(FILE), table.waiter_for_ranges(FILE));
        change();
        assert_eq!(waiter.has_changed(), for_ranges.has_changed());
        waiter.has_changed()
    };
    table.lock(FILE, posix(1, 0, 9, true)).unwrap();
    let kept = table.waiter(FILE);
    assert!(!hears(&|| table.lock(FILE, posix(1, 20, 29, true)).unwrap()), "one more lock lets nobody through");
    assert!(hears(&|| table.lock(FILE, posix(1, 0, 9, false)).unwrap()));
    assert!(hears(&|| table.unlock(FILE, owner(1), range(0, u64::MAX)).unwrap()));
    table.lock(FILE, posix(2, 0, 9, true)).unwrap();
    assert!(hears(&|| table.end_locks(FILE, owner(2))), "the next one's end is heard too");
    assert_eq!(table.files(), 1);
    drop(kept);
    assert_eq!(table.files(), 0);
}

/// `opens.woken_by_change`
#[test]
fn who_waits_for_ranges_hears_of_ranges_alone() {
    let table = Arc::<Table>::default();
    let kept = enter(&table, 1, Uses::NOTHING);
    let hears = |change: &dyn Fn()| {
        let (waiter, for_ranges) = (table.waiter(FILE), table.waiter_for_ranges(FILE));
        change();
        (waiter.has_changed(), for_ranges.has_changed())
    };
    assert_eq!(hears(&|| drop(enter(&table, 1, Uses::READ))), (true, false), "an open without ranges ends");
    assert_eq!(hears(&|| table.wake(FILE)), (true, false), "a lease is given back");
    assert_eq!(hears(&|| kept.claim(BOTH, Uses::WRITE, false).unwrap()), (false, false), "it had nothing before");
    assert_eq!(hears(&|| kept.claim(BOTH, Uses::NOTHING, false).unwrap()), (true, false), "it denies nothing any more");
    kept.lock(range(0, 9), true).unwrap();
    assert_eq!(hears(&|| kept.end()), (true, true), "it had locked a range");
    assert_eq!(hears(&|| table.wake_all()), (true, true));
    let (mut woken, mut context) = (table.waiter_for_ranges(FILE), Context::from_waker(Waker::noop()));
    assert!(Pin::new(&mut woken).poll(&mut context).is_pending());
    table.wake(FILE);
    assert!(Pin::new(&mut woken).poll(&mut context).is_pending());
    table.wake_all();
    assert!(Pin::new(&mut woken).poll(&mut context).is_ready() && !woken.has_changed(), "it waits for the next one");
}

#[test]
fn a_file_has_only_so_many_locks() {
    let table = Arc::<Table>::default();
    let open = enter(&table, 1, Uses::NOTHING);
    let many = (0..LOCKS_MAX as u64).map(|at| posix(1, at * 2, at * 2, false)).collect();
    table.shard(FILE).lock().get_mut(&FILE).unwrap().ranges = many;
    table.bounds.total.store(LOCKS_MAX, Relaxed);
    assert_eq!(table.lock(FILE, posix(2, 1, 1, false)), Err(LockError::TooMany));
    assert_eq!(open.lock(range(1, 1), false), Err(LockError::TooMany));
    let whole = posix(1, 0, 1 << 20, false);
    table.shard(FILE).lock().get_mut(&FILE).unwrap().ranges[0] = whole;
    assert_eq!(table.unlock(FILE, owner(1), range(5, 5)), Err(LockError::TooMany), "one would become two");
    table.unlock(FILE, owner(1), whole.range).unwrap();
}

#[test]
fn a_client_has_only_so_many_locks_of_all_files() {
    let (table, other) = (Arc::<Table>::default(), Ino(FILE.0 + 1));
    let of = |client: u64, id: u64, at: u64| of_party(Some(client), id, at * 2, at * 2, false);
    let by_party = || table.bounds.by_party.lock();
    let count = |client: u64| by_party().get(&(1, client)).copied().unwrap_or_default();
    table.lock(FILE, of(9, 1, 0)).unwrap();
    table.lock(FILE, of(9, 1, 2)).unwrap();
    table.lock(FILE, Held { range: range(0, 9), ..of(9, 1, 0) }).unwrap();
    assert_eq!(count(9), 1, "they became one");
    table.unlock(FILE, owner(1), range(5, 5)).unwrap();
    table.lock(other, of(9, 2, 0)).unwrap();
    assert_eq!(count(9), 3);
    by_party().insert((1, 9), LOCKS_OF_PARTY_MAX);
    assert_eq!(table.lock(other, of(9, 2, 7)), Err(LockError::TooMany));
    assert_eq!(table.unlock(FILE, owner(1), range(2, 2)), Err(LockError::TooMany), "one would become two");
    table.lock(other, of(8, 3, 7)).unwrap();
    table.lock(other, posix(4, 9, 9, false)).unwrap();
    table.end_locks(other, owner(2));
    table.lock(other, of(9, 2, 7)).unwrap();
    by_party().insert((1, 9), 3);
    table.bounds.total.fetch_add(LOCKS_OF_ALL_MAX / 4 * 3, Relaxed);
    table.lock(other, of(7, 5, 20)).unwrap();
    by_party().insert((1, 7), LOCKS_RESERVED);
    assert_eq!(table.lock(other, of(7, 5, 22)), Err(LockError::TooMany), "the rest is for those with little");
    table.lock(other, of(6, 6, 22)).unwrap();
    table.bounds.total.fetch_sub(LOCKS_OF_ALL_MAX / 4 * 3, Relaxed);
    by_party().extend([((1, 7), 1), ((1, 6), 1)]);
    table.end_door(1);
    assert!(by_party().is_empty());
    assert_eq!(table.bounds.total.load(Relaxed), 0);
}

#[test]
fn all_files_have_only_so_many_locks() {
    let (table, other) = (Arc::<Table>::default(), Ino(FILE.0 + 1));
    let total = &table.bounds.total;
    table.lock(FILE, posix(1, 0, 99, false)).unwrap();
    table.unlock(FILE, owner(1), range(50, 50)).unwrap();
    let [first, second] = [other, FILE].map(|file| table.enter(file, 1, Uses::NOTHING).unwrap());
    assert!(first.lock(range(0, 9), true).is_ok());
    assert_eq!(total.load(Relaxed), 3);
    total.store(LOCKS_OF_ALL_MAX, Relaxed);
    assert_eq!(table.lock(other, posix(3, 50, 50, false)), Err(LockError::TooMany));
    assert!(second.lock(range(50, 50), false).is_err());
    assert!(first.unlock(range(0, 9), true));
    assert!(second.lock(range(50, 50), false).is_ok());
    table.end_locks(FILE, owner(1));
    drop(second);
    assert_eq!(total.load(Relaxed), LOCKS_OF_ALL_MAX - 3);
}

#[derive(Clone, Debug)]
enum Step {
    Lock(u64, u64, u64, bool),
    Unlock(u64, u64, u64),
    End(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let part = || (0..3u64, 0..24u64, 0..8u64);
    prop_oneof![
        4 => (part(), any::<bool>()).prop_map(|((id, start, len), exclusive)| Step::Lock(id, start, start + len, exclusive)),
        2 => part().prop_map(|(id, start, len)| Step::Unlock(id, start, start + len)),
        1 => (0..3u64).prop_map(Step::End),
    ]
}

proptest! {
    /// Byte by byte: who has it, and whether alone.
    #[test]
    fn posix_locks_are_those_of_a_table_of_bytes(steps in prop::collection::vec(step(), 0..60)) {
        let table = Table::default();
        let mut bytes = vec![HashMap::<u64, bool>::new(); 40];
        for step in steps {
            match step {
                Step::Lock(id, start, last, exclusive) => {
                    let free = bytes[start as usize..=last as usize].iter().all(|byte| {
                        byte.iter().all(|(by, alone)| *by == id || !(exclusive || *alone))
                    });
                    prop_assert_eq!(table.lock(FILE, posix(id, start, last, exclusive)).is_ok(), free);
                    if free {
                        for byte in &mut bytes[start as usize..=last as usize] {
                            byte.insert(id, exclusive);
                        }
                    }
                }
                Step::Unlock(id, start, last) => {
                    table.unlock(FILE, owner(id), range(start, last)).unwrap();
                    for byte in &mut bytes[start as usize..=last as usize] {
                        byte.remove(&id);
                    }
                }
                Step::End(id) => {
                    table.end_locks(FILE, owner(id));
                    for byte in &mut bytes {
                        byte.remove(&id);
                    }
                }
            }
            for (at, byte) in bytes.iter().enumerate() {
                for id in 0..3 {
                    let shared = byte.iter().all(|(by, alone)| *by == id || !alone);
                    let alone = byte.keys().all(|by| *by == id);
                    let at = at as u64;
                    prop_assert_eq!(table.test_lock(FILE, posix(id, at, at, false)).is_none(), shared);
                    prop_assert_eq!(table.test_lock(FILE, posix(id, at, at, true)).is_none(), alone);
                }
            }
            prop_assert!(table.look(FILE, |file| file.ranges.len()).unwrap_or(0) <= 3 * 40);
        }
    }
}
