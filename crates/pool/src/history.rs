//! History: what happened to the pool, kept on its disks.
//!
//! E1. Telling an event costs a lock and no I/O; a task of its own writes what has gathered, and closing the
//!     pool writes the rest. A crash loses the last second.
//! E2. History is for people: that it cannot be read or written fails nothing, and nothing is decided by it.
//! E3. It is bounded: the oldest events go first.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::core::Core;
use crate::disk::DiskIo;
use crate::disk::folder::{self, FileDisks};
use crate::disk::timed_disk;
use crate::error::PoolError;
use crate::member::label::{Label, Usage};
use crate::member::member_disk::{DiskState, ErrorKind, MemberDisk};
use crate::member::side_file::Sidecar;
use crate::object::write::now_ms;
use crate::pool::{Pool, read_labels};

const EVENTS_MAX: usize = 1000;
/// No pool has had more: a copy that says so is wrong, and nobody could count on.
const NUMBER_MAX: u64 = 1 << 48;
/// Longest text of one event: some causes quote paths.
const TEXT_BYTES_MAX: usize = 1000;
pub const FILE: Sidecar = Sidecar { name: "larder.history", magic: *b"LARDHIST", bytes_max: 256 << 10 };
/// What follows within this time is written together.
const GATHER_FOR: Duration = Duration::from_secs(1);

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts the events of the pool.
    pub number: u64,
    pub at_ms: u64,
    /// What it is about, as [`EventKind::name`] has it; later versions may know more.
    pub kind: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Created,
    Opened,
    Imported,
    Exported,
    DiskOut,
    DiskBack,
    Resilvered,
    Errors,
    Cleared,
    ScrubStarted,
    ScrubPaused,
    ScrubStopped,
    ScrubFinished,
    DiskAdded,
    DiskReplaced,
    DiskRemoved,
    Rebalance,
    Changed,
}

impl EventKind {
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
    pub writing: Mutex<()>,
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
        self.is_written = false;
    }

    /// One line of JSON for each event; the oldest are forgotten where there is no room (E3).
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
        lines.concat()
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

/// For fuzzing: whatever a copy says, it can be told again and gone on with.
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
fn read(disks: &[Arc<dyn DiskIo>]) -> VecDeque<Event> {
    let copies = FILE.read(disks).into_iter().filter_map(|text| decode(&text));
    copies.max_by_key(|events| (events.back().map(|last| last.number), events.len())).unwrap_or_default()
}

impl Core {
    /// Tells what happened. Never waits for a disk (E1).
    pub fn event(&self, kind: EventKind, text: impl AsRef<str>) {
        self.history.events.lock().add(kind, text.as_ref(), now_ms());
        self.history.wanted.notify_one();
    }

    /// Counts an error of a disk; the first of its kind since the counters were zero is an event.
    pub fn count_error(&self, member: &MemberDisk, kind: ErrorKind, error: &str) {
        if member.count(kind, error) {
            let kind = match kind {
                ErrorKind::Read => "read",
                ErrorKind::Write => "write",
                ErrorKind::Checksum => "checksum",
            };
            self.event(EventKind::Errors, format!("{}: first {kind} error: {error}", member.path.read().display()));
        }
    }

    /// Takes over what the disks know, and adds how the pool is opened now. Blocks.
    pub fn begin_history(&self, before: &Label) {
        self.history.events.lock().list = read(&self.disks_readable());
        let (kind, mut text) = opening(before);
        for member in self.members.iter().filter(|member| !member.is_readable()) {
            text.push_str(&format!("; {} is {}", member.path.read().display(), member.state()));
        }
        self.event(kind, text);
    }

