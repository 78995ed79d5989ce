//! The status of a pool, and the pools that lie on a set of directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_base::shell;
use larder_base::units::Elapsed;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::change::mover::Moving;
use crate::disk::folder::FileDisks;
use crate::disk::timed_disk;
use crate::heal::scrub::ScrubStatus;
use crate::history::now_ms;
use crate::member::found::{Labelled, read_labels};
use crate::member::label::{self, Label, Usage};
use crate::member::member_disk::{DiskState, MemberDisk};
use crate::object::layout::Layout;
use crate::pool::Pool;

/// Whether a pool serves, and with how much redundancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PoolState {
    /// Serving, with the redundancy that it should have.
    Online,
    /// Serving, with less redundancy than it should have.
    Degraded,
    /// Some objects cannot be read or nothing can be written.
    Faulted,
}

/// The state of an open pool, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The pool's name.
    pub name: String,
    /// The pool's id.
    pub id: Uuid,
    /// The layout of new objects.
    pub layout: Layout,
    /// Shards of a new object, parity included, at most.
    pub width: u8,
    /// The worst state that holds.
    pub state: PoolState,
    /// The most important problem, in one sentence.
    pub status: String,
    /// The remedy; empty when there is nothing to do.
    pub action: String,
    /// The progress or the result of background repair.
    pub scan: String,
    /// The scrub that runs, or the last one.
    pub scrub: Option<ScrubStatus>,
    /// Its disks, by slot.
    pub disks: Vec<DiskStatus>,
    /// Disks that wait for another to fail.
    pub spares: Vec<PathBuf>,
    /// The pass that moves data between disks, if one runs.
    pub moving: Option<Moving>,
    /// Objects stored.
    pub objects: u64,
    /// Of these, objects that lack pieces which no disk has; they are made when there is room.
    pub owed_objects: u64,
    /// The bytes of all objects, before redundancy.
    pub stored_bytes: u64,
    /// Bytes of objects that fit in all, after redundancy.
    pub total_bytes: u64,
    /// Bytes of objects that still fit, after redundancy.
    pub available_bytes: u64,
    /// Foreign, duplicated and stale disks, and other things found when the pool was opened.
    pub notes: Vec<String>,
}

/// Objects that lack pieces, and the danger.
fn owed_text(owed: u64) -> String {
    let (objects, have) = if owed == 1 { ("object", "has") } else { ("objects", "have") };
    format!(
        "{owed} {objects} {have} fewer copies or parity pieces than the layout says: a disk that fails now may take them along."
    )
}

/// The state of one disk of an open pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The directory where it was last seen.
    pub path: PathBuf,
    /// The disk's id, which its label holds.
    pub id: Uuid,
    /// Whether it is used.
    pub state: DiskState,
    /// Failed reads since the counts were cleared.
    pub read_errors: u64,
    /// Failed writes and syncs since the counts were cleared.
    pub write_errors: u64,
    /// Blocks that failed their checksum since the counts were cleared.
    pub checksum_errors: u64,
    /// The size of its filesystem, in bytes.
    pub size_bytes: u64,
    /// Bytes in use on its filesystem, other users' files included.
    pub used_bytes: u64,
    /// Free room on its filesystem, in bytes.
    pub free_bytes: u64,
    /// Disks with the same share that room.
    pub filesystem: u64,
    /// Whether it holds a copy of the journal.
    pub journal: bool,
    /// Whether new data passes it over for lack of room.
    pub full: bool,
    /// Whether its data is moving to other disks; after that it is forgotten.
    pub leaving: bool,
    /// The id of the disk whose place it takes.
    pub replaces: Option<Uuid>,
    /// Its last error; empty if there was none.
    pub last_error: String,
}

/// A pool that lies on some directories, open or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPool {
    /// The pool's name, by the winning label.
    pub name: String,
    /// The pool's id.
    pub id: Uuid,
    /// The layout of new objects.
    pub layout: Layout,
    /// Whether its last host gave it up, so that another may open it without force.
    pub exported: bool,
    /// Which host has or had it open.
    pub host: Option<String>,
    /// Its members, by the winning label.
    pub disks: Vec<FoundDisk>,
    /// Whether enough disks are here to open it.
    pub importable: bool,
}

/// A member of a pool that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDisk {
    /// The disk's id.
    pub id: Uuid,
    /// The directory where it lies, or was last seen.
    pub path: PathBuf,
    /// Whether it is there, and its label can be read.
    pub present: bool,
    /// Whether it missed no writes.
    pub in_sync: bool,
}

