//! Copies of histories in the pools: a box that is put together again from its disks knows how they went.
//!
//! - `copies.with_other_writes`: copies are written when the histories are, while pools are written to
//!   (`looking.nothing_written_idle`), and only of what changed.
//! - `copies.never_in_the_way`: a pool that cannot be written or read is passed over. The history in the data folder is the one
//!   that counts; a copy is taken where that folder has none.

use std::sync::Arc;

use futures::TryStreamExt;
use larder_alerts::disk::{BYTES_MAX, Ring};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::history::{History, RINGS_MAX, file_name};
use crate::watcher::Watcher;

const PREFIX: &str = "histories";

impl Watcher {
    /// Writes what changed since the last time (`copies.with_other_writes`).
    pub(crate) async fn copy_histories(self: Arc<Self>) {
        let rings = self.watch.history.uncopied();
        for pool in self.storage.all().into_iter().filter(|pool| pool.has_disks()) {
            match copy(&*pool.store(), &rings).await {
                Ok(()) => self.watch.history.are_copied(&rings),
                Err(error) => tracing::debug!("the pool {} has no copy of the histories: {error}", pool.name),
            }
        }
    }

    /// Takes copies of histories that the data folder lacks.
    pub(crate) async fn restore_histories(self: Arc<Self>) {
        for pool in self.storage.all().into_iter().filter(|pool| pool.has_disks()) {
            match restore(&*pool.store(), &self.watch.history).await {
                Ok(0) => {}
                Ok(count) => tracing::info!("{count} histories came from the pool {}", pool.name),
                Err(error) => tracing::debug!("the copies of histories in {}: {error}", pool.name),
            }
        }
    }
}

async fn copy(store: &dyn ObjectStore, rings: &[Ring]) -> object_store::Result<()> {
    for ring in rings {
        let place = Path::from(PREFIX).join(file_name(&ring.subject));
        store.put(&place, PutPayload::from(ring.encode())).await?;
    }
    Ok(())
}

/// Returns how many there were.
async fn restore(store: &dyn ObjectStore, history: &History) -> object_store::Result<usize> {
    let (prefix, mut count) = (Path::from(PREFIX), 0);
    let mut objects = store.list(Some(&prefix));
    let mut seen = 0;
    while let Some(object) = objects.try_next().await? {
        seen += 1;
        if seen > RINGS_MAX {
            break;
        }
        let name = object.location.filename().unwrap_or_default().to_owned();
        if object.size > BYTES_MAX as u64 || history.has(&name) {
            continue;
        }
        let bytes = store.get(&object.location).await?.bytes().await?;
        count += usize::from(history.restore(&name, &bytes));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_alerts::disk::COLUMNS;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_new_data_folder_takes_its_histories_from_the_pool() {
        let (old, new, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), InMemory::new());
        let history = History::of(old.path());
        history.add("disk a", 3600, [Some(31); COLUMNS]);
        history.add("disk b", 3600, [Some(40); COLUMNS]);
        let rings = history.uncopied();
        copy(&store, &rings).await.unwrap();
        history.are_copied(&rings);
        assert!(history.uncopied().is_empty(), "nothing changed");
        history.add("disk b", 7200, [Some(41); COLUMNS]);
        assert_eq!(history.uncopied().len(), 1);

        // Not ours, damaged, and under the name of another: none of these is taken.
        let rubbish = ["histories/0000000000000000.ring", "histories/..ring", "histories/x/y.ring"];
        for place in rubbish {
            store.put(&Path::from(place), PutPayload::from(history.ring("disk a").unwrap().encode())).await.unwrap();
        }
        store.put(&Path::from("histories/1111111111111111.ring"), PutPayload::from(&b"rubbish"[..])).await.unwrap();

        let again = History::of(new.path());
        again.add("disk b", 10_800, [Some(22); COLUMNS]);
        again.write();
        assert_eq!(restore(&store, &again).await.unwrap(), 1, "one is there already");
        assert_eq!(again.ring("disk a").unwrap().samples(0)[0].values[0], Some(31));
        assert_eq!(again.ring("disk b").unwrap().samples(0)[0].values[0], Some(22));
        assert_eq!(restore(&store, &again).await.unwrap(), 0);
        assert_eq!(std::fs::read_dir(new.path()).unwrap().count(), 2);
    }
}
