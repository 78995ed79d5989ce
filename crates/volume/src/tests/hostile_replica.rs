//! A sender that says all that a stream can say. `replica.sender_is_a_stranger`

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use larder_base::checksum::checksum;
use object_store::path::Path;
use serde_json::{Value, json};

use super::replica::err_text;
use super::snapshots::{put, tree, view};
use super::*;
use crate::replica::ReceiveLimits;

type Frame = (u8, Vec<u8>);

/// The frames of a stream.
async fn frames(registry: &Registry, snapshot: &str, from: Option<&str>) -> Vec<Frame> {
    let outgoing = registry.send("v", snapshot, from, None).await.unwrap();
    let bytes: Vec<u8> = outgoing.stream.try_collect::<Vec<Bytes>>().await.unwrap().concat();
    let (mut rest, mut out) = (&bytes[16..], Vec::new());
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        out.push((rest[0], rest[5..5 + length].to_vec()));
        rest = &rest[5 + length + 8..];
    }
    out
}

fn stream(frames: &[Frame]) -> Vec<Bytes> {
    let mut out = b"LARDSEND\0\0\0\x01\0\0\0\0".to_vec();
    for (number, (kind, body)) in frames.iter().enumerate() {
        out.push(*kind);
        out.extend((body.len() as u32).to_be_bytes());
        out.extend(body);
        out.extend(checksum((number as u64) << 8 | u64::from(*kind), body).to_be_bytes());
    }
    vec![out.into()]
}

/// The frames with a JSON frame changed: the header, or the end.
fn changed(frames: &[Frame], kind: u8, change: impl Fn(&mut Value)) -> Vec<Frame> {
    let mut out = frames.to_vec();
    for (_, body) in out.iter_mut().filter(|(own, _)| *own == kind) {
        let mut value = serde_json::from_slice(body).unwrap();
        change(&mut value);
        *body = serde_json::to_vec(&value).unwrap();
    }
    out
}

async fn receive(registry: &Registry, frames: &[Frame]) -> FsResult<crate::replica::ReplicaSnapshot> {
    super::replica::receive(registry, "r", &stream(frames)).await
}

async fn names(registry: &Registry) -> Vec<String> {
    registry.replica("r").await.unwrap().snapshots.into_iter().map(|one| one.name).collect()
}

