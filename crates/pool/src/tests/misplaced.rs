//! Shards that are not where the index has them: on another disk, exchanged, with something else in
//! their place.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::Layout;
use crate::Pool;
use crate::object::index::Object;
use crate::testing::{Bench, noise};

const OBJECTS: u64 = 6;
const OBJECT_BYTES: usize = 3 << 20;

async fn fill(pool: &Pool) {
    for i in 0..OBJECTS {
        pool.store().put(&Path::from(format!("o{i}")), noise(i, OBJECT_BYTES).into()).await.unwrap();
    }
}

async fn verify(pool: &Pool) {
    for i in 0..OBJECTS {
        let got = pool.store().get(&Path::from(format!("o{i}"))).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(i, OBJECT_BYTES), "object {i}");
    }
}

fn object(pool: &Pool, path: &str) -> Arc<Object> {
    pool.core.objects.index().get(path).cloned().unwrap()
}

/// Where shard `index` would lie on disk `slot`.
fn place(bench: &Bench, object: &Object, index: u8, slot: u8) -> PathBuf {
    bench.disks[usize::from(slot)].join(object.file_name(index))
}

fn shift(bench: &Bench, object: &Object, index: u8, to: u8) {
    let to = place(bench, object, index, to);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::rename(place(bench, object, index, object.slot(index).unwrap()), to).unwrap();
}

fn swap(bench: &Bench, object: &Object, a: u8, b: u8) {
    let (on_a, on_b) = (object.slot(a).unwrap(), object.slot(b).unwrap());
    shift(bench, object, a, on_b);
    shift(bench, object, b, on_a);
}

/// On the disks and in the index: each shard once, each on a disk of its own.
async fn assert_spread(bench: &Bench, pool: &Pool, what: &str) {
    pool.core.objects.graveyard.barrier().await;
    let objects: Vec<Arc<Object>> = pool.core.objects.index().objects.values().cloned().collect();
    for object in objects {
        let mut disks = Vec::new();
        for index in 0..object.geometry.shards() {
            let holds = |slot: &u8| place(bench, &object, index, *slot).is_file();
            let at: Vec<u8> = (0..bench.disks.len() as u8).filter(holds).collect();
            assert_eq!(at, [object.slot(index).unwrap()], "{what}: shard {index} of {}", object.path);
            disks.extend(at);
        }
        disks.sort_unstable();
        disks.dedup();
        assert_eq!(disks.len(), usize::from(object.geometry.shards()), "{what}: {} is crowded", object.path);
    }
}

