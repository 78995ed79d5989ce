//! The WebDAV server: HTTP/1.1 (by `hyper`), RFC 4918 of classes 1, 2 and 3.
//!
//! Layers, each a file: `wire` is the byte stream, `service` takes a request apart, `auth` finds
//! its user, `context` is one request and its conditions (`conditions`); methods are in `get`,
//! `put`, `props`, `moves` and `lock_ops`. `upload` makes files that become visible at their end,
//! `locks` keeps what clients have locked, `dead` the properties that clients make up, `path` and
//! `xml` are the codecs. Two parts of other crates answer on the same connections: `guest` a page
//! and an API with paths of their own, `browsers` pages of the shares.
//!
//! - `web.no_own_rules`: opens and permissions are those of the volume and its file service. Locks
//!   of files are in the table of all doors.
//! - `web.untrusted_input`: everything from the network is untrusted: nothing panics, no length is
//!   believed, all memory is bounded.
//! - `web.slow_clients_end`: a client has [`HEAD_TIME`] for the head of a request, and each body
//!   and answer has to move on within a minute.

mod auth;
pub mod browsers;
mod civil;
mod conditions;
mod config;
mod context;
mod dead;
mod deep;
mod fail;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod get;
mod guest;
mod kinds;
mod lock_ops;
mod locks;
mod moves;
mod path;
mod places;
mod props;
mod proxy;
mod put;
mod service;
mod shared;
mod text;
mod tls;
mod upload;
mod wire;
mod xml;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_base::passed;
use larder_base::traffic::{Protocol, Traffic};
use larder_people::User;
use larder_people::token::{Token, Tokens};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use auth::PasswordRefused;
use browsers::{Browsers, Way};
pub use config::WebConfig;
pub use guest::{Guest, GuestBody, Serves};
use larder_doors::door;
use larder_doors::share::ServedShare;
use larder_doors::strangers::{STRANGER_TIME, Stranger};
use service::Peer;
use shared::Shared;
pub use tls::{Tls, TlsError};
use wire::{Arrivals, IDLE_TLS_BYTES, Timed, Watched};

/// For the head of a request, and for the next one to begin.
const HEAD_TIME: Duration = Duration::from_secs(60);
const HEADERS_MAX: usize = 100;
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// What is read ahead of a connection. It stays with a connection that says nothing, so it counts
/// against no budget.
const READ_BYTES_MAX: usize = 64 << 10;

/// A server that is not yet serving.
pub struct WebServer {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
    browsers: Arc<dyn Browsers>,
}

struct Listener {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
    serves: Serves,
}

/// A running server's controls.
#[derive(Clone)]
pub struct WebHandle {
    shared: Arc<Shared>,
    browsers: Arc<dyn Browsers>,
}

impl WebHandle {
    /// Makes these the users. One who is gone or changed is refused from the next request on.
    pub fn set_users(&self, users: Vec<User>) {
        self.browsers.set_users(&users);
        self.shared.set_users(users);
    }

    /// Makes these the app tokens. One that is gone or changed is refused from the next request on.
    pub fn set_tokens(&self, tokens: Arc<Tokens>) {
        self.shared.set_tokens(tokens);
    }

    /// Makes these the shares. Locks in one that is gone or changed end.
    pub fn set_shares(&self, shares: Vec<ServedShare>) {
        for gone in self.shared.set_shares(shares) {
            self.browsers.forget_share(&gone);
        }
    }

    /// Lets the guest answer for its paths; `None`: nobody does any more.
    pub fn set_guest(&self, guest: Option<Arc<dyn Guest>>) {
        self.shared.set_guest(guest);
    }

    /// Looks at a password for the guest, at the price of a guess (`login.guessing_is_slow`).
    pub async fn check_password(&self, name: &str, given: String, from: IpAddr) -> Result<(), PasswordRefused> {
        auth::check_for_guest(&self.shared, from, name, given).await
    }

    /// A user came in at the guest's without a password; `by` is a word of the guest's, such as
    /// `passkey`.
    pub fn came_in(&self, name: &str, from: IpAddr, by: &str) {
        self.shared.stats.logins.add(1);
        self.shared.door.came_in(from, Some(name), || format!("page: '{name}' from {from} logged in by {by}"));
    }

    /// The user of that name, as requests see it.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.shared.user(name)
    }

    /// The token that `text` is, unless its time is over.
    pub fn token(&self, text: &str) -> Option<Arc<Token>> {
        self.shared.tokens().find(text, passed::latest())
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut larder_base::metrics::Metrics) {
        self.shared.stats.metrics(out);
    }
}

impl WebServer {
    /// A server that listens nowhere yet; `browsers` makes the pages of its shares.
    pub fn new(config: WebConfig, browsers: Arc<dyn Browsers>) -> Self {
        Self { listeners: Vec::new(), shared: Arc::new(Shared::new(config)), browsers }
    }

    /// Binds `addr` (port 0 takes a free one), so that a port in use is reported here. Nothing is
    /// answered before [`WebServer::serve`]. Returns the address that is bound.
    pub async fn listen(&mut self, addr: SocketAddr, tls: Option<Arc<Tls>>, serves: Serves) -> io::Result<SocketAddr> {
        let socket = door::listen(addr)?;
        let bound = socket.local_addr()?;
        self.listeners.push(Listener { socket, tls, serves });
        Ok(bound)
    }

    /// Controls that stay valid while [`WebServer::serve`] runs.
    pub fn handle(&self) -> WebHandle {
        WebHandle { shared: Arc::clone(&self.shared), browsers: Arc::clone(&self.browsers) }
    }

