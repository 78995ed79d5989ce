//! The rate after a change.

use super::change::{Change, GAIN_MIN, Sick};
use super::fix::Fix;
use crate::describe::Path;
use crate::reason::chain::{chain, cores_of};
use crate::reason::contrast::{Property, differing_properties};
use crate::reason::rig::{End, ResourceId, Rig};
use crate::reason::table::{Measurement, Table};

/// A core that does less may do something else, and says nothing of what it could do.
const CORE_IDLE_PERCENT: f64 = 20.0;
const CORE_BUSY_PERCENT: f64 = 85.0;

pub(super) fn weigh(sick: &Sick, change: &Change) -> Option<Fix> {
    let rate_before = sick.measurement.rate;
    let (rate_after, then) = outcome(sick, change);
    let worth = rate_after.is_finite() && rate_after >= rate_before * GAIN_MIN;
    worth.then(|| Fix {
        remedy: change.remedy,
        row: sick.row,
        rate_before,
        rate_after,
        then,
        thing: change.thing.clone(),
        at: sick.verdict.resource.unwrap_or(ResourceId::Network),
    })
}

/// The lowest limit after a change, and of which resource it is.
pub(super) fn outcome(sick: &Sick, change: &Change) -> (f64, Option<ResourceId>) {
    let rig = Rig::new(&change.after);
    let (table, at) = table_after(sick, change);
    let stages = chain(rig, &table, at);
    let stages = stages.iter().map(|stage| (stage.limit, stage.resource));
    let (limit, resource) = stages.chain(spare_cores(sick, change)).min_by(|a, b| a.0.total_cmp(&b.0)).unzip();
    let limit = limit.unwrap_or(f64::INFINITY);
    let at_most = change.at_most.min(as_measured(sick, change));
    (limit.min(at_most), resource.filter(|_| limit <= at_most))
}

/// `remedy.as_measured`: a row that has the change already says what it gives. More in flight than proposed gives no less
/// than the proposal does.
fn as_measured(sick: &Sick, change: &Change) -> f64 {
    let same_rig = change.touched.is_empty();
    let has_it = |m: &Measurement| {
        let deeper = m.setup.in_flight.zip(change.setup.in_flight).is_some_and(|(has, asks)| has >= asks);
        let differ = differing_properties(&m.setup, &change.setup);
        differ.is_empty() || differ == [Property::InFlight] && deeper
    };
    let changed = !differing_properties(&change.setup, &sick.measurement.setup).is_empty();
    let rows = sick.table.others(sick.row).map(|(_, m)| m).filter(|m| has_it(m));
    let most = rows.filter(|_| same_rig && changed).map(|m| m.rate).reduce(f64::max);
    most.unwrap_or(f64::INFINITY)
}

/// More bytes are more work: the busiest core at each end is full first, unless the remedy relieves it.
fn spare_cores<'a>(sick: &'a Sick, change: &'a Change) -> impl Iterator<Item = (f64, ResourceId)> + 'a {
    let ends = [End::Server, End::Client].into_iter().filter(|end| !change.relieves.contains(end));
    ends.filter_map(|end| {
        let rate = rate_of_full_core(cores_of(sick.measurement, end), sick.measurement.rate)?;
        Some((rate, ResourceId::Processor(end)))
    })
}

/// The rate at which the busiest core would be full; nothing where none did much.
pub(crate) fn rate_of_full_core(cores: &[f64], rate: f64) -> Option<f64> {
    let busiest = cores.iter().copied().reduce(f64::max).filter(|busiest| *busiest >= CORE_IDLE_PERCENT)?;
    Some(rate * 100.0 / busiest.min(100.0))
}

/// The table without rows that crossed what changed, and the row that is asked about as it would be measured then.
pub(super) fn table_after(sick: &Sick, change: &Change) -> (Table, usize) {
    let single = |m: &Measurement| change.keeps_single_disks && m.setup.disk_count() == 1;
    let mut rows: Vec<Measurement> = Vec::new();
    for (at, row) in sick.table.rows.iter().enumerate() {
        let crossed = change.touched.iter().any(|id| crosses(sick, at, row, *id)) && !single(row);
        if at != sick.row && !crossed {
            rows.push(row.clone());
        }
    }
    // Each disk keeps its part of the file: what its fast cache takes of it stays the same.
    let more = f64::from(change.setup.disk_count().max(1)) / f64::from(sick.measurement.setup.disk_count().max(1));
    let file_bytes = sick.measurement.file_bytes.map(|bytes| (bytes as f64 * more) as u64);
    rows.push(Measurement { setup: change.setup.clone(), file_bytes, ..sick.measurement.clone() });
    let at = rows.len() - 1;
    (Table { rows }, at)
}

fn crosses(sick: &Sick, at: usize, row: &Measurement, id: ResourceId) -> bool {
    match id {
        ResourceId::Disks => matches!(row.setup.layer, Path::Disks | Path::Local),
        ResourceId::Port(disk) => row.setup.disks.iter().any(|(used, _)| *used == disk),
        ResourceId::Network | ResourceId::ClientCard(_) => row.setup.layer == Path::Net,
        ResourceId::Processor(end) => {
            let busy = cores_of(row, end).iter().any(|busy| *busy >= CORE_BUSY_PERCENT);
            let works = || {
                chain(sick.rig, sick.table, at)
                    .into_iter()
                    .find(|s| !s.is_below())
                    .is_some_and(|s| matches!(s.resource, ResourceId::Work(_)))
            };
            row.setup.layer != Path::Share && (busy || works())
        }
        ResourceId::Connection => row.setup.layer == Path::Net && row.setup.in_flight.is_none_or(|n| n <= 1.0),
        id => chain(sick.rig, sick.table, at).iter().any(|stage| stage.resource == id),
    }
}
