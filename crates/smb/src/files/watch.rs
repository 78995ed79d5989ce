//! A watch of a directory (MS-FSA 2.1.5.11): the changes buffered for it between requests, and the requests waiting for them.
//!
//! A watch belongs to one open and lives until that open closes. The first
//! CHANGE_NOTIFY on the open fixes its filter, whether it covers the whole
//! tree below the directory and how much it buffers (MS-SMB2 3.3.1.3).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slots::Party;
use larder_smb_wire::messages::change_notify::{
    FILE_NOTIFY_CHANGE_ATTRIBUTES, FILE_NOTIFY_CHANGE_LAST_WRITE, FILE_NOTIFY_CHANGE_SIZE, entries_len, push_entry,
};

/// Most bytes one watch buffers, whatever OutputBufferLength asked for.
pub(crate) const MAX_NOTIFY_BUFFER: u32 = 64 * 1024;

/// Most bytes the watches of one connection buffer together. Past it, the
/// watch that would cross it drops what it holds and answers
/// STATUS_NOTIFY_ENUM_DIR next.
pub(crate) const MAX_NOTIFY_BYTES: usize = 8 << 20;

/// Most watches one connection may hold.
pub(crate) const MAX_WATCHES_PER_CONNECTION: usize = 4096;

/// Filter of a change to a file's contents: a write, a size change, an
/// overwrite. Windows reports a write or a truncation to watchers asking
/// for LAST_WRITE, and not to watchers asking for ATTRIBUTES without it.
/// ATTRIBUTES is set here on purpose, so watchers that ask for attributes
/// but not for times, as macOS clients do, hear about new contents too.
pub(crate) const CONTENT_CHANGED: u32 =
    FILE_NOTIFY_CHANGE_SIZE | FILE_NOTIFY_CHANGE_LAST_WRITE | FILE_NOTIFY_CHANGE_ATTRIBUTES;

/// How a CHANGE_NOTIFY is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// FILE_NOTIFY_INFORMATION entries.
    Changes(Vec<u8>),
    /// Changes were lost or do not fit: STATUS_NOTIFY_ENUM_DIR.
    EnumDir,
    /// The watch is gone; every request on it ends with this status.
    Ended(u32),
}

/// What the watches of one connection hold.
#[derive(Default)]
pub(crate) struct NotifyBudget {
    watches: AtomicUsize,
    bytes: AtomicUsize,
}

impl NotifyBudget {
    fn take_watch(&self) -> bool {
        self.watches
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < MAX_WATCHES_PER_CONNECTION).then_some(n + 1))
            .is_ok()
    }

    pub(super) fn charge(&self, bytes: usize) -> bool {
        self.bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                (held + bytes <= MAX_NOTIFY_BYTES).then_some(held + bytes)
            })
            .is_ok()
    }

    fn refund(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Watches held now.
    #[cfg(test)]
    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::Acquire)
    }

    /// Bytes buffered now.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

/// Whose buffers those of a watch are: its connection's, and the user's or guest's whose open it is.
#[derive(Clone)]
pub(crate) struct NotifyAccount {
    connection: Arc<NotifyBudget>,
    party: Option<Party>,
}

impl NotifyAccount {
    pub(crate) fn new(connection: &Arc<NotifyBudget>, party: Option<&Party>) -> Self {
        Self { connection: Arc::clone(connection), party: party.cloned() }
    }

    fn charge(&self, bytes: usize) -> bool {
        if !self.connection.charge(bytes) {
            return false;
        }
        let fits = self.party.as_ref().is_none_or(|party| party.buffers(bytes));
        if !fits {
            self.connection.refund(bytes);
        }
        fits
    }

    fn refund(&self, bytes: usize) {
        self.connection.refund(bytes);
        if let Some(party) = &self.party {
            party.unbuffers(bytes);
        }
    }
}

impl From<&Arc<NotifyBudget>> for NotifyAccount {
    fn from(connection: &Arc<NotifyBudget>) -> Self {
        Self::new(connection, None)
    }
}

/// Entries for one watch: each change's action and its name relative to
/// the watched directory.
pub(super) type Batch = Vec<(u32, Vec<u16>)>;

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One open's watch (MS-FSA ChangeNotifyEntry).
pub(crate) struct Watch {
    /// The watched directory (`watch.by_inode`).
    pub(super) dir: u64,
    /// CompletionFilter of the first request, invalid bits dropped.
    pub(super) filter: u32,
    /// SMB2_WATCH_TREE was set on the first request.
    pub(super) tree: bool,
    /// Most bytes buffered: the first request's OutputBufferLength, up to
    /// [`MAX_NOTIFY_BUFFER`].
    pub(super) limit: u32,
    pub(super) state: Mutex<WatchState>,
    /// Counts changes to `state` a waiting request may act on.
    pub(super) changed: tokio::sync::watch::Sender<u64>,
    /// Of the open that armed the watch.
    pub(super) budget: NotifyAccount,
}

pub(super) struct WatchState {
    /// Encoded entries, each padded to 4 bytes.
    pub(super) entries: Vec<u8>,
    /// Offset of the last entry in `entries`.
    pub(super) last: Option<usize>,
    /// A name in `entries` lies below a subdirectory.
    pub(super) nested: bool,
    /// Changes were dropped; the next answer is STATUS_NOTIFY_ENUM_DIR.
    pub(super) overflow: bool,
    /// Set once the watch is removed.
    pub(super) end: Option<u32>,
    /// The directory is deleted, which ended the watch for good.
    pub(super) gone: bool,
    /// Tickets of the waiting requests, oldest first.
    pub(super) queue: VecDeque<u64>,
    pub(super) next_ticket: u64,
}

