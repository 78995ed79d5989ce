//! A walk through the folders of a tree, for copies and removals of any depth and size.
//!
//! - `walk.own_stack`: the way down is a list, so no depth that a client makes costs native stack. It is at most
//!   [`DEPTH_MAX`] folders long.
//! - `walk.bounded`: names read ahead are kept for the [`PAGES_MAX`] deepest folders. Folders above them are read again
//!   from their cookie when the walk comes back.
//! - `walk.ends_where_it_began`: a folder's listing ends at the cookies that existed when the walk entered it, so a walk
//!   ends although somebody adds names.
//! - `walk.searches`: a folder is entered by a user who may list and search it, at every step of the way.
//! - `walk.yields`: other tasks run every [`YIELD_EVERY`] steps, and a walk that nobody waits for any more ends there.

use bytes::Bytes;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Cred, DirEntry, FsError, FsResult, Ino};

use crate::tree::Tree;

/// Folders below one another, as many as a rename follows. Deeper ones are named as failures.
const DEPTH_MAX: usize = 1 << 16;
/// Names read at once of one folder.
const PAGE_ENTRIES: usize = 128;
/// Folders whose names are kept: 8,192 entries in all.
const PAGES_MAX: usize = 64;
const YIELD_EVERY: u64 = 64;
/// The longest path that a report names: no client can ask for a longer one.
const PATH_BYTES_MAX: usize = 4096;

/// Asked between steps and pieces of data: whether nobody waits for the work any more, or may no longer want it.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// The end of a walk.
#[derive(Debug, Default)]
pub struct Report {
    /// Paths below the top of the walk, and the reason at each. Of a path beyond 4,096 bytes its nearest folder within them.
    pub failures: Vec<(Bytes, FsError)>,
    /// It was stopped, or ended at the most failures that it reports.
    pub is_cut: bool,
}

impl Report {
    /// More are of no use to anybody.
    const FAILURES_MAX: usize = 100;

    /// Whether everything was done.
    pub fn is_whole(&self) -> bool {
        self.failures.is_empty() && !self.is_cut
    }

    pub(crate) fn fail(&mut self, path: Bytes, error: FsError) {
        if self.failures.len() < Self::FAILURES_MAX {
            self.failures.push((path, error));
        }
        self.is_cut |= self.failures.len() >= Self::FAILURES_MAX;
    }
}

/// A folder on the way down, with what the walk's owner knows of it.
struct Level<T> {
    opened: Opened,
    /// Where its path ends.
    path_bytes: usize,
    data: T,
}

/// A folder and the first page of its names.
pub(crate) struct Opened {
    dir: Ino,
    cookie: u64,
    end: u64,
    page: std::vec::IntoIter<DirEntry>,
    eof: bool,
}

/// One step of a walk.
pub(crate) enum Step<T> {
    /// A name in the deepest folder.
    Entry(DirEntry),
    /// All names of the deepest folder were seen, or it could not be read on.
    Left(T, Option<FsError>),
}

pub(crate) struct Walk<T> {
    tree: Tree,
    cred: Cred,
    with_attrs: bool,
    levels: Vec<Level<T>>,
    path: Vec<u8>,
    steps: u64,
}

impl<T> Walk<T> {
    /// A walk that has entered nothing yet, by a user.
    pub(crate) fn new(tree: Tree, cred: Cred, with_attrs: bool) -> Self {
        Self { tree, cred, with_attrs, levels: Vec::new(), path: Vec::new(), steps: 0 }
    }

    /// Reads the first page of a folder that is to be entered (`walk.searches`).
    pub(crate) async fn open(&self, dir: Ino) -> FsResult<Opened> {
        if self.levels.len() >= DEPTH_MAX {
            return Err(FsError::NameTooLong);
        }
        self.tree.access(&self.cred, dir, ACCESS_READ | ACCESS_EXECUTE).await?;
        let mut opened = Opened { dir, cookie: 0, end: u64::MAX, page: Vec::new().into_iter(), eof: false };
        self.read(&mut opened).await?;
        Ok(opened)
    }

    /// Enters a folder; the top one has no name.
    pub(crate) fn enter(&mut self, opened: Opened, name: &[u8], data: T) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.levels.push(Level { opened, path_bytes: self.path.len(), data });
        // `walk.bounded`
        if let Some(above) = self.levels.len().checked_sub(PAGES_MAX + 1).and_then(|at| self.levels.get_mut(at)) {
            above.opened.page = Vec::new().into_iter();
            above.opened.eof = false;
        }
    }

    /// The folder that the walk is in.
    pub(crate) fn dir(&self) -> Option<Ino> {
        self.levels.last().map(|level| level.opened.dir)
    }

    pub(crate) fn data(&mut self) -> Option<&mut T> {
        self.levels.last_mut().map(|level| &mut level.data)
    }

    /// The path of the folder that the last step was in.
    pub(crate) fn path(&self) -> Bytes {
        shown(&self.path)
    }

    /// The path of a name in it.
    pub(crate) fn path_of(&self, name: &[u8]) -> Bytes {
        if self.path.is_empty() {
            return Bytes::copy_from_slice(name);
        }
        if self.path.len() + name.len() >= PATH_BYTES_MAX {
            return self.path();
        }
        Bytes::from([&self.path[..], b"/", name].concat())
    }

    /// `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Step<T>> {
        self.steps += 1;
        if self.steps.is_multiple_of(YIELD_EVERY) {
            tokio::task::yield_now().await;
        }
        let mut level = self.levels.pop()?;
        self.path.truncate(level.path_bytes);
        loop {
            if let Some(entry) = level.opened.page.next() {
                level.opened.cookie = entry.cookie;
                self.levels.push(level);
                return Some(Step::Entry(entry));
            }
            if level.opened.eof {
                return Some(Step::Left(level.data, None));
            }
            match self.read(&mut level.opened).await {
                Ok(()) => {}
                Err(FsError::Stale | FsError::NotFound) => level.opened.eof = true,
                Err(error) => return Some(Step::Left(level.data, Some(error))),
            }
        }
    }

    async fn read(&self, opened: &mut Opened) -> FsResult<()> {
        let Opened { dir, cookie, end, .. } = *opened;
        let listing = self.tree.readdir_before(&self.cred, dir, cookie, end, PAGE_ENTRIES, self.with_attrs).await?;
        opened.end = end.min(listing.end);
        opened.eof = listing.eof || listing.entries.is_empty();
        opened.page = listing.entries.into_iter();
        Ok(())
    }
}

fn shown(path: &[u8]) -> Bytes {
    if path.len() <= PATH_BYTES_MAX {
        return Bytes::copy_from_slice(path);
    }
    let end = path.iter().take(PATH_BYTES_MAX).rposition(|&byte| byte == b'/').unwrap_or(0);
    Bytes::copy_from_slice(path.get(..end).unwrap_or_default())
}
