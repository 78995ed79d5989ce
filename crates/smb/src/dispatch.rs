//! Per-frame dispatch: the requests of a frame run one after the other, and their responses go out together.

mod multi_protocol;
mod preauth;
mod reply;
mod verify;

use std::sync::Arc;

use bytes::Bytes;
use larder_smb_wire::crypto::SessionCipher;
use larder_smb_wire::crypto::encrypt::is_transform;
use larder_smb_wire::framing::Message;
use larder_smb_wire::header::{Command, SMB2_FLAGS_RELATED_OPERATIONS, SMB2_HEADER_LEN, Smb2Header};
use larder_smb_wire::messages::Dialect;
use tracing::{Instrument, debug, debug_span, warn};

use crate::admission::Room;
use crate::conn::chain;
use crate::conn::credits::charge_covers;
use crate::conn::limits::supports_multi_credit;
use crate::conn::related::RelatedContext;
use crate::conn::state::Connection;
use crate::conn::writer::ResponseQueue;
use crate::files::AfterSend;
use crate::handlers;
use crate::handlers::response::{HandlerResponse, Outcome, Pending, Refusal};
use crate::state::ServerState;
use larder_smb_wire::ntstatus;
use multi_protocol::{handle_smb1_multi_protocol, is_smb1_negotiate};
use preauth::Preauth;
use reply::{Reply, ReplyCtx, ReplyForm, finish_frame, lock_credits, push_reply};
use verify::{check_encryption, decrypt_frame, verify_request_signature};

/// The frames answering a request frame.
///
/// `chain.interim_alone`: an interim response has a frame of its own, and the
/// responses finished before it are sent ahead of it (MS-SMB2 3.3.4.2). Linux
/// drops an encrypted frame whole when one of its responses is STATUS_PENDING,
/// and then waits for the others for ever.
pub(crate) struct Outgoing {
    /// The finished responses, or the interim response when there are none.
    pub message: Message,
    /// The interim response of a request that went asynchronous, when `message` is sent before it.
    pub interim: Option<Message>,
    /// Room that the answers take until they have left.
    room: Option<Room>,
    /// Dropped once the frames are queued, which sends the lease breaks held
    /// back until then.
    pub after_send: Vec<AfterSend>,
    /// The rest of the chain, after a request that went asynchronous; runs
    /// once its interim response is queued.
    pub continuation: Option<Continuation>,
}

impl Outgoing {
    fn plain(bytes: Vec<u8>) -> Self {
        Self { message: bytes.into(), interim: None, room: None, after_send: Vec::new(), continuation: None }
    }

    pub(crate) fn keeping(self, room: Option<Room>) -> Self {
        Self { room, ..self }
    }

    /// Queues the frames in their order; lease breaks held back for them go out behind them. Returns the rest of the
    /// chain, which may run now. Fails once the writer is gone.
    pub(crate) async fn send(self, queue: &ResponseQueue) -> Result<Option<Continuation>, ()> {
        queue.send_keeping(self.message, self.room).await?;
        if let Some(interim) = self.interim {
            queue.send(interim).await?;
        }
        drop(self.after_send);
        Ok(self.continuation)
    }
}

/// The requests of one frame and how far they have run.
struct Chain {
    frame: Bytes,
    requests: Vec<chain::Request>,
    next: usize,
    /// Requests already run out of order: CANCELs taken ahead of the
    /// request they follow, once it went asynchronous.
    handled: Vec<bool>,
    related: RelatedContext,
    chain_failure: Option<u32>,
    encrypted: bool,
    /// The chain runs after an asynchronous request, beside the reader.
    continued: bool,
}

