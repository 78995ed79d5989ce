//! One copy of a file or a tree, with everything that it has, within a tree or to another one.
//!
//! - `copy.keeps_everything`: data with its holes, named streams, extended attributes, times, time of creation, DOS
//!   attributes, mode and access list. The owner is the writer, and the group stays where the writer may give it. What the
//!   target cannot keep fails the copy, if the source is to be removed behind it ([`Keep::Everything`]).
//! - `copy.whole_or_unnamed`: a file gets its name when its data is durable, some [`PENDING_MAX`] at a time.
//! - `copy.not_of_itself`: the folder that the copy makes is never copied, whatever name leads the walk to it. A caller refuses
//!   a target within its source by [`Tree::lies_within`].
//! - `copy.charged_from_the_first_byte`: everything is made with its owner, so quotas count data before it has a name.
//!
//! Other names of one file become files of their own.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use futures::StreamExt;
use larder_base::{Timestamp, boxed};
use larder_fs::acl::Acl;
use larder_fs::{
    ACCESS_READ, Attr, CreateMode, Cred, DirEntry, FileKind, FsError, FsResult, Ino, NameMatch, ReadData, SeekTo,
    SetAttr, SetTime, Stability, XattrMode,
};

use crate::tree::Tree;
use crate::walk::{Report, Step, Stop, Walk};
use crate::{Files, Open, Uses};

/// Bytes read and written at once. One piece is written while the next is read.
const PIECE_BYTES: usize = 1 << 20;
/// Whole files that wait for their names.
const PENDING_MAX: usize = 128;
/// Files made durable at once: the disks flush for many together.
const COMMITS_AT_ONCE: usize = 16;
const STREAMS_PAGE: usize = 256;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

/// What a copy does with properties that the target has no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They are left out.
    Possible,
    /// The copy fails.
    Everything,
}

/// A copy's two ends and its rules.
#[derive(Clone)]
pub struct Copying {
    /// The source's service.
    pub from: Files,
    /// The user that reads.
    pub reader: Cred,
    /// The target's service.
    pub to: Files,
    /// The user that writes, and owns the copy.
    pub writer: Cred,
    /// What cannot be kept.
    pub keep: Keep,
    /// The owner and group of the copy in place of the writer's: those of a file whose place it takes.
    pub heir: Option<(u32, u32)>,
    /// A folder is copied without its entries.
    pub is_shallow: bool,
    /// The time of last change that the copy gets in place of its source's.
    pub mtime: Option<Timestamp>,
}

/// A whole, durable file without a name.
pub struct Unnamed {
    /// Its attributes.
    pub attr: Attr,
    /// Keeps it while it has no name.
    pub open: Open,
}

/// A file that waits for its name, or a folder for its times. In the order in which they come, times are set behind names.
enum Pending {
    Name { file: Unnamed, dir: Ino, name: Bytes, path: Bytes },
    Times { made: Ino, source: Attr, path: Bytes },
}

/// A folder of the target.
#[derive(Clone)]
struct Made {
    ino: Ino,
    source: Attr,
    /// The group that it hands on.
    handed_gid: Option<u32>,
    /// Its access list is its source's.
    has_list: bool,
}

