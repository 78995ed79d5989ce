//! Contrasts: two measurements that differ in exactly one property.
//!
//! A single difference between two rows is the reason for their different rates. A property that either row leaves open
//! does not count as different, because nobody said that it was.

use serde::Serialize;

use super::table::{Measurement, Setup, Table};
use crate::stats;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    Layer,
    Direction,
    Pattern,
    Block,
    InFlight,
    Sync,
    /// Many small files instead of a large one.
    SmallFiles,
    /// Reads and writes mixed, or not.
    Mix,
    Caches,
    Disks,
    Layout,
    Client,
    Program,
    Server,
    Encryption,
    /// The load of cores meanwhile: nobody watched it.
    CoresWatched,
    ClientCoresWatched,
    /// At which standard the ends of a wire agreed.
    Negotiated,
    /// How long a packet takes there and back.
    RoundTrip,
    /// How large records are.
    Record,
    /// Which of both ends it is: one of them watched, or another in its place.
    Ends,
    /// In how many pieces a file lies on its disk.
    Pieces,
    /// The other port, cable or enclosure of a disk.
    Port,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contrast {
    pub property: Property,
    pub row: usize,
    /// The other rate, as a multiple of this one.
    pub ratio: f64,
}

/// Rates of two runs differ by less without a reason, where nobody repeated them. Repeats prove smaller differences.
pub(crate) const SPREAD: f64 = 1.20;

/// All rows that differ from one in exactly one property and beyond the spread, the largest difference first.
pub(crate) fn contrasts(table: &Table, at: usize) -> Vec<Contrast> {
    let Some(this) = table.rows.get(at) else { return Vec::new() };
    let mut found: Vec<Contrast> = table.others(at).filter_map(|(row, other)| contrast(this, row, other)).collect();
    let difference = |c: &Contrast| c.ratio.max(1.0 / c.ratio);
    found.sort_by(|a, b| difference(b).total_cmp(&difference(a)));
    found
}

fn contrast(this: &Measurement, row: usize, other: &Measurement) -> Option<Contrast> {
    let property = match differing_properties(&this.setup, &other.setup).as_slice() {
        [only] => *only,
        // Another client has its own programs.
        [Property::Client, Property::Program] => Property::Client,
        // Another program has its own encryption.
        [Property::Program, Property::Encryption] => Property::Program,
        _ => return None,
    };
    // Bytes and operations are not compared as such.
    let ratio = match property {
        Property::Pattern | Property::Block => other.bytes_per_s() / this.bytes_per_s(),
        _ => other.rate / this.rate,
    };
    let typed = || ratio >= SPREAD || ratio <= 1.0 / SPREAD;
    let same_unit = !matches!(property, Property::Pattern | Property::Block);
    let proved = stats::differ(&this.sample, &other.sample).filter(|_| same_unit);
    let beyond = proved.unwrap_or_else(typed);
    beyond.then_some(Contrast { property, row, ratio })
}

pub(crate) fn differing_properties(a: &Setup, b: &Setup) -> Vec<Property> {
    fn both<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
        matches!((a, b), (Some(a), Some(b)) if a != b)
    }
    let differs = [
        (Property::Layer, a.layer != b.layer),
        (Property::Direction, a.direction != b.direction),
        (Property::Pattern, a.pattern != b.pattern),
        (Property::Block, both(&a.block_bytes, &b.block_bytes)),
        (Property::InFlight, both(&a.in_flight, &b.in_flight)),
        (Property::Sync, a.sync != b.sync),
        (Property::SmallFiles, a.small_files != b.small_files),
        (Property::Mix, a.reads_percent != b.reads_percent),
        (Property::Caches, both(&a.caches, &b.caches)),
        (Property::Disks, a.disks != b.disks),
        (Property::Layout, a.shape != b.shape),
        (Property::Client, a.client != b.client),
        // A program without a name is another one.
        (Property::Program, a.program != b.program),
        (Property::Server, a.server != b.server),
        (Property::Encryption, a.encryption != b.encryption),
        (Property::Port, a.port != b.port),
    ];
    differs.into_iter().filter_map(|(property, differs)| differs.then_some(property)).collect()
}
