//! The audit log: administrative acts, changes of the configuration, logins and refusals, one line of JSON each.
//!
//! - `audit.append_only`: lines are added and never changed. An act's line is durable before the next; lines of logins and of operations
//!   on files may lose the last seconds in a power cut.
//! - `audit.bounded`: a file of [`FILE_BYTES_MAX`] makes room for the next; the oldest of [`FILES_MAX`] goes.
//! - `audit.files_apart`: operations on files have files of their own, so that a client that makes very many pushes out no act. All records
//!   are counted together, so their numbers are their order.
//! - `audit.newest_in_memory`: the newest [`RECENT_MAX`] records but for operations on files are in memory too, so that a page that shows
//!   them reads no disk.
//! - `audit.names_only`: a record names an endpoint and the thing that it was about. Bodies of requests are not kept, so no secret is.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::alerts::cut;

pub const FILE_BYTES_MAX: u64 = 8 << 20;
pub const FILES_MAX: usize = 8;
/// No record of ours is longer; what is longer in a file is damage.
const LINE_BYTES_MAX: usize = 16 << 10;
const FIELD_CHARS_MAX: usize = 500;
/// Two paths of a rename. Even of characters that JSON escapes a line stays below [`LINE_BYTES_MAX`].
const TARGET_CHARS_MAX: usize = 1500;
/// In one answer.
pub const RECORDS_MAX: usize = 10_000;
/// More than any page shows; about a megabyte at most.
pub const RECENT_MAX: usize = 500;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    /// An administrative act, through the API.
    Act,
    /// The configuration was read again.
    Config,
    #[default]
    Login,
    Refusal,
    /// A client changed names or rights in an audited share.
    File,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Counts the records of a box.
    pub number: u64,
    pub at_ms: u64,
    pub kind: RecordKind,
    /// The user of the machine, or the one that logged in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// An address, or `local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// `command`, `page`, `api`, `set-up`, `file`, or a protocol.
    pub by: String,
    /// The endpoint of an act; a sentence of what else happened.
    pub what: String,
    /// What it was done to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// `done`, or why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
}

/// The files that a record belongs to (`audit.files_apart`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Box,
    Files,
}

struct Open {
    file: File,
    bytes: u64,
}

#[derive(Default)]
struct State {
    /// By [`Stream`].
    open: [Option<Open>; 2],
    /// Of all records; `None` until the files were looked at.
    last_number: Option<u64>,
}

pub struct Audit {
    folder: PathBuf,
    state: Mutex<State>,
    /// Oldest first; `None` until they were read (`audit.newest_in_memory`).
    recent: Mutex<Option<VecDeque<Record>>>,
}

fn path_of(folder: &Path, stream: Stream, age: usize) -> PathBuf {
    let stem = match stream {
        Stream::Box => "audit",
        Stream::Files => "audit-files",
    };
    folder.join(if age == 0 { format!("{stem}.jsonl") } else { format!("{stem}.{age}.jsonl") })
}

impl Audit {
    /// The log in a folder; it is opened by the first record.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), state: Mutex::default(), recent: Mutex::new(None) }
    }

    /// The newest records, oldest first. The first call reads the files; later ones read no disk.
    pub fn newest(&self, count: usize) -> std::io::Result<Vec<Record>> {
        // Held, so that no record is added between the files and memory.
        let _alone = self.state.lock();
        let mut recent = self.recent.lock();
        if recent.is_none() {
            *recent = Some(read_newest(&self.folder)?);
        }
        let all = recent.as_ref().map(VecDeque::iter).into_iter().flatten();
        let skipped = recent.as_ref().map_or(0, VecDeque::len).saturating_sub(count);
        Ok(all.skip(skipped).cloned().collect())
    }

    /// Adds a record; its number and time are set here. A log that cannot be written is said by the caller: what is audited goes on.
    pub fn add(&self, at_ms: u64, record: Record) -> std::io::Result<()> {
        let is_durable = matches!(record.kind, RecordKind::Act | RecordKind::Config);
        let mut records = vec![Record { at_ms, ..record }];
        self.write(Stream::Box, &mut records, is_durable)?;
        if let Some(recent) = &mut *self.recent.lock() {
            recent.extend(records);
            recent.drain(..recent.len().saturating_sub(RECENT_MAX));
        }
        Ok(())
    }

    /// Adds operations on files with their times, by few writes.
    pub fn add_file_operations(&self, mut records: Vec<Record>) -> std::io::Result<()> {
        self.write(Stream::Files, &mut records, false)
    }

    fn write(&self, stream: Stream, records: &mut [Record], is_durable: bool) -> std::io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let mut number = match state.last_number {
            Some(number) => number,
            None => last_number_of_all(&self.folder),
        };
        // Of writes that fail no number is given twice.
        state.last_number = Some(number + records.len() as u64);
        let mut current = match state.open[stream as usize].take() {
            Some(current) => current,
            None => begin(&self.folder, stream)?,
        };
        let mut lines = Vec::new();
        for record in records {
            number += 1;
            shorten(record, number);
            if current.bytes + lines.len() as u64 >= FILE_BYTES_MAX {
                current.file.write_all(&lines)?;
                lines.clear();
                current = rotate(&self.folder, stream)?;
            }
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        // One write: lines of several processes do not mix, and a torn one is the last.
        current.file.write_all(&lines)?;
        if is_durable {
            current.file.sync_data()?;
        }
        current.bytes += lines.len() as u64;
        state.open[stream as usize] = Some(current);
        Ok(())
    }
}

