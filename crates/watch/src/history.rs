//! Histories of disks and pools: rings in files, written together and seldom (`looking.nothing_written_idle`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_alerts::disk::{COLUMNS, Ring};
use larder_base::checksum::checksum;
use parking_lot::Mutex;

/// Histories of so many things: disks come and go.
pub(crate) const RINGS_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = larder_alerts::disk::BYTES_MAX as u64;

struct Kept {
    ring: Ring,
    is_changed: bool,
    /// The pools have it as it is.
    is_copied: bool,
}

/// Of a subject's ring.
pub(crate) fn file_name(subject: &str) -> String {
    format!("{:016x}.ring", checksum(0, subject.as_bytes()))
}

pub(crate) struct History {
    folder: PathBuf,
    rings: Mutex<BTreeMap<String, Kept>>,
}

impl History {
    /// Files are read when their subject is first asked for.
    pub(crate) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), rings: Mutex::default() }
    }

    fn file(&self, subject: &str) -> PathBuf {
        self.folder.join(file_name(subject))
    }

    fn load(&self, subject: &str) -> Ring {
        use std::io::Read;
        let file = self.file(subject);
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&file).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        if read.is_err() {
            return Ring::new(subject);
        }
        match Ring::decode(&bytes) {
            Ok(ring) if ring.subject == subject => ring,
            Ok(_) => Ring::new(subject),
            Err(error) => {
                tracing::warn!("the history {} begins anew: {error}", file.display());
                Ring::new(subject)
            }
        }
    }

    fn with<T>(&self, subject: &str, work: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let mut rings = self.rings.lock();
        if !rings.contains_key(subject) {
            if rings.len() >= RINGS_MAX {
                return None;
            }
            rings.insert(subject.to_owned(), Kept { ring: self.load(subject), is_changed: false, is_copied: true });
        }
        rings.get_mut(subject).map(work)
    }

    /// Whether a file of this name is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Takes a copy, if it is one and belongs under this name. Returns whether it did.
    pub(crate) fn restore(&self, name: &str, bytes: &[u8]) -> bool {
        let is_its_own = Ring::decode(bytes).is_ok_and(|ring| file_name(&ring.subject) == name);
        is_its_own && larder_alerts::replace(&self.folder.join(name), bytes).is_ok()
    }

    /// Those that changed since they were copied.
    pub(crate) fn uncopied(&self) -> Vec<Ring> {
        self.rings.lock().values().filter(|kept| !kept.is_copied).map(|kept| kept.ring.clone()).collect()
    }

    /// A pool has these.
    pub(crate) fn are_copied(&self, copied: &[Ring]) {
        let mut rings = self.rings.lock();
        for ring in copied {
            if let Some(kept) = rings.get_mut(&ring.subject).filter(|kept| kept.ring == *ring) {
                kept.is_copied = true;
            }
        }
    }

    pub(crate) fn add(&self, subject: &str, at_s: u64, values: [Option<u32>; COLUMNS]) {
        self.with(subject, |kept| {
            kept.ring.add(at_s, values);
            (kept.is_changed, kept.is_copied) = (true, false);
        });
    }

    pub(crate) fn ring(&self, subject: &str) -> Option<Ring> {
        self.with(subject, |kept| kept.ring.clone())
    }

    /// Writes what changed. Returns how many bytes.
    pub(crate) fn write(&self) -> u64 {
        let mut written = 0;
        for (subject, kept) in self.rings.lock().iter_mut().filter(|(_, kept)| kept.is_changed) {
            let bytes = kept.ring.encode();
            match larder_alerts::replace(&self.file(subject), &bytes) {
                Ok(()) => {
                    kept.is_changed = false;
                    written += bytes.len() as u64;
                }
                Err(error) => tracing::warn!("a history is not kept: {error}"),
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn histories_outlive_a_restart_and_damage_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        history.add("disk a", 3600, [Some(31); COLUMNS]);
        history.add("disk b", 3600, [Some(40); COLUMNS]);
        assert!(history.write() > 0);
        assert_eq!(history.write(), 0, "nothing changed");
        let again = History::of(folder.path());
        assert_eq!(again.ring("disk a").unwrap().samples(0)[0].values[0], Some(31));
        std::fs::write(again.file("disk b"), b"rubbish").unwrap();
        assert!(again.ring("disk b").unwrap().samples(0).is_empty());
    }

    #[test]
    fn a_year_of_history_is_a_few_writes_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        let mut written = 0;
        for hour in 0..365 * 24u64 {
            (0..4).for_each(|disk| history.add(&format!("disk {disk}"), hour * 3600, [Some(30); COLUMNS]));
            if hour % 6 == 5 {
                written += history.write();
            }
        }
        let on_disk: u64 =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(on_disk < 4 * 40_000, "{on_disk}");
        assert!(written < 100 << 20, "{written} bytes in a year");
    }
}
