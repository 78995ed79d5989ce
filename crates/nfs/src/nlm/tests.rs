//! The book of locks on a volume in memory, its clock in the test's hand.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use larder_files::locks::Range;
use larder_files::{Files, Open, Uses};

use super::super::handle;
use super::super::proto::Proc;
use super::super::tests::client::Server;
use super::life::first_life;
use super::lock_book::{Attempt, ClientKey, LockBook, LockedKey, Swept, Target, WantedLock};
use super::wire::LockStat;

const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

struct Fixture {
    _server: Server,
    files: Files,
    key: LockedKey,
    id: larder_fs::FileId,
}

impl Fixture {
    async fn new() -> Self {
        let server = Server::start().await;
        let mut client = server.mounted().await;
        let root = client.root.clone();
        let made = client.make(Proc::Create, &root, b"f", 0o644).await.unwrap();
        let (export, id) = handle::decode(&made).unwrap();
        let files = Files::alone(server.volume.clone()).for_door(77);
        Self { key: LockedKey { export, ino: id.ino }, files, id, _server: server }
    }

    fn target<'a>(&'a self, client: &'a ClientKey, process: u32) -> Target<'a> {
        Target { client, process, owner: b"owner", key: self.key, files: &self.files }
    }

    async fn open(&self) -> Option<Open> {
        Some(self.files.open_judged(self.id, Uses::READ).await.unwrap())
    }
}

fn client(name: &str) -> ClientKey {
    ClientKey { address: ONE, name: name.as_bytes().into() }
}

fn wanted(start: u64, last: u64) -> WantedLock {
    WantedLock { range: Range { start, last }, exclusive: true }
}

#[tokio::test]
async fn nothing_is_left_of_what_has_ended() {
    let fixture = Fixture::new().await;
    let (mut book, now, name) = (LockBook::default(), Instant::now(), client("one"));
    let (first, second) = (fixture.target(&name, 1), fixture.target(&name, 2));
    book.begin_call(ONE, now).unwrap();
    let lock = |book: &mut LockBook, target: &Target<'_>, open: &mut Option<Open>, start, last| {
        book.lock(target, wanted(start, last), Attempt::New, open)
    };
    lock(&mut book, &first, &mut fixture.open().await, 0, 9).unwrap();
    assert_eq!(lock(&mut book, &second, &mut fixture.open().await, 5, 20), Err(LockStat::Denied));
    assert_eq!(book.counts(), [1, 1, 0, 1], "who was refused has nothing");
    let (number, _, stop) = book.begin_wait(&second, wanted(5, 20), &mut fixture.open().await).unwrap();
    assert_eq!(book.counts(), [2, 1, 1, 1]);
    assert_eq!(book.find_wait(&second, wanted(5, 20)), Some((number, false)));
    assert_eq!(book.find_wait(&second, wanted(5, 21)), None);
    book.end_wait(number, true);
    assert!(stop.is_cancelled());
    assert_eq!(book.counts(), [1, 1, 0, 1]);
    assert_eq!(book.unlock(&first, Range { start: 3, last: 5 }), LockStat::Granted);
    assert_eq!(book.counts(), [1, 1, 0, 1], "the rest of it");
    assert_eq!(book.unlock(&first, Range { start: 0, last: u64::MAX }), LockStat::Granted);
    assert_eq!(book.counts(), [0; 4]);
    assert!(!fixture.files.table().0.others(fixture.id.ino, 1).is_open, "nor an open");

    lock(&mut book, &first, &mut fixture.open().await, 0, 9).unwrap();
    let (number, owner, _) = book.begin_wait(&second, wanted(0, 5), &mut fixture.open().await).unwrap();
    assert_eq!(book.free(ONE, b"two", 0), 1, "the only client of its address, whatever its name");
    assert!(!book.waits(number) && !fixture.files.has_locks(fixture.id.ino, owner));
    assert_eq!(book.counts(), [0; 4]);
}

#[tokio::test]
async fn a_name_means_its_client() {
    let fixture = Fixture::new().await;
    let (mut book, now) = (LockBook::default(), Instant::now());
    let names = [client("one"), client("two.home"), client("three")];
    book.begin_call(ONE, now).unwrap();
    for (at, name) in names.iter().enumerate() {
        let at = u64::try_from(at).unwrap();
        book.lock(&fixture.target(name, 1), wanted(at, at), Attempt::New, &mut fixture.open().await).unwrap();
        book.lives(name, 7);
    }
    assert_eq!(book.free(ONE, b"four", 9), 0, "one of several");
    assert_eq!(book.free(IpAddr::from([10, 0, 0, 2]), b"one", 9), 0, "another address");
    assert_eq!(book.free(ONE, b"one", 7), 0, "this life");
    assert_eq!(book.free(ONE, b"two.far", 9), 0, "another domain");
    assert_eq!(book.free(ONE, b"TWO", 9), 1);
    assert_eq!(book.free(ONE, b"one.home", 9), 1);
    assert_eq!(book.counts(), [1, 1, 0, 1]);
}

#[tokio::test]
async fn machines_are_forgotten_when_they_are_done() {
    let fixture = Fixture::new().await;
    let (mut book, now, name) = (LockBook::default(), Instant::now(), client("one"));
    let after = |secs| Instant::now() + Duration::from_secs(secs);
    book.begin_call(ONE, now).unwrap();
    book.is_recorded(ONE);
    let target = fixture.target(&name, 1);
    book.lock(&target, wanted(0, 9), Attempt::Reclaim, &mut fixture.open().await).unwrap();
    book.reclaimed(ONE, now);
    assert_eq!(book.sweep(after(100), |_| false), Swept::default(), "a call is under way");
    book.end_call(ONE, now);
    assert_eq!(book.sweep(now + Duration::from_secs(14), |_| false), Swept::default());
    let completed = Swept { completed: vec![ONE], idle: vec![] };
    assert_eq!(book.sweep(after(16), |_| false), completed, "it has taken back all that it had");
    assert_eq!(book.sweep(after(500), |_| false), Swept::default(), "and has it");
    book.unlock(&target, Range { start: 0, last: 9 });
    assert_eq!(book.sweep(after(50), |_| false), Swept::default());
    assert_eq!(book.sweep(after(70), |_| true), Swept::default(), "a volume waits for it");
    assert_eq!(book.sweep(after(70), |_| false), Swept { completed: vec![], idle: vec![ONE] });
    assert!(book.is_empty());
}

#[tokio::test]
async fn only_what_is_held_still_comes_back_after_grace() {
    let fixture = Fixture::new().await;
    let (mut book, name) = (LockBook::default(), client("one"));
    let target = fixture.target(&name, 1);
    book.begin_call(ONE, Instant::now()).unwrap();
    let try_again =
        |book: &mut LockBook, open: &mut Option<Open>| book.lock(&target, wanted(0, 9), Attempt::IfHeld, open);
    assert_eq!(try_again(&mut book, &mut fixture.open().await), Err(LockStat::DeniedGracePeriod));
    book.lock(&target, wanted(0, 9), Attempt::New, &mut fixture.open().await).unwrap();
    assert_eq!(try_again(&mut book, &mut fixture.open().await), Ok(()));
    book.keep_exports(|_, _, _| false);
    assert_eq!(book.counts(), [0; 4], "nor does anything of an export that is gone stay");
    assert!(!fixture.files.has_locks(fixture.id.ino, 1 << 63));
}

#[test]
fn each_life_is_odd() {
    let life = first_life();
    assert!(life % 2 == 1 && i32::try_from(life).is_ok());
}
