//! Machines at several seats of one store, and volumes that change hands between them.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use larder_base::Seat;
use larder_fs::Stability;
use larder_volume::{HandoverStage, Properties, Registry, Volume};

use crate::volume_tests::{Machines, create, lookup, noise, read, write};
use crate::{look_at, look_at_all};

fn seat(name: &str) -> Seat {
    name.parse().unwrap()
}

async fn hand_over(from: &Registry, to: &Registry) {
    let id = from.offer("v", to.seat()).await.unwrap();
    assert!(to.accept(id, &["no share".to_owned()]).await.unwrap());
    from.give(id).await.unwrap();
    assert_eq!(from.settle(id).await.unwrap(), *to.seat());
}

async fn add(volume: &Volume, n: u64) {
    let ino = create(volume, &format!("f{n}")).await.unwrap();
    write(volume, ino, noise(n, 20_000), Stability::FileSync).await.unwrap();
}

async fn check(registry: &Registry, files: u64) {
    let volume = registry.volume("v").await.unwrap();
    for n in 0..files {
        let ino = lookup(&volume, &format!("f{n}")).await.unwrap_or_else(|| panic!("f{n} was acknowledged"));
        assert_eq!(read(&volume, ino).await, noise(n, 20_000), "f{n}");
    }
    assert_eq!(registry.check("v", true).await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_goes_from_seat_to_seat_and_back() {
    let machines = Machines::new().await;
    let (a, _) = machines.registry("a").await;
    a.create("v", Properties::default()).await.unwrap();
    let (b, _) = machines.registry_at("b", &seat("b")).await;
    let seats: Vec<String> =
        look_at_all(&*machines.bucket.store).await.unwrap().into_iter().map(|(seat, _)| seat.to_string()).collect();
    assert_eq!(seats, ["first", "b"]);
    assert_eq!(look_at(&*machines.bucket.store, &seat("c")).await.unwrap(), None);
    add(&a.volume("v").await.unwrap(), 0).await;
    assert_eq!(b.list().await.unwrap(), []);
    let refused = b.volume("v").await.err().unwrap().to_string();
    assert!(refused.contains("the seat 'first'"), "{refused}");
    for refused in [b.destroy("v").await, b.set("v", Properties::default()).await.map(drop), b.close_volume("v").await]
    {
        assert!(refused.unwrap_err().to_string().contains("the seat 'first'"));
    }
    assert!(b.create("v", Properties::default()).await.is_err(), "names are the store's");
    // An offer alone changes nothing, and nothing is given that nobody has accepted.
    let id = a.offer("v", b.seat()).await.unwrap();
    assert!(a.give(id).await.unwrap_err().to_string().contains("nobody has accepted"));
    assert_eq!(a.settle(id).await.unwrap(), *a.seat());
    assert!(!b.accept(id, &[]).await.unwrap(), "it was taken back");
    add(&a.volume("v").await.unwrap(), 1).await;
    // Not while somebody uses it.
    let used = a.volume("v").await.unwrap();
    let id = a.offer("v", b.seat()).await.unwrap();
    assert!(b.accept(id, &[]).await.unwrap());
    assert!(a.give(id).await.unwrap_err().to_string().contains("open"));
    drop(used);
    let mut files = 2;
    for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
        hand_over(from, to).await;
        assert!(from.volume("v").await.err().unwrap().to_string().contains("seat"));
        assert_eq!(from.list().await.unwrap(), []);
        let seated = to.seated().await.unwrap();
        assert_eq!(seated[0].handover.as_ref().map(|handover| handover.stage), Some(HandoverStage::Given));
        check(to, files).await;
        to.took(id, None).await.unwrap();
        assert_eq!(from.seated().await.unwrap()[0].handover, None);
        add(&to.volume("v").await.unwrap(), files).await;
        files += 1;
    }
    b.close().await.unwrap();
    let (b, _) = machines.registry_at("b", &seat("b")).await;
    check(&b, files).await;
}

/// The change that gives a volume away is on its way while its sender ends, or gives up. It arrives when the volume is served again.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_arrives_late_gives_nothing_away() {
    let machines = Machines::new().await;
    let (a, _) = machines.registry("a").await;
    a.create("v", Properties::default()).await.unwrap();
    add(&a.volume("v").await.unwrap(), 0).await;
    let (b, _) = machines.registry_at("b", &seat("b")).await;
    let mut a = Arc::new(a);
    for is_killed in [true, false] {
        let id = a.offer("v", b.seat()).await.unwrap();
        assert!(b.accept(id, &[]).await.unwrap());
        machines.server.hold("registry.json");
        let giver = Arc::clone(&a);
        let giving = tokio::spawn(async move { giver.give(id).await });
        while machines.server.held() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        machines.server.hold("nothing");
        giving.abort();
        assert!(giving.await.is_err());
        if is_killed {
            a = Arc::new(machines.registry("a").await.0);
        } else {
            let busy = a.volume("v").await.err().unwrap().to_string();
            assert!(busy.contains("handed over"), "{busy}");
            assert_eq!(a.settle(id).await.unwrap(), *a.seat());
        }
        let volume = a.volume("v").await.unwrap();
        machines.server.let_go();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(b.seated().await.unwrap()[0].seat, *a.seat());
        add(&volume, u64::from(!is_killed) + 1).await;
        drop(volume);
        assert!(b.volume("v").await.is_err());
        check(&a, u64::from(!is_killed) + 2).await;
    }
}
