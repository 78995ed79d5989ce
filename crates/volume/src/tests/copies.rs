//! Snapshots that are copied as files into a volume of other properties.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_fs::places::within;

use super::replica::change;
use super::snapshots::{find, put, tree, view};
use super::*;
use crate::inode_core::InodeCore;
use crate::keys::{self, tag};

const HARDER: &str = "zstd:9";

async fn make_copy(registry: &Registry) {
    let properties =
        Properties { compression: HARDER.parse().unwrap(), record_bytes: 1 << 20, ..Properties::default() };
    registry.enter_copy("c", properties, false).await.unwrap();
}

fn no_pace(_: u64) -> Duration {
    Duration::ZERO
}

async fn copy(from: &Registry, snapshot: &str, far: &Registry) -> FsResult<()> {
    from.copy_snapshot("v", snapshot, (far, "c"), &no_pace).await
}

/// The rows of a snapshot about inodes, names and attributes; of records all but the room that they take up.
async fn rows(volume: &Volume, name: &str) -> BTreeMap<Bytes, Bytes> {
    let catalog = &volume.state.catalog;
    let number = catalog.find(name).unwrap();
    let view = catalog.view(number).await.unwrap();
    let mut all = BTreeMap::new();
    for table in [tag::INODE, tag::ENTRY, tag::COOKIE, tag::FOLDED, tag::XATTR] {
        let (from, to) = keys::table_range(table);
        for (key, value) in view.scan(&from, &to, usize::MAX).await.unwrap() {
            let value = match table {
                tag::INODE => {
                    let ino = keys::ino_of(&key).unwrap();
                    let core = keys::decode_inode(ino, &value).unwrap();
                    keys::encode_inode(ino, &InodeCore { stored_bytes: 0, has_reserved: false, ..core }).1
                }
                _ => value,
            };
            if key != crate::handle_key::row_key() {
                all.insert(key, value);
            }
        }
    }
    all
}

async fn assert_same(own: &Volume, copy: &Volume, name: &str) {
    let (want, got) = (rows(own, name).await, rows(copy, name).await);
    let differ: Vec<_> = want.iter().filter(|(key, value)| got.get(*key) != Some(*value)).map(|(key, _)| key).collect();
    assert!(differ.is_empty() && got.len() == want.len(), "{name}: {differ:?}, {} rows of {}", got.len(), want.len());
    assert!(contents(copy, name).await == contents(own, name).await, "{name}");
    let identity = |volume: &Volume| {
        let info = volume.snapshots().into_iter().find(|info| info.name == name).unwrap();
        (info.number, info.created)
    };
    assert_eq!(identity(copy), identity(own));
}

/// The blocks of every file of a snapshot that are not all zeros, named attributes among them.
async fn contents(volume: &Volume, name: &str) -> BTreeMap<(u64, u64), Vec<u8>> {
    const BLOCK: u64 = 4096;
    let number = volume.state.catalog.find(name).unwrap();
    let mut all = BTreeMap::new();
    for (key, value) in rows(volume, name).await {
        let ino = keys::ino_of(&key).unwrap();
        if key[0] != tag::INODE || keys::decode_inode(ino, &value).unwrap().attr.kind != FileKind::File {
            continue;
        }
        let (shown, mut at) = (within(number, ino), 0);
        while let Ok(found) = volume.seek(shown, at, SeekTo::Data).await {
            at = found - found % BLOCK;
            let block = volume.read(shown, at, BLOCK as usize).await.unwrap().chunks.concat();
            if block.iter().any(|&byte| byte != 0) {
                all.insert((ino.0, at), block);
            }
            at += BLOCK;
        }
    }
    all
}

async fn snapshot_top(volume: &Volume, name: &str) -> Ino {
    volume.snapshot_root(name).await.unwrap().id.ino
}

