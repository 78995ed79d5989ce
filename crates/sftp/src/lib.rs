//! The SFTP server: SSH 2 (by `russh`) with the subsystem `sftp`, version 3, and nothing else.
//!
//! Layers, each a file: `packet` is the pure codec, `wire` the byte stream, `conn` one connection and its
//! login, `flow` the requests under way, `order` which of them may overlap, `ops` carries them out on a
//! [`larder_files::Files`], `handles` keeps what is open, `list` writes attributes and lines of listings.
//! `certificate` judges SSH certificates; users and what a path leads to are in [`larder_doors`], shared with other doors.
//!
//! - `sftp.no_own_rules`: opens, leases and permissions are those of the volume and its file service.
//!   The door keeps handles alone.
//! - `sftp.files_only`: no shell, no command, no forwarding. Whoever asks for one is told what to use.
//! - `sftp.untrusted_input`: everything from the network is untrusted: nothing panics, no length is
//!   believed, all memory is bounded.

mod certificate;
mod config;
mod conn;
mod fail;
mod flow;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handles;
mod host_key;
mod list;
mod ops;
mod order;
mod packet;
mod shared;
mod wire;

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use larder_base::traffic::Protocol;
use larder_people::User;
use larder_people::token::Tokens;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::{MethodKind, MethodSet, Preferred, SshId, cipher};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use conn::Conn;
use larder_doors::door;
use larder_doors::share::ServedShare;
use larder_doors::strangers::{STRANGER_TIME, Stranger};
use shared::Shared;
use wire::Wire;

pub use certificate::CaKey;
pub use config::SftpConfig;
pub use host_key::{HostKey, HostKeyError};

/// The window of a channel: what a client may send before it hears back. It waits in the sockets, not here.
const WINDOW_BYTES: u32 = 4 << 20;
/// As long as SSH's implementations take; longer packets cost less each.
const SSH_PACKET_BYTES: u32 = 65_535;
/// Answers between a session and its connection.
const ANSWERS_MAX: usize = 16;
/// A client that is silent is asked whether it is there, and after some questions given up.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVES_MAX: usize = 3;
/// A client that answers no question and takes no bytes for so long is cut off.
const SILENCE_MAX: Duration = Duration::from_secs(240);
const ATTEMPTS_MAX: usize = 6;
/// As long as a refusal takes at least. What guessing costs beyond is in `login`.
const REFUSAL_TIME: Duration = Duration::from_millis(250);

/// A server that is bound and not yet serving.
pub struct SftpServer {
    listener: TcpListener,
    shared: Arc<Shared>,
    local_addr: SocketAddr,
}

/// A running server's controls.
#[derive(Clone)]
pub struct SftpHandle {
    shared: Arc<Shared>,
}

impl SftpHandle {
    /// Makes these the users. Connections of one who is gone or changed are cut.
    pub fn set_users(&self, users: Vec<User>) {
        self.shared.set_users(users);
    }

    /// Makes these the app tokens. Connections of one that is gone or changed are cut.
    pub fn set_tokens(&self, tokens: Arc<Tokens>) {
        self.shared.set_tokens(tokens);
    }

    /// Makes these the authorities whose certificates let users in. Connections that another one let in are cut.
    pub fn set_authorities(&self, authorities: Vec<CaKey>) {
        self.shared.set_authorities(authorities);
    }

    /// Makes these the shares. Files of one that is gone or changed are closed.
    pub fn set_shares(&self, shares: Vec<ServedShare>) {
        self.shared.set_shares(shares);
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut larder_base::metrics::Metrics) {
        self.shared.stats.metrics(out);
    }
}

impl SftpServer {
    /// Binds `addr` (port 0 takes a free one), so that a port in use is reported here. Nothing is answered before
    /// [`SftpServer::serve`].
    pub async fn bind(addr: SocketAddr, config: SftpConfig) -> io::Result<Self> {
        let listener = door::listen(addr)?;
        let local_addr = listener.local_addr()?;
        Ok(Self { listener, shared: Arc::new(Shared::new(config)), local_addr })
    }

    /// The address that is bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Controls that stay valid while [`SftpServer::serve`] runs.
    pub fn handle(&self) -> SftpHandle {
        SftpHandle { shared: Arc::clone(&self.shared) }
    }

