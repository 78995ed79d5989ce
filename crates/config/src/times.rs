//! Points in time and durations as people read them.

use chrono::{Local, TimeZone};

pub use larder_keep::times::local;

/// Local time of a second since 1970.
pub fn local_secs(at: i64) -> String {
    local(u64::try_from(at).unwrap_or(0).saturating_mul(1000))
}

/// A time to come, in seconds since 1970: the end of a day (`2027-01-31`, in UTC), or so long from now (`90d`, `12h`, `30m`).
pub fn until(text: &str) -> Result<i64, String> {
    let wrong = || format!("'{text}' is neither a day such as 2027-01-31 nor a time such as 90d, 12h or 30m");
    if let Ok(day) = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        let end = day.and_hms_opt(23, 59, 59).ok_or_else(wrong)?;
        return Ok(end.and_utc().timestamp() + 1);
    }
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        'y' => 366 * 86_400,
        _ => return Err(wrong()),
    };
    let count: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let span = count.checked_mul(seconds).filter(|&span| span > 0 && span < 1 << 40).ok_or_else(wrong)?;
    Ok(chrono::Utc::now().timestamp() + span)
}

/// A time past, in milliseconds since 1970: the beginning of a day (`2026-11-22`, local time), or so long ago (`2d`, `8h`, `30m`).
pub fn ago(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is neither a day such as 2026-11-22 nor a time such as 2d, 8h or 30m");
    if let Ok(day) = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        let begin =
            day.and_hms_opt(0, 0, 0).and_then(|at| Local.from_local_datetime(&at).earliest()).ok_or_else(wrong)?;
        return Ok(u64::try_from(begin.timestamp_millis()).unwrap_or(0));
    }
    let now = chrono::Utc::now().timestamp();
    let span = until(text).map_err(|_| wrong())? - now;
    Ok(u64::try_from(now - span).unwrap_or(0).saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_past() {
        let now = chrono::Utc::now().timestamp_millis() as u64;
        assert!(ago("2d").is_ok_and(|at| (now - 172_900_000..now - 172_700_000).contains(&at)));
        assert!(ago("2026-11-22").is_ok() && ago("yesterday").is_err() && ago("99999d").is_ok());
    }

    #[test]
    fn times_to_come() {
        assert_eq!(until("1970-01-01"), Ok(86_400));
        let now = chrono::Utc::now().timestamp();
        assert!(until("2d").is_ok_and(|at| (now + 172_800..now + 172_900).contains(&at)));
        for wrong in ["", "d", "-1d", "0h", "5", "2027-13-01", "99999999999999999999d", "3\u{e9}"] {
            assert!(until(wrong).is_err(), "{wrong}");
        }
    }
}
