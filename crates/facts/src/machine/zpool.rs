//! ZFS pools in the words of `zpool`: their shape, and the reading of its tables.

use serde::Serialize;

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
    /// Its purpose: empty for data, or `special`, `dedup`, `logs`, `cache`, `spares`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// As `zpool status -P -L` names them: `/dev/sda1`.
    pub disks: Vec<String>,
}

impl ZfsPool {
    /// The vdevs that hold data; no logs, caches and spares.
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
}

pub(super) fn fill(pool: &mut ZfsPool, list: &str) {
    let line = list.lines().find(|line| line.split('\t').next() == Some(pool.name.as_str()));
    let Some(line) = line else { return };
    let mut numbers = line.split('\t').skip(1).map(|field| field.trim_end_matches('%').parse::<u64>().ok());
    pool.size_bytes = numbers.next().flatten();
    pool.used_percent = numbers.next().flatten();
    pool.fragmented_percent = numbers.next().flatten();
}

/// zpool-status(8): below `config:` a table that is indented by a tab, and by two blanks for each level.
pub(super) fn parse_status(text: &str) -> Vec<ZfsPool> {
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
