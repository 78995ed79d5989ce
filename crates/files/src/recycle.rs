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
use larder_fs::{AccessTimes, Answers, Attr, Changed, Cred, FileKind, FsError, FsResult, Ino, NameMatch, SetAttr};

use crate::Files;
use crate::bin::{BIN_NAME, Bin, NAMES_MAX, Oldest};
use crate::facts::{Act, Change, Duty, does};
use crate::tree::{Kind, Tree};
use crate::walk::{Step as WalkStep, Walk};

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

/// A folder on the way from the top of a share: its inode and its name.
type Step = (Ino, Bytes);

/// In place of a removal: its entry moves into the bin of the share. `None`: there is no bin, or it
/// is removed for good.
pub(crate) async fn before(files: &Files, change: &Change<'_>) -> FsResult<Option<(Attr, Changed)>> {
    let is_dir = match change.act {
        Act::Unlink => false,
        Act::Rmdir => true,
        // A bin keeps what is removed by name, not what something else replaces.
        Act::Relink { .. } | Act::Rename | Act::Create { .. } => return Ok(None),
        Act::Write { .. } | Act::Append { .. } | Act::Allocate { .. } | Act::Share { .. } => return Ok(None),
        Act::Attributes { .. } | Act::Unnamed | Act::Make | Act::Link { .. } => return Ok(None),
    };
    let Some(bin) = &files.bin else { return Ok(None) };
    does(Duty::Bin);
    keep(files, bin, change, is_dir).await
}

#[boxed]
async fn keep(files: &Files, bin: &Bin, change: &Change<'_>, is_dir: bool) -> FsResult<Option<(Attr, Changed)>> {
    // A handle that leaves access times alone, and whose changes are ordered: the removal that
    // follows them waits.
    let quiet = files.tree.with_access_times(AccessTimes::NEVER).with_answers(Answers::Ordered);
    let (dir, name) = &change.entries[0];
    Recycle { tree: &files.tree, quiet, bin }.keep(change.cred, *dir, name, is_dir).await
}

/// The bin of a share, and its tree.
struct Recycle<'f> {
    tree: &'f Tree,
    quiet: Tree,
    bin: &'f Bin,
}

