//! Contradictions: what a description says that cannot all be true is asked about, not averaged (B6).
//!
//! Nothing here is about taste: each rule is a bound that physics or a standard sets, and the question names both
//! figures and what they may have been meant to be.

use larder_base::units::ByteSize;
use serde::Serialize;

use super::describe::{Described, Disk, Measured, Path, RANDOM_BLOCK_BYTES, What, is_bond};
use super::diagnose::CORE_FULL_PERCENT;
use super::limits::{DiskKind, Physical, Wire};
use super::misleading::misleading;
use super::stages::{Basis, SIDE_BY_SIDE, StageKind, WINDOW, allows_at_most, comparable, stages, used};
use super::words::{bytes_words, path_words, rate_words};

/// Figures are rounded, and practical limits are practical.
const SLACK: f64 = 1.10;
/// A wire's rate is exact, a clock's error aside.
const SLACK_WIRE: f64 = 1.05;
/// Caches smooth small differences between two layers.
const SLACK_LAYERS: f64 = 1.15;
/// Of disks that were measured one by one a pool gets a little more: it reads ahead, and their outer tracks.
const SLACK_MEASURED: f64 = 1.25;
/// And where nobody chose the figures that belong together.
const SLACK_BENCH: f64 = 1.6;

mod evidence;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    /// Stable, for programs.
    pub code: &'static str,
    /// Ends with a question mark, or with what to write instead.
    pub text: String,
    /// The measurement that it concerns, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<usize>,
}

type Rule = fn(&Described) -> Vec<Question>;

const RULES: &[Rule] = &[
    disk_rates,
    random_beyond_in_order,
    disk_connections,
    caches,
    wires_named,
    networks_by_eight,
    beyond,
    physical,
    one_after_the_other,
    layers,
    in_flight,
    evidence::queue_not_kept,
    busy_and_waiting,
    evidence::answers_too_soon,
    evidence::plugs,
    evidence::clients_here,
    evidence::segments_here,
    evidence::disks_beside_wire,
    evidence::blocks_beyond_files,
    evidence::sent_again,
    evidence::idle_disks,
];

pub(super) fn questions(described: &Described) -> Vec<Question> {
    let mut all: Vec<Question> = RULES.iter().flat_map(|rule| rule(described)).collect();
    // One doubt about a measurement is enough: the first is the most precise.
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|q| q.measured.is_none_or(|at| seen.insert(at)));
    all
}

fn ask(code: &'static str, text: String) -> Question {
    Question { code, text, measured: None }
}

fn figures(disk: &Disk) -> Vec<(&'static str, f64, bool)> {
    let all = [
        ("read", disk.read, false),
        ("write", disk.write, false),
        ("write_cached", disk.write_cached, false),
        ("random_read", disk.random_read, true),
        ("random_write", disk.random_write, true),
    ];
    all.into_iter().filter_map(|(field, rate, random)| Some((field, rate?, random))).collect()
}

/// No disk of its kind is so fast.
fn disk_rates(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for disk in &described.disks {
        let physical = Physical::of(disk.kind);
        for (field, rate, random) in figures(disk) {
            let most = if random { physical.most_random_per_s } else { physical.most_bytes_per_s };
            if rate <= most * SLACK_WIRE {
                continue;
            }
            let (said, most) = match random {
                true => (format!("{rate:.0} operations/s"), format!("{most:.0} operations/s")),
                false => (bytes_words(rate), bytes_words(most)),
            };
            let hint = match random {
                true if disk.kind.is_some_and(|k| k.turns()) => "Was it measured in a cache, or is it an SSD?",
                true => "Was it measured in a cache?",
                false if rate / 8.0 <= physical.most_bytes_per_s => {
                    "Are those bits? Or is it the sum of several disks?"
                }
                false => "Is a unit wrong, or is it the sum of several disks?",
            };
            asked.push(ask(
                "disk-too-fast",
                format!(
                    "{field} of the disk '{}' is {said}, and no {} exceeds {most} ({}). {hint}",
                    disk.name, physical.name, physical.why
                ),
            ));
        }
    }
    asked
}

