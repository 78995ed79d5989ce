//! The entry `.snapshots` in listings of one directory, the top of a share or mount.
//!
//! - `shown.at_the_top`: a name that leads into the past of every directory is listed in one of them. So a program that walks
//!   the tree meets each snapshot once.
//! - `shown.last`: it is the last entry, at a cookie that no entry of a directory has.

use larder_base::boxed;
use larder_fs::{Cred, DirEntry, FsError, FsResult, Ino, Listing, NameMatch, SNAPSHOTS_NAME};

use crate::Files;
use crate::tree::Tree;

/// Behind every cookie of a directory, and positive for clients that take cookies for signed numbers.
const COOKIE: u64 = 1 << 62;

impl Files {
    /// The same door, whose listings of the directory `top` have `.snapshots` while there are snapshots.
    pub fn showing_snapshots(&self, top: Ino) -> Files {
        Files { shown_in: Some(top), ..self.clone() }
    }
}

/// As [`Files::readdir_before`], in the directory that lists `.snapshots`.
#[boxed]
pub(crate) async fn readdir(
    tree: &Tree,
    cred: &Cred,
    dir: Ino,
    (cookie, end): (u64, u64),
    max: usize,
    with_attrs: bool,
) -> FsResult<Listing> {
    let is_behind = cookie >= COOKIE;
    let from = if is_behind { u64::MAX } else { cookie };
    let mut listing = tree.readdir_before(cred, dir, from, end, max, with_attrs).await?;
    if is_behind || !listing.eof {
        return Ok(listing);
    }
    let attr = match tree.lookup(cred, dir, SNAPSHOTS_NAME, NameMatch::Exact).await {
        Ok(attr) if attr.id.ino.is_past() => attr,
        // Without snapshots, where a user's own entry has the name, and for users who may not look
        // names up.
        Ok(_) | Err(FsError::NotFound | FsError::Access) => return Ok(listing),
        Err(error) => return Err(error),
    };
    if listing.entries.len() >= max.max(1) {
        listing.eof = false;
        return Ok(listing);
    }
    listing.entries.push(DirEntry {
        cookie: COOKIE,
        name: SNAPSHOTS_NAME.into(),
        ino: attr.id.ino,
        kind: attr.kind,
        attr: with_attrs.then_some(attr),
    });
    Ok(listing)
}
