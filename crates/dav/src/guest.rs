//! A guest: pages and an API that are not of this crate, on this server's connections.
//!
//! - `guest.same_walls`: a guest's requests come through the limits of this door: strangers, handshakes, heads, bodies,
//!   silence. Without a right a client sends at most a log-in form.
//! - `guest.own_paths`: paths of the guest are no paths of shares, so neither hides the other.

use std::io;
use std::net::IpAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::Response;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;

/// The body of an answer.
pub type GuestBody = UnsyncBoxBody<Bytes, io::Error>;

/// What one address serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serves {
    /// WebDAV, and the file view.
    pub shares: bool,
    /// The guest.
    pub guest: bool,
}

/// A page of the guest, in the navigation of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestPlace {
    /// Its address.
    pub href: &'static str,
    /// What the link says.
    pub name: &'static str,
    /// The file view.
    pub is_files: bool,
}

/// A user who has logged in at the guest's.
pub struct GuestUser {
    /// The name of the user.
    pub name: String,
    /// The token that a change by this session carries.
    pub csrf: String,
    /// The address of the form that ends the session.
    pub log_out: &'static str,
    /// The pages of the guest that the user may open.
    pub places: Vec<GuestPlace>,
    /// auto, light, dark.
    pub theme: &'static str,
}

/// The other side: who answers for such paths.
pub trait Guest: Send + Sync + 'static {
    /// Whether clients at this address may come in.
    fn lets_in(&self, from: IpAddr) -> bool;

    /// Whether it answers for a path. `has_share`: whether a share has a name.
    fn has(&self, path: &str, has_share: &dyn Fn(&str) -> bool) -> bool;

    /// The user whose right the client shows, so that it is no stranger any more and may send a longer body.
    fn knows(&self, head: &Parts) -> Option<String>;

    /// The user that a session of the guest's lets in here.
    fn user(&self, headers: &HeaderMap) -> Option<GuestUser>;

    /// Whether this user logs in at the guest's with more than a password: then no other form lets it in by that alone.
    fn has_factor(&self, user: &str) -> bool;

    /// The path that a browser without a session is sent to, to come back to `path` afterwards.
    fn log_in_path(&self, path: &str) -> String;

    /// Answers a request.
    fn answer(&self, head: Parts, body: Bytes, from: IpAddr) -> BoxFuture<'_, Response<GuestBody>>;
}
