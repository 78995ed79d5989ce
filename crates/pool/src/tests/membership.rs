//! Creating, finding, opening, refusing; room.

use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;

use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::CreateOptions;
use crate::Layout;
use crate::OpenOptions;
use crate::Pool;
use crate::PoolError;
use crate::testing::{Bench, noise};

#[tokio::test(flavor = "multi_thread")]
async fn create_refuses_what_cannot_be() {
    let bench = Bench::new(3);
    let disks = bench.disks.clone();
    let try_with = |layout, disks: Vec<PathBuf>| {
        let options = CreateOptions { disks, ..bench.options(layout) };
        let planned = Pool::plan(&options).map(|_| ()).unwrap_err().to_string();
        async move {
            let error = Pool::create(options).await.unwrap_err();
            assert_eq!(error.to_string(), planned);
            error
        }
    };
    let error = try_with(Layout::Raidz2, disks.clone()).await;
    assert!(matches!(error, PoolError::TooFewDisks { need: 4, have: 3, .. }), "{error}");
    let error = try_with(Layout::Mirror2, vec![disks[0].clone(), disks[0].clone()]).await;
    assert!(matches!(error, PoolError::SameDisk(..)), "{error}");
    let link = bench.dir.path().join("link");
    std::os::unix::fs::symlink(&disks[0], &link).unwrap();
    let error = try_with(Layout::Mirror2, vec![disks[0].clone(), link]).await;
    assert!(matches!(error, PoolError::SameDisk(..)), "{error}");
    std::fs::write(disks[1].join("photo.jpg"), "x").unwrap();
    let error = try_with(Layout::Mirror2, disks.clone()).await;
    assert!(matches!(&error, PoolError::NotEmpty { found, .. } if found == "photo.jpg"), "{error}");
    std::fs::remove_file(disks[1].join("photo.jpg")).unwrap();
    assert!(std::fs::read_dir(&disks[0]).unwrap().next().is_none(), "a plan and a refusal change nothing");
    let pool = bench.create(Layout::Raidz1).await;
    let error = Pool::create(bench.options(Layout::Raidz1)).await.unwrap_err();
    assert!(matches!(error, PoolError::AlreadyLabelled { .. }), "{error}");
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_at_a_time_and_found_again() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let error = Pool::open(bench.open_options()).await.unwrap_err();
    assert!(matches!(&error, PoolError::Locked { holder, .. } if holder.contains("process")), "{error}");
    pool.store().put(&Path::from("a"), "b".into()).await.unwrap();
    pool.export().await.unwrap();
    let found = Pool::scan(&bench.disks);
    assert_eq!(found.len(), 1);
    assert!(found[0].exported && found[0].importable && found[0].disks.len() == 3);
    // One disk is enough to find the others.
    let options = OpenOptions { opener: bench.opener.clone(), ..OpenOptions::new(vec![bench.disks[2].clone()]) };
    let pool = Pool::open(options).await.unwrap();
    assert_eq!(pool.store().get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), "b".as_bytes());
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_exports_a_pool_that_is_exported_waits_for_it() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from("a"), "b".into()).await.unwrap();
    let export = || async {
        pool.export().await.unwrap();
        Pool::scan(&bench.disks)[0].exported
    };
    assert_eq!(tokio::join!(export(), export()), (true, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_duplicated_disks_are_named() {
    let (bench, other) = (Bench::new(3), Bench::new(1));
    bench.create(Layout::Raidz1).await.close().await.unwrap();
    let foreign = Pool::create(CreateOptions { name: "alien".into(), ..other.options(Layout::Stripe) }).await.unwrap();
    foreign.close().await.unwrap();
    let copy = bench.dir.path().join("copy");
    assert!(std::process::Command::new("cp").arg("-r").arg(&bench.disks[1]).arg(&copy).status().unwrap().success());
    let mut disks = bench.disks.clone();
    disks.extend([other.disks[0].clone(), copy.clone()]);
    let pool = Pool::open(OpenOptions { opener: bench.opener.clone(), ..OpenOptions::new(disks) }).await.unwrap();
    let notes = pool.status().notes.join("\n");
    assert!(notes.contains("another pool, 'alien'"), "{notes}");
    assert!(notes.contains("is a copy of disk"), "{notes}");
    assert!(pool.status().disks.iter().all(|disk| disk.path != copy));
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unequal_disks_fill_up_and_say_so() {
    let bench = Bench::new(3);
    for (disk, quota) in [(0, 48u64), (1, 96), (2, 144)] {
        bench.faults(disk).quota_bytes.store(quota << 20, SeqCst);
    }
    let plan = Pool::plan(&bench.options(Layout::Mirror2)).unwrap();
    let (usable, raw) = (plan.usable_bytes >> 20, plan.raw_bytes >> 20);
    assert_eq!((raw, plan.failures_survived), (288, 1));
    assert!((124..=144).contains(&usable), "{usable}");
    let pool = bench.create(Layout::Mirror2).await;
    let store = pool.store();
    let promised = pool.space().1;
    let mut stored = 0u64;
    let error = loop {
        match store.put(&Path::from(format!("f/{stored}")), noise(stored, 1_000_000).into()).await {
            Ok(_) => stored += 1_000_000,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("is full"), "{error}");
    assert!(stored >= promised - 2_000_000, "promised {promised}, stored {stored}");
    assert!(pool.status().disks.iter().all(|disk| disk.write_errors == 0));
    // Full is no end: deleting makes room.
    for i in 0..5 {
        store.delete(&Path::from(format!("f/{}", i * 1_000_000u64))).await.unwrap();
    }
    store.put(&Path::from("again"), noise(1, 1_000_000).into()).await.unwrap();
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz_goes_on_when_one_disk_is_full() {
    let bench = Bench::new(3);
    bench.faults(0).quota_bytes.store(24 << 20, SeqCst);
    let pool = bench.create(Layout::Raidz1).await;
    for i in 0..60u64 {
        pool.store().put(&Path::from(format!("f/{i}")), noise(i, 1_000_000).into()).await.unwrap();
    }
    let got = pool.store().get(&Path::from("f/59")).await.unwrap().bytes().await.unwrap();
    assert!(got == noise(59, 1_000_000));
    pool.close().await.unwrap();
}

/// Somebody else fills the filesystems: what is small is stored all the same, so that the pool can
/// be opened and emptied.
#[tokio::test(flavor = "multi_thread")]
async fn full_disks_take_what_is_small() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let store = pool.store();
    store.put(&"data".into(), noise(1, 4 << 20).into()).await.unwrap();
    let is_kept = || {
        bench
            .disks
            .iter()
            .all(|disk| disk.join("larder.reserve-15").exists() && disk.join("larder.reserve-00").exists())
    };
    assert!(is_kept());
    (0..3).for_each(|disk| bench.faults(disk).fill_up());
    pool.core.members.iter().for_each(|member| member.forget_space());
    let refused = store.put(&"big".into(), noise(2, 1 << 20).into()).await.unwrap_err().to_string();
    assert!(refused.contains("no room on") && refused.contains("disk2"), "{refused}");
    store.put(&"small".into(), noise(3, 20_000).into()).await.unwrap();
    assert!(!is_kept());
    drop((store, pool));
    let pool = bench.open().await;
    pool.store().put(&"small".into(), noise(4, 20_000).into()).await.unwrap();
    pool.store().delete(&"data".into()).await.unwrap();
    pool.store().put(&"big".into(), noise(2, 1 << 20).into()).await.unwrap();
    (0..3).for_each(|disk| bench.faults(disk).quota_bytes.store(1 << 30, SeqCst));
    pool.core.members.iter().for_each(|member| member.forget_space());
    pool.core.reserves.make(&pool.core.members);
    assert!(is_kept());
}

/// What a dry run says can be stored is what the pool shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_the_pool_has() {
    for (layout, disks) in [(Layout::Mirror2, 2), (Layout::Raidz1, 3), (Layout::Stripe, 2)] {
        let bench = Bench::new(disks);
        let options = crate::CreateOptions { journal_bytes: None, ..bench.options(layout) };
        let planned = Pool::plan(&options).unwrap().usable_bytes;
        let pool = Pool::create(options).await.unwrap();
        let shown = pool.space().0;
        assert!(planned.abs_diff(shown) * 100 < shown * 2, "{layout}: {planned} planned, {shown} shown");
    }
}

/// Somebody has copied the disks: what is said of the pool is said of the newest of each.
#[tokio::test(flavor = "multi_thread")]
async fn of_copies_the_newest_counts() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&"one".into(), noise(1, 20_000).into()).await.unwrap();
    pool.close().await.unwrap();
    drop(pool);
    let copies: Vec<std::path::PathBuf> = bench.disks.iter().map(|disk| disk.with_extension("copy")).collect();
    for (disk, copy) in bench.disks.iter().zip(&copies) {
        let copied = std::process::Command::new("cp").arg("-a").args([disk, copy]).status().unwrap();
        assert!(copied.success());
    }
    // Without one of them a life begins that the copies do not know.
    bench.faults(2).read_error.store(true, SeqCst);
    bench.open().await.close().await.unwrap();
    bench.faults(2).read_error.store(false, SeqCst);
    let pool = bench.open().await;
    pool.repaired().await;
    pool.close().await.unwrap();
    drop(pool);
    let found = Pool::scan(&[&copies[..], &bench.disks[..]].concat());
    assert_eq!(found.len(), 1);
    assert!(found[0].importable, "{:?}", found[0]);
    assert_eq!(found[0].disks.iter().map(|disk| disk.path.clone()).collect::<Vec<_>>(), bench.disks);
}
