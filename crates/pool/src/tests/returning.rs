//! Disks whose label was damaged, and disks that vanish while nobody reads or writes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::Change;
use crate::CreateOptions;
use crate::DiskState;
use crate::Layout;
use crate::Pool;
use crate::PoolError;
use crate::PoolState;
use crate::testing::{Bench, Trouble, noise};

const OBJECTS: u64 = 12;
const OBJECT_BYTES: usize = 3 << 20;

async fn fill(pool: &Pool) {
    for i in 0..OBJECTS {
        pool.store().put(&Path::from(format!("o/{i}")), noise(i, OBJECT_BYTES).into()).await.unwrap();
    }
}

async fn verify(pool: &Pool) {
    for i in 0..OBJECTS {
        let got = pool.store().get(&Path::from(format!("o/{i}"))).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(i, OBJECT_BYTES), "object {i}");
    }
}

fn files(directory: &std::path::Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

/// Random bytes in a few places of every file of a disk, labels and journal included.
fn scribble(bench: &Bench, disk: usize, seed: u64) {
    let mut all = Vec::new();
    files(&bench.disks[disk], &mut all);
    for (n, path) in all.iter().enumerate() {
        let mut bytes = std::fs::read(path).unwrap();
        for place in 0..1 + bytes.len() / (256 << 10) {
            if bytes.is_empty() {
                break;
            }
            let random = noise(seed + 1000 * n as u64 + place as u64, 16);
            let at = u64::from_le_bytes(random[..8].try_into().unwrap()) as usize % bytes.len();
            let length = [1, 16, 4096][usize::from(random[8] % 3)].min(bytes.len() - at);
            bytes[at..at + length].copy_from_slice(&noise(seed ^ at as u64, length));
        }
        std::fs::write(path, bytes).unwrap();
    }
    spoil_labels(bench, disk);
}

/// Both copies.
fn spoil_labels(bench: &Bench, disk: usize) {
    for name in ["larder.label", "larder.label.2"] {
        let path = bench.disks[disk].join(name);
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(&path, bytes).unwrap();
    }
}

fn remove_labels(bench: &Bench, disk: usize) {
    for name in ["larder.label", "larder.label.2"] {
        std::fs::remove_file(bench.disks[disk].join(name)).unwrap();
    }
}

/// Notes last until the disk is up to date, which may be soon; what happened is told for good.
fn history_text(pool: &Pool) -> String {
    let history = pool.history();
    let opened = history.iter().rposition(|event| event.kind == "opened").unwrap_or(0);
    let events = history[opened..].iter().map(|event| event.text.clone());
    pool.status().notes.into_iter().chain(events).collect::<Vec<_>>().join("\n")
}

/// Each disk in turn, so that what was repaired of one is what the loss of the next is survived
/// with.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_with_a_damaged_label_is_adopted_again() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    for entry in 1..40u64 {
        pool.log().append("wal", entry, vec![noise(entry, 50_000).into()]).await.unwrap();
    }
    pool.close().await.unwrap();
    for disk in 0..3 {
        scribble(&bench, disk, 77 + disk as u64);
        let pool = bench.open().await;
        let notes = history_text(&pool);
        assert!(notes.contains("label") && notes.contains(bench.disks[disk].to_str().unwrap()), "{notes}");
        assert!(pool.status().disks[disk].checksum_errors > 0);
        verify(&pool).await;
        pool.repaired().await;
        let status = pool.status();
        assert!(status.disks.iter().all(|disk| disk.state == DiskState::Online), "{status:?}");
        assert!(status.notes.is_empty(), "it is over: {status:?}");
        // Parity that no reader touches is repaired too.
        assert_eq!(pool.scrub().await.unwrap().repaired, 0, "disk {disk}");
        assert_eq!(pool.log().replay("wal", 0).await.unwrap().len(), 39);
        pool.close().await.unwrap();
    }
    let pool = bench.open().await;
    let status = pool.status();
    assert!(status.notes.is_empty() && status.disks.iter().all(|disk| disk.checksum_errors == 0), "{status:?}");
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_labels_is_adopted_again_in_its_place() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    pool.close().await.unwrap();
    drop(pool);
    remove_labels(&bench, 1);
    let pool = bench.open().await;
    let notes = history_text(&pool);
    assert!(notes.contains("labels are gone") && notes.contains(bench.disks[1].to_str().unwrap()), "{notes}");
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    assert_eq!(pool.scrub().await.unwrap().errors, 0);
    pool.close().await.unwrap();
    drop(pool);
    // In another place it is perhaps what is left of a disk that was taken out.
    remove_labels(&bench, 1);
    let elsewhere = bench.dir.path().join("elsewhere");
    std::fs::rename(&bench.disks[1], &elsewhere).unwrap();
    let mut options = bench.open_options();
    options.disks.push(elsewhere);
    let pool = Pool::open(options).await.unwrap();
    assert_eq!(pool.status().disks[1].state, DiskState::Missing);
    verify(&pool).await;
    pool.close().await.unwrap();
}

