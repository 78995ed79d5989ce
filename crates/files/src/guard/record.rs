//! How one client changes the files of one share, in counters that fade. No I/O, and a fixed amount of memory.
//!
//! - `guard.cheap_until_suspicious`: what costs a read is only looked at once cheap signs are there: files that became formless,
//!   or many removals ([`Record::is_suspicious`]).
//! - `guard.loss_counts`: a file counts once, and only if something with a form was lost. Formless bytes over formless ones
//!   (containers, encrypted backups) or over nothing (new files, space that was reserved) count nothing.

use std::collections::VecDeque;

use larder_fs::Ino;

use super::sample::Look;

/// Counters lose a quarter with each step, so a file counts for some minutes.
const STEP_SECS: u64 = 60;
/// Harm has begun within that time before it is noticed.
pub(super) const MEMORY_SECS: i64 = 15 * 60;
/// After so many steps nothing is left.
const STEPS_MAX: u64 = 40;
/// Signs from which on old contents are looked at.
const SIGNS: u32 = 8;
/// Removals from which on old contents are looked at.
const REMOVALS: u32 = 64;
/// Files that lost their form. At ten a minute a client gets there, at a few it never does.
const RUINED_MAX: u32 = 40;
/// Removals without a folder that goes as well, from so many folders: a cleaning person removes folders.
const REMOVED_MAX: u32 = 500;
const FOLDERS_MAX: usize = 20;
/// Of removed files that were looked at, so many (and three of four) had a form.
const LOOKED_MIN: u32 = 24;
/// Old contents that are read within a step: a client that removes much costs no more.
const READS_PER_STEP: u32 = 96;
/// Files and folders that are remembered.
const FILES_KEPT: usize = 64;
const FOLDERS_KEPT: usize = 64;

/// What a client did to a folder.
#[derive(Clone, Copy, Default)]
struct Folder {
    /// New files without a form.
    made: u32,
    removed: u32,
    removed_formed: u32,
}

/// The counters of one client.
#[derive(Default)]
pub(crate) struct Record {
    step: u64,
    /// Files that became formless, whatever was there before.
    signs: u32,
    ruined: u32,
    removed: u32,
    looked: u32,
    looked_formed: u32,
    reads: u32,
    /// Folders that are not remembered any more.
    folders_more: u32,
    folders: VecDeque<(Ino, Folder)>,
    /// New files and their folders.
    created: VecDeque<(Ino, Ino)>,
    /// Files whose size became 0, with what they had been.
    emptied: VecDeque<(Ino, Look)>,
    /// Files that are counted.
    counted: VecDeque<Ino>,
}

/// What a client seems to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// So many files lost their form within minutes.
    Rewritten(u32),
    /// So many files are removed, from so many folders that stay.
    Removed(u32, u32),
}

impl Record {
    /// Lets the time pass up to `now_secs`.
    pub(super) fn fade(&mut self, now_secs: u64) {
        let step = now_secs / STEP_SECS;
        let steps = step.saturating_sub(self.step);
        if steps == 0 {
            return;
        }
        if steps >= STEPS_MAX {
            *self = Self::default();
        }
        self.step = step;
        self.reads = 0;
        for _ in 0..steps.min(STEPS_MAX) {
            let counters =
                [&mut self.signs, &mut self.ruined, &mut self.removed, &mut self.looked, &mut self.looked_formed];
            let of_folders =
                self.folders.iter_mut().flat_map(|(_, f)| [&mut f.made, &mut f.removed, &mut f.removed_formed]);
            counters.into_iter().chain(of_folders).chain([&mut self.folders_more]).for_each(|n| *n -= n.div_ceil(4));
        }
        self.folders.retain(|(_, folder)| folder.made + folder.removed > 0);
    }

    /// `guard.cheap_until_suspicious`
    pub(crate) fn is_suspicious(&self) -> bool {
        self.signs >= SIGNS || self.removed >= REMOVALS
    }

    /// Nothing of it counts any more.
    pub(super) fn is_calm(&self) -> bool {
        self.signs == 0 && self.removed == 0
    }

