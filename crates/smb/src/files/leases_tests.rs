//! Tests of [`super`].

use larder_fs::Ino;
use larder_opens::{Caches, Uses};
use uuid::Uuid;

use super::*;
use crate::conn::outbound::Outbound;
use crate::conn::writer::{ResponseReceiver, response_queue};
use crate::door::feed::OutsideChange;
use crate::door::view::VisitedShare;
use crate::files::durable::DurableTable;
use crate::files::entries::{FILE_SHARE_READ, Sharing};
use crate::files::file_ref::{FileRef, OpenRequest, Refused};
use crate::files::lease::{Granted, LeaseRequest, Trigger};
use crate::share::Share;
use larder_smb_wire::access_mask::{FILE_READ_DATA, FILE_WRITE_DATA};
use larder_smb_wire::file_info::FileInfo;
use larder_smb_wire::messages::FileId;

const ALL: u32 = 7;

async fn share() -> Arc<ShareBindings> {
    ShareBindings::from_share(Share::of("s", VisitedShare::in_memory().await).public())
}

fn id(n: u8) -> LeaseId {
    LeaseId { client: Uuid::nil(), key: [n; 16] }
}

fn req(n: u8) -> LeaseRequest {
    LeaseRequest { id: id(n), state: LeaseState::requested(7), version: LeaseVersion::V2, epoch: 0, parent: None }
}

fn connection() -> (Arc<Outbound>, ResponseReceiver) {
    let (tx, rx) = response_queue();
    let outbound = Arc::new(Outbound::default());
    outbound.attach(tx);
    (outbound, rx)
}

/// Registers a read-write open of file `index` named `name`.
fn open(share: &Arc<ShareBindings>, index: u64, name: &str, owner: &Arc<Outbound>, lease: Option<LeaseId>) -> FileRef {
    let mut info = FileInfo::new("");
    info.file_index = index;
    let req = OpenRequest {
        sharing: Sharing { access: FILE_READ_DATA | FILE_WRITE_DATA, share: ALL },
        owner: Notified::new(owner, None),
        lease,
        overwrite: false,
        break_handles: false,
        ..OpenRequest::default()
    };
    FileRef::register(share, &info, share.name_at(name), req).unwrap().0
}

/// Opens file `index` as `name` holding the lease `n`.
fn leased(
    table: &Arc<LeaseTable>,
    share: &Arc<ShareBindings>,
    index: u64,
    name: &str,
    owner: &Arc<Outbound>,
    n: u8,
) -> Result<(FileRef, Granted, GrantGuard), u32> {
    let lease_ref = table.acquire(id(n), share, Some(index))?;
    let mut file = open(share, index, name, owner, Some(id(n)));
    let (granted, guard) = table.grant(lease_ref, &mut file, &req(n), LeaseState::R)?;
    Ok((file, granted, guard))
}

/// Opens file 7 as `f` holding RH under the lease `n`, sharing read and
/// write only.
fn hold_rh(table: &Arc<LeaseTable>, share: &Arc<ShareBindings>, owner: &Arc<Outbound>, n: u8) -> FileRef {
    let lease_ref = table.acquire(id(n), share, Some(7)).unwrap();
    let mut info = FileInfo::new("");
    info.file_index = 7;
    let req = OpenRequest {
        sharing: Sharing { access: FILE_READ_DATA | FILE_WRITE_DATA, share: 3 },
        owner: Notified::new(owner, None),
        lease: Some(id(n)),
        overwrite: false,
        break_handles: true,
        ..OpenRequest::default()
    };
    let mut file = FileRef::register(share, &info, share.name_at("f"), req).unwrap().0;
    let (granted, _) = table.grant(lease_ref, &mut file, &req_state(n, 7), LeaseState::RH).unwrap();
    assert_eq!(granted.state, LeaseState::RH);
    file
}

fn req_state(n: u8, bits: u32) -> LeaseRequest {
    LeaseRequest { state: LeaseState::requested(bits), ..req(n) }
}

/// A DELETE open of file 7 that the RH holder's sharing refuses.
fn conflicting(share: &Arc<ShareBindings>, owner: &Arc<Outbound>) -> Refused {
    let mut info = FileInfo::new("");
    info.file_index = 7;
    let req = OpenRequest {
        sharing: Sharing { access: larder_smb_wire::access_mask::DELETE, share: ALL },
        owner: Notified::new(owner, None),
        lease: None,
        overwrite: false,
        break_handles: true,
        ..OpenRequest::default()
    };
    FileRef::register(share, &info, share.name_at("f"), req).err().unwrap()
}

fn ack(table: &LeaseTable, id: LeaseId, bits: u32) -> Result<LeaseState, u32> {
    table.acknowledge(id, bits).map(|(state, _)| state)
}

