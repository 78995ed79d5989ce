//! Clones: volumes that begin as a snapshot of another.

use std::collections::BTreeMap;

use super::snapshots::{find, put, store_bytes, tree, view};
use super::*;

type Tree = BTreeMap<String, Vec<u8>>;

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let words =
        (0..bytes as u64 / 8 + 1).flat_map(|i| larder_base::checksum::checksum(seed, &i.to_le_bytes()).to_le_bytes());
    words.take(bytes).collect()
}

async fn look(registry: &Registry, name: &str) -> Tree {
    tree(&registry.volume(name).await.unwrap(), Ino::ROOT).await
}

async fn is_clean(registry: &Registry, name: &str) {
    assert_eq!(registry.check(name, true).await.unwrap().problems, Vec::<String>::new(), "{name}");
}

/// Sends a snapshot into the replica `r`.
async fn transfer(registry: &Registry, volume: &str, to: &str, from: Option<&str>) {
    use futures::TryStreamExt;
    let sent = registry.send(volume, to, from, None).await.unwrap();
    let stream: Vec<Bytes> = sent.stream.try_collect().await.unwrap();
    let pieces: Vec<FsResult<Bytes>> = stream.into_iter().map(Ok).collect();
    registry.receive("r", futures::StreamExt::boxed(futures::stream::iter(pieces))).await.unwrap();
}

