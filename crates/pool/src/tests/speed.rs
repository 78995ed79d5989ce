//! Measurements, run by hand: `cargo test --release -p larder-pool speed -- --ignored --nocapture`.

use std::time::Instant;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::CreateOptions;
use crate::Layout;
use crate::Pool;
use crate::testing::noise;

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn speed() {
    let dir = tempfile::tempdir_in(std::env::var("LARDER_BENCH_DIR").unwrap_or("/tmp".into())).unwrap();
    for (layout, disks) in [(Layout::Stripe, 1), (Layout::Raidz1, 3), (Layout::Raidz2, 4)] {
        let disks = (0..disks).map(|i| dir.path().join(format!("{layout}{i}"))).collect();
        let pool = Pool::create(CreateOptions::new("speed", layout, disks)).await.unwrap();
        objects(&pool, layout).await;
        if layout == Layout::Raidz1 {
            journal(&pool).await;
        }
        pool.close().await.unwrap();
    }
}

async fn objects(pool: &Pool, layout: Layout) {
    let (store, count, bytes) = (pool.store(), 16u64, 64usize << 20);
    let parts: Vec<bytes::Bytes> = (0..512).map(|i| noise(i, bytes / 512).into()).collect();
    let payload: PutPayload = parts.into_iter().collect();
    let path = |i: u64| Path::from(format!("seg/{i}"));
    let gib = (count * bytes as u64) as f64 / f64::from(1 << 30);
    let report = |what: &str, start: Instant, cpu: f64| {
        let seconds = start.elapsed().as_secs_f64();
        println!("{layout} {what}: {:.0} MiB/s, {:.2} CPU s/GiB", gib * 1024.0 / seconds, (cpu_seconds() - cpu) / gib);
    };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    for i in 0..count {
        store.put(&path(i), payload.clone()).await.unwrap();
    }
    report("put 64 MiB", start, cpu);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    for i in 0..count {
        for at in 0..512u64 {
            store.get_range(&path(i), at * 131_072..(at + 1) * 131_072).await.unwrap();
        }
    }
    report("get 128 KiB ranges, warm", start, cpu);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    for i in 0..count {
        for at in 0..8u64 {
            store.get_range(&path(i), at << 23..(at + 1) << 23).await.unwrap();
        }
    }
    report("get 8 MiB ranges, warm", start, cpu);
}

async fn journal(pool: &Pool) {
    let log = pool.log();
    let mut times: Vec<f64> = Vec::new();
    for id in 1..=1000 {
        let start = Instant::now();
        log.append("one", id, vec![vec![1u8; 300].into()]).await.unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    println!("journal append: p50 {:.0} us, p99 {:.0} us", times[500], times[990]);
    log.trim("one", 1000).await.unwrap();
    let start = Instant::now();
    let tasks = (0..32).map(|task| {
        let log = log.clone();
        tokio::spawn(async move {
            for id in 1..=500 {
                log.append(&format!("s{task}"), id, vec![vec![1u8; 300].into()]).await.unwrap();
            }
        })
    });
    futures::future::join_all(tasks.collect::<Vec<_>>()).await;
    println!("journal, 32 at once: {:.0} appends/s", 16_000.0 / start.elapsed().as_secs_f64());
}
