//! Metadata over HTTP: one path, one kind of request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::computer::Computer;
use super::message::{self, What};
use crate::interfaces::is_private;

/// Connections at a time. A newcomer takes the place of the oldest one of the address that has most.
const CONNECTIONS_MAX: usize = 16;
/// A head, and a body as it is read.
const BUFFER_BYTES_MAX: usize = 16 << 10;
/// A client asks once and goes.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);
const BODY_BYTES_MAX: usize = 16 << 10;
/// After a failed accept (no descriptors left).
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(500);

pub(crate) async fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
}

pub(crate) async fn serve(listener: TcpListener, computer: Arc<Computer>, stop: CancellationToken) {
    let mut open: VecDeque<(IpAddr, JoinHandle<()>)> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, from)) = accepted else {
            tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            continue;
        };
        if !is_private(from.ip()) && !from.ip().is_loopback() {
            continue;
        }
        open.retain(|(_, task)| !task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            make_room(&mut open);
        }
        let computer = Arc::clone(&computer);
        let task = tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| answer(Arc::clone(&computer), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(BUFFER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await;
        });
        open.push_back((from.ip(), task));
    }
}

/// Ends the oldest connection of the address that has most.
fn make_room(open: &mut VecDeque<(IpAddr, JoinHandle<()>)>) {
    let count = |address: IpAddr| open.iter().filter(|(of, _)| *of == address).count();
    let most = open.iter().map(|(address, _)| count(*address)).max();
    let oldest = open.iter().position(|(address, _)| Some(count(*address)) == most);
    if let Some((_, task)) = oldest.and_then(|at| open.remove(at)) {
        task.abort();
    }
}

async fn answer(computer: Arc<Computer>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_ours = request.method() == Method::POST && request.uri().path() == format!("/{}", computer.uuid);
    if !is_ours {
        return Ok(response(StatusCode::NOT_FOUND, String::new()));
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await.map(|body| body.to_bytes());
    let asked = body.ok().and_then(|bytes| message::parse(&bytes, &computer.address()));
    Ok(match asked.filter(|request| request.what == What::Get) {
        Some(request) => response(StatusCode::OK, message::metadata(&computer, &request)),
        None => response(StatusCode::BAD_REQUEST, String::new()),
    })
}

fn response(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/soap+xml");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_address_that_has_most_makes_room() {
        let addresses = [1, 2, 2, 3, 2, 1].map(|last| IpAddr::from([10, 0, 0, last]));
        let task = |address| (address, tokio::spawn(std::future::pending()));
        let mut open: VecDeque<_> = addresses.into_iter().map(task).collect();
        make_room(&mut open);
        make_room(&mut open);
        let left: Vec<u8> = open.iter().map(|(address, _)| address.to_canonical().to_string().as_bytes()[7]).collect();
        assert_eq!(left, *b"2321");
        open.iter().for_each(|(_, task)| task.abort());
    }
}
