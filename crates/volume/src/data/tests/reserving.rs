//! Reserved ranges keep their promise: a full store takes what is written into them.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::*;

const MIB: u64 = 1 << 20;

fn vec_of(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

/// Writes until the store is full. Returns how much was taken.
async fn fill(world: &World, inode: &Arc<Inode>, from: u64) -> u64 {
    for n in 0.. {
        match world.try_write(inode, from + n * MIB, &noise(n, 1 << 20), Stability::Unstable).await {
            Ok(()) => {}
            Err(FsError::NoSpace(_)) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

/// Writes `range` in pieces, in any order. No piece is refused.
async fn write_all(world: &World, inode: &Arc<Inode>, range: Range<u64>, seed: u64) {
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = (at + rng.random_range(1..300_000)).min(range.end);
        pieces.push(at..end);
        at = end;
    }
    pieces.shuffle(&mut rng);
    for piece in pieces {
        let data = noise(piece.start, (piece.end - piece.start) as usize);
        let how = if rng.random_bool(0.2) { Stability::FileSync } else { Stability::Unstable };
        let write = tokio::time::timeout(Duration::from_secs(60), world.try_write(inode, piece.start, &data, how));
        write.await.expect("a write stalled").unwrap_or_else(|error| panic!("{piece:?} of {range:?}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_takes_what_room_was_reserved_for() {
    let world = World::new(131_072, Compression::None, 48 << 20, 128 << 20).await;
    let (file, other) = (world.create(2).await, world.create(3).await);
    world.allocate(&file, 0..32 * MIB, AllocateMode::Extend).await.unwrap();
    let attr = file.core.lock().attr;
    assert_eq!((attr.size, attr.allocated), (32 * MIB, 32 * MIB));
    let taken = fill(&world, &other, 0).await;
    assert!((60..96).contains(&taken), "{taken} MiB");
    write_all(&world, &file, 0..10 * MIB, 1).await;
    world.data.sync_all().await.unwrap();
    drop((file, other));
    // The rest of it survives a crash, and no other writer gets it.
    let world = world.crash(0).await;
    let (file, other) = (world.inode(2).await, world.inode(3).await);
    assert!(fill(&world, &other, 200 * MIB).await < 8);
    write_all(&world, &file, 10 * MIB..32 * MIB, 2).await;
    world.data.commit(&file).await.unwrap();
    assert_eq!(file.core.lock().attr.allocated, 32 * MIB);
    assert_eq!((world.reserved_rows(2), world.data.usage().reserved_bytes), (Vec::new(), 0));
    world.check(true).await;
}

/// `space.slow_is_not_full`
#[tokio::test(start_paused = true)]
async fn a_full_store_that_is_slow_takes_what_room_was_reserved_for() {
    let world = World::new(131_072, Compression::None, 48 << 20, 128 << 20).await;
    let (file, other) = (world.create(2).await, world.create(3).await);
    world.allocate(&file, 0..20 * MIB, AllocateMode::Extend).await.unwrap();
    fill(&world, &other, 0).await;
    world.store.put_s.store(4, Ordering::Relaxed);
    for n in 0..20 {
        world.try_write(&file, n * MIB, &noise(n, 1 << 20), Stability::Unstable).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.data.commit(&file).await.unwrap();
    assert!(fill(&world, &other, 200 * MIB).await < 8);
    world.check(true).await;
}

/// `flush.refused_beside_others`
#[tokio::test(start_paused = true)]
async fn a_segment_that_fits_only_after_another_is_stored_has_not_failed() {
    let world = World::new(131_072, Compression::None, 48 << 20, 128 << 20).await;
    let file = world.create(2).await;
    world.write(&file, 0, &noise(1, 4 << 20)).await;
    world.store.total.store(world.store.measure() + (5 << 20), Ordering::Relaxed);
    world.store.put_s.store(4, Ordering::Relaxed);
    world.data.commit(&file).await.unwrap();
    world.check(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_at_once_and_changes_nothing() {
    let world = World::new(131_072, Compression::None, 48 << 20, 128 << 20).await;
    let (file, other) = (world.create(2).await, world.create(3).await);
    for (range, mode) in
        [(0..1 << 50, AllocateMode::Extend), (5..1 << 62, AllocateMode::KeepSize), (0..127 * MIB, AllocateMode::Zero)]
    {
        let refused = tokio::time::timeout(Duration::from_secs(1), world.allocate(&file, range, mode)).await;
        assert!(matches!(refused.expect("it takes long"), Err(FsError::NoSpace(_))));
    }
    assert_eq!((file.core.lock().attr.size, world.meta.keys(RESERVED_TAG)), (0, 0));
    // Of two simultaneous requests only one gets the last of it.
    let (one, two) = tokio::join!(
        world.allocate(&file, 0..70 * MIB, AllocateMode::Extend),
        world.allocate(&other, 0..70 * MIB, AllocateMode::Extend)
    );
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    world.check(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_others_can_have() {
    let world = World::new(131_072, Compression::None, 48 << 20, 128 << 20).await;
    let other = world.create(3).await;
    for way in ["punch", "truncate", "remove"] {
        let file = world.create(2).await;
        world.allocate(&file, 0..60 * MIB, AllocateMode::KeepSize).await.unwrap();
        let before = fill(&world, &other, 0).await;
        match way {
            "punch" => world.allocate(&file, 10 * MIB..60 * MIB, AllocateMode::PunchHole).await.unwrap(),
            "truncate" => drop(world.data.truncate(&file, 0, |_| {}).await.unwrap()),
            _ => world.data.reap(&file, Batch::default()).await.unwrap(),
        }
        let more = fill(&world, &other, before * MIB).await;
        assert!(more >= 40, "{way}: {before} MiB, then {more} MiB");
        world.data.truncate(&other, 0, |_| {}).await.unwrap();
        world.data.reap(&file, Batch::default()).await.unwrap();
        world.data.sync_all().await.unwrap();
        assert_eq!(world.data.usage().reserved_bytes, 0, "{way}");
    }
}

#[tokio::test]
async fn a_reservation_costs_the_same_whatever_its_length() {
    let world = World::new(131_072, Compression::None, 48 << 20, 0).await;
    let file = world.create(2).await;
    world.allocate(&file, 10..1 << 39, AllocateMode::Extend).await.unwrap();
    assert_eq!(world.meta.keys(RESERVED_TAG), 1);
    assert_eq!(world.data.seek(&file, 0, SeekTo::Hole).await.unwrap(), 0);
    assert!(matches!(world.data.seek(&file, 0, SeekTo::Data).await, Err(FsError::NotFound)));
    world.write(&file, 1 << 30, &noise(1, 4096)).await;
    assert_eq!(file.core.lock().attr.allocated, (1 << 39) - 10, "what is dirty is counted once");
    world.data.sync_all().await.unwrap();
    assert_eq!(world.reserved_rows(2), [10..1 << 30, (1 << 30) + 4096..1 << 39]);
    assert_eq!(file.core.lock().attr.allocated, (1 << 39) - 10);
    // Zeros take up no room, so they leave what is reserved.
    world.write(&file, 2 << 30, &[0; 4096]).await;
    world.data.sync_all().await.unwrap();
    assert_eq!(world.meta.keys(RESERVED_TAG), 2);
    world.check(true).await;
}

#[tokio::test]
async fn a_flush_under_way_does_not_use_what_was_reserved_after_it() {
    let world = World::new(131_072, Compression::None, 48 << 20, 0).await;
    let file = world.create(2).await;
    world.write(&file, 0, &noise(1, 1 << 20)).await;
    let meanwhile = async {
        while file.file.state.lock().in_flight == 0 {
            tokio::task::yield_now().await;
        }
        world.allocate(&file, 0..MIB, AllocateMode::PunchHole).await.unwrap();
        world.allocate(&file, 0..MIB, AllocateMode::Extend).await.unwrap();
    };
    tokio::join!(world.data.sync_all(), meanwhile).0.unwrap();
    world.data.sync_all().await.unwrap();
    assert_eq!(world.reserved_rows(2), vec_of(0..MIB));
    world.check(true).await;
    let world = world.crash(0).await;
    assert_eq!(world.reserved_rows(2), vec_of(0..MIB));
    world.check(true).await;
}

#[tokio::test]
async fn nothing_is_reserved_where_a_crash_brings_older_data_back() {
    let world = World::new(131_072, Compression::None, 48 << 20, 0).await;
    let file = world.create(2).await;
    world.write(&file, 0, &noise(1, 5000)).await;
    world.data.sync_all().await.unwrap();
    world.write(&file, 1000, &noise(2, 1000)).await;
    world.allocate(&file, 0..MIB, AllocateMode::Extend).await.unwrap();
    drop(file);
    let world = world.crash(0).await;
    assert_eq!(world.read(&world.inode(2).await, 0..5000).await, noise(1, 5000));
    assert_eq!(world.reserved_rows(2), vec_of(5000..MIB));
    world.check(true).await;
}
