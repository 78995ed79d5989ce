//! TREE_DISCONNECT handler.

use std::sync::Arc;

use larder_smb_wire::header::Smb2Header;

use crate::conn::state::Connection;
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::lookup_session;
use crate::ntstatus;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, _body: &[u8]) -> HandlerResponse {
    let tid = match hdr.tree_id() {
        Some(t) => t,
        None => return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    };

    if lookup_session(conn, hdr.session_id).is_err() {
        return HandlerResponse::err(ntstatus::STATUS_USER_SESSION_DELETED);
    }
    if !conn.close_tree(hdr.session_id, tid).await {
        return HandlerResponse::err(ntstatus::STATUS_NETWORK_NAME_DELETED);
    }
    HandlerResponse::empty()
}
