//! Scrubs that begin by themselves: in the night, when nobody uses the pool.
//!
//! The clock is looked at once an hour, and no disk is touched for that: a pool knows in memory when it was last scrubbed.
//! When one is due: [`Schedule::is_due`](larder_keep::Schedule::is_due).

use std::sync::Arc;
use std::time::Duration;

use chrono::{Local, Timelike};
use larder_api::{Failure, ScrubSchedule};
use larder_keep::{Storage, Store};

use super::pools::Pools;
use larder_config::Schedule;
use larder_document::{Document, Kind, Standings};

/// After the full hour, so that a clock that is a little slow does not wake twice.
const AFTER_THE_HOUR: Duration = Duration::from_secs(5);

pub struct Scrubs {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub standings: Standings,
}

/// Runs until the daemon stops.
pub async fn run(scrubs: Arc<Scrubs>, pools: Arc<Pools>) {
    loop {
        pools.name_disks().await;
        let now = Local::now();
        let past = u64::from(now.minute() * 60 + now.second());
        tokio::time::sleep(Duration::from_secs(3600 - past) + AFTER_THE_HOUR).await;
        let now = Local::now();
        let now_ms = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        for (pool, schedule) in scrubs.schedules() {
            let (last_ms, rests) = pool.last_scrub();
            if rests && schedule.is_due(last_ms, now_ms, now.hour(), pool.is_busy()) {
                scrubs.start(&pool).await;
            }
        }
    }
}

impl Scrubs {
    async fn start(&self, pool: &Store) {
        tracing::info!(pool = %pool.name, "scheduled scrub");
        let started = pool.scrub_do("start", "scheduled").await;
        self.standings.set(Kind::Scrub, &pool.name, started.map(drop));
    }

    /// The open pools, and how often each is scrubbed.
    fn schedules(&self) -> Vec<(Arc<Store>, Schedule)> {
        let config = self.document.config();
        let schedule = |pool: &Store| config.pool(&pool.name).map(|known| known.scrub).unwrap_or_default();
        let with_disks = self.storage.all().into_iter().filter(|pool| pool.has_disks());
        with_disks.map(|pool| (Arc::clone(&pool), schedule(&pool))).collect()
    }

    pub fn list(&self) -> Vec<ScrubSchedule> {
        let schedules = self.schedules().into_iter();
        let told = |pool: String, schedule: Schedule| ScrubSchedule { pool, schedule: schedule.word().to_owned() };
        schedules.map(|(pool, schedule)| told(pool.name.clone(), schedule)).collect()
    }

    pub async fn set(&self, request: ScrubSchedule) -> Result<Vec<ScrubSchedule>, Failure> {
        let schedule = Schedule::parse(&request.schedule).map_err(Failure::invalid)?;
        let mut state = self.document.lock().await;
        let pool = self.storage.pool(Some(&request.pool))?;
        if !pool.has_disks() {
            return Err(Failure::invalid(format!("'{}' is in a bucket, which is not scrubbed", pool.name)));
        }
        self.document
            .try_edit(&mut state, |editor| match editor.set_scrub(&pool.name, schedule) {
                true => Ok(()),
                false => Err(Failure::not_found(format!("the configuration does not name the pool '{}'", pool.name))),
            })
            .await?;
        Ok(self.list())
    }
}
