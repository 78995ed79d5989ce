//! Changing the disks of an open pool: requests, their checks, and what they write on the labels.
//! `moving.rs` moves the bytes.
//!
//! ```text
//!   add         a new disk takes data from now on
//!   replace     add, and the old disk leaves; its shards go to the new one
//!   remove      the disk leaves: nothing new on it, its shards go to the others, then it is forgotten
//!   rebalance   every object is laid out as a new one would be now, in another layout if asked
//! ```
//!
//! - `disks.label_before_named`: a disk that joins has its label before the others name it. A crash
//!   in between leaves a disk that the pool does not wait for, never a member that does not exist.
//! - `disks.leaving_is_a_member`: the labels name a disk that leaves until nothing of the pool lies
//!   on it. Until then it is a member like any other: it answers reads and counts as redundancy.
//! - `disks.both_layouts_count`: while objects of an earlier layout may be left, the labels name
//!   both layouts, the pool claims to survive only the failures that both survive, and the journal
//!   has the copies of the safer one.
//! - `disks.known_by_label`: a disk is what its label says, wherever it lies. A person names it by the
//!   folder where it is now, though the pool saw it last at another.
//! - `disks.asked_is_labelled`: a request is on the labels before it is answered, so it goes on
//!   after a crash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_base::shell;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::change::create::{self, Candidate};
use crate::change::forecast::{Ahead, DiskToCome};
use crate::core::Core;
use crate::disk::DiskSpace;
use crate::error::PoolError;
use crate::history::EventKind;
use crate::member::found::absolute;
use crate::member::label::{self, Spare};
use crate::member::member_disk::{DiskState, MemberDisk, reserve_soft};
use crate::object::layout::{DISKS_MAX, Layout};
use crate::object::placement;
use crate::pool::Pool;

/// A change of the disks or of the layout. Disks of the pool are named by path or by the first
/// letters of their id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// New disks take data from now on.
    Add {
        /// Their directories, which are empty.
        disks: Vec<PathBuf>,
        /// Whether they wait as spares until another disk fails.
        spare: bool,
    },
    /// A new disk joins and takes the shards of an old one, which then leaves.
    Replace {
        /// The disk to replace: its path, or the first letters of its id.
        old: String,
        /// The directory of the new disk, which is empty.
        new: PathBuf,
    },
    /// A disk leaves: its shards move to the others, then it is forgotten.
    Remove {
        /// The disk: its path, or the first letters of its id.
        disk: String,
    },
    /// A disk that leaves stays after all.
    Keep {
        /// The disk: its path, or the first letters of its id.
        disk: String,
    },
    /// A disk is taken out of use until it is taken back, as for maintenance.
    Offline {
        /// The disk: its path, or the first letters of its id.
        disk: String,
    },
    /// A disk that was taken offline is used again, and brought up to date.
    Online {
        /// The disk: its path, or the first letters of its id.
        disk: String,
        /// Gives up what it has written by itself, where it has diverged from the pool.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discard: bool,
    },
    /// Every object is laid out as a new one would be now.
    Rebalance {
        /// Another layout; `None` keeps the present one.
        layout: Option<Layout>,
        /// Another width, in shards. `None` keeps the width, or with another layout chooses it by
        /// the number of disks.
        width: Option<u8>,
    },
}

/// The room and the safety of a pool, before a change or after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worth {
    /// The layout of new objects.
    pub layout: Layout,
    /// Shards of a new object, parity included, at most.
    pub width: u8,
    /// Disks that take data.
    pub disks: usize,
    /// Object bytes that fit in all.
    pub usable_bytes: u64,
    /// Disks that may fail, from now on, without loss.
    pub failures_survived: u8,
}

/// The effect of a change: the answer of `--dry-run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePlan {
    /// The pool as it is.
    pub before: Worth,
    /// The pool once everything has moved.
    pub after: Worth,
    /// Bytes to be written to other disks before it is done.
    pub move_bytes: u64,
    /// From the rate at which the disks were read just now; absent when nothing moves or nothing
    /// could be read.
    pub seconds: Option<u64>,
    /// Sentences for a person to read before agreeing; empty where nothing is doubtful.
    pub warnings: Vec<String>,
}

impl Pool {
    /// Describes the effect of [`Pool::change`], and refuses what it would refuse. Changes nothing.
    pub async fn plan_change(&self, change: &Change) -> Result<ChangePlan, PoolError> {
        let change = change.clone();
        let examine = move |core: &Arc<Core>| {
            core.members.look_at_disks();
            core.examine(&change).map(|step| step.plan)
        };
        self.core.blocking(examine).await?
    }

