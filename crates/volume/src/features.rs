//! Features of a volume that programs before it could not know, by the names in its entry of the
//! registry.

use larder_base::features::Features;

/// Files have room reserved (`data::reserved`). A program that does not know this would write over
/// it, and never give it back.
pub(crate) const RESERVED_RANGES: &str = "reserved-ranges";
/// Files have named attributes (`named`). A program that does not know this would leave them behind
/// when it removes the file.
pub(crate) const NAMED_ATTRIBUTES: &str = "named-attributes";

/// Files have access control lists (`acl`). A program that does not know this would judge by the
/// mode bits alone, and drop the lists.
pub(crate) const ACCESS_LISTS: &str = "access-lists";

/// It has, or had, snapshots (`snapshots`). A program that does not know them would delete the
/// objects that only they need.
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// Everything of it is encrypted (`Seals`). Who does not know would take what is sealed for damage.
pub(crate) const ENCRYPTION: &str = "encryption";

/// Records have checksums by piece (`data::pieces`). A program that does not know this takes their
/// extents for damage.
pub(crate) const PIECES: &str = "pieces";

/// It has received snapshots and no state of its own (`replica`). A program that does not know this would take it for a damaged
/// volume.
pub(crate) const REPLICA: &str = "replica";

/// Snapshots of another volume are copied into it as files (`replica::copy`). A program that does not know this would let clients change
/// it, or show them half of a snapshot.
pub(crate) const COPY: &str = "copy";

/// Snapshots of a replica are held. A program that does not know this would forget the holds.
pub(crate) const REPLICA_HOLDS: &str = "replica-holds";

/// It has, or had, clones (`lineage`). A program that does not know them would destroy snapshots that they need.
pub(crate) const CLONES: &str = "clones";

/// It is a clone (`lineage`). A program that does not know this would miss its segments.
pub(crate) const CLONE: &str = "clone";

/// Its objects are being sealed anew (`registry::sealing`). Who does not know would take those that are not yet for damage.
pub(crate) const SEALING: &str = "sealing";

/// Of a registry: machines at several seats serve volumes of the store (`registry::seats`). A program that does not know them would
/// serve volumes that others have.
pub(crate) const SEATS: &str = "seats";

/// Files share extents (`data::clone_range`). A program that does not know this would store the shared records once for each
/// file when it collects garbage, and leave the rows `T` behind.
pub(crate) const SHARED_EXTENTS: &str = "shared-extents";

/// Those that others can still read around.
pub(crate) const KNOWN: [&str; 7] =
    [ACCESS_LISTS, CLONES, NAMED_ATTRIBUTES, REPLICA_HOLDS, RESERVED_RANGES, SHARED_EXTENTS, SNAPSHOTS];
/// Incompatible features of objects that a stream of a snapshot has as they are (`replica`).
pub(crate) const OF_OBJECTS: [&str; 1] = [PIECES];
/// Those that a program must know to do anything.
pub(crate) const INCOMPATIBLE: [&str; 7] = [CLONE, COPY, ENCRYPTION, PIECES, REPLICA, SEALING, SEATS];

/// The features that a stream names: a receiver that does not know one refuses the stream.
pub(crate) fn to_send(features: &Features) -> Vec<String> {
    let of_objects = features.incompatible.iter().filter(|name| OF_OBJECTS.contains(&name.as_str()));
    features.read_only_compatible.iter().chain(of_objects).cloned().collect()
}

/// The features of a volume that a stream names.
pub(crate) fn received(names: &[String]) -> Features {
    let (incompatible, read_only_compatible) =
        names.iter().cloned().partition(|name| OF_OBJECTS.contains(&name.as_str()));
    Features { read_only_compatible, incompatible, ..Features::default() }
}
