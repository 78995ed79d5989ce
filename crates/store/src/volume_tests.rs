//! Volumes in a bucket: durable, fenced, and silent when nobody uses them.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::log::MemLog;
use larder_base::{Seat, SystemClock};
use larder_fs::{CreateMode, Cred, Ino, NameMatch, SetAttr, Stability};
use larder_volume::{Backing, MemoryBudget, NoKeys, Properties, Registry, Space, Volume};

use object_store::memory::InMemory;
use object_store::path::Path;

use crate::server::Server;
use crate::{AfterLog, Bucket, BucketLog, JournaledLog, Local, Machine, Owner, TakeOver, tests};

pub(crate) struct Endless;

impl Space for Endless {
    fn space(&self) -> (u64, u64) {
        (1 << 50, 1 << 50)
    }
}

/// A daemon's view of the bucket: an owner of its own, and its volumes.
pub(crate) struct Machines {
    pub(crate) server: Arc<Server>,
    pub(crate) bucket: Bucket,
}

impl Machines {
    pub(crate) async fn new() -> Self {
        let (server, bucket) = tests::fresh().await;
        Self { server, bucket }
    }

    pub(crate) async fn registry(&self, name: &str) -> (Registry, Owner) {
        self.registry_at(name, &Seat::default()).await
    }

    pub(crate) async fn registry_at(&self, name: &str, seat: &Seat) -> (Registry, Owner) {
        let machine = Machine { name: name.to_owned(), id: name.to_owned() };
        let (store, url) = (Arc::clone(&self.bucket.store), &self.bucket.url);
        let owner = Owner::take_seat(store, url, seat, machine, TakeOver::Forced);
        let owner = owner.await.unwrap();
        owner.await_silence().await;
        let backing = Backing {
            store: Arc::clone(&self.bucket.store),
            log: Some(Arc::new(BucketLog::new(Arc::clone(&self.bucket.store), Some(owner.clone())))),
            space: Arc::new(Endless),
            clock: Arc::new(SystemClock::default()),
        };
        let budget = MemoryBudget { total_bytes: 64 << 20 };
        (Registry::open_seat(backing, budget, Arc::new(NoKeys), seat.clone()).await.unwrap(), owner)
    }

    pub(crate) async fn first(&self) -> (Registry, Volume) {
        let (registry, _) = self.registry("a").await;
        registry.create("v", Properties::default()).await.unwrap();
        let volume = registry.volume("v").await.unwrap();
        (registry, volume)
    }
}

pub(crate) async fn create(volume: &Volume, name: &str) -> larder_fs::FsResult<Ino> {
    let set = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    let made = volume.create(&Cred::root(), Ino::ROOT, name.as_bytes(), CreateMode::Guarded, set).await?;
    Ok(made.0.id.ino)
}

pub(crate) async fn lookup(volume: &Volume, name: &str) -> Option<Ino> {
    let found = volume.lookup(&Cred::root(), Ino::ROOT, name.as_bytes(), NameMatch::Exact).await.ok()?;
    Some(found.id.ino)
}

/// Data that no compression makes small, different for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) async fn write(volume: &Volume, ino: Ino, data: Vec<u8>, stability: Stability) -> larder_fs::FsResult<()> {
    volume.write(&Cred::root(), ino, 0, vec![Bytes::from(data)], stability).await.map(drop)
}

pub(crate) async fn read(volume: &Volume, ino: Ino) -> Vec<u8> {
    volume.read(ino, 0, 1 << 20).await.unwrap().chunks.concat()
}

async fn check(registry: &Registry) {
    assert_eq!(registry.check("v", true).await.unwrap().problems, Vec::<String>::new());
}

