//! Calls to clients: delegations and their recall (RFC 8881 10.2, 20.2), attributes of files that a client writes
//! (10.4.3, 20.1), locks that may be free (20.11).
//!
//! - `recalls.writes_are_asked_for`: the client with a delegation to write knows the size of the file. Another client of
//!   this door that asks is answered by it; other doors have it recalled. A file that it says it has changed gets new
//!   times here before anybody hears of that, so no number of changes is ever told twice.
//! - `recalls.referring`: a recall names the request that the delegation was granted to, whose reply it may overtake.
//! - `recalls.notify_is_a_hint`: a client that waits for a lock hears that it may be free. It asks again by itself as well.
//! - `recalls.before_the_change`: a change by another client is answered with NFS4ERR_DELAY until the delegations of
//!   the file have ended; other doors wait for the same (`promises.asked_first`).
//! - `recalls.by_whoever_is_bound`: a recall goes over the connection that is bound at the time. One that a connection
//!   took to its end is sent again by the next.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use larder_base::task;
use larder_files::Files;
use larder_fs::Ino;
use larder_opens::{Caches, Door};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::handle::HANDLE_BYTES;
use super::super::rpc::{call_with, reply_results};
use super::super::xdr::Reader;
use super::attrs::{FileAttrs, number};
use super::back_channel::BackChannel;
use super::bitmap::Bitmap;
use super::callback::{
    CbArgOp, CbCompound, CbCompoundResult, CbGetAttrArgs, CbNotifyLockArgs, CbRecallArgs, CbResOp, CbSequenceArgs,
    ReferringCall, ReferringCalls,
};
use super::callback_link::CallbackLink;
use super::clients::{CallbackPath, SharedSession};
use super::compound::NO_TAG;
use super::exported::HeldOpen;
use super::file_key::FileKey;
use super::server::{LEASE, NfsV4, V4State};
use super::state::{RecallToSend, WriteHolder};
use super::types::{ClientId, NfsStat, SessionId, StateOwner};
use super::wire::{Opaque, Xdr, XdrList, XdrOut};

/// The time in which a client returns what was recalled. Less than other doors wait (MS-SMB2 has 35 s).
const RECALL_TERM: Duration = Duration::from_secs(30);
/// An answer that takes longer is none; the client may still return what was recalled.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A client that is asked for the size of a file it writes has so long. Then its delegation is recalled.
const CLIENT_ASKED_MAX: Duration = Duration::from_secs(5);
/// Files with clients that wait for locks; beyond them clients hear nothing and ask again by themselves.
const LOCK_WAITS_MAX: usize = 1024;
/// Clients that hear of one file.
const WAITS_OF_FILE_MAX: usize = 64;
/// How often recalls under way are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The program of call-backs is of version 1 (RFC 5665 aside, RFC 8881 20), and has the procedures NULL and
/// CB_COMPOUND.
pub const CB_VERSION: u32 = 1;
pub const CB_COMPOUND: u32 = 1;

/// The delegations of one volume, as other doors see them.
pub struct VolumeDelegations {
    pub v4: Weak<NfsV4>,
    pub volume: u64,
}

impl Door for VolumeDelegations {
    /// `clients.courtesy_keeps`: until somebody needs it.
    fn loses_lock(&self, _ino: Ino, owner: u64) -> bool {
        let Some(v4) = self.v4.upgrade() else { return false };
        let mut state = v4.lock();
        let Some(client) = state.states.client_of_lock(owner) else { return false };
        let is_silent = state.clients.is_courteous(client, v4.now());
        if is_silent {
            // A crash that takes the record's change takes the other door's lock as well.
            state.end_client(client);
            v4.delegations_changed(&state);
            v4.is_used();
        }
        is_silent
    }

    /// Silent clients are asked for nothing and lose what they hold.
    fn ask_back(&self, ino: Ino, what: Caches) {
        let Some(v4) = self.v4.upgrade() else { return };
        v4.begin_recall(FileKey { volume: self.volume, inode: ino.0 }, None, what != Caches::WRITES);
    }
}

