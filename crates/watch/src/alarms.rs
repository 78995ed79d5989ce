//! What is done when a guard tells about a client: an alert, and a snapshot of before that is held.
//!
//! - `suspects.one_hold_a_day`: of a volume at most one snapshot a day is held, so that alarms cannot fill a pool.

use std::sync::Arc;
use std::time::Duration;

use larder_alerts::alerts::DAY_MS;
use larder_base::task;
use larder_files::guard::{Alarm, Suspect};
use larder_fs::FsError;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::clock::now_ms;
use crate::guards::{Suspected, words};
use crate::watcher::Watcher;
use larder_config::VolumeName;
use larder_config::times;

/// By which the hold of a snapshot is known.
const HOLD: &str = "guard";
/// A snapshot that is older is no recent one.
const RECENT_MS: u64 = DAY_MS;
/// Work on volumes that takes longer goes on by itself: a pool may hang.
const VOLUMES_WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn run(watcher: &Arc<Watcher>, main: &Handle, alarms: Option<mpsc::Receiver<(String, Alarm)>>) {
    let Some(mut alarms) = alarms else { return };
    while let Some((share, alarm)) = alarms.recv().await {
        let taker = Arc::clone(watcher);
        let taken = task::spawn_on(main, async move { taker.take_alarm(share, alarm).await });
        let _ = tokio::time::timeout(VOLUMES_WAIT_MAX, taken).await;
    }
}

impl Watcher {
    async fn take_alarm(&self, share: String, alarm: Alarm) {
        let before = self.hold_before(&share, &alarm).await;
        let blocked = if alarm.blocked { " It may not write any more." } else { "" };
        let text = format!("{} {} in the share '{share}'.{blocked} {before}", alarm.suspect, words(alarm.harm));
        let Suspect { user, address } = alarm.suspect;
        let one = Suspected { share, user, address, blocked: alarm.blocked, text };
        {
            let mut kept = self.watch.kept.lock();
            kept.suspects.add(one);
            self.watch.save(&kept);
        }
        self.watch.look_soon().await;
    }

    /// Holds the newest snapshot of before (`suspects.one_hold_a_day`), and says which.
    async fn hold_before(&self, share: &str, alarm: &Alarm) -> String {
        let config = self.document.config();
        let found = config.shares.iter().find(|known| known.name == share);
        let Some(volume) = found.and_then(|found| found.volume.clone()) else {
            return "It is a folder of this machine, which has no snapshots.".to_owned();
        };
        let since_ms = u64::try_from(alarm.since.secs).unwrap_or(0) * 1000;
        match self.newest_before(&volume, since_ms).await {
            Ok(None) => format!("There is no snapshot of {volume} of before."),
            Ok(Some((name, created_ms))) => {
                let from = times::local(created_ms);
                let is_old = since_ms.saturating_sub(created_ms) > RECENT_MS;
                let age = if is_old { " There is no recent one." } else { "" };
                match self.hold_once(&volume, &name).await {
                    Ok(held) if held == name => format!(
                        "The snapshot {volume}@{name} of {from}, from before, is held: no schedule removes it.{age}"
                    ),
                    Ok(held) => format!(
                        "The newest snapshot from before is {volume}@{name} of {from}.{age} Of the last day {held} is held."
                    ),
                    Err(error) => format!(
                        "The snapshot {volume}@{name} of {from} is from before, and could not be held: {error}.{age}"
                    ),
                }
            }
            Err(error) => format!("The snapshots of {volume} cannot be looked at: {error}."),
        }
    }

    async fn newest_before(&self, volume: &VolumeName, before_ms: u64) -> Result<Option<(String, u64)>, String> {
        let open = self.storage.volume(volume).await.map_err(|failure| failure.message)?;
        let of = |info: larder_fs::SnapshotInfo| (info.name, u64::try_from(info.created.secs).unwrap_or(0) * 1000);
        Ok(open.snapshots().into_iter().map(of).filter(|(_, created)| *created <= before_ms).max_by_key(|one| one.1))
    }

    /// The snapshot that is held now, or was within the last day.
    async fn hold_once(&self, volume: &VolumeName, name: &str) -> Result<String, String> {
        let (key, now) = (volume.to_string(), now_ms());
        if let Some(held) = self.watch.kept.lock().suspects.held(&key, now) {
            return Ok(held.to_owned());
        }
        let open = self.storage.volume(volume).await.map_err(|failure| failure.message)?;
        match open.hold_snapshot(name, HOLD, None).await {
            Ok(()) | Err(FsError::Exists) => {}
            Err(error) => return Err(error.to_string()),
        }
        let mut kept = self.watch.kept.lock();
        kept.suspects.holds.insert(key, (now, name.to_owned()));
        self.watch.save(&kept);
        Ok(name.to_owned())
    }
}
