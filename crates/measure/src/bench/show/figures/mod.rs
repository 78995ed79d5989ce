//! The plots of a result, each with a title, a sentence and the table of its figures.

mod access;
mod figure;
mod machine;
mod time;

pub(crate) use figure::{Chapter, Figure, Grid};
use figure::{ROWS_MAX, name};

use super::facts;
use super::plot::{Axis, Dot, Plot, Row, Rows};
use super::scale::{Scale, ScaleKind};
use super::units::{self, Unit};
use super::view::{self, Way};
use super::words;
use crate::bench::result::{BenchResult, Latency, Run};

/// Runs whose machine is shown in detail.
pub(crate) const DETAILS_MAX: usize = 32;

pub(crate) fn all(result: &BenchResult) -> Vec<Figure> {
    let mut found: Vec<Figure> = overview(result).into_iter().collect();
    found.extend(access::sweeps(result));
    found.extend(access::compared(result));
    found.extend(time::knees(result));
    found.extend(repeats(result));
    found.extend(latency(result));
    found.extend(details(result));
    found.retain(compares);
    found
}

/// One bar or one dot has nothing beside it, and a line needs two points.
fn compares(figure: &Figure) -> bool {
    match &figure.plot {
        Plot::Rows(rows) => rows.rows.iter().map(|r| usize::from(r.bar.is_some()) + r.dots.len()).sum::<usize>() > 1,
        Plot::Panels(panels) => {
            let mut series = panels.panels.iter().flat_map(|panel| &panel.series);
            series.any(|s| s.y.iter().filter(|y| y.is_finite()).count() > 1)
        }
    }
}

/// The runs of which [`details`] tells, by their number.
pub(crate) fn detailed(result: &BenchResult) -> Vec<&Run> {
    let told = |r: &&Run| !r.samples.at_ms.is_empty() || r.repeats.iter().any(|r| r.over_time.len() > 1);
    view::main_runs(result).into_iter().filter(told).take(DETAILS_MAX).collect()
}

fn details(result: &BenchResult) -> Vec<Figure> {
    let runs = detailed(result);
    let many = runs.len() > 12;
    let of = |(n, run): (usize, &Run)| {
        let mut found: Vec<Figure> = time::of_run(n, run).into_iter().collect();
        found.extend(machine::of_run(n, run, many));
        found
    };
    runs.into_iter().enumerate().flat_map(of).collect()
}

fn overview(result: &BenchResult) -> Option<Figure> {
    let mut rows = Vec::new();
    let mut grid = Grid::new(&["direction", "layer", "median", "sum of each disk alone", "measured on"]);
    for (way, heading) in [(Way::Read, "Reading"), (Way::Write, "Writing")] {
        let steps = view::chain(result, way);
        if steps.is_empty() {
            continue;
        }
        rows.push(Row { label: heading.to_owned(), heading: true, ..Row::default() });
        for step in steps {
            let promised = step.promised.map_or(String::new(), units::rate);
            let reached = units::rate(step.bytes_per_s);
            let of = step.promised.map(|p| format!("{} of {promised}", units::percent(step.bytes_per_s / p)));
            rows.push(Row {
                label: step.name.clone(),
                bar: Some(step.bytes_per_s),
                ghost: step.promised,
                value: of.map_or_else(|| reached.clone(), |of| format!("{reached}, {of}")),
                n: if way == Way::Read { 0 } else { 1 },
                ..Row::default()
            });
            let subject = words::subject(step.run);
            grid.rows.push(vec![way.word().to_owned(), step.name, units::rate(step.bytes_per_s), promised, subject]);
        }
    }
    let values = rows.iter().flat_map(|r| [r.bar, r.ghost]).flatten();
    let x = Axis { scale: Scale::from_zero(values, 6), unit: Unit::Rate, name: "MB/s".to_owned() };
    (!rows.is_empty()).then(|| Figure {
        chapter: Chapter::Overview,
        id: "overview".to_owned(),
        title: "Where the chain narrows".to_owned(),
        desc: "Bulk transfers: the best median of each layer, from single disks up to shares. A dashed outline is the \
               sum of all disks measured one by one."
            .to_owned(),
        plot: Plot::Rows(Rows { x, rows, names: Vec::new(), line_at: None }),
        grid,
    })
}

/// The subject once over the rows of its workloads: both do not fit beside a plot.
fn headed(rows: &mut Vec<Row>, of: &mut String, run: &Run) {
    let label = format!("{}: {}", view::capital(words::layer(run.layer)), words::subject(run));
    if *of != label {
        rows.push(Row { label: label.clone(), heading: true, ..Row::default() });
        *of = label;
    }
}

