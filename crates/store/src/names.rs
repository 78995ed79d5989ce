//! Where larder's own objects lie in a bucket, beside the volumes.

use larder_base::Seat;
use object_store::path::Path;

const OWNER: &str = "owner.json";
const OWNERS: &str = "owners";
const LOG: &str = "log";
const PROBES: &str = "larder-check";

/// The record of the owner of a seat.
pub(crate) fn owner(seat: &Seat) -> Path {
    match seat.name() {
        None => Path::from(OWNER),
        Some(name) => owners().join(format!("{name}.json")),
    }
}

/// The folder of the owners of all seats but the first.
pub(crate) fn owners() -> Path {
    Path::from(OWNERS)
}

/// The seat whose owner's record this is, below [`owners`].
pub(crate) fn parse_owner(path: &Path) -> Option<Seat> {
    let name = path.prefix_match(&owners())?.next()?;
    let seat: Seat = name.as_ref().strip_suffix(".json")?.parse().ok()?;
    (!seat.is_first()).then_some(seat)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_record_it_is() {
        let b: Seat = "b".parse().unwrap_or_default();
        for (path, seat) in
            [("owners/b.json", Some(b.clone())), ("owner.json", None), ("b.json", None), ("owners/b", None)]
        {
            assert_eq!(parse_owner(&Path::from(path)), seat, "{path}");
        }
        assert_eq!(parse_owner(&owner(&b)), Some(b));
        assert_eq!(parse_owner(&owner(&Seat::default())), None);
    }
}
