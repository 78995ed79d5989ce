//! A figure in watts, with its origin.

use serde::Serialize;

/// The part of the machine that the watts belong to, the best for its total first (`power.parts_are_no_whole`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything that hangs on the plug, losses of the power supply included.
    Outlet,
    /// The machine behind its power supply.
    Board,
    /// A processor, a graphics card, a rail.
    Part,
}

/// The origin of a figure, the most reliable first (`power.origin_shown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    Measured,
    Typed,
    Estimated,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub source: String,
    /// The measured thing, in words.
    pub of: String,
    pub scope: Scope,
    pub basis: Basis,
    pub watts: f64,
    /// Since the meter was reset, where it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_wh: Option<f64>,
}

/// The machine as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total {
    pub watts: f64,
    pub source: String,
    pub scope: Scope,
    pub basis: Basis,
}