impl Recycle<'_> {
    /// Moves it into the bin. `None`: it is to be removed for good, or may not be removed, and the volume says why.
    async fn keep(&self, cred: &Cred, dir: Ino, name: &[u8], is_dir: bool) -> FsResult<Option<(Attr, Changed)>> {
        let bin = self.bin;
        for _ in 0..RACES_MAX {
            if !self.may_go(cred, dir, name, is_dir).await? {
                return Ok(None);
            }
            let Some(steps) = self.steps(dir).await? else { return Ok(None) };
            if steps.iter().any(|(_, step)| *step == BIN_NAME) || dir == bin.top && name == BIN_NAME {
                return Ok(None);
            }
            let place = match self.mirror(&steps).await {
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
        Ok(self.quiet.readdir(&Cred::root(), dir, 0, 1, false).await?.entries.is_empty())
    }

    /// The folders from below the top of the share down to `dir`; `None` if it does not lie there by names.
    async fn steps(&self, dir: Ino) -> FsResult<Option<Vec<Step>>> {
        let (mut steps, mut at) = (Vec::new(), dir);
        while at != self.bin.top {
            if at == Ino::ROOT || steps.len() >= DEPTH_MAX {
                return Ok(None);
            }
            let parent = match self.tree.parent(at).await {
                Ok(parent) => parent,
                Err(FsError::NotDirectory | FsError::Stale) => return Ok(None),
                Err(error) => return Err(error),
            };
            let name = match self.name_of(parent, at).await {
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
    async fn name_of(&self, parent: Ino, dir: Ino) -> FsResult<Option<Bytes>> {
        let known = self.bin.names.lock().get(&dir).cloned();
        if let Some((there, name)) = known
            && there == parent
            && let Ok(attr) = self.tree.lookup(&Cred::root(), parent, &name, NameMatch::Exact).await
            && attr.id.ino == dir
        {
            return Ok(Some(name));
        }
        let mut cookie = 0;
        loop {
            let page = self.quiet.readdir(&Cred::root(), parent, cookie, PAGE_ENTRIES, false).await?;
            if let Some(entry) = page.entries.iter().find(|entry| entry.ino == dir) {
                let mut names = self.bin.names.lock();
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
    async fn mirror(&self, steps: &[Step]) -> FsResult<Ino> {
        // Where somebody's file has the name of the bin, nothing is lost: nothing is removed.
        let mut at = self.mirror_one(self.bin.top, BIN_NAME, self.bin.top).await?.ok_or(FsError::Exists)?;
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
        let (tree, root) = (&self.quiet, Cred::root());
        if let Kind::Folder(folder) = &tree.0 {
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
}

impl Files {
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
            Ok(attr) if attr.kind == FileKind::Directory => match entered(&self.tree, bin.top, &attr).await {
                Ok(Some(how)) => thin(&files, &attr, how, age).await,
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

/// The folders that thinning enters. `None`: what has the name of the bin is none. On the host, a user who may write in
/// the share can have put another folder there.
async fn entered(tree: &Tree, top: Ino, found: &Attr) -> FsResult<Option<Entered>> {
    let Kind::Folder(folder) = &tree.0 else { return Ok(Some(Entered::All)) };
    if folder.is_bin_folder(found.id.ino).await? {
        return Ok(Some(Entered::Marked));
    }
    let share = tree.getattr(top).await?;
    if found.uid == share.uid && (share.mode & OTHERS_WRITE == 0 || share.mode & STICKY != 0) {
        return Ok(Some(Entered::OfOneOwner));
    }
    tracing::warn!(
        "the .recycle of a folder of this machine keeps all removed files: an older larder made it, or a user. Move \
         it away, and larder makes a new one"
    );
    Ok(None)
}

async fn is_entered(tree: &Tree, how: Entered, holder: u32, found: &Attr) -> FsResult<bool> {
    let Kind::Folder(folder) = &tree.0 else { return Ok(true) };
    match how {
        Entered::All => Ok(true),
        Entered::OfOneOwner if holder == 0 || holder == found.uid => Ok(true),
        Entered::OfOneOwner | Entered::Marked => match folder.is_bin_folder(found.id.ino).await {
            Err(FsError::Stale | FsError::NotFound) => Ok(false),
            other => other,
        },
    }
}

/// Removes what is old below `top`. Returns the number removed and the oldest ctime that is left.
async fn thin(files: &Files, top: &Attr, how: Entered, age: Age) -> FsResult<(u64, Option<i64>)> {
    let root = Cred::root();
    let mut walk = Walk::new(files.untouched().tree, root.clone(), true);
    let (mut left, mut removed) = (Left::default(), 0);
    let opened = walk.open(top.id.ino).await?;
    walk.enter(opened, b"", Level { parent: top.id.ino, name: Bytes::new(), holder: top.uid, goes: false });
    while let Some(step) = walk.next().await {
        let entry = match step {
            WalkStep::Entry(entry) => entry,
            WalkStep::Left(_, Some(error)) => return Err(error),
            WalkStep::Left(done, None) => {
                if done.goes && files.rmdir(&root, done.parent, &done.name).await.is_ok() {
                    removed += 1;
                    walk.data().into_iter().for_each(|above| above.goes = true);
                }
                continue;
            }
        };
        let (Some(attr), Some(parent)) = (entry.attr, walk.dir()) else { continue };
        let Some(level) = walk.data() else { continue };
        let is_old = age.is_old(attr.ctime.secs);
        if !is_old {
            left.note(&attr, age);
        }
        if attr.kind == FileKind::Directory {
            if is_entered(&files.tree, how, level.holder, &attr).await? {
                match walk.open(attr.id.ino).await {
                    Ok(opened) => {
                        let level = Level { parent, name: entry.name.clone(), holder: attr.uid, goes: is_old };
                        walk.enter(opened, &entry.name, level);
                    }
                    // Gone meanwhile, or deeper than any path of a client.
                    Err(FsError::Stale | FsError::NotFound | FsError::NameTooLong) => {}
                    Err(error) => return Err(error),
                }
            }
        } else if is_old {
            match files.unlink(&root, parent, &entry.name).await {
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

/// A folder that thinning is in, below its parent.
struct Level {
    parent: Ino,
    name: Bytes,
    /// Its owner.
    holder: u32,
    /// Old itself, or emptied by the walk.
    goes: bool,
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
