//! Random operations against a model, through crashes and clean reopenings.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const FILE_BYTES_MAX: u64 = 3 << 19;

/// One file as it should be. After a crash each byte may be as it was when last made durable, or as any later
/// write made it.
#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Sizes since the last durable moment.
    sizes: Vec<u64>,
    /// For each byte the values since the last durable moment.
    later: Vec<Vec<u8>>,
}

impl File {
    fn settle(&mut self) {
        self.durable = self.now.clone();
        self.sizes.clear();
        self.later = vec![Vec::new(); self.now.len()];
    }

    fn set(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        if self.now.len() < end {
            self.resize(end as u64);
        }
        self.now[at as usize..end].copy_from_slice(data);
        for (n, &byte) in data.iter().enumerate() {
            self.later[at as usize + n].push(byte);
        }
        self.sizes.push(self.now.len() as u64);
    }

    fn resize(&mut self, size: u64) {
        for at in size as usize..self.now.len() {
            self.later[at].push(0);
        }
        self.now.resize(size as usize, 0);
        if self.later.len() < size as usize {
            self.later.resize(size as usize, Vec::new());
        }
        self.sizes.push(size);
    }

    fn check_after_crash(&self, found: &[u8], seed: u64) {
        let size = found.len() as u64;
        let known = size == self.durable.len() as u64 || self.sizes.contains(&size);
        let (least, most) = (
            self.sizes.iter().copied().chain([self.durable.len() as u64]).min().unwrap(),
            self.sizes.iter().copied().max().unwrap_or(0).max(self.durable.len() as u64),
        );
        assert!(known || (least..=most).contains(&size), "seed {seed}: size {size}");
        for (at, &byte) in found.iter().enumerate() {
            let before = self.durable.get(at).copied().unwrap_or(0);
            let later = self.later.get(at).is_some_and(|later| later.contains(&byte));
            assert!(byte == before || later, "seed {seed}: byte {at} is {byte}, durable was {before}");
        }
    }
}

fn content(rng: &mut StdRng, len: usize) -> Vec<u8> {
    match rng.random_range(0..4) {
        0 => vec![0; len],
        1 => vec![rng.random(); len],
        _ => noise(rng.random(), len),
    }
}

