//! larder measures storage, and says what limits it.
//!
//! `bench/`     Runs the loads of larder-load from the disk up, keeps the results and shows them.
//! `describe/`  A box, as a person or a bench describes it; limits of the kinds of disks.
//! `live/`      What limits a connection of a client, by what it waited for.
//! `reason/`    The bottleneck of a box: one chain, three kinds of evidence, one ranking, remedies.
//! `doctor/`    The sources of that reasoning and its answer in words.
//! `stats.rs`   Spread, significance and resampling of repeats.
#![forbid(unsafe_code)]

pub mod bench;
#[cfg(test)]
mod boxes;
pub(crate) mod describe;
pub mod doctor;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod live;
mod reason;
pub(crate) mod stats;

use larder_facts::Machine;

#[cfg(test)]
#[path = "../../facts/src/machine/fixture.rs"]
mod fixture;