impl Chain {
    /// The next request that has not run, related ids filled in (MS-SMB2
    /// 3.3.5.2.7.2).
    fn take_next(&mut self) -> Option<Next> {
        while *self.handled.get(self.next)? {
            self.next += 1;
        }
        let request = &self.requests[self.next];
        self.next += 1;
        let (mut hdr, unknown) = (request.header, request.unknown);
        let received = self.frame.slice(request.range.clone());
        let retained = self.frame.len() - request.range.start;
        let mut frame = received.clone();
        let related = hdr.flags & SMB2_FLAGS_RELATED_OPERATIONS != 0;
        // One that is not related starts anew.
        if !related {
            self.chain_failure = None;
        }
        let mut failure = self.chain_failure.or(unknown.map(|_| ntstatus::STATUS_INVALID_PARAMETER));
        if failure.is_none() && related {
            let mut filled_in = received.to_vec();
            if let Err(f) = self.related.apply(&mut filled_in, &mut hdr) {
                failure = Some(f.status);
                if f.rest_of_chain {
                    self.chain_failure = Some(f.status);
                }
            }
            frame = Bytes::from(filled_in);
        }
        // The rest of a chain runs beside the reader once a request in it
        // went asynchronous, so nothing that has to run in order with the
        // connection's other frames, as the 3.1.1 preauth hash does, runs
        // there.
        if failure.is_none() && self.continued && matches!(hdr.command, Command::Negotiate | Command::SessionSetup) {
            failure = Some(ntstatus::STATUS_INVALID_PARAMETER);
        }
        Some(Next { hdr, unknown, received, frame, failure, retained })
    }

    /// The requests not yet run, without the bytes of those that have, for
    /// a continuation to keep.
    fn rest(self) -> Chain {
        let done = self.next.min(self.requests.len());
        let cut = self.requests[..done].last().map_or(0, |request| request.range.end);
        let requests = self.requests[done..]
            .iter()
            .map(|request| chain::Request {
                header: request.header,
                unknown: request.unknown,
                range: request.range.start - cut..request.range.end - cut,
            })
            .collect();
        Chain {
            frame: Bytes::copy_from_slice(&self.frame[cut..]),
            requests,
            next: 0,
            handled: self.handled[done..].to_vec(),
            related: self.related,
            chain_failure: self.chain_failure,
            encrypted: self.encrypted,
            continued: true,
        }
    }
}

/// The next request of a chain.
struct Next {
    hdr: Smb2Header,
    /// The command, when there is no such.
    unknown: Option<u16>,
    /// The request as it arrived.
    received: Bytes,
    /// The same with related ids filled in.
    frame: Bytes,
    /// The status that it fails with, without running.
    failure: Option<u32>,
    /// The bytes of the request and the rest of the frame, which stay in
    /// memory while this request waits.
    retained: usize,
}

impl Next {
    fn failed(&self, conn: &Connection, encrypted: bool, status: u32) -> Reply {
        let ctx = ReplyCtx::new(conn, &self.hdr, encrypted);
        let mut reply = ctx.build(conn, HandlerResponse::err(status), ReplyForm::Sync);
        if let (Some(command), Some(field)) = (self.unknown, reply.bytes.get_mut(12..14)) {
            field.copy_from_slice(&command.to_le_bytes());
        }
        reply
    }
}

/// A request that went asynchronous, with what its final response needs.
struct Suspended {
    pending: Pending,
    ctx: ReplyCtx,
    /// Its interim response, until it is sent.
    interim: Option<Reply>,
    /// The request as it ran, related ids filled in.
    request: Bytes,
}

/// The part of a compound frame that runs after a request in it went
/// asynchronous (MS-SMB2 3.3.5.2.7.2): that request's final response and
/// the responses of the requests after it go out in a frame of their own.
pub(crate) struct Continuation {
    chain: Chain,
    transform: Option<(u64, Arc<SessionCipher>)>,
    suspended: Suspended,
}