/// Clear and online both take it back, and neither says so where it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_loses_its_labels_while_serving_is_taken_back_when_asked_for() {
    for online in [false, true] {
        let bench = Bench::new(3);
        let pool = bench.create(Layout::Raidz1).await;
        fill(&pool).await;
        let change = Change::Online { disk: bench.disks[1].display().to_string(), discard: false };
        remove_labels(&bench, 1);
        pool.check().await.unwrap();
        assert_eq!(pool.status().disks[1].state, DiskState::Removed);
        if online {
            pool.change(&change).await.unwrap();
        } else {
            pool.clear().await.unwrap();
        }
        pool.repaired().await;
        assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
        verify(&pool).await;
        // Nothing of the pool lies there any more.
        std::fs::rename(&bench.disks[1], bench.dir.path().join("away")).unwrap();
        std::fs::create_dir(&bench.disks[1]).unwrap();
        pool.check().await.unwrap();
        let refused = pool.change(&change).await.unwrap_err().to_string();
        assert!(refused.contains("is not back") && refused.contains("labels are gone"), "{refused}");
        assert!(pool.status().status.contains("labels are gone"), "{:?}", pool.status());
        assert_eq!(pool.history().iter().filter(|event| event.text.contains("online")).count(), usize::from(online));
        // What the status advises.
        pool.change(&Change::Replace { old: bench.disks[1].display().to_string(), new: bench.disks[1].clone() })
            .await
            .unwrap();
        pool.settled().await;
        pool.repaired().await;
        assert_eq!(pool.status().disks.len(), 3);
        verify(&pool).await;
        pool.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_elsewhere_does_not_come_back_with_an_adopted_disk() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool).await;
    pool.close().await.unwrap();
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[1], &away).unwrap();
    let pool = bench.open().await;
    pool.store().delete(&Path::from("o/3")).await.unwrap();
    pool.store().put(&Path::from("o/2"), noise(22, 60_000).into()).await.unwrap();
    pool.close().await.unwrap();
    std::fs::rename(&away, &bench.disks[1]).unwrap();
    spoil_labels(&bench, 1);
    let pool = bench.open().await;
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    pool.close().await.unwrap();
    crate::tests::remove_folder(&bench.disks[0]);
    let pool = bench.open().await;
    assert!(pool.store().get(&Path::from("o/3")).await.is_err());
    let got = pool.store().get(&Path::from("o/2")).await.unwrap().bytes().await.unwrap();
    assert!(got == noise(22, 60_000));
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_damaged_labels_than_the_layout_survives_are_refused() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    pool.close().await.unwrap();
    spoil_labels(&bench, 0);
    spoil_labels(&bench, 2);
    let error = Pool::open(bench.open_options()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, PoolError::TooManyLost { .. }), "{text}");
    let names = [0, 2].map(|disk: usize| bench.disks[disk].to_str().unwrap().to_owned());
    assert!(names.iter().all(|name| text.contains(name)) && text.contains("label"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_another_pool_is_not_adopted() {
    let (bench, other) = (Bench::new(2), Bench::new(1));
    let pool = bench.create(Layout::Mirror2).await;
    fill(&pool).await;
    pool.close().await.unwrap();
    let alien = Pool::create(CreateOptions { name: "alien".into(), ..other.options(Layout::Stripe) }).await.unwrap();
    fill(&alien).await;
    alien.close().await.unwrap();
    crate::tests::remove_folder(&bench.disks[1]);
    std::fs::rename(&other.disks[0], &bench.disks[1]).unwrap();
    spoil_labels(&bench, 1);
    let before = bench.shards(1).len();
    let pool = bench.open().await;
    let status = pool.status();
    assert_eq!(status.disks[1].state, DiskState::Missing, "{status:?}");
    assert!(status.notes.iter().any(|note| note.contains("damaged")), "{status:?}");
    pool.repaired().await;
    pool.close().await.unwrap();
    assert_eq!(bench.shards(1).len(), before);
}

/// The second copy of the label speaks for a disk without redundancy, too.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_copy_of_the_label_is_used() {
    let bench = Bench::new(2);
    let pool = bench.create(Layout::Stripe).await;
    fill(&pool).await;
    pool.close().await.unwrap();
    for disk in &bench.disks {
        std::fs::write(disk.join("larder.label"), b"nonsense").unwrap();
    }
    let pool = bench.open().await;
    verify(&pool).await;
    pool.repaired().await;
    let status = pool.status();
    assert!(status.disks.iter().all(|d| d.state == DiskState::Online && d.checksum_errors > 0), "{status:?}");
    pool.close().await.unwrap();
    assert!(bench.disks.iter().all(|disk| std::fs::read(disk.join("larder.label")).unwrap().len() > 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_damaged_while_the_pool_is_open_is_healed_by_clear() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    scribble(&bench, 1, 5);
    pool.core.objects.files.clear();
    pool.check().await.unwrap();
    verify(&pool).await;
    pool.clear().await.unwrap();
    pool.repaired().await;
    assert!(pool.status().disks.iter().all(|disk| disk.state == DiskState::Online), "{:?}", pool.status());
    assert_eq!(pool.scrub().await.unwrap().repaired, 0);
    pool.close().await.unwrap();
}

/// A cable that several disks hang on: when it is back, so is the pool, whatever was seen
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_disks_were_all_away_for_a_while_opens_again() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    let away = |disk: usize| bench.dir.path().join(format!("away{disk}"));
    (0..3).for_each(|disk| std::fs::rename(&bench.disks[disk], away(disk)).unwrap());
    pool.check().await.unwrap();
    assert_eq!(pool.status().state, PoolState::Faulted);
    drop(pool);
    (0..3).for_each(|disk| std::fs::rename(away(disk), &bench.disks[disk]).unwrap());
    let pool = bench.open().await;
    verify(&pool).await;
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    pool.close().await.unwrap();
}

/// Without a read or write that could notice.
#[tokio::test(flavor = "multi_thread")]
async fn folders_that_vanish_are_noticed_by_a_check() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    let away = |disk: usize| bench.dir.path().join(format!("away{disk}"));
    std::fs::rename(&bench.disks[0], away(0)).unwrap();
    pool.check().await.unwrap();
    let status = pool.status();
    assert_eq!((status.state, status.disks[0].state), (PoolState::Degraded, DiskState::Removed), "{status:?}");
    assert!(status.status.contains("disk0") && status.action.contains("larder pool clear"), "{status:?}");
    // Another directory in its place is not the disk.
    std::fs::create_dir(&bench.disks[0]).unwrap();
    std::fs::rename(&bench.disks[1], away(1)).unwrap();
    std::fs::rename(&bench.disks[2], away(2)).unwrap();
    pool.check().await.unwrap();
    let status = pool.status();
    assert_eq!(status.state, PoolState::Faulted, "{status:?}");
    assert!(status.disks.iter().all(|disk| disk.state == DiskState::Removed), "{status:?}");
    assert!(status.action.contains("Reconnect"), "{status:?}");
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_renamed_away_and_back_is_brought_up_to_date() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[0], &away).unwrap();
    pool.check().await.unwrap();
    fill(&pool).await;
    std::fs::rename(&away, &bench.disks[0]).unwrap();
    pool.check().await.unwrap();
    pool.repaired().await;
    assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
    // What is being written there meanwhile would be in the way of a removal.
    std::fs::rename(&bench.disks[1], bench.dir.path().join("dead")).unwrap();
    pool.check().await.unwrap();
    pool.core.objects.files.clear();
    verify(&pool).await;
    pool.close().await.unwrap();
}

