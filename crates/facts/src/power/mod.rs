//! What the box costs to run: watts, kilowatt-hours, money.
//!
//! `source/` reads watts from whatever there is; `meter.rs` makes energy of them; `watch.rs` keeps to one meter; `tariff.rs` makes money of energy;
//! `report.rs`,
//! `compare.rs` and `whatif.rs` answer questions with that; `awake.rs` finds who keeps disks and processor from
//! sleeping.
//!
//! W1. A figure says where it comes from: measured at the wall, measured of a part, typed in, or estimated. What is
//!     estimated is called so wherever it is shown, and so is everything computed from it.
//! W2. Parts are not a whole: watts of a processor are never shown as those of the machine.
//! W3. A year has 8760 hours, a week 168. Money is rounded when it is shown, never before.

mod awake;
mod compare;
mod meter;
mod report;
mod source;
mod tariff;
mod watch;
mod whatif;

pub use awake::{Activity, AwakeReport, DiskActivity, ProcessActivity, Snapshot, WakeUp, moved_bytes};
pub use compare::{Comparison, compare};
pub use meter::{Meter, Summary};
pub use report::{PowerReport, ReportInput, report};
pub use source::{Basis, Login, PartSpec, Reading, Readout, Scope, SourceError, SourceSpec, Sources, Total};
pub use tariff::{BadTariff, Tariff, Window};
pub use watch::Watch;
pub use whatif::{Choice, Setting, WATTS_MAX, WhatIf, absurd_watts, check_settings, parse_setting, what_if};

use serde::Serialize;

pub const HOURS_PER_YEAR: f64 = 8760.0;
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Watts idle and under load, and how long a day has load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub idle_watts: f64,
    pub load_watts: f64,
    pub load_hours_per_day: f64,
    /// Whether any of it is a guess (W1).
    pub estimated: bool,
}

impl Profile {
    /// Averaged over a day.
    pub fn mean_watts(&self) -> f64 {
        let load = (self.load_hours_per_day / 24.0).clamp(0.0, 1.0);
        self.idle_watts * (1.0 - load) + self.load_watts * load
    }
}

/// Kilowatt-hours of constant watts over a year.
pub fn kwh_per_year(watts: f64) -> f64 {
    watts * HOURS_PER_YEAR / 1000.0
}
