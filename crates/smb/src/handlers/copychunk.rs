//! Server-side copy: FSCTL_SRV_REQUEST_RESUME_KEY, FSCTL_SRV_COPYCHUNK and
//! FSCTL_SRV_COPYCHUNK_WRITE (MS-SMB2 3.3.5.15.5, 3.3.5.15.6).
//!
//! A resume key is the source open's FileId. Opens of every tree of the
//! session are found by it, and no others: a key names nothing that its
//! session could not read anyway.
//!
//! Chunks are copied one after the other, each read whole before it is
//! written, so that one whose ranges overlap copies what was there before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::RwLock;

use crate::conn::state::{Connection, Open};
use crate::door::handle::FileHandle;
use crate::files::{FileRef, Trigger};
use crate::handlers::ioctl::response;
use crate::handlers::response::HandlerResponse;
use crate::handlers::shared::lookup_session;
use larder_smb_wire::access_mask::{FILE_APPEND_DATA, FILE_EXECUTE, FILE_READ_DATA, FILE_WRITE_DATA};
use larder_smb_wire::messages::{FileId, Fsctl, IoctlRequest};
use larder_smb_wire::ntstatus;

/// ServerSideCopyMaxNumberofChunks, and the limits of bytes in a chunk and
/// in all of them (MS-SMB2 3.3.3).
const CHUNKS_MAX: u32 = 256;
const CHUNK_BYTES_MAX: u32 = 1 << 20;
const TOTAL_BYTES_MAX: u32 = 16 << 20;

/// SourceKey, ChunkCount, Reserved (MS-SMB2 2.2.31.1).
const HEADER_BYTES: usize = 32;
/// SourceOffset, TargetOffset, Length, Reserved (MS-SMB2 2.2.31.1.1).
const CHUNK_BYTES: usize = 24;
/// SRV_COPYCHUNK_RESPONSE (MS-SMB2 2.2.32.1).
const RESPONSE_BYTES: u32 = 12;
/// SRV_REQUEST_RESUME_KEY (MS-SMB2 2.2.32.3): the key, ContextLength 0, and
/// the four bytes that Windows sends after it.
const RESUME_KEY_BYTES: u32 = 32;

pub(super) fn resume_key(req: &IoctlRequest, open: &Open) -> HandlerResponse {
    if req.max_output_response < RESUME_KEY_BYTES {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let mut key = vec![0; RESUME_KEY_BYTES as usize];
    key[..8].copy_from_slice(&open.file_id.persistent.to_le_bytes());
    key[8..16].copy_from_slice(&open.file_id.volatile.to_le_bytes());
    response(req.ctl_code, req.file_id, key)
}

/// A chunk to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    from: u64,
    to: u64,
    len: u32,
}

/// A parsed SRV_COPYCHUNK_COPY.
#[derive(Debug, PartialEq, Eq)]
struct Copy {
    source: FileId,
    chunks: Vec<Chunk>,
}

/// Why a request is not carried out.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Malformed,
    /// A limit is exceeded: the response says which there are.
    Limits,
}

impl Copy {
    /// The open that is copied from and the number of chunks.
    fn header(input: &[u8]) -> Result<(FileId, u32), Refused> {
        let header = input.get(..HEADER_BYTES).ok_or(Refused::Malformed)?;
        let source = FileId::new(le_u64(&header[..8]), le_u64(&header[8..16]));
        Ok((source, le_u32(&header[24..28])))
    }

    fn parse(input: &[u8]) -> Result<Self, Refused> {
        let (source, count) = Self::header(input)?;
        if count > CHUNKS_MAX {
            return Err(Refused::Limits);
        }
        let end = HEADER_BYTES + count as usize * CHUNK_BYTES;
        let list = input.get(HEADER_BYTES..end).ok_or(Refused::Malformed)?;
        let chunks: Vec<Chunk> = list
            .chunks_exact(CHUNK_BYTES)
            .map(|c| Chunk { from: le_u64(&c[..8]), to: le_u64(&c[8..16]), len: le_u32(&c[16..20]) })
            .collect();
        let fits = chunks.iter().all(|c| c.len != 0 && c.len <= CHUNK_BYTES_MAX);
        let total: u64 = chunks.iter().map(|c| u64::from(c.len)).sum();
        if !fits || total > u64::from(TOTAL_BYTES_MAX) {
            return Err(Refused::Limits);
        }
        Ok(Self { source, chunks })
    }
}

