//! What browsers send beside files: queries of URLs and bodies of forms (the URL standard's
//! `application/x-www-form-urlencoded`), and cookies (RFC 6265 5.4).
//!
//! - `form.bounded`: a form has at most [`FIELDS_MAX`] fields, and a request at most [`COOKIES_MAX`]
//!   cookies that are looked at. The rest is ignored.

use hyper::header::{self, HeaderMap};

const FIELDS_MAX: usize = 20_000;
const COOKIES_MAX: usize = 64;

/// The fields of a query or a body, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, Vec<u8>)>);

impl Form {
    pub fn parse(bytes: &[u8]) -> Self {
        let fields = bytes.split(|&byte| byte == b'&').filter(|field| !field.is_empty()).take(FIELDS_MAX);
        let pair = |field: &[u8]| {
            let at = field.iter().position(|&byte| byte == b'=').unwrap_or(field.len());
            let (name, value) = field.split_at(at);
            let name = String::from_utf8_lossy(&decoded(name, true)).into_owned();
            (name, decoded(value.get(1..).unwrap_or_default(), true))
        };
        Self(fields.map(pair).collect())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }

    /// The first field of this name, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(field, _)| field == name)?;
        std::str::from_utf8(value).ok()
    }

    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_slice())
    }
}

/// A percent sign that is followed by no two digits stands for itself, as in browsers.
pub fn decoded(text: &[u8], plus_is_space: bool) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let digit = |at: usize| tail.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high << 4 | low).unwrap_or_default());
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', ..) if plus_is_space => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
    }
    out
}

/// The values of all cookies of this name: a browser may send several, of different paths.
pub fn cookies<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).take(COOKIES_MAX);
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(known, _)| *known == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn forms_of_browsers() {
        let form = Form::parse(b"a=1&name=x+y%20z&name=%c3%a4%&&flag&b=%f");
        assert_eq!((form.text("a"), form.text("flag"), form.text("b")), (Some("1"), Some(""), Some("%f")));
        assert!(form.has("flag") && !form.has("fla"));
        assert_eq!(form.all("name").collect::<Vec<_>>(), [b"x y z".as_slice(), "ä%".as_bytes()]);
        assert_eq!(Form::parse(b"n=%ff").text("n"), None, "no text");
        assert_eq!(Form::parse(&b"a&".repeat(2 * FIELDS_MAX)).0.len(), FIELDS_MAX);
    }

    #[test]
    fn cookies_of_one_name() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", "a=1; larder=x; xlarder=z".parse().unwrap());
        headers.append("cookie", "larder=y=".parse().unwrap());
        assert_eq!(cookies(&headers, "larder").collect::<Vec<_>>(), ["x", "y="]);
    }
}
