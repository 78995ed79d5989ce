//! Energy counters of processors: `/sys/class/powercap/intel-rapl:*` (AMD's too), in microjoules, which begin anew
//! at `max_energy_range_uj`. Readable by root alone since Linux 5.10.
//!
//! A package holds its cores and caches; its memory is a domain of its own beside it. `psys`, where there is one, is
//! the platform.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::error::SourceError;
use super::reading::{Basis, Reading, Scope};
use crate::Machine;

const FOLDER: &str = "/sys/class/powercap";
/// Below this, two readings of a counter say nothing.
const STEP_MIN: Duration = Duration::from_millis(50);
/// No processor takes more: a counter that seems to say so was set back, as after a sleep.
const WATTS_MAX: f64 = 5000.0;

/// The last reading of each counter.
#[derive(Debug, Default)]
pub(super) struct Rapl {
    last: BTreeMap<String, (Duration, u64)>,
}

impl Rapl {
    pub(super) fn read(&mut self, machine: &Machine, now: Duration) -> Result<Vec<Reading>, SourceError> {
        let mut readings = Vec::new();
        for zone in machine.list(FOLDER) {
            let dir = Path::new(FOLDER).join(&zone);
            let Some(name) = machine.read(dir.join("name")) else { continue };
            if !counts(&zone, &name) {
                continue;
            }
            let Some(energy_uj) = machine.number(dir.join("energy_uj")) else {
                return Err(
                    SourceError::new("rapl", format!("the counter of {name} cannot be read")).action("run it as root")
                );
            };
            let range_uj = machine.number(dir.join("max_energy_range_uj")).unwrap_or(u64::MAX);
            if let Some(watts) = self.watts(&zone, now, energy_uj, range_uj) {
                readings.push(Reading {
                    source: "rapl".to_owned(),
                    of: title(&name),
                    scope: Scope::Part,
                    basis: Basis::Measured,
                    watts,
                    energy_wh: None,
                });
            }
        }
        Ok(readings)
    }

    /// Since the reading before; `None` the first time, and after a counter was set back.
    fn watts(&mut self, zone: &str, now: Duration, energy_uj: u64, range_uj: u64) -> Option<f64> {
        let (before, energy_before) = *self.last.entry(zone.to_owned()).or_insert((now, energy_uj));
        let step = now.checked_sub(before).filter(|step| *step >= STEP_MIN)?;
        self.last.insert(zone.to_owned(), (now, energy_uj));
        let used_uj = match energy_uj.checked_sub(energy_before) {
            Some(used) => used,
            // It began anew: what was left of the range, and what came after.
            None => range_uj.saturating_sub(energy_before).saturating_add(energy_uj),
        };
        Some(used_uj as f64 / 1e6 / step.as_secs_f64()).filter(|watts| *watts <= WATTS_MAX)
    }
}

/// Packages and their memory; cores are within a package, and `intel-rapl-mmio` shows the same package once more.
fn counts(zone: &str, name: &str) -> bool {
    let ours = zone.starts_with("intel-rapl:") || zone.starts_with("amd-rapl:");
    ours && (name.starts_with("package") || name == "dram" || name == "psys")
}

fn title(name: &str) -> String {
    match name {
        "psys" => "the platform, without its power supply's losses".to_owned(),
        "dram" => "memory".to_owned(),
        package => format!("processor ({package})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_is_followed() {
        let mut rapl = Rapl::default();
        let at = Duration::from_secs;
        let mut check = |seconds: u64, energy_uj: u64, watts: Option<f64>| {
            assert_eq!(rapl.watts("intel-rapl:0", at(seconds), energy_uj, 262_143_328_850), watts, "{seconds}");
        };
        check(0, 262_100_000_000, None);
        check(0, 262_100_000_000, None);
        check(10, 262_130_000_000, Some(3.0));
        check(20, 26_671_150, Some(4.0));
        check(30, 176_671_150, Some(15.0));
        // A counter that sleep has set back to nothing did not go over its end.
        check(40, 1_000, None);
        check(50, 100_001_000, Some(10.0));
    }
}
