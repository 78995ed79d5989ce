//! One file service under all doors (NFS, SMB, local mounts) of a volume.
//!
//! A door holds a [`Files`], never a volume. What it reads and changes goes through here, so that no door can forget
//! what the others are owed:
//!
//! S1. **Recall first.** What a client of another door caches and may have changed is asked back, and has arrived, before an access
//!     that would miss it or be lost under it ([`leases`]).
//! S2. **Told before answered.** A change is answered when the kernels that have the volume mounted no longer believe what it made
//!     stale. A door's own caches are its own affair.
//! S3. **An open is known to all doors** ([`opens`]): no client may cache writes of a file that another door has open, and what it
//!     denies to others no door does.
//! S4. **Locks stand in one table** ([`locks`]): those of one door and those of another refuse each other.
//!
//! What each door's open, lock, share mode or lease means to each other door is in `docs/sharing.md`.

mod change;
pub mod leases;
pub mod locks;
mod opens;
mod read;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_volume::{Answers, Event, Ino, StatFs, Volume, Witness, WriteVerifier};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use leases::{Holder, Leases, Recall};
use locks::Locks;
use opens::Opens;
pub use opens::{Open, Uses};

/// A mount that is alive needs microseconds, and on a busy machine as long as its thread waits for a core. One that has not
/// answered after this time hangs.
const TOLD_PATIENCE: Duration = Duration::from_secs(5);
/// The kernel holds a directory's lock while a mount waits here, and the other mount may need its own to go on: two that change one
/// directory at a time would wait for each other. Whoever is waited for in vain is not waited for again until it has caught up.
const TOLD_PATIENCE_OF_MOUNTS: Duration = Duration::from_millis(50);

/// A volume as one door sees it. Cheap to clone; all of one volume share their opens and leases.
#[derive(Clone)]
pub struct Files {
    volume: Volume,
    shared: Arc<Shared>,
    /// Who is not asked about its own accesses: the shares of one SMB server are one door, though each has its origin.
    door: u32,
    patience: Duration,
}

/// What all doors of one volume have in common.
#[derive(Default)]
struct Shared {
    leases: Leases,
    opens: Opens,
    locks: Locks,
}

/// The file services of open volumes.
#[derive(Default)]
pub struct Services(Mutex<HashMap<uuid::Uuid, Weak<Shared>>>);

impl Services {
    /// The one service of `volume`.
    pub fn of(&self, volume: Volume) -> Files {
        let mut all = self.0.lock();
        let shared = all.get(&volume.id()).and_then(Weak::upgrade).unwrap_or_default();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(volume.id(), Arc::downgrade(&shared));
        Files { door: volume.origin(), volume, shared, patience: TOLD_PATIENCE }
    }
}

impl Files {
    /// A volume that only one door serves.
    pub fn alone(volume: Volume) -> Files {
        Services::default().of(volume)
    }

    /// For a door whose changes carry `origin` in their events.
    pub fn for_door(&self, origin: u32) -> Files {
        Files { volume: self.volume.with_origin(origin), door: origin, ..self.clone() }
    }

    /// The same door with an origin of its own for one of its parts.
    pub fn for_part(&self, origin: u32) -> Files {
        Files { volume: self.volume.with_origin(origin), ..self.clone() }
    }

    /// For a local mount: with its kernel waiting, and the answers and access times that were asked for.
    pub fn for_mount(&self, origin: u32, answers: Answers, access_times: bool) -> Files {
        let volume = self.volume.with_origin(origin).with_answers(answers).with_access_times(access_times);
        Files { volume, shared: self.shared.clone(), door: origin, patience: TOLD_PATIENCE_OF_MOUNTS }
    }

    /// For what is no door's business: properties, checks, statistics.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    pub fn origin(&self) -> u32 {
        self.volume.origin()
    }

    pub fn id(&self) -> uuid::Uuid {
        self.volume.id()
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.volume.verifier()
    }

    pub fn statfs(&self) -> StatFs {
        self.volume.statfs()
    }

    /// All changes, this door's own included, with the origin of each.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.volume.events()
    }

    /// As [`Files::events`], for a cache that others wait for (S2).
    pub fn witness(&self) -> (broadcast::Receiver<Event>, Witness) {
        self.volume.witness()
    }

    /// Asks `holder` before other doors' accesses (S1), as long as somebody keeps it.
    pub fn add_holder(&self, holder: Weak<dyn Holder>) {
        self.shared.leases.add(self.door, holder);
    }

    /// Whether another door has it open: what is cached of it then is not safe from others (S3).
    pub fn is_open_elsewhere(&self, ino: Ino) -> bool {
        self.shared.opens.by_others(ino, self.door)
    }

    async fn recall(&self, ino: Ino, what: Recall) {
        self.shared.leases.recall(self.door, ino, what).await;
    }

    async fn told(&self) {
        self.volume.await_witnesses(self.patience).await;
    }
}
