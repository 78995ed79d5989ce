//! The log of volumes in a bucket: each entry is one object, several are on their way at once.
//!
//! ```text
//! log/<stream>/<id>-<term>      sixteen hexadecimal digits each
//!
//!   term 0:  1  2  3  4  5* .  7        5* is the fence of the writer that has term 5; 7 arrived too late and is nobody's
//!   term 5:                 6  7  8
//! ```
//!
//! - `bucket_log.fence_is_a_term`: a writer begins with an entry in the place that its predecessor's next entry would take: of two
//!   conditional writes of one name, one succeeds. Its id is the term of the new writer, so terms are unique and only grow.
//! - `bucket_log.nothing_after_a_fence`: an entry is acknowledged when it and all before it are stored. So nothing of a writer is
//!   acknowledged from its successor's fence on, however late its requests arrive.
//! - `bucket_log.answered_on_proof`: a fence may be trimmed, and a request of its predecessor arrive after that, in a place that is
//!   free again. So an entry is acknowledged, and a fence counts, only if a proof shows that the owner had the store when it was put:
//!   one that is young, because whoever takes a store fences no log before such proofs are old, or one that was asked for since.
//! - `bucket_log.no_fence_for_a_successor`: between reading and fencing a log a proof is asked for. A taker that was overtaken while
//!   it opened would else read its successor's entries, and end a writer that nobody follows.
//! - `bucket_log.own_names`: entries behind the fence have the new term in their names. What arrives late has a name that no reader
//!   looks for: at one id the highest term counts, and behind a fence only its own.
//! - `bucket_log.writes_wait`: an entry is put until it is stored, or until it is known that the writer has lost the log. A store
//!   that does not answer makes writers wait and loses nothing.
//! - `bucket_log.spaced_puts`: an entry leaves at once if none is on its way, and otherwise an eighth of a round trip after the one
//!   before. Whoever comes in between shares it: 32 writers wait about as long as one, for eight requests a round trip at most.
//! - `bucket_log.kept_point`: the entry of the replay point is not trimmed. It says which term follows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use larder_base::checksum::{checksum_slices, seed};
use larder_base::log::{LogEntry, LogError, LogStore, MAX_PAYLOAD_BYTES, Receipt, Tenure};
use larder_base::task;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::owner::Owner;
use crate::{BucketError, names};

const MAGIC: &[u8; 8] = b"LRDBLOG\0";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 64;
const KIND_ENTRY: u8 = 0;
const KIND_FENCE: u8 = 1;
/// Entries of one stream that are on their way.
pub(crate) const FLYING_MAX: usize = 16;
/// Entries of a round trip (`bucket_log.spaced_puts`).
const PUTS_A_TRIP: u32 = 8;
/// Entries read at the same time at an opening.
const READS_MAX: usize = 16;
/// A stream with more objects than this is not ours.
const OBJECTS_MAX: usize = 1 << 20;
/// An entry counts as this much at least: at an opening each costs a request.
const ENTRY_BYTES_MIN: u64 = 128 << 10;
/// What entries may count as together. Volumes move what the log holds into their tables from half of it on.
const CAPACITY_BYTES: u64 = 128 << 20;
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// How often an entry is read that does not decode.
const READ_TRIES_MAX: u32 = 4;

/// A log in a bucket.
pub struct BucketLog {
    store: Arc<dyn ObjectStore>,
    pub(crate) owner: Option<Owner>,
    capacity_bytes: u64,
    streams: Mutex<HashMap<String, Arc<Stream>>>,
}

/// A stream as its writer knows it, from one opening to the next.
struct Stream {
    name: String,
    store: Arc<dyn ObjectStore>,
    /// Tells what this writer has put.
    nonce: [u8; 16],
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    flying: Arc<Semaphore>,
}

struct State {
    term: u64,
    /// The newest entry that was begun, or read.
    last: u64,
    /// The next entry is the fence.
    begins: bool,
    /// Every object that is known, and what it counts as.
    objects: BTreeMap<(u64, u64), u64>,
    /// Stored, while one before is not.
    early: BTreeSet<u64>,
    begun_at: Option<Instant>,
    trip: Duration,
}

#[derive(Clone, Default)]
struct Progress {
    through: u64,
    failed: Option<LogError>,
}