/// A recall on its way.
struct OnItsWay {
    recall: RecallToSend,
    /// Of a session.
    slot: Option<BusySlot>,
    answer: oneshot::Receiver<Bytes>,
}

/// A session's one slot for call-backs, until the answer has come or nobody awaits it.
struct BusySlot(Arc<SharedSession>);

impl Drop for BusySlot {
    fn drop(&mut self) {
        self.0.lock().callbacks.is_busy = false;
    }
}

/// A client of sessions that waits for a lock.
struct LockWait {
    client: ClientId,
    owner: Box<[u8]>,
    handle: [u8; HANDLE_BYTES],
}

/// Clients that wait for locks, by file. The one who waits first has a task that hears of changes.
#[derive(Default)]
pub struct LockWaits(Mutex<HashMap<FileKey, Vec<LockWait>>>);

/// Attributes of a file as the client that writes it knows them.
pub struct WriterAttrs {
    pub size: u64,
    pub has_changed: bool,
}

impl NfsV4 {
    /// Something is about to be held in a volume: from now on other doors ask (`promises.asked_first`).
    pub fn will_hold(&self, files: &Files) {
        let to_be_asked = self.lock().exported.to_be_asked(files);
        if let Some((volume, door)) = to_be_asked {
            files.add_door(door);
            self.lock().exported.is_asked(volume);
        }
    }

    /// Recalls the delegations of a file that others than `by` have, and waits until they have ended
    /// (`recalls.before_the_change`).
    pub(super) async fn recall(&self, file: FileKey, by: Option<ClientId>, writes: bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.begin_recall(file, by, writes) {
                return;
            }
            ended.await;
        }
    }

    /// Whether the recall of anything has to be waited for.
    fn begin_recall(&self, file: FileKey, by: Option<ClientId>, writes: bool) -> bool {
        let mut state = self.lock();
        if state.end_silent(file, by, self.now()) {
            self.delegations_changed(&state);
        }
        let waits = state.states.conflict(file, by, writes).is_err();
        drop(state);
        if waits {
            self.recalls_wait();
        }
        waits
    }

    /// Sends recalls and revokes what is not returned in time, until `shutdown`.
    pub async fn send_recalls(self: Arc<Self>, shutdown: CancellationToken) {
        let mut is_busy = false;
        loop {
            tokio::select! {
                () = self.recalls.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY), if is_busy => {}
                () = shutdown.cancelled() => return,
            }
            let (begun, is_recalling) = self.begin_recalls();
            is_busy = is_recalling;
            for one in begun {
                let v4 = Arc::clone(&self);
                task::spawn(async move { v4.await_answer(one).await });
            }
        }
    }

    /// Queues what can be sent now, and says whether anything is recalled still.
    fn begin_recalls(&self) -> (Vec<OnItsWay>, bool) {
        let mut state = self.lock();
        let (state, now) = (&mut *state, self.now());
        if state.states.revoke_overdue(now, RECALL_TERM) > 0 {
            self.delegations_changed(state);
            for client in state.states.clients_with_delegations() {
                state.refresh_status(client);
            }
        }
        let mut begun = Vec::new();
        for recall in state.states.recalls_to_send(now) {
            let Some(number) = state.states.delegation_number(&recall.stateid) else { continue };
            let Some(HeldOpen { handle, granted, .. }) = state.states.held(number) else { continue };
            let (handle, referring) = (*handle, granted.and_then(|granted| granted.by));
            let op =
                CbArgOp::Recall(CbRecallArgs { stateid: recall.stateid, truncate: false, handle: Opaque(&handle) });
            let sent = match state.clients.back_channel(recall.client) {
                Some((session, connection)) => self
                    .back_channel(connection)
                    .and_then(|back| send(state, &back, session, referring, op))
                    .map(|(slot, answer)| (Some(slot), answer)),
                None => self.link(recall.client).and_then(|link| link.call(op)).map(|answer| (None, answer)),
            };
            let Some((slot, answer)) = sent else { continue };
            state.states.recall_sent(&recall.stateid);
            begun.push(OnItsWay { recall, slot, answer });
        }
        (begun, state.states.is_recalling())
    }

    async fn await_answer(&self, one: OnItsWay) {
        let answer = tokio::time::timeout(ANSWER_MAX, one.answer).await;
        drop(one.slot);
        let mut state = self.lock();
        let verdict = match &answer {
            Ok(Ok(reply)) => verdict(reply),
            // The connection has ended, or the client says nothing.
            Ok(Err(_)) | Err(_) => None,
        };
        match verdict {
            // It returns the delegation now; its time runs.
            Some(NfsStat::Ok) => {}
            // `recalls.by_whoever_is_bound`: also where the client does not know yet what it was granted, since the
            // reply to its OPEN was overtaken. It is asked again.
            _ => state.states.recall_lost(&one.recall.stateid, self.now()),
        }
        drop(state);
        self.recalls_wait();
    }
}

