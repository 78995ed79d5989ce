//! The sections of a report, from its headline to its data.

use super::page::Page;
use super::parts::{figure, grid, wrapped};
use crate::bench::result::{BenchResult, Layer, Run};
use crate::bench::show::figures::{self, Chapter, Figure, Grid};
use crate::bench::show::plot::svg::escape;
use crate::bench::show::text::{UNITS, all_notes, far_end, machine, method, urgency};
use crate::bench::show::{facts, units, view, words};

pub(super) fn all(result: &BenchResult, page: &mut Page) {
    let figures = figures::all(result);
    header(result, page);
    contents(result, &figures, page);
    page.push("<main id=\"main\">");
    notes(result, page, "notes", "What to know first", |urgency| urgency < 2);
    if has_overview(result, &figures) {
        section(page, "overview", "Bottom to top", |page| {
            if let Some(why) = view::no_chain(result) {
                page.push(&format!("<p class=\"none\">{}</p>", escape(&why)));
            }
            plots(&figures, Chapter::Overview, page);
            sums(result, page);
        });
    }
    section(page, "layers", "Layer by layer", |page| layers(result, page));
    for (chapter, id, title) in CHAPTERS {
        if figures.iter().any(|f| f.chapter == chapter) {
            section(page, id, title, |page| plots(&figures, chapter, page));
        }
    }
    details(result, &figures, page);
    notes(result, page, "remarks", "Notes", |urgency| urgency == 2);
    page.push("</main>");
    footer(result, page);
}

fn has_overview(result: &BenchResult, figures: &[Figure]) -> bool {
    figures.iter().any(|f| f.chapter == Chapter::Overview)
        || view::no_chain(result).is_some()
        || !view::sums(result).is_empty()
}

const CHAPTERS: [(Chapter, &str, &str); 5] = [
    (Chapter::BlockSize, "block-size", "Block size"),
    (Chapter::Compared, "compared", "Compared"),
    (Chapter::OverTime, "over-time", "Over time"),
    (Chapter::Repeats, "repeated", "Repeats"),
    (Chapter::Latency, "latencies", "Latency"),
];

fn section(page: &mut Page, id: &str, title: &str, inside: impl FnOnce(&mut Page)) {
    page.push(&format!("<section id=\"{id}-part\"><h2>{title}</h2>"));
    inside(page);
    page.push("</section>");
}

fn header(result: &BenchResult, page: &mut Page) {
    page.push(&format!("<header><p class=\"what\">larder bench</p><h1>{}</h1>", wrapped(&result.title)));
    page.push(&format!("<p class=\"lead\">{}</p>", escape(&view::headline(result))));
    page.push("<dl>");
    let interrupted = result.interrupted.then(|| "cut short by a person or an error; what is there is good".to_owned());
    let facts = [
        ("Machine", Some(machine(&result.machine))),
        ("Far end", result.far_machine.as_ref().map(far_end)),
        ("larder", Some(method(result))),
        ("Interrupted", interrupted),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            page.push(&format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value)));
        }
    }
    page.push("</dl></header>");
}

fn contents(result: &BenchResult, figures: &[Figure], page: &mut Page) {
    page.push("<nav aria-label=\"Contents\">");
    if has_overview(result, figures) {
        page.push("<a href=\"#overview-part\">Bottom to top</a>");
    }
    page.push("<a href=\"#layers-part\">Layer by layer</a>");
    for (chapter, id, title) in CHAPTERS {
        if figures.iter().any(|f| f.chapter == chapter) {
            page.push(&format!("<a href=\"#{id}-part\">{title}</a>"));
        }
    }
    page.push("<a href=\"#runs-part\">Run by run</a>");
    if all_notes(result).iter().any(|(note, _)| urgency(note) == 2) {
        page.push("<a href=\"#remarks-part\">Notes</a>");
    }
    page.push("</nav>");
}

fn notes(result: &BenchResult, page: &mut Page, id: &str, title: &str, wanted: impl Fn(u8) -> bool) {
    let mut found = all_notes(result);
    found.retain(|(note, _)| wanted(urgency(note)));
    if found.is_empty() {
        return;
    }
    page.push(&format!("<section id=\"{id}-part\" class=\"notes\"><h2>{title}</h2><ul>"));
    for (note, whose) in found {
        let (class, sign) =
            if note.misleading { (" class=\"wrong\"", "<strong>Misleading:</strong> ") } else { ("", "") };
        let of = if whose.is_empty() { String::new() } else { format!(" <em>({})</em>", wrapped(&whose)) };
        page.push(&format!("<li{class}>{sign}{}{of}</li>", wrapped(&note.text)));
    }
    page.push("</ul></section>");
}

fn plots(figures: &[Figure], chapter: Chapter, page: &mut Page) {
    for found in figures.iter().filter(|f| f.chapter == chapter) {
        page.push(&figure(found, 3));
    }
}

fn sums(result: &BenchResult, page: &mut Page) {
    let sums = view::sums(result);
    if !sums.is_empty() {
        page.push("<ul class=\"sums\">");
        for sum in &sums {
            let class = if sum.holds() { "good" } else { "wrong" };
            page.push(&format!("<li class=\"{class}\">{}.</li>", escape(&view::capital(&sum.sentence()))));
        }
        page.push("</ul>");
    }
}

