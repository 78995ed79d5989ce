//! The NFS server: version 3 (RFC 1813) with MOUNT and locks (`nlm`), and version 4 (`v4`), on the same TCP port; a
//! portmapper on request.
//!
//! Layers, each a file or folder: `xdr` and `rpc` are the pure codec, `record` and `outbox` the two
//! directions of a byte stream, `conn` one connection, `session` decides who may call what, `ops` carries out
//! the procedures of version 3 on a [`larder_files::Files`], `drc` remembers answers that must not be given twice.
//!
//! - `nfs.volume_answers_first`: no reply leaves before the volume has answered, so the volume's
//!   contract decides a reply's durability.
//! - `nfs.untrusted_input`: everything from the network is untrusted: nothing panics, no length is
//!   believed, all memory is bounded.
//! - `nfs.no_client_state`: but for locks, the server keeps no state about clients of version 3 that matters. Handles, cookies
//!   and exclusive creates survive a restart. Only the write verifier changes, to say that unstable
//!   writes may be lost.

mod conn;
mod drc;
mod export;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handle;
mod mount;
mod nlm;
mod ops;
mod outbox;
mod owners;
mod portmap;
mod proto;
mod record;
mod rpc;
mod session;
mod shared;
#[cfg(test)]
mod tests;
mod v4;
mod xdr;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use conn::End;
use larder_doors::parties::Party;
use session::{Next, Service, Session};
use shared::Shared;

pub use export::Export;
pub use handle::Older;
pub use ops::{may_io, truncating};
pub use owners::Owners;
pub use shared::{NfsConfig, NfsStats, ProcStats};
pub use v4::NfsOpen;

/// A server that is bound and not yet serving.
pub struct NfsServer {
    listener: TcpListener,
    portmapper: Option<(TcpListener, UdpSocket)>,
    /// For NSM, on the port of NFS, where the portmapper names it.
    monitor: Option<UdpSocket>,
    shared: Arc<Shared>,
    local_addr: SocketAddr,
}

/// A running server's controls.
#[derive(Clone)]
pub struct NfsHandle {
    shared: Arc<Shared>,
}

impl NfsHandle {
    /// Replaces all exports; connections go on, handles of exports that remain stay valid.
    pub fn set_exports(&self, exports: Vec<Export>) {
        self.shared.set_exports(exports);
    }

    /// Names of users and groups for clients of version 4, from the next [`NfsHandle::set_exports`] on.
    pub fn set_owners(&self, owners: Owners) {
        self.shared.set_owners(owners);
    }

    /// Handles of this volume's exports are answered with NFS3ERR_JUKEBOX while it has none: the clients try again (RFC 1813, 2.6).
    pub fn pause(&self, volume: Option<uuid::Uuid>) {
        self.shared.pause(volume);
    }

    /// As [`NfsHandle::pause`], for a volume that has gone to another machine: until its address has followed it, or for so long.
    pub fn linger(&self, volume: uuid::Uuid, lasts: std::time::Duration) {
        self.shared.linger(volume, lasts);
    }

    /// The newest opens of clients of version 4, so many at most, and how many more there are.
    pub fn open_list(&self, count_max: usize) -> (Vec<NfsOpen>, usize) {
        self.shared.v4.open_list(count_max)
    }

    /// Ends an open with its locks, named by [`NfsOpen::number`]. `false`: there is none.
    pub fn end_open(&self, number: u64) -> bool {
        self.shared.v4.end_open(number)
    }

    /// The counters at this moment.
    pub fn stats(&self) -> NfsStats {
        self.shared.stats.snapshot()
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut larder_base::metrics::Metrics) {
        self.shared.stats.metrics(out);
    }
}

impl NfsServer {
    /// Binds `addr` (port 0 takes a free one), and the portmapper's address where `config` names one, so that a port in
    /// use is reported here. Nothing is answered before [`NfsServer::serve`].
    pub async fn bind(addr: SocketAddr, config: NfsConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let portmapper = match config.portmapper {
            None => None,
            Some(addr) => {
                let tcp = TcpListener::bind(addr).await?;
                let udp = UdpSocket::bind(tcp.local_addr()?).await?;
                Some((tcp, udp))
            }
        };
        let local_addr = listener.local_addr()?;
        let monitor = match portmapper {
            // Nobody would find it.
            None => None,
            Some(_) => {
                let bound = UdpSocket::bind(local_addr).await.inspect_err(|error| {
                    tracing::warn!(
                        address = %local_addr, %error,
                        "NFS cannot listen over UDP: a Linux client of NFS v3 that crashes keeps its locks until larder restarts"
                    );
                });
                bound.ok()
            }
        };
        let shared = Arc::new(Shared::new(config, local_addr.port()));
        Ok(Self { listener, portmapper, monitor, shared, local_addr })
    }

