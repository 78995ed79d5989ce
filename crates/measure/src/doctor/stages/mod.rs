//! The stages that a measured byte passes, and what each could do.
//!
//! Each file has stages of one kind: `disks.rs`, `links.rs`, `network.rs` (wire and client), `latency.rs`, `below.rs` (what
//! was measured further down). A capacity is a figure given, one derived from a wire's name, one measured below, or
//! what is usual of such a thing: the last proves less.

use serde::Serialize;

use super::describe::{Described, Disk, Layout, Measured, Path, Side, Work};
use super::limits::Wire;

mod below;
mod disks;
mod latency;
mod links;
mod network;

pub(super) use below::{SIDE_BY_SIDE, asked_as_hard, comparable};
pub(super) use disks::{Slowest, allows_at_most, figure_of_wire, slowest, takes_all, through_wire, without_wire};
pub(super) use links::{figure_of_link, link_of};
pub(super) use network::{WINDOW, client_of, slower_rung};

/// So close to a capacity a measurement is at its end: protocols and gaps take the rest.
pub const PROOF_SHARE: f64 = 0.80;
/// So close there is nothing left for a busy core to have taken.
pub const FULL_SHARE: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StageKind {
    Disks,
    Link,
    Network,
    /// Requests in flight, each with its time.
    Latency,
    /// What a processor has to do with each byte.
    Processor,
    Client,
    /// Disks and pool as they were measured on the machine itself.
    Storage,
}

/// How a capacity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    Given,
    /// From a wire's name, or from times and depths.
    Derived,
    Measured,
    /// What is usual: a range, of which `capacity` is the upper end.
    Usual,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    pub kind: StageKind,
    pub name: String,
    /// Bytes (or operations) per second of what was asked for.
    pub capacity: f64,
    /// The lower end, where it is a range.
    pub capacity_low: f64,
    pub basis: Basis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Stage {
    fn new(kind: StageKind, name: impl Into<String>, capacity: f64, basis: Basis) -> Self {
        Self { kind, name: name.into(), capacity, capacity_low: capacity, basis, why: None }
    }

    fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Operations instead of bytes, where those were counted.
    fn per(mut self, measured: &Measured) -> Self {
        if measured.what.is_random() {
            let block = measured.block_bytes().unwrap_or(1) as f64;
            self.capacity /= block;
            self.capacity_low /= block;
        }
        self
    }
}

/// All stages whose capacity is known, the lowest first.
pub(super) fn stages(described: &Described, measured: &Measured) -> Vec<Stage> {
    let used = used(described, measured);
    let mut stages = Vec::new();
    if measured.path != Path::Net {
        stages.extend(disks::disks(described, measured, &used));
        stages.extend(disks::connections(described, measured, &used));
        stages.extend(disks::records(described, measured, &used));
    }
    stages.extend(work(described, measured));
    stages.extend(links::links(described, measured, &used));
    stages.extend(network::network(described, measured));
    stages.extend(latency::latency(described, measured, &used));
    if measured.path != Path::Net {
        stages.extend(latency::bulk_only(measured, &used));
    }
    stages.extend(below::below(described, measured));
    stages.retain(|s| s.capacity.is_finite() && s.capacity > 0.0);
    if let [(disk, 1)] = used.as_slice() {
        links::name_link(described, measured, disk, &mut stages);
    }
    // Of two alike the wire is named: it can be changed.
    let rank = |s: &Stage| u8::from(s.kind == StageKind::Disks);
    stages.sort_by(|a, b| a.capacity.total_cmp(&b.capacity).then(rank(a).cmp(&rank(b))));
    stages
}

/// The disks that took part, with their numbers; none where they are another machine's.
pub(super) fn used<'a>(described: &'a Described, measured: &Measured) -> Vec<(&'a Disk, u32)> {
    if measured.how.elsewhere.is_some() {
        return Vec::new();
    }
    let taken = |disk: &'a Disk| match measured.disks.is_empty() {
        true => Some((disk, disk.count)),
        false => {
            let count: u32 = measured.disks.iter().filter(|(name, _)| *name == disk.name).map(|(_, n)| *n).sum();
            (count > 0).then_some((disk, count))
        }
    };
    described.disks.iter().filter_map(taken).collect()
}

pub(super) fn count(used: &[(&Disk, u32)]) -> u32 {
    used.iter().map(|(_, count)| count).sum()
}

/// Single disks and disks side by side have no layout.
pub(super) fn layout(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Option<Layout> {
    (measured.path != Path::Disks && count(used) > 1).then_some(described.shape(measured).layout)
}

/// Bytes on the disks for each byte of data: copies and parity, less what compression saves.
fn amplified(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> f64 {
    let n = f64::from(count(used)).max(1.0);
    let (shape, layout) = (described.shape(measured), layout(described, measured, used));
    let written = match layout {
        _ if !measured.what.writes() => 1.0,
        Some(Layout::Mirror) => f64::from(shape.copies),
        Some(layout) => n / (n - f64::from(layout.parity() * shape.groups)).max(1.0),
        None => 1.0,
    };
    match measured.path {
        Path::Disks | Path::Net => written,
        Path::Local | Path::Share => written / described.compression_ratio,
    }
}

/// What both ends of a wire can, where they agreed on less.
fn although(could: Option<&Wire>) -> String {
    could.map_or(String::new(), |wire| format!(" (negotiated, although both ends can {})", wire.name))
}

/// Whether a measurement passes this work.
fn passes(work: &Work, measured: &Measured) -> bool {
    let path = match work.paths.is_empty() {
        true => measured.path == Path::Share || (measured.path == Path::Local && work.at == Side::Server),
        false => work.paths.contains(&measured.path),
    };
    path && (work.of.is_empty() || work.of.contains(&measured.what))
}

/// Rates per core are rounded, and samples are.
const WORK_SEEN: f64 = 0.8;

/// Cores that did less than such work takes at this rate: it takes less than is described.
pub(super) fn cheaper_than_said(work: &Work, measured: &Measured) -> bool {
    let cores = if work.at == Side::Server { &measured.cores_percent } else { &measured.how.client_cores };
    let needed = measured.bytes_per_s() / (work.bytes_per_s / f64::from(work.cores));
    let seen = cores.iter().sum::<f64>() / 100.0;
    !cores.is_empty() && passes(work, measured) && seen < needed * WORK_SEEN
}

/// Ciphers, compressors and checksums.
fn work<'a>(described: &'a Described, measured: &'a Measured) -> impl Iterator<Item = Stage> + 'a {
    let known = |work: &&Work| passes(work, measured) && !cheaper_than_said(work, measured);
    described.work.iter().filter(known).map(move |work| {
        let (at, kind) = match work.at {
            Side::Server => ("", StageKind::Processor),
            Side::Client => (" at the client", StageKind::Client),
        };
        let cores = if work.cores == 1 { "one core".to_owned() } else { format!("{} cores", work.cores) };
        Stage::new(kind, format!("{}{at} on {cores}", work.name), work.bytes_per_s, Basis::Given).per(measured)
    })
}
