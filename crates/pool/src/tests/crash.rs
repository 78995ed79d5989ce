//! The process dies after every third or fifth disk operation of a workload; then the pool is
//! opened again. What was written stays written: lost page caches and reordered directories are not
//! simulated.

use std::sync::atomic::Ordering::SeqCst;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};

use crate::DiskState;
use crate::Layout;
use crate::Pool;
use crate::disk::DiskOpener;
use crate::testing::{Bench, noise};

const OLD: usize = 300_000;
const NEW: usize = 400_000;

/// Gives a shard its temporary name again: as if power had been cut before it was renamed.
fn unname(bench: &Bench, disk: usize) {
    let [shard] = bench.shards(disk).try_into().unwrap();
    let name = shard.file_name().unwrap().to_str().unwrap().to_owned();
    let parts: Vec<&str> = name.split('~').collect();
    let version = u64::from_str_radix(parts[1], 16).unwrap();
    let temp = format!("!{version:016x}.{}", &parts[4][4..6]);
    std::fs::rename(&shard, shard.with_file_name(temp)).unwrap();
}

/// A put is cut short when enough shards have their names, and one of these is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_was_cut_short_is_as_redundant_as_any() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from("a"), noise(1, NEW).into()).await.unwrap();
    drop(pool);
    unname(&bench, 2);
    let [damaged] = bench.shards(1).try_into().unwrap();
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let pool = bench.open().await;
    let got = pool.store().get(&Path::from("a")).await.unwrap().bytes().await.unwrap();
    assert_eq!(got, noise(1, NEW));
    pool.close().await.unwrap();
}

/// `recover.newest_complete_lives`, `repair.temporary_name_of_its_own`. Power is cut while a shard
/// is made anew, and one disk more is late at the next opening.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_being_repaired_is_none_that_was_cut_short() {
    let mut cut_in_the_middle = 0;
    for fuel in 0..12 {
        let bench = Bench::new(3);
        let pool = bench.create(Layout::Raidz1).await;
        pool.store().put(&Path::from("a"), noise(1, NEW).into()).await.unwrap();
        let object = pool.core.objects.index().get("a").cloned().unwrap();
        let [shard] = bench.shards(0).try_into().unwrap();
        let index = object.placed().find(|(_, slot)| *slot == 0).unwrap().0;
        std::fs::remove_file(shard).unwrap();
        bench.opener.fuel.store(fuel, SeqCst);
        let of_task = object.clone();
        let _ = pool.core.blocking(move |core| core.repair(&of_task, &[index])).await.unwrap();
        drop((object, pool));
        bench.opener.fuel.store(i64::MAX, SeqCst);
        cut_in_the_middle += u32::from(bench.shards(0).iter().any(|file| file.to_str().unwrap().contains("/!")));
        let late = bench.dir.path().join("late");
        std::fs::rename(&bench.disks[2], &late).unwrap();
        drop(bench.open().await);
        std::fs::rename(&late, &bench.disks[2]).unwrap();
        let pool = bench.open().await;
        let got = pool.store().get(&Path::from("a")).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(1, NEW), "fuel {fuel}");
        pool.repaired().await;
        pool.core.objects.graveyard.barrier().await;
        assert_eq!(bench.shards(0).len(), 1, "litter, fuel {fuel}");
        pool.close().await.unwrap();
    }
    assert!(cut_in_the_middle > 0);
}

/// `recover.newest_complete_lives`, `write.acknowledged_with_k`. It was acknowledged without the
/// shard that a disk gave no name, and one disk more is late at the next opening.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_stored_with_fewer_shards_is_none_that_was_cut_short() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    bench.faults(0).no_renames.store(true, SeqCst);
    pool.store().put(&Path::from("a"), noise(1, NEW).into()).await.unwrap();
    drop(pool);
    bench.faults(0).no_renames.store(false, SeqCst);
    let late = bench.dir.path().join("late");
    std::fs::rename(&bench.disks[2], &late).unwrap();
    drop(bench.open().await);
    std::fs::rename(&late, &bench.disks[2]).unwrap();
    let pool = bench.open().await;
    let got = pool.store().get(&Path::from("a")).await.unwrap().bytes().await.unwrap();
    assert!(got == noise(1, NEW));
    pool.repaired().await;
    assert_eq!(pool.status().state, crate::PoolState::Online);
    pool.close().await.unwrap();
}

/// A temporary file of a repair may be half a shard.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_temporary_file_is_not_taken_for_a_shard() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from("a"), noise(1, NEW).into()).await.unwrap();
    drop(pool);
    let [shard] = bench.shards(2).try_into().unwrap();
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    unname(&bench, 2);
    let pool = bench.open().await;
    pool.repaired().await;
    pool.core.objects.graveyard.barrier().await;
    let [rebuilt] = bench.shards(2).try_into().unwrap();
    assert_eq!(std::fs::read(&rebuilt).unwrap(), bytes);
    pool.close().await.unwrap();
}

