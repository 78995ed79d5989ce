//! The common state of a volume's shares: to other protocols they are one door.
//!
//! - `shares.one_table`: opens, share modes, locks and leases of all shares are in one table, by
//!   inode. A promise to a client of one share holds on the others.
//! - `shares.table_recalls`: before another door acts, the table recalls the caches of clients.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use larder_files::Files;
use larder_files::leases::{Holder, Recall};
use larder_fs::Ino;
use larder_smb::{OpenFiles, OutsideAccess};
use parking_lot::{Mutex, RwLock};

use super::notices::Notices;

/// Events of the volume carry who caused them: each share is somebody else, so that watchers of one hear of another.
static NEXT_ORIGIN: AtomicU32 = AtomicU32::new(u32::from_be_bytes(*b"SMB\0"));

pub struct VolumeDoor {
    pub open_files: OpenFiles,
    pub notices: Arc<Notices>,
    /// As the door: its shares are parts of it.
    files: Files,
    /// Of its shares.
    origins: RwLock<HashSet<u32>>,
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
            let (open_files, notices) = (OpenFiles::default(), Notices::new(&files));
            let door = Arc::new(VolumeDoor { open_files, notices, files, origins: RwLock::default() });
            let holder: Weak<dyn Holder> = Arc::downgrade(&door) as _;
            door.files.add_holder(holder);
            all.insert(door.files.id(), Arc::downgrade(&door));
            door
        });
        let origin = NEXT_ORIGIN.fetch_add(1, Ordering::Relaxed);
        door.origins.write().insert(origin);
        let part = door.files.for_part(origin).as_in(files).with_dos();
        (door, part)
    }
}

impl VolumeDoor {
    /// A share of it made the change: the table has broken the leases already.
    pub fn made(&self, origin: u32) -> bool {
        self.origins.read().contains(&origin)
    }

    /// A share is gone.
    pub fn forget(&self, origin: u32) {
        self.origins.write().remove(&origin);
    }

    /// A file, or any file, was changed by another door.
    pub fn changed_outside(&self, ino: Option<Ino>) {
        self.open_files.changed_outside(ino.map(|ino| ino.0));
    }
}

impl Holder for VolumeDoor {
    fn holds(&self, ino: Ino, what: Recall) -> bool {
        outside(what).is_some_and(|access| self.open_files.hold(ino.0, access))
    }

    fn recall(&self, ino: Ino, what: Recall) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(access) = outside(what) {
                self.open_files.recall(ino.0, access).await;
            }
        })
    }
}

/// SMB has no promise about attributes: a lease is of data, and of the handle.
fn outside(what: Recall) -> Option<OutsideAccess> {
    match what {
        Recall::Writes => Some(OutsideAccess::Read),
        Recall::Data => Some(OutsideAccess::Write),
        Recall::Handles => Some(OutsideAccess::Rename),
        Recall::Attributes => None,
    }
}
