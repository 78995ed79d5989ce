//! `larder charts`: throughput, disks, watts and temperature over time.

use clap::Args;
use larder_api::endpoints::GetCharts;
use larder_api::{ChartSample, ChartSpan, ChartSpanName, Charts, Failure};
use larder_measure::doctor::bytes_words;

use super::args::Global;
use super::reach::daemon;
use crate::render;
use larder_config::times;

#[derive(Debug, Args)]
pub(crate) struct ChartsArgs {
    /// hour, day, month or year
    #[arg(default_value = "hour", value_parser = span)]
    span: ChartSpanName,
}

fn span(text: &str) -> Result<ChartSpanName, String> {
    let found = ChartSpanName::ALL.into_iter().find(|span| span.word() == text);
    found.ok_or_else(|| format!("'{text}' is not a span: use one of hour, day, month, year"))
}

pub(super) async fn run(global: &Global, args: ChartsArgs) -> Result<(), Failure> {
    let Charts { spans } = daemon(global).await?.ask(GetCharts).await?;
    let found = spans.into_iter().find(|one| one.span == args.span);
    let found = found.ok_or_else(|| Failure::internal("the daemon does not know this span"))?;
    global.out().answer(&found, shown)
}

fn shown(span: &ChartSpan) -> String {
    if span.samples.is_empty() {
        return format!("nothing is known of the last {} yet", span.span.word());
    }
    let head = ["FROM", "READ", "WRITTEN", "DISK CALLS", "LATENCY", "WATTS", "HOTTEST DISK"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(span.samples.iter().map(row));
    render::table(&rows, &[1, 2, 3, 4, 5, 6])
}

fn row(sample: &ChartSample) -> Vec<String> {
    let known = |value: Option<f64>, words: &dyn Fn(f64) -> String| value.map_or_else(|| "-".to_owned(), words);
    vec![
        times::local(sample.at_s.saturating_mul(1000)),
        known(sample.read_bytes_per_s, &bytes_words),
        known(sample.written_bytes_per_s, &bytes_words),
        known(sample.disk_calls_per_s, &|calls| format!("{calls:.1}/s")),
        known(sample.disk_latency_us, &|us| format!("{:.2} ms", us / 1e3)),
        known(sample.watts, &|watts| format!("{watts:.1} W")),
        known(sample.disk_celsius, &|degrees| format!("{degrees:.0} °C")),
    ]
}
