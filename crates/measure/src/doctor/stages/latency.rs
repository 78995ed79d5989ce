//! Requests in flight, each of which takes its time: Little's law.

use super::{Basis, Stage, StageKind};
use crate::doctor::describe::{Described, Disk, Measured, Path, What};
use crate::doctor::limits::BOT;

/// What flash behind a bridge answers when it is asked one thing at a time: each waits for command, data and status.
const BULK_ONLY_RANDOM: (f64, f64) = (1500.0, 10e3);

/// A bridge that speaks Bulk-Only Transport gives its disk the next command when the last is done (USB Mass Storage
/// Class, Bulk-Only Transport 1.0, 5.3).
pub(super) fn bulk_only(measured: &Measured, used: &[(&Disk, u32)]) -> Option<Stage> {
    let bridged = |disk: &Disk| disk.connection.as_ref().is_some_and(|w| w.name.ends_with(BOT));
    let turns = |disk: &Disk| disk.kind.is_none_or(|kind| kind.turns());
    let timed =
        |disk: &Disk| disk.latency_s.is_some() || disk.rate(measured.what).is_some_and(|r| r < BULK_ONLY_RANDOM.1);
    let bound = measured.what.is_random() && used.iter().any(|(d, _)| bridged(d) && !turns(d) && !timed(d));
    bound.then_some(())?;
    let all = f64::from(super::count(used));
    let why = "Bulk-Only Transport has one command under way, whatever the depth";
    let mut stage =
        Stage::new(StageKind::Latency, "one command at a time (BOT)", BULK_ONLY_RANDOM.1 * all, Basis::Usual).why(why);
    stage.capacity_low = BULK_ONLY_RANDOM.0 * all;
    Some(stage)
}

/// How many are in flight divided by how long one takes is how many are done each second (J. D. C. Little, 1961).
pub(super) fn latency(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Option<Stage> {
    let mut in_flight = measured.how.in_flight?;
    // The bytes of a sequential request are only known when they are said: a cache reads ahead in its own steps.
    let bytes = match measured.what.is_random() {
        true => 1.0,
        false => measured.how.block_bytes? as f64,
    };
    let bulk_only = used.iter().any(|(d, _)| d.connection.as_ref().is_some_and(|w| w.name.ends_with(BOT)));
    if bulk_only && measured.path != Path::Net {
        in_flight = in_flight.min(f64::from(super::count(used)));
    }
    let slowest = |time: fn(&Disk) -> Option<f64>| used.iter().filter_map(|(disk, _)| time(disk)).reduce(f64::max);
    let disk = match measured.path {
        Path::Net => None,
        _ if measured.how.sync && measured.what.writes() => slowest(|d| d.flush_s).or(slowest(|d| d.latency_s)),
        // Writes that nobody waits for are gathered in memory.
        _ if measured.what == What::Write => None,
        _ => slowest(|d| d.latency_s),
    };
    let wire = described.network.as_ref().and_then(|n| n.round_trip_s).filter(|_| measured.path == Path::Share);
    let waits = disk.unwrap_or(0.0) + wire.unwrap_or(0.0);
    if waits == 0.0 {
        return None;
    }
    let each = waits + transfer(described, measured, used, in_flight);
    let requests = if in_flight == 1.0 {
        "one request at a time".to_owned()
    } else {
        format!("{in_flight:.0} requests in flight")
    };
    let name = match bulk_only {
        true => format!("one command at a time (BOT), each {}", words(each)),
        false => format!("{requests}, each {}", words(each)),
    };
    let why = "Little's law: requests in flight / time of each = requests per second";
    Some(Stage::new(StageKind::Latency, name, in_flight / each * bytes, Basis::Derived).why(why))
}

/// What waits for its flush before the next is sent has the wire and the disks one after the other.
fn transfer(described: &Described, measured: &Measured, used: &[(&Disk, u32)], in_flight: f64) -> f64 {
    let alone = in_flight == 1.0 && measured.how.sync && measured.what == What::Write;
    let Some(block) = measured.how.block_bytes.filter(|_| alone) else { return 0.0 };
    let disks = super::disks::disks(described, measured, used).filter(|s| s.basis != Basis::Usual);
    let wire = described.network.as_ref().filter(|_| measured.path == Path::Share).map(|n| n.bytes_per_s);
    [disks.map(|s| s.capacity), wire].into_iter().flatten().map(|rate| block as f64 / rate).sum()
}

fn words(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}
