//! The rows of a replica's snapshot: images over images, down to one over the engine's tables.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::meta::overlay::Changes;
use crate::snapshots::image::{self, Ground, Image};
use crate::types::{FsError, FsResult};

/// A manifest of the engine, and all rows over it.
pub(super) struct Flat {
    pub(super) manifest_id: u64,
    pub(super) manifest: Bytes,
    pub(super) rows: Changes,
    /// Whether its own image was over another.
    pub(super) was_over: bool,
}

/// Reads the image of a snapshot and those below it. Each is over an earlier one, so there is an end.
pub(super) async fn flat(store: &dyn ObjectStore, prefix: &Path, number: u64) -> FsResult<Flat> {
    let (mut at, mut above) = (number, Vec::new());
    loop {
        let Image { ground, rows } = read(store, prefix, at).await?;
        match ground {
            Ground::Snapshot(below) => {
                above.push(rows);
                at = below;
            }
            Ground::Engine { manifest_id, manifest } => {
                let was_over = !above.is_empty();
                let mut all = rows;
                above.into_iter().rev().for_each(|rows| all.extend(rows));
                return Ok(Flat { manifest_id, manifest, rows: all, was_over });
            }
        }
    }
}

async fn read(store: &dyn ObjectStore, prefix: &Path, number: u64) -> FsResult<Image> {
    let lost = |error: object_store::Error| {
        FsError::Io(format!("the image of snapshot {number} cannot be read: {error}").into())
    };
    let bytes = store.get(&image::image_path(prefix, number)).await.map_err(lost)?.bytes().await.map_err(lost)?;
    image::decode(number, bytes)
}
