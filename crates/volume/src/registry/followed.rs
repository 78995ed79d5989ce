//! The registry of a store that another process writes, read again while its volumes are served (`follow` has the volumes themselves).
//!
//! - `followed.properties_at_once`: quotas and other properties apply to an open volume as soon as they are read.
//! - `followed.reopened`: a volume that was encrypted, has other keys, became independent or has another name or place in handles is closed
//!   and opened anew: what is open has been opened on other terms.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_base::boxed;
use larder_fs::*;
use uuid::Uuid;

use super::Registry;
use super::document::Terms;

/// An open volume that is not any more as it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The volume.
    pub id: Uuid,
    /// Its name when it was opened.
    pub name: String,
}

impl Registry {
    /// Whether a look at an open volume was asked for within this time.
    pub fn is_asked(&self, within: Duration) -> bool {
        let open = self.open_now().unwrap_or_default();
        open.iter().filter_map(|volume| volume.state.followed.as_ref()).any(|followed| followed.asked() < within)
    }

    /// Reads the registry again, and returns the open volumes that have to be opened anew (`followed.reopened`).
    #[boxed]
    pub async fn read_again(&self) -> FsResult<Vec<Outdated>> {
        let open = self.open.lock().await;
        let (document, _) = self.read().await?;
        let mut outdated = Vec::new();
        for (id, volume) in open.iter() {
            let entry = document.volumes.iter().find(|entry| entry.info.id == *id && !entry.doomed);
            let terms = self.terms.lock().get(id).cloned();
            match entry {
                Some(entry) if terms.is_none_or(|terms| terms == Terms::of(entry)) => {
                    volume.state.set_properties(&entry.info.properties);
                }
                None if document.volumes.iter().all(|entry| entry.doomed || entry.info.name != volume.state.name) => {
                    // It was destroyed. Whoever reads there hears it from the objects that are missing.
                }
                _ => outdated.push(Outdated { id: *id, name: volume.state.name.clone() }),
            }
        }
        Ok(outdated)
    }

    /// Lets a volume go that has to be opened anew. Whoever uses it now ends with what it was: nothing of it can be written.
    #[boxed]
    pub async fn let_go(&self, id: Uuid) -> FsResult<()> {
        if self.follows.is_none() {
            return Err(FsError::Busy("this machine writes the volume"));
        }
        let mut open = self.open.lock().await;
        self.terms.lock().remove(&id);
        match open.remove(&id) {
            Some(volume) => volume.state.close().await,
            None => Ok(()),
        }
    }
}

impl crate::follow::Followed {
    /// How long ago somebody asked for the newest look, in vain or not.
    pub(crate) fn asked(&self) -> Duration {
        Duration::from_millis(crate::follow::boot_ms().saturating_sub(self.asked_ms.load(Ordering::Acquire)))
    }
}
