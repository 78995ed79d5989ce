//! A journal and a standby: who takes over when, what is lost, and what is said of it. Time is simulated.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use larder_base::Seat;
use larder_base::log::{LogStore, MemLog};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::owner::{BEAT, Owner, TakeOver};
use crate::standby::{HandOver, SILENCE_MAX, Watched, hand_over};
use crate::{BucketError, BucketLog, BucketUrl, JournalMark, JournaledLog, Local, Machine, look};

// ------------------------------------------------------------------------------------------ the world

/// A machine's way to the bucket. Requests have their effect somewhere on the way, also when whoever asked is gone.
struct Line {
    bucket: Arc<InMemory>,
    random: Mutex<StdRng>,
    is_dead: AtomicBool,
    is_cut: AtomicBool,
}

impl Line {
    fn new(bucket: &Arc<InMemory>, seed: u64) -> Arc<Self> {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        Arc::new(Self { bucket: bucket.clone(), random, is_dead: false.into(), is_cut: false.into() })
    }

    fn pause(&self) -> Duration {
        let mut random = self.random.lock();
        let most_ms = if random.random_ratio(1, 10) { 4000 } else { 300 };
        Duration::from_millis(random.random_range(1..most_ms))
    }

    async fn send<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (there, back) = (self.pause(), self.pause());
        let line = self.clone();
        let gone = || Error::Generic { store: "S3", source: "no answer".into() };
        let effect = tokio::spawn(async move {
            if line.is_dead.load(Ordering::Relaxed) || line.is_cut.load(Ordering::Relaxed) {
                return Err(Error::Generic { store: "S3", source: "not sent".into() });
            }
            tokio::time::sleep(there).await;
            work.await
        });
        let done = effect.await.map_err(|_| gone())?;
        tokio::time::sleep(back).await;
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_cut.load(Ordering::Relaxed) { Err(gone()) } else { done }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

#[derive(Debug)]
struct Client(Arc<Line>);

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait]
impl ObjectStore for Client {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (bucket, at) = (self.0.bucket.clone(), at.clone());
        self.0.send(async move { bucket.put_opts(&at, payload, options).await }).await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.bucket.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let (bucket, at) = (self.0.bucket.clone(), at.clone());
        self.0.send(async move { bucket.get_opts(&at, options).await }).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.bucket.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.bucket.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.bucket.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.bucket.copy_opts(from, to, options).await
    }
}

fn url() -> BucketUrl {
    BucketUrl { bucket: "test".to_owned(), prefix: String::new() }
}

fn machine(name: &str) -> Machine {
    Machine { name: name.to_owned(), id: format!("{name}-1") }
}

/// A pool: what outlives a process.
#[derive(Clone, Default)]
struct Disks {
    journal: MemLog,
    objects: Arc<InMemory>,
}

/// What clients of the first machine know.
#[derive(Default)]
struct Told {
    answered: Mutex<Vec<u64>>,
    early: AtomicUsize,
    next: AtomicUsize,
}

pub(crate) fn teller(log: &JournaledLog) -> crate::JournalTeller {
    let (log, drained_ms) = (log.clone(), log.drained_ms());
    Box::new(move || JournalMark {
        pool: "tank".to_owned(),
        pool_id: "tank-1".to_owned(),
        drained_ms: drained_ms(),
        entries: log.undrained().entries,
        bytes: log.undrained().bytes,
        ..JournalMark::default()
    })
}

