//! From the runs of a bench to measurements of a description.
//!
//! A bench has many runs of a kind (block sizes, depths); the best of each way, program and variant says what the way
//! can do, and beside it stands what the samples saw of the cores, the disks and the wire in that run.

use std::path::Path as FilePath;

use larder_base::units::ByteSize;

use super::chain::chain;
use super::words::bytes_words;
use crate::Machine;
use crate::bench::BenchResult;
use crate::bench::result::{CoreSeries, ENCRYPTION, Kind, Layer, Repeat, Run, SCRUB, Samples};
use crate::describe::limits::Wire;
use crate::describe::{Caching, Described, Disk, Ends, How, Layout, Measured, Network, Path, Shape, What};
use larder_facts::machine::{Below, BlockDevice};
use larder_facts::reading::Reading;
use larder_facts::samples::OTHERS_PERCENT_SMALL;

/// A bench with more runs than this was not made by us.
const RUNS_MAX: usize = 10_000;
/// So much more is no accident.
const MUCH: f64 = 1.5;
/// A program that makes load on disks and takes less than this waits for them, not for a core: whoever wants more gets
/// his share.
const IDLE_CORES: f64 = 0.2;
/// The other end of a wire does the same for the same bytes: below this a processor many times as slow is idle, too.
const FAR_IDLE_CORES: f64 = 0.05;
/// A quota that was used up for this part of the time held back whoever has it.
const QUOTA_TIME_SHARE: f64 = 0.2;
/// A core that was full for this part of the time was the limit.
const FULL_TIME_SHARE: f64 = 0.7;
const CORE_FULL_PERCENT: f64 = 95.0;
/// Interrupts that take this part of a core are a quick network's.
const IRQ_PERCENT: f64 = 50.0;
/// How a bench calls what is not encrypted.
const PLAIN: [&str; 5] = ["none", "unknown", "signed", "signed with AES-GMAC", "neither signed nor encrypted"];
/// Only a wire alone is so near to what it carries.
const JUST_THE_WIRE: f64 = 0.97;
/// And what cores carry by chance is mostly more: a gigabit's rate.
const SLOW_WIRE_BYTES_PER_S: f64 = 120e6;

/// `reading` and `machine`: of the box, where this is the box.
pub(crate) fn described(result: &BenchResult, reading: Option<&Reading>, machine: &Machine) -> Described {
    let mut described = Described { of_bench: true, ..reading.map_or_else(|| nothing(result), chain) };
    if !result.machine.host.is_empty() {
        described.name.clone_from(&result.machine.host);
    }
    if result.machine.memory_bytes > 0 && reading.is_none() {
        described.memory_bytes = Some(result.machine.memory_bytes);
    }
    let sides = Sides::of(result);
    // If only shares of another machine were measured, that one is the box.
    if let Some(far) = result.far_machine.as_ref().filter(|_| sides.has_remote_share && !sides.has_disks) {
        described.name.clone_from(&far.name);
    }
    described.ciphers = result.ciphers.iter().map(|one| (one.name.clone(), one.bytes_per_s)).collect();
    let runs = best_runs(&result.runs);
    // A scrub beside it is somebody else's work, and the bench says itself what that costs.
    let beside_scrub = |run: &Run| run.variant.get(SCRUB).is_some_and(|scrub| scrub != "none");
    for run in runs.iter().filter(|run| same_disk(run).is_none() && !beside_scrub(run)) {
        let found = measured(run, machine, &sides, &mut described);
        described.measured.extend(found);
    }
    once_each(&mut described.measured);
    share_of_the_pool(&mut described.measured);
    awake(&mut described);
    if described.network.is_none() {
        described.network = network_measured(&described.measured);
    }
    described
}

