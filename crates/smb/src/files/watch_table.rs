//! The directories of a tree that clients watch (MS-FSA 2.1.4.1), and the notice of a change to each watch that it matches.
//!
//! - `watch.by_inode`: a watch belongs to a directory, by whatever path its client opened it, and moves with it.
//! - `watch.one_source`: every change comes from the store, in the order of the changes: what clients of this server do
//!   comes the same way as what others do.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use larder_smb_wire::messages::change_notify::{
    FILE_ACTION_ADDED, FILE_ACTION_MODIFIED, FILE_ACTION_REMOVED, FILE_ACTION_RENAMED_NEW_NAME,
    FILE_ACTION_RENAMED_OLD_NAME, FILE_NOTIFY_CHANGE_DIR_NAME, FILE_NOTIFY_CHANGE_FILE_NAME,
};
use larder_smb_wire::ntstatus;
use larder_smb_wire::path::is_valid_component;

#[cfg(test)]
use super::watch::{Answer, MAX_NOTIFY_BUFFER, NotifyBudget};
use super::watch::{Batch, NotifyAccount, Watch, lock};

/// A change of an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The entry's name; after a rename its new one.
    pub name: String,
    /// What happened to it.
    pub kind: NoticeKind,
    /// The entry is a directory.
    pub is_directory: bool,
}

/// What happened to an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// It is new, or came from another directory.
    Added,
    /// It is gone, or went to another directory.
    Removed,
    /// It has another name in the same directory.
    Renamed {
        /// Its name before.
        from: String,
    },
    /// Its data or attributes changed: the FILE_NOTIFY_CHANGE_* bits of that (MS-SMB2 2.2.35).
    Modified(u32),
}

/// A watched directory that a change is in, or above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Above {
    /// The directory's inode, [`FileInfo::file_index`](larder_smb_wire::file_info::FileInfo::file_index).
    pub dir: u64,
    /// The way from it to the directory of the change: empty, or with a backslash at its end.
    pub path: String,
}

impl Above {
    /// Whether clients can use the way.
    fn is_usable(&self) -> bool {
        self.path.split_terminator('\\').all(is_valid_component)
    }
}

impl Notice {
    /// The FILE_NOTIFY_CHANGE_* bits of the watches that hear of it.
    fn filter(&self) -> u32 {
        match self.kind {
            NoticeKind::Modified(what) => what,
            _ if self.is_directory => FILE_NOTIFY_CHANGE_DIR_NAME,
            _ => FILE_NOTIFY_CHANGE_FILE_NAME,
        }
    }

    /// Without a name that no client can use: a rename from or to one is the addition or removal of the other name.
    fn usable(self) -> Option<Notice> {
        let is_usable = is_valid_component(&self.name);
        match self.kind {
            NoticeKind::Renamed { from } if !is_usable => {
                is_valid_component(&from).then_some(Notice { name: from, kind: NoticeKind::Removed, ..self })
            }
            NoticeKind::Renamed { ref from } if !is_valid_component(from) => {
                Some(Notice { kind: NoticeKind::Added, ..self })
            }
            _ => is_usable.then_some(self),
        }
    }

    /// Its entries in an answer to a watch of a directory that `path` leads from.
    fn entries(&self, path: &str) -> Batch {
        let entry = |action, name: &str| (action, path.encode_utf16().chain(name.encode_utf16()).collect());
        match &self.kind {
            NoticeKind::Added => vec![entry(FILE_ACTION_ADDED, &self.name)],
            NoticeKind::Removed => vec![entry(FILE_ACTION_REMOVED, &self.name)],
            NoticeKind::Modified(_) => vec![entry(FILE_ACTION_MODIFIED, &self.name)],
            NoticeKind::Renamed { from } => {
                vec![entry(FILE_ACTION_RENAMED_OLD_NAME, from), entry(FILE_ACTION_RENAMED_NEW_NAME, &self.name)]
            }
        }
    }
}

/// The watched directories of a tree, which all of its shares have in common. Cheap to clone.
#[derive(Clone, Default)]
pub struct Watches(Arc<WatchTable>);

