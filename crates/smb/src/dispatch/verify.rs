//! Whether a request arrived as it must: encrypted and decrypted, or signed, with its session's keys.

use std::sync::Arc;

use bytes::Bytes;
use tracing::warn;

use super::reply::ReplyCtx;
use crate::conn::related::needs_tree;
use crate::conn::state::{Connection, SigningKey, TreeConnect};
use crate::handlers;
use crate::handlers::response::Refusal;
use crate::state::ServerState;
use larder_smb_wire::crypto::SessionCipher;
use larder_smb_wire::crypto::encrypt::transform_session_id;
use larder_smb_wire::header::{Command, SMB2_FLAGS_SIGNED, Smb2Header};
use larder_smb_wire::ntstatus;

/// Decrypts an encrypted message (MS-SMB2 3.3.5.2.1.1) and returns the SMB2
/// message inside, its TRANSFORM_HEADER SessionId and that session's keys.
/// Every failure closes the connection.
pub(super) fn decrypt_frame(conn: &Connection, frame: Bytes) -> Result<(Bytes, u64, Arc<SessionCipher>), String> {
    if conn.negotiated.cipher().is_none() {
        return Err("encryption is not negotiated".into());
    }
    let session_id = transform_session_id(&frame).ok_or("message shorter than its header")?;
    let session = conn.sessions.get(session_id).ok_or(format!("unknown session {session_id:#x}"))?;
    let cipher = session.cipher().cloned().ok_or("session has no encryption keys")?;
    let message = cipher.decrypt(frame).map_err(|e| e.to_string())?;
    Ok((message, session_id, cipher))
}

/// Refuses an unencrypted request on a tree whose traffic
/// is encrypted (MS-SMB2 3.3.5.2.11, RejectUnencryptedAccess).
pub(super) fn check_encryption(hdr: &Smb2Header, encrypted: bool, tree: Option<&TreeConnect>) -> Result<(), u32> {
    if encrypted || !needs_tree(hdr.command) {
        return Ok(());
    }
    if tree.is_some_and(|tree| tree.share.encrypt_data) {
        warn!(command = ?hdr.command, "unencrypted request on an encrypted share");
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    Ok(())
}

pub(super) async fn verify_request_signature(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    ctx: &ReplyCtx,
    frame: &[u8],
) -> Result<(), Refusal> {
    let hdr = &ctx.hdr;
    if hdr.command == Command::Negotiate {
        if hdr.flags & SMB2_FLAGS_SIGNED != 0 {
            return Err(Refusal::unsigned(ntstatus::STATUS_INVALID_PARAMETER));
        }
        return Ok(());
    }
    if hdr.session_id == 0 {
        return Ok(());
    }
    let Some(session) = &ctx.session else {
        return verify_without_session(server, conn, hdr, frame).await;
    };

    if hdr.flags & SMB2_FLAGS_SIGNED != 0 {
        if session.is_anonymous() {
            return Ok(());
        }
        let Some(SigningKey { algo, key }) = &ctx.key else {
            warn!("signed request on a session without a key");
            return Err(Refusal::unsigned(ntstatus::STATUS_ACCESS_DENIED));
        };
        if let Err(e) = larder_smb_wire::crypto::verify(frame, key, *algo) {
            warn!(error = %e, "request signature verification failed");
            return Err(Refusal::unsigned(ntstatus::STATUS_ACCESS_DENIED));
        }
    } else if session.signing_required
        && !session.is_anonymous()
        && (hdr.command != Command::SessionSetup || conn.channel_keys.get(hdr.session_id).is_some())
    {
        warn!(?hdr.command, "missing required signature on request");
        return Err(Refusal::unsigned(ntstatus::STATUS_ACCESS_DENIED));
    }
    Ok(())
}

/// A request on a session that the connection does not have: SESSION_SETUP
/// may be for another connection's, and what is signed is refused here, with
/// the session's key if it ended lately and made the signature.
async fn verify_without_session(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    frame: &[u8],
) -> Result<(), Refusal> {
    let ended = conn.ended_session_key(hdr.session_id);
    if hdr.command == Command::SessionSetup && ended.is_none() {
        return handlers::session_setup::admit_unknown(server, conn, hdr, frame).await;
    }
    if hdr.flags & SMB2_FLAGS_SIGNED == 0 {
        return Ok(());
    }
    let key = ended.filter(|k| larder_smb_wire::crypto::verify(frame, &k.key, k.algo).is_ok());
    Err(Refusal { status: ntstatus::STATUS_USER_SESSION_DELETED, key })
}
