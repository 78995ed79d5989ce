//! Charts of an hour, a day, a month and a year, drawn on the server: they need no script.

use askama::Template;
use larder_api::endpoints::GetCharts;
use larder_api::{ChartSample, ChartSpan, ChartSpanName};

use crate::text::{Moment, rate};
use crate::visit::{Answer, Frame, Visit, page as show};

/// Of a plot, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;

/// A measure over time: lines in one plot with one scale.
pub struct Plot {
    pub id: &'static str,
    pub title: &'static str,
    /// The highest value, at the top of the scale.
    pub top: String,
    /// Name, class and path of each line.
    pub lines: Vec<(&'static str, &'static str, String)>,
    /// The newest and the highest value of each line.
    pub words: String,
}

type Value = fn(&ChartSample) -> Option<f64>;
type Line = (&'static str, &'static str, Value);

impl Plot {
    /// `None`: nothing is known of it.
    fn of(
        (id, title, words): (&'static str, &'static str, fn(f64) -> String),
        lines: &[Line],
        span: &ChartSpan,
    ) -> Option<Self> {
        let last = span.samples.last()?.at_s / span.step_s.max(1);
        let first = last.saturating_sub(count_of(span.span) - 1);
        let all = lines.iter().flat_map(|(.., value)| span.samples.iter().filter_map(value));
        let top = all.reduce(f64::max)?;
        let scale = if top > 0.0 { top * 1.05 } else { 1.0 };
        let x = |sample: &ChartSample| {
            let at = (sample.at_s / span.step_s.max(1)).saturating_sub(first);
            at as f64 / (count_of(span.span) - 1) as f64 * WIDTH
        };
        let step = WIDTH / (count_of(span.span) - 1) as f64;
        let path = |value: Value| {
            let mut path = String::new();
            let mut before = None;
            for sample in &span.samples {
                let Some(y) = value(sample) else { continue };
                let number = sample.at_s / span.step_s.max(1);
                if number < first {
                    continue;
                }
                // A gap is a time in which larder did not run.
                let is_next = before.is_some_and(|before: u64| number <= before + 2);
                before = Some(number);
                let (x, y) = (x(sample), HEIGHT - y / scale * HEIGHT);
                match is_next {
                    true => path.push_str(&format!("L{x:.1} {y:.1}")),
                    // As long as a sample lasts: one alone is seen.
                    false => path.push_str(&format!("M{:.1} {y:.1}H{x:.1}", x - step)),
                }
            }
            path
        };
        let told = |(name, _, value): &Line| {
            let values: Vec<f64> = span.samples.iter().filter_map(value).collect();
            let (now, most) = (values.last()?, values.iter().copied().reduce(f64::max)?);
            Some(format!("{name}: {} at last, {} at most", words(*now), words(most)))
        };
        Some(Self {
            id,
            title,
            top: words(scale),
            lines: lines.iter().map(|(name, class, value)| (*name, *class, path(*value))).collect(),
            words: lines.iter().filter_map(told).collect::<Vec<_>>().join("; "),
        })
    }
}

/// Samples of a span, as the daemon keeps them.
fn count_of(span: ChartSpanName) -> u64 {
    match span {
        ChartSpanName::Hour => 60,
        ChartSpanName::Day => 144,
        ChartSpanName::Month => 186,
        ChartSpanName::Year => 366,
    }
}

/// The plots of a span, and what nothing is known of.
fn plots(span: &ChartSpan) -> Vec<Plot> {
    let bytes = |value: f64| rate(value.max(0.0) as u64);
    let all: [Option<Plot>; 5] = [
        Plot::of(
            ("throughput", "Throughput of clients", bytes),
            &[("read", "first", |s| s.read_bytes_per_s), ("written", "second", |s| s.written_bytes_per_s)],
            span,
        ),
        Plot::of(
            ("calls", "Calls to disks", |value| format!("{value:.1} a second")),
            &[("calls", "first", |s| s.disk_calls_per_s)],
            span,
        ),
        Plot::of(
            ("latency", "Latency of disks", |value| format!("{:.2} ms", value / 1e3)),
            &[("a call", "first", |s| s.disk_latency_us)],
            span,
        ),
        Plot::of(("watts", "Power", |value| format!("{value:.1} W")), &[("the machine", "first", |s| s.watts)], span),
        Plot::of(
            ("celsius", "Temperature", |value| format!("{value:.0} °C")),
            &[("the hottest disk", "first", |s| s.disk_celsius)],
            span,
        ),
    ];
    all.into_iter().flatten().collect()
}

