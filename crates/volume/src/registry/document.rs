//! `registry.json`: the volumes of a store by name, read, and changed by conditional puts only.
//!
//! - `document.never_equal`: stores may tell states of an object apart by their bytes alone. So each change counts itself: a put that
//!   was sent twice, and arrives again when the registry would be as it was before, finds another one.
//! - `document.successors_are_not_overwritten`: where other machines can reach the store, an opening changes the registry first, and
//!   each change asks for a proof of ownership after it has read. So a change of a machine that was overtaken is refused: it read the
//!   registry before its successor opened it, and finds another one, or after that, and has no proof.

use std::io::ErrorKind;

use bytes::Bytes;
use futures::StreamExt;
use larder_base::features::{Access, Features, Known};
use larder_base::{LogStore, Seat, boxed};
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use uuid::Uuid;

use super::handover::Handover;
use crate::features;
use crate::layout::VOLUMES;
use crate::lineage::{Ancestor, Origin};
use crate::properties::{Sealing, VolumeInfo};

pub(super) const REGISTRY: &str = "registry.json";
pub(super) const FORMAT: u32 = 1;
/// The features of registries and volumes that this program knows.
const KNOWN: Known = Known { read_only_compatible: &features::KNOWN, incompatible: &features::INCOMPATIBLE };
/// A registry larger than this is not ours.
const REGISTRY_BYTES_MAX: u64 = 16 << 20;
const UPDATE_TRIES_MAX: usize = 64;

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct VolumeEntry {
    #[serde(flatten)]
    pub(crate) info: VolumeInfo,
    /// See `registry.format_once`.
    pub(crate) formatted: bool,
    /// See `registry.doom_before_delete`.
    pub(crate) doomed: bool,
    /// Features that a program must know to read or write this volume.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub(crate) features: Features,
    /// The volume whose snapshots it was received from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<Uuid>,
    /// Its sources before it was encrypted or re-keyed, the oldest first (`sealing.another_source`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former_sources: Vec<Uuid>,
    /// See `sealing.marked_before_written`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sealing: Option<Sealing>,
    /// The snapshot that it began as, if it is a clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    /// The id in handles that clients keep, if it is not the volume's own: that of the volume whose place it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handles: Option<Uuid>,
    /// See `seats.entry_decides`.
    #[serde(default, skip_serializing_if = "Seat::is_first")]
    pub(crate) seat: Seat,
    /// It is on its way to another seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handover: Option<Handover>,
}

impl VolumeEntry {
    /// With what its features say of it.
    pub(crate) fn info(&self) -> VolumeInfo {
        let has = |name: &str| self.features.incompatible.iter().any(|known| known == name);
        VolumeInfo {
            sealed: has(features::ENCRYPTION),
            sealing: self.sealing,
            replica: has(features::REPLICA) || has(features::COPY),
            copy: has(features::COPY),
            ..self.info.clone()
        }
    }

    /// The volumes whose segments it reads.
    pub(crate) fn lineage(&self) -> &[Ancestor] {
        self.origin.as_ref().map_or(&[], |origin| &origin.lineage)
    }

    pub(crate) fn has(&self, mark: &str) -> bool {
        let all = self.features.read_only_compatible.iter().chain(&self.features.incompatible);
        all.into_iter().any(|name| name == mark)
    }

    /// Adds the mark to the set it belongs to.
    pub(crate) fn add(&mut self, mark: &str) {
        if !self.has(mark) {
            let features = &mut self.features;
            let is_incompatible = features::INCOMPATIBLE.contains(&mark);
            let set = if is_incompatible { &mut features.incompatible } else { &mut features.read_only_compatible };
            set.push(mark.to_owned());
        }
    }
}

/// The terms that a reader opens a volume on (`followed.reopened`).
#[derive(Clone, PartialEq)]
pub(crate) struct Terms {
    name: String,
    is_sealed: bool,
    is_sealing: bool,
    is_replica: bool,
    source: Option<Uuid>,
    handles: Option<Uuid>,
    ancestors: Vec<Uuid>,
}

