//! Block sizes, and everything that compares ways to the same data.

use super::figure::{Chapter, Figure, Grid, ROWS_MAX};
use crate::bench::result::{BenchResult, Run};
use crate::bench::show::facts;
use crate::bench::show::plot::panels::COLOURS;
use crate::bench::show::plot::{Axis, Panel, Panels, Plot, Row, Rows, Series};
use crate::bench::show::scale::{Scale, ScaleKind};
use crate::bench::show::units::{self, Unit};
use crate::bench::show::view::{self, Compared, Sweep};
use crate::bench::show::words;

pub(super) fn sweeps(result: &BenchResult) -> Vec<Figure> {
    view::sweeps(result).iter().enumerate().map(|(n, sweep)| figure(n, sweep)).collect()
}

fn figure(n: usize, sweep: &Sweep<'_>) -> Figure {
    let lines = &sweep.lines[..sweep.lines.len().min(COLOURS)];
    let series: Vec<Series> = lines
        .iter()
        .enumerate()
        .map(|(n, line)| {
            let (x, y) = line.points().into_iter().unzip();
            Series { n, x, y }
        })
        .collect();
    let blocks = || series.iter().flat_map(|s| s.x.iter().copied());
    let rates = || series.iter().flat_map(|s| s.y.iter().copied());
    let x = Axis {
        scale: Scale::log(blocks(), ScaleKind::Log2),
        unit: Unit::Size,
        name: "block size (logarithmic)".to_owned(),
    };
    let y = Axis { scale: Scale::from_zero(rates(), 5), unit: Unit::Rate, name: "MB/s".to_owned() };
    Figure {
        chapter: Chapter::BlockSize,
        id: format!("block-size-{}", n + 1),
        title: format!("Block size: {}", words::kind(sweep.kind)),
        desc:
            "Throughput against the size of one request, a line for each way of access: where a line is flat, requests \
               cost nothing any more."
                .to_owned(),
        grid: grid(sweep),
        plot: Plot::Panels(Panels {
            x,
            y,
            names: lines.iter().map(|l| l.name.clone()).collect(),
            palette: "s",
            panels: vec![Panel { series, ..Panel::default() }],
            stacked: false,
            dots: true,
        }),
    }
}

fn grid(sweep: &Sweep<'_>) -> Grid {
    let mut blocks: Vec<u64> = sweep.lines.iter().flat_map(|l| &l.runs).map(|r| r.workload.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let cell = |run: Option<&&Run>| run.and_then(|r| view::bytes_per_s(r)).map_or(String::new(), units::rate);
    let row = |block: &u64| {
        let cells = sweep.lines.iter().map(|l| cell(l.runs.iter().find(|r| r.workload.block_bytes == *block)));
        [vec![units::size(*block as f64)], cells.collect()].concat()
    };
    let head = ["block".to_owned()].into_iter().chain(sweep.lines.iter().map(|l| l.name.clone())).collect();
    Grid { head, rows: blocks.iter().map(row).collect() }
}

pub(super) fn compared(result: &BenchResult) -> Vec<Figure> {
    let found = view::compared(result);
    let units = [(Unit::Rate, "rate", "MB/s"), (Unit::Iops, "iops", "IOPS"), (Unit::Files, "files", "files/s")];
    let numbered = found.iter().enumerate();
    numbered.flat_map(|(n, c)| units.iter().filter_map(move |u| bars(n, c, *u))).collect()
}

/// For each workload the values below each other, the best of them as the measure.
fn bars(n: usize, compared: &Compared<'_>, (unit, word, axis): (Unit, &str, &str)) -> Option<Figure> {
    let mut rows = Vec::new();
    let mut grid = Grid::new(&["workload", &compared.key, "median", "of the best", "spread"]);
    for (column, workload) in compared.workloads.iter().enumerate() {
        let best = compared.best(column);
        let cells: Vec<(&String, &Run, f64)> = compared
            .rows
            .iter()
            .filter_map(|(value, cells)| {
                let run = cells.get(column).copied().flatten().filter(|r| view::unit(r) == unit)?;
                Some((value, run, run.median().filter(|m| m.is_finite())?))
            })
            .collect();
        if cells.len() < 2 || rows.len() > ROWS_MAX {
            continue;
        }
        rows.push(Row { label: workload.clone(), heading: true, ..Row::default() });
        for (value, run, median) in cells {
            let (_, part) = view::beside_best(run, best);
            grid.rows.push(vec![workload.clone(), value.clone(), unit.show(median), part.clone(), facts::spread(run)]);
            rows.push(Row {
                label: value.clone(),
                bar: Some(median),
                value: format!("{} ({part})", unit.show(median)),
                doubtful: view::misleading(run).is_some(),
                ..Row::default()
            });
        }
    }
    let x = Axis { scale: Scale::from_zero(rows.iter().filter_map(|r| r.bar), 6), unit, name: axis.to_owned() };
    (!rows.is_empty()).then(|| Figure {
        chapter: Chapter::Compared,
        id: format!("by-{}-{}-{word}", slug(&compared.key), n + 1),
        title: format!("By {}", compared.key),
        desc: format!("Everything else the same: {}. Percent of the best of each workload.", compared.fixed),
        plot: Plot::Rows(Rows { x, rows, names: Vec::new(), line_at: None }),
        grid,
    })
}

/// Letters, digits and dashes of it.
fn slug(text: &str) -> String {
    let safe: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(32).collect();
    safe.trim_matches('-').to_owned()
}
