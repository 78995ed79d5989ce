#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, PutPayload};

use super::*;
use crate::CreateOptions;
use crate::Layout;
use crate::OpenOptions;
use crate::Pool;

const OBJECTS: usize = 12;

fn content(n: usize) -> Vec<u8> {
    (0..n * 90_000 + 17).map(|i| (i * 31 + i / 256 * 7 + n) as u8).collect()
}

/// A pool of three disks with objects and log entries, closed; its folders.
async fn filled(folder: &Path, layout: Layout) -> Vec<PathBuf> {
    let disks: Vec<PathBuf> = (0..3).map(|n| folder.join(format!("d{n}"))).collect();
    let pool = Pool::create(CreateOptions::new("tank", layout, disks.clone())).await.unwrap();
    let store = pool.store();
    for n in 0..OBJECTS {
        let path = ObjectPath::from(format!("a/b{n}"));
        store.put(&path, PutPayload::from(content(n))).await.unwrap();
    }
    store.put(&ObjectPath::from("gone"), PutPayload::from_static(b"x")).await.unwrap();
    store.delete(&ObjectPath::from("gone")).await.unwrap();
    for id in 1..=5u64 {
        if id == 5 {
            pool.log().trim("wal", 2).await.unwrap();
        }
        pool.log().append("wal", id, vec![Bytes::from(vec![id as u8; 5000])]).await.unwrap();
    }
    pool.close().await.unwrap();
    disks
}

/// Every file below the folders, with its bytes.
fn state(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path)
            } else {
                drop(files.insert(path.clone(), std::fs::read(&path).unwrap()))
            }
        }
    }
    files
}

async fn read_back(salvage: &Salvage) -> usize {
    let store = salvage.store();
    let mut intact = 0;
    for n in 0..OBJECTS {
        let path = ObjectPath::from(format!("a/b{n}"));
        let Ok(got) = store.get(&path).await else { continue };
        let Ok(bytes) = got.bytes().await else { continue };
        assert!(bytes == content(n), "object {n}: wrong bytes are worse than none");
        let some = 1000.min(bytes.len() as u64)..(70_000 * n as u64).clamp(1000, bytes.len() as u64 + 1000);
        let some = some.start.min(some.end.min(bytes.len() as u64))..some.end.min(bytes.len() as u64);
        if !some.is_empty() {
            assert_eq!(
                store.get_range(&path, some.clone()).await.unwrap(),
                content(n)[some.start as usize..some.end as usize]
            );
        }
        intact += 1;
    }
    intact
}

fn open(disks: &[PathBuf]) -> Salvage {
    Salvage::open(&SalvageOptions::new(disks.to_vec())).unwrap()
}

#[tokio::test]
async fn nothing_is_changed_and_nothing_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let disks = filled(folder.path(), Layout::Raidz1).await;
    let temp = disks[0].join("objects/00/!00000000000000ff.00");
    std::fs::create_dir_all(temp.parent().unwrap()).unwrap();
    std::fs::write(&temp, "half").unwrap();
    let before = state(folder.path());
    let salvage = open(&disks);
    assert_eq!(read_back(&salvage).await, OBJECTS);
    assert_eq!((salvage.report().objects, salvage.report().objects_incomplete), (OBJECTS as u64, 0));
    assert_eq!(salvage.report().name.as_deref(), Some("tank"));
    let store = salvage.store();
    assert!(store.put(&"new".into(), PutPayload::from_static(b"x")).await.is_err());
    assert!(store.delete(&"a/b1".into()).await.is_err());
    assert!(store.get(&"gone".into()).await.is_err());
    let log = salvage.log("wal");
    assert_eq!(log.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(log.faults.is_empty() && log.entries[0].payload == vec![3u8; 5000]);
    assert!(salvage.verify("a/b7").is_empty());
    assert!(state(folder.path()) == before, "a file was changed");
}

#[tokio::test]
async fn more_is_missing_than_the_layout_survives() {
    let folder = tempfile::tempdir().unwrap();
    let disks = filled(folder.path(), Layout::Raidz1).await;
    // Two of three disks lose a part each; no object loses two shards, yet no opening would take
    // it.
    for (n, disk) in disks.iter().take(2).enumerate() {
        for (path, bytes) in
            state(disk).into_iter().filter(|(path, _)| path.parent().unwrap().parent().unwrap().ends_with("objects"))
        {
            let number = bytes.get(40).copied().unwrap_or(0);
            if usize::from(number) % 2 == n {
                std::fs::remove_file(path).unwrap();
            }
        }
        std::fs::remove_file(disk.join("larder.label")).unwrap();
        std::fs::remove_file(disk.join("larder.label.2")).unwrap();
    }
    assert!(Pool::open(OpenOptions::new(disks.clone())).await.is_err());
    assert!(read_back(&open(&disks)).await >= OBJECTS / 2);
    // All labels gone: headers say whose they are.
    std::fs::remove_file(disks[2].join("larder.label")).unwrap();
    std::fs::remove_file(disks[2].join("larder.label.2")).unwrap();
    let salvage = open(&disks);
    assert!(read_back(&salvage).await >= OBJECTS / 2);
    assert_eq!(salvage.report().name, None);
    assert_eq!(salvage.log("wal").entries.len(), 3);
}

