//! larder measures storage, and says what limits it.
//!
//! `bench/`     Runs the loads of larder-load from the disk up, and keeps and shows what came of it.
//! `reason/`    What limits a box: one chain, three kinds of evidence, one ranking, remedies.
//! `doctor/`    The sources of that reasoning and its answer in words.
#![forbid(unsafe_code)]

pub mod bench;
#[cfg(test)]
mod boxes;
pub mod doctor;
mod reason;

use larder_facts::Machine;

#[cfg(test)]
#[path = "../../facts/src/machine/fixture.rs"]
mod fixture;
