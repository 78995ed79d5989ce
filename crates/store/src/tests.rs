//! Stores over a server in this process, with faults from a seed.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::log::{LogError, LogStore, Tenure};
use object_store::integration;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};

use crate::server::Server;
use crate::{Bucket, BucketError, BucketLog, BucketSettings, Kind, Machine, Owner, ProbeState, TakeOver};

pub(crate) fn bucket(endpoint: &str) -> Bucket {
    let settings = BucketSettings {
        url: "s3://test/some/where".parse().unwrap(),
        endpoint: Some(endpoint.to_owned()),
        region: Some("here".to_owned()),
        allow_http: false,
        virtual_hosted: false,
    };
    Bucket::open_with_keys(&settings, "key", "secret").unwrap()
}

pub(crate) async fn fresh() -> (Arc<Server>, Bucket) {
    let (server, url) = Server::start().await.unwrap();
    let bucket = bucket(&url);
    (server, bucket)
}

fn machine(name: &str) -> Machine {
    Machine { name: name.to_owned(), id: format!("{name}-1") }
}

fn payload(text: &str) -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(text.as_bytes())]
}

/// In this order: some parts leave objects behind, and others want none.
async fn suite(bucket: &Bucket) {
    let store = &bucket.store;
    integration::put_get_delete_list(store).await;
    integration::list_uses_directories_correctly(store).await;
    integration::list_with_delimiter(store).await;
    integration::rename_and_copy(store).await;
    integration::stream_get(store).await;
    integration::get_opts(store).await;
    integration::multipart_out_of_order(store).await;
    integration::multipart_race_condition(store, true).await;
    integration::list_with_offset_exclusivity(store).await;
    integration::put_get_attributes(&**store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_of_object_stores() {
    let (_server, bucket) = fresh().await;
    suite(&bucket).await;
    integration::put_opts(&bucket.store, true).await;
}

/// Every promise holds while requests are throttled, cut off before and after they are served, and half answered.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_with_faults() {
    let (server, bucket) = fresh().await;
    for (name, value) in [("seed", "7"), ("slow_down", "40"), ("cut_before", "40"), ("cut_after", "40"), ("half", "40")]
    {
        server.set_fault(name, value);
    }
    suite(&bucket).await;
    // Its writers overwrite each other at once. One whose answer is lost and whose object is another's by now cannot know that it won
    // for a moment, which this part wants it to.
    server.set_fault("cut_after", "0");
    integration::put_opts(&bucket.store, true).await;
    assert!(bucket.requests.repeated.get() > 20, "the faults were there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conditional_write_knows_its_own_work() {
    let (server, bucket) = fresh().await;
    server.set_fault("cut_after", "150");
    let at = Path::from("counter");
    let mut version: Option<UpdateVersion> = None;
    for n in 0..30 {
        let mode = version.take().map_or(PutMode::Create, PutMode::Update);
        let put = bucket.store.put_opts(&at, format!("{n}").into(), mode.into()).await.unwrap();
        version = Some(UpdateVersion { e_tag: put.e_tag, version: put.version });
    }
    // Another's work is not taken for one's own.
    let lost = bucket.store.put_opts(&at, "x".into(), PutMode::Create.into()).await;
    assert!(matches!(lost, Err(Error::AlreadyExists { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_down_is_told_and_comes_back() {
    let (server, bucket) = fresh().await;
    let at = Path::from("a");
    bucket.store.put(&at, "1".into()).await.unwrap();
    server.set_fault("down", "1");
    assert!(matches!(bucket.store.get(&at).await, Err(Error::Generic { .. })));
    assert!(bucket.health.trouble().unwrap().why.contains("SlowDown"));
    server.set_fault("down", "0");
    bucket.store.get(&at).await.unwrap();
    assert!(bucket.health.trouble().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_as_the_server_does() {
    let (server, bucket) = fresh().await;
    let at = Path::from("a");
    bucket.store.put(&at, "1".into()).await.unwrap();
    bucket.store.get(&at).await.unwrap().bytes().await.unwrap();
    bucket.store.head(&at).await.unwrap();
    bucket.store.list_with_delimiter(None).await.unwrap();
    bucket.store.delete(&at).await.unwrap();
    let told = [Kind::Put, Kind::Get, Kind::List, Kind::Delete].map(|kind| bucket.requests.of(kind));
    assert_eq!(told, [1, 2, 1, 1]);
    assert_eq!(bucket.requests.all(), server.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_conditions_is_refused() {
    let (server, bucket) = fresh().await;
    let probes = crate::check(Arc::clone(&bucket.store)).await;
    let bad: Vec<_> = probes.iter().filter(|probe| probe.state != ProbeState::Ok).collect();
    assert!(bad.is_empty() && probes.len() == 11, "{bad:?}");
    assert_eq!(server.keys(), Vec::<String>::new(), "nothing is left of the check");
    server.set_fault("unconditional", "1");
    let probes = crate::check(Arc::clone(&bucket.store)).await;
    let missing: Vec<_> = probes.iter().filter(|probe| probe.state == ProbeState::Missing).map(|p| p.name).collect();
    assert_eq!(missing, ["conditional create", "conditional update"]);
    server.set_fault("skewed", "1");
    let probes = crate::check(Arc::clone(&bucket.store)).await;
    assert_eq!(
        probes.iter().map(|probe| (probe.name, probe.state)).collect::<Vec<_>>(),
        [("clock", ProbeState::Missing)]
    );
    assert!(probes[0].seen.contains("set the clock"), "{probes:?}");
}

// ---------------------------------------------------------------------------------------------- owner

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_and_who_comes_after() {
    let (_server, bucket) = fresh().await;
    let take = async |name: &str, force| {
        let how = if force { TakeOver::Forced } else { TakeOver::No };
        Owner::take(Arc::clone(&bucket.store), &bucket.url, machine(name), how).await
    };
    let a = take("a", false).await.unwrap();
    let refused = take("b", false).await.err().unwrap();
    assert!(matches!(&refused, BucketError::Owned { machine, .. } if machine == "a"), "{refused}");
    // The same machine after a crash.
    let again = take("a", false).await.unwrap();
    assert_eq!((a.epoch(), again.epoch()), (1, 2));
    assert!(matches!(a.verify().await, Err(BucketError::Lost { .. })));
    again.verify().await.unwrap();
    let b = take("b", true).await.unwrap();
    assert!(matches!(again.verify().await, Err(BucketError::Lost { machine, .. }) if machine == "b"));
    // Who has lost it does not give it back for the other.
    again.release().await.unwrap();
    assert!(take("c", false).await.is_err());
    b.release().await.unwrap();
    assert_eq!(take("c", false).await.unwrap().epoch(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_new_owners_at_once_one_is_told() {
    let (_server, bucket) = fresh().await;
    let take = |name: &'static str| Owner::take(Arc::clone(&bucket.store), &bucket.url, machine(name), TakeOver::No);
    let (a, b) = tokio::join!(take("a"), take("b"));
    assert!(a.is_ok() != b.is_ok());
}

/// `owner.answers_on_proof`: an owner whose proof is old asks before anything is answered, and is told.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_without_a_young_proof_asks_first() {
    let (server, bucket) = fresh().await;
    let take = async |name: &str| {
        Owner::take(Arc::clone(&bucket.store), &bucket.url, machine(name), TakeOver::Forced).await.unwrap()
    };
    let a = take("a").await;
    let before = server.requests();
    assert!(a.is_proven(), "to have taken it is a proof");
    a.doubt();
    assert!(!a.is_proven());
    a.prove().await.unwrap();
    assert_eq!(server.requests(), before + 1);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    a.on_loss(move |error| hears.lock().unwrap().push(error.to_string()));
    let begun = Instant::now();
    let b = take("b").await;
    a.doubt();
    assert!(a.prove().await.is_err() && !a.is_proven());
    assert!(a.prove().await.is_err());
    let told = told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("taken over by b"), "{told:?}");
    // The taker waits until no proof of the old owner can be young (`owner.taker_waits`).
    b.await_silence().await;
    assert!(begun.elapsed() >= crate::owner::TENURE_MAX);
    b.release().await.unwrap();
    assert!(b.prove().await.is_err(), "who gave it back answers no more");
}

/// `owner.unchanged_is_silent`: a standby waits for an owner that renews its record, and for one that never did; it takes over from
/// one that ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_silent_owner_alone() {
    let (_server, bucket) = fresh().await;
    let a = Owner::take(Arc::clone(&bucket.store), &bucket.url, machine("a"), TakeOver::No).await.unwrap();
    let (store, url) = (Arc::clone(&bucket.store), bucket.url.clone());
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let standby = tokio::spawn(async move {
        Owner::stand_by(store, &url, machine("b"), |watched| hears.lock().unwrap().push(watched.beats)).await
    });
    tokio::time::sleep(crate::standby::SILENCE_MAX + Duration::from_secs(3)).await;
    assert!(!standby.is_finished(), "the silence of an owner that does not renew says nothing");
    let beating = tokio::spawn({
        let a = a.clone();
        async move { a.beat().await }
    });
    tokio::time::sleep(crate::standby::SILENCE_MAX + Duration::from_secs(3)).await;
    assert!(!standby.is_finished(), "it lives");
    assert_eq!(*told.lock().unwrap(), [false, true]);
    a.verify().await.unwrap();
    beating.abort();
    let begun = Instant::now();
    let b = standby.await.unwrap().unwrap();
    assert!(begun.elapsed() >= crate::standby::SILENCE_MAX - crate::owner::BEAT, "{:?}", begun.elapsed());
    assert!(b.epoch() == 2 && a.prove().await.is_err());
}

// ------------------------------------------------------------------------------------------------ log

async fn opened(log: &BucketLog, after: u64) -> Vec<(u64, String)> {
    let entries = log.replay("v", after).await.unwrap();
    let last = entries.last().map_or(after, |entry| entry.id);
    log.append("v", last + 1, payload("fence")).await.unwrap();
    entries.into_iter().map(|entry| (entry.id, String::from_utf8_lossy(&entry.payload).into_owned())).collect()
}

fn pairs(entries: &[(u64, &str)]) -> Vec<(u64, String)> {
    entries.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_as_it_was_written_and_trimmed() {
    let (server, bucket) = fresh().await;
    server.set_fault("cut_after", "100");
    let log = BucketLog::new(Arc::clone(&bucket.store), None);
    assert_eq!(opened(&log, 0).await, []);
    for id in 2..=40 {
        log.append("v", id, payload(&format!("entry {id}"))).await.unwrap();
    }
    log.trim("v", 29).await.unwrap();
    assert_eq!(server.keys().len(), 11);
    let next = BucketLog::new(Arc::clone(&bucket.store), None);
    let read = opened(&next, 30).await;
    assert_eq!(
        (read.len(), read.first().cloned(), read.last().cloned()),
        (10, Some((31, "entry 31".into())), Some((40, "entry 40".into())))
    );
    // A replay point that is not there is damage, not an empty log.
    assert!(matches!(next.replay("v", 20).await, Err(LogError::Damaged { .. })));
    next.remove("v").await.unwrap();
    assert_eq!(server.keys(), Vec::<String>::new());
    assert_eq!(opened(&next, 0).await, []);
}

/// The first owner's requests hang while another takes over, and arrive afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_late_is_neither_acknowledged_nor_read() {
    let (server, bucket) = fresh().await;
    let old = BucketLog::new(Arc::clone(&bucket.store), None);
    opened(&old, 0).await;
    old.append("v", 2, payload("acknowledged")).await.unwrap();
    server.hold("log/v/0000000000000003");
    let third = tokio::spawn(old.begin("v", 3, payload("hangs")).await.unwrap());
    let fourth = tokio::spawn(old.begin("v", 4, payload("is stored, behind one that hangs")).await.unwrap());
    while server.held() == 0 || server.keys().len() < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.hold("nothing");
    let new = BucketLog::new(Arc::clone(&bucket.store), None);
    assert_eq!(opened(&new, 0).await, pairs(&[(1, "fence"), (2, "acknowledged")]));
    // In the places of what hangs, and of what is stored and nobody's.
    new.append("v", 4, payload("of the new one")).await.unwrap();
    server.let_go();
    assert!(matches!(third.await.unwrap(), Err(LogError::OutOfOrder { .. })));
    assert!(matches!(fourth.await.unwrap(), Err(LogError::OutOfOrder { .. })));
    assert!(old.begin("v", 5, payload("never")).await.is_err());
    new.append("v", 5, payload("goes on")).await.unwrap();
    let next = BucketLog::new(Arc::clone(&bucket.store), None);
    let want = pairs(&[(1, "fence"), (2, "acknowledged"), (3, "fence"), (4, "of the new one"), (5, "goes on")]);
    assert_eq!(opened(&next, 0).await, want);
    // From the fence on, too, where entry 4 of the old owner lies beside that of the new one.
    let again = BucketLog::new(Arc::clone(&bucket.store), None);
    assert_eq!(opened(&again, 3).await, pairs(&[(4, "of the new one"), (5, "goes on"), (6, "fence")]));
}

async fn taken(bucket: &Bucket, name: &str) -> Owner {
    let owner = Owner::take(Arc::clone(&bucket.store), &bucket.url, machine(name), TakeOver::Forced).await.unwrap();
    owner.await_silence().await;
    owner
}

async fn held(server: &Server) {
    while server.held() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// `bucket_log.answered_on_proof`: the fence has been collected when the old owner's request arrives, and its place is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_when_its_fence_is_collected_is_not_acknowledged() {
    let (server, bucket) = fresh().await;
    let old = BucketLog::new(Arc::clone(&bucket.store), Some(taken(&bucket, "a").await));
    opened(&old, 0).await;
    old.append("v", 2, payload("acknowledged")).await.unwrap();
    server.hold("log/v/0000000000000003");
    let late = tokio::spawn(old.begin("v", 3, payload("late")).await.unwrap());
    held(&server).await;
    server.hold("nothing");
    let new = BucketLog::new(Arc::clone(&bucket.store), Some(taken(&bucket, "b").await));
    assert_eq!(opened(&new, 0).await, pairs(&[(1, "fence"), (2, "acknowledged")]));
    for id in 4..=6 {
        new.append("v", id, payload("of the new one")).await.unwrap();
    }
    new.trim("v", 5).await.unwrap();
    server.let_go();
    assert!(late.await.unwrap().is_err(), "nobody will ever read it");
    let next = BucketLog::new(Arc::clone(&bucket.store), None);
    assert_eq!(opened(&next, 6).await, []);
}

/// The same of a fence: whoever was overtaken between reading a log and fencing it is no writer, and has not the term of its successor.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_arrives_when_that_of_its_successor_is_collected_is_none() {
    let (server, bucket) = fresh().await;
    let slow = Arc::new(BucketLog::new(Arc::clone(&bucket.store), Some(taken(&bucket, "a").await)));
    slow.replay("v", 0).await.unwrap();
    server.hold("log/v/0000000000000001");
    let fence = tokio::spawn({
        let slow = Arc::clone(&slow);
        async move { slow.append("v", 1, payload("fence")).await }
    });
    held(&server).await;
    server.hold("nothing");
    let new = BucketLog::new(Arc::clone(&bucket.store), Some(taken(&bucket, "b").await));
    opened(&new, 0).await;
    for id in 2..=4 {
        new.append("v", id, payload("of the new one")).await.unwrap();
    }
    new.trim("v", 3).await.unwrap();
    server.let_go();
    assert!(fence.await.unwrap().is_err());
    // In the name that the new owner's next entry has.
    assert!(slow.begin("v", 2, payload("x")).await.is_err());
    new.append("v", 5, payload("goes on")).await.unwrap();
}

/// `owner.wait_is_inherited`: a machine that took a store by force, and was started again at once, waits as if it had not been.
#[tokio::test(flavor = "multi_thread")]
async fn the_wait_of_a_taker_outlives_its_process() {
    let (_server, bucket) = fresh().await;
    let take =
        async |name: &str, how| Owner::take(Arc::clone(&bucket.store), &bucket.url, machine(name), how).await.unwrap();
    take("a", TakeOver::No).await;
    let begun = Instant::now();
    drop(take("b", TakeOver::Forced).await);
    let again = take("b", TakeOver::No).await;
    again.release().await.unwrap();
    let third = take("c", TakeOver::No).await;
    third.await_silence().await;
    assert!(begun.elapsed() >= crate::owner::TENURE_MAX, "{:?}", begun.elapsed());
    // Now nobody waits any more.
    let begun = Instant::now();
    take("c", TakeOver::No).await.await_silence().await;
    assert!(begun.elapsed() < crate::owner::TENURE_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_open_a_log_at_once() {
    let (server, bucket) = fresh().await;
    server.set_fault("latency_ms", "2");
    let (a, b) = (BucketLog::new(Arc::clone(&bucket.store), None), BucketLog::new(Arc::clone(&bucket.store), None));
    let (of_a, of_b) = tokio::join!(a.replay("v", 0), b.replay("v", 0));
    assert!(of_a.unwrap().is_empty() && of_b.unwrap().is_empty());
    let (of_a, of_b) = tokio::join!(a.append("v", 1, payload("a")), b.append("v", 1, payload("b")));
    assert!(of_a.is_ok() != of_b.is_ok(), "one is the writer");
    let (won, lost) = if of_a.is_ok() { (&a, &b) } else { (&b, &a) };
    won.append("v", 2, payload("x")).await.unwrap();
    assert!(lost.append("v", 1, payload("again")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_waits_for_a_store_that_is_down() {
    let (server, bucket) = fresh().await;
    let log = Arc::new(BucketLog::new(Arc::clone(&bucket.store), None));
    opened(&log, 0).await;
    server.set_fault("down", "1");
    let waiting = tokio::spawn(log.begin("v", 2, payload("waits")).await.unwrap());
    while bucket.requests.repeated.get() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!waiting.is_finished());
    server.set_fault("down", "0");
    waiting.await.unwrap().unwrap();
    assert_eq!(BucketLog::new(Arc::clone(&bucket.store), None).replay("v", 0).await.unwrap().len(), 2);
}

/// 32 writers share puts: each waits for about a round trip, and there are few puts (`bucket_log.spaced_puts`).
#[tokio::test(flavor = "multi_thread")]
async fn a_put_is_shared_and_nobody_waits_for_a_timer() {
    let (server, bucket) = fresh().await;
    let log = BucketLog::new(Arc::clone(&bucket.store), None);
    opened(&log, 0).await;
    server.faults.latency_ms.store(40, Ordering::Relaxed);
    let begun = Instant::now();
    for id in 2..=6 {
        log.append("v", id, payload("alone")).await.unwrap();
    }
    let alone = begun.elapsed() / 5;
    let before = server.requests();
    let begun = Instant::now();
    let mut receipts = Vec::new();
    // As the committer does: what has come goes with the next entry.
    for id in 7..=30 {
        receipts.push(log.begin("v", id, payload("together")).await.unwrap());
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let (together, puts) = (begun.elapsed(), server.requests() - before);
    assert_eq!(puts, 24);
    assert!(together > alone * 2, "at most eight a round trip: 24 took {together:?} where one takes {alone:?}");
    assert!(together < alone * 12, "and not one after another: 24 took {together:?} where one takes {alone:?}");
    let _ = log.held_bytes("v");
}
