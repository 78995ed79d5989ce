//! Processor time of programs that take no part in a load.
//!
//! A load is the work of this process and its descendants, of the kernel's threads, and of whatever serves. Who serves
//! has a socket, or is a filesystem of its own (`/dev/fuse`). A process that has neither serves nobody, so the time that
//! it takes is not the load's (`others.no_way_in`). Its standard streams do not count: they may lead to a log. What may
//! not be looked at is taken for a server, so that nothing is excused without proof.
//!
//! A load that shares a core gets a part of it, however much it wants. The time that its threads spent in the run queue
//! (`/proc/PID/task/TID/schedstat`) says what it would have taken (`others.wanted`).

use std::collections::BTreeMap;
use std::path::Path;

use crate::Machine;

/// Less than this in one interval is not worth a second look.
const TICKS_MIN: u64 = 2;
/// A process with more open files is taken for a server.
const FILES_MAX: usize = 1024;
const THREADS_MAX: usize = 256;
/// From a process to this one.
const ANCESTORS_MAX: usize = 64;
/// Flags of a process (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

struct Process {
    parent: u32,
    is_kernel: bool,
    ticks: u64,
    /// The processor that it ran on last.
    core: u32,
}

/// A count of a thread, by its folder.
type Count = fn(&Machine, &str, &Process) -> Option<u64>;

/// Of one core, since the counters were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Ticks of other programs.
    pub(super) others: u64,
    /// Time in which threads of the load could have run and did not.
    pub(super) waited_ns: u64,
}

/// Counts of the last look, and their sums since this was made.
#[derive(Default)]
pub(super) struct Others {
    processes: BTreeMap<u32, u64>,
    threads: BTreeMap<u32, u64>,
    shared: BTreeMap<u32, Shared>,
    looked: bool,
}

impl Others {
    /// By core. `None` where processes cannot be seen.
    pub(super) fn look(&mut self, machine: &Machine) -> Option<BTreeMap<u32, Shared>> {
        let found: BTreeMap<u32, Process> =
            machine.process_ids().filter_map(|pid| Some((pid, process(machine, &format!("/proc/{pid}"))?))).collect();
        if found.is_empty() {
            return None;
        }
        let mut threads = BTreeMap::new();
        for (&pid, process) in &found {
            // One that was not there before has done all of its work since.
            let before = self.processes.get(&pid).copied().or_else(|| self.looked.then_some(0));
            let ticks = before.map_or(0, |before| process.ticks.saturating_sub(before));
            if ticks < TICKS_MIN {
                continue;
            }
            let of_load = process.is_kernel || is_ours(&found, pid) || may_serve(machine, pid);
            let count: Count = if of_load { waited_ns } else { ticks_of };
            let spent = self.by_core(machine, pid, count, &mut threads);
            // Of a new process its last processor says where it was.
            let spent = if spent.is_empty() && !of_load { vec![(process.core, ticks)] } else { spent };
            for (core, amount) in spent {
                let shared = self.shared.entry(core).or_default();
                let sum = if of_load { &mut shared.waited_ns } else { &mut shared.others };
                *sum = sum.saturating_add(amount);
            }
        }
        self.threads = threads;
        self.processes = found.into_iter().map(|(pid, process)| (pid, process.ticks)).collect();
        self.looked = true;
        Some(self.shared.clone())
    }

    /// What each thread counted since the last look, and the core that it ran on last.
    fn by_core(&self, machine: &Machine, pid: u32, count: Count, threads: &mut BTreeMap<u32, u64>) -> Vec<(u32, u64)> {
        let folder = format!("/proc/{pid}/task");
        let ids = machine.list(&folder).into_iter().filter_map(|name| name.parse::<u32>().ok()).take(THREADS_MAX);
        let mut found = Vec::new();
        for id in ids {
            let path = format!("{folder}/{id}");
            let Some(thread) = process(machine, &path) else { continue };
            let Some(now) = count(machine, &path, &thread) else { continue };
            threads.insert(id, now);
            let since = self.threads.get(&id).map(|before| now.saturating_sub(*before));
            found.extend(since.filter(|amount| *amount > 0).map(|amount| (thread.core, amount)));
        }
        found
    }
}

fn ticks_of(_: &Machine, _: &str, thread: &Process) -> Option<u64> {
    Some(thread.ticks)
}