fn shorten(record: &mut Record, number: u64) {
    record.number = number;
    for text in [&mut record.who, &mut record.from, &mut record.what, &mut record.result] {
        *text = cut(text, FIELD_CHARS_MAX);
    }
    record.target = cut(&record.target, TARGET_CHARS_MAX);
}

fn begin(folder: &Path, stream: Stream) -> std::io::Result<Open> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path_of(folder, stream, 0))?;
    let bytes = file.metadata()?.len();
    // A power cut may have torn the last line.
    if bytes > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(Open { file, bytes })
}

fn rotate(folder: &Path, stream: Stream) -> std::io::Result<Open> {
    for age in (0..FILES_MAX - 1).rev() {
        match std::fs::rename(path_of(folder, stream, age), path_of(folder, stream, age + 1)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    begin(folder, stream)
}

fn last_number_of_all(folder: &Path) -> u64 {
    let newest = |stream, age| last_number(&path_of(folder, stream, age));
    let of = |stream| newest(stream, 0).or_else(|| newest(stream, 1)).unwrap_or(0);
    of(Stream::Box).max(of(Stream::Files))
}

/// The number of a file's last whole line.
fn last_number(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(4 * LINE_BYTES_MAX as u64))).ok()?;
    let mut text = Vec::new();
    file.take(4 * LINE_BYTES_MAX as u64).read_to_end(&mut text).ok()?;
    let lines = text.split(|&byte| byte == b'\n').rev();
    lines.filter_map(|line| serde_json::from_slice::<Record>(line).ok()).map(|record| record.number).next()
}

/// Records in a folder since a time, oldest first, behind a number: [`RECORDS_MAX`] at most. Works beside a daemon and without one.
pub fn read(folder: &Path, since_ms: u64, after_number: u64) -> std::io::Result<Vec<Record>> {
    let mut all = read_stream(folder, Stream::Box, since_ms, after_number)?;
    all.extend(read_stream(folder, Stream::Files, since_ms, after_number)?);
    all.sort_by_key(|record| record.number);
    all.truncate(RECORDS_MAX);
    Ok(all)
}

fn read_stream(folder: &Path, stream: Stream, since_ms: u64, after_number: u64) -> std::io::Result<Vec<Record>> {
    let mut found = Vec::new();
    for age in (0..FILES_MAX).rev() {
        let is_full = each(folder, stream, age, |record| {
            if record.at_ms >= since_ms && record.number > after_number {
                found.push(record);
            }
            found.len() >= RECORDS_MAX
        })?;
        if is_full {
            break;
        }
    }
    Ok(found)
}

/// The newest [`RECENT_MAX`] records of the last two files, oldest first.
fn read_newest(folder: &Path) -> std::io::Result<VecDeque<Record>> {
    let mut found = VecDeque::new();
    for age in [1, 0] {
        each(folder, Stream::Box, age, |record| {
            found.push_back(record);
            found.drain(..found.len().saturating_sub(RECENT_MAX));
            false
        })?;
    }
    Ok(found)
}

