//! The door that snapshots come in by, over any connection: the state of one replica, and a stream into it. Nothing else can be
//! asked for, so whoever may send can neither destroy nor read what is here.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use hyper_util::rt::TokioIo;
use larder_api::endpoint::{Caller, Endpoint};
use larder_api::endpoints::{GetReplica, ReceiveRecord, ReceiveSnapshot};
use larder_api::{BODY_BYTES_MAX, Connection, Done, Failure};
use larder_base::task;
use serde::Serialize;

use super::receiver::Receiver;
use larder_servers::answer::Refusal;
use larder_servers::json;

/// A sender that sends no piece for so long is gone. The replica is then free for its next attempt.
const SILENCE_MAX: Duration = Duration::from_secs(300);

// The endpoints of the door are declared for those who come in by it.
const _: () = assert!(matches!(GetReplica::CALLER, Caller::OwnerOrSender));
const _: () = assert!(matches!(ReceiveSnapshot::CALLER, Caller::OwnerOrSender));
const _: () = assert!(matches!(ReceiveRecord::CALLER, Caller::OwnerOrSender));

/// Answers the requests of one connection, which are about `replica`.
pub async fn serve(io: impl Connection + 'static, replica: &str, receiver: Receiver) -> Result<(), String> {
    let path = ReceiveSnapshot::path(replica);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (path, receiver) = (path.clone(), receiver.clone());
        async move { Ok::<_, Infallible>(answer(request.map(Body::new), &path, receiver).await) }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
    served.map_err(|error| error.to_string())
}

pub(super) async fn answer(request: Request, path: &str, receiver: Receiver) -> Response {
    let is_record = replica_of(path).is_some_and(|replica| request.uri().path() == ReceiveRecord::path(replica));
    match *request.method() {
        ReceiveRecord::METHOD if is_record => response(keep(request.into_body(), &receiver).await),
        _ if request.uri().path() != path => {
            Refusal(Failure::not_found("there is no replica of this name for this sender")).into_response()
        }
        GetReplica::METHOD => response(receiver.state().await),
        ReceiveSnapshot::METHOD => response(take(request.into_body(), receiver).await),
        _ => Refusal(Failure::not_found("this larder does not know this request")).into_response(),
    }
}

/// The replica that the path of its stream names.
fn replica_of(path: &str) -> Option<&str> {
    path.strip_prefix(ReceiveSnapshot::PATH.split("{*").next()?)
}

async fn keep(body: Body, receiver: &Receiver) -> Result<Done, Failure> {
    let bytes = tokio::time::timeout(SILENCE_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX)).await;
    let bytes = bytes.map_err(|_| Failure::invalid("the sender has been silent for five minutes"))?;
    let bytes = bytes.map_err(|error| Failure::invalid(error.to_string()))?;
    let sent = serde_json::from_slice(&bytes).map_err(|error| Failure::invalid(error.to_string()))?;
    receiver.keep_record(&sent).await
}

/// A refusal is answered in the middle of the stream. What comes after it is read and dropped until the sender has read the answer.
async fn take(body: Body, receiver: Receiver) -> Result<larder_api::Received, Failure> {
    let pieces = futures::stream::unfold(Some(body.into_data_stream()), |pieces| async move {
        let mut pieces = pieces?;
        match tokio::time::timeout(SILENCE_MAX, pieces.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
            Ok(Some(Err(error))) => Some((Err(error.to_string()), None)),
            Ok(None) => None,
            Err(_) => Some((Err("the sender has been silent for five minutes".to_owned()), None)),
        }
    });
    let mut pieces = Box::pin(pieces);
    let received = receiver.receive(pieces.by_ref().boxed()).await;
    if received.is_err() {
        task::spawn(pieces.for_each(|_| std::future::ready(())));
    }
    received
}

fn response<T: Serialize>(result: Result<T, Failure>) -> Response {
    match result {
        Ok(value) => json::answer(&value),
        Err(failure) => Refusal(failure).into_response(),
    }
}
