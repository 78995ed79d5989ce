//! What differs between two moments: from the index of changes, so the rest of the volume is not looked at.
//!
//! - `diff.by_inode`: names are compared within directories that changed. A name that went and one that came of the same inode are
//!   a rename; of an inode that is in one of the two only, a removal or a creation.
//! - `diff.content_by_attributes`: a file is modified if its change number or its times say so. That its data was moved within the
//!   store, or stored at last, is no change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::*;

use super::changes::changed;
use super::view::View;
use crate::inode_core::InodeCore;
use crate::keys::{self, tag};
use crate::meta::Meta;
use crate::volume::Volume;

const PAGE: usize = 2048;
/// Names kept in memory for looking up paths.
const NAMES_MAX: usize = 1 << 20;
/// Deeper than any path of a client.
const DEPTH_MAX: usize = 4096;
/// As Linux has it.
const PATH_BYTES_MAX: usize = 4096;

/// The rows of one of the two moments.
enum Side {
    Now(Arc<dyn Meta>),
    Then(Arc<View>),
}

impl Side {
    async fn inode(&self, ino: Ino) -> FsResult<Option<InodeCore>> {
        let key = keys::inode_key(ino);
        let record = match self {
            Side::Now(head) => head.get(&key).await?,
            Side::Then(view) => view.get(&key).await?,
        };
        let core = record.map(|record| keys::decode_inode(ino, &record)).transpose()?;
        Ok(core.filter(|core| core.attr.nlink > 0))
    }

    /// The names in a directory, with the inodes that they lead to.
    async fn names(&self, dir: Ino) -> FsResult<BTreeMap<Bytes, Ino>> {
        let (mut from, to) = keys::range_of(tag::ENTRY, dir);
        let mut names = BTreeMap::new();
        loop {
            let page = match self {
                Side::Now(head) => head.scan(&from, &to, PAGE).await?,
                Side::Then(view) => view.scan(&from, &to, PAGE).await?,
            };
            for (key, value) in &page {
                names.insert(keys::rest_of(key), keys::decode_entry(key, value)?.ino);
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE => from = [&last[..], &[0][..]].concat().into(),
                _ => return Ok(names),
            }
        }
    }
}

/// Looks up paths on one side.
struct Paths<'a> {
    side: &'a Side,
    /// Of directories that were looked at: their entries by inode.
    names: HashMap<Ino, HashMap<Ino, Bytes>>,
    known: usize,
    dirs: HashMap<Ino, Option<String>>,
}

impl<'a> Paths<'a> {
    fn of(side: &'a Side) -> Self {
        let dirs = HashMap::from([(Ino::ROOT, Some(String::new()))]);
        Self { side, names: HashMap::new(), known: 0, dirs }
    }

    async fn name_in(&mut self, dir: Ino, ino: Ino) -> FsResult<Option<Bytes>> {
        if !self.names.contains_key(&dir) {
            let names = self.side.names(dir).await?;
            self.known += names.len();
            if self.known > NAMES_MAX {
                self.names.clear();
                self.known = names.len();
            }
            self.names.insert(dir, names.into_iter().map(|(name, ino)| (ino, name)).collect());
        }
        Ok(self.names.get(&dir).and_then(|names| names.get(&ino)).cloned())
    }

    /// The path of a directory; `None`: no name leads to it, so it holds the named attributes of a file.
    async fn dir(&mut self, dir: Ino) -> FsResult<Option<String>> {
        let (mut steps, mut at) = (Vec::new(), dir);
        let mut path = loop {
            if let Some(known) = self.dirs.get(&at) {
                break known.clone();
            }
            let parent = self.side.inode(at).await?.map(|core| core.parent);
            let Some(parent) = parent.filter(|_| steps.len() < DEPTH_MAX) else { break None };
            let name = self.name_in(parent, at).await?;
            steps.push((at, name));
            at = parent;
        };
        for (dir, name) in steps.into_iter().rev() {
            path = path.zip(name).map(|(path, name)| below(&path, &name));
            self.dirs.insert(dir, path.clone());
        }
        Ok(path)
    }

    async fn entry(&mut self, dir: Ino, name: &Bytes) -> FsResult<Option<String>> {
        Ok(self.dir(dir).await?.map(|path| below(&path, name)))
    }

    /// A path of an inode whose names did not change.
    async fn inode(&mut self, core: &InodeCore) -> FsResult<Option<String>> {
        let ino = core.attr.id.ino;
        if core.attr.kind == FileKind::Directory {
            return self
                .dir(ino)
                .await
                .map(|path| path.map(|path| if path.is_empty() { "/".to_owned() } else { path }));
        }
        match self.name_in(core.parent, ino).await? {
            Some(name) => self.entry(core.parent, &name).await,
            // The parent of a file is a hint.
            None => Ok(Some(format!("inode {}", ino.0))),
        }
    }
}

/// A path too long for any client is named by its beginning and its end: paths of all folders of a deep tree would take
/// memory by the square of its depth.
fn below(path: &str, name: &[u8]) -> String {
    const LEFT_OUT: &str = "/...";
    let name = String::from_utf8_lossy(name);
    if path.len() + name.len() < PATH_BYTES_MAX {
        return format!("{path}/{name}");
    }
    let head = path.split_once(LEFT_OUT).map_or(path, |(head, _)| head);
    let mut end = head.len().min(PATH_BYTES_MAX);
    while !head.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{LEFT_OUT}/{name}", &head[..end])
}