/// Kinds of files that `change` has none of.
async fn make_kinds(volume: &Volume) {
    let set = || SetAttr { mode: Some(0o4711), uid: Some(7), gid: Some(8), ..SetAttr::default() };
    let sparse = file(volume, Ino::ROOT, "sparse").await;
    put(volume, sparse, 1 << 40, b"far".to_vec(), Stability::Unstable).await;
    put(volume, sparse, 3 << 20, vec![3; 5000], Stability::Unstable).await;
    volume.setattr(&root(), sparse, SetAttr { size: Some((1 << 40) + (1 << 30)), ..SetAttr::default() }).await.unwrap();
    volume.symlink(&root(), Ino::ROOT, b"link \xff", b"to/where", set()).await.unwrap();
    volume.mknod(&root(), Ino::ROOT, b"pipe", FileKind::Fifo, (0, 0), set()).await.unwrap();
    volume.mknod(&root(), Ino::ROOT, b"disk", FileKind::BlockDevice, (8, 1), set()).await.unwrap();
    let named = file(volume, Ino::ROOT, "Named").await;
    volume.link(&root(), named, Ino::ROOT, b"Other").await.unwrap();
    volume.setxattr(&root(), named, b"user.note", &[9; 3000], XattrMode::Set).await.unwrap();
    let streams = volume.named_dir(named, true).await.unwrap().unwrap();
    let stream = file(volume, streams, "stream").await;
    put(volume, stream, 0, vec![5; 70_000], Stability::Unstable).await;
    let times = SetAttr {
        mtime: Some(SetTime::To(larder_base::Timestamp::new(-5_000_000_000, 123_456_789))),
        dos: Some(7),
        ..SetAttr::default()
    };
    volume.setattr(&root(), named, times).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_every_row_and_byte_and_becomes_a_volume() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let mut far = there.registry().await;
    make_copy(&far).await;
    make_kinds(&volume).await;
    for round in 0..4u8 {
        change(&volume, round).await;
        let name = format!("s{round}");
        volume.snapshot(&name).await.unwrap();
        // Goes on before it is copied.
        file(&volume, Ino::ROOT, &format!("later{round}")).await;
        copy(&registry, &name, &far).await.unwrap();
        if round == 1 {
            volume.unlink(&root(), Ino::ROOT, b"Named").await.unwrap();
            volume.unlink(&root(), Ino::ROOT, b"Other").await.unwrap();
            volume.unlink(&root(), Ino::ROOT, b"pipe").await.unwrap();
            let sparse = find(&volume, Ino::ROOT, "sparse").await.unwrap();
            volume.allocate(&root(), sparse, 3 << 20, 5000, AllocateMode::PunchHole).await.unwrap();
            put(&volume, sparse, 1 << 39, vec![4; 100], Stability::FileSync).await;
            // It was a copy when the machine was restarted, too.
            far.close().await.unwrap();
            far = there.registry().await;
        }
    }
    let seen = far.copied("c").await.unwrap();
    for round in 0..4 {
        assert_same(&volume, &seen, &format!("s{round}")).await;
    }
    drop(seen);
    let info = far.replica("c").await.unwrap();
    assert_eq!((info.snapshots.len(), info.source), (4, volume.id()));
    assert!(matches!(far.volume("c").await, Err(FsError::Replica)));
    let listed = far.list().await.unwrap().remove(0);
    assert!(listed.replica && listed.copy);
    assert_eq!(far.check("c", true).await.unwrap().problems, Vec::<String>::new());
    // Only what changed is stored again: a quarter of a TiB of holes is none.
    assert!(info.bytes < 3 << 20, "{}", info.bytes);
    assert!(err(copy(&registry, "s1", &far).await).contains("not newer"));
    far.forget_received("c", &["s0".to_owned()]).await.unwrap();
    far.promote("c").await.unwrap();
    let promoted = far.volume("c").await.unwrap();
    assert_same(&volume, &promoted, "s3").await;
    promoted.snapshot("head").await.unwrap();
    assert!(rows(&promoted, "head").await == rows(&volume, "s3").await, "the head shows the newest snapshot");
    let own = file(&promoted, Ino::ROOT, "new").await;
    put(&promoted, own, 0, vec![1; 100_000], Stability::FileSync).await;
    promoted.snapshot("own").await.unwrap();
    assert!(promoted.diff("s1", Some("s2")).await.unwrap().len() > 20);
    assert_eq!(far.check("c", true).await.unwrap().problems, Vec::<String>::new());
    assert!(!far.list().await.unwrap().remove(0).replica);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_killed_anywhere_goes_on() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let mut far = there.registry().await;
    make_copy(&far).await;
    make_kinds(&volume).await;
    for round in 0..3u8 {
        change(&volume, round).await;
        let name = format!("s{round}");
        volume.snapshot(&name).await.unwrap();
        let mut until = 1;
        loop {
            let (pieces, killed) = (AtomicU64::new(0), tokio::sync::Notify::new());
            let pace = |_| {
                if pieces.fetch_add(1, Ordering::Relaxed) + 1 == until {
                    killed.notify_one();
                    return Duration::from_secs(3600);
                }
                Duration::ZERO
            };
            let done = tokio::select! {
                done = registry.copy_snapshot("v", &name, (&far, "c"), &pace) => Some(done),
                () = killed.notified() => None,
            };
            if let Some(done) = done {
                done.unwrap();
                break;
            }
            // Half a snapshot is no snapshot, and no contradiction.
            assert!(!far.copied("c").await.unwrap().snapshots().iter().any(|info| info.name == name));
            if until % 3 == 0 {
                assert_eq!(far.check("c", true).await.unwrap().problems, Vec::<String>::new());
            }
            // Nothing is closed: what was not durable is gone.
            drop(far);
            far = there.registry().await;
            until += 7;
        }
        let seen = far.copied("c").await.unwrap();
        assert_same(&volume, &seen, &name).await;
        drop(seen);
        assert_eq!(far.check("c", true).await.unwrap().problems, Vec::<String>::new());
    }
}