/// Parses `data` as the input of FSCTL_SRV_COPYCHUNK.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(copy) = Copy::parse(data) {
        assert!(copy.chunks.len() * CHUNK_BYTES <= data.len());
    }
}

fn le_u64(b: &[u8]) -> u64 {
    u64::from_le_bytes(b.try_into().expect("8 bytes"))
}

fn le_u32(b: &[u8]) -> u32 {
    u32::from_le_bytes(b.try_into().expect("4 bytes"))
}

/// How far a copy got.
#[derive(Default)]
struct Progress {
    chunks: u32,
    bytes: u32,
}

pub(super) async fn copy(
    conn: &Arc<Connection>,
    session_id: u64,
    req: &IoctlRequest,
    input: &[u8],
    target: &Arc<RwLock<Open>>,
) -> HandlerResponse {
    if req.max_output_response < RESPONSE_BYTES {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let Ok((source, _)) = Copy::header(input) else {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    let Some(source) = find_open(conn, session_id, source) else {
        return HandlerResponse::err(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND);
    };
    let to = target.read().await;
    // One open copied within is locked once: a second lock of the same
    // would wait for a CLOSE that waits for the first.
    let from = match Arc::ptr_eq(&source, target) {
        true => None,
        false => Some(source.read().await),
    };
    let from = from.as_deref().unwrap_or(&to);
    let write_only = req.ctl_code == Fsctl::SRV_COPYCHUNK_WRITE;
    if !may_copy(from, &to, write_only) {
        return HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let copy = match Copy::parse(input) {
        Ok(copy) => copy,
        Err(Refused::Malformed) => return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
        Err(Refused::Limits) => return limits(req),
    };
    let mut done = Progress::default();
    let result = copy_chunks(from, &to, &copy.chunks, &mut done).await;
    if done.bytes > 0 {
        to.wrote.store(true, Ordering::Release);
        to.restore_fixed_times().await;
    }
    answer(req, done, result.err().unwrap_or(ntstatus::STATUS_SUCCESS))
}

/// MS-SMB2 3.3.5.15.6: the access both opens need.
fn may_copy(from: &Open, to: &Open, write_only: bool) -> bool {
    let has = |open: &Open, any: u32| open.granted_access & any != 0;
    has(to, FILE_WRITE_DATA | FILE_APPEND_DATA)
        && (write_only || has(to, FILE_READ_DATA))
        && has(from, FILE_READ_DATA | FILE_EXECUTE)
        && !from.is_directory
        && !to.is_directory
}

/// The open `id` in any tree of the session.
fn find_open(conn: &Arc<Connection>, session_id: u64, id: FileId) -> Option<Arc<RwLock<Open>>> {
    let session = lookup_session(conn, session_id).ok()?;
    session.trees.values().iter().find_map(|tree| tree.file(id))
}

/// FSCTL_DUPLICATE_EXTENTS_TO_FILE (MS-FSCC 2.3.7.2, MS-SMB2 3.3.5.15.17): the source's FileId, its offset, the target's, the
/// number of bytes.
const DUPLICATE_BYTES: usize = 40;

/// All or nothing; nothing is copied where extents cannot be shared.
pub(super) async fn duplicate(
    conn: &Arc<Connection>,
    session_id: u64,
    req: &IoctlRequest,
    input: &[u8],
    target: &Arc<RwLock<Open>>,
) -> HandlerResponse {
    let Some(input) = input.get(..DUPLICATE_BYTES) else {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    let source = FileId::new(le_u64(&input[..8]), le_u64(&input[8..16]));
    let (from_at, to_at, len) = (le_u64(&input[16..24]), le_u64(&input[24..32]), le_u64(&input[32..40]));
    let Some(source) = find_open(conn, session_id, source) else {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_HANDLE);
    };
    let to = target.read().await;
    let from = match Arc::ptr_eq(&source, target) {
        true => None,
        false => Some(source.read().await),
    };
    let from = from.as_deref().unwrap_or(&to);
    if !may_copy(from, &to, true) || to.granted_access & FILE_WRITE_DATA == 0 {
        return HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED);
    }
    match duplicate_range(from, &to, (from_at, to_at, len)).await {
        Ok(()) => {
            to.wrote.store(true, Ordering::Release);
            to.restore_fixed_times().await;
            response(req.ctl_code, req.file_id, Vec::new())
        }
        Err(status) => HandlerResponse::err(status),
    }
}

async fn duplicate_range(from: &Open, to: &Open, (from_at, to_at, len): (u64, u64, u64)) -> Result<(), u32> {
    let closed = ntstatus::STATUS_FILE_CLOSED;
    let (Some(source), Some(source_file)) = (&from.handle, &from.file) else {
        return Err(closed);
    };
    let (Some(target), Some(target_file)) = (&to.handle, &to.file) else {
        return Err(closed);
    };
    let (Some(from_end), Some(to_end)) = (from_at.checked_add(len), to_at.checked_add(len)) else {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    // MS-FSA 2.1.5.10.4: the target is as long as is needed before, and the ranges of one file lie apart.
    if from_end > size(source.as_ref()).await? || to_end > size(target.as_ref()).await? {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    source_file.check_io(from_at, len, false)?;
    target_file.check_io(to_at, len, true)?;
    target_file.break_leases(Trigger::Write);
    let shared = target.share_from(source, from_at, to_at, len).await;
    target_file.break_leases(Trigger::Write);
    match shared? {
        true => Ok(()),
        false => Err(ntstatus::STATUS_NOT_SUPPORTED),
    }
}

async fn copy_chunks(from: &Open, to: &Open, chunks: &[Chunk], done: &mut Progress) -> Result<(), u32> {
    let closed = ntstatus::STATUS_FILE_CLOSED;
    let (Some(source), Some(source_file)) = (&from.handle, &from.file) else {
        return Err(closed);
    };
    let (Some(target), Some(target_file)) = (&to.handle, &to.file) else {
        return Err(closed);
    };
    let append_only = to.granted_access & FILE_WRITE_DATA == 0;
    let mut rest = chunks;
    while let Some(chunk) = rest.first() {
        let count = run(rest);
        let (chunks, after) = rest.split_at(count);
        if !append_only
            && let Some(bytes) =
                share_run((source.as_ref(), source_file), (target.as_ref(), target_file), chunks).await?
        {
            done.chunks += count as u32;
            done.bytes += bytes;
            rest = after;
            continue;
        }
        rest = &rest[1..];
        let len = u64::from(chunk.len);
        if chunk.from.checked_add(len).is_none() || chunk.to.checked_add(len).is_none() {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        source_file.check_io(chunk.from, len, false)?;
        target_file.check_io(chunk.to, len, true)?;
        if append_only && chunk.to < size(target.as_ref()).await? {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        let data = read_all(source.as_ref(), chunk).await?;
        target_file.break_leases(Trigger::Write);
        let written = write_all(target.as_ref(), chunk.to, data).await;
        // A lease granted meanwhile does not keep the old contents cached.
        target_file.break_leases(Trigger::Write);
        written?;
        done.chunks += 1;
        done.bytes += chunk.len;
    }
    Ok(())
}

/// How many chunks at the front are one range of both files.
fn run(chunks: &[Chunk]) -> usize {
    let follows = |pair: &[Chunk]| {
        let len = u64::from(pair[0].len);
        pair[0].from.checked_add(len) == Some(pair[1].from) && pair[0].to.checked_add(len) == Some(pair[1].to)
    };
    chunks.len().min(1) + chunks.windows(2).take_while(|pair| follows(pair)).count()
}

/// Lets the target refer to a run of chunks of the source ([`FileHandle::copy_from`]). `None`: they
/// are copied one by one.
async fn share_run(
    (source, source_file): (&FileHandle, &FileRef),
    (target, target_file): (&FileHandle, &FileRef),
    chunks: &[Chunk],
) -> Result<Option<u32>, u32> {
    let Some(first) = chunks.first() else { return Ok(None) };
    let len: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
    let (Some(from_end), Some(to_end)) = (first.from.checked_add(len), first.to.checked_add(len)) else {
        return Ok(None);
    };
    let is_overlapping = source.is_same_file(target) && first.from < to_end && first.to < from_end;
    // What is wrong with one chunk is told when it is copied.
    if is_overlapping
        || source_file.check_io(first.from, len, false).is_err()
        || target_file.check_io(first.to, len, true).is_err()
        || size(source).await? < from_end
    {
        return Ok(None);
    }
    target_file.break_leases(Trigger::Write);
    let shared = target.copy_from(source, first.from, first.to, len).await;
    target_file.break_leases(Trigger::Write);
    // What was shared of a part is copied once more, with the same result.
    let is_whole = shared? == len;
    Ok(is_whole.then_some(len as u32))
}

async fn size(handle: &FileHandle) -> Result<u64, u32> {
    let info = handle.stat().await?;
    Ok(info.end_of_file)
}

/// The bytes of `chunk`. One that passes the end of the file fails, with
/// STATUS_INVALID_VIEW_SIZE as in Windows.
async fn read_all(handle: &FileHandle, chunk: &Chunk) -> Result<Vec<Bytes>, u32> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < chunk.len {
        let more = handle.read_chunks(chunk.from + u64::from(at), chunk.len - at).await?;
        let len: usize = more.iter().map(Bytes::len).sum();
        if len == 0 {
            return Err(ntstatus::STATUS_INVALID_VIEW_SIZE);
        }
        at = u32::try_from(len)
            .ok()
            .and_then(|len| at.checked_add(len))
            .filter(|&at| at <= chunk.len)
            .ok_or(ntstatus::STATUS_INTERNAL_ERROR)?;
        pieces.extend(more);
    }
    Ok(pieces)
}

async fn write_all(handle: &FileHandle, mut at: u64, data: Vec<Bytes>) -> Result<(), u32> {
    for mut piece in data {
        while !piece.is_empty() {
            let count = handle.write_bytes(at, piece.clone()).await?;
            let count = (count as usize).min(piece.len());
            if count == 0 {
                return Err(ntstatus::STATUS_DISK_FULL);
            }
            at += count as u64;
            piece = piece.slice(count..);
        }
    }
    Ok(())
}

/// A failure tells how much was copied before it.
fn answer(req: &IoctlRequest, done: Progress, status: u32) -> HandlerResponse {
    counts(req, [done.chunks, 0, done.bytes], status)
}

/// MS-SMB2 3.3.5.15.6.2: a request past the limits is told them.
fn limits(req: &IoctlRequest) -> HandlerResponse {
    let limits = [CHUNKS_MAX, CHUNK_BYTES_MAX, TOTAL_BYTES_MAX];
    counts(req, limits, ntstatus::STATUS_INVALID_PARAMETER)
}

fn counts(req: &IoctlRequest, counts: [u32; 3], status: u32) -> HandlerResponse {
    let output = counts.iter().flat_map(|n| n.to_le_bytes()).collect();
    let mut answer = response(req.ctl_code, req.file_id, output);
    answer.status = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(count: u32, chunks: &[(u64, u64, u32)]) -> Vec<u8> {
        let mut input = Vec::new();
        input.extend_from_slice(&7u64.to_le_bytes());
        input.extend_from_slice(&8u64.to_le_bytes());
        input.extend_from_slice(&[0; 8]);
        input.extend_from_slice(&count.to_le_bytes());
        input.extend_from_slice(&[0; 4]);
        for (from, to, len) in chunks {
            input.extend_from_slice(&from.to_le_bytes());
            input.extend_from_slice(&to.to_le_bytes());
            input.extend_from_slice(&len.to_le_bytes());
            input.extend_from_slice(&[0; 4]);
        }
        input
    }

    #[test]
    fn requests_are_read_within_the_limits() {
        let copy = Copy::parse(&input(1, &[(1, 2, 3)])).unwrap();
        assert_eq!(copy.source, FileId::new(7, 8));
        let chunk = Chunk { from: 1, to: 2, len: 3 };
        assert_eq!(copy.chunks, [chunk]);
        assert!(Copy::parse(&input(0, &[])).unwrap().chunks.is_empty());

        let full: Vec<_> = vec![(0, 0, CHUNK_BYTES_MAX); 16];
        assert!(Copy::parse(&input(16, &full)).is_ok());
        for (request, refused) in [
            (input(1, &[]), Refused::Malformed),
            (input(0, &[])[..31].to_vec(), Refused::Malformed),
            (input(257, &[]), Refused::Limits),
            (input(u32::MAX, &[]), Refused::Limits),
            (input(1, &[(0, 0, 0)]), Refused::Limits),
            (input(1, &[(0, 0, CHUNK_BYTES_MAX + 1)]), Refused::Limits),
            (input(17, &vec![(0, 0, CHUNK_BYTES_MAX); 17]), Refused::Limits),
        ] {
            assert_eq!(Copy::parse(&request), Err(refused));
        }
    }
}
