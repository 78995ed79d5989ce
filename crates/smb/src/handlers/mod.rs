//! Per-command handlers.
//!
//! Each function here builds a `HandlerResponse` for a specific SMB2 command.
//! Handlers receive the parsed request header and a slice of the body bytes;
//! they return a response or the status that the request fails with.

use std::sync::Arc;

use bytes::Bytes;

use larder_smb_wire::header::{Command, Smb2Header};

use crate::conn::state::Connection;
use crate::handlers::response::{HandlerResponse, Outcome};
use crate::handlers::shared::RequestTree;
use crate::state::ServerState;
use larder_smb_wire::ntstatus;

mod apple;
mod change_notify;
mod close;
pub(crate) mod copychunk;
pub(crate) mod create;
pub(crate) mod create_contexts;
mod echo;
mod extended;
mod flush;
pub(crate) mod interfaces;
pub(crate) mod ioctl;
mod lock;
mod logoff;
pub(crate) mod negotiate;
mod oplock_break;
mod pipe;
mod query_directory;
mod query_info;
mod read;
mod reconnect;
mod replay;
pub(crate) mod response;
pub(crate) mod session_setup;
pub(crate) mod set_info;
pub(crate) mod shared;
mod snapshots;
mod sparse;
mod tree_connect;
mod tree_disconnect;
mod write;

/// Top-level command router. `tree` is the request's tree, or the status without one; `encrypted` tells whether the request arrived
/// encrypted; `retained` is the size of the request and the requests
/// compounded after it, which a request that goes asynchronous keeps until
/// it completes.
pub(crate) async fn dispatch_command(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    (hdr, tree): (&Smb2Header, &RequestTree),
    body: &Bytes,
    encrypted: bool,
    retained: usize,
) -> Outcome {
    if let Ok(ipc) = tree
        && ipc.share.is_ipc
        && let Some(outcome) = pipe::route(server, conn, hdr, ipc, body, retained).await
    {
        return outcome;
    }
    let answered = match hdr.command {
        Command::Create => return create::handle(server, conn, (hdr, tree), body, retained).await,
        Command::SetInfo => return set_info::handle(conn, (hdr, tree), body, retained).await,
        Command::ChangeNotify => {
            return change_notify::handle(conn, (hdr, tree), body, retained).await;
        }
        Command::Lock => return lock::handle(conn, (hdr, tree), body, retained).await,
        Command::Negotiate => Ok(negotiate::handle(server, conn, hdr, body).await),
        Command::SessionSetup => Ok(session_setup::handle(server, conn, hdr, body).await),
        Command::Logoff => logoff::handle(server, conn, hdr).await,
        Command::TreeConnect => tree_connect::handle(server, conn, hdr, body, encrypted).await,
        Command::TreeDisconnect => tree_disconnect::handle(conn, hdr).await,
        Command::Close => close::handle(conn, tree, body).await,
        Command::Flush => flush::handle(conn, hdr, tree, body).await,
        Command::Read => read::handle(conn, hdr, tree, body).await,
        Command::Write => write::handle(conn, hdr, tree, body).await,
        Command::Ioctl => ioctl::handle(server, conn, (hdr, tree), body).await,
        Command::Echo => echo::handle(conn, hdr),
        Command::QueryDirectory => query_directory::handle(conn, tree, body).await,
        Command::QueryInfo => query_info::handle(conn, hdr, tree, body).await,
        Command::OplockBreak => oplock_break::handle(server, conn, tree, body).await,
        Command::Cancel => Err(ntstatus::STATUS_INVALID_PARAMETER),
    };
    Outcome::Done(answered.unwrap_or_else(HandlerResponse::err))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::view::VisitedShare;
    use crate::tests::peer::Peer;
    use crate::{Share, SmbServer};
    use larder_smb_wire::header::HeaderTail;
    use larder_smb_wire::messages::{CloseRequest, FileId, FlushRequest};

    /// The check of a request's tree and its use see the same tree, also if another channel connects one in between.
    #[tokio::test]
    async fn handlers_use_the_tree_that_was_checked() {
        let share = Share::of("home", VisitedShare::in_memory().await).public();
        let server = SmbServer::builder().listen("127.0.0.1:0".parse().unwrap()).share(share).build().expect("build");
        let state = server.state();
        let peer = Peer::new(&state, true).await;
        let file_id = FileId::new(1, 1);
        let (mut close, mut flush) = (Vec::new(), Vec::new());
        CloseRequest { structure_size: 24, flags: 0, reserved: 0, file_id }.write_to(&mut close).expect("close");
        FlushRequest { structure_size: 24, reserved1: 0, reserved2: 0, file_id_persistent: 1, file_id_volatile: 1 }
            .write_to(&mut flush)
            .expect("flush");
        for (command, body) in [
            (Command::Close, close),
            (Command::Flush, flush),
            (Command::Ioctl, Vec::new()),
            (Command::ChangeNotify, Vec::new()),
            (Command::OplockBreak, Vec::new()),
        ] {
            let hdr = Smb2Header { command, tail: HeaderTail::sync(1), session_id: 1, ..Smb2Header::default() };
            let checked = Err(ntstatus::STATUS_NETWORK_NAME_DELETED);
            let outcome = dispatch_command(&state, &peer.conn, (&hdr, &checked), &body.into(), false, 0).await;
            let Outcome::Done(response) = outcome else { panic!("{command:?} waits") };
            assert_eq!(response.status, ntstatus::STATUS_NETWORK_NAME_DELETED, "{command:?}");
        }
    }
}
