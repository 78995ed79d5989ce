#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::{Path as FilePath, PathBuf};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use std::sync::atomic::Ordering;

use std::time::{Duration, Instant};

use super::found::*;
use super::scrubs::*;
use super::state::*;
use super::*;
use crate::member::member_disk::MemberDisk;
use crate::object::geometry::BlockSize;
use crate::testing::{Bench, noise};
use crate::{Layout, Pool};

/// Sizes around units, stripes and what is mirrored instead.
const SIZES: [usize; 6] = [0, 1000, 130_000, 700_001, 3 << 20, (5 << 20) + 77];

async fn fill(store: &dyn ObjectStore) {
    for (seed, size) in SIZES.into_iter().enumerate() {
        store.put(&Path::from(format!("o{seed}")), noise(seed as u64, size).into()).await.unwrap();
    }
}

async fn compare(store: &dyn ObjectStore) {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let got = store.get(&Path::from(format!("o{seed}"))).await.unwrap().bytes().await.unwrap();
        assert!(got == noise(seed as u64, size), "o{seed} differs");
    }
}

fn flip(file: &FilePath, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

fn errors(pool: &Pool) -> Vec<u64> {
    pool.status().disks.iter().map(|disk| disk.checksum_errors).collect()
}

async fn scrub_clean(pool: &Pool) {
    let again = pool.scrub().await.unwrap();
    assert_eq!((again.errors, again.repaired, again.unrepaired), (0, 0, 0));
}

/// A bit in one of a hundred pages of a disk, headers included.
#[tokio::test(flavor = "multi_thread")]
async fn bit_rot_on_one_disk_is_repaired_by_one_scrub() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    let mut page = 0;
    for file in bench.shards(1) {
        let length = std::fs::metadata(&file).unwrap().len();
        for start in (0..length).step_by(4096) {
            if page % 100 == 0 {
                flip(&file, (start + page % 4096).min(length - 1));
            }
            page += 1;
        }
    }
    let first = pool.scrub().await.unwrap();
    assert_eq!((first.phase, first.unrepaired), (ScrubPhase::Finished, 0));
    assert!(first.errors >= page / 100 && first.repaired > 0 && first.repaired_bytes > 0, "{first:?}");
    assert!(first.repaired_bytes <= first.errors * BlockSize::NEW.bytes(), "no more than was damaged: {first:?}");
    assert_eq!((first.objects_done, first.bytes_done), (first.objects_total, first.bytes_total));
    assert!(errors(&pool)[1] == first.errors && errors(&pool)[0] == 0, "{:?}", errors(&pool));
    scrub_clean(&pool).await;
    compare(&*pool.store()).await;
    pool.close().await.unwrap();
}

/// Every block of every shard has damage of its own, as far as the layout allows.
#[tokio::test(flavor = "multi_thread")]
async fn bit_rot_spread_over_all_disks_is_repaired_by_one_scrub() {
    for (layout, disks) in [(Layout::Raidz1, 3), (Layout::Raidz2, 5), (Layout::Mirror2, 2)] {
        let bench = Bench::new(disks);
        let pool = bench.create(layout).await;
        fill(&*pool.store()).await;
        let objects: Vec<_> = pool.core.objects.index().objects.values().cloned().collect();
        for object in &objects {
            let shards = u64::from(object.geometry.shards());
            for (index, slot) in object.placed() {
                let blocks = object.geometry.shard_bytes(index).div_ceil(object.geometry.block_bytes());
                let file = bench.disks[usize::from(slot)].join(object.file_name(index));
                for block in (0..blocks).filter(|block| block % shards == u64::from(index)) {
                    flip(&file, object.geometry.block_offset(u64::from(object.header_bytes), block) + block % 7);
                }
            }
        }
        let first = pool.scrub().await.unwrap();
        assert_eq!(first.unrepaired, 0, "{layout}: {first:?}");
        assert!(first.repaired > 0);
        scrub_clean(&pool).await;
        compare(&*pool.store()).await;
        pool.close().await.unwrap();
    }
}

