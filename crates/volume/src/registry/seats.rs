//! Volumes of one store that several machines serve, each its own; and how one changes hands.
//!
//! ```text
//!  giver                                registry.json                         taker
//!  offers          ------------>  seat: giver, handover: offered
//!                                 seat: giver, handover: accepted   <------------  looks, accepts
//!  closes the volume
//!  gives           ------------>  seat: taker, handover: given
//!                                                                                  looks, opens: fences the log
//!                                 seat: taker, no handover          <------------  has it
//! ```
//!
//! - `seats.entry_decides`: a machine opens, changes and destroys a volume only if the volume's entry names its seat. The entry is read
//!   under the lock that opening, closing and giving hold. One conditional put of one object changes it, so at each moment exactly one
//!   seat has the volume, whatever is cut off or lost.
//! - `seats.closed_before_given`: the giver has closed the volume, without an error, before it puts that change, and opens it again only
//!   after it has read an entry that is its own ([`Registry::settle`]). So it has nothing in memory, and nothing under way that a client waits for.
//! - `seats.late_puts_fail`: a giver that does not know whether its change has arrived changes the registry once more before it
//!   believes what it reads (`document.never_equal`), and so does every opening: the change in question was conditional on the state
//!   before, and cannot arrive any more.
//! - `seats.taker_fences`: the taker opens the volume as after a crash. Its fence has a term of its own in the log, and segments come in a
//!   block of its own. What the giver sent earlier and arrives later has a name that nobody looks for: as with an owner that was overtaken.
//! - `seats.offer_is_no_promise`: an offer that was not given has no effect. A giver that starts again, or gives up, takes it back.
//! - `seats.told_older_programs`: the registry has the mark `seats` before a volume belongs to another seat than the first. A program that
//!   does not know it would serve all volumes.

use std::sync::atomic::Ordering;

use larder_base::Seat;
use larder_fs::*;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use uuid::Uuid;

use super::document::{self, Document, REGISTRY, VolumeEntry, find_id, store_error};
use super::handover::{Handover, HandoverStage};
use super::{Registry, close_unused};
use crate::features;
use crate::properties::VolumeInfo;

/// Words of the taker are cut off there.
const TOLD_MAX: usize = 16;
const TOLD_BYTES_MAX: usize = 400;

/// A volume with its seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seated {
    /// The volume.
    pub info: VolumeInfo,
    /// The seat that has it.
    pub seat: Seat,
    /// Where it goes.
    pub handover: Option<Handover>,
}

impl Document {
    /// `seats.told_older_programs`
    fn mark_seats(&mut self) {
        if !self.has_seats() {
            self.features.incompatible.push(features::SEATS.to_owned());
        }
    }

    fn has_seats(&self) -> bool {
        self.features.incompatible.iter().any(|name| name == features::SEATS)
    }

    fn check_may_go(&self, entry: &VolumeEntry) -> FsResult<()> {
        let name = &entry.info.name;
        entry.check_not_sealing()?;
        let why = match &entry.origin {
            Some(_) => format!(
                "'{name}' is a clone and shares data with another volume: make it independent first with larder volume promote {name}"
            ),
            None if entry.info().replica => {
                format!(
                    "'{name}' is a replica: it only receives. Make a volume of it first with larder volume promote {name}"
                )
            }
            None if !entry.formatted => {
                format!("'{name}' was never opened: unlock it first with larder volume unlock {name}")
            }
            None => match self.clones_of(entry.info.id).first() {
                None => return Ok(()),
                Some((_, clone)) => format!(
                    "'{name}' has the clone '{clone}', which reads its data: make that independent first with larder volume promote {clone}"
                ),
            },
        };
        Err(FsError::Refused(why.into()))
    }
}

impl Registry {
    /// The seat whose volumes this one serves.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Whether machines at other seats may change the registry: as far as it was read.
    pub fn has_seats(&self) -> bool {
        self.has_seats.load(Ordering::Relaxed)
    }

    pub(super) fn note_seats(&self, document: &Document) {
        self.has_seats.store(document.has_seats(), Ordering::Relaxed);
    }

    /// Whether this one may open and change the volume (`seats.entry_decides`). A reader reads all.
    pub(crate) fn is_own(&self, entry: &VolumeEntry) -> bool {
        self.follows.is_some() || entry.seat == self.seat
    }