    /// The address that is bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address at which the portmapper answers, if there is one.
    pub fn portmapper_addr(&self) -> Option<SocketAddr> {
        self.portmapper.as_ref().and_then(|(tcp, _)| tcp.local_addr().ok())
    }

    /// As [`NfsHandle::set_exports`].
    pub fn set_exports(&self, exports: Vec<Export>) {
        self.shared.set_exports(exports);
    }

    /// Controls that stay valid while [`NfsServer::serve`] runs.
    pub fn handle(&self) -> NfsHandle {
        NfsHandle { shared: Arc::clone(&self.shared) }
    }

    /// Serves until `shutdown`; then stops accepting, lets calls under way finish and closes.
    pub fn serve(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let tracker = TaskTracker::new();
            tracker.spawn(Arc::clone(&self.shared.v4).look_after_clients(shutdown.clone()).boxed());
            tracker.spawn(Arc::clone(&self.shared.v4).send_recalls(shutdown.clone()).boxed());
            tracker.spawn(Arc::clone(&self.shared.nlm).look_after_locks(shutdown.clone()).boxed());
            if let Some(socket) = self.monitor {
                tracker.spawn(datagrams(socket, Arc::clone(&self.shared), Service::Monitor, shutdown.clone()).boxed());
            }
            let accept = |listener, service| {
                accept_loop(listener, Arc::clone(&self.shared), service, tracker.clone(), shutdown.clone())
            };
            match self.portmapper {
                None => accept(self.listener, Service::Files).await,
                Some((tcp, udp)) => {
                    tokio::join!(
                        accept(self.listener, Service::Files),
                        accept(tcp, Service::Portmapper),
                        datagrams(udp, Arc::clone(&self.shared), Service::Portmapper, shutdown.clone()),
                    );
                }
            }
            tracker.close();
            let drain = Duration::from_secs(self.shared.config.drain_secs);
            if tokio::time::timeout(drain, tracker.wait()).await.is_err() {
                tracing::warn!(calls = tracker.len(), "NFS calls or connections did not end in time");
            }
        })
    }
}

async fn accept_loop(
    listener: TcpListener,
    shared: Arc<Shared>,
    service: Service,
    tracker: TaskTracker,
    shutdown: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((socket, peer)) => admit(socket, peer, &shared, service, &tracker, &shutdown),
            Err(error) => {
                // Out of file descriptors, or a client that was gone already: neither is helped by haste.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    service: Service,
    tracker: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let stats = &shared.stats;
    stats.connections_accepted.fetch_add(1, Relaxed);
    let machine = Party::of(None, peer.ip());
    let open = stats.connections_open.load(Relaxed) as usize;
    let is_full = shared.parties.is_full(open, Some(&machine));
    let Some(stranger) = shared.strangers.admit_newest(peer.ip(), is_full) else {
        stats.connections_refused.fetch_add(1, Relaxed);
        let address = peer.ip().to_canonical();
        shared.door.refused(address, || format!("NFS: a connection from {address} was refused: there are too many"));
        return;
    };
    if let Err(error) = prepare(&socket) {
        tracing::debug!(%error, %peer, "socket options");
    }
    stats.connections_open.fetch_add(1, Relaxed);
    let open = Open(Arc::clone(shared));
    let (tasks, stop) = (tracker.clone(), shutdown.clone());
    let served = async move {
        let end = conn::serve(Arc::clone(&open.0), socket, (peer, stranger), service, tasks, stop).await;
        if !matches!(end, End::Closed | End::Shutdown) {
            open.0.stats.connections_dropped.fetch_add(1, Relaxed);
            tracing::debug!(%peer, reason = %end, "NFS connection dropped");
        }
    };
    tracker.spawn(served.boxed());
}

/// Counts a connection while it is open, whatever ends it.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stats.connections_open.fetch_sub(1, Relaxed);
    }
}

/// Buffer sizes are left to the kernel: it grows both to what the path needs (4 MiB and more), whereas a size
/// set by hand is capped far below and switches that off. Keep-alive finds clients that vanished.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(300))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(30))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    Ok(())
}

/// Calls over UDP that are answered at once.
async fn datagrams(socket: UdpSocket, shared: Arc<Shared>, service: Service, shutdown: CancellationToken) {
    /// A call of the portmapper or of NSM is smaller.
    const DATAGRAM_BYTES_MAX: usize = 2048;
    let mut buf = [0; DATAGRAM_BYTES_MAX];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buf) => received,
            () = shutdown.cancelled() => return,
        };
        let Ok((len, peer)) = received else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let head = bytes::Bytes::copy_from_slice(buf.get(..len).unwrap_or_default());
        let mut session = Session::new(Arc::clone(&shared), peer, service);
        if let Next::Reply(reply) = session.next(record::Message::whole(head), Vec::new()) {
            // A datagram has no record mark.
            let _ = socket.send_to(reply.head.get(4..).unwrap_or_default(), peer).await;
        }
    }
}
