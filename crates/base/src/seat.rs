//! Seats at a store: each machine that serves volumes of one store has its own, and each volume belongs to one of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of the seat of a machine that names none.
const FIRST: &str = "first";
const NAME_BYTES_MAX: usize = 32;

/// The name of a seat: 1 to 32 bytes of `[a-z0-9_.-]`, beginning with a letter or digit. The default is the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Seat(Option<String>);

/// A text that names no seat.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no name of a seat: write 1 to 32 of a-z, 0-9, '_', '.', '-', beginning with a letter or digit")]
pub struct NoSeat(String);

impl Seat {
    /// The seat of a machine that names none, and of every volume of a store with one machine.
    pub fn is_first(&self) -> bool {
        self.0.is_none()
    }

    /// Its name, unless it is the first.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl FromStr for Seat {
    type Err = NoSeat;

    fn from_str(text: &str) -> Result<Self, NoSeat> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        match begins && text.len() <= NAME_BYTES_MAX && text.bytes().all(legal) {
            true => Ok(Self((text != FIRST).then(|| text.to_owned()))),
            false => Err(NoSeat(text.chars().take(NAME_BYTES_MAX).collect())),
        }
    }
}

impl TryFrom<String> for Seat {
    type Error = NoSeat;

    fn try_from(text: String) -> Result<Self, NoSeat> {
        text.parse()
    }
}

impl From<Seat> for String {
    fn from(seat: Seat) -> Self {
        seat.to_string()
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or(FIRST))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names() {
        assert!("first".parse::<Seat>().unwrap().is_first());
        assert_eq!("b.2-x_".parse::<Seat>().unwrap().to_string(), "b.2-x_");
        for bad in ["", ".", "../x", "A", "a/b", &"x".repeat(33)] {
            assert!(bad.parse::<Seat>().is_err(), "{bad}");
        }
    }
}
