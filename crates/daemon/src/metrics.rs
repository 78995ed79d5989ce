//! Metrics of this process in the text form of Prometheus: on the API's socket, and on an address of its own where the
//! configuration names one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use larder_api::endpoint::{Caller, Endpoint};
use larder_api::endpoints::GetMetrics;
use larder_api::{Failure, ReplicationStatus};
use larder_base::metrics::Metrics;
use larder_base::task;
use larder_doors::strangers::{Stranger, Strangers};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::Daemon;

/// Scrapers of the metrics at a time. The oldest connection makes room for a newcomer.
const CONNECTIONS_MAX: usize = 64;
/// A scraper that keeps its connection makes another after this time.
const CONNECTION_TIME: Duration = Duration::from_secs(600);
const HEAD_TIME: Duration = Duration::from_secs(120);
/// Of a GET, with headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The head and an answer.
const CONNECTION_BYTES: usize = 128 << 10;
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

const _: () = assert!(matches!(GetMetrics::CALLER, Caller::OwnerOrScraper));

pub(super) async fn answer(daemon: &Daemon) -> Response {
    ([(CONTENT_TYPE, TEXT_FORMAT)], text(daemon).await).into_response()
}

async fn text(daemon: &Daemon) -> String {
    let mut out = Metrics::default();
    let uptime = daemon.started.elapsed().as_secs();
    out.gauge("larder_process_uptime_seconds", "Since the daemon was started.", &[], uptime);
    for pool in daemon.storage.all() {
        pool.metrics(&mut out).await;
    }
    daemon.standings.metrics(&mut out);
    daemon.servers.metrics(&mut out);
    daemon.watch.metrics(&mut out);
    for one in daemon.replication.list().replications {
        replication(&one, &mut out);
    }
    out.text()
}

fn replication(one: &ReplicationStatus, out: &mut Metrics) {
    let labels = [("volume", one.volume.as_str()), ("to", one.to.as_str())];
    let newest = one.newest_ms.unwrap_or(0) / 1000;
    let help = "When the newest snapshot that is there was taken, in seconds since 1970; 0: none is known.";
    out.gauge("larder_replication_newest_timestamp_seconds", help, &labels, newest);
    let help = "1 while snapshots cannot be sent.";
    out.gauge("larder_replication_failing", help, &labels, one.fault.is_some().into());
    let help = "1 while the newest snapshot that is there is older than it may be.";
    out.gauge("larder_replication_late", help, &labels, one.late.into());
}

/// Answers on an address of its own until `stop`: metrics, and nothing else.
pub async fn listen(daemon: Arc<Daemon>, addr: SocketAddr, stop: CancellationToken) -> Result<(), Failure> {
    let failed = |e: &std::io::Error| Failure::io(format_args!("cannot listen on {addr} for metrics"), e);
    let listener = tokio::net::TcpListener::bind(addr).await.map_err(|e| failed(&e))?;
    let answer = async |axum::extract::State(daemon): axum::extract::State<Arc<Daemon>>| answer(&daemon).await;
    let strangers = Arc::new(Strangers::new(daemon.servers.strangers()));
    let router = axum::Router::new().route(GetMetrics::PATH, get(answer)).with_state(daemon);
    task::spawn(async move {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let Ok((stream, from)) = accepted else {
                // No descriptors, mostly.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let is_full = open.load(Relaxed) >= CONNECTIONS_MAX;
            let Some(stranger) = strangers.admit_newest(from.ip(), is_full) else { continue };
            open.fetch_add(1, Relaxed);
            let (router, open, stop) = (router.clone(), Arc::clone(&open), stop.clone());
            task::spawn(async move {
                let evicted = stranger.evicted();
                tokio::select! {
                    () = serve_one(stream, router, &stranger) => {}
                    () = evicted.cancelled() => {}
                    () = tokio::time::sleep(CONNECTION_TIME) => {}
                    () = stop.cancelled() => {}
                }
                open.fetch_sub(1, Relaxed);
            });
        }
    });
    Ok(())
}

/// Nobody logs in here: each connection is a stranger (`strangers.make_room`).
async fn serve_one(stream: TcpStream, router: axum::Router, stranger: &Stranger) {
    if !stranger.meter().holds(CONNECTION_BYTES) {
        return;
    }
    let service = TowerToHyperService::new(router);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES_MAX);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("metrics: {error}");
    }
}
