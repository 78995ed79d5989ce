//! Adding, replacing and removing disks, other layouts; each with a crash or a failure in the
//! middle.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::Change;
use crate::DiskState;
use crate::Layout;
use crate::Pool;
use crate::PoolError;
use crate::PoolState;
use crate::testing::{Bench, noise};

/// Objects of every kind: mirrored, one stripe, several stripes.
const SIZES: [usize; 4] = [300, 100 << 10, 700 << 10, 5 << 20];

async fn fill(pool: &Pool, from: usize, count: usize) {
    for i in from..from + count {
        pool.store().put(&name(i), noise(i as u64, SIZES[i % SIZES.len()]).into()).await.unwrap();
    }
}

async fn verify(pool: &Pool, from: usize, count: usize) {
    for i in from..from + count {
        let got = pool.store().get(&name(i)).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(i as u64, SIZES[i % SIZES.len()]), "object {i}");
    }
}

fn name(i: usize) -> Path {
    Path::from(format!("o/{i}"))
}

async fn settled(pool: &Pool) {
    let moving = || pool.status().moving;
    tokio::time::timeout(Duration::from_secs(60), pool.settled())
        .await
        .unwrap_or_else(|_| panic!("stuck: {:?}", moving()));
}

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn new_disk(bench: &Bench, name: &str) -> PathBuf {
    let path = bench.dir.path().join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

async fn scrubbed(pool: &Pool) {
    assert_eq!(pool.scrub().await.unwrap().repaired, 0, "nothing was damaged or missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_grows_and_objects_use_the_wider_stripes() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 12).await;
    let new: Vec<PathBuf> = (3..6).map(|i| new_disk(&bench, &format!("disk{i}"))).collect();
    let change = Change::Add { disks: new.clone(), spare: false };
    let plan = pool.plan_change(&change).await.unwrap();
    assert_eq!((plan.before.width, plan.after.width, plan.after.disks), (3, 6, 6));
    assert!(plan.after.usable_bytes > 2 * plan.before.usable_bytes);
    assert_eq!(pool.status().disks.len(), 3, "a plan changes nothing");
    assert_eq!(pool.change(&change).await.unwrap(), plan);
    fill(&pool, 12, 4).await;
    assert_eq!(pool.core.objects.index().get("o/15").unwrap().geometry.k, 5, "new data uses all disks");
    assert_eq!(pool.core.objects.index().get("o/3").unwrap().geometry.k, 2);
    let change = Change::Rebalance { layout: None, width: None };
    let plan = pool.plan_change(&change).await.unwrap();
    assert!(plan.move_bytes > 10 << 20, "{plan:?}");
    pool.change(&change).await.unwrap();
    settled(&pool).await;
    assert!(
        pool.core
            .objects
            .index()
            .objects
            .values()
            .all(|object| object.geometry.size < 1 << 20 || object.geometry.k == 5)
    );
    verify(&pool, 0, 16).await;
    scrubbed(&pool).await;
    let used: Vec<u64> = pool.core.used_bytes().into_iter().take(6).collect();
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(most - least < 4 << 20, "{used:?}");
    pool.close().await.unwrap();
    // Known from one disk alone, and by the ones that were there from the beginning.
    let pool = bench.open().await;
    assert_eq!(pool.status().disks.len(), 6);
    assert_eq!(pool.status().width, 6);
    verify(&pool, 0, 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_removed_and_is_an_empty_folder_again() {
    for (layout, disks) in [(Layout::Mirror2, 3), (Layout::Raidz1, 4), (Layout::Raidz1, 5), (Layout::Stripe, 3)] {
        let bench = Bench::new(disks);
        let pool = bench.create(layout).await;
        fill(&pool, 0, 12).await;
        let change = Change::Remove { disk: text(&bench.disks[0]) };
        let plan = pool.plan_change(&change).await.unwrap();
        assert!(plan.move_bytes > 0 && plan.after.disks == disks - 1, "{plan:?}");
        pool.change(&change).await.unwrap();
        fill(&pool, 12, 4).await;
        settled(&pool).await;
        assert_eq!(pool.status().disks.len(), disks - 1);
        assert_eq!(pool.status().state, PoolState::Online);
        assert!(bench.shards(0).is_empty());
        assert_eq!(std::fs::read_dir(&bench.disks[0]).unwrap().count(), 0, "an empty folder again");
        verify(&pool, 0, 16).await;
        scrubbed(&pool).await;
        // It may come back as a new disk.
        pool.change(&Change::Add { disks: vec![bench.disks[0].clone()], spare: false }).await.unwrap();
        fill(&pool, 16, 4).await;
        assert!(!bench.shards(0).is_empty());
        pool.close().await.unwrap();
        let pool = bench.open().await;
        verify(&pool, 0, 20).await;
        assert_eq!(pool.status().disks.len(), disks);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_replaced_whether_it_works_or_not() {
    for lost in [false, true] {
        for (layout, disks) in [(Layout::Mirror2, 2), (Layout::Raidz1, 3), (Layout::Raidz2, 5)] {
            let bench = Bench::new(disks);
            let pool = bench.create(layout).await;
            fill(&pool, 0, 12).await;
            let new = new_disk(&bench, "new");
            if lost {
                crate::tests::remove_folder(&bench.disks[1]);
                pool.check().await.unwrap();
                assert_eq!(pool.status().disks[1].state, DiskState::Removed);
            }
            let before = bench.faults(0).syncs.load(SeqCst);
            let change = Change::Replace { old: text(&bench.disks[1]), new: new.clone() };
            let plan = pool.plan_change(&change).await.unwrap();
            assert!(plan.move_bytes > 0, "{plan:?}");
            assert_eq!(pool.change(&change).await.unwrap().move_bytes, plan.move_bytes);
            settled(&pool).await;
            let left = pool.history().into_iter().rfind(|event| event.text.contains("has left")).unwrap().text;
            assert!(left.contains("written") && !left.contains(" 0 B written"), "{left}");
            let status = pool.status();
            assert_eq!((status.disks.len(), status.state), (disks, PoolState::Online), "{}", status.status);
            assert!(status.disks.iter().any(|disk| disk.path == new && disk.state == DiskState::Online));
            if !lost && layout == Layout::Raidz2 {
                // Labels and journal apart: no shard is written to the disks that stay.
                assert!(bench.faults(0).syncs.load(SeqCst) - before < 40);
            }
            verify(&pool, 0, 12).await;
            scrubbed(&pool).await;
            pool.close().await.unwrap();
            let paths = [bench.open_options().disks, vec![new]].concat();
            let pool = Pool::open(crate::OpenOptions { disks: paths, ..bench.open_options() }).await.unwrap();
            verify(&pool, 0, 12).await;
            assert_eq!(pool.status().disks.len(), disks);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_disk_mounted_in_place_of_a_dead_one_replaces_it() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 8).await;
    crate::tests::remove_folder(&bench.disks[2]);
    std::fs::create_dir(&bench.disks[2]).unwrap();
    pool.check().await.unwrap();
    let change = Change::Replace { old: text(&bench.disks[2]), new: bench.disks[2].clone() };
    pool.change(&change).await.unwrap();
    settled(&pool).await;
    verify(&pool, 0, 8).await;
    scrubbed(&pool).await;
    pool.close().await.unwrap();
    let pool = bench.open().await;
    assert_eq!(pool.status().state, PoolState::Online);
    verify(&pool, 0, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layout_changes_online() {
    let bench = Bench::new(5);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool, 0, 12).await;
    for (layout, failures) in [(Layout::Raidz1, 1), (Layout::Raidz2, 2), (Layout::Mirror3, 2), (Layout::Mirror2, 1)] {
        let plan = pool.change(&Change::Rebalance { layout: Some(layout), width: None }).await.unwrap();
        assert_eq!(plan.after.layout, layout);
        fill(&pool, 12, 4).await;
        settled(&pool).await;
        assert_eq!(pool.core.members.failures(), failures, "{layout}");
        assert_eq!(pool.core.members.label().journal.len(), usize::from(failures) + 1);
        assert!(pool.core.objects.index().objects.values().all(|object| object.geometry.m == failures));
        verify(&pool, 0, 16).await;
        scrubbed(&pool).await;
        // As many disks as it says may now go.
        for lost in 0..usize::from(failures) {
            bench.faults(lost).read_error.store(true, SeqCst);
        }
        verify(&pool, 0, 16).await;
        for lost in 0..usize::from(failures) {
            bench.faults(lost).read_error.store(false, SeqCst);
        }
        pool.clear().await.unwrap();
        pool.repaired().await;
    }
    pool.close().await.unwrap();
    let pool = bench.open().await;
    assert_eq!(pool.status().layout, Layout::Mirror2);
    verify(&pool, 0, 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_the_middle_is_gone_on_from() {
    // The power goes after so many operations: before, within and after the moving.
    for fuel in [20, 60, 130, 200, 300, 600] {
        let bench = Bench::new(4);
        let pool = bench.create(Layout::Raidz1).await;
        fill(&pool, 0, 8).await;
        let new = new_disk(&bench, "new");
        bench.opener.fuel.store(fuel, SeqCst);
        let replaced = pool.change(&Change::Replace { old: text(&bench.disks[1]), new: new.clone() }).await.is_ok();
        let removed = pool.change(&Change::Remove { disk: text(&bench.disks[3]) }).await.is_ok();
        let _ = tokio::time::timeout(Duration::from_millis(300), pool.settled()).await;
        let dead = bench.opener.fuel.load(SeqCst) <= 0;
        drop(pool);
        bench.opener.fuel.store(i64::MAX, SeqCst);
        let paths = [bench.open_options().disks, vec![new.clone()]].concat();
        let options = crate::OpenOptions { disks: paths, ..bench.open_options() };
        let pool = Pool::open(options.clone()).await.unwrap();
        verify(&pool, 0, 8).await;
        fill(&pool, 8, 4).await;
        settled(&pool).await;
        pool.repaired().await;
        let status = pool.status();
        assert_eq!(status.state, PoolState::Online, "{fuel}: {status:?}");
        if !dead {
            assert!(replaced && removed && status.disks.len() == 3, "{fuel}: {status:?}");
        }
        verify(&pool, 0, 12).await;
        scrubbed(&pool).await;
        pool.close().await.unwrap();
        verify(&Pool::open(options).await.unwrap(), 0, 12).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_failure_while_a_disk_is_replaced_loses_nothing() {
    let bench = Bench::new(6);
    let pool = bench.create(Layout::Raidz2).await;
    fill(&pool, 0, 16).await;
    crate::tests::remove_folder(&bench.disks[0]);
    pool.check().await.unwrap();
    let new = new_disk(&bench, "new");
    pool.change(&Change::Replace { old: text(&bench.disks[0]), new }).await.unwrap();
    // What is being written there meanwhile would be in the way of a removal.
    std::fs::rename(&bench.disks[1], bench.dir.path().join("dead")).unwrap();
    verify(&pool, 0, 16).await;
    pool.check().await.unwrap();
    let other = new_disk(&bench, "other");
    pool.change(&Change::Replace { old: text(&bench.disks[1]), new: other }).await.unwrap();
    settled(&pool).await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    verify(&pool, 0, 16).await;
    scrubbed(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_while_objects_are_written_anew_is_a_delete() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool, 0, 40).await;
    pool.change(&Change::Rebalance { layout: Some(Layout::Raidz1), width: None }).await.unwrap();
    for i in (0..40).step_by(2) {
        pool.store().delete(&name(i)).await.unwrap();
    }
    settled(&pool).await;
    drop(pool);
    let pool = bench.open().await;
    for i in 0..40 {
        assert_eq!(pool.store().head(&name(i)).await.is_ok(), i % 2 == 1, "object {i}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_and_online() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 4).await;
    let disk = text(&bench.disks[1]);
    pool.change(&Change::Offline { disk: disk.clone() }).await.unwrap();
    assert_eq!(pool.status().state, PoolState::Degraded);
    let journal: Vec<bool> = pool.status().disks.iter().map(|disk| disk.journal).collect();
    assert_eq!(journal, [true, false, true], "it is not used any more");
    let error = pool.change(&Change::Offline { disk: text(&bench.disks[0]) }).await.unwrap_err().to_string();
    assert!(error.contains("out of reach"), "{error}");
    fill(&pool, 4, 4).await;
    pool.close().await.unwrap();
    let pool = bench.open().await;
    assert_eq!(pool.status().disks[1].state, DiskState::Offline, "until somebody says so");
    verify(&pool, 0, 8).await;
    pool.change(&Change::Online { disk, discard: false }).await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    scrubbed(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_takes_the_place_of_a_disk_that_failed() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 8).await;
    let spare = new_disk(&bench, "spare");
    pool.change(&Change::Add { disks: vec![spare.clone()], spare: true }).await.unwrap();
    assert_eq!(pool.status().spares, std::slice::from_ref(&spare));
    pool.close().await.unwrap();
    let pool = bench.open().await;
    assert_eq!((pool.status().spares.len(), pool.status().disks.len()), (1, 3));
    assert!(pool.status().notes.is_empty(), "{:?}", pool.status().notes);
    crate::tests::remove_folder(&bench.disks[2]);
    pool.check().await.unwrap();
    assert!(pool.core.blocking(|core| core.use_spare(2)).await.unwrap().unwrap());
    pool.core.mover.wake();
    settled(&pool).await;
    let status = pool.status();
    assert_eq!((status.state, status.spares.len(), status.disks.len()), (PoolState::Online, 0, 3), "{status:?}");
    verify(&pool, 0, 8).await;
    scrubbed(&pool).await;
}

/// The successor of a disk that has left is a disk like any other, and the advice on the next
/// failure is the usual one.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_was_taken_is_taken() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 8).await;
    // What is being written there meanwhile would be in the way of a removal.
    let lose = |disk: usize| std::fs::rename(&bench.disks[disk], bench.dir.path().join(format!("dead{disk}"))).unwrap();
    let (one, spare) = (new_disk(&bench, "one"), new_disk(&bench, "spare"));
    pool.change(&Change::Replace { old: text(&bench.disks[0]), new: one.clone() }).await.unwrap();
    settled(&pool).await;
    pool.change(&Change::Add { disks: vec![spare], spare: true }).await.unwrap();
    lose(2);
    pool.check().await.unwrap();
    assert!(pool.core.blocking(|core| core.use_spare(2)).await.unwrap().unwrap());
    pool.core.mover.wake();
    settled(&pool).await;
    assert!(pool.status().disks.iter().all(|disk| disk.replaces.is_none()), "{:?}", pool.status().disks);
    assert!(pool.core.members.label().members.iter().all(|member| member.replaces.is_none()));
    lose(1);
    pool.check().await.unwrap();
    let action = pool.status().action;
    assert!(action.contains(&format!("larder pool replace tank {} NEW-DISK", bench.disks[1].display())), "{action}");
    // A label of an earlier larder still says so.
    let stale = pool.core.members.member(1).unwrap().entry().id;
    pool.core.members.iter().next().unwrap().set_replaces(Some(uuid::Uuid::from_u128(stale.as_u128() ^ 1)));
    pool.core.members.write_labels(|_| {});
    pool.close().await.unwrap();
    let pool = Pool::open(crate::OpenOptions { disks: vec![one], ..bench.open_options() }).await.unwrap();
    assert!(pool.status().disks.iter().all(|disk| disk.replaces.is_none()), "{:?}", pool.status().disks);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_to_do_is_a_command_for_each_disk() {
    let bench = Bench::new(6);
    let pool = bench.create(Layout::Raidz2).await;
    fill(&pool, 0, 4).await;
    let away = |disk: usize| bench.dir.path().join(format!("away {disk}"));
    let disks: Vec<String> = bench.disks.iter().map(|disk| text(disk)).collect();
    for disk in [2, 4] {
        std::fs::rename(&bench.disks[disk], away(disk)).unwrap();
    }
    pool.check().await.unwrap();
    let action = pool.status().action;
    for disk in [2, 4] {
        let command = format!("larder pool replace tank {} NEW-DISK", disks[disk]);
        assert!(action.lines().any(|line| line == command), "{action}");
    }
    let spare = new_disk(&bench, "the spare");
    pool.change(&Change::Add { disks: vec![spare.clone()], spare: true }).await.unwrap();
    let action = pool.status().action;
    let says = format!("The spare {} takes the place of {} in 4:5", spare.display(), disks[2]);
    assert!(action.contains(&says) && !action.contains(&format!("replace tank {}", disks[2])), "{action}");
    assert!(action.lines().any(|line| line == format!("larder pool replace tank {} NEW-DISK", disks[4])), "{action}");
    pool.change(&Change::Remove { disk: text(&spare) }).await.unwrap();
    for disk in [2, 4] {
        std::fs::rename(away(disk), &bench.disks[disk]).unwrap();
    }
    pool.check().await.unwrap();
    pool.repaired().await;
    for disk in [2, 4] {
        pool.change(&Change::Offline { disk: disks[disk].clone() }).await.unwrap();
    }
    let status = pool.status();
    assert_eq!(status.action, format!("larder pool online tank {}\nlarder pool online tank {}", disks[2], disks[4]));
    assert!(status.status.contains(&format!("{} and {} were taken offline", disks[2], disks[4])), "{}", status.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_named() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool, 0, 4).await;
    assert!(pool.status().disks.iter().all(|disk| !disk.full));
    bench.faults(1).quota_bytes.store(1 << 20, SeqCst);
    tokio::time::sleep(Duration::from_millis(150)).await;
    let status = pool.status();
    assert!(status.disks[1].full && status.status.contains("disk1 is full"), "{status:?}");
    assert!(status.action.contains("larder pool add tank NEW-DISK"), "{}", status.action);
    assert_eq!(status.state, PoolState::Online);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 4).await;
    let label = pool.core.members.label();
    let full = new_disk(&bench, "full");
    std::fs::write(full.join("photo.jpg"), "x").unwrap();
    let own = bench.disks[0].clone();
    let cases = [
        (Change::Add { disks: vec![full.clone()], spare: false }, "photo.jpg"),
        (Change::Add { disks: vec![own.clone()], spare: false }, "is a disk of it already"),
        (Change::Replace { old: "nothing".into(), new: full }, "none of its disks"),
        (Change::Rebalance { layout: Some(Layout::Raidz3), width: None }, "at least 5 disks"),
        (Change::Rebalance { layout: None, width: Some(9) }, "width 9"),
        (Change::Keep { disk: text(&own) }, "not being removed"),
        (Change::Remove { disk: text(&own) }, "needs 3 disks"),
    ];
    for (change, says) in cases {
        for error in [pool.plan_change(&change).await.unwrap_err(), pool.change(&change).await.unwrap_err()] {
            assert!(error.to_string().contains(says), "{change:?}: {error}");
        }
    }
    assert_eq!(pool.core.members.label().members.len(), label.members.len());
}

/// Somebody mistypes where a disk is mounted, and the folder would lie on the system's disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_does_not_exist_is_not_made_a_member() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let typo = bench.dir.path().join("typo");
    let old = text(&bench.disks[0]);
    for change in [
        Change::Add { disks: vec![typo.clone()], spare: false },
        Change::Add { disks: vec![new_disk(&bench, "there"), typo.clone()], spare: true },
        Change::Replace { old, new: typo.clone() },
    ] {
        for error in [pool.plan_change(&change).await.unwrap_err(), pool.change(&change).await.unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains(&format!("mkdir {}", typo.display())), "{change:?}: {error}");
        }
        assert!(!typo.exists(), "{change:?}");
    }
    assert!(pool.status().spares.is_empty() && pool.status().disks.len() == 3);
}

/// What the layout needs stays, unless the disk is lost anyway: then as many copies as it survives
/// failures, and one.
#[tokio::test(flavor = "multi_thread")]
async fn no_disk_is_removed_that_the_layout_needs_unless_it_is_lost() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 8).await;
    let remove = |disk: usize| Change::Remove { disk: text(&bench.disks[disk]) };
    let error = pool.change(&remove(2)).await.unwrap_err().to_string();
    assert!(error.contains("needs 3 disks") && error.contains("rebalance tank --layout mirror"), "{error}");
    std::fs::rename(&bench.disks[2], bench.dir.path().join("dead")).unwrap();
    pool.check().await.unwrap();
    let plan = pool.change(&remove(2)).await.unwrap();
    assert_eq!((plan.before.failures_survived, plan.after.failures_survived, plan.after.disks), (0, 1, 2));
    assert!(plan.warnings.iter().any(|text| text.contains("--layout mirror")), "{:?}", plan.warnings);
    settled(&pool).await;
    assert_eq!(pool.status().state, PoolState::Online);
    scrubbed(&pool).await;
    let error = pool.change(&Change::Rebalance { layout: None, width: None }).await.unwrap_err().to_string();
    assert!(error.contains("--layout mirror"), "{error}");
    pool.change(&Change::Rebalance { layout: Some(Layout::Mirror2), width: None }).await.unwrap();
    settled(&pool).await;
    let error = pool.change(&remove(1)).await.unwrap_err().to_string();
    assert!(error.contains("needs 2 disks"), "{error}");
    verify(&pool, 0, 8).await;
}

fn written_bytes(pool: &Pool) -> HashMap<uuid::Uuid, u64> {
    pool.core.members.iter().map(|member| (member.id, member.counts.written_bytes.get())).collect()
}

/// Makes a change and holds what was said of its bytes beside what the disks then wrote.
async fn foretold(pool: &Pool, what: &str, change: Change) -> crate::ChangePlan {
    let plan = pool.plan_change(&change).await.unwrap();
    let before = written_bytes(pool);
    pool.change(&change).await.unwrap();
    settled(pool).await;
    pool.repaired().await;
    let after = written_bytes(pool).into_iter();
    let written: u64 = after.map(|(id, bytes)| bytes - before.get(&id).copied().unwrap_or(0)).sum();
    // Labels, the history and a segment of the journal are nobody's concern.
    let slack = plan.move_bytes / 6 + (1 << 20);
    assert!(written.abs_diff(plan.move_bytes) < slack, "{what}: {} said, {written} written", plan.move_bytes);
    plan
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dry_run_says_will_be_written_is_written() {
    let survived = |plan: &crate::ChangePlan| (plan.before.failures_survived, plan.after.failures_survived);
    // As many disks as objects are wide: all is written anew, narrower.
    let bench = Bench::new(6);
    let pool = bench.create(Layout::Raidz3).await;
    fill(&pool, 0, 12).await;
    let plan = foretold(&pool, "raidz3", Change::Remove { disk: text(&bench.disks[0]) }).await;
    assert!(plan.move_bytes > 30 << 20 && survived(&plan) == (3, 3), "{plan:?}");
    // Only what lies on the disk.
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool, 0, 16).await;
    let plan = foretold(&pool, "mirror", Change::Remove { disk: text(&bench.disks[3]) }).await;
    assert!(plan.move_bytes < 30 << 20 && survived(&plan) == (1, 1), "{plan:?}");
    // Another disk, whether the old one is there or not, and with a second one away.
    let lose = |bench: &Bench, disk: usize| {
        let away = bench.dir.path().join(format!("away{disk}"));
        std::fs::rename(&bench.disks[disk], away).unwrap();
    };
    for lost in 0..3 {
        let bench = Bench::new(6);
        let pool = bench.create(Layout::Raidz2).await;
        fill(&pool, 0, 12).await;
        (0..lost).for_each(|disk| lose(&bench, disk));
        pool.check().await.unwrap();
        let change = Change::Replace { old: text(&bench.disks[0]), new: new_disk(&bench, "new") };
        let plan = foretold(&pool, &format!("{lost} lost"), change).await;
        let others = (lost as u8).saturating_sub(1);
        assert_eq!(survived(&plan), (2 - lost as u8, 2 - others), "{lost} lost");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebalance_says_what_it_will_move() {
    use crate::disk::DiskOpener;
    let rebalance = Change::Rebalance { layout: None, width: None };
    // Files of others fill a disk: nothing of ours is better elsewhere.
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 8).await;
    let fill_up = async |bench: &Bench| {
        let others = bench.opener.open_disk(&bench.disks[0]).unwrap().create("photos").unwrap();
        others.write_at(&mut [std::io::IoSlice::new(b"x")], 600 << 20).unwrap();
        // What was seen of the room a moment ago counts.
        tokio::time::sleep(Duration::from_millis(150)).await;
    };
    fill_up(&bench).await;
    let plan = foretold(&pool, "files of others", rebalance.clone()).await;
    assert!(plan.move_bytes < 1 << 20, "small objects on two of three disks: {plan:?}");
    // Here it is, but only what there is.
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool, 0, 16).await;
    fill_up(&bench).await;
    let plan = foretold(&pool, "files of others beside ours", rebalance.clone()).await;
    assert!((1..30 << 20).contains(&plan.move_bytes), "{plan:?}");
    // Wider objects.
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 16).await;
    let new: Vec<PathBuf> = (3..6).map(|i| new_disk(&bench, &format!("disk{i}"))).collect();
    pool.change(&Change::Add { disks: new, spare: false }).await.unwrap();
    foretold(&pool, "wider", rebalance).await;
    foretold(&pool, "raidz2", Change::Rebalance { layout: Some(Layout::Raidz2), width: None }).await;
}

/// A shard leaves a disk and is back before the file that it left is unlinked.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_came_back_is_not_unlinked() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 4).await;
    let object = pool.core.objects.index().get("o/3").cloned().unwrap();
    let graves = object.placed().map(|(index, slot)| crate::object::index::Grave {
        slot,
        file: object.file_name(index),
        version: object.version,
        index,
        of: Some(object.path.clone()),
        is_copy: false,
    });
    pool.core.objects.graveyard.send(graves.collect());
    pool.core.objects.graveyard.barrier().await;
    scrubbed(&pool).await;
    verify(&pool, 0, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_is_used_by_name_or_given_up() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 4).await;
    let spares = [new_disk(&bench, "one"), new_disk(&bench, "two")];
    pool.change(&Change::Add { disks: spares.to_vec(), spare: true }).await.unwrap();
    pool.change(&Change::Replace { old: text(&bench.disks[0]), new: spares[0].clone() }).await.unwrap();
    settled(&pool).await;
    assert_eq!(pool.status().spares, spares[1..]);
    pool.change(&Change::Remove { disk: text(&spares[1]) }).await.unwrap();
    assert!(pool.status().spares.is_empty());
    assert_eq!(std::fs::read_dir(&spares[1]).unwrap().count(), 0, "an empty folder again");
    verify(&pool, 0, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_cut_short_when_it_was_added_is_added_again() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let disk = new_disk(&bench, "late");
    std::fs::create_dir_all(disk.join("objects/7f")).unwrap();
    std::fs::create_dir(disk.join("journal")).unwrap();
    std::fs::write(disk.join("larder.label.new"), "torn").unwrap();
    std::fs::write(disk.join("objects/7f/photo.jpg"), "mine").unwrap();
    let add = Change::Add { disks: vec![disk.clone()], spare: false };
    let error = pool.change(&add).await.unwrap_err();
    assert!(matches!(&error, PoolError::NotEmpty { found, .. } if found == "objects"), "{error}");
    std::fs::remove_file(disk.join("objects/7f/photo.jpg")).unwrap();
    pool.change(&add).await.unwrap();
    settled(&pool).await;
    assert_eq!(pool.status().disks.len(), 4);
}

/// Whoever opens the pool next owns all that its labels speak of.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_was_dropped_touches_no_label() {
    use crate::disk::DiskOpener;
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let core = pool.core.clone();
    drop(pool);
    let new = bench.dir.path().join("new");
    std::fs::create_dir(&new).unwrap();
    let disk = bench.opener.open_disk(&new).unwrap();
    let generation = core.members.label().generation;
    assert!(core.members.write_first_label(&*disk, uuid::Uuid::new_v4(), |_| {}).is_err());
    assert_eq!(std::fs::read_dir(&new).unwrap().count(), 0);
    assert!(!core.members.write_labels(|label| label.rebalancing = true));
    let old = bench.opener.open_disk(&bench.disks[0]).unwrap();
    assert!(!core.members.remove_label(&*old) && crate::member::label::read(&*old).unwrap().is_ok());
    assert_eq!((core.members.label().generation, core.members.is_rebalancing()), (generation, false));
    bench.open().await.close().await.unwrap();
}

/// The journal has no fewer copies because a disk leaves: it is a copy until another is.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_with_a_journal_leaves_when_another_has_it() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Mirror2).await;
    pool.log().append("a", 1, vec![noise(1, 1000).into()]).await.unwrap();
    assert_eq!(pool.status().disks.iter().map(|disk| disk.journal).collect::<Vec<_>>(), [true, true, false]);
    bench.faults(2).quota_bytes.store(64 << 10, SeqCst);
    pool.change(&Change::Remove { disk: text(&bench.disks[0]) }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(pool.core.members.label().journal.len(), 2);
    bench.faults(2).quota_bytes.store(1 << 30, SeqCst);
    settled(&pool).await;
    assert_eq!((pool.core.members.label().journal.len(), pool.status().disks.len()), (2, 2));
    drop(pool);
    crate::tests::remove_folder(&bench.disks[1]);
    let pool = bench.open().await;
    assert_eq!(pool.log().replay("a", 0).await.unwrap().len(), 1);
}

/// Folders on one filesystem share its room, those that join with those that are there.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_shared_room_once() {
    let bench = Bench::new(5);
    for disk in 0..5 {
        bench.faults(disk).filesystem.store(1, SeqCst);
        bench.faults(disk).quota_bytes.store(16 << 30, SeqCst);
    }
    let options = crate::CreateOptions { disks: bench.disks[..4].to_vec(), ..bench.options(Layout::Raidz1) };
    let pool = Pool::create(options).await.unwrap();
    let usable = async |change: Change| {
        let plan = pool.plan_change(&change).await.unwrap();
        plan.after.usable_bytes as f64 / plan.before.usable_bytes as f64
    };
    let (three, four, five) = (2.0 / 3.0, 3.0 / 4.0, 4.0 / 5.0);
    let near = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.02, "{value}, not {expected}");
    near(usable(Change::Add { disks: vec![bench.disks[4].clone()], spare: false }).await, five / four);
    near(usable(Change::Remove { disk: text(&bench.disks[0]) }).await, three / four);
    let replace = Change::Replace { old: text(&bench.disks[0]), new: bench.disks[4].clone() };
    near(usable(replace.clone()).await, 1.0);
    std::fs::rename(&bench.disks[0], bench.dir.path().join("away")).unwrap();
    let after = pool.plan_change(&replace).await.unwrap().after.usable_bytes as f64;
    std::fs::rename(bench.dir.path().join("away"), &bench.disks[0]).unwrap();
    pool.clear().await.unwrap();
    pool.repaired().await;
    let whole = pool.plan_change(&replace).await.unwrap().before.usable_bytes as f64;
    near(after, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_plans_tell_what_is_so() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 4).await;
    let survives = |plan: &crate::ChangePlan| (plan.before.failures_survived, plan.after.failures_survived);
    let refused = async |change: Change| pool.plan_change(&change).await.unwrap_err().to_string();
    let (one, two) = (text(&bench.disks[0]), text(&bench.disks[1]));
    // Whoever emptied it would lose what lies on it.
    let add = refused(Change::Add { disks: vec![bench.disks[0].clone()], spare: false }).await;
    assert!(add.contains("a disk of it already") && !add.contains("empty"), "{add}");
    let plan = pool.change(&Change::Offline { disk: one.clone() }).await.unwrap();
    assert_eq!(survives(&plan), (1, 0));
    let why = refused(Change::Offline { disk: two }).await;
    assert!(why.contains("bring the other disks back first"), "{why}");
    let back = refused(Change::Replace { old: one.clone(), new: bench.disks[0].clone() }).await;
    assert!(back.contains(&format!("larder pool online tank {one}")), "{back}");
    let plan = pool.change(&Change::Online { disk: one.clone(), discard: false }).await.unwrap();
    assert_eq!(survives(&plan), (0, 1));
    pool.repaired().await;
    let plan = pool.plan_change(&Change::Rebalance { layout: Some(Layout::Stripe), width: None }).await.unwrap();
    assert!(plan.warnings.iter().any(|warning| warning.contains("no redundancy")), "{plan:?}");
    pool.change(&Change::Remove { disk: one }).await.unwrap();
    settled(&pool).await;
    let left = pool.history().into_iter().find(|event| event.kind == "disk-removed").unwrap();
    assert!(left.text.contains("MiB written"), "{left:?}");
    let why = refused(Change::Remove { disk: text(&bench.disks[1]) }).await;
    assert!(why.contains("larder pool replace tank /") && why.contains("--layout mirror"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_safer_layout_writes_what_its_plan_says() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool, 0, 16).await;
    let change = Change::Rebalance { layout: Some(Layout::Raidz2), width: None };
    let plan = foretold(&pool, "raidz2", change).await;
    let done = pool.history().into_iter().rev().find(|event| event.text.contains("are laid out")).unwrap();
    let said = larder_base::units::ByteSize(plan.move_bytes - pool.core.journal_bytes()).to_string();
    assert!(done.text.ends_with(&format!("; {said} written")), "{} {plan:?}", done.text);
}

/// A disk that has left while a shard was being copied to it is named by nobody
/// (`moving.forgotten_when_empty`).
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_not_given_to_a_disk_that_has_left() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool, 0, 1).await;
    let object = pool.core.objects.index().get("o/0").unwrap().clone();
    let placed: Vec<(u8, u8)> = object.placed().collect();
    let free = (0..3).find(|slot| placed.iter().all(|(_, taken)| taken != slot)).unwrap();
    pool.core.members.member(free).unwrap().retire();
    assert!(pool.core.publish(&object, 0, free).is_err());
    pool.core.objects.graveyard.barrier().await;
    assert_eq!(object.placed().collect::<Vec<_>>(), placed);
    assert_eq!(bench.shards(usize::from(placed[0].1)).len(), 1, "what was there stays");
    verify(&pool, 0, 1).await;
}

/// The power goes when the new disk has its label, and no other disk knows of it
/// (`disks.label_before_named`).
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_was_cut_short_goes_on_or_is_asked_for_again() {
    use crate::disk::DiskOpener;
    for with_new in [false, true] {
        let bench = Bench::new(3);
        let pool = bench.create(Layout::Raidz1).await;
        fill(&pool, 0, 3).await;
        let new = new_disk(&bench, "new");
        let disk = bench.opener.open_disk(&new).unwrap();
        crate::change::create::prepare(&*disk).unwrap();
        let mut member = crate::member::label::Member::new(uuid::Uuid::new_v4(), new.clone());
        member.replaces = Some(pool.core.members.member(1).unwrap().id);
        pool.core.members.write_first_label(&*disk, member.id, |label| label.members.push(member.clone())).unwrap();
        bench.opener.fuel.store(0, SeqCst);
        drop(pool);
        bench.opener.fuel.store(i64::MAX, SeqCst);
        let mut options = bench.open_options();
        options.disks.extend(with_new.then(|| new.clone()));
        let pool = Pool::open(options).await.unwrap();
        verify(&pool, 0, 3).await;
        if !with_new {
            let replace = Change::Replace { old: text(&bench.disks[1]), new: new.clone() };
            std::fs::write(new.join("mine.txt"), "mine").unwrap();
            let error = pool.change(&replace).await.unwrap_err();
            assert!(matches!(&error, PoolError::NotEmpty { found, .. } if found == "mine.txt"), "{error}");
            std::fs::remove_file(new.join("mine.txt")).unwrap();
            pool.change(&replace).await.unwrap();
        }
        settled(&pool).await;
        pool.repaired().await;
        let status = pool.status();
        assert!(status.disks.len() == 3 && status.disks.iter().any(|disk| disk.path == new), "{status:?}");
        assert_eq!(status.state, PoolState::Online, "{status:?}");
        verify(&pool, 0, 3).await;
        pool.close().await.unwrap();
        let options = crate::OpenOptions { disks: [bench.disks.clone(), vec![new]].concat(), ..bench.open_options() };
        verify(&Pool::open(options).await.unwrap(), 0, 3).await;
    }
}