#[tokio::test]
async fn blocks_of_all_shards_are_damaged_but_not_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let disks = filled(folder.path(), Layout::Raidz1).await;
    // Block 0 of every file on disk 0, block 1 on disk 1, block 2 on disk 2.
    for (n, disk) in disks.iter().enumerate() {
        for (path, mut bytes) in state(&disk.join("objects")) {
            let header = crate::object::shard::header_length(&bytes).unwrap() as usize;
            if let Some(byte) = bytes.get_mut(header + n * 32_776 + 5) {
                *byte ^= 0x40;
                std::fs::write(path, bytes).unwrap();
            }
        }
    }
    let salvage = open(&disks);
    assert_eq!(read_back(&salvage).await, OBJECTS);
    let bad = salvage.verify("a/b9");
    assert_eq!(bad.len(), 3, "{bad:?}");
    assert!(bad.iter().all(|damage| damage.offset_bytes.is_some_and(|at| at > 0)));
}

#[tokio::test]
async fn shards_that_lost_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let disks = filled(folder.path(), Layout::Raidz1).await;
    for disk in &disks[..2] {
        let lost = disk.join("lost+found");
        std::fs::create_dir(&lost).unwrap();
        for (n, path) in state(&disk.join("objects")).into_keys().enumerate() {
            std::fs::rename(path, lost.join(format!("#{n}"))).unwrap();
        }
    }
    let salvage = open(&disks);
    assert_eq!(read_back(&salvage).await, OBJECTS);
    assert!(salvage.report().disks[0].note.contains("lost their names"));
}

#[tokio::test]
async fn a_pool_in_use_is_left_alone_and_another_pool_not_mixed_in() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disks = filled(folder.path(), Layout::Mirror2).await;
    let theirs = filled(other.path(), Layout::Mirror2).await;
    let mixed: Vec<PathBuf> = disks.iter().cloned().chain([theirs[0].clone()]).collect();
    let salvage = open(&mixed);
    assert_eq!(salvage.report().disks.len(), 3);
    assert!(salvage.report().notes.iter().any(|note| note.contains("another pool")));
    let pool = Pool::open(OpenOptions::new(disks.clone())).await.unwrap();
    let refused = Salvage::open(&SalvageOptions::new(disks.clone())).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|why| why.contains("in use by")));
    pool.close().await.unwrap();
    assert_eq!(read_back(&open(&disks)).await, OBJECTS);
}

/// Rewrites the labels of all disks.
fn relabel(disks: &[PathBuf], change: impl Fn(&mut crate::member::label::Label)) {
    for disk in disks {
        let disk = FileDisks.open_disk(disk).unwrap();
        let mut label = crate::member::label::read(&*disk).unwrap().unwrap();
        change(&mut label);
        crate::member::label::write(&*disk, &label).unwrap();
    }
}

#[tokio::test]
async fn features_that_nobody_knows_here() {
    let folder = tempfile::tempdir().unwrap();
    let disks = filled(folder.path(), Layout::Mirror2).await;
    // Compatible: served, and kept in the labels that are written.
    relabel(&disks, |label| label.features.compatible = vec!["colour".into()]);
    let pool = Pool::open(OpenOptions::new(disks.clone())).await.unwrap();
    pool.close().await.unwrap();
    relabel(&disks, |label| assert_eq!(label.features.compatible, ["colour"]));
    // Read-only compatible: read, not written. One label that says so suffices.
    relabel(&disks[1..2], |label| label.features.read_only_compatible = vec!["tally".into()]);
    let before = state(folder.path());
    let refused = Pool::open(OpenOptions::new(disks.clone())).await.err().map(|error| error.to_string()).unwrap();
    assert!(refused.contains("tally") && refused.contains("larder recover"), "{refused}");
    assert_eq!(read_back(&open(&disks)).await, OBJECTS);
    // Incompatible: neither.
    relabel(&disks[2..], |label| label.features.incompatible.push("spiral".into()));
    let refused = Pool::open(OpenOptions::new(disks.clone())).await.err().map(|error| error.to_string()).unwrap();
    assert!(refused.contains("spiral") && refused.contains("newer larder"), "{refused}");
    let refused = Salvage::open(&SalvageOptions::new(disks.clone())).err().map(|error| error.to_string()).unwrap();
    assert!(refused.contains("spiral"), "{refused}");
    relabel(&disks[2..], |label| label.features.incompatible.retain(|name| name != "spiral"));
    assert!(state(folder.path()) == before, "a pool that was refused was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_the_name_of_a_shard_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let disks = filled(dir.path(), Layout::Raidz1).await;
    let salvage = Salvage::open(&SalvageOptions::new(disks.clone())).unwrap();
    let before = salvage.objects("a/b5").swap_remove(0).shards;
    let file = disks[before[0].disk].join(&before[0].file);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let salvage = Salvage::open(&SalvageOptions::new(disks)).unwrap();
    let after: Vec<u8> = salvage.objects("a/b5").swap_remove(0).shards.iter().map(|found| found.shard).collect();
    assert_eq!(after, before[1..].iter().map(|found| found.shard).collect::<Vec<_>>());
    assert_eq!(read_back(&salvage).await, OBJECTS);
}
