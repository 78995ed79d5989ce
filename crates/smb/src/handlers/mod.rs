//! Per-command handlers.
//!
//! Each function here builds a `HandlerResponse` for a specific SMB2 command.
//! Handlers receive the parsed request header and a slice of the body bytes;
//! they return either a successful body or `HandlerResponse::err(ntstatus)`.

use std::sync::Arc;

use bytes::Bytes;

use crate::proto::header::{Command, Smb2Header};

use crate::conn::state::{Connection, TreeConnect};
use crate::handlers::response::{HandlerResponse, Outcome};
use crate::ntstatus;
use crate::state::ServerState;

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
    (hdr, tree): (&Smb2Header, &Result<Arc<TreeConnect>, u32>),
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
    let response = match hdr.command {
        Command::Create => return create::handle(server, conn, hdr, body, retained).await,
        Command::SetInfo => return set_info::handle(conn, hdr, body, retained).await,
        Command::ChangeNotify => {
            return change_notify::handle(conn, hdr, body, retained).await;
        }
        Command::Lock => return lock::handle(conn, hdr, body, retained).await,
        Command::Negotiate => negotiate::handle(server, conn, hdr, body).await,
        Command::SessionSetup => session_setup::handle(server, conn, hdr, body).await,
        Command::Logoff => logoff::handle(server, conn, hdr, body).await,
        Command::TreeConnect => tree_connect::handle(server, conn, hdr, body, encrypted).await,
        Command::TreeDisconnect => tree_disconnect::handle(conn, hdr, body).await,
        Command::Close => close::handle(conn, hdr, body).await,
        Command::Flush => flush::handle(conn, hdr, body).await,
        Command::Read => read::handle(conn, hdr, tree, body).await,
        Command::Write => write::handle(conn, hdr, tree, body).await,
        Command::Ioctl => ioctl::handle(server, conn, hdr, body).await,
        Command::Echo => echo::handle(conn, hdr, body).await,
        Command::QueryDirectory => query_directory::handle(conn, hdr, body).await,
        Command::QueryInfo => query_info::handle(conn, hdr, body).await,
        Command::OplockBreak => oplock_break::handle(server, conn, hdr, body).await,
        Command::Cancel => HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    };
    Outcome::Done(response)
}
