//! `larder-sim`: runs schedules, and replays one.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use larder_sim::disk::Plant;
use larder_sim::many::{self, Summary, Until};
use larder_sim::plan::{Kind, Limits};
use larder_sim::schedule::{self, Options, Report};

#[derive(Parser)]
#[command(name = "larder-sim", about = "Simulates pools and volumes on disks that lose power and fail")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many schedules from fresh seeds, or from a given one on
    Run {
        /// Stop after so many seconds; with --schedules, time that is over before is a failure
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The first seed; the others follow it
        #[arg(long)]
        seed: Option<u64>,
        /// Stop after so many schedules
        #[arg(long, default_value_t = u64::MAX)]
        schedules: u64,
        /// Stop after so many failures
        #[arg(long, default_value_t = 1)]
        failures: usize,
        /// Threads; by default one for each processor
        #[arg(long)]
        threads: Option<usize>,
        #[command(flatten)]
        what: What,
    },
    /// Run one schedule again
    Replay {
        seed: u64,
        /// Print what happened
        #[arg(long)]
        trace: bool,
        /// Run it so often and compare the digests
        #[arg(long, default_value_t = 1)]
        times: u32,
        /// Look for a smaller schedule that still fails
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        what: What,
    },
}

#[derive(Args)]
struct What {
    /// The store to run; by default the seed decides
    #[arg(long)]
    kind: Option<Store>,
    /// A bug to plant
    #[arg(long, value_parser = plant)]
    plant: Option<Plant>,
    /// At most so many lives of the process
    #[arg(long)]
    sessions: Option<u32>,
    #[arg(long)]
    clients: Option<u32>,
    /// Of each client in each life
    #[arg(long)]
    operations: Option<u32>,
    /// Nothing goes wrong but the power
    #[arg(long)]
    only_power: bool,
    /// Whether machines sit at seats of one store in a bucket; by default the seed decides
    #[arg(long)]
    seats: Option<bool>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Store {
    Pool,
    Volume,
    Bucket,
}

fn plant(name: &str) -> Result<Plant, String> {
    let found = Plant::all().find(|(_, known)| *known == name);
    let names = || Plant::all().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    found.map(|(plant, _)| plant).ok_or_else(|| format!("there is no such bug; there are {}", names()))
}

impl What {
    fn options(&self, has_trace: bool) -> Options {
        let limits = Limits {
            sessions: self.sessions.unwrap_or(u32::MAX),
            clients: self.clients.unwrap_or(u32::MAX),
            operations: self.operations.unwrap_or(u32::MAX),
            has_trouble: !self.only_power,
            seats: self.seats,
        };
        let kind = self.kind.map(|kind| match kind {
            Store::Pool => Kind::Pool,
            Store::Volume => Kind::Volume,
            Store::Bucket => Kind::Bucket,
        });
        Options { kind, limits, plant: self.plant, has_trace }
    }

