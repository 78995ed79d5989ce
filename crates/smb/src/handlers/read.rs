//! READ handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{ReadRequest, ReadResponse};

use crate::conn::state::Connection;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, channel_is_valid, note_channel, open_of};
use larder_smb_wire::access_mask::{FILE_EXECUTE, FILE_READ_DATA};
use larder_smb_wire::ntstatus;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &RequestTree, body: &[u8]) -> Answered {
    let req = ReadRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    if req.length > conn.max_read_size {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let open_arc = open_of(tree, req.file_id)?;
    let open = open_arc.read().await;
    note_channel(conn, hdr, &open);
    if open.granted_access & (FILE_READ_DATA | FILE_EXECUTE) == 0 {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    // MS-FSA 2.1.5.3.
    if open.is_directory {
        return Err(ntstatus::STATUS_INVALID_DEVICE_REQUEST);
    }
    if !channel_is_valid(conn.negotiated.dialect(), req.channel) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    // MS-FSA 2.1.5.3: offsets are signed.
    let end = req.offset.checked_add(req.length.into());
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if req.length > 0
        && let Some(file) = open.file.as_ref()
    {
        file.check_io(req.offset, req.length.into(), false)?;
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let chunks = handle.read_chunks(req.offset, req.length).await?;
    let len: usize = chunks.iter().map(bytes::Bytes::len).sum();
    // MS-SMB2 3.3.5.12: fewer bytes than MinimumCount is end of file.
    if (len == 0 && req.length > 0) || len < req.minimum_count as usize {
        return Err(ntstatus::STATUS_END_OF_FILE);
    }
    // A store that returns more than it was asked for is not trusted.
    let data_length = u32::try_from(len).ok().filter(|&n| n <= req.length).ok_or(ntstatus::STATUS_INTERNAL_ERROR)?;
    open.position.store(req.offset + u64::from(data_length), Ordering::Relaxed);
    drop(open);
    let mut response = HandlerResponse::ok(ReadResponse::fixed_part(data_length));
    // An empty answer still has the one byte that StructureSize counts.
    if len == 0 {
        response.body.push(0);
    }
    response.payload = chunks;
    Ok(response)
}
