//! Dates of the Gregorian calendar, and those of HTTP.

use larder_base::Timestamp;

/// The first second of the year 1 and the last of the year 9999: four digits of a year are all that a date of HTTP or of
/// RFC 3339 has.
pub const DATES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

pub const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
pub const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The nearest time that [`civil`] has, without its fraction of a second.
pub fn whole_second(time: Timestamp) -> i64 {
    time.secs.clamp(*DATES.start(), *DATES.end())
}

/// Year, month, day and the second of the day, of the Gregorian calendar, in UTC.
pub fn civil(time: Timestamp) -> (i64, i64, i64, i64) {
    let secs = whole_second(time);
    let days = secs.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day, secs.rem_euclid(86_400))
}

/// Days since 1970 of a date, which exists.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The weekday of a second since 1970, in [`DAYS`].
pub fn weekday(secs: i64) -> usize {
    // The first day was a Thursday.
    usize::try_from((secs.div_euclid(86_400) + 4).rem_euclid(7)).unwrap_or_default()
}

/// The seconds since 1970 of a date of HTTP (RFC 9110 5.6.7). The preferred form is read here, with years before 1970, which
/// the old forms have not: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http_date(text: &str) -> Option<i64> {
    let preferred = || {
        let parts: Vec<&str> = text.split(' ').collect();
        let &[weekday_name, day, month, year, time, "GMT"] = parts.as_slice() else { return None };
        let number = |text: &str, digits: usize| {
            let is_one = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
            is_one.then(|| text.parse::<i64>().ok()).flatten()
        };
        let (day, year) = (number(day, 2)?, number(year, 4)?);
        let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
        let mut clock = time.split(':').map(|part| number(part, 2));
        let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
        let is_time = clock.next().is_none() && hour < 24 && minute < 60 && second < 60;
        if year < 1 || day < 1 || !is_time {
            return None;
        }
        let secs = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        let (y, m, d, _) = civil(Timestamp::new(secs, 0));
        let is_date = (y, m, d) == (year, month, day);
        let is_day = weekday_name.strip_suffix(',') == DAYS.get(weekday(secs)).copied();
        (is_date && is_day).then_some(secs)
    };
    let older = || httpdate::parse_http_date(text).ok().map(|time| Timestamp::from(time).secs);
    preferred().or_else(older)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::text::push_http_date;

    #[test]
    fn dates_of_http_are_read_as_they_are_written() {
        let mut secs = *DATES.start();
        while secs <= *DATES.end() {
            let mut text = String::new();
            push_http_date(&mut text, Timestamp::new(secs, 5));
            assert_eq!(http_date(&text), Some(secs), "{text}");
            // Each day of the week, hour, minute and second comes up in time.
            secs += 86_400 * 97 + 3_600 + 61;
        }
    }

    #[test]
    fn other_dates() {
        for (text, secs) in [
            ("Fri, 13 Dec 1901 20:45:52 GMT", Some(i64::from(i32::MIN))),
            ("Wed, 31 Dec 1969 23:59:59 GMT", Some(-1)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Thu, 01 Mar 1900 00:00:00 GMT", Some(-2_203_891_200)),
            ("Thu, 29 Feb 1900 00:00:00 GMT", None),
            ("Mon, 01 Jan 1970 00:00:00 GMT", None),
            ("Thu, 01 Jan 1970 24:00:00 GMT", None),
            ("Thu, 1 Jan 1970 00:00:00 GMT", None),
            ("Thu, 01 Jan 1970 00:00:00 CET", None),
            ("Thu, 00 Jan 1970 00:00:00 GMT", None),
            ("", None),
        ] {
            assert_eq!(http_date(text), secs, "{text}");
        }
    }
}
