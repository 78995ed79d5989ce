//! Less waiting for each request, or more of them at once.

use super::links::connections;
use super::{Candidate, Means, STORAGE, candidate};
use crate::doctor::describe::{Described, Disk, Measured, Network, Path};
use crate::doctor::diagnose::{Cause, explain};
use crate::doctor::limits::BOT;
use crate::doctor::stages::{WINDOW, used};

pub(super) fn latency(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    if measured.how.sync && measured.what.writes() {
        all.push(capacitors(described, measured));
    }
    if let Some(network) = described.network.as_ref().filter(|n| n.window_bytes.is_some()) {
        let mut after = described.clone();
        // What the window held says nothing of the wire without it.
        let held = |m: &Measured| {
            m.path == Path::Net
                && matches!(explain(described, m, None).cause, Cause::Stage(stage) if stage.name.starts_with(WINDOW))
        };
        after.measured.retain(|m| !held(m));
        after.network = Some(Network { window_bytes: None, ..network.clone() });
        let how = "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 16384 16777216'";
        all.push(candidate("larger TCP windows", Means::Command, how, after, measured));
    }
    all.extend(more_at_once(described, measured));
    if described.disks.iter().any(bulk_only) {
        all.extend(connections(described, measured));
    }
    all
}

/// Of a flush that a capacitor backs.
const BACKED_FLUSH_S: f64 = 50e-6;

/// A capacitor lets a disk answer from its memory.
pub(super) fn capacitors(described: &Described, measured: &Measured) -> Candidate {
    // What did not wait for flushes is as it was.
    let mut after = described.clone();
    after.measured.retain(|m| !(STORAGE.contains(&m.path) && m.how.sync));
    let slower = |d: &&mut Disk| d.flush_s.is_none_or(|s| s > BACKED_FLUSH_S);
    after.disks.iter_mut().filter(slower).for_each(|d| d.flush_s = Some(BACKED_FLUSH_S));
    let mut asked = measured.clone();
    asked.how.in_flight = measured.how.in_flight.or(Some(1.0));
    let how = "an SSD with capacitors (data centre models), for all or for the log alone";
    candidate("a disk with power-loss protection", Means::Purchase, how, after, &asked)
}

fn bulk_only(disk: &Disk) -> bool {
    disk.connection.as_ref().is_some_and(|wire| wire.name.ends_with(BOT))
}

/// Eight times as many, where that is known.
const MORE: f64 = 8.0;

pub(super) fn more_at_once(described: &Described, measured: &Measured) -> Option<Candidate> {
    // More at once are no more at a bridge that has one under way.
    (!described.disks.iter().any(bulk_only)).then_some(())?;
    let mut more = measured.clone();
    more.how.in_flight = Some(measured.how.in_flight? * MORE);
    let with = |names: [&str; 2]| {
        measured.with.as_ref().is_some_and(|with| names.iter().any(|n| with.to_lowercase().contains(n)))
    };
    let (what, how) = match (measured.path, measured.what.writes()) {
        (Path::Net, _) => ("eight times as many connections at once", "iperf3 -P 8, or several files at once"),
        (Path::Share, _) if with(["smb", "cifs"]) => (
            REQUESTS,
            "mount -t cifs -o multichannel,max_channels=4 ..., or several files at once: robocopy /MT:8, rclone copy --transfers=8",
        ),
        (Path::Share, false) => (
            REQUESTS,
            "mount -o nconnect=8,rsize=1048576,wsize=1048576 ..., or a client that sends several requests at once",
        ),
        (Path::Share, true) => (
            REQUESTS,
            "several files at once: rclone copy --transfers=8, robocopy /MT:8; mount -o nconnect=8 ... (NFS)",
        ),
        _ => (REQUESTS, "fio --iodepth=8 --numjobs=4, or an application that asks for several things at once"),
    };
    let mut one = candidate(what, Means::Command, how, described.clone(), &more);
    one.at_most = (measured.rate * MORE).min(heads(described, measured));
    Some(one)
}

const REQUESTS: &str = "eight times as many requests at once";

/// A hard disk has one head, and those who wait for it wait for each other.
fn heads(described: &Described, measured: &Measured) -> f64 {
    let seeks = |disk: &Disk| {
        let kind = disk.kind.filter(|kind| kind.turns())?.physical();
        disk.latency_s.filter(|s| *s >= kind.least_latency_s)?;
        Some(disk.random_read.unwrap_or(kind.usual_random_read.1))
    };
    let of_disk = measured.path != Path::Net && !measured.what.writes();
    let used = used(described, measured);
    let each: Option<Vec<f64>> = used.iter().map(|(disk, n)| Some(seeks(disk)? * f64::from(*n))).collect();
    let bytes = if measured.what.is_random() { Some(1.0) } else { measured.how.block_bytes.map(|block| block as f64) };
    match (each.filter(|each| of_disk && !each.is_empty()), bytes) {
        (Some(each), Some(bytes)) => each.iter().sum::<f64>() * bytes,
        _ => f64::INFINITY,
    }
}
