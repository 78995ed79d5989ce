//! From what is the case at each look to what is news.
//!
//! ```text
//!            holds, and has for `after_s`                     does not hold any more
//!   (none) ------------------------------> open (told once) ---------------------------> (none), all-clear
//!                                            |  ^   ^                    |
//!                                   a day later |   | holds again        | if it came back of late
//!                                            v  |   |                    v
//!                                        reminder   +--------------- settling
//! ```
//!
//! - `alerts.one_message`: an event about a subject is told once when it begins, once when it gets worse, once a day while
//!   nobody acknowledged it, and once when it is over.
//! - `alerts.swings_damped`: a value that swings around its limit does not: between the limit that raises and the limit that
//!   clears an alert stays as it is ([`Condition::keeps`]). Something that comes and goes is told to be over only once it stayed away,
//!   longer each time.
//! - `alerts.unknown_stays`: what could not be looked at keeps its alert.

use std::collections::{BTreeMap, VecDeque};

use larder_base::passed;
use serde::{Deserialize, Serialize};

use crate::event::{EventKind, Severity};

pub const DAY_MS: u64 = 24 * 3600 * 1000;
/// Alerts at a time. A box with more has one problem, not a thousand; the most severe stay.
const OPEN_MAX: usize = 500;
/// Alerts that are over and can still be listed.
const PAST_MAX: usize = 200;
/// The subject and the sentences of a condition. Some causes quote paths.
const SUBJECT_CHARS_MAX: usize = 300;
const TEXT_CHARS_MAX: usize = 1500;
/// A subject that comes back within this time swings (`alerts.swings_damped`).
const SWING_MS: u64 = DAY_MS;
const SETTLE_FIRST_MS: u64 = 10 * 60 * 1000;
const SETTLE_MAX_MS: u64 = 6 * 3600 * 1000;

/// What an alert is about: an event, and the thing that it happened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub event: EventKind,
    pub subject: String,
}

/// What is the case with one subject at a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub key: Key,
    /// `None`: it does not hold, but see `keeps`.
    pub holds: Option<Severity>,
    /// An alert that is open stays, at this severity at most.
    pub keeps: Option<Severity>,
    pub text: String,
    /// What to do here, if that is more than the event's own words.
    pub action: Option<String>,
}

impl Condition {
    /// It is so, as severe as the event usually is.
    pub fn is(event: EventKind, subject: impl Into<String>, text: impl Into<String>) -> Self {
        let severity = event.event().severity;
        Self {
            key: Key { event, subject: cut(&subject.into(), SUBJECT_CHARS_MAX) },
            holds: Some(severity),
            keeps: Some(severity),
            text: cut(&text.into(), TEXT_CHARS_MAX),
            action: None,
        }
    }

    pub fn severity(self, severity: Severity) -> Self {
        Self { holds: Some(severity), keeps: Some(severity), ..self }
    }

    pub fn action(self, action: impl Into<String>) -> Self {
        Self { action: Some(cut(&action.into(), TEXT_CHARS_MAX)), ..self }
    }

    /// A value with a warning and a critical limit, each with the lower limit at which it is over. `None` where it is far below.
    pub fn of_value(
        event: EventKind,
        subject: &str,
        value: f64,
        [warn, warn_over]: [f64; 2],
        [critical, critical_over]: [f64; 2],
        text: impl FnOnce() -> String,
    ) -> Option<Self> {
        let level = |warn: f64, critical: f64| match value {
            value if value >= critical => Some(Severity::Critical),
            value if value >= warn => Some(Severity::Warning),
            _ => None,
        };
        let keeps = level(warn_over, critical_over)?;
        Some(Self { holds: level(warn, critical), keeps: Some(keeps), ..Self::is(event, subject, text()) })
    }
}

/// Subjects that could not be looked at: those alerts stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub event: EventKind,
    /// `None`: of all subjects.
    pub subject: Option<String>,
}

/// An alert that is open, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// By which a person names it. Never used again.
    pub id: u64,
    #[serde(flatten)]
    pub key: Key,
    pub severity: Severity,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    pub since_ms: u64,
    /// When it was over, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The last message about it.
    pub told_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acknowledged: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_until_ms: Option<u64>,
    /// It does not hold since, and may come back (`alerts.swings_damped`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_since_ms: Option<u64>,
    /// How often it came back within a day.
    #[serde(default)]
    pub returns: u32,
    /// Something happened while it was silenced that is still to be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untold: bool,
}

impl Alert {
    pub fn is_silent(&self, now_ms: u64) -> bool {
        self.silent_until_ms.is_some_and(|until| now_ms < until)
    }
}

/// News about an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Raised,
    Worse,
    Reminder,
    Cleared,
    /// Happened and is over.
    Noted,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no open alert {0}")]