impl Terms {
    pub(super) fn of(entry: &VolumeEntry) -> Self {
        let info = entry.info();
        Self {
            name: info.name,
            is_sealed: info.sealed,
            is_sealing: info.sealing.is_some(),
            is_replica: info.replica,
            source: entry.source,
            handles: entry.handles,
            ancestors: entry.lineage().iter().map(|ancestor| ancestor.volume).collect(),
        }
    }
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Document {
    pub(super) format: u32,
    /// Features that a program must know to read or write this document.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub(super) features: Features,
    pub(crate) volumes: Vec<VolumeEntry>,
    /// How often it was changed: no two states of it are equal, so that none is taken for another (`document.never_equal`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) changes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Document {
    /// How often it was changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The clones of a volume: the number of the snapshot that each began as, and its name.
    pub(crate) fn clones_of(&self, id: Uuid) -> Vec<(u64, String)> {
        let living = self.volumes.iter().filter(|entry| !entry.doomed);
        let of_it =
            living.filter_map(|entry| Some((entry.origin.as_ref().filter(|origin| origin.volume == id)?, entry)));
        of_it.map(|(origin, entry)| (origin.snapshot, entry.info.name.clone())).collect()
    }
}

pub(crate) fn no_copy(name: &str) -> FsError {
    FsError::Refused(format!("'{name}' is no copy as files").into())
}

#[boxed]
pub(crate) async fn read(store: &dyn ObjectStore) -> FsResult<(Document, Option<UpdateVersion>)> {
    let (document, version) = read_document(store).await?;
    // Every volume was entered before its first object was written.
    if version.is_none() && !is_empty(store, &Path::from(VOLUMES)).await? {
        let why = format!("{REGISTRY} is gone: there are volumes here, and nothing says which");
        return Err(FsError::Io(why.into()));
    }
    Ok((document, version))
}

/// Reads, changes and writes, again while another process wrote in between.
pub(super) async fn update(
    store: &dyn ObjectStore,
    log: Option<&dyn LogStore>,
    mut change: impl FnMut(&mut Document) -> FsResult<()>,
) -> FsResult<()> {
    for _ in 0..UPDATE_TRIES_MAX {
        let (mut document, version) = read(store).await?;
        check_features(REGISTRY, &document.features, true)?;
        change(&mut document)?;
        document.changes = document.changes.wrapping_add(1);
        if let Some(log) = log {
            // `document.successors_are_not_overwritten`
            log.prove_tenure().await.map_err(|error| FsError::Io(error.to_string().into()))?;
        }
        let text = serde_json::to_vec_pretty(&document).map_err(|error| FsError::Io(error.to_string().into()))?;
        let mode = version.map_or(PutMode::Create, PutMode::Update);
        let payload = PutPayload::from_bytes(Bytes::from(text));
        match store.put_opts(&Path::from(REGISTRY), payload, mode.into()).await {
            Ok(_) => return Ok(()),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Err(store_error(&error)),
        }
    }
    Err(FsError::Busy("others keep changing the registry"))
}

/// Adds the mark to the entry of the volume, durably.
pub(crate) async fn mark(store: &dyn ObjectStore, id: Uuid, mark: &str) -> FsResult<()> {
    let (document, _) = read(store).await?;
    if document.volumes.iter().any(|entry| entry.info.id == id && entry.has(mark)) {
        return Ok(());
    }
    // Only adds: what an overtaken machine marks keeps older programs out, and nothing else.
    update(store, None, |document| {
        let entry = document.volumes.iter_mut().find(|entry| entry.info.id == id).ok_or(FsError::NotFound)?;
        entry.add(mark);
        Ok(())
    })
    .await
}

pub(crate) async fn read_document(store: &dyn ObjectStore) -> FsResult<(Document, Option<UpdateVersion>)> {
    let got = match store.get(&Path::from(REGISTRY)).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => {
            return Ok((
                Document { format: FORMAT, features: Features::default(), volumes: Vec::new(), changes: 0 },
                None,
            ));
        }
        Err(error) => return Err(store_error(&error)),
    };
    if got.meta.size > REGISTRY_BYTES_MAX {
        return Err(FsError::Io("registry.json is larger than a registry can be".into()));
    }
    let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
    let bytes = got.bytes().await.map_err(|error| store_error(&error))?;
    Ok((decode_document(&bytes)?, Some(version)))
}

