//! Mounted filesystems on which a folder could become a disk of a pool.

use std::collections::BTreeSet;
use std::path::Path;

use super::check::system_disks;
use crate::Machine;
use crate::machine::Mount;

/// Below these the system mounts its own.
const OF_SYSTEM: [&str; 10] = ["/boot", "/dev", "/etc", "/nix", "/proc", "/run", "/snap", "/sys", "/usr", "/var"];
/// But here it mounts what people plug in.
const OF_PEOPLE: [&str; 1] = ["/run/media"];

#[derive(Clone, Debug)]
pub struct FilesystemFound {
    pub mount: Mount,
    /// Kernel names of the whole disks below it.
    pub devices: Vec<String>,
}

/// Each filesystem once, at the first place where all of it is mounted for writing. Those on the disks that the machine
/// starts from are left out.
pub fn filesystems(machine: &Machine) -> Vec<FilesystemFound> {
    let system = system_disks(machine);
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for mount in machine.mounts().all().iter().filter(|mount| may_hold(mount)) {
        let devices = machine.below_mount(mount).devices;
        if devices.is_empty() || devices.iter().any(|name| system.contains(name)) || !seen.insert(mount.number.clone())
        {
            continue;
        }
        found.push(FilesystemFound { mount: mount.clone(), devices });
    }
    found
}

fn may_hold(mount: &Mount) -> bool {
    let below = |folders: &[&str]| folders.iter().any(|folder| mount.point.starts_with(folder));
    let is_of_system = mount.point == Path::new("/") || below(&OF_SYSTEM) && !below(&OF_PEOPLE);
    !mount.part && !mount.has("ro") && !is_of_system
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    #[test]
    fn filesystems_of_other_disks_than_the_systems_are_found() {
        let check = |text: &str, points: &[&str]| {
            let fixture = Fixture::new(text);
            let found = filesystems(&fixture.machine);
            let found: Vec<String> = found.iter().map(|one| one.mount.point.display().to_string()).collect();
            assert_eq!(found, points);
        };
        check(include_str!("../../fixtures/smr-disks.txt"), &["/mnt/b", "/mnt/c", "/mnt/d", "/mnt/e", "/mnt/f"]);
        check(include_str!("../../fixtures/virtual-machine.txt"), &[]);
    }
}
