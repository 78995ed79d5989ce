//! The state that the rooms of an open pool share: one of each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::change::mover::Mover;
use crate::disk::activity::Activity;
use crate::error::PoolError;
use crate::heal::repair_queue::RepairQueue;
use crate::heal::scrub::Scrubs;
use crate::journal;
use crate::member::member_disk::{MemberDisk, reserve_hard};
use crate::member::members::Members;
use crate::member::reserve::{self, Reserves};
use crate::member::room::{Avoid, Placed};
use crate::member::waiting::Hanging;
use crate::object::index::{Graveyard, Object};
use crate::object::objects::Objects;

/// An open pool from inside: its rooms.
pub struct Core {
    pub members: Arc<Members>,
    pub objects: Objects,
    pub repairs: RepairQueue,
    pub scrubs: Scrubs,
    pub mover: Mover,
    pub reserves: Arc<Reserves>,
    pub activity: Arc<Activity>,
    closed: AtomicBool,
    journal: OnceLock<Weak<journal::Shared>>,
}

impl Core {
    pub fn new(members: Members, graveyard: Graveyard) -> Self {
        let members = Arc::new(members);
        Self {
            objects: Objects::new(graveyard),
            repairs: RepairQueue::default(),
            scrubs: Scrubs::default(),
            mover: Mover::new(members.out.clone()),
            reserves: Arc::default(),
            activity: Arc::default(),
            closed: AtomicBool::new(false),
            journal: OnceLock::new(),
            members,
        }
    }

    // ---- open or closed ---------------------------------------------------------------------

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub fn check_open(&self) -> Result<(), PoolError> {
        if self.is_closed() { Err(PoolError::Closed(self.members.name.clone())) } else { Ok(()) }
    }

    /// From now on nothing is begun; whether it was closed before.
    pub fn close(&self) -> bool {
        self.closed.swap(true, Ordering::AcqRel)
    }

    // ---- work -------------------------------------------------------------------------------

    /// Runs blocking work on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let core = self.clone();
        self.members
            .work
            .blocking(move || work(&core))
            .await
            .ok_or_else(|| PoolError::Cancelled(self.members.name.clone()))
    }

    /// As `blocking`, but waits no longer than the disks at these slots answer
    /// (`hang.call_too_long`). Where one of them hangs, `work` goes on without a caller, so it must
    /// hold nothing that others need.
    pub async fn blocking_on<T: Send + 'static>(
        self: &Arc<Self>,
        slots: impl IntoIterator<Item = u8>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<Result<T, Hanging>, PoolError> {
        match self.members.while_answering(slots, self.blocking(work)).await {
            Ok(done) => done.map(Ok),
            Err(hanging) => Ok(Err(hanging)),
        }
    }

    /// Does `work`, which reads these shards of an object, again and again without the disks that
    /// turn out to hang. Blocks.
    pub fn read_watched<T: Send + 'static>(
        self: &Arc<Self>,
        object: &Arc<Object>,
        work: impl Fn(&Arc<Self>, &Object) -> T + Clone + Send + 'static,
    ) -> Result<T, PoolError> {
        let slots: Vec<u8> = object.placed().map(|(_, slot)| slot).collect();
        let (core, object) = (self.clone(), object.clone());
        self.members.without_hanging(&slots, move |_| work(&core, &object))
    }

    /// Object bytes stored plus available, and those available: the bytes that can really be
    /// written.
    pub fn space(&self) -> (u64, u64) {
        let available = self.members.available();
        (self.objects.index().bytes + available, available)
    }

    /// Chooses disks for an object and reserves room until the result is dropped.
    pub fn place(&self, size: u64, avoid: &Avoid) -> Result<Placed, PoolError> {
        match self.members.place_beside(reserve_hard, size, avoid) {
            Err(error) if error.is_no_space() && size <= reserve::OBJECT_BYTES_MAX && self.reserves.are_missing() => {
                self.members.place_beside(|_| 0, size, avoid)
            }
            placed => placed,
        }
    }

    /// Gives up the disks and their locks. Writes to labels and files beside them end first, and
    /// none follow, so the next process that opens the pool does not meet a writer of this one.
    pub fn give_back_disks(&self) {
        let (labels, _history, _scrub) = (self.members.hold_labels(), self.members.history.hold(), self.scrubs.hold());
        self.members.give_back(&labels);
        self.objects.files.clear();
        self.members.iter().for_each(MemberDisk::detach);
    }

    // ---- the journal ------------------------------------------------------------------------

    /// Called once, when the journal has been opened.
    pub fn set_journal(&self, journal: Weak<journal::Shared>) {
        let is_first = self.journal.set(journal).is_ok();
        assert!(is_first, "a pool has one journal");
    }

    /// The journal, as long as it is open.
    pub fn journal(&self) -> Option<Arc<journal::Shared>> {
        self.journal.get().and_then(Weak::upgrade)
    }

    /// Lets the journal have its copies on the disks that take data, as many as it should have.
    /// Blocks.
    pub fn refresh_journal(&self) {
        if let Some(journal) = self.journal() {
            journal.refresh_copies();
        }
    }

    /// Bytes of a copy of the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal().map_or(0, |journal| journal.copied_bytes())
    }
}
