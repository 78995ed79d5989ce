//! A handler's result: a response, or a request that completes later.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::conn::pending::AsyncOp;
use crate::conn::state::SigningKey;
use crate::files::AfterSend;
use larder_smb_wire::messages::{EmptyBody, ErrorResponse};
use larder_smb_wire::ntstatus;

/// Result of a handler: a complete (unsigned) response payload + the NTSTATUS
/// to set in the header. The dispatcher patches the header, applies signing
/// (if required), and ships the bytes.
pub struct HandlerResponse {
    /// Bytes after the SMB2 header - the body. The handler owns body
    /// construction.
    pub body: Vec<u8>,
    /// Bulk data after the body, in order: sent from where it lies.
    pub payload: Vec<Bytes>,
    /// NTSTATUS for the response header.
    pub status: u32,
    /// Optional override for `tree_id` on the response header (e.g.
    /// TREE_CONNECT returns the freshly minted tree id).
    pub override_tree_id: Option<u32>,
    /// Optional override for `session_id` on the response header (e.g.
    /// SESSION_SETUP returns the freshly minted session id).
    pub override_session_id: Option<u64>,
    /// If true, the dispatcher will not sign the response. Used for
    /// pre-session-setup messages where no key exists yet.
    pub skip_signing: bool,
    /// If set, take the per-session 3.1.1 preauth snapshot after hashing the
    /// SESSION_SETUP request but before hashing the response. Set by
    /// SESSION_SETUP on the round that produces STATUS_SUCCESS, so the
    /// session's KDF context can use the snapshot.
    pub take_preauth_snapshot_for_session: Option<u64>,
    /// The key of the logon that binds the connection to the session: of it
    /// and the snapshot the channel's signing key is made.
    pub channel_base_key: Option<[u8; 16]>,
    /// Signs the response in place of the key of the request's session.
    pub signing_key: Option<SigningKey>,
    /// Lease breaks held back until this response is queued.
    pub(crate) after_send: Vec<AfterSend>,
}

/// Why a request is refused before it is handled, and what signs the refusal
/// when the connection no longer has, or never had, the request's session.
pub(crate) struct Refusal {
    pub status: u32,
    pub key: Option<SigningKey>,
}

impl Refusal {
    pub(crate) fn unsigned(status: u32) -> Self {
        Self { status, key: None }
    }
}

impl HandlerResponse {
    pub fn ok(body: Vec<u8>) -> Self {
        Self {
            body,
            payload: Vec::new(),
            status: ntstatus::STATUS_SUCCESS,
            override_tree_id: None,
            override_session_id: None,
            skip_signing: false,
            take_preauth_snapshot_for_session: None,
            channel_base_key: None,
            signing_key: None,
            after_send: Vec::new(),
        }
    }

    /// Success of a request whose response has no fields.
    pub fn empty() -> Self {
        let mut body = Vec::new();
        EmptyBody::default().write_to(&mut body).expect("encode");
        Self::ok(body)
    }

    pub fn err(status: u32) -> Self {
        let mut body = Vec::new();
        ErrorResponse::status(status).write_to(&mut body).expect("error response encodes");
        Self { status, ..Self::ok(body) }
    }
}

/// A handler's answer: a response, or the status that the request fails with.
pub(crate) type Answered = Result<HandlerResponse, u32>;

/// What a handler produced: a response, or a request that completes later.
pub(crate) enum Outcome {
    Done(HandlerResponse),
    Pending(Pending),
}

/// A request answered asynchronously (MS-SMB2 3.3.4.2): its registration
/// and the work that produces its final response. The work owns what it
/// needs, so it runs after the frame that carried the request is done.
pub(crate) struct Pending {
    pub op: Arc<AsyncOp>,
    pub work: Pin<Box<dyn Future<Output = HandlerResponse> + Send>>,
}
