//! Per-connection task layout.

pub mod chain;
pub(crate) mod channels;
pub mod credits;
mod ending;
pub mod limits;
pub mod listener;
pub mod logons;
pub(crate) mod negotiated;
pub mod outbound;
pub mod pending;
pub mod reader;
pub mod related;
pub mod state;
pub mod table;
pub mod writer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_base::task;
use larder_base::traffic::{Live, Protocol};
use tokio::net::TcpStream;
use tracing::info;

use crate::admission::StrangerAccount;
use crate::files::Punctual;
use crate::state::ServerState;
use state::Connection;

/// Runs the reader and writer tasks for a single connection accepted from
/// `peer` until either side hangs up. Returns once both halves are done.
pub async fn connection_loop(
    stream: TcpStream,
    peer: SocketAddr,
    account: Arc<dyn StrangerAccount>,
    server: Arc<ServerState>,
) {
    let live = Live::begin(Protocol::Smb, peer, &stream);
    let (read_half, write_half) = tokio::io::split(stream);
    let mut conn =
        Connection::new(server.config.server_guid, server.config.max_read_size, server.config.max_write_size);
    conn.peer_addr = Some(peer);
    let conn = Arc::new(conn);
    let conn_id = server.active_connections.register(&conn).await;
    let (tx, rx) = writer::response_queue();
    conn.outbound.attach(tx.clone());
    conn.outbound.set_client(Punctual::new(&server.late, peer.ip()));

    let (writes, evicted) = (writer::writer_task(write_half, rx, server.config.limits.io_timeout), account.evicted());
    let writer_handle = task::spawn(async move {
        tokio::select! {
            () = writes => {}
            // A client that reads nothing must not keep a place that others need.
            () = evicted => {}
        }
    });

    info!("connection accepted");
    reader::reader_task((live, read_half), server.clone(), conn.clone(), Arc::clone(&account), tx).await;
    conn.mark_closing();
    // Requests still waiting are cancelled and answered while the writer
    // runs. Then the writer drains; messages for this connection raised
    // from now on are not sent.
    conn.pending.shutdown(server.config.limits.io_timeout).await;
    conn.outbound.close();
    let _ = writer_handle.await;
    // Durable opens outlive a lost connection, but not a shutdown.
    let keep = (!server.shutting_down.load(Ordering::Acquire)).then_some(&server.durable);
    conn.close_all(keep).await;
    server.active_connections.unregister(conn_id).await;
    drop(account);
    info!("connection closed");
}
