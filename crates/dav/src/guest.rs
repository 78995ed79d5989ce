//! A guest: pages and an API that are not of this crate, on this server's connections.
//!
//! - `guest.same_walls`: a guest's requests come through the limits of this door: strangers,
//!   handshakes, heads, bodies, silence. Without a right a client sends at most a log-in form.
//! - `guest.own_paths`: paths of the guest are no paths of shares, so neither hides the other.

use std::io;
use std::net::IpAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::Response;
use hyper::http::request::Parts;

/// The body of an answer.
pub type GuestBody = UnsyncBoxBody<Bytes, io::Error>;

/// What one address serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serves {
    /// WebDAV, and pages of the shares.
    pub shares: bool,
    /// The guest.
    pub guest: bool,
}

/// The other side: who answers for such paths.
pub trait Guest: Send + Sync + 'static {
    /// Whether clients at this address may come in.
    fn lets_in(&self, from: IpAddr) -> bool;

    /// Whether it answers for a path. `has_share`: whether a share has a name.
    fn has(&self, path: &str, has_share: &dyn Fn(&str) -> bool) -> bool;

    /// The user whose right the client shows, so that it is no stranger any more and may send a
    /// longer body.
    fn knows(&self, head: &Parts) -> Option<String>;

    /// Answers a request.
    fn answer(&self, head: Parts, body: Bytes, from: IpAddr) -> BoxFuture<'_, Response<GuestBody>>;
}
