//! From the evidence to the remedies that may help.

use super::catalogue::Remedy;
use super::change::{Change, Sick};
use super::clients::{as_row, cable_for_radio, faster_client_disk, of_client_card, other_program};
use super::disks::{of_disks, other_kind, rebuild};
use super::processors::{of_processor, of_work};
use super::requests::{more_requests, of_requests, power_loss_protection};
use super::wires::{of_link, of_network, of_port, with_network};
use crate::describe::Path;
use crate::reason::chain::cores_of;
use crate::reason::contrast::Property;
use crate::reason::evidence::{Evidence, Mode, Use};
use crate::reason::rig::{End, ResourceId};
use crate::reason::table::Measurement;
use crate::reason::verdict::judge;

pub(super) fn changes(sick: &Sick) -> Vec<Change> {
    let Some(resource) = sick.verdict.resource else { return Vec::new() };
    let mut all = match sick.verdict.evidence {
        // The bottleneck of the measurement below is unknown: more of the same resource would be held alike.
        Evidence::Reached { mode: Mode::Normal, .. } if is_of_unexplained(sick) => of_unexplained(sick, resource),
        Evidence::Busy { what: Use::Stolen, .. } => only(of_processor(sick, &[End::Server]), Remedy::CalmHost),
        Evidence::Busy { what: Use::Throttled, .. } => only(of_processor(sick, &[End::Server]), Remedy::CoolProcessor),

        Evidence::Contradiction { .. } | Evidence::Misfit(_) | Evidence::Doubtful | Evidence::Missing(_) => {
            return Vec::new();
        }
        Evidence::Reached { mode, .. } if mode != Mode::Normal => of_mode(sick, resource, mode),
        Evidence::Contrast { row, .. } => of_contrast(sick, resource, row),
        _ => of_resource(sick, resource),
    };
    if let Evidence::Busy { what: Use::Cores, .. } = sick.verdict.evidence {
        all.extend(other_program(sick));
    }
    if sick.measurement.setup.layer == Path::Share {
        all.extend(sick.rig.described.upgrades.iter().map(|network| {
            let thing = Some(network.name.clone());
            Change { thing, ..with_network(sick, Remedy::Upgrade, network.clone()) }
        }));
    }
    all
}

fn only(mut changes: Vec<Change>, remedy: Remedy) -> Vec<Change> {
    changes.retain(|change| change.remedy == remedy);
    changes
}

fn is_of_unexplained(sick: &Sick) -> bool {
    sick.row_below()
        .is_some_and(|row| judge(sick.rig, sick.table, row).is_some_and(|verdict| verdict.resource.is_none()))
}

fn of_unexplained(sick: &Sick, resource: ResourceId) -> Vec<Change> {
    if resource == ResourceId::Network {
        return vec![sick.change(Remedy::FullRate, &[ResourceId::Network])];
    }
    // A link that was reached still further down is in the way once the rest is explained.
    let rows = sick.table.rows.iter().enumerate().filter(|(_, m)| m.setup.what() == sick.what());
    let verdicts = rows.filter_map(|(row, _)| judge(sick.rig, sick.table, row));
    let links = verdicts
        .filter_map(|verdict| verdict.resource.filter(|_| matches!(verdict.evidence, Evidence::Reached { .. })));
    let mut links: Vec<ResourceId> =
        links.filter(|id| matches!(id, ResourceId::Link(_) | ResourceId::Port(_))).collect();
    links.dedup();
    links.into_iter().flat_map(|link| of_resource(sick, link)).collect()
}

fn of_mode(sick: &Sick, resource: ResourceId, mode: Mode) -> Vec<Change> {
    let network = [ResourceId::Network];
    match mode {
        Mode::SlowerStandard => {
            let mut one = sick.change(Remedy::FullSpeed, &[resource]);
            // Cores that a slow wire left idle, or that other work fills, say nothing of a faster one.
            let full = |end| cores_of(sick.measurement, end).iter().any(|busy| *busy >= 95.0);
            if full(End::Server) || full(End::Client) {
                one.relieves = vec![End::Server, End::Client];
            }
            vec![one]
        }
        Mode::DuplexMismatch => vec![sick.at_most(Remedy::FullDuplex, &network, opposite(sick))],
        Mode::Losses => vec![sick.at_most(Remedy::WithoutLosses, &network, opposite(sick))],
        Mode::OneCableOfBond => vec![sick.change(Remedy::SeveralConnections, &[])],
        Mode::WeakRadio => match resource {
            ResourceId::ClientCard(at) => vec![cable_for_radio(sick, at)],
            _ => of_resource(sick, ResourceId::Network),
        },
        Mode::Hot => vec![sick.at_most(Remedy::CoolDisk, &[ResourceId::Disks], sick.disk_limit())],
        Mode::InPieces => vec![sick.at_most(Remedy::CopyAnew, &[ResourceId::Disks], sick.disk_limit())],
        Mode::Shingled | Mode::CacheFull => other_kind(sick).into_iter().collect(),
        Mode::Degraded => rebuild(sick).into_iter().collect(),
        Mode::ReadsBeforeWrites => {
            let figure = sick.change(Remedy::DisksAsFigure, &[ResourceId::Disks]);
            vec![sick.change(Remedy::WholeStripes, &[ResourceId::Disks]), figure]
        }
        Mode::OneCopy => {
            let several = sick.at_most(Remedy::SeveralFiles, &[], sick.disk_limit());
            std::iter::once(several).chain(of_disks(sick)).collect()
        }
        Mode::Flush => std::iter::once(power_loss_protection(sick)).chain(more_requests(sick)).collect(),
        Mode::FewInFlight => of_requests(sick),
        Mode::OneInFlight => {
            let depth = sick.measurement.setup.in_flight.unwrap_or(1.0);
            vec![sick.at_most(Remedy::RequestsAsMeant, &[], sick.rate() * depth)]
        }
        Mode::Between => {
            let remote = sick.measurement.setup.is_remote();
            vec![sick.change(Remedy::WithoutAdapter, &[if remote { ResourceId::Network } else { ResourceId::Disks }])]
        }
        Mode::BelowFigure | Mode::WholeRecords | Mode::OneFileAtATime | Mode::Normal => Vec::new(),
    }
}

