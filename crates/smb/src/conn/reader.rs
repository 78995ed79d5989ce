//! Per-connection frame reader: pulls bytes off the socket, frames them,
//! hands each frame to the dispatcher.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use larder_base::traffic::{self, Live, Traffic};

use crate::proto::framing::{FRAME_HEADER_LEN, decode_frame_header};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tracing::{debug, info, warn};

use crate::admission::{Admission, StrangerAccount};
use crate::conn::limits::max_request_frame;
use crate::conn::state::Connection;
use crate::conn::writer::ResponseQueue;
use crate::dispatch::{Outgoing, Received, Requests, receive_frame};
use crate::state::ServerState;

/// Bytes read ahead of the frame they belong to: several small requests
/// come with one system call, and no more than this of a large one is
/// copied.
const READ_AHEAD: usize = 8 * 1024;

/// The same behind a small frame of a client that has logged on: others like
/// it are likely to follow, and each system call costs as much as the rest of
/// such a request.
const READ_AHEAD_OF_SMALL: usize = 32 * 1024;

/// Takes frames off a socket.
struct FrameReader {
    /// Before the socket (`traffic.fd_outlived`).
    live: Live,
    socket: ReadHalf<TcpStream>,
    /// What has come and belongs to no frame yet.
    ahead: BytesMut,
    /// Bytes that may be in `ahead`.
    ahead_max: usize,
}

impl FrameReader {
    fn new(live: Live, socket: ReadHalf<TcpStream>) -> Self {
        Self { live, socket, ahead: BytesMut::with_capacity(READ_AHEAD), ahead_max: READ_AHEAD }
    }

    /// Whether a frame has begun to arrive.
    fn has_begun(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Waits for bytes; 0 at the end of the stream. Nothing is lost when the
    /// caller stops waiting.
    async fn fill(&mut self) -> io::Result<usize> {
        let room = self.ahead_max.saturating_sub(self.ahead.len());
        self.ahead.reserve(room);
        self.socket.read_buf(&mut (&mut self.ahead).limit(room)).await
    }

    /// Reads the frame that has begun to arrive and returns its payload
    /// (without the 4-byte length prefix). A frame longer than the
    /// connection accepts fails before its payload is read. The payload of
    /// a large one is read to where it stays; before a client has logged on
    /// (`stranger`) its buffer grows with the bytes that arrive, and its
    /// account is told.
    async fn frame(&mut self, conn: &Connection, stranger: Option<&dyn StrangerAccount>) -> io::Result<Bytes> {
        let prefix = loop {
            if let Some(prefix) = self.ahead.first_chunk::<FRAME_HEADER_LEN>() {
                break *prefix;
            }
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let len = decode_frame_header(&prefix).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?
            as usize;
        let limit =
            max_request_frame(conn.negotiated.dialect(), stranger.is_none(), conn.max_read_size, conn.max_write_size);
        if len > limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("frame of {len} bytes exceeds the {limit}-byte limit"),
            ));
        }
        self.ahead.advance(FRAME_HEADER_LEN);
        self.ahead_max = if stranger.is_none() && len <= READ_AHEAD { READ_AHEAD_OF_SMALL } else { READ_AHEAD };
        let initial = if stranger.is_none() { len } else { len.min(INITIAL_FRAME_BUFFER) };
        let here = len.min(self.ahead.len());
        let mut payload = BytesMut::with_capacity(initial);
        payload.extend_from_slice(&self.ahead[..here]);
        self.ahead.advance(here);
        while payload.len() < len {
            if let Some(stranger) = stranger
                && !stranger.holds(IDLE_BYTES + payload.capacity())
            {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, MADE_ROOM));
            }
            let room = len - payload.len();
            let read = self.socket.read_buf(&mut (&mut payload).limit(room)).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(payload.freeze())
    }
}

/// Initial payload buffer before a client has logged on; larger frames
/// grow it as their bytes arrive.
const INITIAL_FRAME_BUFFER: usize = 4 * 1024;

/// What a connection holds beside its frame: two tasks, their queue, what is
/// read ahead.
const IDLE_BYTES: usize = 24 * 1024;

const MADE_ROOM: &str = "the connection made room for others";

/// Whether any tree on the connection has an open file.
fn has_open_files(conn: &Connection) -> bool {
    conn.sessions.values().iter().any(|session| session.trees.values().iter().any(|tree| tree.has_files()))
}