/// A process that has the store, as the daemon opens it.
async fn opened(
    line: &Arc<Line>,
    disks: &Disks,
    beats: bool,
) -> std::result::Result<(Owner, JournaledLog), BucketError> {
    let store: Arc<dyn ObjectStore> = Arc::new(Client(line.clone()));
    let owner = Owner::take(store.clone(), &url(), machine("a"), TakeOver::No).await?;
    if beats {
        let beats = owner.clone();
        tokio::spawn(async move { beats.beat().await });
    }
    owner.await_silence().await;
    let local = Local::new("s3://test", Arc::new(disks.journal.clone()), disks.objects.clone());
    let failed = |error: larder_base::log::LogError| BucketError::Invalid(error.to_string());
    let log = JournaledLog::recover(BucketLog::new(store, Some(owner.clone())), local).await.map_err(failed)?;
    owner.settle_journal(Some(teller(&log))).await?;
    Ok((owner, log))
}

/// The numbers that are in the log, by which a fence is written, too.
async fn read(log: &dyn LogStore) -> std::result::Result<(Vec<u64>, u64), larder_base::log::LogError> {
    let entries = log.replay("v", 0).await?;
    let fence = entries.last().map_or(1, |entry| entry.id + 1);
    log.append("v", fence, vec![Bytes::from_static(b"fence")]).await?;
    let number = |payload: &Bytes| std::str::from_utf8(payload).ok()?.parse().ok();
    Ok((entries.iter().filter_map(|entry| number(&entry.payload)).collect(), fence + 1))
}

