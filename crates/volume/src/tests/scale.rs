//! Large directories and many tasks.

use super::*;

/// `LARDER_ENTRIES=1000000` for the full size.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_directory() {
    let entries: usize = std::env::var("LARDER_ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let (registry, volume) = fresh().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let volume = volume.clone();
        tasks.spawn(async move {
            for i in (task..entries).step_by(32) {
                file(&volume, Ino::ROOT, &format!("file number {i:07}")).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let mut seen = std::collections::HashSet::new();
    let mut cookie = 0;
    loop {
        let page = volume.readdir(&root(), Ino::ROOT, cookie, 1000, true).await.unwrap();
        for entry in &page.entries {
            assert!(entry.cookie > cookie && entry.attr.is_some());
            cookie = entry.cookie;
            seen.insert(entry.name.clone());
        }
        if page.eof {
            break;
        }
    }
    assert_eq!(seen.len(), entries);
    // A listing goes on where it was, whatever was removed before and behind.
    let first = volume.readdir(&root(), Ino::ROOT, 0, 10, false).await.unwrap();
    volume.unlink(&root(), Ino::ROOT, &first.entries[9].name).await.unwrap();
    let next = volume.readdir(&root(), Ino::ROOT, first.entries[9].cookie, 1, false).await.unwrap();
    let old = volume.readdir(&root(), Ino::ROOT, first.entries[8].cookie, 1, false).await.unwrap();
    assert_eq!(next.entries, old.entries);
    check_clean(&registry).await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_move_under_each_other_without_loops() {
    let (registry, volume) = fresh().await;
    let mut dirs = vec![Ino::ROOT];
    for i in 0..12 {
        dirs.push(dir(&volume, dirs[i / 3], &format!("d{i}")).await);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16u64 {
        let (volume, dirs) = (volume.clone(), dirs.clone());
        tasks.spawn(async move {
            let mut seed = task.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            for _ in 0..150 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let which = 1 + seed as usize % 12;
                let name = format!("d{}", which - 1);
                let Ok(from) = volume.parent(dirs[which]).await else { continue };
                let to = dirs[(seed >> 20) as usize % 13];
                let mode = if seed & 1 == 0 { RenameMode::Replace } else { RenameMode::NoReplace };
                let _ = volume.rename(&root(), from, name.as_bytes(), to, name.as_bytes(), mode).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    check_clean(&registry).await;
}

/// Counts what reaches the store.
#[derive(Debug)]
struct Counting {
    store: object_store::memory::InMemory,
    calls: AtomicU64,
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counting")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Counting {
    async fn put_opts(
        &self,
        location: &object_store::path::Path,
        payload: object_store::PutPayload,
        options: object_store::PutOptions,
    ) -> object_store::Result<object_store::PutResult> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.put_opts(location, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        location: &object_store::path::Path,
        options: object_store::PutMultipartOptions,
    ) -> object_store::Result<Box<dyn object_store::MultipartUpload>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.put_multipart_opts(location, options).await
    }
    async fn get_opts(
        &self,
        location: &object_store::path::Path,
        options: object_store::GetOptions,
    ) -> object_store::Result<object_store::GetResult> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.get_opts(location, options).await
    }
    fn delete_stream(
        &self,
        locations: futures::stream::BoxStream<'static, object_store::Result<object_store::path::Path>>,
    ) -> futures::stream::BoxStream<'static, object_store::Result<object_store::path::Path>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.delete_stream(locations)
    }
    fn list(
        &self,
        prefix: Option<&object_store::path::Path>,
    ) -> futures::stream::BoxStream<'static, object_store::Result<object_store::ObjectMeta>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.list(prefix)
    }
    async fn list_with_delimiter(
        &self,
        prefix: Option<&object_store::path::Path>,
    ) -> object_store::Result<object_store::ListResult> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.list_with_delimiter(prefix).await
    }
    async fn copy_opts(
        &self,
        from: &object_store::path::Path,
        to: &object_store::path::Path,
        options: object_store::CopyOptions,
    ) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// Disks must be able to sleep.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_volume_leaves_the_store_alone() {
    let counting = Arc::new(Counting { store: InMemory::new(), calls: AtomicU64::new(0) });
    let place = Box_ { store: Arc::clone(&counting) as Arc<_>, ..Box_::new() };
    let (_registry, volume) = place.open().await;
    let f = file(&volume, Ino::ROOT, "f").await;
    volume.write(&root(), f, 0, bytes("x"), Stability::FileSync).await.unwrap();
    // What the volume has to do after a change and an opening ends in time (`maintain.snapshots_room_returns`).
    let mut before = u64::MAX;
    for _ in 0..15 {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let now = counting.calls.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
    panic!("{before} calls, and no end of them");
}

fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 =
        stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().unwrap()).sum();
    ticks * 10_000
}

/// Figures for docs/performance.md: run with `--ignored --nocapture`, optimised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure() {
    let (_registry, volume) = fresh().await;
    let d = dir(&volume, Ino::ROOT, "d").await;
    let per_task: usize = std::env::var("LARDER_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let timed = async |what: &str, op: fn(Volume, Ino, String) -> futures::future::BoxFuture<'static, ()>| {
        let (start, cpu) = (std::time::Instant::now(), cpu_us());
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..32 {
            let volume = volume.clone();
            tasks.spawn(async move {
                let mut slowest = std::time::Duration::ZERO;
                for i in 0..per_task {
                    let start = std::time::Instant::now();
                    op(volume.clone(), d, format!("file-{task}-{i}")).await;
                    slowest = slowest.max(start.elapsed());
                }
                slowest
            });
        }
        let mut slowest = std::time::Duration::ZERO;
        while let Some(done) = tasks.join_next().await {
            slowest = slowest.max(done.unwrap());
        }
        let ops = 32 * per_task;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = (cpu_us() - cpu) as f64 / ops as f64;
        println!("{what}: {:.0}/s, {cpu:.1} us CPU each, slowest {slowest:?}", ops as f64 / seconds);
    };
    timed("create", |v, d, n| {
        Box::pin(async move {
            file(&v, d, &n).await;
        })
    })
    .await;
    timed("lookup warm", |v, d, n| {
        Box::pin(async move { v.lookup(&root(), d, n.as_bytes(), NameMatch::Exact).await.map(|_| ()).unwrap() })
    })
    .await;
    timed("getattr warm", |v, d, _| Box::pin(async move { v.getattr(d).await.map(|_| ()).unwrap() })).await;
    timed("write 4 KiB FILE_SYNC", |v, d, n| {
        Box::pin(async move {
            let ino = v.lookup(&root(), d, n.as_bytes(), NameMatch::Exact).await.unwrap().id.ino;
            v.write(&root(), ino, 0, vec![Bytes::from(vec![7u8; 4096])], Stability::FileSync).await.unwrap();
        })
    })
    .await;
    volume.sync().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let start = std::time::Instant::now();
    let (mut cookie, mut listed) = (0, 0);
    loop {
        let page = volume.readdir(&root(), d, cookie, 500, true).await.unwrap();
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        listed += page.entries.len();
        if page.eof {
            break;
        }
    }
    println!(
        "readdir with attributes: {:.2} us an entry ({listed})",
        start.elapsed().as_secs_f64() * 1e6 / listed as f64
    );
    timed("unlink", |v, d, n| Box::pin(async move { v.unlink(&root(), d, n.as_bytes()).await.map(|_| ()).unwrap() }))
        .await;
}
