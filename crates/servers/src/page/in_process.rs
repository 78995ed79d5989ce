//! Questions to the daemon from its own process: the router of the socket, without a socket.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::header::{self, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use larder_api::{BODY_BYTES_MAX, Failure};
use larder_web::{Ask, Asker};

use crate::remote::Remote;

pub(super) struct InProcess(TowerToHyperService<Router>);

impl InProcess {
    pub(super) fn new(router: Router) -> Self {
        Self(TowerToHyperService::new(router))
    }

    /// The status, type and body of an answer to what `asker` asks.
    pub(super) async fn ask(
        &self,
        asker: Option<Remote>,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderValue, Bytes), Failure> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let mut request = request.body(Body::from(body)).map_err(|e| Failure::invalid(e.to_string()))?;
        if let Some(asker) = asker {
            request.extensions_mut().insert(asker);
        }
        let response = match self.0.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|e| Failure::internal(e.to_string()))?;
        let kind = head.headers.get(header::CONTENT_TYPE).cloned();
        Ok((head.status, kind.unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8")), bytes))
    }
}

impl Ask for InProcess {
    fn carry(
        &self,
        asker: Option<Asker>,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, Failure>> {
        let asker = asker.map(|Asker { user, from }| Remote { who: user, from, by: "page" });
        Box::pin(async move {
            let (status, _, bytes) = self.ask(asker, method, &path, body).await?;
            match status.is_success() {
                true => Ok(bytes),
                false => Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
                    Failure::internal(format!("the daemon answered {status}: {}", String::from_utf8_lossy(&bytes)))
                })),
            }
        })
    }
}