impl Pool {
    /// A status right after this has the room as it was seen last, unless something was written since: no disk is asked.
    pub fn keep_space(&self) {
        self.core.members.iter().for_each(|member| member.keep_space());
    }

    /// The state of the pool now. Reads no object, and waits for no disk.
    pub fn status(&self) -> PoolStatus {
        let core = &self.core;
        let label = core.members.label();
        let full = core.members.full_disks();
        let disks: Vec<DiskStatus> = core
            .members
            .iter()
            .map(|member| {
                let status = disk_status(member, &label, &full);
                match core.divergence_text(member) {
                    Some(text) => DiskStatus { last_error: text, ..status },
                    None => status,
                }
            })
            .collect();
        let copies = core.members.iter().filter(|member| label.journal.contains(&member.id) && member.is_writable());
        let (state, status, action) = self.verdict(&disks, copies.count());
        let (total_bytes, available_bytes) = core.space();
        let (objects, stored_bytes) = {
            let index = core.objects.index();
            (index.objects.len() as u64, index.bytes)
        };
        PoolStatus {
            name: core.members.name.clone(),
            id: core.members.id,
            layout: core.members.layout(),
            width: core.members.width(),
            state,
            status,
            action,
            scan: self.scan_text(),
            scrub: self.scrub_status(),
            disks,
            spares: label.spares.iter().map(|spare| spare.path.clone()).collect(),
            moving: core.moving(),
            objects,
            owed_objects: core.owed_objects(),
            stored_bytes,
            total_bytes,
            available_bytes,
            notes: core.members.notes(),
        }
    }

    fn scan_text(&self) -> String {
        let repairs = &self.core.repairs;
        let repaired = repairs.repaired();
        if repairs.is_idle() {
            return if repaired == 0 { String::new() } else { format!("{repaired} pieces repaired") };
        }
        let (checked, total) = repairs.progress();
        format!("repairing: {checked} of {total} objects looked at, {repaired} pieces repaired")
    }

