//! Tables of a store behind a network, brought into the cache while the engine opens.
//!
//! An engine that opens knows where its tables are, and nothing that is in them. The first look into a table would wait for its
//! filter, then for its index, then for a block: three round trips, for each table that may have the key.
//!
//! - `warm.one_request_a_table`: the filter and the index of a table lie side by side at its end, and come by one request. A table
//!   of at most [`WHOLE_BYTES_MAX`] comes whole.
//! - `warm.bounded`: at most [`TABLES_MAX`] tables and [`BYTES_MAX`] bytes, newest first, and a quarter of the cache.
//! - `warm.keeps_nobody`: it goes on in the background. A read that needs a table joins the request (`staged.joined`).

use std::ops::Range;
use std::sync::Arc;

use futures::StreamExt;
use object_store::path::Path;
use slatedb::{CacheTarget, Db, DbCacheManagerOps, PathResolver, VersionedManifest};

use super::staged::{Part, Staged};

/// Such a table is a young one, or most of what a small volume has. It takes a slow line (20 Mbit/s) less than half a second.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
/// As many young tables as there may be before writers wait.
const TABLES_MAX: usize = 64;
/// About the ends of as many full tables. A slow line (20 Mbit/s) is busy with it for three seconds.
const BYTES_MAX: u64 = 8 << 20;
/// Requests at the same time.
const AT_ONCE: usize = 8;

/// A table that is worth a request.
struct Table {
    id: slatedb::manifest::SsTableId,
    at: Path,
    range: Range<u64>,
}

/// Begins to bring the tables of an engine at `path` near. The future ends it.
pub(super) fn warm(db: &Db, staged: Arc<Staged>, path: &Path, cache_bytes: u64) -> impl Future<Output = ()> + use<> {
    let mut tables = plan(&db.manifest(), path, BYTES_MAX.min(cache_bytes / 4)).into_iter();
    // Known at once, so that the opening's own reads join them.
    let first: Vec<_> = tables.by_ref().take(AT_ONCE).map(|table| begin(&staged, table)).collect();
    let db = db.clone();
    async move {
        let rest = tables.map(move |table| begin(&staged, table));
        let all = futures::stream::iter(first.into_iter().chain(rest)).map(|(table, part)| finish(&db, table, part));
        all.buffer_unordered(AT_ONCE).collect().await
    }
}

fn plan(manifest: &VersionedManifest, path: &Path, bytes_max: u64) -> Vec<Table> {
    let resolver = PathResolver::new(path.clone(), manifest);
    let tables = manifest.all_sst_views().map(|view| {
        let info = &view.sst.info;
        let end = (info.index_offset + info.index_len).max(info.filter_offset + info.filter_len);
        let start = if end <= WHOLE_BYTES_MAX { 0 } else { info.filter_offset.min(info.index_offset) };
        Table { id: view.sst.id, at: resolver.sst_path(&view.sst.id), range: start..end }
    });
    let mut left = bytes_max;
    let fits = tables.take(TABLES_MAX).take_while(|table| {
        let bytes = table.range.end - table.range.start;
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    });
    fits.collect()
}

fn begin(staged: &Staged, table: Table) -> (Table, Part) {
    let part = staged.stage(table.at.clone(), table.range.clone());
    (table, part)
}

async fn finish(db: &Db, table: Table, part: Part) {
    if !part.is_here().await {
        return;
    }
    let mut targets = vec![CacheTarget::Filters, CacheTarget::Index];
    if table.range.start == 0 {
        targets.push(CacheTarget::data::<&[u8], _>(..));
    }
    if let Err(error) = db.warm_sst(table.id, &targets).await {
        // Whoever needs it reads it again, and hears of it.
        tracing::debug!(table = %table.at, %error, "a table was not brought near");
    }
}
