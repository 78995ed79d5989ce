//! Submitted changes that the engine has not applied yet, and the callers that wait for durability.
//!
//! Submitting is a map insertion. One task carries the gathered changes to the engine as one batch
//! and returns for more. So a directory's lock is held for microseconds however slow the engine,
//! and thirty creates in one directory cost one record of the directory, not thirty.
//!
//! - `overlay.flies_until_applied`: `flying` leaves the overlay only after the engine has it, so a
//!   reader that misses here finds it there.
//! - `overlay.tickets_in_order`: tickets are given in submission order, and groups are applied in
//!   that order (`meta.durable_in_order`).
//! - `overlay.cut_between_groups`: a cut seals the changes submitted so far. The carrier marks the
//!   point in the engine when it has applied them, before it takes later ones.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_fs::{FsError, FsResult};
use parking_lot::Mutex;
use slatedb::CheckpointHandle;
use tokio::sync::{Notify, oneshot};

use super::changed::Changed;
use super::point::Cut;
use super::{Batch, Owners, Ticket, Usage};
use crate::keys;

/// Submitters wait while more than this gathers.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// A submitter that waits longer for room is told that the store hangs.
const ADMIT_WAIT_MAX: Duration = Duration::from_secs(60);
/// Cost of one change beyond its bytes, as memory accounting sees it.
const OP_OVERHEAD_BYTES: usize = 64;

pub(crate) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// Changes that are applied as one.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) changes: Changes,
    pub(crate) newest: u64,
    bytes: usize,
}

/// Changes before a cut, which may be none, and the caller that waits for the point.
struct Sealed {
    group: Arc<Group>,
    begun: oneshot::Sender<FsResult<CheckpointHandle>>,
}

/// The next work of the carrier.
pub(crate) struct Carried {
    /// To be applied, and then [`Overlay::landed`].
    pub(crate) group: Option<Arc<Group>>,
    /// A point to be marked behind it.
    pub(crate) cut: Option<oneshot::Sender<FsResult<CheckpointHandle>>>,
}

#[derive(Default)]
struct OverlayState {
    pending: Group,
    sealed: Option<Sealed>,
    changed: Changed,
    flying: Option<Arc<Group>>,
    usage: Usage,
    newest: u64,
    stopped: Option<FsError>,
}

pub(crate) struct Overlay {
    state: Mutex<OverlayState>,
    pub(crate) owners: Owners,
    /// Something is pending, or the overlay is stopped.
    work: Notify,
    /// `pending` was taken.
    room: Notify,
}

impl Overlay {
    pub(crate) fn new(usage: Usage) -> Self {
        let state = OverlayState { usage, ..OverlayState::default() };
        Self { state: Mutex::new(state), owners: Owners::new(), work: Notify::new(), room: Notify::new() }
    }

    /// Which epoch changes belong to from now on. `None`: nobody asks.
    pub(crate) fn set_epoch(&self, epoch: Option<u64>) {
        self.state.lock().changed.set_epoch(epoch);
    }

    pub(crate) fn submit(&self, mut batch: Batch) -> FsResult<Ticket> {
        assert!(batch.records.is_empty(), "`meta.records_at_submit`: `submit_with_records` has encoded them");
        let mut state = self.state.lock();
        if let Some(error) = &state.stopped {
            return Err(error.clone());
        }
        // The engine refuses a group without changes, and its refusal would be the end of the
        // volume.
        if batch.ops.is_empty() && batch.usage.is_zero() {
            return Ok(Ticket(state.newest));
        }
        state.changed.note(&mut batch);
        self.owners.note(&batch.owned);
        if !batch.usage.is_zero() {
            state.usage = state.usage.plus(batch.usage);
            let value = keys::encode_usage(state.usage);
            state.pending.change(Bytes::from_static(keys::USAGE_KEY), Some(value));
        }
        for (key, value) in batch.ops {
            state.pending.change(key, value);
        }
        state.newest += 1;
        state.pending.newest = state.newest;
        let ticket = Ticket(state.newest);
        drop(state);
        self.work.notify_one();
        Ok(ticket)
    }

