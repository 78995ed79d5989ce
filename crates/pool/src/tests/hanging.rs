//! Disks whose calls do not return.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::DiskState;
use crate::Layout;
use crate::Pool;
use crate::PoolState;
use crate::disk::watch::{CALL_SECONDS_MAX, HANGS};
use crate::testing::{Bench, Frozen, noise};

const BIG: usize = 12 << 20;

async fn verify(pool: &Pool, count: u64) {
    for id in 1..=count {
        let got = pool.store().get(&path(id)).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(id, length(id)), "object {id}");
    }
    let entries = pool.log().replay("a", 0).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
}

fn path(id: u64) -> Path {
    Path::from(format!("o/{id}"))
}

fn length(id: u64) -> usize {
    [300, 700 << 10, BIG][id as usize % 3]
}

async fn append(pool: &Pool, id: u64) {
    pool.log().append("a", id, vec![noise(id, 2000).into()]).await.unwrap();
}

async fn put(pool: &Pool, id: u64) {
    let bytes = noise(id, length(id));
    if length(id) < BIG {
        return drop(pool.store().put(&path(id), bytes.into()).await.unwrap());
    }
    let mut upload = pool.store().put_multipart(&path(id)).await.unwrap();
    for part in bytes.chunks(5 << 20) {
        upload.put_part(PutPayload::from(part.to_vec())).await.unwrap();
    }
    upload.complete().await.unwrap();
}

/// As long as nobody waits that long.
async fn let_time_pass(pool: &Pool) {
    tokio::time::sleep(Duration::from_millis(300)).await;
    pool.core.blocking(|core| (0..CALL_SECONDS_MAX + 2).for_each(|_| core.members.look_for_hangs())).await.unwrap();
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(15), work).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_goes_on_without_a_disk_that_hangs() {
    for (layout, disks) in [(Layout::Mirror2, 2), (Layout::Mirror2, 3), (Layout::Raidz1, 3), (Layout::Raidz2, 4)] {
        for (disk, frozen) in [(0, Frozen::Writes), (1, Frozen::All)] {
            let bench = Bench::new(disks);
            let pool = Arc::new(bench.create(layout).await);
            for id in 1..=6 {
                put(&pool, id).await;
                append(&pool, id).await;
            }
            bench.faults(disk).freeze(frozen);
            let of_task = pool.clone();
            let appended = tokio::spawn(async move { append(&of_task, 7).await });
            let puts: Vec<_> = (7..=12)
                .map(|id| {
                    let of_task = pool.clone();
                    tokio::spawn(async move { put(&of_task, id).await })
                })
                .collect();
            let of_task = pool.clone();
            let read = tokio::spawn(async move { of_task.store().get(&path(5)).await.unwrap().bytes().await.unwrap() });
            let_time_pass(&pool).await;
            soon("the journal", appended).await.unwrap();
            for put in puts {
                soon("a put", put).await.unwrap();
            }
            assert!(soon("a read", read).await.unwrap() == noise(5, BIG));
            for id in 8..=12 {
                soon("the journal", append(&pool, id)).await;
            }
            soon("a delete", pool.store().delete(&path(1))).await.unwrap();
            soon("a put", put(&pool, 1)).await;
            soon("reading", verify(&pool, 12)).await;
            soon("a check", pool.check()).await.unwrap();
            let status = pool.status();
            assert_eq!((status.disks[disk].state, status.state), (DiskState::Faulted, PoolState::Degraded));
            assert!(status.status.contains(HANGS), "{status:?}");
            assert_eq!(soon("reconnecting", pool.reconnect()).await.unwrap(), 0, "a call has not returned");
            assert!(pool.history().iter().any(|event| event.kind == "disk-out" && event.text.contains(HANGS)));
            bench.faults(disk).thaw();
            // What was late has happened by then.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(pool.reconnect().await.unwrap(), 1);
            soon("repair", pool.repaired()).await;
            assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
            verify(&pool, 12).await;
            pool.scrub().await.unwrap();
            pool.repaired().await;
            assert_eq!(pool.scrub().await.unwrap().repaired, 0);
            drop(Arc::into_inner(pool).unwrap());
            // It has all that the others have.
            let other = bench.disks[(disk + 1) % disks].clone();
            crate::tests::remove_folder(other);
            verify(&bench.open().await, 12).await;
        }
    }
}

/// `hang.each_call_timed`: at opening nobody watches yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_opened_without_a_disk_that_hangs() {
    for (disk, frozen) in [(0, Frozen::Writes), (1, Frozen::All), (2, Frozen::All)] {
        let bench = Bench::new(3);
        let pool = bench.create(Layout::Raidz1).await;
        for id in 1..=3 {
            put(&pool, id).await;
            append(&pool, id).await;
        }
        drop(pool);
        bench.faults(disk).freeze(frozen);
        let pool = Arc::new(soon("opening", bench.open()).await);
        let status = pool.status();
        assert_eq!(status.state, PoolState::Degraded);
        assert!(format!("{status:?}").contains(HANGS), "{status:?}");
        soon("reading", verify(&pool, 3)).await;
        soon("a put", put(&pool, 4)).await;
        soon("the journal", append(&pool, 4)).await;
        soon("a check", pool.check()).await.unwrap();
        assert_eq!(soon("reconnecting", pool.reconnect()).await.unwrap(), 0, "a call has not returned");
        bench.faults(disk).thaw();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(pool.reconnect().await.unwrap(), 1, "{:?}", pool.status());
        soon("repair", pool.repaired()).await;
        assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
        drop(Arc::into_inner(pool).unwrap());
        crate::tests::remove_folder(&bench.disks[(disk + 1) % 3]);
        verify(&bench.open().await, 4).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_more_that_hang_than_may_be_gone_it_is_refused() {
    let bench = Bench::new(3);
    drop(bench.create(Layout::Raidz1).await);
    bench.faults(0).freeze(Frozen::All);
    bench.faults(2).freeze(Frozen::All);
    let refused = soon("opening", Pool::open(bench.open_options())).await.unwrap_err().to_string();
    assert!(refused.contains(HANGS), "{refused}");
    bench.faults(0).thaw();
    bench.faults(2).thaw();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.open().await.status().state, PoolState::Online);
}

