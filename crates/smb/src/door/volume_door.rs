//! The common state of a volume's shares: to other protocols they are one door.
//!
//! - `shares.one_table`: opens, share modes, locks and leases of all shares are in one table, by
//!   inode. A promise to a client of one share holds on the others.
//! - `shares.table_recalls`: before another door acts, the table recalls the caches of clients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::OpenFiles;
use larder_files::Files;
use parking_lot::Mutex;

use super::feed::Feed;
use super::notices::Notices;

/// Events of the volume carry who caused them: each share is somebody else, so that watchers of one hear of another.
static NEXT_ORIGIN: AtomicU32 = AtomicU32::new(u32::from_be_bytes(*b"SMB\0"));

pub struct VolumeDoor {
    pub open_files: OpenFiles,
    pub notices: Arc<Notices>,
    pub feed: Arc<Feed>,
    /// As the door: its shares are parts of it.
    files: Files,
}

/// The doors of the volumes that are shared.
#[derive(Default)]
pub struct VolumeDoors(Mutex<HashMap<uuid::Uuid, Weak<VolumeDoor>>>);

impl VolumeDoors {
    /// The door of the volume of `files`, and the file service as a new share of it sees it, with the bin and the listings of
    /// `files`.
    pub fn of(&self, files: &Files) -> (Arc<VolumeDoor>, Files) {
        let mut all = self.0.lock();
        all.retain(|_, door| door.strong_count() > 0);
        let door = all.get(&files.id()).and_then(Weak::upgrade).unwrap_or_else(|| {
            let files = files.for_door(NEXT_ORIGIN.fetch_add(1, Ordering::Relaxed));
            let (open_files, notices) = (OpenFiles::of(&files), Notices::new(&files));
            let feed = Feed::new(files.clone(), open_files.clone());
            let door = Arc::new(VolumeDoor { open_files, notices, feed, files });
            all.insert(door.files.id(), Arc::downgrade(&door));
            door
        });
        let origin = NEXT_ORIGIN.fetch_add(1, Ordering::Relaxed);
        door.feed.add_origin(origin);
        let part = door.files.for_part(origin).as_in(files).with_dos();
        (door, part)
    }
}
