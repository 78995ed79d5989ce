//! Pages about links: to make one, those of a user, and the door of one that has a password.

use askama::Template;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use larder_base::{Timestamp, task};
use larder_dav::browsers::{Answer, Fail, href, name, text};
use larder_doors::tree::Spot;
use larder_fs::FileKind;
use larder_people::PasswordHash;

use super::entrance::OWN;
use super::links::{DAYS_MAX, Link, Links, Which, now};
use super::shelf::{Crumb, Shelf, redirect, respond};
use super::viewer::{SHARES, Viewer};
use super::visit::FileVisit;
use crate::form::Form;
use crate::text::Moment;
use crate::visit::Frame;

/// Where links begin. No share has such a name.
pub const LINK: &str = "/.link/";
const DAY_SECS: i64 = 24 * 3600;
const TERMS: [(i64, &str); 5] = [(1, "1 day"), (7, "7 days"), (30, "30 days"), (90, "90 days"), (DAYS_MAX, "1 year")];
const PASSWORD_BYTES_MAX: usize = 1024;

/// A link that was made: shown once.
struct MadeLink {
    url: String,
    until: Moment,
}

#[derive(Template)]
#[template(path = "files/share.html")]
struct ShareLinkPage {
    frame: Frame,
    shelf: Shelf,
    name: String,
    back_href: String,
    terms: &'static [(i64, &'static str)],
    made: Option<MadeLink>,
}

/// The form that makes a link, or, with `made`, the link and its end.
pub fn share(visit: &FileVisit, is_folder: bool, made: Option<(&str, i64)>) -> Answer {
    let page = ShareLinkPage {
        frame: visit.viewer.frame("Share"),
        shelf: Shelf::of(visit, ""),
        name: String::from_utf8_lossy(name(visit.path())).into_owned(),
        back_href: format!("{}{}", visit.href(visit.path(), is_folder), if is_folder { "" } else { "?view" }),
        terms: &TERMS,
        made: made.map(|(url, until)| MadeLink { url: url.to_owned(), until: of_secs(until) }),
    };
    respond(StatusCode::OK, &page, &page.frame.nonce, visit.is_head())
}

fn of_secs(secs: i64) -> Moment {
    Moment::of_stamp(Timestamp::new(secs, 0))
}

pub async fn make(visit: &FileVisit, form: &Form, secure: bool) -> Answer {
    const BAD: Fail = Fail::bad_request("a link lasts 1 to 365 days");
    // What cannot be read cannot be shared.
    if visit.context.place.is_top() {
        return Err(Fail::forbidden("the list of shares has no link: share one of them"));
    }
    let spot = visit.find().await?;
    let is_folder = matches!(spot, Spot::In(_, attr) if attr.kind == FileKind::Directory);
    let days: i64 = form.get("days").and_then(|days| days.parse().ok()).ok_or(BAD)?;
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(BAD);
    }
    let password = match form.get("password").unwrap_or_default() {
        "" => None,
        long if long.len() > PASSWORD_BYTES_MAX => return Err(Fail::bad_request("the password is too long")),
        text => {
            let text = text.to_owned();
            let hashed = task::blocking(move || PasswordHash::new(&text)).await;
            let failed = Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "the password could not be hashed");
            Some(hashed.ok().and_then(Result::ok).ok_or(failed)?)
        }
    };
    let (user, until) = (&visit.context.user.name, now() + days * DAY_SECS);
    let maker = (user.as_str(), visit.context.user.uid);
    let token = visit.files.links.make(maker, visit.path(), until, password).await?;
    tracing::info!("WebDAV: '{user}' made a link to '{}' for {days} days", visit.path().escape_ascii());
    let url = format!("{}{LINK}{token}", origin(&visit.context.headers, secure));
    share(visit, is_folder, Some((&url, until)))
}

/// What the browser calls this server.
fn origin(headers: &HeaderMap, secure: bool) -> String {
    let host = text(headers, header::HOST).unwrap_or_default();
    format!("http{}://{host}", if secure { "s" } else { "" })
}

/// A link as its maker sees it.
struct OwnLink {
    href: String,
    path: String,
    name: String,
    until: Moment,
    has_password: bool,
    id: String,
}

impl OwnLink {
    fn of(link: &Link) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            href: href(&link.path, false),
            path: text(&link.path),
            name: text(name(&link.path)),
            until: of_secs(link.until),
            has_password: link.password.is_some(),
            id: link.id(),
        }
    }
}

#[derive(Template)]
#[template(path = "files/links.html")]
struct OwnLinksPage {
    frame: Frame,
    shelf: Shelf,
    links: Vec<OwnLink>,
}

/// The links of a user.
pub fn list(links: &Links, viewer: &Viewer) -> Answer {
    let above = vec![Crumb { href: SHARES.to_owned(), name: "Shares".to_owned() }];
    let page = OwnLinksPage {
        frame: viewer.frame("My links"),
        shelf: Shelf { above, here: Some("My links".to_owned()), ..Shelf::of_viewer(viewer, true) },
        links: links.of_user(&viewer.user).iter().map(|link| OwnLink::of(link)).collect(),
    };
    respond(StatusCode::OK, &page, &page.frame.nonce, false)
}

pub async fn revoke(links: &Links, viewer: &Viewer, form: &Form) -> Answer {
    let id = form.get("revoke").ok_or(Fail::bad_request("the form names no link"))?;
    links.end(Which::Own { maker: &viewer.user, id }).await?;
    Ok(redirect(&format!("{OWN}links")))
}

#[derive(Template)]
#[template(path = "files/door.html")]
struct LinkDoorPage<'a> {
    frame: Frame,
    shelf: Shelf,
    action: &'a str,
    is_wrong: bool,
}

/// The door of a link with a password.
pub fn door(action: &str, is_wrong: bool) -> Answer {
    let nobody = Viewer::default();
    let (frame, shelf) = (nobody.frame("Password"), Shelf::of_viewer(&nobody, false));
    let page = LinkDoorPage { frame, shelf, action, is_wrong };
    let status = if is_wrong { StatusCode::FORBIDDEN } else { StatusCode::OK };
    respond(status, &page, &page.frame.nonce, false)
}

/// The cookie of somebody who knew the password.
pub fn cookie(token: &str, prefix: &str, secure: bool) -> Option<HeaderValue> {
    let secure = if secure { "; Secure" } else { "" };
    HeaderValue::from_str(&format!("{COOKIE}={token}; Path={prefix}; HttpOnly; SameSite=Strict{secure}")).ok()
}

pub const COOKIE: &str = "larder_link";