/// What was promised while it hung, by the others alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hung_is_out_of_date() {
    let bench = Bench::new(3);
    let pool = Arc::new(bench.create(Layout::Raidz1).await);
    append(&pool, 1).await;
    bench.faults(0).freeze(Frozen::Writes);
    let of_task = pool.clone();
    let appended = tokio::spawn(async move { append(&of_task, 2).await });
    let_time_pass(&pool).await;
    soon("the journal", appended).await.unwrap();
    let generation = pool.core.members.label().generation;
    bench.faults(0).thaw();
    drop(Arc::into_inner(pool).unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[1], &away).unwrap();
    assert!(Pool::open(bench.open_options()).await.is_err(), "disk 0 is out of date and disk 1 missing");
    std::fs::rename(&away, &bench.disks[1]).unwrap();
    let pool = bench.open().await;
    assert!(pool.core.members.label().generation > generation);
    assert_eq!(pool.log().replay("a", 0).await.unwrap().len(), 2);
}

/// With more disks than the layout can spare there is nothing to be gained: who waits is answered
/// when they do.
#[tokio::test(flavor = "multi_thread")]
async fn disks_that_hang_together_are_waited_for() {
    let bench = Bench::new(3);
    let pool = Arc::new(bench.create(Layout::Raidz1).await);
    append(&pool, 1).await;
    (0..2).for_each(|disk| bench.faults(disk).freeze(Frozen::Writes));
    let of_task = pool.clone();
    let appended = tokio::spawn(async move { append(&of_task, 2).await });
    let_time_pass(&pool).await;
    assert!(!appended.is_finished());
    assert!(pool.status().disks.iter().all(|disk| disk.state == DiskState::Online));
    (0..2).for_each(|disk| bench.faults(disk).thaw());
    soon("the journal", appended).await.unwrap();
    assert_eq!(pool.status().state, PoolState::Online);
}

/// Labels, the history and a repair meet the disk before anybody else does.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_keeps_others_waiting() {
    let bench = Bench::new(4);
    let pool = Arc::new(bench.create(Layout::Raidz1).await);
    for id in 1..=6 {
        put(&pool, id).await;
        append(&pool, id).await;
    }
    bench.faults(3).freeze(Frozen::Writes);
    let of_task = pool.clone();
    let labels =
        tokio::spawn(async move { of_task.core.blocking(|core| core.members.write_labels(|_| {})).await.unwrap() });
    let of_task = pool.clone();
    let told = tokio::spawn(async move { of_task.core.blocking(|core| core.members.write_history()).await.unwrap() });
    let shard = bench.shards(1)[0].clone();
    std::fs::remove_file(&shard).unwrap();
    pool.core.repairs.add_all();
    let_time_pass(&pool).await;
    soon("a label", labels).await.unwrap();
    soon("the history", told).await.unwrap();
    soon("a close", pool.close()).await.unwrap();
    assert!(bench.faults(0).syncs.load(SeqCst) > 0);
    bench.faults(3).thaw();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(Arc::into_inner(pool).unwrap());
    let pool = bench.open().await;
    soon("repair", pool.repaired()).await;
    verify(&pool, 6).await;
}

/// The second one is met by whoever writes on the labels that the first is out of use.
#[tokio::test(flavor = "multi_thread")]
async fn one_disk_hangs_after_the_other() {
    let bench = Bench::new(5);
    let pool = Arc::new(bench.create(Layout::Raidz2).await);
    append(&pool, 1).await;
    put(&pool, 1).await;
    bench.faults(0).freeze(Frozen::Writes);
    let of_task = pool.clone();
    let appended = tokio::spawn(async move { append(&of_task, 2).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    (0..CALL_SECONDS_MAX / 2).for_each(|_| pool.core.members.look_for_hangs());
    bench.faults(4).freeze(Frozen::Writes);
    (0..CALL_SECONDS_MAX).for_each(|_| pool.core.members.look_for_hangs());
    assert_eq!(pool.status().disks[4].state, DiskState::Online);
    let_time_pass(&pool).await;
    soon("the journal", appended).await.unwrap();
    soon("a put", put(&pool, 2)).await;
    [0, 4].into_iter().for_each(|disk| bench.faults(disk).thaw());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(pool.reconnect().await.unwrap(), 2);
    soon("repair", pool.repaired()).await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    verify(&pool, 2).await;
}
