//! Multipart uploads: an object written as its parts arrive, a few stripes in memory at a time.
//!
//! Parts get their order when `put_part` is called, whatever the order in which the returned
//! futures are driven. A part's future resolves when its bytes have been handed to the disks or
//! less than a chunk of them is waiting.
//!
//! An upload that is outrun (`write.outrun`), or met a disk without room (`room.full_is_not_dead`),
//! becomes another one, of the bytes that it has written: with a new number all checksums differ.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use futures::FutureExt;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use parking_lot::Mutex;

use crate::core::Core;
use crate::disk::is_no_room;
use crate::error::PoolError;
use crate::member::room::Avoid;
use crate::object::gather::Gather;
use crate::object::geometry::Geometry;
use crate::object::index::{NO_SLOT, Object};
use crate::object::read::READ_BYTES_MAX;
use crate::object::refusal::{Refused, refused};
use crate::object::shard_writer::{Failure, ShardWriters};
use crate::object::write::{Commit, Draft, Request};
use larder_base::task;

/// Stripes are written in runs of at least this many bytes.
const CHUNK_BYTES: u64 = 8 << 20;
/// How often an upload writes again, so that it does not hold up quicker writers.
const ROUNDS_MAX: u8 = 3;

pub struct Upload {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    request: Request,
    /// Background work, which does not count as use of the pool.
    is_quiet: bool,
    /// How often it was begun again.
    round: u8,
    /// Disks that had no room for it before.
    avoid: Avoid,
    waiting: Mutex<Waiting>,
    writer: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct Waiting {
    parts: VecDeque<Bytes>,
    bytes: u64,
}

enum State {
    /// Nothing written yet: small objects never leave this state.
    Gathering,
    Writing(Box<Writing>),
    Finished,
}

struct Writing {
    draft: Arc<Draft>,
    writers: ShardWriters,
    stripes: u64,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upload({})", self.shared.request.path)
    }
}

impl Upload {
    pub fn new(core: Arc<Core>, request: Request) -> Self {
        Self::begin(core, request, false)
    }

    /// For background work.
    pub fn quiet(core: Arc<Core>, request: Request) -> Self {
        Self::begin(core, request, true)
    }

    fn begin(core: Arc<Core>, request: Request, is_quiet: bool) -> Self {
        Self { shared: Arc::new(Shared::new(core, request, is_quiet, 0, Avoid::default())) }
    }
}

