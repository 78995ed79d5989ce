//! Snapshots that are sent to another store, received there, and promoted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::snapshots::{find, put, store_bytes, tree, view};
use super::*;

/// All bytes of a stream.
async fn sent(registry: &Registry, snapshot: &str, from: Option<&str>) -> Vec<Bytes> {
    registry.send("v", snapshot, from, None).await.unwrap().stream.try_collect().await.unwrap()
}

fn length(stream: &[Bytes]) -> usize {
    stream.iter().map(Bytes::len).sum()
}

pub(super) async fn receive(
    registry: &Registry,
    name: &str,
    stream: &[Bytes],
) -> FsResult<crate::replica::ReplicaSnapshot> {
    let pieces: Vec<FsResult<Bytes>> = stream.iter().cloned().map(Ok).collect();
    registry.receive(name, futures::stream::iter(pieces).boxed()).await
}

/// Promotes the replica `r`, and compares it and each of its snapshots with what they should be.
pub(super) async fn promoted(registry: &Registry, want: &BTreeMap<String, BTreeMap<String, Vec<u8>>>) -> Volume {
    registry.promote("r").await.unwrap();
    let volume = registry.volume("r").await.unwrap();
    let (_, newest) = want.last_key_value().unwrap();
    assert_eq!(&tree(&volume, Ino::ROOT).await, newest);
    let names: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    assert_eq!(names, want.keys().cloned().collect::<Vec<_>>());
    for (name, want) in want {
        let top = view(&volume, name).await.unwrap();
        assert_eq!(&tree(&volume, top).await, want, "{name}");
    }
    assert_eq!(registry.check("r", true).await.unwrap().problems, Vec::<String>::new());
    volume
}

