//! One file service under all doors (NFS, SMB, local mounts) of a tree: a volume, or a folder of the host.
//!
//! A door holds a [`Files`]. Its reads and changes go through here, so that no door can forget its
//! duties to the others. Each change is facts and an act, and [`Files::change`] does the duties of
//! all of them in one order ([`change`]). Looks that owe nobody anything are methods of [`Tree`],
//! which a [`Files`] is (`tree.looks_alone`).
//!
//! - `files.recall_first`: another door's client may cache data that it has changed. The cache is
//!   recalled, and the data has arrived, before an access that would miss the data or be
//!   overwritten by it ([`larder_opens::Promise`]).
//! - `files.caches_before_answer`: a change is answered after every kernel that mounts the volume
//!   has dropped the entries that the change made stale. A door looks after its own caches.
//! - `files.opens_seen_by_all`: every door sees every open ([`opens`]). A client may not cache
//!   writes to a file that another door has open. A use that one open denies is denied at every
//!   door.
//! - `files.attributes_by_search`: a listing has attributes for users who may search the directory, at every door. Others
//!   who may read it get names alone.
//! - `files.one_lock_table`: all opens and locks are in one table ([`larder_opens`]), so those of two doors
//!   exclude each other.
//! - `files.number_held`: a door that judges an inode and then opens it opens the one that it judged
//!   ([`Files::open_judged`]). A call without an open holds the inode until it ends ([`Files::hold`]). The host gives the
//!   number of a removed file to the next one.
//! - `files.data_unboxed`: calls are boxed (`larder_base::boxed`) but for three that every READ and
//!   WRITE makes: a box took a tenth off NFS reads of 4 KiB.
//!
//! `docs/sharing.md` says how an open, lock, share mode or lease of one door affects the other doors.
#![warn(missing_docs)]

pub mod audit;
mod audited;
mod bin;
mod bound;
mod change;
pub mod copy;
mod facts;
#[cfg(test)]
mod folder_tests;
pub mod folders;
mod forms;
pub mod guard;
mod guarded;
pub mod locks;
mod opens;
mod place;
mod read;
mod recall;
mod recycle;
mod remove;
mod share;
mod shown;
mod tree;
mod walk;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use larder_base::boxed;
use larder_folder::Folder;
pub use larder_folder::{HostWatch, samba};
use larder_fs::{AccessTimes, Answers, Aspects, Attr, Event, Ino, Keeper};
use larder_volume::Volume;
use parking_lot::Mutex;

use audit::FileAudit;
use bin::Bin;
use facts::{Duty, does};
use guard::Guard;
pub use larder_opens::{Caches, Uses};
use larder_opens::{Door, Table};
pub use opens::{Open, OpenInode};
pub use recycle::Age;
use tree::Kind;
pub use tree::Tree;
pub use walk::{Report, Stop};

/// How long a change waits for the caches of mounts. A live mount needs microseconds, on a busy machine
/// the time until its thread gets a core. A mount that takes longer than this hangs.
const WITNESS_WAIT_MAX: Duration = Duration::from_secs(5);
/// The same for a change by a mount. Its kernel holds the directory's lock meanwhile, and the other mount
/// may need its own lock to go on: two mounts that change one directory would wait for each other. A
/// mount that missed its deadline is skipped until it has caught up.
const WITNESS_WAIT_MAX_OF_MOUNTS: Duration = Duration::from_millis(50);

/// An inode that a call holds (`files.number_held`). Nothing in a volume, which gives no number twice.
pub struct HeldInode {
    _file: Option<larder_folder::OpenFile>,
}

