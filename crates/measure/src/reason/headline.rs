//! Which rows the answer is about: what people feel is nearest to the client, and of several clients the slowest.

use super::evidence::Evidence;
use super::table::{Measurement, Table};
use super::verdict::Verdict;
use crate::describe::{Path, What};

/// One row for each direction and pattern of the outermost layer that was measured.
pub(crate) fn asked_about(table: &Table, verdicts: &[Verdict]) -> Vec<usize> {
    // A file in the server's memory still crossed all that lies behind its disks.
    let told = |row: usize| verdicts.get(row).is_some_and(|verdict| verdict.evidence != Evidence::Doubtful);
    let rows = || table.rows.iter().enumerate().filter(|(row, m)| m.doubt.is_none() || told(*row));
    for layer in [Path::Share, Path::Local, Path::Disks, Path::Net] {
        let of =
            |what: What| latest(rows().filter(|(_, m)| m.setup.layer == layer && m.setup.what() == what).collect());
        let kinds = [What::Read, What::Write, What::RandomRead, What::RandomWrite];
        let picked: Vec<usize> = kinds.into_iter().filter_map(of).collect();
        if !picked.is_empty() {
            return picked;
        }
    }
    Vec::new()
}

/// On the machine itself the last row is of the box as it is, because single disks are tried before. Over the network the
/// slowest client and program is what somebody complains about.
fn latest(rows: Vec<(usize, &Measurement)>) -> Option<usize> {
    let mut last: Vec<(usize, &Measurement)> = Vec::new();
    for (at, row) in rows {
        if row.setup.layer != Path::Share {
            last.clear();
        }
        let same = |other: &&mut (usize, &Measurement)| {
            (other.1.setup.client, &other.1.setup.program) == (row.setup.client, &row.setup.program)
        };
        match last.iter_mut().find(same) {
            Some(known) => *known = (at, row),
            None => last.push((at, row)),
        }
    }
    last.into_iter().min_by(|a, b| a.1.rate.total_cmp(&b.1.rate)).map(|(at, _)| at)
}