/// `write.outrun`. No disk took the label of a session, all being full, and power was cut: the next
/// session has its generation again.
#[tokio::test(flavor = "multi_thread")]
async fn versions_grow_though_no_disk_took_the_label_of_a_session() {
    let bench = Bench::new(1);
    drop(bench.create(Layout::Stripe).await);
    let a = Path::from("a");
    let labels = ["larder.label", "larder.label.2"].map(|name| bench.disks[0].join(name));
    // Which of two sessions of one generation has the higher versions is a matter of chance.
    for round in 0..6 {
        let before = labels.each_ref().map(|label| std::fs::read(label).unwrap());
        let pool = bench.open().await;
        pool.store().put(&a, noise(round, NEW).into()).await.unwrap();
        let version = pool.core.objects.index().get("a").unwrap().version;
        pool.store().delete(&a).await.unwrap();
        drop(pool);
        labels.iter().zip(before).for_each(|(label, bytes)| std::fs::write(label, bytes).unwrap());
        let pool = bench.open().await;
        pool.store().put(&a, noise(round + 100, NEW).into()).await.unwrap();
        assert!(pool.core.objects.index().get("a").unwrap().version > version);
        drop(pool);
        let pool = bench.open().await;
        let got = pool.store().get(&a).await.unwrap().bytes().await.unwrap();
        assert_eq!(got, noise(round + 100, NEW));
        pool.close().await.unwrap();
    }
}

/// A disk that does not list a directory now must not show later what was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_stays_so_when_a_disk_could_not_be_listed() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from("a"), noise(1, NEW).into()).await.unwrap();
    let [shard] = bench.shards(1).try_into().unwrap();
    let bytes = std::fs::read(&shard).unwrap();
    pool.store().delete(&Path::from("a")).await.unwrap();
    pool.core.objects.graveyard.barrier().await;
    drop(pool);
    // Its unlink was not durable when power was cut.
    std::fs::write(&shard, bytes).unwrap();
    bench.faults(1).failing_lists.store(1000, SeqCst);
    drop(bench.open().await);
    bench.faults(1).failing_lists.store(0, SeqCst);
    let pool = bench.open().await;
    let found = pool.store().get(&Path::from("a")).await;
    assert!(matches!(found, Err(object_store::Error::NotFound { .. })), "{found:?}");
    pool.close().await.unwrap();
}

/// Without its entry in the journal a delete is many unlinks, and power may be cut between them.
#[tokio::test(flavor = "multi_thread")]
async fn deletes_are_recorded_after_openings_that_found_none() {
    let bench = Bench::new(3);
    let mut pool = bench.create(Layout::Raidz1).await;
    for round in 1..4 {
        let path = Path::from(format!("a{round}"));
        pool.store().put(&path, noise(round, NEW).into()).await.unwrap();
        pool.store().delete(&path).await.unwrap();
        let recorded = pool.log().replay("larder-tombstones", 0).await.unwrap();
        assert_eq!(recorded.last().map(|entry| entry.id), Some(round));
        drop(pool);
        // One opening applies the entry and trims it, which is durable with the next segment; the
        // one after finds nothing.
        pool = bench.open().await;
        pool.log().append("wal", round, vec![b"x".as_slice().into()]).await.unwrap();
        drop(pool);
        pool = bench.open().await;
        assert!(pool.log().replay("larder-tombstones", 0).await.unwrap().is_empty());
    }
    pool.close().await.unwrap();
}

/// `tombstone.names_go_first`. Power is cut anywhere in a delete that the journal does not take.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_the_journal_does_not_take_leaves_no_half_an_object() {
    for layout in [Layout::Stripe, Layout::Mirror2, Layout::Raidz1] {
        let mut outcomes = [0; 3];
        for fuel in 0.. {
            let bench = Bench::new(3);
            let pool = bench.create(layout).await;
            let store = pool.store();
            for version in [1, 2] {
                store.put(&Path::from("a"), noise(version, NEW).into()).await.unwrap();
            }
            pool.core.objects.graveyard.barrier().await;
            // No room for another segment, and none in the first.
            (0..3).for_each(|disk| bench.faults(disk).fill_up());
            for (stream, bytes) in [("a", 100_000), ("b", 28_000), ("c", 7_000), ("d", 10)] {
                let mut id = 1;
                while pool.log().append(stream, id, vec![noise(3, bytes).into()]).await.is_ok() {
                    id += 1;
                }
            }
            bench.opener.fuel.store(fuel, SeqCst);
            let was_deleted = store.delete(&Path::from("a")).await.is_ok();
            let survived = bench.opener.fuel.load(SeqCst) > 0;
            drop((store, pool));
            bench.opener.fuel.store(i64::MAX, SeqCst);
            (0..3).for_each(|disk| bench.faults(disk).quota_bytes.store(u64::MAX, SeqCst));
            let pool = bench.open().await;
            match pool.store().get(&Path::from("a")).await {
                Ok(got) => {
                    assert!(!was_deleted, "{layout}, fuel {fuel}: it is back");
                    assert_eq!(got.bytes().await.unwrap(), noise(2, NEW), "{layout}, fuel {fuel}");
                    outcomes[0] += 1;
                }
                Err(object_store::Error::NotFound { .. }) => outcomes[1 + usize::from(was_deleted)] += 1,
                Err(error) => panic!("{layout}, fuel {fuel}: {error}"),
            }
            pool.repaired().await;
            pool.core.objects.graveyard.barrier().await;
            let files: usize = (0..bench.disks.len()).map(|disk| bench.shards(disk).len()).sum();
            let placed: usize = pool.core.objects.index().objects.values().map(|object| object.placed().count()).sum();
            assert_eq!(files, placed, "{layout}, fuel {fuel}: litter");
            pool.close().await.unwrap();
            if survived {
                break;
            }
        }
        assert!(outcomes.iter().all(|count| *count > 0), "{layout}: {outcomes:?} of none deleted, cut short, deleted");
    }
}

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
    pool.core.objects.graveyard.barrier().await;
    let alive = pool.core.objects.index().objects.len();
    let files: usize = (0..bench.disks.len()).map(|disk| bench.shards(disk).len()).sum();
    let expected: usize = pool.core.objects.index().objects.values().map(|object| object.placed().count()).sum();
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