/// Lock order: `dirs`, then a watch's state. A notice is pushed into the watches after `dirs` is let go.
#[derive(Default)]
struct WatchTable {
    /// Watches in the table; with none, a change costs one load.
    count: AtomicUsize,
    /// Watches with SMB2_WATCH_TREE; with none, nobody looks for the directories above a change.
    tree_count: AtomicUsize,
    dirs: Mutex<HashMap<u64, Vec<Arc<Watch>>>>,
}

impl Watches {
    /// Whether nobody watches anything.
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// Whether somebody watches a whole tree.
    pub fn has_trees(&self) -> bool {
        self.0.tree_count.load(Ordering::Acquire) > 0
    }

    /// Whether somebody watches `dir`.
    pub fn has(&self, dir: u64) -> bool {
        !self.is_empty() && lock(&self.0.dirs).contains_key(&dir)
    }

    /// Buffers `notice` in every watch that it matches, and wakes the requests that wait on them (MS-FSA 2.1.4.1): the watches of
    /// the directory of the change, and those of the tree below a directory above it, whose filter shares a bit with it.
    pub fn tell(&self, above: &[Above], notice: Notice) {
        let Some(notice) = notice.usable() else { return };
        let filter = notice.filter();
        let mut reached: Vec<(Arc<Watch>, Batch)> = Vec::new();
        let dirs = lock(&self.0.dirs);
        for Above { dir, path } in above.iter().filter(|above| above.is_usable()) {
            let hears = |watch: &&Arc<Watch>| watch.filter & filter != 0 && (watch.tree || path.is_empty());
            for watch in dirs.get(dir).into_iter().flatten().filter(hears) {
                reached.push((Arc::clone(watch), notice.entries(path)));
            }
        }
        // A watch that is removed from here on ends before or after it takes the batch; either way the end gives back what it
        // holds.
        drop(dirs);
        reached.iter().for_each(|(watch, entries)| watch.push(entries));
    }

    /// Changes were lost: every watch answers STATUS_NOTIFY_ENUM_DIR next.
    pub fn lost(&self) {
        let all: Vec<_> = lock(&self.0.dirs).values().flatten().cloned().collect();
        all.iter().for_each(|watch| watch.lose());
    }

    /// `dir` is deleted: its watches end with STATUS_DELETE_PENDING, as when it is marked for deletion, and stay ended.
    pub fn gone(&self, dir: u64) {
        for watch in self.take(dir) {
            watch.state().gone = true;
            watch.end(ntstatus::STATUS_DELETE_PENDING);
        }
    }

    /// Ends every watch of `dir`, on any connection, with `status` (MS-FSA 2.1.5.15.3). Watches of directories above or below
    /// it stay.
    pub(crate) fn end(&self, dir: u64, status: u32) {
        self.take(dir).iter().for_each(|watch| watch.end(status));
    }

    /// Takes the watches of `dir` out of the table.
    fn take(&self, dir: u64) -> Vec<Arc<Watch>> {
        let taken = lock(&self.0.dirs).remove(&dir).unwrap_or_default();
        taken.iter().for_each(|watch| self.left(watch));
        taken
    }

    fn insert(&self, watch: &Arc<Watch>) {
        lock(&self.0.dirs).entry(watch.dir).or_default().push(Arc::clone(watch));
        self.0.count.fetch_add(1, Ordering::AcqRel);
        self.0.tree_count.fetch_add(usize::from(watch.tree), Ordering::AcqRel);
    }

    fn remove(&self, watch: &Arc<Watch>) {
        let mut dirs = lock(&self.0.dirs);
        let Entry::Occupied(mut of_dir) = dirs.entry(watch.dir) else { return };
        let Some(at) = of_dir.get().iter().position(|w| Arc::ptr_eq(w, watch)) else { return };
        of_dir.get_mut().swap_remove(at);
        if of_dir.get().is_empty() {
            of_dir.remove();
        }
        self.left(watch);
    }

    fn left(&self, watch: &Watch) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.tree_count.fetch_sub(usize::from(watch.tree), Ordering::AcqRel);
    }

    /// Watches in the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }
}

/// A watch of every change, as a CHANGE_NOTIFY arms it: for tests of what a store tells.
#[cfg(test)]
pub(crate) struct Observed(WatchReg);

