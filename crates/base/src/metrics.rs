//! Counters for those who watch, and the text that Prometheus reads.
//!
//! Counting is one relaxed addition, without a lock; whoever asks walks over all layers, which add to one [`Metrics`].
//! Names are `larder_<layer>_<what>_<unit>`, with `_total` at the end of what only grows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets of a [`Latency`], in microseconds; one more bucket has no bound.
const BOUNDS_US: [u64; 14] =
    [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000];

/// Something that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BOUNDS_US.len() + 1], sum_us: AtomicU64::new(0) }
    }

    pub fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// How often so far, and how long together, in microseconds.
    pub fn totals(&self) -> (u64, u64) {
        (self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum(), self.sum_us.load(Relaxed))
    }
}

/// The metrics of all layers, by name.
#[derive(Debug, Default)]
pub struct Metrics {
    families: BTreeMap<&'static str, Family>,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    lines: String,
}

/// Names and values that tell samples of one name apart.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

impl Metrics {
    pub fn counter(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: u64) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.sample(name, "counter", help, labels, value);
    }

    pub fn gauge(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: u64) {
        self.sample(name, "gauge", help, labels, value);
    }

    pub fn latency(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, latency: &Latency) {
        debug_assert!(name.ends_with("_seconds"), "{name}");
        let family = self.family(name, "histogram", help);
        let mut count = 0;
        for (at, bucket) in latency.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            let bound = BOUNDS_US.get(at).map_or("+Inf".to_owned(), |us| (*us as f64 / 1e6).to_string());
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            line(&mut family.lines, name, "_bucket", &labels, &count);
        }
        line(&mut family.lines, name, "_sum", labels, &(latency.sum_us.load(Relaxed) as f64 / 1e6));
        line(&mut family.lines, name, "_count", labels, &count);
    }

    fn sample(&mut self, name: &'static str, kind: &'static str, help: &'static str, labels: Labels<'_>, value: u64) {
        let family = self.family(name, kind, help);
        line(&mut family.lines, name, "", labels, &value);
    }

    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut Family {
        self.families.entry(name).or_insert(Family { help, kind, lines: String::new() })
    }

    /// The text format of Prometheus, version 0.0.4.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, family) in &self.families {
            let Family { help, kind, lines } = family;
            // Writing to a string does not fail.
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
        out
    }
}

fn line(out: &mut String, name: &str, suffix: &str, labels: &[(&'static str, &str)], value: &dyn std::fmt::Display) {
    let _ = write!(out, "{name}{suffix}");
    for (at, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' });
    }
    let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_grouped_by_name_and_escaped() {
        let mut metrics = Metrics::default();
        metrics.counter("larder_b_total", "Second.", &[("disk", "/mnt/\"a\"\\")], 7);
        metrics.gauge("larder_a_bytes", "First.", &[], 3);
        metrics.counter("larder_b_total", "Second.", &[("disk", "b"), ("kind", "x")], 8);
        let expected = "# HELP larder_a_bytes First.\n# TYPE larder_a_bytes gauge\nlarder_a_bytes 3\n\
                        # HELP larder_b_total Second.\n# TYPE larder_b_total counter\n\
                        larder_b_total{disk=\"/mnt/\\\"a\\\"\\\\\"} 7\nlarder_b_total{disk=\"b\",kind=\"x\"} 8\n";
        assert_eq!(metrics.text(), expected);
    }

    #[test]
    fn buckets_are_cumulative() {
        let latency = Latency::default();
        [10, 60, 60, 20_000_000].iter().for_each(|us| latency.add(Duration::from_micros(*us)));
        let mut metrics = Metrics::default();
        metrics.latency("larder_x_seconds", "Time.", &[("op", "read")], &latency);
        let text = metrics.text();
        for wanted in [
            "larder_x_seconds_bucket{op=\"read\",le=\"0.00005\"} 1\n",
            "larder_x_seconds_bucket{op=\"read\",le=\"0.0001\"} 3\n",
            "larder_x_seconds_bucket{op=\"read\",le=\"10\"} 3\n",
            "larder_x_seconds_bucket{op=\"read\",le=\"+Inf\"} 4\n",
            "larder_x_seconds_sum{op=\"read\"} 20.00013\n",
            "larder_x_seconds_count{op=\"read\"} 4\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
    }
}