/// The second number of `schedstat` (Documentation/scheduler/sched-stats.rst).
fn waited_ns(machine: &Machine, folder: &str, _: &Process) -> Option<u64> {
    machine.read(format!("{folder}/schedstat"))?.split_whitespace().nth(1)?.parse().ok()
}

/// Of a process or a thread: fields 4, 9, 14, 15 and 39 of proc_pid_stat(5).
fn process(machine: &Machine, folder: &str) -> Option<Process> {
    let (_, fields) = machine.stat_in(folder)?;
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        is_kernel: number(6)? & PF_KTHREAD != 0,
        ticks: number(11)?.saturating_add(number(12)?),
        core: u32::try_from(number(36)?).ok()?,
    })
}

fn is_ours(all: &BTreeMap<u32, Process>, pid: u32) -> bool {
    let own = std::process::id();
    let parent = |pid: &u32| all.get(pid).map(|process| process.parent);
    std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX).any(|pid| pid == own)
}

/// `others.no_way_in`
fn may_serve(machine: &Machine, pid: u32) -> bool {
    let folder = format!("/proc/{pid}/fd");
    let files = machine.list(&folder);
    if files.is_empty() || files.len() > FILES_MAX {
        return true;
    }
    files.iter().filter(|name| !matches!(name.as_str(), "0" | "1" | "2")).any(|name| {
        let Some(target) = machine.link_target(format!("{folder}/{name}")) else { return false };
        let is_socket = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("socket:");
        target.file_name().is_some_and(is_socket) || target == Path::new("/dev/fuse")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    fn stat(pid: u32, parent: u32, flags: u64, ticks: u64, core: u32) -> String {
        format!(
            "{pid} (it) R {parent} 1 1 0 -1 {flags} 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5 1 1 {}{core} 0 0",
            "0 ".repeat(14)
        )
    }

    #[test]
    fn whoever_has_no_way_in_takes_no_part() {
        // A compiler, a server, a filesystem, this program's child, the kernel, and one that begins later.
        let fixture = Fixture::new(
            "/proc/101/fd/1 -> /socket:[1]\n/proc/101/fd/4 -> /tmp/object\n/proc/102/fd/5 -> /socket:[7]\n\
             /proc/103/fd/3 -> /dev/fuse\n/proc/104/fd/3 -> /tmp/data\n/proc/105/fd/3 -> /tmp/data\n\
             /proc/106/fd/4 -> /tmp/object\n",
        );
        let own = std::process::id();
        let at = |ticks: u64| {
            for (pid, parent, flags) in [(101, 1, 0), (102, 1, 0), (103, 1, 0), (104, own, 0), (105, 2, PF_KTHREAD)] {
                let text = stat(pid, parent, flags, ticks, pid % 2);
                fixture.write(&format!("/proc/{pid}/stat"), &text);
                fixture.write(&format!("/proc/{pid}/task/{pid}/stat"), &text);
            }
        };
        at(1000);
        let mut others = Others::default();
        let core = |others, waited_ns| Shared { others, waited_ns };
        assert_eq!(others.look(&fixture.machine), Some(BTreeMap::new()), "what was before is nobody's");
        at(1040);
        assert_eq!(others.look(&fixture.machine), Some(BTreeMap::from([(1, core(40, 0))])));
        at(1041);
        assert_eq!(others.look(&fixture.machine), Some(BTreeMap::from([(1, core(40, 0))])), "hardly anything");
        fixture.write("/proc/106/stat", &stat(106, 1, 0, 30, 0));
        let found = others.look(&fixture.machine).unwrap();
        assert_eq!(found, BTreeMap::from([(0, core(30, 0)), (1, core(40, 0))]), "it began since the last look");
        // The server's thread wants its core, and waits for it.
        for (ticks, waited) in [(1100, 5_000_000), (1120, 205_000_000)] {
            fixture.write("/proc/102/stat", &stat(102, 1, 0, ticks, 0));
            fixture.write("/proc/102/task/102/stat", &stat(102, 1, 0, ticks, 0));
            fixture.write("/proc/102/task/102/schedstat", &format!("7 {waited} 3"));
            let _ = others.look(&fixture.machine);
        }
        assert_eq!(others.look(&fixture.machine).unwrap()[&0], core(30, 200_000_000));
        assert_eq!(Others::default().look(&Fixture::new("").machine), None);
    }
}
