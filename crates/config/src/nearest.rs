//! The known word that a person meant.

/// Longer words are not compared: the time grows with the product of their lengths.
const CHARS_MAX: usize = 64;

/// The known word nearest to `word`, if it is near enough to be meant: a letter in three is wrong at most.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = word.to_lowercase().chars().take(CHARS_MAX + 1).collect();
    if letters.is_empty() || letters.len() > CHARS_MAX {
        return None;
    }
    let mistakes_max = letters.len().div_ceil(3);
    let candidates = known.into_iter().filter_map(|known| {
        let other: Vec<char> = known.to_lowercase().chars().take(CHARS_MAX + 1).collect();
        (other.len() <= CHARS_MAX).then(|| (mistakes(&letters, &other), known))
    });
    let (found, known) = candidates.min_by_key(|(mistakes, _)| *mistakes)?;
    (found <= mistakes_max && found < letters.len()).then_some(known)
}

/// Letters to insert, remove, replace or exchange with their neighbour (optimal string alignment).
fn mistakes(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut table = vec![0; (a.len() + 1) * width];
    let cell = |row: usize, column: usize| row * width + column;
    for row in 0..=a.len() {
        for column in 0..=b.len() {
            let value = match (row, column) {
                (0, n) | (n, 0) => n,
                _ => {
                    let is_other = usize::from(a[row - 1] != b[column - 1]);
                    let one = (table[cell(row - 1, column)] + 1).min(table[cell(row, column - 1)] + 1);
                    let best = one.min(table[cell(row - 1, column - 1)] + is_other);
                    let is_swapped =
                        row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1];
                    if is_swapped { best.min(table[cell(row - 2, column - 2)] + 1) } else { best }
                }
            };
            table[cell(row, column)] = value;
        }
    }
    table[cell(a.len(), b.len())]
}

/// A complaint of the parser about keys, in words for people: "unknown field `valume`, expected one of `name`,
/// `volume`".
pub(super) fn plainly(complaint: &str) -> String {
    if let Some(rest) = complaint.strip_prefix("missing field `") {
        return format!("the key `{}` is missing", rest.trim_end_matches('`'));
    }
    let Some((word, expected)) = complaint.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, "))
    else {
        return numbers_plainly(complaint);
    };
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    if let Some(way) = way_of_secret(word, &known) {
        return format!("unknown key `{word}`: secrets are never in this file; {way}");
    }
    match nearest(word, known.iter().copied()) {
        Some(known) => format!("unknown key `{word}`, did you mean `{known}`?"),
        None if known.is_empty() => format!("unknown key `{word}`: no key is known here"),
        None => format!("unknown key `{word}`: the keys here are {}", known.join(", ")),
    }
}

/// "expected u32" in words.
fn numbers_plainly(complaint: &str) -> String {
    let kinds = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0 on"),
        ("expected usize", "expected a whole number from 0 on"),
        ("expected f64", "expected a number"),
    ];
    let found = kinds.iter().find_map(|(kind, words)| Some(format!("{}{words}", complaint.strip_suffix(kind)?)));
    found.unwrap_or_else(|| complaint.to_owned())
}

/// How a secret is given that somebody wrote into the file, where the keys are `known`.
fn way_of_secret(word: &str, known: &[&str]) -> Option<String> {
    const WORDS: [&str; 10] = [
        "password",
        "passwd",
        "passphrase",
        "token",
        "secret",
        "key",
        "secret_key",
        "access_key",
        "access_key_id",
        "secret_access_key",
    ];
    if !WORDS.contains(&word) {
        return None;
    }
    let from: Vec<&str> = [format!("{word}_file"), format!("{word}_command")]
        .iter()
        .filter_map(|key| known.iter().find(|known| *known == key).copied())
        .collect();
    match from.as_slice() {
        [] if known.contains(&"ssh_keys") => Some("set a user's password with: larder user passwd NAME".to_owned()),
        [] if known.contains(&"endpoint") => {
            Some("keys of a bucket come from the environment, a profile, or the machine's role".to_owned())
        }
        [] => None,
        [file] => Some(format!("name a file with `{file}`")),
        [file, command, ..] => Some(format!("name a file with `{file}`, or a command with `{command}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_others_are_not() {
        let known = ["volume", "users", "read_only", "read_only_users"];
        let check = |word: &str, want: Option<&str>| assert_eq!(nearest(word, known), want, "{word}");
        check("valume", Some("volume"));
        check("vloume", Some("volume"));
        check("Volume", Some("volume"));
        check("user", Some("users"));
        check("readonly", Some("read_only"));
        check("x", None);
        check("", None);
        check("shares", None);
        check(&"v".repeat(1 << 20), None);
    }

    #[test]
    fn complaints_about_keys_are_plain() {
        let check = |complaint: &str, want: &str| assert_eq!(plainly(complaint), want);
        check("unknown field `nsf`, expected one of `nfs`, `smb`", "unknown key `nsf`, did you mean `nfs`?");
        check("unknown field `a`, expected `days`", "unknown key `a`: the keys here are days");
        check("unknown field `a`, there are no fields", "unknown key `a`: no key is known here");
        check("unknown field `", "unknown field `");
        check("missing field `disks`", "the key `disks` is missing");
        check("invalid type: integer `5`, expected a string", "invalid type: integer `5`, expected a string");
        check(
            "invalid value: integer `-1`, expected u32",
            "invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
        );
    }

    #[test]
    fn secrets_in_the_file_are_told_where_they_belong() {
        let check = |complaint: &str, want: &str| {
            let said = plainly(complaint);
            assert!(said.contains("secrets are never in this file") && said.contains(want), "{said}");
        };
        check("unknown field `password`, expected one of `name`, `ssh_keys`", "larder user passwd NAME");
        check(
            "unknown field `token`, expected one of `url`, `token_file`, `token_command`",
            "name a file with `token_file`, or a command with `token_command`",
        );
        check("unknown field `secret_key`, expected one of `url`, `endpoint`", "come from the environment");
        check(
            "unknown field `password`, expected one of `address`, `password_file`",
            "name a file with `password_file`",
        );
        let said = plainly("unknown field `key`, expected one of `disks`, `scrub`");
        assert!(said.ends_with("the keys here are disks, scrub"), "{said}");
    }
}
