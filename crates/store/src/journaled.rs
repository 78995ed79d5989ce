//! The log of volumes in a bucket, with the journal of a local pool before it: `durability = "journal"`.
//!
//! ```text
//!   begin --> journal of the pool (m+1 disks)  --> receipt
//!        \--> queue --> bucket, in order       --> the entry's place in the journal is free
//! ```
//!
//! - `journaled.durable_in_either`: a receipt resolves when the journal has the entry and the owner's record says so
//!   (`owner.said_before_early`), or when the bucket has it and all before it. Fences go to the bucket alone: whoever opens a stream
//!   has it there first.
//! - `journaled.in_order`: entries leave for the bucket in their order, within the bounds of [`crate::log`]. What the bucket has is
//!   always a prefix of what was acknowledged.
//! - `journaled.bounded`: no more than [`WAITING_BYTES_MAX`] and [`WAITING_ENTRIES_MAX`] of a stream wait for the bucket. Writers wait
//!   then, as they do without a journal.
//! - `journaled.nothing_ahead`: no object of the bucket that is replaced or deleted speaks of entries that are not in the bucket
//!   ([`crate::after_log`]).
//! - `journaled.recovered_first`: what an earlier process left in the journal is put into the bucket before any stream is read.
//! - `journaled.failed_is_undrained`: a stream that failed before the bucket had all of it counts as waiting, so that the store is not
//!   given back, and its record not at rest. Its next opening, in this process too, puts what is left into the bucket before it reads.
//! - `journaled.never_dropped`: entries that cannot follow what the bucket has, because another machine has written since, are kept
//!   as objects of the pool until a person lets them go.
//! - `journaled.holds_no_journal`: entries that wait while others fill the journal are moved into an object of the pool, so that they
//!   keep nobody from using it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt};
use larder_base::checksum::checksum;
use larder_base::log::{LogEntry, LogError, LogStore, MAX_PAYLOAD_BYTES, Receipt, Tenure};
use larder_base::metrics::Metrics;
use larder_base::{boxed, task};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::early::Early;
use crate::kept::{Kept, RECORD_HEAD_BYTES, decode_parked, encode_parked};
use crate::log::{BucketLog, FLYING_MAX, await_progress};
use crate::owner::Owner;
use crate::owner_record::now_ms;

/// Bytes of a stream that wait for the bucket. They are in memory, too.
pub const WAITING_BYTES_MAX: u64 = 48 << 20;
/// Entries of a stream that wait: as many as the bucket takes in some seconds.
pub const WAITING_ENTRIES_MAX: usize = 1024;
/// The part of the journal that waiting entries may keep others from using.
const HELD_DIVISOR: u64 = 4;
const HELD_LOOK: Duration = Duration::from_secs(1);
/// Puts at the same time while what was left is recovered.
const RECOVERED_AT_ONCE: usize = 16;
const FOLDER: &str = "write-back";
const LOST_FOLDER: &str = "write-back-lost";
/// A longer object is not ours.
const PARKED_BYTES_MAX: u64 = 1 << 30;

const _: () = assert!(WAITING_BYTES_MAX < PARKED_BYTES_MAX);

/// A log in a bucket that answers from a local journal.
#[derive(Clone)]
pub struct JournaledLog(Arc<Inner>);

struct Inner {
    bucket: Arc<BucketLog>,
    local: Local,
    streams: Mutex<BTreeMap<String, Arc<Stream>>>,
    /// Streams that ended with entries that the bucket does not have (`journaled.failed_is_undrained`).
    failed: Mutex<Vec<Arc<Stream>>>,
    early: Arc<Early>,
}

/// The part of a pool that entries wait in.
#[derive(Clone)]
pub struct Local {
    /// Names the store among others whose entries wait in the same pool.
    label: String,
    journal: Arc<dyn LogStore>,
    objects: Arc<dyn ObjectStore>,
}

/// A stream, from one opening to the next.
struct Stream {
    name: String,
    /// Its name in the journal.
    local: String,
    /// Entries take their places one after the other.
    order: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    /// For the drain.
    wake: Notify,
    /// For who looks whether waiting entries keep the journal.
    came: Notify,
}

