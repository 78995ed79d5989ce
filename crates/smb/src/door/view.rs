//! A share: paths to inodes, opens, deletes, renames.
//!
//! One [`Core`] per share; one [`VisitedShare`] per user on it, which carries the user's [`Cred`].
//! The user gets it at TREE_CONNECT ([`super::doorkeeper`]), so an open costs no look-up of users.
//!
//! - `tree.folded_lookup`: every component is looked up by its folded name, in O(log n), with the
//!   user's permissions.
//! - `tree.links_on_the_server`: the server follows symbolic links ([`larder_doors::steps`]), as Samba does. `..` stops at the share's root, and in a
//!   snapshot at the root of then.
//! - `tree.past_by_number`: the root of the share at a moment of the past is the directory that has the root's inode number in the
//!   snapshot, wherever it was then and whatever its name. Below it names decide, as they were then.
//! - `tree.archive_and_user`: a new file carries FILE_ATTRIBUTE_ARCHIVE and belongs to the user.
//! - `tree.paths_once`: a path is walked by the open that names it. From then on the open is its inode and its entry
//!   ([`super::open_name`]).

use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_files::{Files, Open, Uses};
use larder_fs::{Aspects, Attr, CreateMode, Cred, FileId, FileKind, FsError, FsResult, Ino, RenameMode, SetAttr};

use crate::error::{SmbError, SmbResult};
use crate::files::Watches;
use crate::words::{Located, OpenAction, OpenIntent, OpenOptions, VolumeInfo};
use larder_smb_wire::moment::Moment;
use larder_smb_wire::path::SmbPath;
use larder_smb_wire::security::SecurityDescriptor;

use super::feed::{Feed, FeedHold};
use super::handle::{ALLOCATION_BYTES, FileHandle, MATCH};
use super::notices::Notices;
use super::open_name::{EntryName, OpenEntry};
use super::stats::{Op, Stats};
use super::status::{MEDIA_WRITE_PROTECTED, OrStatus, path_status, status};
use super::{names, rights, security};
#[cfg(test)]
use crate::tests::seam::{Seam, Step};
use larder_doors::steps::Steps;

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// Steps upwards for one link. Each costs the depth that it is at, and links are followed in listings.
const CLIMBS_MAX: usize = 256;
/// How often an open starts over because the name came or went meanwhile.
pub(super) const RACES_MAX: usize = 8;

/// The state that all users of a share have in common.
pub struct Core {
    pub files: Files,
    /// The directory that is shared.
    pub root: Ino,
    pub feed: Arc<Feed>,
    pub notices: Arc<Notices>,
    pub stats: Arc<Stats>,
    #[cfg(test)]
    pub(crate) seam: Seam,
}

/// The share as one user sees it.
#[derive(Clone)]
pub struct VisitedShare {
    pub(crate) core: Arc<Core>,
    who: Cred,
    pub(super) writable: bool,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.feed.forget_origin(self.files.origin());
    }
}

impl Core {
    pub fn new(files: Files, root: Ino, (feed, notices): (Arc<Feed>, Arc<Notices>), stats: Arc<Stats>) -> Self {
        Self {
            files,
            root,
            feed,
            notices,
            stats,
            #[cfg(test)]
            seam: Seam::default(),
        }
    }

    /// The entry that a client calls `name`, whichever way it is spelled, and the spelling that found it.
    async fn find(&self, who: &Cred, dir: Ino, name: &str) -> FsResult<(Attr, Bytes)> {
        let spelled = names::stored(name);
        match self.files.lookup(who, dir, &spelled, MATCH).await {
            Err(FsError::NotFound) => match names::verbatim(name) {
                Some(verbatim) => {
                    let attr = self.files.lookup(who, dir, verbatim, MATCH).await?;
                    Ok((attr, Bytes::copy_from_slice(verbatim)))
                }
                None => Err(FsError::NotFound),
            },
            found => Ok((found?, Bytes::copy_from_slice(&spelled))),
        }
    }

    /// The same, with its name as stored; a symbolic link is not followed.
    pub async fn find_stored(&self, who: &Cred, dir: Ino, name: &str) -> FsResult<(Attr, Bytes)> {
        let (attr, _) = self.find(who, dir, name).await?;
        let stored = match self.files.stored_name(dir, &names::stored(name)).await {
            Err(FsError::NotFound) => match names::verbatim(name) {
                Some(verbatim) => self.files.stored_name(dir, verbatim).await?,
                None => return Err(FsError::NotFound),
            },
            found => found?,
        };
        Ok((attr, stored))
    }