    /// Tells which disks are out of date, once it is known which of them take writes.
    pub fn tell_of_stale_disks(&self) {
        let is_stale = |member: &&MemberDisk| {
            let state = member.state();
            state == DiskState::Resilvering || state == DiskState::ReadOnly && !member.is_in_sync()
        };
        for member in self.members.iter().filter(is_stale) {
            let why = match (&*member.stale.lock(), member.last_error.lock().as_str()) {
                (Some(why), _) => why.clone(),
                (None, "") => "it was away and is out of date".to_owned(),
                (None, why) => why.to_owned(),
            };
            let now = match member.state() {
                DiskState::ReadOnly => "it refuses writes, and cannot be brought up to date",
                _ => "being brought up to date",
            };
            self.event(EventKind::DiskBack, format!("{}: {why}; {now}", member.path.read().display()));
        }
    }

    pub fn events(&self) -> Vec<Event> {
        self.history.events.lock().list.iter().cloned().collect()
    }

    /// Writes what is not on the disks yet. Blocks.
    pub fn write_history(&self) {
        let _one = self.history.writing.lock();
        let text = {
            let mut events = self.history.events.lock();
            if std::mem::replace(&mut events.is_written, true) {
                return;
            }
            events.encode()
        };
        FILE.write(&self.work, &self.disks_writable(), &text);
    }

    pub fn disks_readable(&self) -> Vec<Arc<dyn DiskIo>> {
        self.members.iter().filter(|member| member.is_readable()).filter_map(|member| member.io().ok()).collect()
    }

    pub fn disks_writable(&self) -> Vec<Arc<dyn DiskIo>> {
        self.members.iter().filter(|member| member.is_writable()).filter_map(|member| member.io().ok()).collect()
    }
}

/// How a pool is opened, by what its label said before.
fn opening(before: &Label) -> (EventKind, String) {
    let (host, own_id) = folder::host();
    if before.generation == 1 {
        let disks = before.members.len();
        return (EventKind::Created, format!("{} of {disks} disks on {host}", before.layout));
    }
    match &before.usage {
        Usage::Exported => (EventKind::Imported, format!("on {host}; it was exported")),
        Usage::Closed { host_id, host: other } if *host_id != own_id => {
            (EventKind::Imported, format!("on {host}; it was closed on {other}"))
        }
        Usage::Open { host_id, host: other } if *host_id != own_id => {
            (EventKind::Imported, format!("on {host}, by force; it was in use on {other}"))
        }
        Usage::Closed { .. } => (EventKind::Opened, format!("on {host}")),
        Usage::Open { .. } => (EventKind::Opened, format!("on {host}, after a stop without closing it")),
    }
}

/// The task that writes what has gathered: runs until the pool is closed.
pub async fn run(core: Arc<Core>) {
    while !core.closed.load(Ordering::Acquire) {
        core.history.wanted.notified().await;
        tokio::time::sleep(GATHER_FOR).await;
        if core.closed.load(Ordering::Acquire) {
            return;
        }
        // It fails only when the runtime ends.
        let _ = core.blocking(|core| core.write_history()).await;
    }
}

impl Pool {
    /// What happened to the pool, oldest first.
    pub fn history(&self) -> Vec<Event> {
        self.core.events()
    }

    /// Name and history of the pool on these disks, without opening it.
    pub fn history_of(disks: &[PathBuf]) -> Result<(String, Vec<Event>), PoolError> {
        let found = read_labels(&*timed_disk::over(Arc::new(FileDisks)), disks);
        let Some(name) = found.labelled.first().map(|disk| disk.label.name.clone()) else {
            let paths: Vec<String> = disks.iter().map(|path| path.display().to_string()).collect();
            return Err(PoolError::NoPool(paths.join(", ")));
        };
        let disks: Vec<Arc<dyn DiskIo>> = found.labelled.into_iter().map(|disk| disk.disk).collect();
        Ok((name, read(&disks).into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Layout;
    use crate::testing::Bench;

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
        // One disk misses what follows; the copy of another is damaged.
        std::fs::rename(&bench.disks[0], bench.dir.path().join("away")).unwrap();
        let pool = bench.open().await;
        pool.core.event(EventKind::Changed, "while one is away");
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
        pool.core.event(EventKind::Changed, "one");
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
