//! A server: its listener, the accept loop and graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::config::ConfigHandle;
use crate::conn::connection_loop;
use crate::conn::listener::{AcceptBackoff, configure_socket};
use crate::files::close_opens;
use crate::state::ServerState;

/// A built but not-yet-running SMB server.
///
/// Use `serve()` to bind the configured listener and run until shutdown.
pub struct SmbServer {
    state: Arc<ServerState>,
    /// Listener opened by `bind()`, or by `serve()` if `bind()` was not
    /// called.
    bound: tokio::sync::Mutex<Option<TcpListener>>,
}

impl SmbServer {
    pub(crate) fn from_state(state: ServerState) -> Self {
        Self { state: Arc::new(state), bound: tokio::sync::Mutex::new(None) }
    }

    pub fn config_handle(&self) -> ConfigHandle {
        ConfigHandle::new(self.state.clone())
    }

    /// Bind the listen address without starting the accept loop. Returns
    /// the bound address, which gives the real port when the configured port
    /// is 0.
    pub async fn bind(&self) -> io::Result<SocketAddr> {
        let mut bound = self.bound.lock().await;
        if let Some(l) = bound.as_ref() {
            return l.local_addr();
        }
        let listener = TcpListener::bind(self.state.config.listen_addr).await?;
        let addr = listener.local_addr()?;
        *bound = Some(listener);
        Ok(addr)
    }

    /// Returns a clonable handle that can request shutdown after `serve()`
    /// has consumed the `SmbServer` value.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { shutdown: self.state.shutdown.clone(), shutting_down: self.state.shutting_down.clone() }
    }

    /// Run the accept loop until `shutdown()` is called. Returns once every
    /// connection has closed and every durable open kept after its session
    /// ended is closed, including closes that expiry or a lease break had
    /// already started.
    pub fn serve(self) -> std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send>> {
        Box::pin(self.accept_all())
    }

    async fn accept_all(self) -> io::Result<()> {
        if self.bound.lock().await.is_none() {
            self.bind().await?;
        }
        let listener = self.bound.lock().await.take().expect("listener bound above");
        let local = listener.local_addr().ok();
        let span = info_span!("smb_server", listen = ?local);
        async move {
            info!("server starting");
            let mut accepted = Accepted::new(Arc::clone(&self.state));
            accepted.run(&listener).await;
            info!("stopped accepting connections");
            drop(listener);
            accepted.drain().await;
            info!("server stopped");
            Ok::<(), io::Error>(())
        }
        .instrument(span)
        .await
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn state(&self) -> Arc<ServerState> {
        self.state.clone()
    }
}

/// Cheaply-clonable shutdown handle. Outlives `SmbServer::serve` consuming
/// the server.
#[derive(Clone)]
pub struct ShutdownHandle {
    shutdown: Arc<Notify>,
    shutting_down: Arc<AtomicBool>,
}

impl ShutdownHandle {
    /// Stops the accept loop and closes each connection once its current request is answered. Takes
    /// effect even when called before `serve()`.
    pub fn shutdown(&self) {
        self.shutting_down.store(true, Ordering::Release);
        self.shutdown.notify_waiters();
    }
}

/// The connections that a server has accepted.
struct Accepted {
    state: Arc<ServerState>,
    connections: JoinSet<()>,
    open: Arc<AtomicUsize>,
    /// It was said that there is no room.
    at_capacity: bool,
}

impl Accepted {
    fn new(state: Arc<ServerState>) -> Self {
        Self { state, connections: JoinSet::new(), open: Arc::default(), at_capacity: false }
    }

    /// Accepts until the server shuts down.
    async fn run(&mut self, listener: &TcpListener) {
        let state = Arc::clone(&self.state);
        let mut backoff = AcceptBackoff::new();
        loop {
            let stopped = state.shutdown.notified();
            tokio::pin!(stopped);
            stopped.as_mut().enable();
            if state.shutting_down.load(Ordering::Acquire) {
                return;
            }
            let accepted = tokio::select! {
                biased;
                () = &mut stopped => return,
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => continue,
                accepted = listener.accept() => accepted,
            };
            if state.shutting_down.load(Ordering::Acquire) {
                return;
            }
            match accepted {
                Ok((stream, peer)) => {
                    backoff.succeeded();
                    self.admit(stream, peer);
                }
                Err(error) => tokio::select! {
                    biased;
                    () = &mut stopped => return,
                    () = tokio::time::sleep(backoff.failed(&error)) => {}
                },
            }
        }
    }

    /// Serves a connection, if there is room for it.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let limits = &self.state.config.limits;
        let is_full = self.open.load(Ordering::Relaxed) >= limits.max_connections;
        if is_full && !self.at_capacity {
            warn!(max = limits.max_connections, "connection limit reached; closing connections");
            self.at_capacity = true;
        }
        let Some(stranger) = self.state.strangers.admit(peer.ip(), is_full) else {
            debug!(%peer, is_full, "connection refused: limit reached");
            self.state.observe(peer.ip(), crate::admission::Admission::TooManyConnections);
            return;
        };
        if self.at_capacity && !is_full {
            info!("below the connection limit again");
            self.at_capacity = false;
        }
        configure_socket(&stream, limits.tcp_keepalive);
        let (state, slot) = (Arc::clone(&self.state), Slot::take(&self.open));
        let served = async move {
            let _slot = slot;
            connection_loop(stream, peer, stranger, state).await;
        };
        self.connections.spawn(served.instrument(info_span!("conn", peer = %peer)).boxed());
    }

    /// Waits until each connection and each durable open is closed.
    async fn drain(&mut self) {
        if !self.connections.is_empty() {
            info!(open = self.connections.len(), "waiting for connections to close");
        }
        while self.connections.join_next().await.is_some() {}
        close_opens(self.state.durable.take_for(None, None)).await;
        self.state.durable.closed().await;
    }
}

/// Counts a connection while it is open.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
