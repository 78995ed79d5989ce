//! A remedy, applied to the description.

use super::catalogue::Remedy;
use crate::describe::{Described, What};
use crate::reason::rig::{End, ResourceId, Rig};
use crate::reason::stage::{Basis, Stage};
use crate::reason::table::{Measurement, Setup, Table};
use crate::reason::verdict::Verdict;

/// Fixes with less gain are not worth a person's time.
pub(super) const GAIN_MIN: f64 = 1.05;

/// A change of the rig.
pub(super) struct Change {
    pub(super) remedy: Remedy,
    pub(super) after: Described,
    /// How it would be measured then.
    pub(super) setup: Setup,
    /// Rows that crossed one of these say nothing any more.
    pub(super) touched: Vec<ResourceId>,
    /// Rows of single disks stay: only the number or the layout of the disks changed.
    pub(super) keeps_single_disks: bool,
    pub(super) relieves: Vec<End>,
    /// A bound of the remedy itself.
    pub(super) at_most: f64,
    pub(super) thing: Option<String>,
}

pub(super) struct Sick<'a> {
    pub(super) rig: Rig<'a>,
    pub(super) table: &'a Table,
    pub(super) row: usize,
    pub(super) measurement: &'a Measurement,
    pub(super) verdict: &'a Verdict,
}

impl Sick<'_> {
    pub(super) fn change(&self, remedy: Remedy, touched: &[ResourceId]) -> Change {
        Change {
            remedy,
            after: self.rig.described.clone(),
            setup: self.measurement.setup.clone(),
            touched: touched.to_vec(),
            keeps_single_disks: false,
            relieves: Vec::new(),
            at_most: f64::INFINITY,
            thing: None,
        }
    }

    pub(super) fn at_most(&self, remedy: Remedy, touched: &[ResourceId], at_most: f64) -> Change {
        Change { at_most, ..self.change(remedy, touched) }
    }

    pub(super) fn rate(&self) -> f64 {
        self.measurement.rate
    }

    pub(super) fn what(&self) -> What {
        self.measurement.setup.what()
    }

    pub(super) fn rate_of(&self, row: usize) -> f64 {
        self.table.rows.get(row).map_or(f64::INFINITY, |m| m.rate)
    }

    pub(super) fn disk_limit(&self) -> f64 {
        let stages = self.verdict.stages.iter().filter(|s| s.resource == ResourceId::Disks && !s.is_below());
        stages.map(|s| s.limit).fold(f64::INFINITY, f64::min)
    }

    /// The row that gave the lowest limit of the chain, where it was measured further down.
    pub(super) fn row_below(&self) -> Option<usize> {
        let known = |stage: &&Stage| stage.basis != Basis::Usual;
        self.verdict.stages.iter().find(known)?.row
    }
}
