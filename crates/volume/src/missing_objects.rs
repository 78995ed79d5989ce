//! Objects that volumes need and their store has lost whole. The store cannot know: nothing is left
//! there that says so.
//!
//! The segment table and the engine's manifest, both in memory, say which objects are needed; a
//! list of the store says which there are. An object may come or go between the two, so an object
//! that seems missing is reported only if it is still needed afterwards.

use std::collections::BTreeMap;

use futures::StreamExt;
use larder_fs::*;
use object_store::path::Path;
use object_store::{ObjectStore, Result};

use crate::damage::DamagedObject;
use crate::data::object_path;
use crate::layout::prefix_of;
use crate::lineage::Lineage;
use crate::registry::Registry;
use crate::snapshots::image;
use crate::state::State;

const TABLES: [&str; 2] = ["meta", "compacted"];
const SEGMENTS: &str = "seg";

/// Objects that open volumes need and their store no longer has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingObjects {
    /// The missing objects, each with the range of all its bytes.
    pub objects: Vec<DamagedObject>,
    /// The prefixes of paths that were looked for. An object elsewhere may be missing unnoticed.
    pub asked: Vec<String>,
}

impl Registry {
    /// Compares the objects that open volumes need with the list of the store. Touches no disk
    /// where the store has its list in memory. Volumes that are not open are not asked.
    pub async fn missing_objects(&self) -> FsResult<MissingObjects> {
        let mut gone = MissingObjects::default();
        for (_, volume) in self.open_volumes().await {
            let prefix = prefix_of(volume.state.id);
            gone.asked.push(format!("{prefix}/"));
            let missing = missing(&volume.state, self.store(), &prefix).await;
            let missing = missing.map_err(|error| FsError::Io(format!("listing objects: {error}").into()))?;
            let lost = |(path, len): (String, u64)| DamagedObject { path, ranges: std::iter::once(0..len).collect() };
            gone.objects.extend(missing.into_iter().map(lost));
        }
        Ok(gone)
    }
}

async fn missing(state: &State, store: &dyn ObjectStore, prefix: &Path) -> Result<BTreeMap<String, u64>> {
    let mut missing = needed(state, prefix);
    let ancestors = state.lineage.iter().flat_map(Lineage::folders);
    for folder in [prefix.clone().join(SEGMENTS), tables_of(prefix), image::folder(prefix)].into_iter().chain(ancestors)
    {
        let mut objects = store.list(Some(&folder));
        while let Some(object) = objects.next().await {
            missing.remove(object?.location.as_ref());
        }
    }
    if !missing.is_empty() {
        let still = needed(state, prefix);
        missing.retain(|path, _| still.contains_key(path));
    }
    Ok(missing)
}

/// Paths and lengths.
fn needed(state: &State, prefix: &Path) -> BTreeMap<String, u64> {
    let segments = state.data.segments_in_use().into_iter();
    let place = |id| {
        let at = object_path(prefix, id);
        state.lineage.as_ref().and_then(|lineage| lineage.place(&at)).unwrap_or(at)
    };
    let segments = segments.map(|(id, bytes)| (place(id).to_string(), bytes));
    let folder = tables_of(prefix);
    let tables = state.meta.tables().into_iter().map(|(name, bytes)| (folder.clone().join(name).to_string(), bytes));
    segments.chain(tables).chain(state.snapshot_objects(&folder)).collect()
}

fn tables_of(prefix: &Path) -> Path {
    TABLES.iter().fold(prefix.clone(), |path, part| path.join(*part))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use object_store::ObjectStoreExt;

    use super::*;
    use crate::tests::{Box_, file, root};

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_needed_and_not_there_is_named_until_nobody_needs_it() {
        let place = Box_::new();
        let (registry, volume) = place.open().await;
        let ino = file(&volume, Ino::ROOT, "f").await;
        let noise: Vec<u8> =
            (0..40_000u64).flat_map(|i| larder_base::checksum::checksum(7, &i.to_le_bytes()).to_le_bytes()).collect();
        volume.write(&root(), ino, 0, vec![Bytes::from(noise)], Stability::Unstable).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(registry.missing_objects().await.unwrap().objects, []);
        registry.close().await.unwrap();
        assert_eq!(registry.missing_objects().await.unwrap(), MissingObjects::default(), "nobody is asked");
        let prefix = format!("volumes/{}/", volume.id());
        let mut paths = Vec::new();
        let mut objects = place.store.list(None);
        while let Some(object) = objects.next().await {
            paths.push(object.unwrap().location);
        }
        let segments: Vec<_> = paths.iter().filter(|path| path.as_ref().contains("/seg/")).collect();
        let tables: Vec<_> = paths.iter().filter(|path| path.as_ref().contains("/compacted/")).collect();
        assert!(segments.len() == 1 && !tables.is_empty(), "{paths:?}");
        place.store.delete(segments[0]).await.unwrap();
        let (registry, volume) = place.open().await;
        let gone = registry.missing_objects().await.unwrap();
        assert_eq!(gone.asked, [prefix]);
        assert_eq!(gone.objects.iter().map(|o| o.path.as_str()).collect::<Vec<_>>(), [segments[0].as_ref()]);
        let report = registry.damaged_files(&gone.objects).await.unwrap();
        assert_eq!(report.files[0].paths, ["/f"]);
        volume.unlink(&root(), Ino::ROOT, b"f").await.unwrap();
        let since = std::time::Instant::now();
        while !registry.missing_objects().await.unwrap().objects.is_empty() {
            assert!(since.elapsed().as_secs() < 10, "nobody needs it any more");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        place.store.delete(tables[0]).await.unwrap();
        let gone = registry.missing_objects().await.unwrap().objects;
        assert_eq!(gone.iter().map(|o| o.path.as_str()).collect::<Vec<_>>(), [tables[0].as_ref()]);
    }
}
