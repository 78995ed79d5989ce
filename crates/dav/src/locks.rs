//! Locks of clients (RFC 4918 6 and 7): by path here, and of files in the lock table of all doors.
//!
//! - `davlocks.others_see_files`: a lock of a file is a lock of the whole file in the table that all
//!   doors share, and an open that denies writing and removing to other doors. A lock of a folder is
//!   known at this door alone.
//! - `davlocks.path_and_file`: a lock covers the path that it was taken by, the file that this path leads
//!   to by any other path, and with depth infinity all paths below.
//! - `davlocks.bounded`: locks end with their time, which is at most [`TIME_MAX`]. There are at most
//!   [`LOCKS_MAX`] of them, of one user [`LOCKS_OF_USER_MAX`], and none outlives the server.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use larder_files::locks::Range;
use larder_files::{Caches, Files, Open, Uses};
use larder_fs::Ino;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::fail::Fail;
use super::path::{href, is_within};

pub const TIME_MAX: Duration = Duration::from_secs(3600);
pub const TIME_USUAL: Duration = Duration::from_secs(600);
const LOCKS_MAX: usize = 10_000;
const LOCKS_OF_USER_MAX: usize = 2_000;
/// Locked paths that an answer names: as many as it names of other failures.
const LOCKED_MAX: usize = 100;
/// Every byte that there is or will be.
const WHOLE: Range = Range { start: 0, last: u64::MAX };

/// A file across shares: its volume and inode.
pub type FileKey = (uuid::Uuid, Ino);

/// The share of a lock in the table of all doors (`davlocks.others_see_files`).
pub struct Held {
    files: Files,
    ino: Ino,
    id: u64,
    /// Denies writing and removing to other doors.
    _open: Open,
}

impl Held {
    /// Fails if a client of another door has it locked, has it open for writing, or denies writing.
    pub async fn take(files: &Files, ino: Ino, exclusive: bool) -> Result<Self, Fail> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let open = files.open(ino, Uses::NOTHING).await?;
        let is_claimed = open.claim_asking(files, Uses::NOTHING, Uses::WRITE.and(Uses::DELETE), true).await.is_ok();
        // Its holder means to write, so an open of another door that denies this is in the way. Later ones are not: readers that
        // deny writing still come in, and the holder's PUT waits for them by its status.
        if !is_claimed || files.is_denied_elsewhere(ino, Uses::WRITE).await {
            return Err(Fail::locked_elsewhere());
        }
        // `files.locks_asked_for`
        files.recall(ino, Caches::of_lock(exclusive)).await;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        files.lock(ino, id, WHOLE, exclusive, 0).map_err(|_| Fail::locked_elsewhere())?;
        Ok(Self { files: files.clone(), ino, id, _open: open })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.files.end_locks(self.ino, self.id);
    }
}

/// Whether a lock of another door is in the way of a change of the whole file.
pub fn is_locked_elsewhere(files: &Files, ino: Ino) -> bool {
    // Locks of this door were looked at by their tokens: they are no other door's.
    files.test_lock(ino, u64::MAX, WHOLE, true).is_some_and(|held| held.owner.door != files.origin())
}

/// A lock as a client knows it.
#[derive(Clone, Debug)]
pub struct Lock {
    pub token: String,
    pub user: String,
    /// The root.
    pub path: Bytes,
    pub is_folder: bool,
    pub exclusive: bool,
    pub deep: bool,
    /// The element `DAV:owner`, or nothing.
    pub owner: String,
    pub until: Instant,
    file: Option<FileKey>,
}

impl Lock {
    fn covers(&self, path: &[u8], file: Option<FileKey>) -> bool {
        self.path == path || (self.deep && is_within(path, &self.path)) || (file.is_some() && self.file == file)
    }

    pub fn href(&self) -> String {
        href(&self.path, self.is_folder)
    }
}

struct Entry {
    lock: Lock,
    held: Option<Arc<Held>>,
}

/// What a new lock is to be.
pub struct Wanted {
    pub user: String,
    pub path: Bytes,
    pub is_folder: bool,
    pub exclusive: bool,
    pub deep: bool,
    pub owner: String,
    pub time: Duration,
    pub file: Option<FileKey>,
}

#[derive(Default)]
pub struct Locks {
    all: Mutex<Vec<Entry>>,
    /// A lock was taken or refreshed: the next end may be another one.
    changed: Notify,
}

