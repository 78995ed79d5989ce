//! A server: its listener, the accept loop and graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{Instrument, debug, error, info, info_span, warn};

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
    /// Bound address, set by `bind()`.
    local_addr: tokio::sync::Mutex<Option<SocketAddr>>,
}

impl SmbServer {
    pub(crate) fn from_state(state: ServerState) -> Self {
        Self { state: Arc::new(state), bound: tokio::sync::Mutex::new(None), local_addr: tokio::sync::Mutex::new(None) }
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
        *self.local_addr.lock().await = Some(addr);
        Ok(addr)
    }

    /// Returns the actual bound address. `None` if `bind()`/`serve()` have
    /// not yet been called.
    pub async fn local_addr(&self) -> Option<SocketAddr> {
        *self.local_addr.lock().await
    }

    /// Initiate a graceful shutdown. Stops the accept loop and closes each
    /// connection once its current request is answered. Takes effect even
    /// when called before `serve()`.
    pub fn shutdown(&self) {
        self.state.shutting_down.store(true, Ordering::Release);
        self.state.shutdown.notify_waiters();
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
            let state = self.state.clone();
            let shutdown = state.shutdown.clone();
            let shutting_down = state.shutting_down.clone();
            let mut backoff = AcceptBackoff::new();
            let mut connections = JoinSet::new();
            let limits = &state.config.limits;
            let open = Arc::new(AtomicUsize::new(0));
            let mut at_capacity = false;

            loop {
                let stopped = shutdown.notified();
                tokio::pin!(stopped);
                stopped.as_mut().enable();
                if shutting_down.load(Ordering::Acquire) {
                    info!("shutdown requested; stopping accept loop");
                    break;
                }
                let retry_after = tokio::select! {
                    biased;
                    _ = &mut stopped => {
                        info!("shutdown requested; stopping accept loop");
                        break;
                    }
                    Some(_) = connections.join_next(), if !connections.is_empty() => None,
                    accept = listener.accept() => {
                        match accept {
                            Ok((stream, peer)) => {
                                backoff.succeeded();
                                if shutting_down.load(Ordering::Acquire) {
                                    drop(stream);
                                    break;
                                }
                                let is_full = open.load(Ordering::Relaxed) >= limits.max_connections;
                                if is_full && !at_capacity {
                                    warn!(
                                        max = limits.max_connections,
                                        "connection limit reached; closing connections"
                                    );
                                    at_capacity = true;
                                }
                                let Some(stranger) = state.strangers.admit(peer.ip(), is_full) else {
                                    debug!(%peer, is_full, "connection refused: limit reached");
                                    state.observe(peer.ip(), crate::admission::Admission::TooManyConnections);
                                    drop(stream);
                                    continue;
                                };
                                if at_capacity && !is_full {
                                    info!("below the connection limit again");
                                    at_capacity = false;
                                }
                                configure_socket(&stream, limits.tcp_keepalive);
                                let server_state = state.clone();
                                let slot = Slot::take(&open);
                                let span = info_span!("conn", peer = %peer);
                                connections.spawn(async move {
                                    let _slot = slot;
                                    if let Err(e) = connection_loop(stream, peer, stranger, server_state).await {
                                        error!(error = %e, "connection loop exited with error");
                                    }
                                }.instrument(span));
                                None
                            }
                            Err(e) => {
                                if shutting_down.load(Ordering::Acquire) {
                                    break;
                                }
                                Some(backoff.failed(&e))
                            }
                        }
                    }
                };
                if let Some(delay) = retry_after {
                    tokio::select! {
                        biased;
                        _ = &mut stopped => {
                            info!("shutdown requested; stopping accept loop");
                            break;
                        }
                        _ = tokio::time::sleep(delay) => {}
                    }
                }
            }
            drop(listener);
            let drained = async {
                if !connections.is_empty() {
                    info!(open = connections.len(), "waiting for connections to close");
                }
                while connections.join_next().await.is_some() {}
                close_opens(state.durable.take_for(None, None)).await;
                state.durable.closed().await;
            };
            drained.await;
            info!("server stopped");
            Ok::<(), io::Error>(())
        }
        .instrument(span)
        .await
    }

    #[cfg(any(test, fuzzing, feature = "fuzzing"))]
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
    /// Request a graceful shutdown.
    pub fn shutdown(&self) {
        self.shutting_down.store(true, Ordering::Release);
        self.shutdown.notify_waiters();
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
