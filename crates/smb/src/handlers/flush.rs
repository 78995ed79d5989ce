//! FLUSH handler.

use std::sync::Arc;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{FileId, FlushRequest};

use crate::conn::state::Connection;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, note_channel, open_of};
use larder_smb_wire::access_mask::{FILE_APPEND_DATA, FILE_WRITE_DATA};
use larder_smb_wire::ntstatus;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &RequestTree, body: &[u8]) -> Answered {
    let req = FlushRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let open_arc = open_of(tree, FileId::new(req.file_id_persistent, req.file_id_volatile))?;
    let open = open_arc.read().await;
    note_channel(conn, hdr, &open);
    // MS-SMB2 3.3.5.11: flushing a file needs write access.
    if !open.is_directory && open.granted_access & (FILE_WRITE_DATA | FILE_APPEND_DATA) == 0 {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    handle.flush().await?;
    Ok(HandlerResponse::empty())
}
