//! What clients of WebDAV send: paths, headers, XML.

use hyper::header::{HeaderMap, HeaderValue};

use super::conditions::{destination, of_this_server, parse_if, tokens};
use super::path::{Place, href, push_escaped};
use super::{get, xml};

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

/// The headers Destination, If and Range, each with the same value.
pub fn web_headers(data: &[u8]) {
    let (Ok(value), Ok(host)) = (HeaderValue::from_bytes(data), HeaderValue::from_str(HOST)) else { return };
    let mut headers = HeaderMap::new();
    headers.insert("host", host);
    for name in ["destination", "if", "range"] {
        headers.insert(name, value.clone());
    }
    let _ = destination(&headers);
    if let Ok(lists) = parse_if(&headers) {
        assert!(tokens(lists.as_ref()).iter().all(|token| token.len() <= data.len()));
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

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

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
}
