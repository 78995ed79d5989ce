//! A UPS through NUT (Network UPS Tools): `LIST VAR NAME` to `upsd` (RFC 9271, 4.2.6), port 3493.
//!
//! Few UPS measure real power; most know their load as a percentage of what they are built for, some of that only in
//! volt-amperes. What is computed from a percentage is called estimated: it has steps of a percent.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};

use super::error::SourceError;
use super::http::{TimedStream, connect};
use super::reading::{Basis, Reading, Scope};

const PORT: u16 = 3493;
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Watts per volt-ampere of a UPS that names only volt-amperes: what makers of small ones build for.
const POWER_FACTOR: f64 = 0.6;

pub(super) fn read(address: &str, ups: &str) -> Result<Reading, SourceError> {
    let source = format!("nut {ups}@{address}");
    let failed = |why: String| SourceError::new(&source, why);
    let variables = ask(address, ups).map_err(|e| match e {
        Refusal::Io(e) => failed(format!("upsd cannot be reached: {e}"))
            .action("is nut-server running? check address = in [[power.source]]"),
        Refusal::Said(said) => {
            failed(format!("upsd says {said}")).action(format!("see the names of UPS: upsc -l {address}"))
        }
    })?;
    let (watts, of, basis) = watts(&variables).ok_or_else(|| {
        failed("it tells neither its power nor its load".to_owned())
            .action(format!("see what it tells: upsc {ups}@{address}"))
    })?;
    Ok(Reading { source, of, scope: Scope::Outlet, basis, watts, energy_wh: None })
}

enum Refusal {
    Io(std::io::Error),
    Said(String),
}

fn ask(address: &str, ups: &str) -> Result<BTreeMap<String, String>, Refusal> {
    let mut stream = connect(address, PORT).map_err(Refusal::Io)?;
    let name: String = ups.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
    stream.write_all(format!("LIST VAR {name}\n").as_bytes()).map_err(Refusal::Io)?;
    let reader = BufReader::new(TimedStream::new(stream.try_clone().map_err(Refusal::Io)?).take(ANSWER_BYTES_MAX));
    let mut variables = BTreeMap::new();
    for line in reader.lines() {
        let line = line.map_err(Refusal::Io)?;
        if let Some(said) = line.strip_prefix("ERR ") {
            return Err(Refusal::Said(said.to_owned()));
        }
        if line.starts_with("END LIST VAR") {
            let _ = stream.write_all(b"LOGOUT\n");
            return Ok(variables);
        }
        if let Some((name, value)) = variable(&line) {
            variables.insert(name, value);
        }
    }
    Err(Refusal::Said("half a list".to_owned()))
}

/// Name and value of a line of upsd: `VAR ups ups.load "23"`, with `\"` and `\\` in the value.
pub fn variable(line: &str) -> Option<(String, String)> {
    let (head, value) = line.strip_prefix("VAR ")?.split_once(" \"")?;
    let name = head.split_whitespace().last()?;
    let value = value.strip_suffix('"')?.replace("\\\"", "\"").replace("\\\\", "\\");
    Some((name.to_owned(), value))
}

#[cfg(any(test, fuzzing))]
pub(super) fn fuzz_lines(text: &str) {
    let variables = text.lines().filter_map(variable).collect();
    if let Some((watts, _, _)) = watts(&variables) {
        assert!(watts >= 0.0);
    }
}

fn watts(variables: &BTreeMap<String, String>) -> Option<(f64, String, Basis)> {
    let number = |name: &str| variables.get(name)?.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    let of = |how: &str| format!("everything behind the UPS{how}");
    if let Some(watts) = number("ups.realpower") {
        return Some((watts, of(""), Basis::Measured));
    }
    let load = number("ups.load")? / 100.0;
    if let Some(nominal) = number("ups.realpower.nominal") {
        return Some((load * nominal, of(&format!(", {:.0} % of {nominal:.0} W", load * 100.0)), Basis::Estimated));
    }
    let nominal = number("ups.power.nominal")?;
    let how = format!(", {:.0} % of {nominal:.0} VA at {POWER_FACTOR} W per VA", load * 100.0);
    Some((load * nominal * POWER_FACTOR, of(&how), Basis::Estimated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_measured_or_follows_from_the_load() {
        let check = |lines: &[&str], expected: Option<(f64, Basis)>| {
            let variables = lines.iter().filter_map(|line| variable(line)).collect();
            assert_eq!(watts(&variables).map(|(w, _, basis)| (w, basis)), expected, "{lines:?}");
        };
        let load = "VAR ups ups.load \"20\"";
        check(
            &["VAR ups ups.realpower \"57\"", load, "VAR ups ups.realpower.nominal \"300\""],
            Some((57.0, Basis::Measured)),
        );
        check(&[load, "VAR ups ups.realpower.nominal \"300\""], Some((60.0, Basis::Estimated)));
        check(&[load, "VAR ups ups.power.nominal \"500\""], Some((60.0, Basis::Estimated)));
        check(&[load], None);
        check(&["VAR ups ups.realpower \"x\"", "garbage", "VAR"], None);
        assert_eq!(
            variable("VAR u device.model \"A \\\"B\\\"\""),
            Some(("device.model".to_owned(), "A \"B\"".to_owned()))
        );
    }
}
