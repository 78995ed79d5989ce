//! Single situations that the model meets rarely.

use std::time::Duration;

use rand::{Rng, SeedableRng};

use super::*;

#[tokio::test]
async fn a_committed_write_survives_although_newer_dirty_data_lies_over_it() {
    let world = World::new(4096, Compression::None, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &noise(9, 16384)).await;
    // An acknowledged intent, then a flushed overwrite of a part, then an unstable one over a part
    // of that.
    world.try_write(&inode, 0, &[1; 4096], Stability::FileSync).await.unwrap();
    world.write(&inode, 1000, &[2; 2000]).await;
    world.data.sync_all().await.unwrap();
    world.write(&inode, 500, &[3; 1000]).await;
    let world = world.crash(0).await;
    let inode = world.inode(2).await;
    let found = world.read(&inode, 0..4096).await;
    let expected = |at: usize| if (1000..3000).contains(&at) { 2 } else { 1 };
    assert!(found.iter().enumerate().all(|(at, &byte)| byte == expected(at) || byte == 3));
    assert_eq!((found[999], found[2999], found[3000]), (1, 2, 1));
    world.check(true).await;
}

#[tokio::test]
async fn a_flush_that_was_written_over_meanwhile_leaves_nothing_behind_the_end() {
    let world = World::new(4096, Compression::None, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 44, &[1; 6000]).await;
    let over = async {
        while inode.file.state.lock().in_flight == 0 {
            tokio::task::yield_now().await;
        }
        world.write(&inode, 65, &[2; 60_000]).await;
    };
    tokio::join!(world.data.sync_all(), over).0.unwrap();
    let world = world.crash(0).await;
    let inode = world.inode(2).await;
    let size = inode.core.lock().attr.size;
    assert!(world.read(&inode, 44..size).await.iter().all(|byte| [1, 2].contains(byte)));
    world.check(true).await;
    // Bytes behind the end must not come to light when the file grows over them.
    world.try_write(&inode, 9000, &[3; 10], Stability::FileSync).await.unwrap();
    assert!(world.read(&inode, size..9000).await.iter().all(|byte| *byte == 0), "from {size} on");
    world.check(true).await;
}

#[tokio::test]
async fn tiny_files_live_in_their_extents_and_small_syncs_are_intents() {
    let world = World::new(131_072, Compression::Lz4, 64 << 20, 0).await;
    let tiny = world.create(2).await;
    world.try_write(&tiny, 0, b"hello", Stability::FileSync).await.unwrap();
    let small = world.create(3).await;
    world.try_write(&small, 0, &noise(1, 4096), Stability::FileSync).await.unwrap();
    assert_eq!(world.store.puts.load(Ordering::Relaxed), 0, "no segment for either");
    assert_eq!((world.meta.keys(extents::EXTENT_TAG), world.meta.keys(intents::INTENT_TAG)), (1, 1));
    let world = world.crash(0).await;
    assert_eq!(world.read(&world.inode(2).await, 0..5).await, b"hello");
    assert_eq!(world.read(&world.inode(3).await, 0..4096).await, noise(1, 4096));
    world.data.sync_all().await.unwrap();
    assert_eq!((world.meta.keys(extents::EXTENT_TAG), world.meta.keys(intents::INTENT_TAG)), (2, 0));
    assert_eq!(world.inode(3).await.core.lock().attr.allocated, 4096);
    world.check(true).await;
}

#[tokio::test]
async fn zeros_become_holes_and_huge_sparse_files_cost_nothing() {
    let world = World::new(131_072, Compression::Lz4, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &vec![0; 1 << 20]).await;
    world.write(&inode, 100 << 30, b"end").await;
    world.data.commit(&inode).await.unwrap();
    world.data.sync_all().await.unwrap();
    assert_eq!(world.meta.keys(extents::EXTENT_TAG), 1);
    assert_eq!(world.data.seek(&inode, 0, SeekTo::Data).await.unwrap(), 100 << 30);
    world.data.truncate(&inode, 1 << 62, |_| {}).await.unwrap();
    world.data.truncate(&inode, 10, |_| {}).await.unwrap();
    world.data.sync_all().await.unwrap();
    assert_eq!(world.meta.keys(extents::EXTENT_TAG), 0);
    assert_eq!(world.read(&inode, 0..10).await, vec![0; 10]);
    world.check(true).await;
}