/// Files, a snapshot and a reopening, while requests fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_lives_in_a_bucket_that_fails_now_and_then() {
    let machines = Machines::new().await;
    for (name, value) in [("seed", "3"), ("slow_down", "20"), ("cut_before", "20"), ("cut_after", "20"), ("half", "20")]
    {
        machines.server.set_fault(name, value);
    }
    let (registry, volume) = machines.first().await;
    for n in 0..20u64 {
        let ino = create(&volume, &format!("f{n}")).await.unwrap();
        write(&volume, ino, noise(n, 200_000), Stability::Unstable).await.unwrap();
        if n % 4 == 0 {
            volume.commit(ino).await.unwrap();
        }
    }
    volume.snapshot("monday").await.unwrap();
    let ino = lookup(&volume, "f3").await.unwrap();
    write(&volume, ino, noise(99, 200_000), Stability::FileSync).await.unwrap();
    volume.sync().await.unwrap();
    drop(volume);
    registry.close().await.unwrap();
    let (registry, _) = machines.registry("a").await;
    let volume = registry.volume("v").await.unwrap();
    for n in 0..20u64 {
        let ino = lookup(&volume, &format!("f{n}")).await.unwrap();
        assert_eq!(read(&volume, ino).await, noise(if n == 3 { 99 } else { n }, 200_000), "file {n}");
    }
    assert_eq!(volume.snapshots().len(), 1);
    check(&registry).await;
}

