//! The journal: torn tails, lost and differing copies, a ring that goes round.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use larder_base::log::LogError;
use object_store::ObjectStoreExt;

use crate::Layout;
use crate::Pool;
use crate::testing::{Bench, Trouble, noise};

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
            crate::tests::remove_folder(&bench.disks[0]);
        }
        let pool = bench.open().await;
        expect(&pool, "a", 11..=40).await;
        expect(&pool, "b", 5..=9).await;
        append(&pool, "a", 41..=45).await;
        pool.close().await.unwrap();
        // The copies are equal again: the other disk may go now.
        if damage != "empty" {
            crate::tests::remove_folder(&bench.disks[1]);
            let pool = bench.open().await;
            expect(&pool, "a", 11..=45).await;
            pool.close().await.unwrap();
        }
    }
}

/// Copies on one filesystem are flushed together, if they can be written past the cache; otherwise
/// each for itself.
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
    // Killed: closing it would have said on the label that all of this is durable
    // (`journal.loss_refused`).
    drop(pool);
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
        if let Err(error) = log.append("full", pool.core.objects.versions.next(), vec![big.clone()]).await {
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

/// Entries of other streams that were queued when the last copy failed.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_when_no_copy_is_left() {
    let bench = Bench::new(1);
    let pool = bench.create(Layout::Stripe).await;
    append(&pool, "a", 1..=1).await;
    bench.faults(0).direct_write_ms.store(200, SeqCst);
    let mut receipts = Vec::new();
    // Each is a batch of its own.
    for stream in ["b", "c", "d"] {
        receipts
            .push(pool.log().begin(stream, 1, vec![noise(1, 100_000).into(), vec![0; 3 << 20].into()]).await.unwrap());
    }
    bench.faults(0).write_error.store(true, SeqCst);
    for receipt in receipts {
        receipt.await.unwrap_err();
    }
    drop(pool);
    bench.faults(0).write_error.store(false, SeqCst);
    expect(&bench.open().await, "a", 1..=1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_take_no_writes_are_read_and_go_on_when_they_do() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    append(&pool, "a", 1..=40).await;
    pool.store().put(&"x".into(), noise(1, 1000).into()).await.unwrap();
    pool.store().delete(&"x".into()).await.unwrap();
    drop(pool);
    let read_only = |is: bool| (0..3).for_each(|disk| bench.faults(disk).read_only.store(is, SeqCst));
    read_only(true);
    let pool = bench.open().await;
    expect(&pool, "a", 1..=40).await;
    pool.log().append("a", 41, vec![payload(41)]).await.unwrap_err();
    read_only(false);
    pool.reconnect().await.unwrap();
    pool.repaired().await;
    expect(&pool, "a", 1..=40).await;
    append(&pool, "a", 41..=60).await;
    drop(pool);
    for lost in 0..3 {
        let away = bench.dir.path().join("away");
        std::fs::rename(&bench.disks[lost], &away).unwrap();
        let pool = bench.open().await;
        expect(&pool, "a", 1..=60).await;
        drop(pool);
        std::fs::rename(&away, &bench.disks[lost]).unwrap();
        let pool = bench.open().await;
        pool.repaired().await;
    }
}

/// Whoever waits for room in the queue learns that there is nothing to wait for.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_room_behind_a_failure() {
    let bench = Bench::new(1);
    let pool = bench.create(Layout::Stripe).await;
    append(&pool, "a", 1..=1).await;
    bench.faults(0).direct_write_ms.store(200, SeqCst);
    bench.faults(0).write_error.store(true, SeqCst);
    let big = Bytes::from(vec![1; 30 << 20]);
    let queue = async {
        for id in 2..=20 {
            if pool.log().begin("a", id, vec![big.clone()]).await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), queue).await.expect("it ends");
}

