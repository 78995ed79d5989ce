//! The progress and the findings of a scrub, in memory and on the disks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::found::{Damage, MISSING, ObjectDone, Records, joined};
use crate::disk::DiskIo;
use crate::member::side_file::Sidecar;

pub const FILE_NAME: &str = "larder.scrub";
pub const FILE: Sidecar = Sidecar { name: FILE_NAME, magic: *b"LARDSCRB", bytes_max: 4 << 20 };
/// Damaged objects that are listed; more are only counted.
const DAMAGE_MAX: usize = 1000;
/// Nothing that is counted here comes to more: a copy that says so is wrong, and could not be added
/// to.
const COUNT_MAX: u64 = 1 << 62;

/// The state of a scrub; the transitions are drawn in `heal/scrub/mod.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubPhase {
    /// It reads.
    Running,
    /// It goes on when it is started again.
    Paused,
    /// It was given up before its end.
    Stopped,
    /// All objects were read.
    Finished,
}

/// A scrub, under way or over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether it runs.
    pub phase: ScrubPhase,
    /// The person or schedule that started it.
    pub why: String,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended or paused.
    pub ended_ms: Option<u64>,
    /// Time at work: pauses are not counted.
    pub elapsed_ms: u64,
    /// Objects read so far.
    pub objects_done: u64,
    /// Objects to read in all, counted when the scrub started or went on.
    pub objects_total: u64,
    /// Bytes read so far, redundancy included.
    pub bytes_done: u64,
    /// Bytes to read in all, redundancy included, counted when the scrub started or went on.
    pub bytes_total: u64,
    /// Damaged blocks, labels and journal copies that were found, and shards that are missing.
    pub errors: u64,
    /// Shards and journal copies made anew, labels written again.
    pub repaired: u64,
    /// Mended bytes. Of a damaged shard only its damaged blocks count, not the whole shard that was
    /// written anew; of a shard that was missing, unreadable or misplaced all of it.
    pub repaired_bytes: u64,
    /// Objects that are not whole afterwards.
    pub unrepaired: u64,
    /// Since it was started or went on; 0 when it does not run.
    #[serde(default, skip_deserializing)]
    pub bytes_per_second: u64,
    /// An estimate in seconds; `None` while there is none.
    #[serde(default, skip_deserializing)]
    pub seconds_left: Option<u64>,
}

/// The contents of the file on the disks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stored {
    /// Counts how often it was written: the highest is the newest.
    number: u64,
    status: Option<ScrubStatus>,
    /// All objects up to this path are done (`scrub.done_up_to_a_path`).
    after: String,
    damage: Vec<Damage>,
    damage_more: u64,
}

#[derive(Debug, Default)]
pub struct State {
    number: u64,
    status: Option<ScrubStatus>,
    pub after: String,
    damage: BTreeMap<String, Damage>,
    damage_more: u64,
    session: Option<Session>,
}

/// The contents of one copy.
fn decode(text: &[u8]) -> Option<Stored> {
    let stored: Stored = serde_json::from_slice(text).ok()?;
    let counts = stored.status.as_ref().map_or([0; 5], |s| {
        [s.objects_done, s.bytes_done, s.errors.max(s.repaired), s.repaired_bytes.max(s.unrepaired), s.elapsed_ms]
    });
    let is_sound = counts.iter().chain([&stored.number, &stored.damage_more]).all(|count| *count <= COUNT_MAX);
    is_sound.then_some(stored)
}

/// For fuzzing: whatever a copy says, the scrub can go on with it.
#[cfg(any(test, fuzzing))]
pub fn go_on(data: &[u8]) {
    FILE.decode(data);
    let Some(stored) = decode(data) else { return };
    let mut state = State::of(stored);
    state.begin_session(1, 1);
    if state.phase() == Some(ScrubPhase::Paused) {
        assert!(state.start("fuzz", 1));
    }
    if let Some(text) = state.encode() {
        assert_eq!(decode(&text).map(|stored| stored.number), Some(state.number));
    }
}

/// Since the scrub was started or went on.
#[derive(Debug)]
struct Session {
    since: Instant,
    bytes_before: u64,
    elapsed_ms_before: u64,
}

