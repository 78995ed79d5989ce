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

use bytes::Bytes;
use larder_base::boxed;
use larder_files::HeldInode;
use larder_fs::{Aspects, Attr, Cred, FileId, FileKind, FsError, FsResult, Ino, NameMatch};
use parking_lot::Mutex;

use crate::error::{SmbError, SmbResult};
#[cfg(test)]
use crate::tests::seam::Step;
use larder_smb_wire::path::SmbPath;

use super::feed::FeedHold;
use super::names;
use super::stats::Op;
use super::status::{OrStatus, status};
use super::tracker::{EntryAt, TrackedEntry};
use super::view::{RACES_MAX, VisitedShare, of_today};

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

/// The name of an open as the store has it now: whoever renames it or a directory above it, it
/// stays the name of what was opened. It outlives the handle. Operations on a name that is gone, or
/// that leads to something else by now, fail with [`SmbError::NotFound`].
pub struct EntryName {
    view: VisitedShare,
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
        (view, ino): (VisitedShare, Ino),
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
        let hold = view.core.feed.hold();
        Self { view, opened_as, ino, entry, file, shown: Mutex::new(shown), _held: held, _hold: hold }
    }

    fn entry(&self) -> FsResult<&OpenEntry> {
        self.entry.as_ref().ok_or(FsError::NotFound)
    }

    /// The directory, the stored name and the attributes of what it leads to, which is what it led to at the open.
    async fn find(&self) -> FsResult<(Ino, Bytes, Attr)> {
        let (files, entry) = (&self.view.core.files, self.entry()?);
        self.view.core.feed.settle().await;
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
        match self.view.core.files.lookup(&Cred::root(), dir, name, NameMatch::Exact).await {
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
        let Some((to_dir, to_name)) = self.view.parent(to).await? else { return Err(SmbError::AccessDenied) };
        let (from_dir, from_name, attr) = at;
        let kept = self.view.rename_onto((from_dir, from_name, attr), (to_dir.id.ino, to_name), replace).await?;
        if let (Some(kept), Some(entry)) = (kept, &self.entry) {
            entry.tracked.moved(to_dir.id.ino, kept);
        }
        Ok(())
    }

    async fn present_path(&self) -> FsResult<SmbPath> {
        let core = &self.view.core;
        if let Some(file) = &self.file {
            let name = self.entry()?.tracked.at().name;
            return Ok(Box::pin(file.present_path()).await?.with_stream(&String::from_utf8_lossy(&name)));
        }
        // What is past stays where it was.
        if self.entry.is_none() || self.opened_as.moment().is_some() {
            return Ok(self.opened_as.clone());
        }
        core.feed.settle().await;
        let renames = core.feed.tracker.directory_renames();
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

impl EntryName {
    /// The path of the CREATE.
    pub fn opened_as(&self) -> &SmbPath {
        &self.opened_as
    }

    /// The id of the directory that holds it now, of a stream that of its file. `None` when it is
    /// gone, and for the root.
    #[boxed]
    pub async fn dir(&self) -> Option<u64> {
        match &self.file {
            Some(file) => file.dir().await,
            None => self.find().await.ok().map(|(dir, ..)| dir.0),
        }
    }

    /// The path in the share now.
    #[boxed]
    pub async fn path(&self) -> SmbResult<SmbPath> {
        self.present_path().await.or_status()
    }

    /// Gives what was opened the name `to` in place of this one, as the open's user; a stream the
    /// name of the stream of `to`.
    ///
    /// Fails with [`SmbError::Exists`] where the name is taken, unless `replace` is set. An
    /// existing directory is never replaced ([`SmbError::AccessDenied`]).
    #[boxed]
    pub async fn rename(&self, to: &SmbPath, replace: bool) -> SmbResult<()> {
        let renamed = self.rename_to(to, replace).await;
        #[cfg(test)]
        self.view.core.seam.pass(Step::Renamed).await?;
        renamed
    }

    async fn rename_to(&self, to: &SmbPath, replace: bool) -> SmbResult<()> {
        let _op = self.view.core.stats.begin(Op::Rename);
        of_today(&self.opened_as).and(of_today(to))?;
        match (&self.file, to.stream()) {
            (Some(file), Some(stream)) => {
                let (dir, from, attr) = self.find().await.or_status()?;
                self.view.rename_stream(file.ino, (dir, &from, attr), stream, replace).await?;
                self.entry().or_status()?.tracked.moved(dir, Bytes::copy_from_slice(stream.as_bytes()));
                Ok(())
            }
            (None, None) => self.act(|dir, name, attr| self.rename_once((dir, name, attr), to, replace)).await,
            _ => Err(status(FsError::Invalid("a stream stays one"))),
        }
    }

    /// Makes `to` a further name of the file that was opened; fails as [`EntryName::rename`] does.
    #[boxed]
    pub async fn link(&self, to: &SmbPath, replace: bool) -> SmbResult<()> {
        of_today(to)?;
        // A file that has lost the name of the open is about to go.
        self.find().await.or_status()?;
        self.view.link(self.ino, to, replace).await
    }

    /// Removes the name, of a directory an empty one. The open was granted DELETE.
    #[boxed]
    pub async fn remove(&self) -> SmbResult<()> {
        let _op = self.view.core.stats.begin(Op::Remove);
        of_today(&self.opened_as)?;
        let by = self.view.as_root_for_client();
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

    /// As [`VisitedShare::modified`] for this entry, of a stream for its file.
    #[boxed]
    pub async fn modified(&self, what: u32) {
        if let Some(file) = &self.file {
            return file.modified(what).await;
        }
        if let Ok((dir, name, attr)) = self.find().await {
            self.view.core.files.announce_modified(dir, name, &attr, Aspects(what));
        }
    }
}
