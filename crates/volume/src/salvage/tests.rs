#![allow(clippy::unwrap_used)]
use std::collections::BTreeSet;

use futures::TryStreamExt;

use super::*;
use crate::tests::{Box_, bytes, dir, file, read_all, root};
use crate::*;

const FILES: usize = 40;

fn content(n: usize) -> Vec<u8> {
    let step = if n.is_multiple_of(3) { 1 } else { 7919 };
    (0..n * n * 700 + n).map(|i| (i * step / 5 + n) as u8).collect()
}

/// A volume with files, some large, some rewritten, one sparse; the content of each by inode.
async fn filled(place: &Box_) -> (Uuid, BTreeMap<u64, Vec<u8>>) {
    let (registry, volume) = place.open().await;
    let home = dir(&volume, Ino::ROOT, "home").await;
    let mut contents = BTreeMap::new();
    for n in 0..FILES {
        let ino = file(&volume, home, &format!("file {n}")).await;
        let mut data = content(n);
        write(&volume, ino, 0, &data).await;
        if n.is_multiple_of(5) {
            volume.sync().await.unwrap();
            write(&volume, ino, 3, b"rewritten").await;
            data.resize(data.len().max(12), 0);
            data[3..12].copy_from_slice(b"rewritten");
        }
        contents.insert(ino.0, data);
    }
    let sparse = file(&volume, home, "sparse").await;
    write(&volume, sparse, 3 << 20, b"end").await;
    contents.insert(sparse.0, [vec![0; 3 << 20], b"end".to_vec()].concat());
    volume.setxattr(&root(), sparse, b"user.colour", b"red", XattrMode::Set).await.unwrap();
    volume.symlink(&root(), home, b"link", b"file 1", SetAttr::default()).await.unwrap();
    volume.sync().await.unwrap();
    // Not in a segment yet: an intent.
    let late = file(&volume, home, "late").await;
    volume.write(&root(), late, 0, bytes("just now"), Stability::FileSync).await.unwrap();
    contents.insert(late.0, b"just now".to_vec());
    for (ino, data) in contents.iter().filter(|(_, data)| data.len() < IO_BYTES_MAX) {
        assert!(read_all(&volume, Ino(*ino)).await == *data);
    }
    let id = volume.id();
    // As a crash leaves it: nothing is closed.
    std::mem::forget((registry, volume));
    (id, contents)
}

async fn write(volume: &Volume, ino: Ino, offset: u64, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    volume.write(&root(), ino, offset, vec![data], Stability::Unstable).await.unwrap();
}

async fn open(place: &Box_, id: Uuid) -> Salvage {
    let entries = place.log.clone().unwrap().replay(&log_stream(id), 0).await.unwrap();
    Salvage::open(SalvageParts { store: Arc::clone(&place.store), id, entries, log_faults: Vec::new() }).await
}

async fn content_of(salvage: &Salvage, plan: &Plan) -> Vec<u8> {
    let mut data = vec![0; plan.size as usize];
    for piece in &plan.pieces {
        if !piece.is_zero() {
            let range = piece.offset as usize..(piece.offset + piece.len) as usize;
            data[range].copy_from_slice(&salvage.read(piece).await.unwrap());
        }
    }
    data
}

async fn objects(place: &Box_, id: Uuid, part: &str) -> Vec<Path> {
    let prefix = part.split('/').fold(layout::prefix_of(id), |prefix, part| prefix.join(part));
    let found: Vec<_> = place.store.list(Some(&prefix)).try_collect().await.unwrap();
    found.into_iter().map(|object| object.location).collect()
}

async fn delete(place: &Box_, paths: Vec<Path>) {
    for path in paths {
        place.store.delete(&path).await.unwrap();
    }
}