async fn fill(volume: &Volume, seed: u64) {
    let folder = dir(volume, Ino::ROOT, &format!("folder{seed}")).await;
    for number in 0..4 {
        let ino = file(volume, folder, &format!("f{number}")).await;
        put(volume, ino, 0, noise(seed * 10 + number, 300_000), Stability::FileSync).await;
    }
    let dirty = file(volume, folder, "dirty").await;
    put(volume, dirty, 0, noise(seed * 10 + 9, 50_000), Stability::Unstable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_shares_what_it_began_with_and_goes_its_own_way() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    fill(&volume, 1).await;
    volume.snapshot("a").await.unwrap();
    let then = tree(&volume, Ino::ROOT).await;
    fill(&volume, 2).await;
    volume.sync().await.unwrap();
    let now = tree(&volume, Ino::ROOT).await;
    assert!(matches!(registry.clone_snapshot("v", "none", "c").await, Err(FsError::NotFound)));
    assert!(matches!(registry.clone_snapshot("v", "a", "v").await, Err(FsError::Exists)));

    let before = store_bytes(&place).await;
    registry.clone_snapshot("v", "a", "c").await.unwrap();
    assert!(store_bytes(&place).await < before + 100_000, "its data is shared");
    assert_eq!(look(&registry, "c").await, then);
    is_clean(&registry, "c").await;

    // Both change what they share.
    let clone = registry.volume("c").await.unwrap();
    let folder = find(&clone, Ino::ROOT, "folder1").await.unwrap();
    let ino = find(&clone, folder, "f1").await.unwrap();
    put(&clone, ino, 100_000, vec![7; 10_000], Stability::FileSync).await;
    clone.unlink(&root(), folder, b"f2").await.unwrap();
    fill(&clone, 3).await;
    clone.snapshot("own").await.unwrap();
    let of_clone = tree(&clone, Ino::ROOT).await;
    let folder = find(&volume, Ino::ROOT, "folder1").await.unwrap();
    for name in ["f1", "f2", "f3"] {
        volume.unlink(&root(), folder, name.as_bytes()).await.unwrap();
    }
    volume.sync().await.unwrap();
    let left = tree(&volume, Ino::ROOT).await;
    assert_ne!(left, now);

    // What it began as stays.
    for outcome in [volume.destroy_snapshot("a").await, registry.destroy("v").await] {
        assert!(matches!(outcome, Err(FsError::Busy(why)) if why == HAS_CLONES), "{outcome:?}");
    }
    assert_eq!(volume.snapshots()[0].clones, ["c"]);
    let origin = async || registry.list().await.unwrap().into_iter().find_map(|info| info.origin);
    assert_eq!(origin().await.as_deref(), Some("v@a"));
    volume.rename_snapshot("a", "first").await.unwrap();
    volume.snapshot("a").await.unwrap();
    assert_eq!(origin().await.as_deref(), Some("v@first"));
    volume.destroy_snapshot("a").await.unwrap();
    volume.rename_snapshot("first", "a").await.unwrap();
    drop((volume, clone));
    registry.close().await.unwrap();
    let (registry, volume) = place.open().await;
    assert_eq!(look(&registry, "c").await, of_clone);
    assert_eq!(tree(&volume, Ino::ROOT).await, left);
    is_clean(&registry, "c").await;
    check_clean(&registry).await;
    assert_eq!(registry.missing_objects().await.unwrap().objects, []);
    assert!(matches!(volume.destroy_snapshot("a").await, Err(FsError::Busy(_))));
    // It goes with the clone.
    registry.destroy("c").await.unwrap();
    volume.destroy_snapshot("a").await.unwrap();
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_is_made_independent_with_the_clones_of_its_own() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    fill(&volume, 1).await;
    volume.snapshot("a").await.unwrap();
    registry.clone_snapshot("v", "a", "c").await.unwrap();
    let clone = registry.volume("c").await.unwrap();
    fill(&clone, 2).await;
    clone.snapshot("b").await.unwrap();
    let at_b = tree(&clone, Ino::ROOT).await;
    registry.clone_snapshot("c", "b", "d").await.unwrap();
    let grandchild = registry.volume("d").await.unwrap();
    fill(&grandchild, 3).await;
    let of_grandchild = tree(&grandchild, Ino::ROOT).await;
    let folder = find(&clone, Ino::ROOT, "folder1").await.unwrap();
    clone.unlink(&root(), folder, b"f0").await.unwrap();
    let of_clone = tree(&clone, Ino::ROOT).await;
    assert!(matches!(registry.destroy("c").await, Err(FsError::Busy(_))));

    registry.promote("c").await.unwrap();
    assert!(matches!(registry.promote("c").await, Err(FsError::Refused(_))));
    // The volume that it came from is gone altogether, under open clones.
    volume.destroy_snapshot("a").await.unwrap();
    drop(volume);
    registry.destroy("v").await.unwrap();
    for _ in 0..2 {
        while registry.give_some_memory_back() > 0 {}
        assert_eq!(look(&registry, "c").await, of_clone);
        assert_eq!(look(&registry, "d").await, of_grandchild);
    }
    let top = view(&clone, "b").await.unwrap();
    assert_eq!(tree(&clone, top).await, at_b);
    drop((clone, grandchild));
    registry.close().await.unwrap();
    let registry = place.registry().await;
    assert_eq!(look(&registry, "c").await, of_clone);
    assert_eq!(look(&registry, "d").await, of_grandchild);
    for name in ["c", "d"] {
        is_clean(&registry, name).await;
    }
    registry.promote("d").await.unwrap();
    let clone = registry.volume("c").await.unwrap();
    clone.destroy_snapshot("b").await.unwrap();
    drop(clone);
    registry.destroy("c").await.unwrap();
    while registry.give_some_memory_back() > 0 {}
    assert_eq!(look(&registry, "d").await, of_grandchild);
    is_clean(&registry, "d").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_are_sent_and_received_like_any_volume() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    fill(&volume, 1).await;
    volume.snapshot("a").await.unwrap();
    registry.clone_snapshot("v", "a", "c").await.unwrap();
    let clone = registry.volume("c").await.unwrap();
    fill(&clone, 2).await;
    clone.snapshot("b").await.unwrap();
    let want = tree(&clone, Ino::ROOT).await;
    transfer(&registry, "c", "b", None).await;
    // A clone of the replica is what it shows, and the replica receives on.
    registry.clone_snapshot("r", "b", "look").await.unwrap();
    assert_eq!(look(&registry, "look").await, want);
    is_clean(&registry, "look").await;
    let looked = registry.volume("look").await.unwrap();
    fill(&looked, 4).await;
    let of_looked = tree(&looked, Ino::ROOT).await;
    drop(looked);
    assert!(matches!(registry.forget_received("r", &["b".into()]).await, Err(FsError::Busy(_))));
    assert_eq!(registry.replica("r").await.unwrap().snapshots[0].clones, ["look"]);
    fill(&clone, 3).await;
    clone.snapshot("d").await.unwrap();
    let want = tree(&clone, Ino::ROOT).await;
    transfer(&registry, "c", "d", Some("b")).await;
    registry.clone_snapshot("r", "d", "later").await.unwrap();
    assert_eq!(look(&registry, "later").await, want, "over an image over another");
    registry.promote("r").await.unwrap();
    assert_eq!(look(&registry, "r").await, want);
    is_clean(&registry, "r").await;
    registry.close().await.unwrap();
    let registry = place.registry().await;
    for (name, want) in [("r", &want), ("look", &of_looked), ("later", &want)] {
        assert_eq!(&look(&registry, name).await, want, "{name}");
        is_clean(&registry, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_segment_is_missed_by_all_who_share_it() {
    use futures::StreamExt;
    use object_store::ObjectStoreExt;
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    fill(&volume, 1).await;
    volume.sync().await.unwrap();
    volume.snapshot("a").await.unwrap();
    registry.clone_snapshot("v", "a", "c").await.unwrap();
    drop(registry.volume("c").await.unwrap());
    let folder = object_store::path::Path::from(format!("volumes/{}/seg", volume.id()));
    let mut segments = place.store.list(Some(&folder));
    while let Some(segment) = segments.next().await {
        place.store.delete(&segment.unwrap().location).await.unwrap();
    }
    let gone = registry.missing_objects().await.unwrap();
    let report = registry.damaged_files(&gone.objects).await.unwrap();
    for name in ["v", "c"] {
        let files = report.files.iter().filter(|file| file.volume == name);
        assert!(files.flat_map(|file| &file.paths).any(|path| path == "/folder1/f0"), "{name}: {report:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_a_replica_are_its_own() {
    use larder_base::{SystemClock, Timestamp};
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    fill(&volume, 1).await;
    volume.snapshot("a").await.unwrap();
    volume.hold_snapshot("a", "the sender's", None).await.unwrap();
    transfer(&registry, "v", "a", None).await;
    let soon = larder_base::Clock::now(&SystemClock::default());
    let until = Some(Timestamp::new(soon.secs + 3600, 0));
    registry.hold_received("r", "a", "taxes", until).await.unwrap();
    registry.hold_received("r", "a", "mine", None).await.unwrap();
    assert!(matches!(registry.hold_received("r", "b", "taxes", until).await, Err(FsError::NotFound)));
    for shorter in [None, Some(Timestamp::new(soon.secs + 60, 0))] {
        assert!(matches!(registry.hold_received("r", "a", "taxes", shorter).await, Err(FsError::NotPermitted)));
    }
    assert!(matches!(registry.release_received("r", "a", "taxes").await, Err(FsError::NotPermitted)));
    registry.release_received("r", "a", "mine").await.unwrap();
    fill(&volume, 2).await;
    volume.snapshot("b").await.unwrap();
    transfer(&registry, "v", "b", Some("a")).await;
    let held = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    assert!(matches!(registry.forget_received("r", &held(&["a", "b"])).await, Err(FsError::Busy(_))));
    assert!(matches!(registry.destroy("r").await, Err(FsError::Busy(_))));
    registry.promote("r").await.unwrap();
    let promoted = registry.volume("r").await.unwrap();
    let holds: Vec<Vec<Hold>> = promoted.snapshots().into_iter().map(|info| info.holds).collect();
    assert_eq!(holds, [vec![Hold { reason: "taxes".into(), until }], vec![]]);
    assert!(matches!(promoted.destroy_snapshot("a").await, Err(FsError::Busy(_))));
}

/// The one between has no segment of its own, or has them only since: numbers do not tell the ancestors apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_of_an_unchanged_clone_outlives_its_promotion() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    fill(&volume, 1).await;
    volume.snapshot("a").await.unwrap();
    let then = tree(&volume, Ino::ROOT).await;
    registry.clone_snapshot("v", "a", "c").await.unwrap();
    let middle = registry.volume("c").await.unwrap();
    middle.snapshot("b").await.unwrap();
    registry.clone_snapshot("c", "b", "d").await.unwrap();
    fill(&middle, 2).await;
    middle.snapshot("e").await.unwrap();
    let later = tree(&middle, Ino::ROOT).await;
    registry.clone_snapshot("c", "e", "f").await.unwrap();
    registry.promote("c").await.unwrap();
    drop(middle);
    for _ in 0..2 {
        while registry.give_some_memory_back() > 0 {}
        for (name, want) in [("c", &later), ("d", &then), ("f", &later)] {
            assert_eq!(&look(&registry, name).await, want, "{name}");
            is_clean(&registry, name).await;
        }
        volume.destroy_snapshot("a").await.ok();
    }
    registry.promote("f").await.unwrap();
    registry.promote("d").await.unwrap();
    drop(volume);
    registry.close().await.unwrap();
    let registry = place.registry().await;
    for name in ["v", "c"] {
        let open = registry.volume(name).await.unwrap();
        for info in open.snapshots() {
            open.destroy_snapshot(&info.name).await.unwrap();
        }
        drop(open);
        registry.destroy(name).await.unwrap();
    }
    for (name, want) in [("d", &then), ("f", &later)] {
        assert_eq!(&look(&registry, name).await, want, "{name}");
        is_clean(&registry, name).await;
    }
}
