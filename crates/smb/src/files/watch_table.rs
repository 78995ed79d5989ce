//! The directories of a share that clients watch (MS-FSA 2.1.4.1), and the report of a change to each watch that it matches.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::ntstatus;
use crate::path::{SmbPath, folded, rebase};
use crate::proto::messages::change_notify::{
    FILE_ACTION_ADDED, FILE_ACTION_REMOVED, FILE_ACTION_RENAMED_NEW_NAME, FILE_ACTION_RENAMED_OLD_NAME,
};

use super::host_reports::{Echo, Host, RENAMED_SELF, WatchedShare};
use super::watch::{Batch, NotifyBudget, Watch, dir_key, lock};

/// One change to report: `action` (FILE_ACTION_*) happened at `path`, and
/// it matches the FILE_NOTIFY_CHANGE_* bits `filter`.
pub(crate) struct Change<'a> {
    pub path: &'a SmbPath,
    pub action: u32,
    pub filter: u32,
    /// A backend that reports changes sees this addition, removal or rename
    /// itself. The removal of an entry a rename replaced is not seen: the
    /// backend sees only the rename.
    pub seen: bool,
}

/// Changes the server is about to make, noted in the echoes of the watched
/// directories they happen in before the backend can report them. Dropped
/// without [`Expected::report`], as when the change failed, the notes are
/// taken back; a note a backend report already took stood for a change
/// someone else made, which is then reported as theirs.
pub(crate) struct Expected {
    marks: Vec<Mark>,
}

/// One change noted in a host's echo.
struct Mark {
    host: Arc<Host>,
    /// Index of the change among those expected; `None` for the rename of
    /// the watched directory itself.
    change: Option<usize>,
    /// The action noted to hide one backend report, if any.
    action: Option<u32>,
    /// The entry's name as the table compares names.
    key: String,
    /// The entry's name as spelled, and the change's filter.
    name: String,
    filter: u32,
}

impl Expected {
    /// Reports `changes`, the changes this expected, now made. A directory
    /// that started hearing its backend since gets them noted now.
    pub(crate) fn report(mut self, table: &WatchTable, changes: &[Change<'_>]) {
        let marks = std::mem::take(&mut self.marks);
        table.deliver(changes, |at, host| {
            marks.iter().any(|mark| mark.change == Some(at) && Arc::ptr_eq(&mark.host, host))
        });
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        for mark in self.marks.drain(..) {
            let taken = {
                let mut echo = lock(&mark.host.echo);
                echo.untouch(&mark.key);
                mark.action.is_some_and(|action| !echo.take(action, &mark.key))
            };
            let Some(share) = mark.host.share.upgrade() else {
                continue;
            };
            if taken {
                let _order = lock(&mark.host.waiting);
                let heard = [(mark.action.unwrap_or_default(), mark.name.as_str(), mark.filter)];
                match mark.change {
                    Some(_) => share.watches().hear(&mark.host, &heard, false),
                    None => share.watches().hear(&mark.host, &[], true),
                }
            }
        }
    }
}

/// The watches of one directory, and the backend's reports for them: those
/// of the tree below it and those of its entries come apart, so that neither
/// kind of watch waits for the other.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) watches: Vec<Arc<Watch>>,
    /// At most one of each kind.
    pub(super) hosts: Vec<Arc<Host>>,
}

impl Watched {
    pub(super) fn hears(&self, host: &Arc<Host>) -> bool {
        self.hosts.iter().any(|h| Arc::ptr_eq(h, host))
    }

    /// Stops the reports that no watch is left for.
    fn stop_unheard(&mut self) {
        let Self { watches, hosts } = self;
        hosts.retain(|host| {
            let heard = watches.iter().any(|watch| watch.tree == host.tree);
            if !heard {
                host.stop();
            }
            heard
        });
    }
}

impl Drop for Watched {
    /// The backend's reports stop with the last watch of the directory.
    fn drop(&mut self) {
        self.hosts.iter().for_each(|host| host.stop());
    }
}

/// The watches on one share, by watched directory (MS-FSA
/// Volume.ChangeNotifyList).
///
/// Lock order: a host's waiting reports, then `dirs`, then a watch's state
/// or a host's directory, echo or task, a host's directory before its
/// echo. A report passes on the waiting reports of the directories it
/// changed, then pushes into the watches it matched, after letting go of
/// `dirs`. Only a host's waiting reports are held while taking a lock of
/// the file table, and none of these is taken while holding a lock of the
/// file, lease or durable tables.
pub(crate) struct WatchTable {
    pub(super) case_sensitive: bool,
    /// Watches in the table; with none, a report costs one load.
    pub(super) count: AtomicUsize,
    /// Watches with SMB2_WATCH_TREE; with none, only the parent of a change
    /// is looked up.
    pub(super) tree_count: AtomicUsize,
    pub(super) dirs: Mutex<HashMap<String, Watched>>,
    /// Batches pushed into watches.
    #[cfg(test)]
    pub(super) pushes: AtomicUsize,
}

