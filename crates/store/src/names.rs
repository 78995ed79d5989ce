//! Where larder's own objects lie in a bucket, beside the volumes.

use object_store::path::Path;

pub(crate) const OWNER: &str = "owner.json";
const LOG: &str = "log";
const PROBES: &str = "larder-check";

/// The folder of a stream of the log.
pub(crate) fn log_folder(stream: &str) -> Path {
    Path::from(LOG).join(stream)
}

/// Sorted by id, then by term.
pub(crate) fn log_entry(stream: &str, id: u64, term: u64) -> Path {
    log_folder(stream).join(format!("{id:016x}-{term:016x}"))
}

/// Comes before all entries with this id, and after all before it.
pub(crate) fn log_before(stream: &str, id: u64) -> Path {
    log_folder(stream).join(format!("{id:016x}"))
}

/// The id and the term of an entry of the log.
pub(crate) fn parse_log_entry(path: &Path) -> Option<(u64, u64)> {
    let (id, term) = path.filename()?.split_once('-')?;
    let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    Some((number(id)?, number(term)?))
}

/// The folder of one check of a store.
pub(crate) fn probe_folder(id: &str) -> Path {
    Path::from(PROBES).join(id)
}
