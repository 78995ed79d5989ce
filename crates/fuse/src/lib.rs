//! A volume mounted on this machine: the kernel is the client.
//!
//! The daemon's process hosts the mount. A few threads take requests from the kernel and carry them out on the
//! volume ([`session`]); one more tells the kernel what other protocols changed ([`invalidate`]). The kernel
//! checks permissions and keeps locks, names, attributes and pages; it does not write back: every
//! write reaches the volume before it is answered.
//!
//! Durability is that of a local filesystem ([`Answers::Ordered`]): changes of names and attributes are answered
//! when they have their place in the order of changes, and a crash keeps a prefix of that order. They are durable
//! after fsync of the file or directory, after the mount has ended, and within 5 s anyway. The kernel sends
//! `syncfs` (FUSE_SYNCFS) to fuseblk and virtiofs servers only, so syncfs(2) and sync(2) do not reach this one.
//!
//! - `fuse.dies_with_the_process`: when the process dies in any way, the kernel answers ENOTCONN:
//!   only this process has descriptors of the connection, no child inherits them, and the thread that
//!   may be held up in the kernel keeps none of the others alive (`tell.no_shared_descriptors`). The
//!   next mount on the directory clears the remains away.
//! - `fuse.drop_unmounts`: dropping a [`FuseMount`] unmounts it, by force if files are open. The
//!   drop returns when no request is under way.
//! - `fuse.setuid_on_request`: a setuid bit or device node on the volume is honoured only if the
//!   mount options ask for it, since other protocols can make them.

mod convert;
mod dir;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod invalidate;
mod locks;
mod ops;
mod own;
mod past;
mod session;
mod state;
mod tell;
mod unmount;
mod xattr;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, SessionACL};
use larder_files::Files;
use larder_fs::{AccessTimes, Answers, AtimeMoves, Ino, Keeper};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use invalidate::Invalidator;
use ops::Operations;
use past::Past;
use session::Session;
use tell::Teller;
use unmount::Place;

pub use unmount::clear_remains;

/// How long the kernel believes attributes and names. The time is long, since the kernel hears of changes
/// (`invalidate.before_answer`).
const ATTR_TTL: Duration = Duration::from_secs(60);
const ENTRY_TTL: Duration = Duration::from_secs(60);
/// How long it believes names if no notification can invalidate all of them at once
/// (`invalidate.lost_means_all`).
const ENTRY_TTL_UNTRACKED: Duration = Duration::from_secs(5);
/// The largest write, and with it the largest read, of one request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Read-ahead and asynchronous requests that the kernel may have under way.
const BACKGROUND_REQUESTS_MAX: u16 = 128;
/// Several requests of [`REQUEST_BYTES_MAX`], so that reading a file in order keeps the volume busy.
const READ_AHEAD_KIB: u32 = 4096;
const THREADS_MAX: usize = 8;
/// Origins of this kind of client count from here, so that no two clients share one.
const ORIGIN_FIRST: u32 = 0x4655_5345;
/// A connection that ends by itself has ended by then, unless the machine is busy.
const MOMENT: Duration = Duration::from_millis(250);
/// How long the end of a mount may take in each of its steps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of a local mount, in the terms of mount(8).
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing can be changed through this mount (`-o ro`).
    pub read_only: bool,
    /// Other users than the one who mounts may use it; needs `user_allow_other` in /etc/fuse.conf unless root mounts.
    pub allow_other: bool,
    /// Set-user-ID and set-group-ID bits take effect (`-o suid`).
    pub honour_suid: bool,
    /// Device nodes take effect (`-o dev`).
    pub honour_devices: bool,
    /// Programs can be executed (`-o exec`).
    pub execute: bool,
    /// The access times that reading moves.
    pub access_times: AccessTimes,
    /// Every change is durable before it is answered (`-o sync`).
    pub synchronous: bool,
    /// The source that `mount` and `df` show.
    pub source: String,
    /// `.snapshots` is listed at the top, as a link (`-o snapshots`).
    pub snapshots_shown: bool,
    /// The directory that is the top of the mount.
    pub top: Ino,
}

impl Default for MountOptions {
    /// Read-write; open to all users if root mounts, as any local filesystem is.
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            honour_suid: false,
            honour_devices: false,
            execute: true,
            access_times: AccessTimes::RELATIVE,
            synchronous: false,
            source: "larder".to_owned(),
            snapshots_shown: false,
            top: Ino::ROOT,
        }
    }
}