/// `tombstone.kept_until_unlinked`. Its files are still there: after a crash without the tombstone
/// it would be back.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_is_remembered_while_a_version_before_it_is_read() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    let path = Path::from("a");
    let remembered = async || pool.log().replay("larder-tombstones", 0).await.unwrap().len();
    pool.store().put(&path, "one".into()).await.unwrap();
    let reader = pool.core.objects.index().get("a").cloned();
    pool.store().put(&path, "two".into()).await.unwrap();
    pool.store().delete(&path).await.unwrap();
    pool.store.tombstones.sweep(&pool.core).await.unwrap();
    assert_eq!(remembered().await, 1);
    drop(reader);
    pool.store.tombstones.sweep(&pool.core).await.unwrap();
    assert_eq!(remembered().await, 0);
}

/// `write.outrun`. Whoever began first ends last: its version would not be the one that is found
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_was_outrun_is_not_committed() {
    use crate::object::write::{Commit, Request};
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    let path = Path::from("a");
    let request = Request { path: "a".into(), attributes: Default::default(), mode: PutMode::Overwrite, group: None };
    for deleted in [false, true] {
        let draft = std::sync::Arc::new(pool.core.draft(&request, 5, &Default::default()).unwrap());
        pool.store().put(&path, "later".into()).await.unwrap();
        if deleted {
            pool.store().delete(&path).await.unwrap();
        }
        let order = pool.core.objects.commit_lock("a").lock().await;
        let committed = pool.core.commit(&order, draft, &request).await;
        assert!(matches!(committed, Ok(Commit::Outrun(_))), "deleted: {deleted}");
        assert_eq!(pool.store().head(&path).await.is_ok(), !deleted);
    }
}

/// Power is cut anywhere while a pool is made: the next opening, or the next making, finishes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_creation_was_cut_short_is_finished() {
    let mut lacking = [0; 4];
    let labels = |bench: &Bench| bench.disks.iter().filter(|disk| disk.join("larder.label").exists()).count();
    // Everything before the first label is one case. Cuts behind the last one belong to the
    // opening.
    let mut fuel = 3 * 256;
    while lacking[0] == 0 {
        let bench = Bench::new(3);
        bench.opener.fuel.store(fuel, SeqCst);
        let created = Pool::create(bench.options(Layout::Raidz1)).await;
        drop(created);
        bench.opener.fuel.store(i64::MAX, SeqCst);
        let found = labels(&bench);
        lacking[3 - found] += 1;
        let pool = match found {
            0 => bench.create(Layout::Raidz1).await,
            _ => Pool::open(bench.open_options()).await.unwrap_or_else(|error| panic!("fuel {fuel}: {error}")),
        };
        let status = pool.status();
        assert!(status.disks.iter().all(|disk| disk.state == DiskState::Online), "fuel {fuel}: {status:?}");
        assert!(status.notes.iter().all(|note| note.contains("stale")), "fuel {fuel}: {:?}", status.notes);
        assert_eq!(labels(&bench), 3);
        pool.store().put(&Path::from("a"), noise(1, NEW).into()).await.unwrap();
        pool.close().await.unwrap();
        drop(pool);
        bench.open().await.close().await.unwrap();
        fuel += 4;
    }
    assert!(lacking[1] > 0 && lacking[2] > 0, "{lacking:?}");
}

/// An empty folder may be where a disk should be mounted.
#[tokio::test]
async fn an_empty_folder_is_not_made_a_disk_of_a_new_pool() {
    let bench = Bench::new(1);
    std::fs::create_dir_all(&bench.disks[0]).ok();
    let disk = bench.opener.open_disk(&bench.disks[0]).unwrap();
    assert!(!crate::change::create::is_prepared(&*disk));
    crate::change::create::prepare(&*disk).unwrap();
    assert!(crate::change::create::is_prepared(&*disk));
    std::fs::write(bench.disks[0].join("somebody's"), b"").unwrap();
    assert!(!crate::change::create::is_prepared(&*disk));
}
