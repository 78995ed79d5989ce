//! Figures that look like waiting: for a flush, for the request before, for the one connection, for the one copy.

use larder_base::units::ByteSize;

use super::{Case, MUCH, at_disks, nearly, over_network, said, stands_at_disks};
use crate::doctor::describe::{Caching, Disk, Layout, Measured, Path, What};
use crate::doctor::limits::DiskKind;
use crate::doctor::misleading::misleading;
use crate::doctor::stages::{PROOF_SHARE, StageKind, count, layout, takes_all, used};
use crate::doctor::words::{bytes_words, rate_words};

/// A disk with capacitors answers a flush in a few hundredths of this.
const FLUSH_FLASH_S: f64 = 0.2e-3;
/// So many in flight or more were meant to keep something busy.
const DEEP: f64 = 4.0;
/// Figures that belong together, rounded.
const ABOUT: std::ops::RangeInclusive<f64> = 0.7..=1.3;

/// Operations a second, where their size is known.
fn per_s(measured: &Measured) -> Option<f64> {
    match measured.what.is_random() {
        true => Some(measured.rate),
        false => Some(measured.rate / measured.how.block_bytes? as f64),
    }
}

/// What the network adds to each request.
fn round_trip_s(case: &Case) -> f64 {
    let trip = case.described.network.as_ref().and_then(|n| n.round_trip_s);
    trip.filter(|_| case.measured.path == Path::Share).unwrap_or(0.0)
}

/// Each write waits until it is durable, and nobody said how long that takes.
pub(super) fn flush(case: &Case) -> Option<(String, String)> {
    let how = &case.measured.how;
    let disks = used(case.described, case.measured);
    let unsaid = disks.iter().all(|(disk, _)| disk.flush_s.is_none());
    let busy = nearly(&case.measured.cores_percent).is_some();
    (how.sync && at_disks(case) && unsaid && !busy && how.elsewhere.is_none()).then_some(())?;
    let each = how.in_flight.unwrap_or(1.0) / per_s(case.measured)? - round_trip_s(case);
    let turns = |disk: &Disk| disk.kind.is_some_and(DiskKind::turns);
    let (least, why) = match disks.iter().any(|(disk, _)| turns(disk)) {
        true => (
            DiskKind::Hdd.physical().least_latency_s,
            "a hard disk's flush waits for its head and half a turn or more, 5 to 25 ms",
        ),
        false => (FLUSH_FLASH_S, "SSDs without power-loss protection take 0.5 to 5 ms for a flush, those with it 0.05"),
    };
    (each >= least).then_some(())?;
    let flight = how.in_flight.map_or("where one is in flight".to_owned(), |n| format!("with {n:.0} in flight"));
    said("the flush of each write", format!("{flight} each takes {:.2} ms until it is durable: {why}", each * 1e3))
}

/// fio's psync, and many programs, have one request under way, whatever depth they are told.
pub(super) fn one_in_flight(case: &Case) -> Option<(String, String)> {
    let how = &case.measured.how;
    let depth = how.in_flight.filter(|n| *n >= DEEP && case.measured.path != Path::Net)?;
    let per_s = per_s(case.measured)?;
    let disks = used(case.described, case.measured);
    (!takes_all(case.described, case.measured, &disks)).then_some(())?;
    let slowest = |time: fn(&Disk) -> Option<f64>| disks.iter().filter_map(|(d, _)| time(d)).reduce(f64::max);
    let disk = match how.sync && case.measured.what.writes() {
        true => slowest(|d| d.flush_s),
        false => slowest(|d| d.latency_s).filter(|_| case.measured.what != What::Write),
    };
    // Of hard disks only one works at a time then.
    let alone = || slowest(at_random).filter(|_| count(&disks) > 1 && case.measured.what == What::RandomRead);
    let disk = disk.or_else(alone);
    let each = how.latency_s.or(disk.map(|disk| disk + round_trip_s(case)))?;
    ABOUT.contains(&(per_s * each)).then_some(())?;
    let why = format!(
        "{} of {:.2} ms each is what one after the other gives: fio's psync engine, and programs that wait, have one under way whatever the depth",
        rate_words(per_s, What::RandomRead),
        each * 1e3
    );
    said(&format!("one request at a time, though {depth:.0} were meant"), why)
}

