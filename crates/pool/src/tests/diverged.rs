//! Disks that open a pool by turns, and never together: what each side has acknowledged stays on it until a person
//! discards it (`diverged.left_alone`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use object_store::ObjectStoreExt;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::testing::{Bench, noise};
use crate::{Change, DiskState, LastLife, LastLives, Layout, OpenOptions, Pool, PoolError, PoolState};

/// The memory of a machine.
#[derive(Debug, Default)]
struct Memory(Mutex<BTreeMap<Uuid, LastLife>>);

impl LastLives for Memory {
    fn last(&self, pool: Uuid) -> Option<LastLife> {
        self.0.lock().get(&pool).copied()
    }

    fn remember(&self, pool: Uuid, _: &str, life: LastLife) {
        self.0.lock().insert(pool, life);
    }
}

fn away(bench: &Bench, disk: usize) -> PathBuf {
    bench.dir.path().join(format!("away{disk}"))
}

/// Takes disks away, and puts back all others.
fn only(bench: &Bench, here: &[usize]) {
    for disk in 0..bench.disks.len() {
        let (from, to) = match here.contains(&disk) {
            true => (away(bench, disk), bench.disks[disk].clone()),
            false => (bench.disks[disk].clone(), away(bench, disk)),
        };
        if from.exists() {
            std::fs::rename(from, to).unwrap();
        }
    }
}

/// Every file of a disk.
fn bytes_of(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(bytes_of(&path));
        } else {
            all.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    all
}

/// An object, an overwritten one, and an entry of the log.
async fn write(pool: &Pool, side: &str, seed: u64) {
    let store = pool.store();
    store.put(&format!("of-{side}").into(), noise(seed, 300_000).into()).await.unwrap();
    store.put(&"shared".into(), noise(seed + 1, 50_000).into()).await.unwrap();
    pool.log().append("wal", seed, vec![noise(seed, 1000).into()]).await.unwrap();
}

/// The side has its own data, and nothing of the others.
async fn verify(pool: &Pool, side: &str, seed: u64, others: &[&str]) {
    let store = pool.store();
    let bytes = async |path: String| store.get(&path.into()).await.unwrap().bytes().await.unwrap();
    assert!(bytes(format!("of-{side}")).await == noise(seed, 300_000));
    assert!(bytes("shared".to_owned()).await == noise(seed + 1, 50_000));
    assert!(bytes("common".to_owned()).await == noise(1, 200_000));
    for other in others {
        assert!(store.get(&format!("of-{other}").into()).await.is_err(), "{other} in {side}");
    }
    let ids: Vec<u64> = pool.log().replay("wal", 0).await.unwrap().iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [1, seed]);
}

async fn pool_of(bench: &Bench, layout: Layout) {
    let pool = bench.create(layout).await;
    pool.store().put(&"common".into(), noise(1, 200_000).into()).await.unwrap();
    pool.store().put(&"shared".into(), noise(1, 50_000).into()).await.unwrap();
    pool.log().append("wal", 1, vec![noise(1, 1000).into()]).await.unwrap();
    pool.close().await.unwrap();
}

fn states(pool: &Pool) -> Vec<DiskState> {
    pool.status().disks.iter().map(|disk| disk.state).collect()
}

