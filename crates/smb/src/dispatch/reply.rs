//! The responses of a frame: how each is formed, signed and encrypted, and how they are joined.

use std::sync::Arc;

use bytes::Bytes;
use tracing::{error, warn};

use crate::conn::credits::CreditWindow;
use crate::conn::state::{Connection, Session, SigningKey, TreeConnect};
use crate::files::AfterSend;
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::{RequestTree, tree_of};
use crate::utils::{read_u16, read_u32, read_u64};
use larder_smb_wire::crypto::{SessionCipher, TRANSFORM_HEADER_LEN, sign_pieces};
use larder_smb_wire::framing::{MAX_FRAME_PAYLOAD, Message};
use larder_smb_wire::header::{
    Command, HeaderTail, SMB2_FLAGS_ASYNC_COMMAND, SMB2_FLAGS_RELATED_OPERATIONS, SMB2_FLAGS_SERVER_TO_REDIR,
    SMB2_FLAGS_SIGNED, SMB2_HEADER_LEN, Smb2Header,
};
use larder_smb_wire::messages::FileId;
use larder_smb_wire::ntstatus;

/// One response of a frame, before the responses are joined.
pub(super) struct Reply {
    /// The response up to its bulk data.
    pub(super) bytes: Vec<u8>,
    pub(super) payload: Vec<Bytes>,
    /// The key the response is signed with.
    pub(super) signing_key: Option<SigningKey>,
    /// The session the response is encrypted for and its keys, when it
    /// must be encrypted.
    pub(super) cipher: Option<(u64, Arc<SessionCipher>)>,
    pub(super) after_send: Vec<AfterSend>,
    pub(super) form: ReplyForm,
    /// The tree that a CREATE came on: the open it made is closed there when its response does not fit.
    created_on: Option<Arc<TreeConnect>>,
}

impl Reply {
    /// The reply as the first of its frame, which relates to nothing before it
    /// (MS-SMB2 3.3.4.1.3). Signatures are computed when the frame is joined.
    pub(super) fn begins_frame(mut self) -> Self {
        if let Some(flags) = self.bytes.get_mut(0x10..0x14) {
            let value = u32::from_le_bytes(flags.try_into().expect("4 bytes")) & !SMB2_FLAGS_RELATED_OPERATIONS;
            flags.copy_from_slice(&value.to_le_bytes());
        }
        self
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.payload.iter().map(Bytes::len).sum::<usize>()
    }
}

/// How a response header is formed: a response sent at once, the interim
/// response of a request that completes later (MS-SMB2 3.3.4.2), or that
/// request's final response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyForm {
    Sync,
    Interim(u64),
    Final(u64),
}

/// What answering a request needs from it, kept so a request completed
/// later is answered as it would have been at once: signed with the key of
/// the session it came on even after a LOGOFF, and encrypted the same way.
#[derive(Clone)]
pub(crate) struct ReplyCtx {
    pub(super) hdr: Smb2Header,
    pub(super) session: Option<Arc<Session>>,
    /// The request's tree, or the status without one. Found once for the request.
    pub(super) tree: RequestTree,
    /// The session's key on this connection.
    pub(super) key: Option<SigningKey>,
    pub(super) cipher: Option<Arc<SessionCipher>>,
    pub(super) encrypted: bool,
}

impl ReplyCtx {
    pub(super) fn new(conn: &Connection, hdr: &Smb2Header, encrypted: bool) -> Self {
        let session = conn.sessions.get(hdr.session_id);
        let tree = tree_of(session.as_ref(), hdr);
        let key = session.as_ref().and_then(|session| conn.signing_key(hdr.session_id, session));
        let cipher = response_cipher(hdr, encrypted, session.as_deref(), tree.as_deref().ok());
        Self { hdr: *hdr, session, tree, key, cipher, encrypted }
    }