/// `label.back_before_anything_goes`
#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_from_a_disk_that_is_back_before_its_label_says_so() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    let away = bench.dir.path().join("away");
    std::fs::rename(&bench.disks[0], &away).unwrap();
    pool.check().await.unwrap();
    fill(&pool).await;
    std::fs::rename(&away, &bench.disks[0]).unwrap();
    let before: BTreeSet<PathBuf> = bench.shards(0).into_iter().collect();
    assert!(!before.is_empty());
    *bench.faults(0).bad_writes.lock() = Trouble::all("larder.label", u64::MAX);
    assert_eq!(pool.reconnect().await.unwrap(), 0);
    assert_eq!(bench.shards(0).into_iter().collect::<BTreeSet<_>>(), before);
    *bench.faults(0).bad_writes.lock() = Trouble::default();
    assert_eq!(pool.reconnect().await.unwrap(), 1);
    assert!(bench.shards(0).iter().all(|shard| !before.contains(shard)));
    pool.repaired().await;
    verify(&pool).await;
    pool.close().await.unwrap();
}

/// Somebody empties a disk; what is written to it then nobody depends on.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_emptied_in_place_is_replaced_by_itself() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&pool).await;
    for entry in std::fs::read_dir(&bench.disks[0]).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { crate::tests::remove_folder(path) } else { std::fs::remove_file(path).unwrap() }
    }
    for file in ["larder.history", "larder.scrub", "larder.history.new"] {
        std::fs::write(bench.disks[0].join(file), "of another time").unwrap();
    }
    pool.check().await.unwrap();
    assert_eq!(pool.status().disks[0].state, DiskState::Removed);
    let path = bench.disks[0].display().to_string();
    let change = Change::Replace { old: path, new: bench.disks[0].clone() };
    // Something of somebody else's is not.
    std::fs::write(bench.disks[0].join("mine"), "x").unwrap();
    let refused = pool.change(&change).await.unwrap_err().to_string();
    assert!(refused.contains("'mine'") && refused.contains("larder pool clear tank"), "{refused}");
    std::fs::remove_file(bench.disks[0].join("mine")).unwrap();
    pool.plan_change(&change).await.unwrap();
    pool.change(&change).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(60), pool.settled()).await.unwrap();
    let status = pool.status();
    assert_eq!((status.disks.len(), status.state), (3, PoolState::Online), "{status:?}");
    verify(&pool).await;
    assert_eq!(pool.scrub().await.unwrap().repaired, 0);
    pool.close().await.unwrap();
    crate::tests::remove_folder(&bench.disks[1]);
    verify(&bench.open().await).await;
}

