//! Delegations of other clients and their recall (RFC 8881 10.2, 20.2).
//!
//! - `recalls.reads_alone`: clients are granted delegations to read. Those cache data, attributes and opens, and send
//!   nothing back, so a recall ends as soon as the client has heard of it.
//! - `recalls.before_the_change`: a change by another client is answered with NFS4ERR_DELAY until the delegations of
//!   the file have ended; other doors wait for the same ([`Holder`]).
//! - `recalls.by_whoever_is_bound`: a recall goes over the connection that is bound at the time. One that a connection
//!   took to its end is sent again by the next.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_files::Files;
use larder_files::leases::{Holder, Recall};
use larder_volume::Ino;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::rpc::{call_with, reply_results};
use super::super::xdr::Reader;
use super::back_channel::BackChannel;
use super::callback::{CbArgOp, CbCompound, CbCompoundResult, CbRecallArgs, CbSequenceArgs};
use super::compound::NO_TAG;
use super::file_table::{FileKey, LockOwnerId};
use super::server::{NfsV4, V4State};
use super::state::RecallToSend;
use super::types::{NfsStat, SessionId};
use super::wire::{Opaque, Xdr, XdrList, XdrOut};

/// The time in which a client returns what was recalled. Less than other doors wait (MS-SMB2 has 35 s).
const RECALL_TERM: Duration = Duration::from_secs(30);
/// An answer that takes longer is none; the client may still return what was recalled.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often recalls under way are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The program of call-backs is of version 1 (RFC 5665 aside, RFC 8881 20), and has the procedures NULL and
/// CB_COMPOUND.
const CB_VERSION: u32 = 1;
const CB_COMPOUND: u32 = 1;

/// The delegations of one volume, as other doors see them.
pub struct VolumeDelegations {
    pub v4: Weak<NfsV4>,
    pub volume: u64,
}

impl Holder for VolumeDelegations {
    fn holds(&self, ino: Ino, what: Recall) -> bool {
        // `recalls.reads_alone`: readers keep nothing that others would miss.
        let Some(v4) = self.v4.upgrade() else { return false };
        let file = FileKey { volume: self.volume, inode: ino.0 };
        match what {
            Recall::Writes => false,
            Recall::Data | Recall::Attributes => v4.has_delegations() && v4.lock().states.is_delegated(file),
            Recall::Handles => v4.holds_or_is_silent(file),
        }
    }

    /// Clients take back what they had before the restart: what other doors would lock now may be theirs.
    fn awaits_reclaims(&self) -> bool {
        self.v4.upgrade().is_some_and(|v4| v4.is_in_grace(self.volume))
    }

    /// `clients.courtesy_keeps`: until somebody needs it.
    fn loses_lock(&self, _ino: Ino, owner: u64) -> bool {
        let Some(v4) = self.v4.upgrade() else { return false };
        let mut state = v4.lock();
        let Some(client) = state.states.client_of_lock(LockOwnerId(owner)) else { return false };
        let is_silent = state.clients.is_courteous(client, v4.now());
        if is_silent {
            // A crash that takes the record's change takes the other door's lock as well.
            state.end_client(client);
            v4.delegations_changed(&state);
            v4.is_used();
        }
        is_silent
    }

    fn recall(&self, ino: Ino, _what: Recall) -> BoxFuture<'_, ()> {
        let file = FileKey { volume: self.volume, inode: ino.0 };
        Box::pin(async move {
            if let Some(v4) = self.v4.upgrade() {
                v4.recall(file).await;
            }
        })
    }
}

/// A recall on its way.
struct OnItsWay {
    recall: RecallToSend,
    session: SessionId,
    answer: oneshot::Receiver<Bytes>,
}

impl NfsV4 {
    /// Something is about to be held in a volume: from now on other doors ask (`leases.asked_first`).
    pub fn will_hold(&self, files: &Files) {
        let to_be_asked = self.lock().states.table().to_be_asked(files);
        if let Some((volume, holder)) = to_be_asked {
            files.add_holder(holder);
            self.lock().states.table().is_asked(volume);
        }
    }

