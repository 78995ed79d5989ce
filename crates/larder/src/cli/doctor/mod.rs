//! `larder doctor`: what caps a box, and what would help: this machine, a recorded one, a bench of it, or a description.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use larder_api::endpoints::GetTop;
use larder_api::{Failure, TopLimit};
use larder_daemon::care::transfer;
use larder_facts::Machine;
use larder_facts::reading::{ReadOptions, Reading};
use larder_measure::bench::BenchResult;
use larder_measure::doctor::{
    self, BadDescription, Described, Diagnosis, Examination, Fixer, Sources, assume, diagnose, examine, examples, plan,
    text,
};
use larder_measure::live::Transfer;

use super::args::Global;
use super::disk::Recorded;
use super::reach::{Outcome, absolute, daemon};
use crate::out;

mod fix;

/// A description is a page; more than this is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A thorough bench of many disks with its samples.
const BENCH_BYTES_MAX: u64 = 256 << 20;
/// The record of changes by `--fix`, below the machine's root.
const STATE: &str = "var/lib/larder/doctor-changes.json";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A described box instead of this machine: what is in it and what was measured, in TOML: docs/doctor.md
    #[arg(conflicts_with_all = ["bench", "client", "machine", "fix", "undo"])]
    file: Option<PathBuf>,
    /// Show the chain of every measurement: each stage's limit, how it is known, and what decided
    #[arg(long, conflicts_with_all = ["fix", "undo", "assume", "plan"])]
    why: bool,
    /// Predict rates with one part changed: nic=2.5g, client=, disks=, kind=, layout=, record=
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["fix", "undo"])]
    assume: Vec<String>,
    /// Predict each client's rates from a described box, before its parts are bought
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "bench", "client", "machine", "fix", "undo", "assume"])]
    plan: Option<PathBuf>,
    /// Reports of others whose culprit was found, nearest to a word such as wifi, cable or sync first
    #[arg(long, value_name = "WORD", conflicts_with_all = ["file", "bench", "client", "machine", "fix", "undo", "assume", "plan", "why"])]
    examples: Option<String>,
    /// Result of a bench: its JSON
    #[arg(long, value_name = "FILE")]
    bench: Option<PathBuf>,
    /// The other end, in TOML: the fields of one [[client]] of docs/doctor.md
    #[arg(long, value_name = "FILE")]
    client: Option<PathBuf>,
    /// What limits the clients of the running daemon now, as `larder top` sees it, as evidence
    #[arg(long, conflicts_with_all = ["file", "plan", "examples", "bench", "machine", "fix", "undo", "assume", "why"])]
    now: bool,
    /// Do not ask the disks for their health: wakes none
    #[arg(long)]
    no_smart: bool,
    /// Show the commands that would help, and run those that are safe and can be undone, each after asking
    #[arg(long, conflicts_with = "undo")]
    fix: bool,
    /// Put back what --fix changed
    #[arg(long)]
    undo: bool,
    /// File in which --fix keeps the old values [default: /var/lib/larder/doctor-changes.json]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    recorded: Recorded,
}

pub(super) async fn run(global: &Global, args: &DoctorArgs) -> Result<Outcome, Failure> {
    let now = if args.now { Some(transfers(global).await?) } else { None };
    decided(global, args, now.as_deref())
}

/// The busiest first.
async fn transfers(global: &Global) -> Result<Vec<Transfer>, Failure> {
    let top = daemon(global).await?.ask(GetTop).await?;
    let limited = top.connections.into_iter().filter(|one| one.limited_by != TopLimit::Nothing);
    Ok(limited.map(transfer).collect())
}

fn decided(global: &Global, args: &DoctorArgs, now: Option<&[Transfer]>) -> Result<Outcome, Failure> {
    if let Some(word) = &args.examples {
        let found = examples(word);
        return global.out().answer(&found, |found| text::examples(found, &out::style())).map(|()| Outcome::Done);
    }
    if let Some(file) = &args.plan {
        let found = plan(&parsed(file)?);
        return global.out().answer(&found, |found| text::plan(found, &out::style())).map(|()| Outcome::Done);
    }
    if let Some(file) = &args.file {
        return described(global, args, file);
    }
    let machine = args.recorded.machine()?;
    let state = state_file(args)?;
    let fixer = Fixer::new(&machine, &state);
    if args.undo {
        return fix::undo(global, &fixer);
    }
    let reading = Reading::of(&machine, ReadOptions { smart: !args.no_smart, ..ReadOptions::default() });
    if args.fix {
        return fix::fix(global, &fixer, &reading);
    }
    examined(global, args, (&machine, reading), now)
}