fn nothing(result: &BenchResult) -> Described {
    Described {
        name: result.machine.host.clone(),
        memory_bytes: None,
        layout: Layout::Stripe,
        groups: 1,
        copies: 2,
        record_bytes: None,
        compression_ratio: 1.0,
        degraded: false,
        slots: None,
        of_bench: true,
        of_machine: false,
        links: Vec::new(),
        disks: Vec::new(),
        network: None,
        upgrades: Vec::new(),
        clients: Vec::new(),
        work: Vec::new(),
        ciphers: Vec::new(),
        goals: Vec::new(),
        measured: Vec::new(),
    }
}

fn same_way(a: &Run, b: &Run) -> bool {
    (a.layer, &a.subject, &a.access, &a.variant) == (b.layer, &b.subject, &b.access, &b.variant)
}

/// One for each way, kind, program and variant: the fastest.
fn best_runs(runs: &[Run]) -> Vec<&Run> {
    let mut best: Vec<&Run> = Vec::new();
    for run in runs.iter().take(RUNS_MAX).filter(|r| r.median().is_some_and(|m| m.is_finite() && m > 0.0)) {
        let same = |b: &&mut &Run| same_way(b, run) && b.workload.kind == run.workload.kind;
        match best.iter_mut().find(same) {
            Some(known) if known.median() >= run.median() => {}
            Some(known) => *known = run,
            None => best.push(run),
        }
    }
    bulk_speaks(best).into_iter().flat_map(|run| single_stream(runs, run).into_iter().chain([run])).collect()
}

/// A tree's copy is mostly files that are made and found, and `cat` asks for one thing at a time: neither is how fast a
/// way is where that was measured too. The last of a kind is what a verdict is about.
fn bulk_speaks(best: Vec<&Run>) -> Vec<&Run> {
    let beside = |run: &Run, bulk: Kind| best.iter().any(|b| same_way(b, run) && b.workload.kind == bulk);
    let told = |run: &&&Run| match run.workload.kind {
        Kind::CopyTreeIn => !beside(run, Kind::Write),
        Kind::CopyTreeOut => !beside(run, Kind::Read),
        _ => true,
    };
    let place = |run: &Run| best.iter().position(|b| same_way(b, run));
    let mut found: Vec<&Run> = best.iter().filter(told).copied().collect();
    found.sort_by_key(|run| (place(run), run.workload.kind != Kind::Cat));
    found
}

/// The run of one connection on a wire where several carried much more: a share has one.
fn single_stream<'a>(runs: &'a [Run], best: &Run) -> Option<&'a Run> {
    let alike = |r: &&Run| {
        r.layer == Layer::Net && same_way(r, best) && r.workload.kind == best.workload.kind && r.workload.jobs == 1
    };
    let rate = |r: &Run| r.median().filter(|m| m.is_finite() && *m > 0.0);
    let one = runs.iter().take(RUNS_MAX).filter(alike).filter_map(|r| Some((r, rate(r)?)));
    let (one, carried) = one.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| best.layer == Layer::Net)?;
    (rate(best)? >= carried * MUCH).then_some(one)
}

/// Folders of one disk that were asked all at once say nothing of several disks: why, in the bench's words.
pub(super) fn same_disk(run: &Run) -> Option<&str> {
    run.notes.iter().find(|n| n.code == "same-disk" && n.misleading).map(|n| n.text.as_str())
}

/// Several folders of one disk are one disk by itself: the best of them says what it can do.
fn once_each(all: &mut Vec<Measured>) {
    let mut kept: Vec<Measured> = Vec::new();
    for one in all.drain(..) {
        let same = |m: &&mut Measured| {
            let alike = m.what == one.what && m.disks == one.disks && m.how.doubt.is_some() == one.how.doubt.is_some();
            one.path == Path::Disks && m.path == Path::Disks && alike
        };
        match kept.iter_mut().find(same) {
            Some(known) if known.rate >= one.rate => {}
            Some(known) => *known = one,
            None => kept.push(one),
        }
    }
    *all = kept;
}

