//! Opens of all doors. NFS v3 has no opens.
//!
//! - `opens.denials_between_doors`: an open names its own uses and the uses that it denies to
//!   others. No open may have a use that an open of another door denies.
//! - `opens.own_rules_within`: within a door the door's own rules decide: SMB has more of them, a
//!   mount denies nothing.
//! - `opens.judged_by_all`: a door without such rules has its opens judged here against each other as well
//!   ([`Open::claim_against_all`]). Its opens that have claimed nothing yet refuse nobody.
//! - `opens.reclaimed_first`: while clients of a door may take back the opens that they had before a restart, no open
//!   of another door denies reading or writing a file that was there: it would take the file from them for good.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use larder_base::boxed;
use larder_fs::Ino;
use parking_lot::Mutex;

use crate::leases::Recall;
use crate::locks::{Owner, Range};
use crate::tree::OpenNode;
use crate::{Files, Shared};

const SHARDS: usize = 32;

/// A set of uses of a file: those of an open, or those that it denies to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses(u8);

impl Uses {
    /// Neither data nor name: attributes alone.
    pub const NOTHING: Uses = Uses(0);
    /// Reading data.
    pub const READ: Uses = Uses(1);
    /// Writing data.
    pub const WRITE: Uses = Uses(2);
    /// Removing and renaming.
    pub const DELETE: Uses = Uses(4);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Uses) -> Uses {
        Uses(self.0 | other.0)
    }

    /// Both sets together if `also`, else this one alone.
    #[must_use]
    pub const fn and_if(self, also: bool, other: Uses) -> Uses {
        if also { self.and(other) } else { self }
    }

    /// Whether data is written.
    pub(crate) const fn writes(self) -> bool {
        self.meets(Self::WRITE)
    }

    const fn meets(self, other: Uses) -> bool {
        self.0 & other.0 != 0
    }
}

/// Everything of an open that decides about others. Many opens of a file are alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    door: u32,
    does: Uses,
    denies: Uses,
    /// Judged against the opens of its own door, too (`opens.judged_by_all`).
    by_all: bool,
}

impl Kind {
    /// Whether it stands in the way of an open of `door` with these uses and denials.
    fn refuses(&self, door: u32, by_all: bool, does: Uses, denies: Uses) -> bool {
        let is_judged = self.door != door || (by_all && self.by_all);
        is_judged && (self.denies.meets(does) || denies.meets(self.does))
    }
}

/// The opens of one file. A client may have it open thousands of times, so judging an open looks at the kinds that there
/// are, and closing one at its own entry.
#[derive(Default)]
struct FileOpens {
    by_id: HashMap<u64, Kind>,
    /// Each kind with the number of its opens, which is never zero.
    kinds: Vec<(Kind, usize)>,
}

impl FileOpens {
    fn insert(&mut self, id: u64, kind: Kind) {
        self.by_id.insert(id, kind);
        match self.kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => self.kinds.push((kind, 1)),
        }
    }

    fn remove(&mut self, id: u64) -> Option<Kind> {
        let kind = self.by_id.remove(&id)?;
        if let Some(at) = self.kinds.iter().position(|(other, _)| *other == kind) {
            self.kinds[at].1 -= 1;
            if self.kinds[at].1 == 0 {
                self.kinds.swap_remove(at);
            }
        }
        Some(kind)
    }

    fn any(&self, is_it: impl Fn(&Kind) -> bool) -> bool {
        self.kinds.iter().any(|(kind, _)| is_it(kind))
    }

    /// As [`FileOpens::any`] of all opens but this one.
    fn any_but(&self, id: Option<u64>, is_it: impl Fn(&Kind) -> bool) -> bool {
        let own = id.and_then(|id| self.by_id.get(&id));
        self.kinds.iter().any(|(kind, count)| *count > usize::from(own == Some(kind)) && is_it(kind))
    }
}

type Shard = HashMap<Ino, FileOpens>;

pub(crate) struct Opens {
    shards: [Mutex<Shard>; SHARDS],
    next_id: AtomicU64,
    /// Opens that deny something, for a look without their locks.
    denying: AtomicUsize,
}

impl Default for Opens {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            next_id: AtomicU64::new(1),
            denying: AtomicUsize::new(0),
        }
    }
}

