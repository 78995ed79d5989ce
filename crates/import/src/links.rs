//! Inodes of the source that have several names.
//!
//! The first name that comes by is copied. The others wait for it, or are linked to it. An entry is dropped when all names
//! have come by. A run after another finds the first name in the volume already, and goes on with that inode.

use std::collections::HashMap;

use larder_fs::Ino;
use parking_lot::Mutex;

use crate::directory::Job;
use crate::source::Stat;

/// Inodes whose names have not all come by yet: some 200 MB. Beyond it each name becomes a file of its own, and is a fault.
const ENTRIES_MAX: usize = 1 << 22;

type Key = ((u32, u32), u64);

enum Entry {
    /// The first name is being copied.
    Coming {
        waiting: Vec<Job>,
        left: u32,
    },
    Done {
        ino: Ino,
        left: u32,
    },
}

/// How to bring a name of an inode with several.
pub(crate) enum Way {
    /// Copy it.
    First(Job),
    /// Link it to this inode.
    Link(Job, Ino),
    /// It will be linked when the first name is there.
    Waits,
    /// There are too many; copy it.
    TooMany(Job),
}

#[derive(Default)]
pub(crate) struct Links(Mutex<HashMap<Key, Entry>>);

fn key(stat: &Stat) -> Key {
    (stat.dev, stat.ino)
}

impl Links {
    pub(crate) fn come(&self, job: Job) -> Way {
        let mut entries = self.0.lock();
        let key = key(&job.stat);
        let full = entries.len() >= ENTRIES_MAX;
        match entries.get_mut(&key) {
            None if full => Way::TooMany(job),
            None => {
                entries.insert(key, Entry::Coming { waiting: Vec::new(), left: job.stat.nlink.saturating_sub(1) });
                Way::First(job)
            }
            Some(Entry::Coming { waiting, left }) => {
                *left = left.saturating_sub(1);
                waiting.push(job);
                Way::Waits
            }
            Some(Entry::Done { ino, left }) => {
                let ino = *ino;
                *left = left.saturating_sub(1);
                if *left == 0 {
                    entries.remove(&key);
                }
                Way::Link(job, ino)
            }
        }
    }

    /// The first name is there, or is not to be had. Returns the names that waited for it.
    pub(crate) fn came(&self, stat: &Stat, ino: Option<Ino>) -> Vec<Job> {
        let mut entries = self.0.lock();
        let Some(Entry::Coming { waiting, left }) = entries.remove(&key(stat)) else { return Vec::new() };
        if let Some(ino) = ino.filter(|_| left > 0) {
            entries.insert(key(stat), Entry::Done { ino, left });
        }
        waiting
    }
}
