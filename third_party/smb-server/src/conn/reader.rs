//! Per-connection frame reader: pulls bytes off the socket, frames them,
//! hands each frame to the dispatcher.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};

use crate::proto::framing::{FRAME_HEADER_LEN, decode_frame_header};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::conn::limits::max_request_frame;
use crate::conn::state::Connection;
use crate::dispatch::{Continuation, Outgoing, Received, Requests, receive_frame};
use crate::files::AfterSend;
use crate::server::ServerState;

/// Reads the rest of a frame whose first `filled` prefix bytes are already
/// in `prefix`, and returns its payload (without the 4-byte length prefix).
/// A frame longer than the connection accepts fails before its payload is
/// read; the payload buffer grows with the bytes that arrive.
async fn read_frame_rest(
    reader: &mut ReadHalf<TcpStream>,
    conn: &Connection,
    prefix: &mut [u8; FRAME_HEADER_LEN],
    filled: usize,
    trusted: bool,
) -> io::Result<Bytes> {
    reader.read_exact(&mut prefix[filled..]).await?;
    let len = match decode_frame_header(prefix) {
        Ok(n) => n as usize,
        Err(e) => {
            return Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string()));
        }
    };
    let limit = max_request_frame(
        *conn.dialect.read().await,
        *conn.max_read_size.read().await,
        *conn.max_write_size.read().await,
    );
    if len > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("frame of {len} bytes exceeds the {limit}-byte limit"),
        ));
    }
    let initial = if trusted {
        len
    } else {
        len.min(INITIAL_FRAME_BUFFER)
    };
    let mut payload = BytesMut::with_capacity(initial);
    while payload.len() < len {
        let room = len - payload.len();
        if reader.read_buf(&mut (&mut payload).limit(room)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(payload.freeze())
}

/// Initial payload buffer before a client has logged on; larger frames
/// grow it as their bytes arrive.
const INITIAL_FRAME_BUFFER: usize = 64 * 1024;

/// Whether any tree on the connection has an open file.
async fn has_open_files(conn: &Connection) -> bool {
    let sessions: Vec<_> = conn.sessions.read().await.values().cloned().collect();
    for session in sessions {
        let session = session.read().await;
        let trees: Vec<_> = session.trees.read().await.values().cloned().collect();
        for tree in trees {
            if !tree.read().await.opens.read().await.is_empty() {
                return true;
            }
        }
    }
    false
}

/// What follows once a response is queued. Lease breaks held back for it
/// go out behind it, and so does the rest of a chain whose interim
/// response it was.
fn sent(
    after_send: Vec<AfterSend>,
    continuation: Option<Continuation>,
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
) {
    drop(after_send);
    if let Some(continuation) = continuation {
        conn.pending
            .spawn(continuation.run(Arc::clone(server), Arc::clone(conn)));
    }
}

/// Credits' worth of requests (64 KiB each) that may run beside the
/// reader: 8 MiB.
const OVERLAP_CREDITS: u32 = 128;

/// Requests of one connection that run beside each other. Each frame is
/// run in place until it first has to wait, so one that never waits is
/// answered in order and at no extra cost; one that does wait, for the
/// backend, goes on as a task while the reader takes the next frame.
struct Overlap {
    credits: Arc<Semaphore>,
}

impl Overlap {
    fn new() -> Self {
        Self {
            credits: Arc::new(Semaphore::new(OVERLAP_CREDITS as usize)),
        }
    }

    /// Runs `requests`, waiting for room first, or until no other request
    /// runs when they have to run alone. Returns the response, unless a
    /// task is left to send it.
    async fn run(
        &self,
        requests: Requests,
        server: &Arc<ServerState>,
        conn: &Arc<Connection>,
    ) -> Option<Outgoing> {
        let alone = !requests.may_overlap();
        let wanted = if alone {
            OVERLAP_CREDITS
        } else {
            requests.credits().min(OVERLAP_CREDITS)
        };
        let permit = Arc::clone(&self.credits).acquire_many_owned(wanted).await;
        if alone {
            return requests.run(server, conn).await;
        }
        let (server, conn) = (Arc::clone(server), Arc::clone(conn));
        let mut work = Box::pin({
            let (server, conn) = (Arc::clone(&server), Arc::clone(&conn));
            async move { requests.run(&server, &conn).await }
        });
        let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(response) = polled {
            return response;
        }
        conn.pending.spawn({
            let conn = Arc::clone(&conn);
            async move {
                let _permit = permit;
                let response = work.await;
                if conn.disconnect_requested() {
                    conn.outbound.kill();
                } else if let Some(out) = response
                    && conn.outbound.send(out.message).await.is_ok()
                {
                    sent(out.after_send, out.continuation, &server, &conn);
                }
            }
        });
        None
    }
}

fn is_hangup(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// Read frames and dispatch them in arrival order, those that wait for the
/// backend beside each other (see [`Overlap`]), sending each response to
/// the writer. Returns between frames once the server
/// shuts down; a frame that has started to arrive is still answered.
pub async fn reader_task(
    mut reader: ReadHalf<TcpStream>,
    server: Arc<ServerState>,
    conn: Arc<Connection>,
    tx: crate::conn::writer::ResponseQueue,
) -> io::Result<()> {
    let limits = &server.config.limits;
    // Until a session exists this is the handshake deadline; after that it
    // is the idle deadline.
    let mut deadline = Instant::now() + limits.handshake_timeout;
    let mut has_session = false;
    let overlap = Overlap::new();
    loop {
        let stopped = server.shutdown.notified();
        tokio::pin!(stopped);
        stopped.as_mut().enable();
        if server.shutting_down.load(Ordering::Acquire) {
            debug!("server shutting down; closing connection");
            return Ok(());
        }

        let mut prefix = [0u8; FRAME_HEADER_LEN];
        let filled = tokio::select! {
            biased;
            read = reader.read(&mut prefix) => read,
            _ = &mut stopped => {
                debug!("server shutting down; closing connection");
                return Ok(());
            }
            _ = tx.closed() => {
                debug!("writer closed; reader exiting");
                return Ok(());
            }
            _ = conn.outbound.killed() => {
                info!("client stopped reading lease breaks; closing connection");
                return Ok(());
            }
            _ = tokio::time::sleep_until(deadline) => {
                if !has_session {
                    info!("no session established in time; closing connection");
                    return Ok(());
                }
                if !has_open_files(&conn).await {
                    info!("closing idle connection");
                    return Ok(());
                }
                deadline = Instant::now() + limits.idle_timeout;
                continue;
            }
        };
        let frame = match filled {
            Ok(0) => {
                debug!("client closed connection");
                return Ok(());
            }
            Ok(filled) => {
                let rest = read_frame_rest(&mut reader, &conn, &mut prefix, filled, has_session);
                match tokio::time::timeout(limits.io_timeout, rest).await {
                    Ok(frame) => frame,
                    Err(_) => Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "frame not received in time",
                    )),
                }
            }
            Err(e) => Err(e),
        };
        let frame = match frame {
            Ok(frame) => frame,
            // A client that goes away without a word is no fault of the
            // server's.
            Err(e) if is_hangup(&e) => {
                debug!(error = %e, "client went away");
                return Ok(());
            }
            Err(e) => {
                warn!(error = %e, "closing connection");
                return Ok(());
            }
        };
        let response = match receive_frame(&server, &conn, frame).await {
            Received::Nothing => None,
            Received::Answered(outgoing) => Some(outgoing),
            Received::Requests(requests) => overlap.run(requests, &server, &conn).await,
        };
        if conn.disconnect_requested() {
            debug!("closing connection without a reply");
            return Ok(());
        }
        if let Some(out) = response {
            if tx.send(out.message).await.is_err() {
                debug!("writer channel closed; reader exiting");
                return Ok(());
            }
            sent(out.after_send, out.continuation, &server, &conn);
        }
        has_session = has_session || !conn.sessions.read().await.is_empty();
        if has_session {
            deadline = Instant::now() + limits.idle_timeout;
        }
    }
}
