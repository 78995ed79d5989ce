//! All routes, and the way of a request: who asks, whether that person may, whether the request was
//! meant, and the answer's headers.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use larder_api::endpoint::status_of;
use larder_api::{Failure, FailureKind};
use larder_base::Clock;

use crate::ask::Ask;
use crate::asset::CACHED;
use crate::base::BASE;
use crate::factor::FactorsEnded;
use crate::form::{Form, cookies};
use crate::login::LogIn;
use crate::oidc::Issuer;
use crate::pages::password::proved_again;
use crate::pages::{
    account, alerts, care, change, charts, config, connections, explain, factor, found, home, issuer, keys, log,
    log_in, measure, passkey, password, people, power, sharing, storage, volume,
};
use crate::role::{Act, Role, may};
use crate::session::{AGE_MAX, is_same};
use crate::visit::{Answer, Local, Options, Outcome, Peer, Server, Theme, Visit, new_nonce};

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// More than any form of the page sends.
const BODY_BYTES_MAX: usize = 64 << 10;
/// More than any address of the page has.
const QUERY_BYTES_MAX: usize = 8 << 10;
/// What somebody may open who has no second factor and is to have one.
const OWED_PATHS: [&str; 10] = [
    "/prove",
    "/me",
    "/me/factor",
    "/me/factor/confirm",
    "/me/passkey",
    "/me/passkey/add",
    "/logout",
    "/theme",
    "/login",
    "/assets/{name}",
];
/// They make or end a way in (`browsers.password_again`), each with the page that its form is on.
const PROVED_PATHS: [(&str, &str); 26] = [
    ("/prove", "/me"),
    ("/people/add-user", "/people"),
    ("/people/set-role", "/people"),
    ("/people/set-password", "/people"),
    ("/people/remove-user", "/people"),
    ("/people/create-token", "/people"),
    ("/people/revoke-token", "/people"),
    ("/people/revoke-link", "/people"),
    ("/people/demand-factor", "/people"),
    ("/people/end-factor", "/people"),
    ("/people/end-issued", "/people"),
    ("/volume/add-key", "/storage"),
    ("/volume/add-recovery", "/storage"),
    ("/volume/remove-key", "/storage"),
    ("/care/accept", "/care"),
    ("/care/config/apply", "/care/config"),
    ("/me/password", "/me"),
    ("/me/factor", "/me"),
    ("/me/factor/end", "/me"),
    ("/me/passkey", "/me"),
    ("/me/passkey/remove", "/me"),
    ("/me/add-key", "/me"),
    ("/me/remove-key", "/me"),
    ("/me/create-token", "/me"),
    ("/me/revoke-token", "/me"),
    ("/me/revoke-link", "/me"),
];
/// Their forms have secrets of volumes.
const SECRET_PATHS: [&str; 6] = [
    "/volume/unlock",
    "/volume/add-key",
    "/volume/add-recovery",
    "/volume/remove-key",
    "/volume/encrypt",
    "/storage/create",
];
const THEME_COOKIE: &str = "larder-theme";

type Run = for<'a> fn(&'a Visit<'a>) -> BoxFuture<'a, Answer>;

/// `role.decided_once`
pub struct Route {
    pub method: Method,
    /// Behind [`BASE`]: whole, or with `{name}` for its last part.
    pub path: &'static str,
    pub act: Act,
    run: Run,
}

impl Route {
    /// What `{name}` stands for; empty in a route without.
    fn matches<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self.path.strip_suffix("{name}") {
            Some(before) => path.strip_prefix(before).filter(|rest| !rest.is_empty() && !rest.contains('/')),
            None => (path == self.path).then_some(""),
        }
    }
}

macro_rules! routes {
    ($($method:ident $path:literal $act:ident $run:path;)*) => {
        pub static ROUTES: &[Route] = &[
            $(Route { method: Method::$method, path: $path, act: Act::$act, run: |visit| Box::pin($run(visit)) }),*
        ];
    };
}

