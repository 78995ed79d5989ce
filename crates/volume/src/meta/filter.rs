//! Bloom filters that also know which inodes a table says anything about.
//!
//! "Which extents has this file, which attributes?" is a scan, and a scan must look into every
//! table of the tree unless its filter says no. Most answers are "none" or lie in one table, so
//! filters hold the first nine bytes of keys (tag and inode number), too.

use std::sync::Arc;

use bytes::Bytes;
use slatedb::prefix_extractor::{PrefixExtractor, PrefixTarget};
use slatedb::{BloomFilterPolicy, FilterPolicy};

use crate::keys::{key_after, tag};

const BITS_PER_KEY: u32 = 10;
/// Tag and inode number.
const PREFIX_BYTES: usize = 9;

pub(super) fn policies() -> Vec<Arc<dyn FilterPolicy>> {
    vec![Arc::new(BloomFilterPolicy::new(BITS_PER_KEY).with_prefix_extractor(Arc::new(ByInode)))]
}

/// The name is stored with every filter: a change of `prefix_len` needs another.
struct ByInode;

impl PrefixExtractor for ByInode {
    fn name(&self) -> &str {
        "larder-inode-1"
    }

    /// Depends on the first bytes alone. Tables with one key per inode have no use for it.
    fn prefix_len(&self, target: &PrefixTarget) -> Option<usize> {
        let (PrefixTarget::Point(key) | PrefixTarget::Prefix(key)) = target;
        let several = !matches!(key.first(), Some(&(tag::INODE | tag::ORPHAN)));
        (several && key.len() >= PREFIX_BYTES).then_some(PREFIX_BYTES)
    }
}

/// A range that lies within the keys of one inode: its prefix, and the bounds behind it.
pub(super) fn within_inode(from: &[u8], to: &[u8]) -> Option<(Bytes, Bytes, Option<Bytes>)> {
    let (prefix, start) = from.split_at_checked(PREFIX_BYTES)?;
    let copy = Bytes::copy_from_slice;
    if to == &key_after(prefix)[..] {
        return Some((copy(prefix), copy(start), None));
    }
    let end = to.strip_prefix(prefix)?;
    Some((copy(prefix), copy(start), Some(copy(end))))
}
