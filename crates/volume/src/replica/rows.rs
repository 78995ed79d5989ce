//! A new engine gets the rows that a snapshot shows.

use std::collections::HashMap;

use bytes::Bytes;
use larder_fs::*;

use super::delta::TABLES;
use crate::data::{EXTENT_TAG, Tally, decode_extent};
use crate::keys::{self, tag};
use crate::meta::{Batch, Meta};
use crate::snapshots::View;

const PAGE: usize = 1024;

/// Copies all that a snapshot shows, and counts.
pub(crate) async fn copy_rows(meta: &dyn Meta, view: &View) -> FsResult<Tally> {
    for table in TABLES.into_iter().filter(|table| ![tag::INODE, EXTENT_TAG].contains(table)) {
        copy_table(meta, view, table).await?;
    }
    copy_inodes(meta, view).await
}

async fn copy_table(meta: &dyn Meta, view: &View, table: u8) -> FsResult<()> {
    let (mut from, to) = keys::table_range(table);
    loop {
        let page = view.scan(&from, &to, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = [&last[..], &[0][..]].concat().into();
        let mut batch = Batch::default();
        page.into_iter().for_each(|(key, value)| batch.put(key, value));
        meta.write(batch).await?;
    }
}

/// Copies inodes with their extents, and counts.
async fn copy_inodes(meta: &dyn Meta, view: &View) -> FsResult<Tally> {
    let (mut from, to) = keys::table_range(tag::INODE);
    let mut tally = Tally::default();
    loop {
        let page = view.scan(&from, &to, PAGE).await?;
        let (Some((first, _)), Some((last, _))) = (page.first(), page.last()) else { return Ok(tally) };
        from = [&last[..], &[0][..]].concat().into();
        let mut allocated: HashMap<Ino, u64> = HashMap::new();
        for (key, _) in &page {
            allocated.insert(keys::ino_of(key)?, 0);
        }
        let extents =
            (keys::range_of(EXTENT_TAG, keys::ino_of(first)?).0, keys::range_of(EXTENT_TAG, keys::ino_of(last)?).1);
        copy_extents(meta, view, extents, &mut allocated, &mut tally).await?;
        let mut batch = Batch::default();
        for (key, value) in page {
            let ino = keys::ino_of(&key)?;
            let mut core = keys::decode_inode(ino, &value)?;
            // Reserved room belonged to the volume as it was.
            core.has_reserved = false;
            core.stored_bytes = allocated.get(&ino).copied().unwrap_or(0);
            core.attr.allocated = core.stored_bytes;
            let (key, value) = keys::encode_inode(ino, &core);
            batch.put(key, value);
            batch.usage.inodes += 1;
        }
        meta.write(batch).await?;
    }
}

async fn copy_extents(
    meta: &dyn Meta,
    view: &View,
    (mut from, to): (Bytes, Bytes),
    allocated: &mut HashMap<Ino, u64>,
    tally: &mut Tally,
) -> FsResult<()> {
    loop {
        let page = view.scan(&from, &to, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = [&last[..], &[0][..]].concat().into();
        let mut batch = Batch::default();
        for (key, value) in page {
            let (ino, _, extent) = decode_extent(&key, &value)?;
            if let Some(sum) = allocated.get_mut(&ino) {
                *sum = sum.saturating_add_signed(tally.count(&extent, true));
                batch.put(key, value);
            }
        }
        meta.write(batch).await?;
    }
}
