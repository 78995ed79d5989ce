//! Whether a request arrived as it must: encrypted and decrypted, or signed, with its session's keys.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::RwLock;
use tracing::warn;

use crate::conn::related::{needs_session, needs_tree};
use crate::conn::state::{Connection, Session};
use crate::handlers;
use crate::handlers::response::Refusal;
use crate::ntstatus;
use crate::proto::auth::ntlm::Identity;
use crate::proto::crypto::SessionCipher;
use crate::proto::crypto::encrypt::transform_session_id;
use crate::proto::header::{Command, SMB2_FLAGS_SIGNED, Smb2Header};
use crate::state::ServerState;

/// Decrypts an encrypted message (MS-SMB2 3.3.5.2.1.1) and returns the SMB2
/// message inside, its TRANSFORM_HEADER SessionId and that session's keys.
/// Every failure closes the connection.
pub(super) async fn decrypt_frame(conn: &Connection, frame: Bytes) -> Result<(Bytes, u64, Arc<SessionCipher>), String> {
    if conn.negotiated.cipher().is_none() {
        return Err("encryption is not negotiated".into());
    }
    let session_id = transform_session_id(&frame).ok_or("message shorter than its header")?;
    let session =
        conn.sessions.read().await.get(&session_id).cloned().ok_or(format!("unknown session {session_id:#x}"))?;
    let cipher = session.read().await.cipher.clone().ok_or("session has no encryption keys")?;
    let message = cipher.decrypt(frame).map_err(|e| e.to_string())?;
    Ok((message, session_id, cipher))
}

/// Refuses an unencrypted request on a tree whose traffic
/// is encrypted (MS-SMB2 3.3.5.2.11, RejectUnencryptedAccess).
pub(super) async fn check_encryption(
    hdr: &Smb2Header,
    encrypted: bool,
    session: Option<&Arc<RwLock<Session>>>,
) -> Result<(), u32> {
    let Some(session) = session else {
        return Ok(());
    };
    if encrypted || !needs_session(hdr.command) {
        return Ok(());
    }
    let sess = session.read().await;
    if !needs_tree(hdr.command) {
        return Ok(());
    }
    let Some(tree) = sess.trees.read().await.get(&hdr.tree_id().unwrap_or(0)).cloned() else {
        return Ok(());
    };
    let encrypted_share = tree.read().await.share.encrypt_data;
    if encrypted_share {
        warn!(command = ?hdr.command, "unencrypted request on an encrypted share");
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    Ok(())
}

pub(super) async fn verify_request_signature(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    frame: &[u8],
) -> Result<(), Refusal> {
    if hdr.command == Command::Negotiate {
        if hdr.flags & SMB2_FLAGS_SIGNED != 0 {
            return Err(Refusal::unsigned(ntstatus::STATUS_INVALID_PARAMETER));
        }
        return Ok(());
    }
    if hdr.session_id == 0 {
        return Ok(());
    }
    let session = conn.sessions.read().await.get(&hdr.session_id).cloned();
    let Some(sess_arc) = session else {
        return verify_without_session(server, conn, hdr, frame).await;
    };

    if hdr.flags & SMB2_FLAGS_SIGNED != 0 {
        let sess = sess_arc.read().await;
        if matches!(sess.identity, Identity::Anonymous) {
            return Ok(());
        }
        let key = conn.channel_keys.get(hdr.session_id).unwrap_or(sess.signing_key);
        drop(sess);
        let algo = conn.negotiated.signing_algo();
        if let Err(e) = crate::proto::crypto::verify(frame, &key, algo) {
            warn!(error = %e, "request signature verification failed");
            return Err(Refusal::unsigned(ntstatus::STATUS_ACCESS_DENIED));
        }
    } else if hdr.command != Command::SessionSetup || conn.channel_keys.get(hdr.session_id).is_some() {
        let sess = sess_arc.read().await;
        let need = sess.signing_required && !matches!(sess.identity, Identity::Anonymous);
        drop(sess);
        if need {
            warn!(?hdr.command, "missing required signature on request");
            return Err(Refusal::unsigned(ntstatus::STATUS_ACCESS_DENIED));
        }
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
    let key = ended.filter(|k| crate::proto::crypto::verify(frame, &k.key, k.algo).is_ok());
    Err(Refusal { status: ntstatus::STATUS_USER_SESSION_DELETED, key })
}