/// Everything there is, durable, while the bucket is as `break_it` makes it for some seconds: writers wait, and nothing is lost.
async fn outlasts(break_it: impl Fn(&Server), mend_it: impl Fn(&Server), told: &str) {
    let machines = Machines::new().await;
    let (registry, volume) = machines.first().await;
    let before = create(&volume, "before").await.unwrap();
    write(&volume, before, noise(1, 300_000), Stability::FileSync).await.unwrap();
    break_it(&machines.server);
    let writer = volume.clone();
    let waiting = tokio::spawn(async move {
        let during = create(&writer, "during").await?;
        write(&writer, during, noise(2, 300_000), Stability::Unstable).await?;
        writer.commit(during).await
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while !machines.bucket.health.trouble().is_some_and(|trouble| trouble.why.contains(told)) {
        assert!(Instant::now() < deadline, "{:?}", machines.bucket.health.trouble());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished(), "nothing is acknowledged, nor refused, that may still be done");
    mend_it(&machines.server);
    waiting.await.unwrap().unwrap();
    volume.sync().await.unwrap();
    assert!(machines.bucket.health.trouble().is_none());
    drop(volume);
    registry.close().await.unwrap();
    let (registry, _) = machines.registry("a").await;
    let volume = registry.volume("v").await.unwrap();
    for (seed, name) in [(1, "before"), (2, "during")] {
        let ino = lookup(&volume, name).await.unwrap();
        assert_eq!(read(&volume, ino).await, noise(seed, 300_000), "{name}");
    }
    check(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_expire_and_are_renewed() {
    outlasts(|server| server.set_fault("expired", "1"), |server| server.set_fault("expired", "0"), "ExpiredToken")
        .await;
}

/// As Ceph, MinIO's quotas and MinIO's disks say it.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_full_for_a_while() {
    for status in ["403", "400", "507"] {
        outlasts(|server| server.set_fault("full", status), |server| server.set_fault("full", "0"), "QuotaExceeded")
            .await;
    }
}

/// Connections that are reset while a body is sent: 64 MiB of segments, and log entries between them.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_are_reset() {
    let machines = Machines::new().await;
    let (registry, volume) = machines.first().await;
    for (name, value) in [("seed", "11"), ("cut_body", "200")] {
        machines.server.set_fault(name, value);
    }
    for n in 0..16u64 {
        let ino = create(&volume, &format!("f{n}")).await.unwrap();
        write(&volume, ino, noise(n, 4 << 20), Stability::Unstable).await.unwrap();
        volume.commit(ino).await.unwrap();
    }
    volume.sync().await.unwrap();
    assert!(machines.bucket.requests.repeated.get() > 3, "the faults were there");
    drop(volume);
    registry.close().await.unwrap();
    let (registry, _) = machines.registry("a").await;
    let volume = registry.volume("v").await.unwrap();
    for n in 0..16u64 {
        let ino = lookup(&volume, &format!("f{n}")).await.unwrap();
        assert_eq!(read(&volume, ino).await, noise(n, 4 << 20)[..1 << 20], "file {n}");
    }
    check(&registry).await;
}

/// Bytes that change on their way are noticed and asked for again: nobody is given them, and nobody is refused for them.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_change_on_their_way() {
    let machines = Machines::new().await;
    let (registry, volume) = machines.first().await;
    for n in 0..40u64 {
        let ino = create(&volume, &format!("f{n}")).await.unwrap();
        write(&volume, ino, noise(n, 300_000), Stability::FileSync).await.unwrap();
    }
    volume.sync().await.unwrap();
    drop(volume);
    registry.close().await.unwrap();
    for (name, value) in [("seed", "5"), ("flip", "50")] {
        machines.server.set_fault(name, value);
    }
    for _ in 0..4 {
        let (registry, _) = machines.registry("a").await;
        let volume = registry.volume("v").await.unwrap();
        for n in 0..40u64 {
            let ino = lookup(&volume, &format!("f{n}")).await.unwrap();
            assert_eq!(read(&volume, ino).await, noise(n, 300_000), "file {n}");
        }
        drop(volume);
        registry.close().await.unwrap();
    }
    assert!(machines.server.flipped.load(Ordering::Relaxed) > 0, "the faults were there");
    machines.server.set_fault("flip", "0");
    let (registry, _) = machines.registry("a").await;
    check(&registry).await;
}

/// An owner is overtaken under load. What it acknowledged is there; from then on it acknowledges nothing; its segments that arrive
/// late harm nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_lost_its_store_acknowledges_nothing_and_harms_nothing() {
    let machines = Machines::new().await;
    let (_old_registry, old) = machines.first().await;
    let overtaken = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for w in 0..4u64 {
        let (old, overtaken) = (old.clone(), Arc::clone(&overtaken));
        writers.push(tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0..10_000u64 {
                let begun_late = overtaken.load(Ordering::Acquire);
                let name = format!("w{w}-{n}");
                let done = async {
                    let ino = create(&old, &name).await?;
                    write(&old, ino, noise(w * 100_000 + n, 3000), Stability::FileSync).await
                };
                match done.await {
                    Ok(()) => acknowledged.push((w * 100_000 + n, name)),
                    Err(_) => break,
                }
                assert!(!begun_late, "an owner that lost its store acknowledged something");
            }
            acknowledged
        }));
    }
    while machines.server.keys().len() < 40 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Its next segments hang on their way.
    machines.server.hold("/seg/");
    let big = create(&old, "big").await.unwrap();
    write(&old, big, noise(7, 900_000), Stability::Unstable).await.unwrap();
    let sync = old.clone();
    let syncing = tokio::spawn(async move { sync.sync().await });
    while machines.server.held() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    machines.server.hold("nothing");
    let (registry, owner) = machines.registry("b").await;
    let new = registry.volume("v").await.unwrap();
    overtaken.store(true, Ordering::Release);
    let mut count = 0;
    for writer in writers {
        for (seed, name) in writer.await.unwrap() {
            let ino = lookup(&new, &name).await;
            let ino = ino.unwrap_or_else(|| panic!("{name} was acknowledged and is not there"));
            assert_eq!(read(&new, ino).await, noise(seed, 3000), "{name}");
            count += 1;
        }
    }
    assert!(count > 0, "there was load");
    let fresh = create(&new, "of the new owner").await.unwrap();
    write(&new, fresh, noise(8, 900_000), Stability::Unstable).await.unwrap();
    new.sync().await.unwrap();
    // The old owner's requests arrive now, and what it does then.
    machines.server.let_go();
    assert!(syncing.await.unwrap().is_err(), "a sync of the old owner succeeded");
    assert!(create(&old, "never").await.is_err());
    owner.verify().await.unwrap();
    write(&new, fresh, noise(9, 900_000), Stability::FileSync).await.unwrap();
    drop(new);
    registry.close().await.unwrap();
    let (registry, _) = machines.registry("c").await;
    let volume = registry.volume("v").await.unwrap();
    let ino = lookup(&volume, "of the new owner").await.unwrap();
    assert_eq!(read(&volume, ino).await, noise(9, 900_000));
    assert!(lookup(&volume, "never").await.is_none());
    check(&registry).await;
}

