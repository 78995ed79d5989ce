//! The pace of writers while much of the memory for dirty data is in use.
//!
//! Flushes give memory back by whole segments. Writers that wait for memory would therefore wait for none or for a
//! whole segment, and a client would see answers of very different ages.
//!
//! - `pace.as_flushes_go`: writers together are admitted at the rate at which flushes give memory back; a little faster
//!   while less than three quarters are in use, slower beyond. So the memory neither empties nor fills up.
//! - `pace.one_line`: each write has its turn on one line of time, behind the writes admitted before. So writes that
//!   are in flight together wait about as long as writes one after the other.

use std::time::Duration;

use parking_lot::Mutex;

/// The rate is measured over this long at least: several groups of segments of a fast disk.
const WINDOW: Duration = Duration::from_secs(1);
/// A measurement over more than this says nothing: there was a pause.
const PAUSE: Duration = Duration::from_secs(2);
/// The rate before the first measurement, in bytes a second.
const RATE_FIRST: f64 = 1e9;
/// Flushes that stand still are waited for at the bound, not here.
const RATE_MIN: f64 = 1e6;
/// The longest wait. Writers that would wait longer meet the bound.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// Timers are too coarse for less.
const WAIT_MIN: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Line>);

#[derive(Debug)]
struct Line {
    /// When the next write has its turn.
    next: Duration,
    /// When the present measurement began, and the bytes given back by then.
    since: Option<(Duration, u64)>,
    /// Bytes a second.
    rate: f64,
}

impl Default for Line {
    fn default() -> Self {
        Self { next: Duration::ZERO, since: None, rate: RATE_FIRST }
    }
}

impl Pace {
    /// The wait of a write of `bytes` that comes `now`, when flushes have given back `released`
    /// bytes since the beginning. `full`: 0 where writers begin to be slowed, 1 at the bound.
    pub(super) fn wait(&self, now: Duration, bytes: u64, released: u64, full: f64) -> Duration {
        let mut line = self.0.lock();
        line.measure(now, released);
        let rate = (line.rate * 2f64.powf(1.0 - 2.0 * full.clamp(0.0, 1.0))).max(RATE_MIN);
        let turn = line.next.max(now);
        let wait = (turn - now).min(WAIT_MAX);
        line.next = now + wait + Duration::from_secs_f64(bytes as f64 / rate);
        if wait < WAIT_MIN { Duration::ZERO } else { wait }
    }
}

impl Line {
    fn measure(&mut self, now: Duration, released: u64) {
        let Some((since, before)) = self.since else {
            self.since = Some((now, released));
            return;
        };
        let lasted = now.saturating_sub(since);
        if lasted < WINDOW {
            return;
        }
        self.since = Some((now, released));
        if lasted <= PAUSE {
            let rate = released.saturating_sub(before) as f64 / lasted.as_secs_f64();
            self.rate = (self.rate + rate) / 2.0;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BinaryHeap;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Writes of a MiB, `depth` of them in flight, beside flushes of 64 MiB. Returns the waits in ms, sorted, and the
    /// bytes a second that flushes took after the first seconds.
    fn simulate(depth: usize, flush_rate: f64) -> (Vec<f64>, f64) {
        let (bound, segment) = (1024 * MIB, 64 * MIB);
        let (pace, mut used, mut released) = (Pace::default(), 0u64, 0u64);
        let ms = |time: u64| Duration::from_micros(time);
        // Writes as (minus the time when each may go on, the time when it came), in microseconds.
        let mut writers: BinaryHeap<(i64, u64)> = (0..depth).map(|_| (0, 0)).collect();
        let (mut flush_ends, mut waits, mut flushed) = (None, Vec::new(), 0);
        for now in (0..20_000_000u64).step_by(100) {
            if flush_ends.is_some_and(|end| end <= now) {
                (used, released, flush_ends) = (used - segment, released + segment, None);
                flushed += if now > 5_000_000 { segment } else { 0 };
            }
            if flush_ends.is_none() && used >= segment {
                flush_ends = Some(now + (segment as f64 / flush_rate * 1e6) as u64);
            }
            while writers.peek().is_some_and(|(at, _)| -at <= now as i64) && used + MIB <= bound {
                let (_, came) = writers.pop().unwrap();
                used += MIB;
                if now > 5_000_000 {
                    waits.push((now - came) as f64 / 1e3);
                }
                let half = bound / 2;
                let wait = match used > half {
                    true => pace.wait(ms(now), MIB, released, (used - half) as f64 / half as f64),
                    false => Duration::ZERO,
                };
                // 0.2 ms for the work of each.
                writers.push((-((now + 200 + wait.as_micros() as u64) as i64), now));
            }
        }
        waits.sort_by(f64::total_cmp);
        (waits, flushed as f64 / 15.0)
    }

    /// `pace.as_flushes_go`, `pace.one_line`
    #[test]
    fn writers_wait_about_as_long_as_each_other_and_the_disks_are_busy() {
        for (depth, rate) in [(1, 4e8), (4, 1.2e9), (16, 1.2e9), (16, 2e8), (64, 1.2e9)] {
            let (waits, flushed) = simulate(depth, rate);
            let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize];
            assert!(flushed > rate * 0.96, "depth {depth}: {flushed:.3e} of {rate:.1e} bytes a second");
            assert!(at(0.99) <= at(0.5) * 2.5 + 2.0, "depth {depth}: {} and {} ms", at(0.5), at(0.99));
        }
    }

    #[test]
    fn flushes_that_stand_still_are_waited_for_a_bounded_time() {
        let pace = Pace::default();
        for n in 0..10_000u64 {
            assert!(pace.wait(Duration::from_millis(n), MIB, 0, 1.0) <= WAIT_MAX);
        }
    }
}