fn notification(frame: &[u8]) -> LeaseBreakNotification {
    LeaseBreakNotification::parse(&frame[64..]).unwrap()
}

#[tokio::test]
async fn acknowledgments_are_checked_and_settle_the_lease() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let _held = hold_rh(&table, &s, &holder, 1);
    let writer = open(&s, 7, "f", &holder, None);
    writer.break_leases(Trigger::Write);
    let n = notification(&rx.try_recv().unwrap());
    assert_eq!(n.flags, LeaseBreakNotification::FLAG_ACK_REQUIRED);
    assert_eq!((n.current_lease_state, n.new_lease_state), (3, 0));
    assert_eq!(n.new_epoch, 2);

    assert_eq!(ack(&table, id(1), 1), Err(ntstatus::STATUS_REQUEST_NOT_ACCEPTED));
    assert_eq!(ack(&table, id(2), 0), Err(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND));
    assert_eq!(ack(&table, id(1), 0), Ok(LeaseState::NONE));
    assert_eq!(ack(&table, id(1), 0), Err(ntstatus::STATUS_UNSUCCESSFUL));
    assert!(rx.try_recv().is_none());
}

#[tokio::test]
async fn a_later_trigger_lowers_what_the_acknowledgment_settles_on() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let _held = hold_rh(&table, &s, &holder, 1);
    let refused = conflicting(&s, &holder);
    assert_eq!(refused.status, ntstatus::STATUS_SHARING_VIOLATION);
    assert!(refused.wait.is_some());
    let n = notification(&rx.try_recv().unwrap());
    assert_eq!((n.current_lease_state, n.new_lease_state), (3, 1));

    // A second violation during the break waits without a notification.
    assert!(conflicting(&s, &holder).wait.is_some());
    let writer = open(&s, 7, "f", &holder, None);
    writer.break_leases(Trigger::Write);
    assert!(rx.try_recv().is_none());

    let (state, breaks) = table.acknowledge(id(1), 1).unwrap();
    assert_eq!(state, LeaseState::R);
    assert!(rx.try_recv().is_none(), "the further break waits for the response");
    drop(breaks);
    let n = notification(&rx.try_recv().unwrap());
    assert_eq!(n.flags, 0);
    assert_eq!((n.current_lease_state, n.new_lease_state), (1, 0));
    // Over now: a violation fails without waiting.
    drop(writer);
    assert!(conflicting(&s, &holder).wait.is_none());
}

#[tokio::test]
async fn a_stale_timer_changes_nothing() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, _rx) = connection();
    let held = hold_rh(&table, &s, &holder, 1);
    open(&s, 7, "f", &holder, None).break_leases(Trigger::Write);
    // Break sequence numbers start at 1.
    drop(held.node().drop_break(id(1), 0));
    assert_eq!(ack(&table, id(1), 0), Ok(LeaseState::NONE));
}

#[tokio::test]
async fn a_break_no_connection_takes_drops_the_lease_to_none() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, rx) = connection();
    let _held = hold_rh(&table, &s, &holder, 1);
    drop(rx);
    drop(holder);
    let (other, _rx) = connection();
    let refused = conflicting(&s, &other);
    assert!(refused.wait.is_some());
    assert_eq!(ack(&table, id(1), 1), Err(ntstatus::STATUS_UNSUCCESSFUL));
}

#[tokio::test]
async fn a_break_a_closing_connection_did_not_take_ends_with_its_opens() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, rx) = connection();
    let held = hold_rh(&table, &s, &holder, 1);
    drop(rx);
    let mut wait = conflicting(&s, &holder).wait.unwrap();
    assert!(wait.changed().await, "the timer's start counts");
    let mut wait = conflicting(&s, &holder).wait.unwrap();
    drop(held);
    assert!(wait.changed().await);
    assert!(!table.exists(id(1)));
}

const FILE_ID: FileId = FileId::new(3, 4);

/// Opens the file as `f` with an oplock that caches `state`.
fn oplocked(
    table: &Arc<LeaseTable>,
    share: &Arc<ShareBindings>,
    owner: &Arc<Outbound>,
    state: LeaseState,
) -> (FileRef, LeaseState) {
    let request =
        LeaseRequest { id: LeaseId::new_oplock(), state, version: LeaseVersion::Oplock, epoch: 0, parent: None };
    let lease_ref = table.acquire(request.id, share, Some(7)).unwrap();
    let mut file = open(share, 7, "f", owner, Some(request.id));
    let (granted, guard) = table.grant(lease_ref, &mut file, &request, LeaseState::RWH).unwrap();
    file.set_file_id(FILE_ID);
    drop(guard);
    (file, granted.state)
}

