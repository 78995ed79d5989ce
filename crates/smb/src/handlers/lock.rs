//! LOCK handler: byte-range locks (MS-SMB2 3.3.5.14).
//!
//! A request for one range that may wait does so asynchronously, until the
//! range is free, the request is cancelled, or its open, tree, session or
//! connection goes. Nothing else bounds the wait: how long a lock is held is
//! the clients' business. What bounds the waiting requests of a connection
//! is [`PendingOps::reserve`](crate::conn::pending::PendingOps::reserve).

use std::sync::Arc;

use tracing::warn;

use crate::conn::limits::MAX_LOCKS_PER_OPEN;
use crate::conn::pending::{Stop, stopped};
use crate::conn::state::{Connection, TreeConnect};
use crate::files::{FileRef, LockSequences, OpenSlot, Party};
use crate::handlers::response::{HandlerResponse, Outcome, Pending};
use crate::handlers::shared::{RequestTree, has_channels, lookup_open, note_channel, still_connected};
use larder_opens::Waiter;
use larder_smb_wire::access_mask::{FILE_APPEND_DATA, FILE_EXECUTE, FILE_READ_DATA, FILE_WRITE_DATA};
use larder_smb_wire::header::Smb2Header;
use larder_smb_wire::messages::{LockElement, LockRequest};
use larder_smb_wire::ntstatus;

/// An open has to read or write data before it locks any.
const DATA_ACCESS: u32 = FILE_READ_DATA | FILE_WRITE_DATA | FILE_APPEND_DATA | FILE_EXECUTE;

const SHARED: u32 = LockElement::FLAG_SHARED_LOCK;
const EXCLUSIVE: u32 = LockElement::FLAG_EXCLUSIVE_LOCK;
const UNLOCK: u32 = LockElement::FLAG_UNLOCK;
const FAIL_IMMEDIATELY: u32 = LockElement::FLAG_FAIL_IMMEDIATELY;

pub(super) async fn handle(
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &[u8],
    retained: usize,
) -> Outcome {
    let req = match LockRequest::parse(body) {
        Ok(r) => r,
        Err(_) => return done(Err(ntstatus::STATUS_INVALID_PARAMETER)),
    };
    let tree = match tree {
        Ok(tree) => tree,
        Err(status) => return done(Err(*status)),
    };
    let wait = match attempt(conn, hdr, tree, &req).await {
        Attempt::Done(result) => return done(result),
        Attempt::Wait(wait) => wait,
    };
    // MS-SMB2 3.3.4.2: past its limits the connection gets no more
    // asynchronous requests.
    let Some((op, mut stop)) = conn.pending.reserve(hdr, Some(req.file_id), retained) else {
        warn!("too many waiting requests on the connection");
        return done(Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
    };
    let (conn, hdr, tree) = (Arc::clone(conn), *hdr, Arc::clone(tree));
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
                () = &mut wait => {}
            }
            match attempt(&conn, &hdr, &tree, &req).await {
                // The file changed because the open, its tree or its session went, and the stop is yet to come.
                Attempt::Done(Err(
                    ntstatus::STATUS_FILE_CLOSED
                    | ntstatus::STATUS_NETWORK_NAME_DELETED
                    | ntstatus::STATUS_USER_SESSION_DELETED,
                )) => return respond(Err(ntstatus::STATUS_RANGE_NOT_LOCKED)),
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
    match result {
        Ok(()) => HandlerResponse::empty(),
        Err(status) => HandlerResponse::err(status),
    }
}

/// How an attempt ended.
enum Attempt {
    Done(Result<(), u32>),
    /// The range is locked: try again after a change.
    Wait(Waiter),
}

async fn attempt(conn: &Arc<Connection>, hdr: &Smb2Header, tree: &Arc<TreeConnect>, req: &LockRequest) -> Attempt {
    let fail = |status| Attempt::Done(Err(status));
    if let Err(status) = still_connected(conn, hdr, tree) {
        return fail(status);
    }
    let Some(open_arc) = lookup_open(tree, req.file_id) else {
        return fail(ntstatus::STATUS_FILE_CLOSED);
    };
    let Some(first) = req.locks.first() else {
        return fail(ntstatus::STATUS_INVALID_PARAMETER);
    };
    let open = open_arc.read().await;
    note_channel(conn, hdr, &open);
    // MS-FSA 2.1.5.8: directories take no byte-range locks.
    if open.is_directory {
        return fail(ntstatus::STATUS_INVALID_PARAMETER);
    }
    // As NtLockFile of Windows asks, and Samba: a lock keeps others from the data.
    if open.granted_access & DATA_ACCESS == 0 {
        return fail(ntstatus::STATUS_ACCESS_DENIED);
    }
    let Some(file) = open.file.as_ref() else {
        return fail(ntstatus::STATUS_FILE_CLOSED);
    };
    // MS-SMB2 3.3.5.14: a request that is sent again, after a reconnect or
    // through another channel, has been carried out already. Other opens send
    // no sequences.
    let may_repeat = open.durable.is_some() || has_channels(conn.negotiated.dialect());
    let sequence = LockSequences::of(req.lock_sequence).filter(|_| may_repeat);
    if let Some((index, number)) = sequence
        && open.lock_sequences.is_replay(index, number)
    {
        return Attempt::Done(Ok(()));
    }
    let is_unlock = first.flags & UNLOCK != 0;
    // Before the attempt, so that what changes after it is heard.
    let changes = (!is_unlock).then(|| file.changed());
    let exclusive = req.locks.iter().any(|one| one.flags & EXCLUSIVE != 0);
    let changes = match changes {
        Some(changes) if file.awaits_others(exclusive) => return Attempt::Wait(changes),
        changes => changes.filter(|_| first.flags & FAIL_IMMEDIATELY == 0),
    };
    let result = match is_unlock {
        true => unlock(file, &req.locks),
        false => lock(file, open.slot.as_ref().and_then(OpenSlot::party), &req.locks),
    };
    match (result, changes) {
        (Err(ntstatus::STATUS_LOCK_NOT_GRANTED), Some(changes)) => return Attempt::Wait(changes),
        (Ok(()), _) => {
            if let Some((index, number)) = sequence {
                open.lock_sequences.done(index, number);
            }
        }
        (Err(_), _) => {}
    }
    Attempt::Done(result)
}

/// MS-SMB2 3.3.5.14.1: unlocks done before a failure stay done.
fn unlock(file: &FileRef, locks: &[LockElement]) -> Result<(), u32> {
    locks.iter().try_for_each(|l| match l.flags {
        UNLOCK => file.unlock_range(l.offset, l.length),
        _ => Err(ntstatus::STATUS_INVALID_PARAMETER),
    })
}

/// MS-SMB2 3.3.5.14.2: a failed lock releases the ranges this request locked
/// before it. Only a request for one range may wait for it.
fn lock(file: &FileRef, party: Option<&Party>, locks: &[LockElement]) -> Result<(), u32> {
    let valid = |flags: u32| {
        matches!(flags & !FAIL_IMMEDIATELY, SHARED | EXCLUSIVE) && (locks.len() == 1 || flags & FAIL_IMMEDIATELY != 0)
    };
    if !locks.iter().all(|l| valid(l.flags)) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    for (taken, l) in locks.iter().enumerate() {
        let locked = file.lock_range((l.offset, l.length), l.flags & EXCLUSIVE != 0, MAX_LOCKS_PER_OPEN, party);
        if let Err(status) = locked {
            for t in &locks[..taken] {
                file.undo_lock(t.offset, t.length, t.flags & EXCLUSIVE != 0);
            }
            return Err(status);
        }
    }
    Ok(())
}
