//! One mounted session: the state that its request handlers share, and the execution of a request.
//!
//! - `requests.handlers_never_wait`: a handler thread never waits for a request. It polls the
//!   operation once in place; an operation that finds all it needs in caches completes there. An
//!   operation that suspends moves to the runtime, so a slow request holds up no other.
//! - `requests.writes_bounded`: data of writes under way is bounded. Past [`IN_FLIGHT_BYTES_MAX`]
//!   the handler thread does wait, and the kernel queues.
//! - `requests.no_page_waits`: no answer waits without a bound for a notification to the kernel. A
//!   notification waits for pages that are locked, and a page stays locked until the request that
//!   locked it is answered.
//! - `requests.answered_once`: every request is answered once. A reply that is dropped, by a panic
//!   or at the end of the mount, answers EIO.

use std::future::Future;
use std::io::IoSlice;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fuser::{Generation, INodeNo, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, Request};
use larder_base::{Clock, SystemClock};
use larder_files::Files;
use larder_fs::{AtimeMoves, Attr, Client, Cred, FileKind, FsError, FsResult, Ino, NameMatch, ReadData};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use larder_doors::counted::{Counted, Names};

use super::convert::{age, errno, file_attr, negative_attr};
use super::locks::LockWaits;
use super::own::{Asked, OwnStale};
use super::past::{self, Past};
use super::state::{Handles, KernelInodes};
use super::{ATTR_TTL, ENTRY_TTL, ENTRY_TTL_UNTRACKED};

/// Bytes of writes that wait in the runtime.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;
/// The space that a file takes up changes without an event when its data is compressed and flushed, within
/// seconds of the last change; until then its attributes are believed this long.
const YOUNG: Duration = Duration::from_secs(10);
const ATTR_TTL_YOUNG: Duration = Duration::from_secs(1);
/// The kernel takes 1024 pieces in one call, one of them the header's.
const PIECES_MAX: usize = 1000;
/// Each look but the first follows a removal of what the one before had found.
const LOOKS_MAX: usize = 100;
/// How long the answer to a write waits for a notification (`requests.no_page_waits`).
const TOLD_WAIT_MAX: Duration = Duration::from_millis(50);

/// Kinds of requests, as they are counted.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Lookup,
    GetAttributes,
    SetAttributes,
    List,
    Create,
    Remove,
    Rename,
    Open,
    Read,
    Write,
    Sync,
    Lock,
    ExtendedAttributes,
    Other,
}

/// Of all mounts of this process, those that are gone included.
pub(super) static COUNTED: Counted<{ Op::Other as usize + 1 }> = Counted::new(Names {
    operations: [
        "lookup",
        "get-attributes",
        "set-attributes",
        "list",
        "create",
        "remove",
        "rename",
        "open",
        "read",
        "write",
        "sync",
        "lock",
        "extended-attributes",
        "other",
    ],
    seconds: "larder_serve_mount_operation_seconds",
    read_bytes: "larder_serve_mount_read_bytes_total",
    written_bytes: "larder_serve_mount_written_bytes_total",
});

pub(super) struct Session {
    pub(super) files: Files,
    /// The directory at the top of the mount.
    pub(super) top: Ino,
    /// `past.listed_as_a_link`.
    pub(super) past: Past,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) tasks: TaskTracker,
    pub(super) handles: Handles,
    pub(super) kernel_inodes: Arc<KernelInodes>,
    pub(super) own_stale: Arc<OwnStale>,
    /// When reading a file moves its access time.
    pub(super) atime_moves: AtimeMoves,
    pub(super) closing: CancellationToken,
    pub(super) lock_waits: LockWaits,
    /// The kernel can be told to look all names up again (protocol 7.44).
    pub(super) has_epochs: AtomicBool,
    in_flight_bytes: AtomicUsize,
    no_groups: Arc<[u32]>,
    pub(super) clock: SystemClock,
}

impl Session {
    pub(super) fn new(files: Files, top: Ino, runtime: tokio::runtime::Handle, atime_moves: AtimeMoves) -> Self {
        Self {
            files,
            top,
            past: Past::listed_in(None),
            runtime,
            tasks: TaskTracker::new(),
            handles: Handles::default(),
            kernel_inodes: Arc::new(KernelInodes::new()),
            own_stale: Arc::new(OwnStale::new()),
            atime_moves,
            closing: CancellationToken::new(),
            lock_waits: LockWaits::default(),
            has_epochs: AtomicBool::new(false),
            in_flight_bytes: AtomicUsize::new(0),
            no_groups: Arc::from([]),
            clock: SystemClock::default(),
        }
    }

    /// The inode that the kernel means: it calls the top of every mount 1.
    pub(super) fn ino(&self, ino: INodeNo) -> Ino {
        if ino == INodeNo::ROOT { self.top } else { Ino(ino.0) }
    }

