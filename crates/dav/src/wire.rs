//! The stream of bytes below HTTP, and what has arrived of a request.
//!
//! - `wire.silence_ends_it`: a client that takes nothing for [`SILENCE_MAX`] is cut off.
//! - `wire.strangers_are_metered`: before a login a connection reads [`STRANGER_READ_BYTES`] at a time and
//!   at most [`STRANGER_REQUEST_BYTES_MAX`] of a request. It reports them to the budget of strangers
//!   (`strangers.one_budget`), which may end it.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use larder_base::traffic::{Live, Protocol, Traffic};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

use larder_doors::parties::{LastBytes, Parties, Party, PartyPlace, Visitor};
use larder_doors::strangers::{Meter, Stranger};
use larder_doors::unread::{Account, Entered, Unread};

const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Less than the least buffer of HTTP, which grows with reads that fill it.
const STRANGER_READ_BYTES: usize = 4 << 10;
/// A head, or a form. Headers of browsers with many cookies have a fourth of it.
const STRANGER_REQUEST_BYTES_MAX: usize = 64 << 10;
/// What a connection that says nothing holds: its task, buffers, and those of TLS.
pub const IDLE_BYTES: usize = 16 << 10;
pub const IDLE_TLS_BYTES: usize = 48 << 10;

/// What a connection has sent without a login.
pub struct Arrivals {
    is_known: AtomicBool,
    /// Cancelled when somebody has logged in: the time for it is over.
    known: CancellationToken,
    /// Since the last request was taken.
    bytes: AtomicUsize,
    idle_bytes: usize,
    meter: Meter,
    standing: Mutex<Standing>,
    last: Arc<LastBytes>,
}

/// The place of a connection among strangers, then among its party's.
enum Standing {
    Stranger(Stranger),
    Member { _place: PartyPlace, memory: Entered },
}

impl Arrivals {
    pub fn new(stranger: Stranger, tls: bool) -> Self {
        let idle_bytes = if tls { IDLE_TLS_BYTES } else { IDLE_BYTES };
        Self {
            is_known: AtomicBool::new(false),
            known: CancellationToken::new(),
            bytes: AtomicUsize::new(0),
            idle_bytes,
            meter: stranger.meter(),
            standing: Mutex::new(Standing::Stranger(stranger)),
            last: Arc::default(),
        }
    }

    /// Somebody has logged in, or come by a link, at a door with `open` connections. `false`: the party has too many of
    /// them (`parties.fair_part`).
    #[must_use]
    pub fn admit(
        &self,
        (parties, memory): (&Arc<Parties>, &Arc<Unread>),
        open: usize,
        party: impl FnOnce() -> Party,
        link: Option<Arc<str>>,
    ) -> bool {
        if self.is_known.load(Relaxed) {
            return true;
        }
        let mut standing = self.standing.lock();
        if let Standing::Stranger(stranger) = &*standing {
            let (party, end) = (party(), stranger.evicted());
            let visitor = link.map(|link| Visitor { link, last: Arc::clone(&self.last) });
            let entered = stranger.enters(parties, party.clone(), visitor, open, || false);
            let Some(place) = entered else { return false };
            *standing = Standing::Member { _place: place, memory: memory.enter(party, end) };
            self.is_known.store(true, Relaxed);
            self.known.cancel();
        }
        true
    }

    /// The account of what the connection holds (`unread.one_budget`); a stranger has none.
    pub fn memory(&self) -> Option<Arc<Account>> {
        match &*self.standing.lock() {
            Standing::Member { memory, .. } => Some(Arc::clone(memory.account())),
            Standing::Stranger(_) => None,
        }
    }

    pub fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    pub fn known(&self) -> CancellationToken {
        self.known.clone()
    }

    /// What has arrived was taken, and is held no more.
    pub fn taken(&self) {
        self.bytes.store(0, Relaxed);
    }

    /// The client that a proxy names.
    pub fn are_of(&self, address: IpAddr) {
        if let Standing::Stranger(stranger) = &*self.standing.lock() {
            stranger.belongs_to(address);
        }
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        let bytes = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        let fails = |why| Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        if bytes > STRANGER_REQUEST_BYTES_MAX {
            return fails("a request without a login is too large");
        }
        // Where it grows a buffer has its old half beside it.
        match self.meter.holds(self.idle_bytes + 2 * bytes) {
            true => Ok(()),
            false => fails("connections without a login hold too much"),
        }
    }
}

/// A socket that is listed among the connections of clients.
pub struct Watched {
    /// Before the socket (`traffic.fd_outlived`).
    _live: Live,
    inner: TcpStream,
}

impl Watched {
    pub fn new(inner: TcpStream, protocol: Protocol, peer: SocketAddr) -> (Self, Arc<Traffic>) {
        let live = Live::begin(protocol, peer, &inner);
        let traffic = Arc::clone(live.traffic());
        (Self { _live: live, inner }, traffic)
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

pub struct Timed<S> {
    inner: S,
    arrivals: Arc<Arrivals>,
    /// Runs while a write waits.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub fn new(inner: S, arrivals: Arc<Arrivals>) -> Self {
        Self { inner, arrivals, patience: None }
    }

    fn waited<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.patience = None;
            self.arrivals.last.now();
            return done;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(SILENCE_MAX)));
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.arrivals.is_known.load(Relaxed) {
            let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
            self.arrivals.last.now();
            return Poll::Ready(read);
        }
        // `wire.strangers_are_metered`.
        let mut few = [0; STRANGER_READ_BYTES];
        let mut part = ReadBuf::new(few.get_mut(..buf.remaining().min(STRANGER_READ_BYTES)).unwrap_or_default());
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut part))?;
        self.arrivals.add(part.filled().len())?;
        buf.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.waited(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.waited(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_flush(cx);
        self.waited(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.waited(cx, done)
    }
}
