//! One measurement, with all that is known of it.

use super::chain::cores_of;
use super::contrast::{Contrast, Property};
use super::disks::Storage;
use super::rig::{End, ResourceId, ResourceKind, Rig};
use super::stage::{Basis, Stage};
use super::table::{Measurement, Table};
use crate::describe::limits::DiskKind;
use crate::describe::{Disk, Path};

/// A core this busy has no more to give.
pub(crate) const CORE_FULL_PERCENT: f64 = 95.0;

/// A row of the table, its chain and its contrasts.
pub(super) struct Case<'a> {
    pub rig: Rig<'a>,
    pub table: &'a Table,
    pub at: usize,
    pub measurement: &'a Measurement,
    pub stages: Vec<Stage>,
    pub contrasts: Vec<Contrast>,
}

impl<'a> Case<'a> {
    pub(super) fn rate(&self) -> f64 {
        self.measurement.rate
    }

    pub(super) fn storage(&self) -> Storage<'a> {
        Storage { rig: self.rig, table: self.table, at: self.at, measurement: self.measurement }
    }

    pub(super) fn disks(&self) -> Vec<(&'a Disk, u32)> {
        self.rig.disks(&self.measurement.setup.disks)
    }

    pub(super) fn disk_count(&self) -> f64 {
        f64::from(self.measurement.setup.disk_count())
    }

    pub(super) fn layer(&self) -> Path {
        self.measurement.setup.layer
    }

    pub(super) fn is_remote(&self) -> bool {
        self.measurement.setup.is_remote()
    }

    pub(super) fn writes_to_disks(&self) -> bool {
        self.layer() != Path::Net && self.measurement.setup.writes()
    }

    pub(super) fn full_cores(&self, end: End) -> usize {
        cores_of(self.measurement, end).iter().filter(|busy| **busy >= CORE_FULL_PERCENT).count()
    }

    pub(super) fn has_full_core(&self) -> bool {
        self.full_cores(End::Server) + self.full_cores(End::Client) > 0
    }

    pub(super) fn busiest(&self, end: End) -> Option<f64> {
        cores_of(self.measurement, end).iter().copied().reduce(f64::max)
    }

    /// The lowest limit that is known.
    pub(super) fn lowest(&self) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.basis != Basis::Usual)
    }

    /// Whether disks, or what was measured of them, are the narrowest of what is known.
    pub(super) fn stands_at_disks(&self) -> bool {
        let first = self.stages.first().map(|stage| self.rig.kind(stage.resource));
        matches!(first, None | Some(ResourceKind::Disks | ResourceKind::Link))
    }

    pub(super) fn disk_stage(&self) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.resource == ResourceId::Disks && !stage.is_below())
    }

    pub(super) fn known_disk_stage(&self) -> Option<&Stage> {
        self.disk_stage().filter(|stage| stage.basis != Basis::Usual)
    }

    /// Whether a core or a disk was seen to be busy.
    pub(super) fn is_watched_and_busy(&self) -> bool {
        /// From here on short waits hide the rest.
        const BUSY_PERCENT: f64 = 85.0;
        [End::Server, End::Client].into_iter().any(|end| self.busiest(end).is_some_and(|busy| busy >= BUSY_PERCENT))
    }

    pub(super) fn all_turn(&self) -> bool {
        let disks = self.disks();
        !disks.is_empty() && disks.iter().all(|(disk, _)| disk.kind.is_some_and(DiskKind::turns))
    }

    /// The strongest contrast in one property in which the other row was faster by this factor.
    pub(super) fn faster(&self, property: Property, factor: f64) -> Option<Contrast> {
        self.contrasts.iter().find(|c| c.property == property && c.ratio >= factor).copied()
    }

    /// Rows over the same network and client.
    pub(super) fn over_this_wire(&self) -> impl Iterator<Item = &'a Measurement> + '_ {
        let client = self.measurement.setup.client;
        let rows = self.table.rows.iter().filter(|m| m.doubt.is_none());
        rows.filter(move |m| m.setup.is_remote() && m.setup.client == client)
    }

    /// The wire alone in the other direction, where it carries this many times the rate.
    pub(super) fn other_direction(&self, factor: f64) -> Option<&'a Measurement> {
        let rate = self.measurement.bytes_per_s();
        let other = |m: &&Measurement| {
            m.setup.layer == Path::Net
                && m.setup.direction != self.measurement.setup.direction
                && m.rate >= rate * factor
        };
        self.over_this_wire().filter(other).max_by(|a, b| a.rate.total_cmp(&b.rate))
    }
}
