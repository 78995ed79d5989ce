//! CLOSE handler.

use std::sync::Arc;

use larder_smb_wire::messages::{CloseRequest, CloseResponse, FileId};

use crate::conn::pending::Stop;
use crate::conn::state::Connection;
use crate::files::{WatchReg, close_open};
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::RequestTree;
use larder_smb_wire::ntstatus;

pub async fn handle(conn: &Arc<Connection>, tree: &RequestTree, body: &[u8]) -> Answered {
    let req = CloseRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let tree = tree.as_ref().map_err(|status| *status)?;
    let open_arc = tree.remove_file(req.file_id).ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    // MS-SMB2 3.3.4.17: requests waiting on the open end with it. They are
    // answered after the CLOSE response is queued, as Windows orders them:
    // their stop and the open's change notification watch go with the
    // response.
    let watch = open_arc.write().await.watch.take();
    if let Some(watch) = &watch {
        watch.leave_table();
    }
    let ended = EndWaiters { conn: Arc::clone(conn), file_id: req.file_id, watch };

    let want_attrs = req.flags & CloseRequest::FLAG_POSTQUERY_ATTRIB != 0;
    let info = close_open(&open_arc, want_attrs).await;

    // MS-SMB2 3.3.5.10: without the attributes, Flags and every attribute
    // field are 0.
    let resp = match info {
        Some(info) => CloseResponse {
            structure_size: 60,
            flags: CloseRequest::FLAG_POSTQUERY_ATTRIB,
            reserved: 0,
            creation_time: info.creation_time,
            last_access_time: info.last_access_time,
            last_write_time: info.last_write_time,
            change_time: info.change_time,
            allocation_size: info.allocation_size,
            end_of_file: info.end_of_file,
            file_attributes: info.attributes(),
        },
        None => CloseResponse::new(),
    };
    let mut buf = Vec::new();
    resp.write_to(&mut buf).expect("encode");
    let mut response = HandlerResponse::ok(buf);
    response.after_send.push(Box::new(ended));
    Ok(response)
}

/// Ends the requests waiting on a closed open, and its watch, when
/// dropped.
struct EndWaiters {
    conn: Arc<Connection>,
    file_id: FileId,
    watch: Option<WatchReg>,
}

impl Drop for EndWaiters {
    fn drop(&mut self) {
        self.conn.pending.stop_where(Stop::Retry, |op| op.file_id == Some(self.file_id));
        drop(self.watch.take());
    }
}
