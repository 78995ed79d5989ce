//! The line to a store behind a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

/// One request to a far store, in bytes of files. Sixteen of them fill most lines: a server of S3
/// gives a connection 50 to 100 MB/s.
pub(super) const RANGE: u64 = 4 << 20;
/// Requests for what lies around scattered reads of one volume, at a time.
const AROUND_FETCHES_MAX: usize = 4;
/// Beyond this, what was measured before counts half.
const REMEMBERED_BYTES: u64 = 32 << 20;

/// How far away the store is: what the newest requests have shown.
#[derive(Debug)]
pub(super) struct Line {
    latency_us: AtomicU64,
    /// Bytes of bodies, and the time that they took.
    bytes: AtomicU64,
    lasted_us: AtomicU64,
    /// Turns of requests for what lies around scattered reads.
    pub(super) around: Arc<Semaphore>,
}

impl Default for Line {
    fn default() -> Self {
        let around = Arc::new(Semaphore::new(AROUND_FETCHES_MAX));
        Self { latency_us: 0.into(), bytes: 0.into(), lasted_us: 0.into(), around }
    }
}

impl Line {
    /// A request was answered after `latency`, and its body of so many bytes came in so long.
    pub(super) fn measured(&self, latency: Duration, bytes: u64, lasted: Duration) {
        let old = self.latency_us.load(Ordering::Relaxed);
        let latency = (latency.as_micros() as u64).max(1);
        self.latency_us.store(if old == 0 { latency } else { (old * 7 + latency) / 8 }, Ordering::Relaxed);
        self.lasted_us.fetch_add((lasted.as_micros() as u64).max(1), Ordering::Relaxed);
        // The past counts less and less. Two at once may halve twice, which only forgets more.
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) > REMEMBERED_BYTES {
            for sum in [&self.bytes, &self.lasted_us] {
                sum.store(sum.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// Bytes that come in a round trip; 0 while nothing is known.
    pub(super) fn round_trip_bytes(&self) -> u64 {
        let [latency, bytes, lasted] =
            [&self.latency_us, &self.bytes, &self.lasted_us].map(|number| number.load(Ordering::Relaxed));
        latency.saturating_mul(bytes) / lasted.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_line_is_known_by_its_first_long_body() {
        let (line, ms) = (Line::default(), Duration::from_millis);
        assert_eq!(line.round_trip_bytes(), 0);
        // All of a short body comes with its head.
        line.measured(ms(20), 8 << 10, Duration::ZERO);
        line.measured(ms(20), 256 << 10, ms(20));
        assert!((250 << 10..300 << 10).contains(&line.round_trip_bytes()), "{}", line.round_trip_bytes());
        for _ in 0..100 {
            line.measured(ms(20), 4 << 20, ms(20));
        }
        assert!(line.round_trip_bytes() > 3 << 20, "{}", line.round_trip_bytes());
    }
}
