//! Taking a volume back to a snapshot, in the steps between which a daemon closes and opens its doors.
//!
//! - `rollback.saved_first`: what is there now is kept as a snapshot of its own, named in the answer, unless nothing changed since
//!   the newest one. It goes again if the volume does not go back, also where the daemon is killed before that.

use larder_api::SnapshotsStatus;
use larder_fs::FsError;

use crate::error::KeepError;
use crate::snapshot_words as snapshots;
use crate::store::Store;
use crate::uses::Patience;

impl Store {
    /// All of it, for a command that works on the disks itself.
    pub async fn roll_back(
        &self,
        volume: &str,
        snapshot: &str,
        destroy_later: bool,
    ) -> Result<SnapshotsStatus, KeepError> {
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
    pub async fn may_go_back(&self, volume: &str, snapshot: &str, destroy_later: bool) -> Result<(), KeepError> {
        let infos = self.volume(volume).await?.snapshots();
        let full = |name: &str| format!("{}/{volume}@{name}", self.name);
        let place = infos.iter().position(|info| info.name == snapshot);
        let place = place.ok_or_else(|| snapshots::snapshot_error(&full(snapshot), &FsError::NotFound))?;
        let held = infos[place + 1..].iter().find(|info| destroy_later && !info.holds.is_empty());
        held.map_or(Ok(()), |held| Err(snapshots::snapshot_error(&full(&held.name), &FsError::Busy("held"))))
    }

    /// `rollback.saved_first`
    pub async fn save_before(&self, volume: &str) -> Result<Option<String>, KeepError> {
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
    pub async fn drop_saved(&self, volume: &str, saved: Option<&str>) {
        let (Some(saved), Ok(open)) = (saved, self.volume_anyway(volume).await) else { return };
        if let Err(error) = open.drop_saved().await {
            tracing::warn!("the snapshot {}/{volume}@{saved} stays for now: {error}", self.name);
        }
    }

    pub async fn go_back(&self, volume: &str, snapshot: &str) -> Result<(), KeepError> {
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

    pub async fn gone_back(
        &self,
        volume: &str,
        snapshot: &str,
        destroy_later: bool,
        saved: Option<String>,
    ) -> Result<SnapshotsStatus, KeepError> {
        let open = self.volume(volume).await?;
        let later = open.snapshots().into_iter().skip_while(|info| info.name != snapshot).skip(1);
        let later = later.filter(|info| destroy_later && saved.as_ref() != Some(&info.name));
        for info in later {
            let destroyed = open.destroy_snapshot(&info.name).await;
            destroyed
                .map_err(|error| snapshots::snapshot_error(&format!("{}/{volume}@{}", self.name, info.name), &error))?;
        }
        let mut status = self.snapshots(volume).await?;
        status.concerned = vec![snapshot.to_owned()];
        status.saved_as = saved;
        Ok(status)
    }
}
