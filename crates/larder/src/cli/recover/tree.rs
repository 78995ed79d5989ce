//! From inodes to files: first the tree from the root, then what no name leads to, then what only the segments know.
//!
//! 1. Directories are walked from the root. Files whose map of data may lack something wait.
//! 2. Directories that no name leads to become `lost+found/directory-N`, and are walked likewise.
//! 3. Files that wait, and inodes without a name (`lost+found/inode-N-G`), are put together with the help of the
//!    indexes of the segments, in as many passes as memory asks for.
//! 4. Further names of files (hard links), and last the attributes of directories, which all that went before would change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use larder_api::Failure;
use larder_fs::{FileKind, Ino};
use larder_volume::salvage::{Named, Node, Plan, Records, Salvage, Verdict};

use super::output::{Written, child, make_special, set_attributes, write_file};
use super::report::{Entry, Report, State, pairs};

/// A path longer than this is continued in `lost+found`: the system takes 4095 bytes.
const PATH_BYTES_MAX: usize = 3500;
const LOST_AND_FOUND: &str = "lost+found";

struct Rescue<'a> {
    salvage: &'a Salvage,
    root: PathBuf,
    report: &'a mut Report,
    seen: InodeSet,
    /// Made on first use.
    lost: Option<PathBuf>,
    /// Files with several names: where they went, and how whole they are.
    places: HashMap<Ino, (PathBuf, State)>,
    aliases: Vec<(PathBuf, Ino)>,
    waiting: BTreeMap<Ino, PathBuf>,
    directories: Vec<(PathBuf, Ino)>,
}

pub(super) async fn rescue(salvage: &Salvage, root: &Path, report: &mut Report) -> Result<(), Failure> {
    std::fs::create_dir(root).map_err(|error| Failure::io(root.display(), &error))?;
    let mut rescue = Rescue {
        salvage,
        root: root.to_owned(),
        report,
        seen: InodeSet::default(),
        lost: None,
        places: HashMap::new(),
        aliases: Vec::new(),
        waiting: BTreeMap::new(),
        directories: vec![(root.to_owned(), Ino::ROOT)],
    };
    rescue.seen.insert(Ino::ROOT);
    rescue.walk(root.to_owned(), Ino::ROOT).await?;
    let nameless = rescue.nameless().await?;
    rescue.put_together(nameless).await?;
    rescue.link_aliases().await?;
    rescue.finish_directories().await
}