/// The level an oplock break in `frame` goes to.
fn oplock_break(frame: &[u8]) -> u8 {
    let body = OplockBreakNotification::parse(&frame[64..]).unwrap();
    assert_eq!(body.structure_size, 24);
    assert_eq!(body.file_id, FILE_ID);
    body.oplock_level
}

/// Opens the file as `f`, as a CREATE that may have to wait does.
fn plain_open(share: &Arc<ShareBindings>, owner: &Arc<Outbound>) -> (FileRef, Option<BreakWait>) {
    let mut info = FileInfo::new("");
    info.file_index = 7;
    let request = OpenRequest {
        sharing: Sharing { access: FILE_READ_DATA | FILE_WRITE_DATA, share: ALL },
        owner: Notified::new(owner, None),
        ..OpenRequest::default()
    };
    FileRef::register(share, &info, share.name_at("f"), request).unwrap()
}

#[tokio::test]
async fn an_open_beside_a_batch_oplock_waits_until_it_is_level_ii() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let (held, granted) = oplocked(&table, &s, &holder, LeaseState::RWH);
    assert_eq!(granted, LeaseState::RWH);
    let (other, wait) = plain_open(&s, &holder);
    assert!(wait.is_some());
    assert_eq!(oplock_break(&rx.try_recv().unwrap()), 1);
    assert!(other.end_wait().unwrap().is_some(), "not acknowledged yet");
    drop(held.acknowledge_oplock(1).unwrap());
    assert!(other.end_wait().unwrap().is_none());
    // Level II goes with a write through any open, its own too.
    held.break_leases(Trigger::Write);
    assert_eq!(oplock_break(&rx.try_recv().unwrap()), 0);
    held.break_leases(Trigger::Write);
    assert!(rx.try_recv().is_none());
    assert_eq!(
        held.acknowledge_oplock(0).err(),
        Some(ntstatus::STATUS_INVALID_OPLOCK_PROTOCOL),
        "a break of level II is not acknowledged"
    );
}

#[tokio::test(start_paused = true)]
async fn an_oplock_break_nobody_acknowledges_ends_in_time() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, _rx) = connection();
    let (_held, _) = oplocked(&table, &s, &holder, LeaseState::RW);
    let (other, wait) = plain_open(&s, &holder);
    let mut wait = wait.unwrap();
    let asked = Instant::now();
    while other.end_wait().unwrap().is_some() {
        assert!(wait.changed().await);
    }
    assert_eq!(asked.elapsed(), LEASE_BREAK_TIMEOUT);
}

/// `lease.late_once`
#[tokio::test(start_paused = true)]
async fn others_wait_once_for_a_client_that_answers_no_break() {
    let (table, late) = (Arc::new(LeaseTable::default()), Arc::new(crate::files::Late::default()));
    let s = share().await;
    let client = |address: &str| {
        let (outbound, rx) = connection();
        outbound.set_client(Punctual::new(&late, address.parse().unwrap()));
        (outbound, rx)
    };
    let (holder, mut rx) = client("10.0.0.1");
    let (again, _rx2) = client("10.0.0.1");
    let (reader, _rx3) = client("10.0.0.2");
    let hold = |outbound: &Arc<Outbound>, index: u64, n: u8| {
        let lease_ref = table.acquire(id(n), &s, Some(index)).unwrap();
        let mut held = open(&s, index, "f", outbound, Some(id(n)));
        let (granted, guard) = table.grant(lease_ref, &mut held, &req(n), LeaseState::RWH).unwrap();
        drop(guard);
        (held, granted.state)
    };
    let read = |index: u64| {
        let mut info = FileInfo::new("");
        info.file_index = index;
        let request = OpenRequest {
            sharing: Sharing { access: FILE_READ_DATA, share: ALL },
            owner: Notified::new(&reader, None),
            break_handles: true,
            ..OpenRequest::default()
        };
        FileRef::register(&s, &info, s.name_at("f"), request).unwrap()
    };
    let held: Vec<_> = (1..=4).map(|n| hold(&holder, u64::from(n), n)).collect();
    assert!(held.iter().all(|(_, state)| *state == LeaseState::RWH));
    let asked = Instant::now();
    let (first, wait) = read(1);
    let mut wait = wait.unwrap();
    while first.end_wait().unwrap().is_some() {
        assert!(wait.changed().await);
    }
    assert_eq!(asked.elapsed(), LEASE_BREAK_TIMEOUT);
    for index in 2..=3 {
        let (next, _) = read(index);
        assert!(next.end_wait().unwrap().is_none(), "file {index}: nobody waits again");
    }
    assert_eq!(asked.elapsed(), LEASE_BREAK_TIMEOUT);
    assert_eq!(std::iter::from_fn(|| rx.try_recv()).count(), 3, "it is told of each all the same");
    assert_eq!(hold(&holder, 5, 5).1, LeaseState::NONE);
    assert_eq!(hold(&again, 7, 7).1, LeaseState::RWH, "another connection of it");
    tokio::time::advance(crate::files::LATE_FOR).await;
    assert_eq!(hold(&holder, 6, 6).1, LeaseState::RWH);
}