struct State {
    term: u64,
    /// The next entry is the fence.
    begins: bool,
    last: u64,
    next_local: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    /// How many of them are on their way.
    begun: usize,
    /// Objects of the pool with waiting entries, and the last entry of each.
    parked: Vec<(Path, u64)>,
}

struct Waiting {
    entry: Kept,
    bytes: u64,
    since: Instant,
    local_id: u64,
    /// The journal's answer.
    journaled: Shared<BoxFuture<'static, Result<(), LogError>>>,
    is_parked: bool,
}

#[derive(Clone, Default)]
struct Progress {
    through: u64,
    failed: Option<LogError>,
}

/// What waits for the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undrained {
    /// Entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long the oldest has waited.
    pub oldest: Duration,
}

/// Entries that another machine's writing has left without a place in the bucket (`journaled.never_dropped`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEntries {
    /// The object of the pool that has them.
    pub object: String,
    /// Entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first and the last came into the journal, in milliseconds since 1970. Answers may have left since then, or none
    /// (`owner.said_before_early`).
    pub from_ms: u64,
    /// See `from_ms`.
    pub to_ms: u64,
}

impl LostEntries {
    fn of(object: &Path, entries: &[Kept]) -> Self {
        Self {
            object: object.to_string(),
            entries: entries.len() as u64,
            bytes: entries.iter().map(Kept::bytes).sum(),
            from_ms: entries.iter().map(|entry| entry.ms).min().unwrap_or(0),
            to_ms: entries.iter().map(|entry| entry.ms).max().unwrap_or(0),
        }
    }
}

fn io(what: &str, error: impl std::fmt::Display) -> LogError {
    LogError::Io(Arc::new(std::io::Error::other(format!("{what}: {error}"))))
}

// --------------------------------------------------------------------------------------------- the pool

impl Local {
    /// The place in a pool for what waits for this store.
    pub fn new(store: &str, journal: Arc<dyn LogStore>, objects: Arc<dyn ObjectStore>) -> Self {
        let label = format!("{:016x}", checksum(0, store.as_bytes()));
        Self { label: label[..12].to_owned(), journal, objects }
    }

    fn stream(&self, name: &str) -> String {
        format!("wb{}-{name}", self.label)
    }

    fn folder(&self, name: &str) -> Path {
        Path::from(FOLDER).join(self.label.as_str()).join(name)
    }

    fn lost_folder(&self) -> Path {
        Path::from(LOST_FOLDER).join(self.label.as_str())
    }

    /// Whether the journal has all that it ever acknowledged.
    pub fn is_proven(&self) -> bool {
        self.journal.is_proven()
    }

    async fn put(&self, at: &Path, entries: impl Iterator<Item = &Kept>) -> Result<(), LogError> {
        let put = self.objects.put(at, PutPayload::from(encode_parked(entries))).await;
        put.map(drop).map_err(|error| io("keeping log entries in the pool", error))
    }

    async fn read(&self, at: &Path) -> Result<Vec<Kept>, LogError> {
        let failed = |error: Error| io("reading log entries from the pool", error);
        let got = self.objects.get(at).await.map_err(failed)?;
        if got.meta.size > PARKED_BYTES_MAX {
            return Err(io("reading log entries from the pool", format!("{at} is longer than it can be")));
        }
        let bytes = got.bytes().await.map_err(failed)?;
        decode_parked(bytes)
            .ok_or_else(|| LogError::Damaged { stream: at.to_string(), why: "it is not what was written".into() })
    }

