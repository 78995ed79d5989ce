//! Reads of a store behind a network: how many requests, how many bytes, how much at a time.

use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Semaphore;

use super::*;

/// Bodies that come in pieces.
#[derive(Debug)]
pub(super) struct Network {
    latency: Duration,
    /// Pieces that may still come.
    pieces: Arc<Semaphore>,
    /// Bytes that were asked for and have not come, now and at most.
    in_flight: Arc<AtomicU64>,
    in_flight_max: AtomicU64,
}

const PIECE: usize = 128 << 10;

impl Network {
    fn new(latency_ms: u64, pieces: usize) -> Arc<Network> {
        let (pieces, in_flight) = (Arc::new(Semaphore::new(pieces)), Arc::default());
        let latency = Duration::from_millis(latency_ms);
        Arc::new(Network { latency, pieces, in_flight, in_flight_max: AtomicU64::new(0) })
    }

    pub(super) async fn slow(&self, got: GetResult) -> GetResult {
        let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
        let extensions = got.extensions.clone();
        let want = range.end - range.start;
        let now = self.in_flight.fetch_add(want, Ordering::Relaxed) + want;
        self.in_flight_max.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(self.latency).await;
        let whole = got.bytes().await.unwrap();
        let (pieces, in_flight) = (Arc::clone(&self.pieces), Arc::clone(&self.in_flight));
        let chunks: Vec<Bytes> =
            (0..whole.len()).step_by(PIECE).map(|at| whole.slice(at..whole.len().min(at + PIECE))).collect();
        let stream = futures::stream::iter(chunks).then(move |chunk| {
            let (pieces, in_flight) = (Arc::clone(&pieces), Arc::clone(&in_flight));
            async move {
                pieces.acquire().await.unwrap().forget();
                in_flight.fetch_sub(chunk.len() as u64, Ordering::Relaxed);
                Ok(chunk)
            }
        });
        GetResult { payload: GetResultPayload::Stream(stream.boxed()), meta, range, attributes, extensions }
    }
}

/// The time of tests that do not wait for it.
pub(super) struct PausedClock(tokio::time::Instant);

impl Default for PausedClock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl larder_base::Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(2, 0)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Files of `len` bytes that do not compress in a store behind `network`, cold.
async fn world_with(len: usize, memory_bytes: u64, files: u64, network: Arc<Network>) -> World {
    let store = TestStore { network: Some(network), ..TestStore::default() };
    let settings = Arc::new(DataSettings::new(&Properties::default()));
    let world = World::open(Arc::new(store), Arc::default(), settings, (memory_bytes, true)).await.unwrap();
    for n in 0..files {
        let inode = world.create(2 + n).await;
        for (at, part) in (0..).step_by(1 << 20).zip(noise(n, len).chunks(1 << 20)) {
            world.write(&inode, at, part).await;
        }
    }
    let world = world.reopen().await;
    world.store.gets.store(0, Ordering::Relaxed);
    world.store.got_bytes.store(0, Ordering::Relaxed);
    world
}

fn gets(world: &World) -> (u64, u64) {
    (u64::from(world.store.gets.load(Ordering::Relaxed)), world.store.got_bytes.load(Ordering::Relaxed))
}

const MIB: u64 = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_sequential_read_asks_for_large_ranges_and_hardly_a_byte_twice() {
    // The cache is smaller than the file the second time, and its shards fill unevenly: a little is read twice.
    for (len, memory, gets_max, waits_max) in [(96 * MIB, 2048 * MIB, 32, 8), (160 * MIB, 256 * MIB, 110, 60)] {
        let world = world_with(len as usize, memory, 1, Network::new(20, Semaphore::MAX_PERMITS)).await;
        let (inode, expected) = (world.inode(2).await, noise(0, len as usize));
        let begun = tokio::time::Instant::now();
        for at in (0..len).step_by(PIECE) {
            let got = world.read(&inode, at..at + PIECE as u64).await;
            assert!(got == expected[at as usize..at as usize + PIECE], "at {at}");
        }
        let (gets, bytes) = gets(&world);
        assert!(gets <= gets_max && bytes <= len + len / 10, "{gets} requests, {bytes} bytes for {len}");
        // The line itself takes no time: this is how often the reader waited for an answer.
        let waits = begun.elapsed().as_millis() / 20;
        assert!(waits <= waits_max, "{waits} round trips for {len}");
    }
}

