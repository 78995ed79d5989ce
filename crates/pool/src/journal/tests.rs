//! The journal: torn tails, lost and differing copies, a ring that goes round.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use larder_base::log::LogError;
use object_store::ObjectStoreExt;

use crate::testing::{Bench, noise};
use crate::{Layout, Pool};

fn payload(id: u64) -> Bytes {
    noise(id, 100 + (id as usize * 37) % 3000).into()
}

async fn append(pool: &Pool, stream: &str, ids: std::ops::RangeInclusive<u64>) {
    for id in ids {
        let bytes = payload(id);
        let half = bytes.len() / 2;
        pool.log().append(stream, id, vec![bytes.slice(..half), bytes.slice(half..)]).await.unwrap();
    }
}

async fn expect(pool: &Pool, stream: &str, ids: std::ops::RangeInclusive<u64>) {
    let got = pool.log().replay(stream, ids.start() - 1).await.unwrap();
    assert_eq!(got.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids.collect::<Vec<_>>());
    assert!(got.iter().all(|entry| entry.payload == payload(entry.id)));
}

fn segments(bench: &Bench, disk: usize) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(bench.disks[disk].join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The end of the last batch in a segment file.
fn used_bytes(file: &PathBuf) -> usize {
    let bytes = std::fs::read(file).unwrap();
    bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_come_back_in_order_whatever_one_disk_lost() {
    for damage in ["none", "flipped", "cut", "gone", "empty"] {
        let bench = Bench::new(3);
        let pool = bench.create(Layout::Raidz1).await;
        append(&pool, "a", 1..=40).await;
        append(&pool, "b", 5..=9).await;
        pool.log().trim("a", 10).await.unwrap();
        let error = pool.log().append("a", 40, vec![]).await.unwrap_err();
        assert!(matches!(error, LogError::OutOfOrder { last: 40, .. }));
        pool.close().await.unwrap();
        for file in segments(&bench, 0) {
            let mut bytes = std::fs::read(&file).unwrap();
            match damage {
                "flipped" => (100..bytes.len()).step_by(3001).for_each(|at| bytes[at] ^= 1),
                "cut" => bytes.truncate(bytes.len() / 3),
                "gone" => bytes.clear(),
                _ => {}
            }
            std::fs::write(&file, bytes).unwrap();
        }
        if damage == "empty" {
            std::fs::remove_dir_all(&bench.disks[0]).unwrap();
        }
        let pool = bench.open().await;
        expect(&pool, "a", 11..=40).await;
        expect(&pool, "b", 5..=9).await;
        append(&pool, "a", 41..=45).await;
        pool.close().await.unwrap();
        // The copies are equal again: the other disk may go now.
        if damage != "empty" {
            std::fs::remove_dir_all(&bench.disks[1]).unwrap();
            let pool = bench.open().await;
            expect(&pool, "a", 11..=45).await;
            pool.close().await.unwrap();
        }
    }
}

/// Copies on one filesystem are flushed together, if they can be written past the cache; otherwise each for itself.
#[tokio::test(flavor = "multi_thread")]
async fn each_copy_is_whole_however_it_was_written() {
    for no_direct in [false, true] {
        let bench = Bench::new(4);
        let pool = bench.create(Layout::Raidz2).await;
        (0..4).for_each(|disk| bench.faults(disk).no_direct.store(no_direct, SeqCst));
        append(&pool, "a", 1..=1).await;
        let syncs = || (0..4).map(|disk| bench.faults(disk).syncs.load(SeqCst)).sum::<u64>();
        let before = syncs();
        append(&pool, "a", 2..=20).await;
        // The next segment is made ready meanwhile, with a sync for each copy.
        let copies = if no_direct { 3 } else { 1 };
        assert!((19 * copies..=19 * 3 + 3).contains(&(syncs() - before)), "{} syncs", syncs() - before);
        // A copy that fails is replaced, whoever would have flushed for it.
        bench.faults(0).write_error.store(true, SeqCst);
        append(&pool, "a", 21..=40).await;
        bench.faults(0).write_error.store(false, SeqCst);
        pool.close().await.unwrap();
        let used = |disk: usize| std::fs::read(&segments(&bench, disk)[0]).unwrap();
        assert!(used(1) == used(2) && used(1) == used(3), "without direct I/O: {no_direct}");
        let pool = bench.open().await;
        expect(&pool, "a", 1..=40).await;
        pool.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_is_cut_and_a_hole_is_damage() {
    let bench = Bench::new(1);
    let pool = bench.create(Layout::Stripe).await;
    append(&pool, "a", 1..=20).await;
    pool.close().await.unwrap();
    let file = segments(&bench, 0)[0].clone();
    let whole = std::fs::read(&file).unwrap();
    // Torn: the last batch is incomplete. Entries before it are there, and the log goes on.
    let mut torn = whole.clone();
    let end = used_bytes(&file);
    torn[end - 50..end].fill(0);
    std::fs::write(&file, &torn).unwrap();
    let pool = bench.open().await;
    expect(&pool, "a", 1..=19).await;
    append(&pool, "a", 20..=25).await;
    pool.close().await.unwrap();
    let pool = bench.open().await;
    expect(&pool, "a", 1..=25).await;
    pool.close().await.unwrap();
    // A hole in the middle is no torn tail.
    let mut holed = std::fs::read(&file).unwrap();
    let middle = end / 2 / 4096 * 4096;
    holed[middle..middle + 4096].fill(0xee);
    std::fs::write(&file, &holed).unwrap();
    let pool = bench.open().await;
    let error = pool.log().replay("a", 0).await.unwrap_err();
    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ring_goes_round_and_fills_up() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    let big = Bytes::from(noise(1, 100_000));
    let log = pool.log();
    append(&pool, "old", 1..=3).await;
    // Ten times its size, trimmed as it goes.
    for id in 1..=400u64 {
        log.append("ring", id, vec![big.clone()]).await.unwrap();
        log.trim("ring", id.saturating_sub(3)).await.unwrap();
    }
    let (used, total) = log.usage();
    assert!(used <= total, "{used} of {total}");
    expect(&pool, "old", 1..=3).await;
    pool.close().await.unwrap();
    let pool = bench.open().await;
    let log = pool.log();
    expect(&pool, "old", 1..=3).await;
    let kept = log.replay("ring", 397).await.unwrap();
    assert_eq!(kept.iter().map(|entry| entry.id).collect::<Vec<_>>(), vec![398, 399, 400]);
    // One entry larger than a segment.
    log.append("large", 1, vec![noise(9, 1 << 20).into()]).await.unwrap();
    assert_eq!(log.replay("large", 0).await.unwrap()[0].payload, noise(9, 1 << 20));
    let error = loop {
        if let Err(error) = log.append("full", pool.core.version_next(), vec![big.clone()]).await {
            break error;
        }
    };
    assert!(matches!(error, LogError::Full(_)), "{error}");
    assert!(matches!(log.append("full", u64::MAX, vec![]).await, Err(LogError::Poisoned(_))));
    log.remove("full").await.unwrap();
    log.append("full", 1, vec![big.clone()]).await.unwrap();
    pool.close().await.unwrap();
    let pool = bench.open().await;
    assert_eq!(pool.log().replay("full", 0).await.unwrap().len(), 1);
    expect(&pool, "old", 1..=3).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_copy_is_replaced_before_the_next_acknowledgement() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    append(&pool, "a", 1..=10).await;
    bench.faults(0).write_error.store(true, SeqCst);
    append(&pool, "a", 11..=20).await;
    let journal: Vec<bool> = pool.status().disks.iter().map(|disk| disk.journal).collect();
    assert_eq!(journal, [false, true, true]);
    pool.close().await.unwrap();
    bench.faults(0).write_error.store(false, SeqCst);
    // The old copy on disk 0 is not believed; one of the others may be gone.
    let away = bench.dir.path().join("away");
    for lost in [1, 2] {
        std::fs::rename(&bench.disks[lost], &away).unwrap();
        let opened = Pool::open(bench.open_options()).await;
        assert!(opened.is_err(), "disk 0 is out of date and disk {lost} missing");
        std::fs::rename(&away, &bench.disks[lost]).unwrap();
    }
    let pool = bench.open().await;
    pool.repaired().await;
    expect(&pool, "a", 1..=20).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_appenders_share_flushes() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let before = bench.opener.spent.load(SeqCst);
    let log = pool.log();
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let log = log.clone();
            tokio::spawn(async move {
                for id in 1..=50 {
                    log.append(&format!("s{task}"), id, vec![payload(id)]).await.unwrap();
                }
            })
        })
        .collect();
    futures::future::join_all(tasks).await;
    let operations = bench.opener.spent.load(SeqCst) - before;
    assert!(operations < 1600 * 4, "{operations} disk operations for 1600 appends on two disks");
    for task in 0..32 {
        expect(&pool, &format!("s{task}"), 1..=50).await;
    }
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_again_and_again_uses_nothing_up() {
    let bench = Bench::new(2);
    bench.create(Layout::Mirror2).await.close().await.unwrap();
    // More openings than the journal has segments, each with an entry that is trimmed at once.
    for id in 1..=40u64 {
        let pool = bench.open().await;
        append(&pool, "a", id..=id).await;
        pool.log().trim("a", id - 1).await.unwrap();
        expect(&pool, "a", id..=id).await;
        pool.close().await.unwrap();
    }
}

/// A tombstone holds the segment it lies in; they must not add up until nobody can append.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_deletes_do_not_hold_the_whole_ring() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let (log, store) = (pool.log(), pool.store());
    let big = Bytes::from(noise(1, 100_000));
    for id in 1..=150u64 {
        log.append("ring", id, vec![big.clone()]).await.unwrap();
        log.trim("ring", id.saturating_sub(3)).await.unwrap();
        let path = object_store::path::Path::from(format!("object{id}"));
        store.put(&path, noise(id, 1000).into()).await.unwrap();
        store.delete(&path).await.unwrap();
        // As the writers of the log do: they wait when it is nearly full.
        let started = std::time::Instant::now();
        while log.usage().0 * 100 >= log.usage().1 * 85 {
            assert!(started.elapsed().as_secs() < 20, "full for good at entry {id}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    pool.close().await.unwrap();
}

/// An open file outlives its folder: what is written there from then on nobody would find.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_folder_is_removed_is_made_anew() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=10).await;
    std::fs::remove_dir_all(bench.disks[0].join("journal")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    append(&pool, "a", 11..=20).await;
    let status = pool.status();
    assert!(status.disks[0].write_errors == 1 && status.disks[0].last_error.contains("journal"), "{status:?}");
    drop(pool);
    std::fs::remove_dir_all(bench.disks[1].join("journal")).unwrap();
    let pool = bench.open().await;
    expect(&pool, "a", 1..=20).await;
}
