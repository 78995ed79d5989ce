//! Sensors of the kernel's hwmon class: `power*` in microwatts; INA chips that have only `in*` (mV) and `curr*` (mA) of
//! one channel are multiplied.

use std::path::{Path, PathBuf};

use super::reading::{Basis, Reading, Scope};
use crate::Machine;

const FOLDER: &str = "/sys/class/hwmon";
/// Channels of one chip.
const CHANNELS_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Hwmon;

impl Hwmon {
    pub(super) fn read(&self, machine: &Machine) -> Vec<Reading> {
        let chips = machine.list(FOLDER);
        chips.iter().flat_map(|chip| read_chip(machine, &Path::new(FOLDER).join(chip))).collect()
    }
}

fn read_chip(machine: &Machine, dir: &Path) -> Vec<Reading> {
    let name = machine.read(dir.join("name")).unwrap_or_default();
    let mut readings = Vec::new();
    for channel in 0..CHANNELS_MAX {
        let file = |kind: &str, what: &str| dir.join(format!("{kind}{channel}_{what}"));
        let micro = |path: PathBuf| machine.number(path).map(|n| n as f64);
        let power = micro(file("power", "average")).or_else(|| micro(file("power", "input"))).map(|uw| uw / 1e6);
        // mV times mA are microwatts.
        let product = || Some(micro(file("in", "input"))? * micro(file("curr", "input"))? / 1e6);
        let Some(watts) = power.or_else(|| if name.starts_with("ina") { product() } else { None }) else { continue };
        let labels = [file("power", "label"), file("in", "label"), file("curr", "label")];
        let label = labels.iter().find_map(|path| machine.read(path)).unwrap_or_default();
        readings.push(Reading {
            source: "hwmon".to_owned(),
            of: format!("{name} {}", if label.is_empty() { format!("channel {channel}") } else { label.clone() }),
            scope: scope(&name, &label),
            basis: Basis::Measured,
            watts,
            energy_wh: None,
        });
    }
    readings
}

/// The place of a well-known chip. An INA with one channel is the supply of a board; with three, its rails.
fn scope(name: &str, label: &str) -> Scope {
    let label = label.to_lowercase();
    match name {
        "power_meter" => Scope::Outlet,
        "corsairpsu" if label.contains("total") => Scope::Board,
        _ if name.starts_with("ina2") && !label.contains("rail") => Scope::Board,
        _ => Scope::Part,
    }
}
