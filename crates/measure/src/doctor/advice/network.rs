//! A faster wire.

use super::{Candidate, GAIN_MIN, Means, candidate, candidates, forget};
use crate::doctor::describe::{Described, Measured, Network, Path, Side};
use crate::doctor::diagnose::{Cause, Finding, SLOW_WIRE_BYTES_PER_S};
use crate::doctor::limits::Wire;
use crate::doctor::stages::{PROOF_SHARE, StageKind, slower_rung};

pub(super) fn with_network(described: &Described, measured: &Measured, network: Network) -> Candidate {
    let mut after = forget(described, &[Path::Net]);
    let what = network.name.clone();
    let how = format!("buy {what} and what it needs at the other end: switch port, cable, client's card");
    // Whoever buys a faster network gives it to the client too.
    after.clients.iter_mut().for_each(|c| c.network = None);
    // And to the switch.
    let ethernet = |name: &String| {
        described.links.iter().any(|l| l.name == *name && l.wire.as_ref().is_some_and(Wire::is_ethernet))
    };
    after.network =
        Some(Network { via: network.via.iter().filter(|name| !ethernet(name)).cloned().collect(), ..network });
    candidate(what, Means::Purchase, how, after, measured)
}

pub(super) fn wire_below(described: &Described, measured: &Measured, findings: &[Finding]) -> Vec<Candidate> {
    let below =
        findings.iter().rfind(|f| f.measured.path == Path::Net && f.measured.what.writes() == measured.what.writes());
    match below {
        // What slows the wire alone is not the wire: what helps there helps here.
        Some(below) if !matches!(&below.cause, Cause::Stage(stage) if stage.kind == StageKind::Network) => {
            let all = candidates(described, below, findings).into_iter();
            let all: Vec<Candidate> = all.map(|c| over_it(measured, &below.measured, c)).collect();
            if !all.is_empty() {
                return all;
            }
            let after = forget(described, &[Path::Net]);
            let how = "another cable and port; then: iperf3 -c HOST, iperf3 -c HOST -R, ethtool IFACE";
            vec![candidate("a wire as fast as it is described", Means::Change, how, after, measured)]
        }
        _ => faster_networks(described, measured),
    }
}

/// What helps the wire alone, for what passes it. A share opens one connection, unless it is told to open more: those have
/// a window each.
fn over_it(measured: &Measured, below: &Measured, found: Candidate) -> Candidate {
    let connections = |m: &Measured| m.how.in_flight.unwrap_or(1.0);
    let times = connections(&found.measured) / connections(below);
    let mut after = forget(&found.after, &[Path::Net]);
    let how = match after.network.as_mut().filter(|_| times > 1.0) {
        Some(network) => {
            network.window_bytes = network.window_bytes.map(|window| (window as f64 * times) as u64);
            SEVERAL_OVER_A_SHARE.to_owned()
        }
        None => found.how,
    };
    Candidate { measured: measured.clone(), after, how, ..found }
}

const SEVERAL_OVER_A_SHARE: &str = "several files at once: rclone copy --transfers=8, robocopy /MT:8; mount -o nconnect=8 ... (NFS), multichannel (SMB)";

/// Round trips so long leave the house.
const FAR_S: f64 = 0.004;

/// A wire that gives less than its name says is held by something else: a faster one would be held alike.
fn all_of_its_rate(described: &Described, measured: &Measured, network: &Network, wire: &Wire) -> Candidate {
    let mut after = forget(described, &[Path::Net]);
    after.network = Some(Network { bytes_per_s: wire.practical, ..network.clone() });
    let (what, how) = match slower_rung(network) {
        Some(_) => ("the full speed of what is there".to_owned(), FULL_SPEED),
        None if wire.is_air() => (format!("{} nearer to its station", network.name), AIR),
        None => (
            format!("all that {} carries", wire.name),
            "see what holds the card: on USB 2.0 it gives 33 to 42 MB/s, in a slot of one lane 200 to 880 (lsusb -t, lspci -vv, ethtool IFACE); then another port, slot or board",
        ),
    };
    candidate(what, Means::Change, how, after, measured)
}

pub(super) const FULL_SPEED: &str =
    "another cable and port; then: ethtool IFACE, lsusb -t, dmesg | grep -iE 'speed|link up'";
const AIR: &str = "a station nearer to it, or another channel; iw dev IFACE link shows the rate";

/// Only where no upgrade was thought of.
pub(super) fn faster_networks(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let Some(network) = described.network.as_ref().filter(|_| described.upgrades.is_empty()) else { return Vec::new() };
    if let Some(wire) = network.wire.as_ref().filter(|wire| network.bytes_per_s < wire.practical * PROOF_SHARE) {
        return vec![all_of_its_rate(described, measured, network, wire)];
    }
    // The line out of the house is not one's own.
    if network.round_trip_s.is_some_and(|s| s >= FAR_S) {
        return Vec::new();
    }
    let wire = network.wire.clone().or_else(|| Wire::ethernet_of(network.bytes_per_s));
    let rungs = wire.map(|w| w.rungs_above()).unwrap_or_default();
    let faster = rungs.into_iter().filter(|w| w.practical > network.bytes_per_s * GAIN_MIN);
    faster
        .map(|wire| {
            let name = wire.name.clone();
            let one = with_network(
                described,
                measured,
                Network { name, bytes_per_s: wire.practical, wire: Some(wire), ..network.clone() },
            );
            // Cores that are full beside a wire so slow have other work.
            let slow = network.bytes_per_s <= SLOW_WIRE_BYTES_PER_S;
            Candidate { relieves: if slow { &[Side::Server, Side::Client] } else { &[] }, ..one }
        })
        .collect()
}