/// While the pool is closed, and while it is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_whose_objects_were_removed_is_resilvered() {
    for is_open in [false, true] {
        let bench = Bench::new(3);
        let mut pool = bench.create(Layout::Raidz1).await;
        fill(&pool).await;
        if !is_open {
            pool.close().await.unwrap();
        }
        crate::tests::remove_folder(bench.disks[0].join("objects"));
        if is_open {
            verify(&pool).await;
            pool.clear().await.unwrap();
        } else {
            pool = bench.open().await;
            assert!(history_text(&pool).contains("'objects' is gone"), "{}", history_text(&pool));
        }
        pool.repaired().await;
        let status = pool.status();
        assert!(status.disks.iter().all(|disk| disk.state == DiskState::Online), "{status:?}");
        verify(&pool).await;
        pool.scrub().await.unwrap();
        pool.repaired().await;
        pool.close().await.unwrap();
        crate::tests::remove_folder(&bench.disks[1]);
        verify(&bench.open().await).await;
    }
}

/// An older copy of a disk lacks what was put since; another disk goes before it is up to date.
#[tokio::test(flavor = "multi_thread")]
async fn status_and_scrub_say_what_cannot_be_read_while_one_disk_is_stale_and_another_away() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let away = |disk: usize| bench.dir.path().join(format!("away{disk}"));
    super::rolled_back::copy(&bench.disks[1], &bench.dir.path().join("older"));
    fill(&pool).await;
    std::fs::rename(&bench.disks[1], away(1)).unwrap();
    pool.check().await.unwrap();
    // It is not brought up to date yet.
    pool.tasks.0[0].abort();
    std::fs::rename(bench.dir.path().join("older"), &bench.disks[1]).unwrap();
    pool.check().await.unwrap();
    assert_eq!(pool.status().disks[1].state, DiskState::Resilvering);
    assert_eq!((pool.status().state, pool.out_of_reach()), (PoolState::Degraded, (Vec::new(), 0)));

    std::fs::rename(&bench.disks[0], away(0)).unwrap();
    pool.check().await.unwrap();
    let path = Path::from("o/0");
    let status = pool.status();
    let read = pool.store().get_range(&path, 0..OBJECT_BYTES as u64).await;
    assert!(read.is_err(), "{status:#?}");
    assert_eq!(status.state, PoolState::Faulted, "{}", status.status);
    assert!(status.status.contains("12 objects cannot be read meanwhile"), "{}", status.status);
    assert_eq!(
        pool.out_of_reach().0.iter().map(|one| &one.object[..]).filter(|path| path.starts_with("o/")).count(),
        12
    );
    let scrub = pool.scrub().await.unwrap();
    assert_eq!(scrub.unrepaired, OBJECTS, "{scrub:?}");

    std::fs::rename(away(0), &bench.disks[0]).unwrap();
    pool.check().await.unwrap();
    assert_eq!(pool.out_of_reach(), (Vec::new(), 0));
    verify(&pool).await;
    assert_eq!(pool.scrub().await.unwrap().unrepaired, 0);
    assert_eq!(pool.damage(), (Vec::new(), 0), "nothing is lost");
}

