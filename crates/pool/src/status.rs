//! What a pool says about itself, and what pools lie on a set of directories.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::filedisk::FileDisks;
use crate::label::{self, Label, Usage};
use crate::layout::Layout;
use crate::member::{DiskState, MemberDisk};
use crate::pool::{Labelled, Pool, read_labels};
use crate::scrub::ScrubStatus;
use crate::settle::Moving;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PoolState {
    Online,
    /// Serving, with less redundancy than it should have.
    Degraded,
    /// Some objects cannot be read or nothing can be written.
    Faulted,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    pub name: String,
    pub id: Uuid,
    pub layout: Layout,
    pub width: u8,
    pub state: PoolState,
    /// One sentence: what is the matter.
    pub status: String,
    /// What to do about it; empty when there is nothing to do.
    pub action: String,
    /// What the background repair is doing or has done.
    pub scan: String,
    /// The scrub that runs, or the last one.
    pub scrub: Option<ScrubStatus>,
    pub disks: Vec<DiskStatus>,
    /// Disks that wait for another to fail.
    pub spares: Vec<PathBuf>,
    /// What is being moved between disks.
    pub moving: Option<Moving>,
    pub objects: u64,
    pub stored_bytes: u64,
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// Foreign, duplicated and stale disks, and other things found when the pool was opened.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    pub path: PathBuf,
    pub id: Uuid,
    pub state: DiskState,
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub free_bytes: u64,
    pub journal: bool,
    pub full: bool,
    /// What lies on it is moving to other disks; then it is forgotten.
    pub leaving: bool,
    /// The id of the disk whose place it takes.
    pub replaces: Option<Uuid>,
    pub last_error: String,
}

/// A pool that lies on some directories, open or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPool {
    pub name: String,
    pub id: Uuid,
    pub layout: Layout,
    pub exported: bool,
    /// Which host has or had it open.
    pub host: Option<String>,
    pub disks: Vec<FoundDisk>,
    /// Whether enough disks are here to open it.
    pub importable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDisk {
    pub id: Uuid,
    pub path: PathBuf,
    pub present: bool,
    pub in_sync: bool,
}

impl Pool {
    pub fn status(&self) -> PoolStatus {
        let core = &self.core;
        let label = core.label();
        let disks: Vec<DiskStatus> = core.members.iter().map(|member| disk_status(member, &label)).collect();
        let (state, status, action) = self.verdict(&disks);
        let (total_bytes, available_bytes) = core.space();
        let (objects, stored_bytes) = {
            let index = core.index.read();
            (index.objects.len() as u64, index.bytes)
        };
        PoolStatus {
            name: core.name.clone(),
            id: core.id,
            layout: core.layout(),
            width: core.width(),
            state,
            status,
            action,
            scan: self.scan_text(),
            scrub: self.scrub_status(),
            disks,
            spares: label.spares.iter().map(|spare| spare.path.clone()).collect(),
            moving: core.moving(),
            objects,
            stored_bytes,
            total_bytes,
            available_bytes,
            notes: core.notes(),
        }
    }

    fn scan_text(&self) -> String {
        let repairs = &self.core.repairs;
        let repaired = repairs.repaired.load(Ordering::Relaxed);
        if repairs.is_idle() {
            return if repaired == 0 { String::new() } else { format!("{repaired} pieces repaired") };
        }
        let (checked, total) = (repairs.checked.load(Ordering::Relaxed), repairs.total.load(Ordering::Relaxed));
        format!("repairing: {checked} of {total} objects looked at, {repaired} pieces repaired")
    }