impl State {
    /// The newest copy that is whole.
    pub fn read(disks: &[Arc<dyn DiskIo>]) -> Self {
        let copies = FILE.read(disks).into_iter().filter_map(|text| decode(&text));
        Self::of(copies.max_by_key(|stored| stored.number).unwrap_or_default())
    }

    fn of(stored: Stored) -> Self {
        Self {
            number: stored.number,
            status: stored.status,
            after: stored.after,
            damage: stored.damage.into_iter().take(DAMAGE_MAX).map(|one| (one.object.clone(), one)).collect(),
            damage_more: stored.damage_more,
            session: None,
        }
    }

    /// Nothing where there never was a scrub.
    pub fn encode(&mut self) -> Option<Vec<u8>> {
        self.phase()?;
        self.number += 1;
        let stored = Stored {
            number: self.number,
            status: self.status(),
            after: self.after.clone(),
            damage: self.damage.values().cloned().collect(),
            damage_more: self.damage_more,
        };
        serde_json::to_vec(&stored).ok().filter(|text| text.len() as u64 <= FILE.bytes_max)
    }

    pub fn phase(&self) -> Option<ScrubPhase> {
        self.status.as_ref().map(|status| status.phase)
    }

    pub fn is_running(&self) -> bool {
        self.phase() == Some(ScrubPhase::Running)
    }

    /// Begins, or goes on; `false` when a scrub runs.
    pub fn start(&mut self, why: &str, now_ms: u64) -> bool {
        match &mut self.status {
            Some(status) if status.phase == ScrubPhase::Running => return false,
            Some(status) if status.phase == ScrubPhase::Paused => {
                status.phase = ScrubPhase::Running;
                status.ended_ms = None;
            }
            status => {
                self.after.clear();
                self.damage_more = 0;
                *status = Some(ScrubStatus::begun(why, now_ms));
            }
        }
        true
    }

    /// The amount that is left to be read.
    pub fn begin_session(&mut self, objects: u64, bytes: u64) {
        let Some(status) = &mut self.status else { return };
        status.objects_total = status.objects_done + objects;
        status.bytes_total = status.bytes_done + bytes;
        let (bytes_before, elapsed_ms_before) = (status.bytes_done, status.elapsed_ms);
        self.session = Some(Session { since: Instant::now(), bytes_before, elapsed_ms_before });
    }

    pub fn add(&mut self, done: ObjectDone) {
        let Some(status) = &mut self.status else { return };
        status.objects_done += 1;
        status.bytes_done += done.bytes;
        status.errors += done.errors;
        status.repaired += done.repaired;
        status.repaired_bytes += done.repaired_bytes;
        status.unrepaired += u64::from(done.is_unrepaired);
        match done.damage {
            None => drop(self.damage.remove(&done.path)),
            Some(damage) if self.damage.len() < DAMAGE_MAX || self.damage.contains_key(&done.path) => {
                self.damage.insert(done.path.clone(), damage);
            }
            Some(_) => self.damage_more += 1,
        }
        self.after = done.path;
    }

    /// Records damage that a read met; whether the object was thought to be well.
    pub fn note(&mut self, new: Damage) -> bool {
        let is_full = self.damage.len() >= DAMAGE_MAX;
        match self.damage.get_mut(&new.object) {
            Some(known) if known.version == new.version => {
                known.ranges.extend(new.ranges);
                known.ranges = joined(std::mem::take(&mut known.ranges));
                false
            }
            None if is_full => {
                self.damage_more += 1;
                false
            }
            _ => {
                self.damage.insert(new.object.clone(), new);
                true
            }
        }
    }

    /// Replaces the missing objects whose paths begin with one of `asked`. Returns the new ones.
    pub fn set_missing(&mut self, missing: Vec<Damage>, asked: &[String]) -> Vec<String> {
        let was_asked = |path: &str| asked.iter().any(|prefix| path.starts_with(prefix.as_str()));
        let still = |path: &str| missing.iter().any(|one| one.object == path);
        self.damage.retain(|path, damage| damage.version != MISSING || !was_asked(path) || still(path));
        let mut new = Vec::new();
        for one in missing {
            let known = self.damage.get(&one.object).is_some_and(|known| known.version == MISSING);
            if !known && self.damage.len() < DAMAGE_MAX {
                new.push(one.object.clone());
                self.damage.insert(one.object.clone(), one);
            }
        }
        new
    }

