//! Filesystems on several disks: md, btrfs, ZFS.

use std::path::Path;

use serde::Serialize;

use crate::Machine;
use crate::machine::Arrangement;

const STORES_MAX: usize = 64;
/// Mount points of the system itself; served data lies elsewhere.
const SYSTEM: [&str; 6] = ["/", "/boot", "/boot/efi", "/usr", "/var", "/home"];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Store {
    /// `tank (ZFS 2 x raidz2 of 4)`, `md127 (raid5)`, or where it is mounted.
    pub name: String,
    pub disks: Vec<String>,
    pub arrangement: Arrangement,
}

/// Each set of disks once.
pub(super) fn stores(machine: &Machine) -> Vec<Store> {
    let mut found: Vec<Store> = Vec::new();
    for mount in machine.mounts().all().iter().filter(|m| !SYSTEM.iter().any(|system| m.point == Path::new(system))) {
        let below = machine.below_mount(mount);
        let Some(arrangement) = below.arrangement.filter(|_| below.devices.len() > 1) else { continue };
        let known = found.iter().any(|store| store.disks == below.devices);
        if !known && found.len() < STORES_MAX {
            let name = below.layers.into_iter().next().unwrap_or_else(|| mount.point.display().to_string());
            found.push(Store { name, disks: below.devices, arrangement });
        }
    }
    found
}
