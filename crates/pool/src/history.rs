//! History: the pool's events, kept on its disks.
//!
//! - `history.telling_costs_no_io`: reporting an event costs a lock and no I/O. A task of its own
//!   writes the gathered events, and closing the pool writes the rest. A crash loses the last
//!   second.
//! - `history.decides_nothing`: history is for people. A failure to read or write it fails nothing,
//!   and nothing is decided by it.
//! - `history.oldest_go_first`: it is bounded, and the oldest events go first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::disk::DiskIo;
use crate::disk::work::Work;
use crate::member::side_file::Sidecar;

const EVENTS_MAX: usize = 1000;
/// No pool has had more events. A copy that claims more is wrong, and its count could not go on.
const NUMBER_MAX: u64 = 1 << 48;
/// Longest text of one event: some causes quote paths.
const TEXT_BYTES_MAX: usize = 1000;
pub const FILE: Sidecar = Sidecar { name: "larder.history", magic: *b"LARDHIST", bytes_max: 256 << 10 };

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts the events of the pool.
    pub number: u64,
    /// Milliseconds since 1970, by the host's clock.
    pub at_ms: u64,
    /// The kind, as [`EventKind::name`] gives it. Later versions may have further kinds.
    pub kind: String,
    /// One sentence for people.
    pub text: String,
}

/// The kind of an event, by which a listing is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The pool was created.
    Created,
    /// It was opened on the host that had it last.
    Opened,
    /// It was opened on another host, or after an export.
    Imported,
    /// It was given up for another host.
    Exported,
    /// A disk was put out of use.
    DiskOut,
    /// A disk is used again.
    DiskBack,
    /// A disk is up to date again.
    Resilvered,
    /// Errors were found, or a loss accepted.
    Errors,
    /// A person cleared the error counts.
    Cleared,
    /// A scrub began, or went on.
    ScrubStarted,
    /// A scrub was paused.
    ScrubPaused,
    /// A scrub was given up.
    ScrubStopped,
    /// A scrub read everything.
    ScrubFinished,
    /// A disk joined.
    DiskAdded,
    /// A disk takes another's place.
    DiskReplaced,
    /// A disk left.
    DiskRemoved,
    /// Laying out all objects anew began or ended.
    Rebalance,
    /// A person asked for a change of the disks.
    Changed,
}

impl EventKind {
    /// The kind as it is stored and shown: lower case, words joined by `-`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Opened => "opened",
            Self::Imported => "imported",
            Self::Exported => "exported",
            Self::DiskOut => "disk-out",
            Self::DiskBack => "disk-back",
            Self::Resilvered => "resilvered",
            Self::Errors => "errors",
            Self::Cleared => "cleared",
            Self::ScrubStarted => "scrub-started",
            Self::ScrubPaused => "scrub-paused",
            Self::ScrubStopped => "scrub-stopped",
            Self::ScrubFinished => "scrub-finished",
            Self::DiskAdded => "disk-added",
            Self::DiskReplaced => "disk-replaced",
            Self::DiskRemoved => "disk-removed",
            Self::Rebalance => "rebalance",
            Self::Changed => "changed",
        }
    }
}

/// The events of an open pool.
#[derive(Debug, Default)]
pub struct History {
    events: Mutex<Events>,
    wanted: Notify,
    /// One writer at a time, so that the newer state is the one that stays.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Events {
    list: VecDeque<Event>,
    is_written: bool,
}

impl Events {
    fn add(&mut self, kind: EventKind, text: &str, at_ms: u64) {
        let number = self.list.back().map_or(1, |last| last.number + 1);
        // Commands without a daemon open the pool again and again: the last time is enough.
        let last_is_same = self.list.back().is_some_and(|last| last.kind == kind.name() && last.text == text);
        if kind == EventKind::Opened && last_is_same {
            self.list.pop_back();
        }
        self.list.push_back(Event { number, at_ms, kind: kind.name().to_owned(), text: shortened(text) });
        if self.list.len() > EVENTS_MAX {
            self.list.pop_front();
        }
        assert!(self.list.len() <= EVENTS_MAX, "`history.oldest_go_first`");
        self.is_written = false;
    }

    /// One line of JSON for each event; the oldest are dropped where there is no room
    /// (`history.oldest_go_first`).
    fn encode(&mut self) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = Vec::with_capacity(self.list.len());
        let mut bytes = 0;
        for event in self.list.iter().rev() {
            // A struct of strings and numbers always serialises.
            let mut line = serde_json::to_vec(event).unwrap_or_default();
            line.push(b'\n');
            bytes += line.len() as u64;
            if bytes > FILE.bytes_max {
                break;
            }
            lines.push(line);
        }
        self.list.drain(..self.list.len() - lines.len());
        lines.reverse();
        let text = lines.concat();
        assert!(text.len() as u64 <= FILE.bytes_max, "`history.oldest_go_first`: a longer file would not be read");
        text
    }
}

fn shortened(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()
}

/// A copy that was damaged before its checksum was computed is no use at all.
fn decode(text: &[u8]) -> Option<VecDeque<Event>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events: VecDeque<Event> = lines.map(serde_json::from_slice).collect::<Result<_, _>>().ok()?;
    let is_counted_up = events.iter().zip(events.iter().skip(1)).all(|(a, b)| a.number < b.number);
    let is_sound = events.len() <= EVENTS_MAX && events.back().is_none_or(|last| last.number <= NUMBER_MAX);
    (is_counted_up && is_sound).then_some(events)
}

