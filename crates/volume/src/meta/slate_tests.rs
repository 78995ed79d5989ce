#![allow(clippy::unwrap_used)]
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use futures::stream::BoxStream;
use larder_base::log::{LogEntry, Receipt};
use larder_base::{LogError, MemLog, SystemClock, Timestamp};
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions, PutOptions,
    PutPayload, PutResult,
};

use super::*;

struct Place {
    store: Arc<dyn ObjectStore>,
    log: Option<Arc<dyn LogStore>>,
    clock: Arc<dyn Clock>,
}

impl Place {
    fn new() -> Self {
        let log: Arc<dyn LogStore> = Arc::new(MemLog::default());
        Self { store: Arc::new(InMemory::new()), log: Some(log), clock: Arc::new(SystemClock::default()) }
    }

    async fn open(&self) -> FsResult<Arc<SlateMeta>> {
        self.open_in(&Engine::new(8 << 20, 1 << 20)).await
    }

    async fn open_in(&self, engine: &Engine) -> FsResult<Arc<SlateMeta>> {
        SlateMeta::open(SlateParts {
            engine,
            store: Arc::clone(&self.store),
            path: Path::from("meta"),
            log: self.log.clone().map(|log| (log, "s".to_owned())),
            clock: Arc::clone(&self.clock),
            cache_id: 1,
            pinned: Vec::new(),
        })
        .await
    }
}

fn key(i: u64) -> Bytes {
    Bytes::copy_from_slice(&[&b"k"[..], &i.to_be_bytes()].concat())
}

fn put(i: u64, value: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.put(key(i), value.to_vec());
    batch.usage.inodes = 1;
    batch
}

async fn keys_of(meta: &dyn Meta, limit: usize) -> Vec<Bytes> {
    let pairs = meta.scan(&key(0), &key(1000), limit).await.unwrap();
    pairs.into_iter().map(|(key, _)| key).collect()
}

