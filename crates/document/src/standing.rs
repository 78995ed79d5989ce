//! The standing of each thing that the configuration names. Alerts, the page, commands and metrics
//! read it.
//!
//! - `standings.said_once`: a standing is logged when it changes, and not with each look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_api::Failure;
use larder_base::metrics::Metrics;
use parking_lot::Mutex;

/// The kinds of things that have standings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pool,
    Bucket,
    Volume,
    Share,
    Mount,
    /// The snapshots that a volume's schedule asks for.
    Schedule,
    /// A volume at a place.
    Replica,
    /// The scheduled scrub of a pool.
    Scrub,
    /// The recycle bin of a share.
    Bin,
    /// The record of this box in its pools.
    Record,
}

impl Kind {
    /// Volumes lie in these.
    pub const STORES: [Kind; 2] = [Kind::Pool, Kind::Bucket];

    pub fn word(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Bucket => "store",
            Self::Volume => "volume",
            Self::Share => "share",
            Self::Mount => "mount",
            Self::Schedule => "snapshots",
            Self::Replica => "replica",
            Self::Scrub => "scrub",
            Self::Bin => "bin",
            Self::Record => "record",
        }
    }

    fn named(self, thing: &str) -> String {
        match self {
            Self::Bucket => format!("the store '{thing}'"),
            Self::Mount => thing.to_owned(),
            Self::Schedule => format!("the snapshot schedule of '{thing}'"),
            Self::Replica => format!("the replica of {thing}"),
            Self::Scrub => format!("the scheduled scrub of '{thing}'"),
            Self::Bin => format!("the recycle bin of the share '{thing}'"),
            Self::Record => "the record of this box".to_owned(),
            Self::Pool | Self::Volume | Self::Share => format!("{} '{thing}'", self.word()),
        }
    }

    /// A thing that is not served, and why: in the log, of commands and in alerts.
    pub fn unserved(self, thing: &str, why: &Failure) -> String {
        let is_not = match self {
            Self::Volume => "",
            Self::Mount => " is not mounted",
            Self::Pool | Self::Bucket | Self::Share => " is not served",
            Self::Schedule => " is not kept",
            Self::Scrub => " did not start",
            Self::Bin => " is not emptied",
            Self::Replica | Self::Record => " is not up to date",
        };
        format!("{}{is_not}: {}", self.named(thing), why.message)
    }
}

/// The event that a thing waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A person or a key file unlocks its volume.
    Key,
    /// Its volume is closed for a moment.
    Moment,
    /// Another machine serves its volume.
    Elsewhere,
    /// Its disks take no writes; it was served, and is opened again when they do
    /// (`reopening.tried_on`).
    Disks,
}

/// Whether a thing is served, and why not.
#[derive(Clone, Debug)]
pub enum Standing {
    Ok,
    /// Nothing has to be mended.
    NotYet {
        since: SystemTime,
        wait: Wait,
        why: Failure,
    },
    Failed(Failure),
}

impl Standing {
    pub fn waits(wait: Wait, why: Failure) -> Self {
        Self::NotYet { since: SystemTime::now(), wait, why }
    }

    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }

    pub fn wait(&self) -> Option<Wait> {
        match self {
            Self::NotYet { wait, .. } => Some(*wait),
            Self::Ok | Self::Failed(_) => None,
        }
    }

    /// Why it is not served.
    pub fn why(&self) -> Option<&Failure> {
        match self {
            Self::Ok => None,
            Self::NotYet { why, .. } | Self::Failed(why) => Some(why),
        }
    }

    fn is_as(&self, other: &Standing) -> bool {
        (self.wait(), self.why()) == (other.wait(), other.why())
    }
}

impl From<Result<(), Failure>> for Standing {
    fn from(result: Result<(), Failure>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Ok)
    }
}

/// The standings of all things. Clones are the same standings.
#[derive(Clone, Default)]
pub struct Standings(Arc<Mutex<BTreeMap<(Kind, String), Standing>>>);