#[tokio::test]
async fn an_oplock_acknowledged_to_a_level_it_may_not_have_ends() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, _rx) = connection();
    for level in [2, 8, 9, 255] {
        let (held, granted) = oplocked(&table, &s, &holder, LeaseState::RWH);
        assert_eq!(granted, LeaseState::RWH);
        let (other, _) = plain_open(&s, &holder);
        assert_eq!(held.acknowledge_oplock(level).err(), Some(ntstatus::STATUS_INVALID_OPLOCK_PROTOCOL));
        assert!(other.end_wait().unwrap().is_none());
    }
}

#[tokio::test]
async fn a_second_oplock_is_level_ii_and_an_exclusive_one_breaks_no_handles() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let plain = open(&s, 7, "f", &holder, None);
    let (second, granted) = oplocked(&table, &s, &holder, LeaseState::RWH);
    assert_eq!(granted, LeaseState::R);
    drop((plain, second));
    let (exclusive, _) = oplocked(&table, &s, &holder, LeaseState::RW);
    exclusive.break_leases(Trigger::Write);
    let other = open(&s, 8, "g", &holder, None);
    other.break_leases(Trigger::Write);
    assert!(rx.try_recv().is_none(), "its own write, another file");
    s.files.changed_outside(OutsideChange::Of(Ino(7)));
    assert_eq!(oplock_break(&rx.try_recv().unwrap()), 0);
}

#[tokio::test]
async fn an_open_beside_write_caching_waits_for_the_write_back() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let lease_ref = table.acquire(id(1), &s, Some(7)).unwrap();
    let mut held = open(&s, 7, "f", &holder, Some(id(1)));
    let (granted, _) = table.grant(lease_ref, &mut held, &req(1), LeaseState::RWH).unwrap();
    assert_eq!(granted.state, LeaseState::RWH);

    let mut info = FileInfo::new("");
    info.file_index = 7;
    let request = OpenRequest {
        sharing: Sharing { access: FILE_READ_DATA, share: ALL },
        owner: Notified::new(&holder, None),
        lease: None,
        overwrite: false,
        break_handles: true,
        ..OpenRequest::default()
    };
    let (other, wait) = FileRef::register(&s, &info, s.name_at("f"), request).unwrap();
    assert!(wait.is_some());
    let n = notification(&rx.try_recv().unwrap());
    assert_eq!(n.flags, LeaseBreakNotification::FLAG_ACK_REQUIRED);
    assert_eq!((n.current_lease_state, n.new_lease_state), (7, 3));
    assert!(matches!(other.end_wait(), Ok(Some(_))));

    assert_eq!(ack(&table, id(1), 3), Ok(LeaseState::RH));
    // The waiting open keeps the holder from taking write caching back
    // before it has run its own checks.
    let lease_ref = table.acquire(id(1), &s, Some(7)).unwrap();
    let mut early = open(&s, 7, "f", &holder, Some(id(1)));
    let (granted, _) = table.grant(lease_ref, &mut early, &req(1), LeaseState::RWH).unwrap();
    assert_eq!(granted.state, LeaseState::RH);
    assert!(matches!(other.end_wait(), Ok(None)));
    // The other open keeps the holder from taking write caching back.
    let lease_ref = table.acquire(id(1), &s, Some(7)).unwrap();
    let mut again = open(&s, 7, "f", &holder, Some(id(1)));
    let (granted, _) = table.grant(lease_ref, &mut again, &req(1), LeaseState::RWH).unwrap();
    assert_eq!(granted.state, LeaseState::RH);
}

