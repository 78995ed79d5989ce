//! Fixes: remedies with their gain, the best first.

use super::catalogue::{Cost, Remedy};
use crate::reason::rig::ResourceId;

/// A person weighs at most so many.
pub(crate) const FIXES_MAX: usize = 3;
/// Gains this close count as equal: then the cheaper remedy comes first.
const LIKE_GAIN: f64 = 1.10;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fix {
    pub remedy: Remedy,
    pub row: usize,
    pub rate_before: f64,
    pub rate_after: f64,
    /// The bottleneck afterwards; nothing where the remedy has a bound of its own.
    pub then: Option<ResourceId>,
    /// The wire, disk, program or network that the remedy brings, by name.
    pub thing: Option<String>,
    /// The resource that limits now.
    pub at: ResourceId,
}

impl Fix {
    pub(crate) fn gain(&self) -> f64 {
        self.rate_after / self.rate_before
    }
}

/// The greatest gain first; of two alike the cheaper one. No purchase stands before a cheaper change of like gain.
/// A wire is repaired before it is replaced.
pub(crate) fn order<T>(
    all: &mut [T],
    gain: impl Fn(&T) -> f64,
    cost: impl Fn(&T) -> Cost,
    remedy: impl Fn(&T) -> Option<Remedy>,
) {
    all.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(cost(a).cmp(&cost(b))));
    for end in (1..all.len()).rev() {
        for at in 0..end {
            let (this, next) = (&all[at], &all[at + 1]);
            let dearer = cost(this) == Cost::Money && cost(next) != Cost::Money;
            let repairs = replaces_wire(remedy(this)) && repairs_wire(remedy(next));
            if dearer && (repairs || gain(this) < gain(next) * LIKE_GAIN) {
                all.swap(at, at + 1);
            }
        }
    }
}

fn replaces_wire(remedy: Option<Remedy>) -> bool {
    matches!(remedy, Some(Remedy::FasterNetwork | Remedy::Upgrade))
}

fn repairs_wire(remedy: Option<Remedy>) -> bool {
    use Remedy::{BothDirections, FullDuplex, FullRate, FullSpeed, WithoutAdapter, WithoutLosses};
    matches!(remedy, Some(BothDirections | FullDuplex | FullRate | FullSpeed | WithoutAdapter | WithoutLosses))
}

/// Ordered, and without a faster wire that gains no more than a slower one.
pub(crate) fn sort(fixes: &mut Vec<Fix>) {
    order(fixes, Fix::gain, |fix| fix.remedy.cost(), |fix| Some(fix.remedy));
    let mut seen: Vec<(Remedy, usize, f64)> = Vec::new();
    fixes.retain(|fix| {
        let same =
            |s: &(Remedy, usize, f64)| (s.0, s.1) == (fix.remedy, fix.row) && (s.2 / fix.rate_after - 1.0).abs() < 0.02;
        let repeated = seen.iter().any(same);
        seen.push((fix.remedy, fix.row, fix.rate_after));
        !repeated
    });
}
