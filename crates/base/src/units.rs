//! Sizes as people write and read them.

use std::fmt;
use std::str::FromStr;

/// A count of bytes. Displays with a binary unit and three significant digits (`1.50 TiB`);
/// parses `4096`, `128K`, `1.5TiB`, `2TB` (K, M, ... and KiB, MiB, ... are binary; KB, MB, ... decimal).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = if unit == 0 || value >= 99.95 {
            0
        } else if value >= 9.995 {
            1
        } else {
            2
        };
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

impl ByteSize {
    /// The shortest text that is read as exactly this many bytes.
    pub fn exact(self) -> String {
        let binary = UNITS.iter().zip(0..).map(|(unit, power)| (1024u64.pow(power), *unit));
        let decimal = ["KB", "MB", "GB", "TB", "PB", "EB"].into_iter().zip(1..);
        let decimal = decimal.map(|(unit, power)| (1000u64.pow(power), unit));
        let fits = binary.chain(decimal).filter(|(bytes, _)| self.0 != 0 && self.0.is_multiple_of(*bytes));
        match fits.max() {
            Some((bytes, unit)) if bytes > 1 => format!("{}{unit}", self.0 / bytes),
            _ => self.0.to_string(),
        }
    }
}

/// A size that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a size: write a number with an optional unit, such as 4096, 128K, 1.5TiB or 2TB")]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseSizeError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim().to_ascii_uppercase();
        let factor = multiplier(&unit).ok_or_else(fail)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(ByteSize).ok_or_else(fail);
        }
        let value = number.parse::<f64>().map_err(|_| fail())? * factor as f64;
        if value.is_finite() && value < u64::MAX as f64 { Ok(ByteSize(value as u64)) } else { Err(fail()) }
    }
}

fn multiplier(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let power = "KMGTPE".find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "IB" => 1024u64.checked_pow(power),
        "B" => 1000u64.checked_pow(power),
        _ => None,
    }
}

/// Seconds; displays as `0:07`, `12:34` or `3:25:45`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(pub u64);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds) = (self.0 / 3600, self.0 / 60 % 60, self.0 % 60);
        if hours > 0 { write!(f, "{hours}:{minutes:02}:{seconds:02}") } else { write!(f, "{minutes}:{seconds:02}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print() {
        for (seconds, text) in [(7, "0:07"), (754, "12:34"), (12_345, "3:25:45")] {
            assert_eq!(Elapsed(seconds).to_string(), text);
        }
    }

    #[test]
    fn sizes_parse_and_print() {
        let check = |text: &str, bytes: u64| assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        check("4096", 4096);
        check("128K", 128 << 10);
        check("1.5TiB", 3 << 39);
        check("2 TB", 2_000_000_000_000);
        for bad in ["", "x", "1.5.2G", "5Q", "99999999E", "-1", "1KiX"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
        for (bytes, text) in
            [(0, "0 B"), (1023, "1.00 KiB"), (1536, "1.50 KiB"), (3 << 39, "1.50 TiB"), (100 << 30, "100 GiB")]
        {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        for text in ["0", "1023", "1KiB", "1536", "15TiB", "2TB", "1025KB", "3MB", "7EiB", "18446744073709551615"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().exact(), text);
        }
    }
}
