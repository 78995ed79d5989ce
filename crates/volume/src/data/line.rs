//! The line to a store behind a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

/// Requests for what lies around scattered reads of one volume, at a time.
const AROUND_FETCHES_MAX: usize = 4;

/// How far away the store is: the running means of what requests have shown.
#[derive(Debug)]
pub(super) struct Line {
    latency_us: AtomicU64,
    bytes_per_s: AtomicU64,
    /// Turns of requests for what lies around scattered reads.
    pub(super) around: Arc<Semaphore>,
}

impl Default for Line {
    fn default() -> Self {
        let around = Arc::new(Semaphore::new(AROUND_FETCHES_MAX));
        Self { latency_us: AtomicU64::new(0), bytes_per_s: AtomicU64::new(0), around }
    }
}

impl Line {
    /// A request was answered after `latency`, and a body of so many bytes came in so long.
    pub(super) fn measured(&self, latency: Duration, body: Option<(u64, Duration)>) {
        let mix = |mean: &AtomicU64, value: u64| {
            let old = mean.load(Ordering::Relaxed);
            mean.store(if old == 0 { value } else { (old * 7 + value) / 8 }, Ordering::Relaxed);
        };
        mix(&self.latency_us, (latency.as_micros() as u64).max(1));
        if let Some((bytes, lasted)) = body {
            mix(&self.bytes_per_s, bytes.saturating_mul(1_000_000) / (lasted.as_micros() as u64).max(1));
        }
    }

    /// Bytes that come in a round trip; 0 while nothing is known.
    pub(super) fn round_trip_bytes(&self) -> u64 {
        self.latency_us.load(Ordering::Relaxed).saturating_mul(self.bytes_per_s.load(Ordering::Relaxed)) / 1_000_000
    }
}