    async fn delete(&self, at: &Path) -> Result<(), LogError> {
        match self.objects.delete(at).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(io("removing log entries from the pool", error)),
        }
    }

    async fn objects_of(&self, folder: &Path) -> Result<Vec<Path>, LogError> {
        let listed = self.objects.list(Some(folder)).map_ok(|object| object.location).try_collect();
        listed.await.map_err(|error| io("listing log entries in the pool", error))
    }

    /// The streams that an earlier process has left something of.
    async fn left(&self) -> Result<Vec<String>, LogError> {
        let prefix = self.stream("");
        let mut names: Vec<String> = self
            .journal
            .streams()
            .into_iter()
            .filter_map(|name| Some(name.strip_prefix(&prefix)?.to_owned()))
            .collect();
        let folder = Path::from(FOLDER).join(self.label.as_str());
        let parked = self.objects_of(&folder).await?;
        names.extend(parked.iter().filter_map(|path| Some(path.parts().nth(2)?.as_ref().to_owned())));
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// What is left of one stream, in order, and the objects with a part of it.
    async fn entries(&self, name: &str) -> Result<(Vec<Kept>, Vec<Path>), LogError> {
        let local = self.stream(name);
        let objects = self.objects_of(&self.folder(name)).await?;
        let mut all = Vec::new();
        for object in &objects {
            all.extend(self.read(object).await?);
        }
        for entry in self.journal.replay(&local, 0).await? {
            let damaged = || LogError::Damaged { stream: local.clone(), why: format!("entry {} is damaged", entry.id) };
            all.push(Kept::parse(entry.payload.clone()).ok_or_else(damaged)?);
        }
        all.sort_by_key(|entry| (entry.term, entry.id));
        all.dedup_by_key(|entry| (entry.term, entry.id));
        Ok((all, objects))
    }

    /// Forgets what is left of one stream.
    async fn clear(&self, name: &str, objects: &[Path]) -> Result<(), LogError> {
        self.journal.trim(&self.stream(name), u64::MAX).await?;
        for object in objects {
            self.delete(object).await?;
        }
        Ok(())
    }

    /// Moves what is left in the journal into objects, for a process that cannot have the store now: it keeps nobody from using the
    /// journal there. Returns what waits.
    #[boxed]
    pub async fn park(&self) -> Result<Vec<LostEntries>, LogError> {
        let mut parked = Vec::new();
        for name in self.left().await? {
            let (entries, objects) = self.entries(&name).await?;
            let (Some(first), Some(_)) = (entries.first(), entries.last()) else { continue };
            let at = self.folder(&name).join(format!("{:016x}-{:016x}", first.term, first.id));
            self.put(&at, entries.iter()).await?;
            let others: Vec<Path> = objects.into_iter().filter(|object| *object != at).collect();
            self.clear(&name, &others).await?;
            parked.push(LostEntries::of(&at, &entries));
        }
        Ok(parked)
    }

    /// What never reached the bucket, and cannot any more.
    #[boxed]
    pub async fn lost(&self) -> Result<Vec<LostEntries>, LogError> {
        let mut lost = Vec::new();
        for object in self.objects_of(&self.lost_folder()).await? {
            let entries = self.read(&object).await?;
            lost.push(LostEntries::of(&object, &entries));
        }
        Ok(lost)
    }

    /// A person has said that they are needed no more.
    #[boxed]
    pub async fn forget_lost(&self) -> Result<(), LogError> {
        for object in self.objects_of(&self.lost_folder()).await? {
            self.delete(&object).await?;
        }
        Ok(())
    }
}

// ------------------------------------------------------------------------------------------- recovery

impl JournaledLog {
    /// Puts what an earlier process has left into the bucket (`journaled.recovered_first`).
    #[boxed]
    pub async fn recover(bucket: BucketLog, local: Local) -> Result<JournaledLog, LogError> {
        let early = bucket.owner.as_ref().map_or_else(|| Arc::new(Early::unowned()), Owner::early);
        let (bucket, streams, failed) = (Arc::new(bucket), Mutex::default(), Mutex::default());
        let log = Inner { bucket, local, streams, failed, early };
        for name in log.local.left().await? {
            log.recover_stream(&name).await?;
        }
        Ok(JournaledLog(Arc::new(log)))
    }

    /// Waits until the bucket has all that was begun by now.
    #[boxed]
    pub async fn drained(&self) -> Result<(), LogError> {
        self.0.drained().await
    }

