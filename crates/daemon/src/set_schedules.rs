//! Schedules of snapshots and scrubs, changed in the configuration file.

use larder_api::{Failure, ScrubSchedule, SnapshotSchedule, SnapshotScheduleSet};

use super::Daemon;
use super::translate::as_failure;
use larder_config::{Schedule, VolumeName};

impl Daemon {
    pub async fn snapshot_schedule_set(&self, request: SnapshotScheduleSet) -> Result<Vec<SnapshotSchedule>, Failure> {
        let mut state = self.state.lock().await;
        let (pool, volume) = self.storage.find(&request.volume).await.map_err(as_failure)?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        self.edit(&mut state, |editor| {
            editor.set_snapshots(&name, request.keep);
            Ok(())
        })
        .await?;
        drop(state);
        Ok(self.snapshot_schedules().await)
    }

    pub async fn scrub_schedules(&self) -> Vec<ScrubSchedule> {
        let schedules = self.schedules().await.into_iter();
        let told = |pool: String, schedule: Schedule| ScrubSchedule { pool, schedule: schedule.word().to_owned() };
        schedules.map(|(pool, schedule)| told(pool.name.clone(), schedule)).collect()
    }

    pub async fn scrub_schedule_set(&self, request: ScrubSchedule) -> Result<Vec<ScrubSchedule>, Failure> {
        let schedule = Schedule::parse(&request.schedule).map_err(Failure::invalid)?;
        let mut state = self.state.lock().await;
        let pool = self.storage.pool(Some(&request.pool)).map_err(as_failure)?;
        if !pool.has_disks() {
            return Err(Failure::invalid(format!("'{}' is in a bucket, which is not scrubbed", pool.name)));
        }
        self.edit(&mut state, |editor| match editor.set_scrub(&pool.name, schedule) {
            true => Ok(()),
            false => Err(Failure::not_found(format!("the configuration does not name the pool '{}'", pool.name))),
        })
        .await?;
        drop(state);
        Ok(self.scrub_schedules().await)
    }
}
