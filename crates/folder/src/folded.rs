//! Names of directories without regard to case, for SMB. The host has no index of them, so a directory is read and its names
//! are kept for a moment.
//!
//! - `folded.young_or_unchanged`: names are used while the directory's times are those of the reading, and the reading is
//!   either younger than [`AGE_MAX`], or was made so long after the last change that a later one would show in the times.
//!   Changes by larder itself drop them at once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use larder_base::Timestamp;
use larder_fs::{Attr, Ino, judge};

/// Nothing older is believed of a directory that has just changed: its times are no finer than the kernel's ticks.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Names of all directories together.
const NAMES_MAX: usize = 1 << 18;

struct Names {
    times: (Timestamp, Timestamp),
    read: Instant,
    /// The last change was over when it was read.
    is_settled: bool,
    /// The first spelling in the order of the directory.
    by_folded: HashMap<Vec<u8>, Bytes>,
}

/// The directories that were read last.
#[derive(Default)]
pub(crate) struct FoldedNames {
    dirs: HashMap<Ino, Names>,
    order: VecDeque<Ino>,
    names: usize,
}

impl FoldedNames {
    /// `None`: the directory has to be read. `Some(None)`: it has no such name.
    pub(crate) fn find(&self, dir: &Attr, name: &[u8]) -> Option<Option<Bytes>> {
        let names = self.dirs.get(&dir.id.ino)?;
        let is_good = names.times == (dir.mtime, dir.ctime) && (names.is_settled || names.read.elapsed() < AGE_MAX);
        is_good.then(|| names.by_folded.get(&judge::fold(name)).cloned())
    }

    /// `dir` is as it was before its names were read at `read`.
    pub(crate) fn put(&mut self, dir: &Attr, read: (Instant, SystemTime), list: impl Iterator<Item = Bytes>) {
        self.forget(dir.id.ino);
        let mut by_folded = HashMap::new();
        for name in list {
            by_folded.entry(judge::fold(&name)).or_insert(name);
            if by_folded.len() > NAMES_MAX {
                return;
            }
        }
        while self.names + by_folded.len() > NAMES_MAX {
            let Some(oldest) = self.order.front().copied() else { break };
            self.forget(oldest);
        }
        self.names += by_folded.len();
        let changed = dir.ctime.max(dir.mtime).to_system_time();
        let is_settled = read.1.duration_since(changed).is_ok_and(|since| since > AGE_MAX);
        let names = Names { times: (dir.mtime, dir.ctime), read: read.0, is_settled, by_folded };
        self.order.push_back(dir.id.ino);
        self.dirs.insert(dir.id.ino, names);
    }

    pub(crate) fn forget(&mut self, dir: Ino) {
        if let Some(names) = self.dirs.remove(&dir) {
            self.names -= names.by_folded.len();
            self.order.retain(|one| *one != dir);
        }
    }
}
