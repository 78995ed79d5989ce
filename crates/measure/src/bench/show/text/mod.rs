//! A result as text: for terminals, mails and forums.
//!
//! - `text.width_bounded`: nothing is wider than the style allows, unless a single number is.
//! - `text.plain_where_asked`: without `unicode` every byte is ASCII; without `colour` there is no escape sequence. Colour
//!   never says anything that the text does not.
//! - `text.spread_beside`: each figure stands beside the spread of its repeats; a misleading figure is marked in place.

mod chart;
mod cores;
mod layers;
mod paint;
mod parts;
mod plots;
mod table;

pub(crate) use cores::{busy, mean};
pub(crate) use paint::Paint;
pub(crate) use parts::{fact, finished, heading};
pub(crate) use plots::knee_words;
pub(crate) use table::{Align, Cell, Table};

use super::{Style, units, view, words};
use crate::bench::before::DISTURBANCES;
use crate::bench::result::{BenchResult, FarMachine, MachineFacts, Note, Run};

/// How figures are meant, also in the HTML report.
pub(crate) const UNITS: &str = "MB/s = 10^6 bytes per second, KiB = 2^10 bytes; medians of the repeats, spread = (largest - smallest) / \
     median; x16 = 16 requests in flight; CPU/GiB = processor seconds of the load for each GiB";

/// Notes are shown, but a file of a million of them is not.
const NOTES_MAX: usize = 40;

pub fn text(result: &BenchResult, style: &Style) -> String {
    let style = &Style { width: style.width.clamp(40, 400), ..*style };
    let mut text = header(result, style);
    text.push_str(&layers::all(result, style));
    text.push_str(&plots::sweeps(result, style));
    text.push_str(&plots::comparisons(result, style));
    text.push_str(&contrasts(result, style));
    text.push_str(&plots::knees(result, style));
    text.push_str(&cores::all(result, style));
    text.push_str(&notes(result, style));
    text.push_str(&again(result, style));
    finished(&text, style)
}

/// The headline once more where the tables have pushed it out of sight.
fn again(result: &BenchResult, style: &Style) -> String {
    const RUNS_MIN: usize = 5;
    if view::runs(result).len() < RUNS_MIN {
        return String::new();
    }
    let lines = words::folded(&view::headline(result), style.width);
    let lines: Vec<String> = lines.iter().map(|line| Paint::Bold.over(line, style)).collect();
    format!("\n{}\n", lines.join("\n"))
}

fn header(result: &BenchResult, style: &Style) -> String {
    let title = words::folded(&format!("larder bench {}", words::clean(&result.title)), style.width).join("\n");
    let title = Paint::Bold.over(&title, style);
    let headline = words::folded(&view::headline(result), style.width).join("\n");
    let mut text = format!("{title}\n\n{headline}\n\n");
    text.push_str(&fact("machine", &machine(&result.machine), style));
    if let Some(far) = &result.far_machine {
        text.push_str(&fact("far end", &far_end(far), style));
    }
    text.push_str(&fact("larder", &method(result), style));
    if result.interrupted {
        text.push_str(&warned("interrupted: cut short by a person or an error; what is there is good", style));
    }
    text.push_str(&fact("units", UNITS, style));
    let wrong = view::runs(result).iter().filter(|r| view::misleading(r).is_some()).count();
    if wrong > 0 {
        let said = format!("{wrong} of {} runs are misleading, marked with !: see the notes", result.runs.len());
        text.push_str(&warned(&said, style));
    }
    text
}

fn warned(said: &str, style: &Style) -> String {
    let lines = words::folded(said, style.width.saturating_sub(2));
    lines.iter().map(|line| format!("  {}\n", Paint::Warn.over(line, style))).collect()
}

/// The machine at the other end, by the name that whoever measured gave it.
pub(crate) fn far_end(far: &FarMachine) -> String {
    format!("{}: {}, larder {}", words::clean(&far.name), machine(&far.machine), words::clean(&far.larder))
}

pub(crate) fn machine(m: &MachineFacts) -> String {
    let mut parts = vec![words::clean(&m.model)];
    if !m.model.contains(&m.processor) {
        parts.push(words::clean(&m.processor));
    }
    if !m.host.is_empty() {
        parts.push(format!("host {}", words::clean(&m.host)));
    }
    if m.cores > 0 {
        parts.push(format!("{} cores", m.cores));
    }
    if m.memory_bytes > 0 {
        parts.push(units::size(m.memory_bytes as f64));
    }
    if !m.kernel.is_empty() {
        parts.push(format!("kernel {}", words::clean(&m.kernel)));
    }
    parts.retain(|p| !p.is_empty());
    parts.join(", ")
}