/// `ahead.in_turn`: what is on its way is bounded, although more is begun.
#[tokio::test(start_paused = true)]
async fn one_reader_has_a_bounded_number_of_requests_on_their_way() {
    let network = Network::new(20, Semaphore::MAX_PERMITS);
    let len = 192 * MIB;
    let world = world_with(len as usize, 8192 * MIB, 1, Arc::clone(&network)).await;
    network.in_flight_max.store(0, Ordering::Relaxed);
    let (inode, expected) = (world.inode(2).await, noise(0, len as usize));
    for at in (0..len).step_by(PIECE) {
        let got = world.read(&inode, at..at + PIECE as u64).await;
        assert!(got == expected[at as usize..at as usize + PIECE], "at {at}");
    }
    let most = network.in_flight_max.load(Ordering::Relaxed);
    assert!((48 * MIB..=17 * 4 * MIB + 4 * MIB).contains(&most), "{} MiB", most / MIB);
    let (gets, bytes) = gets(&world);
    assert!(gets <= 64 && bytes <= len + len / 10, "{gets} requests, {bytes} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_has_little_fetched_in_vain() {
    let world = world_with(64 << 20, 2048 * MIB, 1, Network::new(20, Semaphore::MAX_PERMITS)).await;
    let inode = world.inode(2).await;
    // The head of a file; then two neighbours somewhere.
    world.read(&inode, 0..128 << 10).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, head) = gets(&world);
    assert!(head <= 5 * MIB / 4, "{head} bytes");
    world.read(&inode, 40 * MIB..40 * MIB + 4096).await;
    world.read(&inode, 40 * MIB + 4096..40 * MIB + 8192).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, bytes) = gets(&world);
    assert!(bytes - head <= MIB / 2, "{} bytes", bytes - head);
}

#[tokio::test(start_paused = true)]
async fn scattered_reads_of_a_large_file_stay_small() {
    use rand::{Rng, SeedableRng};
    // A quarter of the cache is less than the file.
    let world = world_with(128 << 20, 512 * MIB, 1, Network::new(20, Semaphore::MAX_PERMITS)).await;
    let (inode, expected) = (world.inode(2).await, noise(0, 128 << 20));
    let mut rng = rand::rngs::StdRng::seed_from_u64(3);
    for _ in 0..200 {
        let at = rng.random_range(0..128 * 256u64) * 4096;
        assert!(world.read(&inode, at..at + 4096).await == expected[at as usize..at as usize + 4096]);
    }
    let (gets, bytes) = gets(&world);
    assert!((190..=215).contains(&gets) && bytes <= 210 * (16 << 10), "{gets} requests, {bytes} bytes");
}

#[tokio::test(start_paused = true)]
async fn dense_scattered_reads_of_a_small_file_soon_have_all_of_it() {
    use rand::{Rng, SeedableRng};
    let len = 64 << 20;
    let world = world_with(len, 2048 * MIB, 1, Network::new(20, Semaphore::MAX_PERMITS)).await;
    let (inode, expected) = (world.inode(2).await, noise(0, len));
    let mut rng = rand::rngs::StdRng::seed_from_u64(4);
    let mut read = async |pause: Duration| {
        let at = rng.random_range(0..(len as u64) / 4096) * 4096;
        assert!(world.read(&inode, at..at + 4096).await == expected[at as usize..at as usize + 4096]);
        tokio::time::sleep(pause).await;
    };
    for _ in 0..20 {
        read(Duration::from_secs(5)).await;
    }
    let (apart, bytes) = gets(&world);
    assert!(apart >= 19 && bytes <= 20 * (16 << 10), "far apart in time: {apart} requests, {bytes} bytes");
    for _ in 0..400 {
        read(Duration::ZERO).await;
    }
    let (all, bytes) = gets(&world);
    assert!(all - apart <= 130 && bytes <= 68 * MIB, "{} requests, {bytes} bytes", all - apart);
}

