//! The backend's reports of changes to watched directories, told apart from what the server itself did to them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::backend::{DirChange, DirChangeKind, DirWatch, Handle};
use crate::ntstatus;
use crate::path::{SmbPath, is_valid_component};
use crate::proto::messages::change_notify::{
    FILE_ACTION_ADDED, FILE_ACTION_MODIFIED, FILE_ACTION_REMOVED, FILE_ACTION_RENAMED_NEW_NAME,
    FILE_ACTION_RENAMED_OLD_NAME, FILE_NOTIFY_CHANGE_ATTRIBUTES, FILE_NOTIFY_CHANGE_DIR_NAME,
    FILE_NOTIFY_CHANGE_FILE_NAME,
};

use super::watch::{Batch, CONTENT_CHANGED, Watch, dir_key, lock};
use super::watch_table::WatchTable;

/// How long the server's own change to an entry hides the backend's
/// report of the same change.
const ECHO_TIME: Duration = Duration::from_secs(5);

/// Most changes of the server one watched directory remembers.
const ECHO_LIMIT: usize = 1024;

/// How long a backend report waits before it is compared with what the
/// server did: the server reports its own change right after making it.
const HOST_GRACE: Duration = Duration::from_millis(200);

/// Batches of backend reports one watched directory holds while they wait.
const HOST_QUEUE: usize = 64;

/// Marks the server's rename of a watched directory itself in its
/// [`Echo`], under an empty name.
pub(super) const RENAMED_SELF: u32 = 0;

