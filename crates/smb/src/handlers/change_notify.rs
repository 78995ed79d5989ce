//! CHANGE_NOTIFY handler (MS-SMB2 3.3.5.19). The first request on a
//! directory open arms a watch for it; every request is answered with the
//! changes buffered since the previous answer, at once when there are some
//! and asynchronously otherwise.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;

use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::ChangeNotifyRequest;
use larder_smb_wire::messages::ChangeNotifyResponse;
use larder_smb_wire::messages::change_notify::FILE_NOTIFY_VALID_MASK;

use crate::conn::pending::{Stop, stopped};
use crate::conn::state::Connection;
use crate::files::{Answer, NotifyAccount, OpenSlot, Watch, WatchReg};
use crate::handlers::response::{HandlerResponse, Outcome, Pending};
use crate::handlers::shared::{RequestTree, lookup_open};
use larder_smb_wire::access_mask::FILE_LIST_DIRECTORY;
use larder_smb_wire::ntstatus;

pub async fn handle(
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &[u8],
    retained: usize,
) -> Outcome {
    match watched(conn, tree, body).await {
        Ok((watch, req)) => wait(conn, hdr, (watch, req), retained),
        Err(status) => Outcome::Done(HandlerResponse::err(status)),
    }
}

/// The watch of the open that a request names, which it may have begun.
async fn watched(
    conn: &Arc<Connection>,
    tree: &RequestTree,
    body: &[u8],
) -> Result<(Arc<Watch>, ChangeNotifyRequest), u32> {
    let tree = tree.as_ref().map_err(|status| *status)?;
    let req = ChangeNotifyRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let open = lookup_open(tree, req.file_id).ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    if req.output_buffer_length > conn.max_read_size {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let share = Arc::clone(&tree.share);
    // The answer has every change that was answered before.
    tree.view()?.settle_notices().await;
    let mut open = open.write().await;
    if !open.is_directory {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if open.granted_access & FILE_LIST_DIRECTORY == 0 {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    // MS-FSA 2.1.5.11: an open that marked its directory for deletion, or
    // opened it delete-on-close, gets STATUS_DELETE_PENDING. So does any
    // open of a directory that is delete-pending: Windows answers so the
    // next request on a handle whose watch the mark ended.
    if open.marked_deleted.load(Ordering::Acquire) || open.delete_on_close || open.delete_pending() {
        return Err(ntstatus::STATUS_DELETE_PENDING);
    }
    // MS-SMB2 3.3.1.3: the first request fixes the filter, WATCH_TREE and
    // buffer size; later requests take what the watch buffered.
    // A watch its directory's deletion ended is replaced once the mark is
    // cleared (MS-FSA 2.1.5.11), but not if the directory is gone.
    if let Some(reg) = open.watch.as_ref().filter(|reg| !reg.ended() || reg.gone()) {
        return Ok((Arc::clone(reg.watch()), req));
    }
    // Closed while this request waited for the open.
    let (Some(handle), Some(file)) = (open.handle.as_deref(), &open.file) else {
        return Err(ntstatus::STATUS_FILE_CLOSED);
    };
    let watching = handle.watch().await;
    let filter = req.completion_filter & FILE_NOTIFY_VALID_MASK;
    let (dir, len) = (file.index(), req.output_buffer_length);
    let budget = NotifyAccount::new(&conn.notify_budget, open.slot.as_ref().and_then(OpenSlot::party));
    let armed = WatchReg::arm(&share.watches, watching, dir, filter, is_of_tree(&req), len, budget);
    let Some(reg) = armed else {
        warn!("too many change notification watches on the connection");
        return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
    };
    // A mark set since the check above either found the watch in
    // the table and ended it, or shows here.
    if open.delete_pending() {
        return Err(ntstatus::STATUS_DELETE_PENDING);
    }
    let watch = Arc::clone(reg.watch());
    open.watch = Some(reg);
    Ok((watch, req))
}

fn is_of_tree(req: &ChangeNotifyRequest) -> bool {
    req.flags & ChangeNotifyRequest::FLAG_WATCH_TREE != 0
}

/// Answers with what the watch has, or waits for it.
fn wait(
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    (watch, req): (Arc<Watch>, ChangeNotifyRequest),
    retained: usize,
) -> Outcome {
    let ticket = watch.enqueue(req.output_buffer_length, is_of_tree(&req));
    let mut changed = watch.subscribe();
    if let Some(answer) = watch.take(&ticket) {
        return Outcome::Done(respond(answer));
    }
    // MS-SMB2 3.3.4.2: past its limits the connection gets no more
    // asynchronous requests. The watch keeps buffering for the next one.
    let Some((op, mut stop)) = conn.pending.reserve(hdr, Some(req.file_id), retained) else {
        warn!("too many waiting requests on the connection");
        return Outcome::Done(HandlerResponse::err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
    };
    // A cancelled request leaves the queue and the changes stay buffered
    // for the next one. Its open, tree or session going away closes the
    // open, which ends the watch (MS-SMB2 3.3.4.17).
    let work = async move {
        loop {
            tokio::select! {
                biased;
                why = stopped(&mut stop) => {
                    return match why {
                        Stop::Cancelled => HandlerResponse::err(ntstatus::STATUS_CANCELLED),
                        Stop::Retry => respond(Answer::Ended(ntstatus::STATUS_NOTIFY_CLEANUP)),
                    };
                }
                _ = changed.changed() => {}
            }
            if let Some(answer) = watch.take(&ticket) {
                return respond(answer);
            }
        }
    };
    Outcome::Pending(Pending { op, work: Box::pin(work) })
}

/// The response for `answer`. STATUS_NOTIFY_ENUM_DIR and
/// STATUS_NOTIFY_CLEANUP carry a CHANGE_NOTIFY body without entries
/// (MS-SMB2 3.3.5.19, 2.2.36); other failures an ERROR body.
fn respond(answer: Answer) -> HandlerResponse {
    let empty = |status| HandlerResponse { status, ..HandlerResponse::ok(ChangeNotifyResponse::encode(&[])) };
    match answer {
        Answer::Changes(entries) => HandlerResponse::ok(ChangeNotifyResponse::encode(&entries)),
        Answer::EnumDir => empty(ntstatus::STATUS_NOTIFY_ENUM_DIR),
        Answer::Ended(ntstatus::STATUS_NOTIFY_CLEANUP) => empty(ntstatus::STATUS_NOTIFY_CLEANUP),
        Answer::Ended(status) => HandlerResponse::err(status),
    }
}
