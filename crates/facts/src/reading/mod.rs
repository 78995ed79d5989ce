//! A machine as the doctor reads it: every disk's way to the processor, the network, the processor, the settings, and
//! other work on it.
//!
//! Facts only. Conclusions are the doctor's (`larder-measure`, `doctor/findings/`).

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Machine;
use crate::disk::{CheckOptions, DiskReport, check};
use crate::machine::{ArcStats, ZfsPool, whole_devices};

mod bracketed;
mod busy;
mod hops;
mod host;
mod nets;
mod quota;
mod storage;
mod stores;

pub use bracketed::bracketed;
pub use busy::{Busy, Hog};
pub use hops::{Hop, HopKind};
pub use host::{Host, Processor};
pub use nets::{Nic, Tcp};
pub use quota::Quota;
pub use storage::Drive;
pub use storage::gigabits;
pub use stores::Store;

/// Everything that was read. A fact that could not be read is missing, and `unknown` says why
/// (`facts.unknown_is_said`).
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    pub host: Host,
    pub processor: Processor,
    pub drives: Vec<Drive>,
    /// Filesystems over several disks at once, without the system's own.
    pub stores: Vec<Store>,
    pub zfs: Vec<ZfsPool>,
    pub arc: Option<ArcStats>,
    pub nics: Vec<Nic>,
    pub tcp: Tcp,
    /// `performance`, `default`, `powersave`, `powersupersave`.
    pub aspm_policy: Option<String>,
    /// How long an NVMe disk may take to wake up before the kernel lets it sleep so deep.
    pub nvme_latency_max_us: Option<u64>,
    /// Of a recorded machine nobody can say who is working.
    pub busy: Option<Busy>,
    /// Processes that a control group holds back.
    pub quotas: Vec<Quota>,
    #[serde(skip)]
    pub disks: Vec<DiskReport>,
}

#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Asks the disks themselves: wakes those that sleep.
    pub smart: bool,
    /// How long to watch who works.
    pub watch: std::time::Duration,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { smart: true, watch: std::time::Duration::from_secs(1) }
    }
}

impl Reading {
    pub fn of(machine: &Machine, options: ReadOptions) -> Self {
        let names = whole_devices(machine);
        let kept = names.iter().filter(|name| !name.starts_with("loop") && !name.starts_with("nbd"));
        // md and dm are made of others: those are what has a way. Held against each other they would be no two disks.
        let paths_twice = second_paths(machine, &names);
        let kept = kept.filter(|name| !is_made_of_others(machine, name) && !paths_twice.contains(name));
        let paths: Vec<PathBuf> = kept.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect();
        let checked = CheckOptions { flush_test: false, smart: options.smart, wake: false, ..CheckOptions::default() };
        let disks = check(machine, &paths, &checked).disks;
        let shingled = |d: &DiskReport| d.findings.iter().any(|f| f.code == "smr");
        let devices = disks.iter().flat_map(|d| d.devices.iter().map(move |one| (one, shingled(d))));
        let mut drives: Vec<Drive> = devices.map(|(one, smr)| Drive::read(machine, one, smr)).collect();
        drives.dedup_by(|a, b| a.name == b.name);
        drives.retain(|d| d.bus != crate::machine::Bus::Virtual);
        Self {
            host: Host::read(machine),
            processor: Processor::read(machine),
            drives,
            stores: stores::stores(machine),
            zfs: machine.zfs_pools().to_vec(),
            arc: machine.zfs_arc(),
            nics: nets::nics(machine),
            tcp: Tcp::read(machine),
            aspm_policy: machine.read("/sys/module/pcie_aspm/parameters/policy").and_then(|t| bracketed(&t)),
            nvme_latency_max_us: machine.number("/sys/module/nvme_core/parameters/default_ps_max_latency_us"),
            busy: machine.is_live().then(|| Busy::watch(machine, options.watch)),
            quotas: quota::quotas(machine),
            disks,
        }
    }
}

fn is_made_of_others(machine: &Machine, name: &str) -> bool {
    !machine.list(Path::new("/sys/class/block").join(name).join("slaves")).is_empty()
}

/// Of a disk on several paths the first stands for it, where multipathd has put them together.
fn second_paths(machine: &Machine, names: &[String]) -> Vec<String> {
    let sys = |name: &String| Path::new("/sys/class/block").join(name);
    let multipath = |name: &&String| machine.read(sys(name).join("dm/uuid")).is_some_and(|id| id.starts_with("mpath-"));
    let paths = names.iter().filter(multipath).map(|name| machine.list(sys(name).join("slaves")));
    paths.flat_map(|paths| paths.into_iter().skip(1)).collect()
}