    /// A wait for [`JournaledLog::drained`], for those who change the bucket otherwise.
    pub fn barrier(&self) -> Arc<dyn Fn() -> BoxFuture<'static, Result<(), LogError>> + Send + Sync> {
        let inner = Arc::clone(&self.0);
        Arc::new(move || {
            let inner = Arc::clone(&inner);
            Box::pin(async move { inner.drained().await })
        })
    }

    /// What waits.
    pub fn undrained(&self) -> Undrained {
        self.0.undrained()
    }

    /// Everything that was acknowledged before this moment, in milliseconds since 1970, is in the bucket.
    pub fn drained_ms(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let inner = Arc::clone(&self.0);
        move || {
            let now = now_ms();
            let oldest =
                inner.all().into_iter().filter_map(|stream| Some(stream.state.lock().waiting.front()?.entry.ms)).min();
            oldest.map_or(now, |oldest| oldest.min(now))
        }
    }

    /// Adds what waits, for the store of this name.
    pub fn metrics(&self, store: &str, out: &mut Metrics) {
        let labels = [("store", store)];
        let waits = self.undrained();
        out.gauge(
            "larder_store_undrained_bytes",
            "Bytes of changes in the journal that the bucket does not have.",
            &labels,
            waits.bytes,
        );
        out.gauge(
            "larder_store_undrained_entries",
            "Log entries in the journal that the bucket does not have.",
            &labels,
            waits.entries,
        );
        let millis = u64::try_from(waits.oldest.as_millis()).unwrap_or(u64::MAX);
        out.gauge("larder_store_undrained_milliseconds", "The age of the oldest of them.", &labels, millis);
    }
}

impl Inner {
    async fn recover_stream(&self, name: &str) -> Result<(), LogError> {
        let (entries, objects) = self.local.entries(name).await?;
        let Some(first) = entries.first() else { return Ok(()) };
        let mut lost = entries.len();
        // Entries of several terms are of several openings: none but the first can follow what the bucket has.
        let end = entries.iter().position(|entry| entry.term != first.term).unwrap_or(entries.len());
        let same = entries.get(..end).unwrap_or_default().to_vec();
        let may_follow = self.bucket.may_follow(name, first.id, first.term).await?;
        let puts = futures::stream::iter(same).map(|entry| async move {
            self.bucket.put_again(name, (entry.id, entry.term), entry.payload, may_follow).await
        });
        let mut puts = puts.buffered(RECOVERED_AT_ONCE);
        while let Some(is_there) = puts.next().await {
            if !is_there? {
                break;
            }
            lost -= 1;
        }
        drop(puts);
        let lost = entries.get(entries.len() - lost..).unwrap_or_default();
        if let Some(first) = lost.first() {
            tracing::error!(
                stream = name,
                entries = lost.len(),
                "changes that may have been acknowledged here never reached the bucket, and another machine has written there since: they are kept in the pool"
            );
            let at = self.local.lost_folder().join(name).join(format!("{:016x}-{:016x}", first.term, first.id));
            self.local.put(&at, lost.iter()).await?;
        } else {
            tracing::info!(stream = name, entries = entries.len(), "what the journal had is in the bucket");
        }
        self.local.clear(name, &objects).await
    }

    fn stream(&self, name: &str) -> Result<Arc<Stream>, LogError> {
        let known = self.streams.lock().get(name).cloned();
        known.ok_or_else(|| LogError::Poisoned(format!("stream {name} was not read before it is written")))
    }

    /// The streams that are open, and those that failed.
    fn all(&self) -> Vec<Arc<Stream>> {
        let mut all: Vec<_> = self.failed.lock().clone();
        all.extend(self.streams.lock().values().cloned());
        all
    }

    async fn drained(&self) -> Result<(), LogError> {
        for stream in self.all() {
            stream.drained().await?;
        }
        Ok(())
    }

    fn undrained(&self) -> Undrained {
        let mut sum = Undrained::default();
        for stream in self.all() {
            let state = stream.state.lock();
            sum.entries += state.waiting.len() as u64;
            sum.bytes += state.waiting_bytes;
            sum.oldest =
                sum.oldest.max(state.waiting.front().map_or(Duration::ZERO, |waiting| waiting.since.elapsed()));
        }
        sum
    }

    /// Ends an opening of the stream, with its tasks. Returns it.
    fn end(&self, name: &str, why: &str) -> Option<Arc<Stream>> {
        let before = self.streams.lock().remove(name)?;
        before.fail(LogError::Poisoned(why.to_owned()));
        Some(before)
    }

