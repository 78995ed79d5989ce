//! Numbers, dates and validators as texts, appended without the formatting machinery: a listing has several of them for each
//! entry.

use larder_base::Timestamp;
use larder_fs::{Attr, FileKind};

use super::civil::{DAYS, MONTHS, civil, weekday, whole_second};

/// At least `least` digits; more than 20 of them no number has.
fn push_digits<const BASE: u64>(out: &mut String, mut number: u64, least: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || digits.len() - at < least {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b"0123456789abcdef".get((number % BASE) as usize).copied().unwrap_or(b'0');
        }
        number /= BASE;
    }
    out.push_str(digits.get(at..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default());
}

pub fn push_decimal(out: &mut String, number: u64) {
    push_digits::<10>(out, number, 1);
}

fn push_hex(out: &mut String, number: u64) {
    push_digits::<16>(out, number, 1);
}

/// `number` of at most two digits.
fn push_two(out: &mut String, number: i64) {
    push_digits::<10>(out, number.unsigned_abs(), 2);
}

/// The validator of a resource without its quotes. A file that a PUT replaces is another inode; one that is changed in place has
/// another time or size.
pub fn push_validator(out: &mut String, attr: &Attr) {
    if attr.kind == FileKind::Directory {
        out.push('d');
    }
    push_hex(out, attr.id.ino.0);
    out.push('-');
    push_hex(out, attr.size);
    out.push('-');
    // As two's complement where it is before 1970.
    push_hex(out, attr.mtime.secs.cast_unsigned());
    out.push('.');
    push_hex(out, attr.mtime.nanos.into());
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 5.6.7), of the years 1 to 9999.
pub fn push_http_date(out: &mut String, time: Timestamp) {
    let (year, month, day, second) = civil(time);
    let month = usize::try_from(month - 1).unwrap_or_default();
    out.push_str(DAYS.get(weekday(whole_second(time))).copied().unwrap_or_default());
    out.push_str(", ");
    push_two(out, day);
    out.push(' ');
    out.push_str(MONTHS.get(month).copied().unwrap_or_default());
    out.push(' ');
    push_digits::<10>(out, year.unsigned_abs(), 4);
    for (mark, part) in [(' ', second / 3600), (':', second / 60 % 60), (':', second % 60)] {
        out.push(mark);
        push_two(out, part);
    }
    out.push_str(" GMT");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn dates_are_those_of_http() {
        let mut secs = 0_u64;
        while secs <= 253_402_300_799 {
            let mut out = String::new();
            push_http_date(&mut out, Timestamp::new(secs.cast_signed(), 999_999_999));
            assert_eq!(out, httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(secs)));
            // Each day of the week, hour, minute and second comes up in time.
            secs += 86_400 * 11 + 3_600 + 61;
        }
        for (secs, text) in [
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (i32::MIN.into(), "Fri, 13 Dec 1901 20:45:52 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MIN, "Mon, 01 Jan 0001 00:00:00 GMT"),
        ] {
            let mut out = String::new();
            push_http_date(&mut out, Timestamp::new(secs, 0));
            assert_eq!(out, text);
        }
    }

    #[test]
    fn numbers() {
        for number in [0, 9, 10, 255, 256, u64::MAX] {
            let (mut decimal, mut hex) = (String::new(), String::new());
            push_decimal(&mut decimal, number);
            push_hex(&mut hex, number);
            assert_eq!((decimal, hex), (number.to_string(), format!("{number:x}")));
        }
    }
}
