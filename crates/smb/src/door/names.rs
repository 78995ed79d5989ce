//! Names as SMB clients spell them, and as the volume stores them.
//!
//! A volume stores names as bytes; anything but `/` and NUL may stand in them. SMB names are UTF-16 and
//! may not hold control characters, `" * : < > ? \ |`, nor end in a space or a dot (MS-FSCC 2.1.5.2).
//! Characters that do not fit are shown in the private use area of Unicode, at the places that Services for
//! Macintosh chose and that the Linux client, macOS and Samba (`fruit:encoding = native`) use too:
//!
//! | stored | shown |
//! |---|---|
//! | 0x01 to 0x1f | U+F001 to U+F01F |
//! | `"` `*` `:` `<` `>` `?` `\` `\|` | U+F020 to U+F027 |
//! | a space, a dot at the end | U+F028, U+F029 |
//! | a byte 0x80 to 0xff that is no UTF-8 | U+F080 to U+F0FF |
//!
//! - `names.listed_is_found`: a lookup finds every name that a listing shows. [`stored`] undoes
//!   [`shown`] for every name without private characters of its own. A name with such characters
//!   (written by a server that stores them as they are) is shown as it is and found by its second
//!   spelling, [`verbatim`]. If it also holds other characters that do not fit, that spelling would
//!   not be the name, and its private characters are shown byte by byte.

use std::borrow::Cow;

/// Characters that Windows forbids in names. They are mapped to U+F020 and on, in this order.
const RESERVED: [u8; 8] = [b'"', b'*', b':', b'<', b'>', b'?', b'\\', b'|'];
const RESERVED_AT: u32 = 0xf020;
const FINAL_SPACE: char = '\u{f028}';
const FINAL_DOT: char = '\u{f029}';
/// A byte or control character `b` is shown as this plus `b`.
const BYTES_AT: u32 = 0xf000;

/// The name to show for a stored name.
pub fn shown(name: &[u8]) -> String {
    let seen = spell(name, false);
    let private = seen.as_bytes() != name && name.utf8_chunks().any(|chunk| chunk.valid().chars().any(is_private));
    if private { spell(name, true) } else { seen }
}

/// [`shown`], with the private characters that the name itself holds as they are, or as their `bytes`.
fn spell(name: &[u8], bytes: bool) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    let show_byte = |&b: &u8| private(BYTES_AT + u32::from(b));
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if bytes && is_private(c) {
                out.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(show_byte));
            } else {
                out.push(show_char(c));
            }
        }
        out.extend(chunk.invalid().iter().map(show_byte));
    }
    match out.pop() {
        Some(' ') => out.push(FINAL_SPACE),
        Some('.') => out.push(FINAL_DOT),
        Some(last) => out.push(last),
        None => {}
    }
    out
}

/// The name to store, or to look up, for one that a client sent.
pub fn stored(name: &str) -> Cow<'_, [u8]> {
    if !name.chars().any(is_private) {
        return Cow::Borrowed(name.as_bytes());
    }
    let mut out = Vec::with_capacity(name.len());
    for c in name.chars() {
        match store_char(c) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

/// The second spelling to look up: the name as it came, where [`stored`] differs from it.
pub fn verbatim(name: &str) -> Option<&[u8]> {
    name.chars().any(is_private).then_some(name.as_bytes())
}

fn show_char(c: char) -> char {
    match u8::try_from(c) {
        Ok(b @ 0x01..=0x1f) => private(BYTES_AT + u32::from(b)),
        Ok(b) => match RESERVED.iter().position(|&r| r == b) {
            Some(at) => private(RESERVED_AT + at as u32),
            None => c,
        },
        Err(_) => c,
    }
}

fn store_char(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0xf001..=0xf01f | 0xf080..=0xf0ff => u8::try_from(code - BYTES_AT).ok(),
        0xf020..=0xf027 => RESERVED.get((code - RESERVED_AT) as usize).copied(),
        0xf028 => Some(b' '),
        0xf029 => Some(b'.'),
        _ => None,
    }
}

fn is_private(c: char) -> bool {
    store_char(c).is_some()
}

fn private(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_windows_refuses_are_shown_in_the_private_area() {
        for (name, seen) in [
            (&b"plain.txt"[..], "plain.txt"),
            (b"a:b", "a\u{f022}b"),
            (b"\"*:<>?\\|", "\u{f020}\u{f021}\u{f022}\u{f023}\u{f024}\u{f025}\u{f026}\u{f027}"),
            (b"tail ", "tail\u{f028}"),
            (b"tail.", "tail\u{f029}"),
            (b"a. b", "a. b"),
            (b"tab\there", "tab\u{f009}here"),
            (b"latin \xe9t\xe9", "latin \u{f0e9}t\u{f0e9}"),
            ("été".as_bytes(), "été"),
        ] {
            assert_eq!(shown(name), seen);
            assert_eq!(stored(seen).as_ref(), name);
        }
    }

    #[test]
    fn a_private_character_that_is_stored_has_a_second_spelling() {
        assert_eq!(verbatim("a\u{f022}"), Some("a\u{f022}".as_bytes()));
        assert_eq!(verbatim("a:b"), None);
    }

    /// A byte, a character of the private area, or one that does not fit, as bytes of a name.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let utf8 = |c: char| c.to_string().into_bytes();
        prop_oneof![
            (1u8..=255).prop_filter("/ separates names", |&b| b != b'/').prop_map(|b| vec![b]),
            (0xf001u32..=0xf0ff).prop_map(move |code| utf8(private(code))),
            prop::sample::select(vec![' ', '.', ':', '\u{1}', 'é']).prop_map(utf8),
        ]
    }

    proptest! {
        #[test]
        fn what_is_shown_is_found(pieces in proptest::collection::vec(piece(), 1..40)) {
            let name = pieces.concat();
            let seen = shown(&name);
            prop_assert!(stored(&seen).as_ref() == name || verbatim(&seen) == Some(&name));
            prop_assert!(!seen.chars().any(|c| c < ' ' || "\"*:<>?\\|".contains(c)));
            prop_assert!(!seen.ends_with([' ', '.']));
        }
    }
}