    /// Serves until `shutdown`; then stops accepting, says goodbye and closes.
    pub fn serve(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (tracker, ssh) = (TaskTracker::new(), Arc::new(ssh_config(&self.shared.config)));
            loop {
                let accepted = tokio::select! {
                    accepted = self.listener.accept() => accepted,
                    () = shutdown.cancelled() => break,
                };
                match accepted {
                    Ok((socket, peer)) => admit(socket, peer, &self.shared, &ssh, &tracker, &shutdown),
                    Err(error) => {
                        // Out of file descriptors, or a client that was gone already: neither is helped by haste.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
            tracker.close();
            let drain = Duration::from_secs(self.shared.config.drain_secs);
            if tokio::time::timeout(drain, tracker.wait()).await.is_err() {
                tracing::warn!(connections = tracker.len(), "SFTP connections did not end in time");
            }
        })
    }
}

fn ssh_config(config: &SftpConfig) -> russh::server::Config {
    // With AES in the processor its GCM mode is the fastest by far; the client's order decides.
    let ciphers = [
        cipher::AES_128_GCM,
        cipher::AES_256_GCM,
        cipher::CHACHA20_POLY1305,
        cipher::AES_256_CTR,
        cipher::AES_192_CTR,
        cipher::AES_128_CTR,
    ];
    // Kinds of keys, of hosts and users. RSA with SHA-1 is not among them.
    let ecdsa = [EcdsaCurve::NistP256, EcdsaCurve::NistP384, EcdsaCurve::NistP521];
    let rsa = [HashAlg::Sha512, HashAlg::Sha256].map(|hash| Algorithm::Rsa { hash: Some(hash) });
    let keys: Vec<Algorithm> =
        [Algorithm::Ed25519].into_iter().chain(ecdsa.map(|curve| Algorithm::Ecdsa { curve })).chain(rsa).collect();
    let methods = [MethodKind::PublicKey, MethodKind::Password, MethodKind::KeyboardInteractive];
    russh::server::Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-larder_", env!("CARGO_PKG_VERSION")))),
        methods: MethodSet::from(&methods[..]),
        auth_rejection_time: REFUSAL_TIME,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![config.host_key.0.clone()],
        window_size: WINDOW_BYTES,
        maximum_packet_size: SSH_PACKET_BYTES,
        event_buffer_size: ANSWERS_MAX,
        preferred: Preferred { cipher: Cow::Owned(ciphers.to_vec()), key: Cow::Owned(keys), ..Preferred::default() },
        max_auth_attempts: ATTEMPTS_MAX,
        inactivity_timeout: Some(SILENCE_MAX),
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES_MAX,
        nodelay: true,
        ..russh::server::Config::default()
    }
}

fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    ssh: &Arc<russh::server::Config>,
    tracker: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let stats = &shared.stats;
    stats.connections_accepted.add(1);
    let is_full = shared.parties.is_full(stats.connections_open.load(Relaxed), None);
    let Some(stranger) = shared.strangers.admit_newest(peer.ip(), is_full).or_else(|| {
        // Everybody has logged in.
        (is_full && shared.residents.make_room()).then(|| shared.strangers.admit(peer.ip()))?
    }) else {
        stats.connections_refused.add(1);
        let address = peer.ip().to_canonical();
        shared.door.refused(address, || format!("SFTP: a connection from {address} was refused: there are too many"));
        return;
    };
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, %peer, "socket options");
    }
    stats.connections_open.fetch_add(1, Relaxed);
    let open = Counted(Arc::clone(shared));
    tracker.spawn(serve_one(socket, peer, stranger, open, Arc::clone(ssh), shutdown.clone()).boxed());
}

/// Counts a connection while it is open, whatever ends it.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.stats.connections_open.fetch_sub(1, Relaxed);
    }
}

async fn serve_one(
    socket: TcpStream,
    peer: SocketAddr,
    stranger: Stranger,
    open: Counted,
    ssh: Arc<russh::server::Config>,
    shutdown: CancellationToken,
) {
    /// For the last packet to leave.
    const GOODBYE: Duration = Duration::from_millis(200);
    let shared = Arc::clone(&open.0);
    let (cut, known) = (CancellationToken::new(), CancellationToken::new());
    let evicted = stranger.evicted();
    let (socket, traffic) = stranger.paces(socket, peer.ip()).watched(Protocol::Sftp, peer);
    let pace = socket.pace().clone();
    let wire = Wire::new(socket, cut.clone(), known.clone(), stranger.meter());
    let conn = Conn::new(Arc::clone(&shared), (peer.ip(), traffic), (stranger, pace), cut.clone(), known.clone());
    let session = async {
        let running = russh::server::run_stream(ssh, wire, conn).await?;
        let handle = running.handle();
        let stopping = async {
            shutdown.cancelled().await;
            conn::say_goodbye(&handle, GOODBYE).await;
            tokio::time::sleep(GOODBYE).await;
            cut.cancel();
            std::future::pending::<()>().await
        };
        tokio::select! {
            ended = running => ended,
            () = stopping => Ok(()),
        }
    };
    // A connection that nobody has logged in to ends in time (`strangers.timed`), and earlier
    // if a newcomer needs its place (`strangers.make_room`).
    let deadline = async {
        tokio::select! {
            () = known.cancelled() => {}
            () = tokio::time::sleep(STRANGER_TIME) => cut.cancel(),
            () = evicted.cancelled() => cut.cancel(),
            () = shutdown.cancelled() => {
                tokio::time::sleep(GOODBYE * 2).await;
                cut.cancel();
            }
        }
        // Then it ends only if another party needs its place (`parties.most_makes_room`).
        evicted.cancelled().await;
        cut.cancel();
        std::future::pending::<()>().await
    };
    let ended = tokio::select! {
        ended = session => ended,
        () = deadline => Ok(()),
    };
    if let Err(error) = ended {
        shared.stats.connections_dropped.add(1);
        tracing::debug!(%peer, reason = %error, "SFTP connection dropped");
    }
}