    /// The target of the symbolic link `link` in `dir` (`tree.links_on_the_server`).
    pub async fn follow(&self, who: &Cred, dir: Ino, link: Attr) -> FsResult<Attr> {
        let (mut at, mut climbs) = (dir, 0);
        let mut steps = Steps::default();
        steps.follow(&self.files, link.id.ino).await?;
        while let Some(name) = steps.next().await {
            let attr = match &*name {
                b".." => {
                    climbs += 1;
                    if climbs > CLIMBS_MAX {
                        return Err(FsError::NotFound);
                    }
                    self.above(who, at).await?
                }
                name => self.files.lookup(who, at, name, MATCH).await?,
            };
            match attr.kind {
                FileKind::Symlink => steps.follow(&self.files, attr.id.ino).await?,
                _ if steps.are_over() => return Ok(attr),
                _ => at = attr.id.ino,
            }
        }
        self.files.getattr(at).await
    }

    /// The directory above `dir`. Nothing above the root of the share is reached by a link, today or in a snapshot.
    async fn above(&self, who: &Cred, dir: Ino) -> FsResult<Attr> {
        let own = self.files.lookup(who, dir, b".", MATCH).await?;
        if dir.is_or_was(self.root) {
            return Ok(own);
        }
        match self.files.parent_within(dir, self.root).await {
            Ok(parent) => self.files.getattr(parent).await,
            Err(FsError::Stale) => Err(FsError::NotFound),
            Err(error) => Err(error),
        }
    }
}

impl VisitedShare {
    pub fn new(core: Arc<Core>, who: Cred, writable: bool) -> Self {
        Self { core, who, writable }
    }

    /// The root of the share that `path` leads through, today's or one of the past (`tree.past_by_number`).
    pub(super) async fn top(&self, path: &SmbPath) -> FsResult<Attr> {
        match path.moment() {
            Some((moment, _)) => self.core.files.dir_at(&self.who, self.core.root, moment.unix_seconds()).await,
            None => self.core.files.getattr(self.core.root).await,
        }
    }

    /// The directory that `components` lead to from `top`.
    async fn walk(&self, top: Attr, components: &[String]) -> FsResult<Attr> {
        let mut at = top;
        for name in components {
            at = self.entry(&at, name).await?;
            if at.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
        }
        Ok(at)
    }

    /// The entry `name` of `dir`, links followed.
    pub(super) async fn entry(&self, dir: &Attr, name: &str) -> FsResult<Attr> {
        Ok(self.found(dir, name).await?.0)
    }

    /// The same, and the entry itself.
    pub(super) async fn found(&self, dir: &Attr, name: &str) -> FsResult<(Attr, FoundEntry)> {
        let (attr, spelled) = self.core.find(&self.who, dir.id.ino, name).await?;
        let entry = FoundEntry { dir: dir.id.ino, spelled, id: attr.id };
        match attr.kind {
            FileKind::Symlink => Ok((self.core.follow(&self.who, dir.id.ino, attr).await?, entry)),
            _ => Ok((attr, entry)),
        }
    }

