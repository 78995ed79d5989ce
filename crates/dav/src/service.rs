//! From a request to its answer.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use larder_base::task;
use larder_base::traffic::{self, Traffic};
use larder_people::User;
use tokio_util::sync::CancellationToken;

use super::auth::{self, Refused};
use super::browsers::{Asked, BrowserSession, Browsers, Stranger, Way};
use super::conditions::text;
use super::context::{Answer, Body, Context, status, xml as xml_answer};
use super::fail::Fail;
use super::guest::Guest;
use super::path::Place;
use super::shared::{Op, Shared};
use super::wire::Arrivals;
use super::{get, lock_ops, moves, props, proxy, put};
use larder_doors::door::shown;
use larder_doors::parties::Party;
use larder_doors::tree::LOOKS_MAX;

/// Bodies of XML, and forms of somebody who has logged in: a list of names to be packed is the
/// longest.
const BODY_BYTES_MAX: usize = 64 << 10;
const FORM_BYTES_MAX: usize = 1 << 20;
/// Forms of somebody who has not: a name and a password, or a link's password.
const PUBLIC_FORM_BYTES_MAX: usize = 8 << 10;
/// What is read of a body that nobody wants, so that the client hears the answer, and for how long.
const DRAIN_BYTES_MAX: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(30);
const METHODS: HeaderValue =
    HeaderValue::from_static("OPTIONS, GET, HEAD, PUT, DELETE, MKCOL, COPY, MOVE, PROPFIND, PROPPATCH, LOCK, UNLOCK");
const ASK: HeaderValue = HeaderValue::from_static("Basic realm=\"larder\", charset=\"UTF-8\"");
const CLASSES: HeaderValue = HeaderValue::from_static("1, 2, 3");

/// A connection as its requests see it.
#[derive(Clone)]
pub struct Peer {
    pub shared: Arc<Shared>,
    pub browsers: Arc<dyn Browsers>,
    pub address: IpAddr,
    pub traffic: Arc<Traffic>,
    pub way: Way,
    pub arrivals: Arc<Arrivals>,
}

impl Peer {
    /// The client has shown a right: as a user, or as somebody with a link.
    fn admit(&self, who: Admitted<'_>) -> Result<(), Fail> {
        const TOO_MANY: &str = "you have too many connections: close some and try again";
        let (shared, address) = (&self.shared, self.address);
        let open = shared.stats.connections_open.load(Relaxed);
        let (user, link) = match who {
            Admitted::User(user) => (Some(user), None),
            Admitted::Visitor(link) => (None, Some(link)),
        };
        if self.arrivals.admit((&shared.parties, &shared.memory), open, || Party::of(user, address), link) {
            return Ok(());
        }
        shared.stats.connections_refused.add(1);
        let whose = user.map_or_else(|| "with a link".to_owned(), |user| format!("of '{}'", shown(user)));
        shared.door.refused(address, || {
            format!("WebDAV: a connection {whose} from {address} was refused: there are too many, and most are theirs")
        });
        Err(Fail::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY))
    }
}

/// By which right a connection is admitted.
enum Admitted<'a> {
    User(&'a str),
    /// By a link, which this tells from others.
    Visitor(Arc<str>),
}

pub async fn answer(mut peer: Peer, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let arrivals = Arc::clone(&peer.arrivals);
    arrivals.taken();
    let (op, began, shared) = (Op::of(request.method()), Instant::now(), Arc::clone(&peer.shared));
    let (parts, mut body) = request.into_parts();
    // Who asks first has sent nothing, and is not told to.
    let asks_first = parts.headers.contains_key(header::EXPECT);
    let client = proxy::client(peer.address, &parts.headers, &shared.config.trusted_proxies);
    let done = match client {
        Ok(client) => {
            if client != peer.address {
                peer.address = client;
                arrivals.are_of(client);
            }
            let traffic = Arc::clone(&peer.traffic);
            traffic::of(traffic, respond(peer, parts, &mut body)).await
        }
        Err(fail) => Err(fail),
    };
    let mut response = match done {
        Ok(response) => response,
        Err(fail) => of_fail(&fail),
    };
    if !body.is_end_stream() && !asks_first {
        drain(&mut body, &mut response, &arrivals).await;
    }
    let headers = response.headers_mut();
    headers.insert("dav", CLASSES);
    headers.insert(header::SERVER, HeaderValue::from_static(concat!("larder/", env!("CARGO_PKG_VERSION"))));
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, METHODS);
    }
    if response.status() == StatusCode::SERVICE_UNAVAILABLE && !arrivals.is_known() {
        // It has no place, and gets none by waiting.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    shared.stats.took(op as usize, began);
    Ok(response)
}

/// An answer that comes before all of the body is lost to clients that still send, unless they are
/// heard out.
async fn drain(body: &mut Incoming, response: &mut Response<Body>, arrivals: &Arrivals) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            arrivals.taken();
            if bytes > DRAIN_BYTES_MAX {
                return false;
            }
        }
        true
    };
    if !matches!(tokio::time::timeout(DRAIN_TIME, reading).await, Ok(true)) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

