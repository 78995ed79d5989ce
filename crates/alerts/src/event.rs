//! The list of events: all that an alert can be about. `docs/alerts.md` has the same list, and a test compares them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How soon somebody should act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing has to be done.
    Info,
    /// Within days.
    Warning,
    /// Now: data or access is lost, or would be with the next fault.
    Critical,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Severity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "info" => Ok(Self::Info),
            "warning" => Ok(Self::Warning),
            "critical" => Ok(Self::Critical),
            _ => Err(format!("'{text}' is not a severity: use info, warning or critical")),
        }
    }
}

/// An entry of the list.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// Its name in messages and in the configuration's documents.
    pub id: &'static str,
    /// As usual; a condition may be worse.
    pub severity: Severity,
    /// It is the case for so long before anybody is told.
    pub after_s: u64,
    /// It happens at a moment and is over: one message, no all-clear.
    pub momentary: bool,
    pub meaning: &'static str,
    pub action: &'static str,
}

macro_rules! events {
    ($($kind:ident $id:literal $severity:ident $how:ident $after_s:literal, $meaning:literal, $action:literal;)*) => {
        /// The name of an event in code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $(#[doc = $meaning] $kind,)*
        }

        /// All events, in the order of the document.
        pub const EVENTS: &[Event] = &[
            $(Event {
                kind: EventKind::$kind,
                id: $id,
                severity: Severity::$severity,
                after_s: $after_s,
                momentary: events!(@ $how),
                meaning: $meaning,
                action: $action,
            },)*
        ];

        impl EventKind {
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$kind => $id,)*
                }
            }

            pub fn event(self) -> &'static Event {
                // One entry for each kind, in the order of the kinds.
                &EVENTS[self as usize]
            }
        }
    };
    (@ lasts) => { false };
    (@ moment) => { true };
}