/// Each repeat as a part of its run's median, so that spreads of fast and slow runs compare.
fn repeats(result: &BenchResult) -> Option<Figure> {
    let mut rows = Vec::new();
    let mut of = String::new();
    let mut grid = Grid::new(&["run", "median", "spread", "repeats"]);
    for run in view::main_runs(result).into_iter().take(ROWS_MAX) {
        let Some(median) = run.median().filter(|m| m.is_finite() && *m > 0.0) else { continue };
        let values: Vec<f64> = run.values().into_iter().filter(|v| v.is_finite()).collect();
        if values.len() < 2 {
            continue;
        }
        let unit = view::unit(run);
        let parts: Vec<f64> = values.iter().map(|v| v / median * 100.0).collect();
        let range = parts.iter().copied().reduce(f64::min).zip(parts.iter().copied().reduce(f64::max));
        headed(&mut rows, &mut of, run);
        rows.push(Row {
            label: words::workload(&run.workload),
            dots: parts.iter().take(200).map(|value| Dot { value: *value, n: 0 }).collect(),
            median: Some(100.0),
            range,
            value: unit.show(median),
            doubtful: view::misleading(run).is_some(),
            ..Row::default()
        });
        let each: Vec<String> = values.iter().take(200).map(|v| unit.show(*v)).collect();
        grid.rows.push(vec![name(run), unit.show(median), facts::spread(run), each.join(", ")]);
    }
    let values: Vec<f64> = rows.iter().flat_map(|r| r.dots.iter().map(|d| d.value)).chain([98.0, 102.0]).collect();
    let x = Axis { scale: Scale::around(values, 6), unit: Unit::Percent, name: "% of the run's median".to_owned() };
    (!rows.is_empty()).then(|| Figure {
        chapter: Chapter::Repeats,
        id: "repeats".to_owned(),
        title: "How much repeats differ".to_owned(),
        desc: "Each dot is one repeat, beside the median of its run (the upright stroke). Wide rows prove little."
            .to_owned(),
        plot: Plot::Rows(Rows { x, rows, names: Vec::new(), line_at: Some(100.0) }),
        grid,
    })
}

/// A percentile: its name, and where it stands.
type Percentile = (&'static str, fn(&Latency) -> f64);

const PERCENTILES: [Percentile; 5] = [
    ("p50", |l| l.p50_us),
    ("p95", |l| l.p95_us),
    ("p99", |l| l.p99_us),
    ("p99.9", |l| l.p999_us),
    ("max", |l| l.max_us),
];

fn latency(result: &BenchResult) -> Option<Figure> {
    let mut rows = Vec::new();
    let mut of = String::new();
    let mut grid = Grid::new(&["run", "p50", "p95", "p99", "p99.9", "max"]);
    for run in view::main_runs(result).into_iter().take(ROWS_MAX) {
        let found: Vec<Option<f64>> = PERCENTILES.iter().map(|(_, of)| facts::latency(run, of)).collect();
        let dots: Vec<Dot> = found
            .iter()
            .enumerate()
            .filter_map(|(n, v)| v.filter(|v| *v > 0.0).map(|value| Dot { value, n }))
            .collect();
        let Some((first, last)) = dots.first().zip(dots.last()) else { continue };
        let range = Some((first.value, last.value));
        let tail = found[2].map_or(String::new(), units::latency);
        let doubtful = view::misleading(run).is_some();
        grid.rows
            .push([vec![name(run)], found.iter().map(|v| v.map_or(String::new(), units::latency)).collect()].concat());
        headed(&mut rows, &mut of, run);
        rows.push(Row {
            label: words::workload(&run.workload),
            range,
            dots,
            value: format!("p99 {tail}"),
            doubtful,
            n: 5,
            ..Row::default()
        });
    }
    let values: Vec<f64> = rows.iter().flat_map(|r| r.dots.iter().map(|d| d.value)).collect();
    let scale = Scale::log(values, ScaleKind::Log10);
    let x = Axis { scale, unit: Unit::Latency, name: "time of a request (logarithmic)".to_owned() };
    (!rows.is_empty()).then(|| Figure {
        chapter: Chapter::Latency,
        id: "latency".to_owned(),
        title: "Latency percentiles".to_owned(),
        desc: "How long single requests took: half of them no longer than p50, 99 of 100 no longer than p99. Medians \
               of the repeats."
            .to_owned(),
        plot: Plot::Rows(Rows { x, rows, names: PERCENTILES.iter().map(|p| p.0.to_owned()).collect(), line_at: None }),
        grid,
    })
}
