//! Links that several things share: how much of a byte crosses each, in which direction.

use super::{Basis, Stage, StageKind, amplified, count};
use crate::doctor::describe::{Described, Disk, Link, Measured, Path};
use crate::doctor::limits::Duplex;

/// The part of the disks behind it, with copies and parity, and the network card behind the same link (B4): in the same
/// lane for a half-duplex link, in the opposite one for a full-duplex link, because what comes from disks goes to
/// the card.
pub(super) fn links(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Vec<Stage> {
    let n = f64::from(count(used)).max(1.0);
    let amplified = amplified(described, measured, used);
    let network = described.network.as_ref().filter(|_| matches!(measured.path, Path::Share | Path::Net));
    let crossing = |link: &Link| {
        let behind = used.iter().filter(|(disk, _)| measured.path != Path::Net && disk.via.contains(&link.name));
        let disks = behind.map(|(_, count)| f64::from(*count)).sum::<f64>() / n * amplified;
        let card = if network.is_some_and(|n| n.via.contains(&link.name)) { 1.0 } else { 0.0 };
        if disks + card == 0.0 {
            return None;
        }
        let (from_disks, to_card) = match measured.what.writes() {
            false => (link.read, link.write),
            true => (link.write, link.read),
        };
        let capacity = match link.duplex {
            Duplex::Half => 1.0 / (disks / from_disks + card / to_card),
            Duplex::Full if disks == 0.0 => to_card / card,
            Duplex::Full if card == 0.0 => from_disks / disks,
            Duplex::Full => (from_disks / disks).min(to_card / card),
        };
        let name = match (disks > 0.0, card > 0.0, link.duplex) {
            (true, true, Duplex::Half) => format!("{}, which disks and network share", link.name),
            _ => link.name.clone(),
        };
        let basis = if link.wire.is_some() { Basis::Derived } else { Basis::Given };
        let mut stage = Stage::new(StageKind::Link, name, capacity, basis).per(measured);
        stage.why = link.wire.as_ref().map(|w| w.why.to_owned());
        Some(stage)
    };
    described.links.iter().filter_map(crossing).collect()
}
