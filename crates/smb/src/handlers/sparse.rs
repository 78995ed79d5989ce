//! Sparse files: FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA and
//! FSCTL_QUERY_ALLOCATED_RANGES (MS-FSA 2.1.5.10.35, 2.1.5.10.36,
//! 2.1.5.10.22), for stores that have them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::conn::state::Open;
use crate::error::SmbError;
use crate::files::Trigger;
use crate::handlers::ioctl::response;
use crate::handlers::response::HandlerResponse;
use larder_smb_wire::access_mask::{FILE_APPEND_DATA, FILE_READ_DATA, FILE_WRITE_ATTRIBUTES, FILE_WRITE_DATA};
use larder_smb_wire::file_info::FILE_ATTRIBUTE_SPARSE_FILE;
use larder_smb_wire::messages::IoctlRequest;
use larder_smb_wire::ntstatus;

/// FILE_ALLOCATED_RANGE_BUFFER (MS-FSCC 2.3.52): FileOffset, Length.
const RANGE_BYTES: usize = 16;
/// Most ranges told at once, whatever room the client has, and looked at for it.
const RANGES_MAX: usize = 4096;
/// Ranges are told by whole blocks of this size, as file systems of servers have them. Linux' client fills the holes of a file
/// that it allocates (`fallocate`) by writing, and on an encrypted mount some kernels write garbage there; it spares
/// holes that share a block with data.
const BLOCK_BYTES: u64 = 4096;

fn done(req: &IoctlRequest, result: Result<Vec<u8>, u32>) -> HandlerResponse {
    match result {
        Ok(output) => response(req.ctl_code, req.file_id, output),
        Err(status) => HandlerResponse::err(status),
    }
}

/// A store without sparse files refuses as a file system without them.
fn status(e: SmbError) -> u32 {
    match e {
        SmbError::NotSupported => ntstatus::STATUS_INVALID_DEVICE_REQUEST,
        e => e.to_nt_status(),
    }
}

/// No input asks for a sparse file, as does any first byte but zero
/// (MS-FSCC 2.3.64).
pub(super) async fn set_sparse(req: &IoctlRequest, input: &[u8], open: &Open) -> HandlerResponse {
    let sparse = input.first().is_none_or(|&b| b != 0);
    let needed = FILE_WRITE_DATA | FILE_WRITE_ATTRIBUTES | FILE_APPEND_DATA;
    let result = match &open.handle {
        _ if open.is_directory => Err(ntstatus::STATUS_INVALID_PARAMETER),
        _ if open.granted_access & needed == 0 => Err(ntstatus::STATUS_ACCESS_DENIED),
        Some(handle) => handle.set_sparse(sparse).await.map_err(status),
        None => Err(ntstatus::STATUS_FILE_CLOSED),
    };
    done(req, result.map(|()| Vec::new()))
}

/// The range an input of two signed 64-bit numbers gives, as `end` makes its
/// end of them. Fails with STATUS_INVALID_PARAMETER for one that is negative
/// or passes the largest offset.
fn range(input: &[u8], end: impl Fn(i64, i64) -> Option<i64>) -> Result<Range<u64>, u32> {
    let invalid = ntstatus::STATUS_INVALID_PARAMETER;
    let number = |at: usize| {
        let bytes = input.get(at..at + 8)?.try_into().ok()?;
        Some(i64::from_le_bytes(bytes)).filter(|&n| n >= 0)
    };
    let (start, second) = number(0).zip(number(8)).ok_or(invalid)?;
    let end = end(start, second).filter(|&end| end >= start).ok_or(invalid)?;
    Ok(start as u64..end as u64)
}

pub(super) async fn set_zero_data(req: &IoctlRequest, input: &[u8], open: &Open) -> HandlerResponse {
    done(req, zero(input, open).await.map(|()| Vec::new()))
}

