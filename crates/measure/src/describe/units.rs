//! Rates, sizes and times as people write them.

use larder_base::units::ByteSize;

use super::error::BadDescription;

pub(super) fn size(text: &str) -> Result<u64, BadDescription> {
    // A number alone is bytes to others; here nobody means those.
    let has_unit = text.chars().any(char::is_alphabetic);
    match text.parse::<ByteSize>() {
        Ok(size) if size.0 > 0 && has_unit => Ok(size.0),
        _ => Err(BadDescription::Size(text.to_owned())),
    }
}

/// Bytes per second of `450MB/s`, `935Mbit/s` or `1Gbps`. `Mb/s` is asked about: it means either, by eight apart.
pub(crate) fn rate(text: &str) -> Result<f64, BadDescription> {
    let bad = || BadDescription::Rate(text.to_owned());
    let trimmed = text.trim();
    let (number, unit) = trimmed.split_at(trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let unit: String = unit.chars().filter(|c| !c.is_whitespace()).collect();
    let (unit, bits) = match unit.strip_suffix("bit/s").or(unit.strip_suffix("bits/s")).or(unit.strip_suffix("bps")) {
        Some(prefix) => (prefix, true),
        None => {
            let bytes = unit.strip_suffix("/s").ok_or_else(bad)?;
            match bytes.strip_suffix('B') {
                Some(prefix) => (prefix, false),
                None if bytes.ends_with('b') => return Err(BadDescription::BitsOrBytes(text.to_owned())),
                None => return Err(bad()),
            }
        }
    };
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" | "ki" => 1024.0,
        "Mi" => 1048576.0,
        "Gi" => 1073741824.0,
        _ => return Err(bad()),
    };
    let value = number * factor / if bits { 8.0 } else { 1.0 };
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(bad()) }
}

/// Seconds of `80us`, `5ms` or `1.5s`.
pub(super) fn seconds(text: &str) -> Result<f64, BadDescription> {
    let bad = || BadDescription::Time(text.to_owned());
    let trimmed = text.trim();
    let (number, unit) = trimmed.split_at(trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?);
    let factor = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad()),
    };
    let value = number.parse::<f64>().map_err(|_| bad())? * factor;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read_as_written() {
        for (text, bytes) in [
            ("935Mbit/s", 935e6 / 8.0),
            ("1.5 GB/s", 1.5e9),
            ("1Gbps", 125e6),
            ("2.5 Gbit/s", 312.5e6),
            ("4GiB/s", 4294967296.0),
            ("500 kB/s", 5e5),
            ("7B/s", 7.0),
        ] {
            assert_eq!(rate(text).unwrap(), bytes, "{text}");
        }
        for bad in
            ["", "/s", "x/s", "-1MB/s", "1Mbit", "0MB/s", "é/s", "ébit/s", "450/s", "450", "fast", "1e400MB/s", "1XB/s"]
        {
            assert!(matches!(rate(bad), Err(BadDescription::Rate(_))), "{bad}");
        }
        assert!(rate("935Mb/s").unwrap_err().to_string().contains("bits or bytes"));
        assert_eq!(seconds("80us").unwrap(), 80.0 * 1e-6);
        assert_eq!(seconds("5 ms").unwrap(), 0.005);
        for bad in ["", "5", "ms", "-1ms", "0s", "5 minutes"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
