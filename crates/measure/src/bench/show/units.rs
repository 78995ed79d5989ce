//! Numbers as people read them. One unit per quantity, everywhere: rates in MB/s of 10^6 bytes as bench tools
//! write them, sizes in KiB of 2^10 bytes, times of requests in microseconds or milliseconds.

/// The sign for an unknown value.
pub(crate) const UNKNOWN: &str = "-";

/// The unit of an axis or a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes per second, shown as MB/s.
    Rate,
    /// Operations per second.
    Iops,
    /// Files per second.
    Files,
    /// Microseconds.
    Latency,
    /// Bytes, in powers of two.
    Size,
    Seconds,
    Percent,
    Celsius,
    Megahertz,
    Watts,
    Milliseconds,
    Count,
    /// Times.
    Ratio,
}

impl Unit {
    /// With its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Rate => rate(value),
            Self::Iops => iops(value),
            Self::Files => files(value),
            Self::Latency => latency(value),
            Self::Size => size(value),
            Self::Seconds => suffixed(value, "s"),
            Self::Percent => suffixed(value, "%"),
            Self::Celsius => suffixed(value, "°C"),
            Self::Megahertz => suffixed(value, "MHz"),
            Self::Watts => suffixed(value, "W"),
            Self::Milliseconds => suffixed(value, "ms"),
            Self::Count => digits(value),
            Self::Ratio => ratio(value),
        }
    }

    /// Beside a tick: short, the axis names the unit.
    pub(crate) fn tick(self, value: f64) -> String {
        match self {
            Self::Rate => digits(value / 1e6),
            Self::Iops | Self::Files => short(value),
            Self::Size | Self::Latency | Self::Ratio => self.show(value),
            _ => digits(value),
        }
    }

    /// At an axis.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rate => "MB/s",
            Self::Iops => "IOPS",
            Self::Files => "files/s",
            Self::Latency => "latency",
            Self::Size => "block size",
            Self::Seconds => "seconds",
            Self::Percent => "%",
            Self::Celsius => "°C",
            Self::Megahertz => "MHz",
            Self::Watts => "W",
            Self::Milliseconds => "ms",
            Self::Count => "count",
            Self::Ratio => "times",
        }
    }
}

fn suffixed(value: f64, unit: &str) -> String {
    if value.is_finite() { format!("{} {unit}", digits(value)) } else { UNKNOWN.to_owned() }
}

/// Three significant digits, never a long row of zeros: `0.052`, `1.25`, `23.7`, `406`, `1.0e12`.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if !(1e-3..9_999_999.5).contains(&size) => format!("{value:.1e}"),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => plain(value, 1),
        _ if size >= 0.9995 => plain(value, 2),
        _ => plain(value, 3),
    }
}

/// Without zeros at the end: `2.5`, not `2.50`.
fn plain(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `406 MB/s`
pub(crate) fn rate(bytes_per_s: f64) -> String {
    suffixed(bytes_per_s / 1e6, "MB/s")
}

/// `24.1k IOPS`
pub(crate) fn iops(per_s: f64) -> String {
    if per_s.is_finite() { format!("{} IOPS", short(per_s)) } else { UNKNOWN.to_owned() }
}

/// `3.35k files/s`
pub(crate) fn files(per_s: f64) -> String {
    if per_s.is_finite() { format!("{} files/s", short(per_s)) } else { UNKNOWN.to_owned() }
}

/// Thousands as k, millions as M.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if (9.995e5..1e12).contains(&size) => format!("{}M", digits(value / 1e6)),
        size if (999.5..1e12).contains(&size) => format!("{}k", digits(value / 1e3)),
        _ => digits(value),
    }
}

/// `85 µs`, `1.2 ms`, `3 s`
pub(crate) fn latency(us: f64) -> String {
    match us {
        _ if us >= 999_500.0 => suffixed(us / 1e6, "s"),
        _ if us >= 999.5 => suffixed(us / 1e3, "ms"),
        _ => suffixed(us, "µs"),
    }
}

