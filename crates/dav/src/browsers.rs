//! Browsers at the shares: pages of folders and files, which another crate makes.
//!
//! WebDAV answers its own methods and asks a [`Browsers`] for the rest: public paths, sessions, and
//! what GET and POST of a folder or file show to a person. Here is also all of this door that such
//! pages are made of: a request ([`Context`]), a file's answer ([`file`]), a file on its way to a
//! name ([`Arriving`]), a password at the price of a guess ([`Stranger::verify`]).
//!
//! - `pages.same_walls`: pages are answered within the limits of this door, after the check of who
//!   asks. A change by a session reaches no method before [`Browsers::check_change`].

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use larder_base::traffic::Traffic;
use larder_people::{PasswordHash, User};

use super::auth;
pub use super::auth::Refused;
pub use super::conditions::text;
pub use super::context::{Answer, Body, Context, empty, full, status};
pub use super::fail::Fail;
pub use super::get::{disposition, file};
use super::guest::Serves;
pub use super::kinds::content_type;
pub use super::path::{Place, href, is_within, join, name, parent, push_escaped};
pub use super::places::{Place as Turn, Places};
pub use super::put::Arriving;
pub use super::service::read_form;
use super::shared::Shared;
pub use super::upload::{PAUSE, Upload};
use super::wire::Arrivals;
use larder_doors::tree::ShareState;

/// How a connection came.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Over TLS of this server.
    pub tls: bool,
    /// What its address serves.
    pub serves: Serves,
}

/// A session of a browser, as a request carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSession {
    /// Names it among those of its user, and opens nothing.
    pub id: String,
    /// The second token, which a change carries.
    pub csrf: String,
    /// It began at the guest's log-in, not at that of the pages.
    pub is_of_guest: bool,
}

/// Somebody without a name who asks for something public.
pub struct Stranger {
    pub(super) shared: Arc<Shared>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) arrivals: Arc<Arrivals>,
    /// The client's, also behind a proxy that is trusted.
    pub address: IpAddr,
    /// How the connection came.
    pub way: Way,
    /// The body, of a form that was sent.
    pub form: Vec<u8>,
}

impl Stranger {
    /// The user of that name.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.shared.user(name)
    }

    /// Looks at a name and a password (`auth.guessing_is_slow`).
    pub async fn verify(&self, name: &str, given: String) -> Result<Arc<User>, Refused> {
        auth::verify(&self.shared, self.address, name, given).await
    }

    /// Looks at a password that is no user's, at the same price; `name` is what the log calls it.
    pub async fn verify_other(&self, name: &str, hash: Option<PasswordHash>, given: String) -> Result<(), Refused> {
        auth::verify_link(&self.shared, self.address, name, hash, given).await
    }

    /// The request, with the rights of `user`.
    pub fn into_context(self, user: Arc<User>, method: Method, headers: HeaderMap, place: Place) -> Context {
        Context {
            view: self.shared.view(&user, self.address),
            shared: self.shared,
            traffic: self.traffic,
            user,
            method,
            headers,
            place,
            arrivals: self.arrivals,
        }
    }
}

/// A request by a user for something stored.
pub struct Asked {
    /// The request.
    pub context: Context,
    /// The session that let the user in; without one there were credentials.
    pub session: Option<BrowserSession>,
    /// Of the URL.
    pub query: String,
    /// How the connection came.
    pub way: Way,
}

/// Whoever makes pages of the shares for browsers.
pub trait Browsers: Send + Sync + 'static {
    /// Whether a path is for everybody to ask for.
    fn is_public(&self, path: &str) -> bool;

    /// Answers for such a path, and names the link by which the client has shown that it may be
    /// here.
    fn public(&self, stranger: Stranger, head: Parts) -> BoxFuture<'_, (Answer, Option<Arc<str>>)>;

    /// The user whose session the client shows. `find`: users by name.
    fn session(
        &self,
        headers: &HeaderMap,
        way: Way,
        find: &dyn Fn(&str) -> Option<Arc<User>>,
    ) -> Option<(Arc<User>, BrowserSession)>;

    /// Sends a browser without a session to where people log in, and back afterwards.
    fn to_log_in(&self, head: &Parts, way: Way) -> Response<Body>;

    /// Refuses a change that the session's user did not mean.
    fn check_change(&self, headers: &HeaderMap, session: Option<&BrowserSession>) -> Result<(), Fail>;

    /// What of a path is below the pages' own root.
    fn own<'p>(&self, path: &'p str) -> Option<&'p str>;

    /// Answers for such a path, by a user.
    fn answer_own<'a>(&'a self, asked: Asked, below: String, body: &'a mut Incoming) -> BoxFuture<'a, Answer>;

    /// GET and HEAD of something stored.
    fn get(&self, asked: Asked) -> BoxFuture<'_, Answer>;

    /// POST to something stored: a form. It checks itself that the change was meant.
    fn post(&self, asked: Asked, form: Vec<u8>) -> BoxFuture<'_, Answer>;

    /// These are the users now.
    fn set_users(&self, users: &[User]);

    /// A share is gone, or another one by now.
    fn forget_share(&self, share: &Arc<ShareState>);

    /// Work beside requests, while the server serves. Never returns.
    fn work(&self) -> BoxFuture<'_, ()>;
}
