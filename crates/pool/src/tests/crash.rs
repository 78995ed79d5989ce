//! The process dies after every third or fifth disk operation of a workload; then the pool is opened
//! again. What was written stays written: lost page caches and reordered directories are not simulated.

use std::sync::atomic::Ordering::SeqCst;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};

use crate::Layout;
use crate::testing::{Bench, noise};

const OLD: usize = 300_000;
const NEW: usize = 400_000;

/// Runs the workload with power for `fuel` operations; returns what was acknowledged.
async fn run(store: &dyn ObjectStore) -> [bool; 4] {
    let a = store.put(&Path::from("replaced"), noise(2, NEW).into()).await.is_ok();
    let b = store.put_opts(&Path::from("created"), noise(3, NEW).into(), PutMode::Create.into()).await.is_ok();
    let c = store.delete(&Path::from("deleted")).await.is_ok();
    let d = store.put(&Path::from("small"), noise(4, 1000).into()).await.is_ok();
    [a, b, c, d]
}

async fn check(layout: Layout, fuel: i64) -> bool {
    let bench = Bench::new(layout.disks_min());
    let pool = bench.create(layout).await;
    let store = pool.store();
    store.put(&Path::from("replaced"), noise(1, OLD).into()).await.unwrap();
    store.put(&Path::from("deleted"), noise(1, OLD).into()).await.unwrap();
    store.put(&Path::from("kept"), noise(5, OLD).into()).await.unwrap();
    bench.opener.fuel.store(fuel, SeqCst);
    let acked = run(&*store).await;
    let survived = bench.opener.fuel.load(SeqCst) > 0;
    drop((store, pool));
    bench.opener.fuel.store(i64::MAX, SeqCst);
    let pool = bench.open().await;
    let store = pool.store();
    let read = async |path: &str| match store.get(&Path::from(path)).await {
        Ok(got) => Some(got.bytes().await.unwrap().to_vec()),
        Err(object_store::Error::NotFound { .. }) => None,
        Err(error) => panic!("{layout} fuel {fuel} {path}: {error}"),
    };
    let replaced = read("replaced").await.unwrap();
    assert!(replaced == noise(2, NEW) || (!acked[0] && replaced == noise(1, OLD)), "{layout} fuel {fuel}: replaced");
    let created = read("created").await;
    assert!(created == Some(noise(3, NEW)) || (!acked[1] && created.is_none()), "{layout} fuel {fuel}: created");
    let deleted = read("deleted").await;
    assert!(deleted.is_none() || (!acked[2] && deleted == Some(noise(1, OLD))), "{layout} fuel {fuel}: deleted");
    let small = read("small").await;
    assert!(small == Some(noise(4, 1000)) || (!acked[3] && small.is_none()), "{layout} fuel {fuel}: small");
    assert_eq!(read("kept").await, Some(noise(5, OLD)));
    pool.repaired().await;
    pool.core.graveyard.barrier().await;
    let alive = pool.core.index.read().objects.len();
    let files: usize = (0..bench.disks.len()).map(|disk| bench.shards(disk).len()).sum();
    let expected: usize = pool.core.index.read().objects.values().map(|object| object.placed().count()).sum();
    assert_eq!(files, expected, "{layout} fuel {fuel}: litter beside {alive} objects");
    pool.close().await.unwrap();
    survived
}

async fn sweep(layout: Layout, step: i64) {
    let mut fuel = 0;
    while !check(layout, fuel).await {
        fuel += step;
        assert!(fuel < 1000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror() {
    sweep(Layout::Mirror2, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz1() {
    sweep(Layout::Raidz1, 5).await;
}
