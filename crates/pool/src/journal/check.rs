//! Verifying the copies of an open journal against each other.
//!
//! Segments before the one being written are as they will stay until they are written over; of the
//! one being written the part that all copies have is (`journal.sectors_written_once`). So both can
//! be read while the writer goes on. Whether a segment was written over meanwhile is asked before
//! anything is made good, under the lock that giving it away needs.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use super::Shared;
use super::format::{ALIGN_BYTES, SegmentHeader};
use super::mend::heal_copy;
use super::replay::{self, SegmentImage};
use super::segment_file::SEGMENT_BYTES_MAX;
use super::segments::file_name;
use crate::disk::{DIRECT_ALIGN, DiskIo};
use crate::heal::scrub::Records;
use crate::member::member_disk::ErrorKind;
use crate::member::members::Members;

/// A segment to be checked.
struct Due {
    sequence: u64,
    file: u32,
    bytes: u64,
    /// Where the entries lie that are needed.
    live: Vec<u64>,
    /// The end of the bytes that no longer change, on all copies: the whole segment, or for the one
    /// being written the part that is durable for certain.
    settled: u64,
}

/// Reads each segment in use from every copy and makes those equal that differ. Blocks.
pub fn check_copies(members: &Arc<Members>, shared: &Shared) -> Records {
    let (dues, slots) = due(shared);
    let mut found = Records::default();
    for due in dues {
        let copies = members.work.side_by_side(slots.clone(), |slot| {
            let disk = members.member(slot).ok_or(io::ErrorKind::NotFound)?.io()?;
            let (members, file, bytes) = (members.clone(), due.file, due.bytes.min(SEGMENT_BYTES_MAX));
            members.clone().work.on_disk(&disk, move |disk| read_segment(&members, disk, file, bytes))
        });
        let copies: Vec<Vec<u8>> = copies.into_iter().map(io::Result::unwrap_or_default).collect();
        let of_copies = copies.iter().filter_map(|copy| SegmentHeader::decode_in(copy, members.id, due.file));
        let header = of_copies.filter(|header| header.sequence == due.sequence).max_by_key(|header| header.file);
        let header = header.unwrap_or(SegmentHeader { sequence: due.sequence, bytes: due.bytes, file: Some(due.file) });
        let image = SegmentImage { header, copies };
        let mut merged = replay::scan(members.id, &image);
        merged.truncate(due.settled as usize);
        let differing = slots.iter().zip(&image.copies).filter(|(_, copy)| !merged.is_in(copy));
        let differing: Vec<(u8, u64)> = differing.map(|(slot, copy)| (*slot, bytes_differing(copy, &merged))).collect();
        let is_there = |offset: &u64| merged.records.iter().any(|(_, location)| location.offset == *offset);
        if differing.is_empty() && due.live.iter().all(is_there) {
            continue;
        }
        let healed = {
            let state = shared.state.lock();
            if state.segments.file_of(due.sequence) != Some(due.file) || state.segments.copies() != slots {
                // Written over meanwhile: its contents are new.
                continue;
            }
            let lost =
                due.live.iter().filter(|offset| !is_there(offset) && state.needs(due.sequence, **offset)).count();
            if lost > 0 {
                // Entries damaged on all copies are still in memory, and the metadata engine stores
                // them elsewhere soon.
                tracing::error!(pool = %members.name, lost, "journal entries are damaged on all disks");
                found.errors += lost as u64;
                found.unrepaired += lost as u64;
                continue;
            }
            let heal = |(slot, bytes): &(u8, u64)| (*slot, *bytes, heal_copy(members, *slot, due.file, &merged));
            differing.iter().map(heal).collect::<Vec<_>>()
        };
        for (slot, bytes, result) in healed {
            let Some(member) = members.member(slot) else { continue };
            found.errors += 1;
            let text = format!("a journal copy differs in {}", file_name(due.file));
            members.count_error(member, ErrorKind::Checksum, &text);
            match result {
                Ok(()) => {
                    found.repaired += 1;
                    found.repaired_bytes += bytes;
                }
                Err(error) => members.write_failed(slot, &error),
            }
        }
    }
    found
}

/// In whole blocks of the known bytes.
fn bytes_differing(copy: &[u8], known: &replay::Scanned) -> u64 {
    let step = ALIGN_BYTES as usize;
    let blocks = known.pieces().flat_map(|(at, piece)| (at..).step_by(step).zip(piece.chunks(step)));
    let differs = |(at, block): &(usize, &[u8])| copy.get(*at..at + block.len()) != Some(*block);
    blocks.filter(differs).map(|(_, block)| block.len() as u64).sum()
}

/// The segments that something is needed of, and the disks that have them.
fn due(shared: &Shared) -> (Vec<Due>, Vec<u8>) {
    let state = shared.state.lock();
    let used = state.segments.in_use();
    let last = used.last().map(|(sequence, _, _)| *sequence);
    let due = |(sequence, file, bytes): (u64, u32, u64)| {
        let entries = state.streams.values().flat_map(|stream| stream.state.entries.values());
        let live: Vec<u64> = entries.filter(|at| at.segment == sequence).map(|at| at.offset).collect();
        // A batch is durable on all copies before its entries exist, and so is everything before it
        // (`journal.one_torn_batch`).
        let durable = live.iter().max().map_or(ALIGN_BYTES, |offset| offset / ALIGN_BYTES * ALIGN_BYTES);
        Due { sequence, file, bytes, settled: if last == Some(sequence) { durable } else { bytes }, live }
    };
    (used.into_iter().map(due).collect(), state.segments.copies().to_vec())
}

/// As the disk has it, past the kernel's cache.
fn read_segment(members: &Members, disk: &dyn DiskIo, file: u32, bytes: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(&file_name(file), false)?;
    let mut buffer = members.buffers.take((bytes as usize).next_multiple_of(DIRECT_ALIGN));
    let count = file.read_direct_at(&mut [IoSliceMut::new(buffer.bytes_mut())], 0)?;
    Ok(buffer.as_ref().get(..count.min(bytes as usize)).unwrap_or_default().to_vec())
}
