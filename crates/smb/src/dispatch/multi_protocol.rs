//! The SMB1 NEGOTIATE by which a client asks for SMB2 (MS-SMB2 3.3.5.3.1).

use std::sync::Arc;

use tracing::debug;

use super::reply::{ReplyForm, build_response_bytes, grant_credits};
use crate::conn::negotiated::{ClientNegotiate, Negotiated};
use crate::conn::state::Connection;
use crate::handlers;
use crate::state::ServerState;
use larder_smb_wire::crypto::SigningAlgo;
use larder_smb_wire::header::{Command, HeaderTail, Smb2Header};
use larder_smb_wire::messages::Dialect;
use larder_smb_wire::ntstatus;

/// Detect and answer an SMB1 multi-protocol NEGOTIATE_REQUEST.
///
/// SMB1 frame layout for the request we accept:
/// * `[0..4]`  - magic `0xFF 'S' 'M' 'B'`
/// * `[4]`     - command (0x72 = SMB_COM_NEGOTIATE)
/// * `[5..32]` - rest of SMB1 header (status, flags, pid, tid, mid ...)
/// * `[32]`    - `WordCount` (0 for NEGOTIATE)
/// * `[33..35]` - `ByteCount` (u16 LE)
/// * `[35..]`  - dialect strings, each `0x02 <ASCII> 0x00`.
///
/// Returns `Some(reply_bytes)` only for a SMB1 NEGOTIATE that lists at least
/// one SMB2 dialect we recognise, and sets Connection.NegotiateDialect to
/// 0x02FF ("SMB 2.???") or 0x0202 ("SMB 2.002" alone).
pub(super) async fn handle_smb1_multi_protocol(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    frame: &[u8],
) -> Option<Vec<u8>> {
    if frame.len() < 35 {
        return None;
    }
    let body_start = 33; // 32-byte header + 1-byte WordCount(=0)
    let byte_count = u16::from_le_bytes([frame[body_start], frame[body_start + 1]]) as usize;
    let blob_start = body_start + 2;
    let blob_end = (blob_start + byte_count).min(frame.len());
    let blob = &frame[blob_start..blob_end];

    let mut wants_wildcard = false;
    let mut wants_smb202 = false;
    let mut i = 0;
    while i < blob.len() {
        if blob[i] != 0x02 {
            break;
        }
        i += 1;
        let nul = match blob[i..].iter().position(|&b| b == 0) {
            Some(p) => p,
            None => break,
        };
        let s = std::str::from_utf8(&blob[i..i + nul]).unwrap_or("");
        match s {
            "SMB 2.???" => wants_wildcard = true,
            "SMB 2.002" => wants_smb202 = true,
            _ => {}
        }
        i += nul + 1;
    }

    let dialect = if wants_wildcard {
        Dialect::Smb2Wildcard
    } else if wants_smb202 {
        Dialect::Smb202
    } else {
        return None;
    };
    let chosen = dialect.as_u16();

    debug!(
        chosen = %format_args!("0x{chosen:04X}"),
        "SMB1 multi-protocol negotiate"
    );

    // Synthesize a request header so build_response_bytes can mint the
    // SERVER_TO_REDIR response. Per MS-SMB2 §3.3.5.3.1 the response uses
    // message_id=0, tree_id=0xFFFF, session_id=0.
    let req_hdr = Smb2Header {
        command: Command::Negotiate,
        message_id: 0,
        session_id: 0,
        tail: HeaderTail::Sync { reserved: 0, tree_id: 0xFFFF },
        ..Default::default()
    };
    let resp = handlers::negotiate::multi_protocol_response(server, conn, chosen).await;
    // Of SMB 2.002 no SMB2 NEGOTIATE follows; what it would have told is nothing (MS-SMB2
    // 3.3.5.3.2), and FSCTL_VALIDATE_NEGOTIATE_INFO is held against that.
    if resp.status == ntstatus::STATUS_SUCCESS {
        match dialect {
            Dialect::Smb202 => {
                let dialects = vec![dialect.as_u16()];
                let client = ClientNegotiate { capabilities: 0, security_mode: 0, guid: [0; 16], dialects };
                conn.negotiated.set(Negotiated {
                    dialect,
                    signing_algo: SigningAlgo::HmacSha256,
                    cipher: None,
                    client,
                });
            }
            _ => conn.negotiated.set_wildcard(),
        }
    }
    let granted = grant_credits(conn, &req_hdr);
    Some(build_response_bytes(&req_hdr, resp, None, granted, ReplyForm::Sync).0)
}

pub(super) fn is_smb1_negotiate(frame: &[u8]) -> bool {
    frame.len() >= 5 && frame[0..4] == [0xFF, b'S', b'M', b'B'] && frame[4] == 0x72
}
