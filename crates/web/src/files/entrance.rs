//! Sessions of the file view, and the log-in where the page is not at the same address.
//!
//! - `entrance.guessing_is_slow`: a password that a page sends is verified, delayed and locked out
//!   as that of any other client of this door (`login.guessing_is_slow`). Passwords of links are
//!   too.
//! - `entrance.own_pages_alone`: what changes something, or logs in, comes from a page of this
//!   server: a browser says where a request comes from.
//! - `entrance.factor_elsewhere`: a user with a second factor logs in where it is asked for, at the
//!   page. This form asks for none, so it lets that user in by no password.

use std::sync::Arc;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode, Uri};
use larder_dav::browsers::{Answer, Body, BrowserSession, Fail, Place, Refused, Stranger, Way, push_escaped, text};
use larder_people::User;

use super::shelf::{redirect, respond};
use super::state::Files;
use super::viewer::Viewer;
use crate::form::{Form, cookies};
use crate::note::Note;
use crate::pages::log_in::LogInPage;
use crate::router::log_in_path;
use crate::session::{AGE_MAX, generation, is_same};

/// Where what belongs to the file view is. No share has such a name.
pub const OWN: &str = "/.larder/";
const COOKIE: &str = "larder_session";
/// Browsers take this name only from TLS, for the whole host and no other (RFC 6265bis 4.1.3.2).
const COOKIE_TLS: &str = "__Host-larder_session";
const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");

/// Whether the browser sees TLS, here or at a proxy in front.
pub fn is_secure(tls: bool, headers: &HeaderMap) -> bool {
    tls || text(headers, HeaderName::from_static("x-forwarded-proto"))
        .is_some_and(|proto| proto.eq_ignore_ascii_case("https"))
}

/// The session of a request, with its user as the user is now: of the log-in here, or of the page's
/// at the same address.
pub fn session(
    files: &Files,
    headers: &HeaderMap,
    way: Way,
    find: &dyn Fn(&str) -> Option<Arc<User>>,
) -> Option<(Arc<User>, BrowserSession)> {
    own_session(files, headers, find).or_else(|| {
        let page = files.page().filter(|page| way.serves.guest && (page.is_asked_for)(headers))?;
        let known = page.web.known(headers, true)?;
        let user = find(&known.user)?;
        Some((user, BrowserSession { id: known.id, csrf: known.csrf, is_of_guest: true }))
    })
}

/// The session of the log-in here.
pub fn own_session(
    files: &Files,
    headers: &HeaderMap,
    find: &dyn Fn(&str) -> Option<Arc<User>>,
) -> Option<(Arc<User>, BrowserSession)> {
    let tokens = cookies(headers, COOKIE_TLS).chain(cookies(headers, COOKIE));
    tokens.filter_map(|token| files.own.find(token, files.now(), true)).find_map(|session| {
        let user = find(&session.user).filter(|user| generation(user.password.as_ref()) == session.generation)?;
        let id = session.id();
        Some((user, BrowserSession { id, csrf: session.csrf, is_of_guest: false }))
    })
}

/// A change by a session needs its token (`browsers.token_on_each_change`); `form` may hold it
/// instead of a header.
pub fn check_token(session: Option<&BrowserSession>, headers: &HeaderMap, form: Option<&Form>) -> Result<(), Fail> {
    const MISSING: Fail = Fail::forbidden("the page is too old: load it again");
    check_origin(headers)?;
    let Some(session) = session else { return Ok(()) };
    let given = text(headers, CSRF).or(form.and_then(|form| form.get("csrf")));
    if given.is_some_and(|given| is_same(given, &session.csrf)) { Ok(()) } else { Err(MISSING) }
}

/// `entrance.own_pages_alone`.
pub fn check_origin(headers: &HeaderMap) -> Result<(), Fail> {
    const FOREIGN: Fail = Fail::forbidden("the request comes from a page of another server");
    if let Some(site) = text(headers, HeaderName::from_static("sec-fetch-site")) {
        return if matches!(site, "same-origin" | "none") { Ok(()) } else { Err(FOREIGN) };
    }
    match (text(headers, header::ORIGIN), text(headers, header::HOST)) {
        (None, _) => Ok(()),
        (Some(origin), Some(host)) => match origin.parse::<Uri>().ok().as_ref().and_then(Uri::authority) {
            Some(authority) if authority.as_str().eq_ignore_ascii_case(host) => Ok(()),
            _ => Err(FOREIGN),
        },
        _ => Err(FOREIGN),
    }
}

/// To the page that asks for name and password, and back to here afterwards.
pub fn to_login(files: &Files, head: &Parts, way: Way) -> Response<Body> {
    let here = head.uri.path_and_query().map_or("/", |here| here.as_str());
    if way.serves.guest && files.page().is_some() {
        return redirect(&log_in_path(here));
    }
    let mut to = String::new();
    push_escaped(&mut to, here.as_bytes());
    redirect(&if here == "/" { format!("{OWN}login") } else { format!("{OWN}login?to={to}") })
}