    /// The worst there is to say, in one sentence, and the remedy.
    fn verdict(&self, disks: &[DiskStatus], journal_copies: usize) -> (PoolState, String, String) {
        let core = &self.core;
        let of = |wanted: &dyn Fn(&DiskStatus) -> bool| -> Vec<&Path> {
            disks.iter().filter(|disk| wanted(disk)).map(|disk| disk.path.as_path()).collect()
        };
        let unreadable =
            |disk: &DiskStatus| matches!(disk.state, DiskState::Faulted | DiskState::Removed | DiskState::Missing);
        let clear = format!("larder pool clear {}", core.members.name);
        let online = |disks: &[&Path]| each(disks, |disk| format!("larder pool online {} {disk}", core.members.name));
        let diverged = of(&|disk| disk.state == DiskState::Diverged);
        let unusable = of(&unreadable);
        let offline = of(&|disk| disk.state == DiskState::Offline);
        if unusable.len() + offline.len() + diverged.len() > usize::from(core.members.failures()) {
            let lost = [&unusable[..], &offline[..], &diverged[..]].concat();
            let status = format!("{} not usable: data that lies there cannot be read.", all_are(&lost));
            let mut actions = Vec::new();
            if !offline.is_empty() {
                actions.push(format!("Bring back what was taken offline:\n{}", online(&offline)));
            }
            if !unusable.is_empty() {
                actions.push(format!("Reconnect {}, then run: {clear}", list(&unusable)));
            }
            if !diverged.is_empty() {
                actions.push(self.divergence_action(disks));
            }
            return (PoolState::Faulted, status + &self.stopped_text(), actions.join("\n"));
        }
        if self.stopped().is_some() {
            let status = format!("Nothing can be stored.{}", self.stopped_text());
            let action = format!("Once its disks take writes, it is opened anew by itself. To try at once: {clear}");
            return (PoolState::Faulted, status, action);
        }
        let out_of_reach = {
            let (listed, more) = core.out_of_reach();
            listed.len() as u64 + more
        };
        if !diverged.is_empty() && unusable.is_empty() {
            return self.divergence_verdict(disks, out_of_reach);
        }
        if !unusable.is_empty() {
            let states: Vec<String> = disks
                .iter()
                .filter(|disk| unreadable(disk))
                .map(|disk| match disk.state {
                    DiskState::Removed => {
                        format!("{} is gone or lost its label ({})", disk.path.display(), disk.last_error)
                    }
                    DiskState::Missing if disk.last_error.is_empty() => format!("{} is missing", disk.path.display()),
                    DiskState::Missing => format!("{} is missing ({})", disk.path.display(), disk.last_error),
                    _ => format!("{} fails: {}", disk.path.display(), disk.last_error),
                })
                .collect();
            let status = match out_of_reach {
                0 => format!("{}. The pool serves everything with reduced redundancy.", states.join("; ")),
                n => format!("{}. {}.", states.join("; "), unreadable_text(n)),
            };
            let state = if out_of_reach == 0 { PoolState::Degraded } else { PoolState::Faulted };
            return (state, status, self.action_for_missing(disks, &unreadable));
        }
        if !offline.is_empty() {
            let was = if offline.len() == 1 { "was" } else { "were" };
            let names = list(&offline);
            let (state, rest) = match out_of_reach {
                0 => (PoolState::Degraded, "The pool serves everything with reduced redundancy".to_owned()),
                n => (PoolState::Faulted, unreadable_text(n)),
            };
            return (state, format!("{names} {was} taken offline. {rest}."), online(&offline));
        }
        let read_only = of(&|disk| disk.state == DiskState::ReadOnly);
        if !read_only.is_empty() {
            let state = if read_only.len() == disks.len() { PoolState::Faulted } else { PoolState::Degraded };
            return (state, self.read_only_text(&read_only, out_of_reach), self.action_for_read_only(&read_only));
        }
        let resilvering = of(&|disk| disk.state == DiskState::Resilvering);
        if !resilvering.is_empty() {
            let status = format!("{} being brought up to date.", all_are(&resilvering));
            return (PoolState::Degraded, status, "Wait for it to finish.".to_owned());
        }
        let owed = core.owed_objects();
        if owed > 0 && core.repairs.is_idle_but_for_owed() {
            let full = of(&|disk| disk.full);
            return (PoolState::Degraded, owed_text(owed), self.action_for_owed(&full));
        }
        if journal_copies < core.members.journal_copies() {
            let status = format!(
                "The journal has {journal_copies} of {} copies: if more disks fail now, what was written last may be lost.",
                core.members.journal_copies()
            );
            let full = of(&|disk| disk.full || disk.free_bytes < core.journal_bytes());
            let action = match full.is_empty() {
                true => {
                    format!("It is tried again every minute. If it stays so, check the disks, then run: {clear}")
                }
                false => format!("Delete something, or make room on {}; then it is made by itself.", list(&full)),
            };
            return (PoolState::Degraded, status, action);
        }
        let names = |wanted: &dyn Fn(&DiskStatus) -> bool| {
            let found = of(wanted);
            (found.len(), list(&found))
        };
        let (bad, bad_names) = names(&|disk| disk.checksum_errors + disk.read_errors + disk.write_errors > 0);
        if bad > 0 {
            let status = match core.scrubs.has_lost() {
                true => format!("{bad_names} returned errors, and some bytes could not be repaired."),
                false => {
                    format!(
                        "{bad_names} returned errors; nothing is lost: what was damaged is repaired, or being repaired."
                    )
                }
            };
            let action = format!("Check the disk (smartctl -a); if it is well run: {clear}");
            return (PoolState::Online, status, action);
        }
        let full = of(&|disk| disk.full);
        if !full.is_empty() {
            let name = &core.members.name;
            let status = match full.len() == disks.len() {
                true => "All disks are full: nothing new can be stored.".to_owned(),
                false if core.space().1 == 0 => format!(
                    "{} full, and the other disks alone have no room for new data: nothing new can be stored.",
                    all_are(&full)
                ),
                false => format!("{} full: new data goes to the other disks, while they have room.", all_are(&full)),
            };
            let action = format!(
                "Delete something, take other files off their filesystems, or add a disk:\nlarder pool add {name} NEW-DISK && larder pool rebalance {name}"
            );
            return (PoolState::Online, status, action);
        }
        if let Some(moving) = core.moving() {
            return (PoolState::Online, format!("{}; everything is served meanwhile.", moving.why), String::new());
        }
        (PoolState::Online, "All disks are well.".to_owned(), String::new())
    }

    /// A pool whose journal takes nothing more, and for how long.
    fn stopped_text(&self) -> String {
        let Some((why, since_ms)) = self.stopped() else { return String::new() };
        let ago = Elapsed(now_ms().saturating_sub(since_ms) / 1000);
        format!(
            " For {ago} minutes no copy of the journal takes anything ({why}); what was acknowledged before is on the disks."
        )
    }