impl NfsV4 {
    /// Calls a client and awaits its answer; `None` where it cannot be reached, or says nothing in time.
    pub(super) async fn call_client(
        &self,
        client: ClientId,
        referring: Option<(SessionId, u32, u32)>,
        op: CbArgOp<'_>,
    ) -> Option<Bytes> {
        /// A pause while another call has the slot.
        const PAUSE: Duration = Duration::from_millis(10);
        let called = async {
            loop {
                let sent = {
                    let state = self.lock();
                    let (session, connection) = state.clients.back_channel(client)?;
                    let back = self.back_channel(connection)?;
                    send(&state, &back, session, referring, op)
                };
                let Some((slot, answer)) = sent else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let answer = answer.await.ok();
                drop(slot);
                self.recalls_wait();
                return answer;
            }
        };
        tokio::time::timeout(CLIENT_ASKED_MAX, called).await.ok().flatten()
    }

    /// Size and changes of a file by the word of the client that writes it (`recalls.writes_are_asked_for`); `None` if that
    /// client does not answer.
    pub async fn writer_attrs(&self, holder: WriteHolder) -> Option<WriterAttrs> {
        let (handle, granted) = {
            let state = self.lock();
            let held = state.states.held(holder.number)?;
            (held.handle, held.granted?)
        };
        let wanted = Bitmap::of(&[number::CHANGE, number::SIZE]);
        let op = CbArgOp::GetAttr(CbGetAttrArgs { handle: Opaque(&handle), wanted });
        let reply = Box::pin(self.call_client(holder.client, None, op)).await?;
        let answer = CbCompoundResult::get(&mut Reader::new(reply_results(&reply)?)).ok()?;
        let list = answer.results.iter().find_map(|result| match result {
            CbResOp::GetAttr(Ok(list)) => Some(list),
            _ => None,
        })?;
        let attrs = FileAttrs::decode_up_to(&list, number::SIZE).ok()?;
        let size = attrs.size?;
        Some(WriterAttrs { size, has_changed: attrs.change? != granted.change || size != granted.size })
    }

    /// The connection to a client of NFSv4.0.
    pub fn link(&self, client: ClientId) -> Option<Arc<CallbackLink>> {
        self.links.lock().get(&client).cloned()
    }

    pub fn is_linked(&self, client: ClientId) -> bool {
        self.link(client).is_some_and(|link| link.is_up())
    }

    /// A client of NFSv4.0 has confirmed itself, with the way back to it.
    pub fn link_to(self: &Arc<Self>, client: ClientId, path: &CallbackPath, caller: IpAddr) {
        let mut links = self.links.lock();
        if links.get(&client).is_some_and(|link| link.is_to(path) && link.is_up()) {
            return;
        }
        let made = CallbackLink::new(path, caller);
        let former = match &made {
            Some(link) => links.insert(client, Arc::clone(link)),
            None => links.remove(&client),
        };
        drop(links);
        former.inspect(|former| former.close());
        let Some(link) = made else { return };
        let v4 = Arc::downgrade(self);
        task::spawn(async move {
            let is_needed = || v4.upgrade().is_some_and(|v4| v4.lock().states.has_delegations(client));
            // Recalls may wait for it.
            let changed = || drop(v4.upgrade().inspect(|v4| v4.recalls_wait()));
            link.serve(is_needed, changed).await;
        });
    }