/// The contract of every engine. Returns the keys that are left in it.
async fn conforms(meta: &dyn Meta) -> Vec<Bytes> {
    for i in 0..500 {
        meta.submit(put(i, b"v")).unwrap();
        assert_eq!(meta.get(&key(i)).await.unwrap().unwrap(), "v");
    }
    let mut batch = Batch::default();
    (0..500).filter(|i| i % 3 == 0).for_each(|i| batch.delete(key(i)));
    let last = meta.submit(batch).unwrap();
    assert_eq!(meta.newest(), last);
    let expected: Vec<Bytes> = (0..500).filter(|i| i % 3 != 0).map(key).collect();
    // Once while much is on its way, once when all is stored: a scan merges both, deletions
    // included.
    for _ in 0..2 {
        assert_eq!(keys_of(meta, 1000).await, expected);
        assert_eq!(keys_of(meta, 10).await, expected[..10]);
        assert_eq!(meta.get(&key(3)).await.unwrap(), None);
        assert_eq!(meta.last(&key(0), &key(499)).await.unwrap().unwrap().0, key(497));
        assert_eq!(meta.last(&key(499), &key(499)).await.unwrap(), None);
        assert!(meta.scan(&key(9), &key(3), 9).await.unwrap().is_empty());
        meta.durable(last).await.unwrap();
    }
    // Nothing to change, and nothing else on its way: no engine stumbles over it.
    let nothing = meta.submit(Batch::default()).unwrap();
    meta.durable(nothing).await.unwrap();
    let mut batch = Batch::default();
    batch.put(key(1), "v");
    let after = meta.submit(batch).unwrap();
    meta.durable(after).await.unwrap();
    assert_eq!(meta.usage().inodes, 500);
    expected
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_seen_at_once_and_survive() {
    for with_log in [true, false] {
        let mut place = Place::new();
        place.log = place.log.filter(|_| with_log);
        let meta = place.open().await.unwrap();
        let expected = conforms(&*meta).await;
        drop(meta);
        let meta = place.open().await.unwrap();
        assert_eq!((keys_of(&*meta, 1000).await, meta.usage().inodes), (expected, 500));
        meta.close().await.unwrap();
        assert!(meta.submit(put(1, b"late")).is_err());
    }
}

#[tokio::test]
async fn the_map_conforms() {
    let meta = crate::meta::mem::MemMeta::default();
    conforms(&meta).await;
    meta.close().await.unwrap();
    assert!(meta.submit(put(1, b"late")).is_err());
}

/// Far more than a memtable holds: tables are written, compacted, collected; the log is trimmed.
#[tokio::test(flavor = "multi_thread")]
async fn the_tree_takes_over_from_the_log() {
    let place = Place::new();
    let meta = place.open().await.unwrap();
    let value = vec![7u8; 400];
    let mut slowest = Duration::ZERO;
    for round in 0..120 {
        let start = std::time::Instant::now();
        let mut last = Ticket(0);
        for i in 0..400u64 {
            meta.admit().await.unwrap();
            last = meta.submit(put(i * 131 % 20_000 + round % 5 * 20_000, &value)).unwrap();
        }
        meta.durable(last).await.unwrap();
        slowest = slowest.max(start.elapsed());
    }
    let log = place.log.clone().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let manifest = meta.db.manifest();
        if manifest.l0().len() < 4 && !manifest.compacted().is_empty() && log.usage().0 < 12 << 20 {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{} L0 tables, {:?} in the log",
            manifest.l0().len(),
            log.usage()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    let count = async |meta: &SlateMeta| meta.scan(b"k", b"l", usize::MAX).await.unwrap().len();
    let expected = count(&meta).await;
    drop(meta);
    let meta = place.open().await.unwrap();
    assert_eq!(count(&meta).await, expected);
    meta.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_writer_is_fenced() {
    let place = Place::new();
    let old = place.open().await.unwrap();
    let ticket = old.submit(put(1, b"old")).unwrap();
    old.durable(ticket).await.unwrap();
    let new = place.open().await.unwrap();
    let late = old.submit(put(2, b"late"));
    let refused = match late {
        Ok(ticket) => old.durable(ticket).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(new.get(&key(1)).await.unwrap().unwrap(), "old");
    assert_eq!(new.get(&key(2)).await.unwrap(), None);
}

/// A log that fails when told to, and is as small as told.
struct Flaky {
    log: MemLog,
    appends_left: AtomicU64,
    total_bytes: u64,
}

#[async_trait]
impl LogStore for Flaky {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let left = self.appends_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| LogError::Full("no more".into()))?;
        self.log.begin(stream, id, payload).await
    }
    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.log.replay(stream, after).await
    }
    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.log.trim(stream, through).await
    }
    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.log.remove(stream).await
    }
    fn held_bytes(&self, stream: &str) -> u64 {
        self.log.held_bytes(stream)
    }
    fn usage(&self) -> (u64, u64) {
        (self.log.usage().0, self.total_bytes)
    }
}

