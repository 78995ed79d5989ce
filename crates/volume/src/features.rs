//! Features of a volume that programs before it could not know, by the names in its entry of the
//! registry.

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

/// It has received snapshots and no state of its own (`replica`). A program that does not know this would take it for a damaged
/// volume.
pub(crate) const REPLICA: &str = "replica";

/// Those that others can still read around.
pub(crate) const KNOWN: [&str; 4] = [ACCESS_LISTS, NAMED_ATTRIBUTES, RESERVED_RANGES, SNAPSHOTS];
