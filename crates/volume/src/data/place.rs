//! Places in segments.

use larder_base::checksum::seed;

/// The largest record, and the unit in which extents are loaded.
pub(crate) const WINDOW_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u64);

/// The seed of the checksum of what lies at `position` of `segment` (`segment.place_in_checksum`).
pub(crate) fn place_seed(segment: SegmentId, position: u32) -> u64 {
    seed(&segment.0.to_be_bytes(), u64::from(position))
}