    /// `journaled.failed_is_undrained`
    async fn end_before_the_next(&self, name: &str) -> Result<(), LogError> {
        {
            // Locked first, so that nobody looks in between and sees the stream nowhere.
            let mut failed = self.failed.lock();
            let before = self.end(name, "the stream was opened anew");
            failed.extend(before.filter(|before| !before.state.lock().waiting.is_empty()));
            if failed.iter().all(|stream| stream.name != name) {
                return Ok(());
            }
        }
        self.recover_stream(name).await?;
        self.failed.lock().retain(|stream| stream.name != name);
        Ok(())
    }
}

// ------------------------------------------------------------------------------------------- draining

impl Stream {
    fn fail(&self, error: LogError) {
        self.progress.send_modify(|progress| {
            progress.failed.get_or_insert(error);
        });
    }

    fn failed(&self) -> Option<LogError> {
        self.progress.borrow().failed.clone()
    }

    async fn wait_through(&self, id: u64) -> Result<(), LogError> {
        await_progress(self.progress.subscribe(), id, |progress| (progress.through, progress.failed.clone())).await
    }

    /// The bucket has all that was begun by now.
    async fn drained(&self) -> Result<(), LogError> {
        let last = self.state.lock().last;
        self.wait_through(last).await
    }

    /// `journaled.bounded`
    async fn wait_for_room(&self) -> Result<(), LogError> {
        let mut progress = self.progress.subscribe();
        loop {
            {
                let state = self.state.lock();
                if state.waiting_bytes < WAITING_BYTES_MAX && state.waiting.len() < WAITING_ENTRIES_MAX {
                    return Ok(());
                }
            }
            if let Some(error) = progress.borrow_and_update().failed.clone() {
                return Err(error);
            }
            progress.changed().await.map_err(|_| LogError::Poisoned("the log was closed".into()))?;
        }
    }

    /// The oldest that is not on its way yet.
    fn next(&self) -> Option<(u64, Vec<Bytes>)> {
        let state = self.state.lock();
        state.waiting.get(state.begun).map(|waiting| (waiting.entry.id, waiting.entry.payload.clone()))
    }

    /// The bucket has the oldest.
    async fn arrived(&self, local: &Local) {
        let Some(waiting) = ({
            let mut state = self.state.lock();
            state.begun = state.begun.saturating_sub(1);
            let waiting = state.waiting.pop_front();
            state.waiting_bytes -= waiting.as_ref().map_or(0, |waiting| waiting.bytes);
            waiting
        }) else {
            return;
        };
        if !waiting.is_parked {
            // A place that is not taken yet is not free.
            let _ = waiting.journaled.await;
            if let Err(error) = local.journal.trim(&self.local, waiting.local_id).await {
                tracing::debug!(stream = self.name, %error, "a place in the journal is not free yet");
            }
        }
        self.progress.send_modify(|progress| progress.through = waiting.entry.id);
        self.remove_parked(local, waiting.entry.id).await;
    }

    async fn remove_parked(&self, local: &Local, through: u64) {
        let gone: Vec<(Path, u64)> = {
            let mut state = self.state.lock();
            let (gone, left) = state.parked.drain(..).partition(|(_, last)| *last <= through);
            state.parked = left;
            gone
        };
        for (object, _) in gone {
            // What stays is compared with the bucket at the next start.
            if let Err(error) = local.delete(&object).await {
                tracing::warn!(%object, %error, "log entries that the bucket has stay in the pool");
            }
        }
    }