/// What users read before any scrub is right as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_read_survives_damage_at_different_places_of_several_shards() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    let object = pool.core.objects.index().get("o5").cloned().unwrap();
    for (index, slot) in object.placed() {
        let file = bench.disks[usize::from(slot)].join(object.file_name(index));
        flip(&file, object.geometry.block_offset(u64::from(object.header_bytes), u64::from(index)));
    }
    compare(&*pool.store()).await;
    pool.repaired().await;
    scrub_clean(&pool).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_repaired_is_named_by_its_bytes_until_it_is_gone() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    let object = pool.core.objects.index().get("o5").cloned().unwrap();
    // The third block of the second stripe, on two of three disks.
    for index in [0, 2] {
        let file = bench.disks[usize::from(object.slot(index).unwrap())].join(object.file_name(index));
        flip(
            &file,
            object.geometry.block_offset(u64::from(object.header_bytes), (1 << 20) / object.geometry.block_bytes() + 2),
        );
    }
    let block_bytes = object.geometry.block_bytes();
    let start = (2 << 20) + 2 * block_bytes;
    let lost = std::iter::once(start..start + block_bytes).collect();
    let damage = vec![Damage { object: "o5".into(), version: object.version, ranges: lost }];
    let store = pool.store();
    assert!(store.get_range(&Path::from("o5"), start..start + 1).await.is_err());
    assert_eq!(pool.damage(), (damage.clone(), 0), "whoever meets it makes it known");
    let claim = |pool: &Pool| pool.status().status.contains("nothing is lost");
    assert!(!claim(&pool), "{:?}", pool.status());
    pool.repaired().await;
    let status = pool.scrub().await.unwrap();
    assert_eq!((status.unrepaired, status.errors), (1, 2));
    assert_eq!(pool.damage(), (damage.clone(), 0));
    assert!(store.get_range(&Path::from("o5"), start..start + 1).await.is_err());
    assert!(store.get_range(&Path::from("o5"), 0..start).await.unwrap() == noise(5, SIZES[5])[..start as usize]);
    pool.close().await.unwrap();
    drop((pool, store, object));
    let pool = bench.open().await;
    assert_eq!(pool.damage(), (damage, 0), "it is remembered");
    fill(&*pool.store()).await;
    assert_eq!(pool.damage(), (vec![], 0));
    assert!(!claim(&pool), "what was not answered stays so: {:?}", pool.status());
    let read_errors = |pool: &Pool| pool.status().disks.iter().map(|disk| disk.checksum_errors).sum::<u64>();
    pool.core
        .members
        .iter()
        .for_each(|member| _ = member.count(crate::member::member_disk::ErrorKind::Checksum, "then"));
    scrub_clean(&pool).await;
    assert!(claim(&pool) && read_errors(&pool) > 0, "until a scrub has read all: {:?}", pool.status());
    pool.clear().await.unwrap();
    scrub_clean(&pool).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_from_too_many_disks_while_the_pool_was_closed_is_known() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    let object = pool.core.objects.index().get("o5").cloned().unwrap();
    pool.close().await.unwrap();
    drop(pool);
    for index in [0, 2] {
        std::fs::remove_file(bench.disks[usize::from(object.slot(index).unwrap())].join(object.file_name(index)))
            .unwrap();
    }
    let pool = bench.open().await;
    pool.repaired().await;
    let lost = (0..3).map(|stripe| object.geometry.unit_range(stripe, 0)).collect();
    let damage = vec![Damage { object: "o5".into(), version: object.version, ranges: lost }];
    assert_eq!(pool.damage(), (damage.clone(), 0), "without anybody's asking");
    assert!(pool.store().get(&Path::from("o5")).await.is_err());
    let status = pool.scrub().await.unwrap();
    assert_eq!((status.unrepaired, status.errors), (1, 2));
    assert_eq!(pool.damage(), (damage, 0));
    pool.close().await.unwrap();
}

