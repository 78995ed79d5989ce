//! Disks that refuse for want of room are full, not dead; what lacks a shard nevertheless is owed it.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::object::index::Object;
use crate::testing::{Bench, Faults, noise};
use crate::{DiskState, Layout, Pool, PoolState};

const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// From now on the disk takes no new file.
fn refuse(faults: &Faults, error: i32) {
    faults.files_error.store(error, SeqCst);
    faults.files_left.store(0, SeqCst);
}

fn allow(faults: &Faults) {
    faults.files_left.store(i64::MAX, SeqCst);
}

fn all_spread(pool: &Pool) -> bool {
    pool.core.objects.index().objects.values().all(|object| object.is_spread())
}

fn placed(pool: &Pool, path: &str) -> usize {
    pool.core.objects.index().get(path).map_or(0, |object: &std::sync::Arc<Object>| object.placed().count())
}

async fn upload(pool: &Pool, path: &str, bytes: Vec<u8>) -> object_store::Result<()> {
    let mut upload = pool.store().put_multipart(&Path::from(path)).await?;
    for part in bytes.chunks(5 << 20) {
        upload.put_part(PutPayload::from(part.to_vec())).await?;
    }
    upload.complete().await.map(drop)
}

/// Waits for what the pool says of itself, as long as people would.
async fn until(pool: &Pool, what: &str, is_so: impl Fn(&Pool) -> bool) {
    let begun = std::time::Instant::now();
    while !is_so(pool) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {:?}", pool.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A disk that was full is taken at its word for a moment.
async fn until_taken(put: impl AsyncFn() -> object_store::Result<()>) {
    let begun = std::time::Instant::now();
    while let Err(error) = put().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_inodes_or_quota_gets_no_fewer_copies() {
    for (layout, disks, full) in [(Layout::Mirror2, 2, 1), (Layout::Raidz1, 3, 2), (Layout::Mirror3, 3, 1)] {
        for error in [ENOSPC, EDQUOT] {
            let bench = Bench::new(disks);
            let pool = bench.create(layout).await;
            let store = pool.store();
            store.put(&"before".into(), noise(1, 300_000).into()).await.unwrap();
            (disks - full..disks).for_each(|disk| refuse(&bench.faults(disk), error));
            let mut stored = vec!["before".to_owned()];
            let mut refused = 0;
            // Small ones may use up the inodes of the reserve; then they are refused like the others.
            for i in 0..60u64 {
                let path = format!("o/{i}");
                let size = if i % 2 == 0 { 3_000 } else { 400_000 };
                match store.put(&Path::from(path.as_str()), noise(i, size).into()).await {
                    Ok(_) => stored.push(path),
                    Err(error) => {
                        assert!(error.to_string().contains("is full"), "{layout}: {error}");
                        refused += 1;
                    }
                }
            }
            assert!(refused >= 30, "{layout}: {refused} refused, {} stored", stored.len());
            let error = upload(&pool, "long", noise(9, 12 << 20)).await.unwrap_err().to_string();
            assert!(error.contains("is full"), "{layout}: {error}");
            assert!(all_spread(&pool), "{layout}: what is stored has all its copies");
            assert_eq!(pool.status().owed_objects, 0);
            assert!(pool.core.members.iter().all(|member| member.state() == DiskState::Online));

            // Room again: at most a moment later everything is taken.
            (disks - full..disks).for_each(|disk| allow(&bench.faults(disk)));
            until_taken(async || upload(&pool, "long", noise(9, 12 << 20)).await).await;
            stored.push("long".to_owned());
            pool.close().await.unwrap();
            drop((store, pool));

            // Any disk may go.
            bench.faults(0).read_error.store(true, SeqCst);
            let pool = bench.open().await;
            for path in &stored {
                pool.store().get(&Path::from(path.as_str())).await.unwrap().bytes().await.unwrap();
            }
        }
    }
}

/// One full disk of many: the others have room for full redundancy, and take it.
#[tokio::test(flavor = "multi_thread")]
async fn others_take_what_a_full_disk_refuses() {
    let bench = Bench::new(5);
    let pool = bench.create(Layout::Raidz1).await;
    refuse(&bench.faults(2), ENOSPC);
    for i in 0..20u64 {
        pool.store().put(&Path::from(format!("o/{i}")), noise(i, 700_000).into()).await.unwrap();
        upload(&pool, &format!("u/{i}"), noise(100 + i, 11 << 20)).await.unwrap();
        if i == 10 {
            // An upload that begins while nobody knows that the disk is full.
            pool.core.members.iter().for_each(|member| member.unmark_full());
        }
    }
    assert!(all_spread(&pool));
    for i in 0..20u64 {
        let got = pool.store().get(&Path::from(format!("u/{i}"))).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(100 + i, 11 << 20), "u/{i}");
    }
}

/// A directory has no room for one more name: the object is refused, and the one before it stays.
#[tokio::test(flavor = "multi_thread")]
async fn no_room_for_a_name() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    pool.store().put(&"one".into(), noise(1, 50_000).into()).await.unwrap();
    bench.faults(1).renames_error.store(ENOSPC, SeqCst);
    bench.faults(1).no_renames.store(true, SeqCst);
    let error = pool.store().put(&"one".into(), noise(2, 50_000).into()).await.unwrap_err().to_string();
    assert!(error.contains("is full"), "{error}");
    bench.faults(1).no_renames.store(false, SeqCst);
    let got = pool.store().get(&"one".into()).await.unwrap().bytes().await.unwrap();
    assert!(got == noise(1, 50_000));
    assert!(all_spread(&pool));
    until_taken(async || pool.store().put(&"one".into(), noise(3, 50_000).into()).await.map(drop)).await;
    assert!(all_spread(&pool));
}

