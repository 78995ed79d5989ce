//! Time, injected: a simulator runs the same code with a clock of its own.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time as POSIX `timespec` has it: seconds since 1970-01-01 UTC (may be negative)
/// and nanoseconds, 0 to 999,999,999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    pub secs: i64,
    pub nanos: u32,
}

impl Timestamp {
    /// `nanos` above 999,999,999 are clamped: they come from a client's socket.
    pub fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos: nanos.min(999_999_999) }
    }

    pub fn earlier_by(self, secs: i64) -> Self {
        Self { secs: self.secs.saturating_sub(secs), ..self }
    }

    pub fn to_system_time(self) -> SystemTime {
        let whole = Duration::from_secs(self.secs.unsigned_abs());
        let base = if self.secs >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
        base.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::from(self.nanos))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let (secs, nanos) = (-(before.as_secs() as i64), before.subsec_nanos());
                if nanos == 0 { Self { secs, nanos: 0 } } else { Self { secs: secs - 1, nanos: 1_000_000_000 - nanos } }
            }
        }
    }
}

/// Wall time for file times, monotonic time for everything that measures or waits.
pub trait Clock: Send + Sync + 'static {
    /// Wall time; may step in either direction.
    fn now(&self) -> Timestamp;
    /// Monotonic time since an arbitrary start.
    fn elapsed(&self) -> Duration;
    /// By how many seconds wall time is ahead of the time of the box, by which all goes that destroys, ends or protects
    /// (`passed.really`).
    fn ahead_secs(&self) -> i64 {
        0
    }

    /// The time of the box.
    fn box_now(&self) -> Timestamp {
        self.now().earlier_by(self.ahead_secs())
    }
}

thread_local! {
    static SIMULATED_BOOT_CLOCK: Cell<Option<fn() -> Duration>> = const { Cell::new(None) };
}

/// From now on [`since_boot`] is what `clock` says, on this thread alone: for simulators, whose time is not the kernel's.
pub fn simulate_boot_clock(clock: Option<fn() -> Duration>) {
    SIMULATED_BOOT_CLOCK.set(clock);
}

/// The time since the machine was started, in which it was asleep and this process stopped, too: for what ends on its own while
/// nobody looks.
pub fn since_boot() -> Duration {
    if let Some(clock) = SIMULATED_BOOT_CLOCK.try_with(Cell::get).ok().flatten() {
        return clock();
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0).min(999_999_999))
}

/// Tells one start of the machine from another: two values of [`since_boot`] are comparable if it is the same at both. Empty where
/// the kernel does not say.
pub fn boot_id() -> String {
    if SIMULATED_BOOT_CLOCK.try_with(Cell::get).ok().flatten().is_some() {
        return "simulated".to_owned();
    }
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_round_trip() {
        for (secs, nanos) in [(0, 0), (-1, 0), (-1, 999_999_999), (-2, 1), (1_700_000_000, 5)] {
            let time = Timestamp::new(secs, nanos);
            assert_eq!(Timestamp::from(time.to_system_time()), time);
        }
    }
}