/// Two openings never give one number to two segments, also when nothing of the first is left.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_segments_are_an_openings_own() {
    let machines = Machines::new().await;
    let (registry, volume) = machines.first().await;
    let mut seen = std::collections::BTreeSet::new();
    let mut open = Some((registry, volume));
    for round in 0..3u64 {
        let (registry, volume) = match open.take() {
            Some(open) => open,
            None => {
                let (registry, _) = machines.registry("a").await;
                let volume = registry.volume("v").await.unwrap();
                (registry, volume)
            }
        };
        let ino = create(&volume, "f").await.unwrap();
        write(&volume, ino, noise(round, 500_000), Stability::Unstable).await.unwrap();
        volume.sync().await.unwrap();
        let segments: Vec<String> = machines.server.keys().into_iter().filter(|key| key.contains("/seg/")).collect();
        assert!(segments.iter().any(|segment| seen.insert(segment.clone())), "round {round} has a number of its own");
        volume.unlink(&Cred::root(), Ino::ROOT, b"f").await.unwrap();
        volume.sync().await.unwrap();
        drop(volume);
        registry.close().await.unwrap();
    }
}

/// 32 clients together wait for about as long as one, at 20 ms to the store.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_share_their_round_trips() {
    let machines = Machines::new().await;
    let (_registry, volume) = machines.first().await;
    machines.server.faults.latency_ms.store(20, Ordering::Relaxed);
    let begun = Instant::now();
    for n in 0..5 {
        create(&volume, &format!("alone{n}")).await.unwrap();
    }
    let alone = begun.elapsed() / 5;
    let before = machines.server.requests();
    let begun = Instant::now();
    let tasks = (0..32).map(|client| {
        let volume = volume.clone();
        tokio::spawn(async move {
            for n in 0..5 {
                create(&volume, &format!("c{client}-{n}")).await.unwrap();
            }
        })
    });
    futures::future::try_join_all(tasks).await.unwrap();
    let (together, requests) = (begun.elapsed() / 5, machines.server.requests() - before);
    assert!(together < alone * 3, "one of 32 waited {together:?} where one alone waits {alone:?}");
    assert!(requests < 120, "160 creates took {requests} requests");
}

/// `larder up` on a bucket that nobody uses costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_volume_asks_nothing_of_the_store() {
    let machines = Machines::new().await;
    let (_registry, volume) = machines.first().await;
    for n in 0..50u64 {
        let ino = create(&volume, &format!("f{n}")).await.unwrap();
        write(&volume, ino, noise(n, 10_000), Stability::Unstable).await.unwrap();
    }
    volume.sync().await.unwrap();
    let (deadline, quiet) = (Instant::now() + Duration::from_secs(60), Duration::from_secs(10));
    let (mut requests, mut since) = (machines.server.requests(), Instant::now());
    while since.elapsed() < quiet {
        assert!(Instant::now() < deadline, "the volume does not come to rest: {:?}", machines.server.counts());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = machines.server.requests();
        if now != requests {
            (requests, since) = (now, Instant::now());
        }
    }
}

/// What a machine that is lost has left in the bucket is an earlier moment, whole, wherever it was in its work: its journal had more,
/// and tables, segments and deletions never went ahead of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_journal_the_bucket_is_an_earlier_moment() {
    let behind = futures::future::join_all((0..6).map(lose_a_journal)).await;
    assert!(behind.iter().sum::<u64>() > 20, "the journals were ahead of the bucket: by {behind:?}");
}

