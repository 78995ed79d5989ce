//! Watts from parts, where nothing measures. Always an estimate, and called so.
//!
//! Idle and load of each part, the second in proportion to how busy the processors are, divided by the efficiency of
//! the power supply.

use serde::Serialize;

use super::reading::{Basis, Reading, Scope};
use crate::Machine;
use crate::machine::{BlockDevice, Bus, Curtain, Medium, whole_devices};
use crate::power::Profile;

/// Of a good power supply at low load.
const SUPPLY_EFFICIENCY: f64 = 0.85;

/// A kind of part that the machine has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartSpec {
    pub name: String,
    pub count: u32,
    pub idle_watts: f64,
    pub load_watts: f64,
}

impl PartSpec {
    fn new(name: &str, count: u32, idle_watts: f64, load_watts: f64) -> Self {
        Self { name: name.to_owned(), count, idle_watts, load_watts }
    }
}

#[derive(Debug)]
pub(super) struct Model {
    parts: Vec<PartSpec>,
    efficiency: f64,
    /// Busy and all ticks of the processors at the last look.
    ticks: Option<(u64, u64)>,
}

impl Model {
    /// `None` in a virtual machine whose parts nobody named: it has no watts of its own.
    pub(super) fn new(machine: &Machine, parts: &[PartSpec], efficiency: Option<f64>) -> Option<Self> {
        let parts = if parts.is_empty() { guessed(machine)? } else { parts.to_vec() };
        let efficiency = efficiency.unwrap_or(SUPPLY_EFFICIENCY).clamp(0.1, 1.0);
        Some(Self { parts, efficiency, ticks: None })
    }

    pub(super) fn profile(&self) -> Profile {
        let sum = |watts: fn(&PartSpec) -> f64| self.parts.iter().map(|p| watts(p) * f64::from(p.count)).sum::<f64>();
        Profile {
            idle_watts: sum(|p| p.idle_watts) / self.efficiency,
            load_watts: sum(|p| p.load_watts) / self.efficiency,
            load_hours_per_day: 0.0,
            estimated: true,
        }
    }

    pub(super) fn read(&mut self, machine: &Machine) -> Option<Reading> {
        let busy = self.busy_share(machine).unwrap_or(0.0);
        let profile = self.profile();
        let names: Vec<String> = self.parts.iter().map(|p| format!("{} x {}", p.count, p.name)).collect();
        Some(Reading {
            source: "model".to_owned(),
            of: format!("the machine, from its parts ({})", names.join(", ")),
            scope: Scope::Outlet,
            basis: Basis::Estimated,
            watts: profile.idle_watts + (profile.load_watts - profile.idle_watts) * busy,
            energy_wh: None,
        })
    }

    /// Of all processors since the last look, from the first line of `/proc/stat`: user nice system idle iowait ...
    fn busy_share(&mut self, machine: &Machine) -> Option<f64> {
        let text = machine.read("/proc/stat")?;
        let fields: Vec<u64> =
            text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
        let all: u64 = fields.iter().sum();
        let idle = fields.get(3)?.saturating_add(*fields.get(4)?);
        let busy = all.saturating_sub(idle);
        let (busy_before, all_before) = self.ticks.replace((busy, all))?;
        let step = all.checked_sub(all_before).filter(|&n| n > 0)?;
        Some((busy.saturating_sub(busy_before) as f64 / step as f64).clamp(0.0, 1.0))
    }
}

/// Typical values of makers' data sheets; good to a third at best, which is why the answer is called estimated.
fn guessed(machine: &Machine) -> Option<Vec<PartSpec>> {
    let devices: Vec<BlockDevice> =
        whole_devices(machine).iter().filter_map(|name| BlockDevice::read(machine, name)).collect();
    let hosted = |d: &BlockDevice| matches!(d.curtain, Some(Curtain::Hypervisor(_)));
    let hypervisor = machine.read("/proc/cpuinfo").is_some_and(|text| text.contains(" hypervisor"));
    if hypervisor || devices.iter().any(hosted) {
        return None;
    }
    let count = |test: fn(&BlockDevice) -> bool| devices.iter().filter(|d| test(d)).count() as u32;
    let mut parts = vec![board(machine)];
    parts.push(PartSpec::new("hard disk", count(|d| d.medium == Medium::HardDisk), 4.5, 7.0));
    parts.push(PartSpec::new("NVMe disk", count(|d| d.bus == Bus::Nvme), 1.5, 6.0));
    parts.push(PartSpec::new(
        "SATA SSD",
        count(|d| d.medium == Medium::Flash && matches!(d.bus, Bus::Sata | Bus::Usb | Bus::Scsi)),
        0.6,
        3.0,
    ));
    parts.push(PartSpec::new("memory card", count(|d| d.bus == Bus::Mmc), 0.1, 0.5));
    parts.retain(|part| part.count > 0);
    Some(parts)
}

fn board(machine: &Machine) -> PartSpec {
    let tree = machine.read("/proc/device-tree/model").unwrap_or_default();
    let name = tree.trim_end_matches('\0');
    match () {
        () if name.contains("Raspberry Pi 5") || name.contains("Compute Module 5") => PartSpec::new(name, 1, 3.5, 9.0),
        () if name.contains("Raspberry Pi") => PartSpec::new(name, 1, 2.7, 6.0),
        () if !name.is_empty() => PartSpec::new(name, 1, 3.0, 9.0),
        () => PartSpec::new("PC board, processor and memory", 1, 18.0, 60.0),
    }
}
