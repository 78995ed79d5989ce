//! LOGOFF handler.

use std::sync::Arc;

use larder_smb_wire::header::Smb2Header;

use crate::conn::state::Connection;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::state::ServerState;
use larder_smb_wire::ntstatus;

pub async fn handle(server: &Arc<ServerState>, conn: &Arc<Connection>, hdr: &Smb2Header) -> Answered {
    if hdr.session_id == 0 {
        return Err(ntstatus::STATUS_USER_SESSION_DELETED);
    }
    // MS-SMB2 3.3.5.6: the session must exist; one still logging on counts.
    // Its durable opens are kept for the client.
    let was_logging_on = conn.logons.end(hdr.session_id);
    let was_there = conn.close_session(hdr.session_id, Some(&server.durable)).await;
    if !was_logging_on && !was_there {
        return Err(ntstatus::STATUS_USER_SESSION_DELETED);
    }
    Ok(HandlerResponse::empty())
}