impl WatchTable {
    pub(crate) fn new(case_sensitive: bool) -> Self {
        Self {
            case_sensitive,
            count: AtomicUsize::new(0),
            tree_count: AtomicUsize::new(0),
            dirs: Mutex::default(),
            #[cfg(test)]
            pushes: AtomicUsize::new(0),
        }
    }

    fn insert(&self, watch: &Arc<Watch>) {
        let mut dirs = lock(&self.dirs);
        let key = dir_key(watch.state().dir.components(), self.case_sensitive);
        dirs.entry(key).or_default().watches.push(Arc::clone(watch));
        self.count.fetch_add(1, Ordering::AcqRel);
        if watch.tree {
            self.tree_count.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn remove(&self, watch: &Arc<Watch>) {
        let mut dirs = lock(&self.dirs);
        let key = dir_key(watch.state().dir.components(), self.case_sensitive);
        let Some(watched) = dirs.get_mut(&key) else {
            return;
        };
        let Some(at) = watched.watches.iter().position(|w| Arc::ptr_eq(w, watch)) else {
            return;
        };
        watched.watches.swap_remove(at);
        watched.stop_unheard();
        if watched.watches.is_empty() {
            dirs.remove(&key);
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        if watch.tree {
            self.tree_count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Buffers `changes` in every watch they match and wakes the requests
    /// waiting on those watches (MS-FSA 2.1.4.1). A change matches a watch
    /// of its parent directory, or of any directory above it when the watch
    /// covers the tree, whose filter shares a bit with the change's. The
    /// watched directory itself is never reported. Names are relative to
    /// the watched directory, as spelled in `path`: the spelling of the
    /// client that made the change, which on a backend that ignores case can
    /// differ from the name on disk. Watches are matched by path, so a
    /// change made through a symlink inside the share reaches the watchers
    /// of the path it was made through, not of the directory the symlink
    /// leads to. Each watch takes the changes of one call together, in
    /// order, after the backend's reports of the same directories that
    /// arrived before.
    pub(crate) fn report(&self, changes: &[Change<'_>]) {
        self.deliver(changes, |_, _| false);
    }

    /// Notes `changes`, which the server is about to make, so the backend's
    /// reports of them are left out whenever they arrive; with
    /// `renamed_dir`, also the rename of that watched directory itself.
    /// The changes are reported through the returned [`Expected`].
    pub(crate) fn expect(&self, changes: &[Change<'_>], renamed_dir: Option<&SmbPath>) -> Expected {
        let mut marks = Vec::new();
        if self.is_empty() {
            return Expected { marks };
        }
        let dirs = lock(&self.dirs);
        for (at, change) in changes.iter().enumerate() {
            let (hosts, key) = self.hosts_of(&dirs, change.path);
            for host in hosts {
                let action = self.note(&host, change, &key);
                let (key, name) = (key.clone(), change.path.file_name().unwrap_or_default().to_string());
                marks.push(Mark { host, change: Some(at), action, key, name, filter: change.filter });
            }
        }
        let renamed = renamed_dir.and_then(|dir| dirs.get(&dir_key(dir.components(), self.case_sensitive)));
        for host in renamed.into_iter().flat_map(listening) {
            lock(&host.echo).report(RENAMED_SELF, String::new());
            marks.push(Mark {
                host,
                change: None,
                action: Some(RENAMED_SELF),
                key: String::new(),
                name: String::new(),
                filter: 0,
            });
        }
        Expected { marks }
    }

    /// The listening hosts of the directory `path` is in, and the name of
    /// `path` in it as the table compares names. A backend tells the server's
    /// own changes from those of others where a directory further up hears of
    /// them.
    fn hosts_of(&self, dirs: &HashMap<String, Watched>, path: &SmbPath) -> (Vec<Arc<Host>>, String) {
        let Some((name, parent)) = path.components().split_last() else {
            return (Vec::new(), String::new());
        };
        let watched = dirs.get(&dir_key(parent, self.case_sensitive));
        (watched.into_iter().flat_map(listening).collect(), self.name_key(name))
    }

    /// Notes `change` to the entry `name` in `host`'s echo. Returns the
    /// action noted to hide one backend report, if any.
    fn note(&self, host: &Host, change: &Change<'_>, name: &str) -> Option<u32> {
        let named = matches!(
            change.action,
            FILE_ACTION_ADDED | FILE_ACTION_REMOVED | FILE_ACTION_RENAMED_OLD_NAME | FILE_ACTION_RENAMED_NEW_NAME
        );
        let mut echo = lock(&host.echo);
        echo.touch(name.to_string());
        if named && change.seen {
            echo.report(change.action, name.to_string());
            return Some(change.action);
        }
        None
    }

    /// Pushes `changes` into the watches they reach, noting each in the echo
    /// of its directory first unless `noted` says it is, by its index.
    fn deliver(&self, changes: &[Change<'_>], noted: impl Fn(usize, &Arc<Host>) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let deep = self.tree_count.load(Ordering::Acquire) > 0;
        let dirs = lock(&self.dirs);
        let mut batches: Vec<(Arc<Watch>, Batch)> = Vec::new();
        let mut slots: HashMap<*const Watch, usize> = HashMap::new();
        let mut hosts: Vec<Arc<Host>> = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            let components = change.path.components();
            let Some(parent) = components.len().checked_sub(1) else {
                continue;
            };
            let (listening_in, name) = self.hosts_of(&dirs, change.path);
            for host in listening_in.iter().filter(|host| !noted(at, host)) {
                self.note(host, change, &name);
            }
            let top = if deep { 0 } else { parent };
            for depth in (top..=parent).rev() {
                let Some(watched) = dirs.get(&dir_key(&components[..depth], self.case_sensitive)) else {
                    continue;
                };
                // What the backend reported earlier in this directory or a
                // directory above, which a tree watch hears too, goes first.
                for host in listening(watched) {
                    if !hosts.iter().any(|h| Arc::ptr_eq(h, &host)) {
                        hosts.push(host);
                    }
                }
                let mut name = None;
                for watch in &watched.watches {
                    if watch.filter & change.filter == 0 || (depth < parent && !watch.tree) {
                        continue;
                    }
                    let name = name
                        .get_or_insert_with(|| components[depth..].join("\\").encode_utf16().collect::<Vec<u16>>())
                        .clone();
                    let slot = *slots.entry(Arc::as_ptr(watch)).or_insert_with(|| {
                        batches.push((Arc::clone(watch), Vec::new()));
                        batches.len() - 1
                    });
                    batches[slot].1.push((change.action, name));
                }
            }
        }
        // A watch removed from here on ends before or after it takes the
        // batch; either way the end gives back what it holds.
        drop(dirs);
        for host in hosts {
            host.pass_on(None);
        }
        for (watch, entries) in batches {
            #[cfg(test)]
            self.pushes.fetch_add(1, Ordering::AcqRel);
            watch.push(&entries);
        }
    }

    /// Ends every watch of the directory `dir`, on any connection, with
    /// `status` and takes them out of the table (MS-FSA 2.1.5.15.3).
    /// Watches of directories above or below it stay.
    pub(crate) fn end_at(&self, dir: &SmbPath, status: u32) {
        if self.is_empty() {
            return;
        }
        let key = dir_key(dir.components(), self.case_sensitive);
        let ended = self.take_entry(&mut lock(&self.dirs), &key);
        for watch in ended {
            watch.end(status);
        }
    }

    /// Takes the watches of the directory keyed `key` out of the table.
    pub(super) fn take_entry(&self, dirs: &mut HashMap<String, Watched>, key: &str) -> Vec<Arc<Watch>> {
        let Some(mut watched) = dirs.remove(key) else {
            return Vec::new();
        };
        for watch in &watched.watches {
            self.count.fetch_sub(1, Ordering::AcqRel);
            if watch.tree {
                self.tree_count.fetch_sub(1, Ordering::AcqRel);
            }
        }
        std::mem::take(&mut watched.watches)
    }

    /// `name` as the table compares names.
    pub(super) fn name_key(&self, name: &str) -> String {
        if self.case_sensitive { name.to_string() } else { folded(name) }
    }

    /// Notes that the server changed the entry at `path`, or is about to
    /// close it after changing it, so the backend's reports of that
    /// entry's modification are dropped for [`ECHO_TIME`].
    pub(crate) fn touch(&self, path: &SmbPath) {
        self.echo_at(path, Echo::touch);
    }

    /// Notes that the server is about to close the entry at `path`, open
    /// to write, created or overwritten, without having written it, so the
    /// backend's next report of its modification is dropped.
    pub(crate) fn closed(&self, path: &SmbPath) {
        self.echo_at(path, Echo::closed);
    }

    /// Records the server's change to the entry at `path` with `record`,
    /// when its directory hears the backend.
    fn echo_at(&self, path: &SmbPath, record: fn(&mut Echo, String)) {
        if self.is_empty() {
            return;
        }
        let (hosts, name) = self.hosts_of(&lock(&self.dirs), path);
        for host in hosts {
            record(&mut lock(&host.echo), name.clone());
        }
    }

    /// Whether a change at `path` would reach a watch, whatever its
    /// filter.
    pub(crate) fn watching(&self, path: &SmbPath) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let components = path.components();
        let Some(parent) = components.len().checked_sub(1) else {
            return false;
        };
        let top = if self.tree_count.load(Ordering::Acquire) > 0 { 0 } else { parent };
        let dirs = lock(&self.dirs);
        (top..=parent).any(|depth| {
            dirs.get(&dir_key(&components[..depth], self.case_sensitive))
                .is_some_and(|watched| depth == parent || watched.watches.iter().any(|w| w.tree))
        })
    }

    /// Moves every watch of `from`, or of a directory below it, to the
    /// matching directory under `to`, which `from` was renamed to, with the
    /// backend's reports for it. What the watches buffered stays.
    pub(crate) fn rename(&self, from: &SmbPath, to: &SmbPath) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut dirs = lock(&self.dirs);
        let keys: Vec<String> = dirs.keys().cloned().collect();
        let mut moved = Vec::new();
        for key in keys {
            let Some(watched) = dirs.get(&key) else {
                continue;
            };
            let mut new_key = None;
            for watch in &watched.watches {
                let mut state = watch.state();
                if let Some(dir) = rebase(&state.dir, from, to, self.case_sensitive) {
                    new_key = Some(dir_key(dir.components(), self.case_sensitive));
                    state.dir = dir;
                }
            }
            for host in &watched.hosts {
                let mut dir = lock(&host.dir);
                if let Some(rebased) = rebase(&dir, from, to, self.case_sensitive) {
                    new_key.get_or_insert_with(|| dir_key(rebased.components(), self.case_sensitive));
                    *dir = rebased;
                }
            }
            if let Some(new_key) = new_key
                && let Some(watched) = dirs.remove(&key)
            {
                moved.push((new_key, watched));
            }
        }
        for (key, mut watched) in moved {
            match dirs.get_mut(&key) {
                // What was watched under the new name is gone; the reports
                // of the moved directory are kept.
                Some(existing) => {
                    existing.watches.append(&mut watched.watches);
                    let moved = std::mem::take(&mut watched.hosts);
                    std::mem::replace(&mut existing.hosts, moved).iter().for_each(|old| old.stop());
                }
                None => {
                    dirs.insert(key, watched);
                }
            }
        }
    }

    /// True when the share has no watch, so no change reaches anyone.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Batches pushed into watches so far.
    #[cfg(test)]
    pub(crate) fn pushes(&self) -> usize {
        self.pushes.load(Ordering::Acquire)
    }

    /// Watches on the share.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

/// The hosts of a watched directory that hear the backend.
fn listening(watched: &Watched) -> impl Iterator<Item = Arc<Host>> {
    watched.hosts.iter().filter(|host| !host.idle.load(Ordering::Acquire)).cloned()
}

/// An open's watch, in its share's table. Dropping it removes the watch
/// and ends the requests waiting on it with STATUS_NOTIFY_CLEANUP.
pub(crate) struct WatchReg {
    share: Arc<dyn WatchedShare>,
    watch: Arc<Watch>,
}

impl WatchReg {
    /// Arms a watch of the directory `dir` on `share` for a first
    /// CHANGE_NOTIFY with `filter`, `tree` and OutputBufferLength `len`.
    /// `None` when the connection behind `budget` holds
    /// [`MAX_WATCHES_PER_CONNECTION`] watches.
    pub(crate) fn arm(
        share: &Arc<impl WatchedShare + 'static>,
        dir: SmbPath,
        filter: u32,
        tree: bool,
        len: u32,
        budget: &Arc<NotifyBudget>,
    ) -> Option<Self> {
        let watch = Watch::new(dir, filter, tree, len, budget)?;
        share.watches().insert(&watch);
        let share: Arc<dyn WatchedShare> = share.clone();
        Some(Self { share, watch })
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Whether the watch has ended while its open stays.
    pub(crate) fn ended(&self) -> bool {
        self.watch.state().end.is_some()
    }

    /// Whether the watch ended because its directory was deleted outside
    /// the server.
    pub(crate) fn gone(&self) -> bool {
        self.watch.state().gone
    }

    /// Takes the watch out of the table, so no change reaches it; dropping
    /// the registration ends it.
    pub(crate) fn leave_table(&self) {
        self.share.watches().remove(&self.watch);
    }
}

impl Drop for WatchReg {
    fn drop(&mut self) {
        self.share.watches().remove(&self.watch);
        self.watch.end(ntstatus::STATUS_NOTIFY_CLEANUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::watch::{
        Answer, CONTENT_CHANGED, MAX_NOTIFY_BUFFER, MAX_NOTIFY_BYTES, MAX_WATCHES_PER_CONNECTION,
    };
    use crate::proto::messages::change_notify::{
        FILE_ACTION_ADDED, FILE_ACTION_REMOVED, FILE_ACTION_RENAMED_NEW_NAME, FILE_ACTION_RENAMED_OLD_NAME,
        FILE_NOTIFY_CHANGE_DIR_NAME, FILE_NOTIFY_CHANGE_FILE_NAME,
    };
    use crate::share::{Share, ShareBindings};
    use crate::tests::memfs::MemFsBackend;

    const NAMES: u32 = FILE_NOTIFY_CHANGE_FILE_NAME | FILE_NOTIFY_CHANGE_DIR_NAME;

    fn p(s: &str) -> SmbPath {
        s.parse().unwrap()
    }

    fn watch_on(
        table: &WatchTable,
        dir: &str,
        filter: u32,
        tree: bool,
        len: u32,
        budget: &Arc<NotifyBudget>,
    ) -> Arc<Watch> {
        let watch = Watch::new(p(dir), filter, tree, len, budget).expect("under the cap");
        table.insert(&watch);
        watch
    }

    fn added(table: &WatchTable, path: &str) {
        table.report(&[Change {
            path: &p(path),
            action: FILE_ACTION_ADDED,
            filter: FILE_NOTIFY_CHANGE_FILE_NAME,
            seen: true,
        }]);
    }

    /// (action, name) of each entry in a response buffer.
    fn decode(buf: &[u8]) -> Vec<(u32, String)> {
        let mut out = Vec::new();
        let mut at = 0;
        loop {
            let field = |o: usize| u32::from_le_bytes(buf[at + o..at + o + 4].try_into().unwrap());
            let len = field(8) as usize;
            let name: Vec<u16> =
                buf[at + 12..at + 12 + len].chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
            out.push((field(4), String::from_utf16(&name).unwrap()));
            match field(0) {
                0 => return out,
                next => at += next as usize,
            }
        }
    }

    /// The names a request on `watch` gets now, or `None` when it would
    /// wait.
    fn names(watch: &Arc<Watch>) -> Option<Vec<String>> {
        let ticket = watch.enqueue(MAX_NOTIFY_BUFFER, true);
        match watch.take(&ticket)? {
            Answer::Changes(buf) => Some(decode(&buf).into_iter().map(|(_, n)| n).collect()),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn a_change_reaches_its_parent_and_tree_watches_above() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        let root = watch_on(&table, "", NAMES, false, 4096, &budget);
        let root_tree = watch_on(&table, "", NAMES, true, 4096, &budget);
        let a = watch_on(&table, "a", NAMES, false, 4096, &budget);
        let a_tree = watch_on(&table, "a", NAMES, true, 4096, &budget);
        let abc = watch_on(&table, "a\\b\\c", NAMES, true, 4096, &budget);
        let other = watch_on(&table, "a\\b", FILE_NOTIFY_CHANGE_DIR_NAME, false, 4096, &budget);

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
    fn keys_ignore_case_unless_the_backend_is_case_sensitive() {
        let budget = Arc::default();
        let insensitive = WatchTable::new(false);
        let sensitive = WatchTable::new(true);
        let a = watch_on(&insensitive, "sub", NAMES, false, 4096, &budget);
        let b = watch_on(&sensitive, "sub", NAMES, false, 4096, &budget);
        added(&insensitive, "Sub\\X.txt");
        added(&sensitive, "Sub\\X.txt");
        assert_eq!(names(&a).unwrap(), ["X.txt"]);
        assert_eq!(names(&b), None);
    }

    #[test]
    fn a_full_buffer_answers_enum_dir_once_then_buffers_again() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        // Each entry for a one-letter name is 14 bytes, 16 padded.
        let watch = watch_on(&table, "", NAMES, false, 30, &budget);
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
        let none = watch_on(&table, "z", NAMES, false, 0, &budget);
        added(&table, "z\\f");
        let ticket = none.enqueue(4096, true);
        assert_eq!(none.take(&ticket), Some(Answer::EnumDir));
    }

    #[test]
    fn the_first_requests_length_sticks_and_each_request_caps_it() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        let small = watch_on(&table, "", NAMES, false, 1, &budget);
        added(&table, "a");
        let ticket = small.enqueue(4096, true);
        assert_eq!(small.take(&ticket), Some(Answer::EnumDir));

        let big = watch_on(&table, "d", NAMES, false, 4096, &budget);
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
        let table = WatchTable::new(false);
        let watch = watch_on(&table, "", NAMES, false, u32::MAX, &budget);
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
        let share = ShareBindings::from_share(Share::new("s", MemFsBackend::new()).public());
        let reg = WatchReg::arm(&share, p("d"), NAMES, false, 4096, &budget).unwrap();
        let watch = Arc::clone(reg.watch());
        share.watches.report(&[Change {
            path: &p("d\\ab"),
            action: FILE_ACTION_REMOVED,
            filter: FILE_NOTIFY_CHANGE_FILE_NAME,
            seen: true,
        }]);
        assert_eq!(budget.bytes(), 16);
        assert_eq!(names(&watch).unwrap(), ["ab"]);
        assert_eq!(budget.bytes(), 0);
        share.watches.report(&[Change {
            path: &p("d\\ab"),
            action: FILE_ACTION_ADDED,
            filter: FILE_NOTIFY_CHANGE_FILE_NAME,
            seen: true,
        }]);
        assert_eq!((budget.watches(), budget.bytes()), (1, 16));
        drop(reg);
        assert_eq!((budget.watches(), budget.bytes()), (0, 0));
        assert_eq!(share.watches.len(), 0);

        // The watch that would cross the connection's budget overflows.
        let first = Watch::new(p(""), NAMES, false, 64, &budget).unwrap();
        let second = Watch::new(p(""), NAMES, false, 64, &budget).unwrap();
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
    fn watches_stop_at_the_connection_cap() {
        let budget = Arc::default();
        let held: Vec<_> = (0..MAX_WATCHES_PER_CONNECTION)
            .map(|_| Watch::new(p(""), NAMES, false, 0, &budget).expect("under the cap"))
            .collect();
        assert!(Watch::new(p(""), NAMES, false, 0, &budget).is_none());
        held[0].end(ntstatus::STATUS_NOTIFY_CLEANUP);
        assert!(Watch::new(p(""), NAMES, false, 0, &budget).is_some());
    }

    #[test]
    fn waiting_requests_take_in_order_and_an_end_answers_them_all() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        let watch = watch_on(&table, "", NAMES, false, 4096, &budget);
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
        assert_eq!(decode(&buf), [(FILE_ACTION_ADDED, "b".to_string())]);

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
        let table = WatchTable::new(false);
        let watch = watch_on(&table, "", NAMES, true, 4096, &budget);
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
        let share = ShareBindings::from_share(Share::new("s", MemFsBackend::new()).public());
        let entry = [(FILE_ACTION_ADDED, vec![0x61])];
        // A report that matched the watch before it left the table pushes
        // after the end: nothing is kept.
        let reg = WatchReg::arm(&share, p(""), NAMES, false, 4096, &budget).unwrap();
        let watch = Arc::clone(reg.watch());
        drop(reg);
        watch.push(&entry);
        assert_eq!(budget.bytes(), 0);
        let ticket = watch.enqueue(4096, true);
        assert_eq!(watch.take(&ticket), Some(Answer::Ended(ntstatus::STATUS_NOTIFY_CLEANUP)));
        // One that pushes first has its bytes given back by the end.
        let reg = WatchReg::arm(&share, p(""), NAMES, false, 4096, &budget).unwrap();
        reg.watch().push(&entry);
        assert_eq!(budget.bytes(), 16);
        drop(reg);
        assert_eq!((budget.watches(), budget.bytes()), (0, 0));
    }

    #[test]
    fn renames_move_watches_at_and_below_the_renamed_directory() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        let renamed = watch_on(&table, "a", NAMES, false, 4096, &budget);
        let below = watch_on(&table, "a\\b", NAMES, true, 4096, &budget);
        let sibling = watch_on(&table, "ab", NAMES, false, 4096, &budget);
        added(&table, "a\\early");
        table.rename(&p("A"), &p("z"));
        added(&table, "z\\late");
        added(&table, "z\\b\\c\\deep");
        added(&table, "ab\\s");
        assert_eq!(names(&renamed).unwrap(), ["early", "late"]);
        assert_eq!(names(&below).unwrap(), ["c\\deep"]);
        assert_eq!(names(&sibling).unwrap(), ["s"]);
        // The old names match nothing.
        added(&table, "a\\gone");
        added(&table, "a\\b\\gone");
        assert_eq!(names(&renamed), None);
        assert_eq!(names(&below), None);
        assert_eq!(renamed.state().dir, p("z"));
        assert_eq!(below.state().dir, p("z\\b"));
    }

    #[test]
    fn watching_looks_at_the_parent_and_tree_watches_above() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        assert!(!table.watching(&p("a\\b\\c")));
        let _plain = watch_on(&table, "a\\b", 0, false, 4096, &budget);
        assert!(table.watching(&p("A\\b\\c")));
        assert!(!table.watching(&p("a\\b\\c\\d")));
        let _tree = watch_on(&table, "a", 0, true, 4096, &budget);
        assert!(table.watching(&p("a\\b\\c\\d")));
        assert!(!table.watching(&p("a")));
    }

    #[test]
    fn a_rename_pair_is_buffered_whole_or_not_at_all() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        // Each one-letter entry is 14 bytes, 16 padded: the pair takes 30,
        // the first half alone 14.
        let fits = watch_on(&table, "", NAMES, false, 30, &budget);
        let half = watch_on(&table, "", NAMES, false, 16, &budget);
        let mut fits_changed = fits.subscribe();
        let mut half_changed = half.subscribe();
        let (from, to) = (p("c"), p("e"));
        table.report(&[
            Change {
                path: &from,
                action: FILE_ACTION_RENAMED_OLD_NAME,
                filter: FILE_NOTIFY_CHANGE_FILE_NAME,
                seen: true,
            },
            Change {
                path: &to,
                action: FILE_ACTION_RENAMED_NEW_NAME,
                filter: FILE_NOTIFY_CHANGE_FILE_NAME,
                seen: true,
            },
        ]);
        // One push each: a request woken in between could not take half.
        assert_eq!(*fits_changed.borrow_and_update(), 1);
        assert_eq!(*half_changed.borrow_and_update(), 1);
        assert_eq!(names(&fits).unwrap(), ["c", "e"]);
        let ticket = half.enqueue(4096, true);
        assert_eq!(half.take(&ticket), Some(Answer::EnumDir));
    }

    /// The (action, name) of each change a request on `watch` gets now, or
    /// `None` when it would wait.
    fn actions(watch: &Arc<Watch>) -> Option<Vec<(u32, String)>> {
        let ticket = watch.enqueue(MAX_NOTIFY_BUFFER, true);
        match watch.take(&ticket)? {
            Answer::Changes(buf) => Some(decode(&buf)),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn host_changes_leave_out_what_the_server_did() {
        use crate::backend::{DirChange, DirChangeKind};
        let budget: Arc<NotifyBudget> = Arc::default();
        let share = ShareBindings::from_share(Share::new("s", MemFsBackend::new()).public());
        let all = NAMES | CONTENT_CHANGED;
        let reg = WatchReg::arm(&share, p("d"), all, false, 4096, &budget).unwrap();
        let names_reg = WatchReg::arm(&share, p("d"), NAMES, false, 4096, &budget).unwrap();
        let watch = Arc::clone(reg.watch());
        let names_only = Arc::clone(names_reg.watch());
        let host = Arc::new(Host::new(p("d"), false, &share));
        lock(&share.watches.dirs).get_mut(&dir_key(p("d").components(), false)).unwrap().hosts.push(Arc::clone(&host));
        let take = |changes| share.watches.take_host_changes(&*share, &host, changes);
        let server = |action, path: &str, seen| {
            share.watches.report(&[Change { path: &p(path), action, filter: FILE_NOTIFY_CHANGE_FILE_NAME, seen }]);
        };
        let both = || (names(&watch), names(&names_only));
        server(FILE_ACTION_ADDED, "d\\X", true);
        server(FILE_ACTION_RENAMED_OLD_NAME, "d\\X", true);
        server(FILE_ACTION_RENAMED_NEW_NAME, "d\\y", true);
        share.watches.touch(&p("d\\w"));
        assert_eq!(names(&watch).unwrap(), ["X", "X", "y"]);
        assert_eq!(names(&names_only).unwrap(), ["X", "X", "y"]);

        let host_change = |name: &str, kind| DirChange::new(name, kind, false);
        let renamed = |from: &str| DirChangeKind::Renamed { from: from.to_string() };
        // One backend report reaches each watch whose filter asks for it.
        take(vec![
            host_change("x", DirChangeKind::Added),
            host_change("y", renamed("x")),
            host_change("w", DirChangeKind::Modified),
            host_change("v", DirChangeKind::Modified),
            host_change("b", renamed("a")),
            host_change("bad:name", DirChangeKind::Added),
        ]);
        assert_eq!(names(&watch).unwrap(), ["v", "a", "b"]);
        assert_eq!(names(&names_only).unwrap(), ["a", "b"]);

        // Each server report hides one backend report, for every watch.
        take(vec![host_change("x", DirChangeKind::Added)]);
        assert_eq!(both(), (Some(vec!["x".into()]), Some(vec!["x".into()])));

        // A rename the kernel split into a removal and an addition.
        server(FILE_ACTION_RENAMED_OLD_NAME, "d\\m", true);
        server(FILE_ACTION_RENAMED_NEW_NAME, "d\\n", true);
        both();
        take(vec![host_change("m", DirChangeKind::Removed)]);
        take(vec![host_change("n", DirChangeKind::Added)]);
        assert_eq!(both(), (None, None));

        // The removal of an entry a rename replaced is not seen by the
        // backend, so it hides nothing: a later removal is reported.
        server(FILE_ACTION_REMOVED, "d\\t", false);
        server(FILE_ACTION_RENAMED_OLD_NAME, "d\\s", true);
        server(FILE_ACTION_RENAMED_NEW_NAME, "d\\t", true);
        both();
        take(vec![host_change("t", renamed("s"))]);
        take(vec![host_change("t", DirChangeKind::Removed)]);
        assert_eq!(actions(&watch).unwrap(), [(FILE_ACTION_REMOVED, "t".to_string())]);
        names(&names_only);

        // A rename to or from a name the server cannot use.
        take(vec![
            host_change("bad:1", renamed("c")),
            host_change("e", renamed("bad:2")),
            host_change("bad:4", renamed("bad:3")),
        ]);
        let expected = vec![(FILE_ACTION_REMOVED, "c".to_string()), (FILE_ACTION_ADDED, "e".to_string())];
        assert_eq!(actions(&watch).unwrap(), expected);
        assert_eq!(actions(&names_only).unwrap(), expected);

        // A close of a file opened to write hides one modification.
        share.watches.closed(&p("d\\u"));
        take(vec![host_change("u", DirChangeKind::Modified)]);
        assert_eq!(names(&watch), None);
        take(vec![host_change("u", DirChangeKind::Modified)]);
        assert_eq!(names(&watch).unwrap(), ["u"]);
        // An open that may change the file hides its changes; one that
        // only reads does not.
        let file = |access| {
            let sharing = crate::files::Sharing { access, share: 7 };
            let info = crate::backend::FileInfo::new("");
            crate::files::FileRef::register(&share, &info, &p("d\\r"), sharing.into()).unwrap().0
        };
        let reader = file(crate::access_mask::FILE_READ_DATA);
        take(vec![host_change("r", DirChangeKind::AttributesChanged)]);
        assert_eq!(names(&watch).unwrap(), ["r"]);
        let writer = file(crate::access_mask::FILE_WRITE_ATTRIBUTES);
        take(vec![host_change("r", DirChangeKind::AttributesChanged)]);
        assert_eq!(names(&watch), None);
        drop((reader, writer));

        // A lost queue, or a move of the directory the server did not
        // make, is an ENUM_DIR.
        take(vec![host_change("", DirChangeKind::Lost)]);
        for watch in [&watch, &names_only] {
            let ticket = watch.enqueue(4096, true);
            assert_eq!(watch.take(&ticket), Some(Answer::EnumDir));
        }
        let expected = share.watches.expect(&[], Some(&p("d")));
        share.watches.rename(&p("d"), &p("e"));
        expected.report(&share.watches, &[]);
        take(vec![host_change("", DirChangeKind::Moved)]);
        assert_eq!(both(), (None, None));
        take(vec![host_change("", DirChangeKind::Moved)]);
        let ticket = watch.enqueue(4096, true);
        assert_eq!(watch.take(&ticket), Some(Answer::EnumDir));

        // A deleted directory ends its watches for good.
        take(vec![host_change("", DirChangeKind::Deleted)]);
        let ticket = watch.enqueue(4096, true);
        assert_eq!(watch.take(&ticket), Some(Answer::Ended(ntstatus::STATUS_DELETE_PENDING)));
        assert!(reg.gone() && names_reg.gone());
        assert!(share.watches.is_empty());
    }

    #[test]
    fn host_changes_below_a_directory_reach_watches_of_the_tree() {
        use crate::backend::{DirChange, DirChangeKind};
        let budget: Arc<NotifyBudget> = Arc::default();
        let share = ShareBindings::from_share(Share::new("s", MemFsBackend::new()).public());
        let [flat, tree] = [false, true].map(|tree| WatchReg::arm(&share, p("d"), NAMES, tree, 4096, &budget).unwrap());
        let [of_entries, of_tree] = [false, true].map(|tree| Arc::new(Host::new(p("d"), tree, &share)));
        let key = dir_key(p("d").components(), false);
        let hosts = [Arc::clone(&of_entries), Arc::clone(&of_tree)];
        lock(&share.watches.dirs).get_mut(&key).unwrap().hosts.extend(hosts);
        let take = |host: &Arc<Host>, name: &str, kind| {
            share.watches.take_host_changes(&*share, host, vec![DirChange::new(name, kind, false)]);
        };
        let both = || (actions(flat.watch()), actions(tree.watch()));
        let renamed = |from: &str| DirChangeKind::Renamed { from: from.to_string() };
        take(&of_tree, "a\\b\\x", DirChangeKind::Added);
        take(&of_tree, "a\\b\\y", renamed("a\\b\\x"));
        take(&of_tree, "a\\bad:name\\x", DirChangeKind::Added);
        let heard = [
            (FILE_ACTION_ADDED, "a\\b\\x"),
            (FILE_ACTION_RENAMED_OLD_NAME, "a\\b\\x"),
            (FILE_ACTION_RENAMED_NEW_NAME, "a\\b\\y"),
        ];
        assert_eq!(both(), (None, Some(heard.map(|(action, name)| (action, name.to_string())).into())));
        // Each kind of watch hears of an entry once, and of what the server
        // did from the server alone.
        for host in [&of_entries, &of_tree] {
            take(host, "z", DirChangeKind::Added);
        }
        let once = Some(vec![(FILE_ACTION_ADDED, "z".to_string())]);
        assert_eq!(both(), (once.clone(), once));
        added(&share.watches, "d\\own");
        let once = Some(vec![(FILE_ACTION_ADDED, "own".to_string())]);
        assert_eq!(both(), (once.clone(), once));
        for host in [&of_entries, &of_tree] {
            take(host, "own", DirChangeKind::Added);
        }
        assert_eq!(both(), (None, None));
        // What cannot be in one directory is no entry of it.
        take(&of_entries, "a\\x", DirChangeKind::Added);
        assert_eq!(both(), (None, None));
        // The reports of the tree end with the last watch of it.
        drop(tree);
        assert!(of_tree.stopped.load(Ordering::Acquire) && !of_entries.stopped.load(Ordering::Acquire));
        take(&of_entries, "z", DirChangeKind::Removed);
        assert_eq!(names(flat.watch()).unwrap(), ["z"]);
    }

    #[test]
    fn watches_renamed_onto_watched_name_keep_their_own_reports() {
        let budget: Arc<NotifyBudget> = Arc::default();
        let share = ShareBindings::from_share(Share::new("s", MemFsBackend::new()).public());
        let _old = WatchReg::arm(&share, p("e"), NAMES, false, 4096, &budget).unwrap();
        let _moved = WatchReg::arm(&share, p("d"), NAMES, false, 4096, &budget).unwrap();
        let attach = |dir: &str| {
            let host = Arc::new(Host::new(p(dir), false, &share));
            lock(&share.watches.dirs)
                .get_mut(&dir_key(p(dir).components(), false))
                .unwrap()
                .hosts
                .push(Arc::clone(&host));
            host
        };
        let old = attach("e");
        let moved = attach("d");
        share.watches.rename(&p("d"), &p("e"));
        let dirs = lock(&share.watches.dirs);
        assert!(dirs[&dir_key(p("e").components(), false)].hears(&moved));
        assert!(old.stopped.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn a_change_wakes_a_subscriber() {
        let budget = Arc::default();
        let table = WatchTable::new(false);
        let watch = watch_on(&table, "", NAMES, false, 4096, &budget);
        let mut changed = watch.subscribe();
        added(&table, "a");
        changed.changed().await.unwrap();
        assert_eq!(names(&watch).unwrap(), ["a"]);
    }
}
