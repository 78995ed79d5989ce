//! The engine's errors, pages and options in our terms.

use std::io::ErrorKind;

use bytes::Bytes;
use larder_base::LogError;
use slatedb::config::ScanOptions;
use slatedb::wal::WalError;
use slatedb::{DbIterator, IterationOrder};

use crate::types::{FsError, FsResult};

/// A store or a log without room. The engine's error of the log does not name its source.
fn is_no_room(cause: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(WalError::Unavailable(of_log)) = cause.downcast_ref::<WalError>() {
        return matches!(of_log.downcast_ref::<LogError>(), Some(LogError::Full(_)));
    }
    cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == ErrorKind::StorageFull)
}

pub(crate) fn engine_error(error: slatedb::Error) -> FsError {
    use std::error::Error;
    let mut text = error.to_string();
    let mut source = error.source();
    let mut is_full = false;
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        is_full |= is_no_room(cause);
        source = cause.source();
    }
    if is_full {
        return FsError::NoSpace(format!("the metadata engine cannot store what it must: {text}"));
    }
    FsError::Io(format!("metadata engine: {text}").into())
}

/// Read-ahead of scans, in bytes: a page of a listing is one or two blocks.
pub(super) fn scan_options(limit: usize, order: IterationOrder) -> ScanOptions {
    let read_ahead = if limit > 64 { 64 << 10 } else { 1 };
    ScanOptions::default().with_cache_blocks(true).with_read_ahead_bytes(read_ahead).with_order(order)
}

pub(super) async fn next_pair(iterator: &mut DbIterator) -> FsResult<Option<(Bytes, Bytes)>> {
    Ok(iterator.next().await.map_err(engine_error)?.map(|pair| (pair.key, pair.value)))
}
