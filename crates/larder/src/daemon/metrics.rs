//! Metrics of this process in the text form of Prometheus: on the API's socket, and on an address of its own where the
//! configuration names one.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use larder_api::{Failure, ReplicationStatus};
use larder_base::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use super::Daemon;

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

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
    daemon.servers.metrics(&mut out);
    for one in daemon.replications().await.replications {
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
pub(crate) async fn listen(daemon: Arc<Daemon>, addr: SocketAddr, stop: CancellationToken) -> Result<(), Failure> {
    let failed = |e: &std::io::Error| Failure::io(format_args!("cannot listen on {addr} for metrics"), e);
    let listener = tokio::net::TcpListener::bind(addr).await.map_err(|e| failed(&e))?;
    let answer = async |axum::extract::State(daemon): axum::extract::State<Arc<Daemon>>| answer(&daemon).await;
    let router = axum::Router::new().route("/metrics", get(answer)).with_state(daemon);
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!("metrics are not served any more: {error}");
        }
    });
    Ok(())
}
