//! The file view for browsers: pages made by the server, one script, one style sheet.
//!
//! What a page changes goes through the methods of WebDAV, with their rights, conditions and locks; what
//! is here beside pages are sessions (`sessions`, `entrance`), resumable uploads (`uploads`), archives
//! (`archive`), links (`links`) and the past (`versions`). Pages are in `listing`, `search`, `view`.

mod archive;
mod entrance;
mod form;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod html;
mod link_pages;
pub mod links;
mod listing;
mod search;
pub mod sessions;
mod upload_ops;
pub mod uploads;
mod versions;
mod view;
mod visit;
mod zip;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use larder_base::traffic::Traffic;
use larder_fs::{Attr, FileKind, FsError};

pub use entrance::{check_origin, guest_session, session, to_login, wants_page};
pub use html::OWN;

use super::conditions::text;
use super::context::{Answer, Body, Context, full};
use super::fail::Fail;
use super::get;
use super::path::{Place, join, name};
use super::shared::Shared;
use super::wire::Arrivals;
use form::Form;
use frame::failure;
use html::{private, redirect};
use larder_doors::tree::{LOOKS_MAX, Room, Spot};
use link_pages::LINK;
use sessions::{Session, Who};
use visit::{OfLink, Visit};

const STYLE: &[u8] = include_bytes!("style.css");
const SCRIPT: &[u8] = include_bytes!("script.js");
const ICON: &[u8] = include_bytes!("icon.svg");
const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");

/// Whether a path belongs to the pages, or to a link, and is for everybody to ask for.
pub fn is_public(path: &str) -> bool {
    path.starts_with(LINK) || matches!(path.strip_prefix(OWN), Some("style.css" | "script.js" | "icon.svg" | "login"))
}

/// Somebody without a name who asks for something public.
pub struct Stranger<'s> {
    pub shared: &'s Arc<Shared>,
    pub traffic: Arc<Traffic>,
    pub arrivals: Arc<Arrivals>,
    pub address: IpAddr,
    pub tls: bool,
    /// The body, of a form that was sent.
    pub body: Vec<u8>,
}

/// What everybody may ask for, and the link by which the client has shown that it may be here.
pub async fn public(stranger: Stranger<'_>, parts: Parts) -> (Answer, Option<Arc<str>>) {
    let path = parts.uri.path();
    let answer = match path.strip_prefix(OWN) {
        Some("style.css") => Ok(asset(STYLE, "text/css; charset=utf-8")),
        Some("script.js") => Ok(asset(SCRIPT, "text/javascript; charset=utf-8")),
        Some("icon.svg") => Ok(asset(ICON, "image/svg+xml")),
        Some(_) => {
            let query = Form::parse(parts.uri.query().unwrap_or_default().as_bytes());
            match parts.method.as_str() {
                "POST" => {
                    let form = Form::parse(&stranger.body);
                    entrance::log_in(stranger.shared, stranger.address, &parts.headers, stranger.tls, &form).await
                }
                _ if session(stranger.shared, &parts.headers).is_some() => Ok(redirect("/")),
                _ => Ok(entrance::login_page(query.text("to"), "", None)),
            }
        }
        None => return by_link(stranger, parts).await,
    };
    (answer, None)
}

fn asset(bytes: &'static [u8], kind: &'static str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from_static(bytes)));
    let headers = response.headers_mut();
    private(headers);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

/// A request by a link, and which one, where the visitor may use it.
async fn by_link(stranger: Stranger<'_>, parts: Parts) -> (Answer, Option<Arc<str>>) {
    const OVER: Fail = Fail::new(StatusCode::NOT_FOUND, "this link has ended, or never was: ask for a new one");
    let shared = stranger.shared;
    let rest = parts.uri.path().strip_prefix(LINK).unwrap_or_default();
    let (token, below) = rest.split_once('/').map_or((rest, None), |(token, below)| (token, Some(below)));
    let Some(link) = shared.links.find(token) else { return (Ok(failure(&OVER, None, false)), None) };
    // `links.rights_of_the_maker`.
    let maker = shared.user(&link.maker).filter(|user| link.is_of(&user.name, user.uid));
    let Some(user) = maker else { return (Ok(failure(&OVER, None, false)), None) };
    let prefix = format!("{LINK}{token}");
    if link.password.is_some() && !has_opened(shared, &parts.headers, &link.hash) {
        if parts.method != Method::POST {
            return (Ok(link_pages::door(parts.uri.path(), false)), None);
        }
        return (open_link(&stranger, &parts, &link, &prefix).await, None);
    }
    let is_by: Option<Arc<str>> = Some(link.id().into());
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return (Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "what a link leads to is read, not changed")), is_by);
    }
    if shared.links.note_use(&link) {
        let shared = Arc::clone(shared);
        tokio::spawn(async move { shared.links.store_uses().await });
    }
    let place = Place::of_url(&format!("/{}", below.unwrap_or_default()));
    let answer = match place {
        Err(fail) => Err(fail),
        Ok(place) => {
            let path = if place.path.is_empty() { link.path.clone() } else { join(&link.path, &place.path) };
            let slash = below.is_some_and(|below| below.is_empty() || below.ends_with('/'));
            let query = parts.uri.query().unwrap_or_default();
            let context = Context {
                shared: Arc::clone(shared),
                traffic: stranger.traffic,
                view: shared.view(&user, stranger.address),
                user,
                method: parts.method,
                headers: parts.headers,
                place: Place { path, slash },
                arrivals: Arc::clone(&stranger.arrivals),
            };
            let link = Some(OfLink { prefix, base: link.path.clone() });
            let visit = Visit { context, query: Form::parse(query.as_bytes()), session: None, link };
            page(visit).await
        }
    };
    let answer = answer.or_else(|fail| match fail.status {
        StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED | StatusCode::SERVICE_UNAVAILABLE => Err(fail),
        _ => Ok(failure(&OVER, None, false)),
    });
    (answer, is_by)
}

