//! When the certificate of the pages and of WebDAV ends.

use std::path::Path;
use std::time::SystemTime;

use larder_alerts::{Condition, EventKind, Severity};
use parking_lot::Mutex;

/// Certificates of public authorities are renewed with a third of their time left; of 90 days that is 30.
const WARN_DAYS: i64 = 14;
const CRITICAL_DAYS: i64 = 3;
const DAY_S: i64 = 24 * 3600;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file as it was read last: it is read again when it has changed.
#[derive(Default)]
pub(crate) struct Watched(Mutex<Option<(SystemTime, Option<i64>)>>);

impl Watched {
    pub(crate) fn look(&self, path: &Path, now_s: i64) -> Option<Condition> {
        let stamp = std::fs::metadata(path).and_then(|about| about.modified()).ok()?;
        let mut read = self.0.lock();
        let ends_s = match *read {
            Some((known, ends)) if known == stamp => ends,
            _ => {
                let ends = ends_of_file(path);
                *read = Some((stamp, ends));
                ends
            }
        }?;
        condition(path, (ends_s - now_s).div_euclid(DAY_S))
    }
}

fn condition(path: &Path, days: i64) -> Option<Condition> {
    if days >= WARN_DAYS {
        return None;
    }
    let text = match days {
        days if days < 0 => format!("The certificate {} has ended.", path.display()),
        days => format!("The certificate {} ends in {days} days.", path.display()),
    };
    let severity = if days < CRITICAL_DAYS { Severity::Critical } else { Severity::Warning };
    Some(Condition::is(EventKind::CertificateEnding, path.display().to_string(), text).severity(severity))
}

fn ends_of_file(path: &Path) -> Option<i64> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
    let first = CertificateDer::pem_slice_iter(&bytes).next()?.ok()?;
    not_after(&first)
}

/// One DER value (X.690, 8.1): its tag, its contents, and what follows.
fn der(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(first) {
        short if short < 0x80 => (short, rest),
        long => {
            // How many bytes the length has; no certificate is longer than four can say.
            let (digits, rest) = rest.split_at_checked(long & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// `notAfter` of a certificate (RFC 5280, 4.1): the second time in the `validity` of its TBSCertificate, in seconds since 1970.
fn not_after(certificate: &[u8]) -> Option<i64> {
    let (_, certificate, _) = der(certificate)?;
    let (_, mut tbs, _) = der(certificate)?;
    // The version is explicit and may be absent; serial number, signature and issuer follow.
    if tbs.first() == Some(&0xa0) {
        tbs = der(tbs)?.2;
    }
    for _ in 0..3 {
        tbs = der(tbs)?.2;
    }
    let (_, validity, _) = der(tbs)?;
    let (_, _, after) = der(validity)?;
    let (tag, text, _) = der(after)?;
    let text = std::str::from_utf8(text).ok()?;
    // UTCTime has two digits of the year, up to 2049; GeneralizedTime has four (RFC 5280, 4.1.2.5).
    let text = match tag {
        0x17 if text.get(..2)? < "50" => format!("20{text}"),
        0x17 => format!("19{text}"),
        0x18 => text.to_owned(),
        _ => return None,
    };
    chrono::NaiveDateTime::parse_from_str(&text, "%Y%m%d%H%M%SZ").ok().map(|at| at.and_utc().timestamp())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["box.example.org".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 6, 15);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read() {
        let day = |year| {
            chrono::NaiveDate::from_ymd_opt(year, 6, 15).unwrap().and_hms_opt(0, 0, 0).unwrap().and_utc().timestamp()
        };
        for year in [2027, 2049, 2051] {
            assert_eq!(not_after(&certificate(year)), Some(day(year)), "{year}");
        }
        let whole = certificate(2030);
        for at in 0..whole.len() {
            // Cut or changed bytes give no panic; what they give does not matter.
            not_after(&whole[..at]);
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            not_after(&changed);
        }
    }

    #[test]
    fn it_is_said_in_time() {
        let said = |days| condition(Path::new("/c.pem"), days).map(|one| (one.holds.unwrap(), one.text));
        assert_eq!(said(14), None);
        assert_eq!(said(13), Some((Severity::Warning, "The certificate /c.pem ends in 13 days.".to_owned())));
        assert_eq!(said(-1), Some((Severity::Critical, "The certificate /c.pem has ended.".to_owned())));
    }
}