/// Unstable bytes that were copied from a snapshot, and that a crash took from the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_follows_its_source_over_a_crash() {
    let (here, there) = (Box_::new(), Box_::new());
    let far = there.registry().await;
    make_copy(&far).await;
    let mut lost = 0;
    for round in 0..4u8 {
        let (registry, volume) = here.open().await;
        let name = format!("f{round}");
        let f = file(&volume, Ino::ROOT, &name).await;
        put(&volume, f, 0, vec![1; 1 << 20], Stability::Unstable).await;
        volume.commit(f).await.unwrap();
        let snapshots = ["a", "b", "c"].map(|letter| format!("{letter}{round}"));
        volume.snapshot(&snapshots[0]).await.unwrap();
        copy(&registry, &snapshots[0], &far).await.unwrap();
        put(&volume, f, 300_000, vec![2; 400_000], Stability::Unstable).await;
        // Its record becomes durable, its bytes do not.
        volume.setattr(&root(), f, SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
        let then = read_all(&volume, f).await;
        volume.snapshot(&snapshots[1]).await.unwrap();
        copy(&registry, &snapshots[1], &far).await.unwrap();
        drop((registry, volume));

        let (registry, volume) = here.open().await;
        volume.snapshot(&snapshots[2]).await.unwrap();
        copy(&registry, &snapshots[2], &far).await.unwrap();
        let seen = far.copied("c").await.unwrap();
        for snapshot in &snapshots {
            assert_same(&volume, &seen, snapshot).await;
        }
        let is_lost = read_all(&volume, f).await != then;
        lost += u32::from(is_lost);
        let diff = volume.diff(&snapshots[1], Some(&snapshots[2])).await.unwrap();
        assert_eq!(diff.iter().any(|found| found.path == format!("/{name}")), is_lost, "{diff:?}");
        drop((registry, volume, seen));
    }
    assert!(lost > 0, "everything was stored before the crashes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_copy_of_a_snapshot_that_is_gone_harms_no_other() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    make_copy(&far).await;
    change(&volume, 0).await;
    volume.snapshot("s0").await.unwrap();
    let stopped = async |name: &str| {
        let pace = |_| Duration::from_secs(3600);
        let copied = registry.copy_snapshot("v", name, (&far, "c"), &pace);
        assert!(tokio::time::timeout(Duration::from_millis(300), copied).await.is_err());
    };
    stopped("s0").await;
    assert!(err(far.promote("c").await).contains("nothing was copied whole"));
    copy(&registry, "s0", &far).await.unwrap();
    let before = tree(&volume, view(&volume, "s0").await.unwrap()).await;
    change(&volume, 1).await;
    volume.snapshot("gone").await.unwrap();
    stopped("gone").await;
    volume.destroy_snapshot("gone").await.unwrap();
    volume.unlink(&root(), find(&volume, Ino::ROOT, "d1").await.unwrap(), b"f7").await.unwrap();
    volume.snapshot("s2").await.unwrap();
    copy(&registry, "s2", &far).await.unwrap();
    let seen = far.copied("c").await.unwrap();
    assert_same(&volume, &seen, "s2").await;
    drop(seen);
    change(&volume, 2).await;
    volume.snapshot("s3").await.unwrap();
    stopped("s3").await;
    // The half of the third is not seen.
    far.promote("c").await.unwrap();
    let promoted = far.volume("c").await.unwrap();
    assert_eq!(tree(&promoted, Ino::ROOT).await, tree(&volume, view(&volume, "s2").await.unwrap()).await);
    assert_eq!(tree(&promoted, snapshot_top(&promoted, "s0").await).await, before);
    assert_eq!(far.check("c", true).await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_refuse_what_is_not_theirs() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    volume.snapshot("s0").await.unwrap();
    far.create("plain", Properties::default()).await.unwrap();
    let into = async |name: &'static str| err(registry.copy_snapshot("v", "s0", (&far, name), &no_pace).await);
    assert!(into("plain").await.contains("no copy as files"));
    assert!(err(far.copied("plain").await).contains("no copy as files"));
    make_copy(&far).await;
    assert_eq!(into("c").await, "ok");
    registry.create("other", Properties::default()).await.unwrap();
    registry.volume("other").await.unwrap().snapshot("s9").await.unwrap();
    let other = registry.copy_snapshot("other", "s9", (&far, "c"), &no_pace).await;
    assert!(err(other).contains("copy of another volume"));
    let stream = registry.send("v", "s0", None, None).await.unwrap().stream;
    assert!(err(far.receive("c", stream).await).contains("takes no streams"));
    assert!(err(far.send("c", "s0", None, None).await.map(drop)).contains("larder volume promote c"));
    far.hold_received("c", "s0", "tax", None).await.unwrap();
    assert!(err(far.destroy("c").await).contains("held"));
    far.release_received("c", "s0", "tax").await.unwrap();
    far.destroy("c").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_into_a_full_store_goes_on_when_there_is_room() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    make_copy(&far).await;
    change(&volume, 0).await;
    volume.snapshot("s0").await.unwrap();
    let room = there.room.available.swap(0, Ordering::Relaxed);
    assert!(matches!(copy(&registry, "s0", &far).await, Err(FsError::NoSpace(_))));
    assert!(far.copied("c").await.unwrap().snapshots().is_empty());
    there.room.available.store(room, Ordering::Relaxed);
    copy(&registry, "s0", &far).await.unwrap();
    let seen = far.copied("c").await.unwrap();
    assert_same(&volume, &seen, "s0").await;
}