    /// `journaled.holds_no_journal`
    async fn park(&self, local: &Local) -> Result<(), LogError> {
        let (entries, through) = {
            let state = self.state.lock();
            let fresh = || state.waiting.iter().filter(|waiting| !waiting.is_parked);
            let entries: Vec<Kept> = fresh().map(|waiting| waiting.entry.clone()).collect();
            (entries, fresh().map(|waiting| waiting.local_id).max())
        };
        let (Some(first), Some(last), Some(through)) = (entries.first(), entries.last(), through) else {
            return Ok(());
        };
        let at = local.folder(&self.name).join(format!("{:016x}-{:016x}", first.term, first.id));
        local.put(&at, entries.iter()).await?;
        {
            let mut state = self.state.lock();
            state
                .waiting
                .iter_mut()
                .filter(|waiting| waiting.entry.id <= last.id)
                .for_each(|waiting| waiting.is_parked = true);
            state.parked.push((at, last.id));
        }
        local.journal.trim(&self.local, through).await?;
        let arrived = self.progress.borrow().through;
        self.remove_parked(local, arrived).await;
        Ok(())
    }
}

async fn until_failed(progress: &mut watch::Receiver<Progress>) {
    let _ = progress.wait_for(|progress| progress.failed.is_some()).await.is_ok();
}