impl Copying {
    /// A copy of a file, whole and durable, which has no name in `dir` yet. [`FsError::Busy`] if it was stopped.
    #[boxed]
    pub async fn file<'a>(&'a self, source: &Attr, dir: Ino, stop: Stop<'a>) -> FsResult<Unnamed> {
        let maker = if self.heir.is_some() { self.writer.as_root() } else { self.writer.clone() };
        let how = (&maker, self.initial_attr(source, None, &maker), self.is_exact(None));
        let copied = self.copied(source, dir, how, self.mtime, stop).await?;
        self.target().commit(copied.attr.id.ino).await?;
        Ok(copied)
    }

    /// Copies anything to the free name `name` in `dir`, with everything below it. Durable when it returns. The second value is
    /// what has been made, whole or not.
    #[boxed]
    pub async fn tree<'a>(
        &'a self,
        source: &Attr,
        (dir, name): (Ino, &[u8]),
        stop: Stop<'a>,
    ) -> (Report, Option<Attr>) {
        let walk = Walk::new(self.source_tree(), self.reader.clone(), true);
        let mut run = Run { copying: self, stop, walk, made: None, pending: Vec::new(), report: Report::default() };
        if let Err(error) = run.top(source, dir, name).await {
            run.report.fail(Bytes::new(), error);
        }
        run.all().await;
        run.settle().await;
        if let Err(error) = self.to.sync().await {
            run.report.fail(Bytes::new(), error);
        }
        (run.report, run.made)
    }

    /// Takes back what [`Copying::tree`] has made.
    #[boxed]
    pub async fn undo(&self, (dir, name): (Ino, &[u8]), made: &Attr) -> Report {
        let (to, root) = (self.target(), self.writer.as_root());
        match to.lookup(&root, dir, name, NameMatch::Exact).await {
            // Somebody else's by now.
            Ok(found) if found.id != made.id => Report::default(),
            Ok(_) => to.remove_tree(&root, (dir, name), made, None, &|| false).await,
            Err(_) => Report::default(),
        }
    }

    fn source_tree(&self) -> Tree {
        // Restored files have the times that they had.
        self.from.with_dos().untouched().tree
    }

    /// Its answers are ordered: the copy waits once.
    fn target(&self) -> Files {
        self.to.ordered().outright()
    }

    fn is_one_tree(&self) -> bool {
        self.from.id() == self.to.id()
    }

    /// The attributes that something is made with (`copy.charged_from_the_first_byte`).
    fn initial_attr(&self, source: &Attr, parent: Option<&Made>, maker: &Cred) -> SetAttr {
        if let Some((uid, gid)) = self.heir {
            let mode = Some(source.mode & 0o777);
            return SetAttr { mode, uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        }
        let (writer, is_root) = (&self.writer, self.writer.uid == 0);
        let keeps_gid = is_root || writer.in_group(source.gid);
        let handed = parent.and_then(|made| made.handed_gid).filter(|_| !is_root);
        let gid = handed.unwrap_or(if keeps_gid { source.gid } else { writer.gid });
        let special = if is_root { S_ISUID | S_ISGID } else { 0 };
        let sticky = if source.kind == FileKind::Directory { 0o1000 } else { 0 };
        SetAttr {
            mode: Some(source.mode & (0o777 | special | sticky)),
            uid: (maker.uid == 0).then_some(if is_root { source.uid } else { writer.uid }),
            gid: Some(gid),
            ..SetAttr::default()
        }
    }

    async fn copied(
        &self,
        source: &Attr,
        dir: Ino,
        (maker, set, exact): (&Cred, SetAttr, bool),
        mtime: Option<Timestamp>,
        stop: Stop<'_>,
    ) -> FsResult<Unnamed> {
        let (from, ino) = (self.from.with_dos().untouched(), source.id.ino);
        from.access(&self.reader, ino, ACCESS_READ).await?;
        let _reading = from.open_judged(source.id, Uses::READ).await?;
        // What clients still cache has arrived then.
        from.getattr_settled(source.id).await?;
        let source = from.getattr(ino).await?;
        let (attr, open) = self.target().create_unnamed(maker, dir, set).await?;
        self.data(ino, attr.id.ino, source.size, stop).await?;
        self.dress(&source, attr.id.ino, set.mode, exact).await?;
        self.times(&source, attr.id.ino, mtime).await?;
        Ok(Unnamed { attr, open })
    }

    /// Data, and its holes.
    async fn data(&self, source: Ino, made: Ino, size: u64, stop: Stop<'_>) -> FsResult<()> {
        let (from, to) = (self.from.untouched(), self.target());
        let mut at = 0;
        // `copy.shares_if_it_can`
        while self.is_one_tree() && at < size && !stop() {
            match to.copy_range(&self.writer.as_root(), (source, at), (made, at), size - at).await? {
                0 => break,
                shared => at += shared,
            }
        }
        let mut written = at;
        while at < size {
            let start = match from.seek(source, at, SeekTo::Data).await {
                Ok(start) => start,
                Err(FsError::NotFound) => break,
                Err(FsError::NotSupported) => at,
                Err(error) => return Err(error),
            };
            let end = match from.seek(source, start, SeekTo::Hole).await {
                Ok(hole) => hole.min(size),
                Err(FsError::NotFound | FsError::NotSupported) => size,
                Err(error) => return Err(error),
            };
            if start >= size {
                break;
            }
            if end <= start {
                return Err(FsError::Io(format!("the holes of inode {} contradict each other", source.0).into()));
            }
            written = self.range(source, made, start..end, stop).await?;
            if written < end {
                // It is shorter now.
                return Ok(());
            }
            at = end;
        }
        if written < size {
            // It ends in a hole.
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            to.setattr(&self.writer.as_root(), made, set).await?;
        }
        Ok(())
    }

    /// Returns where it ended.
    async fn range(&self, source: Ino, made: Ino, range: Range<u64>, stop: Stop<'_>) -> FsResult<u64> {
        let (from, to, root) = (self.from.untouched(), self.target(), self.writer.as_root());
        let (mut at, end) = (range.start, range.end);
        let mut piece = from.read(source, at, length(at, end)).await?;
        while !piece.is_empty() {
            if stop() {
                return Err(FsError::Busy("the copy was stopped"));
            }
            let next = at + piece.len() as u64;
            let writing = to.write(&root, made, at, piece.chunks, Stability::Unstable);
            let reading = async {
                match next < end {
                    true => from.read(source, next, length(next, end)).await,
                    false => Ok(ReadData::default()),
                }
            };
            let (done, read) = tokio::join!(writing, reading);
            done?;
            (piece, at) = (read?, next);
        }
        Ok(at)
    }

    /// Everything but data and times. If `exact`, nothing is inherited that the source does not have.
    async fn dress(&self, source: &Attr, made: Ino, mode: Option<u32>, exact: bool) -> FsResult<()> {
        self.left_out(self.xattrs(source, made).await)?;
        self.left_out(self.streams(source, made).await)?;
        let (to, root) = (self.target(), self.writer.as_root());
        match self.from.acl(source.id.ino).await?.1 {
            Some(acl) => {
                let set = to.set_acl(&root, made, SetAttr::default(), Some(Acl::clone(&acl))).await;
                self.left_out(set.map(drop))
            }
            None if exact && to.acl(made).await?.1.is_some() => {
                let set = SetAttr { mode, ..SetAttr::default() };
                to.set_acl(&root, made, set, None).await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// A move takes a file as it is. Within a copied folder nothing is inherited from its list, which came from the source.
    fn is_exact(&self, parent: Option<&Made>) -> bool {
        self.keep == Keep::Everything || parent.is_some_and(|made| made.has_list)
    }

    /// An error, unless it may be left out.
    fn left_out(&self, done: FsResult<()>) -> FsResult<()> {
        match done {
            Err(FsError::NotSupported) if self.keep == Keep::Possible => Ok(()),
            done => done,
        }
    }

    async fn xattrs(&self, source: &Attr, made: Ino) -> FsResult<()> {
        let (from, reader, to) = (&self.from, &self.reader, self.target());
        let is_root = reader.uid == 0 && self.writer.uid == 0;
        for name in from.listxattr(reader, source.id.ino).await? {
            let is_kept = name.starts_with(b"user.")
                || is_root && (name.starts_with(b"security.") || name.starts_with(b"trusted."));
            if !is_kept || name.starts_with(b"trusted.larder.") {
                continue;
            }
            match from.getxattr(reader, source.id.ino, &name).await {
                Ok(value) => to.setxattr(&self.writer.as_root(), made, &name, &value, XattrMode::Set).await?,
                // Removed in between, or not the reader's to read.
                Err(FsError::NoAttribute | FsError::Access | FsError::NotPermitted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn streams(&self, source: &Attr, made: Ino) -> FsResult<()> {
        if !matches!(source.kind, FileKind::File | FileKind::Directory) {
            return Ok(());
        }
        let (root, from, to) = (self.writer.as_root(), self.from.untouched(), self.target());
        let Some(streams) = from.named_dir(source.id.ino, false).await? else { return Ok(()) };
        let owner = to.getattr(made).await?;
        let mut cookie = 0;
        loop {
            let listing = from.tree.readdir(&root, streams, cookie, STREAMS_PAGE, true).await?;
            for stream in &listing.entries {
                cookie = stream.cookie;
                let Some(attr) = stream.attr else { continue };
                if !to.keeps_streams() {
                    return Err(FsError::NotSupported);
                }
                let dir = to.named_dir(made, true).await?.ok_or(FsError::NotSupported)?;
                let new = to.create_named(&root, &owner, (dir, &stream.name), CreateMode::Unchecked).await?;
                self.data(stream.ino, new.id.ino, attr.size, &|| false).await?;
            }
            if listing.eof || listing.entries.is_empty() {
                return Ok(());
            }
        }
    }

    /// Times and DOS attributes: last, because everything else changes them.
    async fn times(&self, source: &Attr, made: Ino, mtime: Option<Timestamp>) -> FsResult<()> {
        let set = SetAttr {
            atime: Some(SetTime::To(source.atime)),
            mtime: Some(SetTime::To(mtime.unwrap_or(source.mtime))),
            ..SetAttr::default()
        };
        let whole = SetAttr { btime: Some(source.btime), dos: Some(source.dos), ..set };
        let (to, root) = (self.target(), self.writer.as_root());
        match to.setattr(&root, made, whole).await {
            Err(FsError::NotSupported) if self.keep == Keep::Possible => to.setattr(&root, made, set).await.map(drop),
            done => done.map(drop),
        }
    }
}

fn length(at: u64, end: u64) -> usize {
    usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES)
}

/// A copy of a tree that is under way.
struct Run<'c> {
    copying: &'c Copying,
    stop: Stop<'c>,
    walk: Walk<Made>,
    /// The top of the copy.
    made: Option<Attr>,
    pending: Vec<Pending>,
    report: Report,
}

impl Run<'_> {
    async fn top(&mut self, source: &Attr, dir: Ino, name: &[u8]) -> FsResult<()> {
        let copying = self.copying;
        // As it is now, with the DOS attributes that a folder of the host shows only when it is asked for them.
        let source = copying.from.with_dos().getattr(source.id.ino).await?;
        let source = &source;
        let writer = &copying.writer;
        let set = copying.initial_attr(source, None, writer);
        match source.kind {
            FileKind::File => {
                let file = copying
                    .copied(source, dir, (writer, set, copying.is_exact(None)), copying.mtime, self.stop)
                    .await?;
                let to = copying.target();
                to.commit(file.attr.id.ino).await?;
                self.made = Some(to.link(writer, file.attr.id.ino, dir, name).await?.0);
                Ok(())
            }
            FileKind::Directory => {
                // Listed before the copy is made: it may lie in the source.
                let opened = self.walk.open(source.id.ino).await?;
                let (made, _) = copying.target().mkdir(writer, dir, name, set).await?;
                self.made = Some(made);
                copying.dress(source, made.id.ino, set.mode, copying.is_exact(None)).await?;
                let made = self.made(source, &made).await?;
                if copying.is_shallow {
                    return copying.times(source, made.ino, copying.mtime).await;
                }
                self.walk.enter(opened, b"", made);
                Ok(())
            }
            _ => {
                self.made = Some(self.other(source, dir, name, writer, set, copying.mtime).await?);
                Ok(())
            }
        }
    }

    async fn all(&mut self) {
        while let Some(step) = self.walk.next().await {
            match step {
                Step::Left(made, trouble) => {
                    let path = self.walk.path();
                    if let Some(error) = trouble {
                        self.report.fail(path.clone(), error);
                    }
                    self.later(Pending::Times { made: made.ino, source: made.source, path }).await;
                }
                Step::Entry(entry) => {
                    let path = self.walk.path_of(&entry.name);
                    if let Err(error) = self.entry(entry, &path).await {
                        self.report.fail(path, error);
                    }
                }
            }
            self.report.is_cut |= (self.stop)();
            if self.report.is_cut {
                return;
            }
        }
    }

    async fn entry(&mut self, entry: DirEntry, path: &Bytes) -> FsResult<()> {
        let copying = self.copying;
        let Some(parent) = self.walk.data().cloned() else { return Ok(()) };
        // Gone meanwhile; the copy itself (`copy.not_of_itself`); or the way into all snapshots, which is not content.
        let Some(source) = entry.attr else { return Ok(()) };
        if copying.is_one_tree() && self.made.is_some_and(|made| made.id.ino == entry.ino)
            || entry.ino.is_past() && !parent.source.id.ino.is_past()
        {
            return Ok(());
        }
        let root = copying.writer.as_root();
        let set = copying.initial_attr(&source, Some(&parent), &root);
        match source.kind {
            FileKind::Directory => {
                let opened = self.walk.open(source.id.ino).await?;
                let (made, _) = copying.target().mkdir(&root, parent.ino, &entry.name, set).await?;
                copying.dress(&source, made.id.ino, set.mode, copying.is_exact(Some(&parent))).await?;
                let made = self.made(&source, &made).await?;
                self.walk.enter(opened, &entry.name, made);
                Ok(())
            }
            FileKind::File => {
                let how = (&root, set, copying.is_exact(Some(&parent)));
                let file = copying.copied(&source, parent.ino, how, None, self.stop).await?;
                let pending = Pending::Name { file, dir: parent.ino, name: entry.name, path: path.clone() };
                self.later(pending).await;
                Ok(())
            }
            _ => self.other(&source, parent.ino, &entry.name, &root, set, None).await.map(drop),
        }
    }

    /// Symbolic links, pipes, sockets; devices for root alone.
    async fn other(
        &mut self,
        source: &Attr,
        dir: Ino,
        name: &[u8],
        maker: &Cred,
        set: SetAttr,
        mtime: Option<Timestamp>,
    ) -> FsResult<Attr> {
        let copying = self.copying;
        let to = copying.target();
        let is_device = matches!(source.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let (made, _) = match source.kind {
            FileKind::Symlink => {
                let target = copying.from.readlink(source.id.ino).await?;
                to.symlink(maker, dir, name, &target, SetAttr { mode: Some(0o777), ..set }).await?
            }
            _ if is_device && copying.writer.uid != 0 => return Err(FsError::NotPermitted),
            kind => to.mknod(maker, dir, name, kind, source.rdev, set).await?,
        };
        copying.times(source, made.id.ino, mtime).await?;
        Ok(made)
    }

    async fn made(&self, source: &Attr, made: &Attr) -> FsResult<Made> {
        let has_list = self.copying.from.acl(source.id.ino).await?.1.is_some();
        let handed_gid = (made.mode & S_ISGID != 0).then_some(made.gid);
        Ok(Made { ino: made.id.ino, source: *source, handed_gid, has_list })
    }

    async fn later(&mut self, pending: Pending) {
        self.pending.push(pending);
        if self.pending.len() >= PENDING_MAX {
            self.settle().await;
        }
    }

    /// Makes what waits durable and names it (`copy.whole_or_unnamed`).
    async fn settle(&mut self) {
        let to = self.copying.target();
        let pending = std::mem::take(&mut self.pending);
        let files: Vec<Ino> = pending
            .iter()
            .filter_map(|pending| match pending {
                Pending::Name { file, .. } => Some(file.attr.id.ino),
                Pending::Times { .. } => None,
            })
            .collect();
        let commit = |ino: Ino| {
            let to = to.clone();
            async move { (ino, to.commit(ino).await.map(drop)) }
        };
        let commits: Vec<_> = files.into_iter().map(commit).collect();
        let done: HashMap<Ino, FsResult<()>> =
            futures::stream::iter(commits).buffer_unordered(COMMITS_AT_ONCE).collect().await;
        for pending in pending {
            let (done, path) = match pending {
                Pending::Name { file, dir, name, path } => {
                    let ino = file.attr.id.ino;
                    let named = match done.get(&ino) {
                        Some(Err(error)) => Err(error.clone()),
                        _ => to.link(&self.copying.writer.as_root(), ino, dir, &name).await.map(drop),
                    };
                    (named, path)
                }
                Pending::Times { made, source, path } => {
                    let mtime = self.copying.mtime.filter(|_| self.made.is_some_and(|top| top.id.ino == made));
                    (self.copying.times(&source, made, mtime).await, path)
                }
            };
            if let Err(error) = done {
                self.report.fail(path, error);
            }
        }
    }
}

#[cfg(test)]
mod tests;
