//! Volumes that another process writes: followed by the log alone, over trimmed logs, and past objects that are gone.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use larder_base::SystemClock;
use larder_fs::{FsError, Stability};
use larder_volume::{Backing, MemoryBudget, NoKeys, Registry, Volume};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::volume_tests::{Endless, Machines, create, lookup, noise, read, write};
use crate::{FollowedLog, ReadOnly};

/// Long enough to be old in no test.
const NEVER: Duration = Duration::from_secs(3600);
/// Every operation looks.
const AT_ONCE: Duration = Duration::ZERO;

async fn follow(machines: &Machines, behind_max: Duration) -> (Registry, Volume) {
    let store: Arc<dyn object_store::ObjectStore> = Arc::new(ReadOnly(Arc::clone(&machines.bucket.store)));
    let backing = Backing {
        store: Arc::clone(&store),
        log: Some(Arc::new(FollowedLog::new(store))),
        space: Arc::new(Endless),
        clock: Arc::new(SystemClock::default()),
    };
    let memory = MemoryBudget { total_bytes: 64 << 20 };
    let registry = Registry::open_followed(backing, memory, Arc::new(NoKeys), behind_max).await.unwrap();
    let volume = registry.volume("v").await.unwrap();
    (registry, volume)
}

async fn segments(machines: &Machines) -> Vec<Path> {
    let all: Vec<_> = machines.bucket.store.list(None).try_collect().await.unwrap();
    all.into_iter().map(|object| object.location).filter(|path| path.as_ref().contains("/seg/")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_enough_trimmed_or_not() {
    let machines = Machines::new().await;
    let (owner, volume) = machines.first().await;
    let first = create(&volume, "first").await.unwrap();
    write(&volume, first, b"one".to_vec(), Stability::FileSync).await.unwrap();
    let (_registry, replica) = follow(&machines, AT_ONCE).await;
    assert_eq!(read(&replica, lookup(&replica, "first").await.unwrap()).await, b"one");
    assert!(lookup(&replica, "second").await.is_none());
    let changed = create(&replica, "mine").await;
    assert!(matches!(changed, Err(FsError::ReadOnly(_))), "{changed:?}");
    let written = write(&replica, first, b"mine".to_vec(), Stability::FileSync).await;
    assert!(matches!(written, Err(FsError::ReadOnly(_))), "{written:?}");
    // A name that was looked up in vain, bytes that were read, a record that is cached.
    let second = create(&volume, "second").await.unwrap();
    write(&volume, second, noise(1, 3000), Stability::FileSync).await.unwrap();
    write(&volume, first, b"other".to_vec(), Stability::FileSync).await.unwrap();
    assert_eq!(read(&replica, lookup(&replica, "second").await.unwrap()).await, noise(1, 3000));
    assert_eq!(read(&replica, first).await, b"other");
    // The log is trimmed under it, and its entries lie in tables.
    drop(volume);
    owner.close().await.unwrap();
    for round in 0..3 {
        let (owner, _) = machines.registry("a").await;
        let volume = owner.volume("v").await.unwrap();
        let name = format!("round {round}");
        let ino = create(&volume, &name).await.unwrap();
        write(&volume, ino, noise(round, 200_000), Stability::FileSync).await.unwrap();
        assert_eq!(read(&replica, lookup(&replica, &name).await.unwrap()).await, noise(round, 200_000));
        assert_eq!(read(&replica, first).await, b"other");
        drop(volume);
        owner.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_gone_means_look_again() {
    let machines = Machines::new().await;
    let (_owner, volume) = machines.first().await;
    let ino = create(&volume, "file").await.unwrap();
    write(&volume, ino, noise(1, 600_000), Stability::FileSync).await.unwrap();
    let (registry, replica) = follow(&machines, NEVER).await;
    assert_eq!(lookup(&replica, "file").await, Some(ino));
    let old = segments(&machines).await;
    assert!(!old.is_empty());
    write(&volume, ino, noise(2, 600_000), Stability::FileSync).await.unwrap();
    for path in &old {
        machines.bucket.store.delete(path).await.unwrap();
    }
    assert_eq!(read(&replica, ino).await, noise(2, 600_000));
    // What the newest state needs and is not there is an error, and soon.
    write(&volume, ino, noise(3, 600_000), Stability::FileSync).await.unwrap();
    let (_, late) = follow(&machines, NEVER).await;
    for path in segments(&machines).await {
        machines.bucket.store.delete(&path).await.unwrap();
    }
    let failed = tokio::time::timeout(Duration::from_secs(20), late.read(ino, 0, 1 << 20)).await.unwrap();
    assert!(matches!(failed, Err(FsError::Io(_))), "{failed:?}");
    assert!(registry.behind().is_some_and(|(age, behind_max)| age.is_some() && behind_max == NEVER));
}

/// `maintain.grace_of_replicas`
#[tokio::test(flavor = "multi_thread")]
async fn what_the_owner_needs_no_more_stays_for_a_while_and_goes_then() {
    let machines = Machines::new().await;
    let (_owner, volume) = machines.first().await;
    let ino = create(&volume, "file").await.unwrap();
    write(&volume, ino, noise(1, 600_000), Stability::FileSync).await.unwrap();
    let old = segments(&machines).await;
    let begun = tokio::time::Instant::now();
    write(&volume, ino, noise(2, 600_000), Stability::FileSync).await.unwrap();
    let is_left = async || {
        let now = segments(&machines).await;
        old.iter().any(|path| now.contains(path))
    };
    while is_left().await {
        assert!(begun.elapsed() < Duration::from_secs(90), "it is never deleted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(
        begun.elapsed() >= Duration::from_secs(20),
        "a replica may be 20 s behind, and it went after {:?}",
        begun.elapsed()
    );
    assert_eq!(read(&volume, ino).await, noise(2, 600_000));
}