impl BucketLog {
    /// A log below `store`. With an owner, [`LogStore::check_owner`] asks whether it still is one.
    pub fn new(store: Arc<dyn ObjectStore>, owner: Option<Owner>) -> Self {
        Self { store, owner, capacity_bytes: CAPACITY_BYTES, streams: Mutex::default() }
    }

    /// With room for so many entries of the least size: for tests, which move few of them and want tables.
    #[must_use]
    pub fn with_room_for(self, entries: u64) -> Self {
        Self { capacity_bytes: (entries * ENTRY_BYTES_MIN).min(CAPACITY_BYTES), ..self }
    }

    fn stream(&self, name: &str) -> Result<Arc<Stream>, LogError> {
        let known = self.streams.lock().get(name).cloned();
        known.ok_or_else(|| LogError::Poisoned(format!("stream {name} was not read before it is written")))
    }

    /// Whether an entry that a writer of `term` had begun can still follow what is there: its predecessor is there, and nothing of a
    /// later writer. The fence of such a writer is found by [`BucketLog::put_again`], in the place of an entry.
    pub(crate) async fn may_follow(&self, stream: &str, id: u64, term: u64) -> Result<bool, LogError> {
        let before = id.saturating_sub(1);
        let there = self.list(stream, before).await?;
        let has_predecessor = there.keys().any(|place| place.0 == before && (place.1 == term || before == term));
        let has_later = there.keys().any(|place| place.0 >= id && place.1 > term);
        Ok(has_predecessor && !has_later)
    }

    /// Puts an entry that an earlier process had begun, if it `may_follow`. Whether it is there now, put by whomever.
    pub(crate) async fn put_again(
        &self,
        stream: &str,
        place: (u64, u64),
        payload: Vec<Bytes>,
        may_follow: bool,
    ) -> Result<bool, LogError> {
        let whole: Bytes = payload.concat().into();
        if may_follow {
            let at = names::log_entry(stream, place.0, place.1);
            let encoded = encode(stream, place, false, &rand::random(), vec![whole.clone()]);
            match self.store.put_opts(&at, encoded, PutMode::Create.into()).await {
                Ok(_) => return Ok(true),
                Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(failed("recovering the log", &error)),
            }
        }
        let there = read(&*self.store, stream, place).await?;
        Ok(there.is_some_and(|there| !there.is_fence && there.payload == whole))
    }

    async fn list(&self, stream: &str, from: u64) -> Result<Objects, LogError> {
        list(&*self.store, stream, from).await
    }
}

/// The objects of a stream and their lengths, sorted by id and term.
pub(crate) type Objects = BTreeMap<(u64, u64), u64>;

/// Those with ids from `from` on.
pub(crate) async fn list(store: &dyn ObjectStore, stream: &str, from: u64) -> Result<Objects, LogError> {
    let (folder, before) = (names::log_folder(stream), names::log_before(stream, from));
    let mut listed = store.list_with_offset(Some(&folder), &before);
    let mut found = Objects::new();
    while let Some(object) = listed.next().await {
        let object = object.map_err(|error| failed("listing the log", &error))?;
        let Some(place) = names::parse_log_entry(&object.location) else { continue };
        found.insert(place, object.size);
        if found.len() > OBJECTS_MAX {
            return Err(damaged(stream, "it has too many objects".into()));
        }
    }
    Ok(found)
}

/// The place of the newest entry that is known, and the term of those that follow it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    pub(crate) place: (u64, u64),
    pub(crate) term: u64,
}

/// The end at entry `after`, which has to be there.
pub(crate) async fn end_at(
    store: &dyn ObjectStore,
    stream: &str,
    objects: &Objects,
    after: u64,
) -> Result<End, LogError> {
    if after == 0 {
        return Ok(End::default());
    }
    let at = objects.range((after, 0)..(after, u64::MAX)).next_back().map(|(place, _)| *place);
    let at = at.ok_or_else(|| damaged(stream, format!("entry {after}, the replay point, is not there")))?;
    let entry = read(store, stream, at).await?;
    let entry = entry.ok_or_else(|| damaged(stream, format!("entry {after} vanished")))?;
    Ok(End { place: at, term: if entry.is_fence { after } else { at.1 } })
}