/// A tree as one door sees it. Cheap to clone; all of one tree share what their clients hold.
#[derive(Clone)]
pub struct Files {
    tree: Tree,
    shared: Arc<Shared>,
    /// The door that is not asked about its own accesses. The shares of one SMB server are one door, though
    /// each has its own origin.
    door: u32,
    witness_wait_max: Duration,
    /// Where this share's removals go; `None`: nowhere.
    bin: Option<Arc<Bin>>,
    /// The directory that lists `.snapshots`.
    shown_in: Option<Ino>,
    /// See [`Files::ignoring_forms`].
    ignores_forms: bool,
    /// Watches the share's clients.
    guard: Option<Arc<Guard>>,
    /// Is told of the operations on the share.
    audit: Option<Arc<FileAudit>>,
    /// See [`Files::bounded`].
    bound_bytes: Option<u64>,
    /// See [`Files::locking_for`].
    locks_of: Option<u64>,
}

/// The state that all doors of one tree share.
#[derive(Default)]
struct Shared {
    opens: Arc<Table>,
    /// Accesses of mounts that wait for another door's client to give a cache back.
    mounts_in_recall: AtomicUsize,
    bins: Mutex<Vec<Weak<Bin>>>,
}

/// The file services of open trees.
#[derive(Default)]
pub struct Services(Mutex<HashMap<uuid::Uuid, Weak<Shared>>>);

impl Services {
    /// The one service of `volume`.
    pub fn of(&self, volume: Volume) -> Files {
        self.of_tree(Tree(Kind::Volume(volume)))
    }

    /// The one service of the shared folders of a filesystem of the host.
    pub(crate) fn of_folder(&self, folder: Folder) -> Files {
        self.of_tree(Tree(Kind::Folder(folder)))
    }

    fn of_tree(&self, tree: Tree) -> Files {
        let mut all = self.0.lock();
        let shared = all.get(&tree.id()).and_then(Weak::upgrade).unwrap_or_default();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(tree.id(), Arc::downgrade(&shared));
        Files {
            door: tree.origin(),
            tree,
            shared,
            witness_wait_max: WITNESS_WAIT_MAX,
            bin: None,
            shown_in: None,
            ignores_forms: false,
            guard: None,
            audit: None,
            bound_bytes: None,
            locks_of: None,
        }
    }
}

/// What changes nothing, and asks no other door.
impl Deref for Files {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl Files {
    /// A volume that only one door serves.
    pub fn alone(volume: Volume) -> Files {
        Services::default().of(volume)
    }

    /// For a door whose changes carry `origin` in their events.
    pub fn for_door(&self, origin: u32) -> Files {
        Files { tree: self.tree.with_origin(origin), door: origin, ..self.clone() }
    }

    /// The same door with an origin of its own for one of its parts.
    pub fn for_part(&self, origin: u32) -> Files {
        Files { tree: self.tree.with_origin(origin), ..self.clone() }
    }

    /// The same door with the bin, the listings, the names, the guard, the audit and the bound of `share`.
    pub fn as_in(&self, share: &Files) -> Files {
        let Files { bin, shown_in, ignores_forms, guard, audit, bound_bytes, .. } = share.clone();
        Files { bin, shown_in, ignores_forms, guard, audit, bound_bytes, ..self.clone() }
    }

    /// Whether both have the same bin, listings, names, guard, audit and bound.
    pub fn is_as_in(&self, share: &Files) -> bool {
        let top = |files: &Files| files.bin.as_ref().map(|bin| bin.top);
        let guard = |files: &Files| files.guard.as_ref().map(Arc::as_ptr);
        let audit = |files: &Files| files.audit.as_ref().map(Arc::as_ptr);
        let simple = |files: &Files| (files.shown_in, files.ignores_forms, files.bound_bytes);
        (top(self), simple(self), guard(self), audit(self)) == (top(share), simple(share), guard(share), audit(share))
    }

    /// The same door, whose changes are answered when they are ordered: durable with the next flush, and never after what
    /// came later.
    pub fn ordered(&self) -> Files {
        Files { tree: self.tree.with_answers(Answers::Ordered), ..self.clone() }
    }

