//! Processes that keep disks from spinning down and the processor from sleeping: two looks at the kernel's counters, and
//! their differences.
//!
//! Disks: `/proc/diskstats`. Processes: `read_bytes` and `write_bytes` of `/proc/PID/io` (a write is counted for
//! whoever dirtied the page, not for the kernel thread that wrote it out), voluntary context switches of all threads
//! (each began with a wake-up), and open files, which say on which disks a process works. Interrupts:
//! `/proc/interrupts`.
//!
//! A look is itself a process that wakes and reads: it leaves itself out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::Machine;
use crate::machine::proc::{DiskCounters, InterruptLine};
use crate::machine::{BlockDevice, Bus, Medium, Mounts, whole_devices};

/// Bounds of one look.
const THREADS_MAX: usize = 256;
const FILES_MAX: usize = 256;
/// Rows of each table that are worth reading.
const ROWS_MAX: usize = 20;
/// A processor woken less often sleeps well.
const QUIET_PER_S: f64 = 1.0;

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    disks: BTreeMap<String, DiskCounters>,
    processes: BTreeMap<u32, ProcessCounters>,
    interrupts: BTreeMap<String, u64>,
    /// Processes whose I/O is not for us to see.
    denied: usize,
}

#[derive(Clone, Debug, Default)]
struct ProcessCounters {
    name: String,
    /// In ticks since the machine started: with the pid it tells a process, whose name may change.
    started: Option<u64>,
    switches: u64,
    read_bytes: u64,
    written_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskActivity {
    pub name: String,
    pub medium: Medium,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Nothing was asked of it: it could sleep.
    pub quiet: bool,
    /// Processes that did I/O and have files open on it.
    pub suspects: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessActivity {
    pub pid: u32,
    pub name: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakeUp {
    pub who: String,
    pub per_s: f64,
}

/// Activity of a span of time, the busiest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AwakeReport {
    pub seconds: f64,
    pub disks: Vec<DiskActivity>,
    pub processes: Vec<ProcessActivity>,
    pub wakeups: Vec<WakeUp>,
    pub interrupts: Vec<WakeUp>,
    pub unknown: Vec<String>,
}

/// The source of an `AwakeReport`: two snapshots and the time between them.
pub struct Activity<'a> {
    pub before: &'a Snapshot,
    pub after: &'a Snapshot,
    pub seconds: f64,
}

impl Snapshot {
    /// `ourselves`: the pid that is left out.
    pub fn take(machine: &Machine, ourselves: u32) -> Self {
        let mut snapshot = Self {
            disks: machine.disk_counters(),
            interrupts: machine.interrupt_lines().into_iter().map(interrupt).collect(),
            ..Self::default()
        };
        for pid in machine.process_ids().filter(|&pid| pid != ourselves) {
            let dir = Path::new("/proc").join(pid.to_string());
            let Some(name) = machine.read(dir.join("comm")) else { continue };
            let (started, switches) = (machine.process_started(pid), switches(machine, &dir));
            let mut process = ProcessCounters { name, started, switches, ..ProcessCounters::default() };
            match machine.read(dir.join("io")).filter(|io| !io.is_empty()) {
                Some(io) => {
                    let field = |name| field(&io, name).unwrap_or(0);
                    (process.read_bytes, process.written_bytes) = (field("read_bytes:"), field("write_bytes:"));
                }
                None => snapshot.denied += 1,
            }
            snapshot.processes.insert(pid, process);
        }
        snapshot
    }
}

impl Activity<'_> {
    pub fn report(&self, machine: &Machine) -> AwakeReport {
        let processes = self.processes();
        let open: Vec<(String, BTreeSet<String>)> =
            processes.iter().map(|p| (format!("{} ({})", p.name, p.pid), disks_of(machine, p.pid))).collect();
        let mut unknown = Vec::new();
        if self.after.denied > 0 {
            let n = self.after.denied;
            unknown.push(format!(
                "whether {n} processes did I/O: they are other users' (run it as root), or have just ended"
            ));
        }
        if machine.list("/sys/class/block").is_empty() {
            unknown.push("which disks there are: /sys is not there".to_owned());
        }
        AwakeReport {
            seconds: self.seconds,
            disks: self.disks(machine, &open),
            wakeups: self.wakeups(),
            interrupts: self.interrupts(),
            processes: processes.into_iter().take(ROWS_MAX).collect(),
            unknown,
        }
    }