/// MS-FSA 2.1.5.1: an open joins the file's opens when it is made, so one that waits refuses nobody,
/// at whatever door, and is judged at last.
#[tokio::test]
async fn an_open_that_waits_counts_at_no_door() {
    let (table, s) = (Arc::new(LeaseTable::default()), share().await);
    let (holder, _rx) = connection();
    let mut info = FileInfo::new("");
    info.file_index = 7;
    let reads = |share_access, lease| {
        let sharing = Sharing { access: FILE_READ_DATA, share: share_access };
        let request = OpenRequest { sharing, owner: Notified::new(&holder, None), lease, ..OpenRequest::default() };
        FileRef::register(&s, &info, s.name_at("f"), request).unwrap()
    };
    let lease_ref = table.acquire(id(1), &s, Some(7)).unwrap();
    let (mut held, _) = reads(ALL, Some(id(1)));
    table.grant(lease_ref, &mut held, &req(1), LeaseState::RWH).unwrap();
    let (waiting, wait) = reads(FILE_SHARE_READ, None);
    assert!(wait.is_some());
    let writes_elsewhere = || s.files.held.enter(Ino(7), 99, Uses::WRITE);
    let elsewhere = writes_elsewhere().expect("nobody denies it");
    drop(held);
    assert_eq!(waiting.end_wait().err(), Some(ntstatus::STATUS_SHARING_VIOLATION));
    drop(elsewhere);
    assert!(matches!(waiting.end_wait(), Ok(None)));
    assert!(writes_elsewhere().is_none(), "it is open now");
}

/// `promises.asked_first`: an access by another door waits for what it needs, and for no more.
#[tokio::test]
async fn other_doors_wait_for_what_they_need_of_a_lease() {
    let (table, s) = (Arc::new(LeaseTable::default()), share().await);
    let waits = |what| s.files.held.ask_back(99, Ino(7), what);
    let (holder, mut rx) = connection();
    let held = lease_state(&table, &s, 7, "f", &holder, 1, 7);
    assert!(!waits(Caches::ATTRIBUTES) && rx.try_recv().is_none(), "a lease is not of these");
    let told = |bytes: &[u8]| {
        let told = notification(bytes);
        (told.current_lease_state, told.new_lease_state)
    };
    assert!(waits(Caches::WRITES) && waits(Caches::WRITES), "a read");
    assert_eq!(told(&rx.try_recv().unwrap()), (7, 3));
    assert!(rx.try_recv().is_none(), "once");
    let waiter = s.files.held.waiter(Ino(7));
    assert_eq!(ack(&table, id(1), 3), Ok(LeaseState::RH));
    assert!(waiter.has_changed() && !waits(Caches::WRITES));
    assert!(waits(Caches::HANDLES), "a removal, a rename");
    assert_eq!(told(&rx.try_recv().unwrap()), (3, 1));
    assert_eq!(ack(&table, id(1), 1), Ok(LeaseState::R));
    assert!(!waits(Caches::HANDLES) && rx.try_recv().is_none());
    assert!(!waits(Caches::DATA), "a write: what was read is dropped at once");
    assert_eq!(told(&rx.try_recv().unwrap()), (1, 0));
    drop(held);
    let held = lease_state(&table, &s, 7, "f", &holder, 2, 7);
    assert!(waits(Caches::DATA));
    let waiter = s.files.held.waiter(Ino(7));
    drop(held);
    assert!(waiter.has_changed() && !waits(Caches::DATA) && !waits(Caches::HANDLES), "it has closed");
}

/// RFC 8881 10.4 has the same of delegations: nothing is cached beside another door's writer.
#[tokio::test]
async fn opens_at_other_doors_keep_write_caching_from_a_lease() {
    let (table, s) = (Arc::new(LeaseTable::default()), share().await);
    let (holder, _rx) = connection();
    let granted = |n| {
        let lease_ref = table.acquire(id(n), &s, Some(7)).unwrap();
        let mut file = open(&s, 7, "f", &holder, Some(id(n)));
        table.grant(lease_ref, &mut file, &req(n), LeaseState::RWH).unwrap().0.state
    };
    let elsewhere = s.files.held.enter(Ino(7), 99, Uses::READ).unwrap();
    assert_eq!(granted(1), LeaseState::RH);
    drop(elsewhere);
    let promise = s.files.held.promise(Ino(7), 99, Caches::DATA);
    assert_eq!(granted(2), LeaseState::RWH, "nothing is promised yet");
    promise.grant(|_| Caches::READS);
    assert_eq!(granted(3), LeaseState::RH);
}

