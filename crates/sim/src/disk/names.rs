//! The directories of a simulated disk.
//!
//! - `simnames.unsynced_may_survive`: each creation, rename and removal without a later sync of its
//!   directory survives a power cut or not, each decided by itself. A rename is atomic.
//! - `simnames.file_sync_keeps_the_name`: a file's name is durable after a sync of the file under
//!   that name. POSIX does not demand it, but ext4, XFS and btrfs do it and the pool relies on it
//!   (docs/simulator.md).
//! - `simnames.lost_with_the_directory`: a directory that does not survive takes its contents
//!   along.

use std::collections::BTreeMap;
use std::io;

use rand::rngs::StdRng;

use super::content::Survival;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    File(u64),
    Directory,
}

type Tree = BTreeMap<String, BTreeMap<String, Entry>>;

/// One change: what each name means afterwards.
#[derive(Clone, Debug)]
struct Change {
    names: Vec<(String, Option<Entry>)>,
}

#[derive(Clone, Debug)]
pub struct Names {
    now: Tree,
    durable: Tree,
    pending: Vec<Change>,
}

impl Default for Names {
    fn default() -> Self {
        let tree = Tree::from([(String::new(), BTreeMap::new())]);
        Self { now: tree.clone(), durable: tree, pending: Vec::new() }
    }
}

pub fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

impl Names {
    pub fn get(&self, name: &str) -> io::Result<Entry> {
        if name.is_empty() {
            return Ok(Entry::Directory);
        }
        let (directory, last) = split(name);
        self.now.get(directory).and_then(|names| names.get(last)).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    pub fn file(&self, name: &str) -> io::Result<u64> {
        match self.get(name)? {
            Entry::File(file) => Ok(file),
            Entry::Directory => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let names = self.now.get(directory).ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        Ok(names.keys().cloned().collect())
    }

    pub fn set(&mut self, name: &str, entry: Entry) -> io::Result<()> {
        if !self.now.contains_key(split(name).0) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change(vec![(name.to_owned(), Some(entry))]);
        Ok(())
    }

    pub fn remove(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?;
        self.change(vec![(name.to_owned(), None)]);
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.file(from)?;
        if !self.now.contains_key(split(to).0) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change(vec![(from.to_owned(), None), (to.to_owned(), Some(Entry::File(file)))]);
        Ok(())
    }

    fn change(&mut self, names: Vec<(String, Option<Entry>)>) {
        let change = Change { names };
        apply(&mut self.now, &change);
        self.pending.push(change);
    }

    pub fn sync(&mut self, directory: &str) {
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.names.iter().any(|(name, _)| split(name).0 == directory));
        due.iter().for_each(|change| apply(&mut self.durable, change));
        self.pending = later;
    }

    /// Makes the change durable that gave `file` its present name, with all earlier changes of that
    /// name (`simnames.file_sync_keeps_the_name`).
    pub fn sync_file(&mut self, file: u64, name: &str) {
        if self.pending.is_empty() || self.file(name).ok() != Some(file) {
            return;
        }
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.names.iter().any(|(touched, _)| touched == name));
        due.iter().for_each(|change| apply(&mut self.durable, change));
        self.pending = later;
    }

    /// Somebody removes a directory with all that lies in it, for good.
    pub fn remove_directory(&mut self, directory: &str) {
        self.sync_all();
        let (parent, last) = split(directory);
        for tree in [&mut self.now, &mut self.durable] {
            tree.remove(directory);
            if let Some(names) = tree.get_mut(parent) {
                names.remove(last);
            }
        }
    }

    pub fn sync_all(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &change);
        }
    }

    /// The last change is durable at once: for planted bugs.
    pub fn sync_last(&mut self) {
        if let Some(change) = self.pending.pop() {
            apply(&mut self.durable, &change);
        }
    }

    pub fn crash(&mut self, survival: Survival, random: &mut StdRng) {
        let pending = std::mem::take(&mut self.pending);
        let mut survives = survival.judge(pending.len(), random);
        for (at, change) in pending.iter().enumerate() {
            if survives(at) {
                apply(&mut self.durable, change);
            }
        }
        drop(survives);
        self.drop_unreachable();
        self.now.clone_from(&self.durable);
    }

    /// Drops the contents of directories that did not survive (`simnames.lost_with_the_directory`).
    fn drop_unreachable(&mut self) {
        loop {
            let is_there = |tree: &Tree, directory: &str| {
                let (parent, last) = split(directory);
                directory.is_empty() || tree.get(parent).is_some_and(|names| names.get(last) == Some(&Entry::Directory))
            };
            let lost: Vec<String> = self.durable.keys().filter(|d| !is_there(&self.durable, d)).cloned().collect();
            if lost.is_empty() {
                return;
            }
            lost.iter().for_each(|directory| drop(self.durable.remove(directory)));
        }
    }

    /// Files that have a name now.
    pub fn files_now(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        files(&self.now)
    }

    /// Whether a name leads to `file`, or would after a power cut.
    pub fn refers_to(&self, file: u64) -> bool {
        let is_in = |tree: &Tree| tree.values().any(|names| names.values().any(|entry| *entry == Entry::File(file)));
        is_in(&self.now)
            || is_in(&self.durable)
            || self.pending.iter().any(|change| change.names.iter().any(|(_, entry)| *entry == Some(Entry::File(file))))
    }
}

fn files(tree: &Tree) -> impl Iterator<Item = (String, u64)> + '_ {
    tree.iter().flat_map(|(directory, names)| {
        names.iter().filter_map(move |(name, entry)| match entry {
            Entry::File(file) if directory.is_empty() => Some((name.clone(), *file)),
            Entry::File(file) => Some((format!("{directory}/{name}"), *file)),
            Entry::Directory => None,
        })
    })
}

fn apply(tree: &mut Tree, change: &Change) {
    for (name, entry) in &change.names {
        let (directory, last) = split(name);
        // After a power cut that took the directory there is no place for the name.
        let names = tree.entry(directory.to_owned()).or_default();
        match entry {
            Some(entry) => {
                names.insert(last.to_owned(), *entry);
            }
            None => {
                names.remove(last);
            }
        }
        if *entry == Some(Entry::Directory) {
            tree.entry(name.clone()).or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::chance::generator;

    fn survivors(names: &Names) -> BTreeSet<Vec<String>> {
        let crashed = |seed| {
            let mut copy = names.clone();
            copy.crash(Survival::Each(128), &mut generator(seed, "test"));
            copy.files_now().map(|(name, _)| name).collect()
        };
        (0..128).map(crashed).collect()
    }

    #[test]
    fn names_are_durable_when_their_directory_was_synced() {
        let mut names = Names::default();
        names.set("d", Entry::Directory).unwrap();
        names.set("d/a", Entry::File(1)).unwrap();
        names.sync("d");
        assert_eq!(survivors(&names), [vec![], vec!["d/a".to_owned()]].into(), "the directory itself was not synced");
        names.sync("");
        assert_eq!(survivors(&names), [vec!["d/a".to_owned()]].into());
        names.rename("d/a", "d/b").unwrap();
        assert_eq!(names.get("d/a").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(survivors(&names), [vec!["d/a".to_owned()], vec!["d/b".to_owned()]].into(), "atomic");
        names.sync("d");
        names.remove("d/b").unwrap();
        assert_eq!(survivors(&names), [vec![], vec!["d/b".to_owned()]].into());
        assert!(names.refers_to(1));
        names.sync_all();
        assert!(!names.refers_to(1));
    }
}
