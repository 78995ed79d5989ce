//! Another way between disks, network card and processor.

use super::{Candidate, Means, STORAGE, candidate};
use crate::doctor::describe::{Described, Disk, Measured, Path};
use crate::doctor::stages::{Stage, figure_of_link, figure_of_wire, used, without_wire};

/// The box without what was measured through such disks, or such a network.
fn forget_through(described: &Described, disk: impl Fn(&Disk) -> bool, network: bool) -> Described {
    let passes = |m: &Measured| match m.path {
        Path::Net => network,
        path => STORAGE.contains(&path) && used(described, m).iter().any(|(d, _)| disk(d)),
    };
    let mut after = described.clone();
    after.measured.retain(|m| !passes(m));
    after
}

pub(super) fn links(described: &Described, measured: &Measured, stage: &Stage) -> Vec<Candidate> {
    let bare = stage.name.trim_end_matches(", which disks and network share").to_owned();
    let Some(link) = described.links.iter().find(|l| l.name == bare) else { return connections(described, measured) };
    let mut all = Vec::new();
    if bare != stage.name {
        let mut after = described.clone();
        after.network.iter_mut().for_each(|n| n.via.retain(|via| *via != bare));
        all.push(candidate(
            format!("the network card on a link of its own instead of {bare}"),
            Means::Change,
            "plug card or disks into another slot or port",
            after,
            measured,
        ));
    }
    let network = described.network.as_ref().is_some_and(|n| n.via.contains(&bare));
    let mut after = forget_through(described, |disk| disk.via.contains(&bare), network);
    after.links.retain(|l| l.name != bare);
    for disk in after.disks.iter_mut().filter(|disk| figure_of_link(disk, link, measured)) {
        own_rate(disk, measured);
    }
    let how = match &link.wire {
        Some(wire) if wire.name.starts_with("USB 2") => "a USB 3 port and cable, or SATA",
        Some(wire) if wire.name.starts_with("PCIe") => "a slot with more lanes or of a newer generation",
        Some(wire) if wire.name.contains("Ethernet") => "a faster switch or cable in its place",
        _ => "divide what hangs on it over several, or buy a wider one",
    };
    all.push(candidate(format!("without the limit of {bare}"), Means::Purchase, how, after, measured));
    all
}

pub(super) fn connections(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let wired = described.disks.iter().filter_map(|d| Some((d, d.connection.as_ref()?)));
    let Some((slow, wire)) = wired.min_by(|a, b| a.1.practical.total_cmp(&b.1.practical)) else { return Vec::new() };
    let name = slow.name.clone();
    let mut after = forget_through(described, |disk| disk.name == name, false);
    for disk in after.disks.iter_mut().filter(|d| d.name == name) {
        if figure_of_wire(described, slow, measured) {
            own_rate(disk, measured);
        }
        disk.connection = None;
    }
    let how = match wire.name.as_str() {
        name if name.ends_with("with BOT") => "a bridge (enclosure) that speaks UAS, in a USB 3 port, or SATA",
        name if name.starts_with("USB") => "a USB 3 port and cable, or SATA",
        name if name.starts_with("PCIe") => {
            "a slot with more lanes or of a newer generation; larder doctor shows which slots negotiate what"
        }
        _ => "a newer port, controller or cable",
    };
    vec![candidate(format!("'{name}' on a faster connection than {}", wire.name), Means::Change, how, after, measured)]
}

/// A figure of the old wire says nothing of the disk on a new one.
fn own_rate(disk: &mut Disk, measured: &Measured) {
    let rate = Some(without_wire(disk, measured.what));
    match measured.what.writes() {
        true => disk.write = rate,
        false => disk.read = rate,
    }
}
