//! Snapshots of volumes, as the API asks for them.
//!
//! - `snapshots.ranges`: `a%b` are the snapshots from `a` to `b` by age, both included; without an end it is the oldest or the
//!   newest. All names of a request are looked up before the first snapshot goes.

use larder_api::{
    CloneRequest, DiffEntry, DiffRequest, Failure, FailureKind, SnapshotHold, SnapshotStatus, SnapshotsRequest,
    SnapshotsStatus, VolumeStatus,
};
use larder_base::Timestamp;
use larder_fs::{DiffKind, Difference, FileKind, FsError, SnapshotInfo};
use larder_volume::replica::SENDING;
use larder_volume::{HAS_CLONES, Volume};

use super::storage::Store;
use super::translate;
use crate::config::check_name;

impl Store {
    pub(crate) async fn snapshots(&self, volume: &str) -> Result<SnapshotsStatus, Failure> {
        if self.is_replica(volume).await? {
            return self.received(volume).await;
        }
        let open = self.volume(volume).await?;
        Ok(self.snapshots_shown(volume, &open, Vec::new(), None))
    }

    fn snapshots_shown(
        &self,
        volume: &str,
        open: &Volume,
        concerned: Vec<String>,
        freed_bytes: Option<u64>,
    ) -> SnapshotsStatus {
        let snapshots = open.snapshots().into_iter().map(shown).collect();
        SnapshotsStatus {
            pool: self.name.clone(),
            volume: volume.to_owned(),
            concerned,
            saved_as: None,
            freed_bytes,
            snapshots,
        }
    }

    pub(crate) async fn change_snapshots(
        &self,
        volume: &str,
        request: SnapshotsRequest,
    ) -> Result<SnapshotsStatus, Failure> {
        if self.is_replica(volume).await? {
            return self.change_received(volume, request).await;
        }
        let open = self.volume(volume).await?;
        let full = |name: &str| format!("{}/{volume}@{name}", self.name);
        let (concerned, freed) = match request {
            SnapshotsRequest::Create { name } => {
                let name = match name {
                    Some(name) => name,
                    None => free_name(&open),
                };
                open.snapshot(&name).await.map_err(|error| failure(&full(&name), &error))?;
                (vec![name], None)
            }
            SnapshotsRequest::Destroy { names, dry_run } => {
                let concerned = selected(&open.snapshots(), &names).map_err(|name| unknown(&full(&name)))?;
                let freed = open.freed_by(&concerned);
                if !dry_run {
                    let destroyed = open.destroy_snapshots(&concerned).await;
                    destroyed.map_err(|(name, error)| failure(&full(&name), &error))?;
                }
                (concerned, Some(freed))
            }
            SnapshotsRequest::Rename { name, to } => {
                open.rename_snapshot(&name, &to).await.map_err(|error| match error {
                    FsError::Exists => failure(&full(&to), &error),
                    error => failure(&full(&name), &error),
                })?;
                (vec![to], None)
            }
            SnapshotsRequest::Hold { name, reason, until } => {
                let until = until.map(|secs| Timestamp::new(secs, 0));
                let held = open.hold_snapshot(&name, &reason, until).await;
                held.map_err(|error| hold_failure(&full(&name), &reason, &error))?;
                (vec![name], None)
            }
            SnapshotsRequest::Release { name, reason } => {
                let released = open.release_snapshot(&name, &reason).await;
                released.map_err(|error| hold_failure(&full(&name), &reason, &error))?;
                (vec![name], None)
            }
            SnapshotsRequest::Rollback { name, destroy_later, .. } => {
                drop(open);
                return self.roll_back(volume, &name, destroy_later).await;
            }
        };
        Ok(self.snapshots_shown(volume, &open, concerned, freed))
    }
}

