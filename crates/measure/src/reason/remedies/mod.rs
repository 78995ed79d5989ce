//! Remedies: a change of the rig, and what its chain allows afterwards.
//!
//! A fix is computed, not promised: the remedy is applied to the description, rows of the table that crossed what
//! changed are dropped, the chain is built again, and its lowest limit is the rate after the fix. So no fix exceeds the
//! next stage, and each says what that stage is. A purchase never stands before a free change of about the same gain.
//!
//! `remedy.as_measured`  A fix promises no more than a row that already has its change gave.
//!
//! `catalogue.rs`   Every remedy: its cost, its name, and the way to do it.
//! `choice.rs`      From the evidence to the remedies that may help; by subject: `wires.rs`, `disks.rs`, `requests.rs`,
//!                  `processors.rs`, `clients.rs`.
//! `change.rs`      A remedy applied to the description.
//! `outcome.rs`     The rate afterwards.
//! `fix.rs`         The fixes that are worth it, and their order.

mod catalogue;
mod change;
mod choice;
mod clients;
mod disks;
mod fix;
mod outcome;
mod processors;
mod requests;
mod wires;

#[cfg(test)]
pub(crate) use catalogue::REMEDIES;
pub use catalogue::{Cost, Remedy};
pub(crate) use fix::{FIXES_MAX, Fix, order, sort};
pub(crate) use outcome::rate_of_full_core;
pub(crate) use requests::MORE_REQUESTS;

use super::rig::{ResourceId, Rig};
use super::table::Table;
use super::verdict::{Verdict, judge};
use crate::describe::Described;
use change::{Change, Sick};
use choice::changes;
use outcome::{outcome, weigh};

/// The fixes for one row, the best first.
pub(crate) fn fixes(rig: Rig, table: &Table, row: usize, verdict: &Verdict) -> Vec<Fix> {
    let Some(measurement) = table.rows.get(row) else { return Vec::new() };
    let sick = Sick { rig, table, row, measurement, verdict };
    let mut found: Vec<Fix> = changes(&sick).iter().filter_map(|change| weigh(&sick, change)).collect();
    sort(&mut found);
    found
}

/// The predicted rate of a row in another rig, where the `touched` resources are other ones, and its bottleneck.
pub(crate) fn in_another_rig(
    rig: Rig,
    table: &Table,
    row: usize,
    after: &Described,
    touched: &[ResourceId],
) -> Option<(f64, Option<ResourceId>)> {
    let (measurement, verdict) = (table.rows.get(row)?, judge(rig, table, row)?);
    // What is assumed is what it is: then it gives what it gave.
    if is_same_storage(rig.described, after) && touched == [ResourceId::Disks] {
        return Some((measurement.rate, verdict.resource));
    }
    let sick = Sick { rig, table, row, measurement, verdict: &verdict };
    let mut change = Change { after: after.clone(), keeps_single_disks: true, ..sick.change(Remedy::Upgrade, touched) };
    let all = |described: &Described| described.disks.iter().map(|disk| disk.count).sum::<u32>();
    if change.setup.disk_count() == all(rig.described) && touched.contains(&ResourceId::Disks) {
        change.setup.disks = after.disks.iter().enumerate().map(|(at, disk)| (at, disk.count)).collect();
        change.setup.shape = after.own_shape();
    }
    Some(outcome(&sick, &change))
}

fn is_same_storage(now: &Described, then: &Described) -> bool {
    let counts = |described: &Described| described.disks.iter().map(|disk| (disk.count, disk.kind)).collect::<Vec<_>>();
    now.own_shape() == then.own_shape() && now.record_bytes == then.record_bytes && counts(now) == counts(then)
}
