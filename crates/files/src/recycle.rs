//! The recycle bin of a share: removed files are kept in `.recycle` at its top, below their old path.
//!
//! - `recycle.one_rename`: a removal moves the inode into the bin in one step, so everything of it stays: owner, rights, times,
//!   streams, other names. Nothing is copied, and a crash leaves the file at its old place or in the bin.
//! - `recycle.emptied_in_bin`: a removal within any `.recycle` is a real one, and so is one of named attributes.
//! - `recycle.folders_mirror`: a folder of the bin has owner, mode and access list of the folder that it stands for, so nobody
//!   reaches more in the bin than before. Each removal brings them up to date.
//! - `recycle.age_by_change`: a removal sets the change time (ctime) of what is removed, and thinning goes by it: by what has really
//!   passed since the wall clock said so (`passed.eras`). A change of the file in the bin makes it younger.
//!   On the host: `bins.only_ours`.
//! - `recycle.full_removes`: where the volume or its quota has no room for the folders of the bin, removals are real ones:
//!   else nobody could make room.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::acl::DELETE;
use larder_fs::{
    AccessTimes, Answers, Attr, Changed, Cred, DirEntry, FileKind, FsError, FsResult, Ino, NameMatch, SetAttr,
};

use crate::Files;
use crate::bin::{BIN_NAME, Bin, NAMES_MAX, Oldest};
use crate::tree::Tree;

/// How often a removal starts over because folders of the bin came or went meanwhile.
const RACES_MAX: usize = 8;
/// Deeper than any path of a client.
const DEPTH_MAX: usize = 4096;
/// Levels on a way after which others have a turn.
const YIELD_EVERY: usize = 64;
/// Names with a counted suffix; more of one name get a random one.
const COUNTED_MAX: usize = 20;
const NAME_BYTES_MAX: usize = 255;
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
const PAGE_ENTRIES: usize = 1024;
/// Entries in memory for each folder that a walk is in.
const WALK_ENTRIES: usize = 128;

/// A folder on the way from the top of a share: its inode and its name.
type Step = (Ino, Bytes);

impl Files {
    /// Removes a name of anything but a directory, into the bin if there is one.
    pub(crate) async fn unlink_or_keep(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        if let Some(bin) = &self.bin
            && let Some(kept) = self.keep(bin, cred, dir, name, FileKind::File).await?
        {
            return Ok(kept);
        }
        self.tree.unlink(cred, dir, name).await
    }