impl Store {
    /// Makes a volume that begins as a snapshot.
    pub(crate) async fn clone_snapshot(&self, volume: &str, request: &CloneRequest) -> Result<VolumeStatus, Failure> {
        let CloneRequest { snapshot, name } = request;
        let name = match name.split_once('/') {
            Some((pool, name)) if pool == self.name => name,
            Some((pool, _)) => {
                let message = format!("a clone lies in the pool of its snapshot, '{}', not in '{pool}'", self.name);
                return Err(Failure::invalid(message).action("to copy it elsewhere: larder replicate VOLUME POOL/NAME"));
            }
            None => name,
        };
        check_name(name).map_err(Failure::invalid)?;
        let made = self.registry.clone_snapshot(volume, snapshot, name).await;
        let info = made.map_err(|error| match error {
            FsError::NotFound => unknown(&format!("{}/{volume}@{snapshot}", self.name)),
            FsError::Exists => self.failure(name, &error),
            error => self.failure(volume, &error),
        })?;
        let status = self.status_of(&info).await;
        Ok(VolumeStatus { origin: Some(format!("{volume}@{snapshot}")), ..status })
    }

    pub(crate) async fn diff(&self, volume: &str, request: &DiffRequest) -> Result<Vec<DiffEntry>, Failure> {
        let open = self.volume(volume).await?;
        let all: Vec<String> = open.snapshots().into_iter().map(|info| info.name).collect();
        let DiffRequest { earlier, later } = request;
        let full = |name: &str| format!("{}/{volume}@{name}", self.name);
        if let Some(missing) = std::iter::once(earlier).chain(later).find(|name| !all.contains(name)) {
            return Err(unknown(&full(missing)));
        }
        let found = open.diff(earlier, later.as_deref()).await;
        let found = found.map_err(|error| match error {
            FsError::Invalid(_) => {
                Failure::invalid(format!("{} is the older one of the two", full(later.as_deref().unwrap_or_default())))
                    .action("name the older snapshot first")
            }
            error => failure(&full(earlier), &error),
        })?;
        Ok(found.into_iter().map(difference).collect())
    }
}

fn difference(difference: Difference) -> DiffEntry {
    let change = match difference.change {
        DiffKind::Created => "created",
        DiffKind::Modified => "modified",
        DiffKind::Removed => "removed",
        DiffKind::Renamed => "renamed",
    };
    let kind = match difference.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        _ => "special",
    };
    DiffEntry { change: change.to_owned(), kind: kind.to_owned(), path: difference.path, from: difference.from }
}

pub(super) fn shown(info: SnapshotInfo) -> SnapshotStatus {
    let created_ms = u64::try_from(info.created.secs).unwrap_or(0) * 1000 + u64::from(info.created.nanos / 1_000_000);
    let hold = |hold: larder_fs::Hold| SnapshotHold { reason: hold.reason, until: hold.until.map(|at| at.secs) };
    SnapshotStatus {
        name: info.name,
        created_ms,
        used_bytes: info.used_bytes,
        referenced_bytes: info.referenced_bytes,
        written_bytes: info.written_bytes,
        holds: info.holds.into_iter().map(hold).collect(),
        clones: info.clones,
    }
}

/// The time in UTC; with a number behind it where there was a snapshot in this second already.
pub(super) fn free_name(volume: &Volume) -> String {
    free_name_after(volume, "")
}

/// The same behind a word.
pub(super) fn free_name_after(volume: &Volume, word: &str) -> String {
    let now = format!("{word}{}", chrono::Utc::now().format("%Y-%m-%d_%H-%M-%SZ"));
    let taken: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    first_free(now, &taken)
}

/// The name, or the first with a number behind it that nobody has.
fn first_free(name: String, taken: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(name)
}

