//! The bottleneck of a box, reasoned from one table of measurements and one chain of stages.
//!
//! A byte crosses resources on its way from a disk to a client: the disks, their ports, the links that they share,
//! processors, the network, the client. [`chain()`] says what each of them allows for one setup. A measurement beside
//! its chain leaves evidence of three kinds, and [`verdict::RANKING`] orders it:
//!
//! `reason.reached`   The measurement is near the lowest limit of its chain, or at a slower mode of a resource.
//! `reason.busy`      A resource had no time left: a core, a disk, a quota, a host that took its part.
//! `reason.contrast`  Another measurement differs in exactly one property and gave a different rate.
//!
//! The strongest evidence names the resource. Without any, the verdict names the property that nobody has varied yet:
//! that is the next measurement to take. A rate above a limit by more than the slack of that limit's basis is a
//! contradiction, and then nothing is concluded from this measurement.
//!
//! Everything here works on ids and numbers. Names and sentences are made last, and nothing reads them back.

mod bounds;
mod case;
mod chain;
mod contrast;
mod disks;
mod doubt;
mod evidence;
mod headline;
mod plan;
mod remedies;
mod rig;
mod stage;
mod table;
mod verdict;

#[cfg(test)]
mod tests;

pub use bounds::Misfit;
pub(crate) use case::CORE_FULL_PERCENT;
pub(crate) use chain::chain;
pub use contrast::Property;
pub(crate) use contrast::{Contrast, SPREAD, contrasts, differing_properties};
pub(crate) use doubt::{Doubt, MISLEADING};
pub use evidence::{Evidence, Mode, Use};
pub(crate) use headline::asked_about;
pub(crate) use plan::expected;
pub use remedies::{Cost, Remedy};
pub(crate) use remedies::{FIXES_MAX, Fix, MORE_REQUESTS, fixes, in_another_rig, order, rate_of_full_core, sort};
pub(crate) use rig::Rig;
pub use rig::{End, ResourceId, ResourceKind};
pub use stage::{Basis, Stage};
pub(crate) use table::{Measurement, Table};
pub use verdict::Confidence;
pub(crate) use verdict::{Verdict, judge};
