#![allow(clippy::unwrap_used, clippy::panic)]
use std::net::Ipv4Addr;

use larder_fs::Ino;
use larder_opens::{Caches, Refused, Uses};
use tokio::sync::Semaphore;

use super::super::super::handle::HANDLE_BYTES;
use super::super::super::tests::client::Server;
use super::super::clients::{Asking, Principal};
use super::super::delegation::Delegated;
use super::super::ops::{ExchangeIdArgs, ProtectAsked};
use super::super::types::ClientOwner;
use super::super::wire::Opaque;
use super::*;

const ME: Principal = Principal { flavor: 1, uid: 0, gid: 0 };

/// A client of sessions that has said that it reclaims nothing, or has not.
fn client(v4: &NfsV4, name: &str, has_completed: bool) -> ClientId {
    let owner = ClientOwner { verifier: [1; 8], id: Opaque(name.as_bytes()) };
    let args = ExchangeIdArgs { owner, flags: 0, protect: ProtectAsked::None(()), implementation: None };
    let mut state = v4.lock();
    let state = &mut *state;
    let asking = Asking { principal: ME, address: Ipv4Addr::LOCALHOST.into(), now: v4.now() };
    let client = state.clients.exchange_id(&args, asking, &state.states, &mut state.chance).unwrap().value.client;
    if has_completed {
        state.clients.reclaim_complete(client).unwrap();
        let owner = state.clients.owner_key(client).unwrap();
        state.completed(&owner, v4.now());
    }
    client
}

fn gated() -> (Arc<NfsV4>, Arc<Semaphore>, Arc<AtomicUsize>) {
    let (gate, writes) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
    let mut v4 = NfsV4::new(None);
    v4.folders_book = Arc::new(Book {
        id: FOLDERS_BOOK,
        of: [0; 16],
        scope: None,
        store: BookStore::gated(Arc::clone(&gate), Arc::clone(&writes)),
        is_loaded: OnceCell::new_with(Some(())),
        writing: tokio::sync::Mutex::default(),
    });
    (Arc::new(v4), gate, writes)
}

