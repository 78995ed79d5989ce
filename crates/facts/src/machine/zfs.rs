//! ZFS pools, as `zpool` tells of them, and ZFS's own cache. The kernel says nothing of either in /sys.

use std::path::Path;

use serde::Serialize;

use super::Machine;

/// A machine with more is not a home's.
const POOLS_MAX: usize = 64;
const VDEVS_MAX: usize = 256;
const DISKS_MAX: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ZfsPool {
    pub name: String,
    /// `ONLINE`, `DEGRADED`, ...
    pub state: String,
    pub vdevs: Vec<Vdev>,
    pub size_bytes: Option<u64>,
    pub used_percent: Option<u64>,
    pub fragmented_percent: Option<u64>,
}

/// A group of disks that keeps its own copies or parity.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Vdev {
    /// `mirror`, `raidz2`, `draid1`, or `disk`.
    pub kind: String,
    /// What it is for: empty for data, or `special`, `dedup`, `logs`, `cache`, `spares`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// As `zpool status -P -L` names them: `/dev/sda1`.
    pub disks: Vec<String>,
}

/// ZFS's cache of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArcStats {
    pub size_bytes: u64,
    pub most_bytes: u64,
    /// Of all that was asked of it since the start.
    pub hit_percent: Option<f64>,
}

impl ZfsPool {
    /// Where data lies; nothing of logs, caches and spares.
    pub fn data(&self) -> impl Iterator<Item = &Vdev> {
        self.vdevs.iter().filter(|v| v.class.is_empty())
    }

    /// `2 x raidz2 of 4`; as many words as there are kinds and widths.
    pub fn shape(&self) -> String {
        let mut found: Vec<(String, usize)> = Vec::new();
        for vdev in self.data() {
            let words =
                if vdev.kind == "disk" { "disk".to_owned() } else { format!("{} of {}", vdev.kind, vdev.disks.len()) };
            match found.iter_mut().find(|(known, _)| *known == words) {
                Some((_, count)) => *count += 1,
                None => found.push((words, 1)),
            }
        }
        let words = |(words, count): (String, usize)| if count == 1 { words } else { format!("{count} x {words}") };
        found.into_iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// One disk of each vdev is answered for by the others.
    pub(super) fn arrangement(&self) -> Option<super::Arrangement> {
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
        Some(super::Arrangement { kind, groups, copies: u32::try_from(copies).ok()?.max(1) })
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

fn fill(pool: &mut ZfsPool, list: &str) {
    let line = list.lines().find(|line| line.split('\t').next() == Some(pool.name.as_str()));
    let Some(line) = line else { return };
    let mut numbers = line.split('\t').skip(1).map(|field| field.trim_end_matches('%').parse::<u64>().ok());
    pool.size_bytes = numbers.next().flatten();
    pool.used_percent = numbers.next().flatten();
    pool.fragmented_percent = numbers.next().flatten();
}

/// zpool-status(8): below `config:` a table that is indented by a tab, and by two blanks for each level.
fn parse_status(text: &str) -> Vec<ZfsPool> {
    let mut pools: Vec<ZfsPool> = Vec::new();
    let mut class = String::new();
    for line in text.lines() {
        if let Some(name) = line.trim_start().strip_prefix("pool: ").filter(|_| !line.starts_with('\t')) {
            if pools.len() < POOLS_MAX {
                pools.push(ZfsPool { name: name.trim().to_owned(), ..ZfsPool::default() });
            }
            class.clear();
            continue;
        }
        let Some(pool) = pools.last_mut() else { continue };
        if let Some(state) = line.trim_start().strip_prefix("state: ").filter(|_| !line.starts_with('\t')) {
            state.trim().clone_into(&mut pool.state);
            continue;
        }
        let Some(row) = line.strip_prefix('\t') else { continue };
        let depth = (row.len() - row.trim_start_matches(' ').len()) / 2;
        let Some(name) = row.split_whitespace().next() else { continue };
        match depth {
            0 if ["special", "dedup", "logs", "cache", "spares"].contains(&name) => name.clone_into(&mut class),
            // The table's head and the pool itself.
            0 => class.clear(),
            _ if name.starts_with('/') => add_disk(pool, &class, depth, name),
            1 if pool.vdevs.len() < VDEVS_MAX => {
                let kind = name.split(['-', ':']).next().unwrap_or(name).to_owned();
                pool.vdevs.push(Vdev { kind, class: class.clone(), disks: Vec::new() });
            }
            // `replacing-0`, `spare-1`: their disks belong to the vdev above.
            _ => {}
        }
    }
    pools
}

fn add_disk(pool: &mut ZfsPool, class: &str, depth: usize, name: &str) {
    if depth == 1 && pool.vdevs.len() < VDEVS_MAX {
        pool.vdevs.push(Vdev { kind: "disk".to_owned(), class: class.to_owned(), disks: vec![name.to_owned()] });
    } else if let Some(vdev) = pool.vdevs.last_mut().filter(|v| depth > 1 && v.disks.len() < DISKS_MAX) {
        vdev.disks.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Arrangement;
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

    #[test]
    fn what_is_no_status_is_no_pool() {
        for text in [
            "",
            "no pools available\n",
            "\ttank ONLINE\n",
            "  pool: \n",
            "pool: a\nconfig:\n\n\t  x\n\t\t\n\t  /dev/\u{1F}\n",
        ] {
            let pools = parse_status(text);
            assert!(pools.len() <= 1, "{text}");
        }
        let many: String = (0..1000).map(|n| format!("  pool: p{n}\n\t  raidz1-0\n")).collect();
        assert_eq!(parse_status(&many).len(), POOLS_MAX);
    }
}
