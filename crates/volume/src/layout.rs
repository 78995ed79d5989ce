//! Where the objects and the log of a volume lie in its store.

use object_store::path::Path;
use uuid::Uuid;

/// The folder of all volumes.
pub(crate) const VOLUMES: &str = "volumes";

pub(crate) fn prefix_of(id: Uuid) -> Path {
    Path::from(VOLUMES).join(id.to_string())
}

pub(crate) fn stream_of(id: Uuid) -> String {
    format!("volume-{}", id.simple())
}
