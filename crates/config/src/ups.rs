//! `[ups]`: the battery behind this machine, and when to stop.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_alerts::send::Secret;
use larder_alerts::ups::{Limits, Source};
use serde::Deserialize;

use super::spanned::Spanned;
use crate::times;

const NUT_PORT: u16 = 3493;
const BATTERIES: &str = "/sys/class/power_supply";
/// A longer time on a battery is a mistake.
const AFTER_SECONDS_MAX: u64 = 7 * 86_400;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpsConfig {
    pub source: Source,
    pub limits: Limits,
    /// The program that is run once everything is stopped, with its arguments.
    pub then: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, schemars(extend("x-means-something" = true)))]
pub(super) struct RawUps {
    /// "nut": a server of Network UPS Tools; "battery": the battery of this machine.
    #[cfg_attr(test, schemars(extend("enum" = ["nut", "battery"])))]
    #[cfg_attr(test, schemars(extend("default" = "nut")))]
    source: Option<Spanned<String>>,
    /// HOST or HOST:PORT of upsd; 127.0.0.1:3493 if it is not given.
    address: Option<Spanned<String>>,
    /// The UPS, as ups.conf of the server names it; ups if it is not given.
    name: Option<Spanned<String>>,
    /// A user of upsd.users; with one the server waits for this machine before it cuts the power.
    user: Option<Spanned<String>>,
    /// A file with the user's password.
    password_file: Option<Spanned<String>>,
    /// The folder of the kernel's batteries; /sys/class/power_supply if it is not given.
    folder: Option<Spanned<String>>,
    /// Stop after so long on the battery, such as "10m"; when the battery is low if it is not given.
    stop_after: Option<Spanned<String>>,
    /// Stop below so many percent of charge, on the battery.
    stop_below: Option<Spanned<u32>>,
    /// A program and its arguments, run once everything is stopped: ["/usr/bin/systemctl", "poweroff"].
    then: Option<Spanned<Vec<String>>>,
}

/// What is wrong, and where in the file.
type Checked<T> = Result<T, (Range<usize>, String)>;

fn optional<T>(text: Option<Spanned<String>>, parse: impl Fn(&str) -> Result<T, String>) -> Checked<Option<T>> {
    text.map(|text| parse(text.get_ref()).map_err(|what| (text.span(), what))).transpose()
}

impl UpsConfig {
    pub(super) fn parse(raw: Spanned<RawUps>, folder: &Path) -> Checked<UpsConfig> {
        let place = raw.span();
        let raw = raw.into_inner();
        let kind = optional(raw.source, |word| match word {
            "nut" | "battery" => Ok(word.to_owned()),
            _ => Err(format!("'{word}' is no source: use nut or battery")),
        })?;
        let source = match kind.as_deref() {
            Some("battery") => {
                if raw.address.is_some() || raw.name.is_some() || raw.user.is_some() {
                    return Err((place, "a battery of this machine has no address, name or user".to_owned()));
                }
                Source::Battery(PathBuf::from(raw.folder.map_or_else(|| BATTERIES.to_owned(), Spanned::into_inner)))
            }
            _ => Source::Nut {
                address: optional(raw.address, address)?.unwrap_or_else(|| format!("127.0.0.1:{NUT_PORT}")),
                name: optional(raw.name, ups_name)?.unwrap_or_else(|| "ups".to_owned()),
                user: raw.user.map(Spanned::into_inner),
                password: raw.password_file.map(|file| Secret::File(folder.join(file.into_inner()))),
            },
        };
        if let Source::Nut { user, password, .. } = &source
            && user.is_some() != password.is_some()
        {
            return Err((place, "user and password_file go together".to_owned()));
        }
        let after = optional(raw.stop_after, seconds)?;
        let below_percent = match raw.stop_below {
            Some(percent) if !(1..=99).contains(percent.get_ref()) => {
                return Err((percent.span(), "stop_below is 1 to 99 percent".to_owned()));
            }
            percent => percent.map(Spanned::into_inner),
        };
        let then = match raw.then {
            Some(words) if !words.get_ref().first().is_some_and(|program| program.starts_with('/')) => {
                return Err((words.span(), "then = [\"/path/of/a/program\", ...] begins with a whole path".to_owned()));
            }
            words => words.map(Spanned::into_inner).unwrap_or_default(),
        };
        Ok(UpsConfig { source, limits: Limits { after, below_percent }, then })
    }
}

fn address(text: &str) -> Result<String, String> {
    let is_plain = |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
    match text.rsplit_once(':') {
        Some((host, port)) if is_plain(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        None if is_plain(text) => Ok(format!("{text}:{NUT_PORT}")),
        _ => Err(format!("'{text}' is no address of upsd: write HOST or HOST:PORT")),
    }
}

fn ups_name(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && text.len() <= 100 && text.chars().all(|c| c.is_ascii_graphic() && c != '"');
    is_plain.then(|| text.to_owned()).ok_or_else(|| format!("'{text}' is no name of a UPS"))
}

/// `90s`, or as [`times::until`] has it.
fn seconds(text: &str) -> Result<Duration, String> {
    let span = match text.strip_suffix('s') {
        Some(count) => count.parse::<u64>().map_err(|_| format!("'{text}' is no time such as 90s, 10m or 2h"))?,
        None => u64::try_from(times::until(text)? - chrono::Utc::now().timestamp()).unwrap_or(0),
    };
    let is_well = (1..=AFTER_SECONDS_MAX).contains(&span);
    is_well.then(|| Duration::from_secs(span)).ok_or_else(|| format!("'{text}' is not between a second and a week"))
}
