//! The rows that differ between two snapshots of one volume.

use std::collections::BTreeSet;

use larder_fs::*;

use crate::data::EXTENT_TAG;
use crate::keys::{self, tag};
use crate::meta::changed::decode_changed;
use crate::meta::overlay::Changes;
use crate::snapshots::changes;
use crate::snapshots::compare::differing;
use crate::state::State;

const PAGE: usize = 1024;

/// The tables about inodes that make up a volume: reserved ranges and intents belong to the volume as it is now.
pub(super) const TABLES: [u8; 8] =
    [tag::INODE, tag::ENTRY, tag::COOKIE, tag::FOLDED, tag::XATTR, tag::ORPHAN, EXTENT_TAG, tag::SHARER];

/// The rows of the snapshot `to` that are others than in `from`. `None`: they are longer than `bytes_max`.
pub(super) async fn between(state: &State, from: u64, to: u64, bytes_max: u64) -> FsResult<Option<Changes>> {
    let catalog = &state.catalog;
    let (earlier, later) = (catalog.view(from).await?, catalog.view(to).await?);
    let mut inos = BTreeSet::new();
    for key in changes::index(&**catalog.head(), from, to).await? {
        inos.insert(decode_changed(&key)?.1);
    }
    // Dirty data of then is in no batch of before.
    inos.extend(earlier.patched().chain(later.patched()));
    let (mut rows, mut bytes) = (Changes::new(), 0);
    for ino in inos {
        for table in TABLES {
            let (mut at, end) = keys::range_of(table, ino);
            while at < end {
                let (was, is) = (earlier.scan(&at, &end, PAGE).await?, later.scan(&at, &end, PAGE).await?);
                let (found, next) = differing(was, is, PAGE, &end);
                for (key, _, value) in found {
                    bytes += (key.len() + value.as_ref().map_or(0, bytes::Bytes::len)) as u64;
                    rows.insert(key, value);
                }
                at = next;
            }
            if bytes > bytes_max {
                return Ok(None);
            }
        }
    }
    Ok(Some(rows))
}