    /// `link.ends_with_client`
    pub fn close_links(&self) {
        let state = self.lock();
        self.links.lock().retain(|client, link| {
            let is_there = state.clients.is_confirmed(*client);
            if !is_there {
                link.close();
            }
            is_there
        });
    }

    /// Tells a client of sessions when a lock that it waits for may be free (`recalls.notify_is_a_hint`).
    pub fn notify_of_lock(
        self: &Arc<Self>,
        client: ClientId,
        owner: &[u8],
        (files, ino, file): (&Files, Ino, FileKey),
        handle: [u8; HANDLE_BYTES],
    ) {
        let wait = LockWait { client, owner: owner.into(), handle };
        let mut waits = self.lock_waits.0.lock();
        if waits.len() >= LOCK_WAITS_MAX {
            return;
        }
        let of_file = waits.entry(file).or_default();
        let is_first = of_file.is_empty();
        if of_file.len() < WAITS_OF_FILE_MAX && !of_file.iter().any(|other| other.is_same(&wait)) {
            of_file.push(wait);
        }
        drop(waits);
        if !is_first {
            return;
        }
        let (changed, v4) = (files.lock_changed(ino), Arc::clone(self));
        task::spawn(async move {
            // A client that waits asks again within a lease.
            let _ = tokio::time::timeout(LEASE, changed).await;
            let waits = v4.lock_waits.0.lock().remove(&file).unwrap_or_default();
            for wait in waits {
                let owner = StateOwner { client: wait.client, owner: Opaque(&wait.owner) };
                let op = CbArgOp::NotifyLock(CbNotifyLockArgs { handle: Opaque(&wait.handle), owner });
                let _ = v4.call_client(wait.client, None, op).await;
            }
        });
    }
}

impl LockWait {
    fn is_same(&self, other: &LockWait) -> bool {
        (self.client, &self.owner) == (other.client, &other.owner)
    }
}

/// The first failure in the answer to a call-back.
fn verdict(reply: &[u8]) -> Option<NfsStat> {
    let results = reply_results(reply)?;
    CbCompoundResult::get(&mut Reader::new(results)).ok().map(|answer| answer.status)
}

/// A call over the session's one slot for call-backs, if that is free.
fn send(
    state: &V4State,
    back: &BackChannel,
    session_id: SessionId,
    referring: Option<(SessionId, u32, u32)>,
    op: CbArgOp<'_>,
) -> Option<(BusySlot, oneshot::Receiver<Bytes>)> {
    let shared = state.clients.session(&session_id).ok()?;
    let mut session = shared.lock();
    if session.callbacks.is_busy {
        return None;
    }
    let sequence = session.callbacks.sequence.wrapping_add(1);
    let (program, minor) = (session.callback_program, session.callbacks.minor);
    // `recalls.referring`
    let calls: Vec<ReferringCall> =
        referring.iter().map(|(_, slot, sequence)| ReferringCall { sequence: *sequence, slot: *slot }).collect();
    let lists: Vec<ReferringCalls<'_>> = referring
        .iter()
        .map(|(session, ..)| ReferringCalls { session: *session, calls: XdrList::of(&calls) })
        .collect();
    let answer = back.call(|xid| {
        let encode = |referring| {
            let sequence = CbSequenceArgs {
                session: session_id,
                sequence,
                slot: 0,
                highest_slot: 0,
                cache_this: false,
                referring: XdrList::of(referring),
            };
            let ops = [CbArgOp::Sequence(sequence), op];
            let mut out = XdrOut::default();
            CbCompound { tag: NO_TAG, minor, ident: 0, ops: XdrList::of(&ops) }.put(&mut out);
            let cred = session.callbacks.cred.as_deref();
            call_with(xid, (program, CB_VERSION, CB_COMPOUND), cred, &out.into_bytes())
        };
        let whole = encode(&lists);
        // A client with less room than that for calls is told what it has to know.
        let bytes_max = usize::try_from(session.back.request_bytes).unwrap_or(usize::MAX);
        if whole.len() > bytes_max { encode(&[]) } else { whole }
    })?;
    (session.callbacks.sequence, session.callbacks.is_busy) = (sequence, true);
    drop(session);
    Some((BusySlot(shared), answer))
}