/// An idle link saves power: one that carried more than it had when it was looked at has what both of its ends can.
fn awake(described: &mut Described) {
    let Described { disks, measured, .. } = described;
    let alone = |disk: &Disk, m: &Measured| {
        matches!(m.path, Path::Disks | Path::Local) && m.disks == [(disk.name.clone(), 1)] && m.how.doubt.is_none()
    };
    for disk in disks.iter_mut().filter(|disk| disk.could.is_some()) {
        let most = measured.iter().filter(|m| alone(disk, m)).map(Measured::bytes_per_s).fold(0.0, f64::max);
        if disk.connection.as_ref().is_some_and(|wire| most > wire.line) {
            disk.connection = disk.could.take();
        }
    }
}

/// Which disks are behind a share of this machine its address does not say. Where all pools that were measured lie on
/// the same disks, it is those.
fn share_of_the_pool(all: &mut [Measured]) {
    let mut pools = all.iter().filter(|m| m.path == Path::Local).map(|m| m.disks.clone());
    let Some(first) = pools.next().filter(|first| pools.all(|other| other == *first)) else { return };
    let shares = all.iter_mut().filter(|m| m.path == Path::Share && m.how.elsewhere.is_none());
    shares.for_each(|m| m.disks.clone_from(&first));
}

/// Which end is the box. Whoever measures a share is its client, of the wire too; whoever measures disks and no share of
/// another machine is the box itself.
struct Sides {
    near: String,
    near_memory_bytes: Option<u64>,
    far: Option<String>,
    far_memory_bytes: Option<u64>,
    has_disks: bool,
    has_remote_share: bool,
}

impl Sides {
    fn of(result: &BenchResult) -> Self {
        let any = |layers: &[Layer]| result.runs.iter().take(RUNS_MAX).any(|r| layers.contains(&r.layer));
        let remote = |r: &Run| r.layer == Layer::Share && !is_here(r, &result.machine.host);
        Self {
            near: result.machine.host.clone(),
            near_memory_bytes: Some(result.machine.memory_bytes).filter(|bytes| *bytes > 0),
            far: result.far_machine.as_ref().map(|far| far.name.clone()),
            far_memory_bytes: result.far_machine.as_ref().map(|far| far.machine.memory_bytes).filter(|b| *b > 0),
            has_disks: any(&[Layer::Disk, Layer::Disks, Layer::Pool]),
            has_remote_share: result.runs.iter().take(RUNS_MAX).any(remote),
        }
    }

    /// The near end of a wire whose disks were measured is what serves over it.
    fn near_sends_to_client(&self) -> bool {
        self.has_disks && !self.has_remote_share
    }

    fn near_is_server(&self, run: &Run, path: Path) -> bool {
        match path {
            Path::Share => is_here(run, &self.near),
            // Of a wire alone, watched from one end, nobody can say who serves.
            Path::Net => !self.has_remote_share && (self.has_disks || run.far_samples.is_none()),
            Path::Disks | Path::Local => true,
        }
    }

    fn ends(&self, run: &Run, near_is_server: bool) -> Option<Ends> {
        let (near, far) = (self.near.clone(), self.far.clone().filter(|_| run.far_samples.is_some())?);
        Some(match near_is_server {
            true => Ends { server: near, client: far },
            false => Ends { server: far, client: near },
        })
    }
}

fn way(run: &Run, sides: &Sides) -> Option<(Path, What)> {
    let path = match run.layer {
        Layer::Disk | Layer::Disks => Path::Disks,
        Layer::Pool => Path::Local,
        Layer::Net => Path::Net,
        Layer::Share => Path::Share,
        Layer::Both | Layer::Copy => return None,
    };
    let what = match run.workload.kind {
        Kind::Read | Kind::Cat | Kind::CopyTreeOut => What::Read,
        Kind::Write | Kind::CopyTreeIn => What::Write,
        // Towards the client is reading.
        Kind::Send if sides.near_sends_to_client() => What::Read,
        Kind::Receive if sides.near_sends_to_client() => What::Write,
        Kind::Receive => What::Read,
        Kind::Send => What::Write,
        Kind::RandomRead => What::RandomRead,
        Kind::RandomWrite => What::RandomWrite,
        // Several kinds of request in one figure: nothing to hold it against.
        Kind::RandomMixed
        | Kind::CreateFiles
        | Kind::ReadFiles
        | Kind::StatFiles
        | Kind::DeleteFiles
        | Kind::Copy
        | Kind::Scrub
        | Kind::SendReceive => {
            return None;
        }
    };
    Some((path, what))
}