impl MountOptions {
    /// Takes one of the words that `mount -o` knows. [`WORDS`] are all of them.
    pub fn take(&mut self, word: &str) -> Result<(), String> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "suid" => self.honour_suid = true,
            "nosuid" => self.honour_suid = false,
            "dev" => self.honour_devices = true,
            "nodev" => self.honour_devices = false,
            "exec" => self.execute = true,
            "noexec" => self.execute = false,
            "atime" | "relatime" | "nostrictatime" => self.access_times.moves = AtimeMoves::Relatively,
            "strictatime" => self.access_times.moves = AtimeMoves::Always,
            "noatime" => self.access_times.moves = AtimeMoves::Never,
            "diratime" => self.access_times.of_directories = true,
            "nodiratime" => self.access_times.of_directories = false,
            "sync" => self.synchronous = true,
            "async" => self.synchronous = false,
            "allow_other" => self.allow_other = true,
            "private" => self.allow_other = false,
            "snapshots" => self.snapshots_shown = true,
            "nosnapshots" => self.snapshots_shown = false,
            "defaults" => {}
            _ => return Err(format!("'{word}' is not a mount option of larder: use {WORDS}")),
        }
        Ok(())
    }
}

/// The words that [`MountOptions::take`] understands.
pub const WORDS: &str = "ro, rw, noatime, relatime, strictatime, nodiratime, nosuid, suid, nodev, dev, noexec, exec, \
     sync, async, allow_other, private, snapshots";

/// A mounted volume. Its calls block: an async caller goes through `spawn_blocking`, also to drop it.
pub struct FuseMount {
    place: Place,
    session: Arc<Session>,
    ended: Arc<Ended>,
    /// Nothing is left to be done at its end.
    finished: AtomicBool,
    stop: CancellationToken,
}

impl FuseMount {
    /// Mounts what `files` shows on the empty directory `dir`. `runtime` must be multi-threaded.
    pub fn mount(
        files: Files,
        dir: &Path,
        options: MountOptions,
        runtime: tokio::runtime::Handle,
    ) -> io::Result<FuseMount> {
        let dir = unmount::mountable(dir)?;
        let origin = next_origin();
        let answers = if options.synchronous { Answers::Durable } else { Answers::Ordered };
        let access_times = if options.read_only { AccessTimes::NEVER } else { options.access_times };
        let files = files.for_mount(origin, answers, access_times);
        let files = if options.snapshots_shown { files.showing_snapshots(options.top) } else { files };
        let (events, witness) = files.witness();
        let mut session = Session::new(files, options.top, runtime.clone(), access_times.moves);
        session.past = Past::listed_in(options.snapshots_shown.then_some(options.top));
        let session = Arc::new(session);
        let operations = Operations { session: session.clone() };
        let keeper: Arc<dyn Keeper> = session.kernel_inodes.clone();
        session.files.add_keeper(Arc::downgrade(&keeper));
        let kernel = fuser::Session::new(operations, &dir, &config(&options)).map_err(|error| explain(&dir, error))?;
        let place = Place::look(&dir).map_err(|error| explain(&dir, error))?;
        let stop = CancellationToken::new();
        let invalidator = Invalidator {
            origin,
            teller: Teller::start(kernel.as_fd())?,
            has_epochs: session.has_epochs.load(Ordering::Relaxed),
            kernel_inodes: session.kernel_inodes.clone(),
            events,
            witness,
            own: session.own_stale.clone(),
            stop: stop.clone(),
        };
        spawn("larder-inval", move || invalidator.run(&runtime))?;
        let ended = Arc::new(Ended::default());
        spawn("larder-mount", {
            let (ended, stop, place) = (ended.clone(), stop.clone(), place.clone());
            move || serve(kernel, &place, &stop, &ended)
        })?;
        place.set_read_ahead(READ_AHEAD_KIB);
        Ok(FuseMount { place, session, ended, finished: AtomicBool::new(false), stop })
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// It is in this process's mount table. One that is not may still be in another's, or be held by open files.
    pub fn is_mounted(&self) -> bool {
        !self.ended.is_set() && self.place.is_mounted()
    }

    /// Unmounts if no file is open there; otherwise [`io::ErrorKind::ResourceBusy`] and nothing has changed.
    /// Other mount namespaces that have it get errors from then on.
    pub fn unmount(&self) -> io::Result<()> {
        if self.ended.is_set() {
            self.finish();
            return Ok(());
        }
        // Another namespace that has it too keeps the kernel from writing these out at the unmount.
        unmount::sync_pages(&self.place.dir, PATIENCE);
        self.place.unmount(false)?;
        self.finish();
        Ok(())
    }

    /// Blocks until the mount has ended, by us, by `umount` or by a failure.
    pub fn wait(&self) {
        self.ended.wait(None);
    }

    /// As [`FuseMount::wait`] for async callers.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Ends all requests under way, after the mount point has left the tree (`fuse.drop_unmounts`).
    fn finish(&self) {
        if self.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        // The kernel ends the connection with the last mount of it, before the unmount returns. One that is still there is held
        // by open files or another mount namespace: those get ENOTCONN from now on. One that has ended is never aborted: its
        // number may be another mount's by now.
        let is_over = self.ended.wait(Some(MOMENT));
        if !is_over && (self.place.is_connected() || !self.ended.wait(Some(PATIENCE))) {
            self.session.closing.cancel();
            self.place.abort();
            self.ended.wait(Some(PATIENCE));
        }
        self.session.closing.cancel();
        self.stop.cancel();
        self.session.tasks.close();
        let until = Instant::now() + PATIENCE;
        while !self.session.tasks.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Acknowledged changes are durable once the mount is gone. An error is the volume's to report: it is poisoned then.
        let sync = async { tokio::time::timeout(PATIENCE, self.session.files.sync()).await };
        if !matches!(self.session.runtime.block_on(sync), Ok(Ok(()))) {
            tracing::warn!(dir = %self.place.dir.display(), "the last changes by the mount are not durable yet");
        }
        let _context = self.session.runtime.enter();
        drop(self.session.handles.clear());
        self.session.kernel_inodes.clear();
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.ended.is_set() {
            return self.finish();
        }
        if self.place.is_mounted() {
            // Pages written through mappings still live in the kernel.
            unmount::sync_pages(&self.place.dir, PATIENCE);
        }
        // Holders of open files lose them at once rather than keep a volume open that is about to close.
        if let Err(error) = self.place.unmount(false).or_else(|_| self.place.unmount(true)) {
            tracing::error!(dir = %self.place.dir.display(), %error, "the mount could not be removed");
        }
        self.finish();
    }
}

/// The thread that hosts the request threads; whatever ends them, the mount point does not stay behind dead.
fn serve(kernel: fuser::Session<Operations>, place: &Place, stop: &CancellationToken, ended: &Ended) {
    // The crate goes by the path alone.
    kernel.leave_mounted();
    if let Err(error) = kernel.run() {
        let dir = place.dir.display();
        tracing::error!(%dir, %error, "the mount failed");
        // Before the mount goes, and its number with it.
        if place.is_mounted() {
            place.abort();
        }
        if let Err(error) = place.unmount(true) {
            tracing::error!(%dir, %error, "the mount that failed could not be removed");
        }
    }
    stop.cancel();
    ended.set();
}

fn config(options: &MountOptions) -> Config {
    let pick = |on, yes, no| if on { yes } else { no };
    let source: String = options.source.chars().filter(|c| !c.is_control() && *c != ',').collect();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source),
        MountOption::Subtype("larder".to_owned()),
        MountOption::DefaultPermissions,
        pick(options.read_only, MountOption::RO, MountOption::RW),
        pick(options.honour_suid, MountOption::Suid, MountOption::NoSuid),
        pick(options.honour_devices, MountOption::Dev, MountOption::NoDev),
        pick(options.execute, MountOption::Exec, MountOption::NoExec),
        pick(options.access_times.moves == AtimeMoves::Never, MountOption::NoAtime, MountOption::Atime),
        pick(options.synchronous, MountOption::Sync, MountOption::Async),
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, THREADS_MAX));
    config.clone_fd = true;
    config
}

