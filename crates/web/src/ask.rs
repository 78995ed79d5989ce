//! Questions to the daemon, in their wire form: over its socket, in its own process, or to recorded answers.

use std::net::IpAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::Method;
use larder_api::endpoint::{self, Param};
use larder_api::{Client, Failure};

use crate::shell_words::failure_on_page;

/// Whose request a question comes from: it is said of each change who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub user: String,
    pub from: IpAddr,
}

/// A way to the endpoints of `larder_api`.
pub trait Ask: Send + Sync + 'static {
    /// The answer's body, or the failure that the answer tells.
    fn carry(
        &self,
        asker: Option<Asker>,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, Failure>>;
}

impl Ask for Client {
    fn carry(
        &self,
        _: Option<Asker>,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, Failure>> {
        Box::pin(async move { Client::carry(self, method, &path, body).await })
    }
}

/// Calls an endpoint.
pub async fn call<E: endpoint::Json>(
    ask: &dyn Ask,
    asker: Option<Asker>,
    _: E,
    param: <E::Param as Param>::Given<'_>,
    request: Option<&E::Request>,
) -> Result<E::Response, Failure> {
    let body = match request {
        Some(request) => serde_json::to_vec(request).map_err(|e| Failure::internal(e.to_string()))?,
        None => Vec::new(),
    };
    // `words.at_the_way_in`
    let carried = ask.carry(asker, E::METHOD, E::path(param), Bytes::from(body)).await;
    let answer = carried.map_err(failure_on_page)?;
    serde_json::from_slice(&answer)
        .map_err(|e| Failure::internal(format!("the daemon's answer is of another version: {e}")))
}
