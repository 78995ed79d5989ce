//! CBOR (RFC 8949) as authenticators write it: definite lengths, shallow, no floats (CTAP 2.1, 8: canonical form).

/// Deeper than any attestation.
const DEPTH_MAX: usize = 8;
/// Entries of one array or map.
const ENTRIES_MAX: u64 = 64;

#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    Array(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// false, true, null, undefined.
    Simple(u8),
}

impl<'a> Value<'a> {
    /// The first value, and the bytes behind it.
    pub fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        value(bytes, 0)
    }

    /// The entry of a map with an integer key.
    pub fn at(&self, key: i64) -> Option<&Self> {
        self.entry(|found| *found == Value::Int(key))
    }

    /// The entry of a map with a text key.
    pub fn named(&self, key: &str) -> Option<&Self> {
        self.entry(|found| *found == Value::Text(key))
    }

    fn entry(&self, is_it: impl Fn(&Value<'a>) -> bool) -> Option<&Self> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    }

    pub fn int(&self) -> Option<i64> {
        if let Value::Int(int) = self { Some(*int) } else { None }
    }

    pub fn bytes(&self) -> Option<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub fn text(&self) -> Option<&'a str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }
}

/// RFC 8949 3: the major type, its argument, and the bytes behind.
fn head(bytes: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (kind, short) = (first >> 5, first & 31);
    let (argument, rest) = match short {
        0..24 => (u64::from(short), rest),
        24 => rest.split_first().map(|(byte, rest)| (u64::from(*byte), rest))?,
        25 => rest.split_first_chunk().map(|(bytes, rest)| (u64::from(u16::from_be_bytes(*bytes)), rest))?,
        26 => rest.split_first_chunk().map(|(bytes, rest)| (u64::from(u32::from_be_bytes(*bytes)), rest))?,
        27 => rest.split_first_chunk().map(|(bytes, rest)| (u64::from_be_bytes(*bytes), rest))?,
        _ => return None,
    };
    Some((kind, argument, rest))
}

fn value(bytes: &[u8], depth: usize) -> Option<(Value<'_>, &[u8])> {
    if depth > DEPTH_MAX {
        return None;
    }
    let (kind, argument, mut rest) = head(bytes)?;
    let value = match kind {
        0 => Value::Int(i64::try_from(argument).ok()?),
        1 => Value::Int(-1 - i64::try_from(argument).ok()?),
        2 | 3 => {
            let (text, behind) = rest.split_at_checked(usize::try_from(argument).ok()?)?;
            rest = behind;
            if kind == 2 { Value::Bytes(text) } else { Value::Text(std::str::from_utf8(text).ok()?) }
        }
        4 | 5 if argument > ENTRIES_MAX => return None,
        4 => {
            let mut all = Vec::new();
            for _ in 0..argument {
                let (one, behind) = self::value(rest, depth + 1)?;
                all.push(one);
                rest = behind;
            }
            Value::Array(all)
        }
        5 => {
            let mut all = Vec::new();
            for _ in 0..argument {
                let (key, behind) = self::value(rest, depth + 1)?;
                let (one, behind) = self::value(behind, depth + 1)?;
                // RFC 8949 5.6: a map with a key twice is not valid, and readers differ about it.
                if all.iter().any(|(other, _)| *other == key) {
                    return None;
                }
                all.push((key, one));
                rest = behind;
            }
            Value::Map(all)
        }
        // Behind a longer head are floats.
        7 if bytes.first().is_some_and(|first| first & 31 < 24) => Value::Simple(u8::try_from(argument).ok()?),
        _ => return None,
    };
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8949, appendix A.
    #[test]
    fn examples_of_the_standard() {
        let read =
            |text: &str| Value::read(&larder_base::hex::decode(text).unwrap().leak()[..]).map(|(value, _)| value);
        for (text, int) in
            [("00", 0), ("17", 23), ("1818", 24), ("1903e8", 1000), ("1a000f4240", 1_000_000), ("3903e7", -1000)]
        {
            assert_eq!(read(text), Some(Value::Int(int)));
        }
        assert_eq!(read("1b7fffffffffffffff"), Some(Value::Int(i64::MAX)));
        assert_eq!(read("4401020304"), Some(Value::Bytes(&[1, 2, 3, 4])));
        assert_eq!(read("6449455446"), Some(Value::Text("IETF")));
        let map = read("a26161016162820203").unwrap();
        assert_eq!((map.named("a"), map.named("c"), map.at(1)), (Some(&Value::Int(1)), None, None));
        assert_eq!(read("a201020304").unwrap().at(3).and_then(Value::int), Some(4));
        assert_eq!(read("f5"), Some(Value::Simple(21)));
        assert_eq!(Value::read(&[1, 2, 3]).unwrap().1, [2, 3]);
    }

    #[test]
    fn strange_bytes_are_refused() {
        let deep = [vec![0x81; 20], vec![0]].concat();
        let wide = [vec![0x98, 0xff], vec![0; 255]].concat();
        for bytes in [
            &[][..],
            &[0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x5f, 0x41, 0, 0xff],
            &[0x61, 0xff],
            &[0xa1, 0],
            &[0xa2, 1, 2, 1, 3],
            &[0xfb, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xc0, 0],
            &[0x1c],
            &deep,
            &wide,
        ] {
            assert!(Value::read(bytes).is_none(), "{bytes:?}");
        }
    }
}