routes! {
    GET "/assets/{name}" Enter log_in::asset;
    GET "/login" Enter log_in::form;
    POST "/login" Enter log_in::enter;
    POST "/login/code" Enter factor::enter;
    POST "/login/passkey" Enter passkey::enter;
    GET "/login/issuer" Enter issuer::begin;
    POST "/login/issuer" Enter issuer::first;
    GET "/login/back" Enter issuer::back;
    GET "/login/finish" Enter issuer::finish;
    POST "/logout" Own log_in::leave;
    POST "/theme" Own account::choose_theme;
    POST "/prove" Own password::prove;

    GET "/" SeeBox home::page;
    GET "/live" SeeBox home::live;

    GET "/connections" SeeBox connections::page;
    POST "/connections/end-open" ChangeSharing connections::end_open;
    GET "/connections/live" SeeBox connections::live;

    GET "/storage" SeeBox storage::page;
    GET "/storage/live" SeeBox storage::live;
    GET "/storage/found" SeeBox found::page;
    POST "/storage/import" ChangeStorage found::import;
    POST "/storage/look" ChangeStorage storage::look;
    POST "/storage/scrub" ChangeStorage storage::scrub;
    POST "/storage/clear" ChangeStorage storage::clear;
    POST "/storage/create" ChangeStorage storage::create_volume;
    GET "/storage/change" SeeBox change::page;
    POST "/storage/change" ChangeStorage change::apply;
    GET "/volume" SeeBox volume::page;
    GET "/snapshot" SeeBox volume::snapshot;
    POST "/volume/set" ChangeStorage volume::set;
    POST "/volume/destroy" ChangeStorage volume::destroy;
    POST "/volume/take" ChangeStorage volume::take;
    POST "/volume/destroy-snapshot" ChangeStorage volume::destroy_snapshot;
    POST "/volume/hold" ChangeStorage volume::hold;
    POST "/volume/release" ChangeStorage volume::release;
    POST "/volume/rename-snapshot" ChangeStorage volume::rename;
    POST "/volume/rollback" ChangeStorage volume::roll_back;
    POST "/volume/clone" ChangeStorage volume::clone;
    POST "/volume/quota" ChangeStorage volume::set_owner_quota;
    POST "/volume/unlock" ChangeStorage keys::unlock;
    POST "/volume/lock" ChangeStorage keys::lock;
    POST "/volume/add-key" ChangeStorage keys::add;
    POST "/volume/add-recovery" ChangeStorage keys::add_recovery;
    POST "/volume/remove-key" ChangeStorage keys::remove;
    POST "/volume/encrypt" ChangeStorage keys::encrypt;

    GET "/sharing" SeeBox sharing::page;
    POST "/sharing/add" ChangeSharing sharing::add;
    POST "/sharing/set" ChangeSharing sharing::set;
    POST "/sharing/remove" ChangeSharing sharing::remove;
    GET "/people" SeeBox people::page;
    POST "/people/add-user" ChangeSharing people::add_user;
    POST "/people/set-role" ChangeSharing people::set_role;
    POST "/people/set-password" ChangeSharing people::set_password;
    POST "/people/remove-user" ChangeSharing people::remove_user;
    POST "/people/add-group" ChangeSharing people::add_group;
    POST "/people/change-group" ChangeSharing people::change_group;
    POST "/people/remove-group" ChangeSharing people::remove_group;
    POST "/people/create-token" ChangeSharing people::create_token;
    POST "/people/revoke-token" ChangeSharing people::revoke_token;
    POST "/people/revoke-link" ChangeSharing people::revoke_link;
    POST "/people/demand-factor" ChangeSharing factor::demand;
    POST "/people/end-factor" ChangeSharing factor::end_of;
    POST "/people/end-issued" ChangeSharing issuer::end_of;
    GET "/explain" SeeBox explain::page;

    GET "/alerts" SeeBox alerts::page;
    POST "/alerts/acknowledge" ChangeConfiguration alerts::acknowledge;
    POST "/alerts/silence" ChangeConfiguration alerts::silence;
    POST "/alerts/release" ChangeConfiguration alerts::release;
    POST "/alerts/test" ChangeConfiguration alerts::test;
    GET "/care" SeeBox care::page;
    POST "/care/reload" ChangeConfiguration care::reload;
    POST "/care/accept" ChangeStorage care::accept;
    POST "/care/replicate" ChangeStorage care::replicate;
    POST "/care/end-replication" ChangeStorage care::end_replication;
    POST "/care/snapshots" ChangeStorage care::schedule_snapshots;
    POST "/care/scrubs" ChangeStorage care::schedule_scrubs;
    GET "/care/charts" SeeBox charts::page;
    GET "/care/log" SeeBox log::page;
    GET "/care/power" SeeBox power::page;
    GET "/care/doctor" SeeBox measure::doctor;
    GET "/care/bench" SeeBox measure::bench;
    GET "/care/bench/live" SeeBox measure::bench_live;
    POST "/care/bench/start" ChangeStorage measure::bench_start;
    POST "/care/bench/stop" ChangeStorage measure::bench_stop;
    POST "/care/bench/remove" ChangeStorage measure::bench_remove;
    GET "/care/config" SeeBox config::page;
    POST "/care/config/plan" ChangeConfiguration config::plan;
    POST "/care/config/apply" ChangeConfiguration config::apply;

    GET "/me" Own account::page;
    POST "/me/password" Own account::set_password;
    POST "/me/factor" Own factor::begin;
    POST "/me/factor/confirm" Own factor::confirm;
    POST "/me/factor/end" Own factor::end;
    POST "/me/passkey" Own passkey::begin;
    POST "/me/passkey/add" Own passkey::add;
    POST "/me/passkey/rename" Own passkey::rename;
    POST "/me/passkey/remove" Own passkey::remove;
    POST "/me/add-key" Own account::add_key;
    POST "/me/remove-key" Own account::remove_key;
    POST "/me/create-token" Own account::create_token;
    POST "/me/revoke-token" Own account::revoke_token;
    POST "/me/revoke-link" Own account::revoke_link;
    POST "/me/end-session" Own account::end_session;
    POST "/me/end-others" Own account::end_others;
}