#[tokio::test(start_paused = true)]
async fn all_readers_together_have_a_bounded_number_of_bytes_on_their_way() {
    let network = Network::new(20, Semaphore::MAX_PERMITS);
    let world = world_with(24 << 20, 192 * MIB, 6, Arc::clone(&network)).await;
    network.in_flight_max.store(0, Ordering::Relaxed);
    let cache = world.data.0.parts.memory.cache_bytes();
    let readers = (0..6u64).map(|n| {
        let world = &world;
        async move {
            let (inode, expected) = (world.inode(2 + n).await, noise(n, 24 << 20));
            for at in (0..24 << 20).step_by(PIECE) {
                let got = world.read(&inode, at..at + PIECE as u64).await;
                assert!(got == expected[at as usize..at as usize + PIECE], "file {n} at {at}");
            }
        }
    });
    futures::future::join_all(readers).await;
    let most = network.in_flight_max.load(Ordering::Relaxed);
    // What readers wait for themselves comes on top; padding lies between records.
    assert!(most <= cache / 4 + cache / 100 + 6 * PIECE as u64 * 2, "{most} bytes beside a cache of {cache}");
    assert!(most >= 8 * MIB, "{most} bytes: nothing was read ahead");
    assert_eq!(world.data.0.parts.memory.ahead_left(), cache / 4, "everything was given back");
    let bytes = gets(&world).1;
    // Shards of the cache fill unevenly: a little is read twice.
    assert!(bytes <= 6 * 30 * MIB, "{bytes} bytes: what was read ahead went before it was read");
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_its_own_bytes_and_not_for_the_range() {
    let network = Network::new(1, Semaphore::MAX_PERMITS);
    let world = world_with(32 << 20, 1024 * MIB, 1, Arc::clone(&network)).await;
    let inode = world.inode(2).await;
    network.pieces.forget_permits(Semaphore::MAX_PERMITS);
    // The padding before the first record and the record lie in the first two pieces.
    network.pieces.add_permits(2);
    let read = tokio::time::timeout(Duration::from_secs(60), world.read(&inode, 0..128 << 10)).await;
    assert!(read.expect("the rest of the range is not needed") == noise(0, 128 << 10));
    assert!(network.in_flight.load(Ordering::Relaxed) > MIB / 2, "the rest is still on its way");
    network.pieces.add_permits(1 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_failed_range_is_asked_for_again_and_a_store_that_is_away_fails_soon() {
    let world = world_with(16 << 20, 1024 * MIB, 1, Network::new(20, Semaphore::MAX_PERMITS)).await;
    let inode = world.inode(2).await;
    world.store.failing_gets.store(1, Ordering::Relaxed);
    assert!(world.read(&inode, 0..128 << 10).await == noise(0, 128 << 10));
    let (before, _) = gets(&world);
    world.store.failing_gets.store(u32::MAX, Ordering::Relaxed);
    let error = world.data.read(&inode, 12 << 20, 1 << 20).await.unwrap_err();
    assert!(error.to_string().contains("get fails"), "{error}");
    let (after, _) = gets(&world);
    assert!(after - before <= 4, "{} requests for a read that fails", after - before);
    world.store.failing_gets.store(0, Ordering::Relaxed);
    world.store.lying_gets.store(1, Ordering::Relaxed);
    assert!(world.read(&inode, 8 << 20..9 << 20).await == noise(0, 16 << 20)[8 << 20..9 << 20]);
}
