//! Objects in blocks of 8 KiB beside objects in blocks of 32 KiB from before there was a choice.

use larder_base::checksum::checksum;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use uuid::Uuid;

use crate::object::geometry::{BlockSize, Geometry};
use crate::object::shard::{self, Header};
use crate::testing::{Bench, noise};
use crate::{Layout, Pool, ScrubPhase};

const OLD: &str = "vol/old";
const NEW: &str = "vol/new";
const BYTES: usize = (2 << 20) + 300_000;

/// Writes the shards of an object as the first programs did: raidz1 over three disks.
fn write_old(bench: &Bench, pool: Uuid) {
    let geometry = Geometry { size: BYTES as u64, k: 2, m: 1, block: BlockSize::Kib32 };
    let data = noise(1, BYTES);
    let mut shards = vec![Vec::new(), Vec::new()];
    for piece in geometry.pieces(0..BYTES as u64) {
        let length = (piece.local.end - piece.local.start) as usize;
        shards[usize::from(piece.shard)].extend_from_slice(&data[piece.object as usize..][..length]);
    }
    let mut parity = shards[0].clone();
    parity.iter_mut().zip(&shards[1]).for_each(|(sum, byte)| *sum ^= byte);
    shards.push(parity);
    for (index, content) in (0u8..).zip(shards) {
        assert_eq!(content.len() as u64, geometry.shard_bytes(index));
        let path = OLD.to_owned();
        let header =
            Header { pool, version: 77, modified_ms: 1_700_000_000_000, geometry, index, path, attributes: Vec::new() };
        let mut file = header.encode();
        assert_eq!(file[8..12], 1u32.to_le_bytes(), "the first version of the header");
        let name = shard::file_name(&header, file.len());
        let seed = shard::shard_seed(pool, 77, index);
        for (number, block) in (0..).zip(content.chunks(32 << 10)) {
            file.extend_from_slice(block);
            file.extend_from_slice(&checksum(shard::block_seed(seed, number), block).to_le_bytes());
        }
        std::fs::write(bench.disks[usize::from(index)].join(shard::directory(OLD)).join(name), file).unwrap();
    }
}

async fn compare(pool: &Pool) {
    let store = pool.store();
    for (path, seed) in [(OLD, 1), (NEW, 2)] {
        let whole = noise(seed, BYTES);
        assert!(store.get(&Path::from(path)).await.unwrap().bytes().await.unwrap() == whole, "{path}");
        for at in (0..BYTES - 5000).step_by(77_777) {
            let got = store.get_range(&Path::from(path), at as u64..at as u64 + 5000).await.unwrap();
            assert!(got == whole[at..at + 5000], "{path} at {at}");
        }
    }
}

/// Flips a byte of the block that holds byte `at` of an object; the object's file on its disk.
fn flip(bench: &Bench, pool: &Pool, path: &str, at: u64) {
    let object = pool.core.objects.index().get(path).cloned().unwrap();
    let piece = object.geometry.pieces(at..at + 1).remove(0);
    let block = piece.local.start / object.geometry.block_bytes();
    let file = bench.disks[usize::from(object.slot(piece.shard).unwrap())].join(object.file_name(piece.shard));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[object.geometry.block_offset(u64::from(object.header_bytes), block) as usize + 3] ^= 8;
    std::fs::write(&file, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn both_forms_are_read_repaired_and_scrubbed() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from(NEW), noise(2, BYTES).into()).await.unwrap();
    let id = pool.core.members.id;
    pool.close().await.unwrap();
    write_old(&bench, id);
    let pool = bench.open().await;
    compare(&pool).await;
    let block_of = |path: &str| pool.core.objects.index().get(path).unwrap().geometry.block;
    assert_eq!((block_of(OLD), block_of(NEW)), (BlockSize::Kib32, BlockSize::Kib8));
    let found = pool.scrub().await.unwrap();
    assert_eq!((found.phase, found.errors, found.unrepaired), (ScrubPhase::Finished, 0, 0));
    for path in [OLD, NEW] {
        // Half of the blocks: of the second disk those whose rows are whole on the first.
        for at in (0..BYTES as u64).step_by(64 << 10) {
            let is_second = (1 << 20..2 << 20).contains(&at);
            flip(&bench, &pool, path, if is_second { at + (32 << 10) } else { at });
        }
    }
    compare(&pool).await;
    pool.repaired().await;
    let found = pool.scrub().await.unwrap();
    assert_eq!((found.errors, found.unrepaired), (0, 0), "what was read is repaired: {found:?}");
    // A disk that is lost: its shards are made anew in the form that the others have.
    let file_on = |disk: u8, path: &str| {
        let object = pool.core.objects.index().get(path).cloned().unwrap();
        let shard = (0..3).find(|&shard| object.slot(shard) == Some(disk)).unwrap();
        bench.disks[usize::from(disk)].join(object.file_name(shard))
    };
    let files: Vec<_> = [OLD, NEW].map(|path| file_on(0, path)).into();
    let before: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let found = pool.scrub().await.unwrap();
    assert_eq!((found.repaired, found.unrepaired), (2, 0), "{found:?}");
    let after: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(before == after);
    compare(&pool).await;
    pool.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_read_touches_one_disk_and_little_of_it() {
    let bench = Bench::new(3);
    let pool = bench.create(Layout::Raidz1).await;
    pool.store().put(&Path::from(NEW), noise(2, BYTES).into()).await.unwrap();
    let object = pool.core.objects.index().get(NEW).cloned().unwrap();
    for at in (0..BYTES as u64 - 4096).step_by(4096) {
        let spans: Vec<_> = object.geometry.pieces(at..at + 4096);
        assert_eq!(spans.len(), 1, "one disk");
        let whole = object.geometry.whole_blocks(spans[0].shard, &spans[0].local);
        assert!(whole.end - whole.start <= 8192, "{whole:?} for {at}");
    }
    pool.close().await.unwrap();
}
