//! Watts of a day, and energy of a year.

use serde::Serialize;

pub const HOURS_PER_YEAR: f64 = 8760.0;
pub(super) const SECONDS_PER_HOUR: f64 = 3600.0;

/// Watts idle and under load, and how long a day has load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub idle_watts: f64,
    pub load_watts: f64,
    pub load_hours_per_day: f64,
    /// Whether any of it is a guess (`power.origin_shown`).
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
