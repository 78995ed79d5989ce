//! The name of an open: the directory entry that led to its inode, wherever others have moved it since.
//!
//! - `openname.never_another`: a rename or removal acts on the entry only while it leads to the inode that it led to at the
//!   open. What has taken the name meanwhile stays. The volume checks this in one step with the change (`Files::only`).
//! - `openname.one_of_several`: of a file with several names only the open's own is renamed and removed. Where it is lost
//!   (other programs renamed it in a folder of the host, events were lost), a file with several names is not found: nobody
//!   knows which of them it was.
//! - `openname.deletes_as_root`: removals run as root, since the grant of DELETE at the open allowed
//!   them, in the name of the client that asked.

use std::sync::Arc;

use crate::{OpenName, SmbError, SmbPath, SmbResult};
use async_trait::async_trait;
use bytes::Bytes;
use larder_files::HeldInode;
use larder_fs::{Aspects, Attr, Cred, FileId, FileKind, FsError, FsResult, Ino, NameMatch};
use parking_lot::Mutex;

use super::feed::FeedHold;
use super::names;
use super::stats::Op;
use super::status::{OrStatus, status};
use super::tracker::{EntryAt, TrackedEntry};
use super::tree::{RACES_MAX, Tree, of_today};

/// The entry of an open, and what it leads to: for a symbolic link that was followed, the link.
pub struct OpenEntry {
    pub tracked: Arc<TrackedEntry>,
    pub id: FileId,
    /// A file in a folder of the host that had further names at the open.
    pub is_one_of_several: bool,
}

/// A path that was right at a moment.
struct ShownPath {
    directory_renames: u64,
    at: EntryAt,
    path: SmbPath,
}

pub struct EntryName {
    tree: Tree,
    opened_as: SmbPath,
    /// The inode that is open.
    ino: Ino,
    /// `None` for the root of the share.
    entry: Option<OpenEntry>,
    /// Of a stream: the name of its file.
    file: Option<Arc<EntryName>>,
    shown: Mutex<Option<ShownPath>>,
    /// The entry's inode where that is not the open one.
    _held: Option<HeldInode>,
    _hold: FeedHold,
}

impl EntryName {
    /// `directory_renames` were counted before the path was walked.
    pub fn new(
        (tree, ino): (Tree, Ino),
        opened_as: SmbPath,
        entry: Option<OpenEntry>,
        file: Option<Arc<EntryName>>,
        directory_renames: u64,
        held: Option<HeldInode>,
    ) -> Self {
        let shown = entry.as_ref().map(|entry| {
            let at = entry.tracked.at();
            ShownPath { directory_renames, at, path: opened_as.clone() }
        });
        let hold = tree.core.door.feed.hold();
        Self { tree, opened_as, ino, entry, file, shown: Mutex::new(shown), _held: held, _hold: hold }
    }

    fn entry(&self) -> FsResult<&OpenEntry> {
        self.entry.as_ref().ok_or(FsError::NotFound)
    }

    /// The directory, the stored name and the attributes of what it leads to, which is what it led to at the open.
    async fn find(&self) -> FsResult<(Ino, Bytes, Attr)> {
        let (files, entry) = (&self.tree.core.files, self.entry()?);
        self.tree.core.door.feed.settle().await;
        for _ in 0..RACES_MAX {
            let at = entry.tracked.at();
            if let Some(attr) = self.leads_to_it(at.dir, &at.name).await? {
                return Ok((at.dir, at.name, attr));
            }
            if at.as_spelled
                && let Ok(stored) = files.stored_name(at.dir, &at.name).await
                && let Some(attr) = self.leads_to_it(at.dir, &stored).await?
            {
                entry.tracked.found(&at, at.dir, stored.clone());
                return Ok((at.dir, stored, attr));
            }
            if at.removed {
                return Err(FsError::NotFound);
            }
            // `openname.one_of_several`
            let attr = files.getattr(entry.id.ino).await?;
            let may_be_another = attr.kind != FileKind::Directory && (attr.nlink != 1 || entry.is_one_of_several);
            if attr.id != entry.id || may_be_another {
                return Err(FsError::NotFound);
            }
            let (dir, name) = files.place(entry.id.ino).await?;
            entry.tracked.found(&at, dir, name);
        }
        Err(FsError::NotFound)
    }