    /// Serves until `shutdown`; then stops accepting, answers what was asked and closes.
    pub fn serve(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let tracker = TaskTracker::new();
            let accepting = self.listeners.iter().map(|listener| {
                let (server, tracker, shutdown) = (&self, &tracker, &shutdown);
                async move {
                    loop {
                        match listener.socket.accept().await {
                            Ok((socket, peer)) => admit(socket, peer, listener, server, tracker, shutdown),
                            Err(error) => {
                                // Out of file descriptors, or a client that was gone already: haste
                                // helps neither.
                                tracing::warn!(%error, "a connection could not be accepted");
                                tokio::time::sleep(Duration::from_millis(100)).await;
                            }
                        }
                    }
                }
            });
            tokio::select! {
                _ = futures::future::join_all(accepting) => {}
                () = self.shared.locks.end_in_time() => {}
                () = self.browsers.work() => {}
                () = shutdown.cancelled() => {}
            }
            drop(self.listeners);
            tracker.close();
            let drain = Duration::from_secs(self.shared.config.drain_secs);
            if tokio::time::timeout(drain, tracker.wait()).await.is_err() {
                tracing::warn!(connections = tracker.len(), "WebDAV connections did not end in time");
            }
        })
    }
}

fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    listener: &Listener,
    server: &WebServer,
    tracker: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let (shared, browsers) = (&server.shared, Arc::clone(&server.browsers));
    let stats = &shared.stats;
    stats.connections_accepted.add(1);
    let (tls, serves) = (listener.tls.clone(), listener.serves);
    if !serves.shares && !shared.guest().is_some_and(|guest| guest.lets_in(peer.ip().to_canonical())) {
        stats.connections_refused.add(1);
        let address = peer.ip().to_canonical();
        shared.door.refused(address, || {
            format!("page: a connection from {address} was refused: it is no network of the page's")
        });
        return;
    }
    let is_full = shared.parties.is_full(stats.connections_open.load(Relaxed), None);
    let Some(stranger) = shared.strangers.admit_newest(peer.ip(), is_full) else {
        stats.connections_refused.add(1);
        let address = peer.ip().to_canonical();
        shared.door.refused(address, || format!("WebDAV: a connection from {address} was refused: there are too many"));
        return;
    };
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, %peer, "socket options");
    }
    stats.connections_open.fetch_add(1, Relaxed);
    let open = Counted(Arc::clone(shared));
    let shutdown = shutdown.clone();
    let Some(tls) = tls else {
        let (socket, traffic) = Watched::new(socket, Protocol::WebDav, peer);
        let way = Way { tls: false, serves };
        tracker.spawn(serve_one(socket, (peer, traffic), stranger, (open, browsers), way, shutdown).boxed());
        return;
    };
    tracker.spawn(async move {
        let evicted = stranger.evicted();
        if !stranger.meter().holds(IDLE_TLS_BYTES) {
            return;
        }
        let (socket, traffic) = stranger.paces(socket, peer.ip()).watched(Protocol::WebDav, peer);
        let pace = socket.pace().clone();
        let shaking = tls.acceptor().accept(socket);
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(HANDSHAKE_TIME, shaking) => shaken,
            () = evicted.cancelled() => {
                open.0.stats.connections_dropped.add(1);
                return;
            }
            () = shutdown.cancelled() => return,
        };
        match shaken {
            Ok(Ok(stream)) => {
                pace.end();
                let way = Way { tls: true, serves };
                serve_one(stream, (peer, traffic), stranger, (open, browsers), way, shutdown).await;
            }
            failed => {
                open.0.stats.connections_dropped.add(1);
                tracing::debug!(%peer, reason = ?failed.err(), "no TLS handshake");
            }
        }
    });
}

/// Counts a connection while it is open, whatever ends it.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.stats.connections_open.fetch_sub(1, Relaxed);
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    (peer, traffic): (SocketAddr, Arc<Traffic>),
    stranger: Stranger,
    (open, browsers): (Counted, Arc<dyn Browsers>),
    way: Way,
    shutdown: CancellationToken,
) {
    let shared = Arc::clone(&open.0);
    let evicted = stranger.evicted();
    let arrivals = Arc::new(Arrivals::new(stranger, way.tls));
    let known = arrivals.known();
    let address = peer.ip().to_canonical();
    let client = Peer { shared: Arc::clone(&shared), browsers, address, traffic, way, arrivals: Arc::clone(&arrivals) };
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEADERS_MAX)
        .max_buf_size(READ_BYTES_MAX);
    let service = service_fn(move |request| service::answer(client.clone(), request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Timed::new(stream, arrivals)), service));
    // A connection that nobody has logged in to ends in time (`strangers.timed`). Any ends earlier
    // if a newcomer needs its place (`strangers.make_room`, `parties.most_makes_room`) or others
    // its memory (`strangers.one_budget`).
    let mut late = pin!(tokio::time::sleep(STRANGER_TIME));
    let mut evicted = pin!(evicted.cancelled());
    let (mut is_stranger, mut is_stopping) = (true, false);
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = known.cancelled(), if is_stranger => is_stranger = false,
            () = &mut late, if is_stranger => {
                shared.stats.connections_dropped.add(1);
                return;
            }
            () = &mut evicted => {
                shared.stats.connections_dropped.add(1);
                return;
            }
            () = shutdown.cancelled(), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = ended {
        shared.stats.connections_dropped.add(1);
        tracing::debug!(%peer, reason = %error, "WebDAV connection dropped");
    }
}