    /// What a response on the session `session_id` is signed with. SESSION_SETUP makes the session, gives it its key or
    /// ends it; every other response is signed as its request was.
    fn response_key(&self, conn: &Connection, session_id: u64) -> Option<SigningKey> {
        if self.hdr.command != Command::SessionSetup {
            return self.key;
        }
        match conn.sessions.get(session_id) {
            Some(session) => conn.signing_key(session_id, &session),
            None => self.key.filter(|_| session_id == self.hdr.session_id),
        }
    }

    /// The response `resp` in `form`. Credits go with the interim response
    /// of an asynchronous request, so its final response grants none
    /// (MS-SMB2 3.3.4.1.2, 3.3.4.4); an interim response is never signed
    /// (MS-SMB2 3.3.4.2).
    pub(super) fn build(&self, conn: &Connection, mut resp: HandlerResponse, form: ReplyForm) -> Reply {
        resp.skip_signing |= self.cipher.is_some() || self.encrypted || matches!(form, ReplyForm::Interim(_));
        let after_send = std::mem::take(&mut resp.after_send);
        let payload = std::mem::take(&mut resp.payload);
        let granted = match form {
            ReplyForm::Final(_) => 0,
            ReplyForm::Sync | ReplyForm::Interim(_) => grant_credits(conn, &self.hdr),
        };
        let key = self.response_key(conn, resp.override_session_id.unwrap_or(self.hdr.session_id));
        let (bytes, signing_key) = build_response_bytes(&self.hdr, resp, key, granted, form);
        Reply {
            bytes,
            payload,
            signing_key,
            cipher: self.cipher.clone().map(|c| (self.hdr.session_id, c)),
            after_send,
            form,
            created_on: self.tree.as_ref().ok().filter(|_| self.hdr.command == Command::Create).cloned(),
        }
    }
}

/// Whether a response of `len` bytes fits in the frame after `replies`,
/// with room kept for an error response to each of the `remaining`
/// requests after it.
fn fits(replies: &[Reply], len: usize, remaining: usize) -> bool {
    let response_len = replies.iter().fold(0, |sum, r| align_8(sum) + r.len());
    align_8(response_len) + len + remaining * ERROR_RESPONSE_ROOM + TRANSFORM_HEADER_LEN <= MAX_FRAME_PAYLOAD as usize
}

/// Adds `reply` to the replies of a frame. A response that does not fit is
/// replaced by an error response. A CREATE replaced that way closes the
/// open it made first, so the client is left with no open or lease it was
/// not told about.
pub(super) async fn push_reply(
    conn: &Arc<Connection>,
    replies: &mut Vec<Reply>,
    mut reply: Reply,
    req_hdr: &Smb2Header,
    remaining: usize,
    encrypted: bool,
) {
    if !fits(replies, reply.len(), remaining) {
        warn!(len = reply.len(), "response does not fit in one frame");
        if req_hdr.command == Command::Create
            && read_u32(&reply.bytes, 0x08) == ntstatus::STATUS_SUCCESS
            && let (Some(tree), Some(file_id)) = (&reply.created_on, created_file_id(&reply.bytes))
        {
            discard_open(tree, file_id).await;
        }
        drop(std::mem::take(&mut reply.after_send));
        let mut error = HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
        error.skip_signing = encrypted || reply.cipher.is_some();
        let granted = read_u16(&reply.bytes, 0x0E);
        let session = conn.sessions.get(req_hdr.session_id);
        let key = session.and_then(|session| conn.signing_key(req_hdr.session_id, &session));
        let (bytes, signing_key) = build_response_bytes(req_hdr, error, key, granted, reply.form);
        reply.bytes = bytes;
        reply.payload = Vec::new();
        reply.signing_key = signing_key;
    }
    replies.push(reply);
}

/// FileId of a CREATE response.
fn created_file_id(response: &[u8]) -> Option<FileId> {
    let at = SMB2_HEADER_LEN + 64;
    let bytes = response.get(at..at + 16)?;
    Some(FileId::new(read_u64(bytes, 0), read_u64(bytes, 8)))
}

