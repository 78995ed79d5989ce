//! Each layout against each kind of damage on as many disks as it survives.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::DiskState;
use crate::Layout;
use crate::Pool;
use crate::PoolError;
use crate::PoolState;
use crate::testing::{Bench, noise};

/// Sizes around every boundary: empty, one block, mirror limit, unit, stripe.
const SIZES: [usize; 8] = [0, 1, 40_000, 128 << 10, (128 << 10) + 1, 1 << 20, (3 << 20) + 77, (9 << 20) + 4097];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Flip,
    Truncate,
    Unlink,
    EmptyDirectory,
    ReadErrors,
    MissingAtOpen,
}

const ALL: [Damage; 6] =
    [Damage::Flip, Damage::Truncate, Damage::Unlink, Damage::EmptyDirectory, Damage::ReadErrors, Damage::MissingAtOpen];

async fn fill(store: &Arc<dyn ObjectStore>) {
    for (i, size) in SIZES.iter().enumerate() {
        store.put(&Path::from(format!("o/{i}")), noise(i as u64, *size).into()).await.unwrap();
    }
}

async fn verify(store: &Arc<dyn ObjectStore>, what: &str) {
    for (i, size) in SIZES.iter().enumerate() {
        let path = Path::from(format!("o/{i}"));
        let want = noise(i as u64, *size);
        let got = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(got == want, "{what}: object {i}");
        let (from, to) = (size / 3, size / 3 + (size / 5).min(150_000));
        if from < to {
            let part = store.get_range(&path, from as u64..to as u64).await.unwrap();
            assert!(part == want[from..to], "{what}: range of object {i}");
        }
    }
}

fn damage(bench: &Bench, disk: usize, kind: Damage) {
    match kind {
        Damage::Flip | Damage::Truncate | Damage::Unlink => {
            for file in bench.shards(disk) {
                let mut bytes = std::fs::read(&file).unwrap();
                match kind {
                    Damage::Unlink => std::fs::remove_file(&file).unwrap(),
                    Damage::Truncate => std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap(),
                    _ => {
                        let step = 9_973;
                        (0..bytes.len()).step_by(step).for_each(|at| bytes[at] ^= 0x5a);
                        std::fs::write(&file, bytes).unwrap();
                    }
                }
            }
        }
        Damage::EmptyDirectory | Damage::MissingAtOpen => {
            std::fs::rename(&bench.disks[disk], bench.dir.path().join(format!("away{disk}"))).unwrap();
            std::fs::create_dir(&bench.disks[disk]).unwrap();
        }
        Damage::ReadErrors => bench.faults(disk).read_error.store(true, SeqCst),
    }
}

/// Renames keep an open directory alive; a disk that was emptied must be gone for the pool.
fn empty(bench: &Bench, disk: usize) {
    crate::tests::remove_folder(&bench.disks[disk]);
    std::fs::create_dir(&bench.disks[disk]).unwrap();
}

async fn check(layout: Layout, kind: Damage) {
    let what = format!("{layout} {kind:?}");
    let bench = Bench::new(layout.disks_min());
    let mut pool = bench.create(layout).await;
    fill(&pool.store()).await;
    let m = usize::from(layout.failures());
    if kind == Damage::MissingAtOpen {
        pool.close().await.unwrap();
    }
    for disk in 0..m {
        if kind == Damage::EmptyDirectory { empty(&bench, disk) } else { damage(&bench, disk, kind) }
    }
    // Nothing the pool has open may hide the damage.
    pool.core.objects.files.clear();
    if kind == Damage::MissingAtOpen {
        pool = bench.open().await;
    }
    let store = pool.store();
    verify(&store, &what).await;
    store.put(&Path::from("new"), noise(99, 5 << 20).into()).await.unwrap();
    assert!(store.get(&Path::from("new")).await.unwrap().bytes().await.unwrap() == noise(99, 5 << 20), "{what}");
    pool.repaired().await;
    verify(&store, &what).await;
    let status = pool.status();
    match kind {
        Damage::Flip | Damage::Truncate => {
            assert!(status.disks[..m].iter().all(|disk| disk.checksum_errors > 0), "{what}: {status:?}");
        }
        Damage::Unlink => assert!(status.disks[..m].iter().all(|disk| disk.read_errors > 0), "{what}"),
        Damage::EmptyDirectory => {
            assert!(status.disks[..m].iter().all(|disk| disk.state == DiskState::Removed), "{what}: {status:?}");
            assert_eq!(status.state, PoolState::Degraded, "{what}");
            assert!(status.action.contains("larder pool"), "{what}");
        }
        _ => assert!(status.disks[..m].iter().all(|disk| disk.state != DiskState::Online), "{what}"),
    }
    if matches!(kind, Damage::Flip | Damage::Truncate | Damage::Unlink) {
        // Repaired on the spot: now as many others may fail.
        pool.core.objects.files.clear();
        // Copies and parity that nobody read are found by a scrub.
        pool.scrub().await.unwrap();
        pool.repaired().await;
        pool.core.objects.files.clear();
        pool.clear().await.unwrap();
        assert_eq!(pool.scrub().await.unwrap().repaired, 0, "{what}");
        verify(&store, &what).await;
        assert!(pool.status().disks.iter().all(|disk| disk.checksum_errors == 0), "{what}: repaired");
        for disk in m..2 * m {
            if disk < bench.disks.len() {
                damage(&bench, disk, Damage::Flip);
            }
        }
        pool.core.objects.files.clear();
        verify(&store, &format!("{what}, then others")).await;
    }
    pool.close().await.unwrap();
}