/// By how many files the journal was ahead.
async fn lose_a_journal(round: u64) -> u64 {
    let (server, url) = Server::start().await.unwrap();
    server.set_fault("latency_ms", "4");
    let newest = Arc::new(AtomicU64::new(0));
    let lost = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (of_lost, counted) = (url.clone(), Arc::clone(&newest));
    let (lose, lost_now) = tokio::sync::oneshot::channel::<()>();
    let machine = std::thread::spawn(move || {
        lost.block_on(async {
            tokio::select! {
                () = work_from_a_journal(of_lost, counted) => {}
                _ = lost_now => {}
            }
        });
        lost.shutdown_background();
    });
    while newest.load(Ordering::Acquire) < 20 + round * 17 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if round % 2 == 1 {
        server.hold("log/");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let acknowledged = newest.load(Ordering::Acquire);
    drop(lose);
    tokio::task::spawn_blocking(move || machine.join()).await.unwrap().unwrap();
    // What is held never arrives.
    server.hold("nothing");
    let machines = Machines { server, bucket: tests::bucket(&url) };
    let (registry, _) = machines.registry("b").await;
    let volume = registry.volume("v").await.unwrap();
    let listing = volume.readdir(&Cred::root(), Ino::ROOT, 0, 10_000, false).await.unwrap();
    let mut there: Vec<u64> = listing
        .entries
        .iter()
        .filter_map(|entry| std::str::from_utf8(&entry.name).ok()?.strip_prefix('w')?.parse().ok())
        .collect();
    there.sort_unstable();
    let (first, last) = (there[0], there[there.len() - 1]);
    assert_eq!(there, (first..=last).collect::<Vec<_>>(), "one change after the other");
    assert!(last + 1 - first <= KEPT + 2, "{there:?}");
    for n in first..last {
        let ino = lookup(&volume, &format!("w{n}")).await.unwrap();
        assert_eq!(read(&volume, ino).await, noise(n, length(n)), "file {n} of {first} to {last}");
    }
    write(&volume, lookup(&volume, &format!("w{last}")).await.unwrap(), noise(1, 300_000), Stability::FileSync)
        .await
        .unwrap();
    drop(volume);
    check(&registry).await;
    acknowledged.saturating_sub(last)
}

const KEPT: u64 = 12;

fn is_immutable(path: &Path) -> bool {
    path.as_ref().contains("/seg/") || path.as_ref().ends_with(".sst")
}

fn length(n: u64) -> usize {
    if n.is_multiple_of(3) { 200_000 } else { 2000 }
}

/// A machine that answers from a journal: it makes files and removes those of before, until it is lost.
async fn work_from_a_journal(url: String, newest: Arc<AtomicU64>) {
    let bucket = tests::bucket(&url);
    let machine = Machine { name: "a".to_owned(), id: "a".to_owned() };
    let owner = Owner::take(Arc::clone(&bucket.store), &bucket.url, machine, TakeOver::No).await.unwrap();
    let local = Local::new(&bucket.url.to_string(), Arc::new(MemLog::default()), Arc::new(InMemory::new()));
    let log = BucketLog::new(Arc::clone(&bucket.store), Some(owner.clone()));
    let log = JournaledLog::recover(log, local).await.unwrap();
    owner.settle_journal(Some(crate::standby_tests::teller(&log))).await.unwrap();
    let backing = Backing {
        store: Arc::new(AfterLog::new(Arc::clone(&bucket.store), log.barrier(), is_immutable)),
        log: Some(Arc::new(log)),
        space: Arc::new(Endless),
        clock: Arc::new(SystemClock::default()),
    };
    let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
    registry.create("v", Properties::default()).await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    for n in 1.. {
        let ino = create(&volume, &format!("w{n}")).await.unwrap();
        write(&volume, ino, noise(n, length(n)), Stability::FileSync).await.unwrap();
        newest.store(n, Ordering::Release);
        if n % 25 == 0 {
            volume.snapshot(&format!("s{n}")).await.unwrap();
        }
        if n > KEPT {
            volume.unlink(&Cred::root(), Ino::ROOT, format!("w{}", n - KEPT).as_bytes()).await.unwrap();
        }
    }
}