impl Continuation {
    /// Waits for the asynchronous request, then runs the rest of the chain
    /// and sends the responses. Another request that goes asynchronous ends
    /// that frame, is sent its interim response, and is waited for in turn.
    pub(crate) async fn run(self, server: Arc<ServerState>, conn: Arc<Connection>) {
        let mut waits = Some(self);
        while let Some(waiting) = waits {
            let Some(out) = waiting.finish(&server, &conn).await else {
                return conn.outbound.kill();
            };
            let Some(queue) = conn.outbound.queue() else {
                return;
            };
            waits = out.send(&queue).await.unwrap_or(None);
        }
    }

    /// The frames of the final response and of the requests behind it, up to the next that waits.
    async fn finish(self, server: &Arc<ServerState>, conn: &Arc<Connection>) -> Option<Outgoing> {
        let Continuation { mut chain, transform, suspended } = self;
        let Suspended { pending, ctx, request, .. } = suspended;
        let async_id = pending.op.async_id;
        let resp = pending.work.await;
        conn.pending.finish(async_id);
        let reply = ctx.build(conn, resp, ReplyForm::Final(async_id)).begins_frame();
        let mut replies = Vec::new();
        let remaining = chain.requests.len() - chain.next;
        push_reply(conn, &mut replies, reply, &ctx.hdr, remaining, chain.encrypted).await;
        let pushed = &replies.last().expect("just pushed").bytes;
        chain.related.update(ctx.hdr.command, &request, pushed);
        answer_chain(server, conn, chain, replies, transform).await
    }
}

/// Runs the rest of a chain behind `replies`, and makes its frames (`chain.interim_alone`).
async fn answer_chain(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    mut chain: Chain,
    mut replies: Vec<Reply>,
    transform: Option<(u64, Arc<SessionCipher>)>,
) -> Option<Outgoing> {
    let Some(mut suspended) = run_chain(server, conn, &mut chain, &mut replies).await else {
        let (message, after_send) = finish_frame(conn, replies, transform)?;
        return Some(Outgoing { message, interim: None, room: None, after_send, continuation: None });
    };
    let finished = match replies.is_empty() {
        true => None,
        false => Some(finish_frame(conn, replies, transform.clone())?),
    };
    let (interim, _) = finish_frame(conn, suspended.interim.take().into_iter().collect(), transform.clone())?;
    let continuation = Some(Continuation { chain: chain.rest(), transform, suspended });
    Some(match finished {
        Some((message, after_send)) => {
            Outgoing { message, interim: Some(interim), room: None, after_send, continuation }
        }
        None => Outgoing { message: interim, interim: None, room: None, after_send: Vec::new(), continuation },
    })
}

/// Top-level frame dispatch. Returns the frames to push into the writer
/// channel, or `None` if the request elicits no response (CANCEL).
#[cfg(any(test, fuzzing))]
pub(crate) async fn dispatch_frame(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    frame: &[u8],
) -> Option<Outgoing> {
    match receive_frame(server, conn, Bytes::copy_from_slice(frame)).await {
        Received::Nothing => None,
        Received::Answered(outgoing) => Some(outgoing),
        Received::Requests(requests) => requests.run(server, conn).await,
    }
}

/// What a frame turned out to hold. It is moved once, so its size costs less than a box.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Received {
    Nothing,
    /// It is answered already.
    Answered(Outgoing),
    Requests(Requests),
}

/// The requests of a frame, their MessageIds taken, ready to run.
pub(crate) struct Requests {
    chain: Chain,
    transform: Option<(u64, Arc<SessionCipher>)>,
}

impl Requests {
    /// Whether the requests may run beside others of the connection: those
    /// that work on files, which clients send without waiting for each
    /// other, and CANCEL, which must not wait at all. What changes the
    /// connection's sessions, trees and locks runs alone.
    pub(crate) fn may_overlap(&self) -> bool {
        self.chain.requests.iter().all(|request| {
            matches!(
                request.header.command,
                Command::Create
                    | Command::Close
                    | Command::Flush
                    | Command::Read
                    | Command::Write
                    | Command::QueryDirectory
                    | Command::QueryInfo
                    | Command::SetInfo
                    | Command::Echo
                    | Command::Cancel
            )
        })
    }

