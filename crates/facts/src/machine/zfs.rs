//! The ZFS pools of a machine, and ZFS's own cache. /sys has neither: `zpool` and `/proc/spl` are asked.

use std::path::Path;

use serde::Serialize;

use super::Machine;
use super::layers::Arrangement;
use super::zpool::{Vdev, ZfsPool, fill, parse_status};

/// ZFS's cache of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArcStats {
    pub size_bytes: u64,
    pub most_bytes: u64,
    /// Of all that was asked of it since the start.
    pub hit_percent: Option<f64>,
}

impl ZfsPool {
    /// One disk of each vdev is answered for by the others.
    pub(super) fn arrangement(&self) -> Option<Arrangement> {
        let vdevs: Vec<&Vdev> = self.data().collect();
        let first = vdevs.first()?;
        let groups = u32::try_from(vdevs.len()).ok()?;
        // Vdevs of different kinds have no arrangement that one word names.
        vdevs.iter().all(|v| v.kind == first.kind).then_some(())?;
        let kind = match first.kind.as_str() {
            "disk" => "stripe".to_owned(),
            // A draid is a raidz whose groups are spread over all of its disks.
            other => other.replace("draid", "raidz"),
        };
        let copies = if kind == "mirror" { vdevs.iter().map(|v| v.disks.len()).min()? } else { 1 };
        Some(Arrangement { kind, groups, copies: u32::try_from(copies).ok()?.max(1) })
    }
}

impl Machine {
    /// All that are imported; none where there is no ZFS.
    pub fn zfs_pools(&self) -> &[ZfsPool] {
        self.zfs.get_or_init(|| {
            // Asking loads the kernel's module where it is installed but not used.
            if !self.exists("/proc/spl/kstat/zfs") {
                return Vec::new();
            }
            let said = |args: &[&str], subject: &str| {
                let said = self.run("zpool", args, subject).ok()?;
                Some(String::from_utf8_lossy(&said.stdout).into_owned())
            };
            let mut pools = said(&["status", "-P", "-L"], "status").map(|text| parse_status(&text)).unwrap_or_default();
            let list = said(&["list", "-Hp", "-o", "name,size,capacity,fragmentation"], "list").unwrap_or_default();
            for pool in &mut pools {
                fill(pool, &list);
            }
            pools
        })
    }

    /// The pool of `tank/data/photos`.
    pub fn zfs_pool_of(&self, dataset: &str) -> Option<&ZfsPool> {
        let name = dataset.split('/').next()?;
        self.zfs_pools().iter().find(|pool| pool.name == name)
    }

    pub fn zfs_arc(&self) -> Option<ArcStats> {
        let text = self.read(Path::new("/proc/spl/kstat/zfs/arcstats"))?;
        let of = |name: &str| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
            line.split_whitespace().nth(2)?.parse::<u64>().ok()
        };
        let (hits, misses) = (of("hits").unwrap_or(0) as f64, of("misses").unwrap_or(0) as f64);
        let hit_percent = (hits + misses > 0.0).then(|| hits / (hits + misses) * 100.0);
        Some(ArcStats { size_bytes: of("size")?, most_bytes: of("c_max")?, hit_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    const BOX: &str = include_str!("../../fixtures/zfs-box.txt");

    #[test]
    fn pools_are_read_with_their_vdevs() {
        let fixture = Fixture::new(BOX);
        let pools = fixture.machine.zfs_pools();
        assert_eq!(pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["fast", "tank"]);
        let (fast, tank) = (&pools[0], &pools[1]);
        assert_eq!((tank.state.as_str(), tank.shape().as_str()), ("DEGRADED", "2 x raidz2 of 4"));
        assert_eq!(tank.arrangement(), Some(Arrangement { kind: "raidz2".into(), groups: 2, copies: 1 }));
        // The disk that is replaced and the one that takes its place are both of the first group.
        assert_eq!(tank.vdevs[0].disks, ["/dev/sda1", "/dev/sdb1", "/dev/sdc1", "/dev/sdi1"]);
        let classes: Vec<_> = tank.vdevs.iter().map(|v| (v.class.as_str(), v.kind.as_str(), v.disks.len())).collect();
        assert_eq!(
            classes,
            [
                ("", "raidz2", 4),
                ("", "raidz2", 4),
                ("special", "mirror", 2),
                ("logs", "disk", 1),
                ("spares", "disk", 1)
            ]
        );
        assert_eq!(
            (tank.size_bytes, tank.used_percent, tank.fragmented_percent),
            (Some(31_885_837_205_504), Some(91), Some(34))
        );
        assert_eq!(fast.arrangement(), Some(Arrangement { kind: "mirror".into(), groups: 1, copies: 2 }));
        let arc = fixture.machine.zfs_arc().unwrap();
        assert_eq!((arc.size_bytes, arc.most_bytes, arc.hit_percent), (8_589_934_592, 17_179_869_184, Some(75.0)));
    }

    #[test]
    fn a_dataset_leads_to_its_disks() {
        let fixture = Fixture::new(BOX);
        let mounts = fixture.machine.mounts();
        let below = fixture.machine.below_mount(mounts.of(Path::new("/tank/photos/2024")).unwrap());
        assert_eq!(below.devices, ["sda", "sdb", "sdc", "sdi", "sdd", "sde", "sdf", "sdg"]);
        assert_eq!(below.layers, ["tank (ZFS 2 x raidz2 of 4)"]);
        assert_eq!(below.arrangement.unwrap().kind, "raidz2");
    }

    #[test]
    fn without_zpool_it_is_said() {
        let bare: String = BOX.lines().map(|line| line.replace("/tools/zpool/", "/tools/nothing/") + "\n").collect();
        let fixture = Fixture::new(&bare);
        let mounts = fixture.machine.mounts();
        let below = fixture.machine.below_mount(mounts.of(Path::new("/tank")).unwrap());
        assert!(below.devices.is_empty() && below.unknown[0].contains("zpool"), "{below:?}");
        assert!(Fixture::new("/proc/version = x\n").machine.zfs_pools().is_empty());
    }
}
