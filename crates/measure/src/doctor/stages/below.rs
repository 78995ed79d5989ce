//! What was measured further down is all that arrives further up.

use super::{Basis, Stage, StageKind, amplified, count, used};
use crate::doctor::describe::{Described, Measured, Path};
use crate::doctor::misleading::misleading;

/// Larger blocks are no harder to ask for in order.
const LARGE_BLOCK_BYTES: u64 = 1 << 20;

/// How the stage of disks that were measured together begins.
pub(in crate::doctor) const SIDE_BY_SIDE: &str = "the disks as measured side by side";

pub(super) fn below(described: &Described, measured: &Measured) -> Vec<Stage> {
    let best = |path: Path| {
        let candidates = described.measured.iter().filter(|m| m.path == path && m.what == measured.what);
        let candidates = candidates.filter(|m| comparable(described, m, measured));
        candidates.map(|m| (m, m.rate)).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut stages = Vec::new();
    if let (Path::Share, Some((_, rate))) = (measured.path, best(Path::Local)) {
        let name = "the storage as measured on the machine itself";
        stages.push(Stage::new(StageKind::Storage, name, rate, Basis::Measured));
    }
    // Disks side by side give the pool what is left after copies and parity; random access has rules of its own.
    let disks = best(Path::Disks).filter(|(m, _)| {
        !m.what.is_random() && m.path != measured.path && measured.path != Path::Net && count(&used(described, m)) > 1
    });
    if let Some((_, rate)) = disks {
        let rate = rate / amplified(described, measured, &used(described, measured));
        stages.push(Stage::new(StageKind::Storage, SIDE_BY_SIDE, rate, Basis::Measured));
    }
    let wire = described.measured.iter().filter(|m| m.path == Path::Net && m.what.writes() == measured.what.writes());
    let wire = wire.filter(|m| !m.what.is_random() && same_client(m, measured));
    if let (Path::Share, Some(rate)) = (measured.path, wire.map(|m| m.rate).reduce(f64::max)) {
        let name = described.network.as_ref().map_or("the wire", |n| n.name.as_str());
        stages.push(
            Stage::new(StageKind::Network, format!("{name}, as measured alone"), rate, Basis::Measured).per(measured),
        );
    }
    stages
}

fn same_client(lower: &Measured, upper: &Measured) -> bool {
    lower.how.client.is_none() || upper.how.client.is_none() || lower.how.client == upper.how.client
}

/// Whether the lower measurement says what the upper one could have had: the same disks, asked at least as hard.
pub(in crate::doctor) fn comparable(described: &Described, lower: &Measured, upper: &Measured) -> bool {
    let disks = |m: &Measured| -> Vec<(String, u32)> {
        used(described, m).into_iter().map(|(disk, n)| (disk.name.clone(), n)).collect()
    };
    lower.how.elsewhere == upper.how.elsewhere && disks(lower) == disks(upper) && asked_as_hard(described, lower, upper)
}

/// Blocks, depth and flushes of the lower one are no excuse for being slower, and it measured what it says.
pub(in crate::doctor) fn asked_as_hard(described: &Described, lower: &Measured, upper: &Measured) -> bool {
    let not_less = |low: Option<f64>, up: Option<f64>| match (low, up) {
        (Some(low), Some(up)) => low >= up,
        // One request at a time says little of many.
        (Some(low), None) => low > 1.0,
        _ => true,
    };
    let blocks = match (lower.how.block_bytes, upper.how.block_bytes) {
        (Some(low), Some(up)) if upper.what.is_random() => low == up,
        // What is larger is cut into pieces on its way.
        (Some(low), Some(up)) => low >= up.min(LARGE_BLOCK_BYTES),
        _ => true,
    };
    misleading(described, lower).is_none()
        && not_less(lower.how.in_flight, upper.how.in_flight)
        && blocks
        && (upper.how.sync || !lower.how.sync)
}
