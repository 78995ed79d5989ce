//! READ handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{ReadRequest, ReadResponse};

use crate::access_mask::{FILE_EXECUTE, FILE_READ_DATA};
use crate::conn::state::Connection;
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::{RequestTree, channel_is_valid, lookup_open, note_channel};
use crate::ntstatus;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &RequestTree, body: &[u8]) -> HandlerResponse {
    let req = match ReadRequest::parse(body) {
        Ok(r) => r,
        Err(_) => return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    };
    let max_read = conn.max_read_size;
    if req.length > max_read {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let tree = match tree {
        Ok(tree) => tree,
        Err(status) => return HandlerResponse::err(*status),
    };
    let open_arc = match lookup_open(tree, req.file_id) {
        Some(o) => o,
        None => return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED),
    };
    let open = open_arc.read().await;
    note_channel(conn, hdr, &open);
    let result = {
        if open.granted_access & (FILE_READ_DATA | FILE_EXECUTE) == 0 {
            return HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED);
        }
        // MS-FSA 2.1.5.3.
        if open.is_directory {
            return HandlerResponse::err(ntstatus::STATUS_INVALID_DEVICE_REQUEST);
        }
        if !channel_is_valid(conn.negotiated.dialect(), req.channel) {
            return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        // MS-FSA 2.1.5.3: offsets are signed.
        let end = req.offset.checked_add(req.length.into());
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        if req.length > 0
            && let Some(file) = open.file.as_ref()
            && let Err(status) = file.check_io(req.offset, req.length.into(), false)
        {
            return HandlerResponse::err(status);
        }
        match open.handle.as_ref() {
            Some(h) => h.read_chunks(req.offset, req.length).await,
            None => return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED),
        }
    };
    let chunks = match result {
        Ok(chunks) => chunks,
        Err(e) => return HandlerResponse::err(e.to_nt_status()),
    };
    let len: usize = chunks.iter().map(bytes::Bytes::len).sum();
    // MS-SMB2 3.3.5.12: fewer bytes than MinimumCount is end of file.
    if (len == 0 && req.length > 0) || len < req.minimum_count as usize {
        return HandlerResponse::err(ntstatus::STATUS_END_OF_FILE);
    }
    // A backend that returns more than it was asked for is not trusted.
    let Some(data_length) = u32::try_from(len).ok().filter(|&n| n <= req.length) else {
        return HandlerResponse::err(ntstatus::STATUS_INTERNAL_ERROR);
    };
    open.position.store(req.offset + u64::from(data_length), Ordering::Relaxed);
    drop(open);
    let mut response = HandlerResponse::ok(ReadResponse::fixed_part(data_length));
    // An empty answer still has the one byte that StructureSize counts.
    if len == 0 {
        response.body.push(0);
    }
    response.payload = chunks;
    response
}