#[tokio::test]
async fn an_overwrite_during_a_break_breaks_on_step_by_step() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let lease_ref = table.acquire(id(1), &s, Some(7)).unwrap();
    let mut held = open(&s, 7, "f", &holder, Some(id(1)));
    table.grant(lease_ref, &mut held, &req(1), LeaseState::RWH).unwrap();
    let mut info = FileInfo::new("");
    info.file_index = 7;
    let waiting = |overwrite| {
        let request = OpenRequest {
            sharing: Sharing { access: FILE_READ_DATA, share: ALL },
            owner: Notified::new(&holder, None),
            overwrite,
            break_handles: true,
            ..OpenRequest::default()
        };
        let (file, wait) = FileRef::register(&s, &info, s.name_at("f"), request).unwrap();
        assert!(wait.is_some());
        file
    };
    let mut told = || {
        let n = notification(&rx.try_recv().expect("a break"));
        (n.current_lease_state, n.new_lease_state, n.flags & LeaseBreakNotification::FLAG_ACK_REQUIRED != 0)
    };
    let reader = waiting(false);
    assert_eq!(told(), (7, 3, true));
    let writer = waiting(true);
    // Neither is answered before the lease is down to what both need.
    for (acked, next) in [(3, (3, 1, true)), (1, (1, 0, false))] {
        assert!(matches!(reader.end_wait(), Ok(Some(_))));
        assert!(matches!(writer.end_wait(), Ok(Some(_))));
        ack(&table, id(1), acked).unwrap();
        assert_eq!(told(), next);
    }
    assert!(matches!(reader.end_wait(), Ok(None)));
    assert!(matches!(writer.end_wait(), Ok(None)));
}

#[tokio::test]
async fn handle_caching_is_refused_on_a_delete_pending_file() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, _rx) = connection();
    // The file turns delete-pending between the open and its grant.
    let lease_ref = table.acquire(id(1), &s, Some(7)).unwrap();
    let mut file = open(&s, 7, "f", &owner, Some(id(1)));
    open(&s, 7, "f", &owner, None).set_delete_pending(true);
    let (granted, _) = table.grant(lease_ref, &mut file, &req(1), LeaseState::RH).unwrap();
    assert_eq!(granted.state, LeaseState::R);
}

#[tokio::test]
async fn marking_a_file_delete_pending_breaks_handle_caching() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut rx) = connection();
    let _held = hold_rh(&table, &s, &holder, 1);
    let deleter = open(&s, 7, "f", &holder, None);
    deleter.set_delete_pending(true);
    let n = notification(&rx.try_recv().unwrap());
    assert_eq!((n.current_lease_state, n.new_lease_state), (3, 1));
    assert!(deleter.delete_pending());
}

#[tokio::test]
async fn a_waiting_open_wakes_when_the_holder_closes() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, _rx) = connection();
    let held = hold_rh(&table, &s, &holder, 1);
    // The first refusal starts the break, whose timer counts as a
    // change; the second waits on the break in progress.
    let mut started = conflicting(&s, &holder).wait.unwrap();
    assert!(started.changed().await);
    let mut wait = conflicting(&s, &holder).wait.unwrap();
    let woke = tokio::spawn(async move { wait.changed().await });
    tokio::task::yield_now().await;
    assert!(!woke.is_finished());
    drop(held);
    woke.await.unwrap();
    assert!(!table.exists(id(1)));
}

#[tokio::test]
async fn opens_with_one_key_share_one_lease_until_the_last_closes() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, _rx) = connection();
    let (a, granted, _) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    assert_eq!(granted.state, LeaseState::R);
    assert_eq!(granted.epoch, 1);
    let (b, again, _) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    assert_eq!((again.state, again.epoch), (LeaseState::R, 1));
    assert!(table.exists(id(1)));
    drop(a);
    assert!(table.exists(id(1)));
    drop(b);
    assert!(!table.exists(id(1)));
    assert!(table.bindings().is_empty());
}

#[tokio::test]
async fn a_held_key_fails_on_another_name_file_or_share() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, _rx) = connection();
    let (_a, _, _) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    let invalid = Some(ntstatus::STATUS_INVALID_PARAMETER);
    assert_eq!(table.acquire(id(1), &s, Some(8)).err(), invalid);
    assert_eq!(table.acquire(id(1), &share().await, Some(7)).err(), invalid);
    assert_eq!(table.bindings()[&id(1)].refs, 1);
}

#[tokio::test]
async fn of_two_creates_racing_with_one_key_the_second_bind_fails() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, _rx) = connection();
    let first = table.acquire(id(1), &s, Some(7)).unwrap();
    let second = table.acquire(id(1), &s, Some(8)).unwrap();
    let mut f = open(&s, 7, "f", &owner, Some(id(1)));
    let mut g = open(&s, 8, "g", &owner, Some(id(1)));
    let (_, guard) = table.grant(first, &mut f, &req(1), LeaseState::R).unwrap();
    drop(guard);
    let lost = table.grant(second, &mut g, &req(1), LeaseState::R);
    assert!(matches!(lost, Err(ntstatus::STATUS_INVALID_PARAMETER)));
    drop(g);
    assert_eq!(table.bindings()[&id(1)].refs, 1);
    drop(f);
    assert!(table.bindings().is_empty());
}

