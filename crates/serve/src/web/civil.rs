//! Dates of the Gregorian calendar.

use larder_base::Timestamp;

/// Year, month, day and the second of the day, of the Gregorian calendar, in UTC.
pub fn civil(time: Timestamp) -> (i64, i64, i64, i64) {
    // Four digits of a year are enough for RFC 3339.
    let secs = time.secs.clamp(-62_135_596_800, 253_402_300_799);
    let days = secs.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day, secs.rem_euclid(86_400))
}