/// Whoever sent a request, by its cookie.
#[derive(Clone, Debug)]
pub struct Known {
    pub user: String,
    pub role: Role,
    /// Names the session, and opens nothing.
    pub id: String,
    /// The second token (`browsers.token_on_each_change`).
    pub csrf: String,
    pub theme: Theme,
}

/// The page, for any server of HTTP/1.1.
#[derive(Clone)]
pub struct Web(Arc<Server>);

impl Web {
    pub fn new(ask: Arc<dyn Ask>, log_in: Arc<dyn LogIn>, clock: Arc<dyn Clock>, options: Options) -> Self {
        Self(Arc::new(Server::new(ask, log_in, clock, options)))
    }

    /// People may log in by an issuer of OpenID Connect, too.
    pub fn with_issuer(
        ask: Arc<dyn Ask>,
        log_in: Arc<dyn LogIn>,
        options: (Arc<dyn Clock>, Options),
        issuer: Option<Issuer>,
    ) -> Self {
        let mut server = Server::new(ask, log_in, options.0, options.1);
        server.issuer = issuer;
        Self(Arc::new(server))
    }

    /// The person behind the session of a request. Other parts of the server take the page's log-in
    /// by it. A `request` keeps it alive.
    pub fn known(&self, headers: &HeaderMap, request: bool) -> Option<Known> {
        let token = cookie(headers, self.cookie_name())?;
        let (session, standing) = self.0.find(&token, request)?;
        if self.0.factors.owes(&session.user) {
            return None;
        }
        let theme = cookie(headers, THEME_COOKIE).map(|word| Theme::of(&word)).unwrap_or_default();
        let id = session.id();
        Some(Known { user: session.user, role: standing.role, id, csrf: session.csrf, theme })
    }

    /// Sessions for a file: hashes of tokens, which open nothing (`browsers.survive_a_restart`).
    pub fn sessions(&self) -> Vec<u8> {
        self.0.sessions.written(self.0.now(), self.0.clock.box_now().secs)
    }

    /// Takes back the sessions of an earlier run. Damaged bytes are no sessions.
    pub fn take_sessions(&self, bytes: &[u8]) {
        self.0.sessions.read(bytes, self.0.now(), self.0.clock.box_now().secs);
    }

    /// Makes sessions durable, as they are now.
    pub async fn keep_sessions(&self) -> Result<(), Failure> {
        let _one = self.0.keeping.lock().await;
        self.0.log_in.keep_sessions(self.sessions()).await
    }

    /// Returns when sessions have begun or ended since it was called last.
    pub async fn sessions_changed(&self) {
        self.0.sessions.changed.notified().await;
    }

    /// Takes in the second factors of an earlier run; `None` where no file is. Damage lets nobody
    /// in.
    pub fn take_factors(&self, bytes: Option<&[u8]>) {
        self.0.factors.read(bytes);
    }