impl Opens {
    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Whether the file has an open of this kind.
    fn any(&self, ino: Ino, is_it: impl Fn(&Kind) -> bool) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|opens| opens.any(is_it))
    }

    pub(crate) fn by_others(&self, ino: Ino, door: u32) -> bool {
        self.any(ino, |open| open.door != door)
    }

    /// Opens that may write, of all doors.
    pub(crate) fn writers(&self) -> usize {
        let of_file = |opens: &FileOpens| -> usize {
            opens.kinds.iter().filter(|(kind, _)| kind.does.writes()).map(|(_, count)| *count).sum()
        };
        self.shards.iter().map(|shard| shard.lock().values().map(of_file).sum::<usize>()).sum()
    }

    /// Whether any open of any file denies anything.
    pub(crate) fn has_denials(&self) -> bool {
        self.denying.load(Ordering::Acquire) > 0
    }

    fn count_denials(&self, was: Uses, is: Uses) {
        match (was == Uses::NOTHING, is == Uses::NOTHING) {
            (true, false) => drop(self.denying.fetch_add(1, Ordering::AcqRel)),
            (false, true) => drop(self.denying.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }

    /// Whether another door's open denies what `door` is about to do.
    pub(crate) fn denied(&self, ino: Ino, door: u32, does: Uses) -> bool {
        self.any(ino, |open| open.door != door && open.denies.meets(does))
    }

    /// `None` if another door's open denies it (`opens.denials_between_doors`).
    fn add(&self, ino: Ino, door: u32, does: Uses) -> Option<u64> {
        let mut shard = self.shard(ino).lock();
        let opens = shard.entry(ino).or_default();
        if opens.any(|open| open.door != door && open.denies.meets(does)) {
            return None;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        opens.insert(id, Kind { door, does, denies: Uses::NOTHING, by_all: false });
        Some(id)
    }

    /// Gives the open these uses and denials. `false` if another door's open forbids it
    /// (`opens.denials_between_doors`).
    fn claim(&self, ino: Ino, id: u64, does: Uses, denies: Uses, by_all: bool) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(opens) = shard.get_mut(&ino) else { return false };
        let Some(own) = opens.by_id.get(&id).copied() else { return false };
        let is_refused = opens.any_but(Some(id), |other| other.refuses(own.door, by_all, does, denies));
        if !is_refused {
            self.count_denials(own.denies, denies);
            opens.remove(id);
            opens.insert(id, Kind { does, denies, by_all, ..own });
        }
        !is_refused
    }

    /// Whether an open of any door but `but` denies this.
    fn denied_by_any(&self, ino: Ino, but: Option<u64>, does: Uses) -> bool {
        let shard = self.shard(ino).lock();
        shard.get(&ino).is_some_and(|opens| opens.any_but(but, |open| open.denies.meets(does)))
    }

    /// Whether an open of another door may write.
    pub(crate) fn written_by_others(&self, ino: Ino, door: u32) -> bool {
        self.any(ino, |open| open.door != door && open.does.writes())
    }

    fn remove(&self, ino: Ino, id: u64) {
        let mut shard = self.shard(ino).lock();
        let Some(opens) = shard.get_mut(&ino) else { return };
        if let Some(kind) = opens.remove(id) {
            self.count_denials(kind.denies, Uses::NOTHING);
        }
        if opens.by_id.is_empty() {
            shard.remove(&ino);
        }
    }
}

/// A file or directory that a door has open: it can be used after its last name is gone.
pub struct Open {
    file: OpenNode,
    shared: Arc<Shared>,
    door: u32,
    id: u64,
}

impl Open {
    /// Gives the file back if another door's open denies it (`opens.denials_between_doors`).
    pub(crate) fn new(file: OpenNode, shared: &Arc<Shared>, door: u32, does: Uses) -> Result<Self, OpenNode> {
        match shared.opens.add(file.ino(), door, does) {
            Some(id) => Ok(Self { file, shared: shared.clone(), door, id }),
            None => Err(file),
        }
    }

    fn ino(&self) -> Ino {
        self.file.ino()
    }

    /// Gives the open these uses and denials. `false` if another door's open forbids it
    /// (`opens.denials_between_doors`), or one that may yet be taken back does (`opens.reclaimed_first`).
    pub fn claim(&self, does: Uses, denies: Uses) -> bool {
        self.shared.claim_after_reclaims((self.door, self.ino(), self.id), does, denies)
    }

    /// As [`Open::claim`], of what no client of another door can have had open before a restart: a directory, or a file that
    /// was made with this open.
    pub fn claim_of_new(&self, does: Uses, denies: Uses) -> bool {
        self.shared.opens.claim(self.ino(), self.id, does, denies, false)
    }

    /// As [`Open::claim_of_new`], judged against the opens of its own door as well (`opens.judged_by_all`). Such a door keeps
    /// its clients in order during reclaims itself.
    pub fn claim_against_all(&self, does: Uses, denies: Uses) -> bool {
        self.shared.opens.claim(self.ino(), self.id, does, denies, true)
    }

    fn owner(&self) -> Owner {
        Owner { door: self.door, id: self.id }
    }

    /// A range of an SMB client, against the locks of other doors. Ends with the open.
    pub fn lock_range(&self, range: Range, exclusive: bool) -> bool {
        let attempt = || self.shared.locks.lock_smb(self.ino(), self.owner(), range, exclusive);
        self.shared.lock_beside_others(self.door, self.ino(), attempt).is_ok()
    }

    /// Gives up one lock of exactly this range.
    pub fn unlock_range(&self, range: Range, exclusive: bool) {
        self.shared.locks.unlock_smb(self.ino(), self.owner(), range, exclusive);
    }

    /// Until the locks of the file change.
    pub fn lock_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.shared.locks.changes(self.ino())
    }
}