fn measured(run: &Run, machine: &Machine, sides: &Sides, described: &mut Described) -> Option<Measured> {
    use crate::bench::result::Caches::*;
    let (path, what) = way(run, sides)?;
    let names = match path {
        Path::Net => Vec::new(),
        _ => disks_of(run, machine, described),
    };
    let shape = shape(run, what, machine);
    let near_is_server = sides.near_is_server(run, path);
    let (server, client) = match near_is_server {
        true => (Some(&run.samples), run.far_samples.as_ref()),
        false => (run.far_samples.as_ref(), Some(&run.samples)),
    };
    // Of memory the workload says so itself, and better.
    let doubt = run.notes.iter().find(|n| n.misleading && (run.workload.caches != Warm || what.writes()));
    let load = &run.workload;
    let by_url = path == Path::Share && run.access != "mount";
    // Data that was flushed, bypassed the caches or exceeded them is honest, and says so itself.
    let honest = matches!(load.caches, Bypassed | Dropped | TooSmall) || (what.writes() && load.synced);
    // Cores that were full while the load itself hardly ran were full of somebody else's work.
    let own = run.repeats.iter().map(|r| r.load_cpu_s.map(|cpu_s| cpu_s / r.seconds.max(1e-9)));
    let own = own.collect::<Option<Vec<f64>>>().and_then(|own| own.into_iter().reduce(f64::max));
    let interrupts = |s: &Samples| s.cores.iter().map(|c| mean_of([&c.irq].into_iter())).fold(0.0, f64::max);
    let rate = run.median()?;
    let elsewhere = elsewhere(run, sides);
    // Where nobody told the load's work from other programs', its own processor time has to do.
    let told_apart = |s: &Samples| s.cores.iter().any(|core| !core.others.is_empty());
    // A quick wire takes more of a core than that, unless there is not more of it.
    let slow_wire = path == Path::Net && rate <= SLOW_WIRE_BYTES_PER_S && interrupts(&run.samples) < IRQ_PERCENT;
    let alone = path == Path::Disks || slow_wire;
    let idle = alone && own.is_some_and(|cores| cores < IDLE_CORES);
    let far_idle = slow_wire && own.is_some_and(|cores| cores < FAR_IDLE_CORES);
    let watched = |s: Option<&Samples>| {
        let near = s.is_some_and(|s| std::ptr::eq(s, &run.samples));
        let foreign = if near { idle } else { far_idle };
        let known = s.filter(|s| !foreign || told_apart(s)).map(|s| (s, cores(s, run)));
        // Beside other programs a load that takes little waits for something else; one that takes more may want all.
        let wants_more = |(s, cores): &(&Samples, Vec<f64>)| {
            full_of_others(s) && cores.iter().any(|percent| (IDLE_CORES * 100.0..CORE_FULL_PERCENT).contains(percent))
        };
        known.filter(|known| !wants_more(known)).map(|(_, cores)| cores).unwrap_or_default()
    };
    let server_cores = watched(server);
    let full = |s: &Samples| cores(s, run).iter().any(|busy| *busy >= CORE_FULL_PERCENT);
    let others_work = idle && full(&run.samples)
        || far_idle && run.far_samples.as_ref().is_some_and(full)
        || std::iter::once(&run.samples).chain(&run.far_samples).any(full_of_others);
    let remote = elsewhere.is_some();
    let mean = |of: fn(&CoreSeries) -> &Vec<f64>| server.map(|s| mean_of(s.cores.iter().map(of)));
    let cat = load.kind == Kind::Cat;
    Some(Measured {
        path,
        what,
        rate,
        disks: names,
        cores_percent: server_cores,
        file_bytes: (!honest && load.data_bytes > 0).then_some(load.data_bytes),
        with: (path == Path::Share).then(|| match run.access.as_str() {
            "mount" => "the mount".to_owned(),
            access => format!("larder's {access} client"),
        }),
        how: How {
            sample: crate::bench::compare::sample(run),
            block_bytes: (load.block_bytes > 0 && path != Path::Net).then_some(load.block_bytes),
            in_flight: (load.depth > 0 && (what.is_random() || cat || path == Path::Net))
                .then(|| f64::from(load.depth) * f64::from(load.jobs.max(1)) * at_once(run)),
            latency_s: latency_s(run).filter(|_| what.is_random()),
            sync: false,
            small_files: false,
            reads_percent: None,
            // Data from a server's memory came over the wire all the same: the file's size decides what it proves.
            caches: (load.caches == Warm && !honest && !by_url).then_some(Caching::Warm),
            encryption: run.variant.get(ENCRYPTION).filter(|kind| !PLAIN.contains(&kind.as_str())).cloned(),
            doubt: doubt.map(|note| note.text.clone()),
            past_client: run.access != "mount",
            client: None,
            client_cores: watched(client),
            elsewhere,
            // By URL nothing is kept at this end.
            client_memory_bytes: sides.near_memory_bytes.filter(|_| remote && run.access == "mount"),
            server_memory_bytes: sides.far_memory_bytes.filter(|_| remote),
            slowed: slowed(run),
            ends: sides.ends(run, near_is_server),
            shape,
            iowait_percent: mean(|c| &c.iowait),
            irq_percent: server.and_then(|s| s.cores.iter().map(|c| mean_of([&c.irq].into_iter())).reduce(f64::max)),
            quota: quota(run),
            throttled_percent: None,
            steal_percent: mean(|c| &c.steal),
            retransmits_percent: retransmits(run, path),
            fragments: None,
            port: None,
            disk_busy_percent: server
                .and_then(|s| s.disks.iter().map(|d| mean_of([&d.busy].into_iter())).reduce(f64::max)),
            others_work,
        },
    })
}

