//! Forms as browsers send them (`application/x-www-form-urlencoded`, WHATWG URL 5.1), in bodies and in queries.

/// More fields than any form of the page has.
const FIELDS_MAX: usize = 256;

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
            fields.push((decoded(name)?, decoded(value.get(1..).unwrap_or_default())?));
        }
        Some(Self(fields))
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
        self.get(name).is_some()
    }

    /// Words between commas and blanks.
    pub fn words(&self, name: &str) -> Vec<String> {
        let words = self.text(name).split([',', ' ', '\t', '\r', '\n']);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }
}

fn decoded(text: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|digit| char::from(*digit).to_digit(16));
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            byte => *byte,
        });
    }
    String::from_utf8(out).ok()
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
}
