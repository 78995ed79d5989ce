//! Running costs of the box: watts, kilowatt-hours, money.
//!
//! `source/` reads watts from any meter; `meter.rs` makes energy of them, and `watch.rs` keeps to one meter; `profile.rs`
//! has watts of a day and energy of a year; `tariff.rs` makes money of energy. `report.rs`, `compare.rs` and `whatif.rs`
//! answer questions with that; `awake.rs` finds the processes that keep disks and processor from sleeping.
//!
//! - `power.origin_shown`: a figure says where it comes from: measured at the wall, measured of a part, typed in, or
//!   estimated. An estimate is called one wherever it is shown, and so is everything computed from it.
//! - `power.parts_are_no_whole`: the watts of a processor are never shown as those of the machine.
//! - `power.rounded_when_shown`: a year has 8760 hours, a week 168. Money is rounded when it is shown, never before.

mod awake;
mod compare;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod meter;
mod profile;
mod report;
mod source;
mod tariff;
mod watch;
mod whatif;

pub use awake::{Activity, AwakeReport, DiskActivity, ProcessActivity, Snapshot, WakeUp, moved_bytes};
pub use compare::{Comparison, compare};
pub use meter::{Meter, Summary};
pub use profile::{HOURS_PER_YEAR, Profile, kwh_per_year};
pub use report::{PowerReport, ReportInput, report};
pub use source::{
    Basis, Login, PartSpec, Reading, Readout, Scope, SourceError, SourceSpec, Sources, Total, ups_variable,
};
pub use tariff::{BadTariff, Tariff, Window};
pub use watch::Watch;
pub use whatif::{Choice, Setting, WATTS_MAX, WhatIf, absurd_watts, check_settings, parse_setting, what_if};
