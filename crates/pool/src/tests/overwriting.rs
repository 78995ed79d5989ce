//! Several who store one object at once (`write.outrun`): one of them whole, before and after a
//! crash, and nothing of the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::Layout;
use crate::Pool;
use crate::testing::{Bench, noise};

/// More than an upload gathers before it writes, and no whole number of stripes.
const LONG: usize = (9 << 20) + 4321;

fn path() -> Path {
    Path::from("a")
}

async fn read(pool: &Pool) -> Option<Vec<u8>> {
    match pool.store().get(&path()).await {
        Ok(got) => Some(got.bytes().await.unwrap().to_vec()),
        Err(object_store::Error::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// All files are those of objects that are there.
async fn check_litter(bench: &Bench, pool: &Pool) {
    pool.repaired().await;
    pool.core.objects.graveyard.barrier().await;
    let files: usize = (0..bench.disks.len()).map(|disk| bench.shards(disk).len()).sum();
    let placed: usize = pool.core.objects.index().objects.values().map(|object| object.placed().count()).sum();
    assert_eq!(files, placed, "litter");
}

/// An upload whose first stripes are written, and its last bytes.
async fn begin_upload(pool: &Pool, seed: u64) -> (Box<dyn MultipartUpload>, PutPayload) {
    let mut upload = pool.store().put_multipart(&path()).await.unwrap();
    let bytes = noise(seed, LONG);
    let (head, tail) = bytes.split_at(LONG - 1000);
    upload.put_part(head.to_vec().into()).await.unwrap();
    (upload, tail.to_vec().into())
}

/// It began first and ends last: with the number that it began with it would be gone after a crash.
async fn an_upload_is_outrun(layout: Layout, is_deleted: bool, lost_disk: Option<usize>) {
    let bench = Bench::new(layout.disks_min());
    let pool = bench.create(layout).await;
    let (mut upload, tail) = begin_upload(&pool, 1).await;
    pool.store().put(&path(), noise(2, 100_000).into()).await.unwrap();
    // What was overwritten is still there after a crash.
    let stale: Vec<_> = (0..bench.disks.len())
        .flat_map(|disk| bench.shards(disk))
        .filter(|file| !file.file_name().unwrap().to_str().unwrap().starts_with('!'))
        .map(|file| (file.clone(), std::fs::read(&file).unwrap()))
        .collect();
    assert!(!stale.is_empty());
    if is_deleted {
        pool.store().delete(&path()).await.unwrap();
    }
    if let Some(disk) = lost_disk {
        bench.faults(disk).read_error.store(true, SeqCst);
    }
    upload.put_part(tail).await.unwrap();
    upload.complete().await.unwrap();
    assert!(read(&pool).await == Some(noise(1, LONG)));
    if let Some(disk) = lost_disk {
        bench.faults(disk).read_error.store(false, SeqCst);
        pool.reconnect().await.unwrap();
    }
    check_litter(&bench, &pool).await;
    drop((upload, pool));
    stale.iter().for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    let pool = bench.open().await;
    assert!(read(&pool).await == Some(noise(1, LONG)), "{layout}, deleted: {is_deleted}");
    check_litter(&bench, &pool).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_outrun_is_found_again() {
    an_upload_is_outrun(Layout::Raidz1, false, None).await;
    an_upload_is_outrun(Layout::Mirror2, false, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_outrun_by_a_deleted_version_is_found_again() {
    an_upload_is_outrun(Layout::Raidz1, true, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_outrun_is_read_back_without_one_disk() {
    an_upload_is_outrun(Layout::Raidz1, false, Some(1)).await;
}

/// Who creates is refused although it began first, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn of_those_who_create_one_is_told_that_it_has() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let creations = (0..8u64).map(|seed| {
        let store = pool.store();
        tokio::spawn(async move {
            let done = store.put_opts(&path(), noise(seed, 300_000).into(), PutMode::Create.into()).await;
            done.is_ok().then_some(seed)
        })
    });
    let winners: Vec<u64> =
        futures::future::join_all(creations.collect::<Vec<_>>()).await.into_iter().filter_map(Result::unwrap).collect();
    let [winner] = winners[..] else { panic!("{winners:?}") };
    assert!(read(&pool).await == Some(noise(winner, 300_000)));
    check_litter(&bench, &pool).await;
}

fn length_of(seed: u64) -> usize {
    if seed.is_multiple_of(5) { LONG + seed as usize } else { 1000 + (seed as usize * 77_777) % 700_000 }
}

async fn store(pool: &Pool, seed: u64) -> object_store::Result<()> {
    let bytes = noise(seed, length_of(seed));
    if !seed.is_multiple_of(5) {
        return pool.store().put(&path(), bytes.into()).await.map(drop);
    }
    let mut upload = pool.store().put_multipart(&path()).await?;
    for part in bytes.chunks(3 << 20) {
        upload.put_part(part.to_vec().into()).await?;
    }
    upload.complete().await.map(drop)
}

/// Puts, uploads and deletes of one path at once, read meanwhile; then the process dies after
/// `fuel` operations of its disks.
async fn race(layout: Layout, fuel: i64) {
    let bench = Bench::new(layout.disks_min());
    let pool = Arc::new(bench.create(layout).await);
    store(&pool, 1).await.unwrap();
    bench.opener.fuel.store(fuel, SeqCst);
    let whole =
        |bytes: &[u8]| (1..24u64).any(|seed| bytes.len() == length_of(seed) && bytes == noise(seed, bytes.len()));
    let writers = (2..24u64).map(|seed| {
        let pool = pool.clone();
        tokio::spawn(async move {
            if seed.is_multiple_of(7) { pool.store().delete(&path()).await } else { store(&pool, seed).await }
        })
    });
    let writers: Vec<_> = writers.collect();
    let readers = (0..3).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                if let Ok(got) = pool.store().get(&path()).await
                    && let Ok(bytes) = got.bytes().await
                {
                    assert!(whole(&bytes), "{} bytes of several", bytes.len());
                }
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let done = futures::future::join_all(writers).await;
    futures::future::join_all(readers).await.into_iter().for_each(Result::unwrap);
    let refused: BTreeSet<String> = done
        .into_iter()
        .filter_map(|result| result.unwrap().err())
        // An upload may be outrun again and again (`write.outrun`).
        .filter(|error| {
            !matches!(error, object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. })
        })
        .map(|error| error.to_string())
        .collect();
    let survived = bench.opener.fuel.load(SeqCst) > 0;
    assert!(!survived || refused.is_empty(), "{refused:?}");
    let last = if survived { Some(read(&pool).await) } else { None };
    if survived {
        check_litter(&bench, &pool).await;
    }
    drop(pool);
    bench.opener.fuel.store(i64::MAX, SeqCst);
    let pool = bench.open().await;
    let found = read(&pool).await;
    assert!(found.as_deref().is_none_or(whole), "{layout} fuel {fuel}: a mixture");
    assert!(last.is_none_or(|last| last == found), "{layout}: another one than before");
    check_litter(&bench, &pool).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_at_once_is_there_and_stays() {
    for layout in [Layout::Mirror2, Layout::Raidz1] {
        race(layout, i64::MAX).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_at_once_is_there_after_a_crash() {
    for fuel in [20, 60, 110, 190, 270] {
        race(Layout::Raidz1, fuel).await;
    }
}
