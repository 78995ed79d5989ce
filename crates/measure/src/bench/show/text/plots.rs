//! Plots of a result: block sizes, comparisons, write rate with its knee.

use super::chart::{Line, Plot, bar};
use super::heading;
use super::paint::Paint;
use super::table::{Align, Cell, Table};
use super::{Style, words};
use crate::bench::result::{BenchResult, Repeat, Run};
use crate::bench::show::scale::{Scale, ScaleKind};
use crate::bench::show::units::{self, Unit};
use crate::bench::show::view::{self, Compared, Sweep};

const ROWS: usize = 14;
/// As many plots of writing as say something in a terminal.
const KNEES_MAX: usize = 4;
/// More lines than colours cannot be told apart.
const LINES_MAX: usize = 6;
/// Twice the columns: what braille can show.
const POINTS_MAX: usize = 200;

pub(super) fn sweeps(result: &BenchResult, style: &Style) -> String {
    view::sweeps(result).iter().map(|s| sweep(s, style)).collect()
}

fn sweep(sweep: &Sweep<'_>, style: &Style) -> String {
    let lines: Vec<Line> = sweep.lines.iter().map(|l| Line { name: l.name.clone(), points: l.points() }).collect();
    let points = || lines.iter().flat_map(|l| &l.points);
    let plot = Plot {
        x: Scale::log(points().map(|p| p.0), ScaleKind::Log2),
        x_unit: Unit::Size,
        y: Scale::from_zero(points().map(|p| p.1), 5),
        y_unit: Unit::Rate,
        marks: Vec::new(),
        rows: ROWS,
        lines,
    };
    let title = format!("block size: {}", words::kind(sweep.kind));
    let mut text = heading(&title, "throughput against block size", style);
    text.push_str(&plot.render(style, 2));
    text.push('\n');
    text.push_str(&sweep_table(sweep, style));
    text
}

fn sweep_table(sweep: &Sweep<'_>, style: &Style) -> String {
    let names: Vec<String> = sweep.lines.iter().map(|l| words::shortened(&l.name, 16)).collect();
    let mut columns = vec![("BLOCK", Align::Right)];
    columns.extend(names.iter().map(|n| (n.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    let mut blocks: Vec<u64> = sweep.lines.iter().flat_map(|l| &l.runs).map(|r| r.workload.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let mut cells: Vec<Cell> = vec![units::size(block as f64).into()];
        for line in &sweep.lines {
            let run = line.runs.iter().find(|r| r.workload.block_bytes == block);
            cells.push(run.and_then(|r| view::bytes_per_s(r)).map_or(String::new(), units::rate).into());
        }
        table.row(cells);
    }
    table.render(style, 2)
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

fn compared_cells(run: Option<&Run>, best: f64, style: &Style) -> [Cell; 3] {
    let Some((run, median)) = run.and_then(|r| Some((r, r.median()?))) else { return Default::default() };
    let wrong = view::misleading(run).is_some();
    let sign = if wrong { "! " } else { "" };
    let paint = if wrong { Paint::Warn } else { Paint::Plain };
    [
        Cell::painted(format!("{sign}{}", view::unit(run).show(median)), paint),
        units::percent(median / best).into(),
        Cell::painted(bar(median / best, 8, style), Paint::Line(0)),
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

fn over_time(group: &[&Run], style: &Style) -> String {
    let mut lines = Vec::new();
    let mut marks = Vec::new();
    for run in group.iter().take(LINES_MAX) {
        let Some(repeat) = run.repeats.iter().find(|r| r.knee.is_some()) else { continue };
        let rates: Vec<f64> = repeat.over_time.iter().map(|m| m.bytes_per_s).collect();
        let times: Vec<f64> = repeat.over_time.iter().map(|m| m.at_ms as f64 / 1e3).collect();
        let name = words::subject(run);
        marks.extend(repeat.knee.map(|k| k.at_s).zip(knee_words(repeat).map(|w| format!("{name}: {w}"))));
        let points = view::thinned(&times, POINTS_MAX).into_iter().zip(view::thinned(&rates, POINTS_MAX)).collect();
        lines.push(Line { name, points });
    }
    let points = || lines.iter().flat_map(|l: &Line| &l.points);
    let plot = Plot {
        x: Scale::exact([0.0].into_iter().chain(points().map(|p| p.0))),
        x_unit: Unit::Seconds,
        y: Scale::from_zero(points().map(|p| p.1), 5),
        y_unit: Unit::Rate,
        marks,
        rows: ROWS - 4,
        lines,
    };
    plot.render(style, 2)
}
