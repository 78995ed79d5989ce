//! Making copies of the journal equal: what was replayed once survives the loss of any m copies.
//!
//! At opening, differing copies of a segment are rewritten from the merged bytes. While the pool is
//! open, a disk that takes over as a copy gets every segment anew, merged from all copies there
//! are.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::format::ALIGN_BYTES;
use super::replay;
use super::segment_file::{SEGMENT_BYTES_MAX, merged, write_segment};
use super::segments::{DIRECTORY, file_name, parse_file_name};
use crate::disk::watch::{Watch, hangs};
use crate::disk::{DiskIo, read_file};
use crate::member::members::Members;

/// Makes all copies of a segment equal. Returns the slots of the disks where that failed.
pub fn heal(members: &Members, sources: &[u8], file: u32, found: &replay::Scanned) -> Vec<u8> {
    let mut behind = Vec::new();
    for slot in found.differing.iter().filter_map(|at| sources.get(*at)) {
        if !members.member(*slot).is_some_and(|member| member.is_writable()) {
            behind.push(*slot);
        } else if let Err(error) = heal_copy(members, *slot, file, found) {
            members.write_failed(*slot, &error);
            behind.push(*slot);
        }
    }
    behind
}

/// Writes the merged bytes of a segment to one disk, the beginning last: until then the copy is none.
/// Cut short from front to back it would pass for a whole one that ends earlier, and take the place
/// of the others when their disks are gone (`journal.healed_backwards`).
pub fn heal_copy(members: &Members, slot: u8, file: u32, found: &replay::Scanned) -> io::Result<()> {
    let io = members.member(slot).ok_or(io::ErrorKind::NotFound)?.io()?;
    let mut pieces: Vec<(usize, Vec<u8>)> = found.pieces().map(|(at, piece)| (at, piece.to_vec())).collect();
    if let Some((at, first)) = pieces.first_mut()
        && first.len() > ALIGN_BYTES as usize
    {
        let rest = first.split_off(ALIGN_BYTES as usize);
        let behind = *at + ALIGN_BYTES as usize;
        pieces.insert(1, (behind, rest));
    }
    members.work.on_disk(&io, move |io| {
        io.make_directory(DIRECTORY)?;
        let target = io.open(&file_name(file), true).or_else(|_| io.create(&file_name(file)))?;
        for (place, (at, piece)) in pieces.iter().enumerate().rev() {
            if place == 0 {
                target.sync()?;
            }
            target.write_at(&mut [IoSlice::new(piece)], *at as u64)?;
        }
        target.sync()?;
        io.sync_directory(DIRECTORY)
    })
}

/// Clears the first sector behind the end on copies that could not be read there. Such a copy may
/// have a batch that was never acknowledged, which the next opening must not find after other
/// batches have taken its place. Returns the slots of the disks where that failed.
pub fn clear_end(members: &Members, sources: &[u8], file: u32, end: u64, bad: &[BTreeSet<u64>]) -> Vec<u8> {
    let clear = |slot: u8| {
        let member = members.member(slot).filter(|member| member.is_writable()).ok_or(io::ErrorKind::NotFound)?;
        let target = member.io()?.open(&file_name(file), true)?;
        target.write_at(&mut [IoSlice::new(&[0; ALIGN_BYTES as usize])], end)?;
        target.sync()
    };
    let hidden = sources.iter().copied().zip(bad).filter(|(_, bad)| bad.range(end..).next().is_some());
    let fails = |slot: &u8| clear(*slot).inspect_err(|error| members.write_failed(*slot, error)).is_err();
    hidden.map(|(slot, _)| slot).filter(fails).collect()
}

/// Flushes the last segment before anything is answered: a process that was killed may have written
/// the last batch and not flushed it. Returns the slots of the disks where that failed.
pub fn flush(members: &Members, sources: &[u8], file: u32) -> Vec<u8> {
    let fails = |slot: &u8| {
        let Some(member) = members.member(*slot).filter(|member| member.is_writable()) else { return false };
        let flushed = member.io().and_then(|io| io.open(&file_name(file), true)?.sync());
        flushed.inspect_err(|error| members.write_failed(*slot, error)).is_err()
    };
    sources.iter().copied().filter(fails).collect()
}

/// Makes another copy of every segment, merged from all copies there are: damage on one of them
/// must not become damage on two. Files that lie ready there begin here, too: a file that is missing
/// on one disk and unreadable on another is taken for a segment in use, and the journal for damaged.
pub fn copy_all(members: &Members, sources: &[u8], target: u8, files: &[u32]) -> io::Result<()> {
    let disk = |slot: u8| members.member(slot).ok_or(io::ErrorKind::NotFound.into()).and_then(|member| member.io());
    let sources: Vec<Arc<dyn DiskIo>> = sources.iter().filter_map(|slot| disk(*slot).ok()).collect();
    if sources.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let target: Arc<dyn DiskIo> = disk(target)?;
    members.work.on_disk(&target, |target| {
        target.make_directory(DIRECTORY)?;
        for name in target.list(DIRECTORY)? {
            // Left from an earlier time as a copy.
            target.remove(&format!("{DIRECTORY}/{name}"))?;
        }
        Ok(())
    })?;
    let watches: Vec<Arc<Watch>> = sources.iter().filter_map(|source| source.watch()).collect();
    for file in files.iter().copied() {
        // Two steps: after a source hung, no thread is left that would write bytes read long ago.
        let (of_task, pool) = (sources.clone(), members.id);
        let read = move |disk: &Arc<dyn DiskIo>| read_file(&**disk, &file_name(file), SEGMENT_BYTES_MAX);
        let bytes = members.work.watched(&watches, move || merged(pool, file, &of_task, read));
        let bytes = bytes.unwrap_or_else(|| Err(hangs()))?;
        members.work.on_disk(&target, move |target| write_segment(target, file, &bytes).map(drop))?;
    }
    for file in files_on(members, &sources).into_iter().filter(|file| !files.contains(file)) {
        let begin = move |target: &dyn DiskIo| write_segment(target, file, &[0; ALIGN_BYTES as usize]).map(drop);
        members.work.on_disk(&target, begin)?;
    }
    members.work.on_disk(&target, |target| target.sync_directory(DIRECTORY).and_then(|()| target.sync_directory("")))
}

/// The segment files on these disks, as far as they can be listed.
fn files_on(members: &Members, disks: &[Arc<dyn DiskIo>]) -> BTreeSet<u32> {
    let lists = disks.iter().filter_map(|disk| members.work.on_disk(disk, |disk| disk.list(DIRECTORY)).ok());
    lists.flatten().filter_map(|name| parse_file_name(&name)).collect()
}
