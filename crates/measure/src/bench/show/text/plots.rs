//! Bars of a result: block sizes, comparisons, write rate with its knee.

use super::chart::{bar, level};
use super::paint::Paint;
use super::parts::heading;
use super::table::{Align, Cell, Table};
use crate::bench::result::{BenchResult, Repeat, Run};
use crate::bench::show::view::{self, Compared, Sweep};
use crate::bench::show::{Style, facts, units, words};

/// Of a figure with its unit, and the gaps beside it and its bar.
const NUMBER_COLUMNS: usize = 14;
/// Of the spread beside it.
const SPREAD_COLUMNS: usize = 10;
/// Of a block size.
const BLOCK_COLUMNS: usize = 12;
/// A shorter bar shows nothing.
const BAR_MIN: usize = 5;
const BAR_MAX: usize = 24;
/// As many plots of writing as say something in a terminal.
const KNEES_MAX: usize = 4;
/// More lines than colours cannot be told apart.
const LINES_MAX: usize = 6;
/// A wider strip shows no more of a knee.
const STRIP_COLUMNS: usize = 72;

pub(super) fn sweeps(result: &BenchResult, style: &Style) -> String {
    view::sweeps(result).iter().map(|s| sweep(s, style)).collect()
}

/// Block sizes down, ways of access across; each figure has its spread and its bar where there is room for them.
fn sweep(sweep: &Sweep<'_>, style: &Style) -> String {
    let room = style.width.saturating_sub(BLOCK_COLUMNS) / sweep.lines.len().max(1);
    let spreads = room >= NUMBER_COLUMNS + SPREAD_COLUMNS;
    let bars = room.saturating_sub(NUMBER_COLUMNS + if spreads { SPREAD_COLUMNS } else { 0 });
    let bars = if bars < BAR_MIN { 0 } else { bars.min(BAR_MAX) };
    let names: Vec<String> = sweep.lines.iter().map(|l| words::shortened(&l.name, 16)).collect();
    let mut columns = vec![("BLOCK", Align::Right)];
    columns
        .extend(names.iter().flat_map(|n| [(n.as_str(), Align::Right), ("SPREAD", Align::Right), ("", Align::Left)]));
    let mut table = Table::new(&columns);
    let most = sweep.lines.iter().flat_map(|l| l.points()).map(|p| p.1).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let mut blocks: Vec<u64> = sweep.lines.iter().flat_map(|l| &l.runs).map(|r| r.workload.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let mut cells: Vec<Cell> = vec![units::size(block as f64).into()];
        for (n, line) in sweep.lines.iter().enumerate() {
            let run = line.runs.iter().find(|r| r.workload.block_bytes == block);
            let rate = run.and_then(|r| view::bytes_per_s(r));
            cells.push(rate.map_or(String::new(), units::rate).into());
            cells.push(run.filter(|_| spreads).map_or(String::new(), |run| facts::spread(run)).into());
            cells.push(Cell::painted(rate.map_or(String::new(), |r| bar(r / most, bars, style)), Paint::Line(n)));
        }
        table.row(cells);
    }
    let title = format!("block size: {}", words::kind(sweep.kind));
    let all = sweep.lines.iter().flat_map(|line| &line.runs);
    let widest = all
        .filter(|run| run.repeats.len() > 1)
        .filter_map(|run| run.spread())
        .filter(|s| s.is_finite())
        .reduce(f64::max);
    let widest = widest.filter(|_| !spreads).map(|spread| format!(", spread up to {}", units::percent(spread)));
    let meaning = format!("throughput by the size of a request{}", widest.unwrap_or_default());
    format!("{}{}", heading(&title, &meaning, style), table.render(style, 2))
}

pub(super) fn comparisons(result: &BenchResult, style: &Style) -> String {
    view::compared(result).iter().map(|c| comparison(c, style)).collect()
}

