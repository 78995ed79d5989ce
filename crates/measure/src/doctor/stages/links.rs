//! Links that several things share: how much of a byte crosses each, in which direction.

use super::{Basis, PROOF_SHARE, Stage, StageKind, amplified, count, without_wire};
use crate::doctor::describe::{Described, Disk, Link, Measured, Path};
use crate::doctor::limits::Duplex;

/// What a link is said to carry is rounded.
const SLACK: f64 = 1.10;

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
            _ => link_name(link),
        };
        let basis = if link.wire.is_some() { Basis::Derived } else { Basis::Given };
        let mut stage = Stage::new(StageKind::Link, name, capacity, basis).per(measured);
        stage.why = link.wire.as_ref().map(|w| w.why.to_owned());
        Some(stage)
    };
    described.links.iter().filter_map(crossing).collect()
}

fn link_name(link: &Link) -> String {
    format!("{}{}", link.name, super::although(link.could.as_ref()))
}

/// The link that a stage is of: of two whose names begin alike the longer one.
pub(in crate::doctor) fn link_of<'a>(described: &'a Described, stage: &Stage) -> Option<&'a Link> {
    let named =
        described.links.iter().filter(|link| stage.kind == StageKind::Link && stage.name.starts_with(&link.name));
    named.max_by_key(|link| link.name.len())
}

/// A single disk's figure that is what its link carries, where any such disk does more, was measured through that link:
/// it is the link's.
pub(super) fn name_link(described: &Described, measured: &Measured, disk: &Disk, stages: &mut [Stage]) {
    let figure = stages.iter().find(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual).map(|s| s.capacity);
    let Some(figure) = figure else { return };
    for link in described.links.iter().filter(|link| figure_of_link(disk, link, measured)) {
        if let Some(stage) = stages.iter_mut().find(|s| s.kind == StageKind::Link && s.name == link_name(link)) {
            stage.capacity = stage.capacity.min(figure);
            stage.capacity_low = stage.capacity_low.min(figure);
        }
    }
}

pub(in crate::doctor) fn figure_of_link(disk: &Disk, link: &Link, measured: &Measured) -> bool {
    let most = if measured.what.writes() { link.write } else { link.read };
    let through = disk.via.contains(&link.name) && !measured.what.is_random();
    let near = |rate: f64| rate >= most * PROOF_SHARE && rate <= most * SLACK;
    through && disk.rate(measured.what).is_some_and(near) && without_wire(disk, measured.what) > most * SLACK
}