pub(crate) fn method(result: &BenchResult) -> String {
    let seconds = result.ended_ms.saturating_sub(result.started_ms) as f64 / 1e3;
    format!(
        "{}, preset {}, {}, took {}",
        words::clean(&result.larder),
        words::clean(&result.preset),
        units::date(result.started_ms),
        units::duration(seconds)
    )
}

/// Every note once with those whom it concerns, what must not be overlooked first.
pub(crate) fn all_notes(result: &BenchResult) -> Vec<(&Note, String)> {
    // Links that disks share are shown beside the disks.
    let elsewhere = |note: &Note| matches!(note.code.as_str(), "sum-holds" | "shared-limit");
    let runs = view::runs(result);
    let mut found: Vec<(&Note, Vec<&Run>)> = result.notes.iter().map(|n| (n, Vec::new())).collect();
    for (run, note) in runs.iter().flat_map(|run| run.notes.iter().map(move |note| (run, note))) {
        let room = found.len() < NOTES_MAX && !elsewhere(note);
        match found.iter_mut().find(|(n, _)| *n == note) {
            // Of the whole bench.
            Some((_, of)) if of.is_empty() => {}
            Some((_, of)) => of.push(run),
            None if room => found.push((note, vec![run])),
            None => {}
        }
    }
    let mut found: Vec<(&Note, String)> = found.into_iter().map(|(note, of)| (note, whose(runs, &of))).collect();
    found.sort_by_key(|(note, _)| urgency(note));
    found
}

/// Misleading; missing, or in the way of all figures; good to know.
pub(crate) fn urgency(note: &Note) -> u8 {
    match note.code.as_str() {
        _ if note.misleading => 0,
        "not-measured" | "left-behind" => 1,
        code if DISTURBANCES.contains(&code) => 1,
        _ => 2,
    }
}

/// By subject: only its name where all of its runs are meant.
fn whose(all: &[Run], of: &[&Run]) -> String {
    const LONGEST: usize = 200;
    if of.len() == all.len() && all.len() > 1 {
        return "all runs".to_owned();
    }
    let same = |a: &Run, b: &Run| a.layer == b.layer && a.subject == b.subject && a.variant == b.variant;
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in of {
        match groups.iter_mut().find(|group| same(group[0], run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    let mut text = String::new();
    for (n, group) in groups.iter().enumerate() {
        if text.len() > LONGEST {
            return format!("{text} and {} more", groups.len() - n);
        }
        let whole = all.iter().filter(|run| same(group[0], run)).count() == group.len();
        let workloads: Vec<String> = group.iter().map(|run| words::workload(&run.workload)).collect();
        let separator = if n == 0 { "" } else { "; " };
        let which = if whole { String::new() } else { format!(": {}", workloads.join(", ")) };
        text.push_str(&format!("{separator}{}{which}", words::subject(group[0])));
    }
    text
}

/// The doctor's contrasts: runs that differ in one thing alone.
fn contrasts(result: &BenchResult, style: &Style) -> String {
    const TOLD_MAX: usize = 8;
    let found = crate::doctor::judge_result(result).contrasts;
    if found.is_empty() {
        return String::new();
    }
    let mut text =
        heading("contrasts", "one thing alone was different, and the rates differ beyond their spread", style);
    for contrast in found.iter().take(TOLD_MAX) {
        let lines = words::folded(&words::clean(&contrast.sentence), style.width.saturating_sub(4));
        text.push_str(&format!("  {}\n", lines.join("\n    ")));
    }
    if found.len() > TOLD_MAX {
        text.push_str(&format!("  and {} more, in --json\n", found.len() - TOLD_MAX));
    }
    text
}

fn notes(result: &BenchResult, style: &Style) -> String {
    let found = all_notes(result);
    if found.is_empty() {
        return String::new();
    }
    let mut text = heading("notes", "", style);
    for (note, whose) in found {
        let (sign, paint) = if note.misleading { ("! misleading: ", Paint::Warn) } else { ("  ", Paint::Plain) };
        let of = if whose.is_empty() { String::new() } else { format!(" ({whose})") };
        let lines = words::folded(&format!("{}{of}", words::clean(&note.text)), style.width.saturating_sub(18).max(20));
        let blank = " ".repeat(2 + sign.len());
        text.push_str(&format!("  {}{}\n", paint.over(sign, style), lines.join(&format!("\n{blank}"))));
    }
    text
}

#[cfg(test)]
mod tests;
