//! Pieces of a page: a plot with its figures, a table, text that cannot become markup.

use crate::bench::show::figures::{Chapter, Figure, Grid};
use crate::bench::show::plot::svg::escape;
use crate::bench::show::plot::{self, Head, Plot, Size};
use crate::bench::show::units::Unit;
use crate::bench::show::words;
use crate::stats::thinned;

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
    matches!(figure.chapter, Chapter::Run(_)) && !figure.id.ends_with("cores") && !figure.id.ends_with("over-time")
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
    let panel = |panel: &plot::Panel| {
        // Mostly all series of a panel share their moments.
        let first = panel.series.first().map(|s| s.x.clone()).unwrap_or_default();
        let series = |s: &plot::Series| match s.x == first {
            true => serde_json::json!({ "n": s.n, "y": words(&s.y) }),
            false => serde_json::json!({ "n": s.n, "x": places(&s.x), "y": words(&s.y) }),
        };
        let at: Vec<String> = thinned(&first, points_max).into_iter().map(|x| p.x.unit.show(x)).collect();
        let series: Vec<serde_json::Value> = panel.series.iter().map(series).collect();
        let name = words::clean(&panel.name);
        serde_json::json!({ "name": name, "x": places(&first), "at": at, "series": series })
    };
    let names: Vec<String> = p.names.iter().map(|n| words::clean(n)).collect();
    let panels: Vec<serde_json::Value> = p.panels.iter().map(panel).collect();
    let all = serde_json::json!({ "names": names, "suffix": suffix, "palette": p.palette, "panels": panels });
    serde_json::to_string(&all).ok()
}
