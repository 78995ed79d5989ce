//! Which files lost data, kept after the loss is over: somebody who restores or removes them wants to know it a month later, too.
//!
//! - `damage.kept_bounded`: [`ENTRIES_MAX`] files. What is over goes first, the oldest of it first; what was left out is counted.
//! - `damage.one_entry_a_loss`: a file that is listed again while its loss lasts is one entry. A loss after the end of another is a
//!   new one.

use serde::{Deserialize, Serialize};

/// More files than that are a lost disk or volume, not a list.
pub const ENTRIES_MAX: usize = 1000;
/// Names of one file.
const PATHS_MAX: usize = 4;

/// A loss as a pool tells of it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// `pool/volume`; the pool alone where it is its own metadata.
    pub place: String,
    /// By which the file is told from others of the place: its inode, or the object.
    pub id: String,
    pub paths: Vec<String>,
    pub bytes: u64,
}

/// A loss, now or before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub pool: String,
    pub place: String,
    pub id: String,
    pub paths: Vec<String>,
    pub bytes: u64,
    pub since_ms: u64,
    /// When it was whole again, or not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// All that are remembered, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DamageLog {
    entries: Vec<Entry>,
    pub left_out: u64,
}

impl DamageLog {
    /// What a pool lists now. Returns whether anything changed.
    pub fn look(&mut self, now_ms: u64, pool: &str, losses: &[Loss]) -> bool {
        let before = (self.entries.clone(), self.left_out);
        let is_listed = |entry: &Entry| losses.iter().any(|loss| (&loss.place, &loss.id) == (&entry.place, &entry.id));
        for entry in self.entries.iter_mut().filter(|entry| entry.pool == pool && entry.ended_ms.is_none()) {
            if !is_listed(entry) {
                entry.ended_ms = Some(now_ms);
            }
        }
        for loss in losses {
            let lasts = |entry: &&mut Entry| {
                entry.ended_ms.is_none() && (&entry.place, &entry.id) == (&loss.place, &loss.id) && entry.pool == pool
            };
            if let Some(known) = self.entries.iter_mut().find(lasts) {
                known.bytes = known.bytes.max(loss.bytes);
                continue;
            }
            if self.entries.len() >= ENTRIES_MAX && !self.make_room() {
                self.left_out += 1;
                continue;
            }
            self.entries.push(Entry {
                pool: pool.to_owned(),
                place: loss.place.clone(),
                id: loss.id.clone(),
                paths: loss.paths.iter().take(PATHS_MAX).cloned().collect(),
                bytes: loss.bytes,
                since_ms: now_ms,
                ended_ms: None,
            });
        }
        before != (self.entries.clone(), self.left_out)
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn make_room(&mut self) -> bool {
        let over = self.entries.iter().position(|entry| entry.ended_ms.is_some());
        let Some(at) = over else { return false };
        self.entries.remove(at);
        self.left_out += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(id: usize) -> Loss {
        Loss { place: "tank/files".into(), id: id.to_string(), paths: vec![format!("a/{id}")], bytes: 4096 }
    }

    #[test]
    fn a_loss_is_remembered_when_it_is_over() {
        let mut log = DamageLog::default();
        assert!(log.look(10, "tank", &[loss(1), loss(2)]) && !log.look(20, "tank", &[loss(1), loss(2)]));
        assert!(!log.look(30, "other", &[]), "another pool ends nothing");
        assert!(log.look(40, "tank", &[loss(2)]));
        let ends: Vec<_> = log.entries().iter().map(|entry| (entry.since_ms, entry.ended_ms)).collect();
        assert_eq!(ends, [(10, Some(40)), (10, None)]);
        log.look(50, "tank", &[loss(1), loss(2)]);
        assert_eq!(log.entries().len(), 3, "it came back, which is another loss");
    }

    #[test]
    fn the_list_is_bounded_and_says_what_is_not_in_it() {
        let mut log = DamageLog::default();
        log.look(1, "tank", &(0..ENTRIES_MAX).map(loss).collect::<Vec<_>>());
        log.look(2, "tank", &(10..ENTRIES_MAX).map(loss).collect::<Vec<_>>());
        log.look(3, "tank", &(10..ENTRIES_MAX + 50).map(loss).collect::<Vec<_>>());
        assert_eq!((log.entries().len(), log.left_out), (ENTRIES_MAX, 50));
        assert!(log.entries().iter().all(|entry| entry.ended_ms.is_none()), "what is over went first");
    }
}
