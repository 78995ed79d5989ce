//! Snapshots of volumes, as the API asks for them.
//!
//! - `snapshots.ranges`: `a%b` are the snapshots from `a` to `b` by age, both included; without an end it is the oldest or the
//!   newest. All names of a request are looked up before the first snapshot goes.

use larder_api::{CloneRequest, DiffEntry, DiffRequest, Failure, SnapshotsRequest, SnapshotsStatus, VolumeStatus};
use larder_base::{Timestamp, boxed};
use larder_fs::{DiffKind, Difference, FileKind, FsError};
use larder_volume::Volume;

use crate::names::check_name;
use crate::snapshot_words::{free_name, hold_error, selected, shown, snapshot_error, unknown};
use crate::store::Store;

impl Store {
    #[boxed]
    pub async fn snapshots(&self, volume: &str) -> Result<SnapshotsStatus, Failure> {
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

    #[boxed]
    pub async fn change_snapshots(&self, volume: &str, request: SnapshotsRequest) -> Result<SnapshotsStatus, Failure> {
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
                open.snapshot(&name).await.map_err(|error| snapshot_error(&full(&name), &error))?;
                (vec![name], None)
            }
            SnapshotsRequest::Destroy { names, dry_run } => {
                let concerned = selected(&open.snapshots(), &names).map_err(|name| unknown(&full(&name)))?;
                let freed = open.freed_by(&concerned);
                if !dry_run {
                    let destroyed = open.destroy_snapshots(&concerned).await;
                    destroyed.map_err(|(name, error)| snapshot_error(&full(&name), &error))?;
                }
                (concerned, Some(freed))
            }
            SnapshotsRequest::Rename { name, to } => {
                open.rename_snapshot(&name, &to).await.map_err(|error| match error {
                    FsError::Exists => snapshot_error(&full(&to), &error),
                    error => snapshot_error(&full(&name), &error),
                })?;
                (vec![to], None)
            }
            SnapshotsRequest::Hold { name, reason, until } => {
                let until = until.map(|secs| Timestamp::new(secs, 0));
                let held = open.hold_snapshot(&name, &reason, until).await;
                held.map_err(|error| hold_error(&full(&name), &reason, &error))?;
                (vec![name], None)
            }
            SnapshotsRequest::Release { name, reason } => {
                let released = open.release_snapshot(&name, &reason).await;
                released.map_err(|error| hold_error(&full(&name), &reason, &error))?;
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
    #[boxed]
    pub async fn clone_snapshot(&self, volume: &str, request: &CloneRequest) -> Result<VolumeStatus, Failure> {
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

    #[boxed]
    pub async fn diff(&self, volume: &str, request: &DiffRequest) -> Result<Vec<DiffEntry>, Failure> {
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
            error => snapshot_error(&full(earlier), &error),
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
