//! From a path or a device down to the disks below: partitions, md, LVM and other device mappings, loop files.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Machine;
use super::mounts::Mount;

/// LVM on LUKS on md on partitions are four; a loop file on top of all that doubles it.
const DEPTH_MAX: usize = 12;

/// Filesystems that are memory.
pub const MEMORY_FILESYSTEMS: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// zram, and the kernel's RAM disks.
fn is_memory(device: &str) -> bool {
    let numbered = |kind| device.strip_prefix(kind).is_some_and(|n| n.parse::<u32>().is_ok());
    numbered("zram") || numbered("ram")
}

/// How one piece of data lies on several disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrangement {
    /// `stripe`, `mirror`, `raidz2`, `raid5`, `linear`: as descriptions of the doctor name them.
    pub kind: String,
    /// Parity groups or mirrors side by side.
    pub groups: u32,
    /// Of a mirror.
    pub copies: u32,
}

/// The devices and layers below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Below {
    /// Kernel names of whole devices, in order, each once.
    pub devices: Vec<String>,
    /// The layers on the way down, from the top: `dm-0 (LVM vg-data)`, `md127 (raid5)`.
    pub layers: Vec<String>,
    /// Kernel names of what was passed: loop devices, md, dm.
    #[serde(skip)]
    pub passed: Vec<String>,
    /// Of the uppermost layer that has several disks, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrangement: Option<Arrangement>,
    /// Layers that are memory: `zram0`, `the file /tmp/x.img on tmpfs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<String>,
    /// Loop devices that read and write their file through this machine's memory, whoever asks for direct I/O.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffered: Vec<String>,
    /// Why it could not be followed, where it could not.
    pub unknown: Vec<String>,
}

impl Machine {
    /// The kernel's name of a device given as `/dev/...`, `sda` or `/dev/disk/by-id/...`.
    pub fn device_name(&self, path: &Path) -> Option<String> {
        let real = if self.is_live() { path.canonicalize().ok()? } else { path.to_owned() };
        let inside = real.strip_prefix("/dev").ok()?;
        let name = inside.to_str()?.replace('/', "!");
        if !name.is_empty() && self.exists(Path::new("/sys/class/block").join(&name)) {
            return Some(name);
        }
        // /dev/mapper/NAME may be a node of its own instead of a link to dm-N.
        let mapper = name.strip_prefix("mapper!")?.to_owned();
        self.list("/sys/class/block")
            .into_iter()
            .find(|dm| self.read(Path::new("/sys/class/block").join(dm).join("dm/name")).is_some_and(|n| n == mapper))
    }

    /// The disks below a mounted filesystem.
    pub fn below_mount(&self, mount: &Mount) -> Below {
        let mut below = Below::default();
        match mount.filesystem.as_str() {
            "btrfs" => self.below_btrfs(mount, &mut below),
            "zfs" => self.below_zfs(mount, &mut below),
            _ => match self.name_of_number(&mount.number) {
                Some(name) => self.descend(&name, &mut below, 0),
                None => below.unknown.push(format!("which disks {} ({}) lies on", mount.source, mount.filesystem)),
            },
        }
        below
    }

    /// The disks below a device, itself if there is nothing below it.
    pub fn below_device(&self, name: &str) -> Below {
        let mut below = Below::default();
        self.descend(name, &mut below, 0);
        below
    }

    fn name_of_number(&self, number: &str) -> Option<String> {
        self.link_name(Path::new("/sys/dev/block").join(number))
    }

    /// btrfs numbers its mounts itself, and knows its devices by its UUID.
    fn below_btrfs(&self, mount: &Mount, below: &mut Below) {
        let Some(source) = self.device_name(Path::new(&mount.source)) else {
            below.unknown.push(format!("which disks {} (btrfs) lies on", mount.source));
            return;
        };
        let all = Path::new("/sys/fs/btrfs");
        let mine = self.list(all).into_iter().map(|uuid| self.list(all.join(uuid).join("devices")));
        let together = mine.into_iter().find(|devices| devices.contains(&source));
        let together = together.unwrap_or_else(|| vec![source]);
        if let Some(device) = together.first().filter(|_| together.len() > 1) {
            below.arrangement = self.btrfs_arrangement(device);
        }
        for device in together {
            self.descend(&device, below, 0);
        }
    }

