//! The guards of all shares, and the clients that they told about.
//!
//! - `suspects.kept`: a client that was told about stays so over restarts, and stays blocked, until somebody answers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use larder_alerts::alerts::DAY_MS;
use larder_alerts::{Condition, EventKind, Key};
use larder_api::share::GUARD;
use larder_base::{SystemClock, passed};
use larder_files::guard::{Alarm, Guard, GuardMode, Harm, Suspect};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use larder_config::ShareConfig;

/// Alarms that wait. Each client tells once, so more at once are a very large attack; the log has them all.
const ALARMS_MAX: usize = 256;
/// Suspects that are kept. Beyond them the oldest that is not blocked is forgotten.
const SUSPECTS_MAX: usize = 500;

/// The guard of each share, which outlives changes of the configuration.
pub struct Guards {
    sender: mpsc::Sender<(String, Alarm)>,
    guards: Mutex<BTreeMap<String, Arc<Guard>>>,
}

impl Guards {
    pub(crate) fn new(suspects: &Suspects) -> (Guards, mpsc::Receiver<(String, Alarm)>) {
        let (sender, alarms) = mpsc::channel(ALARMS_MAX);
        let guards = Guards { sender, guards: Mutex::default() };
        for one in &suspects.open {
            guards.named(&one.share).restore(one.suspect(), one.blocked);
        }
        (guards, alarms)
    }

    /// The guard of a share, which does what the share says.
    pub fn of(&self, share: &ShareConfig) -> Arc<Guard> {
        let guard = self.named(&share.name);
        guard.set_mode(match share.words(&GUARD).as_str() {
            "off" => GuardMode::Off,
            "block" => GuardMode::Block,
            _ => GuardMode::Alert,
        });
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

    pub(crate) fn release(&self, one: &Suspected) {
        self.named(&one.share).release(one.suspect());
    }
}

/// A client that a guard told about, until somebody answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Suspected {
    pub(crate) share: String,
    pub(crate) user: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) blocked: bool,
    pub(crate) text: String,
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
pub(crate) struct Suspects {
    open: Vec<Suspected>,
    /// When a snapshot of each volume was last held, and which.
    pub(crate) holds: BTreeMap<String, (u64, String)>,
}

impl Suspects {
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        self.open.iter().map(Suspected::condition).collect()
    }

    /// The one that an alert is about. It is over with that.
    pub(crate) fn take(&mut self, key: &Key) -> Option<Suspected> {
        let at = self.open.iter().position(|one| one.condition().key == *key)?;
        Some(self.open.remove(at))
    }

    pub(crate) fn add(&mut self, one: Suspected) {
        self.open.retain(|known| known.condition().key != one.condition().key);
        if self.open.len() >= SUSPECTS_MAX
            && let Some(at) = self.open.iter().position(|known| !known.blocked)
        {
            self.open.remove(at);
        }
        self.open.push(one);
    }

    /// The snapshot of `volume` that was held within the last day.
    pub(crate) fn held(&self, volume: &str, now_ms: u64) -> Option<&str> {
        let (at_ms, name) = self.holds.get(volume)?;
        (passed::since_ms(*at_ms, now_ms) < DAY_MS).then_some(name)
    }
}

pub(crate) fn words(harm: Harm) -> String {
    match harm {
        Harm::Rewritten(files) => format!("has made {files} files unreadable within minutes"),
        Harm::Removed(files, folders) => format!("has removed {files} files from {folders} folders within minutes"),
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
