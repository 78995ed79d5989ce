//! Things of a volume that cannot be served now.

use larder_api::{Failure, FailureKind};
use larder_config::VolumeName;
use larder_document::{Standing, Wait};
use larder_keep::Storage;

/// The standing of a thing of this volume that cannot be served now.
pub async fn waits_or_failed(storage: &Storage, volume: Option<&VolumeName>, why: Failure) -> Standing {
    let volume = volume.map(ToString::to_string).unwrap_or_default();
    let wait = match why.kind {
        FailureKind::Locked => Wait::Key,
        _ if storage.is_closed_for_now(&volume) => Wait::Moment,
        _ if storage.is_elsewhere(&volume).await => Wait::Elsewhere,
        _ => return Standing::Failed(why),
    };
    Standing::waits(wait, why)
}