/// The names that a request means (`snapshots.ranges`), oldest first; the name that there is not.
pub(super) fn selected(infos: &[SnapshotInfo], names: &str) -> Result<Vec<String>, String> {
    let place = |name: &str| infos.iter().position(|info| info.name == name).ok_or_else(|| name.to_owned());
    let mut wanted = vec![false; infos.len()];
    for part in names.split(',') {
        let (first, last) = match part.split_once('%') {
            None => (place(part)?, place(part)?),
            Some((first, last)) => (
                if first.is_empty() { 0 } else { place(first)? },
                if last.is_empty() { infos.len().saturating_sub(1) } else { place(last)? },
            ),
        };
        if first > last {
            return Err(part.to_owned());
        }
        wanted.iter_mut().take(last + 1).skip(first).for_each(|wanted| *wanted = true);
    }
    Ok(infos.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(info, _)| info.name.clone()).collect())
}

pub(super) fn unknown(full: &str) -> Failure {
    let volume = full.split('@').next().unwrap_or_default();
    Failure::not_found(format!("there is no snapshot {full}"))
        .action(format!("see which there are with: larder snap list {volume}"))
}

pub(super) fn failure(full: &str, error: &FsError) -> Failure {
    match error {
        FsError::NotFound => unknown(full),
        FsError::Exists => Failure::new(FailureKind::Exists, format!("there is a snapshot {full} already"))
            .action("choose another name"),
        FsError::Busy(why) if *why == SENDING => {
            Failure::new(FailureKind::Busy, format!("the snapshot {full} is being sent"))
                .action("wait for the end of it")
        }
        FsError::Busy(why) if *why == HAS_CLONES => has_clones(&format!("the snapshot {full}")),
        FsError::Busy(_) => Failure::new(FailureKind::Busy, format!("the snapshot {full} is held")).action(format!(
            "see why with: larder snap list {} --holds; end a hold with: larder snap release {full} REASON",
            full.split('@').next().unwrap_or_default()
        )),
        FsError::Invalid(why) => Failure::invalid((*why).to_owned()),
        other => translate::volume_failure(format_args!("the snapshot {full}"), other),
    }
}

/// Volumes read what it keeps.
pub(super) fn has_clones(what: &str) -> Failure {
    Failure::new(FailureKind::Busy, format!("{what} has clones, which need it")).action(
        "see which with: larder volume list; make each a volume of its own with: larder volume promote NAME; or destroy it",
    )
}

pub(super) fn hold_failure(full: &str, reason: &str, error: &FsError) -> Failure {
    match error {
        FsError::NotPermitted => Failure::new(
            FailureKind::Denied,
            format!("the hold '{reason}' of {full} has an end, and nobody can make it end sooner"),
        )
        .action("wait; or hold it for longer, which is possible at any time"),
        FsError::Invalid(why) => Failure::invalid((*why).to_owned()),
        error => failure(full, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_of_one_second_differ() {
        let taken = ["before-t", "before-t-2", "t-2"].map(str::to_owned);
        assert_eq!(first_free("before-t".to_owned(), &taken), "before-t-3");
        assert_eq!(first_free("t".to_owned(), &taken), "t");
    }

    #[test]
    fn ranges_mean_what_lies_between() {
        let info = |name: &str| SnapshotInfo {
            name: name.to_owned(),
            number: 1,
            created: Timestamp::new(0, 0),
            referenced_bytes: 0,
            used_bytes: 0,
            written_bytes: 0,
            holds: Vec::new(),
            clones: Vec::new(),
        };
        let infos = ["a", "b", "c", "d"].map(info);
        let of = |names: &str| selected(&infos, names);
        let names = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(of("b"), names(&["b"]));
        assert_eq!(of("b%c"), names(&["b", "c"]));
        assert_eq!(of("%b"), names(&["a", "b"]));
        assert_eq!(of("c%"), names(&["c", "d"]));
        assert_eq!(of("%"), names(&["a", "b", "c", "d"]));
        assert_eq!(of("d,a%b"), names(&["a", "b", "d"]));
        assert_eq!(of("x"), Err("x".to_owned()));
        assert_eq!(of("c%a"), Err("c%a".to_owned()), "the wrong way round");
    }
}