/// Closes the open or pipe `file_id` that a CREATE made on `tree`.
async fn discard_open(tree: &TreeConnect, file_id: FileId) {
    match tree.remove_file(file_id) {
        Some(open) => drop(crate::files::close_open(&open, false).await),
        None => drop(tree.remove_pipe(file_id)),
    }
}

/// Joins the replies of a frame and encrypts the frame when it must be.
/// Returns the frame and the guards to drop once it is queued, or `None`
/// for no replies or a frame that cannot be encrypted, which also closes
/// the connection.
pub(super) fn finish_frame(
    conn: &Connection,
    mut replies: Vec<Reply>,
    transform: Option<(u64, Arc<SessionCipher>)>,
) -> Option<(Message, Vec<AfterSend>)> {
    if replies.is_empty() {
        return None;
    }
    // A reply to an encrypted message is encrypted with the keys it came
    // with; otherwise the frame is encrypted when one of its responses must
    // be (MS-SMB2 3.3.4.1.4).
    let cipher = transform.or_else(|| replies.iter().find_map(|r| r.cipher.clone()));
    let after_send = replies.iter_mut().flat_map(|r| std::mem::take(&mut r.after_send)).collect();
    let message = stitch_responses(replies);
    let Some((session_id, cipher)) = cipher else {
        return Some((message, after_send));
    };
    match cipher.encrypt(session_id, &message.pieces().collect::<Vec<_>>()) {
        Ok(encrypted) => Some((encrypted.into(), after_send)),
        Err(e) => {
            error!(error = %e, "cannot encrypt response; closing connection");
            conn.request_disconnect();
            None
        }
    }
}

pub(super) fn lock_credits(conn: &Connection) -> std::sync::MutexGuard<'_, CreditWindow> {
    conn.credits.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Credits to grant in the response to `req_hdr`.
pub(super) fn grant_credits(conn: &Connection, req_hdr: &Smb2Header) -> u16 {
    lock_credits(conn).grant(req_hdr.credit_request_response, req_hdr.command == Command::Negotiate)
}

/// Joins and signs the responses of a frame. One response alone is signed
/// in pieces, its bulk data where it lies. Of compound responses, each but
/// the last is padded to 8 bytes and signed over its padding (MS-SMB2
/// 3.1.4.1).
fn stitch_responses(mut responses: Vec<Reply>) -> Message {
    let last = responses.len().saturating_sub(1);
    if last == 0
        && let Some(reply) = responses.pop()
    {
        let mut message = Message { head: reply.bytes, tail: reply.payload };
        if let Some(key) = reply.signing_key {
            let rest = message.tail.iter().map(|piece| &piece[..]);
            if let Err(e) = sign_pieces(&mut message.head, rest, &key.key, key.algo) {
                error!(error = %e, "failed to sign response");
            }
        }
        return message;
    }

    let mut out = Vec::with_capacity(responses.iter().map(|r| align_8(r.len())).sum());
    for (index, reply) in responses.into_iter().enumerate() {
        let start = out.len();
        out.extend_from_slice(&reply.bytes);
        for piece in &reply.payload {
            out.extend_from_slice(piece);
        }
        if index < last {
            out.resize(align_8(out.len()), 0);
            let next = (out.len() - start) as u32;
            out[start + 0x14..start + 0x18].copy_from_slice(&next.to_le_bytes());
        }
        if let Some(key) = reply.signing_key
            && let Err(e) = sign_pieces(&mut out[start..], std::iter::empty(), &key.key, key.algo)
        {
            error!(error = %e, "failed to sign compound response");
        }
    }
    out.into()
}

/// Bytes an error response takes in a compound response: the header, the
/// 9-byte ERROR body and padding to 8 bytes.
const ERROR_RESPONSE_ROOM: usize = align_8(SMB2_HEADER_LEN + 9);

