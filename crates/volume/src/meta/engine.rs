//! The engine's errors, pages and options in our terms.

use std::io::ErrorKind;

use bytes::Bytes;
use larder_base::LogError;
use slatedb::config::ScanOptions;
use slatedb::wal::WalError;
use slatedb::{DbIterator, IterationOrder};

use larder_fs::{FsError, FsResult};

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

/// Rows of more than a few blocks.
const LONG_SCAN_MIN: usize = 64;

/// Read-ahead of scans: a page of a listing is one or two blocks. A store behind a network is asked
/// for more at a time, and for several parts at once: each takes about as long as a block.
pub(super) fn scan_options(limit: usize, order: IterationOrder, is_far: bool) -> ScanOptions {
    let (bytes, tasks) = match (limit > LONG_SCAN_MIN, is_far) {
        (false, _) => (1, 1),
        (true, false) => (64 << 10, 1),
        (true, true) => (256 << 10, 4),
    };
    let options = ScanOptions::default().with_cache_blocks(true).with_order(order);
    options.with_read_ahead_bytes(bytes).with_max_fetch_tasks(tasks)
}

pub(super) async fn next_pair(iterator: &mut DbIterator) -> FsResult<Option<(Bytes, Bytes)>> {
    Ok(iterator.next().await.map_err(engine_error)?.map(|pair| (pair.key, pair.value)))
}