    /// Pieces that are owed need room: on disks that are `full`, or refuse though they say that they have some.
    fn action_for_owed(&self, full: &[&Path]) -> String {
        let name = &self.core.members.name;
        let disks = if full.is_empty() { "its disks".to_owned() } else { list(full) };
        format!(
            "They are made by themselves within a minute once there is room. Delete something, take other files off {disks} (their number counts as well as their bytes, and so do quotas), or add a disk:\nlarder pool add {name} NEW-DISK"
        )
    }

    /// The sides of a pool whose disks have diverged.
    fn divergence_verdict(&self, disks: &[DiskStatus], out_of_reach: u64) -> (PoolState, String, String) {
        let texts: Vec<String> = disks
            .iter()
            .filter(|disk| disk.state == DiskState::Diverged)
            .map(|disk| format!("{} has diverged: {}", disk.path.display(), disk.last_error))
            .collect();
        let (state, rest) = match out_of_reach {
            0 => (PoolState::Degraded, "The pool serves its own side, with reduced redundancy".to_owned()),
            n => (PoolState::Faulted, unreadable_text(n)),
        };
        (state, format!("{}. {rest}.", texts.join(". ")), self.divergence_action(disks))
    }

    fn divergence_action(&self, disks: &[DiskStatus]) -> String {
        let diverged = disks.iter().filter(|disk| disk.state == DiskState::Diverged);
        let paths: Vec<&Path> = diverged.map(|disk| disk.path.as_path()).collect();
        let name = &self.core.members.name;
        let look = each(&paths, |disk| format!("larder recover --disk {disk} --list"));
        let discard = each(&paths, |disk| format!("larder pool online --discard {name} {disk}"));
        format!(
            "Look at the files there, which changes nothing:\n{look}\nCopy out what you need with --to DIR (docs/recovery.md). \
             Then give its side up for good, and it is brought up to date:\n{discard}"
        )
    }

    fn read_only_text(&self, disks: &[&Path], out_of_reach: u64) -> String {
        let refuse = if disks.len() == 1 { "refuses writes" } else { "refuse writes" };
        let is_old = |member: &&MemberDisk| member.state() == DiskState::ReadOnly && !member.is_in_sync();
        let old: Vec<PathBuf> = self.core.members.iter().filter(is_old).map(|m| m.path.read().clone()).collect();
        let old: Vec<&Path> = old.iter().map(PathBuf::as_path).collect();
        let mut text = format!("{} {refuse}; new data goes to the other disks.", list(disks));
        if !old.is_empty() {
            text.push_str(&format!(" What was written since is not on {}.", list(&old)));
        }
        if out_of_reach > 0 {
            text.push_str(&format!(" {}.", unreadable_text(out_of_reach)));
        }
        text
    }

    /// A filesystem that turned read-only by itself cannot be remounted: it has to be checked
    /// first.
    fn action_for_read_only(&self, disks: &[&Path]) -> String {
        let name = &self.core.members.name;
        let remount = each(disks, |disk| format!("mount -o remount,rw \"$(stat -c %m {disk})\""));
        let replace = each(disks, |disk| format!("larder pool replace {name} {disk} NEW-DISK"));
        format!(
            "Look for the reason: dmesg. Where somebody mounted it read-only:\n{remount}\nlarder pool clear {name}\n\
             Where its filesystem has an error, that is refused: unmount it, check it (fsck) and mount it again, or put a new disk in its place:\n{replace}"
        )
    }

    /// The remedy for disks that are out of use. None where another disk is taking their place.
    fn action_for_missing(&self, disks: &[DiskStatus], unreadable: &dyn Fn(&DiskStatus) -> bool) -> String {
        let core = &self.core;
        let staying: Vec<&DiskStatus> = disks.iter().filter(|disk| unreadable(disk) && !disk.leaving).collect();
        if staying.is_empty() {
            let unusable = disks.iter().filter(|disk| unreadable(disk)).count();
            let places = if unusable == 1 { "its place is taken" } else { "their places are taken" };
            return format!("Wait until {places}.");
        }
        let paths: Vec<&Path> = staying.iter().map(|disk| disk.path.as_path()).collect();
        let check =
            format!("Check cable and mount of {}, then run: larder pool clear {}", list(&paths), core.members.name);
        let waiting: Vec<(Uuid, Duration)> = core
            .waiting_for_spares()
            .into_iter()
            .filter(|(_, left)| !left.is_zero())
            .filter_map(|(slot, left)| Some((core.members.member(slot)?.id, left)))
            .collect();
        let elsewhere = format!("If it is mounted elsewhere now:\nlarder pool online {} DIR", core.members.name);
        let mut actions = vec![check, elsewhere];
        for ((id, left), spare) in waiting.iter().zip(core.members.label().spares) {
            let Some(disk) = staying.iter().find(|disk| disk.id == *id) else { continue };
            let (path, spare) = (disk.path.display(), spare.path.display());
            let left = Elapsed(left.as_secs());
            actions.push(format!("The spare {spare} takes the place of {path} in {left} minutes, unless it is back."));
        }
        let without_spare: Vec<&Path> = staying
            .iter()
            .filter(|disk| !waiting.iter().take(actions.len() - 2).any(|(id, _)| *id == disk.id))
            .map(|disk| disk.path.as_path())
            .collect();
        if !without_spare.is_empty() {
            let replace =
                each(&without_spare, |disk| format!("larder pool replace {} {disk} NEW-DISK", core.members.name));
            let places = if without_spare.len() == 1 { "a new disk in its place" } else { "new disks in their places" };
            actions.push(format!("Or put {places}:\n{replace}"));
        }
        actions.join("\n")
    }