    /// The entry of a volume that this one serves.
    pub(crate) fn find<'a>(&self, document: &'a mut Document, name: &str) -> FsResult<&'a mut VolumeEntry> {
        let entry = document::find(document, name)?;
        match self.is_own(entry) {
            true => Ok(entry),
            false => {
                let why =
                    format!("the volume '{name}' is served by the machine at the seat '{}' of this store", entry.seat);
                Err(FsError::Refused(why.into()))
            }
        }
    }

    /// What an opening changes: so nothing that was sent before can arrive any more, and offers of before are off.
    pub(super) fn begin_seat(&self, document: &mut Document) {
        if !self.seat.is_first() {
            document.mark_seats();
        }
        for entry in &mut document.volumes {
            let is_off = |handover: &Handover| handover.stage != HandoverStage::Given;
            if entry.seat == self.seat && entry.handover.as_ref().is_some_and(is_off) {
                entry.handover = None;
            }
        }
    }

    /// All volumes of the store, those of other seats too.
    pub async fn seated(&self) -> FsResult<Vec<Seated>> {
        let (document, _) = self.read().await?;
        let living = document.volumes.into_iter().filter(|entry| !entry.doomed);
        let seated = |entry: VolumeEntry| Seated { info: entry.info(), seat: entry.seat, handover: entry.handover };
        Ok(living.map(seated).collect())
    }

    /// Another one than before means that the registry has changed. One request.
    pub async fn version(&self) -> FsResult<Option<String>> {
        match self.store().head(&Path::from(REGISTRY)).await {
            Ok(found) => Ok(found.e_tag.or(found.version)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(&error)),
        }
    }

    /// Asks whoever sits at `to` whether it takes the volume. [`FsError::Refused`] says why a volume cannot go.
    pub async fn offer(&self, name: &str, to: &Seat) -> FsResult<Uuid> {
        let mut id = None;
        self.update(|document| {
            let entry = self.find(document, name)?.clone();
            document.check_may_go(&entry)?;
            document.mark_seats();
            let entry = find_id(document, entry.info.id)?;
            let (from, to, stage) = (self.seat.clone(), to.clone(), HandoverStage::Offered);
            entry.handover = Some(Handover { from, to, stage, told: Vec::new() });
            id = Some(entry.info.id);
            Ok(())
        })
        .await?;
        id.ok_or(FsError::NotFound)
    }

    /// Takes an offer back (`seats.offer_is_no_promise`). Whose the volume is afterwards: nothing of before arrives any more then
    /// (`seats.late_puts_fail`).
    pub async fn settle(&self, id: Uuid) -> FsResult<Seat> {
        let mut seat = None;
        self.update(|document| {
            let entry = find_id(document, id)?;
            if entry.seat == self.seat {
                entry.handover = None;
            }
            seat = Some(entry.seat.clone());
            Ok(())
        })
        .await?;
        self.giving.lock().remove(&id);
        seat.ok_or(FsError::NotFound)
    }

    /// Answers an offer to this seat. Whether there is one.
    pub async fn accept(&self, id: Uuid, told: &[String]) -> FsResult<bool> {
        let told: Vec<String> =
            told.iter().take(TOLD_MAX).map(|line| line.chars().take(TOLD_BYTES_MAX).collect()).collect();
        let mut is_offered = false;
        self.update(|document| {
            is_offered = false;
            let entry = find_id(document, id)?;
            if let Some(handover) = &mut entry.handover
                && handover.to == self.seat
                && handover.stage == HandoverStage::Offered
            {
                handover.stage = HandoverStage::Accepted;
                handover.told.clone_from(&told);
                is_offered = true;
            }
            Ok(())
        })
        .await?;
        Ok(is_offered)
    }

    /// Closes the volume and gives it to the seat that has accepted it. [`FsError::Busy`] while somebody uses it; after any error but
    /// that one nobody opens it here before [`Registry::settle`] has said whose it is.
    pub async fn give(&self, id: Uuid) -> FsResult<()> {
        // Nobody opens it meanwhile (`seats.entry_decides`).
        let mut open = self.open.lock().await;
        close_unused(&mut open, id).await?;
        self.giving.lock().insert(id);
        let given = self.update(|document| {
            let entry = find_id(document, id)?.clone();
            // Ours, of a try whose answer was lost.
            if entry
                .handover
                .as_ref()
                .is_some_and(|handover| handover.stage == HandoverStage::Given && handover.from == self.seat)
            {
                return Ok(());
            }
            if !self.is_own(&entry) {
                return Err(FsError::Refused("the volume is another seat's already".into()));
            }
            document.check_may_go(&entry)?;
            let entry = find_id(document, id)?;
            let handover = entry.handover.as_mut().filter(|handover| handover.stage == HandoverStage::Accepted);
            let handover = handover.ok_or(FsError::Refused("nobody has accepted the volume".into()))?;
            handover.stage = HandoverStage::Given;
            entry.seat = handover.to.clone();
            Ok(())
        });
        given.await?;
        self.giving.lock().remove(&id);
        Ok(())
    }

    /// The volume was given to this seat, and is served: the giver need not wait any more. Or why it is not served.
    pub async fn took(&self, id: Uuid, fault: Option<&str>) -> FsResult<()> {
        self.update(|document| {
            let entry = find_id(document, id)?;
            if entry.seat != self.seat {
                return Ok(());
            }
            match (&mut entry.handover, fault) {
                (Some(handover), Some(fault)) => handover.told = vec![fault.chars().take(TOLD_BYTES_MAX).collect()],
                _ => entry.handover = None,
            }
            Ok(())
        })
        .await
    }
}
