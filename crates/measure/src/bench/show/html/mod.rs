//! A result as one HTML file that needs nothing else: no network, no other file, no script to be readable.
//!
//! H1. Whatever comes from a result is text: it passes [`escape`], and the JSON inside the page cannot end its
//!     element ([`json`]).
//! H2. The page forbids itself everything but its own style sheet and script, by their hashes (CSP level 2); there is
//!     neither an inline style nor a handler in an attribute.
//! H3. Without scripts every plot and every figure is there. The script adds values under the pointer or the arrow keys,
//!     hidden series and saved files; it draws no data.

mod page;
mod sections;

use super::figures::{self, Figure, Grid};
use super::plot::svg::escape;
use super::plot::{Head, Plot, Size};
use super::units::Unit;
use crate::bench::result::BenchResult;
use crate::reason::stats::thinned;
pub(crate) use page::Page;

pub fn html(result: &BenchResult) -> String {
    let title = format!("larder bench {}", super::words::clean(&result.title));
    let mut page = Page::new(&title);
    sections::all(result, &mut page);
    page.embed(&serde_json::to_string(result).unwrap_or_default());
    page.finish()
}

/// One plot alone, in light colours, as a file of its own. The names: [`svg_names`].
pub fn svg(result: &BenchResult, which: &str) -> Option<String> {
    let figure = figures::all(result).into_iter().find(|f| f.id == which)?;
    let head = Head { id: &figure.id, title: &figure.title, desc: &figure.desc, alone: true };
    Some(figure.plot.svg(&head, Size::Wide))
}

pub fn svg_names(result: &BenchResult) -> Vec<String> {
    figures::all(result).into_iter().map(|f| f.id).collect()
}

/// Inside a `script` element nothing may look like markup, and the two line ends of Unicode are none in JSON.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Drawn for desks and for phones; small ones stand side by side on desks and are drawn once.
const SIZES: [(&str, Size); 2] = [("wide", Size::Wide), ("narrow", Size::Narrow)];

fn is_small(figure: &Figure) -> bool {
    matches!(figure.chapter, figures::Chapter::Run(_))
        && !figure.id.ends_with("cores")
        && !figure.id.ends_with("over-time")
}

/// The plot, its series for scripts, its figures for everybody.
pub(crate) fn figure(figure: &Figure, level: u8) -> String {
    let head = Head { id: &figure.id, title: &figure.title, desc: &figure.desc, alone: false };
    let small = is_small(figure);
    let class = if small { "fig small" } else { "fig" };
    let mut text = format!(
        "<figure class=\"{class}\" id=\"{}\"><figcaption><h{level}>{}</h{level}>",
        figure.id,
        escape(&figure.title)
    );
    // Inside a run the page has said already whose it is.
    let told = if small { figure.desc.split("During: ").next().unwrap_or_default().trim() } else { &figure.desc };
    let desc = if told.is_empty() { String::new() } else { format!("<p>{}</p>", escape(told)) };
    text.push_str(&format!("{desc}</figcaption>"));
    for (class, size) in SIZES.into_iter().filter(|(_, size)| !small || *size == Size::Narrow) {
        text.push_str(&format!("<div class=\"{class}\">{}</div>", figure.plot.svg(&head, size)));
    }
    if let Some(data) = data(&figure.plot, small) {
        text.push_str(&format!("<script type=\"application/json\" class=\"points\">{}</script>", json(&data)));
    }
    text.push_str(&format!(
        "<details class=\"figures\"><summary>Figures</summary>{}</details></figure>",
        grid(&figure.grid)
    ));
    text
}

/// Escaped. A path, which is a word of several slashes, may be broken after one: so no folder's name is.
pub(crate) fn wrapped(text: &str) -> String {
    let word = |word: &str| {
        let is_path = word.matches('/').count() > 1;
        let mut broken = String::new();
        for (n, part) in word.split('/').enumerate() {
            // Neither between two slashes nor after the one that a path begins with.
            let here = is_path && n > 0 && !part.is_empty() && !broken.is_empty();
            broken.push_str(if n > 0 { "/" } else { "" });
            broken.push_str(if here { "<wbr>" } else { "" });
            broken.push_str(&escape(part));
        }
        broken
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

pub(crate) fn grid(grid: &Grid) -> String {
    let mut text =
        String::from("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\"><table><thead><tr>");
    text.extend(grid.head.iter().map(|h| format!("<th scope=\"col\">{}</th>", escape(h))));
    text.push_str("</tr></thead><tbody>");
    for row in &grid.rows {
        text.push_str("<tr>");
        for (n, cell) in row.iter().enumerate() {
            let tag = if n == 0 { "th scope=\"row\"" } else { "td" };
            text.push_str(&format!("<{tag}>{}</{}>", wrapped(cell), if n == 0 { "th" } else { "td" }));
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table></div>");
    text
}

/// Places and words for the script, which shows them under the pointer. Rows carry theirs in themselves.
fn data(plot: &Plot, small: bool) -> Option<String> {
    let Plot::Panels(p) = plot else { return None };
    let points_max = if small || p.panels.len() > 1 { Size::Narrow } else { Size::Wide }.points_max();
    let places = |xs: &[f64]| -> Vec<Option<f64>> {
        let place = |x| p.x.scale.place(x).map(|part| (part * 1e4).round() / 1e4);
        thinned(xs, points_max).into_iter().map(place).collect()
    };
    // Percent of many cores: numbers are shorter, and all have the same unit.
    let suffix = if p.y.unit == Unit::Percent { " %" } else { "" };
    let words = |ys: &[f64]| -> Vec<serde_json::Value> {
        let word = |y: f64| match (y.is_finite(), suffix.is_empty()) {
            (false, _) => serde_json::Value::Null,
            (true, true) => p.y.unit.show(y).into(),
            (true, false) => (y.round() as i64).into(),
        };
        thinned(ys, points_max).into_iter().map(word).collect()
    };
    let panel = |panel: &super::plot::Panel| {
        // Mostly all series of a panel share their moments.
        let first = panel.series.first().map(|s| s.x.clone()).unwrap_or_default();
        let series = |s: &super::plot::Series| match s.x == first {
            true => serde_json::json!({ "n": s.n, "y": words(&s.y) }),
            false => serde_json::json!({ "n": s.n, "x": places(&s.x), "y": words(&s.y) }),
        };
        let at: Vec<String> = thinned(&first, points_max).into_iter().map(|x| p.x.unit.show(x)).collect();
        let series: Vec<serde_json::Value> = panel.series.iter().map(series).collect();
        let name = super::words::clean(&panel.name);
        serde_json::json!({ "name": name, "x": places(&first), "at": at, "series": series })
    };
    let names: Vec<String> = p.names.iter().map(|n| super::words::clean(n)).collect();
    let panels: Vec<serde_json::Value> = p.panels.iter().map(panel).collect();
    let all = serde_json::json!({ "names": names, "suffix": suffix, "palette": p.palette, "panels": panels });
    serde_json::to_string(&all).ok()
}

#[cfg(test)]
mod tests;
