//! Scrubs that begin by themselves: in the night, when nobody uses the pool.
//!
//! The clock is looked at once an hour, and no disk is touched for that: a pool knows in memory when it was last scrubbed.
//! When one is due: [`Schedule::is_due`](larder_keep::Schedule::is_due).

use std::sync::Arc;
use std::time::Duration;

use chrono::{Local, Timelike};
use larder_keep::Store;

use super::Daemon;

/// After the full hour, so that a clock that is a little slow does not wake twice.
const AFTER_THE_HOUR: Duration = Duration::from_secs(5);

/// Runs until the daemon stops.
pub async fn run(daemon: Arc<Daemon>) {
    loop {
        daemon.name_disks().await;
        let now = Local::now();
        let past = u64::from(now.minute() * 60 + now.second());
        tokio::time::sleep(Duration::from_secs(3600 - past) + AFTER_THE_HOUR).await;
        let now = Local::now();
        let now_ms = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        for (pool, schedule) in daemon.schedules().await {
            let (last_ms, rests) = pool.last_scrub();
            if rests && schedule.is_due(last_ms, now_ms, now.hour(), pool.is_busy()) {
                start(&pool).await;
            }
        }
    }
}

async fn start(pool: &Store) {
    tracing::info!(pool = %pool.name, "scheduled scrub");
    if let Err(failure) = pool.scrub_do("start", "scheduled").await {
        tracing::warn!(pool = %pool.name, "the scheduled scrub did not start: {}", failure.message());
    }
}