pub(super) const fn align_8(n: usize) -> usize {
    (n + 7) & !7
}

/// The session keys a response is encrypted with (MS-SMB2 3.3.4.1.4), if its session has any. Every response to an
/// encrypted request is encrypted. Of the others, those on a tree of an encrypted share are, except for NEGOTIATE,
/// SESSION_SETUP and TREE_CONNECT. No session is encrypted as a whole: encryption is a property of the share.
fn response_cipher(
    hdr: &Smb2Header,
    encrypted: bool,
    session: Option<&Session>,
    tree: Option<&TreeConnect>,
) -> Option<Arc<SessionCipher>> {
    let cipher = session?.cipher().cloned()?;
    if encrypted {
        return Some(cipher);
    }
    if matches!(hdr.command, Command::Negotiate | Command::SessionSetup | Command::TreeConnect) {
        return None;
    }
    tree?.share.encrypt_data.then_some(cipher)
}

/// Build the on-the-wire bytes up to the bulk data: header + body, granting
/// `granted` credits. `session_key` is the key of the response's session.
/// Returns the bytes and the key to sign with when they are to be signed.
pub(super) fn build_response_bytes(
    req_hdr: &Smb2Header,
    handler_resp: HandlerResponse,
    session_key: Option<SigningKey>,
    granted: u16,
    form: ReplyForm,
) -> (Vec<u8>, Option<SigningKey>) {
    let mut hdr = *req_hdr;
    hdr.credit_request_response = granted;
    hdr.flags |= SMB2_FLAGS_SERVER_TO_REDIR;
    hdr.next_command = 0;
    hdr.channel_sequence_status = handler_resp.status;
    match form {
        ReplyForm::Sync => {
            hdr.flags &= !SMB2_FLAGS_ASYNC_COMMAND;
            hdr.tail =
                HeaderTail::sync(handler_resp.override_tree_id.unwrap_or_else(|| req_hdr.tree_id().unwrap_or(0)));
        }
        ReplyForm::Interim(async_id) | ReplyForm::Final(async_id) => {
            hdr.flags |= SMB2_FLAGS_ASYNC_COMMAND;
            hdr.tail = HeaderTail::async_(async_id);
        }
    }
    if let Some(sid) = handler_resp.override_session_id {
        hdr.session_id = sid;
    }
    hdr.signature = [0u8; 16];

    let request_was_signed = req_hdr.flags & SMB2_FLAGS_SIGNED != 0;
    // MS-SMB2 §3.3.5.5.3 step 12: SessionSetup SUCCESS must be signed for
    // non-anon/non-guest sessions even though the request cannot be signed yet.
    let is_session_setup_success =
        req_hdr.command == Command::SessionSetup && handler_resp.status == ntstatus::STATUS_SUCCESS;
    let mut key = None;
    if handler_resp.signing_key.is_some() {
        key = handler_resp.signing_key;
    } else if !handler_resp.skip_signing && hdr.session_id != 0 && (request_was_signed || is_session_setup_success) {
        key = session_key;
    }
    // An error where there is no session, and so no key, gives the signature
    // of the request back, as on Windows: clients look for the flag at least.
    let echoed = request_was_signed && !handler_resp.skip_signing && handler_resp.status >> 30 == 3;
    if key.is_some() {
        hdr.flags |= SMB2_FLAGS_SIGNED;
    } else if echoed {
        hdr.signature = req_hdr.signature;
    } else {
        hdr.flags &= !SMB2_FLAGS_SIGNED;
    }
    let mut out = Vec::with_capacity(SMB2_HEADER_LEN + handler_resp.body.len());
    if let Err(e) = hdr.write(&mut out) {
        error!(error = %e, "failed to encode response header");
        return (Vec::new(), None);
    }
    out.extend_from_slice(&handler_resp.body);
    // Signed when the frame is joined, once its padding is known.
    (out, key)
}