impl Rescue<'_> {
    async fn walk(&mut self, path: PathBuf, ino: Ino) -> Result<(), Failure> {
        let mut todo = vec![(path, ino)];
        while let Some((directory, ino)) = todo.pop() {
            for named in self.salvage.entries(ino).await {
                if let Some(further) = self.take(&directory, &named).await? {
                    todo.push(further);
                }
            }
        }
        Ok(())
    }

    /// One name. Returns a directory that is to be walked.
    async fn take(&mut self, directory: &Path, named: &Named) -> Result<Option<(PathBuf, Ino)>, Failure> {
        let fallback = || directory.join(format!("damaged-name-{}", named.ino.0));
        let path = child(directory, &named.name).unwrap_or_else(fallback);
        let node = self.salvage.node(named.ino).await;
        let kind = node.as_ref().map_or(named.kind, |node| node.attr.kind);
        if kind == FileKind::Directory {
            return self.take_directory(path, named.ino);
        }
        if !self.seen.insert(named.ino) {
            self.aliases.push((path, named.ino));
            return Ok(None);
        }
        if node.as_ref().is_none_or(|node| node.attr.nlink > 1) {
            self.places.insert(named.ino, (path.clone(), State::Lost));
        }
        match (kind, node) {
            (FileKind::File, node) => {
                if self.salvage.may_lack(named.ino, node.as_ref()).await {
                    self.waiting.insert(named.ino, path);
                } else {
                    self.take_file(&path, named.ino, node.as_ref(), None).await?;
                }
            }
            (_, Some(node)) => self.take_special(&path, named.ino, &node).await?,
            (_, None) => {
                let entry = self.entry(&path, kind, named.ino).lost("its inode is lost");
                self.report.entry(entry, 0)?;
            }
        }
        Ok(None)
    }

    fn take_directory(&mut self, path: PathBuf, ino: Ino) -> Result<Option<(PathBuf, Ino)>, Failure> {
        if !self.seen.insert(ino) {
            let entry = self.entry(&path, FileKind::Directory, ino).lost("the same directory has another name");
            self.report.entry(entry, 0)?;
            return Ok(None);
        }
        let path = if path.as_os_str().len() > PATH_BYTES_MAX {
            self.lost_path(&format!("directory-{}", ino.0))?
        } else {
            path
        };
        let entry = self.entry(&path, FileKind::Directory, ino);
        match std::fs::create_dir(&path) {
            Ok(()) => {
                self.report.entry(entry, 0)?;
                self.directories.push((path.clone(), ino));
                Ok(Some((path, ino)))
            }
            Err(error) => {
                self.report.entry(entry.lost(format!("it cannot be made: {error}")), 0)?;
                Ok(None)
            }
        }
    }

    async fn take_special(&mut self, path: &Path, ino: Ino, node: &Node) -> Result<(), Failure> {
        let mut entry = self.entry(path, node.attr.kind, ino);
        match make_special(path, node) {
            Ok(()) => {
                entry.notes = set_attributes(path, node, &self.salvage.xattrs(ino).await);
                self.remember(ino, State::Complete);
            }
            Err(error) => entry = entry.lost(format!("it cannot be made: {error}")),
        }
        self.report.entry(entry, 0)
    }

    async fn take_file(
        &mut self,
        path: &Path,
        ino: Ino,
        node: Option<&Node>,
        records: Option<&Records>,
    ) -> Result<(), Failure> {
        let plan = self.salvage.plan(ino, node, records).await;
        let mut entry = self.entry(path, FileKind::File, ino);
        entry.size_bytes = plan.size;
        if node.is_none() && plan.pieces.is_empty() {
            return self.report.entry(entry.lost("its inode and all of its data are lost"), 0);
        }
        let written = match write_file(self.salvage, path, &plan).await {
            Ok(written) => written,
            // No room, no more file handles: nothing that follows would fare better.
            Err(error) if is_fatal(&error) => return Err(Failure::io(path.display(), &error)),
            Err(error) => return self.report.entry(entry.lost(format!("it cannot be written: {error}")), 0),
        };
        judge(&mut entry, &plan, &written);
        self.remember(ino, entry.state);
        match node {
            Some(node) => entry.notes.extend(set_attributes(path, node, &self.salvage.xattrs(ino).await)),
            None => entry.notes.push("its inode is lost: owner, permissions, times and exact length are".to_owned()),
        }
        self.report.entry(entry, written.bytes)
    }

    /// Gives further names of the inode the same outcome.
    fn remember(&mut self, ino: Ino, state: State) {
        if let Some((_, known)) = self.places.get_mut(&ino) {
            *known = state;
        }
    }

    /// Walks the directories that no name leads to; returns the other inodes without a name.
    async fn nameless(&mut self) -> Result<Vec<Ino>, Failure> {
        let (mut directories, mut others) = (Vec::new(), Vec::new());
        for ino in self.salvage.unseen(|ino| self.seen.contains(ino)).await {
            if self.salvage.is_orphan(ino).await {
                self.seen.insert(ino);
                continue;
            }
            let node = self.salvage.node(ino).await;
            let is_directory = match &node {
                Some(node) => node.attr.kind == FileKind::Directory,
                None => !self.salvage.entries(ino).await.is_empty(),
            };
            if is_directory { directories.push((ino, node.map(|node| node.parent))) } else { others.push(ino) }
        }
        // Those above first: they lead to the ones below.
        let lost: HashSet<Ino> = directories.iter().map(|(ino, _)| *ino).collect();
        directories.sort_by_key(|(ino, parent)| (parent.is_some_and(|parent| lost.contains(&parent)), *ino));
        for (ino, _) in directories {
            if self.seen.contains(ino) {
                continue;
            }
            let path = self.lost_path(&format!("directory-{}", ino.0))?;
            if let Some((path, ino)) = self.take_directory(path, ino)? {
                self.walk(path, ino).await?;
            }
        }
        Ok(others)
    }

    /// Files that wait, inodes without a name, and what only the segments know.
    async fn put_together(&mut self, nameless: Vec<Ino>) -> Result<(), Failure> {
        let mut nameless: Vec<Ino> = nameless.into_iter().filter(|ino| !self.seen.contains(*ino)).collect();
        if self.salvage.verdict() == Verdict::Whole {
            for ino in nameless {
                self.take_nameless(ino, None).await?;
            }
            return Ok(());
        }
        let (passes, faults) = self.salvage.record_passes().await;
        faults.into_iter().for_each(|fault| self.report.fault(fault));
        for pass in 0..passes {
            let (seen, waiting) = (&self.seen, &self.waiting);
            let wanted = |ino: Ino| !seen.contains(ino) || waiting.contains_key(&ino);
            let records = self.salvage.records((pass, passes), &wanted).await;
            let falls_here = |ino: &Ino| ino.0 % passes == pass;
            let waiting: Vec<(Ino, PathBuf)> = self
                .waiting
                .iter()
                .filter(|(ino, _)| falls_here(ino))
                .map(|(ino, path)| (*ino, path.clone()))
                .collect();
            for (ino, path) in waiting {
                let node = self.salvage.node(ino).await;
                self.take_file(&path, ino, node.as_ref(), Some(&records)).await?;
            }
            let (here, later): (Vec<Ino>, Vec<Ino>) = nameless.into_iter().partition(falls_here);
            nameless = later;
            let owners = records.owners().map(|(ino, _)| ino).filter(|ino| !self.seen.contains(*ino));
            let all: std::collections::BTreeSet<Ino> = here.into_iter().chain(owners).collect();
            for ino in all {
                self.take_nameless(ino, Some(&records)).await?;
            }
        }
        Ok(())
    }

    async fn take_nameless(&mut self, ino: Ino, records: Option<&Records>) -> Result<(), Failure> {
        if !self.seen.insert(ino) {
            return Ok(());
        }
        let node = self.salvage.node(ino).await;
        let of_records = || records.and_then(|records| records.owners().filter(|(owner, _)| *owner == ino).last());
        let generation = node.as_ref().map(|node| node.attr.id.generation).or_else(|| of_records().map(|(_, g)| g));
        let generation = generation.map_or_else(|| "unknown".to_owned(), |generation| generation.to_string());
        let path = self.lost_path(&format!("inode-{}-{generation}", ino.0))?;
        match &node {
            Some(node) if !matches!(node.attr.kind, FileKind::File | FileKind::Directory) => {
                self.take_special(&path, ino, node).await
            }
            _ => self.take_file(&path, ino, node.as_ref(), records).await,
        }
    }

    fn lost_path(&mut self, name: &str) -> Result<PathBuf, Failure> {
        if let Some(lost) = &self.lost {
            return Ok(lost.join(name));
        }
        // A volume may have a directory of that name itself.
        let names = (1..).map(|n| if n == 1 { LOST_AND_FOUND.to_owned() } else { format!("{LOST_AND_FOUND}-{n}") });
        for candidate in names {
            let folder = self.root.join(candidate);
            match std::fs::create_dir(&folder) {
                Ok(()) => {
                    self.lost = Some(folder.clone());
                    return Ok(folder.join(name));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(folder.display(), &error)),
            }
        }
        Err(Failure::internal("no name is left for what was lost"))
    }

    async fn link_aliases(&mut self) -> Result<(), Failure> {
        for (path, ino) in std::mem::take(&mut self.aliases) {
            let mut entry = self.entry(&path, FileKind::File, ino);
            entry.kind = "link";
            let Some((first, state)) = self.places.get(&ino) else {
                // Its record counts one name: a copy is better than none.
                let node = self.salvage.node(ino).await;
                self.take_file(&path, ino, node.as_ref(), None).await?;
                continue;
            };
            entry.state = *state;
            if let Err(error) = std::fs::hard_link(first, &path) {
                entry = entry.lost(format!("it cannot be linked to {}: {error}", first.display()));
            }
            self.report.entry(entry, 0)?;
        }
        Ok(())
    }

    async fn finish_directories(&mut self) -> Result<(), Failure> {
        for (path, ino) in std::mem::take(&mut self.directories).into_iter().rev() {
            let Some(node) = self.salvage.node(ino).await else { continue };
            for note in set_attributes(&path, &node, &self.salvage.xattrs(ino).await) {
                self.report.fault(format!("{}: {note}", path.display()));
            }
        }
        Ok(())
    }

    /// As it is called below the volume's folder.
    fn entry(&self, path: &Path, kind: FileKind, ino: Ino) -> Entry {
        let name = match kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::CharDevice | FileKind::BlockDevice => "device",
        };
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        Entry { may_be_older: self.salvage.may_be_older(ino), ..Entry::new(path, name, ino.0) }
    }
}

/// How whole a file is.
fn judge(entry: &mut Entry, plan: &Plan, written: &Written) {
    entry.missing = pairs(&written.missing);
    entry.doubtful = pairs(&plan.doubtful);
    entry.notes.extend(written.why.iter().cloned());
    entry.state = if !written.missing.is_empty() && written.bytes == 0 {
        State::Lost
    } else if !written.missing.is_empty() || !plan.doubtful.is_empty() || !plan.faults.is_empty() {
        State::Partial
    } else {
        State::Complete
    };
}

fn is_fatal(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

/// Inode numbers lie close together: 64 to a word.
#[derive(Default)]
struct InodeSet(HashMap<u64, u64>);

impl InodeSet {
    /// Whether it was not there yet.
    fn insert(&mut self, ino: Ino) -> bool {
        let word = self.0.entry(ino.0 / 64).or_default();
        let bit = 1 << (ino.0 % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn contains(&self, ino: Ino) -> bool {
        self.0.get(&(ino.0 / 64)).is_some_and(|word| word & (1 << (ino.0 % 64)) != 0)
    }
}
