//! The common state of a volume's shares: to other protocols they are one door.
//!
//! - `shares.one_table`: opens, share modes, locks and leases of all shares are in one table, by
//!   inode. A promise to a client of one share holds on the others.
//! - `shares.table_recalls`: before another door acts, the table recalls the caches of clients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use larder_files::Files;
use parking_lot::Mutex;

use crate::files::FileTable;

use super::feed::Feed;
use super::notices::Notices;

/// Events of the volume carry who caused them: each share is somebody else, so that watchers of one
/// hear of another.
static NEXT_ORIGIN: AtomicU32 = AtomicU32::new(u32::from_be_bytes(*b"SMB\0"));

/// One share's part of its volume's door.
pub struct DoorPart {
    pub table: Arc<FileTable>,
    pub feed: Arc<Feed>,
    pub notices: Arc<Notices>,
    /// The file service as the share sees it.
    pub files: Files,
}

struct Shared {
    table: Weak<FileTable>,
    feed: Weak<Feed>,
    notices: Weak<Notices>,
}

/// The doors of the volumes that are shared, as long as a share is there.
#[derive(Default)]
pub struct VolumeDoors(Mutex<HashMap<uuid::Uuid, Shared>>);

impl VolumeDoors {
    /// A new part of the door of the volume of `files`, with the bin and the listings of `files`.
    pub fn part(&self, files: &Files) -> DoorPart {
        let mut all = self.0.lock();
        all.retain(|_, door| door.table.strong_count() > 0);
        let known = all.get(&files.id());
        let known = known.and_then(|door| Some((door.table.upgrade()?, door.feed.upgrade()?, door.notices.upgrade()?)));
        let (table, feed, notices) = known.unwrap_or_else(|| {
            let files = files.for_door(NEXT_ORIGIN.fetch_add(1, Ordering::Relaxed));
            let (table, notices) = (FileTable::of(&files), Notices::new(&files));
            let breaks = Arc::downgrade(&table);
            let heard = move |change| drop(breaks.upgrade().inspect(|table| table.changed_outside(change)));
            let feed = Feed::new(files.clone(), Box::new(heard));
            let door = Shared {
                table: Arc::downgrade(&table),
                feed: Arc::downgrade(&feed),
                notices: Arc::downgrade(&notices),
            };
            all.insert(files.id(), door);
            (table, feed, notices)
        });
        let origin = NEXT_ORIGIN.fetch_add(1, Ordering::Relaxed);
        feed.add_origin(origin);
        let files = feed.files.for_part(origin).as_in(files).with_dos();
        DoorPart { table, feed, notices, files }
    }
}