    pub(crate) async fn admit(&self) -> FsResult<()> {
        if self.has_room()? {
            return Ok(());
        }
        let wait = async {
            loop {
                let freed = self.room.notified();
                if self.has_room()? {
                    return Ok(());
                }
                freed.await;
            }
        };
        let hangs = || FsError::Io("the store has not taken metadata for a minute".into());
        tokio::time::timeout(ADMIT_WAIT_MAX, wait).await.unwrap_or_else(|_| Err(hangs()))
    }

    fn has_room(&self) -> FsResult<bool> {
        let state = self.state.lock();
        match &state.stopped {
            Some(error) => Err(error.clone()),
            None => Ok(state.pending.bytes < PENDING_BYTES_MAX),
        }
    }

    /// Seals what was submitted so far and submits `first` behind it (`overlay.cut_between_groups`); `epoch` begins.
    pub(crate) fn cut(&self, first: Batch, epoch: u64) -> FsResult<Cut> {
        let (begun, receiver) = oneshot::channel();
        let usage = {
            let mut state = self.state.lock();
            if let Some(error) = &state.stopped {
                return Err(error.clone());
            }
            if state.sealed.is_some() {
                return Err(FsError::Busy("another snapshot is being taken"));
            }
            state.sealed = Some(Sealed { group: Arc::new(std::mem::take(&mut state.pending)), begun });
            state.changed.set_epoch(Some(epoch));
            state.usage
        };
        self.submit(first)?;
        self.work.notify_one();
        Ok(Cut { begun: receiver, usage })
    }

    /// The next group, which flies until `landed`; `None` once stopped and drained.
    pub(crate) async fn take(&self) -> Option<Carried> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(sealed) = state.sealed.take() {
                    assert!(state.flying.is_none(), "`overlay.flies_until_applied`");
                    let group = (sealed.group.newest > 0).then_some(sealed.group);
                    state.flying = group.clone();
                    drop(state);
                    self.room.notify_waiters();
                    return Some(Carried { group, cut: Some(sealed.begun) });
                }
                if state.pending.newest > 0 {
                    assert!(state.flying.is_none(), "`overlay.flies_until_applied`");
                    let group = Arc::new(std::mem::take(&mut state.pending));
                    state.flying = Some(Arc::clone(&group));
                    drop(state);
                    self.room.notify_waiters();
                    return Some(Carried { group: Some(group), cut: None });
                }
                if state.stopped.is_some() {
                    return None;
                }
            }
            self.work.notified().await;
        }
    }

    pub(crate) fn landed(&self) {
        let landed = self.state.lock().flying.take();
        assert!(landed.is_some(), "`overlay.flies_until_applied`: only a flying group lands");
    }

    /// No more submissions: they fail with `error`.
    pub(crate) fn stop(&self, error: FsError) {
        let mut state = self.state.lock();
        state.stopped.get_or_insert(error);
        drop(state);
        self.work.notify_one();
        self.room.notify_waiters();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped.is_some()
    }

    pub(crate) fn newest(&self) -> Ticket {
        Ticket(self.state.lock().newest)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.state.lock().usage
    }

    /// `Some(None)`: deleted here. `None`: ask the engine.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let state = self.state.lock();
        let sealed = || state.sealed.as_ref().and_then(|sealed| sealed.group.changes.get(key));
        let flying = || state.flying.as_ref().and_then(|group| group.changes.get(key));
        state.pending.changes.get(key).or_else(sealed).or_else(flying).cloned()
    }

    /// The changes with `from <= key < to`.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> Changes {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let state = self.state.lock();
        let copy = |(key, value): (&Bytes, &Option<Bytes>)| (key.clone(), value.clone());
        let mut changes: Changes = match &state.flying {
            Some(group) => group.changes.range::<[u8], _>(bounds).map(copy).collect(),
            None => Changes::new(),
        };
        if let Some(sealed) = &state.sealed {
            changes.extend(sealed.group.changes.range::<[u8], _>(bounds).map(copy));
        }
        changes.extend(state.pending.changes.range::<[u8], _>(bounds).map(copy));
        changes
    }
}

impl Group {
    fn change(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len) + OP_OVERHEAD_BYTES;
        self.changes.insert(key, value);
    }
}

// ---------------------------------------------------------------------------------------- durability