    /// The profile of its data: while it is being converted there are two, and no arrangement.
    fn btrfs_arrangement(&self, device: &str) -> Option<Arrangement> {
        let all = Path::new("/sys/fs/btrfs");
        let uuid = self.list(all).into_iter().find(|uuid| self.exists(all.join(uuid).join("devices").join(device)))?;
        let folder = all.join(uuid).join("allocation/data");
        const PROFILES: [(&str, &str, u32); 9] = [
            ("raid0", "stripe", 1),
            ("single", "linear", 1),
            ("dup", "linear", 1),
            ("raid1", "mirror", 2),
            ("raid10", "mirror", 2),
            ("raid1c3", "mirror", 3),
            ("raid1c4", "mirror", 4),
            ("raid5", "raid5", 1),
            ("raid6", "raid6", 1),
        ];
        let mut found = PROFILES.iter().filter(|(profile, ..)| self.exists(folder.join(profile)));
        let (_, kind, copies) = found.next().filter(|_| found.next().is_none())?;
        Some(Arrangement { kind: (*kind).to_owned(), groups: 1, copies: *copies })
    }

    /// Those of the data: logs, caches and spares take no part of what is read and written at length.
    fn below_zfs(&self, mount: &Mount, below: &mut Below) {
        let Some(pool) = self.zfs_pool_of(&mount.source) else {
            below
                .unknown
                .push(format!("which disks the ZFS dataset {} lies on: zpool status does not say", mount.source));
            return;
        };
        below.layers.push(format!("{} (ZFS {})", pool.name, pool.shape()));
        below.arrangement = pool.arrangement();
        for disk in pool.data().flat_map(|vdev| &vdev.disks) {
            match self.device_name(Path::new(disk)) {
                Some(name) => self.descend(&name, below, 0),
                None => below.unknown.push(format!("what {disk} of the pool {} is", pool.name)),
            }
        }
    }

    /// Of an md array.
    fn md_arrangement(&self, sys: &Path) -> Option<Arrangement> {
        let disks = u32::try_from(self.number(sys.join("md/raid_disks"))?).ok()?;
        let (kind, copies) = match self.read(sys.join("md/level"))?.as_str() {
            "raid0" => ("stripe", 1),
            "linear" => ("linear", 1),
            "raid1" => ("mirror", disks.max(1)),
            // The lowest byte is the number of copies beside each other, the next of those far away (md(4)).
            "raid10" => {
                let layout = self.number(sys.join("md/layout")).unwrap_or(0x102);
                ("mirror", u32::try_from((layout & 0xff).max(1) * (layout >> 8 & 0xff).max(1)).ok()?)
            }
            "raid5" | "raid4" => ("raid5", 1),
            "raid6" => ("raid6", 1),
            _ => return None,
        };
        Some(Arrangement { kind: kind.to_owned(), groups: 1, copies })
    }

    fn descend(&self, name: &str, below: &mut Below, depth: usize) {
        let Some(sys) = self.real(Path::new("/sys/class/block").join(name)) else {
            below.unknown.push(format!("what {name} is: it is not in /sys"));
            return;
        };
        if depth > DEPTH_MAX {
            below.unknown.push(format!("what lies below {name}: more than {DEPTH_MAX} layers"));
            return;
        }
        if self.exists(sys.join("partition")) {
            let whole = sys.parent().and_then(Path::file_name).and_then(|n| n.to_str()).map(str::to_owned);
            return match whole {
                Some(whole) => self.descend(&whole, below, depth + 1),
                None => below.unknown.push(format!("which disk the partition {name} is of")),
            };
        }
        if let Some(file) = self.read(sys.join("loop/backing_file")) {
            below.layers.push(format!("{name} (the file {file})"));
            below.passed.push(name.to_owned());
            if self.flag(sys.join("loop/dio")) == Some(false) && !below.buffered.iter().any(|known| known == name) {
                below.buffered.push(name.to_owned());
            }
            return self.descend_file(Path::new(&file), below, depth + 1);
        }
        let slaves = self.list(sys.join("slaves"));
        if slaves.is_empty() {
            if !below.devices.iter().any(|d| d == name) {
                below.devices.push(name.to_owned());
                below.memory.extend(is_memory(name).then(|| name.to_owned()));
            }
            return;
        }
        below.layers.push(self.layer_title(name, &sys));
        below.passed.push(name.to_owned());
        if below.arrangement.is_none() {
            below.arrangement = self.md_arrangement(&sys);
        }
        for slave in slaves {
            self.descend(&slave, below, depth + 1);
        }
    }

