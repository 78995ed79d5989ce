//! Points in time as people read them.

use chrono::{Local, TimeZone};

/// Local time: `2026-11-22 08:01:50`.
pub fn local(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Local.timestamp_millis_opt(ms).earliest());
    at.map_or_else(|| "-".to_owned(), |at| at.format("%Y-%m-%d %H:%M:%S").to_string())
}
