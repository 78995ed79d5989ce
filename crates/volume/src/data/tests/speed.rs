//! Figures, not judgements: `cargo test --release -p larder-volume data::tests::speed -- --ignored
//! --nocapture`.

use std::time::Instant;

use rand::{Rng, SeedableRng};

use super::*;

/// CPU time of this process so far, in seconds (USER_HZ is 100 on Linux).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    [11, 12].iter().filter_map(|&n| fields.get(n)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

struct Meter(Instant, f64);

impl Meter {
    fn start() -> Self {
        Meter(Instant::now(), cpu_seconds())
    }

    fn report(&self, what: &str, amount: f64, unit: &str) {
        let (wall, cpu) = (self.0.elapsed().as_secs_f64(), cpu_seconds() - self.1);
        eprintln!("{what}: {:.0} {unit}/s, {cpu:.2} CPU s for {amount:.0} {unit}", amount / wall);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn speed() {
    let world = World::new(131_072, Compression::Lz4, 4 << 30, 0).await;
    let inode = world.create(2).await;
    let data = Bytes::from(noise(1, 64 << 20));
    let now = Timestamp::new(2, 0);
    let mib = 1024u64;
    let meter = Meter::start();
    for n in 0..mib {
        let chunk = data.slice(((n % 64) << 20) as usize..).slice(..1 << 20);
        let at = WriteAt::Offset(n << 20);
        world.data.write(&inode, at, vec![chunk], Stability::Unstable, now, |_| {}).await.unwrap();
    }
    world.data.commit(&inode).await.unwrap();
    meter.report("sequential write and commit, incompressible", mib as f64, "MiB");
    let meter = Meter::start();
    for n in 0..mib {
        world.data.read(&inode, n << 20, 1 << 20).await.unwrap();
    }
    meter.report("warm read", mib as f64, "MiB");
    let mut rng = rand::rngs::StdRng::seed_from_u64(1);
    let meter = Meter::start();
    for _ in 0..1_000_000 {
        world.data.read(&inode, rng.random_range(0..mib * 256) * 4096, 4096).await.unwrap();
    }
    meter.report("warm random 4 KiB reads", 1e6, "reads");
    let meter = Meter::start();
    for n in 0..32_768usize {
        let at = WriteAt::Offset(rng.random_range(0..mib * 256) * 4096);
        let chunk = data.slice(n * 1024..n * 1024 + 4096);
        world.data.write(&inode, at, vec![chunk], Stability::Unstable, now, |_| {}).await.unwrap();
    }
    world.data.commit(&inode).await.unwrap();
    meter.report("random 4 KiB writes, then commit", 32_768.0, "writes");
    let meter = Meter::start();
    for n in 0..20_000usize {
        let at = WriteAt::Offset(rng.random_range(0..mib * 256) * 4096);
        let chunk = data.slice(n * 1024..n * 1024 + 4096);
        world.data.write(&inode, at, vec![chunk], Stability::FileSync, now, |_| {}).await.unwrap();
    }
    meter.report("random 4 KiB FILE_SYNC writes (engine in memory)", 20_000.0, "writes");
    drop(inode);
    let world = world.reopen().await;
    let inode = world.inode(2).await;
    let meter = Meter::start();
    for n in 0..mib {
        world.data.read(&inode, n << 20, 1 << 20).await.unwrap();
    }
    meter.report("cold sequential read", mib as f64, "MiB");
}
