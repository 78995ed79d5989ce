//! The model of a directory tree, and how a volume is compared with it. What files hold is kept beside it (`history.rs`).

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use larder_fs::{Cred, FileId, FileKind, FsError, IO_BYTES_MAX, Ino};
use larder_volume::Volume;

use crate::file_model::FileModel;

/// The directory that a client works in.
pub const TOP: u64 = 0;
/// Prefix of named attributes among the extended attributes of a node.
pub const NAMED_PREFIX: &str = "named attribute ";
/// More than any client makes of one owner.
const NAMED_MAX: usize = 64;

#[derive(Clone, Debug)]
pub enum Body {
    File,
    Directory(BTreeMap<String, u64>),
    Symlink(String),
    /// A FIFO.
    Special,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub body: Body,
    pub mode: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Known once its creation was answered.
    pub id: Option<FileId>,
}

/// Nodes by number of our own.
#[derive(Clone, Debug)]
pub struct Tree {
    pub nodes: BTreeMap<u64, Node>,
    next: u64,
}

impl Tree {
    pub fn new(id: Option<FileId>) -> Self {
        let top = Node { body: Body::Directory(BTreeMap::new()), mode: 0o755, xattrs: BTreeMap::new(), id };
        Self { nodes: BTreeMap::from([(TOP, top)]), next: 1 }
    }

    pub fn names(&self, directory: u64) -> Option<&BTreeMap<String, u64>> {
        match self.nodes.get(&directory).map(|node| &node.body) {
            Some(Body::Directory(names)) => Some(names),
            _ => None,
        }
    }

    fn names_mut(&mut self, directory: u64) -> Option<&mut BTreeMap<String, u64>> {
        match self.nodes.get_mut(&directory).map(|node| &mut node.body) {
            Some(Body::Directory(names)) => Some(names),
            _ => None,
        }
    }

    /// The number of the node that is added next.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn ino(&self, number: u64) -> Option<Ino> {
        Some(self.nodes.get(&number)?.id?.ino)
    }

    pub fn directories(&self) -> Vec<u64> {
        self.numbers(|body| matches!(body, Body::Directory(_)))
    }

    pub fn files(&self) -> Vec<u64> {
        self.numbers(|body| matches!(body, Body::File))
    }

    fn numbers(&self, is_wanted: impl Fn(&Body) -> bool) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| is_wanted(&node.body)).map(|(number, _)| *number).collect()
    }

    pub fn get(&self, directory: u64, name: &str) -> Option<u64> {
        self.names(directory)?.get(name).copied()
    }

    pub fn links(&self, number: u64) -> usize {
        self.nodes
            .keys()
            .filter_map(|directory| self.names(*directory))
            .flat_map(BTreeMap::values)
            .filter(|n| **n == number)
            .count()
    }

    pub fn add(&mut self, directory: u64, name: &str, body: Body, mode: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, Node { body, mode, xattrs: BTreeMap::new(), id: None });
        self.link(directory, name, number);
        number
    }

    pub fn link(&mut self, directory: u64, name: &str, number: u64) {
        if let Some(names) = self.names_mut(directory) {
            names.insert(name.to_owned(), number);
        }
    }

    /// Takes a name away; what has no name any more is gone, unless it is `kept` open.
    pub fn unlink(&mut self, directory: u64, name: &str, kept: Option<u64>) {
        let number = self.names_mut(directory).and_then(|names| names.remove(name));
        self.forget(number, kept);
    }

    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str), kept: Option<u64>) {
        let Some(number) = self.get(from.0, from.1) else { return };
        let replaced = self.get(to.0, to.1);
        if replaced == Some(number) {
            return;
        }
        if let Some(names) = self.names_mut(from.0) {
            names.remove(from.1);
        }
        self.link(to.0, to.1, number);
        self.forget(replaced, kept);
    }

    pub fn forget(&mut self, number: Option<u64>, kept: Option<u64>) {
        if let Some(number) = number.filter(|number| self.links(*number) == 0 && kept != Some(*number)) {
            self.nodes.remove(&number);
        }
    }

    /// Both names lead to what the other led to.
    pub fn exchange(&mut self, from: (u64, &str), to: (u64, &str)) {
        if let (Some(source), Some(target)) = (self.get(from.0, from.1), self.get(to.0, to.1)) {
            self.link(from.0, from.1, target);
            self.link(to.0, to.1, source);
        }
    }

    /// A name leads to another file from now on.
    pub fn relink(&mut self, directory: u64, name: &str, number: u64, kept: Option<u64>) {
        let replaced = self.get(directory, name);
        self.link(directory, name, number);
        self.forget(replaced, kept);
    }

    /// Whether `directory` is `above` or lies below it.
    pub fn is_within(&self, directory: u64, above: u64) -> bool {
        directory == above
            || self.names(above).is_some_and(|names| names.values().any(|child| self.is_within(directory, *child)))
    }

    /// Drops the nodes that no name leads to.
    pub fn drop_unlinked(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().filter(|number| *number != TOP).collect();
        numbers.into_iter().for_each(|number| self.forget(Some(number), None));
    }
}

