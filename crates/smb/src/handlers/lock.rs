//! LOCK handler: byte-range locks (MS-SMB2 3.3.5.14).
//!
//! A request for one range that may wait does so asynchronously, until the
//! range is free, the request is cancelled, or its open, tree, session or
//! connection goes. Nothing else bounds the wait: how long a lock is held is
//! the clients' business. What bounds the waiting requests of a connection
//! is [`PendingOps::reserve`](crate::conn::pending::PendingOps::reserve).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;

use crate::conn::pending::{Stop, stopped};
use crate::conn::state::Connection;
use crate::dispatch::HandlerResponse;
use crate::files::{FileRef, LockSequences};
use crate::handlers::shared::{lookup_open, lookup_session_tree};
use crate::handlers::{Outcome, Pending};
use crate::ntstatus;
use crate::proto::header::Smb2Header;
use crate::proto::messages::{LockElement, LockRequest, LockResponse};
use crate::server::ServerState;

const SHARED: u32 = LockElement::FLAG_SHARED_LOCK;
const EXCLUSIVE: u32 = LockElement::FLAG_EXCLUSIVE_LOCK;
const UNLOCK: u32 = LockElement::FLAG_UNLOCK;
const FAIL_IMMEDIATELY: u32 = LockElement::FLAG_FAIL_IMMEDIATELY;

pub(super) async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    body: &[u8],
    retained: usize,
) -> Outcome {
    let req = match LockRequest::parse(body) {
        Ok(r) => r,
        Err(_) => return done(Err(ntstatus::STATUS_INVALID_PARAMETER)),
    };
    let wait = match attempt(server, conn, hdr, &req).await {
        Attempt::Done(result) => return done(result),
        Attempt::Wait(wait) => wait,
    };
    // MS-SMB2 3.3.4.2: past its limits the connection gets no more
    // asynchronous requests.
    let Some((op, mut stop)) = conn.pending.reserve(hdr, Some(req.file_id), retained) else {
        warn!("too many waiting requests on the connection");
        return done(Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
    };
    let (server, conn, hdr) = (Arc::clone(server), Arc::clone(conn), *hdr);
    let work = async move {
        let mut wait = wait;
        loop {
            tokio::select! {
                biased;
                why = stopped(&mut stop) => return respond(Err(match why {
                    Stop::Cancelled => ntstatus::STATUS_CANCELLED,
                    // As Windows answers when the open goes.
                    Stop::Retry => ntstatus::STATUS_RANGE_NOT_LOCKED,
                })),
                _ = wait.changed() => {}
            }
            match attempt(&server, &conn, &hdr, &req).await {
                // The file changed because the open went, and the stop is yet to come.
                Attempt::Done(Err(ntstatus::STATUS_FILE_CLOSED)) => {
                    return respond(Err(ntstatus::STATUS_RANGE_NOT_LOCKED));
                }
                Attempt::Done(result) => return respond(result),
                Attempt::Wait(next) => wait = next,
            }
        }
    };
    Outcome::Pending(Pending { op, work: Box::pin(work) })
}

fn done(result: Result<(), u32>) -> Outcome {
    Outcome::Done(respond(result))
}

fn respond(result: Result<(), u32>) -> HandlerResponse {
    if let Err(status) = result {
        return HandlerResponse::err(status);
    }
    let mut buf = Vec::new();
    LockResponse::default().write_to(&mut buf).expect("encode");
    HandlerResponse::ok(buf)
}

/// How an attempt ended.
enum Attempt {
    Done(Result<(), u32>),
    /// The range is locked: try again after a change.
    Wait(tokio::sync::watch::Receiver<u64>),
}

async fn attempt(server: &Arc<ServerState>, conn: &Arc<Connection>, hdr: &Smb2Header, req: &LockRequest) -> Attempt {
    let fail = |status| Attempt::Done(Err(status));
    let tree_arc = match lookup_session_tree(conn, hdr).await {
        Ok(t) => t,
        Err(s) => return fail(s),
    };
    let Some(open_arc) = lookup_open(&tree_arc, req.file_id).await else {
        return fail(ntstatus::STATUS_FILE_CLOSED);
    };
    let Some(first) = req.locks.first() else {
        return fail(ntstatus::STATUS_INVALID_PARAMETER);
    };
    let open = open_arc.read().await;
    // MS-FSA 2.1.5.8: directories take no byte-range locks.
    if open.is_directory {
        return fail(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let Some(file) = open.file.as_ref() else {
        return fail(ntstatus::STATUS_FILE_CLOSED);
    };
    // MS-SMB2 3.3.5.14: a request that is sent again after a reconnect has
    // been carried out already. Opens that cannot be reconnected send none.
    let sequence = open.durable.as_ref().and(LockSequences::of(req.lock_sequence));
    if let Some((index, number)) = sequence
        && open.lock_sequences.is_replay(index, number)
    {
        return Attempt::Done(Ok(()));
    }
    let changes = file.changes();
    let result = match first.flags & UNLOCK != 0 {
        true => unlock(file, &req.locks),
        false => lock(file, &req.locks, server.max_locks_per_open.load(Ordering::Relaxed)),
    };
    match result {
        Err(ntstatus::STATUS_LOCK_NOT_GRANTED) if first.flags & FAIL_IMMEDIATELY == 0 => {
            return Attempt::Wait(changes);
        }
        Ok(()) => {
            if let Some((index, number)) = sequence {
                open.lock_sequences.done(index, number);
            }
        }
        Err(_) => {}
    }
    Attempt::Done(result)
}

/// MS-SMB2 3.3.5.14.1: unlocks done before a failure stay done.
fn unlock(file: &FileRef, locks: &[LockElement]) -> Result<(), u32> {
    locks.iter().try_for_each(|l| {
        if l.flags != UNLOCK {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        file.unlock_range(l.offset, l.length)
    })
}

/// MS-SMB2 3.3.5.14.2: a failed lock releases the ranges this request locked
/// before it. Only a request for one range may wait for it.
fn lock(file: &FileRef, locks: &[LockElement], limit: usize) -> Result<(), u32> {
    let valid = |flags: u32| {
        matches!(flags & !FAIL_IMMEDIATELY, SHARED | EXCLUSIVE) && (locks.len() == 1 || flags & FAIL_IMMEDIATELY != 0)
    };
    if !locks.iter().all(|l| valid(l.flags)) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    for (taken, l) in locks.iter().enumerate() {
        let result = file.lock_range(l.offset, l.length, l.flags & EXCLUSIVE != 0, limit);
        if let Err(status) = result {
            for t in &locks[..taken] {
                file.undo_lock(t.offset, t.length, t.flags & EXCLUSIVE != 0);
            }
            return Err(status);
        }
    }
    Ok(())
}
