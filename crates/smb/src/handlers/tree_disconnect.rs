//! TREE_DISCONNECT handler.

use std::sync::Arc;

use larder_smb_wire::header::Smb2Header;

use crate::conn::state::Connection;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::lookup_session;
use larder_smb_wire::ntstatus;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header) -> Answered {
    let tid = hdr.tree_id().ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
    lookup_session(conn, hdr.session_id)?;
    match conn.close_tree(hdr.session_id, tid).await {
        true => Ok(HandlerResponse::empty()),
        false => Err(ntstatus::STATUS_NETWORK_NAME_DELETED),
    }
}
