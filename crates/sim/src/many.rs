//! Many schedules, side by side, and their figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::disk::{Counts, Fault};
use crate::schedule::{self, Options, Report};

/// When to stop: whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    pub time: Duration,
    pub schedules: u64,
    pub failures: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub schedules: u64,
    pub answered: u64,
    pub counts: Counts,
    pub virtual_time: Duration,
    pub real_time: Duration,
    pub by_trouble: BTreeMap<String, u64>,
    pub failures: Vec<Report>,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.schedules += 1;
        self.answered += report.answered;
        self.counts = self.counts.plus(report.counts);
        self.virtual_time += report.virtual_time;
        let kind = format!("{:?}, {}, {:?}", report.plan.kind, report.plan.layout, report.plan.trouble);
        *self.by_trouble.entry(kind).or_default() += 1;
        if report.failure.is_some() {
            self.failures.push(report);
        }
    }
}

/// Runs the seeds from `first` on with `threads` at once; `tell` hears of the state about every second.
pub fn run(first: u64, options: Options, until: Until, threads: usize, tell: impl Fn(&Summary) + Sync) -> Summary {
    let start = Instant::now();
    let (next, stop, told) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let summary = Mutex::new(Summary::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= until.schedules || start.elapsed() >= until.time {
                return;
            }
            let report = schedule::run(first.wrapping_add(at), options);
            let mut summary = summary.lock();
            summary.add(report);
            summary.real_time = start.elapsed();
            if summary.failures.len() >= until.failures {
                stop.store(true, Ordering::Relaxed);
            }
            if told.fetch_max(start.elapsed().as_secs(), Ordering::Relaxed) < start.elapsed().as_secs() {
                tell(&summary);
            }
        }
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    let mut summary = summary.into_inner();
    summary.real_time = start.elapsed();
    summary
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.real_time.as_secs_f64().max(0.001);
        writeln!(
            f,
            "{} schedules in {seconds:.0} s ({:.1} per second), {:.1} hours of virtual time",
            self.schedules,
            self.schedules as f64 / seconds,
            self.virtual_time.as_secs_f64() / 3600.0
        )?;
        writeln!(
            f,
            "{} power cuts, {} operations answered to clients, {} operations of disks",
            self.counts.crashes, self.answered, self.counts.operations
        )?;
        let faults = Fault::ALL.iter().map(|(fault, name)| format!("{} {name}", self.counts.faults[*fault as usize]));
        writeln!(f, "faults: {}", faults.collect::<Vec<_>>().join(", "))?;
        write!(f, "{} failures", self.failures.len())
    }
}
