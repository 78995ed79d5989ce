//! The record of the box that sends into a replica, beside that replica.
//!
//! - `sent.newest_alone`: beside a replica lies the newest version that its sender has sent, sealed as it was there, with the
//!   keyring that opens it, in one object.

use larder_api::{Failure, FailureKind, SentRecord};
use larder_base::hex;
use larder_crypt::Keyring;
use larder_keep::Store;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::daemon::translate::as_failure;

/// What fits into one request of the API, with room for the rest of it.
pub(super) const SEALED_BYTES_MAX: usize = 7 << 20;
const NAME: &str = "box.json";
const BYTES_MAX: u64 = 16 << 20;

/// The place of the record beside a replica.
async fn place_of(pool: &Store, volume: &str) -> Result<Path, Failure> {
    let infos = pool.registry.list().await.map_err(|error| as_failure(pool.failure(volume, &error)))?;
    let info = infos.into_iter().find(|info| info.name == volume);
    let info = info.ok_or_else(|| as_failure(pool.failure(volume, &larder_fs::FsError::NotFound)))?;
    Ok(Path::from("replica-boxes").join(info.id.to_string()).join(NAME))
}

/// Keeps what a sender sent (`sent.newest_alone`).
pub(in crate::daemon) async fn keep_beside(pool: &Store, volume: &str, sent: &SentRecord) -> Result<(), Failure> {
    let wrong = |why: String| Failure::invalid(format!("this is no record of a box: {why}"));
    Keyring::decode(sent.keyring.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    if hex::decode(&sent.sealed).is_none_or(|sealed| sealed.len() > SEALED_BYTES_MAX) {
        return Err(wrong("it is too large, or has no digits".to_owned()));
    }
    if !pool.is_replica(volume).await.map_err(as_failure)? {
        return Err(Failure::invalid(format!("'{}/{volume}' is no replica", pool.name)));
    }
    let text = serde_json::to_vec(sent).map_err(|error| Failure::internal(error.to_string()))?;
    let put = pool.store().put(&place_of(pool, volume).await?, PutPayload::from(text)).await;
    put.map(drop).map_err(|error| Failure::new(FailureKind::Unavailable, format!("the record of the sender: {error}")))
}

pub(super) async fn read_beside(pool: &Store, volume: &str) -> Result<SentRecord, Failure> {
    let none = || {
        Failure::not_found(format!("no box has sent its record to '{}/{volume}'", pool.name))
            .action("a larder that replicates into it sends one with the next snapshot")
    };
    let path = place_of(pool, volume).await?;
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(FailureKind::Unavailable, format!("the record beside '{}/{volume}': {error}", pool.name))
    };
    let got = match pool.store().get(&path).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Err(none()),
        Err(error) => return Err(failed(&error)),
    };
    if got.meta.size > BYTES_MAX {
        return Err(failed(&format_args!("it has {} bytes", got.meta.size)));
    }
    let bytes = got.bytes().await.map_err(|error| failed(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| failed(&error))
}