async fn run(seed: u64, steps: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let record = [4096, 65536, 131_072, 1 << 20][rng.random_range(0..4)];
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.random_range(0..3)];
    let mut world = World::new(record, compression, 64 << 20, 0).await;
    let mut files: Vec<File> = vec![File::default(); 3];
    for ino in 0..files.len() {
        world.create(ino as u64 + 2).await;
    }
    for _ in 0..steps {
        let n = rng.random_range(0..files.len());
        let inode = world.inode(n as u64 + 2).await;
        let file = &mut files[n];
        let small = rng.random_bool(0.6);
        let span = if n == 2 { 900 } else { FILE_BYTES_MAX };
        let at = rng.random_range(0..span);
        let len = rng.random_range(
            1..=if n == 2 {
                200
            } else if small {
                9000
            } else {
                500_000
            },
        );
        match rng.random_range(0..100) {
            0..=39 => {
                let data = content(&mut rng, len as usize);
                let how = if rng.random_bool(0.25) { Stability::FileSync } else { Stability::Unstable };
                world.try_write(&inode, at, &data, how).await.unwrap();
                file.set(at, &data);
                if how > Stability::Unstable {
                    file.settle();
                }
            }
            40..=44 => {
                let data = content(&mut rng, len.min(5000) as usize);
                let chunks = vec![Bytes::from(data.clone())];
                let at = world.data.write(
                    &inode,
                    WriteAt::Append,
                    chunks,
                    Stability::Unstable,
                    Timestamp::new(3, 0),
                    |_| {},
                );
                let (at, changed) = at.await.unwrap();
                assert_eq!(at, file.now.len() as u64);
                file.set(at, &data);
                assert_eq!(changed.after.size, file.now.len() as u64);
            }
            45..=51 => {
                let size = if rng.random_bool(0.3) { at / 10 } else { at };
                let (_, ticket) = world.data.truncate(&inode, size, |_| {}).await.unwrap();
                file.resize(size);
                if rng.random_bool(0.5) {
                    world.meta.durable(ticket).await.unwrap();
                    // What was unstable before may still be lost, the size may not.
                    file.sizes = vec![size];
                    file.durable.resize(size as usize, 0);
                }
            }
            52..=58 => {
                let mode = if rng.random_bool(0.5) { AllocateMode::PunchHole } else { AllocateMode::Zero };
                world.data.allocate(&inode, at, len, mode, |_| {}).await.unwrap();
                let end = if mode == AllocateMode::Zero { at + len } else { (at + len).min(file.now.len() as u64) };
                if at < end {
                    file.set(at, &vec![0; (end - at) as usize]);
                }
            }
            59..=79 => {
                let size = inode.core.lock().attr.size;
                assert_eq!(size, file.now.len() as u64, "seed {seed}");
                let (from, to) = (at.min(size), (at + len * 3).min(size));
                let got = world.read(&inode, from..to).await;
                assert!(got == file.now[from as usize..to as usize], "seed {seed}: read {from}..{to} of {}", n + 2);
            }
            80..=87 => {
                world.data.commit(&inode).await.unwrap();
                file.settle();
            }
            88..=90 => {
                world.data.sync_all().await.unwrap();
                files.iter_mut().for_each(File::settle);
            }
            91..=93 => {
                if rng.random_bool(0.5) {
                    // As when too many are in memory: what is alive is then in the engine alone.
                    let _changing = inode.file.extents_lock.write().await;
                    inode.file.state.lock().extents.forget();
                }
                world.data.0.collect_garbage_now().await.unwrap();
            }
            94..=95 => check_seek(&world, &inode, file, at, seed).await,
            96..=97 => {
                drop(inode);
                world = world.reopen().await;
                files.iter_mut().for_each(File::settle);
                check_all(&world, &files, seed).await;
                world.check(true).await;
            }
            _ => {
                drop(inode);
                world = world.crash(rng.random_range(0..3)).await;
                for (n, file) in files.iter_mut().enumerate() {
                    let inode = world.inode(n as u64 + 2).await;
                    let size = inode.core.lock().attr.size;
                    let found = world.read(&inode, 0..size).await;
                    file.check_after_crash(&found, seed);
                    file.now = found;
                    file.settle();
                }
                world.check(true).await;
                // What was found is what a second crash must find.
            }
        }
    }
    world = world.reopen().await;
    check_all(&world, &files, seed).await;
    world.check(true).await;
    for ino in 0..files.len() {
        let inode = world.inode(ino as u64 + 2).await;
        world.data.reap(&inode, Batch::default()).await.unwrap();
    }
    world.data.0.collect_garbage_now().await.unwrap();
    for tag in [extents::EXTENT_TAG, intents::INTENT_TAG, segments::SEGMENT_TAG] {
        assert_eq!(world.meta.keys(tag), 0, "seed {seed}: keys of {} are left", char::from(tag));
    }
    assert_eq!(world.store.measure(), 0, "seed {seed}: objects are left");
    let usage = world.meta.usage();
    assert_eq!((usage.logical_bytes, usage.stored_bytes), (0, 0), "seed {seed}");
    assert_eq!(world.data.usage(), DataUsage::default(), "seed {seed}");
    assert_eq!(world.data.0.parts.memory.dirty_used(), 0, "seed {seed}: memory is still charged");
}

async fn check_all(world: &World, files: &[File], seed: u64) {
    for (n, file) in files.iter().enumerate() {
        let inode = world.inode(n as u64 + 2).await;
        let size = inode.core.lock().attr.size;
        assert_eq!(size, file.now.len() as u64, "seed {seed}");
        assert!(world.read(&inode, 0..size).await == file.now, "seed {seed}: file {}", n + 2);
    }
}

/// What `seek` calls a hole must be zeros; what is not zeros must be found as data.
async fn check_seek(world: &World, inode: &Arc<Inode>, file: &File, at: u64, seed: u64) {
    let found = world.data.seek(inode, at, SeekTo::Data).await;
    let first = file.now.iter().skip(at as usize).position(|&byte| byte != 0).map(|n| at + n as u64);
    match (found, first) {
        (Ok(found), Some(first)) => assert!(at <= found && found <= first, "seed {seed}"),
        (Ok(found), None) => assert!(found < file.now.len() as u64, "seed {seed}"),
        (Err(FsError::NotFound), None) => {}
        (found, first) => panic!("seed {seed}: {found:?} {first:?}"),
    }
    match world.data.seek(inode, at, SeekTo::Hole).await {
        Ok(hole) => {
            assert!(hole >= at && hole <= file.now.len() as u64);
            assert!(hole == file.now.len() as u64 || file.now[hole as usize] == 0, "seed {seed}");
        }
        Err(error) => assert!(at >= file.now.len() as u64, "seed {seed}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_agree_with_the_model() {
    let (first, count) = match std::env::var("LARDER_SEED") {
        Ok(seed) => (seed.parse().unwrap(), 1),
        Err(_) => (rand::random::<u32>().into(), 8),
    };
    for seed in first..first + count {
        eprintln!("seed {seed}");
        run(seed, 150).await;
    }
}