    /// Whether a user logs in with a second factor. Where nobody knows, everybody does.
    pub fn has_factor(&self, user: &str) -> bool {
        self.0.factors.has(user) || self.0.factors.is_damaged()
    }

    /// Ends a user's second factors, as after a password that somebody else set.
    pub async fn end_factors(&self, user: &str) -> Result<FactorsEnded, Failure> {
        let keep = async |bytes| self.0.log_in.keep_factors(bytes).await;
        self.0.factors.end(user, keep).await
    }

    /// Ends all streams: the server stops.
    pub fn end_streams(&self) {
        self.0.streams.end();
    }

    pub async fn answer<B>(&self, request: Request<B>, peer: Peer) -> Response<Body>
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let is_head = request.method() == Method::HEAD;
        let etag = request.headers().get(header::IF_NONE_MATCH).cloned();
        let (nonce, outcome) = self.outcome(request, peer).await;
        let mut response = self.respond(&nonce, outcome, etag.as_ref());
        if is_head {
            *response.body_mut() = full(Bytes::new());
        }
        response
    }

    async fn outcome<B>(&self, request: Request<B>, peer: Peer) -> (String, Outcome)
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let (parts, body) = request.into_parts();
        let token = cookie(&parts.headers, self.cookie_name());
        let found = token.as_deref().and_then(|token| self.0.find(token, !parts.uri.path().ends_with("/live")));
        let (session, role) = found.map(|(session, standing)| (session, standing.role)).unzip();
        let path = parts.uri.path_and_query().map_or("/+/", |path| path.as_str()).to_owned();
        let query = parts.uri.query().unwrap_or_default();
        let mut visit = Visit {
            server: &self.0,
            session,
            role,
            token,
            peer,
            agent: text_of(&parts.headers, header::USER_AGENT).to_owned(),
            host: text_of(&parts.headers, header::HOST).to_owned(),
            theme: cookie(&parts.headers, THEME_COOKIE).map(|word| Theme::of(&word)).unwrap_or_default(),
            param: String::new(),
            path,
            query: Form::default(),
            form: Form::default(),
            nonce: new_nonce(),
            note: None,
        };
        let ended_before = self.0.sessions.ended();
        let mut outcome = self.run(&mut visit, parts.method, parts.uri.path(), query, &parts.headers, body).await;
        // `browsers.end_before_the_answer`
        if self.0.sessions.ended() != ended_before
            && let Err(failure) = self.keep_sessions().await
        {
            let message =
                format!("a session has ended, and would go on after a restart of larder: {}", failure.message);
            outcome = visit.failure(status_of(failure.kind), title_of(failure.kind), Failure { message, ..failure });
        }
        (visit.nonce, outcome)
    }

    async fn run<B>(
        &self,
        visit: &mut Visit<'_>,
        method: Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: B,
    ) -> Outcome
    where
        B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let method = if method == Method::HEAD { Method::GET } else { method };
        let below = path.strip_prefix(BASE).unwrap_or_default();
        let (route, param) = match route_of(&method, below) {
            Ok(found) => found,
            Err((status, failure)) => return visit.failure(status, "Not found", failure),
        };
        visit.param = param.to_owned();
        if !may(visit.role, route.act) {
            return refused(visit, route);
        }
        if visit.session.is_some() && visit.server.factors.owes(visit.user()) && !OWED_PATHS.contains(&route.path) {
            return match route.path.ends_with("/live") {
                true => Outcome::Refused(StatusCode::FORBIDDEN),
                false => Outcome::Go(Local::of("/me")),
            };
        }
        let Some(query) =
            Some(query).filter(|query| query.len() <= QUERY_BYTES_MAX).and_then(|q| Form::read(q.as_bytes()))
        else {
            let failure = Failure::invalid("the address is damaged");
            return visit.failure(StatusCode::BAD_REQUEST, "Bad address", failure);
        };
        visit.query = query;
        if method == Method::POST {
            if SECRET_PATHS.contains(&route.path) {
                // `page.secrets_are_wiped`
                larder_base::wipe::begin();
            }
            visit.form = match read(headers, body).await {
                Ok(form) => form,
                Err((status, failure)) => return visit.failure(status, "Bad request", failure),
            };
            if let Err(failure) = meant(visit, headers) {
                return visit.failure(StatusCode::FORBIDDEN, "Expired form", failure);
            }
            if let Some((_, page)) = PROVED_PATHS.iter().find(|(path, _)| *path == route.path)
                && let Err(failure) = proved_again(visit).await
            {
                let page = Local::read(visit.form.text("back")).unwrap_or(Local::of(page));
                let refused = visit.back(page, Err(failure));
                return refused.unwrap_or_else(|failure| visit.failure(StatusCode::FORBIDDEN, "Refused", failure));
            }
        } else if !route.path.ends_with("/live") && route.path != "/assets/{name}" {
            visit.note = visit.session.as_ref().and_then(|session| self.0.sessions.take_note(session));
        }
        let answer = (route.run)(visit).await;
        answer.unwrap_or_else(|failure| visit.failure(status_of(failure.kind), title_of(failure.kind), failure))
    }

    /// The prefix has browsers refuse the cookie from other hosts and from plain HTTP (RFC 6265bis
    /// 4.1.3.2).
    fn cookie_name(&self) -> &'static str {
        if self.0.options.is_secure { "__Host-larder-page" } else { "larder-page" }
    }

    fn set_cookie(&self, name: &str, value: &str, secs: u64) -> Option<HeaderValue> {
        let secure = if self.0.options.is_secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={secs}{secure}");
        HeaderValue::from_str(&text).ok()
    }

    fn respond(&self, nonce: &str, outcome: Outcome, if_none_match: Option<&HeaderValue>) -> Response<Body> {
        let mut response = match outcome {
            Outcome::Page(status, text) => html(status, text),
            Outcome::Form(status, text, token) => {
                let mut response = html(status, text);
                self.add_cookie(&mut response, self.cookie_name(), &token, AGE_MAX.as_secs());
                response
            }
            Outcome::Go(to) => redirect(&to),
            Outcome::GoAs(to, token) => {
                let mut response = redirect(&to);
                let secs = if token.is_empty() { 0 } else { AGE_MAX.as_secs() };
                self.add_cookie(&mut response, self.cookie_name(), &token, secs);
                response
            }
            Outcome::Away(to, token) => {
                let mut response = Response::new(full(Bytes::new()));
                *response.status_mut() = StatusCode::SEE_OTHER;
                set(&mut response, header::LOCATION, &to);
                self.add_cookie(&mut response, self.cookie_name(), &token, AGE_MAX.as_secs());
                response
            }
            Outcome::Choose(to, theme) => {
                // What answered a form has no address to come back to.
                let path = to.path().split_once('?').map_or(to.path(), |(path, _)| path);
                let is_page = path.strip_prefix(BASE).is_none_or(|path| route_of(&Method::GET, path).is_ok());
                let mut response = redirect(&if is_page { to } else { Local::of("/me") });
                self.add_cookie(&mut response, THEME_COOKIE, theme.word(), 400 * 86_400);
                response
            }
            Outcome::Asset(asset) => {
                let is_known = if_none_match.is_some_and(|given| given.as_bytes() == asset.etag.as_bytes());
                let bytes = if is_known { Bytes::new() } else { Bytes::from_static(asset.bytes) };
                let mut response = Response::new(full(bytes));
                if is_known {
                    *response.status_mut() = StatusCode::NOT_MODIFIED;
                }
                set(&mut response, header::CONTENT_TYPE, asset.kind);
                set(&mut response, header::ETAG, &asset.etag);
                set(&mut response, header::CACHE_CONTROL, CACHED);
                response
            }
            Outcome::Stream(receiver) => {
                let events = stream::unfold(receiver, |mut receiver| async {
                    receiver.recv().await.map(|event| (event, receiver))
                });
                let frames = events.map(|event| Ok::<_, Infallible>(Frame::data(event)));
                let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
                set(&mut response, header::CONTENT_TYPE, "text/event-stream");
                response
            }
            Outcome::Refused(status) => {
                let mut response = Response::new(full(Bytes::new()));
                *response.status_mut() = status;
                response
            }
        };
        protect(&mut response, nonce);
        response
    }

    fn add_cookie(&self, response: &mut Response<Body>, name: &str, value: &str, secs: u64) {
        if let Some(cookie) = self.set_cookie(name, value, secs) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
}