/// Takes the entries of one opening to the bucket, in order, until it ends.
async fn drain(inner: Arc<Inner>, stream: Arc<Stream>) {
    let mut flying: VecDeque<Receipt> = VecDeque::new();
    let mut progress = stream.progress.subscribe();
    loop {
        if stream.failed().is_some() {
            return;
        }
        if flying.len() < FLYING_MAX
            && let Some((id, payload)) = stream.next()
        {
            match inner.bucket.begin(&stream.name, id, payload).await {
                Ok(receipt) => {
                    stream.state.lock().begun += 1;
                    flying.push_back(receipt);
                }
                Err(error) => return stream.fail(error),
            }
            while let Some(arrived) = flying.front_mut().and_then(|receipt| receipt.now_or_never()) {
                flying.pop_front();
                match arrived {
                    Ok(()) => stream.arrived(&inner.local).await,
                    Err(error) => return stream.fail(error),
                }
            }
            continue;
        }
        let oldest = async {
            match flying.front_mut() {
                Some(receipt) => receipt.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            arrived = oldest => {
                flying.pop_front();
                match arrived {
                    Ok(()) => stream.arrived(&inner.local).await,
                    Err(error) => return stream.fail(error),
                }
            }
            () = stream.wake.notified() => {}
            () = until_failed(&mut progress) => {}
        }
    }
}

/// Looks, while anything waits, whether that keeps others from using the journal.
async fn make_room(inner: Arc<Inner>, stream: Arc<Stream>) {
    let mut progress = stream.progress.subscribe();
    loop {
        tokio::time::sleep(HELD_LOOK).await;
        let waits = stream.state.lock().waiting.iter().any(|waiting| !waiting.is_parked);
        if stream.failed().is_some() {
            return;
        }
        if !waits {
            // An idle stream wakes nobody.
            tokio::select! {
                biased;
                () = stream.came.notified() => {}
                () = until_failed(&mut progress) => {}
            }
            continue;
        }
        let (_, total) = inner.local.journal.usage();
        if inner.local.journal.held_bytes(&stream.local) > total / HELD_DIVISOR
            && let Err(error) = stream.park(&inner.local).await
        {
            tracing::warn!(stream = stream.name, %error, "entries that wait for the bucket keep the journal of the pool");
        }
    }
}

// ------------------------------------------------------------------------------------------- the log

#[async_trait]
impl LogStore for JournaledLog {
    async fn begin(&self, name: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let (inner, stream) = (&self.0, self.0.stream(name)?);
        let _order = stream.order.lock().await;
        let (begins, last) = {
            let state = stream.state.lock();
            (state.begins, state.last)
        };
        if id != last + 1 {
            return Err(LogError::OutOfOrder { stream: name.to_owned(), id, last });
        }
        if begins {
            inner.bucket.begin(name, id, payload).await?.await?;
            {
                let mut state = stream.state.lock();
                (state.term, state.last, state.begins) = (id, id, false);
            }
            stream.progress.send_modify(|progress| progress.through = id);
            task::spawn(drain(Arc::clone(inner), Arc::clone(&stream)));
            task::spawn(make_room(Arc::clone(inner), Arc::clone(&stream)));
            return Ok(Box::pin(std::future::ready(Ok(()))));
        }
        stream.wait_for_room().await?;
        if let Some(error) = stream.failed() {
            return Err(error);
        }
        let (term, local_id) = {
            let state = stream.state.lock();
            (state.term, state.next_local)
        };
        let entry = Kept { term, id, ms: now_ms(), payload };
        let bytes = entry.bytes();
        if bytes > (MAX_PAYLOAD_BYTES - RECORD_HEAD_BYTES) as u64 {
            return Err(io("a log entry", "it is longer than an entry can be"));
        }
        let journaled: BoxFuture<'static, _> =
            match inner.local.journal.begin(&stream.local, local_id, entry.record()).await {
                Ok(receipt) => receipt,
                Err(error) => Box::pin(std::future::ready(Err(error))),
            };
        let journaled = journaled.shared();
        {
            let mut state = stream.state.lock();
            state.last = id;
            state.next_local += 1;
            state.waiting_bytes += bytes;
            let since = Instant::now();
            let journaled = journaled.clone();
            state.waiting.push_back(Waiting { entry, bytes, since, local_id, journaled, is_parked: false });
        }
        stream.wake.notify_one();
        stream.came.notify_one();
        inner.early.begun();
        let (waits, early) = (Arc::clone(&stream), Arc::clone(&inner.early));
        Ok(Box::pin(async move {
            match journaled.await {
                Ok(()) => tokio::select! {
                    biased;
                    () = early.opened() => match waits.failed() {
                        // Another machine has the store: nobody is answered any more.
                        Some(error) if waits.progress.borrow().through < id => Err(error),
                        _ => Ok(()),
                    },
                    arrived = waits.wait_through(id) => arrived,
                },
                Err(error) => {
                    tracing::debug!(stream = waits.name, %error, "the journal does not take entries; they wait for the bucket");
                    waits.wait_through(id).await
                }
            }
        }))
    }

    async fn replay(&self, name: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        // What is in memory follows what the bucket has; the next opening reads it there.
        let before = self.0.streams.lock().get(name).cloned();
        if let Some(before) = before.filter(|before| before.failed().is_none()) {
            before.drained().await?;
        }
        self.0.end_before_the_next(name).await?;
        let entries = self.0.bucket.replay(name, after).await?;
        let local = self.0.local.stream(name);
        // Reading ends the poison of an earlier failure, too.
        let left = self.0.local.journal.replay(&local, 0).await?;
        let last_local = self.0.local.journal.last(&local).or(left.last().map(|entry| entry.id)).unwrap_or(0);
        let last = entries.last().map_or(after, |entry| entry.id);
        let state = State {
            term: 0,
            begins: true,
            last,
            next_local: last_local + 1,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            begun: 0,
            parked: Vec::new(),
        };
        let (progress, _) = watch::channel(Progress { through: last, failed: None });
        let (name, order, wake, came) = (name.to_owned(), Default::default(), Notify::new(), Notify::new());
        let stream = Stream { name: name.clone(), local, order, state: Mutex::new(state), progress, wake, came };
        self.0.streams.lock().insert(name, Arc::new(stream));
        Ok(entries)
    }

    async fn trim(&self, name: &str, through: u64) -> Result<(), LogError> {
        let arrived = self.0.stream(name)?.progress.borrow().through;
        self.0.bucket.trim(name, through.min(arrived)).await
    }

    async fn remove(&self, name: &str) -> Result<(), LogError> {
        self.0.end(name, "the stream was removed");
        self.0.failed.lock().retain(|stream| stream.name != name);
        self.0.bucket.remove(name).await?;
        let parked = self.0.local.objects_of(&self.0.local.folder(name)).await?;
        self.0.local.clear(name, &parked).await?;
        self.0.local.journal.remove(&self.0.local.stream(name)).await
    }

    fn is_proven(&self) -> bool {
        self.0.local.is_proven()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn check_owner(&self) -> Result<(), LogError> {
        self.0.bucket.check_owner().await
    }

    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        self.0.bucket.tenure()
    }

    fn usage(&self) -> (u64, u64) {
        self.0.bucket.usage()
    }

    fn held_bytes(&self, name: &str) -> u64 {
        self.0.bucket.held_bytes(name)
    }
}

#[cfg(test)]
#[path = "journaled_tests.rs"]
mod tests;
