//! How strong a password is, roughly: enough to tell a person, and to refuse what is guessed at once.

/// Below this many bits a guesser of ten tries a minute is in within days, and one with the hashes at once.
const WEAK_BITS: f64 = 30.0;
const FAIR_BITS: f64 = 45.0;
const GOOD_BITS: f64 = 64.0;

/// What everybody tries first.
const COMMON: [&str; 28] = [
    "password",
    "passwort",
    "passw0rd",
    "12345678",
    "123456789",
    "1234567890",
    "qwertyui",
    "qwertyuiop",
    "qwertzui",
    "qwertzuiop",
    "iloveyou",
    "sunshine",
    "princess",
    "football",
    "baseball",
    "welcome1",
    "letmein1",
    "admin123",
    "password1",
    "password123",
    "abc12345",
    "trustno1",
    "superman",
    "changeme",
    "secret123",
    "computer",
    "starwars",
    "11111111",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    Weak,
    Fair,
    Good,
    Strong,
}

impl Strength {
    pub fn word(self) -> &'static str {
        match self {
            Self::Weak => "weak: it is guessed soon",
            Self::Fair => "fair: enough in a home network, not beyond it",
            Self::Good => "good",
            Self::Strong => "strong",
        }
    }
}

/// `names`: of user and box, which everybody knows.
pub fn strength(password: &str, names: &[&str]) -> Strength {
    let low = password.to_lowercase();
    let mut rest = low.clone();
    for known in names.iter().map(|name| name.to_lowercase()).filter(|name| name.chars().count() > 2) {
        rest = rest.replace(&known, "");
    }
    let is_common = COMMON.contains(&low.as_str()) || COMMON.contains(&rest.as_str());
    let bits = if is_common { 0.0 } else { bits(password, &rest) };
    match bits {
        b if b < WEAK_BITS => Strength::Weak,
        b if b < FAIR_BITS => Strength::Fair,
        b if b < GOOD_BITS => Strength::Good,
        _ => Strength::Strong,
    }
}

/// Each character counts by the kinds in use, and little where it goes on from the one before (`aaaa`, `1234`).
fn bits(password: &str, rest: &str) -> f64 {
    let has = |test: fn(char) -> bool| password.chars().any(test);
    let kinds = [
        (has(|c| c.is_ascii_lowercase()), 26.0),
        (has(|c| c.is_ascii_uppercase()), 26.0),
        (has(|c| c.is_ascii_digit()), 10.0),
        (has(|c| c.is_ascii_punctuation() || c == ' '), 33.0),
        (has(|c| !c.is_ascii()), 100.0),
    ];
    let alphabet: f64 = kinds.iter().filter(|(there, _)| *there).map(|(_, size)| size).sum();
    let mut bits = 0.0;
    let mut before: Option<char> = None;
    for c in rest.chars() {
        let goes_on = before.is_some_and(|before| u32::from(before).abs_diff(u32::from(c)) <= 1);
        bits += if goes_on { 1.0 } else { alphabet.max(2.0).log2() };
        before = Some(c);
    }
    // Words of people have far less in them than random letters.
    bits * 0.75
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guessed_first_is_weak() {
        for (password, at_most) in [
            ("", Strength::Weak),
            ("hunter2", Strength::Weak),
            ("password", Strength::Weak),
            ("PassWord1", Strength::Weak),
            ("aaaaaaaaaaaaaaaa", Strength::Weak),
            ("1234567890123", Strength::Weak),
            ("annannann", Strength::Weak),
            ("ann-password", Strength::Fair),
            ("Pantry-Shelf", Strength::Good),
        ] {
            assert!(strength(password, &["ann", "nas"]) <= at_most, "{password}: {:?}", strength(password, &["ann"]));
        }
        for (password, at_least) in [
            ("Pantry-Shelf-42", Strength::Good),
            ("correct horse battery staple", Strength::Strong),
            ("Zw8!kq-Lp3v", Strength::Fair),
        ] {
            assert!(strength(password, &["ann"]) >= at_least, "{password}: {:?}", strength(password, &["ann"]));
        }
    }
}
