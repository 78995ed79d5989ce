//! Bytes as hexadecimal digits, two a byte.

/// In lower case.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |text, byte| text + &format!("{byte:02x}"))
}

/// `None` for an odd number of digits, and for what is none. Either case is read.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| u8::try_from(pair.iter().fold(0, |all, digit| all << 4 | digit)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_through() {
        assert_eq!(encode(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(decode("001fFf"), Some(vec![0, 0x1f, 0xff]));
        assert_eq!(decode(""), Some(Vec::new()));
        for bad in ["0", "0g", "+f", "é0"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
