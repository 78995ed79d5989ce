//! Ranges that are read past the kernel's cache, at every edge, with and without a filesystem that
//! lets it.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering::SeqCst;

use futures::TryStreamExt;
use larder_base::checksum::CallerVerifies;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStoreExt};
use rand::{Rng, SeedableRng};

use crate::Layout;
use crate::disk::folder::FileDisks;
use crate::disk::{DIRECT_ALIGN, DiskOpener};
use crate::testing::{Bench, noise};

const BYTES: usize = (11 << 20) + 12_345;

async fn check(layout: Layout, no_direct: bool) {
    let bench = Bench::new(layout.disks_min());
    (0..bench.disks.len()).for_each(|disk| bench.faults(disk).no_direct.store(no_direct, SeqCst));
    let pool = bench.create(layout).await;
    let (store, path, want) = (pool.store(), Path::from("o"), noise(3, BYTES));
    store.put(&path, want.clone().into()).await.unwrap();
    let mut random = rand::rngs::StdRng::seed_from_u64(5);
    let edges = [0, 1, 4095, 32 << 10, 1 << 20, (1 << 20) + 1, 2 << 20, 3 << 20];
    let ranges = edges.iter().flat_map(|&from| [256 << 10, (1 << 20) + 7, 9 << 20].map(|length| (from, length)));
    let random = (0..40).map(|_| (random.random_range(0..BYTES), random.random_range(200 << 10..5 << 20)));
    for (from, length) in ranges.chain(random).collect::<Vec<_>>() {
        let to = (from + length).min(BYTES);
        let range = from as u64..to as u64;
        let whole = store.get_range(&path, range.clone()).await.unwrap();
        assert!(whole == want[from..to], "{layout} {from}..{to}");
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        let pieces: Vec<_> = store.get_opts(&path, options).await.unwrap().into_stream().try_collect().await.unwrap();
        assert!(pieces.concat() == want[from..to], "{layout} {from}..{to} in pieces");
    }
    assert!(pool.status().disks.iter().all(|disk| disk.read_errors + disk.checksum_errors == 0));
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn raidz1() {
    check(Layout::Raidz1, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror() {
    check(Layout::Mirror2, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_the_cache() {
    check(Layout::Raidz1, true).await;
}

/// `read.only_proven_bytes`: bytes that the caller verifies come as they lie, unless the damage would go unnoticed. The
/// usual read of the same range finds the damage and repairs it.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_verifies_gets_bytes_as_they_lie() {
    let mut damaged = 0;
    for (layout, disk) in
        [Layout::Raidz1, Layout::Mirror2].iter().flat_map(|layout| (0..2).map(move |disk| (*layout, disk)))
    {
        let bench = Bench::new(layout.disks_min());
        let pool = bench.create(layout).await;
        let (store, path, want) = (pool.store(), Path::from("o"), noise(3, 3 << 20));
        store.put(&path, want.clone().into()).await.unwrap();
        for file in bench.shards(disk) {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[400_000] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
        pool.core.objects.files.clear();
        let mut options = GetOptions { range: Some((0..want.len() as u64).into()), ..GetOptions::default() };
        options.extensions.insert(CallerVerifies);
        let got: Vec<_> = store.get_opts(&path, options).await.unwrap().into_stream().try_collect().await.unwrap();
        let errors = || pool.status().disks[disk].checksum_errors;
        let is_damaged = got.concat() != want;
        assert!(!is_damaged || (layout == Layout::Raidz1 && errors() == 0), "{layout} {disk}");
        damaged += usize::from(is_damaged);
        assert!(store.get_range(&path, 0..want.len() as u64).await.unwrap() == want);
        assert!(!is_damaged || errors() > 0, "{layout} {disk}");
        pool.repaired().await;
        pool.close().await.unwrap();
    }
    assert!(damaged > 0, "two of three disks have data");
}

/// On a real disk, and on the filesystems that refuse or pretend.
#[test]
fn a_file_ends_where_it_ends() {
    for folder in ["/tmp", "/dev/shm"] {
        let dir = tempfile::tempdir_in(folder).unwrap();
        let want = noise(1, 3 * DIRECT_ALIGN + 777);
        std::fs::write(dir.path().join("f"), &want).unwrap();
        let file = FileDisks.open_disk(dir.path()).unwrap().open("f", false).unwrap();
        let buffers = std::sync::Arc::<crate::disk::buffer::Buffers>::default();
        for (offset, length) in [(0, 4), (0, 3), (1, 1), (3, 1), (3, 2), (4, 1), (9, 1)] {
            let (offset, length) = (offset * DIRECT_ALIGN, length * DIRECT_ALIGN);
            let expected = &want[offset.min(want.len())..(offset + length).min(want.len())];
            for part in [length, DIRECT_ALIGN] {
                let mut parts: Vec<_> = (0..length / part).map(|_| buffers.take(part)).collect();
                let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part.bytes_mut())).collect();
                let read = file.read_direct_at(&mut slices, offset as u64).unwrap();
                let got: Vec<u8> = parts.iter().flat_map(|part| part.as_ref()).copied().collect();
                assert!(got[..read] == *expected, "{folder} {offset} {length} {part}");
            }
        }
    }
}