/// Small pieces in any order are no more bytes than the same in order.
fn random_beyond_in_order(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for disk in &described.disks {
        let (Some(read), Some(random)) = (disk.read, disk.random_read) else { continue };
        let bytes = random * RANDOM_BLOCK_BYTES as f64;
        if bytes > read * SLACK_MEASURED {
            let text = format!(
                "random_read of the disk '{}' is {random:.0} operations/s, which is {} in pieces of 4 KiB, and read is only {}: which of the two is of another disk, or of a cache?",
                disk.name,
                bytes_words(bytes),
                bytes_words(read)
            );
            asked.push(ask("random-beyond-read", text));
        }
    }
    asked
}

/// A disk does not exceed its own wire.
fn disk_connections(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for disk in &described.disks {
        let Some(wire) = &disk.connection else { continue };
        // A data sheet may promise what the slot does not give; beyond that the disk was not measured there. A disk of
        // SATA has no other wire that could have given more.
        let measured = figures(disk).into_iter().filter(|(.., random)| !random);
        let beyond = measured.filter(|(_, rate, _)| *rate > wire.line * SLACK_WIRE).max_by(|a, b| a.1.total_cmp(&b.1));
        let measured_there = |m: &&Measured| m.disks == [(disk.name.clone(), 1)] && !m.what.is_random();
        let proof = described.measured.iter().filter(measured_there).find(|m| m.rate > wire.line * SLACK_WIRE);
        let only = wire.name == "SATA 6 Gbit/s";
        if let Some((field, rate, _)) = beyond.filter(|_| proof.is_some() || only) {
            asked.push(ask(
                "disk-beyond-connection",
                format!(
                    "the disk '{}' is connected by {}, which carries at most {}, and {field} is {}: which of the two is right?",
                    disk.name,
                    wire.name,
                    bytes_words(wire.line),
                    bytes_words(rate)
                ),
            ));
        }
    }
    asked
}

fn caches(described: &Described) -> Vec<Question> {
    let slower =
        |disk: &&Disk| matches!((disk.write_cached, disk.write), (Some(cached), Some(after)) if cached < after);
    let text = |disk: &Disk| {
        format!(
            "the disk '{}' writes {} into its cache and {} after it: are write_cached and write exchanged?",
            disk.name,
            bytes_words(disk.write_cached.unwrap_or_default()),
            bytes_words(disk.write.unwrap_or_default())
        )
    };
    described.disks.iter().filter(slower).map(|disk| ask("cache-slower", text(disk))).collect()
}

/// A link or network that is called by a wire's name, or has its type, cannot carry more than such a wire.
fn wires_named(described: &Described) -> Vec<Question> {
    let links = described.links.iter().map(|l| (&l.name, l.read.max(l.write), l.wire.clone(), "link"));
    let networks = described.network.iter().chain(&described.upgrades);
    let networks = networks.map(|n| (&n.name, n.bytes_per_s, n.wire.clone(), "network"));
    let cards = described.clients.iter().filter_map(|c| {
        let (name, bytes) = c.network.as_ref()?;
        Some((name, *bytes, c.wire.clone(), "client's card"))
    });
    let beyond = links.chain(networks).chain(cards).filter_map(|(name, limit, wire, kind)| {
        let wire = wire.or_else(|| Wire::named(name).filter(|_| !is_bond(name)))?;
        (limit > wire.line * SLACK_WIRE).then(|| {
            let bits = limit / 8.0 <= wire.line * SLACK_WIRE && limit / 8.0 >= wire.practical * 0.5;
            let hint = match bits {
                true => format!("Do you mean {:.0} Mbit/s?", limit / 1e6),
                false => "Which of the two is right?".to_owned(),
            };
            let text = format!(
                "the {kind} '{name}' is given {}, and {} carries at most {} ({}). {hint}",
                bytes_words(limit),
                wire.name,
                bytes_words(wire.line),
                wire.why
            );
            ask("beyond-wire", text)
        })
    });
    beyond.collect()
}

