//! The rates of disks: one by itself, and several as a layout puts them together.

use super::contrast::{SPREAD, differing_properties};
use super::rig::Rig;
use super::stage::Basis;
use super::table::{Direction, Measurement, Pattern, Setup, Table, is_asked_as_hard};
use crate::describe::limits::{DiskKind, Physical};
use crate::describe::{Disk, Layout, Path, RANDOM_BLOCK_BYTES, What};

/// A measurement within this share of a figure confirms it; below, the measured rate replaces the figure.
const CONFIRMS: f64 = 0.95;
/// A rate from this share of a wire's practical rate on is the wire's.
const AT_WIRE: f64 = 0.80;

/// The rate of one disk, as a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub low: f64,
    pub high: f64,
    pub basis: Basis,
}

impl Range {
    fn exactly(rate: f64, basis: Basis) -> Self {
        Self { low: rate, high: rate, basis }
    }
}

pub(super) struct Storage<'a> {
    pub rig: Rig<'a>,
    pub table: &'a Table,
    /// The row that is judged: it is no limit of itself.
    pub at: usize,
    pub measurement: &'a Measurement,
}

impl Storage<'_> {
    fn setup(&self) -> &Setup {
        &self.measurement.setup
    }

    /// One disk by itself: as measured alone, as typed, or as usual of its kind.
    pub(super) fn one(&self, at: usize, what: What) -> Option<Range> {
        let disk = self.rig.disk(at)?;
        let alone = self.measured_alone(at, what);
        if let Some(figure) = disk.rate(what) {
            let figure = self.after_cache(disk, what, figure);
            let figure = self.after_seek(disk, what, figure).min(self.in_order(disk, what));
            let slower = alone.filter(|alone| *alone < figure * CONFIRMS && !self.is_held_by_link(disk, *alone));
            return Some(match slower {
                Some(alone) => Range::exactly(alone, Basis::Measured),
                None => Range::exactly(figure, Basis::Typed),
            });
        }
        if let Some(alone) = alone {
            return Some(Range::exactly(alone, Basis::Measured));
        }
        let physical = disk.kind?.physical();
        let (low, high) = physical.usual(what);
        let most = if what.is_random() { physical.most_bytes_per_s / self.setup().unit_bytes() } else { f64::INFINITY };
        Some(Range { low: low.min(most), high: high.min(most), basis: Basis::Usual })
    }

    /// The best that this disk gave by itself, asked at least as hard and through no more layers.
    fn measured_alone(&self, at: usize, what: What) -> Option<f64> {
        let upper = self.setup();
        let mut asked = upper.clone();
        // All disks together get the requests that one of them gets here, unless each request goes to all.
        let spread = f64::from(upper.disk_count()).max(1.0);
        if !self.layout().is_some_and(Layout::is_raidz) {
            asked.in_flight = upper.in_flight.map(|n| (n / spread).max(1.0));
        }
        let is_this = upper.disks == [(at, 1)];
        let alone = |m: &Measurement| {
            let lower = &m.setup;
            let typed_alone = lower.disks == [(at, 1)] && matches!(lower.layer, Path::Disks | Path::Local);
            // Of two measurements of one disk by itself the lower is no limit of the higher.
            // A repeat of the same measurement is none either.
            let slower = lower.layer == upper.layer && m.rate < self.measurement.rate;
            // Through a filesystem two that are alike are held by the same thing, which need not be the disk.
            let alike = lower.layer == Path::Local && upper.layer == Path::Local;
            let slower = slower || alike && m.rate < self.measurement.rate * SPREAD;
            let repeated = is_this && (slower || differing_properties(lower, upper).is_empty());
            typed_alone && lower.what() == what && lower.layer <= upper.layer && !repeated
        };
        let rows = self.table.others(self.at).map(|(_, m)| m).filter(|m| alone(m));
        rows.filter(|m| is_asked_as_hard(&m.setup, &asked)).map(|m| m.rate).reduce(f64::max)
    }

    /// Whether a shared link held the disk: then its rate says less of the disk than its own figure.
    fn is_held_by_link(&self, disk: &Disk, alone: f64) -> bool {
        let links = self.rig.described.links.iter().filter(|link| disk.via.contains(&link.name));
        let rates = links.map(|link| if self.setup().reads() { link.read } else { link.write });
        rates.reduce(f64::min).is_some_and(|most| alone * self.setup().unit_bytes() >= most * AT_WIRE)
    }

    /// Operations move no more bytes than the disk moves in order.
    fn in_order(&self, disk: &Disk, what: What) -> f64 {
        let physical = disk.kind.map(|kind| kind.physical().most_bytes_per_s);
        let bytes = match what {
            What::RandomRead => disk.read.or(physical),
            // A cache takes writes in any order at its own rate.
            What::RandomWrite if disk.kind.is_none_or(DiskKind::has_fast_cache) => match disk.write_cached {
                Some(cached) => disk.write.map(|write| write.max(cached)).or(physical),
                None => physical,
            },
            What::RandomWrite => disk.write.or(physical),
            What::Read | What::Write => None,
        };
        bytes.map_or(f64::INFINITY, |bytes| bytes / self.setup().unit_bytes())
    }

    /// A hard disk's figure is for 4 KiB: the head moves first, and then a larger block passes under it.
    fn after_seek(&self, disk: &Disk, what: What, figure: f64) -> f64 {
        let more_bytes = self.setup().unit_bytes() - RANDOM_BLOCK_BYTES as f64;
        let turns = disk.kind.is_some_and(DiskKind::turns);
        if !what.is_random() || more_bytes <= 0.0 || !turns {
            return figure;
        }
        let in_order = if what.writes() { disk.write.or(disk.read) } else { disk.read };
        let bytes = in_order.unwrap_or(Physical::of(disk.kind).most_bytes_per_s);
        1.0 / (1.0 / figure + more_bytes / bytes)
    }

    /// A disk with a fast cache writes the beginning of a file faster than the rest.
    fn after_cache(&self, disk: &Disk, what: What, figure: f64) -> f64 {
        let (Some(cache), Some(fast), Some(file)) = (disk.cache_bytes, disk.write_cached, self.measurement.file_bytes)
        else {
            return figure;
        };
        if what != What::Write || fast <= figure {
            return figure;
        }
        let each = file as f64 * self.amplification() / f64::from(self.setup().disk_count()).max(1.0);
        let quick = each.min(cache as f64);
        each / (quick / fast + (each - quick) / figure)
    }

    /// How the disks are put together; nothing where there is one, or where they were loaded side by side.
    pub(super) fn layout(&self) -> Option<Layout> {
        let setup = self.setup();
        (setup.layer != Path::Disks && setup.disk_count() > 1).then_some(setup.shape.layout)
    }

    /// Bytes on the disks for each byte of data: copies and parity, less what compression saves.
    pub(super) fn amplification(&self) -> f64 {
        let setup = self.setup();
        let count = f64::from(setup.disk_count()).max(1.0);
        let written = match self.layout() {
            Some(Layout::Mirror) if setup.writes() => f64::from(setup.shape.copies),
            Some(layout) if setup.writes() => {
                count / (count - f64::from(layout.parity() * setup.shape.groups)).max(1.0)
            }
            _ => 1.0,
        };
        match setup.layer {
            Path::Disks | Path::Net => written,
            Path::Local | Path::Share => written / self.rig.described.compression_ratio,
        }
    }

    /// Rates of single disks as the layout puts them together: (the most, the least that is possible).
    pub(super) fn together(&self, rates: &[(f64, u32)], direction: Direction, pattern: Pattern) -> Option<(f64, f64)> {
        let slowest = rates.iter().map(|(rate, _)| *rate).reduce(f64::min)?;
        let fastest = rates.iter().map(|(rate, _)| *rate).reduce(f64::max)?;
        let sum: f64 = rates.iter().map(|(rate, count)| rate * f64::from(*count)).sum();
        let count = f64::from(self.setup().disk_count());
        let shape = self.setup().shape;
        let (groups, copies) = (f64::from(shape.groups), f64::from(shape.copies));
        let (writes, random) = (direction == Direction::Write, pattern == Pattern::Random);
        let degraded = self.rig.described.degraded;
        let layout = self.layout();
        let parity = layout.map_or(0.0, |layout| f64::from(layout.parity()));
        let (most, least) = match layout.unwrap_or(Layout::Stripe) {
            _ if layout.is_none() => (sum, sum),
            // A file lies on one disk.
            Layout::Linear => (fastest, slowest),
            Layout::Stripe if random => (sum, count * slowest),
            // Every disk has the same part of every byte.
            Layout::Stripe => (count * slowest, count * slowest),
            Layout::Mirror if writes => (copies_at_most(rates, shape.copies), count * slowest / copies),
            Layout::Mirror => {
                let left = if degraded { (count - 1.0) / count } else { 1.0 };
                // One reader of one file may be sent to one copy only.
                let least = if random { count * slowest } else { count * slowest / copies };
                (sum * left, least.min(sum * left))
            }
            // A record lies on every disk of its group, unless it is small.
            layout if layout.is_raidz() && random => {
                let touched = self.disks_of_record(count / groups, layout);
                let all = touched >= count / groups - parity;
                let rate = slowest * if all { groups } else { count / touched };
                (rate, rate)
            }
            // Old data and parity are read before each small write: 4 operations for RAID 5, 6 for RAID 6.
            Layout::Raid5 | Layout::Raid6 if random && writes => {
                let rate = sum / (2.0 + 2.0 * parity);
                (rate, rate)
            }
            Layout::Raid5 | Layout::Raid6 if random => {
                // The missing disk's data is computed from all others.
                let left = if degraded { 0.5 } else { 1.0 };
                (sum * left, (count * slowest).min(sum * left))
            }
            _ => {
                let rate = (count - parity * groups).max(1.0) * slowest;
                (rate, rate)
            }
        };
        let ratio = match self.setup().layer {
            Path::Local | Path::Share if !random => self.rig.described.compression_ratio,
            _ => 1.0,
        };
        Some((most * ratio, least * ratio))
    }

    /// How many disks of a RAIDZ group hold a part of one record, in sectors of 4 KiB.
    fn disks_of_record(&self, disks: f64, layout: Layout) -> f64 {
        let data = (disks - f64::from(layout.parity())).max(1.0);
        let record = self.rig.described.record_bytes;
        let sectors = record.map_or(f64::MAX, |bytes| bytes.div_ceil(4096) as f64);
        sectors.min(data).max(1.0)
    }

    /// Whether each request goes to every disk of a group, so that many requests finish no sooner than one by one.
    pub(super) fn asks_all_disks(&self) -> bool {
        let groups = f64::from(self.setup().shape.groups).max(1.0);
        let disks = f64::from(self.setup().disk_count()) / groups;
        let raidz = self.layout().filter(|layout| layout.is_raidz());
        raidz.is_some_and(|layout| self.disks_of_record(disks, layout) >= disks - f64::from(layout.parity()))
    }

    /// The disk's figure is what its own wire carries, and every disk of its kind does more: the wire's figure.
    pub(super) fn is_figure_of_port(&self, at: usize, what: What) -> bool {
        let Some(disk) = self.rig.disk(at) else { return false };
        let Some(wire) = disk.connection.as_ref().filter(|_| !what.is_random()) else { return false };
        let figure = self.one(at, what).filter(|range| range.basis != Basis::Usual);
        let near = |range: Range| range.high >= wire.practical * AT_WIRE && range.high <= wire.line;
        figure.is_some_and(near) && least_of_kind(disk, what) > wire.line
    }
}

/// The rate of the slowest disk of its kind without any wire; a hard disk's rate for an unknown kind.
pub(super) fn least_of_kind(disk: &Disk, what: What) -> f64 {
    disk.kind.unwrap_or(DiskKind::Hdd).physical().usual(what).0
}

/// The most of which every byte reaches as many disks as there are copies. The fastest k disks hold a whole copy each,
/// and the others share the remaining copies.
fn copies_at_most(rates: &[(f64, u32)], copies: u32) -> f64 {
    let mut each: Vec<f64> = rates.iter().flat_map(|(rate, n)| std::iter::repeat_n(*rate, *n as usize)).collect();
    each.sort_by(|a, b| b.total_cmp(a));
    let others = |k: u32| each.iter().skip(k as usize).sum::<f64>() / f64::from(copies - k);
    (0..copies.max(1)).map(others).fold(f64::INFINITY, f64::min)
}
