#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::time::Duration;

use super::super::delegation::Delegated;
use super::delegations::NoDelegation;
use super::opens::made_of;
use super::*;
use larder_opens::{Caches, Range, Uses};
use proptest::prelude::*;

const FILE: FileKey = FileKey { volume: 1, inode: 5 };
const OTHER_FILE: FileKey = FileKey { volume: 1, inode: 6 };
const ONE: ClientId = ClientId(1);
const TWO: ClientId = ClientId(3);
/// A client of NFSv4.0, whose stateids alone say whose they are.
const ZERO: ClientId = ClientId(2);
const BY_ZERO: Caller = Caller { client: None, minor: 0 };
const ALL: Range = Range { start: 0, last: u64::MAX };
const TERM: Duration = Duration::from_secs(90);
const READ: ShareBits = ShareBits::READ;
const WRITE: ShareBits = ShareBits::WRITE;
const BOTH: ShareBits = ShareBits::BOTH;
const NONE: ShareBits = ShareBits::NONE;

type States = StateTable<()>;

struct Counter(u64);

impl Chance for Counter {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

fn table() -> States {
    let mut states = StateTable::new(3, Arc::default(), Box::new(Counter(0)));
    for volume in [1, 2] {
        states.judges.begin(volume, Judge { table: Arc::default(), door: 1 });
    }
    states
}

fn by(client: ClientId) -> Caller {
    Caller { client: Some(client), minor: 1 }
}

fn at(secs: u64) -> Moment {
    Moment(Duration::from_secs(secs))
}

/// Nothing of anybody is left in the table of all doors.
fn is_free(states: &States) -> bool {
    states.judges.0.values().all(|judge| judge.table.is_empty())
}

fn offer(states: &States, file: FileKey) -> Held<()> {
    let (judge, ino) = states.judges.of(file).unwrap();
    (judge.table.enter_idle(ino, judge.door), ())
}

fn open_by(
    states: &mut States,
    owner: OwnerId,
    file: FileKey,
    (access, deny): (ShareBits, ShareBits),
    by: (u32, u32),
) -> Result<Opened, NfsStat> {
    let mut offered = Some(offer(states, file));
    states.open(owner, file, (access, deny), by, &mut offered)
}

fn delegate(
    states: &mut States,
    client: ClientId,
    file: FileKey,
    kind: Delegated,
    now: Moment,
) -> Result<StateId, NoDelegation> {
    let held = offer(states, file);
    states.delegate(client, file, kind, now, held)
}

fn open(states: &mut States, client: ClientId, access: ShareBits, deny: ShareBits) -> Result<StateId, NfsStat> {
    let owner = states.owner(client, OwnerKind::Open, b"open").unwrap();
    open_by(states, owner, FILE, (access, deny), (0, 1)).map(|opened| opened.stateid)
}

fn lock(
    states: &mut States,
    open: StateId,
    owner: &[u8],
    client: ClientId,
    start: u64,
    last: u64,
) -> Result<StateId, LockRefusal> {
    states.lock(LockerOf::New { open, owner }, FILE, Range { start, last }, true, by(client))
}

#[test]
fn opens_upgrade_and_downgrade() {
    let mut states = table();
    let first = open(&mut states, ONE, READ, NONE).unwrap();
    assert_eq!(first.seqid, 1);
    let second = open(&mut states, ONE, WRITE, NONE).unwrap();
    assert_eq!((second.other, second.seqid), (first.other, 2), "one open of one owner");
    let third = open(&mut states, ONE, BOTH, WRITE).unwrap();
    assert_eq!(states.len(), 1);
    let downgrades = [
        (second, READ, NONE, Err(NfsStat::OldStateId)),
        (third, NONE, NONE, Err(NfsStat::Inval)),
        (third, READ, READ, Err(NfsStat::Inval)),
        (third, READ, NONE, Ok(4)),
    ];
    for (stateid, access, deny, wanted) in downgrades {
        let done = states.downgrade(&stateid, FILE, access, deny, by(ONE));
        assert_eq!(done.map(|stateid| stateid.seqid), wanted, "{access:?} {deny:?}");
    }
    let current = StateId { seqid: 0, ..third };
    assert_eq!(states.downgrade(&current, FILE, WRITE, NONE, by(ONE)), Err(NfsStat::Inval), "nothing is won by it");
    assert_eq!(states.close(&third, FILE, by(ONE)), Err(NfsStat::OldStateId));
    assert_eq!(states.close(&current, OTHER_FILE, by(ONE)), Err(NfsStat::BadStateId));
    assert_eq!(states.close(&current, FILE, by(TWO)), Err(NfsStat::BadStateId), "another client's");
    states.close(&current, FILE, by(ONE)).unwrap();
    assert_eq!(states.close(&current, FILE, by(ONE)), Err(NfsStat::BadStateId));
    assert!(is_free(&states) && states.states.is_empty() && states.by_client.is_empty());
}

/// `openers.each_their_own`, by the stateids of the open and of a lock in it.
#[test]
fn an_owner_of_two_users_gives_neither_the_others_rights() {
    let mut states = table();
    let owner = states.owner(ONE, OwnerKind::Open, b"open").unwrap();
    let opened = open_by(&mut states, owner, FILE, (READ, NONE), (1000, 1)).unwrap().stateid;
    let current = StateId { seqid: 0, ..opened };
    let locker = LockerOf::New { open: current, owner: b"l" };
    let locked = StateId { seqid: 0, ..states.lock(locker, FILE, ALL, false, by(ONE)).unwrap() };
    let right = |states: &mut States, uid, access: ShareBits| {
        [current, locked].map(|stateid| {
            let judged = states.data_right(&stateid, FILE, access == WRITE, by(ONE));
            states.remember_right(&stateid, 1);
            let may = judged.is_ok_and(|right| right.openers.may(uid, access));
            assert!(!may || states.is_opener(&stateid, uid, access, by(ONE)) == Some(true));
            may
        })
    };
    assert_eq!(right(&mut states, 1000, READ), [true; 2]);
    open_by(&mut states, owner, FILE, (WRITE, NONE), (2000, 1)).unwrap();
    assert_eq!(right(&mut states, 1000, WRITE), [false; 2], "the first user by the second one's open");
    assert_eq!(right(&mut states, 2000, WRITE), [true; 2]);
    assert_eq!(right(&mut states, 2000, READ), [false; 2], "the second user by the first one's open");
    open_by(&mut states, owner, FILE, (BOTH, NONE), (1000, 1)).unwrap();
    assert_eq!(right(&mut states, 1000, WRITE), [true; 2]);
    states.downgrade(&current, FILE, READ, NONE, by(ONE)).unwrap();
    open_by(&mut states, owner, FILE, (WRITE, NONE), (2000, 1)).unwrap();
    assert_eq!(right(&mut states, 1000, WRITE), [false; 2], "given up by the downgrade");
    for (number, known) in states.rights.all() {
        let stateid = stateids::make(3, number, known.seqid);
        assert_eq!(states.data_right(&stateid, FILE, false, by(ONE)).unwrap().openers, known.openers);
    }
    assert_eq!(states.is_opener(&current, 2000, WRITE, by(TWO)), None, "another client's");
}

#[test]
fn a_downgrade_goes_to_what_was_asked_for() {
    let mut states = table();
    let both = open(&mut states, ONE, BOTH, NONE).unwrap();
    assert_eq!(
        states.downgrade(&both, FILE, READ, NONE, by(ONE)),
        Err(NfsStat::Inval),
        "nobody asked for reading alone"
    );
    open(&mut states, ONE, READ, NONE).unwrap();
    let both = StateId { seqid: 0, ..both };
    assert!(states.downgrade(&both, FILE, READ, NONE, by(ONE)).is_ok());
    for (asked, bits, wanted) in
        [(0b0110, BOTH, true), (0b1000, READ, false), (0b0001, NONE, true), (0b1010, READ, true)]
    {
        assert_eq!(made_of(asked, bits), wanted, "{asked:b} {bits:?}");
    }
}

#[test]
fn shares_are_refused_by_the_table() {
    let cases = [
        (READ, NONE, READ, NONE, true),
        (READ, WRITE, READ, NONE, true),
        (READ, WRITE, WRITE, NONE, false),
        (WRITE, NONE, READ, WRITE, false),
        (READ, BOTH, READ, NONE, false),
        (READ, NONE, WRITE, READ, false),
    ];
    for (access, deny, then, then_deny, wanted) in cases {
        let mut states = table();
        let first = open(&mut states, ONE, access, deny).unwrap();
        let second = open(&mut states, TWO, then, then_deny);
        assert_eq!(second.is_ok(), wanted, "{access:?} {deny:?} {then:?} {then_deny:?}");
        assert_eq!(second.err(), (!wanted).then_some(NfsStat::ShareDenied));
        states.close(&first, FILE, by(ONE)).unwrap();
        open(&mut states, TWO, then, then_deny).unwrap();
    }
    // An upgrade that is refused leaves the open as it was.
    let mut states = table();
    let first = open(&mut states, ONE, READ, NONE).unwrap();
    open(&mut states, TWO, READ, WRITE).unwrap();
    assert_eq!(open(&mut states, ONE, WRITE, NONE), Err(NfsStat::ShareDenied));
    assert_eq!(states.test(&first, ONE), NfsStat::Ok);
    assert_eq!(open(&mut states, ONE, NONE, NONE), Err(NfsStat::Inval));
}

#[test]
fn locks_of_owners() {
    let mut states = table();
    let one = open(&mut states, ONE, BOTH, NONE).unwrap();
    let two = open(&mut states, TWO, BOTH, NONE).unwrap();
    let locked = lock(&mut states, one, b"a", ONE, 0, 9).unwrap();
    assert_eq!(locked.seqid, 1);
    let again = lock(&mut states, one, b"a", ONE, 10, 19).unwrap();
    assert_eq!((again.other, again.seqid), (locked.other, 2), "one state of an owner and an open");
    let Err(LockRefusal::Denied { held, client, owner }) = lock(&mut states, two, b"b", TWO, 5, 5) else { panic!() };
    assert_eq!((held.range, client, &owner[..]), (Range { start: 0, last: 19 }, ClientId(0), &b"a"[..]), "joined");
    let Err(LockRefusal::Denied { client, .. }) = lock(&mut states, one, b"b", ONE, 5, 5) else { panic!() };
    assert_eq!(client, ONE, "told to itself alone (`clients.ids_are_secrets`)");
    assert!(states.test_lock(TWO, b"b", FILE, Range { start: 20, last: 30 }, true).is_ok());
    assert!(matches!(states.test_lock(TWO, b"b", FILE, ALL, false), Err(LockRefusal::Denied { .. })));
    assert!(states.test_lock(ONE, b"a", FILE, ALL, true).is_ok(), "its own");
    let existing = states.lock(LockerOf::Existing(again), FILE, Range { start: 30, last: 40 }, false, by(ONE)).unwrap();
    assert_eq!(existing.seqid, 3);
    assert_eq!(states.unlock(&again, FILE, ALL, by(ONE)), Err(NfsStat::OldStateId));
    assert_eq!(states.free(&existing, ONE), Err(NfsStat::LocksHeld));
    let unlocked = states.unlock(&existing, FILE, ALL, by(ONE)).unwrap();
    assert!(lock(&mut states, two, b"b", TWO, 0, 100).is_ok());
    assert_eq!(states.free(&unlocked, ONE), Ok(()));
    assert_eq!(states.test(&unlocked, ONE), NfsStat::BadStateId);
    states.close(&two, FILE, by(TWO)).unwrap();
    states.close(&one, FILE, by(ONE)).unwrap();
    assert!(is_free(&states) && states.states.is_empty(), "a lock ends with its open");
}

#[test]
fn locks_need_an_open_that_does_it() {
    let mut states = table();
    let reads = open(&mut states, ONE, READ, NONE).unwrap();
    assert_eq!(lock(&mut states, reads, b"a", ONE, 0, 1), Err(NfsStat::OpenMode.into()));
    assert!(states.lock(LockerOf::New { open: reads, owner: b"a" }, FILE, ALL, false, by(ONE)).is_ok());
    assert_eq!(
        states.lock(LockerOf::New { open: reads, owner: b"a" }, OTHER_FILE, ALL, false, by(ONE)),
        Err(NfsStat::BadStateId.into())
    );
    for (offset, length, wanted) in [
        (0, 0, Err(NfsStat::Inval)),
        (5, 1, Ok((5, 5))),
        (5, u64::MAX, Ok((5, u64::MAX))),
        (u64::MAX, 1, Ok((u64::MAX, u64::MAX))),
        (u64::MAX, 2, Err(NfsStat::Inval)),
    ] {
        assert_eq!(lock_range(offset, length).map(|range| (range.start, range.last)), wanted, "{offset} {length}");
    }
}

#[test]
fn lock_owners_of_version_zero() {
    let mut states = table();
    let owner = states.owner(ZERO, OwnerKind::Open, b"o").unwrap();
    let opened = open_by(&mut states, owner, FILE, (BOTH, NONE), (0, 0)).unwrap();
    assert!(opened.must_confirm);
    let confirmed = states.confirm_open(&opened.stateid, FILE, BY_ZERO).unwrap();
    assert!(!open_by(&mut states, owner, FILE, (BOTH, NONE), (0, 0)).unwrap().must_confirm);
    let confirmed = StateId { seqid: confirmed.seqid + 1, ..confirmed };
    let locked = states.lock(LockerOf::New { open: confirmed, owner: b"l" }, FILE, ALL, true, BY_ZERO).unwrap();
    assert_eq!(states.release_lock_owner(ZERO, b"l"), Err(NfsStat::LocksHeld));
    states.unlock(&locked, FILE, ALL, BY_ZERO).unwrap();
    assert_eq!((states.release_lock_owner(ZERO, b"l"), states.release_lock_owner(ZERO, b"l")), (Ok(()), Ok(())));
    assert_eq!(states.len(), 1);
    assert_eq!(states.unlock(&locked, FILE, ALL, BY_ZERO), Err(NfsStat::BadStateId));
    let stale = stateids::make(2, StateNumber(1), 1);
    assert_eq!(states.close(&stale, FILE, BY_ZERO), Err(NfsStat::StaleStateId));
    assert_eq!(states.test(&stale, ONE), NfsStat::BadStateId, "never stale");
    assert!(states.owner_seq(owner).is_some());
}

#[test]
fn rights_to_data() {
    let mut states = table();
    let reads = open(&mut states, ONE, READ, WRITE).unwrap();
    let cases = [
        (reads, false, ONE, None),
        (reads, true, ONE, Some(NfsStat::OpenMode)),
        (reads, false, TWO, Some(NfsStat::BadStateId)),
        (stateids::ANONYMOUS, false, TWO, None),
        (stateids::ANONYMOUS, true, TWO, Some(NfsStat::Locked)),
        (stateids::READ_BYPASS, true, TWO, Some(NfsStat::Locked)),
        (stateids::READ_BYPASS, false, TWO, None),
        (stateids::INVALID, false, ONE, Some(NfsStat::BadStateId)),
        (stateids::CURRENT, false, ONE, Some(NfsStat::BadStateId)),
    ];
    for (stateid, writes, client, wanted) in cases {
        assert_eq!(states.data_right(&stateid, FILE, writes, by(client)).err(), wanted, "{stateid:?} {writes}");
    }
    let mut states = table();
    let writes = open(&mut states, ONE, WRITE, NONE).unwrap();
    assert!(states.data_right(&writes, FILE, false, by(ONE)).is_ok(), "a page is read before a part of it is written");
    let locked = lock(&mut states, writes, b"a", ONE, 0, 1).unwrap();
    assert!(states.data_right(&locked, FILE, true, by(ONE)).unwrap().openers.may(0, WRITE));
    assert_eq!(states.data_right(&locked, OTHER_FILE, true, by(ONE)), Err(NfsStat::BadStateId));
    open(&mut states, TWO, READ, READ).unwrap();
    assert_eq!(states.data_right(&writes, FILE, false, by(ONE)), Err(NfsStat::Locked), "unless somebody denies it");
}

#[test]
fn a_conflict_recalls_and_is_never_granted_early() {
    let mut states = table();
    open(&mut states, ONE, BOTH, NONE).unwrap();
    let delegated = delegate(&mut states, ONE, FILE, Delegated::Write, at(0)).unwrap();
    assert_eq!(delegate(&mut states, ONE, FILE, Delegated::Read, at(0)), Err(NoDelegation::Contention), "it has one");
    assert!(states.conflict(FILE, Some(ONE), true).is_ok() && states.recalls_to_send(at(0)).is_empty());
    for _ in 0..3 {
        assert_eq!(open(&mut states, TWO, READ, NONE), Err(NfsStat::Delay));
    }
    assert_eq!(states.conflict(FILE, None, false), Err(NfsStat::Delay), "another door");
    let recalls = states.recalls_to_send(at(100));
    assert_eq!(recalls, [RecallToSend { client: ONE, file: FILE, stateid: delegated }]);
    assert_eq!(states.revoke_overdue(at(100), TERM), 0, "its time begins");
    states.recall_sent(&delegated);
    assert!(states.recalls_to_send(at(100)).is_empty());
    assert!(states.data_right(&delegated, FILE, true, by(ONE)).is_ok(), "it writes back what it has");
    states.recall_lost(&delegated, at(110));
    assert!(states.recalls_to_send(at(110)).is_empty(), "after a pause");
    assert_eq!(states.recalls_to_send(at(120)).len(), 1, "again, by the connection that is bound now");
    states.recall_sent(&delegated);
    assert_eq!(states.revoke_overdue(at(189), TERM), 0);
    states.return_delegation(&delegated, FILE, by(ONE), at(189)).unwrap();
    assert!(open(&mut states, TWO, READ, NONE).is_ok());
    assert_eq!(delegate(&mut states, TWO, FILE, Delegated::Read, at(190)), Err(NoDelegation::Contention), "it rests");
    assert!(states.recalling.is_empty() && states.delegations_of.is_empty() && states.delegations.is_empty());
}

/// `promises.asked_first`
#[test]
fn other_doors_wait_for_a_delegation_until_it_ends() {
    let mut states = table();
    let (judge, ino) = states.judges.of(FILE).unwrap();
    let doors = Arc::clone(&judge.table);
    let waits = |what| doors.ask_back(9, ino, what);
    let written = delegate(&mut states, ONE, FILE, Delegated::Write, at(0)).unwrap();
    let all = [Caches::WRITES, Caches::DATA, Caches::HANDLES, Caches::ATTRIBUTES];
    assert!(all.into_iter().all(waits));
    assert!(!doors.ask_back(1, ino, Caches::DATA), "its own door recalls by itself");
    states.return_delegation(&written, FILE, by(ONE), at(0)).unwrap();
    assert!(!all.into_iter().any(waits) && is_free(&states));
    delegate(&mut states, TWO, FILE, Delegated::Read, at(0)).unwrap();
    assert_eq!(all.map(waits), [false, true, true, true], "readers keep nothing that readers miss");
    states.end_client(TWO);
    assert!(!all.into_iter().any(waits), "its client has ended");
    delegate(&mut states, ONE, FILE, Delegated::Write, at(0)).unwrap();
    assert_eq!(states.conflict(FILE, None, true), Err(NfsStat::Delay));
    states.revoke_overdue(at(0), TERM);
    let waiter = doors.waiter(ino);
    assert!(waits(Caches::HANDLES));
    assert_eq!(states.revoke_overdue(at(90), TERM), 1);
    assert!(waiter.has_changed() && !all.into_iter().any(waits), "it is revoked");
}

/// RFC 8881 10.4
#[test]
fn nothing_is_delegated_beside_another_doors_writer() {
    let mut states = table();
    let (judge, ino) = states.judges.of(FILE).unwrap();
    let doors = Arc::clone(&judge.table);
    let mut can = |kind| {
        delegate(&mut states, ONE, FILE, kind, at(0)).map(|stateid| {
            states.return_delegation(&stateid, FILE, by(ONE), at(0)).unwrap();
        })
    };
    let reader = doors.enter(ino, 9, Uses::READ).unwrap();
    assert_eq!((can(Delegated::Write), can(Delegated::Read)), (Err(NoDelegation::Contention), Ok(())));
    let writer = doors.enter(ino, 9, Uses::WRITE).unwrap();
    drop(reader);
    assert_eq!(
        (can(Delegated::Write), can(Delegated::Read)),
        (Err(NoDelegation::Contention), Err(NoDelegation::Contention))
    );
    drop(writer);
    assert_eq!((can(Delegated::Write), can(Delegated::Read)), (Ok(()), Ok(())));
}

#[test]
fn reading_is_delegated_to_many_and_writing_to_one() {
    let mut states = table();
    let one = delegate(&mut states, ONE, FILE, Delegated::Read, at(0)).unwrap();
    let two = delegate(&mut states, TWO, FILE, Delegated::Read, at(0)).unwrap();
    assert_eq!(delegate(&mut states, ClientId(5), FILE, Delegated::Write, at(0)), Err(NoDelegation::Contention));
    assert!(open(&mut states, ClientId(5), READ, NONE).is_ok(), "readers do not hurt");
    assert_eq!(open(&mut states, ClientId(5), WRITE, NONE), Err(NfsStat::Delay));
    assert_eq!(states.recalls_to_send(at(0)).len(), 2);
    assert_eq!(
        delegate(&mut states, ClientId(7), FILE, Delegated::Read, at(0)),
        Err(NoDelegation::Contention),
        "while it lasts"
    );
    states.return_delegation(&one, FILE, by(ONE), at(0)).unwrap();
    assert_eq!(open(&mut states, ClientId(5), WRITE, NONE), Err(NfsStat::Delay), "the other is out");
    states.return_delegation(&two, FILE, by(TWO), at(0)).unwrap();
    assert!(open(&mut states, ClientId(5), WRITE, NONE).is_ok());
    let mut states = table();
    open(&mut states, TWO, WRITE, NONE).unwrap();
    assert_eq!(
        delegate(&mut states, ONE, FILE, Delegated::Read, at(0)),
        Err(NoDelegation::Contention),
        "somebody writes"
    );
}

#[test]
fn a_revoked_delegation_is_said_until_it_is_freed() {
    let mut states = table();
    let delegated = delegate(&mut states, ONE, FILE, Delegated::Write, at(0)).unwrap();
    assert_eq!(states.free(&delegated, ONE), Err(NfsStat::LocksHeld));
    assert_eq!(states.conflict(FILE, Some(TWO), true), Err(NfsStat::Delay));
    assert_eq!(states.revoke_overdue(at(10_000), TERM), 0, "its time begins");
    assert_eq!(states.revoke_overdue(at(10_089), TERM), 0);
    assert_eq!(states.revoke_overdue(at(10_090), TERM), 1, "though it was never sent");
    assert!(is_free(&states) && states.conflict(FILE, Some(TWO), true).is_ok(), "the file is free at once");
    assert!(states.has_revoked(ONE) && !states.has_revoked(TWO));
    assert_eq!(states.test(&delegated, ONE), NfsStat::DelegRevoked);
    assert_eq!(states.data_right(&delegated, FILE, true, by(ONE)), Err(NfsStat::DelegRevoked));
    assert_eq!(states.return_delegation(&delegated, FILE, BY_ZERO, at(10_091)), Err(NfsStat::BadStateId));
    assert_eq!(states.free(&delegated, TWO), Err(NfsStat::BadStateId));
    assert_eq!(states.free(&delegated, ONE), Ok(()));
    assert_eq!(states.free(&delegated, ONE), Err(NfsStat::BadStateId));
    assert!(!states.has_revoked(ONE) && states.states.is_empty() && states.by_client.is_empty());
    let mut states = table();
    let delegated = delegate(&mut states, ZERO, FILE, Delegated::Write, at(0)).unwrap();
    assert_eq!(states.conflict(FILE, Some(TWO), true), Err(NfsStat::Delay));
    assert_eq!(states.revoke_overdue(at(0), TERM), 0);
    assert_eq!(states.revoke_overdue(at(90), TERM), 1);
    assert_eq!(states.return_delegation(&delegated, FILE, BY_ZERO, at(91)), Err(NfsStat::AdminRevoked));
}

/// `state.overdue_loses_all`: others wait for a client once, not once for each of its files.
#[test]
fn an_overdue_client_loses_all_delegations_and_gets_none() {
    let mut states = table();
    let (network, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let same_machine = ClientId(5);
    for (client, network) in [(ONE, network), (same_machine, network), (TWO, other)] {
        states.admit(client, network);
    }
    let file = |inode| FileKey { volume: 1, inode };
    let of_one: Vec<_> =
        (0..20).map(|n| delegate(&mut states, ONE, file(n), Delegated::Write, at(0)).unwrap()).collect();
    let of_two = delegate(&mut states, TWO, file(30), Delegated::Write, at(0)).unwrap();
    assert_eq!(states.conflict(file(0), Some(TWO), true), Err(NfsStat::Delay));
    assert_eq!(states.revoke_overdue(at(1), TERM), 0);
    assert_eq!(states.conflict(file(1), Some(TWO), true), Err(NfsStat::Delay), "this one was asked for later");
    assert_eq!(states.revoke_overdue(at(91), TERM), 20);
    assert!((0..20).all(|n| states.conflict(file(n), None, true).is_ok()), "nobody waits for another");
    assert!(of_one.iter().all(|stateid| states.test(stateid, ONE) == NfsStat::DelegRevoked));
    assert_eq!(states.test(&of_two, TWO), NfsStat::Ok);
    let mut given = |client, n, secs| delegate(&mut states, client, file(n), Delegated::Read, at(secs)).map(|_| ());
    assert_eq!(given(ONE, 40, 92), Err(NoDelegation::Resource));
    assert_eq!(given(same_machine, 40, 92), Err(NoDelegation::Resource), "by another name of its own making");
    assert_eq!(given(TWO, 41, 92), Ok(()));
    assert_eq!(given(ONE, 42, 91 + 300), Ok(()));
}

/// `clients.ids_name_their_family`
#[test]
fn what_has_sessions_is_not_found_without_them() {
    let mut states = table();
    let opened = open(&mut states, ONE, BOTH, BOTH).unwrap();
    let locked = lock(&mut states, opened, b"a", ONE, 0, 9).unwrap();
    let none = Err(NfsStat::BadStateId);
    assert_eq!(states.unlock(&locked, FILE, ALL, BY_ZERO), none);
    assert_eq!(states.close(&opened, FILE, BY_ZERO).map(|()| opened), none);
    assert_eq!(states.downgrade(&opened, FILE, READ, NONE, BY_ZERO), none);
    assert_eq!(states.client_of(&opened), Err(NfsStat::BadStateId));
    assert!(states.data_right(&opened, FILE, false, BY_ZERO).is_err());
    assert!(states.lock(LockerOf::Existing(locked), FILE, ALL, true, BY_ZERO).is_err());
    assert_eq!((states.test(&opened, ONE), states.len()), (NfsStat::Ok, 2));
    let delegated = delegate(&mut states, ONE, OTHER_FILE, Delegated::Write, at(0)).unwrap();
    assert_eq!(states.return_delegation(&delegated, OTHER_FILE, BY_ZERO, at(1)).map(|_| delegated), none);
}

#[test]
fn states_and_owners_are_bounded() {
    let mut states = table();
    states.admit(ONE, "10.0.0.1".parse().unwrap());
    states.admit(TWO, "10.0.0.2".parse().unwrap());
    let owner = states.owner(ONE, OwnerKind::Open, b"o").unwrap();
    for inode in 0..STATES_MAX as u64 / 8 {
        open_by(&mut states, owner, FileKey { volume: 2, inode }, (READ, NONE), (0, 1)).unwrap();
    }
    assert_eq!(open_by(&mut states, owner, FILE, (READ, NONE), (0, 1)), Err(NfsStat::Delay));
    assert!(open(&mut states, TWO, READ, NONE).is_ok(), "others have room");
    states.end_client(ONE);
    assert_eq!(states.len(), 1);
    states.admit(ONE, "10.0.0.1".parse().unwrap());
    for name in 0..OWNERS_MAX as u64 / 4 {
        states.owner(ONE, OwnerKind::Open, &name.to_be_bytes()).unwrap();
        assert!(states.owners.len() <= OWNERS_MAX / 8 + 1, "those that have nothing make room");
    }
    assert!(states.owner_ids.contains_key(&(TWO, OwnerKind::Open, Arc::from(&b"open"[..]))), "of this client alone");
}

/// A machine makes up as many clients as it likes: what they hold counts together (`networks.parts`).
#[test]
fn many_clients_of_one_machine_leave_room_for_others() {
    let mut states = table();
    let clients = |first: u64| (first..first + 20).map(|id| ClientId(2 * id + 1));
    clients(100).for_each(|client| states.admit(client, "10.0.0.1".parse().unwrap()));
    let (other, same) = (ClientId(9), ClientId(11));
    states.admit(other, "10.0.0.2".parse().unwrap());
    states.admit(same, "10.0.0.1".parse().unwrap());
    let mut taken = 0;
    for client in clients(100) {
        for name in 0..OWNERS_MAX as u64 / 10 {
            let Ok(owner) = states.owner(client, OwnerKind::Open, &name.to_be_bytes()) else { break };
            open_by(&mut states, owner, FILE, (READ, NONE), (0, 1)).unwrap();
            taken += 1;
        }
    }
    assert_eq!(taken, OWNERS_MAX / 8);
    assert!(!states.has_room(same) && states.owner(same, OwnerKind::Open, b"o").is_err());
    assert!(states.has_room(other) && open(&mut states, other, READ, NONE).is_ok());
    assert!(states.makes_room(other, same).is_none(), "another network is not at fault");
    assert!(states.makes_room(ClientId(201), same) > states.makes_room(other, other));
    states.end_client(ClientId(201));
    assert!(states.has_room(same));
}

/// A client that was silent for a lease keeps its file until somebody wants it, and then leaves nothing behind.
#[test]
fn a_courteous_client_makes_room() {
    use super::super::clients::{Clients, Family4, OwnerName};
    use super::super::grace::{Grace, ReclaimBook};

    let mut states = table();
    let clients = Clients::new(TERM);
    let name = OwnerName { family: Family4::Sessions, id: b"gone"[..].into() }.key();
    let mut grace = Grace::begin(ReclaimBook::default(), at(0), TERM, |_| false);
    grace.takes(name);
    let opened = open(&mut states, ONE, BOTH, BOTH).unwrap();
    lock(&mut states, opened, b"l", ONE, 0, 9).unwrap();
    delegate(&mut states, ONE, FILE, Delegated::Write, at(0)).unwrap();
    assert_eq!(open(&mut states, TWO, READ, NONE), Err(NfsStat::Delay), "the delegation");
    assert_eq!(states.holders(FILE), BTreeSet::from([ONE]));
    assert!(clients.is_courteous(ONE, at(100)), "a client without a record has no lease");
    grace.forget(&name);
    states.end_client(ONE);
    assert!(is_free(&states) && states.recalls_to_send(at(0)).is_empty());
    assert!(open(&mut states, TWO, READ, NONE).is_ok());
    let (_, book) = grace.to_write().unwrap();
    let grace = Grace::begin(book.clone(), at(0), TERM, |_| false);
    assert!(!grace.is_on() && grace.may_reclaim(&name).is_err(), "nor does it reclaim what another has");
}

#[derive(Clone, Debug)]
enum Step {
    Open { client: u64, owner: u8, file: u64, access: u8, deny: u8 },
    Close(usize),
    Downgrade(usize, u8, u8),
    Lock { at: usize, owner: u8, start: u64, length: u64, exclusive: bool },
    Unlock { at: usize, start: u64, length: u64 },
    Delegate { client: u64, file: u64, writes: bool },
    Return(usize),
    Free(usize),
    EndClient(u64),
    Revoke,
}

fn step() -> impl Strategy<Value = Step> {
    let client = 1u64..4;
    prop_oneof![
        4 => (client.clone(), 0u8..2, 0u64..3, 1u8..4, 0u8..4)
            .prop_map(|(client, owner, file, access, deny)| Step::Open { client, owner, file, access, deny }),
        2 => (0usize..20).prop_map(Step::Close),
        1 => (0usize..20, 0u8..4, 0u8..4).prop_map(|(at, access, deny)| Step::Downgrade(at, access, deny)),
        3 => (0usize..20, 0u8..2, 0u64..8, 1u64..8, any::<bool>())
            .prop_map(|(at, owner, start, length, exclusive)| Step::Lock { at, owner, start, length, exclusive }),
        2 => (0usize..20, 0u64..8, 1u64..8).prop_map(|(at, start, length)| Step::Unlock { at, start, length }),
        2 => (client.clone(), 0u64..3, any::<bool>())
            .prop_map(|(client, file, writes)| Step::Delegate { client, file, writes }),
        1 => (0usize..20).prop_map(Step::Return),
        1 => (0usize..20).prop_map(Step::Free),
        1 => client.prop_map(Step::EndClient),
        1 => Just(Step::Revoke),
    ]
}

proptest! {
    /// Whatever clients do: opens and delegations in the table are those here, no two shares or locks conflict, and
    /// nothing is left when all clients are gone.
    #[test]
    fn the_table_has_what_the_states_have(steps in proptest::collection::vec(step(), 0..120)) {
        let mut states = table();
        let mut given: Vec<(StateId, FileKey, ClientId)> = Vec::new();
        let mut secs = 0;
        for step in steps {
            secs += 1;
            let pick = |at: usize| given.get(at % given.len().max(1)).copied();
            match step {
                Step::Open { client, owner, file, access, deny } => {
                    let (client, file) = (ClientId(client), FileKey { volume: 1, inode: file });
                    let owner = states.owner(client, OwnerKind::Open, &[owner]).unwrap();
                    let bits = |bits: u8| ShareBits::from_number(u32::from(bits)).unwrap();
                    if let Ok(opened) = open_by(&mut states, owner, file, (bits(access), bits(deny)), (u32::from(secs % 2 == 1), 1)) {
                        states.remember_right(&opened.stateid, 1);
                        given.push((opened.stateid, file, client));
                    }
                }
                Step::Close(at) => if let Some((stateid, file, client)) = pick(at) {
                    let _ = states.close(&stateid, file, by(client));
                },
                Step::Downgrade(at, access, deny) => if let Some((stateid, file, client)) = pick(at) {
                    let bits = |bits: u8| ShareBits::from_number(u32::from(bits)).unwrap();
                    let _ = states.downgrade(&stateid, file, bits(access), bits(deny), by(client));
                },
                Step::Lock { at, owner, start, length, exclusive } => if let Some((stateid, file, client)) = pick(at) {
                    let locker = LockerOf::New { open: StateId { seqid: 0, ..stateid }, owner: &[owner] };
                    let range = lock_range(start, length).unwrap();
                    if let Ok(stateid) = states.lock(locker, file, range, exclusive, by(client)) {
                        states.remember_right(&stateid, 1);
                        given.push((stateid, file, client));
                    }
                },
                Step::Unlock { at, start, length } => if let Some((stateid, file, client)) = pick(at) {
                    let _ = states.unlock(&stateid, file, lock_range(start, length).unwrap(), by(client));
                },
                Step::Delegate { client, file, writes } => {
                    let (client, file) = (ClientId(client), FileKey { volume: 1, inode: file });
                    let kind = if writes { Delegated::Write } else { Delegated::Read };
                    if let Ok(stateid) = delegate(&mut states, client, file, kind, at(secs * 40)) {
                        given.push((stateid, file, client));
                    }
                }
                Step::Return(place) => if let Some((stateid, file, client)) = pick(place) {
                    let _ = states.return_delegation(&stateid, file, by(client), at(secs * 40));
                },
                Step::Free(at) => if let Some((stateid, _, client)) = pick(at) {
                    let _ = states.free(&stateid, client);
                },
                Step::EndClient(client) => {
                    states.end_client(ClientId(client));
                    prop_assert!(!states.has_state(ClientId(client)));
                }
                Step::Revoke => {
                    for recall in states.recalls_to_send(at(secs * 40)) {
                        states.recall_sent(&recall.stateid);
                    }
                    states.revoke_overdue(at(secs * 40), TERM);
                }
            }
            // `rights.end_with_state`: a right that is found is one that would be judged so now.
            for (number, right) in states.rights.all() {
                let stateid = stateids::make(3, number, right.seqid);
                let without_sessions = if right.client.has_sessions() { Err(NfsStat::BadStateId) } else { Ok(right.client) };
                prop_assert_eq!(states.client_of(&stateid), without_sessions);
                for (bits, writes) in [(READ, false), (WRITE, true)] {
                    if right.access.has(bits) {
                        let judged = states.data_right(&stateid, right.file, writes, by(right.client));
                        prop_assert_eq!(judged.map(|judged| judged.openers), Ok(right.openers));
                    }
                }
            }
            let count = |is: fn(&StateKind) -> bool| states.states.values().filter(|state| is(&state.kind)).count();
            let held = states.states.values().filter(|state| state.held.is_some()).count();
            let delegations = count(|kind| matches!(kind, StateKind::Delegation(one) if !one.is_revoked()));
            prop_assert_eq!(held, count(|kind| matches!(kind, StateKind::Open(_))) + delegations);
            prop_assert_eq!(delegations, states.delegations_of.values().map(Vec::len).sum::<usize>());
            let opens = states.states.iter().filter_map(|(number, state)| match &state.kind {
                StateKind::Open(open) => Some((number, state.file, open)),
                _ => None,
            });
            for (one, file, open) in opens.clone() {
                let mut others = opens.clone().filter(|(other, of, _)| (*other, *of) != (one, file) && *of == file);
                prop_assert!(!others.any(|(.., other)| other.deny.meets(open.access)));
            }
        }
        (1..4).for_each(|client| states.end_client(ClientId(client)));
        prop_assert!(is_free(&states));
        prop_assert!(states.states.is_empty() && states.by_client.is_empty() && states.owners.is_empty());
        prop_assert!(states.owner_ids.is_empty() && states.opens_of.is_empty() && states.open_by.is_empty());
        prop_assert!(states.lock_by.is_empty() && states.delegations_of.is_empty() && states.recalling.is_empty());
        prop_assert!(states.delegations.is_empty() && states.revoked.is_empty() && states.networks.is_empty());
    }
}