#[cfg(test)]
impl Watches {
    /// Watches `dir`, and with `tree` all below it.
    pub(crate) fn observe(&self, watching: Watching, dir: u64, tree: bool) -> Option<Observed> {
        WatchReg::arm(self, watching, dir, u32::MAX, tree, MAX_NOTIFY_BUFFER, &Arc::<NotifyBudget>::default())
            .map(Observed)
    }
}

#[cfg(test)]
impl Observed {
    /// The next changes as FILE_ACTION_* and names, in their order. The error is the status that a client gets in place of them.
    pub async fn next(&mut self) -> Result<Vec<(u32, String)>, u32> {
        let watch = self.0.watch();
        let ticket = watch.enqueue(MAX_NOTIFY_BUFFER, true);
        let mut changed = watch.subscribe();
        loop {
            match watch.take(&ticket) {
                Some(Answer::Changes(buffer)) => return Ok(entries_of(&buffer)),
                Some(Answer::EnumDir) => return Err(ntstatus::STATUS_NOTIFY_ENUM_DIR),
                Some(Answer::Ended(status)) => return Err(status),
                // The watch keeps the sender.
                None => drop(changed.changed().await),
            }
        }
    }
}

/// (action, name) of each FILE_NOTIFY_INFORMATION entry (MS-FSCC 2.7.1).
#[cfg(test)]
fn entries_of(buffer: &[u8]) -> Vec<(u32, String)> {
    let (mut found, mut rest) = (Vec::new(), buffer);
    while let Some((head, data)) = rest.split_first_chunk::<12>() {
        let (fields, _) = head.as_chunks::<4>();
        let [next, action, len] = [0, 1, 2].map(|at| u32::from_le_bytes(fields[at]));
        let (units, _) = data.get(..len as usize).unwrap_or_default().as_chunks::<2>();
        let name: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
        found.push((action, String::from_utf16_lossy(&name)));
        rest = if next == 0 { &[] } else { rest.get(next as usize..).unwrap_or_default() };
    }
    found
}

/// Keeps a store telling of changes, until it is dropped.
pub type Watching = Box<dyn Send + Sync>;

/// An open's watch in the table. Dropping it removes the watch and ends the requests waiting on it with
/// STATUS_NOTIFY_CLEANUP.
pub(crate) struct WatchReg {
    watches: Watches,
    watch: Arc<Watch>,
    /// The store tells of changes as long as it is kept.
    _watching: Watching,
}