    fn descend_file(&self, file: &Path, below: &mut Below, depth: usize) {
        let mounts = self.mounts();
        let mount = mounts.of(file);
        if let Some(mount) = mount.filter(|mount| MEMORY_FILESYSTEMS.contains(&mount.filesystem.as_str())) {
            return below.memory.push(format!("the file {} on {}", file.display(), mount.filesystem));
        }
        let number = mount.map(|mount| mount.number.clone());
        match number.and_then(|number| self.name_of_number(&number)) {
            Some(name) => self.descend(&name, below, depth),
            None => below.unknown.push(format!("which disk the file {} lies on", file.display())),
        }
    }

    fn layer_title(&self, name: &str, sys: &Path) -> String {
        if let Some(level) = self.read(sys.join("md/level")) {
            return format!("{name} ({level})");
        }
        let mapped = self.read(sys.join("dm/name")).unwrap_or_default();
        let kind = match self.read(sys.join("dm/uuid")).unwrap_or_default() {
            uuid if uuid.starts_with("LVM-") => "LVM",
            uuid if uuid.starts_with("CRYPT-") => "encrypted",
            uuid if uuid.starts_with("mpath-") => "multipath",
            _ => "mapped",
        };
        if mapped.is_empty() { name.to_owned() } else { format!("{name} ({kind} {mapped})") }
    }

    /// A path without links; of one that is yet to be made, the part that is there.
    pub fn resolve(&self, path: &Path) -> Option<PathBuf> {
        if !self.is_live() {
            return path.is_absolute().then(|| path.to_owned());
        }
        let absolute = std::path::absolute(path).ok()?;
        absolute.ancestors().find_map(|dir| dir.canonicalize().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    /// A filesystem on a loop device over a file: on a disk, and in memory.
    fn looped(dio: &str, filesystem: &str) -> Below {
        let fixture = Fixture::new(&format!(
            "@loop = /sys/devices/virtual/block/loop1\n\
             @sda = /sys/devices/pci0000:00/block/sda\n\
             /sys/class/block/loop1 -> /sys/devices/virtual/block/loop1\n\
             /sys/class/block/sda -> /sys/devices/pci0000:00/block/sda\n\
             /sys/dev/block/8:0 -> /sys/devices/pci0000:00/block/sda\n\
             @loop/size = 2048\n@loop/dev = 7:1\n@loop/loop/backing_file = /srv/x.img\n@loop/loop/dio = {dio}\n\
             @sda/size = 2048\n@sda/dev = 8:0\n\
             /proc/self/mountinfo = 30 1 8:0 / /srv rw - {filesystem} /dev/sda rw\n"
        ));
        fixture.machine.below_device("loop1")
    }

    #[test]
    fn a_loop_device_may_read_through_memory() {
        let below = looped("0", "ext4");
        assert_eq!(
            (below.buffered, below.devices, below.memory),
            (vec!["loop1".to_owned()], vec!["sda".to_owned()], vec![])
        );
        assert_eq!(looped("1", "ext4").buffered, [""; 0]);
        assert_eq!(looped("0", "tmpfs").memory, ["the file /srv/x.img on tmpfs"]);
        assert!(is_memory("zram0") && is_memory("ram12") && !is_memory("rambus") && !is_memory("sda"));
    }
}