/// Values down, workloads across; beside each figure how it stands to the best of its column.
fn comparison(compared: &Compared<'_>, style: &Style) -> String {
    let mut text = heading(&format!("by {}", compared.key), &compared.fixed, style);
    // A column takes about 30 characters.
    let across = (style.width.saturating_sub(20) / 32).max(1);
    for first in (0..compared.workloads.len()).step_by(across) {
        let shown = first..(first + across).min(compared.workloads.len());
        let key = compared.key.to_uppercase();
        let mut columns = vec![(key.as_str(), Align::Left)];
        for column in shown.clone() {
            columns.extend([
                (compared.workloads[column].as_str(), Align::Right),
                ("", Align::Right),
                ("", Align::Left),
            ]);
        }
        let mut table = Table::new(&columns);
        for (value, cells) in &compared.rows {
            let mut row: Vec<Cell> = vec![value.clone().into()];
            shown
                .clone()
                .for_each(|c| row.extend(compared_cells(cells.get(c).copied().flatten(), compared.best(c), style)));
            table.row(row);
        }
        if first > 0 {
            text.push('\n');
        }
        text.push_str(&table.render(style, 2));
    }
    text
}

fn compared_cells(run: Option<&Run>, best: Option<&Run>, style: &Style) -> [Cell; 3] {
    let Some((run, median)) = run.and_then(|r| Some((r, r.median()?))) else { return Default::default() };
    let (part, told) = view::beside_best(run, best);
    let wrong = view::misleading(run).is_some();
    let sign = if wrong { "! " } else { "" };
    let paint = if wrong { Paint::Warn } else { Paint::Plain };
    [
        Cell::painted(format!("{sign}{}", view::unit(run).show(median)), paint),
        told.into(),
        Cell::painted(bar(part, 8, style), Paint::Line(0)),
    ]
}

/// One plot for each workload of a layer, a line for each subject.
pub(super) fn knees(result: &BenchResult, style: &Style) -> String {
    let groups = view::knees(result);
    let mut text = String::new();
    for group in groups.iter().take(KNEES_MAX) {
        let Some(first) = group.first() else { continue };
        let title = format!("{} over time", words::kind(first.workload.kind));
        let of = format!("{}: where fast caches were full", words::layer(first.layer));
        text.push_str(&heading(&title, &of, style));
        text.push_str(&over_time(group, style));
    }
    if groups.len() > KNEES_MAX {
        text.push_str(&format!("  {} more workloads have a knee: see the HTML report\n", groups.len() - KNEES_MAX));
    }
    text
}

/// `knee after 9 s and 3.4 GiB: 404 MB/s, then 196 MB/s`
pub(crate) fn knee_words(repeat: &Repeat) -> Option<String> {
    repeat.knee.map(|k| {
        format!(
            "knee after {} and {}: {}, then {}",
            units::duration(k.at_s),
            units::size(k.bytes as f64),
            units::rate(k.before_bytes_per_s),
            units::rate(k.after_bytes_per_s)
        )
    })
}

/// For each run the rate as a strip of heights, and where it fell.
fn over_time(group: &[&Run], style: &Style) -> String {
    let found = group.iter().take(LINES_MAX);
    let found: Vec<(&Run, &Repeat)> =
        found.filter_map(|run| Some((*run, run.repeats.iter().find(|r| r.knee.is_some())?))).collect();
    let rates = |repeat: &Repeat| -> Vec<f64> { repeat.over_time.iter().map(|m| m.bytes_per_s).collect() };
    let known = found.iter().flat_map(|(_, repeat)| rates(repeat)).filter(|rate| rate.is_finite());
    let most = known.fold(f64::MIN_POSITIVE, f64::max);
    let columns = style.width.saturating_sub(4).clamp(20, STRIP_COLUMNS);
    let mut text = String::new();
    for (n, (run, repeat)) in found.into_iter().enumerate() {
        let heights =
            crate::stats::thinned(&rates(repeat), columns).into_iter().map(|rate| level(rate / most * 100.0, style));
        let line = format!("{}: {}", words::subject(run), knee_words(repeat).unwrap_or_default());
        text.push_str(&format!("  {}\n", words::folded(&line, style.width.saturating_sub(4)).join("\n  ")));
        text.push_str(&format!("  {}\n", Paint::Line(n).over(&heights.collect::<String>(), style)));
    }
    text
}