pub struct NoAlert(pub u64);

/// All alerts of a box. It is saved as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alerts {
    last_id: u64,
    open: Vec<Alert>,
    past: VecDeque<Alert>,
    /// Conditions that hold and are not told yet, with the first look that saw them.
    #[serde(skip)]
    waiting: BTreeMap<Key, u64>,
}

impl Alerts {
    /// What is the case now. Returns the news, in the order of the conditions.
    pub fn look(&mut self, now_ms: u64, conditions: &[Condition], unknown: &[Unknown]) -> Vec<(Change, Alert)> {
        let mut news = Vec::new();
        for condition in conditions {
            news.extend(self.meet(now_ms, condition));
        }
        let is_met = |key: &Key| conditions.iter().any(|condition| condition.key == *key);
        let is_unknown = |key: &Key| {
            let of = |one: &Unknown| one.subject.as_ref().is_none_or(|subject| *subject == key.subject);
            unknown.iter().any(|one| one.event == key.event && of(one))
        };
        self.waiting.retain(|key, _| is_met(key));
        let mut at = 0;
        while let Some(alert) = self.open.get_mut(at) {
            if is_met(&alert.key) || is_unknown(&alert.key) || !alert.may_end(now_ms) {
                at += 1;
                continue;
            }
            let mut over = self.open.remove(at);
            over.ended_ms = Some(now_ms);
            over.away_since_ms = None;
            if !over.is_silent(now_ms) {
                news.push((Change::Cleared, over.clone()));
            }
            self.put_past(over);
        }
        for alert in &mut self.open {
            let reminds = !alert.acknowledged
                && alert.away_since_ms.is_none()
                && alert.severity > Severity::Info
                && passed::since_ms(alert.told_ms, now_ms) >= DAY_MS;
            if !alert.is_silent(now_ms) && (alert.untold || reminds) {
                (alert.untold, alert.told_ms) = (false, now_ms);
                news.push((Change::Reminder, alert.clone()));
            }
        }
        news
    }

    fn meet(&mut self, now_ms: u64, condition: &Condition) -> Option<(Change, Alert)> {
        let Some(alert) = self.open.iter_mut().find(|alert| alert.key == condition.key) else {
            return self.begin(now_ms, condition);
        };
        let kept = condition.keeps.map(|keeps| keeps.min(alert.severity));
        let severity = condition.holds.max(kept)?;
        alert.away_since_ms = None;
        alert.text.clone_from(&condition.text);
        alert.action.clone_from(&condition.action);
        let is_worse = severity > alert.severity;
        alert.severity = severity;
        if !is_worse {
            return None;
        }
        // An acknowledgement was of something less bad.
        alert.acknowledged = false;
        if alert.is_silent(now_ms) {
            alert.untold = true;
            return None;
        }
        alert.told_ms = now_ms;
        Some((Change::Worse, alert.clone()))
    }

    fn begin(&mut self, now_ms: u64, condition: &Condition) -> Option<(Change, Alert)> {
        let Some(severity) = condition.holds else {
            self.waiting.remove(&condition.key);
            return None;
        };
        let event = condition.key.event.event();
        let first_ms = *self.waiting.entry(condition.key.clone()).or_insert(now_ms);
        if passed::since_ms(first_ms, now_ms) < event.after_s * 1000 || !self.makes_room(severity) {
            return None;
        }
        self.waiting.remove(&condition.key);
        let before = self.past.iter().rev().find(|past| past.key == condition.key);
        let before = before.filter(|past| passed::since_ms(past.ended_ms.unwrap_or(0), now_ms) < SWING_MS);
        let returns = before.map_or(0, |past| past.returns.saturating_add(1));
        let silent_until_ms = before.and_then(|past| past.silent_until_ms).filter(|until| now_ms < *until);
        let alert = Alert {
            returns,
            untold: silent_until_ms.is_some(),
            silent_until_ms,
            ..self.new_alert(now_ms, condition, severity)
        };
        let told = !alert.untold;
        self.open.push(alert.clone());
        told.then_some((Change::Raised, alert))
    }

    fn new_alert(&mut self, now_ms: u64, condition: &Condition, severity: Severity) -> Alert {
        self.last_id += 1;
        Alert {
            id: self.last_id,
            key: condition.key.clone(),
            severity,
            text: condition.text.clone(),
            action: condition.action.clone(),
            since_ms: now_ms,
            ended_ms: None,
            told_ms: now_ms,
            acknowledged: false,
            silent_until_ms: None,
            away_since_ms: None,
            returns: 0,
            untold: false,
        }
    }

