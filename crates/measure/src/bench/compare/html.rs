//! A comparison as one HTML file, in the same frame as a result's report.

use super::comparison::{Comparison, Row, Verdict};
use super::text::{name, side, spread};
use crate::bench::show::figures::{Chapter, Figure, Grid};
use crate::bench::show::html::wrapped;
use crate::bench::show::html::{Page, figure, grid};
use crate::bench::show::plot::svg::escape;
use crate::bench::show::plot::{Axis, Dot, Plot, Rows};
use crate::bench::show::scale::Scale;
use crate::bench::show::units::Unit;
use crate::bench::show::{figure_of, plot, ratio, words};

/// Rows beyond these are in the table only.
const ROWS_MAX: usize = 60;

pub fn html(comparison: &Comparison) -> String {
    let mut page = Page::new("larder bench compare");
    let title = format!("{} and {}", comparison.a.title, comparison.b.title);
    page.push(&format!("<header><p class=\"what\">larder bench compare</p><h1>{}</h1>", wrapped(&title)));
    page.push(&format!("<p class=\"lead\">{}</p><dl>", escape(&comparison.summary)));
    for (letter, of) in [("A", &comparison.a), ("B", &comparison.b)] {
        page.push(&format!("<div><dt>{letter}</dt><dd>{}</dd></div>", escape(&side(of))));
    }
    page.push("</dl></header><main id=\"main\">");
    differences(comparison, &mut page);
    if let Some(found) = ratios(&comparison.rows) {
        page.push(&format!("<section><h2>Ratios</h2>{}</section>", figure(&found, 3)));
    }
    page.push(&format!("<section class=\"verdicts\"><h2>Every run</h2>{}</section>", grid(&table(&comparison.rows))));
    for (name, list) in [("Only in A", &comparison.only_a), ("Only in B", &comparison.only_b)] {
        if !list.is_empty() {
            let items: String = list.iter().take(100).map(|run| format!("<li>{}</li>", wrapped(run))).collect();
            page.push(&format!("<section><h2>{name}</h2><ul>{items}</ul></section>"));
        }
    }
    page.push(
        "</main><footer><p>Medians of the repeats; ratios are B to A, their lines 95 % intervals by Welch on logarithms, \
         never narrower than the moments within the repeats allow (circular block bootstrap). A difference is called one if p, \
         adjusted for the number of rows (Benjamini and Hochberg), is 0.05 or less and the medians are 5 % or more \
         apart.</p><p class=\"download\" data-name=\"larder-bench-comparison\">The complete \
         comparison is inside this page, in the element with the id <code>result</code>.</p></footer>",
    );
    page.embed(&serde_json::to_string(comparison).unwrap_or_default());
    page.finish()
}

fn differences(comparison: &Comparison, page: &mut Page) {
    if !comparison.differences.is_empty() {
        let rows = comparison.differences.iter().map(|d| vec![d.what.clone(), d.a.clone(), d.b.clone()]).collect();
        let head = ["different", "A", "B"].map(str::to_owned).to_vec();
        page.push(&format!("<section><h2>Not the same</h2>{}</section>", grid(&Grid { head, rows })));
    }
}

/// Each row's ratio with its interval; a line at 1.
fn ratios(rows: &[Row]) -> Option<Figure> {
    let mut drawn = Vec::new();
    let mut behind =
        Grid { head: ["run", "ratio", "95 % interval", "B is"].map(str::to_owned).to_vec(), rows: Vec::new() };
    for row in rows.iter().filter(|r| r.ratio.is_some()).take(ROWS_MAX) {
        let Some(value) = row.ratio else { continue };
        let label = format!("{}, {}", name(row), row.workload);
        let interval = row.interval.filter(|_| row.verdict != Verdict::NotComparable);
        let range = interval.map_or(String::new(), |[low, high]| format!("{} to {}", ratio(low), ratio(high)));
        behind.rows.push(vec![label.clone(), ratio(value), range, row.verdict.word().to_owned()]);
        let n = match row.verdict {
            Verdict::Faster => 2,
            Verdict::Slower => 1,
            _ => 5,
        };
        drawn.push(plot::Row {
            label,
            dots: vec![Dot { value, n }],
            range: interval.map(|[low, high]| (low, high)),
            value: format!("{} {}", ratio(value), row.verdict.word()),
            n,
            doubtful: row.verdict == Verdict::NotComparable,
            ..plot::Row::default()
        });
    }
    // One very uncertain row must not flatten all others: the axis follows the ratios, lines end at its edge.
    let values = drawn.iter().flat_map(|r| r.dots.iter().map(|d| d.value));
    let near =
        drawn.iter().filter_map(|r| r.range).flat_map(|(low, high)| [low, high]).filter(|v| (0.3..3.0).contains(v));
    let scale = Scale::around(values.chain(near).chain([0.95, 1.05]), 6);
    let x = Axis { scale, unit: Unit::Ratio, name: "B to A; right of the line B is faster".to_owned() };
    (!drawn.is_empty()).then(|| Figure {
        chapter: Chapter::Overview,
        id: "ratios".to_owned(),
        title: "B to A".to_owned(),
        desc: "The ratio of the medians of each run in both, with its 95 % interval. An interval that crosses the line at 1 proves \
               nothing."
            .to_owned(),
        plot: Plot::Rows(Rows { x, rows: drawn, names: Vec::new(), line_at: Some(1.0) }),
        grid: behind,
    })
}

fn table(rows: &[Row]) -> Grid {
    let head =
        ["Layer", "Subject", "Workload", "A", "spread", "B", "spread", "Ratio", "95 % interval", "p", "B is", "Why"];
    let mut found = Grid { head: head.map(str::to_owned).to_vec(), rows: Vec::new() };
    for row in rows {
        let p = |p: Option<f64>| p.map_or(String::new(), |p| format!("{p:.3}"));
        let range = row.interval.map_or(String::new(), |[low, high]| format!("{} to {}", ratio(low), ratio(high)));
        found.rows.push(vec![
            words::layer(row.layer).to_owned(),
            name(row),
            row.workload.clone(),
            figure_of(row.unit, row.a.median),
            spread(&row.a),
            figure_of(row.unit, row.b.median),
            spread(&row.b),
            row.ratio.map_or(String::new(), ratio),
            range,
            p(row.p_adjusted),
            row.verdict.word().to_owned(),
            row.why.clone(),
        ]);
    }
    found
}