fn has_opened(shared: &Shared, headers: &HeaderMap, link: &sessions::TokenHash) -> bool {
    let tokens = form::cookies(headers, link_pages::COOKIE);
    let mut sessions = tokens.filter_map(|token| shared.sessions.find(token, Instant::now()));
    sessions.any(|session| session.who == Who::Link(*link))
}

async fn open_link(stranger: &Stranger<'_>, parts: &Parts, link: &links::Link, prefix: &str) -> Answer {
    check_origin(&parts.headers)?;
    let form = Form::parse(&stranger.body);
    let given = form.text("password").unwrap_or_default().to_owned();
    let name = format!("link {}", link.id());
    match super::auth::verify_link(stranger.shared, stranger.address, &name, link.password.clone(), given).await {
        Ok(()) => {
            let token = stranger.shared.sessions.begin(Who::Link(link.hash), Instant::now());
            let mut response = redirect(parts.uri.path());
            let secure = entrance::is_secure(stranger.tls, &parts.headers);
            if let Some(cookie) = link_pages::cookie(&token, prefix, secure) {
                response.headers_mut().append(header::SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(super::auth::Refused::LockedOut) => {
            let (status, text) = entrance::why(&super::auth::Refused::LockedOut);
            Ok(failure(&Fail::new(status, text), None, false))
        }
        Err(_) => Ok(link_pages::door(parts.uri.path(), true)),
    }
}

/// GET and HEAD of something stored, by a user.
pub async fn get(context: Context, session: Option<Session>, query: &str) -> Answer {
    let is_page = text(&context.headers, header::ACCEPT).is_some_and(|accept| accept.contains("text/html"));
    let is_head = context.method == Method::HEAD;
    let user = context.user.name.clone();
    let own = session.clone();
    let visit = Visit { context, query: Form::parse(query.as_bytes()), session, link: None };
    match page(visit).await {
        Err(fail) if is_page && fail.status != StatusCode::NOT_MODIFIED => {
            Ok(failure(&fail, Some((user.as_str(), own.as_ref())), is_head))
        }
        answer => answer,
    }
}

async fn page(visit: Visit) -> Answer {
    for _ in 0..LOOKS_MAX {
        match visit.find().await {
            Ok(Spot::In(room, attr)) if attr.kind == FileKind::File => match file(&visit, room, attr).await {
                // Replaced since it was looked up (`tree.names_are_always_there`).
                Err(fail) if fail.is_stale => {}
                answer => return answer,
            },
            spot => return folder_page(visit, spot?).await,
        }
    }
    Err(FsError::Stale.into())
}

async fn folder_page(visit: Visit, spot: Spot) -> Answer {
    let query = &visit.query;
    match spot {
        Spot::Top if query.has("folders") => folders(&visit, None).await,
        Spot::Top if visit.context.place.slash => listing::shares(&visit).await,
        Spot::In(room, attr) if attr.kind == FileKind::Directory => {
            if query.has("zip") {
                return archive::answer(visit, room, attr, Vec::new()).await;
            }
            if query.has("share") && visit.link.is_none() {
                return Ok(link_pages::share(&visit, true, None));
            }
            if query.has("versions") && visit.link.is_none() {
                return versions::page(&visit, &room, &attr).await;
            }
            if !visit.context.place.slash {
                // Links on the page are relative to it.
                return Ok(redirect_permanently(&visit.href(visit.path(), true)));
            }
            if query.has("folders") && visit.link.is_none() {
                return folders(&visit, Some((room, attr))).await;
            }
            match query.text("q") {
                Some(words) if visit.link.is_none() => search::page(&visit, &room, &attr, words).await,
                _ => listing::folder(&visit, &room, &attr).await,
            }
        }
        Spot::In(..) => Err(Fail::forbidden("it is no file")),
        Spot::Top => Ok(redirect_permanently("/")),
    }
}

async fn file(visit: &Visit, room: Room, attr: Attr) -> Answer {
    if visit.context.place.slash {
        return Err(Fail::new(StatusCode::NOT_FOUND, "a file's URL does not end in a slash"));
    }
    let query = &visit.query;
    let is_page = query.has("view") || (visit.link.is_some() && !query.has("raw") && !query.has("download"));
    match () {
        () if query.has("download") => get::file(&visit.context, room, attr, Some(name(visit.path()))).await,
        () if query.has("share") && visit.link.is_none() => Ok(link_pages::share(visit, false, None)),
        () if query.has("versions") && visit.link.is_none() => versions::page(visit, &room, &attr).await,
        () if is_page => view::page(visit, &room, &attr).await,
        () => get::file(&visit.context, room, attr, None).await,
    }
}

fn redirect_permanently(to: &str) -> Response<Body> {
    let mut response = super::context::status(StatusCode::MOVED_PERMANENTLY);
    if let Ok(url) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, url);
    }
    response
}

async fn folders(visit: &Visit, at: Option<(Room, Attr)>) -> Answer {
    let mut response = Response::new(full(Bytes::from(listing::folders(visit, at).await?)));
    private(response.headers_mut());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A change by a session needs its token (`sessions.token_on_each_change`); `form` may hold it instead of a header.
pub fn check_token(session: Option<&Session>, headers: &HeaderMap, form: Option<&Form>) -> Result<(), Fail> {
    const MISSING: Fail = Fail::forbidden("the page is too old: load it again");
    check_origin(headers)?;
    let Some(session) = session else { return Ok(()) };
    let given = text(headers, CSRF).or(form.and_then(|form| form.text("csrf")));
    if session.allows_change(given) { Ok(()) } else { Err(MISSING) }
}

/// POST: a form of a page, or the beginning of an upload. Needs no other check of the token.
pub async fn post(context: Context, session: Option<Session>, query: &str, tls: bool, body: &[u8]) -> Answer {
    let form = Form::parse(body);
    let query = Form::parse(query.as_bytes());
    let own = session.clone();
    let (is_page, user) = (
        text(&context.headers, header::ACCEPT).is_some_and(|accept| accept.contains("text/html")),
        context.user.name.clone(),
    );
    let done = match check_token(session.as_ref(), &context.headers, Some(&form)) {
        Ok(()) => posted(context, session, query, tls, form).await,
        Err(fail) => Err(fail),
    };
    match done {
        Err(fail) if is_page => Ok(failure(&fail, Some((user.as_str(), own.as_ref())), false)),
        done => done,
    }
}

async fn posted(context: Context, session: Option<Session>, query: Form, tls: bool, form: Form) -> Answer {
    if query.has("upload") {
        return upload_ops::begin(&context).await;
    }
    let secure = entrance::is_secure(tls, &context.headers);
    let visit = Visit { context, query, session, link: None };
    if visit.query.has("share") {
        // A link has its maker's rights, which are more than a token's, and outlives it.
        if visit.context.user.token.is_some() {
            return Err(Fail::forbidden("an app token makes no links: log in with the password"));
        }
        return link_pages::make(&visit, &form, secure).await;
    }
    if visit.query.has("zip") {
        let (room, dir) = archive::folder_of(visit.find().await?)?;
        let names: Vec<Bytes> = form.all("name").map(|name| Bytes::from(form::decoded(name, false))).collect();
        if names.is_empty() {
            return Err(Fail::bad_request("nothing is selected"));
        }
        return archive::answer(visit, room, dir, names).await;
    }
    Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "this method has no meaning here"))
}

/// A request below [`OWN`] by a user.
pub async fn own(context: Context, session: Option<Session>, below: &str, tls: bool, body: &mut Incoming) -> Answer {
    if let Some(id) = below.strip_prefix("upload/") {
        return upload_ops::go_on(context, id, body).await;
    }
    // Links are the user's, wherever they lead; a token is less than its user.
    if context.user.token.is_some() {
        return Err(Fail::forbidden("an app token sees no links and ends none: log in with the password"));
    }
    match (below, context.method.as_str()) {
        ("links", "GET" | "HEAD") => Ok(link_pages::list(&context, session.as_ref())),
        ("links" | "logout", "POST") => {
            let form = Form::parse(&super::service::read_form(body).await?);
            check_token(session.as_ref(), &context.headers, Some(&form))?;
            match (below, &session) {
                ("links", _) => link_pages::revoke(&context, &form).await,
                (_, Some(session)) => {
                    Ok(entrance::log_out(&context.shared, session, entrance::is_secure(tls, &context.headers)))
                }
                _ => Err(Fail::bad_request("there is no session to end")),
            }
        }
        _ => Err(Fail::not_found()),
    }
}
