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

#[cfg(test)]
#[path = "../../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    #[test]
    fn fuzz_web_form() {
        let seeds = ["name=a+b%20c&csrf=0f", "sort=size&down&page=2", "q=%c3%a4&&=%"];
        drive("web_form", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_form);
    }

    #[test]
    fn fuzz_web_cookies() {
        let seeds = ["larder_session=00ff; a=b", "larder_session=;larder_session==x; b"];
        drive("web_cookies", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_cookies);
    }

    #[test]
    fn fuzz_web_links() {
        let hash = "07".repeat(32);
        let password = format!("argon2id$19456$2$1${}${}", "ab".repeat(16), "cd".repeat(32));
        let lines = format!("larder links 1\n{hash} 1 2 - 616e6e 73\n{hash} -1 9 {password} 61 732f61\n");
        let now = format!("larder links 2\n{hash} 1 2 - 616e6e 73 1000 -\n{hash} -1 9 {password} 61 732f61 - 5\n");
        let seeds = [lines.into_bytes(), now.into_bytes(), b"larder links 2\n".to_vec()];
        drive("web_links", &seeds, super::web_links);
    }

    #[test]
    fn fuzz_web_path() {
        let seeds = ["/files/a%20b/../c/", "/%c3%a4/./x", "//a//b", "/%2e%2e/%2f", "/a/..%00"];
        drive("web_path", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_path);
    }

    #[test]
    fn fuzz_web_headers() {
        let seeds = [
            "https://nas:10443/files/b",
            "/files/c%20d",
            "(<urn:uuid:1> [\"tag\"]) (Not <DAV:no-lock>)",
            "<http://nas/files/a> (<urn:uuid:1>)",
            "bytes=0-5, 7-, -3",
            "1048576",
        ];
        drive("web_headers", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_headers);
    }

    #[test]
    fn fuzz_web_xml() {
        let seeds = [
            "<propfind xmlns=\"DAV:\"><prop><getetag/><x xmlns=\"urn:a\" b=\"c&amp;d\">e</x></prop></propfind>",
            "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><p:q xmlns:p='urn:p' p:r='s' xml:lang='de'>t<u/></p:q></D:prop></D:set>\
             </D:propertyupdate>",
            "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><owner><![CDATA[x]]>&#228;</owner></lockinfo>",
        ];
        drive("web_xml", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_xml);
    }

    #[test]
    fn fuzz_web_zip_name() {
        let seeds = [&b"a/../b"[..], b"..\\x", b"/a//./\xff"];
        drive("web_zip_name", &seeds.map(<[u8]>::to_vec), super::web_zip_name);
    }
}
