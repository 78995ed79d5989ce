//! Replicas of replicas, and volumes that were promoted and go back.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use super::replica::{change, err_text, promoted, receive};
use super::snapshots::tree;
use super::*;

async fn sent(registry: &Registry, volume: &str, snapshot: &str, from: Option<&str>) -> FsResult<Vec<Bytes>> {
    registry.send(volume, snapshot, from, None).await?.stream.try_collect().await
}

/// Sends a snapshot from one registry to the replica `r` of another.
async fn copied(from: &Registry, volume: &str, to: &Registry, snapshot: &str, base: Option<&str>) {
    let stream = sent(from, volume, snapshot, base).await.unwrap();
    receive(to, "r", &stream).await.unwrap();
}

/// The volume `v` with five snapshots, each as it is, at a replica.
async fn replicated(here: &Box_, there: &Box_) -> (Registry, Registry, BTreeMap<String, BTreeMap<String, Vec<u8>>>) {
    let (registry, volume) = here.open().await;
    let far = there.registry().await;
    let (mut want, mut base) = (BTreeMap::new(), None::<String>);
    for round in 0..5u8 {
        change(&volume, round).await;
        let name = format!("s{round}");
        volume.snapshot(&name).await.unwrap();
        want.insert(name.clone(), tree(&volume, Ino::ROOT).await);
        copied(&registry, "v", &far, &name, base.as_deref()).await;
        base = Some(name);
    }
    (registry, far, want)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_sent_on_as_it_came() {
    let (here, there, third) = (Box_::new(), Box_::new(), Box_::new());
    let (registry, far, want) = replicated(&here, &there).await;
    let last = third.registry().await;
    // Only as it came, and each refusal says what would do.
    let why = err_text(sent(&far, "r", "s3", None).await);
    assert!(why.contains("'s2'") && why.contains("--from s2"), "{why}");
    let why = err_text(sent(&far, "r", "s3", Some("s0")).await);
    assert!(why.contains("--from s2"), "{why}");
    assert!(matches!(sent(&far, "r", "nothing", None).await, Err(FsError::NotFound)));
    assert!(matches!(sent(&far, "r", "s0", Some("s1")).await, Err(FsError::Invalid(_))));
    // While it is sent nothing is received, and nothing goes.
    let under_way = far.send("r", "s0", None, None).await.unwrap();
    assert!(matches!(far.forget_received("r", &["s0".into()]).await, Err(FsError::Busy(_))));
    assert!(matches!(far.promote("r").await, Err(FsError::Busy(_))));
    drop(under_way);
    let names: Vec<&String> = want.keys().collect();
    for (at, name) in names.iter().enumerate() {
        let base = at.checked_sub(1).map(|at| names[at].as_str());
        // One that was given up lets go of the replica within moments.
        let stream = loop {
            match sent(&far, "r", name, base).await {
                Err(FsError::Busy(_)) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                stream => break stream.unwrap(),
            }
        };
        receive(&last, "r", &stream).await.unwrap();
    }
    assert_eq!(last.replica("r").await.unwrap().source, far.replica("r").await.unwrap().source);
    // The source itself goes on where the chain ended.
    let volume = registry.volume("v").await.unwrap();
    change(&volume, 5).await;
    volume.snapshot("s5").await.unwrap();
    let want = BTreeMap::from_iter(want.into_iter().chain([("s5".to_owned(), tree(&volume, Ino::ROOT).await)]));
    copied(&registry, "v", &last, "s5", Some("s4")).await;
    let copy = promoted(&last, &want).await;
    assert!(copy.diff("s1", Some("s4")).await.unwrap().len() > 20);
    let own = volume.diff("s1", Some("s4")).await.unwrap().len();
    assert_eq!(copy.diff("s1", Some("s4")).await.unwrap().len(), own, "the index of changes came along");
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_what_its_images_lie_over_says_so() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, far, _) = replicated(&here, &there).await;
    far.forget_received("r", &["s2".into()]).await.unwrap();
    let why = err_text(sent(&far, "r", "s3", Some("s1")).await);
    assert!(why.contains("has no more") && why.contains("promoted copy"), "{why}");
    registry.close().await.unwrap();
}

/// There, promoted, written to, and back: as a replica of another name, and never over what is here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_volume_goes_back_to_where_it_came_from() {
    let (here, there) = (Box_::new(), Box_::new());
    let (registry, far, mut want) = replicated(&here, &there).await;
    let copy = promoted(&far, &want).await;
    change(&copy, 5).await;
    copy.snapshot("there").await.unwrap();
    want.insert("there".into(), tree(&copy, Ino::ROOT).await);
    let over = sent(&far, "r", "there", Some("s4")).await.unwrap();
    assert!(err_text(receive(&registry, "v", &over).await).contains("volume of its own"));
    let mut base = None;
    for name in want.keys() {
        copied(&far, "r", &registry, name, base).await;
        base = Some(name.as_str());
    }
    // Another history of the same volume: refused, and the base that both have is named.
    let volume = registry.volume("v").await.unwrap();
    change(&volume, 5).await;
    volume.snapshot("here").await.unwrap();
    let other = sent(&registry, "v", "here", Some("s4")).await.unwrap();
    let why = err_text(receive(&registry, "r", &other).await);
    assert!(why.contains("'s4', which both have") && why.contains("snap destroy r@there"), "{why}");
    promoted(&registry, &want).await;
    far.close().await.unwrap();
}