    /// The pools that lie on these directories. Changes nothing, needs no lock.
    pub fn scan(paths: &[PathBuf]) -> Vec<FoundPool> {
        let labelled = read_labels(&*timed_disk::over(Arc::new(FileDisks)), paths).labelled;
        let mut pools: Vec<Uuid> = labelled.iter().map(|disk| disk.label.pool).collect();
        pools.sort();
        pools.dedup();
        pools
            .into_iter()
            .filter_map(|pool| {
                let disks: Vec<&Labelled> = labelled.iter().filter(|disk| disk.label.pool == pool).collect();
                found(&disks)
            })
            .collect()
    }
}

fn found(disks: &[&Labelled]) -> Option<FoundPool> {
    let labels: Vec<Label> = disks.iter().map(|disk| disk.label.clone()).collect();
    let winner = label::winner(&labels, |_| false)?;
    let members: Vec<FoundDisk> = winner
        .members
        .iter()
        .map(|member| {
            // Of copies of one disk the newest counts, as when the pool is opened.
            let here = disks.iter().filter(|disk| disk.label.disk == member.id);
            let here = here.max_by_key(|disk| (winner.knows_life_of(&disk.label), disk.label.generation));
            FoundDisk {
                id: member.id,
                path: here.map_or_else(|| member.path.clone(), |disk| disk.path.clone()),
                present: here.is_some(),
                in_sync: member.in_sync
                    && here.is_some_and(|disk| winner.knows_life_of(&disk.label) && winner.descends_from(&disk.label)),
            }
        })
        .collect();
    let lacking = members.iter().filter(|member| !member.in_sync).count();
    let host = match &winner.usage {
        Usage::Open { host, .. } | Usage::Closed { host, .. } => Some(host.clone()),
        Usage::Exported => None,
    };
    Some(FoundPool {
        name: winner.name.clone(),
        id: winner.pool,
        layout: winner.layout,
        exported: winner.usage == Usage::Exported,
        host,
        disks: members,
        importable: lacking <= usize::from(winner.failures()),
    })
}

fn list(paths: &[&Path]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn all_are(paths: &[&Path]) -> String {
    format!("{} {}", list(paths), if paths.len() == 1 { "is" } else { "are" })
}

/// One command for each of these disks, on a line of its own.
fn each(disks: &[&Path], command: impl Fn(&str) -> String) -> String {
    disks.iter().map(|disk| command(&shell::word(disk))).collect::<Vec<_>>().join("\n")
}

fn disk_status(member: &MemberDisk, label: &Label, full: &[Uuid]) -> DiskStatus {
    let space = member.space();
    DiskStatus {
        path: member.path.read().clone(),
        id: member.id,
        state: member.state(),
        read_errors: member.read_errors.load(Ordering::Relaxed),
        write_errors: member.write_errors.load(Ordering::Relaxed),
        checksum_errors: member.checksum_errors.load(Ordering::Relaxed),
        size_bytes: space.total_bytes,
        used_bytes: space.total_bytes.saturating_sub(space.free_bytes),
        free_bytes: space.free_bytes,
        filesystem: space.filesystem,
        journal: label.journal.contains(&member.id),
        full: full.contains(&member.id),
        leaving: member.is_leaving(),
        replaces: member.replaces(),
        last_error: member.last_error.lock().clone(),
    }
}

fn unreadable_text(objects: u64) -> String {
    match objects {
        1 => "1 object cannot be read meanwhile: too few disks have it".to_owned(),
        n => format!("{n} objects cannot be read meanwhile: too few disks have them"),
    }
}
