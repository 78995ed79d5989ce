//! Shards that are written past the kernel's cache: their edges, the filesystems that refuse, and
//! disks that fail while several writes are under way.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::Layout;
use crate::Pool;
use crate::disk::folder::FileDisks;
use crate::disk::watch::CALL_SECONDS_MAX;
use crate::disk::{DIRECT_ALIGN, DiskOpener};
use crate::object::geometry::{BlockSize, CHECKSUM_BYTES, MIRROR_BYTES_MAX};
use crate::testing::{Bench, Frozen, Trouble, noise};

const STAGING_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = BlockSize::NEW.bytes();
/// A shard of it takes several writes.
const BIG: usize = (24 << 20) + 12_345;

/// Data bytes of a shard whose file ends about where a staging or a page does.
fn lengths() -> impl Iterator<Item = u64> {
    let data = |file_bytes: u64| file_bytes / (BLOCK_BYTES + CHECKSUM_BYTES) * BLOCK_BYTES;
    let edges = [STAGING_BYTES, 2 * STAGING_BYTES].into_iter();
    edges.flat_map(move |edge| {
        let step = 4 * CHECKSUM_BYTES;
        let about = data(edge) - BLOCK_BYTES..data(edge) + 2 * BLOCK_BYTES;
        let within = (0..5).map(move |i| edge - 600 + i * step);
        [about.start, about.start + 1, data(edge), about.end - 1].into_iter().chain(within)
    })
}