/// A path of this server, whatever a URL asks for.
fn safe_target(to: Option<&str>) -> String {
    let path = to.and_then(|to| to.parse::<Uri>().ok()).filter(|uri| uri.authority().is_none());
    let is_ours = |uri: &Uri| {
        let path = uri.path();
        Place::of_url(path).is_ok() && !path.starts_with("//") && !path.contains('\\') && !path.starts_with(OWN)
    };
    let found = path.filter(is_ours).and_then(|uri| uri.path_and_query().map(|path| path.as_str().to_owned()));
    found.unwrap_or_else(|| "/".to_owned())
}

/// The form of the page, which is sent to here.
pub fn login_page(to: Option<&str>, name: &str, refused: Option<(StatusCode, &str)>) -> Answer {
    let (status, refusal) = refused.map_or((StatusCode::OK, None), |(status, text)| (status, Some(Note::fault(text))));
    let page = LogInPage {
        frame: Viewer::default().frame("Log in"),
        action: "/.larder/login",
        next: ("to", safe_target(to)),
        name: name.to_owned(),
        refusal,
        passkey: None,
        issuer: None,
    };
    respond(status, &page, &page.frame.nonce, false)
}

const HAS_FACTOR: &str = "This name has a second factor. Log in at the address of larder's page, which asks for it; \
                          the files are there as well.";

pub async fn log_in(files: &Files, stranger: &Stranger, headers: &HeaderMap) -> Answer {
    check_origin(headers)?;
    let form = Form::read_leniently(&stranger.form);
    let (name, to) = (form.get("name").unwrap_or_default(), form.get("to"));
    let given = form.get("password").unwrap_or_default();
    match stranger.verify(name, given.to_owned()).await {
        // `entrance.factor_elsewhere`
        Ok(user) if files.page().is_some_and(|page| page.web.has_factor(&user.name)) => {
            login_page(to, name, Some((StatusCode::FORBIDDEN, HAS_FACTOR)))
        }
        Ok(user) => {
            let agent = text(headers, header::USER_AGENT).unwrap_or_default();
            let generation = generation(user.password.as_ref());
            let token = files.own.begin(&user.name, generation, Some(stranger.address), agent, files.now());
            let mut response = redirect(&safe_target(to));
            let secure = is_secure(stranger.way.tls, headers);
            set_cookie(response.headers_mut(), &token, AGE_MAX.as_secs(), secure);
            Ok(response)
        }
        Err(refused) => login_page(to, name, Some(why(&refused))),
    }
}

pub fn why(refused: &Refused) -> (StatusCode, &'static str) {
    match refused {
        Refused::LockedOut => {
            (StatusCode::TOO_MANY_REQUESTS, "Too many wrong passwords came from your address. Wait a minute.")
        }
        Refused::Asked | Refused::Wrong => (StatusCode::FORBIDDEN, "The name or the password is wrong."),
    }
}

pub fn log_out(files: &Files, user: &str, session: &BrowserSession, secure: bool) -> Response<Body> {
    files.own.end_id(user, &session.id);
    let mut response = redirect(&format!("{OWN}login"));
    set_cookie(response.headers_mut(), "", 0, secure);
    response
}

fn set_cookie(headers: &mut HeaderMap, token: &str, age_secs: u64, secure: bool) {
    let (name, more) = if secure { (COOKIE_TLS, "; Secure") } else { (COOKIE, "") };
    let value = format!("{name}={token}; Path=/; Max-Age={age_secs}; HttpOnly; SameSite=Strict{more}");
    if let Ok(value) = HeaderValue::from_str(&value) {
        headers.append(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn after_logging_in_nobody_is_sent_elsewhere() {
        for (to, target) in [
            (Some("/files/a%20b/?view"), "/files/a%20b/?view"),
            (Some("//evil.example/"), "/"),
            (Some("https://evil.example/"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("javascript:alert(1)"), "/"),
            (Some("/.larder/login"), "/"),
            (Some("/a\r\nX: y"), "/"),
            (None, "/"),
        ] {
            assert_eq!(safe_target(to), target, "{to:?}");
        }
    }

    #[test]
    fn requests_of_other_pages_are_told() {
        for (all, is_ours) in [
            (vec![("host", "nas:1")], true),
            (vec![("host", "nas:1"), ("sec-fetch-site", "same-origin")], true),
            (vec![("host", "nas:1"), ("sec-fetch-site", "none")], true),
            (vec![("host", "nas:1"), ("sec-fetch-site", "cross-site"), ("origin", "http://nas:1")], false),
            (vec![("host", "nas:1"), ("sec-fetch-site", "same-site")], false),
            (vec![("host", "nas:1"), ("origin", "http://NAS:1")], true),
            (vec![("host", "nas:1"), ("origin", "http://nas:2")], false),
            (vec![("host", "nas:1"), ("origin", "null")], false),
        ] {
            assert_eq!(check_origin(&headers(&all)).is_ok(), is_ours, "{all:?}");
        }
    }
}
