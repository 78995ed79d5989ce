//! The volume as a client calls it; here a test can have it answer too early.
//!
//! A volume waits for durability in one place for each operation, after everything else is done (`volume.wait_without_locks`). To
//! leave out that wait for one operation alone, the volume is opened with `sync=relaxed`, and the front waits after all others.
//! Commits and stable writes, for which a volume waits in either mode, are answered without being asked for.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_fs::{
    AllocateMode, Attr, Changed, CreateMode, Cred, FsError, Ino, RenameMode, SetAttr, Stability, Written, XattrMode,
};
use larder_volume::{OpenFile, Volume};
use parking_lot::Mutex;

type Fs<T> = Result<T, FsError>;

/// An answer that promises durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Link,
    Relink,
    Unlink,
    Rmdir,
    Rename,
    Exchange,
    SetAttr,
    Truncate,
    Allocate,
    Clone,
    SetXattr,
    RemoveXattr,
    StableWrite,
    StableAppend,
    /// Of a file that was written since it was committed; of one that was not; of a directory.
    CommitFile,
    CommitClean,
    CommitDirectory,
    Sync,
    Close,
}

impl Answer {
    pub const ALL: [(Self, &'static str); 23] = [
        (Self::Create, "early-create"),
        (Self::Mkdir, "early-mkdir"),
        (Self::Symlink, "early-symlink"),
        (Self::Mknod, "early-mknod"),
        (Self::Link, "early-link"),
        (Self::Relink, "early-relink"),
        (Self::Unlink, "early-unlink"),
        (Self::Rmdir, "early-rmdir"),
        (Self::Rename, "early-rename"),
        (Self::Exchange, "early-exchange"),
        (Self::SetAttr, "early-setattr"),
        (Self::Truncate, "early-truncate"),
        (Self::Allocate, "early-allocate"),
        (Self::Clone, "early-clone"),
        (Self::SetXattr, "early-setxattr"),
        (Self::RemoveXattr, "early-removexattr"),
        (Self::StableWrite, "early-stable-write"),
        (Self::StableAppend, "early-stable-append"),
        (Self::CommitFile, "early-commit"),
        (Self::CommitClean, "early-commit-clean"),
        (Self::CommitDirectory, "early-commit-directory"),
        (Self::Sync, "early-sync"),
        (Self::Close, "early-close"),
    ];

    /// Only a relaxed volume leaves out the wait.
    pub fn needs_relaxed(self) -> bool {
        use Answer::*;
        !matches!(self, StableWrite | StableAppend | CommitFile | CommitClean | CommitDirectory | Sync | Close)
    }
}

pub struct Front {
    volume: Volume,
    early: Option<Answer>,
    /// The volume should wait for each operation, and does not.
    waits: bool,
    /// Files that were written since their last commit.
    written: Mutex<BTreeMap<Ino, bool>>,
}

impl Front {
    /// `is_standard`: how the volume is to behave; with an early answer that needs it, it is relaxed.
    pub fn new(volume: Volume, early: Option<Answer>, is_standard: bool) -> Self {
        let waits = is_standard && early.is_some_and(Answer::needs_relaxed);
        Self { volume, early, waits, written: Mutex::default() }
    }

    /// For what promises nothing.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    fn is_early(&self, answer: Answer) -> bool {
        self.early == Some(answer)
    }

    /// Waits until a change of `ino` is durable.
    async fn settle(&self, answer: Answer, ino: Ino) -> Fs<()> {
        if self.waits && !self.is_early(answer) { self.volume.commit(ino).await.map(drop) } else { Ok(()) }
    }

    // ---- names ------------------------------------------------------------------------------

    pub async fn create(&self, cred: &Cred, dir: Ino, name: &[u8], mode: CreateMode, set: SetAttr) -> Fs<Attr> {
        let (attr, ..) = self.volume.create(cred, dir, name, mode, set).await?;
        self.settle(Answer::Create, dir).await?;
        Ok(attr)
    }

