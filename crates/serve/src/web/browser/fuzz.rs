//! What browsers send and what is kept for them: forms, cookies, links.

use hyper::header::{HeaderMap, HeaderValue};

use super::form::{Form, cookies, decoded};
use super::{links, zip};

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