/// Whoever takes over sees what is still on its way, or is told that somebody was faster.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_on_its_way_is_not_written_over() {
    let bench = Bench::new(1);
    let pool = bench.create(Layout::Stripe).await;
    append(&pool, "a", 1..=3).await;
    bench.faults(0).direct_write_ms.store(300, SeqCst);
    let first = pool.log().begin("a", 4, vec![payload(4)]).await.unwrap();
    expect(&pool, "a", 1..=3).await;
    let second = pool.log().begin("a", 4, vec![payload(5)]).await;
    first.await.unwrap();
    assert!(matches!(second, Err(LogError::OutOfOrder { last: 4, .. })));
    expect(&pool, "a", 1..=4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_begun_anew_forgets_what_was_trimmed() {
    let bench = Bench::new(1);
    let pool = bench.create(Layout::Stripe).await;
    append(&pool, "a", 1..=30).await;
    pool.log().trim("a", 30).await.unwrap();
    bench.faults(0).direct_write_ms.store(200, SeqCst);
    let other = pool.log().begin("b", 1, vec![payload(1)]).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let log = pool.log();
    let removal = tokio::spawn(async move { log.remove("a").await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    // In the same batch as the removal.
    let mut receipts = vec![other];
    for id in 1..=3 {
        receipts.push(pool.log().begin("a", id, vec![payload(id)]).await.unwrap());
    }
    removal.await.unwrap().unwrap();
    for receipt in receipts {
        receipt.await.unwrap();
    }
    drop(pool);
    expect(&bench.open().await, "a", 1..=3).await;
}

/// A copy that could not be made equal is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_could_not_be_healed_is_not_relied_on() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=20).await;
    pool.close().await.unwrap();
    // The power went when one disk had the last batch and the other had not.
    let file = segments(&bench, 0)[0].clone();
    let mut bytes = std::fs::read(&file).unwrap();
    let end = used_bytes(&file);
    bytes[end - 50..end].fill(0);
    std::fs::write(&file, bytes).unwrap();
    *bench.faults(0).bad_writes.lock() = Trouble::all("journal/", 1);
    let pool = bench.open().await;
    expect(&pool, "a", 1..=20).await;
    append(&pool, "a", 21..=25).await;
    pool.close().await.unwrap();
    crate::tests::remove_folder(&bench.disks[1]);
    expect(&bench.open().await, "a", 1..=25).await;
}

/// The power goes and the other disk with it, while a copy is made anew on the disk that has just
/// failed once.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_made_anew_is_named_when_it_is_whole() {
    for fuel in 1..60 {
        let bench = Bench::new(2);
        let pool = bench.create(Layout::Mirror2).await;
        append(&pool, "a", 1..=30).await;
        *bench.faults(0).bad_writes.lock() = Trouble::all("journal/", 1);
        bench.opener.fuel.store(fuel, SeqCst);
        let appended = pool.log().append("a", 31, vec![payload(31)]).await.is_ok();
        let is_over = bench.opener.fuel.load(SeqCst) > 0;
        bench.opener.fuel.store(0, SeqCst);
        drop(pool);
        bench.opener.fuel.store(i64::MAX, SeqCst);
        crate::tests::remove_folder(&bench.disks[1]);
        // It may say that it is out of date, but not that there is nothing.
        if let Ok(pool) = Pool::open(bench.open_options()).await {
            let got = pool.log().replay("a", 0).await.unwrap();
            assert!(got.len() >= if appended { 31 } else { 30 }, "{fuel}: {}", got.len());
        }
        if is_over {
            break;
        }
    }
}

/// What cannot be read is not what is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_cannot_be_read_is_not_begun_anew() {
    for (what, times) in [("journal/", 1), ("journal/", 1000), ("journal", 1), ("journal", 1000)] {
        let bench = Bench::new(1);
        let pool = bench.create(Layout::Stripe).await;
        append(&pool, "a", 1..=200).await;
        pool.close().await.unwrap();
        *bench.faults(0).bad_reads.lock() = Trouble::all(what, times);
        if let Ok(pool) = Pool::open(bench.open_options()).await {
            expect(&pool, "a", 1..=200).await;
            append(&pool, "a", 201..=202).await;
            pool.log().trim("a", 1).await.unwrap();
        }
        bench.faults(0).bad_reads.lock().left = 0;
        let pool = bench.open().await;
        assert!(pool.log().replay("a", 1).await.unwrap().len() >= 199, "{what} {times}");
    }
}

/// Each record is intact on one disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_sector_takes_no_more_than_what_is_in_it() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=100).await;
    pool.close().await.unwrap();
    *bench.faults(0).bad_reads.lock() = Trouble { with: "journal/segment-0000", bytes: 8192..8193, left: 1000 };
    *bench.faults(1).bad_reads.lock() = Trouble { with: "journal/segment-0000", bytes: 200_000..200_001, left: 1000 };
    let pool = bench.open().await;
    assert_eq!(pool.log().replay("a", 0).await.map_err(|e| e.to_string()).map(|entries| entries.len()), Ok(100));
    pool.close().await.unwrap();
}