impl Shared {
    /// `opens.reclaimed_first`. An open that denies neither reading nor writing is in nobody's way.
    fn claim_after_reclaims(&self, (door, ino, id): (u32, Ino, u64), does: Uses, denies: Uses) -> bool {
        let may_be_in_the_way = denies.meets(Uses::READ.and(Uses::WRITE)) && self.leases.awaits_reclaims(door);
        !may_be_in_the_way && self.opens.claim(ino, id, does, denies, false)
    }
}

impl Files {
    /// Whether an open of any door denies this use of a file; `but` is the asker's own.
    pub fn is_denied(&self, ino: Ino, but: Option<&Open>, does: Uses) -> bool {
        self.shared.opens.denied_by_any(ino, but.map(|open| open.id), does)
    }

    /// Whether an open of another door denies this use of a file. Clients that keep it open for later close it first.
    #[boxed]
    pub async fn is_denied_elsewhere(&self, ino: Ino, does: Uses) -> bool {
        if !self.shared.opens.denied(ino, self.door, does) {
            return false;
        }
        self.recall(ino, Recall::Handles).await;
        self.shared.opens.denied(ino, self.door, does)
    }

    /// Whether another door has a file open for writing.
    pub fn is_written_elsewhere(&self, ino: Ino) -> bool {
        self.shared.opens.written_by_others(ino, self.door)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.opens.remove(self.ino(), self.id);
        self.shared.locks.end_ranges(self.ino(), self.owner());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(5);
    const BOTH: Uses = Uses::READ.and(Uses::WRITE);

    #[test]
    fn a_door_sees_the_opens_of_the_others() {
        let opens = Opens::default();
        let first = opens.add(FILE, 1, Uses::READ).unwrap();
        let second = opens.add(FILE, 1, Uses::READ).unwrap();
        assert!(!opens.by_others(FILE, 1) && opens.by_others(FILE, 2) && !opens.by_others(Ino(6), 2));
        opens.remove(FILE, first);
        assert!(opens.by_others(FILE, 2));
        opens.remove(FILE, second);
        assert!(!opens.by_others(FILE, 2));
        assert!(opens.shard(FILE).lock().is_empty(), "nothing is left of what is closed");
    }

    #[test]
    fn what_one_door_denies_no_other_does() {
        let opens = Opens::default();
        let smb = opens.add(FILE, 1, Uses::NOTHING).unwrap();
        assert!(opens.claim(FILE, smb, Uses::READ, Uses::WRITE.and(Uses::DELETE), false));
        assert!(opens.add(FILE, 2, BOTH).is_none(), "it may not be written");
        let mount = opens.add(FILE, 2, Uses::READ).unwrap();
        assert!(opens.denied(FILE, 2, Uses::DELETE) && !opens.denied(FILE, 1, Uses::DELETE));
        assert!(!opens.claim(FILE, smb, Uses::READ, Uses::READ, false), "the mount reads it already");
        assert!(opens.denied(FILE, 2, Uses::WRITE), "and what was claimed before stands");
        assert!(opens.has_denials());
        assert!(opens.claim(FILE, smb, Uses::NOTHING, Uses::NOTHING, false));
        assert!(!opens.has_denials());
        opens.remove(FILE, mount);
        let mount = opens.add(FILE, 2, BOTH).unwrap();
        assert!(!opens.claim(FILE, smb, Uses::READ, Uses::WRITE, false));
        assert!(!opens.claim(FILE, 999, Uses::READ, Uses::NOTHING, false), "no such open");
        opens.remove(FILE, mount);
        opens.remove(FILE, smb);
        assert!(opens.shard(FILE).lock().is_empty());
    }

    #[test]
    fn within_a_door_nothing_is_decided() {
        let opens = Opens::default();
        let first = opens.add(FILE, 1, Uses::NOTHING).unwrap();
        assert!(opens.claim(FILE, first, BOTH, BOTH, false));
        let second = opens.add(FILE, 1, BOTH).unwrap();
        assert!(opens.claim(FILE, second, BOTH, BOTH, false));
    }

    #[test]
    fn a_door_may_have_its_opens_judged() {
        let opens = Opens::default();
        let claim = |id, does, denies| opens.claim(FILE, id, does, denies, true);
        let [first, second, third] = [0; 3].map(|_| opens.add(FILE, 1, Uses::READ).unwrap());
        assert!(claim(first, Uses::READ, Uses::WRITE));
        assert!(!claim(second, BOTH, Uses::NOTHING), "denied by its own door");
        assert!(!claim(second, Uses::READ, Uses::READ), "the first reads");
        assert!(claim(second, Uses::READ, Uses::NOTHING), "the third has claimed nothing");
        assert!(claim(first, BOTH, Uses::NOTHING), "its own denial is not in its way");
        assert!(claim(third, Uses::READ, Uses::NOTHING));
        assert!(claim(first, Uses::READ, Uses::WRITE));
        assert!(opens.denied_by_any(FILE, None, Uses::WRITE) && !opens.denied_by_any(FILE, Some(first), Uses::WRITE));
        let mount = opens.add(FILE, 2, Uses::READ).unwrap();
        assert!(!opens.claim(FILE, mount, BOTH, Uses::NOTHING, false), "other doors are judged as before");
        assert!(!opens.written_by_others(FILE, 2));
        assert!(claim(first, BOTH, Uses::NOTHING));
        assert!(opens.written_by_others(FILE, 2) && !opens.written_by_others(FILE, 1));
        assert!(claim(first, BOTH, Uses::DELETE) && opens.has_denials());
        [first, second, third, mount].into_iter().for_each(|id| opens.remove(FILE, id));
        assert!(!opens.has_denials() && opens.shard(FILE).lock().is_empty());
    }

    /// Opens that are alike cost a judgement nothing more: ten thousand of them have one kind.
    #[test]
    fn opens_that_are_alike_are_judged_as_one() {
        let opens = Opens::default();
        let ids: Vec<u64> = (0..10_000).map(|_| opens.add(FILE, 1, Uses::READ).unwrap()).collect();
        assert!(ids.iter().all(|&id| opens.claim(FILE, id, BOTH, Uses::NOTHING, false)));
        assert_eq!(opens.shard(FILE).lock()[&FILE].kinds.len(), 1);
        assert_eq!(opens.writers(), 10_000);
        assert!(opens.claim(FILE, ids[5], BOTH, Uses::WRITE, false));
        assert!(opens.denied(FILE, 2, Uses::WRITE) && !opens.denied_by_any(FILE, Some(ids[5]), Uses::WRITE));
        ids.iter().for_each(|&id| opens.remove(FILE, id));
        assert!(opens.shard(FILE).lock().is_empty() && !opens.has_denials());
    }

    /// A door with a client that is still to take back its opens, or not.
    #[derive(Default)]
    struct Restarted(std::sync::atomic::AtomicBool);

    impl crate::leases::Holder for Restarted {
        fn holds(&self, _: Ino, _: Recall) -> bool {
            false
        }

        fn recall(&self, _: Ino, _: Recall) -> futures::future::BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn awaits_reclaims(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// `opens.reclaimed_first`
    #[test]
    fn no_other_door_takes_a_file_before_it_is_reclaimed() {
        let (shared, door) = (Shared::default(), Arc::<Restarted>::default());
        let weak: std::sync::Weak<dyn crate::leases::Holder> =
            Arc::downgrade(&(Arc::clone(&door) as Arc<dyn crate::leases::Holder>));
        shared.leases.add(2, weak);
        let smb = shared.opens.add(FILE, 1, Uses::NOTHING).unwrap();
        let claim = |does, denies| shared.claim_after_reclaims((1, FILE, smb), does, denies);
        door.0.store(true, Ordering::Relaxed);
        assert!(!claim(Uses::READ, Uses::WRITE) && !claim(BOTH, BOTH.and(Uses::DELETE)));
        assert!(claim(BOTH, Uses::NOTHING) && claim(BOTH, Uses::DELETE), "in nobody's way");
        let reclaimed = shared.opens.add(FILE, 2, Uses::NOTHING).unwrap();
        assert!(shared.opens.claim(FILE, reclaimed, BOTH, Uses::NOTHING, true));
        shared.opens.remove(FILE, reclaimed);
        door.0.store(false, Ordering::Relaxed);
        assert!(claim(Uses::READ, Uses::WRITE), "at once when all are back");
    }
}