/// A disk that is mounted elsewhere now is known by its label, whatever a person types.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_in_another_place_is_known_by_its_label() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&"one".into(), noise(1, 400_000).into()).await.unwrap();
    let (old, new) = (bench.disks[2].clone(), bench.disks[2].with_file_name("elsewhere"));
    std::fs::rename(&old, &new).unwrap();
    pool.check().await.unwrap();
    pool.store().put(&"two".into(), noise(2, 400_000).into()).await.unwrap();
    assert_eq!(pool.status().disks[2].state, DiskState::Removed);
    assert!(pool.status().action.contains("larder pool online tank DIR"), "{}", pool.status().action);

    let command = format!("larder pool online tank {}", new.display());
    let replace = Change::Replace { old: old.display().to_string(), new: new.clone() };
    let add = Change::Add { disks: vec![new.clone()], spare: false };
    for change in [replace, add] {
        let refused = pool.change(&change).await.unwrap_err().to_string();
        assert!(refused.contains(&command), "{refused}");
    }
    // Nothing is there, and another disk of the pool is in use.
    for wrong in [bench.disks[2].with_file_name("nowhere"), old.clone()] {
        let wrong = Change::Online { disk: wrong.display().to_string(), discard: false };
        pool.change(&wrong).await.unwrap_err();
    }
    pool.change(&Change::Online { disk: new.display().to_string(), discard: false }).await.unwrap();
    pool.repaired().await;
    assert!(pool.status().disks.iter().all(|disk| disk.state == DiskState::Online), "{:?}", pool.status());
    assert_eq!(pool.disks()[2], new);
    pool.close().await.unwrap();
    drop(pool);

    let disks = vec![bench.disks[0].clone(), bench.disks[1].clone()];
    let pool = Pool::open(crate::OpenOptions { disks, ..bench.open_options() }).await.unwrap();
    assert_eq!(pool.disks()[2], new, "the labels say where it is");
    assert_eq!(pool.status().state, crate::PoolState::Online);
}

/// The history names a disk by its folder, whatever a person typed.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_told_by_folders() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let id = pool.status().disks[1].id.to_string();
    pool.change(&Change::Offline { disk: id.clone() }).await.unwrap();
    pool.change(&Change::Online { disk: id[..8].to_owned(), discard: false }).await.unwrap();
    pool.repaired().await;
    let new = bench.disks[0].with_file_name("new");
    std::fs::create_dir(&new).unwrap();
    pool.change(&Change::Replace { old: id.clone(), new }).await.unwrap();
    pool.settled().await;
    let texts: Vec<String> = pool.history().into_iter().map(|event| event.text).collect();
    let path = bench.disks[1].display().to_string();
    for word in ["was taken offline", "was brought online", "is being replaced with"] {
        assert!(texts.iter().any(|text| text.starts_with(&format!("{path} {word}"))), "{word}: {texts:?}");
    }
    assert!(texts.iter().all(|text| !text.contains(&id[..8])), "{texts:?}");
}
