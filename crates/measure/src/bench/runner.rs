//! One workload on one subject: prepare, repeat, look at the machine meanwhile, say what a reader has to know.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_base::units::ByteSize;

use super::again::{Spare, repeat_seconds};
use super::ends::{Ends, Seen};
use super::far::{FarEnd, FarError, Visit};
use super::plan::MEASURE_S_MIN;
use super::result::{Caches, FarMachine, Kind, Layer, Note, Repeat, Run, Samples, Workload};
use super::saturation::at_both_ends;
use super::show::size;
use crate::Machine;
use larder_facts::sampler::{Meter, Sampler};
use larder_load::BenchError;
use larder_load::Control;
use larder_load::RunLimits;
use larder_load::{Load, Scene};
use larder_load::{SETTLE, drop_caches};

/// (Largest - smallest) / median beyond which a median is a matter of luck.
const SPREAD_MAX: f64 = 0.25;
/// The least part of a repeat that counts, without warming up or after a knee.
const COUNTED_S_MIN: f64 = 1.0;
/// Seconds of a repeat that are enough.
const SECONDS_ADVISED: u32 = 5;
/// Percent of all cores that the host of a virtual machine took away; less is nobody's fault.
const STEAL_PERCENTS: [f64; 4] = [50.0, 25.0, 10.0, 3.0];
/// Percent of all cores that other programs took; less is what any system does.
const OTHERS_PERCENTS: [f64; 3] = [75.0, 50.0, 25.0];
/// TCP segments sent again, of all of them.
const RETRANSMIT_SHARE_MAX: f64 = 0.001;
/// Payload of one TCP segment on Ethernet.
const SEGMENT_BYTES: f64 = 1448.0;

/// Told how far a bench is; from any thread.
pub trait Watch: Send + Sync {
    /// How long all of it will take, about.
    fn planned(&self, seconds: f64);
    /// A run begins: what it is, which repeat of how many, how long a repeat takes.
    fn began(&self, what: &str, repeat: u32, repeats: u32, seconds: f64);
    fn ended(&self, run: &Run);
    fn noted(&self, note: &Note);
}

pub(super) struct Spec {
    pub(super) layer: Layer,
    pub(super) subject: String,
    pub(super) variant: BTreeMap<String, String>,
    pub(super) workload: Workload,
    pub(super) limits: RunLimits,
    pub(super) repeats: u32,
    pub(super) notes: Vec<Note>,
    /// Whether the far end works for it.
    pub(super) far: bool,
}

impl Spec {
    /// Emptying all caches of a machine slows down whoever else works on it: only where it is needed.
    fn needs_dropping(&self) -> bool {
        self.layer != Layer::Net && matches!(self.workload.caches, Caches::Dropped | Caches::Unknown)
    }
}