/// A head that is at one place at a time: what it does in a second says how long each takes.
fn at_random(disk: &Disk) -> Option<f64> {
    disk.random_read.filter(|_| disk.kind.is_some_and(DiskKind::turns)).map(|per_s| 1.0 / per_s)
}

/// How many of the disks can be busy with so few requests.
pub(super) fn too_few_for_all(case: &Case) -> bool {
    let how = &case.measured.how;
    // Read-ahead and caches ask several disks for one program.
    let alone = case.measured.what.is_random() || how.caches == Some(Caching::Bypassed);
    let disks = f64::from(count(&used(case.described, case.measured)));
    alone && how.in_flight.is_some_and(|n| n < disks)
}

pub(super) fn one_at_a_time(case: &Case) -> Option<(String, String)> {
    let block = case.measured.block_bytes()? as f64;
    let few = |depth: &f64| *depth <= 2.0 || too_few_for_all(case);
    let depth = case.measured.how.in_flight.filter(few)?;
    let each_s = depth * block / case.measured.bytes_per_s();
    let trip = round_trip_s(case);
    let rest = match trip > 0.0 && trip < each_s / 2.0 {
        true => format!(", of which the round trip is {:.2} ms: the rest passes at the server", trip * 1e3),
        false => String::new(),
    };
    let why = format!(
        "{depth:.0} in flight, and each takes {:.2} ms{rest} (Little's law): the time goes into waiting, not into transfer",
        each_s * 1e3
    );
    said("the time of single requests", why)
}

/// The wire alone in the same direction, by one connection and by several, where several carry much more.
pub(super) fn connections<'a>(case: &Case<'a>) -> Option<(&'a Measured, &'a Measured)> {
    let alike = |m: &&Measured| {
        m.path == Path::Net
            && m.what.writes() == case.measured.what.writes()
            && m.how.client == case.measured.how.client
            && misleading(case.described, m).is_none()
    };
    let all = || case.described.measured.iter().filter(alike);
    let one = all().filter(|m| m.how.in_flight == Some(1.0)).max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let several = all().filter(|m| m.how.in_flight.is_some_and(|n| n > 1.0) && m.rate >= one.rate * MUCH);
    Some((one, several.max_by(|a, b| a.rate.total_cmp(&b.rate))?))
}

/// Several connections carry more than one: each has a window and a core at each end of its own.
pub(super) fn one_connection(case: &Case) -> Option<(String, String)> {
    let (one, several) = connections(case).filter(|_| over_network(case))?;
    let part = case.measured.bytes_per_s() / one.rate;
    let this = match case.measured.path {
        Path::Net => case.measured.how.in_flight == Some(1.0),
        // A share has one connection where nobody asked for more.
        _ => (PROOF_SHARE..=1.15).contains(&part),
    };
    this.then_some(())?;
    let window = case.described.network.as_ref().and_then(|n| n.round_trip_s).map(|trip| {
        let bytes = ByteSize((one.rate * trip) as u64);
        format!(", here {bytes} in each round trip of {:.2} ms", trip * 1e3)
    });
    let why = format!(
        "alone on this wire one gave {} and {:.0} at once {}: each has one window{} and one core at each end",
        bytes_words(one.rate),
        several.how.in_flight.unwrap_or_default(),
        bytes_words(several.rate),
        window.unwrap_or_default()
    );
    said("what one connection carries", why)
}

/// One reader of one file may be sent to one copy of it only, as md, btrfs and some others do.
pub(super) fn one_copy(case: &Case) -> Option<(String, String)> {
    let disks = used(case.described, case.measured);
    let mirror = layout(case.described, case.measured, &disks) == Some(Layout::Mirror);
    let reads = case.measured.what == What::Read && stands_at_disks(case);
    let stage = case.stages.iter().find(|s| s.kind == StageKind::Disks).filter(|_| mirror && reads)?;
    let one = stage.capacity_low;
    let fits = (one * PROOF_SHARE..=one * 1.15).contains(&case.measured.rate) && one < stage.capacity * PROOF_SHARE;
    fits.then_some(())?;
    let why = format!(
        "one copy of everything gives {}, and one reader of one file may be sent to that only; several at once have all copies",
        rate_words(one, What::Read)
    );
    said("one copy of the mirror", why)
}
