//! One filesystem of the host, and the nodes of its shared folders: from numbers to descriptors. Everything here blocks.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::{Timestamp, task};
use larder_fs::judge::Guarded;
use larder_fs::posix_acl;
use larder_fs::{Attr, Cred, Events, FileId, FileKind, FsError, FsResult, Ino, WriteVerifier};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use tokio::sync::Semaphore;

pub(crate) use super::kernel::{by_number, failed, statx};
use crate::folded::FoldedNames;
use crate::handle::Shape;
use crate::kernel::xattr;
use crate::known::{Known, Place};
use crate::notify::Notices;
use crate::numbers::{self, Streams};

/// Calls into the kernel at once; more wait. Disks and network filesystems gain nothing from more.
const WORKERS: usize = 64;
/// Events that a receiver may fall behind.
const EVENTS_MAX: usize = 4096;
/// Files that stay open for the next access.
const CACHED_FILES_MAX: usize = 256;
/// An open file that was not used for so long is closed.
const CACHED_FILE_IDLE: Duration = Duration::from_secs(4);
/// Deeper than any path of a client.
pub(crate) const DEPTH_MAX: usize = 4096;
const ACL_BYTES_MAX: usize = 65536;
const LOCKS: usize = 64;
/// Directories that wait for a commit; with more of them, all are flushed at once.
const UNFLUSHED_MAX: usize = 256;

/// An inode that doors have open, or that a call holds.
struct Pin {
    fd: Arc<OwnedFd>,
    generation: u64,
    count: usize,
    /// Its cached descriptor is closed with the last pin. Calls alone leave it for the next one.
    closes: bool,
}

struct CachedFile {
    file: Arc<OwnedFd>,
    is_writable: bool,
    used: Instant,
}

/// A node: a descriptor of it and its attributes of this moment.
pub(crate) struct Node {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) attr: Attr,
}

impl Node {
    pub(crate) fn ino(&self) -> Ino {
        self.attr.id.ino
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }

    pub(crate) fn directory(self) -> FsResult<Node> {
        if self.is_dir() { Ok(self) } else { Err(FsError::NotDirectory) }
    }
}

/// Whether it can have attributes of users: links and special files have none.
pub(crate) fn bears_user(node: &Node) -> bool {
    matches!(node.attr.kind, FileKind::File | FileKind::Directory)
}

/// A filesystem of the host with its shared folders.
pub(crate) struct Host {
    pub(crate) id: uuid::Uuid,
    device: (u32, u32),
    /// Of the first folder that was shared: for handles, and to flush everything.
    mount: OwnedFd,
    shape: Option<Shape>,
    tops: RwLock<HashMap<Ino, Arc<OwnedFd>>>,
    known: Mutex<Known>,
    pins: Mutex<HashMap<Ino, Pin>>,
    cached: Mutex<HashMap<Ino, CachedFile>>,
    is_sweeping: AtomicBool,
    pub(crate) folded: Mutex<FoldedNames>,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) has_xattrs: bool,
    pub(crate) notices: Arc<Notices>,
    /// Directories whose changes were answered and are durable with the next commit (`Answers::Ordered`).
    unflushed: Mutex<HashMap<Ino, Arc<OwnedFd>>>,
    /// Of appends, by number.
    pub(crate) turns: [Mutex<()>; LOCKS],
    pub(crate) events: Arc<Events>,
    pub(crate) verifier: WriteVerifier,
    poison: OnceLock<Arc<str>>,
    pub(crate) workers: Arc<Semaphore>,
}

