//! One table per layer, from the bottom to the top.

use super::chart::bar;
use super::paint::Paint;
use super::parts::heading;
use super::table::{Align, Cell, Table};
use crate::bench::result::{BenchResult, Layer, Run};
use crate::bench::show::{Style, facts, units, view, words};

/// Repeats that differ by more are worth a second look.
const SPREAD_HIGH: f64 = 0.1;

pub(super) fn all(result: &BenchResult, style: &Style) -> String {
    let main = view::main_runs(result);
    let most = |unit: units::Unit| {
        let medians = main.iter().filter(|r| view::unit(r) == unit).filter_map(|r| r.median());
        medians.filter(|m| m.is_finite()).fold(0.0, f64::max)
    };
    let scales = [most(units::Unit::Rate), most(units::Unit::Iops), most(units::Unit::Files)];
    let mut layers: Vec<(Layer, Vec<&Run>)> = Vec::new();
    for layer in words::LAYERS {
        let runs: Vec<&Run> = main.iter().copied().filter(|r| r.layer == layer).collect();
        if !runs.is_empty() {
            layers.push((layer, runs));
        }
    }
    let mut text = String::new();
    for ((layer, _), table) in layers.iter().zip(tables(&layers, scales, style)) {
        text.push_str(&heading(words::layer(*layer), words::layer_meaning(*layer), style));
        text.push_str(&table.render(style, 2));
        if *layer == Layer::Disks {
            text.push_str(&sums(result, style));
        }
    }
    let hidden = result.runs.len().saturating_sub(view::RUNS_MAX);
    if hidden > 0 {
        text.push_str(&format!("\n  {hidden} more runs are not shown\n"));
    }
    text
}

/// Of these the first with which every layer fits: bars give way first, then what few people look at. One for all
/// layers, so that bars of all layers compare.
const ROOM: [(usize, bool); 5] = [(14, true), (8, true), (5, true), (8, false), (0, false)];
/// So much of a name is worth more than a bar.
const NAME_COLUMNS: usize = 24;

fn tables(layers: &[(Layer, Vec<&Run>)], scales: [f64; 3], style: &Style) -> Vec<Table> {
    let of =
        |(bars, all)| -> Vec<Table> { layers.iter().map(|(_, runs)| filled(runs, scales, bars, all, style)).collect() };
    let fits = |tables: &Vec<Table>| tables.iter().all(|t| t.natural_width(NAME_COLUMNS) + 2 <= style.width);
    ROOM.into_iter().map(of).find(fits).unwrap_or_else(|| of((0, false)))
}

fn filled(runs: &[&Run], scales: [f64; 3], bars: usize, all: bool, style: &Style) -> Table {
    use Align::{Left, Right};
    let mut keys: Vec<String> =
        runs.iter().flat_map(|r| words::told_variant(r)).map(|(k, _)| words::clean(k)).collect();
    keys.sort();
    keys.dedup();
    let subject = if keys.is_empty() { "SUBJECT".to_owned() } else { format!("SUBJECT ({})", keys.join(", ")) };
    let mut table = Table::new(&[
        ("", Left),
        (&subject, Left),
        ("WORKLOAD", Left),
        ("MEDIAN", Right),
        ("SPREAD", Right),
        (if all { "p50" } else { "" }, Right),
        ("p99", Right),
        (if all { "CPU/GiB" } else { "" }, Right),
        ("", Left),
    ]);
    let fitted = |run: &Run| {
        let mut cells = row(run, scales, bars, style);
        if !all {
            [5, 7].into_iter().for_each(|dropped| cells[dropped] = Cell::default());
        }
        cells
    };
    for run in runs {
        table.row(fitted(run));
        for (name, side) in run.sides() {
            let mut cells = fitted(&side);
            (cells[0], cells[1], cells[2]) = (Cell::default(), Cell::default(), format!("  {name}").into());
            table.row(cells);
        }
    }
    table
}

fn row(run: &Run, scales: [f64; 3], bars: usize, style: &Style) -> Vec<Cell> {
    let unit = view::unit(run);
    let wrong = view::misleading(run).is_some();
    let median = run.median().unwrap_or(f64::NAN);
    // Bars of one colour have one measure.
    let measure = match unit {
        units::Unit::Rate => 0,
        units::Unit::Iops => 1,
        _ => 2,
    };
    let most = scales[measure];
    let spread = facts::spread(run);
    let far = run.repeats.len() > 1 && run.spread().is_some_and(|s| s > SPREAD_HIGH);
    let latency = |at: Option<f64>| at.map_or(String::new(), units::latency);
    let paint = if wrong { Paint::Warn } else { Paint::Line(measure) };
    vec![
        Cell::painted(if wrong { "!".to_owned() } else { String::new() }, Paint::Warn),
        words::subject(run).into(),
        words::workload(&run.workload).into(),
        Cell::painted(unit.show(median), if wrong { Paint::Warn } else { Paint::Bold }),
        Cell::painted(spread, if far { Paint::Warn } else { Paint::Plain }),
        latency(facts::latency(run, |l| l.p50_us)).into(),
        latency(facts::latency(run, |l| l.p99_us)).into(),
        facts::cpu_s_per_gib(run).map_or(String::new(), cpu).into(),
        Cell::painted(bar(median / most, bars, style), paint),
    ]
}

fn cpu(seconds: f64) -> String {
    format!("{} s", units::digits(seconds))
}

fn sums(result: &BenchResult, style: &Style) -> String {
    let mut text = String::new();
    for sum in view::sums(result) {
        let paint = if sum.holds() { Paint::Good } else { Paint::Warn };
        for line in words::folded(&sum.sentence(), style.width.saturating_sub(4)) {
            text.push_str(&format!("  {}\n", paint.over(&line, style)));
        }
    }
    text
}