    async fn leads_to_it(&self, dir: Ino, name: &[u8]) -> FsResult<Option<Attr>> {
        match self.tree.core.files.lookup(&Cred::root(), dir, name, NameMatch::Exact).await {
            Ok(attr) => Ok(Some(attr).filter(|attr| self.entry.as_ref().is_some_and(|entry| entry.id == attr.id))),
            Err(FsError::NotFound | FsError::Stale | FsError::NotDirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Does `act` where the entry is, again where it moved meanwhile.
    async fn act<F: Future<Output = SmbResult<()>>>(&self, act: impl Fn(Ino, Bytes, Attr) -> F) -> SmbResult<()> {
        let mut last = None;
        for _ in 0..RACES_MAX {
            let (dir, name, attr) = self.find().await.or_status()?;
            if last.as_ref() == Some(&(dir, name.clone())) {
                break;
            }
            match act(dir, name.clone(), attr).await {
                Err(SmbError::NotFound) => last = Some((dir, name)),
                done => return done,
            }
        }
        Err(SmbError::NotFound)
    }

    async fn rename_once(&self, at: (Ino, Bytes, Attr), to: &SmbPath, replace: bool) -> SmbResult<()> {
        let Some((to_dir, to_name)) = self.tree.parent(to).await? else { return Err(SmbError::AccessDenied) };
        let (from_dir, from_name, attr) = at;
        let kept = self.tree.rename_onto((from_dir, from_name, attr), (to_dir.id.ino, to_name), replace).await?;
        if let (Some(kept), Some(entry)) = (kept, &self.entry) {
            entry.tracked.moved(to_dir.id.ino, kept);
        }
        Ok(())
    }

    async fn present_path(&self) -> FsResult<SmbPath> {
        let core = &self.tree.core;
        if let Some(file) = &self.file {
            let name = self.entry()?.tracked.at().name;
            return Ok(Box::pin(file.present_path()).await?.with_stream(&String::from_utf8_lossy(&name)));
        }
        // What is past stays where it was.
        if self.entry.is_none() || self.opened_as.moment().is_some() {
            return Ok(self.opened_as.clone());
        }
        core.door.feed.settle().await;
        let renames = core.door.feed.tracker.directory_renames();
        let at = self.entry()?.tracked.at();
        if let Some(shown) = &*self.shown.lock()
            && !core.files.has_outsiders()
            && shown.directory_renames == renames
            && shown.at == at
        {
            return Ok(shown.path.clone());
        }
        let (dir, name, _) = self.find().await?;
        let above = core.files.names_below(dir, core.root).await?;
        let shown: Vec<String> = above.iter().chain([&name]).map(|name| names::shown(name)).collect();
        let path: SmbPath = shown.join("\\").parse().map_err(|_| FsError::NameTooLong)?;
        let at = self.entry()?.tracked.at();
        *self.shown.lock() = Some(ShownPath { directory_renames: renames, at, path: path.clone() });
        Ok(path)
    }
}

#[async_trait]
impl OpenName for EntryName {
    fn opened_as(&self) -> &SmbPath {
        &self.opened_as
    }

    async fn dir(&self) -> Option<u64> {
        match &self.file {
            Some(file) => Box::pin(file.dir()).await,
            None => self.find().await.ok().map(|(dir, ..)| dir.0),
        }
    }

    async fn path(&self) -> SmbResult<SmbPath> {
        self.present_path().await.or_status()
    }

    async fn rename(&self, to: &SmbPath, replace: bool) -> SmbResult<()> {
        let _op = self.tree.core.stats.begin(Op::Rename);
        of_today(&self.opened_as).and(of_today(to))?;
        match (&self.file, to.stream()) {
            (Some(file), Some(stream)) => {
                let (dir, from, attr) = self.find().await.or_status()?;
                self.tree.rename_stream(file.ino, (dir, &from, attr), stream, replace).await?;
                self.entry().or_status()?.tracked.moved(dir, Bytes::copy_from_slice(stream.as_bytes()));
                Ok(())
            }
            (None, None) => self.act(|dir, name, attr| self.rename_once((dir, name, attr), to, replace)).await,
            _ => Err(status(FsError::Invalid("a stream stays one"))),
        }
    }

    async fn link(&self, to: &SmbPath, replace: bool) -> SmbResult<()> {
        of_today(to)?;
        // A file that has lost the name of the open is about to go.
        self.find().await.or_status()?;
        self.tree.link(self.ino, to, replace).await
    }

    async fn remove(&self) -> SmbResult<()> {
        let _op = self.tree.core.stats.begin(Op::Remove);
        of_today(&self.opened_as)?;
        let by = self.tree.as_root_for_client();
        let files = by.core.files.only(self.entry().or_status()?.id.ino);
        let is_stream = self.file.is_some();
        self.act(|dir, name, attr| {
            let (by, files) = (&by, &files);
            async move {
                match (is_stream, attr.kind) {
                    (true, _) => files.outright().unlink(by.who(), dir, &name).await.map(drop),
                    (_, FileKind::Directory) => files.rmdir(by.who(), dir, &name).await.map(drop),
                    _ => files.unlink(by.who(), dir, &name).await.map(drop),
                }
                .or_status()
            }
        })
        .await
    }

    async fn modified(&self, what: u32) {
        if let Some(file) = &self.file {
            return Box::pin(file.modified(what)).await;
        }
        if let Ok((dir, name, attr)) = self.find().await {
            self.tree.core.files.announce_modified(dir, name, &attr, Aspects(what));
        }
    }
}
