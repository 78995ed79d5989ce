//! What surrounds each page of the files: the page's frame, crumbs, the menu of the user; and
//! answers that are no page.

use askama::Template;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use larder_dav::browsers::{Answer, Body, Fail, full, name};

use super::viewer::Viewer;
use super::visit::FileVisit;
use crate::visit::Frame;

pub struct Crumb {
    pub href: String,
    pub name: String,
}

pub struct SearchBox {
    pub action: String,
    pub words: String,
}

/// What a page of the files has beside its frame.
#[derive(Default)]
pub struct Shelf {
    /// Of the body, for the style and the script.
    pub class: &'static str,
    /// The folders on the way, and the last name.
    pub above: Vec<Crumb>,
    pub here: Option<String>,
    pub search: Option<SearchBox>,
    /// Links, and logging out where the frame has no button for it.
    pub has_menu: bool,
    pub initial: String,
}

impl Shelf {
    pub fn of(visit: &FileVisit, class: &'static str) -> Self {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let mut trail = visit.trail(visit.path());
        trail.insert(0, visit.top());
        let mut above: Vec<Crumb> = trail
            .iter()
            .enumerate()
            .map(|(at, path)| Crumb {
                href: visit.href(path, true),
                name: if at == 0 { text(&visit.top_name()) } else { text(name(path)) },
            })
            .collect();
        let here = above.pop().map(|crumb| crumb.name);
        Self { class, above, here, ..Self::of_viewer(&visit.viewer, visit.link.is_none()) }
    }

    /// Of a page about no file.
    pub fn of_viewer(viewer: &Viewer, is_own: bool) -> Self {
        let initial = viewer.user.chars().next().unwrap_or('?').to_uppercase().to_string();
        Self { has_menu: is_own && viewer.has_session, initial, ..Self::default() }
    }
}

pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// As the script of these pages writes sizes.
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

#[derive(Template)]
#[template(path = "files/failure.html")]
struct FileFailurePage {
    frame: Frame,
    shelf: Shelf,
    text: String,
}

/// A page that says why there is none. `viewer`: who asked, unless a link led here.
pub fn failure(fail: &Fail, viewer: Option<&Viewer>, is_head: bool) -> Answer {
    let title = match fail.status {
        StatusCode::NOT_FOUND => "Nothing is here",
        StatusCode::FORBIDDEN => "You may not see this",
        StatusCode::BAD_REQUEST => "This address is not right",
        StatusCode::TOO_MANY_REQUESTS => "Too many wrong passwords",
        _ => "It did not work",
    };
    let mut text = fail.text.to_string();
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    let text = text.trim_end_matches('.').to_owned();
    let stranger = Viewer::default();
    let viewer_or_nobody = viewer.unwrap_or(&stranger);
    let (frame, shelf) = (viewer_or_nobody.frame(title), Shelf::of_viewer(viewer_or_nobody, viewer.is_some()));
    let page = FileFailurePage { frame, shelf, text };
    respond(fail.status, &page, &page.frame.nonce, is_head)
}

/// A page, with the policy of `html.nothing_foreign_runs`.
pub fn respond(status: StatusCode, page: &impl Template, nonce: &str, is_head: bool) -> Answer {
    const FAILED: Fail = Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made");
    let text = page.render().map_err(|_| FAILED)?;
    let length = text.len();
    let mut response = Response::new(full(if is_head { Bytes::new() } else { Bytes::from(text) }));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    if is_head {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; media-src 'self'; \
         frame-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    private(headers);
    Ok(response)
}

/// What every answer to a browser says: it is nobody else's. Browsers that name no site in
/// `Sec-Fetch-Site` name it in `Origin`, which they do only while the referrer is not withheld
/// (`entrance.own_pages_alone`).
pub fn private(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

/// To a page, with GET (RFC 9110 15.4.4).
pub fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    private(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (u64::MAX, "16384.0 PiB")]
        {
            assert_eq!(human(bytes), text);
        }
    }

    fn page(title: &str) -> FileFailurePage {
        let viewer = Viewer::default();
        FileFailurePage { frame: viewer.frame(title), shelf: Shelf::of_viewer(&viewer, false), text: String::new() }
    }

    #[test]
    fn names_do_not_turn_the_order_of_letters() {
        let mut page = page("\u{202e}gpj.exe");
        page.shelf.here = Some("\u{202e}gpj.exe<b>".to_owned());
        let text = page.render().unwrap_or_default();
        assert!(
            text.contains("\\u{202e}gpj.exe&#60;b&#62;") && !text.contains('\u{202e}') && !text.contains("<b>"),
            "{text}"
        );
    }

    #[test]
    fn each_page_has_a_nonce_of_its_own_and_no_markup_of_others() {
        let policy = || {
            let page = page("<script>'\"");
            let response = respond(StatusCode::OK, &page, &page.frame.nonce, false).ok();
            let headers = response.map(|response| response.headers().clone()).unwrap_or_default();
            headers.get(header::CONTENT_SECURITY_POLICY).and_then(|policy| policy.to_str().ok()).map(str::to_owned)
        };
        let (a, b) = (policy(), policy());
        assert_ne!(a, b);
        assert!(a.is_some_and(|policy| !policy.contains("unsafe") && policy.contains("default-src 'none'")));
        assert!(!page("<script>'\"").render().unwrap_or_default().contains("<script>"));
    }
}
