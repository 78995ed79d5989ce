//! Whether the pool is in use just now, so that background work can stand back.
//!
//! A few relaxed atomics on the way of every request; background work reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// After the last request the pool counts as in use for so long: between two requests of one reader
/// lies the time that its client and the network take.
const LINGER: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Activity {
    started: Instant,
    under_way: AtomicU64,
    /// When the last request ended, in ms since `started`.
    last_ms: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Self { started: Instant::now(), under_way: AtomicU64::new(0), last_ms: AtomicU64::new(0) }
    }
}

/// One request, until it is dropped.
pub struct Request<'a>(&'a Activity);

impl Activity {
    pub fn enter(&self) -> Request<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Request(self)
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub fn is_busy(&self) -> bool {
        let last = self.last_ms.load(Ordering::Relaxed);
        let recent = last > 0 && self.now_ms().saturating_sub(last) < LINGER.as_millis() as u64;
        recent || self.under_way.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.0.last_ms.store(self.0.now_ms().max(1), Ordering::Relaxed);
        let before = self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each request ends once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_while_a_request_runs_and_a_little_longer() {
        let activity = Activity::default();
        assert!(!activity.is_busy());
        let request = activity.enter();
        assert!(activity.is_busy());
        drop(request);
        assert!(activity.is_busy());
        std::thread::sleep(LINGER + Duration::from_millis(20));
        assert!(!activity.is_busy());
    }
}
