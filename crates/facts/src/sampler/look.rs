//! One look at the kernel's counters and sensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::others::{Others, Shared};
use crate::Machine;
use crate::machine::proc::DiskCounters;
use crate::machine::quota::{Group, groups};
use crate::machine::whole_devices;

/// Machines with more of anything are not looked at whole.
pub const CORES_MAX: usize = 256;
pub const DISKS_MAX: usize = 64;
pub const NETS_MAX: usize = 64;
pub const SENSORS_MAX: usize = 64;

/// Clock ticks of one core (proc_stat(5)); guests are within user and nice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CoreTicks {
    pub(super) user: u64,
    pub(super) nice: u64,
    pub(super) system: u64,
    pub(super) idle: u64,
    pub(super) iowait: u64,
    pub(super) irq: u64,
    pub(super) steal: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NetCounts {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) cores: BTreeMap<u32, CoreTicks>,
    /// What other programs took of each core, and what the load waited for, since these counters were made.
    pub(super) shared: Option<BTreeMap<u32, Shared>>,
    pub(super) disks: BTreeMap<String, DiskCounters>,
    pub(super) nets: BTreeMap<String, NetCounts>,
    pub(super) retransmits: Option<u64>,
    /// Degrees Celsius.
    pub(super) temperatures: BTreeMap<String, f64>,
    /// MHz.
    pub(super) clocks: BTreeMap<u32, f64>,
    /// Counts of throttling, where they are counted.
    pub(super) throttled: u64,
    /// Throttled right now, where only that is told (Raspberry Pi).
    pub(super) throttled_now: bool,
    /// Of control groups with a quota: the periods in which one ran, and those in which it was held back.
    pub(super) quotas: BTreeMap<String, (u64, u64)>,
}

/// The files of the kernel's counters. They do not change while a bench runs, so they are looked for once.
pub(super) struct Counters {
    machine: Machine,
    disks: Vec<String>,
    sensors: Vec<(String, PathBuf)>,
    /// Of servers, by their titles.
    limited: Vec<(String, Group)>,
    others: Others,
}

impl Counters {
    pub(super) fn new(machine: &Machine) -> Self {
        let mut disks = whole_devices(machine);
        disks.retain(|name| !name.starts_with("loop"));
        disks.truncate(DISKS_MAX);
        let title = |g: Group| (format!("{} (pid {}), {:.2} cores", g.name, g.pid, g.cores), g);
        let limited = groups(machine).into_iter().filter(Group::serves).map(title).collect();
        Self { disks, sensors: sensors(machine), limited, machine: machine.clone(), others: Others::default() }
    }

    pub(super) fn look(&mut self) -> Look {
        let shared = self.others.look(&self.machine);
        let machine = &self.machine;
        let read = |path: &str| machine.read(path).unwrap_or_default();
        let temperature = |(name, path): &(String, PathBuf)| {
            let milli = machine.read(path)?.parse::<f64>().ok()?;
            Some((name.clone(), milli / 1000.0))
        };
        let cores = cores(&read("/proc/stat"));
        Look {
            disks: disks(machine.disk_counters(), &self.disks),
            nets: nets(&read("/proc/net/dev")),
            retransmits: retransmits(&read("/proc/net/snmp")),
            temperatures: self.sensors.iter().filter_map(temperature).collect(),
            clocks: clocks(machine, &cores),
            throttled: throttled(machine, &cores),
            throttled_now: throttled_now(machine),
            quotas: self.limited.iter().filter_map(|(name, g)| Some((name.clone(), g.periods(machine)?))).collect(),
            cores,
            shared,
        }
    }
}

/// The negotiated rate of a link in one direction; unknown for links without a speed, such as loopback and bridges.
pub(super) fn link_bytes_per_s(machine: &Machine, interface: &str) -> Option<f64> {
    let megabits: f64 = machine.read(Path::new("/sys/class/net").join(interface).join("speed"))?.parse().ok()?;
    (megabits > 0.0).then_some(megabits * 1e6 / 8.0)
}

fn cores(stat: &str) -> BTreeMap<u32, CoreTicks> {
    let line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let core = fields.next()?.parse().ok()?;
        let ticks: Vec<u64> = fields.filter_map(|f| f.parse().ok()).collect();
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0);
        let irq = at(5).saturating_add(at(6));
        let found =
            CoreTicks { user: at(0), nice: at(1), system: at(2), idle: at(3), iowait: at(4), irq, steal: at(7) };
        Some((core, found))
    };
    // The first line is the sum: `cpu ` followed by a blank.
    stat.lines().filter(|l| !l.starts_with("cpu ")).take(CORES_MAX).map_while(line).collect()
}

