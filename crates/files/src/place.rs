//! Where inodes are now, for doors whose clients hold opens while others rename.
//!
//! - `place.bounded`: at most [`ENTRIES_MAX`] entries are read to find a name. In a folder of the host none are: the kernel
//!   knows.

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::{AccessTimes, Cred, FsError, FsResult, Ino};

use crate::tree::{Kind, Tree};

/// Some tens of milliseconds.
const ENTRIES_MAX: usize = 1 << 17;
const PAGE_ENTRIES: usize = 1024;
/// Deeper than any path of a client.
const DEPTH_MAX: usize = 4096;
/// Parents of a directory; a longer walk is a loop of damaged parents.
const PARENTS_MAX: usize = 1 << 16;
/// Levels after which others have a turn.
const YIELD_EVERY: usize = 64;

impl Tree {
    /// The directory that holds the inode, and its name there; of a file with several names some name. [`FsError::NotFound`]
    /// if none is found.
    #[boxed]
    pub async fn place(&self, ino: Ino) -> FsResult<(Ino, Bytes)> {
        match &self.0 {
            Kind::Folder(folder) => Box::pin(folder.place(ino)).await,
            Kind::Volume(volume) => {
                let dir = volume.holder(ino).await?;
                Ok((dir, self.name_in(dir, ino).await?))
            }
        }
    }

    /// The names of the directories on the way from `top` to `dir`. [`FsError::NotFound`] if it does not lie there.
    #[boxed]
    pub async fn names_below(&self, dir: Ino, top: Ino) -> FsResult<Vec<Bytes>> {
        if let Kind::Folder(folder) = &self.0 {
            return Box::pin(folder.names_below(dir, top)).await;
        }
        let (mut names, mut at) = (Vec::new(), dir);
        while at != top {
            if at == Ino::ROOT || names.len() >= DEPTH_MAX {
                return Err(FsError::NotFound);
            }
            let parent = self.parent(at).await?;
            names.push(self.name_in(parent, at).await?);
            at = parent;
            if names.len().is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
            }
        }
        names.reverse();
        Ok(names)
    }

    /// Whether the directory `dir` is `top` or lies below it, by inode.
    #[boxed]
    pub async fn lies_within(&self, dir: Ino, top: Ino) -> FsResult<bool> {
        let mut at = dir;
        for step in 1..=PARENTS_MAX {
            if at == top {
                return Ok(true);
            }
            let above = self.parent(at).await?;
            if above == at || at == Ino::ROOT {
                return Ok(false);
            }
            at = above;
            if step.is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
            }
        }
        Err(FsError::NameTooLong)
    }

    async fn name_in(&self, dir: Ino, ino: Ino) -> FsResult<Bytes> {
        let (tree, mut cookie, mut entries) = (self.with_access_times(AccessTimes::NEVER), 0, 0);
        while entries < ENTRIES_MAX {
            let page = tree.readdir(&Cred::root(), dir, cookie, PAGE_ENTRIES, false).await?;
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