async fn matrix(layout: Layout) {
    for kind in ALL {
        check(layout, kind).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror() {
    matrix(Layout::Mirror2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror3() {
    matrix(Layout::Mirror3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz1() {
    matrix(Layout::Raidz1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz2() {
    matrix(Layout::Raidz2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz3() {
    matrix(Layout::Raidz3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_m_is_refused_and_never_wrong() {
    for layout in [Layout::Stripe, Layout::Mirror2, Layout::Raidz1] {
        let bench = Bench::new(layout.disks_min().max(2));
        let pool = bench.create(layout).await;
        fill(&pool.store()).await;
        let lose = usize::from(layout.failures()) + 1;
        for disk in 0..lose {
            damage(&bench, disk, Damage::Flip);
        }
        pool.core.objects.files.clear();
        let (store, mut refused) = (pool.store(), 0);
        for (i, size) in SIZES.iter().enumerate() {
            match store.get(&Path::from(format!("o/{i}"))).await {
                Ok(got) => match got.bytes().await {
                    Ok(bytes) => assert!(bytes == noise(i as u64, *size), "{layout}"),
                    Err(_) => refused += 1,
                },
                Err(error) => {
                    assert!(error.to_string().contains("cannot be read"), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "{layout}");
        pool.close().await.unwrap();
        // And with as many disks missing the pool does not open.
        for disk in 0..lose {
            empty(&bench, disk);
        }
        let error = Pool::open(bench.open_options()).await.unwrap_err();
        assert!(matches!(error, PoolError::TooManyLost { .. } | PoolError::NoPool(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_comes_back_is_resilvered() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let store = pool.store();
    fill(&store).await;
    bench.faults(1).write_error.store(true, SeqCst);
    store.put(&Path::from("while-away"), noise(7, 3 << 20).into()).await.unwrap();
    store.delete(&Path::from("o/6")).await.unwrap();
    store.put(&Path::from("o/5"), noise(55, 2 << 20).into()).await.unwrap();
    assert_eq!(pool.status().disks[1].state, DiskState::Faulted);
    bench.faults(1).write_error.store(false, SeqCst);
    assert_eq!(pool.reconnect().await.unwrap(), 1);
    pool.repaired().await;
    assert_eq!(pool.status().disks[1].state, DiskState::Online, "{:?}", pool.status());
    pool.close().await.unwrap();
    // With another disk away the one that came back has to carry its part.
    crate::tests::remove_folder(&bench.disks[0]);
    let pool = bench.open().await;
    let store = pool.store();
    assert!(store.get(&Path::from("o/6")).await.is_err(), "deleted stays deleted");
    assert!(store.get(&Path::from("o/5")).await.unwrap().bytes().await.unwrap() == noise(55, 2 << 20));
    assert!(store.get(&Path::from("while-away")).await.unwrap().bytes().await.unwrap() == noise(7, 3 << 20));
    assert!(store.get(&Path::from("o/7")).await.unwrap().bytes().await.unwrap() == noise(7, SIZES[7]));
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_disk_is_recognised_at_open() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool.store()).await;
    pool.close().await.unwrap();
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[1], &away).unwrap();
    let pool = bench.open().await;
    let store = pool.store();
    store.delete(&Path::from("o/3")).await.unwrap();
    store.put(&Path::from("o/2"), noise(22, 60_000).into()).await.unwrap();
    pool.log().append("wal", 1, vec![b"only here".as_slice().into()]).await.unwrap();
    pool.close().await.unwrap();
    std::fs::rename(&away, &bench.disks[1]).unwrap();
    let pool = bench.open().await;
    pool.repaired().await;
    assert!(pool.status().notes.is_empty(), "that is over: {:?}", pool.status().notes);
    let history = pool.history();
    let tells = |kind: &str, text: &str| history.iter().any(|event| event.kind == kind && event.text.contains(text));
    assert!(tells("disk-back", "out of date") && tells("resilvered", "made anew"), "{history:?}");
    pool.close().await.unwrap();
}

/// What was written without a disk keeps its shape, and somebody is told.
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_were_written_narrower_are_told_of() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Raidz1).await;
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[1], &away).unwrap();
    pool.check().await.unwrap();
    fill(&pool.store()).await;
    std::fs::rename(&away, &bench.disks[1]).unwrap();
    pool.check().await.unwrap();
    pool.repaired().await;
    let told = pool.history().into_iter().rfind(|event| event.kind == "resilvered").unwrap().text;
    assert!(told.contains("4 objects lie on fewer disks") && told.contains("larder pool rebalance tank"), "{told}");
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_disk_is_read_but_not_written() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool.store()).await;
    bench.faults(2).read_only.store(true, SeqCst);
    // Enough to even out the disks: each gets its turn.
    for i in 0..40 {
        pool.store().put(&Path::from(format!("n/{i}")), noise(i, 300_000).into()).await.unwrap();
    }
    verify(&pool.store(), "read-only").await;
    let status = pool.status();
    assert_eq!(status.disks[2].state, DiskState::ReadOnly);
    assert!(status.status.contains("refuses writes"), "{}", status.status);
    assert!(
        ["remount", "fsck", "larder pool replace tank"].iter().all(|way| status.action.contains(way)),
        "{}",
        status.action
    );
    pool.close().await.unwrap();
}

#[tokio::test]
async fn disks_that_fail_together_are_broken_and_not_full() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Mirror3).await;
    let store = pool.store();
    store.put(&Path::from("before"), noise(1, 100_000).into()).await.unwrap();
    let (_, available) = pool.space();
    for disk in [0, 1] {
        bench.faults(disk).read_error.store(true, SeqCst);
        bench.faults(disk).write_error.store(true, SeqCst);
    }
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    assert!(pool.space().1 > available / 2, "as much room as before, until a write has found out");
    store.put(&Path::from("after"), noise(2, 100_000).into()).await.unwrap();
    assert_eq!(pool.status().disks.iter().filter(|disk| disk.state == DiskState::Online).count(), 1);
}

#[tokio::test]
async fn one_sync_that_fails_costs_no_put() {
    for layout in [Layout::Mirror2, Layout::Mirror3, Layout::Raidz1, Layout::Raidz2] {
        // As few disks as there can be: none to go to instead.
        let bench = Bench::new(layout.disks_min());
        let pool = bench.create(layout).await;
        bench.faults(1).failing_syncs.store(1, SeqCst);
        let put = pool.store().put(&Path::from("a"), noise(1, 300_000).into()).await;
        put.unwrap_or_else(|error| panic!("{layout}: {error}"));
        pool.repaired().await;
        verify_one(&pool, layout).await;
    }
}

async fn verify_one(pool: &crate::Pool, layout: Layout) {
    let got = pool.store().get(&Path::from("a")).await.unwrap().bytes().await.unwrap();
    assert_eq!(got, noise(1, 300_000), "{layout}");
    assert!(pool.core.objects.index().objects.values().all(|object| object.is_whole()), "{layout}: repaired since");
}

#[tokio::test]
async fn a_delete_that_failed_was_no_delete() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    let store = pool.store();
    store.put(&Path::from("a"), noise(1, 1000).into()).await.unwrap();
    (0..2).for_each(|disk| bench.faults(disk).write_error.store(true, SeqCst));
    for _ in 0..2 {
        assert!(store.delete(&Path::from("a")).await.is_err(), "neither journal nor disks take it");
    }
    assert!(pool.core.objects.index().get("a").is_some(), "nobody was told that it is gone");
}

/// A power cut in between would leave a disk that counts as one that has missed nothing
/// (`member.out_before_answer`).
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "others wait for the labels on threads of their own")]
async fn who_does_without_a_disk_is_answered_when_the_labels_say_so() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let store = pool.store();
    store.put(&Path::from("old"), noise(1, 200_000).into()).await.unwrap();
    let labels = pool.core.members.hold_labels();
    let core = pool.core.clone();
    let out = tokio::task::spawn_blocking(move || core.members.take_out(2, DiskState::Faulted));
    while pool.core.members.member(2).unwrap().is_writable() {
        tokio::task::yield_now().await;
    }
    let putting = store.clone();
    let put = tokio::spawn(async move { putting.put(&Path::from("new"), noise(2, 200_000).into()).await });
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!put.is_finished(), "no label says that a disk is out");
    drop(labels);
    put.await.unwrap().unwrap();
    out.await.unwrap();
    pool.close().await.unwrap();
}