    /// The caller, whose rights the kernel has checked already.
    pub(super) fn cred(&self, request: &Request) -> Cred {
        Cred {
            uid: request.uid(),
            gid: request.gid(),
            groups: self.no_groups.clone(),
            checked: true,
            client: Client::default(),
        }
    }

    /// For writes: the kernel says in each whether setuid and setgid bits have to go, and the volume drops
    /// them for everybody but root.
    pub(super) fn write_cred(&self, request: &Request, drop_suid: bool) -> Cred {
        const NOBODY: u32 = 65_534;
        let mut cred = self.cred(request);
        cred.uid = match (drop_suid, cred.uid) {
            (false, _) => 0,
            (true, 0) => NOBODY,
            (true, uid) => uid,
        };
        cred
    }

    /// `cred` with the caller's other groups where they matter: whether a setgid bit that nobody executes stays with a file that
    /// changes. The kernel does not send them, and only a few files ask for the look into /proc.
    /// Also says whether a change by this caller may clear bits of the mode, of which the kernel hears nothing.
    pub(super) async fn with_groups(&self, cred: Cred, caller: u32, ino: Ino) -> (Cred, bool) {
        const SUID_OR_SGID: u32 = 0o6000;
        const SGID: u32 = 0o2000;
        const SGID_AND_GROUP_EXECUTES: u32 = 0o2010;
        if cred.uid == 0 {
            return (cred, false);
        }
        let Ok(attr) = self.files.getattr(ino).await else { return (cred, false) };
        let clears = attr.mode & SUID_OR_SGID != 0;
        if attr.mode & SGID_AND_GROUP_EXECUTES == SGID && !cred.in_group(attr.gid) {
            let status = std::fs::read_to_string(format!("/proc/{caller}/status")).unwrap_or_default();
            return (Cred { groups: groups_in(&status).into(), ..cred }, clears);
        }
        (cred, clears)
    }

    /// Carries a request out (`requests.handlers_never_wait`).
    pub(super) fn serve(&self, kind: Op, operation: impl Future<Output = ()> + Send + 'static) {
        if self.closing.is_cancelled() {
            return;
        }
        let since = Instant::now();
        self.start(Box::pin(async move {
            operation.await;
            COUNTED.add(kind as usize, since);
        }));
    }