#[tokio::test]
async fn a_key_whose_lease_ended_binds_again_elsewhere() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, _rx) = connection();
    let held = table.acquire(id(1), &s, Some(7)).unwrap();
    let (f, _, _) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    drop(f);
    // `held` keeps the binding alive, but the lease has no open left.
    let (_g, granted, _) = leased(&table, &s, 8, "g", &owner, 1).unwrap();
    assert_eq!(granted.state, LeaseState::R);
    drop(held);
    assert!(table.exists(id(1)));
}

#[tokio::test]
async fn a_break_waits_for_the_grant_to_be_sent() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (holder, mut holder_rx) = connection();
    let (writer, mut writer_rx) = connection();
    let (_a, _, guard) = leased(&table, &s, 7, "f", &holder, 1).unwrap();
    let b = open(&s, 7, "f", &writer, None);
    b.break_leases(Trigger::Write);
    assert!(holder_rx.try_recv().is_none(), "held back for the grant");
    drop(guard);
    let frame = holder_rx.try_recv().expect("break after the grant");
    let (hdr, body) = Smb2Header::parse(&frame).unwrap();
    assert_eq!(hdr.command, Command::OplockBreak);
    assert_eq!(hdr.message_id, u64::MAX);
    assert_eq!(hdr.session_id, 0);
    let notification = LeaseBreakNotification::parse(body).unwrap();
    assert_eq!(notification.lease_key, [1; 16]);
    assert_eq!(notification.flags, 0);
    assert_eq!(notification.current_lease_state, LeaseState::R.bits());
    assert_eq!(notification.new_lease_state, 0);
    assert_eq!(notification.new_epoch, 2);
    assert!(writer_rx.try_recv().is_none());

    // Broken to NONE, the lease breaks no further.
    b.break_leases(Trigger::Write);
    assert!(holder_rx.try_recv().is_none());
}

#[tokio::test]
async fn a_hold_on_an_ended_lease_leaves_its_successor_alone() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, mut rx) = connection();
    let plain = open(&s, 7, "f", &owner, None);
    let (first, _, first_guard) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    drop(first);
    let (_second, _, second_guard) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    plain.break_leases(Trigger::Write);
    drop(first_guard);
    assert!(rx.try_recv().is_none(), "still held for the second grant");
    drop(second_guard);
    assert!(rx.try_recv().is_some());
}

#[tokio::test]
async fn a_held_back_break_goes_to_the_connection_of_the_grant() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (first, mut first_rx) = connection();
    let (second, mut second_rx) = connection();
    let (_a, _, guard) = leased(&table, &s, 7, "f", &first, 1).unwrap();
    drop(guard);
    let (_b, _, guard) = leased(&table, &s, 7, "f", &second, 1).unwrap();
    let plain = open(&s, 7, "f", &first, None);
    plain.break_leases(Trigger::Write);
    drop(guard);
    assert!(second_rx.try_recv().is_some());
    assert!(first_rx.try_recv().is_none());
}

#[tokio::test]
async fn an_open_with_the_same_key_breaks_nothing() {
    let table = Arc::new(LeaseTable::default());
    let s = share().await;
    let (owner, mut rx) = connection();
    let (a, _, guard) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    drop(guard);
    let (b, _, guard) = leased(&table, &s, 7, "f", &owner, 1).unwrap();
    drop(guard);
    a.break_leases(Trigger::Write);
    b.break_leases(Trigger::Open { overwrite: true });
    assert!(rx.try_recv().is_none());
}

/// Opens file `index` as `name` holding the lease `n` with what `bits`
/// asks for, sharing everything.
fn lease_state(
    table: &Arc<LeaseTable>,
    share: &Arc<ShareBindings>,
    index: u64,
    name: &str,
    owner: &Arc<Outbound>,
    n: u8,
    bits: u32,
) -> FileRef {
    let lease_ref = table.acquire(id(n), share, Some(index)).unwrap();
    let mut file = open(share, index, name, owner, Some(id(n)));
    let (granted, _) = table.grant(lease_ref, &mut file, &req_state(n, bits), LeaseState::RWH).unwrap();
    assert_eq!(granted.state, LeaseState::requested(bits));
    file
}

fn durable_table() -> Arc<DurableTable> {
    Arc::new(DurableTable::new(Duration::from_secs(60), 8))
}

