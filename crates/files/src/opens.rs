//! Opens, of all doors that have such a thing. NFS v3 has not.

use std::collections::HashMap;
use std::sync::Arc;

use larder_volume::{Ino, OpenFile};
use parking_lot::Mutex;

use crate::Shared;

const SHARDS: usize = 32;

/// By inode: the doors that have it open, and how often.
type Shard = HashMap<Ino, Vec<(u32, usize)>>;

pub(crate) struct Opens([Mutex<Shard>; SHARDS]);

impl Default for Opens {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Opens {
    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.0[ino.0 as usize % SHARDS]
    }

    pub(crate) fn by_others(&self, ino: Ino, origin: u32) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|doors| doors.iter().any(|(by, _)| *by != origin))
    }

    fn add(&self, ino: Ino, origin: u32) {
        let mut shard = self.shard(ino).lock();
        let doors = shard.entry(ino).or_default();
        match doors.iter_mut().find(|(by, _)| *by == origin) {
            Some((_, count)) => *count += 1,
            None => doors.push((origin, 1)),
        }
    }

    fn remove(&self, ino: Ino, origin: u32) {
        let mut shard = self.shard(ino).lock();
        let Some(doors) = shard.get_mut(&ino) else { return };
        if let Some((_, count)) = doors.iter_mut().find(|(by, _)| *by == origin) {
            *count -= 1;
        }
        doors.retain(|(_, count)| *count > 0);
        if doors.is_empty() {
            shard.remove(&ino);
        }
    }
}

/// A file or directory that a door has open: it can be used after its last name is gone.
pub struct Open {
    file: OpenFile,
    shared: Arc<Shared>,
    origin: u32,
}

impl Open {
    pub(crate) fn new(file: OpenFile, shared: Arc<Shared>, origin: u32) -> Self {
        shared.opens.add(file.id().ino, origin);
        Self { file, shared, origin }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.opens.remove(self.file.id().ino, self.origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_sees_the_opens_of_the_others() {
        let opens = Opens::default();
        opens.add(Ino(5), 1);
        opens.add(Ino(5), 1);
        assert!(!opens.by_others(Ino(5), 1) && opens.by_others(Ino(5), 2) && !opens.by_others(Ino(6), 2));
        opens.remove(Ino(5), 1);
        assert!(opens.by_others(Ino(5), 2));
        opens.remove(Ino(5), 1);
        assert!(!opens.by_others(Ino(5), 2));
        assert!(opens.shard(Ino(5)).lock().is_empty(), "nothing is left of what is closed");
    }
}
