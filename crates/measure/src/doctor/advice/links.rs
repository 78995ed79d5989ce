//! Another way between disks, network card and processor.

use super::{Candidate, Means, STORAGE, candidate, forget};
use crate::doctor::describe::{Described, Measured};
use crate::doctor::stages::Stage;

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
    let mut after = forget(described, STORAGE);
    after.links.retain(|l| l.name != bare);
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
    let mut after = forget(described, STORAGE);
    let name = slow.name.clone();
    after.disks.iter_mut().filter(|d| d.name == name).for_each(|disk| disk.connection = None);
    let how = match wire.name.as_str() {
        "USB 2.0 with BOT" => "a bridge that speaks UAS, in a USB 3 port",
        name if name.starts_with("USB") => "a USB 3 port and cable, or SATA",
        name if name.starts_with("PCIe") => {
            "a slot with more lanes or of a newer generation; larder doctor shows which slots negotiate what"
        }
        _ => "a newer port, controller or cable",
    };
    vec![candidate(format!("'{name}' on a faster connection than {}", wire.name), Means::Change, how, after, measured)]
}