impl Standings {
    /// `standings.said_once`
    pub fn set(&self, kind: Kind, thing: &str, standing: impl Into<Standing>) {
        let mut standing = standing.into();
        let mut all = self.0.lock();
        let before = all.get(&(kind, thing.to_owned()));
        if before.is_some_and(|before| before.is_as(&standing)) {
            return;
        }
        if let (Standing::NotYet { since, wait, .. }, Some(Standing::NotYet { since: was, wait: for_it, .. })) =
            (&mut standing, before)
            && wait == for_it
        {
            *since = *was;
        }
        if before.is_some_and(|before| !before.is_ok()) && standing.is_ok() {
            tracing::info!("{} is well again", kind.named(thing));
        }
        say(kind, thing, &standing);
        all.insert((kind, thing.to_owned()), standing);
    }

    /// The same of a thing that has a standing already, and nothing is said.
    pub fn set_known(&self, kind: Kind, thing: &str, standing: Standing) {
        self.0.lock().entry((kind, thing.to_owned())).and_modify(|known| *known = standing);
    }

    /// The thing is not wanted any more.
    pub fn remove(&self, kind: Kind, thing: &str) {
        self.0.lock().remove(&(kind, thing.to_owned()));
    }

    /// Those of a kind that are not among these are not wanted any more.
    pub fn keep_only(&self, kind: Kind, wanted: impl Fn(&str) -> bool) {
        self.0.lock().retain(|(of, thing), _| *of != kind || wanted(thing));
    }

    /// `Ok` also of a thing that nobody has looked at.
    pub fn of(&self, kind: Kind, thing: &str) -> Standing {
        self.0.lock().get(&(kind, thing.to_owned())).cloned().unwrap_or(Standing::Ok)
    }

    /// The things of a kind that are not served, by their names.
    pub fn unserved(&self, kind: Kind) -> Vec<(String, Standing)> {
        let all = self.0.lock();
        let of_kind = all.iter().filter(|((of, _), standing)| *of == kind && !standing.is_ok());
        of_kind.map(|((_, thing), standing)| (thing.clone(), standing.clone())).collect()
    }

    /// Whether each thing is served, in the form of Prometheus.
    pub fn metrics(&self, out: &mut Metrics) {
        let help = "1: it is served. 0: it cannot be, or waits for something.";
        for ((kind, thing), standing) in &*self.0.lock() {
            let labels = [("kind", kind.word()), ("name", thing.as_str())];
            out.gauge("larder_served", help, &labels, standing.is_ok().into());
            if let Standing::NotYet { since, .. } = standing {
                let since = since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                let help = "Since when it waits, in seconds since 1970.";
                out.gauge("larder_waiting_since_timestamp_seconds", help, &labels, since);
            }
        }
    }

    /// Pools and buckets that are not open, with the reasons.
    pub fn unopened(&self) -> Vec<(String, Failure)> {
        let all = Kind::STORES.into_iter().flat_map(|kind| self.unserved(kind));
        all.filter_map(|(name, standing)| Some((name, standing.why()?.clone()))).collect()
    }
}

fn say(kind: Kind, thing: &str, standing: &Standing) {
    match standing {
        Standing::Ok => {}
        Standing::NotYet { why, .. } => tracing::info!("{} waits: {}", kind.named(thing), why.line()),
        Standing::Failed(why) => tracing::error!("{}", kind.unserved(thing, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_goes_on_and_a_thing_that_is_gone_has_no_standing() {
        let standings = Standings::default();
        let locked = |text: &str| Standing::waits(Wait::Key, Failure::invalid(text));
        let since = |standings: &Standings| match standings.of(Kind::Share, "s") {
            Standing::NotYet { since, .. } => Some(since),
            _ => None,
        };
        standings.set(Kind::Share, "s", locked("a"));
        let began = since(&standings);
        standings.set(Kind::Share, "s", locked("b"));
        assert_eq!((since(&standings), began.is_some()), (began, true));
        assert_eq!(standings.unserved(Kind::Share).len(), 1);
        assert!(standings.unserved(Kind::Volume).is_empty() && standings.unopened().is_empty());
        standings.set(Kind::Share, "s", Standing::Failed(Failure::invalid("c")));
        assert_eq!(since(&standings), None);
        standings.set(Kind::Bucket, "b", Standing::Failed(Failure::invalid("d")));
        assert_eq!(standings.unopened().len(), 1);
        standings.remove(Kind::Share, "s");
        assert!(standings.of(Kind::Share, "s").is_ok());
    }
}