    /// Removes an empty directory, into the bin if there is one.
    pub(crate) async fn rmdir_or_keep(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<Changed> {
        if let Some(bin) = &self.bin
            && let Some((_, changed)) = self.keep(bin, cred, dir, name, FileKind::Directory).await?
        {
            return Ok(changed);
        }
        self.tree.rmdir(cred, dir, name).await
    }

    /// Moves it into the bin. `None`: it is to be removed for good, or may not be removed, and the volume says why.
    async fn keep(
        &self,
        bin: &Bin,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
    ) -> FsResult<Option<(Attr, Changed)>> {
        let is_dir = kind == FileKind::Directory;
        for _ in 0..RACES_MAX {
            if !self.may_go(cred, dir, name, is_dir).await? {
                return Ok(None);
            }
            let Some(steps) = self.steps(bin, dir).await? else { return Ok(None) };
            if steps.iter().any(|(_, step)| *step == BIN_NAME) || dir == bin.top && name == BIN_NAME {
                return Ok(None);
            }
            let place = match self.mirror(bin, &steps).await {
                Ok(place) => place,
                Err(FsError::NoSpace(_) | FsError::Quota) => return Ok(None),
                Err(FsError::NotFound | FsError::Stale) => continue,
                Err(error) => return Err(error),
            };
            if is_dir && self.folder_in(place, name).await? {
                // What was in it stands below that folder already, which has its owner and rights.
                return Ok(None);
            }
            match self.set_aside(cred, dir, name, place, is_dir).await {
                Ok(kept) => {
                    bin.note(&kept.0);
                    return Ok(Some(kept));
                }
                Err(FsError::NoSpace(_) | FsError::Quota) => return Ok(None),
                // The host lets nobody move a folder of another user, and lets it be removed.
                Err(FsError::Access | FsError::NotPermitted) if is_dir => return Ok(None),
                // Thinned meanwhile, or removed by somebody else.
                Err(FsError::NotFound | FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Err(FsError::Busy("the folders of the recycle bin come and go; try again"))
    }

    /// Whether the volume would remove it, so that refused removals leave no folders in the bin.
    async fn may_go(&self, cred: &Cred, dir: Ino, name: &[u8], is_dir: bool) -> FsResult<bool> {
        if dir.is_past() {
            return Ok(false);
        }
        let attr = match self.tree.lookup(cred, dir, name, NameMatch::Exact).await {
            Ok(attr) => attr,
            Err(FsError::Io(why)) => return Err(FsError::Io(why)),
            Err(_) => return Ok(false),
        };
        if attr.id.ino.is_past() || is_dir != (attr.kind == FileKind::Directory) {
            return Ok(false);
        }
        if is_dir && !self.is_empty(attr.id.ino).await? {
            return Ok(false);
        }
        Ok(self.tree.rights(cred, attr.id.ino, Some(dir)).await? & DELETE != 0)
    }

    async fn is_empty(&self, dir: Ino) -> FsResult<bool> {
        Ok(self.quiet().readdir(&Cred::root(), dir, 0, 1, false).await?.entries.is_empty())
    }

    /// A handle that leaves access times alone, and whose changes are ordered: the removal that follows them waits.
    fn quiet(&self) -> Tree {
        self.tree.with_access_times(AccessTimes::NEVER).with_answers(Answers::Ordered)
    }

    /// The folders from below the top of the share down to `dir`; `None` if it does not lie there by names.
    async fn steps(&self, bin: &Bin, dir: Ino) -> FsResult<Option<Vec<Step>>> {
        let (mut steps, mut at) = (Vec::new(), dir);
        while at != bin.top {
            if at == Ino::ROOT || steps.len() >= DEPTH_MAX {
                return Ok(None);
            }
            let parent = match self.tree.parent(at).await {
                Ok(parent) => parent,
                Err(FsError::NotDirectory | FsError::Stale) => return Ok(None),
                Err(error) => return Err(error),
            };
            let name = match self.name_of(bin, parent, at).await {
                Ok(Some(name)) => name,
                Ok(None) | Err(FsError::NotDirectory | FsError::Stale) => return Ok(None),
                Err(error) => return Err(error),
            };
            steps.push((at, name));
            at = parent;
            if steps.len().is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
            }
        }
        steps.reverse();
        Ok(Some(steps))
    }

    /// The name of the folder `dir` in `parent`: as remembered, or from the list of names.
    async fn name_of(&self, bin: &Bin, parent: Ino, dir: Ino) -> FsResult<Option<Bytes>> {
        let known = bin.names.lock().get(&dir).cloned();
        if let Some((there, name)) = known
            && there == parent
            && let Ok(attr) = self.tree.lookup(&Cred::root(), parent, &name, NameMatch::Exact).await
            && attr.id.ino == dir
        {
            return Ok(Some(name));
        }
        let (tree, mut cookie) = (self.quiet(), 0);
        loop {
            let page = tree.readdir(&Cred::root(), parent, cookie, PAGE_ENTRIES, false).await?;
            if let Some(entry) = page.entries.iter().find(|entry| entry.ino == dir) {
                let mut names = bin.names.lock();
                if names.len() >= NAMES_MAX {
                    names.clear();
                }
                names.insert(dir, (parent, entry.name.clone()));
                return Ok(Some(entry.name.clone()));
            }
            match page.entries.last() {
                Some(last) if !page.eof => cookie = last.cookie,
                _ => return Ok(None),
            }
        }
    }

    /// The folder of the bin that stands for the last of `steps`, made where it is missing (`recycle.folders_mirror`).
    async fn mirror(&self, bin: &Bin, steps: &[Step]) -> FsResult<Ino> {
        // Where somebody's file has the name of the bin, nothing is lost: nothing is removed.
        let mut at = self.mirror_one(bin.top, BIN_NAME, bin.top).await?.ok_or(FsError::Exists)?;
        for (level, (folder, name)) in steps.iter().enumerate() {
            if level % YIELD_EVERY == YIELD_EVERY - 1 {
                tokio::task::yield_now().await;
            }
            let mut names = free_names(name);
            at = loop {
                let name = names.next().ok_or(FsError::Exists)?;
                if let Some(made) = self.mirror_one(at, &name, *folder).await? {
                    break made;
                }
            };
        }
        Ok(at)
    }

    /// The folder `name` of `parent`, with owner and rights of `like`. `None` if something else has the name.
    async fn mirror_one(&self, parent: Ino, name: &[u8], like: Ino) -> FsResult<Option<Ino>> {
        let (tree, root) = (self.quiet(), Cred::root());
        if let Tree::Folder(folder) = &tree {
            return folder.bin_folder(parent, name, like).await;
        }
        let (model, list) = tree.acl(like).await?;
        let set = SetAttr {
            mode: Some(model.mode & 0o7777),
            uid: Some(model.uid),
            gid: Some(model.gid),
            ..SetAttr::default()
        };
        let found = match tree.lookup(&root, parent, name, NameMatch::Exact).await {
            Ok(found) => found.id.ino,
            Err(FsError::NotFound) => match tree.mkdir(&root, parent, name, set).await {
                Ok((made, _)) => made.id.ino,
                Err(FsError::Exists) => return Err(FsError::Stale),
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        let (own, own_list) = tree.acl(found).await?;
        if own.kind != FileKind::Directory {
            return Ok(None);
        }
        if (own.mode, own.uid, own.gid) != (model.mode, model.uid, model.gid) || own_list != list {
            tree.set_acl(&root, found, set, list.map(|list| (*list).clone())).await?;
        }
        Ok(Some(found))
    }

    async fn folder_in(&self, dir: Ino, name: &[u8]) -> FsResult<bool> {
        match self.tree.lookup(&Cred::root(), dir, name, NameMatch::Exact).await {
            Ok(attr) => Ok(attr.kind == FileKind::Directory),
            Err(FsError::NotFound | FsError::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Under the first name that is free.
    async fn set_aside(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        place: Ino,
        is_dir: bool,
    ) -> FsResult<(Attr, Changed)> {
        for free in free_names(name) {
            match self.tree.set_aside(cred, dir, name, place, &free, is_dir).await {
                Err(FsError::Exists) => {}
                done => return done,
            }
        }
        Err(FsError::Exists)
    }

    /// Whether the bin may hold old removals. Does no I/O. `false` without a bin.
    pub fn bin_is_due(&self, age: Age) -> bool {
        self.bin.as_ref().is_some_and(|bin| match *bin.oldest.lock() {
            Oldest::Unknown => true,
            Oldest::Empty => false,
            Oldest::At(oldest) => age.is_old(oldest),
        })
    }

    /// Removes old removals for good, and folders of the bin that this empties. Returns the number of files and folders
    /// removed.
    #[boxed]
    pub async fn thin_bin(&self, age: Age) -> FsResult<u64> {
        let Some(bin) = &self.bin else { return Ok(0) };
        let files = self.outright();
        // A removal during the walk is younger than this, and noted as it comes.
        *bin.oldest.lock() = Oldest::Empty;
        let walked = match self.tree.lookup(&Cred::root(), bin.top, BIN_NAME, NameMatch::Exact).await {
            Ok(attr) if attr.kind == FileKind::Directory => match self.entered(bin.top, &attr).await {
                Ok(Some(how)) => files.thin(&attr, how, age).await,
                Ok(None) => Ok((0, None)),
                Err(error) => Err(error),
            },
            Ok(_) | Err(FsError::NotFound) => Ok((0, None)),
            Err(error) => Err(error),
        };
        let mut oldest = bin.oldest.lock();
        match walked {
            Ok((removed, left)) => {
                let noted = match *oldest {
                    Oldest::At(noted) => Some(noted),
                    _ => None,
                };
                *oldest = left
                    .into_iter()
                    .chain(noted)
                    .min_by_key(|&ctime| (age.when)(ctime))
                    .map_or(Oldest::Empty, Oldest::At);
                Ok(removed)
            }
            Err(error) => {
                *oldest = Oldest::Unknown;
                Err(error)
            }
        }
    }

    /// The folders that thinning enters. `None`: what has the name of the bin is none. On the host, a user who may write in
    /// the share can have put another folder there.
    async fn entered(&self, top: Ino, found: &Attr) -> FsResult<Option<Entered>> {
        let Tree::Folder(folder) = &self.tree else { return Ok(Some(Entered::All)) };
        if folder.is_bin_folder(found.id.ino).await? {
            return Ok(Some(Entered::Marked));
        }
        let share = self.tree.getattr(top).await?;
        if found.uid == share.uid && (share.mode & OTHERS_WRITE == 0 || share.mode & STICKY != 0) {
            return Ok(Some(Entered::OfOneOwner));
        }
        tracing::warn!(
            "the .recycle of a folder of this machine keeps all removed files: an older larder made it, or a user. Move \
             it away, and larder makes a new one"
        );
        Ok(None)
    }

    async fn is_entered(&self, how: Entered, holder: u32, found: &Attr) -> FsResult<bool> {
        let Tree::Folder(folder) = &self.tree else { return Ok(true) };
        match how {
            Entered::All => Ok(true),
            Entered::OfOneOwner if holder == 0 || holder == found.uid => Ok(true),
            Entered::OfOneOwner | Entered::Marked => match folder.is_bin_folder(found.id.ino).await {
                Err(FsError::Stale | FsError::NotFound) => Ok(false),
                other => other,
            },
        }
    }

    /// Walks the tree below `top` with a stack of its own, since paths may be deep. Returns the number removed and the oldest
    /// ctime that is left.
    async fn thin(&self, top: &Attr, how: Entered, age: Age) -> FsResult<(u64, Option<i64>)> {
        let (tree, root) = (self.quiet(), Cred::root());
        let mut left = Left::default();
        let mut removed = 0;
        let mut levels = vec![Level::new(top, Bytes::new(), false)];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.next(&tree).await? else {
                let done = levels.pop();
                if let (Some(done), Some(above)) = (done, levels.last_mut())
                    && done.goes
                    && self.rmdir(&root, above.dir, &done.name).await.is_ok()
                {
                    removed += 1;
                    above.goes = true;
                }
                continue;
            };
            let Some(attr) = entry.attr else { continue };
            let is_old = age.is_old(attr.ctime.secs);
            if !is_old {
                left.note(&attr, age);
            }
            if attr.kind == FileKind::Directory {
                let holder = level.holder;
                if levels.len() < DEPTH_MAX && self.is_entered(how, holder, &attr).await? {
                    levels.push(Level::new(&attr, entry.name, is_old));
                }
            } else if is_old {
                match self.unlink(&root, level.dir, &entry.name).await {
                    Ok(_) => {
                        removed += 1;
                        level.goes = true;
                    }
                    // Restored meanwhile.
                    Err(FsError::NotFound | FsError::Stale) => {}
                    // A client denies it: it is tried again.
                    Err(FsError::Shared) => left.note(&attr, age),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((removed, left.0))
    }

    /// The same door, whose removals below the directory `top` go to the bin there.
    pub fn recycling(&self, top: Ino) -> Files {
        let mut bins = self.shared.bins.lock();
        bins.retain(|bin| bin.strong_count() > 0);
        let known = bins.iter().filter_map(Weak::upgrade).find(|bin| bin.top == top);
        let bin = known.unwrap_or_else(|| {
            let bin = Arc::new(Bin::new(top));
            bins.push(Arc::downgrade(&bin));
            bin
        });
        drop(bins);
        Files { bin: Some(bin), ..self.clone() }
    }

    /// The same door for removals that no bin keeps: of streams, and of what a replacement left over.
    pub fn outright(&self) -> Files {
        Files { bin: None, ..self.clone() }
    }
}

/// The folders of a bin that thinning enters (`bins.entered`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entered {
    All,
    /// Those that larder made.
    Marked,
    /// Those of an older larder: with the owner of the folder that they lie in, or in one of root's.
    OfOneOwner,
}

/// What is old in a bin (`recycle.age_by_change`).
#[derive(Clone, Copy)]
pub struct Age {
    /// A removal of before is old: seconds of the time of the box, since 1970.
    pub before: i64,
    /// The moment, by the time of the box, at which the wall clock said so (`passed.eras`).
    pub when: fn(i64) -> i64,
}

impl Age {
    fn is_old(self, ctime: i64) -> bool {
        (self.when)(ctime) < self.before
    }
}

/// The oldest ctime of what a walk leaves.
#[derive(Default)]
struct Left(Option<i64>);

impl Left {
    fn note(&mut self, attr: &Attr, age: Age) {
        let ctime = attr.ctime.secs;
        self.0 = self.0.into_iter().chain([ctime]).min_by_key(|&ctime| (age.when)(ctime));
    }
}

/// A folder that a walk is in.
struct Level {
    dir: Ino,
    /// Its owner.
    holder: u32,
    name: Bytes,
    page: std::vec::IntoIter<DirEntry>,
    cookie: u64,
    eof: bool,
    /// Old itself, or emptied by this walk.
    goes: bool,
}

impl Level {
    fn new(dir: &Attr, name: Bytes, goes: bool) -> Level {
        Level { dir: dir.id.ino, holder: dir.uid, name, page: Vec::new().into_iter(), cookie: 0, eof: false, goes }
    }

    async fn next(&mut self, tree: &Tree) -> FsResult<Option<DirEntry>> {
        loop {
            if let Some(entry) = self.page.next() {
                self.cookie = entry.cookie;
                return Ok(Some(entry));
            }
            if self.eof {
                return Ok(None);
            }
            match tree.readdir(&Cred::root(), self.dir, self.cookie, WALK_ENTRIES, true).await {
                Ok(listing) => {
                    self.eof = listing.eof || listing.entries.is_empty();
                    self.page = listing.entries.into_iter();
                }
                Err(FsError::Stale | FsError::NotFound) => self.eof = true,
                Err(error) => return Err(error),
            }
        }
    }
}

/// `name`, then `name (2)` and so on, before an extension.
fn free_names(name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let plain = name.to_vec();
    let counted = {
        let plain = plain.clone();
        (2..=COUNTED_MAX).map(move |n| suffixed(&plain, &n.to_string()))
    };
    let random = {
        let plain = plain.clone();
        std::iter::once_with(move || suffixed(&plain, &uuid::Uuid::new_v4().simple().to_string()))
    };
    std::iter::once(plain).chain(counted).chain(random)
}

fn suffixed(name: &[u8], suffix: &str) -> Vec<u8> {
    /// A longer one is no extension.
    const EXTENSION_BYTES_MAX: usize = 16;
    let dot = name.iter().rposition(|&byte| byte == b'.');
    let dot = dot.filter(|&dot| dot > 0 && name.len() - dot <= EXTENSION_BYTES_MAX).unwrap_or(name.len());
    let (stem, extension) = name.split_at(dot);
    let suffix = format!(" ({suffix})");
    let mut room = stem.len().min(NAME_BYTES_MAX - extension.len() - suffix.len());
    // No character of UTF-8 is cut in two.
    while room < stem.len() && room > 0 && stem[room] & 0xC0 == 0x80 {
        room -= 1;
    }
    [&stem[..room], suffix.as_bytes(), extension].concat()
}

#[cfg(test)]
mod tests;
