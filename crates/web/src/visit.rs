//! One request: who asks, what for, and the frame of the page that answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use hyper::StatusCode;
use larder_api::Failure;
use larder_api::endpoint::{self, Param};
use larder_base::{Clock, hex};
use tokio::sync::mpsc;

use crate::ask::{self, Ask, Asker};
use crate::asset;
use crate::base::BASE;
use crate::factor::Factors;
use crate::form::{Form, encoded};
use crate::login::{LogIn, Standing};
use crate::note::Note;
use crate::oidc::Issuer;
use crate::passkey::Party;
use crate::role::{Act, Role, may};
use crate::session::{AGE_MAX, Bounds, Session, Sessions, secret};
use crate::streams::Streams;
use crate::ticket::Tickets;

/// How the page is reached.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Over TLS: cookies are sent over TLS alone, and browsers are told to stay there.
    pub is_secure: bool,
    /// The list of shares in the file view, where the same server has one.
    pub files: Option<&'static str>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub addr: IpAddr,
}

/// What all requests share.
pub struct Server {
    pub ask: Arc<dyn Ask>,
    pub log_in: Arc<dyn LogIn>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub sessions: Sessions,
    /// The file of sessions is written by one at a time, so that the last one has the newest.
    pub keeping: tokio::sync::Mutex<()>,
    pub factors: Factors,
    pub streams: Arc<Streams>,
    pub tickets: Tickets,
    pub issuer: Option<Issuer>,
}

impl Server {
    pub fn new(ask: Arc<dyn Ask>, log_in: Arc<dyn LogIn>, clock: Arc<dyn Clock>, options: Options) -> Self {
        Self {
            ask,
            log_in,
            clock,
            options,
            sessions: Sessions::new(Bounds::PAGE),
            keeping: tokio::sync::Mutex::default(),
            factors: Factors::default(),
            streams: Arc::default(),
            tickets: Tickets::default(),
            issuer: None,
        }
    }

    /// Monotonic, and later than each moment of a session of an earlier run.
    pub fn now(&self) -> Duration {
        AGE_MAX + self.clock.elapsed()
    }

    /// `None`: the page was opened by an address (`passkeys.party_is_the_name`).
    pub fn party(&self, host: &str) -> Option<Party> {
        Party::of(host, self.options.is_secure)
    }

    /// The session of a token and what its user is now. A session of a user who is gone, or of an
    /// older password, ends here.
    pub fn find(&self, token: &str, request: bool) -> Option<(Session, Standing)> {
        let session = self.sessions.find(token, self.now(), request)?;
        let standing = self.log_in.standing(&session.user);
        let Some(standing) = standing.filter(|standing| standing.generation == session.generation) else {
            self.sessions.end(&session);
            return None;
        };
        Some((session, standing))
    }
}

/// The light that a person chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// As the browser says.
    #[default]
    Auto,
    Light,
    Dark,
}