async fn zero(input: &[u8], open: &Open) -> Result<(), u32> {
    // FileOffset, BeyondFinalZero (MS-FSCC 2.3.71).
    let range = range(input, |_, beyond| Some(beyond))?;
    if open.is_directory {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if open.granted_access & FILE_WRITE_DATA == 0 {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let (Some(handle), Some(file)) = (&open.handle, &open.file) else {
        return Err(ntstatus::STATUS_FILE_CLOSED);
    };
    let len = range.end - range.start;
    if len == 0 {
        return Ok(());
    }
    file.check_io(range.start, len, true)?;
    file.break_leases(Trigger::Write);
    let result = handle.zero_range(range).await.map_err(status);
    // A lease granted meanwhile does not keep the old contents cached.
    file.break_leases(Trigger::Write);
    result?;
    open.wrote.store(true, Ordering::Release);
    open.restore_fixed_times().await;
    Ok(())
}

pub(super) async fn allocated_ranges(req: &IoctlRequest, input: &[u8], open: &Open) -> HandlerResponse {
    let room = req.max_output_response as usize / RANGE_BYTES;
    let (ranges, more) = match query(input, open).await {
        Ok(found) => found,
        Err(status) => return HandlerResponse::err(status),
    };
    if room == 0 && !ranges.is_empty() {
        return HandlerResponse::err(ntstatus::STATUS_BUFFER_TOO_SMALL);
    }
    let fits = ranges.len().min(room).min(RANGES_MAX);
    let mut output = Vec::with_capacity(fits * RANGE_BYTES);
    for range in &ranges[..fits] {
        output.extend_from_slice(&range.start.to_le_bytes());
        output.extend_from_slice(&(range.end - range.start).to_le_bytes());
    }
    let mut answer = response(req.ctl_code, req.file_id, output);
    if fits < ranges.len() || more {
        answer.status = ntstatus::STATUS_BUFFER_OVERFLOW;
    }
    answer
}

/// The allocated ranges the client asks about, and whether there may be more.
async fn query(input: &[u8], open: &Open) -> Result<(Vec<Range<u64>>, bool), u32> {
    // FileOffset, Length.
    let asked = range(input, i64::checked_add)?;
    if open.is_directory {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if open.granted_access & FILE_READ_DATA == 0 {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    let handle = open.handle.as_ref().ok_or(ntstatus::STATUS_FILE_CLOSED)?;
    let info = handle.stat().await?;
    let asked = asked.start..asked.end.min(info.end_of_file);
    if asked.is_empty() {
        return Ok((Vec::new(), false));
    }
    // A file that is not marked sparse is told as allocated throughout.
    if info.attributes() & FILE_ATTRIBUTE_SPARSE_FILE == 0 {
        return Ok((vec![asked], false));
    }
    let end = asked.end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(asked.end);
    let blocks = asked.start / BLOCK_BYTES * BLOCK_BYTES..end;
    let found = handle.allocated_ranges(blocks, RANGES_MAX).await.map_err(status)?;
    let more = found.len() >= RANGES_MAX;
    Ok((by_blocks(found, &asked), more))
}

/// The ranges of `asked` whose blocks hold something of `found`, which is in order.
fn by_blocks(found: Vec<Range<u64>>, asked: &Range<u64>) -> Vec<Range<u64>> {
    let mut told: Vec<Range<u64>> = Vec::new();
    for range in found {
        let start = (range.start / BLOCK_BYTES * BLOCK_BYTES).max(asked.start);
        let end = range.end.checked_next_multiple_of(BLOCK_BYTES).map_or(asked.end, |end| end.min(asked.end));
        match told.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ if start < end => told.push(start..end),
            _ => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_by_blocks() {
        let check = |found: &[(u64, u64)], asked: Range<u64>, expected: &[(u64, u64)]| {
            let told = by_blocks(found.iter().map(|&(start, end)| start..end).collect(), &asked);
            let told: Vec<_> = told.into_iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(told, expected, "{found:?} in {asked:?}");
        };
        check(&[], 0..100_000, &[]);
        check(&[(5000, 5001)], 0..100_000, &[(4096, 8192)]);
        check(&[(1, 2), (8190, 8194)], 0..100_000, &[(0, 12288)]);
        check(&[(1, 2), (9000, 9001)], 0..100_000, &[(0, 4096), (8192, 12288)]);
        // No further than the client asked, and than the file reaches.
        check(&[(4100, 4200)], 4300..6000, &[(4300, 6000)]);
        check(&[(4100, 4200)], 8192..9000, &[]);
        check(&[(0, 1), (u64::MAX - 1, u64::MAX)], 0..u64::MAX, &[(0, 4096), (u64::MAX - 4095, u64::MAX)]);
    }

    #[test]
    fn ranges_are_not_negative_and_do_not_overflow() {
        let input = |a: i64, b: i64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        let sum = |a: i64, b: i64| range(&input(a, b), i64::checked_add).ok();
        let until = |a: i64, b: i64| range(&input(a, b), |_, b| Some(b)).ok();
        assert_eq!(sum(5, 3), Some(5..8));
        assert_eq!(until(5, 8), Some(5..8));
        assert_eq!(until(5, 5), Some(5..5));
        for refused in [sum(-1, 3), sum(1, -3), sum(i64::MAX, 1), until(5, 4), until(-5, 4)] {
            assert_eq!(refused, None);
        }
        assert!(range(&[0; 15], |_, b| Some(b)).is_err());
        assert_eq!(range(&[0; 17], |_, b| Some(b)), Ok(0..0));
    }
}
