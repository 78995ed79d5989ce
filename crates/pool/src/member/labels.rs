//! Writing the labels of an open pool.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use uuid::Uuid;

use crate::disk::is_no_room;
use crate::history::{EventKind, now_ms};
use crate::member::label::{self, Label};
use crate::member::member_disk::{ErrorKind, MemberDisk};
use crate::member::members::{Members, Shape};

impl Members {
    pub fn is_rebalancing(&self) -> bool {
        self.label.lock().rebalancing
    }

    pub fn label(&self) -> Label {
        self.label.lock().clone()
    }

    /// Writes the label of a disk that is not in use yet. All later labels descend from it, whether
    /// it could be written or not, so it never looks like one side of a split
    /// (`label.old_or_split`).
    pub fn write_first_label(
        &self,
        disk: &dyn crate::disk::DiskIo,
        id: Uuid,
        change: impl FnOnce(&mut Label),
    ) -> std::io::Result<()> {
        let mut label = self.label.lock();
        if self.is_given_back.load(Ordering::Acquire) {
            return Err(std::io::Error::other("the pool has been closed"));
        }
        label.advance(rand::random());
        let mut first = Label { disk: id, ..label.clone() };
        change(&mut first);
        label::write(disk, &first).inspect_err(|_| label::remove(disk))
    }

    /// Takes the label off a disk that is no longer the pool's; `false`: the pool itself is not
    /// ours any more.
    pub fn remove_label(&self, disk: &dyn crate::disk::DiskIo) -> bool {
        let _label = self.label.lock();
        let is_ours = !self.is_given_back.load(Ordering::Acquire);
        if is_ours {
            label::remove(disk);
        }
        is_ours
    }

    /// Writes this pool's label over that of a disk whose own side is given up. It is out of sync.
    pub fn write_label_of_discarded(&self, disk: &dyn crate::disk::DiskIo, id: Uuid) -> std::io::Result<()> {
        label::write(disk, &self.label_over(id, |entry| (entry.in_sync, entry.diverged) = (false, None))?)
    }

    /// Writes the label that the other disks have to one that comes back (`label.back_before_anything_goes`).
    pub fn write_label_of_returning(&self, disk: &dyn crate::disk::DiskIo, member: &MemberDisk) -> std::io::Result<()> {
        let is_suspect = member.is_suspect();
        label::write(disk, &self.label_over(member.id, |entry| (entry.suspect, entry.diverged) = (is_suspect, None))?)
    }

    /// The label for a disk that nobody else can use: whoever writes it holds the lock of that disk.
    fn label_over(&self, id: Uuid, change: impl Fn(&mut label::Member)) -> std::io::Result<Label> {
        let label = self.label.lock();
        if self.is_given_back.load(Ordering::Acquire) {
            return Err(std::io::Error::other("the pool has been closed"));
        }
        let mut own = Label { disk: id, ..label.clone() };
        own.members.iter_mut().filter(|member| member.id == id).for_each(change);
        Ok(own)
    }