    /// As [`Self::create`], with the file made first and named afterwards.
    pub async fn create_unnamed(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> Fs<Attr> {
        let (attr, file) = self.volume.create_unnamed(cred, dir, set).await?;
        self.link(cred, attr.id.ino, dir, name).await?;
        drop(file);
        Ok(attr)
    }

    pub async fn mkdir(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> Fs<Attr> {
        let (attr, _) = self.volume.mkdir(cred, dir, name, set).await?;
        self.settle(Answer::Mkdir, dir).await?;
        Ok(attr)
    }

    pub async fn symlink(&self, cred: &Cred, dir: Ino, name: &[u8], target: &[u8], set: SetAttr) -> Fs<Attr> {
        let (attr, _) = self.volume.symlink(cred, dir, name, target, set).await?;
        self.settle(Answer::Symlink, dir).await?;
        Ok(attr)
    }

    pub async fn mknod(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> Fs<Attr> {
        let kind = larder_fs::FileKind::Fifo;
        let (attr, _) = self.volume.mknod(cred, dir, name, kind, (0, 0), set).await?;
        self.settle(Answer::Mknod, dir).await?;
        Ok(attr)
    }

    pub async fn link(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> Fs<()> {
        self.volume.link(cred, ino, dir, name).await?;
        self.settle(Answer::Link, dir).await
    }

    pub async fn relink(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> Fs<()> {
        self.volume.relink(cred, ino, dir, name).await?;
        self.settle(Answer::Relink, dir).await
    }

    pub async fn unlink(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Fs<()> {
        self.volume.unlink(cred, dir, name).await?;
        self.settle(Answer::Unlink, dir).await
    }

    pub async fn rmdir(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Fs<()> {
        self.volume.rmdir(cred, dir, name).await?;
        self.settle(Answer::Rmdir, dir).await
    }

    pub async fn rename(&self, cred: &Cred, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Fs<()> {
        self.volume.rename(cred, from.0, from.1, to.0, to.1, mode).await?;
        let answer = if mode == RenameMode::Exchange { Answer::Exchange } else { Answer::Rename };
        self.settle(answer, to.0).await
    }

    // ---- attributes -------------------------------------------------------------------------

    pub async fn set_attr(&self, cred: &Cred, ino: Ino, set: SetAttr) -> Fs<()> {
        self.volume.setattr(cred, ino, set).await?;
        self.settle(if set.size.is_some() { Answer::Truncate } else { Answer::SetAttr }, ino).await
    }

    pub async fn set_xattr(&self, cred: &Cred, ino: Ino, name: &[u8], value: &[u8]) -> Fs<()> {
        self.volume.setxattr(cred, ino, name, value, XattrMode::Set).await?;
        self.settle(Answer::SetXattr, ino).await
    }

    pub async fn remove_xattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> Fs<()> {
        self.volume.removexattr(cred, ino, name).await?;
        self.settle(Answer::RemoveXattr, ino).await
    }

    /// An empty named attribute.
    pub async fn make_named(&self, cred: &Cred, ino: Ino, name: &[u8]) -> Fs<()> {
        let dir = self.volume.named_dir(ino, true).await?.ok_or(FsError::NotFound)?;
        self.volume.create(cred, dir, name, CreateMode::Guarded, SetAttr::default()).await?;
        Ok(())
    }

    pub async fn remove_named(&self, cred: &Cred, ino: Ino, name: &[u8]) -> Fs<()> {
        let dir = self.volume.named_dir(ino, false).await?.ok_or(FsError::NotFound)?;
        self.volume.unlink(cred, dir, name).await?;
        Ok(())
    }

    // ---- bytes ------------------------------------------------------------------------------

    pub async fn write(&self, cred: &Cred, ino: Ino, at: u64, data: Vec<Bytes>, stability: Stability) -> Fs<Written> {
        self.written.lock().insert(ino, true);
        if self.is_early(Answer::StableWrite) {
            let written = self.volume.write(cred, ino, at, data, Stability::Unstable).await?;
            return Ok(Written { stability: stability.max(written.stability), ..written });
        }
        self.volume.write(cred, ino, at, data, stability).await
    }

    pub async fn append(&self, cred: &Cred, ino: Ino, data: Vec<Bytes>, stability: Stability) -> Fs<(u64, Written)> {
        self.written.lock().insert(ino, true);
        if self.is_early(Answer::StableAppend) {
            let (at, written) = self.volume.append(cred, ino, data, Stability::Unstable).await?;
            return Ok((at, Written { stability: stability.max(written.stability), ..written }));
        }
        self.volume.append(cred, ino, data, stability).await
    }

    pub async fn allocate(&self, cred: &Cred, ino: Ino, at: u64, length: u64, mode: AllocateMode) -> Fs<Changed> {
        let changed = self.volume.allocate(cred, ino, at, length, mode).await?;
        self.settle(Answer::Allocate, ino).await?;
        Ok(changed)
    }

    pub async fn clone_range(&self, cred: &Cred, source: (Ino, u64), target: (Ino, u64), length: u64) -> Fs<Changed> {
        let changed = self.volume.clone_range(cred, source, target, length).await?;
        self.settle(Answer::Clone, target.0).await?;
        Ok(changed)
    }

    pub async fn commit_file(&self, ino: Ino) -> Fs<()> {
        let is_written = self.written.lock().insert(ino, false) == Some(true);
        if self.is_early(if is_written { Answer::CommitFile } else { Answer::CommitClean }) {
            return Ok(());
        }
        self.volume.commit(ino).await.map(drop)
    }

    pub async fn commit_directory(&self, ino: Ino) -> Fs<()> {
        if self.is_early(Answer::CommitDirectory) { Ok(()) } else { self.volume.commit(ino).await.map(drop) }
    }

    pub async fn sync(&self) -> Fs<()> {
        if self.is_early(Answer::Sync) { Ok(()) } else { self.volume.sync().await }
    }

    pub async fn open(&self, ino: Ino) -> Fs<OpenFile> {
        self.volume.open(ino).await
    }
}
