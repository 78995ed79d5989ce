//! Contradictions of a description in itself: figures of one thing that physics or a standard does not allow together.
//!
//! Nothing here is about taste. Each question names both figures and what they may have been meant to be. What a
//! measurement contradicts is found by the reasoning.

use serde::Serialize;

use super::sentences::time_words;
use super::words::bytes_words;
use crate::describe::limits::{DiskKind, Physical, Wire};
use crate::describe::{Described, Disk, Measured, Path, RANDOM_BLOCK_BYTES, is_bond};

/// A wire's rate is exact, a clock's error aside.
const SLACK_WIRE: f64 = 1.05;
/// Two figures of one disk are of different tracks, and rounded.
const SLACK_FIGURES: f64 = 1.25;
/// Times are rounded.
const SLACK_TIMES: f64 = 0.9;

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
    answers_too_soon,
    plugs,
];

pub(super) fn questions(described: &Described) -> Vec<Question> {
    RULES.iter().flat_map(|rule| rule(described)).collect()
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
        if bytes > read * SLACK_FIGURES {
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

/// No disk of its kind answers so soon.
fn answers_too_soon(described: &Described) -> Vec<Question> {
    let soon = described.disks.iter().filter_map(|disk| {
        let (latency, physical) = (disk.latency_s?, disk.kind?.physical());
        let least = physical.least_latency_s;
        let text = format!(
            "latency of the disk '{}' is {}, and no {} answers in less than {}. Is the unit right, or did a cache answer?",
            disk.name,
            time_words(latency),
            physical.name,
            time_words(least)
        );
        (latency < least * SLACK_TIMES).then(|| ask("answers-too-soon", text))
    });
    soon.collect()
}

/// An NVMe disk has no SATA plug.
fn plugs(described: &Described) -> Vec<Question> {
    let nvme = described.disks.iter().filter(|disk| disk.kind == Some(DiskKind::Nvme));
    let on_sata = nvme.filter_map(|disk| {
        let wire = disk.connection.as_ref().filter(|w| w.name.starts_with("SATA") || w.name.starts_with("SAS"))?;
        let text = format!(
            "the disk '{}' is an NVMe SSD and connected by {}, and there are none with that plug: is it an M.2 SATA SSD (kind = \"sata-ssd\"), or connected by PCIe?",
            disk.name, wire.name
        );
        Some(ask("wrong-plug", text))
    });
    on_sata.collect()
}