    /// The bytes that the requests read at most, as they say.
    pub(crate) fn answer_bytes(&self) -> usize {
        let of_one = |request: &chain::Request| match self.chain.frame.get(request.range.clone()) {
            Some(bytes) => chain::answer_size(request.header.command, bytes.get(SMB2_HEADER_LEN..).unwrap_or_default()),
            None => 0,
        };
        self.chain.requests.iter().map(of_one).sum()
    }

    /// What the requests may take of the connection's memory, in credits
    /// of 64 KiB.
    pub(crate) fn credits(&self) -> u32 {
        self.chain.requests.iter().map(|request| u32::from(request.header.credit_charge.max(1))).sum()
    }

    /// Runs the requests one after the other. Returns the frames to push
    /// into the writer channel, or `None` if nothing answers them (CANCEL).
    pub(crate) async fn run(self, server: &Arc<ServerState>, conn: &Arc<Connection>) -> Option<Outgoing> {
        answer_chain(server, conn, self.chain, Vec::new(), self.transform).await
    }
}

/// Takes a frame apart: decrypts it, finds its requests and takes their
/// MessageIds out of the window.
pub(crate) async fn receive_frame(server: &Arc<ServerState>, conn: &Arc<Connection>, frame: Bytes) -> Received {
    // SMB1 multi-protocol bootstrap (MS-SMB2 §3.3.5.3.1). The only SMB1 we
    // accept: a NEGOTIATE_REQUEST listing "SMB 2.???" or "SMB 2.002", as the
    // first request on the connection (3.3.5.3).
    if is_smb1_negotiate(&frame) {
        // Its MessageId counts as 0 (MS-SMB2 3.3.5.2.3).
        if conn.negotiated.dialect().is_some() || !lock_credits(conn).consume(0, 1) {
            warn!("SMB1 NEGOTIATE is not the first request; closing connection");
            conn.request_disconnect();
            return Received::Nothing;
        }
        let reply = handle_smb1_multi_protocol(server, conn, &frame).await;
        if reply.is_none() {
            warn!("SMB1 NEGOTIATE without an SMB2 dialect; closing connection");
            conn.request_disconnect();
        }
        return reply.map_or(Received::Nothing, |reply| Received::Answered(Outgoing::plain(reply)));
    }
    let (frame, transform) = if is_transform(&frame) {
        match decrypt_frame(conn, frame) {
            Ok((message, session_id, cipher)) => (message, Some((session_id, cipher))),
            Err(reason) => {
                warn!(%reason, "encrypted message refused; closing connection");
                conn.request_disconnect();
                return Received::Nothing;
            }
        }
    } else {
        (frame, None)
    };
    let dialect = conn.negotiated.dialect();
    let requests = match chain::split(&frame, dialect).and_then(|requests| match &transform {
        Some((session_id, _)) => chain::check_encrypted(&requests, *session_id).map(|()| requests),
        None => Ok(requests),
    }) {
        Ok(requests) => requests,
        Err(reason) => {
            warn!(%reason, "malformed frame; closing connection");
            conn.request_disconnect();
            return Received::Nothing;
        }
    };
    if let Err(message_id) = consume_message_ids(conn, &requests, dialect) {
        warn!(message_id, "MessageId outside the window; closing connection");
        conn.request_disconnect();
        return Received::Nothing;
    }

    // A chain whose first request is marked related fails up to the first
    // that is not (MS-SMB2 3.3.5.2.7.2).
    let chain_failure =
        (requests[0].header.flags & SMB2_FLAGS_RELATED_OPERATIONS != 0).then_some(ntstatus::STATUS_INVALID_PARAMETER);
    let chain = Chain {
        frame,
        handled: vec![false; requests.len()],
        requests,
        next: 0,
        related: RelatedContext::default(),
        chain_failure,
        encrypted: transform.is_some(),
        continued: false,
    };
    Received::Requests(Requests { chain, transform })
}