pub(super) async fn change(volume: &Volume, round: u8) {
    let dir =
        volume.mkdir(&root(), Ino::ROOT, format!("d{round}").as_bytes(), SetAttr::default()).await.unwrap().0.id.ino;
    for number in 0..20u8 {
        let ino = file(volume, dir, &format!("f{number}")).await;
        put(volume, ino, 0, vec![round * 20 + number; 1000 * usize::from(number)], Stability::Unstable).await;
    }
    if round > 0 {
        let before = find(volume, Ino::ROOT, &format!("d{}", round - 1)).await.unwrap();
        volume.unlink(&root(), before, b"f3").await.unwrap();
        volume.rename(&root(), before, b"f4", before, b"renamed", RenameMode::Replace).await.unwrap();
        let ino = find(volume, before, "f19").await.unwrap();
        put(volume, ino, 5000, vec![200 + round; 3000], Stability::Unstable).await;
        let ino = find(volume, before, "f18").await.unwrap();
        volume.setattr(&root(), ino, SetAttr { size: Some(77), ..SetAttr::default() }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_has_what_was_sent_and_becomes_a_volume() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let mut want = BTreeMap::new();
    let mut before: Option<String> = None;
    for round in 0..5u8 {
        change(&volume, round).await;
        let name = format!("s{round}");
        volume.snapshot(&name).await.unwrap();
        // Goes on before it is sent.
        want.insert(name.clone(), tree(&volume, Ino::ROOT).await);
        file(&volume, Ino::ROOT, &format!("later{round}")).await;
        let stream = sent(&registry, &name, before.as_deref()).await;
        let received = receive(&far, "r", &stream).await.unwrap();
        assert_eq!(received.name, name);
        before = Some(name);
    }
    let info = far.replica("r").await.unwrap();
    assert_eq!((info.snapshots.len(), info.source, info.unfinished), (5, volume.id(), None));
    assert!(matches!(far.volume("r").await, Err(FsError::Replica)));
    assert!(far.list().await.unwrap()[0].replica);
    // It was a replica when the machine was restarted, too.
    far.close().await.unwrap();
    let far = there.registry().await;
    let copy = promoted(&far, &want).await;
    // It is a volume like any other.
    let ino = file(&copy, Ino::ROOT, "new").await;
    put(&copy, ino, 0, vec![1; 100_000], Stability::FileSync).await;
    assert!(copy.diff("s1", Some("s2")).await.unwrap().len() > 20);
    copy.snapshot("own").await.unwrap();
    copy.destroy_snapshot("s0").await.unwrap();
    let id = copy.id();
    drop(copy);
    far.roll_back("r", "s1").await.unwrap();
    let copy = far.volume("r").await.unwrap();
    assert_eq!(tree(&copy, Ino::ROOT).await, want["s1"]);
    assert_eq!(copy.id(), id);
    for name in ["s1", "s2", "s3", "s4", "own"] {
        copy.destroy_snapshot(name).await.unwrap();
    }
    drop(copy);
    far.close().await.unwrap();
    let far = there.registry().await;
    assert_eq!(tree(&far.volume("r").await.unwrap(), Ino::ROOT).await, want["s1"]);
    assert_eq!(far.check("r", true).await.unwrap().problems, Vec::<String>::new());
    assert!(err_text(receive(&far, "r", &sent(&registry, "s4", Some("s3")).await).await).contains("volume of its own"));
    registry.close().await.unwrap();
}

pub(super) fn err_text<T: std::fmt::Debug>(result: FsResult<T>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_changes_are_a_short_stream() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    for number in 0..3000 {
        let dir = match find(&volume, Ino::ROOT, &format!("d{}", number / 100)).await {
            Ok(dir) => dir,
            Err(_) => {
                volume
                    .mkdir(&root(), Ino::ROOT, format!("d{}", number / 100).as_bytes(), SetAttr::default())
                    .await
                    .unwrap()
                    .0
                    .id
                    .ino
            }
        };
        file(&volume, dir, &format!("a file with a name of some length {number}")).await;
    }
    volume.snapshot("one").await.unwrap();
    let whole = sent(&registry, "one", None).await;
    receive(&far, "r", &whole).await.unwrap();
    let dir = find(&volume, Ino::ROOT, "d7").await.unwrap();
    for number in 0..10 {
        let ino = find(&volume, dir, &format!("a file with a name of some length {}", 700 + number)).await.unwrap();
        volume.setattr(&root(), ino, SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
    }
    volume.snapshot("two").await.unwrap();
    let part = sent(&registry, "two", Some("one")).await;
    receive(&far, "r", &part).await.unwrap();
    assert!(length(&part) * 20 < length(&whole), "{} of {}", length(&part), length(&whole));
    let want = BTreeMap::from([
        ("one".to_owned(), tree(&volume, view(&volume, "one").await.unwrap()).await),
        ("two".to_owned(), tree(&volume, Ino::ROOT).await),
    ]);
    promoted(&far, &want).await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    for name in ["a", "b", "c"] {
        file(&volume, Ino::ROOT, name).await;
        volume.snapshot(name).await.unwrap();
    }
    let (a, ab, bc, ac) = (
        sent(&registry, "a", None).await,
        sent(&registry, "b", Some("a")).await,
        sent(&registry, "c", Some("b")).await,
        sent(&registry, "c", Some("a")).await,
    );
    assert!(err_text(receive(&far, "r", &ab).await).contains("no such file"));
    receive(&far, "r", &a).await.unwrap();
    assert!(err_text(receive(&far, "r", &bc).await).contains("the newest it has is 'a'"));
    assert!(err_text(receive(&far, "r", &a).await).contains("already"));
    assert!(err_text(registry.send("v", "a", Some("b"), None).await.map(drop)).contains("not older"));
    // One may be left out.
    receive(&far, "r", &ac).await.unwrap();
    assert!(err_text(receive(&far, "r", &ab).await).contains("newer than 'b'"));
    let other = Box_::new();
    let (elsewhere, stranger) = other.open().await;
    stranger.snapshot("a").await.unwrap();
    stranger.snapshot("d").await.unwrap();
    assert!(err_text(receive(&far, "r", &sent(&elsewhere, "d", Some("a")).await).await).contains("another volume"));
    // Somebody else's objects are out of reach.
    assert_eq!(far.replica("r").await.unwrap().snapshots.len(), 2);
    let want = BTreeMap::from([
        ("a".to_owned(), tree(&volume, view(&volume, "a").await.unwrap()).await),
        ("c".to_owned(), tree(&volume, view(&volume, "c").await.unwrap()).await),
    ]);
    promoted(&far, &want).await;
    registry.close().await.unwrap();
    elsewhere.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_cut_anywhere_changes_nothing_and_is_resumed() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    change(&volume, 0).await;
    volume.snapshot("s0").await.unwrap();
    receive(&far, "r", &sent(&registry, "s0", None).await).await.unwrap();
    change(&volume, 1).await;
    volume.sync().await.unwrap();
    change(&volume, 2).await;
    volume.snapshot("s1").await.unwrap();
    let stream = sent(&registry, "s1", Some("s0")).await;
    let pieces = stream.len();
    for cut in (0..pieces).step_by(3) {
        let cut_off = receive(&far, "r", &stream[..cut]).await;
        assert!(err_text(cut_off).contains("ends in the middle"), "piece {cut}");
        assert_eq!(far.replica("r").await.unwrap().snapshots.len(), 1, "piece {cut}");
    }
    assert_eq!(far.replica("r").await.unwrap().unfinished.as_deref(), Some("s1"));
    let token = far.resume("r").await.unwrap().unwrap();
    assert_eq!(token.names(), ("s1", Some("s0")));
    let text = serde_json::to_string(&token).unwrap();
    let rest: Vec<Bytes> = {
        let token = serde_json::from_str(&text).unwrap();
        registry.send("v", "s1", Some("s0"), Some(&token)).await.unwrap().stream.try_collect().await.unwrap()
    };
    assert!(length(&rest) < length(&stream), "segments that came are left out");
    // A token that claims more than came leaves out what is needed. A receiver without it notices, and has what it had.
    let third = Box_::new();
    let bare = third.registry().await;
    receive(&bare, "r", &sent(&registry, "s0", None).await).await.unwrap();
    for segments in [[0u64, 1 << 20], [0, u64::MAX]] {
        let mut forged: serde_json::Value = serde_json::from_str(&text).unwrap();
        forged["segments"] = serde_json::json!([segments]);
        let forged = serde_json::from_value(forged).unwrap();
        let outgoing = registry.send("v", "s1", Some("s0"), Some(&forged)).await;
        let lacking: FsResult<Vec<Bytes>> = match outgoing {
            Ok(outgoing) => outgoing.stream.try_collect().await,
            Err(error) => Err(error),
        };
        if let Ok(lacking) = lacking {
            assert!(segments[1] < u64::MAX && length(&lacking) < length(&stream));
            assert!(receive(&bare, "r", &lacking).await.is_err());
        }
        assert_eq!(bare.replica("r").await.unwrap().snapshots.len(), 1);
    }
    // A token about another snapshot is refused.
    assert!(registry.send("v", "s0", None, Some(&token)).await.is_err());
    receive(&far, "r", &rest).await.unwrap();
    assert_eq!(far.resume("r").await.unwrap(), None);
    let want = BTreeMap::from([
        ("s0".to_owned(), tree(&volume, view(&volume, "s0").await.unwrap()).await),
        ("s1".to_owned(), tree(&volume, view(&volume, "s1").await.unwrap()).await),
    ]);
    promoted(&far, &want).await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_to_be_used_later_is_known_of_the_replica() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    volume.snapshot("s0").await.unwrap();
    receive(&far, "r", &sent(&registry, "s0", None).await).await.unwrap();
    volume.allocate(&root(), ino, 0, 100_000, AllocateMode::KeepSize).await.unwrap();
    volume.snapshot("s1").await.unwrap();
    let stream = sent(&registry, "s1", Some("s0")).await;
    // Another attempt, of a snapshot that will not come, leaves an object where this one's could be taken for it.
    let id = far.list().await.unwrap()[0].id;
    let stray = Path::from(format!("volumes/{id}/seg/00000000000000ff"));
    there.store.put(&stray, Bytes::from_static(b"another history").into()).await.unwrap();
    receive(&far, "r", &stream).await.unwrap();
    assert!(there.store.head(&stray).await.is_err(), "it is swept before the stream is taken");
    let text = there.store.get(&Path::from("registry.json")).await.unwrap().bytes().await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("reserved-ranges"));
    registry.close().await.unwrap();
}

/// The features of a volume in its registry, by the sets that begin with these words.
async fn features_of(store: &dyn object_store::ObjectStore) -> serde_json::Value {
    let text = store.get(&Path::from("registry.json")).await.unwrap().bytes().await.unwrap();
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    document["volumes"][0]["features"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_with_pieces_make_a_replica_that_older_programs_refuse() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    volume.snapshot("s0").await.unwrap();
    let before = sent(&registry, "s0", None).await;
    assert!(!String::from_utf8_lossy(&before.concat()).contains("pieces"));
    receive(&far, "r", &before).await.unwrap();
    assert_eq!(features_of(&*there.store).await["incompatible"], serde_json::json!(["replica"]));
    put(&volume, ino, 0, (0..200_000u32).map(|at| (at / 7) as u8).collect(), Stability::FileSync).await;
    volume.snapshot("s1").await.unwrap();
    let stream = sent(&registry, "s1", Some("s0")).await;
    // An older program takes every name of the header for one that it may read around, and refuses to write what it does not know.
    assert!(String::from_utf8_lossy(&stream.concat()).contains("\"pieces\""), "the header names them");
    let cut_off = receive(&far, "r", &stream[..stream.len() - 1]).await;
    assert!(cut_off.is_err());
    assert_eq!(features_of(&*there.store).await["incompatible"], serde_json::json!(["replica", "pieces"]));
    receive(&far, "r", &stream).await.unwrap();
    let third = Box_::new();
    let whole = third.registry().await;
    receive(&whole, "r", &sent(&registry, "s1", None).await).await.unwrap();
    assert_eq!(features_of(&*third.store).await["incompatible"], serde_json::json!(["pieces", "replica"]));
    let s1 = tree(&volume, view(&volume, "s1").await.unwrap()).await;
    promoted(&whole, &BTreeMap::from([("s1".to_owned(), s1.clone())])).await;
    let s0 = tree(&volume, view(&volume, "s0").await.unwrap()).await;
    promoted(&far, &BTreeMap::from([("s0".to_owned(), s0), ("s1".to_owned(), s1)])).await;
    assert_eq!(features_of(&*there.store).await["incompatible"], serde_json::json!(["pieces"]));
    for registry in [registry, far, whole] {
        registry.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_forgets_snapshots_with_all_that_only_they_need() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    let mut before: Option<String> = None;
    for round in 0..4u8 {
        put(
            &volume,
            ino,
            0,
            (0..200_000).map(|at: u32| (at as u8).wrapping_mul(7).wrapping_add(round)).collect(),
            Stability::FileSync,
        )
        .await;
        let name = format!("s{round}");
        volume.snapshot(&name).await.unwrap();
        receive(&far, "r", &sent(&registry, &name, before.as_deref()).await).await.unwrap();
        before = Some(name);
    }
    let full = store_bytes(&there).await;
    let used: u64 = far.replica("r").await.unwrap().snapshots[1].used_bytes;
    assert!(used > 0);
    far.forget_received("r", &["s1".into()]).await.unwrap();
    assert!(store_bytes(&there).await <= full - used + 1000);
    far.forget_received("r", &["s0".into(), "s2".into()]).await.unwrap();
    assert!(err_text(far.forget_received("r", &["s2".into()]).await).contains("no such file"));
    let want = BTreeMap::from([("s3".to_owned(), tree(&volume, view(&volume, "s3").await.unwrap()).await)]);
    promoted(&far, &want).await;
    drop(volume);
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_that_was_cut_off_begins_anew() {
    static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
    let (here, mut there) = (Box_::new(), Box_::new());
    there.log = None;
    let (registry, volume) = here.open().await;
    let plain = there.clone();
    let mut want = BTreeMap::new();
    let mut before: Option<String> = None;
    // Images over images: an attempt writes them anew.
    for round in 0..3u8 {
        change(&volume, round).await;
        let name = format!("s{round}");
        volume.snapshot(&name).await.unwrap();
        want.insert(name.clone(), tree(&volume, Ino::ROOT).await);
        let stream = sent(&registry, &name, before.as_deref()).await;
        receive(&plain.registry().await, "r", &stream).await.unwrap();
        before = Some(name);
    }
    there.store = std::sync::Arc::new(failing::Failing { inner: plain.store.clone(), left: &LEFT });
    let mut failures = 0;
    for left in 0.. {
        let far = there.registry().await;
        LEFT.store(left, Ordering::SeqCst);
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(20), far.promote("r")).await;
        LEFT.store(u64::MAX, Ordering::SeqCst);
        if matches!(outcome, Ok(Ok(()))) {
            break;
        }
        failures += 1;
        assert!(matches!(far.volume("r").await, Err(FsError::Replica)), "after {left} puts");
        assert!(left < 50, "it never succeeds");
    }
    assert!(failures > 1, "{failures}");
    let far = there.registry().await;
    let copy = far.volume("r").await.unwrap();
    assert_eq!(tree(&copy, Ino::ROOT).await, want["s2"]);
    for (name, want) in &want {
        assert_eq!(&tree(&copy, view(&copy, name).await.unwrap()).await, want, "{name}");
    }
    assert!(!copy.diff("s0", Some("s1")).await.unwrap().is_empty());
    assert_eq!(far.check("r", true).await.unwrap().problems, Vec::<String>::new());
    assert!(there.store.head(&Path::from(format!("volumes/{}/replica.json", copy.id()))).await.is_err());
    registry.close().await.unwrap();
}

mod failing {
    use std::fmt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::stream::BoxStream;
    use object_store::path::Path;
    use object_store::*;

    /// Refuses every put after `left` of them.
    #[derive(Debug)]
    pub(super) struct Failing {
        pub(super) inner: Arc<dyn ObjectStore>,
        pub(super) left: &'static AtomicU64,
    }

    impl fmt::Display for Failing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.inner.fmt(f)
        }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Failing {
        async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
            let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                u64::MAX => Some(left),
                left => left.checked_sub(1),
            });
            if left.is_err() {
                return Err(Error::NotSupported { source: "no more puts".into() });
            }
            self.inner.put_opts(at, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            at: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.inner.put_multipart_opts(at, options).await
        }
        async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
            self.inner.get_opts(at, options).await
        }
        fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.inner.delete_stream(paths)
        }
        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.inner.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.inner.list_with_delimiter(prefix).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.inner.copy_opts(from, to, options).await
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_of_a_replica_names_what_is_lost() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    change(&volume, 0).await;
    volume.snapshot("s0").await.unwrap();
    receive(&far, "r", &sent(&registry, "s0", None).await).await.unwrap();
    let whole = far.check_replica("r", true).await.unwrap();
    assert_eq!(whole.problems, Vec::<String>::new());
    assert!(whole.objects > 1 && whole.bytes > 0);
    let store = far.store();
    let objects: Vec<ObjectMeta> = store.list(None).try_collect().await.unwrap();
    let segment = objects.iter().find(|meta| meta.location.as_ref().contains("/seg/")).unwrap();
    store.delete(&segment.location).await.unwrap();
    let lacking = far.check_replica("r", false).await.unwrap();
    assert!(matches!(&lacking.problems[..], [one] if one.contains("missing") && one.contains("'s0'")), "{lacking:?}");
    store.put(&segment.location, b"short".as_slice().into()).await.unwrap();
    let lacking = far.check_replica("r", true).await.unwrap();
    assert!(matches!(&lacking.problems[..], [one] if one.contains("5 bytes")), "{lacking:?}");
}
