//! The first run: a router of its own, which makes a box out of a machine and then ends.
//!
//! It is served while there is no configuration. One browser comes in by the link that larder printed (`link`), chooses
//! disks, a layout and names (`steps`, `draft`), sees what will be done, and is shown the ways to the new box (`ways`).
//! Everything that acts is behind [`SetUp`].
//!
//! - `setup.nothing_before_the_last_step`: until the last form is sent nothing on the machine changes.
//! - `setup.erased_by_name`: a disk that holds anything is erased only if its serial number was typed.
//! - `setup.typed_is_kept`: a step that fails shows again what was typed, passwords apart.
//! - `setup.guesses_counted`: a wrong link counts as a guess, in the table of all doors.

mod draft;
mod link;
mod outcome;
mod password;
mod steps;
mod views;
mod ways;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use larder_api::{Failure, FolderFound, PoolOnDisks, SetupCheck, SetupImport, SetupPlan, SetupProgress};
use larder_base::Clock;
use parking_lot::Mutex;

use crate::ask::Ask;
use crate::asset::ASSETS;
use crate::form::Form;
use crate::note::Note;
use crate::router::{Body, cookie, full, html, protect, read, set, text_of};
use crate::session::is_same;
use crate::visit::{Frame, Peer, Theme, new_nonce};
use draft::Draft;
use link::{Link, Standing};
use outcome::Outcome;

/// The work behind the pages.
pub trait SetUp: Ask {
    /// Counts a guess at the link; `false`: that address has guessed too often.
    fn counts(&self, from: IpAddr) -> bool;

    /// It was none.
    fn forgives(&self, from: IpAddr);

    /// A set-up that was cut off.
    fn unfinished(&self) -> Option<SetupPlan>;

    /// Three folders on the disk of the data folder, for trying out.
    fn trial(&self) -> Vec<PathBuf>;

    /// The command that serves the pool on these folders.
    fn import_line(&self, folders: &[PathBuf]) -> String;

    /// A folder that a person named.
    fn folder(&self, path: PathBuf) -> BoxFuture<'_, Result<FolderFound, Failure>>;

    /// Refuses names that cannot be had.
    fn check_names(&self, plan: &SetupPlan) -> Result<(), Failure>;

    /// What would be done; refuses what cannot.
    fn check(&self, plan: SetupPlan) -> BoxFuture<'_, Result<SetupCheck, Failure>>;

    /// Begins what a browser there ordered; [`SetUp::progress`] tells the rest.
    fn begin(&self, plan: SetupPlan, from: IpAddr) -> Result<(), Failure>;

    /// Begins to be again the box that these disks hold; [`SetUp::progress`] tells the rest.
    fn import(&self, import: SetupImport, from: IpAddr) -> Result<(), Failure>;

    fn progress(&self) -> SetupProgress;

    /// The failure was shown; another try may begin.
    fn forget_failure(&self);

    /// The last page was read: the router may end.
    fn leave(&self);
}

#[derive(Clone)]
pub struct Setup(Arc<Inner>);

struct Inner {
    task: Arc<dyn SetUp>,
    clock: Arc<dyn Clock>,
    /// Over TLS.
    is_secure: bool,
    link: Mutex<Link>,
    draft: Mutex<Draft>,
    note: Mutex<Option<Note>>,
    /// Pools of folders that were named by their paths.
    named_pools: Mutex<Vec<PoolOnDisks>>,
}

/// One request of the browser that was let in.
struct Step<'a> {
    inner: &'a Inner,
    peer: Peer,
    agent: &'a str,
    host: &'a str,
    csrf: String,
    nonce: &'a str,
    path: &'a str,
    form: Form,
}

impl Setup {
    /// The router, and the token of its link: `/setup/TOKEN`.
    pub fn new(task: Arc<dyn SetUp>, clock: Arc<dyn Clock>, is_secure: bool) -> (Self, String) {
        let (link, token) = Link::new(clock.elapsed());
        let draft = task.unfinished().map(Draft::of_unfinished).unwrap_or_default();
        let inner = Inner {
            task,
            clock,
            is_secure,
            link: Mutex::new(link),
            draft: Mutex::new(draft),
            note: Mutex::default(),
            named_pools: Mutex::default(),
        };
        (Self(Arc::new(inner)), token)
    }

    /// The token of another link. The one before is good no more, nor is the browser that it let in.
    pub fn draw(&self) -> String {
        let (link, token) = Link::new(self.0.now());
        *self.0.link.lock() = link;
        token
    }

    pub async fn answer<B>(&self, request: Request<B>, peer: Peer) -> Response<Body>
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let nonce = new_nonce();
        let is_head = request.method() == Method::HEAD;
        let outcome = self.outcome(request, peer, &nonce).await;
        let mut response = self.0.respond(outcome);
        if is_head {
            *response.body_mut() = full(bytes::Bytes::new());
        }
        protect(&mut response, &nonce);
        response
    }

    async fn outcome<B>(&self, request: Request<B>, peer: Peer, nonce: &str) -> Outcome
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let (parts, body) = request.into_parts();
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method };
        let path = parts.uri.path();
        let inner = &*self.0;
        if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path && method == Method::GET) {
            return Outcome::Asset(asset);
        }
        let now = inner.now();
        let csrf = cookie(&parts.headers, inner.cookie_name()).and_then(|token| inner.link.lock().guest(&token, now));
        if let Some(token) = path.strip_prefix("/setup/").filter(|_| method == Method::GET && csrf.is_none()) {
            return inner.welcome(nonce, token, peer.addr);
        }
        let form = match method == Method::POST {
            true => match read(&parts.headers, body).await {
                Ok(form) => form,
                Err((status, failure)) => return inner.closed(nonce, status, "Bad request", &failure.message, ""),
            },
            false => Form::default(),
        };
        let site = text_of(&parts.headers, header::HeaderName::from_static("sec-fetch-site"));
        let is_foreign = method == Method::POST && !matches!(site, "" | "same-origin" | "none");
        if is_foreign {
            return inner.closed(nonce, StatusCode::FORBIDDEN, "Not allowed", "This form is of another site.", "");
        }
        let Some(csrf) = csrf else {
            return match (method, path) {
                (Method::POST, "/begin") => inner.enter(nonce, form.get("token").unwrap_or_default(), peer.addr),
                _ => inner.stranger(nonce),
            };
        };
        if method == Method::POST && path != "/begin" && !is_same(form.get("csrf").unwrap_or_default(), &csrf) {
            let text = "Nothing was changed: this form is from another session.";
            return inner.closed(
                nonce,
                StatusCode::FORBIDDEN,
                "Expired form",
                text,
                "Open the page again and send it from there",
            );
        }
        let host = text_of(&parts.headers, header::HOST);
        let agent = text_of(&parts.headers, header::USER_AGENT);
        let step = Step { inner, peer, agent, host, csrf, nonce, path, form };
        step.run(&method).await.unwrap_or_else(|failure| step.failed(failure))
    }
}

