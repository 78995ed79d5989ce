//! Which rows the answer is about: the slowest path that somebody asked about or compared, whatever order rows stand in.
//!
//! `headline.slowest`  Of the outermost layer the slowest row of each direction and pattern. A row of fewer disks beside
//!                     one of all of them is a trial, and not a path.

use super::contrast::{Property, differing_properties};
use super::evidence::Evidence;
use super::table::{Measurement, Setup, Table};
use super::verdict::Verdict;
use crate::describe::{Path, What};

type Row<'a> = (usize, &'a Measurement);

/// One row for each direction and pattern of the outermost layer, and the wire's own where nothing outside crossed it.
pub(crate) fn asked_about(table: &Table, verdicts: &[Verdict], of_bench: bool) -> Vec<usize> {
    // A file in the server's memory still crossed all that lies behind its disks.
    let told = |row: usize| verdicts.get(row).is_some_and(|verdict| verdict.evidence != Evidence::Doubtful);
    let rows: Vec<Row> = table.rows.iter().enumerate().filter(|(row, m)| m.doubt.is_none() || told(*row)).collect();
    for layer in [Path::Share, Path::Local, Path::Disks, Path::Net] {
        let kinds = [What::Read, What::Write, What::RandomRead, What::RandomWrite].into_iter();
        let kinds = kinds.flat_map(|what| [(what, false), (what, true)]);
        let of = |(what, files): (What, bool)| {
            let same = |(_, m): &&Row| m.setup.layer == layer && m.setup.what() == what && m.setup.small_files == files;
            let alike: Vec<Row> = rows.iter().filter(same).copied().collect();
            slowest(verdicts, &if of_bench { best_of_sweeps(&alike) } else { alike })
        };
        let picked: Vec<Row> = kinds.filter_map(of).collect();
        if !picked.is_empty() {
            let wires = wires_alone(verdicts, &rows, &picked);
            return picked.into_iter().map(|(row, _)| row).chain(wires).collect();
        }
    }
    Vec::new()
}

/// A bench sweeps blocks and depths by itself: of such rows the fastest counts.
fn best_of_sweeps<'a>(rows: &[Row<'a>]) -> Vec<Row<'a>> {
    let swept = |a: &Setup, b: &Setup| {
        differing_properties(a, b).iter().all(|p| matches!(p, Property::Block | Property::InFlight))
    };
    let is_beaten = |row: &Row| {
        let better = |other: &&Row| other.1.bytes_per_s() > row.1.bytes_per_s();
        rows.iter().filter(better).any(|other| swept(&other.1.setup, &row.1.setup))
    };
    rows.iter().filter(|row| !is_beaten(row)).copied().collect()
}

/// `headline.slowest`
fn slowest<'a>(verdicts: &[Verdict], rows: &[Row<'a>]) -> Option<Row<'a>> {
    let is_trial = |row: &Row| rows.iter().any(|other| is_part_of(&row.1.setup, &other.1.setup));
    let whole = rows.iter().filter(|row| !is_trial(row)).copied();
    let sure = |row: &Row| verdicts.get(row.0).map(|verdict| verdict.confidence);
    whole.min_by(|a, b| a.1.bytes_per_s().total_cmp(&b.1.bytes_per_s()).then(sure(b).cmp(&sure(a))))
}

/// Whether these disks are fewer of the other row's.
fn is_part_of(part: &Setup, whole: &Setup) -> bool {
    let has = |(at, count): &(usize, u32)| whole.disks.iter().any(|(other, all)| other == at && all >= count);
    part.disk_count() < whole.disk_count() && part.disks.iter().all(has)
}

/// Wires in a direction, or to a client, of which no share tells, where they are slower than all that was picked.
fn wires_alone<'a>(verdicts: &[Verdict], rows: &[Row<'a>], picked: &[Row<'a>]) -> Vec<usize> {
    if picked.iter().any(|(_, m)| m.setup.layer != Path::Share) {
        return Vec::new();
    }
    let least = picked.iter().map(|(_, m)| m.bytes_per_s()).fold(f64::INFINITY, f64::min);
    let crossed = |m: &Measurement| {
        let same = |other: &Setup| (other.client, other.direction) == (m.setup.client, m.setup.direction);
        rows.iter().any(|(_, other)| other.setup.layer == Path::Share && same(&other.setup))
    };
    let alone = |(_, m): &&Row| m.setup.layer == Path::Net && m.bytes_per_s() < least && !crossed(m);
    let alone: Vec<Row> = rows.iter().filter(alone).copied().collect();
    slowest(verdicts, &alone).map(|(row, _)| row).into_iter().collect()
}