    /// Labels and journal: no objects.
    pub fn add_records(&mut self, found: Records) {
        let Some(status) = &mut self.status else { return };
        status.errors += found.errors;
        status.repaired += found.repaired;
        status.repaired_bytes += found.repaired_bytes;
        status.unrepaired += found.unrepaired;
    }

    pub fn end(&mut self, phase: ScrubPhase, now_ms: u64, is_current: impl Fn(&Damage) -> bool) {
        let last = self.status();
        self.session = None;
        self.status = last.map(|last| ScrubStatus { phase, ended_ms: Some(now_ms), ..last });
        if phase == ScrubPhase::Finished {
            // Writes and deletes meanwhile have changed how much there is.
            if let Some(status) = &mut self.status {
                (status.objects_total, status.bytes_total) = (status.objects_done, status.bytes_done);
            }
            self.retain_damage(is_current);
            let missing = self.damage.values().filter(|damage| damage.version == MISSING).count() as u64;
            if let Some(status) = &mut self.status {
                (status.errors, status.unrepaired) = (status.errors + missing, status.unrepaired + missing);
            }
        }
    }

    pub fn retain_damage(&mut self, is_current: impl Fn(&Damage) -> bool) {
        self.damage.retain(|_, damage| is_current(damage));
    }

    pub fn damage(&self) -> (Vec<Damage>, u64) {
        (self.damage.values().cloned().collect(), self.damage_more)
    }

    /// As stored, with the measures of the session.
    pub fn status(&self) -> Option<ScrubStatus> {
        let mut status = self.status.clone()?;
        status.bytes_per_second = 0;
        status.seconds_left = None;
        if let Some(session) = &self.session {
            let ms = session.since.elapsed().as_millis() as u64;
            status.elapsed_ms = session.elapsed_ms_before + ms;
            status.bytes_per_second = (status.bytes_done - session.bytes_before).saturating_mul(1000) / ms.max(1);
            let left = status.bytes_total.saturating_sub(status.bytes_done);
            status.seconds_left = left.checked_div(status.bytes_per_second);
        }
        Some(status)
    }
}

impl ScrubStatus {
    fn begun(why: &str, now_ms: u64) -> Self {
        Self {
            phase: ScrubPhase::Running,
            why: why.to_owned(),
            started_ms: now_ms,
            ended_ms: None,
            elapsed_ms: 0,
            objects_done: 0,
            objects_total: 0,
            bytes_done: 0,
            bytes_total: 0,
            errors: 0,
            repaired: 0,
            repaired_bytes: 0,
            unrepaired: 0,
            bytes_per_second: 0,
            seconds_left: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn golden_and_unknown_fields_are_passed_over() {
        let mut state = State::default();
        assert_eq!(state.encode(), None, "nothing to keep");
        assert!(state.start("asked for", 5) && !state.start("again", 6));
        let ranges = std::iter::once(0..32_768).collect();
        let damage = Damage { object: "b".into(), version: 7, ranges };
        state.add(ObjectDone {
            path: "b".into(),
            bytes: 100,
            errors: 2,
            repaired: 1,
            repaired_bytes: 50,
            is_unrepaired: true,
            damage: Some(damage),
        });
        let text = String::from_utf8(state.encode().unwrap()).unwrap();
        let expected = r#"{"number":1,"status":{"phase":"running","why":"asked for","started_ms":5,"ended_ms":null,"elapsed_ms":0,"objects_done":1,"objects_total":0,"bytes_done":100,"bytes_total":0,"errors":2,"repaired":1,"repaired_bytes":50,"unrepaired":1,"bytes_per_second":0,"seconds_left":null},"after":"b","damage":[{"object":"b","version":7,"ranges":[{"start":0,"end":32768}]}],"damage_more":0}"#;
        assert_eq!(text, expected);
        let newer = expected.replacen('{', r#"{"unknown":1,"#, 1);
        let back: Stored = serde_json::from_str(&newer).unwrap();
        assert_eq!((back.number, back.after.as_str(), back.damage.len()), (1, "b", 1));
        assert_eq!(back.status, state.status());
    }
}
