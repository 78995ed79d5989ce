//! What clients of WebDAV and browsers send, and what is kept for them: paths, headers, XML, forms, cookies, links.

use hyper::header::{HeaderMap, HeaderValue};

use super::super::conditions::{destination, of_this_server, parse_if, tokens};
use super::super::path::{Place, href, push_escaped};
use super::super::{get, xml};
use super::form::{Form, cookies, decoded};
use super::{links, upload_ops, zip};

const HOST: &str = "nas:10443";

/// The path of a URL: it is plain, and its own URL leads to it again.
pub fn web_path(data: &[u8]) {
    // What the HTTP library takes for a URL.
    let Ok(url) = hyper::Uri::try_from(data) else { return };
    let Ok(place) = Place::of_url(url.path()) else { return };
    let parts = || place.path.split(|byte| *byte == b'/');
    assert!(place.is_top() || parts().all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0)));
    assert_eq!(Place::of_url(&href(&place.path, place.slash)).ok().map(|again| again.path), Some(place.path.clone()));
    let mut out = String::new();
    push_escaped(&mut out, &place.path);
    assert!(out.is_ascii());
}

/// The headers Destination, If, Range and those of uploads, each with the same value.
pub fn web_headers(data: &[u8]) {
    let (Ok(value), Ok(host)) = (HeaderValue::from_bytes(data), HeaderValue::from_str(HOST)) else { return };
    let mut headers = HeaderMap::new();
    headers.insert("host", host);
    for name in ["destination", "if", "range", "upload-length", "upload-offset"] {
        headers.insert(name, value.clone());
    }
    let _ = destination(&headers);
    if let Ok(lists) = parse_if(&headers) {
        assert!(tokens(lists.as_ref()).iter().all(|token| token.len() <= data.len()));
    }
    for name in ["upload-length", "upload-offset"] {
        let _ = upload_ops::number(&headers, hyper::header::HeaderName::from_static(name));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = of_this_server(text, &headers);
    for size in [0, 1, 1000, u64::MAX] {
        get::fuzz_ranges(text, size);
    }
}

/// The body of PROPFIND, PROPPATCH and LOCK: what is written of an element is one again.
pub fn web_xml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(document) = xml::parse(text) else { return };
    for element in xml::elements(document.root_element()).take(8) {
        let _ = xml::child(element, "prop");
        let mut out = "<D:x xmlns:D=\"DAV:\">".to_owned();
        if xml::push_element(&mut out, element).is_ok() {
            out.push_str("</D:x>");
            assert!(xml::parse(&out).is_ok(), "{out}");
        }
    }
}

/// A query or the body of a form. Nothing in it is longer than it was.
pub fn web_form(data: &[u8]) {
    let form = Form::parse(data);
    for name in ["name", "csrf", ""] {
        assert!(form.all(name).map(<[u8]>::len).sum::<usize>() <= data.len());
        assert!(form.text(name).is_none() || form.has(name));
    }
    assert!(decoded(data, false).len() <= data.len());
}

/// A header of cookies.
pub fn web_cookies(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let mut headers = HeaderMap::new();
    headers.append("cookie", value);
    for cookie in cookies(&headers, "larder_session") {
        assert!(cookie.len() <= data.len() && !cookie.contains(';'));
    }
}

/// The file of links: what is read is written as it was.
pub fn web_links(data: &[u8]) {
    let Ok(found) = links::parse(data) else { return };
    let again = links::parse(links::print(&found).as_bytes());
    assert!(again.is_ok_and(|again| again == found));
}

/// A name for an archive: nothing in it leads up or to a root.
pub fn web_zip_name(data: &[u8]) {
    let name = zip::name_of(data);
    assert!(!name.starts_with('/') && !name.contains('\\') && name.split('/').all(|part| part != ".." && part != "."));
}
