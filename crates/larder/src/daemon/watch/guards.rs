//! The guards of all shares, and what is done when one tells about a client: an alert, and a snapshot of before that is held.
//!
//! - `suspects.kept`: a client that was told about stays so over restarts, and stays blocked, until somebody answers.
//! - `suspects.one_hold_a_day`: of a volume at most one snapshot a day is held, so that alarms cannot fill a pool.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use larder_base::SystemClock;
use larder_files::guard::{Alarm, Guard, Harm, Suspect};
use larder_volume::FsError;
use larder_watch::alerts::DAY_MS;
use larder_watch::{Condition, EventKind, Key};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::clock::now_ms;
use crate::config::{ShareConfig, VolumeName};
use crate::daemon::Daemon;
use crate::times;

/// Alarms that wait. Each client tells once, so more at once are a very large attack; the log has them all.
const ALARMS_MAX: usize = 256;
/// Suspects that are kept. Beyond them the oldest that is not blocked is forgotten.
const SUSPECTS_MAX: usize = 500;
/// By which the hold of a snapshot is known.
const HOLD: &str = "guard";
/// A snapshot that is older is no recent one.
const RECENT_MS: u64 = DAY_MS;

/// The guard of each share, which outlives changes of the configuration.
pub(crate) struct Guards {
    sender: mpsc::Sender<(String, Alarm)>,
    guards: Mutex<BTreeMap<String, Arc<Guard>>>,
}

impl Guards {
    pub(super) fn new(suspects: &Suspects) -> (Guards, mpsc::Receiver<(String, Alarm)>) {
        let (sender, alarms) = mpsc::channel(ALARMS_MAX);
        let guards = Guards { sender, guards: Mutex::default() };
        for one in &suspects.open {
            guards.named(&one.share).restore(one.suspect(), one.blocked);
        }
        (guards, alarms)
    }

    /// The guard of a share, which does what the share says.
    pub(crate) fn of(&self, share: &ShareConfig) -> Arc<Guard> {
        let guard = self.named(&share.name);
        guard.set_mode(share.guard);
        guard
    }

    fn named(&self, share: &str) -> Arc<Guard> {
        let mut guards = self.guards.lock();
        if let Some(guard) = guards.get(share) {
            return Arc::clone(guard);
        }
        let (sender, name) = (self.sender.clone(), share.to_owned());
        let tell = move |alarm: Alarm| {
            tracing::warn!("share '{name}': {} {}", alarm.suspect, words(alarm.harm));
            // A full queue has been told enough.
            let _ = sender.try_send((name.clone(), alarm));
        };
        let guard = Guard::new(Arc::new(SystemClock::default()), tell);
        guards.insert(share.to_owned(), Arc::clone(&guard));
        guard
    }

    pub(super) fn release(&self, one: &Suspected) {
        self.named(&one.share).release(one.suspect());
    }
}

/// A client that a guard told about, until somebody answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Suspected {
    share: String,
    user: String,
    address: Option<IpAddr>,
    blocked: bool,
    text: String,
}

impl Suspected {
    fn suspect(&self) -> Suspect {
        Suspect { user: self.user.clone(), address: self.address }
    }

    fn condition(&self) -> Condition {
        Condition::is(EventKind::FilesRuined, format!("{}: {}", self.share, self.suspect()), self.text.clone())
    }
}

/// The clients that guards told about (`suspects.kept`).
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Suspects {
    open: Vec<Suspected>,
    /// When a snapshot of each volume was last held, and which.
    holds: BTreeMap<String, (u64, String)>,
}

impl Suspects {
    pub(super) fn conditions(&self) -> Vec<Condition> {
        self.open.iter().map(Suspected::condition).collect()
    }

    /// The one that an alert is about. It is over with that.
    pub(super) fn take(&mut self, key: &Key) -> Option<Suspected> {
        let at = self.open.iter().position(|one| one.condition().key == *key)?;
        Some(self.open.remove(at))
    }

    fn add(&mut self, one: Suspected) {
        self.open.retain(|known| known.condition().key != one.condition().key);
        if self.open.len() >= SUSPECTS_MAX
            && let Some(at) = self.open.iter().position(|known| !known.blocked)
        {
            self.open.remove(at);
        }
        self.open.push(one);
    }

    /// The snapshot of `volume` that was held within the last day.
    fn held(&self, volume: &str, now_ms: u64) -> Option<&str> {
        let (at_ms, name) = self.holds.get(volume)?;
        (now_ms.saturating_sub(*at_ms) < DAY_MS).then_some(name)
    }
}

fn words(harm: Harm) -> String {
    match harm {
        Harm::Rewritten(files) => format!("has made {files} files unreadable within minutes"),
        Harm::Removed(files, folders) => format!("has removed {files} files from {folders} folders within minutes"),
    }
}

pub(super) async fn run(daemon: &Arc<Daemon>, main: &Handle, alarms: Option<mpsc::Receiver<(String, Alarm)>>) {
    let Some(mut alarms) = alarms else { return };
    while let Some((share, alarm)) = alarms.recv().await {
        let taker = Arc::clone(daemon);
        let taken = main.spawn(async move { taker.take_alarm(share, alarm).await });
        let _ = tokio::time::timeout(super::VOLUMES_WAIT_MAX, taken).await;
    }
}

impl Daemon {
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
        self.look_soon().await;
    }

    /// Holds the newest snapshot of before (`suspects.one_hold_a_day`), and says which.
    async fn hold_before(&self, share: &str, alarm: &Alarm) -> String {
        let volume = {
            let state = self.state.lock().await;
            let found = state.config.shares.iter().find(|known| known.name == share);
            found.and_then(|found| found.volume.clone())
        };
        let Some(volume) = volume else { return "It is a folder of this machine, which has no snapshots.".to_owned() };
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
        let of = |info: larder_volume::SnapshotInfo| (info.name, u64::try_from(info.created.secs).unwrap_or(0) * 1000);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn suspected(user: &str, blocked: bool) -> Suspected {
        let address = Some(IpAddr::from([192, 168, 1, 7]));
        Suspected { share: "photos".into(), user: user.into(), address, blocked, text: "It happens.".into() }
    }

    #[test]
    fn blocked_clients_are_kept_and_one_snapshot_a_day_is_held() {
        let mut suspects = Suspects::default();
        suspects.add(suspected("eve", true));
        for n in 0..2000 {
            suspects.add(suspected(&format!("user{n}"), false));
        }
        assert_eq!(suspects.open.len(), SUSPECTS_MAX);
        let key = suspects.open[0].condition().key;
        assert_eq!(key.subject, "photos: eve at 192.168.1.7");
        assert!(suspects.take(&key).is_some_and(|one| one.blocked) && suspects.take(&key).is_none());
        suspects.holds.insert("tank/photos".into(), (1000, "a".into()));
        assert_eq!(suspects.held("tank/photos", 1000 + DAY_MS - 1), Some("a"));
        assert_eq!(suspects.held("tank/photos", 1000 + DAY_MS), None);
        assert_eq!(suspects.held("tank/files", 1000), None);
    }
}