/// An Ethernet at an eighth of its rate is one written in the wrong unit, when shares were faster.
fn networks_by_eight(described: &Described) -> Vec<Question> {
    let Some(network) = &described.network else { return Vec::new() };
    let Some(wire) = network.wire.as_ref().filter(|w| w.name.contains("Ethernet")) else { return Vec::new() };
    let times_eight = network.bytes_per_s * 8.0;
    let near = times_eight > wire.practical * 0.85 && times_eight <= wire.line * SLACK_WIRE;
    // 100 Mbit/s of a gigabit card is what a bad cable gives, and no mistake of units.
    let lower_rung = wire.rungs_below().iter().any(|w| (network.bytes_per_s / w.practical - 1.0).abs() < 0.08);
    let over = described.measured.iter().any(|m| m.path == Path::Share && m.rate > network.bytes_per_s * SLACK_WIRE);
    if !near || (lower_rung && !over) {
        return Vec::new();
    }
    let text = format!(
        "the network '{}' is given {:.0} Mbit/s, an eighth of what {} carries: do you mean {:.0} MB/s?",
        network.name,
        network.bytes_per_s * 8.0 / 1e6,
        wire.name,
        times_eight / 1e6
    );
    vec![ask("bits-or-bytes", text)]
}

/// A measurement above what a stage on its way allows.
fn beyond(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for (at, measured) in described.measured.iter().enumerate() {
        if misleading(described, measured).is_some() {
            continue;
        }
        let slack_measured = if described.of_bench { SLACK_BENCH } else { SLACK_MEASURED };
        let gathers = measured.what.writes() && (measured.what.is_random() || !measured.how.sync);
        let waits = measured.what.writes() && measured.how.sync;
        let exceeded = stages(described, measured).into_iter().find(|stage| {
            let slack = match (stage.kind, stage.basis) {
                // No wait for a flush is shorter than a flush, and no window is left before its round trip is over.
                (StageKind::Latency, _) if waits || stage.name.starts_with(WINDOW) => 1.3,
                // Writes are gathered by caches and filesystems: random ones become sequential ones.
                (StageKind::Disks | StageKind::Latency, _) if gathers && measured.what.is_random() => return false,
                (StageKind::Disks, Basis::Usual) => return false,
                (StageKind::Disks, Basis::Measured) => slack_measured,
                (StageKind::Storage, Basis::Measured) if stage.name.starts_with(SIDE_BY_SIDE) => slack_measured,
                // What was measured below is held against this in `layers`.
                (_, Basis::Measured) => return false,
                (StageKind::Network | StageKind::Client, _) => SLACK_WIRE,
                // Read-ahead and write-behind add requests that nobody counted.
                (StageKind::Latency, _) if !measured.what.is_random() => return false,
                (StageKind::Latency, _) => 1.3,
                _ => SLACK,
            };
            measured.rate > stage.capacity * slack
        });
        let Some(stage) = exceeded else { continue };
        let (rate, most) = (rate_words(measured.rate, measured.what), rate_words(stage.capacity, measured.what));
        let bytes = stage.kind == StageKind::Network && !measured.what.is_random();
        let eighth = bytes && measured.rate / 8.0 <= stage.capacity * SLACK_WIRE;
        let hint = match stage.kind {
            StageKind::Network if eighth => format!(
                "Do you mean {:.0} Mbit/s, is the network faster, or did the client's memory answer?",
                measured.rate / 1e6
            ),
            StageKind::Network if measured.what.is_random() => {
                "Is the network faster, are blocks smaller (block =), or did the client's memory answer?".to_owned()
            }
            StageKind::Network => "Is the network faster, or did the client's memory answer?".to_owned(),
            StageKind::Disks if stage.name.contains("RAIDZ") => {
                "How large are its records (record =), or did memory answer?".to_owned()
            }
            StageKind::Disks => "Did memory answer, is the data compressible, or are the disks faster?".to_owned(),
            StageKind::Link => "Is its limit higher, is what was measured behind it, or did memory answer?".to_owned(),
            StageKind::Latency if stage.name.starts_with(WINDOW) => {
                "Were there several connections (jobs =), does the window grow by itself (then leave it out), or is the round trip shorter?".to_owned()
            }
            StageKind::Latency if waits => {
                "Were more requests in flight, is a flush faster, did a cache answer it, or is the log on another disk (then leave flush = out)?".to_owned()
            }
            StageKind::Latency => "Were more requests in flight, is each faster, or did a cache answer?".to_owned(),
            StageKind::Processor => "Is its rate per core higher, or does it run on more cores?".to_owned(),
            StageKind::Storage => {
                "Did memory answer, or were they measured differently (block, depth, file)?".to_owned()
            }
            StageKind::Client => "Which of the two is right?".to_owned(),
        };
        let allow = if stage.name.starts_with("the disks") { "allow" } else { "allows" };
        let text = format!("{} gave {rate}, and {} {allow} {most}. {hint}", path_words(measured), stage.name);
        asked.push(Question { code: "beyond-stage", text, measured: Some(at) });
    }
    asked
}

