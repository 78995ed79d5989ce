//! `larder disk ...`: what disks are, whether they are fit for a pool, and making an empty one ready.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use larder_api::Failure;
use larder_api::endpoints::GetDiskHealth;
use larder_facts::Machine;
use larder_facts::disk::{CheckOptions, Level, Listed, Prepare, PrepareError, PrepareOptions, check, list};
use larder_pool::Pool;
use serde::Serialize;

use super::args::Global;
use super::reach::{Outcome, Target, absolute, maybe_target};
use crate::out;

mod text;

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Disks of this machine and what each is used for. Wakes no disk
    List {
        #[command(flatten)]
        recorded: Recorded,
    },
    /// Is it fit to be a member of a pool? Looks at everything from the folder down to the disk
    Check {
        /// Folders that are to become members, or block devices
        #[arg(required = true, value_name = "PATH|DEVICE")]
        paths: Vec<PathBuf>,
        /// A folder of the pool that they are to join [repeat for each]
        #[arg(long = "member", value_name = "DIR")]
        members: Vec<PathBuf>,
        /// Do not write the 1 MiB that measures what a flush costs
        #[arg(long)]
        no_flush_test: bool,
        #[command(flatten)]
        recorded: Recorded,
    },
    /// How healthy the disks are, by their own reports and over time. Wakes none that sleeps
    Health {
        #[command(flatten)]
        recorded: Recorded,
    },
    /// Make an XFS filesystem on a whole disk and mount it, now and at every start
    Prepare(PrepareArgs),
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Recorded {
    /// Look at a copy of another machine's /sys and /proc in this folder
    #[arg(long, alias = "root", value_name = "DIR")]
    machine: Option<PathBuf>,
}

impl Recorded {
    pub(crate) fn root(&self) -> Option<&Path> {
        self.machine.as_deref()
    }

