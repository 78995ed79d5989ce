//! A faster wire.

use super::{Candidate, GAIN_MIN, Means, candidate, candidates, forget};
use crate::doctor::describe::{Described, Measured, Network, Path};
use crate::doctor::diagnose::{Cause, Finding};
use crate::doctor::limits::Wire;
use crate::doctor::stages::StageKind;

pub(super) fn with_network(described: &Described, measured: &Measured, network: Network) -> Candidate {
    let mut after = forget(described, &[Path::Net]);
    let what = network.name.clone();
    let how = format!("buy {what} and what it needs at the other end: switch port, cable, client's card");
    // Whoever buys a faster network gives it to the client too.
    after.clients.iter_mut().for_each(|c| c.network = None);
    after.network = Some(network);
    candidate(what, Means::Purchase, how, after, measured)
}

pub(super) fn wire_below(described: &Described, measured: &Measured, findings: &[Finding]) -> Vec<Candidate> {
    let below =
        findings.iter().rfind(|f| f.measured.path == Path::Net && f.measured.what.writes() == measured.what.writes());
    match below {
        // What slows the wire alone is not the wire: what helps there helps here.
        Some(below) if !matches!(&below.cause, Cause::Stage(stage) if stage.kind == StageKind::Network) => {
            let all = candidates(described, below, findings).into_iter();
            let all: Vec<Candidate> = all
                .map(|c| Candidate { measured: measured.clone(), after: forget(&c.after, &[Path::Net]), ..c })
                .collect();
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

/// Only where no upgrade was thought of.
pub(super) fn faster_networks(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let Some(network) = described.network.as_ref().filter(|_| described.upgrades.is_empty()) else { return Vec::new() };
    let wire = network.wire.clone().or_else(|| Wire::ethernet_of(network.bytes_per_s));
    let rungs = wire.map(|w| w.rungs_above()).unwrap_or_default();
    let faster = rungs.into_iter().filter(|w| w.practical > network.bytes_per_s * GAIN_MIN);
    faster
        .map(|wire| {
            let name = wire.name.clone();
            with_network(
                described,
                measured,
                Network { name, bytes_per_s: wire.practical, wire: Some(wire), ..network.clone() },
            )
        })
        .collect()
}