/// Where no rates are given: more than any disks of their kind do.
fn physical(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for (at, m) in described.measured.iter().enumerate().filter(|(_, m)| m.path != Path::Net) {
        let disks = used(described, m);
        let most = allows_at_most(&disks, m.what) * described.compression_ratio;
        let gathers = m.what.is_random() && m.what.writes();
        // A client that measures a share knows nothing of its disks.
        if disks.is_empty() || misleading(described, m).is_some() || gathers {
            continue;
        }
        let bytes = most_bytes(&disks) * described.compression_ratio;
        if m.what.is_random() && m.bytes_per_s() > bytes * SLACK {
            let text = format!(
                "{} gave {} of {} each, which is {}, and no disks of this kind and number give more than {}. Is the block right (block =), or did a cache answer?",
                path_words(m),
                rate_words(m.rate, m.what),
                ByteSize(m.block_bytes().unwrap_or_default()),
                bytes_words(m.bytes_per_s()),
                bytes_words(bytes)
            );
            asked.push(Question { code: "beyond-disks", text, measured: Some(at) });
            continue;
        }
        if m.rate <= most * SLACK {
            continue;
        }
        let text = format!(
            "{} gave {}, and no disks of this kind and number give more than {}. Did a cache answer, or is a disk's kind wrong?",
            path_words(m),
            rate_words(m.rate, m.what),
            rate_words(most, m.what)
        );
        asked.push(Question { code: "beyond-disks", text, measured: Some(at) });
    }
    asked
}

fn most_bytes(disks: &[(&Disk, u32)]) -> f64 {
    allows_at_most(disks, What::Read)
}

/// The least time of one request that no cache answers, where each waits for the one before it.
fn one_after_the_other(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for (at, m) in described.measured.iter().enumerate().filter(|(_, m)| m.path != Path::Net) {
        let disks = used(described, m);
        let least = |disk: &Disk| disk.kind.map(|kind| kind.physical().least_latency_s);
        let Some(Some(least)) = disks.iter().map(|(disk, _)| least(disk)).reduce(|a, b| Some(a?.min(b?))) else {
            continue;
        };
        // A disk with capacitors answers a flush before anything reached its medium. A hard disk has none.
        let turn = disks.iter().all(|(disk, _)| disk.kind.is_some_and(DiskKind::turns));
        let flushed = turn && m.how.sync && m.what.writes();
        let per_s = match m.what {
            What::RandomRead => Some(m.rate),
            What::RandomWrite => Some(m.rate).filter(|_| flushed),
            What::Write => m.how.block_bytes.map(|block| m.rate / block as f64).filter(|_| flushed),
            What::Read => None,
        };
        let (Some(depth), Some(per_s)) = (m.how.in_flight, per_s) else { continue };
        let most = depth / least;
        if per_s <= most * SLACK || misleading(described, m).is_some() {
            continue;
        }
        let hint = match flushed {
            true => {
                "Did a cache answer the flush (a controller's, or a disk's that lies), is the log on another disk, or were more in flight?"
            }
            false => "Did a cache answer, or were more in flight?",
        };
        let text = format!(
            "{} gave {} with {depth:.0} in flight, and such disks take at least {:.2} ms for each, which makes {}. {hint}",
            path_words(m),
            rate_words(m.rate, m.what),
            least * 1e3,
            rate_words(most, What::RandomRead)
        );
        asked.push(Question { code: "too-quick", text, measured: Some(at) });
    }
    asked
}