/// The entries behind `end`, and where they end.
pub(crate) async fn walk(
    store: &Arc<dyn ObjectStore>,
    stream: &str,
    objects: &Objects,
    mut end: End,
) -> Result<(Vec<LogEntry>, End), LogError> {
    let places: Vec<(u64, u64)> = objects.keys().copied().filter(|(id, _)| *id > end.place.0).collect();
    let reads = futures::stream::iter(places).map(|place| {
        let (store, stream) = (Arc::clone(store), stream.to_owned());
        async move { (place, read(&*store, &stream, place).await) }
    });
    let mut reads = reads.buffered(READS_MAX);
    let mut entries = Vec::new();
    while let Some((place, read)) = reads.next().await {
        // Others are nobody's (`bucket_log.own_names`), and may be whatever they like.
        if place != (end.place.0 + 1, end.term) {
            if place.0 > end.place.0 + 1 {
                break;
            }
            continue;
        }
        let Some(entry) = read? else { break };
        end = End { place, term: if entry.is_fence { place.0 } else { end.term } };
        entries.push(LogEntry { id: place.0, payload: entry.payload });
    }
    Ok((entries, end))
}

/// An entry whose bytes are not what was written is asked for again: they may have changed on their way.
pub(crate) async fn read(store: &dyn ObjectStore, stream: &str, place: (u64, u64)) -> Result<Option<Entry>, LogError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match read_once(store, stream, place).await {
            Err(LogError::Damaged { .. }) if tries < READ_TRIES_MAX => tokio::time::sleep(PAUSE_MIN).await,
            read => return read,
        }
    }
}

async fn read_once(store: &dyn ObjectStore, stream: &str, (id, term): (u64, u64)) -> Result<Option<Entry>, LogError> {
    let at = names::log_entry(stream, id, term);
    let got = match store.get(&at).await {
        Ok(got) => got,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed("reading the log", &error)),
    };
    if got.meta.size > (MAX_PAYLOAD_BYTES + HEADER_BYTES) as u64 {
        return Err(damaged(stream, format!("{at} is longer than an entry can be")));
    }
    let bytes = got.bytes().await.map_err(|error| failed("reading the log", &error))?;
    let entry = decode(stream, (id, term), bytes);
    entry.map(Some).ok_or_else(|| damaged(stream, format!("{at} is not what was written")))
}

fn failed(what: &str, error: &Error) -> LogError {
    LogError::Io(Arc::new(std::io::Error::other(format!("{what}: {error}"))))
}

pub(crate) fn damaged(stream: &str, why: String) -> LogError {
    LogError::Damaged { stream: stream.to_owned(), why }
}

// --------------------------------------------------------------------------------------------- codec

pub(crate) struct Entry {
    pub(crate) is_fence: bool,
    nonce: [u8; 16],
    pub(crate) payload: Bytes,
}

fn encode(stream: &str, (id, term): (u64, u64), is_fence: bool, nonce: &[u8; 16], payload: Vec<Bytes>) -> PutPayload {
    let length: usize = payload.iter().map(Bytes::len).sum();
    let mut head = Vec::with_capacity(HEADER_BYTES);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&[VERSION, if is_fence { KIND_FENCE } else { KIND_ENTRY }, 0, 0, 0, 0, 0, 0]);
    head.extend_from_slice(&term.to_le_bytes());
    head.extend_from_slice(&id.to_le_bytes());
    head.extend_from_slice(nonce);
    head.extend_from_slice(&(length as u64).to_le_bytes());
    let slices = std::iter::once(&head[..]).chain(payload.iter().map(|piece| &piece[..]));
    let sum = checksum_slices(seed(stream.as_bytes(), id), slices);
    head.extend_from_slice(&sum.to_le_bytes());
    PutPayload::from_iter(std::iter::once(Bytes::from(head)).chain(payload))
}

fn decode(stream: &str, (id, term): (u64, u64), mut bytes: Bytes) -> Option<Entry> {
    let number = |head: &[u8], at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    let head = bytes.split_to(HEADER_BYTES);
    let sum = checksum_slices(seed(stream.as_bytes(), id), [head.get(..HEADER_BYTES - 8)?, &bytes[..]].into_iter());
    let kind = *head.get(9)?;
    let is_whole = head.starts_with(MAGIC)
        && head.get(8) == Some(&VERSION)
        && kind <= KIND_FENCE
        && number(&head, 16)? == term
        && number(&head, 24)? == id
        && number(&head, 48)? == bytes.len() as u64
        && number(&head, 56)? == sum;
    let nonce = head.get(32..48)?.try_into().ok()?;
    is_whole.then_some(Entry { is_fence: kind == KIND_FENCE, nonce, payload: bytes })
}

