//! Names of directory entries.

use crate::{FsError, FsResult, NAME_BYTES_MAX};

/// A name that a directory could hold; `.` and `..` pass.
pub fn check_name(name: &[u8]) -> FsResult<()> {
    if name.is_empty() {
        return Err(FsError::Invalid("a name must not be empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(FsError::Invalid("a name must hold neither '/' nor a zero byte"));
    }
    Ok(())
}

/// `.` or `..`.
pub fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// A name that may be made: `.` and `..` always exist.
pub fn check_new_name(name: &[u8]) -> FsResult<()> {
    check_name(name)?;
    if is_dots(name) { Err(FsError::Exists) } else { Ok(()) }
}

/// Of every directory in a volume that has snapshots: leads to what the directory was in each. The volume does not list it. An entry that a user made
/// under this name goes first.
pub const SNAPSHOTS_NAME: &[u8] = b".snapshots";

/// `name` with case removed, as SMB compares names: each character to upper case and then to lower
/// case, where that is one character each (simple folding). The upper-case step unites what only
/// shares a capital (sigma and final sigma, long s and s), as the upcase table of Windows does; the
/// standard library's tables suffice and follow Unicode with the toolchain. Names that are not
/// UTF-8 fold as ASCII.
pub fn fold(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => text.chars().map(fold_char).collect::<String>().into_bytes(),
        _ => name.to_ascii_lowercase(),
    }
}

fn fold_char(c: char) -> char {
    single(single(c, char::to_uppercase), char::to_lowercase)
}

/// `map(c)` where it is one character, `c` otherwise.
fn single<I: Iterator<Item = char>>(c: char, map: fn(char) -> I) -> char {
    let mut mapped = map(c);
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding() {
        let check = |a: &str, b: &str| assert_eq!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
        check("README.TXT", "readme.txt");
        check("Straße", "STRAßE");
        check("ΣΊΣΥΦΟΣ", "σίσυφος");
        check("Ünïcödé", "üNÏCÖDÉ");
        check("ДОМ", "дом");
        assert_ne!(fold("ß".as_bytes()), fold(b"ss"));
        assert_eq!(fold(b"\xffABC"), b"\xffabc");
    }
}