fn journal_files(disk: &FilePath) -> Vec<PathBuf> {
    let files = std::fs::read_dir(disk.join("journal")).map(|found| found.map(|entry| entry.unwrap().path()).collect());
    files.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_journal_copies_are_made_good() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    let log = pool.log();
    for id in 1..=100 {
        log.append("a", id, vec![noise(id, 20_000).into()]).await.unwrap();
    }
    flip(&bench.disks[2].join("larder.label.2"), 100);
    let with_copies: Vec<&PathBuf> = bench.disks.iter().filter(|disk| !journal_files(disk).is_empty()).collect();
    assert_eq!(with_copies.len(), 2);
    // The headers of batches, which no reader of an open journal looks at.
    let files = journal_files(with_copies[0]);
    // The one that is being made ready may be short still.
    let is_long = |file: &&PathBuf| std::fs::metadata(file).unwrap().len() > 3 * 4096;
    files.iter().filter(is_long).for_each(|file| flip(file, 4096 + 4096));
    let files = files.len();
    let status = pool.scrub().await.unwrap();
    assert!(status.repaired >= 3 && status.repaired <= files as u64 + 1 && status.unrepaired == 0, "{status:?}");
    scrub_clean(&pool).await;
    // Either copy alone is whole.
    drop((log, pool));
    crate::tests::remove_folder(with_copies[1]);
    let pool = bench.open().await;
    let entries = pool.log().replay("a", 0).await.unwrap();
    assert!(entries.len() == 100 && entries.iter().all(|entry| entry.payload == noise(entry.id, 20_000)));
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_goes_on_where_it_was_paused_or_killed() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    assert!(pool.scrub_status().is_none());
    assert!(pool.scrub_pause().await.is_err() && pool.scrub_stop().await.is_err());
    pool.core.scrubs.wish.store(PAUSE, Ordering::Release);
    assert!(pool.core.scrubs.state.lock().start("test", 1));
    // As a kill in the middle leaves it: three objects are done.
    {
        let mut state = pool.core.scrubs.state.lock();
        for at in 0..3 {
            let object = pool.core.objects.index().get(&format!("o{at}")).cloned().unwrap();
            state.add(pool.core.settle_object(&object, Vec::new()));
        }
    }
    pool.core.save_scrub();
    drop(pool);
    let pool = bench.open().await;
    pool.scrub_wait().await;
    let status = pool.scrub_status().unwrap();
    assert_eq!((status.phase, status.why.as_str()), (ScrubPhase::Finished, "test"));
    assert_eq!((status.objects_done, status.objects_total), (6, 6));
    let whole: u64 = pool.core.objects.index().objects.values().map(|object| verify::stored_bytes(object)).sum();
    assert!(status.bytes_done < whole, "what was done before is not read again");
    // Paused, closed, opened, gone on with.
    pool.scrub_start("by hand").await.unwrap();
    match pool.scrub_pause().await {
        Ok(()) => {}
        Err(error) => assert!(error.to_string().contains("no scrub runs"), "it was quicker: {error}"),
    }
    pool.close().await.unwrap();
    drop(pool);
    let pool = bench.open().await;
    let phase = pool.scrub_status().unwrap().phase;
    assert!(matches!(phase, ScrubPhase::Paused | ScrubPhase::Finished), "{phase:?}");
    scrub_clean(&pool).await;
    let kinds: Vec<String> = pool.history().into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&"scrub-started".into()) && kinds.contains(&"scrub-finished".into()), "{kinds:?}");
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_in_use_is_scrubbed_slowly_but_to_the_end() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    let request = pool.core.activity.enter();
    let began = Instant::now();
    let status = pool.scrub().await.unwrap();
    assert_eq!(status.phase, ScrubPhase::Finished);
    assert!(began.elapsed() < Duration::from_secs(30));
    drop(request);
    pool.close().await.unwrap();
}

/// `scrub.streams_of_a_disk`. And what two streams find is mended as what one finds.
#[tokio::test(flavor = "multi_thread")]
async fn disks_that_do_not_seek_are_read_by_two_streams_and_others_by_one() {
    use std::sync::atomic::Ordering::SeqCst;
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    fill(&*pool.store()).await;
    for disk in 0..3 {
        bench.faults(disk).no_seeks.store(disk != 0, SeqCst);
        bench.faults(disk).direct_read_ms.store(10, SeqCst);
        bench.faults(disk).direct_reads_max.store(0, SeqCst);
    }
    let members: Vec<&MemberDisk> = pool.core.members.iter().collect();
    assert_eq!(members.into_iter().map(streams).collect::<Vec<_>>(), [1, 2, 2]);
    scrub_clean(&pool).await;
    let most: Vec<u64> = (0..3).map(|disk| bench.faults(disk).direct_reads_max.load(SeqCst)).collect();
    assert_eq!(most, [1, 2, 2]);
    for shard in bench.shards(1) {
        flip(&shard, 70);
    }
    let found = pool.scrub().await.unwrap();
    assert!(found.errors > 0 && found.repaired == found.errors && found.unrepaired == 0, "{found:?}");
    scrub_clean(&pool).await;
    compare(&*pool.store()).await;
    pool.close().await.unwrap();
}
