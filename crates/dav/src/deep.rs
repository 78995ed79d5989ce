//! All of a small tree, for PROPFIND of depth infinity.
//!
//! - `deep.small_trees_only`: a tree of more entries than [`ENTRIES_MAX`], or one whose listing takes longer than [`TIME_MAX`],
//!   is refused as a whole: RFC 4918 (9.1) lets a server do so, and clients then ask folder by folder. So is one with a symbolic
//!   link to a folder, which may lead back into the tree. Past states in `.snapshots` are no part of a tree.

use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, FsError, FsResult, Ino};

use super::context::Context;
use super::fail::Fail;
use super::path::join;
use larder_doors::tree::{Room, Spot};

/// With paths of ordinary length, some MiB.
const ENTRIES_MAX: usize = 10_000;
/// A longer path no client can ask about.
const PATH_BYTES_MAX: usize = 4096;
const TIME_MAX: Duration = Duration::from_secs(5);
const ENTRIES_AT_ONCE: usize = 512;

/// A file or folder below the one that was asked about.
pub struct Below {
    pub path: Bytes,
    pub room: Room,
    pub attr: Attr,
}

/// A tree that is being listed.
struct Walk<'c> {
    context: &'c Context,
    room: &'c Room,
    began: Instant,
    all: Vec<Below>,
    folders: Vec<(Ino, Bytes)>,
}

/// Everything below the folder `top` at `path`. `None`: the tree is refused (`deep.small_trees_only`).
pub async fn everything(context: &Context, room: &Room, top: &Attr, path: &Bytes) -> Result<Option<Vec<Below>>, Fail> {
    // A user's walks take turns.
    let places = context.shared.walks.of(&context.user.name);
    let Ok(_place) = places.acquire().await else { return Ok(None) };
    let folders = vec![(top.id.ino, path.clone())];
    let mut walk = Walk { context, room, began: Instant::now(), all: Vec::new(), folders };
    while let Some((dir, path)) = walk.folders.pop() {
        match walk.list(dir, &path).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // Not this user's to read, or removed meanwhile.
            Err(FsError::Access | FsError::NotFound | FsError::Stale) if dir != top.id.ino => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(walk.all))
}

impl Walk<'_> {
    /// `false`: it is too much.
    async fn list(&mut self, dir: Ino, path: &Bytes) -> FsResult<bool> {
        let room = self.room;
        let (files, cred) = (room.files(), &room.cred);
        files.access(cred, dir, ACCESS_READ | ACCESS_EXECUTE).await?;
        let mut cookie = 0;
        loop {
            let listing = files.readdir(cred, dir, cookie, ENTRIES_AT_ONCE, true).await?;
            for entry in &listing.entries {
                cookie = entry.cookie;
                let Some(attr) = entry.attr.filter(|attr| dir.is_past() || !attr.id.ino.is_past()) else { continue };
                let below = join(path, &entry.name);
                if below.len() > PATH_BYTES_MAX || !self.add(attr, below).await {
                    return Ok(false);
                }
            }
            if self.all.len() > ENTRIES_MAX || self.began.elapsed() > TIME_MAX {
                return Ok(false);
            }
            if listing.eof {
                return Ok(true);
            }
        }
    }

    /// `false`: a link to a folder.
    async fn add(&mut self, attr: Attr, path: Bytes) -> bool {
        let Some(Spot::In(room, found)) = self.context.resolved(self.room, &attr, &path).await else { return true };
        if found.kind == FileKind::Directory {
            if attr.kind == FileKind::Symlink {
                return false;
            }
            self.folders.push((found.id.ino, path.clone()));
        }
        self.all.push(Below { path, room, attr: found });
        true
    }
}
