//! Processes that a control group's quota holds back.

use serde::Serialize;

use crate::Machine;
use crate::machine::quota::groups;

/// Held back in fewer periods than this a process had what it wanted.
const HELD_BACK_PERCENT_MIN: f64 = 20.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quota {
    pub pid: u32,
    pub name: String,
    /// Its limit, in cores.
    pub cores: f64,
    /// The part of the periods in which it was at its end, of those in which it ran.
    pub held_back_percent: f64,
    pub group: String,
}

/// One process for each group that is held back.
pub(super) fn quotas(machine: &Machine) -> Vec<Quota> {
    let quota = |group: crate::machine::quota::Group| {
        let (periods, throttled) = group.periods(machine).filter(|(periods, _)| *periods > 0)?;
        let held_back_percent = throttled as f64 / periods as f64 * 100.0;
        let folder = group.folder.display().to_string();
        Some(Quota { pid: group.pid, name: group.name, cores: group.cores, held_back_percent, group: folder })
    };
    groups(machine).into_iter().filter_map(quota).filter(|q| q.held_back_percent >= HELD_BACK_PERCENT_MIN).collect()
}