pub(crate) fn decode_document(bytes: &[u8]) -> FsResult<Document> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| FsError::Io(format!("registry.json is damaged: {error}").into()))?;
    if document.format != FORMAT {
        let why = format!("registry.json has format {}, this program knows {FORMAT}", document.format);
        return Err(FsError::Io(why.into()));
    }
    check_features(REGISTRY, &document.features, false)?;
    Ok(document)
}

/// Refuses a document that this program would misread, and with `to_write` one that it would
/// damage.
pub(crate) fn check_features(what: &str, features: &Features, to_write: bool) -> FsResult<()> {
    match features.access(&KNOWN) {
        Access::Refused(names) => {
            let why =
                format!("{what} uses {}, which this larder does not know: a newer larder is needed", names.join(", "));
            Err(FsError::Unsupported(why.into()))
        }
        Access::ReadOnly(names) if to_write => {
            let why = format!(
                "{what} uses {}, which this larder can read around but not write: use a newer larder, or copy files out with \
                 `larder recover`",
                names.join(", ")
            );
            Err(FsError::ReadOnly(why))
        }
        Access::ReadOnly(_) | Access::Full => Ok(()),
    }
}

/// The ids and names of the volumes that are not being destroyed, for readers that open none.
pub(crate) async fn read_names(store: &dyn ObjectStore) -> FsResult<Vec<VolumeInfo>> {
    let (document, version) = read_document(store).await?;
    if version.is_none() {
        return Err(FsError::Io(format!("{REGISTRY} is not there").into()));
    }
    let living = document.volumes.into_iter().filter(|entry| !entry.doomed);
    let checked = living.map(|entry| {
        check_features(&format!("volume '{}'", entry.info.name), &entry.features, false)?;
        Ok(entry.info())
    });
    checked.collect()
}

pub(crate) fn find<'a>(document: &'a mut Document, name: &str) -> FsResult<&'a mut VolumeEntry> {
    let mut living = document.volumes.iter_mut().filter(|entry| !entry.doomed);
    living.find(|entry| entry.info.name == name).ok_or(FsError::NotFound)
}

/// The volume with this id, if it is not being destroyed.
pub(super) fn find_id(document: &mut Document, id: Uuid) -> FsResult<&mut VolumeEntry> {
    let mut living = document.volumes.iter_mut().filter(|entry| !entry.doomed);
    living.find(|entry| entry.info.id == id).ok_or(FsError::NotFound)
}

pub(super) async fn is_empty(store: &dyn ObjectStore, prefix: &Path) -> FsResult<bool> {
    let first = store.list(Some(prefix)).next().await.transpose().map_err(|error| store_error(&error))?;
    Ok(first.is_none())
}

/// The error of a caller for an error of the store.
pub(crate) fn store_error(error: &object_store::Error) -> FsError {
    let is_full = |error: &std::io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error_here) = cause {
        if error_here.downcast_ref().is_some_and(is_full) {
            return FsError::NoSpace(store_text(error));
        }
        cause = error_here.source();
    }
    FsError::Io(store_text(error).into())
}

/// The text of a store's error, without the name that the store has within the program.
pub(crate) fn store_text(error: &object_store::Error) -> String {
    match error {
        object_store::Error::Generic { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
