//! Texts of pages, and the frame around each.
//!
//! - `html.nothing_foreign_runs`: a page loads its script and its style by a number that each answer
//!   draws anew (a nonce of Content Security Policy 3), and no others. So neither a name nor a stored
//!   file can bring code or style into a page.

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use larder_base::{Timestamp, hex};

use super::super::civil::civil;
use super::super::context::{Body, full};
use super::super::xml::push_text;
use super::frame::Around;
use super::sessions::secret;

const ICONS: &str = include_str!("icons.svg");
/// Where what belongs to the pages is. No share has such a name.
pub const OWN: &str = "/.larder/";

/// Text, safe inside of an element and of a quoted attribute.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    push_text(&mut out, text);
    out
}

/// A name of a file for the script, which asks the server with it: as it is.
pub fn verbatim(name: &[u8]) -> String {
    escaped(&String::from_utf8_lossy(name))
}

/// A name of a file for people. Marks that turn the order of letters are written out: "gpj.exe" is not shown as a picture
/// (`printed.steers_nothing`).
pub fn shown(name: &[u8]) -> String {
    escaped(&larder_base::printed::shown(&String::from_utf8_lossy(name)))
}

pub fn icon(name: &str) -> String {
    format!("<svg class=\"icon i-{name}\" aria-hidden=\"true\"><use href=\"#i-{name}\"/></svg>")
}

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

/// In UTC; the script of the page shows it in the browser's zone.
pub fn time(at: Timestamp) -> String {
    let (year, month, day, secs) = civil(at);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!(
        "<time datetime=\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z\">\
         {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}</time>"
    )
}

pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A page to be.
#[derive(Default)]
pub struct Page {
    pub status: StatusCode,
    /// Plain text.
    pub title: String,
    /// What follows the logo: crumbs.
    pub head: String,
    /// What is right of it.
    pub tools: String,
    pub around: Around,
    pub main: String,
    /// Of the session, for the script.
    pub csrf: String,
    pub class: &'static str,
}

impl Page {
    pub fn respond(self, is_head: bool) -> Response<Body> {
        let nonce = hex::encode(&secret::<16>());
        let text = self.text(&nonce);
        let length = text.len();
        let mut response = Response::new(full(if is_head { Bytes::new() } else { Bytes::from(text) }));
        *response.status_mut() = self.status;
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
        response
    }

    fn text(&self, nonce: &str) -> String {
        let mut out = String::with_capacity(self.main.len() + 8192);
        let title = escaped(&self.title);
        out.push_str(&format!(
            "<!doctype html>\n<html lang=\"en\" data-theme=\"{}\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\"><title>{title} · larder</title>\
             <link rel=\"icon\" href=\"{OWN}icon.svg\" type=\"image/svg+xml\">\
             <link rel=\"stylesheet\" href=\"{OWN}style.css\" nonce=\"{nonce}\">",
            self.around.theme
        ));
        if !self.csrf.is_empty() {
            out.push_str(&format!("<meta name=\"csrf\" content=\"{}\">", self.csrf));
        }
        out.push_str(&format!(
            "<script src=\"{OWN}script.js\" nonce=\"{nonce}\" defer></script></head><body class=\"{}\">{ICONS}\
             <a class=\"skip\" href=\"#main\">Skip to content</a>",
            self.class
        ));
        let logo = icon("logo");
        let path = format!("{}<div class=\"tools\">{}</div>", self.head, self.tools);
        match self.around.bar.as_str() {
            "" => out.push_str(&format!(
                "<header class=\"bar\"><a class=\"logo\" href=\"/\" aria-label=\"larder: all shares\">{logo}<span>larder</span></a>\
                 {path}</header>"
            )),
            bar => out.push_str(&format!(
                "<header class=\"bar house\"><a class=\"logo\" href=\"/+/\">{logo}<span>larder</span></a>{bar}</header>\
                 <section class=\"bar\" aria-label=\"This place\">{path}</section>"
            )),
        }
        out.push_str(&format!("<main id=\"main\" tabindex=\"-1\">{}</main></body></html>\n", self.main));
        out
    }
}

/// What every answer of ours to a browser says: it is nobody else's.
pub fn private(headers: &mut header::HeaderMap) {
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

    #[test]
    fn names_do_not_turn_the_order_of_letters() {
        assert_eq!(shown("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
        assert_eq!(shown("<b>".as_bytes()), "&lt;b&gt;");
    }

    #[test]
    fn each_page_has_a_nonce_of_its_own_and_no_markup_of_others() {
        let page = || Page { title: "<script>'\"".to_owned(), ..Page::default() };
        let policy = |response: &Response<Body>| {
            response
                .headers()
                .get(header::CONTENT_SECURITY_POLICY)
                .map(|policy| policy.to_str().unwrap_or("").to_owned())
        };
        let (a, b) = (page().respond(false), page().respond(false));
        assert_ne!(policy(&a), policy(&b));
        assert!(policy(&a).is_some_and(|policy| !policy.contains("unsafe") && policy.contains("default-src 'none'")));
        assert!(!page().text("n").contains("<script>"));
    }
}