/// Nothing is faster through more layers.
fn layers(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for (at, upper) in described.measured.iter().enumerate().filter(|(_, m)| m.path == Path::Share) {
        if misleading(described, upper).is_some() || (upper.what.is_random() && upper.what.writes()) {
            continue;
        }
        let below = |path: Path, m: &&Measured| {
            m.path == path
                && match path {
                    Path::Net => m.what.writes() == upper.what.writes() && m.how.client == upper.how.client,
                    _ => m.what == upper.what && comparable(described, m, upper),
                }
        };
        for path in [Path::Local, Path::Net] {
            // The best of several: a slow one among them may have been tuned since.
            let lower = described.measured.iter().filter(|m| below(path, m)).max_by(|a, b| a.rate.total_cmp(&b.rate));
            // A core that was full in one connection says nothing of several.
            let busy =
                |m: &Measured| m.cores_percent.iter().chain(&m.how.client_cores).any(|busy| *busy >= CORE_FULL_PERCENT);
            let slack = match path {
                Path::Net if lower.is_some_and(busy) => continue,
                // Of moments, as all of a bench.
                Path::Local if described.of_bench => SLACK_BENCH,
                _ => SLACK_LAYERS,
            };
            let Some(lower) =
                lower.filter(|m| !(path == Path::Net && upper.what.is_random()) && upper.rate > m.rate * slack)
            else {
                continue;
            };
            let text = format!(
                "{} gave {}, and {} only {}, although the one passes the other. Did memory answer, or were they measured differently (block, depth, file)?",
                path_words(upper),
                rate_words(upper.rate, upper.what),
                path_words(lower),
                rate_words(lower.rate, lower.what),
            );
            asked.push(Question { code: "layers-reversed", text, measured: Some(at) });
        }
    }
    asked
}

/// Little's law over one measurement's own figures.
fn in_flight(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for (at, m) in described.measured.iter().enumerate() {
        let (Some(depth), Some(latency)) = (m.how.in_flight, m.how.latency_s) else { continue };
        if m.how.doubt.is_some() {
            continue;
        }
        let per_s = match (m.what.is_random(), m.how.block_bytes) {
            (true, _) => m.rate,
            (false, Some(block)) => m.rate / block as f64,
            (false, None) => continue,
        };
        let needed = per_s * latency;
        if needed > depth * 1.3 {
            let text = format!(
                "{}: {per_s:.0} requests a second of {:.2} ms each are {needed:.0} in flight (Little's law), and there were {depth:.0}. Which figure is of something else?",
                path_words(m),
                latency * 1e3
            );
            asked.push(Question { code: "in-flight", text, measured: Some(at) });
        }
    }
    asked
}

/// A core that waits for disks does nothing else meanwhile.
fn busy_and_waiting(described: &Described) -> Vec<Question> {
    let mut asked = Vec::new();
    for (at, m) in described.measured.iter().enumerate() {
        let Some(wait) = m.how.iowait_percent.filter(|_| !m.cores_percent.is_empty()) else { continue };
        let mut cores = m.cores_percent.clone();
        cores.sort_by(f64::total_cmp);
        // The busiest may stand for a thread that moves from core to core.
        let others = cores.len().saturating_sub(1).max(1);
        let busy = cores.iter().take(others).sum::<f64>() / others as f64;
        if busy + wait > 115.0 {
            let text = format!(
                "{}: cores were busy {busy:.0} % of the time and waited for disks {wait:.0} %, which is more than all of it. Is waiting counted as busy in cores =?",
                path_words(m)
            );
            asked.push(Question { code: "busy-and-waiting", text, measured: Some(at) });
        }
    }
    asked
}