/// The form for logging in, which leads to `path` of the same host afterwards.
pub fn log_in_path(path: &str) -> String {
    Local::with("/login", "next", path).path().to_owned()
}

fn route_of<'a>(method: &Method, path: &'a str) -> Result<(&'static Route, &'a str), (StatusCode, Failure)> {
    let mut is_path = false;
    for route in ROUTES {
        let Some(param) = route.matches(path) else { continue };
        if route.method == *method {
            return Ok((route, param));
        }
        is_path = true;
    }
    Err(match is_path {
        true => (StatusCode::METHOD_NOT_ALLOWED, Failure::invalid(format!("this address does not answer {method}"))),
        false => (StatusCode::NOT_FOUND, Failure::not_found("there is no such page")),
    })
}

/// Forms whose loss nobody minds.
const QUIET_PATHS: [&str; 2] = ["/logout", "/theme"];

/// A page that is whole without a query and near the form of a route.
fn page_of(route: &Route) -> &'static str {
    let path: &'static str = route.path;
    match path.split('/').nth(1).unwrap_or_default() {
        "volume" | "storage" => "/storage",
        "sharing" => "/sharing",
        "people" => "/people",
        "alerts" => "/alerts",
        "care" => "/care",
        "connections" => "/connections",
        "me" => "/me",
        _ => "/",
    }
}