    /// Whether one more of this severity may be open; the newest of the least severe gives way.
    fn makes_room(&mut self, severity: Severity) -> bool {
        if self.open.len() < OPEN_MAX {
            return true;
        }
        let least = self.open.iter().enumerate().min_by_key(|(at, alert)| (alert.severity, std::cmp::Reverse(*at)));
        match least.filter(|(_, alert)| alert.severity < severity).map(|(at, _)| at) {
            Some(at) => {
                self.open.remove(at);
                true
            }
            None => false,
        }
    }

    /// Something that happened and is over.
    pub fn note(&mut self, now_ms: u64, condition: &Condition) -> (Change, Alert) {
        let severity = condition.holds.unwrap_or(condition.key.event.event().severity);
        let alert = Alert { ended_ms: Some(now_ms), ..self.new_alert(now_ms, condition, severity) };
        self.put_past(alert.clone());
        (Change::Noted, alert)
    }

    fn put_past(&mut self, alert: Alert) {
        if self.past.len() >= PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(alert);
    }

    /// No more reminders of it; its end is told.
    pub fn acknowledge(&mut self, id: u64) -> Result<Alert, NoAlert> {
        let alert = self.open_mut(id)?;
        alert.acknowledged = true;
        Ok(alert.clone())
    }

    /// Nothing is told of it until then.
    pub fn silence(&mut self, id: u64, until_ms: u64) -> Result<Alert, NoAlert> {
        let alert = self.open_mut(id)?;
        alert.silent_until_ms = Some(until_ms);
        Ok(alert.clone())
    }

    fn open_mut(&mut self, id: u64) -> Result<&mut Alert, NoAlert> {
        self.open.iter_mut().find(|alert| alert.id == id).ok_or(NoAlert(id))
    }

    /// The open ones, the most severe and then the oldest first.
    pub fn open(&self) -> Vec<Alert> {
        let mut open = self.open.clone();
        open.sort_by_key(|alert| (std::cmp::Reverse(alert.severity), alert.id));
        open
    }

    /// Those that are over, oldest first.
    pub fn past(&self) -> impl DoubleEndedIterator<Item = &Alert> {
        self.past.iter()
    }

    pub fn is_open(&self, event: EventKind, subject: &str) -> bool {
        self.open.iter().any(|alert| alert.key.event == event && alert.key.subject == subject)
    }
}

impl Alert {
    /// Whether it stayed away for long enough, now that it does not hold.
    fn may_end(&mut self, now_ms: u64) -> bool {
        let settle_ms = match self.returns {
            0 => return true,
            returns => SETTLE_FIRST_MS.saturating_mul(1 << (returns - 1).min(10)).min(SETTLE_MAX_MS),
        };
        let since = *self.away_since_ms.get_or_insert(now_ms);
        passed::since_ms(since, now_ms) >= settle_ms
    }
}

