//! Per-connection frame reader: pulls bytes off the socket, frames them,
//! hands each frame to the dispatcher.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use larder_base::traffic::{self, Live, Traffic};

use larder_smb_wire::framing::{FRAME_HEADER_LEN, decode_frame_header};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep};
use tracing::{debug, info, warn};

use crate::admission::{Admission, Room, StrangerAccount};
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
    /// a large one is read to where it stays, once there is room for it
    /// (`reader.room_before_bytes`); before a client has logged on
    /// (`is_stranger`) its buffer grows with the bytes that arrive, and its
    /// account is told.
    async fn frame(
        &mut self,
        conn: &Connection,
        account: &dyn StrangerAccount,
        is_stranger: bool,
    ) -> io::Result<Bytes> {
        let stranger = is_stranger.then_some(account);
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
        let room = match stranger {
            None if len >= COUNTED_BYTES => Some(account.room(len).await),
            _ => None,
        };
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
        Ok(match room {
            Some(room) => Bytes::from_owner(Counted { payload, _room: room }),
            None => payload.freeze(),
        })
    }
}

/// A frame that counts as long as anything of it is kept (`reader.room_before_bytes`).
struct Counted {
    payload: BytesMut,
    _room: Room,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

/// Requests and answers from this size on take room. Of smaller ones a connection has few at a time.
const COUNTED_BYTES: usize = 4 * 1024;

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
/// store, goes on as a task while the reader takes the next frame.
///
/// `reader.room_before_bytes`: memory for a frame, and for the data that its
/// requests read, is asked for before it is used, and given back when it is
/// free: for an answer when it has left. A client has as many connections as
/// it likes, so a bound for each is none for all.
struct Overlap {
    credits: Arc<Semaphore>,
    traffic: Arc<Traffic>,
    account: Arc<dyn StrangerAccount>,
}

impl Overlap {
    fn new(traffic: Arc<Traffic>, account: Arc<dyn StrangerAccount>) -> Self {
        Self { credits: Arc::new(Semaphore::new(OVERLAP_CREDITS as usize)), traffic, account }
    }

    /// Room for what the requests read; fails where there is none in `patience`. They may hold room themselves that
    /// others of the client wait for.
    async fn room(&self, requests: &Requests, patience: Duration) -> Result<Option<Room>, Elapsed> {
        let bytes = requests.answer_bytes();
        match bytes < COUNTED_BYTES {
            true => Ok(None),
            false => tokio::time::timeout(patience, self.account.room(bytes)).await.map(Some),
        }
    }

