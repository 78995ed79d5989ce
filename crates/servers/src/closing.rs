//! Closing a volume that is served: the one way for going back to a snapshot, for other keys, and for locking.
//!
//! - `closing.doors_first`: shares and mounts are taken away before the volume is closed. NFS clients are asked to try again until it is
//!   back, and go on with the handles that they have. SMB, SFTP and WebDAV clients connect again; the files that they had open are closed.
//! - `closing.bounded`: the volume is closed within half a minute (`Patience`). Otherwise it is served as before, and the failure says what uses it.
//! - `closing.uses_named`: work that may hold a volume for longer than a request is entered in `Uses`.

use std::sync::Arc;

use larder_api::Failure;
use larder_keep::Store;
use larder_keep::snapshot_runs::SnapshotRuns;

use crate::mounts::Mounts;
use crate::servers::Servers;
use larder_config::{MountConfig, VolumeName};
use larder_document::{Look, State};

/// The doors of volumes: their shares, mounts and schedules.
pub struct VolumeDoors {
    pub servers: Arc<Servers>,
    pub mounts: Mounts,
    pub schedules: Arc<SnapshotRuns>,
}

impl VolumeDoors {
    /// Refuses while a client has a file open for writing or a program uses a mount; takes mounts away that nobody uses. `anyway` is the
    /// command that does not ask, `or` what it does then.
    pub async fn check_unused(&self, pool: &Store, of: &VolumeName, or: &str, anyway: String) -> Result<(), Failure> {
        // Data that their clients have written and not sent yet would be lost.
        let writers = pool.files(&of.volume).await.map_or(0, |files| files.writers());
        if writers > 0 {
            let message = format!("{writers} files of the volume '{of}' are open for writing");
            return Err(Failure::busy(message)
                .action(format!("close them there; or {or} and lose what they have not sent: {anyway}")));
        }
        self.mounts.set_aside(of);
        let unmounted = self.mounts.unmount_unused(|mounted| *mounted == *of, anyway).await;
        if unmounted.is_err() {
            self.mount_again(of, of).await;
        }
        unmounted
    }

    /// Takes shares and mounts away (`closing.doors_first`) until [`VolumeDoors::open_doors`].
    pub async fn close_doors(&self, state: &mut State, pool: &Store, of: &VolumeName) {
        let id = pool.files(&of.volume).await.map(|files| files.handle_id());
        if let Ok(id) = id {
            self.servers.pause(id);
        }
        pool.close_for_now(&of.volume);
        self.mounts.set_aside(of);
        self.detach(state, of).await;
    }

    /// Takes shares and mounts of a volume away that nobody gets any more.
    pub async fn detach(&self, state: &mut State, of: &VolumeName) {
        self.schedules.forget(|scheduled| scheduled == of);
        state.reconcile(Look::Shares).await;
        self.mounts.remove_of(|mounted| mounted == of).await;
    }

    /// Serves the volume again, where `was` was closed: its shares and its mounts, those that the file does not name too.
    pub async fn open_doors(&self, state: &mut State, pool: &Store, of: &VolumeName, was: &VolumeName) {
        pool.open_again(&of.volume);
        state.reconcile(Look::Shares).await;
        self.servers.resume();
        self.mount_again(of, was).await;
    }

    /// Makes the mounts of `was` again that were taken away because nobody used them, as mounts of `of`.
    pub async fn mount_again(&self, of: &VolumeName, was: &VolumeName) {
        let again = self.mounts.take_aside(was).into_iter().filter(|mount| !self.mounts.is_mounted(&mount.dir));
        let again: Vec<_> = again.map(|mount| MountConfig { volume: of.clone(), ..mount }).collect();
        self.mounts.make_again(again.iter()).await;
    }
}
