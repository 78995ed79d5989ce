//! Remedies for processors and their work.

use super::catalogue::Remedy;
use super::change::{Change, Sick};
use crate::describe::Side;
use crate::reason::chain::cores_of;
use crate::reason::rig::{End, ResourceId};

pub(super) fn of_processor(sick: &Sick, ends: &[End]) -> Vec<Change> {
    let touched: Vec<ResourceId> = ends.iter().map(|end| ResourceId::Processor(*end)).collect();
    let relieved =
        |remedy: Remedy, at_most: f64| Change { relieves: ends.to_vec(), ..sick.at_most(remedy, &touched, at_most) };
    let usage = &sick.measurement.usage;
    let mut all = Vec::new();
    let spread = ends.iter().map(|end| spread_over(sick, *end)).reduce(|a, b| Some(a?.min(b?))).flatten();
    if let Some(at_most) = spread {
        if usage.irq.is_some_and(|percent| percent >= 70.0) && ends.contains(&End::Server) {
            all.push(relieved(Remedy::SpreadInterrupts, at_most));
        }
        all.push(relieved(Remedy::SpreadWork, at_most));
    }
    if let Some(time) = usage.throttled.filter(|percent| *percent >= 10.0) {
        // A clock that is held down is about half of what it could be.
        all.push(relieved(Remedy::CoolProcessor, sick.rate() / (1.0 - time.min(100.0) / 200.0)));
    }
    if let Some(taken) = usage.steal.filter(|percent| *percent >= 15.0) {
        all.push(relieved(Remedy::CalmHost, sick.rate() / (1.0 - taken.min(99.0) / 100.0)));
    }
    let mut faster = relieved(Remedy::FasterCore, f64::INFINITY);
    let stays = |side: Side| match side {
        Side::Server => !ends.contains(&End::Server),
        Side::Client => !ends.contains(&End::Client),
    };
    faster.after.work.retain(|work| stays(work.at));
    all.push(faster);
    all
}

/// The rate of all cores of an end together, where some have room.
fn spread_over(sick: &Sick, end: End) -> Option<f64> {
    let cores = cores_of(sick.measurement, end);
    let (busy, count) = (cores.iter().sum::<f64>(), cores.len() as f64);
    let idle = cores.len() > 1 && busy > 0.0 && busy < 90.0 * count;
    idle.then(|| sick.rate() * count * 100.0 / busy)
}

pub(super) fn of_work(sick: &Sick, at: usize) -> Vec<Change> {
    let Some(work) = sick.rig.work(at) else { return Vec::new() };
    let end = if work.at == Side::Server { End::Server } else { End::Client };
    let mut less = Change { relieves: vec![end], ..sick.change(Remedy::LessWork, &[ResourceId::Processor(end)]) };
    less.after.work.remove(at);
    let mut faster = of_processor(sick, &[end]);
    faster.retain(|change| change.remedy == Remedy::FasterCore);
    std::iter::once(less).chain(faster).collect()
}