/// Runs the chain's requests from where it stopped, adding their responses
/// to `replies`, until it ends or a request goes asynchronous.
async fn run_chain(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    chain: &mut Chain,
    replies: &mut Vec<Reply>,
) -> Option<Suspended> {
    while let Some(next) = chain.take_next() {
        let (hdr, encrypted) = (&next.hdr, chain.encrypted);
        let remaining = chain.requests.len() - chain.next;
        if let Some(status) = next.failure {
            if hdr.command != Command::Cancel {
                debug!(command = ?hdr.command, status, "related request fails without running");
                push_reply(conn, replies, next.failed(conn, encrypted, status), hdr, remaining, encrypted).await;
            }
            continue;
        }
        let reply = match dispatch_one(server, conn, &next.frame, &next.received, encrypted, next.retained).await {
            None => continue,
            Some(Dispatched::Done(reply)) => reply,
            Some(Dispatched::Pending(pending, ctx)) => match may_wait(hdr, remaining) {
                true => {
                    let waits = HandlerResponse::err(ntstatus::STATUS_PENDING);
                    let interim = ctx.build(conn, waits, ReplyForm::Interim(pending.op.async_id)).begins_frame();
                    take_cancels(server, conn, chain).await;
                    return Some(Suspended { pending, ctx, interim: Some(interim), request: next.frame });
                }
                false => {
                    conn.pending.finish(pending.op.async_id);
                    drop(pending);
                    ctx.build(conn, HandlerResponse::err(ntstatus::STATUS_INTERNAL_ERROR), ReplyForm::Sync)
                }
            },
        };
        push_reply(conn, replies, reply, hdr, remaining, encrypted).await;
        let pushed = &replies.last().expect("just pushed").bytes;
        chain.related.update(hdr.command, &next.frame, pushed);
    }
    None
}

/// Whether a request may go asynchronous. A CHANGE_NOTIFY can wait
/// indefinitely, and the requests after it would wait with it: it fails unless
/// it is last (MS-SMB2 3.3.5.2.7). Its watch stays armed.
fn may_wait(hdr: &Smb2Header, remaining: usize) -> bool {
    hdr.command != Command::ChangeNotify || remaining == 0
}

/// Runs the CANCELs compounded after a request that just went
/// asynchronous, so they can reach it (MS-SMB2 3.3.5.16). A CANCEL marked
/// related, or one that fails its checks, runs in its turn instead.
async fn take_cancels(server: &Arc<ServerState>, conn: &Arc<Connection>, chain: &mut Chain) {
    for index in chain.next..chain.requests.len() {
        let request = &chain.requests[index];
        if request.header.command != Command::Cancel || request.header.flags & SMB2_FLAGS_RELATED_OPERATIONS != 0 {
            continue;
        }
        let received = chain.frame.slice(request.range.clone());
        let ctx = ReplyCtx::new(conn, &request.header, chain.encrypted);
        // A refusal is answered, and its credits granted, once: in its turn.
        if check_origin(server, conn, &ctx, &received).await.is_ok() {
            conn.pending.cancel(&ctx.hdr);
            chain.handled[index] = true;
        }
    }
}

/// What handling one request produced.
enum Dispatched {
    Done(Reply),
    /// The request completes later; the context builds its responses.
    Pending(Pending, ReplyCtx),
}

/// Takes each request's MessageIds out of the connection's window: one id,
/// or CreditCharge ids for a multi-credit request on SMB 2.1 and 3.x. CANCEL
/// takes none (MS-SMB2 3.3.5.2.3). Fails with the first MessageId that is not
/// available.
fn consume_message_ids(conn: &Connection, requests: &[chain::Request], dialect: Option<Dialect>) -> Result<(), u64> {
    let mut window = lock_credits(conn);
    for request in requests {
        let hdr = &request.header;
        if hdr.command == Command::Cancel {
            continue;
        }
        let count = if supports_multi_credit(dialect) { u64::from(hdr.credit_charge.max(1)) } else { 1 };
        if !window.consume(hdr.message_id, count) {
            return Err(hdr.message_id);
        }
    }
    Ok(())
}