pub(super) struct Runner<'a> {
    pub(super) machine: &'a Machine,
    pub(super) control: &'a Control,
    pub(super) watch: &'a dyn Watch,
    pub(super) began: Instant,
    pub(super) keep: PathBuf,
    pub(super) meter: Option<Meter>,
    /// Until it does not answer.
    pub(super) far: Option<FarEnd>,
    pub(super) far_machine: Option<FarMachine>,
    pub(super) ciphers: Vec<super::result::CipherRate>,
    pub(super) runs: Vec<Run>,
    pub(super) notes: Vec<Note>,
    /// Time for repeats beyond the planned ones.
    pub(super) spare: Spare,
    /// The last workload that could not be measured, and why.
    pub(super) failed: Option<BenchError>,
    /// Workloads that could not be measured: subject, reason and workloads, for one note of all of them.
    unmeasured: Vec<(String, String, Vec<String>)>,
    /// Counts runs, also those that failed, for the names of what is kept.
    count: usize,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        control: &'a Control,
        watch: &'a dyn Watch,
        keep: PathBuf,
        meter: Option<Meter>,
    ) -> Self {
        let began = Instant::now();
        let (runs, notes) = (Vec::new(), Vec::new());
        let (far, far_machine, unmeasured) = (None, None, Vec::new());
        let failed = None;
        Self {
            machine,
            control,
            watch,
            began,
            keep,
            meter,
            far,
            far_machine,
            ciphers: Vec::new(),
            runs,
            notes,
            spare: Spare::default(),
            failed,
            unmeasured,
            count: 0,
        }
    }

    /// Milliseconds since the bench began.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.watch.noted(&note);
            self.notes.push(note);
        }
    }

    /// Goes on without a workload, or without all of a subject. Who looks on hears of it now, unless just that was said.
    pub(super) fn unmeasured(&mut self, subject: &str, what: Option<&Workload>, error: BenchError) {
        let why = match error.action().filter(|action| !action.is_empty()) {
            Some(action) => format!("{error}; {action}"),
            None => error.to_string(),
        };
        self.failed = Some(error);
        let titles = what.map(title);
        match self.unmeasured.iter_mut().find(|(of, because, _)| of == subject && *because == why) {
            Some((_, _, whats)) => whats.extend(titles),
            None => {
                self.watch.noted(&not_measured(subject, &why, titles.as_slice()));
                self.unmeasured.push((subject.to_owned(), why, titles.into_iter().collect()));
            }
        }
    }

    /// Whether something of it could not be.
    pub(super) fn is_unmeasured(&self, subject: &str) -> bool {
        self.unmeasured.iter().any(|(of, ..)| of == subject)
    }

    /// One note for all workloads of a subject that ended in the same way.
    pub(super) fn note_unmeasured(&mut self) {
        for (subject, why, whats) in std::mem::take(&mut self.unmeasured) {
            self.notes.push(not_measured(&subject, &why, &whats));
        }
    }

    pub(super) fn go_on(&self) -> Result<(), BenchError> {
        if self.control.is_stopped() { Err(BenchError::Stopped) } else { Ok(()) }
    }

    /// Takes away what could not be read back, and says so.
    pub(super) fn drop_odd_repeats(&mut self) {
        let mut notes = Vec::new();
        for run in &mut self.runs {
            let before = run.repeats.len();
            run.repeats.retain(Repeat::is_finite);
            let odd = before - run.repeats.len();
            if odd > 0 {
                let text =
                    format!("{odd} of {before} repeats of {}, {}, gave no number", run.subject, title(&run.workload));
                notes.push(Note { code: "not-a-number".to_owned(), text, misleading: false });
            }
        }
        self.runs.retain(|run| !run.repeats.is_empty());
        notes.into_iter().for_each(|note| self.note(note));
    }

    /// An error of one workload is noted, and the next one tried. `Err` ends the bench; what was measured is kept.
    pub(super) fn measure(&mut self, load: &mut dyn Load, spec: Spec) -> Result<(), BenchError> {
        self.go_on()?;
        self.count += 1;
        let mut ends = Ends::new(Sampler::start(self.machine, self.began, self.meter.clone()));
        let mut repeats = Vec::new();
        let ended = self.prepare(load, &spec).and_then(|()| {
            ends.watch_too(self.visit(&spec));
            let began = Instant::now();
            let ended = self.repeat(load, &spec, &mut ends, &mut repeats);
            let planned_s = f64::from(spec.repeats) * repeat_seconds(&spec.limits);
            self.spare.spend(planned_s, began.elapsed().as_secs_f64());
            ended
        });
        let mut seen = ends.end(self.now_ms());
        if let Some(error) = seen.lost.take() {
            self.lost(&error);
        }
        if !repeats.is_empty() {
            let run = self.finished(load, &spec, repeats, seen);
            self.watch.ended(&run);
            self.runs.push(run);
        }
        match ended {
            Err(error @ (BenchError::Stopped | BenchError::Missing { .. })) => Err(error),
            Err(error) => {
                self.unmeasured(&spec.subject, Some(&spec.workload), error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn scene(&self, repeat: usize) -> Scene<'_> {
        Scene { machine: self.machine, control: self.control, keep: &self.keep, run: self.count, repeat }
    }

    fn prepare(&self, load: &mut dyn Load, spec: &Spec) -> Result<(), BenchError> {
        let doing = if spec.layer == Layer::Net { "getting ready" } else { "making data" };
        let what = format!("{}: {}: {doing}", spec.subject, title(&spec.workload));
        self.watch.began(&what, 0, spec.repeats, 0.0);
        load.prepare(&spec.workload, &self.scene(0))
    }

    /// A visit to the far end, where it has a part in this. A far end that does not answer is not asked again
    /// (`far.absence_is_a_note`).
    fn visit(&mut self, spec: &Spec) -> Option<Visit> {
        let end = self.far.as_ref().filter(|_| spec.far)?;
        match Visit::begin(end, self.now_ms()) {
            Ok(visit) => {
                self.far_machine.get_or_insert_with(|| visit.machine.clone());
                Some(visit)
            }
            Err(error) => {
                let FarEnd { name, port } = end;
                let text = format!(
                    "the other end, {name}, was not watched, so what its processor, disks and network did is not known: {error} (port {port}). To have it: larder bench net --listen at {name}"
                );
                self.far = None;
                self.note(Note { code: "far-end-unwatched".to_owned(), text, misleading: false });
                None
            }
        }
    }

    fn lost(&mut self, error: &FarError) {
        let name = self.far.as_ref().map_or("", |end| end.name.as_str());
        let text = format!("the other end, {name}, was not watched to the end of a measurement: {error}");
        self.note(Note { code: "far-end-lost".to_owned(), text, misleading: false });
    }

    fn repeat(
        &self,
        load: &mut dyn Load,
        spec: &Spec,
        ends: &mut Ends,
        repeats: &mut Vec<Repeat>,
    ) -> Result<(), BenchError> {
        let what = format!("{}: {}", spec.subject, title(&spec.workload));
        let seconds = (spec.limits.warm_up + spec.limits.measure_max).as_secs_f64();
        let (began, mut wanted, mut n) = (Instant::now(), spec.repeats, 0);
        while n < wanted {
            self.go_on()?;
            if self.machine.is_live() && spec.needs_dropping() {
                drop_caches(self.machine, self.control)?;
            }
            std::thread::sleep(SETTLE);
            self.watch.began(&what, n + 1, wanted, seconds);
            ends.look();
            let start_ms = self.now_ms();
            let found = load.run(&spec.workload, &spec.limits, &self.scene(n as usize));
            ends.rest();
            repeats.push(Repeat { start_ms, ..found? });
            n += 1;
            let taken_s = began.elapsed().as_secs_f64();
            let kind = spec.workload.kind;
            if n == wanted && self.spare.allows(kind, &spec.limits, spec.repeats, repeats, taken_s) {
                wanted += 1;
            }
        }
        Ok(())
    }

    fn finished(&self, load: &dyn Load, spec: &Spec, repeats: Vec<Repeat>, seen: Seen) -> Run {
        let far_name = self.far_machine.as_ref().map_or("far end", |far| far.name.as_str());
        let mut run = Run {
            layer: spec.layer,
            subject: spec.subject.clone(),
            access: load.access(),
            here: None,
            variant: spec.variant.clone(),
            workload: spec.workload.clone(),
            with: load.with(spec.workload.kind),
            repeats,
            saturated: at_both_ends(&seen.near, seen.far.as_ref().map(|far| (far_name, far))),
            samples: seen.near,
            far_samples: seen.far,
            notes: spec.notes.clone(),
        };
        if let Some(far) = self.far_machine.as_ref().filter(|_| spec.far && spec.layer == Layer::Share) {
            know_memory(&mut run, &far.name, far.machine.memory_bytes);
        }
        let found = after(&run, spec.limits.measure_max);
        run.notes.extend(found);
        run.notes.extend(measured_again(&run, spec.repeats));
        run
    }
}

fn not_measured(subject: &str, why: &str, whats: &[String]) -> Note {
    let text = match whats {
        [] => format!("{subject} was not measured: {why}"),
        whats => format!("{subject}: not measured to the end: {}: {why}", whats.join(", ")),
    };
    Note { code: "not-measured".to_owned(), text, misleading: false }
}

/// "random read 4 KiB x32".
pub fn title(workload: &Workload) -> String {
    let words = match workload.kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::RandomRead => "random read",
        Kind::RandomWrite => "random write",
        Kind::RandomMixed => "random 75/25",
        Kind::Cat => "cat a large file",
        Kind::CreateFiles => "create files",
        Kind::ReadFiles => "read files",
        Kind::StatFiles => "stat files",
        Kind::DeleteFiles => "delete files",
        Kind::CopyTreeIn => "copy a tree in",
        Kind::CopyTreeOut => "copy a tree out",
        Kind::Copy => "copy",
        Kind::Scrub => "scrub",
        Kind::Send => "send",
        Kind::Receive => "receive",
        Kind::SendReceive => "send and receive",
    };
    let jobs = |n: u32, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
    match workload.kind {
        Kind::Send | Kind::Receive | Kind::SendReceive => format!("{words}, {}", jobs(workload.jobs, "stream")),
        Kind::Read | Kind::Write | Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed => {
            let parallel = if workload.jobs > 1 { format!(", {}", jobs(workload.jobs, "job")) } else { String::new() };
            format!("{words} {} x{}{parallel}", size(workload.block_bytes as f64), workload.depth)
        }
        Kind::Cat | Kind::Scrub => words.to_owned(),
        Kind::Copy if workload.files <= 1 => format!("{words} a large file"),
        _ => format!("{words} ({} files)", workload.files),
    }
}

/// Notes on a run from its own figures, once it is over.
fn after(run: &Run, planned: Duration) -> Vec<Note> {
    let told = [read_again(run), short(run, planned), uneven(run), knee(run), throttled(&run.samples)];
    told.into_iter().chain([stolen(&run.samples), beside_others(&run.samples), sent_again(run)]).flatten().collect()
}

fn note(code: &str, misleading: bool, text: String) -> Option<Note> {
    Some(Note { code: code.to_owned(), text, misleading })
}

fn short(run: &Run, planned: Duration) -> Option<Note> {
    let shortest = run.repeats.iter().map(|r| r.seconds).reduce(f64::min)?;
    // Files are counted, not timed: a thousand of them say enough, however fast they were.
    let counted = matches!(
        run.workload.kind,
        Kind::CreateFiles
            | Kind::ReadFiles
            | Kind::StatFiles
            | Kind::DeleteFiles
            | Kind::CopyTreeIn
            | Kind::CopyTreeOut
            | Kind::Copy
            | Kind::Scrub
    );
    let (brief, hurried) = (shortest < COUNTED_S_MIN, planned.as_secs_f64() < MEASURE_S_MIN);
    let least_s = if brief { COUNTED_S_MIN } else { MEASURE_S_MIN };
    // More time changes nothing if the data ended first.
    let way_out = match brief && !hurried && run.workload.data_bytes > 0 {
        true => format!("More data takes longer: --size {}M", enough_mib(&run.workload, shortest)),
        false => format!("Measure longer, with --seconds {}", SECONDS_ADVISED),
    };
    let text = format!("a repeat took less than {least_s} s: too short for more than a glance. {way_out}");
    let long = !brief && !hurried;
    if counted || long { None } else { note("too-short", true, text) }
}

/// Data that keeps a repeat busy for long enough, going by one that took `seconds`.
fn enough_mib(workload: &Workload, seconds: f64) -> u64 {
    let factor = (MEASURE_S_MIN / seconds.max(1e-3)).ceil() as u64;
    (workload.data_bytes >> 20).max(1).saturating_mul(factor.max(2)).next_power_of_two()
}

/// By URL nothing is known of the server's caches, and what was read before is in them if they are large enough.
fn read_again(run: &Run) -> Option<Note> {
    let read = matches!(run.workload.kind, Kind::Read | Kind::Cat);
    let by_url = read && run.layer == Layer::Share && run.access != "mount" && run.workload.caches == Caches::Unknown;
    let most = run.repeats.iter().map(|r| r.bytes as f64 / run.workload.data_bytes.max(1) as f64).fold(0.0, f64::max);
    let text = format!(
        "the {} were read up to {most:.1} times in a repeat, so that it lasts: what the wire, both processors and the protocol carry. Of the server's disks it tells only if that is more than twice its memory",
        ByteSize(run.workload.data_bytes)
    );
    if by_url && most > 1.0 { note("read-again", false, text) } else { None }
}

/// Corrects the state of caches once the other end has told the size of its memory.
fn know_memory(run: &mut Run, name: &str, memory_bytes: u64) {
    use Kind::*;
    let kind = run.workload.kind;
    let reads = matches!(kind, Read | Cat | RandomRead | RandomMixed | ReadFiles | StatFiles | CopyTreeOut);
    if run.workload.caches != Caches::Unknown || memory_bytes == 0 {
        return;
    }
    let enough = memory_bytes.saturating_mul(2);
    run.notes.retain(|note| note.code != "server-memory");
    // Of what was written all was flushed in its time, however much memory there is.
    if !reads {
        return;
    }
    if run.workload.data_bytes >= enough {
        run.workload.caches = Caches::TooSmall;
        return;
    }
    run.workload.caches = Caches::Warm;
    // How many requests a second come from memory is nobody's disk. A stream is still what wire and processors carry.
    let misleading = matches!(kind, RandomRead | RandomMixed);
    let proves = if misleading { "" } else { " It is what the wire, both processors and the protocol carry." };
    let text = format!(
        "{name} has {} of memory and had the {} in it: its disks were not asked.{proves} Those show with --size {}G",
        ByteSize(memory_bytes),
        ByteSize(run.workload.data_bytes),
        enough.div_ceil(1 << 30)
    );
    run.notes.extend(note("server-memory", misleading, text));
}

fn uneven(run: &Run) -> Option<Note> {
    run.spread().filter(|spread| *spread > SPREAD_MAX)?;
    let steady = if run.layer == Layer::Net { "" } else { ", or what stores the data was not in a steady state" };
    let text = format!(
        "the repeats lie more than {:.0} % of their median apart: something else was going on{steady}",
        SPREAD_MAX * 100.0
    );
    note("uneven", false, text)
}

fn measured_again(run: &Run, planned: u32) -> Option<Note> {
    let more = (run.repeats.len() as u32).checked_sub(planned).filter(|more| *more > 0)?;
    let repeats = if more == 1 { "repeat was" } else { "repeats were" };
    let text = format!("the first {planned} repeats disagreed, and time was left: {more} more {repeats} made");
    note("measured-again", false, text)
}

fn knee(run: &Run) -> Option<Note> {
    let knee = run.repeats.iter().find_map(|r| r.knee)?;
    let cache = match run.layer {
        Layer::Disk | Layer::Disks => "a fast cache of the disk",
        _ => "memory or a fast cache on the way",
    };
    let text = format!(
        "after {:.0} s and {} writing fell from {:.0} to {:.0} MB/s: {cache} was full. The figure is that after it",
        knee.at_s,
        size(knee.bytes as f64),
        knee.before_bytes_per_s / 1e6,
        knee.after_bytes_per_s / 1e6
    );
    note("fast-cache", false, text)
}

fn throttled(samples: &Samples) -> Option<Note> {
    let text = format!(
        "the processor was throttled {} times because of heat or too little power: see to its cooling and its supply",
        samples.throttled
    );
    if samples.throttled > 0 { note("throttled", false, text) } else { None }
}

fn stolen(samples: &Samples) -> Option<Note> {
    let values = || samples.cores.iter().flat_map(|c| c.steal.iter().copied()).filter(|v| v.is_finite());
    let percent = values().sum::<f64>() / values().count().max(1) as f64;
    // In steps, so that runs that it hit alike share a note.
    let least = STEAL_PERCENTS.into_iter().find(|least| percent > *least)?;
    let text =
        format!("the host of this virtual machine took more than {least:.0} % of its processor time away meanwhile");
    note("stolen", false, text)
}

fn beside_others(samples: &Samples) -> Option<Note> {
    let values = || samples.cores.iter().flat_map(|c| c.others.iter().copied()).filter(|v| v.is_finite());
    let percent = values().sum::<f64>() / values().count().max(1) as f64;
    let least = OTHERS_PERCENTS.into_iter().find(|least| percent > *least)?;
    let text = format!("other programs took more than {least:.0} % of this machine's processor time meanwhile");
    note("others-work", false, text)
}

fn sent_again(run: &Run) -> Option<Note> {
    let again: u64 = run.repeats.iter().filter_map(|r| r.retransmits).fold(0, u64::saturating_add);
    let segments = run.repeats.iter().map(|r| r.bytes as f64 / SEGMENT_BYTES).sum::<f64>();
    let share = again as f64 / segments.max(1.0);
    let text = format!(
        "{again} TCP segments ({:.2} %) were sent again: a cable, a port or a buffer on the way drops packets",
        share * 100.0
    );
    if share > RETRANSMIT_SHARE_MAX { note("retransmits", false, text) } else { None }
}

#[cfg(test)]
mod tests;