/// The best that the wire alone carries in the other direction, where that is known to be much more.
fn opposite(sick: &Sick) -> f64 {
    let this = &sick.measurement.setup;
    let other = |m: &&Measurement| {
        let same = m.setup.layer == Path::Net && m.setup.client == this.client;
        same && m.setup.direction != this.direction && m.rate >= sick.rate() * 5.0
    };
    sick.table.rows.iter().filter(other).map(|m| m.rate).reduce(f64::max).unwrap_or(f64::INFINITY)
}

fn contrast_of(sick: &Sick) -> Option<Property> {
    match sick.verdict.evidence {
        Evidence::Contrast { property, .. } => Some(property),
        _ => None,
    }
}

fn of_contrast(sick: &Sick, resource: ResourceId, row: usize) -> Vec<Change> {
    match resource {
        ResourceId::Network => vec![sick.at_most(Remedy::BothDirections, &[resource], sick.rate_of(row))],
        ResourceId::Connection => {
            let at_most = sick.rate_of(row) / sick.measurement.setup.unit_bytes();
            let one = sick.at_most(Remedy::SeveralConnections, &[ResourceId::Connection], at_most);
            vec![Change { relieves: vec![End::Server, End::Client], ..one }]
        }
        // This client's wire would carry as much as another client's.
        ResourceId::ClientSide if sick.table.rows.get(row).is_some_and(|m| m.setup.layer == Path::Net) => {
            vec![sick.at_most(
                Remedy::WithoutAdapter,
                &[ResourceId::Network],
                sick.rate_of(row) / sick.measurement.setup.unit_bytes(),
            )]
        }
        ResourceId::ClientSide if sick.table.rows.get(row).is_some_and(|m| m.setup.layer == Path::Share) => {
            let one = as_row(sick, row);
            vec![Change { relieves: vec![End::Server, End::Client], ..one }]
        }
        ResourceId::ClientSide => {
            // Another program or driver on the machine itself: as fast as it was. Who is left by exclusion has no remedy yet.
            let here = sick.table.rows.get(row).is_some_and(|m| m.setup.layer == sick.measurement.setup.layer);
            here.then(|| as_row(sick, row)).into_iter().collect()
        }
        ResourceId::Cipher => {
            let one = sick.at_most(Remedy::LessWork, &[], sick.rate_of(row));
            vec![Change { relieves: vec![End::Server, End::Client], ..one }]
        }
        ResourceId::UnknownLink if contrast_of(sick) == Some(Property::Port) => {
            let remote = sick.measurement.setup.is_remote();
            let crossed = if remote { ResourceId::Network } else { ResourceId::Disks };
            let at_most = sick.rate_of(row) / sick.measurement.setup.unit_bytes();
            vec![sick.at_most(Remedy::WithoutAdapter, &[crossed], at_most)]
        }
        ResourceId::UnknownLink => {
            let low = sick.verdict.stages.iter().filter(|s| s.resource == ResourceId::Disks && !s.is_below());
            let low = low.map(|s| s.limit_low).fold(f64::INFINITY, f64::min);
            let one = sick.at_most(Remedy::OwnPaths, &[ResourceId::Disks], low);
            vec![Change { keeps_single_disks: true, ..one }]
        }
        _ => of_resource(sick, resource),
    }
}

fn of_resource(sick: &Sick, resource: ResourceId) -> Vec<Change> {
    match resource {
        ResourceId::Disks => of_disks(sick),
        ResourceId::Port(at) => of_port(sick, at),
        ResourceId::Link(at) => of_link(sick, at),
        ResourceId::UnknownLink => Vec::new(),
        ResourceId::Network => of_network(sick),
        ResourceId::Connection => {
            let mut one = sick.change(Remedy::LargerWindow, &[ResourceId::Network]);
            if let Some(network) = one.after.network.as_mut() {
                network.window_bytes = None;
            }
            std::iter::once(one).chain(more_requests(sick)).collect()
        }
        ResourceId::Requests => of_requests(sick),
        ResourceId::Processor(end) => of_processor(sick, &[end]),
        ResourceId::BothProcessors => of_processor(sick, &[End::Server, End::Client]),
        ResourceId::Work(at) => of_work(sick, at),
        ResourceId::ClientCard(at) => of_client_card(sick, at),
        ResourceId::ClientDisk(at) => vec![faster_client_disk(sick, at)],
        ResourceId::ClientSide | ResourceId::Cipher => Vec::new(),
    }
}
