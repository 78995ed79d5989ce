//! A message as receivers get it: as JSON, and as words for people.
//!
//! - `message.burst_is_one`: more than [`TOGETHER_MAX`] news of one look, of the same event, the same severity and the same kind, are one
//!   message. It lists the first and counts the rest. Each is an alert of its own nevertheless, whose end is told.

use serde::{Deserialize, Serialize};

use crate::alerts::{Alert, Change, cut};
use crate::event::Severity;

/// The form of the JSON. It only grows.
pub const VERSION: u32 = 1;

/// News of one look that are told one by one: a person reads so many messages (`message.burst_is_one`).
pub const TOGETHER_MAX: usize = 10;
/// Of each that a message of many lists, with its subject.
const LISTED_CHARS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageKind {
    /// An alert begins.
    Raised,
    /// An alert got worse.
    Worse,
    /// An alert goes on, a day later.
    Reminder,
    /// An alert is over: the all-clear.
    Cleared,
    /// Something happened and is over.
    Noted,
    /// The week.
    Digest,
    /// Somebody asked whether messages arrive.
    Test,
}

impl From<Change> for MessageKind {
    fn from(change: Change) -> Self {
        match change {
            Change::Raised => Self::Raised,
            Change::Worse => Self::Worse,
            Change::Reminder => Self::Reminder,
            Change::Cleared => Self::Cleared,
            Change::Noted => Self::Noted,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub version: u32,
    /// Counts the messages of a box: a receiver that sees a number twice has the same message twice.
    pub number: u64,
    pub at_ms: u64,
    /// The name of the box.
    pub host: String,
    pub kind: MessageKind,
    pub severity: Severity,
    /// The event's id; `digest` and `test` for those.
    pub event: String,
    pub subject: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The alert's number, for `larder alerts ack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

impl Message {
    /// The news of one look (`message.burst_is_one`), in their order.
    pub fn of_news(host: &str, at_ms: u64, news: &[(Change, Alert)]) -> Vec<Self> {
        let is_alike = |(change, alert): &(Change, Alert), (other, of): &(Change, Alert)| {
            (*change, alert.key.event, alert.severity) == (*other, of.key.event, of.severity)
        };
        let mut messages = Vec::new();
        for (at, one) in news.iter().enumerate() {
            let alike: Vec<&Alert> = news.iter().filter(|other| is_alike(one, other)).map(|(_, alert)| alert).collect();
            if alike.len() <= TOGETHER_MAX {
                messages.push(Self::of_alert(host, at_ms, one.0, &one.1));
            } else if !news.iter().take(at).any(|before| is_alike(one, before)) {
                messages.push(Self::of_many(host, at_ms, one.0, &alike));
            }
        }
        messages
    }

    /// Alerts of one event.
    fn of_many(host: &str, at_ms: u64, change: Change, alerts: &[&Alert]) -> Self {
        let Some(first) = alerts.first() else {
            return Self::of_box(host, at_ms, MessageKind::Noted, host, String::new());
        };
        let rest = alerts.len() - TOGETHER_MAX.min(alerts.len());
        let listed = alerts.iter().take(TOGETHER_MAX);
        let mut text = format!("{} at once:", alerts.len());
        for alert in listed {
            let line = one_line(&format!("{}: {}", alert.key.subject, alert.text));
            text.push_str(&format!("\n- {}", cut(&line, LISTED_CHARS_MAX)));
        }
        if rest > 0 {
            text.push_str(&format!("\nand {rest} more: larder alerts list --all shows them"));
        }
        let event = first.key.event.event();
        Self {
            subject: format!("{} and {} more", first.key.subject, alerts.len() - 1),
            text,
            action: (!matches!(change, Change::Cleared)).then(|| event.action.to_owned()),
            // Each has a number of its own.
            alert: None,
            since_ms: alerts.iter().map(|alert| alert.since_ms).min(),
            ..Self::of_alert(host, at_ms, change, first)
        }
    }

    /// News of an alert. The number comes with the queue.
    pub fn of_alert(host: &str, at_ms: u64, change: Change, alert: &Alert) -> Self {
        let is_over = matches!(change, Change::Cleared);
        let event = alert.key.event.event();
        let own = alert.action.clone().unwrap_or_else(|| event.action.to_owned());
        Self {
            version: VERSION,
            number: 0,
            at_ms,
            host: host.to_owned(),
            kind: change.into(),
            severity: alert.severity,
            event: event.id.to_owned(),
            subject: alert.key.subject.clone(),
            text: alert.text.clone(),
            action: (!is_over).then_some(own),
            alert: Some(alert.id),
            since_ms: Some(alert.since_ms),
        }
    }

    pub fn of_box(host: &str, at_ms: u64, kind: MessageKind, subject: &str, text: String) -> Self {
        let event = if kind == MessageKind::Digest { "digest" } else { "test" };
        Self {
            version: VERSION,
            number: 0,
            at_ms,
            host: host.to_owned(),
            kind,
            severity: Severity::Info,
            event: event.to_owned(),
            subject: subject.to_owned(),
            text,
            action: None,
            alert: None,
            since_ms: None,
        }
    }

    /// One line: what a phone shows first.
    pub fn title(&self) -> String {
        let (host, subject) = (one_line(&self.host), one_line(&self.subject));
        match self.kind {
            MessageKind::Digest => format!("{host}: the week"),
            MessageKind::Test => format!("{host}: a test message of larder"),
            MessageKind::Cleared => format!("{host}: over: {}: {subject}", self.event),
            MessageKind::Reminder => format!("{host}: still {}: {}: {subject}", self.severity, self.event),
            _ => format!("{host}: {}: {}: {subject}", self.severity, self.event),
        }
    }

    /// The sentences below the title.
    pub fn body(&self) -> String {
        let mut text = match self.kind {
            MessageKind::Cleared => format!("This is over. It was: {}", self.text),
            _ => self.text.clone(),
        };
        if let Some(action) = &self.action {
            text.push_str(&format!("\n\nWhat to do: {action}"));
        }
        if let (Some(alert), true) = (self.alert, self.may_be_acknowledged()) {
            text.push_str(&format!("\n\nNo more reminders: larder alerts ack {alert}"));
        }
        text
    }

    fn may_be_acknowledged(&self) -> bool {
        matches!(self.kind, MessageKind::Raised | MessageKind::Worse | MessageKind::Reminder)
    }
}

/// A header or title has no line breaks, whatever a path or name has.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::alerts::{Alerts, Condition};
    use crate::event::EventKind;

    fn message(change: Change) -> Message {
        let mut alerts = Alerts::default();
        let condition = Condition::is(EventKind::DiskMissing, "/disk1\r\nBcc: eve", "gone").action("reconnect it");
        let (_, alert) = alerts.look(5, &[condition], &[]).remove(0);
        Message::of_alert("box", 7, change, &alert)
    }

    #[test]
    fn words_for_people() {
        let raised = message(Change::Raised);
        assert_eq!(raised.title(), "box: critical: disk-missing: /disk1  Bcc: eve");
        assert_eq!(raised.body(), "gone\n\nWhat to do: reconnect it\n\nNo more reminders: larder alerts ack 1");
        let cleared = message(Change::Cleared);
        assert_eq!(cleared.title(), "box: over: disk-missing: /disk1  Bcc: eve");
        assert_eq!(cleared.body(), "This is over. It was: gone");
    }

    /// `message.burst_is_one`
    #[test]
    fn a_burst_is_one_message_and_each_end_is_told() {
        let faults = |event, n: usize| -> Vec<Condition> {
            (0..n).map(|at| Condition::is(event, format!("/disk{at}\n"), "x".repeat(1500))).collect()
        };
        let mut alerts = Alerts::default();
        let news = |alerts: &mut Alerts, at_ms, conditions: &[Condition]| {
            let news = alerts.look(at_ms, conditions, &[]);
            let count = news.len();
            (count, Message::of_news("box", at_ms, &news))
        };
        let few = faults(EventKind::DiskErrors, TOGETHER_MAX);
        let (count, messages) = news(&mut alerts, 5, &few);
        assert_eq!((count, messages.len()), (TOGETHER_MAX, TOGETHER_MAX), "few are told one by one");

        let many = [few.clone(), faults(EventKind::DiskMissing, 200)].concat();
        let (count, messages) = news(&mut alerts, 6, &many);
        assert_eq!((count, messages.len()), (200, 1));
        let one = &messages[0];
        assert_eq!((one.kind, one.event.as_str(), one.alert), (MessageKind::Raised, "disk-missing", None));
        assert_eq!(one.subject, "/disk0\n and 199 more");
        assert_eq!(one.text.lines().count(), 1 + TOGETHER_MAX + 1, "{}", one.text);
        assert!(one.text.starts_with("200 at once:\n- /disk0 : xxx") && one.text.contains("and 190 more"));
        assert!(one.action.is_some() && one.text.len() < 3000);

        // A restart or another look repeats nothing; one that ends is told by itself, many at once together.
        assert_eq!(news(&mut alerts, 7, &many).0, 0);
        let (_, messages) = news(&mut alerts, 8, &many[..many.len() - 1]);
        assert_eq!(
            (messages.len(), messages[0].kind, messages[0].subject.as_str()),
            (1, MessageKind::Cleared, "/disk199\n")
        );
        let (count, messages) = news(&mut alerts, 9, &few);
        assert_eq!((count, messages.len(), messages[0].action.as_ref()), (199, 1, None));
        assert!(messages[0].title().contains("over: disk-missing"), "{}", messages[0].title());
    }

    #[test]
    fn the_form_of_the_json() {
        let text = serde_json::to_string(&Message { number: 3, subject: "/disk1".into(), ..message(Change::Raised) });
        let expected = r#"{"version":1,"number":3,"at_ms":7,"host":"box","kind":"raised","severity":"critical","event":"disk-missing","subject":"/disk1","text":"gone","action":"reconnect it","alert":1,"since_ms":5}"#;
        assert_eq!(text.unwrap(), expected);
    }
}
