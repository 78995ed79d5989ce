//! FLUSH handler.

use std::sync::Arc;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{FileId, FlushRequest};

use crate::access_mask::{FILE_APPEND_DATA, FILE_WRITE_DATA};
use crate::conn::state::Connection;
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::{RequestTree, lookup_open, note_channel};
use crate::ntstatus;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &RequestTree, body: &[u8]) -> HandlerResponse {
    let req = match FlushRequest::parse(body) {
        Ok(r) => r,
        Err(_) => return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    };
    let fid = FileId::new(req.file_id_persistent, req.file_id_volatile);
    let tree = match tree {
        Ok(tree) => tree,
        Err(status) => return HandlerResponse::err(*status),
    };
    let open_arc = match lookup_open(tree, fid) {
        Some(o) => o,
        None => return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED),
    };
    let res = {
        let open = open_arc.read().await;
        note_channel(conn, hdr, &open);
        // MS-SMB2 3.3.5.11: flushing a file needs write access.
        if !open.is_directory && open.granted_access & (FILE_WRITE_DATA | FILE_APPEND_DATA) == 0 {
            return HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED);
        }
        match open.handle.as_ref() {
            Some(h) => h.flush().await,
            None => return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED),
        }
    };
    if let Err(e) = res {
        return HandlerResponse::err(e.to_nt_status());
    }
    HandlerResponse::empty()
}