    fn disks(&self, machine: &Machine, open: &[(String, BTreeSet<String>)]) -> Vec<DiskActivity> {
        let activity = |name: String| {
            let device = BlockDevice::read(machine, &name)?;
            let (old, new) = (self.before.disks.get(&name)?, self.after.disks.get(&name)?);
            let since = |field: fn(&DiskCounters) -> u64| field(new).saturating_sub(field(old));
            let (reads, writes, flushes) = (since(|d| d.reads), since(|d| d.writes), since(|d| d.flushes));
            let quiet = reads + writes + flushes == 0;
            let suspects = open.iter().filter(|(_, disks)| !quiet && disks.contains(&name));
            Some(DiskActivity {
                medium: device.medium,
                reads,
                writes,
                flushes,
                read_bytes: since(|d| d.read_bytes),
                written_bytes: since(|d| d.written_bytes),
                quiet,
                suspects: suspects.map(|(who, _)| who.clone()).take(ROWS_MAX).collect(),
                name,
            })
        };
        whole_devices(machine).into_iter().filter_map(activity).collect()
    }

    /// Those that did I/O, most first.
    fn processes(&self) -> Vec<ProcessActivity> {
        let mut active: Vec<ProcessActivity> = self
            .pairs()
            .map(|(pid, old, new)| ProcessActivity {
                pid,
                name: new.name.clone(),
                read_bytes: new.read_bytes.saturating_sub(old.read_bytes),
                written_bytes: new.written_bytes.saturating_sub(old.written_bytes),
            })
            .filter(|p| p.read_bytes + p.written_bytes > 0)
            .collect();
        active.sort_by_key(|p| std::cmp::Reverse(p.read_bytes.saturating_add(p.written_bytes)));
        active
    }

    fn wakeups(&self) -> Vec<WakeUp> {
        let switched = self.pairs().map(|(pid, old, new)| {
            let per_s = new.switches.saturating_sub(old.switches) as f64 / self.seconds.max(0.001);
            WakeUp { who: format!("{} ({pid})", new.name), per_s }
        });
        busiest(switched.collect())
    }

    fn interrupts(&self) -> Vec<WakeUp> {
        let came = self.after.interrupts.iter().map(|(name, count)| {
            let before = self.before.interrupts.get(name).copied().unwrap_or(*count);
            WakeUp { who: name.clone(), per_s: count.saturating_sub(before) as f64 / self.seconds.max(0.001) }
        });
        busiest(came.collect())
    }

    /// Processes of both looks; what one did that began in between is all new.
    fn pairs(&self) -> impl Iterator<Item = (u32, ProcessCounters, &ProcessCounters)> {
        self.after.processes.iter().map(|(pid, new)| {
            let old =
                self.before.processes.get(pid).filter(|old| old.started == new.started).cloned().unwrap_or_default();
            (*pid, old, new)
        })
    }
}

fn busiest(mut list: Vec<WakeUp>) -> Vec<WakeUp> {
    list.retain(|w| w.per_s >= QUIET_PER_S);
    list.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    list.truncate(ROWS_MAX);
    list
}

/// Bytes that real disks have read and written since the machine started.
pub fn moved_bytes(machine: &Machine) -> u64 {
    let disks = machine.disk_counters();
    let real = |name: &String| BlockDevice::read(machine, name).is_some_and(|d| d.bus != Bus::Virtual);
    let moved = |name: &String| disks.get(name).map(|d| d.read_bytes.saturating_add(d.written_bytes));
    whole_devices(machine).iter().filter(|name| real(name)).filter_map(moved).sum()
}