/// A disk fails while it takes an object, and is full when the shard is to be made anew: the object is
/// owed it, over restarts, until there is room.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_owed_is_given_when_there_is_room() {
    for is_closed in [false, true] {
        let bench = Bench::new(2);
        let pool = bench.create(Layout::Mirror2).await;
        bench.faults(1).no_renames.store(true, SeqCst);
        pool.store().put(&"one".into(), noise(1, 50_000).into()).await.unwrap();
        refuse(&bench.faults(1), ENOSPC);
        pool.repaired().await;
        bench.faults(1).no_renames.store(false, SeqCst);
        assert_eq!(placed(&pool, "one"), 1);
        let status = pool.status();
        assert_eq!((status.owed_objects, status.state), (1, PoolState::Degraded), "{status:?}");
        assert!(status.status.starts_with("1 object has fewer copies"), "{}", status.status);
        if is_closed {
            pool.clear().await.unwrap();
            pool.close().await.unwrap();
        }
        drop(pool);

        let pool = bench.open().await;
        pool.repaired().await;
        let status = pool.status();
        assert_eq!((status.owed_objects, status.state), (1, PoolState::Degraded), "{status:?}");
        let counted: u64 = status.disks.iter().map(|disk| disk.checksum_errors).sum();
        assert_eq!(counted, 0, "no disk has lost what was never written");
        allow(&bench.faults(1));
        until(&pool, "owed shards are made", |pool| pool.status().owed_objects == 0).await;
        assert_eq!(placed(&pool, "one"), 2);
        until(&pool, "well again", |pool| pool.status().state == PoolState::Online).await;
    }
}

/// A damaged shard for whose new copy there is no room is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_mended_when_there_is_room() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    pool.store().put(&"one".into(), noise(1, 500_000).into()).await.unwrap();
    pool.core.objects.files.clear();
    let shard = bench.shards(1).pop().unwrap();
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes.iter_mut().skip(100_000).take(2_000).for_each(|byte| *byte ^= 0x55);
    std::fs::write(&shard, bytes).unwrap();
    refuse(&bench.faults(1), EDQUOT);
    pool.scrub().await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().owed_objects, 1);
    allow(&bench.faults(1));
    until(&pool, "the damage is mended", |pool| pool.status().owed_objects == 0).await;
    assert_eq!(pool.scrub().await.unwrap().errors, 0);
}

/// Deleting makes room for what is owed at once, and what is deleted is owed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_is_owed_nothing() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    bench.faults(1).no_renames.store(true, SeqCst);
    pool.store().put(&"one".into(), noise(1, 50_000).into()).await.unwrap();
    pool.store().put(&"two".into(), noise(2, 50_000).into()).await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().owed_objects, 2);
    pool.store().delete(&"one".into()).await.unwrap();
    assert_eq!(pool.status().owed_objects, 1);
    bench.faults(1).no_renames.store(false, SeqCst);
    pool.store().put(&"two".into(), noise(3, 50_000).into()).await.unwrap();
    assert_eq!(pool.status().owed_objects, 0);
}