/// `server.lock_waits_for_nobody`, `server.records_in_groups`
#[tokio::test]
async fn many_clients_are_few_writes_and_hold_no_lock() {
    const CLIENTS: usize = 200;
    let (v4, gate, writes) = gated();
    let volume = Arc::new(KnownVolume { number: 1, book: Arc::clone(&v4.folders_book) });
    let record = |at: usize| {
        let (v4, volume) = (Arc::clone(&v4), Arc::clone(&volume));
        let client = client(&v4, &at.to_string(), true);
        tokio::spawn(async move { v4.record(client, &volume).await })
    };
    let first = record(0);
    while v4.folders_book.writing.try_lock().is_ok() {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (1..CLIENTS).map(record).collect();
    for _ in 0..50 {
        tokio::task::yield_now().await;
        assert!(v4.state.try_lock().is_some(), "the disk is waited for without the lock");
    }
    assert!(!first.is_finished() && others.iter().all(|other| !other.is_finished()), "nothing is durable yet");
    gate.add_permits(CLIENTS);
    assert_eq!(first.await.unwrap(), Ok(()));
    for other in others {
        assert_eq!(other.await.unwrap(), Ok(()));
    }
    assert_eq!(writes.load(Relaxed), 2, "one for the first, one for all who came meanwhile");
}

/// A request whose connection ends leaves its write to the others.
#[tokio::test]
async fn a_write_goes_on_without_whoever_began_it() {
    let (v4, gate, writes) = gated();
    let volume = KnownVolume { number: 1, book: Arc::clone(&v4.folders_book) };
    let one = client(&v4, "one", true);
    let begun = tokio::time::timeout(Duration::from_millis(20), v4.record(one, &volume)).await;
    assert!(begun.is_err());
    gate.add_permits(9);
    assert_eq!(v4.record(one, &volume).await, Ok(()));
    assert_eq!(writes.load(Relaxed), 1);
}

#[tokio::test]
async fn the_clients_of_a_volume_go_where_it_goes() {
    let server = Server::start().await;
    let files = Files::alone(server.volume.clone());
    let book_of = |v4: &Arc<NfsV4>| {
        let (v4, files) = (Arc::clone(v4), files.clone());
        async move { v4.volume(&files).await.unwrap() }
    };
    let first = Arc::new(NfsV4::new(None));
    first.set_exports([&files].into_iter(), |_, _| true);
    let volume = book_of(&first).await;
    assert!(!first.is_in_grace(volume.number), "nobody had anything");
    let one = client(&first, "one", true);
    first.record(one, &volume).await.unwrap();
    assert!(first.lock().is_recorded(one, volume.book()));
    // Another machine, by whatever way the volume came to it.
    let second = Arc::new(NfsV4::new(None));
    second.set_exports([&files].into_iter(), |_, _| true);
    let volume = book_of(&second).await;
    assert!(second.is_in_grace(volume.number));
    let (back, new) = (client(&second, "one", false), client(&second, "new", true));
    let may = |client, reclaim| second.lock().may_take(client, volume.book(), reclaim);
    assert_eq!((may(back, true), may(back, false)), (Ok(()), Err(NfsStat::Grace)));
    assert_eq!((may(new, true), may(new, false)), (Err(NfsStat::NoGrace), Err(NfsStat::Grace)));
    second.record(back, &volume).await.unwrap();
    {
        let mut state = second.lock();
        state.clients.reclaim_complete(back).unwrap();
        let owner = state.clients.owner_key(back).unwrap();
        state.completed(&owner, second.now());
    }
    second.settle().await.unwrap();
    assert_eq!((may(back, true), may(back, false), may(new, false)), (Err(NfsStat::NoGrace), Ok(()), Ok(())));
    // A clone has its rows and is another volume.
    let of_another = BookStore::of_volume(files.clone()).load([9; 16], None).await;
    assert_eq!(of_another, (ReclaimBook::default(), false));
    // Until the volume is no longer exported.
    second.set_exports(std::iter::empty(), |_, _| false);
    assert!(second.volume(&files).await.is_err() && !second.is_in_grace(volume.number));
}

/// `opens.reclaimed_first`
#[tokio::test]
async fn other_doors_deny_nothing_before_grace_is_over() {
    let server = Server::start().await;
    let files = Files::alone(server.volume.clone());
    let (table, door) = files.table();
    let smb = table.enter_idle(Ino::ROOT, door + 1);
    let denies = || smb.claim(Uses::READ, Uses::WRITE, true);
    let first = Arc::new(NfsV4::new(None));
    first.set_exports([&files].into_iter(), |_, _| true);
    let volume = first.volume(&files).await.unwrap();
    first.record(client(&first, "one", true), &volume).await.unwrap();
    assert_eq!(denies(), Ok(()), "nobody had anything");
    smb.end();
    for is_still_exported in [true, false] {
        let next = Arc::new(NfsV4::new(None));
        next.set_exports([&files].into_iter(), |_, _| true);
        let volume = next.volume(&files).await.unwrap();
        assert_eq!(denies(), Err(Refused::ByOthers));
        let waiter = table.waiter_for_ranges(Ino::ROOT);
        if is_still_exported {
            let back = client(&next, "one", false);
            next.record(back, &volume).await.unwrap();
            assert_eq!(denies(), Err(Refused::ByOthers), "it may have had more");
            let owner = next.lock().clients.owner_key(back).unwrap();
            next.lock().completed(&owner, next.now());
            next.settle().await.unwrap();
        } else {
            next.set_exports(std::iter::empty(), |_, _| false);
        }
        assert!(waiter.has_changed(), "whoever waits tries again");
        assert_eq!(denies(), Ok(()));
        smb.end();
    }
}

/// `clients.courtesy_keeps`: one that was silent for a lease holds up no removal at another door.
#[tokio::test]
async fn a_silent_client_loses_its_delegation_to_another_door_at_once() {
    let server = Server::start().await;
    let files = Files::alone(server.volume.clone());
    let (table, door) = files.table();
    for is_silent in [false, true] {
        let mut v4 = NfsV4::new(None);
        let one = client(&v4, "one", true);
        if is_silent {
            v4.began -= LEASE;
        }
        let v4 = Arc::new(v4);
        v4.set_exports([&files].into_iter(), |_, _| true);
        v4.volume(&files).await.unwrap();
        let root = files.getattr(Ino::ROOT).await.unwrap().id;
        let (entry, inode) = files.open_judged(root, Uses::READ).await.unwrap().into_parts();
        let held = HeldOpen {
            _inode: inode,
            uid: 0,
            address: Ipv4Addr::LOCALHOST.into(),
            name: None,
            handle: [0; HANDLE_BYTES],
            granted: None,
        };
        v4.will_hold(&files);
        let file = v4.lock().exported.key(&files, Ino::ROOT).unwrap();
        v4.lock().states.delegate(one, file, Delegated::Write, v4.now(), (entry, held)).unwrap();
        assert_eq!(table.ask_back(door + 1, Ino::ROOT, Caches::HANDLES), !is_silent);
        assert_eq!(v4.lock().states.is_recalling(), !is_silent, "the other is asked");
        v4.set_exports(std::iter::empty(), |_, _| false);
        assert!(!table.ask_back(door + 1, Ino::ROOT, Caches::HANDLES), "nothing is left of it");
    }
}

/// `server.own_record_awaits_nobody`
#[tokio::test]
async fn a_volume_that_comes_back_in_one_life_awaits_nobody() {
    let server = Server::start().await;
    let files = Files::alone(server.volume.clone());
    let of = files.handle_id().into_bytes();
    let v4 = Arc::new(NfsV4::new(None));
    let come_back = async |v4: &Arc<NfsV4>| {
        v4.set_exports(std::iter::empty(), |_, _| false);
        v4.set_exports([&files].into_iter(), |_, _| true);
        let volume = v4.volume(&files).await.unwrap();
        v4.settle().await.unwrap();
        volume
    };
    let volume = come_back(&v4).await;
    // As one of NFSv4.0, which never says that it reclaims nothing.
    let one = client(&v4, "one", false);
    v4.record(one, &volume).await.unwrap();
    for _ in 0..2 {
        let volume = come_back(&v4).await;
        assert!(!v4.is_in_grace(volume.number), "nobody else had it");
        assert_eq!(v4.lock().may_take(one, volume.book(), true), Err(NfsStat::NoGrace));
    }
    let volume = come_back(&v4).await;
    let two = client(&v4, "two", true);
    v4.record(two, &volume).await.unwrap();
    let kept = BookStore::of_volume(files.clone()).load(of, None).await.0;
    assert_eq!(kept.names.len(), 1, "the others have nothing any more");
    // A client of NFS v3 hears of it by a restart alone.
    v4.record_locker(Ipv4Addr::LOCALHOST.into(), &volume).await.unwrap();
    let volume = come_back(&v4).await;
    assert!(v4.is_in_grace(volume.number) && v4.may_reclaim_locks(Ipv4Addr::LOCALHOST.into(), &volume));
    assert_eq!(v4.lock().may_take(two, volume.book(), true), Err(NfsStat::NoGrace));
    let volume = come_back(&v4).await;
    assert!(v4.is_in_grace(volume.number), "it was in grace");
    v4.locker_completed(Ipv4Addr::LOCALHOST.into());
    v4.settle().await.unwrap();
    // Another machine had it, and wrote or did not.
    v4.record(one, &volume).await.unwrap();
    v4.gone_elsewhere(of);
    let volume = come_back(&v4).await;
    assert!(v4.is_in_grace(volume.number));
    assert_eq!(v4.lock().may_take(one, volume.book(), true), Ok(()));
    let other = Arc::new(NfsV4::new(None));
    let volume = come_back(&other).await;
    assert!(other.is_in_grace(volume.number), "as after a restart");
    other.record(client(&other, "three", false), &volume).await.unwrap();
    let volume = come_back(&v4).await;
    assert!(v4.is_in_grace(volume.number), "another life wrote");
}

#[tokio::test]
async fn a_volume_without_a_record_has_that_of_an_older_larder() {
    let server = Server::start().await;
    let files = Files::alone(server.volume.clone());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nfs4-clients");
    let body = format!("larder nfs4 clients 1\nserver {}\nepoch 3\nclient 3 sessions {}\n", "6f".repeat(16), "6f6e65");
    let sum = larder_base::checksum::checksum(0x6e66_7334_626f_6f6b, body.as_bytes());
    std::fs::write(&path, format!("{body}checksum {sum:016x}\n")).unwrap();
    let v4 = Arc::new(NfsV4::new(Some(&path)));
    assert_eq!(v4.scope(), [0x6f; 16], "clients know the server by it");
    v4.set_exports([&files].into_iter(), |_, _| true);
    let volume = v4.volume(&files).await.unwrap();
    let one = client(&v4, "one", false);
    assert_eq!(v4.lock().may_take(one, volume.book(), true), Ok(()));
    v4.settle().await.unwrap();
    let kept = BookStore::of_volume(files.clone()).load(files.handle_id().into_bytes(), None).await;
    assert_eq!(kept.0.names.len(), 1, "it is in the volume from now on");
}