fn of_fail(fail: &Fail) -> Response<Body> {
    let mut response = match &fail.condition {
        Some(condition) => xml_answer(
            fail.status,
            format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\">{condition}</D:error>"),
        ),
        None => get::plain_text(fail.status, format!("{}\n", fail.text)),
    };
    if fail.status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
    }
    response
}

async fn respond(peer: Peer, parts: hyper::http::request::Parts, body: &mut Incoming) -> Answer {
    // RFC 9112 3.2.
    if parts.version == Version::HTTP_11 && parts.headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Fail::bad_request("the Host header is missing or there are several"));
    }
    let (serves, browsers) = (peer.way.serves, Arc::clone(&peer.browsers));
    if serves.shares && browsers.is_public(parts.uri.path()) {
        let form =
            if parts.method == Method::POST { read_short(body, PUBLIC_FORM_BYTES_MAX).await? } else { Vec::new() };
        let stranger = Stranger {
            shared: Arc::clone(&peer.shared),
            traffic: Arc::clone(&peer.traffic),
            arrivals: Arc::clone(&peer.arrivals),
            address: peer.address,
            way: peer.way,
            form,
        };
        let (answer, link) = browsers.public(stranger, parts).await;
        if let Some(link) = link {
            peer.admit(Admitted::Visitor(link))?;
        }
        return answer;
    }
    let guest = peer.shared.guest().filter(|_| serves.guest);
    if let Some(guest) = guest.filter(|guest| is_for(&**guest, &peer, &parts)) {
        return by_guest(&*guest, &peer, parts, body).await;
    }
    if !serves.shares {
        return Err(Fail::new(StatusCode::NOT_FOUND, "no share is served at this address: see docs/webdav.md"));
    }
    let (user, session) = match who(&peer, &parts).await {
        Ok(found) => found,
        Err(response) => return Ok(*response),
    };
    peer.admit(Admitted::User(&user.name))?;
    let method = parts.method;
    if method == Method::OPTIONS {
        let mut response = status(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, METHODS);
        headers.insert("ms-author-via", HeaderValue::from_static("DAV"));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        return Ok(response);
    }
    let place = Place::of_url(parts.uri.path())?;
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let view = peer.shared.view(&user, peer.address);
    peer.traffic.set_user(&user.name);
    let arrivals = Arc::clone(&peer.arrivals);
    let context = Context {
        shared: peer.shared,
        traffic: peer.traffic,
        user,
        view,
        method,
        headers: parts.headers,
        place,
        arrivals,
    };
    // A form carries its token in its body, and is looked at there.
    if !matches!(context.method.as_str(), "GET" | "HEAD" | "PROPFIND" | "POST") {
        browsers.check_change(&context.headers, session.as_ref())?;
    }
    let way = peer.way;
    if let Some(below) = browsers.own(parts.uri.path()).map(str::to_owned) {
        return browsers.answer_own(Asked { context, session, query, way }, below, body).await;
    }
    match context.method.as_str() {
        "GET" | "HEAD" => browsers.get(Asked { context, session, query, way }).await,
        "POST" => {
            let form = read_form(body).await?;
            browsers.post(Asked { context, session, query, way }, form).await
        }
        "PUT" => put::put(&context, body).await,
        "PROPFIND" => {
            let bytes = read_short(body, BODY_BYTES_MAX).await?;
            let context = Arc::new(context);
            let mut answer = props::propfind(Arc::clone(&context), &bytes).await;
            for _ in 1..LOOKS_MAX {
                if !is_stale(&answer) {
                    break;
                }
                answer = props::propfind(Arc::clone(&context), &bytes).await;
            }
            answer
        }
        "PROPPATCH" | "MKCOL" | "DELETE" | "COPY" | "MOVE" | "LOCK" | "UNLOCK" => {
            let bytes = read_short(body, BODY_BYTES_MAX).await?;
            // A change that has begun goes on to its end, also if the client leaves.
            // A copy alone ends with its client (`moves.copies_end_with_their_client`).
            let left = CancellationToken::new();
            let _stays = left.clone().drop_guard();
            let work = traffic::within(Arc::clone(&context.traffic), async move {
                let mut answer = change(&context, &bytes, &left).await;
                for _ in 1..LOOKS_MAX {
                    if !is_stale(&answer) {
                        break;
                    }
                    answer = change(&context, &bytes, &left).await;
                }
                answer
            });
            task::spawn_for(work)
                .await
                .unwrap_or(Err(Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed")))
        }
        "PATCH" | "TRACE" | "CONNECT" => {
            Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "this method has no meaning here"))
        }
        _ => Err(Fail::new(StatusCode::NOT_IMPLEMENTED, "the server does not know this method")),
    }
}