impl Inner {
    fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// As the page's: refused by browsers from other hosts and from plain HTTP.
    fn cookie_name(&self) -> &'static str {
        if self.is_secure { "__Host-larder-setup" } else { "larder-setup" }
    }

    /// The first look at the link. It changes nothing, so whoever previews links takes nobody's.
    fn welcome(&self, nonce: &str, token: &str, from: IpAddr) -> Outcome {
        match self.standing(token, from) {
            Some(Standing::Good) => views::welcome(self.frame(nonce, "Welcome", ""), token),
            Some(other) => self.not_let_in(nonce, &other),
            None => self.too_many(nonce),
        }
    }

    fn enter(&self, nonce: &str, token: &str, from: IpAddr) -> Outcome {
        match self.standing(token, from) {
            None => self.too_many(nonce),
            Some(_) => {
                let entered = self.link.lock().enter(token, from, self.now());
                match entered {
                    Ok(cookie) => Outcome::Enter("/disks", cookie),
                    Err(standing) => self.not_let_in(nonce, &standing),
                }
            }
        }
    }

    /// `setup.guesses_counted`; `None`: nothing of that address is looked at for a while.
    fn standing(&self, token: &str, from: IpAddr) -> Option<Standing> {
        if !self.task.counts(from) {
            return None;
        }
        let standing = self.link.lock().standing(token, self.now());
        if standing != Standing::Wrong {
            self.task.forgives(from);
        }
        Some(standing)
    }

    fn not_let_in(&self, nonce: &str, standing: &Standing) -> Outcome {
        match standing {
            Standing::Used(from) => {
                let text =
                    format!("This link was used already, by a browser at {from}. It is good for one browser, once.");
                let action = "If that was not you, stop larder at once. For another link start it again";
                self.closed(nonce, StatusCode::GONE, "Used link", &text, action)
            }
            Standing::Expired => {
                let text = "This link was good for an hour, which is over.";
                self.closed(nonce, StatusCode::GONE, "Expired link", text, "Start larder again: it prints another")
            }
            Standing::Wrong | Standing::Good => {
                let text = "This is not the link that larder printed.";
                self.closed(
                    nonce,
                    StatusCode::FORBIDDEN,
                    "Wrong link",
                    text,
                    "Copy the whole line; larder prints another when it is started again",
                )
            }
        }
    }

    fn too_many(&self, nonce: &str) -> Outcome {
        let text = "Too many wrong links came from your address.";
        self.closed(nonce, StatusCode::TOO_MANY_REQUESTS, "Too many guesses", text, "Try again in a minute")
    }

    fn stranger(&self, nonce: &str) -> Outcome {
        let text = "This box waits for somebody to set it up.";
        let action = "Open the link that larder printed where it was started; a service writes it into its log";
        self.closed(nonce, StatusCode::FORBIDDEN, "Not set up yet", text, action)
    }

    fn closed(
        &self,
        nonce: &str,
        status: StatusCode,
        title: &'static str,
        text: &str,
        action: &'static str,
    ) -> Outcome {
        views::closed(self.frame(nonce, title, ""), status, text, action)
    }

    fn frame(&self, nonce: &str, title: &str, csrf: &str) -> Frame {
        Frame {
            title: title.to_owned(),
            section: "",
            nonce: nonce.to_owned(),
            csrf: csrf.to_owned(),
            user: String::new(),
            role: None,
            theme: Theme::Auto,
            path: "/".to_owned(),
            note: None,
            proof: None,
            files: None,
        }
    }

    fn respond(&self, outcome: Outcome) -> Response<Body> {
        match outcome {
            Outcome::Page(status, text) => html(status, text),
            Outcome::Go(to) => see_other(to),
            Outcome::Enter(to, token) => {
                let mut response = see_other(to);
                let secure = if self.is_secure { "; Secure" } else { "" };
                let text = format!("{}={token}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie_name());
                if let Ok(value) = HeaderValue::from_str(&text) {
                    response.headers_mut().append(header::SET_COOKIE, value);
                }
                response
            }
            Outcome::Asset(asset) => {
                let mut response = Response::new(full(bytes::Bytes::from_static(asset.bytes)));
                set(&mut response, header::CONTENT_TYPE, asset.kind);
                set(&mut response, header::CACHE_CONTROL, "public, max-age=31536000, immutable");
                response
            }
        }
    }
}

/// To a path of the set-up.
fn see_other(to: &str) -> Response<Body> {
    let mut response = Response::new(full(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::SEE_OTHER;
    set(&mut response, header::LOCATION, to);
    response
}
