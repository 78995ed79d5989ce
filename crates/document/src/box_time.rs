//! The time of the box (`passed.really`), kept in the data folder: what really passed while larder does not run is bounded, what
//! passed before is known.

use std::path::Path;

use larder_alerts::{load, save};
use larder_base::passed;

const NAME: &str = "passed-time";

/// Goes on from the time that a data folder has kept. Before anything is opened whose age counts.
pub fn begin(folder: &Path) {
    let kept = load(&folder.join(NAME)).unwrap_or_else(|error| {
        tracing::warn!("the time of this box begins anew by its clock: {error}");
        None
    });
    passed::begin(kept);
}

pub fn keep(folder: &Path) {
    if let Err(error) = save(&folder.join(NAME), &passed::to_keep()) {
        tracing::warn!("the time of this box is not kept: {error}");
    }
}
