//! Whether a replica has all that its snapshots need. No key is needed: contents are compared with nothing but the checksums below.

use futures::TryStreamExt;
use larder_fs::*;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt};

use super::document::{KEYRING, Kept};
use super::image_path;
use crate::layout::prefix_of;
use crate::registry::Registry;
use crate::registry::document::store_text;

/// Problems beyond these are counted only.
const PROBLEMS_MAX: usize = 100;

/// What a replica has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Its objects.
    pub objects: u64,
    /// Their bytes, as its document has them.
    pub bytes: u64,
    /// One sentence each; empty if all is there.
    pub problems: Vec<String>,
}

impl Registry {
    /// Looks for every object that the snapshots of a replica need, and with `read_data` reads all of it.
    pub async fn check_replica(&self, name: &str, read_data: bool) -> FsResult<ReplicaReport> {
        let (entry, document) = self.replica_document(name).await?;
        let mut report = ReplicaReport::default();
        let Some(document) = document else { return Ok(report) };
        let prefix = prefix_of(entry.info.id);
        let mut more = 0u64;
        let mut found = |problem: String| match report.problems.len() < PROBLEMS_MAX {
            true => report.problems.push(problem),
            false => more += 1,
        };
        for received in &document.snapshots {
            if !document.objects.contains_key(&image_path(received.identity.number)) {
                found(format!("the snapshot '{}' has no image", received.identity.name));
            }
        }
        for (path, kept) in &document.objects {
            let needed = document.snapshots.iter().find(|one| (kept.first..=kept.last).contains(&one.identity.number));
            let whose =
                needed.map_or_else(String::new, |one| format!(", which the snapshot '{}' needs", one.identity.name));
            let at = Path::parse(format!("{prefix}/{path}"));
            let at =
                at.map_err(|error| FsError::Io(format!("the replica's document names {path:?}: {error}").into()))?;
            // A promotion that was cut off has written images anew.
            // The keyring changes by itself, and whoever unlocks the replica reads it whole.
            let is_length_known = !(document.promoting && path.starts_with("snap/") || path == KEYRING);
            if let Err(why) = check_object(&*self.backing.store, &at, kept, is_length_known, read_data).await {
                found(format!("the object {path}{whose}: {why}"));
            }
        }
        if more > 0 {
            report.problems.push(format!("and {more} more"));
        }
        report.objects = document.objects.len() as u64;
        report.bytes = document.objects.values().map(|kept| kept.bytes).sum();
        Ok(report)
    }
}

async fn check_object(
    store: &dyn ObjectStore,
    at: &Path,
    kept: &Kept,
    is_length_known: bool,
    read_data: bool,
) -> Result<(), String> {
    let size = match store.head(at).await {
        Ok(meta) => meta.size,
        Err(object_store::Error::NotFound { .. }) => return Err("it is missing".into()),
        Err(error) => return Err(error.to_string()),
    };
    if is_length_known && size != kept.bytes {
        return Err(format!("it has {size} bytes, and {} came", kept.bytes));
    }
    if !read_data {
        return Ok(());
    }
    let got = store.get_opts(at, GetOptions::default()).await.map_err(|error| store_text(&error))?;
    let read = got.into_stream().try_fold(0u64, async |sum, piece| Ok(sum + piece.len() as u64)).await;
    match read.map_err(|error| error.to_string())? {
        read if read == size => Ok(()),
        read => Err(format!("{read} of its {size} bytes can be read")),
    }
}