/// The last batch was acknowledged: a sector that cannot be read is no torn tail.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_cannot_be_read_is_not_the_end() {
    for within in [0, 4096] {
        let bench = Bench::new(1);
        let pool = bench.create(Layout::Stripe).await;
        append(&pool, "a", 1..=20).await;
        pool.log().append("a", 21, vec![noise(21, 10_000).into()]).await.unwrap();
        drop(pool);
        let last = used_bytes(&segments(&bench, 0)[0]).next_multiple_of(4096) as u64 - 3 * 4096 + within;
        *bench.faults(0).bad_reads.lock() = Trouble { with: "journal/segment-0000", bytes: last..last + 1, left: 1000 };
        let error = Pool::open(bench.open_options()).await.unwrap_err().to_string();
        assert!(error.contains("segment-0000"), "{error}");
        bench.faults(0).bad_reads.lock().left = 0;
        assert_eq!(bench.open().await.log().replay("a", 0).await.unwrap().len(), 21);
    }
}

/// What one reading could not make sense of another may.
#[tokio::test(flavor = "multi_thread")]
async fn a_hole_is_left_as_it_is() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=20).await;
    pool.close().await.unwrap();
    let flip = || {
        for disk in 0..2 {
            let file = segments(&bench, disk)[0].clone();
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[7 * 4096 + 60] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
    };
    flip();
    let pool = bench.open().await;
    let error = pool.log().replay("a", 0).await.unwrap_err();
    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    pool.close().await.unwrap();
    flip();
    expect(&bench.open().await, "a", 1..=20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_was_full_goes_on_when_it_is_trimmed() {
    for reopen in [false, true] {
        for is_disk_full in [false, true] {
            let bench = Bench::new(2);
            let pool = bench.create(Layout::Mirror2).await;
            let big = Bytes::from(noise(1, 100_000));
            for id in 1..=8 {
                pool.log().append("a", id, vec![big.clone()]).await.unwrap();
            }
            if is_disk_full {
                (0..2).for_each(|disk| bench.faults(disk).fill_up());
            }
            let mut id = 9;
            while pool.log().append("a", id, vec![big.clone()]).await.is_ok() {
                id += 1;
            }
            let pool = if reopen {
                drop(pool);
                bench.open().await
            } else {
                pool
            };
            let last = pool.log().replay("a", 0).await.unwrap().last().unwrap().id;
            assert_eq!(last, id - 1);
            pool.log().trim("a", last).await.unwrap();
            for id in last + 1..=last + 200 {
                let appended = pool.log().append("a", id, vec![big.clone()]).await;
                assert!(appended.is_ok(), "opened again: {reopen}, disks full: {is_disk_full}, {appended:?}");
                pool.log().trim("a", id - 1).await.unwrap();
            }
            drop(pool);
            let pool = bench.open().await;
            assert_eq!(pool.log().replay("a", last + 199).await.unwrap().len(), 1);
        }
    }
}

/// Whoever was killed had written it, and perhaps not flushed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_back_has_been_flushed() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=3).await;
    drop(pool);
    *bench.faults(0).bad_syncs.lock() = Trouble::all("journal/segment-0000", 1);
    let pool = bench.open().await;
    assert_eq!(bench.faults(0).bad_syncs.lock().left, 0);
    expect(&pool, "a", 1..=3).await;
    append(&pool, "a", 4..=5).await;
    drop(pool);
    crate::tests::remove_folder(&bench.disks[1]);
    expect(&bench.open().await, "a", 1..=5).await;
}

/// No file can be made any more, and still the labels say who missed what was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn full_disks_take_a_label() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    append(&pool, "a", 1..=10).await;
    (0..3).for_each(|disk| bench.faults(disk).fill_up());
    bench.faults(0).write_error.store(true, SeqCst);
    append(&pool, "a", 11..=20).await;
    drop(pool);
    bench.faults(0).write_error.store(false, SeqCst);
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[1], &away).unwrap();
    assert!(Pool::open(bench.open_options()).await.is_err(), "disk 0 is out of date and disk 1 missing");
    std::fs::rename(&away, &bench.disks[1]).unwrap();
    expect(&bench.open().await, "a", 1..=20).await;
}