/// Of the repeat whose rate is the median, or the quicker of the two beside it: figures of different moments would make
/// one that never was.
fn latency_s(run: &Run) -> Option<f64> {
    let of = |r: &Repeat| if run.workload.kind.counts_operations() { r.operations_per_s } else { r.bytes_per_s };
    let mut repeats: Vec<&Repeat> = run.repeats.iter().collect();
    repeats.sort_by(|a, b| of(a).total_cmp(&of(b)));
    let middle = [repeats.get(repeats.len().checked_sub(1)? / 2)?, repeats.get(repeats.len() / 2)?];
    let latencies = middle.into_iter().filter_map(|r| Some(r.latency?.mean_us / 1e6)).filter(|s| *s > 0.0);
    latencies.reduce(f64::min)
}

/// A repeat that fell behind its own beginning.
fn slowed(run: &Run) -> Option<String> {
    let knee = run.repeats.iter().find_map(|r| r.knee)?;
    Some(format!(
        "it wrote {} until {}, and {} from then on",
        bytes_words(knee.before_bytes_per_s),
        ByteSize(knee.bytes),
        bytes_words(knee.after_bytes_per_s)
    ))
}

/// Each of several folders has the whole depth.
fn at_once(run: &Run) -> f64 {
    match run.layer {
        Layer::Disks => run.subject.split(", ").count() as f64,
        _ => 1.0,
    }
}

