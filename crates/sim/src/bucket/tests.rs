//! Single things that went wrong, in a bucket whose answers are written down.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use larder_base::Seat;
use larder_base::log::Tenure;
use larder_fs::{CreateMode, Cred, Ino, NameMatch, SetAttr};
use larder_store::{BucketLog, BucketUrl, Health, Machine, Owner, Requests, Retried, TakeOver};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::ObjectStore;

use super::net::{Fate, Line, Net};
use super::s3::S3;
use crate::chance;
use crate::disk::World;
use crate::turns::{self, SimClock};

const SECOND: Duration = Duration::from_secs(1);

/// Runs in virtual time, on a thread of its own.
fn simulate<F: Future<Output = ()>>(test: impl FnOnce(Arc<Net>) -> F + Send + 'static) {
    let run = move || {
        chance::enter(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            turns::start_time(Duration::ZERO);
            let net = Net::new(1, World::new(1, Vec::new(), true), S3::new(true, 0, 1000), 3);
            tokio::spawn(pump(net.clone()));
            test(net).await;
        });
        chance::leave();
    };
    std::thread::spawn(run).join().unwrap();
}

/// What is on its way arrives.
async fn pump(net: Arc<Net>) {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        turns::tell_time();
        net.run_until(turns::elapsed().as_millis() as u64);
    }
}

fn store(net: &Arc<Net>, host: usize) -> Arc<dyn ObjectStore> {
    let line = Line { net: net.clone(), host, seat: Seat::default(), sent: Arc::default(), is_dead: Arc::default() };
    Arc::new(Retried::new(line, Arc::<Health>::default(), Arc::<Requests>::default()))
}

fn url() -> BucketUrl {
    "s3://sim".parse().unwrap()
}

fn machine(host: usize) -> Machine {
    Machine { name: format!("m{host}"), id: format!("m{host}") }
}

async fn take(net: &Arc<Net>, host: usize) -> Owner {
    Owner::take(store(net, host), &url(), machine(host), TakeOver::Forced).await.unwrap()
}

/// `owner.young_at_the_answer`: the look at the record was before another took it, its answer comes when that one serves.
#[test]
fn a_proof_that_comes_late_is_none() {
    simulate(async |net: Arc<Net>| {
        let old = take(&net, 0).await;
        tokio::time::sleep(6 * SECOND).await;
        net.script(0, "get owner.json", Fate { name: "late answer", effects: vec![1], answer: Some(Ok((0, 9000))) });
        let asks = tokio::spawn({
            let old = old.clone();
            async move { old.prove().await.map(|()| turns::elapsed()) }
        });
        tokio::time::sleep(SECOND / 10).await;
        let new = take(&net, 1).await;
        new.await_silence().await;
        let serves = turns::elapsed();
        let proven = asks.await.unwrap();
        assert!(proven.is_err(), "it answers at {proven:?}, the new owner since {serves:?}");
    });
}

/// `owner.each_renewal_differs`: renewals whose answers are lost, and are written again, change the record each time. Else a standby
/// sees silence, and takes the store while the owner has a young proof.
#[test]
fn a_renewal_that_is_tried_again_is_seen() {
    simulate(async |net: Arc<Net>| {
        let old = take(&net, 0).await;
        tokio::spawn({
            let old = old.clone();
            async move { old.beat().await }
        });
        tokio::time::sleep(SECOND).await;
        let unanswered = Fate { name: "no answer", effects: vec![1], answer: None };
        let fine = Fate { name: "fine", effects: vec![1], answer: Some(Ok((0, 1))) };
        // A renewal that is tried again finds that it has been done, and writes once more.
        for fate in [&unanswered, &fine, &unanswered, &unanswered, &fine] {
            net.script(0, "Update", fate.clone());
        }
        let lost = Fate { name: "lost", effects: Vec::new(), answer: None };
        (0..100).for_each(|_| net.script(0, "Update", lost.clone()));
        let new = Owner::stand_by(store(&net, 1), &url(), machine(1), |_| {}).await.unwrap();
        new.await_silence().await;
        let young = old.is_proven() || tokio::time::timeout(SECOND / 100, old.prove()).await.is_ok_and(|it| it.is_ok());
        assert!(!young, "both answer at {:?}", turns::elapsed());
    });
}

struct Endless;

impl Space for Endless {
    fn space(&self) -> (u64, u64) {
        (1 << 50, 1 << 50)
    }
}

async fn open(net: &Arc<Net>) -> (Registry, Owner) {
    let store = store(net, 0);
    let owner = Owner::take(store.clone(), &url(), machine(0), TakeOver::No).await.unwrap();
    let backing = Backing {
        store: store.clone(),
        log: Some(Arc::new(BucketLog::new(store, Some(owner.clone())))),
        space: Arc::new(Endless),
        clock: Arc::new(SimClock),
    };
    (Registry::open(backing, MemoryBudget { total_bytes: 32 << 20 }).await.unwrap(), owner)
}

/// More manifests than a page of a listing has, because nobody could delete them.
#[test]
fn a_volume_with_twelve_hundred_manifests() {
    simulate(async |net: Arc<Net>| {
        let cred = Cred::root();
        let (registry, owner) = open(&net).await;
        registry.create("v", Properties::default()).await.unwrap();
        registry.close().await.unwrap();
        owner.release().await.unwrap();
        net.look(|s3| s3.kept = Some("/manifest/"));
        let mut number = 0;
        while net.look(|s3| s3.count(".manifest")) < 1250 {
            let (registry, owner) = open(&net).await;
            let volume = registry.volume("v").await.unwrap();
            let set = SetAttr::default();
            let name = format!("f{number}");
            volume.create(&cred, Ino::ROOT, name.as_bytes(), CreateMode::Guarded, set).await.unwrap();
            number += 1;
            if number % 8 == 0 {
                // Long enough for tables to be merged: 64 young ones are too many to close with.
                tokio::time::sleep(10 * SECOND).await;
            }
            drop(volume);
            registry.close().await.unwrap();
            owner.release().await.unwrap();
        }
        let (registry, _owner) = open(&net).await;
        let volume = registry.volume("v").await.unwrap();
        for n in 0..number {
            volume.lookup(&cred, Ino::ROOT, format!("f{n}").as_bytes(), NameMatch::Exact).await.unwrap();
        }
        assert_eq!(registry.check("v", true).await.unwrap().problems, Vec::<String>::new());
    });
}