/// Those of a session before, which nobody has added to.
#[tokio::test(flavor = "multi_thread")]
async fn tombstones_that_were_found_are_swept_when_they_are_in_the_way() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    crate::tests::remove_folder(&bench.disks[1]);
    pool.check().await.unwrap();
    pool.store().put(&"x".into(), noise(1, 1000).into()).await.unwrap();
    pool.store().delete(&"x".into()).await.unwrap();
    drop(pool);
    let pool = bench.open().await;
    let log = pool.log();
    assert_eq!(log.replay(crate::object::tombstones::STREAM, 0).await.unwrap().len(), 1);
    let mut id = 0;
    while log.usage().0 * 100 < log.usage().1 * 80 {
        id += 1;
        log.append("a", id, vec![noise(id, 100_000).into()]).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(log.replay(crate::object::tombstones::STREAM, 0).await.unwrap().len(), 0);
}

/// An open file outlives its folder: what is written there from then on nobody would find.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_folder_is_removed_is_made_anew() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=10).await;
    crate::tests::remove_folder(bench.disks[0].join("journal"));
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    append(&pool, "a", 11..=20).await;
    let status = pool.status();
    assert!(status.disks[0].write_errors == 1 && status.disks[0].last_error.contains("journal"), "{status:?}");
    drop(pool);
    crate::tests::remove_folder(bench.disks[1].join("journal"));
    let pool = bench.open().await;
    expect(&pool, "a", 1..=20).await;
}

/// All that is left are open files.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_whose_folders_are_all_removed_is_written_anew() {
    for is_closed in [false, true] {
        let bench = Bench::new(2);
        let pool = bench.create(Layout::Mirror2).await;
        let big = Bytes::from(noise(1, 100_000));
        // Over several segments.
        for id in 1..=10 {
            pool.log().append("a", id, vec![big.clone()]).await.unwrap();
        }
        bench.disks.iter().for_each(|disk| crate::tests::remove_folder(disk.join("journal")));
        if is_closed {
            pool.close().await.unwrap();
        } else {
            pool.check().await.unwrap();
            let status = pool.status();
            assert!(status.disks.iter().all(|disk| disk.last_error.contains("journal")), "{status:?}");
            assert!(
                pool.history().iter().any(|event| event.text.contains("written anew on 2")),
                "{:?}",
                pool.history()
            );
            bench.disks.iter().for_each(|disk| crate::tests::remove_folder(disk.join("journal")));
            tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
            for id in 11..=20 {
                pool.log().append("a", id, vec![big.clone()]).await.unwrap();
            }
        }
        drop(pool);
        crate::tests::remove_folder(&bench.disks[0]);
        let pool = bench.open().await;
        let entries = pool.log().replay("a", 0).await.unwrap();
        assert_eq!(entries.len(), if is_closed { 10 } else { 20 });
        assert!(entries.iter().all(|entry| entry.payload == big));
    }
}

/// Nobody writes, nothing happens, and still the copy that could not be made is made.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_could_not_be_made_is_made_later() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=10).await;
    // The entry, and the copy that is made anew on the same disk.
    *bench.faults(0).bad_writes.lock() = Trouble::all("journal/", 2);
    append(&pool, "a", 11..=11).await;
    let status = pool.status();
    assert_eq!(status.state, crate::PoolState::Degraded);
    assert!(status.status.contains("The journal has 1 of 2 copies"), "{status:?}");
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        if pool.core.members.label().journal.len() == 2 {
            break;
        }
    }
    let status = pool.status();
    assert!(status.state == crate::PoolState::Online && !status.status.contains("journal"), "{status:?}");
    append(&pool, "a", 12..=20).await;
    drop(pool);
    crate::tests::remove_folder(&bench.disks[1]);
    expect(&bench.open().await, "a", 1..=20).await;
}

/// Its journal could still be written: but nobody knows for how long.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_out_of_use_is_no_copy() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Mirror2).await;
    append(&pool, "a", 1..=10).await;
    pool.core.members.take_out(0, crate::DiskState::Faulted);
    append(&pool, "a", 11..=11).await;
    let journal: Vec<bool> = pool.status().disks.iter().map(|disk| disk.journal).collect();
    assert_eq!(journal, [false, true, true]);
}

