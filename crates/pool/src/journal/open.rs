//! Opening the journal: the copies are healed, and the streams rebuilt from the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::copies::{Copies, Current};
use super::format::{BatchHeader, Kind, SegmentHeader, segment_seed};
use super::mend::{clear_end, flush, heal};
use super::replay::{self, Rebuild, SegmentImage, StreamState};
use super::segments::{Segments, file_name};
use super::stored::{Stored, first_batch, lacking_copies, may_hide_a_batch, paths};
use super::writer::Writer;
use crate::error::PoolError;
use crate::history::EventKind;
use crate::member::members::Members;

/// Heals the copies of a journal that was read, and makes its writer. Blocks.
pub fn open_writer(
    members: Arc<Members>,
    stored: Stored,
) -> Result<(Writer, BTreeMap<String, StreamState>, Segments), PoolError> {
    let Stored { sources, images, spare, .. } = stored;
    let failed = |why: String| PoolError::Journal { pool: members.name.clone(), why };
    let mut segments = Segments::new(members.label().journal_bytes, sources.clone());
    let mut rebuild = Rebuild::default();
    let (mut sequence_last, mut batch_last, mut checkpoint_last) = (0, 0, 0);
    let mut behind = Vec::new();
    let (proven, mut lacking) = (members.label().journal_batch, BTreeSet::new());
    let last = images.keys().next_back().copied();
    let mut current = None;
    // `journal.healed_backwards`
    for (sequence, (file, image, bad)) in images.iter().rev() {
        let found = replay::scan(members.id, image);
        // In earlier segments the records after a hole tell what is missing.
        if last == Some(*sequence) && may_hide_a_batch(members.id, image, found.end, bad) {
            return Err(failed(format!("the end of {} cannot be read on any disk", file_name(*file))));
        }
        if last != Some(*sequence) || first_batch(members.id, image, &found) <= proven {
            lacking.extend(lacking_copies(&members, &sources, *file, image));
        }
        behind.extend(heal(&members, &sources, *file, &found));
        if last == Some(*sequence) {
            behind.extend(clear_end(&members, &sources, *file, found.end, bad));
            behind.extend(flush(&members, &sources, *file));
            current = go_on(members.id, image, found.end, *file);
        }
    }
    for (sequence, (file, image, _)) in &images {
        let found = replay::scan(members.id, image);
        sequence_last = sequence_last.max(*sequence);
        batch_last = batch_last.max(found.batch_last);
        segments.add(*sequence, *file, image.header.bytes);
        if found.records.iter().any(|(record, _)| record.kind == Kind::Checkpoint) {
            checkpoint_last = checkpoint_last.max(*sequence);
        }
        for (record, location) in &found.records {
            let from = location.offset as usize;
            let payload = found.merged.get(from..from + location.bytes as usize).unwrap_or_default();
            rebuild.apply(record, *location, payload);
        }
    }
    for slot in lacking {
        let text = format!(
            "{}: its copy of the journal was missing or damaged: made anew from the others",
            paths(&members, &[slot])
        );
        tracing::warn!(pool = %members.name, text);
        members.event(EventKind::Errors, text);
    }
    spare.into_iter().for_each(|(file, bytes)| segments.add_spare(file, bytes));
    let streams = rebuild.finish();
    for state in streams.values() {
        state.entries.values().for_each(|location| segments.remember(location.segment));
    }
    // Segments trimmed before the last checkpoint may be written over
    // (`journal.checkpoint_before_reuse`). Without this every opening would use up a segment, and a
    // server that is killed again and again would fill the journal with nothing.
    let covered = segments.coverable(checkpoint_last);
    segments.cover(&covered);
    let copies = Copies::open(members.clone(), sources, behind, current, &mut segments);
    Ok((Writer::new(members, copies, sequence_last + 1, batch_last.max(proven) + 1), streams, segments))
}

/// The place to go on in the last segment, unless a batch that was cut off lies there. A full
/// journal has no other room for the checkpoint that makes room
/// (`journal.checkpoint_before_reuse`).
fn go_on(pool: Uuid, image: &SegmentImage, end: u64, file: u32) -> Option<Current> {
    let SegmentHeader { sequence, bytes, .. } = image.header;
    let seed = segment_seed(pool, sequence);
    let begins =
        |copy: &Vec<u8>| copy.get(end as usize..).is_some_and(|rest| BatchHeader::decode(rest, seed, end).is_some());
    let is_fit = end <= bytes && !image.copies.iter().any(begins);
    is_fit.then_some(Current { sequence, file, bytes, offset: end })
}