/// Handles one request. `frame` is the request with related-operation ids
/// filled in; `received` is the same request as it arrived, which is what
/// the client signed and hashed; `encrypted` tells whether it arrived
/// encrypted; `retained` is the size of the request and the requests
/// compounded after it.
async fn dispatch_one(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    frame: &Bytes,
    received: &[u8],
    encrypted: bool,
    retained: usize,
) -> Option<Dispatched> {
    let (req_hdr, body_bytes) = match Smb2Header::parse(frame) {
        Ok(p) => p,
        Err(e) => {
            warn!(error = %e, "failed to parse header");
            return None;
        }
    };

    let (cmd, mid, sid) = (req_hdr.command, req_hdr.message_id, req_hdr.session_id);
    let span = debug_span!("dispatch", cmd = ?cmd, mid, sid, tid = req_hdr.tree_id().unwrap_or(0));
    // The request's session is kept so LOGOFF's response can still be
    // signed with its key after the handler removes it.
    let ctx = ReplyCtx::new(conn, &req_hdr, encrypted);
    run_one(server, conn, ctx, frame.slice_ref(body_bytes), received, retained).instrument(span).await
}

async fn run_one(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    ctx: ReplyCtx,
    body: Bytes,
    received: &[u8],
    retained: usize,
) -> Option<Dispatched> {
    debug!("dispatch start");
    let hdr = &ctx.hdr;
    let reply = |resp: HandlerResponse| ctx.build(conn, resp, ReplyForm::Sync);
    if let Err(refusal) = check_origin(server, conn, &ctx, received).await {
        let mut refused = HandlerResponse::err(refusal.status);
        refused.signing_key = refusal.key;
        return Some(Dispatched::Done(reply(refused)));
    }
    // CANCEL is fire-and-forget - no response.
    if hdr.command == Command::Cancel {
        debug!("CANCEL received; no response");
        conn.pending.cancel(hdr);
        return None;
    }
    if let Err(status) = check_body(conn, hdr, &body) {
        return Some(Dispatched::Done(reply(HandlerResponse::err(status))));
    }

    let preauth = Preauth::begin(conn, hdr, received);
    if hdr.command == Command::SessionSetup {
        let dropped = conn.logons.drop_stale(server.config.limits.handshake_timeout);
        if dropped > 0 {
            debug!(dropped, "dropped logons that took too long");
        }
    }
    let handled = handlers::dispatch_command(server, conn, (hdr, &ctx.tree), &body, ctx.encrypted, retained).await;
    let resp = match handled {
        Outcome::Done(resp) => resp,
        Outcome::Pending(pending) => {
            debug!(async_id = pending.op.async_id, "request pending");
            return Some(Dispatched::Pending(pending, ctx));
        }
    };
    if hdr.command == Command::SessionSetup && resp.status != ntstatus::STATUS_MORE_PROCESSING_REQUIRED {
        conn.logons.end(hdr.session_id);
    }
    preauth.set_keys(conn, &resp);
    let mut response = reply(resp);
    preauth.end(conn, &mut response);
    Some(Dispatched::Done(response))
}

/// Whether a request comes from its session's client, and encrypted where it has to be.
async fn check_origin(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    ctx: &ReplyCtx,
    received: &[u8],
) -> Result<(), Refusal> {
    // An encrypted request is not signed; its decryption checked it.
    if !ctx.encrypted {
        verify_request_signature(server, conn, ctx, received).await?;
    }
    check_encryption(&ctx.hdr, ctx.encrypted, ctx.tree.as_deref().ok()).map_err(Refusal::unsigned)
}