    /// The worst there is to say, in one sentence, and the remedy.
    fn verdict(&self, disks: &[DiskStatus]) -> (PoolState, String, String) {
        let core = &self.core;
        let names = |wanted: &dyn Fn(&DiskStatus) -> bool| {
            let found: Vec<String> =
                disks.iter().filter(|disk| wanted(disk)).map(|disk| disk.path.display().to_string()).collect();
            (found.len(), found.join(", "))
        };
        let unreadable =
            |disk: &DiskStatus| matches!(disk.state, DiskState::Faulted | DiskState::Removed | DiskState::Missing);
        let clear = format!("larder pool clear {}", core.name);
        let (gone, gone_names) = names(&unreadable);
        let (lost, _) = names(&|disk| unreadable(disk) || disk.state == DiskState::Offline);
        if lost > usize::from(core.failures()) {
            let status = format!("{gone} disks are not usable ({gone_names}): data that lies on them cannot be read.");
            return (PoolState::Faulted, status, format!("Reconnect them, then run: {clear}"));
        }
        if gone > 0 {
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
            let status = format!("{}. The pool serves everything with reduced redundancy.", states.join("; "));
            let replace = format!("larder pool replace {} {gone_names} NEW-DISK", core.name);
            let action = match disks.iter().any(|disk| disk.replaces.is_some()) {
                true => "Wait until its place is taken.".to_owned(),
                false => format!("Check cable and mount of {gone_names}, then run: {clear}; or: {replace}"),
            };
            return (PoolState::Degraded, status, action);
        }
        let (offline, offline_names) = names(&|disk| disk.state == DiskState::Offline);
        if offline > 0 {
            let status =
                format!("{offline_names} was taken offline. The pool serves everything with reduced redundancy.");
            let action = format!("larder pool online {} {offline_names}", core.name);
            return (PoolState::Degraded, status, action);
        }
        let (read_only, read_only_names) = names(&|disk| disk.state == DiskState::ReadOnly);
        if read_only > 0 {
            let state = if read_only == disks.len() { PoolState::Faulted } else { PoolState::Degraded };
            let status = format!("{read_only_names} refuses writes; new data goes to the other disks.");
            let action = format!("mount -o remount,rw {read_only_names} && {clear}");
            return (state, status, action);
        }
        let (resilvering, resilvering_names) = names(&|disk| disk.state == DiskState::Resilvering);
        if resilvering > 0 {
            let status = format!("{resilvering_names} is being brought up to date.");
            return (PoolState::Degraded, status, "Wait for it to finish.".to_owned());
        }
        let (bad, bad_names) = names(&|disk| disk.checksum_errors + disk.read_errors + disk.write_errors > 0);
        if bad > 0 {
            let status = match core.scrubs.has_lost.load(Ordering::Acquire) {
                true => format!("{bad_names} returned errors, and some bytes could not be repaired."),
                false => {
                    format!("{bad_names} returned errors; all data were answered correctly and are being repaired.")
                }
            };
            let action = format!("Check the disk (smartctl -a); if it is well run: {clear}");
            return (PoolState::Online, status, action);
        }
        if let Some(moving) = core.moving() {
            return (PoolState::Online, format!("{}; everything is served meanwhile.", moving.why), String::new());
        }
        (PoolState::Online, "All disks are well.".to_owned(), String::new())
    }

    /// The pools that lie on these directories. Changes nothing, needs no lock.
    pub fn scan(paths: &[PathBuf]) -> Vec<FoundPool> {
        let labelled = read_labels(&FileDisks, paths).labelled;
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
    let winner = label::winner(&labels)?;
    let members: Vec<FoundDisk> = winner
        .members
        .iter()
        .map(|member| {
            let here = disks.iter().find(|disk| disk.label.disk == member.id);
            FoundDisk {
                id: member.id,
                path: here.map_or_else(|| member.path.clone(), |disk| disk.path.clone()),
                present: here.is_some(),
                in_sync: member.in_sync && here.is_some_and(|disk| winner.descends_from(&disk.label)),
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

fn disk_status(member: &MemberDisk, label: &Label) -> DiskStatus {
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
        journal: label.journal.contains(&member.id),
        full: member.is_full(),
        leaving: member.is_leaving(),
        replaces: member.replaces,
        last_error: member.last_error.lock().clone(),
    }
}
