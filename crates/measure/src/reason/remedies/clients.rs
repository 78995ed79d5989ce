//! Remedies at the client: its program, card and disk.

use super::catalogue::Remedy;
use super::change::{Change, GAIN_MIN, Sick};
use crate::describe::Path;
use crate::describe::limits::{DiskKind, Wire};
use crate::reason::contrast::{Property, contrasts};
use crate::reason::evidence::STRONG;
use crate::reason::rig::{End, ResourceId};

/// Another client or program that was much faster, though a core is full with this one.
pub(super) fn other_program(sick: &Sick) -> Option<Change> {
    let contrasts = contrasts(sick.table, sick.row);
    let mut faster = contrasts.iter().filter(|c| matches!(c.property, Property::Program | Property::Client));
    let row = faster.find(|c| c.ratio >= STRONG && sick.measurement.setup.layer == Path::Share)?.row;
    let one = as_row(sick, row);
    Some(Change { relieves: vec![End::Server, End::Client], ..one })
}

/// The faster client or program of another row.
pub(super) fn as_row(sick: &Sick, row: usize) -> Change {
    let other = sick.table.rows.get(row).map(|m| &m.setup);
    let names = other.and_then(|setup| sick.rig.differing_side(setup, &sick.measurement.setup));
    let thing = Some(names.unwrap_or_else(|| "another client or program".to_owned()));
    Change { thing, ..sick.at_most(Remedy::OtherProgram, &[], sick.rate_of(row)) }
}

pub(super) fn of_client_card(sick: &Sick, at: usize) -> Vec<Change> {
    let Some(client) = sick.rig.client(Some(at)) else { return Vec::new() };
    let had = client.network.as_ref().map_or(0.0, |(_, bytes)| *bytes);
    let wire = client.wire.clone().or_else(|| Wire::ethernet_of(had));
    if wire.as_ref().is_some_and(Wire::is_air) {
        return vec![cable_for_radio(sick, at)];
    }
    let with = |wire: Wire| {
        let mut change = sick.change(Remedy::FasterClientCard, &[ResourceId::ClientCard(at)]);
        if let Some(client) = change.after.clients.get_mut(at) {
            client.network = Some((wire.name.clone(), wire.practical));
        }
        Change { thing: Some(wire.name), ..change }
    };
    wire.map(|wire| wire.rungs_above()).unwrap_or_default().into_iter().map(with).collect()
}

pub(super) fn cable_for_radio(sick: &Sick, at: usize) -> Change {
    let mut change = sick.change(Remedy::CableForRadio, &[ResourceId::ClientCard(at)]);
    if let Some(client) = change.after.clients.get_mut(at) {
        client.network = None;
    }
    change
}

pub(super) fn faster_client_disk(sick: &Sick, at: usize) -> Change {
    let least = |kind: DiskKind| kind.physical().usual_read.0.min(kind.physical().usual_write.0);
    let kind = if least(DiskKind::SataSsd) > sick.rate() * GAIN_MIN { DiskKind::SataSsd } else { DiskKind::Nvme };
    let mut change = sick.change(Remedy::FasterClientDisk, &[]);
    let name = kind.physical().name;
    change.thing = Some(format!("{} {name}", if name.starts_with('N') { "an" } else { "a" }));
    if let Some(client) = change.after.clients.get_mut(at) {
        let physical = kind.physical();
        (client.disk_read, client.disk_write) = (Some(physical.usual_read.0), Some(physical.usual_write.0));
    }
    change
}
