//! A comparison for terminals and forums.

use super::comparison::{Comparison, Difference, Effect, Row, Side, Verdict};
use crate::bench::show::markdown::{escaped, table as table_of};
use crate::bench::show::text::{Align, Cell, Paint, Table, fact, finished, heading};
use crate::bench::show::{Style, figure_of, ratio, units, words};

/// As many runs without a counterpart as anybody reads.
const ONLY_MAX: usize = 20;

pub fn text(comparison: &Comparison, style: &Style) -> String {
    let style = &Style { width: style.width.clamp(40, 400), ..*style };
    let mut text = format!("{}\n\n", Paint::Bold.over("larder bench compare", style));
    text.push_str(&format!("{}\n\n", words::folded(&comparison.summary, style.width).join("\n")));
    text.push_str(&fact("A", &side(&comparison.a), style));
    text.push_str(&fact("B", &side(&comparison.b), style));
    text.push_str(&fact(
        "ratio",
        "B to A of the medians; 95 % intervals; of rows called faster or slower one in twenty may be chance",
        style,
    ));
    text.push_str(&differences(&comparison.differences, style));
    let (told, not): (Vec<&Row>, Vec<&Row>) = comparison.rows.iter().partition(|r| r.verdict != Verdict::NotComparable);
    let boxes = if told.iter().any(|r| !r.comparable) { "* of another box, not of a change to one" } else { "" };
    text.push_str(&table("compared", boxes, &told, style));
    text.push_str(&table("not comparable", "measured in different ways", &not, style));
    for (name, list) in [("only in A", &comparison.only_a), ("only in B", &comparison.only_b)] {
        text.push_str(&only(name, list, style));
    }
    finished(&text, style)
}

/// One table in Markdown, for a forum.
pub fn markdown(comparison: &Comparison) -> String {
    let head = ["layer", "subject", "workload", "A", "B", "ratio", "95 %", "B is"];
    let line = |row: &Row| {
        let interval = row.interval.filter(|_| row.verdict != Verdict::NotComparable);
        vec![
            words::layer(row.layer).to_owned(),
            name(row),
            row.workload.clone(),
            figure_of(row.unit, row.a.median),
            figure_of(row.unit, row.b.median),
            row.ratio.map_or(String::new(), ratio),
            interval.map_or(String::new(), |[low, high]| format!("{} to {}", ratio(low), ratio(high))),
            row.verdict.word().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = comparison.rows.iter().map(line).collect();
    let sides = format!("A: {}; B: {}", side(&comparison.a), side(&comparison.b));
    format!("{}\n\n{}\n{}\n", escaped(&comparison.summary), table_of(&head, 3, &rows), escaped(&sides))
}

pub(super) fn side(side: &Side) -> String {
    let (title, host) = (words::clean(&side.title), words::clean(&side.host));
    format!("{title}, host {host}, larder {}, {}", words::clean(&side.larder), units::date(side.started_ms))
}

fn differences(list: &[Difference], style: &Style) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new(&[("", Align::Left), ("DIFFERENT", Align::Left), ("A", Align::Left), ("B", Align::Left)]);
    for d in list {
        let sign = if d.effect == Effect::Mentioned { "" } else { "!" };
        table.row(vec![
            Cell::painted(sign.to_owned(), Paint::Warn),
            d.what.clone().into(),
            d.a.clone().into(),
            d.b.clone().into(),
        ]);
    }
    format!("\n{}", table.render(style, 2))
}

/// The name of a row, in as few words as tell it from the others.
pub(super) fn name(row: &Row) -> String {
    let access = if row.access == "local" { String::new() } else { format!(", {}", row.access) };
    let variant = if row.variant.is_empty() { String::new() } else { format!(" ({})", row.variant) };
    let (a, b) = (words::several(&row.subject_a), words::several(&row.subject_b));
    let subject = if a == b { a } else { format!("{a} / {b}") };
    format!("{subject}{access}{variant}")
}

pub(super) fn spread(figures: &super::Figures) -> String {
    match (figures.spread, figures.repeats) {
        (Some(spread), _) => units::percent(spread),
        (None, 1) => "1 repeat".to_owned(),
        (None, _) => units::UNKNOWN.to_owned(),
    }
}

fn paint(verdict: Verdict) -> Paint {
    match verdict {
        Verdict::Faster => Paint::Good,
        Verdict::Slower => Paint::Bad,
        Verdict::Same => Paint::Plain,
        Verdict::CannotTell => Paint::Dim,
        Verdict::NotComparable => Paint::Warn,
    }
}

fn table(title: &str, meaning: &str, rows: &[&Row], style: &Style) -> String {
    use Align::{Left, Right};
    if rows.is_empty() {
        return String::new();
    }
    // Narrow terminals lose what the reasons below, or the other columns, tell as well.
    let shown = |name: &'static str, from: usize| if style.width >= from { name } else { "" };
    let columns = [
        (shown("LAYER", 120), Left),
        ("SUBJECT", Left),
        ("WORKLOAD", Left),
        (shown("A", 70), Right),
        ("B", Right),
        ("RATIO", Right),
        (shown("95 %", 90), Left),
        ("B IS", Left),
    ];
    let mut table = Table::new(&columns);
    let mut reasons = String::new();
    for row in rows {
        let sign = if row.comparable || row.verdict == Verdict::NotComparable { "" } else { " *" };
        let interval = row.interval.filter(|_| row.verdict != Verdict::NotComparable);
        let cells = [
            words::layer(row.layer).into(),
            name(row).into(),
            row.workload.clone().into(),
            figure_of(row.unit, row.a.median).into(),
            figure_of(row.unit, row.b.median).into(),
            Cell::painted(row.ratio.map_or(String::new(), ratio), Paint::Bold),
            interval.map_or(String::new(), |[low, high]| format!("{} to {}", ratio(low), ratio(high))).into(),
            Cell::painted(format!("{}{sign}", row.verdict.word()), paint(row.verdict)),
        ];
        let seen = |(cell, (name, _)): (Cell, &(&str, Align))| if name.is_empty() { Cell::default() } else { cell };
        table.row(cells.into_iter().zip(&columns).map(seen).collect());
        if matches!(row.verdict, Verdict::CannotTell | Verdict::NotComparable) {
            reasons.push_str(&reason(row, style));
        }
    }
    let gap = if reasons.is_empty() { "" } else { "\n" };
    format!("{}{}{gap}{reasons}", heading(title, meaning, style), table.render(style, 2))
}

fn reason(row: &Row, style: &Style) -> String {
    let line = format!("{} {}, {}: {}", words::layer(row.layer), name(row), row.workload, row.why);
    let lines = words::folded(&line, style.width.saturating_sub(6).max(20));
    format!("  {}\n", lines.join("\n    "))
}

fn only(name: &str, list: &[String], style: &Style) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut text = heading(name, "", style);
    for run in list.iter().take(ONLY_MAX) {
        text.push_str(&format!("  {}\n", words::shortened(run, style.width.saturating_sub(2))));
    }
    if list.len() > ONLY_MAX {
        text.push_str(&format!("  and {} more\n", list.len() - ONLY_MAX));
    }
    text
}