    /// The directory of `path` and the last component; `None` for the root itself.
    pub(super) async fn parent<'p>(&self, path: &'p SmbPath) -> SmbResult<Option<(Attr, &'p str)>> {
        let components = path.moment().map_or(path.components(), |(_, rest)| rest);
        let Some((name, parents)) = components.split_last() else { return Ok(None) };
        // MS-SMB2 3.3.5.9.4: a moment without a snapshot is a name that is not found.
        let top = self.top(path).await.or_status()?;
        Ok(Some((self.walk(top, parents).await.map_err(path_status)?, name)))
    }

    async fn open_once(&self, path: &SmbPath, opts: &OpenOptions) -> SmbResult<Attempt> {
        let way = self.begin(path);
        if let Some(stream) = path.stream() {
            return self.open_stream(&way, stream, opts).await;
        }
        let Some((dir, name)) = self.parent(path).await? else {
            let root = self.top(path).await.or_status()?;
            return self.open_existing(&way, (root, None), None, "", opts).await;
        };
        match self.found(&dir, name).await {
            Ok((attr, entry)) => self.open_existing(&way, (attr, Some(entry)), Some(&dir), name, opts).await,
            Err(FsError::NotFound) => match opts.intent {
                OpenIntent::Open | OpenIntent::Truncate => Err(SmbError::NotFound),
                _ => self.create(&way, &dir, name, opts).await,
            },
            Err(e) => Err(status(e)),
        }
    }

    /// Before anything of `path` is looked up.
    fn begin<'p>(&self, path: &'p SmbPath) -> Way<'p> {
        let feed = &self.core.feed;
        let hold = feed.hold();
        Way {
            path,
            directory_renames: feed.tracker.directory_renames(),
            events: self.core.files.events_sent(),
            _hold: hold,
        }
    }

    async fn open_existing(
        &self,
        way: &Way<'_>,
        (attr, entry): (Attr, Option<FoundEntry>),
        dir: Option<&Attr>,
        name: &str,
        opts: &OpenOptions,
    ) -> SmbResult<Attempt> {
        let directory = attr.kind == FileKind::Directory;
        if opts.intent == OpenIntent::Create {
            return Err(SmbError::Exists);
        }
        if opts.directory && !directory {
            return Err(SmbError::NotADirectory);
        }
        if opts.non_directory && directory {
            return Err(SmbError::IsDirectory);
        }
        let truncates = matches!(opts.intent, OpenIntent::Truncate | OpenIntent::OverwriteOrCreate);
        if truncates && directory {
            return Err(SmbError::IsDirectory);
        }
        let Some(rights) = self.rights(&attr, dir).await? else { return Ok(Attempt::Raced) };
        let needed = opts.access | if truncates { rights::WRITE_DATA } else { 0 };
        if needed & !rights != 0 {
            return Err(SmbError::AccessDenied);
        }
        // MS-FSA 2.1.5.1.2.1: a file is not overwritten unawares that Windows would not show.
        if truncates && attr.dos & rights::DOS_GUARDED & !opts.attributes != 0 {
            return Err(SmbError::AccessDenied);
        }
        let Some(open) = self.hold_open(attr.id).await? else { return Ok(Attempt::Raced) };
        let Some(handle) = self.handle(way, (open, attr.id, entry), None, name, rights).await? else {
            return Ok(Attempt::Raced);
        };
        if opts.delete_on_close && !handle.asks_for_removal() {
            return Err(SmbError::AccessDenied);
        }
        if !truncates {
            return Ok(Attempt::Opened(handle, OpenAction::Opened));
        }
        self.core.files.remove_named(&handle.who, handle.ino).await.or_status()?;
        // MS-FSA 2.1.5.1.2: an overwrite also resets the attributes; the library then sets those asked for.
        let set = SetAttr { size: Some(0), dos: Some(rights::DOS_ARCHIVE), ..SetAttr::default() };
        self.core.files.setattr(&handle.who, handle.ino, set).await.or_status()?;
        Ok(Attempt::Opened(handle, OpenAction::Overwritten))
    }

    pub(super) async fn create(&self, way: &Way<'_>, dir: &Attr, name: &str, opts: &OpenOptions) -> SmbResult<Attempt> {
        if !self.writable {
            return Err(SmbError::AccessDenied);
        }
        opts.security.as_ref().map_or(Ok(()), security::check)?;
        let stored = names::stored(name);
        let files = &self.core.files;
        let made = if opts.directory {
            let set = SetAttr { mode: Some(DIRECTORY_MODE), ..SetAttr::default() };
            files.mkdir(&self.who, dir.id.ino, &stored, set).await.map(|(attr, _)| attr)
        } else {
            let set = SetAttr { mode: Some(FILE_MODE), dos: Some(rights::DOS_ARCHIVE), ..SetAttr::default() };
            files.create(&self.who, dir.id.ino, &stored, CreateMode::Guarded, set).await.map(|(attr, ..)| attr)
        };
        let attr = match made {
            Ok(attr) => attr,
            // Made by another in between, or a link that leads nowhere has the name.
            Err(FsError::Exists) if opts.intent != OpenIntent::Create => return Ok(Attempt::Raced),
            Err(e) => return Err(status(e)),
        };
        // Its number is its own while it is described (`files.number_held`).
        let Some(open) = self.hold_open(attr.id).await? else { return Ok(Attempt::Raced) };
        if let Some(descriptor) = &opts.security {
            self.describe(&attr, descriptor).await?;
        }
        // The maker of a file gets the access that it asked for, whatever mode the file came to have.
        let Some(rights) = self.rights(&attr, Some(dir)).await? else { return Ok(Attempt::Raced) };
        let rights = rights | opts.access;
        let entry = FoundEntry { dir: dir.id.ino, spelled: Bytes::copy_from_slice(&stored), id: attr.id };
        match self.handle(way, (open, attr.id, Some(entry)), None, name, rights).await? {
            Some(handle) => Ok(Attempt::Opened(handle, OpenAction::Created)),
            None => Ok(Attempt::Raced),
        }
    }

    /// Gives a file that was just made the descriptor that its maker sent with it (MS-SMB2 2.2.13.2.2).
    async fn describe(&self, attr: &Attr, descriptor: &SecurityDescriptor) -> SmbResult<()> {
        let who = Cred { checked: true, ..self.who.clone() };
        // A new file belongs to its maker, whatever the descriptor says.
        let rules = SecurityDescriptor { owner: None, group: None, ..descriptor.clone() };
        security::set(&self.core.files, &who, attr.id.ino, &rules).await
    }

    /// The user's rights to a file of `dir`. `None` when the file went away since it was looked up.
    pub(super) async fn rights(&self, attr: &Attr, dir: Option<&Attr>) -> SmbResult<Option<u32>> {
        let parent = dir.map(|dir| dir.id.ino);
        let rights = match self.core.files.rights(&self.who, attr.id.ino, parent).await {
            Ok(rights) => rights,
            Err(FsError::Stale) => return Ok(None),
            Err(error) => return Err(status(error)),
        };
        Ok(Some(rights::granted(rights, attr, self.writable)))
    }

    /// The owner's right was asked for when the stream was opened.
    pub(super) async fn may_change_streams(&self, base: &Attr) -> SmbResult<()> {
        if base.uid != self.who.uid {
            self.core.files.access(&self.who, base.id.ino, larder_fs::ACCESS_WRITE).await.or_status()?;
        }
        Ok(())
    }

    /// `None` when the inode or its entry went away since they were looked up. `base` is the file that a stream belongs to.
    pub(super) async fn handle(
        &self,
        way: &Way<'_>,
        (open, id, entry): (Open, FileId, Option<FoundEntry>),
        base: Option<(FileId, Option<FoundEntry>)>,
        name: &str,
        rights: u32,
    ) -> SmbResult<Option<Box<FileHandle>>> {
        let (base, file) = match base {
            Some((base, entry)) => {
                let Some(open) = self.hold_open(base).await? else { return Ok(None) };
                let path = way.path.without_stream();
                let Some(file) = self.name(way, path, (base, entry), None).await? else { return Ok(None) };
                (Some((base.ino, open)), Some(file))
            }
            None => (None, None),
        };
        let Some(entry_name) = self.name(way, way.path.clone(), (id, entry), file).await? else { return Ok(None) };
        let (ino, (entry, inode)) = (id.ino, open.into_parts());
        let who = Cred { checked: true, ..self.who.clone() };
        let core = Arc::clone(&self.core);
        let list_end = std::sync::atomic::AtomicU64::new(u64::MAX);
        #[cfg(test)]
        let counted = core.seam.count();
        let name = name.to_owned();
        Ok(Some(Box::new(FileHandle {
            core,
            who,
            ino,
            base,
            name,
            rights,
            list_end,
            entry: Some(entry),
            _inode: inode,
            entry_name,
            #[cfg(test)]
            _counted: counted,
        })))
    }

    /// The name of an open of `id`, which `entry` led to. `None` when the entry has moved or gone since it was looked up:
    /// the feed may have seen that before it followed the entry.
    async fn name(
        &self,
        way: &Way<'_>,
        path: SmbPath,
        (id, entry): (FileId, Option<FoundEntry>),
        file: Option<Arc<EntryName>>,
    ) -> SmbResult<Option<Arc<EntryName>>> {
        let files = &self.core.files;
        let (mut followed, mut held) = (None, None);
        if let Some(FoundEntry { dir, spelled, id: found }) = entry {
            if found != id && files.reuses_numbers() {
                held = match files.hold(found).await {
                    Ok(held) => Some(held),
                    Err(FsError::Stale | FsError::NotFound) => return Ok(None),
                    Err(error) => return Err(status(error)),
                };
            }
            let tracked = self.core.feed.tracker.track(found.ino, dir, spelled.clone());
            if files.events_sent() != way.events {
                match files.lookup(&Cred::root(), dir, &spelled, MATCH).await {
                    Ok(attr) if attr.id == found => {}
                    Ok(_) | Err(FsError::Stale | FsError::NotFound | FsError::NotDirectory) => return Ok(None),
                    Err(error) => return Err(status(error)),
                }
            }
            let is_one_of_several = files.has_outsiders() && files.getattr(found.ino).await.or_status()?.nlink != 1;
            followed = Some(OpenEntry { tracked, id: found, is_one_of_several });
        }
        let name = EntryName::new((self.clone(), id.ino), path, followed, file, way.directory_renames, held);
        Ok(Some(Arc::new(name)))
    }

    /// The same tree with root's rights, in the name of its client.
    pub(super) fn as_root_for_client(&self) -> VisitedShare {
        VisitedShare { who: self.who.as_root(), ..self.clone() }
    }

    pub(super) fn who(&self) -> &Cred {
        &self.who
    }

    pub(super) async fn hold_open(&self, id: FileId) -> SmbResult<Option<Open>> {
        match self.core.files.open_judged(id, Uses::NOTHING).await {
            Ok(open) => Ok(Some(open)),
            Err(FsError::Stale | FsError::NotFound) => Ok(None),
            Err(error) => Err(status(error)),
        }
    }

    /// Renames onto a name that may be taken, by the source itself (its case changes) or by another. Returns the stored name
    /// where the source has it already by another link.
    pub(super) async fn rename_onto(
        &self,
        from: (Ino, Bytes, Attr),
        to: (Ino, &str),
        replace: bool,
    ) -> SmbResult<Option<Bytes>> {
        let (from_dir, from_name, source) = from;
        let (to_dir, to_name) = to;
        let files = &self.core.files.only(source.id.ino);
        let wanted = names::stored(to_name);
        let mode = match self.core.find_stored(&self.who, to_dir, to_name).await {
            Err(FsError::NotFound) => RenameMode::NoReplace,
            Err(e) => return Err(status(e)),
            Ok((_, stored)) if to_dir == from_dir && stored == from_name => {
                if *stored == *wanted {
                    return Ok(None);
                }
                RenameMode::NoReplace
            }
            Ok((target, _)) if target.kind == FileKind::Directory => return Err(SmbError::AccessDenied),
            Ok(_) if !replace => return Err(SmbError::Exists),
            Ok((target, stored)) => {
                if target.id == source.id {
                    // POSIX does nothing when both are links to one inode; SMB wants the source's name gone.
                    files.outright().unlink(&self.who, from_dir, &from_name).await.or_status()?;
                    return Ok(Some(stored));
                }
                if *stored != *wanted {
                    // Another case of the name is taken: it goes under its own name, atomically.
                    files
                        .rename(&self.who, from_dir, &from_name, to_dir, &stored, RenameMode::Replace)
                        .await
                        .or_status()?;
                    files
                        .rename(&self.who, to_dir, &stored, to_dir, &wanted, RenameMode::NoReplace)
                        .await
                        .or_status()?;
                    return Ok(None);
                }
                RenameMode::Replace
            }
        };
        files.rename(&self.who, from_dir, &from_name, to_dir, &wanted, mode).await.or_status()?;
        Ok(None)
    }

    /// Makes `to` a further name of an inode.
    pub(super) async fn link(&self, ino: Ino, to: &SmbPath, replace_if_exists: bool) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::Link);
        let Some((dir, name)) = self.parent(to).await? else { return Err(SmbError::AccessDenied) };
        if !self.writable {
            return Err(SmbError::AccessDenied);
        }
        let files = &self.core.files;
        let dir = dir.id.ino;
        let wanted = names::stored(name);
        match self.core.find_stored(&self.who, dir, name).await {
            Err(FsError::NotFound) => drop(files.link(&self.who, ino, dir, &wanted).await.or_status()?),
            found => {
                let (taken, stored) = found.or_status()?;
                match taken.kind {
                    _ if !replace_if_exists => return Err(SmbError::Exists),
                    FileKind::Directory => return Err(SmbError::AccessDenied),
                    _ if taken.id.ino == ino => {}
                    _ => drop(files.relink(&self.who, ino, dir, &stored).await.or_status()?),
                }
            }
        }
        Ok(())
    }
}

