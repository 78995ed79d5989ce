//! Sending a snapshot of a replica on to another one: its objects as they were received. No key is needed.
//!
//! - `relay.as_received`: an image cannot be made for the way, since it may be sealed. So a snapshot goes on only as it came: with the
//!   engine's tables, or as changes since the very snapshot that its image lies over.
//! - `relay.index_is_whole`: an image has the rows of the change index since the snapshot that it was sent from. A receiver has that one, or
//!   a later one, so that it misses none.
//! - `relay.alone`: while a snapshot is sent on nothing is received into the replica, nor is it promoted or thinned.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_fs::*;

use super::document::{Document, KEYRING, Received};
use super::send::{Item, Job, Outgoing};
use super::stream::{End, Header, Identity};
use super::{Had, Resume, image_path, ranges_of};
use crate::features;
use crate::layout::prefix_of;
use crate::registry::Registry;

fn refused(why: String) -> FsError {
    FsError::Refused(why.into())
}

/// Whether the image lies over that of `from` (`relay.as_received`).
fn is_delta(replica: &str, to: &Received, from: Option<&Identity>, document: &Document) -> FsResult<bool> {
    let name = &to.identity.name;
    let named = |number: u64| document.snapshots.iter().find(|one| one.identity.number == number);
    match (to.over, from) {
        (Some(over), Some(from)) if from.number == over => Ok(true),
        (Some(over), _) => Err(refused(match named(over) {
            Some(below) => format!(
                "the replica '{replica}' has '{name}' as changes since '{0}', and passes it on in no other way: send '{0}' before it, then \
                 '{name}' with --from {0}",
                below.identity.name
            ),
            None => format!(
                "the replica '{replica}' has '{name}' as changes since a snapshot that it has no more: send it from the volume itself, or \
                 from a promoted copy"
            ),
        })),
        (None, None) => Ok(false),
        // `relay.index_is_whole`
        (None, Some(from)) => {
            let since = to.from.or_else(|| to.identity.number.checked_sub(1));
            match since.is_some_and(|since| from.number >= since) {
                true => Ok(false),
                false => Err(refused(format!(
                    "the replica '{replica}' does not know all that changed from '{}' to '{name}': send '{name}' whole into a new name",
                    from.name
                ))),
            }
        }
    }
}

impl Registry {
    /// [`Registry::send`] of a replica.
    pub(super) async fn send_on(
        &self,
        replica: &str,
        snapshot: &str,
        from: Option<&str>,
        resume: Option<&Resume>,
    ) -> FsResult<Outgoing> {
        let alone = self.receive_alone(replica)?;
        let (entry, document) = self.replica_document(replica).await?;
        let document = document.ok_or(FsError::NotFound)?;
        let named =
            |name: &str| document.snapshots.iter().find(|one| one.identity.name == name).ok_or(FsError::NotFound);
        let to = named(snapshot)?;
        let from = from.map(named).transpose()?.map(|from| from.identity.clone());
        if from.as_ref().is_some_and(|from| from.number >= to.identity.number) {
            return Err(FsError::Invalid("the snapshot to begin with is not older than the one to send"));
        }
        let is_delta = is_delta(replica, to, from.as_ref(), &document)?;
        let had = match resume {
            Some(resume) if resume.is_about(document.source, &to.identity, from.as_ref()) => Had::of(&resume.segments)?,
            Some(_) => return Err(FsError::Invalid("the token to resume with is about another snapshot")),
            None => Had::of(&[])?,
        };
        let (mut items, mut end, mut bytes) = (Vec::new(), End::default(), 0);
        if entry.info().sealed {
            items.push(Item::Stored(KEYRING.to_owned()));
        }
        let number = to.identity.number;
        let mut segments = BTreeSet::new();
        for (path, kept) in document.objects.iter().filter(|(_, kept)| (kept.first..=kept.last).contains(&number)) {
            if let Some(id) = path.strip_prefix("seg/").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
                segments.insert(id);
                if from.as_ref().is_some_and(|from| (kept.first..=kept.last).contains(&from.number)) || had.contains(id)
                {
                    continue;
                }
            } else if path.starts_with("meta/") && !is_delta {
                end.tables.push(path.clone());
            } else {
                continue;
            }
            items.push(Item::Stored(path.clone()));
            bytes += kept.bytes;
        }
        items.push(Item::Stored(image_path(number)));
        end.segments = ranges_of(segments);
        end.objects = items.len() as u64;
        let header = Header {
            source: document.source,
            former_sources: entry.former_sources.clone(),
            volume: entry.info.name.clone(),
            properties: entry.info.properties.clone(),
            sealed: entry.info().sealed,
            features: features::to_send(&entry.features),
            from,
            to: to.identity.clone(),
            is_delta,
            bytes,
            keyring_only: false,
        };
        let store = Arc::clone(&self.backing.store);
        let registry = Arc::clone(&self.backing.store);
        let prefix = prefix_of(entry.info.id);
        Ok(Job { registry, store, prefix, header, items, end, _kept: Box::new(alone) }.begin(bytes))
    }
}