impl WatchReg {
    /// Arms a watch of `dir` for a first CHANGE_NOTIFY with `filter`, `tree` and OutputBufferLength `len`. `None` when the
    /// connection behind `budget` holds [`MAX_WATCHES_PER_CONNECTION`](super::watch::MAX_WATCHES_PER_CONNECTION) watches.
    pub(crate) fn arm(
        watches: &Watches,
        watching: Watching,
        dir: u64,
        filter: u32,
        tree: bool,
        len: u32,
        budget: impl Into<NotifyAccount>,
    ) -> Option<Self> {
        let watch = Watch::new(dir, filter, tree, len, budget)?;
        watches.insert(&watch);
        Some(Self { watches: watches.clone(), watch, _watching: watching })
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Whether the watch has ended while its open stays.
    pub(crate) fn ended(&self) -> bool {
        self.watch.state().end.is_some()
    }

    /// Whether the watch ended because its directory is deleted.
    pub(crate) fn gone(&self) -> bool {
        self.watch.state().gone
    }

    /// Takes the watch out of the table, so no change reaches it; dropping the registration ends it.
    pub(crate) fn leave_table(&self) {
        self.watches.remove(&self.watch);
    }
}

impl Drop for WatchReg {
    fn drop(&mut self) {
        self.watches.remove(&self.watch);
        self.watch.end(ntstatus::STATUS_NOTIFY_CLEANUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::watch::{MAX_NOTIFY_BYTES, MAX_WATCHES_PER_CONNECTION};
    use crate::files::{OpenBudget, OpenSlot};

    const NAMES: u32 = FILE_NOTIFY_CHANGE_FILE_NAME | FILE_NOTIFY_CHANGE_DIR_NAME;

    /// The directories of the tests: the root, one in it, and so on.
    const ROOT: u64 = 1;
    const A: u64 = 2;
    const AB: u64 = 3;
    const ABC: u64 = 4;
    const D: u64 = 5;

    fn watch_on(
        table: &Watches,
        dir: u64,
        filter: u32,
        tree: bool,
        len: u32,
        budget: &Arc<NotifyBudget>,
    ) -> Arc<Watch> {
        let watch = Watch::new(dir, filter, tree, len, budget).expect("under the cap");
        table.insert(&watch);
        watch
    }

    /// The directories above `path`, and its last component.
    fn above(path: &str) -> (Vec<Above>, &str) {
        let mut found = Vec::new();
        let (mut at, name) = path.rsplit_once('\\').unwrap_or(("", path));
        let mut way = String::new();
        loop {
            let dir = match at {
                "" => ROOT,
                "a" => A,
                "a\\b" => AB,
                "a\\b\\c" => ABC,
                "d" => D,
                _ => 99,
            };
            found.push(Above { dir, path: way.clone() });
            let Some((up, last)) = at.rsplit_once('\\').or((!at.is_empty()).then_some(("", at))) else { break };
            way = format!("{last}\\{way}");
            at = up;
        }
        (found, name)
    }

    fn tell(table: &Watches, path: &str, kind: NoticeKind) {
        let (above, name) = above(path);
        table.tell(&above, Notice { name: name.to_string(), kind, is_directory: false });
    }

    fn added(table: &Watches, path: &str) {
        tell(table, path, NoticeKind::Added);
    }

    /// The names a request on `watch` gets now, or `None` when it would
    /// wait.
    fn names(watch: &Arc<Watch>) -> Option<Vec<String>> {
        let ticket = watch.enqueue(MAX_NOTIFY_BUFFER, true);
        match watch.take(&ticket)? {
            Answer::Changes(buf) => Some(entries_of(&buf).into_iter().map(|(_, n)| n).collect()),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn a_change_reaches_its_parent_and_tree_watches_above() {
        let budget = Arc::default();
        let table = Watches::default();
        let root = watch_on(&table, ROOT, NAMES, false, 4096, &budget);
        let root_tree = watch_on(&table, ROOT, NAMES, true, 4096, &budget);
        let a = watch_on(&table, A, NAMES, false, 4096, &budget);
        let a_tree = watch_on(&table, A, NAMES, true, 4096, &budget);
        let abc = watch_on(&table, ABC, NAMES, true, 4096, &budget);
        let other = watch_on(&table, AB, FILE_NOTIFY_CHANGE_DIR_NAME, false, 4096, &budget);

        added(&table, "a\\b\\c\\f");
        assert_eq!(names(&root), None);
        assert_eq!(names(&root_tree).unwrap(), ["a\\b\\c\\f"]);
        assert_eq!(names(&a), None);
        assert_eq!(names(&a_tree).unwrap(), ["b\\c\\f"]);
        assert_eq!(names(&abc).unwrap(), ["f"]);

        // The filters share no bit.
        added(&table, "a\\b\\g");
        assert_eq!(names(&other), None);
        assert_eq!(names(&a_tree).unwrap(), ["b\\g"]);

        // A change to the watched directory itself goes to its parent.
        added(&table, "a");
        assert_eq!(names(&a), None);
        assert_eq!(names(&a_tree), None);
        assert_eq!(names(&root).unwrap(), ["a"]);
        assert_eq!(names(&root_tree).unwrap(), ["a\\b\\g", "a"]);
    }

    #[test]
    fn a_full_buffer_answers_enum_dir_once_then_buffers_again() {
        let budget = Arc::default();
        let table = Watches::default();
        // Each entry for a one-letter name is 14 bytes, 16 padded.
        let watch = watch_on(&table, ROOT, NAMES, false, 30, &budget);
        added(&table, "a");
        added(&table, "b");
        added(&table, "c");
        let ticket = watch.enqueue(4096, true);
        assert_eq!(watch.take(&ticket), Some(Answer::EnumDir));
        drop(ticket);
        assert_eq!(names(&watch), None);
        added(&table, "d");
        added(&table, "e");
        assert_eq!(names(&watch).unwrap(), ["d", "e"]);

        // A buffer of 0 holds nothing: every change is an ENUM_DIR.
        let none = watch_on(&table, D, NAMES, false, 0, &budget);
        added(&table, "d\\f");
        let ticket = none.enqueue(4096, true);
        assert_eq!(none.take(&ticket), Some(Answer::EnumDir));
    }

    #[test]
    fn the_first_requests_length_sticks_and_each_request_caps_it() {
        let budget = Arc::default();
        let table = Watches::default();
        let small = watch_on(&table, ROOT, NAMES, false, 1, &budget);
        added(&table, "a");
        let ticket = small.enqueue(4096, true);
        assert_eq!(small.take(&ticket), Some(Answer::EnumDir));

        let big = watch_on(&table, D, NAMES, false, 4096, &budget);
        added(&table, "d\\a");
        let ticket = big.enqueue(13, true);
        assert_eq!(big.take(&ticket), Some(Answer::EnumDir));
        drop(ticket);
        // The entries went with that answer.
        assert_eq!(names(&big), None);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn buffers_are_capped_at_64_kib() {
        let budget = Arc::default();
        let table = Watches::default();
        let watch = watch_on(&table, ROOT, NAMES, false, u32::MAX, &budget);
        let name = "n".repeat(255);
        // 524 bytes per entry; 125 entries fit in 64 KiB, 126 do not.
        for i in 0..126 {
            added(&table, &format!("{}{i:03}", &name[..252]));
        }
        let ticket = watch.enqueue(u32::MAX, true);
        assert_eq!(watch.take(&ticket), Some(Answer::EnumDir));
    }

    #[test]
    fn bytes_are_charged_to_the_connection_and_given_back() {
        let budget: Arc<NotifyBudget> = Arc::default();
        let table = Watches::default();
        let reg = WatchReg::arm(&table, Box::new(()), D, NAMES, false, 4096, &budget).unwrap();
        let watch = Arc::clone(reg.watch());
        tell(&table, "d\\ab", NoticeKind::Removed);
        assert_eq!(budget.bytes(), 16);
        assert_eq!(names(&watch).unwrap(), ["ab"]);
        assert_eq!(budget.bytes(), 0);
        tell(&table, "d\\ab", NoticeKind::Added);
        assert_eq!((budget.watches(), budget.bytes()), (1, 16));
        drop(reg);
        assert_eq!((budget.watches(), budget.bytes()), (0, 0));
        assert_eq!(table.len(), 0);

        // The watch that would cross the connection's budget overflows.
        let first = Watch::new(ROOT, NAMES, false, 64, &budget).unwrap();
        let second = Watch::new(ROOT, NAMES, false, 64, &budget).unwrap();
        budget.charge(MAX_NOTIFY_BYTES - 20);
        first.push(&[(FILE_ACTION_ADDED, vec![0x61])]);
        second.push(&[(FILE_ACTION_ADDED, vec![0x61])]);
        assert_eq!(budget.bytes(), MAX_NOTIFY_BYTES - 4);
        let ticket = second.enqueue(64, true);
        assert_eq!(second.take(&ticket), Some(Answer::EnumDir));
        assert!(matches!(first.take(&first.enqueue(64, true)), Some(Answer::Changes(_))));
        assert_eq!(budget.bytes(), MAX_NOTIFY_BYTES - 20);
    }

    #[test]
    fn watches_of_all_connections_of_a_user_share_a_budget() {
        let budget = Arc::new(OpenBudget::new((9, 9), (0, 0), (40, 60)));
        let [bob, alice] = ["bob", "alice"].map(|user| {
            let holder = budget.holder(Some(user), None);
            OpenSlot::acquire(&Arc::default(), 1).unwrap().within(&budget, holder).unwrap()
        });
        // A connection for each watch.
        let watch = |of: &OpenSlot| {
            let account = NotifyAccount::new(&Arc::default(), of.party());
            Watch::new(ROOT, NAMES, false, 4096, account).unwrap()
        };
        let take = |watch: &Arc<Watch>| watch.take(&watch.enqueue(4096, true));
        let entry = [(FILE_ACTION_ADDED, vec![0x61])];
        let bobs = [watch(&bob), watch(&bob), watch(&bob)];
        bobs.iter().for_each(|watch| watch.push(&entry));
        assert_eq!(budget.notice_bytes(), 32, "16 each");
        assert_eq!(take(&bobs[2]), Some(Answer::EnumDir), "a user");
        let alices = [watch(&alice), watch(&alice)];
        alices.iter().for_each(|watch| watch.push(&entry));
        assert_eq!(budget.notice_bytes(), 48);
        assert_eq!(take(&alices[1]), Some(Answer::EnumDir), "all together");
        // What is lost frees room: the same watch buffers anew.
        bobs[0].push(&[(FILE_ACTION_ADDED, vec![0x62; 40])]);
        assert_eq!(budget.notice_bytes(), 32);
        assert_eq!(take(&bobs[0]), Some(Answer::EnumDir));
        bobs[0].push(&entry);
        assert!(matches!(take(&bobs[0]), Some(Answer::Changes(_))));
        for watch in bobs.iter().chain(&alices) {
            watch.end(ntstatus::STATUS_NOTIFY_CLEANUP);
        }
        assert_eq!(budget.notice_bytes(), 0);
    }

    #[test]
    fn a_watch_keeps_no_memory_of_changes_that_were_taken() {
        let table = Watches::default();
        let watch = watch_on(&table, ROOT, NAMES, false, MAX_NOTIFY_BUFFER, &Arc::default());
        for i in 0..1000 {
            added(&table, &format!("file {i}"));
        }
        assert!(matches!(watch.take(&watch.enqueue(MAX_NOTIFY_BUFFER, true)), Some(Answer::Changes(_))));
        assert_eq!(watch.state().entries.capacity(), 0);
    }

    #[test]
    fn watches_stop_at_the_connection_cap() {
        let budget: Arc<NotifyBudget> = Arc::default();
        let held: Vec<_> = (0..MAX_WATCHES_PER_CONNECTION)
            .map(|_| Watch::new(ROOT, NAMES, false, 0, &budget).expect("under the cap"))
            .collect();
        assert!(Watch::new(ROOT, NAMES, false, 0, &budget).is_none());
        held[0].end(ntstatus::STATUS_NOTIFY_CLEANUP);
        assert!(Watch::new(ROOT, NAMES, false, 0, &budget).is_some());
    }

    #[test]
    fn waiting_requests_take_in_order_and_an_end_answers_them_all() {
        let budget = Arc::default();
        let table = Watches::default();
        let watch = watch_on(&table, ROOT, NAMES, false, 4096, &budget);
        let first = watch.enqueue(4096, true);
        let second = watch.enqueue(4096, true);
        let third = watch.enqueue(4096, true);
        added(&table, "a");
        assert_eq!(watch.take(&second), None);
        assert!(matches!(watch.take(&first), Some(Answer::Changes(_))));
        added(&table, "b");
        // A request that leaves the queue lets the next one take.
        drop(second);
        let Some(Answer::Changes(buf)) = watch.take(&third) else {
            panic!("third takes after second left");
        };
        assert_eq!(entries_of(&buf), [(FILE_ACTION_ADDED, "b".to_string())]);

        let a = watch.enqueue(4096, true);
        let b = watch.enqueue(4096, true);
        watch.end(ntstatus::STATUS_NOTIFY_CLEANUP);
        for ticket in [&b, &a] {
            assert_eq!(watch.take(ticket), Some(Answer::Ended(ntstatus::STATUS_NOTIFY_CLEANUP)));
        }
    }

    #[test]
    fn a_request_without_watch_tree_gets_no_nested_names() {
        let budget = Arc::default();
        let table = Watches::default();
        let watch = watch_on(&table, ROOT, NAMES, true, 4096, &budget);
        added(&table, "a\\b");
        let flat = watch.enqueue(4096, false);
        assert_eq!(watch.take(&flat), Some(Answer::EnumDir));
        drop(flat);
        added(&table, "c");
        let flat = watch.enqueue(4096, false);
        assert!(matches!(watch.take(&flat), Some(Answer::Changes(_))));
        drop(flat);
        added(&table, "a\\d");
        assert_eq!(names(&watch).unwrap(), ["a\\d"]);
    }

    #[test]
    fn a_watch_ended_around_a_push_gives_back_its_bytes() {
        let budget: Arc<NotifyBudget> = Arc::default();
        let table = Watches::default();
        let entry = [(FILE_ACTION_ADDED, vec![0x61])];
        // A report that matched the watch before it left the table pushes
        // after the end: nothing is kept.
        let reg = WatchReg::arm(&table, Box::new(()), ROOT, NAMES, false, 4096, &budget).unwrap();
        let watch = Arc::clone(reg.watch());
        drop(reg);
        watch.push(&entry);
        assert_eq!(budget.bytes(), 0);
        let ticket = watch.enqueue(4096, true);
        assert_eq!(watch.take(&ticket), Some(Answer::Ended(ntstatus::STATUS_NOTIFY_CLEANUP)));
        // One that pushes first has its bytes given back by the end.
        let reg = WatchReg::arm(&table, Box::new(()), ROOT, NAMES, false, 4096, &budget).unwrap();
        reg.watch().push(&entry);
        assert_eq!(budget.bytes(), 16);
        drop(reg);
        assert_eq!((budget.watches(), budget.bytes()), (0, 0));
    }

    #[test]
    fn a_rename_pair_is_buffered_whole_or_not_at_all() {
        let budget = Arc::default();
        let table = Watches::default();
        // Each one-letter entry is 14 bytes, 16 padded: the pair takes 30,
        // the first half alone 14.
        let fits = watch_on(&table, ROOT, NAMES, false, 30, &budget);
        let half = watch_on(&table, ROOT, NAMES, false, 16, &budget);
        let mut fits_changed = fits.subscribe();
        let mut half_changed = half.subscribe();
        tell(&table, "e", NoticeKind::Renamed { from: "c".to_string() });
        // One push each: a request woken in between could not take half.
        assert_eq!(*fits_changed.borrow_and_update(), 1);
        assert_eq!(*half_changed.borrow_and_update(), 1);
        assert_eq!(names(&fits).unwrap(), ["c", "e"]);
        let ticket = half.enqueue(4096, true);
        assert_eq!(half.take(&ticket), Some(Answer::EnumDir));
    }

    #[test]
    fn names_that_no_client_can_use_are_left_out() {
        let budget = Arc::default();
        let table = Watches::default();
        let watch = watch_on(&table, ROOT, NAMES, true, 4096, &budget);
        let renamed = |from: &str| NoticeKind::Renamed { from: from.to_string() };
        added(&table, "bad:1");
        tell(&table, "bad:2", renamed("bad:1"));
        tell(&table, "good", renamed("bad:2"));
        tell(&table, "bad:3", renamed("good"));
        table.tell(
            &[Above { dir: ROOT, path: "bad:4\\".to_string() }],
            Notice { name: "in".to_string(), kind: NoticeKind::Added, is_directory: false },
        );
        let ticket = watch.enqueue(4096, true);
        let Some(Answer::Changes(buf)) = watch.take(&ticket) else { panic!("an answer") };
        assert_eq!(
            entries_of(&buf),
            [(FILE_ACTION_ADDED, "good".to_string()), (FILE_ACTION_REMOVED, "good".to_string())]
        );
    }

    #[test]
    fn lost_changes_and_a_deleted_directory_are_told() {
        let budget = Arc::default();
        let table = Watches::default();
        let [kept, gone] = [ROOT, D].map(|dir| watch_on(&table, dir, NAMES, false, 4096, &budget));
        table.lost();
        for watch in [&kept, &gone] {
            assert_eq!(watch.take(&watch.enqueue(4096, true)), Some(Answer::EnumDir));
        }
        table.gone(D);
        let ended = Some(Answer::Ended(ntstatus::STATUS_DELETE_PENDING));
        assert_eq!(gone.take(&gone.enqueue(4096, true)), ended);
        assert!(gone.state().gone && !table.has(D) && table.has(ROOT));
        added(&table, "x");
        assert_eq!(names(&kept).unwrap(), ["x"]);
    }

    #[tokio::test]
    async fn a_change_wakes_a_subscriber() {
        let budget = Arc::default();
        let table = Watches::default();
        let watch = watch_on(&table, ROOT, NAMES, false, 4096, &budget);
        let mut changed = watch.subscribe();
        added(&table, "a");
        changed.changed().await.unwrap();
        assert_eq!(names(&watch).unwrap(), ["a"]);
    }
}