/// Nothing is made, moved or removed in the past.
pub(super) fn of_today(path: &SmbPath) -> SmbResult<()> {
    match path.moment() {
        Some(_) => Err(SmbError::Status(MEDIA_WRITE_PROTECTED)),
        None => Ok(()),
    }
}

/// An entry as it was found.
#[derive(Clone)]
pub(super) struct FoundEntry {
    pub dir: Ino,
    pub spelled: Bytes,
    /// Of what it leads to, which may be a symbolic link.
    pub id: FileId,
}

/// An open under way, and what had happened in the volume before it looked.
pub(super) struct Way<'p> {
    pub path: &'p SmbPath,
    directory_renames: u64,
    events: u64,
    _hold: FeedHold,
}

pub(super) enum Attempt {
    Opened(Box<FileHandle>, OpenAction),
    /// The name came or went between two steps.
    Raced,
}

impl VisitedShare {
    /// Opens or makes a file or directory.
    ///
    /// Fails with [`SmbError::PathNotFound`] when a directory on the way to `path` is missing, and
    /// with [`SmbError::NotFound`] when only the last component is.
    #[boxed]
    pub async fn open(&self, path: &SmbPath, opts: OpenOptions) -> SmbResult<(Box<FileHandle>, OpenAction)> {
        let _op = self.core.stats.begin(Op::Open);
        #[cfg(test)]
        self.core.seam.pass(Step::Open(path, opts.intent)).await?;
        for _ in 0..RACES_MAX {
            if let Attempt::Opened(handle, action) = self.open_once(path, &opts).await? {
                return Ok((handle, action));
            }
        }
        Err(SmbError::AccessDenied)
    }