events! {
    DiskMissing "disk-missing" Critical lasts 0,
        "A disk of a pool is not there, or its folder is empty.",
        "Reconnect it. If it is gone for good: larder pool replace POOL DISK NEW-DIR";
    DiskFailed "disk-failed" Critical lasts 0,
        "A disk of a pool was put out of use: it fails, or does not answer.",
        "Check its cable and power, or replace it; then: larder pool online POOL DISK";
    DiskOutOfUse "disk-out-of-use" Warning lasts 0,
        "A disk of a pool is not used fully: it is offline, read-only, diverged, or being brought up to date.",
        "See what it waits for with: larder pool status";
    DiskErrors "disk-errors" Warning lasts 0,
        "Errors of a disk are counted, and the disk is still in use.",
        "Check its cable and health (larder disk health); then: larder pool clear POOL";
    DiskSlow "disk-slow" Warning lasts 600,
        "A disk of a pool takes several times as long as its siblings. The whole pool waits for it.",
        "Look at larder disk health; a disk that re-reads its sectors is near its end";
    DiskHealth "disk-health" Warning lasts 0,
        "The disk's own report says that it fails, or an error counter grows.",
        "See larder disk health; replace the disk while the pool is whole";
    DiskHot "disk-hot" Warning lasts 0,
        "A disk is hotter than it may be.",
        "See to fans, dust and the room; heat shortens the life of disks";
    DiskWorn "disk-worn" Warning lasts 0,
        "Flash has used most of the writes that it is rated for.",
        "Plan its replacement: larder pool replace POOL DISK NEW-DIR";
    PoolDegraded "pool-degraded" Critical lasts 0,
        "A pool serves with less redundancy than it should have, and no disk above explains it.",
        "See larder pool status, which says what to do";
    PoolFaulted "pool-faulted" Critical lasts 0,
        "Some data of a pool cannot be read, or nothing can be written.",
        "See larder pool status, which says what to do";
    VolumeStopped "volume-stopped" Critical lasts 60,
        "A volume takes no writes any more, because its disks failed while it wrote. Nothing that was acknowledged is lost.",
        "See larder pool status. It is opened anew by itself once its disks take writes; to try at once: larder pool clear POOL";
    PoolUnavailable "pool-unavailable" Critical lasts 0,
        "A pool or store of the configuration could not be opened.",
        "See larder pool status; then restart larder or import the pool";
    PoolFilling "pool-filling" Warning lasts 0,
        "A pool fills up. The date is when it is full if it goes on as in the last weeks.",
        "Delete something (and snapshots that hold it), or add a disk: larder pool add";
    QuotaFilling "quota-filling" Warning lasts 0,
        "A volume, or a user or group in it, has used most of its quota.",
        "Delete something, or raise it: larder volume set VOLUME --quota SIZE";
    JournalFilling "journal-filling" Warning lasts 300,
        "The journal fills faster than it is emptied; writers will have to wait.",
        "See larder doctor: a disk or the bucket behind it is too slow";
    StoreUnreachable "store-unreachable" Warning lasts 300,
        "The bucket of a store does not answer. Writes wait.",
        "It goes on by itself. Try the store with: larder store check URL";
    DataLost "data-lost" Critical lasts 0,
        "Files or metadata have bytes that no redundancy gives back.",
        "larder pool status -v lists them; restore them from a snapshot or a replica";
    ScrubFound "scrub-found" Warning lasts 0,
        "The last scrub found damage. What could be repaired is repaired.",
        "Mend or replace the disk that has errors, then scrub again: larder pool scrub start";
    ScrubLate "scrub-late" Warning lasts 0,
        "A pool was not scrubbed for twice as long as its schedule says.",
        "Start one: larder pool scrub start";
    ReplicaLate "replica-late" Warning lasts 600,
        "A replica is older than it may be, or cannot be sent to.",
        "larder replicate status says why";
    SnapshotsFailing "snapshots-failing" Warning lasts 0,
        "A schedule of snapshots could not do its work.",
        "larder snap schedule says why";
    ShareDown "share-down" Warning lasts 60,
        "A share of the configuration is not served.",
        "larder share list says why";
    MountDown "mount-down" Warning lasts 60,
        "A local mount of the configuration could not be made.",
        "Mend what it says; it is tried again with: larder reload";
    UpkeepFailing "upkeep-failing" Warning lasts 3600,
        "Work that larder does by itself fails: a scheduled scrub, a recycle bin, the record of the box.",
        "Mend what it says; larder tries it again by itself";
    CertificateEnding "certificate-ending" Warning lasts 0,
        "A certificate of this machine ends soon. Browsers and clients will refuse it.",
        "Renew it; larder reads the new file by itself";
    ConfigInvalid "config-invalid" Warning lasts 0,
        "The configuration was to be read again and is not valid. The old one stays in use.",
        "Mend it (larder config check says where), then: larder reload";
    ClockJumped "clock-jumped" Warning moment 0,
        "The clock of this machine was set by more than a minute.",
        "See to its time service (timedatectl); names of snapshots and times of files follow the clock";
    ClockBehind "clock-behind" Warning lasts 120,
        "The clock of this machine is before a time that has passed already.",
        "Set it, and see to its time service and its battery (timedatectl); passwords of telephones and certificates go by it";
    Restarted "restarted" Warning moment 0,
        "larder had not been stopped in order: it or the machine crashed, or power failed.",
        "Nothing that was acknowledged is lost. See the log from before the start";
    LoginNewPlace "login-new-place" Info moment 0,
        "A user logged in from an address that larder has not seen this user at.",
        "Look at larder audit; if it was not you: larder user passwd USER";
    LoginLockedOut "login-locked-out" Warning moment 0,
        "An address guessed passwords and is locked out for a minute.",
        "See larder audit; a share's only_from keeps other networks out";
    UpsOnBattery "ups-on-battery" Warning lasts 0,
        "The power is away: this machine runs on the battery of its UPS.",
        "See to the power. larder stops in order when [ups] says so: larder ups";
    UpsLow "ups-low" Critical lasts 0,
        "The battery of the UPS is nearly empty, and the power is away.",
        "larder stops in order now, and starts with the machine";
    UpsBatteryWorn "ups-battery-worn" Warning lasts 0,
        "The UPS says that its battery is worn out: the next power cut will be a short one.",
        "Replace the battery of the UPS";
    UpsSilent "ups-silent" Warning lasts 300,
        "The UPS of the configuration cannot be asked, so a power cut would not be noticed.",
        "larder ups says why; see to upsd and its driver";
    UpsStops "ups-stops" Critical moment 0,
        "larder stops because the power stays away. Everything is durable, and the disks are parked.",
        "When the power is back, the machine starts larder; else: larder up";
    FilesRuined "files-ruined" Critical lasts 0,
        "A client makes very many files unreadable within minutes, or removes them across folders, as ransomware does.",
        "Take that machine off the network, and restore from the snapshot that is named. If it is wanted: larder alerts release ID";
    MessagesDropped "messages-dropped" Warning moment 0,
        "Messages could not be delivered for so long that the oldest, least important were dropped.",
        "larder alerts list --all shows what they were about";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl FromStr for EventKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = EVENTS.iter().find(|event| event.id == text);
        found.map(|event| event.kind).ok_or_else(|| format!("'{text}' is no event"))
    }
}

impl Serialize for EventKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The table of `docs/alerts.md`.
pub fn document() -> String {
    let mut text = String::from("| event | severity | meaning | what to do |\n|---|---|---|---|\n");
    for event in EVENTS {
        let after = match event.after_s {
            0 => String::new(),
            seconds if seconds < 120 => format!(", after {seconds} s"),
            seconds => format!(", after {} min", seconds / 60),
        };
        let once = if event.momentary { ", once" } else { "" };
        text.push_str(&format!(
            "| `{}` | {}{after}{once} | {} | {} |\n",
            event.id, event.severity, event.meaning, event.action
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_event_has_a_name_of_its_own_and_its_place() {
        for (at, event) in EVENTS.iter().enumerate() {
            assert_eq!(event.kind as usize, at);
            assert_eq!(event.id.parse::<EventKind>().unwrap(), event.kind, "{} is named twice", event.id);
            assert!(event.meaning.ends_with('.'), "{}", event.id);
        }
    }

    #[test]
    fn the_document_has_the_same_list() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&document()), "the table of docs/alerts.md should read:\n{}", document());
    }
}
