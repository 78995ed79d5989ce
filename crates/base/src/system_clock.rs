//! The clock that is no simulator's.

use std::time::{Duration, Instant, SystemTime};

use crate::clock::{Clock, Timestamp};
use crate::passed;

/// The clocks of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn ahead_secs(&self) -> i64 {
        passed::ahead_secs()
    }
}
