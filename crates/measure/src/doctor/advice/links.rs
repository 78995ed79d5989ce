//! Another way between disks, network card and processor.

use super::disks::other_kind;
use super::network::faster_networks;
use super::{Candidate, GAIN_MIN, Means, STORAGE, candidate};
use crate::doctor::describe::{Described, Disk, Link, Measured, Path};
use crate::doctor::limits::Wire;
use crate::doctor::stages::{Stage, figure_of_link, figure_of_wire, link_of, used, without_wire};

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
    let Some(link) = link_of(described, stage) else { return connections(described, measured) };
    let bare = link.name.clone();
    let mut all = Vec::new();
    if stage.name.ends_with("which disks and network share") {
        let mut after = described.clone();
        after.network.iter_mut().for_each(|n| n.via.retain(|via| *via != bare));
        all.push(candidate(
            format!("the network card on a link of its own instead of {bare}"),
            Means::Change,
            "plug card or disks into another slot or port; where both are fixed to it, another board",
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
        Some(wire) if wire.is_pcie() => {
            "a slot with more lanes or of a newer generation; where there is none, another board"
        }
        Some(wire) if wire.name.contains("Ethernet") => "a faster switch or cable in its place",
        _ => "divide what hangs on it over several, or buy a wider one",
    };
    match &link.could {
        Some(could) => {
            let mut better = forget_through(described, |disk| disk.via.contains(&bare), network);
            for of in better.links.iter_mut().filter(|l| l.name == bare) {
                (of.read, of.write, of.wire, of.could) = (could.practical, could.practical, Some(could.clone()), None);
            }
            let what = format!("{bare} at {}, which both ends can", could.name);
            all.push(candidate(what, Means::Change, negotiation(could), better, measured));
        }
        None if link.wire.as_ref().is_some_and(Wire::is_ethernet) && same_as_network(described, link) => {
            all.extend(faster_networks(described, measured));
        }
        None => all.push(candidate(format!("without the limit of {bare}"), Means::Purchase, how, after, measured)),
    }
    all
}

pub(super) fn connections(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let used = used(described, measured);
    let wired = used.iter().filter_map(|(d, _)| Some((*d, d.connection.as_ref()?)));
    let Some((slow, wire)) = wired.min_by(|a, b| a.1.practical.total_cmp(&b.1.practical)) else { return Vec::new() };
    let name = slow.name.clone();
    // There is no faster port of that kind.
    if wire.name == FASTEST_SATA {
        return other_kind(described, measured, slow.kind).into_iter().collect();
    }
    let mut after = forget_through(described, |disk| disk.name == name, false);
    for disk in after.disks.iter_mut().filter(|d| d.name == name) {
        if figure_of_wire(described, slow, measured) {
            own_rate(disk, measured);
        }
        disk.connection = disk.could.take();
    }
    if let Some(could) = &slow.could {
        let what = format!("'{name}' at {}, which both ends can", could.name);
        return vec![candidate(what, Means::Change, negotiation(could), after, measured)];
    }
    let how = match wire.name.as_str() {
        name if name.ends_with("with BOT") => "a bridge (enclosure) that speaks UAS, in a USB 3 port, or SATA",
        name if name.starts_with("USB 2") || name.starts_with("USB 1") => "a USB 3 port and cable, or SATA",
        name if name.starts_with("USB") => "a port and an enclosure of the next faster USB, or a slot inside",
        name if name.starts_with("PCIe") => {
            "a slot with more lanes or of a newer generation; larder doctor shows which slots negotiate what"
        }
        _ => "a newer port, controller or cable",
    };
    vec![candidate(format!("'{name}' on a faster connection than {}", wire.name), Means::Change, how, after, measured)]
}

/// A switch that is as fast as what hangs on it is no limit of its own.
fn same_as_network(described: &Described, link: &Link) -> bool {
    described.network.as_ref().is_some_and(|n| link.read >= n.bytes_per_s * GAIN_MIN.recip())
}

const FASTEST_SATA: &str = "SATA 6 Gbit/s";

/// How a wire gets what both of its ends can.
fn negotiation(could: &Wire) -> &'static str {
    match could.is_pcie() {
        true => {
            "reseat it, without a riser; lspci -vv | grep -E 'LnkCap|LnkSta'; firmware: slot speed auto, no bifurcation below its width; otherwise another slot"
        }
        false => "another cable, then another port; dmesg | grep -iE 'link|speed' says what was agreed on",
    }
}

/// A figure of the old wire says nothing of the disk on a new one.
fn own_rate(disk: &mut Disk, measured: &Measured) {
    let rate = Some(without_wire(disk, measured.what));
    match measured.what.writes() {
        true => disk.write = rate,
        false => disk.read = rate,
    }
}
