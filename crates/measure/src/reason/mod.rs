//! What limits a box, reasoned from one table of measurements and one chain of stages.
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
mod chain;
mod contrast;
mod disks;
mod doubt;
mod evidence;
mod headline;
mod remedies;
mod rig;
mod table;
mod verdict;

#[cfg(test)]
mod tests;

pub(crate) use chain::{Basis, Stage, chain};
pub(crate) use contrast::{Contrast, Property, contrasts};
pub(crate) use evidence::Evidence;
pub(crate) use headline::asked_about;
pub(crate) use remedies::{Cost, FIXES_MAX, Fix, REMEDIES, Remedy, fixes};
pub(crate) use rig::{End, ResourceId, ResourceKind, Rig};
pub(crate) use table::{Direction, Measurement, Pattern, Setup, Table, Usage};
pub(crate) use verdict::{Confidence, Verdict, judge};