/// A stream was removed, and begun again under its name; the segment with the removal has been
/// written over.
#[test]
fn a_stream_has_nothing_of_one_that_was_removed() {
    use super::format::{Kind, RecordHeader, StreamMark, encode_checkpoint};
    use super::replay::{Location, Rebuild};
    let entry = |rebuild: &mut Rebuild, segment: u64, id: u64, previous: u64| {
        let stream = "a".to_owned();
        let (payload_bytes, payload_checksum) = (8, 0);
        let record = RecordHeader {
            kind: Kind::Entry,
            stream,
            id,
            previous,
            trimmed: 0,
            payload_bytes,
            payload_checksum,
            binding: 0,
        };
        rebuild.apply(&record, Location { segment, offset: id * 4096, bytes: 8, checksum: 0, previous }, &[]);
    };
    let found = |rebuild: Rebuild| {
        let state = rebuild.finish().remove("a").unwrap();
        let entries: Vec<(u64, u64)> = state.entries.iter().map(|(id, at)| (*id, at.segment)).collect();
        (entries, state.last, state.damage)
    };
    let old = || {
        let mut rebuild = Rebuild::default();
        (1..=9).for_each(|id| entry(&mut rebuild, 5, id, id - 1));
        rebuild
    };
    // Its first entry says so.
    let mut rebuild = old();
    entry(&mut rebuild, 9, 2, 0);
    assert_eq!(found(rebuild), (vec![(2, 9)], 2, None));
    // That is gone, too: the checkpoint says how far the stream had come.
    let mut rebuild = old();
    let mark = StreamMark { stream: "a".into(), last: 3, trimmed: 3 };
    let checkpoint = RecordHeader {
        kind: Kind::Checkpoint,
        stream: String::new(),
        id: 0,
        previous: 0,
        trimmed: 0,
        payload_bytes: 0,
        payload_checksum: 0,
        binding: 0,
    };
    let nowhere = Location { segment: 9, offset: 0, bytes: 0, checksum: 0, previous: 0 };
    rebuild.apply(&checkpoint, nowhere, &encode_checkpoint(&[mark]));
    entry(&mut rebuild, 9, 4, 3);
    assert_eq!(found(rebuild), (vec![(4, 9)], 4, None));
}

/// Two batches of the same number were torn at the same place, one after the other (`journal.records_of_one_batch`).
#[test]
fn a_record_of_a_batch_that_was_cut_off_stands_in_for_none_of_another() {
    use super::format::{
        ALIGN_BYTES, BATCH_HEADER_BYTES, BatchHeader, Kind, RecordHeader, SegmentHeader, binding, segment_seed,
    };
    use super::replay::{SegmentImage, scan};
    let pool = uuid::Uuid::from_u128(5);
    let header = SegmentHeader { sequence: 3, bytes: 1 << 20, file: Some(0) };
    let seed = segment_seed(pool, header.sequence);
    // A batch of two entries, the second of which begins in a sector of its own or later.
    let batch = |fill: u8, is_bound: bool| {
        let payload = vec![fill; 4096];
        let mut records: Vec<RecordHeader> = (1..=2)
            .map(|id| RecordHeader {
                kind: Kind::Entry,
                stream: "a".into(),
                id,
                previous: id - 1,
                trimmed: 0,
                payload_bytes: payload.len() as u32,
                payload_checksum: 0,
                binding: 0,
            })
            .collect();
        let mut at = ALIGN_BYTES + BATCH_HEADER_BYTES as u64;
        for record in &mut records {
            let from = at + record.head_bytes() as u64;
            record.payload_checksum = larder_base::checksum::checksum(seed ^ from, &payload);
            at += record.bytes() as u64;
        }
        let bound = if is_bound { binding(7, &records) } else { 0 };
        let head = BatchHeader { batch: 7, bytes: at - ALIGN_BYTES, records: 2, binding: bound };
        let mut bytes = header.encode(pool);
        bytes.resize(ALIGN_BYTES as usize, 0);
        bytes.extend(head.encode(seed, ALIGN_BYTES));
        for record in &mut records {
            record.binding = bound;
            bytes.extend(record.encode(seed, bytes.len() as u64));
            bytes.extend(&payload);
        }
        bytes.resize(4 * ALIGN_BYTES as usize, 0);
        bytes
    };
    let entries = |copies: Vec<Vec<u8>>| scan(pool, &SegmentImage { header, copies }).records.len();
    assert_eq!(entries(vec![batch(1, true)]), 2);
    assert_eq!(entries(vec![batch(1, false)]), 2, "as older programs write them");
    let (old, new) = (batch(1, true), batch(2, true));
    // Power was cut: the new batch has its beginning, and behind it is the old one.
    let middle = 2 * ALIGN_BYTES as usize;
    let torn = [&new[..middle], &old[middle..]].concat();
    assert_eq!(entries(vec![torn.clone(), torn.clone()]), 0, "nobody was told of either");
    assert_eq!(entries(vec![torn, new]), 2, "the other copy has the record");
    // Old records under a bound header, too.
    let (old, new) = (batch(1, false), batch(2, true));
    assert_eq!(entries(vec![[&new[..middle], &old[middle..]].concat()]), 0);
}
