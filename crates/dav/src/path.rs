//! From the path of a URL to a plain path of names, and back.

use bytes::Bytes;
use larder_base::hex;

use super::fail::Fail;
use larder_doors::tree::plain;

/// A path without `.`, `..` and doubled slashes, without slashes at its ends: `share/folder/name`, empty for the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub path: Bytes,
    /// The URL ended in a slash: it means a folder.
    pub slash: bool,
}

impl Place {
    /// Reads the path of a URL (RFC 3986 2.1, 5.2.4).
    pub fn of_url(path: &str) -> Result<Self, Fail> {
        let mut bytes = Vec::with_capacity(path.len());
        let mut rest = path.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            rest = tail;
            if first != b'%' {
                bytes.push(first);
                continue;
            }
            let (digits, tail) = tail.split_at_checked(2).ok_or(BAD_ESCAPE)?;
            let digits = std::str::from_utf8(digits).map_err(|_| BAD_ESCAPE)?;
            let byte = hex::decode(digits).and_then(|byte| byte.first().copied()).ok_or(BAD_ESCAPE)?;
            match byte {
                0 => return Err(Fail::bad_request("a name has a zero byte")),
                b'/' => return Err(Fail::bad_request("a name has a slash in it")),
                byte => bytes.push(byte),
            }
            rest = tail;
        }
        if !bytes.starts_with(b"/") {
            return Err(Fail::bad_request("the path does not begin with a slash"));
        }
        let slash = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes.ends_with(b"/..");
        Ok(Self { path: plain(&Bytes::from(bytes)), slash })
    }

    pub fn is_top(&self) -> bool {
        self.path.is_empty()
    }
}

const BAD_ESCAPE: Fail = Fail::bad_request("a percent sign of the path is followed by no two hexadecimal digits");

/// The plain path of the folder that holds `path`.
pub fn parent(path: &Bytes) -> Bytes {
    path.iter().rposition(|&byte| byte == b'/').map_or(Bytes::new(), |at| path.slice(..at))
}

/// The last name.
pub fn name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(path, |at| path.get(at + 1..).unwrap_or_default())
}

/// `path` and `name` in it.
pub fn join(path: &[u8], name: &[u8]) -> Bytes {
    if path.is_empty() { Bytes::copy_from_slice(name) } else { Bytes::from([path, b"/", name].concat()) }
}

/// Whether `path` lies below `top`, or is `top`.
pub fn is_within(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Appends the URL of `path`; it is safe inside of XML and HTML.
pub fn push_href(out: &mut String, path: &[u8], is_folder: bool) {
    out.push('/');
    push_escaped(out, path);
    if is_folder && !path.is_empty() {
        out.push('/');
    }
}

/// Bytes other than unreserved ones (RFC 3986 2.3) and slashes are escaped.
pub fn push_escaped(out: &mut String, path: &[u8]) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let mut rest = path;
    while let Some(at) = rest.iter().position(|byte| !is_plain(byte)) {
        let (plain, escaped) = rest.split_at(at);
        push_ascii(out, plain);
        rest = match escaped.split_first() {
            Some((byte, rest)) => {
                out.push('%');
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from_digit(digit.into(), 16).unwrap_or('0').to_ascii_uppercase());
                }
                rest
            }
            None => escaped,
        };
    }
    push_ascii(out, rest);
}

fn push_ascii(out: &mut String, bytes: &[u8]) {
    out.push_str(std::str::from_utf8(bytes).unwrap_or_default());
}

pub fn href(path: &[u8], is_folder: bool) -> String {
    let mut out = String::with_capacity(path.len() + 8);
    push_href(&mut out, path, is_folder);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_of_urls_are_plain_and_come_back() {
        for (url, path, slash) in [
            ("/", "", true),
            ("/a", "a", false),
            ("/a/", "a", true),
            ("//a/./b//../c", "a/c", false),
            ("/../../etc", "etc", false),
            ("/a/%2e%2E/b", "b", false),
            ("/a%20b/%C3%A4%25", "a b/ä%", false),
        ] {
            let place = Place::of_url(url).unwrap();
            assert_eq!((&place.path[..], place.slash), (path.as_bytes(), slash), "{url}");
            let back = Place::of_url(&href(&place.path, false)).unwrap();
            assert_eq!(back.path, place.path);
        }
        for bad in ["", "a", "*", "/%", "/%4", "/%zz", "/a%00b", "/a%2fb", "/%+1"] {
            assert!(Place::of_url(bad).is_err(), "{bad}");
        }
        assert_eq!(href("a b/ä&<".as_bytes(), true), "/a%20b/%C3%A4%26%3C/");
    }

    #[test]
    fn parents_and_what_is_within() {
        let path = Bytes::from_static(b"a/b/c");
        assert_eq!((&parent(&path)[..], name(&path)), (&b"a/b"[..], &b"c"[..]));
        assert_eq!((&parent(&Bytes::from_static(b"a"))[..], name(b"a")), (&b""[..], &b"a"[..]));
        for (path, top, within) in [("a/b", "a", true), ("a", "a", true), ("ab", "a", false), ("a", "", true)] {
            assert_eq!(is_within(path.as_bytes(), top.as_bytes()), within, "{path} in {top}");
        }
    }
}