/// Whether the guest answers: its own paths, and a browser that names none. `/?shares` is the file
/// view's.
fn is_for(guest: &dyn Guest, peer: &Peer, parts: &hyper::http::request::Parts) -> bool {
    let is_top = parts.uri.path() == "/" && parts.uri.query().is_none();
    let has_shares = peer.way.serves.shares;
    let is_own = guest.has(parts.uri.path(), &|name| has_shares && peer.shared.has_share(name));
    is_own || (is_top && (!has_shares || wants_page(&parts.method, &parts.headers)))
}

/// Whether the client is a person's browser: programs do not ask for HTML.
fn wants_page(method: &Method, headers: &HeaderMap) -> bool {
    let reads = method == Method::GET || method == Method::HEAD;
    let accepts = text(headers, header::ACCEPT).is_some_and(|accept| accept.contains("text/html"));
    reads && accepts && !headers.contains_key(header::AUTHORIZATION)
}

/// `guest.same_walls`
async fn by_guest(guest: &dyn Guest, peer: &Peer, parts: hyper::http::request::Parts, body: &mut Incoming) -> Answer {
    if !guest.lets_in(peer.address) {
        return Err(Fail::forbidden("this address is in no network that the page answers"));
    }
    let user = guest.knows(&parts);
    let is_known = user.is_some();
    if let Some(user) = &user {
        peer.admit(Admitted::User(user))?;
    }
    let bytes = read_short(body, if is_known { FORM_BYTES_MAX } else { PUBLIC_FORM_BYTES_MAX }).await?;
    Ok(guest.answer(parts, Bytes::from(bytes), peer.address).await)
}

/// Who asks: by credentials in the request, or by a session. A browser with neither is sent to the
/// page where people log in; other clients are asked for credentials.
async fn who(
    peer: &Peer,
    parts: &hyper::http::request::Parts,
) -> Result<(Arc<User>, Option<BrowserSession>), Box<Response<Body>>> {
    let credentials = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if credentials.is_none() {
        if let Some((user, session)) = peer.browsers.session(&parts.headers, peer.way, &|name| peer.shared.user(name)) {
            return Ok((user, Some(session)));
        }
        if wants_page(&parts.method, &parts.headers) {
            return Err(Box::new(peer.browsers.to_log_in(parts, peer.way)));
        }
    }
    match auth::log_in(&peer.shared, peer.address, credentials).await {
        Ok(user) => Ok((user, None)),
        Err(Refused::LockedOut) => {
            let mut response = status(StatusCode::TOO_MANY_REQUESTS);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
            Err(Box::new(response))
        }
        Err(Refused::Asked | Refused::Wrong) => {
            let mut response =
                get::plain_text(StatusCode::UNAUTHORIZED, "a name and a password are needed\n".to_owned());
            // A page's script asks in its own way.
            if !parts.headers.contains_key("x-csrf-token") {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, ASK);
            }
            Err(Box::new(response))
        }
    }
}

/// The file was replaced on the way: the request is carried out again
/// (`tree.names_are_always_there`).
fn is_stale(answer: &Answer) -> bool {
    matches!(answer, Err(fail) if fail.is_stale)
}

async fn change(context: &Context, body: &[u8], left: &CancellationToken) -> Answer {
    match context.method.as_str() {
        "PROPPATCH" => props::proppatch(context, body).await,
        "MKCOL" => moves::mkcol(context, body).await,
        "DELETE" => moves::delete(context, left).await,
        "COPY" => moves::copy(context, left).await,
        "MOVE" => moves::move_(context, left).await,
        "LOCK" => lock_ops::lock(context, body).await,
        _ => lock_ops::unlock(context).await,
    }
}

/// The form of a user.
pub async fn read_form(body: &mut Incoming) -> Result<Vec<u8>, Fail> {
    read_short(body, FORM_BYTES_MAX).await
}

/// A whole body that is no file.
async fn read_short(body: &mut Incoming, bytes_max: usize) -> Result<Vec<u8>, Fail> {
    const TOO_LARGE: Fail = Fail::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(TOO_LARGE);
    }
    let mut bytes = Vec::new();
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        match frame.map_err(|_| Fail::new(StatusCode::REQUEST_TIMEOUT, "no data came for long"))? {
            None => return Ok(bytes),
            Some(Err(_)) => return Err(Fail::bad_request("the body ended early or is malformed")),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if bytes.len() + data.remaining() > bytes_max {
                    return Err(TOO_LARGE);
                }
                bytes.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn browsers_are_told_from_programs() {
        let headers = |all: &[(&'static str, &str)]| -> HeaderMap {
            all.iter().map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap())).collect()
        };
        let wants = |all: &[(&'static str, &str)]| wants_page(&Method::GET, &headers(all));
        assert!(wants(&[("accept", "text/html,application/xhtml+xml;q=0.9")]));
        assert!(!wants(&[("accept", "*/*")]) && !wants(&[]));
        assert!(!wants(&[("accept", "text/html"), ("authorization", "Basic x")]));
        assert!(!wants_page(&Method::PUT, &headers(&[("accept", "text/html")])));
    }
}