/// Whether a body has the form of its command (MS-SMB2 3.3.5.2.6) and the request's CreditCharge covers it (3.3.5.2.5).
fn check_body(conn: &Connection, hdr: &Smb2Header, body: &[u8]) -> Result<(), u32> {
    let malformed = !chain::body_is_well_formed(hdr.command, body);
    if malformed {
        warn!("request body does not match its StructureSize");
    }
    let undercharged = supports_multi_credit(conn.negotiated.dialect())
        && !charge_covers(hdr.credit_charge, chain::payload_size(hdr.command, body));
    if undercharged {
        warn!(credit_charge = hdr.credit_charge, "CreditCharge does not cover the payload");
    }
    if malformed || undercharged { Err(ntstatus::STATUS_INVALID_PARAMETER) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::reply::align_8;
    use super::*;
    use crate::conn::state::{Session, SessionKeys, TreeConnect};
    use crate::door::view::VisitedShare;
    use crate::utils::read_u32;
    use crate::{Access, Share, SmbServer};
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::crypto::{SigningAlgo, sign, verify};
    use larder_smb_wire::header::{HeaderTail, SMB2_FLAGS_SIGNED};
    use larder_smb_wire::messages::{CloseRequest, CreateRequest, Dialect, EmptyBody, FileId, QueryInfoRequest};
    use uuid::Uuid;

    fn test_conn() -> Arc<Connection> {
        Arc::new(Connection::new(Uuid::nil(), 1024 * 1024, 1024 * 1024))
    }

    const KEY: [u8; 16] = [0x42; 16];
    const RELATED_FILE_ID: FileId = FileId::new(u64::MAX, u64::MAX);

    /// Server with alice signed in on session 1 and connected to `home` on
    /// tree 1, signing with `KEY`.
    async fn signed_session() -> (Arc<ServerState>, Arc<Connection>) {
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .user("alice", "password")
            .share(
                Share::of("home", VisitedShare::in_memory().await.with_file("f.txt", b"data").await)
                    .user("alice", Access::ReadWrite),
            )
            .build()
            .expect("build");
        let state = server.state();
        let conn = test_conn();
        conn.negotiated.set_dialect(Dialect::Smb300, SigningAlgo::AesCmac);
        {
            let mut credits = conn.credits.lock().expect("credits");
            assert!(credits.consume(0, 1));
            credits.grant(64, false);
        }

        let identity = Identity::User { user: "alice".to_string(), domain: String::new() };
        let session = Session::new(identity, [0; 16], true);
        session.set_keys(SessionKeys { signing: KEY, cipher: None });
        let share = state.find_share("home").await.expect("share");
        let tree = TreeConnect::new(1, share, Access::ReadWrite);
        session.trees.change().await.insert(1, Arc::new(tree));
        conn.sessions.change().await.insert(1, Arc::new(session));
        (state, conn)
    }

    /// Signed requests chained into one compound frame; every request after
    /// the first is related.
    fn signed_compound(requests: &[(Command, Vec<u8>)]) -> Vec<u8> {
        let mut frame = Vec::new();
        for (index, (command, body)) in requests.iter().enumerate() {
            let last = index + 1 == requests.len();
            let mut flags = SMB2_FLAGS_SIGNED;
            if index > 0 {
                flags |= SMB2_FLAGS_RELATED_OPERATIONS;
            }
            let hdr = Smb2Header {
                credit_charge: 1,
                command: *command,
                credit_request_response: 1,
                flags,
                message_id: index as u64 + 10,
                tail: HeaderTail::sync(1),
                session_id: 1,
                ..Default::default()
            };
            let mut msg = Vec::new();
            hdr.write(&mut msg).expect("header");
            msg.extend_from_slice(body);
            if !last {
                msg.resize(align_8(msg.len()), 0);
                let next = msg.len() as u32;
                msg[0x14..0x18].copy_from_slice(&next.to_le_bytes());
            }
            sign(&mut msg, &KEY, SigningAlgo::AesCmac).expect("sign");
            frame.extend_from_slice(&msg);
        }
        frame
    }

    /// CREATE f.txt, then related QUERY_INFO and CLOSE on the new FileId.
    /// The QUERY_INFO response, 76 bytes, is padded in the compound.
    fn create_query_close() -> Vec<u8> {
        let name = larder_smb_wire::text::utf16le("f.txt");
        let mut create = Vec::new();
        CreateRequest {
            structure_size: 57,
            security_flags: 0,
            requested_oplock_level: 0,
            impersonation_level: 2,
            smb_create_flags: 0,
            reserved: 0,
            desired_access: 0x0012_0089,
            file_attributes: 0,
            share_access: 0x0000_0007,
            create_disposition: 1,
            create_options: 0,
            name_offset: 0x78,
            name_length: name.len() as u16,
            create_contexts_offset: 0,
            create_contexts_length: 0,
            name,
            create_contexts: vec![],
        }
        .write_to(&mut create)
        .expect("create");
        let mut query = Vec::new();
        QueryInfoRequest {
            structure_size: 41,
            info_type: 1,
            file_information_class: larder_smb_wire::info_class::FILE_EA_INFORMATION,
            output_buffer_length: 4096,
            input_buffer_offset: 0,
            reserved: 0,
            input_buffer_length: 0,
            additional_information: 0,
            flags: 0,
            file_id: RELATED_FILE_ID,
            input_buffer: vec![],
        }
        .write_to(&mut query)
        .expect("query");
        let mut close = Vec::new();
        CloseRequest { structure_size: 24, flags: 0, reserved: 0, file_id: RELATED_FILE_ID }
            .write_to(&mut close)
            .expect("close");
        signed_compound(&[(Command::Create, create), (Command::QueryInfo, query), (Command::Close, close)])
    }

    /// Each response in a compound frame: (status, bytes up to the next).
    fn split_responses(frame: &[u8]) -> Vec<(u32, &[u8])> {
        let mut out = Vec::new();
        let mut rest = frame;
        loop {
            let next = read_u32(rest, 0x14) as usize;
            let len = if next == 0 { rest.len() } else { next };
            out.push((read_u32(rest, 0x08), &rest[..len]));
            if next == 0 {
                return out;
            }
            rest = &rest[next..];
        }
    }

    #[tokio::test]
    async fn signed_related_compound_requests_are_accepted() {
        let (state, conn) = signed_session().await;
        let frame = dispatch_frame(&state, &conn, &create_query_close()).await.expect("response").message.head;
        let statuses: Vec<u32> = split_responses(&frame).iter().map(|r| r.0).collect();
        assert_eq!(statuses, [ntstatus::STATUS_SUCCESS; 3]);
    }

    #[tokio::test]
    async fn compound_responses_are_signed_over_their_padding() {
        let (state, conn) = signed_session().await;
        let frame = dispatch_frame(&state, &conn, &create_query_close()).await.expect("response").message.head;
        for (index, (_, response)) in split_responses(&frame).into_iter().enumerate() {
            assert_ne!(read_u32(response, 0x10) & SMB2_FLAGS_SIGNED, 0);
            assert!(verify(response, &KEY, SigningAlgo::AesCmac).is_ok(), "response {index} signature");
        }
    }

    #[tokio::test]
    async fn logoff_response_is_signed() {
        let (state, conn) = signed_session().await;
        let mut body = Vec::new();
        EmptyBody::default().write_to(&mut body).expect("logoff");
        let request = signed_compound(&[(Command::Logoff, body)]);
        let response = dispatch_frame(&state, &conn, &request).await.expect("response").message.head;
        assert_eq!(read_u32(&response, 0x08), ntstatus::STATUS_SUCCESS);
        assert_ne!(read_u32(&response, 0x10) & SMB2_FLAGS_SIGNED, 0);
        assert!(verify(&response, &KEY, SigningAlgo::AesCmac).is_ok());
        assert!(conn.sessions.is_empty());
    }
}