/// Of a pool: what the bench made, or what its folder lies on. A larder reads small pieces from single disks and
/// gathers small writes in its journal, whatever the layout.
fn shape(run: &Run, what: What, machine: &Machine) -> Option<Shape> {
    if run.layer != Layer::Pool {
        return None;
    }
    match run.variant.get("layout") {
        Some(_) if what.is_random() => Some(Shape::STRIPE),
        Some(layout) => Shape::named(layout),
        None => below(machine, &run.subject).arrangement.as_ref().and_then(Shape::of),
    }
}

/// Whether who served was held back: the bench watched the control groups of servers.
fn quota(run: &Run) -> Option<String> {
    let used_up = run.saturated.iter().find(|s| s.what.contains("quota") && s.share >= QUOTA_TIME_SHARE)?;
    Some(format!("{} was used up in {:.0} % of the time", used_up.what, used_up.share * 100.0))
}

/// Whether both ends of a share are the machine that measured. Results from before this was looked at say it by the
/// loopback's address or the machine's own name.
fn is_here(run: &Run, near: &str) -> bool {
    let host = host_of(&run.subject);
    let named = host.is_some_and(|h| h.starts_with("127.") || h == "localhost" || h == "[::1]" || is_named(h, near));
    run.here.unwrap_or(named)
}

/// `nas.lan` is called `nas` at home; addresses have no first part.
fn is_named(host: &str, name: &str) -> bool {
    let first = |text: &str| text.split('.').next().unwrap_or_default().to_lowercase();
    let address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    !name.is_empty() && !address && first(host) == first(name)
}

/// Of `smb://me@nas:445/data`.
fn host_of(subject: &str) -> Option<&str> {
    let place = subject.split_once("://")?.1.split(['/', '?']).next()?;
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    match place.find(']') {
        Some(end) => place.get(..=end),
        None => place.split(':').next(),
    }
}

/// The machine that serves, where its disks are not those that are known here.
fn elsewhere(run: &Run, sides: &Sides) -> Option<String> {
    let remote = run.layer == Layer::Share && !is_here(run, &sides.near);
    remote.then(|| host_of(&run.subject).unwrap_or(&run.subject).to_owned())
}

fn mean_of<'a>(series: impl Iterator<Item = &'a Vec<f64>>) -> f64 {
    let known: Vec<f64> = series.flatten().copied().filter(|v| v.is_finite()).collect();
    if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 }
}

/// Whether every core was full, and other programs had a good part of them: no load gets as much as it wants there.
fn full_of_others(samples: &Samples) -> bool {
    let moments = samples.at_ms.len().min(100_000);
    let mean = |of: &dyn Fn(usize) -> f64| (0..moments).map(of).sum::<f64>() / moments.max(1) as f64;
    let taken = |core: &CoreSeries| {
        mean(&|at| core.busy(at)) >= CORE_FULL_PERCENT && mean(&|at| core.others(at)) > OTHERS_PERCENT_SMALL
    };
    moments > 0 && !samples.cores.is_empty() && samples.cores.iter().all(taken)
}

/// How busy the load kept each core, waiting left out. A thread that moves from core to core fills one at a time: then the
/// busiest stands for it.
fn cores(samples: &Samples, run: &Run) -> Vec<f64> {
    let moments = samples.at_ms.len().min(100_000);
    if moments == 0 || samples.cores.is_empty() {
        return Vec::new();
    }
    let mut means: Vec<f64> = samples
        .cores
        .iter()
        .take(1024)
        .map(|core| (0..moments).map(|at| core.busy_of_load(at)).sum::<f64>() / moments as f64)
        .collect();
    let peak = (0..moments).map(|at| samples.cores.iter().map(|c| c.busy_of_load(at)).fold(0.0, f64::max)).sum::<f64>()
        / moments as f64;
    let own = std::ptr::eq(samples, &run.samples);
    // Resources of the other end begin with its name.
    let core = |what: &str| if own { what.starts_with("core ") } else { what.contains(": core ") };
    let said = run.saturated.iter().any(|s| core(&s.what) && s.share >= FULL_TIME_SHARE);
    if let Some(busiest) = means.iter_mut().max_by(|a, b| a.total_cmp(b))
        && (peak >= CORE_FULL_PERCENT || said)
    {
        *busiest = busiest.max(CORE_FULL_PERCENT);
    }
    means
}

