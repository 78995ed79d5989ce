//! Processes that work while nobody asks the machine for anything: two looks at their times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Machine;

/// Ticks a second in /proc/PID/stat, on every Linux that we know (USER_HZ).
const TICKS_PER_S: f64 = 100.0;
/// Less than this is nobody's fault.
const SHARE_MIN_PERCENT: f64 = 10.0;
const HOGS_MAX: usize = 5;

#[derive(Clone, Debug, Serialize)]
pub struct Busy {
    pub seconds: f64,
    /// The greatest first.
    pub hogs: Vec<Hog>,
    /// Percent of all cores' time, of the machine.
    pub iowait_percent: f64,
    pub steal_percent: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hog {
    pub pid: u32,
    pub name: String,
    /// Of one core.
    pub percent: f64,
}

impl Busy {
    pub(super) fn watch(machine: &Machine, time: Duration) -> Self {
        let start = Instant::now();
        let (before, all_before) = (processes(machine), machine_times(machine));
        std::thread::sleep(time);
        let (after, all_after) = (processes(machine), machine_times(machine));
        let seconds = start.elapsed().as_secs_f64();
        let own = std::process::id();
        let mut hogs: Vec<Hog> = after
            .into_iter()
            .filter(|(pid, _)| *pid != own)
            .filter_map(|(pid, (name, ticks))| {
                let used = ticks.saturating_sub(before.get(&pid)?.1) as f64 / TICKS_PER_S;
                Some(Hog { pid, name, percent: used / seconds * 100.0 })
            })
            .filter(|hog| hog.percent >= SHARE_MIN_PERCENT)
            .collect();
        hogs.sort_by(|a, b| b.percent.total_cmp(&a.percent));
        hogs.truncate(HOGS_MAX);
        let part = |at: usize| {
            let of = |times: &[u64]| (times.get(at).copied().unwrap_or(0), times.iter().take(8).sum::<u64>());
            let ((a, all_a), (b, all_b)) = (of(&all_before), of(&all_after));
            b.saturating_sub(a) as f64 / (all_b.saturating_sub(all_a)).max(1) as f64 * 100.0
        };
        Self { seconds, hogs, iowait_percent: part(4), steal_percent: part(7) }
    }
}

/// The line `cpu` of /proc/stat: user nice system idle iowait irq softirq steal.
fn machine_times(machine: &Machine) -> Vec<u64> {
    let text = machine.read("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    first.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect()
}

/// Name, and user and system time in ticks: fields 14 and 15 of proc(5).
fn processes(machine: &Machine) -> BTreeMap<u32, (String, u64)> {
    let times = |pid| {
        let (name, fields) = machine.process_stat(pid)?;
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some((pid, (name, ticks(11)?.checked_add(ticks(12)?)?)))
    };
    machine.process_ids().filter_map(times).collect()
}
