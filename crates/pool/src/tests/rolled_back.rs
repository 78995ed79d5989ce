//! Journal copies that are gone or old, and disks that are older copies of themselves: what was
//! acknowledged is never given up silently.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use object_store::ObjectStoreExt;

use crate::DiskState;
use crate::Layout;
use crate::OpenOptions;
use crate::Pool;
use crate::PoolError;
use crate::disk::DiskOpener;
use crate::member::label;
use crate::salvage::{Salvage, SalvageOptions};
use crate::testing::{Bench, noise};

const STREAM: &str = "s";
const EARLY: u64 = 5;
const ALL: u64 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    FolderRemoved,
    FilesRemoved,
    Emptied,
    Zeroed,
    OlderCopy,
}

const LOSSES: [Loss; 5] = [Loss::FolderRemoved, Loss::FilesRemoved, Loss::Emptied, Loss::Zeroed, Loss::OlderCopy];

async fn append(pool: &Pool, ids: std::ops::RangeInclusive<u64>) {
    for id in ids {
        pool.log().append(STREAM, id, vec![Bytes::from(noise(id, 900))]).await.unwrap();
        let path = object_store::path::Path::from(format!("o/{id}"));
        pool.store().put(&path, noise(id, 5000).into()).await.unwrap();
    }
}

async fn entries(pool: &Pool) -> Vec<u64> {
    pool.log().replay(STREAM, 0).await.unwrap().into_iter().map(|entry| entry.id).collect()
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { _ = std::fs::copy(entry.path(), to).unwrap() }
    }
}

/// Every file and its content, but for the lock.
fn content(disk: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(disk).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(content(&path));
        } else if !path.ends_with("larder.lock") {
            all.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    all
}

fn inflict(bench: &Bench, disk: usize, loss: Loss) {
    let journal = bench.disks[disk].join("journal");
    let each = |change: &dyn Fn(&Path)| {
        std::fs::read_dir(&journal).unwrap().for_each(|entry| change(&entry.unwrap().path()));
    };
    match loss {
        Loss::FolderRemoved => crate::tests::remove_folder(&journal),
        Loss::FilesRemoved => each(&|file| std::fs::remove_file(file).unwrap()),
        Loss::Emptied => each(&|file| std::fs::write(file, b"").unwrap()),
        Loss::Zeroed => each(&|file| {
            let length = std::fs::metadata(file).unwrap().len() as usize;
            std::fs::write(file, vec![0; length]).unwrap();
        }),
        Loss::OlderCopy => {
            crate::tests::remove_folder(&bench.disks[disk]);
            copy(&bench.dir.path().join("older"), &bench.disks[disk]);
        }
    }
}

/// A pool that was closed once, used again and killed. Its journal is on disks 0 and 1; an older
/// copy of disk 1 lies aside.
async fn used_and_killed(layout: Layout, disks: usize) -> Bench {
    let bench = Bench::new(disks);
    let pool = bench.create(layout).await;
    append(&pool, 1..=EARLY).await;
    pool.close().await.unwrap();
    drop(pool);
    copy(&bench.disks[1], &bench.dir.path().join("older"));
    let pool = bench.open().await;
    append(&pool, EARLY + 1..=ALL).await;
    drop(pool);
    bench
}

fn history_text(pool: &Pool) -> String {
    let history: Vec<String> = pool.history().into_iter().map(|event| event.text).collect();
    [pool.status().notes, history].concat().join("\n")
}

#[tokio::test]
async fn a_copy_that_is_lost_beside_a_good_one_is_made_anew_and_told_of() {
    for loss in LOSSES {
        let bench = used_and_killed(Layout::Raidz1, 3).await;
        inflict(&bench, 1, loss);
        let pool = bench.open().await;
        assert_eq!(entries(&pool).await.len() as u64, ALL, "{loss:?}");
        let path = bench.disks[1].display().to_string();
        assert!(history_text(&pool).lines().any(|line| line.contains(&path)), "{loss:?}: {}", history_text(&pool));
        pool.repaired().await;
        pool.close().await.unwrap();
        drop(pool);
        // The copy that was made anew is as good as the other.
        std::fs::rename(&bench.disks[0], bench.dir.path().join("away")).unwrap();
        let pool = bench.open().await;
        assert_eq!(entries(&pool).await.len() as u64, ALL, "{loss:?}");
        for id in 1..=ALL {
            let path = object_store::path::Path::from(format!("o/{id}"));
            assert_eq!(pool.store().get(&path).await.unwrap().bytes().await.unwrap(), noise(id, 5000), "{loss:?}");
        }
    }
}