/// A wait for durability never outlasts this: a store that hangs is an error, not a hang of ours.
const DURABLE_WAIT_MAX: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Waits {
    /// Groups that the engine has: its sequence number and the newest ticket in it.
    groups: VecDeque<(u64, u64)>,
    durable_seq: u64,
    waiters: BTreeMap<(u64, u64), oneshot::Sender<FsResult<()>>>,
    next_waiter: u64,
    failed: Option<FsError>,
}

/// The durable watermark, in tickets.
#[derive(Default)]
pub(crate) struct Durability {
    durable: AtomicU64,
    waits: Mutex<Waits>,
    /// A caller waits. Wakes whoever makes the engine's batches durable.
    pub(crate) wanted: Notify,
    /// Something is applied and not durable.
    pub(crate) unflushed: Notify,
}

impl Durability {
    pub(crate) fn is_durable(&self, ticket: Ticket) -> bool {
        self.durable.load(Ordering::Acquire) >= ticket.0
    }

    pub(crate) async fn wait(&self, ticket: Ticket) -> FsResult<()> {
        if self.is_durable(ticket) {
            return Ok(());
        }
        let receiver = {
            let mut waits = self.waits.lock();
            if self.is_durable(ticket) {
                return Ok(());
            }
            if let Some(error) = &waits.failed {
                return Err(error.clone());
            }
            let (sender, receiver) = oneshot::channel();
            waits.next_waiter += 1;
            let key = (ticket.0, waits.next_waiter);
            waits.waiters.insert(key, sender);
            receiver
        };
        self.wanted.notify_one();
        let hangs = || FsError::Io("the store has not made metadata durable for two minutes".into());
        match tokio::time::timeout(DURABLE_WAIT_MAX, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(FsError::Poisoned("the volume is closed".into())),
            Err(_) => Err(hangs()),
        }
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.waits.lock().waiters.is_empty()
    }

    /// Whether a caller waits for what comes after `seq`.
    pub(crate) fn has_waiters_beyond(&self, seq: u64) -> bool {
        let waits = self.waits.lock();
        let Some((&(wanted, _), _)) = waits.waiters.last_key_value() else { return false };
        let covered = waits.groups.iter().rev().find(|(last, _)| *last <= seq);
        wanted > covered.map_or(self.durable.load(Ordering::Relaxed), |(_, ticket)| *ticket)
    }

    /// The engine has applied a group, as `seq`.
    pub(crate) fn applied(&self, seq: u64, ticket: u64) {
        let mut waits = self.waits.lock();
        let in_order = waits.groups.back().is_none_or(|&(before, older)| before < seq && older < ticket);
        assert!(in_order, "`overlay.tickets_in_order`");
        waits.groups.push_back((seq, ticket));
        self.settle(&mut waits);
        if !waits.groups.is_empty() {
            self.unflushed.notify_one();
            // A caller that asked before there was anything to flush must not wait for the next
            // one.
            if !waits.waiters.is_empty() {
                self.wanted.notify_one();
            }
        }
    }

    pub(crate) fn has_unflushed(&self) -> bool {
        !self.waits.lock().groups.is_empty()
    }

    /// Everything up to `seq` is durable.
    pub(crate) fn flushed(&self, seq: u64) {
        let mut waits = self.waits.lock();
        waits.durable_seq = waits.durable_seq.max(seq);
        self.settle(&mut waits);
    }

    fn settle(&self, waits: &mut Waits) {
        let mut durable = self.durable.load(Ordering::Relaxed);
        while let Some(&(seq, ticket)) = waits.groups.front()
            && seq <= waits.durable_seq
        {
            durable = ticket;
            waits.groups.pop_front();
        }
        self.durable.store(durable, Ordering::Release);
        let later = waits.waiters.split_off(&(durable + 1, 0));
        for (_, sender) in std::mem::replace(&mut waits.waiters, later) {
            // A receiver that is gone stopped waiting.
            let _ = sender.send(Ok(()));
        }
    }

    pub(crate) fn fault(&self) -> Option<FsError> {
        self.waits.lock().failed.clone()
    }

    /// Every wait, now and later, fails (`meta.poison_after_failure`).
    pub(crate) fn fail(&self, error: FsError) {
        let mut waits = self.waits.lock();
        let error = waits.failed.get_or_insert(error).clone();
        for (_, sender) in std::mem::take(&mut waits.waiters) {
            let _ = sender.send(Err(error.clone()));
        }
    }
}
