//! Random operations against a model, through crashes and clean reopenings.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const FILE_BYTES_MAX: u64 = 3 << 19;

/// One file as it should be. After a crash each byte may be as it was when last made durable, or as
/// any later write made it.
#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Sizes since the last durable moment.
    sizes: Vec<u64>,
    /// For each byte the values since the last durable moment.
    later: Vec<Vec<u8>>,
    /// Bytes that must be reserved: unwritten ones.
    due: Bytemap,
    /// Bytes that may be: those that were not given back, and those that were when last made
    /// durable.
    may: Bytemap,
    may_durable: Bytemap,
    /// Unwritten bytes.
    holes: Bytemap,
}

/// Ranges of bytes.
#[derive(Clone, Default)]
struct Bytemap(std::collections::BTreeMap<u64, u64>);

impl Bytemap {
    fn whole() -> Self {
        Self([(0, u64::MAX)].into())
    }

    fn set(&mut self, range: Range<u64>, to: bool) {
        let touched: Vec<_> =
            self.0.range(..range.end).map(|(&a, &b)| (a, b)).filter(|(_, b)| *b > range.start).collect();
        for (start, end) in touched {
            self.0.remove(&start);
            for rest in [start..range.start.max(start), range.end.min(end)..end] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, rest.end);
                }
            }
        }
        if to && !range.is_empty() {
            self.0.insert(range.start, range.end);
        }
    }

    /// The parts of `range` that are set.
    fn within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let parts = self.0.iter().map(|(&a, &b)| a.max(range.start)..b.min(range.end));
        parts.filter(|part| part.start < part.end).collect()
    }

    fn holds(&self, range: &Range<u64>) -> bool {
        let inside: u64 = self.within(range.clone()).iter().map(|part| part.end - part.start).sum();
        inside == range.end - range.start
    }

    fn add(&mut self, other: &Bytemap) {
        other.0.iter().for_each(|(&a, &b)| self.set(a..b, true));
    }
}

impl File {
    fn settle(&mut self) {
        self.may_durable = self.may.clone();
        self.durable = self.now.clone();
        self.sizes.clear();
        self.later = vec![Vec::new(); self.now.len()];
    }

    fn set(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
            self.later.resize(end.max(self.later.len()), Vec::new());
        }
        self.due.set(at..end as u64, false);
        self.holes.set(at..end as u64, false);
        self.now[at as usize..end].copy_from_slice(data);
        for (n, &byte) in data.iter().enumerate() {
            self.later[at as usize + n].push(byte);
        }
        self.sizes.push(self.now.len() as u64);
    }

    /// Room is reserved for what is not written.
    fn reserve(&mut self, range: Range<u64>) {
        for hole in self.holes.within(range.clone()) {
            self.due.set(hole, true);
        }
        self.may.set(range, true);
        // It is made durable at once, and all that was given back before.
        self.may_durable = self.may.clone();
    }

    fn give_back(&mut self, range: Range<u64>) {
        self.due.set(range.clone(), false);
        self.may.set(range.clone(), false);
        self.holes.set(range, true);
    }

    fn check_reserved(&self, found: &[Range<u64>], seed: u64) {
        let mut may = self.may.clone();
        may.add(&self.may_durable);
        let mut is = Bytemap::default();
        found.iter().for_each(|range| is.set(range.clone(), true));
        for (&a, &b) in &self.due.0 {
            assert!(is.holds(&(a..b)), "seed {seed}: {a}..{b} should be reserved, and {found:?} are");
        }
        for range in found {
            assert!(may.holds(range), "seed {seed}: {range:?} is reserved, and only {:?} may be", may.0);
        }
    }

    fn resize(&mut self, size: u64) {
        if size <= self.now.len() as u64 {
            self.give_back(size..u64::MAX);
        }
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
    let compression = [Compression::None, Compression::Lz4, Compression::ZSTD][rng.random_range(0..3)];
    let mut world = World::new(record, compression, 64 << 20, 0).await;
    let mut files: Vec<File> = vec![File { holes: Bytemap::whole(), ..File::default() }; 3];
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
                    // Data that was unstable before may still be lost, the size may not.
                    file.sizes = vec![size];
                    file.durable.resize(size as usize, 0);
                }
            }
            52..=55 => {
                world.data.allocate(&inode, at, len, AllocateMode::PunchHole, |_| {}).await.unwrap();
                let end = (at + len).min(file.now.len() as u64);
                if at < end {
                    file.set(at, &vec![0; (end - at) as usize]);
                }
                file.give_back(at..at + len);
            }
            56..=66 => {
                use AllocateMode::{Extend, KeepSize, Zero, ZeroKeepSize};
                let mode = [Extend, KeepSize, Zero, ZeroKeepSize][rng.random_range(0..4)];
                world.allocate(&inode, at..at + len, mode).await.unwrap();
                let (size, end) = (file.now.len() as u64, at + len);
                let zeroed = at.min(size)..end.min(size);
                if matches!(mode, Zero | ZeroKeepSize) && !zeroed.is_empty() {
                    file.set(zeroed.start, &vec![0; (zeroed.end - zeroed.start) as usize]);
                    file.holes.set(at..end, true);
                }
                if matches!(mode, Extend | Zero) && end > size {
                    file.now.resize(end as usize, 0);
                    file.later.resize(file.later.len().max(end as usize), Vec::new());
                }
                file.sizes = vec![file.now.len() as u64];
                file.durable.resize(file.now.len(), 0);
                file.reserve(at..end);
            }
            67..=79 => {
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
                    inode.file.state.lock().forget_extents();
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
                    let reserved = world.reserved_rows(n as u64 + 2);
                    file.check_reserved(&reserved, seed);
                    file.may = Bytemap::default();
                    reserved.iter().for_each(|range| file.may.set(range.clone(), true));
                    file.due = Bytemap::default();
                    file.holes = Bytemap::default();
                    file.now = found;
                    file.settle();
                }
                world.check(true).await;
                // A second crash must find the same.
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
    for tag in [extents::EXTENT_TAG, RESERVED_TAG, intents::INTENT_TAG, segments::SEGMENT_TAG] {
        assert_eq!(world.meta.keys(tag), 0, "seed {seed}: keys of {} are left", char::from(tag));
    }
    assert_eq!(world.store.measure(), 0, "seed {seed}: objects are left");
    let usage = world.meta.usage();
    assert_eq!((usage.logical_bytes, usage.stored_bytes, usage.reserved_bytes), (0, 0, 0), "seed {seed}");
    assert_eq!(world.data.usage(), DataUsage::default(), "seed {seed}");
    assert_eq!(world.data.0.parts.memory.dirty_used(), 0, "seed {seed}: memory is still charged");
}

async fn check_all(world: &World, files: &[File], seed: u64) {
    for (n, file) in files.iter().enumerate() {
        let inode = world.inode(n as u64 + 2).await;
        let size = inode.core.lock().attr.size;
        assert_eq!(size, file.now.len() as u64, "seed {seed}");
        assert!(world.read(&inode, 0..size).await == file.now, "seed {seed}: file {}", n + 2);
        file.check_reserved(&world.reserved_rows(n as u64 + 2), seed);
    }
}

/// A hole that `seek` finds must be zeros; bytes that are not zeros must be found as data.
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