    /// Runs `requests`, waiting for room first, or until no other request
    /// runs when they have to run alone. Returns the response, unless a
    /// task is left to send it.
    async fn run(&self, requests: Requests, server: &Arc<ServerState>, conn: &Arc<Connection>) -> Option<Outgoing> {
        let alone = !requests.may_overlap();
        let wanted = if alone { OVERLAP_CREDITS } else { requests.credits().min(OVERLAP_CREDITS) };
        let permit = Arc::clone(&self.credits).acquire_many_owned(wanted).await;
        let Ok(room) = self.room(&requests, server.config.limits.io_timeout).await else {
            warn!("no room for an answer in time: the client's connections hold too much; closing connection");
            conn.request_disconnect();
            return None;
        };
        if alone {
            let response = traffic::of(Arc::clone(&self.traffic), requests.run(server, conn)).await;
            return response.map(|response| response.keeping(room));
        }
        let (server, conn) = (Arc::clone(server), Arc::clone(conn));
        let mut work = Box::pin({
            let (server, conn) = (Arc::clone(&server), Arc::clone(&conn));
            traffic::of(Arc::clone(&self.traffic), async move { requests.run(&server, &conn).await })
        });
        let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        if let Poll::Ready(response) = polled {
            return response.map(|response| response.keeping(room));
        }
        conn.pending.spawn({
            let conn = Arc::clone(&conn);
            async move {
                let _permit = permit;
                let response = work.await.map(|response| response.keeping(room));
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
    account: Arc<dyn StrangerAccount>,
    /// Until a session exists.
    is_stranger: bool,
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
        account: Arc<dyn StrangerAccount>,
    ) -> Self {
        let deadline = Instant::now() + server.config.limits.handshake_timeout;
        let (evicted, alarm) = (account.evicted(), Box::pin(tokio::time::sleep_until(deadline)));
        Self { reader, server, conn, tx, account, is_stranger: true, evicted, deadline, alarm }
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
        let frame = self.reader.frame(self.conn, &*self.account, self.is_stranger);
        // The first frames together have no longer than the handshake.
        let until = match self.is_stranger {
            true => self.deadline,
            false => Instant::now() + self.server.config.limits.io_timeout,
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
            if self.is_stranger {
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
        if self.is_stranger && self.conn.sessions.is_empty() {
            return Ok(());
        }
        self.deadline = Instant::now() + self.server.config.limits.idle_timeout;
        if std::mem::replace(&mut self.is_stranger, false) {
            let sessions = self.conn.sessions.values();
            if !self.account.logs_on(sessions.iter().find_map(|session| session.identity.user())) {
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
/// store beside each other (see [`Overlap`]), sending each response to
/// the writer. Returns between frames once the server
/// shuts down; a frame that has started to arrive is still answered.
pub async fn reader_task(
    (live, socket): (Live, ReadHalf<TcpStream>),
    server: Arc<ServerState>,
    conn: Arc<Connection>,
    account: Arc<dyn StrangerAccount>,
    tx: ResponseQueue,
) {
    if !account.holds(IDLE_BYTES) {
        return End::MadeRoom.tell();
    }
    let mut frames = Frames::new(FrameReader::new(live, socket), (&server, &conn, &tx), Arc::clone(&account));
    let overlap = Overlap::new(Arc::clone(frames.reader.live.traffic()), account);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use larder_base::traffic::Protocol;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use super::*;
    use larder_smb_wire::crypto::SigningAlgo;
    use larder_smb_wire::framing::frame_header;
    use larder_smb_wire::messages::Dialect;

    /// Gives room by permits, and knows how much of it is held.
    struct Ledger {
        permits: Arc<Semaphore>,
        held: Arc<AtomicUsize>,
    }

    struct Held(Arc<AtomicUsize>, usize);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_sub(self.1, Ordering::AcqRel);
        }
    }

    impl StrangerAccount for Ledger {
        fn holds(&self, _bytes: usize) -> bool {
            true
        }

        fn logs_on(&self, _user: Option<&str>) -> bool {
            true
        }

        fn room(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Room> + Send>> {
            let (permits, held) = (Arc::clone(&self.permits), Arc::clone(&self.held));
            Box::pin(async move {
                permits.acquire().await.expect("open").forget();
                held.fetch_add(bytes, Ordering::AcqRel);
                Box::new(Held(held, bytes)) as Room
            })
        }

        fn evicted(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::pending())
        }
    }

    /// `reader.room_before_bytes`
    #[tokio::test]
    async fn a_large_frame_waits_for_room_and_counts_until_nothing_of_it_is_kept() {
        const LEN: usize = 1 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
        let (socket, peer) = listener.accept().await.expect("accept");
        let live = Live::begin(Protocol::Smb, peer, &socket);
        let mut reader = FrameReader::new(live, tokio::io::split(socket).0);
        let conn = Connection::new(Uuid::nil(), 1 << 20, 1 << 20);
        conn.negotiated.set_dialect(Dialect::Smb311, SigningAlgo::AesCmac);
        let ledger = Ledger { permits: Arc::new(Semaphore::new(0)), held: Arc::default() };
        let (permits, held) = (Arc::clone(&ledger.permits), Arc::clone(&ledger.held));

        client.write_all(&frame_header(LEN).expect("a prefix")).await.expect("prefix");
        let sending = tokio::spawn(async move {
            client.write_all(&vec![7; LEN]).await.expect("payload");
            client
        });
        let mut frame = Box::pin(reader.frame(&conn, &ledger, false));
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), frame.as_mut()).await;
        assert!(waited.is_err(), "there is no room");
        assert_eq!(held.load(Ordering::Acquire), 0);
        permits.add_permits(1);
        let frame = frame.await.expect("the frame");
        let part = frame.slice(..1);
        assert_eq!((frame.len(), held.load(Ordering::Acquire)), (LEN, LEN));
        drop(frame);
        assert_eq!(held.load(Ordering::Acquire), LEN, "a part keeps all of it");
        drop(part);
        assert_eq!(held.load(Ordering::Acquire), 0);
        drop(sending.await.expect("sent"));
    }
}