    /// As they would be typed.
    fn text(&self, limits: Limits) -> String {
        let mut text = String::new();
        match self.kind {
            Some(Store::Pool) => text += " --kind pool",
            Some(Store::Volume) => text += " --kind volume",
            Some(Store::Bucket) => text += " --kind bucket",
            None => {}
        }
        if let Some((_, name)) = self.plant.and_then(|plant| Plant::all().find(|(known, _)| *known == plant)) {
            text += &format!(" --plant {name}");
        }
        let mut bound = |name: &str, value: u32| {
            if value != u32::MAX {
                text += &format!(" --{name} {value}");
            }
        };
        bound("sessions", limits.sessions);
        bound("clients", limits.clients);
        bound("operations", limits.operations);
        if !limits.has_trouble {
            text += " --only-power";
        }
        if let Some(seats) = limits.seats {
            text += &format!(" --seats {seats}");
        }
        text
    }
}

fn main() -> ExitCode {
    let good = match Cli::parse().command {
        Command::Run { seconds, seed, schedules, failures, threads, what } => {
            let until = Until { time: Duration::from_secs(seconds), schedules, failures };
            let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            run(seed.unwrap_or_else(|| u64::from(rand::random::<u32>())), until, threads, &what)
        }
        Command::Replay { seed, trace, times, shrink, what } => {
            if shrink {
                shrink_seed(seed, &what)
            } else {
                replay(seed, trace, times, &what)
            }
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(seed: u64, until: Until, threads: usize, what: &What) -> bool {
    println!("seeds from {seed} on");
    let is_terminal = std::io::stderr().is_terminal();
    // Each failure is told at once: whatever ends a long run, its seeds are known.
    let told = AtomicUsize::new(0);
    let tell_failures = |summary: &Summary| {
        let from = told.fetch_max(summary.failures.len(), Ordering::Relaxed);
        summary.failures.iter().skip(from).for_each(|report| print_failure(report, what));
    };
    let tell = |summary: &Summary| {
        tell_failures(summary);
        if is_terminal {
            let Summary { schedules, counts, answered, failures, .. } = summary;
            let rate = *schedules as f64 / summary.real_time.as_secs_f64().max(0.001);
            let crashes = counts.crashes;
            let failed = failures.len();
            eprint!(
                "\r{schedules} schedules, {rate:.0}/s, {crashes} power cuts, {answered} operations, {failed} failures "
            );
            // Progress is for people who watch.
            let _ = std::io::stderr().flush();
        }
    };
    let summary = many::run(seed, what.options(false), until, threads, tell);
    if is_terminal {
        eprintln!();
    }
    tell_failures(&summary);
    for (kind, count) in &summary.by_trouble {
        println!("{count:>8}  {kind}");
    }
    println!("{summary}");
    let is_short = until.schedules < u64::MAX && summary.schedules < until.schedules;
    if is_short && summary.failures.is_empty() {
        println!("FAILED: the time was over after {} of {} schedules", summary.schedules, until.schedules);
    }
    summary.failures.is_empty() && !is_short
}

fn print_failure(report: &Report, what: &What) {
    let Some(why) = &report.failure else { return };
    println!("seed {} FAILED: {why}", report.seed);
    println!(
        "  {:?}, {}, {} disks, {:?}",
        report.plan.kind,
        report.plan.layout,
        report.plan.disks.len(),
        report.plan.trouble
    );
    println!("  replay it: larder-sim replay {}{} --trace", report.seed, what.text(what.options(false).limits));
}

fn replay(seed: u64, trace: bool, times: u32, what: &What) -> bool {
    let mut digests = Vec::new();
    let mut good = true;
    for _ in 0..times.max(1) {
        let report = schedule::run(seed, what.options(trace || times > 1));
        if trace {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        good &= report.failure.is_none();
        match &report.failure {
            Some(_) => print_failure(&report, what),
            None => println!("seed {seed}: good, {} operations answered", report.answered),
        }
        println!("digest {:016x}, {:?} of virtual time", report.digest, report.virtual_time);
        digests.push(report.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    if times > 1 {
        println!("{times} runs, {} different digests", digests.len());
    }
    good
}

/// Halves one bound after the other for as long as the schedule still fails.
fn shrink_seed(seed: u64, what: &What) -> bool {
    let mut options = what.options(false);
    let fails = |options: Options| schedule::run(seed, options).failure;
    let Some(mut why) = fails(options) else {
        println!("seed {seed} does not fail");
        return true;
    };
    let plan = schedule::run(seed, options).plan;
    options.limits.sessions = plan.sessions;
    options.limits.clients = plan.clients;
    options.limits.operations = plan.operations;
    loop {
        let smaller =
            |bound: u32| [bound / 2, bound.saturating_sub(1)].into_iter().filter(move |new| *new >= 1 && *new < bound);
        let now = options.limits;
        let fewer_sessions = smaller(now.sessions).map(|sessions| Limits { sessions, ..now });
        let fewer_clients = smaller(now.clients).map(|clients| Limits { clients, ..now });
        let fewer_operations = smaller(now.operations).map(|operations| Limits { operations, ..now });
        let calmer = now.has_trouble.then_some(Limits { has_trouble: false, ..now });
        let tries = calmer.into_iter().chain(fewer_sessions).chain(fewer_clients).chain(fewer_operations);
        let found = tries.map(|limits| Options { limits, ..options }).find_map(|new| Some((new, fails(new)?)));
        let Some((new, reason)) = found else { break };
        (options, why) = (new, reason);
        println!(
            "still fails with {} lives, {} clients, {} operations each",
            options.limits.sessions, options.limits.clients, options.limits.operations
        );
    }
    println!("seed {seed} FAILED: {why}");
    println!("  replay it: larder-sim replay {seed}{} --trace", what.text(options.limits));
    false
}
