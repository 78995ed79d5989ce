//! Logging in by a page, and out: a session in a cookie, for browsers.
//!
//! - `entrance.guessing_is_slow`: a password that a page sends is verified, delayed and locked out as that
//!   of any other client of this door (`login.guessing_is_slow`). Passwords of links are too.
//! - `entrance.own_pages_alone`: what changes something, or logs in, comes from a page of this server: a
//!   browser says where a request comes from.
//! - `entrance.factor_elsewhere`: a user with a second factor logs in where it is asked for, at the guest's. This form
//!   asks for none, so it lets that user in by no password.

use std::net::IpAddr;
use std::time::Instant;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Uri};
use larder_people::User;

use super::super::auth::{self, Refused};
use super::super::conditions::text;
use super::super::context::{Answer, Body};
use super::super::fail::Fail;
use super::super::guest::Guest;
use super::super::path::Place;
use super::super::shared::Shared;
use super::form::{Form, cookies};
use super::html::{OWN, Page, escaped, icon, redirect};
use super::sessions::{AGE_MAX, Session, Who};
use std::sync::Arc;

const COOKIE: &str = "larder_session";
/// Browsers take this name only from TLS, for the whole host and no other (RFC 6265bis 4.1.3.2).
const COOKIE_TLS: &str = "__Host-larder_session";

/// Whether the browser sees TLS, here or at a proxy in front.
pub fn is_secure(tls: bool, headers: &HeaderMap) -> bool {
    tls || text(headers, HeaderName::from_static("x-forwarded-proto"))
        .is_some_and(|proto| proto.eq_ignore_ascii_case("https"))
}

/// The session of a request, with its user as the user is now.
pub fn session(shared: &Shared, headers: &HeaderMap) -> Option<(Arc<User>, Session)> {
    let tokens = cookies(headers, COOKIE_TLS).chain(cookies(headers, COOKIE));
    tokens.filter_map(|token| shared.sessions.find(token, Instant::now())).find_map(|session| {
        let Who::User { name, password } = &session.who else { return None };
        let user = shared.user(name).filter(|user| user.password == *password)?;
        Some((user, session))
    })
}

/// The session of somebody who logged in at the guest's, with its user.
pub fn guest_session(shared: &Shared, guest: &dyn Guest, headers: &HeaderMap) -> Option<(Arc<User>, Session)> {
    let known = guest.user(headers)?;
    let user = shared.user(&known.name)?;
    Some((user, Session::of_guest(known)))
}

/// Whether the client is a person's browser: programs do not ask for HTML.
pub fn wants_page(method: &Method, headers: &HeaderMap) -> bool {
    let reads = method == Method::GET || method == Method::HEAD;
    let accepts = text(headers, header::ACCEPT).is_some_and(|accept| accept.contains("text/html"));
    reads && accepts && !headers.contains_key(header::AUTHORIZATION)
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
pub fn to_login(parts: &Parts, guest: Option<&dyn Guest>) -> Response<Body> {
    let mut to = String::new();
    let here = parts.uri.path_and_query().map_or("/", |here| here.as_str());
    super::super::path::push_escaped(&mut to, here.as_bytes());
    if let Some(guest) = guest {
        return redirect(&guest.log_in_path(here));
    }
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

pub fn login_page(to: Option<&str>, name: &str, wrong: Option<(StatusCode, &str)>) -> Response<Body> {
    let (status, note) = match wrong {
        Some((status, text)) => (status, format!("<p class=\"wrong\" role=\"alert\">{text}</p>")),
        None => (StatusCode::OK, String::new()),
    };
    let focus = |is_it: bool| if is_it { " autofocus" } else { "" };
    Page {
        status,
        title: "Log in".to_owned(),
        main: format!(
            "<div class=\"card centred login\"><div class=\"emblem\">{}</div><h1>Log in</h1>{note}\
             <form method=\"post\" action=\"{OWN}login\"><input type=\"hidden\" name=\"to\" value=\"{}\">\
             <label class=\"field\">Name<input name=\"name\" value=\"{}\" autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" \
             required maxlength=\"200\"{}></label>\
             <label class=\"field\">Password<input type=\"password\" name=\"password\" autocomplete=\"current-password\" required{}></label>\
             <button class=\"button primary wide\">Log in</button></form></div>",
            icon("logo"),
            escaped(&safe_target(to)),
            escaped(name),
            focus(name.is_empty()),
            focus(!name.is_empty()),
        ),
        class: "plain",
        ..Page::default()
    }
    .respond(false)
}

const HAS_FACTOR: &str = "This name has a second factor. Log in at the address of larder's page, which asks for it; \
                          the files are there as well.";

pub async fn log_in(shared: &Shared, address: IpAddr, headers: &HeaderMap, tls: bool, form: &Form) -> Answer {
    check_origin(headers)?;
    let (name, to) = (form.text("name").unwrap_or_default(), form.text("to"));
    let given = form.text("password").unwrap_or_default();
    match auth::verify(shared, address, name, given.to_owned()).await {
        // `entrance.factor_elsewhere`
        Ok(user) if shared.guest().is_some_and(|guest| guest.has_factor(&user.name)) => {
            Ok(login_page(to, name, Some((StatusCode::FORBIDDEN, HAS_FACTOR))))
        }
        Ok(user) => {
            let who = Who::User { name: user.name.clone(), password: user.password.clone() };
            let token = shared.sessions.begin(who, Instant::now());
            let mut response = redirect(&safe_target(to));
            set_cookie(response.headers_mut(), &token, AGE_MAX.as_secs(), is_secure(tls, headers));
            Ok(response)
        }
        Err(refused) => Ok(login_page(to, name, Some(why(&refused)))),
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

pub fn log_out(shared: &Shared, session: &Session, secure: bool) -> Response<Body> {
    shared.sessions.end(session);
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

    #[test]
    fn browsers_are_told_from_programs() {
        let wants = |all: &[(&'static str, &str)]| wants_page(&Method::GET, &headers(all));
        assert!(wants(&[("accept", "text/html,application/xhtml+xml;q=0.9")]));
        assert!(!wants(&[("accept", "*/*")]) && !wants(&[]));
        assert!(!wants(&[("accept", "text/html"), ("authorization", "Basic x")]));
        assert!(!wants_page(&Method::PUT, &headers(&[("accept", "text/html")])));
    }
}
