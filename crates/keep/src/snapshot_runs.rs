//! What the daemon remembers of each snapshot schedule: its volume, and why it takes no snapshots.
//!
//! - `schedules.volumes_at_hand`: looking a volume up by its name reads a disk. So the volumes of schedules are kept at hand, and
//!   given up before they are closed: a volume is closed only when nobody else has it.
//! - `schedules.set_back`: snapshots that were there when the clock was found to have gone back are of another time, whatever their
//!   names say: none of them counts for the present period.

use std::collections::BTreeMap;

use larder_api::{Failure, FailureKind};
use larder_base::boxed;
use larder_volume::Volume;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::names::VolumeName;

#[derive(Default)]
pub struct SnapshotRuns {
    runs: Mutex<BTreeMap<VolumeName, Run>>,
    wake: Notify,
}

#[derive(Clone, Default)]
pub struct Run {
    pub volume: Option<Volume>,
    pub fault: Option<Failure>,
    /// Snapshots up to this number are of before the clock went back (`schedules.set_back`).
    pub since: u64,
    /// How often it had gone back by then.
    set_backs: u64,
}

impl Run {
    /// Only a change that wakes the schedules brings this volume: until then no disk is asked for it.
    pub fn waits_for_a_change(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| matches!(fault.kind, FailureKind::Locked | FailureKind::NotFound))
    }
}

impl SnapshotRuns {
    pub fn of(&self, name: &VolumeName) -> Run {
        self.runs.lock().get(name).cloned().unwrap_or_default()
    }

    pub fn keep_at_hand(&self, name: &VolumeName, volume: &Volume) {
        self.runs.lock().entry(name.clone()).or_default().volume = Some(volume.clone());
    }

    /// The clock has gone back so often by now, and `newest` is the number of the newest snapshot. Returns [`Run::since`].
    pub fn note_set_backs(&self, name: &VolumeName, set_backs: u64, newest: u64) -> u64 {
        let mut runs = self.runs.lock();
        let run = runs.entry(name.clone()).or_default();
        if std::mem::replace(&mut run.set_backs, set_backs) != set_backs {
            run.since = newest;
        }
        run.since
    }

    /// The outcome of a run.
    pub fn note(&self, name: &VolumeName, outcome: &Result<(), Failure>) {
        self.runs.lock().entry(name.clone()).or_default().fault = outcome.as_ref().err().cloned();
    }

    /// Gives up those volumes (`schedules.volumes_at_hand`).
    pub fn forget(&self, is_it: impl Fn(&VolumeName) -> bool) {
        self.runs.lock().retain(|name, _| !is_it(name));
    }

    /// Lets the schedules look again now: volumes, keys or the configuration changed.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    #[boxed]
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}