/// The disks on which a process has files open, and what of md, dm and loop devices lies between.
fn disks_of(machine: &Machine, pid: u32) -> BTreeSet<String> {
    let dir = Path::new("/proc").join(pid.to_string()).join("fd");
    let mounts: Mounts = machine.mounts();
    let files = machine.list(&dir).into_iter().take(FILES_MAX).filter_map(|fd| machine.link_target(dir.join(fd)));
    let numbers: BTreeMap<String, _> =
        files.filter_map(|file| mounts.of(&file).map(|mount| (mount.number.clone(), mount.clone()))).collect();
    let below = numbers.values().map(|mount| machine.below_mount(mount));
    below.flat_map(|below| below.devices.into_iter().chain(below.passed)).collect()
}

/// Its name, and how often it came on all processors together.
fn interrupt(line: InterruptLine) -> (String, u64) {
    (format!("{} ({})", line.words.join(" "), line.id).trim().to_owned(), line.on_cores.iter().sum())
}

fn switches(machine: &Machine, dir: &Path) -> u64 {
    let tasks = machine.list(dir.join("task"));
    let of = |task: &String| {
        let status = machine.read(dir.join("task").join(task).join("status"))?;
        field(&status, "voluntary_ctxt_switches:")
    };
    tasks.iter().take(THREADS_MAX).filter_map(of).sum()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Documentation/admin-guide/iostats.rst: major minor name reads merged sectors ms writes merged sectors ms ...
#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    const MACHINE: &str = include_str!("../../fixtures/smr-disks.txt");

    fn before() -> String {
        format!(
            "{MACHINE}
/proc/diskstats <<
   8       0 sda 100 0 800 0 50 0 400 0 0 0 0 0 0 0 0 10 0
   8      16 sdb 100 0 800 0 50 0 400 0 0 0 0 0 0 0 0 10 0
   8      32 sdc 9 0 72 0 0 0 0 0 0 0 0
>>
/proc/interrupts <<
           CPU0       CPU1
  24:        100        200  IR-PCI-MSI 327680-edge  xhci_hcd
 LOC:       1000       1000  Local timer interrupts
>>
/proc/100/comm = smbd
/proc/100/io = read_bytes: 0
/proc/100/task/100/status = voluntary_ctxt_switches: 10
/proc/100/task/101/status = voluntary_ctxt_switches: 5
/proc/100/fd/3 -> /mnt/b/share/file
/proc/100/fd/4 -> /dev/null
/proc/200/comm = sleeper
/proc/200/io = read_bytes: 77
/proc/200/task/200/status = voluntary_ctxt_switches: 10
/proc/200/fd/3 -> /mnt/c/file
/proc/300/comm = stranger
/proc/300/task/300/status = voluntary_ctxt_switches: 1
/proc/self/x = 1
"
        )
    }

    #[test]
    fn who_keeps_a_disk_awake_is_named() {
        let fixture = Fixture::new(&before());
        let first = Snapshot::take(&fixture.machine, 999);
        fixture.write(
            "/proc/diskstats",
            "   8 0 sda 100 0 800 0 50 0 400 0 0 0 0 0 0 0 0 10 0\n   8 16 sdb 101 0 808 0 53 0 424 0 0 0 0 0 0 0 0 12 0\n   8 32 sdc 9 0 72 0 0 0 0 0 0 0 0\n",
        );
        fixture.write(
            "/proc/interrupts",
            "  CPU0 CPU1\n  24: 150 200 IR-PCI-MSI 327680-edge xhci_hcd\n LOC: 1500 1500 Local timer interrupts\n",
        );
        fixture.write("/proc/100/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 12288\ncancelled_write_bytes: 0\n");
        fixture.write(
            "/proc/100/task/101/status",
            "Name: smbd\nvoluntary_ctxt_switches:\t105\nnonvoluntary_ctxt_switches:\t9\n",
        );
        let second = Snapshot::take(&fixture.machine, 999);
        let report = Activity { before: &first, after: &second, seconds: 10.0 }.report(&fixture.machine);
        let disk = |name: &str| report.disks.iter().find(|d| d.name == name).unwrap();
        assert!(disk("sda").quiet && disk("sdc").quiet);
        assert_eq!(moved_bytes(&fixture.machine), (800 + 400 + 808 + 424 + 72) * 512);
        let busy = disk("sdb");
        assert_eq!(
            (busy.reads, busy.writes, busy.flushes, busy.read_bytes, busy.written_bytes),
            (1, 3, 2, 4096, 12_288)
        );
        assert_eq!(busy.suspects, ["smbd (100)"]);
        let processes: Vec<&str> = report.processes.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(processes, ["smbd"]);
        assert_eq!(report.wakeups, [WakeUp { who: "smbd (100)".to_owned(), per_s: 10.0 }]);
        let interrupts: Vec<(&str, f64)> = report.interrupts.iter().map(|w| (w.who.as_str(), w.per_s)).collect();
        assert_eq!(
            interrupts,
            [("Local timer interrupts (LOC)", 100.0), ("IR-PCI-MSI 327680-edge xhci_hcd (24)", 5.0)]
        );
        assert_eq!(
            report.unknown,
            ["whether 1 processes did I/O: they are other users' (run it as root), or have just ended"]
        );
    }

    /// A program on a loop device keeps that awake, and the disk that its file lies on.
    #[test]
    fn who_works_on_a_loop_device_is_named_there_too() {
        let loops = "@loop = /sys/devices/virtual/block/loop1\n@loop/dev = 7:1\n@loop/size = 2048\n\
            @loop/loop/backing_file = /mnt/b/x.img\n/sys/class/block/loop1 -> @loop\n/sys/dev/block/7:1 -> @loop\n\
            /proc/100/fd/3 -> /mnt/x/file\n";
        let mount = "44 25 7:1 / /mnt/x rw - xfs /dev/loop1 rw\n>>\n/proc/swaps";
        let machine = MACHINE.replacen(">>\n/proc/swaps", mount, 1);
        let stats = |n: u32| {
            format!("   8 16 sdb {n} 0 800 0 {n} 0 400 0 0 0 0 0 0 0 0 0 0\n   7 1 loop1 {n} 0 8 0 {n} 0 4 0 0 0 0\n")
        };
        let fixture = Fixture::new(&format!(
            "{machine}\n{loops}/proc/100/comm = python\n/proc/100/io = write_bytes: 0\n/proc/self/x = 1\n/proc/diskstats <<\n{}>>\n",
            stats(1)
        ));
        let first = Snapshot::take(&fixture.machine, 999);
        fixture.write("/proc/diskstats", &stats(9));
        fixture.write("/proc/100/io", "write_bytes: 4096\n");
        let second = Snapshot::take(&fixture.machine, 999);
        let report = Activity { before: &first, after: &second, seconds: 1.0 }.report(&fixture.machine);
        for name in ["loop1", "sdb"] {
            let disk = report.disks.iter().find(|d| d.name == name).unwrap();
            assert_eq!(disk.suspects, ["python (100)"], "{name}");
        }
    }

    /// Kernel threads change their names all the time; a pid is given anew when its process has ended.
    #[test]
    fn a_process_is_its_pid_and_when_it_began() {
        let stat = |name: &str, started: u64| format!("77 ({name}) S {}{started} 0 0\n", "0 ".repeat(18));
        let check = |name: &str, started: u64, written: u64| {
            let fixture = Fixture::new(&before());
            fixture.write("/proc/77/comm", "kworker/0:1");
            fixture.write("/proc/77/io", "write_bytes: 1000");
            fixture.write("/proc/77/stat", &stat("kworker/0:1", 5));
            let first = Snapshot::take(&fixture.machine, 999);
            fixture.write("/proc/77/comm", name);
            fixture.write("/proc/77/io", "write_bytes: 1500");
            fixture.write("/proc/77/stat", &stat(name, started));
            let second = Snapshot::take(&fixture.machine, 999);
            let report = Activity { before: &first, after: &second, seconds: 1.0 }.report(&fixture.machine);
            let found: Vec<(&str, u64)> = report.processes.iter().map(|p| (p.name.as_str(), p.written_bytes)).collect();
            assert_eq!(found, [(name, written)]);
        };
        check("kworker/0:1-events (x) y", 5, 500);
        check("another", 6, 1500);
    }

    #[test]
    fn ourselves_are_left_out() {
        let fixture = Fixture::new(&before());
        assert!(!Snapshot::take(&fixture.machine, 100).processes.contains_key(&100));
    }
}