/// For fuzzing: whatever a copy holds, it can be encoded again and continued.
#[cfg(any(test, fuzzing))]
pub fn tell_again(data: &[u8]) {
    FILE.decode(data);
    let Some(list) = decode(data) else { return };
    let mut events = Events { list, is_written: true };
    let text = events.encode();
    assert_eq!(decode(&text).as_ref(), Some(&events.list));
    events.add(EventKind::Changed, "more", 1);
    assert!(decode(&events.encode()).is_some());
}

/// The most complete copy.
pub fn read(disks: &[Arc<dyn DiskIo>]) -> VecDeque<Event> {
    let copies = FILE.read(disks).into_iter().filter_map(|text| decode(&text));
    copies.max_by_key(|events| (events.back().map(|last| last.number), events.len())).unwrap_or_default()
}

impl History {
    /// Records an event. Never waits for a disk (`history.telling_costs_no_io`).
    pub fn add(&self, kind: EventKind, text: &str) {
        self.events.lock().add(kind, text, now_ms());
        self.wanted.notify_one();
    }

    /// Takes over the events from the disks. Blocks.
    pub fn take_over(&self, disks: &[Arc<dyn DiskIo>]) {
        self.events.lock().list = read(disks);
    }

    /// Waits until something has happened. For one task.
    pub async fn has_news(&self) {
        self.wanted.notified().await;
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().list.iter().cloned().collect()
    }

    /// Writes the events that are not on the disks yet. Blocks.
    pub fn write(&self, work: &Work, disks: impl FnOnce() -> Vec<Arc<dyn DiskIo>>) {
        let _one = self.writing.lock();
        let text = {
            let mut events = self.events.lock();
            if std::mem::replace(&mut events.is_written, true) {
                return;
            }
            events.encode()
        };
        FILE.write(work, &disks(), &text);
    }

    /// As long as it is held, nothing is written to the disks.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::testing::Bench;
    use crate::{Layout, Pool};

    fn kinds(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut events = Events::default();
        for n in 0..EVENTS_MAX as u64 + 10 {
            events.add(EventKind::Changed, "short", n);
        }
        assert_eq!((events.list.len(), events.list[0].number), (EVENTS_MAX, 11));
        for n in 0..EVENTS_MAX as u64 {
            events.add(EventKind::Changed, &"ä".repeat(TEXT_BYTES_MAX), n);
        }
        let text = events.encode();
        assert!(text.len() as u64 <= FILE.bytes_max && text.len() > 200 << 10, "{} bytes", text.len());
        let back = decode(&text).unwrap();
        assert_eq!(back, events.list);
        assert_eq!(back.back().unwrap().number, 2 * EVENTS_MAX as u64 + 10);
    }

    #[test]
    fn golden() {
        let mut events = Events::default();
        events.add(EventKind::DiskOut, "disk1: gone", 5);
        let line = r#"{"number":1,"at_ms":5,"kind":"disk-out","text":"disk1: gone"}"#.to_owned() + "\n";
        assert_eq!(String::from_utf8(events.encode()).unwrap(), line);
        assert_eq!(decode(line.repeat(2).as_bytes()), None, "one event twice");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn history_lives_on_the_disks_and_damaged_copies_are_passed_over() {
        let bench = Bench::new(3);
        let pool = bench.create(Layout::Raidz1).await;
        pool.close().await.unwrap();
        assert_eq!(kinds(&pool.history()), ["created"]);
        for _ in 0..3 {
            bench.open().await.close().await.unwrap();
        }
        // One disk misses the next events; the copy of another is damaged.
        std::fs::rename(&bench.disks[0], bench.dir.path().join("away")).unwrap();
        let pool = bench.open().await;
        pool.core.members.event(EventKind::Changed, "while one is away");
        pool.export().await.unwrap();
        std::fs::rename(bench.dir.path().join("away"), &bench.disks[0]).unwrap();
        std::fs::write(bench.disks[1].join(FILE.name), b"not a history").unwrap();
        // Three openings alike are one event; the one without a disk says so.
        let expected = ["created", "opened", "opened", "changed", "exported"];
        assert_eq!(kinds(&Pool::history_of(&bench.disks).unwrap().1), expected);
        let pool = bench.open().await;
        assert_eq!(kinds(&pool.history())[2..6], ["opened", "changed", "exported", "imported"]);
        assert!(pool.history().iter().any(|event| event.text.contains("out of date")), "{:?}", pool.history());
        drop(pool);
        let pool = bench.open().await;
        let told = |text: &str| pool.history().iter().rev().take(2).any(|event| event.text.contains(text));
        assert!(told("without closing"), "{:?}", pool.history());
        pool.close().await.unwrap();
        assert!(bench.disks.iter().all(|disk| FILE.decode(&std::fs::read(disk.join(FILE.name)).unwrap()).is_some()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_gathers_is_written_without_a_close() {
        let bench = Bench::new(2);
        let pool = bench.create(Layout::Mirror2).await;
        pool.core.members.event(EventKind::Changed, "one");
        for _ in 0..100 {
            let (_, events) = Pool::history_of(&bench.disks).unwrap();
            if kinds(&events) == ["created", "changed"] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not written within 5 s");
    }
}
