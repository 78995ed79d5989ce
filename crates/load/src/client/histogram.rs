//! Latencies of any number of requests in a fixed space: exact to 1.6 %.

use crate::workload::Latency;
use std::time::Duration;

/// Each power of two is divided into as many equal buckets.
const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
/// Nanoseconds up to 2^42: more than an hour.
const BUCKETS: usize = (42 - SUB_BITS as usize + 1) * SUB;

#[derive(Clone)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (63 - (ns | (SUB as u64 - 1)).leading_zeros()).saturating_sub(SUB_BITS);
    let index = (shift as usize * SUB) + (ns >> shift) as usize;
    index.min(BUCKETS - 1)
}

/// The middle of a bucket.
fn value_ns(bucket: usize) -> f64 {
    match bucket.checked_sub(2 * SUB) {
        None => bucket as f64,
        Some(above) => {
            let shift = above / SUB + 1;
            let width = (1u64 << shift) as f64;
            (SUB + above % SUB) as f64 * width + width / 2.0
        }
    }
}

impl Histogram {
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count += 1;
        }
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    fn quantile_us(&self, q: f64) -> f64 {
        let wanted = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return value_ns(bucket).min(self.max_ns as f64) / 1e3;
            }
        }
        self.max_ns as f64 / 1e3
    }

    /// `None` when nothing was recorded.
    pub fn latency(&self) -> Option<Latency> {
        (self.count > 0).then(|| Latency {
            mean_us: self.sum_ns as f64 / self.count as f64 / 1e3,
            p50_us: self.quantile_us(0.5),
            p95_us: self.quantile_us(0.95),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            max_us: self.max_ns as f64 / 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for ns in (0..5000u64).chain((13..42).flat_map(|p| [(1 << p) - 1, 1 << p, (1 << p) + (1 << (p - 1))])) {
            let at = bucket(ns);
            assert!(at >= last, "{ns}");
            last = at;
            assert!((value_ns(at) - ns as f64).abs() <= ns as f64 / 64.0 + 1.0, "{ns}: {}", value_ns(at));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles() {
        let mut h = Histogram::default();
        assert_eq!(h.latency(), None);
        (1..=1000).for_each(|us| h.record(Duration::from_micros(us)));
        let mut twice = h.clone();
        twice.add(&h);
        let l = twice.latency().unwrap();
        assert!((l.mean_us - 500.5).abs() < 0.01);
        for (got, wanted) in [(l.p50_us, 500.0), (l.p95_us, 950.0), (l.p99_us, 990.0), (l.p999_us, 999.0)] {
            assert!((got - wanted).abs() / wanted < 0.017, "{got} for {wanted}");
        }
        assert_eq!(l.max_us, 1000.0);
    }
}
