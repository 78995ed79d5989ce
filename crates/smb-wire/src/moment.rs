//! Moments of the past: the times by which clients name snapshots.
//!
//! A client names one by a component `@GMT-YYYY.MM.DD-HH.MM.SS` anywhere in a path (MS-SMB2 2.2.32.2), or by the timewarp token
//! of a CREATE (MS-SMB2 2.2.13.2.7).
//!
//! - `moment.leads_the_path`: within the server the component of a path into the past is its first one, whichever way the client
//!   named the moment. So a file of the past and the file of today have different paths in every table.
//! - `moment.whole_seconds`: a moment is a second of UTC, because the component has no fractions.

/// Ticks of 100 ns from 1601-01-01, where FILETIME begins, to 1970-01-01.
pub const FILETIME_OFFSET: u64 = 116_444_736_000_000_000;

const PREFIX: &str = "@GMT-";
/// Characters of the component.
pub const LABEL_LEN: usize = 24;
const SECONDS_PER_DAY: i64 = 86_400;
const TICKS_PER_SECOND: u64 = 10_000_000;
/// From 1601-01-01T00:00:00 until, without, 10000-01-01T00:00:00, as the component and FILETIME can say it.
const RANGE: std::ops::Range<i64> = -11_644_473_600..253_402_300_800;

/// A second of UTC from the year 1601 to the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    unix_seconds: i64,
}

impl Moment {
    /// `None` for a second of another year.
    pub fn new(unix_seconds: i64) -> Option<Self> {
        RANGE.contains(&unix_seconds).then_some(Self { unix_seconds })
    }

    /// Seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// A timewarp token; 0 is none. Fractions of the second are dropped.
    pub fn from_filetime(ticks: u64) -> Option<Self> {
        if ticks == 0 {
            return None;
        }
        let seconds = i64::try_from(ticks / TICKS_PER_SECOND).ok()?;
        Self::new(seconds - (FILETIME_OFFSET / TICKS_PER_SECOND) as i64)
    }

    /// Of a component of a path. `None` if it is a name like others.
    pub fn from_label(label: &str) -> Option<Self> {
        let digits = label.strip_prefix(PREFIX).filter(|_| label.len() == LABEL_LEN && label.is_ascii())?;
        let field = |range: std::ops::Range<usize>| digits.get(range)?.parse::<i64>().ok();
        let (year, month, day) = (field(0..4)?, field(5..7)?, field(8..10)?);
        let (hour, minute, second) = (field(11..13)?, field(14..16)?, field(17..19)?);
        if !(1..=12).contains(&month) {
            return None;
        }
        let seconds = days_since_1970(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        // Days that the month lacks, a 61st minute, signs and wrong separators are not written back the same.
        Self::new(seconds).filter(|moment| moment.label() == label)
    }

    /// The component of a path that names it.
    pub fn label(self) -> String {
        let (year, month, day) = civil(self.unix_seconds.div_euclid(SECONDS_PER_DAY));
        let second = self.unix_seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{PREFIX}{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
    }
}

/// Of the Gregorian calendar, by years that begin in March, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month, day.
fn civil(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_seconds_of_utc() {
        for (label, seconds) in [
            ("@GMT-1970.01.01-00.00.00", 0),
            ("@GMT-2000.02.29-23.59.59", 951_868_799),
            ("@GMT-2026.11.25-13.00.01", 1_795_611_601),
            ("@GMT-1601.01.01-00.00.00", -11_644_473_600),
            ("@GMT-9999.12.31-23.59.59", 253_402_300_799),
        ] {
            let moment = Moment::from_label(label).unwrap();
            assert_eq!(moment.unix_seconds(), seconds, "{label}");
            assert_eq!(moment.label(), label);
        }
        for days in (-134_774..2_932_896).step_by(97) {
            let moment = Moment::new(days * SECONDS_PER_DAY + days.rem_euclid(SECONDS_PER_DAY)).unwrap();
            assert_eq!(Moment::from_label(&moment.label()), Some(moment));
        }
    }

    #[test]
    fn anything_else_is_a_name() {
        for name in [
            "",
            "@GMT-",
            "@gmt-2026.11.25-13.00.01",
            "@GMT-2026.11.25-13.00.01x",
            "@GMT-2026.11.25-13.00.1",
            "@GMT-2026-11-25-13.00.01",
            "@GMT-2026.13.25-13.00.01",
            "@GMT-2026.00.25-13.00.01",
            "@GMT-2026.02.29-13.00.01",
            "@GMT-2026.11.25-24.00.01",
            "@GMT-2026.11.25-13.60.01",
            "@GMT-2026.11.25-13.00.60",
            "@GMT--026.11.25-13.00.01",
            "@GMT-+026.11.25-13.00.01",
            "@GMT-0000.01.01-00.00.00",
            "@GMT-1600.12.31-23.59.59",
            "@GMT-2026.11.25-13.00.0é",
            "@GMT-2026.11.2é-13.00.01",
        ] {
            assert_eq!(Moment::from_label(name), None, "{name}");
        }
    }

    #[test]
    fn tokens_are_file_times() {
        let moment = Moment::from_label("@GMT-2026.11.25-13.00.01").unwrap();
        let ticks = FILETIME_OFFSET + 1_795_611_601 * TICKS_PER_SECOND;
        assert_eq!(Moment::from_filetime(ticks), Some(moment));
        assert_eq!(Moment::from_filetime(ticks + TICKS_PER_SECOND - 1), Some(moment));
        assert_eq!(Moment::from_filetime(1), Moment::new(-11_644_473_600));
        for none in [0, u64::MAX, i64::MAX as u64] {
            assert_eq!(Moment::from_filetime(none), None);
        }
    }
}