    /// Whether old contents may be read now, which is counted.
    pub(super) fn may_read(&mut self) -> bool {
        let may = self.is_suspicious() && self.reads < READS_PER_STEP;
        self.reads += u32::from(may);
        may
    }

    pub(crate) fn created(&mut self, ino: Ino, dir: Ino) {
        keep(&mut self.created, (ino, dir), FILES_KEPT);
    }

    /// The size became 0. `old`: as far as somebody looked.
    pub(crate) fn emptied(&mut self, ino: Ino, old: Option<Look>) {
        if !self.is_own(ino) {
            keep(&mut self.emptied, (ino, old.unwrap_or(Look::Unclear)), FILES_KEPT);
        }
    }

    /// Formless bytes were written near the beginning. `existed`: over other bytes, which were `old` as far as somebody looked.
    pub(crate) fn wrote_formless(&mut self, ino: Ino, existed: bool, old: Option<Look>) {
        if self.counted.contains(&ino) {
            return;
        }
        let emptied = self.emptied.iter().find(|(emptied, _)| *emptied == ino).map(|(_, look)| *look);
        let own = self.created.iter().find(|(created, _)| *created == ino).map(|(_, dir)| *dir);
        match (own, emptied) {
            // Space that the client has reserved itself.
            (Some(_), _) if existed => return,
            (Some(dir), _) => self.folder(dir).made += 1,
            (None, Some(old)) => self.ruined += u32::from(old == Look::Formed),
            (None, None) if existed => self.ruined += u32::from(old == Some(Look::Formed)),
            (None, None) => return,
        }
        self.signs += 1;
        keep(&mut self.counted, ino, FILES_KEPT);
    }

    /// A file with a form gave its name to one without.
    pub(crate) fn replaced(&mut self, ino: Ino) {
        if !self.counted.contains(&ino) {
            keep(&mut self.counted, ino, FILES_KEPT);
            self.signs += 1;
        }
        self.ruined += 1;
    }

    pub(crate) fn removed(&mut self, dir: Ino, old: Option<Look>) {
        self.removed += 1;
        let is_formed = old == Some(Look::Formed);
        self.looked += u32::from(old.is_some());
        self.looked_formed += u32::from(is_formed);
        let folder = self.folder(dir);
        folder.removed += 1;
        folder.removed_formed += u32::from(is_formed);
    }

    /// A folder is removed: what was removed in it belongs to that.
    pub(crate) fn folder_removed(&mut self, dir: Ino) {
        if let Some(at) = self.folders.iter().position(|(known, _)| *known == dir)
            && let Some((_, folder)) = self.folders.remove(at)
        {
            self.ruined += folder.made.min(folder.removed_formed);
            self.removed = self.removed.saturating_sub(folder.removed);
        }
    }

    /// `None`: nothing that anybody has to be told.
    pub(super) fn harm(&self) -> Option<Harm> {
        let pairs: u32 = self.folders.iter().map(|(_, folder)| folder.made.min(folder.removed_formed)).sum();
        let ruined = self.ruined + pairs;
        if ruined >= RUINED_MAX {
            return Some(Harm::Rewritten(ruined));
        }
        let folders = self.folders.iter().filter(|(_, folder)| folder.removed > 0).count() + self.folders_more as usize;
        let most_formed = self.looked >= LOOKED_MIN && self.looked_formed * 4 >= self.looked * 3;
        let harms = self.removed >= REMOVED_MAX && folders >= FOLDERS_MAX && most_formed;
        harms.then_some(Harm::Removed(self.removed, folders as u32))
    }

    fn is_own(&self, ino: Ino) -> bool {
        self.created.iter().any(|(created, _)| *created == ino)
    }

    /// The last used folder is the last one.
    fn folder(&mut self, dir: Ino) -> &mut Folder {
        let known = self.folders.iter().position(|(known, _)| *known == dir).and_then(|at| self.folders.remove(at));
        if known.is_none()
            && self.folders.len() >= FOLDERS_KEPT
            && let Some((_, oldest)) = self.folders.pop_front()
        {
            self.ruined += oldest.made.min(oldest.removed_formed);
            self.folders_more += u32::from(oldest.removed > 0);
        }
        self.folders.push_back(known.unwrap_or((dir, Folder::default())));
        let last = self.folders.len() - 1;
        &mut self.folders[last].1
    }
}