/// Queues the frames that answer a request frame; the rest of a chain that waits follows them.
async fn send(
    out: Outgoing,
    queue: &ResponseQueue,
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
) -> Result<(), ()> {
    if let Some(continuation) = out.send(queue).await? {
        conn.pending.spawn(continuation.run(Arc::clone(server), Arc::clone(conn)));
    }
    Ok(())
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
    traffic: Arc<Traffic>,
}

impl Overlap {
    fn new(traffic: Arc<Traffic>) -> Self {
        Self { credits: Arc::new(Semaphore::new(OVERLAP_CREDITS as usize)), traffic }
    }

    /// Runs `requests`, waiting for room first, or until no other request
    /// runs when they have to run alone. Returns the response, unless a
    /// task is left to send it.
    async fn run(&self, requests: Requests, server: &Arc<ServerState>, conn: &Arc<Connection>) -> Option<Outgoing> {
        let alone = !requests.may_overlap();
        let wanted = if alone { OVERLAP_CREDITS } else { requests.credits().min(OVERLAP_CREDITS) };
        let permit = Arc::clone(&self.credits).acquire_many_owned(wanted).await;
        if alone {
            return traffic::of(Arc::clone(&self.traffic), requests.run(server, conn)).await;
        }
        let (server, conn) = (Arc::clone(server), Arc::clone(conn));
        let mut work = Box::pin({
            let (server, conn) = (Arc::clone(&server), Arc::clone(&conn));
            traffic::of(Arc::clone(&self.traffic), async move { requests.run(&server, &conn).await })
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
                } else if let (Some(out), Some(queue)) = (response, conn.outbound.queue()) {
                    // A writer that is gone ends the reader as well.
                    let _ = send(out, &queue, &server, &conn).await;
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

/// Why a reader ends. None is a fault of the server's.
enum End {
    ServerStops,
    MadeRoom,
    /// Of the user, or of guests of the network.
    TooMany,
    WriterClosed,
    /// The client does not read the breaks of its leases.
    ReadsNothing,
    NoSessionInTime,
    Idle,
    ClientClosed,
    /// A frame is to have no reply but the end of its connection.
    Refused,
    Failed(io::Error),
}

impl End {
    fn tell(&self) {
        match self {
            End::ServerStops => debug!("server shutting down; closing connection"),
            End::MadeRoom => info!("{MADE_ROOM}"),
            End::TooMany => info!("its user has too many connections; closing connection"),
            End::WriterClosed => debug!("writer closed; reader exiting"),
            End::ReadsNothing => info!("client stopped reading lease breaks; closing connection"),
            End::NoSessionInTime => info!("no session established in time; closing connection"),
            End::Idle => info!("closing idle connection"),
            End::ClientClosed => debug!("client closed connection"),
            End::Refused => debug!("closing connection without a reply"),
            // A client that goes away without a word.
            End::Failed(error) if is_hangup(error) => debug!(%error, "client went away"),
            End::Failed(error) => warn!(%error, "closing connection"),
        }
    }
}

/// Waits for frames of one connection, with the time that each has.
struct Frames<'a> {
    reader: FrameReader,
    server: &'a ServerState,
    conn: &'a Connection,
    tx: &'a ResponseQueue,
    /// Until a session exists.
    stranger: Option<Arc<dyn StrangerAccount>>,
    evicted: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Until a session exists this is the handshake deadline; after that it
    /// is the idle deadline, which counts from the last frame.
    deadline: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl<'a> Frames<'a> {
    fn new(
        reader: FrameReader,
        (server, conn, tx): (&'a ServerState, &'a Connection, &'a ResponseQueue),
        stranger: Arc<dyn StrangerAccount>,
    ) -> Self {
        let deadline = Instant::now() + server.config.limits.handshake_timeout;
        let (evicted, alarm) = (stranger.evicted(), Box::pin(tokio::time::sleep_until(deadline)));
        Self { reader, server, conn, tx, stranger: Some(stranger), evicted, deadline, alarm }
    }

    fn stops(&self) -> bool {
        self.server.shutting_down.load(Ordering::Acquire)
    }

    /// The next frame, without its length.
    async fn next(&mut self) -> Result<Bytes, End> {
        if self.stops() {
            return Err(End::ServerStops);
        }
        while !self.reader.has_begun() {
            self.fill().await?;
        }
        let frame = self.reader.frame(self.conn, self.stranger.as_deref());
        // The first frames together have no longer than the handshake.
        let until = match self.stranger {
            Some(_) => self.deadline,
            None => Instant::now() + self.server.config.limits.io_timeout,
        };
        tokio::select! {
            frame = tokio::time::timeout_at(until, frame) => match frame {
                Ok(frame) => frame.map_err(End::Failed),
                Err(_) => Err(End::Failed(io::Error::new(io::ErrorKind::TimedOut, "frame not received in time"))),
            },
            () = &mut self.evicted => Err(End::MadeRoom),
        }
    }

    /// Waits for bytes, or for the alarm. Nothing may have come when it
    /// returns.
    async fn fill(&mut self) -> Result<(), End> {
        let stopped = self.server.shutdown.notified();
        tokio::pin!(stopped);
        stopped.as_mut().enable();
        // It may have begun before the notice was asked for.
        if self.stops() {
            return Err(End::ServerStops);
        }
        tokio::select! {
            biased;
            read = self.reader.fill() => match read {
                Ok(0) => Err(End::ClientClosed),
                Ok(_) => Ok(()),
                Err(error) => Err(End::Failed(error)),
            },
            () = &mut stopped => Err(End::ServerStops),
            () = &mut self.evicted => Err(End::MadeRoom),
            () = self.tx.closed() => Err(End::WriterClosed),
            () = self.conn.outbound.killed() => Err(End::ReadsNothing),
            () = &mut self.alarm => self.rung(),
        }
    }

    /// The alarm is set again only when it rings: frames merely move the
    /// deadline.
    fn rung(&mut self) -> Result<(), End> {
        if Instant::now() >= self.deadline {
            if self.stranger.is_some() {
                return Err(End::NoSessionInTime);
            }
            if !has_open_files(self.conn) {
                return Err(End::Idle);
            }
            self.deadline = Instant::now() + self.server.config.limits.idle_timeout;
        }
        self.alarm.as_mut().reset(self.deadline);
        Ok(())
    }

    /// A frame was answered; it may have made the first session.
    fn answered(&mut self) -> Result<(), End> {
        let was_stranger = self.stranger.is_some();
        if was_stranger && self.conn.sessions.is_empty() {
            return Ok(());
        }
        self.deadline = Instant::now() + self.server.config.limits.idle_timeout;
        if let Some(stranger) = self.stranger.take() {
            let sessions = self.conn.sessions.values();
            if !stranger.logs_on(sessions.iter().find_map(|session| session.identity.user())) {
                if let Some(peer) = self.conn.peer_addr {
                    self.server.observe(peer.ip(), Admission::TooManyConnections);
                }
                return Err(End::TooMany);
            }
            self.alarm.as_mut().reset(self.deadline);
        }
        Ok(())
    }
}

/// Read frames and dispatch them in arrival order, those that wait for the
/// backend beside each other (see [`Overlap`]), sending each response to
/// the writer. Returns between frames once the server
/// shuts down; a frame that has started to arrive is still answered.
pub async fn reader_task(
    (live, socket): (Live, ReadHalf<TcpStream>),
    server: Arc<ServerState>,
    conn: Arc<Connection>,
    stranger: Arc<dyn StrangerAccount>,
    tx: ResponseQueue,
) {
    if !stranger.holds(IDLE_BYTES) {
        return End::MadeRoom.tell();
    }
    let mut frames = Frames::new(FrameReader::new(live, socket), (&server, &conn, &tx), stranger);
    let overlap = Overlap::new(Arc::clone(frames.reader.live.traffic()));
    loop {
        let done = match frames.next().await {
            Ok(frame) => answer(frame, &overlap, (&server, &conn), &tx).await,
            Err(end) => Err(end),
        };
        if let Err(end) = done.and_then(|()| frames.answered()) {
            return end.tell();
        }
    }
}

/// Runs what a frame asks for, and queues the response if it is there.
async fn answer(
    frame: Bytes,
    overlap: &Overlap,
    (server, conn): (&Arc<ServerState>, &Arc<Connection>),
    tx: &ResponseQueue,
) -> Result<(), End> {
    let response = match receive_frame(server, conn, frame).await {
        Received::Nothing => None,
        Received::Answered(outgoing) => Some(outgoing),
        Received::Requests(requests) => overlap.run(requests, server, conn).await,
    };
    if conn.disconnect_requested() {
        return Err(End::Refused);
    }
    match response {
        Some(out) => send(out, tx, server, conn).await.map_err(|()| End::WriterClosed),
        None => Ok(()),
    }
}
