//! CREATE handler: open or create a file/directory and allocate a FileId.

mod attempt;
mod request;

use std::sync::Arc;

use tokio::time::Instant;
use tracing::warn;

use crate::conn::pending::{Stop, StopReceiver, stopped};
use crate::conn::state::Connection;
use crate::files::{BreakWait, MAX_BREAK_WAIT};
use crate::handlers::create_contexts::DurableAsk;
use crate::handlers::reconnect;
use crate::handlers::replay::{self, Replay};
use crate::handlers::response::{HandlerResponse, Outcome, Pending};
use crate::handlers::shared::RequestTree;
use crate::state::ServerState;
use attempt::{BegunOpen, Stage, Step, attempt};
use larder_smb_wire::header::{SMB2_FLAGS_REPLAY_OPERATION, Smb2Header};
use larder_smb_wire::ntstatus;
pub(super) use request::CreateArgs;
use request::Request;
pub(crate) use request::{FILE_NO_INTERMEDIATE_BUFFERING, WRITE_THROUGH_OPTIONS};

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &[u8],
    retained: usize,
) -> Outcome {
    let args = match CreateArgs::parse(conn, (hdr, tree), body) {
        Ok(Request::Open(args)) => args,
        Ok(Request::Reconnect(r)) => {
            return reconnect::handle(server, conn, hdr, r, retained).await;
        }
        Err(status) => return Outcome::Done(HandlerResponse::err(status)),
    };
    // MS-SMB2 3.3.5.9.10: a version 2 request that repeats the CreateGuid of
    // a live durable open of the same client fails unless it is marked as a
    // replay, which that open answers.
    if let DurableAsk::V2(request) = args.queries.durable
        && let Some(found) = server.durable.replayable(args.client, request.create_guid)
    {
        if hdr.flags & SMB2_FLAGS_REPLAY_OPERATION == 0 {
            return Outcome::Done(HandlerResponse::err(ntstatus::STATUS_DUPLICATE_OBJECTID));
        }
        let replay = Replay {
            tree: &args.tree,
            create_guid: request.create_guid,
            path: &args.path,
            owner: args.owner.as_deref(),
            lease: args.lease,
            queries: &args.queries,
            maximal: args.maximal,
        };
        return replay::handle(server, conn, hdr, found, replay, retained).await;
    }
    let mut begun = None;
    if let DurableAsk::V2(request) = args.queries.durable
        && !args.client.is_nil()
    {
        match server.replays.begin(args.client, request.create_guid) {
            Ok(first) => begun = Some(first),
            Err(place) => return replay::again(hdr, &place, &args).await,
        }
    }
    let (wait, stage) = match attempt(server, conn, hdr, &args, &mut begun, Stage::Start).await {
        Step::Done(response) => return Outcome::Done(response),
        Step::Wait(wait, stage) => (wait, stage),
    };
    // MS-SMB2 3.3.4.2: past its limits the connection gets no more
    // asynchronous requests.
    let Some((op, mut stop)) = conn.pending.reserve(hdr, None, retained) else {
        warn!("too many waiting requests on the connection");
        return Outcome::Done(HandlerResponse::err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
    };
    let (server, conn, hdr) = (Arc::clone(server), Arc::clone(conn), *hdr);
    let work = async move { wait_for_breaks(&server, &conn, &hdr, &args, begun, (wait, stage), &mut stop).await };
    Outcome::Pending(Pending { op, work: Box::pin(work) })
}

/// Tries again as lease breaks complete, until the CREATE is answered. The
/// wait ends when the breaks complete, which their acknowledgment
/// timers bound. A wait that runs out with nothing changed on the file,
/// or one that outlasts [`MAX_BREAK_WAIT`], fails the CREATE as a sharing
/// violation.
async fn wait_for_breaks(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    args: &CreateArgs,
    mut begun: BegunOpen,
    (mut wait, mut stage): (BreakWait, Stage),
    stop: &mut StopReceiver,
) -> HandlerResponse {
    let give_up = Instant::now() + MAX_BREAK_WAIT;
    loop {
        let changed = tokio::select! {
            biased;
            why = stopped(stop) => {
                if why == Stop::Cancelled {
                    return HandlerResponse::err(ntstatus::STATUS_CANCELLED);
                }
                true
            }
            changed = wait.changed() => changed,
            () = tokio::time::sleep_until(give_up) => false,
        };
        match attempt(server, conn, hdr, args, &mut begun, stage).await {
            Step::Done(response) => return response,
            Step::Wait(..) if !changed => return HandlerResponse::err(ntstatus::STATUS_SHARING_VIOLATION),
            Step::Wait(next, left) => {
                wait = next;
                stage = left;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Notify, Semaphore};

    use super::request::FILE_OVERWRITE;
    use super::*;
    use crate::conn::state::{Session, TreeConnect};
    use crate::door::view::VisitedShare;
    use crate::files::{FileRef, Sharing};
    use crate::tests::seam::Step;
    use crate::words::{OpenIntent, OpenOptions};
    use crate::{Share, SmbServer};
    use larder_smb_wire::access_mask::{Access, FILE_READ_DATA, FILE_WRITE_DATA};
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::header::{Command, HeaderTail};
    use larder_smb_wire::messages::CreateRequest;
    use larder_smb_wire::path::SmbPath;

    fn create_body(name: &str, disposition: u32) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let req = CreateRequest {
            structure_size: 57,
            security_flags: 0,
            requested_oplock_level: 0,
            impersonation_level: 2,
            smb_create_flags: 0,
            reserved: 0,
            desired_access: FILE_READ_DATA | FILE_WRITE_DATA,
            file_attributes: 0,
            share_access: 7,
            create_disposition: disposition,
            create_options: 0,
            name_offset: 0x78,
            name_length: name.len() as u16,
            create_contexts_offset: 0,
            create_contexts_length: 0,
            name,
            create_contexts: Vec::new(),
        };
        let mut body = Vec::new();
        req.write_to(&mut body).expect("encoding into a Vec cannot fail");
        body
    }

    #[tokio::test]
    async fn a_truncating_create_holds_the_file_while_the_store_truncates() {
        let waiting = Arc::new(Notify::new());
        let go = Arc::new(Semaphore::new(0));
        let view = VisitedShare::in_memory().await.with_file("f.txt", b"precious").await;
        let held = (Arc::clone(&waiting), Arc::clone(&go));
        // A truncating open tells that it has arrived, and waits for a permit.
        view.core.seam.set(move |step| {
            let held = matches!(step, Step::Open(_, OpenIntent::Truncate)).then(|| held.clone());
            Box::pin(async move {
                if let Some((waiting, go)) = held {
                    waiting.notify_one();
                    go.acquire().await.expect("gate").forget();
                }
                Ok(())
            })
        });
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .share(Share::of("s", view.clone()).public())
            .build()
            .unwrap();
        let state = server.state();
        let share = state.find_share("s").await.unwrap();
        let conn = Arc::new(Connection::new(
            state.config.server_guid,
            state.config.max_read_size,
            state.config.max_write_size,
        ));
        let session = Session::new(Identity::Anonymous, [0; 16], false);
        let tree = TreeConnect::new(1, Arc::clone(&share), Access::ReadWrite);
        let tree = Arc::new(tree);
        session.trees.change().await.insert(1, Arc::clone(&tree));
        conn.sessions.change().await.insert(1, Arc::new(session));

        let hdr =
            Smb2Header { command: Command::Create, tail: HeaderTail::sync(1), session_id: 1, ..Smb2Header::default() };
        let body = create_body("f.txt", FILE_OVERWRITE);
        let truncating = tokio::spawn({
            let state = Arc::clone(&state);
            let conn = Arc::clone(&conn);
            async move {
                match handle(&state, &conn, (&hdr, &Ok(tree)), &body, 0).await {
                    Outcome::Done(response) => response.status,
                    Outcome::Pending(_) => panic!("the CREATE waits"),
                }
            }
        });
        waiting.notified().await;

        // Another connection's exclusive open arrives while the store
        // truncates.
        let path: SmbPath = "f.txt".parse().unwrap();
        let (probe, _) = view.open(&path, OpenOptions::default()).await.unwrap();
        let info = probe.stat().await.unwrap();
        let exclusive =
            FileRef::register(&share, &info, probe.name(), Sharing { access: FILE_READ_DATA, share: 0 }.into());
        assert_eq!(exclusive.err().map(|r| r.status), Some(ntstatus::STATUS_SHARING_VIOLATION));

        go.add_permits(1);
        assert_eq!(truncating.await.unwrap(), ntstatus::STATUS_SUCCESS);
        assert_eq!(probe.stat().await.unwrap().end_of_file, 0);
    }
}
