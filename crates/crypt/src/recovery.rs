//! The recovery key: 256 random bits that are printed once, to be kept on paper.
//!
//! In Crockford's base 32 (no I, L, O, U), eleven groups of five: 52 digits of the key and three that check them.

use aws_lc_rs::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::SealError;
use crate::keys::fill_random;

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const KEY_DIGITS: usize = 52;
const CHECK_DIGITS: usize = 3;
const GROUP: usize = 5;

/// Opens a volume when nothing else does.
pub struct RecoveryKey(Zeroizing<[u8; 32]>);

impl RecoveryKey {
    pub fn random() -> Result<Self, SealError> {
        let mut bytes = Zeroizing::new([0; 32]);
        fill_random(&mut *bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// As it is printed.
    pub fn text(&self) -> Zeroizing<String> {
        let mut digits = Zeroizing::new(Vec::with_capacity(KEY_DIGITS + CHECK_DIGITS));
        // 52 digits hold 260 bits: the last four are 0.
        for at in 0..KEY_DIGITS {
            let value = (0..5).fold(0, |value, bit| value << 1 | self.bit(5 * at + bit));
            digits.push(DIGITS[value]);
        }
        digits.extend(self.check().map(|value| DIGITS[value]));
        let groups = digits.chunks(GROUP).map(|group| String::from_utf8_lossy(group).into_owned());
        Zeroizing::new(groups.collect::<Vec<_>>().join("-"))
    }

    /// Reads what a person typed: case, spaces and hyphens do not count, and letters that look like digits are those. `None`: it is
    /// no recovery key, or has a typing error.
    pub fn parse(text: &str) -> Option<Self> {
        let typed = text.chars().filter(|c| !c.is_whitespace() && *c != '-');
        let values: Option<Zeroizing<Vec<usize>>> = typed.map(value_of).collect::<Option<Vec<_>>>().map(Zeroizing::new);
        let values = values.filter(|values| values.len() == KEY_DIGITS + CHECK_DIGITS)?;
        let mut key = Self(Zeroizing::new([0; 32]));
        for (at, value) in values[..KEY_DIGITS].iter().enumerate() {
            for bit in 0..5 {
                let (to, set) = (5 * at + bit, value >> (4 - bit) & 1);
                match key.0.get_mut(to / 8) {
                    Some(byte) => *byte |= (set as u8) << (7 - to % 8),
                    None if set == 0 => {}
                    None => return None,
                }
            }
        }
        (key.check()[..] == values[KEY_DIGITS..]).then_some(key)
    }

    fn bit(&self, at: usize) -> usize {
        self.0.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1))
    }

    /// 15 bits of the key's SHA-256.
    fn check(&self) -> [usize; CHECK_DIGITS] {
        let hash = digest(&SHA256, &self.0[..]);
        let bits = hash.as_ref().iter().take(2).fold(0, |bits, &byte| bits << 8 | usize::from(byte)) >> 1;
        [bits >> 10 & 31, bits >> 5 & 31, bits & 31]
    }
}

impl std::fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryKey")
    }
}

fn value_of(typed: char) -> Option<usize> {
    let digit = match typed.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    DIGITS.iter().position(|&known| char::from(known) == digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back_however_it_is_typed() {
        for _ in 0..50 {
            let key = RecoveryKey::random().expect("random");
            let text = key.text();
            assert_eq!(text.len(), 11 * 5 + 10);
            let typed = text.to_lowercase().replace('-', " ").replace('0', "o").replace('1', "l");
            for text in [text.as_str(), &typed] {
                assert_eq!(RecoveryKey::parse(text).expect("parses").bytes(), key.bytes());
            }
        }
    }

    #[test]
    fn a_typing_error_is_noticed() {
        let text = RecoveryKey(Zeroizing::new([0x5a; 32])).text();
        let mut noticed = 0;
        for at in (0..text.len()).filter(|&at| text.as_bytes()[at] != b'-') {
            let mut wrong = text.as_bytes().to_vec();
            wrong[at] = if wrong[at] == b'X' { b'Y' } else { b'X' };
            let wrong = String::from_utf8(wrong).expect("ASCII");
            noticed += usize::from(RecoveryKey::parse(&wrong).is_none());
        }
        assert!(noticed >= 54, "{noticed} of 55");
        for wrong in ["", "ABCDE", &text[..text.len() - 1], &format!("{}0", text.as_str())] {
            assert!(RecoveryKey::parse(wrong).is_none());
        }
    }
}