    /// Writes a request on the labels (`disks.asked_is_labelled`). Data is moved in the background.
    pub async fn change(&self, change: &Change) -> Result<ChangePlan, PoolError> {
        let change = change.clone();
        let plan = self
            .core
            .blocking(move |core| {
                let _one = core.mover.changing.lock();
                core.check_open()?;
                core.members.look_at_disks();
                let step = core.examine(&change)?;
                core.apply(&change, step)
            })
            .await??;
        self.core.mover.wake();
        Ok(plan)
    }

    /// Waits until nothing is left to move.
    pub async fn settled(&self) {
        while self.core.is_moving() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// A change in words. People name a disk by the letters of its id, too: `path` is where it lies.
fn event_of(change: &Change, plan: &ChangePlan, path: Option<&str>) -> (EventKind, String) {
    let named = |disk: &str| path.unwrap_or(disk).to_owned();
    let paths = |disks: &[PathBuf]| disks.iter().map(|disk| disk.display().to_string()).collect::<Vec<_>>().join(", ");
    match change {
        Change::Add { disks, spare: true } => (EventKind::DiskAdded, format!("spare {}", paths(disks))),
        Change::Add { disks, .. } => (EventKind::DiskAdded, paths(disks)),
        Change::Replace { old, new } => {
            (EventKind::DiskReplaced, format!("{} is being replaced with {}", named(old), new.display()))
        }
        Change::Remove { disk } => (EventKind::Changed, format!("{} is being removed", named(disk))),
        Change::Keep { disk } => (EventKind::Changed, format!("{} stays after all", named(disk))),
        Change::Offline { disk } => (EventKind::Changed, format!("{} was taken offline", named(disk))),
        Change::Online { disk, .. } => (EventKind::Changed, format!("{} was brought online", named(disk))),
        Change::Rebalance { .. } => {
            (EventKind::Rebalance, format!("rebalancing to {} over {} disks", plan.after.layout, plan.after.width))
        }
    }
}

/// A change that was found possible.
struct Step {
    plan: ChangePlan,
    /// The member it is about.
    slot: Option<u8>,
    joining: Vec<Candidate>,
}

impl Core {
    fn examine(self: &Arc<Self>, change: &Change) -> Result<Step, PoolError> {
        let before = self.worth_now();
        let surviving = |slot, failures_survived| {
            let plan = ChangePlan {
                before: before.clone(),
                after: Worth { failures_survived, ..before.clone() },
                move_bytes: 0,
                seconds: None,
                warnings: vec![],
            };
            Ok(Step { plan, slot, joining: Vec::new() })
        };
        let unchanged = |slot| surviving(slot, before.failures_survived);
        match change {
            Change::Add { disks, spare } => self.examine_add(disks, *spare),
            Change::Replace { old, new } => self.examine_replace(self.named(old)?, new),
            // A spare holds nothing.
            Change::Remove { disk } if self.spare_at(Path::new(disk)).is_some() => unchanged(None),
            Change::Remove { disk } => self.examine_remove(self.named(disk)?),
            Change::Keep { disk } => {
                let slot = self.named(disk)?;
                let replaced = |id| self.members.iter().any(|member| member.replaces() == Some(id));
                match self.members.member(slot) {
                    Some(member) if member.is_leaving() && !replaced(member.id) => unchanged(Some(slot)),
                    _ => Err(self.refused(format!("{disk} is not being removed: there is nothing to stop"))),
                }
            }
            Change::Offline { disk } => {
                let slot = self.named(disk)?;
                let out =
                    self.members.with_slots().filter(|(at, m)| *at != slot && !(m.is_readable() && m.is_in_sync()));
                let out = out.count();
                if out >= usize::from(self.members.failures()) {
                    let first = match out {
                        0 => format!("{} survives no disk that is out of use", self.members.layout()),
                        _ => format!("bring the other disks back first, see: larder pool status {}", self.members.name),
                    };
                    return Err(self.refused(format!("without {disk} data would be out of reach; {first}")));
                }
                surviving(Some(slot), self.survives(Some((slot, false))))
            }
            Change::Online { disk, discard } => {
                let slot = match self.labelled_at(disk) {
                    Some(slot) => slot,
                    None => self.named(disk)?,
                };
                let has_diverged =
                    self.members.member(slot).is_some_and(|member| member.state() == DiskState::Diverged);
                if *discard && !has_diverged {
                    let name = &self.members.name;
                    let why = format!(
                        "{disk} has not diverged: there is nothing to discard; use it again with: larder pool online {name} {disk}"
                    );
                    return Err(self.refused(why));
                }
                surviving(Some(slot), self.survives(Some((slot, true))))
            }
            Change::Rebalance { layout, width } => self.examine_rebalance(*layout, *width),
        }
    }

    fn apply(self: &Arc<Self>, change: &Change, step: Step) -> Result<ChangePlan, PoolError> {
        let Step { plan, slot, joining } = step;
        let path = slot.map(|slot| self.path_of(slot));
        let (layout, width) = (plan.after.layout, plan.after.width);
        if !self.has_to_move() {
            // Earlier repairs are no part of this change.
            self.repairs.forget_repaired_bytes();
        }
        match change {
            Change::Add { spare: true, .. } => self.keep_spares(joining)?,
            Change::Add { .. } => {
                for candidate in joining {
                    self.join(candidate, None)?;
                }
                self.members.write_labels(|label| label.width = width);
            }
            Change::Replace { .. } => {
                for candidate in joining {
                    self.replace(slot.unwrap_or_default(), candidate)?;
                }
            }
            Change::Remove { disk } if slot.is_none() => self.give_up_spare(Path::new(disk)),
            Change::Remove { .. } => {
                self.set_leaving(slot, true);
                self.members.write_labels(|label| label.width = width);
            }
            Change::Keep { .. } => {
                self.set_leaving(slot, false);
                let width = self.width_for(self.members.layout(), self.staying().count());
                self.members.write_labels(|label| label.width = width);
            }
            Change::Offline { .. } => {
                if let Some(slot) = slot {
                    self.members.take_out(slot, DiskState::Offline);
                    self.objects.files.clear();
                    self.members.member(slot).into_iter().for_each(MemberDisk::detach);
                    // It has files of the journal open.
                    self.refresh_journal();
                }
            }
            Change::Online { discard: true, disk } => {
                let slot = slot.unwrap_or_default();
                self.note_place(slot, disk);
                self.discard_side(slot)
                    .map_err(|error| self.refused(format!("{} is not back: {error}", self.path_of(slot))))?;
            }
            Change::Online { disk, .. } => {
                slot.into_iter().for_each(|slot| self.note_place(slot, disk));
                if let Some(member) = slot.and_then(|slot| self.members.member(slot))
                    && member.state() == DiskState::Offline
                {
                    member.set_state(DiskState::Missing);
                }
                self.reconnect(true);
                self.members.write_labels(|_| {});
                if let Some(member) =
                    slot.and_then(|slot| self.members.member(slot)).filter(|member| !member.is_readable())
                {
                    let why = self.divergence_text(member).unwrap_or_else(|| member.last_error.lock().clone());
                    let path = member.path.read().display().to_string();
                    return Err(self.refused(format!("{path} is not back: {why}")));
                }
            }
            Change::Rebalance { .. } => {
                self.members.write_labels(|label| {
                    if label.layout != layout {
                        // From raidz1 by way of raidz2 to mirror: the weakest of the three counts
                        // (`disks.both_layouts_count`).
                        let weaker = |a: Layout, b: Layout| if a.failures() <= b.failures() { a } else { b };
                        label.earlier = Some(label.earlier.map_or(label.layout, |e| weaker(e, label.layout)));
                    }
                    (label.layout, label.width, label.rebalancing) = (layout, width, true);
                });
                // Before the first object counts on it (`disks.both_layouts_count`).
                self.refresh_journal();
            }
        }
        let (kind, text) = event_of(change, &plan, path.as_deref());
        tracing::info!(pool = %self.members.name, text);
        self.members.event(kind, text);
        Ok(plan)
    }

    // ---- what is possible ---------------------------------------------------------------------

    fn examine_add(&self, disks: &[PathBuf], spare: bool) -> Result<Step, PoolError> {
        let joining = self.candidates(disks, None)?;
        let before = self.worth_now();
        if self.members.len() + joining.len() > DISKS_MAX {
            return Err(PoolError::TooManyDisks { have: self.members.len() + joining.len() });
        }
        let mut after = before.clone();
        let mut warnings = Vec::new();
        if !spare {
            let rooms = self.rooms_after(None, &joining);
            let width = self.width_for(before.layout, rooms.len());
            after =
                Worth { failures_survived: before.failures_survived, ..self.worth(before.layout, width, &rooms, None) };
            if self.objects.index().bytes > 0 {
                let name = &self.members.name;
                warnings.push(format!("what is stored already stays where it is until: larder pool rebalance {name}"));
            }
        } else if self.members.layout() == Layout::Stripe {
            warnings.push("a stripe has no redundancy: a spare has nothing to be rebuilt from".to_owned());
        }
        let plan = ChangePlan { before, after, move_bytes: 0, seconds: None, warnings };
        Ok(Step { plan, slot: None, joining })
    }

    fn examine_replace(self: &Arc<Self>, slot: u8, new: &Path) -> Result<Step, PoolError> {
        let old = self.members.member(slot).ok_or_else(|| self.refused("that disk has left the pool".into()))?;
        if self.members.iter().any(|member| member.replaces() == Some(old.id)) {
            let why = format!("{} is being replaced already", old.path.read().display());
            return Err(self.refused(why));
        }
        self.check_meant(old, new)?;
        let new = [new.to_owned()];
        let joining = match self.spare_at(&new[0]) {
            Some(spare) => vec![self.freed_spare(spare)?],
            None => self.candidates(&new, Some(old)).map_err(|error| self.may_be_taken_back(old, error))?,
        };
        let before = self.worth_now();
        let rooms = self.rooms_after(Some(slot), &joining);
        let room_bytes = rooms.last().copied().unwrap_or(0);
        let after = self.worth(before.layout, before.width, &rooms, Some(slot));
        let move_bytes = self.forecast(&Ahead {
            successor: joining.first().map(|_| DiskToCome { room_bytes }),
            ..self.ahead(&after, Some(slot))
        });
        let mut warnings = Vec::new();
        let used = self.used_bytes().get(usize::from(slot)).copied().unwrap_or(0);
        if room_bytes < used {
            warnings.push("the new disk is smaller than what lies on the old: the rest goes to the others".to_owned());
        }
        self.check_fits(&after)?;
        let plan = ChangePlan { before, after, move_bytes, seconds: self.seconds_for(move_bytes), warnings };
        Ok(Step { plan, slot: Some(slot), joining })
    }

    /// Refuses to replace a disk that a person has most likely not meant.
    fn check_meant(&self, old: &MemberDisk, new: &Path) -> Result<(), PoolError> {
        let name = &self.members.name;
        let path = old.path.read().display().to_string();
        if old.is_leaving() {
            let why = format!("{path} is leaving the pool already: wait for that, see: larder pool status {name}");
            return Err(self.refused(why));
        }
        if !old.is_readable() {
            return Ok(());
        }
        // The same command once more, where the new disk is mounted in the place of the old.
        if let Some(first) = old.replaces().and_then(|id| self.members.iter().find(|member| member.id == id)) {
            let first = first.path.read().display().to_string();
            let why = format!(
                "{path} is taking the place of {first} itself: wait until it has, see: larder pool status {name}"
            );
            return Err(self.refused(why));
        }
        let is_dead = |member: &&MemberDisk| {
            !member.is_readable() && !member.is_leaving() && member.state() != DiskState::Offline
        };
        match self.members.iter().find(is_dead) {
            None => Ok(()),
            Some(dead) => {
                let dead_path = dead.path.read().clone();
                let (state, shown) = (dead.state(), dead_path.display());
                let command = format!("larder pool replace {name} {} {}", shell::word(&dead_path), shell::word(new));
                let why = format!(
                    "{path} is in use, and {shown} is {state}: replace that one: {command}; {path} can be replaced once all others are well"
                );
                Err(self.refused(why))
            }
        }
    }

    fn examine_remove(self: &Arc<Self>, slot: u8) -> Result<Step, PoolError> {
        let before = self.worth_now();
        let rooms = self.rooms_after(Some(slot), &[]);
        let path = self.path_of(slot);
        let layout = self.members.layout();
        // A disk is lost, so redundancy counts for more than a sensible layout: as many copies are
        // as safe as parity, and a lost shard cannot be moved to another layout.
        let is_lost = self.members.member(slot).is_some_and(|member| !member.is_readable());
        let need = if is_lost { usize::from(layout.failures()) + 1 } else { layout.disks_min() };
        let instead = self
            .layout_instead()
            .map(|layout| format!("larder pool rebalance {} --layout {layout}", self.members.name));
        if rooms.len() < need {
            let first = instead.map(|command| format!(", or go over to another layout first: {command}"));
            let why = format!(
                "{layout} needs {need} disks, and without {path} there are {}: replace it instead: larder pool replace {} {} NEW-DISK{}",
                rooms.len(),
                self.members.name,
                shell::word(Path::new(&path)),
                first.unwrap_or_default()
            );
            return Err(self.refused(why));
        }
        let mut warnings = Vec::new();
        if rooms.len() < layout.disks_min() {
            let (need, then) =
                (layout.disks_min(), instead.map(|command| format!(", or: {command}")).unwrap_or_default());
            warnings.push(format!("{layout} makes sense from {need} disks on: afterwards add one{then}"));
        }
        let after = self.worth(before.layout, self.width_for(before.layout, rooms.len()), &rooms, Some(slot));
        self.check_fits(&after)?;
        let move_bytes = self.forecast(&self.ahead(&after, Some(slot)));
        let plan = ChangePlan { before, after, move_bytes, seconds: self.seconds_for(move_bytes), warnings };
        Ok(Step { plan, slot: Some(slot), joining: Vec::new() })
    }

    fn examine_rebalance(self: &Arc<Self>, layout: Option<Layout>, width: Option<u8>) -> Result<Step, PoolError> {
        let before = self.worth_now();
        if let Some(out) = self.members.iter().find(|member| !member.is_writable()) {
            let path = out.path.read().display().to_string();
            let why = format!(
                "{path} is not usable: bring it back, replace or remove it first, see: larder pool status {}",
                self.members.name
            );
            return Err(self.refused(why));
        }
        let layout = layout.unwrap_or(before.layout);
        let rooms = self.staying_rooms();
        let width = match width {
            None if layout == before.layout => before.width,
            None => layout.width_default(rooms.len()),
            Some(width) => create::check_width(layout, rooms.len(), width)?,
        };
        if rooms.len() < layout.disks_min() {
            let (need, have) = (layout.disks_min(), rooms.len());
            if let Some(instead) = self.layout_instead().filter(|_| layout == before.layout) {
                let name = &self.members.name;
                let why = format!(
                    "{layout} needs at least {need} disks, and there are {have}: add one, or: larder pool rebalance {name} --layout {instead}"
                );
                return Err(self.refused(why));
            }
            let name = &self.members.name;
            let why = format!(
                "{layout} needs at least {need} disks, and there are {have}: add some first: larder pool add {name} NEW-DISK"
            );
            return Err(self.refused(why));
        }
        let after = self.worth(layout, width, &rooms, None);
        self.check_fits(&after)?;
        let move_bytes = self.forecast(&Ahead { rebalancing: true, ..self.ahead(&after, None) });
        let mut warnings = Vec::new();
        if layout == Layout::Stripe && before.layout != layout {
            warnings.push("stripe has no redundancy: one failed disk loses what lies on it".to_owned());
        }
        let plan = ChangePlan { before, after, move_bytes, seconds: self.seconds_for(move_bytes), warnings };
        Ok(Step { plan, slot: None, joining: Vec::new() })
    }

    /// A layout that survives as much, or nearly so, on fewer disks.
    fn layout_instead(&self) -> Option<Layout> {
        match self.members.layout() {
            Layout::Raidz1 => Some(Layout::Mirror2),
            Layout::Raidz2 => Some(Layout::Mirror3),
            Layout::Raidz3 => Some(Layout::Raidz2),
            Layout::Stripe | Layout::Mirror2 | Layout::Mirror3 => None,
        }
    }

    fn ahead(&self, after: &Worth, leaving: Option<u8>) -> Ahead {
        let (layout, width) = (after.layout, after.width);
        Ahead { layout, width, leaving, successor: None, rebalancing: self.members.is_rebalancing() }
    }

    fn refused(&self, why: String) -> PoolError {
        PoolError::Refused { pool: self.members.name.clone(), why }
    }

    fn check_fits(&self, after: &Worth) -> Result<(), PoolError> {
        let stored = self.objects.index().bytes;
        if stored <= after.usable_bytes {
            return Ok(());
        }
        let byte = larder_base::units::ByteSize;
        let why = format!(
            "{} are stored, and afterwards only {} would fit: add a disk first, or delete",
            byte(stored),
            byte(after.usable_bytes)
        );
        Err(self.refused(why))
    }

    /// Files of this pool lie in the place of a disk: they are better used than removed.
    fn may_be_taken_back(&self, old: &MemberDisk, error: PoolError) -> PoolError {
        match error {
            PoolError::NotEmpty { path, found } if *old.path.read() == absolute(&path) && !old.is_readable() => {
                let (path, name) = (path.display(), &self.members.name);
                let why = format!(
                    "{path} is not empty (it holds '{found}'): take it back as it is with: larder pool clear {name}; or empty it, and repeat the command"
                );
                self.refused(why)
            }
            other => other,
        }
    }

    /// New disks: empty directories that are not yet the pool's. A member whose contents were
    /// removed counts as new, and so does one that was cut short while joining, when only it had
    /// its label (`disks.label_before_named`).
    fn candidates(&self, disks: &[PathBuf], emptied: Option<&MemberDisk>) -> Result<Vec<Candidate>, PoolError> {
        disks.iter().try_for_each(|path| self.check_not_ours(path, emptied))?;
        let is_known = |id| self.members.iter().any(|member| member.id == id) || self.members.label().is_spare(id);
        let ours = self.members.label();
        // One that went on without this pool may hold the only copy of something.
        let left_over =
            |label: &label::Label| label.pool == self.members.id && !is_known(label.disk) && ours.knows_life_of(label);
        let found = create::candidates(&*self.members.opener, disks, left_over)?;
        // A new pool may make its folders. Here a mistyped path would be a member on the system's
        // disk.
        if let Some(missing) = found.iter().find(|candidate| candidate.is_yet_to_be_made) {
            return Err(PoolError::NoFolder(missing.path.clone()));
        }
        Ok(found)
    }

    /// A directory of this pool must not be emptied for the pool.
    fn check_not_ours(&self, path: &Path, emptied: Option<&MemberDisk>) -> Result<(), PoolError> {
        let Ok(disk) = self.members.opener.open_disk(&absolute(path)) else { return Ok(()) };
        let (shown, name) = (path.display(), &self.members.name);
        let identity = disk.identity().ok();
        let lies_there = |member: &&MemberDisk| {
            let own = self.members.identity(member);
            own.is_some() && own == identity
        };
        // A disk whose contents were removed may be made anew.
        let is_emptied = |member: &&MemberDisk| !member.is_readable() && emptied.is_some_and(|own| own.id == member.id);
        let label = label::read(&*disk).ok().and_then(Result::ok).filter(|label| label.pool == self.members.id);
        let of_label = |member: &&MemberDisk| label.as_ref().is_some_and(|label| label.disk == member.id);
        let is_known = |member: &&MemberDisk| of_label(member) || lies_there(member) && !is_emptied(member);
        if let Some(member) = self.members.iter().find(is_known) {
            let why = match member.state() {
                DiskState::Diverged => format!(
                    " and has gone on without it; see: larder pool status {name}; to give its side up: larder pool online --discard {name} {}",
                    shell::word(path)
                ),
                _ if !member.is_readable() && of_label(&member) => {
                    format!(" and is out of use; take it back with: larder pool online {name} {}", shell::word(path))
                }
                DiskState::Offline => format!(": larder pool online {name} {}", shell::word(path)),
                _ if !member.is_readable() => {
                    format!(" and is out of use; take it back with: larder pool clear {name}")
                }
                _ => "; give a folder that is not in use".to_owned(),
            };
            return Err(self.refused(format!("{shown} is a disk of it already{why}")));
        }
        match label {
            Some(label) if self.members.label().is_spare(label.disk) => {
                let why = format!(
                    "{shown} is a spare of it: give that up first with: larder pool remove {name} {}",
                    shell::word(path)
                );
                Err(self.refused(why))
            }
            _ => Ok(()),
        }
    }

    /// The slot of a disk as a person names it.
    fn named(&self, disk: &str) -> Result<u8, PoolError> {
        let path = absolute(Path::new(disk));
        let identity = self.members.opener.open_disk(&path).and_then(|found| found.identity()).ok();
        let by_path = |member: &MemberDisk| {
            let own = member.path.read();
            *own == path || (identity.is_some() && self.members.identity(member) == identity)
        };
        let by_id = |member: &MemberDisk| disk.len() >= 4 && member.id.to_string().starts_with(&disk.to_lowercase());
        let mut found = self.members.with_slots().filter(|(_, member)| by_path(member) && !self.is_replaced_at(member));
        if let Some((slot, _)) = found.next() {
            return Ok(slot);
        }
        let found: Vec<u8> = self.members.with_slots().filter(|(_, m)| by_id(m)).map(|(slot, _)| slot).collect();
        match found.as_slice() {
            [slot] => Ok(*slot),
            [] if self.labelled_at(disk).is_some() => Ok(self.labelled_at(disk).unwrap_or_default()),
            [] => Err(self.refused(format!("'{disk}' is none of its disks ({})", self.paths()))),
            _ => Err(self.refused(format!("'{disk}' fits the ids of several disks: give more letters"))),
        }
    }

    /// The disk whose label lies in this folder (`disks.known_by_label`).
    fn labelled_at(&self, path: &str) -> Option<u8> {
        let disk = self.members.opener.open_disk(&absolute(Path::new(path))).ok()?;
        let label = self.members.work.on_disk(&disk, label::read).ok()?.ok()?;
        let is_it = |member: &MemberDisk| label.pool == self.members.id && label.disk == member.id;
        self.members.with_slots().find(|(_, member)| is_it(member)).map(|(slot, _)| slot)
    }

    /// A disk that is out of use is looked for in this folder from now on, if its label lies there.
    fn note_place(&self, slot: u8, path: &str) {
        let is_out = |member: &&MemberDisk| !member.is_readable();
        if self.labelled_at(path) == Some(slot)
            && let Some(member) = self.members.member(slot).filter(is_out)
        {
            *member.path.write() = absolute(Path::new(path));
        }
    }

    /// A disk whose successor is mounted in its place is no longer the one that the path means.
    fn is_replaced_at(&self, member: &MemberDisk) -> bool {
        let path = member.path.read().clone();
        self.members.iter().any(|other| other.replaces() == Some(member.id) && *other.path.read() == path)
    }

    fn paths(&self) -> String {
        self.members.iter().map(|member| member.path.read().display().to_string()).collect::<Vec<_>>().join(", ")
    }

    fn path_of(&self, slot: u8) -> String {
        self.members.member(slot).map(|member| member.path.read().display().to_string()).unwrap_or_default()
    }

    // ---- figures ------------------------------------------------------------------------------

    fn staying(&self) -> impl Iterator<Item = (u8, &MemberDisk)> {
        self.members.with_slots().filter(|(_, member)| !member.is_leaving())
    }

    /// A pool is as wide as a new one of that many disks, unless a person chose another width.
    pub fn width_for(&self, layout: Layout, disks: usize) -> u8 {
        let usual = self.members.width() == layout.width_default(self.staying().count());
        if usual { layout.width_default(disks) } else { self.members.width().min(disks as u8) }
    }

    fn worth_now(&self) -> Worth {
        let failures_survived = self.survives(None);
        Worth {
            failures_survived,
            ..self.worth(self.members.layout(), self.members.width(), &self.staying_rooms(), None)
        }
    }

    /// Disks that may still fail, now or with one disk in use and up to date, or not.
    fn survives(&self, with: Option<(u8, bool)>) -> u8 {
        let is_out = |(slot, member): &(u8, &MemberDisk)| match with {
            Some((at, is_used)) if at == *slot => !is_used,
            _ => !(member.is_readable() && member.is_in_sync()),
        };
        self.members.failures().saturating_sub(self.members.with_slots().filter(is_out).count() as u8)
    }

    /// When everything has moved, without the disks that leave: those that are leaving already, and
    /// `removed`.
    fn worth(&self, layout: Layout, width: u8, rooms: &[u64], removed: Option<u8>) -> Worth {
        let lacks = |(slot, member): &(u8, &MemberDisk)| {
            removed != Some(*slot) && !member.is_leaving() && !(member.is_readable() && member.is_in_sync())
        };
        let out = self.members.with_slots().filter(lacks).count();
        Worth {
            layout,
            width,
            disks: rooms.len(),
            usable_bytes: placement::capacity(layout, width, rooms, rooms.len()),
            failures_survived: layout.failures().saturating_sub(out as u8),
        }
    }

    fn staying_rooms(&self) -> Vec<u64> {
        self.rooms_after(None, &[])
    }

    /// The room for shards of each disk, used or free, once `removed` and the leaving disks have
    /// left and `joining` are there, which come last. Disks on one filesystem share its free room.
    fn rooms_after(&self, removed: Option<u8>, joining: &[Candidate]) -> Vec<u64> {
        let used = self.used_bytes();
        let used_of = |slot: u8| used.get(usize::from(slot)).copied().unwrap_or(0);
        let leaves = |slot: u8, member: &MemberDisk| removed == Some(slot) || member.is_leaving();
        let mut takers: BTreeMap<u64, u64> = BTreeMap::new();
        let mut given_back: BTreeMap<u64, u64> = BTreeMap::new();
        for (slot, member) in self.members.with_slots().filter(|(_, member)| member.is_writable()) {
            let filesystem = member.space().filesystem;
            if leaves(slot, member) {
                *given_back.entry(filesystem).or_default() += used_of(slot);
            } else {
                *takers.entry(filesystem).or_default() += 1;
            }
        }
        joining.iter().for_each(|candidate| *takers.entry(candidate.space.filesystem).or_default() += 1);
        let room = |space: DiskSpace| {
            let share = takers.get(&space.filesystem).copied().unwrap_or(1).max(1);
            let free = space.free_bytes + given_back.get(&space.filesystem).copied().unwrap_or(0);
            (free / share).saturating_sub(reserve_soft(space.total_bytes / share))
        };
        let of_member = |(slot, member): (u8, &MemberDisk)| {
            used_of(slot) + if member.is_writable() { room(member.space()) } else { 0 }
        };
        let staying = self.members.with_slots().filter(|(slot, member)| !leaves(*slot, member)).map(of_member);
        staying.chain(joining.iter().map(|candidate| room(candidate.space))).collect()
    }

    /// Bytes of shards by slot.
    pub fn used_bytes(&self) -> Vec<u64> {
        let mut used = vec![0; usize::from(u8::MAX)];
        for object in self.objects.index().objects.values() {
            for (index, slot) in object.placed() {
                if let Some(sum) = used.get_mut(usize::from(slot)) {
                    *sum += object.geometry.file_bytes(index, u64::from(object.header_bytes));
                }
            }
        }
        used
    }

    fn seconds_for(self: &Arc<Self>, move_bytes: u64) -> Option<u64> {
        let rate = if move_bytes > 0 { self.read_rate() } else { None };
        rate.map(|rate| move_bytes.div_ceil(rate.max(1)).max(1))
    }

    // ---- doing it -----------------------------------------------------------------------------

    fn set_leaving(&self, slot: Option<u8>, leaving: bool) {
        if let Some(member) = slot.and_then(|slot| self.members.member(slot)) {
            member.leaving.store(leaving, Ordering::Release);
        }
    }

    /// Lets a new disk join (`disks.label_before_named`).
    fn join(&self, candidate: Candidate, replaces: Option<Uuid>) -> Result<(), PoolError> {
        let Candidate { path, disk, .. } = candidate;
        let lock = disk.lock(&self.members.owner).map_err(PoolError::io("lock", &path))?;
        create::prepare(&*disk).map_err(PoolError::io("prepare", &path))?;
        let member = MemberDisk::new(Uuid::new_v4(), absolute(&path));
        member.set_replaces(replaces);
        member.in_sync.store(true, Ordering::Release);
        let disk = member.watched(disk);
        member.attach(disk.clone(), lock, absolute(&path));
        disk.settle();
        let entry = member.entry();
        self.members
            .write_first_label(&*disk, member.id, |label| label.members.push(entry))
            .map_err(PoolError::io("write the label of", &path))?;
        member.set_state(DiskState::Online);
        if self.members.push(member).is_err() {
            self.members.remove_label(&*disk);
            return Err(self.refused("its disks changed too often since it was opened: restart larder".into()));
        }
        self.members.write_labels(|_| {});
        Ok(())
    }

    fn replace(&self, old: u8, candidate: Candidate) -> Result<(), PoolError> {
        let id = self.members.member(old).map(|member| member.id);
        let path = absolute(&candidate.path);
        if let Some(member) = self.members.member(old)
            && self.members.identity(member).is_some_and(|own| candidate.identity() == Some(own))
        {
            // The old disk is no longer there: its shards must not be looked for on the new one.
            self.objects.files.clear();
            member.detach();
        }
        self.join(candidate, id)?;
        self.set_leaving(Some(old), true);
        // It may have been a spare until now.
        self.members.write_labels(|label| label.spares.retain(|spare| spare.path != path));
        Ok(())
    }

    // ---- spares -------------------------------------------------------------------------------

    fn keep_spares(&self, joining: Vec<Candidate>) -> Result<(), PoolError> {
        for candidate in joining {
            let Candidate { path, disk, .. } = candidate;
            let spare = Spare { id: Uuid::new_v4(), path: absolute(&path) };
            self.members
                .write_first_label(&*disk, spare.id, |label| label.spares.push(spare.clone()))
                .map_err(PoolError::io("write the label of", &path))?;
            self.members.write_labels(|label| label.spares.push(spare));
        }
        Ok(())
    }

    fn spare_at(&self, path: &Path) -> Option<Spare> {
        let path = absolute(path);
        self.members.label().spares.into_iter().find(|spare| spare.path == path)
    }

    /// Forgets a spare; its directory is empty again if it is there.
    fn give_up_spare(&self, path: &Path) {
        let Some(spare) = self.spare_at(path) else { return };
        self.members.write_labels(|label| label.spares.retain(|other| other.id != spare.id));
        if let Ok(candidate) = self.freed_spare(spare) {
            self.members.remove_label(&*candidate.disk);
        }
    }

    /// The directory of a spare, if it still is that spare's.
    fn freed_spare(&self, spare: Spare) -> Result<Candidate, PoolError> {
        let disk = self.members.opener.open_disk(&spare.path).map_err(PoolError::io("open the spare", &spare.path))?;
        match label::read(&*disk) {
            Ok(Ok(label)) if label.disk == spare.id && label.pool == self.members.id => {
                if !self.members.label().knows_life_of(&label) {
                    let path = spare.path.display();
                    return Err(self.refused(format!("the spare {path} was used by a part of this pool that went on without the rest: it is left as it is")));
                }
            }
            _ => return Err(self.refused(format!("{} is not the spare that it was", spare.path.display()))),
        }
        create::of_disk(&spare.path, disk)
    }

    /// A disk has been out of use for long enough: the first spare that works takes its place.
    /// Blocks.
    pub fn use_spare(self: &Arc<Self>, slot: u8) -> Result<bool, PoolError> {
        let _one = self.mover.changing.lock();
        let Some(member) = self.members.member(slot).filter(|m| !m.is_readable() && !m.is_leaving()) else {
            return Ok(false);
        };
        for spare in self.members.label().spares {
            let Ok(candidate) = self.freed_spare(spare.clone()) else { continue };
            let of = member.path.read().display().to_string();
            let text = format!("{} is out of use: the spare {} takes its place", of, spare.path.display());
            tracing::warn!(pool = %self.members.name, text);
            self.members.event(EventKind::DiskReplaced, text);
            // No other disk names one that fails here (`disks.label_before_named`).
            match self.replace(slot, candidate) {
                Ok(()) => return Ok(true),
                Err(error) => {
                    let text = format!("the spare {} cannot be used: {error}", spare.path.display());
                    tracing::warn!(pool = %self.members.name, text);
                    self.members.event(EventKind::Errors, text);
                }
            }
        }
        Ok(false)
    }
}
