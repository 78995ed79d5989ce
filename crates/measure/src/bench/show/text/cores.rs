//! What was at its end during a run, and on demand each core: a strip of heights, one character per moment, and the
//! shares of its time.

use super::chart::level;
use super::paint::Paint;
use super::parts::heading;
use super::table::{Align, Cell, Table};
use crate::bench::result::{BenchResult, CoreSeries, Run, Samples, Saturation};
use crate::bench::show::{Style, facts, units, view, words};

/// The busiest of them say enough.
const CORES_MAX: usize = 8;
const RUNS_MAX: usize = 5;
const SATURATIONS_MAX: usize = 6;
/// Rows of runs that filled something.
const FULL_MAX: usize = 12;

/// Runs in which something had no more to give; if there are none, the one with the busiest core.
pub(super) fn all(result: &BenchResult, style: &Style) -> String {
    if !style.cores {
        return full(result, style);
    }
    let mut found: Vec<&Run> = view::main_runs(result).into_iter().filter(|r| !r.samples.cores.is_empty()).collect();
    let worst = |r: &Run| r.saturated.iter().map(|s| s.share).fold(0.0, f64::max);
    let busiest = |r: &Run| r.samples.cores.iter().filter_map(busy_mean).fold(0.0, f64::max);
    found.sort_by(|a, b| worst(b).total_cmp(&worst(a)).then(busiest(b).total_cmp(&busiest(a))));
    let full = found.iter().filter(|r| !r.saturated.is_empty()).count();
    found.truncate(full.clamp(1, RUNS_MAX));
    let mut text = String::new();
    for run in found {
        let name = format!("{}, {}", words::subject(run), words::workload(&run.workload));
        text.push_str(&heading("cores", &name, style));
        text.push_str(&strips(&run.samples, style));
        if let Some(far) = run.far_samples.as_ref().filter(|far| !far.cores.is_empty()) {
            let name = result.far_machine.as_ref().map_or(String::new(), |far| words::clean(&far.name));
            text.push_str(&format!("  at the far end, {name}:\n{}", strips(far, style)));
        }
        text.push_str(&saturated(&view::saturated(run), run, style));
    }
    if full > RUNS_MAX {
        text.push_str(&format!("  {} more runs saturated something: see the HTML report\n", full - RUNS_MAX));
    }
    text
}

/// One line for each run in which something had no more to give.
fn full(result: &BenchResult, style: &Style) -> String {
    let runs =
        view::main_runs(result).into_iter().filter_map(|run| Some((run, view::saturated(run).into_iter().next()?)));
    let runs: Vec<(&Run, Saturation)> = runs.collect();
    if runs.is_empty() {
        return String::new();
    }
    let mut text = heading("full", "what had no more to give; each core: larder bench show --cores", style);
    let mut table = Table::new(&[
        ("SUBJECT", Align::Left),
        ("WORKLOAD", Align::Left),
        ("FULL", Align::Left),
        ("TIME", Align::Right),
    ]);
    for (run, full) in runs.iter().take(FULL_MAX) {
        table.row(vec![
            words::subject(run).into(),
            words::workload(&run.workload).into(),
            Cell::painted(words::clean(&full.what), Paint::Warn),
            units::percent(full.share).into(),
        ]);
    }
    text.push_str(&table.render(style, 2));
    if runs.len() > FULL_MAX {
        text.push_str(&format!("  and {} more runs\n", runs.len() - FULL_MAX));
    }
    text
}

/// Percent at each moment, of everything but waiting; a hole where nothing is known.
pub(crate) fn busy(core: &CoreSeries) -> Vec<f64> {
    let at = |values: &[f64], n: usize| values.get(n).copied().unwrap_or(f64::NAN);
    let parts = [&core.user, &core.nice, &core.system, &core.irq, &core.steal];
    let moments = parts.iter().map(|p| p.len()).max().unwrap_or(0);
    let sum = |n: usize| {
        let known = parts.iter().map(|p| at(p, n)).filter(|v| v.is_finite());
        known.fold(f64::NAN, |sum: f64, v| if sum.is_nan() { v } else { sum + v })
    };
    (0..moments).map(sum).collect()
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

fn busy_mean(core: &CoreSeries) -> Option<f64> {
    mean(&busy(core))
}

fn strips(samples: &Samples, style: &Style) -> String {
    use Align::{Left, Right};
    let mut cores: Vec<&CoreSeries> = samples.cores.iter().collect();
    cores.sort_by(|a, b| busy_mean(b).unwrap_or(0.0).total_cmp(&busy_mean(a).unwrap_or(0.0)));
    let hidden = cores.len().saturating_sub(CORES_MAX);
    cores.truncate(CORES_MAX);
    let columns = style.width.saturating_sub(62).clamp(8, 40);
    let mut table = Table::new(&[
        ("CORE", Right),
        ("BUSY OVER TIME", Left),
        ("BUSY", Right),
        ("USER", Right),
        ("SYSTEM", Right),
        ("IOWAIT", Right),
        ("IRQ", Right),
        ("STEAL", Right),
    ]);
    for core in cores {
        let percent = |values: &[f64]| Cell::from(mean(values).map_or(String::new(), |m| units::percent(m / 100.0)));
        let busy = busy(core);
        let strip: String = crate::stats::thinned(&busy, columns).into_iter().map(|p| level(p, style)).collect();
        let full = mean(&busy).is_some_and(|m| m >= 85.0);
        let paint = if full { Paint::Bad } else { Paint::Line(0) };
        let user: Vec<f64> = core.user.iter().zip(&core.nice).map(|(u, n)| u + n).collect();
        table.row(vec![
            core.core.to_string().into(),
            Cell::painted(strip, paint),
            Cell::painted(percent(&busy).text, if full { Paint::Bad } else { Paint::Bold }),
            percent(&user),
            percent(&core.system),
            percent(&core.iowait),
            percent(&core.irq),
            percent(&core.steal),
        ]);
    }
    let mut text = table.render(style, 2);
    if hidden > 0 {
        text.push_str(&format!("  and {hidden} less busy cores\n"));
    }
    text
}

fn saturated(list: &[Saturation], run: &Run, style: &Style) -> String {
    let start_ms = run.repeats.iter().map(|r| r.start_ms).min().unwrap_or(0);
    let mut text = String::new();
    for full in list.iter().take(SATURATIONS_MAX) {
        let line = format!(
            "{} had no more to give for {} of the time, from {} to {} of the run",
            words::clean(&full.what),
            units::percent(full.share),
            units::duration(full.from_ms.saturating_sub(start_ms) as f64 / 1e3),
            units::duration(full.to_ms.saturating_sub(start_ms) as f64 / 1e3)
        );
        for part in words::folded(&line, style.width.saturating_sub(4)) {
            text.push_str(&format!("  {}\n", Paint::Warn.over(&part, style)));
        }
    }
    if list.is_empty() {
        let most = facts::median(run.samples.cores.iter().filter_map(busy_mean));
        text.push_str(&format!(
            "  nothing was saturated; cores were {} busy (median)\n",
            most.map_or_else(|| units::UNKNOWN.to_owned(), |m| units::percent(m / 100.0))
        ));
    }
    text
}