/// An inode found in a volume.
#[derive(Clone)]
pub struct Found {
    id: FileId,
    mode: u32,
    nlink: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
    body: FoundBody,
}

#[derive(Clone)]
enum FoundBody {
    /// Its bytes, and how many it takes up.
    File(Vec<u8>, u64),
    Directory(BTreeMap<String, Found>),
    Symlink(String),
    Other,
}

/// Contents of files, by the number of their node.
pub type Files = BTreeMap<u64, FileModel>;

impl Found {
    /// Names and lengths of the files, for a trace.
    pub fn outline(&self) -> String {
        match &self.body {
            FoundBody::File(bytes, _) => bytes.len().to_string(),
            FoundBody::Directory(names) => {
                let part = |(name, child): (&String, &Self)| format!("{name}: {}", child.outline());
                format!("{{{}}}", names.iter().map(part).collect::<Vec<_>>().join(", "))
            }
            FoundBody::Symlink(_) => "link".to_owned(),
            FoundBody::Other => "special".to_owned(),
        }
    }
}

/// The part of an inode number that is the same in a snapshot.
const SAME_INO: u64 = (1 << 40) - 1;

impl Found {
    pub fn child(&self, name: &str) -> Option<&Found> {
        match &self.body {
            FoundBody::Directory(names) => names.get(name),
            _ => None,
        }
    }

    /// The contents of a directory that holds files alone.
    pub fn files(&self) -> Option<BTreeMap<&str, &[u8]>> {
        let FoundBody::Directory(names) = &self.body else { return None };
        let files = names.iter().map(|(name, child)| match &child.body {
            FoundBody::File(bytes, _) => Some((name.as_str(), &bytes[..])),
            _ => None,
        });
        files.collect()
    }

    /// Whether it is the same as `other`, found in a snapshot or outside; with other generations of files where it went back to it.
    /// The sentence begins with a path.
    pub fn is_as(&self, other: &Found, went_back: bool) -> Result<(), String> {
        let (id, wanted) = (self.id, other.id);
        let is_other = id.generation != wanted.generation && !(went_back && matches!(self.body, FoundBody::File(..)));
        if id.ino.0 & SAME_INO != wanted.ino.0 & SAME_INO || is_other {
            return Err(format!(" is inode {id:?}, it should be {wanted:?}"));
        }
        if (self.mode, self.nlink) != (other.mode, other.nlink) {
            let (mode, nlink) = (self.mode, self.nlink);
            return Err(format!(
                " has mode {mode:o} and {nlink} links, it should have {:o} and {}",
                other.mode, other.nlink
            ));
        }
        if self.xattrs != other.xattrs {
            return Err(format!(" has attributes {:?}, it should have {:?}", self.xattrs.keys(), other.xattrs.keys()));
        }
        match (&self.body, &other.body) {
            (FoundBody::File(bytes, _), FoundBody::File(wanted, _)) if bytes == wanted => Ok(()),
            (FoundBody::File(bytes, _), FoundBody::File(wanted, _)) => {
                let at = bytes.iter().zip(wanted).position(|(byte, wanted)| byte != wanted);
                Err(format!(" has {} bytes of {}, the first that differs at {at:?}", bytes.len(), wanted.len()))
            }
            (FoundBody::Symlink(target), FoundBody::Symlink(wanted)) if target == wanted => Ok(()),
            (FoundBody::Other, FoundBody::Other) => Ok(()),
            (FoundBody::Directory(names), FoundBody::Directory(wanted)) => {
                if let Some(name) = names.keys().find(|name| !wanted.contains_key(*name)) {
                    return Err(format!("/{name} should not be there"));
                }
                for (name, wanted) in wanted {
                    let found = names.get(name).ok_or_else(|| format!("/{name} is missing"))?;
                    found.is_as(wanted, went_back).map_err(|why| format!("/{name}{why}"))?;
                }
                Ok(())
            }
            _ => Err(" is something else than it should be".to_owned()),
        }
    }
}

/// The model of what was found.
pub fn adopt(found: &Found) -> (Tree, Files) {
    let (mut tree, mut files, mut known) = (Tree::new(Some(found.id)), Files::new(), BTreeMap::new());
    adopt_node(&mut tree, &mut files, &mut known, TOP, found);
    (tree, files)
}

fn adopt_node(tree: &mut Tree, files: &mut Files, known: &mut BTreeMap<u64, u64>, number: u64, found: &Found) {
    let body = match &found.body {
        FoundBody::File(bytes, _) => {
            files.insert(number, FileModel::found(bytes.clone()));
            Body::File
        }
        FoundBody::Symlink(target) => Body::Symlink(target.clone()),
        FoundBody::Other => Body::Special,
        FoundBody::Directory(children) => {
            let mut names = BTreeMap::new();
            for (name, child) in children {
                let next = tree.next;
                let child_number = *known.entry(child.id.ino.0).or_insert(next);
                names.insert(name.clone(), child_number);
                if child_number == next {
                    tree.next += 1;
                    adopt_node(tree, files, known, child_number, child);
                }
            }
            Body::Directory(names)
        }
    };
    let node = Node { body, mode: found.mode, xattrs: found.xattrs.clone(), id: Some(found.id) };
    tree.nodes.insert(number, node);
}

