//! CREATE sent again with SMB2_FLAGS_REPLAY_OPERATION (MS-SMB2 3.3.5.9.10):
//! a client that got no answer to a CREATE, because its connection failed,
//! repeats it with the same CreateGuid. The open that CREATE made, if it made
//! one, is answered again; opening the file once more would conflict with it.

use std::sync::Arc;

use tokio::sync::RwLock;
use tracing::debug;

use crate::conn::state::{Connection, Open, TreeConnect};
use crate::files::{FileRef, LeaseRequest, Place, Replayable};
use crate::handlers::create::CreateArgs;
use crate::handlers::create_contexts::{ContextQueries, caching_response, durable_v2_response, encode_response};
use crate::handlers::reconnect::{self, Reconnect};
use crate::handlers::response::{HandlerResponse, Outcome};
use crate::state::ServerState;
use larder_smb_wire::header::{SMB2_FLAGS_REPLAY_OPERATION, Smb2Header};
use larder_smb_wire::info_class::VOLUME_SERIAL_NUMBER;
use larder_smb_wire::messages::{CreateContext, FileId};
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::SmbPath;

/// A CREATE that names an open by its CreateGuid.
pub(super) struct Replay<'a> {
    /// The tree that the request came on.
    pub tree: &'a Arc<TreeConnect>,
    pub create_guid: [u8; 16],
    pub path: &'a SmbPath,
    /// The configured name of the session's user; `None` for anonymous.
    pub owner: Option<&'a str>,
    /// The lease or oplock it asks for.
    pub lease: Option<LeaseRequest>,
    pub queries: &'a ContextQueries,
    /// The rights the tree allows.
    pub maximal: u32,
}

/// Answers `replay` with the open `found`.
pub(super) async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    found: Replayable,
    replay: Replay<'_>,
    retained: usize,
) -> Outcome {
    let fail = |status| Outcome::Done(HandlerResponse::err(status));
    // Only a request for the open's own lease names a leased open, and only
    // one for no lease another.
    let lease = replay.lease.filter(|l| !l.id.is_oplock());
    let asked = lease.map(|l| (l.id, l.version));
    if replay.owner != Some(found.owner.as_str()) || asked != found.lease {
        return fail(ntstatus::STATUS_ACCESS_DENIED);
    }
    let open = replay.tree.files().into_iter().find_map(|(id, open)| (id.persistent == found.id).then_some(open));
    let durable = durable_v2_response(found.timeout);
    if let Some(open) = open {
        debug!(id = found.id, "CREATE replayed");
        return Outcome::Done(answer(&open, &replay, Some(durable)).await);
    }
    if found.in_use {
        // It is in another session of the client's that is still there.
        return fail(ntstatus::STATUS_FILE_NOT_AVAILABLE);
    }
    let reconnect = Reconnect {
        tree: Arc::clone(replay.tree),
        file_id: FileId::new(found.id, 0),
        create_guid: Some(replay.create_guid),
        name: Some(replay.path.clone()),
        owner: replay.owner.map(str::to_owned),
        client: found.client,
        lease,
        queries: replay.queries.clone(),
        replayed: Some(durable),
    };
    reconnect::handle(server, conn, hdr, reconnect, retained).await
}

/// Answers a CREATE whose CreateGuid another of the client's has, which made
/// no durable open or is still at it.
pub(super) async fn again(hdr: &Smb2Header, place: &Place<RwLock<Open>>, args: &CreateArgs) -> Outcome {
    let fail = |status| Outcome::Done(HandlerResponse::err(status));
    if hdr.flags & SMB2_FLAGS_REPLAY_OPERATION == 0 {
        return fail(ntstatus::STATUS_DUPLICATE_OBJECTID);
    }
    let made = match place {
        Place::UnderWay => None,
        Place::Made(open) => open.upgrade(),
    };
    let is_made = |open: &Arc<RwLock<Open>>| made.as_ref().is_some_and(|made| Arc::ptr_eq(made, open));
    let open = args.tree.files().into_iter().map(|(_, open)| open).find(is_made);
    // It is not there yet, or in another session.
    let Some(open) = open else { return fail(ntstatus::STATUS_FILE_NOT_AVAILABLE) };
    let held = open.read().await.file.as_ref().and_then(FileRef::granted).map(|granted| granted.id);
    let asked = args.lease.map(|lease| lease.id);
    if held.is_some_and(|held| !held.is_oplock() && asked != Some(held)) {
        return fail(ntstatus::STATUS_ACCESS_DENIED);
    }
    let replay = Replay {
        tree: &args.tree,
        create_guid: [0; 16],
        path: &args.path,
        owner: args.owner.as_deref(),
        lease: args.lease,
        queries: &args.queries,
        maximal: args.maximal,
    };
    Outcome::Done(answer(&open, &replay, None).await)
}

/// The response to the CREATE that made `open`, as it would be now.
async fn answer(open: &RwLock<Open>, replay: &Replay<'_>, durable: Option<CreateContext>) -> HandlerResponse {
    let open = open.read().await;
    let (Some(handle), Some(file)) = (&open.handle, &open.file) else {
        return HandlerResponse::err(ntstatus::STATUS_FILE_CLOSED);
    };
    let info = match handle.stat().await {
        Ok(info) => info,
        Err(e) => return HandlerResponse::err(e.to_nt_status()),
    };
    let maximal = replay.maximal & handle.maximal_access();
    let mut answers = replay.queries.answer(&info, maximal, VOLUME_SERIAL_NUMBER);
    let (oplock_level, lease) = caching_response(file.granted().as_ref());
    answers.extend(lease);
    answers.extend(durable);
    let body = encode_response(&info, open.file_id, oplock_level, open.create_action, &answers);
    HandlerResponse::ok(body)
}