/// Percent of the segments of a run, from whichever end counted more.
fn retransmits(run: &Run, path: Path) -> Option<f64> {
    if !matches!(path, Path::Net | Path::Share) {
        return None;
    }
    let bytes: u64 = run.repeats.iter().map(|r| r.bytes).sum();
    let segments = bytes as f64 / 1448.0;
    let of = |s: &Samples| {
        s.nets.iter().map(|n| n.retransmits.iter().filter(|v| v.is_finite()).sum::<f64>()).fold(0.0, f64::max)
    };
    let most = of(&run.samples).max(run.far_samples.as_ref().map_or(0.0, of));
    (segments > 1000.0).then(|| (most / segments * 100.0).clamp(0.0, 100.0))
}

/// The disks that a run's subject lies on, by name. Those that are not known yet are added.
fn disks_of(run: &Run, machine: &Machine, described: &mut Described) -> Vec<(String, u32)> {
    let mut names: Vec<String> = Vec::new();
    let is_share = run.layer == Layer::Share;
    for subject in run.subject.split(", ").take(64) {
        let below = below(machine, subject);
        // Each loop device has its own file, and is measured as a disk of its own.
        let loops: Vec<String> = below.passed.into_iter().filter(|name| name.starts_with("loop")).collect();
        if !loops.is_empty() {
            names.extend(loops);
            continue;
        }
        let mut disks = below.devices;
        disks.retain(|name| BlockDevice::read(machine, name).is_some());
        match disks.is_empty() {
            // A filesystem of this machine that is measured as a share is mounted on a disk. Which disks are behind a URL nobody can say
            // from here: all of the machine that serves.
            _ if is_share => {}
            false => names.extend(disks),
            true => names.push(subject.to_owned()),
        }
    }
    names.sort();
    names.dedup();
    for name in &names {
        if !described.disks.iter().any(|d| d.name == *name) {
            described.disks.push(Disk { name: name.clone(), count: 1, ..Disk::default() });
        }
    }
    names.into_iter().map(|name| (name, 1)).collect()
}

fn below(machine: &Machine, subject: &str) -> Below {
    let path = FilePath::new(subject);
    if !path.is_absolute() {
        return Below::default();
    }
    match machine.device_name(path) {
        Some(name) => machine.below_device(&name),
        None => {
            let mounts = machine.mounts();
            let real = machine.resolve(path);
            real.and_then(|real| mounts.of(&real).cloned()).map(|m| machine.below_mount(&m)).unwrap_or_default()
        }
    }
}

/// The wire as it was measured, where no card says what it is.
fn network_measured(measured: &[Measured]) -> Option<Network> {
    // A rate that a core limited says nothing of the wire, unless it is exactly a wire's rate.
    let full = |m: &Measured| m.cores_percent.iter().chain(&m.how.client_cores).any(|busy| *busy >= CORE_FULL_PERCENT);
    let slow = |wire: &Wire| wire.practical <= SLOW_WIRE_BYTES_PER_S;
    let just =
        |m: &Measured| Wire::ethernet_of(m.rate).is_some_and(|w| slow(&w) && m.rate >= w.practical * JUST_THE_WIRE);
    let alone = measured.iter().filter(|m| m.path == Path::Net && (!full(m) || just(m)));
    let best = alone.map(|m| m.rate).reduce(f64::max)?;
    // A rate that is no Ethernet's proves nothing of the wire: it would explain itself.
    let wire = Wire::ethernet_of(best)?;
    Some(Network {
        bonded: false,
        name: wire.name.clone(),
        bytes_per_s: wire.practical.max(best),
        wire: Some(wire),
        radio: false,
        round_trip_s: None,
        window_bytes: None,
        via: Vec::new(),
    })
}