/// Text of at most so many characters.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MINUTE: u64 = 60_000;

    fn missing() -> Condition {
        Condition::is(EventKind::DiskMissing, "/disk1", "gone")
    }

    fn words(news: &[(Change, Alert)]) -> Vec<String> {
        news.iter().map(|(change, alert)| format!("{change:?} {}", alert.key.subject)).collect()
    }

    /// What is told when a condition holds at these minutes and not at others.
    fn told(alerts: &mut Alerts, minutes: std::ops::Range<u64>, holds: impl Fn(u64) -> bool) -> Vec<(u64, Change)> {
        let mut all = Vec::new();
        for minute in minutes {
            let conditions = if holds(minute) { vec![missing()] } else { Vec::new() };
            all.extend(alerts.look(minute * MINUTE, &conditions, &[]).into_iter().map(|(change, _)| (minute, change)));
        }
        all
    }

    #[test]
    fn told_once_reminded_daily_and_cleared() {
        let mut alerts = Alerts::default();
        let news = told(&mut alerts, 0..4000, |minute| (5..3000).contains(&minute));
        let day = 24 * 60;
        let expected = [
            (5, Change::Raised),
            (5 + day, Change::Reminder),
            (5 + 2 * day, Change::Reminder),
            (3000, Change::Cleared),
        ];
        assert_eq!(news, expected);
        assert!(alerts.open().is_empty());
        assert_eq!(alerts.past().count(), 1);
    }

    #[test]
    fn a_restart_repeats_nothing() {
        let mut alerts = Alerts::default();
        assert_eq!(words(&alerts.look(0, &[missing()], &[])), ["Raised /disk1"]);
        let saved = serde_json::to_vec(&alerts).unwrap();
        let mut again: Alerts = serde_json::from_slice(&saved).unwrap();
        assert_eq!(again, alerts);
        assert!(again.look(MINUTE, &[missing()], &[]).is_empty());
        assert_eq!(words(&again.look(2 * MINUTE, &[], &[])), ["Cleared /disk1"]);
    }

    #[test]
    fn what_comes_and_goes_is_told_less_and_less() {
        let mut alerts = Alerts::default();
        // A bad plug: a minute there, a minute not, for a day.
        let news = told(&mut alerts, 0..1440, |minute| minute % 2 == 0);
        assert_eq!(news, [(0, Change::Raised), (1, Change::Cleared), (2, Change::Raised)]);
        let news = told(&mut alerts, 1440..1460, |_| false);
        assert_eq!(news, [(1449, Change::Cleared)], "away since 1439, for ten minutes");
    }

    #[test]
    fn a_value_that_swings_around_its_limit_does_not_swing_the_alert() {
        let mut alerts = Alerts::default();
        let mut look = |minute: u64, value: f64| {
            let text = || format!("{value}");
            let condition =
                Condition::of_value(EventKind::PoolFilling, "tank", value, [80.0, 77.0], [95.0, 93.0], text);
            let conditions: Vec<Condition> = condition.into_iter().collect();
            let news = alerts.look(minute * MINUTE, &conditions, &[]);
            news.into_iter().map(|(change, alert)| (change, alert.severity)).collect::<Vec<_>>()
        };
        let quiet: [(Change, Severity); 0] = [];
        assert_eq!(look(0, 79.0), quiet);
        assert_eq!(look(1, 80.0), [(Change::Raised, Severity::Warning)]);
        assert_eq!(look(2, 78.0), quiet);
        assert_eq!(look(3, 80.5), quiet);
        assert_eq!(look(4, 96.0), [(Change::Worse, Severity::Critical)]);
        assert_eq!(look(5, 94.0), quiet);
        assert_eq!(look(6, 95.5), quiet);
        assert_eq!(look(7, 90.0), quiet, "a warning again, and no news");
        assert_eq!(look(8, 95.5), [(Change::Worse, Severity::Critical)]);
        assert_eq!(look(9, 76.0), [(Change::Cleared, Severity::Critical)]);
    }

    #[test]
    fn what_could_not_be_looked_at_stays() {
        let mut alerts = Alerts::default();
        alerts.look(0, &[missing()], &[]);
        let of =
            |subject: Option<&str>| [Unknown { event: EventKind::DiskMissing, subject: subject.map(str::to_owned) }];
        assert!(alerts.look(1, &[], &of(None)).is_empty());
        assert!(alerts.look(2, &[], &of(Some("/disk1"))).is_empty());
        assert_eq!(words(&alerts.look(3, &[], &of(Some("/disk2")))), ["Cleared /disk1"]);
    }

    #[test]
    fn a_short_trouble_of_the_network_is_none() {
        let mut alerts = Alerts::default();
        let late = [Condition::is(EventKind::ReplicaLate, "tank/files", "no route")];
        assert!(alerts.look(0, &late, &[]).is_empty());
        assert!(alerts.look(9 * MINUTE, &late, &[]).is_empty());
        assert!(alerts.look(9 * MINUTE + 1, &[], &[]).is_empty());
        assert!(alerts.look(11 * MINUTE, &late, &[]).is_empty());
        assert_eq!(words(&alerts.look(21 * MINUTE, &late, &[])), ["Raised tank/files"]);
    }

    #[test]
    fn acknowledged_and_silenced() {
        let mut alerts = Alerts::default();
        alerts.look(0, &[missing()], &[]);
        assert_eq!(alerts.acknowledge(2), Err(NoAlert(2)));
        alerts.acknowledge(1).unwrap();
        assert!(alerts.look(2 * DAY_MS, &[missing()], &[]).is_empty(), "no reminder");
        alerts.silence(1, 3 * DAY_MS).unwrap();
        assert!(alerts.look(2 * DAY_MS + 1, &[], &[]).is_empty(), "its end is not told either");
        assert!(alerts.look(2 * DAY_MS + 2, &[missing()], &[]).is_empty(), "nor that it is back");
        assert_eq!(words(&alerts.look(3 * DAY_MS, &[missing()], &[])), ["Reminder /disk1"], "it is still so");
    }

    #[test]
    fn alerts_are_bounded_and_the_worst_stay() {
        let mut alerts = Alerts::default();
        let of = |event, n: usize| Condition::is(event, format!("{n}"), "x".repeat(5000));
        let many: Vec<Condition> = (0..2000).map(|n| of(EventKind::DiskErrors, n)).collect();
        assert_eq!(alerts.look(0, &many, &[]).len(), OPEN_MAX);
        assert_eq!(alerts.look(1, &[many, vec![of(EventKind::DiskMissing, 1)]].concat(), &[]).len(), 1);
        assert_eq!(alerts.open().len(), OPEN_MAX);
        assert!(serde_json::to_vec(&alerts).unwrap().len() < 2 << 20);
    }
}