    /// What `path` leads to now.
    ///
    /// Fails with [`SmbError::PathNotFound`] when a directory on the way is missing.
    #[boxed]
    pub async fn locate(&self, path: &SmbPath) -> SmbResult<Located> {
        let Some((dir, name)) = self.parent(path).await? else {
            return Ok(Located { dir: 0, file: Some(self.top(path).await.or_status()?.id.ino.0) });
        };
        let file = match (self.entry(&dir, name).await, path.stream()) {
            (Ok(base), Some(stream)) => self.stream_of(&base, stream).await.map(|(_, attr, _)| attr),
            (found, _) => found.or_status(),
        };
        match file {
            Ok(attr) => Ok(Located { dir: dir.id.ino.0, file: Some(attr.id.ino.0) }),
            Err(SmbError::NotFound) => Ok(Located { dir: dir.id.ino.0, file: None }),
            Err(error) => Err(error),
        }
    }

    /// Whether the directory with the id `dir` is the one with the id `top` or lies below it.
    pub async fn is_within(&self, dir: u64, top: u64) -> bool {
        self.core.files.lies_within(Ino(dir), Ino(top)).await.unwrap_or(false)
    }

    /// The watched directories of the store behind the share.
    pub fn watches(&self) -> Watches {
        self.core.notices.watches.clone()
    }

