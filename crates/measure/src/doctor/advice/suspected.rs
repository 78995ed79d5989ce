//! Against what is only likely: the first thing to try.

use super::client::{at_client, cable_instead_of_air, faster_client};
use super::disks::{disks, of_kind, other_kind, rebuilt};
use super::latency::{capacitors, more_at_once};
use super::network::FULL_SPEED;
use super::network::faster_networks;
use super::processor::{at_processor, calmer_host, interrupts_spread, not_throttled};
use super::{Candidate, Means, STORAGE, at_stage, candidate, forget, forget_together};
use crate::doctor::describe::{Described, Disk, Measured, Path, Side};
use crate::doctor::diagnose::{CORE_FULL_PERCENT, Finding, explain};
use crate::doctor::limits::{DiskKind, Wire};
use crate::doctor::stages::{Basis, StageKind, client_of, stages, used};
use crate::doctor::suspects::{is_line, opposite, several_connections, slower_network};

pub(super) fn suspected(
    described: &Described,
    measured: &Measured,
    code: &str,
    findings: &[Finding],
) -> Vec<Candidate> {
    let as_is = |what: &str, means, how: &str| vec![candidate(what, means, how, described.clone(), measured)];
    match code {
        "client-differs" => faster_client(described, measured).into_iter().collect(),
        "retransmits" => {
            let client = client_of(described, measured).and_then(|client| client.wire.as_ref());
            let air = client.into_iter().chain(described.network.as_ref().and_then(|n| n.wire.as_ref()));
            let (what, how) = match air.into_iter().any(Wire::is_air) {
                true => ("air without losses", "a station nearer to it, another channel, or a cable"),
                // A cable that is good in one direction is good in both.
                false if opposite(described, measured).is_some() => ("a wire without losses", BOTH_WAYS),
                false => (
                    "a wire without losses",
                    "another cable and switch port; then: ethtool -S IFACE | grep -i err, nstat TcpRetransSegs",
                ),
            };
            let after = forget(described, &[Path::Net]);
            let mut one = candidate(what, Means::Change, how, after, measured);
            // What the other direction gives the same cable can.
            one.at_most = opposite(described, measured).map_or(f64::INFINITY, |other| other.rate);
            vec![one]
        }
        "one-direction" => {
            let what = "both directions as fast as the better one";
            let (means, how) = match described.network.as_ref().is_some_and(is_line) {
                true => (Means::Purchase, "a line that is sold with as much in this direction"),
                false => (Means::Change, BOTH_WAYS),
            };
            let mut one = candidate(what, means, how, forget(described, &[Path::Net]), measured);
            one.at_most = opposite(described, measured).map_or(f64::INFINITY, |other| other.rate);
            vec![one]
        }
        "one-of-a-bond" => as_is(
            "several connections over the bond",
            Means::Command,
            "SMB multichannel, or mount -o nconnect=4 with a bond that hashes ports: ip link set bond0 type bond xmit_hash_policy layer3+4; several clients fill it, too",
        ),
        "client-wifi" => vec![cable_instead_of_air(described, measured)],
        "one-core-irq" => vec![interrupts_spread(described, measured)],
        "duplex-mismatch" => {
            let how = "the same at both ends, best negotiated: ethtool -s IFACE autoneg on, and no fixed speed at the switch's port; ethtool -S IFACE | grep -iE 'coll|fcs|crc' counts what it costs";
            let mut one =
                candidate("both ends at full duplex", Means::Command, how, forget(described, &[Path::Net]), measured);
            one.at_most = opposite(described, measured).map_or(f64::INFINITY, |other| other.rate);
            vec![one]
        }
        "host-steals" => vec![calmer_host(described, measured)],
        "throttled" => not_throttled(described, measured).into_iter().collect(),
        "reads-before-writes" => {
            let how = "echo 8192 > /sys/block/mdX/md/stripe_cache_size; mdadm --grow --bitmap=none /dev/mdX, then --bitmap=internal --bitmap-chunk=128M; of a controller: its write-back cache, with a battery";
            let after = forget(described, STORAGE);
            let whole = candidate("whole stripes at a time", Means::Command, how, after, measured);
            std::iter::once(whole).chain(as_fast_as_described(described, measured)).collect()
        }
        "degraded" => rebuilt(described, measured).into_iter().collect(),
        "disks-wait" => {
            let mut all = disks(described, measured);
            if let Some(as_described) = as_fast_as_described(described, measured) {
                // More of what gives so little gives as little.
                all.retain(|one| !one.what.ends_with(" more"));
                all.push(as_described);
            }
            all
        }
        "rung-below" => {
            let lanes = |disk: &Disk| disk.connection.as_ref().is_some_and(Wire::is_pcie);
            let disk = used(described, measured).iter().any(|(disk, _)| lanes(disk)) && measured.path != Path::Net;
            let slow_network = slower_network(described, measured, &stages(described, measured));
            let (what, how, after) = match disk && !slow_network {
                true => (
                    "the full speed of its slot",
                    "lspci -vv | grep -E 'LnkCap|LnkSta' says what was agreed on; reseat it, another slot, firmware: slot speed auto",
                    forget(described, STORAGE),
                ),
                false => ("the full speed of what is there", FULL_SPEED, forget(described, &[Path::Net])),
            };
            let mut one = candidate(what, Means::Change, how, after, measured);
            // The cores that a slower wire left idle, or that others' work fills, say nothing of a faster one.
            if full_cores(measured) {
                one.relieves = &[Side::Server, Side::Client];
            }
            vec![one]
        }
        "link-rung" => {
            let after = forget(&forget(described, STORAGE), &[Path::Net]);
            let how = "lsusb -t (5000M, 480M), lspci -vv | grep -E 'LnkCap|LnkSta', dmesg | grep -i speed: what was agreed on; then another port, cable or slot";
            vec![candidate("the full speed of that link", Means::Change, how, after, measured)]
        }
        "hot-disk" => {
            let disks = used(described, measured);
            let cool = stages(described, measured).into_iter().find(|s| s.kind == StageKind::Disks);
            let how = "air over it, a heat sink, a place away from other hot parts; smartctl -a says how hot it was";
            let mut one = candidate("a cooler disk", Means::Change, how, forget(described, STORAGE), measured);
            one.at_most = cool.map_or(f64::INFINITY, |s| s.capacity);
            if disks.is_empty() { Vec::new() } else { vec![one] }
        }
        "qlc" => other_kind(described, measured, of_kind(described, DiskKind::Qlc)).into_iter().collect(),
        "smr" => other_kind(described, measured, of_kind(described, DiskKind::Smr)).into_iter().collect(),
        "client-core-nearly-full" => at_client(described, measured),
        "core-nearly-full" | "one-thread" | "processor-elsewhere" => at_processor(described, measured),
        "one-at-a-time" => more_at_once(described, measured).into_iter().collect(),
        "flush" => std::iter::once(capacitors(described, measured)).chain(more_at_once(described, measured)).collect(),
        "one-in-flight" => {
            let how = "fio --ioengine=io_uring (or libaio) --direct=1; of an application: several threads, or several files at once";
            let what = "as many requests at once as were meant";
            let mut one = candidate(what, Means::Command, how, described.clone(), measured);
            one.at_most = measured.rate * measured.how.in_flight.unwrap_or(1.0);
            vec![one]
        }
        "one-connection" => {
            let Some(several) = several_connections(described, measured) else { return Vec::new() };
            let how = match measured.path {
                Path::Net => {
                    "iperf3 -P 4; for one alone larger windows: sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 16384 16777216'"
                }
                _ => "mount -o nconnect=4 ... (NFS), multichannel (SMB), several files at once",
            };
            let mut one = candidate("several connections at once", Means::Command, how, described.clone(), measured);
            // They have been seen to fill it, with what cores there are.
            (one.at_most, one.relieves) = (several.rate, &[Side::Server, Side::Client]);
            vec![one]
        }
        "one-copy" => {
            let how = "several readers or files at once: fio --numjobs=4, rclone copy --transfers=4; for one alone a layout that stripes (RAID 10 far copies, ZFS)";
            let all = stages(described, measured).into_iter().find(|s| s.kind == StageKind::Disks);
            let mut one = candidate("several files read at once", Means::Command, how, described.clone(), measured);
            one.at_most = all.map_or(f64::INFINITY, |s| s.capacity);
            std::iter::once(one).chain(disks(described, measured)).collect()
        }
        "wifi" => faster_networks(described, measured),
        "other-end" => as_is(
            "a client or protocol without this limit",
            Means::Change,
            "try another program and another client with the same file: larder bench share URL",
        ),
        "shared-link" => {
            let disks = crate::doctor::stages::used(described, measured);
            let common = described.links.iter().find(|l| disks.iter().all(|(disk, _)| disk.via.contains(&l.name)));
            let stage = common.and_then(|link| {
                explain(described, measured, None).stages.into_iter().find(|s| s.name.starts_with(&link.name))
            });
            match stage {
                Some(stage) => at_stage(described, measured, &stage, findings),
                None if common.is_none() => ways_of_their_own(described, measured).into_iter().collect(),
                None => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// Of what nobody described only the effect is known: with less on it each disk gives what it gives alone.
fn ways_of_their_own(described: &Described, measured: &Measured) -> Option<Candidate> {
    let all = stages(described, measured).into_iter().find(|s| s.kind == StageKind::Disks)?;
    let how = "larder doctor shows the way of each disk (lspci -tv, lsusb -t); larder bench disk A B finds which of them slow each other: then one of those to another slot, port or controller";
    let after = forget_together(described);
    let mut one = candidate("the disks on ways of their own", Means::Change, how, after, measured);
    one.at_most = all.capacity_low;
    Some(one)
}

/// Disks that are waited for and give much less than is said of them: more of them would be waited for alike.
fn as_fast_as_described(described: &Described, measured: &Measured) -> Option<Candidate> {
    stages(described, measured).into_iter().find(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual)?;
    let how = "find the one that is waited for: iostat -x 5 (await, %util), smartctl -a for errors and pending sectors, larder bench disk for each alone; then: is it full, in pieces, or does memory swap?";
    let after = forget(described, STORAGE);
    Some(candidate("the disks as fast as they are described", Means::Change, how, after, measured))
}

const BOTH_WAYS: &str = "the same MTU at both ends and on the switch: ip link set IFACE mtu 1500; then one by one: ethtool -A IFACE rx off tx off, ethtool -K IFACE gro off tso off";

fn full_cores(measured: &Measured) -> bool {
    measured.cores_percent.iter().chain(&measured.how.client_cores).any(|busy| *busy >= CORE_FULL_PERCENT)
}