fn disks(mut counted: BTreeMap<String, DiskCounters>, wanted: &[String]) -> BTreeMap<String, DiskCounters> {
    counted.retain(|name, _| wanted.iter().any(|w| w.replace('!', "/") == *name));
    counted
}

fn nets(dev: &str) -> BTreeMap<String, NetCounts> {
    let line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        let found = NetCounts { received_bytes: *counts.first()?, sent_bytes: *counts.get(8)? };
        Some((name.trim().to_owned(), found))
    };
    dev.lines().filter_map(line).take(NETS_MAX).collect()
}

/// Two lines `Tcp:`, names and then values.
fn retransmits(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let place = lines.next()?.split_whitespace().position(|name| name == "RetransSegs")?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

/// Hardware monitors; where there are none, thermal zones.
fn sensors(machine: &Machine) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let top = Path::new("/sys/class/hwmon");
    for chip in machine.list(top) {
        let folder = top.join(&chip);
        let name = machine.read(folder.join("name")).unwrap_or_else(|| chip.clone());
        // `nvme` and `drivetemp` are many: the device behind says which.
        let device = machine.link_name(folder.join("device")).filter(|_| name == "nvme" || name == "drivetemp");
        let inputs = machine.list(&folder).into_iter().filter(|f| f.starts_with("temp") && f.ends_with("_input"));
        for input in inputs {
            let number = input.trim_end_matches("_input").to_owned();
            let label = machine.read(folder.join(format!("{number}_label"))).unwrap_or(number);
            let title = match &device {
                Some(device) => format!("{device} {label}"),
                None => format!("{name} {label}"),
            };
            push_sensor(&mut found, title, folder.join(input));
        }
    }
    let zones = Path::new("/sys/class/thermal");
    if !found.is_empty() {
        return found;
    }
    for zone in machine.list(zones).into_iter().filter(|z| z.starts_with("thermal_zone")) {
        let name = machine.read(zones.join(&zone).join("type")).unwrap_or_else(|| zone.clone());
        push_sensor(&mut found, name, zones.join(&zone).join("temp"));
    }
    found
}

fn push_sensor(found: &mut Vec<(String, PathBuf)>, title: String, path: PathBuf) {
    let same = found.iter().filter(|(name, _)| name.split('#').next() == Some(title.as_str())).count();
    let title = if same > 0 { format!("{title}#{}", same + 1) } else { title };
    if found.len() < SENSORS_MAX {
        found.push((title, path));
    }
}

fn core_folder(core: u32) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{core}"))
}

fn clocks(machine: &Machine, cores: &BTreeMap<u32, CoreTicks>) -> BTreeMap<u32, f64> {
    let khz = |core: u32| machine.number(core_folder(core).join("cpufreq/scaling_cur_freq"));
    let mhz = |&core: &u32| khz(core).map(|khz| (core, khz as f64 / 1000.0));
    cores.keys().filter_map(mhz).collect()
}

fn throttled(machine: &Machine, cores: &BTreeMap<u32, CoreTicks>) -> u64 {
    let of = |core: u32, file: &str| machine.number(core_folder(core).join("thermal_throttle").join(file)).unwrap_or(0);
    let own: u64 = cores.keys().map(|&core| of(core, "core_throttle_count")).fold(0, u64::saturating_add);
    // All cores of a package show the same count.
    let package = cores.keys().map(|&core| of(core, "package_throttle_count")).max().unwrap_or(0);
    own.saturating_add(package)
}

/// The Raspberry Pi's firmware: bits 0 to 3 are under-voltage, capped, throttled, soft limit, each right now.
fn throttled_now(machine: &Machine) -> bool {
    let text = machine.read("/sys/devices/platform/soc/soc:firmware/get_throttled").unwrap_or_default();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).is_ok_and(|bits| bits & 0xf != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let stat = "cpu  3 3 3 3\ncpu0 10 1 20 300 40 5 6 7 0 0\ncpu1 1 2 3\nintr 5 6\ncpu9 1";
        let found = cores(stat);
        assert_eq!(found.len(), 2);
        let core = CoreTicks { user: 10, nice: 1, system: 20, idle: 300, iowait: 40, irq: 11, steal: 7 };
        assert_eq!(found[&0], core);
        let dev = "Inter-| Receive\n face |bytes\n  eth0: 1000 1 0 0 0 0 0 0 2000 2 0 0 0 0 0 0\n lo:7";
        assert_eq!(nets(dev)["eth0"], NetCounts { received_bytes: 1000, sent_bytes: 2000 });
        assert_eq!(retransmits("Ip: a\nIp: 1\nTcp: InSegs RetransSegs\nTcp: 5 42\n"), Some(42));
        assert_eq!(retransmits("Tcp: InSegs\n"), None);
    }
}