/// Gives the records of a file to `take` until it has enough; returns whether it has.
fn each(folder: &Path, stream: Stream, age: usize, mut take: impl FnMut(Record) -> bool) -> std::io::Result<bool> {
    let file = match File::open(path_of(folder, stream, age)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut lines).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        // What is torn or damaged is passed over; so is the rest of a line that is too long.
        let Ok(record) = serde_json::from_slice::<Record>(&line) else { continue };
        if take(record) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(what: &str) -> Record {
        Record {
            number: 0,
            at_ms: 0,
            kind: RecordKind::Act,
            who: "root".into(),
            from: "local".into(),
            by: "command".into(),
            what: what.into(),
            target: "ann".into(),
            result: "done".into(),
        }
    }

    #[test]
    fn records_are_kept_and_numbered_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let whats = |since, after| -> Vec<String> {
            read(folder.path(), since, after).unwrap().into_iter().map(|record| record.what).collect()
        };
        Audit::of(folder.path()).add(10, record("AddUser")).unwrap();
        // A torn line, and one that is damaged.
        let path = path_of(folder.path(), Stream::Box, 0);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"number\":7,\"at").unwrap();
        let audit = Audit::of(folder.path());
        audit.add(20, record("RemoveUser")).unwrap();
        audit.add(30, record(&"x".repeat(9000))).unwrap();
        let all = read(folder.path(), 0, 0).unwrap();
        assert_eq!(all.iter().map(|record| record.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((whats(20, 0).len(), whats(0, 2).len()), (2, 1));
        assert_eq!(all[2].what.chars().count(), FIELD_CHARS_MAX + 1);
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    /// `audit.newest_in_memory`
    #[test]
    fn the_newest_are_known_without_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let before = Audit::of(folder.path());
        (0..RECENT_MAX as u64 + 7).for_each(|n| before.add(n, record("AddUser")).unwrap());
        let audit = Audit::of(folder.path());
        let numbers = |count| audit.newest(count).unwrap().iter().map(|one| one.number).collect::<Vec<_>>();
        let last = RECENT_MAX as u64 + 7;
        assert_eq!(numbers(2), [last - 1, last]);
        audit.add(1, record("RemoveUser")).unwrap();
        std::fs::remove_file(path_of(folder.path(), Stream::Box, 0)).unwrap();
        assert_eq!((numbers(1), numbers(usize::MAX).len()), (vec![last + 1], RECENT_MAX));
        assert_eq!(audit.newest(usize::MAX).unwrap().first().unwrap().number, last + 2 - RECENT_MAX as u64);
        assert!(Audit::of(&folder.path().join("nowhere")).newest(9).unwrap().is_empty());
    }

    #[test]
    fn the_oldest_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::of(folder.path());
        for n in 0..FILES_MAX as u64 + 3 {
            audit.add(n, record("Login")).unwrap();
            audit.state.lock().open[0].as_mut().unwrap().bytes = FILE_BYTES_MAX;
        }
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        let all = read(folder.path(), 0, 0).unwrap();
        assert_eq!((files, all.len(), all[0].number), (FILES_MAX, FILES_MAX, 4));
    }

    /// `audit.files_apart`
    #[test]
    fn operations_on_files_push_out_no_act_and_all_are_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::of(folder.path());
        let file = |n: u64| Record { at_ms: n, kind: RecordKind::File, target: "x".repeat(1400), ..record("created") };
        audit.add(1, record("AddUser")).unwrap();
        // More than all files of the stream hold.
        let batch = 2000;
        for n in 0..(FILES_MAX as u64 + 2) * FILE_BYTES_MAX / (batch * 1400) {
            audit.add_file_operations((0..batch).map(|m| file(n * batch + m)).collect()).unwrap();
        }
        audit.add(u64::MAX, record("RemoveUser")).unwrap();
        let sizes = |stem: &str| -> Vec<u64> {
            let all = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
            let of = all.filter(|entry| entry.file_name().to_str().unwrap().starts_with(stem));
            of.map(|entry| entry.metadata().unwrap().len()).collect()
        };
        assert_eq!((sizes("audit-files").len(), sizes("audit.").len()), (FILES_MAX, 1));
        assert!(sizes("audit-files").iter().all(|&bytes| bytes < FILE_BYTES_MAX + LINE_BYTES_MAX as u64));
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = read(folder.path(), 0, after).unwrap();
            let Some(last) = page.last() else { break };
            after = last.number;
            all.extend(page.into_iter().map(|one| (one.number, one.what)));
        }
        assert!(all.is_sorted() && all.windows(2).all(|two| two[0].0 < two[1].0));
        assert_eq!((all[0].1.as_str(), all.last().unwrap().1.as_str()), ("AddUser", "RemoveUser"));
        let again = Audit::of(folder.path());
        again.add_file_operations(vec![file(1)]).unwrap();
        assert_eq!(read(folder.path(), 0, after).unwrap()[0].number, after + 1, "after a restart");
    }
}
