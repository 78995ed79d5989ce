//! Remedies for requests that wait: more in flight, cheaper flushes.

use super::catalogue::Remedy;
use super::change::{Change, Sick};
use super::wires::of_port;
use crate::describe::Disk;
use crate::describe::limits::BOT;
use crate::reason::bounds;
use crate::reason::rig::ResourceId;

pub(super) fn of_requests(sick: &Sick) -> Vec<Change> {
    let setup = &sick.measurement.setup;
    let mut all = Vec::new();
    if setup.sync && setup.writes() {
        all.push(power_loss_protection(sick));
    }
    let bulk_only = setup.disks.iter().find(|(at, _)| is_bulk_only(sick, *at)).map(|(at, _)| *at);
    match bulk_only {
        Some(at) => all.extend(of_port(sick, at)),
        None => all.extend(more_requests(sick)),
    }
    all
}

fn is_bulk_only(sick: &Sick, at: usize) -> bool {
    sick.rig.disk(at).and_then(|disk| disk.connection.as_ref()).is_some_and(|wire| wire.name.ends_with(BOT))
}

pub(super) fn power_loss_protection(sick: &Sick) -> Change {
    /// Of a flush that a capacitor backs.
    const BACKED_FLUSH_S: f64 = 50e-6;
    let mut change = sick.change(Remedy::PowerLossProtection, &[]);
    // No capacitor turns a platter, but a log on an SSD answers for hard disks, too.
    let slower = |disk: &&mut Disk| disk.flush_s.is_none_or(|seconds| seconds > BACKED_FLUSH_S);
    change.after.disks.iter_mut().filter(slower).for_each(|disk| disk.flush_s = Some(BACKED_FLUSH_S));
    change.setup.in_flight = change.setup.in_flight.or(Some(1.0));
    // Rows that waited for flushes say nothing of a disk that answers them at once.
    if sick.table.rows.iter().enumerate().any(|(at, m)| at != sick.row && m.setup.sync) {
        change.touched.push(ResourceId::Disks);
    }
    change
}

/// So many times as many in flight are proposed.
pub(crate) const MORE_REQUESTS: f64 = 8.0;

pub(super) fn more_requests(sick: &Sick) -> Option<Change> {
    let setup = &sick.measurement.setup;
    let mut change = sick.at_most(Remedy::MoreRequests, &[], sick.rate() * MORE_REQUESTS);
    change.setup.in_flight = Some(setup.in_flight? * MORE_REQUESTS);
    change.at_most = change.at_most.min(bounds::heads(sick.rig, setup));
    Some(change)
}