fn state_file(args: &DoctorArgs) -> Result<PathBuf, Failure> {
    match &args.state {
        Some(file) => absolute(file),
        None => Ok(args.recorded.root().unwrap_or(Path::new("/")).join(STATE)),
    }
}

fn read(path: &Path, what: &str, bytes_max: u64) -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(bytes_max).read_to_string(&mut text));
    read.map_err(|e| Failure::io(format_args!("cannot read the {what} {}", path.display()), &e))?;
    Ok(text)
}

fn parsed(file: &Path) -> Result<Described, Failure> {
    let text = read(file, "description", FILE_BYTES_MAX)?;
    Described::parse(&text).map_err(|e| {
        Failure::invalid(format!("{}: {e}", file.display())).action("see the fields and examples in docs/doctor.md")
    })
}

fn described(global: &Global, args: &DoctorArgs, file: &Path) -> Result<Outcome, Failure> {
    let described = parsed(file)?;
    if !args.assume.is_empty() {
        return assumed(global, args, &described);
    }
    let found = diagnose(&described);
    global.out().answer(&found, |found| shown(args, found, || text::diagnosis(found, &out::style())))?;
    // A contradiction is no verdict: a script must notice.
    Ok(if found.questions.is_empty() { Outcome::Done } else { Outcome::Problems })
}

fn assumed(global: &Global, args: &DoctorArgs, described: &Described) -> Result<Outcome, Failure> {
    let found = assume(described, &args.assume)
        .map_err(|e| Failure::invalid(e.to_string()).action("see --assume in docs/doctor.md"))?;
    global.out().answer(&found, |found| text::assumed(found, &out::style())).map(|()| Outcome::Done)
}

/// The answer, or the chains behind it.
fn shown(args: &DoctorArgs, found: &Diagnosis, answer: impl FnOnce() -> String) -> String {
    if args.why { text::why(found, &out::style()) } else { answer() }
}

fn examined(
    global: &Global,
    args: &DoctorArgs,
    (machine, reading): (&Machine, Reading),
    now: Option<&[Transfer]>,
) -> Result<Outcome, Failure> {
    let bench = args.bench.as_deref().map(bench_result).transpose()?;
    let client = args.client.as_deref().map(|file| read(file, "client's description", FILE_BYTES_MAX)).transpose()?;
    let sources = Sources { bench: bench.as_ref(), client: client.as_deref(), now };
    let of_client = |e: BadDescription| {
        let file = args.client.as_deref().unwrap_or(Path::new("--client")).display();
        Failure::invalid(format!("{file}: {e}")).action("it has the fields of one [[client]]: docs/doctor.md")
    };
    if !args.assume.is_empty() {
        let described = doctor::described(machine, &reading, &sources).map_err(of_client)?;
        return assumed(global, args, &described);
    }
    let found = examine(machine, reading, &sources).map_err(of_client)?;
    let answer = |found: &Examination| shown(args, &found.diagnosis, || text::examination(found, &out::style()));
    global.out().answer(&found, answer)?;
    Ok(if found.diagnosis.questions.is_empty() { Outcome::Done } else { Outcome::Problems })
}

fn bench_result(file: &Path) -> Result<BenchResult, Failure> {
    let text = read(file, "bench's result", BENCH_BYTES_MAX)?;
    let show = file.display();
    let action = "give the file that larder bench --json wrote";
    let result: BenchResult = serde_json::from_slice(text.as_bytes())
        .map_err(|e| Failure::invalid(format!("{show} is not the result of a bench: {e}")).action(action))?;
    use larder_measure::bench::result::{SCHEMA, VERSION};
    if result.schema != SCHEMA || result.version > VERSION {
        let said = format!(
            "{show} is {} version {}, and this larder reads {SCHEMA} up to {VERSION}",
            result.schema, result.version
        );
        return Err(Failure::invalid(said).action(action));
    }
    Ok(result)
}