fn layers(result: &BenchResult, page: &mut Page) {
    let main = view::main_runs(result);
    for layer in words::LAYERS {
        let runs: Vec<&Run> = main.iter().copied().filter(|r| r.layer == layer).collect();
        if !runs.is_empty() {
            let (name, meaning) = (view::capital(words::layer(layer)), words::layer_meaning(layer));
            page.push(&format!("<h3>{name} <small>{meaning}</small></h3>{}", grid(&layer_grid(layer, &runs))));
        }
    }
    let hidden = result.runs.len().saturating_sub(view::RUNS_MAX);
    if hidden > 0 {
        page.push(&format!("<p>{hidden} more runs are in the JSON only.</p>"));
    }
}

fn layer_grid(layer: Layer, runs: &[&Run]) -> Grid {
    let head = [
        "Subject",
        "Workload",
        "Median",
        "Spread",
        "Repeats",
        "p50",
        "p99",
        "CPU s/GiB",
        "Saturated",
        "Made by",
        "Caches",
    ];
    let mut grid = Grid { head: head.map(str::to_owned).to_vec(), rows: Vec::new() };
    for run in runs {
        let latency = |at: Option<f64>| at.map_or(String::new(), units::latency);
        let sign = if view::misleading(run).is_some() { "! " } else { "" };
        let full = run.saturated.first().map(|s| format!("{} {}", words::clean(&s.what), units::percent(s.share)));
        let caches = if layer == Layer::Net { "" } else { words::caches(run.workload.caches) };
        grid.rows.push(vec![
            format!("{sign}{}", words::subject(run)),
            words::workload(&run.workload),
            run.median().map_or(String::new(), |m| view::unit(run).show(m)),
            facts::spread(run),
            run.repeats.len().to_string(),
            latency(facts::latency(run, |l| l.p50_us)),
            latency(facts::latency(run, |l| l.p99_us)),
            facts::cpu_s_per_gib(run).map_or(String::new(), units::digits),
            full.unwrap_or_default(),
            run.with.clone(),
            caches.to_owned(),
        ]);
        for (name, side) in run.sides() {
            let mut row = vec![String::new(); head.len()];
            row[1] = name.to_owned();
            row[2] = side.median().map_or(String::new(), |m| view::unit(&side).show(m));
            row[3] = facts::spread(&side);
            row[5] = latency(facts::latency(&side, |l| l.p50_us));
            row[6] = latency(facts::latency(&side, |l| l.p99_us));
            grid.rows.push(row);
        }
    }
    grid
}

/// Closed but the first that was saturated: a report begins calm.
fn details(result: &BenchResult, figures: &[Figure], page: &mut Page) {
    let runs = figures::detailed(result);
    if runs.is_empty() {
        return;
    }
    let opened = runs.iter().position(|r| !r.saturated.is_empty()).unwrap_or(0);
    section(page, "runs", "Run by run: what the machine did", |page| {
        for (n, run) in runs.iter().enumerate() {
            let open = if n == opened { " open" } else { "" };
            let value = run.median().map_or(String::new(), |m| view::unit(run).show(m));
            let (name, work) = (wrapped(&words::subject(run)), escape(&words::workload(&run.workload)));
            page.push(&format!(
                "<details class=\"run\"{open}><summary><span class=\"layer\">{}</span> {name}: {work} <b>{}</b></summary>",
                words::layer(run.layer),
                escape(&value)
            ));
            saturated(run, page);
            page.push("<div class=\"grid\">");
            plots(figures, Chapter::Run(n), page);
            page.push("</div></details>");
        }
        let hidden = view::main_runs(result).len().saturating_sub(runs.len());
        if runs.len() == figures::DETAILS_MAX && hidden > 0 {
            page.push(&format!("<p>{hidden} more runs are in the JSON only.</p>"));
        }
    });
}

fn saturated(run: &Run, page: &mut Page) {
    let start_ms = run.repeats.iter().map(|r| r.start_ms).min().unwrap_or(0);
    let seconds = |at_ms: u64| units::duration(at_ms.saturating_sub(start_ms) as f64 / 1e3);
    let saturated = view::saturated(run);
    if saturated.is_empty() {
        return;
    }
    page.push("<ul class=\"sums\">");
    for full in saturated.iter().take(12) {
        page.push(&format!(
            "<li class=\"wrong\">{} had no more to give for {} of the time, from {} to {} of the run.</li>",
            escape(&view::capital(&full.what)),
            units::percent(full.share),
            seconds(full.from_ms),
            seconds(full.to_ms)
        ));
    }
    page.push("</ul>");
}

fn footer(result: &BenchResult, page: &mut Page) {
    page.push(&format!(
        "<footer><p>{}. Incomplete or doubtful measurements are marked with an exclamation mark.</p>\
         <p class=\"download\" data-name=\"{}\">The complete result is inside this page, in the element with the id \
         <code>result</code>.</p><p>{} {}, result {}, made by larder {}.</p></footer>",
        escape(UNITS),
        escape(&format!("larder-bench-{}", result.id)),
        escape(&result.schema),
        result.version,
        escape(&result.id),
        escape(&result.larder)
    ));
}