#[tokio::test]
async fn the_only_copy_lost_is_refused_and_the_returning_disk_has_all() {
    for (layout, disks) in [(Layout::Raidz1, 3), (Layout::Mirror2, 2)] {
        for loss in LOSSES {
            if (layout, loss) == (Layout::Mirror2, Loss::OlderCopy) {
                // An older copy of the only disk that is here is a whole pool: nothing beside it
                // says that there was more.
                continue;
            }
            let bench = used_and_killed(layout, disks).await;
            inflict(&bench, 1, loss);
            let away = bench.dir.path().join("away");
            std::fs::rename(&bench.disks[0], &away).unwrap();
            let before: Vec<_> = bench.disks.iter().map(|disk| content(disk)).collect();
            let refused = Pool::open(bench.open_options()).await;
            let Err(error) = refused.map(drop) else { panic!("{layout} {loss:?}: opened with what is left") };
            let text = error.to_string();
            assert!(matches!(error, PoolError::ChangesLost { .. } | PoolError::TooManyLost { .. }), "{loss:?}: {text}");
            assert!(text.contains(&bench.disks[0].display().to_string()), "{loss:?} names no disk that helps: {text}");
            let after: Vec<_> = bench.disks.iter().map(|disk| content(disk)).collect();
            assert!(before == after, "{layout} {loss:?}: a refused opening has changed the disks");

            std::fs::rename(&away, &bench.disks[0]).unwrap();
            let pool = bench.open().await;
            assert_eq!(entries(&pool).await.len() as u64, ALL, "{layout} {loss:?}");
            for id in 1..=ALL {
                let path = object_store::path::Path::from(format!("o/{id}"));
                let got = pool.store().get(&path).await.unwrap().bytes().await.unwrap();
                assert_eq!(got, noise(id, 5000), "{layout} {loss:?}");
            }
        }
    }
}

#[tokio::test]
async fn all_copies_lost_are_refused_until_the_loss_is_accepted() {
    for loss in [Loss::FolderRemoved, Loss::FilesRemoved, Loss::Emptied, Loss::Zeroed] {
        let bench = used_and_killed(Layout::Raidz1, 3).await;
        inflict(&bench, 0, loss);
        inflict(&bench, 1, loss);
        let error = Pool::open(bench.open_options()).await.map(drop).expect_err("the journal is gone");
        assert!(matches!(error, PoolError::ChangesLost { .. }), "{loss:?}: {error}");
        let options = SalvageOptions { disks: bench.disks.clone(), pool: None, opener: bench.opener.clone() };
        let salvage = Salvage::open(&options).unwrap();
        assert!(!salvage.log(STREAM).faults.is_empty(), "{loss:?}: recover would call it whole");
        drop(salvage);
        let pool = Pool::open(OpenOptions { accept_loss: true, ..bench.open_options() }).await.unwrap();
        assert!(entries(&pool).await.is_empty());
        assert!(!pool.log().is_proven(), "{loss:?}");
        assert!(history_text(&pool).contains("acknowledged changes"), "{loss:?}: {}", history_text(&pool));
        pool.close().await.unwrap();
        drop(pool);
        let pool = bench.open().await;
        append(&pool, 100..=101).await;
        drop(pool);
        // The decision stands, and so does what follows from it, until somebody has looked.
        let pool = bench.open().await;
        assert_eq!(entries(&pool).await, [100, 101], "{loss:?}");
        assert!(!pool.log().is_proven());
        pool.clear().await.unwrap();
        pool.close().await.unwrap();
        drop(pool);
        assert!(bench.open().await.log().is_proven());
    }
}

#[tokio::test]
async fn an_older_copy_of_a_disk_is_believed_only_where_the_loss_is_accepted() {
    let bench = used_and_killed(Layout::Raidz1, 3).await;
    inflict(&bench, 1, Loss::OlderCopy);
    crate::tests::remove_folder(&bench.disks[0]);
    assert!(Pool::open(bench.open_options()).await.is_err());
    let pool = Pool::open(OpenOptions { accept_loss: true, ..bench.open_options() }).await.unwrap();
    assert_eq!(entries(&pool).await.len() as u64, EARLY);
    assert!(history_text(&pool).contains("an older copy of itself"), "{}", history_text(&pool));
    append(&pool, 100..=101).await;
    drop(pool);
    assert_eq!(entries(&bench.open().await).await.len() as u64, EARLY + 2);
}

#[tokio::test]
async fn an_older_copy_beside_the_others_is_stale_and_heals() {
    let bench = used_and_killed(Layout::Raidz1, 3).await;
    inflict(&bench, 1, Loss::OlderCopy);
    let pool = bench.open().await;
    let history_text = history_text(&pool);
    assert!(history_text.contains("an older copy of itself"), "{history_text}");
    pool.repaired().await;
    assert_eq!(pool.status().disks[1].state, DiskState::Online);
}

#[tokio::test]
async fn a_pool_that_was_never_used_opens_again() {
    let bench = Bench::new(3);
    drop(bench.create(Layout::Raidz1).await);
    drop(bench.open().await);
    let journal = bench.disks[1].join("journal");
    assert!(journal.join("segment-0000").exists() || std::fs::read_dir(&journal).unwrap().next().is_some());
    bench.open().await.close().await.unwrap();
}

#[tokio::test]
async fn a_label_that_was_not_written_to_the_end_is_told_and_nothing_else() {
    let bench = used_and_killed(Layout::Raidz1, 3).await;
    let disk = bench.opener.open_disk(&bench.disks[1]).unwrap();
    let mut label = label::read(&*disk).unwrap().unwrap();
    (label.generation, label.nonce) = label.history.remove(0);
    label::write(&*disk, &label).unwrap();
    drop(disk);
    let pool = bench.open().await;
    assert_eq!(entries(&pool).await.len() as u64, ALL);
    let path = bench.disks[1].display().to_string();
    let is_about = |text: &String| text.contains(&path) && text.contains("stale");
    assert!(pool.status().notes.iter().any(is_about), "{:?}", pool.status().notes);
    assert!(pool.history().iter().any(|event| is_about(&event.text)), "{:?}", pool.history());
    assert_eq!(pool.status().disks[1].state, DiskState::Online);
}