/// The names of one inode that went and that came: directory and name.
#[derive(Default)]
struct Moves {
    went: Vec<(Ino, Bytes)>,
    came: Vec<(Ino, Bytes)>,
}

impl Volume {
    /// What is different in `later` (`None`: now) from the snapshot `earlier`, by path. [`FsError::NotFound`] if there is no such
    /// snapshot, [`FsError::Invalid`] if `later` is the older one.
    #[boxed]
    pub async fn diff(&self, earlier: &str, later: Option<&str>) -> FsResult<Vec<Difference>> {
        let (state, catalog) = (&self.state, &self.state.catalog);
        let first = catalog.find(earlier).ok_or(FsError::NotFound)?;
        let (second, last) = match later {
            Some(later) => {
                let number = catalog.find(later).ok_or(FsError::NotFound)?;
                (Side::Then(catalog.view(number).await?), number)
            }
            None => {
                // What is dirty has no row yet.
                state.data.sync_all().await?;
                (Side::Now(Arc::clone(catalog.head())), state.data.epoch())
            }
        };
        if last < first {
            return Err(FsError::Invalid("the first of two snapshots is the older one"));
        }
        let mut inos = changed(&**catalog.head(), first, last).await?;
        let view = catalog.view(first).await?;
        inos.extend(view.patched());
        if let Side::Then(later) = &second {
            inos.extend(later.patched());
        }
        let first = Side::Then(view);
        let mut moves: BTreeMap<Ino, Moves> = BTreeMap::new();
        let mut pairs = Vec::new();
        for ino in inos {
            let (then, now) = (first.inode(ino).await?, second.inode(ino).await?);
            let is_dir = |core: &Option<InodeCore>| core.as_ref().is_some_and(|c| c.attr.kind == FileKind::Directory);
            let mut entries_changed = false;
            if is_dir(&then) || is_dir(&now) {
                let before = if then.is_some() { first.names(ino).await? } else { BTreeMap::new() };
                let after = if now.is_some() { second.names(ino).await? } else { BTreeMap::new() };
                for (name, child) in before.iter().filter(|(name, child)| after.get(*name) != Some(child)) {
                    moves.entry(*child).or_default().went.push((ino, name.clone()));
                    entries_changed = true;
                }
                for (name, child) in after.iter().filter(|(name, child)| before.get(*name) != Some(child)) {
                    moves.entry(*child).or_default().came.push((ino, name.clone()));
                    entries_changed = true;
                }
            }
            pairs.push((ino, then, now, entries_changed));
        }
        let (mut before, mut after) = (Paths::of(&first), Paths::of(&second));
        let mut found = Vec::new();
        for (ino, then, now, entries_changed) in pairs {
            let Some(kind) = then.as_ref().or(now.as_ref()).map(|core| core.attr.kind) else { continue };
            let Moves { mut went, mut came } = moves.remove(&ino).unwrap_or_default();
            let is_moved = !went.is_empty() || !came.is_empty();
            let both = then.is_some() && now.is_some();
            let renames = if both { went.len().min(came.len()) } else { 0 };
            for ((from_dir, from), (to_dir, to)) in went.drain(..renames).zip(came.drain(..renames)) {
                let from = before.entry(from_dir, &from).await?;
                if let Some(path) = after.entry(to_dir, &to).await? {
                    found.push(Difference { change: DiffKind::Renamed, kind, path, from });
                }
            }
            for (dir, name) in went {
                let path = before.entry(dir, &name).await?;
                found.extend(path.map(|path| Difference { change: DiffKind::Removed, kind, path, from: None }));
            }
            for (dir, name) in came {
                let path = after.entry(dir, &name).await?;
                found.extend(path.map(|path| Difference { change: DiffKind::Created, kind, path, from: None }));
            }
            let Some((then, now)) = then.zip(now) else { continue };
            if is_modified(&then, &now, is_moved, entries_changed)
                && let Some(path) = after.inode(&now).await?
            {
                found.push(Difference { change: DiffKind::Modified, kind, path, from: None });
            }
        }
        found.sort_by(|a, b| (&a.path, a.change as u8).cmp(&(&b.path, b.change as u8)));
        Ok(found)
    }
}

/// `diff.content_by_attributes`
fn is_modified(then: &InodeCore, now: &InodeCore, is_moved: bool, entries_changed: bool) -> bool {
    let facts = |core: &InodeCore| {
        let attr = &core.attr;
        (attr.mode, attr.uid, attr.gid, attr.dos, core.xattrs, core.acl.as_ref().map(|acl| acl.encode()))
    };
    let differs = facts(then) != facts(now);
    if now.attr.kind == FileKind::Directory {
        return entries_changed
            || differs
            || !is_moved && then.attr.mtime == now.attr.mtime && then.attr.ctime != now.attr.ctime;
    }
    let data = |core: &InodeCore| (core.attr.size, core.attr.mtime, core.attr.id.generation);
    // A name alone changes the time of change, too.
    differs || data(then) != data(now) || !is_moved && then.attr.ctime != now.attr.ctime
}