    fn start(&self, mut operation: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let _context = self.runtime.enter();
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| poll_once(operation.as_mut())));
        match polled {
            Ok(Poll::Ready(())) => {}
            Ok(Poll::Pending) => drop(self.tasks.spawn_on(operation, &self.runtime)),
            Err(_) => tracing::error!("a request of the mount panicked; it was answered with EIO"),
        }
    }

    /// As [`Session::serve`], for a write that holds `bytes` of data (`requests.writes_bounded`).
    pub(super) fn serve_holding(self: &Arc<Self>, bytes: usize, operation: impl Future<Output = ()> + Send + 'static) {
        let held = Held { session: self.clone(), bytes };
        let before = self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        let operation = async move {
            operation.await;
            drop(held);
        };
        COUNTED.written_bytes.add(bytes as u64);
        if before.saturating_add(bytes) <= IN_FLIGHT_BYTES_MAX {
            return self.serve(Op::Write, operation);
        }
        let waited = std::panic::catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(operation)));
        if waited.is_err() {
            tracing::error!("a write of the mount panicked; it was answered with EIO");
        }
    }

    pub(super) fn entry_ttl(&self) -> Duration {
        if self.files.is_followed() {
            return ATTR_TTL_YOUNG;
        }
        if self.has_epochs.load(Ordering::Relaxed) { ENTRY_TTL } else { ENTRY_TTL_UNTRACKED }
    }

    pub(super) fn attr_ttl(&self, attr: &Attr) -> Duration {
        let is_young = attr.kind == FileKind::File && age(self.clock.now(), attr.ctime) < YOUNG;
        let young = is_young || self.files.is_followed();
        if young { ATTR_TTL_YOUNG } else { ATTR_TTL }
    }

    /// Pages cached earlier may be kept unless a read has to reach the volume for the access time's sake:
    /// relatime wants it moved by the first read after a change and once a day, strictatime by the first after each open.
    pub(super) fn may_keep_cache(&self, attr: &Attr) -> bool {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let relatime_due =
            attr.atime <= attr.mtime || attr.atime <= attr.ctime || age(self.clock.now(), attr.atime) >= DAY;
        let is_due = match self.atime_moves {
            AtimeMoves::Never => false,
            AtimeMoves::Relatively => relatime_due,
            AtimeMoves::Always => true,
        };
        !self.files.is_followed() && !is_due
    }

    pub(super) fn send_attr(&self, reply: ReplyAttr, result: FsResult<Attr>) {
        match result {
            Ok(attr) => reply.attr(&self.attr_ttl(&attr), &file_attr(&attr)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Looks up what the kernel is going to know (`kernel.alive_when_learned`). The answer is sent by [`Session::send_learned`].
    pub(super) async fn look_up(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        for _ in 0..LOOKS_MAX {
            let removals = self.kernel_inodes.removals();
            // The kernel resolves `.` and `..` itself, except for handles of inodes that it has forgotten. Those may be files.
            let attr = match name {
                b"." => self.getattr(dir).await?,
                b".." => self.files.getattr(self.files.parent(dir).await?).await?,
                _ => {
                    let asked = self.past.name_in_volume(dir, name);
                    self.past.as_seen(dir, name, self.files.lookup(cred, dir, asked, NameMatch::Exact).await?)
                }
            };
            self.kernel_inodes.learn(attr.id.ino);
            if self.is_alive_since(removals, attr.id.ino).await {
                return Ok(attr);
            }
            self.kernel_inodes.forget(attr.id.ino.0, 1);
        }
        Err(FsError::Stale)
    }

    /// The attributes of an inode that the kernel knows.
    pub(super) async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        if ino == past::LINK { past::link(&self.files, self.top).await } else { self.files.getattr(ino).await }
    }

    /// Whether an inode that was found after `removals` and is entered for the kernel is still there.
    pub(super) async fn is_alive_since(&self, removals: u64, ino: Ino) -> bool {
        self.kernel_inodes.removals() == removals || !matches!(self.getattr(ino).await, Err(FsError::Stale))
    }

    pub(super) fn send_entry(&self, reply: ReplyEntry, result: FsResult<Attr>) {
        if let Ok(attr) = &result {
            self.kernel_inodes.learn(attr.id.ino);
        }
        self.send_learned(reply, result);
    }

    /// As [`Session::send_entry`], of an inode that is entered already.
    fn send_learned(&self, reply: ReplyEntry, result: FsResult<Attr>) {
        match result {
            Ok(attr) => {
                let generation = Generation(attr.id.generation);
                reply.entry_with_ttls(&self.attr_ttl(&attr), &self.entry_ttl(), &file_attr(&attr), generation);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// The answer to [`Session::look_up`]: an absence is news that the kernel may keep.
    pub(super) fn send_lookup(&self, reply: ReplyEntry, result: FsResult<Attr>) {
        match result {
            Err(FsError::NotFound) => {
                reply.entry_with_ttls(&Duration::ZERO, &self.entry_ttl(), &negative_attr(), Generation(0));
            }
            found => self.send_learned(reply, found),
        }
    }

    /// Answers when the kernel no longer believes what `asked` stands for, or is busy (`requests.no_page_waits`). The wait is
    /// a task of its own: no thread that takes requests waits for it.
    pub(super) fn answer_when_told(&self, asked: Option<Asked>, answer: impl FnOnce() + Send + 'static) {
        let Some(asked) = asked else { return answer() };
        let own = self.own_stale.clone();
        let told = async move {
            let _ = tokio::time::timeout(TOLD_WAIT_MAX, own.until_told(asked)).await;
            answer();
        };
        drop(self.tasks.spawn_on(told, &self.runtime));
    }
}

/// Data of a request under way, counted against the bound.
struct Held {
    session: Arc<Session>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.session.in_flight_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn poll_once(operation: Pin<&mut (impl Future<Output = ()> + ?Sized)>) -> Poll<()> {
    // The waker is replaced when the runtime polls again, which it does at once after the spawn.
    operation.poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) fn send_done<T>(reply: ReplyEmpty, result: FsResult<T>) {
    match result {
        Ok(_) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Data as it lies in caches, not copied together.
pub(super) fn send_data(reply: ReplyData, data: &ReadData, len_max: usize) {
    COUNTED.read_bytes.add(data.len().min(len_max) as u64);
    if let [only] = data.chunks.as_slice() {
        return reply.data(&only[..only.len().min(len_max)]);
    }
    let mut left = len_max;
    let mut pieces = Vec::with_capacity(data.chunks.len());
    for chunk in &data.chunks {
        let piece = &chunk[..chunk.len().min(left)];
        left -= piece.len();
        pieces.push(IoSlice::new(piece));
    }
    if pieces.len() <= PIECES_MAX {
        return reply.data_vectored(&pieces);
    }
    let mut joined = Vec::with_capacity(len_max);
    pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
    reply.data(&joined);
}

/// The supplementary groups in `/proc/PID/status`.
fn groups_in(status: &str) -> Vec<u32> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok()).collect()
}
