//! Requests in flight, each of which takes its time: Little's law.

use super::{Basis, Stage, StageKind};
use crate::doctor::describe::{Described, Disk, Measured, Path, What};

/// How many are in flight divided by how long one takes is how many are done each second (J. D. C. Little, 1961).
pub(super) fn latency(described: &Described, measured: &Measured, used: &[(&Disk, u32)]) -> Option<Stage> {
    let mut in_flight = measured.how.in_flight?;
    // The bytes of a sequential request are only known when they are said: a cache reads ahead in its own steps.
    let bytes = match measured.what.is_random() {
        true => 1.0,
        false => measured.how.block_bytes? as f64,
    };
    let bulk_only = used.iter().any(|(d, _)| d.connection.as_ref().is_some_and(|w| w.name.contains("BOT")));
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
    let each = disk.unwrap_or(0.0) + wire.unwrap_or(0.0);
    if each == 0.0 {
        return None;
    }
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

fn words(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}
