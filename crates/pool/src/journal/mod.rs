//! The journal: small synchronous records, durable on m+1 disks with one write and one sync.
//!
//! One thread writes. Records that arrive while it waits for the disks go together in the next
//! batch (group commit over all streams). A batch is written and synced on all copies side by side;
//! copies on one filesystem are flushed once.
//!
//! ```text
//! log.rs        the LogStore face                 writer.rs        the writer: batches into segments
//! queue.rs      queue and streams                 batch.rs         the bytes of a batch
//! open.rs       opening: heal, rebuild            copies.rs        which disks have copies; writing them
//! stored.rs     what lies on the disks            copy.rs          one copy and its thread
//! replay.rs     records out of merged copies      mend.rs          making copies equal
//! segments.rs   which segments are in use         segment_file.rs  the file of one segment on one disk
//! format.rs     bytes on disk                     check.rs         scrubbing the copies
//! salvage.rs    reading journals without a pool
//! ```
//!
//! - `journal.sectors_written_once`: a sector that holds an acknowledged record is not written
//!   again until its whole segment is free. Batches start on 4 KiB boundaries.
//! - `journal.one_torn_batch`: a batch is written only when the batch before it is durable on every
//!   current copy. So only the last batch can be torn.
//! - `journal.records_of_one_batch`: a record counts only in the batch it was written with. A batch that
//!   was torn before its header leaves its number and its place to the next one, and records behind it.
//! - `journal.entries_chained`: every entry names the entry before it in its stream. A lost entry
//!   is noticed.
//! - `journal.checkpoint_before_reuse`: a segment is written over only after a durable checkpoint
//!   says that all its entries are trimmed.
//! - `journal.label_names_copies`: the label names the disks whose copies are current. It is
//!   written before an append is acknowledged that a former copy missed, and before a copy is made
//!   anew. Without copies nothing is accepted.
//! - `journal.copies_replenished`: a copy counts for as long as its disk is in use. While there are
//!   too few copies, further disks are tried again and again.
//! - `journal.healed_backwards`: at opening, copies that differ are made equal from the newest
//!   segment to the oldest, and each segment from its end to its beginning. A copy whose healing was
//!   cut short lacks its beginning, not its end, and that is noticed.
//! - `journal.loss_refused`: a journal is damaged when its copies do not reach what the labels
//!   prove (`label.journal_batch_proven`), or when nothing is left of it. Then the pool is not
//!   opened and nothing is written, unless a person accepts the loss.
//!
//! The files of all segments in use are held open. When somebody removes them by name from all
//! disks, that is noticed before more is acknowledged, and they are written anew from the open
//! files.
//!
//! A segment file is filled with zeros when it is made, so that a sync has no metadata to write.
//! The next file is made ready beforehand, on a thread of its own.

mod batch;
pub mod check;
mod copies;
mod copy;
pub mod format;
mod log;
mod mend;
mod open;
mod queue;
pub mod replay;
pub mod salvage;
mod segment_file;
mod segments;
mod stored;
#[cfg(test)]
mod tests;
mod writer;

use crate::disk::{DiskIo, read_file};

pub use log::Journal;
pub use queue::Shared;
pub use stored::{help, read};

/// Whether some segment on this disk says that it is this pool's.
pub fn belongs_to(disk: &dyn DiskIo, pool: uuid::Uuid) -> bool {
    let bytes_max = format::SegmentHeader::BYTES as u64;
    let is_ours = |name: &String| {
        let bytes = read_file(disk, &format!("{}/{name}", segments::DIRECTORY), bytes_max);
        bytes.is_ok_and(|bytes| format::SegmentHeader::decode(&bytes, pool).is_some())
    };
    disk.list(segments::DIRECTORY).unwrap_or_default().iter().any(is_ours)
}

/// Removes the journal of a disk that has left.
pub fn erase(disk: &dyn DiskIo) {
    for name in disk.list(segments::DIRECTORY).unwrap_or_default() {
        let _ = disk.remove(&format!("{}/{name}", segments::DIRECTORY));
    }
    let _ = disk.remove_directory(segments::DIRECTORY);
}