/// `4 KiB`, `1.5 GiB`
pub(crate) fn size(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if !bytes.is_finite() {
        return UNKNOWN.to_owned();
    }
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

/// `2 %`, `0.4 %`; of a part of one.
pub(crate) fn percent(part: f64) -> String {
    match part * 100.0 {
        p if !p.is_finite() => UNKNOWN.to_owned(),
        p if p.abs() >= 1e5 => format!("{} %", digits(p)),
        p if p.abs() >= 9.95 => format!("{p:.0} %"),
        p if p.abs() < 0.05 => "0 %".to_owned(),
        p => format!("{} %", plain(p, 1)),
    }
}

/// `0.48x`, `1.03x`, `15x`
pub(crate) fn ratio(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.to_owned(),
        v if v >= 99.95 => format!("{}x", digits(v)),
        v if v >= 9.95 => format!("{v:.1}x"),
        v if v > 0.0 && v < 0.095 => format!("{}x", digits(v)),
        v => format!("{v:.2}x"),
    }
}

/// `45 s`, `12 min`, `3 h 20 min`
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => UNKNOWN.to_owned(),
        s if s < 119.5 => suffixed(s, "s"),
        s if s < 7170.0 => format!("{:.0} min", s / 60.0),
        s if s > 1e9 => suffixed(s, "s"),
        s => format!("{:.0} h {:02.0} min", (s / 3600.0).floor(), (s % 3600.0 / 60.0).floor()),
    }
}

/// `2026-11-22 08:01 UTC`
pub(crate) fn date(at_ms: u64) -> String {
    let (days, minutes) = ((at_ms / 86_400_000) as i64, at_ms / 60_000 % 1440);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// Year, month and day of the proleptic Gregorian calendar, counted in eras of 400 years that begin in March,
/// so that the day of leap years comes last.
fn civil(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let check = |value: f64, expected: &str| assert_eq!(digits(value), expected, "{value}");
        check(0.0, "0");
        check(0.052, "0.052");
        check(1.5, "1.5");
        check(9.996, "10");
        check(23.68, "23.7");
        check(406.4, "406");
        check(25_233.0, "25233");
        check(1e12, "1.0e12");
        check(2e-9, "2.0e-9");
        check(f64::NAN, "-");
        check(f64::INFINITY, "-");
    }

    #[test]
    fn quantities_have_one_unit_each() {
        assert_eq!(rate(406e6), "406 MB/s");
        assert_eq!(rate(23.5e9), "23500 MB/s");
        assert_eq!(iops(24_100.0), "24.1k IOPS");
        assert_eq!(iops(8156.0), "8.16k IOPS");
        assert_eq!(iops(812.0), "812 IOPS");
        assert_eq!(Unit::Files.show(3350.0), "3.35k files/s");
        assert_eq!(iops(1.25e6), "1.25M IOPS");
        assert_eq!([latency(85.0), latency(1234.0), latency(3e6)], ["85 µs", "1.23 ms", "3 s"]);
        assert_eq!([size(4096.0), size(1048576.0), size(1.5 * 1073741824.0)], ["4 KiB", "1 MiB", "1.5 GiB"]);
        assert_eq!([percent(0.024), percent(0.0), percent(0.24), percent(f64::NAN)], ["2.4 %", "0 %", "24 %", "-"]);
        assert_eq!([ratio(0.48), ratio(15.0), ratio(0.001)], ["0.48x", "15.0x", "0.001x"]);
        assert_eq!([duration(45.0), duration(720.0), duration(12_000.0)], ["45 s", "12 min", "3 h 20 min"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |at_ms: u64, expected: &str| assert_eq!(date(at_ms), expected);
        check(0, "1970-01-01 00:00 UTC");
        check(951_782_400_000, "2000-02-29 00:00 UTC");
        check(1_795_334_510_000, "2026-11-22 08:01 UTC");
        check(u64::MAX, &date(u64::MAX));
    }
}
