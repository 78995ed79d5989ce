//! Remedies for networks, links and ports.

use super::catalogue::Remedy;
use super::change::{Change, GAIN_MIN, Sick};
use super::disks::{other_kind, set_rate};
use crate::describe::limits::Wire;
use crate::describe::{Described, Network};
use crate::reason::disks::least_of_kind;
use crate::reason::evidence::SLOW_WIRE_BYTES_PER_S;
use crate::reason::rig::{End, ResourceId};

pub(super) fn with_network(sick: &Sick, remedy: Remedy, network: Network) -> Change {
    let mut change = sick.change(remedy, &[ResourceId::Network]);
    // A faster network comes with cards for the clients and with a switch.
    change.after.clients.iter_mut().for_each(|client| client.network = None);
    let links = &sick.rig.described.links;
    let switch =
        |name: &String| links.iter().any(|l| l.name == *name && l.wire.as_ref().is_some_and(Wire::is_ethernet));
    let via = network.via.iter().filter(|name| !switch(name)).cloned().collect();
    change.after.network = Some(Network { via, ..network });
    change
}

pub(super) fn of_network(sick: &Sick) -> Vec<Change> {
    let Some(network) = sick.rig.network() else { return Vec::new() };
    // A wire far below its name's rate is held by something else, and a faster one would be held alike.
    let wire = network.wire.clone().or_else(|| Wire::ethernet_of(network.bytes_per_s));
    if !sick.rig.described.upgrades.is_empty() {
        return Vec::new();
    }
    let named = network.wire.as_ref().filter(|wire| network.bytes_per_s < wire.practical * 0.8);
    if let Some(wire) = named {
        let lower = wire
            .rungs_below()
            .into_iter()
            .find(|w| network.bytes_per_s >= w.practical * 0.92 && network.bytes_per_s <= w.line);
        let remedy = if lower.is_some() { Remedy::FullSpeed } else { Remedy::FullRate };
        let mut change = sick.change(remedy, &[ResourceId::Network]);
        change.after.network = Some(Network { bytes_per_s: wire.practical, ..network.clone() });
        return vec![change];
    }
    let far = network.round_trip_s.is_some_and(|seconds| seconds >= 0.004);
    let above = wire.filter(|_| !far).map(|wire| wire.rungs_above()).unwrap_or_default();
    // Cores that are full beside 100 Mbit/s have other work.
    let slow = network.bytes_per_s <= SLOW_WIRE_BYTES_PER_S;
    let bought = |wire: Wire| {
        let faster = Network { bytes_per_s: wire.practical, wire: Some(wire.clone()), ..network.clone() };
        let relieves = if slow { vec![End::Server, End::Client] } else { Vec::new() };
        Change { thing: Some(wire.name), relieves, ..with_network(sick, Remedy::FasterNetwork, faster) }
    };
    above.into_iter().map(bought).collect()
}

pub(super) fn of_link(sick: &Sick, at: usize) -> Vec<Change> {
    let Some(link) = sick.rig.link(at) else { return Vec::new() };
    let mut all = Vec::new();
    let card = sick.rig.network().is_some_and(|n| n.via.contains(&link.name)) && sick.measurement.setup.is_remote();
    let disks = sick.rig.disks(&sick.measurement.setup.disks).iter().any(|(disk, _)| disk.via.contains(&link.name));
    let touched = [ResourceId::Link(at), if disks { ResourceId::Disks } else { ResourceId::Network }];
    if card && disks {
        let mut own = sick.change(Remedy::OwnLinkForCard, &[ResourceId::Network]);
        if let Some(network) = own.after.network.as_mut() {
            network.via.retain(|name| *name != link.name);
        }
        all.push(own);
    }
    let without_figure = |after: &mut Described| {
        // A figure that was measured through the link says nothing of the disk on another.
        for disk in after.disks.iter_mut().filter(|disk| disk.via.contains(&link.name)) {
            let most = if sick.measurement.setup.reads() { link.read } else { link.write };
            let of_link = disk.rate(sick.what()).is_some_and(|rate| rate >= most * 0.8 && rate <= most * 1.1);
            if of_link && least_of_kind(disk, sick.what()) > most * 1.1 {
                set_rate(disk, sick.what(), least_of_kind(disk, sick.what()));
            }
        }
    };
    if let Some(could) = &link.could {
        let mut better = sick.change(Remedy::BothEndsSpeed, &touched);
        if let Some(of) = better.after.links.get_mut(at) {
            (of.read, of.write, of.could, of.wire) = (could.practical, could.practical, None, Some(could.clone()));
        }
        without_figure(&mut better.after);
        all.push(Change { thing: Some(could.name.clone()), ..better });
        return all;
    }
    let mut wider = sick.change(Remedy::WiderLink, &touched);
    if let Some(of) = wider.after.links.get_mut(at) {
        (of.read, of.write) = (f64::INFINITY, f64::INFINITY);
    }
    without_figure(&mut wider.after);
    let is_switch = link.wire.as_ref().is_some_and(Wire::is_ethernet);
    let as_fast = sick.rig.network().is_some_and(|n| link.read >= n.bytes_per_s / GAIN_MIN);
    match is_switch && as_fast {
        true => all.extend(of_network(sick)),
        false => all.push(wider),
    }
    all
}

pub(super) fn of_port(sick: &Sick, at: usize) -> Vec<Change> {
    let Some((disk, wire)) = sick.rig.disk(at).and_then(|disk| Some((disk, disk.connection.as_ref()?))) else {
        return Vec::new();
    };
    // There is no faster port of that kind.
    if wire.name == "SATA 6 Gbit/s" {
        return other_kind(sick).into_iter().collect();
    }
    let remedy = if disk.could.is_some() { Remedy::BothEndsSpeed } else { Remedy::FasterPort };
    let mut change = sick.change(remedy, &[ResourceId::Port(at)]);
    if let Some(of) = change.after.disks.get_mut(at) {
        let figure = of.rate(sick.what()).is_some_and(|rate| rate >= wire.practical * 0.8 && rate <= wire.line);
        if figure && least_of_kind(of, sick.what()) > wire.line {
            let least = least_of_kind(of, sick.what());
            set_rate(of, sick.what(), least);
        }
        of.connection = of.could.take();
    }
    vec![Change { thing: disk.could.as_ref().map(|wire| wire.name.clone()), ..change }]
}
