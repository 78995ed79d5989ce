//! File data: from what clients write to segment objects and extents, and back.
//!
//! ```text
//! write -> dirty ranges -> segment (put) -> one batch: extents, segment table, inode records
//!             |                                  ^
//!             +-- small fsync: intents ----------+ (the batch also deletes them)
//! ```
//!
//! - `data.objects_before_references`: the engine refers to an object only once the object is
//!   durable, and an object is deleted only once the batch that took its last extent is durable. A
//!   crash leaves an orphan object at worst.
//! - `data.commit_in_order`: flushes are committed in the order in which they took their ranges, so
//!   newer data always lies over older data.
//! - `data.room_before_accept`: room is found before a write is accepted. An accepted write is
//!   never dropped for want of room.
//! - `data.poison_after_engine_failure`: when the engine fails, no write is accepted any more; data
//!   in memory can still be read. A store that fails is tried again for as long as the volume is
//!   open, and every waiter learns of the failure.
//! - `data.idle_is_idle`: every background task sleeps until it is woken. While nothing is dirty
//!   there is no timer.
//!
//! Rooms: `dirty`, `extents`, `pieces`, `segment`, `segments`, `intents`, `reserved`, `compress` are pure;
//! `shared` holds what operations and tasks share; `write`, `read`, `fetching`, `ahead`, `flush`, `small_commit`,
//! `commit`, `gc` move data; `clone_range` shares it; `allocate` and `promise` set room aside for data that is still to
//! come; `cut` and `patch` are the data's part of a snapshot.

mod ahead;
mod allocate;
mod check;
mod clone_range;
mod commit;
mod compress;
mod cut;
mod dirty;
mod extents;
mod fetch;
mod fetching;
mod file;
mod flush;
mod gate;
mod gc;
mod intents;
mod line;
mod memory;
mod open;
mod pace;
mod patch;
mod pieces;
mod place;
mod preserved;
mod promise;
mod queue;
mod read;
mod record;
mod reserved;
mod segment;
mod segments;
mod shared;
mod small_commit;
mod space;
mod write;

#[cfg(test)]
mod tests;

#[cfg(any(test, fuzzing))]
pub(crate) use clone_range::sharer_key;
pub(crate) use clone_range::{CloneSpan, decode_sharer};
#[cfg(any(test, fuzzing))]
pub(crate) use compress::decompress_into;
pub(crate) use cut::Forming;
pub(crate) use dirty::Payload as IntentPayload;
#[cfg(test)]
pub(crate) use extents::Extent;
#[cfg(any(test, fuzzing))]
pub(crate) use extents::put_extent;
pub(crate) use extents::{EXTENT_TAG, Place, SegmentId, decode_extent};
pub(crate) use file::FileState;
pub(crate) use gate::{margin, reservable};
pub(crate) use intents::{INTENT_TAG, decode as decode_intent, decode_mask};
pub(crate) use memory::Memory;
pub(crate) use patch::{Patch, Restored};
#[cfg(any(test, fuzzing))]
pub(crate) use pieces::{Codec, Sums};
pub(crate) use pieces::{Piece as RecordPiece, RecordRef, verify_and_unpack};
pub(crate) use reserved::{RESERVED_TAG, decode_reserved};
#[cfg(any(test, fuzzing))]
pub(crate) use reserved::{encode_reserved, reserved_key};
#[cfg(test)]
pub(crate) use segment::Builder as SegmentBuilder;
#[cfg(any(test, fuzzing))]
pub(crate) use segment::place_seed;
pub(crate) use segment::{
    FOOTER_BYTES, Footer, HEADER_BYTES, IndexEntry, object_path, parse_footer, parse_index, segment_of, verify_header,
};
pub(crate) use segments::{SEGMENT_TAG, Segment, Tally, decode_segment, encode_segment, segment_key};
pub(crate) use shared::{Data, DataParts, DataSettings, InodeSource};
pub(crate) use write::WriteAt;
