//! The states of a client's directory: earlier ones, the present one, and those possible after a power cut.
//!
//! - `clienthistory.one_prefix`: changes of names and attributes are numbered in the order of the
//!   requests, which come one at a time. After a power cut the tree is as it was after one of the
//!   changes: all changes before it happened, none after it.
//! - `clienthistory.not_before_the_floor`: that change is `floor` or a later one. All changes
//!   answered in a volume with `sync=standard`, all that a commit of an inode or of the volume
//!   covers, and the state found at an opening are durable.
//! - `clienthistory.commit_covers_answered`: a commit covers all changes answered before it began
//!   ([`Promise`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use larder_fs::{FileId, Ino};

use crate::file_model::{FileModel, Mark};
use crate::tree_model::{Files, Found, TOP, Tree, adopt, compare, settle};

/// The tree after a change.
#[derive(Clone)]
struct Version {
    number: u64,
    tree: Tree,
    /// The inodes that the change touches.
    touched: Vec<u64>,
    /// When it was answered.
    at: Option<Duration>,
}

#[derive(Clone)]
pub struct Model {
    /// From `floor` on; all but the last have been answered.
    versions: VecDeque<Version>,
    files: Files,
    /// The last answered change of each inode.
    changes: BTreeMap<u64, u64>,
    /// Inodes that lost their last name by a change: they must be gone if it is there.
    unlinked: Vec<(u64, FileId)>,
}

/// The changes that are durable once a commit is answered.
#[derive(Debug, Default)]
pub struct Promise {
    version: Option<u64>,
    files: Vec<(u64, Mark)>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new(Tree::new(None))
    }
}

impl Model {
    pub fn new(tree: Tree) -> Self {
        let first = Version { number: 0, tree, touched: Vec::new(), at: Some(Duration::ZERO) };
        Self { versions: [first].into(), files: Files::new(), changes: BTreeMap::new(), unlinked: Vec::new() }
    }

    /// The state found is the state from now on: the volume went back to it.
    pub fn of(found: &Found) -> Self {
        let (tree, files) = adopt(found);
        Self { files, ..Self::new(tree) }
    }

    fn last(&self) -> usize {
        self.versions.iter().rposition(|version| version.at.is_some()).unwrap_or(0)
    }

    /// As its user sees it.
    pub fn tree(&self) -> &Tree {
        &self.versions[self.last()].tree
    }

    pub fn tree_mut(&mut self) -> &mut Tree {
        let last = self.last();
        &mut self.versions[last].tree
    }

    pub fn top(&self) -> Option<Ino> {
        self.tree().ino(TOP)
    }

    pub fn file(&mut self, number: u64) -> &mut FileModel {
        self.files.entry(number).or_default()
    }

    // ---- changes ----------------------------------------------------------------------------

    /// A change is under way, and touches these inodes.
    pub fn begin(&mut self, change: impl FnOnce(&mut Tree), touched: Vec<u64>) {
        let mut tree = self.tree().clone();
        let next = tree.next();
        change(&mut tree);
        (next..tree.next()).for_each(|number| drop(self.files.insert(number, FileModel::default())));
        let number = self.versions.back().map_or(0, |version| version.number) + 1;
        self.versions.push_back(Version { number, tree, touched, at: None });
    }

    /// It was refused, whole.
    pub fn refused(&mut self) {
        if self.versions.back().is_some_and(|version| version.at.is_none()) {
            self.versions.pop_back();
        }
    }

    pub fn answered(&mut self, is_durable: bool, at: Duration) {
        let before = self.last();
        let (Some(before), Some(after)) = (self.versions.get(before), self.versions.back()) else { return };
        let number = after.number;
        for touched in &after.touched {
            self.changes.insert(*touched, number);
            let id = before.tree.nodes.get(touched).and_then(|node| node.id);
            if before.tree.links(*touched) > 0 && after.tree.links(*touched) == 0 {
                self.unlinked.extend(id.map(|id| (number, id)));
            }
        }
        if let Some(after) = self.versions.back_mut() {
            after.at = Some(at);
        }
        if is_durable {
            self.raise(number);
        }
    }

    /// Nothing leads to the inode any more, or nothing will once the change under way has happened.
    pub fn may_be_removed(&self, number: u64) -> bool {
        self.versions.back().is_none_or(|version| version.tree.links(number) == 0)
    }

    fn raise(&mut self, floor: u64) {
        while self.versions.len() > 1 && self.versions.front().is_some_and(|version| version.number < floor) {
            self.versions.pop_front();
        }
    }

    // ---- commits ----------------------------------------------------------------------------