#[tokio::test]
async fn only_a_durable_open_whose_lease_quietly_caches_handles_is_kept() {
    let table = Arc::new(LeaseTable::default());
    let durable = durable_table();
    let s = share().await;
    let (holder, _rx) = connection();

    let plain = lease_state(&table, &s, 1, "a", &holder, 1, 3);
    assert!(!plain.try_detach(), "not durable");

    let read = lease_state(&table, &s, 2, "b", &holder, 2, 1);
    read.mark_durable(&durable, 2);
    assert!(!read.try_detach(), "no handle caching");

    let locked = lease_state(&table, &s, 3, "c", &holder, 3, 3);
    locked.lock_range((0, 10), true, 8, None).unwrap();
    locked.mark_durable(&durable, 3);
    assert!(!locked.try_detach(), "locks without write caching");

    let writing = lease_state(&table, &s, 4, "d", &holder, 4, 7);
    writing.lock_range((0, 10), true, 8, None).unwrap();
    writing.mark_durable(&durable, 4);
    assert!(writing.try_detach(), "locks under write caching");
    assert!(!writing.try_detach(), "kept once");

    let breaking = lease_state(&table, &s, 5, "e", &holder, 5, 3);
    breaking.mark_durable(&durable, 5);
    open(&s, 5, "e", &holder, None).break_leases(Trigger::Write);
    assert!(!breaking.try_detach(), "break in progress");
}

#[tokio::test]
async fn a_break_of_a_lease_only_kept_opens_hold_sends_nothing() {
    let table = Arc::new(LeaseTable::default());
    let durable = durable_table();
    let s = share().await;
    let (holder, mut rx) = connection();
    let held = hold_rh(&table, &s, &holder, 1);
    held.mark_durable(&durable, 1);
    assert!(held.try_detach());

    let refused = conflicting(&s, &holder);
    assert_eq!(refused.status, ntstatus::STATUS_SHARING_VIOLATION);
    assert!(refused.wait.is_some(), "the break completes once it closes");
    assert!(rx.try_recv().is_none());
    // Nothing more goes out while the break is in progress.
    let writer = open(&s, 7, "f", &holder, None);
    writer.break_leases(Trigger::Write);
    assert!(rx.try_recv().is_none());
    drop(writer);
    drop(held);
    assert!(!table.exists(id(1)));
}

#[tokio::test]
async fn a_break_of_a_lease_with_an_attached_holder_goes_to_it() {
    let table = Arc::new(LeaseTable::default());
    let durable = durable_table();
    let s = share().await;
    let (first, mut first_rx) = connection();
    let (second, mut second_rx) = connection();
    let kept = hold_rh(&table, &s, &first, 1);
    let _attached = hold_rh(&table, &s, &second, 1);
    kept.mark_durable(&durable, 1);
    assert!(kept.try_detach());
    assert!(conflicting(&s, &second).wait.is_some());
    assert!(first_rx.try_recv().is_none());
    let n = notification(&second_rx.try_recv().expect("break"));
    assert_eq!((n.current_lease_state, n.new_lease_state), (3, 1));
}

#[tokio::test]
async fn a_kept_open_comes_back_unless_a_break_doomed_it() {
    let table = Arc::new(LeaseTable::default());
    let durable = durable_table();
    let s = share().await;
    let (first, _first_rx) = connection();
    let (second, mut second_rx) = connection();

    let doomed = hold_rh(&table, &s, &first, 1);
    doomed.mark_durable(&durable, 1);
    assert!(doomed.try_detach());
    assert!(conflicting(&s, &second).wait.is_some());
    assert!(doomed.reattach(Notified::new(&second, None)).is_none());
    drop(doomed);

    let kept = hold_rh(&table, &s, &first, 2);
    kept.mark_durable(&durable, 2);
    assert!(kept.try_detach());
    let (granted, guard) = kept.reattach(Notified::new(&second, None)).unwrap();
    assert_eq!((granted.state, granted.breaking), (LeaseState::RH, false));
    // A break raised before the response is queued follows it.
    assert!(conflicting(&s, &second).wait.is_some());
    assert!(second_rx.try_recv().is_none(), "held back for the response");
    drop(guard);
    let n = notification(&second_rx.try_recv().expect("break after the response"));
    assert_eq!((n.current_lease_state, n.new_lease_state), (3, 1));
}

#[tokio::test]
async fn a_full_connection_is_killed_and_the_next_one_tried() {
    let s = share().await;
    let table = Arc::new(LeaseTable::default());
    let (first, _first_rx) = connection();
    let (second, mut second_rx) = connection();
    let (_a, _, guard) = leased(&table, &s, 7, "f", &first, 1).unwrap();
    drop(guard);
    let (_b, _, guard) = leased(&table, &s, 7, "f", &second, 1).unwrap();
    drop(guard);
    while first.try_send_notice(vec![0; 64 * 1024]).is_ok() {}
    let writer = open(&s, 7, "f", &second, None);
    writer.break_leases(Trigger::Write);
    assert!(second_rx.try_recv().is_some());
    let killed = first.killed();
    tokio::pin!(killed);
    let waker = std::task::Waker::noop();
    let mut cx = std::task::Context::from_waker(waker);
    assert!(killed.as_mut().poll(&mut cx).is_ready());
}