    pub(crate) fn machine(&self) -> Result<Machine, Failure> {
        match &self.machine {
            None => Ok(Machine::this()),
            Some(root) => Machine::recorded(root)
                .map_err(|e| Failure::io(format_args!("cannot look at the machine in {}", root.display()), &e)),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// The whole disk, such as /dev/sdb or a link in /dev/disk/by-id
    device: PathBuf,
    /// The filesystem's label, at most 12 characters [default: larder- and the end of the serial number]
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Mount point [default: /mnt/LABEL]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// The disk's serial number: overwrites whatever is on it, without asking. Its path, if it has none
    #[arg(long, value_name = "SERIAL")]
    serial: Option<String>,
    /// Do not ask about a disk that is empty
    #[arg(long)]
    yes: bool,
    /// The table of mounts
    #[arg(long, value_name = "FILE", default_value = "/etc/fstab")]
    fstab: PathBuf,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// The form of what `list` and `prepare` answer as JSON; that of `check` has a version of its own.
const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct Answer<T> {
    version: u32,
    #[serde(flatten)]
    found: T,
}

impl<T> Answer<T> {
    fn new(found: T) -> Self {
        Self { version: VERSION, found }
    }
}

#[derive(Debug, Serialize)]
struct List {
    disks: Vec<Listed>,
}

pub(super) async fn run(global: &Global, command: DiskCommand) -> Result<Outcome, Failure> {
    match command {
        DiskCommand::List { recorded } => {
            let listed = List { disks: list(&recorded.machine()?) };
            global.out().answer(&Answer::new(listed), |answer| text::list(&answer.found.disks))?;
            Ok(Outcome::Done)
        }
        DiskCommand::Check { paths, members, no_flush_test, recorded } => {
            let machine = recorded.machine()?;
            let place = |path: &PathBuf| if machine.is_live() { absolute(path) } else { Ok(path.clone()) };
            let paths = paths.iter().map(place).collect::<Result<Vec<_>, _>>()?;
            let members = members.iter().map(place).collect::<Result<Vec<_>, _>>()?;
            let report = check(
                &machine,
                &paths,
                &CheckOptions { members, flush_test: !no_flush_test, pool_of, ..CheckOptions::default() },
            );
            global.out().answer(&report, |report| text::report(report, out::colour()))?;
            Ok(if report.verdict == Level::Refuse { Outcome::Problems } else { Outcome::Done })
        }
        DiskCommand::Health { recorded } => {
            let disks = health(global, &recorded).await?;
            let is_failing = disks.iter().any(|disk| disk.verdict == "failing");
            let width = out::style().width;
            global.out().answer(&disks, |disks| crate::render::watch::disk_health(disks, width))?;
            Ok(if is_failing { Outcome::Problems } else { Outcome::Done })
        }
        DiskCommand::Prepare(args) => prepare(global, args).map(|()| Outcome::Done),
    }
}

/// What the daemon knows, which has a history; without one, or of a recorded machine, what the disks say now.
async fn health(global: &Global, recorded: &Recorded) -> Result<Vec<larder_api::DiskHealth>, Failure> {
    if recorded.root().is_none()
        && let Some(Target::Daemon(client)) = maybe_target(global).await?
    {
        return client.ask(GetDiskHealth).await;
    }
    Ok(larder_watch::without_daemon(&recorded.machine()?))
}

/// The pool that a folder is a disk of.
fn pool_of(folder: &Path) -> Option<String> {
    Pool::scan(&[folder.to_owned()]).into_iter().map(|pool| pool.name).next()
}

/// Says on standard error what `disk check` would warn of before a pool is built on these disks. Nothing is written, and
/// nothing refused: a pool in three folders of one disk is fine for trying out.
pub(super) fn warn_of(disks: &[PathBuf], members: &[PathBuf], json: bool) {
    let options = CheckOptions { members: members.to_vec(), flush_test: false, ..CheckOptions::default() };
    let mut report = check(&Machine::this(), disks, &options);
    // A folder that is yet to be made is no fault; where it will lie is what counts.
    for disk in report.disks.iter_mut().filter(|disk| !disk.given.exists()) {
        disk.findings.retain(|finding| finding.code != "missing");
    }
    for line in text::warnings(&report) {
        out::warn(&line, json);
    }
}

fn prepare(global: &Global, args: PrepareArgs) -> Result<(), Failure> {
    let machine = Machine::this();
    let options = PrepareOptions {
        device: absolute(&args.device)?,
        label: args.label,
        mount: args.mount.as_deref().map(absolute).transpose()?,
        fstab: absolute(&args.fstab)?,
    };
    let plan = Prepare::plan(&machine, &options).map_err(|e| failure(&e))?;
    if args.dry_run {
        return global.out().answer(&Answer::new(plan), |answer| text::plan(&answer.found));
    }
    let typed = match (args.serial, args.yes) {
        (Some(serial), _) => Some(serial),
        (None, true) => None,
        (None, false) => asked(&plan)?,
    };
    let done = plan.run(&machine, typed.as_deref()).map_err(|e| failure(&e))?;
    global.out().answer(&Answer::new(done), |answer| text::prepared(&answer.found))
}

/// A person confirms: with a word for an empty disk, with the serial number where something would be lost.
fn asked(plan: &Prepare) -> Result<Option<String>, Failure> {
    if !std::io::stdin().is_terminal() {
        if !plan.is_empty() {
            // The refusal of `run` says what is on it and what to type.
            return Ok(None);
        }
        return Err(Failure::invalid(format!("this would make a filesystem on {}", plan.title()))
            .action("if you mean it, add --yes"));
    }
    out::tell(&text::plan(plan));
    match plan.is_empty() {
        true => out::ask(&format!("Make a filesystem on {}? Type yes: ", plan.title())),
        false => out::ask(&format!("Everything on {} will be lost. Type {} to go on: ", plan.title(), plan.token)),
    }
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    let line = line.trim();
    match plan.is_empty() {
        true if line == "yes" => Ok(None),
        false if line == plan.token => Ok(Some(line.to_owned())),
        _ => Err(Failure::invalid("nothing was changed: that was not what was asked for")),
    }
}

/// The error, and the way out.
pub(super) fn failure(error: &PrepareError) -> Failure {
    let message = error.to_string();
    match error {
        PrepareError::Invalid(_) => Failure::invalid(message),
        PrepareError::Busy { .. } => {
            Failure::busy(message).action("unmount it first, or choose another: larder disk list")
        }
        PrepareError::NotEmpty { token, .. } => {
            Failure::exists(message).action(format!("if all of that may be lost, add: --serial {token}"))
        }
        PrepareError::WrongSerial { .. } => {
            Failure::invalid(message).action("nothing was changed; serial numbers are in: larder disk list")
        }
        PrepareError::Tool(larder_facts::machine::ToolError::Missing { program }) => {
            let package = if program == "mkfs.xfs" { "xfsprogs" } else { "util-linux" };
            Failure::unavailable(message).action(format!("apt install {package}"))
        }
        PrepareError::Io { what, source } => Failure::io(what, source),
        PrepareError::Tool(_) | PrepareError::Step { .. } => Failure::unavailable(message),
    }
}
