//! Scrubs that begin by themselves: in the night, when nobody uses the pool.
//!
//! The clock is looked at once an hour, and no disk is touched for that: a pool knows in memory when it was last scrubbed.
//! A machine that is switched off at night would never scrub; what is overdue by half the interval begins at any time.

use std::sync::Arc;
use std::time::Duration;

use chrono::{Local, Timelike};

use super::Daemon;
use super::storage::OpenPool;
use crate::config::Schedule;

/// Hours of local time in which a scrub begins: from the first on, before the second.
const NIGHT: std::ops::Range<u32> = 3..6;
/// After the full hour, so that a clock that is a little slow does not wake twice.
const AFTER_THE_HOUR: Duration = Duration::from_secs(5);

/// Runs until the daemon stops.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        daemon.name_disks().await;
        let now = Local::now();
        let past = u64::from(now.minute() * 60 + now.second());
        tokio::time::sleep(Duration::from_secs(3600 - past) + AFTER_THE_HOUR).await;
        let now = Local::now();
        let now_ms = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        for (pool, schedule) in daemon.schedules().await {
            let (last_ms, rests) = pool.last_scrub();
            if rests && is_due(schedule, last_ms, now_ms, now.hour(), pool.is_busy()) {
                start(&pool).await;
            }
        }
    }
}

async fn start(pool: &OpenPool) {
    tracing::info!(pool = %pool.name, "scheduled scrub");
    if let Err(failure) = pool.scrub_do("start", "scheduled").await {
        tracing::warn!(pool = %pool.name, "the scheduled scrub did not start: {}", failure.message);
    }
}

fn is_due(schedule: Schedule, last_ms: u64, now_ms: u64, hour: u32, is_busy: bool) -> bool {
    let Some(interval) = schedule.interval() else { return false };
    let since = Duration::from_millis(now_ms.saturating_sub(last_ms));
    // An hour of grace: else each would begin an hour later than the one before.
    let due = since + Duration::from_secs(3600) >= interval;
    let overdue = since >= interval + interval / 2;
    overdue || (due && NIGHT.contains(&hour) && !is_busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 3600 * 1000;

    #[test]
    fn at_night_when_idle_or_at_any_time_when_overdue() {
        let check = |schedule, days: u64, hour, busy| is_due(schedule, 5, 5 + days * DAY_MS, hour, busy);
        assert!(check(Schedule::Weekly, 7, 3, false));
        assert!(!check(Schedule::Weekly, 7, 3, true), "somebody uses it");
        assert!(!check(Schedule::Weekly, 7, 12, false), "not by day");
        assert!(!check(Schedule::Weekly, 6, 4, false));
        assert!(check(Schedule::Weekly, 11, 12, true), "never at night, it seems");
        assert!(check(Schedule::Monthly, 30, 5, false) && !check(Schedule::Monthly, 30, 6, false));
        assert!(!check(Schedule::Off, 1000, 3, false));
        assert!(!is_due(Schedule::Daily, 10 * DAY_MS, DAY_MS, 3, false), "the clock was set back");
    }
}
