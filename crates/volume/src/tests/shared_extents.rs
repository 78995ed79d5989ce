//! Files that share extents (`share.*`).

use std::time::Duration;

use larder_base::seam;

use super::snapshots::{find, put, store_bytes, tree, view};
use super::*;

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let words =
        (0..bytes as u64 / 8 + 1).flat_map(|i| larder_base::checksum::checksum(seed, &i.to_le_bytes()).to_le_bytes());
    words.take(bytes).collect()
}

async fn clone(volume: &Volume, from: (Ino, u64), to: (Ino, u64), len: usize) -> FsResult<Changed> {
    volume.clone_range(&root(), from, to, len as u64).await
}

/// Lets `model` be what cloning within files makes of it.
fn copied(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    model.resize(model.len().max(end), 0);
    model[at..end].copy_from_slice(bytes);
}

/// `share.holes_are_free`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_takes_up_its_data_and_not_its_holes() {
    let place = Box_::new();
    let (registry, volume) = place.open().await;
    let (size, far) = (1_u64 << 45, 1_u64 << 44);
    let sparse = file(&volume, Ino::ROOT, "sparse").await;
    volume.setattr(&root(), sparse, SetAttr { size: Some(size), ..SetAttr::default() }).await.unwrap();
    put(&volume, sparse, 0, noise(1, 300_000), Stability::FileSync).await;
    // Some of it still in memory.
    put(&volume, sparse, far, noise(2, 300_000), Stability::Unstable).await;
    let whole = async |name: &str| {
        let to = file(&volume, Ino::ROOT, name).await;
        volume.clone_range(&root(), (sparse, 0), (to, 0), size).await.map(|changed| (to, changed))
    };
    // Metadata of 32 TiB of data would need 64 GiB.
    place.room.available.store(4 << 30, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(150)).await;
    let (one, changed) = whole("one").await.unwrap();
    assert_eq!(changed.after.size, size);
    let there = volume.read(one, far, 300_000).await.unwrap();
    assert_eq!(there.chunks.concat(), noise(2, 300_000));
    assert_eq!(volume.getattr(one).await.unwrap().allocated, volume.getattr(sparse).await.unwrap().allocated);
    // Nor do holes count against a quota, and data does.
    registry.set("v", Properties { quota_bytes: Some(2_200_000), ..Properties::default() }).await.unwrap();
    let (two, _) = whole("two").await.unwrap();
    assert_eq!(err(whole("three").await), "quota exceeded");
    // What it takes the place of is given back.
    volume.clone_range(&root(), (sparse, 0), (two, 0), size).await.unwrap();
    volume.clone_range(&root(), (sparse, 1 << 30), (one, 0), 1 << 40).await.unwrap();
    whole("four").await.unwrap();
    registry.set("v", Properties::default()).await.unwrap();
    place.room.available.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(150)).await;
    let refused = volume.clone_range(&root(), (sparse, 0), (two, 0), 300_000).await;
    assert!(matches!(refused, Err(FsError::NoSpace(_))), "{refused:?}");
    place.room.available.store(1 << 39, Ordering::Relaxed);
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_file_goes_and_the_other_stays() {
    let place = Box_::new();
    for first in ["a", "b"] {
        let (registry, volume) = place.open().await;
        let content = noise(1, 3_000_000);
        let a = file(&volume, Ino::ROOT, "a").await;
        put(&volume, a, 0, content.clone(), Stability::Unstable).await;
        volume.sync().await.unwrap();
        let before = store_bytes(&place).await;
        let b = file(&volume, Ino::ROOT, "b").await;
        clone(&volume, (a, 0), (b, 0), content.len()).await.unwrap();
        assert_eq!(read_all(&volume, b).await, content);
        volume.sync().await.unwrap();
        assert!(store_bytes(&place).await < before + 300_000, "nothing was copied");
        let attr = volume.getattr(b).await.unwrap();
        assert_eq!((attr.size, attr.allocated), (3_000_000, volume.getattr(a).await.unwrap().allocated));
        volume.unlink(&root(), Ino::ROOT, first.as_bytes()).await.unwrap();
        check_clean(&registry).await;
        registry.close().await.unwrap();
        drop((volume, registry));

        let (registry, volume) = place.open().await;
        let other = if first == "a" { "b" } else { "a" };
        let rest = find(&volume, Ino::ROOT, other).await.unwrap();
        assert_eq!(read_all(&volume, rest).await, content);
        put(&volume, rest, 100_000, vec![7; 1000], Stability::FileSync).await;
        check_clean(&registry).await;
        volume.unlink(&root(), Ino::ROOT, other.as_bytes()).await.unwrap();
        for _ in 0..100 {
            if store_bytes(&place).await < 1_000_000 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(store_bytes(&place).await < 1_000_000, "the room of both came back");
        check_clean(&registry).await;
        registry.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_range_is_shared_at_any_offset() {
    let (registry, volume) = fresh().await;
    let (a, b) = (file(&volume, Ino::ROOT, "a").await, file(&volume, Ino::ROOT, "b").await);
    let (mut one, mut other) = (noise(1, 2_500_000), noise(2, 700_000));
    put(&volume, a, 0, one.clone(), Stability::Unstable).await;
    put(&volume, b, 0, other.clone(), Stability::Unstable).await;
    volume.allocate(&root(), a, 300_000, 500_000, AllocateMode::PunchHole).await.unwrap();
    one[300_000..800_000].fill(0);
    for (from, to, len) in
        [(0, 0, 100), (1, 2, 1_500_000), (299_999, 3_000_001, 500_002), (2_499_999, 0, 1), (5, 900_000, 1 << 20)]
    {
        clone(&volume, (a, from), (b, to), len).await.unwrap();
        copied(&mut other, to as usize, &one[from as usize..from as usize + len]);
        assert!(read_all(&volume, b).await == other, "{from} {to} {len}");
    }
    // Within one file, and with data that was written a moment before.
    put(&volume, a, 10, vec![9; 5000], Stability::FileSync).await;
    one[10..5010].fill(9);
    clone(&volume, (a, 0), (a, 2_600_000), 1_000_000).await.unwrap();
    let front = one[..1_000_000].to_vec();
    copied(&mut one, 2_600_000, &front);
    assert!(read_all(&volume, a).await == one);
    // A hole stays one.
    let hole = volume.seek(a, 2_600_000, SeekTo::Hole).await.unwrap();
    assert_eq!(hole, 2_900_000);
    check_clean(&registry).await;

    assert!(matches!(clone(&volume, (a, 0), (a, 5), 6).await, Err(FsError::Invalid(_))));
    assert!(matches!(clone(&volume, (a, one.len() as u64 - 5), (b, 0), 6).await, Err(FsError::Invalid(_))));
    assert!(matches!(clone(&volume, (a, 0), (b, u64::MAX - 3), 6).await, Err(FsError::FileTooLarge)));
    let tiny = file(&volume, Ino::ROOT, "tiny").await;
    put(&volume, tiny, 0, b"little".to_vec(), Stability::FileSync).await;
    clone(&volume, (tiny, 0), (b, 1), 6).await.unwrap();
    copied(&mut other, 1, b"little");
    assert!(read_all(&volume, b).await == other);
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_counts_each_file() {
    let (registry, volume) = fresh().await;
    let a = file(&volume, Ino::ROOT, "a").await;
    put(&volume, a, 0, noise(1, 1_000_000), Stability::FileSync).await;
    volume.sync().await.unwrap();
    registry.set("v", Properties { quota_bytes: Some(1_500_000), ..Properties::default() }).await.unwrap();
    let b = file(&volume, Ino::ROOT, "b").await;
    assert!(matches!(clone(&volume, (a, 0), (b, 0), 1_000_000).await, Err(FsError::Quota)));
    assert_eq!(volume.getattr(b).await.unwrap().size, 0);
    clone(&volume, (a, 0), (b, 0), 100_000).await.unwrap();
    check_clean(&registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_replicas_and_clones_have_what_was_shared() {
    use futures::TryStreamExt;
    let (here, there) = (Box_::new(), Box_::new());
    let ((registry, volume), far) = (here.open().await, there.registry().await);
    let a = file(&volume, Ino::ROOT, "a").await;
    put(&volume, a, 0, noise(1, 1_000_000), Stability::FileSync).await;
    volume.snapshot("one").await.unwrap();
    let b = file(&volume, Ino::ROOT, "b").await;
    clone(&volume, (a, 0), (b, 77), 900_000).await.unwrap();
    put(&volume, a, 500, vec![3; 40_000], Stability::Unstable).await;
    volume.snapshot("two").await.unwrap();
    let then = tree(&volume, Ino::ROOT).await;
    let past = find(&volume, view(&volume, "one").await.unwrap(), "a").await.unwrap();
    assert!(matches!(clone(&volume, (past, 0), (b, 0), 5).await, Err(FsError::NotSupported)));
    for (from, to) in [(None, "one"), (Some("one"), "two")] {
        let sent = registry.send("v", to, from, None).await.unwrap();
        let stream: Vec<Bytes> = sent.stream.try_collect().await.unwrap();
        let pieces: Vec<FsResult<Bytes>> = stream.into_iter().map(Ok).collect();
        far.receive("r", futures::StreamExt::boxed(futures::stream::iter(pieces))).await.unwrap();
    }
    far.promote("r").await.unwrap();
    let replica = far.volume("r").await.unwrap();
    assert_eq!(tree(&replica, Ino::ROOT).await, then);
    assert_eq!(far.check("r", true).await.unwrap().problems, Vec::<String>::new());
    registry.clone_snapshot("v", "two", "c").await.unwrap();
    assert_eq!(tree(&registry.volume("c").await.unwrap(), Ino::ROOT).await, then);
    assert_eq!(registry.check("c", true).await.unwrap().problems, Vec::<String>::new());
    volume.unlink(&root(), Ino::ROOT, b"a").await.unwrap();
    volume.unlink(&root(), Ino::ROOT, b"b").await.unwrap();
    volume.sync().await.unwrap();
    assert_eq!(tree(&volume, view(&volume, "two").await.unwrap()).await, then);
    check_clean(&registry).await;
}

/// On one thread the bounds are those of a simulated machine, so this is a file of many extents.
#[tokio::test]
async fn many_extents_are_laid_into_a_hole_or_not_at_all() {
    seam::simulate(Some(|| Box::pin(tokio::task::yield_now())));
    let (registry, volume) = fresh().await;
    let (a, b) = (file(&volume, Ino::ROOT, "a").await, file(&volume, Ino::ROOT, "b").await);
    let content = noise(1, 3_000_000);
    put(&volume, a, 0, content.clone(), Stability::Unstable).await;
    let (done, snapshot) = tokio::join!(clone(&volume, (a, 0), (b, 5), 3_000_000), volume.snapshot("s"));
    done.unwrap();
    snapshot.unwrap();
    let mut want = vec![0; 5];
    want.extend_from_slice(&content);
    assert!(read_all(&volume, b).await == want);
    check_clean(&registry).await;
    // Over data it is refused as a whole.
    put(&volume, b, 9, vec![1; 9], Stability::FileSync).await;
    want[9..18].fill(1);
    assert!(matches!(clone(&volume, (a, 0), (b, 0), 2_000_000).await, Err(FsError::FileTooLarge)));
    assert!(read_all(&volume, b).await == want);
    // A writer comes in between: either comes first, whole.
    let c = file(&volume, Ino::ROOT, "c").await;
    let writes = async {
        for n in 0..40u8 {
            put(&volume, c, u64::from(n) * 10, vec![n + 1; 10], Stability::FileSync).await;
        }
    };
    let (done, ()) = tokio::join!(clone(&volume, (a, 0), (c, 0), 3_000_000), writes);
    let found = read_all(&volume, c).await;
    match done {
        Ok(_) => {
            assert!(found[400..] == content[400..]);
            let lies =
                |n: usize| found[n * 10..n * 10 + 10] == content[n * 10..n * 10 + 10] || found[n * 10] == n as u8 + 1;
            assert!((0..40).all(lies));
        }
        // Its bytes were stored first, and then there is no hole.
        Err(FsError::Busy(_) | FsError::FileTooLarge) => assert_eq!(found.len(), 400),
        Err(error) => panic!("{error}"),
    }
    // The target goes meanwhile.
    let d = file(&volume, Ino::ROOT, "d").await;
    let root = root();
    let unlink = volume.unlink(&root, Ino::ROOT, b"d");
    let (done, gone) = tokio::join!(clone(&volume, (a, 0), (d, 0), 3_000_000), unlink);
    gone.unwrap();
    assert!(matches!(done, Ok(_) | Err(FsError::Stale)));
    volume.sync().await.unwrap();
    check_clean(&registry).await;
    registry.close().await.unwrap();
    seam::simulate(None);
}
