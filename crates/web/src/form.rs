//! Forms as browsers send them (`application/x-www-form-urlencoded`, WHATWG URL 5.1), in bodies and
//! in queries, and cookies (RFC 6265 5.4).
//!
//! - `form.bounded`: a form has at most [`FIELDS_MAX`] fields, one of the file view [`NAMES_MAX`],
//!   and of a request at most [`COOKIES_MAX`] cookies are looked at.

use hyper::header::{self, HeaderMap};

/// More fields than any form of the page has. A form with more is none.
const FIELDS_MAX: usize = 256;
/// Names of files that are selected in the file view, and what comes with them. Further ones are
/// ignored.
const NAMES_MAX: usize = 20_000;
const COOKIES_MAX: usize = 64;

/// The fields of a form in their order. A checked box is there; one that is not checked is absent.
#[derive(Debug, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// `None`: no browser writes that.
    pub fn read(text: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            if fields.len() == FIELDS_MAX {
                return None;
            }
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let (name, value) = pair.split_at(at);
            fields.push((strictly(name)?, strictly(value.get(1..).unwrap_or_default())?));
        }
        Some(Self(fields))
    }

    /// Addresses and forms of the file view, which people type and programs make, too: a percent
    /// sign that no two digits follow stands for itself, and a field that is no text is absent.
    pub fn read_leniently(text: &[u8]) -> Self {
        let fields = text.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).take(NAMES_MAX);
        let pair = |field: &[u8]| {
            let at = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
            let (name, value) = field.split_at(at);
            let name = String::from_utf8(decoded(name, true)).ok()?;
            Some((name, String::from_utf8(decoded(value.get(1..).unwrap_or_default(), true)).ok()?))
        };
        Self(fields.filter_map(pair).collect())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }

    /// The first field of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// All fields of that name, as boxes of one group send them.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// A field without blanks at its ends; empty where it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default().trim()
    }

    /// As `text`, absent where it is empty.
    pub fn filled(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    pub fn is_checked(&self, name: &str) -> bool {
        self.has(name)
    }

    /// Words between commas and blanks.
    pub fn words(&self, name: &str) -> Vec<String> {
        let words = self.text(name).split([',', ' ', '\t', '\r', '\n']);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }
}

/// As browsers write it, and no other way.
fn strictly(text: &[u8]) -> Option<String> {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let mut signs = (0..text.len()).filter(|at| text.get(*at) == Some(&b'%'));
    if !signs.all(|at| is_digit(text.get(at + 1)) && is_digit(text.get(at + 2))) {
        return None;
    }
    String::from_utf8(decoded(text, true)).ok()
}

/// A percent sign that is followed by no two digits stands for itself.
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

/// A value for a query.
pub fn encoded(text: &str) -> String {
    let stays = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/');
    text.bytes().map(|byte| if stays(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read() {
        let form = Form::read(b"name=a+b%C3%A4&&list=x%2C+y%0D%0Az&flag=on&name=second&empty=").unwrap();
        assert_eq!(form.text("name"), "a b\u{e4}");
        assert_eq!(form.words("list"), ["x", "y", "z"]);
        assert!(form.is_checked("flag") && !form.is_checked("other"));
        assert_eq!(form.filled("empty"), None);
        for bad in [&b"a=%"[..], b"a=%4", b"a=%zz", b"a=%ff", b"%80=a"] {
            assert!(Form::read(bad).is_none(), "{bad:?}");
        }
        assert!(Form::read(&b"a=1&".repeat(FIELDS_MAX)).is_some());
        assert!(Form::read(&b"a=1&".repeat(FIELDS_MAX + 1)).is_none());
    }

    #[test]
    fn what_is_encoded_is_read_again() {
        let name = "tank/a&b=c%\u{202e}\u{1f469}+\"<";
        assert_eq!(Form::read(format!("n={}", encoded(name)).as_bytes()).unwrap().text("n"), name);
    }

    #[test]
    fn forms_of_browsers() {
        let form = Form::read_leniently(b"a=1&name=x+y%20z&name=%c3%a4%&&flag&b=%f");
        assert_eq!((form.get("a"), form.get("flag"), form.get("b")), (Some("1"), Some(""), Some("%f")));
        assert!(form.has("flag") && !form.has("fla"));
        assert_eq!(form.all("name").collect::<Vec<_>>(), ["x y z", "\u{e4}%"]);
        assert_eq!(Form::read_leniently(b"n=%ff").get("n"), None, "no text");
        assert_eq!(Form::read_leniently(&b"a&".repeat(2 * NAMES_MAX)).0.len(), NAMES_MAX);
    }

    #[test]
    fn cookies_of_one_name() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", "a=1; larder=x; xlarder=z".parse().unwrap());
        headers.append("cookie", "larder=y=".parse().unwrap());
        assert_eq!(cookies(&headers, "larder").collect::<Vec<_>>(), ["x", "y="]);
    }
}
