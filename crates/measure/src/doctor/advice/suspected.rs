//! Against what is only likely: the first thing to try.

use super::disks::other_kind;
use super::network::faster_networks;
use super::processor::{at_client, at_processor};
use super::{Candidate, Means, at_stage, candidate, forget};
use crate::doctor::describe::{Described, Measured, Path};
use crate::doctor::diagnose::{Finding, explain};
use crate::doctor::suspects::{better_client, opposite};

pub(super) fn suspected(
    described: &Described,
    measured: &Measured,
    code: &str,
    findings: &[Finding],
) -> Vec<Candidate> {
    let as_is = |what: &str, means, how: &str| vec![candidate(what, means, how, described.clone(), measured)];
    match code {
        "client-differs" => {
            let Some(better) = better_client(described, measured) else { return Vec::new() };
            let name = better.with.as_ref().or(better.how.client.as_ref()).cloned().unwrap_or_default();
            let mut one = candidate(
                format!("the client that was faster ({name})"),
                Means::Change,
                "use it, or find what its settings do differently",
                described.clone(),
                measured,
            );
            one.at_most = better.rate;
            vec![one]
        }
        "retransmits" => as_is(
            "a wire without losses",
            Means::Change,
            "another cable and switch port; then: ethtool -S IFACE | grep -i err, nstat TcpRetransSegs",
        ),
        "one-direction" => {
            let mut one = candidate(
                "both directions as fast as the better one",
                Means::Change,
                "the same MTU at both ends and on the switch: ip link set IFACE mtu 1500; then one by one: ethtool -A IFACE rx off tx off, ethtool -K IFACE gro off tso off",
                forget(described, &[Path::Net]),
                measured,
            );
            one.at_most = opposite(described, measured).map_or(f64::INFINITY, |other| other.rate);
            vec![one]
        }
        "one-of-a-bond" => as_is(
            "several connections over the bond",
            Means::Command,
            "SMB multichannel, or mount -o nconnect=4 with a bond that hashes ports: ip link set bond0 type bond xmit_hash_policy layer3+4; several clients fill it, too",
        ),
        "client-wifi" => {
            let mut after = described.clone();
            after.clients.iter_mut().for_each(|client| client.network = None);
            let how = "a cable to the client, or a station of a newer Wi-Fi in the same room";
            vec![candidate("a wire instead of Wi-Fi at the client", Means::Change, how, after, measured)]
        }
        "one-core-irq" => {
            as_is("interrupts spread over the cores", Means::Command, "larder doctor --fix (IRQ affinity, RPS)")
        }
        "rung-below" => {
            let after = forget(described, &[Path::Net]);
            vec![candidate(
                "the full speed of what is there",
                Means::Change,
                "another cable and port; then: ethtool IFACE, lsusb -t, dmesg | grep -i speed",
                after,
                measured,
            )]
        }
        "qlc" | "smr" => other_kind(described, measured).into_iter().collect(),
        "client-core-nearly-full" => vec![at_client(described, measured)],
        "core-nearly-full" | "one-thread" | "processor-elsewhere" => at_processor(described, measured),
        "one-at-a-time" => {
            let mut more = measured.clone();
            more.how.in_flight = more.how.in_flight.map(|n| n * 8.0);
            let mut one = candidate(
                "eight times as many requests at once",
                Means::Command,
                "mount -o nconnect=8 ..., a larger rsize and read-ahead, or a program with several at once",
                described.clone(),
                &more,
            );
            one.at_most = measured.rate * 8.0;
            vec![one]
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
            stage.map(|s| at_stage(described, measured, &s, findings)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