async fn check_edges(layout: Layout, no_direct: bool) {
    let bench = Bench::new(layout.disks_min());
    (0..bench.disks.len()).for_each(|disk| bench.faults(disk).no_direct.store(no_direct, SeqCst));
    let pool = bench.create(layout).await;
    let k = layout.disks_min() as u64 - layout.failures() as u64;
    let path = |i: usize| Path::from(format!("o/{i}"));
    // Those that need one staging at most have shards of unequal length, too.
    let small = [1, 150_000, 400_000, 1_000_000, 1_030_001].into_iter();
    let sizes: Vec<usize> = lengths().map(|bytes| (bytes * k) as usize).chain(small).collect();
    for (i, size) in sizes.iter().enumerate() {
        pool.store().put(&path(i), noise(i as u64, *size).into()).await.unwrap();
    }
    {
        let index = pool.core.objects.index();
        assert!(index.objects.values().all(|object| object.is_whole()), "{layout}");
        let wide = index.objects.values().filter(|object| object.geometry.size > MIRROR_BYTES_MAX);
        assert!(
            wide.clone().count() > 0 && wide.map(|object| u64::from(object.geometry.k)).all(|of| of == k),
            "{layout}"
        );
    }
    assert!(pool.status().disks.iter().all(|disk| disk.write_errors == 0), "{layout}");
    let direct: u64 = (0..bench.disks.len()).map(|disk| bench.faults(disk).direct_writes_done.load(SeqCst)).sum();
    assert_eq!(direct == 0, no_direct, "{layout}: {direct} direct writes");
    let scrub = pool.scrub().await.unwrap();
    assert_eq!((scrub.errors, scrub.repaired), (0, 0), "{layout}: every block of every shard");
    // Each disk in turn is computed from the others, as far as the layout allows.
    let lost: Vec<Option<usize>> = match layout.failures() {
        0 => vec![None],
        _ => (0..bench.disks.len()).map(Some).collect(),
    };
    for disk in lost {
        if let Some(disk) = disk {
            *bench.faults(disk).bad_reads.lock() = Trouble::all("objects/", u64::MAX);
        }
        for (i, size) in sizes.iter().enumerate() {
            let got = pool.store().get(&path(i)).await.unwrap().bytes().await.unwrap();
            assert!(got == noise(i as u64, *size), "{layout} without {disk:?}: {size} bytes");
        }
        if let Some(disk) = disk {
            *bench.faults(disk).bad_reads.lock() = Trouble::default();
        }
    }
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_of_a_stripe() {
    check_edges(Layout::Stripe, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_of_raidz1() {
    check_edges(Layout::Raidz1, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_through_the_cache() {
    check_edges(Layout::Raidz1, true).await;
}

/// Files end where the geometry says, and hold nothing of an earlier use of a buffer.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_the_same_with_and_without_the_cache() {
    let mut files = Vec::new();
    for no_direct in [false, true] {
        let bench = Bench::new(1);
        bench.faults(0).no_direct.store(no_direct, SeqCst);
        let pool = bench.create(Layout::Stripe).await;
        pool.store().put(&Path::from("o"), noise(1, BIG).into()).await.unwrap();
        let shards = bench.shards(0);
        assert_eq!(shards.len(), 1);
        files.push(std::fs::read(&shards[0]).unwrap());
        pool.close().await.unwrap();
    }
    let header_bytes = 128;
    assert_eq!(files[0].len(), files[1].len());
    let stored = (BLOCK_BYTES + CHECKSUM_BYTES) as usize;
    let blocks = |file: &Vec<u8>| {
        let blocks = file[header_bytes..].chunks(stored);
        blocks.flat_map(|block| block[..block.len() - CHECKSUM_BYTES as usize].to_vec()).collect::<Vec<u8>>()
    };
    // Checksums differ with the pool's number.
    assert!(blocks(&files[0]) == blocks(&files[1]) && blocks(&files[0]) == noise(1, BIG));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_writes_of_a_shard_are_under_way_and_not_more_than_allowed() {
    let bench = Bench::new(3);
    (0..3).for_each(|disk| bench.faults(disk).direct_write_ms.store(20, SeqCst));
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from("o"), noise(1, BIG).into()).await.unwrap();
    for disk in 0..3 {
        let most = bench.faults(disk).direct_writes_max.load(SeqCst);
        assert_eq!(most, 2, "`stage.bounded`");
    }
    pool.close().await.unwrap();
}

async fn verify(pool: &Pool, seed: u64) {
    let got = pool.store().get(&Path::from("o")).await.unwrap().bytes().await.unwrap();
    assert!(got == noise(seed, BIG));
}

/// `write.retry_excludes_a_disk`: a write that fails counts once, whatever else is under way, and
/// the object is stored on the other disks.
#[tokio::test(flavor = "multi_thread")]
async fn a_direct_write_that_fails_is_a_failed_write() {
    // In the first write, in the middle, and in the bytes after the last whole page of some shards.
    for at in [0, 3 << 20, 8 << 20] {
        let bench = Bench::new(4);
        let pool = bench.create(Layout::Raidz1).await;
        *bench.faults(1).bad_writes.lock() = Trouble { with: "objects/", bytes: at..at + 1, left: 1 };
        pool.store().put(&Path::from("o"), noise(1, BIG).into()).await.unwrap();
        let status = pool.status();
        let errors: Vec<u64> = status.disks.iter().map(|disk| disk.write_errors).collect();
        assert_eq!(errors, [0, 1, 0, 0], "{at}");
        verify(&pool, 1).await;
        let scrub = pool.scrub().await.unwrap();
        assert_eq!((scrub.errors, scrub.repaired), (0, 0));
        pool.close().await.unwrap();
    }
}

/// Direct is not durable: the sync of the file decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_after_direct_writes_is_a_failed_write() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Raidz1).await;
    *bench.faults(2).bad_syncs.lock() = Trouble::all("objects/", 1);
    pool.store().put(&Path::from("o"), noise(1, BIG).into()).await.unwrap();
    assert_eq!(pool.status().disks.iter().map(|disk| disk.write_errors).sum::<u64>(), 1);
    verify(&pool, 1).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_room_for_the_shard_is_not_written_at_all() {
    let bench = Bench::new(4);
    let pool = bench.create(Layout::Raidz1).await;
    bench.faults(0).fill_up();
    pool.store().put(&Path::from("o"), noise(1, BIG).into()).await.unwrap();
    assert_eq!(bench.faults(0).direct_writes_done.load(SeqCst), 0);
    verify(&pool, 1).await;
    pool.close().await.unwrap();
}

/// `stage.hung_disk_alone`: a disk hangs while its writes are under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_goes_on_without_a_disk_that_hangs_in_the_middle() {
    for layout in [Layout::Mirror2, Layout::Raidz1] {
        let bench = Bench::new(3);
        let pool = Arc::new(bench.create(layout).await);
        bench.faults(1).direct_write_ms.store(20, SeqCst);
        let of_task = pool.clone();
        let put = tokio::spawn(async move { of_task.store().put(&Path::from("o"), noise(1, BIG).into()).await });
        while bench.faults(1).direct_writes_done.load(SeqCst) == 0 && !put.is_finished() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bench.faults(1).freeze(Frozen::Writes);
        tokio::time::sleep(Duration::from_millis(300)).await;
        pool.core.blocking(|core| (0..CALL_SECONDS_MAX + 2).for_each(|_| core.members.look_for_hangs())).await.unwrap();
        tokio::time::timeout(Duration::from_secs(15), put).await.expect("the put hangs").unwrap().unwrap();
        verify(&pool, 1).await;
        bench.faults(1).thaw();
        tokio::time::sleep(Duration::from_millis(200)).await;
        pool.reconnect().await.unwrap();
        pool.repaired().await;
        verify(&pool, 1).await;
    }
}

/// On a real disk, and on filesystems that refuse or pretend.
#[test]
fn a_file_is_prepared_or_left_as_it_is() {
    for folder in ["/tmp", "/dev/shm"] {
        let dir = tempfile::tempdir_in(folder).unwrap();
        let file = FileDisks.open_disk(dir.path()).unwrap().create("f").unwrap();
        let is_direct = file.begin_direct(3 * DIRECT_ALIGN as u64 + 777).unwrap();
        let expected = if is_direct { 3 * DIRECT_ALIGN as u64 + 777 } else { 0 };
        assert_eq!(file.length().unwrap(), expected, "{folder}");
        let buffers = Arc::<crate::disk::buffer::Buffers>::default();
        let mut buffer = buffers.take(2 * DIRECT_ALIGN);
        buffer.bytes_mut().fill(7);
        file.write_direct_at(buffer.as_ref(), DIRECT_ALIGN as u64).unwrap();
        file.sync().unwrap();
        let bytes = std::fs::read(dir.path().join("f")).unwrap();
        assert_eq!(bytes.len() as u64, expected.max(3 * DIRECT_ALIGN as u64), "{folder}");
        let sevens = bytes.iter().filter(|byte| **byte == 7).count();
        assert_eq!(sevens, 2 * DIRECT_ALIGN, "{folder}");
    }
}