pub struct RowView {
    pub at: Moment,
    pub cells: [String; 6],
}

impl RowView {
    fn of(sample: &ChartSample) -> Self {
        let known = |value: Option<f64>, words: fn(f64) -> String| value.map_or_else(|| "\u{2013}".to_owned(), words);
        Self {
            at: Moment::of_secs(sample.at_s),
            cells: [
                known(sample.read_bytes_per_s, |value| rate(value.max(0.0) as u64)),
                known(sample.written_bytes_per_s, |value| rate(value.max(0.0) as u64)),
                known(sample.disk_calls_per_s, |value| format!("{value:.1}")),
                known(sample.disk_latency_us, |value| format!("{:.2} ms", value / 1e3)),
                known(sample.watts, |value| format!("{value:.1} W")),
                known(sample.disk_celsius, |value| format!("{value:.0} °C")),
            ],
        }
    }
}

/// Rows of the table below the plots, the newest first.
const ROWS_SHOWN_MAX: usize = 100;

#[derive(Template)]
#[template(path = "charts.html")]
struct ChartsPage {
    frame: Frame,
    span: &'static str,
    plots: Vec<Plot>,
    missing: String,
    from: Option<Moment>,
    until: Option<Moment>,
    rows: Vec<RowView>,
}

impl ChartsPage {
    fn spans(&self) -> [&'static str; 4] {
        ChartSpanName::ALL.map(ChartSpanName::word)
    }
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let charts = visit.ask(GetCharts).await?;
    let word = visit.query.text("span");
    let wanted = ChartSpanName::ALL.into_iter().find(|span| span.word() == word).unwrap_or(ChartSpanName::Hour);
    let span = charts.spans.into_iter().find(|one| one.span == wanted);
    let span = span.unwrap_or(ChartSpan { span: wanted, step_s: 60, samples: Vec::new() });
    let plots = plots(&span);
    let has = |id: &str| plots.iter().any(|plot| plot.id == id);
    let missing =
        [("watts", "power: no meter measures the whole machine"), ("celsius", "temperature: no disk tells its own")];
    let missing: Vec<&str> = missing.into_iter().filter(|(id, _)| !has(id)).map(|(_, text)| text).collect();
    let last = span.samples.last().map(|sample| sample.at_s);
    let from = last.map(|last| last.saturating_sub((count_of(wanted) - 1) * span.step_s));
    show(&ChartsPage {
        frame: visit.frame("care", "Charts"),
        span: wanted.word(),
        missing: missing.join("; "),
        from: from.map(Moment::of_secs),
        until: last.map(Moment::of_secs),
        rows: span.samples.iter().rev().take(ROWS_SHOWN_MAX).map(RowView::of).collect(),
        plots,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: u64, watts: Option<f64>) -> ChartSample {
        ChartSample {
            at_s,
            read_bytes_per_s: Some(0.0),
            written_bytes_per_s: Some(0.0),
            disk_calls_per_s: None,
            disk_latency_us: None,
            watts,
            disk_celsius: None,
        }
    }

    #[test]
    fn lines_end_where_larder_did_not_run() {
        let at = |minute: u64| sample((1000 + minute) * 60, Some(minute as f64));
        let samples = vec![at(0), at(1), at(20), at(59)];
        let span = ChartSpan { span: ChartSpanName::Hour, step_s: 60, samples };
        let plots = plots(&span);
        let ids: Vec<&str> = plots.iter().map(|plot| plot.id).collect();
        assert_eq!(ids, ["throughput", "watts"], "nothing is drawn of what is not known");
        let path = &plots[1].lines[0].2;
        assert_eq!(path.matches('M').count(), 3, "{path}");
        assert!(path.starts_with("M-16.9 200.0H0.0L16.9 ") && path.ends_with("M983.1 9.5H1000.0"), "{path}");
        assert!(plots[1].words.contains("59.0 W at most"));
    }
}
