//! A stage of the chain: a resource, its limit, and the basis of that limit.

use serde::Serialize;

use super::rig::ResourceId;

/// The basis of a limit, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    Measured,
    Typed,
    /// From a standard's name, or computed from times and depths.
    Standard,
    /// The usual range of such a thing.
    Usual,
    /// A bound that no such thing exceeds: it finds contradictions, and caps nothing.
    Physics,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    pub resource: ResourceId,
    /// How often a byte of data crosses it.
    pub crossings: f64,
    /// Bytes or operations per second.
    pub limit: f64,
    /// The lower end, where the limit is a range.
    pub limit_low: f64,
    pub basis: Basis,
    /// The row of the table that gave the limit.
    pub row: Option<usize>,
    /// A wait for a flush, a window or a request: read-ahead and write-behind exceed it unless they cannot.
    pub strict: bool,
}

impl Stage {
    pub(super) fn new(resource: ResourceId, limit: f64, basis: Basis) -> Self {
        Self { resource, crossings: 1.0, limit, limit_low: limit, basis, row: None, strict: true }
    }

    /// Whether the limit is measured further down on the same way.
    pub(crate) fn is_below(&self) -> bool {
        self.row.is_some()
    }

    pub(crate) fn is_range(&self) -> bool {
        self.limit_low < self.limit
    }
}