    /// The changes that a commit of one inode makes durable if it begins now.
    pub fn promise_of(&self, number: u64) -> Promise {
        let file = self.files.get(&number).map(|file| (number, file.mark()));
        Promise { version: self.changes.get(&number).copied(), files: file.into_iter().collect() }
    }

    /// As [`Self::promise_of`], of everything.
    pub fn promise(&self) -> Promise {
        let version = Some(self.versions[self.last()].number);
        Promise { version, files: self.files.iter().map(|(number, file)| (*number, file.mark())).collect() }
    }

    pub fn keep(&mut self, promise: &Promise) {
        if let Some(version) = promise.version {
            self.raise(version);
        }
        for (number, mark) in &promise.files {
            if let Some(file) = self.files.get_mut(number) {
                file.committed(*mark);
            }
        }
    }

    /// Whatever was answered by `time` is durable, though nobody asked for it.
    pub fn keep_all_before(&mut self, time: Duration) {
        let old = self.versions.iter().rev().find(|version| version.at.is_some_and(|at| at <= time));
        let version = old.map(|version| version.number);
        let files = self.files.iter().map(|(number, file)| (*number, file.mark_at(time))).collect();
        self.keep(&Promise { version, files });
    }

    // ---- judging ----------------------------------------------------------------------------

    /// Judges what was found after an opening; it stays. Returns the inodes that must be gone before long.
    pub fn settle(&mut self, found: Found) -> Result<Vec<FileId>, String> {
        let mut wrong = Vec::new();
        let is_it =
            |version: &Version| compare(&version.tree, &self.files, &found).map_err(|why| wrong.push(why)).is_ok();
        let Some(at) = self.versions.iter().position(is_it) else {
            let (first, last) = (wrong.first().cloned().unwrap_or_default(), wrong.last().cloned().unwrap_or_default());
            let count = wrong.len();
            let also = if count > 1 { format!("; or, {} changes later, {last}", count - 1) } else { String::new() };
            return Err(format!("{first}{also}"));
        };
        let Some(version) = self.versions.swap_remove_back(at) else { return Ok(Vec::new()) };
        let (number, mut tree) = (version.number, version.tree);
        tree.drop_unlinked();
        settle(&mut tree, &mut self.files, TOP, found);
        self.files.retain(|number, _| tree.nodes.contains_key(number));
        let gone = self.unlinked.drain(..).filter(|(by, _)| *by <= number).map(|(_, id)| id).collect();
        let files = std::mem::take(&mut self.files);
        *self = Self { files, ..Self::new(tree) };
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::file_model::Change;
    use crate::tree_model::Body;

    const SECOND: Duration = Duration::from_secs(1);

    fn create(model: &mut Model, name: &'static str, is_durable: bool) -> u64 {
        let number = model.tree().next();
        let add = |tree: &mut Tree| {
            tree.add(TOP, name, Body::File, 0o644);
        };
        model.begin(add, vec![TOP, number]);
        model.answered(is_durable, SECOND);
        number
    }

    fn names(model: &Model) -> Vec<Vec<&str>> {
        fn of(version: &Version) -> Vec<&str> {
            version.tree.names(TOP).unwrap().keys().map(String::as_str).collect()
        }
        model.versions.iter().map(of).collect()
    }

    #[test]
    fn what_is_durable_is_a_beginning_of_what_was_asked_for() {
        let mut model = Model::default();
        create(&mut model, "a", true);
        let b = create(&mut model, "b", false);
        let c = create(&mut model, "c", false);
        assert_eq!(names(&model), [vec!["a"], vec!["a", "b"], vec!["a", "b", "c"]]);
        let (promise, of_c) = (model.promise_of(b), model.promise_of(c));
        model.begin(|tree| tree.unlink(TOP, "b", None), vec![TOP, b]);
        model.keep(&promise);
        assert_eq!(names(&model), [vec!["a", "b"], vec!["a", "b", "c"], vec!["a", "c"]]);
        model.refused();
        model.keep(&of_c);
        assert_eq!(names(&model), [vec!["a", "b", "c"]]);
        model.keep_all_before(SECOND);
        assert_eq!(names(&model), [vec!["a", "b", "c"]]);
    }

    #[test]
    fn a_commit_of_a_file_says_nothing_of_others() {
        let mut model = Model::default();
        let (a, b) = (create(&mut model, "a", true), create(&mut model, "b", true));
        for number in [a, b] {
            model.file(number).begin(Change::Write(0, b"x"[..].into()));
            model.file(number).answered(false, SECOND);
        }
        let promise = model.promise_of(a);
        model.keep(&promise);
        assert!(model.file(a).judge(b"").is_err() && model.file(b).judge(b"").is_ok());
        model.keep_all_before(SECOND);
        assert!(model.file(b).judge(b"").is_err());
    }
}
