//! The rows of a replica's snapshot: images over images, down to one over the engine's tables.

use bytes::Bytes;
use larder_fs::{FsError, FsResult};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::meta::overlay::Changes;
use crate::snapshots::image::{self, Ground, Image};

/// A manifest of the engine, and all rows over it.
#[derive(Clone)]
pub(crate) struct Flat {
    pub(crate) manifest_id: u64,
    pub(crate) manifest: Bytes,
    pub(crate) rows: Changes,
}

/// Reads the image of a snapshot and those below it, down to `known` if that is one of them. Each is over an earlier one, so there is
/// an end.
pub(crate) async fn flat(
    store: &dyn ObjectStore,
    prefix: &Path,
    number: u64,
    known: Option<&(u64, Flat)>,
) -> FsResult<Flat> {
    let (mut at, mut above) = (number, Vec::new());
    let ground = loop {
        if let Some((_, flat)) = known.filter(|(known, _)| *known == at) {
            break flat.clone();
        }
        let Image { ground, rows } = read(store, prefix, at).await?;
        match ground {
            Ground::Snapshot(below) => {
                above.push(rows);
                at = below;
            }
            Ground::Engine { manifest_id, manifest } => break Flat { manifest_id, manifest, rows },
        }
    };
    let mut flat = ground;
    above.into_iter().rev().for_each(|rows| flat.rows.extend(rows));
    Ok(flat)
}

async fn read(store: &dyn ObjectStore, prefix: &Path, number: u64) -> FsResult<Image> {
    let lost = |error: object_store::Error| {
        FsError::Io(format!("the image of snapshot {number} cannot be read: {error}").into())
    };
    let bytes = store.get(&image::image_path(prefix, number)).await.map_err(lost)?.bytes().await.map_err(lost)?;
    image::decode(number, bytes)
}
