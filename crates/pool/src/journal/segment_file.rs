//! The file of a segment on one disk: made, read, and written anew.
//!
//! A file is filled with zeros when it is made, so that a sync has no metadata to write.

use std::collections::BTreeSet;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use larder_base::log::MAX_PAYLOAD_BYTES;
use uuid::Uuid;

use super::format::{ALIGN_BYTES, SegmentHeader};
use super::replay::{self, SegmentImage};
use super::segments::{DIRECTORY, Next, file_name};
use crate::disk::{DiskFile, DiskIo, read_file};
use crate::member::members::Members;

/// Longest segment file read: bounds memory on the word of a directory.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const _: () = assert!(MAX_PAYLOAD_BYTES as u64 + (1 << 20) <= SEGMENT_BYTES_MAX, "the largest record fits a segment");
/// Zeros written at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// Opens the file that was made ready, or makes it now.
pub fn ready_file(members: &Members, io: &dyn DiskIo, next: Next) -> io::Result<Arc<dyn DiskFile>> {
    if next.ready
        && let Ok(file) = io.open(&file_name(next.file), true)
        && file.length()? >= next.bytes
    {
        // Its maker may have been killed before the sync.
        file.sync()?;
        return Ok(file);
    }
    make_file(members, io, next)
}

/// Makes a file of zeros. Written past the cache, so that a commit meanwhile does not wait behind
/// the whole file.
pub fn make_file(members: &Members, io: &dyn DiskIo, next: Next) -> io::Result<Arc<dyn DiskFile>> {
    io.make_directory(DIRECTORY)?;
    let file = io.create(&file_name(next.file))?;
    let mut zeros = members.buffers.take(ZEROS_BYTES);
    zeros.bytes_mut().fill(0);
    let mut at = 0;
    while at < next.bytes {
        let bytes = (next.bytes - at).min(ZEROS_BYTES as u64) as usize;
        file.write_direct_at(&zeros.as_ref()[..bytes], at)?;
        at += bytes as u64;
    }
    file.sync()?;
    io.sync_directory(DIRECTORY)?;
    Ok(file)
}

/// Writes a segment's file anew, as every copy is to have it.
pub fn write_segment(disk: &dyn DiskIo, file: u32, bytes: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    disk.make_directory(DIRECTORY)?;
    let copy = disk.create(&file_name(file))?;
    copy.write_at(&mut [IoSlice::new(bytes)], 0)?;
    copy.sync()?;
    Ok(copy)
}

/// Lists the journal's files. A disk that fails now and then must not hide a file, so a failed call
/// is repeated once.
pub fn list(disk: &dyn DiskIo) -> io::Result<Vec<String>> {
    match disk.list(DIRECTORY) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => disk.list(DIRECTORY),
        other => other,
    }
}

/// The readable part of a segment's copy.
#[derive(Default)]
pub struct Readable {
    pub(super) bytes: Vec<u8>,
    /// Offsets of unreadable sectors, which are zeros in `bytes`; `u64::MAX` for a file that cannot
    /// be read at all.
    pub(super) bad: BTreeSet<u64>,
}

impl Readable {
    /// An unreadable file may hold anything; a missing one holds nothing.
    pub fn none(error: &io::Error) -> Self {
        let is_hidden = error.kind() != io::ErrorKind::NotFound;
        Self { bytes: Vec::new(), bad: is_hidden.then_some(u64::MAX).into_iter().collect() }
    }
}

/// Reads a copy sector by sector where it cannot be read in one go, so that a bad sector hides only
/// itself. An unreadable first sector ends the attempt.
pub fn read_copy(disk: &dyn DiskIo, name: &str) -> io::Result<Readable> {
    match read_file(disk, name, SEGMENT_BYTES_MAX) {
        Ok(bytes) => return Ok(Readable { bytes, bad: BTreeSet::new() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let file = disk.open(name, false)?;
    let mut bytes = vec![0; file.length()?.min(SEGMENT_BYTES_MAX) as usize];
    let mut bad = BTreeSet::new();
    for (at, sector) in (0u64..).step_by(ALIGN_BYTES as usize).zip(bytes.chunks_mut(ALIGN_BYTES as usize)) {
        if let Err(error) = file.read_at(&mut [IoSliceMut::new(sector)], at) {
            if at == 0 {
                return Err(error);
            }
            sector.fill(0);
            bad.insert(at);
        }
    }
    Ok(Readable { bytes, bad })
}

/// Reads an open file, which may have lost its name.
pub fn read_open(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.length()?.min(SEGMENT_BYTES_MAX) as usize];
    let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A segment's bytes, merged from all its copies.
pub fn merged<T>(
    pool: Uuid,
    file: u32,
    sources: &[T],
    read: impl Fn(&T) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let (mut copies, mut failed) = (Vec::new(), None);
    for source in sources {
        match read(source) {
            Ok(bytes) => copies.push(bytes),
            Err(error) => failed = Some(error),
        }
    }
    // A segment in use lies somewhere: a new copy without it would be no copy.
    let longest = copies.iter().max_by_key(|copy| copy.len()).cloned();
    let mut bytes = longest.ok_or_else(|| failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))?;
    let headers = copies.iter().filter_map(|copy| SegmentHeader::decode_in(copy, pool, file));
    if let Some(header) = headers.max_by_key(|header| header.sequence) {
        for (at, piece) in replay::scan(pool, &SegmentImage { header, copies }).pieces() {
            if let Some(place) = bytes.get_mut(at..at + piece.len()) {
                place.copy_from_slice(piece);
            }
        }
    }
    Ok(bytes)
}