/// Moves all rows from the log to tables, so that there is something to lose.
async fn reopened(place: &Box_) {
    let (registry, volume) = place.open().await;
    volume.sync().await.unwrap();
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_metadata_gives_the_volume_as_it_is() {
    let place = Box_::new();
    let (id, contents) = filled(&place).await;
    let (found, faults) = volumes(&place.store).await.unwrap();
    assert_eq!(
        (found, faults),
        (vec![VolumeFound { id, name: Some("v".into()), sealed: false, half_sealed: false }], Vec::new())
    );
    let salvage = open(&place, id).await;
    assert_eq!((salvage.verdict(), salvage.faults()), (Verdict::Whole, &[][..]));
    let top = salvage.entries(Ino::ROOT).await;
    assert_eq!((top.len(), &top[0].name[..], top[0].kind), (1, &b"home"[..], FileKind::Directory));
    let mut seen: BTreeSet<Ino> = [Ino::ROOT, top[0].ino].into();
    let names = salvage.entries(top[0].ino).await;
    assert_eq!(names.len(), FILES + 3);
    for named in names {
        seen.insert(named.ino);
        let node = salvage.node(named.ino).await.unwrap();
        if named.kind == FileKind::Symlink {
            assert_eq!(node.target, "file 1");
            continue;
        }
        assert!(!salvage.may_lack(named.ino, Some(&node)).await);
        let plan = salvage.plan(named.ino, Some(&node), None).await;
        assert!(plan.doubtful.is_empty() && plan.faults.is_empty());
        assert!(content_of(&salvage, &plan).await == contents[&named.ino.0], "{named:?}");
        if named.name == "sparse" {
            assert!(plan.pieces.iter().all(|piece| piece.offset >= 3 << 20 || piece.is_zero()), "a hole stays one");
            assert_eq!(salvage.xattrs(named.ino).await, [("user.colour".into(), "red".into())]);
        }
    }
    assert!(salvage.unseen(|ino| seen.contains(&ino)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_metadata_contents_come_from_the_segments() {
    let place = Box_::new();
    let (id, contents) = filled(&place).await;
    reopened(&place).await;
    delete(&place, objects(&place, id, "meta").await).await;
    let none = SalvageParts { store: Arc::clone(&place.store), id, entries: Vec::new(), log_faults: Vec::new() };
    let salvage = Salvage::open(none).await;
    assert_eq!(salvage.verdict(), Verdict::Missing);
    let (passes, faults) = salvage.record_passes().await;
    assert_eq!((passes, faults), (1, Vec::new()));
    let records = salvage.records((0, 1), &|_| true).await;
    let mut back = 0;
    for (ino, _) in records.owners() {
        let plan = salvage.plan(ino, None, Some(&records)).await;
        // Tiny files live in their inode, holes leave no records: only what was written in segments
        // is there.
        if content_of(&salvage, &plan).await == contents[&ino.0] {
            back += 1;
        }
        assert_eq!(plan.doubtful.iter().map(|range| range.end - range.start).sum::<u64>(), plan.size);
    }
    let large = contents.values().filter(|data| data.len() > 1024).count();
    assert!(back >= large, "{back} of {large}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_manifest_is_noticed_and_its_tables_are_used_all_the_same() {
    let place = Box_::new();
    let (id, contents) = filled(&place).await;
    reopened(&place).await;
    let mut manifests = objects(&place, id, "meta/manifest").await;
    manifests.sort();
    // All but the first: what it says is long out of date.
    delete(&place, manifests.split_off(1)).await;
    let salvage = open(&place, id).await;
    assert_eq!(salvage.verdict(), Verdict::Damaged, "{:?}", salvage.faults());
    let top = salvage.entries(Ino::ROOT).await;
    for named in salvage.entries(top[0].ino).await.iter().filter(|named| named.kind == FileKind::File) {
        let node = salvage.node(named.ino).await.unwrap();
        let plan = salvage.plan(named.ino, Some(&node), None).await;
        assert!(content_of(&salvage, &plan).await == contents[&named.ino.0], "{named:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_table_is_a_gap_and_segments_fill_it() {
    let place = Box_::new();
    let (id, contents) = filled(&place).await;
    reopened(&place).await;
    delete(&place, objects(&place, id, "meta/compacted").await).await;
    let salvage = open(&place, id).await;
    assert_ne!(salvage.verdict(), Verdict::Whole);
    assert!(salvage.faults().iter().any(|fault| fault.contains("is lost")), "{:?}", salvage.faults());
    let ino = Ino(*contents.iter().max_by_key(|(_, data)| data.len()).unwrap().0);
    assert!(salvage.may_lack(ino, None).await);
    let records = salvage.records((0, 1), &|_| true).await;
    assert!(records.owners().count() > FILES / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_segment_loses_its_ranges_and_says_so() {
    let place = Box_::new();
    let (id, contents) = filled(&place).await;
    delete(&place, objects(&place, id, "seg").await).await;
    let salvage = open(&place, id).await;
    assert_eq!(salvage.verdict(), Verdict::Whole);
    let (ino, _) = contents.iter().max_by_key(|(_, data)| data.len()).unwrap();
    let node = salvage.node(Ino(*ino)).await.unwrap();
    for piece in salvage.plan(Ino(*ino), Some(&node), None).await.pieces.iter().filter(|piece| !piece.is_zero()) {
        let why = salvage.read(piece).await.unwrap_err();
        assert!(why.contains("segment"), "{why}");
    }
}
