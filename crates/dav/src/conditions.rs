//! Conditions of a request: RFC 9110 (13) and the If header of RFC 4918 (10.4).

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Method, StatusCode, Uri};
use larder_fs::Attr;

use super::civil::{http_date, whole_second};
use super::fail::Fail;
use super::path::Place;
use super::text::push_validator;

/// Conditions of one If header.
const CONDITIONS_MAX: usize = 200;

/// The validator of a resource.
pub fn etag(attr: &Attr) -> String {
    let mut out = "\"".to_owned();
    push_validator(&mut out, attr);
    out.push('"');
    out
}

pub fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// In seconds since 1970.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    text(headers, name).and_then(http_date)
}

/// A list of validators, or a star.
enum Tags<'h> {
    Any,
    List(Vec<&'h str>),
}

impl<'h> Tags<'h> {
    fn of(headers: &'h HeaderMap, name: &HeaderName) -> Option<Self> {
        let mut list = Vec::new();
        for value in headers.get_all(name) {
            let value = value.to_str().unwrap_or_default();
            if value.trim() == "*" {
                return Some(Self::Any);
            }
            split_tags(value, &mut list);
        }
        headers.contains_key(name).then_some(Self::List(list))
    }

    fn has(&self, tag: Option<&str>, weak: bool) -> bool {
        match (self, tag) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::List(list), Some(tag)) => list.iter().any(|one| match one.strip_prefix("W/") {
                Some(one) => weak && one == tag,
                None => *one == tag,
            }),
        }
    }
}

/// A comma may stand inside of quotes.
fn split_tags<'h>(value: &'h str, list: &mut Vec<&'h str>) {
    let mut rest = value;
    while let Some(begin) = rest.find('"') {
        let Some(len) = rest.get(begin + 1..).and_then(|tail| tail.find('"')) else { return };
        let weak = rest.get(..begin).is_some_and(|before| before.ends_with("W/"));
        let from = if weak { begin - 2 } else { begin };
        list.extend(rest.get(from..begin + len + 2));
        rest = rest.get(begin + len + 2..).unwrap_or_default();
    }
}

/// What is there now, as the conditions see it.
pub struct Present {
    pub etag: String,
    /// In whole seconds since 1970, as dates of HTTP have them.
    pub modified: i64,
}

impl Present {
    pub fn of(attr: &Attr) -> Self {
        Self { etag: etag(attr), modified: whole_second(attr.mtime) }
    }
}

/// RFC 9110 13.2.2. The status is 304 or 412.
pub fn check(method: &Method, headers: &HeaderMap, present: Option<&Present>) -> Result<(), StatusCode> {
    let tag = present.map(|present| present.etag.as_str());
    let reads = method == Method::GET || method == Method::HEAD;
    if let Some(tags) = Tags::of(headers, &header::IF_MATCH) {
        if !tags.has(tag, false) {
            return Err(StatusCode::PRECONDITION_FAILED);
        }
    } else if let Some(since) = date(headers, header::IF_UNMODIFIED_SINCE)
        && present.is_none_or(|present| present.modified > since)
    {
        return Err(StatusCode::PRECONDITION_FAILED);
    }
    if let Some(tags) = Tags::of(headers, &header::IF_NONE_MATCH) {
        if tags.has(tag, true) {
            return Err(if reads { StatusCode::NOT_MODIFIED } else { StatusCode::PRECONDITION_FAILED });
        }
    } else if reads
        && let Some(since) = date(headers, header::IF_MODIFIED_SINCE)
        && present.is_some_and(|present| present.modified <= since)
    {
        return Err(StatusCode::NOT_MODIFIED);
    }
    Ok(())
}

