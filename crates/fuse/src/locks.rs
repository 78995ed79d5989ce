//! POSIX locks of programs on the mount: they stand in the table of all doors.
//!
//! The kernel tells three ends of a lock: an unlock, a process that closes the file (FLUSH), and the last reference to an open
//! file (RELEASE), which ends those of the open file itself. A mount that ends any way ends all of them. A program that waits for a lock may get a signal; the kernel then waits for the answer all the same, so
//! waiting ends with EINTR.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fuser::Errno;
use larder_files::Caches;
use larder_files::locks::{LockError, Range};
use larder_fs::Ino;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::session::Session;

/// F_RDLCK, F_WRLCK, F_UNLCK.
pub(super) const SHARED: i32 = 0;
pub(super) const EXCLUSIVE: i32 = 1;
pub(super) const UNLOCK: i32 = 2;

/// Interrupts of requests that are not known to wait: most are of other kinds of requests.
const EARLY_MAX: usize = 256;

pub(super) struct Wanted {
    pub ino: Ino,
    pub owner: u64,
    pub range: Range,
    pub kind: i32,
    pub pid: u32,
}

/// Requests that wait for a lock.
#[derive(Default)]
pub(super) struct LockWaits(Arc<Mutex<Waits>>);

#[derive(Default)]
struct Waits {
    by_request: HashMap<u64, CancellationToken>,
    /// An interrupt may be read by another thread before its request is known.
    early: VecDeque<u64>,
}

/// A request that may wait, until it is dropped.
pub(super) struct Wait {
    request: u64,
    interrupted: CancellationToken,
    waits: Arc<Mutex<Waits>>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waits.lock().by_request.remove(&self.request);
    }
}

impl LockWaits {
    pub(super) fn begin(&self, request: u64) -> Wait {
        let interrupted = CancellationToken::new();
        let mut waits = self.0.lock();
        if waits.early.contains(&request) {
            interrupted.cancel();
        }
        waits.by_request.insert(request, interrupted.clone());
        Wait { request, interrupted, waits: Arc::clone(&self.0) }
    }

    pub(super) fn interrupt(&self, request: u64) {
        let mut waits = self.0.lock();
        match waits.by_request.get(&request) {
            Some(wait) => wait.cancel(),
            None => {
                waits.early.push_back(request);
                if waits.early.len() > EARLY_MAX {
                    waits.early.pop_front();
                }
            }
        }
    }
}

pub(super) async fn set(session: &Session, wanted: &Wanted, wait: Option<Wait>) -> Result<(), Errno> {
    let Wanted { ino, owner, range, kind, pid } = *wanted;
    let files = &session.files;
    // `files.locks_asked_for`
    let asked = files.recall(ino, Caches::of_lock(kind == EXCLUSIVE));
    match (kind, &wait) {
        (UNLOCK, _) => files.unlock(ino, owner, range).map_err(errno),
        (SHARED | EXCLUSIVE, None) => {
            asked.await;
            files.lock(ino, owner, range, kind == EXCLUSIVE, pid).map_err(errno)
        }
        (SHARED | EXCLUSIVE, Some(wait)) => tokio::select! {
            biased;
            done = async {
                asked.await;
                files.lock_when_free(ino, owner, range, kind == EXCLUSIVE, pid).await
            } => done.map_err(errno),
            () = wait.interrupted.cancelled() => Err(Errno::EINTR),
            () = session.closing.cancelled() => Err(Errno::EINTR),
        },
        _ => Err(Errno::EINVAL),
    }
}

fn errno(error: LockError) -> Errno {
    match error {
        LockError::Conflict(_) | LockError::Reclaims => Errno::EAGAIN,
        LockError::Deadlock => Errno::EDEADLK,
        LockError::TooMany => Errno::ENOLCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_heard_before_and_after_its_request() {
        let waits = LockWaits::default();
        let wait = waits.begin(7);
        assert!(!wait.interrupted.is_cancelled());
        waits.interrupt(7);
        assert!(wait.interrupted.is_cancelled());
        drop(wait);
        assert!(waits.0.lock().by_request.is_empty());
        waits.interrupt(8);
        assert!(waits.begin(8).interrupted.is_cancelled());
        assert!(!waits.begin(9).interrupted.is_cancelled());
        (0..1000).for_each(|request| waits.interrupt(1000 + request));
        assert!(waits.0.lock().early.len() <= EARLY_MAX);
    }
}
