//! Less waiting for each request, or more of them at once.

use super::links::connections;
use super::{Candidate, Means, STORAGE, candidate};
use crate::doctor::describe::{Described, Disk, Measured, Network, Path};
use crate::doctor::limits::BOT;

pub(super) fn latency(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    if measured.how.sync && measured.what.writes() {
        // What did not wait for flushes is as it was.
        let mut after = described.clone();
        after.measured.retain(|m| !(STORAGE.contains(&m.path) && m.how.sync));
        // A capacitor lets a disk answer from its memory.
        after.disks.iter_mut().filter(|d| d.flush_s.is_some_and(|s| s > 50e-6)).for_each(|d| d.flush_s = Some(50e-6));
        let how = "an SSD with capacitors (data centre models), for all or for the log alone";
        all.push(candidate("a disk with power-loss protection", Means::Purchase, how, after, measured));
    }
    let bulk_only = |d: &Disk| d.connection.as_ref().is_some_and(|w| w.name.ends_with(BOT));
    // More at once are no more at a bridge that has one under way.
    let several = measured.how.in_flight.is_some() && !described.disks.iter().any(bulk_only);
    let mut more = measured.clone();
    more.how.in_flight = more.how.in_flight.map(|n| n * 8.0);
    let smb =
        measured.with.as_ref().is_some_and(|with| ["smb", "cifs"].iter().any(|n| with.to_lowercase().contains(n)));
    let how = match measured.path {
        Path::Share if smb => {
            "mount -t cifs -o multichannel,max_channels=4 ..., or several files at once: robocopy /MT:8, rclone copy --transfers=8"
        }
        Path::Share => {
            "mount -o nconnect=8,rsize=1048576,wsize=1048576 ..., or a client that sends several requests at once"
        }
        _ => "fio --iodepth=8 --numjobs=4, or an application that asks for several things at once",
    };
    if several {
        all.push(candidate("eight times as many requests at once", Means::Command, how, described.clone(), &more));
    }
    if let Some(network) = described.network.as_ref().filter(|n| n.window_bytes.is_some()) {
        let mut after = described.clone();
        after.network = Some(Network { window_bytes: None, ..network.clone() });
        let how = "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 16384 16777216'";
        all.push(candidate("larger TCP windows", Means::Command, how, after, measured));
    }
    if described.disks.iter().any(bulk_only) {
        all.extend(connections(described, measured));
    }
    all
}