impl Watch {
    /// A watch of `dir` with the first request's `filter`, `tree` flag and
    /// OutputBufferLength `len`, counted against `budget`. `None` when the
    /// connection already holds [`MAX_WATCHES_PER_CONNECTION`].
    pub(super) fn new(
        dir: u64,
        filter: u32,
        tree: bool,
        len: u32,
        budget: impl Into<NotifyAccount>,
    ) -> Option<Arc<Self>> {
        let budget = budget.into();
        if !budget.connection.take_watch() {
            return None;
        }
        Some(Arc::new(Self {
            dir,
            filter,
            tree,
            limit: len.min(MAX_NOTIFY_BUFFER),
            state: Mutex::new(WatchState {
                entries: Vec::new(),
                last: None,
                nested: false,
                overflow: false,
                end: None,
                gone: false,
                queue: VecDeque::new(),
                next_ticket: 0,
            }),
            changed: tokio::sync::watch::Sender::new(0),
            budget,
        }))
    }

    /// Drops what the watch buffered: its next answer is
    /// STATUS_NOTIFY_ENUM_DIR.
    pub(super) fn lose(&self) {
        let mut state = self.state();
        if state.end.is_some() || state.overflow {
            return;
        }
        self.budget.refund(state.entries.len());
        state.entries = Vec::new();
        state.last = None;
        state.nested = false;
        state.overflow = true;
        drop(state);
        self.bump();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WatchState> {
        lock(&self.state)
    }

    fn bump(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Puts a request with OutputBufferLength `len`, and SMB2_WATCH_TREE
    /// when `tree`, at the end of the queue of waiting requests.
    pub(crate) fn enqueue(self: &Arc<Self>, len: u32, tree: bool) -> Ticket {
        let mut state = self.state();
        let id = state.next_ticket;
        state.next_ticket += 1;
        state.queue.push_back(id);
        Ticket { watch: Arc::clone(self), id, len, tree }
    }

    /// A receiver that sees every later change a waiting request may act
    /// on. Subscribe before the first [`Watch::take`], so no change falls
    /// between the two.
    pub(crate) fn subscribe(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The answer to the request holding `ticket`, once it has one: the
    /// buffered changes when this request is the oldest waiting and they fit
    /// both its OutputBufferLength and the watch's limit (MS-FSA
    /// 2.1.5.11.1). A request without SMB2_WATCH_TREE gets
    /// STATUS_NOTIFY_ENUM_DIR instead of names below a subdirectory, which
    /// clients refuse in an answer to such a request (MS-SMB2 3.2.5.16).
    /// Taking empties the buffer either way.
    pub(crate) fn take(&self, ticket: &Ticket) -> Option<Answer> {
        let mut state = self.state();
        if let Some(status) = state.end {
            state.queue.retain(|&id| id != ticket.id);
            return Some(Answer::Ended(status));
        }
        if state.queue.front() != Some(&ticket.id) {
            return None;
        }
        let answer = if state.overflow {
            state.overflow = false;
            Answer::EnumDir
        } else if state.entries.is_empty() {
            return None;
        } else {
            let carried = entries_len(&state.entries, state.last);
            // Not its capacity either: no budget counts that.
            let mut entries = std::mem::take(&mut state.entries);
            self.budget.refund(entries.len());
            let answer = if carried > ticket.len.min(self.limit) as usize || (state.nested && !ticket.tree) {
                Answer::EnumDir
            } else {
                entries.truncate(carried);
                Answer::Changes(entries)
            };
            state.last = None;
            state.nested = false;
            answer
        };
        state.queue.pop_front();
        drop(state);
        self.bump();
        Some(answer)
    }

    /// Buffers `entries` (action, name relative to the watched directory),
    /// the changes of one report, all or none of them. When they do not fit
    /// the watch's limit or the budgets, everything buffered is
    /// dropped and the next answer is STATUS_NOTIFY_ENUM_DIR. An ended
    /// watch takes nothing.
    pub(super) fn push(&self, entries: &[(u32, Vec<u16>)]) {
        let mut state = self.state();
        if state.end.is_some() || state.overflow {
            return;
        }
        let held = state.entries.len();
        let mut last = state.last;
        for (action, name) in entries {
            push_entry(&mut state.entries, &mut last, *action, name);
        }
        let added = state.entries.len() - held;
        if added == 0 {
            return;
        }
        if entries_len(&state.entries, last) <= self.limit as usize && self.budget.charge(added) {
            state.last = last;
            state.nested |= entries.iter().any(|(_, name)| name.contains(&u16::from(b'\\')));
        } else {
            self.budget.refund(held);
            state.entries = Vec::new();
            state.last = None;
            state.nested = false;
            state.overflow = true;
        }
        drop(state);
        self.bump();
    }

    /// Ends the watch with `status` for every request on it, and gives back
    /// what it held.
    pub(super) fn end(&self, status: u32) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        state.end = Some(status);
        self.budget.refund(state.entries.len());
        state.entries = Vec::new();
        state.last = None;
        self.budget.connection.watches.fetch_sub(1, Ordering::AcqRel);
        drop(state);
        self.bump();
    }
}

/// One waiting request's place in its watch's queue. Dropping it leaves
/// the queue.
pub(crate) struct Ticket {
    watch: Arc<Watch>,
    id: u64,
    /// The request's OutputBufferLength.
    len: u32,
    /// The request has SMB2_WATCH_TREE.
    tree: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.watch.state();
        let Some(at) = state.queue.iter().position(|&id| id == self.id) else {
            return;
        };
        state.queue.remove(at);
        drop(state);
        self.watch.bump();
    }
}
