//! Where inodes are now, for doors whose clients hold opens while others rename.
//!
//! - `place.bounded`: at most [`ENTRIES_MAX`] entries are read to find a name. In a folder of the host none are: the kernel
//!   knows.

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::{Cred, FsError, FsResult, Ino};

use crate::Files;
use crate::tree::Tree;

/// Some tens of milliseconds.
const ENTRIES_MAX: usize = 1 << 17;
const PAGE_ENTRIES: usize = 1024;
/// Deeper than any path of a client.
const DEPTH_MAX: usize = 4096;
/// Levels after which others have a turn.
const YIELD_EVERY: usize = 64;

impl Files {
    /// The directory that holds the inode, and its name there; of a file with several names some name. [`FsError::NotFound`]
    /// if none is found.
    #[boxed]
    pub async fn place(&self, ino: Ino) -> FsResult<(Ino, Bytes)> {
        match &self.tree {
            Tree::Folder(folder) => Box::pin(folder.place(ino)).await,
            Tree::Volume(volume) => {
                let dir = volume.holder(ino).await?;
                Ok((dir, self.name_in(dir, ino).await?))
            }
        }
    }

    /// The names of the directories on the way from `top` to `dir`. [`FsError::NotFound`] if it does not lie there.
    #[boxed]
    pub async fn names_below(&self, dir: Ino, top: Ino) -> FsResult<Vec<Bytes>> {
        if let Tree::Folder(folder) = &self.tree {
            return Box::pin(folder.names_below(dir, top)).await;
        }
        let (mut names, mut at) = (Vec::new(), dir);
        while at != top {
            if at == Ino::ROOT || names.len() >= DEPTH_MAX {
                return Err(FsError::NotFound);
            }
            let parent = self.tree.parent(at).await?;
            names.push(self.name_in(parent, at).await?);
            at = parent;
            if names.len().is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
            }
        }
        names.reverse();
        Ok(names)
    }

    /// Whether `dir` is the directory `top` or lies below it.
    #[boxed]
    pub async fn is_within(&self, dir: Ino, top: Ino) -> FsResult<bool> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == top {
                return Ok(true);
            }
            match self.tree.parent(at).await? {
                parent if parent == at => return Ok(false),
                parent => at = parent,
            }
        }
        Ok(false)
    }

    /// Whether other programs rename and remove names, of which no event may tell.
    pub fn has_outsiders(&self) -> bool {
        matches!(self.tree, Tree::Folder(_))
    }

    async fn name_in(&self, dir: Ino, ino: Ino) -> FsResult<Bytes> {
        let (files, mut cookie, mut entries) = (self.untouched(), 0, 0);
        while entries < ENTRIES_MAX {
            let page = files.tree.readdir(&Cred::root(), dir, cookie, PAGE_ENTRIES, false).await?;
            entries += page.entries.len();
            if let Some(entry) = page.entries.iter().find(|entry| entry.ino == ino) {
                return Ok(entry.name.clone());
            }
            match page.entries.last() {
                Some(last) if !page.eof => cookie = last.cookie,
                _ => break,
            }
        }
        Err(FsError::NotFound)
    }
}