    /// The entry at `path` has new contents or attributes: the FILE_NOTIFY_CHANGE_* bits `what`.
    #[boxed]
    pub async fn modified(&self, path: &SmbPath, what: u32) {
        let Ok(Some((dir, name))) = self.parent(path).await else { return };
        if let Ok((attr, stored)) = self.core.find_stored(&self.who, dir.id.ino, name).await {
            self.core.files.announce_modified(dir.id.ino, stored, &attr, Aspects(what));
        }
    }

    /// Returns once those who watch have been told of every change that was answered before.
    pub async fn settle_notices(&self) {
        self.core.notices.settle().await;
    }

    /// The moments that the share can be seen at, newest first and each once: paths with a
    /// [`SmbPath::moment`] lead through the share as it was then.
    pub fn moments(&self) -> Vec<Moment> {
        self.core.files.snapshot_seconds(self.core.root).into_iter().filter_map(Moment::new).collect()
    }

    /// Files can share extents ([`FileHandle::share_from`]).
    pub fn shares_extents(&self) -> bool {
        self.core.files.shares_extents()
    }

    /// Files and directories have named streams: paths with [`SmbPath::stream`] open them.
    pub fn keeps_streams(&self) -> bool {
        self.core.files.keeps_streams()
    }

    /// Size, free space and identity of the volume behind the share.
    pub fn volume_info(&self) -> VolumeInfo {
        let space = self.core.files.statfs(&self.who);
        // Of everybody (MS-FSCC 2.5.4); the other two are the user's, whose quota may leave less.
        let all = self.core.files.statfs(&Cred::root());
        VolumeInfo {
            total_allocation_units: space.total_bytes / ALLOCATION_BYTES,
            caller_available_allocation_units: space.available_bytes / ALLOCATION_BYTES,
            actual_available_allocation_units: all.free_bytes / ALLOCATION_BYTES,
            serial_number: self.core.files.id().as_fields().0,
        }
    }
}