const PAGE: usize = 7;

/// Reads all there is below an inode.
pub fn explore(volume: &Volume, ino: Ino) -> BoxFuture<'_, Result<Found, FsError>> {
    Box::pin(async move {
        let cred = Cred::root();
        let attr = volume.getattr(ino).await?;
        let body = match attr.kind {
            FileKind::File => FoundBody::File(read_all(volume, ino).await?, attr.allocated),
            FileKind::Symlink => FoundBody::Symlink(String::from_utf8_lossy(&volume.readlink(ino).await?).into_owned()),
            FileKind::Directory => {
                let mut names = BTreeMap::new();
                let mut cookie = 0;
                loop {
                    let page = volume.readdir(&cred, ino, cookie, PAGE, false).await?;
                    for entry in &page.entries {
                        let name = String::from_utf8_lossy(&entry.name).into_owned();
                        names.insert(name, explore(volume, entry.ino).await?);
                        cookie = entry.cookie;
                    }
                    if page.eof {
                        break;
                    }
                }
                FoundBody::Directory(names)
            }
            _ => FoundBody::Other,
        };
        let mut xattrs = BTreeMap::new();
        for name in volume.listxattr(&cred, ino).await? {
            let value = volume.getxattr(&cred, ino, &name).await?;
            xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value.to_vec());
        }
        if let Some(dir) = volume.named_dir(ino, false).await? {
            for entry in volume.readdir(&cred, dir, 0, NAMED_MAX, false).await?.entries {
                xattrs.insert(format!("{NAMED_PREFIX}{}", String::from_utf8_lossy(&entry.name)), Vec::new());
            }
        }
        Ok(Found { id: attr.id, mode: attr.mode, nlink: attr.nlink, xattrs, body })
    })
}

pub async fn read_all(volume: &Volume, ino: Ino) -> Result<Vec<u8>, FsError> {
    let mut bytes = Vec::new();
    loop {
        let read = volume.read(ino, bytes.len() as u64, IO_BYTES_MAX).await?;
        read.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        if read.eof || read.is_empty() {
            return Ok(bytes);
        }
    }
}

/// Judges what was found by what should be, from the top.
pub fn compare(tree: &Tree, files: &Files, found: &Found) -> Result<(), String> {
    let mut known = BTreeMap::new();
    compare_node((tree, files), TOP, found, "", &mut known)
}

fn compare_node(
    (tree, files): (&Tree, &Files),
    number: u64,
    found: &Found,
    path: &str,
    known: &mut BTreeMap<u64, FileId>,
) -> Result<(), String> {
    let Some(node) = tree.nodes.get(&number) else { return Err(format!("{path}: the model has lost it")) };
    let id = *known.entry(number).or_insert(node.id.unwrap_or(found.id));
    if id != found.id {
        return Err(format!("{path} is inode {:?}, it should be {id:?}", found.id));
    }
    if node.mode != found.mode {
        return Err(format!("{path} has mode {:o}, it should have {:o}", found.mode, node.mode));
    }
    if node.xattrs != found.xattrs {
        let names = |of: &BTreeMap<String, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>().join(" ");
        return Err(format!("{path} has attributes {}, it should have {}", names(&found.xattrs), names(&node.xattrs)));
    }
    match (&node.body, &found.body) {
        (Body::File, FoundBody::File(bytes, allocated)) => {
            let links = tree.links(number);
            if found.nlink as usize != links {
                return Err(format!("{path} has {} links, it should have {links}", found.nlink));
            }
            let Some(file) = files.get(&number) else { return Err(format!("{path}: the model has lost its bytes")) };
            file.judge(bytes).and_then(|()| file.judge_allocated(*allocated)).map_err(|why| format!("{path}: {why}"))
        }
        (Body::Symlink(target), FoundBody::Symlink(found)) if target == found => Ok(()),
        (Body::Special, FoundBody::Other) => Ok(()),
        (Body::Directory(names), FoundBody::Directory(children)) => {
            if let Some(name) = children.keys().find(|name| !names.contains_key(*name)) {
                return Err(format!("{path}/{name} should not be there"));
            }
            for (name, child) in names {
                let Some(found) = children.get(name) else { return Err(format!("{path}/{name} is missing")) };
                compare_node((tree, files), *child, found, &format!("{path}/{name}"), known)?;
            }
            Ok(())
        }
        _ => Err(format!("{path} is something else than it should be")),
    }
}

/// The state found is the state from now on.
pub fn settle(tree: &mut Tree, files: &mut Files, number: u64, found: Found) {
    let Some(node) = tree.nodes.get_mut(&number) else { return };
    node.id = Some(found.id);
    match (&mut node.body, found.body) {
        (Body::File, FoundBody::File(bytes, _)) => files.entry(number).or_default().settle(bytes),
        (Body::Directory(names), FoundBody::Directory(children)) => {
            let names = names.clone();
            for (name, child) in children {
                if let Some(number) = names.get(&name) {
                    settle(tree, files, *number, child);
                }
            }
        }
        _ => {}
    }
}