    /// Writes a new generation of the label to every disk that can be written. `change` may edit
    /// it; member paths and states are filled in here. A disk that fails here is taken out too.
    /// `false`: the disks are not ours any more.
    pub fn write_labels(&self, change: impl FnOnce(&mut Label)) -> bool {
        let mut label = self.label.lock();
        if self.is_given_back.load(Ordering::Acquire) {
            return false;
        }
        // A disk that fails here is out of use before the next round says so.
        self.labels_behind.fetch_add(1, Ordering::AcqRel);
        change(&mut label);
        *self.shape.write() = Shape::of(&label);
        // Each disk that fails makes one more round, and another for the life that begins without
        // it: bounded by the number of disks.
        let mut announced: Option<BTreeSet<Uuid>> = None;
        for _ in 0..=2 * self.len() + 1 {
            label.advance(rand::random());
            let now_ms = now_ms().max(label.written_ms);
            let before_ms = std::mem::replace(&mut label.written_ms, now_ms);
            label.members = self.iter().map(MemberDisk::entry).collect();
            label.journal_batch = label.journal_batch.max(self.journal_batch.load(Ordering::Acquire));
            let is_announcing = self.begin_or_announce(&mut label, before_ms, &mut announced);
            let (is_done, has_it) = self.write_label_everywhere(&label);
            // The next label says so, because this one is on the disks already
            // (`label.settled_outlives`).
            if label.members.iter().all(|member| !member.in_sync || has_it.contains(&member.id)) {
                label.settled = label.generation;
            }
            if is_done && !is_announcing {
                // Without a disk that has the label, its life may be on none.
                if !has_it.is_empty() {
                    self.remember(&label);
                }
                break;
            }
            if !is_done {
                // Some disk of that life does not know its mark.
                announced = None;
            }
        }
        self.labels_behind.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Begins the life that the last round has `announced`, or announces one if these disks need it
    /// (`label.announced_before_begun`). Returns whether another round is to begin it.
    fn begin_or_announce(&self, label: &mut Label, before_ms: u64, announced: &mut Option<BTreeSet<Uuid>>) -> bool {
        let present: BTreeSet<Uuid> =
            self.iter().filter(|member| member.is_in_sync() && member.is_writable()).map(|member| member.id).collect();
        if present.is_empty() {
            // No disk takes labels: there is no life, and nothing is acknowledged.
            *announced = None;
            return false;
        }
        if announced.take().is_some_and(|disks| disks == present) {
            label.begin_life();
        } else if label.needs_life(&present) {
            label.announce(rand::random(), before_ms);
            label.present.clone_from(&present);
            *announced = Some(present);
            return true;
        }
        label.present = present;
        self.remember(label);
        false
    }

    /// Whether no disk failed, and which disks have it.
    fn write_label_everywhere(&self, label: &Label) -> (bool, Vec<Uuid>) {
        // Authorities come first: after a crash in between, the new label must not be only on a
        // disk that was away.
        let writable = self.iter().filter(|member| member.is_writable());
        let (first, then): (Vec<_>, Vec<_>) = writable.partition(|member| member.is_in_sync());
        let write = |member: &MemberDisk| {
            let mut own = label.clone();
            own.disk = member.id;
            self.work.on_disk(&member.io()?, move |io| label::write(io, &own))
        };
        let mut results = self.work.side_by_side(first.clone(), write);
        results.extend(self.work.side_by_side(then.clone(), write));
        let writable: Vec<&MemberDisk> = first.into_iter().chain(then).collect();
        let has_it = writable.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(member, _)| member.id);
        let has_it = has_it.collect();
        let failed: Vec<_> = writable
            .into_iter()
            .zip(results)
            .filter_map(|(member, result)| Some((member, result.err()?)))
            // A disk too full for a new label keeps its old one, which is merely old
            // (`label.old_or_split`).
            .filter(|(_, error)| !is_no_room(error))
            .collect();
        for (member, error) in &failed {
            self.count_error(member, ErrorKind::Write, &error.to_string());
            member.set_state(self.probe_state(member));
            self.out_of_sync(member);
            self.event(
                EventKind::DiskOut,
                format!("{}: its label cannot be written: {error}", member.path.read().display()),
            );
        }
        (failed.is_empty(), has_it)
    }

    /// A batch of the journal is durable on all its copies, and the next label says so
    /// (`label.journal_batch_proven`).
    pub fn note_journal_batch(&self, batch: u64) {
        let before = self.journal_batch.swap(batch, Ordering::AcqRel);
        assert!(before < batch, "`label.journal_batch_proven`: later batches have higher numbers");
    }

    /// As long as it is held, no label is written.
    pub fn hold_labels(&self) -> MutexGuard<'_, Label> {
        self.label.lock()
    }

    /// From now on no label is written. The labels are held.
    pub fn give_back(&self, _labels: &MutexGuard<'_, Label>) {
        self.is_given_back.store(true, Ordering::Release);
    }
}
