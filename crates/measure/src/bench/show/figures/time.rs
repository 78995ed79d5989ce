//! Throughput as time goes by: of one run its repeats, of one workload all that have a knee.

use super::figure::{Chapter, Figure, Grid, name};
use crate::bench::result::{BenchResult, Repeat, Run};
use crate::bench::show::plot::panels::COLOURS;
use crate::bench::show::plot::{Axis, Panel, Panels, Plot, Series};
use crate::bench::show::scale::Scale;
use crate::bench::show::text::knee_words;
use crate::bench::show::units::{self, Unit};
use crate::bench::show::view;
use crate::bench::show::words;

pub(super) fn knees(result: &BenchResult) -> Vec<Figure> {
    view::knees(result).iter().enumerate().filter_map(|(n, group)| figure(n, group)).collect()
}

fn figure(n: usize, group: &[&Run]) -> Option<Figure> {
    let first = group.first()?;
    let of = |run: &&Run| run.repeats.iter().find(|r| r.knee.is_some()).map(|r| (words::subject(run), r.clone()));
    let found: Vec<(String, Repeat)> = group.iter().filter_map(of).collect();
    let mut grid = Grid::new(&["what", "where its fast cache was full"]);
    grid.rows.extend(found.iter().map(|(name, r)| vec![name.clone(), knee_words(r).unwrap_or_default()]));
    let lines: Vec<(String, &Repeat)> = found.iter().take(COLOURS).map(|(name, r)| (name.clone(), r)).collect();
    Some(Figure {
        chapter: Chapter::OverTime,
        id: format!("over-time-{}", n + 1),
        title: format!("{} over time, {}", view::capital(words::kind(first.workload.kind)), words::layer(first.layer)),
        desc: "The first repeat that shows it. Flash disks write to a fast part first; after the knee comes the rate that \
               lasts, and only that one counts."
            .to_owned(),
        plot: plot(&lines, Unit::Rate),
        grid,
    })
}

/// `n`: of the run, for its id.
pub(super) fn of_run(n: usize, run: &Run) -> Option<Figure> {
    let unit = view::unit(run);
    let lines: Vec<(String, &Repeat)> = run
        .repeats
        .iter()
        .enumerate()
        .filter(|(_, r)| r.over_time.len() > 1)
        .map(|(n, r)| (format!("repeat {}", n + 1), r))
        .take(COLOURS)
        .collect();
    let mut grid = Grid::new(&["repeat", "began at", "seconds", "rate", "slowest moment", "fastest moment"]);
    for (name, repeat) in &lines {
        let values = || repeat.over_time.iter().map(|m| value(m, unit)).filter(|v| v.is_finite());
        let edge = |of: fn(f64, f64) -> f64| values().reduce(of).map_or(String::new(), |v| unit.show(v));
        let rate = if unit == Unit::Rate { repeat.bytes_per_s } else { repeat.operations_per_s };
        grid.rows.push(vec![
            name.clone(),
            units::duration(repeat.start_ms as f64 / 1e3),
            units::digits(repeat.seconds),
            unit.show(rate),
            edge(f64::min),
            edge(f64::max),
        ]);
    }
    (!lines.is_empty()).then(|| Figure {
        chapter: Chapter::Run(n),
        id: format!("run-{}-over-time", n + 1),
        title: "Throughput over time".to_owned(),
        desc: format!("{}, a line for each repeat.", name(run)),
        plot: plot(&lines, unit),
        grid,
    })
}

fn value(moment: &crate::bench::result::Moment, unit: Unit) -> f64 {
    if unit == Unit::Rate { moment.bytes_per_s } else { moment.operations_per_s }
}

fn plot(lines: &[(String, &Repeat)], unit: Unit) -> Plot {
    let series: Vec<Series> = lines
        .iter()
        .enumerate()
        .map(|(n, (_, repeat))| Series {
            n,
            x: repeat.over_time.iter().map(|m| m.at_ms as f64 / 1e3).collect(),
            y: repeat.over_time.iter().map(|m| value(m, unit)).collect(),
        })
        .collect();
    let marks = lines.iter().filter_map(|(_, r)| r.knee.map(|k| (k.at_s, "knee".to_owned()))).collect();
    let times = series.iter().flat_map(|s| s.x.iter().copied());
    let x =
        Axis { scale: Scale::exact([0.0].into_iter().chain(times)), unit: Unit::Seconds, name: "seconds".to_owned() };
    let scale = Scale::from_zero(series.iter().flat_map(|s| s.y.iter().copied()), 5);
    let y = Axis { scale, unit, name: unit.name().to_owned() };
    let names = lines.iter().map(|(name, _)| name.clone()).collect();
    let panels = vec![Panel { name: String::new(), series, marks }];
    Plot::Panels(Panels { x, y, names, palette: "s", panels, stacked: false, dots: false })
}