/// A fence in an idle volume would hold the segments that other volumes fill after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_without_changes_gives_its_fence_up() {
    let mut place = Place::new();
    let no_rows = wal::payload_of("s", 1, &[]).len() as u64;
    let crowded = Flaky { log: MemLog::default(), appends_left: AtomicU64::new(9), total_bytes: no_rows * 5 / 3 };
    let crowded = Arc::new(crowded);
    place.log = Some(Arc::clone(&crowded) as Arc<_>);
    let engine = Engine::new(8 << 20, 1 << 20);
    let meta = place.open_in(&engine).await.unwrap();
    let oldest = async || crowded.replay("s", 0).await.unwrap().first().map(|entry| entry.id);
    assert_eq!(oldest().await, Some(1));
    tokio::time::timeout(Duration::from_secs(20), async {
        while oldest().await == Some(1) {
            let _ = tokio::time::timeout(Duration::from_millis(100), wal::hold(&*crowded, &engine.pressure)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    drop(meta);
    let meta = place.open().await.unwrap();
    assert!(keys_of(&*meta, 10).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_log_poisons() {
    let mut place = Place::new();
    let log = MemLog::default();
    let flaky = Arc::new(Flaky { log, appends_left: AtomicU64::new(3), total_bytes: 1 << 30 });
    place.log = Some(Arc::clone(&flaky) as Arc<_>);
    let meta = place.open().await.unwrap();
    let mut acknowledged = 0;
    let error = loop {
        let Ok(ticket) = meta.submit(put(acknowledged, b"v")) else { break "refused".to_owned() };
        match meta.durable(ticket).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("stopped accepting writes"), "{error}");
    // Nothing is accepted any more.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(meta.submit(put(9, b"x")).is_err() && meta.admit().await.is_err());
    drop(meta);
    flaky.appends_left.store(100, Ordering::Relaxed);
    let meta = place.open().await.unwrap();
    for i in 0..acknowledged {
        assert_eq!(meta.get(&key(i)).await.unwrap().unwrap(), "v");
    }
}

/// A log that takes entries at once and makes them durable one by one, as it is let.
struct Slow {
    log: MemLog,
    begun: AtomicU64,
    let_through: Arc<tokio::sync::Semaphore>,
}

#[async_trait]
impl LogStore for Slow {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let receipt = self.log.begin(stream, id, payload).await?;
        self.begun.fetch_add(1, Ordering::Relaxed);
        let let_through = Arc::clone(&self.let_through);
        Ok(Box::pin(async move {
            let let_through = let_through.acquire_owned().await;
            let_through.map_err(|_| LogError::Full("no more".into()))?.forget();
            receipt.await
        }))
    }
    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.log.replay(stream, after).await
    }
    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.log.trim(stream, through).await
    }
    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.log.remove(stream).await
    }
    fn held_bytes(&self, stream: &str) -> u64 {
        self.log.held_bytes(stream)
    }
    fn usage(&self) -> (u64, u64) {
        (self.log.usage().0, 1 << 30)
    }
}

/// `wal.unasked_within`
#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_shares_an_entry_and_is_durable_soon_all_the_same() {
    let mut place = Place::new();
    let let_through = Arc::new(tokio::sync::Semaphore::new(1000));
    let counted = Arc::new(Slow { log: MemLog::default(), begun: AtomicU64::new(0), let_through });
    place.log = Some(Arc::clone(&counted) as Arc<_>);
    let meta = place.open().await.unwrap();
    let before = counted.begun.load(Ordering::Relaxed);
    let begun = || counted.begun.load(Ordering::Relaxed) - before;
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    for i in 0..10 {
        meta.submit(put(i, b"v")).unwrap();
        pause().await;
    }
    assert_eq!(begun(), 0);
    let last = meta.newest();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(begun(), 1, "unasked");
    tokio::time::timeout(Duration::from_millis(1), meta.durable(last)).await.unwrap().unwrap();
    for i in 10..20 {
        meta.submit(put(i, b"v")).unwrap();
        pause().await;
    }
    let asked = tokio::time::Instant::now();
    meta.durable(meta.newest()).await.unwrap();
    assert!(asked.elapsed() < Duration::from_millis(50), "a caller does not wait for the time to pass");
    assert_eq!(begun(), 2);
    // Large ones do not pile up.
    for i in 20..24 {
        meta.submit(put(i, &[7; 600 << 10])).unwrap();
        pause().await;
    }
    assert!(begun() >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_begun_while_others_are_on_their_way_and_answered_in_order() {
    let mut place = Place::new();
    let let_through = Arc::new(tokio::sync::Semaphore::new(1));
    let slow = Arc::new(Slow { log: MemLog::default(), begun: AtomicU64::new(0), let_through: let_through.clone() });
    place.log = Some(Arc::clone(&slow) as Arc<_>);
    let meta = place.open().await.unwrap();
    let fences = slow.begun.load(Ordering::Relaxed);
    let mut waits = Vec::new();
    // More than may be on their way at once; each is an entry of its own until then.
    for i in 0..40 {
        let ticket = meta.submit(put(i, b"v")).unwrap();
        let of_task = Arc::clone(&meta);
        waits.push(tokio::spawn(async move { of_task.durable(ticket).await }));
        let wanted = fences + (i + 1).min(wal::FLYING_MAX as u64);
        while slow.begun.load(Ordering::Relaxed) < wanted {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(slow.begun.load(Ordering::Relaxed), fences + wal::FLYING_MAX as u64);
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    let_through.add_permits(1);
    (&mut waits[0]).await.unwrap().unwrap();
    assert!(waits[1..].iter().all(|wait| !wait.is_finished()));
    let_through.add_permits(2);
    (&mut waits[2]).await.unwrap().unwrap();
    assert!((&mut waits[1]).await.unwrap().is_ok() && !waits[3].is_finished());
    // The log fails: nothing that was on its way is acknowledged.
    let_through.close();
    for wait in waits.split_off(3) {
        assert!(wait.await.unwrap().is_err());
    }
    let late = match meta.submit(put(99, b"x")) {
        Ok(ticket) => meta.durable(ticket).await,
        Err(error) => Err(error),
    };
    assert!(late.is_err());
}

/// A store that does not finish writing manifests while they are held.
#[derive(Debug)]
struct Held {
    store: InMemory,
    held: tokio::sync::watch::Sender<bool>,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

#[async_trait]
impl ObjectStore for Held {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        if at.as_ref().contains("/manifest/") {
            let _ = self.held.subscribe().wait_for(|held| !held).await;
        }
        self.store.put_opts(at, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.store.get_opts(at, options).await
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.store.delete_stream(locations)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.store.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// The crash comes when a table is in the store and the manifest that names it is not.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_kept_until_the_manifest_is_stored() {
    let mut place = Place::new();
    let held = Arc::new(Held { store: InMemory::new(), held: tokio::sync::watch::Sender::new(false) });
    place.store = Arc::clone(&held) as Arc<_>;
    let meta = place.open().await.unwrap();
    held.held.send_replace(true);
    let mut durable = Vec::new();
    // Flushes of the memtable are asked for and hang; the log goes on.
    let flush = slatedb::config::FlushOptions { flush_type: slatedb::config::FlushType::MemTable };
    for i in 0..40 {
        let ticket = meta.submit(put(i, b"v")).unwrap();
        meta.durable(ticket).await.unwrap();
        durable.push(key(i));
        if i == 20 {
            let db = meta.db.clone();
            let flush = flush.clone();
            tokio::spawn(async move { db.flush_with_options(flush).await });
            let told = |s: &DbStatus| s.current_manifest.replay_after_wal_id() >= 20;
            let mut status = meta.db.subscribe();
            tokio::time::timeout(Duration::from_secs(10), status.wait_for(told)).await.unwrap().unwrap();
        }
    }
    drop(meta);
    held.held.send_replace(false);
    // Exactly the state before the crash: the dropped engine adds nothing.
    let meta = place.open().await.unwrap();
    assert_eq!(keys_of(&*meta, 1000).await, durable);
    meta.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_log_is_refused() {
    let place = Place::new();
    let meta = place.open().await.unwrap();
    for i in 0..5 {
        let ticket = meta.submit(put(i, b"v")).unwrap();
        meta.durable(ticket).await.unwrap();
    }
    drop(meta);
    place.log.as_ref().unwrap().trim("s", 3).await.unwrap();
    let error = place.open().await.err().unwrap().to_string();
    assert!(error.contains("are lost"), "{error}");
}

/// Wall time and the time gone by since the start, in seconds, as a test sets them.
struct Hands(AtomicI64, AtomicU64);

impl Hands {
    fn at(secs: i64) -> Self {
        Self(AtomicI64::new(secs), AtomicU64::new(0))
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::new(self.0.load(Ordering::Relaxed), 0)
    }
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.1.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_stepped_back_does_no_harm() {
    let mut place = Place::new();
    let hands = Arc::new(Hands::at(2_000_000_000));
    place.clock = Arc::clone(&hands) as Arc<_>;
    for (round, secs) in [2_000_000_000, 0, 1_000_000_000].into_iter().enumerate() {
        hands.0.store(secs, Ordering::Relaxed);
        let meta = place.open().await.unwrap();
        hands.0.store(secs - 1000, Ordering::Relaxed);
        let ticket = meta.submit(put(round as u64, b"v")).unwrap();
        tokio::time::timeout(Duration::from_secs(2), meta.durable(ticket)).await.unwrap().unwrap();
        if round == 1 {
            meta.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_stepped_back_after_an_opening_without_changes_does_no_harm() {
    let mut place = Place::new();
    let hands = Arc::new(Hands::at(2_000_000_000));
    place.clock = Arc::clone(&hands) as Arc<_>;
    let meta = place.open().await.unwrap();
    let ticket = meta.submit(put(1, b"v")).unwrap();
    meta.durable(ticket).await.unwrap();
    drop(meta);
    drop(place.open().await.unwrap());
    hands.0.store(0, Ordering::Relaxed);
    let meta = place.open().await.unwrap();
    let ticket = meta.submit(put(2, b"v")).unwrap();
    tokio::time::timeout(Duration::from_secs(2), meta.durable(ticket)).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_stepped_back_after_a_table_was_written_does_no_harm() {
    let mut place = Place::new();
    let hands = Arc::new(Hands::at(2_000_000_000));
    place.clock = Arc::clone(&hands) as Arc<_>;
    for round in 0..3 {
        let meta = place.open().await.unwrap();
        let ticket = meta.submit(put(round, b"v")).unwrap();
        meta.durable(ticket).await.unwrap();
        // The table is written, and named after the clock, long after the newest row in it.
        hands.1.store(3600, Ordering::Relaxed);
        tokio::time::timeout(Duration::from_secs(20), meta.close()).await.unwrap().unwrap();
        hands.0.store(0, Ordering::Relaxed);
        hands.1.store(0, Ordering::Relaxed);
    }
}

/// A log that knows how far it went.
#[derive(Default)]
struct Reaching {
    log: MemLog,
    last: AtomicU64,
    has_lost: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl LogStore for Reaching {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        self.last.fetch_max(id, Ordering::Relaxed);
        self.log.begin(stream, id, payload).await
    }
    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.log.replay(stream, after).await
    }
    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.log.trim(stream, through).await
    }
    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.log.remove(stream).await
    }
    fn is_proven(&self) -> bool {
        !self.has_lost.load(Ordering::Relaxed)
    }
    fn last(&self, _: &str) -> Option<u64> {
        Some(self.last.load(Ordering::Relaxed))
    }
    fn held_bytes(&self, stream: &str) -> u64 {
        self.log.held_bytes(stream)
    }
    fn usage(&self) -> (u64, u64) {
        self.log.usage()
    }
}

/// A log that is an older copy of itself is refused (`wal.no_older_copy`).
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_ends_before_the_tables_is_refused_until_the_loss_is_accepted() {
    let mut place = Place::new();
    place.log = Some(Arc::new(Reaching::default()));
    for i in 0..3 {
        let meta = place.open().await.unwrap();
        meta.durable(meta.submit(put(i, b"v")).unwrap()).await.unwrap();
        // All is in the tables, and the log is trimmed.
        meta.close().await.unwrap();
    }
    place.open().await.unwrap().close().await.unwrap();
    let older = Arc::new(Reaching::default());
    place.log = Some(Arc::clone(&older) as Arc<_>);
    let error = place.open().await.map(drop).expect_err("the log is gone").to_string();
    assert!(error.contains("an older copy of itself"), "{error}");
    assert_eq!(older.last.load(Ordering::Relaxed), 0, "nothing is written to it");
    older.has_lost.store(true, Ordering::Relaxed);
    let meta = place.open().await.unwrap();
    assert_eq!(keys_of(&*meta, 10).await.len(), 3);
    meta.close().await.unwrap();
    older.has_lost.store(false, Ordering::Relaxed);
    place.open().await.unwrap();
}

/// A store whose writes and reads of tables are counted. Some reads are wrong, and it may have no room for tables.
#[derive(Debug, Default)]
struct Far {
    store: InMemory,
    gets: AtomicU64,
    puts: AtomicU64,
    wrong: AtomicU64,
    is_full: AtomicBool,
}

impl std::fmt::Display for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Far")
    }
}

#[async_trait]
impl ObjectStore for Far {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        if at.as_ref().ends_with(".sst") && self.is_full.load(Ordering::Relaxed) {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            return Err(object_store::Error::Generic { store: "far", source: Box::new(source) });
        }
        self.store.put_opts(at, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let got = self.store.get_opts(at, options).await?;
        if !at.as_ref().ends_with(".sst") {
            return Ok(got);
        }
        self.gets.fetch_add(1, Ordering::Relaxed);
        if self.wrong.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            return Ok(got);
        }
        let (meta, range) = (got.meta.clone(), got.range.clone());
        let wrong: Bytes = got.bytes().await?.iter().map(|byte| byte ^ 1).collect();
        let payload = object_store::GetResultPayload::Stream(Box::pin(futures::stream::once(async { Ok(wrong) })));
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.store.delete_stream(locations)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.store.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

const KEYS_OF_A_TABLE: u64 = 200;

/// Young tables, and an engine that knows nothing of them yet.
async fn young_tables(count: u64) -> (Arc<Far>, Place) {
    let mut place = Place::new();
    let far = Arc::new(Far::default());
    place.store = Arc::clone(&far) as Arc<_>;
    for table in 0..count {
        let meta = place.open().await.unwrap();
        for i in 0..KEYS_OF_A_TABLE {
            meta.submit(put(i * 3 + table, &[table as u8; 100])).unwrap();
        }
        meta.close().await.unwrap();
    }
    far.gets.store(0, Ordering::Relaxed);
    (far, place)
}

async fn reads_all(meta: &SlateMeta) {
    for i in 0..KEYS_OF_A_TABLE * 3 {
        assert_eq!(meta.get(&key(i)).await.unwrap().unwrap(), [(i % 3) as u8; 100][..], "key {i}");
    }
    assert_eq!(keys_of(meta, 1000).await.len(), 3 * KEYS_OF_A_TABLE as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_a_far_store_are_brought_near_by_one_request_each() {
    let (far, place) = young_tables(3).await;
    let meta = place.open_in(&Engine::new(8 << 20, 1 << 20).for_far(true)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), async {
        while !meta._warmed.as_ref().unwrap().is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let tables = meta.engine().unwrap().young_tables;
    assert_eq!((tables, far.gets.load(Ordering::Relaxed)), (3, 3), "tables, and requests for them");
    reads_all(&meta).await;
    assert_eq!(far.gets.load(Ordering::Relaxed), 3, "nothing is asked of the store again");
    // An engine beside disks reads what it needs.
    meta.close().await.unwrap();
    far.gets.store(0, Ordering::Relaxed);
    let meta = place.open().await.unwrap();
    assert!(meta._warmed.is_none());
    reads_all(&meta).await;
    assert!(far.gets.load(Ordering::Relaxed) > 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_came_wrong_is_read_again() {
    let (far, place) = young_tables(3).await;
    far.wrong.store(1, Ordering::Relaxed);
    let meta = place.open_in(&Engine::new(8 << 20, 1 << 20).for_far(true)).await.unwrap();
    reads_all(&meta).await;
    assert_eq!(far.wrong.load(Ordering::Relaxed), 0);
    assert!(far.gets.load(Ordering::Relaxed) > 3);
}

/// Writes of 60 s to a store that has no room for the table that four become.
async fn writes_of_a_minute(far: &Far) -> u64 {
    far.puts.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    far.puts.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_merge_that_fails_is_tried_again_now_and_then_until_it_is_done() {
    let (far, place) = young_tables(4).await;
    far.is_full.store(true, Ordering::Relaxed);
    let meta = place.open().await.unwrap();
    let writes = writes_of_a_minute(&far).await;
    assert!((1..200).contains(&writes), "{writes} writes");
    assert_eq!(meta.engine().unwrap().young_tables, 4);
    far.is_full.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(meta.engine().unwrap().young_tables, 0);
    assert_eq!(writes_of_a_minute(&far).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stopped_writes_nothing_more() {
    let (far, mut place) = young_tables(4).await;
    far.is_full.store(true, Ordering::Relaxed);
    let log = MemLog::default();
    let flaky = Arc::new(Flaky { log, appends_left: AtomicU64::new(9), total_bytes: 1 << 30 });
    place.log = Some(Arc::clone(&flaky) as Arc<_>);
    let meta = place.open().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    flaky.appends_left.store(0, Ordering::Relaxed);
    let ticket = meta.submit(put(9000, b"x")).unwrap();
    assert!(meta.durable(ticket).await.is_err());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(writes_of_a_minute(&far).await, 0);
}
