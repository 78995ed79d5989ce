//! The engine's clock: wall time at the start, monotonic from there, never behind the newest time
//! in the database.
//!
//! A step back stalls the engine's writes for seconds and then kills it; a board without a clock
//! battery starts in 1970. So the wall clock is read once, and raised to the newest tick found in
//! manifest and log, and in the names of tables.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use larder_base::Clock;
use slatedb_common::clock::{SystemClock, SystemClockTicker};

pub(crate) struct EngineClock {
    clock: Arc<dyn Clock>,
    /// Milliseconds to add to the monotonic time.
    offset_ms: AtomicI64,
}

impl EngineClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        let wall_ms = now.secs.saturating_mul(1000).saturating_add(i64::from(now.nanos / 1_000_000));
        let offset_ms = AtomicI64::new(wall_ms.saturating_sub(elapsed_ms(&*clock)));
        Self { clock, offset_ms }
    }

    pub(crate) fn not_before(&self, tick_ms: i64) {
        self.offset_ms.fetch_max(tick_ms.saturating_sub(elapsed_ms(&*self.clock)), Ordering::Relaxed);
    }
}

fn elapsed_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.elapsed().as_millis()).unwrap_or(i64::MAX)
}

impl std::fmt::Debug for EngineClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineClock")
    }
}

impl SystemClock for EngineClock {
    fn now(&self) -> DateTime<Utc> {
        let ms = elapsed_ms(&*self.clock).saturating_add(self.offset_ms.load(Ordering::Relaxed));
        DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::UNIX_EPOCH)
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}
