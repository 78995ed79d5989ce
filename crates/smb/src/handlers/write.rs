//! WRITE handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{Dialect, WriteRequest, WriteResponse};

use crate::conn::state::{Connection, Open};
use crate::door::handle::FileHandle;
use crate::files::Trigger;
use crate::handlers::create::{FILE_NO_INTERMEDIATE_BUFFERING, WRITE_THROUGH_OPTIONS};
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::{RequestTree, begin_change, channel_is_valid, open_of};
use larder_smb_wire::access_mask::{FILE_APPEND_DATA, FILE_WRITE_DATA};
use larder_smb_wire::ntstatus;

/// Largest DataOffset of a WRITE that carries its data inline (MS-SMB2
/// 3.3.5.13).
const MAX_DATA_OFFSET: u16 = 0x100;

pub async fn handle(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &RequestTree, body: &Bytes) -> Answered {
    let (req, data) = WriteRequest::parse_shared(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    if req.length > conn.max_write_size {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let open_arc = open_of(tree, req.file_id)?;
    let dialect = conn.negotiated.dialect();
    if !channel_is_valid(dialect, req.channel) || req.data_offset > MAX_DATA_OFFSET {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }

    let open = open_arc.read().await;
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let _under_way = begin_change(conn, hdr, &open)?;
    let write_through = writes_through(&req, dialect, &open)?;
    check_access(&req, &open, handle).await?;
    if req.length == 0 {
        return Ok(written(0));
    }
    if let Some(file) = open.file.as_ref() {
        file.check_io(req.offset, u64::from(req.length), true)?;
        file.break_leases(Trigger::Write);
    }

    let mut result = handle.write_bytes(req.offset, data).await;
    if result.is_ok() {
        open.wrote.store(true, Ordering::Release);
    }
    // A lease granted while the data was being written breaks now, so it
    // does not keep the old contents cached.
    if let Some(file) = open.file.as_ref() {
        file.break_leases(Trigger::Write);
    }
    if result.is_ok() && write_through {
        result = handle.flush().await.and(result);
    }
    if result.is_ok() {
        open.restore_fixed_times().await;
    }
    drop(open);
    result.map(written).map_err(|e| e.to_nt_status())
}

fn written(count: u32) -> HandlerResponse {
    let mut buf = Vec::new();
    WriteResponse::new(count).write_to(&mut buf).expect("encoding into a Vec cannot fail");
    HandlerResponse::ok(buf)
}

/// Whether the data is to reach storage before the response. MS-SMB2
/// 3.3.5.13: a per-request write-through needs an unbuffered
/// write. UNBUFFERED is defined from 3.0.2 on.
fn writes_through(req: &WriteRequest, dialect: Option<Dialect>, open: &Open) -> Result<bool, u32> {
    let unbuffered_dialect = matches!(dialect, Some(Dialect::Smb302 | Dialect::Smb311));
    let write_through_flag = req.flags & WriteRequest::FLAG_WRITE_THROUGH != 0;
    let unbuffered_flag = unbuffered_dialect && req.flags & WriteRequest::FLAG_WRITE_UNBUFFERED != 0;
    let unbuffered_open = open.create_options & FILE_NO_INTERMEDIATE_BUFFERING != 0;
    let checks_write_through = !matches!(dialect, None | Some(Dialect::Smb202));
    if checks_write_through && write_through_flag && !unbuffered_flag && !unbuffered_open {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    Ok((checks_write_through && write_through_flag)
        || unbuffered_flag
        || open.create_options & WRITE_THROUGH_OPTIONS != 0)
}

/// Whether the open may write the range.
async fn check_access(req: &WriteRequest, open: &Open, handle: &FileHandle) -> Result<(), u32> {
    // MS-SMB2 3.3.5.13 asks FILE_APPEND_DATA of a write that grows the file.
    // Windows and Samba let FILE_WRITE_DATA do for both, and clients rely
    // on it; FILE_APPEND_DATA alone does not overwrite.
    let can_write = open.granted_access & FILE_WRITE_DATA != 0;
    let can_append = open.granted_access & FILE_APPEND_DATA != 0;
    if !can_write && !can_append {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    if req.length > 0 && !can_write {
        let size = handle.stat().await?.end_of_file;
        if req.offset < size {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
    }
    Ok(())
}
