//! Messages that wait for their receivers. It is saved as it is (`watch.saved_before_sent`).
//!
//! - `queue.bounded`: at most [`MESSAGES_MAX`] messages wait. The oldest of the least severe gives way, and once there is room again
//!   a message says how many did.
//! - `queue.in_order`: a receiver gets its messages in the order in which they were made.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::Message;

/// Weeks without a network, at a message an hour. Each is 3 KB at most.
pub const MESSAGES_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    message: Message,
    /// Names of receivers that do not have it yet.
    to: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queue {
    last_number: u64,
    waiting: VecDeque<Waiting>,
    /// Dropped, and not told yet.
    dropped: u64,
}

impl Queue {
    /// Nothing waits where nobody is to get it.
    pub fn push(&mut self, message: Message, to: BTreeSet<String>) {
        self.last_number += 1;
        if to.is_empty() {
            return;
        }
        if self.waiting.len() >= MESSAGES_MAX {
            let least = self.waiting.iter().enumerate().min_by_key(|(at, one)| (one.message.severity, *at));
            if let Some(at) = least.map(|(at, _)| at) {
                self.waiting.remove(at);
                self.dropped += 1;
            }
        }
        self.waiting.push_back(Waiting { message: Message { number: self.last_number, ..message }, to });
    }

    /// The next message for a receiver.
    pub fn next(&self, receiver: &str) -> Option<&Message> {
        self.waiting.iter().find(|one| one.to.contains(receiver)).map(|one| &one.message)
    }

    /// A receiver has a message, or will never take it.
    pub fn done(&mut self, receiver: &str, number: u64) {
        for one in self.waiting.iter_mut().filter(|one| one.message.number == number) {
            one.to.remove(receiver);
        }
        self.waiting.retain(|one| !one.to.is_empty());
    }

    /// Messages for receivers that the configuration does not name any more go.
    pub fn keep_only(&mut self, receivers: &BTreeSet<String>) {
        self.waiting.iter_mut().for_each(|one| one.to.retain(|name| receivers.contains(name)));
        self.waiting.retain(|one| !one.to.is_empty());
    }

    /// How many wait for a receiver.
    pub fn count(&self, receiver: &str) -> usize {
        self.waiting.iter().filter(|one| one.to.contains(receiver)).count()
    }

    /// How many were dropped, once that can be said: there is room.
    pub fn take_dropped(&mut self) -> Option<u64> {
        let has_room = self.waiting.len() < MESSAGES_MAX / 2;
        (self.dropped > 0 && has_room).then(|| std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::Severity;
    use crate::message::MessageKind;

    fn message(severity: Severity, text: &str) -> Message {
        Message { severity, ..Message::of_box("box", 0, MessageKind::Noted, "x", text.to_owned()) }
    }

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn drain(queue: &mut Queue, receiver: &str) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(message) = queue.next(receiver).cloned() {
            texts.push(message.text);
            queue.done(receiver, message.number);
        }
        texts
    }

    #[test]
    fn each_receiver_gets_each_message_once_and_in_order() {
        let mut queue = Queue::default();
        for n in 0..3 {
            queue.push(message(Severity::Warning, &format!("{n}")), names(&["mail", "ntfy"]));
        }
        assert_eq!(drain(&mut queue, "mail"), ["0", "1", "2"]);
        let saved = serde_json::to_vec(&queue).unwrap();
        let mut again: Queue = serde_json::from_slice(&saved).unwrap();
        assert_eq!((again.count("mail"), again.count("ntfy")), (0, 3), "a restart in the middle");
        assert_eq!(drain(&mut again, "ntfy"), ["0", "1", "2"]);
        assert_eq!(again, Queue { last_number: 3, ..Queue::default() });
    }

    #[test]
    fn a_full_queue_drops_the_oldest_of_the_least_severe_and_says_so() {
        let mut queue = Queue::default();
        queue.push(message(Severity::Critical, "first"), names(&["mail"]));
        for n in 0..MESSAGES_MAX {
            let severity = if n % 2 == 0 { Severity::Info } else { Severity::Warning };
            queue.push(message(severity, &format!("{n}")), names(&["mail"]));
        }
        for _ in 0..9 {
            queue.push(message(Severity::Warning, "late"), names(&["mail"]));
        }
        assert_eq!(queue.take_dropped(), None, "there is no room to say it");
        let texts = drain(&mut queue, "mail");
        assert_eq!(texts.len(), MESSAGES_MAX);
        assert_eq!(texts[..3], ["first", "1", "3"], "0, 2, ... went");
        assert_eq!((queue.take_dropped(), queue.take_dropped()), (Some(10), None));
    }

    #[test]
    fn receivers_that_are_gone_hold_nothing() {
        let mut queue = Queue::default();
        queue.push(message(Severity::Info, "a"), names(&["old", "new"]));
        queue.push(message(Severity::Info, "b"), names(&["old"]));
        queue.push(message(Severity::Info, "c"), names(&[]));
        queue.keep_only(&names(&["new"]));
        assert_eq!(drain(&mut queue, "new"), ["a"]);
        assert!(queue.waiting.is_empty());
    }
}
