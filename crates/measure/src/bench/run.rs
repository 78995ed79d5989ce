//! A whole bench: which subjects, in which order, and what they say together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::again::Spare;
use super::far::FarEnd;
use super::plan::{Changes, Plan, Preset};
use super::result::{BenchResult, ENCRYPTION, Note, Run, SCHEMA, VERSION};
use super::runner::{Runner, Watch};
use super::{before, ciphers, history};
use crate::Machine;
use larder_facts::about;
use larder_facts::sampler::Meter;
use larder_load::BenchError;
use larder_load::Control;
use larder_load::Device;
use larder_load::client::{self, ClientOptions};

mod copies;
mod disks;
mod pools;
mod scrubs;
mod shares;
mod together;
mod wire;

/// Of those that a title names; the runs name all.
const TITLE_SUBJECTS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub enum DiskTarget {
    Folder(PathBuf),
    Device(Device),
}

impl DiskTarget {
    fn show(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            Self::Device(device) => device.path.display().to_string(),
        }
    }
}

#[derive(Clone, Debug)]
pub enum ShareTarget {
    Mount(PathBuf),
    Url(String),
}

impl ShareTarget {
    fn show(&self) -> String {
        match self {
            Self::Mount(path) => path.display().to_string(),
            Self::Url(url) => client::shown_url(url),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PoolTarget {
    /// Folders on the disks of a pool that is made for this, or one folder of a pool that is mounted.
    pub folders: Vec<PathBuf>,
    /// Each is measured; empty: the usual one.
    pub layouts: Vec<String>,
    pub compressions: Vec<String>,
    /// `none`, ciphers of larder's volumes, `gocryptfs`; empty: all of them with the preset `encryption`, else none.
    pub encryptions: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub port: u16,
}

/// The things to measure, from the bottom to the top. Each may be missing.
#[derive(Clone, Debug, Default)]
pub struct Subjects {
    pub disks: Vec<DiskTarget>,
    pub pool: Option<PoolTarget>,
    pub host: Option<Host>,
    /// The machine at the other end of wire and shares: watched while they are measured, if it answers.
    pub far: Option<FarEnd>,
    pub shares: Vec<ShareTarget>,
    /// Disks and the wire at the same time, at last.
    pub both: bool,
    /// From, and to.
    pub copy: Option<[ShareTarget; 2]>,
    pub scrub: Option<PoolTarget>,
}

pub struct Request {
    /// `disk`, `pool`, `net`, `share`, `all`.
    pub verb: String,
    pub subjects: Subjects,
    pub preset: Preset,
    pub changes: Changes,
    /// Whether to measure what one core encrypts; the preset `encryption` always does.
    pub ciphers: bool,
    /// Kept with every run, for comparisons: `encryption` = `aes-256-gcm`.
    pub labels: BTreeMap<String, String>,
    /// A person's title for the result; otherwise it names the subjects.
    pub title: Option<String>,
    pub client: ClientOptions,
    /// The folder of results.
    pub history: PathBuf,
    /// This program, to make a pool with.
    pub program: PathBuf,
    /// The data folder of its daemon, where one was named.
    pub data: Option<PathBuf>,
    pub meter: Option<Meter>,
}

pub struct Finished {
    pub result: BenchResult,
    /// The folder of the result and all that belongs to it.
    pub folder: PathBuf,
    /// Why it is not whole.
    pub failure: Option<BenchError>,
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

/// Measures, keeps the result, and takes away all that was written. `Err`: nothing was measured, nothing is kept.
pub fn run(machine: &Machine, request: &Request, control: &Control, watch: &dyn Watch) -> Result<Finished, BenchError> {
    let started_ms = now_ms();
    let machine_facts = about::facts(machine);
    let title = request.title();
    let bench = Bench {
        machine,
        request,
        control,
        memory_bytes: machine_facts.memory_bytes,
        subjects: request.subjects.count(),
    };
    if let Some(far) = &request.subjects.far {
        larder_load::checked_host(&far.name)?;
    }
    let (id, folder) = history::make(&request.history, &history::id(started_ms, &title))?;
    control.leftovers().result(&folder);
    let mut runner = Runner::new(machine, control, watch, folder.clone(), request.meter.clone());
    runner.far.clone_from(&request.subjects.far);
    for note in before::notes(machine, machine_facts.cores) {
        runner.note(note);
    }
    if let Some(note) = bench.storage_plan().few_repeats(&request.changes) {
        runner.note(note);
    }
    watch.planned(bench.seconds());
    runner.spare = Spare::of(bench.storage_plan().spare_seconds(bench.seconds(), &request.changes));
    let ended = bench.all(&mut runner);
    runner.note_unmeasured();
    // A bench that was cut short may have had more kinds to come.
    if request.preset == Preset::Encryption && ended.is_ok() {
        one_kind(&runner.runs).into_iter().for_each(|note| runner.note(note));
    }
    for text in control.leftovers().take() {
        runner.note(Note { code: "left-behind".to_owned(), text, misleading: false });
    }
    runner.drop_odd_repeats();
    // Also of one that was stopped before its first repeat was over: an empty result would be the last one in the history.
    if runner.runs.is_empty() {
        let _ = std::fs::remove_dir_all(&folder);
        let nothing = || BenchError::invalid("there was nothing to measure", "choose other workloads or subjects");
        return Err(ended.err().or(runner.failed).unwrap_or_else(nothing));
    }
    let result = BenchResult {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        id,
        title: request.title.clone().unwrap_or(title),
        preset: request.preset.to_string(),
        started_ms,
        ended_ms: now_ms(),
        larder: env!("CARGO_PKG_VERSION").to_owned(),
        interrupted: ended.is_err(),
        machine: machine_facts,
        far_machine: runner.far_machine,
        ciphers: runner.ciphers,
        runs: runner.runs,
        notes: runner.notes,
    };
    history::save(&folder, &result)?;
    Ok(Finished { result, folder, failure: ended.err() })
}

impl Request {
    fn title(&self) -> String {
        let subjects = &self.subjects;
        let mut words: Vec<String> = subjects.disks.iter().map(DiskTarget::show).collect();
        words.extend(subjects.pool.iter().flat_map(|p| &p.folders).map(|f| f.display().to_string()));
        words.extend(subjects.host.iter().map(|host| host.name.clone()));
        words.extend(subjects.shares.iter().map(ShareTarget::show));
        words.extend(subjects.copy.iter().map(|[from, to]| format!("{} to {}", from.show(), to.show())));
        words.extend(subjects.scrub.iter().flat_map(|p| &p.folders).map(|f| f.display().to_string()));
        let mut seen: Vec<String> = Vec::new();
        words.retain(|word| {
            let new = !seen.contains(word);
            seen.push(word.clone());
            new
        });
        let more = words.len().saturating_sub(TITLE_SUBJECTS_MAX);
        if more > 1 {
            words.truncate(TITLE_SUBJECTS_MAX);
            words.push(format!("{more} more"));
        }
        format!("{} {}", self.verb, words.join(", ")).trim_end().to_owned()
    }
}

impl Subjects {
    /// How many are measured one after the other, each with every workload.
    fn count(&self) -> usize {
        let disks = self.disks.len() + usize::from(self.disks.len() > 1);
        let variants = |pool: &PoolTarget| pool.layouts.len().max(1) * pool.compressions.len().max(1);
        let pool = self.pool.as_ref().map_or(0, variants);
        let one = usize::from(self.both) + usize::from(self.copy.is_some()) + usize::from(self.scrub.is_some());
        disks + pool + usize::from(self.host.is_some()) + self.shares.len() + one
    }
}

struct Bench<'a> {
    machine: &'a Machine,
    request: &'a Request,
    control: &'a Control,
    memory_bytes: u64,
    subjects: usize,
}

impl Bench<'_> {
    fn all(&self, runner: &mut Runner) -> Result<(), BenchError> {
        let subjects = &self.request.subjects;
        if (self.request.preset == Preset::Encryption || self.request.ciphers)
            && let Some(found) = ciphers::rates(self.control)
        {
            runner.note(ciphers::note(&found));
            runner.ciphers = found;
        }
        // A wrong password is better known now than after all the rest.
        let shares: Vec<&ShareTarget> = subjects.shares.iter().filter(|share| self.answers(runner, share)).collect();
        if !subjects.disks.is_empty() {
            self.disks(runner, &subjects.disks)?;
        }
        if let Some(pool) = &subjects.pool {
            let ended = self.pool(runner, pool);
            noted(runner, "the pool", ended)?;
        }
        let wired = match &subjects.host {
            Some(host) => {
                let ended = self.wire(runner, host);
                noted(runner, &host.name, ended)?;
                !runner.is_unmeasured(&host.name)
            }
            None => false,
        };
        if let Some([from, to]) = &subjects.copy {
            self.copy(runner, from, to)?;
        }
        if let Some(pool) = &subjects.scrub {
            self.scrub(runner, pool)?;
        }
        for share in shares {
            let ended = self.share(runner, share);
            noted(runner, &share.show(), ended)?;
        }
        if let Some(host) = subjects.host.as_ref().filter(|_| subjects.both && wired) {
            let ended = self.both(runner, &subjects.disks, host);
            noted(runner, "disks and wire together", ended)?;
        }
        Ok(())
    }

    fn answers(&self, runner: &mut Runner, share: &ShareTarget) -> bool {
        let ShareTarget::Url(url) = share else { return true };
        match self.client(url) {
            Ok(_) => true,
            Err(error) => {
                runner.unmeasured(&share.show(), None, error);
                false
            }
        }
    }

    fn storage_plan(&self) -> Plan {
        let request = self.request;
        Plan::storage(request.preset, &request.changes, self.memory_bytes)
            .fitted(self.subjects, request.changes.seconds.is_some())
    }

    fn copy_plan(&self) -> Plan {
        Plan::copies(self.request.preset, &self.request.changes)
    }

    fn wire_plan(&self) -> Plan {
        Plan::wire(self.request.preset, &self.request.changes)
            .fitted(self.subjects, self.request.changes.seconds.is_some())
    }

    fn seconds(&self) -> f64 {
        let subjects = &self.request.subjects;
        let wires = usize::from(subjects.host.is_some());
        let copies = usize::from(subjects.copy.is_some());
        let both = if subjects.both { 2.0 * self.storage_plan().run_seconds() } else { 0.0 };
        let stores = self.subjects - wires - copies - usize::from(subjects.both);
        let copied = self.copy_plan().seconds(copies);
        self.storage_plan().seconds(stores) + self.wire_plan().seconds(wires) + copied + both
    }

    fn labelled(&self, key: &str, value: &str) -> BTreeMap<String, String> {
        let mut variant = self.request.labels.clone();
        variant.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        variant
    }

    fn size_given(&self) -> bool {
        self.request.changes.size_bytes.is_some()
    }

    /// A client for a URL.
    fn client(&self, url: &str) -> Result<Box<dyn client::ShareClient>, BenchError> {
        Ok(client::open(url, &self.request.client)?)
    }
}

/// One subject that cannot be measured does not keep the others from it.
fn noted(runner: &mut Runner, what: &str, ended: Result<(), BenchError>) -> Result<(), BenchError> {
    match ended {
        Err(error) if !matches!(error, BenchError::Stopped) => {
            runner.unmeasured(what, None, error);
            Ok(())
        }
        ended => ended,
    }
}

/// A note where the property to compare was the same everywhere.
fn one_kind(runs: &[Run]) -> Option<Note> {
    let kinds: BTreeSet<&String> = runs.iter().filter_map(|run| run.variant.get(ENCRYPTION)).collect();
    let kind = kinds.first().filter(|_| kinds.len() == 1)?;
    let text = format!(
        "encryption is '{kind}' in all that was measured, so there is nothing to compare: name a folder on dm-crypt (LUKS), gocryptfs, fscrypt or an encrypted volume of larder beside a plain one, a folder on each disk of a pool with bench pool, or a share in several ways, such as smb://HOST/SHARE and smb://HOST/SHARE?encrypt=1, sftp://HOST/ and sftp://HOST/?cipher=chacha20-poly1305@openssh.com"
    );
    Some(Note { code: "one-encryption".to_owned(), text, misleading: false })
}

fn is_root() -> bool {
    larder_load::may_drop_caches()
}

#[cfg(test)]
mod tests;