fn explain(dir: &Path, error: io::Error) -> io::Error {
    // With /dev/fuse there, it is the helper that was not found.
    let error = if Path::new("/dev/fuse").exists() { unmount::helper_failure(error, "mount") } else { error };
    let way_out = match error.kind() {
        io::ErrorKind::Unsupported => {
            return io::Error::new(error.kind(), format!("cannot mount on {}: {error}", dir.display()));
        }
        io::ErrorKind::NotFound => {
            "the kernel offers no /dev/fuse; run 'modprobe fuse' (in a container, pass the device)"
        }
        io::ErrorKind::PermissionDenied => {
            "mount as root, or install fuse3 and add 'user_allow_other' to /etc/fuse.conf to let other users in"
        }
        _ => "see 'dmesg' for the kernel's reason",
    };
    io::Error::new(error.kind(), format!("cannot mount on {}: {error}: {way_out}", dir.display()))
}

/// Operations of all mounts of this process.
pub fn metrics(out: &mut larder_base::metrics::Metrics) {
    session::COUNTED.metrics(out);
}

fn next_origin() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(ORIGIN_FIRST);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// A fact that becomes true once.
#[derive(Default)]
struct Ended {
    state: Mutex<bool>,
    changed: Condvar,
    notify: Notify,
}

impl Ended {
    fn set(&self) {
        *self.state.lock() = true;
        self.changed.notify_all();
        self.notify.notify_waiters();
    }

    fn is_set(&self) -> bool {
        *self.state.lock()
    }

    /// Returns whether it came true in time.
    fn wait(&self, patience: Option<Duration>) -> bool {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut state = self.state.lock();
        while !*state {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) if self.changed.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
            }
        }
        *state
    }

    async fn notified(&self) {
        let notified = self.notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}