async fn sleep_until_due(due: Option<tokio::time::Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

/// The server's recent changes to the entries of a watched directory, by
/// name as the table compares names.
#[derive(Default)]
pub(super) struct Echo {
    /// Changes the server reported, each hiding one backend report:
    /// additions, removals and renames, and as MODIFIED the close of a file
    /// that could be written and was not.
    reported: VecDeque<(Instant, u32, String)>,
    /// Entries the server changed, hiding modifications.
    touched: VecDeque<(Instant, String)>,
}

impl Echo {
    fn prune(&mut self, now: Instant) {
        let fresh = |at: &Instant| now.duration_since(*at) < ECHO_TIME;
        while self.reported.front().is_some_and(|(at, ..)| !fresh(at)) {
            self.reported.pop_front();
        }
        while self.touched.front().is_some_and(|(at, _)| !fresh(at)) {
            self.touched.pop_front();
        }
    }

    pub(super) fn report(&mut self, action: u32, name: String) {
        let now = Instant::now();
        self.prune(now);
        if self.reported.len() == ECHO_LIMIT {
            self.reported.pop_front();
        }
        self.reported.push_back((now, action, name));
    }

    pub(super) fn closed(&mut self, name: String) {
        self.report(FILE_ACTION_MODIFIED, name);
    }

    pub(super) fn touch(&mut self, name: String) {
        if self.touched.len() == ECHO_LIMIT {
            self.touched.pop_front();
        }
        self.touched.push_back((Instant::now(), name));
    }

    /// Takes the server's report of `action` on `name`, if there is one.
    pub(super) fn take(&mut self, action: u32, name: &str) -> bool {
        self.prune(Instant::now());
        let found = self.reported.iter().position(|(_, a, n)| *a == action && n == name);
        found.map(|at| self.reported.remove(at)).is_some()
    }

    /// Takes the server's report of any of `actions` on `name`, the first
    /// that matches.
    pub(super) fn take_any(&mut self, actions: &[u32], name: &str) -> bool {
        actions.iter().any(|&action| self.take(action, name))
    }

    pub(super) fn touched(&mut self, name: &str) -> bool {
        self.prune(Instant::now());
        self.touched.iter().any(|(_, n)| n == name)
    }

    /// Takes back the latest record of a change the server made to `name`.
    pub(super) fn untouch(&mut self, name: &str) {
        if let Some(at) = self.touched.iter().rposition(|(_, n)| n == name) {
            self.touched.remove(at);
        }
    }

    pub(super) fn clear(&mut self) {
        self.reported.clear();
        self.touched.clear();
    }
}

/// The share whose directories a table watches.
pub(crate) trait WatchedShare: Send + Sync {
    fn watches(&self) -> &WatchTable;

    /// For each of `paths`, whether an open that may write the file's data or attributes currently has it as its name.
    fn open_to_change(&self, paths: &[SmbPath]) -> Vec<bool>;
}

/// The backend's reports of changes to one watched directory's entries,
/// shared by every watch of the directory that covers the tree, or by every
/// other.
pub(super) struct Host {
    /// The reports cover the tree below the directory.
    pub(super) tree: bool,
    /// The directory, moved by renames as its watches are.
    pub(super) dir: Mutex<SmbPath>,
    pub(super) share: Weak<dyn WatchedShare>,
    /// What the server itself did to the directory's entries lately, to
    /// tell the backend's reports of it from other changes.
    pub(super) echo: Mutex<Echo>,
    /// Reports waiting for [`HOST_GRACE`] from their arrival. Its lock is
    /// held while they are passed on, so they go out in order.
    pub(super) waiting: Mutex<VecDeque<(tokio::time::Instant, Vec<DirChange>)>>,
    /// The task that takes the backend's reports.
    pub(super) task: Mutex<Option<AbortHandle>>,
    pub(super) stopped: AtomicBool,
    /// The backend gives no reports for the directory, so nothing is
    /// recorded in `echo`.
    pub(super) idle: AtomicBool,
}

impl Host {
    pub(super) fn new(dir: SmbPath, tree: bool, share: &Arc<impl WatchedShare + 'static>) -> Self {
        let share = Arc::downgrade(share);
        Self {
            tree,
            dir: Mutex::new(dir),
            share,
            echo: Mutex::default(),
            waiting: Mutex::default(),
            task: Mutex::new(None),
            stopped: AtomicBool::new(false),
            idle: AtomicBool::new(false),
        }
    }

    /// Takes the backend's reports from `source` until the host stops, the
    /// reports end or the share goes away. Each batch waits [`HOST_GRACE`]
    /// from its arrival, unless a change the server reports in the
    /// directory sends it on first.
    fn start(self: &Arc<Self>, source: Box<dyn DirWatch>) {
        let host = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut source = source;
            let mut open = true;
            loop {
                let (due, full) = {
                    let waiting = lock(&host.waiting);
                    let due = waiting.front().map(|(at, _)| *at + HOST_GRACE);
                    (due, waiting.len() >= HOST_QUEUE)
                };
                if !open && due.is_none() {
                    break;
                }
                tokio::select! {
                    changes = source.next(), if open && !full => match changes {
                        Some(changes) => {
                            let now = tokio::time::Instant::now();
                            lock(&host.waiting).push_back((now, changes));
                        }
                        None => open = false,
                    },
                    () = sleep_until_due(due), if due.is_some() => {
                        if !host.pass_on(Some(tokio::time::Instant::now())) {
                            return;
                        }
                    }
                }
            }
            if let Some(share) = host.share.upgrade() {
                share.watches().host_ended(&host);
            }
        });
        *lock(&self.task) = Some(task.abort_handle());
        if self.stopped.load(Ordering::Acquire) {
            task.abort();
        }
    }

    /// Passes on the waiting reports that arrived by `now`, or all of them.
    /// False once the share is gone.
    pub(super) fn pass_on(self: &Arc<Self>, now: Option<tokio::time::Instant>) -> bool {
        let Some(share) = self.share.upgrade() else {
            return false;
        };
        let mut waiting = lock(&self.waiting);
        while let Some((at, _)) = waiting.front() {
            if now.is_some_and(|now| *at + HOST_GRACE > now) {
                break;
            }
            let Some((_, changes)) = waiting.pop_front() else {
                break;
            };
            share.watches().take_host_changes(&*share, self, changes);
        }
        true
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

impl WatchTable {
    /// Asks `handle`, an open of the directory `watch` watches, for the
    /// backend's reports of changes to the directory's entries, unless the
    /// directory has them already or the backend gave none. They go to
    /// every watch of the directory until its last watch ends or they stop.
    pub(crate) async fn listen(
        &self,
        share: &Arc<impl WatchedShare + 'static>,
        watch: &Arc<Watch>,
        handle: &dyn Handle,
    ) {
        // The server's own changes are recorded before the backend can see
        // any.
        let host = {
            let mut dirs = lock(&self.dirs);
            let dir = watch.state().dir.clone();
            let Some(watched) = dirs.get_mut(&dir_key(dir.components(), self.case_sensitive)) else {
                return;
            };
            if watched.hosts.iter().any(|host| host.tree == watch.tree)
                || !watched.watches.iter().any(|w| Arc::ptr_eq(w, watch))
            {
                return;
            }
            let host = Arc::new(Host::new(dir, watch.tree, share));
            watched.hosts.push(Arc::clone(&host));
            host
        };
        match handle.watch(watch.tree).await {
            Ok(Some(source)) => host.start(source),
            _ => {
                host.idle.store(true, Ordering::Release);
                lock(&host.echo).clear();
            }
        }
    }

    /// Takes `host` away from its directory, which can listen again.
    fn detach(&self, host: &Arc<Host>) {
        let mut dirs = lock(&self.dirs);
        let key = dir_key(lock(&host.dir).components(), self.case_sensitive);
        if let Some(watched) = dirs.get_mut(&key) {
            watched.hosts.retain(|h| !Arc::ptr_eq(h, host));
        }
    }

    /// The watches that `host` reports for.
    fn watches_of(&self, host: &Arc<Host>) -> Vec<Arc<Watch>> {
        let dirs = lock(&self.dirs);
        let key = dir_key(lock(&host.dir).components(), self.case_sensitive);
        dirs.get(&key)
            .filter(|watched| watched.hears(host))
            .map(|watched| watched.watches.iter().filter(|watch| watch.tree == host.tree).cloned().collect())
            .unwrap_or_default()
    }

    /// The backend's reports ended without the directory being deleted:
    /// changes may have been lost, so every watch of it answers
    /// STATUS_NOTIFY_ENUM_DIR next, and the directory can listen again.
    fn host_ended(&self, host: &Arc<Host>) {
        for watch in self.watches_of(host) {
            watch.lose();
        }
        self.detach(host);
    }

    /// The directory `host` reports for was deleted outside the server: its
    /// watches end with STATUS_DELETE_PENDING, as when it is marked for
    /// deletion through the server, and stay ended.
    fn host_deleted(&self, host: &Arc<Host>) {
        let ended = {
            let mut dirs = lock(&self.dirs);
            let key = dir_key(lock(&host.dir).components(), self.case_sensitive);
            if !dirs.get(&key).is_some_and(|watched| watched.hears(host)) {
                return;
            }
            self.take_entry(&mut dirs, &key)
        };
        for watch in ended {
            watch.state().gone = true;
            watch.end(ntstatus::STATUS_DELETE_PENDING);
        }
    }

    /// Buffers the backend's `changes` to the directory `host` reports for
    /// in each of its watches whose filter asks for them, but those the
    /// server made.
    pub(super) fn take_host_changes(&self, share: &dyn WatchedShare, host: &Arc<Host>, changes: Vec<DirChange>) {
        let dir = lock(&host.dir).clone();
        let names = |directory: bool| {
            if directory { FILE_NOTIFY_CHANGE_DIR_NAME } else { FILE_NOTIFY_CHANGE_FILE_NAME }
        };
        // (action, name, filter) of what the watches hear.
        let mut heard: Vec<(u32, &str, u32)> = Vec::new();
        // Modifications heard, by index in `heard`, unless an open through
        // the server may be making them, with their paths.
        let mut unless_open: Vec<(usize, SmbPath)> = Vec::new();
        let mut lost = false;
        for change in &changes {
            let is_valid = |name: &str| match host.tree {
                true => name.split('\\').all(is_valid_component),
                false => is_valid_component(name),
            };
            let valid = is_valid(&change.name);
            let filter = names(change.is_directory);
            // A rename to or from a name the server cannot use is the
            // removal or addition of the other name.
            let kind = match &change.kind {
                DirChangeKind::Renamed { from } => match (is_valid(from), valid) {
                    (true, true) => change.kind.clone(),
                    (true, false) => {
                        let key = self.name_key(from);
                        if !lock(&host.echo).take_any(&[FILE_ACTION_REMOVED, FILE_ACTION_RENAMED_OLD_NAME], &key) {
                            heard.push((FILE_ACTION_REMOVED, from, filter));
                        }
                        continue;
                    }
                    (false, true) => DirChangeKind::Added,
                    (false, false) => continue,
                },
                kind => kind.clone(),
            };
            match kind {
                DirChangeKind::Deleted => {
                    self.host_deleted(host);
                    return;
                }
                DirChangeKind::Lost => {
                    lost = true;
                    continue;
                }
                // Moved outside the server, the directory keeps its watches
                // under its old name, where the server's changes below it
                // no longer reach them.
                DirChangeKind::Moved => {
                    lost |= !lock(&host.echo).take(RENAMED_SELF, "");
                    continue;
                }
                _ if !valid => continue,
                _ => {}
            }
            let key = self.name_key(&change.name);
            match kind {
                // A rename the kernel split in two matches the server's
                // rename too.
                DirChangeKind::Added | DirChangeKind::Removed => {
                    let (action, half) = if kind == DirChangeKind::Added {
                        (FILE_ACTION_ADDED, FILE_ACTION_RENAMED_NEW_NAME)
                    } else {
                        (FILE_ACTION_REMOVED, FILE_ACTION_RENAMED_OLD_NAME)
                    };
                    if !lock(&host.echo).take_any(&[action, half], &key) {
                        heard.push((action, &change.name, filter));
                    }
                }
                DirChangeKind::Renamed { .. } => {
                    let DirChangeKind::Renamed { from } = &change.kind else {
                        continue;
                    };
                    let from_key = self.name_key(from);
                    let mut echo = lock(&host.echo);
                    let echoed = echo.take(FILE_ACTION_RENAMED_OLD_NAME, &from_key)
                        & echo.take(FILE_ACTION_RENAMED_NEW_NAME, &key);
                    drop(echo);
                    if !echoed {
                        heard.push((FILE_ACTION_RENAMED_OLD_NAME, from, filter));
                        heard.push((FILE_ACTION_RENAMED_NEW_NAME, &change.name, filter));
                    }
                }
                DirChangeKind::Modified | DirChangeKind::AttributesChanged => {
                    let Ok(path) = dir.join(&change.name) else {
                        continue;
                    };
                    let echoed = {
                        let mut echo = lock(&host.echo);
                        (kind == DirChangeKind::Modified && echo.take(FILE_ACTION_MODIFIED, &key)) || echo.touched(&key)
                    };
                    if echoed {
                        continue;
                    }
                    let filter = match kind {
                        DirChangeKind::Modified => CONTENT_CHANGED,
                        _ => FILE_NOTIFY_CHANGE_ATTRIBUTES,
                    };
                    unless_open.push((heard.len(), path));
                    heard.push((FILE_ACTION_MODIFIED, &change.name, filter));
                }
                _ => {}
            }
        }
        let paths: Vec<SmbPath> = unless_open.iter().map(|(_, path)| path.clone()).collect();
        let open = share.open_to_change(&paths);
        let mut dropped = vec![false; heard.len()];
        for ((at, _), open) in unless_open.iter().zip(open) {
            dropped[*at] = open;
        }
        let mut at = 0;
        heard.retain(|_| {
            at += 1;
            !dropped[at - 1]
        });
        self.hear(host, &heard, lost);
    }

    /// Pushes `heard`, (action, name, filter) of changes the backend
    /// reported, into each watch of `host`'s directory whose filter asks
    /// for them, after STATUS_NOTIFY_ENUM_DIR when `lost`.
    pub(super) fn hear(&self, host: &Arc<Host>, heard: &[(u32, &str, u32)], lost: bool) {
        for watch in self.watches_of(host) {
            if lost {
                watch.lose();
            }
            let batch: Batch = heard
                .iter()
                .filter(|(_, _, filter)| watch.filter & filter != 0)
                .map(|(action, name, _)| (*action, name.encode_utf16().collect()))
                .collect();
            if !batch.is_empty() {
                watch.push(&batch);
            }
        }
    }
}