impl Theme {
    pub fn of(word: &str) -> Self {
        match word {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::Auto,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// A path of this host and nowhere else: no redirect leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local(String);

impl Local {
    const BYTES_MAX: usize = 2048;

    /// A path that came from outside. Browsers read `//x`, `/\x` and a tab before it as another
    /// host (WHATWG URL 4.4).
    pub fn read(text: &str) -> Option<Self> {
        let is_fine = text.len() <= Self::BYTES_MAX
            && text.starts_with('/')
            && !text.starts_with("//")
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        is_fine.then(|| Self(text.to_owned()))
    }

    /// A page to go to after the log-in, never its form.
    pub fn after_log_in(text: &str) -> Self {
        Self::read(text).filter(|local| !local.path().starts_with("/+/log")).unwrap_or(Self::of("/"))
    }

    /// A path of the page, without [`BASE`].
    pub fn of(path: &'static str) -> Self {
        Self(format!("{BASE}{path}"))
    }

    /// `path?name=value`, of a path without [`BASE`].
    pub fn with(path: &'static str, name: &'static str, value: &str) -> Self {
        Self(format!("{BASE}{path}?{name}={}", encoded(value)))
    }

    /// The log-in, for somebody whose form came too late, and then a page without [`BASE`].
    pub fn unsent(next: &'static str) -> Self {
        Self(format!("{BASE}/login?{UNSENT_FIELD}=1&next={}", encoded(&format!("{BASE}{next}"))))
    }

    pub fn path(&self) -> &str {
        &self.0
    }
}

/// A field of the log-in's address: a form was sent without a session.
pub const UNSENT_FIELD: &str = "unsent";

/// What a route answers.
pub enum Outcome {
    Page(StatusCode, String),
    /// To another page, with GET (RFC 9110 15.4.4).
    Go(Local),
    /// To the page of another server, which the configuration names.
    Away(String, String),
    /// As `Go`, with a new token in the cookie; an empty one takes the cookie away.
    GoAs(Local, String),
    /// A page for a browser without a session, with the token that its form is bound to.
    Form(StatusCode, String, String),
    Choose(Local, Theme),
    Asset(&'static asset::Asset),
    Stream(mpsc::Receiver<bytes::Bytes>),
    /// Nothing to show: for streams that are refused.
    Refused(StatusCode),
}

pub type Answer = Result<Outcome, Failure>;

pub struct Visit<'a> {
    pub server: &'a Arc<Server>,
    pub session: Option<Session>,
    pub role: Option<Role>,
    /// The token that the browser sent, whatever it opens.
    pub token: Option<String>,
    pub peer: Peer,
    pub agent: String,
    /// The name and port by which the page was opened.
    pub host: String,
    pub theme: Theme,
    /// Of a route that ends in a name.
    pub param: String,
    pub path: String,
    pub query: Form,
    pub form: Form,
    pub nonce: String,
    /// For a GET by a person: takes the note that the change before left.
    pub note: Option<Note>,
}

impl Visit<'_> {
    pub fn user(&self) -> &str {
        self.session.as_ref().map_or("", |session| session.user.as_str())
    }

    pub fn may(&self, act: Act) -> bool {
        may(self.role, act)
    }

    pub fn now(&self) -> Duration {
        self.server.now()
    }

    fn asker(&self) -> Option<Asker> {
        let user = self.session.as_ref()?.user.clone();
        Some(Asker { user, from: self.peer.addr })
    }

    /// Calls an endpoint.
    pub async fn call<E: endpoint::Json>(
        &self,
        endpoint: E,
        param: <E::Param as Param>::Given<'_>,
        request: &E::Request,
    ) -> Result<E::Response, Failure> {
        ask::call(&*self.server.ask, self.asker(), endpoint, param, Some(request)).await
    }

    /// Calls an endpoint that wants to know no more than a name.
    pub async fn about<E: endpoint::Json<Request = ()>>(
        &self,
        endpoint: E,
        param: <E::Param as Param>::Given<'_>,
    ) -> Result<E::Response, Failure> {
        ask::call(&*self.server.ask, self.asker(), endpoint, param, None).await
    }

    /// Calls an endpoint that wants to know nothing.
    pub async fn ask<E: endpoint::Json<Param = (), Request = ()>>(&self, endpoint: E) -> Result<E::Response, Failure> {
        ask::call(&*self.server.ask, self.asker(), endpoint, (), None).await
    }

    /// A field that a form must fill.
    pub fn required(&self, field: &str, noun: &str) -> Result<String, Failure> {
        self.form.filled(field).ok_or_else(|| Failure::invalid(format!("{noun} is missing")))
    }

    /// `page.name_typed`
    pub fn typed(&self, name: &str) -> Result<(), Failure> {
        if self.form.text("typed") == name {
            return Ok(());
        }
        let failure = Failure::invalid(format!("nothing was destroyed: the name typed is not '{name}'"));
        Err(failure.action(format!("Type {name} to confirm")))
    }

    /// Back to a page, with the outcome of a change.
    pub fn back(&self, to: Local, outcome: Result<Note, Failure>) -> Answer {
        if let Some(session) = &self.session {
            self.server.sessions.leave(session, outcome.unwrap_or_else(Note::from));
        }
        Ok(Outcome::Go(to))
    }

    /// The session goes on although its user's password may be another now.
    pub fn renew_own(&self) {
        if let (Some(session), Some(standing)) = (&self.session, self.server.log_in.standing(self.user())) {
            self.server.sessions.renew(session, standing.generation);
        }
    }

    pub fn frame(&self, section: &'static str, title: impl Into<String>) -> Frame {
        Frame {
            title: title.into(),
            section,
            nonce: self.nonce.clone(),
            csrf: self.session.as_ref().map(|session| session.csrf.clone()).unwrap_or_default(),
            user: self.user().to_owned(),
            role: self.role,
            theme: self.theme,
            path: self.path.clone(),
            note: self.note.clone(),
            files: self.server.options.files,
            proof: self.proof(),
        }
    }

    /// Forms ask for it where it was not given lately (`browsers.password_again`).
    fn proof(&self) -> Option<Proof> {
        let session = self.session.as_ref()?;
        if self.server.sessions.is_proved(session, self.now()) {
            return None;
        }
        let factors = &self.server.factors;
        let has_password = self.server.log_in.standing(self.user()).is_some_and(|standing| standing.has_password);
        let has_codes = factors.has_codes(self.user());
        Some(Proof { has_codes, takes_log_in: !has_password || (factors.has(self.user()) && !has_codes) })
    }

    /// A page that says why there is no other.
    pub fn failure(&self, status: StatusCode, title: &str, failure: Failure) -> Outcome {
        let page = FailurePage { frame: self.frame("", title), failure: Note::from(failure) };
        let text = page.render().unwrap_or_else(|_| "This page could not be made.".to_owned());
        Outcome::Page(status, text)
    }
}

pub fn page(template: &impl Template) -> Answer {
    Ok(Outcome::Page(StatusCode::OK, rendered(template)?))
}

pub fn rendered(template: &impl Template) -> Result<String, Failure> {
    template.render().map_err(|e| Failure::internal(format!("the page could not be made: {e}")))
}

pub fn new_nonce() -> String {
    hex::encode(&secret::<16>())
}

/// A page in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub section: &'static str,
    pub href: &'static str,
    pub name: &'static str,
}

/// Sections of those who see the box.
const BOX_PLACES: [Place; 8] = [
    Place { section: "home", href: "/+/", name: "Home" },
    Place { section: "connections", href: "/+/connections", name: "Connections" },
    Place { section: "storage", href: "/+/storage", name: "Storage" },
    Place { section: "sharing", href: "/+/sharing", name: "Shares" },
    Place { section: "people", href: "/+/people", name: "People" },
    Place { section: "explain", href: "/+/explain", name: "Explain" },
    Place { section: "alerts", href: "/+/alerts", name: "Alerts" },
    Place { section: "care", href: "/+/care", name: "Care" },
];

/// The navigation of a person of this role, on each page and around the files.
pub fn places(role: Option<Role>, files: Option<&'static str>) -> Vec<Place> {
    let mut all = if may(role, Act::SeeBox) { BOX_PLACES.to_vec() } else { Vec::new() };
    all.extend(files.map(|href| Place { section: FILES_SECTION, href, name: "Files" }));
    all.push(Place { section: "me", href: "/+/me", name: "Account" });
    all
}

pub const FILES_SECTION: &str = "files";

/// What surrounds each page.
pub struct Frame {
    pub title: String,
    /// The part of the navigation that it belongs to.
    pub section: &'static str,
    pub nonce: String,
    pub csrf: String,
    pub user: String,
    pub role: Option<Role>,
    pub theme: Theme,
    pub path: String,
    pub note: Option<Note>,
    /// The file view.
    pub files: Option<&'static str>,
    /// Forms that make or end a way in ask for it.
    pub proof: Option<Proof>,
}

/// The proof of `browsers.password_again`, as forms ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    pub has_codes: bool,
    /// Without a password, or with passkeys alone, a new log-in is all that counts.
    pub takes_log_in: bool,
}