fn object(path: &str, bytes: u64) -> Frame {
    (2, [&bytes.to_be_bytes()[..], path.as_bytes()].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_first_stream_leaves_nothing() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    put(&volume, ino, 0, vec![7; 200_000], Stability::FileSync).await;
    volume.snapshot("a").await.unwrap();
    let good = frames(&registry, "a", None).await;
    let name = |name: &'static str| changed(&good, 1, move |header| header["to"]["name"] = json!(name));
    let header = |key: &'static str, value: Value| changed(&good, 1, move |header| header[key] = value.clone());
    let mut hostile = vec![
        name("evil\u{1b}]0;pwned\u{7}\u{1b}[31m/../../x\nauto"),
        name("../../x"),
        name(".."),
        name(""),
        name("a\u{202e}b"),
        name("a\nb"),
        header("volume", json!("../x")),
        header("features", json!(["\u{1b}[31m"])),
        header("features", json!(vec!["snapshots"; 100_000])),
        header("sealed", json!(true)),
        changed(&good, 1, |header| header["to"]["number"] = json!(u64::MAX)),
        changed(&good, 1, |header| header["properties"]["record_bytes"] = json!(0)),
        changed(&good, 1, |header| header["properties"]["record_bytes"] = json!(1u32 << 31)),
        changed(&good, 1, |header| header["properties"]["compression"] = json!("\u{1b}[31m")),
        changed(&good, 1, |header| {
            let quotas: Vec<Value> = (1..20_000).map(|id| json!({"id": id, "bytes": 1})).collect();
            header["properties"]["user_quotas"] = json!(quotas);
        }),
        changed(&good, 4, |end| end["segments"] = json!([[0, u64::MAX]])),
        changed(&good, 4, |end| end["segments"] = json!([[0, 1u64 << 27]])),
        changed(&good, 4, |end| end["tables"] = json!([])),
        changed(&good, 4, |end| end["tables"] = json!(["../../registry.json"])),
        changed(&good, 4, |end| end["objects"] = json!(1u64 << 40)),
        vec![good[0].clone(), (3, b"data of nothing".to_vec())],
    ];
    for path in ["../../registry.json", "replica.json", "seg/../../x", "keyring.json", "seg/000000000000000G", "snap/0"]
    {
        hostile.push(vec![good[0].clone(), object(path, 3), (3, b"abc".to_vec())]);
    }
    hostile.push(vec![good[0].clone(), object("seg/0000000000000001", 0)]);
    hostile.push(vec![good[0].clone(), object("seg/0000000000000001", 1 << 37)]);
    for frames in &hostile {
        let why = err_text(receive(&far, frames).await);
        assert!(why.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "it is printed: {why:?}");
        assert!(far.list().await.unwrap().is_empty(), "{why}");
        let listed: Vec<_> = there.store.list(Some(&Path::from("volumes"))).try_collect().await.unwrap();
        assert!(listed.is_empty(), "{why}: {listed:?}");
    }
    // What is whole comes in all the same, and a later stream that is refused takes nothing away.
    receive(&far, &good).await.unwrap();
    file(&volume, Ino::ROOT, "g").await;
    volume.snapshot("b").await.unwrap();
    let good = frames(&registry, "b", Some("a")).await;
    for hostile in [
        changed(&good, 1, |header| header["to"]["name"] = json!("a/b")),
        changed(&good, 1, |header| header["from"]["name"] = json!("\u{1b}[2J")),
        changed(&good, 1, |header| header["sealed"] = json!(true)),
        changed(&good, 1, |header| header["from"] = json!(null)),
        changed(&good, 1, |header| header["source"] = json!("00000000-0000-0000-0000-000000000007")),
        vec![good[0].clone(), object("keyring.json", 3), (3, b"abc".to_vec())],
        changed(&good, 1, |header| header["keyring_only"] = json!(true)),
    ] {
        err_text(receive(&far, &hostile).await);
        assert_eq!(names(&far).await, ["a"]);
    }
    receive(&far, &good).await.unwrap();
    let want = tree(&volume, Ino::ROOT).await;
    far.promote("r").await.unwrap();
    assert_eq!(tree(&far.volume("r").await.unwrap(), Ino::ROOT).await, want);
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_taken_stays_with_its_snapshot() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let mut want = Vec::new();
    for name in ["a", "b", "c"] {
        file(&volume, Ino::ROOT, name).await;
        volume.snapshot(name).await.unwrap();
        want.push(tree(&volume, Ino::ROOT).await);
    }
    receive(&far, &frames(&registry, "a", None).await).await.unwrap();
    for (name, from) in [("b", "a"), ("c", "b")] {
        let forged = changed(&frames(&registry, name, Some(from)).await, 1, |header| header["to"]["name"] = json!("a"));
        let received = receive(&far, &forged).await.unwrap();
        assert!(received.name.starts_with("a-"), "{}", received.name);
    }
    let all = names(&far).await;
    assert_eq!(all[0], "a");
    // Names and moments of the promoted volume are those of the replica, whatever the rows say.
    far.promote("r").await.unwrap();
    let copy = far.volume("r").await.unwrap();
    assert_eq!(copy.snapshots().into_iter().map(|info| info.name).collect::<Vec<_>>(), all);
    for (name, want) in all.iter().zip(&want) {
        assert_eq!(&tree(&copy, view(&copy, name).await.unwrap()).await, want, "{name}");
    }
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_while_a_stream_arrives() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let ino = file(&volume, Ino::ROOT, "f").await;
    put(&volume, ino, 0, vec![7; 1000], Stability::FileSync).await;
    volume.snapshot("a").await.unwrap();
    let quota = ReceiveLimits { quota_bytes: Some(300_000) };
    let within = async |frames: &[Frame]| {
        let pieces: Vec<FsResult<Bytes>> = stream(frames).into_iter().map(Ok).collect();
        far.receive_within("r", quota, futures::stream::iter(pieces).boxed()).await
    };
    within(&frames(&registry, "a", None).await).await.unwrap();
    // Nothing that a codec could make shorter.
    let noise: Vec<u8> = (0..50_000u64).flat_map(|at| checksum(at, b"noise").to_be_bytes()).collect();
    put(&volume, ino, 0, noise, Stability::FileSync).await;
    volume.snapshot("b").await.unwrap();
    let large = frames(&registry, "b", Some("a")).await;
    for _ in 0..2 {
        let why = err_text(within(&large).await);
        assert!(why.contains("quota of 300000") && why.contains("'r'"), "{why}");
        assert!(super::snapshots::store_bytes(&there).await < 400_000, "it was refused before it came");
    }
    // As many tiny objects as there is no room for.
    let mut tiny = vec![large[0].clone()];
    for number in 0x1000..0x1100 {
        tiny.extend([object(&format!("seg/{number:016x}"), 1), (3, b"x".to_vec())]);
    }
    assert!(err_text(within(&tiny).await).contains("quota"));
    assert_eq!(names(&far).await, ["a"]);
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_interrupts_a_stream_that_never_ends() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = std::sync::Arc::new(there.registry().await);
    file(&volume, Ino::ROOT, "f").await;
    volume.snapshot("a").await.unwrap();
    receive(&far, &frames(&registry, "a", None).await).await.unwrap();
    file(&volume, Ino::ROOT, "g").await;
    volume.snapshot("b").await.unwrap();
    let beginning = stream(&frames(&registry, "b", Some("a")).await[..1]);
    let endless = |beginning: Vec<Bytes>| {
        futures::stream::iter(beginning.into_iter().map(Ok)).chain(futures::stream::pending()).boxed()
    };
    let hung = {
        let (far, pieces) = (std::sync::Arc::clone(&far), endless(beginning));
        tokio::spawn(async move { far.receive("r", pieces).await })
    };
    let begins = async {
        while far.replica("r").await.unwrap().unfinished.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), begins).await.unwrap();
    far.hold_received("r", "a", "mine", None).await.unwrap();
    assert!(err_text(hung.await.unwrap()).contains("owner"));
    assert_eq!(far.replica("r").await.unwrap().snapshots[0].holds.len(), 1);
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_stream_that_names_many_segments_costs_no_more_than_what_is_there() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    file(&volume, Ino::ROOT, "f").await;
    volume.snapshot("a").await.unwrap();
    receive(&far, &frames(&registry, "a", None).await).await.unwrap();
    file(&volume, Ino::ROOT, "g").await;
    volume.snapshot("b").await.unwrap();
    let good = frames(&registry, "b", Some("a")).await;
    let many = changed(&good, 4, |end| end["segments"] = json!([[1u64 << 40, 1u64 << 22]]));
    for _ in 0..2 {
        let began = std::time::Instant::now();
        let why = err_text(receive(&far, &many).await);
        assert!(why.contains("neither in it nor in the replica"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    receive(&far, &good).await.unwrap();
    registry.close().await.unwrap();
}