/// Whether a range still fits what the client has (RFC 9110 13.1.5). A date is no strong validator here.
pub fn range_fits(headers: &HeaderMap, present: &Present) -> bool {
    match text(headers, header::IF_RANGE) {
        None => !headers.contains_key(header::IF_RANGE),
        Some(value) if value.starts_with('"') => value == present.etag,
        // Two contents of one second have the same date.
        Some(_) => false,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Token(String),
    Tag(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub not: bool,
    pub item: Item,
}

/// Conditions that hold together for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// `None`: the resource of the request. A URL of another server is no resource here.
    pub about: Option<Option<Place>>,
    pub conditions: Vec<Condition>,
}

/// RFC 4918 10.4.2. `None`: there is no such header.
pub fn parse_if(headers: &HeaderMap) -> Result<Option<Vec<List>>, Fail> {
    const BAD: Fail = Fail::bad_request("the If header is no list of conditions");
    let name = HeaderName::from_static("if");
    let mut values = headers.get_all(&name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let mut rest = value.to_str().map_err(|_| BAD)?.trim();
    let (mut lists, mut about, mut count) = (Vec::new(), None, 0);
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('<') {
            let (url, tail) = tail.split_once('>').ok_or(BAD)?;
            about = Some(of_this_server(url, headers));
            rest = tail.trim_start();
            continue;
        }
        rest = rest.strip_prefix('(').ok_or(BAD)?.trim_start();
        let mut conditions = Vec::new();
        loop {
            if let Some(tail) = rest.strip_prefix(')') {
                rest = tail.trim_start();
                break;
            }
            let (not, tail) = match rest.get(..3) {
                Some(word) if word.eq_ignore_ascii_case("not") => {
                    (true, rest.get(3..).unwrap_or_default().trim_start())
                }
                _ => (false, rest),
            };
            let (item, tail) = if let Some(tail) = tail.strip_prefix('<') {
                let (token, tail) = tail.split_once('>').ok_or(BAD)?;
                (Item::Token(token.to_owned()), tail)
            } else {
                let (tag, tail) = tail.strip_prefix('[').ok_or(BAD)?.split_once(']').ok_or(BAD)?;
                (Item::Tag(tag.trim().to_owned()), tail)
            };
            count += 1;
            if count > CONDITIONS_MAX {
                return Err(Fail::bad_request("the If header has too many conditions"));
            }
            conditions.push(Condition { not, item });
            rest = tail.trim_start();
        }
        if conditions.is_empty() {
            return Err(BAD);
        }
        lists.push(List { about: about.clone(), conditions });
    }
    if lists.is_empty() { Err(BAD) } else { Ok(Some(lists)) }
}

/// All tokens that the request submits, whatever their conditions say (RFC 4918 10.4.1).
pub fn tokens(lists: Option<&Vec<List>>) -> Vec<String> {
    let conditions = lists.into_iter().flatten().flat_map(|list| &list.conditions);
    conditions
        .filter_map(|condition| match &condition.item {
            Item::Token(token) => Some(token.clone()),
            Item::Tag(_) => None,
        })
        .collect()
}

/// The place that a URL of this server names, whatever name the server was asked by.
pub fn of_this_server(url: &str, headers: &HeaderMap) -> Option<Place> {
    let uri: Uri = url.parse().ok()?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    match (uri.authority(), host) {
        (None, _) => {}
        (Some(authority), Some(host)) if without_port(authority.as_str()) == without_port(host) => {}
        _ => return None,
    }
    Place::of_url(uri.path()).ok()
}

/// A proxy in front may have another port. The user of a URL does not matter.
fn without_port(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let end = if host.ends_with(']') { host.len() } else { host.rfind(':').unwrap_or(host.len()) };
    host.get(..end).unwrap_or(host).to_ascii_lowercase()
}

/// The Destination header (RFC 4918 10.3).
pub fn destination(headers: &HeaderMap) -> Result<Place, Fail> {
    let value = text(headers, HeaderName::from_static("destination"));
    let value = value.ok_or(Fail::bad_request("the Destination header is missing or no text"))?;
    let uri: Uri = value.parse().map_err(|_| Fail::bad_request("the Destination header is no URL"))?;
    // Only another server is answered with this status (RFC 4918 9.8.5).
    if uri.authority().is_some() && of_this_server(value, headers).is_none() && Place::of_url(uri.path()).is_ok() {
        return Err(Fail::new(StatusCode::BAD_GATEWAY, "the destination is on another server"));
    }
    Place::of_url(uri.path())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        all.iter().map(pair).collect()
    }

    #[test]
    fn conditions_of_http_in_their_order() {
        let present = Present { etag: "\"a,b\"".to_owned(), modified: 784_111_777 };
        let at = "Sun, 06 Nov 1994 08:49:37 GMT";
        let (ok, not, failed) = (200, 304, 412);
        for (method, all, there, status) in [
            (Method::GET, vec![], true, ok),
            (Method::GET, vec![("if-match", "\"x\", \"a,b\"")], true, ok),
            (Method::GET, vec![("if-match", "W/\"a,b\"")], true, failed),
            (Method::PUT, vec![("if-match", "*")], false, failed),
            (Method::PUT, vec![("if-none-match", "*")], true, failed),
            (Method::PUT, vec![("if-none-match", "*")], false, ok),
            (Method::GET, vec![("if-none-match", "W/\"a,b\"")], true, not),
            (Method::GET, vec![("if-modified-since", at)], true, not),
            (Method::PUT, vec![("if-modified-since", at)], true, ok),
            (Method::GET, vec![("if-none-match", "\"c\""), ("if-modified-since", at)], true, ok),
            (Method::PUT, vec![("if-unmodified-since", at)], true, ok),
            (Method::PUT, vec![("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], true, failed),
            (
                Method::PUT,
                vec![("if-match", "\"a,b\""), ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")],
                true,
                ok,
            ),
        ] {
            let done = check(&method, &headers(&all), there.then_some(&present));
            assert_eq!(done.err().map_or(ok, |status| status.as_u16()), status, "{method} {all:?}");
        }
    }

    #[test]
    fn the_if_header_is_lists() {
        let parse = |value: &str| parse_if(&headers(&[("if", value), ("host", "nas:80")]));
        let lists = parse("(<urn:a> [\"e\"]) (Not <DAV:no-lock>)").unwrap().unwrap();
        assert_eq!(lists.len(), 2);
        assert_eq!(tokens(Some(&lists)), ["urn:a", "DAV:no-lock"]);
        assert!(lists[1].conditions[0].not && lists[0].about.is_none());
        let lists = parse("<http://nas/x%20y> (<urn:a>) <http://other/z> ([W/\"e\"])").unwrap().unwrap();
        assert_eq!(lists[0].about.clone().unwrap().unwrap().path, "x y");
        assert_eq!(lists[1].about, Some(None));
        for bad in ["", "x", "(", "()", "(<a)", "<x>", "(<a>) y", "([a)"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn destinations_are_on_this_server() {
        let of = |value: &str| destination(&headers(&[("destination", value), ("host", "nas:8080")]));
        assert_eq!(of("http://nas:8080/a/b").unwrap().path, "a/b");
        assert_eq!(of("http://user@NAS/a/").unwrap().path, "a");
        assert_eq!(of("/a").unwrap().path, "a");
        assert_eq!(of("http://other/a").unwrap_err().status, StatusCode::BAD_GATEWAY);
        assert_eq!(of("http://nas/a%zz").unwrap_err().status, StatusCode::BAD_REQUEST);
        assert!(destination(&HeaderMap::new()).is_err());
    }
}