impl Frame {
    pub fn asset(&self, stem: &str) -> &'static str {
        asset::path(stem)
    }

    /// `aria-current` for a link of the navigation.
    pub fn is_in(&self, section: &str) -> bool {
        self.section == section
    }

    pub fn places(&self) -> Vec<Place> {
        places(self.role, self.files)
    }

    pub fn changes_storage(&self) -> bool {
        may(self.role, Act::ChangeStorage)
    }

    pub fn changes_sharing(&self) -> bool {
        may(self.role, Act::ChangeSharing)
    }

    pub fn changes_configuration(&self) -> bool {
        may(self.role, Act::ChangeConfiguration)
    }

    pub fn role_word(&self) -> &'static str {
        self.role.map_or("", Role::word)
    }
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage {
    frame: Frame,
    failure: Note,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_here() {
        for fine in ["/", "/storage", "/volume?name=tank/files%20a#snapshots"] {
            assert_eq!(Local::read(fine).map(|local| local.path().to_owned()).as_deref(), Some(fine));
        }
        for foreign in [
            "",
            "storage",
            "//evil.test",
            "/\\evil.test",
            "/a\\b",
            "https://evil.test",
            "javascript:alert(1)",
            "/\t/evil.test",
            "/a\r\nset-cookie: x=y",
            "/ä",
            " /",
            "/a b",
            "\u{202e}/",
        ] {
            assert_eq!(Local::read(foreign), None, "{foreign:?}");
        }
        assert_eq!(Local::read(&format!("/{}", "a".repeat(Local::BYTES_MAX))), None);
        assert_eq!(Local::with("/volume", "name", "a/b&c=\r\n").path(), "/+/volume?name=a/b%26c%3D%0D%0A");
    }
}