#[tokio::test]
async fn a_failing_put_is_told_to_commit_and_then_succeeds() {
    let world = World::new(131_072, Compression::Lz4, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &noise(1, 1 << 20)).await;
    world.store.failing_puts.store(1, Ordering::Relaxed);
    assert!(world.data.commit(&inode).await.is_err());
    world.data.commit(&inode).await.unwrap();
    let world = world.crash(0).await;
    assert!(world.read(&world.inode(2).await, 0..1 << 20).await == noise(1, 1 << 20));
}

#[tokio::test]
async fn a_failing_engine_poisons_and_reads_go_on() {
    let world = World::new(131_072, Compression::Lz4, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &noise(1, 1 << 20)).await;
    world.meta.fail.store(true, Ordering::Relaxed);
    assert!(matches!(world.data.commit(&inode).await, Err(FsError::Poisoned(_))));
    assert!(matches!(world.try_write(&inode, 0, b"x", Stability::Unstable).await, Err(FsError::Poisoned(_))));
    assert!(world.read(&inode, 0..1 << 20).await == noise(1, 1 << 20));
}

#[tokio::test]
async fn wrong_bytes_are_read_again_and_never_returned() {
    let world = World::new(131_072, Compression::Lz4, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &noise(1, 131_072)).await;
    drop(inode);
    let world = world.reopen().await;
    let inode = world.inode(2).await;
    world.store.lying_gets.store(1, Ordering::Relaxed);
    assert!(world.read(&inode, 0..131_072).await == noise(1, 131_072));
    drop(inode);
    let world = world.reopen().await;
    let inode = world.inode(2).await;
    world.store.lying_gets.store(10, Ordering::Relaxed);
    let error = world.data.read(&inode, 0, 4096).await.unwrap_err().to_string();
    assert!(error.contains("inode 2 offset 0 (segment"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_misses_fetch_a_record_once_and_warm_reads_do_not_suspend() {
    use futures::FutureExt;
    let world = World::new(131_072, Compression::Lz4, 64 << 20, 0).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &noise(1, 131_072)).await;
    world.data.sync_all().await.unwrap();
    assert!(world.data.read(&inode, 100, 4096).now_or_never().is_some(), "what was written is warm");
    drop(inode);
    let world = world.reopen().await;
    let inode = world.inode(2).await;
    let before = world.store.gets.load(Ordering::Relaxed);
    futures::future::join_all((0..32).map(|n| world.data.read(&inode, n * 4096, 4096))).await;
    // The first reader's piece, and the record for those who continue its read.
    assert!((1..=2).contains(&(world.store.gets.load(Ordering::Relaxed) - before)));
    assert!(world.data.read(&inode, 100, 4096).now_or_never().is_some());
}

#[tokio::test]
async fn a_random_read_fetches_its_piece_alone() {
    let world = World::new(131_072, Compression::None, 64 << 20, 0).await;
    let inode = world.create(2).await;
    let content = noise(1, 8 << 20);
    world.write(&inode, 0, &content).await;
    drop(inode);
    let world = world.reopen().await;
    let inode = world.inode(2).await;
    // Far from one another, so none continues another.
    for at in [5 << 20, 1 << 20, 7 << 20, 3 << 20] {
        let before = world.store.got_bytes.load(Ordering::Relaxed);
        assert_eq!(world.read(&inode, at..at + 4096).await, content[at as usize..][..4096]);
        assert_eq!(world.store.got_bytes.load(Ordering::Relaxed) - before, 8192);
    }
    // These continue the others: more is read ahead, in the background.
    for at in [5 << 20, 1 << 20, 7 << 20, 3 << 20] {
        assert_eq!(world.read(&inode, at + 4096..at + 8192).await, content[at as usize + 4096..][..4096]);
    }
    world.check(true).await;
}

/// Extents of before pieces, and a record packed as a whole, in one file with new ones.
#[tokio::test]
async fn both_forms_of_extents_are_read_written_over_and_collected() {
    use super::super::pieces::Sums;
    let world = World::new(131_072, Compression::None, 64 << 20, 0).await;
    let inode = world.create(2).await;
    let mut content = noise(1, 512 << 10);
    world.write(&inode, 0, &content).await;
    world.data.sync_all().await.unwrap();
    drop(inode);
    let mut batch = Batch::default();
    let mut tables_bytes = 0;
    for at in [0, 256 << 10] {
        let key = extents::extent_key(Ino(2), at);
        let value = world.meta.get(&key).await.unwrap().unwrap();
        let (_, _, mut extent) = decode_extent(&key, &value).unwrap();
        let Place::Record(record) = &mut extent.place else { panic!("it is a record") };
        assert!(record.has_pieces());
        tables_bytes += record.sums.table_bytes();
        let stored = &content[at as usize..][..131_072];
        let sum = larder_base::checksum::checksum(place_seed(record.segment, record.position), stored);
        record.sums = Sums::Whole(sum);
        let mut out = bytes::BytesMut::new();
        put_extent(&mut out, &extent);
        assert_eq!((out[0], out.len()), (1, 38));
        batch.put(key, out.freeze());
    }
    // As the table was before there were tables of pieces.
    let key = segments::segment_key(extents::SegmentId(1));
    let value = world.meta.get(&key).await.unwrap().unwrap();
    let (_, mut segment) = segments::decode_segment(&key, &value).unwrap();
    segment.live_bytes -= tables_bytes;
    batch.put(key, segments::encode_segment(&segment));
    let ticket = world.meta.write(batch).await.unwrap();
    world.meta.durable(ticket).await.unwrap();
    let world = world.reopen().await;
    let inode = world.inode(2).await;
    assert!(world.read(&inode, 300_000..304_096).await == content[300_000..304_096]);
    assert!(world.read(&inode, 0..512 << 10).await == content);
    for at in [1000, 140_000, 300_000] {
        let over = noise(at, 10_000);
        world.write(&inode, at, &over).await;
        content[at as usize..][..10_000].copy_from_slice(&over);
    }
    world.data.sync_all().await.unwrap();
    world.check(true).await;
    world.data.0.collect_garbage_now().await.unwrap();
    drop(inode);
    let world = world.reopen().await;
    assert!(world.read(&world.inode(2).await, 0..512 << 10).await == content);
    world.check(true).await;
}

/// What compresses very well has tables of pieces that are long beside the records. They once
/// looked like garbage, so collection rewrote the segment for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collection_ends_where_nothing_is_gained() {
    for compression in [Compression::Lz4, Compression::ZSTD] {
        let world = World::new(1 << 20, compression, 64 << 20, 0).await;
        let inode = world.create(2).await;
        world.write(&inode, 0, &[7; 3 << 19]).await;
        world.data.sync_all().await.unwrap();
        let inner = &world.data.0;
        let collected = tokio::time::timeout(Duration::from_secs(20), inner.collect_garbage_now());
        collected.await.expect("collection ends").unwrap();
        world.check(true).await;
        assert!(world.read(&inode, 0..3 << 19).await == [7; 3 << 19]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_tasks_share_one_volume() {
    let world = Arc::new(World::new(131_072, Compression::Lz4, 64 << 20, 0).await);
    let tasks = (0..32u64).map(|n| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let inode = world.create(n + 2).await;
            let mut rng = rand::rngs::StdRng::seed_from_u64(n);
            let mut model = vec![0; 1 << 20];
            for _ in 0..30 {
                let (at, len) = (rng.random_range(0..900_000), rng.random_range(1..100_000));
                let data = noise(rng.random(), len);
                world.write(&inode, at as u64, &data).await;
                model[at..at + len].copy_from_slice(&data);
                if rng.random_bool(0.2) {
                    world.data.commit(&inode).await.unwrap();
                }
            }
            world.data.commit(&inode).await.unwrap();
            let size = inode.core.lock().attr.size;
            assert!(world.read(&inode, 0..size).await == model[..size as usize]);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    world.check(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_refuses_before_accepting_and_takes_again_after_deletion() {
    let world = World::new(131_072, Compression::None, 48 << 20, 96 << 20).await;
    let inode = world.create(2).await;
    let mut accepted = 0u64;
    let error = loop {
        match world.try_write(&inode, accepted << 20, &noise(accepted, 1 << 20), Stability::Unstable).await {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FsError::NoSpace(_)), "{error}");
    assert!((60..96).contains(&accepted), "{accepted} MiB");
    world.data.commit(&inode).await.unwrap();
    for n in 0..accepted {
        assert!(world.read(&inode, n << 20..(n + 1) << 20).await == noise(n, 1 << 20), "{n}");
    }
    world.data.truncate(&inode, 0, |_| {}).await.unwrap();
    for n in 0..accepted / 2 {
        world.write(&inode, n << 20, &noise(n, 1 << 20)).await;
    }
    world.data.commit(&inode).await.unwrap();
    world.check(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_is_given_back_although_nothing_is_written_afterwards() {
    let world = World::new(131_072, Compression::None, 48 << 20, 96 << 20).await;
    let inode = world.create(2).await;
    world.write(&inode, 0, &noise(1, 8 << 20)).await;
    world.data.sync_all().await.unwrap();
    assert!(world.store.measure() > 8 << 20);
    world.data.reap(&inode, Batch::default()).await.unwrap();
    let gone = async {
        while world.store.measure() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the space does not come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_all_waits_for_a_load_that_is_just_being_collected() {
    let world = World::new(131_072, Compression::None, 48 << 20, 64 << 20).await;
    let inode = world.create(2).await;
    let block = noise(1, 1 << 20);
    for round in 0..1000 {
        // A full load: the flusher starts by itself.
        world.write(&inode, 0, &block).await;
        world.data.sync_all().await.unwrap();
        let state = inode.file.state.lock();
        assert!(state.dirty.is_empty() && state.in_flight == 0, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_all_does_not_wait_for_who_never_stops_writing() {
    let world = Arc::new(World::new(131_072, Compression::None, 48 << 20, 0).await);
    let inode = world.create(2).await;
    let writer = {
        let (world, inode) = (Arc::clone(&world), Arc::clone(&inode));
        tokio::spawn(async move {
            let block = noise(1, 65_536);
            for n in 0.. {
                world.write(&inode, (n % 64) << 16, &block).await;
                tokio::task::yield_now().await;
            }
        })
    };
    for _ in 0..20 {
        tokio::time::timeout(Duration::from_secs(20), world.data.sync_all()).await.expect("it waits").unwrap();
    }
    writer.abort();
}

/// A volume at 80 % full, overwritten at random ten times its size, goes on (here with small
/// segments' worth of data; the figure is printed).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collection_keeps_up_with_random_overwrites_of_a_nearly_full_volume() {
    let (total, file): (i64, u64) = (160 << 20, 128 << 20);
    let world = World::new(65_536, Compression::None, 48 << 20, total).await;
    let inode = world.create(2).await;
    let block = noise(7, 4 << 20);
    for at in (0..file).step_by(1 << 20) {
        world.write(&inode, at, &block[(at % (3 << 20)) as usize..][..1 << 20]).await;
    }
    world.data.commit(&inode).await.unwrap();
    let before = world.store.put_bytes.load(Ordering::Relaxed);
    let mut rng = rand::rngs::StdRng::seed_from_u64(3);
    let times = std::env::var("LARDER_OVERWRITES").map_or(2, |times| times.parse().unwrap());
    let (mut written, mut versions) = (0u64, vec![0u64; (file >> 16) as usize]);
    while written < times * file {
        let n = rng.random_range(0..versions.len());
        let shift = rng.random_range(0..1 << 20);
        versions[n] = shift;
        let data = Bytes::copy_from_slice(&block[shift as usize..][..65_536]);
        let write = world.data.write(
            &inode,
            WriteAt::Offset((n as u64) << 16),
            vec![data],
            Stability::Unstable,
            Timestamp::new(2, 0),
            |_| {},
        );
        let write = tokio::time::timeout(Duration::from_secs(30), write).await;
        write.expect("a write stalled").expect("a write failed");
        written += 65_536;
    }
    world.data.commit(&inode).await.unwrap();
    let put = world.store.put_bytes.load(Ordering::Relaxed) - before;
    eprintln!("write amplification {:.2}", put as f64 / written as f64);
    for (n, &shift) in versions.iter().enumerate().filter(|(_, shift)| **shift > 0) {
        let at = (n as u64) << 16;
        assert!(world.read(&inode, at..at + 65_536).await == block[shift as usize..][..65_536], "block {n}");
    }
    world.check(true).await;
}
