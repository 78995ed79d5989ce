//! Taking a volume back to a snapshot, in the steps between which a daemon closes and opens its doors.
//!
//! - `rollback.saved_first`: what is there now is kept as a snapshot of its own, named in the answer, unless nothing changed since
//!   the newest one. It goes again if the volume does not go back, also where the daemon is killed before that.
//! - `rollback.later_all_or_none`: of the later snapshots all go or none. One that has to stay refuses the command before anything
//!   is changed. One that has to stay since then leaves all in place, and the answer says that the volume went back.

use larder_api::{Failure, SnapshotsStatus};
use larder_base::boxed;
use larder_fs::{FsError, SnapshotInfo};

use crate::snapshot_words::{self as snapshots, SnapshotBusy};
use crate::store::Store;
use crate::uses::Patience;

impl Store {
    /// All of it, for a command that works on the disks itself.
    #[boxed]
    pub async fn roll_back(
        &self,
        volume: &str,
        snapshot: &str,
        destroy_later: bool,
    ) -> Result<SnapshotsStatus, Failure> {
        self.may_go_back(volume, snapshot, destroy_later).await?;
        let saved = self.save_before(volume).await?;
        let went = self.go_back(volume, snapshot).await;
        if went.is_err() {
            self.drop_saved(volume, saved.as_deref()).await;
        }
        went?;
        self.gone_back(volume, snapshot, destroy_later, saved).await
    }

    /// Whether there is such a snapshot, and those that are to go may.
    #[boxed]
    pub async fn may_go_back(&self, volume: &str, snapshot: &str, destroy_later: bool) -> Result<(), Failure> {
        let infos = self.volume(volume).await?.snapshots();
        let full = |name: &str| format!("{}/{volume}@{name}", self.name);
        let place = infos.iter().position(|info| info.name == snapshot);
        let place = place.ok_or_else(|| snapshots::snapshot_error(&full(snapshot), &FsError::NotFound))?;
        // A snapshot that is being sent keeps the volume in use, so `go_back` refuses it.
        match kept(&infos[place + 1..]).filter(|_| destroy_later) {
            Some((name, why)) => Err(snapshots::busy_error(&full(name), why)
                .outcome(format!("'{}/{volume}' did not go back, and nothing was changed", self.name))),
            None => Ok(()),
        }
    }

    /// `rollback.saved_first`
    #[boxed]
    pub async fn save_before(&self, volume: &str) -> Result<Option<String>, Failure> {
        let open = self.volume(volume).await?;
        if !open.changed_since_snapshot() {
            return Ok(None);
        }
        let name = snapshots::free_name_after(&open, "before-rollback-");
        let taken = open.save_before_rollback(&name).await;
        taken.map_err(|error| snapshots::snapshot_error(&format!("{}/{volume}@{name}", self.name), &error))?;
        Ok(Some(name))
    }

    /// Where the volume is as it was, the snapshot goes that nobody was told of.
    #[boxed]
    pub async fn drop_saved(&self, volume: &str, saved: Option<&str>) {
        let (Some(saved), Ok(open)) = (saved, self.volume_anyway(volume).await) else { return };
        if let Err(error) = open.drop_saved().await {
            tracing::warn!("the snapshot {}/{volume}@{saved} stays for now: {error}", self.name);
        }
    }

    #[boxed]
    pub async fn go_back(&self, volume: &str, snapshot: &str) -> Result<(), Failure> {
        let patience = Patience::from_now();
        loop {
            match self.registry.roll_back(volume, snapshot).await {
                Err(FsError::Busy(_)) if patience.is_left() => patience.pause().await,
                went => {
                    let full = format!("{}/{volume}@{snapshot}", self.name);
                    return went.map_err(|error| match error {
                        FsError::Busy(_) => self.still_in_use(volume, "it did not go back"),
                        error => snapshots::snapshot_error(&full, &error),
                    });
                }
            }
        }
    }

    #[boxed]
    pub async fn gone_back(
        &self,
        volume: &str,
        snapshot: &str,
        destroy_later: bool,
        saved: Option<String>,
    ) -> Result<SnapshotsStatus, Failure> {
        let open = self.volume(volume).await?;
        let later = open.snapshots().into_iter().skip_while(|info| info.name != snapshot).skip(1);
        let later = later.filter(|info| destroy_later && saved.as_ref() != Some(&info.name));
        let later: Vec<String> = later.map(|info| info.name).collect();
        if !later.is_empty() {
            let destroyed = open.destroy_snapshots(&later).await;
            destroyed.map_err(|(name, error)| {
                snapshots::snapshot_error(&format!("{}/{volume}@{name}", self.name), &error).outcome(format!(
                    "'{}/{volume}' went back to {snapshot}, and every later snapshot is still there",
                    self.name
                ))
            })?;
        }
        let mut status = self.snapshots(volume).await?;
        status.concerned = vec![snapshot.to_owned()];
        status.saved_as = saved;
        Ok(status)
    }
}

/// The first of these snapshots that cannot be destroyed, and the reason.
fn kept(infos: &[SnapshotInfo]) -> Option<(&str, SnapshotBusy)> {
    infos.iter().find_map(|info| match info {
        info if !info.holds.is_empty() => Some((&*info.name, SnapshotBusy::Held)),
        info if !info.clones.is_empty() => Some((&*info.name, SnapshotBusy::HasClones)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use larder_base::Timestamp;
    use larder_fs::Hold;

    use super::*;

    fn info(name: &str, holds: &[&str], clones: &[&str]) -> SnapshotInfo {
        SnapshotInfo {
            name: name.to_owned(),
            number: 1,
            created: Timestamp::new(0, 0),
            referenced_bytes: 0,
            used_bytes: 0,
            written_bytes: 0,
            holds: holds.iter().map(|&reason| Hold { reason: reason.to_owned(), until: None }).collect(),
            clones: clones.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn holds_and_clones_keep_later_snapshots() {
        let (free, held, cloned) = (info("a", &[], &[]), info("b", &["why"], &[]), info("c", &[], &["copy"]));
        assert_eq!(kept(&[]), None);
        assert_eq!(kept(std::slice::from_ref(&free)), None);
        assert_eq!(kept(&[free.clone(), held.clone(), cloned.clone()]), Some(("b", SnapshotBusy::Held)));
        assert_eq!(kept(&[free, cloned, held]), Some(("c", SnapshotBusy::HasClones)));
    }
}