#[cfg(any(test, fuzzing))]
const FUZZ: (&str, (u64, u64)) = ("volume-fuzz", (7, 2));

#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_entry(data: &Bytes) {
    let (stream, place) = FUZZ;
    let _ = decode(stream, place, data.clone());
    if let Some((head, payload)) = data.split_at_checked(HEADER_BYTES) {
        let mut right = head.to_vec();
        let (Some(sums), Some(front)) = (head.len().checked_sub(8), head.get(..HEADER_BYTES - 8)) else { return };
        let sum = checksum_slices(seed(stream.as_bytes(), place.0), [front, payload].into_iter());
        right.truncate(sums);
        right.extend_from_slice(&sum.to_le_bytes());
        right.extend_from_slice(payload);
        if let Some(entry) = decode(stream, place, right.clone().into()) {
            let again = encode(stream, place, entry.is_fence, &entry.nonce, vec![entry.payload]);
            assert_eq!(Bytes::from(again).len(), right.len());
        }
    }
}

#[cfg(test)]
pub(crate) fn fuzz_seed(is_fence: bool) -> Vec<u8> {
    let (stream, place) = FUZZ;
    Bytes::from(encode(stream, place, is_fence, &[5; 16], vec![Bytes::from_static(b"payload")])).to_vec()
}

// ------------------------------------------------------------------------------------------- writing

