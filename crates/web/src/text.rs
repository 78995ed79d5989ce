//! Values as people read them.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};
use chrono::DateTime;
use larder_base::units::ByteSize;
use larder_base::{Timestamp, printed};

/// The escaper of all templates (`html.all_escaped`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, dest: W, text: &str) -> fmt::Result {
        Html.write_escaped_str(dest, &printed::shown(text))
    }
}

pub fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// Bytes a second, in the decimal units of wires and disks.
pub fn rate(bytes_per_s: u64) -> String {
    let rate = bytes_per_s as f64;
    match rate {
        r if r >= 1e9 => format!("{:.2} GB/s", r / 1e9),
        r if r >= 9.95e6 => format!("{:.0} MB/s", r / 1e6),
        r if r >= 0.95e6 => format!("{:.1} MB/s", r / 1e6),
        r => format!("{:.0} kB/s", r / 1e3),
    }
}

/// Such as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count as u64), if count == 1 { one } else { many })
}

/// Whole percent, 0 to 100. Less than all is never 100, and more than nothing never 0.
pub fn percent(part: u64, whole: u64) -> u8 {
    if whole == 0 || part == 0 {
        return 0;
    }
    if part >= whole {
        return 100;
    }
    let rounded = (u128::from(part) * 200 + u128::from(whole)) / (u128::from(whole) * 2);
    u8::try_from(rounded.clamp(1, 99)).unwrap_or(99)
}

/// About how long, in the two largest units.
pub fn duration(secs: u64) -> String {
    let (days, hours, minutes) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, m) => format!("{m} min"),
        (0, h, 0) => format!("{h} h"),
        (0, h, m) => format!("{h} h {m} min"),
        (1, h, _) => format!("1 day {h} h"),
        (d, _, _) => counted(usize::try_from(d).unwrap_or(usize::MAX), "day", "days"),
    }
}

/// The day of the week in UTC.
pub fn weekday(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(DateTime::from_timestamp_millis);
    at.map(|at| at.format("%A").to_string()).unwrap_or_default()
}

/// A moment: for the machine, and in UTC for people. The script of the page shows it in the
/// browser's zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub machine: String,
    pub people: String,
}

impl Moment {
    /// Milliseconds since 1970; a moment that no calendar has is shown as its number.
    pub fn of_ms(ms: i64) -> Self {
        let Some(at) = DateTime::from_timestamp_millis(ms) else {
            return Self { machine: String::new(), people: format!("{ms} ms") };
        };
        Self {
            machine: at.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            people: at.format("%Y-%m-%d %H:%M UTC").to_string(),
        }
    }

    /// Of a file.
    pub fn of_stamp(at: Timestamp) -> Self {
        Self::of_ms(at.secs.saturating_mul(1000))
    }

    pub fn of_ms_unsigned(ms: u64) -> Self {
        Self::of_ms(i64::try_from(ms).unwrap_or(i64::MAX))
    }

    pub fn of_secs(secs: u64) -> Self {
        Self::of_ms(i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_and_steer_nothing() {
        let mut out = String::new();
        Visible.write_escaped_str(&mut out, "<b>\"'&\u{202e}gpj\n").unwrap();
        for raw in ['<', '>', '"', '\'', '\u{202e}', '\n'] {
            assert!(!out.contains(raw), "{out}");
        }
        assert!(out.contains("\\u{202e}gpj\\n"));
    }

    /// `html.all_escaped`: values that skip the escaper are templates, or go into a field that a
    /// form sends back, a name by which the script asks, or a file's own text.
    #[test]
    fn templates_leave_nothing_raw() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        let mut templates = Vec::new();
        for folder in [folder.to_owned(), format!("{folder}/parts"), format!("{folder}/files")] {
            let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            templates.extend(files.filter(|path| path.is_file()));
        }
        assert!(templates.len() > 10, "{templates:?}");
        for path in templates {
            let text = std::fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("|safe") {
                let value = &text[text[..at].rfind("{{ ").unwrap() + 3..at];
                assert!(
                    ["overview", "pools", "connections", "progress"].contains(&value),
                    "{}: {value} is raw",
                    path.display()
                );
            }
            for (at, _) in text.match_indices("|escape(") {
                let value = text[..at].rfind("{{ ").unwrap();
                let is_value = [" value=\"", " data-name=\""].iter().any(|before| text[..value].ends_with(before))
                    && text[at..].starts_with("|escape(\"exact\") }}\"");
                let is_area = text[..value].trim_end().ends_with('>')
                    && ["</textarea>", "</pre>"]
                        .iter()
                        .any(|after| text[at..].starts_with(&format!("|escape(\"exact\") }}}}{after}")));
                assert!(is_value || is_area, "{text}");
            }
        }
    }

    #[test]
    fn figures_for_people() {
        assert_eq!([percent(0, 9), percent(1, 9999), percent(9998, 9999), percent(9, 9)], [0, 1, 99, 100]);
        assert_eq!([percent(1, 0), percent(u64::MAX - 1, u64::MAX), percent(2, 1)], [0, 99, 100]);
        assert_eq!([grouped(0), grouped(999), grouped(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!(
            [duration(9), duration(600), duration(7200), duration(7260), duration(90_000), duration(900_000)],
            ["9 s", "10 min", "2 h", "2 h 1 min", "1 day 1 h", "10 days"]
        );
        assert_eq!(
            [rate(0), rate(940_000), rate(8_000_000), rate(31_400_000), rate(1_230_000_000)],
            ["0 kB/s", "940 kB/s", "8.0 MB/s", "31 MB/s", "1.23 GB/s"]
        );
        assert_eq!([weekday(0), weekday(1_700_000_000_000), weekday(u64::MAX)], ["Thursday", "Tuesday", ""]);
        assert_eq!(Moment::of_secs(0).machine, "1970-01-01T00:00:00Z");
        assert_eq!(Moment::of_secs(u64::MAX).machine, "");
    }
}
