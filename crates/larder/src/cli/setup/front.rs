//! The HTTPS server of the first run: for loopback and private networks alone, and for few connections at a time.
//!
//! - `front.private_only`: a connection from any other network ends before its first byte is read. The set-up is for the
//!   person who stands beside the box.
//! - `front.bounded`: connections, handshakes, heads, bodies and requests have limits; a full server ends its oldest.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_api::{Failure, FailureKind};
use larder_dav::Tls;
use larder_doors::strangers::{Stranger, Strangers};
use larder_web::{Peer, Setup};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::port_failure;
use larder_config::{Network, private_networks};
use larder_servers::own_names;

const CONNECTIONS_MAX: usize = 64;
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// For the head of a request, and for the next one to begin.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// A look at disks is the longest answer.
const REQUEST_TIME: Duration = Duration::from_secs(60);
const HEADERS_MAX: usize = 64;
const READ_BYTES_MAX: usize = 64 << 10;
/// For the last answers at the end.
const DRAIN_TIME: Duration = Duration::from_secs(3);

pub(super) struct Front {
    listener: TcpListener,
    addr: SocketAddr,
    tls: Arc<Tls>,
}

impl Front {
    pub(super) fn open(addr: SocketAddr, data: &Path) -> Result<Self, Failure> {
        let listener = listen(addr).map_err(|e| port_failure(addr, &e))?;
        let addr = listener.local_addr().map_err(|e| port_failure(addr, &e))?;
        // The box shows the same certificate afterwards, so that a browser asks once.
        let tls = Tls::load_or_create(data, own_names(addr)).map_err(|error| {
            Failure::unavailable(format!("no certificate for the set-up: {error}"))
                .action("remove the file: larder makes another")
        })?;
        Ok(Self { listener, addr, tls: Arc::new(tls) })
    }

    /// There, or at a free port if another program has that one: the link says which.
    pub(super) fn open_near(addr: SocketAddr, data: &Path) -> Result<Self, Failure> {
        match Self::open(addr, data) {
            Err(failure) if failure.kind == FailureKind::Busy => Self::open(SocketAddr::new(addr.ip(), 0), data),
            other => other,
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn fingerprint(&self) -> String {
        self.tls.fingerprint()
    }

    pub(super) fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// Serves until `stop`.
    pub(super) async fn serve(self, setup: Setup, stop: CancellationToken) {
        let tracker = TaskTracker::new();
        let strangers = Arc::new(Strangers::default());
        let open = Arc::new(AtomicUsize::new(0));
        let networks = private_networks();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, or a client that was gone already: haste helps neither.
                    tracing::warn!(%error, "a connection to the set-up could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if !is_private(&networks, peer) {
                tracing::debug!(%peer, "the set-up answers private networks alone");
                continue;
            }
            let is_full = open.load(Ordering::Relaxed) >= CONNECTIONS_MAX;
            let Some(stranger) = strangers.admit_newest(peer.ip(), is_full) else { continue };
            let counted = Counted::new(&open);
            let (tls, setup, stop) = (Arc::clone(&self.tls), setup.clone(), stop.clone());
            tracker.spawn(async move {
                let _counted = counted;
                answer(socket, peer, stranger, &tls, setup, stop).await;
            });
        }
        tracker.close();
        let _ = tokio::time::timeout(DRAIN_TIME, tracker.wait()).await;
    }
}

fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// `front.private_only`
fn is_private(networks: &[Network], peer: SocketAddr) -> bool {
    let address = peer.ip().to_canonical();
    networks.iter().any(|network| network.contains(address))
}

/// Counts a connection while it is open.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn answer(
    socket: TcpStream,
    peer: SocketAddr,
    stranger: Stranger,
    tls: &Tls,
    setup: Setup,
    stop: CancellationToken,
) {
    let evicted = stranger.evicted();
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE_TIME, tls.acceptor().accept(socket)) => shaken,
        () = evicted.cancelled() => return,
        () = stop.cancelled() => return,
    };
    let Ok(Ok(stream)) = shaken else {
        tracing::debug!(%peer, "no TLS handshake with the set-up");
        return;
    };
    let service = service_fn(move |request| {
        let setup = setup.clone();
        async move {
            let answer = setup.answer(request, Peer { addr: peer.ip().to_canonical() });
            Ok::<_, Infallible>(match tokio::time::timeout(REQUEST_TIME, answer).await {
                Ok(response) => response,
                Err(_) => {
                    let mut response = Response::new(larder_web::Body::default());
                    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
                    response
                }
            })
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEADERS_MAX)
        .max_buf_size(READ_BYTES_MAX);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut is_stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, reason = %error, "a connection to the set-up ended");
                }
                return;
            }
            () = evicted.cancelled() => return,
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_networks_alone_are_answered() {
        let networks = private_networks();
        let check = |address: &str, is_answered: bool| {
            let peer = SocketAddr::new(address.parse().unwrap(), 1);
            assert_eq!(is_private(&networks, peer), is_answered, "{address}");
        };
        for address in ["127.0.0.1", "::1", "10.1.2.3", "172.31.0.1", "192.168.1.2", "fd00::1", "::ffff:192.168.1.2"] {
            check(address, true);
        }
        for address in
            ["8.8.8.8", "172.32.0.1", "100.64.0.1", "169.254.1.1", "2001:db8::1", "fe80::1", "::ffff:8.8.8.8"]
        {
            check(address, false);
        }
    }
}