impl Locks {
    fn current(&self) -> parking_lot::MutexGuard<'_, Vec<Entry>> {
        let (mut all, now) = (self.all.lock(), Instant::now());
        all.retain(|entry| now < entry.lock.until);
        all
    }

    pub fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }

    /// Ends locks when their time is over, so that other doors need not wait for a request. Never returns.
    pub async fn end_in_time(&self) {
        loop {
            let next = self.current().iter().map(|entry| entry.lock.until).min();
            let time = async {
                match next {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = time => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Adds a lock, if no other one is in its way. `held` was taken before, for a file.
    pub fn add(&self, wanted: Wanted, held: Option<Held>) -> Result<Lock, Fail> {
        let mut all = self.current();
        let conflicts = |entry: &&Entry| {
            let other = &entry.lock;
            let meets =
                other.covers(&wanted.path, wanted.file) || (wanted.deep && is_within(&other.path, &wanted.path));
            meets && (wanted.exclusive || other.exclusive)
        };
        if let Some(entry) = all.iter().find(conflicts) {
            let mut fail = Fail::locked("");
            let href = entry.lock.href();
            fail.condition =
                Some(format!("<D:no-conflicting-lock><D:href>{href}</D:href></D:no-conflicting-lock>").into());
            return Err(fail);
        }
        let of_user = all.iter().filter(|entry| entry.lock.user == wanted.user).count();
        if all.len() >= LOCKS_MAX || of_user >= LOCKS_OF_USER_MAX {
            return Err(Fail::new(StatusCode::INSUFFICIENT_STORAGE, "there are as many locks as there may be"));
        }
        let lock = Lock {
            token: format!("urn:uuid:{}", uuid::Uuid::new_v4()),
            user: wanted.user,
            path: wanted.path,
            is_folder: wanted.is_folder,
            exclusive: wanted.exclusive,
            deep: wanted.deep,
            owner: wanted.owner,
            until: Instant::now() + wanted.time,
            file: wanted.file,
        };
        all.push(Entry { lock: lock.clone(), held: held.map(Arc::new) });
        drop(all);
        self.changed.notify_one();
        Ok(lock)
    }

    /// A new time for the lock `token` of `user`, which must cover `path`.
    pub fn refresh(&self, token: &str, user: &str, path: &[u8], file: Option<FileKey>, time: Duration) -> Option<Lock> {
        let mut all = self.current();
        let is_it =
            |entry: &&mut Entry| entry.lock.token == token && entry.lock.user == user && entry.lock.covers(path, file);
        let entry = all.iter_mut().find(is_it)?;
        entry.lock.until = Instant::now() + time;
        let lock = entry.lock.clone();
        drop(all);
        self.changed.notify_one();
        Some(lock)
    }

    /// RFC 4918 9.11.
    pub fn remove(&self, token: &str, user: &str, path: &[u8], file: Option<FileKey>) -> Result<(), Fail> {
        let mut all = self.current();
        let at = all.iter().position(|entry| entry.lock.token == token && entry.lock.covers(path, file));
        let at =
            at.ok_or(Fail::conflict("no lock with this token covers it").with("<D:lock-token-matches-request-uri/>"))?;
        if all.get(at).is_some_and(|entry| entry.lock.user != user) {
            return Err(Fail::forbidden("the lock is another user's"));
        }
        all.remove(at);
        Ok(())
    }

    /// The first `max` locks that cover `path`.
    pub fn covering(&self, path: &[u8], file: Option<FileKey>, max: usize) -> Vec<Lock> {
        let all = self.current();
        let covering = all.iter().filter(|entry| entry.lock.covers(path, file));
        covering.take(max).map(|entry| entry.lock.clone()).collect()
    }

    /// Whether the state of `path` has this token (RFC 4918 10.4.4).
    pub fn has_token(&self, path: &[u8], file: Option<FileKey>, token: &str) -> bool {
        self.current().iter().any(|entry| entry.lock.token == token && entry.lock.covers(path, file))
    }

    /// A change of `path` needs the token of an exclusive lock that covers it, and one of the shared ones.
    pub fn check(&self, path: &[u8], file: Option<FileKey>, user: &str, tokens: &[String]) -> Result<(), Fail> {
        let all = self.current();
        let covering = all.iter().map(|entry| &entry.lock).filter(|lock| lock.covers(path, file));
        let (mut first, mut has_any) = (None, false);
        for lock in covering {
            match lock.user == user && tokens.contains(&lock.token) {
                true => has_any = true,
                false if lock.exclusive => return Err(Fail::locked(&lock.href())),
                false => first = first.or(Some(lock)),
            }
        }
        match first {
            Some(lock) if !has_any => Err(Fail::locked(&lock.href())),
            _ => Ok(()),
        }
    }

    /// The first [`LOCKED_MAX`] paths below `top` that are locked, and not by these tokens.
    pub fn locked_below(&self, top: &[u8], user: &str, tokens: &[String]) -> Vec<(Bytes, Fail)> {
        let all = self.current();
        let below = all.iter().map(|entry| &entry.lock).filter(|lock| is_within(&lock.path, top) && lock.path != top);
        let mine: HashSet<&Bytes> = below
            .clone()
            .filter(|lock| lock.user == user && tokens.contains(&lock.token))
            .map(|lock| &lock.path)
            .collect();
        let others = below.filter(|lock| !mine.contains(&lock.path));
        others.take(LOCKED_MAX).map(|lock| (lock.path.clone(), Fail::locked(&lock.href()))).collect()
    }

    /// Who is no user any more has no locks.
    pub fn keep_users(&self, is_one: impl Fn(&str) -> bool) {
        self.current().retain(|entry| is_one(&entry.lock.user));
    }

    /// What was at `top` and below is gone: so are its locks.
    pub fn forget(&self, top: &[u8]) {
        self.current().retain(|entry| !is_within(&entry.lock.path, top));
    }

    /// What was below `top` is gone, and `top` itself is another thing of the same kind.
    pub fn forget_below(&self, top: &[u8]) {
        self.current().retain(|entry| !is_within(&entry.lock.path, top) || entry.lock.path == top);
    }

    /// What keeps `file` from other doors.
    pub fn held(&self, file: FileKey) -> Option<Arc<Held>> {
        self.current().iter().find(|entry| entry.lock.file == Some(file)).and_then(|entry| entry.held.clone())
    }

    /// Whether the locks of `file` are in the table of all doors: `Some` says whether exclusively.
    pub fn of_file(&self, file: FileKey) -> Option<bool> {
        let all = self.current();
        let mut of_it = all.iter().filter(|entry| entry.lock.file == Some(file));
        let first = of_it.next()?;
        Some(first.lock.exclusive)
    }

    /// The path now leads to another inode: the locks go with it, and `held` is what keeps it from other doors.
    pub fn replaced(&self, old: FileKey, new: FileKey, held: Arc<Held>) {
        for entry in self.current().iter_mut().filter(|entry| entry.lock.file == Some(old)) {
            (entry.lock.file, entry.held) = (Some(new), Some(Arc::clone(&held)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wanted(user: &str, path: &'static str, exclusive: bool, deep: bool) -> Wanted {
        Wanted {
            user: user.into(),
            path: Bytes::from_static(path.as_bytes()),
            is_folder: deep,
            exclusive,
            deep,
            owner: String::new(),
            time: TIME_USUAL,
            file: None,
        }
    }

    #[test]
    fn locks_cover_paths_and_exclude_each_other() {
        let locks = Locks::default();
        let folder = locks.add(wanted("ann", "s/a", true, true), None).unwrap();
        let status = |done: Result<Lock, Fail>| done.err().map(|fail| fail.status.as_u16());
        assert_eq!(status(locks.add(wanted("ann", "s/a/b", false, false), None)), Some(423));
        assert_eq!(status(locks.add(wanted("ann", "s", true, true), None)), Some(423), "one is below");
        assert_eq!(status(locks.add(wanted("ann", "s", true, false), None)), None, "depth 0");
        let tokens = [folder.token.clone()];
        for (path, user, tokens, free) in [
            ("s/a/b/c", "ann", &tokens[..], true),
            ("s/a/b/c", "ann", &[], false),
            ("s/a/b/c", "bob", &tokens, false),
            ("s/ab", "bob", &[], true),
        ] {
            assert_eq!(locks.check(path.as_bytes(), None, user, tokens).is_ok(), free, "{path} {user}");
        }
        assert_eq!(locks.locked_below(b"s", "bob", &[]).len(), 1);
        assert!(locks.remove(&folder.token, "bob", b"s/a", None).is_err());
        assert!(locks.remove(&folder.token, "ann", b"s/x", None).is_err());
        locks.remove(&folder.token, "ann", b"s/a/deep/down", None).unwrap();
        assert!(locks.check(b"s/a/b/c", None, "bob", &[]).is_ok());
    }

    #[test]
    fn shared_locks_need_one_token_and_time_ends_them() {
        let locks = Locks::default();
        let a = locks.add(wanted("ann", "f", false, false), None).unwrap();
        locks.add(wanted("bob", "f", false, false), None).unwrap();
        assert!(locks.add(wanted("bob", "f", true, false), None).is_err());
        assert!(
            locks.check(b"f", None, "ann", std::slice::from_ref(&a.token)).is_ok()
                && locks.check(b"f", None, "ann", &[]).is_err()
        );
        locks.add(Wanted { time: Duration::ZERO, ..wanted("ann", "g", true, false) }, None).unwrap();
        assert!(locks.check(b"g", None, "bob", &[]).is_ok());
        assert!(locks.refresh(&a.token, "bob", b"f", None, TIME_USUAL).is_none());
        assert!(locks.refresh(&a.token, "ann", b"f", None, TIME_USUAL).is_some());
        locks.forget(b"f");
        assert!(locks.is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let locks = Locks::default();
        for n in 0..LOCKS_OF_USER_MAX {
            let path = Bytes::from(n.to_string());
            locks.add(Wanted { path, ..wanted("ann", "", true, false) }, None).unwrap();
        }
        assert!(locks.add(wanted("ann", "one-more", true, false), None).is_err());
        assert!(locks.add(wanted("bob", "one-more", true, false), None).is_ok());
    }
}
