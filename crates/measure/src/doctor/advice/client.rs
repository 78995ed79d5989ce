//! What helps at the other end: its card, its disk, its processor.

use super::processor::{less_work, spread_over};
use super::{Candidate, GAIN_MIN, Means, candidate, forget, forget_busy};
use crate::doctor::describe::{Client, Described, Measured, Path, Side};
use crate::doctor::limits::{DiskKind, Physical, Wire};
use crate::doctor::stages::{Stage, StageKind, client_of, stages};
use crate::doctor::suspects::better_client;
use crate::doctor::words::bytes_words;

const CLIENT: &[Side] = &[Side::Client];
const BOTH: &[Side] = &[Side::Server, Side::Client];

/// Its processor.
pub(super) fn at_client(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    let work = stages(described, measured).into_iter().filter(|s| s.kind == StageKind::Client);
    let work = work.filter(|s| described.work.iter().any(|w| w.at == Side::Client && s.name.starts_with(&w.name)));
    all.extend(work.map(|stage| less_work(described, measured, &stage)));
    if let Some(at_most) = spread_over(measured, &measured.how.client_cores) {
        let how = match measured.path {
            Path::Net => {
                "several connections have several cores: iperf3 -P 4, mount -o nconnect=4 ... (NFS), multichannel (SMB)"
            }
            _ => {
                "there: mount -o nconnect=4 ... (NFS), multichannel (SMB), several files at once: rclone copy --transfers=8, robocopy /MT:8"
            }
        };
        let after = forget_busy(described, Side::Client);
        let what = "the work spread over the client's idle cores";
        let spread = candidate(what, Means::Command, how, after, measured);
        all.push(Candidate { at_most, relieves: CLIENT, ..spread });
    }
    let mut after = forget_busy(described, Side::Client);
    after.work.retain(|w| w.at == Side::Server);
    let how = "one with faster cores; before that, there: governor performance, no signing or encryption where the net is your own, and another program (smbclient, rclone, cp on a mount)";
    let one = candidate("a faster client", Means::Purchase, how, after, measured);
    all.push(Candidate { relieves: CLIENT, ..one });
    all
}

/// What helps one end alone brings nothing while the other is full.
pub(super) fn at_both_ends(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut after = forget_busy(&forget_busy(described, Side::Server), Side::Client);
    let mut all = Vec::new();
    let ends = [&measured.cores_percent, &measured.how.client_cores];
    if let [Some(here), Some(there)] = ends.map(|cores| spread_over(measured, cores)) {
        let how = "several connections: mount -o nconnect=4 ... (NFS), multichannel (SMB), several files at once";
        let what = "the work spread over the idle cores of both ends";
        let spread = candidate(what, Means::Command, how, after.clone(), measured);
        all.push(Candidate { at_most: here.min(there), relieves: BOTH, ..spread });
    }
    after.work.clear();
    let how = "no signing or encryption where the net is your own; then faster cores at both ends";
    let less = candidate("less work at both ends, or faster cores", Means::Change, how, after, measured);
    all.push(Candidate { relieves: BOTH, ..less });
    all
}

/// Another one, or another program, that was faster with the same box: with the cores that there are.
pub(super) fn faster_client(described: &Described, measured: &Measured) -> Option<Candidate> {
    let better = better_client(described, measured)?;
    let name = better.with.as_ref().or(better.how.client.as_ref()).cloned().unwrap_or_default();
    let what = format!("the client that was faster ({name})");
    let how = "use it, or find what its settings do differently";
    let one = candidate(what, Means::Change, how, described.clone(), measured);
    Some(Candidate { at_most: better.rate, relieves: BOTH, ..one })
}

/// Its card, its disk, or a cipher on it.
pub(super) fn at_client_stage(described: &Described, measured: &Measured, stage: &Stage) -> Vec<Candidate> {
    if described.work.iter().any(|w| w.at == Side::Client && stage.name.starts_with(&w.name)) {
        let mut less = less_work(described, measured, stage);
        less.how = "there: a lighter cipher or one in the kernel, or a processor with instructions for it".to_owned();
        let mut faster = at_client(described, measured);
        faster.retain(|c| c.means == Means::Purchase);
        return std::iter::once(less).chain(faster).collect();
    }
    let Some(client) = client_of(described, measured) else { return at_client(described, measured) };
    if client.network.as_ref().is_some_and(|(name, _)| *name == stage.name) {
        return another_card(described, measured, client);
    }
    let mut after = described.clone();
    let sata = DiskKind::SataSsd.physical();
    let better = |usual: &Physical| usual.usual_read.0.min(usual.usual_write.0) > stage.capacity * GAIN_MIN;
    let (usual, name) = if better(sata) { (sata, "an SSD") } else { (DiskKind::Nvme.physical(), "an NVMe disk") };
    for of in after.clients.iter_mut().filter(|c| c.name == client.name) {
        (of.disk_read, of.disk_write) = (Some(usual.usual_read.0), Some(usual.usual_write.0));
    }
    let (reads, writes) = (bytes_words(usual.usual_read.0), bytes_words(usual.usual_write.0));
    let how = format!("there: copy to or from {name}; an ordinary one reads {reads} and writes {writes}");
    vec![candidate(format!("{name} in {}", client.name), Means::Purchase, how, after, measured)]
}

/// A cable where there is none, else the next rungs.
fn another_card(described: &Described, measured: &Measured, client: &Client) -> Vec<Candidate> {
    let had = client.network.as_ref().map_or(0.0, |(_, bytes)| *bytes);
    let wire = client.wire.clone().or_else(|| Wire::ethernet_of(had));
    if wire.as_ref().is_some_and(|w| w.name.starts_with("Wi-Fi")) {
        return vec![cable_instead_of_air(described, measured)];
    }
    let rungs = wire.map(|w| w.rungs_above()).unwrap_or_default().into_iter();
    let with = |wire: Wire| {
        let mut after = forget(described, &[Path::Net]);
        for of in after.clients.iter_mut().filter(|c| c.name == client.name) {
            of.network = Some((format!("the {} of {}", wire.name, client.name), wire.practical));
        }
        let how = match wire.practical {
            // What USB 3 carries (5 Gbit/s after coding).
            bytes if bytes < 440e6 => {
                format!("a {} adapter for USB 3, or a card, and a cable of eight wires", wire.name)
            }
            _ => format!("a {} card, in a slot with lanes enough", wire.name),
        };
        candidate(format!("{} at {}", wire.name, client.name), Means::Purchase, how, after, measured)
    };
    rungs.map(with).collect()
}

pub(super) fn cable_instead_of_air(described: &Described, measured: &Measured) -> Candidate {
    let mut after = forget(described, &[Path::Net]);
    after.clients.iter_mut().for_each(|client| client.network = None);
    let how = "a cable to the client, or a station of a newer Wi-Fi in the same room";
    candidate("a wire instead of Wi-Fi at the client", Means::Change, how, after, measured)
}