    /// Whether somebody has to be asked about a name's end. Silent clients are asked for nothing and lose what they
    /// hold.
    fn holds_or_is_silent(&self, file: FileKey) -> bool {
        let mut state = self.lock();
        if state.end_silent(file, None, self.now()) {
            self.delegations_changed(&state);
        }
        state.states.is_delegated(file)
    }

    /// Recalls the delegations of a file, and waits until they have ended (`recalls.before_the_change`).
    async fn recall(&self, file: FileKey) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            {
                let mut state = self.lock();
                if state.end_silent(file, None, self.now()) {
                    self.delegations_changed(&state);
                }
                if state.states.conflict(file, None, true).is_ok() {
                    return;
                }
            }
            self.recalls_wait();
            ended.await;
        }
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
                tokio::spawn(async move { v4.await_answer(one).await });
            }
        }
    }

    /// Queues what can be sent now, and says whether anything is recalled still.
    fn begin_recalls(&self) -> (Vec<OnItsWay>, bool) {
        let mut state = self.lock();
        let (state, now) = (&mut *state, self.now());
        let clients = &state.clients;
        let reachable = |client| clients.back_channel(client).is_some();
        if state.states.revoke_overdue(now, RECALL_TERM, &reachable) > 0 {
            self.delegations_changed(state);
            for client in state.states.clients_with_delegations() {
                state.refresh_status(client);
            }
        }
        let mut begun = Vec::new();
        for recall in state.states.recalls_to_send() {
            let Some((session, connection)) = state.clients.back_channel(recall.client) else { continue };
            let Some(back) = self.back_channel(connection) else { continue };
            let Some(answer) = send(state, &back, session, &recall) else { continue };
            state.states.recall_sent(&recall.stateid, now);
            begun.push(OnItsWay { recall, session, answer });
        }
        (begun, state.states.is_recalling())
    }

    async fn await_answer(&self, one: OnItsWay) {
        let answer = tokio::time::timeout(ANSWER_MAX, one.answer).await;
        let mut state = self.lock();
        if let Ok(session) = state.clients.session(&one.session) {
            session.lock().callbacks.is_busy = false;
        }
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
            _ => state.states.recall_lost(&one.recall.stateid),
        }
        drop(state);
        self.recalls_wait();
    }
}

/// The first failure in the answer to a call-back.
fn verdict(reply: &[u8]) -> Option<NfsStat> {
    let results = reply_results(reply)?;
    CbCompoundResult::get(&mut Reader::new(results)).ok().map(|answer| answer.status)
}

/// A recall over the session's one slot for call-backs, if that is free.
fn send(
    state: &mut V4State,
    back: &BackChannel,
    session_id: SessionId,
    recall: &RecallToSend,
) -> Option<oneshot::Receiver<Bytes>> {
    let number = state.states.delegation_number(&recall.stateid)?;
    let handle = state.states.table().handle(number)?;
    let session = state.clients.session(&session_id).ok()?;
    let mut session = session.lock();
    if session.callbacks.is_busy {
        return None;
    }
    let sequence = session.callbacks.sequence.wrapping_add(1);
    let (program, minor) = (session.callback_program, session.callbacks.minor);
    let cred = session.callbacks.cred.clone();
    let answer = back.call(|xid| {
        let ops = [
            CbArgOp::Sequence(CbSequenceArgs {
                session: session_id,
                sequence,
                slot: 0,
                highest_slot: 0,
                cache_this: false,
                referring: XdrList::of(&[]),
            }),
            CbArgOp::Recall(CbRecallArgs { stateid: recall.stateid, truncate: false, handle: Opaque(&handle) }),
        ];
        let mut out = XdrOut::default();
        CbCompound { tag: NO_TAG, minor, ident: 0, ops: XdrList::of(&ops) }.put(&mut out);
        call_with(xid, (program, CB_VERSION, CB_COMPOUND), cred.as_deref(), &out.into_bytes())
    })?;
    (session.callbacks.sequence, session.callbacks.is_busy) = (sequence, true);
    Some(answer)
}