    /// The same door, whose removals and renames act on the inode `ino` alone: [`larder_fs::FsError::NotFound`] for a name
    /// that leads to another one. In a folder of the host another program may exchange the name between look and act.
    pub fn only(&self, ino: Ino) -> Files {
        Files { tree: self.tree.only(ino), ..self.clone() }
    }

    /// The same door with DOS attributes and times of creation in all attributes, also where reading them costs a look at each
    /// file (a folder of the host).
    pub fn with_dos(&self) -> Files {
        Files { tree: self.tree.with_dos(), ..self.clone() }
    }

    /// The same door, whose reads leave access times alone.
    pub fn untouched(&self) -> Files {
        Files { tree: self.tree.with_access_times(AccessTimes::NEVER), ..self.clone() }
    }

    /// For a local mount: with its kernel waiting, and the answers and access times that were asked for.
    pub fn for_mount(&self, origin: u32, answers: Answers, access_times: AccessTimes) -> Files {
        let tree = self.tree.with_origin(origin).with_answers(answers).with_access_times(access_times);
        Files { tree, door: origin, witness_wait_max: WITNESS_WAIT_MAX_OF_MOUNTS, ..self.clone() }
    }

    /// Replaces the record of [`Tree::nfs_clients`], durably.
    #[boxed]
    pub async fn set_nfs_clients(&self, record: &[u8]) -> larder_fs::FsResult<()> {
        match &self.tree.0 {
            Kind::Volume(volume) => volume.set_nfs_clients(record).await,
            Kind::Folder(_) => Err(larder_fs::FsError::NotSupported),
        }
    }

    /// Tells all doors of `what` changed of the entry `name` of `dir`, as this door's own protocol has it told
    /// ([`Event::Modified`]).
    pub fn announce_modified(&self, dir: Ino, name: Bytes, attr: &Attr, what: Aspects) {
        let (origin, ino, kind) = (self.origin(), attr.id.ino, attr.kind);
        self.tree.channel().send(|| Event::Modified { origin, dir, name, ino, kind, what });
    }

    /// Asks `keeper` about each inode that loses its last name, as long as somebody holds it.
    pub fn add_keeper(&self, keeper: Weak<dyn Keeper>) {
        self.tree.add_keeper(keeper);
    }

    /// Asks `door` about its clients before other doors' accesses (`files.recall_first`), as long as
    /// somebody keeps it.
    pub fn add_door(&self, door: Weak<dyn Door>) {
        self.shared.opens.add_door(self.door, door);
    }

    /// How many opens of all doors may write: their clients may have written what they have not sent yet.
    pub fn writers(&self) -> usize {
        self.shared.opens.writers()
    }

    /// [`Files::writers`] for somebody who must not keep the tree open.
    pub fn writers_alone(&self) -> Writers {
        Writers(Arc::downgrade(&self.shared))
    }

    /// A mount that waits for a recall has a kernel that holds a page or a directory, so it may not see a change in time. The
    /// client that gives its cache back makes such changes first, and must not wait for that mount.
    async fn await_witnesses(&self) {
        does(Duty::Witnesses);
        let is_held_up = self.shared.mounts_in_recall.load(Ordering::Acquire) > 0;
        let max = if is_held_up { WITNESS_WAIT_MAX_OF_MOUNTS } else { self.witness_wait_max };
        self.tree.await_witnesses(max).await;
    }
}

/// The opens of a tree that may write, for somebody who does not keep it.
pub struct Writers(Weak<Shared>);

impl Writers {
    /// How many; `None`: nobody serves the tree any more.
    pub fn count(&self) -> Option<usize> {
        Some(self.0.upgrade()?.opens.writers())
    }
}

/// Counts an access in [`Shared::mounts_in_recall`] until it is dropped.
struct InRecall<'s>(&'s Shared);

impl<'s> InRecall<'s> {
    fn begin(shared: &'s Shared) -> Self {
        shared.mounts_in_recall.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for InRecall<'_> {
    fn drop(&mut self) {
        self.0.mounts_in_recall.fetch_sub(1, Ordering::AcqRel);
    }
}