impl Drop for Upload {
    /// An upload that is neither completed nor aborted leaves nothing behind.
    fn drop(&mut self) {
        let shared = self.shared.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            task::spawn_on(&runtime, async move { shared.abandon().await });
        }
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.shared.push(data);
        let shared = self.shared.clone();
        async move {
            let path = shared.request.path.clone();
            let name = shared.core.members.name.clone();
            let task = task::spawn_for(async move { shared.drain(false).await });
            task.await.map_err(|_| PoolError::Cancelled(name))?.map_err(|error| refused(&path, error))
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let shared = self.shared.clone();
        let name = shared.core.members.name.clone();
        let task = task::spawn_for(async move { shared.complete().await });
        let object = task
            .await
            .map_err(|_| PoolError::Cancelled(name))?
            .map_err(|error| refused(&self.shared.request.path, error))?;
        Ok(PutResult { e_tag: Some(object.e_tag()), version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> Result<()> {
        self.shared.abandon().await;
        Ok(())
    }
}

impl Waiting {
    /// The first `bytes` of the waiting bytes.
    fn take(&mut self, bytes: u64) -> Gather {
        let mut left = bytes;
        let mut taken = Vec::new();
        while left > 0 {
            let Some(mut part) = self.parts.pop_front() else { break };
            if part.len() as u64 > left {
                let head = part.copy_to_bytes(left as usize);
                self.parts.push_front(part);
                part = head;
            }
            left -= part.len() as u64;
            taken.push(part);
        }
        self.bytes -= bytes - left;
        Gather::new(taken)
    }
}

impl Shared {
    fn new(core: Arc<Core>, request: Request, is_quiet: bool, round: u8, avoid: Avoid) -> Self {
        let writer = tokio::sync::Mutex::new(State::Gathering);
        Self { core, request, is_quiet, round, avoid, waiting: Mutex::default(), writer }
    }

    fn chunk_bytes(&self) -> u64 {
        self.core.members.work.gather_bytes(CHUNK_BYTES)
    }

    fn push(&self, pieces: impl IntoIterator<Item = Bytes>) {
        let mut waiting = self.waiting.lock();
        for piece in pieces {
            waiting.bytes += piece.len() as u64;
            waiting.parts.push_back(piece);
        }
    }

    /// Writes the whole stripes that wait; with `last` also the rest.
    async fn drain(&self, last: bool) -> Result<(), Refused> {
        let _busy = (!self.is_quiet).then(|| self.core.activity.enter());
        let mut state = self.writer.lock().await;
        if self.waiting.lock().bytes < self.chunk_bytes() && !last {
            return Ok(());
        }
        if matches!(*state, State::Gathering) {
            *state = State::Writing(Box::new(self.begin().await?));
        }
        let State::Writing(writing) = &mut *state else {
            return Err(PoolError::Cancelled(self.core.members.name.clone()).into());
        };
        let stripe = writing.draft.object.geometry.stripe_bytes();
        let run = self.chunk_bytes().next_multiple_of(stripe);
        loop {
            let data = {
                let mut waiting = self.waiting.lock();
                let bytes = waiting.bytes.min(run) / stripe * stripe;
                waiting.take(bytes)
            };
            if data.length == 0 {
                return Ok(());
            }
            let stripes = data.length / stripe;
            // Until its end is known every stripe of the object is a full one.
            let shape = Geometry { size: u64::MAX, ..writing.draft.object.geometry };
            self.write(writing, data, shape).await?;
            writing.stripes += stripes;
        }
    }

    async fn begin(&self) -> Result<Writing, Refused> {
        self.core.check_condition(&self.request)?;
        // Its length is not known yet.
        let known_bytes = self.waiting.lock().bytes.max(self.chunk_bytes());
        let draft = Arc::new(self.core.draft(&self.request, known_bytes, &self.avoid)?);
        let writers = ShardWriters::of_parts(&self.core, &draft.object).open(&self.core).await?;
        Ok(Writing { draft, writers, stripes: 0 })
    }

    async fn write(&self, writing: &mut Writing, data: Gather, shape: Geometry) -> Result<(), Refused> {
        let (mut writers, stripe) = (std::mem::take(&mut writing.writers), writing.stripes);
        let write = move |_: &Arc<Core>| {
            writers.write_stripes(shape, &data, stripe);
            writers
        };
        writing.writers = self.core.blocking(write).await?;
        let alive = writing.writers.alive().count();
        if alive < usize::from(writing.draft.object.geometry.k) {
            let failures = std::mem::take(&mut writing.writers).into_failures();
            let refused =
                self.too_few(alive, &failures, writing.stripes * writing.draft.object.geometry.stripe_bytes());
            self.note_failures(failures).await?;
            return Err(refused.into());
        }
        Ok(())
    }

    /// Tells the disks' keeper which of them failed, or had no room.
    async fn note_failures(&self, failures: Vec<Failure>) -> Result<(), PoolError> {
        let note = move |core: &Arc<Core>| {
            failures.iter().for_each(|(slot, error)| core.members.write_failed(*slot, error));
        };
        self.core.blocking(note).await
    }

    /// Fewer than `k` shards are left after these failures.
    fn too_few(&self, alive: usize, failures: &[Failure], bytes: u64) -> PoolError {
        if failures.iter().any(|(_, error)| is_no_room(error)) {
            return self.core.members.no_space(bytes);
        }
        let why = format!("only {alive} of its disks still take it");
        PoolError::CannotWrite { pool: self.core.members.name.clone(), object: self.request.path.clone(), why }
    }

    async fn complete(&self) -> Result<Arc<Object>, Refused> {
        let gathering = matches!(*self.writer.lock().await, State::Gathering);
        if gathering {
            let data = {
                let mut waiting = self.waiting.lock();
                let bytes = waiting.bytes;
                waiting.take(bytes)
            };
            return match self.is_quiet {
                true => self.core.put_quietly(&self.request, data).await,
                false => self.core.put(&self.request, data).await,
            };
        }
        self.drain(true).await?;
        let state = std::mem::replace(&mut *self.writer.lock().await, State::Finished);
        let State::Writing(writing) = state else {
            return Err(PoolError::Cancelled(self.core.members.name.clone()).into());
        };
        self.finish(*writing).await
    }

    /// Writes the tail, the headers, and commits.
    async fn finish(&self, mut writing: Writing) -> Result<Arc<Object>, Refused> {
        let tail = {
            let mut waiting = self.waiting.lock();
            let bytes = waiting.bytes;
            waiting.take(bytes)
        };
        let geometry = writing.draft.object.geometry;
        let size = writing.stripes * geometry.stripe_bytes() + tail.length;
        let shape = Geometry { size, ..geometry };
        let failures = match self.write(&mut writing, tail, shape).await {
            Ok(()) => self.sync(&mut writing, size).await,
            Err(error) => Err(error),
        };
        match failures {
            Ok(failures) => {
                let mut avoid = self.avoid.clone();
                avoid.extend(&failures);
                let is_refused = failures.iter().any(|(_, error)| is_no_room(error));
                let object = &writing.draft.object;
                let failed = |slot: &u8| failures.iter().any(|(at, _)| at == slot);
                let left_out: Vec<(u8, u8)> = object.placed().filter(|(_, slot)| failed(slot)).collect();
                let left = object.placed().count() - left_out.len();
                if left < usize::from(geometry.k) {
                    let refused = self.too_few(left, &failures, size);
                    self.note_failures(failures).await?;
                    self.core.discard(&writing.draft).await?;
                    return Err(refused.into());
                }
                self.note_failures(failures).await?;
                // The room that a full disk gave to its shard is free for others.
                self.core.discard_shards(&writing.draft, left_out.clone()).await?;
                left_out.iter().for_each(|(index, _)| writing.draft.object.set_slot(*index, NO_SLOT));
                if is_refused {
                    // Not with fewer shards (`room.full_is_not_dead`).
                    return self.write_again(&writing.draft, avoid, self.core.members.no_space(size).into()).await;
                }
                let order = self.core.objects.commit_lock(&self.request.path).lock().await;
                match self.core.commit(&order, writing.draft, &self.request).await? {
                    Commit::Stored(object) => Ok(object),
                    Commit::Outrun(draft) => {
                        drop(order);
                        self.write_again(&draft, self.avoid.clone(), Refused::Outrun).await
                    }
                }
            }
            Err(error) => {
                self.core.discard(&writing.draft).await?;
                Err(error)
            }
        }
    }

    /// Writes an upload again from its own bytes: with a new number where it was outrun
    /// (`write.outrun`), and on other disks where one had no room. Ends with `refused` if that was done
    /// too often.
    async fn write_again(&self, before: &Arc<Draft>, avoid: Avoid, refused: Refused) -> Result<Arc<Object>, Refused> {
        let written = Arc::new(before.object.as_draft());
        let result = if self.round < ROUNDS_MAX {
            let again = Self::new(self.core.clone(), self.request.clone(), self.is_quiet, self.round + 1, avoid);
            let copied = again.copy(&written).await;
            // After an error something may lie about.
            again.abandon().await;
            copied
        } else {
            Err(refused)
        };
        for (index, slot) in written.placed() {
            self.core.objects.files.remove(&(slot, written.version, index));
        }
        self.core.discard(before).await?;
        result
    }

    async fn copy(&self, written: &Arc<Object>) -> Result<Arc<Object>, Refused> {
        let size = written.geometry.size;
        for start in (0..size).step_by(READ_BYTES_MAX as usize) {
            let range = start..(start + READ_BYTES_MAX).min(size);
            self.push(self.core.read_quietly(written, range).await?);
            self.drain(false).await?;
        }
        // It may be outrun itself.
        Box::pin(self.complete()).await
    }

    /// Now the size is known: headers and names can be made.
    async fn sync(&self, writing: &mut Writing, size: u64) -> Result<Vec<Failure>, Refused> {
        let Some(draft) = Arc::get_mut(&mut writing.draft) else {
            return Err(PoolError::Cancelled(self.core.members.name.clone()).into());
        };
        draft.object.geometry.size = size;
        let (writers, headers) = (std::mem::take(&mut writing.writers), writing.draft.headers());
        Ok(writers.finish(&self.core, headers).await?.into_failures())
    }

    async fn abandon(&self) {
        let state = std::mem::replace(&mut *self.writer.lock().await, State::Finished);
        *self.waiting.lock() = Waiting::default();
        if let State::Writing(writing) = state {
            // Whatever cannot be removed now is removed when the pool is opened.
            let _ = self.core.discard(&writing.draft).await;
        }
    }
}