async fn assert_clean(pool: &Pool, what: &str) {
    let again = pool.scrub().await.unwrap();
    assert_eq!((again.errors, again.repaired, again.unrepaired), (0, 0, 0), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_on_a_disk_that_holds_another_is_moved_away_by_a_scrub() {
    for restart in [false, true] {
        let what = format!("restart {restart}");
        let bench = Bench::new(6);
        let mut pool = bench.create(Layout::Raidz2).await;
        fill(&pool).await;
        let one = object(&pool, "o1");
        shift(&bench, &one, 2, one.slot(4).unwrap());
        if restart {
            pool.close().await.unwrap();
            drop((pool, one));
            pool = bench.open().await;
            pool.repaired().await;
        } else {
            pool.core.objects.files.clear();
            let found = pool.scrub().await.unwrap();
            assert_eq!((found.errors, found.repaired, found.unrepaired), (1, 1, 0), "{what}: {found:?}");
        }
        assert_spread(&bench, &pool, &what).await;
        assert_clean(&pool, &what).await;
        verify(&pool).await;
        pool.close().await.unwrap();
    }
}

/// What a disk lost, made anew already when the old one turns up elsewhere: opened again, the right
/// one of the two stays.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_of_a_shard_the_one_stays_that_crowds_nobody() {
    for (index, other) in [(0, 3), (3, 0)] {
        let bench = Bench::new(4);
        let pool = bench.create(Layout::Raidz2).await;
        fill(&pool).await;
        let one = object(&pool, "o1");
        let to = place(&bench, &one, index, one.slot(other).unwrap());
        std::fs::copy(place(&bench, &one, index, one.slot(index).unwrap()), to).unwrap();
        pool.close().await.unwrap();
        drop((pool, one));
        let pool = bench.open().await;
        pool.repaired().await;
        assert_spread(&bench, &pool, "opened").await;
        assert_clean(&pool, "opened").await;
        pool.close().await.unwrap();
    }
}

/// Of two copies the one in the index is damaged: the other is not unlinked before that is made
/// good.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_intact_copy_of_a_shard_is_never_unlinked() {
    for restart in [false, true] {
        let bench = Bench::new(2);
        let mut pool = bench.create(Layout::Stripe).await;
        fill(&pool).await;
        let one = object(&pool, "o1");
        let own = place(&bench, &one, 0, one.slot(0).unwrap());
        let to = place(&bench, &one, 0, 1 - one.slot(0).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&own, &to).unwrap();
        let mut bytes = std::fs::read(&own).unwrap();
        bytes[70_000] ^= 1;
        std::fs::write(&own, bytes).unwrap();
        pool.core.objects.files.clear();
        if restart {
            pool.close().await.unwrap();
            drop((pool, one));
            pool = bench.open().await;
            pool.core.objects.graveyard.barrier().await;
            pool.repaired().await;
        }
        pool.scrub().await.unwrap();
        assert_spread(&bench, &pool, &format!("restart {restart}")).await;
        assert_clean(&pool, &format!("restart {restart}")).await;
        verify(&pool).await;
        pool.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanged_shards_are_found_again_without_a_restart() {
    for (layout, disks, by_reading) in
        [(Layout::Raidz1, 3, false), (Layout::Raidz1, 3, true), (Layout::Raidz2, 6, false)]
    {
        let what = format!("{layout}, by reading: {by_reading}");
        let bench = Bench::new(disks);
        let pool = bench.create(layout).await;
        fill(&pool).await;
        let one = object(&pool, "o1");
        swap(&bench, &one, 0, 1);
        pool.core.objects.files.clear();
        if by_reading {
            // Both are missed at once; the first reader may be too early.
            let _ = pool.store().get_range(&Path::from("o1"), 0..2 << 20).await;
            pool.repaired().await;
        } else {
            let found = pool.scrub().await.unwrap();
            assert!(found.errors >= 2 && found.repaired == 2 && found.unrepaired == 0, "{what}: {found:?}");
        }
        assert_spread(&bench, &pool, &what).await;
        assert_clean(&pool, &what).await;
        assert_eq!(pool.damage(), (vec![], 0), "{what}");
        verify(&pool).await;
        pool.close().await.unwrap();
    }
}

/// A second copy that nobody asked for would outlive a delete.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_copy_is_unlinked_by_a_scrub() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    let one = object(&pool, "o1");
    let to = place(&bench, &one, 1, one.slot(2).unwrap());
    std::fs::copy(place(&bench, &one, 1, one.slot(1).unwrap()), &to).unwrap();
    assert_clean(&pool, "a copy is no error").await;
    assert_spread(&bench, &pool, "afterwards").await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_in_the_place_of_a_shard_gives_way() {
    for kind in ["empty", "full", "link", "dangling"] {
        for restart in [false, true] {
            let what = format!("{kind}, restart {restart}");
            let bench = Bench::new(3);
            let mut pool = bench.create(Layout::Raidz1).await;
            fill(&pool).await;
            let one = object(&pool, "o1");
            let own = place(&bench, &one, 1, one.slot(1).unwrap());
            let outside = bench.dir.path().join("outside");
            std::fs::rename(&own, &outside).unwrap();
            match kind {
                "link" => std::os::unix::fs::symlink(&outside, &own).unwrap(),
                "dangling" => std::os::unix::fs::symlink("/nowhere", &own).unwrap(),
                _ => std::fs::create_dir(&own).unwrap(),
            }
            if kind == "full" {
                std::fs::write(own.join("mine"), b"kept").unwrap();
            }
            pool.core.objects.files.clear();
            if restart {
                pool.close().await.unwrap();
                drop((pool, one));
                pool = bench.open().await;
            }
            let found = pool.scrub().await.unwrap();
            assert!(found.errors >= 1 && found.repaired == 1 && found.unrepaired == 0, "{what}: {found:?}");
            assert_spread(&bench, &pool, &what).await;
            assert_clean(&pool, &what).await;
            verify(&pool).await;
            if kind == "full" {
                let name = format!("{}.old", own.display());
                assert_eq!(std::fs::read(PathBuf::from(name).join("mine")).unwrap(), b"kept", "{what}");
            }
            pool.close().await.unwrap();
        }
    }
}
