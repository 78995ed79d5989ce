//! The disks of this machine, and what each is used for.

use serde::Serialize;

use super::check::system_disks;
use super::contents::{Contents, contents};
use super::usage;
use crate::Machine;
use crate::machine::{BlockDevice, whole_devices};

#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    #[serde(flatten)]
    pub device: BlockDevice,
    pub system: bool,
    /// Mounts and holders; empty: nothing uses it now (there may be data on it).
    pub used: Vec<String>,
    pub partitions: Vec<String>,
    /// What udev found on it.
    pub contents: Contents,
}

/// Whole disks. No disk is asked, so that none wakes up.
pub fn list(machine: &Machine) -> Vec<Listed> {
    let system = system_disks(machine);
    let devices = whole_devices(machine).into_iter().filter_map(|name| BlockDevice::read(machine, &name));
    devices
        .map(|device| Listed {
            system: system.contains(&device.name),
            used: usage::busy(machine, &device).iter().map(|b| b.text().to_owned()).collect(),
            partitions: device.partitions(machine),
            contents: contents(machine, &device),
            device,
        })
        .collect()
}