impl Stream {
    /// Puts one entry until it is stored (`bucket_log.writes_wait`). `false`: another writer's entry is there.
    async fn put(&self, place: (u64, u64), payload: &PutPayload) -> Result<bool, LogError> {
        let at = names::log_entry(&self.name, place.0, place.1);
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.store.put_opts(&at, payload.clone(), PutMode::Create.into()).await {
                Ok(_) => return Ok(true),
                // Perhaps our own, of a try whose answer was lost.
                Err(Error::AlreadyExists { .. }) => match read(&*self.store, &self.name, place).await {
                    Ok(Some(entry)) => return Ok(entry.nonce == self.nonce),
                    Ok(None) => "an entry vanished".to_owned(),
                    Err(error @ LogError::Damaged { .. }) => return Err(error),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if self.progress.borrow().failed.is_some() {
                return Err(LogError::Poisoned("the log was given up".into()));
            }
            tracing::debug!(entry = %at, error, "an entry of the log waits for the store");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits until it is known that the owner had the store when an entry was put (`bucket_log.answered_on_proof`).
    async fn confirm(&self, owner: Option<&Owner>) -> Result<(), LogError> {
        let Some(owner) = owner else { return Ok(()) };
        let mut pause = PAUSE_MIN;
        loop {
            match owner.confirm().await {
                Ok(()) => return Ok(()),
                Err(error @ BucketError::Lost { .. }) => return Err(LogError::Poisoned(error.to_string())),
                Err(error) => tracing::debug!(%error, "an entry of the log waits for a proof of ownership"),
            }
            if self.progress.borrow().failed.is_some() {
                return Err(LogError::Poisoned("the log was given up".into()));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits for its turn (`bucket_log.spaced_puts`).
    async fn wait_for_turn(&self) {
        loop {
            let wait = {
                let state = self.state.lock();
                let is_flying = self.flying.available_permits() < FLYING_MAX;
                let next = state.begun_at.map(|at| at + state.trip / PUTS_A_TRIP);
                next.filter(|next| is_flying && *next > Instant::now())
            };
            let Some(next) = wait else { return };
            // The last one on its way may return before: then nothing is shared by waiting.
            let mut progress = self.progress.subscribe();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(next) => return,
                _ = progress.changed() => {}
            }
        }
    }

    fn stored(&self, id: u64, bytes: u64, took: Duration) {
        let mut state = self.state.lock();
        let term = state.term;
        state.objects.insert((id, term), bytes);
        state.trip = if state.trip.is_zero() { took } else { (state.trip * 7 + took) / 8 };
        state.early.insert(id);
        self.progress.send_modify(|progress| {
            while progress.failed.is_none() && state.early.remove(&(progress.through + 1)) {
                progress.through += 1;
            }
        });
    }

    fn fail(&self, error: LogError) {
        self.progress.send_modify(|progress| {
            progress.failed.get_or_insert(error);
        });
    }

    /// The entry of which others know when they read.
    async fn fence(&self, id: u64, payload: Vec<Bytes>, owner: Option<&Owner>) -> Result<Receipt, LogError> {
        let (term, last) = {
            let state = self.state.lock();
            (state.term, state.last)
        };
        let bytes = counted(&payload);
        let encoded = encode(&self.name, (id, term), true, &self.nonce, payload);
        // What was read may be a successor's: its log is not fenced by whoever came too late (`bucket_log.no_fence_for_a_successor`).
        self.confirm(owner).await?;
        if !self.put((id, term), &encoded).await? {
            return Err(LogError::OutOfOrder { stream: self.name.clone(), id, last });
        }
        self.confirm(owner).await?;
        let mut state = self.state.lock();
        state.objects.insert((id, term), bytes);
        state.term = id;
        state.last = id;
        state.begins = false;
        self.progress.send_modify(|progress| progress.through = id);
        Ok(Box::pin(std::future::ready(Ok(()))))
    }
}

/// What an entry counts as in [`CAPACITY_BYTES`].
fn counted(payload: &[Bytes]) -> u64 {
    let bytes: usize = payload.iter().map(Bytes::len).sum();
    (bytes as u64 + HEADER_BYTES as u64).max(ENTRY_BYTES_MIN)
}

async fn await_durable(progress: watch::Receiver<Progress>, id: u64) -> Result<(), LogError> {
    await_progress(progress, id, |progress| (progress.through, progress.failed.clone())).await
}

/// Waits until the entry has arrived, or never will. `look` says how far it is, and why it goes no further.
pub(crate) async fn await_progress<P>(
    mut progress: watch::Receiver<P>,
    id: u64,
    look: impl Fn(&P) -> (u64, Option<LogError>),
) -> Result<(), LogError> {
    let done = |progress: &P| {
        let (through, failed) = look(progress);
        through >= id || failed.is_some()
    };
    let gone = |_| LogError::Poisoned("the log was closed".into());
    let (through, failed) = look(&*progress.wait_for(done).await.map_err(gone)?);
    match failed {
        Some(error) if through < id => Err(error),
        _ => Ok(()),
    }
}

#[async_trait]
impl LogStore for BucketLog {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let stream = self.stream(stream)?;
        let (last, begins) = {
            let state = stream.state.lock();
            (state.last, state.begins)
        };
        // Ids have no gaps: replay takes a gap for the end.
        if id != last + 1 {
            return Err(LogError::OutOfOrder { stream: stream.name.clone(), id, last });
        }
        if begins {
            return stream.fence(id, payload, self.owner.as_ref()).await;
        }
        let closed = |_| LogError::Poisoned("the log was closed".into());
        stream.wait_for_turn().await;
        let permit = Arc::clone(&stream.flying).acquire_owned().await.map_err(closed)?;
        if let Some(error) = stream.progress.borrow().failed.clone() {
            return Err(error);
        }
        let term = {
            let mut state = stream.state.lock();
            state.last = id;
            state.begun_at = Some(Instant::now());
            state.term
        };
        let receipt = await_durable(stream.progress.subscribe(), id);
        let bytes = counted(&payload);
        let encoded = encode(&stream.name, (id, term), false, &stream.nonce, payload);
        let owner = self.owner.clone();
        // A task of its own: whoever drops the receipt gives up knowing, not the entry.
        task::spawn(async move {
            let begun = Instant::now();
            let outcome = stream.put((id, term), &encoded).await;
            // Before others hear of it, so that the last one on its way is none any more.
            drop(permit);
            let took = begun.elapsed();
            let outcome = match outcome {
                Ok(true) => stream.confirm(owner.as_ref()).await.map(|()| true),
                other => other,
            };
            match outcome {
                Ok(true) => stream.stored(id, bytes, took),
                Ok(false) => {
                    // Another writer is there: whoever is the owner is looked up before anybody is answered.
                    if let Some(owner) = owner {
                        owner.doubt();
                        let _ = owner.verify().await;
                    }
                    stream.fail(LogError::OutOfOrder { stream: stream.name.clone(), id, last: id });
                }
                Err(error) => stream.fail(error),
            }
        });
        Ok(Box::pin(receipt))
    }

    async fn replay(&self, name: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        let objects = self.list(name, after).await?;
        let end = end_at(&*self.store, name, &objects, after).await?;
        let (entries, end) = walk(&self.store, name, &objects, end).await?;
        let (last, term) = (end.place.0, end.term);
        let objects = objects.into_iter().map(|(place, size)| (place, size.max(ENTRY_BYTES_MIN))).collect();
        let state =
            State { term, last, begins: true, objects, early: BTreeSet::new(), begun_at: None, trip: Duration::ZERO };
        let (progress, _) = watch::channel(Progress { through: last, failed: None });
        let stream = Arc::new(Stream {
            name: name.to_owned(),
            store: Arc::clone(&self.store),
            nonce: rand::random(),
            state: Mutex::new(state),
            progress,
            flying: Arc::new(Semaphore::new(FLYING_MAX)),
        });
        if let Some(before) = self.streams.lock().insert(name.to_owned(), stream) {
            before.fail(LogError::Poisoned("the stream was opened anew".into()));
        }
        Ok(entries)
    }

    async fn trim(&self, name: &str, through: u64) -> Result<(), LogError> {
        let stream = self.stream(name)?;
        let gone: Vec<(u64, u64)> = {
            let state = stream.state.lock();
            state.objects.keys().copied().take_while(|(id, _)| *id <= through).collect()
        };
        if gone.is_empty() {
            return Ok(());
        }
        let paths: Vec<_> = gone.iter().map(|(id, term)| Ok(names::log_entry(name, *id, *term))).collect();
        let mut deleted = self.store.delete_stream(futures::stream::iter(paths).boxed());
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(failed("trimming the log", &error)),
            }
        }
        let mut state = stream.state.lock();
        for place in &gone {
            state.objects.remove(place);
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<(), LogError> {
        if let Some(before) = self.streams.lock().remove(name) {
            before.fail(LogError::Poisoned("the stream was removed".into()));
        }
        let all = self.list(name, 0).await?;
        let paths: Vec<_> = all.keys().map(|(id, term)| Ok(names::log_entry(name, *id, *term))).collect();
        let mut deleted = self.store.delete_stream(futures::stream::iter(paths).boxed());
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(failed("removing the log", &error)),
            }
        }
        Ok(())
    }

    fn usage(&self) -> (u64, u64) {
        let streams: Vec<_> = self.streams.lock().values().cloned().collect();
        let used = streams.iter().map(|stream| stream.state.lock().objects.values().sum::<u64>()).sum();
        (used, self.capacity_bytes)
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        let stream = self.streams.lock().get(stream).cloned();
        stream.map_or(0, |stream| stream.state.lock().objects.values().sum())
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn check_owner(&self) -> Result<(), LogError> {
        let Some(owner) = &self.owner else { return Ok(()) };
        owner.verify().await.map_err(|error| LogError::Poisoned(error.to_string()))
    }

    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        self.owner.clone().map(|owner| Arc::new(owner) as Arc<dyn Tenure>)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn golden_entry() {
        let put =
            encode("volume-x", (9, 7), false, &[5; 16], vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
        let bytes = Bytes::from(put);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (head, rest) = hex.split_at(112);
        assert_eq!(
            head,
            concat!(
                "4c5244424c4f4700",
                "0100000000000000",
                "0700000000000000",
                "0900000000000000",
                "05050505050505050505050505050505",
                "0300000000000000"
            )
        );
        assert_eq!(&rest[16..], "616263");
        let entry = decode("volume-x", (9, 7), bytes.clone()).unwrap();
        assert!(!entry.is_fence && entry.nonce == [5; 16] && entry.payload == "abc");
        for (stream, place) in [("volume-y", (9, 7)), ("volume-x", (8, 7)), ("volume-x", (9, 6))] {
            assert!(decode(stream, place, bytes.clone()).is_none(), "another entry");
        }
        for at in 0..bytes.len() {
            let mut torn = bytes.to_vec();
            torn[at] ^= 1;
            assert!(decode("volume-x", (9, 7), torn.into()).is_none(), "byte {at}");
        }
    }
}
