//! The nodes that clients know by number, bounded.

use std::collections::HashMap;

use bytes::Bytes;
use larder_fs::{FileKind, Ino};

/// Files in each of the two generations of their table; one that nobody asked for in a whole generation is forgotten. With
/// handles it is found again by the client's handle, otherwise the client looks its name up again.
const KNOWN_FILES_MAX: usize = 1 << 16;
/// Directories stay for longer: a walk comes back to one after everything below it.
const KNOWN_DIRS_MAX: usize = 1 << 19;

/// How a node is found again.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// By its generation, with a handle of the kernel.
    Handle(u64),
    /// By its name in a directory. Without handles the generation has to be this one; with handles it is the second choice.
    Named(Ino, Bytes, Option<u64>),
}

/// Two generations: what is used moves to the young one.
struct Generations {
    young: HashMap<Ino, Place>,
    old: HashMap<Ino, Place>,
    max: usize,
}

impl Generations {
    fn new(max: usize) -> Generations {
        Generations { young: HashMap::new(), old: HashMap::new(), max }
    }

    fn get(&mut self, ino: Ino) -> Option<Place> {
        if let Some(place) = self.young.get(&ino) {
            return Some(place.clone());
        }
        let place = self.old.remove(&ino)?;
        self.put(ino, place.clone());
        Some(place)
    }

    fn put(&mut self, ino: Ino, place: Place) {
        if self.young.len() >= self.max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ino, place);
    }

    fn forget(&mut self, ino: Ino) {
        self.young.remove(&ino);
        self.old.remove(&ino);
    }
}

/// The nodes that somebody was led to.
pub(crate) struct Known {
    files: Generations,
    dirs: Generations,
}

impl Default for Known {
    fn default() -> Known {
        Known { files: Generations::new(KNOWN_FILES_MAX), dirs: Generations::new(KNOWN_DIRS_MAX) }
    }
}

impl Known {
    pub(crate) fn get(&mut self, ino: Ino) -> Option<Place> {
        self.dirs.get(ino).or_else(|| self.files.get(ino))
    }

    pub(crate) fn put(&mut self, ino: Ino, kind: FileKind, place: Place) {
        let (one, other) = match kind {
            FileKind::Directory => (&mut self.dirs, &mut self.files),
            _ => (&mut self.files, &mut self.dirs),
        };
        // The number may have been another's.
        other.forget(ino);
        one.put(ino, place);
    }
}