fn keep<T>(ring: &mut VecDeque<T>, one: T, max: usize) {
    if ring.len() >= max {
        ring.pop_front();
    }
    ring.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The harm after `files` files, each with `change`, in a minute.
    fn after(files: u64, change: impl Fn(&mut Record, Ino)) -> Option<Harm> {
        let mut record = Record::default();
        record.fade(6000);
        for n in 0..files {
            change(&mut record, Ino(1000 + n));
        }
        record.harm()
    }

    const FORMED: Option<Look> = Some(Look::Formed);

    #[test]
    fn files_that_lose_their_form_are_harm_in_each_way() {
        let dir = |ino: Ino| Ino(ino.0 / 10);
        assert_eq!(after(40, |r, ino| r.wrote_formless(ino, true, FORMED)), Some(Harm::Rewritten(40)));
        assert_eq!(after(39, |r, ino| r.wrote_formless(ino, true, FORMED)), None);
        let emptied = |r: &mut Record, ino| {
            r.emptied(ino, FORMED);
            r.wrote_formless(ino, false, None);
        };
        assert_eq!(after(40, emptied), Some(Harm::Rewritten(40)));
        let beside = |r: &mut Record, ino: Ino| {
            r.created(ino, dir(ino));
            r.wrote_formless(ino, false, None);
            r.removed(dir(ino), FORMED);
        };
        assert_eq!(after(40, beside), Some(Harm::Rewritten(40)));
        assert!(after(3000, beside).is_some(), "in more folders than are remembered");
        assert_eq!(after(40, |r, ino| r.replaced(ino)), Some(Harm::Rewritten(40)));
    }

    #[test]
    fn what_loses_nothing_is_no_harm() {
        let formless = Some(Look::Formless);
        assert_eq!(after(5000, |r, ino| r.wrote_formless(ino, true, formless)), None, "an encrypted backup");
        assert_eq!(after(5000, |r, _| r.wrote_formless(Ino(7), true, FORMED)), None, "one container");
        let new = |r: &mut Record, ino: Ino| {
            r.created(ino, Ino(5));
            r.wrote_formless(ino, true, FORMED);
        };
        assert_eq!(after(5000, new), None, "space that the client reserved");
        let pack = |r: &mut Record, ino: Ino| {
            r.created(ino, Ino(ino.0 % 256));
            r.wrote_formless(ino, false, None);
            r.removed(Ino(ino.0 % 256), formless);
        };
        assert_eq!(after(5000, pack), None, "a repository that is pruned");
    }

    #[test]
    fn removing_across_folders_is_harm_and_removing_folders_is_not() {
        let dir = |ino: Ino| Ino(ino.0 / 20);
        let files = |r: &mut Record, ino: Ino| r.removed(dir(ino), FORMED);
        assert!(matches!(after(600, files), Some(Harm::Removed(600, _))));
        assert!(matches!(after(9000, files), Some(Harm::Removed(..))));
        assert_eq!(after(9000, |r, _| r.removed(Ino(5), FORMED)), None, "one folder");
        assert_eq!(after(9000, |r, ino| r.removed(dir(ino), Some(Look::Formless))), None);
        let tree = |r: &mut Record, ino: Ino| {
            r.removed(dir(ino), FORMED);
            if ino.0 % 20 == 19 {
                r.folder_removed(dir(ino));
            }
        };
        assert_eq!(after(9000, tree), None, "rm -r");
    }

    #[test]
    fn a_slow_client_is_no_alarm_and_reads_are_bounded() {
        let mut record = Record::default();
        for n in 0..2000 {
            record.fade(n * 10);
            record.wrote_formless(Ino(n), true, FORMED);
            assert_eq!(record.harm(), None, "six files a minute");
        }
        assert!(record.is_suspicious());
        let reads = (0..1000).filter(|_| record.may_read()).count();
        assert!(reads <= READS_PER_STEP as usize);
        record.fade(100_000);
        assert!(!record.is_suspicious() && !record.may_read());
        assert!(record.folders.is_empty() && record.created.is_empty());
    }
}
