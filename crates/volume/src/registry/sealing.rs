//! Volumes whose objects are being sealed anew, in place, while they are served (docs/encryption.md).
//!
//! ```text
//! encrypt:  closed, nothing to replay -> keyring -> entry: encrypted, being sealed -> open: reads both kinds, writes sealed -> entry: sealed
//! re-key:   closed, nothing to replay -> entry: being sealed -> keyring with both keys -> open: writes with the new one -> entry: sealed
//! ```
//!
//! - `sealing.nothing_to_replay`: entries of the log are never sealed anew. The volume is closed for the moment of the change, and no entry
//!   follows the replay point of its tables then. The entry *at* that point stays, and is never read again; it holds the superblock alone.
//! - `sealing.nothing_on_its_way`: an object of the old kind that came after the last pass would be damage. So the volume is not marked
//!   before each of its writes has ended, those that were given up among them.
//! - `sealing.marked_before_written`: the entry says so before the first object of the new kind is there, and until none of the old
//!   kind is left.
//! - `sealing.not_shared`: segments that clones read are not sealed anew under them, nor are those of a clone's ancestors, nor a replica,
//!   whose source goes on with the keys that it had.
//! - `sealing.another_source`: what is sent from now on does not fit replicas of before, which lack the keys. So it has another source.

use larder_fs::*;
use uuid::Uuid;

use super::document::VolumeEntry;
use super::{Registry, close_unused};
use crate::features;
use crate::keys::{self, Superblock};
use crate::meta::Batch;
use crate::properties::{Sealing, VolumeInfo};
use crate::volume::Volume;

/// More sources of before are not remembered: a replica of an older one is refused in other words.
const SOURCES_MAX: usize = 64;

impl VolumeEntry {
    /// `sealing.another_source`
    fn change_source(&mut self) {
        self.former_sources.push(self.source.unwrap_or(self.info.id));
        let excess = self.former_sources.len().saturating_sub(SOURCES_MAX);
        self.former_sources.drain(..excess);
        self.source = Some(Uuid::new_v4());
    }

    /// While it is being sealed, its objects are of two kinds.
    pub(crate) fn check_not_sealing(&self) -> FsResult<()> {
        self.sealing.map_or(Ok(()), |sealing| {
            let why = format!("'{}' is being {}: try again when that is done", self.info.name, sealing.word());
            Err(FsError::Refused(why.into()))
        })
    }

    fn check_may_be_sealed(&self, sealing: Sealing) -> FsResult<()> {
        let name = &self.info.name;
        let why = match (&self.origin, sealing) {
            (Some(origin), _) => format!(
                "'{name}' is a clone and shares data with the volume of '{}': make it independent first with larder volume promote {name}",
                origin.name
            ),
            (None, _) if self.info().replica => format!(
                "'{name}' is a replica and has the keys of its source: change them there, and receive the volume into a new name"
            ),
            (None, Sealing::Encrypt) if self.info().sealed => format!("'{name}' is encrypted already"),
            (None, Sealing::Rekey) if !self.info().sealed => format!("'{name}' is not encrypted"),
            _ => return self.check_not_sealing(),
        };
        Err(FsError::Refused(why.into()))
    }
}

impl Registry {
    /// Closes the volume, which nobody may use, and lets it begin to be sealed anew. `keyring` makes its new keys durable, and known to
    /// [`Seals`](crate::Seals). [`FsError::Refused`] says why it cannot be (`sealing.not_shared`); [`FsError::Busy`] while it is used.
    pub async fn begin_sealing(
        &self,
        name: &str,
        sealing: Sealing,
        keyring: impl Future<Output = FsResult<()>>,
    ) -> FsResult<VolumeInfo> {
        let _alone = self.receive_alone(name)?;
        self.check_may_be_sealed(name, sealing).await?;
        let id = {
            let volume = self.volume(name).await?;
            volume.sync().await?;
            let state = &volume.state;
            // The engine moves rows to its tables when it closes. A fence alone would stay behind them, and so would an entry with names.
            let superblock = state.meta.get(keys::SUPERBLOCK_KEY).await?;
            let superblock = superblock.ok_or_else(|| keys::damaged(keys::SUPERBLOCK_KEY, "it is missing"))?;
            let Superblock { id, created } = keys::decode_superblock(&superblock)?;
            let mut batch = Batch::default();
            batch.put(keys::SUPERBLOCK_KEY, keys::encode_superblock(Superblock { id, created }));
            let ticket = state.meta.write(batch).await?;
            state.meta.durable(ticket).await?;
            id
        };
        // Nobody gets a handle meanwhile.
        let mut open = self.open.lock().await;
        let closed = close_unused(&mut open, id).await?;
        check_nothing_to_replay(closed.as_ref()).await?;
        // `sealing.nothing_on_its_way`
        if !self.under_way.is_settled(id).await {
            return Err(FsError::Busy("a write of the volume is still on its way to the store"));
        }
        match sealing {
            Sealing::Encrypt => {
                keyring.await?;
                self.mark_sealing(name, sealing).await?;
            }
            Sealing::Rekey => {
                self.mark_sealing(name, sealing).await?;
                keyring.await?;
            }
        }
        let (mut document, _) = self.read().await?;
        Ok(self.find(&mut document, name)?.info())
    }

    async fn check_may_be_sealed(&self, name: &str, sealing: Sealing) -> FsResult<()> {
        let (mut document, _) = self.read().await?;
        let entry = self.find(&mut document, name)?.clone();
        entry.check_may_be_sealed(sealing)?;
        let clones = document.clones_of(entry.info.id);
        let Some((_, clone)) = clones.first() else { return Ok(()) };
        let why = format!(
            "'{name}' has the clone '{clone}', which reads its data: make that independent first with larder volume promote {clone}"
        );
        Err(FsError::Refused(why.into()))
    }

    /// `sealing.marked_before_written`
    async fn mark_sealing(&self, name: &str, sealing: Sealing) -> FsResult<()> {
        self.update(|document| {
            let entry = self.find(document, name)?;
            let id = entry.info.id;
            entry.check_may_be_sealed(sealing)?;
            if !document.clones_of(id).is_empty() {
                return Err(FsError::Busy(super::HAS_CLONES));
            }
            let entry = self.find(document, name)?;
            entry.sealing = Some(sealing);
            entry.add(features::ENCRYPTION);
            entry.add(features::SEALING);
            entry.change_source();
            Ok(())
        })
        .await
    }

    /// Every object is sealed with the newest key by now.
    pub async fn end_sealing(&self, id: Uuid) -> FsResult<()> {
        self.update(|document| {
            let entry = document.volumes.iter_mut().find(|entry| entry.info.id == id && !entry.doomed);
            let entry = entry.ok_or(FsError::NotFound)?;
            entry.sealing = None;
            entry.features.incompatible.retain(|feature| feature != features::SEALING);
            Ok(())
        })
        .await
    }
}

/// `sealing.nothing_to_replay`. What was closed serves as it was when it is opened again.
async fn check_nothing_to_replay(closed: Option<&Volume>) -> FsResult<()> {
    match closed {
        Some(volume) if !volume.state.meta.is_log_carried().await? => {
            Err(FsError::Io("its last changes did not get from the log into its tables when it closed".into()))
        }
        Some(_) => Ok(()),
        None => Err(FsError::Busy("the volume is being closed")),
    }
}