fn kind_of(mode: u32) -> FileKind {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Symlink,
        rustix::fs::FileType::Fifo => FileKind::Fifo,
        rustix::fs::FileType::Socket => FileKind::Socket,
        rustix::fs::FileType::CharacterDevice => FileKind::CharDevice,
        rustix::fs::FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

/// The time at which an inode was made, which nobody can set. `None` where the filesystem does not keep it.
pub(crate) fn birth_time(fd: BorrowedFd<'_>) -> Option<Timestamp> {
    let stat = statx(fd).ok().filter(|stat| stat.stx_mask & StatxFlags::BTIME.bits() != 0)?;
    Some(Timestamp::new(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

fn attr_of(stat: &Statx, generation: u64) -> Attr {
    let time = |time: rustix::fs::StatxTimestamp| Timestamp::new(time.tv_sec, time.tv_nsec);
    let mode = u32::from(stat.stx_mode);
    let kind = kind_of(mode);
    let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    let ctime = time(stat.stx_ctime);
    let has_btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Attr {
        id: FileId { ino: Ino(stat.stx_ino), generation },
        kind,
        mode: mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        allocated: stat.stx_blocks.saturating_mul(512),
        rdev: if is_device { (stat.stx_rdev_major, stat.stx_rdev_minor) } else { (0, 0) },
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime,
        btime: if has_btime { time(stat.stx_btime) } else { ctime },
        change: (ctime.secs as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(ctime.nanos)),
        dos: 0,
    }
}

impl Host {
    /// The filesystem of a folder that is open.
    pub(crate) fn new(top: BorrowedFd<'_>, stat: &Statx) -> FsResult<Host> {
        let mount = top.try_clone_to_owned().map_err(|e| FsError::Io(e.to_string().into()))?;
        let room = rustix::fs::fstatvfs(top).map_err(failed)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let number = u64::from(device.0) << 32 | u64::from(device.1);
        let random = uuid::Uuid::new_v4().into_bytes();
        let events = Arc::new(Events::new(EVENTS_MAX));
        let mut verifier = [0; 8];
        verifier.copy_from_slice(&random[8..]);
        Ok(Host {
            id: uuid::Uuid::from_u64_pair(room.f_fsid, number),
            device,
            shape: Shape::of(top, stat.stx_ino),
            mount,
            tops: RwLock::default(),
            known: Mutex::default(),
            pins: Mutex::default(),
            cached: Mutex::default(),
            is_sweeping: AtomicBool::new(false),
            folded: Mutex::default(),
            streams: Mutex::default(),
            notices: Notices::new(events.clone()),
            has_xattrs: !matches!(xattr(top, b"user.DOSATTRIB", 256), Err(Errno::OPNOTSUPP)),
            unflushed: Mutex::default(),
            turns: std::array::from_fn(|_| Mutex::default()),
            events,
            verifier: WriteVerifier(verifier),
            poison: OnceLock::new(),
            workers: Arc::new(Semaphore::new(WORKERS)),
        })
    }

    /// Whether a descriptor of it is kept.
    pub(crate) fn is_cached(&self, ino: Ino) -> bool {
        self.cached.lock().contains_key(&ino)
    }

    /// As on a filesystem that has none.
    pub(crate) fn without_handles(&mut self) {
        self.shape = None;
    }

    /// Whether files are found again after a restart.
    pub(crate) fn has_handles(&self) -> bool {
        self.shape.is_some()
    }

    pub(crate) fn add_top(&self, ino: Ino, top: Arc<OwnedFd>) {
        self.tops.write().insert(ino, top);
    }

    pub(crate) fn is_top(&self, ino: Ino) -> bool {
        self.tops.read().contains_key(&ino)
    }

    pub(crate) fn turn(&self, ino: Ino) -> &Mutex<()> {
        &self.turns[ino.0 as usize % LOCKS]
    }

    // ---------------------------------------------------------------------------------- attributes

    fn checked(&self, fd: BorrowedFd<'_>) -> FsResult<Statx> {
        let stat = statx(fd).map_err(failed)?;
        if (stat.stx_dev_major, stat.stx_dev_minor) != self.device {
            return Err(FsError::NotFound);
        }
        if stat.stx_ino >= numbers::FIRST_INO {
            return Err(FsError::Refused("the host's inode numbers are larger than larder can share".into()));
        }
        Ok(stat)
    }

    fn generation(&self, fd: BorrowedFd<'_>, stat: &Statx) -> FsResult<u64> {
        match self.shape {
            Some(shape) => shape.generation(fd, stat.stx_ino).map(u64::from).map_err(failed),
            // A number that is used again comes with another time of birth.
            None => {
                let birth = stat.stx_btime;
                let secs = if stat.stx_mask & StatxFlags::BTIME.bits() != 0 { birth.tv_sec as u64 } else { 0 };
                Ok(secs << 30 ^ u64::from(birth.tv_nsec))
            }
        }
    }

    /// The attributes of an open node of which only the descriptor is known.
    pub(crate) fn identify(&self, fd: BorrowedFd<'_>) -> FsResult<Attr> {
        let stat = self.checked(fd)?;
        Ok(attr_of(&stat, self.generation(fd, &stat)?))
    }

    /// The attributes of a node now.
    pub(crate) fn again(&self, node: &Node) -> FsResult<Attr> {
        Ok(attr_of(&self.checked(node.fd.as_fd())?, node.attr.id.generation))
    }

    /// With the list that decides in place of the mode, where `cred` is judged by it.
    pub(crate) fn guarded(&self, node: &Node, cred: &Cred) -> FsResult<Guarded> {
        if cred.uid == 0 || cred.checked {
            return Ok(Guarded { attr: node.attr, acl: None });
        }
        self.with_list(node, false)
    }

    /// With its list; with the rules that children inherit if `inherited`.
    pub(crate) fn with_list(&self, node: &Node, inherited: bool) -> FsResult<Guarded> {
        if !matches!(node.attr.kind, FileKind::File | FileKind::Directory) {
            return Ok(Guarded { attr: node.attr, acl: None });
        }
        let access = self.list(node, "system.posix_acl_access")?;
        let default = match inherited && node.is_dir() {
            true => self.list(node, "system.posix_acl_default")?,
            false => None,
        };
        let acl = posix_acl::convert(access.as_deref(), default.as_deref(), node.attr.mode, node.is_dir());
        let acl = acl.map_err(|()| FsError::Io("the host's access control list of the file is damaged".into()))?;
        Ok(Guarded { attr: node.attr, acl: acl.map(Arc::new) })
    }

    pub(crate) fn list(&self, node: &Node, name: &str) -> FsResult<Option<Vec<u8>>> {
        match xattr(node.fd.as_fd(), name.as_bytes(), ACL_BYTES_MAX) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    // -------------------------------------------------------------------------------------- nodes

    /// The node of a number that a lookup, a listing or a handle has led to.
    pub(crate) fn node(&self, ino: Ino) -> FsResult<Node> {
        let pinned = self.pins.lock().get(&ino).map(|pin| (pin.fd.clone(), pin.generation));
        if let Some((fd, generation)) = pinned {
            let attr = attr_of(&self.checked(fd.as_fd())?, generation);
            return Ok(Node { fd, attr });
        }
        self.unpinned(ino, 0)
    }

    fn unpinned(&self, ino: Ino, depth: usize) -> FsResult<Node> {
        let top = self.tops.read().get(&ino).cloned();
        if let Some(fd) = top {
            let attr = self.identify(fd.as_fd())?;
            return if attr.nlink == 0 { Err(FsError::Stale) } else { Ok(Node { fd, attr }) };
        }
        let place = self.known.lock().get(ino).ok_or(FsError::Stale)?;
        let has_handles = self.shape.is_some();
        match place {
            Place::Handle(generation) => self.by_handle(FileId { ino, generation }),
            Place::Named(dir, name, generation) => match (self.by_name(ino, dir, &name, depth), generation) {
                (Ok(node), _) if has_handles => {
                    self.known.lock().put(ino, node.attr.kind, Place::Handle(node.attr.id.generation));
                    Ok(node)
                }
                (Ok(node), Some(wanted)) if node.attr.id.generation != wanted => Err(FsError::Stale),
                // It has moved since it was listed.
                (Err(FsError::Stale), Some(generation)) if has_handles => self.by_handle(FileId { ino, generation }),
                (found, _) => found,
            },
        }
    }

    /// What the name leads to now, if it still is the number.
    fn by_name(&self, ino: Ino, dir: Ino, name: &[u8], depth: usize) -> FsResult<Node> {
        if depth >= DEPTH_MAX {
            return Err(FsError::Stale);
        }
        let pinned = self.pins.lock().get(&dir).map(|pin| pin.fd.clone());
        let dir = match pinned {
            Some(fd) => fd,
            None => self.unpinned(dir, depth + 1)?.fd,
        };
        let fd = self.beneath(dir.as_fd(), name).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::XDEV => FsError::Stale,
            error => failed(error),
        })?;
        let attr = self.identify(fd.as_fd())?;
        if attr.id.ino == ino { Ok(Node { fd: Arc::new(fd), attr }) } else { Err(FsError::Stale) }
    }

    fn by_handle(&self, id: FileId) -> FsResult<Node> {
        let shape = self.shape.ok_or(FsError::Stale)?;
        let generation = u32::try_from(id.generation).map_err(|_| FsError::Stale)?;
        let fd = shape.open(self.mount.as_fd(), id.ino.0, generation).map_err(|error| match error {
            Errno::NOENT => FsError::Stale,
            error => failed(error),
        })?;
        let attr = attr_of(&self.checked(fd.as_fd())?, id.generation);
        if attr.id != id || attr.nlink == 0 {
            self.forget(id.ino);
            return Err(FsError::Stale);
        }
        Ok(Node { fd: Arc::new(fd), attr })
    }

    /// The node of a client's handle.
    pub(crate) fn resolve(&self, id: FileId) -> FsResult<Node> {
        let is_pinned = self.pins.lock().contains_key(&id.ino);
        let node = match self.shape.is_some() && !is_pinned && !self.is_top(id.ino) {
            true => {
                let node = self.by_handle(id)?;
                self.known.lock().put(id.ino, node.attr.kind, Place::Handle(id.generation));
                node
            }
            false => self.node(id.ino)?,
        };
        if node.attr.id == id { Ok(node) } else { Err(FsError::Stale) }
    }

    /// Opens a name as a path: never through a link, and never out of the filesystem (`folder.one_step`).
    fn beneath(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(dir, name, flags, Mode::empty(), within) {
            // A sandbox that does not know the call. The device is compared all the same.
            Err(Errno::NOSYS) => rustix::fs::openat(dir, name, flags, Mode::empty()),
            opened => opened,
        }
    }

    /// The node that a name in `dir` leads to; the name is no `.` or `..`.
    pub(crate) fn child(&self, dir: &Node, name: &[u8]) -> FsResult<Node> {
        let fd = self.beneath(dir.fd.as_fd(), name).map_err(failed)?;
        let attr = self.identify(fd.as_fd())?;
        self.remember(dir.ino(), name, &attr);
        Ok(Node { fd: Arc::new(fd), attr })
    }

    /// So that the number leads to it from now on.
    pub(crate) fn remember(&self, dir: Ino, name: &[u8], attr: &Attr) {
        let place = match self.shape {
            Some(_) => Place::Handle(attr.id.generation),
            None => Place::Named(dir, Bytes::copy_from_slice(name), Some(attr.id.generation)),
        };
        self.known.lock().put(attr.id.ino, attr.kind, place);
    }

    /// A directory that was reached by its path. Without handles its number leads nowhere until somebody lists it.
    pub(super) fn remember_dir(&self, dir: &Node) {
        if self.shape.is_some() {
            self.known.lock().put(dir.ino(), dir.attr.kind, Place::Handle(dir.attr.id.generation));
        }
    }

    /// Of a listing, which has not looked at it.
    pub(crate) fn remember_listed(&self, dir: Ino, name: &Bytes, ino: Ino, kind: FileKind) {
        let mut known = self.known.lock();
        // The host may have given the number to another file: the name goes first, and what was known is the second choice.
        let generation = match known.get(ino) {
            Some(Place::Handle(generation)) => Some(generation),
            _ => None,
        };
        known.put(ino, kind, Place::Named(dir, name.clone(), generation));
    }

    /// The directory above, which is remembered. The outermost shared folder is above itself (`folder.within`).
    pub(crate) fn above(&self, dir: &Node) -> FsResult<Node> {
        let ino = dir.ino();
        if self.is_top(ino) && !self.lies_in_another_top(dir)? {
            return self.node(ino);
        }
        let fd = self.up(dir.fd.as_fd())?;
        let attr = self.identify(fd.as_fd())?;
        // Without handles it is known by the name through which somebody came here.
        if self.shape.is_some() {
            self.known.lock().put(attr.id.ino, attr.kind, Place::Handle(attr.id.generation));
        }
        Ok(Node { fd: Arc::new(fd), attr })
    }

    fn up(&self, dir: BorrowedFd<'_>) -> FsResult<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, "..", flags, Mode::empty()).map_err(failed)
    }

    fn lies_in_another_top(&self, dir: &Node) -> FsResult<bool> {
        let (mut at, mut ino) = (self.up(dir.fd.as_fd())?, dir.ino());
        for _ in 0..DEPTH_MAX {
            let stat = statx(at.as_fd()).map_err(failed)?;
            if (stat.stx_dev_major, stat.stx_dev_minor) != self.device || stat.stx_ino == ino.0 {
                return Ok(false);
            }
            ino = Ino(stat.stx_ino);
            if self.is_top(ino) {
                return Ok(true);
            }
            at = self.up(at.as_fd())?;
        }
        Ok(false)
    }

    // -------------------------------------------------------------------------------------- opens

    /// `closes`: for an open, and not for one call.
    pub(crate) fn pin(&self, node: &Node, closes: bool) {
        let mut pins = self.pins.lock();
        let (fd, generation) = (node.fd.clone(), node.attr.id.generation);
        let pin = pins.entry(node.ino()).or_insert(Pin { fd, generation, count: 0, closes });
        pin.count += 1;
        pin.closes |= closes;
    }

    pub(crate) fn unpin(&self, ino: Ino) {
        if numbers::is_stream(ino) {
            return self.streams.lock().unpin(ino);
        }
        let mut pins = self.pins.lock();
        let Some(pin) = pins.get_mut(&ino) else { return };
        pin.count -= 1;
        if pin.count == 0 {
            // The descriptor may be the last hold on a large file: the kernel frees it with the close.
            let closes = pins.remove(&ino).is_some_and(|pin| pin.closes);
            drop(pins);
            if closes {
                self.cached.lock().remove(&ino);
            }
        }
    }

    /// A file of which the last name is gone gives its room back.
    pub(crate) fn forget(&self, ino: Ino) {
        if let Some(pin) = self.pins.lock().get_mut(&ino) {
            pin.closes = true;
        }
        drop(self.cached.lock().remove(&ino));
    }

    /// Opened anew: a node's own descriptor is only a path.
    pub(crate) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> FsResult<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        rustix::fs::open(by_number(fd), flags, Mode::empty()).map_err(failed)
    }

    /// A descriptor for the data of a file; it stays open a while.
    pub(crate) fn data(self: &Arc<Self>, node: &Node, is_writable: bool) -> FsResult<Arc<OwnedFd>> {
        let ino = match node.attr.kind {
            FileKind::File => node.ino(),
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid("only regular files have data")),
        };
        let now = Instant::now();
        if let Some(cached) = self.cached.lock().get_mut(&ino)
            && (cached.is_writable || !is_writable)
        {
            cached.used = now;
            return Ok(cached.file.clone());
        }
        let access = if is_writable { OFlags::RDWR } else { OFlags::RDONLY };
        let file = Arc::new(self.reopen(node.fd.as_fd(), access)?);
        let mut cached = self.cached.lock();
        if cached.len() >= CACHED_FILES_MAX {
            let oldest = cached.iter().min_by_key(|(_, file)| file.used).map(|(ino, _)| *ino);
            oldest.map(|ino| cached.remove(&ino));
        }
        cached.insert(ino, CachedFile { file: file.clone(), is_writable, used: now });
        drop(cached);
        self.sweep_later();
        Ok(file)
    }

    /// Closes files that nobody uses, and ends when none is left.
    fn sweep_later(self: &Arc<Self>) {
        if self.is_sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let host = Arc::downgrade(self);
        task::spawn(async move {
            loop {
                tokio::time::sleep(CACHED_FILE_IDLE).await;
                let Some(host) = host.upgrade() else { return };
                let (closed, is_done) = host.close_idle();
                // A close may free a large file, and then takes long.
                let _ = task::blocking(move || drop(closed)).await;
                if is_done {
                    return;
                }
            }
        });
    }

    /// The files that nobody used lately, to be closed, and whether no other is left.
    fn close_idle(&self) -> (Vec<CachedFile>, bool) {
        let now = Instant::now();
        let mut cached = self.cached.lock();
        let is_idle = |file: &CachedFile| now.duration_since(file.used) >= CACHED_FILE_IDLE;
        let idle: Vec<Ino> = cached.iter().filter(|(_, file)| is_idle(file)).map(|(ino, _)| *ino).collect();
        let closed = idle.iter().filter_map(|ino| cached.remove(ino)).collect();
        let is_done = cached.is_empty();
        if is_done {
            self.is_sweeping.store(false, Ordering::Release);
        }
        (closed, is_done)
    }

    // ------------------------------------------------------------------------------- durability

    /// [`FsError::Poisoned`] after a flush that failed.
    pub(crate) fn admit(&self) -> FsResult<()> {
        match self.poison.get() {
            Some(why) => Err(FsError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// The result of a flush. Of a failed one nobody knows what the disk kept (`folder.poison`).
    pub(crate) fn flushed(&self, result: Result<(), Errno>) -> FsResult<()> {
        match result {
            Ok(()) => Ok(()),
            // The filesystem cannot flush such a thing; there is nothing that it could lose.
            Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(failed(error)),
            Err(error) => {
                let why: Arc<str> = format!("the host could not flush: {}", std::io::Error::from(error)).into();
                tracing::error!("a shared folder of the host: {why}; restart larder once the disk is well");
                Err(FsError::Poisoned(self.poison.get_or_init(|| why).clone()))
            }
        }
    }

    /// Makes a node and what is in it durable: a directory's names, a file's data and attributes.
    pub(crate) fn flush(self: &Arc<Self>, node: &Node) -> FsResult<()> {
        self.admit()?;
        match node.attr.kind {
            FileKind::File => {
                let file = self.data(node, false)?;
                self.flushed(rustix::fs::fsync(file))
            }
            FileKind::Directory => {
                let dir = self.reopen(node.fd.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
                self.flushed(rustix::fs::fsync(dir))
            }
            // It cannot be opened.
            _ => self.flush_all(),
        }
    }

    /// A directory that has to be durable before the next commit is answered.
    pub(crate) fn flush_later(&self, dir: &Node) -> FsResult<()> {
        let is_full = {
            let mut unflushed = self.unflushed.lock();
            unflushed.insert(dir.ino(), dir.fd.clone());
            unflushed.len() > UNFLUSHED_MAX
        };
        if is_full { self.flush_names() } else { Ok(()) }
    }

    /// Makes names durable that were made, moved or removed before.
    pub(crate) fn flush_names(&self) -> FsResult<()> {
        self.admit()?;
        let dirs = std::mem::take(&mut *self.unflushed.lock());
        for dir in dirs.values() {
            let open = self.reopen(dir.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
            self.flushed(rustix::fs::fsync(open))?;
        }
        Ok(())
    }

    pub(crate) fn flush_all(&self) -> FsResult<()> {
        self.admit()?;
        self.flushed(rustix::fs::syncfs(&self.mount))
    }
}
