//! What this process does with the processor, and what keeps it from more: between two looks.

use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use crate::Machine;

/// Threads that are looked at.
const THREADS_MAX: usize = 512;
/// Control groups above this process's own.
const GROUPS_MAX: usize = 16;

/// The kernel's counters of this process.
#[derive(Clone, Debug)]
pub struct Work {
    at: Instant,
    /// Of each thread by its number: nanoseconds that it ran, and that it was ready and had no core (schedstat).
    threads: Vec<(String, u64, u64)>,
    /// Of each control group with a quota: periods, and those in which it held its processes back.
    periods: Vec<(u64, u64)>,
}

/// The work between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worked {
    /// Cores' worth.
    pub cores: f64,
    /// Of the busiest thread, as a share of the time.
    pub busiest_thread: f64,
    /// Of the time in which threads wanted to run.
    pub delayed: f64,
    /// Threads that wanted to run and had no core, on the mean.
    pub waiting: f64,
    /// Share of the periods of the strictest control group.
    pub throttled: f64,
}

impl Work {
    pub fn now(machine: &Machine) -> Self {
        let threads = machine.list("/proc/self/task").into_iter().take(THREADS_MAX).filter_map(|thread| {
            let text = machine.read(format!("/proc/self/task/{thread}/schedstat"))?;
            let mut figures = text.split_whitespace().map(str::parse::<u64>);
            Some((thread, figures.next()?.ok()?, figures.next()?.ok()?))
        });
        let threads = threads.collect();
        Self {
            at: Instant::now(),
            threads,
            periods: groups(machine).iter().filter_map(|g| periods(machine, g)).collect(),
        }
    }

    /// Since an earlier look.
    pub fn since(&self, before: &Self) -> Worked {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let (mut ran, mut waited, mut most) = (0.0, 0.0, 0.0_f64);
        for (thread, run, wait) in &self.threads {
            let old =
                before.threads.iter().find(|(old, ..)| old == thread).map_or((0, 0), |(_, run, wait)| (*run, *wait));
            let run_s = run.saturating_sub(old.0) as f64 / 1e9;
            (ran, waited) = (ran + run_s, waited + wait.saturating_sub(old.1) as f64 / 1e9);
            most = most.max(run_s);
        }
        let held = |(now, old): (&(u64, u64), &(u64, u64))| {
            let all = now.0.saturating_sub(old.0);
            if all == 0 { 0.0 } else { now.1.saturating_sub(old.1) as f64 / all as f64 }
        };
        Worked {
            cores: ran / seconds,
            busiest_thread: most / seconds,
            waiting: waited / seconds,
            delayed: if ran + waited > 0.0 { waited / (ran + waited) } else { 0.0 },
            throttled: self.periods.iter().zip(&before.periods).map(held).fold(0.0, f64::max),
        }
    }
}

/// The control groups of this process, its own first: `0::/PATH` in version 2, `3:cpu,cpuacct:/PATH` in version 1
/// (cgroups(7)).
fn groups(machine: &Machine) -> Vec<PathBuf> {
    let text = machine.read("/proc/self/cgroup").unwrap_or_default();
    let folder = |line: &str| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let root = match controllers {
            "" => PathBuf::from("/sys/fs/cgroup"),
            some if some.split(',').any(|one| one == "cpu") => Path::new("/sys/fs/cgroup").join(some),
            _ => return None,
        };
        let parts = Path::new(path).components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let mut all = vec![root];
        for part in parts.take(GROUPS_MAX) {
            let next = all.last()?.join(part);
            all.push(next);
        }
        Some(all)
    };
    let mut found: Vec<PathBuf> = text.lines().filter_map(folder).flatten().collect();
    found.reverse();
    found
}

fn periods(machine: &Machine, folder: &Path) -> Option<(u64, u64)> {
    let text = machine.read(folder.join("cpu.stat"))?;
    let of = |field: &str| text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok());
    Some((of("nr_periods")?, of("nr_throttled")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_seen() {
        let machine = Machine::this();
        let before = Work::now(&machine);
        let began = Instant::now();
        let mut sum = 0_u64;
        while began.elapsed().as_millis() < 100 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        let worked = Work::now(&machine).since(&before);
        assert!(worked.cores > 0.0 && worked.busiest_thread > 0.0, "{worked:?} {sum}");
        assert!((0.0..=1.0).contains(&worked.delayed) && (0.0..=1.0).contains(&worked.throttled), "{worked:?}");
    }

    #[test]
    fn the_strictest_group_counts() {
        let look = |periods: &[(u64, u64)]| Work { at: Instant::now(), threads: Vec::new(), periods: periods.to_vec() };
        let (before, now) = (look(&[(10, 1), (100, 0)]), look(&[(20, 9), (200, 10)]));
        assert_eq!(now.since(&before).throttled, 0.8);
    }
}
