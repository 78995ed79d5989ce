//! Processes that may only use a part of the processor: control groups with a quota, and how often it held them back.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Machine;

const PROCESSES_MAX: usize = 8192;
const FOUND_MAX: usize = 16;
/// Held back in fewer periods than this a process had what it wanted.
const HELD_BACK_PERCENT_MIN: f64 = 20.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quota {
    pub pid: u32,
    pub name: String,
    /// What it may use, in cores.
    pub cores: f64,
    /// The part of the periods in which it was at its end, of those in which it ran.
    pub held_back_percent: f64,
    pub group: String,
}

/// One process for each group that is held back.
pub(super) fn quotas(machine: &Machine) -> Vec<Quota> {
    let mut found: Vec<Quota> = Vec::new();
    let pids = machine.list("/proc").into_iter().filter_map(|n| n.parse::<u32>().ok()).take(PROCESSES_MAX);
    for pid in pids {
        let Some(groups) = machine.read(format!("/proc/{pid}/cgroup")) else { continue };
        for folder in groups.lines().filter_map(folder) {
            let group = folder.display().to_string();
            if found.len() >= FOUND_MAX || found.iter().any(|q| q.group == group) {
                continue;
            }
            let name = machine.read(format!("/proc/{pid}/comm")).unwrap_or_default();
            if let Some((cores, held_back_percent)) = limit(machine, &folder) {
                found.push(Quota { pid, name, cores, held_back_percent, group });
            }
        }
    }
    found.retain(|q| q.held_back_percent >= HELD_BACK_PERCENT_MIN);
    found
}

/// `0::/PATH` in version 2, `3:cpu,cpuacct:/PATH` in version 1 (cgroups(7)).
fn folder(line: &str) -> Option<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    let inside =
        !path.is_empty() && !Path::new(path).components().any(|c| matches!(c, std::path::Component::ParentDir));
    match controllers {
        "" if inside => Some(Path::new("/sys/fs/cgroup").join(path)),
        list if inside && list.split(',').any(|c| c == "cpu") => Some(Path::new("/sys/fs/cgroup/cpu").join(path)),
        _ => None,
    }
}

/// Cores, and percent of the periods in which they were used up.
fn limit(machine: &Machine, folder: &Path) -> Option<(f64, f64)> {
    let number = |file: &str| machine.read(folder.join(file))?.parse::<f64>().ok();
    let cores = match machine.read(folder.join("cpu.max")) {
        // `25000 100000` or `max 100000`.
        Some(text) => {
            let mut words = text.split(' ');
            words.next()?.parse::<f64>().ok()? / words.next()?.parse::<f64>().ok()?
        }
        None => number("cpu.cfs_quota_us").filter(|q| *q > 0.0)? / number("cpu.cfs_period_us")?,
    };
    let text = machine.read(folder.join("cpu.stat"))?;
    let of = |field: &str| text.lines().find_map(|l| l.strip_prefix(field)?.trim().parse::<f64>().ok());
    let (periods, throttled) = (of("nr_periods")?, of("nr_throttled")?);
    (cores.is_finite() && periods > 0.0).then(|| (cores, throttled / periods * 100.0))
}