/// First `b` goes on alone and is restarted, then `a`, to which the disks of `b` come back.
async fn check(layout: Layout, disks: usize, a: &[usize], b: &[usize], restarts: usize, while_running: bool) {
    let bench = Bench::new(disks);
    pool_of(&bench, layout).await;
    only(&bench, b);
    let pool = bench.open().await;
    write(&pool, "b", 10).await;
    pool.close().await.unwrap();
    for _ in 0..restarts {
        bench.open().await.close().await.unwrap();
    }
    only(&bench, a);
    let mut pool = bench.open().await;
    write(&pool, "a", 20).await;
    let all: Vec<usize> = a.iter().chain(b).copied().collect();
    let before: Vec<_> = b.iter().map(|disk| bytes_of(&away(&bench, *disk))).collect();
    if while_running {
        only(&bench, &all);
        pool.reconnect().await.unwrap();
        pool.clear().await.unwrap();
    } else {
        pool.close().await.unwrap();
        only(&bench, &all);
        pool = bench.open().await;
    }
    pool.repaired().await;
    for at in 0..disks {
        let expected = if b.contains(&at) { DiskState::Diverged } else { DiskState::Online };
        assert!(!all.contains(&at) || states(&pool)[at] == expected, "{layout} {:?}", pool.status());
    }
    let status = pool.status();
    assert_ne!(status.state, PoolState::Online);
    assert!(status.status.contains("went on without this pool since 2"), "{status:?}");
    assert!(status.action.contains("larder pool online --discard tank"), "{status:?}");
    assert!(!status.status.contains(" 0 batches"), "both have written: {status:?}");
    verify(&pool, "a", 20, &["b"]).await;
    let change = Change::Online { disk: bench.disks[b[0]].display().to_string(), discard: false };
    let refused = pool.change(&change).await.unwrap_err().to_string();
    assert!(refused.contains("--discard"), "{refused}");
    let change = Change::Replace { old: bench.disks[b[0]].display().to_string(), new: bench.disks[b[0]].clone() };
    let refused = pool.change(&change).await.unwrap_err().to_string();
    assert!(refused.contains("--discard"), "{refused}");
    pool.close().await.unwrap();
    // It stays so, and nothing on them was touched.
    let pool = bench.open().await;
    assert!(b.iter().all(|disk| states(&pool)[*disk] == DiskState::Diverged));
    pool.close().await.unwrap();
    let after: Vec<_> = b.iter().map(|disk| bytes_of(&bench.disks[*disk])).collect();
    for (before, (after, disk)) in before.into_iter().zip(after.into_iter().zip(b)) {
        let before: Vec<_> = before
            .into_iter()
            .map(|(path, bytes)| (bench.disks[*disk].join(path.strip_prefix(away(&bench, *disk)).unwrap()), bytes))
            .collect();
        assert!(before == after.into_iter().collect::<Vec<_>>(), "disk {disk} was touched");
    }
    // The other side opens alone, as it was left.
    only(&bench, b);
    let pool = bench.open().await;
    verify(&pool, "b", 10, &["a"]).await;
    pool.close().await.unwrap();
    // A person names the side to run.
    only(&bench, &all);
    let named = a.iter().map(|disk| bench.disks[*disk].clone()).collect();
    let options = OpenOptions { disks: named, ..bench.open_options() };
    let pool = Pool::open(options).await.unwrap();
    verify(&pool, "a", 20, &["b"]).await;
    for disk in b {
        let change = Change::Online { disk: bench.disks[*disk].display().to_string(), discard: true };
        pool.change(&change).await.unwrap();
    }
    pool.repaired().await;
    if all.len() == disks {
        assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    }
    assert_eq!(pool.scrub().await.unwrap().errors, 0);
    let refused = pool.change(&Change::Online { disk: bench.disks[b[0]].display().to_string(), discard: true }).await;
    assert!(refused.unwrap_err().to_string().contains("has not diverged"));
    pool.close().await.unwrap();
    only(&bench, b);
    let pool = bench.open().await;
    verify(&pool, "a", 20, &["b"]).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_of_two_diverge() {
    for (restarts, while_running) in [(0, false), (6, false), (0, true), (70, false)] {
        check(Layout::Mirror2, 2, &[0], &[1], restarts, while_running).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wider_layouts_diverge() {
    check(Layout::Mirror3, 3, &[0], &[1, 2], 1, false).await;
    check(Layout::Mirror3, 3, &[0, 2], &[1], 6, true).await;
    check(Layout::Mirror3, 4, &[0, 1], &[2, 3], 1, false).await;
    check(Layout::Raidz2, 4, &[0, 3], &[1, 2], 6, false).await;
    check(Layout::Raidz2, 4, &[0, 1], &[2, 3], 0, true).await;
    check(Layout::Raidz3, 5, &[0, 1, 2], &[3, 4], 2, false).await;
}

/// The disks `b` are replaced by older images of themselves and go on without `a`, which has what was acknowledged in
/// between (`label.settled_tells_older_copies`).
async fn check_images(layout: Layout, a: &[usize], b: &[usize], restarts: usize, while_running: bool) {
    let bench = Bench::new(a.len() + b.len());
    pool_of(&bench, layout).await;
    let image = |disk: &usize| bench.dir.path().join(format!("image{disk}"));
    b.iter().for_each(|disk| crate::tests::rolled_back::copy(&bench.disks[*disk], &image(disk)));
    let pool = bench.open().await;
    write(&pool, "a", 20).await;
    pool.close().await.unwrap();
    only(&bench, b);
    for disk in b {
        crate::tests::remove_folder(&bench.disks[*disk]);
        std::fs::rename(image(disk), &bench.disks[*disk]).unwrap();
    }
    let mut pool = bench.open().await;
    write(&pool, "b", 10).await;
    for _ in 0..restarts {
        pool.close().await.unwrap();
        pool = bench.open().await;
    }
    let before: Vec<_> =
        a.iter().map(|disk| bytes_of(&away(&bench, *disk)).into_values().collect::<Vec<_>>()).collect();
    let all: Vec<usize> = a.iter().chain(b).copied().collect();
    if while_running {
        only(&bench, &all);
        pool.reconnect().await.unwrap();
        pool.clear().await.unwrap();
    } else {
        pool.close().await.unwrap();
        only(&bench, &all);
        pool = bench.open().await;
    }
    pool.repaired().await;
    for disk in 0..all.len() {
        let expected = if a.contains(&disk) { DiskState::Diverged } else { DiskState::Online };
        assert_eq!(states(&pool)[disk], expected, "{layout} {:?}", pool.status());
    }
    let status = pool.status();
    assert!(status.status.contains("went on without this pool since 2"), "{status:?}");
    assert!(status.action.contains("larder pool online --discard tank"), "{status:?}");
    assert!(!status.status.contains(" 0 batches"), "both have written: {status:?}");
    verify(&pool, "b", 10, &["a"]).await;
    pool.close().await.unwrap();
    let after: Vec<_> = a.iter().map(|disk| bytes_of(&bench.disks[*disk]).into_values().collect::<Vec<_>>()).collect();
    assert!(before == after, "{layout}: a disk that has diverged was touched");
    if a.len() + layout.failures() as usize >= all.len() {
        let named = a.iter().map(|disk| bench.disks[*disk].clone()).collect();
        let pool = Pool::open(OpenOptions { disks: named, ..bench.open_options() }).await.unwrap();
        verify(&pool, "a", 20, &["b"]).await;
        pool.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_with_what_older_images_of_the_others_lack_has_diverged() {
    for (restarts, while_running) in [(0, false), (0, true), (30, false)] {
        check_images(Layout::Mirror2, &[0], &[1], restarts, while_running).await;
    }
    check_images(Layout::Raidz1, &[0], &[1, 2], 0, false).await;
    check_images(Layout::Raidz1, &[0], &[1, 2], 1, true).await;
    check_images(Layout::Mirror3, &[0, 1], &[2], 1, false).await;
}

/// Disk 0 is taken offline, as a person does it before moving a disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_offline_and_then_used_elsewhere_diverges() {
    let bench = Bench::new(2);
    pool_of(&bench, Layout::Mirror2).await;
    let pool = bench.open().await;
    let disk = bench.disks[0].display().to_string();
    pool.change(&Change::Offline { disk: disk.clone() }).await.unwrap();
    write(&pool, "b", 10).await;
    pool.close().await.unwrap();
    only(&bench, &[0]);
    let pool = bench.open().await;
    write(&pool, "a", 20).await;
    only(&bench, &[0, 1]);
    pool.check().await.unwrap();
    assert_eq!(states(&pool), [DiskState::Online, DiskState::Diverged]);
    pool.close().await.unwrap();
    only(&bench, &[1]);
    // As its label says, the other disk is offline: nobody is asked.
    let pool = Pool::open(OpenOptions { degraded: false, ..bench.open_options() }).await.unwrap();
    verify(&pool, "b", 10, &["a"]).await;
    only(&bench, &[0, 1]);
    let change = Change::Online { disk: disk.clone(), discard: false };
    let refused = pool.change(&change).await.unwrap_err().to_string();
    assert!(refused.contains("--discard"), "{refused}");
    pool.change(&Change::Online { disk, discard: true }).await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    verify(&pool, "b", 10, &["a"]).await;
    pool.close().await.unwrap();
}

/// A disk that only missed writes is brought up to date as ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_away_has_not_diverged() {
    for layout in [Layout::Mirror2, Layout::Mirror3, Layout::Raidz2] {
        let bench = Bench::new(layout.disks_min());
        pool_of(&bench, layout).await;
        for life in 0..3u64 {
            let gone = life as usize % bench.disks.len();
            let all: Vec<usize> = (0..bench.disks.len()).collect();
            let here: Vec<usize> = all.iter().copied().filter(|disk| *disk != gone).collect();
            let pool = bench.open().await;
            only(&bench, &here);
            pool.check().await.unwrap();
            pool.store().put(&"later".into(), noise(life, 90_000).into()).await.unwrap();
            drop(pool);
            let pool = bench.open().await;
            only(&bench, &all);
            pool.reconnect().await.unwrap();
            pool.repaired().await;
            assert_eq!(pool.status().state, PoolState::Online, "{layout} {:?}", pool.status());
            pool.close().await.unwrap();
        }
    }
}

/// `diverged.fewer_disks_asked`
#[tokio::test(flavor = "multi_thread")]
async fn fewer_disks_need_a_yes_unless_this_machine_ran_the_pool_last() {
    let bench = Bench::new(2);
    pool_of(&bench, Layout::Mirror2).await;
    let asks = || OpenOptions { degraded: false, ..bench.open_options() };
    only(&bench, &[0]);
    let error = Pool::open(asks()).await.unwrap_err();
    assert!(matches!(error, PoolError::FewerDisks { .. }), "{error}");
    assert!(error.to_string().contains(bench.disks[1].to_str().unwrap()), "{error}");
    only(&bench, &[0, 1]);
    let memory = Arc::new(Memory::default());
    let remembers = || OpenOptions { last_lives: Some(memory.clone()), ..asks() };
    Pool::open(remembers()).await.unwrap().close().await.unwrap();
    // Disk 1 does not come up: the machine goes on, because it knows that nothing newer is there.
    only(&bench, &[0]);
    let pool = Pool::open(remembers()).await.unwrap();
    write(&pool, "a", 20).await;
    drop(pool);
    Pool::open(remembers()).await.unwrap().close().await.unwrap();
    // Then disk 1 comes up, and disk 0 does not: newer data is missing.
    only(&bench, &[1]);
    let error = Pool::open(remembers()).await.unwrap_err();
    assert!(error.to_string().contains("older than the pool as this machine last ran it"), "{error}");
    only(&bench, &[0, 1]);
    let pool = Pool::open(remembers()).await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    // One dies while the pool runs, and the machine is restarted.
    only(&bench, &[1]);
    pool.check().await.unwrap();
    write(&pool, "b", 30).await;
    drop(pool);
    Pool::open(asks()).await.unwrap().close().await.unwrap();
    only(&bench, &[0]);
    let error = Pool::open(remembers()).await.unwrap_err();
    assert!(!matches!(error, PoolError::Refused { .. }), "{error}");
}

/// `diverged.fewer_disks_asked`
#[tokio::test(flavor = "multi_thread")]
async fn an_old_image_is_not_opened_alone_by_the_machine_that_wrote_newer_labels() {
    let bench = Bench::new(2);
    pool_of(&bench, Layout::Mirror2).await;
    let memory = Arc::new(Memory::default());
    let remembers = || OpenOptions { last_lives: Some(memory.clone()), degraded: false, ..bench.open_options() };
    Pool::open(remembers()).await.unwrap().close().await.unwrap();
    let image = bench.dir.path().join("image");
    crate::tests::rolled_back::copy(&bench.disks[1], &image);
    only(&bench, &[1]);
    // Everything that this machine ever answered is there: nobody is asked. It is undone again.
    Pool::open(remembers()).await.unwrap().close().await.unwrap();
    only(&bench, &[0, 1]);
    let pool = Pool::open(remembers()).await.unwrap();
    pool.repaired().await;
    pool.close().await.unwrap();
    crate::tests::remove_folder(&image);
    crate::tests::rolled_back::copy(&bench.disks[1], &image);
    let pool = Pool::open(remembers()).await.unwrap();
    write(&pool, "a", 20).await;
    pool.close().await.unwrap();
    only(&bench, &[1]);
    crate::tests::remove_folder(&bench.disks[1]);
    std::fs::rename(&image, &bench.disks[1]).unwrap();
    let error = Pool::open(remembers()).await.unwrap_err();
    assert!(error.to_string().contains("older than the pool as this machine last ran it"), "{error}");
    only(&bench, &[0, 1]);
    let pool = Pool::open(remembers()).await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    verify(&pool, "a", 20, &["b"]).await;
    pool.close().await.unwrap();
    // Where a person is asked, nobody looks for the disk that is connected.
    crate::tests::rolled_back::copy(&bench.disks[1], &image);
    let pool = Pool::open(remembers()).await.unwrap();
    pool.store().put(&"later".into(), noise(3, 1000).into()).await.unwrap();
    pool.close().await.unwrap();
    crate::tests::remove_folder(&bench.disks[1]);
    std::fs::rename(&image, &bench.disks[1]).unwrap();
    let forgets = OpenOptions { degraded: false, ..bench.open_options() };
    let error = Pool::open(forgets).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{} is here as an older copy of itself", bench.disks[1].display())), "{error}");
}

/// `diverged.fewer_disks_asked`: a life that no disk has is not remembered. Writing labels is cut short anywhere, and then
/// no disk takes any.
#[tokio::test(flavor = "multi_thread")]
async fn a_life_that_reached_no_disk_does_not_keep_the_pool_closed() {
    for here in [[0, 2], [1, 2]] {
        for fuel in (0..30).step_by(3) {
            let bench = Bench::new(3);
            pool_of(&bench, Layout::Mirror3).await;
            let memory = Arc::new(Memory::default());
            let remembers =
                || OpenOptions { last_lives: Some(memory.clone()), degraded: false, ..bench.open_options() };
            Pool::open(remembers()).await.unwrap().close().await.unwrap();
            only(&bench, &[0, 1]);
            for left in [fuel, 0] {
                bench.opener.fuel.store(left, SeqCst);
                drop(Pool::open(remembers()).await);
            }
            bench.opener.fuel.store(i64::MAX, SeqCst);
            only(&bench, &here);
            let pool = Pool::open(remembers()).await.unwrap_or_else(|error| panic!("{here:?} after {fuel}: {error}"));
            write(&pool, "a", 20).await;
            verify(&pool, "a", 20, &[]).await;
            pool.close().await.unwrap();
        }
    }
}

/// Where those that are here are more than those that are away, nobody is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_opens_without_a_question() {
    for (layout, here, asks) in [
        (Layout::Mirror3, &[0, 1][..], false),
        (Layout::Mirror3, &[2], true),
        (Layout::Raidz1, &[0, 2], false),
        (Layout::Raidz2, &[0, 1, 2], false),
        (Layout::Raidz2, &[1, 2], true),
    ] {
        let bench = Bench::new(layout.disks_min());
        pool_of(&bench, layout).await;
        only(&bench, here);
        let opened = Pool::open(OpenOptions { degraded: false, ..bench.open_options() }).await;
        assert_eq!(matches!(opened, Err(PoolError::FewerDisks { .. })), asks, "{layout} {here:?} {opened:?}");
    }
}

/// The spare became a member of the other side.
#[tokio::test(flavor = "multi_thread")]
async fn a_spare_that_the_other_side_used_is_left_alone() {
    let bench = Bench::new(3);
    let options = crate::CreateOptions { disks: bench.disks[..2].to_vec(), ..bench.options(Layout::Mirror2) };
    let pool = Pool::create(options).await.unwrap();
    pool.change(&Change::Add { disks: vec![bench.disks[2].clone()], spare: true }).await.unwrap();
    pool.store().put(&"common".into(), noise(1, 200_000).into()).await.unwrap();
    pool.close().await.unwrap();
    only(&bench, &[1, 2]);
    let pool = bench.open().await;
    let change = Change::Replace { old: bench.disks[0].display().to_string(), new: bench.disks[2].clone() };
    pool.change(&change).await.unwrap();
    pool.store().put(&"of-b".into(), noise(2, 200_000).into()).await.unwrap();
    pool.settled().await;
    pool.close().await.unwrap();
    only(&bench, &[0]);
    let pool = bench.open().await;
    pool.store().put(&"of-a".into(), noise(3, 200_000).into()).await.unwrap();
    only(&bench, &[0, 1, 2]);
    pool.reconnect().await.unwrap();
    assert_eq!(states(&pool), [DiskState::Online, DiskState::Diverged]);
    let before = bytes_of(&bench.disks[2]);
    for change in [
        Change::Replace { old: bench.disks[1].display().to_string(), new: bench.disks[2].clone() },
        Change::Add { disks: vec![bench.disks[2].clone()], spare: false },
    ] {
        let refused = pool.change(&change).await.unwrap_err().to_string();
        assert!(refused.contains("not the spare that it was") || refused.contains("belongs to pool"), "{refused}");
    }
    pool.close().await.unwrap();
    assert!(bytes_of(&bench.disks[2]) == before);
    only(&bench, &[1, 2]);
    let pool = bench.open().await;
    let got = pool.store().get(&"of-b".into()).await.unwrap().bytes().await.unwrap();
    assert!(got == noise(2, 200_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_given_another_name() {
    let bench = Bench::new(2);
    pool_of(&bench, Layout::Mirror2).await;
    let renamed = OpenOptions { rename: Some("old-tank".into()), ..bench.open_options() };
    let bad = OpenOptions { rename: Some("no/name".into()), ..bench.open_options() };
    assert!(matches!(Pool::open(bad).await.unwrap_err(), PoolError::BadName(_)));
    let pool = Pool::open(renamed).await.unwrap();
    assert_eq!(pool.name(), "old-tank");
    drop(pool);
    let named = OpenOptions { name: Some("old-tank".into()), ..bench.open_options() };
    assert_eq!(Pool::open(named).await.unwrap().name(), "old-tank");
}

/// `adopt.never_over_another_life`: whatever is left of its labels, and of the file beside them.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_diverged_and_lost_its_labels_is_left_alone() {
    for (names, while_running) in [
        (&["larder.label", "larder.label.2"][..], false),
        (&["larder.label", "larder.label.2"], true),
        (&["larder.label", "larder.label.2", "larder.life"], false),
        (&["larder.label", "larder.label.2", "larder.life"], true),
    ] {
        for removed in [false, true] {
            let bench = Bench::new(2);
            pool_of(&bench, Layout::Mirror2).await;
            only(&bench, &[1]);
            let pool = bench.open().await;
            write(&pool, "b", 10).await;
            pool.close().await.unwrap();
            only(&bench, &[0]);
            let mut pool = bench.open().await;
            write(&pool, "a", 20).await;
            for name in names {
                let path = away(&bench, 1).join(name);
                match removed {
                    true => std::fs::remove_file(path).unwrap(),
                    false => std::fs::write(path, "scribble").unwrap(),
                }
            }
            let before = bytes_of(&away(&bench, 1));
            if while_running {
                only(&bench, &[0, 1]);
                pool.clear().await.unwrap();
            } else {
                pool.close().await.unwrap();
                only(&bench, &[0, 1]);
                pool = bench.open().await;
            }
            pool.repaired().await;
            let status = pool.status();
            assert_eq!(states(&pool), [DiskState::Online, DiskState::Diverged], "{names:?} {status:?}");
            assert!(status.status.contains("may have gone on without this pool"), "{status:?}");
            let disk = bench.disks[1].display().to_string();
            let online = |discard| Change::Online { disk: disk.clone(), discard };
            let refused = pool.change(&online(false)).await.unwrap_err().to_string();
            assert!(refused.contains("--discard"), "{refused}");
            let after: Vec<_> = bytes_of(&bench.disks[1]).into_values().collect();
            assert!(after == before.into_values().collect::<Vec<_>>(), "{names:?}: it was touched");
            pool.change(&online(true)).await.unwrap();
            pool.repaired().await;
            assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
            pool.close().await.unwrap();
            only(&bench, &[1]);
            let pool = bench.open().await;
            verify(&pool, "a", 20, &["b"]).await;
            pool.close().await.unwrap();
        }
    }
}