/// Serves until something fails. Returns what it found at its opening.
async fn serve(line: Arc<Line>, disks: Disks, told: Arc<Told>, found: Arc<Mutex<Option<Vec<u64>>>>) {
    let (_owner, log) = loop {
        match opened(&line, &disks, true).await {
            Ok(open) => break open,
            Err(BucketError::Store { .. } | BucketError::Invalid(_)) => tokio::time::sleep(BEAT).await,
            Err(_) => return,
        }
    };
    let Ok((read, mut next)) = read(&log).await else { return };
    *found.lock() = Some(read);
    loop {
        let (count, pause_ms) = {
            let mut random = line.random.lock();
            let most_ms = if random.random_ratio(1, 3) { 12_000 } else { 800 };
            (random.random_range(1..12), random.random_range(1..most_ms))
        };
        for _ in 0..count {
            let number = told.next.fetch_add(1, Ordering::Relaxed) as u64;
            let Ok(receipt) = log.begin("v", next, vec![number.to_string().into()]).await else { return };
            next += 1;
            let (told, line, log) = (told.clone(), line.clone(), log.clone());
            tokio::spawn(async move {
                if receipt.await.is_ok() && !line.is_dead.load(Ordering::Relaxed) {
                    told.early.fetch_add(usize::from(log.undrained().entries > 0), Ordering::Relaxed);
                    told.answered.lock().push(number);
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}

fn missing(answered: &Mutex<Vec<u64>>, read: &[u64]) -> Vec<u64> {
    answered.lock().iter().copied().filter(|number| !read.contains(number)).collect()
}

// ---------------------------------------------------------------------------------------------- tests

#[derive(Debug, Default)]
struct Outcomes {
    taken: usize,
    waited: usize,
    early: usize,
}

/// One owner that works, rests, is killed or cut off, and its standby.
async fn schedule(seed: u64, outcomes: &mut Outcomes) {
    let mut random = StdRng::seed_from_u64(seed);
    let (bucket, disks, told) = (Arc::new(InMemory::new()), Disks::default(), Arc::new(Told::default()));
    let (a, b) = (Line::new(&bucket, seed), Line::new(&bucket, !seed));
    let found = Arc::default();
    let serving = tokio::spawn(serve(a.clone(), disks.clone(), told.clone(), found));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let watched = Arc::new(Mutex::new(Vec::<Watched>::new()));
    let (hears, store) = (watched.clone(), Arc::new(Client(b.clone())));
    let standby = tokio::spawn(async move {
        Owner::stand_by(store, &url(), machine("b"), |now| hears.lock().push(now.clone())).await
    });
    tokio::time::sleep(Duration::from_millis(random.random_range(1..40_000))).await;
    assert!(!standby.is_finished(), "seed {seed}: the owner lives");
    let is_killed = random.random();
    if is_killed {
        a.is_dead.store(true, Ordering::Relaxed);
        serving.abort();
    } else {
        a.is_cut.store(true, Ordering::Relaxed);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    outcomes.early += told.early.load(Ordering::Relaxed);
    if standby.is_finished() {
        outcomes.taken += 1;
        let owner = standby.await.unwrap().unwrap();
        let (now, _) = read(&BucketLog::new(Arc::new(Client(b)), Some(owner))).await.unwrap();
        // What was cut off comes back, and answers nobody.
        a.is_cut.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(missing(&told.answered, &now), Vec::<u64>::new(), "seed {seed}: taken over, and not there");
        return;
    }
    outcomes.waited += 1;
    let last = watched.lock().last().cloned().unwrap();
    // It ended before its first renewal, or the bucket may lack something.
    let waits = !last.beats || last.silence.as_ref().is_some_and(|silence| silence.journal.may_miss());
    assert!(waits, "seed {seed}: {last:?}");
    a.is_cut.store(false, Ordering::Relaxed);
    let found = Arc::new(Mutex::new(None));
    serving.abort();
    let again = tokio::spawn(serve(Line::new(&bucket, seed + 1), disks, told.clone(), found.clone()));
    a.is_dead.store(true, Ordering::Relaxed);
    let before = told.answered.lock().clone();
    // What is left goes into the bucket first.
    while found.lock().is_none() {
        assert!(!again.is_finished(), "seed {seed}: the owner does not come back");
        tokio::time::sleep(BEAT).await;
    }
    assert_eq!(
        missing(&Mutex::new(before), &found.lock().clone().unwrap()),
        Vec::<u64>::new(),
        "seed {seed}: its own journal has it"
    );
    assert!(!standby.is_finished(), "seed {seed}: the owner is back");
    again.abort();
    standby.abort();
}

/// `owner.said_before_early`, `owner.journal_is_not_dropped`: a standby that takes over by itself has all that was answered; and where
/// it does not, the owner's journal has.
#[test]
fn a_standby_never_drops_what_the_journal_answered_for() {
    let mut outcomes = Outcomes::default();
    for seed in 0..300 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(schedule(seed, &mut outcomes));
    }
    println!("{outcomes:?}");
    assert!(outcomes.taken > 30 && outcomes.waited > 30 && outcomes.early > 300, "{outcomes:?}");
}

/// What answers come from the journal of an owner, and what its record says.
#[tokio::test(start_paused = true)]
async fn the_record_says_so_before_the_first_early_answer() {
    let (bucket, disks) = (Arc::new(InMemory::new()), Disks::default());
    let (owner, log) = opened(&Line::new(&bucket, 1), &disks, true).await.unwrap();
    let (_, mut next) = read(&log).await.unwrap();
    let mark = async || look(&*bucket).await.unwrap().unwrap().journal.unwrap();
    tokio::time::sleep(BEAT * 3).await;
    assert!(mark().await.at_rest, "nothing was ever answered");
    for round in 0..5 {
        let text = vec![Bytes::from_static(b"1")];
        log.append("v", next, text).await.unwrap();
        next += 1;
        let is_in_bucket = log.undrained().entries == 0;
        assert!(is_in_bucket || !mark().await.at_rest, "round {round}: answered while the record says that nothing is");
        tokio::time::sleep(BEAT * 5).await;
        assert!(mark().await.at_rest, "round {round}: everything is in the bucket, and nobody works");
    }
    owner.release().await.unwrap();
    assert!(look(&*bucket).await.unwrap().unwrap().journal.is_none());
}

/// An owner without a standby says once that it answers from its journal, and is never at rest: it renews nothing while it is idle.
#[tokio::test(start_paused = true)]
async fn an_owner_without_a_standby_is_never_at_rest() {
    let (bucket, disks) = (Arc::new(InMemory::new()), Disks::default());
    let (_owner, log) = opened(&Line::new(&bucket, 1), &disks, false).await.unwrap();
    read(&log).await.unwrap();
    tokio::time::sleep(BEAT * 5).await;
    let record = look(&*bucket).await.unwrap().unwrap();
    assert!(record.beat.is_none() && record.journal.unwrap().may_miss());
}

/// A person gives the journal up: the next owner knows what may be missing, and says so until it has settled that.
#[tokio::test(start_paused = true)]
async fn a_journal_that_is_given_up_is_named_to_the_next_owner() {
    let (bucket, disks) = (Arc::new(InMemory::new()), Disks::default());
    let line = Line::new(&bucket, 1);
    let (_owner, log) = opened(&line, &disks, true).await.unwrap();
    let (_, next) = read(&log).await.unwrap();
    log.append("v", next, vec![Bytes::from_static(b"1")]).await.unwrap();
    line.is_dead.store(true, Ordering::Relaxed);
    let store: Arc<dyn ObjectStore> = Arc::new(Client(Line::new(&bucket, 2)));
    let standby = tokio::spawn({
        let store = store.clone();
        async move { Owner::stand_by(store, &url(), machine("b"), |_| {}).await }
    });
    tokio::time::sleep(SILENCE_MAX * 3).await;
    assert!(!standby.is_finished(), "only the journal has it");
    assert!(matches!(hand_over(&*store, &Seat::default(), "c").await.unwrap(), HandOver::Silent(_)), "nobody hears");
    let c = Owner::take(store.clone(), &url(), machine("c"), TakeOver::Forced).await.unwrap();
    assert_eq!(c.inherited().unwrap().pool, "tank");
    c.await_silence().await;
    c.release().await.unwrap();
    let b = standby.await.unwrap().unwrap();
    let mark = b.inherited().unwrap();
    assert!(mark.given_up && mark.may_miss() && mark.machine == "a", "{mark:?}");
    // It dies before it has settled anything: the next standby is not held up, and knows as well.
    let dies = tokio::spawn(async move { b.beat().await });
    tokio::time::sleep(BEAT).await;
    dies.abort();
    let d = Owner::stand_by(store.clone(), &url(), machine("d"), |_| {}).await.unwrap();
    assert!(d.inherited().is_some());
    d.settle_journal(None).await.unwrap();
    d.release().await.unwrap();
    let e = Owner::take(store, &url(), machine("e"), TakeOver::No).await.unwrap();
    assert!(e.inherited().is_none());
}

/// `owner.asked_in_the_record`
#[tokio::test(start_paused = true)]
async fn an_owner_hears_who_asks_for_the_store() {
    let bucket = Arc::new(InMemory::new());
    let store: Arc<dyn ObjectStore> = Arc::new(Client(Line::new(&bucket, 1)));
    assert_eq!(hand_over(&*store, &Seat::default(), "me").await.unwrap(), HandOver::Free);
    let a = Owner::take(store.clone(), &url(), machine("a"), TakeOver::No).await.unwrap();
    assert!(matches!(hand_over(&*store, &Seat::default(), "me").await.unwrap(), HandOver::Unheard(_)));
    let beating = a.beating();
    tokio::time::sleep(BEAT).await;
    let standby = tokio::spawn({
        let store = store.clone();
        async move { Owner::stand_by(store, &url(), machine("b"), |_| {}).await }
    });
    let asks = tokio::spawn({
        let store = store.clone();
        async move { hand_over(&*store, &Seat::default(), "me").await }
    });
    assert_eq!(a.asked().await, "me");
    drop(beating);
    a.release().await.unwrap();
    let HandOver::Done(_) = asks.await.unwrap().unwrap() else { panic!("it was given back") };
    let b = standby.await.unwrap().unwrap();
    assert_eq!(a.await_successor(SILENCE_MAX).await.unwrap(), "b");
    b.verify().await.unwrap();
}