/// Somebody may not do that: a stranger goes to the log-in and comes back, a user without sight of
/// the box goes to the own page.
fn refused(visit: &Visit<'_>, route: &Route) -> Outcome {
    let is_page = route.method == Method::GET && !route.path.ends_with("/live");
    match visit.role {
        None if route.path.ends_with("/live") => Outcome::Refused(StatusCode::UNAUTHORIZED),
        None if route.method == Method::POST && !QUIET_PATHS.contains(&route.path) => {
            Outcome::Go(Local::unsent(page_of(route)))
        }
        None if is_page && route.path != "/" => Outcome::Go(Local::with("/login", "next", &visit.path)),
        None => Outcome::Go(Local::of("/login")),
        Some(Role::User) if route.path == "/" => Outcome::Go(Local::of("/me")),
        Some(role) => {
            let failure = Failure::denied(format!("a {} may not do this", role.word()));
            visit.failure(StatusCode::FORBIDDEN, "Not allowed", failure.action("Ask the owner of this box"))
        }
    }
}

pub(crate) async fn read<B>(headers: &HeaderMap, body: B) -> Result<Form, (StatusCode, Failure)>
where
    B: hyper::body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    let kind = text_of(headers, header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, Failure::invalid("this is not a form of the page")));
    }
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let body =
        body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, Failure::invalid("the form is too long or was cut off")))?;
    Form::read(&body.to_bytes()).ok_or_else(|| (StatusCode::BAD_REQUEST, Failure::invalid("the form is damaged")))
}

/// `page.change_by_post`
fn meant(visit: &Visit<'_>, headers: &HeaderMap) -> Result<(), Failure> {
    let site = text_of(headers, HeaderName::from_static("sec-fetch-site"));
    let right = match (&visit.session, &visit.token) {
        (Some(session), _) => Some(session.csrf.clone()),
        (None, Some(token)) => Some(visit.server.sessions.csrf_before_log_in(token)),
        (None, None) => None,
    };
    let given = visit.form.get("csrf").unwrap_or_default();
    if matches!(site, "" | "same-origin" | "none") && right.is_some_and(|right| is_same(given, &right)) {
        return Ok(());
    }
    let failure = Failure::denied("nothing was changed: this form is from another session or another site");
    Err(failure.action("Open the page again and send the form from there; the browser must accept cookies"))
}

fn title_of(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::NotFound => "Not found",
        FailureKind::Denied => "Not allowed",
        FailureKind::Unavailable => "larder does not answer",
        _ => "That did not work",
    }
}

pub(crate) fn text_of(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    cookies(headers, name).next().map(str::to_owned)
}

pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

pub(crate) fn html(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(text)));
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
    response
}

fn redirect(to: &Local) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SEE_OTHER;
    set(&mut response, header::LOCATION, to.path());
    response
}

pub(crate) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// What every answer says to a browser.
pub(crate) fn protect(response: &mut Response<Body>, nonce: &str) {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    set(response, header::CONTENT_SECURITY_POLICY, &policy);
    set(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(response, header::X_FRAME_OPTIONS, "DENY");
    set(response, header::REFERRER_POLICY, "no-referrer");
    set(response, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(response, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(response, HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        set(response, header::CACHE_CONTROL, "no-store");
    }
}
